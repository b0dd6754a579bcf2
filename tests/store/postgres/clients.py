"""Programs that use one thread together and record every answer, and what must hold of those."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import eventq
from tests.store.postgres.machines import until

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
LEASE = 0.4
WRITERS = "single", "batch", "keyed", "keyed too", "speaker", "runner", "maker"
SLACK = 0.002  # seconds; a server's times are whole ms
ROLES = {
    "single": "single", "batch": "batch", "keyed": "keyed", "keyed too": "keyed",
    "reader": "reader", "worker": "worker", "other worker": "worker",
    "speaker": "speaker", "runner": "runner", "maker": "maker",
}  # fmt: skip
PROGRAM = """
import json, os, sys, time
import eventq
from eventq.errors import (
    BusyError, LeaseLostError, StoreError, UnknownContextError, UnknownOutcomeError, UnknownRunError,
)

url, folder, role, name, lease, started = *sys.argv[1:-1], int(sys.argv[-1])
file = open(os.path.join(folder, name), "a", buffering=1)
over, at, lease = os.path.join(folder, "over"), 0, float(lease)

def note(*words):
    file.write(json.dumps(words) + "\\n")

def single(thread, n):
    note("acked", f"{name} {n}", thread.push("self", "note", f"{name} {n}").id)

def keyed(thread, n):
    note("acked", f"k{n}", thread.push("self", "note", f"k{n}", key=f"k{n}").id)

def batch(thread, n):
    made = thread.push_many([("self", "note", f"{name} {n}.{i}") for i in range(4)])
    for i, number in enumerate(range(made.first_id, made.last_id + 1)):
        note("acked", f"{name} {n}.{i}", number)

def reader(thread, n):
    global at
    for event in thread.follow(at):
        at = event.id
        note("saw", event.content, event.id)

def worker(thread, n):
    for claim in thread.claim("w", limit=3, lease=lease, wait=0.1):
        note("has", claim.token, claim.event.id, claim.deadline - lease)
        note("settles", claim.token, time.time())
        try:
            claim.done()
            note("done", claim.event.id)
        except LeaseLostError:
            note("lost", claim.event.id)
        except UnknownOutcomeError:
            note("unsure", claim.event.id)
        except StoreError:
            pass

def found(get, make):
    try:
        return get()
    except (UnknownContextError, UnknownRunError):
        return make()

def speaker(thread, n):
    contexts = thread.contexts
    context = found(lambda: contexts.get(name), lambda: contexts.create(name))
    note("said", n, context.append(f"{n}", key=f"{name} {n}", source="self").turn_id)

def runner(thread, n):
    label = f"{name} {n // 10}"
    run = found(lambda: thread.runs.get(label), lambda: thread.runs.start("w", "go", label=label))
    if n % 10 < 9:
        note("step", label, n, run.step("a", n, f"step {n}", key=f"{n}").ref)
    elif run.info().status == "active":
        run.end(n)

def maker(thread, n):
    with thread.artifacts.allocate(f"t{n}") as writer:
        for at in range(4):
            writer.write(b"%d %d\\n" % (n, at) * 10_000)
            if at % 2:
                writer._since = 0.0  # long ago, so that it is stored
                writer.tick()
    note("sealed", n, writer.artifact_id)
    with thread.write():
        thread.outputs.publish(f"{n}-a", f"{n}")
        thread.outputs.publish(f"{n}-b", f"{n}")
    note("published", n)

n = started  # what was not noted is done again
while not os.path.exists(over) or role == "worker":
    try:
        with eventq.open(url) as thread:
            while not os.path.exists(over) or role == "worker":
                try:
                    globals()[role](thread, n)
                    n += 1
                except UnknownOutcomeError:
                    n += role in ("single", "batch")  # there, or not; what has a key is repeated
    except StoreError:
        pass  # nothing of it is stored
