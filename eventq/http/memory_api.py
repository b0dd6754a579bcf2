"""The operations of the memory: contexts, turns and runs."""

from __future__ import annotations

from base64 import b64decode
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from eventq.errors import InputError, UsageError
from eventq.http.operations import AT, Operation, Reply, of_json, once
from eventq.memory.turns import View
from eventq.records.run import NewRun, NewStep
from eventq.records.spent import usage_object
from eventq.records.turn import NewTurn, turn_object
from eventq.serving.parameters import Given, Part, fitting
from eventq.serving.plans import QUICK, READ, WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eventq.memory.contexts import Context
    from eventq.memory.runs import Run
    from eventq.records.run import Step
    from eventq.records.turn import Page, Turn
    from eventq.thread import Thread

M = TypeVar("M", "Turn", "Step")
PAGE = 2_000  # turns, steps, contexts or runs of a page, at most
PAGE_BYTES = 16 << 20  # of the payloads of a page, unless one alone has more
MOST_REFS = 1_000


# --- contexts -------------------------------------------------------------------------------------


def contexts(thread: Thread, given: Given) -> Reply:
    """List the contexts by id."""
    found = [*islice(thread.contexts.list(given["after"]), given["limit"])]
    reached = found[-1].context_id if found else given["after"]
    return of_json({"contexts": [one._asdict() for one in found], "next": reached})


def context(thread: Thread, given: Given) -> Reply:
    """Read where a context stands, by id or name."""
    return _context(thread.contexts.get(given["context"]))


def _context(found: Context, status: int = 200) -> Reply:
    return of_json(found.info()._asdict(), status=status)


def create(thread: Thread, given: Given) -> Reply:
    """Make a context that is empty, or begins at a turn."""
    return _context(thread.contexts.create(given["name"], base=given["base"]), 201)


def fork(thread: Thread, given: Given) -> Reply:
    """Make a context that goes on from the head of another, or from one of its turns."""
    made = thread.contexts.fork(given["context"], at=given["at"], name=given["name"])
    return _context(made, 201)


# --- turns ----------------------------------------------------------------------------------------


def turns(thread: Thread, given: Given) -> Reply:
    """Read the newest turns of a context, or those before a turn or from a depth on.

    They come oldest first, at most 16 MiB of payloads at once. `next` is where to go on: what
    `before` is next, or with `from` what that is; null at the end.
    """
    if given["before"] is not None and given["from"] is not None:
        raise UsageError("'before' and 'from' exclude each other", "give one of them")
    branch = thread.contexts.get(given["context"])
    view, as_of = View(branch.turns, branch.head_id()), given["as_of"]
    if as_of is None:
        as_of = branch.turns.last_patch()

    def read(limit: int, *, payload: bool) -> Page:
        if given["from"] is not None:
            return view.range(given["from"], limit, payload=payload, as_of=as_of)
        if given["before"] is not None:
            return view.before(given["before"], limit, payload=payload, as_of=as_of)
        return view.last(limit, payload=payload, as_of=as_of)

    page = read(given["limit"], payload=False)
    if given["payload"] and page:
        rising = page if given["from"] is not None else reversed(page)
        page = read(len(_fitting(rising)), payload=True)
    shown = [turn_object(one, payload=given["payload"]) for one in page]
    return of_json({"turns": shown, "next": page.next_cursor})


def _fitting(found: Iterable[Turn]) -> list[Turn]:
    """Return as many of the first turns as a page holds."""
    return fitting(found, PAGE_BYTES, lambda one: one.size)


def turn(thread: Thread, given: Given) -> Reply:
    """Read any turn."""
    found = thread.contexts.turn(given["id"], payload=given["payload"], as_of=given["as_of"])
    return of_json(turn_object(found, payload=given["payload"]))


