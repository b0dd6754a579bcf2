"""What collections and packs keep of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ConflictError
from eventq.records.run import NewRun, NewStep
from eventq.records.turn import NewTurn
from tests.contract import support
from tests.contract.memory import DAY, ref_of
from tests.contract.runs import STOPS, content_ref, full, grow, ids, read, stop

if TYPE_CHECKING:
    from pathlib import Path

    from eventq import Thread
    from eventq.memory.runs import Run
    from tests.conftest import Clock
    from tests.contract.memory import Stored

pytestmark = pytest.mark.usefixtures("quick")


def collect(thread: Thread, grace: float = 0) -> tuple[int, int, tuple[str, ...]]:
    """Collect; return turns, blobs and hashes."""
    done = support.collect(thread, grace)
    return done.turns, done.blobs, done.hashes


@pytest.mark.parametrize("status", ["active", *STOPS])
def test_what_a_run_keeps(thread: Thread, clock: Clock, stored: Stored, status: str) -> None:
    """All that hangs on a run stays whatever its status is, and goes with the run."""
    run = full(thread)
    stop(run, status)
    steps = list(run.replay())
    clock.move(1000 * DAY)
    assert collect(thread) == (4, 0, ())  # the turns of the child, and the one that was replaced
    texts = ["prompt", "system a", "system b", "summary", "marker", "prompt of the child"]
    for text in [*texts, *(f"artifact {number}" for number in range(4))]:
        assert thread.blobs.has(ref_of(f"full {text}".encode()))
    kept = [thread.blobs.get(blob.ref) or b"" for blob in thread.blobs]
    contents = {json.loads(data)["payload"] for data in kept if data.startswith(b'{"payload":"')}
    texts = ["first", "failed", "second", "replaced", "third", "failed at the head"]
    assert {f"full {text}" for text in texts} <= contents
    assert list(run.replay()) == steps
    before = stored()
    run.context.delete()
    clock.move(2 * DAY)
    assert collect(thread)[:2] == (len(before["turns"]), len(before["blobs"]))
    after = stored()
    for table in ("turns", "blobs", "blob_refs", "run_attempts", "runs"):
        assert after[table] == []


def test_runs_that_call_runs(thread: Thread, clock: Clock) -> None:
    """A start names the caller's step and a step the end of the run it called; both keep them."""
    caller = thread.runs.start("outer", "p")
    asked = caller.step("a", content="the asking")
    called = thread.runs.start(NewRun("inner", "q", parent_state=asked.ref, depth=1))
    called.step("b", content="inner work")
    end = called.end()
    done = caller.step(NewStep("a", child=end.ref))
    assert (done.child, called.start_node().parent_state) == (end.ref, asked.ref)
    assert asked.ref in thread.blobs.refs(called.info().start)
    assert end.ref in thread.blobs.refs(done.ref)
    inner = {step.ref for step in called.replay()} | {called.info().start}
    called.context.delete()
    clock.move(2 * DAY)
    assert thread.gc(apply=True).turns == 3
    assert all(thread.blobs.has(ref) for ref in inner)
    second = thread.runs.start(NewRun("inner", "q", parent_state=done.ref))
    outer = {step.ref for step in caller.replay()}
    caller.context.delete()
    clock.move(2 * DAY)
    thread.gc(apply=True)
    assert all(thread.blobs.has(ref) for ref in outer | inner)
    second.context.delete()
    clock.move(2 * DAY)
    thread.gc(apply=True)
    assert len(thread.blobs) == 0


def test_the_tip_of_a_fork_goes(thread: Thread, clock: Clock) -> None:
    """What only a deleted fork has goes, what it shares stays."""
    run = thread.runs.start("w", "p")
    shared = grow(run, "a", "b")
    fork = run.fork(1)
    mine = fork.step(NewStep("x", content="mine", compact="mine too"))
    failed = fork.attempt("y", content="mine as well")
    fork.context.delete()
    clock.move(2 * DAY)
    gone = [mine.ref, failed, ref_of(b"mine too"), content_ref("mine"), content_ref("mine as well")]
    assert collect(thread, 3600) == (1, 5, tuple(sorted(ref[12:] for ref in gone)))
    assert list(run.replay()) == shared


def test_what_is_to_be_named_waits(thread: Thread, clock: Clock) -> None:
    """An artifact that no step names yet stays for the grace period, which a new put renews."""
    run = thread.runs.start("w", "p")
    for _ in range(2):
        thing = thread.blobs.put(b"a thing").ref
        clock.move(3599)
        assert collect(thread, 3600) == (0, 0, ())
    run.step(NewStep("a", refs=[thing]))
    clock.move(2 * DAY)
    assert collect(thread) == (0, 0, ())
    assert next(run.replay()).artifacts == (thing,)


