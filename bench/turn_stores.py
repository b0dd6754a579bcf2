"""What the turns are measured against: bare apsw doing the same statements, and plain files, behind one small face."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import apsw
import zstandard
from blake3 import blake3

import eventq
from bench.contestants import Busy, Contestant

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations" / "sqlite"
SIZE = 10_240  # bytes of a payload, unless said
_NOW = 1_767_323_045_678


class Payloads:
    """Payloads like prose: zstd makes a third of them; no two are equal."""

    def __init__(self, seed: int) -> None:
        """Make the words that they are cut from."""
        chance = random.Random(seed)
        words = [
            "".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9)))
            for _ in range(3_000)
        ]
        self._text = " ".join(chance.choices(words, k=60_000)).encode()
        self._chance = chance
        self._count = 0

    def next(self, size: int = SIZE) -> bytes:
        """Return another one."""
        self._count += 1
        at = self._chance.randrange(len(self._text) - size)
        mark = b"%x.%x " % (self._chance.getrandbits(60), self._count)
        return mark + self._text[at : at + size - len(mark)]


class TurnStore(Contestant):
    """A store that turns are appended to, one a commit."""

    def __init__(self) -> None:
        """Begin with fresh payloads."""
        self._payloads = Payloads(random.SystemRandom().getrandbits(60))
        self.payload = self._payloads.next()

    def push(self, count: int) -> None:
        for _ in range(count):
            self.append(self._payloads.next())

    def times(self, count: int) -> list[float]:
        """Return how long each of some appends took, in ms."""
        taken = []
        for _ in range(count):
            payload = self._payloads.next()
            start = time.perf_counter()
            self.append(payload)
            taken.append((time.perf_counter() - start) * 1_000)
        return taken

    def append(self, payload: bytes) -> None:
        """Store one turn, in its own transaction."""
        raise NotImplementedError


class EventqTurns(TurnStore):
    """eventq through its library."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the thread, making it when there is none, and make a context."""
        super().__init__()
        os.environ["EVENTQ_SYNCHRONOUS"] = synchronous
        try:
            self.thread = eventq.open(directory, create=True)
        finally:
            del os.environ["EVENTQ_SYNCHRONOUS"]
        self.context = self.thread.contexts.create()

    def append(self, payload: bytes) -> None:
        self.context.append(payload)

    def close(self) -> None:
        self.thread.close()


class RawTurns(TurnStore):
    """Bare apsw on the tables of the migrations: hash, zstd and the statements of an append, nothing around them."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the database, making it when there is none, and make a context."""
        super().__init__()
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, "raw.db")
        fresh = not os.path.exists(path)
        self.connection = apsw.Connection(path)
        self.connection.set_busy_handler(Busy())
        if fresh:
            self.connection.pragma("auto_vacuum", 2)
            self.connection.pragma("journal_mode", "wal")
            for name in ("0001_thread.sql", "0002_eventq.sql"):
                self.connection.execute((MIGRATIONS / name).read_text(encoding="utf-8"))
        self.connection.pragma("synchronous", synchronous)
        self.connection.pragma("foreign_keys", 1)
        self._compress = zstandard.ZstdCompressor(level=1).compress
        self.execute = self.connection.execute
        self.execute("INSERT INTO contexts (created_at_ms, updated_at_ms) VALUES (1, 1)")
        self._context = self.connection.last_insert_rowid()

    def append(self, payload: bytes) -> None:
        run = self.execute
        digest = blake3(payload).digest()
        stored = self._compress(payload)
        run("BEGIN IMMEDIATE")
        head, version, depth, jump_depth, far, far_depth = self._spot()
        run(
            "INSERT INTO blobs (hash, raw_len, stored_len, codec, part, touched_at_ms) VALUES (?,"
            " ?, ?, 1, 0, ?)"
            " ON CONFLICT (hash) DO NOTHING",
            (digest, len(payload), len(stored), _NOW),
        )
        blob_id = self.connection.last_insert_rowid()
        run("INSERT INTO blob_bytes (blob_id, bytes) VALUES (?, ?)", (blob_id, stored))
        leap = far is not None and depth - jump_depth == jump_depth - far_depth
        place = (
            (None, 0, None, None)
            if head is None
            else (head, depth + 1, *((far, far_depth) if leap else (head, depth)))
        )
        run(
            "INSERT INTO turns (parent_id, depth, jump_id, jump_depth, type_id, type_version,"
            " encoding, blob_id,"
            " created_at_ms) VALUES (?, ?, ?, ?, 'message', 1, 0, ?, ?)",
            (*place, blob_id, _NOW),
        )
        turn_id = self.connection.last_insert_rowid()
        run(
            "UPDATE contexts SET head_id = ?, version = ?, updated_at_ms = ? WHERE context_id = ?",
            (turn_id, version + 1, _NOW, self._context),
        )
        run(
            "INSERT INTO context_log (context_id, version, op, old_id, new_id, at_ms) VALUES (?,"
            " ?, 'append', ?, ?, ?)",
            (self._context, version + 1, head, turn_id, _NOW),
        )
        run("COMMIT")

    def _spot(self) -> Any:
        return self.execute(
            "SELECT head_id, version, p.depth, p.jump_depth, j.jump_id, j.jump_depth FROM"
            " contexts LEFT JOIN turns p"
            " ON p.turn_id = head_id LEFT JOIN turns j ON j.turn_id = p.jump_id WHERE context_id"
            " = ?",
            (self._context,),
        ).fetchone()

    def close(self) -> None:
        self.connection.close()


class FileTurns(TurnStore):
    """Plain files: a payload to a file named by its hash, a line to a log, each brought to the disk at FULL."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the log."""
        super().__init__()
        os.makedirs(directory, exist_ok=True)
        self._directory = directory
        self._sync = synchronous == "full"
        self._log = os.open(
            os.path.join(directory, f"log{os.getpid()}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND
        )
        self._compress = zstandard.ZstdCompressor(level=1).compress

    def append(self, payload: bytes) -> None:
        name = blake3(payload).hexdigest()
        fd = os.open(os.path.join(self._directory, name), os.O_CREAT | os.O_WRONLY)
        os.write(fd, self._compress(payload))
        if self._sync:
            os.fsync(fd)
        os.close(fd)
        os.write(self._log, name.encode() + b"\n")
        if self._sync:
            os.fsync(self._log)

    def close(self) -> None:
        os.close(self._log)


STORES = {"raw-turns": RawTurns, "eventq-turns": EventqTurns, "file-turns": FileTurns}