def turn_causes(thread: Thread, given: Given) -> Reply:
    """Read which events caused a turn."""
    thread.contexts.turn(given["id"], payload=False)
    return of_json({"causes": [one._asdict() for one in thread.causes_of(turn=given["id"])]})


def usage(thread: Thread, given: Given) -> Reply:
    """Read the tokens that models took: in the thread, a context or a run."""
    found = thread.usage(**{name: given[name] for name in ("context", "run", "since", "until")})
    return of_json(usage_object(found))


def usage_by_hour(thread: Thread, given: Given) -> Reply:
    """Read the tokens that models took in each hour that has any."""
    hours = thread.usage_by_hour(given["since"], given["until"])
    return of_json({"hours": [one._asdict() for one in hours]})


def append(thread: Thread, given: Given) -> Reply:
    """Append a turn to a context, once if it has a key; the reply has no payload."""
    payload, encoded = given["payload"], given["payload_base64"]
    if (payload is None) == (encoded is None):
        raise InputError("a turn has either a payload or a payload_base64", "give one of them")
    if encoded is not None:
        try:
            payload = b64decode(encoded, validate=True)
        except ValueError as error:
            raise InputError("payload_base64 is no base64", "encode the bytes again") from error
    elif given["canonical"] is not None:
        payload = payload.encode("utf-8", "replace")  # JSON, not the text of it
    of_turn = {name: given[name] for name in ("type_id", "type_version", "encoding", "flags")}
    new = NewTurn(payload, canonical=given["canonical"], refs=given["refs"] or (), **of_turn)
    branch = thread.contexts.get(given["context"])
    made, status = _stored(thread, given, lambda: branch.append(
        new, parent=given["parent"], expected_head=given["expected_head"], key=given["key"],
        source=given["source"],
    ))  # fmt: skip
    return of_json(turn_object(made, payload=False), status=status)


def _stored(thread: Thread, given: Given, store: Callable[[], M]) -> tuple[M, int]:
    """Store a turn or a step, once with a key; return it and its status."""

    def newest() -> int:
        return thread.database.memory.copies.last_ids().turn

    return once(thread, given["key"], newest, store, lambda made: made.turn_id)


def diff(thread: Thread, given: Given) -> Reply:
    """Read what each of two contexts has after the last turn that they share.

    At most so many turns of each, from the oldest on; their number is that of all.
    """
    first, other = (thread.contexts.get(given[name]) for name in ("context", "with"))
    found = first.diff(other, payload=given["payload"])
    shown: dict[str, Any] = {"ancestor_turn_id": found.ancestor}
    for name, side in (("mine", found.mine), ("theirs", found.theirs)):
        some = _fitting(islice(side, given["limit"]))
        shown[name] = [turn_object(one, payload=given["payload"]) for one in some]
        shown[f"{name}_count"] = len(side)
    return of_json(shown)


# --- runs -----------------------------------------------------------------------------------------


def runs(thread: Thread, given: Given) -> Reply:
    """List the runs by id: all, those under way, or those that were completed on a day."""
    if given["day"] is not None:
        chosen = thread.runs.history(given["day"], given["group"], after=given["after"])
    else:
        choose = thread.runs.active if given["active"] else thread.runs.list
        chosen = choose(given["group"], after=given["after"])
    found = [*islice(chosen, given["limit"])]
    reached = found[-1].run_id if found else given["after"]
    return of_json({"runs": [one._asdict() for one in found], "next": reached})


def run(thread: Thread, given: Given) -> Reply:
    """Read where a run stands, by id or label, and its task."""
    return _run(thread.runs.get(given["run"]))


def _run(found: Run, status: int = 200) -> Reply:
    return of_json({**found.info()._asdict(), "prompt": found.prompt()}, status=status)


def steps(thread: Thread, given: Given) -> Reply:
    """Read the steps of a run from a number on, oldest first."""
    found: list[dict[str, Any]] = []
    size, left = 0, None
    for one in thread.runs.get(given["run"]).replay(given["from"]):
        size += len(one.content)
        if len(found) >= given["limit"] or (found and size > PAGE_BYTES):
            left = one.number
            break
        found.append(one._asdict())
    return of_json({"steps": found, "next": left})


