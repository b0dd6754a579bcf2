"""Runs that are damaged in the file, or whose nodes another program wrote."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import DamagedError, StoreError
from eventq.memory.collection import collect
from eventq.records.run import NewStep
from eventq.records.turn import NewTurn
from tests.contract.memory import DAY, ref_of
from tests.contract.runs import content_ref, full, grow, ids, spelled, trail
from tests.contract.support import found
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Thread
    from eventq.memory.runs import Run
    from eventq.records.run import Step
    from tests.conftest import Clock

pytestmark = pytest.mark.usefixtures("quick")


def alter(path: str, *statements: str) -> None:
    """Change what may not be changed, while nobody has the thread open."""
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.pragma("foreign_keys", 0)
    raw.pragma("ignore_check_constraints", 1)
    sql = "SELECT sql FROM sqlite_master WHERE name = 'turns_are_immutable'"
    ((trigger,),) = raw.execute(sql).fetchall()
    raw.execute("DROP TRIGGER turns_are_immutable")
    for sql in statements:
        raw.execute(sql)
    raw.execute(str(trigger))
    raw.close()


def of(ref: str) -> str:
    """Return SQL for the digest of a blob."""
    return f"x'{ref[12:]}'"


def row_of(ref: str) -> str:
    """Return SQL for the row of a blob."""
    return f"(SELECT blob_id FROM blobs WHERE hash = {of(ref)})"


def spoil(ref: str) -> str:
    """Return SQL that breaks the bytes of a blob."""
    return f"UPDATE blob_bytes SET bytes = zeroblob(9) WHERE blob_id = {row_of(ref)}"


class Elsewhere:
    """A run whose nodes are written by hand, on a context that becomes a run at last."""

    def __init__(self, thread: Thread, **more: Any) -> None:
        """Begin with a start without any field that it can do without."""
        self.thread = thread
        self.context = thread.contexts.create()
        prompt = thread.blobs.put(b"p").ref
        self.start = self.plant("start", {"name": "old", **more}, [prompt]).ref
        self.refs: list[str] = []

    def plant(self, kind: str, payload: object, refs: list[str], version: int = 1) -> eventq.Turn:
        """Append a node."""
        data = spelled({"type": kind, "payload": payload, "refs": refs})
        new = NewTurn(data, type_id=f"eventq.{kind}", type_version=version, refs=refs)
        return self.context.append(new)

    def step(self, version: int = 1, **more: Any) -> str:
        """Append a step without any field that it can do without, and return its ref."""
        node = spelled({"type": "content", "payload": "old", "refs": []})
        content = self.thread.blobs.put(node).ref
        above = self.refs[::-1][:11]
        payload = {"role": "old", "start": self.start, "content": content, "ancestors": above}
        turn = self.plant("state", payload | more, [self.start, content, *above], version)
        self.refs.append(turn.ref)
        return turn.ref

    def run(self) -> Run:
        """Make it a run."""
        sql = "INSERT INTO runs (context_id, name, grouped, start_id) VALUES (?, 'old', '', ?)"
        with self.thread.write():
            sqlite(self.thread.database).run(sql, (self.context.id, self.context.ancestor(0)))
        return self.thread.runs.get(self.context.id)


# --- old nodes and foreign turns ------------------------------------------------------------------


def test_old_nodes(opened: Thread) -> None:
    """Nodes without fields that came later read with their defaults, and with unknown ones, too."""
    elsewhere = Elsewhere(opened, later=[1])
    refs = [elsewhere.step(version=0)]
    refs.append(elsewhere.step(99, meta={"m": 1}, timestamp=5, compact=None, future={"x": 1}))
    run = elsewhere.run()
    first, second = run.replay()
    assert (first.role, first.meta, first.content, first.artifacts) == ("old", None, "old", ())
    assert (first.edge_prompt, first.agent, first.timestamp, first.ancestors) == ("", "", 0, ())
    assert (first.compact, first.attempts, first.child) == (None, (), None)
    assert (second.meta, second.timestamp, second.edge_prompt) == ({"m": 1}, 5, "")
    start = run.start_node()
    assert (run.prompt(), start.system, start.more, start.max_rounds) == (
        "p",
        {},
        {"later": [1]},
        0,
    )
    assert second.ancestors == (refs[0],)
    assert run.step("new").ancestors == (refs[1], refs[0])
    assert [step.number for step in run.replay()] == [1, 2, 3]
    messages = run.messages("old")
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    assert [message["role"] for message in messages] == roles
    assert (messages[0]["content"], messages[1]["content"]) == ("p", "")
    assert ids(opened.runs.active()) == [run.id]


def test_turns_of_other_types(opened: Thread) -> None:
    """Turns of types that are no steps are not fatal to reading or going on."""
    elsewhere = Elsewhere(opened)
    first = elsewhere.step()
    elsewhere.context.append(NewTurn(b"a note", type_id="eventq.future"))
    run = elsewhere.run()
    assert trail(run) == [(1, "old"), (2, "")]
    assert [step.number for step in run.chain()[1]] == [1, 2]
    assert [step.meta for step in run.replay()][1] == {"type": "eventq.future", "version": 1}
    assert len(run.messages("old")) == 4
    assert (ids(opened.runs.active()), opened.check()) == ([run.id], [])
    step = run.step("a")
    assert (step.number, step.ancestors) == (3, (first,))


def test_a_fork_at_a_node_of_two_depths(opened: Thread) -> None:
    """A node whose turns lie at two depths, after turns of other types, is found in each run."""
    plain, noted = Elsewhere(opened), Elsewhere(opened)
    noted.context.append(NewTurn(b"a note", type_id="eventq.future"))
    assert plain.step() == (ref := noted.step())
    for run, depth in ((plain.run(), 1), (noted.run(), 2)):
        assert run.fork(ref).info().depth == depth


# --- damage ---------------------------------------------------------------------------------------


def three(path: str) -> list[Step]:
    """Make a run of three steps, whose second is to be damaged."""
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "p")
        return [run.step("a", content=f"{number}" * 3000) for number in (1, 2, 3)]


SECOND = content_ref("2" * 3000)
DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "a node": (spoil, r"(depth 2)"),
    "a node that is gone": (lambda ref: f"DELETE FROM blobs WHERE hash = {of(ref)}", "(depth 2)"),
    "a content": (lambda _: spoil(SECOND), "step 2 "),
    "a content that is gone": (
        lambda _: f"DELETE FROM blobs WHERE hash = {of(SECOND)}",
        f"step 2 of run 1: missing blob {SECOND}",
    ),
    "a turn that is gone": (lambda _: "DELETE FROM turns WHERE turn_id = 3", ""),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_never_read(path: str, what: str) -> None:
    """Damage of a step is an error that names the step, never a shorter chain; a check finds it."""
    ref = three(path)[1].ref
    damage, text = DAMAGES[what]
    alter(path, damage(ref))
    name = {"a node": ref, "a content": SECOND}.get(what, "")
    with eventq.open(path) as thread:
        run = thread.runs.get(1)
        reads: list[Callable[[], object]] = [
            lambda: list(run.replay()), run.chain, lambda: run.messages("a"), run.read, run.fork,
        ]  # fmt: skip
        for call in reads:
            with pytest.raises(DamagedError if text else StoreError) as caught:
                call()
            assert text in caught.value.what
            assert name in caught.value.what
        assert any(name in fault for fault in thread.check())


STARTS: dict[str, tuple[Callable[[str], str], str]] = {
    "bytes": (spoil, "blob:blake3:"),
    "blob": (lambda ref: f"DELETE FROM blobs WHERE hash = {of(ref)}", "turn 1 (depth 0)"),
    "turn": (lambda _: "DELETE FROM turns WHERE turn_id = 1", "turn 1, the start of run 1, is"),
}


@pytest.mark.parametrize("what", STARTS)
def test_a_run_without_its_start_is_not_forked(path: str, what: str) -> None:
    """A fork of a run whose start cannot be read would have no messages; it is refused."""
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "p")
        ref = grow(run, "a", "b")[0].ref
        start = run.info().start
    damage, text = STARTS[what]
    alter(path, damage(start))
    with eventq.open(path) as thread:
        count = len(list(thread.contexts))
        for at in (None, 1, ref, "turn:2"):
            with pytest.raises(DamagedError) as caught:
                thread.runs.get(1).fork(at)
            assert text in caught.value.what
        assert len(list(thread.contexts)) == count


def test_one_bad_run_breaks_no_list(path: str) -> None:
    """Lists of runs do not read nodes: one that is damaged is in them, and others are read."""
    with eventq.open(path) as thread:
        bad, good = thread.runs.start("bad", "p" * 3000), thread.runs.start("good", "q")
        step = bad.step("a", content="x" * 3000)
        grow(good, "a")
        infos = list(thread.runs)
        start = bad.info().start
    alter(path, spoil(start), spoil(step.ref))
    with eventq.open(path) as thread:
        assert list(thread.runs) == list(thread.runs.active()) == list(thread.runs.list()) == infos
        assert [step.content for step in thread.runs.get(2).replay()] == ["0"]
        assert len(thread.runs.get(2).messages("a")) == 4
        with pytest.raises(DamagedError, match="blob:blake3:"):
            thread.runs.get(1).messages("a")
        assert any(step.ref in fault for fault in thread.check())


DAMAGED_TABLES: dict[str, Callable[[Thread], list[Any]]] = {
    "runs": lambda thread: [*thread.runs.list(), *thread.runs.active()],
    "runs_active": lambda thread: list(thread.runs.active()),
    "runs_by_day": lambda thread: list(thread.runs.history("2026-03-18")),
}


@pytest.mark.parametrize("table", DAMAGED_TABLES)
def test_a_damaged_index_is_loud(path: str, clock: Clock, table: str) -> None:
    """A damaged table or index of runs is an error, never an empty list; nothing is collected."""
    with eventq.open(path) as thread:
        with thread.write():
            for _ in range(5):
                thread.runs.start("w", "p")
                thread.runs.start("w", "p").end()
        thread.blobs.put(b"an orphan")
        assert DAMAGED_TABLES[table](thread) != []
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sql = "SELECT rootpage FROM sqlite_master WHERE name = ?"
    ((page,),) = raw.execute(sql, (table,)).fetchall()
    size = raw.pragma("page_size")
    raw.close()
    assert isinstance(page, int)
    assert isinstance(size, int)
    with open(os.path.join(path, "events.db"), "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with eventq.open(path) as thread:
        with pytest.raises(StoreError):
            DAMAGED_TABLES[table](thread)
        assert thread.check() != []
        with pytest.raises(StoreError):
            thread.gc(apply=True, grace=0)
        assert thread.blobs.has(ref_of(b"an orphan"))


def test_statuses_are_those_of_the_table(opened: Thread, raw: apsw.Connection) -> None:
    """The table refuses a status that is none, and a time of completion that does not fit it."""
    run = opened.runs.start("w", "p")
    run.suspend()
    for change in ("status = ''", "status = 'ended'", "status = 'Active'", "status = NULL",
                   "status = 'completed'", "completed_at_ms = 5"):  # fmt: skip
        with pytest.raises(apsw.ConstraintError):
            raw.execute(f"UPDATE runs SET {change}")
    assert run.info().status == "suspended"


# --- collections ----------------------------------------------------------------------------------


def test_a_context_that_was_moved(opened: Thread, clock: Clock) -> None:
    """When the head of a run was moved to its start, what it left goes, with the attempts there."""
    run = full(opened)
    opened.database.memory.contexts.move(run.id, run.context.ancestor(0), "move", run=True)
    clock.move(1000 * DAY)
    opened.gc(apply=True, grace=0)
    assert (run.info().depth, run.prompt(), list(run.replay())) == (0, "full prompt", [])
    assert run.start_node().system["a"] == ref_of(b"full system a")
    assert not opened.blobs.has(ref_of(b"full summary"))
    assert (run.step("a").number, run.step("b").attempts) == (1, ())
    assert opened.check() == []


def test_a_start_stays(opened: Thread, clock: Clock) -> None:
    """The start of a run is a root of its own, wherever its head is."""
    run = full(opened)
    head = "UPDATE contexts SET head_id = NULL WHERE context_id = 2"
    alter(opened.path, head, "DELETE FROM context_log")
    clock.move(1000 * DAY)
    collect(
        opened.database.memory, opened.blobs, list, apply=True, grace=0
    )  # what was altered is no fault here
    assert (run.prompt(), set(run.start_node().system)) == ("full prompt", {"a", "b"})
    assert opened.blobs.has(ref_of(b"full system b"))
    assert not opened.blobs.has(ref_of(b"full summary"))


@pytest.mark.parametrize("what", ["a node", "a content that is gone"])
def test_nothing_goes_from_what_is_damaged(path: str, clock: Clock, what: str) -> None:
    """When a run is damaged or a ref leads nowhere nothing is deleted at all."""
    ref = three(path)[1].ref
    with eventq.open(path) as thread:
        thread.blobs.put(b"an orphan")
        thread.runs.start("w", "another").context.delete()
    clock.move(1000 * DAY)
    alter(path, DAMAGES[what][0](ref))
    with eventq.open(path) as thread:
        before = len(thread.blobs)
        with pytest.raises(DamagedError, match="nothing was deleted"):
            thread.gc(apply=True, grace=0)
        assert (len(thread.blobs), thread.blobs.has(ref_of(b"an orphan"))) == (before, True)


# --- what a check finds ---------------------------------------------------------------------------


def text_ref(text: str) -> str:
    """Return the ref of a text of `sound`, where each is repeated."""
    return ref_of((text * 20).encode())


@pytest.fixture
def sound(path: str) -> str:
    """Return the path of a thread with five runs that checks out.

    Run 1 is turns 1 (start), 2 (with an artifact), 3 (with a summary and an attempt before it) and
    4 (its end); run 2 is turns 5, 6 and 7 and active; run 3 is turns 8 and 9 and cancelled; run 4
    is turn 10 and suspended; run 5 is turns 5, 6 and 11, a fork of run 2, completed and resumed.
    """
    with eventq.open(path) as thread:

        def put(text: str) -> str:
            return thread.blobs.put((text * 20).encode()).ref

        run = thread.runs.start("w", "prompt" * 20, system={"a": "system" * 20})
        run.step(NewStep("a", content="first" * 20, refs=[put("artifact")]))
        run.attempt(NewStep("a", content="failed" * 20, refs=[put("of an attempt")]))
        run.step(NewStep("a", content="second", compact="summary" * 20))
        run.end()
        other = thread.runs.start("w", "q")
        grow(other, "b", "c")
        thread.runs.start("w", "r").cancel()
        thread.runs.start("w", "s").suspend()
        fork = other.fork(1)
        fork.end()
        fork.resume()
        assert thread.check() == []
    return path


def damaged(row: str) -> tuple[str, str]:
    """Return SQL that breaks the bytes of a blob, and what a check says of it."""
    return f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = {row}", "is damaged"


def without_refs(row: str) -> str:
    """Return SQL that takes away the rows of refs of a blob."""
    return f"DELETE FROM blob_refs WHERE blob_id = {row}"


def of_turn(number: int) -> str:
    """Return SQL for the row of a turn's blob."""
    return f"(SELECT blob_id FROM turns WHERE turn_id = {number})"


