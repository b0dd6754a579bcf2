"""Whoever meddles with the files of an open thread takes nothing that was acknowledged.

The kind: SQLite goes on with a WAL that is not the one at the path, or believes in locks that it
has no more. Its members, each tried here:

- another SQLite in this process opens events.db, to read or to write, and closes it: between
  writes, inside a transaction, beside a second handle, a reader, a snapshot, and a worker's function;
- the folder is copied, packed or hashed in this process, then another process opens the file;
- the WAL is deleted by a program that cleans up, before a push, in a transaction, under a reader;
- the folder is changed within the tick of the clock in which it was looked at;
- a process is forked from one that has the file open, to read or to write.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tarfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.errors import BusyError, DamagedError, LogicError, LostError, MomentLostError
from tests.engines import sqlite
from tests.running import is_killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython

pytestmark = pytest.mark.usefixtures("quick")

LOOK = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1] + "/events.db") as db:
    print(db.execute("SELECT count(*) FROM events").fetchone()[0])
db.close()
"""
PUSH = "import eventq, sys; eventq.open(sys.argv[1]).push('self', 'note', 'theirs')"


@pytest.fixture(autouse=True)
def _looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each read look whether it reads the files at the path, not only 50 a second."""
    monkeypatch.setattr("eventq.store.sqlite.database.LOOK_SECONDS", -1.0)


def look(path: str, how: str = "rw") -> int:
    """Read the database with another SQLite in this process, as a notebook does."""
    db = sqlite3.connect(f"file:{path}/events.db?mode={how}", uri=True)
    try:
        return int(db.execute("SELECT count(*) FROM events").fetchone()[0])
    finally:
        db.close()


def checkpoint(path: str, mode: int = apsw.SQLITE_CHECKPOINT_TRUNCATE) -> None:
    """Copy what the WAL holds to the database, as it happens every now and then."""
    connection = apsw.Connection(f"{path}/events.db")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("SELECT 1 FROM events").fetchall()  # only now is the WAL open
    connection.wal_checkpoint(mode=mode)
    connection.close()


def copy(path: str, to: Path) -> None:
    """Copy the folder."""
    shutil.copytree(path, to / "copy")


def pack(path: str, to: Path) -> None:
    """Pack the folder."""
    with tarfile.open(to / "packed.tar", "w") as packed:
        packed.add(path)


def hash_all(path: str, _: Path) -> None:
    """Hash every file of the folder."""
    for where, _folders, names in os.walk(path):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                hashlib.file_digest(file, "sha256")


def push(thread: eventq.Thread, count: int = 5) -> list[int]:
    """Push some events and return their ids."""
    return [thread.push("self", "note", f"n{number}").id for number in range(count)]


def stored(run_python: RunPython, path: str) -> int:
    """Return how many events another process sees."""
    code = "import eventq, sys; print(len([*eventq.open(sys.argv[1], read_only=True).peek(0)]))"
    return int(run_python(code, path))


def test_another_sqlite_reads_between_pushes(thread: eventq.Thread, run_python: RunPython) -> None:
    """What is pushed after another SQLite of the process has closed the file is seen by others."""
    push(thread)
    for turn in range(1, 4):
        assert look(thread.path) == 5 * turn
        assert push(thread) == [*range(5 * turn + 1, 5 * turn + 6)]
        assert stored(run_python, thread.path) == 5 * turn + 5
        assert thread.check() == []


def test_every_handle_goes_on(thread: eventq.Thread, run_python: RunPython) -> None:
    """Two threads and a reader of one process all go on, and the locks of all hold again after."""
    path = thread.path
    with eventq.open(path) as second, eventq.open(path, read_only=True) as reader:
        push(thread)
        push(second)
        assert len([*reader.peek(0, filter="id > 0")]) == 10
        look(path)
        push(second)
        for number in range(3):  # each closes the file, and would take the WAL from nobody
            assert int(run_python(LOOK, path)) == 15 + 2 * number
            push(thread, 1)
            push(second, 1)
            found = [event.id for event in reader.peek(0, filter="id > 0")]
            assert found == [*range(1, 18 + 2 * number)]
    assert stored(run_python, path) == 21


@pytest.mark.parametrize("meddle", [copy, pack, hash_all])
def test_files_are_read_in_the_process(
    thread: eventq.Thread,
    meddle: Callable[[str, Path], None],
    tmp_path: Path,
    run_python: RunPython,
) -> None:
    """A copy releases the locks; another process that then takes the WAL away takes no event."""
    push(thread)
    for turn in range(1, 3):
        (tmp_path / str(turn)).mkdir()
        meddle(thread.path, tmp_path / str(turn))
        assert int(run_python(LOOK, thread.path)) == 5 * turn
        push(thread)
        assert stored(run_python, thread.path) == 5 * turn + 5


def test_the_memory_goes_on_too(thread: eventq.Thread, run_python: RunPython) -> None:
    """Steps of a run, turns and acks survive another SQLite in the process as events do."""
    run = thread.runs.start("job", "self")
    context = thread.contexts.create()
    thread.subscribe("c", "true")
    for number in range(3):
        push(thread, 1)
        look(thread.path)
        run.step("user", f"step {number}")
        look(thread.path)
        context.append(b"turn %d" % number)
        look(thread.path)
        thread.ack("c", number + 1)
    code = """
