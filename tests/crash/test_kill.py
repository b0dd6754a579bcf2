"""`kill -9` at any moment: acknowledged events exist, and the next push repairs the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.crash.support import contents, kill, mirror_lines, numbers, read_lines, sound, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SINGLES = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    say("go")
    fall(int(sys.argv[2]))
    for n in range(100000):
        event = thread.push("self", "test", f"{sys.argv[3]} {n} " + "x" * (n % 50 * 100), key=f"{sys.argv[3]} {n}" if n % 3 == 0 else None)
        say(f"{event.id} {sys.argv[3]} {n}")
"""
BATCHES = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    say("go")
    fall(int(sys.argv[2]))
    for n in range(100000):
        rows = (("self", "test", f"{sys.argv[3]} {n} {i} " + "x" * 200) for i in range(200))
        done = thread.push_many(rows)
        say(f"{done.first_id} {done.last_id} {sys.argv[3]} {n}")
"""
REBUILD = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    say("go")
    fall(int(sys.argv[2]))
    while True:
        say(thread.rebuild_mirror())
"""
ROTATE = """
import eventq
from eventq.log import journal, mirror
mirror.ROTATE_LINES = journal.ROTATE_LINES = 5
with eventq.open(sys.argv[1]) as thread:
    say("go")
    fall(int(sys.argv[2]))
    for n in range(100000):
        say(thread.push("self", "test", f"{sys.argv[3]} {n}").id)
        if n % 40 == 39:
            thread.rebuild_mirror()
"""
PRUNE = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    say("go")
    fall(int(sys.argv[2]))
    while True:
        first = thread.push_many([("self", "test", f"{sys.argv[3]} " + "x" * 500)] * 100).first_id
        say(f"stored {first} {first + 99}")
        thread.prune(keep_last=150)
        say(f"pruned {first - 50}")
