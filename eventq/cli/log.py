"""The commands of the log: push, pop, ack, peek and tail."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import (
    CONSUMER,
    FILTER,
    IS_THREAD,
    JSON,
    JSON_ERRORS,
    READ,
    THREAD,
    unless_thread,
)
from eventq.cli.rules import exclude, needs, one_of, required, unless
from eventq.cli.table import Argument, Command, Option, is_given, together
from eventq.errors import InputError, LogicError, UsageError, reason, refused
from eventq.log.events import fresh, key_conflict, limit_of_event
from eventq.log.mirror_lines import line
from eventq.records.event import NewEvent
from eventq.system import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypedDict

    from eventq.cli.columns import Columns
    from eventq.cli.table import Raw
    from eventq.errors import KeyConflictError
    from eventq.records.event import Event
    from eventq.store.protocol import Database
    from eventq.thread import Thread

    class Pushed(TypedDict):
        """An event to be stored, without its content."""

        source: str
        type: str
        subtype: str | None
        key: str | None

    class Many(TypedDict):
        """Whether stdin brings many events, and in which form."""

        batch: bool
        stream: bool
        lines: bool

    class Wanted(TypedDict):
        """Which events are shown; under `thread` there is only the filter."""

        filter: str | None
        since: float | None
        until: float | None
        type: list[str]
        source: list[str]


def push(
    thread: Thread,
    *,
    event: Pushed,
    content: str | None,
    content_file: str | None,
    many: Many,
    key_strict: bool,
    json: bool,
) -> int:
    """Store an event durably, and wake its consumers."""
    thread.log.answerer = show.answerer
    if many["batch"]:
        _push_batch(thread, key_strict=key_strict, json=json)
        _restart(thread)
        return 0
    if many["stream"]:
        from eventq.cli import stream

        return stream.push(
            thread, event if many["lines"] else None, key_strict=key_strict, json=json
        )
    if content_file is not None:
        content = _read_content(content_file)
    elif content is None:
        content = _read_stdin()
    stored = thread.push(**event, content=content, key_strict=key_strict)
    _restart(thread)
    if json:
        show.say(line(stored))
    if event["key"] is not None:
        conflict = key_conflict(stored, NewEvent(**event, content=content))
        if conflict is not None:
            show.note(f"Note: {conflict.what}; nothing was stored")
    return 0


def _restart(thread: Thread) -> None:
    if show.program() == "thread":  # where a stall lasts until the next push or dispatch
        thread.consumers.restart()


def _push_batch(thread: Thread, *, key_strict: bool, json: bool) -> None:
    from eventq.cli.batch import Lines

    lines, skipped = Lines(limit_of_event()), _Skipped(strict=key_strict)
    events = lines.read(show.stdin())
    batch = thread.log.push_many(events, where=lines.where, on_conflict=skipped)
    if json:
        count, first, last = batch.count, batch.first_id or "null", batch.last_id or "null"
        show.say(f'{{"count":{count},"first_id":{first},"last_id":{last}}}')
    skipped.say()
    if lines.unknown and show.program() != "thread":  # `thread` has never warned about them
        names = lines.unknown_names()
        show.note(f"Note: fields that events do not have were left out: {names}")


class _Skipped:
    """The skipped lines of a batch that differ from the first events with their keys."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._first: KeyConflictError | None = None
        self._others = 0

    def __call__(self, conflict: KeyConflictError) -> None:
        if self._strict:
            raise conflict
        self._others += self._first is not None
        self._first = self._first or conflict

    def say(self) -> None:
        """Name the first of them, and how many more there are."""
        if self._first is not None:
            lines = "line" + "s" * (self._others > 1)
            more = f"this and {self._others} other {lines}" if self._others else "this line"
            show.note(f"Note: {self._first.what}; nothing was stored for {more}")


def _read_stdin() -> str:
    """Return the text of stdin; raise UsageError if it is empty, as a failed program leaves it."""
    if content := _read_content("-", "stdin"):
        return content
    fix = "give a text, pipe in some, or accept an empty stdin with --content-file -"
    raise UsageError("stdin is empty, and there is no text", fix)


