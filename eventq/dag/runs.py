"""Workflow runs: hash-chained steps on a context, with a status, forks, compaction, and the messages a model gets.

A run is a context whose first turn is a start node and whose others are state nodes, see `eventq.dag.nodes`. The store
makes what chains them (start, ancestors, refs); callers give what a role put out.
"""

from __future__ import annotations

import json

from blake3 import blake3

from eventq import system as machine
from eventq.blobs import digest_of, digests_of
from eventq.dag import canonical, messages
from eventq.dag.contexts import Context, Contexts
from eventq.dag.nodes import (
    COMPACT,
    END,
    NO_ROLES,
    START_TYPE,
    STATE_TYPE,
    VERSION,
    ContentNode,
    StartNode,
    StateNode,
    ancestors_after,
    decode,
)
from eventq.dag.turns import KEY_MS
from eventq.errors import (
    ConflictError,
    DamagedBlobError,
    DamagedError,
    InputError,
    LogicError,
    UnknownContextError,
    UnknownRunError,
    UsageError,
)
from eventq.event import REF, check_name, check_natural, check_positive, check_whole
from eventq.records import RunInfo, RunText, Step
from eventq.storage.sqlite.runs import RunTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.blobs import Name, Prepared
    from eventq.dag.nodes import Node
    from eventq.dag.turns import Chain, NewTurn, Push, View
    from eventq.records import Turn

COMPACTED = 1  # the flag of a turn whose node has a compaction: it is found without reading the nodes
ABORTED = 130
_NEAR = 256  # nodes that are held
_GROUP = 256  # steps whose contents are fetched together


