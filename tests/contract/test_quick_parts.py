"""The parts that are made by hand for the sake of start-up time do what the slow originals do."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import math
import pickle
import subprocess
import sys
import threading
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventq import records
from eventq.errors import InputError
from eventq.memory import nodes
from eventq.records.source import Source
from eventq.records.turn import NewTurn, Page, Turn
from eventq.store import queue_rows, run_rows, turn_rows
from eventq.system import zstd
from eventq.system.jsontext import Reader, writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDS = [module.name for module in iter_modules(records.__path__, "eventq.records.")]
KINDS = [
    kind
    for module in (*map(import_module, RECORDS), nodes, turn_rows, run_rows, queue_rows)
    for kind in vars(module).values()
    if isinstance(kind, type) and hasattr(kind, "_field_defaults")
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_is_a_named_tuple_and_a_frozen_dataclass(kind: Any) -> None:
    """Fields, signature, pickles and changed copies are theirs; it has no other attributes."""
    assert len(KINDS) >= 60
    names = kind._fields
    assert names == kind.__match_args__ == tuple(kind.__annotations__)
    values: list[Any] = ["self", ()] if kind is Source else [*range(len(names))]
    fields = dict(zip(names, values, strict=True))
    one = kind(*values)
    assert tuple(one) == one == kind(**fields) == kind._make(iter(values))
    assert [getattr(one, name) for name in names] == values
    assert one._asdict() == dataclasses.asdict(one) == fields
    assert [(each.name, each.type) for each in dataclasses.fields(kind)] == [
        *kind.__annotations__.items()
    ]
    assert [*inspect.signature(kind).parameters] == [*names]
    for same in (pickle.loads(pickle.dumps(one)), dataclasses.replace(one), one._replace()):
        assert (type(same), same) == (kind, one)
    assert not hasattr(one, "__dict__")


def test_a_record_has_defaults_and_can_be_changed_in_a_copy() -> None:
    """In each of the ways that the standard records have, with an error for an unknown field."""
    new: Any = NewTurn("x", flags=3)
    assert (new.payload, new.type_id, new.flags, new.refs) == ("x", "message", 3, ())
    for change in (new._replace, functools.partial(dataclasses.replace, new)):
        assert change(flags=4) == NewTurn("x", flags=4)
        with pytest.raises(TypeError, match="colour"):
            change(colour=4)


def test_a_record_that_checks_itself_does_so_in_every_way() -> None:
    """Made anew or from another one, an address is never of a wrong form."""
    source = Source.parse("internal:chat:1:main")
    ways: list[Callable[[], Source]] = [
        lambda: Source("self", ("x",)),
        lambda: Source(kind="other"),
        lambda: source._replace(kind="self"),
        lambda: dataclasses.replace(source, parts=("A", "b", "c")),  # type: ignore[type-var]
    ]
    for make in ways:
        with pytest.raises(InputError, match="is not a source address"):
            make()


def test_a_page_is_a_tuple_of_turns_with_a_cursor() -> None:
    """It is shown, copied and matched with both."""
    turn = Turn(1, 0, 0, "message", 1, 0, "", 0, 0, 5)
    page = Page([turn], 7)
    assert (len(page), page[0], [*page], page.turns) == (1, turn, [turn], (turn,))
    for same in (copy.copy(page), copy.deepcopy(page), pickle.loads(pickle.dumps(page))):
        assert (type(same), same, same.next_cursor) == (Page, page, 7)
    assert repr(page) == f"Page(turns={(turn,)!r}, next_cursor=7)"
    match page:
        case Page((found,), cursor):
            assert (found, cursor) == (turn, 7)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(JSON, st.sampled_from(["", " ", "\r\n\t "]), st.booleans())
def test_json_is_written_and_read_as_the_package_does(value: Any, blank: str, keys: bool) -> None:
    """Equal text of equal values, and equal values of equal text, blanks around it or not."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=keys)
    assert writer(sort_keys=keys)(value) == text
    found = Reader().decode(f"{blank}{text}{blank}")
    assert json.dumps(found) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[1,]", "1 2", '"\n"', '"\\x"', "nul", "{} x", '{"a" 1}', "\ufeff{}"]
)
def test_what_is_no_json_is_refused_in_the_words_of_the_package(text: str) -> None:
    """Message and place are those of `json.loads`, also in a process that has not imported it."""
    with pytest.raises(json.JSONDecodeError) as expected:
        json.JSONDecoder().decode(text)
    with pytest.raises(json.JSONDecodeError) as found:
        Reader().decode(text)
    assert str(found.value) == str(expected.value)
    code = f"from eventq.system.jsontext import Reader\ntry: Reader().decode({text!r})\nexcept ValueError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == f"{expected.value}\n"


