"""The errors: one tree, each with its exit code and its wire code, each naming the next step."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq import errors
from eventq.output.capture import CannotStartError
from eventq.store.turn_rows import GoneError

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    # name: (parent, exit code, wire code)
    "EventqError": ("Exception", 1, 500),
    "UsageError": ("EventqError", 2, 400),
    "FilterError": ("UsageError", 2, 422),
    "InputError": ("UsageError", 2, 422),
    "LogicError": ("EventqError", 1, 409),
    "NotAThreadError": ("LogicError", 1, 404),
    "ThreadExistsError": ("LogicError", 1, 409),
    "UnknownConsumerError": ("LogicError", 1, 404),
    "ConsumerExistsError": ("LogicError", 1, 409),
    "ConsumerInUseError": ("LogicError", 1, 409),
    "LeaseLostError": ("LogicError", 4, 409),
    "FencedError": ("LeaseLostError", 4, 409),
    "UnknownDeadLetterError": ("LogicError", 1, 404),
    "AckError": ("LogicError", 1, 409),
    "AlreadyAckedError": ("LogicError", 1, 409),
    "KeyConflictError": ("ConflictError", 1, 409),
    "TooLargeError": ("LogicError", 1, 413),
    "ClosedError": ("LogicError", 1, 409),
    "PlatformError": ("LogicError", 1, 500),
    "StoreError": ("LogicError", 1, 500),
    "DamagedError": ("StoreError", 1, 500),
    "BusyError": ("StoreError", 1, 503),
    "UnknownOutcomeError": ("StoreError", 1, 503),
    "ReadOnlyError": ("StoreError", 1, 403),
    "DiskError": ("StoreError", 1, 507),
}


def classes() -> dict[str, type[errors.EventqError]]:
    """Return every class of the tree by name."""
    return {
        name: c
        for name, c in vars(errors).items()
        if inspect.isclass(c) and issubclass(c, errors.EventqError)
    }


def facts(found: type[errors.EventqError]) -> tuple[str, int, int]:
    """Return parent, exit code and wire code."""
    return found.__bases__[0].__name__, found.exit_code, found.wire_code


def test_the_log_raises_these() -> None:
    """Each error of the log has its place in the tree, its exit code and its wire code."""
    found = classes()
    assert {name: facts(found[name]) for name in EXPECTED} == EXPECTED


def test_the_drawing_is_the_tree() -> None:
    """The module's docstring shows every class with its parent and both codes."""
    drawn: dict[str, tuple[str, int, int]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        bare = line.lstrip(" │├└─")
        words = bare.split()
        if len(words) < 3 or not words[0].endswith("Error") or not words[1].isdigit():
            continue
        depth = (len(line) - len(bare) - 4) // 4
        above = [*above[:depth], words[0]]
        drawn[words[0]] = above[depth - 1] if depth else "Exception", int(words[1]), int(words[2])
    assert drawn == {name: facts(found) for name, found in classes().items()}


def test_a_message_names_the_next_step() -> None:
    """`str` gives what went wrong and how to fix it; both are attributes."""
    error = errors.LogicError("it broke", "mend it")
    assert (str(error), error.what, error.fix) == ("it broke - mend it", "it broke", "mend it")


@pytest.mark.parametrize(
    ("text", "at", "shown"),
    [
        ("type = 'a' nonsense", 11, "  type = 'a' nonsense\n             ^"),
        ("", 0, "  \n  ^"),
        ("abc", 99, "  abc\n     ^"),
        ("first\nsecond x\nthird", 13, "  second x\n         ^"),
        ("a\tb\x1bc", 4, "  a b c\n      ^"),
        (
            "x" * 500 + "!" + "y" * 500,
            500,
            "  " + "x" * 60 + "!" + "y" * 59 + "\n  " + " " * 60 + "^",
        ),
    ],
)
def test_the_caret_stands_under_the_fault(text: str, at: int, shown: str) -> None:
    """A filter error shows the line at fault, on one screen line, with a caret below."""
    error = errors.FilterError("wrong", text, at, "right it")
    assert error.caret() == shown
    assert str(error) == f"wrong - right it\n{shown}"


def test_a_filter_error_knows_its_place(thread: eventq.Thread) -> None:
    """A refused filter carries its text and the offset of the fault."""
    with pytest.raises(eventq.FilterError) as caught:
        thread.peek(filter="type = 'note' AND nonsense = 1")
    assert (caught.value.text, caught.value.at) == ("type = 'note' AND nonsense = 1", 18)


def test_database_errors_are_chained(path: str) -> None:
    """An error that SQLite raised is the cause of eventq's."""
    with open(f"{path}/events.db", "w") as file:
        file.write("text " * 1_000)
    with pytest.raises(errors.DamagedError) as caught:
        eventq.open(path)
    assert type(caught.value.__cause__).__name__ == "NotADBError"


# --- in other processes ---------------------------------------------------------------------------

SAMPLES: dict[str, object] = {  # by the annotation of a parameter
    "str": "x", "object": "x", "int": 7, "bool": True, "str | None": "y", "int | None": 8,
    "int | str": "z", "float | None": 1.5, "Sequence[str]": ("source", "content"),
    "OSError": OSError(2, "none"),
}  # fmt: skip


def exceptions() -> list[type[Exception]]:
    """Return every class of the tree, in whichever module, and the other exceptions of `eventq`."""
    for module in pkgutil.walk_packages(eventq.__path__, "eventq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    public = [getattr(eventq, name) for name in (*eventq.__all__, "CannotStartError")]
    found = {c for c in public if inspect.isclass(c) and issubclass(c, Exception)}
    left: list[type[Exception]] = [errors.EventqError]
    while left:
        found.add(here := left.pop())
        left += here.__subclasses__()
    return sorted(
        (c for c in found if c.__module__.startswith("eventq.")), key=lambda c: c.__name__
    )


def instance(found: type[Exception]) -> Exception:
    """Return an exception made as the package makes it, with a value for every parameter."""
    given, named = [], {}
    _, *parameters = inspect.signature(found.__init__).parameters.items()
    for name, one in parameters:
        sample = SAMPLES[one.annotation if isinstance(one.annotation, str) else "object"]
        if one.kind is one.KEYWORD_ONLY:
            named[name] = sample
        elif one.kind is not one.VAR_KEYWORD:
            given.append(sample)
    return found(*given, **named)


def said(error: BaseException) -> tuple[object, ...]:
    """Return all that a program can see of an exception."""
    codes = [getattr(error, name, None) for name in ("exit_code", "wire_code")]
    return type(error), str(error), error.args, {**vars(error)}, codes


@pytest.mark.parametrize("found", exceptions(), ids=lambda found: found.__name__)
def test_every_exception_can_be_pickled_and_copied(found: type[Exception]) -> None:
    """Class, message, next step, codes and attributes stay as they are, also changed ones."""
    error = instance(found)
    error.add_note("seen in a test")
    if isinstance(error, errors.EventqError):
        error.fix = "do something else"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert said(pickle.loads(pickle.dumps(error, protocol))) == said(error)
    for copied in (copy.copy(error), copy.deepcopy(error)):
        assert copied is not error
        assert said(copied) == said(error)


def test_the_walk_finds_the_tree() -> None:
    """Every class of `errors` is among them, and so are those of other modules."""
    others = {eventq.Retry, eventq.Dead, GoneError, CannotStartError}
    assert {*classes().values(), *others} < {*exceptions()}


def test_an_error_crosses_a_pool_of_processes(tmp_path: Path) -> None:
    """What a worker process raises arrives as it was, and the pool goes on."""
    missing = str(tmp_path / "none")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for _ in range(2):
            error = pool.submit(eventq.open, missing).exception()
            assert error is not None
            assert said(error)[:2] == said(errors.NotAThreadError(missing))[:2]
