"""Other queues on SQLite, each in its best setting that is as durable: WAL and the same `synchronous`."""

from __future__ import annotations

import json
import os
import sqlite3
from typing import TYPE_CHECKING, Any

from bench.contestants import BATCH, PAGE, PAYLOAD, Contestant

if TYPE_CHECKING:
    from collections.abc import Callable

_WAIT = 30.0  # seconds that a writer waits for its turn


class LiteQueue(Contestant):
    """litequeue: a batch is its `transaction()`; a message is taken and marked done by itself."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the queue; make it when there is none."""
        from litequeue import LiteQueue as Queue

        os.makedirs(directory, exist_ok=True)
        self._queue: Any = Queue(os.path.join(directory, "queue.db"), timeout=_WAIT)
        self._queue.conn.execute(f"PRAGMA synchronous = {synchronous}")

    def push(self, count: int) -> None:
        put = self._queue.put
        for _ in range(count):
            put(PAYLOAD)

    def push_batches(self, count: int) -> None:
        put = self._queue.put
        for _ in range(count):
            with self._queue.transaction(mode="IMMEDIATE"):
                for _ in range(BATCH):
                    put(PAYLOAD)

    def consume(self, count: int) -> None:
        queue = self._queue
        for _ in range(count):
            queue.done(queue.pop().message_id)

    def close(self) -> None:
        self._queue.close()


class PersistQueue(Contestant):
    """persist-queue's SQLiteAckQueue: no batches; an item is taken and acked by itself, by its id."""

    batches = False

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the queue; make it when there is none."""
        from persistqueue import SQLiteAckQueue

        queue: Any = SQLiteAckQueue(directory, timeout=_WAIT)
        queue._putter.execute(f"PRAGMA synchronous = {synchronous}")  # it has no setting of its own
        self._queue = queue

    def push(self, count: int) -> None:
        put = self._queue.put
        for _ in range(count):
            put(PAYLOAD)

    def consume(self, count: int) -> None:
        queue = self._queue
        for _ in range(count):
            queue.ack(queue.get(block=False, raw=True))
        queue.clear_acked_data(max_delete=count, keep_latest=0)

    def close(self) -> None:
        self._queue.close()


class Huey(Contestant):
    """huey's SqliteStorage: no batches; a message is gone once it is taken, so there is no ack."""

    batches = False

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the storage; make it when there is none."""
        from huey.storage import SqliteStorage

        os.makedirs(directory, exist_ok=True)
        self._storage: Any = SqliteStorage(
            filename=os.path.join(directory, "huey.db"), timeout=_WAIT
        )
        # Its own setting accepts only FULL and OFF.
        self._storage.conn.execute(f"PRAGMA synchronous = {synchronous}")
        self._payload = PAYLOAD.encode()

    def push(self, count: int) -> None:
        enqueue = self._storage.enqueue
        for _ in range(count):
            enqueue(self._payload)

    def consume(self, count: int) -> None:
        for _ in range(count):
            assert self._storage.dequeue() is not None

    def close(self) -> None:
        self._storage.close()


class Honker(Contestant):
    """honker: its extension on a plain connection, claims and acks a page at a time."""

    def __init__(self, directory: str, synchronous: str) -> None:
        """Open the queue; make it when there is none."""
        import honker

        os.makedirs(directory, exist_ok=True)
        self._connection = sqlite3.connect(
            os.path.join(directory, "honker.db"), timeout=_WAIT, isolation_level=None
        )
        honker.load_extension(self._connection)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute("SELECT honker_bootstrap()")
        self._row = ("bench", json.dumps(PAYLOAD))

    def push(self, count: int) -> None:
        for _ in range(count):
            self._connection.execute(
                "INSERT INTO _honker_live (queue, payload) VALUES (?, ?)", self._row
            )

    def push_batches(self, count: int) -> None:
        for _ in range(count):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT INTO _honker_live (queue, payload) VALUES (?, ?)", [self._row] * BATCH
            )
            self._connection.execute("COMMIT")

    def consume(self, count: int) -> None:
        for _ in range(count // PAGE):
            (text,) = self._connection.execute(
                "SELECT honker_claim_batch('bench', 'reader', ?, 300)", (PAGE,)
            ).fetchone()
            ids = [job["id"] for job in json.loads(text)]
            assert len(ids) == PAGE
            self._connection.execute(
                "SELECT honker_ack_batch(?, 'reader')", (json.dumps(ids),)
            ).fetchone()

    def close(self) -> None:
        self._connection.close()


PEERS: dict[str, Callable[[str, str], Contestant]] = {
    "honker": Honker,
    "huey": Huey,
    "litequeue": LiteQueue,
    "persist-queue": PersistQueue,
}


def installed(place: Callable[[str], str]) -> dict[str, str]:
    """Return for each peer why it cannot be measured, or "" when it can."""
    found = {}
    for name, peer in PEERS.items():
        try:
            contestant = peer(place(name), "normal")
            contestant.fill(1)
            contestant.close()
            found[name] = ""
        except ImportError:
            found[name] = "not installed"
        except Exception as error:
            found[name] = f"does not run: {type(error).__name__}"
    return found
