"""Turns, blobs and collections are whole or absent after a disk error or a kill."""

from __future__ import annotations

import io
import os
import random
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq.errors import DiskError
from tests.crash.support import FaultyVFS, copy, some_of, sound
from tests.crash.test_every_step import fell
from tests.engines import sqlite

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")

_CHANCE = random.Random(21)
SMALL = _CHANCE.randbytes(10_000)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _CHANCE.randrange(10**9)) for n in range(6_000))[
    :200_000
]
LARGE = _CHANCE.randbytes(3 << 20)
OPEN = TEXT[50_000:90_000]
DEAD = [b"dead", TEXT[:150_000], _CHANCE.randbytes(1_200_000)]
OLD = [b"old 1", b"old 2"]


@pytest.fixture
def template(tmp_path: Path) -> str:
    """Return a thread with a context, an open turn, and dead turns and blobs, for copying."""
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for data in OLD:
            main.append(data)
        opened = main.open_turn()
        opened.append_delta(OPEN)
        fork = main.fork()
        for data in DEAD:
            fork.append(data)
        fork.delete()
        trigger = "SELECT sql FROM sqlite_schema WHERE name = 'turns_are_immutable'"
        made = sqlite(thread.database).one(trigger)
        sqlite(thread.database).run("DROP TRIGGER turns_are_immutable")
        for column in (
            "turns SET created_at_ms",
            "blobs SET touched_at_ms",
            "context_log SET at_ms",
        ):
            sqlite(thread.database).run(f"UPDATE {column} = 0")
        sqlite(thread.database).run(made)
        thread.database.compact()
    return path


# --- what is done, and what must hold whatever became of it ---------------------------------------


def append(thread: eventq.Thread) -> None:
    """Append a turn of 10 KB, with a key and an event of its own."""
    thread.contexts.get("main").append(SMALL, key="k", source="self")


def append_text(thread: eventq.Thread) -> None:
    """Append a turn of 200 KB that is stored in parts, some of which are there."""
    thread.contexts.get("main").append(TEXT)


def put(thread: eventq.Thread) -> None:
    """Put 3 MiB that do not compress, in parts ahead of the transaction."""
    thread.blobs.put(LARGE)


def put_file(thread: eventq.Thread) -> None:
    """Put the same as a stream."""
    thread.blobs.put(io.BytesIO(LARGE))


def gc(thread: eventq.Thread) -> None:
    """Collect."""
    thread.gc(apply=True)


def seal(thread: eventq.Thread) -> None:
    """Seal the open turn."""
    thread.contexts.open_turn(1).seal(key="k")


WORKS = {work.__name__: work for work in (append, append_text, put, put_file, gc, seal)}


def rows(thread: eventq.Thread, table: str) -> int:
    """Return how many rows a table has."""
    return int(sqlite(thread.database).one(f"SELECT count(*) FROM {table}"))