import eventq, sys
thread = eventq.open(sys.argv[1], read_only=True)
context = thread.contexts.get(int(sys.argv[2]))
print(thread.contexts.turn(context.head_id()).depth, thread.status().consumers[0].last_acked_id)
"""
    shown = run_python(code, thread.path, str(context.id)).split()
    assert shown == ["2", "3"]
    assert len([*run.replay()]) == 3


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_wal_that_is_deleted(path: str, *, relaxed: bool) -> None:
    """The next write names the events that are gone, whose lines the mirror has; then it goes on."""
    with eventq.open(path) as thread, eventq.open(path) as other:
        push(thread)
        checkpoint(path)
        assert push(other, 3) == [6, 7, 8]
        for name in ("events.db-wal", "events.db-shm"):
            os.unlink(f"{path}/{name}")
        with pytest.raises(DamagedError, match="events 6 to 8, which this process had stored"):
            if relaxed:
                with thread.database.write(relaxed=True):
                    pass
            else:
                push(thread, 1)
        with open(f"{path}/events.jsonl", encoding="utf-8") as mirror:
            assert mirror.read().count("\n") == 8
        assert other.last(1)[0].id == 5
        with open(f"{path}/logs/thread.log", encoding="utf-8") as journal:
            assert "was taken away while this process had it open: events 6 to 8" in journal.read()


def test_a_check_sees_that_the_wal_is_gone(path: str) -> None:
    """`check` in the process that still has the old WAL open says what is lost."""
    with eventq.open(path) as thread:
        checkpoint(path)
        push(thread, 1)
        os.unlink(f"{path}/events.db-wal")
        os.unlink(f"{path}/events.db-shm")
        assert "event 1, which this process had stored, is not in it" in thread.check()[0]


def test_a_worker_whose_function_reads_the_file(thread: eventq.Thread) -> None:
    """A worker goes on to handle every event, though its function reads events.db by itself."""
    worker = eventq.Worker(thread.path)
    got = []

    @worker.consumer("reader")
    def handle(event: eventq.Event) -> None:
        look(thread.path)
        got.append(event.id)
        if len(got) < 4:
            push(thread, 1)
        else:
            worker.stop()

    push(thread, 1)
    worker.run()
    assert got == [1, 2, 3, 4]
    assert look(thread.path) == 4


@pytest.mark.parametrize("how", ["ro", "rw"])
def test_a_look_inside_a_transaction(
    thread: eventq.Thread, how: str, run_python: RunPython
) -> None:
    """The transaction commits if nobody has written since; else it is undone, and they keep theirs."""
    push(thread, 1)
    with thread.write():
        push(thread, 1)
        look(thread.path, "ro")
    assert stored(run_python, thread.path) == 2
    with pytest.raises((BusyError, DamagedError)), thread.write():
        push(thread, 1)
        look(thread.path, how)
        run_python(PUSH, thread.path)
        push(thread, 1)
    found = [event.content for event in thread.peek(0)]
    assert found == ["n0", "n0", "theirs"]
    assert push(thread, 1) == [4]
    assert stored(run_python, thread.path) == 4


def test_a_reader_follows_to_another_wal(path: str, run_python: RunPython) -> None:
    """A read-only handle reads on when the WAL it had open was replaced."""
    with eventq.open(path) as writer:
        push(writer)
        with eventq.open(path, read_only=True) as reader:
            assert len([*reader.peek(0)]) == 5
            look(path)
            run_python(PUSH, path)
            assert len([*reader.peek(0)]) == len(reader.last(10)) == 6
            assert reader.last_id() == 6
    with eventq.open(path) as writer:
        assert writer.check() == []


def test_a_moment_ends_when_its_wal_is_gone(thread: eventq.Thread) -> None:
    """Who reads at one moment does not keep others from going on, and is told that it is lost."""
    push(thread)
    with thread.database.read() as moment:
        assert moment.events.last() == 5
        look(thread.path)
        assert push(thread, 1) == [6]
        with pytest.raises(MomentLostError):
            moment.events.last()


def test_another_os_thread_is_in_a_transaction(thread: eventq.Thread) -> None:
    """A handle waits for the transaction of another one in the process, before it goes on."""
    push(thread)
    inside, go_on = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def write() -> None:
        try:
            with eventq.open(thread.path) as other, other.write():
                other.push("self", "note", "inside")
                inside.set()
                go_on.wait(60)
        except eventq.EventqError as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    inside.wait(60)
    look(thread.path)
    go_on.set()
    push(thread, 1)
    writer.join(60)
    count = len([*thread.peek(0)])
    assert count == 7 - len(errors)
    assert look(thread.path) == count


def test_a_change_within_a_tick(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, run_python: RunPython
) -> None:
    """Where the folder's time does not tell, as two changes share a tick, it is looked at again."""
    then = os.stat(thread.path).st_mtime_ns
    monkeypatch.setattr("eventq.system.clock.now", lambda: then / 1e9 + 0.001)
    push(thread)
    look(thread.path)
    os.utime(thread.path, ns=(then, then))
    push(thread)
    assert stored(run_python, thread.path) == 10


