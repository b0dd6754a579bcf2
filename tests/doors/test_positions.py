"""Positions of `peek` that no event of this log has, or that a prune has left behind."""

from __future__ import annotations

import json

import eventq
from tests.doors.support import THREAD, refused, run


def _filled(inbox: str) -> None:
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", "x")] * 10)
        thread.prune(before_id=6, force=True)


def test_a_position_above_the_newest(inbox: str) -> None:
    """`peek` says which the newest is, exit 1; `thread` prints nothing, as ever."""
    _filled(inbox)
    words = ("peek", "--thread", inbox, "--last-event-id", "11")
    refused(1, "there was never an event 11: the newest is 10", run(*words))
    done = run(*words, program=THREAD)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_position_before_a_gap(inbox: str) -> None:
    """`peek` says on stderr which events were pruned; `thread` does not, as ever."""
    _filled(inbox)
    words = ("peek", "--thread", inbox, "--last-event-id", "2")
    done = run(*words)
    assert (done.code, done.err) == (0, "events 3 to 5 were pruned\n")
    assert [json.loads(one)["id"] for one in done.out.splitlines()] == [6, 7, 8, 9, 10]
    assert run(*words[:-1], "4").err == "event 5 was pruned\n"
    old = run(*words, program=THREAD)
    assert (old.out, old.err) == (done.out, "")
    done = run(*words[:-1], "0")  # where all that is left is wanted
    assert (done.out, done.err) == (old.out, "")
