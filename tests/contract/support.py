"""What the tests of the library look at threads with."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import zstandard

import eventq
from eventq.records.turn import NewTurn
from eventq.store.postgres import schema
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Iterable

    import apsw

    from eventq import Turn
    from eventq.records.turn import Collected

    Tables = dict[str, list[tuple[Any, ...]]]

HOUR = 3600.0


def ask(raw: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    """Return the rows that a statement gives."""
    return raw.execute(sql, bindings).fetchall()


def dump(raw: apsw.Connection) -> Tables:
    """Return every row of every table, SQLite's own counters too."""
    names = raw.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    ).fetchall()
    return {
        str(name): raw.execute(
            f'SELECT * FROM "{name}" ORDER BY {"1" if name == "open_questions" else "1, 2"}'
        ).fetchall()
        for (name,) in names
    }


def rows_of(database: Any) -> Tables:
    """Return every row of every table of a thread in PostgreSQL, without its key."""
    where = "WHERE bucket = %(b)s AND thread_id = %(t)s"
    return {
        table: sorted(
            (row[2:] for row in database.rows(f"SELECT * FROM eventq.{table} {where}")), key=repr
        )
        for table in schema.TABLES
    }


def counts(raw: apsw.Connection) -> dict[str, int]:
    """Return the number of rows of every table but SQLite's own."""
    return {name: len(rows) for name, rows in dump(raw).items() if not name.startswith("sqlite_")}


def found(path: str, *, read_only: bool = False) -> list[str]:
    """Return what a check finds."""
    with eventq.open(path, read_only=read_only) as thread:
        return thread.check()


def ids(turns: Iterable[Turn]) -> list[int]:
    """Return the ids of turns."""
    return [turn.turn_id for turn in turns]


def outputs(thread: eventq.Thread) -> dict[tuple[str, int], Any]:
    """Return every version of every output, with its bytes and time."""
    return {
        (one.output_id, one.version): (
            thread.outputs.read(one.output_id, one.version),
            one.created_at_ms,
        )
        for one in thread.outputs
    }


def chain(thread: eventq.Thread, context: int | str) -> list[tuple[Any, ...]]:
    """Return what a reader sees of a context."""
    return [
        (one.payload, one.depth, one.type_id, one.type_version, one.encoding, one.flags, one.created_at_ms,
         one.canonical, one.tombstone)
        for one in thread.contexts.get(context).replay()
    ]  # fmt: skip


def packed(data: bytes) -> bytes:
    """Return a chunk as it is kept."""
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data)


def collect(thread: eventq.Thread, grace: float = HOUR) -> Collected:
    """Collect; check the dry run, that a second collection finds nothing, and that all is sound."""
    dry = thread.gc(grace=grace)
    done = thread.gc(apply=True, grace=grace)
    assert (dry.applied, done.applied) == (False, True)
    assert (dry.turns, dry.blobs, dry.size, dry.stored, dry.hashes) == (
        done.turns, done.blobs, done.size, done.stored, done.hashes,
    )  # fmt: skip
    again = thread.gc(apply=True, grace=grace)
    assert (again.turns, again.blobs, again.size, again.stored, again.hashes) == (0, 0, 0, 0, ())
    assert list(done.hashes) == sorted(set(done.hashes))
    assert len(done.hashes) == done.blobs
    assert not any(thread.blobs.has(name) for name in done.hashes)
    assert thread.check() == []
    return done


def append(context: Any, payload: object, **words: Any) -> Any:
    """Append a turn whose own fields, and how it is appended, are given side by side."""
    own = {name: words.pop(name) for name in [*words] if name in NewTurn._fields}
    return context.append(NewTurn(payload, **own), **words)


def left_behind(thread: eventq.Thread, data: bytes, tool: str = "tool") -> None:
    """Leave an artifact unsealed, as a process does that dies while it writes."""
    child = os.fork()
    if not child:
        with eventq.open(thread.path) as opened:
            writer = opened.artifacts.allocate(tool)
            writer.write(data)
            clock.monotonic = lambda: 1e12  # long after, so that the bytes are stored
            writer.tick()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def fill(path: str) -> str:
    """Fill a thread with five events, keys and a consumer; it is sound. Return its path."""
    with eventq.open(path) as thread:
        for number in range(1, 6):
            thread.push("self", "note", str(number), key=f"k{number}")
        thread.subscribe("w", "true", filter="type = 'note'")
        thread.ack("w", 2)
    assert found(path) == []
    return path


def mirror_lines(path: str) -> list[str]:
    """Return the lines of a thread's mirror."""
    with open(os.path.join(path, "events.jsonl"), encoding="utf-8") as file:
        return file.readlines()


def listing(folder: str) -> dict[str, tuple[int, int, int, bytes]]:
    """Return everything below a folder: modes, sizes, times and bytes."""
    found: dict[str, tuple[int, int, int, bytes]] = {}
    for at, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            path = os.path.join(at, name)
            status = os.stat(path)
            data = b""
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    data = file.read()
            found[os.path.relpath(path, folder)] = (
                status.st_mode,
                status.st_size,
                status.st_mtime_ns,
                data,
            )
    return found
