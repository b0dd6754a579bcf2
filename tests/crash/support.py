"""Deliberate faults: a failing disk, a power cut, and processes killed at a chosen moment."""

from __future__ import annotations

import functools
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import DiskError
from eventq.store import opening
from eventq.store.sqlite.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE = 120.0
SECTOR = 512
BASE = apsw.vfs_names()[0]


# A disk that refuses once and one that stays full; the other pairs have found nothing of their own
# and are for the soak.
REFUSALS = [
    pytest.param(apsw.IOError, False, id="IOError-once"),
    pytest.param(apsw.FullError, True, id="FullError-lasting"),
    pytest.param(apsw.IOError, True, id="IOError-lasting", marks=pytest.mark.soak),
    pytest.param(apsw.FullError, False, id="FullError-once", marks=pytest.mark.soak),
]


# --- a disk that refuses --------------------------------------------------------------------------


class FaultyFile(apsw.VFSFile):
    """A file of a FaultyVFS: each change asks first."""

    def __init__(self, vfs: FaultyVFS, name: Any, flags: list[int]) -> None:
        super().__init__(BASE, name, flags)
        self._faults = vfs

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._faults.count("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._faults.count("sync")  # and no more: no power is cut here, and a real sync is slow

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._faults.count("truncate")
        super().xTruncate(size)


class FaultyVFS(apsw.VFS):
    """SQLite's VFS, whose n-th change after `arm` fails, or all from there with `lasting`."""

    def __init__(self, name: str, *, default: bool = False) -> None:
        self.name = name
        self.failed = ""  # what was refused, "" when nothing was
        self.refused = False
        self._left = 0
        self._lasting = False
        self._error: type[Exception] = apsw.IOError
        super().__init__(name, BASE, makedefault=default)

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802
        return FaultyFile(self, name, flags)

    def arm(self, number: int, error: type[Exception], *, lasting: bool) -> None:
        """Let the `number`-th change from now on fail."""
        self.failed, self._left, self._error, self._lasting = "", number, error, lasting

    def disarm(self) -> None:
        """Let everything pass again."""
        self._left = 0

    @contextmanager
    def opened(
        self, path: str, number: int, error: type[Exception], *, lasting: bool = False
    ) -> Iterator[eventq.Thread]:
        """Open a thread whose `number`-th change fails; `refused`: whether the block ended."""
        self.refused = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "Database", functools.partial(Database, vfs=self.name))
            with eventq.open(path) as thread:
                self.arm(number, error, lasting=lasting)
                try:
                    yield thread
                except DiskError:
                    self.refused = True
                    assert self.failed
                finally:
                    self.disarm()

    def steps_of(self, path: str, work: Callable[[eventq.Thread], object]) -> int:
        """Return the number of changes that a piece of work makes."""
        most = 1 << 30
        with self.opened(path, most, apsw.IOError) as thread:
            work(thread)
            return most - self._left
        raise AssertionError

    def count(self, what: str) -> None:
        """Count one change; raise when it is the one."""
        if self._left <= 0:
            return
        if self._left > 1:
            self._left -= 1
            return
        self._left = int(self._lasting)
        self.failed = self.failed or what
        raise self._error("refused by the test")


# --- a power cut ----------------------------------------------------------------------------------