class Runs:
    """The workflow runs of one thread."""

    def __init__(self, contexts: Contexts, push: Push) -> None:
        """Use the contexts of a thread; `push` tells of changes."""
        self.contexts = contexts
        self.turns = contexts.turns
        self.table = RunTable(self.turns.database)
        self.push = push
        self.near: dict[bytes, Node] = {}

    def start(
        self,
        name: str,
        prompt: str,
        *,
        system: Mapping[str, str] | None = None,
        max_rounds: int = 0,
        depth: int = 0,
        group: str = "",
        parent_state: Name | None = None,
        label: str | None = None,
        summary_cap: int | None = None,
        task_in_system: bool = False,
        source: str | None = None,
    ) -> Run:
        """Begin a run of a workflow and return it; prompt and system texts are frozen with it.

        `system` maps each role to its system text; when it has any, only these roles and those that
        took a step have messages. `group` is what the workflow was made of (a hash of its bundle),
        `parent_state` the step of a calling run, `label` a name for the run's context.
        `summary_cap` bounds the characters of one step in a summary. With `task_in_system` the
        system texts state the task: the messages do not add it to them (default: they do). With a
        `source` an event tells of it. Raises InputError, UnknownBlobError, ConflictError for a
        label that is taken.
        """
        check_name(name, "name")
        check_name(group, "group", empty=True)
        for value, what in ((max_rounds, "max_rounds"), (depth, "depth")):
            check_natural(value, what)
        if summary_cap is not None:
            check_positive(summary_cap, "summary_cap")
        if not hasattr(system or {}, "items"):
            raise InputError("the system texts are one of each role", "give a mapping of role and text")
        _check_task_in_system(task_in_system, system)
        with self.turns.database.write():
            node = StartNode(
                name,
                self._put(prompt, "prompt"),
                group,
                max_rounds,
                depth,
                {_role(role): self._put(text, f"system text of {role}") for role, text in (system or {}).items()},
                None if parent_state is None else REF + digest_of(parent_state).hex(),
                summary_cap,
                task_in_system,
            )
            context = self.contexts.create(label)
            turn = self.turns.append(context.id, self.new(node, START_TYPE))
            self.table.add(context.id, name, group, turn.turn_id)
            run = Run(self, context)
            run._tell("start", source)
        return run

    def _put(self, text: str, what: str) -> str:
        _check_text(text, what)
        return self.turns.blobs.put(text.encode()).ref

    def new(self, node: StartNode | StateNode, type_id: str, *, flags: int = 0) -> NewTurn:
        """Give a node as a turn that can be appended."""
        new = self.turns.prepare(
            node.encode(), type_id=type_id, type_version=VERSION, flags=flags, refs=node.refs(), new=True
        )
        new.canonical = canonical.EVENTQ_JSON_1
        return new

    def node(self, digest: bytes) -> Node:
        """Give the node of a hash; those of the last steps are held."""
        found = self.near.get(digest)
        if found is None:
            ref = REF + digest.hex()
            data = self.turns.blobs.get(digest)
            if data is None:
                raise DamagedError(f"missing blob {ref}", "restore a backup")
            found = decode(data, ref)
            self.remember(digest, found)
        return found

    def remember(self, digest: bytes, node: Node) -> None:
        """Hold a node that the next step will ask for."""
        if len(self.near) >= _NEAR:
            self.near.clear()
        self.near[digest] = node

    def get(self, run: int | str) -> Run:
        """Give the run of an id or of a label. Raises UnknownRunError."""
        try:
            context = self.contexts.get(run)
        except UnknownContextError as error:
            raise UnknownRunError(run) from error
        if self.table.spot(context.id) is None:
            raise UnknownRunError(run)
        return Run(self, context)

    def active(self, group: str | None = None) -> Iterator[RunInfo]:
        """Give the runs that are under way (active or suspended), by id, of all groups or of one."""
        return (RunInfo(*row) for row in self.table.active(group))

    def history(self, day: str, group: str | None = None) -> Iterator[RunInfo]:
        """Give the runs that were completed on a day, `2026-03-18`, of UTC."""
        return (RunInfo(*row) for row in self.table.completed(_day(day), group))

    def index_entries(self, group: str | None = None) -> Iterator[str]:
        """Give what `active` gives as JSON: `threadId`, `head`, `start`, `updatedAt`."""
        return (row[1] for row in self.table.active(group, entries=True))

    def history_entries(self, day: str, group: str | None = None) -> Iterator[str]:
        """Give what `history` gives as JSON: `threadId`, `head`, `start`, `completedAt`."""
        return (row[1] for row in self.table.completed(_day(day), group, entries=True))

    def list(self, group: str | None = None) -> Iterator[RunInfo]:
        """Give all runs, by id, whatever their status."""
        return (RunInfo(*row) for row in self.table.all(group))

    def __iter__(self) -> Iterator[RunInfo]:
        """Give all runs, by id."""
        return self.list()


