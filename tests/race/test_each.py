"""Real handlers that are run for each event: what they get, and what their exit codes do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from eventq.log.notifier import quote
from eventq.records.cause import Cause
from eventq.system import processes
from tests.engines import sqlite
from tests.race.support import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.race.support import Box

QUICK = (0.01, 0.01)  # a back-off


def noting(box: Box, more: str = "") -> str:
    """Return a command that notes the event's id and attempt, and then does more."""
    trace = quote(os.path.join(box.folder, "trace"))
    return f'echo "$EVENTQ_CONSUMER 0 got $EVENTQ_EVENT_ID $EVENTQ_EVENT_ATTEMPT" >> {trace}; {more or ":"}'


def got(box: Box) -> list[tuple[int, int]]:
    """Return id and attempt of the events that were handled, in order."""
    lines = [line.split() for line in box.trace("got")]
    return [(int(line[3]), int(line[4])) for line in lines]


def fill(box: Box, count: int) -> None:
    """Push some events while nobody is woken."""
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.push_many((f"s{n % 2}", "note", str(n)) for n in range(1, count + 1))
    box.patch.setenv("EVENTQ_NOTIFIER", "builtin")


def letters(box: Box) -> list[tuple[int, int, int | None, str | None]]:
    """Return event, attempts, exit code and error of the dead letters."""
    rows = box.thread.database.claims.dead(None, ("", 0), 100)
    return [(row.event, row.attempts, row.code, row.error) for row in rows]


def test_a_handler_gets_each_event_in_order(box: Box, tmp_path: Path) -> None:
    """It has the event's JSON on its standard input and its columns in the environment."""
    fill(box, 3)
    box.thread.push("self", "odd", "x" * 5000, subtype="sub")
    box.patch.setenv("EVENTQ_EVENT_SUBTYPE", "of another handler")
    out = quote(str(tmp_path / "out"))
    show = f"pwd >> {out}; cat >> {out}; env | grep ^EVENTQ_EVENT_ | sort >> {out}"
    box.patch.chdir(tmp_path)
    box.thread.subscribe("w", show, each=True)
    until(box.all_handled, "every event is handled")
    box.settle()
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[0] == str(tmp_path)
    assert [json.loads(line)["id"] for line in lines if line.startswith("{")] == [1, 2, 3, 4]
    assert lines[2:6] == [
        "EVENTQ_EVENT_ATTEMPT=1",
        "EVENTQ_EVENT_ID=1",
        "EVENTQ_EVENT_SOURCE=s1",
        "EVENTQ_EVENT_TYPE=note",
    ]
    assert lines[-3:] == [
        "EVENTQ_EVENT_SOURCE=self",
        "EVENTQ_EVENT_SUBTYPE=sub",
        "EVENTQ_EVENT_TYPE=odd",
    ]


def test_the_input_may_be_left_unread(box: Box) -> None:
    """A handler that ignores its standard input has not failed, however large the event is."""
    box.thread.subscribe("w", noting(box), each=True)
    box.thread.push("self", "note", "x" * 1_000_000)
    until(box.all_handled, "the event is handled")
    box.settle()
    assert got(box) == [(1, 1)]
    assert not [name for name in os.listdir(f"{box.path}/run") if name.startswith(".input")]


def test_a_value_that_is_long_is_left_out(box: Box, tmp_path: Path) -> None:
    """A variable of more than 4 KiB is unset: the input has the value."""
    out = quote(str(tmp_path / "out"))
    box.thread.subscribe(
        "w", f'echo "${{EVENTQ_EVENT_SOURCE-unset}} $EVENTQ_EVENT_TYPE" >> {out}', each=True
    )
    for size in (4096, 4097):
        box.thread.push("s" * size, "t", "x")
    until(box.all_handled, "every event is handled")
    assert (tmp_path / "out").read_text().splitlines() == ["s" * 4096 + " t", "unset t"]


@pytest.mark.parametrize(
    ("code", "expected", "dead"),
    [
        (3, [(1, 1), (2, 1), (2, 2), (3, 1)], [(2, 2, 3, "why\n")]),
        (65, [(1, 1), (2, 1), (3, 1)], [(2, 1, 65, "why\n")]),
    ],
)
def test_a_poison_event_becomes_a_dead_letter(
    box: Box, code: int, expected: list[tuple[int, int]], dead: list[object]
) -> None:
    """After its last attempt, or at once with exit code 65, and the others go on."""
    fill(box, 3)
    fail = f"[ $EVENTQ_EVENT_ID != 2 ] || {{ echo why; exit {code}; }}"
    box.thread.subscribe(
        "w", noting(box, fail), each=True, on_failure="dead", max_attempts=2, backoff=QUICK
    )
    until(box.all_handled, "every event is finished")
    box.settle()
    assert got(box) == expected
    assert letters(box) == dead


