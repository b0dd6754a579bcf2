"""What events are ordered by: their source, their type, or a JSON value of their content.

SQLite reads the JSON in every engine, so that a path means the same.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

    from eventq.records.event import Event

# A value as text: of one that is missing or null, or where there is no JSON, nothing is left.
_VALUE_AT = """SELECT (SELECT CAST(json_quote(value) AS BLOB)
FROM (SELECT json_extract(?1, ?2) AS value WHERE json_valid(?1)) WHERE value IS NOT NULL)"""


def groups_of(events: Sequence[Event], by: str, connection: apsw.Connection) -> list[str | None]:
    """Return what each event is ordered by; None is no group."""
    if by in ("source", "type"):
        return [event.source if by == "source" else event.type for event in events]
    rows = [(event.content, by) for event in events]
    return [value and _text(value) for (value,) in connection.executemany(_VALUE_AT, rows)]


def _text(value: bytes) -> str:
    """Return a value as text that can be stored, also one with an unpaired surrogate.

    Its escape is that of no other value: in JSON, a backslash of the value itself is two.
    """
    return value.decode(errors="backslashreplace")
