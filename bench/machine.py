"""The machine under the benchmark: what it is, and processes on it, started, timed and never left behind."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import apsw

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

LIMIT = 900.0  # seconds after which any process is killed
PYTHON = sys.executable
ROOT = str(Path(__file__).resolve().parent.parent)


def facts(folder: str) -> list[str]:
    """Return what a reader of the results must know of the machine, a line each."""
    return [
        f"Date: {dt.datetime.now(dt.UTC):%Y-%m-%d}",
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()} through apsw {apsw.apsw_version()}",
        f"{platform.system()} {platform.release().split('-')[0]}, {os.cpu_count()} CPUs, {file_system(folder)}",
    ]


def file_system(folder: str) -> str:
    """Return the kind of the file system that a folder is on."""
    best, kind = "", "unknown file system"
    try:
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, mount, name, *_ = line.split()
            if (folder + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
                best, kind = mount, name
    except OSError:
        pass
    return kind


def eventq(*words: str) -> list[str]:
    """Return the command line of the installed `eventq`, or else of the module."""
    script = os.path.join(os.path.dirname(PYTHON), "eventq")
    return [script, *words] if os.access(script, os.X_OK) else [PYTHON, "-m", "eventq", *words]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a child, with `more`, without variables of eventq or Python.

    Without compiled modules on the disk, for one, a command would take twice its time.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EVENTQ_", "PYTHON"))
    } | more


def time_process(
    argv: Sequence[str], *, stdin: str = os.devnull, environ: dict[str, str] | None = None
) -> float:
    """Run a command to its end, its output thrown away, and give the milliseconds it took; raise when it fails."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    env = environ if environ is not None else environment(EVENTQ_NOTIFIER="none")
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], [*argv], env, file_actions=actions)
    watchdog = threading.Timer(LIMIT, os.kill, (pid, 9))
    watchdog.start()
    try:
        _, status = os.waitpid(pid, 0)
        taken = (time.perf_counter() - start) * 1_000
    except BaseException:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        raise
    finally:
        watchdog.cancel()
    if code := os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(argv[:3])} … ended with {code}")
    return taken


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command went: wall-clock seconds, its largest resident size, and the lines it wrote."""

    seconds: float
    peak_mb: float
    lines: int


def watch_process(argv: Sequence[str], *, stdin: str = os.devnull) -> Ended:
    """Run a command to its end, reading its output through a pipe, and watch its memory; raise when it fails."""
    start = time.perf_counter()
    lines = 0
    with open(stdin, "rb") as source, Child(argv, stdin=source.fileno()) as child:
        peak = _Peak(child.process.pid)
        peak.start()
        out = child.process.stdout
        assert out is not None
        while block := out.read(1 << 20):
            lines += block.count(b"\n")
        _, status, usage = os.wait4(child.process.pid, 0)
        taken = time.perf_counter() - start
        child.process.returncode = os.waitstatus_to_exitcode(status)
        if child.process.returncode:
            raise RuntimeError(f"{' '.join(argv[:3])} … ended with {child.process.returncode}")
    peak.over.set()
    peak.join()
    # What the system says at the end may be the size that the parent had when it started the child.
    return Ended(taken, (peak.kilobytes or usage.ru_maxrss) / 1_024, lines)


class _Peak(threading.Thread):
    """Reads the high-water mark of a process until it is gone."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.kilobytes = 0
        self._path = Path(f"/proc/{pid}/status")

    def run(self) -> None:
        while not self.over.wait(0.02):
            try:
                found = [
                    line
                    for line in self._path.read_text(encoding="utf-8").splitlines()
                    if line.startswith("VmHWM:")
                ]
            except OSError:
                return
            self.kilobytes = max([self.kilobytes, *(int(line.split()[1]) for line in found)])


class Child:
    """A process beside this one, spoken to in lines; it is killed when the block ends before it does."""

    def __init__(
        self, argv: Sequence[str], *, stdin: int = subprocess.PIPE, **environ: str
    ) -> None:
        """Start it."""
        self.process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            env=environment(EVENTQ_NOTIFIER="none", PYTHONPATH=ROOT, **environ),
        )
        self._watchdog = threading.Timer(LIMIT, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __enter__(self) -> Self:
        """Return the child."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """End it if it has not ended."""
        self._watchdog.cancel()
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Read a line from it; raise when it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended with {self.process.wait()}")
        return line.decode().strip()

    def cpu_seconds(self) -> float | None:
        """Return the processor time it has used, None where the system does not say it finely."""
        try:
            tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        except OSError:
            return None


def worker(*words: str, synchronous: str = "full") -> Child:
    """Start a process of `bench.worker`."""
    return Child([PYTHON, "-m", "bench.worker", *words], EVENTQ_SYNCHRONOUS=synchronous)
