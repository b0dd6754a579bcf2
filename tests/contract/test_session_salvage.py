"""A session with lines that are not one object each, from its import to its fork.

The kind: an entry that is not a line. Members: see `tests/sessions/test_salvage.py`; here what a
line of several rows has to do with all that counts lines: growth, torn ends, numbers, copies, what
an older version stored.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from eventq.sessions import files, imports
from eventq.sessions.lines import split
from tests.contract.test_session_branches import export, load, shown, spell, turns
from tests.servers import ENGINES
from tests.sessions.support import answers, entry, header, says
from tests.sessions.test_gaps import at

if TYPE_CHECKING:
    from pathlib import Path

    import eventq

Entry = dict[str, Any]

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]

# Far apart, so that nothing but the entries themselves holds them together.
TALK = [
    kind(f"e{n}", f"e{n - 1}" if n else None, **at(n * 60_000))
    for n, kind in enumerate((says, answers) * 3)
]
LINES = [json.dumps(one).encode() for one in TALK]
ALL = "e0 e1 e2 e3 e4 e5"
IRREGULAR: dict[str, list[bytes]] = {
    "glued": [*LINES[:2], LINES[2] + LINES[3], *LINES[4:]],
    "first": [LINES[0] + b"," + LINES[1], *LINES[2:]],
    "last": [*LINES[:4], LINES[4] + b" " + LINES[5]],
    "a lone CR": [*LINES[:2], LINES[2] + b"\r" + LINES[3], *LINES[4:]],
    "a fragment": [*LINES[:2], LINES[2][:70] + LINES[2], *LINES[3:]],
    "NULs": [*LINES[:2], b"\0" * 99 + LINES[2], *LINES[3:]],
    "a list": [*LINES[:2], b"[" + LINES[2] + b"," + LINES[3] + b"]", *LINES[4:]],
    "a control character": [*LINES[:2], LINES[2].replace(b"hello", b"h\x02"), *LINES[3:]],
    "NaN": [*LINES[:2], LINES[2][:-1] + b',"n":NaN}', *LINES[3:]],
    "a bad byte": [*LINES[:2], LINES[2].replace(b"hello", b"h\xff"), *LINES[3:]],
    "all on one line": [b"\xff".join(LINES)],
}


def imported_by_an_older_version(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, *entries: Any
) -> None:
    """Import a file as it was done when a line was one object or no entry."""
    with monkeypatch.context() as patch:
        for module in (imports, files):
            patch.setattr(module, "pieces", lambda line, _: [split(line)])
        load(thread, *entries)
    store = thread.database.memory.sessions
    row = store.find("s")
    assert row is not None
    if row.missing is not None:
        store.settle(row.session, row.settled, json.dumps(json.loads(row.missing)["parents"]))


@pytest.mark.parametrize("name", IRREGULAR)
def test_all_entries_are_turns(thread: eventq.Thread, tmp_path: Path, name: str) -> None:
    """Main has all of them, the bytes come out, the lines are counted, and a fork is sound JSON."""
    lines = IRREGULAR[name]
    load(thread, *lines)
    made = load(thread, *lines)
    assert (made.entries, made.added) == (6, 0)
    assert {own: ids.split() for own, ids in branches(thread).items()} == {"s": ALL.split()}
    assert export(thread) == spell(*lines)
    info = thread.sessions.views.info("s")
    assert (info.lines, info.size) == (len(lines), len(spell(*lines)))
    shown_again = [json.loads(one) for one in thread.sessions.views.entries("s", print)]
    assert [one["uuid"] for one in shown_again] == ALL.split()
    forked = thread.sessions.fork("s", os.fspath(tmp_path))
    with open(forked.output, "rb") as file:
        data = file.read()
    assert b"NaN" not in data
    found = [json.loads(one) for one in data.decode().split("\n")[:6]]
    assert [one["forkedFrom"]["messageUuid"] for one in found] == ALL.split()


def branches(thread: eventq.Thread) -> dict[str, str]:
    """Return the ids of the entries of each branch."""
    views = thread.sessions.views
    return {
        one.name or "": " ".join(str(json.loads(e)["uuid"]) for e in views.entries(one.context_id, print))
        for one in views.branches("s")
    }  # fmt: skip


@pytest.mark.parametrize("name", IRREGULAR)
def test_what_an_older_version_left_is_found(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Importing the same file again moves the branches; no turn is made twice, and none is lost."""
    lines = IRREGULAR[name]
    if name == "all on one line":  # it was no session then
        lines = [*lines, LINES[5]]
    imported_by_an_older_version(thread, monkeypatch, *lines)
    old = {
        turn.turn_id
        for one in thread.contexts
        for turn in thread.contexts.get(one.context_id).replay()
    }
    load(thread, *lines)
    assert branches(thread)["s"] == ALL
    assert export(thread) == spell(*lines)
    count = turns(thread)
    assert count <= 6 + len(old)
    assert all(thread.contexts.turn(turn).payload for turn in old)
    load(thread, *lines, b"", says("e6", "e5"))
    assert branches(thread)["s"] == f"{ALL} e6"
    assert turns(thread) == count + 1
    thread.gc(apply=True, grace=0)
    assert turns(thread) == 7


