"""Events in SQLite: store, read, search and prune them."""

from __future__ import annotations

import os
from _functools import partial  # type: ignore[import-not-found]  # the package takes 2 ms

import apsw

from eventq.errors import DamagedError, InputError
from eventq.records.checks import REF, refs_in
from eventq.records.event import (
    NOTED,
    Appended,
    Bounds,
    Commit,
    Event,
    EventPage,
    LinePage,
    NewEvent,
    Tally,
    may_answer,
)
from eventq.store.question_rules import KEYS_SEEN
from eventq.store.sqlite.migrate import CURRENT, DERIVED, QUESTIONS
from eventq.store.sqlite.values import is_utf8, name_of
from eventq.system import clock

try:
    from _json import encode_basestring as quote  # the C function: the package takes 8 ms to import
except ImportError:  # pragma: no cover (an interpreter without the C module)
    from json.encoder import encode_basestring as quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.store.sqlite.database import Database

    Restored = tuple[int, str, NewEvent]  # id, time, and what was pushed
    Refs = Mapping[int, Collection[bytes]]

# ruff: noqa: S608 (the parts are constants)

PAGE_BYTES = 4 << 20  # what one page of events may hold in memory, beside its first event
PAGE_ROWS = 1_000

# The view is never read: it lets SQLite refuse the push once the schema is another one.
_INSERT = f"""
INSERT INTO events (created_at, source, type, subtype, content)
VALUES (?, ?, ?, ?, CASE WHEN 0 THEN (SELECT 1 FROM {CURRENT}) ELSE ? END)
"""
# The same for the fields of `NewEvent`; the key, which is stored apart, is bound to no effect.
_INSERT_MANY = """
INSERT INTO events (created_at, source, type, subtype, content)
VALUES ('{}', ?1, ?2, CASE WHEN 0 THEN ?5 ELSE ?4 END, ?3)
"""
_KNOWN_KEYS = """
SELECT k.key, event_id
FROM json_each(?)
    CROSS JOIN event_keys k ON k.key = value
    JOIN events ON events.id = event_id
"""
# Other tools may have stored a BLOB; of text CAST makes nothing new.
_LINE = """json_object(
    'id', id,
    'created_at', CAST(created_at AS TEXT),
    'source', CAST(source AS TEXT),
    'type', CAST(type AS TEXT),
    'subtype', CAST(subtype AS TEXT),
    'content', CAST(content AS TEXT)
)"""
_COLUMNS = """CAST(created_at AS TEXT), CAST(source AS TEXT), CAST(type AS TEXT),
    CAST(subtype AS TEXT), CAST(content AS TEXT)"""
_GET = f"SELECT id, {_COLUMNS} FROM events WHERE id = ?"
_GET_BYTES = _GET.replace("TEXT", "BLOB")  # of an event whose text is not UTF-8
_AMONG = f"""
SELECT id, {_COLUMNS}
FROM events
WHERE id IN (SELECT value FROM json_each(?))
ORDER BY id
"""
# A thread of the original tool has indexes on source and type; what is new is read by id.
_PAGE = f"""
SELECT id, {_COLUMNS}
FROM events NOT INDEXED
WHERE id > ? AND id <= ?
ORDER BY id
LIMIT ?
"""
_PAGE_OF_LINES = f"""
SELECT id, {_LINE}
FROM events NOT INDEXED
WHERE id > ? AND id <= ?
ORDER BY id
LIMIT ?
"""
_NEWEST = f"""
SELECT id, {_COLUMNS}
FROM events NOT INDEXED
WHERE id > ? AND id <= ?
ORDER BY id DESC
LIMIT ?
"""
_BLOCK = f"""
SELECT CAST(group_concat({_LINE}, char(10)) AS BLOB)
FROM (
    SELECT *
    FROM events NOT INDEXED
    WHERE id > ? AND id <= ?
    ORDER BY id
)
"""
_TIMES = """
SELECT e.id, CAST(created_at AS TEXT)
FROM json_each(?)
    CROSS JOIN events e ON e.id = value
"""
_QUESTIONS = f"""
SELECT id, {_COLUMNS}
FROM open_questions
    CROSS JOIN events ON id = event_id
ORDER BY event_id
LIMIT ?
"""
# The newest answers, by their keys; so many keys are looked at, as any event may have one.
_ANSWERS = """
SELECT event_id
FROM (
    SELECT event_id, key
    FROM event_keys
    WHERE event_id < ?1
    ORDER BY event_id DESC
    LIMIT ?2
)
WHERE key >= 'answer:' AND key < 'answer;'
ORDER BY event_id DESC
LIMIT ?3
"""
_EDGE = "SELECT event_id FROM event_keys WHERE event_id < ? ORDER BY event_id DESC LIMIT 1 OFFSET ?"
_KINDS = """
SELECT CAST(type AS TEXT), CAST(source AS TEXT), count(*)
FROM events NOT INDEXED
WHERE id > ? AND id <= ?
GROUP BY 1, 2
"""
_SIZE = """
SELECT total(octet_length(content))
FROM events NOT INDEXED
WHERE id > ? AND id <= ?
"""
_LATEST = {
    "source": f"""
    SELECT max(id), {_COLUMNS}
    FROM events
    GROUP BY source
    ORDER BY 1
    """,
    "type": f"""
    SELECT max(id), {_COLUMNS}
    FROM events
    GROUP BY type
    ORDER BY 1
    """,
}


