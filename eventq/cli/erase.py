"""Erase the content of events, and list what was erased."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, READ, REASON, THREAD
from eventq.cli.table import Argument, Command
from eventq.storage.rules import thing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.info import Erasure
    from eventq.thread import Thread

_ELSEWHERE = "copies, packs and backups made before still have it, and programs that have read it"


def event(thread: Thread, *, id: int, reason: str | None, json: bool) -> None:
    """Erase the content of an event from all files of the thread.

    The event stays, with [erased] as its content. What was printed of it goes from the logs of its
    handlers and from dead letters. Copies of the thread, packs and backups are not reached.
    """
    show_erasure(thread.erasures.event(id, reason=reason), json=json)


def show_erasure(made: Erasure, *, json: bool) -> None:
    """Print what was erased, and what no erasure reaches."""
    text = f"Erased {thing(made)}; {_ELSEWHERE}"
    show.result(render.fields(made), text, json=json)


def ls(thread: Thread, *, json: bool) -> None:
    """List what was erased, when and why."""
    render.show_all(thread.erasures, render.fields, _line, json=json)


def _line(one: Erasure) -> str:
    why = "" if one.reason is None else f"  {show.readable(one.reason)}"
    state = "" if one.finished else "  unfinished: do it again"
    return f"{render.stamp(one.at_ms)}  {thing(one)}{state}{why}"


COMMANDS = {
    "event erase": Command(
        event,
        [Argument("ID", kinds.WHOLE), REASON, THREAD, JSON],
        "eventq event erase 42 --reason 'a password' --thread ./inbox",
    ),
    "erasures": Command(ls, [READ, JSON], "eventq erasures --thread ./inbox"),
}
