"""Causes: what is written for an event says so, whoever writes it, and nothing fails by it."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import UsageError
from eventq.log import selection
from eventq.records.cause import MOST_CAUSES, Cause, Effects
from eventq.records.run import NewStep
from eventq.store.paths import is_url
from tests.servers import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]
SELF = ("self", "note", "x")


def fill(thread: eventq.Thread, count: int) -> None:
    """Push some events that nothing has caused."""
    thread.push_many([SELF] * count)


def causes(thread: eventq.Thread, event: int) -> list[int]:
    """Return the causes of an event, which are all of its own thread."""
    found = thread.causes_of(event=event)
    assert all(one.thread is None for one in found)
    return [one.event_id for one in found]


def place(path: str) -> str:
    """Return what a thread is called as a place."""
    return path if is_url(path) else os.path.realpath(path)


def test_nothing_has_a_cause_by_itself(thread: eventq.Thread) -> None:
    """Without an event that somebody is at work on there is none, and none of what is not there."""
    fill(thread, 2)
    turn = thread.contexts.create("main").append("x")
    assert thread.caused_by(1) == thread.caused_by(9) == Effects((), (), True)
    assert thread.causes_of(event=2) == thread.causes_of(event=9) == []
    assert thread.causes_of(turn=turn.turn_id) == thread.causes_of(turn=9) == []
    assert [*thread.peek(cause=1)] == []


def test_whatever_is_written_meanwhile_is_caused(thread: eventq.Thread) -> None:
    """Single events, keyed ones, batches, streams, questions and answers; turns and steps."""
    fill(thread, 2)
    main = thread.contexts.create("main")
    thread.settings.set("runs.emit", "self")
    with thread.during(2):
        thread.push(*SELF)
        thread.push(*SELF, key="k")
        thread.push_many(
            [SELF, (*SELF, None, "k2"), {"source": "self", "type": "t", "content": "y"}]
        )
        thread.push_many(iter([SELF] * 3))
        assert len(thread.log.push_each([SELF, ("self", "", "refused"), SELF])) == 3
        asked = thread.ask("May I?")
        thread.answer(asked.question_id, "yes")
        turn = main.append("said")
        run = thread.runs.start("job", "Do it.")
        run.step(NewStep("Did it."))
    last = thread.last_id()
    thread.push(*SELF)
    turns = range(turn.turn_id, run.info().head_turn_id + 1)
    assert thread.caused_by(2) == Effects(tuple(range(3, last + 1)), tuple(turns))
    assert [causes(thread, one) for one in (1, 2, 3, last, last + 1)] == [[], [], [2], [2], []]
    assert thread.causes_of(turn=turn.turn_id) == [Cause(2)]


def test_an_imported_session_is_caused(thread: eventq.Thread, tmp_path: Path) -> None:
    """All its turns, as one an agent has written that was run for the event; others stay."""
    fill(thread, 1)
    thread.contexts.create("main").append("x")
    entries = [
        {"type": "user", "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None}
        | {"sessionId": "s", "message": {"role": "user", "content": "hello"}}
        for n in range(3)
    ]
    file = tmp_path / "s.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in entries))
    with thread.during(1):
        thread.sessions.import_file(str(file))
    assert thread.caused_by(1) == Effects((), (2, 3, 4))


def test_what_was_there_keeps_its_cause(thread: eventq.Thread) -> None:
    """A key that was used before stores nothing, so it says nothing of a cause either."""
    fill(thread, 2)
    with thread.during(1):
        first = thread.push(*SELF, key="k")
    with thread.during(2):
        assert thread.push(*SELF, key="k") == first
        thread.push_many([(*SELF, None, "k")])
    assert (causes(thread, first.id), thread.caused_by(2).events) == ([1], ())


def test_an_undone_change_leaves_nothing(thread: eventq.Thread) -> None:
    """A cause is a part of the change that its effect is stored by."""
    fill(thread, 1)
    with pytest.raises(ZeroDivisionError), thread.write(), thread.during(1):
        thread.push(*SELF)
        raise ZeroDivisionError
    thread.push(*SELF)
    assert thread.caused_by(1) == Effects((), ())


def test_causes_nest(thread: eventq.Thread) -> None:
    """The innermost counts, then the one around it again."""
    fill(thread, 2)
    with thread.during(1):
        with thread.during(2):
            thread.push(*SELF)
        thread.push(*SELF)
    assert (thread.caused_by(2).events, thread.caused_by(1).events) == ((3,), (4,))


def test_what_follows_from_an_effect(thread: eventq.Thread) -> None:
    """Each says what caused it itself: one reads on from there."""
    fill(thread, 1)
    for event in (1, 2, 3):
        with thread.during(event):
            thread.push(*SELF)
    assert [causes(thread, one) for one in (2, 3, 4)] == [[1], [2], [3]]
    assert [thread.caused_by(one).events for one in (1, 2, 3)] == [(2,), (3,), (4,)]


def test_a_batch_is_as_many_causes(thread: eventq.Thread) -> None:
    """All of its events are, up to a number; of a turn as of an event."""
    fill(thread, MOST_CAUSES + 5)
    with thread.during(*range(1, MOST_CAUSES + 6)):
        made = thread.push(*SELF)
        turn = thread.contexts.create("main").append("x")
    first = [*range(1, MOST_CAUSES + 1)]
    assert causes(thread, made.id) == first
    assert [one.event_id for one in thread.causes_of(turn=turn.turn_id)] == first
    assert thread.caused_by(MOST_CAUSES) == Effects((made.id,), (turn.turn_id,))
    assert thread.caused_by(MOST_CAUSES + 1) == Effects((), ())


def test_effects_are_bounded(thread: eventq.Thread) -> None:
    """It says whether there are more."""
    fill(thread, 1)
    main = thread.contexts.create("main")
    with thread.during(1):
        fill(thread, 3)
        turns = [main.append(str(n)).turn_id for n in range(2)]
    assert thread.caused_by(1, limit=3) == Effects((2, 3, 4), tuple(turns))
    assert thread.caused_by(1, limit=2) == Effects((2, 3), tuple(turns), is_all=False)
    assert thread.caused_by(1, limit=1) == Effects((2,), (turns[0],), is_all=False)


@pytest.mark.parametrize("page", [1, 3, 250])
def test_peek_shows_what_an_event_has_caused(
    thread: eventq.Thread, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an id on, up to a number, and those that match a filter, on however many pages."""
    monkeypatch.setattr(selection, "PAGE", page)
    fill(thread, 2)
    for n in range(8):
        with thread.during(1 + n % 2):
            thread.push("self", f"t{n % 3}", str(n))

    def found(*words: Any, **more: Any) -> list[int]:
        return [one.id for one in thread.peek(*words, cause=1, **more)]

    assert found() == [3, 5, 7, 9]
    assert (found(5), found(limit=2), found(3, limit=1)) == ([7, 9], [3, 5], [5])
    assert found(filter="type = 't0'") == [3, 9]
    assert found(filter="type <> 't0' AND id > 5", limit=1) == [7]
    chosen = selection.Selection("type <> 't2'", 3, 9)
    newest = selection.newest_caused(thread.database.memory, 1, chosen, 1)
    assert [one.id for one in newest] == [9]
    everything = selection.Selection("", 0, 99)
    for count in (1, 3, 9):
        newest = selection.newest_caused(thread.database.memory, 1, everything, count)
        assert [one.id for one in newest] == [3, 5, 7, 9][-count:]