def test_what_json_has_no_word_for_is_refused() -> None:
    """NaN on request, and values of other types."""
    assert writer()(math.inf) == "Infinity"
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer(allow_nan=False)(math.nan)
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        writer()({1})


@pytest.mark.parametrize("first", ["eventq.system.zstd", "zstandard"])
def test_the_c_part_of_zstandard_is_one_whoever_imports_it_first(first: str) -> None:
    """A program that uses the package too has one error class and one compressor."""
    second = "zstandard" if first == "eventq.system.zstd" else "eventq.system.zstd"
    code = (
        f"import sys, {first}, {second}; import zstandard, eventq.system.zstd as mine;"
        "print(mine.ZstdError is zstandard.ZstdError, mine.ZstdCompressor is zstandard.ZstdCompressor,"
        "zstandard.decompress(mine.ZstdCompressor(level=1).compress(b'x' * 99)) == b'x' * 99)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("True True True\n", "")


def test_without_the_c_part_the_package_is_used() -> None:
    """What finds no extension module of that name gets the same names from the package."""
    code = (
        "import sys, zstandard; del sys.modules['zstandard.backend_c'];"
        "from _frozen_importlib_external import PathFinder as P; find = P.find_spec;"
        "P.find_spec = lambda name, *more: None if name.endswith('backend_c') else find(name, *more);"
        "from eventq.system import zstd; print(zstd.ZstdError is zstandard.ZstdError)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("True\n", "")


BOTH = """
import fcntl, os, sys, portalocker
from eventq.system.locks import lock_whole
portalocker.portalocker.LOCKER = fcntl.lockf  # as a program may
one, other = (os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for _ in range(2))
lock_whole(one, wait=False)
try:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("excluded")
"""


def test_the_part_that_locks_is_not_that_of_other_users(tmp_path: Path) -> None:
    """A program that makes portalocker call `lockf` gets locks of eventq that `flock` respects."""
    words = [sys.executable, "-c", BOTH, str(tmp_path / "file")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("excluded\n", "")


@pytest.mark.parametrize(
    ("hidden", "used"),
    [
        ("nothing", "eventq.system.flock.portalocker"),
        ("portalocker", "portalocker.portalocker"),
        ("eventq.system.flock.portalocker", "portalocker.portalocker"),
    ],
)
def test_without_the_part_that_locks_the_package_is_used(hidden: str, used: str) -> None:
    """A package that is found in another way, or has other modules, is imported as usual."""
    code = (
        "import sys; from _frozen_importlib_external import PathFinder as P; find = P.find_spec;"
        "hidden = sys.argv[1:];"
        "P.find_spec = lambda name, *more: hidden.clear() if name in hidden else find(name, *more);"
        "from eventq.system.flock import lock; print(lock.__module__, 'portalocker' in sys.modules)"
    )
    words = [sys.executable, "-c", code, hidden]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == (f"{used} {used == 'portalocker.portalocker'}\n", "")


def test_blobs_are_compressed_by_many_threads_at_once() -> None:
    """The first use of either direction by two threads makes no mess."""
    assert zstd.frame_content_size(zstd.ZstdCompressor(level=1).compress(b"x" * 500)) == 500
    from eventq.memory.blobs import Zip

    both, made = Zip(), []
    threads = [
        threading.Thread(target=lambda: made.append(both.pack(b"y" * 5000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(set(made)) == 1
