"""`find --erase` is killed again and again: the same command finishes it, and nothing else is lost.

The text stands in something of each kind, in rotated files of the mirror, in logs that are rotated
too, and in `lost/`. What is left afterwards is what an erasure leaves that nobody has killed.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import LogicError
from eventq.log import mirror
from tests.contract.test_find import fill
from tests.crash.support import copy, kill, mirror_lines, read_lines, sound, start
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from pathlib import Path

TEXT = secret(3, 60)
# Dies before or after a call that can change a file: most others index what is sought in logs.
FIND = """
import eventq
def fall_at_call(number):
    left = [number]
    def count(frame, event, call):
        owner = getattr(call, "__self__", None)
        module = getattr(call, "__module__", None) or type(owner).__module__
        if event in ("c_call", "c_return") and module in ("posix", "apsw"):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), 9)
    sys.setprofile(count)
with eventq.open(sys.argv[1]) as thread:
    say("go")
    fall_at_call(int(sys.argv[3]))
    left = thread.erasures.text(sys.argv[2])
    sys.setprofile(None)
    say(f"left {left}")
"""
OTHERS = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    say("go")
    for n in range(100000):
        say(thread.push("self", "other", f"other {n} " + "x" * 300).id)
"""
CALLS = 16_000  # about as many of them as an erasure makes here


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a thread that has the text everywhere, and other texts between."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    monkeypatch.setattr(mirror, "ROTATE_LINES", 5)
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        fill(thread, TEXT, tmp_path)
        thread.contexts.open_turn(1).discard()
        for number in range(12):
            thread.push("self", "note", f"{number} {TEXT}" if number % 3 else f"kept {number}")
        thread.answer(thread.ask(f"Which? {TEXT}").question_id, f"This: {TEXT}")
        thread.contexts.create("kept").append(f"kept {'y' * 500}")
        thread.artifacts.put(b"kept artifact")
    rotated = thread.layout.handler_log("w").replace(".log", "-20260101-000000.log")
    with open(rotated, "w", encoding="utf-8") as file:
        file.write(f"kept\n{TEXT}\nkept\n")
    return path


def state(path: str) -> dict[str, Any]:
    """Return what a thread holds, but for what others have pushed."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        events = [one for one in thread.peek(limit=None) if one.type != "other"]
        turns = {}
        for number in range(1, 30):
            try:
                turn = thread.contexts.turn(number)
            except LogicError:
                break
            turns[number] = (turn.payload, turn.tombstone, turn.hash, turn.depth)
        found = {
            "events": events,
            "turns": turns,
            "letters": [one.error for one in thread.dead_letters()],
            "questions": [one.question_id for one in thread.questions()],
            "artifacts": [one.hash for one in thread.artifacts],
            "session": [*thread.sessions.lines("s-1")],
            "erased": sorted((one.kind, one.name, one.finished) for one in thread.erasures),
        }
    lines = [json.loads(text) for text in mirror_lines(path)]
    found["mirror"] = [one for one in lines if one["type"] != "other"]
    folder = f"{path}/logs/handlers"
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            found[name] = file.read()
    return found


MANY = [pytest.param(30, seed, marks=pytest.mark.soak) for seed in range(20, 24)]


@pytest.mark.parametrize(("rounds", "seed"), [(3, 11), *MANY])
@pytest.mark.parametrize("beside", [False, True])
def test_the_same_command_finishes_it(
    template: str, tmp_path: Path, rounds: int, seed: int, *, beside: bool
) -> None:
    """After up to three kills, at any calls, also beside somebody who pushes other texts."""
    whole = copy(template, str(tmp_path / "whole"))
    with eventq.open(whole) as thread:
        assert thread.erasures.text(TEXT) == []
    expected = state(whole)
    assert remains(whole, TEXT) == []
    chance = random.Random(seed)
    killed = 0
    for number in range(rounds):
        path = copy(template, str(tmp_path / f"{number}"))
        others = start(OTHERS, path) if beside else None
        said = read_lines(others, 20) if others else b""
        for _ in range(number % 3 + 1):
            process = start(FIND, path, TEXT, f"{chance.randrange(1, CALLS)}")
            out = read_lines(process) + kill(process)
            killed += b"left" not in out
        if others:
            said += kill(others)
        with eventq.open(path) as thread:
            faults = [what for what in thread.check() if "again" not in what]
            assert all("mirror rebuild" in what for what in faults)
            assert thread.erasures.text(TEXT) == []
        assert remains(path, TEXT) == []
        assert state(path) == expected
        kept = sound(path)
        ids = [int(one) for one in said.split(b"\n")[1:-1]]
        assert len([one for one in kept if one.startswith("other ")]) >= len(ids)
    assert killed >= rounds // 2
