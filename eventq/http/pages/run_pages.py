"""The pages of runs: a list, and one with its steps on a time axis."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.errors import EventqError
from eventq.http.pages import run_steps
from eventq.http.pages.markdown import html
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.wording import GOING, activity, run_counts
from eventq.log.questions import answered
from eventq.memory.blobs import digest_of
from eventq.memory.nodes import END, NO_ROLES, ContentNode, StartNode, StateNode, decode
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eventq.http.pages.page_request import Ask
    from eventq.http.pages.run_steps import Row, Try
    from eventq.memory.nodes import Node
    from eventq.memory.runs import Run
    from eventq.records.question import Question
    from eventq.records.run import RunInfo, Step
    from eventq.thread import Thread

    Values = dict[str, Any]

PAGE = 100  # steps of a page
LISTED = 50  # runs of a kind
BESIDE = 20  # of each list beside the steps
ANSWERS = 100  # the newest, that those of a run are looked for in
TRIES = 10  # of a step
ENDS = 8  # messages that are shown at each end of what a model saw
MESSAGE = 4_000  # characters of each
SECONDS = 0.5  # for which messages are built
TEXT = 20_000  # characters of a task
LINE = 200
_STATES = {"all": None, "active": True, "ended": False}


def runs(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List the runs: those that wait for a person, those under way, those that ended."""
    state = ask.query.get("state", "all")
    state = state if state in _STATES else "all"
    before, asked = whole_in(ask.query, "before", 0), asked_in(thread)
    waits = _waiting(thread, asked) if state != "ended" and not before else []
    found = [*waits]
    more: dict[str, int] = {}
    for name, active in (("active", True), ("ended", False)):
        if state in ("all", name):
            page = thread.runs.newest(before if state == name else 0, LISTED + 1, active=active)
            if len(page) > LISTED:
                more[name] = page[LISTED - 1][0].run_id
            known = {info.run_id for info, _ in waits}
            found += [one for one in page[:LISTED] if one[0].run_id not in known]
    counts = thread.database.memory.overview(1).runs
    going, ended = run_counts(counts)
    return "runs.html", {
        "rows": _listed(thread, found, asked), "more": more, "state": state, "before": before,
        "chips": [("all", going + ended), ("active", going), ("ended", ended)],
    }  # fmt: skip


def asked_in(thread: Thread) -> dict[int, Question]:
    """Return the oldest open question of each run."""
    found: dict[int, Question] = {}
    for one in thread.questions():
        if one.run is not None:
            found.setdefault(one.run, one)
    return found


def _waiting(thread: Thread, asked: Iterable[int]) -> list[tuple[RunInfo, int]]:
    """Return the runs of questions, those under way, and when each began."""
    found = []
    for number in islice(asked, LISTED):
        info = thread.runs.engine.get(number)
        if info is not None and info.status in GOING:
            found.append((info, thread.contexts.get(number).info().created_at_ms))
    return found


def _listed(
    thread: Thread, found: Sequence[tuple[RunInfo, int]], asked: Mapping[int, Question]
) -> list[Values]:
    """Return runs as rows: task, state, last role, time. Their nodes are read together."""
    heads = _nodes(thread, [info.head for info, _ in found])
    starts = _nodes(thread, [info.start for info, _ in found])
    above = [one.ancestors[0] for one in heads.values() if _is_end(one) and one.ancestors]  # type: ignore[union-attr]
    before = _nodes(thread, above)
    prompts = {one.prompt for one in starts.values() if isinstance(one, StartNode)}
    tasks = {ref: _begin(thread, ref) for ref in prompts}
    usage = thread.usage_of_runs([info.run_id for info, _ in found])
    rows = []
    for info, began in found:
        head, start = heads.get(info.head), starts.get(info.start)
        last = before.get(head.ancestors[0]) if _is_end(head) and head.ancestors else head  # type: ignore[union-attr]
        task = tasks[start.prompt] if isinstance(start, StartNode) else ""
        ended = info.completed_at_ms or info.updated_at_ms
        rows.append({
            "info": info, "task": said.one_line(task, LINE),
            "state": _state(info, asked.get(info.run_id), head),
            "role": last.role if isinstance(last, StateNode) and last.role not in NO_ROLES else "",
            "took": ended - began, "asked": asked.get(info.run_id),
            "usage": usage[info.run_id],
        })  # fmt: skip
    return rows