def test_what_came_before_an_entry_that_is_found_keeps_its_turn(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that somebody made of an old turn stays, and the turns of the beginning are the same."""
    lines = IRREGULAR["glued"]
    imported_by_an_older_version(thread, monkeypatch, *lines)
    assert shown(thread) == {"s": "e4 e5", "s/e1": "e0 e1"}
    begin = thread.contexts.get("s/e1").head_id()
    head = thread.contexts.get("s").head_id()
    mine = thread.contexts.create("mine", base=head).append("my own")
    load(thread, *lines)
    assert [turn.turn_id for turn in thread.contexts.get("s").replay()][1] == begin
    assert thread.contexts.get("mine").head_id() == mine.turn_id


@pytest.mark.parametrize("name", ["glued", "last", "a list", "a fragment"])
def test_a_file_that_is_read_as_it_is_written(thread: eventq.Thread, name: str) -> None:
    """Whatever an import has seen of a line, in the end it is as if it had come whole."""
    data = spell(*IRREGULAR[name])
    begin = data.index(b"\n")
    path = f"{thread.path}.growing.jsonl"
    for end in (*range(begin, len(data), 97), len(data) - 1, len(data)):
        with open(path, "wb") as file:
            file.write(data[:end])
        made = thread.sessions.import_file(path, name="s")
        assert (made.generation, export(thread)) == (1, data[:end])
    assert branches(thread)["s"] == ALL
    row = thread.sessions.views.info("s")
    assert row.lines == len(IRREGULAR[name])
    thread.gc(apply=True, grace=0)
    assert turns(thread) == 6


def test_notes_have_the_numbers_of_lines(thread: eventq.Thread) -> None:
    """They count lines as the file has them, also behind one that is several rows."""
    lines = [*LINES[:2], LINES[2] + LINES[3], b"no JSON", b"[" + LINES[4] + b"]", *LINES[5:]]
    made = load(thread, *lines)
    assert (made.entries, made.added, made.raw) == (7, 7, 2)
    assert made.notes == (
        "line 4 is kept as raw text: not JSON",
        "2 lines, the first is line 3, are not one JSON object each: the 3 entries in them were found",
    )
    made = load(thread, *lines, b"\0" + json.dumps(says("e6", "e5")).encode(), b"more")
    assert (made.entries, made.added, made.raw) == (9, 2, 2)
    assert made.notes == (
        "line 8 is kept as raw text: not JSON",
        "line 7 is not one JSON object: the entry in it was found",
    )


def test_what_was_found_is_shown(thread: eventq.Thread, tmp_path: Path) -> None:
    """A session's notes name all that is no entry, or was found; a fork's, what it goes on from."""
    lines = [*LINES[:2], LINES[2] + LINES[3], b"no JSON", b"", b"[" + LINES[4] + b"]", b"", b'{"a']
    load(thread, *lines[:-1], lines[-1])
    raw = "2 lines, the first is line 4, are kept as raw text: not JSON"
    both = "2 lines, the first is line 3, are not one JSON object each: the 3 entries in them were found"
    views = thread.sessions.views
    assert views.notes("s") == [raw, both]
    first = thread.sessions.fork("s", os.fspath(tmp_path), at="e2").notes
    assert first == (raw, "line 3 is not one JSON object: the 2 entries in it were found")
    assert thread.sessions.fork("s", os.fspath(tmp_path), at="e1").notes == (raw,)
    odd = [LINES[0], LINES[1][:-1] + b',"n":NaN}']
    load(thread, *odd, name="t")
    assert views.notes("t") == ["line 2 is not one JSON object: the entry in it was found"]


def test_a_copy_has_the_same_rows(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A session with such lines is copied as it is, and goes on there, also from a torn one."""
    lines = [*IRREGULAR["a list"], LINES[0][:50]]
    load(thread, *lines)
    for more in ((), (LINES[0] + LINES[1],)):
        load(thread, *lines, *more)
        thread.copy_to(other)
        assert export(other) == spell(*lines, *more)
        assert other.sessions.views.info("s") == thread.sessions.views.info("s")._replace(
            file=None, updated_at_ms=other.sessions.views.info("s").updated_at_ms
        )
    load(other, *lines, LINES[0] + LINES[1], says("e6", "e5"))
    assert shown(other)["s"].endswith("e6")


def test_a_session_of_another_tool(thread: eventq.Thread) -> None:
    """What is glued in a file of Pi is found too, the header among it."""
    first, second = (
        json.dumps(entry(own, above)).encode() for own, above in (("a", None), ("b", "a"))
    )
    head = json.dumps(header()).encode()
    load(thread, head + first + second, json.dumps(entry("c", "b")).encode())
    assert shown(thread) == {"s": "a b c"}
    assert thread.sessions.views.info("s").tool == "pi"
