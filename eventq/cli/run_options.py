"""The commands of workflow runs and their options."""

from __future__ import annotations

from eventq.cli.options import JSON, THREAD, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


AGENT = Option("agent", "NAME", "Who played the role, for example a model's name.")
ASKED = Option("edge-prompt", "TEXT", "What the role is asked at this step, verbatim.")
ASKED_FILE = Option("edge-prompt-file", "FILE", "Read what the role is asked from a file, or from stdin for -.")
GROUP = Option("group", "GROUP", "Only runs of this group.")
LABEL = Option("label", "NAME", "A unique name for the run, which is no number.")
SUMMARY = Option("summary", "TEXT", "What has happened, in words.")
TELL = (
    Option("emit", None, "Push an event of type record, subtype run, in the same transaction."),
    Option("source", "ADDRESS", "Who the event of --emit comes from; self unless told."),
)

RUNS: Mapping[str, Command] = {
    "run start": Command(
        "run:start",
        "Begin a run of a workflow: the task and each role's system text are frozen with it.",
        [
            Option("name", "NAME", "The name of the workflow.", required=True),
            Option("prompt", "TEXT", "The task."),
            Option("prompt-file", "FILE", "Read the task from a file, or from stdin when FILE is -."),
            Option("system-file", "FILE", "Read the roles' system texts, a JSON object of role and text; stdin for -."),
            Option("max-rounds", "N", "How many rounds the workflow may take; kept for who drives it."),
            Option("depth", "N", "How deep the run lies in runs that called one another; 0 unless told."),
            Option("group", "GROUP", "What the workflow was made of, for example the hash of its bundle."),
            Option("parent-state", "REF", "The step of the run that calls this one."),
            LABEL,
            Option("summary-cap", "N", "Show a model at most N characters of each step between its visits."),
            Option("task-in-system", None, "The system texts state the task: do not add it to them."),
            *TELL,
            THREAD,
            JSON,
        ],
        examples=[
            "eventq run start --name solve --prompt 'mend the build' --label build --thread ./inbox",
            "eventq run start --name solve --prompt-file task.md --system-file roles.json --thread ./inbox",
        ],
    ),
    "run step": Command(
        "run:step",
        "Record what a role put out as the next step of a run, durably.",
        [
            Option("role", "ROLE", "The role; not with --poke."),
            Option("meta", "JSON", "The structured part of it, any JSON value."),
            Option("content", "TEXT", "The text of it."),
            Option("file", "FILE", "Read the text from a file, or from stdin when FILE is -."),
            Option("refs", "REF,REF", "The blobs that it made."),
            Option("extracted", "FILE", "Read all three: a JSON object of meta, contentPayload and refs; stdin for -."),
            ASKED,
            ASKED_FILE,
            AGENT,
            Option("compact", "TEXT", "What has happened before this step: models are shown it in place of that."),
            Option("child", "REF", "The end of a run that this step called."),
            Option("attempt", None, "It failed: keep it without moving the head, and print its ref."),
            Option("poke", None, "Replace the last step; the old one is kept as an attempt."),
            Option("expected-head", "TURN", "Only if the newest turn is this one; else say which it is."),
            Option("key", "KEY", "Take it once: the same key within 24 hours gives the first step and stores nothing."),
            *TELL,
            THREAD,
            JSON,
        ],
        argument="RUN",
        examples=[
            "eventq run step build --role coder --content 'done' --meta '{\"files\": 2}' --thread ./inbox",
            "agent | eventq run step build --role coder --file - --agent claude --thread ./inbox",
        ],
    ),
    "run end": Command(
        "run:end",
        "Complete a run with an end node.",
        [Option("return-code", "N", "How it went; 0, for success, unless told."), SUMMARY, *TELL, THREAD, JSON],
        argument="RUN",
        examples=["eventq run end build --summary 'the build is green' --thread ./inbox"],
    ),
    "run cancel": Command(
        "run:cancel",
        "End a run unfinished, with return code 130.",
        [SUMMARY, *TELL, THREAD, JSON],
        argument="RUN",
        examples=["eventq run cancel build --thread ./inbox"],
    ),
    "run suspend": Command(
        "run:suspend",
        "Set a run aside: it takes no steps until it is resumed.",
        [*TELL, THREAD, JSON],
        argument="RUN",
        examples=["eventq run suspend build --thread ./inbox"],
    ),
    "run resume": Command(
        "run:resume",
        "Let a run that was suspended, completed or cancelled take steps again.",
        [*TELL, THREAD, JSON],
        argument="RUN",
        examples=["eventq run resume build --thread ./inbox"],
    ),
    "run compact": Command(
        "run:compact",
        "Sum up what has happened so far: models are shown it in place of the steps before; none is deleted.",
        [
            SUMMARY,
            Option("file", "FILE", "Read the summary from a file, or from stdin when FILE is -."),
            *TELL,
            THREAD,
            JSON,
        ],
        argument="RUN",
        examples=["eventq run compact build --summary 'two plans failed' --thread ./inbox"],
    ),
    "run fork": Command(
        "run:fork",
        "Make a run that goes on from a step of another; without --at or --role the last step is taken again.",
        [
            Option("at", "N", "The number of the step, 0 for the start."),
            Option("role", "ROLE", "The first step of this role."),
            LABEL,
            *TELL,
            THREAD,
            JSON,
        ],
        argument="RUN",
        examples=["eventq run fork build --at 3 --label retry --thread ./inbox"],
    ),
    "run ls": Command(
        "run:ls",
        "List the runs that are under way, suspended ones too, a line each.",
        [GROUP, Option("all", None, "List all runs, whatever their status."), THREAD, JSON],
        examples=["eventq run ls --thread ./inbox"],
    ),
    "run history": Command(
        "run:history",
        "List the runs that were completed on a day.",
        [Option("date", "YYYY-MM-DD", "The day, of UTC.", required=True), GROUP, THREAD, JSON],
        examples=["eventq run history --date 2026-03-18 --thread ./inbox"],
    ),
    "run show": Command(
        "run:show_one",
        "Show a run: its task, its roles, and its steps from the first on.",
        [
            Option("from", "N", "Begin at this step."),
            Option("budget", "CHARACTERS", "Print the newest steps whole instead, as many as fit; at least one."),
            THREAD,
            JSON,
        ],
        argument="RUN",
        examples=["eventq run show build --thread ./inbox", "eventq run show build --budget 20000 --thread ./inbox"],
    ),
    "run messages": Command(
        "run:messages",
        "Show the messages that a role's model should see now; with --json as chat APIs take them, one a line.",
        [
            Option("role", "ROLE", "The role whose turn it is.", required=True),
            ASKED,
            ASKED_FILE,
            THREAD,
            JSON,
        ],
        argument="RUN",
        examples=["eventq run messages build --role coder --edge-prompt 'go on' --json --thread ./inbox"],
    ),
}
