"""Session files: their lines, the turns that these became, and the tips of branches."""

from __future__ import annotations

import json
from operator import itemgetter

from eventq.errors import UnknownTurnError
from eventq.store.blobs import ADD_BYTES
from eventq.store.rules import link
from eventq.store.session_rows import (
    Begun,
    EdgeLine,
    LineLink,
    Outline,
    SessionRow,
    StoredLine,
    Tip,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from eventq.store.copy_rows import LineCopy, SessionCopy
    from eventq.store.engine import Engine
    from eventq.store.session_rows import NewLine
    from eventq.store.turn_rows import PreparedBlob

    Spot = tuple[int, int | None, int | None]  # depth, jump and jump's depth of a turn

ENTRY = "session/entry"  # the type of a turn
_CUT = 2  # the form of a line whose images were taken out, and a flag of its turn
_PAGE = 1_000


class Sessions:
    """Session files, line by line, the turns of their entries, and the tips of their branches."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run

    # --- files ------------------------------------------------------------------------------------

    def find(self, name: str, generation: int | None = None) -> SessionRow | None:
        """Return a session by its name: a generation, or the newest."""
        sql = """
            SELECT session_id, name, generation, tool, place, size, digest, lines, settled, missing,
                owner, path, started_by
            FROM sessions
            WHERE name = ?1
                AND generation = coalesce(
                    ?2, (SELECT max(generation) FROM sessions WHERE name = ?1)
                )
        """
        rows = self._run(sql, (name, generation))
        return SessionRow(*rows[0]) if rows else None

    def of_context(self, context: int) -> SessionRow | None:
        """Return the session that a context is a tip of, the newest generation, or None."""
        sql = """
            SELECT name
            FROM session_tips
                CROSS JOIN sessions USING (session_id)
            WHERE context_id = ?
        """
        name = self._db.one(sql, (context,))
        return None if name is None else self.find(name)

    def page(self, after: int, limit: int) -> list[SessionRow]:
        """Return the next sessions, by id; 0 begins."""
        sql = """
            SELECT session_id, name, generation, tool, place, size, digest, lines, settled, missing,
                owner, path, started_by
            FROM sessions
            WHERE session_id > ?
            ORDER BY session_id
            LIMIT ?
        """
        return [SessionRow(*row) for row in self._run(sql, (after, limit))]

    def newest(self, after: str, limit: int) -> list[SessionRow]:
        """Return the next sessions by name, but for those of subagents; "" begins."""
        sql = """
            SELECT session_id, name, generation, tool, place, size, digest, lines, settled, missing,
                owner, path, started_by
            FROM sessions s
            WHERE owner IS NULL
                AND name > ?
                AND generation = (SELECT max(generation) FROM sessions o WHERE o.name = s.name)
            ORDER BY name
            LIMIT ?
        """
        return [SessionRow(*row) for row in self._run(sql, (after, limit))]

    def generations(self, name: str) -> list[int]:
        """Return the numbers of a session's generations, the oldest first."""
        sql = """
            SELECT generation
            FROM sessions
            WHERE name = ?
            ORDER BY generation
        """
        return [row[0] for row in self._run(sql, (name,))]

    def outlines(self, sessions: Sequence[int]) -> list[Outline]:
        """Return what is counted of some sessions."""
        return [*map(Outline._make, self._run(_OUTLINES, (json.dumps([*sessions]),)))]

    def edges(self, sessions: Sequence[int], most: int) -> list[EdgeLine]:
        """Return the first and the last lines of some sessions, by session and position."""
        rows = self._run(_EDGES, (json.dumps([*sessions]), most))
        return [*map(EdgeLine._make, rows)]

    def of_turn(self, turn: int) -> SessionRow | None:
        """Return the newest generation of a session that has a turn, or None."""
        sql = """
            SELECT name, max(generation)
            FROM session_lines
                CROSS JOIN sessions USING (session_id)
            WHERE turn_id = ?
            GROUP BY name
            ORDER BY min(session_id)
            LIMIT 1
        """
        rows = self._run(sql, (turn,))
        return self.find(*rows[0]) if rows else None

    def beside(self, owner: str) -> list[SessionRow]:
        """Return the sessions of the subagents in the folder of a session, the newest of each."""
        sql = """
            SELECT max(generation), name
            FROM sessions
            WHERE owner = ?
            GROUP BY name
            ORDER BY name
        """
        rows = self._run(sql, (owner,))
        return [found for number, name in rows if (found := self.find(name, number))]

    def _create(self, new: SessionRow) -> SessionRow | None:
        """Store a generation of a session, without lines; return None if it is there."""
        sql = """
            INSERT INTO sessions (
                name, generation, tool, place, digest, missing, owner, path, started_by,
                created_at_ms, updated_at_ms
            )
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
            ON CONFLICT (name, generation) DO NOTHING
            RETURNING session_id
        """
        what = (new.name, new.generation, new.tool, new.place, new.digest, new.missing)
        beside = (new.owner, new.path, new.started_by)
        made = self._run(sql, (*what, *beside, self._db.milliseconds()))
        return new._replace(session=made[0][0]) if made else None

    def move(self, session: int, place: str) -> None:
        """Note where the file of a session is now."""
        self._db.change("UPDATE sessions SET place = ? WHERE session_id = ?", (place, session))

    def keep_beside(self, row: SessionRow) -> None:
        """Note that a session is that of a subagent, as its row has it."""
        sql = """
            UPDATE sessions
            SET owner = ?, path = ?, started_by = ?
            WHERE session_id = ?
        """
        self._db.change(sql, (row.owner, row.path, row.started_by, row.session))

    def remove(self, name: str) -> int:
        """Delete all generations of a session and of its subagents; return how many lines."""
        sql = """
            SELECT count(*)
            FROM sessions s
                CROSS JOIN session_lines l ON l.session_id = s.session_id
            WHERE s.name = ?1 OR s.owner = ?1
        """
        with self._db.joined():
            lines = int(self._db.one(sql, (name,)))
            self._run("DELETE FROM sessions WHERE name = ?1 OR owner = ?1", (name,))
        return lines

    # --- lines ------------------------------------------------------------------------------------

    def grow(
        self, was: SessionRow, first: int, new: Sequence[NewLine], size: int, digest: bytes
    ) -> tuple[SessionRow, int] | None:
        """Store lines and their images, from a position on, in place of the lines that are there.

        Return the session as it is now, and how many images are new. `size` and `digest` are those
        of the file up to its last newline. A session that was not there is made with its first
        lines; one that `was` without lines is read again, perhaps by another reader, and those that
        there are stay until they are replaced. Changes nothing and returns None when the session is
        not as it `was`.
        """
        with self._db.joined():
            made = was if was.session else self._create(was)
            if made is None:
                return None
            session = made.session
            if was.session and not was.lines:
                self._run(_BEGIN_AGAIN, (was.tool, was.digest, was.missing, session))
            now = self._db.milliseconds()
            done = (size, digest, first + len(new), now)
            grown = (*done, session, was.size, was.lines)
            if not self._run(_GROWN, grown):
                return None
            if was.session:
                self._db.usage.again(session, first)
            end = first + len(new)
            images = [image for line in new for image in line.images]
            added = sum(self._db.blobs.keep(image, now)[1] for image in images)
            blobs = self._kept([line.blob for line in new], now)
            rows = [
                (session, first + n, blob_id, *line[1:10])
                for n, (blob_id, line) in enumerate(zip(blobs, new, strict=True))
            ]
            self._db.many(_ADD, rows)
            if end < was.lines or not was.lines:  # there are lines still where it began again
                sql = "DELETE FROM session_lines WHERE session_id = ? AND position >= ?"
                self._run(sql, (session, end))
        return made._replace(size=size, digest=digest, lines=end), added

    def _kept(self, blobs: Sequence[PreparedBlob], now: int) -> list[int]:
        """Store blobs, most of them new and one piece, and return their row ids."""
        simple = {
            blob.digest: blob.pieces[0]
            for blob in blobs
            if len(blob.pieces) == 1 and not blob.parts and not blob.refs and not blob.mentions
        }
        sql = """
            SELECT hash
            FROM json_each(?)
                CROSS JOIN blobs ON hash = unhex(value)
        """
        for (known,) in self._run(sql, (json.dumps([digest.hex() for digest in simple]),)):
            del simple[known]
        ids = dict(zip(simple, self._db.new_ids("blobs", len(simple)), strict=True))
        self._db.many(
            _ADD_BLOB,
            [
                (ids[digest], digest, size, len(stored), codec, now)
                for digest, size, codec, stored in simple.values()
            ],
        )
        self._db.many(ADD_BYTES, [(ids[one.digest], one.stored) for one in simple.values()])
        keep = self._db.turns.keep
        return [ids.get(blob.digest) or keep(blob, now) for blob in blobs]

    def settle(self, session: int, position: int | None, missing: str) -> None:
        """Note from where on the tree has to be built when the file has grown; see `SessionRow`."""
        sql = "UPDATE sessions SET settled = ?, missing = ? WHERE session_id = ?"
        self._db.change(sql, (position, missing, session))

    def links(self, session: int, first: int = 0) -> Iterator[LineLink]:
        """Yield how each line is linked, with its turn and that turn's parent, in order."""
        after = first - 1
        while rows := self._run(_LINKS, (session, after, _PAGE)):
            yield from map(LineLink._make, rows)
            after = rows[-1][0]

    def node_before(self, session: int, position: int) -> int:
        """Return the position of the last entry in the tree before a line, -1 for none."""
        sql = """
            SELECT position
            FROM session_lines
            WHERE session_id = ? AND position < ? AND is_node <> 0
            ORDER BY position DESC
            LIMIT 1
        """
        found = self._db.one(sql, (session, position))
        return -1 if found is None else int(found)

    def others_before(self, session: int, position: int, limit: int) -> list[tuple[int, bytes]]:
        """Return positions and digests of lines before one that are not in the tree, backwards."""
        sql = """
            SELECT position, hash
            FROM session_lines
                CROSS JOIN blobs USING (blob_id)
            WHERE session_id = ? AND position < ? AND is_node = 0
            ORDER BY position DESC
            LIMIT ?
        """
        return self._run(sql, (session, position, limit))

    def has_any(self, session: int, before: int, ids: Iterable[str]) -> bool:
        """Return whether a line before a position has one of these ids."""
        sql = """
            SELECT 1
            FROM json_each(?)
                CROSS JOIN session_lines ON session_id = ? AND entry = value AND position < ?
            LIMIT 1
        """
        return bool(self._run(sql, (json.dumps([*ids]), session, before)))

    def lines(self, session: int, after: int, limit: int, *, without: int = 0) -> list[StoredLine]:
        """Return the next lines, by position; -1 begins. None has a flag of its kind `without`."""
        sql = """
            SELECT position, form, before, after, hash, turn_id, raw_len
            FROM session_lines
                CROSS JOIN blobs USING (blob_id)
            WHERE session_id = ? AND position > ? AND kind & ? = 0
            ORDER BY position
            LIMIT ?
        """
        return [StoredLine(*row) for row in self._run(sql, (session, after, without, limit))]

    def raw(self, session: int, after: int, limit: int) -> list[StoredLine]:
        """Return the next lines without an entry; -1 begins. None is what stands beside one."""
        sql = """
            SELECT position, form, before, after, hash, turn_id, raw_len
            FROM session_lines
                CROSS JOIN blobs USING (blob_id)
            WHERE session_id = ? AND position > ? AND form = 0 AND kind & 64 = 0
            ORDER BY position
            LIMIT ?
        """
        return [StoredLine(*row) for row in self._run(sql, (session, after, limit))]

    def counts(self, session: int, end: int) -> tuple[int, int]:
        """Return how many lines, and entries, there are before a position.

        A line without an entry is counted as one.
        """
        sql = """
            SELECT count(*),
                coalesce(sum(CASE WHEN kind & 32 <> 0 THEN 1 ELSE 0 END), 0),
                coalesce(sum(CASE WHEN kind & 64 <> 0 THEN 1 ELSE 0 END), 0)
            FROM session_lines
            WHERE session_id = ? AND position < ?
        """
        rows, more, rest = self._run(sql, (session, end))[0]
        return rows - more, rows - rest

    def unended(self, session: int, end: int, most: int) -> list[StoredLine]:
        """Return what is before a position of a line that has not ended, of at most so many."""
        last = self.lines(session, end - 2, 1) if end else []
        if not last or last[0].after.endswith(b"\n"):
            return []
        found = self.lines(session, max(end - most, 0) - 1, most)
        ended = [n for n, line in enumerate(found) if line.after.endswith(b"\n")]
        return found[ended[-1] + 1 :] if ended else found

    def entry_of(self, session: int, turn: int) -> str | None:
        """Return the id of the entry that became a turn."""
        sql = """
            SELECT entry
            FROM session_lines
            WHERE turn_id = ? AND session_id = ?
            ORDER BY position DESC
            LIMIT 1
        """
        return self._db.one(sql, (turn, session))  # type: ignore[no-any-return]

    def has_turn(self, session: int, turn: int) -> bool:
        """Return whether a line of a session became a turn."""
        sql = """
            SELECT 1
            FROM session_lines
            WHERE turn_id = ? AND session_id = ?
            LIMIT 1
        """
        return bool(self._run(sql, (turn, session)))

    def turns_like(self, session: int, begin: str, limit: int) -> list[int]:
        """Return the turns of entries whose ids begin with a text, one for each id."""
        sql = """
            SELECT max(turn_id)
            FROM session_lines
            WHERE session_id = ?1
                AND entry >= ?2
                AND entry < ?2 || char(1114111)
                AND turn_id IS NOT NULL
            GROUP BY entry
            LIMIT ?3
        """
        return [row[0] for row in self._run(sql, (session, begin, limit))]

    def turn_of(self, session: int, entry: str) -> int | None:
        """Return the turn of the last line with an id."""
        sql = """
            SELECT turn_id
            FROM session_lines
            WHERE session_id = ? AND entry = ? AND turn_id IS NOT NULL
            ORDER BY position DESC
            LIMIT 1
        """
        return self._db.one(sql, (session, entry))  # type: ignore[no-any-return]

    def begun(self, turns: Sequence[int], limit: int) -> list[Begun]:
        """Return the subagents whose first turn hangs right below one of some turns."""
        rows = self._run(_BEGUN, (json.dumps([*turns]), limit))
        return [*map(Begun._make, rows)]

    def own(self, session: int, turns: Sequence[int]) -> list[int]:
        """Return those of some turns that a session has for itself, and no subagent in it."""
        sql = """
            SELECT DISTINCT l.turn_id
            FROM json_each(?)
                CROSS JOIN session_lines l ON l.turn_id = CAST(value AS INTEGER)
            WHERE session_id = ? AND agent IS NULL
        """
        return [row[0] for row in self._run(sql, (json.dumps([*turns]), session))]

    def first_turn(self, session: int) -> int:
        """Return the turn of the first line of a session that has one, 0 for none."""
        sql = """
            SELECT turn_id
            FROM session_lines
            WHERE session_id = ? AND turn_id IS NOT NULL
            ORDER BY position
            LIMIT 1
        """
        return self._db.one(sql, (session,)) or 0

    # --- turns ------------------------------------------------------------------------------------

    def place(
        self,
        session: int,
        nodes: Sequence[tuple[int, int, int | None]],
        base: int,
    ) -> list[int]:
        """Make a turn of each line, under that of another line, which has one by then.

        A line below none, -1, is put under the turn `base`, 0 for none. Return the turns. A line
        that has another turn than the one given keeps it: somebody else was quicker. A turn that is
        there with this parent and payload is taken, be it of another session: a fork begins with
        the same. Raises UnknownTurnError for a line that is not there, or has none above it.
        """
        with self._db.joined():
            placing = _Placing(self._db, session, nodes, base)
            made = [placing.turn(*node) for node in nodes]
            placing.store()
        return made

    def take_over(self, session: int, placed: Iterable[tuple[int, int]]) -> None:
        """Note that turns of another session are those of lines, by position, if they are here."""
        some = [*placed]
        positions = json.dumps([position for _, position in some])
        with self._db.joined():
            was = self._run(_LINES, (positions, session))
            self._db.many(_TAKEN_OVER, _spans(session, some))
            now = {row[0]: row[3] for row in self._run(_LINES, (positions, session))}
            pairs = [(now[row[0]], row[3]) for row in was if row[3] is not None]
            self._db.usage.follow(session, [(new, old) for new, old in pairs if new != old])

    def restore(self, new: SessionCopy, lines: Sequence[LineCopy], over: int | None) -> int:
        """Store a session with lines whose blobs and turns are here; return its id.

        It comes in place of the session `over`, of the same name and generation, if there is one.
        """
        sql = """
            INSERT INTO sessions (
                session_id, name, generation, tool, size, digest, owner, path, started_by, lines,
                created_at_ms, updated_at_ms
            )
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)
            ON CONFLICT (session_id) DO UPDATE SET
                size = excluded.size,
                digest = excluded.digest,
                lines = excluded.lines,
                updated_at_ms = excluded.updated_at_ms
            RETURNING session_id
        """
        with self._db.joined():
            now = self._db.milliseconds()
            wanted = over or self._db.new_ids("sessions", 1).start
            session = int(self._run(sql, (wanted, *new[1:], len(lines), now))[0][0])
            self._run("DELETE FROM session_lines WHERE session_id = ?", (session,))
            rows = [(session, *line[1:12], line.turn or None) for line in lines]
            if self._db.many(_ADD_COPY, rows) != len(rows):
                for line in lines:
                    self._db.blobs.row_id(line.digest)
        return session

    # --- tips -------------------------------------------------------------------------------------

    def tips(self, name: str) -> list[Tip]:
        """Return the tips of a session, of all generations."""
        sql = """
            SELECT t.context_id, c.name, t.session_id, t.turn_id,
                (
                    SELECT min(position)
                    FROM session_lines l
                    WHERE l.turn_id = t.turn_id AND l.session_id = t.session_id
                )
            FROM sessions s
                CROSS JOIN session_tips t ON t.session_id = s.session_id
                CROSS JOIN contexts c ON c.context_id = t.context_id
            WHERE s.name = ?
            ORDER BY t.context_id
        """
        return [Tip(*row) for row in self._run(sql, (name,))]

    def set_tip(self, context: int, session: int, turn: int | None = None) -> None:
        """Note that an import has left a context at a turn, by default at its head.

        It is the tip of a branch of a session.
        """
        sql = """
            INSERT INTO session_tips (context_id, session_id, turn_id)
            SELECT context_id, ?2, coalesce(?3, head_id, 0)
            FROM contexts
            WHERE context_id = ?1
            ON CONFLICT (context_id) DO UPDATE SET
                session_id = excluded.session_id,
                turn_id = excluded.turn_id
            WHERE session_tips.session_id <> excluded.session_id
                OR session_tips.turn_id <> excluded.turn_id
        """
        self._db.change(sql, (context, session, turn))

    def faults(self) -> list[str]:
        """Return a sentence for each session that lacks some of the lines that it counts."""
        return [row[0] for row in self._run(_LINE_FAULTS)]


class _Placing:
    """Turns that are made together, inside `write`: read once, and stored at once."""

    def __init__(
        self,
        db: Engine,
        session: int,
        nodes: Sequence[tuple[int, int, int | None]],
        base: int,
    ) -> None:
        """Read the lines of the nodes, and those that they hang under."""
        self._db = db
        self._session = session
        self._base = base
        self._now = db.milliseconds()
        positions = json.dumps([*{n for node in nodes for n in node[:2] if n >= 0}])
        rows = db.run(_LINES, (positions, session))
        self._lines: dict[int, tuple[int, int, int | None]] = {row[0]: row[1:] for row in rows}
        self._first = self._next = db.new_ids("turns", 0).start
        self._spots: dict[int, Spot] = {}
        self._turns: list[tuple[Any, ...]] = []
        self._placed: list[tuple[int, int]] = []
        self._moved: list[tuple[int, int]] = []  # the turns of lines, now and before

    def turn(self, position: int, above: int, was: int | None) -> int:
        """Return the turn of a line under that of another, or the one that somebody else made."""
        if position not in self._lines:  # the session is not here any longer
            raise UnknownTurnError(0)
        blob_id, form, has = self._lines[position]
        if has is not None and has != was:
            return has
        parent = self._lines[above][2] if above >= 0 else self._base
        if parent is None:
            raise UnknownTurnError(0)
        is_here = parent < self._first
        turn = (self._alike(parent, blob_id) if is_here else None) or self._add(
            parent, blob_id, form
        )
        self._lines[position] = (blob_id, form, turn)
        if has is not None and has != turn:
            self._moved.append((turn, has))
        self._placed.append((turn, position))
        return turn

    def store(self) -> None:
        """Store the turns, and whose they are."""
        # Only now: of the nodes, some may have been there, and no id is left out.
        self._db.new_ids("turns", len(self._turns))
        self._db.many(_TURN, self._turns)
        if causes := self._db.stated_causes():
            self._db.causes.note_turns([turn for turn, *_ in self._turns], causes)
        self._db.many(_PLACED, _spans(self._session, self._placed))
        if self._moved:
            self._db.usage.follow(self._session, self._moved)

    def _alike(self, parent: int, blob_id: int) -> int | None:
        sql = """
            SELECT min(turn_id)
            FROM turns
            WHERE parent_id IS ? AND blob_id = ? AND type_id = ?
        """
        turn: int | None = self._db.one(sql, (parent or None, blob_id, ENTRY))
        return turn

    def _add(self, parent: int, blob_id: int, form: int) -> int:
        turn, self._next = self._next, self._next + 1
        spot = self._spots[turn] = link(parent, self._above(parent))
        self._turns.append((turn, parent or None, *spot, ENTRY, blob_id, form & _CUT, self._now))
        return turn

    def _above(self, turn: int) -> tuple[Any, ...]:
        """Return what the link of a child follows from; see `rules.link`."""
        if not turn:
            return ()
        depth, jump, jump_depth = self._spot(turn)
        far = self._spot(jump)[1:] if jump is not None else (None, None)
        return depth, jump_depth, *far

    def _spot(self, turn: int) -> Spot:
        if turn not in self._spots:
            sql = "SELECT depth, jump_id, jump_depth FROM turns WHERE turn_id = ?"
            self._spots[turn] = self._db.run(sql, (turn,))[0]
        return self._spots[turn]


def _spans(session: int, placed: Iterable[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Return how far turns are from their lines' positions: a file is mostly one conversation.

    A span is that, the session, and the first and last position.
    """
    spans: list[tuple[int, int, int, int]] = []
    for turn, position in sorted(placed, key=itemgetter(1)):
        off, first = turn - position, position
        if spans and spans[-1][0] == off and spans[-1][3] == position - 1:
            first = spans.pop()[2]
        spans.append((off, session, first, position))
    return spans


_ADD_BLOB = """
INSERT INTO blobs (blob_id, hash, raw_len, stored_len, codec, part, touched_at_ms)
VALUES (?, ?, ?, ?, ?, 0, ?)
"""
# A line that reads otherwise than before has no turn any more.
_ADD = """
INSERT INTO session_lines (
    session_id, position, blob_id, form, before, after, is_node, entry, parent, kind, response,
    agent
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id, position) DO UPDATE SET
    blob_id = excluded.blob_id,
    form = excluded.form,
    before = excluded.before,
    after = excluded.after,
    is_node = excluded.is_node,
    entry = excluded.entry,
    parent = excluded.parent,
    kind = excluded.kind,
    response = excluded.response,
    agent = excluded.agent,
    turn_id = CASE
        WHEN session_lines.blob_id = excluded.blob_id THEN session_lines.turn_id
    END
"""
_ADD_COPY = """
INSERT INTO session_lines (
    session_id, position, blob_id, form, before, after, is_node, entry, parent, kind, response,
    agent, turn_id
)
SELECT ?1, ?2, blob_id, ?4, ?5, ?6, ?7, CAST(?8 AS TEXT), CAST(?9 AS TEXT), ?10, CAST(?11 AS TEXT),
    CAST(?12 AS TEXT), CAST(?13 AS INTEGER)
FROM blobs
WHERE hash = ?3 AND part = 0
"""
_BEGIN_AGAIN = """
UPDATE sessions
SET tool = ?, size = 0, digest = ?, lines = 0, settled = NULL, missing = ?
WHERE session_id = ?
"""
_GROWN = """
UPDATE sessions
SET size = ?, digest = ?, lines = ?, updated_at_ms = ?
WHERE session_id = ? AND size = ? AND lines = ?
RETURNING 1
"""
_LINKS = """
SELECT position, is_node, entry, parent, kind, response, agent, l.turn_id, coalesce(parent_id, 0),
    form
FROM session_lines l
    LEFT JOIN turns t ON t.turn_id = l.turn_id
WHERE session_id = ? AND position > ?
ORDER BY position
LIMIT ?
"""
_TURN = """
INSERT INTO turns (
    turn_id, parent_id, depth, jump_id, jump_depth, type_id, type_version, encoding, blob_id, flags,
    created_at_ms
)
VALUES (?, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?)
"""
_LINES = """
SELECT position, blob_id, form, turn_id
FROM json_each(?)
    CROSS JOIN session_lines ON session_id = ? AND position = CAST(value AS INTEGER)
"""
_PLACED = """
UPDATE session_lines
SET turn_id = position + CAST(? AS INTEGER)
WHERE session_id = ? AND position >= ? AND position <= ?
"""
_TAKEN_OVER = """
UPDATE session_lines
SET turn_id = position + CAST(?1 AS INTEGER)
WHERE session_id = ?2
    AND position >= ?3
    AND position <= ?4
    AND EXISTS (SELECT 1 FROM turns t WHERE t.turn_id = position + CAST(?1 AS INTEGER))
"""
# Parts of lines are counted by a scan, of 2,000,000 lines in 0.2 s, from a cold disk in 1.5 s. An
# index of the few that there are would have to be looked at by each line of an import.
_OUTLINES = """
SELECT session_id, updated_at_ms,
    lines - (
        SELECT count(*)
        FROM session_lines l
        WHERE l.session_id = s.session_id AND position < s.lines AND kind & 32 <> 0
    ),
    (
        SELECT count(*)
        FROM sessions o
            CROSS JOIN session_tips t ON t.session_id = o.session_id
        WHERE o.name = s.name
    ),
    (SELECT count(DISTINCT b.name) FROM sessions b WHERE b.owner = s.name),
    coalesce(
        (
            SELECT depth + 1
            FROM contexts c
                CROSS JOIN turns ON turn_id = head_id
            WHERE c.name = s.name
        ),
        0
    )
FROM json_each(?)
    CROSS JOIN sessions s ON session_id = CAST(value AS INTEGER)
"""
_EDGES = """
SELECT l.session_id, position, form, kind, hash, raw_len
FROM json_each(?1)
    CROSS JOIN session_lines l ON l.session_id = CAST(value AS INTEGER) AND position < ?2
    CROSS JOIN blobs b ON b.blob_id = l.blob_id
UNION ALL
SELECT l.session_id, position, form, kind, hash, raw_len
FROM json_each(?1)
    CROSS JOIN sessions s ON s.session_id = CAST(value AS INTEGER)
    CROSS JOIN session_lines l ON l.session_id = s.session_id AND position >= s.lines - ?2
    CROSS JOIN blobs b ON b.blob_id = l.blob_id
WHERE position >= ?2
ORDER BY 1, 2
"""
# A line of a subagent, below one that is of another, or of none, or of another file.
_BEGUN = """
SELECT DISTINCT t.parent_id, l.turn_id, s.name, s.owner, l.agent, l.entry
FROM json_each(?1)
    CROSS JOIN turns t ON t.parent_id = CAST(value AS INTEGER)
    CROSS JOIN session_lines l ON l.turn_id = t.turn_id
    CROSS JOIN sessions s ON s.session_id = l.session_id
WHERE (l.agent IS NOT NULL OR s.owner IS NOT NULL)
    AND NOT EXISTS (
        SELECT 1
        FROM session_lines p
        WHERE p.turn_id = t.parent_id
            AND p.session_id = l.session_id
            AND (p.agent = l.agent OR (p.agent IS NULL AND l.agent IS NULL))
    )
ORDER BY l.turn_id
LIMIT ?2
"""
_LINE_FAULTS = """
SELECT 'session ' || name || ' counts ' || lines || ' lines, but has ' || count(position)
FROM sessions
    LEFT JOIN session_lines USING (session_id)
GROUP BY session_id, name, lines
HAVING lines > count(position)
LIMIT 20
"""
