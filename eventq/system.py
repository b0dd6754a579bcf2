"""The clock, the environment and processes: all calls to the operating system that tests replace.

Everything that only POSIX has (fork, sessions, signals, `flock`) is here and in `locks`. Linux and
macOS are supported; on other systems the import raises PlatformError.
"""

from __future__ import annotations

import os
import sys
import time

from eventq.errors import PlatformError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, BinaryIO
else:
    import _signal as signal  # the module around it takes 3 ms to import

if os.name != "posix":  # pragma: no cover
    raise PlatformError(f"eventq does not run on {sys.platform}", "use Linux, macOS or WSL")

signals = signal
# The signals as a new program expects them, whatever its parent blocks or ignores.
_CLEAN: dict[str, Any] = {
    "setsigmask": (),
    "setsigdef": (signals.SIGCHLD, signals.SIGPIPE, signals.SIGXFSZ),
}
_LOOKS = 20  # for a process of a group that has one, before it counts as too short-lived to be seen
SLOW_LOOK = 1.0  # seconds between two looks when no watcher says that anything has changed
UNKNOWN = 255  # stands in for a child's exit code that was lost
_MOST_FILES = 65_536
_file_limits: list[tuple[int, int]] = []  # before they were raised
# The last second formatted and its text: strftime costs more than the rest of a timestamp.
_second: list[Any] = [-1, ""]


now = time.time  # seconds since 1970, UTC
monotonic = time.monotonic  # seconds that only grow, for deadlines
environ = os.environ


def pause(seconds: float) -> None:
    """Sleep, in the few places where there is no signal to wait for."""
    time.sleep(seconds)


def stamp(seconds: float) -> str:
    """Return a time as `2026-03-18T10:30:00.123Z`."""
    whole = int(seconds // 1)
    cached, text = _second
    if cached != whole:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        _second[:] = (whole, text)
    return f"{text}.{int((seconds - whole) * 1000):03d}Z"


def file_stamp(seconds: float) -> str:
    """Return a time as in the name of a rotated file, `20260318-103000`."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))


def file_stamp_after(text: str) -> str:
    """Return the time in a rotated file's name plus a second, or "" if it is no time."""
    from calendar import timegm

    try:
        later = file_stamp(timegm(time.strptime(text, "%Y%m%d-%H%M%S")) + 1)
    except (ValueError, OverflowError):
        return ""
    return later if len(later) == len(text) else ""


def env(name: str, default: str = "") -> str:
    """Return an environment variable, or `default` if unset."""
    return os.environ.get(name, default)


def take_env(name: str) -> str:
    """Remove an environment variable, so that no child process gets it; return it, "" if unset."""
    return os.environ.pop(name, "")


def env_number(name: str, default: int) -> int:
    """Return a variable as a whole number, or `default` if unset or invalid."""
    text = env(name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def env_bytes(name: str, default: int) -> int:
    """Return a variable as a number of bytes, `default` if unset; raise UsageError if invalid."""
    if not (text := env(name)):
        return default
    if (found := env_number(name, -1)) < 0:
        raise UsageError(
            f"{name} is {text!r:.100}, which is no number of bytes",
            f"unset it, or set it to a whole number such as {default}",
        )
    return found


def env_choice(name: str, *allowed: str) -> str:
    """Return a variable in lower case, "" if unset; raise UsageError for what is not allowed."""
    text = env(name).lower()
    if text and text not in allowed:
        raise UsageError(
            f"{name} is {text!r:.100}, which has no meaning",
            f"unset it, or set it to {' or '.join(allowed)}",
        )
    return text


def env_seconds(name: str, default: float) -> float:
    """Return a variable as seconds, perhaps with a fraction; `default` if unset or invalid."""
    text = env(name)
    return (
        float(text)
        if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 19
        else default
    )


def mode_like(path: str) -> int:
    """Return the permissions of a file, for a new one; owner only if it is missing."""
    try:
        return os.stat(path).st_mode & 0o666
    except OSError:
        return 0o600


def make_folder(path: str, like: str) -> None:
    """Create a folder and its parents with the permissions of the file `like`."""
    mode = mode_like(like)
    os.makedirs(path, mode=0o700 | mode | (mode >> 2 & 0o111), exist_ok=True)


def sync_folder(path: str) -> None:
    """Sync the names in a folder to the disk, as far as the system supports it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # the folder is writable but not readable
    try:
        os.fsync(fd)
    except OSError:
        pass  # the file system does not support it
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data`. Raises OSError if the system refuses.

    Waits for a full pipe or terminal, even if its other end made it non-blocking.
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
    """Open a file of an untrusted folder; raise OSError (EINVAL) for all but a regular file.

    Opening a pipe would block, and a device may have no end. `follow` allows a symbolic link to a
    regular file.
    """
    import stat
    from errno import EINVAL

    # Check before opening, as opening alone activates some devices. Then check again: the file may
    # have been replaced.
    found = os.stat(path, follow_symlinks=follow)
    if stat.S_ISREG(found.st_mode):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return open(fd, "rb", buffering=buffering)
        os.close(fd)
    raise OSError(EINVAL, "it is not a regular file", path)


def save(path: str, pieces: Iterable[bytes], *, mode: int = 0o666) -> int:
    """Write a file atomically, even across a power cut, and return its size in bytes."""
    folder = os.path.dirname(path) or "."
    temporary = f"{folder}/.eventq-{os.urandom(8).hex()}.tmp"
    size = 0
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
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
    """Return the absolute path of a command on PATH, or None (`shutil` is slow to import)."""
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
    """Start a program in a new session, its three streams on /dev/null, and return its pid.

    It inherits the descriptors in `keep`. Raises OSError if it cannot be started. `posix_spawn`
    is used because a caller with several OS threads must not be forked.
    """
    null = os.devnull
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
    ]
    # Duplicated to and fro in the child. If it were made inheritable here, the children of other
    # OS threads would inherit it too.
    for fd in keep:
        spare = fd + 1
        actions += [
            (os.POSIX_SPAWN_DUP2, fd, spare),
            (os.POSIX_SPAWN_DUP2, spare, fd),
            (os.POSIX_SPAWN_CLOSE, spare),
        ]
    return _posix_spawn(argv, actions, os.environ if environ is None else environ)


def spawn_into(argv: Sequence[str], fd: int) -> int:
    """Start a program in our session, with stdout and stderr on one descriptor; return its pid.

    Raises OSError if it cannot be started.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, 1), (os.POSIX_SPAWN_DUP2, fd, 2)]
    return os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=actions, **_CLEAN)


