"""The points that a run can be forked at: its steps, by number, by hash or by turn."""

from __future__ import annotations

from eventq.errors import InputError, LogicError
from eventq.memory.turns import blob_or_turn
from eventq.records.checks import REF, check_natural

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.memory.contexts import Context

_MOST = 100  # places that are looked at to say what something is that is no step of a run


class ForkPoints:
    """The steps on the chain of one run."""

    def __init__(self, context: Context) -> None:
        """Use the context of the run; nothing is read."""
        self._context = context
        self._turns = context.turns
        self._engine = context.turns.database

    def find(self, at: int | str | bytes) -> int:
        """Return the turn of a step: of its number, of the hash of its node, or of `turn:ID`.

        Raises LogicError for what is no step of the run, InputError for any other value.
        """
        if isinstance(at, int):
            return self._numbered(at)
        named = blob_or_turn(at)
        if named is None:
            raise InputError(
                f"{at!r:.200} names no step",
                f"give its number, {REF}<64 lower-case hex digits>, the digits alone, or turn:ID",
            )
        return self._turn(named) if isinstance(named, int) else self._hashed(named)

    def _numbered(self, number: int) -> int:
        found = self._context.ancestor(check_natural(number, "at"))
        if not found:
            raise LogicError(
                f"run {self._context.id} has no step {number}",
                "give the number of a step that was read",
            )
        return found

    def _turn(self, turn_id: int) -> int:
        if self._context.has(turn_id):
            return turn_id
        turn = self._turns.turn(turn_id, payload=False, as_of=0)
        raise self._no_step(f"turn {turn_id}", bytes.fromhex(turn.hash), (turn_id,))

    def _hashed(self, digest: bytes) -> int:
        """Return the turn of a node: the chain has one turn at each depth that the node is at."""
        found = self._engine.turns.depths(digest)
        for depth, _ in found:
            turn_id = self._context.ancestor(depth)
            if turn_id and self._turns.turn(turn_id, payload=False, as_of=0).hash == digest.hex():
                return turn_id
        raise self._no_step(REF + digest.hex(), digest, (turn_id for _, turn_id in found))

    def _no_step(self, what: str, digest: bytes, turns: Iterable[int]) -> LogicError:
        """Return the error for what is no step of the run, which says what it is instead."""
        run_id = self._context.id
        for parent in self._engine.runs.attempted(digest, _MOST):
            if self._context.has(parent):
                number = self._turns.depth(parent) + 1
                return LogicError(
                    f"{what} is an attempt at step {number} of run {run_id}, and no step",
                    f"fork at {number - 1} to take step {number} again",
                )
        for turn_id in turns:
            if owner := self._run_of(turn_id):
                return LogicError(
                    f"{what} is step {self._turns.depth(turn_id)} of run {owner}, not of run"
                    f" {run_id}",
                    "fork that run, or give a step of this one",
                )
        return LogicError(
            f"{what} is no step of run {run_id}", "give a step that 'eventq run show' prints"
        )

    def _run_of(self, turn_id: int) -> int:
        """Return a run with a turn on its chain, among the first that began where it did; or 0."""
        root = self._turns.ancestor(turn_id, 0)
        for run_id in self._engine.runs.started(root, _MOST):
            head = self._engine.contexts.head(run_id)
            if head and self._turns.is_above(turn_id, head):
                return run_id
        return 0
