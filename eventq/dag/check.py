"""What is wrong with turns, contexts and blobs."""

from __future__ import annotations

from eventq.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.dag.contexts import Contexts


def faults(contexts: Contexts) -> Iterator[str]:
    """Say each broken invariant in one sentence: of the graph, then of the bytes, all of which are read."""
    turns = contexts.turns
    for look in (turns.table.faults, turns.blobs.faults):
        try:
            yield from look()
        except StoreError as error:  # too broken to be looked at
            yield error.what
