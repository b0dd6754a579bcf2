"""The clock, the environment and the processes: the one place that asks the machine.

What only POSIX has (fork, sessions, signals, `flock`) is here and in `locks`. Linux and macOS are supported;
elsewhere the import is refused with a sentence.
"""

from __future__ import annotations

import os
import sys
import time
from _signal import SIGCHLD, SIGPIPE, SIGXFSZ  # type: ignore[import-not-found]  # the package around it costs 3 ms

from eventq.errors import PlatformError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, BinaryIO

if os.name != "posix":  # pragma: no cover
    raise PlatformError(f"eventq does not run on {sys.platform}", "use Linux, macOS or WSL")

# The signals as a new program expects them, whatever its parent has blocked or ignores.
_CLEAN: dict[str, Any] = {"setsigmask": (), "setsigdef": (SIGCHLD, SIGPIPE, SIGXFSZ)}
UNKNOWN = 255  # the exit code of a child that nobody can tell any more
_second = [
    -1,
    "",
]  # the second that was formatted last, and its text: strftime costs more than the rest of a stamp


now = time.time  # seconds since 1970, UTC
monotonic = time.monotonic  # seconds that only grow, for deadlines
environ = os.environ


def milliseconds() -> int:
    """Give the time as milliseconds since 1970, UTC."""
    return max(0, int(now() * 1000))  # a clock that was never set may be before its own beginning


def pause(seconds: float) -> None:
    """Wait; for the few places where nothing can be waited for."""
    time.sleep(seconds)


def stamp(seconds: float) -> str:
    """Give a time as `2026-03-18T10:30:00.123Z`."""
    whole = int(seconds // 1)
    cached, text = _second
    if cached != whole:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _second[:] = (whole, text)
    return f"{text}.{int((seconds - whole) * 1000):03d}Z"


def file_stamp(seconds: float) -> str:
    """Give a time as it stands in the name of a rotated file, `20260318-103000`."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))


def file_stamp_after(text: str) -> str:
    """Return the time of a rotated file's name a second later, "" for one that is no time."""
    from calendar import timegm

    try:
        later = file_stamp(timegm(time.strptime(text, "%Y%m%d-%H%M%S")) + 1)
    except (ValueError, OverflowError):
        return ""
    return later if len(later) == len(text) else ""


def env(name: str, default: str = "") -> str:
    """Give a variable of the environment; an unset one is `default`."""
    return os.environ.get(name, default)


def take_env(name: str) -> str:
    """Give a variable of the environment, "" when unset, and take it out: no program started from here on gets it."""
    return os.environ.pop(name, "")


def env_number(name: str, default: int) -> int:
    """Give a variable as a whole number; an unset one and nonsense are `default`."""
    text = env(name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def env_seconds(name: str, default: float) -> float:
    """Give a variable as seconds, with an optional fraction; an unset one and nonsense are `default`."""
    text = env(name)
    return (
        float(text)
        if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 19
        else default
    )


def mode_like(path: str) -> int:
    """Return the permissions for a new file that is as open as another one: owner only when that is missing."""
    try:
        return os.stat(path).st_mode & 0o666
    except OSError:
        return 0o600


def make_folder(path: str, like: str) -> None:
    """Make a folder and its parents, as open as a file is."""
    mode = mode_like(like)
    os.makedirs(path, mode=0o700 | mode | (mode >> 2 & 0o111), exist_ok=True)


def sync_folder(path: str) -> None:
    """Bring the names in a folder to the disk, as far as the system can."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # one that may be written and not read
    try:
        os.fsync(fd)
    except OSError:
        pass  # a file system that cannot
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write everything; raise OSError when the system takes no more.

    A pipe or terminal that its other end has made non-blocking is waited for while it is full.
    """
    while data:
        try:
            data = memoryview(data)[os.write(fd, data) :]
        except BlockingIOError:
            import select

            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def open_regular(path: str, *, follow: bool = True, buffering: int = -1) -> BinaryIO:
    """Open a file of a folder that came from elsewhere; raise OSError for all but a regular file.

    A pipe in its place would be waited for, and a device may have no end: that is EINVAL. `follow`
    says whether a symbolic link to a regular file will do.
    """
    import stat
    from errno import EINVAL

    # Look before opening: opening alone sets some devices going. Then look again: it may have
    # changed.
    found = os.stat(path, follow_symlinks=follow)
    if stat.S_ISREG(found.st_mode):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return open(fd, "rb", buffering=buffering)
        os.close(fd)
    raise OSError(EINVAL, "it is not a regular file", path)


def save(path: str, pieces: Iterable[bytes]) -> int:
    """Write a file that is there whole or not at all, also after a power cut, and give its size in bytes."""
    folder = os.path.dirname(path) or "."
    temporary = f"{folder}/.eventq-{os.urandom(8).hex()}.tmp"
    size = 0
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            for piece in pieces:
                write_all(fd, piece)
                size += len(piece)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder)
    return size


def which(name: str) -> str | None:
    """Give the absolute path of a command on PATH, or None (`shutil` is slow to import)."""
    if "/" in name:
        return (
            os.path.abspath(name) if os.access(name, os.X_OK) and not os.path.isdir(name) else None
        )
    for folder in env("PATH", os.defpath).split(os.pathsep):
        found = os.path.join(folder or ".", name)
        if os.access(found, os.X_OK) and not os.path.isdir(found):
            return os.path.abspath(found)
    return None


def spawn(
    argv: list[str], *, keep: Sequence[int] = (), environ: Mapping[str, str] | None = None
) -> int:
    """Start a program in a session of its own, with nothing on its three streams, and give its pid.

    `keep` names descriptors that it inherits. Raises OSError when it cannot be started. Made with `posix_spawn`, so a
    caller with threads is never forked.
    """
    null = os.devnull
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
    ]
    # There and back in the child: made inheritable here, it would go to other threads' children too.
    for fd in keep:
        spare = fd + 1
        actions += [
            (os.POSIX_SPAWN_DUP2, fd, spare),
            (os.POSIX_SPAWN_DUP2, spare, fd),
            (os.POSIX_SPAWN_CLOSE, spare),
        ]
    return _posix_spawn(argv, actions, os.environ if environ is None else environ)


