"""Ids of the memory in PostgreSQL: from 1 in each thread, in the order of commits, without gaps.

A transaction that is undone gives back what it took: all of it, a part of it, or at a conflict. What
finds everything there already takes none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import ConflictError
from tests.servers import fresh
from tests.sessions.support import says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def thread(postgres: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread that must check out."""
    with eventq.open(fresh(postgres)) as opened:
        yield opened
        assert opened.check() == []


def test_what_is_undone_gives_its_ids_back(thread: eventq.Thread) -> None:
    """The next ids are those that an undone transaction had taken."""
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.contexts.create("a").append("x")
        raise ZeroDivisionError
    context = thread.contexts.create("b")
    assert (context.id, context.append("y").turn_id) == (1, 1)


def test_a_part_that_is_undone_gives_its_ids_back(thread: eventq.Thread) -> None:
    """What goes on around it takes them, and they are stored with the rest."""
    with thread.write():
        context = thread.contexts.create("a")
        context.append("first")
        with pytest.raises(ZeroDivisionError), thread.write():
            context.append("undone")
            context.append("undone too")
            raise ZeroDivisionError
        assert context.append("second").turn_id == 2
    with eventq.open(thread.path) as other:
        assert other.contexts.get("a").append("third").turn_id == 3


def test_a_conflict_takes_no_id(thread: eventq.Thread) -> None:
    """A name that is taken leaves the number for the next context."""
    thread.contexts.create("a")
    with pytest.raises(ConflictError):
        thread.contexts.create("a")
    assert thread.contexts.create("b").id == 2


def test_a_deleted_id_is_not_used_again(thread: eventq.Thread) -> None:
    """Also that of the newest context."""
    thread.contexts.create("a").delete()
    assert thread.contexts.create("b").id == 2


def test_turns_that_are_there_take_no_ids(thread: eventq.Thread, tmp_path: Path) -> None:
    """A session file that was cut is a new generation of the same turns."""
    file = tmp_path / "s.jsonl"
    lines = [json.dumps(says(f"u{n}", f"u{n - 1}" if n else None)) + "\n" for n in range(9)]
    for count in (9, 4):
        file.write_text("".join(lines[:count]))
        thread.sessions.import_file(str(file))
    assert thread.contexts.create("a").append("x").turn_id == 10