def _read_content(path: str, name: str = "") -> str:
    name = name or f"'{path}'"
    try:
        place = show.stdin() if path == "-" else path
        with open(place, "rb", buffering=0, closefd=path != "-") as file:
            return show.read_all(lambda: show.read(file.fileno()), limit_of_event()).decode()
    except UnicodeDecodeError as error:
        what = f"{name} is not UTF-8 text (byte {error.start})"
        raise InputError(what, "encode it, for example as base64") from error
    except (OSError, ValueError) as error:
        what = f"{name} could not be read: {reason(error)}"
        if isinstance(error, OSError):
            raise refused(error, what) from error
        raise LogicError(what, "check the path, or give --content instead") from error


def pop(
    thread: Thread,
    *,
    consumer: str,
    last_event_id: int | None,
    limit: int,
    wait: float,
    replay: bool,
) -> None:
    """Ack the events up to an id, and print the next ones.

    Prints one JSON object per line, for events that match the consumer's filter. Without an id
    nothing is acked, and what follows the last acked event is printed.
    """
    replay = _unfenced() or replay
    show.lines(thread.pop_lines(consumer, last_event_id, limit=limit, wait=wait, replay=replay))


def _check_pop(raw: Raw) -> None:
    """Require an id under `thread`, as ever."""
    if raw["last-event-id"] is None and show.program() == "thread":
        raise UsageError("Missing option '--last-event-id'", "run 'thread pop --help'")


def ack(thread: Thread, *, consumer: str, last_event_id: int, replay: bool) -> None:
    """Ack the events up to an id. A smaller id than before changes nothing."""
    thread.ack(consumer, last_event_id, replay=_unfenced() or replay)


def _unfenced() -> bool:
    """Return whether this is `thread`, which goes back without asking, and knows no fences."""
    is_thread = show.program() == "thread"
    if is_thread:
        environment.take_env("EVENTQ_FENCE")
    return is_thread


def peek(
    thread: Thread,
    *,
    last_event_id: int | None,
    last: int | None,
    limit: int,
    wanted: Wanted,
    cause: int | None = None,
    json: bool = True,
) -> None:
    """Print events without consuming them. No file changes.

    Prints one JSON object per line, but columns in a terminal, unless --json is given.
    """
    where, after, upto = _select(thread, wanted)
    columns = None if json else _columns()
    newest = last is not None or (last_event_id is None and wanted.get("since") is None)
    show_page = columns.show if columns else _show_lines
    if cause is not None:
        after = max(after, last_event_id or 0)
        for some in _caused(thread, cause, (where, after, upto), last or limit, newest=newest):
            show_page(thread.database, some)
        return
    if newest:
        show_page(thread.database, thread.log.newest(last or limit, where, upto, after))
        return
    if last_event_id is not None and show.program() != "thread":  # it has never said so
        gap = thread.log.gap_after(last_event_id)
        if gap is not None:
            first, end = gap
            which = f"event {first} was" if first == end else f"events {first} to {end} were"
            show.note(f"{which} pruned")
    after = max(after, last_event_id or 0)
    if columns:
        for found in thread.log.scan(thread.database.events.accept(where), after, limit, upto):
            columns.show(thread.database, found.events)
        return
    for page in thread.log.lines(where, after, limit, upto):
        show.lines(page.lines)


def _caused(
    thread: Thread,
    cause: int,
    wanted: tuple[str | None, int, int],
    count: int,
    *,
    newest: bool,
) -> Iterable[Sequence[Event]]:
    """Return pages of the events that an event has caused."""
    from eventq.log.selection import Selection, caused, newest_caused

    where, *ids = wanted
    chosen = Selection(thread.database.events.accept(where), *ids)
    if newest:
        return (newest_caused(thread.database.memory, cause, chosen, count),)
    return caused(thread.database.memory, cause, chosen, count)


def _columns() -> Columns | None:
    """Return what shows events in a terminal, or None where they are lines."""
    if IS_THREAD or not show.is_terminal():
        return None
    from eventq.cli.columns import Columns

    return Columns()


def _select(thread: Thread, wanted: Wanted) -> tuple[str | None, int, int]:
    """Return the filter that stands for what is wanted, and the range of ids to look at."""
    if "created_at" in (wanted["filter"] or "").lower() and not IS_THREAD:
        from eventq.log.filters.advice import advice

        if wrong := advice(wanted["filter"]):
            show.note(f"Warning: {wrong}")
    if not any(value not in (None, []) for name, value in wanted.items() if name != "filter"):
        return wanted["filter"], 0, thread.last_id()
    from eventq.log.selection import select

    return select(thread.database.events, **wanted)


