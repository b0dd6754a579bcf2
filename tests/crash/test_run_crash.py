"""Runs that many processes write, that are collected meanwhile, whose writers are killed."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.contract.memory import ref_of
from tests.contract.runs import ids
from tests.crash.support import kill, numbers, read_lines, start
from tests.servers import ENGINES

if TYPE_CHECKING:
    from eventq import Thread

STEPS = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    own, one = thread.runs.get(int(sys.argv[2])), thread.runs.get(1)
    say("go")
    sys.stdin.read(1)
    for n in range(20):
        own.step("r", n, f"{sys.argv[2]} {n}")
        one.step(sys.argv[2], n, "shared")
"""


def history(thread: Thread, run_id: int) -> list[int]:
    """Return the ids in the history of the day on which a run was completed."""
    at = thread.runs.get(run_id).info().completed_at_ms
    if at is None:
        return []
    return ids(thread.runs.history(f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d}"))


@pytest.mark.engines(*ENGINES)
@pytest.mark.usefixtures("quick")
def test_many_processes(thread: Thread) -> None:
    """Processes that take steps of own runs and of one together lose none, and each is in order."""
    one = thread.runs.start("solve", "the task")
    which = [thread.runs.start("w", f"{n}").id for n in range(3)]
    writers = [start(STEPS, thread.path, str(number), stdin=subprocess.PIPE) for number in which]
    for writer in writers:
        read_lines(writer, 1)
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"x")
        writer.stdin.flush()
    for writer in writers:
        assert (writer.communicate(timeout=120)[1], writer.returncode) == (b"", 0)
    for number in which:
        contents = [step.content for step in thread.runs.get(number).replay()]
        assert contents == [f"{number} {n}" for n in range(20)]
    steps = list(one.replay())
    expected = sorted((str(number), n) for number in which for n in range(20))
    assert sorted((step.role, step.meta) for step in steps) == expected
    assert [step.number for step in steps] == list(range(1, 61))
    assert [step.ancestors[0] for step in steps[1:]] == [step.ref for step in steps[:-1]]


GROWS = """
import eventq
from eventq.errors import UnknownBlobError
with eventq.open(sys.argv[1]) as thread:
    run = thread.runs.get(1)
    for n in range(60):
        while True:
            thing = thread.blobs.put(f"artifact {n}".encode()).ref
            try:
                if n % 3 == 0:
                    run.attempt(eventq.NewStep("a", content=f"failed {n}", refs=[thing]))
                compact = "sum" if n % 7 == 0 else None
                run.step(eventq.NewStep("a", n, f"content {n}", refs=[thing], compact=compact))
                break
            except UnknownBlobError:
                pass
        if n % 5 == 0:
            run.fork().context.delete()
        if n % 6 == 0:
            run.poke(n, "poked", refs=[thing] if thread.blobs.has(thing) else [])
        if n == 0:
            say("go")
"""


@pytest.mark.engines(*ENGINES)
@pytest.mark.usefixtures("quick")
def test_collecting_while_steps_are_taken(thread: Thread) -> None:
    """Collections without grace beside a process that takes steps leave no blob missing."""
    run = thread.runs.start("solve", "the task")
    writer = start(GROWS, thread.path)
    read_lines(writer, 1)
    rounds = 0
    while writer.poll() is None:
        thread.gc(apply=True, grace=0)
        rounds += 1
    assert (writer.communicate(timeout=60)[1], writer.returncode) == (b"", 0)
    assert rounds > 0
    steps = list(run.replay())
    assert [step.meta for step in steps] == list(range(60))
    for step in steps:
        for ref in step.artifacts:
            name = f"artifact {step.meta}".encode()
            assert (ref, thread.blobs.get(ref)) == (ref_of(name), name)


ENDS = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    runs = thread.runs
    known = [info.run_id for info in runs.active()]
    thread.settings.set("runs.emit", "on")
    say("go")
    fall(int(sys.argv[2]))
    for n in range(100000):
        run = runs.start(eventq.NewRun("w", f"{sys.argv[3]} {n}", group="killed"))
        say(f"start {run.id}")
        step = run.step(eventq.NewStep("a", n, "x" * (n % 7 * 300), edge_prompt="go"))
        say(f"step {run.id} {step.ref}")
        if n % 3 == 0 and known:
            run = runs.get(known.pop())
        say(f"end {run.id} {run.end(n).ref}")
        if n % 4 == 0:
            run.resume()
            say(f"resume {run.id} -")
"""


def whole(thread: Thread) -> None:
    """Check that each run is in one of the lists, as its head says, and each move has an event."""
    active, moves = ids(thread.runs.active()), 0
    for info in list(thread.runs):
        run = thread.runs.get(info.run_id)
        steps = list(run.replay())
        ends = [step for step in steps if step.role == "__end__"]
        assert (info.run_id in active) != (info.run_id in history(thread, info.run_id))
        assert len(steps) == info.depth
        assert info.status == "active" or steps[-1].role == "__end__"
        moves += run.context.info().version
        resumed = "resume" in [move.op for move in run.context.history()]
        assert bool(ends) == (info.status == "completed" or resumed)
    assert thread.last_id() == moves


@pytest.mark.engines(*ENGINES)
def test_completing_is_one_moment(thread: Thread) -> None:
    """After each of five kills a run is in one list, and all that was acknowledged is there."""
    said: dict[int, tuple[str, str]] = {}
    kills = zip(numbers(7, 5, 1, 40), numbers(8, 5, 100, 20_000), strict=True)
    for number, (count, call) in enumerate(kills):
        by_call = number % 2
        process = start(ENDS, thread.path, str(int(call) if by_call else 0), str(number))
        out = read_lines(process, None if by_call else 1 + int(count)) + kill(process)
        for line in out.decode().split("\n")[1:-1]:
            word, which, ref = (*line.split(), "-")[:3]
            said[int(which)] = (word, ref)
        whole(thread)
        for run_id, (word, ref) in said.items():
            run = thread.runs.get(run_id)
            assert ref == "-" or ref in {step.ref for step in run.replay()}
            if word == "end":  # nobody resumes it without saying so, but for what was under way
                resumed = run.context.info().version > run.info().depth + 1
                assert resumed or run_id in history(thread, run_id)
        assert [*thread.database.memory.faults("turns"), *thread.blobs.faults()] == []
    assert said
    assert thread.push("self", "note", "the next push, which makes the mirror whole").id > 1


ENDS_ONCE = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    thread.settings.set("runs.emit", "off")
    run = thread.runs.start("w", sys.argv[2])
    run.step("a", content="x")
    thread.settings.set("runs.emit", "on")
    left = [int(sys.argv[2])]
    def count(cursor, sql, bindings):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        return True
    thread.database.connection.exec_trace = count
    run.end()
    say("done")
"""


@pytest.mark.usefixtures("quick")
def test_completing_has_no_half(thread: Thread) -> None:
    """Killed at any statement of an end, a run is active without an end or completed with one."""
    states = {("active", (1,), True, False, False), ("completed", (1, 2), False, True, True)}
    for number in range(1, 60):
        process = start(ENDS_ONCE, thread.path, str(number))
        out = read_lines(process) + kill(process)
        run = thread.runs.get(number)
        active, done = ids(thread.runs.active()), history(thread, number)
        steps = tuple(step.number for step in run.replay())
        state = (run.info().status, steps, number in active, number in done, thread.last_id() > 0)
        assert state in states
        if state[0] == "completed" or b"done" in out:
            break
    assert (state[0], number > 5) == ("completed", True)
    thread.push("self", "note", "the next push, which makes the mirror whole")
