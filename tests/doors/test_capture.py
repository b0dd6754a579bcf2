"""`eventq capture` as a process: its output, exit status, signals, kills, a full disk."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq.cli import capture as module
from eventq.cli import show
from eventq.output.capture import LINGER
from eventq.output.sink import COLUMNS, HEAD, SPILL
from tests.conftest import open_gate
from tests.contract.test_sink import model_cap, model_view
from tests.crash.support import kill, read_lines
from tests.doors.support import EVENTQ, environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.cli.capture import View
    from tests.conftest import Until

LAST = b"[raw output: artifact://%d]\n"
SEQ = b"".join(b"%d\n" % n for n in range(1, 20_001))  # 108,894 bytes
LONG = "seq 20000"  # what prints it
SOON = 120.0  # seconds that something may take which is a matter of one

# Notes every signal in a file, and leaves at the last of them with what it has to say. It never
# looks at a clock.
NOTING = """
import os, signal, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(number, _):
    os.write(log, b"%d\\n" % number)
def leave(number, _):
    os.write(1, b"told %d\\n" % number)
    os._exit(7)
*noted, last = map(int, sys.argv[2:])
for number in noted:
    signal.signal(number, note)
signal.signal(last, leave)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


_started: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """End what a test that failed has left running."""
    yield
    for process in _started:
        process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        process.wait()
    _started.clear()


@pytest.fixture
def box(path: str) -> Iterator[str]:
    """Yield a fresh thread, which must check out when the test is over."""
    yield path
    with eventq.open(path) as thread:
        assert thread.check() == []


def capture(
    box: str, *words: str, options: tuple[str, ...] = (), given: bytes | None = None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """Capture a command and give what came out."""
    stdin = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    call: dict[str, Any] = {
        "capture_output": True,
        "env": environ(),
        "timeout": 120,
        **stdin,
        **more,
    }
    return subprocess.run([EVENTQ, "capture", *options, "--thread", box, "--", *words], **call)


def sh(
    box: str, script: str, *words: str, options: tuple[str, ...] = (), **more: Any
) -> tuple[int, bytes, str]:
    """Capture a script of the shell; give the exit code, the output and the errors."""
    done = capture(box, "sh", "-c", script, "sh", *words, options=options, **more)
    return done.returncode, done.stdout, done.stderr.decode()


def start(
    box: str,
    *words: str,
    options: tuple[str, ...] = (),
    setup: Callable[[], object] | None = None,
    **more: Any,
) -> subprocess.Popen[bytes]:
    """Start to capture a command, with Ctrl-C as it is wherever the tests are run."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if setup:
            setup()

    call: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **more,
    }
    argv = [EVENTQ, "capture", *options, "--thread", box, "--", *words]
    _started.append(subprocess.Popen(argv, env=environ(), preexec_fn=prepare, **call))  # noqa: PLW1509 (one thread only)
    return _started[-1]


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Wait for a capture; give its exit code, the rest of its output and its errors."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err.decode()


def first(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line that a capture shows."""
    assert process.stdout is not None
    return bytes(process.stdout.readline())


def kept(box: str, number: int = 0, status: str = "sealed") -> bytes:
    """Return the bytes of an artifact, which must be whole, or what `status` says."""
    with eventq.open(box, read_only=True) as thread:
        artifact = thread.artifacts.open(number)
        assert artifact.info.status == status
        return artifact.read()


def count(box: str) -> int:
    """Return the number of artifacts."""
    with eventq.open(box, read_only=True) as thread:
        return len(thread.artifacts)


def bounded(data: bytes, spill: int = SPILL, head: int = HEAD, columns: int = COLUMNS) -> bytes:
    """Return what is shown of a stream, by the naive model."""
    return model_view(model_cap(data, columns)[0], spill, head)


def with_note(shown: bytes, number: int = 0) -> bytes:
    """Return what is shown with the line that leads to the rest."""
    return shown + (b"" if shown.endswith(b"\n") else b"\n") + LAST % number


# --- short output ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "one line\n", "no newline", "é\ttab\n\n", "x" * COLUMNS])
def test_short_output_is_all_there_is(box: str, text: str) -> None:
    """Short output is on stdout unchanged, with nothing on stderr and no artifact."""
    assert sh(box, 'printf %s "$1"', text) == (0, text.encode(), "")
    assert count(box) == 0


@pytest.mark.parametrize(("size", "fits"), [(SPILL, True), (SPILL + 1, False)])
def test_the_border_between_short_and_long(box: str, tmp_path: Path, size: int, fits: bool) -> None:
    """51,200 bytes are shown as they are, one more is too much."""
    data = (b"x" * 99 + b"\n") * 600
    data = data[: size - 1] + b"\n"
    (tmp_path / "data").write_bytes(data)
    done = capture(box, "cat", str(tmp_path / "data"))
    assert done.stdout == (data if fits else with_note(bounded(data)))
    assert len(done.stdout) <= SPILL + len(LAST)
    assert count(box) == (not fits)


def test_errors_stand_where_they_were_printed(box: str) -> None:
    """What the command says on stderr is in its output, in order, and not on our stderr."""
    assert sh(box, "echo 1; echo 2 >&2; echo 3; echo 4 >&2") == (0, b"1\n2\n3\n4\n", "")


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_commands(box: str, code: int) -> None:
    """Whatever a command exits with is passed on, after its output."""
    assert sh(box, f"echo x; exit {code}") == (code, b"x\n", "")


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "INT", "HUP"])
def test_a_signal_is_128_and_its_number(box: str, name: str) -> None:
    """A command that a signal ends gives 128 + n, as in a shell."""
    assert sh(box, f"echo x; kill -{name} $$") == (128 + signal.Signals[f"SIG{name}"], b"x\n", "")