def _check_peek(raw: Raw) -> None:
    """Require a place to read from under `thread`, as ever; otherwise the newest are printed."""
    check = one_of if show.program() == "thread" else exclude
    check("last-event-id", "last")(raw)
    if raw["last-event-id"] is raw["limit"] is raw.get("since") is None:
        raw["limit"] = str(_NEWEST)


def _show_lines(db: Database, page: Sequence[Event]) -> None:
    show.lines([line(event) for event in fresh(db, page)])


def tail(thread: Thread, *, lines: int, follow: bool, wanted: Wanted, json: bool) -> None:
    """Show the newest events, one readable line each. --follow waits for more.

    In a terminal they are in columns, in local time, with the first line of their content.
    """
    columns = None if json else _columns()
    show_page = _show_lines if json else columns.show if columns else _show_readable
    where, after, upto = _select(thread, wanted)
    pages = thread.follow_pages(upto, where, tick=show.check_stdout)
    try:
        for page in thread.log.newest_pages(lines, where, upto, after):
            show_page(thread.database, page)
        for page in pages if follow else ():
            show_page(thread.database, page)
    except KeyboardInterrupt:
        pass


def _check_tail(raw: Raw) -> None:
    """Show all events since a time, unless a number is given."""
    exclude("follow", "until", fix="leave one of them out: what follows has no end")(raw)
    if raw["lines"] is None and raw["since"] is not None:
        raw["lines"] = str((1 << 63) - 1)


def _show_readable(db: Database, page: Sequence[Event]) -> None:
    for event in fresh(db, page):
        kind = event.type if event.subtype is None else f"{event.type}/{event.subtype}"
        line = f"{event.created_at}  #{event.id}  {event.source}  {kind}  {event.content}"
        show.say(show.readable(line))  # names may turn the direction of text, too


_NEWEST = 20  # events that `peek` shows by itself
_PROCESSED = "last-event-id N", "The last event that was processed"
_CONTENT = (*unless_thread("TEXT"), "content", "content-file")  # what can bring a content
_REPLAY = Option("replay", "Go back to an event that was acked before; ends all claims.")


def _check_fields(raw: Raw) -> None:
    """Require the fields under `thread`; otherwise require only that stdin can bring a content."""
    if show.program() == "thread":
        required("source", "type")(raw)
        one_of("content", "content-file")(raw)
    exclude(*_CONTENT)(raw)
    if not any(is_given(raw[name]) for name in _CONTENT) and not show.has_stdin():
        fix = "give it after the command, in quotes, or pipe it into this command"
        raise UsageError("there is no text, and nothing is piped in", fix)


def _check_many(raw: Raw) -> None:
    """Refuse the fields of one event for many; for a batch, `thread` ignores most of them."""
    many = "batch" if raw["batch"] else "stream"
    exclude(many, "key", fix="give each line a key of its own, as the field key")(raw)
    if raw["batch"] and show.program() == "thread":
        return
    fix = f"leave it out: each line of a {many} has fields of its own"
    names = () if raw["lines"] else ("source", "type", "subtype")
    for name in (*names, *_CONTENT):
        exclude(many, name, fix=fix)(raw)


_WANTED = together(
    "wanted",
    *unless_thread(
        Option(
            "since WHEN",
            "Only events from then on. WHEN is 1h (ago), 2026-11-01, 2026-11-01T09:30 or 09:30"
            " (today), in local time unless a zone follows, such as Z.",
            kinds.moment,
        ),
        Option("until WHEN", "Only events before then, spelled like --since.", kinds.moment),
        Option("type TYPE…", "Only events of this type; may be repeated."),
        Option("source ADDRESS…", "Only events from this sender; may be repeated."),
    ),
    FILTER,
)
_JSON_LINES = Option("json", "Print JSON in a terminal, too, and errors as JSON.")
_LIMIT = Option("limit N", "Print at most N events.", kinds.POSITIVE, default="100")

