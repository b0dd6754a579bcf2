"""Processes: start them, fork, wait, signal; and the names and groups of workers and handlers.

Everything that only POSIX has (fork, sessions, signals) is here; `flock` is in `locks`. Linux and
macOS are supported; on other systems the import raises PlatformError.

The name of a worker has the machine, the pid namespace, its pid and its birth, and may go on with
the pid and the birth of the handler that it has started, and with the identity of the thread: in a
copy of a thread's directory, the handler is not one of its own. By the name, others on the same
machine see whether the worker is lost, and find what is left of the handler.

A handler is a process group, not a process: a shell may die while the command that it started goes
on. What belongs to the group of a handler whose leading process is gone is known by its mark, a
variable of its environment: the number of a group that has ended may be used again.
"""

from __future__ import annotations

import os
import sys

from eventq.errors import PlatformError
from eventq.system import clock, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any
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
UNKNOWN = 255  # stands in for a child's exit code that was lost
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
MARK = "EVENTQ_HANDLER"  # the variable that has the handler's identity
LATE, STOPPED, LEFT = "timed out", "stopped", "left"
LOOK_SECONDS = 0.05  # between two looks at processes that are not our children
_TRUST_SECONDS = 1.0  # in which no number of a group is used again
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of shells without one
_GONE_SECONDS = 5.0  # for which killed processes are waited for


def which(name: str, path: str | None = None) -> str | None:
    """Return the absolute path of a command, or None (`shutil` is slow to import).

    It is looked for on `path`, or else on PATH.
    """
    if "/" in name:
        return (
            os.path.abspath(name) if os.access(name, os.X_OK) and not os.path.isdir(name) else None
        )
    folders = environment.env("PATH", os.defpath) if path is None else path
    for folder in folders.split(os.pathsep):
        found = os.path.join(folder or ".", name)
        if os.access(found, os.X_OK) and not os.path.isdir(found):
            return os.path.abspath(found)
    return None


def spawn(
    argv: list[str],
    *,
    keep: Sequence[int] = (),
    environ: Mapping[str, str] | None = None,
    stdin: int | None = None,
) -> int:
    """Start a program in a new session, its three streams on /dev/null, and return its pid.

    It inherits the descriptors in `keep`, and one as its stdin. Raises OSError if it cannot be
    started. `posix_spawn` is used because a caller with several OS threads must not be forked.
    """
    null = os.devnull
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0)
        if stdin is None
        else (os.POSIX_SPAWN_DUP2, stdin, 0),
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


def host() -> str:
    """Return the name of this machine in its network."""
    return os.uname().nodename


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


_left: set[int] = set()  # children that nobody waits for


def leave(pid: int) -> None:
    """Let a child end when it does: it is reaped at some later call of `reap_left`."""
    _left.add(pid)


def reap_left(*_: object) -> None:
    """Reap the children that were left and have ended; servers do it whenever a child ends."""
    for pid in [*_left]:
        if reap(pid) is not None:
            _left.discard(pid)


def ends() -> tuple[int, ...]:
    """Return the signals that end a long command gracefully; under `nohup`, SIGHUP is none."""
    known = signals.SIGTERM, signals.SIGINT
    is_ignored = signals.getsignal(signals.SIGHUP) == signals.SIG_IGN
    return known if is_ignored else (*known, signals.SIGHUP)


def serve_long() -> None:
    """Prepare a command that runs for long, before it has an OS thread or a connection.

    Its own children are reaped as they end. As PID 1, the first process of a container, it goes on
    in a child: the process stays behind to reap what others left, and to pass signals on.
    """
    if os.getpid() == 1:
        _be_init()
    signals.signal(signals.SIGCHLD, reap_left)


def _be_init() -> None:
    """Return in a child; this process reaps all others until that ends, then ends as it did.

    A program that reaps every child itself would take exit statuses away from its own parts.
    """
    every = signals.valid_signals()
    before = signals.pthread_sigmask(signals.SIG_BLOCK, every)
    main = os.fork()
    if not main:
        signals.pthread_sigmask(signals.SIG_SETMASK, before)
        return
    while True:
        # What a terminal sends, the kernel sends to the child as well, and tells so.
        got = signals.sigwaitinfo(every)
        if got.si_signo != signals.SIGCHLD and got.si_code <= 0:
            kill(main, got.si_signo)
        while (found := _ended())[0]:
            if found[0] == main:
                code = os.waitstatus_to_exitcode(found[1])
                os._exit(code if code >= 0 else 128 - code)


