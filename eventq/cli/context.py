"""Create, fork, move and show branches of turns."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.options import CONTEXT, EXPECTED_HEAD, JSON, READ, THREAD
from eventq.cli.rules import exclude
from eventq.cli.table import Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.turn import ContextInfo
    from eventq.thread import Thread


def create(thread: Thread, *, name: str | None, base: int | None, json: bool) -> None:
    """Create a context: a branch, empty or starting at a turn."""
    _show("Created", thread.contexts.create(name, base=base or 0).info(), json=json)


def fork(
    thread: Thread, *, context: int | str, at: int | None, name: str | None, json: bool
) -> None:
    """Create a context that continues another one. Nothing is copied."""
    _show("Forked", thread.contexts.fork(context, at=at, name=name).info(), json=json)


def _show(done: str, info: ContextInfo, *, json: bool) -> None:
    show.result(render.fields(info), f"{done} context {render.context(info)}", json=json)


def ls(thread: Thread, *, graph: bool, json: bool) -> None:
    """List all contexts, one per line, or draw how they branch."""
    contexts = thread.contexts
    if not graph:
        render.show_all(contexts, render.fields, render.context, json=json)
        return
    from eventq.cli.graph import by_turn, draw

    turns = contexts.turns
    line = by_turn(turns.depth, render.label)
    render.say_all(draw(contexts, turns, line))


def show_one(thread: Thread, *, context: int | str, json: bool) -> None:
    """Show a context: its newest turn, and where it was forked."""
    info = thread.contexts.get(context).info()
    lines = [
        f"Context: {render.label(info)}",
        f"Head: {f'turn {info.head_turn_id}' if info.head_turn_id else '(empty)'}",
        f"Depth: {info.head_depth}",
        f"Base: {f'turn {info.base_turn_id}' if info.base_turn_id else '(none)'}",
        f"Fork of: {'(none)' if info.fork_of is None else info.fork_of}",
        f"Moves: {info.version}",
        f"Created: {render.stamp(info.created_at_ms)}",
        f"Updated: {render.stamp(info.updated_at_ms)}",
    ]
    show.result(render.fields(info), "\n".join(lines), json=json)


def log(thread: Thread, *, context: int | str, json: bool) -> None:
    """Show every move of a context's head. Give a deleted context by its id."""
    moves = thread.contexts.history(context)
    render.show_all(moves, render.fields, render.move, json=json)


def move(
    thread: Thread, *, context: int | str, to: int, expected_head: int | None, json: bool
) -> None:
    """Move a context's head to any turn. The old head stays in its log."""
    moved = thread.contexts.get(context).move(to, expected_head=expected_head)
    _show("Moved", moved, json=json)


def rm(thread: Thread, *, context: int | str, json: bool) -> None:
    """Delete a context. Its turns stay until a gc, and its forks are not affected."""
    found = thread.contexts.get(context)
    found.delete()
    log_command = f"'{show.program()} context log {found.id}'"
    text = f"Deleted context {found.id}; {log_command} knows where its head was"
    show.result({"context_id": found.id}, text, json=json)


_NAME = Option("name NAME", "A unique name for the context, not a number.")

COMMANDS = {
    "context create": Command(
        create,
        [_NAME, Option("base TURN", "The turn that it starts at.", kinds.WHOLE), THREAD, JSON],
        "eventq context create --name main --thread ./inbox",
    ),
    "context fork": Command(
        fork,
        [
            CONTEXT,
            Option("at TURN", "A turn of its chain (default: the newest).", kinds.WHOLE),
            _NAME,
            THREAD,
            JSON,
        ],
        "eventq context fork main --at 40 --name retry --thread ./inbox",
    ),
    "context ls": Command(
        ls,
        [
            Option("graph", "Draw the tree of their newest turns and forks."),
            READ,
            JSON,
        ],
        "eventq context ls --thread ./inbox",
        "eventq context ls --graph --thread ./inbox",
        rules=[exclude("graph", "json", fix="give one of the two: a drawing is for people")],
    ),
    "context show": Command(
        show_one, [CONTEXT, READ, JSON], "eventq context show main --thread ./inbox"
    ),
    "context log": Command(log, [CONTEXT, READ, JSON], "eventq context log main --thread ./inbox"),
    "context move": Command(
        move,
        [
            CONTEXT,
            Option("to TURN", "The turn to move to, 0 for none.", kinds.WHOLE, required=True),
            EXPECTED_HEAD,
            THREAD,
            JSON,
        ],
        "eventq context move main --to 40 --expected-head 52 --thread ./inbox",
    ),
    "context rm": Command(rm, [CONTEXT, THREAD, JSON], "eventq context rm retry --thread ./inbox"),
}