def test_a_long_output_has_its_exit_code_too(box: str) -> None:
    """An artifact changes nothing about the exit code."""
    assert sh(box, f"{LONG}; exit 9") == (9, with_note(bounded(SEQ)), "")
    assert sh(box, f"{LONG}; kill -9 $$") == (137, with_note(bounded(SEQ), 1), "")


@pytest.mark.parametrize("options", [(), ("--keep",), ("--json",)])
def test_a_command_that_cannot_be_started(
    box: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The status is 127 for a missing command, 126 for one that is not executable."""
    plain = tmp_path / "plain"
    plain.write_bytes(b"echo x\n")
    missing, forbidden = "check its name and PATH", "check its permissions, or run it through sh -c"
    for name, code, why, fix in (
        ("no-such-command", 127, "no such command", missing),
        (str(tmp_path / "none"), 127, "no such command", missing),
        (str(plain), 126, "Permission denied", forbidden),
        (str(tmp_path), 126, "Permission denied", forbidden),
        (f"{plain}/x", 126, "Not a directory", forbidden),
    ):
        done = capture(box, name, options=options)
        what = f"'{name}' could not be started: {why}"
        assert (done.returncode, done.stdout) == (code, b"")
        if "--json" in options:
            assert json.loads(done.stderr) == {"error": what, "suggestion": fix}
        else:
            assert done.stderr.decode() == f"Error: {what} - {fix}\n"
    assert count(box) == 0


def test_an_empty_command_is_none(box: str) -> None:
    """An empty word is the name of no command: a sentence, and 127 or 2."""
    done = capture(box, "")
    assert done.returncode in (2, 127)
    assert done.stderr.startswith(b"Error: ")
    assert done.stdout == b""


def test_without_a_thread_nothing_is_run(tmp_path: Path) -> None:
    """Without a thread the status is 1, and the command is not started."""
    done = capture(str(tmp_path / "none"), "touch", str(tmp_path / "ran"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith(f"Error: '{tmp_path}/none' is not a thread - ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("options", "says"), [
    (["--spill", "x"], "--spill must be a whole number"), (["--head", "-1"], "--head"),
    (["--columns", "3"], "3 columns are too few"), (["--tool", ""], "--tool is empty"),
    (["--nonsense"], "--nonsense"), (["word"], "'word' is before '--'"),
])  # fmt: skip
def test_with_wrong_options_nothing_is_run(
    box: str, tmp_path: Path, options: list[str], says: str
) -> None:
    """A usage error is a sentence and status 2, before the command is started."""
    done = capture(box, "touch", str(tmp_path / "ran"), options=tuple(options))
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr.decode()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("words", [[], ["--"], ["ls"]])
def test_without_a_command_there_is_nothing_to_do(box: str, words: list[str]) -> None:
    """No words after `--`, or no `--`, is status 2 and a sentence."""
    done = subprocess.run(
        [EVENTQ, "capture", "--thread", box, *words], capture_output=True, env=environ()
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'--'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", [["--thread"], ["--thread="]])
def test_words_arrive_unchanged(box: str, form: list[str]) -> None:
    """Blanks, quotes, empty words, options, `--` and non-UTF-8 reach the command unchanged."""
    code = (
        "import os, sys; os.write(1, repr([os.fsencode(word) for word in sys.argv[1:]]).encode())"
    )
    words = [
        b"a b", b"'\"\\$x`", b"", b"-x", b"--help", b"--thread", b"--", b"--", b"--json", b"*",
        b"\xc3\xa9\xff", b"a\nb",
    ]  # fmt: skip
    thread = [*form, box] if form == ["--thread"] else [form[0] + box]
    argv: list[str | bytes] = [EVENTQ, "capture", *thread, "--", sys.executable, "-c", code, *words]
    done = subprocess.run(argv, capture_output=True, env=environ())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == repr(words).encode()


# --- long output ----------------------------------------------------------------------------------


def test_long_output_is_bounded_and_kept(box: str) -> None:
    """Head, mark and tail fit 50 KiB, the last line is the URL, the artifact has everything."""
    code, out, err = sh(box, LONG)
    assert (code, err) == (0, "")
    assert out == with_note(bounded(SEQ))
    shown = out.removesuffix(LAST % 0)
    assert SPILL - 200 < len(shown) <= SPILL
    match = re.fullmatch("(.*\n)\\[…(\\d+)ln elided…\\]\n(.*)", shown.decode(), re.DOTALL)
    assert match
    head, left_out, tail = match[1].split(), int(match[2]), match[3].split()
    assert [*map(int, head), *map(int, tail)] == [
        n for n in range(1, 20_001) if not len(head) < n <= len(head) + left_out
    ]
    assert HEAD - 10 < len(match[1]) <= HEAD
    cat = subprocess.run(
        [EVENTQ, "artifact", "cat", "0", "--thread", box], capture_output=True, env=environ()
    )
    assert (cat.returncode, cat.stdout, cat.stderr) == (0, SEQ, b"")
    with eventq.open(box) as thread:
        (info,) = thread.artifacts.list()
        expected = ("sh", "sealed", 20000, blake3(SEQ).hexdigest())
        assert (info.tool, info.status, info.lines, info.hash) == expected


@pytest.mark.parametrize(("options", "limits"), [
    (["--spill", "1000"], {"spill": 1000}),
    (["--spill", "1000", "--head", "100"], {"spill": 1000, "head": 100}),
    (["--head", "0"], {"head": 0}), (["--head", "99999999"], {"head": 99_999_999}),
    (["--spill", "0"], {"spill": 0}), (["--columns", "4"], {"columns": 4}),
])  # fmt: skip
def test_the_budgets_can_be_chosen(box: str, options: list[str], limits: dict[str, int]) -> None:
    """`--spill`, `--head` and `--columns` bound what is shown; what is kept is the same."""
    shown = bounded(SEQ, **limits)
    assert sh(box, LONG, options=tuple(options)) == (0, with_note(shown) if shown else LAST % 0, "")
    assert kept(box) == SEQ


@pytest.mark.parametrize(
    ("name", "tool"), [(None, "sh"), ("make", "make"), ("a/b c", "a_b_c"), ("--x", "--x")]
)
def test_the_tool_is_the_command_unless_told(box: str, name: str | None, tool: str) -> None:
    """An artifact says what made it: the command's name without its folder, or `--tool`."""
    options = ("--keep", *(() if name is None else (f"--tool={name}",)))
    assert capture(box, "/bin/sh", "-c", "echo x", options=options).stdout == b"x\n" + LAST % 0
    with eventq.open(box) as thread:
        assert thread.artifacts.get(0).tool == tool


def test_short_output_can_be_kept(box: str) -> None:
    """With `--keep` short output is an artifact too, but empty output is not."""
    assert sh(box, "printf x", options=("--keep",)) == (0, b"x\n" + LAST % 0, "")
    assert sh(box, "true", options=("--keep",)) == (0, b"", "")
    assert kept(box) == b"x"
    assert count(box) == 1


def test_a_line_that_is_cut_leads_to_an_artifact(box: str) -> None:
    """A line over 768 bytes is cut in the view and kept whole: `capped`, not truncated."""
    line = b"a" * (COLUMNS + 1)
    code, out, _ = sh(box, f'printf "%s\\n" "{line.decode()}"; exit 4')
    assert (code, out) == (4, b"a" * (COLUMNS - 3) + "…\n".encode() + LAST % 0)
    assert kept(box) == line + b"\n"
    code, out, _ = sh(box, f'printf %s "{line.decode()}"', options=("--json",))
    assert json.loads(out) == {
        "exit_code": 0, "text": "a" * (COLUMNS - 3) + "…", "truncated": False, "capped": 4, "total_bytes": COLUMNS + 1,
        "total_lines": 1, "artifact": "artifact://1", "error": None,
    }  # fmt: skip
    assert sh(box, f'printf %s "{line.decode()}"', options=("--columns", "0")) == (0, line, "")
    assert count(box) == 2


def test_json_is_one_object(box: str) -> None:
    """`--json` prints one line at the end; the exit code is the command's."""
    code, out, err = sh(box, "echo é; exit 3", options=("--json",))
    assert (code, err, out.count(b"\n")) == (3, "", 1)
    assert list(json.loads(out)) == [
        "exit_code", "text", "truncated", "capped", "total_bytes", "total_lines", "artifact", "error",
    ]  # fmt: skip
    assert json.loads(out) == {
        "exit_code": 3, "text": "é\n", "truncated": False, "capped": 0, "total_bytes": 3, "total_lines": 2,
        "artifact": None, "error": None,
    }  # fmt: skip
    code, out, _ = sh(box, f"{LONG}; kill -9 $$", options=("--json",))
    told = json.loads(out)
    assert (code, told["exit_code"], told["text"].encode()) == (137, 137, bounded(SEQ))
    assert (told["truncated"], told["total_bytes"], told["total_lines"]) == (True, len(SEQ), 20_001)
    assert (told["artifact"], kept(box)) == ("artifact://0", SEQ)


def test_what_a_terminal_would_obey_is_taken_out(box: str) -> None:
    """Escape sequences and carriage returns are removed, unless `--raw` is used."""
    script = "printf '\\033[31mred\\033[0m\\r\\n\\033]0;title\\007a\\bb\\n'"
    assert sh(box, script, options=("--keep",)) == (0, b"red\nab\n" + LAST % 0, "")
    assert kept(box, 0) == b"red\nab\n"
    whole = b"\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07a\bb\n"
    assert sh(box, script, options=("--raw", "--keep")) == (0, whole + LAST % 1, "")
    assert kept(box, 1) == whole


def test_two_captures_at_the_same_time(box: str, gate: str) -> None:
    """Two commands captured into one thread at once are two whole artifacts under two numbers."""
    both = []
    for n in ("a", "b"):
        os.mkfifo(gate + n)
        both.append(
            start(box, "sh", "-c", f"echo {n}; read x <{gate}{n}; seq -f '%.0f {n}' 100000")
        )
    for process, n in zip(both, ("a", "b"), strict=True):
        assert first(process) == n.encode() + b"\n"
    for n in ("a", "b"):
        open_gate(gate + n)
    seen = set()
    for process, n in zip(both, ("a", "b"), strict=True):
        code, out, err = end(process)
        assert (code, err) == (0, "")
        number = int(out.rpartition(b"//")[2].rstrip(b"]\n"))
        assert kept(box, number) == n.encode() + b"\n" + b"".join(
            b"%d %s\n" % (k, n.encode()) for k in range(1, 100_001)
        )
        seen.add(number)
    assert seen == {0, 1}


# --- while it runs --------------------------------------------------------------------------------


def test_the_head_is_shown_while_the_command_runs(box: str, gate: str) -> None:
    """Each whole line is on stdout before the command goes on."""
    process = start(
        box, "sh", "-c", f"echo one; read x <{gate}; echo two; read x <{gate}; seq 20000"
    )
    for line in (b"one\n", b"two\n"):
        assert first(process) == line
        assert process.poll() is None
        open_gate(gate)
    expected = (0, with_note(bounded(b"one\ntwo\n" + SEQ)).removeprefix(b"one\ntwo\n"), "")
    assert end(process) == expected


def test_json_is_silent_until_the_end(box: str, gate: str) -> None:
    """With `--json` nothing of the head is on stdout while the command runs."""
    process = start(
        box, "sh", "-c", f"echo one; echo two >{gate}; read x <{gate}", options=("--json",)
    )
    assert process.stdout is not None
    Path(gate).read_bytes()
    open_gate(gate)
    assert json.loads(end(process)[1])["text"] == "one\n"


@pytest.mark.parametrize("closing", ["", "exec 1>&- 2>&-;"], ids=["pipe open", "pipe closed"])
def test_what_a_silent_command_has_printed_is_on_the_disk(
    box: str, gate: str, until: Until, closing: str
) -> None:
    """Output is stored within about a second, while the command still runs."""
    process = start(box, "sh", "-c", f"{LONG}; {closing} read x <{gate}; exit 3")
    with eventq.open(box, read_only=True) as thread:
        until(
            lambda: [a.size for a in thread.artifacts] == [len(SEQ)],
            "what was printed is stored",
            SOON,
        )
        assert thread.artifacts.get(0).status == "open"
    assert process.poll() is None
    open_gate(gate)
    assert end(process) == (3, with_note(bounded(SEQ)), "")


def test_a_command_that_closes_its_output_is_waited_for(box: str, gate: str) -> None:
    """Without a pipe to read we still wait for its end, and exit as it does."""
    process = start(box, "sh", "-c", f"echo x; exec 1>&- 2>&-; read x <{gate}; exit 9")
    open_gate(gate)
    assert end(process) == (9, b"x\n", "")


# --- what the command finds -----------------------------------------------------------------------


def test_stdin_is_the_commands(box: str) -> None:
    """What is on our stdin reaches the command, all of it."""
    data = b"line\n" * 100
    assert capture(box, "cat", given=data).stdout == data
    assert capture(box, "cat").stdout == b""


def test_the_environment_and_the_folder_are_ours(box: str, tmp_path: Path) -> None:
    """The command runs where we are, with our environment and nothing else of ours."""
    done = capture(
        os.path.relpath(box, tmp_path), "sh", "-c", 'pwd; echo "$SOME"', cwd=tmp_path,
        env=environ(SOME="a b"),
    )  # fmt: skip
    assert done.stdout == f"{os.path.realpath(tmp_path)}\na b\n".encode()
    code = "import os; print(*(fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}')), os.getsid(0), os.getpgrp())"
    expected = [b"%d" % os.getsid(0), b"%d" % os.getpgrp()]
    assert capture(box, sys.executable, "-c", code).stdout.split() == expected


def test_a_broken_pipe_ends_a_command(box: str) -> None:
    """SIGPIPE has its default action in the command: `yes | head -1` ends."""
    assert sh(box, "yes | head -1") == (0, b"y\n", "")
    status = capture(box, "cat", "/proc/self/status").stdout.decode()
    masks = {
        line.split(":")[0]: int(line.split()[1], 16)
        for line in status.splitlines()
        if line.startswith("Sig") and "Q" not in line
    }
    assert masks["SigBlk"] == 0
    assert not masks["SigIgn"] & (
        1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1 | 1 << signal.SIGCHLD - 1
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(box: str, tmp_path: Path, closed: str) -> None:
    """With closed streams the command runs, its output is kept, and no file is damaged."""
    script = f'exec "$@" {closed}'
    words = [
        EVENTQ, "capture", "--keep", "--thread", box, "--", "sh", "-c",
        f"{LONG}; echo err >&2; cat; exit 6",
    ]  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], stdin=subprocess.DEVNULL, capture_output=True,
        env=environ(), timeout=60,
    )  # fmt: skip
    data = SEQ + b"err\n"
    assert done.returncode == 6
    assert kept(box).startswith(data)
    assert done.stdout.startswith(b"" if ">&-" in closed.split() else bounded(SEQ)[: HEAD - 10])


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT], ids=lambda n: n.name
)
def test_a_signal_goes_on_to_the_command(box: str, tmp_path: Path, number: signal.Signals) -> None:
    """A signal is forwarded; what the command prints at its end is kept, with its exit code."""
    process = start(
        box, sys.executable, "-c", NOTING, str(tmp_path / "log"), str(int(number)),
        options=("--keep",),
    )  # fmt: skip
    assert first(process) == b"ready\n"
    process.send_signal(number)
    assert end(process) == (7, b"told %d\n" % number + LAST % 0, "")
    assert kept(box) == b"ready\ntold %d\n" % number


