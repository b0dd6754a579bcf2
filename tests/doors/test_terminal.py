"""`peek` and `tail` in a terminal, and in a pipe as ever.

Who reads a terminal is a person, and what it shows is others' text: the members of the kind are each
field of an event, escapes and C1 controls, text that turns its direction, wide and combining
characters, lines without end, and a terminal that is narrow or has no size.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
import tty
from typing import Any

import pytest
from rich.cells import cell_len

import eventq
from eventq.records.event import NewEvent
from tests.doors.support import EVENTQ, THREAD, environ, raw_run

SGR = re.compile(r"\x1b\[\d*m")


def terminal(*words: str, columns: int = 80, program: str = EVENTQ, **more: str) -> str:
    """Run a command in a terminal, and return what it wrote there, byte for byte."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # no carriage returns are added
    termios.tcsetwinsize(theirs, (24, columns))
    env = environ(**{"TERM": "xterm", "TZ": "CET-1", "NO_COLOR": "", **more})
    with subprocess.Popen(
        [program, *words], stdout=theirs, stdin=subprocess.DEVNULL, env=env
    ) as run:
        os.close(theirs)
        data = bytearray()
        try:
            while block := os.read(ours, 1 << 16):
                data += block
        except OSError:  # Linux: everybody else has closed it
            pass
    os.close(ours)
    assert run.returncode == 0
    return data.decode()


def push(path: str, *contents: str, source: str = "self") -> None:
    """Store events."""
    with eventq.open(path) as thread:
        for content in contents:
            thread.push(source, "note", content)


def test_a_terminal_shows_columns(path: str) -> None:
    """Id, local time, source, type and subtype, and the first line, below each other."""
    with eventq.open(path) as thread:
        rows = [
            NewEvent(
                "internal:dm:default:warden", "message", "How is it going?\nWell?", None, None
            ),
            NewEvent("self", "record", "\n\n{}", "toolcall", None),
        ]
        thread.database.events.append(rows, None, "2026-03-18T23:30:00.123Z")
        thread.push("self", "record", "now")
    for words in (
        "peek --thread PATH",
        "tail --thread PATH",
        "peek --last-event-id 0 --thread PATH",
    ):
        shown = SGR.sub("", terminal(*(path if one == "PATH" else one for one in words.split())))
        lines = shown.splitlines()
        assert lines[:2] == [
            "#1  2026-03-19 00:30:00  internal:dm:default:w…  message        How is it going…",
            "#2  2026-03-19 00:30:00  self                    record/toolc…  {}",
        ]
        assert re.fullmatch(r"#3  \d\d:\d\d:\d\d             self {20}record         now", lines[2])


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_a_narrow_terminal_shows_what_was_said(path: str, columns: int) -> None:
    """The content keeps a part of the line, whatever the names before it."""
    with eventq.open(path) as thread:
        thread.push("internal:dm:default:warden", "record/of-a-long-kind", "abcdefgh" * 20)
    shown = SGR.sub("", terminal("tail", "--thread", path, columns=columns)).splitlines()
    assert all(cell_len(line) <= columns for line in shown)
    assert "abcd" in shown[0]


def test_a_pipe_has_what_it_has_always_had(path: str) -> None:
    """Byte for byte: JSON of `peek`, and a line of all of each event of `tail`."""
    push(path, "one\n\x1b[2Jtwo", "é" * 100, "three")
    with eventq.open(path) as thread:
        events = [*thread.peek()]
    lines = "".join(
        json.dumps(event._asdict(), ensure_ascii=False, separators=(",", ":")) + "\n"
        for event in events
    )
    readable = "".join(f"{e.created_at}  #{e.id}  self  note  {e.content}\n" for e in events)
    readable = readable.replace("one\n\x1b[2J", "one\\n\\x1b[2J")
    for words, expected in (
        ("peek --last-event-id 0", lines), ("peek", lines), ("peek --json", lines),
        ("peek --json --last-event-id 0", lines), ("tail", readable), ("tail --json", lines),
    ):  # fmt: skip
        assert raw_run(f"{words} --thread", path).stdout.decode() == expected
        if "--json" in words:
            assert terminal(*words.split(), "--thread", path) == expected
    for words, expected in (("peek --last 3", lines), ("tail", readable)):
        shown = terminal(*words.split(), "--thread", path, program=THREAD)
        assert shown == expected


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}])
def test_colour_is_left_out_on_request(path: str, variables: Any) -> None:
    """NO_COLOR, a terminal that is dumb, or one of which nothing is known; otherwise there is some."""
    push(path, "x")
    assert "\x1b[36mself\x1b[0m" in terminal("tail", "--thread", path)
    assert "\x1b" not in terminal("tail", "--thread", path, **variables)


