"""The commands of workflow runs: each parses, makes one call, and shows the result."""

from __future__ import annotations

from eventq.cli import render, show, steps
from eventq.cli.given import check_one, check_source, check_stdin, emitter, json_of, object_of, refs, text_of, which
from eventq.cli.log import need, open_thread
from eventq.cli.options import maybe, number, text
from eventq.errors import UnknownContextError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.cli.options import Raw
    from eventq.dag.runs import Run
    from eventq.records import RunInfo, Step
    from eventq.thread import Thread


def start(raw: Raw) -> None:
    """Begin a run."""
    check_one(raw, "prompt", "prompt-file")
    check_stdin(raw, "prompt-file", "system-file")
    check_source(raw)
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        made = thread.runs.start(
            text(raw, "name") or "",
            text_of(raw, "prompt", "prompt-file", is_open=is_open) or "",
            system=object_of(raw, "system-file", is_open=is_open),
            max_rounds=number(raw, "max-rounds"),
            depth=number(raw, "depth"),
            group=text(raw, "group") or "",
            parent_state=text(raw, "parent-state"),
            label=text(raw, "label"),
            summary_cap=maybe(raw, "summary-cap", least=1),
            task_in_system=bool(raw["task-in-system"]),
            source=emitter(raw),
        )
        _show_run(raw, "Started", made)


def _show_run(raw: Raw, done: str, one: Run) -> None:
    info = one.info()
    if raw["json"]:
        show.dump(render.fields(info))
    else:
        show.say(f"{done} run {steps.run(info, one.context.info().name)}")


def _run(raw: Raw, thread: Thread) -> Run:
    return thread.runs.get(which(raw, "RUN"))


# --- steps ------------------------------------------------------------------------------------------------------------


def step(raw: Raw) -> None:
    """Record a step, or an attempt, or replace the last one."""
    _check_step(raw)
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        one = _run(raw, thread)
        if raw["attempt"]:
            _show_attempt(raw, one.attempt(text(raw, "role") or "", **_body(raw, is_open=is_open)))
        elif raw["poke"]:
            _show_step(raw, one.poke(**_body(raw, is_open=is_open)))
        else:
            _show_step(raw, _take(raw, one, is_open=is_open))


def _check_step(raw: Raw) -> None:
    check_one(raw, "attempt", "poke")
    if raw["poke"]:
        check_one(raw, "poke", "role")
    else:
        need(raw, "role")
    for kind in ("attempt", "poke"):
        for name in ("extracted", "compact", "child", "expected-head", "key"):
            check_one(raw, kind, name)
    for name in ("meta", "refs", "content", "file"):
        check_one(raw, "extracted", name)
    check_one(raw, "content", "file")
    check_one(raw, "edge-prompt", "edge-prompt-file")
    check_stdin(raw, "file", "extracted", "edge-prompt-file")
    check_source(raw)


def _body(raw: Raw, *, is_open: bool) -> dict[str, Any]:
    """Give what steps, attempts and replacements take; what was not told of the last two kinds stays as it was."""
    told = {
        "edge_prompt": text_of(raw, "edge-prompt", "edge-prompt-file", is_open=is_open),
        "agent": None if raw["agent"] is None else str(raw["agent"]),
    }
    return {
        "meta": json_of(raw, "meta"),
        "content": text_of(raw, "content", "file", is_open=is_open) or "",
        "refs": refs(raw),
        "source": emitter(raw),
        **{name: value for name, value in told.items() if value is not None},
    }


def _take(raw: Raw, one: Run, *, is_open: bool) -> Step:
    return one.step(
        text(raw, "role") or "",
        extracted=object_of(raw, "extracted", is_open=is_open),
        compact=None if raw["compact"] is None else str(raw["compact"]),
        child=text(raw, "child"),
        expected_head=maybe(raw, "expected-head"),
        key=text(raw, "key"),
        **_body(raw, is_open=is_open),
    )


def _show_attempt(raw: Raw, ref: str) -> None:
    if raw["json"]:
        show.dump({"ref": ref})
    else:
        show.say(ref)


def _show_step(raw: Raw, made: Step) -> None:
    if raw["json"]:
        render.dump_all([render.fields(made)])
    else:
        show.say(f"{steps.head(made)}  {made.ref}")


