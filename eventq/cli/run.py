"""Record runs of workflows, and print a model's messages."""

from __future__ import annotations

from eventq.cli import kinds, render, show, steps
from eventq.cli.inputs import read_object, read_text
from eventq.cli.options import EXPECTED_HEAD, JSON, READ, THREAD
from eventq.cli.rules import alone, exclude, needs, one_of, one_stdin, required, unless
from eventq.cli.table import Argument, Command, Option, together
from eventq.memory.messages import ANSWERS
from eventq.records.run import NewRun, NewStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    from eventq.cli.table import Raw
    from eventq.memory.runs import Run
    from eventq.records.run import RunChange, Step
    from eventq.thread import Thread

    class Texts(TypedDict):
        """The texts of a run, or the files that hold them."""

        prompt: str | None
        prompt_file: str | None
        system_file: str | None

    class Settings(TypedDict):
        """How a run is set up."""

        name: str
        max_rounds: int
        depth: int
        group: str
        parent_state: str | None
        summary_cap: int
        task_in_system: bool
        answer: str

    class Body(TypedDict):
        """What steps take; the last five are not for attempts and replacements."""

        instead: str | None
        meta: Any
        content: str | None
        file: str | None
        refs: tuple[str, ...]
        edge_prompt: str | None
        edge_prompt_file: str | None
        agent: str | None
        extracted: str | None
        compact: str | None
        child: str | None
        expected_head: int | None
        key: str | None


def start(
    thread: Thread,
    *,
    texts: Texts,
    settings: Settings,
    label: str | None,
    source: str | None,
    json: bool,
) -> None:
    """Start a run of a workflow. Its task and system texts never change."""
    prompt = read_text(texts["prompt"], texts["prompt_file"]) or ""
    system = read_object(texts["system_file"], "--system-file")
    new = NewRun(prompt=prompt, system=system, **settings)
    made = thread.runs.start(new, label=label, source=source)
    _show_run("Started", made, json=json)


def _show_run(done: str, one: Run, *, json: bool) -> None:
    info = one.info()
    show.result(steps.as_object(info), f"{done} run {steps.run(info)}", json=json)


def step(thread: Thread, *, run: int | str, role: str, body: Body, json: bool) -> None:
    """Record a role's output durably as the next step of a run."""
    one, given = thread.runs.get(run), _given(body)
    if body["instead"] == "attempt":
        ref = one.attempt(NewStep(role, **given))
        show.result({"ref": ref}, ref, json=json)
    elif body["instead"] == "poke":
        _show_step(one.poke(**given), json=json)
    else:
        extracted = read_object(body["extracted"], "--extracted")
        new = NewStep(
            role, extracted=extracted, compact=body["compact"], child=body["child"], **given
        )
        made = one.step(new, expected_head=body["expected_head"], key=body["key"])
        _show_step(made, json=json)


def _given(body: Body) -> dict[str, Any]:
    """Return the step's values; those of a poke that are left out stay unchanged."""
    asked = read_text(body["edge_prompt"], body["edge_prompt_file"])
    maybe = {"edge_prompt": asked, "agent": body["agent"]}
    return {
        "meta": body["meta"],
        "content": read_text(body["content"], body["file"]) or "",
        "refs": body["refs"],
        **{name: value for name, value in maybe.items() if value is not None},
    }


def _show_step(made: Step, *, json: bool) -> None:
    if json:
        render.dump_all([render.fields(made)])
    else:
        show.say(f"{steps.head(made)}  {made.ref}")


def compact(
    thread: Thread,
    *,
    run: int | str,
    summary: str | None,
    file: str | None,
    json: bool,
) -> None:
    """Add a summary that models see in place of earlier steps."""
    one = thread.runs.get(run)
    _show_step(one.compact(read_text(summary, file) or ""), json=json)


def end(
    thread: Thread,
    *,
    run: int | str,
    return_code: int,
    summary: str,
    json: bool,
) -> None:
    """End a run with a return code and a summary."""
    made = thread.runs.get(run).end(return_code, summary)
    _show_step(made, json=json)