@pytest.mark.parametrize("columns", [1, 20, 80, 0])
def test_hostile_events_do_not_drive_the_terminal(path: str, columns: int) -> None:
    """Each is one line that fits, and no byte of them is a control or turns the direction."""
    evil = [
        "\x1b]0;title\x07\x1b[2J\x1b[31m", "\x9b31m\x85\u2028", "\u202egnp.exe", "a\rb\tc\bd\0",
        "漢字" * 100, "e" + "\u0301" * 50, "👩‍👩‍👧‍👦" * 50, "x" * 100_000, "", " \n \n", "\ufeff\xad\u200b",
    ]  # fmt: skip
    for text in evil:
        push(path, text)
    with eventq.open(path) as thread:  # as another tool may have stored them
        names = ("\x1b[2J", "\u202ex", "漢" * 100)
        thread.database.events.append([NewEvent(one, one, "x", one, None) for one in names])
    for command in ("peek", "tail"):
        shown = terminal(command, "--thread", path, "--last" if command == "peek" else "-n", "50",
                         columns=columns)  # fmt: skip
        plain = SGR.sub("", shown)
        assert plain.replace("\n", "").isprintable()
        lines = plain.removesuffix("\n").split("\n")
        assert len(lines) == len(evil) + 3
        assert max(map(cell_len, lines)) <= (columns or 80)


def test_columns_grow_with_what_comes(path: str) -> None:
    """A page of short names, then one of long ones: no line goes back, and no column shrinks."""
    push(path, *["x"] * 1_000)
    push(path, "y", source="a:long:name")
    push(path, "z")
    shown = SGR.sub("", terminal("tail", "-n", "2000", "--thread", path)).splitlines()
    assert len(shown) == 1_002
    assert re.sub(r"\d\d:\d\d:\d\d", "-", shown[-1]) == "#1002  -  self         note  z"


def test_a_pipe_imports_nothing_of_it(path: str) -> None:
    """Neither the columns nor what measures text."""
    push(path, "x")
    for command in ("peek", "tail"):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "eventq", command, "--thread", path],
            capture_output=True, text=True, env=environ(), check=True,
        )  # fmt: skip
        for name in ("rich", "eventq.cli.columns", "eventq.log.selection"):
            assert not re.search(rf"\| +{name}\b", done.stderr)


def test_a_time_of_another_tool_is_shown_as_it_is(path: str) -> None:
    """Whatever it is; nothing of it is hidden."""
    with eventq.open(path) as thread:
        row = NewEvent("self", "note", "x", None, None)
        thread.database.events.append([row], None, "yesterday")
    assert "yesterday" in terminal("tail", "--thread", path)


def test_a_turn_says_what_it_says(path: str) -> None:
    """Who speaks, then what was said, called and answered; in a pipe it is the payload as ever."""
    calls = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls\x1b[31m"}}
    content = [{"type": "text", "text": "I look.\nThen I go."}, calls]
    answer = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "none"}
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        usage = {"input_tokens": 5, "output_tokens": 1_200, "cache_read_input_tokens": 7}
        told = {"role": "assistant", "model": "m", "usage": usage, "content": content}
        main.append(json.dumps(told))
        main.append(json.dumps({"role": "user", "content": [answer]}))
        main.append("plain\n" * 30)
    words = ("turn", "last", "main", "--thread", path)
    shown = terminal(*words).splitlines()
    assert shown[1:5] == [
        "  assistant  m  1,200 tokens out, 5 in, 7 from the cache", "  I look.", "  Then I go.",
        "  → Bash ls\\x1b[31m",
    ]  # fmt: skip
    assert shown[6:8] == ["  tool", "  ← failed: none"]
    assert shown[9:29] == ["  plain"] * 20
    assert "all of it: eventq blob get blob:blake3:" in shown[29]
    piped = raw_run(*words).stdout.decode()
    assert f"  {json.dumps(told)[:40]}" in piped
