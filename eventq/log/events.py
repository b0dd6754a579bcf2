"""The event log: push, peek, tail, follow, prune."""

from __future__ import annotations

from eventq.errors import (
    InputError,
    KeyConflictError,
    LogicError,
    PositionError,
    TooLargeError,
    UsageError,
)
from eventq.records.checks import REF, check_name, check_natural, check_whole, refs_in
from eventq.records.event import ANSWER, NOTED, Batch, Event, NewEvent, may_answer, question_in
from eventq.system import clock, environment
from eventq.system.clock import SLOW_LOOK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.errors import EventqError
    from eventq.log.journal import Journal
    from eventq.records.event import EventPage, LinePage
    from eventq.records.question import Answerer
    from eventq.store.protocol import Database

    EventInput = Mapping[str, Any] | Sequence[str | None]
    OnConflict = Callable[[KeyConflictError], object]
    # Checked events, and what those with keys are called in errors, by their place.
    Chunk = tuple[Sequence[NewEvent], Mapping[int, str]]

MAX_EVENT_BYTES = 64 << 20
_FIELDS = ("source", "type", "content", "subtype", "key")
_CHUNK_CHARACTERS = 4 << 20
_NAMES = (str, type(None))
_SHORT = 1_000  # ASCII content of up to this many characters needs no size check
_KNOWN = 1_000  # how many valid names are remembered
_new: Any = tuple.__new__  # makes a record without a call of Python


def stale_at(db: Database) -> float:
    """Return when an event that is read now is to be read again; never, where none is erased."""
    return clock.monotonic() + SLOW_LOOK if db.has_memory() else float("inf")


