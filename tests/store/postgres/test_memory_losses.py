"""Connections that are cut at any message of a change of the memory, and processes that are killed.

The kind: something is there in part, twice, or not at all though it was acknowledged. A change is
cut before the server gets a message, or once it has acted on it and before the client hears of that:
at its reads, its BEGIN, in its middle, at its COMMIT. What was acknowledged is there; of what is one
change all is there or nothing; where nobody knows, that is said; and to do it again does it once.

Members (`WORKS`): a turn, in one piece, in parts, as a stream, with an event; a step with attempts,
the end of a run; a blob of a file; a patch, a fork; deltas and the seal of an open turn; an artifact
that is stored on the way, an artifact as one change, an output; a session file, a pack, a copy; a
collection, an erasure; several of them in one transaction. And what only reads (`READS`), page by
page or at one moment: it is read again, and nobody hears of that.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from blake3 import blake3

import eventq
from eventq.errors import EventqError, UnknownOutcomeError
from eventq.output import artifacts
from eventq.records.run import NewStep
from eventq.store.postgres.connection import Link
from tests.contract.pack_files import tree
from tests.contract.runs import full
from tests.running import is_killed
from tests.servers import fresh
from tests.sessions.support import says
from tests.store.postgres.pooler import Pooler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CHANCE = random.Random(29)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _CHANCE.randrange(10**9)) for n in range(6_000))
NOISE = _CHANCE.randbytes(1_300_000)
ABSENT, PART, WHOLE = "absent", "part", "whole"


class Bench:
    """Where the works are done: the thread itself, another one to copy from, a folder for files."""

    def __init__(self, direct: eventq.Thread, other: eventq.Thread, folder: Path) -> None:
        self.direct, self.other, self.folder = direct, other, folder
        self.main = direct.contexts.create("main")
        self.main.append("begin")
        self.ids: dict[int, int] = {}  # what was prepared for a number

    def open_again(self) -> None:
        """Open the threads in a process that was forked."""
        self.direct, self.other = eventq.open(self.direct.path), eventq.open(self.other.path)
        self.main = self.direct.contexts.get("main")

    def turns(self, payload: bytes, context: str = "main") -> str:
        """Return whether a turn is there, which is not there twice."""
        found = [turn.payload for turn in self.direct.contexts.get(context).replay()]
        assert found.count(payload) <= 1
        return WHOLE if payload in found else ABSENT


class Work:
    """A piece of work, done for one number after another; by default it is one change."""

    is_one = True

    def prepare(self, bench: Bench, n: int) -> None:
        """Make what it needs."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        """Do it; to do it again, whatever became of it, does it once."""
        raise NotImplementedError

    def look(self, bench: Bench, n: int) -> str:
        """Return how much of it is there."""
        raise NotImplementedError


class Append(Work):
    """A turn in one piece, which an event reports."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return thread.contexts.get("main").append(b"turn %d" % n, key=f"k{n}", source="self")

    def look(self, bench: Bench, n: int) -> str:
        assert bench.direct.last_id() == bench.main.info().head_depth
        return bench.turns(b"turn %d" % n)


class Long(Work):
    """A turn of a payload in parts, most of which are there already."""

    def data(self, n: int) -> bytes:
        return b"%d" % n + TEXT[:200_000]

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return thread.contexts.get("main").append(self.data(n), key=f"k{n}")

    def look(self, bench: Bench, n: int) -> str:
        return bench.turns(self.data(n))


class Streamed(Work):
    """A blob of a file, in parts that are stored ahead of it."""

    def data(self, n: int) -> bytes:
        return b"%d" % n + NOISE

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return thread.blobs.put(io.BytesIO(self.data(n)))

    def look(self, bench: Bench, n: int) -> str:
        found = bench.direct.blobs.get(blake3(self.data(n)).hexdigest())
        assert found in (None, self.data(n))
        return ABSENT if found is None else WHOLE


class OfARun(Work):
    """What is done to a run of its own."""

    def prepare(self, bench: Bench, n: int) -> None:
        run = bench.direct.runs.start("w", f"go {n}", label=f"r{n}")
        run.step("a", content="first")


