"""Runs of a workflow: steps, statuses, lists, forks, compaction, messages, keys and events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import (
    ConflictError,
    DiskError,
    EventqError,
    InputError,
    LogicError,
    ReadOnlyError,
    UnknownRunError,
    UnknownTurnError,
    UsageError,
)
from eventq.records.run import NewRun, NewStep, RunInfo, RunText, Step
from eventq.records.turn import Move
from eventq.store import runs as stored_runs
from tests.contract.memory import AT, DAY, ref_of
from tests.contract.runs import STOPS, grow, ids, read, trail
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Thread
    from eventq.memory.runs import Run
    from tests.conftest import Clock
    from tests.contract.memory import Stored

    Call = Callable[[], object]

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


@pytest.fixture
def run(thread: Thread) -> Run:
    """Return a run without steps, with id 1, whose start is turn 1."""
    system = {"coder": "You code.", "tester": "You test."}
    return thread.runs.start("solve", "the task", system=system)


@pytest.mark.parametrize(
    "contents",
    [
        [("a", 4 << 20), ("a", 4 << 20), ("b", 1)],
        [("a", 50_000)] * 200 + [("b", 1)],
        [("a", 3 << 20), ("b", 2 << 20), ("a", 3 << 20), ("c", 1), ("b", 2 << 20), ("a", 1)],
    ],
    ids=["two large", "many alike", "again and again"],
)
@pytest.mark.parametrize("is_erased", [False, True])
def test_steps_may_say_the_same(
    thread: Thread, contents: list[tuple[str, int]], *, is_erased: bool
) -> None:
    """Contents are read in parts: however large, alike or erased they are, each step has its own."""
    run = thread.runs.start("solve", "the task")
    texts = [letter * size for letter, size in contents]
    with thread.write():
        steps = [run.step("coder", content=text) for text in texts]
    if is_erased:
        thread.erasures.turn(steps[0].turn_id, everywhere=True)
        texts = ["[erased]" if text == texts[0] else text for text in texts]
    assert [step.content for step in run.replay()] == texts
    assert run.read().text.count("coder") == len(texts)


# --- the end, and other statuses ------------------------------------------------------------------


def test_the_end(thread: Thread, run: Run, clock: Clock) -> None:
    """An end is a node of role `__end__` with a return code, 130 when cancelled, and a summary."""
    end = run.end(3, "so so")
    assert (end.role, end.content, end.number) == ("__end__", "so so", 1)
    assert end.meta == {"returnCode": 3, "summary": "so so"}
    info = run.info()
    assert (info.status, info.completed_at_ms, info.head) == ("completed", AT, end.ref)
    second = thread.runs.start("w", "p")
    ended = second.cancel("no more")
    assert (ended.role, ended.meta) == ("__end__", {"returnCode": 130, "summary": "no more"})
    info = second.info()
    assert (info.status, info.completed_at_ms, info.head) == ("cancelled", None, ended.ref)
    assert thread.runs.start("w", "p").end().meta == {"returnCode": 0, "summary": ""}


@pytest.mark.parametrize("code", ["0", 1.5, None, True])
def test_return_codes_are_numbers(run: Run, code: Any) -> None:
    """A return code is a whole number, or is refused."""
    with pytest.raises(InputError, match="the return code must be a whole number"):
        run.end(code)
    assert run.info().status == "active"


REFUSED: dict[str, Callable[[Run], object]] = {
    "step": lambda run: run.step("a"),
    "step with a key": lambda run: run.step("a", key="new"),
    "attempt": lambda run: run.attempt("a"),
    "poke": lambda run: run.poke(content="x"),
    "compact": lambda run: run.compact("x"),
    "end": lambda run: run.end(),
    "cancel": lambda run: run.cancel(),
    "suspend": lambda run: run.suspend(),
}


@pytest.mark.parametrize("status", STOPS)
def test_a_run_that_does_not_go_on(run: Run, stored: Stored, status: str) -> None:
    """A run that ended or was suspended takes nothing until it is resumed; an end stays."""
    grow(run, "a", "b")
    STOPS[status](run)
    before, head = stored(), run.info().head_turn_id
    assert run.info().status == status
    for name, call in REFUSED.items():
        if (name, status) == ("cancel", "suspended"):
            continue  # what was set aside may be given up
        with pytest.raises(ConflictError) as caught:
            call(run)
        assert (caught.value.what, caught.value.actual) == (f"run 1 is {status}", head)
    assert stored() == before
    info = run.resume()
    assert (info.status, info.completed_at_ms, info.head_turn_id) == ("active", None, head)
    assert run.info() == info
    steps = [(1, "a"), (2, "b"), *([] if status == "suspended" else [(3, "__end__")])]
    steps.append((len(steps) + 1, "c"))
    run.step("c")
    assert trail(run) == steps
    run.end()
    assert trail(run) == [*steps, (len(steps) + 1, "__end__")]


def test_resuming_what_goes_on(run: Run, stored: Stored) -> None:
    """A run that is active is not resumed."""
    before = stored()
    with pytest.raises(ConflictError) as caught:
        run.resume()
    assert (caught.value.what, caught.value.actual) == ("run 1 is active", 1)
    assert stored() == before


def test_reading_the_chain(run: Run) -> None:
    """The chain is read from the start to the head; ends are not shown to a model."""
    grow(run, "a", "b")
    run.end()
    run.resume()
    grow(run, "c")
    run.cancel()
    roles = ["a", "b", "__end__", "c", "__end__"]
    assert trail(run) == list(enumerate(roles, 1))
    assert [step.role for step in run.replay(3)] == roles[2:]
    assert list(run.replay(6)) == []
    compact, steps = run.chain()
    assert (compact, [(step.number, step.role) for step in steps]) == (
        "",
        [(1, "a"), (2, "b"), (4, "c")],
    )
    assert "__end__" not in json.dumps(run.messages("tester"))


@pytest.mark.engines("sqlite", soaked=["postgres"])  # it is long there
def test_a_long_chain_is_read_in_order(thread: Thread, run: Run) -> None:
    """A chain that is longer than any page is read whole, from any step on."""
    with thread.write():
        grow(run, *("ab" * 300))
    found = [(step.number, step.content) for step in run.replay()]
    assert found == [(number, f"{number - 1}") for number in range(1, 601)]
    assert [step.number for step in run.replay(257)] == list(range(257, 601))


def test_a_run_takes_steps_only(run: Run, stored: Stored) -> None:
    """A turn that is no step is not appended to the context of a run."""
    before = stored()
    with pytest.raises(ConflictError, match="context 1 is that of a run, whose turns are steps"):
        run.context.append(b"a note")
    for call in (lambda: run.context.move(0), run.context.open_turn):
        with pytest.raises(ConflictError, match="is that of a run"):
            call()
    assert stored()["turns"] == before["turns"]
    assert run.info().depth == 0


# --- lists ----------------------------------------------------------------------------------------


def test_the_active_list(thread: Thread, clock: Clock) -> None:
    """The active list holds the runs under way, of a group or of all."""
    first = thread.runs.start(NewRun("one", "p", group="g"))
    clock.move(1)
    second = thread.runs.start(NewRun("two", "q", group="h"), label="second")
    third = thread.runs.start(NewRun("three", "r", group="g"))
    clock.move(1)
    step = first.step("a")
    second.suspend()
    third.end()
    start, other, at = first.info().start, second.info().start, AT + 2000
    assert list(thread.runs.active()) == [
        RunInfo(1, "one", "g", "active", 4, 1, step.ref, start, None, at, None, None),
        RunInfo(2, "two", "h", "suspended", 2, 0, other, other, None, at, None, "second"),
    ]
    assert [ids(thread.runs.active(group)) for group in ("g", "h", "")] == [[1], [2], []]
    assert (ids(thread.runs.list()), ids(thread.runs.list("g"))) == ([1, 2, 3], [1, 3])


@pytest.mark.engines("sqlite", soaked=["postgres"])  # it is long there
def test_long_lists(thread: Thread, clock: Clock) -> None:
    """Lists of any length are whole, over several pages, by id."""
    with thread.write():
        for number in range(2005):
            run = thread.runs.start(NewRun("w", "p", group=f"{number % 2}"))
            if number % 5 == 0:
                run.end()
    assert ids(thread.runs.list()) == list(range(1, 2006))
    assert ids(thread.runs.active()) == [n for n in range(1, 2006) if n % 5 != 1]
    assert ids(thread.runs.history("2026-03-18")) == list(range(1, 2006, 5))
    assert ids(thread.runs.history("2026-03-18", "0")) == list(range(1, 2006, 10))


def test_history_by_day(thread: Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A completed run is in the history of the day (UTC), and no other; a cancelled one in none."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    news = [NewRun("w", f"{number}", group="g" if number else "") for number in range(4)]
    runs = [thread.runs.start(new) for new in news]
    ends = []
    for clock.at, one in ((1773878399.999, runs[0]), (1773878400.0, runs[1])):
        ends.append(one.end())
    runs[2].cancel()
    statuses = [info.status for info in thread.runs]
    assert statuses == ["completed", "completed", "cancelled", "active"]
    days = ("2026-03-18", "2026-03-19", "2026-03-20")
    assert [ids(thread.runs.history(day)) for day in days] == [[1], [2], []]
    assert [ids(thread.runs.history(day, "g")) for day in days] == [[], [2], []]
    for number, (day, at) in enumerate(zip(days, (1773878399999, 1773878400000), strict=False)):
        (found,) = thread.runs.history(day)
        assert (found.run_id, found.head, found.completed_at_ms) == (
            number + 1,
            ends[number].ref,
            at,
        )
        assert found == runs[number].info()
    runs[0].resume()
    assert (ids(thread.runs.history(days[0])), ids(thread.runs.active())) == ([], [1, 4])
    clock.move(3 * DAY)
    runs[0].end()
    assert ids(thread.runs.history("2026-03-22")) == [1]


@pytest.mark.parametrize(
    "day", ["", "2026-3-18", "18.03.2026", "2026-03-18T00", "2026/03/18", "x", 20260318, None]
)
def test_days_are_checked(thread: Thread, day: Any) -> None:
    """What is no day is refused."""
    with pytest.raises(UsageError, match="is no day"):
        list(thread.runs.history(day))


def test_completing_is_one_change(thread: Thread, run: Run, stored: Stored) -> None:
    """Completing is one move and one event; neither a reading nor a second end changes anything."""
    thread.settings.set("runs.emit", "on")
    grow(run, "a")
    version, events = run.context.info().version, thread.last_id()
    run.end()
    assert (run.context.info().version, thread.last_id()) == (version + 1, events + 1)
    before = stored()
    list(thread.runs.history("2026-03-18"))
    with pytest.raises(ConflictError):
        run.end()
    assert stored() == before
    assert ids(thread.runs.active()) == []


def test_moves_are_logged(thread: Thread, clock: Clock) -> None:
    """Each change of a head is logged, and the head of a deleted run is found again."""
    run = thread.runs.start("w", "p")
    grow(run, "a", "b")
    run.suspend()
    run.resume()
    run.poke(content="B")
    end = run.end()
    moves = [
        ("create", 0, 0), ("append", 0, 1), ("append", 1, 2), ("append", 2, 3), ("suspend", 3, 3),
        ("resume", 3, 3), ("move", 3, 2), ("append", 2, 4), ("append", 4, 5),
    ]  # fmt: skip
    expected = [Move(n, op, old, new, AT) for n, (op, old, new) in enumerate(moves)]
    assert list(run.context.history()) == expected
    run.context.delete()
    assert list(thread.contexts.history(1)) == [*expected, Move(9, "delete", 5, 0, AT)]
    assert thread.contexts.turn(5).ref == end.ref


DELETES: dict[str, Callable[[Thread, Run], object]] = {
    "its context": lambda _, run: run.context.delete(),
    "the run": lambda _, run: run.delete(),
    "by id": lambda thread, run: thread.runs.delete(run.id),
}


@pytest.mark.parametrize("how", DELETES)
def test_deleting_a_run(thread: Thread, run: Run, stored: Stored, how: str) -> None:
    """Deleting a run deletes its rows only, no blob and no turn; a handle finds nothing."""
    grow(run, "a")
    run.attempt("a")
    run.fork()
    before = stored()
    DELETES[how](thread, run)
    more = {name: len(rows) - len(before[name]) for name, rows in stored().items()}
    changed = {name: count for name, count in more.items() if count}
    assert changed == {"contexts": -1, "runs": -1, "context_log": 2}
    assert ids(thread.runs.list()) == [2]
    assert trail(thread.runs.get(2)) == []
    calls: list[Call] = [
        run.info, lambda: run.step("a"), run.end, run.resume, lambda: run.messages("a"),
        lambda: thread.runs.get(1), run.delete, lambda: thread.runs.delete(1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(LogicError, match=r"there is no (run|context) '1'"):
            call()


def test_a_deleted_run_is_returned(thread: Thread, run: Run, clock: Clock) -> None:
    """Deleting a run returns what it was; its steps go with a collection, those of forks stay."""
    grow(run, "a", "b")
    fork, was = run.fork(1), run.info()
    assert thread.runs.delete(run) == was
    assert thread.contexts.turn(was.head_turn_id).ref == was.head
    clock.move(2 * DAY)
    assert thread.gc(apply=True).turns == 1
    assert trail(fork) == [(1, "a")]


def test_what_is_no_run_is_not_deleted_as_one(thread: Thread, stored: Stored) -> None:
    """A context without a workflow is not deleted as a run, and the error says how to."""
    thread.contexts.create("plain")
    before = stored()
    for which, fix in (("plain", "context rm"), (1, "context rm"), ("no", "run ls"), (2, "run ls")):
        with pytest.raises(UnknownRunError, match=f"there is no run '{which}'") as caught:
            thread.runs.delete(which)
        assert f"'eventq {fix}'" in caught.value.fix
    assert stored() == before
    thread.runs.start("w", "p", label="run")
    before = stored()
    with eventq.open(thread.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.runs.delete("run")
    assert stored() == before


def test_finding_a_run(thread: Thread, run: Run) -> None:
    """A run is found by id or label; a context that is no run is none; a label is taken once."""
    named = thread.runs.start("w", "p", label="named")
    thread.contexts.create("plain")
    found = [thread.runs.get(which).id for which in ("1", "named", 2)]
    assert (found, repr(run)) == ([1, named.id, named.id], "<eventq.Run 1>")
    for which in ("plain", 3):
        with pytest.raises(UnknownRunError) as caught:
            thread.runs.get(which)
        assert caught.value.what == f"there is no run '{which}'"
    with pytest.raises(ConflictError, match="the name 'named' is taken by context 2"):
        thread.runs.start("w", "another prompt", label="named")
    assert not thread.blobs.has(ref_of(b"another prompt"))


# --- several writers, attempts, pokes -------------------------------------------------------------


def test_two_writers(thread: Thread, run: Run, stored: Stored) -> None:
    """Of two writers that expect the same head one wins; the other learns which head there is."""
    grow(run, "a")
    with eventq.open(thread.path) as other:
        theirs = other.runs.get(1)
        first = theirs.step("b", content="theirs", expected_head=2)
        before = stored()
        new = NewStep("b", content="mine", refs=[first.ref], compact="new", attempts=[NewStep("x")])
        with pytest.raises(ConflictError) as caught:
            run.step(new, expected_head=2)
        assert caught.value.what == "the head of context 1 is turn 3, not 2"
        assert (caught.value.actual, stored()) == (first.turn_id, before)
        second = run.step("b", content="mine", expected_head=caught.value.actual)
        theirs.end()
        with pytest.raises(ConflictError, match="run 1 is completed") as caught:
            run.step("c", expected_head=second.turn_id)
        assert caught.value.actual == 5
    assert [step.content for step in run.replay()] == ["0", "theirs", "mine", ""]


def test_attempts(thread: Thread, run: Run) -> None:
    """A failed attempt is stored and named by the next step, in order, and moves nothing."""
    grow(run, "a")
    before = run.info()
    thing = thread.blobs.put(b"a thing").ref
    failed = NewStep("b", {"try": 1}, "failed", refs=[thing], edge_prompt="do", agent="x")
    first, second = run.attempt(failed), run.attempt("c", content="failed too")
    assert (run.info(), trail(run)) == (before, [(1, "a")])
    node = read(thread, first)["payload"]
    names = ("role", "meta", "edgePrompt", "agent", "start", "ancestors")
    expected = ["b", {"try": 1}, "do", "x", before.start, [before.head]]
    assert [node[name] for name in names] == expected
    content = read(thread, node["content"])
    assert content == {"type": "content", "payload": "failed", "refs": [thing]}
    step = run.step(NewStep("b", attempts=[NewStep("b", content="third")]))
    (third,) = set(step.attempts) - {first, second}
    assert step.attempts == next(run.replay(2)).attempts == (first, second, third)
    assert run.step("b").attempts == ()
    last = run.attempt("z")
    assert run.end().attempts == (last,)


def test_attempts_and_forks(run: Run) -> None:
    """Attempts stay with the turn that they came after: who goes on from there names them."""
    grow(run, "a")
    failed = run.attempt("b")
    fork = run.fork(1)
    assert run.step("b").attempts == fork.step("c").attempts == (failed,)
    assert run.fork(2).step("c").attempts == ()


def test_a_poke(thread: Thread, run: Run) -> None:
    """The last step is replaced by one of its role and edge prompt, and is an attempt of it."""
    old = NewStep("b", {"v": 1}, "old", edge_prompt="do\n it ", agent="x")
    steps = [run.step("a", content="1"), run.step(old)]
    messages = run.messages("b")
    new = run.poke({"v": 2}, "new")
    assert (new.number, new.role, new.meta, new.content) == (2, "b", {"v": 2}, "new")
    assert (new.edge_prompt, new.agent) == ("do\n it ", "x")
    assert (new.attempts, new.ancestors) == ((steps[1].ref,), (steps[0].ref,))
    assert list(run.replay()) == [steps[0], new]
    assert run.messages("b")[:2] == messages[:2]
    newer = run.poke(content="newer", edge_prompt="other", agent="y")
    assert (newer.edge_prompt, newer.agent) == ("other", "y")
    assert newer.attempts == (steps[1].ref, new.ref)
    assert run.poke(edge_prompt="", agent="").edge_prompt == ""
    assert read(thread, read(thread, steps[1].ref)["payload"]["content"])["payload"] == "old"


def test_a_poke_keeps_what_hangs_on_the_step(thread: Thread, run: Run) -> None:
    """The step that replaces another keeps its compaction and its child."""
    child = thread.runs.start("inner", "q").end()
    grow(run, "a")
    old = run.step(NewStep("b", compact="sum", child=child.ref))
    new = run.poke(content="again")
    assert (new.compact, new.child, run.chain()[0]) == (old.compact, child.ref, "sum")


def test_what_cannot_be_replaced(run: Run, stored: Stored) -> None:
    """The start, a compaction and an end are not replaced; a refused poke changes nothing."""
    prepared: list[Call] = [
        lambda: None,
        lambda: run.compact("sum"),
        lambda: (run.end(), run.resume()),
    ]
    for head, prepare in enumerate(prepared, 1):
        prepare()
        before = stored()
        with pytest.raises(ConflictError, match="run 1 has no last step to replace") as caught:
            run.poke(content="x")
        assert (caught.value.actual, stored()) == (head, before)
    run.step("a")
    before = stored()
    with pytest.raises(InputError):
        run.poke({"bad": {1, 2}})
    assert stored() == before


def test_patches_do_not_show(run: Run) -> None:
    """A patch on a step does not show in what a run reads, nor in what replaces the step."""
    step = run.step("a", content="1")
    run.context.tombstone(step.turn_id)
    assert list(run.replay()) == [step]
    assert run.poke(content="2").attempts == (step.ref,)


# --- forks ----------------------------------------------------------------------------------------


def test_a_fork_is_a_row(run: Run, stored: Stored) -> None:
    """A fork at any step is one row of contexts, of runs and of changes: no blob, no turn."""
    steps = grow(run, *"abcab")
    expected = {name: len(rows) for name, rows in stored().items() if name != "sqlite_sequence"}
    for at in range(6):
        fork = run.fork(at)
        expected["contexts"] += 1
        expected["runs"] += 1
        expected["run_changes"] += 1
        found = stored()
        assert {name: len(found[name]) for name in expected} == expected
        info = fork.info()
        assert (info.depth, info.head_turn_id, info.start) == (at, at + 1, run.info().start)
        assert (info.status, info.fork_of, info.name) == ("active", 1, "solve")
        assert (list(fork.replay()), fork.prompt()) == (steps[:at], run.prompt())


def test_a_fork_goes_its_own_way(thread: Thread, run: Run) -> None:
    """A fork's first step follows the fork point; its origin is as it was, and may go."""
    steps = grow(run, *"abc")
    before = run.info()
    fork = run.fork(2, label="fork")
    mine = fork.step("x", content="mine")
    assert (mine.number, mine.ancestors) == (3, (steps[1].ref, steps[0].ref))
    assert (run.info(), list(run.replay())) == (before, steps)
    assert list(fork.replay()) == [*steps[:2], mine]
    assert (fork.info().fork_of, fork.context.info().base_turn_id) == (1, 3)
    run.context.delete()
    assert (fork.info().fork_of, fork.context.info().base_turn_id) == (None, 3)
    thread.gc(apply=True, grace=0)
    assert list(thread.runs.get("fork").replay()) == [*steps[:2], mine]