def _posix_spawn(
    argv: list[str], actions: list[tuple[object, ...]], environ: Mapping[str, str]
) -> int:
    """Start a program in a new session."""
    clean: dict[str, Any] = {**_CLEAN, "file_actions": actions}
    try:
        return os.posix_spawnp(argv[0], argv, environ, setsid=True, **clean)
    except NotImplementedError:  # with an old C library a new process group is the next best
        return os.posix_spawnp(argv[0], argv, environ, setpgroup=0, **clean)


def in_foreground() -> bool:
    """Return whether we have a terminal and are its foreground process group."""
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
    """Return the id of our pid namespace, which differs between containers; "0" if unknown."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def reap(pid: int) -> int | None:
    """Return the exit code of a child (negative: the signal), or None while it runs.

    Returns UNKNOWN if the code is lost, because the program ignores SIGCHLD or another part of it
    waits for all children.
    """
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    return os.waitstatus_to_exitcode(status) if done else None


def wait(pid: int, seconds: float) -> int | None:
    """Wait for a child and return its exit code (negative: the signal), or None on timeout."""
    deadline = monotonic() + seconds
    step = 0.001
    while (code := reap(pid)) is None:
        if monotonic() >= deadline:
            return None
        pause(step)
        step = min(step * 1.5, 0.02)
    return code


def allow_more_files() -> None:
    """Let this process open as many files as the system allows; programs that it starts may not.

    Some of those still use `select`, which cannot watch a descriptor above 1,023.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        _file_limits.append((soft, hard))


def restore_file_limit() -> None:
    """Undo `allow_more_files` in a process that is about to become another program."""
    if _file_limits:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, _file_limits[0])


def kill_group(pid: int, number: int) -> None:
    """Send a signal to a process group, if it still exists."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def has_group(number: int) -> bool:
    """Return whether a process group has any process, even one that is yet to be reaped."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # they are somebody else's by now
    return True


