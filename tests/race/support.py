"""Real processes: a thread in a folder, handlers that leave traces, and cleanup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.log.notifier import quote
from eventq.system import locks, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq.records.consumer import ConsumerStatus

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE = 120.0

# Appends whole lines to `trace`. While it runs it holds a lock of its consumer, or of its event where
# several may run at once: an overlap is seen for certain.
ALONE = """
import fcntl, os, signal, sys
folder, mode = sys.argv[1:3]
consumer, event = os.environ["EVENTQ_CONSUMER"], os.environ.get("EVENTQ_EVENT_ID", "all")
trace = os.open(f"{folder}/trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(text):
    os.write(trace, f"{consumer} {os.getpid()} {text}\\n".encode())
key = f"{consumer}-{event}" if mode == "many" else consumer
alone = os.open(f"{folder}/alone-{key}", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlap")
    sys.exit(9)
"""
HANDLER = (
    ALONE
    + """
note("start")
import eventq
at = int(os.environ["EVENTQ_LAST_ACKED_ID"])
if mode == "fail":
    sys.exit(3)
if mode == "hang":
    gate = os.open(f"{folder}/gate", os.O_RDONLY)  # a named pipe: until the test opens it
    os.read(gate, 1)
with eventq.open(os.environ["EVENTQ_THREAD"]) as thread:
    while events := thread.pop(consumer, at, limit=1 if mode == "one" else 100):
        for event in events:
            note(f"got {event.id}")
        at = events[-1].id
        if mode == "one":
            thread.ack(consumer, at)
            break
note("end")
"""
)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition: the one place where these tests wait."""
    deadline = time.monotonic() + DEADLINE
    while True:
        began = time.monotonic()
        if condition():
            return
        assert began < deadline, f"not within {DEADLINE:g} seconds: {what}"
        # Those who are waited for need the processor, and a look at all processes takes a while.
        time.sleep(min(0.05, max(0.005, 2 * (time.monotonic() - began))))


class Box:
    """A thread, its traces, and all processes that come of it."""

    def __init__(self, folder: str, name: str, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.patch = patch
        for key, value in (
            ("EVENTQ_NOTIFIER", "builtin"), ("EVENTQ_BACKOFF", "0.01"), ("EVENTQ_TEST_MARK", self.mark),
            ("PYTHONPATH", ROOT),
        ):  # fmt: skip
            patch.setenv(key, value)
        self.path = eventq.init(os.path.join(folder, name))
        self.thread = eventq.open(self.path)
        self._handler = os.path.join(folder, "handler.py")
        with open(self._handler, "w", encoding="utf-8") as file:
            file.write(HANDLER)

    def handler(self, mode: str = "all") -> str:
        """Return the command of a handler that leaves traces."""
        return "exec " + " ".join(
            quote(word) for word in (sys.executable, self._handler, self.folder, mode)
        )

    def run(
        self, *words: str, cwd: str | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line and wait for it; its output is a pipe."""
        return subprocess.run(
            processes.python(*words),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            cwd=cwd,
            env={**os.environ, **environ},
        )

    def push(self, **options: str) -> None:
        """Push an event by the command line, which says nothing."""
        words = ("--source", "self", "--type", "t", "--content", "x")
        done = self.run("push", "--thread", self.path, *words, **options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def hang(self, **options: Any) -> None:
        """Push an event whose handler waits at the gate, and wait for it."""
        os.mkfifo(os.path.join(self.folder, "gate"))
        self.thread.subscribe("w", self.handler("hang"), **options)
        self.thread.push("self", "test", "x")
        until(lambda: self.trace("start"), "the handler runs")

    def open_gate(self) -> None:
        """Let the handler at the gate go on."""
        os.close(os.open(os.path.join(self.folder, "gate"), os.O_WRONLY))

    def start(self, code: str, *words: str) -> subprocess.Popen[str]:
        """Start a small program."""
        return subprocess.Popen(
            [sys.executable, "-c", code, self.path, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def trace(self, word: str = "") -> list[str]:
        """Return the traces that hold a word."""
        try:
            with open(os.path.join(self.folder, "trace"), encoding="utf-8") as file:
                return [line for line in file.read().splitlines() if word in line.split()]
        except FileNotFoundError:
            return []

    def journal(self, text: str = "") -> list[str]:
        """Return the lines of the journal that hold a text."""
        folder = os.path.join(self.path, "logs")
        lines: list[str] = []
        for name in sorted(n for n in os.listdir(folder) if n.startswith("thread")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines += file.read().splitlines()
        return [line for line in lines if text in line]

    def consumer(self, name: str = "w") -> ConsumerStatus:
        """Return what is known of a consumer."""
        return next(info for info in self.thread.status().consumers if info.consumer_id == name)

    def held(self, name: str = "w") -> bool:
        """Return whether a supervisor looks after a consumer."""
        return locks.held(self.thread.layout.consumer(name))

    def quiet(self) -> bool:
        """Return whether no process of this folder runs; a dying one may still hold locks."""
        return not self.alive()

    def alive(self) -> list[int]:
        """Return the processes that came of this box: they inherited its mark."""
        return [pid for pid in _pids() if pid != os.getpid() and self.mark in _environment(pid)]

    def settle(self) -> None:
        """Wait until every process that came of this box has ended.

        A dying process loses its environment before its locks: once none of ours runs, each that is dying then, whoever
        it belongs to, is waited for.
        """
        until(self.quiet, "all processes end")
        dying = {pid for pid in _pids() if _is_dying(pid)}
        until(lambda: not any(map(_is_dying, dying)), "what is dying has died")

    def supervisors(self) -> list[int]:
        """Return the pids noted in the lock files."""
        found = []
        for name in os.listdir(os.path.join(self.path, "run")):
            with open(os.path.join(self.path, "run", name), encoding="utf-8") as file:
                found += [int(line.split()[1]) for line in file if line.startswith("supervisor")]
        return found

    def handler_pid(self, name: str = "w") -> int:
        """Return the pid of the handler that the lock file of a consumer names, 0 for none."""
        with open(self.thread.layout.consumer(name).lock, encoding="utf-8") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("handler")), 0)

    def all_handled(self, name: str = "w") -> bool:
        """Return whether a consumer has acked everything."""
        return self.consumer(name).last_acked_id == self.thread.last_id()

    def close(self) -> None:
        """End everything that is left."""
        self.thread.close()

        def end() -> bool:
            for pid in (left := self.alive()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            return not left

        until(end, "what is left dies")


def together(path: str, programs: list[str], *words: str) -> list[str]:
    """Start programs simultaneously, and return their outputs; all must succeed."""
    gate, opener = os.pipe()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, path, str(n), *words], cwd=ROOT, text=True,
            env={**os.environ, "PYTHONPATH": ROOT}, stdin=gate, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for n, program in enumerate(programs)
    ]  # fmt: skip
    os.close(gate)
    os.close(opener)
    ended = [(process.communicate(timeout=DEADLINE), process.returncode) for process in started]
    assert [(complaint, code) for (_, complaint), code in ended] == [("", 0)] * len(programs)
    return [said for (said, _), _ in ended]


def _pids() -> list[int]:
    if os.path.isdir("/proc/self"):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    listed = subprocess.run(["ps", "-axo", "pid="], capture_output=True, text=True, check=True)
    return [int(word) for word in listed.stdout.split()]


def _is_dying(pid: int) -> bool:
    """Return whether a process is exiting and not yet a zombie (Linux only)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return False
    exiting = 0x4  # PF_EXITING, of the ninth field
    return fields[0] not in (b"Z", b"X") and bool(int(fields[6]) & exiting)


def _environment(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        if os.path.isdir("/proc/self"):
            return ""
    return subprocess.run(
        ["ps", "-Eww", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """Return a box; at the end nothing runs any more, and the thread checks out."""
    made = Box(str(tmp_path), "thread", monkeypatch)
    try:
        yield made
        made.settle()
        if eventq.exists(made.path):
            with eventq.open(made.path, read_only=True) as thread:
                assert thread.check() == []
        assert made.trace("overlap") == []
    finally:
        made.close()