def test_where_a_fork_begins(run: Run) -> None:
    """By role at its first step, else at what the last step was taken after, or at the start."""
    run.step("a")
    assert (run.fork().info().depth, run.fork(role="a").info().depth) == (0, 1)
    run.compact("sum")
    assert run.fork().info().depth == 0  # what a compaction says is no step
    for role in "ba":
        run.step(role)
    run.end()
    assert run.fork().info().depth == 3
    run.resume()
    run.step("c")
    run.cancel()
    assert run.fork().info().depth == 4
    assert [run.fork(role=role).info().depth for role in "abc"] == [1, 3, 6]


def test_a_retry_after_a_compaction_sees_what_the_step_saw(run: Run) -> None:
    """The fork begins at the compaction, not before it, and not at an end in between."""
    grow(run, "a", "b")
    run.compact("sum")
    seen = run.messages("a", "go")
    run.step("a", content="first", edge_prompt="go")
    assert run.fork().messages("a", "go") == seen
    run.end()
    run.resume()
    run.step("b", content="late")
    assert [step.content for step in run.fork().replay()][-1] == "first"


def test_a_fork_at_a_hash(thread: Thread, run: Run) -> None:
    """A step is named by its hash or its turn as well as by its number; so is the start."""
    steps = grow(run, *"abcab")
    for at, (ref, turn_id) in enumerate(
        [(run.info().start, 1)] + [(s.ref, s.turn_id) for s in steps]
    ):
        digits = ref.removeprefix("blob:blake3:")
        for name in (at, ref, digits, bytes.fromhex(digits), f"turn:{turn_id}"):
            info = run.fork(name).info()
            assert (info.depth, info.head, info.head_turn_id) == (at, ref, turn_id)
    fork = run.fork(2)
    mine = fork.step("x")
    assert fork.fork(steps[0].ref).info().depth == 1
    assert fork.fork(mine.ref).info().head_turn_id == mine.turn_id


