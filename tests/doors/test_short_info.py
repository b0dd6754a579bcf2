"""`info --short`: a line for each consumer, the worst first.

The states are one each: a consumer that is several things at once is the worst of them.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import eventq
from eventq.records.claim import WorkerStatus
from eventq.records.consumer import ConsumerStatus
from eventq.serving.attention import STATES, state
from eventq.system import clock
from tests.doors.support import THREAD, objects, ok, refused, run

CALM: dict[str, Any] = {
    "consumer_id": "w", "handler_cmd": "true", "filter": None, "last_acked_id": 0, "updated_at": None,
    "pending": 0, "running": False, "attempts": 0, "stalled": None, "max_attempts": 5,
    "timeout": None,
}  # fmt: skip
WORKERS = (WorkerStatus("a", 1, 0, 0),)
LATE = {"pending": 1, "lag": 61.0}


@pytest.mark.parametrize(("changed", "expected"), [
    ({}, "idle"), ({"running": True}, "idle"), ({"paused": True}, "paused"),
    ({"pending": 1, "running": True}, "running"), ({"pending": 1, "workers": WORKERS}, "running"),
    ({"pending": 1, "lag": 60.0}, "behind"), ({**LATE, "paused": True}, "paused"),
    (LATE, "overdue"), ({**LATE, "running": True}, "overdue"), ({**LATE, "dead": 1}, "dead"),
    ({"dead": 1, "paused": True}, "dead"), ({"pending": None, "dead": 1}, "refused"),
    ({"stalled": "it fails", "pending": None, "dead": 1}, "stalled"), ({**LATE, "halted": 1}, "stalled"),
])  # fmt: skip
def test_a_state_is_the_worst_that_can_be_said(changed: dict[str, Any], expected: str) -> None:
    """Of stalled, refused, dead, overdue, behind, paused, running and idle."""
    assert state(ConsumerStatus(**CALM | changed)) == expected
    assert expected in STATES


def test_each_consumer_is_a_line_the_worst_first(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In columns, with what waits for it, and for those that need somebody what to do."""
    with eventq.open(path) as thread:
        thread.subscribe("idle", filter="type = 'none'")
        thread.subscribe("behind", "true")
        thread.subscribe("paused", "true")
        thread.pause("paused")
        thread.subscribe("it's dead", max_attempts=1, on_failure="dead")
        thread.push("self", "note", "x")
        thread.settle(dead=[one.token for one in thread.claim("it's dead")], error="broken")
        with monkeypatch.context() as patched:
            patched.setattr(clock, "now", lambda now=clock.now: now() - 7200)
            thread.push("self", "old", "x")
        thread.subscribe("overdue", filter="type = 'old'")
    lines = ok("info", "--short", "--thread", path).splitlines()
    cells = [re.split("   *", re.sub(r"for \d+s", "for 5s", line)) for line in lines]
    here = f"--thread {path} --consumer"
    dead, old = (
        "1 dead letter, 1 event waits, the oldest for 2h",
        "1 event waits, the oldest for 2h",
    )
    new = "2 events wait, the oldest for 5s"
    nobody = "waits for a program that claims or pops its events; none is known"
    assert cells == [
        ["dead", "it's dead", dead, f"next: eventq dead ls {here} 'it'\"'\"'s dead'"],
        ["overdue", "overdue", old, nobody],
        ["behind", "behind", new, f"next: eventq dispatch --thread {path}"],
        ["paused", "paused", new, f"next: eventq resume {here} paused"],
        ["idle", "idle"],
    ]
    assert len({line.find("next:") for line in lines} - {-1}) == 1  # below each other
    found = objects("info", "--short", "--thread", path)
    names = [(one["state"], one["consumer_id"]) for one in found]
    assert names == [(row[0], row[1]) for row in cells]
    assert found[0]["dead"] == 1
    assert found[-1]["advice"] is None


def test_without_consumers_it_says_so(path: str) -> None:
    """And prints no JSON; under the name `thread` there is no such option."""
    assert (
        ok("info", "--short", "--thread", path) == "No consumers (see 'eventq subscribe --help')\n"
    )
    assert ok("info", "--short", "--json", "--thread", path) == ""
    refused(2, "--short", run("info", "--short", "--thread", path, program=THREAD))
