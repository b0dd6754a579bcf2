"""Events in PostgreSQL: store, read, search and prune them."""

from __future__ import annotations

from eventq.errors import InputError, NotAThreadError
from eventq.records.checks import refs_in
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
from eventq.store.names import short
from eventq.store.postgres import failures, questions
from eventq.store.postgres.connection import MINE, NOW
from eventq.store.postgres.gathering import Gathering
from eventq.store.postgres.pushdown import NOTHING
from eventq.store.postgres.schema import IS_CURRENT
from eventq.store.question_rules import KEYS_SEEN, changes, check_answers
from eventq.store.transactions import at_a_moment
from eventq.system.jsontext import writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.store.postgres.connection import Rows, Step, Values
    from eventq.store.postgres.database import Database

    Restored = tuple[int, str, NewEvent]  # id, time, and what was pushed
    Refs = Mapping[int, Collection[bytes]]
    Row = tuple[Any, ...]

# ruff: noqa: S608 (the parts are constants)

PAGE_BYTES = 4 << 20  # what one page of events may hold in memory, beside its first event
PAGE_ROWS = 1_000
_MOST_UNNESTED = 250  # rows of a batch in one statement: more go by COPY
_NEWEST = (1 << 63) - 1
_SEARCHED = 10_000  # events that a tally looks at which must not take long
_FIRST_ROWS = 100  # of a page that is searched: the next ones are larger

_STAMP = """to_char(timestamp 'epoch' + now * interval '1 ms', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""
_LOCK = f"SELECT 1 FROM eventq.counters WHERE {MINE} AND {IS_CURRENT} FOR NO KEY UPDATE"
# The rows are read after the counter is locked, so ids are in the order of the commits, and the
# time is that of a clock that is read inside the lock.
_NUMBERED = f"""
WITH c AS MATERIALIZED (
    UPDATE eventq.counters
    SET last_event = last_event + %(n)s
    WHERE {MINE} AND {IS_CURRENT}
    RETURNING last_event, awake_until, {NOW} AS now
)
"""
PUSH = f"""{_NUMBERED} INSERT INTO eventq.events
(bucket, thread_id, id, created_at, source, type, subtype, content)
SELECT %(b)s, %(t)s, last_event, {_STAMP}, %(source)s, %(type)s, %(subtype)s, %(content)s FROM c
RETURNING id, created_at, (SELECT awake_until > now FROM c)"""
_COUNT_TO = f"""
UPDATE eventq.counters
SET last_event = greatest(last_event, %(last)s)
WHERE {MINE} AND {IS_CURRENT}
RETURNING 1
"""
_GIVEN = """unnest(%(sources)s::text[], %(types)s::text[], %(contents)s::bytea[],
%(subtypes)s::text[]) WITH ORDINALITY AS g (source, type, content, subtype, place)"""
_PUSH_MANY = f"""{_NUMBERED}, i AS (INSERT INTO eventq.events
(bucket, thread_id, id, created_at, source, type, subtype, content)
SELECT %(b)s, %(t)s, last_event - %(n)s + place, coalesce(%(at)s, {_STAMP}), source, type, subtype,
content FROM c, {_GIVEN})
SELECT last_event, coalesce(%(at)s, {_STAMP}), awake_until > now FROM c"""
_COUNT_ON = f"""{_NUMBERED}
SELECT last_event, coalesce(%(at)s, {_STAMP}), awake_until > now
FROM c
"""
_COPY = """
COPY eventq.events (bucket, thread_id, id, created_at, source, type, subtype, content)
FROM STDIN (FORMAT binary)
"""
_COPIED = ("int2", "int8", "int8", "text", "text", "text", "text", "bytea")
_KNOWN = """
SELECT key, event_id
FROM eventq.event_keys k
WHERE k.bucket = %(b)s
    AND k.thread_id = %(t)s
    AND key = ANY(%(keys)s)
    AND EXISTS (
        SELECT 1
        FROM eventq.events e
        WHERE e.bucket = %(b)s AND e.thread_id = %(t)s AND e.id = k.event_id
    )
