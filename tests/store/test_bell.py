"""What wakes those who wait for a thread: each commit that can make anybody due, and no other."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

import eventq
from eventq.records.event import NewEvent
from eventq.store.opening import bells
from eventq.store.run_rows import PreparedAttempt, PreparedRun, PreparedStep
from eventq.store.turn_rows import AppendTo, Piece, PreparedBlob, PreparedTurn
from tests.claiming import push, settle, subscribe, take
from tests.servers import delete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq.store.protocol import Database, Watcher
    from eventq.store.queue_rows import Taken
    from eventq.store.sqlite.watcher import Bells
    from tests.conftest import Until

Step = tuple["Callable[[Database], object]", "Callable[[Database], object]"]


pytestmark = pytest.mark.engines("sqlite")  # the others hold events only


SOON = 60.0  # seconds that nobody waits in vain: another OS thread may hear the bell first


@pytest.fixture(autouse=True)
def _alone(until: Until) -> None:
    """Wait for the last look of a reader that a test before has left: it might hear a bell first."""
    until(lambda: not any(one.name.startswith("eventq-") for one in threading.enumerate()), "alone")


@pytest.fixture
def bare(opened: eventq.Thread) -> Iterator[Database]:
    """Return a database that writes no mirror: only the bell is heard."""
    from eventq.store.opening import open_database

    made = open_database(opened.path)
    yield made
    made.close()


@pytest.fixture
def ears(bare: Database) -> Iterator[Watcher]:
    """Return a watcher of that database."""
    with bare.watch() as made:
        yield made


def quiet(ears: Watcher) -> None:
    """Forget what has rung."""
    while ears.wait(0):
        pass


def waiting(db: Database) -> None:
    """Subscribe a consumer, and let two events wait."""
    subscribe(db)
    push(db, 2)


def claimed(db: Database) -> None:
    """Let one of two events be leased."""
    waiting(db)
    take(db)


def acked(db: Database) -> None:
    """Let both be acked."""
    waiting(db)
    db.consumers.pop("w", 2, 0)


def groups(db: Database) -> None:
    """Let two events of one group wait, of which one is leased."""
    subscribe(db, ordered_by="source")
    push(db, 2)


def stop(db: Database) -> None:
    """Stall a consumer."""
    waiting(db)
    state = db.consumers.get("w")
    assert state is not None
    db.consumers.note_run(state, stalled="for a test")


def nothing(_: Database) -> None:
    """Do nothing."""


def resume(db: Database) -> None:
    """End a stall."""
    state = db.consumers.get("w")
    assert state is not None
    db.consumers.note_run(state, stalled="")


def together(db: Database) -> None:
    """Store two events in one transaction."""
    with db.write():
        push(db)
        push(db)


def small(data: bytes) -> PreparedBlob:
    """Return a blob of one piece."""
    digest = blake3(data).digest()
    return PreparedBlob(digest, len(data), (Piece(digest, len(data), 0, data),), (), ())


def new(data: bytes) -> PreparedTurn:
    """Return a turn of some bytes."""
    return PreparedTurn(small(data), "t", 1, 0, 0, None)


def begun(db: Database) -> None:
    """Start a run."""
    db.memory.runs.start(PreparedRun("one", "", None, (), new(b"start"), None, AppendTo()))


def take_step(db: Database) -> None:
    """Take a step of the run."""
    runs = db.memory.runs
    runs.step(1, PreparedStep(new(b"a step"), AppendTo(), runs.state(1), (), (), "step"))


def try_step(db: Database) -> None:
    """Let a step of the run fail."""
    db.memory.runs.attempt(1, PreparedAttempt(db.memory.runs.state(1), (), small(b"failed")))


RINGS: dict[str, Step] = {
    "an event": (nothing, lambda db: db.events.add(NewEvent("self", "note", "x"))),
    "events": (nothing, together),
    "a subscription": (nothing, subscribe),
    "another subscription": (subscribe, lambda db: subscribe(db, filter="id > 1", replace=True)),
    "the end of one": (subscribe, lambda db: db.consumers.delete("w")),
    "resume": (stop, resume),
    "resume of claims": (claimed, lambda db: db.claims.resume("w")),
    "the end of a pause": (subscribe, lambda db: db.consumers.pause("w", paused=False)),
    "a retry": (waiting, lambda db: settle(db, taken[0], "retry", [1])),
    "a group goes on": (groups, lambda db: settle(db, taken[0], "done", [1])),
    "a replay": (acked, lambda db: db.consumers.pop("w", 0, 0, replay=True)),
    "an ack that ends a stall": (stop, lambda db: db.consumers.pop("w", 1, 0)),
    "a run": (nothing, begun),
    "a step of a run": (begun, take_step),
    "an attempt of a run": (begun, try_step),
    "the status of a run": (begun, lambda db: db.memory.runs.set_status(1, "suspended", "suspend")),
    "a fork of a run": (begun, lambda db: db.memory.runs.fork(1, 1, None)),
    "the end of a run's context": (begun, lambda db: db.memory.contexts.delete(1)),
}
taken: list[Taken] = []


@pytest.mark.parametrize("what", RINGS)
def test_what_somebody_waits_for_rings(what: str, bare: Database, ears: Watcher) -> None:
    """Also where nobody writes a mirror."""
    before, change = RINGS[what]
    before(bare)
    taken[:] = [take(bare, 2)] if what in ("a retry", "a group goes on") else []
    quiet(ears)
    change(bare)
    assert ears.wait(SOON)


QUIET: dict[str, Step] = {
    "a claim": (waiting, take),
    "done": (waiting, lambda db: settle(db, taken[0], "done", [1])),
    "dead": (waiting, lambda db: settle(db, taken[0], "dead", [1])),
    "an extension": (waiting, lambda db: settle(db, taken[0], "extend", [1], span=1000)),
    "an ack": (waiting, lambda db: db.consumers.pop("w", 1, 0)),
    "a page": (waiting, lambda db: db.consumers.pop("w", None, 9)),
    "a look at runs": (
        begun,
        lambda db: db.memory.runs.changes(0, db.memory.runs.last_change(), 9, None),
    ),
}


@pytest.mark.parametrize("what", QUIET)
def test_what_makes_nobody_due_does_not(what: str, bare: Database, ears: Watcher) -> None:
    """Or every worker would wake for each event that another one finishes."""
    before, change = QUIET[what]
    before(bare)
    taken[:] = [take(bare)] if what in ("done", "dead", "an extension") else []
    quiet(ears)
    change(bare)
    assert not ears.wait(0)


def test_a_change_of_a_run_leaves_the_time_of_the_bell(opened: eventq.Thread) -> None:
    """A step would wait for the disk to store it; but what makes somebody due changes it as ever."""
    bell = os.path.join(opened.path, "run", "bell")
    run = opened.runs.start("w", "p")
    os.utime(bell, ns=(1, 1))
    run.step("a")
    opened.contexts.delete(run.id)
    assert os.stat(bell).st_mtime_ns == 1
    with opened.database.write():
        subscribe(opened.database)
        opened.runs.start("w", "p")
    assert os.stat(bell).st_mtime_ns > 1


def test_a_transaction_that_is_undone_does_not_ring(bare: Database, ears: Watcher) -> None:
    """Nor does a part that is undone, beyond one ring for all."""
    subscribe(bare)
    quiet(ears)
    with pytest.raises(KeyError), bare.write():
        push(bare)
        raise KeyError
    assert not ears.wait(0)


def test_the_bell_is_made_again(bare: Database, ears: Watcher, opened: eventq.Thread) -> None:
    """A handler may remove it, even with its folder; it is as open as the database is.

    A push that still has the one that was removed wakes by the mirror.
    """
    bell = os.path.join(opened.path, "run", "bell")
    os.chmod(os.path.join(opened.path, "events.db"), 0o640)
    push(bare)
    assert ears.wait(SOON)
    for _ in range(3):
        quiet(ears)
        os.unlink(bell)
        quiet(ears)
        opened.push("self", "note", "x")
        assert ears.wait(SOON)
        quiet(ears)
        os.unlink(bell)
        quiet(ears)
        bare.ring()
        assert ears.wait(SOON)
    os.unlink(bell)
    push(bare)
    assert stat.S_IMODE(os.stat(bell).st_mode) == 0o640


def test_a_close_wakes_nobody(opened: eventq.Thread, bare: Database, ears: Watcher) -> None:
    """A push keeps the bell open; closing it is no news, and leaves no descriptor."""
    bell = os.path.join(opened.path, "run", "bell")
    bare.ring()
    before = opened_at(bell)
    push(opened.database)
    assert opened_at(bell) == before + 1
    quiet(ears)
    opened.database.close()
    assert not ears.wait(0)
    assert opened_at(bell) == before


def opened_at(path: str) -> int:
    """Return how many descriptors of this process are of a file."""
    found = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(one) and os.path.samefile(one, path) for one in found)


def test_a_reader_makes_no_bell(opened: eventq.Thread) -> None:
    """Who opened a thread to read changes nothing, and still hears other programs' mirror."""
    bell = os.path.join(opened.path, "run", "bell")
    opened.push("self", "note", "x")
    os.unlink(bell)
    with eventq.open(opened.path, read_only=True) as reader, reader.database.watch() as ears:
        quiet(ears)
        assert not os.path.exists(bell)
        with open(opened.layout.mirror, "a", encoding="utf-8") as mirror:
            mirror.write("{}\n")
        assert ears.wait(SOON)


