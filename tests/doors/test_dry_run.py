"""`prune` and `dead drop` with `--dry-run`: what would go, with nothing changed.

What nothing changes means: no row, no file and no file's times, also of a mirror that a push would
heal, and for somebody who may only read.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eventq
from tests.doors.support import THREAD, objects, ok, refused, run


@pytest.fixture
def filled(path: str) -> str:
    """Return a thread of nine events, of which a prune took two, three are dead and six acked."""
    with eventq.open(path) as thread:
        thread.push_many([("self", "note", "x")] * 9)
        thread.prune(before_id=3)
        thread.subscribe("pop")
        thread.ack("pop", 6)
        thread.subscribe("w", max_attempts=1, on_failure="dead")
        claimed = {one.event.id: one.token for one in thread.claim("w", limit=10)}
        thread.settle(dead=[claimed[number] for number in (4, 5, 8)], error="broken")
        thread.settle(done=[claimed[number] for number in (3, 6, 7, 9)])
    with open(f"{path}/events.jsonl", "a") as file:
        file.write('{"id":10')  # torn: the next push cuts it off
    return path


def state(path: str) -> dict[str, tuple[bytes, int, int]]:
    """Return each file with its content, time and inode."""
    files = [one for one in Path(path).rglob("*") if one.is_file() and one.suffix != ".db-shm"]
    return {
        str(one): (one.read_bytes(), one.stat().st_mtime_ns, one.stat().st_ino) for one in files
    }


@pytest.mark.parametrize(("words", "shown", "found"), [
    ("prune --before-id 6", "Would prune 3 events, 3 to 5", (3, 3, 5)),
    ("prune --before-id 4", "Would prune 1 event, 3 to 3", (1, 3, 3)),
    ("prune --keep-last 3", "Would prune 4 events, 3 to 6", (4, 3, 6)),
    ("prune --keep-last 0 --force", "Would prune 7 events, 3 to 9", (7, 3, 9)),
    ("prune --before-id 99 --force", "Would prune 7 events, 3 to 9", (7, 3, 9)),
    ("prune --before-id 2", "Would prune 0 events", (0, None, None)),
    ("prune --keep-last 99", "Would prune 0 events", (0, None, None)),
])  # fmt: skip
def test_a_prune_says_what_would_go(
    filled: str, words: str, shown: str, found: tuple[int | None, ...]
) -> None:
    """How many, and from which to which; then the prune deletes as many, and not before."""
    before = state(filled)
    assert ok(f"{words} --dry-run --thread", filled) == f"{shown}\n"
    (one,) = objects(f"{words} --dry-run --thread", filled)
    assert one == dict(
        zip(("dry_run", "count", "first_id", "last_id"), (True, *found), strict=True)
    )
    assert state(filled) == before
    assert objects(f"{words} --thread", filled) == [{"count": found[0]}]


def test_dropping_says_which_would_go(filled: str) -> None:
    """By consumer, ids that follow each other as a range."""
    before = state(filled)
    for words, expected in (
        ("--all", "Would drop 3 dead letters\n  w: events 4 to 5, 8\n"),
        ("--all --consumer pop", "Would drop 0 dead letters\n"),
        ("8", "Would drop 1 dead letter\n  w: events 8\n"),
    ):
        assert ok(f"dead drop {words} --dry-run --thread", filled) == expected
    assert objects("dead drop --all --dry-run --thread", filled) == [
        {"dry_run": True, "count": 3, "events": {"w": [4, 5, 8]}}
    ]
    assert state(filled) == before
    assert objects("dead drop --all --thread", filled) == [{"count": 3}]


def test_what_would_be_refused_is_refused(filled: str) -> None:
    """With the sentence and the exit status of the command itself."""
    for words in (
        "prune --keep-last 1", "prune", "dead drop 4 6", "dead drop 4 --consumer pop", "dead drop",
    ):  # fmt: skip
        real = run(f"{words} --thread", filled)
        dry = run(f"{words} --dry-run --thread", filled)
        assert real.code
        assert (dry.code, dry.out, dry.err) == (real.code, real.out, real.err)


def test_who_may_only_read_can_ask(filled: str, tmp_path: Path) -> None:
    """It opens the thread as `peek` does, also one of the original tool; `thread` has no dry run."""
    os.chmod(filled, 0o500)
    try:
        assert (
            ok("prune --before-id 6 --dry-run --thread", filled) == "Would prune 3 events, 3 to 5\n"
        )
    finally:
        os.chmod(filled, 0o700)
    refused(2, "--dry-run", run("prune --keep-last 1 --dry-run --thread", filled, program=THREAD))


def test_a_thread_of_the_original_tool(original: str) -> None:
    """Its tables are enough to say what would go."""
    before = state(original)
    assert ok("prune --keep-last 0 --force --dry-run --thread", original).startswith("Would prune ")
    run("prune --keep-last 0 --dry-run --thread", original)
    run("dead drop --all --dry-run --thread", original)
    assert state(original) == before
