"""What `thread.sessions.views` says about sessions, their branches and their entries."""

from __future__ import annotations

import base64
import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from eventq import NewTurn
from eventq.errors import LogicError, UnknownContextError
from eventq.output.entries import externalize
from eventq.output.spelling import spell
from eventq.sessions.forks import ENTRY, OLD_LINE
from tests.sessions.support import entry, header

if TYPE_CHECKING:
    import eventq

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]

IMAGE = {"type": "image", "data": base64.b64encode(random.Random(1).randbytes(3_000)).decode()}


def load(thread: eventq.Thread, *entries: Any, name: str = "s") -> None:
    """Import a file of these entries."""
    folder = f"{thread.path}.files"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.jsonl")
    with open(path, "wb") as file:
        file.writelines(json.dumps(one).encode() + b"\n" for one in entries)
    thread.sessions.import_file(path, name=name)


def cat(thread: eventq.Thread, context: str) -> list[Any]:
    """Return the entries of a branch; nothing may be missing."""
    return [json.loads(line) for line in thread.sessions.views.entries(context, pytest.fail)]


def test_the_last_title_counts(thread: eventq.Thread) -> None:
    """It is that of the last entry with one; an empty one takes it away; without any there is none."""
    named = [entry(f"n{n}", "a", "session_info", name=name) for n, name in enumerate(("x", "y"))]
    load(thread, header(), entry("a", None))
    assert thread.sessions.views.title("s") is None
    load(thread, header(), entry("a", None), *named)
    assert thread.sessions.views.title("s") == "y"
    load(thread, header(), entry("a", None), *named, entry("n", "a", "session_info", name=""))
    assert thread.sessions.views.title("s") is None


def test_all_generations_are_told(thread: eventq.Thread) -> None:
    """Each has its own lines and bytes; branches are those of all generations."""
    load(thread, header(), entry("a", None), entry("b", "a"))
    load(thread, header(), entry("x", None), entry("b", "x"), entry("c", "x"))
    views = thread.sessions.views
    found = views.generations("s")
    assert [(one.generation, one.lines) for one in found] == [(1, 3), (2, 4)]
    assert {one.branches for one in found} == {len(views.branches("s"))}
    assert found[1] == views.info("s")


def test_a_branch_says_where_it_leaves_the_active_one(thread: eventq.Thread) -> None:
    """The active one is first and leaves nowhere; a fork of a context is no branch."""
    load(thread, header(), entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "c"))
    thread.contexts.fork("s/b", name="mine")
    found = thread.sessions.views.branches("mine")
    told = [(one.name, one.entry, one.entries, one.leaves_at) for one in found]
    assert told == [("s", "d", 3, None), ("s/b", "b", 2, "a")]


def test_entries_of_any_shape_are_described(thread: eventq.Thread) -> None:
    """What has no id, kind or text is None, and other turns are their types."""
    load(thread, header(), entry("a", None, message={"role": 5, "content": "x\n y" * 90}))
    mine = thread.contexts.fork("s", name="mine")
    for data in (b"[1]", b"\xff", b'{"message":"m"}'):
        mine.append(NewTurn(data, type_id=ENTRY))
    mine.append(NewTurn("note", type_id="x"))
    found = thread.sessions.views.diff("s", "mine")
    assert (found.shared.entry, found.shared.kind) == ("a", "message")
    assert (found.shared.text or "").startswith("x yx y")
    assert len(found.shared.text or "") == 80
    assert found.mine == ()
    assert [(one.entry, one.kind, one.text) for one in found.theirs] == [
        (None, ENTRY, None), (None, ENTRY, None), (None, ENTRY, None), (None, "x", None),
    ]  # fmt: skip


def test_turns_of_an_older_import_are_entries_with_their_images(thread: eventq.Thread) -> None:
    """They are written so, and forks of them too; refs that a line had already stay refs."""
    told = entry("q", None, message={"role": "user", "content": [IMAGE]}), entry("r", "q")
    stored = externalize(told[0], lambda data: thread.blobs.put(data).ref)
    old = thread.contexts.create("old")
    old.append(NewTurn(spell(stored), type_id=ENTRY))
    old.append(NewTurn(spell(told[1]), type_id=OLD_LINE))
    old.fork(name="fork")
    assert cat(thread, "old") == cat(thread, "fork") == [*told]
    written = [json.loads(line) for line in thread.sessions.lines("fork", warn=pytest.fail)]
    assert [one for one in written if one["type"] == "message"] == [*told]
    load(thread, header(), stored)
    assert cat(thread, "s") == [stored]


def test_what_shares_nothing_is_refused(thread: eventq.Thread) -> None:
    """The error says where to look for two branches of one session."""
    load(thread, header(), entry("a", None))
    load(thread, header(), entry("b", None), name="t")
    views = thread.sessions.views
    with pytest.raises(LogicError, match="have no entry in common - give two branches of one"):
        views.diff("s", "t")
    with pytest.raises(UnknownContextError):
        views.diff("s", "nobody")
    assert [one.name for one in views.all()] == ["s", "t"]
