"""The contract of `eventq.storage.base.Sessions` on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eventq.errors import UnknownTurnError
from eventq.storage.copied import LineCopy, SessionCopy
from eventq.storage.session_rows import NewLine, SessionRow

if TYPE_CHECKING:
    from collections.abc import Callable

    import eventq
    from eventq.storage.base import Sessions
    from eventq.storage.sqlite.database import Database

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
EMPTY = b"\0" * 32


@pytest.fixture
def sessions(database: Database) -> Sessions:
    """Return the area."""
    return database.sessions


@pytest.fixture
def line(opened: eventq.Thread) -> Callable[..., NewLine]:
    """Return what makes a line with an id, under that of another."""

    def made(own: str | None, parent: str | None = None, *, after: bytes = b"\n") -> NewLine:
        blob = opened.blobs.prepare(b'{"id": "%s"}' % str(own).encode()).blob
        return NewLine(blob, 1, b"", after, own is not None, own, parent, 1, None, None, [])

    return made


def create(sessions: Sessions, name: str = "s", generation: int = 1) -> SessionRow:
    """Return a session that was not there."""
    made = sessions.create(name, generation, "pi", "/a.jsonl", EMPTY)
    assert made is not None
    return made


def grow(
    sessions: Sessions, row: SessionRow, *new: NewLine, first: int | None = None
) -> SessionRow:
    """Return a session with more lines; they count ten bytes each."""
    first = row.lines if first is None else first
    found = sessions.grow(row, first, new, 10 * (first + len(new)), EMPTY)
    assert found is not None
    return found[0]


def test_generations_of_a_name(sessions: Sessions, second: Database) -> None:
    """Each is made once; the newest is found by the name, and all by their numbers."""
    assert sessions.find("s") is None
    first = create(sessions)
    assert second.sessions.create("s", 1, "pi", None, EMPTY) is None
    last = create(sessions, generation=7)
    create(sessions, "é 'x\"")
    assert (sessions.find("s"), sessions.find("s", 1)) == (last, first)
    assert sessions.find("s", 2) is None
    assert sessions.generations("s") == [1, 7]
    assert sessions.generations("t") == []
    assert [one.name for one in sessions.page(0, 9)] == ["s", "s", "é 'x\""]
    assert sessions.page(first.session, 1) == [last]
    assert (sessions.newest("", 1), sessions.newest("s", 9)) == (["s"], ["é 'x\""])


def test_sessions_of_subagents(sessions: Sessions) -> None:
    """They are listed with their owner, the newest of each, and not by themselves."""
    create(sessions)
    for generation in (1, 2):
        row = create(sessions, "s/agent-x", generation)
        sessions.keep_beside(row.session, "s", "x.jsonl", "e1")
    known = row._replace(owner="s", path="x.jsonl", started_by="e1")
    assert sessions.beside("s") == [known]
    assert sessions.beside("s/agent-x") == []
    assert sessions.newest("", 9) == ["s"]


def test_lines_of_a_session_that_grows(
    sessions: Sessions, second: Database, line: Callable[..., NewLine]
) -> None:
    """They replace those from their position on, unless somebody else was quicker."""
    old = create(sessions)
    row = grow(sessions, old, line("a"), line("b", "a"), line("c", "b", after=b""))
    assert second.sessions.grow(old, 0, [line("z")], 10, EMPTY) is None
    assert sessions.find("s") == row
    row = grow(sessions, row, line("d", "a"), first=2)
    assert [one[2:4] for one in sessions.links(row.session)] == [
        ("a", None), ("b", "a"), ("d", "a"),
    ]  # fmt: skip
    row = grow(sessions, row, first=1)
    assert (row.lines, [one.position for one in sessions.lines(row.session, -1, 9)]) == (1, [0])
    assert sessions.has_any(row.session, 1, ["x", "a"])
    assert not sessions.has_any(row.session, 0, ["a"])
    assert not sessions.has_any(row.session, 1, [])


def test_a_session_that_begins_again(sessions: Sessions, line: Callable[..., NewLine]) -> None:
    """Its lines stay until there are others, and none of them stays behind these."""
    row = grow(sessions, create(sessions), line("a"), line("b", "a"), line("c", "b"))
    sessions.settle(row.session, 1, "[]")
    sessions.begin_again(row.session, "claude", EMPTY)
    again = sessions.find("s")
    assert again == row._replace(tool="claude", size=0, lines=0, settled=None, missing=None)
    assert len(sessions.lines(row.session, -1, 9)) == 3
    grow(sessions, again, line("x"))
    assert [one[2] for one in sessions.links(row.session)] == ["x"]


def test_turns_of_lines(
    sessions: Sessions, opened: eventq.Thread, line: Callable[..., NewLine]
) -> None:
    """Each is under that of another line; an equal one is taken if there is any."""
    row = grow(sessions, create(sessions), line("aa"), line("ab", "aa"), line(None), line("ab"))
    with opened.database.write():
        made = sessions.place(row.session, [(0, -1, None), (1, 0, None)], base=0, known=False)
    assert [opened.contexts.turn(one).parent_turn_id for one in made] == [0, made[0]]
    assert (sessions.turn_of(row.session, "ab"), sessions.entry_of(row.session, made[1])) == (
        made[1], "ab",
    )  # fmt: skip
    assert sessions.turn_of(row.session, "zz") is None
    assert sessions.entry_of(row.session, 99) is None
    assert (sessions.has_turn(row.session, made[0]), sessions.has_turn(row.session, 99)) == (
        True, False,
    )  # fmt: skip
    assert sessions.turns_like(row.session, "a", 9) == made
    assert sessions.turns_like(row.session, "a", 1) == made[:1]
    assert sessions.of_turn(made[0]) == row
    assert sessions.of_turn(99) is None
    with opened.database.write():
        nodes = [(0, -1, None), (3, 0, None)]
        assert sessions.place(row.session, nodes, base=0, known=True) == made
    for missing in ((9, -1, None), (3, 2, made[1])):
        with pytest.raises(UnknownTurnError), opened.database.write():
            sessions.place(row.session, [missing], base=0, known=False)


def test_tips_of_all_generations(sessions: Sessions, opened: eventq.Thread) -> None:
    """They know where an import has left them, until their contexts are deleted."""
    first, last = create(sessions), create(sessions, generation=2)
    one, other = opened.contexts.create("s"), opened.contexts.create("s/x")
    turn = one.append("hello").turn_id
    sessions.set_tip(one.id, first.session)
    sessions.set_tip(one.id, last.session)
    sessions.set_tip(other.id, first.session, turn)
    assert [tip[:4] for tip in sessions.tips("s")] == [
        (one.id, "s", last.session, turn), (other.id, "s/x", first.session, turn),
    ]  # fmt: skip
    assert sessions.of_context(other.id) == last
    other.delete()
    assert [tip.context for tip in sessions.tips("s")] == [one.id]
    assert (sessions.of_context(other.id), sessions.tips("t")) == (None, [])


def test_a_session_that_comes_from_elsewhere(
    sessions: Sessions, opened: eventq.Thread, line: Callable[..., NewLine]
) -> None:
    """It is another one, or comes in place of one, with all its lines."""
    digest = bytes.fromhex(opened.blobs.put(b"{}").hash)
    new = SessionCopy(5, "s", 1, "pi", 3, digest, None, None, None)
    rows = [
        LineCopy(5, n, digest, 1, b"", b"\n", 1, f"e{n}", None, 1, None, None, 0) for n in (0, 1)
    ]
    made = sessions.restore(new, rows[:1], None)
    assert sessions.restore(new, rows, made) == made
    found = sessions.find("s")
    assert found is not None
    assert (found.session, found.size, found.digest, found.lines) == (made, 3, digest, 2)
    assert [one.digest for one in sessions.lines(made, -1, 9)] == [digest] * 2
    assert grow(sessions, found, line("a")).lines == 3
