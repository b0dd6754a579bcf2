"""A process of the benchmark beside the main one: `python -m bench.worker push NAME DIR SYNC`, `follow DIR`, `listen DIR SYNC`.

It says `ready`, then does what the lines on its stdin say, and answers in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import eventq
from bench.contestants import Raw, enter

if TYPE_CHECKING:
    from bench.contestants import Contestant

ANSWER = "answer"  # the content of an event that asks for the latencies since the last one


def main(words: list[str]) -> None:
    """Do one of the three."""
    if words[0] == "push":
        store = enter(*words[1:])
        _say("ready")
        for line in sys.stdin:
            _push(store, *map(float, line.split()))
    elif words[0] == "follow":
        _follow(words[1])
    else:
        _listen(Raw(words[1], words[2]))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _push(store: Contestant, start: float, end: float) -> None:
    """Push from one moment of the monotonic clock to another; say how long each push took, in ms, and how many failed."""
    taken: list[float] = []
    failed = 0
    time.sleep(max(0.0, start - time.monotonic()))
    before = time.monotonic()
    while before < end:
        try:
            store.push(1)
        except Exception:
            failed += 1
            before = time.monotonic()
            continue
        after = time.monotonic()
        taken.append(round((after - before) * 1_000, 4))
        before = after
    _say(json.dumps({"taken": taken, "failed": failed}))


def _follow(directory: str) -> None:
    """Follow a thread; the content of an event is when its push began, in ns of the monotonic clock."""
    taken: list[float] = []
    with eventq.open(directory, read_only=True) as thread:
        events = thread.follow()
        _say("ready")
        for event in events:
            taken = _note(event.content, taken)


def _listen(store: Raw) -> None:
    """The raw limit of a wake-up: a line on stdin says that there is an event to be read."""
    taken: list[float] = []
    last = 0
    _say("ready")
    while sys.stdin.buffer.readline():
        sql = "SELECT id, content FROM events WHERE id > ? ORDER BY id"
        rows: list[tuple[int, str]] = store.connection.execute(sql, (last,)).fetchall()  # type: ignore[assignment]
        for _, content in rows:
            taken = _note(content, taken)
        last = rows[-1][0] if rows else last


def _note(content: str, taken: list[float]) -> list[float]:
    now = time.monotonic_ns()
    if content == ANSWER:
        _say(json.dumps(taken))
        return []
    taken.append((now - int(content)) / 1e6)
    return taken


if __name__ == "__main__":
    main(sys.argv[1:])