@pytest.mark.parametrize("folder", [True, False])
def test_a_reader_hears_the_first_bell(opened: eventq.Thread, bare: Database, folder: bool) -> None:
    """In a thread that has no bell yet, nor the folder of it, and from then on whatever rings."""
    shutil.rmtree(os.path.join(opened.path, "run"))
    if folder:
        os.mkdir(os.path.join(opened.path, "run"))
    with eventq.open(opened.path, read_only=True) as reader, reader.database.watch() as ears:
        quiet(ears)
        for _ in range(3):
            begun(bare)
            assert ears.wait(SOON)
            quiet(ears)


def test_who_watches_makes_no_bell(opened: eventq.Thread, bare: Database, ears: Watcher) -> None:
    """Or a thread that is being deleted would get its folder back, and `rm -r` would fail."""
    bare.ring()
    quiet(ears)
    os.unlink(os.path.join(opened.path, "run", "bell"))
    os.rmdir(os.path.join(opened.path, "run"))
    quiet(ears)
    assert not os.path.exists(os.path.join(opened.path, "run"))


def test_a_nudge_makes_no_bell(opened: eventq.Thread, bare: Database, ears: Watcher) -> None:
    """It only wakes, where there is a bell: a server of a thread that is gone leaves nothing."""
    bare.ring()
    quiet(ears)
    ears.nudge()
    assert ears.wait(SOON)
    bell = os.path.join(opened.path, "run", "bell")
    os.unlink(bell)
    ears.nudge()
    assert not os.path.exists(bell)