def whole(path: str, name: str) -> bool:
    """Check that what was done is there as a whole or not at all, and say whether it is."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        main = thread.contexts.get("main")
        said = [turn.payload for turn in main.replay()]
        dead = [thread.blobs.get(blake3(data).hexdigest()) for data in DEAD]
        opened = list(main.open_turns())
        large = thread.blobs.get(blake3(LARGE).hexdigest())
        turns, keys, events = rows(thread, "turns"), rows(thread, "turn_keys"), thread.last_id()
    added = {"append": SMALL, "append_text": TEXT, "seal": OPEN}.get(name)
    put = name in ("put", "put_file")
    done = dead == [None] * 3 if name == "gc" else large == LARGE if put else len(said) > 2
    assert said == [*OLD, added] if added is not None and done else said == OLD
    assert dead == ([None] * 3 if name == "gc" and done else DEAD)
    assert turns == 2 + 3 * (name != "gc" or not done) + (added is not None and done)
    assert [info.size for info in opened] == ([] if name == "seal" and done else [len(OPEN)])
    assert large == (LARGE if put and done else None)
    assert keys == (name in ("append", "seal") and done)
    assert events == (name == "append" and done)
    return bool(done)


def again(path: str, name: str, *, done: bool) -> None:
    """Check that the same can be done now, and that nothing of the first time is left over."""
    with eventq.open(path) as thread:
        if not (done and name == "seal"):
            WORKS[name](thread)
        assert thread.check() == []
        if name == "append":  # thanks to its key
            assert (len(list(thread.contexts.get("main").replay())), thread.last_id()) == (3, 1)
        thread.gc(apply=True, grace=0)
        assert thread.check() == []
        assert all(thread.blobs.get(blake3(data).hexdigest()) == data for data in OLD)
        times = 1 + (name == "append_text" and done)
        assert rows(thread, "turns") == 2 + times * (name in ("append", "append_text", "seal"))
        if name.startswith("put"):  # with them the parts that the crash had left
            assert rows(thread, "blobs") == 2
        assert thread.database.stats().free == 0


REFUSED = [
    ("append", apsw.IOError), ("append", apsw.FullError), ("append_text", apsw.IOError), ("put", apsw.FullError),
    ("put_file", apsw.IOError), ("gc", apsw.IOError), ("gc", apsw.FullError), ("seal", apsw.FullError),
]  # fmt: skip
# Each in turn once and lasting; the soak has both of each, at every step near the ends.
SOME = [pytest.param(*one, 2, n % 2 == 1) for n, one in enumerate(REFUSED)]
ALL = [
    pytest.param(*one, 40, lasting, marks=pytest.mark.soak)
    for one in REFUSED
    for lasting in (False, True)
]


@pytest.mark.parametrize(("name", "error", "edge", "lasting"), [*SOME, *ALL])
def test_a_disk_that_refuses(
    name: str, error: type[Exception], lasting: bool, edge: int, template: str, tmp_path: Path, vfs: FaultyVFS
) -> None:  # fmt: skip
    """Rows 11, 24, 55: after any failed change the thread is sound, the work whole or absent."""
    path = str(tmp_path / "thread")
    count = vfs.steps_of(copy(template, path), WORKS[name])
    assert count > 8
    for number in some_of(count, edge, count // max(edge, 4)):
        with vfs.opened(copy(template, path), number, error, lasting=lasting) as thread:
            WORKS[name](thread)
        done = whole(path, name)
        assert done or vfs.refused
        if number % 5 == 0 or edge < 4:
            again(path, name, done=done)
            sound(path)


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["touching", "every"]
)
@pytest.mark.parametrize("name", WORKS)
def test_a_process_that_is_killed(name: str, every: bool, template: str, tmp_path: Path) -> None:
    """Rows 11, 24, 55: after a kill at any step the thread is sound, the work whole or absent."""
    path = str(tmp_path / "thread")

    def work() -> None:
        with eventq.open(path) as thread:
            WORKS[name](thread)

    number, ends = 0, []
    going = True
    while going:
        number += 1 if every else 19
        copy(template, path)
        going = fell(number, work, every=every)
        ends.append(whole(path, name))
        assert ends[-1] or going
        if number % 25 == 0 or ends[-1] != ends[-2:][0]:
            again(path, name, done=ends[-1])
    assert (ends[0], ends[-1]) == (False, True)  # between them, two runs may differ by some steps
    assert number > 10


@pytest.mark.parametrize("name", ["append", "append_text", "put", "gc", "seal"])
def test_the_same_thread_goes_on(name: str, template: str, tmp_path: Path, vfs: FaultyVFS) -> None:
    """After one disk error, a process can repeat the work with its open thread."""
    path = str(tmp_path / "thread")
    count = vfs.steps_of(copy(template, path), WORKS[name])
    for number in some_of(count, 40, count // 40)[::13]:
        with vfs.opened(copy(template, path), number, apsw.FullError) as thread:
            try:
                WORKS[name](thread)
                refused = False
            except DiskError:
                refused = True
            vfs.disarm()
            assert thread.check() == []
            if refused and not (name == "seal" and not list(thread.contexts.open_turns())):
                WORKS[name](thread)
            assert thread.check() == []
        with eventq.open(path) as thread:
            said = [turn.payload for turn in thread.contexts.get("main").replay()]
            first = {"append": [SMALL], "append_text": [TEXT], "seal": [OPEN]}.get(name, [])
            assert said[: 2 + len(first)] == OLD + first
            assert set(said[2:]) <= set(first)
            if name == "put":
                assert thread.blobs.get(blake3(LARGE).hexdigest()) == LARGE
            if name == "gc":
                assert rows(thread, "turns") == 2
            assert thread.check() == []


def test_turn_ids_after_a_kill(template: str, tmp_path: Path) -> None:
    """Row 35: after a kill, an id that was assigned is not assigned again."""
    path = str(tmp_path / "thread")
    for name, stride in (("append", 11), ("gc", 31)):
        number, going = 0, True
        while going:
            number += stride
            copy(template, path)

            def work(name: str = name) -> None:
                with eventq.open(path) as thread:
                    WORKS[name](thread)

            going = fell(number, work)
            with eventq.open(path) as thread:
                newest: Any = sqlite(thread.database).one("SELECT max(turn_id) FROM turns")
                assert thread.contexts.get("main").append(b"next").turn_id == max(newest, 5) + 1
    assert os.path.exists(path)