def test_a_fork_at_a_hash_that_two_runs_have(thread: Thread, clock: Clock) -> None:
    """Runs that took the same steps at the same time share nodes, but each has turns of its own."""
    runs = [thread.runs.start("w", "p") for _ in range(3)]
    for run in runs[::-1]:
        grow(run, *"ab")
    (start,) = {run.info().start for run in runs}
    (head,) = {run.info().head for run in runs}
    for run in runs:
        assert run.fork(start).info().head_turn_id == run.id
        assert run.fork(head).info().head_turn_id == run.info().head_turn_id
    runs[0].poke(content="other")
    with pytest.raises(LogicError, match="is an attempt at step 2 of run 1, and no step"):
        runs[0].fork(head)
    assert runs[1].fork(head).info().depth == 2


def test_a_fork_far_from_steps(thread: Thread, run: Run) -> None:
    """The second-to-last step is found however far above the head it is."""
    grow(run, "a", "b")
    with thread.write():
        for _ in range(120):
            run.compact("sum")
    assert run.fork().info().depth == 1


def test_forks_that_are_refused(thread: Thread, run: Run, stored: Stored) -> None:
    """A role that took no step, a step that is none and a taken label are refused."""

    def refused(**words: Any) -> str:
        with pytest.raises((LogicError, UsageError)) as caught:
            run.fork(**words)
        return caught.value.what

    none = "thread has no completed role steps to fork from"
    assert (refused(), refused(role="a")) == (none, none)
    run.compact("sum")
    assert (refused(), refused(role="__compact__")) == (none, none)
    grow(run, "b", "a", "b")
    run.end()
    thread.contexts.create("taken")
    before = stored()
    for role in ("x", "__end__", "__compact__", "B"):
        assert refused(role=role) == f"role not found in thread: {role} (available: b, a)"
    assert refused(at=9) == "run 1 has no step 9"
    assert refused(at=5) == "step 5 of run 1 is its end"
    assert refused(at=1, role="a") == "a fork takes a step or a role, and not both"
    assert refused(at=1, label="taken") == "the name 'taken' is taken by context 2"
    assert "at must be a whole number" in refused(at=-1)
    assert stored() == before


