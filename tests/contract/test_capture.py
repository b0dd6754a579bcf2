"""`thread.capture`: a command's exit code, a bounded view, and its whole output as an artifact."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import EventqError, LogicError, ReadOnlyError, UsageError
from eventq.output import capture as module
from eventq.output.capture import CannotStartError
from eventq.output.sink import SPILL
from eventq.records.artifact import Captured
from eventq.system import clock, processes
from tests.conftest import Clock, open_gate
from tests.contract.test_sink import model_cap, model_view

if TYPE_CHECKING:
    from tests.conftest import Until

pytestmark = pytest.mark.engines("sqlite", soaked=["postgres"])

SEQ = b"".join(b"%d\n" % n for n in range(1, 20_001))  # 108,894 bytes
SHOWN = model_view(SEQ, SPILL, 20 * 1024)
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
SOON = 120.0


def files() -> list[str]:
    """Return what this process has open."""
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(name) for name in names if os.path.lexists(name))


def seen(argv: list[str], thread: eventq.Thread, **options: Any) -> tuple[int, Captured, bytes]:
    """Capture a command, and give what was shown on the way as well."""
    parts: list[bytes] = []
    code, captured = thread.capture(argv, show=parts.append, **options)
    return code, captured, b"".join(parts)


# --- what it gives --------------------------------------------------------------------------------


def test_what_a_short_command_gives(thread: eventq.Thread) -> None:
    """The exit code and all of the text, which was shown as it came; no artifact."""
    found = seen(["sh", "-c", "echo one; echo two >&2; exit 3"], thread)
    assert found == (3, Captured("one\ntwo\n", False, 0, 8, 3, None, None), b"one\ntwo\n")
    assert len(thread.artifacts) == 0


def test_what_a_long_command_gives(thread: eventq.Thread) -> None:
    """The view starts with the shown head; the artifact has the command's name and all bytes."""
    code, captured, shown = seen(["/usr/bin/env", "seq", "20000"], thread)
    assert (code, captured) == (0, Captured(SHOWN.decode(), True, 0, len(SEQ), 20_001, "0", None))
    assert SHOWN.startswith(shown)
    assert 20 * 1024 - 10 < len(shown) <= 20 * 1024
    assert (thread.artifacts.get(0).tool, thread.artifacts.open(0).read()) == ("env", SEQ)


def test_nothing_need_be_shown(thread: eventq.Thread) -> None:
    """Without `show` the result is the same."""
    expected = (0, Captured(SHOWN.decode(), True, 0, len(SEQ), 20001, "0", None))
    assert thread.capture(["seq", "20000"]) == expected


def test_the_options_are_those_of_the_sink(thread: eventq.Thread) -> None:
    """`tool`, `keep`, `spill`, `head`, `columns`, `sanitize` and `on_chunk` have an effect."""
    chunks: list[str] = []
    options: dict[str, Any] = {"keep": True, "sanitize": False, "on_chunk": chunks.append}
    code, captured = thread.capture(["printf", r"\033[1mx\r"], tool="b/a sh", **options)
    assert (code, captured) == (0, Captured("\x1b[1mx\r", False, 0, 6, 1, "0", None))
    expected = ("b_a_sh", b"\x1b[1mx\r")
    assert (thread.artifacts.get(0).tool, thread.artifacts.open(0).read()) == expected
    assert "".join(chunks) == "\x1b[1mx\r"
    captured = thread.capture(["seq", "200"], spill=100, head=20, columns=4)[1]
    assert captured.text.encode() == model_view(model_cap(SEQ[:692], 4)[0], 100, 20)
    with pytest.raises(UsageError, match="3 columns are too few"):
        thread.capture(["false"], columns=3)


def test_in_another_thread_signals_are_left_alone(thread: eventq.Thread) -> None:
    """Outside of the main thread the result is the same, and no signal is touched."""
    found: list[Any] = []
    before = [signal.getsignal(number) for number in FORWARDED]

    def show(_: bytes) -> None:
        found.append([signal.getsignal(number) for number in FORWARDED] == before)

    def work() -> None:
        found.append(thread.capture(["sh", "-c", "seq 20000; kill -9 $$"], show=show))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert set(found[:-1]) == {True}
    assert found[-1] == (137, Captured(SHOWN.decode(), True, 0, len(SEQ), 20_001, "0", None))


