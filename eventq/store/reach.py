"""What turns, blobs, sessions and scopes lead to, found in Python over pages of ids.

A temporary table would do it in one statement, but a connection that only reads or that a pooler
lends has none. What is known takes a few bits an id, as those of a thread are dense.
"""

from __future__ import annotations

from array import array
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.store.engine import Engine, Row

    Run = Callable[[str, Row], list[Row]]

PAGE = 1_000  # ids that a statement is given, and rows of a page
ROWS = 10_000  # that a statement gives at once, but for what a single id leads to
MANY = (1 << 63) - 2
FIRST = (-1 << 63,)  # the key before the first row, of those that are one number
ALL = ((-1, MANY),)  # the span of all scopes and sessions
_BITS = 9  # of an id that say which bit of a word it is
_MASK = (1 << _BITS) - 1

# From turns to their ancestors, ?2 steps.
_PARENTS = """
WITH RECURSIVE found (id, step) AS (
    SELECT CAST(value AS INTEGER), 0
    FROM json_each(?1)
    UNION ALL
    SELECT parent_id, step + 1
    FROM found
        CROSS JOIN turns ON turn_id = id
    WHERE step < ?2 AND parent_id IS NOT NULL
)
SELECT id, step
FROM found
WHERE step > 0
LIMIT ?3
"""
# From blobs to those that they refer to.
_REFS = """
WITH RECURSIVE found (id, step) AS (
    SELECT CAST(value AS INTEGER), 0
    FROM json_each(?1)
    UNION
    SELECT ref_id, step + 1
    FROM found
        CROSS JOIN blob_refs ON blob_id = id
    WHERE step < ?2
)
SELECT id, step
FROM found
WHERE step > 0
LIMIT ?3
"""
_PARTS = """
SELECT p.part_id
FROM json_each(?1)
    CROSS JOIN blob_parts p ON p.blob_id = CAST(value AS INTEGER)
LIMIT ?2
"""
# Payloads, patches, attempts and file-tree roots.
_OF_TURNS = """
SELECT t.blob_id
FROM json_each(?1)
    CROSS JOIN turns t ON t.turn_id = CAST(value AS INTEGER)
UNION ALL
SELECT p.blob_id
FROM json_each(?1)
    CROSS JOIN turn_patches p ON p.turn_id = CAST(value AS INTEGER)
WHERE p.blob_id IS NOT NULL
UNION ALL
SELECT a.blob_id
FROM json_each(?1)
    CROSS JOIN run_attempts a ON a.parent_id = CAST(value AS INTEGER)
UNION ALL
SELECT b.blob_id
FROM json_each(?1)
    CROSS JOIN turn_roots r ON r.turn_id = CAST(value AS INTEGER)
    CROSS JOIN blobs b ON b.hash = r.root
LIMIT ?2
"""
_LINES = """
SELECT session_id, position, turn_id, blob_id
FROM session_lines
WHERE (session_id, position) > (?1, ?2) AND session_id <= ?3
ORDER BY session_id, position
LIMIT ?4
"""
_OUTPUTS = """
SELECT scope_id, output_id, version, blob_id
FROM agent_outputs
WHERE (scope_id, output_id, version) > (?1, ?2, ?3) AND scope_id <= ?4
ORDER BY scope_id, output_id, version
LIMIT ?5
"""
_FILES = """
SELECT scope_id, path, blob_id
FROM files
WHERE (scope_id, path) > (?1, ?2) AND scope_id <= ?3 AND blob_id IS NOT NULL
ORDER BY scope_id, path
LIMIT ?4
"""
_DIGESTS = """
SELECT b.hash
FROM json_each(?1)
    CROSS JOIN blobs b ON b.blob_id = CAST(value AS INTEGER)
WHERE b.part = 0
LIMIT ?2
"""


def every(key: str, table: str, condition: str = "") -> str:
    """Return the statement for a page of the ids in a table, some several times."""
    more = condition and f"AND {condition} "
    return f"SELECT {key} FROM {table} WHERE {key} > ? {more}ORDER BY {key} LIMIT ?"  # noqa: S608 (constants)


