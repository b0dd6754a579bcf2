"""Rebuild events.jsonl, recover a log from it, or follow one."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import JSON, JSON_ERRORS, PLACE, THREAD
from eventq.cli.table import Argument, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.thread import Thread


def rebuild(thread: Thread, *, json: bool) -> None:
    """Rewrite events.jsonl from the database, in one file."""
    from eventq.cli.render import count

    number = thread.rebuild_mirror()
    what = f"Rebuilt events.jsonl with {count(number, 'event')}"
    show.result({"count": number}, what, json=json)


def recover(*, thread: str, file: str | None, json: bool) -> None:
    """Make the log anew from events.jsonl, or push lines again.

    Without FILE, events.db is missing, empty or damaged; what is left of it is moved to lost/. Only
    events are in events.jsonl: subscribe the consumers again, from where they were.

    FILE has lines that did not agree with the log and were moved to lost/. Each is pushed as a new
    event, and only once.
    """
    from eventq.cli.render import count
    from eventq.thread import open_thread
    from eventq.thread import recover as make_anew

    if file is None:
        number = make_anew(thread)
        show.result(
            {"count": number}, f"Made the log anew with {count(number, 'event')}", json=json
        )
        show.note(
            "Gone with events.db: consumers and what they had acked, claims, dead letters, keys of"
            " pushes, turns, runs, artifacts, outputs and settings"
        )
        return
    with open_thread(thread) as opened:
        found = opened.recover(file)
    what = f"Pushed {count(found.count, 'event')} again"
    show.result(
        {"count": found.count, "first": found.first_id, "last": found.last_id}, what, json=json
    )


def follow(thread: Thread, *, folder: str) -> int:
    """Copy a log in PostgreSQL to events.jsonl in FOLDER.

    It runs until SIGTERM, and goes on where the files end. Any command takes FOLDER for the thread.
    """
    from signal import SIGINT

    from eventq.running.follower import Follower

    ended = Follower(thread, folder, lambda what: show.note(f"eventq mirror: {what}")).run()
    return 130 if ended == SIGINT else 0


COMMANDS = {
    "mirror rebuild": Command(rebuild, [THREAD, JSON], "eventq mirror rebuild --thread ./inbox"),
    "mirror recover": Command(
        recover,
        [Argument("[FILE]", kinds.path, yields=True), PLACE, JSON],
        "eventq mirror recover --thread ./inbox",
        "eventq mirror recover --thread ./inbox ./inbox/lost/events-20260318-103000.jsonl",
    ),
    "mirror follow": Command(
        follow,
        [Argument("FOLDER", kinds.path), THREAD, JSON_ERRORS],
        "eventq mirror follow --thread 'postgresql://user@host/database?thread=inbox' ./inbox",
    ),
}
