"""Usage: the tokens that responses of models took, one row each, and sums of them.

A row stands at the first turn of a response, and goes with it. It counts for the session, or the
context or run, that it was written to first: what a fork shares with its source counts there.
"""

from __future__ import annotations

import json

from blake3 import blake3

from eventq.store.usage_rows import Appended, UsageCopy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.records.spent import Spent
    from eventq.store.engine import Engine
    from eventq.store.usage_rows import Figure

    Sums = list[tuple[str, int, int, int, int]]  # model, out, fresh, cached, responses

# A setting while turns of before are looked at: context and version of the last one that was, and
# the last turn of before.
LOOKED = "usage.looked"

_ADD = """
INSERT INTO usage (
    turn_id, response, session_id, context_id, agent, at_ms, model, out, fresh, cached
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_GROW = """
UPDATE usage
SET out = ?, fresh = ?, cached = ?
WHERE turn_id = ? AND response = ?
"""
_GROW_TO = """
UPDATE usage
SET out = ?1, fresh = ?2, cached = ?3
WHERE turn_id = ?4 AND response = ?5 AND out <= ?1 AND fresh <= ?2 AND cached <= ?3
"""
# What came with a copy of a part, whose owner comes later.
_ADOPT = """
UPDATE usage
SET session_id = ?, context_id = ?
WHERE turn_id = ? AND response = ? AND session_id IS NULL AND context_id IS NULL
"""
# When a line has another turn than before, its row goes to that, unless it is another session's,
# where it counts.
_LEAVE = """
DELETE FROM usage
WHERE turn_id = ?2
    AND session_id = ?3
    AND EXISTS (
        SELECT 1
        FROM usage o
        WHERE o.turn_id = CAST(?1 AS INTEGER)
            AND (o.session_id IS NULL OR o.session_id <> ?3)
    )
"""
_FOLLOW = """
UPDATE usage
SET turn_id = CAST(?1 AS INTEGER)
WHERE turn_id = ?2
    AND session_id = ?3
    AND NOT EXISTS (
        SELECT 1
        FROM usage o
        WHERE o.turn_id = CAST(?1 AS INTEGER) AND o.response = usage.response
    )
"""
_TURNS = """
SELECT position, l.turn_id, t.created_at_ms
FROM json_each(?)
    CROSS JOIN session_lines l ON session_id = ? AND position = CAST(value AS INTEGER)
    CROSS JOIN turns t ON t.turn_id = l.turn_id
WHERE NOT EXISTS (
    SELECT 1
    FROM erasures
    WHERE kind = 'turn' AND name = CAST(l.turn_id AS TEXT)
)
"""
_KNOWN = """
SELECT response, turn_id, out, fresh, cached
FROM json_each(?)
    CROSS JOIN usage u ON u.response = CAST(value AS INTEGER)
WHERE u.response <> 0 AND session_id IS NOT NULL
"""
_TAKEN = """
SELECT turn_id, coalesce(session_id, context_id)
FROM json_each(?)
    CROSS JOIN usage u ON u.turn_id = CAST(value AS INTEGER)
WHERE session_id IS NULL OR session_id <> ?
"""
_ERASED = """
SELECT CAST(name AS INTEGER)
FROM json_each(?)
    CROSS JOIN erasures e ON kind = 'turn' AND name = CAST(value AS TEXT)
"""
_OF_CONTEXT = """
SELECT turn_id, out, fresh, cached
FROM usage
WHERE response = ? AND response <> 0 AND context_id = ?
"""
_READ = """
INSERT INTO usage_read (session_id, lines)
VALUES (?, ?)
ON CONFLICT (session_id) DO UPDATE SET
    lines = CASE
        WHEN excluded.lines > usage_read.lines THEN excluded.lines
        ELSE usage_read.lines
    END
"""
_APPENDED = """
SELECT l.context_id, l.version, t.turn_id, t.type_id, t.created_at_ms, b.hash
FROM context_log l
    CROSS JOIN turns t ON t.turn_id = l.new_id
    CROSS JOIN blobs b ON b.blob_id = t.blob_id
WHERE (l.context_id, l.version) > (?, ?)
    AND op = 'append'
    AND t.turn_id <= ?
    AND NOT EXISTS (
        SELECT 1
        FROM erasures
        WHERE kind = 'turn' AND name = CAST(t.turn_id AS TEXT)
    )