def test_exit_75_asks_for_an_attempt_that_does_not_count(box: Box, tmp_path: Path) -> None:
    """The event comes again as if it had not been tried, as often as that is asked for."""
    seen = quote(str(tmp_path / "seen"))
    again = f"echo x >> {seen}; [ $(wc -l < {seen}) -gt 3 ] || exit 75"
    box.thread.subscribe("w", noting(box, again), each=True, max_attempts=1, backoff=QUICK)
    box.thread.push("self", "note", "x")
    until(box.all_handled, "the event is handled")
    box.settle()
    assert got(box) == [(1, 1)] * 4


def test_a_consumer_in_order_stalls_at_the_event(box: Box) -> None:
    """Nothing after it is run; the reason names the event; `resume` tries it again."""
    fill(box, 3)
    gate = os.path.join(box.folder, "mended")
    fail = f"[ $EVENTQ_EVENT_ID != 2 ] || [ -e {quote(gate)} ] || exit 7"
    box.thread.subscribe("w", noting(box, fail), each=True, max_attempts=2, backoff=QUICK)
    until(lambda: box.consumer().stalled, "the consumer stalls")
    box.settle()
    assert box.consumer().stalled == "the handler exited with code 7 at event 2, 2 times"
    assert got(box) == [(1, 1), (2, 1), (2, 2)]
    assert box.consumer().last_acked_id == 1
    box.push()
    box.settle()
    assert len(got(box)) == 3


def test_events_of_a_failed_batch_are_run_singly(box: Box, tmp_path: Path) -> None:
    """A batch that fails counts for none of its events; then each is tried alone."""
    fill(box, 6)
    out = quote(str(tmp_path / "out"))
    show = f'cat > {out}.now; wc -l < {out}.now >> {out}; ! grep -q \'"content":"3"\' {out}.now'
    box.thread.subscribe(
        "w", show, each=True, batch=4, on_failure="dead", max_attempts=2, backoff=QUICK
    )
    until(box.all_handled, "every event is finished")
    box.settle()
    assert (tmp_path / "out").read_text().split() == ["4", "1", "1", "1", "1", "1", "2"]
    assert [row[:3] for row in letters(box)] == [(3, 2, 1)]


def pushing(box: Box, kind: str) -> str:
    """Return a command that pushes an event of a type into the thread."""
    python = f"{quote(sys.executable)} -m eventq"
    return f"{python} push --type {kind} x > {quote(os.path.join(box.folder, 'said'))}"


def test_what_a_handler_pushes_is_caused_by_its_event(box: Box) -> None:
    """Each event is one's own, also of a handler that a handler's push has started."""
    box.thread.subscribe("first", pushing(box, "second"), each=True, filter="type = 'first'")
    box.thread.subscribe("second", pushing(box, "third"), each=True, filter="type = 'second'")
    box.thread.push("self", "first", "x")
    until(lambda: box.thread.last_id() == 3, "the second one has pushed")
    box.settle()
    assert [box.thread.causes_of(event=one) for one in (1, 2, 3)] == [[], [Cause(1)], [Cause(2)]]


def test_a_batch_of_a_handler_is_a_cause_as_a_whole(box: Box) -> None:
    """What it pushes says which events it was given; nothing else does, of a later one."""
    fill(box, 3)
    box.patch.setenv("EVENTQ_EVENT_IDS", "1")
    push = pushing(box, "answer")
    box.thread.subscribe("w", push, each=True, batch=2, filter="type = 'note'")
    until(lambda: box.thread.last_id() == 5, "both have pushed")
    box.settle()
    assert [box.thread.causes_of(event=one) for one in (4, 5)] == [[Cause(1), Cause(2)], [Cause(3)]]


