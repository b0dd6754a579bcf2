"""Runs, steps and messages as readable text."""

from __future__ import annotations

from eventq.cli import render, show
from eventq.memory import canonical
from eventq.memory.nodes import END

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.memory.runs import Run
    from eventq.records.run import RunInfo, Step
    from eventq.records.spent import UsageSum

SHOWN = 200  # characters of a question, and of the structured part of a step


def as_object(info: RunInfo) -> dict[str, Any]:
    """Return a run as an object, with the older names of some fields as well."""
    return {
        **render.fields(info),
        "threadId": str(info.run_id),
        "updatedAt": info.updated_at_ms,
        "completedAt": info.completed_at_ms,
    }


def run(info: RunInfo) -> str:
    """Return the line that describes a run."""
    called = "" if info.label is None else f" {show.readable(info.label)}"
    came = "" if info.fork_of is None else f"  fork of {info.fork_of}"
    return (
        f"{info.run_id}{called}  {show.readable(info.name)}  {info.status}"
        f"  {render.count(info.depth, 'step')}  {render.stamp(info.updated_at_ms)}{came}"
    )


def heading(one: Run, used: UsageSum) -> Iterator[str]:
    """Yield the task and the status of a run as lines, with its tokens if it has any."""
    info, start, context = one.info(), one.start_node(), one.context.info()
    yield f"Run: {render.label(context)}"
    yield f"Name: {show.readable(info.name)}"
    when = render.stamp(info.updated_at_ms)
    yield f"Status: {info.status} after {render.count(info.depth, 'step')}, {when}"
    if info.group:
        yield f"Group: {show.readable(info.group)}"
    if context.base_turn_id:
        origin = "a deleted run" if info.fork_of is None else f"run {info.fork_of}"
        yield f"Fork of: {origin} at step {one.context.turns.depth(context.base_turn_id)}"
    if start.parent_state:
        yield f"Called by: {start.parent_state}"
    if start.depth:
        yield f"Depth: {start.depth}"
    if start.max_rounds:
        yield f"Rounds: at most {start.max_rounds}"
    if used.responses:
        written = render.tokens(used.out, "written", is_all=used.is_all)
        yield f"Tokens: {written}, {used.read:,} read"
    yield f"Roles: {', '.join(map(show.readable, sorted(start.system))) or '(no system texts)'}"
    yield "Task:"
    yield from _beginning(one.prompt(), start.prompt)


def readable(one: Step) -> Iterator[str]:
    """Yield a step as lines, with the start of its question, its text and its structured part."""
    yield head(one)
    if one.edge_prompt:
        yield _on_one_line("asked", one.edge_prompt)
    yield from _beginning(one.content, "")
    if one.meta not in (None, {}):
        yield _on_one_line("meta", canonical.dump(one.meta).decode())
    yield from (f"  artifact: {ref}" for ref in one.artifacts)
    if one.child:
        yield f"  child: {one.child}"


def head(one: Step) -> str:
    """Return the line that describes a step."""
    who = f" ({show.readable(one.agent)})" if one.agent else ""
    marks = " [compaction]" if one.compact else ""
    marks += f" [{render.count(len(one.attempts), 'attempt')}]" if one.attempts else ""
    marks += " [end]" if one.role == END else ""
    return (
        f"#{one.number} {show.readable(one.role)}{who}  {render.stamp(one.timestamp)}  turn"
        f" {one.turn_id}{marks}"
    )


def _on_one_line(name: str, text: str) -> str:
    return f"  {name}: {show.readable(text[:SHOWN])}{'…' if len(text) > SHOWN else ''}"


def _beginning(text: str, ref: str) -> Iterator[str]:
    """Yield the first lines of a text; `ref` names its blob, if any."""
    if not text:
        return
    shown, more = render.beginning(text.encode())
    yield from (f"  {show.readable(line)}" for line in shown or ())
    if more:
        how = f"{show.program()} blob get {ref}" if ref else "all with --json"
        yield f"  … ({render.count(more, 'byte')} more; {how})"


def messages(found: Iterable[dict[str, str]]) -> Iterator[str]:
    """Yield messages in full, each below a line with its role."""
    for message in found:
        yield f"--- {message['role']}"
        yield from map(show.readable, message["content"].split("\n"))
