"""Show, retry, drop and add events that failed for good."""

from __future__ import annotations

from itertools import islice

from eventq.cli import kinds, show
from eventq.cli.claims import ERROR, TOKENS, known, settle
from eventq.cli.options import DRY_RUN, JSON, OF_CONSUMER, READ, THREAD, TRIED
from eventq.cli.render import count, fields, show_all, stamp
from eventq.cli.table import Argument, Command, Option
from eventq.errors import UnknownDeadLetterError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.cli.table import Raw
    from eventq.records.claim import DeadLetter
    from eventq.thread import Thread


def add(thread: Thread, *, token: list[str], error: str | None, json: bool) -> None:
    """Make dead letters of the events of claims: give them up."""
    settle(token, lambda tokens: thread.settle(dead=tokens, error=error), json=json)


def ls(thread: Thread, *, consumer: str | None, limit: int, json: bool) -> None:
    """List the events that failed for good. With the last lines of their errors."""
    letters = known(thread, consumer, thread.dead_letters(consumer))
    show_all(islice(letters, limit), _as_object, _as_line, json=json)
    if next(letters, None) is not None:
        show.note("Note: there are more dead letters (raise --limit)")


def show_one(thread: Thread, *, event: int, consumer: str | None, json: bool) -> None:
    """Show an event that failed for good. With the end of what it printed."""
    found = [*thread.dead_letters(consumer, [event])]
    if not found:
        raise UnknownDeadLetterError(event, consumer)
    for letter in found:
        show.result(_as_object(letter), "\n".join(_as_text(letter)), json=json)


def retry(
    thread: Thread, *, event: list[int], consumer: str | None, every: bool, json: bool
) -> None:
    """Let dead letters be tried again, with new attempts.

    They are outside the order of their consumer, whose progress does not go back.
    """
    number = thread.retry_dead(None if every else event, consumer)
    known(thread, consumer, range(number))
    show.result({"count": number}, f"Retrying {count(number, 'dead letter')}", json=json)


def drop(
    thread: Thread,
    *,
    event: list[int],
    consumer: str | None,
    every: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Forget dead letters. Their events stay in the log."""
    if dry_run:
        _show_dropped(thread, None if every else event, consumer, json=json)
        return
    number = thread.drop_dead(None if every else event, consumer)
    known(thread, consumer, range(number))
    show.result({"count": number}, f"Dropped {count(number, 'dead letter')}", json=json)


def _show_dropped(
    thread: Thread, events: list[int] | None, consumer: str | None, *, json: bool
) -> None:
    """Write which dead letters would be dropped; raise UnknownDeadLetterError for one that is none.

    The ids of a consumer are a line each, and those that follow each other are written as ranges.
    """
    found: dict[str, list[int]] = {}
    for letter in thread.dead_letters(consumer, events):
        found.setdefault(letter.consumer_id, []).append(letter.event_id)
    if missing := {*(events or ())}.difference(*found.values()):
        raise UnknownDeadLetterError(min(missing), consumer)
    number = sum(map(len, found.values()))
    lines = [f"Would drop {count(number, 'dead letter')}"]
    lines += [f"  {show.readable(name)}: events {_ranges(ids)}" for name, ids in found.items()]
    show.result({"dry_run": True, "count": number, "events": found}, "\n".join(lines), json=json)


def _ranges(ids: list[int]) -> str:
    """Return ascending ids as text: 3, 5 to 9, 12."""
    found: list[list[int]] = []
    for one in ids:
        if found and found[-1][-1] == one - 1:
            found[-1][1:] = [one]
        else:
            found.append([one])
    return ", ".join(" to ".join(map(str, pair)) for pair in found)


def _as_object(letter: DeadLetter) -> dict[str, Any]:
    found = fields(letter)
    if letter.event is not None:
        found["event"] = letter.event._asdict()
    return found


def _as_line(letter: DeadLetter) -> str:
    parts = [
        show.readable(letter.consumer_id),
        f"event {letter.event_id}",
        count(letter.attempts, "attempt"),
        *([] if letter.exit_code is None else [f"exit code {letter.exit_code}"]),
        stamp(letter.died_at_ms),
    ]
    last = (letter.error or "").strip().rpartition("\n")[2]
    return "  ".join([*parts, show.readable(last)] if last else parts)


def _as_text(letter: DeadLetter) -> list[str]:
    event = letter.event
    lines = [
        f"Event: {letter.event_id}",
        f"Consumer: {show.readable(letter.consumer_id)}",
        f"Attempts: {letter.attempts}",
        f"Exit code: {'(none)' if letter.exit_code is None else letter.exit_code}",
        f"Died: {stamp(letter.died_at_ms)}",
    ]
    if event is None:
        lines.append("The event was deleted.")
    else:
        kind = event.type if event.subtype is None else f"{event.type}/{event.subtype}"
        lines += [
            f"Stored: {event.created_at}",
            f"From: {show.readable(event.source)}",
            f"Type: {show.readable(kind)}",
            f"Content: {show.readable(event.content)}",
        ]
    error = (letter.error or "").rstrip("\n")
    return [*lines, "Error:", *(f"  {show.readable(one)}" for one in error.split("\n"))]


def _check_events(raw: Raw) -> None:
    """Require events, or --all."""
    if bool(raw["EVENT"]) == bool(raw["all"]):
        raise UsageError("either EVENT or --all is needed", "give the ids of events, or --all")


_EVENTS = Argument("[EVENT…]", kinds.POSITIVE)
_ALL = Option("all", "All of them.", parameter="every")

COMMANDS = {
    "dead add": Command(
        add,
        [TOKENS, THREAD, ERROR, JSON],
        "eventq dead add --thread ./inbox --error 'no such customer' $TOKEN",
    ),
    "dead ls": Command(
        ls,
        [
            READ,
            OF_CONSUMER,
            Option("limit N", "Print at most N dead letters.", kinds.POSITIVE, default="100"),
            JSON,
        ],
        "eventq dead ls --thread ./inbox",
    ),
    "dead show": Command(
        show_one,
        [Argument("EVENT", kinds.POSITIVE), READ, OF_CONSUMER, JSON],
        "eventq dead show 41 --thread ./inbox",
    ),
    "dead retry": Command(
        retry,
        [_EVENTS, THREAD, OF_CONSUMER, _ALL, JSON],
        "eventq dead retry 41 --thread ./inbox",
        "eventq dead retry --all --consumer worker --thread ./inbox",
        rules=[_check_events],
    ),
    "dead drop": Command(
        drop,
        [_EVENTS, TRIED, OF_CONSUMER, _ALL, DRY_RUN, JSON],
        "eventq dead drop 41 --thread ./inbox",
        "eventq dead drop --all --dry-run --thread ./inbox",
        rules=[_check_events],
    ),
}