ORDER BY l.context_id, l.version
LIMIT ?
"""
_BEHIND = """
SELECT s.session_id, coalesce(r.lines, 0), s.lines
FROM sessions s
    LEFT JOIN usage_read r ON r.session_id = s.session_id
WHERE s.lines > coalesce(r.lines, 0)
ORDER BY s.session_id
LIMIT 1
"""
_SUM_OF_SESSION = """
SELECT agent, model, sum(out), sum(fresh), sum(cached), count(*)
FROM sessions s
    CROSS JOIN usage u ON u.session_id = s.session_id
WHERE s.name = ? AND at_ms >= ? AND at_ms < ?
GROUP BY agent, model
"""
_SUM_BESIDE = """
SELECT model, sum(out), sum(fresh), sum(cached), count(*)
FROM sessions s
    CROSS JOIN usage u ON u.session_id = s.session_id
WHERE s.owner = ? AND at_ms >= ? AND at_ms < ?
GROUP BY model
"""
_SUM_OF_CONTEXTS = """
SELECT model, sum(out), sum(fresh), sum(cached), count(*)
FROM json_each(?)
    CROSS JOIN usage u ON u.context_id = CAST(value AS INTEGER)
WHERE at_ms >= ? AND at_ms < ?
GROUP BY model
"""
_SUM = """
SELECT model, sum(out), sum(fresh), sum(cached), count(*)
FROM usage
WHERE at_ms >= ? AND at_ms < ?
GROUP BY model
"""
_BY_HOUR = """
SELECT at_ms / 3600000, sum(out), sum(fresh), sum(cached), count(*)
FROM usage
WHERE at_ms >= ? AND at_ms < ?
GROUP BY at_ms / 3600000
ORDER BY at_ms / 3600000
"""
_BY_CONTEXT = """
SELECT context_id, model, sum(out), sum(fresh), sum(cached), count(*)
FROM json_each(?)
    CROSS JOIN usage u ON u.context_id = CAST(value AS INTEGER)
GROUP BY context_id, model
"""
_BY_SESSION = """
SELECT s.name, agent, model, sum(out), sum(fresh), sum(cached), count(*)
FROM json_each(?)
    CROSS JOIN sessions s ON s.name = CAST(value AS TEXT)
    CROSS JOIN usage u ON u.session_id = s.session_id
GROUP BY s.name, agent, model
"""
_BY_OWNER = """
SELECT s.owner, 1, model, sum(out), sum(fresh), sum(cached), count(*)
FROM json_each(?)
    CROSS JOIN sessions s ON s.owner = CAST(value AS TEXT)
    CROSS JOIN usage u ON u.session_id = s.session_id
GROUP BY s.owner, model
"""
# What was appended to the branches of sessions by hand.
_BY_TIPS = """
SELECT s.name, 0, model, sum(out), sum(fresh), sum(cached), count(*)
FROM json_each(?)
    CROSS JOIN sessions s ON s.name = CAST(value AS TEXT)
    CROSS JOIN session_tips t ON t.session_id = s.session_id
    CROSS JOIN usage u ON u.context_id = t.context_id
