"""`push --stream`: store lines as they come, one commit for all that came within 50 ms.

Nothing is acknowledged before it is on disk: the id of an event is printed after its commit. While
another writer is in the way nothing is read, so that whoever writes into the pipe waits as well.
"""

from __future__ import annotations

import os
import select
from io import BytesIO

from eventq.cli import show
from eventq.cli.batch import Lines
from eventq.errors import BusyError, EventqError, KeyConflictError
from eventq.log.events import limit_of_event
from eventq.system import clock
from eventq.system.counts import count
from eventq.system.processes import ends, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Any

    from eventq.cli.log import Pushed
    from eventq.errors import InputError, TooLargeError
    from eventq.thread import Thread

WINDOW_SECONDS = 0.05  # from the first line of a group
_BLOCK = 1 << 16
_MOST_BYTES = 4 << 20  # of a group, beside its last line
_MOST_EVENTS = 10_000


def push(thread: Thread, event: Pushed | None, *, key_strict: bool, json: bool) -> int:
    """Store the lines of stdin until its end, SIGTERM or SIGINT; return the exit status.

    Each is a JSON object, or with an `event` the content of one like it.
    """
    fd, limit = show.stdin(), limit_of_event()
    lines = _Objects(limit) if event is None else _Contents(limit, event)
    with _Signals() as stop:
        stream = _Stream(thread, lines, strict=key_strict, json=json)
        for group in stream.groups(fd, stop):
            stream.store(group, stop)
    if stream.refused:
        were = "was" if stream.refused == 1 else "were"
        of = count(lines.line, "line")
        show.note(f"Note: {stream.refused:,} of {of} {were} refused")
    return 130 if stop.number == signals.SIGINT else int(stream.refused > 0)


class _Objects(Lines):
    """Lines that are JSON objects."""

    fix = "give a JSON object per line, with source, type and content; this line was not stored"


class _Contents(Lines):
    """Lines that are contents: what ends them is a LF, or CR LF."""

    ends = (b"\n",)
    fix = "encode it, for example as base64; this line was not stored"

    def __init__(self, limit: int, event: Pushed) -> None:
        super().__init__(limit)
        self._event = event

    def events(self, lines: Iterable[bytes | bytearray]) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of an event for each line."""
        source, kind, subtype = (self._event[name] for name in ("source", "type", "subtype"))
        for data in lines:
            self.line += 1
            try:
                text = data.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise self._bad(f"not UTF-8 (byte {error.start})") from error
            yield source, kind, text, subtype, None

    def _split(self, block: bytes) -> list[bytes]:
        return BytesIO(block).readlines()

    def unfit(self) -> InputError | TooLargeError | None:
        """Return the error for a line that is too long already."""
        return self._large() if len(self._begun) > self._limit + len(b"\r") else None


class _Stopped(Exception):  # noqa: N818 (not an error)
    """A signal came while nothing was done."""


class _Signals:
    """SIGINT, SIGTERM and SIGHUP end the reading; a second of the first two, whatever is done."""

    def __init__(self) -> None:
        self.number = 0  # of the one that came
        self._waits = False

    def __enter__(self) -> _Signals:
        self._before = {n: signals.signal(n, self._came) for n in ends()}
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signals.signal(number, before)

    def _came(self, number: int, _: object) -> None:
        if self.number and number != signals.SIGHUP:
            raise KeyboardInterrupt
        self.number = self.number or number
        if self._waits:
            raise _Stopped

    def wait(self, poll: select.poll, seconds: float | None) -> bool:
        """Wait for input; return False if the time is up, or a signal came."""
        try:
            self._waits = True
            if self.number:
                return False
            return bool(poll.poll(None if seconds is None else seconds * 1000))
        except _Stopped:
            return False
        finally:
            self._waits = False


class _Stream:
    """Stores the lines of a descriptor, and says what became of each."""

    def __init__(self, thread: Thread, lines: Lines, *, strict: bool, json: bool) -> None:
        self._log = thread.log
        self._lines = lines
        self._strict = strict
        self._json = json
        self._has_named = False  # the fields that events do not have
        self.refused = 0

    def groups(self, fd: int, stop: _Signals) -> Iterator[list[tuple[int, tuple[Any, ...]]]]:
        """Yield events with their line numbers, in groups of those that are stored together."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        group: list[tuple[int, tuple[Any, ...]]] = []
        size, until, is_open = 0, 0.0, True
        while is_open:
            left = until - clock.monotonic() if group else None
            is_full = size > _MOST_BYTES or len(group) > _MOST_EVENTS
            if is_full or (left is not None and left <= 0) or not stop.wait(poll, left):
                if group:
                    yield group
                    group, size = [], 0
                is_open = not stop.number
                continue
            block = _read(fd)
            if block is None:
                continue
            before, is_open = len(group), bool(block)
            group += self._taken(block)
            size += len(block) if group else 0
            if group and not before:
                until = clock.monotonic() + WINDOW_SECONDS
        if group:
            yield group

    def _taken(self, block: bytes) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the events of the lines that a block completes; name what is refused."""
        lines = self._lines
        for data in lines.cut(block):
            try:
                for event in lines.events([data]):
                    yield lines.line, event
            except EventqError as error:
                self._refuse(error)
        if (unfit := lines.unfit()) is not None:
            self._refuse(unfit)
            lines.drop()

    def store(self, group: list[tuple[int, tuple[Any, ...]]], stop: _Signals) -> None:
        """Store a group, and print the ids of its events."""
        answers = []
        for (line, _), made in zip(group, self._push(group, stop), strict=True):
            number = made
            if isinstance(made, KeyConflictError) and not self._strict:
                show.note(f"Note: {made.what}; nothing was stored for this line")
                number = made.actual
            if isinstance(number, EventqError):
                self._refuse(number)
            else:
                answers.append(f'{{"line":{line},"id":{number}}}' if self._json else f"{number}")
        show.lines(answers)
        if self._lines.unknown and not self._has_named:
            self._has_named = True
            names = self._lines.unknown_names()
            show.note(f"Note: fields that events do not have are left out: {names}")

    def _push(
        self, group: list[tuple[int, tuple[Any, ...]]], stop: _Signals
    ) -> list[int | EventqError]:
        """Store a group, however long another writer is in the way, unless we are to end."""
        is_told = False
        while True:
            try:
                return self._log.push_each(
                    [event for _, event in group], lambda number: f"line {group[number - 1][0]}"
                )
            except BusyError as error:
                if stop.number:
                    raise
                if not is_told:
                    show.note(f"Note: {error.what}; it is tried again until that ends")
                is_told = True
                clock.pause(WINDOW_SECONDS)

    def _refuse(self, error: EventqError) -> None:
        self.refused += 1
        show.error(error.what, error.fix, as_json=self._json)


def _read(fd: int) -> bytes | None:
    """Return the next bytes, b"" at the end; None if another process was quicker."""
    try:
        return os.read(fd, _BLOCK)
    except BlockingIOError:
        return None