class Step(OfARun):
    """A step with an attempt before it, a summary and a blob."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        thing = thread.blobs.put(b"thing %d" % n).ref
        tried = [NewStep("b", content=f"tried {n}")]
        new = NewStep("b", n, f"step {n}", [thing], compact=f"sum {n}", attempts=tried)
        return thread.runs.get(f"r{n}").step(new, key="k")

    def look(self, bench: Bench, n: int) -> str:
        run = bench.direct.runs.get(f"r{n}")
        steps = [*run.replay()]
        assert run.info().depth == len(steps) <= 2
        assert [len(step.attempts) for step in steps[1:]] in ([], [1])
        return WHOLE if len(steps) == 2 else ABSENT


class End(OfARun):
    """The end of a run."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        run = thread.runs.get(f"r{n}")
        return run.info().status == "active" and run.end()

    def look(self, bench: Bench, n: int) -> str:
        run = bench.direct.runs.get(f"r{n}")
        ends = [step for step in run.replay() if step.role == "__end__"]
        is_over = run.info().status == "completed"
        assert len(ends) == is_over
        return WHOLE if is_over else ABSENT


class Patch(Work):
    """A patch of a turn and a fork from it, in one transaction."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        if self.look(bench, n) == WHOLE:
            return None
        with thread.write():
            thread.contexts.patch(1, b"patched %d" % n)
            return thread.contexts.fork("main", at=1, name=f"f{n}")

    def look(self, bench: Bench, n: int) -> str:
        names = [info.name for info in bench.direct.contexts].count(f"f{n}")
        is_patched = bench.direct.contexts.turn(1).payload == b"patched %d" % n
        assert names == is_patched
        return WHOLE if names else ABSENT


class Sealed(Work):
    """An open turn that grows and is sealed: three changes."""

    is_one = False

    def prepare(self, bench: Bench, n: int) -> None:
        bench.ids[n] = bench.main.open_turn().id

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        if self.look(bench, n) == WHOLE:
            return None
        opened = thread.contexts.open_turn(bench.ids[n])
        while (size := opened.info().size) < 2:
            opened.append_delta(f"{n:>4}ab".encode()[4 + size : 5 + size])
        opened.append_delta(b"%d" % n)
        return opened.seal(key=f"seal {n}")

    def look(self, bench: Bench, n: int) -> str:
        opened = {info.open_id: info.size for info in bench.direct.contexts.open_turns()}
        found = [turn.payload for turn in bench.main.replay()]
        # A delta whose answer is lost may be there twice: it has no key.
        sealed = [one for one in (b"ab%d" % n, b"ab%d%d" % (n, n)) if one in found]
        assert len(sealed) + (bench.ids[n] in opened) == 1
        return WHOLE if sealed else PART


class Written(Work):
    """An artifact that is stored several times while it is written."""

    is_one = False

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        with thread.artifacts.allocate(f"w{n}") as writer:
            for at in range(0, 300_000, 50_000):
                writer.write(NOISE[at : at + 50_000])
        return writer

    def look(self, bench: Bench, n: int) -> str:
        found = [info for info in bench.direct.artifacts if info.tool == f"w{n}"]
        for info in found:
            data = bench.direct.artifacts.open(info.artifact_id).read()
            assert NOISE[:300_000].startswith(data)
            assert (info.status == "sealed") <= (len(data) == 300_000)
        states = {info.status for info in found}
        assert states <= {"sealed", "failed", "open", "partial"}
        return WHOLE if "sealed" in states else PART if states else ABSENT


class Put(Work):
    """An artifact as one change."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return self.look(bench, n) == WHOLE or thread.artifacts.put(NOISE[:150_000], f"p{n}")

    def look(self, bench: Bench, n: int) -> str:
        found = [info for info in bench.direct.artifacts if info.tool == f"p{n}"]
        assert [info.status for info in found] in ([], ["sealed"])
        return WHOLE if found else ABSENT