def group(number: int) -> list[int]:
    """Return the processes of a process group, without those that ended and are yet to be reaped.

    Where each one forks another and ends, none may be seen at all: the group's number stands for
    them.
    """
    for _ in range(_LOOKS):
        if not has_group(number):
            return []
        if members := dict(_members(number)):
            return [pid for pid, ended in members.items() if not ended]
    return [number]


def group_has(number: int, variable: str) -> bool:
    """Return whether a process of a group was started with a variable, given as NAME=VALUE.

    Each is asked as soon as it is seen: it may be about to end.
    """
    wanted, is_seen = f"\0{variable}\0".encode(), False
    for _ in range(_LOOKS):
        for pid, ended in _members(number):
            if wanted in (found := b"" if ended else environ_of(pid)):
                return True
            is_seen |= bool(found)
        if is_seen or not has_group(number):
            return False
    return False


def _members(number: int) -> Iterator[tuple[int, bool]]:
    """Yield each process of a group, the youngest first, and whether it has ended."""
    if not os.path.isdir("/proc/self"):
        yield from _members_by_ps(number)
        return
    wanted = str(number).encode()
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        if (fields := _stat(pid)) and fields[2] == wanted:
            yield pid, _has_ended(fields)


def _members_by_ps(number: int) -> Iterator[tuple[int, bool]]:
    for line in _ps("-axo", "pid=,pgid=,stat=").splitlines():
        pid, of, state = line.split()
        if int(of) == number:
            yield int(pid), state[0] == "Z"


def environ_of(pid: int) -> bytes:
    """Return the environment that a process was started with, NUL around each variable.

    Returns nothing if it is gone, or somebody else's.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + file.read() + b"\0"
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return b""
    return b"\0" + _ps("-Ewwo", "command=", "-p", str(pid)).encode().replace(b" ", b"\0") + b"\0"


def wake(pid: int) -> None:
    """Wake a supervisor with SIGCHLD, which any other process ignores by default."""
    try:
        if pid > 1:
            os.kill(pid, signals.SIGCHLD)
    except (OSError, OverflowError):
        pass


def fork(child: Callable[[], object]) -> int:
    """Fork, run `child` in the new process without the parent's exit handlers; return its pid.

    Only the short-lived `dispatch` command and its supervisor may call this, as they have a single
    OS thread.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    except BaseException:  # noqa: BLE001 (nothing may propagate into the parent's code)
        os._exit(1)
    os._exit(0)


def birth(pid: int) -> str | None:
    """Return a process's start time, which tells it from a later one with its pid; None if gone."""
    if fields := _stat(pid):
        return None if _has_ended(fields) else fields[19].decode()
    if os.path.isdir("/proc/self"):
        return None
    return _ps("-o", "lstart=", "-p", str(pid)).strip() or None


def lockers(path: str, first: int, last: int) -> list[int]:
    """Return the processes that hold POSIX locks on some bytes of a file, where Linux tells.

    The file is not opened: to close it would release the locks of this process.
    """
    try:
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    found = set()
    for row in rows:  # 1: POSIX ADVISORY READ 4711 00:1a:815 123 123
        if row[1] == "POSIX" and row[5].rpartition(":")[2] == inode:
            end = last if row[7] == "EOF" else int(row[7])
            if int(row[6]) <= last and end >= first and int(row[4]) > 0:
                found.add(int(row[4]))
    return sorted(found)


def described(pid: int) -> str:
    """Return what tells people which process a pid is."""
    if pid == os.getpid():
        return "this process itself"
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = ""
    short = words if len(words) <= 80 else f"{words[:80]}…"
    return f"process {pid} ({short})" if short.isprintable() and short else f"process {pid}"


def _stat(pid: int) -> list[bytes]:
    """Return what Linux says of a process, from its state on; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].split()
    except OSError:
        return []


def _has_ended(fields: list[bytes]) -> bool:
    """Return whether a process is yet to be reaped, and has no OS thread that goes on."""
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def _ps(*words: str) -> str:
    import subprocess

    return subprocess.run(["ps", *words], capture_output=True, text=True, check=False).stdout  # noqa: S603, S607


def python(*words: str) -> list[str]:
    """Return the command line that runs this installation of eventq with these arguments."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = f"import sys; sys.path.append({root!r}); from eventq.cli import main; main()"
    return [sys.executable, "-P", "-c", code, *words]