def test_many_threads_capture_at_once(path: str) -> None:
    """Commands captured in parallel do not hold each other's pipes, and get their own numbers."""
    found: dict[int, tuple[int, Captured]] = {}

    def work(number: int) -> None:
        with eventq.open(path) as thread:
            found[number] = thread.capture(["sh", "-c", f"seq 20000; echo {number}; exit {number}"])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with eventq.open(path) as thread:
        for number, (code, captured) in found.items():
            assert (code, captured.error) == (number, None)
            assert (
                thread.artifacts.open(captured.artifact_id or "").read() == SEQ + b"%d\n" % number
            )
        assert sorted(captured.artifact_id or "" for _, captured in found.values()) == list(
            "012345"
        )
        assert thread.check() == []


def test_nothing_of_ours_is_left(thread: eventq.Thread) -> None:
    """A capture leaves no open descriptor, no unreaped child and no changed signal behind."""
    thread.capture(["true"], keep=True)
    before = files()
    handlers = [signal.getsignal(number) for number in FORWARDED]
    during = []
    pid = int(
        thread.capture(
            ["sh", "-c", "echo $$"], show=lambda _: during.append(signal.getsignal(signal.SIGTERM))
        )[1].text
    )
    assert during
    assert during[0] != handlers[0]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(CannotStartError):
        thread.capture(["no-such-command"])
    with pytest.raises(ZeroDivisionError):
        thread.capture(["echo"], show=lambda _: 1 // 0)
    assert files() == before
    assert [signal.getsignal(number) for number in FORWARDED] == handlers


def test_a_pipe_that_cannot_be_widened_will_do(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system refuses a larger pipe, the usual one carries everything too."""
    asked = []

    def refuse(fd: int, what: int, value: int) -> None:
        asked.append((what, value))
        raise OSError(errno.EPERM, "refused by the test")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert thread.capture(["seq", "20000"])[1].total_bytes == len(SEQ)
    assert asked == [(1031, 1 << 20)]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv", ["ls", "", [], (), [b"ls"], ["a", 5], ["ls", "a\0b"], ["\0"], b"ls", [None]]
)
def test_what_is_no_command_is_refused(thread: eventq.Thread, argv: Any) -> None:
    """A command is a list of words that are text without NUL, at least one; text alone is not."""
    with pytest.raises(UsageError, match="a command must be a list of words"):
        thread.capture(argv)
    assert len(thread.artifacts) == 0


@pytest.mark.parametrize("argv", [5, None, ["\ud800"], ["echo", "\ud800"], [""], ["", "x"]])
def test_what_cannot_be_a_command_is_an_error_of_ours(thread: eventq.Thread, argv: Any) -> None:
    """No list, words without bytes and an empty name are errors of eventq."""
    with pytest.raises((UsageError, CannotStartError)):
        thread.capture(argv)


def test_a_tool_that_is_no_text_is_refused(thread: eventq.Thread, tmp_path: Path) -> None:
    """A wrong `tool` is a UsageError before the command is started."""
    with pytest.raises(UsageError):
        thread.capture(["touch", str(tmp_path / "ran")], tool=5)  # type: ignore[arg-type]
    assert not (tmp_path / "ran").exists()


def test_a_thread_that_may_only_be_read_runs_nothing(path: str, tmp_path: Path) -> None:
    """Where nothing may be kept nothing is run."""
    with eventq.open(path, read_only=True) as thread, pytest.raises(ReadOnlyError):
        thread.capture(["touch", str(tmp_path / "ran")])
    assert not (tmp_path / "ran").exists()


def test_a_command_that_cannot_be_started_says_so(thread: eventq.Thread, tmp_path: Path) -> None:
    """A command that cannot start is a caller's error with a shell's exit code."""

    def never(data: bytes) -> None:
        raise AssertionError(data)

    for name, code, what in (
        ("no-such-command", 127, "no such command"),
        (str(tmp_path), 126, "Permission denied"),
    ):
        with pytest.raises(
            CannotStartError, match=f"'{name}' could not be started: {what}"
        ) as caught:
            thread.capture([name, "x"], keep=True, show=never)
        assert caught.value.exit_code == code
        assert isinstance(caught.value, LogicError)
        assert isinstance(caught.value.__cause__, OSError)
    assert len(thread.artifacts) == 0


def test_an_error_of_show_ends_the_capture(
    thread: eventq.Thread, tmp_path: Path, until: Until
) -> None:
    """An exception of `show` is raised, fails the artifact, and ends the command with SIGPIPE."""
    log = tmp_path / "log"

    def show(data: bytes) -> None:
        if len(parts) == 1 and data:
            raise ZeroDivisionError("enough")
        parts.extend([data] if data else [])

    parts: list[bytes] = []
    script = f"echo one; sleep 0.1; seq 1000000000; echo $? >{log}"
    with pytest.raises(ZeroDivisionError, match="enough"):
        thread.capture(["sh", "-c", script], show=show, keep=True)
    until(lambda: log.exists() and log.read_text() == "141\n", "SIGPIPE ends the command", SOON)
    (info,) = thread.artifacts.list()
    assert (info.status, info.error) == ("failed", "the capture was interrupted")
    assert thread.artifacts.open(0).read().startswith(b"one\n1\n2\n")


def test_an_error_of_show_leaves_no_zombie(thread: eventq.Thread, until: Until) -> None:
    """A command whose capture was ended is reaped."""
    parts: list[bytes] = []

    def show(data: bytes) -> None:
        parts.append(data)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        thread.capture(["sh", "-c", "echo $$; exec yes"], show=show)
    until(lambda: processes.birth(int(parts[0].split()[0])) is None, "it ends", SOON)
    with pytest.raises(ProcessLookupError):
        os.kill(int(parts[0].split()[0]), 0)


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", FORWARDED, ids=lambda number: number.name)
def test_a_signal_before_the_start_goes_on_too(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """One that comes before there is a command is the command's as soon as there is one."""
    spawn = processes.spawn_into
    monkeypatch.setattr(os, "isatty", lambda _: False)

    def late(argv: list[str], fd: int) -> int:
        os.kill(os.getpid(), number)
        return spawn(argv, fd)

    monkeypatch.setattr(processes, "spawn_into", late)
    assert thread.capture(["sleep", "60"])[0] == 128 + number


def test_a_signal_after_the_end_hits_nobody(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the command has been waited for, its number may be another's: nothing is sent."""
    monkeypatch.setattr(module, "LINGER", 0.5)
    sent: list[int] = []
    ended: list[int | None] = []
    kill, wait, monotonic = os.kill, processes.wait, clock.monotonic

    def watch(pid: int, number: int) -> None:
        sent.append(pid)
        kill(pid, number)

    def see(pid: int, seconds: float) -> int | None:
        ended.append(wait(pid, seconds))
        return ended[-1]

    def late() -> float:
        """Let a signal come just after the end was seen."""
        if not sent and any(code is not None for code in ended):
            os.kill(os.getpid(), signal.SIGTERM)
        return monotonic()

    monkeypatch.setattr(os, "kill", watch)
    monkeypatch.setattr(processes, "wait", see)
    monkeypatch.setattr(clock, "monotonic", late)
    code, captured = thread.capture(["sh", "-c", "sleep 60 & echo $!; exit 3"])
    kill(int(captured.text), signal.SIGKILL)
    assert code == 3
    assert set(sent) == {os.getpid()}


def test_a_signal_for_a_command_that_has_gone_is_lost(thread: eventq.Thread) -> None:
    """When somebody else has waited for the command, telling it is no error."""

    def show(data: bytes) -> None:
        os.waitpid(int(data), 0)
        os.kill(os.getpid(), signal.SIGTERM)

    code, captured = thread.capture(["sh", "-c", "echo $$"], show=show)
    assert (code, captured.total_lines) == (processes.UNKNOWN, 2)


def test_an_ignored_signal_stays_ignored(thread: eventq.Thread) -> None:
    """A signal that we ignore is not taken over, and the command ignores it as well."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        during: list[Any] = []
        shell = "kill -HUP $$; echo still here"
        code, captured = thread.capture(
            ["sh", "-c", shell], show=lambda _: during.append(signal.getsignal(signal.SIGHUP))
        )
        assert (code, captured.text, during) == (0, "still here\n", [signal.SIG_IGN])
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# --- what is left running -------------------------------------------------------------------------


def test_what_is_left_running_is_waited_for_until_it_is_silent(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LINGER seconds of silence end a capture, counted from the last byte."""
    clock = Clock(1000.0)
    monkeypatch.setattr("eventq.system.clock.monotonic", clock)
    said: list[bytes] = []

    def show(data: bytes) -> None:
        said.append(data)
        words = b"".join(said).split()
        if data or len(words) < 2 + len(waited) or processes.birth(int(words[0])):
            return
        waited.append(0.9 if len(waited) < 3 else 1.1)  # in a silence, with the command over
        clock.move(module.LINGER * waited[-1])
        if len(waited) < 4:
            open_gate(gates[len(waited) - 1])

    waited: list[float] = []
    gates = [str(tmp_path / word) for word in "abc"]
    for one in gates:
        os.mkfifo(one)
    steps = "; ".join(f"read x <{one}; echo {os.path.basename(one)}" for one in gates)
    code, captured = thread.capture(
        ["sh", "-c", f"({steps}; exec sleep 1000) & echo $$ $!; exit 3"], show=show
    )
    _, left, *rest = captured.text.split()
    os.kill(int(left), signal.SIGKILL)  # it still runs
    assert (code, rest, waited) == (3, ["a", "b", "c"], [0.9, 0.9, 0.9, 1.1])


def test_the_end_of_what_is_left_running_is_the_end(
    thread: eventq.Thread, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late output is captured in time, and nothing is waited for once nobody holds the pipe."""
    monkeypatch.setattr(module, "LINGER", 1e9)
    opened: list[bytes] = []

    def show(data: bytes) -> None:
        if data and not opened:
            opened.append(data)
            open_gate(gate)

    script = f"(read x <{gate}; echo a) & echo started; exit 3"
    code, captured = thread.capture(["sh", "-c", script], show=show)
    assert (code, captured.text) == (3, "started\na\n")


def test_a_silent_command_is_waited_for(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that runs may be silent for longer than what it leaves behind may."""
    monkeypatch.setattr(module, "LINGER", 0.0)
    code, captured = thread.capture(["sh", "-c", "sleep 0.5; echo x; exit 3"])
    assert (code, captured.text) == (3, "x\n")


def test_the_last_words_of_a_silent_command_are_kept(
    thread: eventq.Thread, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may write and end between a look at the pipe and the look whether it still runs."""
    monkeypatch.setattr(module, "LINGER", 0.0)
    said: list[bytes] = []
    opened: list[bool] = []

    def show(data: bytes) -> None:
        said.append(data)
        words = b"".join(said).split()
        if not data and words and not opened:
            opened.append(True)
            open_gate(gate)
            while processes.birth(int(words[0])):
                pass

    script = f"echo $$; read x <{gate}; echo last words; exit 3"
    code, captured = thread.capture(["sh", "-c", script], show=show)
    assert (code, captured.text.split()[1:]) == (3, ["last", "words"])


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 16, 1 << 17])
def test_lines_of_whole_chunks(thread: eventq.Thread, size: int) -> None:
    """A last line without a newline is kept, also at the end of a chunk."""
    code, captured = thread.capture(["head", "-c", str(size), "/dev/zero"], sanitize=False)
    assert (code, thread.artifacts.get(captured.artifact_id or "").lines) == (0, 1)
    assert thread.check() == []


def test_errors_of_a_capture_are_ours() -> None:
    """CannotStartError is in the tree of errors, so that one `except` catches it."""
    error = CannotStartError("x", OSError(errno.EACCES, "Permission denied"))
    assert isinstance(error, EventqError)
    assert (error.exit_code, str(error)) == (
        126, "'x' could not be started: Permission denied - check its permissions, or run it through sh -c",
    )  # fmt: skip
