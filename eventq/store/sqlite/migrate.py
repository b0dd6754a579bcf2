"""The numbered files of `migrations/<database>/`, applied once each, in order.

Each file runs in one transaction, which also records it.
"""

from __future__ import annotations

import os

from eventq.errors import DamagedError, way_back

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    Objects = dict[tuple[str, str], tuple[str, set[str]]]

SCHEMA = 15  # the number of the newest migration: a test compares it with the files
# The first with tables beside those of the original tool, with a list of open questions, with one
# that has been derived from the events, with causes, and with usage.
OWN, QUESTIONS, DERIVED, CAUSES, USAGE = 2, 3, 13, 14, 15
CURRENT = f"schema_{SCHEMA}"  # a view that only this schema has: statements that write name it
IS_CURRENT = f"EXISTS (SELECT 1 FROM {CURRENT})"  # noqa: S608 (a constant)
_RENUMBERED = 13  # unreleased versions of eventq had other schemas under the numbers before
INCREMENTAL = 2  # auto_vacuum of a database; costs a push 4 % at NORMAL, nothing at FULL
APPLICATION_ID = 0x65767471  # "evtq", in the header of the database

_OLD_INDEXES = (("idx_events_source", "events"), ("idx_events_type", "events"))
_COLUMNS = ["id", "created_at", "source", "type", "subtype", "content"]


def files() -> list[tuple[int, str]]:
    """Return number and path of every migration, in order."""
    from eventq.store.migrations import files  # only what makes or migrates a database needs it

    return files("sqlite")


def version(connection: apsw.Connection, path: str) -> int:
    """Return the newest migration of a database, 0 for one that the older `thread` tool made.

    Raises DamagedError for a database that is not eventq's, newer than this program, or of an
    unreleased version.
    """
    number = connection.pragma("user_version")
    if number and connection.pragma("application_id") != APPLICATION_ID:
        raise foreign(path)
    if number > SCHEMA or number < 0:
        raise DamagedError(
            f"'{path}' was written by a newer eventq (schema {number})", "upgrade eventq to open it"
        )
    if number == 0:
        found = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
        if found != _COLUMNS:
            raise foreign(path)
    elif number < _RENUMBERED:
        sql = "SELECT number, name FROM migrations WHERE number <= ? ORDER BY number"
        rows = connection.execute(sql, (number,)).fetchall()
        if rows != [(step, os.path.basename(file)) for step, file in _up_to(number)]:
            raise _unreleased(path, number)
    return int(number)


def _up_to(number: int) -> list[tuple[int, str]]:
    """Return number and path of the migrations that lead to a schema."""
    return [(step, path) for step, path in files() if step <= number]


def _unreleased(path: str, number: int) -> DamagedError:
    """Return the error for a schema that has its number from before numbers began anew."""
    return DamagedError(
        f"'{path}' was written by an unreleased version of eventq, before schemas were numbered"
        f" anew (its schema {number})",
        "read it with that version; for its events, make a new thread and run 'eventq push --batch"
        " --thread NEW < FILE' with each events*.jsonl beside it, the oldest first",
    )


def foreign(path: str) -> DamagedError:
    """Return the error for a database that another program made."""
    return DamagedError(
        f"'{path}' is a database, but not one of eventq",
        way_back(path),
    )


def outdated(path: str) -> DamagedError:
    """Return the error for a database that a newer eventq has migrated while it was open."""
    return DamagedError(
        f"'{path}' was brought up to date by a newer eventq",
        "open it again, with a program that uses the newer one",
    )


def apply(connection: apsw.Connection, stamp: str, start: int = 0) -> None:
    """Migrate a database to SCHEMA, one transaction a migration, unless another program does."""
    connection.pragma("journal_mode", "wal")
    for number, path in files():
        if number <= start:
            continue
        with open(path, encoding="utf-8") as file:
            script = file.read()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.pragma("user_version") < number:
                _apply_one(connection, number, os.path.basename(path), script, stamp)
                if number == DERIVED:
                    from eventq.store.sqlite.questions import derive

                    derive(connection)
            connection.execute("COMMIT")
        except BaseException:
            if not connection.get_autocommit():  # a full disk has undone everything already
                connection.execute("ROLLBACK")
            raise


def _apply_one(
    connection: apsw.Connection, number: int, name: str, script: str, stamp: str
) -> None:
    connection.execute(script)
    connection.execute("""
        CREATE TABLE IF NOT EXISTS migrations (
            number     INTEGER PRIMARY KEY,
            name       TEXT NOT NULL,
            applied_at TEXT NOT NULL
        )
    """)
    sql = "INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?)"
    connection.execute(sql, (number, name, stamp))
    connection.pragma("user_version", number)
    connection.pragma("application_id", APPLICATION_ID)


def faults(connection: apsw.Connection, number: int) -> list[str]:
    """Return a sentence for each object or column that a schema lacks or should not have."""
    if number not in _made:
        _made[number] = _objects_of(number)
    return [*_differences(_objects(connection), _made[number])]


_made: dict[int, Objects] = {}  # what a schema consists of, by its number: making one takes 5 ms


def _objects_of(number: int) -> Objects:
    """Return what the migrations up to a number make, as they make it in memory."""
    import apsw

    wanted = apsw.Connection(":memory:")
    try:
        for step, path in _up_to(number or 1):
            with open(path, encoding="utf-8") as file:
                _apply_one(wanted, step, os.path.basename(path), file.read(), "")
        found = _objects(wanted)
        if not number:  # the original tool keeps no record of migrations
            del found["table", "migrations"]
        return found
    finally:
        wanted.close()


def _objects(connection: apsw.Connection) -> Objects:
    """Return table and columns, or table and SQL, of each object, by kind and name."""
    rows = connection.execute("""
        SELECT o.type, o.name, o.tbl_name, c.name
        FROM sqlite_schema AS o, pragma_table_xinfo(o.name) AS c WHERE o.type = 'table'
        UNION ALL
        SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE type <> 'table'
    """).fetchall()
    found: Objects = {}
    for row in rows:
        kind, name, table, made = map(str, row)
        if name.startswith("sqlite_"):
            continue  # SQLite's own: counters, statistics, the indexes of constraints
        if kind != "table":
            made = " ".join(made.replace('"', "").split())  # ALTER TABLE writes names in quotes
        found.setdefault((kind, name), (table, set()))[1].add(made)
    return found


def _differences(there: Objects, wanted: Objects) -> Iterator[str]:
    """Yield how a schema differs from the wanted one."""
    for (kind, name), (table, made) in there.items():
        if (kind, name) not in wanted and (name, table) not in _OLD_INDEXES:
            on = f" on '{table}'" if kind in ("index", "trigger") else ""
            yield f"the database has a {kind} '{name}'{on} that is not eventq's: drop it"
        elif (kind, name) in wanted and made != wanted[kind, name][1]:
            extra, lost = made - wanted[kind, name][1], wanted[kind, name][1] - made
            if kind != "table":
                yield f"the {kind} '{name}' is not the one that eventq made: restore a backup"
                continue
            yield from (
                f"the table '{name}' has a column '{column}' that is not eventq's"
                for column in sorted(extra)
            )
            yield from (
                f"the table '{name}' lacks its column '{column}': restore a backup"
                for column in sorted(lost)
            )
    for kind, name in sorted(wanted.keys() - there.keys()):
        yield f"the database lacks its {kind} '{name}': restore a backup"