def dangling(table: str, parent: str) -> str:
    """Return what a check says of a row that refers to none."""
    return f"a row of {table} refers to a row of {parent} that is not there"


ATTEMPT = "(SELECT blob_id FROM run_attempts)"
FIRST = content_ref("first" * 20, [text_ref("artifact")])
FAILED = content_ref("failed" * 20, [text_ref("of an attempt")])
FAULTS: dict[str, tuple[str, str]] = {
    "a prompt's bytes": damaged(row_of(text_ref("prompt"))),
    "a content's bytes": damaged(row_of(FIRST)),
    "the rows of a step's refs": (without_refs(of_turn(2)), "turn 2 names "),
    "the rows of an end's refs": (without_refs(of_turn(4)), "turn 4 names "),
    "the rows of a start's refs": (without_refs(of_turn(1)), "turn 1 names "),
    "one row of refs": (
        f"DELETE FROM blob_refs WHERE ref_id = {row_of(text_ref('summary'))}",
        "turn 3 names ",
    ),
    "the ref of a content": (without_refs(row_of(FIRST)), ""),
    "the ref of an attempt's content": (without_refs(row_of(FAILED)), ""),
    "the refs of an attempt": (without_refs(ATTEMPT), ""),
    "the target of a ref": (
        f"DELETE FROM blobs WHERE hash = {of(text_ref('prompt'))}",
        "turn 1 names ",
    ),
    "the target of a content's ref": (
        f"DELETE FROM blobs WHERE hash = {of(text_ref('artifact'))}",
        dangling("blob_refs", "blobs"),
    ),
    "a content": (f"DELETE FROM blobs WHERE hash = {of(FIRST)}", "turn 2 names "),
    "a start that is no root": (
        "UPDATE runs SET start_id = 6 WHERE context_id = 2",
        "run 2 starts at turn 6, which is no root",
    ),
    "a start of another run": (
        "UPDATE runs SET start_id = 1 WHERE context_id = 2",
        "run 2 stands at turn 7, which does not come from its start, turn 1",
    ),
    "a start of another run, suspended": (
        "UPDATE runs SET start_id = 1 WHERE context_id = 4",
        "run 4 stands at turn 10, which does not come from its start, turn 1",
    ),
    "a start of another run, completed": ("UPDATE runs SET start_id = 5 WHERE context_id = 1", ""),
    "a start of another run, cancelled": ("UPDATE runs SET start_id = 5 WHERE context_id = 3", ""),
    "a start that is not there": (
        "UPDATE runs SET start_id = 99 WHERE context_id = 2",
        dangling("runs", "turns"),
    ),
    "a head of another run": (
        "UPDATE contexts SET head_id = 9 WHERE context_id = 2",
        "run 2 stands at turn 9, which does not come from its start, turn 5",
    ),
    "no head": (
        "UPDATE contexts SET head_id = NULL WHERE context_id = 1",
        "run 1 is empty, though it was started",
    ),
    "active at its end": (
        "UPDATE runs SET status = 'active', completed_at_ms = NULL WHERE context_id = 1",
        "run 1 is active, and its head is an end that nobody resumed from",
    ),
    "a run of no context": (
        "UPDATE runs SET context_id = 77 WHERE context_id = 1",
        dangling("runs", "contexts"),
    ),
    "an attempt after no turn": (
        "UPDATE run_attempts SET parent_id = 77",
        dangling("run_attempts", "turns"),
    ),
    "an attempt that is not there": (
        "UPDATE run_attempts SET blob_id = 777",
        dangling("run_attempts", "blobs"),
    ),
}
REFUSED_BY_THE_TABLE = {
    "completed without a time": "UPDATE runs SET completed_at_ms = NULL WHERE context_id = 1",
    "a time of what goes on": "UPDATE runs SET completed_at_ms = 7 WHERE context_id = 2",
    "a status that is none": "UPDATE runs SET status = 'odd' WHERE context_id = 2",
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_found(sound: str, what: str) -> None:
    """A check names each thing that is broken about runs."""
    sql, text = FAULTS[what]
    alter(sound, sql)
    assert any(text in fault for fault in found(sound))


@pytest.mark.parametrize("what", REFUSED_BY_THE_TABLE)
def test_faults_that_a_reader_finds(sound: str, what: str) -> None:
    """A check by a reader, too, names what the table's own checks refuse."""
    alter(sound, REFUSED_BY_THE_TABLE[what])
    assert any("runs" in fault for fault in found(sound))
    assert found(sound, read_only=True) != []


class Forger:
    """Runs that are forged one after the other in one thread."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.count = 0
        self.said: set[str] = set()

    def begin(self) -> Elsewhere:
        """Return a run that is like no other."""
        self.count += 1
        return Elsewhere(self.thread, forged=self.count)

    def finds(self, text: str) -> None:
        """Check that the thread has a new fault."""
        faults = set(self.thread.check())
        assert [fault for fault in faults - self.said if text in fault] != [], (text, faults)
        self.said |= faults


def test_nodes_that_are_forged(opened: Thread) -> None:
    """A check names ancestors, starts and places that do not follow from the chain."""
    forger = Forger(opened)
    other = forger.begin()
    one, two = other.step(), other.step()
    assert opened.check() == []
    for above in ([], [one], [two, one, one], [one, two], [other.start], None):
        forged = forger.begin()
        if above is not None:
            forged.step()
        forged.step(ancestors=[one] if above is None else above)
        forged.run()
        forger.finds(f"turn {forged.context.head_id()} names other ancestors than the turn before")
    forged = forger.begin()
    forged.step(start=other.start)
    forged.run()
    head = forged.context.head_id()
    forger.finds(f"turn {head} names {other.start} as its start, not {forged.start}")
    forged = forger.begin()
    turn = forged.plant("start", {"name": "x"}, [ref_of(b"p")])
    forged.run()
    forger.finds(f"turn {turn.turn_id} is a start, {turn.ref}, and no root")
    bare = forger.begin()
    bare.context = opened.contexts.create()
    refs = opened.blobs.refs(one)
    turn = bare.context.append(NewTurn(opened.blobs.get(one), type_id="eventq.state", refs=refs))
    bare.run()
    forger.finds(f"turn {turn.turn_id} is a step without a start")


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        *(
            (data, "state", "is no node of a run")
            for data in (
                b"junk",
                b"[]",
                b"{}",
                b'{"type":"x","payload":1,"refs":[]}',
                b'{"type":"state","payload":[],"refs":[]}',
            )
        ),
        (b'{"type":"content","payload":"","refs":[]}', "state", ""),
        (b'{"payload":{"name":"x"},"refs":[],"type":"start"}', "start", "is no node"),
    ],
)
def test_rubbish_for_a_node(opened: Thread, data: bytes, kind: str, text: str) -> None:
    """A check names turns of a run that are no nodes."""
    junk = Elsewhere(opened)
    if kind == "start":
        junk.context = opened.contexts.create()
    turn = junk.context.append(NewTurn(data, type_id=f"eventq.{kind}"))
    junk.run()
    faults = [fault for fault in opened.check() if f"turn {turn.turn_id}" in fault]
    assert any(text in fault for fault in faults)


def test_refs_that_are_forged(opened: Thread) -> None:
    """A check finds refs of a node that its payload does not name."""
    elsewhere = Elsewhere(opened)
    content = opened.blobs.put(spelled({"type": "content", "payload": "old", "refs": []})).ref
    thing = opened.blobs.put(b"a thing").ref
    payload = {"role": "old", "start": elsewhere.start, "content": content, "ancestors": []}
    elsewhere.plant("state", payload, [elsewhere.start, content, thing])
    elsewhere.run()
    assert opened.check() != []
