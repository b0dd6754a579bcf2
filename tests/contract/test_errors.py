"""The errors: one tree, each with its exit code and its wire code, each naming the next step."""

from __future__ import annotations

import inspect
import pickle

import pytest

import eventq
from eventq import errors

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


def test_simple_errors_can_be_sent_between_processes() -> None:
    """An error made of its two halves survives pickling."""
    error = pickle.loads(pickle.dumps(errors.BusyError("locked", "try again")))
    assert (type(error), str(error)) == (errors.BusyError, "locked - try again")