def _columns(new: NewEvent) -> tuple[str, str, str | None, str]:
    return new.source, new.type, new.subtype, new.content


_record: Any = tuple.__new__  # makes a record without a call of Python
_event: Callable[[Any], Event] = partial(_record, Event)


class Events:
    """The table of events, and the keys and refs of its rows."""

    most_rows = 250  # keeps their strings below the size for which malloc calls mmap

    def __init__(self, db: Database) -> None:
        """Use the connection and transactions of a database."""
        self._db = db
        self._run = db.run
        self._one = db.one

    def add(self, new: NewEvent) -> Event:
        """Store one event that has no key, names no blob and asks nothing, and return it.

        A single statement: BEGIN and COMMIT around it cost a fifth more.
        """
        source, kind, content, subtype, _ = new
        db = self._db
        if db.pid != os.getpid():
            raise db.gone()
        with db.lock:
            alone = not db.depth
            at = clock.stamp(clock.now())
            try:
                connection = db.prepare_push() if alone else db.ready()
                db.cursor.execute(_INSERT, (at, source, kind, subtype, content))
            except (apsw.Error, UnicodeEncodeError) as error:
                raise db.explain(error) from error
            number = connection.last_insert_rowid()
            if not alone:
                db.note_part((number, 1, at, (new,)), source)
        if alone:
            db.tell(_record(Commit, (number, number, source, ((number, 1, at, (new,)),))))
        event: Event = _record(Event, (number, at, source, kind, subtype, content))
        return event

    def append(
        self,
        new: Sequence[NewEvent],
        refs: Refs | None = None,
        at: str | None = None,
        causes: Sequence[tuple[str, int]] | None = None,
    ) -> Appended:
        """Store events in order, but for those whose key was used before.

        `refs` are the blobs that events name, by their place in `new`; `at` is the time of an
        earlier part of the same batch; `causes` are what caused them (None: what is stated).
        """
        db, answers = self._db, any(map(may_answer, new))
        # One that is refused must not spoil the transaction around it.
        with db.write() if answers else db.joined():
            kept, places, found = self._split(new)
            if answers:
                self._check_answers(new, found)
            goes_on, at = at is not None, at or clock.stamp(clock.now())
            if not kept:
                return Appended(0, 0, at, found)
            db.many(_INSERT_MANY.format(at), kept)
            last = db.connection.last_insert_rowid()
            first = last - len(kept) + 1
            if places is not None:
                self._set_keys(first, kept)
            if refs:
                self._set_refs(first, range(len(new)) if places is None else places, refs)
            if not NOTED.isdisjoint([row[1] for row in kept]):
                self._note_questions(kept, first)
            if causes := db.stated_causes() if causes is None else causes:
                db.causes.note_events(range(first, last + 1), causes)
            db.note_part((first, len(kept), at, kept), kept[-1][0], goes_on=goes_on)
        if found:
            found = [
                (place, first - number - 1 if number < 0 else number) for place, number in found
            ]
        return Appended(first, last, at, found)

    def restore(self, rows: Sequence[Restored]) -> None:
        """Store events again, inside `write`, with their ids and times, and what contents name."""
        db = self._db
        sql = """
            INSERT INTO events (id, created_at, source, type, subtype, content)
            VALUES (?, ?, ?, ?, ?, ?)
        """
        db.many(sql, [(number, at, *_columns(new)) for number, at, new in rows])
        for number, _, new in rows:
            if new.key is not None:
                keys = "INSERT OR IGNORE INTO event_keys (key, event_id) VALUES (?, ?)"
                self._run(keys, (new.key, number))
            if new.type in NOTED:
                self._note_questions((new,), number)
            if REF in new.content:
                self._set_refs(number, (0,), {0: refs_in(new.content)})

    def announce(self, source: str, content: str, subtype: str, cause: int = 0) -> None:
        """Store the event of another change in the same transaction, with the refs it names."""
        new = NewEvent(source, "record", content, subtype)
        causes = (("", cause),) if cause else None
        self.append((new,), {0: refs_in(content)}, causes=causes)

    def _split(
        self, new: Sequence[NewEvent]
    ) -> tuple[Sequence[NewEvent], Sequence[int] | None, list[tuple[int, int]]]:
        """Return the events that are new, their places, and place and id of those found by key.

        The places are None where no event has a key.
        The id of one that is stored by this very append is not known yet: -1 for the first of
        the new ones, -2 for the second.
        """
        keys = [row[4] for row in new if row[4] is not None]
        if not keys:
            return new, None, []
        known = self._known_keys(keys)
        kept, places, found = [], [], []
        for place, row in enumerate(new):
            key = row[4]
            if key is not None and key in known:
                found.append((place, known[key]))
                continue
            kept.append(row)
            places.append(place)
            if key is not None:
                known[key] = -len(kept)
        return kept, places, found

    def _known_keys(self, keys: list[str]) -> dict[str, int]:
        """Return the events of those keys that were used; a key whose event is gone is free."""
        listed = "[" + ",".join(map(quote, keys)) + "]"
        return dict(self._run(_KNOWN_KEYS, (listed,)))

    def _set_keys(self, first: int, rows: Sequence[NewEvent]) -> None:
        pairs = [(row[4], number) for number, row in enumerate(rows, first) if row[4] is not None]
        if pairs:
            self._db.many("INSERT OR REPLACE INTO event_keys (key, event_id) VALUES (?, ?)", pairs)

    def _set_refs(self, first: int, places: Sequence[int], refs: Refs) -> None:
        """Note the blobs that events name: they are kept for as long as the events are."""
        pairs = [
            (first + n, digest) for n, place in enumerate(places) for digest in refs.get(place, ())
        ]
        if pairs:
            sql = "INSERT OR IGNORE INTO event_blob_refs (event_id, hash) VALUES (?, ?)"
            self._db.many(sql, pairs)

    # --- questions --------------------------------------------------------------------------------

    def _check_answers(self, new: Sequence[NewEvent], found: Sequence[tuple[int, int]]) -> None:
        from eventq.store.question_rules import check_answers  # few pushes answer

        check_answers(self, new, found)

    def _note_questions(self, rows: Sequence[NewEvent], first: int) -> None:
        """Open the questions that new events ask, and close those that they answer."""
        from eventq.store.question_rules import changes  # few pushes ask

        asked, answered = changes(rows, first)
        self._db.many("INSERT INTO open_questions (event_id) VALUES (?)", [(one,) for one in asked])
        self._db.many("DELETE FROM open_questions WHERE event_id = ?", [(one,) for one in answered])

    def times(self, numbers: Collection[int]) -> dict[int, str]:
        """Return when some events were stored, by id, of those that are there."""
        listed = "[" + ",".join(map(str, numbers)) + "]"
        return dict(self._run(_TIMES, (listed,)))

    def questions(self, limit: int) -> list[Event]:
        """Return the oldest questions that are open; of a thread without a table of them, none."""
        return [*map(_event, self._run(_QUESTIONS, (limit,)))] if self._has_questions() else []

    def answers(self, before: int, limit: int) -> tuple[list[int], int]:
        """Return the ids of the newest answers before an event, and where to look on."""
        if not self._has_questions():
            return [], 0
        found = [row[0] for row in self._run(_ANSWERS, (before, KEYS_SEEN, limit))]
        if len(found) == limit:
            return found, found[-1]
        return found, self._one(_EDGE, (before, KEYS_SEEN - 1)) or 0

    def question_count(self) -> int:
        """Return how many questions are open."""
        sql = "SELECT count(*) FROM open_questions"
        return int(self._one(sql)) if self._has_questions() else 0

    def _has_questions(self) -> bool:
        return not self._db.is_older_than(QUESTIONS)

    def keyed(self, key: str) -> Event | None:
        """Return the event that was stored under a key, or None."""
        if self._db.is_original():
            return None
        number = self._one("SELECT event_id FROM event_keys WHERE key = ?", (key,))
        return None if number is None else self.get(number)

    def keys(self, after: int, upto: int) -> dict[int, str]:
        """Return the keys of the events of a range, by id."""
        sql = "SELECT event_id, key FROM event_keys WHERE event_id > ? AND event_id <= ?"
        return dict(self._run(sql, (after, upto)))

    # --- reading ----------------------------------------------------------------------------------

    def last(self) -> int:
        """Return the id of the newest event there ever was, 0 when there was none."""
        found = self._one("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        if found is None:  # none yet, or the row is lost, or the table is: then this says so
            found = self._one("SELECT max(id) FROM events")
        return found or 0

    def bounds(self) -> Bounds:
        """Return the ids of the oldest event and the newest ever, and how many are stored."""
        sql = "SELECT (SELECT min(id) FROM events), (SELECT max(id) FROM events)"
        first, newest = self._run(sql)[0]  # each by one look: SQLite reads all rows for both
        return Bounds(first or 0, self.last(), 0 if first is None else newest - first + 1)

    def get(self, number: int) -> Event | None:
        """Return one event, or None."""
        try:
            rows = self._run(_GET, (number,))
        except DamagedError:  # like its line in the mirror: a push goes on after it
            rows = self._run(_GET_BYTES, (number,))
            rows = [
                [v.decode(errors="replace") if isinstance(v, bytes) else v for v in row]
                for row in rows
            ]
        return Event._make(rows[0]) if rows else None

    def among(self, numbers: Sequence[int]) -> tuple[dict[int, Event], int]:
        """Return those of some events that are stored, as many as a page may hold.

        Beside them is the id up to which all were looked for.
        """
        listed = "[" + ",".join(map(str, numbers)) + "]"
        rows, whole = self._db.steady(lambda c: _gather(c.execute(_AMONG, (listed,))))
        return {row[0]: _event(row) for row in rows}, max(numbers) if whole else rows[-1][0]

    def matching(self, text: str, events: list[Event]) -> set[int]:
        """Return the ids of those events that an accepted filter matches, inside `write`."""
        if not text:
            return {event[0] for event in events}
        found: set[int] = self._db.filtered(
            lambda sandbox: {event[0] for event in events if sandbox.matches(text, event)}
        )
        return found

    def kinds(self, after: int, upto: int) -> list[tuple[str, str, int]]:
        """Return each pair of a type and a source in a range, and how many events have it."""
        return self._run(_KINDS, (after, upto))

    def _after(self, after: int) -> int | None:
        """Return the lowest id above `after`, or None."""
        sql = """
            SELECT id
            FROM events
            WHERE id > ?
            ORDER BY id
            LIMIT 1
        """
        return self._one(sql, (after,))  # type: ignore[no-any-return]

    def from_end(self, count: int) -> int:
        """Return the id of the `count`-th newest event, or of the oldest; 0 for none."""
        sql = """
            SELECT min(id)
            FROM (SELECT id FROM events ORDER BY id DESC LIMIT ?)
        """
        return self._one(sql, (count,)) or 0

    # --- searching --------------------------------------------------------------------------------

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run, "" for all; raise FilterError when it is refused."""
        return self._db.filtered(lambda sandbox: sandbox.check(text)) if text else ""

    def page(self, text: str, after: int, upto: int, limit: int) -> EventPage:
        """Return the next events with `after` < id <= `upto` that match an accepted filter.

        At most `limit`, and fewer when they are large; there may be none though the search has not
        got to `upto` yet.
        """
        rows, at = self._page(text, after, upto, limit, lines=False)
        return EventPage([*map(_event, rows)], at)

    def lines(self, text: str, after: int, upto: int, limit: int) -> LinePage:
        """Return what `page` returns as lines of JSON."""
        rows, at = self._page(text, after, upto, limit, lines=True)
        return LinePage([row[1] for row in rows], at, rows[-1][0] if rows else 0)

    def _page(
        self, text: str, after: int, upto: int, limit: int, *, lines: bool
    ) -> tuple[list[Any], int]:
        if text:
            found: tuple[list[Any], int] = self._db.filtered(
                lambda sandbox: sandbox.page(
                    text, after, upto, limit, lines=lines, max_bytes=PAGE_BYTES
                )
            )
            return found
        sql = _PAGE_OF_LINES if lines else _PAGE
        bindings = (after, upto, min(limit, PAGE_ROWS))
        rows, whole = self._db.steady(lambda c: _gather(c.execute(sql, bindings)))
        done = whole and len(rows) < min(limit, PAGE_ROWS)
        return rows, upto if done else rows[-1][0]

    def newest(
        self, text: str, upto: int, limit: int, room: int | None = None, *, after: int = 0
    ) -> list[Event]:
        """Return the newest `limit` events of a range that match, oldest first."""
        found: list[Any] = []
        while upto > after and len(found) < limit and (room is None or room > 0):
            rows, upto = self._newest_page(text, after, upto, limit - len(found))
            found += rows
            room = None if room is None else room - sum(len(row[5]) for row in rows)
        found.reverse()
        return [*map(_event, found)]

    def _newest_page(self, text: str, after: int, upto: int, limit: int) -> tuple[list[Any], int]:
        if text:
            rows, low = self._db.filtered(
                lambda sandbox: sandbox.page(
                    text, after, upto, limit, newest=True, max_bytes=PAGE_BYTES
                )
            )
            return rows, low
        bindings = (after, upto, min(limit, PAGE_ROWS))
        rows, whole = self._db.steady(lambda c: _gather(c.execute(_NEWEST, bindings)))
        return rows, after if whole and len(rows) < bindings[2] else rows[-1][0] - 1

    def first_match(self, text: str, after: int, upto: int) -> int | None:
        """Return the lowest id with `after` < id <= `upto` that a filter matches, or None."""
        if text:
            return self._db.filtered(lambda sandbox: sandbox.first(text, after, upto))  # type: ignore[no-any-return]
        first = self._after(after)
        return first if first is not None and first <= upto else None

    def tally(
        self, text: str, after: int, upto: int, most: int, seconds: float | None = None
    ) -> Tally:
        """Return how many events of a range match; see `store.protocol`.

        `text` need not be accepted before. Raises FilterError for a filter that is refused.
        """
        if text:
            found: Tally = self._db.filtered(
                lambda sandbox: sandbox.tally(text, after, upto, most, seconds)
            )
            return found
        first = self._after(after)  # ids have no gaps
        if first is None or first > upto:
            return Tally()
        return Tally(first, min(upto, self.last()) - first + 1)

    # --- copies -----------------------------------------------------------------------------------

    def blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Yield the events of a range as NDJSON in blocks of bounded size; U+FFFD for bad UTF-8."""
        for block in self._blocks(after, upto):
            yield block if is_utf8(block) else block.decode(errors="replace").encode()

    def _blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Yield the events of a range as NDJSON of whatever bytes are stored."""
        step = PAGE_ROWS
        while after < upto:
            to = min(after + step, upto)
            size = self._one(_SIZE, (after, to))
            if size > PAGE_BYTES and to - after > 1:
                step = max(1, (to - after) // 2)
                continue
            text = self._one(_BLOCK, (after, to))
            if text is not None:
                yield text + b"\n"
            else:  # what other tools stored may leave gaps of any length
                following = self._after(to)
                to = upto if following is None else max(to, min(following - 1, upto))
            after, step = to, min(step * 2, PAGE_ROWS)

    def latest(self, by: str) -> list[Event]:
        """Return the newest event of each `source` or `type`, in the order of their ids."""
        if by not in _LATEST:
            raise InputError(f"cannot group by '{by}'", "use 'source' or 'type'")
        return [*map(_event, self._run(_LATEST[by]))]

    # --- upkeep -----------------------------------------------------------------------------------

    def prune(self, before: int) -> int:
        """Delete the events below an id, with their keys and refs; return their number."""
        with self._db.joined():
            self._run("DELETE FROM event_keys WHERE event_id < ?", (before,))
            self._run("DELETE FROM event_blob_refs WHERE event_id < ?", (before,))
            self._run("DELETE FROM event_causes WHERE event_id < ?", (before,))
            self._run("DELETE FROM open_questions WHERE event_id < ?", (before,))
            self._run("DELETE FROM events WHERE id < ?", (before,))
            return self._db.connection.changes()

    def rewrite(self, number: int, content: str) -> None:
        """Let an event say something else, inside `write`."""
        self._db.changed("UPDATE events SET content = ? WHERE id = ?", (content, number))

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of events."""
        for number, what in self._run(_ODD_EVENTS):
            yield f"event {number} {what}"
        yield from self._text_faults()

    def counter_faults(self) -> Iterator[str]:
        """Yield a sentence when the counter of ids is behind the newest event."""
        for last, newest in self._run(_ODD_COUNTER):
            yield f"the newest event is {newest}, but the counter of ids is at {last}"

    def _text_faults(self) -> Iterator[str]:
        found = (
            line
            for block in self._blocks(0, self.last())
            if not is_utf8(block)
            for line in block.splitlines()
            if not is_utf8(line)
        )
        for line, _ in zip(found, range(20), strict=False):
            yield f"event {line[6 : line.index(b',')].decode()} holds text that is not UTF-8"

    def key_faults(self) -> Iterator[str]:
        """Yield a sentence for each key that names no event, and each ref of none."""
        for data, kind, number in self._run(_ODD_KEYS):
            yield f"key '{name_of(data, kind)}' names event {number}, which is not stored"
        for (number,) in self._run(_ODD_REFS):
            yield f"event {number} keeps blobs, and is not stored"
        for (number,) in self._run(_ODD_CAUSES) if self._db.has_causes() else ():
            yield f"event {number} has a cause, and is not stored"

    def question_faults(self) -> Iterator[str]:
        """Yield a sentence for each open question that is not listed, or the reverse."""
        from eventq.store.sqlite.questions import faults

        if not self._db.is_older_than(DERIVED):
            yield from self._db.steady(lambda c: [*faults(c)])


# Rows that no push stores, as other tools may: what is wrong with each, the gravest first.
_ODD_EVENTS = """
SELECT id,
    CASE
        WHEN id < 1 THEN 'has an id below 1'
        WHEN typeof(content) <> 'text' THEN 'has content that is not text'
        WHEN typeof(source) <> 'text' OR source = '' THEN 'has no source'
        WHEN typeof(type) <> 'text' OR type = '' THEN 'has no type'
        ELSE 'has no time'
    END
FROM events
WHERE id < 1
    OR typeof(content) <> 'text'
    OR typeof(source) <> 'text'
    OR source = ''
    OR typeof(type) <> 'text'
    OR type = ''
    OR typeof(created_at) <> 'text'
LIMIT 20
"""
_ODD_COUNTER = """
SELECT CAST(last AS TEXT), newest
FROM (
    SELECT max(id) AS newest, (SELECT seq FROM sqlite_sequence WHERE name = 'events') AS last
    FROM events
)
WHERE newest IS NOT NULL AND (typeof(last) <> 'integer' OR last < newest)
"""
_ODD_KEYS = """
SELECT CAST(key AS BLOB), typeof(key), CAST(event_id AS TEXT)
FROM event_keys
WHERE NOT EXISTS (SELECT 1 FROM events WHERE id = event_id)
LIMIT 20
"""

_ODD_REFS = """
SELECT DISTINCT event_id
FROM event_blob_refs
WHERE NOT EXISTS (SELECT 1 FROM events WHERE id = event_id)
LIMIT 20
"""

_ODD_CAUSES = _ODD_REFS.replace("event_blob_refs", "event_causes")


def _gather(cursor: apsw.Cursor) -> tuple[list[Any], bool]:
    """Fetch rows until they hold PAGE_BYTES; give them and whether that was all."""
    rows = []
    size = 0
    try:
        for row in cursor:
            rows.append(row)
            size += len(row[-1])
            if size > PAGE_BYTES:
                return rows, False
    finally:
        cursor.close(force=True)
    return rows, True