def _ended() -> tuple[int, int]:
    """Reap any child that has ended; return its pid and status, 0 for none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def wait(pid: int, seconds: float) -> int | None:
    """Wait for a child and return its exit code (negative: the signal), or None on timeout."""
    deadline = clock.monotonic() + seconds
    step = 0.001
    while (code := reap(pid)) is None:
        if clock.monotonic() >= deadline:
            return None
        clock.pause(step)
        step = min(step * 1.5, 0.02)
    return code


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, if it still exists."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


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
        if found := dict(members(number)):
            return [pid for pid, ended in found.items() if not ended]
    return [number]


def group_has(number: int, variable: str) -> bool:
    """Return whether a process of a group was started with a variable, given as NAME=VALUE.

    Each is asked as soon as it is seen: it may be about to end.
    """
    wanted, is_seen = f"\0{variable}\0".encode(), False
    for _ in range(_LOOKS):
        for pid, ended in members(number):
            if wanted in (found := b"" if ended else environ_of(pid)):
                return True
            is_seen |= bool(found)
        if is_seen or not has_group(number):
            return False
    return False


def members(number: int) -> Iterator[tuple[int, bool]]:
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

    Returns nothing if it is gone, somebody else's, or in the middle of an exec.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0%b\0" % text if (text := file.read()) else b""
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


def fork_leader(child: Callable[[], object]) -> int:
    """Fork as `fork` does, into a session and a group of its own; return once it has them.

    A handler is killed by its group. A signal that came before there is one would reach nobody, and
    be taken for sent: the handler would go on.
    """
    ready, begun = os.pipe()

    def lead() -> None:
        os.setsid()
        os.close(ready)
        os.close(begun)
        child()

    try:
        try:
            pid = fork(lead)
        finally:
            os.close(begun)
        os.read(ready, 1)  # until nobody can write: the child has closed its end, or is dead
    finally:
        os.close(ready)
    return pid


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
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    named = f"sys.argv[0] = {called()!r}; " * (called() != "eventq")  # by which it goes on
    code = f"import sys; {named}sys.path.append({root!r}); from eventq.cli import main; main()"
    return [sys.executable, "-P", "-c", code, *words]


def called() -> str:
    """Return the name under which the program was called: `thread`, or else `eventq`."""
    is_thread = bool(sys.argv) and os.path.basename(sys.argv[0]) == "thread"
    return "thread" if is_thread else "eventq"


def program() -> list[str]:
    """Return the words that start this eventq from any environment, for files that name it."""
    script = os.path.join(os.path.dirname(sys.executable), "eventq")
    return [script] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "eventq"]


def path_of_handlers() -> str:
    """Return PATH for handlers: with the folder of this eventq, last, if there is none on it.

    Cron and service managers leave a short PATH, or none; a shell has one of its own then.
    """
    path = environment.env("PATH") or _PATH
    if which("eventq", path) is None and (ours := _script()) is not None:
        return f"{path}{os.pathsep}{os.path.dirname(ours)}"
    return path


def _script() -> str | None:
    """Return where the command `eventq` of this installation is, or None."""
    this = sys.argv[0] if sys.argv else ""
    if "/" not in this or os.path.basename(this) not in ("eventq", "thread"):
        this = ""  # another program, or one that we have named ourselves
    for path in (this, os.path.join(os.path.dirname(sys.executable), "eventq")):
        if path and (found := which(os.path.abspath(path))):
            return found
    from sysconfig import get_path

    return which(os.path.join(get_path("scripts"), "eventq"))


def me() -> str:
    """Return what tells this process from all others: machine, pid namespace, pid and birth."""
    return f"{machine()} {namespace()} {identity(os.getpid())}"


def identity(pid: int) -> str:
    """Return a pid and when its process was born: pids are used again."""
    return _named(pid, birth(pid) or "0")


def _named(pid: int, birth: str) -> str:
    return f"{pid} {birth.replace(' ', '_')}"


def mark_of(handler: str) -> str:
    """Return what the processes of a handler have in their environment, by its identity."""
    return handler.replace(" ", ":")


def machine() -> str:
    """Return the id of this boot of this machine; "0" where the system tells none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "0"


def is_lost(process: str) -> bool:
    """Return whether a worker that ran on this machine is gone; False for one elsewhere."""
    words = process.split(" ")
    if words[:2] != [machine(), namespace()] or len(words) < 4 or not words[2].isdigit():
        return False
    return identity(int(words[2])) != f"{words[2]} {words[3]}"


