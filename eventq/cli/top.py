"""The command that shows in a terminal who needs a person, and what each does."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON_ERRORS, choose_threads
from eventq.cli.table import Command, Option
from eventq.errors import EventqError, LogicError
from eventq.serving.attention import doing, first_dead, needs, waiting
from eventq.store.paths import is_url
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from eventq.cli.board import Answer, Found
    from eventq.cli.keyboard import Screen
    from eventq.records.consumer import ConsumerStatus
    from eventq.records.info import ThreadStatus
    from eventq.records.turn import ContextInfo
    from eventq.serving.attention import Need
    from eventq.store.protocol import Watcher
    from eventq.thread import Thread

LOOK = 1.0  # seconds between two looks
PAUSE = 0.2  # at least, however much happens
CONTEXTS = 5  # of each thread
WORDS = 200  # characters of what was said last


def top(*, thread: list[str], all: str | None) -> int:
    """Show who needs you and what each does, in a terminal.

    It is drawn again whenever something changes. Arrows select; Enter answers a question, or shows
    the command that helps; q or Ctrl-C quits. If stdout is no terminal, it is written once.
    """
    from rich.console import Console

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
        if show.is_terminal() and not console.is_dumb_terminal:
            return _watch(views, console)
        _write(console, look(views))
    return 0


def _watch(views: Sequence[View], console: Console) -> int:
    """Show it until somebody quits, or a signal ends it."""
    from eventq.cli.keyboard import Ended, Screen, end_by

    try:
        with Screen() as screen:
            _follow(views, console, screen)
    except (KeyboardInterrupt, EOFError):
        return 0
    except Ended as ended:
        end_by(ended.number)
    return 0


def _follow(views: Sequence[View], console: Console, screen: Screen) -> None:
    from eventq.cli.board import Board

    board = Board()
    watcher, looked = views[0].watcher(), 0.0
    has_changed = True
    while not board.quits:
        since = clock.monotonic() - looked
        if since >= LOOK or (has_changed and since >= PAUSE) or not looked:
            watcher.wait(0)  # what it tells from now on is new
            board.update(look(views))
            looked, has_changed = clock.monotonic(), False
        size = screen.size((console.width, console.height))
        screen.draw([(_ansi(console, row), high) for row, high in board.rows(*size)], size)
        left = (PAUSE if has_changed else LOOK) - (clock.monotonic() - looked)
        keys, is_ready = screen.wait(-1 if has_changed else watcher.fileno(), left)
        has_changed = has_changed or is_ready
        for key in keys:
            if (answer := board.press(key)) is not None:
                board.note, has_changed, looked = _send(views, answer), True, 0.0


def _send(views: Sequence[View], answer: Answer) -> str:
    """Answer a question, and return what to say of it."""
    from eventq.thread import open_thread

    number = answer.item.need.number or 0
    place = next(view.place for view in views if view.thread.path == answer.item.path)
    try:
        with open_thread(place) as thread:
            thread.log.answerer = show.answerer
            thread.answer(number, answer.text)
    except EventqError as error:
        return str(error)
    return f"answered question {number}"


def _ansi(console: Console, row: Text) -> str:
    with console.capture() as captured:
        console.print(row, soft_wrap=True, end="")
    return captured.get()


def _write(console: Console, found: Found) -> None:
    """Write everything once; what can be pasted is on one line."""
    from rich.table import Table
    from rich.text import Text

    for text, style in found.notes:
        console.print(Text(text, style=style), soft_wrap=True)
    for item in found.items:
        options = item.need.options
        answers = f" ({' / '.join(map(show.readable, options))})" if options else ""
        command = f" - {show.readable(item.command)}" if item.command else ""
        console.print(Text(item.line() + answers + command), soft_wrap=True)
    for one in found.tables:
        table = Table(*one.heads, box=None, expand=True)
        table.columns[-1].no_wrap = one.heads[-1] == "Last words"
        for row in one.rows:
            table.add_row(*[Text(show.readable(cell)) for cell in row])
        if one.rows:
            console.print(Text(""), table)


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

        self.place = place
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

    def row(self, info: ContextInfo, prefix: str, now: float) -> list[str]:
        """Return a context as a row: its name, its turns, its age, and what it says last."""
        turns = f"{info.head_depth + 1:,}" if info.head_turn_id else "0"
        ago = _ago(now - info.updated_at_ms / 1000)
        return [f"{prefix}{info.name or info.context_id}", turns, ago, self._last_words(info)]

    def _last_words(self, info: ContextInfo) -> str:
        if not info.head_turn_id:
            return ""
        turns = self.thread.contexts.turns
        try:
            found = turns.said(self.thread.contexts.turn(info.head_turn_id, payload=False))
        except EventqError as error:
            return error.what
        return found.line(WORDS)

    def watcher(self) -> Watcher:
        """Return what tells of changes."""
        self._watcher = self._watcher or self.thread.database.watch()
        return self._watcher


def look(views: Sequence[View]) -> Found:
    """Return who needs a person in all threads, then what consumers and contexts do."""
    from eventq.cli.board import BAD, Found, Item, Listing

    items: list[Item] = []
    notes: list[tuple[str, str]] = []
    calm: list[str] = []
    consumers: list[list[str]] = []
    contexts: list[list[str]] = []
    now = clock.now()
    for view in views:
        name = view.name if len(views) > 1 else ""
        prefix = f"{name}: " if name else ""
        try:
            status, found = view.look()
            contexts += [view.row(info, prefix, now) for info in status.contexts[:CONTEXTS]]
        except EventqError as error:
            notes.append((show.readable(f"{prefix}{error}"), BAD))
            continue
        items += [
            Item(view.thread.path, name, "" if one.since is None else _ago(now - one.since), one)
            for one in found
        ]
        calm += [] if found else [status.last_at or ""]
        consumers += [_row(one, prefix) for one in status.consumers]
    if not items and not notes:
        last = max(calm, default="")
        when = f": the last event came at {last}" if last else ""
        notes.append((f"Nobody needs you{when}", "green"))
    tables = (
        Listing("consumer", ("Consumer", "Now", "Waiting", "Oldest", "24 hours"), consumers),
        Listing("context", ("Context", "Turns", "Last", "Last words"), contexts),
    )
    return Found(sorted(items, key=lambda item: item.need.urgency), notes, tables)


def _row(one: ConsumerStatus, prefix: str) -> list[str]:
    oldest = "" if one.lag is None or not one.pending else _ago(one.lag)
    ends = f"{one.done} done, {one.failed} failed, {one.dead} dead"
    return [prefix + one.consumer_id, doing(one), waiting(one), oldest, ends]


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