def test_what_is_no_step_to_fork_at(thread: Thread, run: Run, stored: Stored) -> None:
    """A step of another run, an attempt, a replaced step, an end: the error says what it is."""
    old = grow(run, "a", "b")[1]
    new = run.poke(content="better")
    failed = run.attempt("c")
    end = run.end()
    other = thread.runs.start("w", "p")
    grow(other, "x")
    theirs = other.attempt("x")
    fork = run.fork(1)
    mine = fork.step("mine")
    gone = thread.runs.start("v", "p")
    lost = grow(gone, "y")[0]
    gone.delete()
    note = thread.contexts.create("plain").append("hello")
    text = thread.blobs.put(b"no node").ref
    unknown = f"blob:blake3:{'0' * 64}"
    before = stored()

    def refused(at: Any, kind: type[EventqError] = LogicError) -> str:
        with pytest.raises(kind) as caught:
            run.fork(at, label="new")
        return caught.value.what

    for step, what in ((old, "is an attempt at step 2 of run 1, and no step"),
                       (end, "step 3 of run 1 is its end"),
                       (mine, "is step 2 of run 3, not of run 1"),
                       (next(other.replay()), "is step 1 of run 2, not of run 1"),
                       (lost, "is no step of run 1")):  # fmt: skip
        whole = what.startswith("step")
        assert refused(step.ref) == (what if whole else f"{step.ref} {what}")
        assert refused(f"turn:{step.turn_id}") == (what if whole else f"turn {step.turn_id} {what}")
    assert refused(failed) == f"{failed} is an attempt at step 3 of run 1, and no step"
    start = other.info().start
    assert refused(start) == f"{start} is step 0 of run 2, not of run 1"
    for ref in (text, note.ref, unknown, theirs):
        assert refused(ref) == f"{ref} is no step of run 1"
    assert refused(f"turn:{note.turn_id}") == f"turn {note.turn_id} is no step of run 1"
    for number in (0, 99):
        assert refused(f"turn:{number}", UnknownTurnError) == f"there is no turn {number}"
    for at in ("", "x", "1", "turn:", "turn:x", "turn:-1", "turn:1 ", "turn:" + "9" * 19, "0" * 63,
               unknown.upper(), f"blob:sha256:{'0' * 64}", b"", b"1" * 31, 1.5, new):  # fmt: skip
        assert refused(at, InputError).endswith(" names no step")
    assert "at must be a whole number" in refused(True, UsageError)
    assert stored() == before