def test_what_outlives_a_handler_goes_on_for_its_event(box: Box) -> None:
    """It has inherited what it is at work on, also while another handler has the next event."""
    gate = os.path.join(box.folder, "gate")
    os.mkfifo(gate)
    script = os.path.join(box.folder, "late.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"read x < {quote(gate)}\n{pushing(box, 'late')}\n")
    first = (
        f'[ "$EVENTQ_EVENT_ID" != 1 ] || setsid sh {quote(script)} > /dev/null 2>&1 < /dev/null &'
    )
    fill(box, 2)
    box.thread.subscribe("w", first, each=True, filter="type = 'note'")
    until(lambda: box.consumer().last_acked_id >= 2, "both are handled")
    box.open_gate()
    until(lambda: box.thread.last_id() == 3, "it pushes")
    box.settle()
    assert box.thread.causes_of(event=3) == [Cause(1)]


def test_several_at_once(box: Box) -> None:
    """With a concurrency so many handlers run at once, and a push starts another one at once."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    wait = f"cat < {quote(os.path.join(box.folder, 'gate'))}"
    box.thread.subscribe("w", noting(box, wait), each=True, concurrency=2)
    for number in range(1, 4):
        box.thread.push("self", "note", "x")
        until(lambda: len(got(box)) == min(number, 2), "as many run as may")  # noqa: B023
    box.open_gate()  # one or both of them go on
    until(lambda: len(got(box)) == 3, "the next one runs")

    def go_on() -> bool:
        with contextlib.suppress(OSError):  # nobody is at the gate
            os.close(os.open(os.path.join(box.folder, "gate"), os.O_WRONLY | os.O_NONBLOCK))
        return box.all_handled()

    until(go_on, "every event is handled")
    assert sorted(got(box)) == [(1, 1), (2, 1), (3, 1)]


def test_events_alike_keep_their_order(box: Box) -> None:
    """With `ordered_by`, two events of one source are never handled at once, nor out of order."""
    fill(box, 8)
    lock = quote(os.path.join(box.folder, "lock-"))
    alone = f"mkdir {lock}$EVENTQ_EVENT_SOURCE && rmdir {lock}$EVENTQ_EVENT_SOURCE"
    box.thread.subscribe(
        "w", noting(box, alone), each=True, concurrency=3, ordered_by="source", max_attempts=1
    )
    until(box.all_handled, "every event is handled")
    box.settle()
    assert letters(box) == []
    for first in (1, 2):
        assert [event for event, _ in got(box) if event % 2 == first % 2] == [*range(first, 9, 2)]


def test_a_handler_that_runs_too_long_has_failed(box: Box) -> None:
    """After its timeout a handler is ended, and the error says so, whatever its exit code."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    stay = f"trap 'exit 0' TERM; cat < {quote(os.path.join(box.folder, 'gate'))} & wait"
    box.thread.subscribe(
        "w", noting(box, stay), each=True, on_failure="dead", max_attempts=1, timeout=0.5
    )
    box.thread.push("self", "note", "x")
    until(box.all_handled, "the event is finished")
    assert letters(box) == [(1, 1, None, "timed out after 0.5 seconds")]


def test_the_children_of_a_handler_that_was_killed_die_with_it(box: Box) -> None:
    """They may still be at work on the event, which is tried again."""
    stay = "[ $EVENTQ_EVENT_ATTEMPT != 1 ] || { sleep 1000 & kill -9 $$; }"
    box.thread.subscribe("w", noting(box, stay), each=True, backoff=QUICK)
    box.thread.push("self", "note", "x")
    until(box.all_handled, "the event is handled")
    box.settle()
    assert got(box) == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    "first",
    [
        "seq 30000; exit 0",  # the log is rotated before the next run
        "rm {log}; mkfifo {log}; exit 0",
        "rm {log}; ln -s /dev/zero {log}; exit 0",
        "rm {log}; mkdir {log}; exit 0",
    ],
    ids=["long", "pipe", "link", "folder"],
)
@pytest.mark.parametrize("own", [False, True], ids=["in the run before", "in the run itself"])
def test_a_dead_letter_has_the_end_of_what_its_run_has_printed(
    first: str, *, own: bool, box: Box
) -> None:
    """Whatever is done to the log, before the run or in it; nobody waits for that for ever."""
    log = box.thread.layout.handler_log("w")
    spoil = first.format(log=quote(log))
    if own:
        spoil = f"({spoil})"
    each = (
        f"{spoil}; echo why >&2; exit 65"
        if own
        else (f"[ $EVENTQ_EVENT_ID != 1 ] || {{ {spoil}; }}; echo why >&2; exit 65")
    )
    box.thread.subscribe("w", each, each=True, on_failure="dead")
    fill(box, 2)
    box.thread.dispatch()
    until(box.all_handled, "both are finished")
    found = {event: (error or "").splitlines()[-1:] for event, _, _, error in letters(box)}
    if own and "seq" in first:
        assert found == {1: ["why"], 2: ["why"]}
    elif own:
        assert found[1] == ["why"]
    else:
        assert found == {2: ["why"] if "seq" in first else []}