"""
_KEYS = f"""
SELECT event_id, key
FROM eventq.event_keys
WHERE {MINE} AND event_id > %(after)s AND event_id <= %(upto)s
"""
_SET_KEYS = """
INSERT INTO eventq.event_keys (bucket, thread_id, key, event_id)
SELECT %(b)s, %(t)s, key, id
FROM unnest(%(keys)s::text[], %(ids)s::bigint[]) AS g (key, id)
ON CONFLICT (bucket, thread_id, key) DO UPDATE SET event_id = excluded.event_id
"""
_SET_REFS = """
INSERT INTO eventq.event_blob_refs (bucket, thread_id, event_id, hash)
SELECT %(b)s, %(t)s, id, hash
FROM unnest(%(ids)s::bigint[], %(hashes)s::bytea[]) AS g (id, hash)
ON CONFLICT DO NOTHING
"""
# A keyed push, after the lock: the key is looked for, and else the event stored, in one statement.
_PUSH_KEYED = f"""
WITH k AS MATERIALIZED ({_KNOWN.replace("= ANY(%(keys)s)", "= %(key)s")}),
c AS MATERIALIZED (
    UPDATE eventq.counters
    SET last_event = last_event + 1
    WHERE {MINE} AND NOT EXISTS (SELECT 1 FROM k)
    RETURNING last_event, awake_until, {NOW} AS now
),
i AS (
    INSERT INTO eventq.events (bucket, thread_id, id, created_at, source, type, subtype, content)
    SELECT %(b)s, %(t)s, last_event, {_STAMP}, %(source)s, %(type)s, %(subtype)s, %(content)s
    FROM c
),
s AS (
    INSERT INTO eventq.event_keys (bucket, thread_id, key, event_id)
    SELECT %(b)s, %(t)s, %(key)s, last_event
    FROM c
    ON CONFLICT (bucket, thread_id, key) DO UPDATE SET event_id = excluded.event_id
),
r AS (
    INSERT INTO eventq.event_blob_refs (bucket, thread_id, event_id, hash)
    SELECT %(b)s, %(t)s, last_event, hash
    FROM c, unnest(%(hashes)s::bytea[]) AS g (hash)
    ON CONFLICT DO NOTHING
)
SELECT last_event, {_STAMP}, awake_until > now
FROM c
UNION ALL
SELECT event_id, NULL, NULL
FROM k
"""

COLUMNS = "id, created_at, source, type, subtype, content"
_GET = f"SELECT {COLUMNS} FROM eventq.events WHERE {MINE} AND id = %(id)s"
# Rows up to a number of bytes, and one more.
_PAGE = f"""
SELECT {COLUMNS}
FROM (
    SELECT {COLUMNS},
        sum(octet_length(content)) OVER (ORDER BY id {{0}}) - octet_length(content) AS before
    FROM (
        SELECT {COLUMNS}
        FROM eventq.events
        WHERE {MINE} AND id > %(after)s AND id <= %(upto)s{{1}}
        ORDER BY id {{0}}
        LIMIT %(limit)s
    ) AS p
) AS q
WHERE before <= %(room)s
ORDER BY id {{0}}
"""
_AMONG = " AND id = ANY(%(ids)s)"
_LAST = f"SELECT last_event FROM eventq.counters WHERE {MINE}"
_BOUNDS = f"""
SELECT coalesce(min(id), 0), coalesce(({_LAST}), 0), coalesce(max(id) - min(id) + 1, 0)
FROM eventq.events
WHERE {MINE}
"""
_FROM_END = f"""
SELECT coalesce(min(id), 0)
FROM (
    SELECT id
    FROM eventq.events
    WHERE {MINE}
    ORDER BY id DESC
    LIMIT %(count)s
) AS e
"""
_TALLY = f"""
SELECT min(id), count(*)
FROM (
    SELECT id
    FROM eventq.events
    WHERE {MINE} AND id > %(after)s AND id <= %(upto)s{{}}
    ORDER BY id
    LIMIT %(limit)s
) AS e
"""
_FIRST = f"""
SELECT id
FROM eventq.events
WHERE {MINE} AND id > %(after)s AND id <= %(upto)s{{}}
ORDER BY id
LIMIT 1
"""
_LATEST = f"""
SELECT {COLUMNS}
FROM (
    SELECT DISTINCT ON ({{0}}) {COLUMNS}
    FROM eventq.events
    WHERE {MINE}
    ORDER BY {{0}}, id DESC
) AS e
ORDER BY id
"""
_TIMES = f"""
SELECT id, created_at
FROM eventq.events
WHERE {MINE} AND id = ANY(%(ids)s::bigint[])
"""
_KINDS = f"""
SELECT type, source, count(*)
FROM eventq.events
WHERE {MINE} AND id > %(after)s AND id <= %(upto)s
GROUP BY type, source
"""
_NOTE_QUESTIONS = f"""
WITH closed AS (
    DELETE FROM eventq.open_questions
    WHERE {MINE} AND event_id = ANY(%(answered)s::bigint[])
)
INSERT INTO eventq.open_questions (bucket, thread_id, event_id)
SELECT %(b)s, %(t)s, id
FROM unnest(%(asked)s::bigint[]) AS g (id)
WHERE id <> ALL(%(answered)s::bigint[])
RETURNING 1
"""
_QUESTIONS = f"""
SELECT {COLUMNS}
FROM eventq.open_questions q
    JOIN eventq.events e ON e.bucket = q.bucket AND e.thread_id = q.thread_id AND id = event_id
