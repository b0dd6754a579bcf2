"""The commands of the log: each parses, makes one call, and shows the result."""

from __future__ import annotations

from eventq.cli import show
from eventq.cli.options import number, seconds, text
from eventq.errors import InputError, LogicError, UsageError
from eventq.event import NewEvent
from eventq.log.events import key_conflict, limit_of_event
from eventq.thread import Thread
from eventq.workspace.mirror import line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.cli.options import Raw
    from eventq.errors import KeyConflictError
    from eventq.event import Event


SERVERS = ("eventq://", "unix:")  # how the address of a server begins


def open_thread(raw: Raw, *, read_only: bool = False) -> Thread:
    """Open the thread that `--thread` names; whatever else is wrong with a command line is said after this."""
    return Thread(directory(raw), read_only=read_only, strict_source=True if raw.get("strict-source") else None)


def directory(raw: Raw) -> str:
    """Give the path that `--thread` names; raise UsageError for the address of a server."""
    return local(text(raw, "thread") or "")


def local(path: str) -> str:
    """Give a path; raise UsageError for the address of a server, which no command takes for a directory."""
    if path.startswith(SERVERS):
        raise UsageError(f"'{path}' is a server, which has contexts, turns and blobs", "give the directory of a thread")
    return path


def need(raw: Raw, *names: str) -> None:
    """Raise UsageError for an option that is missing."""
    for name in names:
        if raw[name] is None:
            raise UsageError(f"--{name} is missing", f"give --{name}")


def push(raw: Raw) -> None:
    """Store one event, or a batch from stdin."""
    if raw["batch"]:
        _push_batch(raw)
        return
    need(raw, "source", "type")
    if (raw["content"] is None) == (raw["content-file"] is None):
        raise UsageError("push needs --content or --content-file, and not both", "give one of the two")
    if raw["key-strict"] and raw["key"] is None:
        raise UsageError("--key-strict says how --key is taken", "give --key too, or leave --key-strict out")
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        source, kind, key = text(raw, "source") or "", text(raw, "type") or "", text(raw, "key")
        subtype = None if raw["subtype"] is None else str(raw["subtype"])
        content = str(raw["content"]) if raw["content"] is not None else _read_content(raw, is_open=is_open)
        event = thread.push(source, kind, content, subtype, key, key_strict=bool(raw["key-strict"]))
        if raw["json"]:
            show.say(line(event))
    if key is not None and (conflict := key_conflict(event, NewEvent(source, kind, content, subtype, key))):
        show.note(f"Note: {conflict.what}; nothing was stored")


def _push_batch(raw: Raw) -> None:
    from eventq.cli.batch import Lines

    if raw["key"] is not None:
        raise UsageError("--key is for one event, not for --batch", "give each line a key of its own, as the field key")
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        given, kept = Lines(show.stdin(is_open=is_open), limit_of_event()), _Kept(strict=bool(raw["key-strict"]))
        batch = thread.log.push_many(given, where=given.where, kept=kept)
        if raw["json"]:
            count, first, last = batch.count, batch.first_id or "null", batch.last_id or "null"
            show.say(f'{{"count":{count},"first_id":{first},"last_id":{last}}}')
    kept.say()
    if given.unknown and show.program() != "thread":  # there nothing was ever said of them
        show.note(f"Note: fields that events do not have were left out: {given.unknown_names()}")


class _Kept:
    """The lines of a batch that were left out though the first events of their keys differ."""

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


def _read_content(raw: Raw, *, is_open: bool) -> str:
    path = text(raw, "content-file") or ""
    try:
        place = show.stdin(is_open=is_open) if path == "-" else path
        with open(place, "rb", buffering=0, closefd=path != "-") as file:
            return show.read_all(lambda: show.read(file.fileno()), limit_of_event()).decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{path}' is not UTF-8 text (byte {error.start})", "encode it, for example as base64"
        ) from error
    except (OSError, ValueError) as error:
        raise LogicError(f"'{path}' could not be read: {error}", "check the path of --content-file") from error


def pop(raw: Raw) -> None:
    """Ack and read on."""
    with open_thread(raw) as thread:
        acked, limit, wait = number(raw, "last-event-id"), number(raw, "limit", 100, least=1), seconds(raw, "wait")
        consumer = text(raw, "consumer") or ""
        show.lines(thread.pop_lines(consumer, acked, limit=limit, wait=wait or 0))


def ack(raw: Raw) -> None:
    """Ack."""
    with open_thread(raw) as thread:
        acked = number(raw, "last-event-id")
        thread.ack(text(raw, "consumer") or "", acked)


