"""The commands of contexts: each parses, makes one call, and shows the result."""

from __future__ import annotations

from eventq.cli import render, show
from eventq.cli.given import open_memory, which
from eventq.cli.options import maybe, number, text
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from eventq.cli.options import Raw
    from eventq.records import ContextInfo


def create(raw: Raw) -> None:
    """Make a context."""
    with open_memory(raw) as thread:
        made = thread.contexts.create(text(raw, "name"), base=number(raw, "base"))
        _show(raw, "Created", made.info())


def fork(raw: Raw) -> None:
    """Make a context that goes on from another."""
    with open_memory(raw) as thread:
        made = thread.contexts.fork(which(raw), at=maybe(raw, "at"), name=text(raw, "name"))
        _show(raw, "Forked", made.info())


def _show(raw: Raw, done: str, info: ContextInfo) -> None:
    if raw["json"]:
        show.dump(render.fields(info))
    else:
        show.say(f"{done} context {render.context(info)}")


def ls(raw: Raw) -> None:
    """List contexts, or draw them."""
    if raw["graph"] and raw["json"]:
        raise UsageError("--graph is a drawing for people, and --json is not", "give one of the two")
    with open_memory(raw, read_only=True) as thread:
        contexts = thread.contexts
        if raw["graph"]:
            from eventq.cli.graph import draw

            turns = contexts.turns
            render.say_all(draw(contexts, turns.common, turns.depth, turns.ancestor, render.label))
        else:
            _each(raw, contexts, render.context)


def _each(raw: Raw, records: Iterable[Any], line: Callable[[Any], str]) -> None:
    if raw["json"]:
        render.dump_all(map(render.fields, records))
    else:
        render.say_all(map(line, records))


def show_one(raw: Raw) -> None:
    """Show one context."""
    with open_memory(raw, read_only=True) as thread:
        info = thread.contexts.get(which(raw)).info()
    if raw["json"]:
        show.dump(render.fields(info))
        return
    show.say(f"Context: {render.label(info)}")
    show.say(f"Head: {f'turn {info.head_turn_id}' if info.head_turn_id else '(empty)'}")
    show.say(f"Depth: {info.head_depth}")
    show.say(f"Base: {f'turn {info.base_turn_id}' if info.base_turn_id else '(none)'}")
    show.say(f"Fork of: {'(none)' if info.fork_of is None else info.fork_of}")
    show.say(f"Moves: {info.version}")
    show.say(f"Created: {render.stamp(info.created_at_ms)}")
    show.say(f"Updated: {render.stamp(info.updated_at_ms)}")


def log(raw: Raw) -> None:
    """Show the moves of a head."""
    with open_memory(raw, read_only=True) as thread:
        _each(raw, thread.contexts.history(which(raw)), render.move)


def move(raw: Raw) -> None:
    """Move a head."""
    with open_memory(raw) as thread:
        context = thread.contexts.get(which(raw))
        _show(raw, "Moved", context.move(number(raw, "to"), expected_head=maybe(raw, "expected-head")))


def rm(raw: Raw) -> None:
    """Delete a context."""
    with open_memory(raw) as thread:
        context = thread.contexts.get(which(raw))
        context.delete()
    if raw["json"]:
        show.dump({"context_id": context.id})
    else:
        show.say(f"Deleted context {context.id}; '{show.program()} context log {context.id}' knows where its head was")
