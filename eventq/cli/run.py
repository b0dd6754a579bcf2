"""The commands of workflow runs."""

from __future__ import annotations

from eventq.cli import kinds, render, show, steps
from eventq.cli.inputs import read_object, read_text
from eventq.cli.options import EXPECTED_HEAD, JSON, READ, THREAD
from eventq.cli.rules import alone, exclude, needs, one_of, one_stdin, required, unless
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import UnknownContextError
from eventq.records import NewStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypedDict

    from eventq.cli.inputs import Source
    from eventq.cli.table import Raw
    from eventq.dag.runs import Run
    from eventq.records import RunInfo, Step
    from eventq.thread import Thread

    class Settings(TypedDict):
        """How a run is set up."""

        name: str
        max_rounds: int
        depth: int
        group: str
        parent_state: str | None
        label: str | None
        summary_cap: int | None
        task_in_system: bool

    class Body(TypedDict):
        """What steps, attempts and replacements take."""

        meta: Any
        content: str | None
        file: str | None
        refs: tuple[str, ...]
        edge_prompt: str | None
        edge_prompt_file: str | None
        agent: str | None
        source: str | None

    class Placing(TypedDict):
        """What only a step that goes on takes."""

        extracted: str | None
        compact: str | None
        child: str | None
        expected_head: int | None
        key: str | None


def start(
    thread: Thread,
    *,
    settings: Settings,
    prompt: Source,
    system_file: str | None,
    source: str | None,
    json: bool,
) -> None:
    """Begin a run."""
    made = thread.runs.start(
        prompt=read_text(prompt) or "",
        system=read_object(system_file, "--system-file"),
        source=source,
        **settings,
    )
    _show_run("Started", made, json=json)


def _show_run(done: str, one: Run, *, json: bool) -> None:
    info = one.info()
    line = f"{done} run {steps.run(info, one.context.info().name)}"
    show.result(render.fields(info), line, json=json)


# --- steps ------------------------------------------------------------------------------------------------------------


def step(
    thread: Thread,
    *,
    run: int | str,
    role: str,
    instead: str | None,
    body: Body,
    placing: Placing,
    json: bool,
) -> None:
    """Record a step, or an attempt, or replace the last one."""
    one = thread.runs.get(run)
    if instead == "attempt":
        ref = one.attempt(NewStep(role, **_told(body)), source=body["source"])
        show.result({"ref": ref}, ref, json=json)
    elif instead == "poke":
        _show_step(one.poke(**_told(body), source=body["source"]), json=json)
    else:
        new = NewStep(
            role,
            extracted=read_object(placing["extracted"], "--extracted"),
            compact=placing["compact"],
            child=placing["child"],
            **_told(body),
        )
        head, key = placing["expected_head"], placing["key"]
        made = one.step(new, expected_head=head, key=key, source=body["source"])
        _show_step(made, json=json)


def _told(body: Body) -> dict[str, Any]:
    """Return what was told; of attempts and replacements the rest stays as it was."""
    asked = read_text({"text": body["edge_prompt"], "path": body["edge_prompt_file"]})
    told = {"edge_prompt": asked, "agent": body["agent"]}
    return {
        "meta": body["meta"],
        "content": read_text({"text": body["content"], "path": body["file"]}) or "",
        "refs": body["refs"],
        **{name: value for name, value in told.items() if value is not None},
    }


def _show_step(made: Step, *, json: bool) -> None:
    if json:
        render.dump_all([render.fields(made)])
    else:
        show.say(f"{steps.head(made)}  {made.ref}")


def compact(thread: Thread, *, run: int | str, summary: Source, source: str | None, json: bool) -> None:
    """Sum up a run."""
    one = thread.runs.get(run)
    _show_step(one.compact(read_text(summary) or "", source=source), json=json)


# --- status -----------------------------------------------------------------------------------------------------------


def end(
    thread: Thread,
    *,
    run: int | str,
    return_code: int,
    summary: str,
    source: str | None,
    json: bool,
) -> None:
    """Complete a run."""
    made = thread.runs.get(run).end(return_code, summary, source=source)
    _show_step(made, json=json)


