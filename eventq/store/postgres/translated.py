"""PostgreSQL's text of a statement of the memory, found by SQLite's."""

from __future__ import annotations

import re
from hashlib import blake2b

from eventq.errors import LogicError
from eventq.record import Record

_found: dict[tuple[str, bool], Translated] = {}
_NUMBER = re.compile(r"\$(\d+)")
# What names the bucket of a table of the memory, whose indexes do without it.
_BUCKET = re.compile(r"\w+\.bucket\s+=\s+\$1\s+AND\s+")


class Translated(Record):
    """PostgreSQL's text of a statement.

    `table` is the one whose next id is $3, "" for none; `given` the one whose ids it is given and
    returns. `values` is how many values it takes, with the key of the thread. `rows` is the text
    that takes a list for each value but the key, for many rows; "" if there is none.
    """

    text: str
    table: str
    given: str
    values: int
    rows: str


def key_of(sql: str) -> str:
    """Return the key of a statement: a digest of SQLite's text, whatever its blanks."""
    return blake2b(" ".join(sql.split()).encode(), digest_size=8).hexdigest()


def translated(sql: str, *, parted: bool) -> Translated:
    """Return the translation of a statement, for tables that are `parted` by bucket or not.

    A server that has no statistics of a table takes two conditions for so selective that a third
    is worth no index. So the bucket is named only where it spares other partitions. Raises
    LogicError for a statement that was not generated.
    """
    try:
        return _found[sql, parted]
    except KeyError:
        from eventq.store.postgres.statements import STATEMENTS

        if (found := STATEMENTS.get(key_of(sql))) is None:
            what = f"a statement has no translation: {' '.join(sql.split())[:80]}"
            raise LogicError(what, "run make generate") from None
        table, given, *texts = found
        text, rows = texts if parted else [_BUCKET.sub("", one) for one in texts]
        values = max(map(int, _NUMBER.findall(text)), default=0)
        _found[sql, parted] = made = Translated(text, table, given, values, rows)
        return made
