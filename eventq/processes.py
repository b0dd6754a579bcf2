"""Workers and their handlers as processes: their names, and the process groups of handlers.

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

from eventq import system

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
MARK = "EVENTQ_HANDLER"  # the variable that has the handler's identity
LATE, STOPPED, LEFT = "timed out", "stopped", "left"
LOOK_SECONDS = 0.05  # between two looks at processes that are not our children
_TRUST_SECONDS = 1.0  # in which no number of a group is used again
_GONE_SECONDS = 5.0  # for which killed processes are waited for


def me() -> str:
    """Return what tells this process from all others: machine, pid namespace, pid and birth."""
    return f"{machine()} {system.namespace()} {identity(os.getpid())}"


def identity(pid: int) -> str:
    """Return a pid and when its process was born: pids are used again."""
    return _named(pid, system.birth(pid) or "0")


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
    if words[:2] != [machine(), system.namespace()] or len(words) < 4 or not words[2].isdigit():
        return False
    return identity(int(words[2])) != f"{words[2]} {words[3]}"


def orphan_of(process: str, thread: str = "") -> int | None:
    """Return the group of the handler that a worker has left on this machine, if any of it runs.

    Returns None for a handler of another thread than that of the identity `thread`.
    """
    words = process.split(" ")
    if words[:2] != [machine(), system.namespace()] or len(words) < 6:
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
    if (born := system.birth(number)) is not None:
        return number if _named(number, born) == handler else None
    return number if system.group_has(number, f"{MARK}={mark_of(handler)}") else None


def end_orphan(process: str, thread: str, seconds: float = _GONE_SECONDS) -> bool:
    """Kill the handler that a lost worker has left here; return whether nothing of it runs.

    Waits up to `seconds` for that.
    """
    deadline = system.monotonic() + seconds
    while (number := orphan_of(process, thread)) is not None:
        system.kill_group(number, system.signals.SIGKILL)
        if system.monotonic() >= deadline:
            return False
        system.pause(0.002)
    return True


def late(seconds: float) -> str:
    """Return what is said of a run that took too long."""
    return f"timed out after {seconds:g} seconds"


class Group:
    """The process group of a handler under supervision.

    A failed run is over when nothing of its group is left: an attempt must not go on beside the
    next one. What a run that has succeeded leaves behind goes on.
    """

    def __init__(self, pid: int, timeout: float | None) -> None:
        """Take the leading process, and for how many seconds it may run."""
        self.pid = pid
        self.timeout = timeout
        self.since = self._seen = system.monotonic()
        self.name = identity(pid) if pid else ""
        self.code: int | None = None  # of the leading process, negative for a signal
        self.why = ""  # it was asked to end: LATE, STOPPED or LEFT
        self._kill_at = 0.0  # once it was asked

    def reap(self) -> bool:
        """Return whether the leading process has just ended."""
        if self.code is None:
            self.code = system.reap(self.pid)
            self._seen = system.monotonic()
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
        if self.code is None or not system.has_group(self.pid):
            return self.code is not None
        last, self._seen = self._seen, system.monotonic()
        if self._seen > last + _TRUST_SECONDS and group_of(self.name) is None:
            return True
        if system.group(self.pid):
            return False
        system.kill_group(self.pid, system.signals.SIGKILL)
        return not system.group(self.pid)

    def look_at(self, stops_at: float | None) -> float | None:
        """Return when to look even if no child ends."""
        times = [system.monotonic() + LOOK_SECONDS] if self.code is not None else []
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
        now = system.monotonic()
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
        system.kill_group(self.pid, system.signals.SIGTERM)
        self._kill_at = now + GRACE_SECONDS
        return text

    def kill(self) -> None:
        """Kill it at once; again later, if anything is left."""
        system.kill_group(self.pid, system.signals.SIGKILL)
        self.why = self.why or LEFT
        self._kill_at = system.monotonic() + GRACE_SECONDS
