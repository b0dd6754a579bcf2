"""The faults of turns, contexts, blobs and runs, for `check`."""

from __future__ import annotations

from eventq.errors import LogicError, StoreError, UnknownRunError
from eventq.memory.blobs import digest_of
from eventq.memory.nodes import (
    END,
    START_TYPE,
    STATE_TYPE,
    StartNode,
    StateNode,
    ancestors_after,
    decode,
    listed_refs,
)
from eventq.memory.runs import COMPACTED
from eventq.records.checks import REF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq.memory.nodes import Node
    from eventq.memory.runs import Runs
    from eventq.store.turn_rows import TurnRow

_PAGE = 1_000


def faults(runs: Runs) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the graph, the bytes and the runs.

    All bytes are read.
    """
    db, nodes = runs.turns.database, _Nodes(runs)
    searches: tuple[Callable[[], Iterable[str]], ...] = (
        lambda: db.faults("turns"),
        lambda: db.faults("open turns"),
        lambda: db.faults("roots"),
        runs.turns.blobs.faults,
        lambda: db.faults("runs"),
        nodes.faults,
    )
    for search in searches:
        try:
            yield from search()
        except StoreError as error:  # too broken to be searched
            yield error.what


class _Nodes:
    """The nodes of all runs, each compared with the one before it."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._turns = runs.turns
        self._starts = runs.engine.starts()
        self._node_cache: dict[int, Node] = {}  # by turn, of the pages read last

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each fault of the nodes, then of the runs."""
        for rows in self._pages():
            before, self._node_cache = self._node_cache, {}
            refs = self._refs_of([row.digest or b"" for row in rows])
            for row in rows:
                yield from self._of_turn(row, refs.get(row.digest or b"", set()), before)
        yield from self._of_attempts()
        for info in self._runs.list():
            yield from self._of_run(info.run_id)

    def _pages(self) -> Iterator[list[TurnRow]]:
        after, turns = 0, self._turns.database.turns
        while rows := turns.page(after, _PAGE, (START_TYPE, STATE_TYPE)):
            yield rows
            after = rows[-1].turn

    def _refs_of(self, digests: list[bytes]) -> dict[bytes, set[str]]:
        """Return the refs that are stored with each of some blobs."""
        found = self._turns.database.blobs.refs(digests)
        return {digest: {REF + ref.hex() for ref in refs} for digest, refs in found.items()}

    def _of_attempts(self) -> Iterator[str]:
        after = 0
        while rows := self._runs.engine.all_attempts(after, _PAGE):
            refs = self._refs_of([digest for _, digest in rows])
            for attempt, digest in rows:
                yield from self._of_attempt(attempt, digest, refs[digest])
            after = rows[-1][0]

    def _of_turn(self, row: TurnRow, named: set[str], before: dict[int, Node]) -> Iterator[str]:
        turn_id, parent, digest = row.turn, row.parent, row.digest or b""
        if not self._is_ours(turn_id, parent):
            return
        try:
            parent = self._nearest(parent)
            node = self._node(turn_id)
            above = before.get(parent) or self._node_cache.get(parent)
            above = above or (self._node(parent) if parent else None)
        except (StoreError, LogicError) as error:
            yield f"turn {turn_id}: {error.what}"
            return
        self._node_cache[turn_id] = node
        yield from self._refs(f"turn {turn_id}", digest, node, named)
        compacted = bool(row.flags & COMPACTED)
        if isinstance(node, StateNode) and (node.compact is not None) != compacted:
            yield f"turn {turn_id} and its node disagree on whether it is a compaction"
        if isinstance(node, StateNode):
            yield from self._beside(turn_id, node, parent, above)
        elif not isinstance(node, StartNode) or parent:
            yield f"turn {turn_id} is a start, {REF}{digest.hex()}, and no root"

    def _is_ours(self, turn_id: int, parent: int) -> bool:
        """Return whether a turn descends from the start of a run; others may share its type."""
        ours = parent in self._node_cache or turn_id in self._starts
        return ours or self._turns.ancestor(turn_id, 0) in self._starts

    def _refs(self, what: str, digest: bytes, node: Node, named: set[str]) -> Iterator[str]:
        """Yield where the refs of a node, of its bytes and of its rows differ."""
        if missing := sorted(set(node.refs()) - named):
            yield f"{what} names {missing[0]}, and its row of refs does not"
        if set(listed_refs(self._turns.blobs.shown(digest) or b"")) != set(node.refs()):
            yield f"{what} lists other refs than it names"
        if not isinstance(node, StateNode):
            return
        digest = digest_of(node.content)
        content = self._refs_of([digest])[digest]
        try:
            found = decode(self._turns.blobs.shown(node.content) or b"", node.content)
        except StoreError as error:
            yield f"{what}: {error.what}"
            return
        if missing := sorted(set(found.refs()) - content):
            yield f"{what} has made {missing[0]}, and its content's row of refs does not say so"

    def _of_attempt(self, attempt: int, digest: bytes, named: set[str]) -> Iterator[str]:
        try:
            node = self._runs.node(digest)
        except StoreError as error:
            yield f"attempt {attempt}: {error.what}"
            return
        yield from self._refs(f"attempt {attempt}", digest, node, named)

    def _nearest(self, turn_id: int) -> int:
        """Return the nearest turn at or above one that is a node, 0 for none."""
        while turn_id and turn_id not in self._node_cache:
            turn = self._turns.turn(turn_id, payload=False, as_of=0)
            if turn.type_id in (START_TYPE, STATE_TYPE):
                break
            turn_id = turn.parent_turn_id
        return turn_id

    def _node(self, turn_id: int) -> Node:
        turn = self._turns.turn(turn_id, as_of=0)
        return self._runs.of_turn(turn) or decode(b"", turn.ref)

    def _beside(
        self, turn_id: int, node: StateNode, parent: int, above: Node | None
    ) -> Iterator[str]:
        if above is None:
            yield f"turn {turn_id} is a step without a start"
            return
        ref = self._turns.turn(parent, payload=False, as_of=0).ref
        if node.ancestors != ancestors_after(ref, above):
            yield f"turn {turn_id} names other ancestors than the turn before it leads to"
        start = above.start if isinstance(above, StateNode) else ref
        if node.start != start:
            yield f"turn {turn_id} names {node.start} as its start, not {start}"

    def _of_run(self, run_id: int) -> Iterator[str]:
        try:
            state = self._runs.engine.state(run_id)
        except UnknownRunError:
            return
        head, start = state.head, state.start
        try:
            if not head or not self._turns.is_above(start, head):
                what = f"turn {head}, which does not come from its start, turn {start}"
                yield f"run {run_id} stands at {what}"
                return
            node = self._node(self._nearest(head)) if state.status == "active" else None
        except (StoreError, LogicError) as error:
            yield f"run {run_id}: {error.what}"
            return
        ended = isinstance(node, StateNode) and node.role == END
        if ended and self._last_op(run_id) not in ("resume", "import", None):
            yield f"run {run_id} is active, and its head is an end that nobody resumed from"

    def _last_op(self, run_id: int) -> str | None:
        """Return the operation of the newest move of a run's head; None for an imported run."""
        contexts = self._turns.database.contexts
        info = contexts.get(run_id)
        moves = contexts.history(run_id, info.version - 1, 1) if info is not None else []
        return moves[0].op if moves else None