def cancel(thread: Thread, *, run: int | str, summary: str, json: bool) -> None:
    """Cancel a run: end it with return code 130."""
    _show_step(thread.runs.get(run).cancel(summary), json=json)


def suspend(thread: Thread, *, run: int | str, json: bool) -> None:
    """Suspend a run: it accepts no steps until it is resumed."""
    one = thread.runs.get(run)
    one.suspend()
    _show_run("Suspended", one, json=json)


def resume(thread: Thread, *, run: int | str, json: bool) -> None:
    """Resume a run that was suspended or has ended."""
    one = thread.runs.get(run)
    one.resume()
    _show_run("Resumed", one, json=json)


def fork(
    thread: Thread,
    *,
    run: int | str,
    at: int | str | None,
    role: str | None,
    label: str | None,
    json: bool,
) -> None:
    """Fork a run at one of its steps. By default the fork repeats the last step."""
    made = thread.runs.get(run).fork(at, role=role, label=label)
    _show_run("Forked", made, json=json)


def rm(thread: Thread, *, run: int | str, json: bool) -> None:
    """Delete a run. Its steps stay until a gc, and its forks are not affected."""
    info = thread.runs.delete(run)
    log_command = f"'{show.program()} context log {info.run_id}'"
    text = f"Deleted run {info.run_id}; {log_command} knows where its head was"
    show.result(steps.as_object(info), text, json=json)


def ls(thread: Thread, *, group: str | None, all: bool, json: bool) -> None:
    """List the active runs, including suspended ones."""
    found = thread.runs.list(group) if all else thread.runs.active(group)
    render.show_all(found, steps.as_object, steps.run, json=json)


def watch(thread: Thread, *, group: str | None, json: bool) -> None:
    """Follow the changes of runs, until interrupted.

    First come the runs that are under way, as `active`, then each run when it has changed, with the
    last change and its newest state.
    """
    try:
        for page in thread.runs.watch_pages(group, tick=show.check_stdout):
            if json:
                render.dump_all(map(_changed, page))
            else:
                render.say_all(map(_change_line, page))
    except KeyboardInterrupt:
        pass


def _changed(change: RunChange) -> dict[str, Any]:
    """Return a change as an object: a run as in the lists, unless it was removed."""
    if change.run is None:
        return {"op": change.op, "run_id": change.run_id}
    return {"op": change.op, **steps.as_object(change.run)}


def _change_line(change: RunChange) -> str:
    run = change.run_id if change.run is None else steps.run(change.run)
    return f"{change.op}  {run}"


def history(thread: Thread, *, date: str, group: str | None, json: bool) -> None:
    """List the runs that were completed on a day; not those cancelled."""
    found = thread.runs.history(date, group)
    render.show_all(found, steps.as_object, steps.run, json=json)


def show_one(thread: Thread, *, run: int | str, first: int, budget: int | None, json: bool) -> None:
    """Show a run: its task, its roles, and its steps."""
    one = thread.runs.get(run)
    if budget is not None:
        found = one.read(budget)
        show.result(render.fields(found), found.text, json=json)
    elif json:
        show.dump({**steps.as_object(one.info()), "prompt": one.prompt()})
        render.dump_all(map(render.fields, one.replay(first)))
    else:
        render.say_all(steps.heading(one, thread.usage(run=one.id)))
        render.say_all(line for one_step in one.replay(first) for line in steps.readable(one_step))


def messages(
    thread: Thread,
    *,
    run: int | str,
    role: str,
    edge_prompt: str | None,
    edge_prompt_file: str | None,
    json: bool,
) -> None:
    """Show the messages that a role's model should see now.

    With --json they have the form of chat APIs.
    """
    asked = read_text(edge_prompt, edge_prompt_file) or ""
    found = thread.runs.get(run).iter_messages(role, asked)
    if json:
        render.dump_all(found)
    else:
        render.say_all(steps.messages(found))


def _step_needs_role(raw: Raw) -> None:
    """Raise UsageError for a step or attempt without a role, and for a poke with one."""
    unless("poke", required("role"))(raw)
    exclude("poke", "role")(raw)


def _instead(name: str, help: str) -> Option:
    return Option(name, help, kinds.Switch(name, None), parameter="instead")