WHERE q.bucket = %(b)s AND q.thread_id = %(t)s
ORDER BY event_id
LIMIT %(limit)s
"""
# The newest answers, by their keys; so many keys are looked at, as any event may have one.
_ANSWERS = f"""
SELECT event_id
FROM (
    SELECT event_id, key
    FROM eventq.event_keys
    WHERE {MINE} AND event_id < %(before)s
    ORDER BY event_id DESC
    LIMIT %(seen)s
) k
WHERE key >= 'answer:' AND key < 'answer;'
ORDER BY event_id DESC
LIMIT %(limit)s
"""
_EDGE = f"""
SELECT event_id
FROM eventq.event_keys
WHERE {MINE} AND event_id < %(before)s
ORDER BY event_id DESC
LIMIT 1 OFFSET %(seen)s - 1
"""
_QUESTION_COUNT = f"SELECT count(*) FROM eventq.open_questions WHERE {MINE}"
_REWRITE = f"UPDATE eventq.events SET content = %(content)s WHERE {MINE} AND id = %(id)s"
_PRUNE = (
    f"DELETE FROM eventq.open_questions WHERE {MINE} AND event_id < %(before)s",
    f"DELETE FROM eventq.event_keys WHERE {MINE} AND event_id < %(before)s",
    f"DELETE FROM eventq.event_blob_refs WHERE {MINE} AND event_id < %(before)s",
    f"DELETE FROM eventq.event_causes WHERE {MINE} AND event_id < %(before)s",
    f"""
    WITH d AS (
        DELETE FROM eventq.events
        WHERE {MINE} AND id < %(before)s
        RETURNING 1
    )
    SELECT count(*)
    FROM d
    """,
)
_ODD = f"""
SELECT id,
    CASE
        WHEN id < 1 THEN 'has an id below 1'
        WHEN source = '' THEN 'has no source'
        ELSE 'has no type'
    END
FROM eventq.events
WHERE {MINE} AND (id < 1 OR source = '' OR type = '')
LIMIT 20
"""
_ODD_COUNTER = f"""
SELECT c.last_event, e.id
FROM eventq.counters c, LATERAL (SELECT max(id) AS id FROM eventq.events WHERE {MINE}) AS e
WHERE c.bucket = %(b)s AND c.thread_id = %(t)s AND e.id > c.last_event
"""
# A subquery for each key: before its first ANALYZE, a join would read all events for each.
_ODD_KEYS = """
SELECT key, event_id
FROM eventq.event_keys k
WHERE k.bucket = %(b)s
    AND k.thread_id = %(t)s
    AND (
        SELECT e.id
        FROM eventq.events e
        WHERE e.bucket = %(b)s AND e.thread_id = %(t)s AND e.id = k.event_id
    ) IS NULL
LIMIT 20
"""

_ODD_REFS = """
SELECT DISTINCT event_id
FROM eventq.event_blob_refs r
WHERE r.bucket = %(b)s
    AND r.thread_id = %(t)s
    AND NOT EXISTS (
        SELECT 1
        FROM eventq.events e
        WHERE e.bucket = %(b)s AND e.thread_id = %(t)s AND e.id = r.event_id
    )