GROUP BY s.name, model
"""


def number_of(response: str) -> int:
    """Return the number that stands for the id of a response, 0 for none."""
    if not response:
        return 0
    return int.from_bytes(blake3(response.encode(errors="replace")).digest()[:8], "big") >> 1


def _row_of(
    context: int, turn: int, spent: Spent, now: int
) -> tuple[int, int, None, int, int, int, str, int, int, int]:
    """Return the row of what a turn of a context took."""
    at = now if spent.at is None else spent.at
    response = number_of(spent.response)
    return turn, response, None, context, 0, at, spent.model, *spent[:3]


class TokenUsage:
    """The tokens of responses."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run

    # --- noting -----------------------------------------------------------------------------------

    def of_turn(self, context: int, turn: int, spent: Spent, now: int) -> None:
        """Note what a turn took that was appended to a context, inside `write`.

        Of several turns of one response in the context, the first has the row, with the most that
        is said of it.
        """
        response = number_of(spent.response)
        if known := self._known(response, context):
            first, *before = known
            self._db.later(_GROW, (*map(max, spent[:3], before), first, response))
        else:
            self._db.later(_ADD, _row_of(context, turn, spent, now))

    def as_counted(
        self, context: int, turn: int, spent: Spent, now: int, was: UsageCopy | None
    ) -> UsageCopy:
        """Return what `of_turn` would store, after that which it stored of the response before."""
        new = UsageCopy(*_row_of(context, turn, spent, now))
        if was is None and self._db.has_usage() and (known := self._known(new.response, context)):
            was = new._replace(turn=known[0], out=known[1], fresh=known[2], cached=known[3])
        return new if was is None else UsageCopy(*was[:7], *map(max, was[7:], new[7:]))

    def _known(self, response: int, context: int) -> Sequence[int]:
        """Return the turn and counts of a response in a context, if it has any."""
        rows = self._run(_OF_CONTEXT, (response, context)) if response else []
        return rows[0] if rows else ()

    def of_session(self, session: int, figures: Sequence[Figure], upto: int | None) -> None:
        """Note what lines of a session say, inside `write`, and up to where they were looked at.

        Each response is there once; a line without a turn is left out. A response that is known, of
        whatever session, counts once, with the most that is said of it; what a fork shares with its
        source counts there.
        """
        if figures:
            self._note(session, figures)
        if upto is not None:
            self._db.later(_READ, (session, upto))

    def _note(self, session: int, figures: Sequence[Figure]) -> None:
        places = json.dumps([*{one.position for one in figures}])
        turns = {row[0]: row[1:] for row in self._run(_TURNS, (places, session))}
        here = [one for one in figures if one.position in turns]
        responses = json.dumps([one.response for one in here if one.response])
        known = {row[0]: row[1:] for row in self._run(_KNOWN, (responses,))}
        ids = json.dumps([turns[one.position][0] for one in here])
        taken: dict[int, int | None] = dict(self._run(_TAKEN, (ids, session)))
        new, left = [], []
        for one in here:
            turn, made_at = turns[one.position]
            if one.response in known:
                first, *before = known[one.response]
                most = [*map(max, one[5:], before)]
                if most != before:
                    self._db.later(_GROW, (*most, first, one.response))
            elif turn not in taken:
                at = made_at if one.at is None else one.at
                about = (turn, one.response, session, None, one.agent, at)
                new.append((*about, one.model, one.out, one.fresh, one.cached))
            elif taken[turn] is None:
                left.append((session, None, turn, one.response))
        if new:
            self._db.many(_ADD, new)
        if left:
            self._db.many(_ADOPT, left)

    def take_back(self, context: int, turn: int, above: int) -> None:
        """Note that a turn of a context is one no more, inside `write`: it counts at another."""
        sql = "UPDATE usage SET turn_id = ?1 WHERE turn_id = ?2 AND context_id = ?3"
        self._db.later(sql, (above, turn, context))

    def follow(self, session: int, moved: Iterable[tuple[int, int]]) -> None:
        """Note that lines of a session have other turns, inside `write`: pairs of new and old."""
        pairs = [(new, old, session) for new, old in moved]
        if pairs:
            self._db.many(_LEAVE, pairs)
            self._db.many(_FOLLOW, pairs)

    def forget(self, turn: int) -> None:
        """Forget what a turn took that is being erased, inside `write`."""
        self._db.changed("DELETE FROM usage WHERE turn_id = ?", (turn,))

    def again(self, session: int, first: int) -> None:
        """Note that the lines of a session from a position on are others now, inside `write`."""
        sql = "UPDATE usage_read SET lines = ?1 WHERE session_id = ?2 AND lines > ?1"
        self._db.later(sql, (first, session))

    # --- what was stored before this was counted --------------------------------------------------

    def behind(self) -> tuple[int, int, int] | None:
        """Return a session whose lines are not all looked at, how many are, and its lines."""
        rows = self._run(_BEHIND) if self._db.has_usage() else []
        return rows[0] if rows else None

    def looked(self) -> tuple[int, int, int] | None:
        """Return up to where turns of before were looked at, and the last of them; None for all.

        The first two are a context and its version, as `appended` takes them.
        """
        if not self._db.has_usage():
            return 0, -1, self._db.last_id("turns")  # with which it will begin
        at = self._db.settings.get(LOOKED)
        if at is None:
            return None
        context, version, upto = map(int, at.split())
        return context, version, upto

    def look(self, last: Appended | None, upto: int) -> None:
        """Note up to where turns of before were looked at, inside `write`; None for all."""
        at = last and f"{last.context} {last.version} {upto}"
        self._db.settings.put(LOOKED, at)

    def is_behind(self) -> bool:
        """Return whether there is anything that was not looked at."""
        return self.behind() is not None or self.looked() is not None

    def appended(self, after: Sequence[int], upto: int, limit: int) -> list[Appended]:
        """Return the next turns that were appended, by context and version."""
        return [*map(Appended._make, self._run(_APPENDED, (*after, upto, limit)))]

    def read_of(self, session: int) -> int:
        """Return how many lines of a session were looked at."""
        if not self._db.has_usage():
            return 0
        sql = "SELECT lines FROM usage_read WHERE session_id = ?"
        return self._db.one(sql, (session,)) or 0

    def last_model(self, session: int) -> str:
        """Return the model of a session's newest response, "" if none is known."""
        sql = """
            SELECT model
            FROM usage
            WHERE session_id = ?
            ORDER BY turn_id DESC
            LIMIT 1
        """
        return self._db.one(sql, (session,)) or ""

    # --- sums; of a thread without these tables there is nothing --------------------------------

    def session(self, name: str, since: int, until: int) -> tuple[Sums, Sums, Sums]:
        """Return the sums of a session, of subagents in its file, and of those beside it."""
        if not self._db.has_usage():
            return [], [], []
        rows = self._run(_SUM_OF_SESSION, (name, since, until))
        beside = self._run(_SUM_BESIDE, (name, since, until))
        own, inside = ([row[1:] for row in rows if row[0] == agent] for agent in (0, 1))
        return own, inside, beside

    def contexts(self, ids: Sequence[int], since: int, until: int) -> Sums:
        """Return the sums of what was appended to some contexts."""
        if not self._db.has_usage():
            return []
        return self._run(_SUM_OF_CONTEXTS, (json.dumps([*ids]), since, until))

    def thread(self, since: int, until: int) -> Sums:
        """Return the sums of the whole thread."""
        return self._run(_SUM, (since, until)) if self._db.has_usage() else []

    def hours(self, since: int, until: int) -> list[tuple[int, int, int, int, int]]:
        """Return the sums of each hour that has any, by its number."""
        return self._run(_BY_HOUR, (since, until)) if self._db.has_usage() else []

    def by_context(self, ids: Sequence[int]) -> dict[int, Sums]:
        """Return the sums of each of some contexts that has any."""
        rows = self._run(_BY_CONTEXT, (json.dumps([*ids]),)) if self._db.has_usage() else []
        found: dict[int, Sums] = {}
        for context, *counted in rows:
            found.setdefault(context, []).append(tuple(counted))
        return found

    def by_session(self, names: Sequence[str]) -> list[tuple[str, int, str, int, int, int, int]]:
        """Return the sums of some sessions by name; what subagents took has a 1 after that."""
        if not self._db.has_usage():
            return []
        every = (json.dumps([*names]),)
        return [row for sql in (_BY_SESSION, _BY_OWNER, _BY_TIPS) for row in self._run(sql, every)]

    # --- copies -----------------------------------------------------------------------------------

    def restore(self, rows: Sequence[UsageCopy]) -> None:
        """Store the rows of a copy, inside `write`; those that are here may have grown.

        A response of a session that is known by another turn counts there, also if its own session
        has not come. What was erased here stays so.
        """
        responses = json.dumps([row.response for row in rows if row.response])
        known = {row[0]: row[1] for row in self._run(_KNOWN, (responses,))}
        erased = {row[0] for row in self._run(_ERASED, (json.dumps([row.turn for row in rows]),))}
        here = [
            row
            for row in rows
            if row.turn not in erased
            and (row.context is not None or known.get(row.response, row.turn) == row.turn)
        ]
        if self._db.many(_ADD, here) < len(here):
            self._db.many(_GROW_TO, [(*row[7:], row.turn, row.response) for row in here])
            self._db.many(_ADOPT, [(row.session, row.context, *row[:2]) for row in here])
