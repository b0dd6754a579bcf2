"""Who needs a person, and which consumers are in trouble.

The kind of fault is a need that nobody can act on, one that is missing, one before another that has
waited for longer, and a list that grows with what others wrote.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from eventq.records.claim import ClaimInfo
from eventq.serving.attention import REASON, REASONS, first_dead, needs, reasons, troubles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq import Thread
    from eventq.serving.attention import Need


def looked(thread: Thread) -> list[Need]:
    """Return what waits for a person."""
    status = thread.status()
    return needs(status, first_dead(thread, status))


def test_who_waits_comes_first_and_the_longest_wait_before_others(thread: Thread) -> None:
    """Then what stands still, then what gave up; each says who, where and since when."""
    thread.subscribe("dead one", max_attempts=1, on_failure="dead")
    thread.subscribe("stalled", "true", max_attempts=1)
    for number in (111, 112):
        thread.push("self", "note", "x")
        thread.claim("dead one")[0].dead(f"refused by 10.0.0.1:{number}\nand more")
    thread.ask("First?", source="internal:dm:coder:main", context="main", run=7)
    thread.ask("Third?")
    thread.ask("Second?", ("a", "b"), approval=True)
    status = thread.status()
    consumers = [
        one._replace(stalled="it failed") if one.consumer_id == "stalled" else one
        for one in status.consumers
    ]
    times = ("2026-01-01T00:00:01.000Z", "2026-01-01T00:00:03.000Z", "2026-01-01T00:00:02.000Z")
    asked = tuple(
        one._replace(asked_at=at) for one, at in zip(status.questions, times, strict=True)
    )
    shown = status._replace(consumers=tuple(consumers), questions=asked)
    first, second, third, stall, dead = needs(shown, first_dead(thread, status))
    assert [first.what, second.what, third.what] == ["First?", "Second?", "Third?"]
    assert (first.since, stall.what) == (1767225601.0, "it failed")
    assert (first.who, first.where, second.who, second.where) == (
        "coder", "run 7, main", "this thread", "",
    )  # fmt: skip
    assert (second.options, first.number) == (("a", "b"), 3)
    assert (dead.kind, dead.who, dead.what) == ("dead", "dead one", "2 events failed for good")
    assert dead.reasons == ((2, "refused by …"),)
    (letter, _) = thread.dead_letters()
    assert dead.since == letter.died_at_ms / 1000
    assert dead.advice == (f"eventq dead retry --all --consumer 'dead one' --thread {status.path}")


def test_a_group_that_stands_still_needs_a_person(thread: Thread) -> None:
    """Nobody but a person resumes it, as a consumer that has stalled."""
    thread.subscribe("w", max_attempts=1, on_failure="stall", ordered_by="source")
    thread.push("self", "note", "x")
    thread.claim("w")[0].retry(0)
    (found,) = looked(thread)
    assert (found.kind, "has stopped its group" in found.what) == ("stall", True)
    assert found.advice == f"eventq resume --thread {thread.path} --consumer w"


def test_what_nobody_can_act_on_is_no_need(thread: Thread) -> None:
    """A consumer that falls behind, and a claim about to end, are trouble of that consumer."""
    thread.subscribe("w")
    thread.push("self", "note", "x")
    status = thread.status()
    one = status.consumers[0]

    def why(now: float = 10_000.0, earlier: float | None = None, **more: Any) -> Sequence[str]:
        shown = status._replace(consumers=(one._replace(**more),))
        assert needs(shown) == []
        before = {} if earlier is None else {"w": earlier}
        claim = ClaimInfo("w", 1, 1, "me", "token", 9_990_000, 10_020_000)
        found = troubles(shown, [claim], before, now)
        return [text for each in found for text in each.why]

    assert why(lag=100.0, earlier=50.0) == ["1 event waits"]
    assert why(lag=301.0) == ["1 event waits"]
    assert why(lag=100.0, earlier=150.0) == why(lag=100.0) == why(lag=50.0, earlier=1.0) == []
    assert why(lag=301.0, paused=True) == []
    assert why(10_011.0) == ["the claim of me on event 1 ends in 9s"]
    assert why(pending=None) == ["its filter cannot be run"]


def test_the_worst_consumer_comes_first(thread: Thread) -> None:
    """What stands still, what cannot look, what gave up, what is late, the oldest first."""
    thread.subscribe("w")
    status = thread.status()
    one = status.consumers[0]
    shown = [
        one._replace(consumer_id=name, **more)
        for name, more in (
            ("late", {"lag": 400.0, "pending": 2}), ("later", {"lag": 500.0, "pending": 2}),
            ("dead", {"dead": 3}), ("refused", {"pending": None}), ("fine", {}),
            ("stalled", {"stalled": "it failed", "dead": 1}),
        )
    ]  # fmt: skip
    random.shuffle(shown)
    found = troubles(status._replace(consumers=tuple(shown)), [], {}, 1_000.0)
    assert [each.consumer for each in found] == ["stalled", "refused", "dead", "later", "late"]
    assert found[0].why == ("it failed", "1 event failed for good")
    assert [each.since for each in found[-2:]] == [500.0, 600.0]


def test_errors_alike_are_counted() -> None:
    """They differ in numbers and ids; a traceback is known by its last line."""
    errors: list[str | None] = [
        f"ConnectionRefusedError: [Errno 111] to 10.0.0.{n}:99\nx{n}" for n in range(14)
    ]
    trace = "Traceback (most recent call last):\n  File 'x', line {0}\nKeyError: 'order-{0}'\n"
    errors += [trace.format(n) for n in range(4)]
    errors += [None, "", " \n"]
    assert reasons([" " * 1_000 + "far away"]) == ((1, "far away"),)
    random.shuffle(errors)
    assert reasons(errors) == (
        (14, "ConnectionRefusedError: [Errno …] to …"), (4, "KeyError: '…'"),
        (3, "no reason given"),
    )  # fmt: skip


@given(st.lists(st.none() | st.text(max_size=400), max_size=40))
def test_reasons_are_bounded_and_count_everything(errors: list[str | None]) -> None:
    """Whatever was written there."""
    found = reasons(errors)
    assert sum(number for number, _ in found) == len(errors)
    assert len(found) <= REASONS + 1
    assert all(0 < len(text) <= REASON and "\n" not in text for _, text in found)


def test_a_long_error_is_quick() -> None:
    """A pattern that tries each letter of a megabyte would take minutes."""
    assert reasons(["a" * 1_000_000, "a-" * 500_000]) == (
        (1, f"{'a' * (REASON - 1)}…"), (1, f"{('a-' * REASON)[: REASON - 1]}…"),
    )  # fmt: skip