def test_a_deleted_thread_gets_no_bell(opened: eventq.Thread) -> None:
    """Nobody who still watches keeps a part of it."""
    with opened.database.watch() as ears:
        opened.push("self", "note", "x")
        delete(opened.path)
        with pytest.raises(eventq.EventqError):
            while True:
                ears.wait(0)
    assert not os.path.exists(opened.path)


# --- many threads ---------------------------------------------------------------------------------


@pytest.fixture
def many() -> Iterator[Bells]:
    """Return a watcher of many threads."""
    made = bells()
    yield made
    made.close()


@pytest.mark.parametrize("has_inotify", [True, False])
def test_many_threads_are_told_apart(
    has_inotify: bool, tmp_path: Path, many: Bells, quick: None, request: pytest.FixtureRequest
) -> None:
    """Each is named that has changed since the last look, and one that was removed is not."""
    if not has_inotify:
        request.getfixturevalue("without_inotify")
    threads = [eventq.open(tmp_path / str(number), create=True) for number in range(4)]
    for thread in threads:
        many.add(thread.path)
    assert many.polls is not has_inotify
    many.take()
    threads[1].push("self", "note", "x")
    threads[3].push("self", "note", "x")
    assert many.take() == ({threads[1].path, threads[3].path}, set())
    assert many.take() == (set(), set())
    many.remove(threads[1].path)
    threads[1].push("self", "note", "x")
    assert many.take() == (set(), set())
    for thread in threads:
        thread.close()


def test_folders_are_watched(tmp_path: Path, many: Bells) -> None:
    """A folder is named when something appears in it, once."""
    (tmp_path / "deep").mkdir()
    many.add_folder(str(tmp_path))
    many.add_folder(str(tmp_path / "deep"))
    many.take()
    (tmp_path / "deep" / "new").mkdir()
    assert many.take() == (set(), {str(tmp_path / "deep")})
    assert many.take() == (set(), set())