@pytest.mark.parametrize("read_only", [True, False])
def test_a_child_of_a_fork_writes(path: str, run_python: RunPython, *, read_only: bool) -> None:
    """A child opens and writes at once, whatever its parent had open, and holds locks of its own."""
    with eventq.open(path) as thread:
        push(thread)
    with eventq.open(path, read_only=read_only) as parent:
        assert len([*parent.peek(0)]) == 5

        def work() -> None:
            with eventq.open(path) as own:
                own.push("self", "note", "child")
                wal = os.stat(f"{path}/events.db-wal").st_ino
                parent.database.close()  # of the parent's locks, the child has none to release
                run_python(LOOK, path)
                assert os.stat(f"{path}/events.db-wal").st_ino == wal
                own.push("self", "note", "child")

        assert not is_killed(work)
        assert len([*parent.peek(0)]) == 7
    assert stored(run_python, path) == 7


def test_a_child_forked_in_a_transaction(
    thread: eventq.Thread,
) -> None:
    """A fork inside `write` leaves the transaction to the parent, and the child reads."""
    push(thread)
    with thread.write():
        push(thread, 1)

        def work() -> None:
            with eventq.open(thread.path, read_only=True) as own:
                assert len([*own.peek(0)]) == 5
            with pytest.raises(LogicError, match=r"forked while .* was in a transaction"):
                eventq.open(thread.path)

        assert not is_killed(work)
    assert len([*thread.peek(0)]) == 6


def test_a_child_forked_while_another_os_thread_reads(
    thread: eventq.Thread,
) -> None:
    """It waits for nobody who is not there: neither for who runs a filter nor for who reads."""
    push(thread)
    reader = sqlite(thread.database).filters
    inside, go_on = threading.Event(), threading.Event()

    def stay() -> None:
        with reader.lock:
            assert reader.connection
            inside.set()
            go_on.wait(60)

    staying = threading.Thread(target=stay)
    staying.start()
    inside.wait(60)

    def work() -> None:
        with eventq.open(thread.path) as own:
            own.push("self", "note", "child")

    try:
        assert not is_killed(work)
    finally:
        go_on.set()
        staying.join()
    assert len([*thread.peek(0, filter="id > 0")]) == 6


def test_a_path_that_goes_through_a_link(
    thread: eventq.Thread, tmp_path: Path, run_python: RunPython
) -> None:
    """The lock of a transaction is looked after under the other name of a folder, too."""
    os.symlink(thread.path, tmp_path / "link")
    with eventq.open(tmp_path / "link") as linked:
        with pytest.raises(BusyError), linked.write():
            push(linked, 1)
            look(thread.path, "ro")
            run_python(PUSH, thread.path)
        assert [event.content for event in linked.peek(0)] == ["theirs"]


def test_the_descriptor_of_another_sqlite(thread: eventq.Thread) -> None:
    """Transactions go on when the shared memory was asked for by a number that is closed since."""
    push(thread, 1)
    own = sqlite(thread.database)
    own.step_aside()
    other = sqlite3.connect(f"{thread.path}/events.db")
    assert other.execute("SELECT count(*) FROM events").fetchone() == (1,)
    with thread.write():
        push(thread, 1)
    other.close()
    spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]  # the numbers are used again
    for _ in range(2):
        with thread.write():
            push(thread, 1)
    for number in spare:
        os.close(number)


