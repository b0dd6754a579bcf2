"""PostgreSQL's text of a statement of the memory, found by SQLite's."""

from __future__ import annotations

import re
from hashlib import blake2b

from eventq.errors import LogicError
from eventq.record import Record

_found: dict[str, Translated] = {}
_NUMBER = re.compile(r"\$(\d+)")


class Translated(Record):
    """PostgreSQL's text of a statement.

    `table` is the one whose next id is $3, "" for none; `given` the one whose ids it is given and
    returns. `values` is how many values it takes, with the key of the thread.
    """

    text: str
    table: str
    given: str
    values: int


def key_of(sql: str) -> str:
    """Return the key of a statement: a digest of SQLite's text, whatever its blanks."""
    return blake2b(" ".join(sql.split()).encode(), digest_size=8).hexdigest()


def translated(sql: str) -> Translated:
    """Return the translation of a statement. Raises LogicError for one that was not generated."""
    try:
        return _found[sql]
    except KeyError:
        from eventq.store.postgres.statements import STATEMENTS

        if (found := STATEMENTS.get(key_of(sql))) is None:
            what = f"a statement has no translation: {' '.join(sql.split())[:80]}"
            raise LogicError(what, "run make generate") from None
        table, given, text = found
        values = max(map(int, _NUMBER.findall(text)), default=0)
        _found[sql] = made = Translated(text, table, given, values)
        return made