def peek(raw: Raw) -> None:
    """Read without consuming."""
    if (raw["last-event-id"] is None) == (raw["last"] is None):
        raise UsageError("peek needs --last-event-id or --last, and not both", "give one of the two")
    with open_thread(raw, read_only=True) as thread:
        after, limit, last = (
            number(raw, "last-event-id"),
            number(raw, "limit", 100, least=1),
            number(raw, "last", least=1),
        )
        condition = None if raw["filter"] is None else str(raw["filter"])
        if raw["last"] is not None:
            _show_events(thread.last(last, filter=condition))
            return
        for page in thread.log.lines(condition, after, limit):
            show.lines(page.lines)


def _show_events(events: Sequence[Event]) -> None:
    show.lines([line(event) for event in events])


def tail(raw: Raw) -> int:
    """Show the newest events, and perhaps those that follow."""
    with open_thread(raw, read_only=True) as thread:
        count = number(raw, "lines", 10)
        condition = None if raw["filter"] is None else str(raw["filter"])
        show_page = _show_events if raw["json"] else _show_readable
        upto = thread.last_id()
        pages = thread.follow_pages(upto, condition, tick=_end_when_unread)
        try:
            show_page(thread.log.newest(count, condition, upto) if count else [])
            if raw["follow"]:
                for page in pages:
                    show_page(page)
        except KeyboardInterrupt:
            return 0
    return 0


def _end_when_unread() -> None:
    if show.stdout_closed():
        raise show.Closed


def _show_readable(events: Sequence[Event]) -> None:
    for event in events:
        kind = event.type if event.subtype is None else f"{event.type}/{event.subtype}"
        show.say(f"{event.created_at}  #{event.id}  {event.source}  {kind}  {show.readable(event.content)}")


def subscribe(raw: Raw) -> None:
    """Store a subscription."""
    with open_thread(raw) as thread:
        attempts, timeout = number(raw, "max-attempts", 5, least=1), seconds(raw, "timeout")
        consumer, handler = text(raw, "consumer") or "", text(raw, "handler") or ""
        condition = None if raw["filter"] is None else str(raw["filter"])
        new = thread.subscribe(
            consumer,
            handler,
            filter=condition,
            from_now=bool(raw["from-now"]),
            max_attempts=attempts,
            timeout=timeout,
            warn=lambda what: show.note(f"Warning: {what}"),
        )
        if raw["json"]:
            show.dump({"consumer_id": new.consumer_id, "handler_cmd": new.handler_cmd, "filter": new.filter})
        else:
            show.say(f"Subscribed consumer '{consumer}'")


def unsubscribe(raw: Raw) -> None:
    """Delete a subscription."""
    with open_thread(raw) as thread:
        consumer = text(raw, "consumer") or ""
        thread.unsubscribe(consumer)
        if raw["json"]:
            show.dump({"consumer_id": consumer})
        else:
            show.say(f"Unsubscribed consumer '{consumer}'")


def dispatch(raw: Raw) -> None:
    """Look who is due, and leave a supervisor behind that runs the handlers."""
    from eventq.log.dispatch import Dispatch, leave_queue, start_supervisor, wait_turn

    waited = wait_turn()
    with open_thread(raw) as thread:
        leave_queue(thread.layout)
        look = Dispatch(thread.consumers, thread.layout, thread.journal)
        locks = look.scan()
        for consumer in locks if waited else ():
            thread.journal.info(f"dispatch: consumer={consumer} still due {waited:g}s after the notifier took the task")
        directory = thread.path
    if locks:  # the store is closed now: no connection crosses the fork
        start_supervisor(directory, locks)
    if look.failure is not None:
        raise look.failure


def hook(raw: Raw) -> int:
    """Store what a hook gives; whatever goes wrong is for the journal only, as an agent must not be held up."""
    is_open = show.stdin_is_open()
    try:
        from eventq.cli.batch import hook_event

        with open_thread(raw) as thread:
            try:
                fd = show.stdin(is_open=is_open)
                given = show.read_all(lambda: show.read(fd), limit_of_event())
                thread.push(*hook_event(given, str(raw["source"] or "self")))
            except Exception as error:  # noqa: BLE001 (whatever it is)
                thread.journal.warn(f"hook: {error or type(error).__name__}")
    except (Exception, KeyboardInterrupt):  # noqa: BLE001, S110 (there is nowhere else to say it)
        pass
    return 0