class Output(Work):
    """An output of a child, and a second version of it, in one transaction."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        if self.look(bench, n) == WHOLE:
            return None
        with thread.write():
            thread.outputs.publish(f"{n}-a.0-b", b"first")
            return thread.outputs.publish(f"{n}-a.0-b", TEXT[:80_000])

    def look(self, bench: Bench, n: int) -> str:
        found = [info.version for info in bench.direct.outputs if info.output_id == f"{n}-a.0-b"]
        assert found in ([], [1, 2])
        return WHOLE if found else ABSENT


class Session(Work):
    """A session file."""

    is_one = False

    def prepare(self, bench: Bench, n: int) -> None:
        lines = [says(f"u{at}", f"u{at - 1}" if at else None, f"{n} {at}") for at in range(30)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (bench.folder / f"s{n}.jsonl").write_text(text)

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return thread.sessions.import_file(str(bench.folder / f"s{n}.jsonl"), name=f"s{n}")

    def look(self, bench: Bench, n: int) -> str:
        sessions = bench.direct.sessions
        if f"s{n}" not in [info.name for info in sessions.views.all()]:
            return ABSENT
        whole = (bench.folder / f"s{n}.jsonl").read_bytes()
        branches = sessions.views.branches(f"s{n}")
        if not branches:
            return PART
        assert b"".join(sessions.lines(f"s{n}")) == whole
        return WHOLE


class Copied(Work):
    """What another thread has: turns, an artifact and an output."""

    is_one = False

    def prepare(self, bench: Bench, n: int) -> None:
        self.fill(bench.other, n)

    def fill(self, other: eventq.Thread, n: int) -> None:
        """Fill another thread."""
        context = other.contexts.create(f"c{n}")
        for at in range(5):
            context.append(f"{n} {at}")
        other.scope(f"c{n}").artifacts.put(NOISE[:70_000])
        other.scope(f"c{n}").outputs.put("a", f"output {n}")

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return bench.other.copy_to(thread, [f"c{n}"])

    def look(self, bench: Bench, n: int) -> str:
        names = [info.name for info in bench.direct.contexts]
        if f"c{n}" not in names:
            return ABSENT
        context = bench.direct.contexts.get(f"c{n}")
        if [turn.payload for turn in context.replay()] != [b"%d %d" % (n, at) for at in range(5)]:
            return PART
        found = bench.direct.scope(f"c{n}")
        made = [*found.artifacts], [*found.outputs]
        return WHOLE if [*map(len, made)] == [1, 1] else PART


class Pack(Copied):
    """The same, in a pack."""

    def prepare(self, bench: Bench, n: int) -> None:
        (bench.folder / f"{n}").mkdir()
        with eventq.open(bench.folder / f"of {n}", create=True) as other:
            self.fill(other, n)
            other.export_pack(bench.folder / f"{n}")

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return thread.import_pack(str(bench.folder / f"{n}"))


class Collected(Work):
    """A collection of a dead turn."""

    def prepare(self, bench: Bench, n: int) -> None:
        context = bench.direct.contexts.create(f"g{n}")
        context.append(b"dead %d" % n)
        context.delete()

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        return thread.gc(apply=True, grace=0)

    def look(self, bench: Bench, n: int) -> str:
        is_there = bench.direct.blobs.has(blake3(b"dead %d" % n).hexdigest())
        return ABSENT if is_there else WHOLE


class Erased(Work):
    """An erasure of a turn, which is two changes: what is begun is seen by a check until its end."""

    is_one = False

    def prepare(self, bench: Bench, n: int) -> None:
        bench.ids[n] = bench.main.append(b"secret %d" % n).turn_id

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        if self.look(bench, n) == WHOLE:
            return None
        return thread.erasures.turn(bench.ids[n])

    def look(self, bench: Bench, n: int) -> str:
        past = bench.direct.erasures.get("turn", bench.ids[n])
        said = bench.direct.contexts.turn(bench.ids[n]).payload
        assert said in (None, b"secret %d" % n)
        if past is None:
            assert said
            return ABSENT
        return WHOLE if past.finished and not said else PART


class Together(Work):
    """A turn, a step, an artifact, an output and an event in one transaction."""

    def do(self, bench: Bench, thread: eventq.Thread, n: int) -> object:
        if self.look(bench, n) == WHOLE:
            return None
        with thread.write():
            thread.contexts.get("main").append(b"together %d" % n)
            thread.runs.start("w", f"together {n}", label=f"t{n}").step("a", content="x")
            thread.artifacts.put(b"x", f"t{n}")
            thread.outputs.publish(f"{n}-t", b"x")
            return thread.push("self", "note", f"together {n}")

    def look(self, bench: Bench, n: int) -> str:
        direct = bench.direct
        found = {
            bench.turns(b"together %d" % n) == WHOLE,
            f"t{n}" in [info.label for info in direct.runs],
            f"t{n}" in [info.tool for info in direct.artifacts],
            f"{n}-t" in [info.output_id for info in direct.outputs],
            f"together {n}" in [event.content for event in direct.peek(limit=None)],
        }
        assert len(found) == 1
        return WHOLE if True in found else ABSENT


_ALL = (
    Append, Long, Streamed, Step, End, Patch, Sealed, Written, Put, Output, Session, Copied, Pack, Collected,
    Erased, Together,
)  # fmt: skip
WORKS: dict[str, Callable[[], Work]] = {work.__name__: work for work in _ALL}


@pytest.fixture
def bench(postgres: str, path: str, tmp_path: Path, quick: None) -> Iterator[Bench]:
    """Return where the works are done; the thread must check out at the end."""
    folder = tmp_path / "files"
    folder.mkdir()
    with eventq.open(fresh(postgres)) as direct, eventq.open(path) as other:
        yield Bench(direct, other, folder)
        assert direct.check() == []


def outcome(work: Work, bench: Bench, thread: eventq.Thread, n: int) -> str:
    """Return the name of the error that a work ends in, or nothing."""
    try:
        work.do(bench, thread, n)
    except EventqError as error:
        return type(error).__name__
    return ""


def some(count: int, most: int) -> list[int]:
    """Return numbers up to `count`, about as many as allowed: the last ones, and others evenly."""
    step = max(1, count // max(1, most - 2))
    return sorted({*range(1, count + 1, step), *range(max(1, count - 1), count + 1)})


# In the suite each work is cut at some messages, over one of two forms of URLs.
FORMS = "session", "pooled"
EVERY = 1_000
CASES = [
    *((name, FORMS[number % 2], 4) for number, name in enumerate(WORKS)),
    *(
        pytest.param(name, form, EVERY, marks=pytest.mark.soak)
        for name in WORKS
        for form in FORMS
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "form", "most"), CASES)
def test_a_connection_that_is_cut(
    name: str, form: str, most: int, bench: Bench, pooler: Pooler, monkeypatch: Any
) -> None:
    """What was acknowledged is there; nothing is there in part or twice; it can be done again."""
    monkeypatch.setattr(artifacts, "COMMIT_BYTES", 1 << 16)
    work, n, far = WORKS[name](), 1, 1 << 30
    place = f"{pooler.url}&thread={bench.direct.path.rpartition('thread=')[2]}"
    with eventq.open(place + "&pooled=1" * (form == "pooled")) as thread:
        for _ in range(2):  # the first time, more is read
            work.prepare(bench, n)
            pooler.cut(far, is_done=True)
            assert outcome(work, bench, thread, n) == ""
            count, n = far - pooler.left, n + 1
        cuts = 0
        for is_done in (False, True):
            for number in some(count, most):
                work.prepare(bench, n)
                assert work.look(bench, n) != WHOLE
                pooler.cut(number, is_done=is_done)
                found = outcome(work, bench, thread, n)
                cuts += not pooler.left
                pooler.cut(0, is_done=False)
                with bench.direct.write():
                    pass  # the server has ended what it was told before the cut
                state = work.look(bench, n)
                where = f"{number} of {count}, done: {is_done}, {found or 'acknowledged'}: {state}"
                assert found in ("", "BusyError", "UnknownOutcomeError"), where
                assert found or state == WHOLE, where
                if work.is_one:
                    assert state != PART, where
                    assert state == ABSENT or found in ("", "UnknownOutcomeError"), where
                assert outcome(work, bench, thread, n) == "", where
                assert work.look(bench, n) == WHOLE, where
                n += 1
        assert cuts > 2


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("status", ["sealed", "failed"])
def test_an_artifact_whose_end_is_unknown(
    status: str, is_done: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer ends it again, and is told what it is, whether the first time did it or not."""
    database: Any = bench.direct.database
    link, script = database.link, database.link.script

    def lose(text: str) -> object:
        """Lose the connection at a COMMIT, before or after it."""
        if not text.endswith("COMMIT"):
            return script(text)
        monkeypatch.undo()
        if is_done:
            script(text)
        return link.run("SELECT pg_terminate_backend(pg_backend_pid())", {})

    writer = bench.direct.artifacts.allocate("w")
    writer.write(b"hello")
    monkeypatch.setattr(link, "script", lose)
    with pytest.raises(UnknownOutcomeError):
        writer.seal() if status == "sealed" else writer.fail("so")
    assert bench.direct.artifacts.get(0).status == (status if is_done else "open")
    if status == "sealed":
        assert writer.seal() == bench.direct.artifacts.get(0)
    else:
        writer.fail("so")
    assert bench.direct.artifacts.get(0).status == status


