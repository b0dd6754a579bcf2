"""What is pushed is stored as it was given, once, or refused with a reason and without a trace."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import Batch, Event, InputError
from eventq.errors import TooLargeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Clock

HARD_TEXT = "".join(map(chr, range(0x100))) + "\u2028\ufeff\uffff\U0001f600 \u202e é e\u0301"


def test_push_gives_the_event_as_stored(thread: eventq.Thread, clock: Clock) -> None:
    """`push` gives id, time and what was given; the same is read back."""
    event = thread.push("external:a:b:c:d:e", "message", "hello", "note")
    assert event == Event(
        1, "2026-03-18T10:30:00.123Z", "external:a:b:c:d:e", "message", "note", "hello"
    )
    clock.move(60)
    second = thread.push("self", "record", "")
    assert second == (2, "2026-03-18T10:31:00.123Z", "self", "record", None, "")
    assert list(thread.peek()) == [event, second]


@pytest.mark.parametrize(("seconds", "text"), [
    (0.0, "1970-01-01T00:00:00.000Z"), (-0.001, "1969-12-31T23:59:59.999Z"),
    (1773829800.9999, "2026-03-18T10:30:00.999Z"), (4102444799.5, "2099-12-31T23:59:59.500Z"),
])  # fmt: skip
def test_the_time_has_milliseconds(
    thread: eventq.Thread, clock: Clock, seconds: float, text: str
) -> None:
    """The stamp is UTC, ISO 8601, with milliseconds that are cut and not rounded."""
    clock.at = seconds
    assert thread.push("self", "note", "x").created_at == text


@pytest.mark.parametrize(
    "content", ["", HARD_TEXT, "\0", "\0\0x", "line\nline\r\n", "x" * 3_000_000]
)
def test_content_is_any_text(thread: eventq.Thread, content: str) -> None:
    """NUL, control characters, line ends and megabytes come back as they were given."""
    thread.push("self", "note", content)
    thread.push_many([("self", "note", content)])
    assert [event.content for event in thread.peek()] == [content, content]


@pytest.mark.parametrize("subtype", [None, "", "decision", "ein Wort ☃"])
def test_subtype_stays_what_it_was(thread: eventq.Thread, subtype: str | None) -> None:
    """An empty subtype stays empty, an absent one None."""
    assert thread.push("self", "note", "x", subtype).subtype == subtype
    assert thread.last(1)[0].subtype == subtype


@pytest.mark.parametrize("name", ["source", "type", "subtype", "key"])
@pytest.mark.parametrize(
    "value", ["a\nb", "\0", "\x1b[2J", "\x7f", "\x85", "\ud800", "x\udcff", 7, b"bytes", ["list"]]
)
def test_names_that_are_refused(thread: eventq.Thread, name: str, value: Any) -> None:
    """Source, type, subtype and key refuse control characters, surrogates and other types."""
    good: dict[str, Any] = {
        "source": "self",
        "type": "note",
        "content": "x",
        "subtype": None,
        "key": None,
    }
    with pytest.raises(InputError, match=name):
        thread.push(**{**good, name: value})
    with pytest.raises(InputError, match=f"event 2: {name}"):
        thread.push_many([good, {**good, name: value}])
    assert thread.last_id() == 0


@pytest.mark.parametrize("name", ["source", "type", "key"])
def test_names_that_may_not_be_empty(thread: eventq.Thread, name: str) -> None:
    """An empty source, type or key is refused."""
    good: dict[str, Any] = {"source": "self", "type": "note", "content": "x", "key": "k"}
    with pytest.raises(InputError, match=f"{name} is empty"):
        thread.push(**{**good, name: ""})
    assert thread.last_id() == 0


@pytest.mark.parametrize("value", [None, 7, b"bytes", {"a": 1}, "\ud800", "ok\udfff"])
def test_content_that_is_refused(thread: eventq.Thread, value: Any) -> None:
    """Content that is no text, or holds half a character, is refused, one by one and in a batch."""
    with pytest.raises(InputError):
        thread.push("self", "note", value)
    with pytest.raises(InputError):
        thread.push_many([("self", "note", "good"), ("self", "note", value)])
    assert thread.last_id() == 0


@pytest.mark.parametrize("source", ["external:a:b:c:d:e", "internal:dm:default:warden", "self"])
def test_strict_source_takes_addresses(path: str, source: str) -> None:
    """With `strict_source` an address is taken."""
    with eventq.open(path, strict_source=True) as thread:
        assert thread.push(source, "note", "x").source == source


@pytest.mark.parametrize("source", [
    "free", "self:x", "external:a:b", "internal:a:b:c:d", "External:a:b:c:d:e", "internal:A:b:c",
    "internal::b:c",
])  # fmt: skip
def test_strict_source_refuses_free_text(
    path: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `strict_source` or EVENTQ_STRICT_SOURCE=1, only addresses are accepted."""
    with (
        eventq.open(path, strict_source=True) as thread,
        pytest.raises(InputError, match="is not a source address"),
    ):
        thread.push(source, "note", "x")
    monkeypatch.setenv("EVENTQ_STRICT_SOURCE", "1")
    with eventq.open(path) as thread, pytest.raises(InputError, match="is not a source address"):
        thread.push_many([(source, "note", "x")])
    with eventq.open(path, strict_source=False) as thread:
        assert thread.push(source, "note", "x").id == 1


