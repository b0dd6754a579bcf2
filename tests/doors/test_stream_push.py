"""`push --stream`: lines are stored as they come; each is acknowledged, or named and refused."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from tests.doors.support import EVENTQ, contents, environ, ok, refused, run
from tests.doors.test_input_limits import LIMIT, measured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
# The command with little patience for other writers.
_HURRIED = """
import sys
from eventq.cli import main
from eventq.store.sqlite import database
database.BUSY_SECONDS = 0.05
main()
"""


def line(content: str, **more: str) -> str:
    """Return an event as a line."""
    return json.dumps({"source": "self", "type": "note", "content": content, **more}) + "\n"


@contextmanager
def stream(
    path: str, *more: str, stdin: Any = subprocess.PIPE, program: tuple[str, ...] = (EVENTQ,)
) -> Iterator[subprocess.Popen[bytes]]:
    """Begin a stream whose input stays open."""
    with subprocess.Popen(
        [*program, "push", "--thread", path, "--stream", *more],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ(),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def give(process: subprocess.Popen[bytes], text: str) -> None:
    """Write to the input, in one piece."""
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def told(pipe: IO[bytes] | None) -> str:
    """Wait for a line of output."""
    assert pipe is not None
    return pipe.readline().decode()


def end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Close the input, and return the status and what was said since."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out.decode(), err.decode()


def commits(path: str) -> list[int]:
    """Return the number of events of each commit, of a thread's journal."""
    with open(f"{path}/logs/thread.log", encoding="utf-8") as file:
        found = [re.search(r"push batch: count=(\d+)|push: ", one) for one in file]
    return [int(match[1] or 1) for match in found if match]


def test_an_event_is_stored_while_the_input_goes_on(inbox: str) -> None:
    """Its id is printed once others can read it, and the next line is waited for."""
    with stream(inbox) as process:
        give(process, line("one"))
        assert told(process.stdout) == "1\n"
        assert contents(inbox) == ["one"]
        assert ok("push --thread", inbox, "--content", "else") == ""
        give(process, line("two"))
        assert told(process.stdout) == "3\n"
        assert end(process) == (0, "", "")
    assert contents(inbox) == ["one", "else", "two"]


def test_what_comes_together_is_one_commit(inbox: str) -> None:
    """Lines that come at once are stored at once, and those that come later by another commit."""
    with stream(inbox, "--json") as process:
        give(process, "".join(map(line, "abc")) + "\n")
        assert [json.loads(told(process.stdout)) for _ in "abc"] == [
            {"line": n, "id": n} for n in (1, 2, 3)
        ]
        give(process, line("d") + '{"source": "self", ')
        assert told(process.stdout) == '{"line":5,"id":4}\n'
        give(process, '"type": "note", "content": "e"}')
        assert end(process) == (0, '{"line":6,"id":5}\n', "")
    assert contents(inbox) == [*"abcde"]
    assert commits(inbox) == [3, 1, 1]


def test_a_long_file_takes_several_commits(inbox: str, tmp_path: Path) -> None:
    """What is stored together is bounded; of a file as of a pipe."""
    given = tmp_path / "given"
    given.write_text(line("x" * 1_000) * 12_000)
    with given.open("rb") as file, stream(inbox, stdin=file) as process:
        code, out, err = end(process)
    assert (code, out.split(), err) == (0, [*map(str, range(1, 12_001))], "")
    assert sum(commits(inbox)) == 12_000
    assert max(commits(inbox)) < 6_000


def test_a_refused_line_is_named_and_the_rest_is_stored(inbox: str) -> None:
    """Each error is a line on stderr; the status says that there were some."""
    lines = ["nonsense\n", line("a"), '{"source": "self"}\n', "\n", line("b"), line("c", type="")]
    done = run("push --thread", inbox, "--stream", given="".join(lines).encode() + b"\xff\n[1")
    assert (done.code, done.out) == (1, "1\n2\n")
    found = [one.partition(" - ")[0] for one in done.err.splitlines()]
    assert sorted(found) == [
        "Error: line 1: not a JSON object",
        "Error: line 3: type is missing",
        "Error: line 6: type is empty",
        "Error: line 7: not UTF-8 (byte 0)",
        "Error: line 8: not a JSON object",
        "Note: 5 of 8 lines were refused",
    ]
    assert "nothing of the batch" not in done.err
    assert contents(inbox) == ["a", "b"]
    done = run("push --thread", inbox, "--stream", "--json", given="{}\n")
    assert json.loads(done.err.splitlines()[0])["error"] == "line 1: source is missing"