def killed(work: Work, bench: Bench, n: int, number: int) -> bool:
    """Do a work in a process that is killed before or after its n-th trip; False if it has fewer."""
    left, trip = [number], vars(Link)["trip"]

    def count(self: Link, send: Any) -> Any:
        left[0] -= 1
        if not left[0] and number % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        found = trip(self, send)
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    def counted() -> None:
        bench.open_again()
        with eventq.open(bench.direct.path) as thread:
            Link.trip = count  # type: ignore[method-assign]
            work.do(bench, thread, n)

    return is_killed(counted)


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", WORKS)
def test_a_process_that_is_killed(
    name: str, stride: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there in part or twice; nobody is kept out; another process does it again."""
    monkeypatch.setattr(artifacts, "COMMIT_BYTES", 1 << 16)
    work, n, number, going = WORKS[name](), 0, min(stride, 3) - stride, True
    while going:
        n, number = n + 1, number + stride
        work.prepare(bench, n)
        going = killed(work, bench, n, number)
        state = work.look(bench, n)
        assert going or state == WHOLE
        assert state != PART or not work.is_one, number
        with eventq.open(bench.direct.path) as thread:
            assert outcome(work, bench, thread, n) == ""
        assert work.look(bench, n) == WHOLE
    assert n > 1


def exported(thread: eventq.Thread, folder: Path) -> object:
    """Return a pack of the thread."""
    path = folder / uuid4().hex
    path.mkdir()
    thread.export_pack(str(path))
    return tree(path)


def copied(thread: eventq.Thread, folder: Path) -> object:
    """Return what a copy of the thread holds."""
    with eventq.open(folder / uuid4().hex, create=True) as copy:
        thread.copy_to(copy)
        return [*copy.blobs], [turn.payload for turn in copy.contexts.get("main").replay()]


READS: dict[str, Callable[[eventq.Thread, Path], object]] = {
    "status": lambda thread, _: thread.status()[1:],
    "check": lambda thread, _: thread.check(),
    "warnings": lambda thread, _: thread.warnings(),
    "reachable": lambda thread, _: thread.reachable(["turn:2"]),
    "collection": lambda thread, _: thread.gc(grace=0),
    "replay": lambda thread, _: [*thread.contexts.get("main").replay()],
    "messages": lambda thread, _: thread.runs.get("full").messages("b"),
    "produced": lambda thread, _: [thread.artifacts.open(one.artifact_id).read() for one in thread.artifacts],
    "places": lambda thread, _: [*thread.erasures.find("quick brown")],
    "exported": exported,
    "copied": copied,
}  # fmt: skip


@pytest.mark.parametrize("most", [4, pytest.param(EVERY, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", READS)
def test_a_read_that_is_cut(name: str, most: int, bench: Bench, pooler: Pooler) -> None:
    """It is done again, over another connection, and nobody hears of that."""
    run = full(bench.direct)
    bench.direct.runs.get(run.id).fork(label="full")
    for data in (TEXT, NOISE):
        bench.direct.artifacts.put(data)
        bench.main.append(data)
    read, far, folder = READS[name], 1 << 30, bench.folder
    with eventq.open(f"{pooler.url}&thread={bench.direct.path.rpartition('thread=')[2]}") as thread:
        expected = read(thread, folder)
        pooler.cut(far, is_done=True)
        assert read(thread, folder) == expected
        count = far - pooler.left
        for is_done in (False, True):
            for number in some(count, most):
                pooler.cut(number, is_done=is_done)
                assert read(thread, folder) == expected, (number, count, is_done)
                pooler.cut(0, is_done=False)
