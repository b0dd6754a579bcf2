"""A program that is interrupted again and again: `python -m tests.race.signals DIRECTORY COUNT SEED`.

Its main thread does one thing after another on a thread, each with a signal of a timer at a random
moment, whose handler raises, as that of Ctrl-C does. Another OS thread pushes meanwhile. After each
signal both go on; what was acknowledged, and what may not be there, is judged at the end.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import eventq
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 20.0  # seconds for anything: a lock that was left behind would be waited for
LONG = 60  # repetitions of an act that are measured before it is interrupted


class Strike(KeyboardInterrupt):
    """What the handler raises."""


class Program:
    """The acts, and what they are said to have stored."""

    def __init__(self, directory: str, seed: int) -> None:
        """Open the thread, with what the acts need."""
        self.random = random.Random(seed)
        self.directory = directory
        self.thread = eventq.open(directory, create=True)
        self.thread.subscribe("pull", from_now=True)
        self.thread.subscribe("pool", from_now=True)
        self.context = self.thread.contexts.create("main")
        self.run = self.thread.runs.start("solve", "task", system={"coder": "You write code."})
        self.number = 0
        self.stored: list[str] = []  # contents of events that were acknowledged
        self.units: list[list[str]] = []  # all of each, or none of it
        self.turns: list[int] = []
        self.steps = 0
        self.acked = 0
        self.settled: list[int] = []
        self.other: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self.done: queue.Queue[object] = queue.Queue()
        self.beside = threading.Thread(target=self._beside, daemon=True)
        self.beside.start()
        self.acts: list[Callable[[], None]] = [
            self.push, self.push_many, self.pop, self.ack, self.claim, self.settle, self.append,
            self.step, self.write, self.nested, self.open, self.read, self.consume,
        ]  # fmt: skip

    def _beside(self) -> None:
        """Do in another OS thread what is asked for, and push a little in between."""
        while True:
            try:
                call = self.other.get(timeout=0.001)
            except queue.Empty:
                text = self.name()
                self.thread.push("self", "beside", text)
                self.stored.append(text)
                continue
            if call is None:
                return
            try:
                self.done.put(call())
            except BaseException as error:
                self.done.put(error)

    def name(self) -> str:
        """Return a content that no other event has."""
        self.number += 1
        return f"{threading.get_ident()} {self.number} {self.random.random()}"

    def push(self) -> None:
        """Store one event."""
        text = self.name()
        self.thread.push("self", "note", text)
        self.stored.append(text)

    def push_many(self) -> None:
        """Store three, or none."""
        texts = [self.name() for _ in range(3)]
        self.units.append(texts)
        self.thread.push_many([eventq.NewEvent("self", "note", text) for text in texts])
        self.stored += texts

    def pop(self) -> None:
        """Read."""
        self.thread.pop("pull")

    def ack(self) -> None:
        """Move a consumer on."""
        last = self.thread.last_id()
        self.thread.ack("pull", last)
        self.acked = last

    def claim(self) -> None:
        """Take work, and leave it to its lease."""
        self.thread.claim("pool", 2, lease=5)

    def settle(self) -> None:
        """Take work and do it."""
        claims = self.thread.claim("pool", 3, lease=60)
        self.thread.settle(claims)
        self.settled += [claim.event.id for claim in claims]

    def append(self) -> None:
        """Add a turn."""
        self.turns.append(self.context.append(self.name()).turn_id)

    def step(self) -> None:
        """Add a step, whose commit need not be on the disk at once."""
        self.run.step(eventq.NewStep("coder", content=self.name()))
        self.steps += 1

    def write(self) -> None:
        """Store an event and a turn, or none of both."""
        texts = [self.name(), self.name()]
        self.units.append(texts)
        with self.thread.write():
            self.thread.push("self", "note", texts[0])
            self.context.append("in a transaction")
            self.thread.push("self", "note", texts[1])
        self.stored += texts

    def nested(self) -> None:
        """Undo an inner transaction and commit the one around it."""
        texts = [self.name(), self.name()]
        self.units.append(texts)
        with self.thread.write():
            self.thread.push("self", "note", texts[0])
            try:
                with self.thread.write():
                    self.thread.push("self", "note", "never")
                    raise LookupError
            except LookupError:
                pass
            self.thread.push("self", "note", texts[1])
        self.stored += texts

    def open(self) -> None:
        """Open the thread once more, push and close."""
        text = self.name()
        with eventq.open(self.directory) as again:
            again.push("self", "note", text)
            self.stored.append(text)

    def read(self) -> None:
        """Read at one moment."""
        with self.thread.database.read() as moment:
            moment.events.last()

    def consume(self) -> None:
        """Read in a loop, as the only one."""
        for _ in self.thread.consume("pull", wait=LIMIT, idle=0):
            break

    def lengths(self) -> dict[str, float]:
        """Return about how many seconds each act takes."""
        found = {}
        for act in self.acts:
            begun = time.perf_counter()
            for _ in range(LONG):
                act()
            found[act.__name__] = (time.perf_counter() - begun) / LONG
        return found

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        """Return what a call gives in the other OS thread; fail if it has to wait too long."""
        self.other.put(call)
        try:
            found = self.done.get(timeout=LIMIT)
        except queue.Empty:
            faulthandler.dump_traceback(all_threads=True)
            raise
        if isinstance(found, BaseException):
            raise found
        return found

    def check_now(self) -> None:
        """Check that nothing is held, and nothing believed that is not so."""
        database = sqlite(self.thread.database)
        text = self.name()
        self.elsewhere(lambda: self.thread.push("self", "other", text))
        self.stored.append(text)
        with database.lock:  # the other OS thread pushes on
            assert not database.depth
            level = database.connection.pragma("synchronous")
            assert database.is_relaxed or level == 2, "durability"
            assert database.connection.get_autocommit()


def strikes(program: Program, count: int) -> Iterator[str]:
    """Interrupt acts until so many have been; yield where the program is, now and then."""
    armed = False

    def handler(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Strike

    signal.signal(signal.SIGALRM, handler)
    lengths, done = program.lengths(), 0
    kept: list[BaseException] = []  # as a REPL keeps the last traceback
    while done < count:
        act = program.random.choice(program.acts)
        after = program.random.uniform(0, 1.3) * lengths[act.__name__]
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
            act()
            armed = False
        except Strike as error:
            kept[:] = [error]
            done += 1
            program.check_now()
            if done % 500 == 0:
                yield f"{done} {act.__name__}"
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)


def check_all(program: Program) -> None:
    """Check that what was acknowledged is there, and of a unit all or nothing."""
    thread, stored = program.thread, [*program.stored]
    program.elsewhere(lambda: thread.push("self", "note", "last"))
    assert thread.check() == [], thread.check()[:3]
    rows = thread.sql("SELECT content, count(*) AS count FROM events GROUP BY 1")
    contents = {row["content"]: row["count"] for row in rows}
    missing = [text for text in stored if contents.get(text) != 1]
    assert not missing, [(text, contents.get(text)) for text in missing[:9]]
    assert "never" not in contents
    for texts in program.units:
        assert len({text in contents for text in texts}) == 1, texts
    for turn in program.turns:
        assert thread.contexts.turn(turn, payload=False).turn_id == turn
    assert program.run.info().depth >= program.steps


def main(directory: str, count: int, seed: int) -> None:
    """Run it; print how far it is."""
    program = Program(directory, seed)
    for where in strikes(program, count):
        print(where, flush=True)
    check_all(program)
    print("sound", len(program.stored), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