class Run:
    """One run of a workflow; readings ask for its head each time."""

    def __init__(self, runs: Runs, context: Context) -> None:
        """Stand for the run of a context; nothing is read."""
        self._runs = runs
        self._turns = runs.turns
        self._table = runs.table
        self.context = context

    @property
    def id(self) -> int:
        """The id of the run: that of its context."""
        return self.context.id

    def __repr__(self) -> str:
        """Name the run."""
        return f"<eventq.Run {self.id}>"

    def info(self) -> RunInfo:
        """Give name, group, status, head and start. Raises UnknownRunError."""
        row = self._table.row(self.id)
        if row is None:
            raise UnknownRunError(self.id)
        return RunInfo(*row)

    def _spot(self) -> tuple[str, int, int, int, bytes]:
        found = self._table.spot(self.id)
        if found is None:
            raise UnknownRunError(self.id)
        return found

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(
        self,
        role: str,
        meta: Any = None,
        content: str = "",
        *,
        refs: Iterable[Name] = (),
        extracted: Mapping[str, Any] | None = None,
        edge_prompt: str = "",
        agent: str = "",
        attempts: Iterable[Mapping[str, Any]] = (),
        compact: str | None = None,
        child: Name | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
    ) -> Step:
        """Record what a role put out as the next step, and give it: content, node, turn and head in one transaction.

        `meta` is the structured part, any JSON value; `content` the text, and `refs` the blobs it made; or `extracted`
        is the three at once, `{"meta", "contentPayload", "refs"}`. `edge_prompt` is what the role was asked, verbatim.
        `attempts` are failed ones that came before, each the keywords of `attempt`. `compact` is a summary of all steps
        before this one. `child` is the end of a run that this one called. With a `key` that was used in the last 24
        hours the first step is given. Raises ConflictError when the run is not active or its head is not
        `expected_head` (a turn id), UnknownBlobError, InputError.
        """
        if extracted is not None:
            meta, content, refs = _extracted(extracted, meta, content, refs)
        return self._step(
            _role(role), meta, content, refs, edge_prompt=edge_prompt, agent=agent, attempts=attempts, compact=compact,
            child=child, expected_head=expected_head, key=key, source=source, op="step",
        )  # fmt: skip

    def _step(
        self,
        role: str,
        meta: Any,
        content: str,
        refs: Iterable[Name],
        *,
        op: str,
        edge_prompt: str = "",
        agent: str = "",
        attempts: Iterable[Mapping[str, Any]] = (),
        compact: str | None = None,
        child: Name | None = None,
        expected_head: int | None = None,
        key: str | None = None,
        source: str | None = None,
        suspended: bool = False,
        also: Callable[[], None] | None = None,
    ) -> Step:
        body = self._body(role, meta, content, refs, edge_prompt, agent, compact, child)
        with self._turns.database.write():
            if key is not None and (known := self._first(key)):
                return self._again(known, body)
            place = self._writable(suspended=suspended)
            for one in attempts:
                self._attempt(one)
                place.tried = True
            if compact is not None:
                self._runs._put(compact, "summary")
            node = self._node_after(place, body)
            new = self._runs.new(node, STATE_TYPE, flags=COMPACTED if compact is not None else 0)
            turn = self._turns.append_inside(
                self.id, new, expected_head=expected_head, key=key, node=True, spot=place.spot
            )
            self._runs.remember(new.ready.digest, node)
            if also is not None:
                also()
            self._tell(op, source)
        return _step_of(turn, node, body.node)

    def _first(self, key: str) -> int | None:
        """Give the turn that was appended with a key in the last 24 hours, or None."""
        check_name(key, "key")
        found = self._turns.table.key(self.id, key, machine.milliseconds() - KEY_MS)
        return found[0] if found else None

    def _again(self, turn_id: int, body: _Body) -> Step:
        """Give the step that has a key already; raise ConflictError when it was another one."""
        step = self._read([self._turns.turn(turn_id, as_of=0)])[0]
        before = (
            step.role, step.meta, step.content, step.artifacts, step.edge_prompt, step.agent, step.compact, step.child,
        )  # fmt: skip
        if canonical.dump(list(before)) != body.same():
            raise ConflictError(
                f"the key was used for another step: turn {turn_id}", "use a new key for a new step", turn_id
            )
        return step

    def _writable(self, *, suspended: bool = False) -> _Place:
        """Give where the next step of a run goes. Raises ConflictError for a run that takes none."""
        found = self._table.place(self.id)
        if found is None:
            raise UnknownRunError(self.id)
        status, start, digest, tried, *spot = found
        if status != "active" and not (suspended and status == "suspended"):
            raise ConflictError(f"run {self.id} is {status}", "resume it first", spot[0])
        if not spot[0]:
            raise ConflictError(
                f"the head of run {self.id} was taken away", f"move it back to turn {start} or after", 0
            )
        return _Place(spot[0], digest, tried, tuple(spot))

    def _body(
        self,
        role: str,
        meta: Any,
        content: str,
        refs: Iterable[Name],
        edge_prompt: str,
        agent: str,
        compact: str | None = None,
        child: Name | None = None,
    ) -> _Body:
        """Check and hash what a role put out, ahead of the transaction."""
        for text, what in ((content, "content"), (edge_prompt, "edge prompt"), (agent, "agent")):
            _check_text(text, what)
        digests = list(dict.fromkeys(digests_of(refs)))
        node = ContentNode(content, tuple(REF + digest.hex() for digest in digests))
        ready = self._turns.blobs.prepare(node.encode())
        kept = canonical.parse(canonical.dump(meta))  # as it is read, and no more the caller's
        summary = None if compact is None else _ref_of(compact, "summary")
        called = None if child is None else REF + digest_of(child).hex()
        return _Body(role, kept, edge_prompt, agent, node, ready, digests, summary, called)

    def _node_after(self, place: _Place, body: _Body) -> StateNode:
        """Give the state that comes after the head; its content is stored, inside `write`."""
        blobs = self._turns.blobs
        blob_id, _ = blobs.hold(body.ready)
        blobs.add_refs(blob_id, body.refs)
        before, ref = self._before(place)
        attempts = self._table.attempts(place.head) if place.tried else []
        return StateNode(
            role=body.role,
            meta=body.meta,
            start=before.start if isinstance(before, StateNode) else ref,
            content=REF + body.ready.digest.hex(),
            ancestors=ancestors_after(ref, before),
            timestamp=machine.milliseconds(),
            compact=body.compact,
            edge_prompt=body.edge_prompt,
            agent=body.agent,
            attempts=tuple(REF + one.hex() for one in attempts),
            child=body.child,
        )

    def _before(self, place: _Place) -> tuple[Node, str]:
        """Give the node that a step comes after, and its ref: the nearest, where turns of other types lie between."""
        digest, turn_id = place.digest, place.head
        while digest not in self._runs.near:
            turn = self._turns.turn(turn_id, payload=False, as_of=0)
            if turn.type_id in (START_TYPE, STATE_TYPE):
                digest = bytes.fromhex(turn.hash)
                break
            turn_id = turn.parent_turn_id
        return self._runs.node(digest), REF + digest.hex()

    def attempt(
        self,
        role: str,
        meta: Any = None,
        content: str = "",
        *,
        refs: Iterable[Name] = (),
        edge_prompt: str = "",
        agent: str = "",
        source: str | None = None,
    ) -> str:
        """Keep a step that failed, without moving the head, and give its ref; the next step names it."""
        body = self._body(_role(role), meta, content, refs, edge_prompt, agent)
        with self._turns.database.write():
            place = self._writable()
            node = self._node_after(place, body)
            blob = self._turns.blobs.put(node.encode(), refs=node.refs())
            self._table.add_attempt(place.head, self._turns.blobs.blob_id(digest_of(blob.hash)), node.timestamp)
            self._tell("attempt", source)
        return blob.ref

    def _attempt(self, told: Mapping[str, Any]) -> None:
        known = {"role", "meta", "content", "refs", "edge_prompt", "agent"}
        if not hasattr(told, "keys") or "role" not in told or set(told) - known:
            raise InputError(
                f"{told!r} is no attempt", f"give a role, and perhaps {', '.join(sorted(known - {'role'}))}"
            )
        self.attempt(**told)

    def poke(
        self,
        meta: Any = None,
        content: str = "",
        *,
        refs: Iterable[Name] = (),
        edge_prompt: str | None = None,
        agent: str | None = None,
        source: str | None = None,
    ) -> Step:
        """Replace the last step by another of its role; the old one is kept as an attempt. Give the new one.

        Its edge prompt and agent are those of the old one unless given; a compaction and a child stay with it.
        """
        with self._turns.database.write():
            head = self._writable().head
            old = self._last_step(head)
            link = self._turns.table.link(head)
            above = link[0] if link else 0
            self._table.add_attempt(above, self._turns.blobs.blob_id(digest_of(old.ref)), machine.milliseconds())
            self.context.move_inside(above, expected_head=head)
            return self._step(
                old.role, meta, content, refs, op="poke", agent=old.agent if agent is None else agent, child=old.child,
                edge_prompt=old.edge_prompt if edge_prompt is None else edge_prompt, source=source,
                compact=None if old.compact is None else self._text(old.compact),
            )  # fmt: skip

    def _last_step(self, head: int) -> Step:
        found = self._read([self._turns.turn(head, as_of=0)])
        if not found or found[0].role in NO_ROLES:
            raise ConflictError(f"run {self.id} has no last step to replace", "take a step first", head)
        return found[0]

    def compact(self, summary: str, *, source: str | None = None) -> Step:
        """Say in a text what has happened so far: models are shown it in place of the steps before; none is deleted."""
        return self._step(COMPACT, {}, summary, (), compact=summary, op="compact", source=source)

    # --- status ---------------------------------------------------------------------------------------------------

    def end(self, return_code: int = 0, summary: str = "", *, source: str | None = None) -> Step:
        """Complete the run with an end node, and give it. Raises ConflictError unless the run is active."""
        return self._end("completed", return_code, summary, source)

    def cancel(self, summary: str = "", *, source: str | None = None) -> Step:
        """End the run unfinished, also when it is suspended, with return code 130, and give the end node."""
        return self._end("cancelled", ABORTED, summary, source)

    def _end(self, status: str, code: int, summary: str, source: str | None) -> Step:
        if type(code) is not int:
            raise InputError(f"the return code must be a whole number, not {code!r}", "give 0 for success")
        meta = {"returnCode": code, "summary": summary}

        def close() -> None:
            done = machine.milliseconds() if status == "completed" else None
            self._table.set_status(self.id, status, done)

        return self._step(END, meta, summary, (), op="end", source=source, also=close, suspended=status == "cancelled")

    def suspend(self, *, source: str | None = None) -> RunInfo:
        """Set an active run aside: it takes no steps until it is resumed. Raises ConflictError."""
        with self._turns.database.write():
            self._writable()
            return self._set("suspended", "suspend", source)

    def resume(self, *, source: str | None = None) -> RunInfo:
        """Let a run that was suspended, completed or cancelled take steps again; an end node stays in the chain."""
        with self._turns.database.write():
            if self._spot()[0] == "active":
                raise ConflictError(f"run {self.id} is active", "there is nothing to resume", self._spot()[1])
            return self._set("active", "resume", source)

    def _set(self, status: str, op: str, source: str | None) -> RunInfo:
        table = self._turns.table
        head, version = table.head(self.id) or (0, 0)
        self._table.set_status(self.id, status, None)
        table.move(self.id, version + 1, op, head, head, machine.milliseconds())
        self._tell(op, source)
        return self.info()

    def _tell(self, op: str, source: str | None) -> None:
        """Push an event about a change, in its transaction."""
        if source is None:
            return
        info = self.info()
        told = {"op": op, "run_id": info.run_id, "name": info.name, "group": info.group, "status": info.status}
        told |= {"step": info.depth, "head": info.head, "start": info.start}
        content = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        self._runs.push(source, "record", content, "run")

    # --- forks ----------------------------------------------------------------------------------------------------

    def fork(
        self, at: int | None = None, *, role: str | None = None, label: str | None = None, source: str | None = None
    ) -> Run:
        """Make a run that goes on from a step of this one, and give it: nothing is copied, this one is not changed.

        `at` is the number of a step, 0 the start; `role` stands for the first step of that role; without either it is
        the second-to-last step, so that the last is taken again. The fork is active, whatever this one is.
        """
        if at is not None and role is not None:
            raise UsageError("a fork takes a step's number or a role, and not both", "give one of the two")
        with self._turns.database.write():
            turn_id = self._turn_at(at) if at is not None else self._fork_point(role)
            start = self._spot()[3]
            info = self.info()
            context = self.context.fork(at=turn_id, name=label)
            self._table.add(context.id, info.name, info.group, start)
            made = Run(self._runs, context)
            made._tell("fork", source)
        return made

    def _turn_at(self, number: int) -> int:
        found = self.context.ancestor(check_natural(number, "at"))
        if not found:
            raise LogicError(f"run {self.id} has no step {number}", "give the number of a step that was read")
        node = _node(self._turns.turn(found, as_of=0))
        if isinstance(node, StateNode) and node.role == END:
            raise LogicError(f"step {number} of run {self.id} is its end", "fork at a step before it")
        return found

    def _fork_point(self, role: str | None) -> int:
        if role is not None:
            first = next((step for step in self.replay() if step.role == role), None)
            if first is not None and role not in NO_ROLES:
                return first.turn_id
            names = dict.fromkeys(step.role for step in self.replay() if step.role not in NO_ROLES)
            if names:
                listed = ", ".join(names)
                raise LogicError(f"role not found in thread: {role} (available: {listed})", "give one of them")
        last = self._newest_steps(2)
        if not last:
            raise LogicError("thread has no completed role steps to fork from", "take a step first, or fork at 0")
        return last[1].turn_id if len(last) > 1 else self._turn_at(0)

    def _newest_steps(self, count: int) -> list[Step]:
        """Give the newest steps of roles, newest first."""
        found: list[Step] = []
        page = self.context.last(16, as_of=0)
        while True:
            steps = [step for step in reversed(self._read(page.turns)) if step.role not in NO_ROLES]
            found += steps
            if len(found) >= count or page.next_cursor is None:
                return found[:count]
            page = self.context.before(page.next_cursor, 64, as_of=0)

    # --- reading --------------------------------------------------------------------------------------------------

    def start_node(self) -> StartNode:
        """Give the node that the run began with."""
        turn = self._turns.turn(self._spot()[3], as_of=0)
        node = _node(turn)
        if not isinstance(node, StartNode):
            raise DamagedError(f"{turn.ref} is no start of a run", "run 'eventq check' on the thread")
        return node

    def prompt(self) -> str:
        """Give the task that the run was started with."""
        return self._text(self.start_node().prompt)

    def _text(self, ref: str) -> str:
        data = self._turns.blobs.get(ref)
        if data is None:
            raise DamagedError(f"missing blob {ref}", "restore a backup")
        return data.decode()

    def replay(self, start: int = 1) -> Iterator[Step]:
        """Give all steps, oldest first, or those from a number on, in bounded memory; the end nodes too."""
        return self._steps(self.context.replay(start_depth=max(1, start), as_of=0))

    def _steps(self, turns: Chain) -> Iterator[Step]:
        group: list[Turn] = []
        for turn in turns:
            group.append(turn)
            if len(group) == _GROUP:
                yield from self._read(group)
                group = []
        yield from self._read(group)

    def _read(self, turns: Sequence[Turn]) -> list[Step]:
        """Make steps of turns, their contents fetched together; the start is left out."""
        pairs = [(turn, _node(turn)) for turn in turns if turn.type_id != START_TYPE]
        wanted = [digest_of(node.content) for _, node in pairs if isinstance(node, StateNode)]
        try:
            found = self._turns.blobs.get_many(wanted)
        except DamagedBlobError as error:
            at = next((turn for turn, node in pairs if isinstance(node, StateNode) and node.content == error.ref), None)
            if at is not None:
                error.what = f"step {at.depth} of run {self.id}: {error.what}"
            raise
        return [self._step_of(turn, node, found) for turn, node in pairs]

    def _step_of(self, turn: Turn, node: Node | None, found: dict[bytes, bytes]) -> Step:
        if not isinstance(node, StateNode):
            return _unknown(turn)
        data = found.get(digest_of(node.content))
        if data is None:
            raise DamagedError(f"step {turn.depth} of run {self.id}: missing blob {node.content}", "restore a backup")
        return _step_of(turn, node, decode(data, node.content))

    def chain(self) -> tuple[str, list[Step]]:
        """Give what a model is to know: the summary of the last compaction ("" for none) and the steps since.

        The step that carries the compaction is the first of them; end nodes are left out.
        """
        compact, steps = self._since_compact()
        return compact, [step for step in steps if step.role != END]

    def _since_compact(self) -> tuple[str, Iterator[Step]]:
        view: View = self.context.at(self.context.head_id())
        at = self._turns.table.flagged(view.head_id(), COMPACTED)
        if at is None:
            return "", self._steps(view.replay(start_depth=1, as_of=0))
        turn_id, depth = at
        node = _node(self._turns.turn(turn_id, as_of=0))
        ref = node.compact if isinstance(node, StateNode) else None
        return self._text(ref) if ref else "", self._steps(view.replay(start_depth=depth, as_of=0))

    def messages(self, role: str, edge_prompt: str = "") -> list[dict[str, str]]:
        """Return the messages that a role should see now, as chat APIs take them.

        The last asks it `edge_prompt`. What it was shown at an earlier visit, and what it answered,
        is their prefix, byte for byte; a compaction begins anew. Raises LogicError for a role that
        is not of the run, DamagedError when a step cannot be read whole.
        """
        return list(self.iter_messages(role, edge_prompt))

    def iter_messages(self, role: str, edge_prompt: str = "") -> Iterator[dict[str, str]]:
        """Give what `messages` gives, one by one, in memory that grows with what happens between two visits only."""
        _role(role)
        _check_text(edge_prompt, "edge prompt")
        start = self.start_node()
        self._check_has(role, start)
        system = self._system(role, start)
        compact, steps = self._since_compact()
        return messages.rebuild(system, steps, role, edge_prompt, compact=compact, cap=start.summary_cap)

    def _check_has(self, role: str, start: StartNode) -> None:
        """Raise LogicError for a role without a system text, where others have one, and a step.

        Any role is one of a run whose start declares none. So it is where an older program wrote
        the start: that took texts for some of the roles, and the run must be able to go on.
        """
        if role in start.system or not start.system or start.task_in_system is None:
            return
        known = dict.fromkeys(sorted(start.system))
        for step in self.replay():
            if step.role == role:
                return
            if step.role not in NO_ROLES:
                known[step.role] = None
        raise LogicError(
            f"role not found in thread: {role} (available: {', '.join(known)})",
            "give one of them, or start the run with a system text for it",
        )

    def _system(self, role: str, start: StartNode) -> str:
        """Return the system message of a role: its frozen text, and the task unless that states it."""
        task = self._text(start.prompt)
        frozen = self._text(start.system[role]) if role in start.system else ""
        if start.task_in_system is None:  # messages of old runs stay: there, a guess decided
            return frozen if task in frozen else messages.join(frozen, task)
        return frozen if frozen and start.task_in_system else messages.join(frozen, task)

    def read(self, budget: int | None = None) -> RunText:
        """Give the steps as text, the newest that fit into `budget` characters and at least one, oldest first."""
        if budget is not None:
            check_positive(budget, "budget")
        told: list[str] = []
        size = 0
        for step in self._backwards():
            text = _as_text(step)
            if told and budget is not None and size + len(text) > budget:
                break
            told.append(text)
            size += len(text)
        omitted = self._spot()[2] - len(told)
        head = [f"({omitted} earlier steps omitted)"] if omitted else []
        return RunText("\n\n".join([*head, *reversed(told)]), len(told), omitted)

    def _backwards(self) -> Iterator[Step]:
        page = self.context.last(16, as_of=0)
        while True:
            yield from reversed(self._read(page.turns))
            if page.next_cursor is None:
                return
            page = self.context.before(page.next_cursor, 64, as_of=0)


