"""The log itself: push, peek, tail, follow, prune."""

from __future__ import annotations

from eventq import system
from eventq.errors import (
    DiskError,
    InputError,
    KeyConflictError,
    LogicError,
    NotAThreadError,
    TooLargeError,
    UsageError,
)
from eventq.event import REF, Batch, Event, check_name, check_whole, refs_in
from eventq.log.mirror import MirrorBlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.log.journal import Journal
    from eventq.log.layout import Layout
    from eventq.log.mirror import Mirror
    from eventq.log.notifier import Notifier
    from eventq.storage.sqlite.database import Database

    NewEvent = Mapping[str, Any] | Sequence[str | None]
    Row = tuple[str, str, str, str | None, str]
    Kept = Callable[[KeyConflictError], object]

MAX_EVENT_BYTES = 64 << 20
_FIELDS = ("source", "type", "content", "subtype", "key")
_CHUNK_ROWS = 250  # a chunk's strings stay below what the C library maps anew each time
_CHUNK_CHARACTERS = 4 << 20
_NAMES = (str, type(None))
_SHORT = 1_000  # characters of content that are looked at no closer when they are ASCII
_KNOWN = 1_000  # names that are remembered


def limit_of_event() -> int:
    """Give the largest size of an event in bytes."""
    return system.env_number("EVENTQ_MAX_EVENT_BYTES", MAX_EVENT_BYTES)