"""
INIT = """
import eventq
say("go")
fall(int(sys.argv[2]))
eventq.init(sys.argv[1])
say("made")
"""


def victims(
    code: str, path: str, rounds: int, seed: int, calls: tuple[int, int], most: int, *, odd: int = 0
) -> list[list[str]]:
    """Run a program again and again until it falls: every other time at a chosen call, else after so many words.

    Gives what each has said.
    """
    said = []
    counts = numbers(seed, rounds, 1, most + 1)
    falls = numbers(seed + 1, rounds, *calls)
    for number in range(rounds):
        at, count = int(next(falls)), int(next(counts))
        by_call = (number + odd) % 2
        process = start(code, path, str(at if by_call else 0), str(number))
        # 1 is "go": it may be anywhere in its first step
        out = read_lines(process, None if by_call else count) + kill(process)
        lines = out.decode().split("\n")
        assert lines[0] == "go"
        said.append(lines[1:-1])
        if code is not INIT:
            yield_check(path)
    return said


def yield_check(path: str) -> None:
    """Check that the thread checks out as it was left, and after the next push."""
    with eventq.open(path, read_only=True) as thread:
        left = ("run 'eventq mirror rebuild'", "prune again")  # a killed command has left it
        assert [what for what in thread.check() if not any(word in what for word in left)] == []
    sound(path, before=False)


def singles(path: str, rounds: int, seed: int) -> None:
    """Kill pushers of single events and check their promises."""
    said = victims(SINGLES, path, rounds, seed, (1, 3000), 60)
    with eventq.open(path) as thread:
        stored = {
            event.id: event.content.split(" x")[0].strip() for event in thread.peek(limit=None)
        }
    promised = [line.split(" ", 1) for lines in said for line in lines]
    assert promised
    for number, text in promised:
        assert stored[int(number)] == text
    texts = [text for text in stored.values() if text != "the next push"]
    assert len(set(texts)) == len(texts)
    for round_, lines in enumerate(said):
        # at most the one event that was under way is there unpromised
        assert sum(text.startswith(f"{round_} ") for text in texts) - len(lines) in (0, 1)


def batches(path: str, rounds: int, seed: int) -> None:
    """Kill pushers of batches and check that each batch is there or not."""
    said = victims(BATCHES, path, rounds, seed, (1, 20_000), 12)
    with eventq.open(path) as thread:
        stored = {event.id: event.content.split(" x")[0] for event in thread.peek(limit=None)}
    promised = [line.split() for lines in said for line in lines]
    assert promised
    for first, last, round_, number in promised:
        expected = [f"{round_} {number} {i}" for i in range(200)]
        assert [stored[n] for n in range(int(first), int(last) + 1)] == expected
    pieces = [text.rsplit(" ", 1)[0] for text in stored.values() if text != "the next push"]
    counts = {piece: pieces.count(piece) for piece in set(pieces)}
    assert set(counts.values()) == {200}
    assert len(counts) - len(promised) in range(rounds + 1)


def rotations(path: str, rounds: int, seed: int) -> None:
    """Kill pushers whose mirror and journal rotate every few lines, with some rebuilds."""
    said = victims(ROTATE, path, rounds, seed, (1, 6000), 60)
    assert any(said)
    ids = [int(line) for lines in said for line in lines]
    with eventq.open(path) as thread:
        assert set(ids) <= {event.id for event in thread.peek(limit=None)}
        assert len(mirror_lines(path)) == thread.last_id()


def rebuilds(path: str, rounds: int, seed: int) -> None:
    """Kill rebuilds of a mirror in several files."""
    with eventq.open(path) as thread:
        thread.push_many([("self", "test", str(n)) for n in range(3000)])
    for number in range(rounds):
        text = "\n".join(mirror_lines(path)) + "\n"
        cut = text.index("\n", len(text) // 3) + 1
        parts = {f"events-20200101-{number:06}.jsonl": text[:cut], "events.jsonl": text[cut:]}
        for name, part in parts.items():
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write(part)
        yield_check(path)
        victims(REBUILD, path, 1, seed * 1000 + number * 2, (1, 150), 2, odd=number)
        sides = sorted(name for name in os.listdir(path) if name.startswith("events-"))
        assert len(sides) <= 1
        with eventq.open(path) as thread:
            thread.rebuild_mirror()
        assert sorted(name for name in os.listdir(path) if "jsonl" in name) == ["events.jsonl"]


def prunes(path: str, rounds: int, seed: int) -> None:
    """Kill processes that push and prune."""
    said = victims(PRUNE, path, rounds, seed, (1, 2000), 12)
    with eventq.open(path) as thread:
        ids = [event.id for event in thread.peek(limit=None)]
        assert ids == list(range(ids[0], thread.last_id() + 1))
        words = [line.split() for lines in said for line in lines]
        assert ids[0] >= max((int(one[1]) for one in words if one[0] == "pruned"), default=0)
        stored = max((int(one[2]) for one in words if one[0] == "stored"), default=0)
        assert stored <= thread.last_id()
        assert thread.prune(keep_last=10) >= 0
        assert thread.database.stats().free == 0
        assert list(thread.check()) == []


def inits(folder: str, rounds: int, seed: int) -> None:
    """Kill inits, at every few calls and at some moments, and finish them."""
    finished = 0
    for number in range(rounds):
        path = os.path.join(folder, str(number))
        by_moment = number % 2
        said = (
            victims(INIT, path, 1, seed * 1000 + number, (1, 1), 1)
            if by_moment
            else [_fall_at(path, number * 17)]
        )
        if eventq.exists(path):
            assert contents(path) == []
        else:
            assert said == [[]]
            eventq.init(path)
        finished += said == [["made"]]
        assert sound(path) == []
        left = "events.db events.db-shm events.db-wal events.db.new events.jsonl logs run"
        assert set(os.listdir(path)) <= set(left.split())
    assert finished < rounds


def _fall_at(path: str, call: int) -> list[str]:
    process = start(INIT, path, str(call))
    out = read_lines(process) + kill(process)
    return out.decode().split("\n")[1:-1]


KINDS = [singles, batches, rotations, rebuilds, prunes, inits]


MANY = [pytest.param(60, seed, marks=pytest.mark.soak) for seed in range(20, 30)]


@pytest.mark.parametrize(("rounds", "seed"), [(5, 11), *MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_takes_nothing_with_it_that_was_promised(
    kind: Callable[[str, int, int], None], rounds: int, seed: int, tmp_path: Path
) -> None:
    """Whatever is killed, promised events are whole, and the next push completes the mirror."""
    path = str(tmp_path / "thread") if kind is inits else eventq.init(tmp_path / "thread")
    kind(path, rounds, seed)
