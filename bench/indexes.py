"""What indexes on source and type would cost a push: why the log has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.contestants import BATCH, PAYLOAD, STAMP, Raw
from bench.report import Row, Sample, versus
from bench.rounds import rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from bench.rounds import Plan

    Rows = Sequence[tuple[Any, ...]]

SOURCES, TYPES = 1_000, 20
_FILL = """
INSERT INTO events (created_at, source, type, content)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT ?, 'internal:main:s1:agent' || (i * 7919 % 1000), 'type' || (i * 31 % 20), ? FROM n
"""
_INDEXES = "CREATE INDEX by_source ON events (source); CREATE INDEX by_type ON events (type)"


def run(plan: Plan) -> Iterator[Row]:
    """Measure single and batched inserts of bare apsw, NORMAL, with both indexes and without."""
    size = plan.size(1_000_000, 20_000)
    stores = {"with": _build(plan, size, _INDEXES), "without": _build(plan, size, "")}
    rows = [
        (
            STAMP,
            f"internal:main:s1:agent{i * 7919 % SOURCES}",
            f"type{i * 31 % TYPES}",
            None,
            PAYLOAD,
        )
        for i in range(BATCH)
    ]
    single, batches = plan.size(10, 1), plan.size(20, 3)
    found = plan.take(
        {
            name: rate(lambda n, s=store: _single(s, rows, n), single, single * BATCH)  # type: ignore[misc]
            for name, store in stores.items()
        }
    )
    yield _row(
        f"bare inserts at {size:,} events, one a commit, NORMAL: with indexes on source and type",
        found,
    )
    found = plan.take(
        {
            name: rate(lambda n, s=store: _batch(s, rows, n), batches, batches * BATCH)  # type: ignore[misc]
            for name, store in stores.items()
        }
    )
    yield _row(
        f"bare inserts at {size:,} events, 1,000 a commit, NORMAL: with indexes on source and type",
        found,
    )
    for store in stores.values():
        store.close()


def _row(what: str, found: dict[str, list[float]]) -> Row:
    return versus(
        what, Sample(found["with"], "/s"), Sample(found["without"], "/s"), note=" (without)"
    )


def _build(plan: Plan, size: int, indexes: str) -> Raw:
    store = Raw(plan.place("raw"), "normal")
    store.connection.execute(indexes)
    store.connection.execute(_FILL, (size, STAMP, PAYLOAD))
    store.connection.wal_checkpoint(mode=3)
    return store


def _single(store: Raw, rows: Rows, times: int) -> None:
    for _ in range(times):
        for row in rows:
            store.insert_one(row)


def _batch(store: Raw, rows: Rows, times: int) -> None:
    for _ in range(times):
        store.insert(rows)
