"""The log itself: push, peek, tail, follow, prune."""

from __future__ import annotations

from eventq import system
from eventq.errors import (
    DiskError,
    InputError,
    KeyConflictError,
    LogicError,
    TooLargeError,
    UsageError,
)
from eventq.event import REF, Batch, Event, NewEvent, check_name, check_whole, refs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.event import EventPage, LinePage
    from eventq.storage.sqlite.database import Database
    from eventq.workspace.journal import Journal
    from eventq.workspace.layout import Layout

    EventInput = Mapping[str, Any] | Sequence[str | None]
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
    """The events of one thread: checked and stored, read, followed and pruned."""

    def __init__(
        self, db: Database, layout: Layout, journal: Journal, *, strict: bool | None = None
    ) -> None:
        """Read and write a database; `strict` refuses free-text sources, None asks EVENTQ_STRICT_SOURCE."""
        self._strict = system.env("EVENTQ_STRICT_SOURCE") == "1" if strict is None else strict
        self._db = db
        self._layout = layout
        self._journal = journal
        self._limit = limit_of_event()
        self._short = min(
            _SHORT, self._limit // 4
        )  # characters of content that cannot be too many bytes
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
        if key is not None:
            check_name(key, "key")
        new: Any = (
            source,
            kind,
            content,
            subtype,
            key,
        )  # as a `NewEvent`, whose making costs a call
        if key is None and REF not in content:
            return self._db.events.add(new)
        return self._push_keyed(new, key_strict=key_strict)

    def _push_keyed(self, new: NewEvent, *, key_strict: bool) -> Event:
        source, kind, content, subtype, _ = new
        refs = {0: refs_in(content)} if REF in content else None
        while True:
            made = self._db.events.append((new,), refs)
            if made.first:
                return Event(made.first, made.created_at, source, kind, subtype, content)
            event = self._db.events.get(made.found[0][1])
            if event is None:
                continue  # pruned between the two looks: the key is free again
            if key_strict and (conflict := key_conflict(event, new)):
                raise conflict
            return event

    def push_many(
        self,
        events: Iterable[EventInput],
        where: Callable[[int], str] = "event {}".format,
        *,
        kept: Kept | None = None,
    ) -> Batch:
        """Store events, in order, in one transaction; nothing is stored when one of them is refused.

        An event whose key was used before is left out; when the first event differs from it, `kept` is called, and may
        raise what it is called with. The iterable is read as it goes, in bounded memory. `where` names the n-th event
        in an error.
        """
        events_ = self._db.events
        first = last = count = place = 0
        at: str | None = None
        with self._db.write():
            for rows in self._parts(events, where):
                made = events_.append(rows, _refs_of(rows), at)
                at = made.created_at
                if made.first:
                    first, last = first or made.first, made.last
                    count += len(rows) - len(made.found)
                if kept is not None:
                    self._compare(rows, made.found, first, kept, _from(where, place))
                place += len(rows)
        return Batch(count, first or None, last or None)

    def _compare(
        self,
        rows: Sequence[NewEvent],
        found: Iterable[tuple[int, int]],
        begun: int,
        kept: Kept,
        where: Callable[[int], str],
    ) -> None:
        """Call `kept` for each event that differs from the first one of its key; `begun` is the batch's first id."""
        for place, number in found:
            event = self._db.events.get(number)
            conflict = key_conflict(event, rows[place]) if event else None
            if conflict is None:
                continue
            conflict.what = f"{where(place)}: {conflict.what}"
            if begun and number >= begun:  # who refuses this one takes that one back as well
                conflict.fix = (
                    f"give each event of the batch its own key; nothing of it was stored, nor"
                    f" event {number}"
                )
            kept(conflict)

    def _parts(
        self, events: Iterable[EventInput], where: Callable[[int], str]
    ) -> Iterator[Sequence[NewEvent]]:
        """Yield events in chunks; those of a list that are all alike are checked together, which costs half as much."""
        if type(events) is not list:
            yield from self._chunks(events, where)
            return
        for start in range(0, len(events), _CHUNK_ROWS):
            chunk = events[start : start + _CHUNK_ROWS]
            rows = self._alike(chunk)
            if rows:
                yield rows
            else:
                yield from self._chunks(chunk, lambda n, start=start: where(start + n))  # type: ignore[misc]

    def _alike(self, chunk: list[Any]) -> list[NewEvent] | None:
        """Return the rows of a chunk of good events `(source, type, content)`, None when it takes a closer look."""
        if set(map(type, chunk)) != {tuple} or set(map(len, chunk)) != {3}:
            return None
        contents = [new[2] for new in chunk]
        try:
            if (
                set(map(type, contents)) != {str}
                or not {(new[0], new[1], None) for new in chunk} <= self._known
            ):
                return None
        except TypeError:  # a name that cannot be hashed is none
            return None
        if sum(map(len, contents)) > min(_CHUNK_CHARACTERS, self._limit) or not all(
            map(str.isascii, contents)
        ):
            return None
        return [(source, kind, content, None, None) for source, kind, content in chunk]  # type: ignore[misc]

    def _chunks(
        self, events: Iterable[EventInput], where: Callable[[int], str]
    ) -> Iterator[list[NewEvent]]:
        """Check events and yield them in chunks of bounded size."""
        rows: list[Any] = []
        known, short, size, number = self._known, self._short, 0, 0
        source: Any
        kind: Any
        content: Any
        subtype: Any
        key: Any
        for new in events:
            number += 1  # noqa: SIM113 (enumerate makes a tuple an event)
            try:
                if (
                    type(new) is tuple and len(new) == 3
                ):  # what costs least: a batch is bound by this loop
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
            except (InputError, TooLargeError) as error:
                error.what = f"{where(number)}: {error.what}"
                raise
            rows.append((source, kind, content, subtype, key))
            size += len(content)
            if size >= _CHUNK_CHARACTERS or len(rows) >= _CHUNK_ROWS:
                yield rows
                rows, size = [], 0
        if rows:
            yield rows

    def check_source(self, source: str) -> None:
        """Refuse what cannot be the source of an event that tells of a turn or a run."""
        if type(source) is not str or (source, "record", None) not in self._known:
            self._check_names(source, "record", None)

    def _check(self, source: str, kind: str, subtype: str | None, content: str) -> None:
        """Refuse what cannot be stored."""
        if (
            type(source) is not str
            or type(kind) is not str
            or type(subtype)
            not in _NAMES  # what cannot be hashed is refused before it is looked up
            or (source, kind, subtype) not in self._known
        ):
            self._check_names(source, kind, subtype)
        if type(content) is not str or not content.isascii() or len(content) > self._short:
            self._check_content(content)

    def _check_content(self, content: str) -> None:
        if type(content) is not str:
            raise InputError(
                f"content must be text, not {type(content).__name__}",
                "give the content as a string",
            )
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

    def scan(self, text: str, after: int, limit: int | None) -> Iterator[EventPage]:
        """Yield the events after an id that match an accepted filter, in order, page by page.

        Nothing is held open between pages, so a slow reader never holds back a checkpoint.
        """
        events = self._db.events
        upto, left = events.last(), limit if limit is not None else 1 << 62
        while left > 0 and after < upto:
            page = events.page(text, after, upto, left)
            left, after = left - len(page.events), page.next
            yield page

    def lines(self, text: str | None, after: int, limit: int | None) -> Iterator[LinePage]:
        """Yield the events after an id that match a filter, as lines of JSON, page by page."""
        events = self._db.events
        accepted = events.accept(text)
        upto, left = events.last(), limit if limit is not None else 1 << 62
        while left > 0 and after < upto:
            page = events.lines(accepted, after, upto, left)
            left, after = left - len(page.lines), page.next
            yield page

    def follow(
        self, text: str, after: int, *, tick: Callable[[], object] | None = None
    ) -> Iterator[list[Event]]:
        """Yield the events after an id that match, page by page, and wait for more, for ever.

        `tick` is called at least once a second: what it raises ends the wait.
        """
        from eventq.workspace.watcher import SLOW_LOOK, Watcher

        with Watcher(self._db, self._layout) as watcher:
            while True:
                for page in self.scan(text, after, None):
                    after = page.next
                    if page.events:
                        yield page.events
                watcher.wait(SLOW_LOOK)
                if tick is not None:
                    tick()

    def peek(self, after: int, limit: int | None, text: str | None) -> Iterator[Event]:
        """Return the matching events after an id; the filter is checked at once, the events are read lazily."""
        accepted = self._db.events.accept(text)
        return (event for page in self.scan(accepted, after, limit) for event in page.events)

    def newest(self, count: int, text: str | None, upto: int | None = None) -> list[Event]:
        """Return the newest `count` matching events, oldest first; with `upto` none above that id."""
        events = self._db.events
        return events.newest(events.accept(text), events.last() if upto is None else upto, count)

    # --- upkeep ---------------------------------------------------------------------------------------------------

    def prune(self, keep_last: int | None, before_id: int | None, *, force: bool) -> int:
        """Delete old events that every consumer has acked (all with `force`); give their number."""
        if (keep_last is None) == (before_id is None):
            raise UsageError(
                "prune needs --keep-last or --before-id, and not both", "give one of the two"
            )
        db = self._db
        with db.write():
            before = before_id if before_id is not None else self._keep(keep_last or 0)
            before = min(before, db.events.last() + 1)
            if not force:
                self._check_acked(before)
            count = db.events.prune(before)
            db.on_commit(lambda: self._journal.info(f"prune: count={count} before_id={before}"))
        if not count and not db.free_bytes():  # an earlier prune may have deleted and then failed
            return 0
        try:
            db.compact()
        except DiskError as error:
            raise DiskError(
                f"{count} events were deleted, but their space could not be given back:"
                f" {error.what}",
                "free some space, then prune again",
            ) from error
        return count

    def _keep(self, count: int) -> int:
        events = self._db.events
        return events.from_end(count) if count else events.last() + 1

    def _check_acked(self, before: int) -> None:
        for state in self._db.consumers.all():
            if (
                state.acked < before - 1
                and self._db.events.first_match("", state.acked, before - 1) is not None
            ):
                raise LogicError(
                    f"consumer '{state.consumer}' has acked {state.acked} only: events below"
                    f" {before} are not all read",
                    "let it catch up, prune less, or use --force",
                )