LIMIT 20
"""
_ODD_CAUSES = _ODD_REFS.replace("event_blob_refs", "event_causes")


class Events:
    """The rows of events, and the keys and refs of them."""

    most_rows = 10_000  # fewer make more round trips

    def __init__(self, db: Database) -> None:
        """Use the connections and transactions of a database."""
        self._db = db
        self.gathering = Gathering(
            db.lock, self._store_together, failures.is_of_one, lambda: failures.unknown(db.address)
        )

    # --- storing ----------------------------------------------------------------------------------

    def add(self, new: NewEvent) -> Event:
        """Store one event that has no key, names no blob and asks nothing, and return it.

        Pushes of several OS threads at the same time are stored as one change; see `gathering`.
        """
        db = self._db
        if db.in_write():
            event = self._store([new], None)[0]
            db.note_part((event.id, 1, event.created_at, (new,)), new[0])
            return event
        db.check_process()
        try:
            return self.gathering.push(new)
        finally:
            db.tell()  # also of others, when this one failed

    def _store_together(self, rows: Sequence[NewEvent]) -> list[Event]:
        """Store events as one change; the lock is held."""
        events = self._store(rows, None)
        first, last = events[0], events[-1]
        part = (first.id, len(rows), first.created_at, rows)
        self._db.note(Commit(first.id, last.id, last.source, (part,)))
        return events

    def _store(self, rows: Sequence[NewEvent], at: str | None) -> list[Event]:
        """Store events that have no keys, as one statement; return them."""
        if len(rows) == 1 and at is None:
            source, kind, content, subtype, _ = rows[0]
            values: dict[str, Any] = {
                "source": source, "type": kind, "content": content.encode(), "subtype": subtype,
                "n": 1,
            }  # fmt: skip
            ((number, stamp, awake),) = self._numbered(PUSH, values)
            self._db.is_awake = bool(awake)
            return [Event(number, stamp, source, kind, subtype, content)]
        first, stamp = self._store_many(rows, at)
        return [
            Event(number, stamp, source, kind, subtype, content)
            for number, (source, kind, content, subtype, _) in enumerate(rows, first)
        ]

    def _store_many(self, rows: Sequence[NewEvent], at: str | None) -> tuple[int, str]:
        """Store events that have no keys; return the first id and the time."""
        if len(rows) > _MOST_UNNESTED:
            return self._copy(rows, at)
        values = {
            "sources": [row[0] for row in rows],
            "types": [row[1] for row in rows],
            "contents": [row[2].encode() for row in rows],
            "subtypes": [row[3] for row in rows],
            "n": len(rows),
            "at": at,
        }
        ((last, stamp, awake),) = self._numbered(_PUSH_MANY, values)
        self._db.is_awake = bool(awake)
        return last - len(rows) + 1, stamp

    def _copy(self, rows: Sequence[NewEvent], at: str | None) -> tuple[int, str]:
        """Store events by COPY, in the transaction under way; return the first id and the time."""
        db = self._db
        ((last, stamp, awake),) = self._numbered(_COUNT_ON, {"n": len(rows), "at": at})
        first = last - len(rows) + 1
        self._copy_in((number, stamp, row) for number, row in enumerate(rows, first))
        db.is_awake = bool(awake)
        return first, stamp

    def _copy_in(self, rows: Iterable[Restored]) -> None:
        bucket, thread = self._db.keys["b"], self._db.keys["t"]
        values = (
            (bucket, thread, number, at, source, kind, subtype, content.encode())
            for number, at, (source, kind, content, subtype, _) in rows
        )
        self._db.changing(lambda link: link.copy(_COPY, _COPIED, values))

    def restore(self, rows: Sequence[Restored]) -> None:
        """Store events again, inside `write`, with their ids and times, and what contents name."""
        if not rows:
            return
        self._copy_in(rows)
        self.count_to(rows[-1][0])
        numbers = [number for number, _, _ in rows]
        self._set_keys([new for _, _, new in rows], numbers)
        self._set_refs({number: refs_in(new.content) for number, _, new in rows})
        for number, _, new in rows:
            if new.type in NOTED:
                asked, answered = changes((new,), number)
                self._run(_NOTE_QUESTIONS, {"asked": asked, "answered": answered})

    def count_to(self, last: int) -> None:
        """Give no new event an id up to this one, inside `write`."""
        self._numbered(_COUNT_TO, {"last": last})

    def _numbered(self, sql: str, values: dict[str, Any]) -> Rows:
        """Run a statement that counts events; raise NotAThreadError where there is no counter."""
        given = self._db.bound(values)
        rows = self._db.changing(lambda link: link.run(sql, given))
        if not rows:
            raise NotAThreadError(self._db.address.shown)
        return rows

    def append(
        self,
        new: Sequence[NewEvent],
        refs: Refs | None = None,
        at: str | None = None,
        causes: Sequence[tuple[str, int]] | None = None,
    ) -> Appended:
        """Store events in order, but for those whose key was used before; see `store.protocol`."""
        db = self._db
        causes = db.stated_causes() if causes is None else causes
        is_keyed = len(new) == 1 and at is None and new[0][4] is not None and not causes
        answers = any(map(may_answer, new))
        if is_keyed and not answers and new[0][1] not in NOTED and not db.in_write():
            return self._push_keyed(new[0], (refs or {}).get(0, ()))
        # One that is refused must not spoil the transaction around it.
        with db.write() if answers else db.joined():
            kept, places, found = self._split(new)
            if answers:
                check_answers(self, new, found)
            goes_on = at is not None
            if not kept:
                return Appended(0, 0, at or db.stamp(), found)
            first, at = self._store_many(kept, at)
            ids = range(first, first + len(kept))
            self._set_keys(kept, ids)
            if refs:
                pairs = zip(ids, places, strict=True)
                self._set_refs({number: refs.get(place, ()) for number, place in pairs})
            if not NOTED.isdisjoint([row[1] for row in kept]):
                asked, answered = changes(kept, first)
                self._run(_NOTE_QUESTIONS, {"asked": asked, "answered": answered})
            if causes:
                db.causes.note_events(ids, causes)
            db.note_part((first, len(kept), at, kept), kept[-1][0], goes_on=goes_on)
        if found:
            found = [
                (place, first - number - 1 if number < 0 else number) for place, number in found
            ]
        return Appended(first, ids[-1], at, found)

    def _push_keyed(self, new: NewEvent, hashes: Collection[bytes]) -> Appended:
        """Store an event unless its key was used before: one round trip, which may be repeated."""
        db = self._db
        source, kind, content, subtype, key = new
        assert key is not None
        steps: list[Step] = [
            (_LOCK, db.bound(None)),
            (
                _PUSH_KEYED,
                db.bound({
                    "source": source, "type": kind, "content": content.encode(),
                    "subtype": subtype, "key": short(key), "hashes": [*hashes],
                }),
            ),
        ]  # fmt: skip
        with db.lock:
            locked, rows = db.changing(lambda link: link.together(steps), again=True)
            if not locked:
                raise NotAThreadError(db.address.shown)
            ((number, stamp, awake),) = rows
            if stamp is None:
                return Appended(0, 0, db.stamp(), [(0, number)])
            db.is_awake = bool(awake)
            db.note(Commit(number, number, source, ((number, 1, stamp, (new,)),)))
        db.tell()
        return Appended(number, number, stamp, [])

    def announce(self, source: str, content: str, subtype: str, cause: int = 0) -> None:
        """Store the event of another change in the same transaction, with the refs it names."""
        new = NewEvent(source, "record", content, subtype)
        causes = (("", cause),) if cause else None
        self.append((new,), {0: refs_in(content)}, causes=causes)

    def _split(
        self, new: Sequence[NewEvent]
    ) -> tuple[Sequence[NewEvent], Sequence[int], list[tuple[int, int]]]:
        """Return the events that are new, their places, and place and id of those found by key.

        The id of one that is stored by this very append is not known yet: -1 for the first of the
        new ones, -2 for the second.
        """
        keys = [short(row[4]) for row in new if row[4] is not None]
        if not keys:
            return new, range(len(new)), []
        known: dict[str, int] = dict(self._db.rows(_KNOWN, {"keys": keys}))
        kept, places, found = [], [], []
        for place, row in enumerate(new):
            key = None if row[4] is None else short(row[4])
            if key is not None and key in known:
                found.append((place, known[key]))
                continue
            kept.append(row)
            places.append(place)
            if key is not None:
                known[key] = -len(kept)
        return kept, places, found

    def _set_keys(self, rows: Sequence[NewEvent], ids: Sequence[int]) -> None:
        pairs = [
            (short(row[4]), number)
            for number, row in zip(ids, rows, strict=True)
            if row[4] is not None
        ]
        if pairs:
            keys, numbers = map(list, zip(*pairs, strict=True))
            self._run(_SET_KEYS, {"keys": keys, "ids": numbers})

    def _set_refs(self, refs: Mapping[int, Collection[bytes]]) -> None:
        """Note the blobs that events name: they are kept for as long as the events are."""
        pairs = [(number, digest) for number, some in refs.items() for digest in some]
        if pairs:
            ids, hashes = map(list, zip(*pairs, strict=True))
            self._run(_SET_REFS, {"ids": ids, "hashes": hashes})

    def _run(self, sql: str, values: dict[str, Any]) -> Rows:
        given = self._db.bound(values)
        return self._db.changing(lambda link: link.run(sql, given))

    def keys(self, after: int, upto: int) -> dict[int, str]:
        """Return the keys of the events of a range, by id."""
        return dict(self._db.rows(_KEYS, {"after": after, "upto": upto}))

    # --- reading ----------------------------------------------------------------------------------

    def last(self) -> int:
        """Return the id of the newest event there ever was, 0 when there was none."""
        rows = self._db.rows(_LAST)
        if not rows:
            raise NotAThreadError(self._db.address.shown)
        return int(rows[0][0])

    def bounds(self) -> Bounds:
        """Return the ids of the oldest event and the newest ever, and how many are stored."""
        return Bounds._make(self._db.rows(_BOUNDS)[0])

    def times(self, numbers: Collection[int]) -> dict[int, str]:
        """Return when some events were stored, by id, of those that are there."""
        return dict(self._db.rows(_TIMES, {"ids": [*numbers]}))

    def kinds(self, after: int, upto: int) -> list[tuple[str, str, int]]:
        """Return each pair of a type and a source in a range, and how many events have it."""
        return [*self._db.rows(_KINDS, {"after": after, "upto": upto})]

    def questions(self, limit: int) -> list[Event]:
        """Return the oldest questions that are open."""
        return [*map(event_of, self._db.rows(_QUESTIONS, {"limit": limit}))]

    def answers(self, before: int, limit: int) -> tuple[list[int], int]:
        """Return the ids of the newest answers before an event, and where to look on."""
        values = {"before": before, "limit": limit, "seen": KEYS_SEEN}
        found = [int(row[0]) for row in self._db.rows(_ANSWERS, values)]
        if len(found) == limit:
            return found, found[-1]
        edge = self._db.rows(_EDGE, values)
        return found, int(edge[0][0]) if edge else 0

    def question_count(self) -> int:
        """Return how many questions are open."""
        return int(self._db.value(_QUESTION_COUNT))

    def keyed(self, key: str) -> Event | None:
        """Return the event that was stored under a key, or None."""
        rows = self._db.rows(_KNOWN, {"keys": [short(key)]})
        return self.get(rows[0][1]) if rows else None

    def get(self, number: int) -> Event | None:
        """Return one event, or None."""
        rows = self._db.rows(_GET, {"id": number})
        return event_of(rows[0]) if rows else None

    def among(self, numbers: Sequence[int]) -> tuple[dict[int, Event], int]:
        """Return those of some events that are stored, and up to which id they were sought."""
        values = {"ids": [*numbers], "after": 0, "upto": max(numbers)}
        events, whole = self._read(_AMONG, values, len(numbers))
        return {event.id: event for event in events}, max(numbers) if whole else events[-1].id

    def from_end(self, count: int) -> int:
        """Return the id of the `count`-th newest event, or of the oldest; 0 for none."""
        return int(self._db.value(_FROM_END, {"count": count}))

    def latest(self, by: str) -> list[Event]:
        """Return the newest event of each `source` or `type`, in the order of their ids."""
        if by not in ("source", "type"):
            raise InputError(f"cannot group by '{by}'", "use 'source' or 'type'")
        return [*map(event_of, self._db.rows(_LATEST.format(by)))]

    def _read(
        self, conditions: str, values: dict[str, Any], limit: int, *, newest: bool = False
    ) -> tuple[list[Event], bool]:
        """Return the next events, and whether they are all that there are in their range."""
        limit = min(limit, PAGE_ROWS)
        sql = _PAGE.format("DESC" if newest else "", conditions)
        rows = self._db.rows(sql, {**values, "limit": limit, "room": PAGE_BYTES})
        return _whole(rows, limit)

    def ahead(self, text: str, after: str, values: Values, limit: int) -> Step | None:
        """Return the statement that reads a page of a filter which the server can judge, or None.

        `after` is an expression for the id after which it begins.
        """
        pushed = self._db.filters.pushed(text) if text else NOTHING
        if text and not pushed.is_whole:
            return None
        limit = min(limit, PAGE_ROWS)
        sql = _PAGE.format("", pushed.sql).replace("%(after)s", after)
        more = {"upto": _NEWEST, "limit": limit, "room": PAGE_BYTES}
        return sql, self._db.bound({**values, **pushed.values, **more})

    def page_of(self, rows: Rows, limit: int, last: int) -> EventPage:
        """Return the page that such a statement has read, where `last` was the newest event."""
        events, whole = _whole(rows, min(limit, PAGE_ROWS))
        reached = events[-1].id if events else last
        return EventPage(events, max(reached, last) if whole else reached)

    # --- searching --------------------------------------------------------------------------------

    def accept(self, text: str | None) -> str:
        """Return a filter as it is run, "" for all; raise FilterError when it is refused."""
        return self._db.filters.accept(text)

    def matching(self, text: str, events: list[Event]) -> set[int]:
        """Return the ids of those events that an accepted filter matches."""
        return {event.id for event in self._db.filters.matching(text, events)}

    def page(self, text: str, after: int, upto: int, limit: int) -> EventPage:
        """Return the next events with `after` < id <= `upto` that match an accepted filter.

        At most `limit`, and fewer when they are large; there may be none though the search has not
        got to `upto` yet.
        """
        return EventPage(*self._search(text, after, upto, limit))

    def lines(self, text: str, after: int, upto: int, limit: int) -> LinePage:
        """Return what `page` returns as lines of JSON."""
        return lines_of(self.page(text, after, upto, limit))

    def _search(
        self, text: str, after: int, upto: int, limit: int, *, newest: bool = False
    ) -> tuple[list[Event], int]:
        """Return matching events, and the id to go on at: the last one, or with `newest` below it.

        What the server cannot judge is read in pages, and judged here.
        """
        filters = self._db.filters
        pushed = filters.pushed(text)
        exact = not text or pushed.is_whole
        found: list[Event] = []
        size, room = limit if exact else max(_FIRST_ROWS, min(2 * limit, PAGE_ROWS)), PAGE_BYTES
        while after < upto and len(found) < limit and room > 0:
            values = {**pushed.values, "after": after, "upto": upto}
            events, whole = self._read(pushed.sql, values, size, newest=newest)
            matching = events if exact else filters.matching(text, events)
            matching = matching[: limit - len(found)]
            found += matching
            room -= sum(len(event.content) for event in matching)
            if len(found) >= limit:
                edge = found[-1].id
            else:
                edge = (after if newest else upto) if whole else events[-1].id
            if newest:
                upto = edge if whole and len(found) < limit else edge - 1
            else:
                after = edge
            size = min(size * 4, PAGE_ROWS)
        return found, upto if newest else after

    def newest(
        self, text: str, upto: int, limit: int, room: int | None = None, *, after: int = 0
    ) -> list[Event]:
        """Return the newest `limit` events of a range that match, oldest first."""
        found: list[Event] = []
        while upto > after and len(found) < limit and (room is None or room > 0):
            some, upto = self._search(text, after, upto, limit - len(found), newest=True)
            found += some
            room = None if room is None else room - sum(len(one.content) for one in some)
        found.reverse()
        return found

    def first_match(self, text: str, after: int, upto: int) -> int | None:
        """Return the lowest id with `after` < id <= `upto` that a filter matches, or None."""
        pushed = self._db.filters.pushed(text)
        if not text or pushed.is_whole:
            values = {**pushed.values, "after": after, "upto": upto}
            return self._db.value(_FIRST.format(pushed.sql), values)  # type: ignore[no-any-return]
        while after < upto:
            found, after = self._search(text, after, upto, 1)
            if found:
                return found[0].id
        return None

    def tally(
        self, text: str, after: int, upto: int, most: int, seconds: float | None = None
    ) -> Tally:
        """Return how many events of a range match; see `store.protocol`.

        With a limit of time, only so many events are searched.
        """
        if not (text := self.accept(text)):
            first = self.first_match("", after, upto)  # ids have no gaps
            return Tally() if first is None else Tally(first, min(upto, self.last()) - first + 1)
        reach = upto if seconds is None else min(upto, after + _SEARCHED)
        pushed = self._db.filters.pushed(text)
        if pushed.is_whole:
            values = {**pushed.values, "after": after, "upto": reach, "limit": most}
            first, count = self._db.rows(_TALLY.format(pushed.sql), values)[0]
            return Tally(first, count, reach == upto and count < most)
        first, count = None, 0
        while after < reach and count < most:
            found, after = self._search(text, after, reach, min(most - count, PAGE_ROWS))
            first, count = first or (found[0].id if found else None), count + len(found)
        return Tally(first, count, after >= upto)

    # --- copies -----------------------------------------------------------------------------------

    def blocks(self, after: int, upto: int) -> Iterator[bytes]:
        """Yield the events of a range as NDJSON in blocks of bounded size."""
        while after < upto:
            page = self.lines("", after, upto, PAGE_ROWS)
            after = page.next
            if page.lines:
                yield "".join(f"{line}\n" for line in page.lines).encode()

    # --- upkeep -----------------------------------------------------------------------------------

    def prune(self, before: int) -> int:
        """Delete the events below an id, with their keys and refs; return their number."""
        db = self._db
        steps = [(sql, db.bound({"before": before})) for sql in _PRUNE]
        with db.joined():
            return int(db.changing(lambda link: link.together(steps))[-1][0][0])

    def rewrite(self, number: int, content: str) -> None:
        """Let an event say something else, inside `write`."""
        values = self._db.bound({"id": number, "content": content.encode()})
        self._db.changing(lambda link: link.run(_REWRITE, values))

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that is wrong with the rows of events."""
        for number, what in self._db.rows(_ODD):
            yield f"event {number} {what}"
        for last, newest in self._db.rows(_ODD_COUNTER):
            yield f"the newest event is {newest}, but the counter of ids is at {last}"
        for key, number in self._db.rows(_ODD_KEYS):
            yield f"key '{key}' names event {number}, which is not stored"
        for (number,) in self._db.rows(_ODD_REFS):
            yield f"event {number} keeps blobs, and is not stored"
        for (number,) in self._db.rows(_ODD_CAUSES):
            yield f"event {number} has a cause, and is not stored"
        yield from at_a_moment(self._question_faults)

    def _question_faults(self) -> list[str]:
        with self._db.read() as moment:
            return [*questions.faults(moment.rows)]


def lines_of(page: EventPage) -> LinePage:
    """Return a page as lines of JSON."""
    events = page.events
    return LinePage([*map(line_of, events)], page.next, events[-1].id if events else 0)


def _whole(rows: Rows, limit: int) -> tuple[list[Event], bool]:
    """Return the events of a page, and whether it has all of its range."""
    whole = len(rows) < limit and sum(len(row[5]) for row in rows) <= PAGE_BYTES
    return [*map(event_of, rows)], whole


def event_of(row: Row) -> Event:
    """Return the event of a row."""
    number, at, source, kind, subtype, content = row
    return Event(number, at, source, kind, subtype, content.decode(errors="replace"))


def line_of(event: Event) -> str:
    """Return an event as a line of JSON."""
    return writer()(event._asdict())
