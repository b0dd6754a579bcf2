"""Run a command: its output goes to a sink, and the head of the view to a callback."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import threading

from eventq.errors import NO_DESCRIPTORS, EventqError, LogicError, UsageError, refused
from eventq.output.sink import OutputSink
from eventq.system import clock, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

    from eventq.output.artifacts import Artifacts, ArtifactWriter
    from eventq.records.artifact import Captured

LINGER = 1.0  # seconds of silence that end a capture whose command has left children behind
_LOOK = 0.1  # seconds between checks of a silent command and of bytes waiting to be stored
_PIPE = 1 << 20  # bytes; causes fewer context switches than the system's 64 KiB
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of Linux
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
NOT_FOUND, NOT_STARTED = 127, 126  # exit codes, as a shell has them


class CannotStartError(LogicError):
    """The command could not be started; `exit_code` is what a shell would return."""

    def __init__(self, command: str, error: OSError) -> None:
        missing = error.errno == errno.ENOENT
        super().__init__(
            f"'{command}' could not be started: {'no such command' if missing else error.strerror}",
            "check its name and PATH"
            if missing
            else "check its permissions, or run it through sh -c",
        )
        self.exit_code = NOT_FOUND if missing else NOT_STARTED


def capture(
    artifacts: Artifacts,
    argv: Sequence[str],
    *,
    tool: str | None = None,
    show: Callable[[bytes], object] | None = None,
    **options: Any,
) -> tuple[int, Captured]:
    """Run a command; return its exit code (128 + n for signal n) and a view of its output.

    stderr is merged into stdout; stdin is inherited. If the view is not the whole output, that is
    stored as an artifact of `tool` (default: the command's name). `show` gets the head of the view
    as it grows, and b"" from time to time. `options` are those of `OutputSink`. In the main thread,
    signals that would end this process are forwarded to the command. If the command has ended but
    a child of it still holds the pipe, LINGER seconds of silence end the capture. Raises
    CannotStartError, and StoreError without descriptors.
    """
    words = _words(argv)
    if tool is not None and not isinstance(tool, str):
        raise UsageError(
            f"the tool's name must be text, not {type(tool).__name__}",
            "give a string such as 'bash'",
        )
    keeper = _Keeper(artifacts, os.path.basename(words[0]) if tool is None else tool)
    sink = OutputSink(keeper, **options)
    try:
        code = _run(words, sink, keeper.tick, show or _ignore)
        return code, sink.dump()._replace(session=artifacts.session)
    except BaseException:
        sink.abandon("the capture was interrupted")
        raise


def _words(argv: object) -> list[str]:
    """Return the words of a command. Raises UsageError for NUL, or for an empty name."""
    words = [*argv] if isinstance(argv, (list, tuple)) else []
    if (
        not words
        or words[0] == ""
        or not all(isinstance(word, str) and _is_plain(word) for word in words)
    ):
        raise UsageError(
            "a command must be a list of words",
            "give its name and its arguments, such as ['make', 'test']",
        )
    return words


def _is_plain(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _ignore(_: bytes) -> None:
    pass


class _Keeper:
    """Opens a sink's artifact on demand, and stores waiting bytes while the command is silent."""

    def __init__(self, artifacts: Artifacts, tool: str) -> None:
        self._artifacts = artifacts
        self._tool = tool
        self._writer: ArtifactWriter | None = None

    def __call__(self) -> ArtifactWriter:
        self._writer = self._artifacts.allocate(self._tool)
        return self._writer

    def tick(self) -> None:
        """Store the bytes that have waited for COMMIT_SECONDS."""
        if self._writer is not None:
            try:
                self._writer.tick()
            except EventqError:
                pass  # the writer raises it again at the sink's next write, or at the end


def _run(
    argv: Sequence[str],
    sink: OutputSink,
    tick: Callable[[], object],
    show: Callable[[bytes], object],
) -> int:
    """Run a command, push all of its output into a sink, and return its exit code."""
    try:
        reader, writer = os.pipe()
    except OSError as error:
        raise refused(error, f"no pipe could be made: {error.strerror}") from error
    with _Command() as command:
        try:
            try:
                _widen(writer)
                command.begin(argv, writer)
            finally:
                os.close(writer)
            _pump(reader, command, sink, tick, show)
        finally:
            os.close(reader)  # after an interrupt, SIGPIPE ends a command that keeps printing
        while command.look(_LOOK) is None:
            tick()
    code = command.code or 0
    return code if code >= 0 else 128 - code


def _widen(fd: int) -> None:
    try:
        fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE)
    except OSError:
        pass  # another system, or too many pipes


def _pump(
    reader: int,
    command: _Command,
    sink: OutputSink,
    tick: Callable[[], object],
    show: Callable[[bytes], object],
) -> None:
    """Push output until the pipe is closed, or the command has ended and all is silent."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    last, is_seen = clock.monotonic(), False
    while not command.dismissed:
        if poll.poll(_LOOK * 1000):
            data = os.read(reader, _PIPE)
            if not data:
                return
            sink.push(data)
            if head := sink.take_head():
                show(head)
            last = clock.monotonic()
        else:
            tick()
            show(b"")  # lets the callback retry what it could not write at once
            if command.look() is None:
                continue
            if not is_seen:  # it may have written since the last look at the pipe
                last, is_seen = clock.monotonic(), True
            elif clock.monotonic() - last > LINGER:
                return


class _Command:
    """A running command. Signals are forwarded to it, so that its last output is still stored."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.dismissed = False  # a signal came after its end: do not wait for its children
        self._pid = 0
        self._before: dict[int, Any] = {}
        self._early: list[int] = []  # signals that came before it was started

    def __enter__(self) -> _Command:
        for number in _FORWARDED if threading.current_thread() is threading.main_thread() else ():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._forward)
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        ):
            # Otherwise the exit code would be lost.
            self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._pid:
            self.look(LINGER)  # so that it leaves no zombie
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self, argv: Sequence[str], fd: int) -> None:
        """Start the command, and forward the signals that came too early."""
        try:
            self._pid = processes.spawn_into(argv, fd)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise refused(error, "") from error
            raise CannotStartError(argv[0], error) from error
        for number in self._early:
            self._send(number)

    def look(self, seconds: float = 0) -> int | None:
        """Wait for the command; return its exit code (negative: the signal), or None if it runs."""
        if self.code is None:
            found = processes.wait(self._pid, seconds)
            if self.code is None:  # a signal handler may have been quicker
                self.code = found
        return self.code

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self._pid and self.look() is not None:
            self.dismissed = True
        elif number in (signal.SIGINT, signal.SIGQUIT) and processes.in_foreground():
            return  # the terminal signals the command as well
        elif self._pid:
            self._send(number)
        else:
            self._early.append(number)

    def _send(self, number: int) -> None:
        if self.code is None:
            try:
                os.kill(self._pid, number)
            except ProcessLookupError:
                pass
