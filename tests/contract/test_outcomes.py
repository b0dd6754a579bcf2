"""Stalls, deaths and retries: each is a line in the journal, and passed on to its listener."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log import outcomes
from eventq.log.notifier import quote
from eventq.store.queue_rows import Outcome, Verdict
from eventq.store.rules import LEASE_ENDED, cause

if TYPE_CHECKING:
    from tests.conftest import Clock

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", "postgres")]


@pytest.fixture
def lines(thread: eventq.Thread, clock: Clock) -> list[str]:
    """Return what the listener of the thread's journal gets, from three events of a consumer on."""
    clock.move(0)
    thread.subscribe("w", max_attempts=2, backoff=(10, 10))
    thread.push_many(("self", "note", str(n)) for n in range(1, 4))
    found: list[str] = []
    thread.journal.listener = found.append
    return found


def waits_of(lines: list[str]) -> list[float]:
    """Return the seconds until the next attempts."""
    found = [re.search(r"next attempt in ([0-9.]+)([sm])", line) for line in lines]
    return [float(one[1]) * {"s": 1, "m": 60}[one[2]] for one in found if one]


# --- in words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error", "worker", "expected"),
    [
        (3, None, None, "exited with code 3"),
        (3, "a\nno such host\n\n", None, "exited with code 3 (no such host)"),
        (-9, "", None, "was killed by signal 9 (SIGKILL)"),
        (-250, "", None, "was killed by signal 250"),
        (None, "output\ntimed out after 5 seconds", None, "timed out after 5 seconds"),
        (9, "timed out after 5 seconds", None, "exited with code 9 (timed out after 5 seconds)"),
        (None, LEASE_ENDED, "host:7", "the lease of host:7 ended"),
        (None, LEASE_ENDED, None, "its lease ended"),
        (None, "Traceback …\nValueError: no", None, "ValueError: no"),
        (None, "x" * 500, None, "x" * 200 + "…"),
        (None, None, None, "its worker asked for that"),
    ],
)
def test_the_cause_is_in_the_line(
    code: int | None, error: str | None, worker: str | None, expected: str
) -> None:
    """Exit code, signal, time limit, lease, or the last line of what was said."""
    assert cause(code, error, worker) == expected


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            Outcome("w", 7, 2, 5, "retry", 4_100, code=3),
            (
                "retry: consumer=w event=7 attempt=2/5: exited with code 3; next attempt in 4.1s;"
                " to try at once: eventq resume --thread '/a b' --consumer w"
            ),
        ),
        (
            Outcome("it's", 7, 2, 5, "retry", 0, counts=False, code=75),
            (
                "retry: consumer=it's event=7 attempt=2/5 (not counted): exited with code 75; next"
                " attempt at once; to see who has it:"
                " eventq claims ls --thread '/a b' --consumer 'it'\"'\"'s'"
            ),
        ),
        (
            Outcome("w", 7, 5, 5, "dead", code=3),
            (
                "dead: consumer=w event=7 attempt=5/5: exited with code 3; it is a dead letter;"
                " to try it again: eventq dead retry --thread '/a b' --consumer w 7"
            ),
        ),
        (
            Outcome("w", 7, 5, 5, "stall", code=3),
            (
                "stall: consumer=w event=7 attempt=5/5: exited with code 3; nothing follows; once"
                " that is mended: eventq resume --thread '/a b' --consumer w"
            ),
        ),
    ],
)
def test_a_line_says_what_follows_and_which_command_helps(outcome: Outcome, expected: str) -> None:
    """The command can be pasted, whatever the thread and the consumer are called."""
    assert outcomes.sentence(outcome, "/a b") == expected


# --- who reports ----------------------------------------------------------------------------------


def test_a_claim_that_is_put_back_or_given_up_is_reported(
    thread: eventq.Thread, lines: list[str]
) -> None:
    """With its attempt, what was said of it, and when it is tried again."""
    one, two = thread.claim("w", 2)
    one.retry(30, "no such host")
    two.dead("bad address")
    (first, second) = lines
    assert first.startswith(
        "retry: consumer=w event=1 attempt=1/2: no such host; next attempt in 30s"
    )
    assert second.startswith(
        "dead: consumer=w event=2 attempt=1/2: bad address; it is a dead letter"
    )


def test_what_is_done_or_only_given_back_is_not_reported(
    thread: eventq.Thread, lines: list[str]
) -> None:
    """An event that nobody tried has no outcome."""
    one, two = thread.claim("w", 2)
    one.done()
    two.retry(0, count=False)
    assert lines == []


def test_an_outcome_is_reported_once_it_is_committed(
    thread: eventq.Thread, lines: list[str]
) -> None:
    """What is rolled back has not happened."""
    one, two = thread.claim("w", 2)
    with pytest.raises(KeyError), thread.write():
        one.dead("no")
        raise KeyError
    with thread.write():
        two.dead("yes")
        assert lines == []
    assert [line[: line.index(":", 5)] for line in lines] == [
        "dead: consumer=w event=2 attempt=1/2"
    ]


def test_the_end_of_a_lease_is_reported_with_its_worker(
    thread: eventq.Thread, lines: list[str], clock: Clock
) -> None:
    """The first one as a retry at once, the last one as a death."""
    for _ in range(2):
        thread.claim("w", 1, lease=5, worker="host:7")
        clock.move(6)
    thread.claim("w", 1)
    assert [line.partition("; ")[0] for line in lines] == [
        "retry: consumer=w event=1 attempt=1/2: the lease of host:7 ended",
        "dead: consumer=w event=1 attempt=2/2: the lease of host:7 ended",
    ]


