"""What an older version has stored is counted by several processes while others take it away.

Who is beside them: one that makes chats, runs and sessions, deletes and collects them; one that
appends turns and erases them; one that lets the count begin anew. No question fails, and in the end
each response counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from tests.contract.test_usage import CLAUDE, said, spell
from tests.contract.test_usage_beside import uncount
from tests.crash.support import kill, read_lines, start

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")

HEAD = """
import eventq
from tests.contract.test_usage import said
from tests.contract.test_usage_beside import uncount
with eventq.open(sys.argv[1]) as thread:
    say("go")
    for n in range(100000):
"""
COUNT = """
        found = thread.usage()
        say(found.is_all)
"""
UNCOUNT = """
        uncount(thread)
        say(n)
"""
COLLECT = """
        chat, run = thread.contexts.create(f"chat-{n}"), thread.runs.start("w", f"p {n}")
        for k in range(9):
            chat.append(said(k + 1, f"r{k}", content=f"{n} {k}"))
        run.step("a", {"usage": {"output_tokens": 4}}, f"{n}")
        thread.sessions.import_file(sys.argv[2], name="s")
        thread.contexts.delete(chat.id)
        thread.contexts.delete(run.id)
        thread.sessions.remove("s")
        thread.gc(apply=True, grace=0)
        say(n)
"""
ERASE = """
        chat = thread.contexts.create(f"erased-{n}")
        turn = chat.append(said(5, content=f"to be erased {n}"))
        thread.erasures.turn(turn.turn_id)
        say(n)
"""


@pytest.mark.parametrize("rounds", [5, pytest.param(60, marks=pytest.mark.soak)])
def test_others_go_on(path: str, tmp_path: Path, rounds: int) -> None:
    """Two count, and somebody makes them begin again, beside each of the others."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(spell(CLAUDE))
    with eventq.open(path) as thread:
        chat = thread.contexts.create("kept")
        for number in range(700):
            chat.append(said(1, content=f"kept {number}"))
    codes = (COUNT, COUNT, UNCOUNT, COLLECT, ERASE)
    others = [start(HEAD + code, path, str(file)) for code in codes]
    for one in others:
        read_lines(one, rounds)
    for one in others:
        kill(one)
    with eventq.open(path) as thread:
        for _ in range(2):
            while not thread.usage().is_all:
                pass
            assert thread.usage(context="kept").out == 700
            uncount(thread)
        for erased in thread.erasures:  # the last was killed, perhaps
            if not erased.finished:
                thread.erasures.turn(int(erased.name))
        assert thread.check() == []