def orphan_of(process: str, thread: str = "") -> int | None:
    """Return the group of the handler that a worker has left on this machine, if any of it runs.

    Returns None for a handler of another thread than that of the identity `thread`.
    """
    words = process.split(" ")
    if words[:2] != [machine(), namespace()] or len(words) < 6:
        return None
    if " ".join(words[6:]) != thread:
        return None
    return group_of(f"{words[4]} {words[5]}")


def group_of(handler: str) -> int | None:
    """Return the process group of a handler of this identity, or None if nothing of it runs."""
    pid = handler.partition(" ")[0]
    if not pid.isascii() or not pid.isdigit() or len(pid) > 9 or int(pid) < 2:
        return None
    number = int(pid)
    if (born := birth(number)) is not None:
        return number if _named(number, born) == handler else None
    return number if group_has(number, f"{MARK}={mark_of(handler)}") else None


def end_orphan(process: str, thread: str, seconds: float = _GONE_SECONDS) -> bool:
    """Kill the handler that a lost worker has left here; return whether nothing of it runs.

    Waits up to `seconds` for that.
    """
    deadline = clock.monotonic() + seconds
    while (number := orphan_of(process, thread)) is not None:
        kill_group(number, signals.SIGKILL)
        if clock.monotonic() >= deadline:
            return False
        clock.pause(0.002)
    return True


def late(seconds: float) -> str:
    """Return what is said of a run that took too long."""
    from eventq.system.counts import count  # this module is on the path of a push

    return f"timed out after {count(seconds, 'second')}"


class Group:
    """The process group of a handler under supervision.

    A failed run is over when nothing of its group is left: an attempt must not go on beside the
    next one. What a run that has succeeded leaves behind goes on.
    """

    def __init__(self, pid: int, timeout: float | None) -> None:
        """Take the leading process, and for how many seconds it may run."""
        self.pid = pid
        self.timeout = timeout
        self.since = self._seen = clock.monotonic()
        self.name = identity(pid) if pid else ""
        self.code: int | None = None  # of the leading process, negative for a signal
        self.why = ""  # it was asked to end: LATE, STOPPED or LEFT
        self._kill_at = 0.0  # once it was asked

    def reap(self) -> bool:
        """Return whether the leading process has just ended."""
        if self.code is None:
            self.code = reap(self.pid)
            self._seen = clock.monotonic()
            return self.code is not None
        return False

    @property
    def exited_well(self) -> bool:
        """Whether the leading process has exited with 0, and was not asked to end."""
        return self.code == 0 and not self.why

    def is_gone(self) -> bool:
        """Return whether no process of it is left.

        After a look long ago, somebody else may have its number: then marks count.

        What is seen of it may be all zombies, and yet there be one that forks another before it is
        seen. So the group is killed then: no process can fork after that.
        """
        if self.code is None or not has_group(self.pid):
            return self.code is not None
        last, self._seen = self._seen, clock.monotonic()
        if self._seen > last + _TRUST_SECONDS and group_of(self.name) is None:
            return True
        if group(self.pid):
            return False
        kill_group(self.pid, signals.SIGKILL)
        return not group(self.pid)

    def look_at(self, stops_at: float | None) -> float | None:
        """Return when to look even if no child ends."""
        times = [clock.monotonic() + LOOK_SECONDS] if self.code is not None else []
        if self.why:
            times.append(self._kill_at)
        else:
            times += [self.since + self.timeout] if self.timeout else []
            times += [stops_at] if stops_at is not None else []
        return min(times, default=None)

    def hurry(self, stops_at: float | None) -> str:
        """End what runs too long, or beyond `stops_at`, or is left of a run that has failed.

        All of the group gets SIGTERM, and what is left GRACE_SECONDS later SIGKILL. Returns why as
        part of a sentence when it asks.
        """
        now = clock.monotonic()
        if self.why:
            if now >= self._kill_at:
                self.kill()
            return ""
        if self.code is not None:
            self.why, text = LEFT, "has left processes, which are ended"
        elif self.timeout and now >= self.since + self.timeout:
            self.why, text = LATE, late(self.timeout)
        elif stops_at is not None and now >= stops_at:
            self.why, text = STOPPED, "is stopped"
        else:
            return ""
        kill_group(self.pid, signals.SIGTERM)
        self._kill_at = now + GRACE_SECONDS
        return text

    def end(self) -> None:
        """Kill it, and wait for its end for some seconds."""
        if self.pid:
            kill_group(self.pid, signals.SIGKILL)
            wait(self.pid, _GONE_SECONDS)

    def kill(self) -> None:
        """Kill it at once; again later, if anything is left."""
        kill_group(self.pid, signals.SIGKILL)
        self.why = self.why or LEFT
        self._kill_at = clock.monotonic() + GRACE_SECONDS
