"""Filters outside the sandbox: in a transaction, in a snapshot, or in memory.

The rows are read without the filter, and the sandbox tests each one separately, with bound values.
So a filter sees what its transaction has stored and deleted. Reading new rows this way, and
committed ones on the sandbox's connection, lost: a prune in the transaction may have hidden some of
them.
"""

from __future__ import annotations

from eventq.log.filters.sandbox import LINE, ORDER, RANGE, ROW
from eventq.records.event import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from eventq.log.filters.sandbox import FilterSandbox

_EVENT = 6  # columns of an event


class Recheck:
    """What `FilterSandbox` does to the events of a database, for the events of any connection."""

    def __init__(self, connection: apsw.Connection, sandbox: FilterSandbox) -> None:
        """Read rows on a connection, and judge them in a sandbox."""
        self._connection = connection
        self._sandbox = sandbox
        self.check = sandbox.check
        self.timed = sandbox.timed
        self.matches = sandbox.matches

    def page(
        self,
        text: str,
        after: int,
        upto: int,
        limit: int,
        *,
        newest: bool = False,
        lines: bool = False,
        max_bytes: int,
    ) -> tuple[list[Any], int]:
        """Return the matching events of a range, and where to go on; see `FilterSandbox.page`."""
        sql = f"SELECT {ROW}{f', {LINE}' if lines else ''} {RANGE} {ORDER[newest]}"
        cursor = self._connection.execute(sql, (after, upto))
        rows = []
        try:
            for row in cursor:
                if self._sandbox.matches(text, row[:_EVENT]):
                    rows.append((row[0], row[-1]) if lines else row)
                    max_bytes -= len(row[-1])
                    if len(rows) >= limit or max_bytes <= 0:
                        return rows, row[0] - newest
        finally:
            cursor.close(force=True)
        return rows, after if newest else upto

    def first(self, text: str, after: int, upto: int) -> int | None:
        """Return the lowest id of a range that matches, or None."""
        rows, _ = self.page(text, after, upto, 1, max_bytes=1)
        return rows[0][0] if rows else None

    def tally(self, text: str, after: int, upto: int, most: int, _: float | None) -> Tally:
        """Return how many ids of a range match; a transaction is asked for no guesses."""
        rows, _at = self.page(text, after, upto, most, max_bytes=1 << 62)
        return Tally(rows[0][0] if rows else None, len(rows), len(rows) < most)