"""


class Clients:
    """One process for each role, which writes what it was told into a file."""

    def __init__(self, url: str, place: str, folder: Path) -> None:
        """Start them on a URL; `place` is another one of the same thread, for the test itself."""
        self.place = place
        self._url = url
        self._folder = folder
        with eventq.open(place) as thread:
            thread.subscribe("w", max_attempts=1_000)
        self.processes = {name: self._start(name, 0) for name in ROLES}

    def _start(self, name: str, number: int) -> subprocess.Popen[bytes]:
        """Start one, which begins with a number."""
        words = (self._url, str(self._folder), ROLES[name], name, str(LEASE), str(number))
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT},
        )

    def replace(self, name: str) -> None:
        """Kill one whose changes have keys, or are noted, and start it with the next number."""
        self.processes[name].kill()
        self.processes[name].wait()
        noted = [row[1] for row in self.noted(name) if row[0] in ("said", "sealed")]
        steps = [row[2] for row in self.noted(name) if row[0] == "step"]
        self.processes[name] = self._start(name, max([*noted, *steps], default=-1) + 1)

    def noted(self, name: str) -> list[list[Any]]:
        """Return what a client has written, without a line that is not whole yet."""
        path = self._folder / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def all(self, word: str) -> list[list[Any]]:
        """Return what follows a word in what all have written."""
        return [row[1:] for name in ROLES for row in self.noted(name) if row[0] == word]

    def go_on(self, *without: str, count: int = 8) -> None:
        """Wait until each client, but for some, has got so many more answers."""
        names = [name for name in ROLES if name not in without]
        goals = {name: len(self.noted(name)) + count for name in names}
        until(lambda: all(len(self.noted(name)) >= goals[name] for name in names), "all go on")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a client."""
        self.processes[name].send_signal(number)

    def finish(self) -> None:
        """Let the writers end, and the others when all is read and done; then check it all."""
        (self._folder / "over").touch()
        for name in WRITERS:
            assert self.processes[name].wait(timeout=100) == 0
        with eventq.open(self.place) as thread:
            last = thread.last_id()
            until(lambda: self.noted("reader")[-1][2] == last, "all is read")
            until(lambda: thread.status().consumers[0].last_acked_id == last, "all is done")
            self.close()
            self.check(thread)

    def close(self) -> None:
        """End them."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def check(self, thread: eventq.Thread) -> None:
        """Check what must hold whatever happened to connections, processes and servers."""
        stored = {event.id: event.content for event in thread.peek(limit=None)}
        assert [*stored] == [*range(1, len(stored) + 1)]
        pushed = [event.content for event in thread.peek(limit=None) if event.type == "note"]
        assert len({*pushed}) == len(pushed)  # nothing is there twice, or under two ids
        assert all(stored[number] == content for content, number in self.all("acked"))
        assert [(number, content) for content, number in self.all("saw")] == [*stored.items()]
        (consumer,) = thread.status().consumers
        assert (consumer.last_acked_id, consumer.unfinished, consumer.dead) == (len(stored), 0, 0)
        assert {number for word in ("done", "unsure") for (number,) in self.all(word)} >= {*stored}
        self.check_leases()
        self.check_memory(thread)
        assert thread.check() == []

    def check_memory(self, thread: eventq.Thread) -> None:
        """Check that turns, steps, artifacts and outputs are there once, whole and in order."""
        turns = [*thread.contexts.get("speaker").replay()]
        assert [turn.payload for turn in turns] == [b"%d" % n for n in range(len(turns))]
        assert {turn_id for _, turn_id in self.all("said")} <= {turn.turn_id for turn in turns}
        reported = [event for event in thread.peek(limit=None) if event.type == "record"]
        assert len(reported) == len(turns)
        steps = [step for info in thread.runs for step in thread.runs.get(info.run_id).replay()]
        taken = [step.meta for step in steps if step.role == "a"]
        assert taken == [n for n in range(taken[-1] + 1) if n % 10 < 9]
        assert {ref for _, _, ref in self.all("step")} <= {step.ref for step in steps}
        ends = [step.meta["returnCode"] for step in steps if step.role == "__end__"]
        assert ends == sorted({*ends})
        sealed = {number: n for n, number in self.all("sealed")}
        for info in thread.artifacts:
            n, data = info.tool.removeprefix("t"), thread.artifacts.open(info.artifact_id).read()
            whole = b"".join(f"{n} {at}\n".encode() * 10_000 for at in range(4))
            assert data == whole if info.status == "sealed" else whole.startswith(data)
            assert info.status == "sealed" or info.artifact_id not in sealed
        published = [info.output_id for info in thread.outputs if info.version == 1]
        assert {f"{n}-{x}" for (n,) in self.all("published") for x in "ab"} <= {*published}
        versions = [info.output_id[:-2] for info in thread.outputs]
        assert all(versions.count(n) % 2 == 0 for n in versions)  # both of a change, or none

    def check_leases(self) -> None:
        """Check that no event was leased while somebody had it, by the times of the server."""
        settled: dict[str, float] = dict(self.all("settles"))
        leases: dict[int, list[tuple[float, str]]] = {}
        for token, number, begun in self.all("has"):
            leases.setdefault(number, []).append((begun, token))
        for number, held in leases.items():
            held.sort()
            for (begun, token), (after, _) in pairwise(held):
                ended = min(begun + LEASE, settled.get(token, begun + LEASE))
                assert after >= ended - SLACK, (number, held)