def compact(raw: Raw) -> None:
    """Sum up a run."""
    check_one(raw, "summary", "file")
    if raw["summary"] is None and raw["file"] is None:
        raise UsageError("run compact needs --summary or --file", "give one of the two")
    check_source(raw)
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        one, summary = _run(raw, thread), text_of(raw, "summary", "file", is_open=is_open) or ""
        _show_step(raw, one.compact(summary, source=emitter(raw)))


# --- status -----------------------------------------------------------------------------------------------------------


def end(raw: Raw) -> None:
    """Complete a run."""
    check_source(raw)
    with open_thread(raw) as thread:
        code, summary = number(raw, "return-code"), str(raw["summary"] or "")
        _show_step(raw, _run(raw, thread).end(code, summary, source=emitter(raw)))


def cancel(raw: Raw) -> None:
    """End a run unfinished."""
    check_source(raw)
    with open_thread(raw) as thread:
        _show_step(raw, _run(raw, thread).cancel(str(raw["summary"] or ""), source=emitter(raw)))


def suspend(raw: Raw) -> None:
    """Set a run aside."""
    check_source(raw)
    with open_thread(raw) as thread:
        one = _run(raw, thread)
        one.suspend(source=emitter(raw))
        _show_run(raw, "Suspended", one)


def resume(raw: Raw) -> None:
    """Let a run go on."""
    check_source(raw)
    with open_thread(raw) as thread:
        one = _run(raw, thread)
        one.resume(source=emitter(raw))
        _show_run(raw, "Resumed", one)


def fork(raw: Raw) -> None:
    """Make a run that goes on from another."""
    check_source(raw)
    with open_thread(raw) as thread:
        at, role, label = maybe(raw, "at"), text(raw, "role"), text(raw, "label")
        _show_run(raw, "Forked", _run(raw, thread).fork(at, role=role, label=label, source=emitter(raw)))


# --- reading ----------------------------------------------------------------------------------------------------------


def ls(raw: Raw) -> None:
    """List runs."""
    with open_thread(raw, read_only=True) as thread:
        runs, group = thread.runs, text(raw, "group")
        _show_runs(raw, thread, runs.list(group) if raw["all"] else runs.active(group))


def _show_runs(raw: Raw, thread: Thread, found: Iterator[RunInfo]) -> None:
    if raw["json"]:
        render.dump_all(map(_listed, found))
    else:
        render.say_all(_lines(thread, found))


def _listed(info: RunInfo) -> dict[str, Any]:
    """Return a run as an object, with the names that lists of runs had for some fields before."""
    return {
        **render.fields(info),
        "threadId": str(info.run_id),
        "updatedAt": info.updated_at_ms,
        "completedAt": info.completed_at_ms,
    }


def _lines(thread: Thread, found: Iterator[RunInfo]) -> Iterator[str]:
    for info in found:
        try:
            label = thread.contexts.get(info.run_id).info().name
        except UnknownContextError:  # deleted meanwhile
            continue
        yield steps.run(info, label)


def history(raw: Raw) -> None:
    """List what was completed on a day."""
    with open_thread(raw, read_only=True) as thread:
        _show_runs(raw, thread, thread.runs.history(text(raw, "date") or "", text(raw, "group")))


def show_one(raw: Raw) -> None:
    """Show a run, or as much of it as fits."""
    check_one(raw, "from", "budget")
    with open_thread(raw, read_only=True) as thread:
        one, first, budget = _run(raw, thread), number(raw, "from", 1), maybe(raw, "budget", least=1)
        if budget is not None:
            _show_text(raw, one, budget)
        elif raw["json"]:
            show.dump({**render.fields(one.info()), "prompt": one.prompt()})
            render.dump_all(map(render.fields, one.replay(first)))
        else:
            render.say_all(steps.heading(one))
            render.say_all(line for told in one.replay(first) for line in steps.readable(told))


def _show_text(raw: Raw, one: Run, budget: int) -> None:
    found = one.read(budget)
    if raw["json"]:
        show.dump(render.fields(found))
    else:
        show.say(found.text)


def messages(raw: Raw) -> None:
    """Show what a model gets."""
    check_one(raw, "edge-prompt", "edge-prompt-file")
    is_open = show.stdin_is_open()
    with open_thread(raw, read_only=True) as thread:
        one, asked = _run(raw, thread), text_of(raw, "edge-prompt", "edge-prompt-file", is_open=is_open) or ""
        told = one.iter_messages(text(raw, "role") or "", asked)
        if raw["json"]:
            render.dump_all(told)
        else:
            render.say_all(steps.messages(told))
