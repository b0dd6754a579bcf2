"""What the first page asks an engine for: sums of attempts, the newest answers, runs that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eventq.log.questions import answered

if TYPE_CHECKING:
    import eventq
    from tests.conftest import Clock


def test_attempts_are_summed_by_spans(opened: eventq.Thread, clock: Clock) -> None:
    """Of all consumers together, after a minute."""
    hour = int(clock.at // 3600)
    for name in ("a", "b"):
        opened.subscribe(name)
    opened.push_many([("self", "note", f"{n}") for n in range(9)])
    opened.settle([one.token for one in opened.claim("a", 3)])
    clock.move(3600)
    opened.settle(dead=[one.token for one in opened.claim("b", 2)])
    opened.settle([one.token for one in opened.claim("a", 1)])
    totals = opened.database.claims.totals
    assert sorted(totals(0, 60)) == [(hour, 3, 0, 0), (hour + 1, 1, 2, 2)]
    assert totals(60 * (hour + 1) - 1, 60) == [(hour + 1, 1, 2, 2)]
    assert sorted(totals(0, 1)) == [
        (int(clock.at // 60) - 60, 3, 0, 0), (int(clock.at // 60), 1, 2, 2),
    ]  # fmt: skip


def test_the_newest_answers_come_first(opened: eventq.Thread) -> None:
    """Page by page, whatever else has a key."""
    asked = [opened.ask(f"Question {n}?").question_id for n in range(5)]
    for number in (asked[3], asked[0], asked[4]):
        opened.answer(number, f"to {number}")
        opened.push("self", "note", "x", key=f"k{number}")
    found, after = answered(opened.database, None, 2)
    assert [one.question_id for one in found] == [asked[4], asked[0]]
    assert found[0].answer == f"to {asked[4]}"
    rest, end = answered(opened.database, after, 2)
    assert ([one.question_id for one in rest], end) == ([asked[3]], 0)


def test_answers_behind_many_keys(opened: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads so many keys, and says where the next one goes on."""
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"eventq.store.{module}.events.KEYS_SEEN", 3)
    number = opened.ask("Well?").question_id
    opened.answer(number, "yes")
    for n in range(5):
        opened.push("self", "note", "x", key=f"k{n}")
    found, after = answered(opened.database, None, 9)
    assert (found, after) == ([], opened.last_id() - 2)
    (found, after) = answered(opened.database, after, 9)
    assert ([one.answer for one in found], after) == (["yes"], number + 1)
    assert answered(opened.database, after, 9) == ([], 0)


def test_runs_that_ended_since(opened: eventq.Thread, clock: Clock) -> None:
    """The newest day first, and no others; those among some contexts."""
    runs = [opened.runs.start("solve", "a task", label=f"run {n}") for n in range(4)]
    runs[0].end(0)
    clock.move(86_400)
    since = int(clock.at * 1000)
    runs[1].end(1)
    clock.move(86_400)
    runs[2].end(0)
    ended = opened.database.memory.runs.ended
    assert [one.label for one in ended(since, 9)] == ["run 2", "run 1"]
    assert [one.label for one in ended(since + 1, 9)] == ["run 2"]
    assert [one.label for one in ended(0, 2)] == ["run 2", "run 1"]
    among = opened.database.memory.runs.among([runs[3].id, runs[0].id, 999])
    assert sorted(one.label or "" for one in among) == ["run 0", "run 3"]
