"""What somebody types who has not read the manual: defaults, and hints that can be followed."""

from __future__ import annotations

import os
import subprocess

import pytest

import eventq
from tests.doors.support import BIN, EVENTQ, contents, environ, objects, ok, refused, run

THREAD = os.path.join(BIN, "thread")


# --- push without options -------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["hello\n", "two\nlines", "é\0\r\n", "\n"])
def test_push_stores_what_is_piped_in(inbox: str, text: str) -> None:
    """Without --content, stdin is the content, byte for byte, from self, a message."""
    assert ok("push", "--thread", inbox, given=text) == ""
    with eventq.open(inbox) as thread:
        (event,) = thread.peek()
    assert (event.source, event.type, event.content) == ("self", "message", text)


def test_a_push_with_a_content_leaves_stdin_alone(inbox: str) -> None:
    """A stdin that a caller inherits, and that never ends, holds up no push."""
    reader, writer = os.pipe()
    done = subprocess.run(
        [EVENTQ, "push", "--thread", inbox, "--content", "x"], stdin=reader, env=environ(), timeout=300
    )  # fmt: skip
    os.close(reader)
    os.close(writer)
    assert done.returncode == 0
    assert contents(inbox) == ["x"]


def test_a_push_of_nothing_is_refused(inbox: str) -> None:
    """An empty stdin, which a failed program leaves, is a usage error; an empty content is not."""
    done = run("push", "--thread", inbox, given=b"")
    refused(2, "stdin is empty, and there is no --content - give --content, pipe in", done)
    ok("push", "--thread", inbox, "--content", "")
    ok("push", "--thread", inbox, "--content-file", "-", given=b"")
    assert contents(inbox) == ["", ""]


def test_a_push_at_a_terminal_does_not_wait_for_typing(inbox: str) -> None:
    """Without content it says how to give one; so it does where stdin is closed."""
    controller, terminal = os.openpty()
    for shell in ("exec eventq push", "exec eventq push <&-"):
        done = subprocess.run(
            ["sh", "-c", shell], stdin=terminal, capture_output=True, text=True, timeout=300,
            env=environ(EVENTQ_THREAD=inbox),
        )  # fmt: skip
        what = "there is no --content, and nothing is piped in"
        fix = "give --content TEXT, or pipe the content into this command"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {what} - {fix}\n")
    os.close(controller)
    os.close(terminal)
    assert contents(inbox) == []


def test_a_push_of_bytes_is_refused(inbox: str) -> None:
    """What is no UTF-8 is refused, with the byte at which it goes wrong."""
    done = run("push", "--thread", inbox, given=b"ab\xff")
    refused(2, "stdin is not UTF-8 text (byte 2) - encode it, for example as base64", done)


@pytest.mark.parametrize(("words", "says"), [
    ([], "--source is missing - give --source"),
    (["--source", "s"], "--type is missing - give --type"),
    (["--source", "s", "--type", "t"], "either --content or --content-file is needed"),
])  # fmt: skip
def test_thread_push_assumes_nothing(inbox: str, words: list[str], says: str) -> None:
    """Under the name `thread` every field is required, and stdin is not read."""
    refused(2, says, run("push", "--thread", inbox, *words, given="x", program=THREAD))
    shown = run("push", "--help", program=THREAD).out
    assert "(default" not in shown
    assert contents(inbox) == []


# --- peek without options -------------------------------------------------------------------------


def test_peek_shows_the_newest_events(inbox: str) -> None:
    """Without options those are 20, the oldest of them first; --limit and --filter still hold."""
    with eventq.open(inbox) as thread:
        thread.push_many({"source": "s", "type": "t", "content": str(n)} for n in range(1, 31))

    def shown(*words: str) -> list[int]:
        return [event["id"] for event in objects("peek", "--thread", inbox, *words)]

    assert shown() == [*range(11, 31)]
    assert shown("--limit", "3") == [28, 29, 30]
    assert shown("--filter", "id % 10 = 0") == [10, 20, 30]
    assert shown("--last", "25") == [*range(6, 31)]
    assert shown("--last-event-id", "0") == [*range(1, 31)]
    done = run("peek", "--thread", inbox, program=THREAD)
    refused(2, "either --last-event-id or --last is needed", done)
