"""What an event has caused, as a shell script states and asks it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.records.cause import Cause, Effects
from eventq.wire.frames import Hello, Welcome
from tests.doors.support import THREAD, environ, refused, run
from tests.servers import ENGINES
from tests.wire.support import Process, append

if TYPE_CHECKING:
    from pathlib import Path

TWO = '{"source":"self","type":"a","content":"3"}\n{"source":"self","type":"b","content":"4"}\n'


def shown(*words: str, **more: str) -> list[int]:
    """Return the ids of the events that `peek` prints."""
    done = run("peek", *words, **more)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line)["id"] for line in done.out.splitlines()]


@pytest.mark.engines(*ENGINES)
def test_who_has_claimed_an_event_states_it(path: str) -> None:
    """With EVENTQ_EVENT_ID beside EVENTQ_THREAD; `peek --cause` shows what came of it."""
    own = {"EVENTQ_THREAD": path}
    for text in ("one", "two"):
        assert run("push", text, **own).code == 0
    run("subscribe", "--consumer", "w", **own)
    claimed = json.loads(run("claim", "--consumer", "w", **own).out)["event"]["id"]
    held = own | {"EVENTQ_EVENT_ID": str(claimed)}
    assert run("push", "--batch", given=TWO, **held).code == 0
    assert run("push", "--stream", given=TWO, **held).code == 0
    assert run("push", "keyed", "--key", "k", **held).code == 0
    assert run("push", "nothing to do with it", **own).code == 0
    assert run("context", "create", "--name", "main", **own).code == 0
    assert run("turn", "append", "main", "--content", "said", **held).code == 0
    assert shown("--cause", "1", "--json", **own) == [3, 4, 5, 6, 7]
    assert shown("--cause", "1", "--last", "2", **own) == [6, 7]
    assert shown("--cause", "1", "--last-event-id", "4", "--limit", "2", **own) == [5, 6]
    assert shown("--cause", "1", "--type", "a", "--filter", "id > 3", **own) == [5]
    assert shown("--cause", "1", "--since", "1h", "--limit", "1", **own) == [3]
    assert shown("--cause", "2", **own) == shown("--cause", "99", **own) == []
    with eventq.open(path) as thread:
        assert thread.caused_by(1) == Effects((3, 4, 5, 6, 7), (1,))


@pytest.mark.engines(*ENGINES)
@pytest.mark.parametrize("words", [["push", "x"], ["push", "--batch"], ["push", "x", "--key", "k"]])
@pytest.mark.parametrize("value", ["x", "-1", "99999", "9" * 30, "1,2", "\N{SNOWMAN}"])
def test_no_value_makes_a_push_fail(path: str, words: list[str], value: str) -> None:
    """What is no event, or no event yet, is stated by mistake: the push counts."""
    given = TWO if "--batch" in words else ""
    more = {"EVENTQ_THREAD": path, "EVENTQ_EVENT_ID": value}
    done = run(*words, given=given, **more)
    assert (done.code, done.err) == (0, "")
    with eventq.open(path) as thread:
        assert thread.causes_of(event=1) == []


def test_a_push_into_another_thread_names_that_of_its_cause(path: str, tmp_path: Path) -> None:
    """A variable that was inherited says where the event is."""
    other = eventq.init(tmp_path / "other")
    more = {"EVENTQ_THREAD": path, "EVENTQ_EVENT_ID": "7"}
    assert run("push", "--thread", other, "x", **more).code == 0
    with eventq.open(other) as thread:
        assert thread.causes_of(event=1) == [Cause(7, path)]


def test_a_server_is_not_at_work_on_what_started_it(path: str) -> None:
    """What it stores for others has nothing to do with that event."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        context = thread.contexts.create("main").id
    started = {"EVENTQ_THREAD": path, "EVENTQ_EVENT_ID": "1"}
    with Process(path, **started) as served:
        with served.peer() as peer:
            assert isinstance(peer.ask(Hello(1, "")), Welcome)
            peer.ask(append(context, b"x"))
        assert served.end() == (0, "", "")
    with eventq.open(path) as thread:
        assert thread.contexts.get("main").head_id() == 1
        assert thread.causes_of(turn=1) == []


def test_the_other_program_knows_no_causes(path: str) -> None:
    """`thread` has the options of the tool of that name."""
    done = run("peek", "--thread", path, "--last", "1", "--cause", "1", program=THREAD)
    refused(2, "No such option '--cause'", done)


def test_a_plain_push_imports_nothing_for_causes(path: str) -> None:
    """Nor does it run another statement: it pays for causes only if it may have one."""
    code = (
        "import sys; sys.argv[0] = 'eventq'; from eventq.cli import run; run(sys.argv[1:]);"
        "print('eventq.store.causing' in sys.modules, 'contextvars' in sys.modules)"
    )
    words = [sys.executable, "-c", code, "push", "--thread", path, "x"]
    for more, expected in (({}, "False False\n"), ({"EVENTQ_EVENT_ID": "1"}, "True True\n")):
        done = subprocess.run(words, capture_output=True, text=True, env=environ(**more))
        assert done.stdout == expected