def test_a_stall_is_reported(thread: eventq.Thread, lines: list[str], clock: Clock) -> None:
    """As what it is, after the last attempt."""
    thread.subscribe("w", max_attempts=2, backoff=(1, 1), on_failure="stall", replace=True)
    for _ in range(2):
        thread.claim("w", 1)[0].retry(error="no")
        clock.move(2)
    assert [line.partition(":")[0] for line in lines] == ["retry", "stall"]
    assert thread.claim("w", 1) == []


@pytest.mark.engines("sqlite")
def test_the_journal_has_the_lines_with_times(thread: eventq.Thread, lines: list[str]) -> None:
    """A death is an error, the others are warnings."""
    one, two = thread.claim("w", 2)
    one.retry()
    two.dead()
    with open(os.path.join(thread.path, "logs", "thread.log")) as log:
        found = log.read().splitlines()[-2:]
    stamp = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] "
    for line, level, text in zip(found, ("WARN", "ERROR"), lines, strict=True):
        assert re.fullmatch(rf"{stamp}\[{level}\] {re.escape(text)}", line)


# --- waits ----------------------------------------------------------------------------------------


def test_attempts_that_do_not_count_wait_longer_each_time(
    thread: eventq.Thread, lines: list[str], clock: Clock
) -> None:
    """As those that count do, and together with them; a `resume` begins anew."""
    thread.subscribe("w", max_attempts=4, backoff=(1, 60), replace=True)
    for count in (False, False, True, False):
        (claim,) = [claim for claim in thread.claim("w", 1) if claim.event.id == 1]
        claim.retry(error="no", count=count)
        clock.move(60)
    for wait, most in zip(waits_of(lines), (1, 2, 4, 8), strict=True):
        assert most / 2 <= wait <= most
    (claim,) = thread.claim("w", 1)
    assert claim.attempt == 2, "one of them counted"
    claim.retry(50, count=False)
    thread.resume("w")
    thread.claim("w", 1)[0].retry(error="no", count=False)
    assert waits_of(lines)[-1] <= 1


def test_an_event_is_tried_for_half_an_hour_by_default(
    thread: eventq.Thread, lines: list[str], clock: Clock
) -> None:
    """A restart of what it needs takes no longer: 21 attempts, at most five minutes apart."""
    thread.subscribe("w", replace=True)
    begin = clock.at
    while claims := [claim for claim in thread.claim("w", 1) if claim.event.id == 1]:
        claims[0].retry(error="no")
        if waits := waits_of(lines[-1:]):
            clock.move(waits[0] * 1.01 + 0.01)
    assert len(lines) == 21
    assert max(waits_of(lines)) <= 300
    assert clock.at - begin >= 1800


# --- Python workers -------------------------------------------------------------------------------


@pytest.mark.engines("sqlite")
def test_a_python_worker_logs_outcomes(
    thread: eventq.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    """With when it starts and stops."""
    thread.push("self", "note", "x")
    worker = eventq.Worker(thread.path)

    @worker.consumer("w")
    def give_up(_: eventq.Event) -> None:
        worker.stop()
        raise eventq.Dead("bad address")

    with caplog.at_level(logging.INFO, "eventq.worker"):
        worker.run()
    found = [record.getMessage() for record in caplog.records]
    assert found[0] == f"works for consumer 'w' of {thread.path}"
    assert found[-1] == "has stopped"
    (dead,) = [line for line in found if line.startswith("dead: ")]
    assert dead.startswith("dead: consumer=w event=1 attempt=1/21: bad address; ")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0657, "0.0657s"), (14.2, "14.2s"), (119, "119s"), (1930, "32.2m"), (7200, "2h"), (9e5, "10.4d")],
)  # fmt: skip
def test_waits_are_written_as_people_do(seconds: float, expected: str) -> None:
    """Three digits, and the unit that fits."""
    assert outcomes.in_words(seconds) == expected


def test_no_attempt_is_announced_while_the_consumer_rests(
    thread: eventq.Thread, lines: list[str]
) -> None:
    """Paused or stalled, it has to be resumed first."""
    one, two = thread.claim("w", 2)
    thread.pause("w")
    one.retry(30, "no")
    assert lines[0].endswith(
        f"no; its consumer rests; to let it go on: eventq resume --thread {quote(thread.path)}"
        " --consumer w"
    )
    thread.resume("w")
    two.retry(30, "no")
    assert "next attempt in 30s" in lines[1]


def test_a_stall_is_explained_by_its_last_attempt(thread: eventq.Thread, lines: list[str]) -> None:
    """And not by the exit code of an earlier one."""
    thread.subscribe("w", max_attempts=2, backoff=(0, 0), on_failure="stall", replace=True)
    for code, error in ((3, "no such host"), (None, "its worker was lost")):
        (claim,) = thread.claim("w")
        _, secret, event, revived = claim.parts()
        verdict = Verdict("w", secret, (event,), revived, "retry", 0, code=code, error=error)
        thread.database.claims.settle([verdict])
    (found,) = thread.status().consumers
    assert found.stalled == "event 1 failed, 2 times: its worker was lost"
    assert len(lines) == 2