def test_wrong_questions(thread: eventq.Thread) -> None:
    """An id must be one, and one of two things is asked for."""
    for call in (
        lambda: thread.caused_by(-1), lambda: thread.caused_by(1, limit=0),
        lambda: thread.causes_of(event=-1), lambda: thread.during(0), lambda: thread.peek(cause=-1),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            call()
    for wrong in ({}, {"event": 1, "turn": 1}):
        with pytest.raises(UsageError, match="of an event or of a turn"):
            thread.causes_of(**wrong)
    with thread.during(1) as own, pytest.raises(UsageError, match="used before"):
        assert own is None
        again = thread.during(1)
        with again, again:
            pass
    with pytest.raises(UsageError, match="no path and no URL"):
        thread.caused_by(1, thread="a\0b")


# --- the environment ------------------------------------------------------------------------------


def test_the_environment_of_a_handler_says_it(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens the thread in there; a function that works on another event is nearer."""
    fill(thread, 3)
    monkeypatch.setenv("EVENTQ_THREAD", thread.path)
    monkeypatch.setenv("EVENTQ_EVENT_ID", "1")
    with eventq.open(thread.path) as opened:
        opened.push(*SELF)
        with opened.during(2):
            opened.push(*SELF)
        monkeypatch.delenv("EVENTQ_EVENT_ID")
        opened.push(*SELF)
        monkeypatch.setenv("EVENTQ_EVENT_IDS", "1,3")
        opened.push(*SELF)
    assert [causes(thread, one) for one in (4, 5, 6, 7)] == [[1], [2], [], [1, 3]]


@pytest.mark.parametrize(
    "value",
    [
        "", "x", "0", "-1", "+1", "1.0", " 1", "1 ", "0x1", "٣", "²", "9" * 19, str(1 << 63),
        "9" * 9999, "3", "4", "77", str((1 << 63) - 1), ",", "-1,x,99",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["EVENTQ_EVENT_ID", "EVENTQ_EVENT_IDS"])
def test_what_is_no_event_is_no_cause(
    thread: eventq.Thread, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable with whatever in it, also an id that no event has, makes nothing fail."""
    fill(thread, 2)
    thread.contexts.create("main")
    monkeypatch.setenv("EVENTQ_THREAD", thread.path)
    monkeypatch.setenv(name, value)
    with eventq.open(thread.path) as opened:
        assert opened.push(*SELF).id == 3
        assert opened.push_many([SELF]).count == 1
        turn = opened.contexts.get("main").append("x")
    found = [thread.causes_of(event=3), thread.causes_of(event=4)]
    assert found in ([[], []], [[], [Cause(3)]])  # what is there by then may be one
    assert {one.event_id for one in thread.causes_of(turn=turn.turn_id)} <= {3, 4}


@pytest.mark.parametrize(
    "where",
    ["", "x" * 5000, "/" + "d/" * 1500, "postgresql://", "postgresql://h/%zz?thread=a&thread=b",
     "postgres://h/d?x", "\udcff", "postgresql://h:x/d?thread=\udcff"],
)  # fmt: skip
def test_what_is_no_thread_is_no_cause(
    thread: eventq.Thread, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of the thread that the event is in."""
    fill(thread, 1)
    monkeypatch.setenv("EVENTQ_THREAD", where)
    monkeypatch.setenv("EVENTQ_EVENT_ID", "1")
    with eventq.open(thread.path) as opened:
        made = opened.push(*SELF)
    assert thread.causes_of(event=made.id) == []


@pytest.mark.engines("sqlite")
def test_a_thread_has_many_names(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, or a relative path, is the same thread; that of another folder is not."""
    fill(thread, 1)
    (tmp_path / "link").symlink_to(thread.path)
    (tmp_path / "below").mkdir()
    monkeypatch.setenv("EVENTQ_EVENT_ID", "1")
    monkeypatch.chdir(tmp_path)
    for name in (
        "link",
        os.path.basename(thread.path),
        f"{thread.path}/",
        f"below/../{thread.path}",
    ):
        monkeypatch.setenv("EVENTQ_THREAD", name)
        with eventq.open(tmp_path / "link") as opened:
            made = opened.push(*SELF)
        expected = [] if name.startswith("below") else [Cause(1)]
        assert [one for one in thread.causes_of(event=made.id) if one.thread is None] == expected
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("EVENTQ_THREAD", "link")
    made = thread.push(*SELF)
    assert thread.causes_of(event=made.id) == [Cause(1, str(tmp_path / "below" / "link"))]


@pytest.mark.into(*ENGINES)
def test_an_event_may_cause_something_in_another_thread(
    thread: eventq.Thread, other: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it says which thread the event is in, which nobody asks whether it is there."""
    fill(thread, 1)
    fill(other, 9)
    monkeypatch.setenv("EVENTQ_THREAD", thread.path)
    monkeypatch.setenv("EVENTQ_EVENT_ID", "7")
    with eventq.open(other.path) as opened:
        made = opened.push(*SELF)
        turn = opened.contexts.create("main").append("x")
    expected = [Cause(7, place(thread.path))]
    assert other.causes_of(event=made.id) == other.causes_of(turn=turn.turn_id) == expected
    effects = Effects((made.id,), (turn.turn_id,))
    assert other.caused_by(7, thread=thread.path) == effects
    assert other.caused_by(7) == other.caused_by(1, thread=thread.path) == Effects((), ())
    assert other.caused_by(7, thread=other.path) == Effects((), ())
    assert [*other.peek(cause=7)] == []


# --- who is at work -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_is_at_work_on_its_event(thread: eventq.Thread, is_async: bool) -> None:
    """What its function writes, by whatever handle, is caused by the event; what is after is not."""
    fill(thread, 2)
    worker, done = eventq.Worker(thread.path), []

    def write(event: eventq.Event) -> None:
        if event.type == "note":
            thread.push("self", "answer of", str(event.id))
        else:
            done.append(event.id)
        if len(done) == 2:
            worker.stop()

    async def awaiting(event: eventq.Event) -> None:
        await asyncio.sleep(0)
        write(event)

    worker.consumer("w", concurrency=2)(awaiting if is_async else write)
    worker.run()
    thread.push(*SELF)
    answers = {int(one.content): one.id for one in thread.peek(2, filter="type = 'answer of'")}
    assert {one: thread.caused_by(one).events for one in (1, 2)} == {
        one: (answers[one],) for one in (1, 2)
    }
    assert causes(thread, thread.last_id()) == []


def test_an_async_thread_knows_the_cause_of_its_caller(thread: eventq.Thread) -> None:
    """Its calls run in another OS thread, and those of another task have another cause."""
    fill(thread, 3)

    async def one(opened: eventq.AsyncThread, number: int) -> None:
        with opened.during(number):
            await asyncio.sleep(0)
            await opened.push(*SELF)
            await opened.push_many(iter([SELF]))

    async def main() -> None:
        async with await eventq.AsyncThread.open(thread.path) as opened:
            await asyncio.gather(one(opened, 1), one(opened, 2), opened.push(*SELF))
            events = opened.consume("w", idle=0)
            async for event in events:
                if event.id == 3:
                    assert (await opened.push(*SELF)).id == 9
                    break
            await events.aclose()  # type: ignore[attr-defined]
            await opened.push(*SELF)
            assert await opened.causes_of(event=9) == [Cause(3)]
            assert len((await opened.caused_by(2)).events) == 2

    asyncio.run(main())
    assert sorted(map(len, (causes(thread, n) for n in range(4, 9)))) == [0, 1, 1, 1, 1]
    assert [len(thread.caused_by(one).events) for one in (1, 2, 3)] == [2, 2, 1]
    assert causes(thread, 10) == []


@pytest.mark.parametrize("ends_by", ["idle", "break", "error"])
def test_a_loop_is_at_work_on_its_event(thread: eventq.Thread, ends_by: str) -> None:
    """Until it comes back for the next one, or ends."""
    fill(thread, 2)
    thread.subscribe("w", filter="type = 'note'")
    with pytest.raises(ZeroDivisionError) if ends_by == "error" else nullcontext():
        for event in thread.consume("w", filter="type = 'note'", idle=0):
            thread.push("self", "other", "x")
            if event.id == 2 and ends_by == "break":
                break
            if event.id == 2 and ends_by == "error":
                raise ZeroDivisionError
    thread.push("self", "other", "x")
    assert [causes(thread, one) for one in (3, 4, 5)] == [[1], [2], []]


def test_loops_that_take_turns_leave_nothing_behind(thread: eventq.Thread) -> None:
    """Whichever begins and ends first: each is at work until it goes on."""
    fill(thread, 2)
    one, two = (thread.consume(name, filter="id < 3", idle=0) for name in ("one", "two"))
    assert [next(one).id, next(two).id, next(one).id] == [1, 1, 2]
    thread.push(*SELF)
    assert next(one, None) is None
    thread.push(*SELF)
    assert [next(two).id, next(two, None)] == [2, None]
    thread.push(*SELF)
    assert [causes(thread, event) for event in (3, 4, 5)] == [[2], [1], []]


def test_who_has_claimed_an_event_may_say_so(thread: eventq.Thread) -> None:
    """A claim is a cause for as long as its holder says."""
    fill(thread, 1)
    thread.subscribe("w")
    (claim,) = thread.claim("w")
    with claim.during():
        thread.push(*SELF)
        claim.done()
    thread.push(*SELF)
    assert [causes(thread, one) for one in (2, 3)] == [[1], []]


def test_a_dead_letter_is_caused_by_what_died(thread: eventq.Thread) -> None:
    """Whoever notices that, at work on whatever."""
    fill(thread, 2)
    thread.subscribe("w", max_attempts=1, emit_dead=True)
    (claim,) = thread.claim("w")
    with thread.during(2):
        claim.dead("no")
    assert (thread.last(1)[0].subtype, causes(thread, 3)) == ("dead-letter", [1])


# --- how long -------------------------------------------------------------------------------------


def test_a_cause_goes_with_its_effect(thread: eventq.Thread) -> None:
    """What is pruned has none any more; what it caused goes on naming it."""
    fill(thread, 1)
    for event in (1, 2, 3):
        with thread.during(event):
            thread.push(*SELF)
    thread.prune(before_id=3)
    assert [causes(thread, one) for one in (2, 3, 4)] == [[], [2], [3]]
    assert (thread.caused_by(1).events, thread.caused_by(2).events) == ((), (3,))
    assert thread.check() == []


def test_what_is_erased_says_nothing_of_its_cause(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may name a place; what it has caused itself still says so."""
    fill(thread, 1)
    main = thread.contexts.create("main")
    with thread.during(1):
        made, turn = thread.push(*SELF), main.append("secret")
    with thread.during(made.id):
        thread.push(*SELF)
    thread.erasures.event(made.id)
    thread.erasures.turn(turn.turn_id)
    assert thread.caused_by(1) == Effects((), ())
    assert causes(thread, 3) == [made.id]


def test_what_is_collected_has_no_cause(thread: eventq.Thread) -> None:
    """A turn that nothing reaches goes with its cause."""
    fill(thread, 1)
    main = thread.contexts.create("main")
    kept = main.append("kept")
    with thread.during(1):
        turn = main.append("dead")
    main.move(kept.turn_id)
    thread.gc(apply=True, grace=0)
    assert thread.caused_by(1) == Effects((), ())
    assert (thread.causes_of(turn=turn.turn_id), thread.check()) == ([], [])


@pytest.mark.into(*ENGINES, alike=True)
def test_a_copy_has_the_causes(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Of events and turns, once, however often it is made."""
    fill(thread, 2)
    main = thread.contexts.create("main")
    with thread.during(1, 2):
        thread.push(*SELF)
        turn = main.append("x")
    for more in (True, False):
        thread.copy_to(other, log=True)
        (copied,) = other.contexts.get("main").last().turns
        assert causes(other, 3) == [1, 2]
        assert other.causes_of(turn=copied.turn_id) == [Cause(1), Cause(2)]
        assert other.caused_by(1) == Effects((3,), (copied.turn_id,))
        if more:
            with thread.during(2):
                thread.push(*SELF)
    assert (causes(other, 4), turn.turn_id) == ([2], copied.turn_id)


@pytest.mark.into(*ENGINES)
@pytest.mark.parametrize("chosen", [None, ["main"]])
def test_a_copy_of_turns_names_the_thread_of_their_causes(
    thread: eventq.Thread, other: eventq.Thread, chosen: list[str] | None
) -> None:
    """The events stay where they were; ids here are those of the other thread."""
    fill(thread, 1)
    with other.during(1):
        other.contexts.create("own").append("first")
    main, side = thread.contexts.create("main"), thread.contexts.create("side")
    with thread.during(1):
        main.append("x")
        side.append("y")
    thread.copy_to(other, chosen)
    (copied,) = other.contexts.get("main").last().turns
    assert other.causes_of(turn=copied.turn_id) == [Cause(1, place(thread.path))]
    found = other.caused_by(1, thread=thread.path).turns
    assert len(found) == (2 if chosen is None else 1)