class Ids:
    """A set of ids."""

    def __init__(self) -> None:
        """Begin with none."""
        self._words: dict[int, int] = {}

    def __contains__(self, one: int) -> bool:
        """Return whether an id is in the set."""
        return self._words.get(one >> _BITS, 0) >> (one & _MASK) & 1 == 1

    def add(self, ids: Iterable[int]) -> list[int]:
        """Add ids; return those that are new."""
        words, new = self._words, []
        get = words.get
        for one in ids:
            word, bit = get(one >> _BITS, 0), 1 << (one & _MASK)
            if not word & bit:
                words[one >> _BITS] = word | bit
                new.append(one)
        return new

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield first and last of the ids that follow one another, in order."""
        first = 0
        for one in self:
            if one - 1 not in self:
                first = one
            if one + 1 not in self:
                yield first, one

    def __iter__(self) -> Iterator[int]:
        """Yield the ids in order."""
        for at in sorted(self._words):
            word = self._words[at]
            while word:
                bit = word & -word
                word ^= bit
                yield at << _BITS | bit.bit_length() - 1


class Reach:
    """Turns and blobs, with all that they lead to."""

    def __init__(self, db: Engine, *, parts: bool) -> None:
        """Begin with nothing; with `parts`, a blob leads to those that it consists of."""
        self._run = db.run
        self._parts = parts
        self.turns, self.blobs = Ids(), Ids()

    def add_turns(self, ids: Iterable[int | None]) -> None:
        """Add turns, their ancestors, and the blobs of these; None is no turn."""
        for new in self._walk(_PARENTS, self.turns, [one for one in ids if one is not None]):
            for rows in found(self._run, _OF_TURNS, new):
                self.add_blobs([blob for (blob,) in rows])

    def add_blobs(self, ids: Sequence[int]) -> array[int]:
        """Add blobs and those that they lead to; return what was not there."""
        added = array("q")
        while ids:
            parts = array("q")
            for new in self._walk(_REFS, self.blobs, ids):
                added.extend(new)
                for rows in found(self._run, _PARTS, new) if self._parts else ():
                    parts.extend([part for (part,) in rows if part not in self.blobs])
            ids = parts
        return added

    def add_sessions(self, spans: Iterable[tuple[int, int]]) -> None:
        """Add the turns and blobs of the lines of sessions, from first to last of each span."""
        for first, last in spans:
            for rows in pages(self._run, _LINES, (first, -1), last):
                self.add_turns([row[2] for row in rows])
                self.add_blobs([row[3] for row in rows])

    def add_scopes(self, spans: Iterable[tuple[int, int]]) -> None:
        """Add the blobs of the outputs and files in scopes, from first to last of each span."""
        for first, last in spans:
            for sql, key in ((_OUTPUTS, (first, "", 0)), (_FILES, (first, ""))):
                for rows in pages(self._run, sql, key, last):
                    self.add_blobs([row[-1] for row in rows])

    def digests(self, blobs: Iterable[int]) -> list[bytes]:
        """Return the digests of blobs by their ids, in any order; parts are left out."""
        return [digest for rows in found(self._run, _DIGESTS, blobs) for (digest,) in rows]

    def _walk(self, sql: str, known: Ids, ids: Iterable[int]) -> Iterator[list[int]]:
        """Yield what was not known of ids and of what they lead to, in pieces.

        A statement goes as many steps as give few rows: so neither a chain nor what leads to much
        takes many of them, or much memory.
        """
        new = known.add(ids)
        todo, size, steps = array("q", new), PAGE, 1
        while new:
            yield new
            new = []
            while todo and not new:
                some = todo[-size:].tolist()
                is_least = len(some) * steps == 1
                rows = self._run(sql, (str(some), steps, MANY if is_least else ROWS))
                if len(rows) == ROWS and not is_least:
                    size, steps = (size, 1) if steps > 1 else (len(some) // 2, 1)
                    continue
                del todo[-size:]
                passed = {one for one, step in rows if step < steps}
                new = known.add([one for one, _ in rows])
                todo.extend([one for one in new if one not in passed])
                if 4 * len(rows) < ROWS:
                    size, steps = min(2 * size, PAGE), min(2 * steps, ROWS)


def found(run: Run, sql: str, ids: Iterable[int]) -> Iterator[list[Row]]:
    """Yield the rows of a statement whose parameters are a list of ids and a limit, in pieces."""
    left, size = iter(ids), PAGE
    some: list[int] = []
    while some := some or [*islice(left, PAGE)]:
        size = min(size, len(some))
        rows = run(sql, (str(some[:size]), ROWS if size > 1 else MANY))
        if len(rows) == ROWS and size > 1:
            size //= 2
        else:
            del some[:size]
            yield rows


def pages(run: Run, sql: str, after: Row, *given: Any) -> Iterator[list[Row]]:
    """Yield the rows of a statement in pages.

    Its parameters are a key to go on after, which is what its rows begin with, what is given, and a
    limit.
    """
    while rows := run(sql, (*after, *given, PAGE)):
        yield rows
        if len(rows) < PAGE:
            return
        after = rows[-1][: len(after)]
