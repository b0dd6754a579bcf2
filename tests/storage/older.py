"""Threads as older versions left them."""

from __future__ import annotations

import os

import apsw

from eventq.storage.sqlite import migrate


def aged(path: str, version: int) -> None:
    """Make a thread what an eventq of an older schema left; it has no scopes but the thread's."""
    name = os.path.join(path, "events.db")
    older = apsw.Connection(f"{name}.older")
    older.pragma("journal_mode", "wal")
    for number, file in migrate.files()[:version]:
        with open(file, encoding="utf-8") as script:
            migrate._apply_one(older, number, os.path.basename(file), script.read(), "then")
    older.execute("ATTACH ? AS newer", (name,))
    with older:
        tables = older.execute(
            "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name <> 'migrations'"
        ).fetchall()
        for table in [str(row[0]) for row in tables]:
            columns = set(columns_of(older, "main", table)) & set(columns_of(older, "newer", table))
            names = ", ".join(sorted(columns))
            older.execute(f"DELETE FROM main.{table}")
            older.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM newer.{table}")
        if version >= 4:  # rows of artifacts had their numbers
            for table in ("artifact_chunks", "artifacts"):
                older.execute(f"UPDATE {table} SET artifact_id = artifact_id - 1")
    older.execute("DETACH newer")
    older.close()
    for end in ("", "-wal", "-shm"):
        if os.path.exists(f"{name}{end}"):
            os.unlink(f"{name}{end}")
    os.rename(f"{name}.older", name)


def columns_of(connection: apsw.Connection, schema: str, table: str) -> list[str]:
    """Return the names of a table's columns."""
    sql = "SELECT name FROM pragma_table_info(?, ?)"
    return [str(row[0]) for row in connection.execute(sql, (table, schema))]