class _Place:
    """Where the next step goes: the head, the hash of its node, whether something was tried after it."""

    __slots__ = ("digest", "head", "spot", "tried")

    def __init__(self, head: int, digest: bytes, tried: bool, spot: tuple[Any, ...]) -> None:  # noqa: FBT001 (a column)
        self.head = head
        self.digest = digest
        self.tried = tried
        self.spot = spot


class _Body:
    """What a role put out, checked and hashed."""

    def __init__(
        self,
        role: str,
        meta: Any,
        edge_prompt: str,
        agent: str,
        node: ContentNode,
        ready: Prepared,
        refs: list[bytes],
        compact: str | None,
        child: str | None,
    ) -> None:
        self.role = role
        self.meta = meta
        self.edge_prompt = edge_prompt
        self.agent = agent
        self.node = node
        self.ready = ready
        self.refs = refs
        self.compact = compact
        self.child = child

    def same(self) -> bytes:
        """Give what tells this from another one under the same key: all but the time."""
        node = self.node
        return canonical.dump(
            [self.role, self.meta, node.text, node.artifacts, self.edge_prompt, self.agent, self.compact, self.child]
        )


def _node(turn: Turn) -> Node | None:
    """Give the node of a turn, None for a turn of another type."""
    if turn.type_id not in (START_TYPE, STATE_TYPE) or turn.payload is None:
        return None
    return decode(turn.payload, turn.ref)