def test_a_look_of_another_os_thread_inside_a_transaction(thread: eventq.Thread) -> None:
    """It does not hide from the end of the transaction that the WAL was taken away."""
    push(thread, 1)
    with pytest.raises((BusyError, DamagedError)), thread.write():
        push(thread, 1)
        os.unlink(f"{thread.path}/events.db-wal")
        other = threading.Thread(target=thread.database.alive)
        os.utime(thread.path, (0, 0))
        other.start()
        other.join()
    with suppress(DamagedError):
        push(thread, 1)
    push(thread, 1)


def test_the_wal_is_taken_away_before_the_line_is_written(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push whose event is lost as it waits for the mirror says so, and does not return an id."""
    with eventq.open(path) as thread:
        push(thread, 1)
        bell = sqlite(thread.database).bell
        ring = bell.ring_for_events

        def ring_and_clean_up() -> None:
            ring()
            for suffix in ("-wal", "-shm"):
                os.unlink(f"{path}/events.db{suffix}")

        monkeypatch.setattr(bell, "ring_for_events", ring_and_clean_up)
        with pytest.raises(LostError, match="events 1 to 2"):
            push(thread, 1)
        monkeypatch.undo()
        assert push(thread, 1) == [2]


def test_handles_that_open_and_close_at_once_know_each_other(path: str) -> None:
    """Whichever order OS threads open and close in, all handles of a database are in one table."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(40):
                with eventq.open(path) as own, eventq.open(path, read_only=True) as other:
                    handles = {id(sqlite(one.database).handles) for one in (own, other)}
                    assert len(handles) == 1
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not errors


def test_a_transaction_that_begins_the_wal_anew(thread: eventq.Thread) -> None:
    """One that is larger than SQLite's cache writes to a WAL that was copied, and commits."""
    for turn in range(1, 4):
        push(thread, 1)
        checkpoint(thread.path, apsw.SQLITE_CHECKPOINT_PASSIVE)  # which leaves the WAL as it is
        with thread.write():
            thread.push_many([("self", "note", "x" * 1_000)] * 6_000)
        assert thread.last_id() == 6_001 * turn


def test_what_is_known_of_consumers_is_not_kept(thread: eventq.Thread) -> None:
    """A handle that was closed for another one's sake looks anew who is due."""
    with eventq.open(thread.path) as other:
        push(other)
        version = sqlite(other.database).consumers.version()
        look(thread.path)
        push(thread)
        assert sqlite(other.database).open_connection is None
        assert sqlite(other.database).consumers.version() != version
        thread.subscribe("c")
        assert [event.id for event in other.pop("c")] == [*range(1, 11)]


def test_a_handle_that_was_set_aside_takes_back_first(path: str) -> None:
    """After the WAL is gone, the handle that was not told writes no event under a used id."""
    with eventq.open(path) as one, eventq.open(path) as other:
        push(one, 3)
        push(other, 3)
        for suffix in ("-wal", "-shm"):
            os.unlink(f"{path}/events.db{suffix}")
        with pytest.raises(LostError):
            push(one, 1)
        assert push(other, 1) == [7]
        assert one.check() == []


def test_another_sqlite_writes_in_the_middle_of_a_transaction(thread: eventq.Thread) -> None:
    """To the system both are one process, which has the lock: what it wrote is kept."""
    push(thread, 1)
    with pytest.raises(BusyError), thread.write():
        push(thread, 1)
        look(thread.path, "ro")  # releases the lock
        other = sqlite3.connect(f"{thread.path}/events.db", isolation_level=None)
        other.execute(
            "INSERT INTO events (created_at, source, type, content) VALUES ('', 'a', 'b', 'c')"
        )
        other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    assert [event.content for event in thread.peek(0)] == ["n0", "c"]
    other.execute("DELETE FROM events WHERE id = 2")
    other.execute("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'events'")
    other.close()
    push(thread, 1)


def test_the_file_is_damaged_when_the_handles_go_on(path: str) -> None:
    """Whoever notices gets an error of eventq with a next step, and the next call one as well."""
    with eventq.open(path) as thread:
        push(thread)
        checkpoint(path)
        for suffix in ("-wal", "-shm"):
            os.unlink(f"{path}/events.db{suffix}")
        with open(f"{path}/events.db", "r+b") as file:
            file.write(b"0123456789abcdef")
        for call in (
            thread.database.alive,
            lambda: push(thread, 1),
            lambda: [*thread.peek(0, filter="id > 0")],
            thread.status,
        ):
            with pytest.raises(DamagedError, match="mirror recover"):
                call()