def test_a_signal_that_the_command_does_not_answer_ends_it(box: str) -> None:
    """Without a trap the command dies, and the status is a shell's; earlier output is whole."""
    process = start(box, "sh", "-c", "echo ready; exec sleep 60", options=("--keep",))
    assert first(process) == b"ready\n"
    process.terminate()
    assert end(process) == (143, LAST % 0, "")
    assert kept(box) == b"ready\n"


def test_a_signal_that_the_command_ignores_ends_nothing(
    box: str, tmp_path: Path, until: Until
) -> None:
    """Each signal is passed on each time; none of them ends the capture."""
    log = tmp_path / "log"
    words = [str(int(n)) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)]
    process = start(box, sys.executable, "-c", NOTING, str(log), *words)
    assert first(process) == b"ready\n"
    seen = b""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
        seen += b"%d\n" % number
        until(lambda: log.read_bytes() == seen, "the command is told", SOON)  # noqa: B023
        assert process.poll() is None
    process.terminate()
    assert end(process) == (7, b"told 15\n", "")


def test_what_we_ignore_the_command_ignores(box: str, tmp_path: Path) -> None:
    """As under `nohup`: a signal that was ignored when we were started is not passed on."""
    log = tmp_path / "log"
    words = [str(int(n)) for n in (signal.SIGHUP, signal.SIGTERM)]
    setup = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = start(box, sys.executable, "-c", NOTING, str(log), *words, setup=setup)
    assert first(process) == b"ready\n"
    process.send_signal(signal.SIGHUP)
    process.terminate()  # comes after: signals are handled in the order of their numbers
    assert end(process) == (7, b"told 15\n", "")
    assert log.read_bytes() == b""