def key_conflict(event: Event, new: NewEvent) -> KeyConflictError | None:
    """Return the error of a push whose key is that of another `event`, None when both are alike."""
    source, kind, content, subtype, key = new
    given = {"source": source, "type": kind, "subtype": subtype, "content": content}
    fields = [name for name, value in given.items() if getattr(event, name) != value]
    return KeyConflictError(key or "", event.id, fields) if fields else None


def refuse_conflict(conflict: KeyConflictError) -> None:
    """Raise the error of a key that is taken strictly."""
    raise conflict


def _fields(new: EventInput) -> tuple[Any, Any, Any, Any, Any]:
    """Give source, type, content, subtype and key of an event given as a mapping or as a sequence in that order."""
    if type(new) is dict or hasattr(new, "keys"):
        try:
            return new["source"], new["type"], new["content"], new.get("subtype"), new.get("key")  # type: ignore[call-overload, union-attr]
        except KeyError as error:
            raise InputError(
                f"{error.args[0]} is missing", "give source, type and content"
            ) from error
    if isinstance(new, Event):
        return new.source, new.type, new.content, new.subtype, None
    if (
        isinstance(new, (str, bytes))
        or not hasattr(new, "__getitem__")
        or not 3 <= len(new) <= len(_FIELDS)
    ):
        raise InputError(
            "an event is a mapping or (source, type, content[, subtype[, key]])",
            "give one of the two",
        )
    return (*new, None, None)[: len(_FIELDS)]  # type: ignore[return-value]


def _from(where: Callable[[int], str], start: int) -> Callable[[int], str]:
    """Return what names the events of a part, counted from 0, that begins after `start` others."""
    return lambda place: where(start + place + 1)


def _refs_of(rows: Sequence[NewEvent]) -> dict[int, set[bytes]] | None:
    """Return the blobs that events name, by the places of the events."""
    return {place: refs_in(row[2]) for place, row in enumerate(rows) if REF in row[2]} or None