def test_events_keep_what_they_name(thread: Thread, clock: Clock) -> None:
    """The event of a step keeps its head and start, with all that they name, until it is pruned."""
    run = thread.runs.start("w", "p", source="self")
    step = run.step("a", content="kept")
    run.context.delete()
    clock.move(1000 * DAY)
    assert collect(thread) == (2, 0, ())
    assert read(thread, read(thread, step.ref)["payload"]["content"])["payload"] == "kept"
    thread.prune(before_id=3, force=True)
    assert collect(thread)[:2] == (0, 4)


def test_turns_that_only_look_like_nodes(thread: Thread, clock: Clock) -> None:
    """What stands on a context that is no run is nobody's step: check and gc go on."""
    context = thread.contexts.create()
    for type_id in ("eventq.state", "eventq.start"):
        context.append(NewTurn(b"junk", type_id=type_id))
    assert thread.check() == []
    clock.move(DAY)
    assert thread.gc(apply=True).turns == 0


# --- packs ----------------------------------------------------------------------------------------


def story(run: Run) -> tuple[Any, ...]:
    """Return all that a run tells but its ids and its times of change."""
    info = run.info()
    steps = [
        (step.number, step.ref, step.role, step.meta, step.content, step.attempts)
        for step in run.replay()
    ]
    return (
        info.name, info.group, info.status, info.depth, info.head, info.start, info.completed_at_ms,
        steps, run.prompt(), run.start_node(), run.chain()[0], run.messages("a"), run.read(),
    )  # fmt: skip


@pytest.mark.parametrize("others", [0, 3])
def test_packs_carry_runs(thread: Thread, tmp_path: Path, clock: Clock, others: int) -> None:
    """A pack carries runs with status, attempts and lineage; a second import adds nothing."""
    runs = []
    for status in ("active", *STOPS):
        clock.move(1)
        runs.append(full(thread))
        stop(runs[-1], status)
    clock.move(1)
    runs.append(runs[0].fork(2, label="a fork"))
    runs[-1].step("z", content="of the fork")
    folder = str(tmp_path / "pack")
    thread.export_pack(folder)
    with eventq.open(eventq.init(str(tmp_path / "into"))) as into:
        for number in range(others):
            clock.move(1)
            grow(into.runs.start("mine", f"{number}"), "a")
        assert into.import_pack(folder).contexts == len(runs)
        found = [info.run_id for info in into.runs if info.name != "mine"]
        stories = [story(run) for run in runs]
        assert [story(into.runs.get(which)) for which in found] == stories
        assert into.check() == []
        assert into.runs.get("a fork").info().fork_of == found[0]
        ended = [
            [(info.run_id, info.head, info.start, info.completed_at_ms) for info in days]
            for days in (one.runs.history("2026-03-18") for one in (thread, into))
        ]
        assert len(ended[0]) == len(ended[1]) == 1
        assert others or ended[0] == ended[1]  # with others the ids are not the same
        moves = [list(info_of.context.history()) for info_of in map(into.runs.get, found)]
        again = into.import_pack(folder)
        assert (again.blobs, again.turns, again.contexts, again.moved, again.notes) == (
            0,
            0,
            0,
            0,
            (),
        )
        assert [list(into.runs.get(which).context.history()) for which in found] == moves
        run = into.runs.get(found[0])
        head = run.info().head
        step = run.step("a")
        assert (step.ancestors[0], len(step.attempts)) == (head, 1)
        clock.move(1000 * DAY)
        into.gc(apply=True, grace=0)
        assert [story(into.runs.get(which)) for which in found[1:]] == stories[1:]
        assert into.check() == []


def test_a_pack_that_is_ahead(thread: Thread, tmp_path: Path) -> None:
    """A run that went on elsewhere and ended there has ended here when it is imported again."""
    run = thread.runs.start("w", "p")
    with eventq.open(eventq.init(str(tmp_path / "into"))) as into:
        grow(run, "a")
        thread.export_pack(str(tmp_path / "1"))
        into.import_pack(str(tmp_path / "1"))
        grow(run, "b")
        run.end()
        thread.export_pack(str(tmp_path / "2"))
        assert into.import_pack(str(tmp_path / "2")).moved == 1
        found = into.runs.get(1)
        assert (found.info().head, found.info().status) == (run.info().head, "completed")
        assert ids(into.runs.active()) == []
        with pytest.raises(ConflictError):
            found.step("c")