def test_lines_are_contents(inbox: str) -> None:
    """With --lines a line is stored without its end; an empty one, and one without an end, too."""
    given = "one\r\n\n  é\rx \x00\n{}\nlast"
    words = ["--source", "external:app:::::", "--type", "log", "--subtype", "s"]
    done = run("push --thread", inbox, "--stream", "--lines", *words, given=given)
    assert (done.code, done.out, done.err) == (0, "1\n2\n3\n4\n5\n", "")
    assert contents(inbox) == ["one", "", "  é\rx \x00", "{}", "last"]
    with eventq.open(inbox) as thread:
        assert {event[2:5] for event in thread.peek()} == {("external:app:::::", "log", "s")}


@pytest.mark.parametrize("mode", [[], ["--lines"]])
def test_a_line_that_is_too_long_is_refused_in_bounded_memory(
    inbox: str, tmp_path: Path, mode: list[str]
) -> None:
    """Its rest is passed over, and the next line is stored."""
    given, next_line = tmp_path / "given", "next" if mode else line("next")
    with given.open("wb") as file:
        file.write(b'{"content": "')
        file.seek(400 * MIB)  # zeros
        file.write(b"\n" + next_line.encode())
    done, most = measured("push --thread", inbox, "--stream", *mode, given=str(given))
    assert (done.code, done.out) == (1, "1\n")
    what = f"Error: line 1: the event is too large (more than the limit of {LIMIT} bytes) - "
    assert done.err.startswith(what)
    assert done.err.endswith("\nNote: 1 of 2 lines was refused\n")
    assert most < 100 * MIB
    assert contents(inbox) == ["next"]


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("mode", [[], ["--lines"]])
def test_the_limit_of_a_line_is_that_of_an_event(inbox: str, size: int, mode: list[str]) -> None:
    """What has just the size of the limit is stored, one byte more is not."""
    text = "x" * size
    given = f"{text}\r\n" if mode else line(text)
    limit = {"EVENTQ_MAX_EVENT_BYTES": str(LIMIT)}
    done = run("push --thread", inbox, "--stream", *mode, given=given, **limit)
    assert (done.code, done.out) == ((0, "1\n") if size <= LIMIT else (1, ""))


def test_a_key_makes_a_stream_safe_to_repeat(inbox: str) -> None:
    """A second time the first ids are printed; a difference is a note, or with a flag an error."""
    given = line("a", key="1") + line("b", key="2") + line("a", key="1")
    for _ in range(2):
        done = run("push --thread", inbox, "--stream", given=given)
        assert (done.code, done.out, done.err) == (0, "1\n2\n1\n", "")
    other = line("c", key="2") + line("d")
    says = "line 1: key '2' belongs to event 2, whose content differs"
    done = run("push --thread", inbox, "--stream", given=other)
    assert (done.code, done.out) == (0, "2\n3\n")
    assert done.err == f"Note: {says}; nothing was stored for this line\n"
    done = run("push --thread", inbox, "--stream", "--key-strict", given=other)
    assert (done.code, done.out) == (1, "4\n")
    assert done.err.startswith(f"Error: {says} - ")
    assert contents(inbox) == ["a", "b", "d", "d"]