def test_an_ignored_sigchld_does_not_lose_the_exit_code(box: str) -> None:
    """Whoever starts us with SIGCHLD ignored still learns how the command ended."""
    process = start(
        box, "sh", "-c", "exit 3", setup=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    )
    assert end(process) == (3, b"", "")


class Terminal:
    """A capture in a session of its own at a terminal of its own."""

    def __init__(self, box: str, log: Path, *, stdin: bool, controlling: bool = True) -> None:
        self.ours, theirs = os.openpty()
        mode = termios.tcgetattr(theirs)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, mode)

        def take() -> None:
            if controlling:
                fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        words = [str(int(n)) for n in (signal.SIGINT, signal.SIGTERM)]
        self.log = log
        self.process = start(
            box, sys.executable, "-c", NOTING, str(log), *words, setup=take, start_new_session=True, close_fds=True,
            pass_fds=[theirs], stdin=theirs if stdin else subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        assert first(self.process) == b"ready\n"

    def interrupts(self, until: Until, *, by_key: bool) -> bytes:
        """Interrupt once, and give how often the command was told until it left."""
        if by_key:
            # Stopped, so that a forwarded signal would come late enough to be counted.
            self.process.send_signal(signal.SIGSTOP)
            os.write(self.ours, b"\x03")
            until(
                lambda: self.log.read_bytes() == b"2\n", "the terminal interrupts the command", SOON
            )
            self.process.send_signal(signal.SIGCONT)
        else:
            self.process.send_signal(signal.SIGINT)
        self.process.terminate()  # handled after the interrupt, which has the smaller number
        assert end(self.process) == (7, b"told 15\n", "")
        os.close(self.ours)
        return self.log.read_bytes()


def test_the_key_of_a_terminal_interrupts_the_command_once(
    box: str, tmp_path: Path, until: Until
) -> None:
    """Ctrl-C reaches the command from the terminal; it is not forwarded as well."""
    terminal = Terminal(box, tmp_path / "log", stdin=True)
    assert terminal.interrupts(until, by_key=True) == b"2\n"


def test_a_key_interrupts_once_also_with_another_stdin(
    box: str, tmp_path: Path, until: Until
) -> None:
    """In a pipeline, Ctrl-C still comes from the terminal, and once."""
    terminal = Terminal(box, tmp_path / "log", stdin=False)
    assert terminal.interrupts(until, by_key=True) == b"2\n"


def test_a_terminal_that_is_not_ours_tells_nobody(box: str, tmp_path: Path, until: Until) -> None:
    """Where stdin is a terminal but not that of our session, SIGINT goes on to the command."""
    terminal = Terminal(box, tmp_path / "log", stdin=True, controlling=False)
    assert terminal.interrupts(until, by_key=False) == b"2\n"


# --- kill -9 --------------------------------------------------------------------------------------


def test_a_killed_capture_leaves_a_prefix(box: str, tmp_path: Path, until: Until) -> None:
    """After a kill the artifact is a partial prefix, `cat` says so, and ids continue."""
    for at, size in enumerate((4 << 20, 0, None, 1, 1 << 20, None, 1 << 16)):
        log = tmp_path / f"log{at}"
        with eventq.open(box, read_only=True) as thread:
            before = len(thread.artifacts)
            process = start(box, "sh", "-c", f"seq 1 1000000000; echo $? >{log}")
            if size is None:
                read_lines(process, 1)  # and it has perhaps no number yet
            else:
                until(
                    lambda: [i for i in thread.artifacts.list()[before:] if i.size >= size],  # noqa: B023
                    "so much is stored",
                )
        kill(process)
        assert process.returncode == -signal.SIGKILL
        until(
            lambda: log.exists() and log.read_bytes() == b"141\n",  # noqa: B023
            "SIGPIPE ends the command",
            SOON,
        )
    with eventq.open(box) as thread:
        assert thread.check() == []
        found = thread.artifacts.list()
        assert {info.status for info in found} == {"partial"}
        assert found[0].size >= 4 << 20
        whole = b"".join(b"%d\n" % n for n in range(1, max(info.lines for info in found) + 1))
        for info in found:
            assert thread.artifacts.open(info.artifact_id).read() == whole[: info.size]
    assert len(found) >= 5
    cat = subprocess.run(
        [EVENTQ, "artifact", "cat", "0", "--thread", box], capture_output=True, env=environ()
    )
    assert (cat.returncode, cat.stderr) == (0, b"[Incomplete: artifact://0 is partial]\n")
    assert cat.stdout == whole[: found[0].size]
    assert sh(box, LONG) == (0, with_note(bounded(SEQ), len(found)), "")


# --- the reader goes ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_goes_away_ends_nothing(
    box: str, gate: str, options: tuple[str, ...]
) -> None:
    """If nobody reads stdout the command runs to its end, and the artifact is whole."""
    process = start(box, "sh", "-c", f"echo one; read x <{gate}; {LONG}; exit 5", options=options)
    assert process.stdout is not None
    if not options:
        assert first(process) == b"one\n"
    process.stdout.close()
    open_gate(gate)
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(60) == 5
    assert kept(box) == b"one\n" + SEQ