@pytest.mark.parametrize("value", ["²", "9" * 5000, "x", "-1", " ", "64M", "1.5", "off"])
@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("EVENTQ_MAX_EVENT_BYTES", "set it to a whole number such as 67108864"),
        ("EVENTQ_BLOB_CACHE", "set it to a whole number such as 8388608"),
        ("EVENTQ_SYNCHRONOUS", "set it to full or normal"),
        ("EVENTQ_STRICT_SOURCE", "set it to 0 or 1"),
    ],
)
def test_a_variable_that_is_invalid(
    name: str, allowed: str, value: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit or a promise that was set and cannot be understood is refused, not ignored."""
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"^{name} is '") as caught, eventq.open(path) as thread:
        thread.blobs.put(b"x")
    assert len(caught.value.what) < 200
    assert caught.value.fix == f"unset it, or {allowed}"
    monkeypatch.setenv(name, "")
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 1


def test_the_size_of_an_event_is_limited(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """EVENTQ_MAX_EVENT_BYTES counts bytes, and includes the limit itself."""
    monkeypatch.setenv("EVENTQ_MAX_EVENT_BYTES", "5000")
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "é" * 2_500).id == 1
        with pytest.raises(
            TooLargeError,
            match=r"too large \(5001 bytes, the limit is 5000\) - .*EVENTQ_MAX_EVENT_BYTES",
        ):
            thread.push("self", "note", "é" * 2_500 + "x")
        with pytest.raises(TooLargeError):
            thread.push_many([("self", "note", "x"), ("self", "note", "x" * 5_001)])
        assert thread.last_id() == 1


def test_the_default_limit_is_64_mib(thread: eventq.Thread) -> None:
    """Without a setting, one byte more than 64 MiB is refused."""
    with pytest.raises(TooLargeError, match="67108865 bytes, the limit is 67108864"):
        thread.push("self", "note", "x" * ((64 << 20) + 1))


# --- keys -----------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_event(thread: eventq.Thread) -> None:
    """A used key returns the first event, whatever else differs, and stores nothing."""
    first = thread.push("self", "note", "one", key="k")
    assert thread.push("other", "message", "two", "sub", key="k") == first
    assert thread.push("self", "note", "one", key="K").id == 2
    assert thread.push("self", "note", "one").id == 3
    assert [event.content for event in thread.peek()] == ["one"] * 3


def test_keys_in_a_batch(thread: eventq.Thread) -> None:
    """In a batch, a key counts against stored events and earlier lines."""
    thread.push("self", "note", "stored", key="a")
    batch = thread.push_many(
        [
            {"source": "self", "type": "note", "content": "1"},
            {"source": "self", "type": "note", "content": "2", "key": "a"},
            {"source": "self", "type": "note", "content": "3", "key": "b"},
            {"source": "self", "type": "note", "content": "4", "key": "b"},
            ("self", "note", "5", None, "c"),
        ]
    )
    assert batch == Batch(3, 2, 4)
    assert [event.content for event in thread.peek()] == ["stored", "1", "3", "5"]
    assert thread.push_many([("self", "note", "6", None, key) for key in "abc"]) == Batch(
        0, None, None
    )


@pytest.mark.parametrize("strict", [False, True])
def test_a_push_that_is_tried_again_is_no_conflict(thread: eventq.Thread, strict: bool) -> None:
    """The same key with the same fields gives the first event, however strict the key is taken."""
    first = thread.push("self", "note", "one", "sub", key="k", key_strict=strict)
    assert thread.push("self", "note", "one", "sub", key="k", key_strict=strict) == first
    assert thread.push_many([("self", "note", "one", "sub", "k")] * 2, key_strict=strict) == Batch(
        0, None, None
    )
    assert thread.last_id() == 1


@pytest.mark.parametrize(("other", "differ"), [
    (("self", "note", "two", "sub"), "whose content differs"),
    (("self", "other", "one", "sub"), "whose type differs"),
    (("self", "note", "one", None), "whose subtype differs"),
    (("other", "note", "one", ""), "whose source and subtype differ"),
    (("a", "b", "c", "d"), "whose source, type, subtype and content differ"),
])  # fmt: skip
def test_a_strict_key_refuses_what_differs(
    thread: eventq.Thread, other: tuple[str, str, str, str | None], differ: str
) -> None:
    """With `key_strict`, a different event under a used key is an error; nothing is stored."""
    thread.push("self", "note", "zero")
    thread.push("self", "note", "one", "sub", key="k")
    with pytest.raises(
        eventq.KeyConflictError, match=f"key 'k' belongs to event 2, {differ}"
    ) as caught:
        thread.push(*other, key="k", key_strict=True)
    assert (caught.value.actual, caught.value.exit_code) == (2, 1)
    source, kind, content, subtype = other
    bad = {"source": source, "type": kind, "content": content, "subtype": subtype, "key": "k"}
    for more in (0, 300):
        events: list[Any] = [
            {"source": "self", "type": "note", "content": "x", "key": f"new-{n}"}
            for n in range(more)
        ]
        with pytest.raises(
            eventq.KeyConflictError, match=f"event {more + 1}: key 'k' belongs to event 2, {differ}"
        ):
            thread.push_many([*events, bad, *events], key_strict=True)
        with pytest.raises(eventq.KeyConflictError, match=f"event {more + 1}: key"):
            thread.push_many(iter([*events, bad]), key_strict=True)
    assert thread.last_id() == 2
    assert thread.push("self", "note", "free", key="new-0").content == "free"


def test_a_strict_key_counts_within_its_batch(thread: eventq.Thread) -> None:
    """Two different lines with one key refuse a batch with strict keys."""
    events = [("self", "note", "1", None, "a"), ("self", "note", "2", None, "a")]
    with pytest.raises(eventq.KeyConflictError, match="event 2: key 'a' belongs to event 1"):
        thread.push_many(events, key_strict=True)
    assert thread.last_id() == 0
    assert thread.push_many(events) == Batch(1, 1, 1)


def test_a_conflict_leaves_the_rest_of_a_transaction_to_its_owner(thread: eventq.Thread) -> None:
    """Who catches the error inside `write` may go on with the transaction."""
    with thread.write():
        thread.push("self", "note", "kept", key="k")
        with pytest.raises(eventq.KeyConflictError):
            thread.push("self", "note", "other", key="k", key_strict=True)
    assert [event.content for event in thread.peek()] == ["kept"]


def test_a_key_is_free_when_its_push_failed(thread: eventq.Thread) -> None:
    """A push that is rolled back leaves its key unused."""
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.push("self", "note", "gone", key="k")
        raise ZeroDivisionError
    assert thread.push("self", "note", "kept", key="k").content == "kept"


def test_a_key_is_free_when_its_event_was_pruned(thread: eventq.Thread) -> None:
    """A key lives as long as its event, also when another tool deleted that."""
    thread.push("self", "note", "one", key="a")
    thread.push("self", "note", "two", key="b")
    assert thread.prune(keep_last=0) == 2
    assert thread.push("self", "note", "three", key="a").id == 3
    assert thread.push_many([("self", "note", "four", None, "b")]) == Batch(1, 4, 4)


# --- push_many ------------------------------------------------------------------------------------


def test_push_many_says_what_it_stored(thread: eventq.Thread) -> None:
    """A batch is stored in order, with one time; an empty one returns no ids."""
    assert thread.push_many([]) == Batch(0, None, None)
    assert thread.push_many(("self", "note", str(number)) for number in range(2_500)) == Batch(
        2_500, 1, 2_500
    )
    events = list(thread.peek(limit=None))
    assert [(event.id, event.content) for event in events] == [
        (n + 1, str(n)) for n in range(2_500)
    ]
    assert len({event.created_at for event in events}) == 1


def test_push_many_takes_mappings_sequences_and_events(thread: eventq.Thread) -> None:
    """An event of a batch may be a mapping, a sequence or an `Event`."""

    class Mine(dict[str, str]):
        pass

    first = thread.push("self", "note", "x", "sub")
    events: list[Any] = [
        {"type": "note", "content": "x", "source": "self", "subtype": "sub", "id": 99, "more": []},
        Mine(source="self", type="note", content="x", subtype="sub"), ("self", "note", "x", "sub"),
        ["self", "note", "x", "sub", None], first,
    ]  # fmt: skip
    thread.push_many(events)
    assert [event[2:] for event in thread.peek()] == [first[2:]] * 6
    assert thread.last_id() == 6


@pytest.mark.parametrize(("bad", "what"), [
    ({"type": "note", "content": "x"}, "source is missing"),
    ({"source": "self", "content": "x"}, "type is missing"),
    ({"source": "self", "type": "note"}, "content is missing"),
    ({"source": "self", "type": "note", "content": None}, "content must be text"),
    ({"source": "self", "type": "note", "content": "x", "subtype": 7}, "subtype must be text"),
    (("self", "note"), "an event is a mapping or"),
    (("self", "note", "x", None, None, None), "an event is a mapping or"),
    ("self", "an event is a mapping or"), (7, "an event is a mapping or"),
    (None, "an event is a mapping or"), ({"self", "note", "x"}, "an event is a mapping or"),
])  # fmt: skip
@pytest.mark.parametrize("before", [0, 1, 1_500])
def test_one_bad_event_refuses_all(thread: eventq.Thread, bad: Any, what: str, before: int) -> None:
    """A bad event in a batch is named by its number, and nothing is stored."""
    events = [("self", "note", "good")] * before + [bad, ("self", "note", "never looked at")]
    with pytest.raises(InputError, match=f"^event {before + 1}: {what}"):
        thread.push_many(events)
    assert (thread.last_id(), list(thread.peek())) == (0, [])
    assert os.path.getsize(os.path.join(thread.path, "events.jsonl")) == 0


def test_an_iterable_that_raises_refuses_all(thread: eventq.Thread) -> None:
    """What the iterable raises comes through, and nothing is stored."""

    def events() -> Iterator[tuple[str, str, str]]:
        for _ in range(2_000):
            yield "self", "note", "x"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        thread.push_many(events())
    assert thread.last_id() == 0
    assert thread.push("self", "note", "x").id == 1


def test_push_many_in_bounded_memory(thread: eventq.Thread) -> None:
    """A hundred megabytes of events pass through a quarter of that, and none of it is kept."""
    thread.push_many([("self", "note", "x")])
    body = "x" * 100_000
    tracemalloc.start()
    try:
        thread.push_many(("self", "note", f"{number}{body}") for number in range(1_000))
        assert tracemalloc.get_traced_memory()[1] < 28 << 20
    finally:
        tracemalloc.stop()
    assert thread.last_id() == 1_001


def test_ids_are_never_used_again(thread: eventq.Thread) -> None:
    """Ids go on from the highest there ever was, also when everything was pruned."""
    thread.push_many([("self", "note", "x")] * 5)
    assert thread.prune(keep_last=0) == 5
    assert thread.last_id() == 5
    with eventq.open(thread.path) as again:
        assert again.push("self", "note", "x").id == 6


def test_a_clock_that_goes_backwards(thread: eventq.Thread, clock: Clock) -> None:
    """Ids give the order; a clock that is set back changes times and nothing else."""
    first = thread.push("self", "note", "a")
    clock.move(-3_600)
    second = thread.push("self", "note", "b")
    assert first.created_at > second.created_at
    assert [event.content for event in thread.peek()] == ["a", "b"]
    assert thread.latest()["self"] == second


def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    """A thread's files lie in its directory and nowhere else."""
    with eventq.open(tmp_path / "thread", create=True) as thread:
        thread.push("self", "note", "x")
        thread.subscribe("../../escaped", "true")
        thread.pop("../../escaped", 0)
        thread.status()
    assert os.listdir(tmp_path) == ["thread"]
