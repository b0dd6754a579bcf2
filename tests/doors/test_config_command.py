"""The command of settings: it lists, prints and changes them, and runs then report themselves."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.doors.support import objects, ok, refused, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> str:
    """Return a thread with a run."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        thread.runs.start("w", "p", label="build")
    return path


def test_settings_are_listed_printed_and_changed(box: str) -> None:
    """Every way has its text and its JSON; a value that was changed is what runs do from then on."""
    shown = {"name": "runs.emit", "value": "off", "default": "off"}
    other = "any_mount  false  (default: false)\nhooks.sessions  on  (default: on)\n"
    assert ok("config --thread", box) == f"{other}runs.emit  off  (default: off)\n"
    assert ok("config runs.emit --thread", box) == "off\n"
    assert objects("config --thread", box)[2:] == [shown]
    assert objects("config runs.emit --thread", box) == [shown]
    assert ok("config runs.emit on --thread", box) == "runs.emit  self  (default: off)\n"
    assert ok("config runs.emit --thread", box) == "self\n"
    ok("run step build --role a --thread", box)
    assert objects("config runs.emit internal:a:b:c --thread", box) == [
        shown | {"value": "internal:a:b:c"}
    ]
    ok("run end build --thread", box)
    told = [
        (event["source"], json.loads(event["content"])["op"])
        for event in objects("peek --thread", box)
    ]
    assert told == [("self", "step"), ("internal:a:b:c", "end")]
    ok("config runs.emit off --thread", box)
    ok("run resume build --thread", box)
    assert len(objects("peek --thread", box)) == 2


def test_what_is_refused(box: str) -> None:
    """A wrong name, a wrong value and an empty one change nothing."""
    refused(2, "there is no setting 'emit'", run("config emit --thread", box))
    refused(
        2,
        "use one of these: any_mount, hooks.sessions, runs.emit",
        run("config emit on --thread", box),
    )
    refused(
        2,
        "source holds a control character",
        run("config", "runs.emit", "\x1b", "--thread", box),
    )
    refused(2, "VALUE is empty", run("config", "runs.emit", "", "--thread", box))
    assert ok("config runs.emit --thread", box) == "off\n"


def test_looking_changes_no_file(box: str) -> None:
    """Only a value opens the thread to write."""
    before = {name: os.stat(os.path.join(box, name)).st_mtime_ns for name in os.listdir(box)}
    ok("config --thread", box)
    ok("config runs.emit --thread", box)
    after = {name: os.stat(os.path.join(box, name)).st_mtime_ns for name in os.listdir(box)}
    assert after == before


def test_a_run_that_reports_itself(box: str) -> None:
    """`run start --emit` reports every change of the run and of its forks, and of no other."""
    ok("run start --name w --label own --emit --thread", box)
    ok("run start --name w --label other --emit --source internal:a:b:c --thread", box)
    for words in ("step own --role a", "fork own --label fork", "step build --role a", "end other"):
        ok(f"run {words} --thread", box)
    ok("run cancel fork --thread", box)
    told = [
        (event["source"], json.loads(event["content"])["run_id"])
        for event in objects("peek --thread", box)
    ]
    assert told == [
        ("self", 2), ("internal:a:b:c", 3), ("self", 2), ("self", 4), ("internal:a:b:c", 3),
        ("self", 4),
    ]  # fmt: skip
