"""Events in a terminal: what each says, by the rule of all views; pipes get bytes as ever."""

from __future__ import annotations

import json

import eventq
from tests.doors.support import raw_run
from tests.doors.test_terminal import SGR, terminal

CALL = {"role": "assistant", "content": [
    {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "git log\n"}},
]}  # fmt: skip


def test_a_terminal_shows_what_was_said(path: str) -> None:
    """A call of a tool, an object, text of several lines, and what is too long to be parsed."""
    with eventq.open(path) as thread:
        thread.push("self", "record", json.dumps(CALL))
        thread.push("self", "order", '{"order": 99060, "total": 450.0}')
        thread.push("self", "note", "first\n\nsecond")
        thread.push("self", "note", json.dumps({"a": "x" * 200_000}))
        thread.push("self", "note", "")
    shown = SGR.sub("", terminal("peek", "--thread", path, columns=100)).splitlines()
    assert [line.split("  ", 4)[-1].strip() for line in shown[:3]] == [
        "Bash git log", "order 99060 · total 450.0", "first second",
    ]  # fmt: skip
    assert '{"a": "xxx' in shown[3]
    assert shown[4].split() == ["#5", shown[4].split()[1], "self", "note"]


def test_pipes_get_what_is_stored(path: str) -> None:
    """Byte for byte."""
    with eventq.open(path) as thread:
        thread.push("self", "record", json.dumps(CALL))
    found = raw_run("peek", "--thread", path)
    assert json.loads(json.loads(found.stdout)["content"]) == CALL
