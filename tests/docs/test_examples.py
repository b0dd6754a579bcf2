"""The programs in examples/ do what they say, run as a reader runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import termios
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import eventq
from tests.docs.support import ROOT, blocks, environ, read, section

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Until

AGENT = [sys.executable, str(ROOT / "examples/agent_inbox.py")]
# The agent dies within its transaction, after it has written both turns.
DIES_AT_PUSH = """
import os, runpy, signal, sys
import eventq
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
eventq.Thread.push = die
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_shell(*words: str, env: dict[str, str], **more: Any) -> str:
    """Return what a shell script prints, on stdout and stderr; it must succeed."""
    done = subprocess.run(
        ["sh", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        **more,
    )
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


def test_the_demo_is_the_story_of_the_readme() -> None:
    """It runs the commands of README.md, ends by itself, and nothing is done or asked twice."""
    shown = run_shell(str(ROOT / "examples/demo.sh"), env=environ())
    story = "\n".join(blocks("sh", section(read("README.md"), "See it work")))
    for line in story.replace("END", "SCRIPT").splitlines():
        assert line in shown or line == "eventq ui", line
    assert shown.count("\ndeployed {") == 1
    assert shown.count("#2  self  approval") == 1
    assert shown.split("\n\n")[-2].endswith("\nok")


def test_enter_ends_the_wait_of_the_demo(tmp_path: Path) -> None:
    """In a terminal it waits for a browser no longer than until Enter, and then answers itself."""
    stuck = tmp_path / "date"  # its minute never ends
    stuck.write_text("#!/bin/sh\necho 0\n")
    stuck.chmod(0o755)
    env = environ(BROWSER="false", NO_COLOR="1")
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    ours, theirs = os.openpty()
    before = termios.tcgetattr(ours)
    with subprocess.Popen(
        ["timeout", "100", "sh", str(ROOT / "examples/demo.sh")],
        env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as demo:  # fmt: skip
        os.close(theirs)  # so that a read fails when the demo is gone
        shown = b""
        while b"it works once" not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, b"\r")
        while b"Go on with" not in shown:
            shown += os.read(ours, 65536)
        after = termios.tcgetattr(ours)
    assert demo.returncode == 0
    assert b"Answered question 2" in shown
    os.close(ours)
    assert after == before


def push(inbox: Path, content: str) -> None:
    """Push a message in a shell of its own."""
    command = ["eventq", "push", "--thread", str(inbox), "--source", "alice", "--type", "message"]
    subprocess.run([*command, "--content", content], env=environ(), check=True)


def run_agent(
    inbox: Path, wanted: int, until: Until, end: signal.Signals = signal.SIGKILL
) -> tuple[int, str]:
    """Run the agent until there are so many replies, then end it; return its status and errors."""
    with subprocess.Popen(
        AGENT, cwd=inbox.parent, env=environ(), stderr=subprocess.PIPE, text=True
    ) as agent:
        until(lambda: len(replies(inbox)) == wanted, "the reply")
        agent.send_signal(end)
        _, errors = agent.communicate()
    return agent.returncode, errors


def replies(inbox: Path) -> list[str]:
    """Return what the agent has pushed."""
    with eventq.open(inbox) as thread:
        return [json.loads(event.content)["text"] for event in thread.last(filter="type = 'reply'")]


def turns(inbox: Path) -> list[str]:
    """Return the conversation that the agent remembers."""
    with eventq.open(inbox) as thread:
        memory = thread.contexts.get("agent")
        return [json.loads(turn.payload or "")["content"] for turn in memory.replay()]


def test_the_agent_goes_on_where_it_was_killed(tmp_path: Path, until: Until) -> None:
    """It answers what is pushed, and after `kill -9` it remembers the conversation."""
    inbox = tmp_path / "inbox"
    eventq.init(inbox)
    for count, content in enumerate(("Hello", "Still there?"), start=1):
        push(inbox, content)
        run_agent(inbox, count, until)
    answered = replies(inbox)
    assert answered == [
        "You said 'Hello'; I remember 0 messages.",
        "You said 'Still there?'; I remember 2 messages.",
    ]
    assert turns(inbox) == ["Hello", answered[0], "Still there?", answered[1]]


def test_the_agent_neither_loses_nor_doubles_a_turn(tmp_path: Path, until: Until) -> None:
    """Killed between the turns and the reply of an event, it answers once, after a restart."""
    inbox = tmp_path / "inbox"
    eventq.init(inbox)
    push(inbox, "Hello")
    died = subprocess.run(
        [sys.executable, "-c", DIES_AT_PUSH, AGENT[1], str(inbox)], env=environ(), timeout=120
    )
    assert died.returncode == -9
    assert turns(inbox) == []
    run_agent(inbox, 1, until)
    assert turns(inbox) == ["Hello", *replies(inbox)]
    assert len(replies(inbox)) == 1


def test_the_agent_ends_quietly(tmp_path: Path, until: Until) -> None:
    """Ctrl-C ends it without a traceback."""
    inbox = tmp_path / "inbox"
    eventq.init(inbox)
    push(inbox, "Hello")
    assert run_agent(inbox, 1, until, signal.SIGINT) == (0, "")


def test_the_pool_does_every_job(tmp_path: Path) -> None:
    """Workers are killed, and every job is done."""
    command = [sys.executable, str(ROOT / "examples/pool.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    wanted = r"jobs: 30, kills: [1-5], repeats: \d+\nevery job was done\n"
    assert re.fullmatch(wanted, done.stdout), done.stdout


# --- over HTTP ------------------------------------------------------------------------------------


@contextmanager
def serving(inbox: Path) -> Iterator[str]:
    """Serve a thread over HTTP; yield its URL."""
    argv = ["eventq", "serve", "--thread", str(inbox), "--http", "127.0.0.1:0", "--write"]
    env = environ() | {"EVENTQ_TOKEN": "secret"}
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        yield f"{server.stderr.readline().split()[-1]}/api/threads/inbox"
        server.terminate()


def is_acked(thread: eventq.Thread, number: int) -> bool:
    """Return whether the consumer has finished an event."""
    return thread.status().consumers[0].last_acked_id == number


def test_a_worker_in_node_does_what_is_pushed(tmp_path: Path, until: Until) -> None:
    """It needs no package; each event is settled once."""
    inbox = tmp_path / "inbox"
    with eventq.open(inbox, create=True) as thread, serving(inbox) as url:
        env = environ() | {"EVENTQ_TOKEN": "secret"}
        argv = ["node", str(ROOT / "examples/worker.mjs"), url]
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            for number in (1, 2):
                thread.push("self", "job", f"job {number}")
                assert worker.stdout.readline() == f"event {number}: job {number}\n"
                until(partial(is_acked, thread, number), "the event is settled")
            worker.kill()


def test_a_client_without_packages_sends_and_follows(tmp_path: Path) -> None:
    """What one sends, another one prints."""
    inbox = tmp_path / "inbox"
    eventq.init(inbox)
    with serving(inbox) as url:
        env = environ() | {"EVENTQ_TOKEN": "secret"}
        argv = [sys.executable, str(ROOT / "examples/http_client.py"), url]
        with subprocess.Popen(
            [*argv, "follow"], env=env, stdout=subprocess.PIPE, text=True
        ) as follower:
            assert follower.stdout is not None
            for number in (1, 2):
                sent = subprocess.check_output([*argv, "send", f"no {number}"], env=env, text=True)
                assert sent == f"{number}\n"
                assert follower.stdout.readline() == f"{number}  self  no {number}\n"
            follower.kill()
