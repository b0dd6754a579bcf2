"""The command that shows in a terminal who needs a person, and what each does."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON_ERRORS, choose_threads
from eventq.cli.table import Command, Option
from eventq.errors import EventqError, LogicError
from eventq.serving.attention import doing, first_dead, needs, waiting
from eventq.store.paths import is_url
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus
    from eventq.records.turn import ContextInfo
    from eventq.serving.attention import Need
    from eventq.store.protocol import Watcher
    from eventq.thread import Thread

LOOK = 1.0  # seconds between two looks
WORDS = 200  # characters of what was said last
_COLOURS = {"question": "cyan", "approval": "cyan"}


def top(*, thread: list[str], all: str | None) -> int:
    """Show who needs you and what each does, in a terminal.

    It is drawn again whenever something changes, until Ctrl-C. If stdout is no terminal, it is
    written once.
    """
    import sys

    from rich.console import Console
    from rich.live import Live

    from eventq.store.opening import share_connections, unshare_connections

    with ExitStack() as stack:
        share_connections()
        stack.callback(unshare_connections)
        views = [stack.enter_context(View(place)) for place in thread or ()]
        for place in _below(all, thread or []):
            try:
                views.append(stack.enter_context(View(place)))
            except EventqError as error:
                show.note(f"left out: {error}")
        if not views:
            raise LogicError(f"there is no thread below '{all}'", "run 'eventq init' there first")
        console = Console(highlight=False, markup=False, emoji=False)
        if not sys.stdout.isatty():
            console.print(screen(views, len(views) > 1))
            return 0
        with (
            suppress(KeyboardInterrupt),
            Live(screen=True, auto_refresh=False, console=console) as live,
        ):
            while True:
                live.update(screen(views, len(views) > 1), refresh=True)
                views[0].wait()
    return 0


def _below(place: str | None, known: list[str]) -> list[str]:
    """Return the other threads of a folder or a database."""
    from eventq.thread import openable

    return [] if place is None else [one for one in openable(place) if one not in known]


class View:
    """One thread, and what was seen of it before."""

    def __init__(self, place: str) -> None:
        """Open the thread. Raises NotAThreadError."""
        from eventq.store.address import parse
        from eventq.thread import open_thread

        self.thread: Thread = open_thread(place, read_only=True)
        self.name = parse(place).name if is_url(place) else os.path.basename(place.rstrip("/"))
        self._watcher: Watcher | None = None

    def __enter__(self) -> View:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the thread."""
        if self._watcher is not None:
            self._watcher.__exit__(None, None, None)
        self.thread.close()

    def look(self) -> tuple[ThreadStatus, list[Need]]:
        """Return the status, and who needs a person."""
        status = self.thread.status()
        return status, needs(status, first_dead(self.thread, status))

    def last_words(self, info: ContextInfo) -> str:
        """Return what the newest turn of a context says, on one line."""
        if not info.head_turn_id:
            return ""
        turns = self.thread.contexts.turns
        try:
            found = turns.said(self.thread.contexts.turn(info.head_turn_id, payload=False))
        except EventqError as error:
            return show.readable(error.what)
        return show.readable(found.line(WORDS))

    def wait(self) -> None:
        """Wait for a change, or a second."""
        self._watcher = self._watcher or self.thread.database.watch()
        self._watcher.wait(LOOK)


def screen(views: Sequence[View], many: bool) -> Any:  # noqa: FBT001 (it has no other name)
    """Return what is drawn: who needs a person, then consumers and contexts."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    consumers = Table("Consumer", "Now", "Waiting", "Oldest", "24 hours", box=None, expand=True)
    contexts = Table("Context", "Turns", "Last", "Last words", box=None, expand=True)
    contexts.columns[3].no_wrap = True
    calm: list[str] = []
    for view in views:
        prefix = f"{view.name}: " if many else ""
        try:
            status, found = view.look()
        except EventqError as error:
            parts.append(Text(f"{prefix}{show.readable(str(error))}", style="red"))
            continue
        parts += [Text(prefix + line, style=style) for line, style in _needs(found)]
        if not found:
            calm.append(status.last_at or "")
        for one in status.consumers:
            consumers.add_row(*[Text(prefix * (not n) + cell) for n, cell in enumerate(_row(one))])
        for info in status.contexts[:5]:
            name = show.readable(info.name or str(info.context_id))
            turns = f"{info.head_depth + 1:,}" if info.head_turn_id else "0"
            ago = _ago(clock.now() - info.updated_at_ms / 1000)
            contexts.add_row(*map(Text, (prefix + name, turns, ago, view.last_words(info))))
    if not parts:
        last = max(calm, default="")
        when = f": the last event came at {last}" if last else ""
        parts.append(Text(f"Nobody needs you{when}", style="green"))
    tables = [table for table in (consumers, contexts) if table.row_count]
    return Group(*parts, *[each for table in tables for each in (Text(""), table)])


def _needs(found: Sequence[Need]) -> Iterator[tuple[str, str]]:
    """Yield the lines about what waits for a person, with their colours."""
    for one in found:
        who = f"{one.consumer}: " if one.consumer else ""
        answers = f" ({' / '.join(one.options)})" if one.options else ""
        number = f" - eventq answer {one.number} …" if one.kind in ("question", "approval") else ""
        text = f"{one.kind.upper():9}{who}{one.what}{answers}{number}"
        yield show.readable(text), _COLOURS.get(one.kind, "red")
        if one.output:
            last = one.output.splitlines()[-1]
            yield f"{'':9}{show.readable(last)}", "dim"


def _row(one: ConsumerStatus) -> list[str]:
    oldest = "" if one.lag is None or not one.pending else _ago(one.lag)
    ends = f"{one.done} done, {one.failed} failed, {one.dead} dead"
    return [*map(show.readable, (one.consumer_id, doing(one), waiting(one), oldest, ends))]


def _ago(seconds: float) -> str:
    return f"{render.duration(max(0.0, seconds))} ago"


COMMANDS = {
    "top": Command(
        top,
        [
            Option(
                "thread PATH…",
                "The directory or URL of a thread; may be repeated (default: $EVENTQ_THREAD).",
                kinds.place,
            ),
            Option("all DIR", "Every thread below DIR or in a database.", kinds.place),
            JSON_ERRORS,
        ],
        "eventq top --thread ./inbox",
        "ssh host eventq top --all /srv/threads",
        rules=[choose_threads],
    )
}