def fresh(db: Database, events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of a page; what was read more than a second ago is read again.

    A slow reader may hold a page for minutes, and an event be erased meanwhile; what was pruned is
    left out.
    """
    until = stale_at(db)
    for event in events:
        found = event if clock.monotonic() < until else db.events.get(event.id)
        if found is not None:
            yield found


def limit_of_event() -> int:
    """Return the maximum size of an event in bytes. Raises UsageError for an invalid variable."""
    return environment.env_bytes("EVENTQ_MAX_EVENT_BYTES", MAX_EVENT_BYTES)


class EventLog:
    """The events of one thread: checked and stored, read, followed and pruned."""

    def __init__(
        self, db: Database, journal: Journal, folder: str, *, strict: bool | None = None
    ) -> None:
        """Use a database, and a folder for files without a name.

        `strict` refuses free-text sources (default: EVENTQ_STRICT_SOURCE). Raises UsageError for a
        variable that is invalid.
        """
        if strict is None:
            strict = environment.env_choice("EVENTQ_STRICT_SOURCE", "0", "1") == "1"
        self._strict = strict
        self._db = db
        self._journal = journal
        self._folder = folder
        self._limit = limit_of_event()
        self._short = min(_SHORT, self._limit // 4)  # characters that cannot exceed the limit
        self._known: set[tuple[str, str, str | None]] = set()  # names found valid before
        self.answerer: Callable[[], Answerer] = _program  # who answers by what is pushed here

    # --- writing ----------------------------------------------------------------------------------

    def push(
        self,
        source: str,
        type: str,
        content: str,
        subtype: str | None,
        key: str | None,
        *,
        key_strict: bool = False,
    ) -> Event:
        """Store one event and return it.

        If its key was used before, return the first event with it instead; with `key_strict`,
        raise KeyConflictError if that event differs.
        """
        self._check(source, type, subtype, content)
        if key is not None:
            check_name(key, "key")
            if question_in(key) is not None:
                content = self._signed(source, type, content, subtype, key)
        new: NewEvent = _new(NewEvent, (source, type, content, subtype, key))
        is_plain = key is None and REF not in content and type not in NOTED
        if is_plain and not self._db.stated_causes():
            return self._db.events.add(new)
        return self._push_keyed(new, key_strict=key_strict)

    def _push_keyed(self, new: NewEvent, *, key_strict: bool) -> Event:
        source, type_, content, subtype, _ = new
        refs = {0: refs_in(content)} if REF in content else None
        while True:
            made = self._db.events.append((new,), refs)
            if made.first:
                return Event(made.first, made.created_at, source, type_, subtype, content)
            event = self._db.events.get(made.found[0][1])
            if event is None:
                continue  # pruned between the two reads: the key is free again
            if key_strict and (conflict := key_conflict(event, new)):
                raise conflict
            return event

    def push_many(
        self,
        events: Iterable[EventInput],
        where: Callable[[int], str] = "event {}".format,
        *,
        on_conflict: OnConflict | None = None,
    ) -> Batch:
        """Store events in order in one transaction; if one is refused, store none.

        An event whose key was used before is skipped. If it differs from the first event with that
        key, `on_conflict` is called, and may raise its argument. `where` names the n-th event in an
        error; it is called while that is the last one read.

        The iterable is consumed in bounded memory, before the transaction begins: it may be slow,
        and nobody else could store anything meanwhile. Inside `write` it is read as it is stored.
        """
        if type(events) in (list, tuple) or self._db.in_write():
            return self._store(self._chunks(events, where), on_conflict)
        from eventq.log.ahead import ReadAhead

        self._db.check_writable()
        with ReadAhead(self._folder) as ahead:
            ahead.fill(self._chunks(events, where))
            return self._store(ahead, on_conflict)

    def _store(self, chunks: Iterable[Chunk], on_conflict: OnConflict | None) -> Batch:
        """Store checked events in one transaction."""
        stored = self._db.events
        first = last = count = 0
        at: str | None = None
        with self._db.write():
            for rows, names in chunks:
                try:
                    made = stored.append(rows, _refs_of(rows), at)
                except (InputError, LogicError) as error:
                    if (place := getattr(error, "place", None)) is not None:
                        error.what = f"{names[place]}: {error.what}"
                    raise
                at = made.created_at
                if made.first:
                    first, last = first or made.first, made.last
                    count += len(rows) - len(made.found)
                if on_conflict is not None:
                    self._compare(rows, made.found, first, on_conflict, names)
        return Batch(count, first or None, last or None)

    def push_each(
        self, events: Sequence[EventInput], where: Callable[[int], str] = "event {}".format
    ) -> list[int | EventqError]:
        """Store those events of a group that are valid, in one transaction.

        Returns the id of each, or why it was not stored: InputError, TooLargeError, LogicError for
        an answer that is refused, or KeyConflictError if it differs from the first event with its
        key. The id of one whose key was used before is that of the first event. `where` names the
        n-th event in an error.
        """
        found: list[Any] = []
        rows: list[NewEvent] = []
        for index, new in enumerate(events):
            try:
                ((checked, _),) = self._checked((new,), _from(where, index))
                rows += checked
                found.append(None)
            except (InputError, TooLargeError) as error:
                found.append(error)
        ids = iter(self._ids_of(rows) if rows else ())
        for index, refused in enumerate(found):
            if refused is None:
                found[index] = made = next(ids)
                if isinstance(made, (InputError, LogicError)):
                    made.what = f"{where(index + 1)}: {made.what}"
        return found

    def _ids_of(self, rows: Sequence[NewEvent]) -> list[int | EventqError]:
        """Store checked events in one transaction; return the id of each, or why it is refused."""
        stored = self._db.events
        ids: list[int | EventqError] = []
        at: str | None = None
        with self._db.write():
            for part in _parts(rows, stored.most_rows):
                try:
                    made = stored.append(part, _refs_of(part), at)
                except (InputError, LogicError) as error:
                    if not may_answer(part[0]):
                        raise
                    ids.append(error)
                    continue
                at, known, number = made.created_at, dict(made.found), made.first
                for index, row in enumerate(part):
                    if index not in known:
                        ids.append(number)
                        number += 1
                        continue
                    event = stored.get(known[index])
                    ids.append((key_conflict(event, row) if event else None) or known[index])
        return ids

    def _compare(
        self,
        rows: Sequence[NewEvent],
        found: Iterable[tuple[int, int]],
        begun: int,
        on_conflict: OnConflict,
        names: Mapping[int, str],
    ) -> None:
        """Call `on_conflict` for each event that differs from the first one with its key.

        `begun` is the first id of the batch.
        """
        for index, number in found:
            event = self._db.events.get(number)
            conflict = key_conflict(event, rows[index]) if event else None
            if conflict is None:
                continue
            conflict.what = f"{names[index]}: {conflict.what}"
            if begun and number >= begun:  # if this one is refused, that one is not stored either
                conflict.fix = (
                    f"give each event of the batch its own key; nothing of it was stored, nor"
                    f" event {number}"
                )
            on_conflict(conflict)

    def _chunks(self, events: Iterable[EventInput], where: Callable[[int], str]) -> Iterator[Chunk]:
        """Check events and yield them in chunks of bounded size.

        A list's events that are all plain triples are checked together, at half the cost.
        """
        if type(events) is not list:
            yield from self._checked(events, where)
            return
        step = self._db.events.most_rows
        for start in range(0, len(events), step):
            chunk = events[start : start + step]
            rows = self._alike(chunk)
            if rows:
                yield rows, {}
            else:
                yield from self._checked(chunk, _from(where, start))

    def _alike(self, chunk: list[Any]) -> list[NewEvent] | None:
        """Return the rows of a chunk of valid `(source, type, content)`, else None."""
        if set(map(type, chunk)) != {tuple} or set(map(len, chunk)) != {3}:
            return None
        contents = [new[2] for new in chunk]
        try:
            if (
                set(map(type, contents)) != {str}
                or not {(new[0], new[1], None) for new in chunk} <= self._known
            ):
                return None
        except TypeError:  # a name that cannot be hashed is not valid
            return None
        if sum(map(len, contents)) > min(_CHUNK_CHARACTERS, self._limit) or not all(
            map(str.isascii, contents)
        ):
            return None
        # Plain tuples here and in `_checked`: SQLite takes a tenth longer to store records.
        rows: Any = [(source, kind, content, None, None) for source, kind, content in chunk]
        return rows  # type: ignore[no-any-return]

    def _checked(
        self, events: Iterable[EventInput], where: Callable[[int], str]
    ) -> Iterator[Chunk]:
        """Check each event, and yield them in chunks."""
        rows: list[Any] = []
        names: dict[int, str] = {}
        known, short, size, number = self._known, self._short, 0, 0
        most = self._db.events.most_rows
        source: Any
        type_: Any
        content: Any
        subtype: Any
        key: Any
        for new in events:
            number += 1  # noqa: SIM113 (enumerate makes a tuple per event)
            try:
                # The cheapest case comes first: this loop bounds the speed of a batch.
                if type(new) is tuple and len(new) == 3:
                    source, type_, content = new
                    subtype = key = None
                else:
                    source, type_, content, subtype, key = _fields(new)
                if type(content) is not str or not content.isascii() or len(content) > short:
                    self._check_content(content)
                if (
                    type(source) is not str
                    or type(type_) is not str
                    or type(subtype) not in _NAMES
                    or (source, type_, subtype) not in known
                ):
                    self._check_names(source, type_, subtype)
                    source, type_, subtype = map(_plain, (source, type_, subtype))
                    if type_ == ANSWER:
                        names[len(rows)] = where(number)
                if key is not None:
                    check_name(key, "key")
                    key = _plain(key)
                    if question_in(key) is not None:
                        content = self._signed(source, type_, content, subtype, key)
                    names[len(rows)] = where(number)
            except (InputError, TooLargeError) as error:
                error.what = f"{where(number)}: {error.what}"
                raise
            rows.append((source, type_, content, subtype, key))
            size += len(content)
            if size >= _CHUNK_CHARACTERS or len(rows) >= most:
                yield rows, names
                rows, names, size = [], {}, 0
        if rows:
            yield rows, names

    def _signed(self, source: str, type_: str, content: str, subtype: str | None, key: str) -> str:
        """Return the content of an answer, with who gives it."""
        from eventq.store.question_rules import signed  # few pushes answer

        content = signed(NewEvent(source, type_, content, subtype, key), self.answerer())
        self._check_content(content)
        return content

    def check_source(self, source: str) -> None:
        """Raise InputError unless `source` can be the source of a turn's or run's event."""
        if type(source) is not str or (source, "record", None) not in self._known:
            self._check_names(source, "record", None)

    def _check(self, source: str, type_: str, subtype: str | None, content: str) -> None:
        """Raise InputError or TooLargeError for an event that cannot be stored."""
        # The types are checked first, as the lookup raises for a value that cannot be hashed.
        if (
            type(source) is not str
            or type(type_) is not str
            or type(subtype) not in _NAMES
            or (source, type_, subtype) not in self._known
        ):
            self._check_names(source, type_, subtype)
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

    def _check_names(self, source: str, type_: str, subtype: str | None) -> None:
        """Raise InputError for a bad name. Good ones are remembered: most pushes repeat them."""
        check_name(source, "source")
        check_name(type_, "type")
        if subtype is not None:
            check_name(subtype, "subtype", empty=True)
        if self._strict:
            from eventq.records.source import Source

            Source.parse(source)
        if type_ == ANSWER:  # each is looked at: it may be refused, by its name in the batch
            return
        if len(self._known) > _KNOWN:
            self._known.clear()
        self._known.add((source, type_, subtype))

    # --- reading ----------------------------------------------------------------------------------

    def check_position(self, after: int) -> None:
        """Raise PositionError for an id above the newest that ever was."""
        if after > self._db.events.last():
            # A reader may be left behind by files that were copied: its next look would tell.
            self._db.alive(thorough=True)
            if after > (last := self._db.events.last()):
                raise PositionError(after, last)

    def gap_after(self, after: int) -> tuple[int, int] | None:
        """Return the first and the last id that a prune has deleted after a position above 0.

        None stands for no gap. Raises PositionError.
        """
        self.check_position(after)
        bounds = self._db.events.bounds()
        oldest = bounds.first or bounds.last + 1
        return (after + 1, oldest - 1) if 0 < after < oldest - 1 else None

    def scan(
        self, where: str, after: int, limit: int | None, upto: int | None = None
    ) -> Iterator[EventPage]:
        """Yield the events after an id that match an accepted filter, in order, page by page.

        With `upto` none above it. No transaction is open between pages, so a slow reader never
        delays a checkpoint.
        """
        events = self._db.events
        upto = events.last() if upto is None else upto
        left = limit if limit is not None else 1 << 62
        while left > 0 and after < upto:
            page = events.page(where, after, upto, left)
            left, after = left - len(page.events), page.next
            yield page

    def lines(
        self, filter: str | None, after: int, limit: int | None, upto: int | None = None
    ) -> Iterator[LinePage]:
        """Yield the matching events after an id, up to another, as lines of JSON, page by page."""
        events = self._db.events
        accepted = events.accept(filter)
        upto = events.last() if upto is None else upto
        left = limit if limit is not None else 1 << 62
        while left > 0 and after < upto:
            page = events.lines(accepted, after, upto, left)
            left, after = left - len(page.lines), page.next
            yield page

    def follow(
        self, where: str, after: int, *, tick: Callable[[], object] | None = None
    ) -> Iterator[list[Event]]:
        """Yield the matching events after an id, page by page, and wait for more, forever.

        `tick` is called at least once a second; an exception that it raises ends the wait. Raises
        PositionError once the log ends before what was read.
        """
        with self._db.watch() as watcher:
            while True:
                self.check_position(after)
                for page in self.scan(where, after, None):
                    after = page.next
                    if page.events:
                        yield page.events
                watcher.wait(SLOW_LOOK)
                if tick is not None:
                    tick()

    def peek(self, after: int, limit: int | None, filter: str | None) -> Iterator[Event]:
        """Check the filter, then return an iterator of the matching events after an id."""
        accepted = self._db.events.accept(filter)
        pages = self.scan(accepted, after, limit)
        return (event for page in pages for event in fresh(self._db, page.events))

    def newest(
        self, count: int, filter: str | None, upto: int | None = None, after: int = 0
    ) -> list[Event]:
        """Return the newest `count` matching events of a range of ids, oldest first."""
        events = self._db.events
        upto = events.last() if upto is None else upto
        return events.newest(events.accept(filter), upto, count, after=after)

    def newest_pages(
        self, count: int, filter: str | None, upto: int, after: int
    ) -> Iterator[list[Event]]:
        """Yield what `newest` returns, page by page where it may be the whole range."""
        if count >= upto - after:
            where = self._db.events.accept(filter)
            yield from (page.events for page in self.scan(where, after, None, upto))
        elif count:
            yield self.newest(count, filter, upto, after)

    # --- maintenance ------------------------------------------------------------------------------

    def prune(
        self, keep_last: int | None, before_id: int | None, *, force: bool
    ) -> tuple[int, int]:
        """Delete old events that every consumer acked, or any with `force`.

        Returns how many there were, and the id below which there are none.
        """
        db = self._db
        with db.write():
            before = self.prunable(keep_last, before_id, force=force).stop
            count = db.events.prune(before)
            db.on_commit(lambda: self._journal.info(f"prune: count={count} before_id={before}"))
        return count, before

    def prunable(self, keep_last: int | None, before_id: int | None, *, force: bool) -> range:
        """Return the ids that `prune` would delete; raise what it would raise."""
        if (keep_last is None) == (before_id is None):
            raise UsageError(
                "prune needs either --keep-last or --before-id", "give exactly one of the two"
            )
        for name, value in (("keep_last", keep_last), ("before_id", before_id)):
            if value is not None:
                check_natural(value, name)
        events = self._db.events
        before = before_id if before_id is not None else self._keep(keep_last or 0)
        before = min(before, events.last() + 1)
        if not force:
            self._check_acked(before)
        return range(events.bounds().first or before, before)

    def _keep(self, count: int) -> int:
        events = self._db.events
        return events.from_end(count) if count else events.last() + 1

    def _check_acked(self, before: int) -> None:
        queues = self._db.claims.statuses() if self._db.has_queues() else {}
        for state in self._db.consumers.all():
            if (
                state.acked < before - 1
                and self._db.events.first_match("", state.acked, before - 1) is not None
            ):
                raise LogicError(
                    f"consumer '{state.consumer}' has acked only up to {state.acked}, so some"
                    f" events below {before} are unread",
                    "let it catch up, prune less, or use --force",
                )
            # A dead letter that is tried again lies before what was acked.
            queue = queues.get(state.consumer)
            waits = None if queue is None else queue.revived
            if waits is not None and waits < before:
                raise LogicError(
                    f"consumer '{state.consumer}' is yet to try event {waits} again",
                    "let it finish, prune less, or use --force",
                )


def key_conflict(event: Event, new: NewEvent) -> KeyConflictError | None:
    """Return the error for `new` having the key of another event; None if both are equal.

    Two answers to one question are equal here: a second one that differs is not stored at all.
    """
    source, type_, content, subtype, key = new
    if question_in(key) is not None:
        return None
    pushed = {"source": source, "type": type_, "subtype": subtype, "content": content}
    fields = [name for name, value in pushed.items() if getattr(event, name) != value]
    return KeyConflictError(key or "", event.id, fields) if fields else None


def _parts(rows: Sequence[NewEvent], most: int) -> Iterator[Sequence[NewEvent]]:
    """Yield events in parts of at most so many; what may be refused as an answer by itself."""
    start = 0
    for at, row in enumerate(rows):
        if may_answer(row):
            if start < at:
                yield rows[start:at]
            yield rows[at : at + 1]
            start = at + 1
        elif at - start + 1 == most:
            yield rows[start : at + 1]
            start = at + 1
    if start < len(rows):
        yield rows[start:]


def _program() -> Answerer:
    """Return who answers by a program that uses the library: the user whose process it is."""
    from eventq.records.question import Answerer

    return Answerer("program", environment.user_name())


def refuse_conflict(conflict: KeyConflictError) -> None:
    """Raise the error, as `key_strict` asks."""
    raise conflict


def _fields(new: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return source, type, content, subtype and key of a mapping or a sequence in that order."""
    if type(new) is dict or hasattr(new, "keys"):
        try:
            return new["source"], new["type"], new["content"], new.get("subtype"), new.get("key")
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
    fields: Any = (*new, None, None)[: len(_FIELDS)]
    return fields  # type: ignore[no-any-return]


def _plain(name: str | None) -> str | None:
    """Return a name of a subclass of `str`, such as a StrEnum, as plain text."""
    return name if type(name) in _NAMES else str.__str__(name)


def _from(where: Callable[[int], str], start: int) -> Callable[[int], str]:
    """Return a function that names the events of a chunk, counted from 1, after `start` others."""
    return lambda number: where(start + number)


def _refs_of(rows: Sequence[NewEvent]) -> dict[int, set[bytes]] | None:
    """Return the blobs that events refer to, by the indexes of the events."""
    texts = enumerate([content for _, _, content, _, _ in rows])
    return {index: refs_in(text) for index, text in texts if REF in text} or None