def cancel(thread: Thread, *, run: int | str, summary: str, source: str | None, json: bool) -> None:
    """End a run unfinished."""
    _show_step(thread.runs.get(run).cancel(summary, source=source), json=json)


def suspend(thread: Thread, *, run: int | str, source: str | None, json: bool) -> None:
    """Set a run aside."""
    one = thread.runs.get(run)
    one.suspend(source=source)
    _show_run("Suspended", one, json=json)


def resume(thread: Thread, *, run: int | str, source: str | None, json: bool) -> None:
    """Let a run go on."""
    one = thread.runs.get(run)
    one.resume(source=source)
    _show_run("Resumed", one, json=json)


def fork(
    thread: Thread,
    *,
    run: int | str,
    at: int | None,
    role: str | None,
    label: str | None,
    source: str | None,
    json: bool,
) -> None:
    """Make a run that goes on from another."""
    made = thread.runs.get(run).fork(at, role=role, label=label, source=source)
    _show_run("Forked", made, json=json)


# --- reading ----------------------------------------------------------------------------------------------------------


def ls(thread: Thread, *, group: str | None, all: bool, json: bool) -> None:
    """List runs."""
    runs = thread.runs
    _show_runs(thread, runs.list(group) if all else runs.active(group), json=json)


def _show_runs(thread: Thread, found: Iterator[RunInfo], *, json: bool) -> None:
    if json:
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


def history(thread: Thread, *, date: str, group: str | None, json: bool) -> None:
    """List what was completed on a day."""
    _show_runs(thread, thread.runs.history(date, group), json=json)


def show_one(thread: Thread, *, run: int | str, first: int, budget: int | None, json: bool) -> None:
    """Show a run, or as much of it as fits."""
    one = thread.runs.get(run)
    if budget is not None:
        found = one.read(budget)
        show.result(render.fields(found), found.text, json=json)
    elif json:
        show.dump({**render.fields(one.info()), "prompt": one.prompt()})
        render.dump_all(map(render.fields, one.replay(first)))
    else:
        render.say_all(steps.heading(one))
        render.say_all(line for told in one.replay(first) for line in steps.readable(told))


def messages(thread: Thread, *, run: int | str, role: str, edge_prompt: Source, json: bool) -> None:
    """Show what a model gets."""
    told = thread.runs.get(run).iter_messages(role, read_text(edge_prompt) or "")
    if json:
        render.dump_all(told)
    else:
        render.say_all(steps.messages(told))


# --- the table --------------------------------------------------------------------------------------------------------


def _step_needs_role(raw: Raw) -> None:
    """Refuse a step or an attempt without a role, and a replacement with one."""
    unless("poke", required("role"))(raw)
    exclude("poke", "role")(raw)


_RUN = Argument("RUN", kinds.branch)
_GROUP = Option("group GROUP", "Only runs of this group.")
_LABEL = Option("label NAME", "A unique name for the run, which is no number.")
_SUMMARY = Option("summary TEXT", "What has happened, in words.", kinds.verbatim, default="")
_ASKED = "The question to the role at this step, verbatim."
_ASKED_FILE = "Read that question from a file, or from stdin for -."
_EMIT = (
    Option(
        "emit",
        "Push an event of type record, subtype run, with it.",
        kinds.Switch("self", None),
        parameter="source",
    ),
    Option("source ADDRESS", "The sender of that event (default: self)."),
)
_CHANGE = (*_EMIT, THREAD, JSON)
_EMITTED = needs("source", "emit")
_ONE_QUESTION = exclude("edge-prompt", "edge-prompt-file")

ABOUT = {"run": "Record runs of workflows, and show models their messages."}

