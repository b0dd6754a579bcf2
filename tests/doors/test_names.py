"""Names that a thread does not have are answered with those that it has.

The kind of fault: an error about an unknown name says what to create, and not what is there, so a
misspelt name takes another command to find. Its members, which are tried here: consumers, contexts
and runs, wherever a command takes one, in a thread that has none, some, or very many.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import eventq
from tests.doors.support import THREAD, refused, run


@pytest.fixture
def full(inbox: str) -> str:
    """A thread with some of everything that has a name."""
    with eventq.open(inbox) as thread:
        thread.subscribe("worker")
        thread.subscribe("mailer")
        thread.contexts.create("main")
        thread.contexts.create()
        thread.runs.start("solve", "task", system={"coder": "c"}, label="build")
    return inbox


@pytest.mark.parametrize("words", [
    "unsubscribe", "pause", "resume", "pop", "ack --last-event-id 1", "claim", "claims ls",
    "dead ls", "dead retry --all", "dead drop --all",
])  # fmt: skip
def test_an_unknown_consumer_is_answered_with_those_there_are(full: str, words: str) -> None:
    """The one most like it comes first."""
    done = run(*words.split(), "--consumer", "wroker", "--thread", full)
    fix = "consumers here: 'worker', 'mailer'; 'eventq subscribe' makes a new one"
    refused(1, f"Error: consumer 'wroker' is not subscribed - {fix}\n", done)


@pytest.mark.parametrize("words", [
    "context show", "context fork", "context log", "context rm", "turn last", "session cat",
    "session export", "turn append --content x", "artifact ls --context", "output ls --context",
])  # fmt: skip
def test_an_unknown_context_is_answered_with_those_there_are(full: str, words: str) -> None:
    """One without a name is listed by its id; a run is a context, too."""
    done = run(*words.split(), "mian", "--thread", full)
    fix = "contexts here: 'main', 'build', '2'; 'eventq context create' makes a new one"
    refused(1, f"Error: there is no context 'mian' - {fix}\n", done)


@pytest.mark.parametrize("words", ["show", "cancel", "rm", "messages --role c", "step --role c"])
def test_an_unknown_run_is_answered_with_those_there_are(full: str, words: str) -> None:
    """Of a context that is no run, the error says so instead."""
    done = run("run", *words.split(), "bulid", "--thread", full, given="x")
    fix = "runs here: 'build'; 'eventq run start' makes a new one"
    refused(1, f"Error: there is no run 'bulid' - {fix}\n", done)
    refused(1, "which 'eventq context rm' deletes", run("run rm", "main", "--thread", full))


def test_an_unknown_session_is_answered_with_those_there_are(full: str, tmp_path: Path) -> None:
    """Also where there are contexts, which are named otherwise."""
    done = run("session show", "wrok", "--thread", full)
    refused(1, "no session 'wrok' - there are no sessions here; 'eventq session import'", done)
    file = tmp_path / "work.jsonl"
    file.write_text('{"type": "user", "message": {"role": "user", "content": "hi"}}\n')
    run("session import", str(file), "--as", "work", "--thread", full)
    refused(1, "sessions here: 'work'; ", run("session show", "wrok", "--thread", full))


def test_a_thread_without_names_says_so(inbox: str) -> None:
    """The advice is then how to make the first."""
    done = run("pause", "--thread", inbox, "--consumer", "w")
    refused(1, "- there are no consumers here; 'eventq subscribe' makes one\n", done)


def test_ten_names_are_listed_and_the_others_counted(inbox: str) -> None:
    """Those most like the unknown one, of the first thousand, however many there are."""
    with eventq.open(inbox) as thread, thread.write():
        for number in range(1100):
            thread.contexts.create(f"c-{number}")
    done = run("context show", "c-77x", "--thread", inbox)
    refused(1, "contexts here: 'c-77', 'c-", done)
    assert done.err.count("'c-") == 1 + 10
    assert "' and 990+ more; 'eventq context create'" in done.err


def test_thread_lists_no_names(full: str) -> None:
    """Under the name `thread`, and in Python, the error is as it was."""
    done = run("unsubscribe", "--thread", full, "--consumer", "wroker", program=THREAD)
    what = "Error: consumer 'wroker' is not subscribed - run 'thread subscribe' for it first\n"
    assert (done.code, done.err) == (1, what)
    with eventq.open(full) as thread, pytest.raises(eventq.UnknownConsumerError) as caught:
        thread.unsubscribe("wroker")
    assert caught.value.fix == "run 'eventq subscribe' for it first"