def _step_of(turn: Turn, node: StateNode, content: Node) -> Step:
    if not isinstance(content, ContentNode):
        raise DamagedError(f"{node.content} is no content of a step", "run 'eventq check' on the thread")
    return Step(
        turn.depth, turn.turn_id, turn.ref, node.role, node.meta, content.text, content.artifacts, node.edge_prompt,
        node.agent, node.timestamp, node.ancestors, node.compact, node.attempts, node.child,
    )  # fmt: skip


def _day(day: str) -> str:
    from datetime import date

    try:
        if len(day) == 10 and date.fromisoformat(day):
            return day
    except (TypeError, ValueError):
        pass
    raise UsageError(f"{day!r} is no day", "write it as 2026-03-18")


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"the {what} must be text, not {type(text).__name__}", "give a string")
    check_whole(text, f"the {what}")


def _check_task_in_system(told: object, system: Mapping[str, str] | None) -> None:
    if type(told) is not bool:
        raise InputError(f"task_in_system must be True or False, not {told!r}", "give one of the two")
    if told and not system:
        raise InputError(
            "there is no system text that could state the task", "give system texts, or have the task added"
        )


def _ref_of(text: str, what: str) -> str:
    """Give the ref that a text has once it is stored."""
    _check_text(text, what)
    return REF + blake3(text.encode()).hexdigest()