COMMANDS = {
    "push": Command(
        push,
        [
            *unless_thread(Argument("[TEXT]", kinds.verbatim, parameter="content")),
            THREAD,
            *together(
                "event",
                Option(
                    "source ADDRESS",
                    "The sender, for example self or internal:dm:default:warden.",
                    default="" if IS_THREAD else "self",
                ),
                Option(
                    "type TYPE",
                    "The type, for example message or record.",
                    default="" if IS_THREAD else "message",
                ),
                Option("subtype SUBTYPE", "The subtype, for example decision.", kinds.verbatim),
            ),
            Option(
                "content TEXT",
                "The payload." if IS_THREAD else "The same as TEXT (default: all of stdin).",
                kinds.verbatim,
            ),
            Option(
                "content-file FILE",
                "Read the payload from a file, or from stdin for -.",
                kinds.path,
            ),
            Option(
                "key KEY", "Store the event once. If the key was used, return the first event."
            ).within("event"),
            Option("key-strict", "Refuse a key whose first event differs from this one."),
            *together(
                "many",
                Option(
                    "batch",
                    "Read events from stdin, one JSON object per line. All or none are stored.",
                ),
                Option(
                    "stream",
                    "Read such lines for as long as they come. Each is stored within moments, then"
                    " its id is printed.",
                ),
                Option("lines", "With --stream: each line is the payload of an event."),
            ),
            Option("strict-source", "Refuse a source that is not an address.", parameter=""),
            JSON,
        ],
        "eventq push --thread ./inbox --source self --type record --content 'use plan B'",
        *unless_thread("eventq push ./inbox hello", "echo hello | eventq push --thread ./inbox"),
        "eventq push --thread ./inbox --batch < events.ndjson",
        "tail -f app.log | eventq push --thread ./inbox --stream --lines --type log",
        rules=[
            exclude("batch", "stream"),
            needs("lines", "stream"),
            unless("batch", unless("stream", _check_fields, needs("key-strict", "key"))),
            _check_many,
        ],
    ),
    "pop": Command(
        pop,
        [
            THREAD,
            CONSUMER,
            Option(_PROCESSED[0], f"{_PROCESSED[1]}; without it, nothing is acked.", kinds.WHOLE),
            _LIMIT,
            Option(
                "wait DURATION",
                "Wait this long for an event if there is none.",
                kinds.seconds,
                default="0",
            ),
            _REPLAY,
            JSON_ERRORS,
        ],
        "eventq pop --thread ./inbox --consumer worker",
        "eventq pop --thread ./inbox --consumer worker --last-event-id 42 --wait 30",
        rules=[_check_pop, needs("replay", "last-event-id")],
    ),
    "ack": Command(
        ack,
        [
            THREAD,
            CONSUMER,
            Option(_PROCESSED[0], f"{_PROCESSED[1]}.", kinds.WHOLE, required=True),
            _REPLAY,
            JSON_ERRORS,
        ],
        "eventq ack --thread ./inbox --consumer worker --last-event-id 42",
    ),
    "peek": Command(
        peek,
        [
            READ,
            Option("last-event-id N", "Print the events after this one; 0 for all.", kinds.WHOLE),
            Option(
                "last N",
                "Print the newest N events instead, oldest first"
                + ("." if IS_THREAD else f" (default: {_NEWEST})."),
                kinds.POSITIVE,
            ),
            _LIMIT,
            *unless_thread(
                Option("cause N", "Only events that this event has caused.", kinds.WHOLE)
            ),
            *_WANTED,
            JSON_ERRORS if IS_THREAD else _JSON_LINES,
        ],
        *unless_thread(
            "eventq peek ./inbox",
            "eventq peek ./inbox --since 2026-11-01 --until 2026-11-02 --type message",
            "eventq peek ./inbox --cause 42",
        ),
        "eventq peek --thread ./inbox --last-event-id 0 --filter \"type = 'message'\"",
        "eventq peek --thread ./inbox --last 5",
        rules=[_check_peek],
    ),
    "tail": Command(
        tail,
        [
            READ,
            Option(
                "lines N",
                "Show the newest N events" + ("." if IS_THREAD else ", with --since all."),
                kinds.WHOLE,
                default="10",
                short="n",
            ),
            Option("follow", "Wait for more, until interrupted.", short="f"),
            *_WANTED,
            JSON,
        ],
        *unless_thread("eventq tail ./inbox"),
        "eventq tail --thread ./inbox -n 20 -f",
        *unless_thread("eventq tail --thread ./inbox --since 1h --type message -f"),
        rules=unless_thread(_check_tail),
    ),
}