def _begin(thread: Thread, ref: str) -> str:
    """Return the beginning of a task; of an erased one what is shown in its place."""
    try:
        return thread.blobs.part(ref, 0, 4 * LINE).decode(errors="replace")
    except EventqError:
        return (thread.blobs.shown(ref) or b"").decode(errors="replace")


def _is_end(node: Node | None) -> bool:
    return isinstance(node, StateNode) and node.role == END


def _state(info: RunInfo, asked: Question | None, head: Node | None) -> tuple[str, str]:
    """Return mark and words of the state of a run; `head` is its last node, if that is known."""
    if info.status in GOING:
        return activity(info.updated_at_ms, info.status, is_asked=asked is not None)
    return run_steps.ending(head.meta if isinstance(head, StateNode) else None)


def _nodes(thread: Thread, refs: Iterable[str]) -> dict[str, Node]:
    """Return the nodes of some refs; those that cannot be read are left out."""
    found = {}
    data = thread.blobs.shown_many([digest_of(ref) for ref in dict.fromkeys(refs) if ref])
    for digest, one in data.items():
        ref = f"blob:blake3:{digest.hex()}"
        try:
            found[ref] = decode(one, ref)
        except EventqError:  # one that was erased, or is of a type that nobody knows here
            continue
    return found


def run(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show a run: its task, its steps on a time axis, and all of the one that is asked for."""
    found = thread.runs.get(ask.names["run"])
    info, number = found.info(), whole_in(ask.query, "step", 0)
    first = whole_in(ask.query, "from", 0) or _first(info.depth, number)
    began, before = (_time(found, depth, info) for depth in (0, first - 1))
    steps = [_cut(one, number) for one in islice(found.replay(first), PAGE)]
    colours = run_steps.colours_of([*_early(thread, found, first), *(one.role for one in steps)])
    tries = {
        one.number: [*_tries(thread, one, is_open=one.number == number)]
        for one in steps if one.attempts
    }  # fmt: skip
    rows = run_steps.rows_of(steps, before, colours, tries)
    asked = [one for one in thread.questions() if one.run == info.run_id][:BESIDE]
    chosen = next((one for one in rows if one.step.number == number), None)
    prompt = found.prompt()
    head = _nodes(thread, [info.head]).get(info.head)
    made = thread.contexts.get(info.run_id).info()  # a fork is younger than its first steps
    return "run.html", {
        "info": info, "state": _state(info, asked[0] if asked else None, head), "going": GOING,
        "task": html(prompt[:TEXT], breaks=True), "line": said.one_line(prompt, LINE),
        "rows": rows, "chips": [*colours.items()][: run_steps.ROLES], "began": began,
        "first": first, "number": number,
        "ticks": run_steps.ticks_of(rows, began), "wide": run_steps.WIDE,
        "took": (info.completed_at_ms or info.updated_at_ms) - made.created_at_ms,
        "earlier": max(1, first - PAGE) if first > 1 else None,
        "later": first + PAGE if info.depth >= first + PAGE else None,
        "roles": run_steps.roles_in(rows), "asked": asked,
        "answered": _answered(thread, info.run_id), "usage": thread.usage(run=info.run_id),
        "more_tries": max(0, len(chosen.step.attempts) - TRIES) if chosen else 0,
        "open": _opened(thread, found, chosen) if chosen is not None else None,
        "summaries": {one.number: _size(thread, one.compact) for one in steps if one.compact},
        **_beside(thread, found, info),
    }  # fmt: skip


def _answered(thread: Thread, run_id: int) -> list[tuple[Question, float]]:
    """Return questions of a run among those answered last, each with the time until then, in ms."""
    found, _ = answered(thread.database, None, ANSWERS)
    return [(one, _between(one.asked_at, one.answered_at)) for one in found if one.run == run_id]


def _between(asked: str, came: str | None) -> float:
    """Return the time between two events, in ms, 0 where that is not known."""
    try:
        begun, ended = datetime.fromisoformat(asked), datetime.fromisoformat(came or asked)
        return (ended - begun).total_seconds() * 1_000
    except (TypeError, ValueError):  # others than eventq wrote it
        return 0


def _time(found: Run, depth: int, info: RunInfo) -> int:
    """Return when the step at a depth was stored, or when the run changed last."""
    turns = [*found.context.range(depth, 1, payload=False)]
    return turns[0].created_at_ms if turns else info.updated_at_ms


def _size(thread: Thread, ref: str) -> int:
    """Return the size of a summary, 0 for one that is gone."""
    try:
        return thread.blobs.stat(ref).size
    except EventqError:
        return 0


def _first(depth: int, number: int) -> int:
    """Return the first step of the page with a step, by default of the page with the last one."""
    if number:
        return (number - 1) // PAGE * PAGE + 1
    return max(1, depth - PAGE + 1)


def _early(thread: Thread, found: Run, first: int) -> Iterable[str]:
    """Yield the roles of the first steps, which colours go by, if a page begins after them."""
    if first <= 1:
        return
    for turn in found.context.range(1, min(PAGE, first - 1)):
        try:
            node = thread.runs.of_turn(turn)
        except EventqError:
            continue
        if isinstance(node, StateNode):
            yield node.role


def _cut(one: Step, number: int) -> Step:
    """Return a step of which only the beginning is kept, unless it has the number."""
    return one if one.number == number else one._replace(content=one.content[: 4 * LINE])


def _tries(thread: Thread, one: Step, *, is_open: bool) -> Iterable[Try]:
    """Yield the last tries of a step; of one that is open, with what they said."""
    nodes = _nodes(thread, one.attempts[-TRIES:])
    for ref in one.attempts[-TRIES:]:
        node = nodes.get(ref)
        if isinstance(node, StateNode):
            content = _nodes(thread, [node.content]).get(node.content) if is_open else None
            text = content.text if isinstance(content, ContentNode) else ""
            yield run_steps.Try(node.timestamp, ref, node.meta, text[:TEXT])


def _opened(thread: Thread, found: Run, row: Row) -> Values:
    """Return all that is shown of one step, and what the model saw."""
    one = row.step
    child = thread.database.memory.turns.depths(digest_of(one.child)) if one.child else []
    return run_steps.opened(row) | {
        **_saw(found, row),
        "causes": thread.causes_of(turn=one.turn_id), "child": child[0][1] if child else None,
        "summary": (thread.blobs.shown(one.compact) or b"").decode(errors="replace")[:TEXT]
        if one.compact else "",
    }  # fmt: skip


def _saw(found: Run, row: Row) -> Values:
    """Return what a step's role saw, or why that cannot be built: a step before may be damaged."""
    if row.kind != "step":
        return {"saw": None, "unseen": ""}
    try:
        return {"saw": _messages(found, row.step), "unseen": ""}
    except EventqError as error:
        return {"saw": None, "unseen": str(error)}


def _messages(found: Run, one: Step) -> Values:
    """Return the messages that a step's role saw: the first and the last, and how many there are.

    To build those of a long run takes long; then they are the first only.
    """
    deadline = clock.monotonic() + SECONDS
    shown: list[Values] = []
    count = size = 0
    is_whole = True
    for message in found.messages_before(one):
        text = message["content"]
        count, size = count + 1, size + len(text)
        shown.append({
            "number": count, "role": message["role"], "size": len(text),
            "line": said.one_line(text, LINE), "text": text[:MESSAGE],
            "left": max(0, len(text) - MESSAGE),
        })  # fmt: skip
        if len(shown) > 2 * ENDS:
            del shown[ENDS]
        if clock.monotonic() > deadline:
            is_whole = False
            break
    most = max((each["size"] for each in shown), default=1)
    return {
        "messages": shown, "count": count, "size": size, "is_whole": is_whole, "most": most,
        "left": count - len(shown), "ends": ENDS,
    }  # fmt: skip


def _beside(thread: Thread, found: Run, info: RunInfo) -> Values:
    """Return what stands beside the steps: what came of the run, its forks, what caused it."""
    scope = thread.scope(info.run_id)
    root = found.context.ancestor(0)
    forks = [
        (fork, thread.contexts.turns.depth(turn) if turn else 0)
        for fork, turn in thread.runs.engine.forks(info.run_id, BESIDE)
    ]
    called = found.start_node().parent_state
    above = thread.database.memory.turns.depths(digest_of(called)) if called else []
    return {
        "artifacts": [*scope.artifacts.newest(BESIDE)][::-1], "session": scope.artifacts.session,
        "outputs": scope.outputs.newest("", BESIDE), "forks": forks,
        "causes": thread.causes_of(turn=root) if root else [],
        "called_by": above[0][1] if above else None,
    }  # fmt: skip
