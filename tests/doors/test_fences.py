"""Handlers of lost supervisors: commands and library calls that a fence refuses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log.fences import text_of
from tests.doors.support import THREAD, run

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = (
    "Error: a newer supervisor runs consumer 'w' - end this handler: its events are handled by"
    " another one\n"
)


@pytest.fixture
def box(path: str) -> str:
    """Return a thread with three events and two consumers, where two supervisors ran `w`."""
    with eventq.open(path) as thread:
        for name in ("w", "v"):
            thread.subscribe(name)
        for content in "abc":
            thread.push("self", "note", content)
        assert [thread.consumers.raise_fence("w") for _ in range(2)] == [1, 2]
    return path


def acked(path: str, consumer: str = "w") -> int:
    """Return the progress of a consumer."""
    with eventq.open(path) as thread:
        return {one.consumer_id: one.last_acked_id for one in thread.status().consumers}[consumer]


def handler(path: str, fence: str = "1") -> dict[str, str]:
    """Return what a handler has in its environment."""
    number = f"{fence} w {path}"
    return {"EVENTQ_THREAD": path, "EVENTQ_CONSUMER": "w", "EVENTQ_FENCE": number}


@pytest.mark.parametrize(
    "words",
    ["pop", "pop --last-event-id 1", "ack --last-event-id 1", "ack --last-event-id 1 --replay"],
)
def test_an_older_handler_is_refused(box: str, words: str) -> None:
    """With exit status 4, and nothing changes; the newest one goes on."""
    done = run(words, **handler(box))
    assert (done.code, done.out, done.err, acked(box)) == (4, "", REFUSED, 0)
    assert run(words, **handler(box, "2")).code == 0
    assert acked(box) == ("id 1" in words)


@pytest.mark.parametrize(
    ("fence", "consumer"),
    [
        ("", "w"),
        ("one w {box}", "w"),
        ("1", "w"),
        ("1 w", "w"),
        ("1 v {box}", "w"),
        ("1 w {elsewhere}", "w"),
        ("1 w /nowhere", "w"),
        ("1 w {box}", "v"),
    ],
)
def test_only_a_handler_of_this_consumer_is_refused(
    box: str, tmp_path: Path, fence: str, consumer: str
) -> None:
    """Without a fence, or with one of another consumer or thread, calls are as ever."""
    elsewhere = eventq.init(tmp_path / "elsewhere")
    given = handler(box) | {"EVENTQ_FENCE": fence.format(box=box, elsewhere=elsewhere)}
    words = ("ack", "--thread", box, "--consumer", consumer, "--last-event-id", "1")
    assert run(*words, **given).code == 0
    assert acked(box, consumer) == 1


@pytest.mark.parametrize("name", ["w", "v"])
def test_a_handler_may_set_its_variables_for_another_consumer(
    box: str, tmp_path: Path, name: str
) -> None:
    """The fence stays that of its own: not that of an equal name elsewhere, or of another name."""
    elsewhere = eventq.init(tmp_path / "elsewhere")
    with eventq.open(elsewhere) as other:
        other.subscribe(name)
        other.push("self", "note", "x")
        assert [other.consumers.raise_fence(name) for _ in range(2)] == [1, 2]
    given = handler(box) | {"EVENTQ_THREAD": elsewhere, "EVENTQ_CONSUMER": name}
    assert run("ack", "--last-event-id", "1", **given).code == 0
    assert acked(elsewhere, name) == 1
    words = ("ack", "--thread", box, "--consumer", "w", "--last-event-id", "1")
    assert run(*words, **given).code == 4


@pytest.mark.parametrize("name", ["Two words", "Ä" * 90])
def test_a_fence_holds_for_any_name(path: str, tmp_path: Path, name: str) -> None:
    """Of a consumer, and of a thread's directory: no blank in them ends it."""
    place = str(tmp_path / "a b")
    os.rename(path, place)
    with eventq.open(place) as thread:
        thread.subscribe(name)
        thread.push("self", "note", "x")
        assert [thread.consumers.raise_fence(name) for _ in range(2)] == [1, 2]
    words = ("ack", "--thread", place, "--consumer", name, "--last-event-id", "1")
    assert run(*words, EVENTQ_FENCE=text_of(1, name, place)).code == 4
    assert run(*words, EVENTQ_FENCE=text_of(2, name, place)).code == 0


def test_another_name_of_the_thread_counts(box: str, tmp_path: Path) -> None:
    """A handler that names the thread in its own way is still its handler."""
    link = str(tmp_path / "link")
    os.symlink(box, link)
    words = ("ack", "--thread", link, "--consumer", "w", "--last-event-id", "1")
    assert run(*words, **handler(box)).code == 4


def test_the_library_is_fenced_too(box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler in Python gets an error that LeaseLostError includes."""
    for name, value in handler(box).items():
        monkeypatch.setenv(name, value)
    with eventq.open(box) as thread:
        with pytest.raises(eventq.FencedError):
            thread.ack("w", 1)
        with pytest.raises(eventq.LeaseLostError):
            thread.pop("w")
        thread.ack("v", 1)
        monkeypatch.setenv("EVENTQ_FENCE", f"2 w {box}")
        assert [event.id for event in thread.pop("w", 1)] == [2, 3]
    assert (acked(box), acked(box, "v")) == (1, 1)


def test_thread_knows_no_fences(box: str) -> None:
    """Under the name `thread` a handler of any supervisor pops, acks and goes back."""
    base = ("--thread", box, "--consumer", "w", "--last-event-id")
    for command, last in (("ack", 2), ("pop", 1)):
        assert run(command, *base, str(last), program=THREAD, **handler(box)).code == 0
        assert acked(box) == last
