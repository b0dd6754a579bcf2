"""Whatever comes on stdin or from a file, a command holds no more of it than may be stored."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import eventq
from tests.conftest import Until
from tests.doors.support import EVENTQ, Done, environ, run, split

LIMIT = 1 << 20
MIB = 1 << 20

# Runs a command and prints its status and the most memory that it had, in bytes.
_MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:], stdin=open(sys.argv[1], "rb")).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1024 if sys.platform == "linux" else 1))
"""


def _cap() -> None:
    """Keep a command that reads for ever from taking the memory of the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def measured(*words: str, given: str = os.devnull, limit: int = LIMIT) -> tuple[Done, int]:
    """Run eventq with a file on stdin; give what it printed and the most memory that it had."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, given, EVENTQ, *split(words[:1]), *words[1:]],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, preexec_fn=_cap,
        env=environ(EVENTQ_MAX_EVENT_BYTES=str(limit)),
    )  # fmt: skip
    *shown, last = done.stdout.splitlines(keepends=True)
    code, most = last.split()
    return Done(int(code), "".join(shown), done.stderr), int(most)


def endless(words: str, command: str, limit: int = LIMIT) -> tuple[Done, int]:
    """Run eventq behind a pipe from a shell command that never ends by itself."""
    script = f'{command} | "$0" -c "$1" /dev/stdin "$2" {words}'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, _MEASURE, EVENTQ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, preexec_fn=_cap,
        env=environ(EVENTQ_MAX_EVENT_BYTES=str(limit)),
    )  # fmt: skip
    code, most = done.stdout.splitlines()[-1].split()
    return Done(int(code), "", done.stderr), int(most)


def unread(pipe: int) -> int:
    """Return the number of bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def count(path: str) -> int:
    """Return the number of events, of a thread that must check out."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        return thread.last_id()


# --- hook -----------------------------------------------------------------------------------------


def test_a_hook_that_is_given_too_much_stops_reading_and_is_silent(inbox: str) -> None:
    """Endless input is dropped at the limit of an event, with a line in the journal."""
    done, most = measured("hook --thread", inbox, given="/dev/zero")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert most < 100 * MIB
    assert "hook: the event is too large" in Path(inbox, "logs", "thread.log").read_text()
    assert count(inbox) == 0


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_the_limit_of_a_hook_is_that_of_an_event(inbox: str, size: int) -> None:
    """What has just the size of the limit is stored, one byte more is not."""
    text = json.dumps({"a": "x" * (size - len('{"a": ""}'))})
    done = run("hook --thread", inbox, given=text, EVENTQ_MAX_EVENT_BYTES=str(LIMIT))
    assert (done.code, done.out, done.err) == (0, "", "")
    assert count(inbox) == (size <= LIMIT)


@pytest.mark.parametrize(
    "given", [b"\x00\x01\xfe\xff" * 1000, b'{"hook_event_name": "Sto', b"\xef\xbb\xbf", b"\x80{}"]
)
def test_a_hook_that_is_given_no_object_is_silent(inbox: str, given: bytes) -> None:
    """Bytes that are no text, and text that was cut off, are for the journal only."""
    done = run("hook --thread", inbox, given=given)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert "[WARN] hook: " in Path(inbox, "logs", "thread.log").read_text()
    assert count(inbox) == 0


