"""`tail` and `peek` with `--since`, `--until`, `--type` and `--source`."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.cli import kinds
from eventq.errors import UsageError
from eventq.system import clock
from tests.doors.support import EVENTQ, THREAD, environ, objects, ok, refused, run
from tests.doors.test_durations import SPELLED

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_795_000_000.0  # 2026-11-18T11:46:40Z


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let local time be an hour ahead of UTC, and now be `NOW`."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1")
        patched.setattr(clock, "now", lambda: NOW)
        time.tzset()
        yield
    time.tzset()


def stored(path: str, *pushed: tuple[float, str, str]) -> None:
    """Store events of a source and a type, so many seconds ago."""
    with eventq.open(path) as thread, thread.write():
        for ago, source, kind in pushed:
            at = clock.stamp(clock.now() - ago)
            event = eventq.records.event.NewEvent(source, kind, "x", None, None)
            thread.database.events.append([event], None, at)


def ids(*words: str) -> list[int]:
    """Return the ids of the events that a command prints as JSON."""
    return [one["id"] for one in objects(*words)]


@pytest.mark.usefixtures("berlin")
def test_a_moment_is_a_duration_ago_or_a_time() -> None:
    """Durations as everywhere; dates and times in local time, unless a zone follows."""
    for text, seconds in SPELLED.items():
        assert kinds.moment(text, "--since") == NOW - seconds
    for text, at in {
        "2026-11-01": "2026-10-31T23:00:00.000Z", "2026-11-01T09:30": "2026-11-01T08:30:00.000Z",
        " 2026-11-01 09:30:01 ": "2026-11-01T08:30:01.000Z",
        "2026-11-01T09:30:00Z": "2026-11-01T09:30:00.000Z",
        "2026-11-01T09:30:00.123Z": "2026-11-01T09:30:00.123Z",
        "2026-11-01T09:30+05:30": "2026-11-01T04:00:00.000Z",
        "09:30": "2026-11-18T08:30:00.000Z", "00:00:01": "2026-11-17T23:00:01.000Z",
        "1066-10-14": "1970-01-01T00:00:00.000Z", "999999999d": "1970-01-01T00:00:00.000Z",
    }.items():  # fmt: skip
        assert clock.stamp(kinds.moment(text, "--since")) == at
    for number in range(1000):  # each is the time that was printed
        at = f"2026-11-01T09:30:00.{number:03}Z"
        assert clock.stamp(kinds.moment(at, "--since")) == at


@pytest.mark.parametrize("word", [
    "", "soon", "1w", "-1h", "25:00", "9:30", "2026-13-01", "2026-11-31", "yesterday",
    "0000-01-01", "99999-01-01", "2026-11-01T09:30:00 Z x", "²h", "10:30\x1b[2J",
])  # fmt: skip
def test_a_bad_moment_says_what_there_is(word: str) -> None:
    """All three forms, each with an example."""
    with pytest.raises(UsageError, match="--until must be a time, not ") as caught:
        kinds.moment(word, "--until")
    for form in ("15m", "2026-11-01T09:30", "09:30"):
        assert form in caught.value.fix


def test_peek_begins_at_a_time(path: str) -> None:
    """It prints the first events from then on, or with --last the newest; an end alone the newest."""
    stored(path, *((ago, "self", "note") for ago in (7200, 3000, 2000, 1000)))
    assert ids("peek", "--thread", path, "--since", "1h") == [2, 3, 4]
    assert ids("peek", "--thread", path, "--since", "1h", "--limit", "1") == [2]
    assert ids("peek", "--thread", path, "--since", "1h", "--last", "1") == [4]
    assert ids("peek", "--thread", path, "--until", "1500", "--last", "1") == [3]
    assert ids("peek", "--thread", path, "--since", "1h", "--until", "1500s") == [2, 3]
    assert ids("peek", "--thread", path, "--since", "3h", "--last-event-id", "1") == [2, 3, 4]
    assert ids("peek", "--thread", path, "--since", "1h", "--last-event-id", "3") == [4]


def test_tail_shows_everything_since_a_time(path: str) -> None:
    """More than the usual ten, unless a number says how many."""
    stored(path, (7200, "self", "old"), *((60, "self", "note") for _ in range(30)))
    assert ids("tail", "--thread", path, "--since", "1h") == [*range(2, 32)]
    assert ids("tail", "--thread", path, "--since", "1h", "-n", "3") == [29, 30, 31]
    assert ids("tail", "--thread", path, "--since", "1h", "-n", "0") == []
    assert len(ok("tail", "--thread", path, "--until", "1h").splitlines()) == 1


def test_types_and_sources_are_alternatives_and_a_filter_is_beside_them(path: str) -> None:
    """By both commands; an event has to match the type, the source and the filter."""
    stored(path, (3, "a", "x"), (2, "b", "x"), (1, "a", "y"), (0, "c", "it's"))
    for command in ("peek", "tail"):
        here = (command, "--thread", path)
        assert ids(*here, "--type", "x") == [1, 2]
        assert ids(*here, "--type", "x", "--type", "it's") == [1, 2, 4]
        assert ids(*here, "--source", "a", "--type", "y") == [3]
        assert ids(*here, "--source", "a", "--filter", "id = 1 OR id = 2") == [1]


def test_bad_choices_are_refused(inbox: str) -> None:
    """A time that is none or yet to come, an end before the start, an end of what has none."""
    for words, says in (
        ("peek --since soon", "--since must be a time"),
        ("tail --since 2999-01-01", "--since is yet to come"),
        ("peek --since 1h --until 2h", "--until is not after --since"),
        ("tail --until 1h --follow", "--follow and --until exclude each other"),
        ("tail --type=", "--type is empty"),
    ):
        refused(2, says, run(f"{words} --thread", inbox))


def test_what_follows_is_filtered_too(inbox: str) -> None:
    """`tail -f --type` prints nothing of another type, before and after."""
    words = [EVENTQ, "tail", "--thread", inbox, "--since", "1h", "--type", "it's", "-f", "--json"]
    with eventq.open(inbox) as thread:
        thread.push("self", "it's", "first")
        thread.push("self", "other", "left out")
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environ()) as tail:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["content"] == "first"
            thread.push("self", "other", "left out")
            thread.push("self", "it's", "second")
            assert json.loads(tail.stdout.readline())["content"] == "second"
            tail.send_signal(signal.SIGINT)
            assert tail.stdout.read() == b""


def test_thread_has_none_of_it(inbox: str) -> None:
    """Under the name `thread`, both commands take what they have always taken."""
    for command in ("peek --last 1", "tail"):
        for option in ("since", "until", "type", "source"):
            refused(
                2, f"--{option}", run(f"{command} --{option} 1 --thread", inbox, program=THREAD)
            )
