"""How the tests of plans tell a step that grows with what is stored, and count work."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import eventq
    from tests.plans.test_plans import Traced


def scans(tables: Collection[str], sql: str, step: str) -> bool:
    """Return whether a step reads a whole table or index, by its name or alias, or makes one."""
    words = step.split()
    if "AUTOMATIC" in words:
        return True
    if words[0] not in ("SCAN", "SEARCH") or (words[0] == "SEARCH" and "(" in step):
        return False
    if "FROM turn_keys ORDER BY number LIMIT 2)" in sql:
        return False  # it is the first two
    spoken = sql.replace("(", " ").replace(")", " ").replace(",", " ").split()
    aliases = {alias: table for table, alias in itertools.pairwise(spoken) if table in tables}
    return words[1] in tables or aliases.get(words[1]) in tables


def steps_of(traced: Traced, ran: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return statement and plan step of statements that were run."""
    return [(sql, step) for sql, bindings in ran for step in traced.plan(sql, bindings)]


def instructions(thread: eventq.Thread, call: Callable[[], object], every: int) -> int:
    """Return how many times so many instructions SQLite takes for a call."""
    ticks = [0]

    def tick() -> bool:
        ticks[0] += 1
        return False

    connection = sqlite(thread.database).connection
    connection.set_progress_handler(tick, every)
    try:
        call()
    finally:
        connection.set_progress_handler(None)
    return ticks[0]
