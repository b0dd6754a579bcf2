"""Names for processes, by which others on the same machine see whether they are lost.

A name has the machine, the pid namespace, the pid and the birth of a worker, and may go on with the
pid and the birth of the handler that it has started.
"""

from __future__ import annotations

import os

from eventq import system

_GONE_SECONDS = 5.0  # for which a killed process is waited for


def me() -> str:
    """Return what tells this process from all others: machine, pid namespace, pid and birth."""
    return f"{machine()} {system.namespace()} {identity(os.getpid())}"


def identity(pid: int) -> str:
    """Return a pid and when its process was born: pids are used again."""
    return f"{pid} {(system.birth(pid) or '0').replace(' ', '_')}"


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


def orphan_of(process: str) -> int | None:
    """Return the pid of the handler that a process has left on this machine, if it still runs."""
    words = process.split(" ")
    if words[:2] != [machine(), system.namespace()] or len(words) < 6 or not words[4].isdigit():
        return None
    pid = int(words[4])
    return pid if identity(pid) == f"{words[4]} {words[5]}" else None


def end_orphan(process: str) -> None:
    """Kill the handler that a lost worker has left on this machine, and wait until it is gone."""
    deadline = system.monotonic() + _GONE_SECONDS
    while (pid := orphan_of(process)) is not None and system.monotonic() < deadline:
        system.kill_group(pid, system.signals.SIGKILL)
        system.pause(0.002)