def test_a_claim_is_extended_while_its_handler_runs(box: Box) -> None:
    """A handler may take longer than a lease: nobody else gets the event."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    wait = f"cat < {quote(os.path.join(box.folder, 'gate'))}"
    box.thread.subscribe("w", noting(box, wait), each=True, concurrency=2, lease=1.5)
    box.thread.push("self", "note", "x")
    until(lambda: got(box), "the handler runs")

    def until_when() -> int:
        return box.thread.database.claims.out("w", ("", 0), 1)[0].until

    first = until_when()
    until(lambda: until_when() > first + 1_500, "the claim was extended")
    box.open_gate()
    until(box.all_handled, "the event is handled")
    assert got(box) == [(1, 1)]


def test_a_handler_whose_claim_is_lost_is_killed(box: Box) -> None:
    """Somebody acks the event meanwhile: the handler ends at the next renewal."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    wait = f"cat < {quote(os.path.join(box.folder, 'gate'))}"
    box.thread.subscribe("w", noting(box, wait), each=True, concurrency=1, lease=1)
    box.thread.push("self", "note", "x")
    until(lambda: got(box), "the handler runs")
    sqlite(box.thread.database).change(
        "INSERT OR REPLACE INTO consumer_progress VALUES ('w', 1, '2026-01-01T00:00:00.000Z')"
    )
    box.settle()
    assert len(box.journal("its handler is killed")) == 1
    assert box.consumer().last_acked_id == 1


def test_what_a_lost_supervisor_left_is_killed_and_tried_again(box: Box) -> None:
    """Its handler is killed first, and the attempt has failed."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    wait = f"[ $EVENTQ_EVENT_ATTEMPT != 1 ] || cat < {quote(os.path.join(box.folder, 'gate'))}"
    box.thread.subscribe("w", noting(box, wait), each=True, backoff=QUICK)
    box.thread.push("self", "note", "x")
    until(lambda: got(box), "the handler runs")
    (row,) = box.thread.database.claims.out("w", ("", 0), 9)
    words = (row.process or "").split()
    assert words[:2] == processes.me().split()[:2]
    supervisor, handler = int(words[2]), int(words[4])
    assert words[6:] == [box.thread.database.identity], "in a copy, it is not ours to kill"
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not box.held(), "the lock is free")
    assert handler in box.alive()
    box.thread.dispatch()
    until(box.all_handled, "the event is handled")
    box.settle()
    assert got(box) == [(1, 1), (1, 2)]


def test_a_directory_that_is_gone_is_told(box: Box, tmp_path: Path) -> None:
    """The handler cannot run there: that is a failed attempt, and the error says why."""
    place = tmp_path / "gone"
    place.mkdir()
    box.thread.subscribe(
        "w", "true", each=True, max_attempts=1, on_failure="dead", directory=str(place)
    )
    place.rmdir()
    box.thread.push("self", "note", "x")
    until(box.all_handled, "the event is finished")
    ((_, _, code, error),) = letters(box)
    assert code == 1
    assert "directory cannot be entered" in (error or "")
    assert "run 'eventq subscribe --replace' where it is to run now" in (error or "")


def test_a_new_handler_takes_over_at_the_same_place(box: Box) -> None:
    """`replace` changes the handler and keeps the place; a stall ends, and it runs at once."""
    fill(box, 2)
    box.thread.subscribe("w", "exit 1", each=True, max_attempts=1)
    until(lambda: box.consumer().stalled, "the consumer stalls")
    box.settle()
    box.thread.subscribe("w", noting(box), each=True, replace=True)
    until(box.all_handled, "every event is handled")
    assert got(box) == [(1, 1), (2, 1)]


def test_a_handler_that_pops_gets_what_claims_have_left(box: Box) -> None:
    """An event that waits for another attempt wakes it, though claims have examined all."""
    fill(box, 2)
    box.thread.subscribe("w")
    first, second = box.thread.claim("w", limit=2)
    first.retry(delay=600)
    second.done()
    box.thread.subscribe("w", box.handler(), replace=True)
    until(box.all_handled, "every event is handled")
    box.settle()


def test_a_replay_starts_the_handler_again(box: Box) -> None:
    """At once, though claims had examined all events before."""
    fill(box, 3)
    box.thread.subscribe("w", noting(box), each=True)
    until(box.all_handled, "every event is handled")
    box.settle()
    box.thread.ack("w", 1, replay=True)
    until(lambda: len(got(box)) == 5, "two events are handled again")
    assert got(box) == [(1, 1), (2, 1), (3, 1), (2, 1), (3, 1)]


def test_nothing_is_started_for_a_pull_consumer(box: Box) -> None:
    """A consumer without a handler has none; other programs see one that does nothing."""
    box.thread.subscribe("w")
    box.push()
    box.settle()
    assert box.journal("spawned") == []
    (info,) = box.thread.status().consumers
    assert (info.handler_cmd, info.stalled, info.pending) == (None, None, 1)