@pytest.mark.parametrize("status", STOPS)
def test_a_fork_of_what_ended(thread: Thread, run: Run, status: str) -> None:
    """A fork of a run that ended or was suspended is active, and that run stays as it is."""
    grow(run, "a", "b")
    STOPS[status](run)
    fork = run.fork()
    info = fork.info()
    assert (info.status, info.completed_at_ms, run.info().status) == ("active", None, status)
    assert fork.step("b").number == 2
    assert 2 in ids(thread.runs.active())


# --- compaction -----------------------------------------------------------------------------------


def test_compaction(thread: Thread, run: Run) -> None:
    """Models see the summary and what comes from that step on; nothing goes, numbers stay."""
    before = grow(run, "a", "b")
    assert run.chain() == ("", before)
    marker = run.compact("What happened: ☃")
    after = grow(run, "b", "a")
    assert run.chain() == ("What happened: ☃", [marker, *after])
    assert (marker.role, marker.compact) == ("__compact__", ref_of("What happened: ☃".encode()))
    assert list(run.replay()) == [*before, marker, *after]
    assert "### Step 4: b\n" in run.messages("a")[1]["content"]
    second = run.step(NewStep("a", content="with it", compact="Second"))
    last = run.step("b")
    assert run.chain() == ("Second", [second, last])
    assert run.fork(5).chain() == ("What happened: ☃", [marker, *after])
    assert run.fork(3).chain() == ("What happened: ☃", [marker])
    assert run.fork(2).chain() == ("", before)
    assert ref_of(b"Second") in thread.blobs.refs(second.ref)
    run.end()
    assert run.chain() == ("Second", [second, last])
    messages = run.messages("b")
    begins = "Second\n\n## What Happened Since Your Last Turn\n\n### Step 6: a\n"
    assert begins in messages[1]["content"]
    assert "What happened: ☃" not in json.dumps(messages, ensure_ascii=False)
    with eventq.open(thread.path) as other:
        again = other.runs.get(1)
        assert (again.chain(), again.messages("b")) == (run.chain(), messages)