def spawn_into(argv: Sequence[str], fd: int) -> int:
    """Start a program in our own session, its output and its errors into one descriptor, and give its pid.

    Raises OSError when it cannot be started.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, 1), (os.POSIX_SPAWN_DUP2, fd, 2)]
    return os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=actions, **_CLEAN)


def _posix_spawn(
    argv: list[str], actions: list[tuple[object, ...]], environ: Mapping[str, str]
) -> int:
    """Spawn in a session of its own."""
    clean: dict[str, Any] = {**_CLEAN, "file_actions": actions}
    try:
        return os.posix_spawnp(argv[0], argv, environ, setsid=True, **clean)
    except NotImplementedError:  # an old C library: a process group of its own is the next best
        return os.posix_spawnp(argv[0], argv, environ, setpgroup=0, **clean)


def in_foreground() -> bool:
    """Say whether our process group is the one that our terminal, if we have one, sends its signals to."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def namespace() -> str:
    """Give a mark of the processes that this one can see by their pids: another container has another."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def reap(pid: int) -> int | None:
    """Give the exit code of a child that has ended (negative: the signal), None while it runs.

    Gives UNKNOWN when the code is lost: the program ignores SIGCHLD, or another part of it waits for all children.
    """
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    return os.waitstatus_to_exitcode(status) if done else None


def wait(pid: int, seconds: float) -> int | None:
    """Wait for a child to end and give its exit code (negative: the signal); None when the time is up first."""
    deadline = monotonic() + seconds
    step = 0.001
    while (code := reap(pid)) is None:
        if monotonic() >= deadline:
            return None
        pause(step)
        step = min(step * 1.5, 0.02)
    return code


def kill_group(pid: int, number: int) -> None:
    """Send a signal to the process group of a child; one that has gone is fine."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def wake(pid: int) -> None:
    """Send a supervisor the signal that ends its wait; by default, and to any other process, it means nothing."""
    try:
        if pid > 1:
            os.kill(pid, SIGCHLD)
    except (OSError, OverflowError):
        pass


def fork(child: Callable[[], object]) -> int:
    """Fork, run `child` in the new process and end it without any of the parent's exit work; give the pid.

    Only the short-lived `dispatch` command and the supervisor that it becomes may call this: they have one thread.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    except BaseException:  # noqa: BLE001 (nothing may climb into the parent's code)
        os._exit(1)
    os._exit(0)


def birth(pid: int) -> str | None:
    """Give a mark that tells this process from a later one with the same pid, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return None
    return _birth_by_ps(pid)


def _birth_by_ps(pid: int) -> str | None:
    import subprocess

    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip() or None


def python(*words: str) -> list[str]:
    """Give the command line that runs eventq with these words in a new process of this very installation."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = f"import sys; sys.path.append({root!r}); from eventq.cli import main; main()"
    return [sys.executable, "-P", "-c", code, *words]