def messages(thread: Thread, given: Given) -> Reply:
    """Read the messages that a role's model should see now, in the form of chat APIs."""
    found = thread.runs.get(given["run"])
    return of_json({"messages": found.messages(given["role"], given["edge_prompt"])})


def start(thread: Thread, given: Given) -> Reply:
    """Start a run of a workflow. Its task and system texts never change."""
    names = (
        "name", "prompt", "system", "group", "max_rounds", "depth", "parent_state", "summary_cap",
        "task_in_system", "answer",
    )  # fmt: skip
    new = NewRun(**{name: given[name] for name in names})
    return _run(thread.runs.start(new, label=given["label"], source=given["source"]), 201)


def step(thread: Thread, given: Given) -> Reply:
    """Record a role's output as the next step of a run, once if it has a key."""
    names = ("role", "meta", "content", "edge_prompt", "agent", "compact", "child")
    new = NewStep(refs=given["refs"] or (), **{name: given[name] for name in names})
    run = thread.runs.get(given["run"])
    made, status = _stored(
        thread, given, lambda: run.step(new, expected_head=given["expected_head"], key=given["key"])
    )
    return of_json(made._asdict(), status=status)


def poke(thread: Thread, given: Given) -> Reply:
    """Replace the last step of a run by another of its role; the old one is kept as an attempt."""
    made = thread.runs.get(given["run"]).poke(
        given["meta"], given["content"], refs=given["refs"] or (),
        edge_prompt=given["edge_prompt"], agent=given["agent"],
    )  # fmt: skip
    return of_json(made._asdict(), status=201)


def compact(thread: Thread, given: Given) -> Reply:
    """Add a summary that models see in place of earlier steps. None is deleted."""
    made = thread.runs.get(given["run"]).compact(given["summary"])
    return of_json(made._asdict(), status=201)


def fork_run(thread: Thread, given: Given) -> Reply:
    """Make a run that goes on from a step of another, which stays as it is; nothing is copied."""
    at = given["at"]
    made = thread.runs.get(given["run"]).fork(
        int(at) if at is not None and at.isascii() and at.isdigit() and len(at) < 10 else at,
        role=given["role"],
        label=given["label"],
    )
    return _run(made, 201)


def suspend(thread: Thread, given: Given) -> Reply:
    """Suspend an active run: it takes no steps until it is resumed."""
    return of_json(thread.runs.get(given["run"]).suspend()._asdict())


def resume_run(thread: Thread, given: Given) -> Reply:
    """Let a run that is suspended, completed or cancelled take steps again."""
    return of_json(thread.runs.get(given["run"]).resume()._asdict())


def delete_run(thread: Thread, given: Given) -> Reply:
    """Delete a run; its steps stay until a collection, and its forks are not affected."""
    return of_json(thread.runs.delete(given["run"])._asdict())


def end(thread: Thread, given: Given) -> Reply:
    """End a run with a return code and a summary."""
    made = thread.runs.get(given["run"]).end(given["return_code"], given["summary"])
    return of_json(made._asdict())


def cancel(thread: Thread, given: Given) -> Reply:
    """Cancel a run: end it with return code 130."""
    return of_json(thread.runs.get(given["run"]).cancel(given["summary"])._asdict())