def test_the_reserved_roles(thread: Thread, run: Run) -> None:
    """A compaction and an end are steps, with their summary as content; no message comes from them.

    Nobody else may have their roles.
    """
    grow(run, "coder")
    compact, end = run.compact("sum"), run.end(1, "why")
    assert (compact.role, compact.number, compact.meta, compact.content) == (
        "__compact__",
        2,
        {},
        "sum",
    )
    assert thread.blobs.get(compact.compact or "") == b"sum"
    assert (end.role, end.number, end.content, end.compact) == ("__end__", 3, "why", None)
    assert end.meta == {"returnCode": 1, "summary": "why"}
    assert list(run.replay(2)) == [compact, end]
    assert [message["content"] for message in run.messages("coder", "go")[1:]] == ["sum\n\ngo"]
    run.resume()
    for role in ("__compact__", "__end__"):
        calls: list[Call] = [
            lambda role=role: run.step(role), lambda role=role: run.attempt(role),  # type: ignore[misc]
            lambda role=role: run.messages(role),  # type: ignore[misc]
            lambda role=role: thread.runs.start("w", "p", system={role: "text"}),  # type: ignore[misc]
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(InputError, match=f"'{role}' is no role"):
                call()
    assert run.fork().info().depth == 0


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_compaction_without_a_summary(run: Run, text: str, stored: Stored) -> None:
    """It would leave models nothing of what was done, so it is refused."""
    grow(run, "a")
    before = stored()
    calls: list[Call] = [
        lambda: run.compact(text),
        lambda: run.step(NewStep("a", compact=text)),
    ]
    for call in calls:
        with pytest.raises(InputError, match="needs a summary") as caught:
            call()
        assert "what has happened" in caught.value.fix
    assert stored() == before


@pytest.mark.parametrize("answer", ["text", "meta"])
def test_a_step_that_says_nothing(thread: Thread, answer: Any) -> None:
    """A model reads in words that nothing was put out, not that it said null."""
    run = thread.runs.start(NewRun("w", "p", answer=answer))
    run.step("a", content=" ")
    run.step("a", {})
    run.step("b")
    texts = [message["content"] for message in run.messages("a")[1:]]
    assert [texts[1], texts[3]] == ["(no output)", "{}"]
    assert "Output: (no output)\n" in texts[4]


def test_what_a_step_was_asked(run: Run) -> None:
    """A step and an attempt take the question beside the output."""
    run.attempt("a", content="no", edge_prompt="why?")
    assert run.step("a", content="so", edge_prompt="why?").edge_prompt == "why?"
    with pytest.raises(UsageError, match="holds these itself"):
        run.step(NewStep("a"), edge_prompt="why?")


# --- the task, and the roles ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["commit", "Write code, then commit.", "commitment", "", "COMMIT", "commit\n\ncommit"]
)
@pytest.mark.parametrize("told", [False, True])
def test_the_task_is_stated_unless_the_start_says_that_it_is(
    thread: Thread, text: str, told: bool
) -> None:
    """Whatever a role's text holds, the task is added to it, or not when the start says so."""
    system = {"a": text, "b": "B"}
    run = thread.runs.start(NewRun("w", "commit", system=system, task_in_system=told))
    whole = "\n\n".join(filter(None, [text, "commit"]))
    left_out = told and text != ""  # no text states no task
    run.step("c")
    for one in (run, run.fork(0), run.fork(1)):
        assert one.messages("a")[0] == {"role": "system", "content": text if left_out else whole}
    assert run.messages("c")[0] == {"role": "system", "content": "commit"}
    node = read(thread, run.info().start)
    assert node["payload"]["taskInSystem"] is run.start_node().task_in_system is told
    assert node["refs"][0] == ref_of(b"commit")


def test_roles_that_have_messages(run: Run, stored: Stored) -> None:
    """Declared roles have messages, and those that took a step, also before a compaction."""

    def refused(one: Run, role: str, known: str) -> None:
        before = stored()
        with pytest.raises(LogicError) as caught:
            one.messages(role)
        assert caught.value.what == f"role not found in thread: {role} (available: {known})"
        assert stored() == before

    assert len(run.messages("tester")) == 2
    refused(run, "nobody", "coder, tester")
    refused(run, "Coder", "coder, tester")
    run.attempt("nobody")  # a failed attempt is no step
    refused(run, "nobody", "coder, tester")
    grow(run, "z", "coder", "y", "z")
    roles = [message["role"] for message in run.messages("y")]
    assert roles == ["system", "user", "assistant", "user"]
    refused(run, "nobody", "coder, tester, z, y")
    refused(run.fork(2), "y", "coder, tester, z")
    run.compact("sum")
    assert [message["role"] for message in run.messages("y")] == ["system", "user"]
    run.end()
    refused(run, "nobody", "coder, tester, z, y")
    with pytest.raises(InputError, match="'__end__' is no role"):
        run.messages("__end__")


