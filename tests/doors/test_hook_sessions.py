"""A hook that names a session file has it imported, before its tool deletes it.

The kind: the file is gone when somebody wants to read it, or keeping it harms the hook. Members: the
end of a turn and of a session; other events; two hooks at once; a file that is not there, is gone
by then, is no session, no file, or is refused; a link; a session that has grown; a thread whose
setting says no; a thread in PostgreSQL; a hook that has to wait for the import.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.doors.support import ok, run
from tests.servers import fresh
from tests.sessions.support import says

if TYPE_CHECKING:
    from tests.conftest import Until


@pytest.fixture(params=["sqlite", "postgres"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a thread of each engine."""
    if request.param == "postgres":
        return fresh(request.getfixturevalue("postgres"))
    return eventq.init(tmp_path / "box")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a session file."""
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(says("a", None)) + "\n")
    return path


def hook(box: str, event: str, path: object) -> None:
    """Run a hook, which prints nothing."""
    given = json.dumps({"hook_event_name": event, "transcript_path": str(path)})
    assert ok("hook --thread", box, given=given) == ""


def lines(box: str) -> list[tuple[str, int]]:
    """Return the sessions of a thread, and how many lines each has."""
    with eventq.open(box) as thread:
        return [(one.name, one.lines) for one in thread.sessions.views.all()]


@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_a_session_is_kept_when_its_agent_stops(
    box: str, file: Path, until: Until, event: str
) -> None:
    """It is imported after the hook, and what it has grown by after the next one."""
    hook(box, event, file)
    until(lambda: lines(box) == [("s", 1)], "the session is imported")
    with file.open("a") as more:
        more.write(json.dumps(says("b", "a")) + "\n")
    hook(box, event, file)
    until(lambda: lines(box) == [("s", 2)], "what is new is imported")


def test_a_hook_does_not_wait_for_the_import(tmp_path: Path, file: Path, until: Until) -> None:
    """It has ended while another import has the file; then both are done, and nothing is doubled."""
    box = eventq.init(tmp_path / "box")
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        hook(box, "Stop", file)
        hook(box, "SessionEnd", file)
        assert lines(box) == []
    until(lambda: lines(box) == [("s", 1)], "the session is imported")
    with eventq.open(box) as thread:
        assert [event.subtype for event in thread.peek()] == ["Stop", "SessionEnd"]


def test_nothing_is_imported_where_it_is_not_wanted(tmp_path: Path, file: Path) -> None:
    """That is at other events, for a file that is not there, and with the setting off."""
    box = eventq.init(tmp_path / "box")
    ok("config hooks.sessions off --thread", box)
    hook(box, "UserPromptSubmit", file)
    hook(box, "Stop", tmp_path / "none.jsonl")
    ok("hook --thread", box, given='{"hook_event_name":"Stop","transcript_path":5}')
    late = {"EVENTQ_HOOK_SESSION": str(file), "EVENTQ_THREAD": box}  # as the hook starts it
    assert run("hook", given="", **late).code == 0
    assert lines(box) == []
    ok("config hooks.sessions on --thread", box)
    assert run("hook", given="", **late).code == 0
    assert lines(box) == [("s", 1)]


def test_what_cannot_be_imported_is_noted(tmp_path: Path, file: Path, until: Until) -> None:
    """The hook is as if nothing had been, and the journal has the reason."""
    box = eventq.init(tmp_path / "box")
    file.write_text("no session\n")
    hook(box, "Stop", file)
    with eventq.open(box) as thread:
        journal = Path(thread.layout.journal)

    def is_told() -> bool:
        return journal.exists() and "was not imported: " in journal.read_text()

    until(is_told, "the journal has the reason")


@pytest.mark.parametrize("what", ["a folder", "a pipe", "nothing", "a link to nothing", "a device"])
def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path, file: Path, what: str) -> None:
    """A hook is silent about it; what a file has become by the time of the import is noted."""
    box = eventq.init(tmp_path / "box")
    path = tmp_path / "t.jsonl"
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    elif what != "nothing":
        path.symlink_to("/dev/zero" if what == "a device" else tmp_path / "none")
    hook(box, "Stop", path)
    assert run("hook", given="", EVENTQ_HOOK_SESSION=str(path), EVENTQ_THREAD=box).code == 0
    with eventq.open(box) as thread:
        noted = Path(thread.layout.journal).read_text()
    assert noted.count("was not imported: ") == 1
    hook(box, "Stop", "x\0y")
    assert lines(box) == []
    file.rename(tmp_path / "real.jsonl")
    file.symlink_to(tmp_path / "real.jsonl")
    assert run("hook", given="", EVENTQ_HOOK_SESSION=str(file), EVENTQ_THREAD=box).code == 0
    assert lines(box) == [("s", 1)]