_U32 = (1 << 32) - 1
_CONTEXT, _RUN = f"{AT}/contexts/{{context}}", f"{AT}/runs/{{run}}"
_AFTER = Part("after", "integer", "Only those above this id.", 0)
_LIMIT = Part("limit", "integer", "How many at most.", 100, least=1, most=PAGE)
_TURNS = Part("limit", "integer", "How many at most.", 64, least=1, most=PAGE)
_PAYLOAD = Part("payload", "boolean", "Whether payloads are shown.", True)
_AS_OF = Part("as_of", "integer", "Ignore patches after this one; 0 ignores all.")
_KEY = Part("key", "string", "Store it once: within 24 hours the same key returns the first one.")
_HEAD = Part("expected_head", "integer", "Only if the newest turn is this one.")
_REFS = Part("refs", "strings", "The blobs that it names.", most=MOST_REFS)
_SUMMARY = Part("summary", "string", "What has happened.", "")
_EDGE = Part("edge_prompt", "string", "The question asked of the role.", "")

_TIMES = (
    Part("since", "integer", "Only responses from then on, in milliseconds since 1970.", 0),
    Part("until", "integer", "Only responses before then."),
)
OPERATIONS: Sequence[Operation] = (
    Operation(
        "listContexts", "GET", f"{AT}/contexts", READ, contexts, "Contexts", (_AFTER, _LIMIT)
    ),
    Operation(
        "createContext", "POST", f"{AT}/contexts", WRITE, create, "Context", made=True,
        body=(
            Part("name", "string", "A name, which no other has."),
            Part("base", "integer", "The turn it begins at.", 0),
        ),
    ),
    Operation("getContext", "GET", _CONTEXT, QUICK, context, "Context"),
    Operation(
        "forkContext", "POST", f"{_CONTEXT}/fork", WRITE, fork, "Context", made=True,
        body=(
            Part("name", "string", "A name, which no other has."),
            Part("at", "integer", "The turn it begins at, by default the newest."),
        ),
    ),
    Operation(
        "listTurns", "GET", f"{_CONTEXT}/turns", READ, turns, "Turns",
        (
            Part("before", "integer", "Those before this turn."),
            Part("from", "integer", "Those from this depth on; 0 is the root."),
            _TURNS, _PAYLOAD, _AS_OF,
        ),
    ),
    Operation(
        "appendTurn", "POST", f"{_CONTEXT}/turns", WRITE, append, "Turn", made=True,
        body=(
            Part("payload", "string", "The payload."),
            Part("payload_base64", "string", "The payload, if it is no text."),
            Part("type_id", "string", "The type.", "message"),
            Part("type_version", "integer", "Its version.", 1, most=_U32),
            Part("encoding", "integer", "Of the payload, as the application has it.", 0, most=_U32),
            Part("flags", "integer", "As the application has them.", 0, most=_U32),
            Part("canonical", "string", "Store the canonical form of JSON: eventq-json-1."),
            Part("parent", "integer", "Append after this turn instead of the newest.", least=1),
            _HEAD, _KEY, _REFS,
            Part("source", "string", "Push an event about it, from this sender."),
        ),
    ),
    Operation(
        "diffContexts", "GET", f"{_CONTEXT}/diff", READ, diff, "Diff",
        (Part("with", "string", "The other context.", required=True), _TURNS, _PAYLOAD),
    ),
    Operation("getTurn", "GET", f"{AT}/turns/{{id}}", READ, turn, "Turn", (_PAYLOAD, _AS_OF)),
    Operation(
        "getTurnCauses", "GET", f"{AT}/turns/{{id}}/causes", READ, turn_causes, "TurnCauses"
    ),
    Operation(
        "getUsage", "GET", f"{AT}/usage", READ, usage, "Usage",
        (
            Part("context", "string", "Only of this context's session, by id or name."),
            Part("run", "string", "Only of this run, by id or name."),
            *_TIMES,
        ),
    ),
    Operation(
        "getUsageByHour", "GET", f"{AT}/usage/hours", READ, usage_by_hour, "UsageByHour", _TIMES
    ),
    Operation(
        "listRuns", "GET", f"{AT}/runs", READ, runs, "Runs",
        (
            Part("group", "string", "Only runs of this group."),
            Part("active", "boolean", "Only those under way, or suspended.", False),
            Part("day", "string", "Only those completed on this day of UTC, as 2026-03-18."),
            _AFTER, _LIMIT,
        ),
    ),
    Operation(
        "startRun", "POST", f"{AT}/runs", WRITE, start, "Run", made=True,
        body=(
            Part("name", "string", "The name of the workflow.", required=True),
            Part("prompt", "string", "The task.", ""),
            Part("system", "object", "The system text of each role."),
            Part("label", "string", "A name for the run, which no other has."),
            Part("group", "string", "A label for similar runs.", ""),
            Part("max_rounds", "integer", "For the run's driver; 0 for no limit.", 0, most=_U32),
            Part("depth", "integer", "How many runs this one is nested in.", 0, most=_U32),
            Part("parent_state", "string", "The step of the run that calls this one."),
            Part("summary_cap", "integer", "Characters of others' steps; 0 for all.", 2000),
            Part("task_in_system", "boolean", "The system texts state the task.", False),
            Part("answer", "string", "The form of outputs in messages.", "text",
                 choices=("text", "json", "meta")),
            Part("source", "string", "Push an event for each change, from this sender."),
        ),
    ),
    Operation("getRun", "GET", _RUN, QUICK, run, "Run"),
    Operation(
        "listSteps", "GET", f"{_RUN}/steps", READ, steps, "Steps",
        (Part("from", "integer", "Start at this step.", 1, least=1), _LIMIT),
    ),
    Operation(
        "addStep", "POST", f"{_RUN}/steps", WRITE, step, "Step", made=True,
        body=(
            Part("role", "string", "The role.", required=True),
            Part("content", "string", "The text of its output.", ""),
            Part("meta", "json", "The structured part, any JSON."),
            _REFS, _EDGE,
            Part("agent", "string", "What played the role, such as a model's name.", ""),
            Part("compact", "string", "A summary in place of earlier steps."),
            Part("child", "string", "The end of a run that this step called."),
            _HEAD, _KEY,
        ),
    ),
    Operation(
        "endRun", "POST", f"{_RUN}/end", WRITE, end, "Step",
        body=(
            Part("return_code", "integer", "The result; 0 is success.", 0, most=255),
            _SUMMARY,
        ),
    ),
    Operation(
        "pokeRun", "POST", f"{_RUN}/poke", WRITE, poke, "Step", made=True,
        body=(
            Part("content", "string", "The text of its output.", ""),
            Part("meta", "json", "The structured part, any JSON."),
            _REFS,
            Part("edge_prompt", "string", "The question asked of the role; unchanged without it."),
            Part("agent", "string", "What played the role; unchanged without it."),
        ),
    ),
    Operation(
        "compactRun", "POST", f"{_RUN}/compact", WRITE, compact, "Step", made=True,
        body=(Part("summary", "string", "What has happened.", required=True),),
    ),
    Operation(
        "forkRun", "POST", f"{_RUN}/fork", WRITE, fork_run, "Run", made=True,
        body=(
            Part("at", "string", "A step: its number, its ref, turn:ID. Before the last."),
            Part("role", "string", "The first step of this role, instead."),
            Part("label", "string", "A name for the run, which no other has."),
        ),
    ),
    Operation("suspendRun", "POST", f"{_RUN}/suspend", WRITE, suspend, "RunInfo", body=()),
    Operation("resumeRun", "POST", f"{_RUN}/resume", WRITE, resume_run, "RunInfo", body=()),
    Operation("deleteRun", "DELETE", _RUN, WRITE, delete_run, "RunInfo"),
    Operation("cancelRun", "POST", f"{_RUN}/cancel", WRITE, cancel, "Step", body=(_SUMMARY,)),
    Operation(
        "listMessages", "GET", f"{_RUN}/messages", READ, messages, "Messages",
        (Part("role", "string", "The role whose turn it is.", required=True), _EDGE),
    ),
)  # fmt: skip