@pytest.mark.parametrize("closing", ["<&-", "<&- >&- 2>&-", "0> /dev/null", "< /dev/null >&-"])
def test_a_hook_without_its_streams_exits_0(inbox: str, closing: str) -> None:
    """A stream that is closed, or that cannot be read, holds no agent up."""
    script = f'"{EVENTQ}" hook --thread "{inbox}" {closing}; echo $?'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_hook_without_memory_exits_0(inbox: str) -> None:
    """Where the memory ends before the limit does, nothing is said either."""
    script = f'ulimit -v 400000; "{EVENTQ}" hook --thread "{inbox}" < /dev/zero; echo $?'
    more = environ(EVENTQ_MAX_EVENT_BYTES=str(8 << 30))
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=more, timeout=300
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    "words", [("hook",), ("push",), ("push", "--source", "s", "--type", "t", "--content-file", "-")]
)
def test_a_stdin_that_does_not_block_is_waited_for(
    inbox: str, words: tuple[str, ...], until: Until
) -> None:
    """A pipe that whoever has its other end made non-blocking is read to its end all the same."""
    reader, writer = os.pipe()
    watched = os.dup(reader)
    os.set_blocking(reader, False)
    with subprocess.Popen(
        [EVENTQ, *words, "--thread", inbox], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=environ(),
    ) as process:  # fmt: skip
        os.close(reader)
        os.write(writer, b'{"a":')
        until(lambda: not unread(watched) or process.poll() is not None, "the first piece is read")
        os.write(writer, b'"b"}')
        os.close(writer)
        assert process.communicate(timeout=120)[0] == b""
    os.close(watched)
    with eventq.open(inbox) as thread:
        assert [event.content for event in thread.peek()] == ['{"a":"b"}']


# --- push -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [["--content-file", "-"], ["--content-file", "/dev/zero"], []], ids=str
)
def test_content_without_end_is_refused_at_the_limit(inbox: str, more: list[str]) -> None:
    """What goes on beyond the limit of an event is not read any further."""
    words = ["push", "--thread", inbox, "--source", "s", "--type", "t", *more]
    done, most = measured(*words, given="/dev/zero")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        f"Error: the event is too large (more than the limit of {LIMIT} bytes) - "
    )
    assert most < 100 * MIB
    assert count(inbox) == 0


def test_content_of_just_the_limit_is_stored(inbox: str, tmp_path: Path) -> None:
    """One byte less than too much is not too much."""
    words = ["push", "--thread", inbox, "--source", "s", "--type", "t", "--content-file"]
    for size, code in ((LIMIT, 0), (LIMIT + 1, 1)):
        (tmp_path / "content").write_bytes(b"x" * size)
        assert measured(*words, str(tmp_path / "content"))[0].code == code
        assert measured(*words, "-", given=str(tmp_path / "content"))[0].code == code
    assert count(inbox) == 2


def test_a_line_that_is_no_object_is_refused_before_it_ends(inbox: str) -> None:
    """Zeros without end are no line of a batch."""
    done, most = measured("push --thread", inbox, "--batch", given="/dev/zero")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: line 1: not a JSON object")
    assert most < 100 * MIB


@pytest.mark.parametrize("filling", ["a", " ", "\\\\", "[", "é"])
def test_a_line_without_end_is_refused_at_the_limit(inbox: str, filling: str) -> None:
    """A line holds at most what an event may hold, however that is spelled."""
    begin = '{"source":"s","type":"t","content":' + ("" if filling in " [" else '"')
    text = f"""(printf '{{}}\\n%s' '{begin}'; yes '{filling}' | tr -d '\\n')"""
    good = '{"source":"s","type":"t","content":"c"}'
    done, most = endless(f'push --thread "{inbox}" --batch', text.replace("{}\\n", good + "\\n"))
    assert done.code == 1
    assert done.err.startswith("Error: line 2: the event is too large (more than the limit of ")
    assert most < 100 * MIB
    assert count(inbox) == 0


@pytest.mark.parametrize("spelled", ["\\u0001", "\\n", "é", "\\u00e9", "\\ud83d\\ude00"])
def test_the_largest_event_fits_into_a_line_however_it_is_spelled(inbox: str, spelled: str) -> None:
    """Each byte may take six in JSON: what counts is the text that it stands for."""
    one = str(json.loads(f'"{spelled}"'))
    times = LIMIT // len(one.encode())
    for more, code in ((0, 0), (1, 1)):
        line = f'{{"source":"s","type":"t","content":"{spelled * (times + more)}"}}'
        done = run("push --thread", inbox, "--batch", given=line, EVENTQ_MAX_EVENT_BYTES=str(LIMIT))
        assert done.code == code, done.err[:200]
    with eventq.open(inbox) as thread:
        assert [event.content for event in thread.peek()] == [one * times]


