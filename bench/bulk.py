"""A million events through the command line, and a text sought in all that is stored."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from typing import TYPE_CHECKING

import eventq
from bench.contestants import KIND, SOURCE, Raw
from bench.machine import PYTHON, Ended, watch_process
from bench.machine import eventq as command
from bench.report import Row, Sample, alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

LINE = 300  # bytes, with its newline

_PUSH = """
import json, sys, apsw
connection = apsw.Connection(sys.argv[1])
rows = (("2026-01-02T03:04:05.678Z", e["source"], e["type"], None, e["content"]) for e in map(json.loads, sys.stdin.buffer))
connection.execute("BEGIN IMMEDIATE")
connection.executemany("INSERT INTO events (created_at, source, type, subtype, content) VALUES (?, ?, ?, ?, ?)", rows)
connection.execute("COMMIT")
"""
_PEEK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1], apsw.SQLITE_OPEN_READONLY)
sql = ("SELECT json_object('id', id, 'created_at', created_at, 'source', source, 'type', type, 'subtype', subtype,"
       " 'content', content) FROM events ORDER BY id")
sys.stdout.writelines(line + "\\n" for (line,) in connection.execute(sql))
"""


def run(plan: Plan) -> Iterator[Row]:
    """Measure `push --batch`, then `peek` to a pipe, each beside a bare script that does as much."""
    count = plan.size(1_000_000, 20_000)
    source = _lines(plan, count)
    kept: list[str] = []
    pushes: dict[str, Callable[[], Ended]] = {
        "eventq": lambda: _push(plan, source, kept),
        "raw": lambda: _push_raw(plan, source),
    }
    found = plan.take(pushes, warm=False)
    yield from _rows(
        f"`eventq push --batch` of {count:,} lines of {LINE} bytes", found, count, 100_000
    )
    os.unlink(source)

    raw = Raw(plan.place("raw"), "normal")
    raw.connection.execute("ATTACH ? AS other", (os.path.join(kept[0], "events.db"),))
    raw.connection.execute("INSERT INTO main.events SELECT * FROM other.events")
    path = raw.connection.db_filename("main")
    raw.close()
    peek = command("peek", "--thread", kept[0], "--last-event-id", "0", "--limit", str(count))
    peeks: dict[str, Callable[[], Ended]] = {
        "eventq": lambda: watch_process(peek),
        "raw": lambda: watch_process([PYTHON, "-c", _PEEK, path]),
    }
    found = plan.take(peeks, warm=False)
    assert all(ended.lines == count for group in found.values() for ended in group)
    yield from _rows(f"`eventq peek --limit {count}` to a pipe", found, count, 200_000)
    yield from _find(plan)


def _find(plan: Plan) -> Iterator[Row]:
    """Measure the search for a text in events, turns and artifacts, which are compressed."""
    chance = random.Random(1)
    words = [
        "".join(chance.choices("etaoinshrdlu", k=chance.randrange(2, 9))) for _ in range(4_000)
    ]

    def text(count: int) -> str:
        return " ".join(chance.choices(words, k=count))

    path = plan.place("find")
    with eventq.open(path, create=True) as thread:
        count = plan.size(50_000, 500)
        thread.push_many([(SOURCE, KIND, text(100)) for _ in range(count)])
        context = thread.contexts.create()
        with thread.write():
            for _ in range(count):
                context.append(text(200))
        for _ in range(count // 1_000):
            thread.artifacts.put(text(150_000).encode())

        def find() -> float:
            found = thread.erasures.find("a password\nof two lines")
            start = time.perf_counter()
            assert not [*found]
            return found.bytes / (time.perf_counter() - start) / 1e6

        rates = plan.take({"find": find})["find"]
    what = "`eventq find` of a text with escapes, in events, turns and artifacts"
    yield alone(f"{what}: text read", Sample(rates, "MB/s"), least=100)


def _rows(what: str, found: dict[str, list[Ended]], count: int, least: float) -> Iterator[Row]:
    mine, raw = (
        Sample([count / ended.seconds for ended in found[name]], "/s") for name in ("eventq", "raw")
    )
    row = alone(what, mine, f"{raw} (a bare script)", least=least)
    yield Row(row.what, row.measured, row.raw, mine.median / raw.median, row.target, row.met)
    mine, raw = (
        Sample([ended.peak_mb for ended in found[name]], "MB") for name in ("eventq", "raw")
    )
    yield alone(f"{what}, largest resident size", mine, raw, most=100)


def _lines(plan: Plan, count: int) -> str:
    path = plan.place("input.ndjson")
    empty = json.dumps({"source": SOURCE, "type": KIND, "content": ""})
    line = (
        json.dumps({"source": SOURCE, "type": KIND, "content": "x" * (LINE - 1 - len(empty))})
        + "\n"
    )
    assert len(line) == LINE
    block = line * 1_000
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(block for _ in range(count // 1_000))
    return path


def _push(plan: Plan, source: str, kept: list[str]) -> Ended:
    path = plan.place("thread")
    eventq.open(path, create=True).close()
    ended = watch_process(command("push", "--thread", path, "--batch"), stdin=source)
    if kept:
        shutil.rmtree(path)
    else:
        kept.append(path)
    return ended


def _push_raw(plan: Plan, source: str) -> Ended:
    directory = plan.place("raw")
    store = Raw(directory, "full")
    path = store.connection.db_filename("main")
    store.close()
    ended = watch_process([PYTHON, "-c", _PUSH, path], stdin=source)
    shutil.rmtree(directory)
    return ended