def _role(role: str) -> str:
    check_name(role, "role")
    if role in NO_ROLES:
        raise InputError(f"'{role}' is no role", "use end() or compact()")
    return role


def _extracted(told: Mapping[str, Any], meta: Any, content: str, refs: Iterable[Name]) -> tuple[Any, str, Any]:
    """Give meta, text and refs of what an extractor gave."""
    if meta is not None or content or [*refs]:
        raise UsageError("a step takes meta, content and refs, or what was extracted", "give one of the two")
    if not hasattr(told, "keys") or (unknown := set(told) - {"meta", "contentPayload", "refs"}):
        unknown = unknown if hasattr(told, "keys") else {type(told).__name__}
        raise InputError(f"{sorted(unknown)} is nothing that is extracted", "give meta, contentPayload and refs")
    named = told.get("refs") or ()
    if not isinstance(named, (list, tuple)):
        raise InputError(f"the refs that were extracted are {type(named).__name__}", "give a list of refs")
    return told.get("meta"), told.get("contentPayload", ""), named


def _unknown(turn: Turn) -> Step:
    """Give a turn of a type that is none of ours as a step: without a role, its type for `meta`."""
    meta = {"type": turn.type_id, "version": turn.type_version}
    return Step(turn.depth, turn.turn_id, turn.ref, "", meta, "", (), "", "", turn.created_at_ms, (), None, (), None)


def _as_text(step: Step) -> str:
    who = f" ({step.agent})" if step.agent else ""
    meta = canonical.dump(step.meta).decode() if step.meta not in (None, {}) else ""
    return messages.join(f"### Step {step.number}: {step.role}{who}", step.content, meta)