def test_unknown_fields_are_named_once(inbox: str) -> None:
    """A stream has no end at which to name them, so they are named when they first come."""
    with stream(inbox) as process:
        give(process, line("a", extra="x"))
        assert told(process.stdout) == "1\n"
        what = "Note: fields that events do not have are left out: extra\n"
        assert told(process.stderr) == what
        give(process, line("b", extra="x"))
        assert end(process) == (0, "2\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_a_stream(inbox: str, number: int, code: int) -> None:
    """What was read is stored and acknowledged; half a line is neither."""
    with stream(inbox, "--lines") as process:
        give(process, "one\n")
        assert told(process.stdout) == "1\n"
        give(process, "two\nhal")
        process.send_signal(number)
        out, err = process.stdout, process.stderr
        assert out is not None
        assert err is not None
        assert process.wait(120) == code
        ids = out.read().decode().split()
        assert err.read() == b""
    assert contents(inbox) == ["one", "two"][: 1 + len(ids)]


def test_a_stream_waits_for_another_writer(inbox: str) -> None:
    """It says so, reads no more than it can keep, and goes on when the lock is free."""
    other = apsw.Connection(f"{inbox}/events.db")
    other.execute("BEGIN IMMEDIATE")
    written = [0]
    block = line("x" * 1_000) * 60
    count = 16 * MIB // len(block)

    def feed(pipe: IO[bytes]) -> None:
        with pipe:
            for _ in range(count):
                written[0] += pipe.write(block.encode())
                pipe.flush()

    program = (sys.executable, "-c", _HURRIED)
    with stream(inbox, program=program) as process:
        assert process.stdin is not None
        feeder = threading.Thread(target=feed, args=(process.stdin,))
        feeder.start()
        note = told(process.stderr)
        assert re.fullmatch(
            r"Note: another writer held .* it is tried again until that ends\n", note
        )
        assert written[0] < 6 * MIB
        other.execute("ROLLBACK")
        other.close()
        assert process.stdout is not None
        ids = process.stdout.read().decode().split()
        feeder.join()
        assert process.wait(120) == 0
    assert ids == [*map(str, range(1, 60 * count + 1))]
    with eventq.open(inbox) as thread:
        assert thread.last_id() == 60 * count


def test_a_stream_that_waits_can_be_ended(inbox: str) -> None:
    """After a signal it waits no longer than a push, and what was not stored is not acknowledged."""
    other = apsw.Connection(f"{inbox}/events.db")
    other.execute("BEGIN IMMEDIATE")
    with stream(inbox, "--lines", program=(sys.executable, "-c", _HURRIED)) as process:
        give(process, "one\n")
        assert told(process.stderr).startswith("Note: another writer held")
        process.terminate()
        code, out, err = end(process)
    assert (code, out) == (1, "")
    assert err.startswith("Error: another writer held")
    other.close()
    assert contents(inbox) == []


def test_a_terminal_and_a_pipe_that_does_not_block(inbox: str) -> None:
    """Both are read as they bring something."""
    ours, theirs = pty.openpty()
    with stream(inbox, "--lines", stdin=theirs) as process:
        os.close(theirs)
        os.write(ours, b"typed\n")
        assert told(process.stdout) == "1\n"
        os.write(ours, b"\x04")  # Ctrl-D
        assert end(process) == (0, "", "")
    os.close(ours)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with stream(inbox, "--lines", stdin=reading) as process:
        os.write(writing, b"piped\n")
        assert told(process.stdout) == "2\n"
        os.close(writing)
        assert end(process) == (0, "", "")
    os.close(reading)
    assert contents(inbox) == ["typed", "piped"]


def test_a_reader_of_ids_that_leaves_ends_it(inbox: str) -> None:
    """As with other commands, it ends in silence."""
    with stream(inbox, "--lines") as process:
        assert process.stdout is not None
        process.stdout.close()
        give(process, "one\n")
        assert process.wait(120) == 0
    assert contents(inbox) == ["one"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--stream", "--batch"], "--batch and --stream exclude each other"),
        (["--lines"], "--lines has no effect without --stream"),
        (["--batch", "--lines"], "--lines has no effect without --stream"),
        (["--stream", "--key", "k"], "give each line a key of its own"),
        (["--stream", "--lines", "--key", "k"], "exclude each other"),
        (["--stream", "--source", "self"], "each line of a stream has fields of its own"),
        (["--stream", "--lines", "--content", "x"], "exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused(inbox: str, words: list[str], says: str) -> None:
    """The option is named, and nothing is read."""
    refused(2, says, run("push --thread", inbox, *words, given=line("x")))
    assert contents(inbox) == []