COMMANDS = {
    "run start": Command(
        start,
        "Begin a run of a workflow. The task and each role's system text are frozen with it.",
        [
            Option("name NAME", "The name of the workflow.", required=True).within("settings"),
            Option("prompt TEXT", "The task.", kinds.verbatim, parameter="prompt.text"),
            Option(
                "prompt-file FILE",
                "Read the task from a file, or from stdin for -.",
                kinds.path,
                parameter="prompt.path",
            ),
            Option(
                "system-file FILE",
                "Read the roles' system texts from a file, or stdin for -. It holds a JSON object of role and text.",
                kinds.path,
            ),
            *together(
                "settings",
                Option(
                    "max-rounds N",
                    "The most rounds, a note for who drives the run; 0 for none.",
                    kinds.WHOLE,
                    default="0",
                ),
                Option("depth N", "The depth among runs that called one another.", kinds.WHOLE, default="0"),
                Option(
                    "group GROUP",
                    "What the workflow was made of, such as its bundle's hash.",
                    default="",
                ),
                Option("parent-state REF", "The step of the run that calls this one."),
                _LABEL,
                Option(
                    "summary-cap N",
                    "Show a model at most N characters of each earlier step.",
                    kinds.POSITIVE,
                ),
                Option("task-in-system", "Do not add the task to the system texts, which state it."),
            ),
            *_CHANGE,
        ],
        rules=[
            exclude("prompt", "prompt-file"),
            one_stdin("prompt-file", "system-file"),
            _EMITTED,
        ],
        examples=[
            "eventq run start --name solve --prompt 'mend the build' --label build --thread ./inbox",
            "eventq run start --name solve --prompt-file task.md --system-file roles.json --thread ./inbox",
        ],
    ),
    "run step": Command(
        step,
        "Record a role's output durably as the next step of a run.",
        [
            _RUN,
            Option("role ROLE", "The role; not with --poke.", default=""),
            *together(
                "body",
                Option("meta JSON", "The structured part of it, any JSON value.", kinds.json_value),
                Option("content TEXT", "The text of it.", kinds.verbatim),
                Option("file FILE", "Read the text from a file, or from stdin for -.", kinds.path),
                Option("refs REF,REF", "The blobs that it made.", kinds.refs, default=()),
            ),
            Option(
                "extracted FILE",
                "Read all three from a file, or from stdin for -. It holds a JSON object of meta,"
                " contentPayload and refs.",
                kinds.path,
            ).within("placing"),
            *together(
                "body",
                Option("edge-prompt TEXT", _ASKED, kinds.verbatim),
                Option("edge-prompt-file FILE", _ASKED_FILE, kinds.path),
                Option("agent NAME", "Who played the role, such as a model's name.", kinds.verbatim),
            ),
            *together(
                "placing",
                Option(
                    "compact TEXT",
                    "A summary that models are shown in place of earlier steps.",
                    kinds.verbatim,
                ),
                Option("child REF", "The end of a run that this step called."),
            ),
            Option(
                "attempt",
                "Keep a failed attempt, and print its ref. The head does not move.",
                kinds.Switch("attempt", None),
                parameter="instead",
            ),
            Option(
                "poke",
                "Replace the last step. The old one is kept as an attempt.",
                kinds.Switch("poke", None),
                parameter="instead",
            ),
            *together(
                "placing",
                EXPECTED_HEAD,
                Option(
                    "key KEY",
                    "Record the step once. Within 24 hours the same key returns the first step and stores nothing.",
                ),
            ),
            *together("body", *_EMIT),
            THREAD,
            JSON,
        ],
        rules=[
            exclude("attempt", "poke"),
            _step_needs_role,
            alone("attempt", "extracted", "compact", "child", "expected-head", "key"),
            alone("poke", "extracted", "compact", "child", "expected-head", "key"),
            alone("extracted", "meta", "refs", "content", "file"),
            exclude("content", "file"),
            _ONE_QUESTION,
            one_stdin("file", "extracted", "edge-prompt-file"),
            _EMITTED,
        ],
        examples=[
            "eventq run step build --role coder --content 'done' --meta '{\"files\": 2}' --thread ./inbox",
            "agent | eventq run step build --role coder --file - --agent claude --thread ./inbox",
        ],
    ),
    "run end": Command(
        end,
        "Complete a run with an end node.",
        [
            _RUN,
            Option("return-code N", "How it went; 0 means success.", kinds.WHOLE, default="0"),
            _SUMMARY,
            *_CHANGE,
        ],
        rules=[_EMITTED],
        examples=["eventq run end build --summary 'the build is green' --thread ./inbox"],
    ),
    "run cancel": Command(
        cancel,
        "End a run unfinished, with return code 130.",
        [_RUN, _SUMMARY, *_CHANGE],
        rules=[_EMITTED],
        examples=["eventq run cancel build --thread ./inbox"],
    ),
    "run suspend": Command(
        suspend,
        "Set a run aside: it takes no steps until it is resumed.",
        [_RUN, *_CHANGE],
        rules=[_EMITTED],
        examples=["eventq run suspend build --thread ./inbox"],
    ),
    "run resume": Command(
        resume,
        "Let a run take steps again that was set aside or has ended.",
        [_RUN, *_CHANGE],
        rules=[_EMITTED],
        examples=["eventq run resume build --thread ./inbox"],
    ),
    "run compact": Command(
        compact,
        "Sum up what has happened so far. Models are shown the summary in place of the steps before; none is deleted.",
        [
            _RUN,
            Option(_SUMMARY.name + " TEXT", _SUMMARY.help, kinds.verbatim, parameter="summary.text"),
            Option(
                "file FILE",
                "Read the summary from a file, or from stdin for -.",
                kinds.path,
                parameter="summary.path",
            ),
            *_CHANGE,
        ],
        rules=[exclude("summary", "file"), one_of("summary", "file"), _EMITTED],
        examples=["eventq run compact build --summary 'two plans failed' --thread ./inbox"],
    ),
    "run fork": Command(
        fork,
        "Make a run that goes on from a step of another. Without --at or --role the last step is taken again.",
        [
            _RUN,
            Option("at N", "The number of the step, 0 for the start.", kinds.WHOLE),
            Option("role ROLE", "The first step of this role."),
            _LABEL,
            *_CHANGE,
        ],
        rules=[_EMITTED],
        examples=["eventq run fork build --at 3 --label retry --thread ./inbox"],
    ),
    "run ls": Command(
        ls,
        "List the runs that are under way, suspended ones too.",
        [_GROUP, Option("all", "List all runs, whatever their status."), READ, JSON],
        examples=["eventq run ls --thread ./inbox"],
    ),
    "run history": Command(
        history,
        "List the runs that were completed on a day.",
        [Option("date YYYY-MM-DD", "The day, in UTC.", required=True), _GROUP, READ, JSON],
        examples=["eventq run history --date 2026-03-18 --thread ./inbox"],
    ),
    "run show": Command(
        show_one,
        "Show a run: its task, its roles, and its steps.",
        [
            _RUN,
            Option("from N", "Begin at this step.", kinds.WHOLE, default="1", parameter="first"),
            Option(
                "budget CHARACTERS",
                "Print the newest steps whole instead, as many as fit. At least one is printed.",
                kinds.POSITIVE,
            ),
            READ,
            JSON,
        ],
        rules=[exclude("from", "budget")],
        examples=[
            "eventq run show build --thread ./inbox",
            "eventq run show build --budget 20000 --thread ./inbox",
        ],
    ),
    "run messages": Command(
        messages,
        "Show the messages that a role's model should see now. With --json one a line, as chat APIs take them.",
        [
            _RUN,
            Option("role ROLE", "The role whose turn it is.", required=True),
            Option("edge-prompt TEXT", _ASKED, kinds.verbatim, parameter="edge_prompt.text"),
            Option("edge-prompt-file FILE", _ASKED_FILE, kinds.path, parameter="edge_prompt.path"),
            READ,
            JSON,
        ],
        rules=[_ONE_QUESTION],
        examples=["eventq run messages build --role coder --edge-prompt 'go on' --json --thread ./inbox"],
    ),
}