class _Disk:
    """The file that a power cut leaves: all synced changes, and perhaps some later ones."""

    def __init__(self, path: str) -> None:
        self.safe = b""
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.safe = file.read()
        self.since: list[tuple[int, bytes | None]] = []  # offset and data, or a new size and None

    def sync(self) -> None:
        self.safe = self.image(self.since)
        self.since = []

    def image(self, changes: list[tuple[int, bytes | None]]) -> bytes:
        found = bytearray(self.safe)
        for offset, data in changes:
            if data is None:
                del found[offset:]
                continue
            found.extend(bytes(max(0, offset - len(found))))
            found[offset : offset + len(data)] = data
        return bytes(found)

    def some(self, chance: random.Random) -> bytes:
        """Return the content after a cut that kept some unsynced changes, some only in part."""
        kept: list[tuple[int, bytes | None]] = []
        for offset, data in self.since:
            fate = chance.random()
            if fate < 0.4:
                kept.append((offset, data))
            elif fate < 0.6 and data is not None and len(data) > SECTOR:
                kept.append((offset, data[: chance.randrange(1, len(data) // SECTOR + 1) * SECTOR]))
        return self.image(kept)


class _DiskFile(apsw.VFSFile):
    def __init__(self, vfs: PowerVFS, name: Any, flags: list[int]) -> None:
        super().__init__(BASE, name, flags)
        self._vfs = vfs
        self._disk = vfs.disk(name.filename() if isinstance(name, apsw.URIFilename) else name)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._vfs.moment()
        self._disk.since.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._vfs.moment()
        self._disk.since.append((size, None))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.moment()
        self._disk.sync()  # the shadow is the disk here
        self._vfs.moment()


class PowerVFS(apsw.VFS):
    """SQLite's VFS with a copy of what has reached the disk; calls `moment` around changes."""

    def __init__(self, name: str) -> None:
        self.disks: dict[str, _Disk] = {}
        self.moment: Callable[[], object] = lambda: None
        super().__init__(name, BASE)

    def disk(self, path: str) -> _Disk:
        """Return the shadow of a file."""
        return self.disks.setdefault(path, _Disk(path))

    def xOpen(self, name: Any, flags: list[int]) -> _DiskFile:  # noqa: N802
        return _DiskFile(self, name, flags)


# --- the calls of a module ------------------------------------------------------------------------


class Calls:
    """The module `os` as a module of eventq sees it, with the n-th `write` failing or cut short."""

    def __init__(
        self, real: ModuleType, number: int, *, short: int | None = None, lasting: bool = False
    ) -> None:
        self._real = real
        self._left = number
        self._short = short
        self._lasting = lasting
        self.hit = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write, or do what was ordered."""
        self._left -= 1
        if self._left > 0 or (self._left < 0 and not self._lasting):
            return os.write(fd, data)
        self.hit = True
        if self._short is not None and self._left == 0:
            return os.write(fd, memoryview(data)[: min(self._short, len(data))])
        raise OSError(28, "refused by the test")


# --- processes ------------------------------------------------------------------------------------

# Ends the process at the n-th call that Python makes: every boundary between two steps is one.
FALL = """
import os, sys
def fall(number):
    left = [number]
    def count(frame, event, argument):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
    if number:
        sys.setprofile(count)
def say(text):
    os.write(1, f"{text}\\n".encode())
"""


def start(
    code: str, *words: str, environ: dict[str, str] | None = None, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a small program that says on stdout what it was promised."""
    return subprocess.Popen(
        [sys.executable, "-c", FALL + code, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT, **(environ or {})},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def read_lines(process: subprocess.Popen[bytes], count: int | None = None) -> bytes:
    """Return the first lines that a process prints, or all if it ends; perhaps one partial line."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    said = b""
    while count is None or said.count(b"\n") < count:
        assert select.select([fd], [], [], DEADLINE)[0], "the process says nothing"
        if not (block := os.read(fd, 1 << 16)):
            break
        said += block
    return said


def kill(process: subprocess.Popen[bytes]) -> bytes:
    """Kill a process and return the rest of its output; an exit with an error fails the test."""
    process.kill()
    rest, complaint = process.communicate(timeout=DEADLINE)
    assert complaint == b""
    assert process.returncode in (0, -signal.SIGKILL)
    return rest


# --- what must hold afterwards --------------------------------------------------------------------


def copy(template: str, path: str) -> str:
    """Return a fresh copy of a thread that nobody has open."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path)
    return path


def mirror_lines(path: str) -> list[str]:
    """Return the lines of the mirror, rotated files first."""
    names = [n for n in os.listdir(path) if n.startswith("events-") and n.endswith(".jsonl")]

    def first(name: str) -> int:
        with open(os.path.join(path, name), "rb") as file:
            return int(file.readline()[6:].split(b",")[0])

    lines: list[str] = []
    for name in [*sorted(names, key=first), "events.jsonl"]:
        with open(os.path.join(path, name), encoding="utf-8") as file:
            text = file.read()
        assert not text or text.endswith("\n")
        lines += text.split("\n")[:-1]
    return lines


def contents(path: str) -> list[str]:
    """Return the content of every event of a thread."""
    with eventq.open(path) as thread:
        return [event.content for event in thread.peek(limit=None)]


def _faults(thread: eventq.Thread) -> list[str]:
    """Return what is wrong with a thread, but for what a prune that failed has left to the next."""
    return [what for what in thread.check() if not what.endswith("prune again")]


def sound(path: str, *, before: bool = True) -> list[str]:
    """See to it that a thread checks out, before its next push and after it, and that the mirror is exact then.

    Gives the contents as they were before.
    """
    with eventq.open(path) as thread:
        events = list(thread.peek(limit=None))
        assert _faults(thread) == [] or not before
        last = thread.last_id()
        healed = thread.push("self", "test", "the next push")
        assert healed.id > last
        assert _faults(thread) == []
        assert list(thread.peek(last)) == [healed]
        expected = [line for page in thread.log.lines("", 0, None) for line in page.lines]
    found = mirror_lines(path)
    assert found[-len(expected) :] == expected  # what was pruned may still be before it
    return [event.content for event in events]


def some_of(count: int, edge: int, step: int) -> list[int]:
    """Return step numbers: the first, the last, one beyond, and every `step`-th between."""
    ends = range(1, min(edge, count) + 1), range(max(1, count - edge), count + 2)
    return sorted({*ends[0], *ends[1], *range(1, count + 1, max(1, step))})


@pytest.fixture
def vfs() -> Iterator[FaultyVFS]:
    """Return the faulty file layer, unarmed."""
    made = FaultyVFS("faulty")
    yield made
    made.unregister()


@pytest.fixture
def power() -> Iterator[PowerVFS]:
    """Return the file layer that knows what has reached the disk."""
    made = PowerVFS("power")
    yield made
    made.unregister()


def numbers(seed: int, count: int, low: float, high: float) -> Iterator[float]:
    """Return moments, spread evenly over their logarithm, the same for a seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield low * (high / low) ** chance.random()