class EventLog:
    """The events of one thread, and what follows from storing one: the mirror, the journal, the notifier."""

    def __init__(
        self,
        db: Database,
        layout: Layout,
        mirror: Mirror,
        journal: Journal,
        notifier: Notifier,
        *,
        strict: bool | None = None,
    ) -> None:
        """Bring the parts together; `strict` refuses free-text sources, None asks EVENTQ_STRICT_SOURCE."""
        self._strict = system.env("EVENTQ_STRICT_SOURCE") == "1" if strict is None else strict
        self._db = db
        self._layout = layout
        self._mirror = mirror
        self._journal = journal
        self._notifier = notifier
        self._limit = limit_of_event()
        self._short = min(_SHORT, self._limit // 4)  # characters of content that cannot be too many bytes
        self._told: list[tuple[str, int, int]] = []  # source, first and last id of what nobody was woken for yet
        self._known: set[tuple[str, str, str | None]] = set()  # names that were found good

    # --- writing --------------------------------------------------------------------------------------------------

    def push(
        self,
        source: str,
        kind: str,
        content: str,
        subtype: str | None,
        key: str | None,
        *,
        key_strict: bool = False,
    ) -> Event:
        """Store one event and return it; with a key that was used before, return the first event instead.

        With `key_strict` raise KeyConflictError when that one differs.
        """
        self._check(source, kind, subtype, content)
        db = self._db
        if key is not None or db.depth or REF in content:
            return self._push_in(source, kind, content, subtype, key, strict=key_strict)
        db.check_writable()
        created_at = system.stamp(system.now())
        number = db.events.insert(created_at, source, kind, subtype, content)
        event = Event(number, created_at, source, kind, subtype, content)
        self._pushed(event)
        self._wake(source, number, number)
        return event

    def _push_in(
        self, source: str, kind: str, content: str, subtype: str | None, key: str | None, *, strict: bool
    ) -> Event:
        if key is not None:
            check_name(key, "key")
        db = self._db
        with db.write():
            if key is not None and (first := db.events.key(key)) is not None and (event := db.events.event(first)):
                if strict and (conflict := key_conflict(key, event, source, kind, subtype, content)):
                    raise conflict
                return event
            created_at = system.stamp(system.now())
            number = db.events.insert(created_at, source, kind, subtype, content)
            if key is not None:
                db.events.set_key(key, number)
            if REF in content:
                db.events.add_event_refs(number, refs_in(content))
            event = Event(number, created_at, source, kind, subtype, content)
            db.after(lambda: self._pushed(event))
            db.after(lambda: self._tell(source, number, number))
            db.after(self._wake_told)
        return event

    def _pushed(self, event: Event) -> None:
        """Do what follows from a commit of one event."""
        number, _, source, kind, subtype, _ = event
        try:
            self._mirror.append(event)
        except Exception as error:  # noqa: BLE001 (see _forgive)
            self._forgive("mirror", error)
        sub = f" subtype={subtype}" if subtype is not None else ""
        self._journal.info(f"push: source={source} type={kind}{sub} id={number}")

    def _tell(self, source: str, first: int, last: int) -> None:
        """Remember what was pushed in a transaction until its last effect, `_wake_told`."""
        with self._db.lock:  # another thread may be at its own transaction's effects
            self._told.append((source, first, last))

    def _wake_told(self) -> None:
        """Wake the consumers of what was told since the last time: once a transaction, whatever was pushed in it."""
        with self._db.lock:
            told, self._told = self._told, []
        if told:
            self._wake(told[-1][0], min(first for _, first, _ in told), max(last for _, _, last in told))

    def _wake(self, source: str, first: int, last: int) -> None:
        try:
            self._notifier.wake(source, first, last)
        except Exception as error:  # noqa: BLE001 (see _forgive)
            self._forgive("notifier", error)

    def _forgive(self, what: str, error: Exception) -> None:
        """Warn of what went wrong after the commit: the event is stored, and an error would have it pushed again.

        Unless the thread has gone: then it is not.
        """
        if isinstance(error, NotAThreadError):
            raise error
        self._journal.warn(f"{what}: {error}; the event is stored")

    def push_many(
        self,
        events: Iterable[NewEvent],
        where: Callable[[int], str] = "event {}".format,
        *,
        kept: Kept | None = None,
    ) -> Batch:
        """Store events, in order, in one transaction; nothing is stored when one of them is refused.

        An event whose key was used before is left out; when the first event differs from it, `kept` is called, and may
        raise what it is called with. The iterable is read as it goes, in bounded memory. `where` names the n-th event
        in an error.
        """
        db = self._db
        created_at = system.stamp(system.now())
        source = ""
        seen = 0
        with db.write():
            first = db.events.last_id() + 1
            copy = MirrorBlock(first)
            for rows, keys in self._parts(events, created_at, where):
                seen += len(rows)
                if keys:
                    places = map(where, range(seen - len(rows) + 1, seen + 1))
                    rows = self._insert_keyed(rows, keys, places, kept, first)  # noqa: PLW2901 (the rows that were stored)
                elif rows:
                    db.events.insert_many(rows)
                    self._note_refs(rows)
                copy.add(rows)
                source = rows[-1][1] if rows else source
            last = db.events.last_id()
            if last >= first:
                db.after(lambda: self._pushed_many(copy, last))
                db.after(lambda: self._tell(source, first, last))
                db.after(self._wake_told)
        return Batch(last - first + 1, first, last) if last >= first else Batch(0, None, None)

    def _note_refs(self, rows: list[Row]) -> None:
        """Note the blobs that events which were just stored name."""
        if any(REF in row[4] for row in rows):
            for number, row in enumerate(rows, self._db.events.last_id() - len(rows) + 1):
                self._db.events.add_event_refs(number, refs_in(row[4]))

    def _insert_keyed(
        self, rows: list[Row], keys: list[str | None], places: Iterable[str], kept: Kept | None, begun: int
    ) -> list[Row]:
        """Store rows some of which have a key, and return those that were new; `begun` is the first id of the batch."""
        db = self._db
        stored = []
        for row, key, place in zip(rows, keys, places, strict=True):
            if key is not None and (first := db.events.key(key)) is not None:
                if kept and (event := db.events.event(first)) and (conflict := key_conflict(key, event, *row[1:])):
                    conflict.what = f"{place}: {conflict.what}"
                    if first >= begun:  # who refuses this one takes that one back as well
                        conflict.fix = (
                            f"give each event of the batch its own key; nothing of it was stored, nor event {first}"
                        )
                    kept(conflict)
                continue
            number = db.events.insert(*row)
            stored.append(row)
            if key is not None:
                db.events.set_key(key, number)
            if REF in row[4]:
                db.events.add_event_refs(number, refs_in(row[4]))
        return stored

    def _parts(
        self, events: Iterable[NewEvent], created_at: str, where: Callable[[int], str]
    ) -> Iterator[tuple[list[Row], list[str | None]]]:
        """Give events in chunks; those of a list that are all alike are checked together, which costs half as much."""
        if type(events) is not list:
            yield from self._chunks(events, created_at, where)
            return
        for start in range(0, len(events), _CHUNK_ROWS):
            chunk = events[start : start + _CHUNK_ROWS]
            rows = self._alike(chunk, created_at)
            if rows:
                yield rows, []
            else:
                yield from self._chunks(chunk, created_at, lambda n, start=start: where(start + n))  # type: ignore[misc]

    def _alike(self, chunk: list[Any], created_at: str) -> list[Row] | None:
        """Give the rows of a chunk of good events `(source, type, content)`, None when it takes a closer look."""
        if set(map(type, chunk)) != {tuple} or set(map(len, chunk)) != {3}:
            return None
        contents = [new[2] for new in chunk]
        try:
            if set(map(type, contents)) != {str} or not {(new[0], new[1], None) for new in chunk} <= self._known:
                return None
        except TypeError:  # a name that cannot be hashed is none
            return None
        if sum(map(len, contents)) > min(_CHUNK_CHARACTERS, self._limit) or not all(map(str.isascii, contents)):
            return None
        return [(created_at, source, kind, None, content) for source, kind, content in chunk]

    def _chunks(
        self, events: Iterable[NewEvent], created_at: str, where: Callable[[int], str]
    ) -> Iterator[tuple[list[Row], list[str | None]]]:
        """Check events and give them in chunks of bounded size: the rows, and their keys when one has a key."""
        rows: list[Row] = []
        keys: list[str | None] = []
        known, short, size, number = self._known, self._short, 0, 0
        source: Any
        kind: Any
        content: Any
        subtype: Any
        key: Any
        for new in events:
            number += 1  # noqa: SIM113 (enumerate makes a tuple an event)
            try:
                if type(new) is tuple and len(new) == 3:  # what costs least: a batch is bound by this loop
                    source, kind, content = new
                    subtype = key = None
                else:
                    source, kind, content, subtype, key = _fields(new)
                if type(content) is not str or not content.isascii() or len(content) > short:
                    self._check_content(content)
                if (
                    type(source) is not str
                    or type(kind) is not str
                    or type(subtype) not in _NAMES
                    or (source, kind, subtype) not in known
                ):
                    self._check_names(source, kind, subtype)
                if key is not None:
                    check_name(key, "key")
                    keys = keys or [None] * len(rows)
            except (InputError, TooLargeError) as error:
                error.what = f"{where(number)}: {error.what}"
                raise
            if keys or key is not None:
                keys.append(key)
            rows.append((created_at, source, kind, subtype, content))
            size += len(content)
            if size >= _CHUNK_CHARACTERS or len(rows) >= _CHUNK_ROWS:
                yield rows, keys
                rows, keys, size = [], [], 0
        yield rows, keys

    def _pushed_many(self, copy: MirrorBlock, last: int) -> None:
        """Do what follows from a commit of several events."""
        try:
            self._mirror.append_block(copy, last)
        except Exception as error:  # noqa: BLE001 (see _forgive)
            self._forgive("mirror", error)
        self._journal.info(f"push batch: count={last - copy.first + 1} last_id={last}")

    def _check(self, source: str, kind: str, subtype: str | None, content: str) -> None:
        """Refuse what cannot be stored."""
        if (
            type(source) is not str
            or type(kind) is not str
            or type(subtype) not in _NAMES  # what cannot be hashed is refused before it is looked up
            or (source, kind, subtype) not in self._known
        ):
            self._check_names(source, kind, subtype)
        if type(content) is not str or not content.isascii() or len(content) > self._short:
            self._check_content(content)

    def _check_content(self, content: str) -> None:
        if type(content) is not str:
            raise InputError(f"content must be text, not {type(content).__name__}", "give the content as a string")
        if not content.isascii():
            check_whole(content, "content")
        if len(content) * 4 > self._limit:
            size = len(content.encode())
            if size > self._limit:
                raise TooLargeError(size, self._limit)

    def _check_names(self, source: str, kind: str, subtype: str | None) -> None:
        """Refuse bad names, and remember good ones: most pushes repeat them."""
        check_name(source, "source")
        check_name(kind, "type")
        if subtype is not None:
            check_name(subtype, "subtype", empty=True)
        if self._strict:
            from eventq.records import Source

            Source.parse(source)
        if len(self._known) > _KNOWN:
            self._known.clear()
        self._known.add((source, kind, subtype))

    # --- reading --------------------------------------------------------------------------------------------------

    def scan(self, text: str, after: int, limit: int | None, *, lines: bool = False) -> Iterator[tuple[list[Any], int]]:
        """Give the matching events after an id, in order, page by page, each with the id that the search has got to.

        `text` is a filter that was accepted. Nothing is held open between pages, so a slow reader never holds back a
        checkpoint.
        """
        upto = self._db.events.last_id()
        left = limit if limit is not None else 1 << 62
        while left > 0 and after < upto:
            rows, after = self._db.events.page(text, after, upto, left, lines=lines)
            left -= len(rows)
            yield rows, after

    def follow(
        self, text: str, after: int, *, lines: bool = False, tick: Callable[[], object] | None = None
    ) -> Iterator[list[Any]]:
        """Give the matching events after an id, page by page, and wait for more, for ever.

        `tick` is called at least once a second: what it raises ends the wait.
        """
        from eventq.log.bell import SLOW_LOOK, Bell

        with Bell(self._db, self._layout) as bell:
            while True:
                for rows, at in self.scan(text, after, None, lines=lines):
                    after = at
                    if rows:
                        yield rows
                bell.wait(SLOW_LOOK)
                if tick is not None:
                    tick()

    def peek(self, after: int, limit: int | None, text: str | None) -> Iterator[Event]:
        """Give the matching events after an id; the filter is checked at once, the events are read lazily."""
        accepted = self._db.events.check_filter(text)
        return (Event._make(row) for rows, _ in self.scan(accepted, after, limit) for row in rows)

    def last(self, count: int, text: str | None) -> list[Event]:
        """Give the newest `count` matching events, oldest first."""
        accepted = self._db.events.check_filter(text)
        return [Event._make(row) for row in self._db.events.newest(accepted, self._db.events.last_id(), count)]

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def prune(self, keep_last: int | None, before_id: int | None, *, force: bool) -> int:
        """Delete old events that every consumer has acked (all with `force`); give their number."""
        if (keep_last is None) == (before_id is None):
            raise UsageError("prune needs --keep-last or --before-id, and not both", "give one of the two")
        db = self._db
        with db.write():
            before = before_id if before_id is not None else self._keep(keep_last or 0)
            before = min(before, db.events.last_id() + 1)
            if not force:
                self._check_acked(before)
            count = db.events.prune(before)
            db.after(lambda: self._journal.info(f"prune: count={count} before_id={before}"))
        if not db.depth and (count or db.free_pages()):  # an earlier prune may have deleted and then failed
            self._give_back(count)
        return count

    def _give_back(self, count: int) -> None:
        try:
            self._db.vacuum()
        except DiskError as error:
            raise DiskError(
                f"{count} events were deleted, but their space could not be given back: {error.what}",
                "free some space, then prune again",
            ) from error

    def _keep(self, count: int) -> int:
        return self._db.events.id_from_end(count) if count else self._db.events.last_id() + 1

    def _check_acked(self, before: int) -> None:
        for row in self._db.consumers.subscriptions():
            if row[3] < before - 1 and self._db.events.first_match("", row[3], before - 1) is not None:
                raise LogicError(
                    f"consumer '{row[0]}' has acked {row[3]} only: events below {before} are not all read",
                    "let it catch up, prune less, or use --force",
                )


def key_conflict(
    key: str, event: Event, source: str, kind: str, subtype: str | None, content: str
) -> KeyConflictError | None:
    """Return the error of a push whose key is that of another `event`, None when both are alike."""
    new = {"source": source, "type": kind, "subtype": subtype, "content": content}
    fields = [name for name, value in new.items() if getattr(event, name) != value]
    return KeyConflictError(key, event.id, fields) if fields else None


def refuse_conflict(conflict: KeyConflictError) -> None:
    """Raise the error of a key that is taken strictly."""
    raise conflict


def _fields(new: NewEvent) -> tuple[Any, Any, Any, Any, Any]:
    """Give source, type, content, subtype and key of an event given as a mapping or as a sequence in that order."""
    if type(new) is dict or hasattr(new, "keys"):
        try:
            return new["source"], new["type"], new["content"], new.get("subtype"), new.get("key")  # type: ignore[call-overload, union-attr]
        except KeyError as error:
            raise InputError(f"{error.args[0]} is missing", "give source, type and content") from error
    if isinstance(new, Event):
        return new.source, new.type, new.content, new.subtype, None
    if isinstance(new, (str, bytes)) or not hasattr(new, "__getitem__") or not 3 <= len(new) <= len(_FIELDS):
        raise InputError("an event is a mapping or (source, type, content[, subtype[, key]])", "give one of the two")
    return (*new, None, None)[: len(_FIELDS)]  # type: ignore[return-value]