@pytest.mark.parametrize("system", [None, {}])
def test_a_run_that_declares_no_roles_has_any(thread: Thread, system: Any) -> None:
    """Without system texts each role may be asked, before its first step too."""
    run = thread.runs.start("w", "the task", system=system)
    expected = [{"role": "system", "content": "the task"}, {"role": "user", "content": "the task"}]
    assert run.messages("anybody") == expected
    grow(run, "a")
    assert len(run.messages("b")) == 2


# --- as text --------------------------------------------------------------------------------------


def test_reading_within_a_budget(run: Run) -> None:
    """The newest steps that fit and at least one, oldest first, and how many are left out."""
    assert run.read() == run.read(1) == RunText("", 0, 0)
    run.step(NewStep("a", {"n": 1}, "first", agent="x"))
    run.step("b", content="second")
    run.step("c")
    texts = ['### Step 1: a (x)\n\nfirst\n\n{"n":1}', "### Step 2: b\n\nsecond", "### Step 3: c"]
    assert run.read() == run.read(10_000) == RunText("\n\n".join(texts), 3, 0)
    two = len(texts[1]) + len(texts[2])
    text = "\n\n".join(["(1 earlier steps omitted)", *texts[1:]])
    assert run.read(two) == RunText(text, 2, 1)
    text = "\n\n".join(["(2 earlier steps omitted)", texts[2]])
    assert run.read(two - 1) == run.read(1) == RunText(text, 1, 2)
    assert run.read(two + len(texts[0])).steps == 3
    odd: list[Any] = [0, -1, True, "9"]
    for budget in odd:
        with pytest.raises(UsageError, match="budget"):
            run.read(budget)


def test_reading_a_long_run(thread: Thread, run: Run) -> None:
    """A long run is read from its newest step on; the count of those left out is right."""
    with thread.write():
        grow(run, *("ab" * 100))
    found = run.read(1000)
    left = 200 - found.steps
    assert (found.omitted, found.text.split("\n")[0]) == (left, f"({left} earlier steps omitted)")
    lines = [line for line in found.text.split("\n") if line.startswith("###")]
    assert lines == [f"### Step {n}: {'ab'[(n - 1) % 2]}" for n in range(left + 1, 201)]
    assert run.read().steps == 200


# --- keys, events, transactions -------------------------------------------------------------------


def test_keys(thread: Thread, run: Run, stored: Stored, clock: Clock) -> None:
    """A step with a key of the last 24 hours is returned again; another step is a conflict."""
    thing = thread.blobs.put(b"a thing").ref
    told: dict[str, Any] = {
        "role": "a", "meta": {"a": [1, 2]}, "content": "x", "refs": [thing, thing],
        "edge_prompt": "e", "agent": "y", "compact": "one",
    }  # fmt: skip

    def again(one: Run = run, head: int | None = None, **words: Any) -> Step:
        return one.step(NewStep(**(told | words)), expected_head=head, key="k")

    first = again(attempts=[NewStep("a")])
    clock.move(60)
    before = stored()
    assert again(attempts=[NewStep("a")]) == again(head=999) == next(run.replay()) == first
    assert stored() == before
    grow(run, "b")
    before = stored()
    assert again() == first
    with eventq.open(thread.path) as other:
        assert again(other.runs.get(1)) == first
    odd: list[tuple[str, Any]] = [
        ("role", "c"), ("meta", {"a": [2, 1]}), ("content", "y"), ("refs", []),
        ("edge_prompt", ""), ("agent", ""), ("compact", "two"),
    ]  # fmt: skip
    for name, value in odd:
        with pytest.raises(ConflictError, match="the key was used for another step") as caught:
            again(**{name: value})
        assert caught.value.actual == first.turn_id
    assert stored() == before
    run.end()
    assert again() == first
    assert run.fork(1).step("a", key="k").number == 2
    run.resume()
    clock.move(DAY)
    assert again(content="new").number == 4


@pytest.mark.parametrize("says", ["run", "setting"])
def test_events(thread: Thread, run: Run, says: str) -> None:
    """Each change tells of itself in one event: of a run with a source, or as the setting says."""
    source = "internal:a:b:c"
    if says == "setting":
        thread.settings.set("runs.emit", source)
    new = NewRun("w", "p", group="g")
    made = thread.runs.start(new, source=source if says == "run" else None)

    def told() -> Any:
        (event,) = thread.last(1)
        assert (event.source, event.type, event.subtype) == (source, "record", "run")
        return json.loads(event.content)

    def event(op: str, of: Run) -> Any:
        info = of.info()
        return {
            "op": op, "run_id": info.run_id, "name": "w", "group": "g", "status": info.status,
            "step": info.depth, "head": info.head, "start": info.start,
        }  # fmt: skip

    assert told() == event("start", made)
    calls: dict[str, Call] = {
        "step": lambda: made.step("a"),
        "attempt": lambda: made.attempt("a"),
        "poke": made.poke,
        "compact": lambda: made.compact("sum"),
        "suspend": made.suspend,
        "resume": made.resume,
        "end": made.end,
    }
    for op, call in calls.items():
        call()
        assert told() == event(op, made)
    fork = made.fork()
    assert told() == event("fork", fork)
    fork.step("b")
    assert told() == event("step", fork)
    fork.cancel()
    assert (told(), told()["status"]) == (event("end", fork), "cancelled")
    assert thread.last_id() == 11
    run.step("coder")
    assert thread.last_id() == 11 + (says == "setting")


