"""Workflow runs: hash-chained steps on a context, with a status, forks, compaction and messages.

A run is a context whose first turn is a start node and whose other turns are state nodes, see
`eventq.memory.nodes`. The store makes the links between them (start, ancestors, refs); callers pass
the output of a role.
"""

from __future__ import annotations

from eventq.errors import (
    ConflictError,
    DamagedBlobError,
    DamagedError,
    InputError,
    LogicError,
    UnknownContextError,
    UnknownRunError,
    UnknownTurnError,
    UsageError,
)
from eventq.memory import canonical, messages
from eventq.memory.blobs import digest_of, digests_of, mentions_in
from eventq.memory.contexts import Context, Contexts, check_context_name
from eventq.memory.nodes import (
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
from eventq.memory.turns import digest_of_key
from eventq.record import Record
from eventq.records.checks import REF, check_name, check_natural, check_positive, check_whole
from eventq.records.run import NewRun, NewStep, RunChange, RunInfo, RunText, Step
from eventq.store.rules import status_conflict
from eventq.store.run_rows import PreparedAttempt, PreparedRun, PreparedStep, RunChoice, RunState
from eventq.store.turn_rows import AppendTo, GoneError, PreparedBlob, PreparedTurn
from eventq.system.clock import SLOW_LOOK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from eventq.memory.blobs import Blobs, Name, Prepared
    from eventq.memory.nodes import Node
    from eventq.memory.turns import Chain, View
    from eventq.records.spent import Spent
    from eventq.records.turn import Turn

COMPACTED = 1  # the flag of a turn whose node has a compaction: found without reading the nodes
ABORTED = 130
_CACHED = 256  # nodes, and roles
_PAGE = 1_000
_LAST_ID = (1 << 63) - 1
_GROUP = 256  # steps that are read together
_GROUP_BYTES = 4 << 20  # of them, and again of the contents that are held at once


class _Terms(Record):
    """The conditions of a step, and what else changes with it.

    `tried` are attempts that failed before it.
    """

    op: str
    to: AppendTo
    tried: tuple[_Body, ...] = ()
    becomes: str | None = None
    statuses: tuple[str, ...] = ("active",)
    replaces: bool = False


class Runs:
    """The workflow runs of one thread."""

    def __init__(self, contexts: Contexts) -> None:
        """Use the contexts of a thread."""
        self.contexts = contexts
        self.turns = contexts.turns
        self.engine = self.turns.database.runs
        self.node_cache: dict[bytes, Node] = {}  # the next step needs the last nodes
        self.roles: set[str] = set()  # accepted before

    def start(
        self,
        run: NewRun | str,
        prompt: str | None = None,
        *,
        system: Mapping[str, str] | None = None,
        label: str | None = None,
        source: str | None = None,
    ) -> Run:
        """Start a run of a workflow and return it; prompt and system texts are frozen with it.

        The run is the name of a workflow with a prompt and `system`, which maps each role to its
        system text; a `NewRun` has more. `label` names the run's context. With a `source` each
        change of the run and of its forks pushes an event from it, whatever the setting
        `runs.emit` says. Raises InputError, UnknownBlobError, and ConflictError for a label that is
        taken.
        """
        new = _new_run(run, prompt, system)
        _check_run(new)
        if source is not None:
            self.turns.check_source(source)
        if label is not None:
            check_context_name(label)
        texts: list[Prepared] = []
        node = self._start_node(new, texts)
        while True:
            first = self.new(node, START_TYPE)
            blobs = tuple([text.blob for text in texts])
            made = PreparedRun(new.name, new.group, label, blobs, first, source, AppendTo())
            try:
                return Run(self, Context(self.turns, self.engine.start(made)))
            except GoneError as gone:
                for text in texts:
                    self.turns.blobs.again(text, gone)

    def _start_node(self, new: NewRun, texts: list[Prepared]) -> StartNode:
        """Prepare the texts of a run, and return the node that names them."""
        prompt = self._put(texts, new.prompt, "prompt")
        system = {
            _role(role): self._put(texts, text, f"system text of {role}")
            for role, text in (new.system or {}).items()
        }
        parent = None if new.parent_state is None else REF + digest_of(new.parent_state).hex()
        return StartNode(
            new.name,
            prompt,
            new.group,
            new.max_rounds,
            new.depth,
            system,
            parent,
            new.summary_cap or None,
            new.task_in_system,
            new.answer,
        )

    def _put(self, texts: list[Prepared], text: str, what: str) -> str:
        """Prepare a text, and return its ref."""
        _check_text(text, what)
        ready = self.turns.blobs.prepare(text.encode())
        texts.append(ready)
        return REF + ready.blob.digest.hex()

    def new(
        self,
        node: StartNode | StateNode,
        type_id: str,
        *,
        flags: int = 0,
        mentions: tuple[bytes, ...] = (),
    ) -> PreparedTurn:
        """Prepare a node as a turn that can be appended; `mentions` are what its texts name."""
        made = self.turns.blobs.prepare(node.encode(), mentions=False).blob
        refs = tuple([bytes.fromhex(ref[len(REF) :]) for ref in node.refs()])  # known to be good
        blob = PreparedBlob(made.digest, made.size, made.pieces, made.parts, refs, mentions)
        spent = _spent(node, REF + made.digest.hex())
        return PreparedTurn(blob, type_id, VERSION, 0, flags, canonical.EVENTQ_JSON_1, spent)

    def node(self, digest: bytes) -> Node:
        """Return the node of a hash; recent ones are cached."""
        found = self.node_cache.get(digest)
        if found is None:
            ref = REF + digest.hex()
            data = self.turns.blobs.shown(digest)
            if data is None:
                raise DamagedError(f"missing blob {ref}", "restore a backup")
            found = decode(data, ref)
            self.remember(digest, found)
        return found

    def of_turn(self, turn: Turn) -> Node | None:
        """Return the node of a turn, None for a turn of another type."""
        if turn.type_id not in (START_TYPE, STATE_TYPE):
            return None
        payload = self.turns.shown(turn)
        return None if payload is None else decode(payload, turn.ref)

    def texts(self, turn: Turn) -> Iterator[tuple[str, bytes]]:
        """Yield the texts that the node of a turn names, with the refs of their blobs.

        They are task and system texts, or the content of a step and its summary; then the steps
        that failed after it, with their contents. There are none for a turn of another type, and
        for one that has the type of a node and is none.
        """
        try:
            node = self.of_turn(turn)
        except DamagedError:  # anybody may append turns of any type
            return
        if node is None:
            return
        yield from self._named_by(node)
        for digest in self.engine.attempts(turn.turn_id):
            data = self.turns.blobs.shown(digest)
            if data is None:
                continue
            ref = REF + digest.hex()
            yield ref, data
            try:
                tried = decode(data, ref)
            except DamagedError:  # what is shown in place of an erased one
                continue
            yield from self._named_by(tried)

    def _named_by(self, node: Node) -> Iterator[tuple[str, bytes]]:
        refs: list[str | None] = []
        if isinstance(node, StartNode):
            refs = [node.prompt, *node.system.values()]
        elif isinstance(node, StateNode):
            refs = [node.content, node.compact]
        for ref in dict.fromkeys(filter(None, refs)):
            data = self.turns.blobs.shown(ref)
            if data is not None:
                yield ref, _said(data, ref)

    def check_role(self, role: str) -> None:
        """Raise InputError for what cannot be a role; remember what can."""
        _role(role)
        if len(self.roles) >= _CACHED:
            self.roles.clear()
        self.roles.add(role)

    def check(self, terms: _Terms) -> None:
        """Check that the store is writable, and the key and head of a step."""
        self.turns.database.check_writable()
        if terms.to.key is not None:
            check_name(terms.to.key, "key")
        if terms.to.expected_head is not None:
            check_natural(terms.to.expected_head, "expected_head")

    def remember(self, digest: bytes, node: Node) -> None:
        """Cache a node that the next step will need."""
        if len(self.node_cache) >= _CACHED:
            self.node_cache.clear()
        self.node_cache[digest] = node

    def get(self, run: int | str) -> Run:
        """Return the run of an id or of a label. Raises UnknownRunError."""
        context = self._context(run)
        if not self.engine.has(context.id):
            raise UnknownRunError(run)
        return Run(self, context)

    def _context(self, run: int | str) -> Context:
        try:
            return self.contexts.get(run)
        except UnknownContextError as error:
            raise UnknownRunError(run) from error

    def delete(self, run: Run | int | str) -> RunInfo:
        """Delete a run; see `Run.delete`. Raises UnknownRunError for another context, too."""
        if not isinstance(run, Run):
            context = self._context(run)
            if not self.engine.has(context.id):
                fix = "it is a context without a workflow, which 'eventq context rm' deletes"
                raise UnknownRunError(run, fix)
            run = Run(self, context)
        return run.delete()

    def active(self, group: str | None = None, *, after: int = 0) -> Iterator[RunInfo]:
        """Yield the active and suspended runs after an id, of all groups or of one."""
        return self._all(RunChoice(group, active=True), after)

    def history(self, day: str, group: str | None = None, *, after: int = 0) -> Iterator[RunInfo]:
        """Yield the runs after an id that were completed on a UTC day, such as `2026-03-18`."""
        return self._all(RunChoice(group, day=_day(day)), after)

    def last_change(self) -> int:
        """Return the number of the newest change of any run, 0 for none."""
        return self.engine.last_change()

    def changes(
        self, after: int, limit: int, group: str | None = None
    ) -> Sequence[tuple[int, RunChange]]:
        """Return the next changes after a number, each with its own; see `watch`."""
        if group is not None:
            check_name(group, "group", empty=True)
        return self.engine.changes(after, self.engine.last_change(), limit, group)

    def list(self, group: str | None = None, *, after: int = 0) -> Iterator[RunInfo]:
        """Yield all runs after an id, by id, whatever their status."""
        return self._all(RunChoice(group), after)

    def watch(self, group: str | None = None) -> Iterator[RunChange]:
        """Yield the active and suspended runs, then each run when it has changed, forever.

        They are those of all groups or of one, and a change by any process is seen within a
        millisecond. A run that changed more than once between two looks comes once, in its newest
        state; one that was removed comes without a state. A change that is made while the first
        runs are read comes after them, too. Close the iterator to stop. Raises StoreError for a
        thread of the original tool that is only read.
        """
        return (change for page in self.watch_pages(group) for change in page)

    def watch_pages(
        self, group: str | None = None, *, tick: Callable[[], object] | None = None
    ) -> Iterator[Sequence[RunChange]]:
        """Yield the changes of `watch` as pages, and call `tick` at least once a second."""
        if group is not None:
            check_name(group, "group", empty=True)
        return self._watch(self.engine.last_change(), group, tick)

    def _watch(
        self, after: int, group: str | None, tick: Callable[[], object] | None
    ) -> Iterator[Sequence[RunChange]]:
        """Yield the runs that are under way, then the changes after one that came before them."""
        with self.turns.database.watch() as watcher:
            for infos in self._pages(RunChoice(group, active=True)):
                yield [RunChange("active", info.run_id, info) for info in infos]
            while True:
                upto = self.engine.last_change()
                while found := self.engine.changes(after, upto, _PAGE, group):
                    after = found[-1][0]
                    yield [change for _, change in found]
                after = upto  # also past those of other groups
                watcher.wait(SLOW_LOOK)
                if tick is not None:
                    tick()

    def _all(self, choice: RunChoice, after: int = 0) -> Iterator[RunInfo]:
        check_natural(after, "after")
        return (info for infos in self._pages(choice, after) for info in infos)

    def _pages(self, choice: RunChoice, after: int = 0) -> Iterator[Sequence[RunInfo]]:
        while infos := self.engine.page(after, _PAGE, choice):
            yield infos
            after = infos[-1].run_id

    def newest(
        self, before: int = 0, limit: int = 100, *, active: bool
    ) -> Sequence[tuple[RunInfo, int]]:
        """Return the newest runs before an id (0: of all), and when each began, in ms.

        They are those under way, or those that ended.
        """
        last = check_natural(before, "before") or _LAST_ID
        return self.engine.newest(last, check_positive(limit, "limit"), active=active)

    def __iter__(self) -> Iterator[RunInfo]:
        """Yield all runs, by id."""
        return self.list()


class Run:
    """One run of a workflow; each read looks its head up."""

    def __init__(self, runs: Runs, context: Context) -> None:
        """Represent the run of a context; nothing is read."""
        self._runs = runs
        self._turns = runs.turns
        self._engine = runs.engine
        self._left: RunState | None = None  # the state after the last step that was taken here
        self.context = context

    @property
    def id(self) -> int:
        """The id of the run: that of its context."""
        return self.context.id

    def __repr__(self) -> str:
        """Return the run's id in brackets."""
        return f"<eventq.Run {self.id}>"

    def info(self) -> RunInfo:
        """Return name, group, status, head and start. Raises UnknownRunError."""
        info = self._engine.get(self.id)
        if info is None:
            raise UnknownRunError(self.id)
        return info

    # --- steps ------------------------------------------------------------------------------------

    def step(
        self,
        step: NewStep | str,
        meta: Any = None,
        content: str = "",
        *,
        edge_prompt: str = "",
        expected_head: int | None = None,
        key: str | None = None,
    ) -> Step:
        """Record the output of a role as the next step, durably, and return the step.

        The step is a role with `meta`, the structured part (any JSON value), `content`, the text,
        and `edge_prompt`, what the role was asked, as `messages` was told; a `NewStep` has more.
        Content, node, turn and head are one change. With a `key` that was used in the last 24 hours
        the first step is returned. Raises ConflictError when the run is not active or its head is
        not `expected_head` (a turn id), UnknownBlobError, InputError.
        """
        new = _new_step(step, meta, content, edge_prompt)
        body = self._body(self._checked(new))
        tried = [self._tried(one) for one in new.attempts] if new.attempts != () else ()
        terms = _Terms("step", AppendTo(None, expected_head, key), tuple(tried))
        return self._step(body, terms)

    def _checked(self, new: NewStep) -> NewStep:
        """Check the role of a step, and split what was extracted."""
        if type(new.role) is not str or new.role not in self._runs.roles:
            self._runs.check_role(new.role)
        if new.compact is not None:
            _check_summary(new.compact)
        if new.extracted is None:
            return new
        meta, content, refs = _extracted(new.extracted, new.meta, new.content, new.refs)
        return new._replace(meta=meta, content=content, refs=refs, extracted=None)

    def _step(self, body: _Body, terms: _Terms) -> Step:
        """Take a step after the head, and retry when the run has moved meanwhile.

        The first try goes on from the last step taken here, without reading the state: the engine
        compares it anyway, and mostly nobody else has moved the run.
        """
        self._runs.check(terms)
        run_id = self.context.id
        left = self._left
        if left is None or terms.replaces or left.digest not in self._runs.node_cache:
            step = None
        else:
            step = self._take(left, body, terms)
        while step is None:
            state = self._engine.state(run_id, terms.to.key)
            if state.keyed:
                return self._again(state.keyed, body)
            self._check_takes_steps(state, terms.statuses)
            step = self._take(state, body, terms)
        return step

    def _take(self, state: RunState, body: _Body, terms: _Terms) -> Step | None:
        """Take a step after a state of the run; return None when it must be retried."""
        new, node = self._prepared(state, body, terms)
        try:
            turn = self._engine.step(self.context.id, new)
        except GoneError as gone:
            body.prepare_again(self._turns.blobs, terms.tried, gone)
            return None
        if turn is None:
            return None
        digest = new.turn.blob.digest
        self._runs.remember(digest, node)
        if new.becomes is None and state.status == "active":
            self._left = RunState("active", turn.turn, state.start, digest, 0, 0)
        else:
            self._left = None
        ref = REF + digest.hex()
        return _step(turn.turn, turn.depth, ref, node, body.node)

    def _prepared(
        self, state: RunState, body: _Body, terms: _Terms
    ) -> tuple[PreparedStep, StateNode]:
        """Prepare a step after a state of the run, and the attempts before it."""
        turn_id, digest = state.head, state.digest
        refs = self._attempts_after(state) if state.tried else ()
        if terms.replaces:
            turn_id, digest, refs = self._above(state)
        before, ref = self._before(digest, turn_id)
        nodes: tuple[PreparedTurn, ...] = ()
        blobs = body.blobs
        if terms.tried:
            nodes, refs = self._tried_nodes(terms.tried, before, ref, refs)
            blobs = (*[blob for one in terms.tried for blob in one.blobs], *blobs)
        node = body.node_after(before, ref, refs, self._turns.database.milliseconds())
        flags = 0 if body.compact is None else COMPACTED
        turn = self._runs.new(node, STATE_TYPE, flags=flags, mentions=body.mentions)
        to = terms.to if terms.to.key is None else terms.to._replace(key_digest=digest_of_key(turn))
        new = PreparedStep(
            turn, to, state, blobs, tuple([one.blob for one in nodes]), terms.op, terms.becomes,
            terms.replaces, tuple([one.spent for one in nodes if one.spent is not None]),
        )  # fmt: skip
        return new, node

    def _tried_nodes(
        self, tried: Iterable[_Body], before: Node, ref: str, refs: tuple[str, ...]
    ) -> tuple[tuple[PreparedTurn, ...], tuple[str, ...]]:
        """Prepare attempts, each of which names those before it; return them and all their refs."""
        nodes = []
        for one in tried:
            node = one.node_after(before, ref, refs, self._turns.database.milliseconds())
            made = self._runs.new(node, STATE_TYPE, mentions=one.mentions)
            nodes.append(made)
            refs = (*refs, REF + made.blob.digest.hex())
        return tuple(nodes), refs

    def _attempts_after(self, state: RunState) -> tuple[str, ...]:
        return tuple([REF + digest.hex() for digest in self._engine.attempts(state.head)])

    def _above(self, state: RunState) -> tuple[int, bytes, tuple[str, ...]]:
        """Return parent turn, its digest and the attempts of a step that replaces the last one."""
        turn_id = self._turns.parent(state.head)
        digest = bytes.fromhex(self._turns.turn(turn_id, payload=False, as_of=0).hash)
        refs = [REF + digest.hex() for digest in self._engine.attempts(turn_id)]
        return turn_id, digest, (*refs, REF + state.digest.hex())

    def _again(self, turn_id: int, body: _Body) -> Step:
        """Return the step that has a key already; raise ConflictError if it is a different one."""
        step = next(self._read([self._turns.turn(turn_id, as_of=0)]))
        before = (
            step.role, step.meta, step.content, step.artifacts, step.edge_prompt, step.agent,
            step.compact, step.child,
        )  # fmt: skip
        if canonical.dump(list(before)) != body.same():
            raise ConflictError(
                f"the key was used for another step: turn {turn_id}",
                "use a new key for a new step",
                turn_id,
            )
        return step

    def _check_takes_steps(self, state: RunState, statuses: tuple[str, ...] = ("active",)) -> None:
        if state.status not in statuses:
            raise status_conflict(self.id, state.status, state.head)
        if not state.head:
            raise status_conflict(self.id, "", state.start)

    def _body(self, made: NewStep) -> _Body:
        """Check and hash the output of a role, ahead of the transaction."""
        _check_texts(made)
        digests = digests_of(made.refs) if made.refs != () else []
        artifacts = tuple(dict.fromkeys([REF + digest.hex() for digest in digests]))
        node = ContentNode(made.content, artifacts)
        ready = self._turns.blobs.prepare(node.encode(), digests or ())
        meta = canonical.dump(made.meta)
        mentions = mentions_in(meta + made.edge_prompt.encode())
        child = None if made.child is None else REF + digest_of(made.child).hex()
        summary = None
        if made.compact is not None:
            summary = self._turns.blobs.prepare(made.compact.encode())
        # The metadata are a copy, as they are read back.
        return _Body(made, canonical.parse(meta), node, ready, summary, child, mentions)

    def _before(self, digest: bytes, turn_id: int) -> tuple[Node, str]:
        """Return the node before a step and its ref; turns of other types are skipped."""
        known = self._runs.node_cache.get(digest)
        if known is not None:
            return known, REF + digest.hex()
        while digest not in self._runs.node_cache:
            turn = self._turns.turn(turn_id, payload=False, as_of=0)
            if turn.type_id in (START_TYPE, STATE_TYPE):
                digest = bytes.fromhex(turn.hash)
                break
            turn_id = turn.parent_turn_id
        return self._runs.node(digest), REF + digest.hex()

    def attempt(
        self, step: NewStep | str, meta: Any = None, content: str = "", *, edge_prompt: str = ""
    ) -> str:
        """Store a step that failed, without moving the head, and return its ref.

        The arguments are those of `step`. The next step names the attempt.
        """
        body = self._tried(_new_step(step, meta, content, edge_prompt))
        self._runs.check(_Terms("attempt", AppendTo()))
        while True:
            state = self._engine.state(self.id)
            self._check_takes_steps(state)
            before, ref = self._before(state.digest, state.head)
            (node,), _ = self._tried_nodes((body,), before, ref, self._attempts_after(state))
            new = PreparedAttempt(state, body.blobs, node.blob, node.spent)
            try:
                if self._engine.attempt(self.id, new):
                    return REF + node.blob.digest.hex()
            except GoneError as gone:
                body.prepare_again(self._turns.blobs, (), gone)

    def _tried(self, new: NewStep) -> _Body:
        """Check an attempt."""
        if type(new) is not NewStep:
            raise InputError(f"{new!r:.200} is not an attempt", "give a NewStep")
        if new.compact is not None or new.child is not None or new.attempts != ():
            raise InputError(
                "an attempt has no compaction, no child and no attempts", "leave them out"
            )
        return self._body(self._checked(new))

    def poke(
        self,
        meta: Any = None,
        content: str = "",
        *,
        refs: Iterable[Name] = (),
        edge_prompt: str | None = None,
        agent: str | None = None,
    ) -> Step:
        """Replace the last step by another of its role, and return the new one.

        The old one is kept as an attempt. Edge prompt and agent default to those of the old step;
        its compaction and its child are kept.
        """
        terms = _Terms("poke", AppendTo(), replaces=True)
        self._runs.check(terms)
        while True:
            state = self._engine.state(self.id)
            self._check_takes_steps(state)
            old = self._last_step(state.head)
            made = NewStep(
                old.role,
                meta,
                content,
                refs,
                old.edge_prompt if edge_prompt is None else edge_prompt,
                old.agent if agent is None else agent,
                None if old.compact is None else self._text(old.compact),
                old.child,
            )
            if (step := self._take(state, self._body(made), terms)) is not None:
                return step

    def _last_step(self, head: int) -> Step:
        found = [*self._read([self._turns.turn(head, as_of=0)])]
        if not found or found[0].role in NO_ROLES:
            raise ConflictError(
                f"run {self.id} has no last step to replace", "take a step first", head
            )
        return found[0]

    def compact(self, summary: str) -> Step:
        """Sum up the steps so far in a text; models see it in place of them. None is deleted."""
        _check_summary(summary)
        body = self._body(NewStep(COMPACT, {}, summary, compact=summary))
        return self._step(body, _Terms("compact", AppendTo()))

    # --- status -----------------------------------------------------------------------------------

    def end(self, return_code: int = 0, summary: str = "") -> Step:
        """Complete the run with an end node, and return it. Raises ConflictError unless active."""
        return self._end("completed", return_code, summary)

    def cancel(self, summary: str = "") -> Step:
        """End an active or suspended run with return code 130, and return the end node."""
        return self._end("cancelled", ABORTED, summary)

    def _end(self, status: str, code: int, summary: str) -> Step:
        if type(code) is not int:
            raise InputError(
                f"the return code must be a whole number, not {code!r}", "give 0 for success"
            )
        meta = {"returnCode": code, "summary": summary}
        statuses = ("active", "suspended") if status == "cancelled" else ("active",)
        terms = _Terms("end", AppendTo(), becomes=status, statuses=statuses)
        return self._step(self._body(NewStep(END, meta, summary)), terms)

    def suspend(self) -> RunInfo:
        """Suspend an active run: it takes no steps until it is resumed. Raises ConflictError."""
        return self._set("suspended", "suspend")

    def resume(self) -> RunInfo:
        """Let a suspended, completed or cancelled run take steps again; an end node is kept."""
        return self._set("active", "resume")

    def _set(self, status: str, op: str) -> RunInfo:
        self._turns.database.check_writable()
        return self._engine.set_status(self.id, status, op)

    def delete(self) -> RunInfo:
        """Delete the run and return what it was.

        Its steps stay until a collection, and its forks are not affected. Raises UnknownRunError.
        """
        self._turns.database.check_writable()
        with self._turns.database.write():
            info = self.info()
            self.context.delete()
        return info

    # --- forks ------------------------------------------------------------------------------------

    def fork(
        self,
        at: int | str | bytes | None = None,
        *,
        role: str | None = None,
        label: str | None = None,
    ) -> Run:
        """Make a run that continues from a step of this one, and return it; copy nothing.

        `at` is the number of a step, 0 the start, or the hash of its node (`Step.ref`, its digits
        or 32 bytes), or `turn:ID`; `role` means the first step of that role. The default is what
        the last step of a role was taken after, so that it is taken again. The fork is active,
        whatever the status of this run, which is not changed. Raises LogicError for what is no step
        of this run, and for its end; UnknownTurnError; DamagedError if the start cannot be read.
        """
        if at is not None and role is not None:
            raise UsageError("a fork takes a step or a role, and not both", "give one of the two")
        if label is not None:
            check_context_name(label)
        self.start_node()
        turn_id = self._turn_at(at) if at is not None else self._fork_point(role)
        made = self._engine.fork(self.id, turn_id, label)
        return Run(self._runs, Context(self._turns, made))

    def _turn_at(self, at: int | str | bytes) -> int:
        from eventq.memory.points import ForkPoints  # a step needs none

        turn = self._turns.turn(ForkPoints(self.context).find(at), as_of=0)
        node = self._runs.of_turn(turn)
        if isinstance(node, StateNode) and node.role == END:
            raise LogicError(
                f"step {turn.depth} of run {self.id} is its end", "fork at a step before it"
            )
        return turn.turn_id

    def _fork_point(self, role: str | None) -> int:
        if role is not None:
            first = next((step for step in self.replay() if step.role == role), None)
            if first is not None and role not in NO_ROLES:
                return first.turn_id
            names = dict.fromkeys(step.role for step in self.replay() if step.role not in NO_ROLES)
            if names:
                listed = ", ".join(names)
                raise LogicError(
                    f"role not found in thread: {role} (available: {listed})", "give one of them"
                )
        steps = self._newest_first()
        if next((step for step in steps if step.role not in NO_ROLES), None) is None:
            raise LogicError(
                "thread has no completed role steps to fork from", "take a step first, or fork at 0"
            )
        before = next((step for step in steps if step.role != END), None)
        return self._turn_at(0) if before is None else before.turn_id

    def _newest_first(self) -> Iterator[Step]:
        """Yield the steps, newest first."""
        page = self.context.last(16, as_of=0)
        yield from self._read(page.turns[::-1])
        while page.next_cursor is not None:
            page = self.context.before(page.next_cursor, 64, as_of=0)
            yield from self._read(page.turns[::-1])

    # --- reading ----------------------------------------------------------------------------------

    def start_node(self) -> StartNode:
        """Return the node that the run started with."""
        start = self._engine.state(self.id).start
        try:
            turn = self._turns.turn(start, as_of=0)
        except UnknownTurnError as error:
            raise DamagedError(
                f"turn {start}, the start of run {self.id}, is missing",
                "run 'eventq check', or restore a backup",
            ) from error
        node = self._runs.of_turn(turn)
        if not isinstance(node, StartNode):
            raise DamagedError(
                f"{turn.ref} is not the start of a run", "run 'eventq check' on the thread"
            )
        return node

    def prompt(self) -> str:
        """Return the task that the run was started with."""
        return self._text(self.start_node().prompt)

    def _text(self, ref: str) -> str:
        data = self._turns.blobs.shown(ref)
        if data is None:
            raise DamagedError(f"missing blob {ref}", "restore a backup")
        return data.decode()

    def replay(self, start: int = 1) -> Iterator[Step]:
        """Yield all steps, or those from a number on, oldest first, with the end nodes.

        Memory is bounded.
        """
        return self._steps(self.context.replay(start_depth=max(1, start), as_of=0))

    def _steps(self, turns: Chain) -> Iterator[Step]:
        group: list[Turn] = []
        size = 0
        for turn in turns:
            group.append(turn)
            size += turn.size
            if len(group) == _GROUP or size >= _GROUP_BYTES:
                yield from self._read(group)
                group, size = [], 0
        yield from self._read(group)

    def _read(self, turns: Sequence[Turn]) -> Iterator[Step]:
        """Yield the steps of turns, without the start; contents are fetched together, some MiB."""
        pairs = [(turn, self._runs.of_turn(turn)) for turn in turns if turn.type_id != START_TYPE]
        wanted = [digest_of(node.content) for _, node in pairs if isinstance(node, StateNode)]
        parts = self._turns.blobs.shown_by_size(wanted, _GROUP_BYTES)
        found: dict[bytes, bytes] = {}
        left = 0  # steps whose contents the part has
        try:
            for turn, node in pairs:
                if isinstance(node, StateNode):
                    if not left:
                        found = {}  # ahead of the next, so that one part is held
                        left, found = next(parts)
                    left -= 1
                yield self._step_of(turn, node, found)
        except DamagedBlobError as error:
            at = next(
                (
                    turn
                    for turn, node in pairs
                    if isinstance(node, StateNode) and node.content == error.ref
                ),
                None,
            )
            if at is not None:
                error.what = f"step {at.depth} of run {self.id}: {error.what}"
            raise

    def _step_of(self, turn: Turn, node: Node | None, found: dict[bytes, bytes]) -> Step:
        if not isinstance(node, StateNode):
            return _unknown(turn)
        data = found.get(digest_of(node.content))
        if data is None:
            raise DamagedError(
                f"step {turn.depth} of run {self.id}: missing blob {node.content}",
                "restore a backup",
            )
        return _step_of(turn, node, decode(data, node.content))

    def chain(self) -> tuple[str, list[Step]]:
        """Return the summary of the last compaction ("" for none) and the steps since then.

        The step that carries the compaction is the first of them; end nodes are left out.
        """
        compact, steps = self._since_compact(self.context.head_id())
        return compact, [step for step in steps if step.role != END]

    def _since_compact(self, head: int) -> tuple[str, Iterator[Step]]:
        view: View = self.context.at(head)
        at = self._turns.nearest(view.head_id(), COMPACTED)
        if at is None:
            return "", self._steps(view.replay(start_depth=1, as_of=0))
        turn_id, depth = at
        node = self._runs.of_turn(self._turns.turn(turn_id, as_of=0))
        ref = node.compact if isinstance(node, StateNode) else None
        return self._text(ref) if ref else "", self._steps(view.replay(start_depth=depth, as_of=0))

    def messages(self, role: str, edge_prompt: str = "") -> list[dict[str, str]]:
        """Return the messages that a role should see now, as chat APIs take them.

        The last one is `edge_prompt`. What the role saw at an earlier visit, and its answer, are
        their prefix, byte for byte; a compaction starts a new one. Raises LogicError for a role
        that is not of the run, DamagedError when a step cannot be read whole.
        """
        return list(self.iter_messages(role, edge_prompt))

    def iter_messages(self, role: str, edge_prompt: str = "") -> Iterator[dict[str, str]]:
        """Yield what `messages` returns; memory grows only with the steps between two visits."""
        _role(role)
        _check_text(edge_prompt, "edge prompt")
        start = self.start_node()
        self._check_has(role, start)
        return self._messages(self.context.head_id(), start, role, edge_prompt)

    def messages_before(self, step: Step) -> Iterator[dict[str, str]]:
        """Yield the messages that the role of a step saw: what `messages` returned ahead of it."""
        head = self._turns.parent(step.turn_id)
        return self._messages(head, self.start_node(), step.role, step.edge_prompt)

    def _messages(
        self, head: int, start: StartNode, role: str, edge_prompt: str
    ) -> Iterator[dict[str, str]]:
        """Yield the messages of a role for a head."""
        system = self._system(role, start)
        compact, steps = self._since_compact(head)
        form = messages.Form(start.answer, start.summary_cap, self._text(start.prompt))
        return messages.rebuild(system, steps, role, edge_prompt, form=form, compact=compact)

    def _check_has(self, role: str, start: StartNode) -> None:
        """Raise LogicError for a role without a system text, where others have one, and a step.

        If the start declares no roles, any role is accepted. The same holds for a start of an
        older version: those took texts for only some of the roles, and the run must go on.
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
        """Return the system message of a role: its frozen text and, unless in it, the task."""
        task = self._text(start.prompt)
        frozen = self._text(start.system[role]) if role in start.system else ""
        if start.task_in_system is None:  # messages of old runs must not change
            return frozen if task in frozen else messages.join(frozen, task)
        return frozen if frozen and start.task_in_system else messages.join(frozen, task)

    def read(self, budget: int | None = None) -> RunText:
        """Return the newest steps that fit into `budget` characters as text, at least one."""
        if budget is not None:
            check_positive(budget, "budget")
        texts: list[str] = []
        size = 0
        for step in self._newest_first():
            text = _as_text(step)
            if texts and budget is not None and size + len(text) > budget:
                break
            texts.append(text)
            size += len(text)
        omitted = self.info().depth - len(texts)
        head = [f"({omitted} earlier steps omitted)"] if omitted else []
        return RunText("\n\n".join([*head, *reversed(texts)]), len(texts), omitted)


class _Body:
    """The output of a role, checked and hashed."""

    def __init__(
        self,
        made: NewStep,
        meta: Any,
        node: ContentNode,
        ready: Prepared,
        summary: Prepared | None,
        child: str | None,
        mentions: tuple[bytes, ...],
    ) -> None:
        self._made = made
        self._meta = meta
        self.node = node
        self.ready = ready
        self.summary = summary
        self.compact = None if summary is None else REF + summary.blob.digest.hex()
        self._child = child
        self.mentions = mentions
        self.blobs = (  # what is stored ahead of the node
            (ready.blob,) if summary is None else (ready.blob, summary.blob)
        )

    def prepare_again(self, blobs: Blobs, others: tuple[_Body, ...], gone: GoneError) -> None:
        """Prepare this and others again after a collection deleted parts of them."""
        for one in (self, *others):
            for ready in (one.ready, one.summary):
                if ready is not None:
                    blobs.again(ready, gone)
            summary = one.summary
            one.blobs = (one.ready.blob, *((summary.blob,) if summary else ()))

    def node_after(
        self, before: Node, ref: str, attempts: tuple[str, ...], timestamp: int
    ) -> StateNode:
        """Return the node of this step after another node, whose ref is `ref`."""
        made = self._made
        return StateNode(
            role=made.role,
            meta=self._meta,
            start=before.start if isinstance(before, StateNode) else ref,
            content=REF + self.ready.blob.digest.hex(),
            ancestors=ancestors_after(ref, before),
            timestamp=timestamp,
            compact=self.compact,
            edge_prompt=made.edge_prompt,
            agent=made.agent,
            attempts=attempts,
            child=self._child,
        )

    def same(self) -> bytes:
        """Return the bytes to compare with a step that has the same key: all but the time."""
        made, node = self._made, self.node
        return canonical.dump(
            [
                made.role, self._meta, node.text, node.artifacts, made.edge_prompt, made.agent,
                self.compact, self._child,
            ]
        )  # fmt: skip


def _step(turn_id: int, number: int, ref: str, node: StateNode, content: ContentNode) -> Step:
    return Step(
        number, turn_id, ref, node.role, node.meta, content.text, content.artifacts,
        node.edge_prompt, node.agent, node.timestamp, node.ancestors, node.compact, node.attempts,
        node.child, node.content,
    )  # fmt: skip


def _step_of(turn: Turn, node: StateNode, content: Node) -> Step:
    if not isinstance(content, ContentNode):
        raise DamagedError(
            f"{node.content} is not the content of a step", "run 'eventq check' on the thread"
        )
    return _step(turn.turn_id, turn.depth, turn.ref, node, content)


def _said(data: bytes, ref: str) -> bytes:
    """Return the text of a content node; other bytes are a text by themselves."""
    try:
        node = decode(data, ref)
    except DamagedError:
        return data
    return node.text.encode() if isinstance(node, ContentNode) else data


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


def _check_texts(made: NewStep) -> None:
    """Raise InputError for texts that cannot be stored."""
    texts = (made.content, "content"), (made.edge_prompt, "edge prompt"), (made.agent, "agent")
    for text, what in texts:
        if type(text) is not str or not text.isascii():
            _check_text(text, what)


def _new_run(run: NewRun | str, prompt: str | None, system: Mapping[str, str] | None) -> NewRun:
    """Return a `NewRun` as it is, or one of a name, a prompt and system texts."""
    if type(run) is not NewRun:
        return NewRun(run, prompt, system)  # type: ignore[arg-type]  # both are checked later
    if prompt is not None or system is not None:
        raise UsageError("a NewRun holds prompt and system itself", "give one of the two")
    return run


def _check_run(new: NewRun) -> None:
    """Raise InputError or UsageError for a run that cannot be started."""
    check_name(new.name, "name")
    check_name(new.group, "group", empty=True)
    numbers = (new.max_rounds, "max_rounds"), (new.depth, "depth"), (new.summary_cap, "summary_cap")
    for value, what in numbers:
        check_natural(value, what)
    if type(new.answer) is not str or new.answer not in messages.ANSWERS:
        raise InputError(
            f"{new.answer!r} is no form of answers", f"give one of: {', '.join(messages.ANSWERS)}"
        )
    if not hasattr(new.system or {}, "items"):
        raise InputError("the system texts are one of each role", "give a mapping of role and text")
    if type(new.task_in_system) is not bool:
        raise InputError(
            f"task_in_system must be True or False, not {new.task_in_system!r}",
            "give one of the two",
        )
    if new.task_in_system and not new.system:
        raise InputError(
            "there is no system text that could state the task",
            "give system texts, or have the task added",
        )


def _role(role: str) -> str:
    check_name(role, "role")
    if role in NO_ROLES:
        raise InputError(f"'{role}' is no role", "use end() or compact()")
    return role


def _check_summary(text: str) -> None:
    """Raise InputError for a summary that would leave models nothing of the steps so far."""
    _check_text(text, "summary")
    if not text.strip():
        raise InputError(
            "a compaction needs a summary: models see it in place of the steps so far",
            "give a text that says what has happened",
        )


def _new_step(step: NewStep | str, meta: Any, content: str, asked: str) -> NewStep:
    """Return a `NewStep` as it is, or one of its parts."""
    if type(step) is not NewStep:
        return NewStep(step, meta, content, edge_prompt=asked)  # type: ignore[arg-type]  # checked
    if meta is not None or content or asked:
        raise UsageError("a NewStep holds these itself", "give one of the two")
    return step


def _extracted(
    extracted: Mapping[str, Any], meta: Any, content: str, refs: Iterable[Name]
) -> tuple[Any, str, Any]:
    """Return meta, text and refs of the output of an extractor."""
    if meta is not None or content or [*refs]:
        raise UsageError(
            "a step takes meta, content and refs, or what was extracted", "give one of the two"
        )
    known = {"meta", "contentPayload", "refs"}
    is_mapping = hasattr(extracted, "keys")
    unknown = set(extracted) - known if is_mapping else {type(extracted).__name__}
    if unknown or not is_mapping:
        raise InputError(
            f"{sorted(unknown)} is nothing that is extracted", "give meta, contentPayload and refs"
        )
    named = extracted.get("refs") or ()
    if not isinstance(named, (list, tuple)):
        raise InputError(
            f"the refs that were extracted are {type(named).__name__}", "give a list of refs"
        )
    return extracted.get("meta"), extracted.get("contentPayload", ""), named


def _spent(node: Node, response: str) -> Spent | None:
    """Return what a model took for a step whose metadata says so."""
    if not isinstance(node, StateNode) or not isinstance(node.meta, dict):
        return None
    from eventq.said.spending import of_meta

    found = of_meta(node.meta)
    return None if found is None else found._replace(response=response)


def _unknown(turn: Turn) -> Step:
    """Return a turn of an unknown type as a step: without a role, its type as `meta`."""
    meta = {"type": turn.type_id, "version": turn.type_version}
    return Step(
        turn.depth, turn.turn_id, turn.ref, "", meta, "", (), "", "", turn.created_at_ms, (), None,
        (), None, None,
    )  # fmt: skip


def _as_text(step: Step) -> str:
    who = f" ({step.agent})" if step.agent else ""
    meta = canonical.dump(step.meta).decode() if step.meta not in (None, {}) else ""
    return messages.join(f"### Step {step.number}: {step.role}{who}", step.content, meta)