def test_a_stdout_that_failed_is_left_alone(box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed write nothing more is written: the reader has a prefix."""
    written: list[bytes] = []

    def refuse(data: bytes) -> None:
        written.append(data)
        raise show.Closed

    monkeypatch.setattr(show, "out", refuse)
    view: View = {
        "keep": False, "spill": SPILL, "head": HEAD, "columns": 0, "sanitize": True, "images": False,
    }  # fmt: skip
    with eventq.open(box) as thread:
        cmd = ["sh", "-c", LONG]
        assert module.capture(thread, cmd=cmd, tool=None, context=None, view=view, json=False) == 0
    assert [SEQ.startswith(data) for data in written] == [True]


def test_a_reader_that_wants_one_line(box: str) -> None:
    """In a pipeline with `head -1` the capture goes on to its end."""
    script = '{ "$@"; echo $? >&2; } | head -1'
    words = [EVENTQ, "capture", "--thread", box, "--", "sh", "-c", f"echo one; {LONG}; exit 5"]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], stdin=subprocess.DEVNULL, capture_output=True,
        env=environ(),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"one\n", b"5\n")
    assert kept(box) == b"one\n" + SEQ


def test_a_stdout_that_is_full_is_an_error(box: str) -> None:
    """A full stdout is reported on stderr; the command runs to its end."""
    with open("/dev/full", "wb") as full:
        process = start(box, "sh", "-c", f"{LONG}; exit 5", stdout=full)
        assert process.stderr is not None
        with process.stderr:
            said = process.stderr.read().decode()
    assert process.wait(60) == 5
    assert kept(box) == SEQ
    assert "No space left" in said


# --- what is left running -------------------------------------------------------------------------


def test_what_is_left_running_is_not_waited_for_long(box: str) -> None:
    """A background process that holds the output does not block the end, and continues."""
    assert LINGER == 1.0
    code, out, err = sh(box, "sleep 1000 & echo $!; exit 3")
    os.kill(int(out), signal.SIGKILL)
    assert (code, err) == (3, "")


def test_a_signal_ends_the_waiting_for_what_is_left(box: str, until: Until) -> None:
    """If only a background process still prints, a signal ends the wait."""
    script = "echo $$; sh -c 'echo $$; while echo x; do sleep 0.2; done' & exit 3"
    process = start(box, "sh", "-c", script, options=("--keep",))
    command, left = int(first(process)), int(first(process))
    try:
        until(
            lambda: not os.path.exists(f"/proc/{command}"),
            "the command is over, and that was seen",
            SOON,
        )
        process.terminate()
        try:
            assert process.wait(SOON) == 3
        finally:
            process.kill()
            end(process)
    finally:
        os.kill(left, signal.SIGKILL)


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "options"), [(100_000, ()), (1_500_000, ("--json",)), (4_500_000, ())]
)
def test_a_disk_that_is_full(box: str, tmp_path: Path, room: int, options: tuple[str, ...]) -> None:
    """If the artifact fails, the view is whole and bounded, and stderr has the reason."""
    # 13 MB, of which 7 are on the disk.
    noise = b"".join(os.urandom(32).hex().encode() + b"\n" for _ in range(200_000))
    (tmp_path / "noise").write_bytes(noise)
    setup = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))  # noqa: E731
    process = start(box, "sh", "-c", f"cat {tmp_path}/noise; exit 4", options=options, setup=setup)
    code, out, err = end(process)
    assert code == 4
    if options:
        told, error = json.loads(out), json.loads(err)
        assert told["text"].encode() == bounded(noise)
        assert (told["artifact"], told["exit_code"], told["total_bytes"]) == (None, 4, len(noise))
        assert "events.db" in told["error"]
        assert error["error"] == f"not all of the output was stored: {told['error']}"
    else:
        assert out == bounded(noise)
        assert err.startswith("Error: not all of the output was stored: ")
        assert "events.db" in err
        assert len(err.splitlines()) == 1
    with eventq.open(box) as thread:
        assert thread.check() == []
        assert [info.status for info in thread.artifacts] in (["failed"], ["partial"], [])
        for info in thread.artifacts:
            assert noise.startswith(thread.artifacts.open(info.artifact_id).read())


# --- much -----------------------------------------------------------------------------------------


def test_memory_is_bounded(box: str) -> None:
    """300 MB of output are captured in less than 80 MB of memory, and every byte is kept."""
    line = b"x" * 79 + b"\n"
    size = 300_000_000
    process = start(box, "sh", "-c", f"yes {line.decode().strip()} | head -c {size}")
    assert process.stdout is not None
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        high = 0
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN | select.POLLHUP)
        while True:
            status.seek(0)
            high = max([high, *(int(row.split()[1]) for row in status if row.startswith("VmHWM"))])
            if poll.poll(10) and not os.read(process.stdout.fileno(), 1 << 20):
                break
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60) == 0
    assert 10_000 < high < 80_000
    hasher = blake3()
    for _ in range(size // len(line) // 1000):
        hasher.update(line * 1000)
    hasher.update(line * (size // len(line) % 1000))
    with eventq.open(box, read_only=True) as thread:
        (info,) = thread.artifacts.list()
    assert (info.status, info.size, info.hash) == ("sealed", size, hasher.hexdigest())


def test_a_full_stdout_holds_nobody_up(box: str, until: Until) -> None:
    """While nobody reads stdout, a signal still ends the command."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
    process = start(box, "sh", "-c", "seq 20000; echo over; exec sleep 60", stdout=writer)
    os.close(writer)
    until(lambda: so_far(box).endswith(b"over\n"), "everything is kept though nobody reads", SOON)
    process.send_signal(signal.SIGTERM)
    until(lambda: kept_status(box) == "sealed", "it is sealed though nobody reads", SOON)
    shown = b"".join(iter(lambda: os.read(reader, 65536), b""))
    os.close(reader)
    assert process.wait(SOON) == 128 + signal.SIGTERM
    assert shown.startswith(b"1\n2\n")
    assert shown.endswith(b"over\n[raw output: artifact://0]\n")


def so_far(box: str) -> bytes:
    """Return what the first artifact holds so far, nothing while there is none."""
    with eventq.open(box, read_only=True) as thread:
        return thread.artifacts.open(0).read() if len(thread.artifacts.list()) else b""


def kept_status(box: str) -> str:
    """Return the status of the first artifact."""
    with eventq.open(box, read_only=True) as thread:
        return thread.artifacts.get(0).status


def test_images_and_progress_bars(box: str) -> None:
    """The view has neither; the artifact has the image, and each state of the bar as a line."""
    text = r"1%%\r2%%\r\033Pq#1;2;0;0;0#1~\033\\\nend\n"
    done = capture(box, "printf", text, options=("--images",))
    assert done.stdout == with_note(b"2%\nend\n")
    assert kept(box) == b"1%\n2%\x1bPq#1;2;0;0;0#1~\x1b\\\nend\n"