def test_nobody_reports_unless_asked(thread: Thread, run: Run) -> None:
    """Without a source of the run and with the setting off, no change pushes an event."""
    grow(run, "a", "b")
    run.fork().cancel()
    run.end()
    assert thread.last_id() == 0


def test_who_reports_is_decided_with_each_change(thread: Thread, run: Run) -> None:
    """A setting counts from the next change on; the source that a run has goes before it."""
    own = thread.runs.start("w", "p", source="own")

    def sources() -> list[str]:
        before = thread.last_id()
        run.step("a")
        own.step("a")
        return [event.source for event in thread.peek(before)]

    assert sources() == ["own"]
    thread.settings.set("runs.emit", "on")
    assert sources() == ["self", "own"]
    with pytest.raises(KeyError), thread.write():
        thread.settings.set("runs.emit", "undone")
        assert sources() == ["undone", "own"]
        raise KeyError
    assert sources() == ["self", "own"]
    thread.settings.set("runs.emit", "off")
    assert sources() == ["own"]


def test_a_source_that_is_refused_leaves_no_run(thread: Thread, run: Run, stored: Stored) -> None:
    """What can be no source is refused before anything of a run is stored."""
    grow(run, "a")
    before = stored()
    for source in ("", "\n"):
        with pytest.raises(InputError):
            thread.runs.start("new", "new", label="new", source=source)
        assert stored() == before


def test_an_event_that_cannot_be_stored_undoes_its_change(
    thread: Thread, run: Run, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change and its event are one transaction: without the event nothing of it is there."""
    thread.settings.set("runs.emit", "on")
    grow(run, "a")
    before = stored()

    def refuse(*_: object) -> None:
        raise DiskError("the disk is full", "free some space")

    monkeypatch.setattr(thread.database.events, "announce", refuse)
    calls: list[Call] = [
        lambda: run.step("a", content="new"),
        run.end,
        run.cancel,
        run.suspend,
        lambda: run.attempt("a", content="new"),
        lambda: run.poke(content="new"),
        lambda: run.compact("new"),
        run.fork,
        lambda: thread.runs.start("new", "new", label="new"),
    ]
    for call in calls:
        with pytest.raises(DiskError):
            call()
        assert stored() == before


@pytest.mark.engines("sqlite")  # it counts statements
def test_a_step_goes_on_from_the_last_one_taken_here(thread: Thread, run: Run) -> None:
    """The state is read ahead of the first step only, as long as nobody else moves the run."""
    database: Any = thread.database
    reads: list[str] = []

    def note(_: object, sql: str, __: object) -> bool:
        reads.append(sql)
        return True

    database.connection.exec_trace = note
    numbers, read = [], []
    for _ in range(3):
        reads.clear()
        numbers.append(run.step("coder").number)
        read.append(sum(sql.lstrip().startswith("SELECT r.status") for sql in reads))
    assert (numbers, read) == ([1, 2, 3], [2, 1, 1])


@pytest.mark.parametrize(
    "change",
    [
        lambda other: other.step("tester", "theirs"),
        lambda other: other.attempt("tester", "theirs"),
        lambda other: other.poke("theirs"),
        lambda other: (other.suspend(), other.resume()),
        lambda other: other.fork().step("tester", "theirs"),
    ],
    ids=["step", "attempt", "poke", "resumed", "forked"],
)
def test_a_step_after_a_change_by_another(
    thread: Thread, run: Run, change: Callable[[Any], object]
) -> None:
    """A run that was moved elsewhere since the last step here goes on from where it is."""
    run.step("coder", "one")
    run.step("coder", "two")
    other = thread.runs.get(run.id)
    change(other)
    before = list(thread.runs.get(run.id).replay())
    made = run.step("coder", "three")
    assert list(thread.runs.get(run.id).replay()) == [*before, made]
    assert thread.check() == []


def test_an_attempt_while_another_takes_a_step(
    thread: Thread, run: Run, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after where the run stands by then, not after where it stood."""
    run.step("coder", "one")
    read, others = stored_runs.Runs.state, [thread.runs.get(run.id)]

    def slow(*asked: Any) -> Any:
        found = read(*asked)
        while others:
            others.pop().step("tester", "theirs")
        return found

    monkeypatch.setattr(stored_runs.Runs, "state", slow)
    run.attempt("coder", "failed")
    assert [row[1] for row in stored()["run_attempts"]] == [run.info().head_turn_id]


def test_a_step_where_the_run_takes_none_any_more(thread: Thread, run: Run) -> None:
    """Whoever took the last step hears of the end by another, and of a block that was undone."""
    with pytest.raises(ZeroDivisionError), thread.write():
        run.step("coder", "undone")
        raise ZeroDivisionError
    assert run.step("coder", "one").number == 1
    thread.runs.get(run.id).suspend()
    with pytest.raises(ConflictError, match="suspended"):
        run.step("coder", "two")
    thread.runs.get(run.id).resume()
    assert run.step("coder", "two").number == 2
    thread.runs.get(run.id).end()
    with pytest.raises(ConflictError, match="completed"):
        run.step("coder", "three")


def test_changes_that_are_undone(thread: Thread, run: Run, stored: Stored) -> None:
    """What a transaction that fails did to runs never was; what goes on follows what is."""
    steps = grow(run, "a", "b")
    before = stored()
    with pytest.raises(KeyError), thread.write():
        run.step("c", content="undone")
        run.poke(content="undone too")
        run.compact("undone")
        run.end()
        thread.runs.start("undone", "undone", label="x").fork(0).attempt("z")
        raise KeyError
    assert stored() == before
    step = run.step("c", content="undone")
    assert (step.number, step.ancestors) == (3, (steps[1].ref, steps[0].ref))