# --- the memory -----------------------------------------------------------------------------------

WHOLE = [
    ["turn", "append", "main", "--canonical", "eventq-json-1"],
    ["turn", "patch", "1", "--canonical", "eventq-json-1"],
    ["run", "start", "--name", "r", "--prompt-file", "-"],
    ["run", "start", "--name", "r", "--prompt", "p", "--system-file", "-"],
    ["run", "step", "build", "--role", "r", "--file", "-"],
    ["run", "step", "build", "--role", "r", "--extracted", "-"],
    ["run", "step", "build", "--role", "r", "--edge-prompt-file", "-"],
    ["run", "compact", "build", "--file", "-"],
    ["run", "messages", "build", "--role", "r", "--edge-prompt-file", "-"],
]


@pytest.mark.parametrize("words", WHOLE, ids=" ".join)
def test_a_value_that_is_held_whole_is_bounded(inbox: str, words: list[str]) -> None:
    """Text and JSON are read up to 64 MiB; nothing is stored of what goes on."""
    with eventq.open(inbox) as thread:
        thread.contexts.create("main").append("first")
        thread.runs.start("solve", "p", system={"r": "x"}, label="build")
        before = [one.head_turn_id for one in thread.contexts]
    done, most = measured(*words, "--thread", inbox, given="/dev/zero")
    assert (done.code, done.out) == (1, "")
    assert "is too large (more than the limit of 67108864 bytes) - " in done.err
    assert most < 250 * MIB
    with eventq.open(inbox) as thread:
        assert [one.head_turn_id for one in thread.contexts] == before
        assert thread.check() == []


STREAMED = [
    ["turn", "append", "main"], ["turn", "append", "main", "--stream"], ["blob", "put"],
    ["artifact", "put"], ["output", "put", "Scout"],
]  # fmt: skip


@pytest.mark.parametrize("words", STREAMED, ids=" ".join)
def test_what_is_streamed_takes_no_more_memory_when_it_is_longer(
    inbox: str, words: list[str], tmp_path: Path
) -> None:
    """Payloads, blobs, artifacts and outputs of any length go through bounded memory."""
    with eventq.open(inbox) as thread:
        thread.contexts.create("main")
    with open(tmp_path / "zeros", "wb") as file:
        file.truncate(256 * MIB)
    done, most = measured(*words, "--thread", inbox, given=str(tmp_path / "zeros"))
    assert (done.code, done.err) == (0, "")
    assert most < 150 * MIB


def test_a_line_of_a_session_is_bounded(
    inbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long is refused; the lines before it are available again."""
    monkeypatch.setattr("eventq.sessions.imports.LONGEST", 100)
    lines = [json.dumps({"type": "session", "id": "s", "more": "x" * 57}) for _ in range(3)]
    assert len(lines[0]) == 99
    path = tmp_path / "s.jsonl"
    with eventq.open(inbox) as thread:
        for place in (0, 2):
            path.write_text("\n".join([*lines[:place], lines[0] + "  ", *lines[place:], ""]))
            with pytest.raises(
                eventq.LogicError, match=r"the line is too large \(more than the limit of 100 bytes"
            ):
                thread.sessions.import_file(str(path), name=f"s{place}")
        path.write_text("\n".join([*lines, ""]))
        assert thread.sessions.import_file(str(path), name="s2").entries == 3
        assert thread.check() == []


def test_a_session_without_end_is_refused(inbox: str) -> None:
    """A pipe that never gives a line's end fills no memory."""
    script = (
        'mkfifo "$3"; (yes a | tr -d "\\n" > "$3" 2> /dev/null) & '
        '"$0" -c "$1" /dev/null "$2" session import "$3" --thread "$4"'
    )
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, _MEASURE, EVENTQ, f"{inbox}-fifo", inbox],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, preexec_fn=_cap, env=environ(),
    )  # fmt: skip
    code, most = map(int, done.stdout.split())
    assert (code, most < 450 * MIB) == (1, True)
    assert done.stderr.startswith(
        "Error: the line is too large (more than the limit of 134217728 bytes) - "
    )
