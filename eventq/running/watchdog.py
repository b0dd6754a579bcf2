"""The watchdog of `eventq work`: a process that notices when the worker was killed, or is stuck.

A worker keeps pushes from starting handlers, so what it leaves undone would wait for the next push.
It tells the watchdog through a pipe which threads it works for, and each second that it is alive.
When the pipe ends without a farewell, or nothing comes for so long that no hold of the worker is
fresh any more, the watchdog has a dispatch started where events wait.

Of a thread in PostgreSQL it kills the handlers of a worker that was killed, and each one before the
lease ends under which it runs: then another machine may run the next one, whatever keeps the worker
from renewing it.
"""

from __future__ import annotations

import os
import select
from math import inf

from eventq.log.journal import Journal
from eventq.running.dispatch import detach
from eventq.store.paths import Layout
from eventq.system import clock, processes
from eventq.system.locks import FRESH_SECONDS
from eventq.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_STUCK_SECONDS = FRESH_SECONDS + 1  # without a sign of the worker
_GONE_SECONDS = 5.0  # for the watchdog to end after a farewell
_MARGIN = 0.5  # seconds before its deadline that a handler is killed, unless that is near


class Watchdog:
    """The worker's side of the pipe.

    It is forked before the worker opens a thread, as no connection may cross a fork; so one that
    was killed is not replaced, and a worker of threads in PostgreSQL ends then.
    """

    def __init__(self, say: Callable[[str], object], *, hands_over: bool) -> None:
        """Start it; `say` gets a line for people.

        Unless it `hands_over`, what a killed worker leaves waits for the next push.
        """
        self._say = say
        fd, self._fd = os.pipe()
        os.set_blocking(self._fd, False)

        def watch() -> None:
            detach({fd})
            _Watch(fd, hands_over=hands_over).run()

        self._pid = processes.fork(watch)
        os.close(fd)

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._fd < 0

    def add(self, directory: str) -> None:
        """Watch over one more thread."""
        self._tell(f"+{directory}")

    def remove(self, directory: str) -> None:
        """Leave a thread alone from now on."""
        self._tell(f"-{directory}")

    def beat(self) -> None:
        """Send a sign of life."""
        self._tell("")

    def guard(self, handler: str, deadline: float | None) -> None:
        """Kill a handler of this name at a time of `clock.monotonic`; None: it has ended."""
        self._tell(f"={deadline or 0.0!r} {handler}")

    def _tell(self, what: str) -> None:
        if self._fd < 0:
            return
        try:
            os.write(self._fd, os.fsencode(what) + b"\0")
        except BlockingIOError:
            pass  # it is stopped itself
        except BrokenPipeError:
            self._say("the watchdog has ended: what this worker leaves waits for the next push")
            self._end()

    def _end(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            processes.wait(self._pid, _GONE_SECONDS)

    def close(self, *, farewell: bool) -> None:
        """End it. Without a `farewell` it does what it does when the worker is killed."""
        if farewell:
            self._tell("!")
        self._end()


class _Watch:
    """The watchdog itself."""

    def __init__(self, fd: int, *, hands_over: bool) -> None:
        self._fd = fd
        self._hands_over = hands_over
        self._threads: dict[str, None] = {}
        self._deadlines: dict[str, float] = {}  # when to kill handlers, by their names
        self._torn = b""

    def run(self) -> None:
        """Watch until the pipe ends."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        heard_at: float | None = clock.monotonic()
        while True:
            self._kill_late()
            if poll.poll(self._patience()):
                if not (data := os.read(self._fd, 1 << 16)):
                    break
                self._hear(data)
                heard_at = clock.monotonic()
            elif heard_at is not None and clock.monotonic() > heard_at + _STUCK_SECONDS:
                self._hand_over("does nothing")
                heard_at = None  # from now on, pushes start handlers
        for handler in self._deadlines:
            _kill(handler)
        if self._hands_over:
            self._hand_over("was killed")

    def _patience(self) -> int:
        """Return for how many ms to wait for the worker."""
        left = min(self._deadlines.values(), default=inf) - clock.monotonic()
        return max(0, min(1000, int(left * 1000) + 1)) if left < 1 else 1000

    def _kill_late(self) -> None:
        now = clock.monotonic()
        for handler in [name for name, at in self._deadlines.items() if at <= now]:
            _kill(handler)
            del self._deadlines[handler]

    def _hear(self, data: bytes) -> None:
        *words, self._torn = (self._torn + data).split(b"\0")
        for word in words:
            directory = os.fsdecode(word[1:])
            if word[:1] == b"+":
                self._threads[directory] = None
            elif word[:1] == b"-":
                self._threads.pop(directory, None)
            elif word[:1] == b"=":
                deadline, _, handler = directory.partition(" ")
                self._deadlines.pop(handler, None)
                if at := float(deadline):
                    # The margin may not be all of a short lease: nothing would ever run under it.
                    self._deadlines[handler] = at - min(_MARGIN, (at - clock.monotonic()) / 4)
            elif word:
                self._hands_over = False

    def _hand_over(self, why: str) -> None:
        for directory in self._threads:
            try:
                _dispatch(directory, why)
            except Exception as error:  # noqa: BLE001 (one thread must not end it for all)
                Journal(Layout(directory)).error(f"work: the worker {why}, and {error}")


def _kill(handler: str) -> None:
    """Kill what runs of a handler."""
    if (number := processes.group_of(handler)) is not None:
        processes.kill_group(number, processes.signals.SIGKILL)


def _dispatch(directory: str, why: str) -> None:
    """Start a dispatch if anything waits in a thread."""
    with Thread(directory) as thread:
        consumers, leases = thread.consumers, thread.consumers.leases()
        waiting = [
            state.consumer
            for state in consumers.states()
            if consumers.is_waiting(state) or leases.is_lost(state.consumer)
        ]
        if waiting:
            thread.journal.warn(f"work: the worker {why}; a dispatch takes over from it")
            thread.notifier.wake_one()
