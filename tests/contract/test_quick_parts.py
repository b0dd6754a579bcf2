"""The parts that are made by hand for the sake of start-up time do what the slow originals do."""

from __future__ import annotations

import collections
import copy
import dataclasses
import inspect
import json
import math
import pickle
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventq import event, frozen, named, records, zstd
from eventq.dag import nodes
from eventq.jsontext import Reader, writer
from eventq.storage import rows

if TYPE_CHECKING:
    from pathlib import Path

KINDS = [getattr(records, name) for name in records.__all__ if name not in ("Batch", "Event")]
KINDS += [nodes.StartNode, nodes.StateNode, nodes.ContentNode]


def standard(kind: Any) -> Any:
    """Return the class that the standard decorator makes of the same body."""
    spec = [(one.name, one.type, copy.copy(one)) for one in dataclasses.fields(kind)]
    return dataclasses.make_dataclass(kind.__name__, spec, frozen=True, slots=True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_is_what_the_standard_decorator_makes(kind: Any) -> None:
    """Signature, fields, slots, matching, repr, equality, hash, pickles and copies are the same."""
    twin = standard(kind)
    assert [str(one) for one in inspect.signature(kind).parameters] == [
        str(one) for one in inspect.signature(twin).parameters
    ]
    assert kind.__slots__ == kind.__match_args__ == twin.__match_args__
    assert repr(dataclasses.fields(kind)) == repr(dataclasses.fields(twin))
    values: list[Any] = ["self", ()] if kind is records.Source else [*range(len(kind.__slots__))]
    one, other = kind(*values), twin(*values)
    assert repr(one) == repr(other)
    assert (one, hash(one)) == (kind(*values), hash(other))
    assert one != other
    assert one.__getstate__() == other.__getstate__()
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    for same in (
        copy.copy(one),
        copy.deepcopy(one),
        pickle.loads(pickle.dumps(one)),
        dataclasses.replace(one),
    ):
        assert (type(same), same) == (kind, one)
    for wrong in ((), (*values, 1)):
        with pytest.raises(TypeError):
            kind(*wrong)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, kind.__slots__[0], 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(one, kind.__slots__[0])


def test_a_default_can_be_made_anew_for_each_record() -> None:
    """Two nodes do not share the dictionaries that neither was given."""
    one, other = nodes.StartNode("a", "b"), nodes.StartNode("a", "b")
    assert one == other
    assert one.system is not other.system
    assert dataclasses.replace(one, system={"x": "y"}).system == {"x": "y"}
    assert isinstance(frozen.field(default_factory=dict).default_factory(), dict)


ROWS = [
    kind
    for module in (event, rows)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, tuple)
]


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_a_row_is_what_the_standard_named_tuple_is(kind: Any) -> None:
    """Fields, defaults, signature, repr, equality, copies, pickles and errors are the same."""
    make: Any = collections.namedtuple  # noqa: PYI024 (of fields that are not literal)
    twin = make(kind.__name__, kind._fields, defaults=kind._field_defaults.values())
    assert len(ROWS) >= 25
    assert kind._fields == kind.__match_args__ == tuple(kind.__annotations__)
    assert kind._field_defaults == twin._field_defaults
    found = inspect.signature(kind).parameters.values()
    expected = inspect.signature(twin).parameters.values()
    assert [(one.name, one.default) for one in found] == [
        (one.name, one.default) for one in expected
    ]
    values = [*range(len(kind._fields))]
    fields = dict(zip(kind._fields, values, strict=True))
    first, last = kind._fields[0], kind._fields[-1]
    one, other = kind(*values), twin(*values)
    assert repr(one) == repr(other)
    assert tuple(one) == one == other == kind(**fields) == kind._make(iter(values))
    assert [getattr(one, name) for name in kind._fields] == values
    assert one._asdict() == other._asdict() == fields
    assert one._replace(**{last: -1}) == other._replace(**{last: -1})
    for same in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert (type(same), same) == (kind, one)
    assert not hasattr(one, "__dict__")
    wrong: Any
    for wrong in (
        lambda: kind(*values, 1),
        lambda: kind(**fields, nothing=1),
        lambda: kind(*values, **{first: 1}),
        lambda: kind._make(values[1:]),
        lambda: one._replace(nothing=1),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(AttributeError):
        setattr(one, first, 1)


def pair(*, standard: bool) -> Any:
    """Return a named tuple of two fields that was made by nobody yet."""
    if standard:

        class Pair(NamedTuple):
            a: int
            b: str = "x"

        return Pair
    body = {"__annotations__": {"a": "int", "b": "str"}, "b": "x", "__qualname__": "Pair"}
    maker: Any = named.NamedTuple.__class__
    return maker("Pair", (named.NamedTuple,), body)


@pytest.mark.parametrize(
    ("values", "named_ones"),
    [
        ((1, 2), {}), ((1,), {}), ((1,), {"b": 2}), ((), {"b": 2, "a": 1}), ((), {"a": 1}),
        ((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"c": 1}), ((), {"b": 1}),
    ],
)  # fmt: skip
def test_the_first_rows_are_made_as_all_others(
    values: tuple[Any, ...], named_ones: dict[str, Any]
) -> None:
    """Before and after compilation, a class accepts the same calls as the standard one."""
    found = []
    for made in (0, 99, None):
        kind = pair(standard=made is None)
        for _ in range(made or 0):
            kind(1, 2)
        try:
            found.append(repr(kind(*values, **named_ones)))
        except TypeError as error:
            found.append(str(error))
    assert found[0] == found[1] == found[2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None, derandomize=True)
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
    code = f"from eventq.jsontext import Reader\ntry: Reader().decode({text!r})\nexcept ValueError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == f"{expected.value}\n"


def test_what_json_has_no_word_for_is_refused() -> None:
    """NaN on request, and values of other types."""
    assert writer()(math.inf) == "Infinity"
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer(allow_nan=False)(math.nan)
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        writer()({1})


@pytest.mark.parametrize("first", ["eventq.zstd", "zstandard"])
def test_the_c_part_of_zstandard_is_one_whoever_imports_it_first(first: str) -> None:
    """A program that uses the package too has one error class and one compressor."""
    second = "zstandard" if first == "eventq.zstd" else "eventq.zstd"
    code = (
        f"import sys, {first}, {second}; import zstandard, eventq.zstd as mine;"
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
        "from eventq import zstd; print(zstd.ZstdError is zstandard.ZstdError)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("True\n", "")


BOTH = """
import fcntl, os, sys, portalocker
from eventq.locks import lock_whole
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
        ("nothing", "eventq.portable.portalocker"),
        ("portalocker", "portalocker.portalocker"),
        ("eventq.portable.portalocker", "portalocker.portalocker"),
    ],
)
def test_without_the_part_that_locks_the_package_is_used(hidden: str, used: str) -> None:
    """A package that is found in another way, or has other modules, is imported as usual."""
    code = (
        "import sys; from _frozen_importlib_external import PathFinder as P; find = P.find_spec;"
        "hidden = sys.argv[1:];"
        "P.find_spec = lambda name, *more: hidden.clear() if name in hidden else find(name, *more);"
        "from eventq.portable import lock; print(lock.__module__, 'portalocker' in sys.modules)"
    )
    words = [sys.executable, "-c", code, hidden]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == (f"{used} {used == 'portalocker.portalocker'}\n", "")


def test_blobs_are_compressed_by_many_threads_at_once() -> None:
    """The first use of either direction by two threads makes no mess."""
    assert zstd.frame_content_size(zstd.ZstdCompressor(level=1).compress(b"x" * 500)) == 500
    from eventq.blobs import Zip

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


def fresh(*, compiled: bool) -> Any:
    """Return a class of records that has made none yet."""

    @frozen.dataclass(frozen=True, slots=True)
    class Pair(frozen.Record):  # type: ignore[misc]
        a: int
        b: str = "x"
        c: Any = frozen.field(default_factory=list)

        def __post_init__(self) -> None:
            if self.a == 0:
                raise ValueError("zero")

    made: Any = Pair
    return made if not compiled or made.__init__ else None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((1,), {}), ((1, "y"), {}), ((1, "y", 2), {}), ((), {"a": 1}), ((1,), {"c": 3}), ((), {"c": 3, "a": 1, "b": ""}),
        ((), {}), ((), {"b": "y"}), ((1, 2, 3, 4), {}), ((1,), {"a": 1}), ((1,), {"d": 1}), ((), {"b": 1, "d": 1}), ((0,), {}),
    ],
)  # fmt: skip
def test_the_first_records_are_made_as_all_others(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Before compilation, a class accepts and refuses the same calls, with the same messages."""
    found = []
    for compiled in (False, True):
        kind = fresh(compiled=compiled)
        try:
            found.append(repr(kind(*values, **named)))
        except (TypeError, ValueError) as error:
            found.append(repr(error))
    assert found[0] == found[1]
    many = [fresh(compiled=False)(1) for _ in range(3)]
    assert many[0].c is not many[1].c


def test_a_class_is_compiled_once_it_has_made_some_records() -> None:
    """The twentieth record is like the thirtieth, and from then on there is one function."""
    kind = fresh(compiled=False)
    made = [kind(n + 1) for n in range(30)]
    assert [(one.a, one.b, one.c) for one in made] == [(n + 1, "x", []) for n in range(30)]
    assert inspect.isfunction(vars(kind)["__init__"])