_RUN = Argument("RUN", kinds.branch)
_GROUP = Option("group GROUP", "Only runs of this group.")
_LABEL = Option("label NAME", "A unique name for the run, not a number.")
_SUMMARY = Option("summary TEXT", "A text about what has happened.", kinds.verbatim, default="")
_QUESTION = (
    Option("edge-prompt TEXT", "The question asked of the role at this step.", kinds.verbatim),
    Option(
        "edge-prompt-file FILE", "Read that question from a file, or from stdin for -.", kinds.path
    ),
)
_ONE_QUESTION = exclude("edge-prompt", "edge-prompt-file")

COMMANDS = {
    "run start": Command(
        start,
        [
            Option("name NAME", "The name of the workflow.", required=True).within("settings"),
            *together(
                "texts",
                Option("prompt TEXT", "The task.", kinds.verbatim),
                Option(
                    "prompt-file FILE",
                    "Read the task from a file, or from stdin for -.",
                    kinds.path,
                ),
                Option(
                    "system-file FILE",
                    "Read system texts from a JSON file, or from stdin for -. Its keys are roles.",
                    kinds.path,
                ),
            ),
            *together(
                "settings",
                Option(
                    "max-rounds N",
                    "The maximum number of rounds, for the run's driver; 0 for no limit.",
                    kinds.WHOLE,
                    default="0",
                ),
                Option(
                    "depth N",
                    "How many runs this one is nested in, for the run's driver.",
                    kinds.WHOLE,
                    default="0",
                ),
                Option(
                    "group GROUP",
                    "A label for similar runs, such as a bundle's hash.",
                    default="",
                ),
                Option("parent-state REF", "The step of the run that calls this one."),
            ),
            _LABEL,
            *together(
                "settings",
                Option(
                    "summary-cap N",
                    "Show at most N characters of other roles' steps; 0 for all.",
                    kinds.WHOLE,
                    default="2000",
                ),
                Option("task-in-system", "The system texts state the task; do not add it."),
                Option(
                    "answer FORM",
                    "The form of a step's output in messages: text, json or meta.",
                    kinds.Choice(*ANSWERS),
                    default="text",
                ),
            ),
            Option(
                "emit",
                "Push an event for each change of the run and its forks."
                " See 'eventq config' for a setting that does so for all runs.",
                kinds.Switch("self", None),
                parameter="source",
            ),
            Option("source ADDRESS", "The sender of these events (default: self)."),
            THREAD,
            JSON,
        ],
        "eventq run start --name solve --prompt 'fix the build' --label build --thread ./inbox",
        "eventq run start --name solve --prompt-file task.md --system-file roles.json --thread"
        " ./inbox",
        rules=[
            exclude("prompt", "prompt-file"),
            one_stdin("prompt-file", "system-file"),
            needs("source", "emit"),
        ],
    ),
    "run step": Command(
        step,
        [
            _RUN,
            Option("role ROLE", "The role of the step; not with --poke.", default=""),
            *together(
                "body",
                Option("meta JSON", "The structured output, any JSON value.", kinds.json_value),
                Option("content TEXT", "The text of the output.", kinds.verbatim),
                Option("file FILE", "Read the text from a file, or from stdin for -.", kinds.path),
                Option("refs REF,REF", "The blobs that the role made.", kinds.refs, default=()),
                Option(
                    "extracted FILE",
                    "Read the output from a JSON file, or from stdin for -. Its keys: meta,"
                    " contentPayload, refs.",
                    kinds.path,
                ),
                *_QUESTION,
                Option(
                    "agent NAME", "What played the role, such as a model's name.", kinds.verbatim
                ),
                Option(
                    "compact TEXT",
                    "A summary that models see in place of earlier steps.",
                    kinds.verbatim,
                ),
                Option("child REF", "The end of a run that this step called."),
                _instead(
                    "attempt", "Store a failed attempt and print its ref. The head does not move."
                ),
                _instead("poke", "Replace the last step. The old one becomes an attempt."),
                EXPECTED_HEAD,
                Option(
                    "key KEY",
                    "Record the step once. Within 24 hours the same key returns the first step.",
                ),
            ),
            THREAD,
            JSON,
        ],
        "eventq run step build --role coder --content 'done' --meta '{\"files\": 2}'"
        " --thread ./inbox",
        "agent | eventq run step build --role coder --file - --agent claude --thread ./inbox",
        rules=[
            exclude("attempt", "poke"),
            _step_needs_role,
            alone("attempt", "extracted", "compact", "child", "expected-head", "key"),
            alone("poke", "extracted", "compact", "child", "expected-head", "key"),
            alone("extracted", "meta", "refs", "content", "file"),
            exclude("content", "file"),
            _ONE_QUESTION,
            one_stdin("file", "extracted", "edge-prompt-file"),
        ],
    ),
    "run end": Command(
        end,
        [
            _RUN,
            Option("return-code N", "The run's result; 0 is success.", kinds.WHOLE, default="0"),
            _SUMMARY,
            THREAD,
            JSON,
        ],
        "eventq run end build --summary 'the build is green' --thread ./inbox",
    ),
    "run cancel": Command(
        cancel,
        [_RUN, _SUMMARY, THREAD, JSON],
        "eventq run cancel build --thread ./inbox",
    ),
    "run suspend": Command(
        suspend,
        [_RUN, THREAD, JSON],
        "eventq run suspend build --thread ./inbox",
    ),
    "run resume": Command(
        resume,
        [_RUN, THREAD, JSON],
        "eventq run resume build --thread ./inbox",
    ),
    "run compact": Command(
        compact,
        [
            _RUN,
            Option("summary TEXT", _SUMMARY.help, kinds.verbatim),
            Option("file FILE", "Read the summary from a file, or from stdin for -.", kinds.path),
            THREAD,
            JSON,
        ],
        "eventq run compact build --summary 'two plans failed' --thread ./inbox",
        rules=[exclude("summary", "file"), one_of("summary", "file")],
    ),
    "run fork": Command(
        fork,
        [
            _RUN,
            Option(
                "at STEP", "The step: its number (0: the start), its hash, or turn:ID.", kinds.step
            ),
            Option("role ROLE", "The first step of this role."),
            _LABEL,
            THREAD,
            JSON,
        ],
        "eventq run fork build --at 3 --label retry --thread ./inbox",
        "eventq run fork build --at turn:17 --thread ./inbox",
        "eventq run fork build --at"
        " blob:blake3:445a1c83d9b0325dd00bc572c581ab4706e60f6b68a56fab060dfe707a1fdd0d --thread"
        " ./inbox",
        "eventq run fork build --role coder --thread ./inbox",
    ),
    "run rm": Command(rm, [_RUN, THREAD, JSON], "eventq run rm build --thread ./inbox"),
    "run ls": Command(
        ls,
        [_GROUP, Option("all", "List all runs, not only active ones."), READ, JSON],
        "eventq run ls --thread ./inbox",
    ),
    "run watch": Command(
        watch,
        [_GROUP, READ, JSON],
        "eventq run watch --thread ./inbox",
        "eventq run watch --group nightly --json --thread ./inbox",
    ),
    "run history": Command(
        history,
        [Option("date YYYY-MM-DD", "The day, in UTC.", required=True), _GROUP, READ, JSON],
        "eventq run history --date 2026-03-18 --thread ./inbox",
    ),
    "run show": Command(
        show_one,
        [
            _RUN,
            Option("from N", "Start at this step.", kinds.WHOLE, default="1", parameter="first"),
            Option(
                "budget CHARACTERS",
                "Print the newest steps that fit, in full and at least one.",
                kinds.POSITIVE,
            ),
            READ,
            JSON,
        ],
        "eventq run show build --thread ./inbox",
        "eventq run show build --budget 20000 --thread ./inbox",
        rules=[exclude("from", "budget")],
    ),
    "run messages": Command(
        messages,
        [
            _RUN,
            Option("role ROLE", "The role whose turn it is.", required=True),
            *_QUESTION,
            READ,
            JSON,
        ],
        "eventq run messages build --role coder --edge-prompt 'go on' --json --thread ./inbox",
        rules=[_ONE_QUESTION],
    ),
}
