"""Reading changes nothing, no file's time either, even as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import ReadOnlyError
from eventq.log import status
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
SOMEBODY = 65534  # an ordinary user, whom root can be for a while
AS_ROOT = os.geteuid() == 0

# Everything is done to a thread of root's first: an ordinary user may be kept from reading this
# program.
READ = """
import os, sys, eventq
from eventq.cli import run
for path in sys.argv[1:3]:
    if path == sys.argv[2] and os.geteuid() != int(sys.argv[3]):
        os.setgroups([])
        os.setgid(int(sys.argv[3]))
        os.setuid(int(sys.argv[3]))
    with eventq.open(path, read_only=True) as thread:
        assert [event.id for event in thread.peek()] == [1, 2]
        assert [event.id for event in thread.last(filter="type = 'note'")] == [1, 2]
        assert thread.status().event_count == 2
        assert thread.check() == []
        next(thread.follow(0))
    for words in (["peek", "--last", "2"], ["tail"], ["info"], ["check"]):
        assert not run([*words, "--thread", path])
"""


def marks(folder: str) -> dict[str, tuple[int, ...]]:
    """Return what is known of everything below a folder but for the time of the last reading."""
    found: dict[str, tuple[int, ...]] = {}
    for at, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            one = os.lstat(os.path.join(at, name))
            key = os.path.relpath(os.path.join(at, name), folder)
            found[key] = (
                one.st_ino,
                one.st_mode,
                one.st_uid,
                one.st_gid,
                one.st_size,
                one.st_mtime_ns,
                one.st_ctime_ns,
            )
    return found


@pytest.fixture
def folder() -> Iterator[str]:
    """Yield a folder that everybody may enter."""
    made = tempfile.mkdtemp()
    os.chmod(made, 0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["written", "left with a WAL", "a copy with a WAL", "without a WAL"])
def shared(folder: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the path of a readable thread, in each state that its files may have."""
    before = os.umask(0o022)
    try:
        path = eventq.init(os.path.join(folder, "thread"), shared=True)
        with eventq.open(path) as thread:
            thread.push_many([("self", "note", "x"), ("self", "note", "y")])
            if request.param == "without a WAL":
                sqlite(thread.database).connection.wal_checkpoint()
            if request.param == "written":
                yield path
                return
        if request.param != "left with a WAL":
            os.unlink(os.path.join(path, "events.db-shm"))
        if request.param == "without a WAL":
            os.unlink(os.path.join(path, "events.db-wal"))
        yield path
    finally:
        os.umask(before)


def read(path: str, user: int) -> None:
    """Read a thread in another process, by the library and by each command, as a user."""
    with (
        tempfile.TemporaryDirectory() as folder,
        eventq.open(eventq.init(os.path.join(folder, "first"))) as first,
    ):
        first.push_many([("self", "note", "x"), ("self", "note", "y")])
        words = [sys.executable, "-c", READ, first.path, path, str(user)]
        environ = {**os.environ, "PYTHONPATH": ROOT}
        done = subprocess.run(
            words, cwd=ROOT, env=environ, timeout=120, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("owner", [0, SOMEBODY])
@pytest.mark.parametrize("user", [0, SOMEBODY])
def test_reading_changes_no_file(shared: str, owner: int, user: int) -> None:
    """A reader creates, removes and changes nothing, no owner and no time."""
    if AS_ROOT:
        for at, folders, files in os.walk(shared):
            for name in (".", *folders, *files):
                os.chown(os.path.join(at, name), owner, owner)
    elif owner or user:
        pytest.skip("only root can be somebody else")
    else:
        user = os.geteuid()
    before = marks(shared)
    read(shared, user)
    assert marks(shared) == before


def test_readers_beside_a_writer_in_one_process(path: str) -> None:
    """Many readers, opened while a writer of the same process is open, change no time either."""
    with eventq.open(path) as writer:
        writer.push("self", "note", "x")
        before = marks(path)
        errors: list[BaseException] = []

        def use() -> None:
            try:
                for _ in range(20):
                    with eventq.open(path, read_only=True) as reader:
                        assert [event.id for event in reader.last(filter="type = 'note'")] == [1]
            except BaseException as error:
                errors.append(error)

        readers = [threading.Thread(target=use) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert errors == []
        assert marks(path) == before


@pytest.mark.skipif(
    not AS_ROOT, reason="only root can write what belongs to somebody else for them"
)
def test_what_root_writes_belongs_to_the_owner(folder: str) -> None:
    """Root that writes to another user's thread leaves files that the user can write."""
    paths = [eventq.init(os.path.join(folder, str(number))) for number in range(20)]
    other = eventq.init(os.path.join(folder, "other"))
    with eventq.open(other) as thread:
        thread.push("self", "note", "x")
    for path in paths:
        for suffix in ("-wal", "-shm"):
            assert not os.path.exists(os.path.join(path, "events.db" + suffix))
        os.chown(os.path.join(path, "events.db"), SOMEBODY, SOMEBODY)
    done = threading.Event()

    def use() -> None:
        while not done.is_set():
            with eventq.open(other, read_only=True) as reader:
                reader.last()

    reader = threading.Thread(target=use)
    reader.start()
    try:
        for path in paths:
            with eventq.open(path) as thread:
                thread.push("self", "note", "x")
                for suffix in ("-wal", "-shm"):
                    assert os.stat(os.path.join(path, "events.db" + suffix)).st_uid == SOMEBODY
    finally:
        done.set()
        reader.join()


def test_a_status_beside_the_first_writer(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read without locks is read again when a writer comes meanwhile."""
    thread.push("self", "note", "one")
    path = str(tmp_path / "restored")
    shutil.copytree(thread.path, path, ignore=shutil.ignore_patterns("*-shm"))
    real = status.consumers
    came: list[int] = []

    def consumers(*given: Any) -> Any:
        if not came:
            came.append(1)
            with eventq.open(path) as writer:
                writer.push("self", "note", "two")
        return real(*given)

    monkeypatch.setattr(status, "consumers", consumers)
    with eventq.open(path, read_only=True) as reader:
        assert reader.status().last_id == 2


def test_a_moment_of_an_older_reader_keeps_a_writer_out(thread: eventq.Thread) -> None:
    """A moment makes way for no writer of its process: opening one says so, and works after it."""
    thread.push("self", "note", "one")
    path = thread.path
    thread.close()
    with eventq.open(path, read_only=True) as reader:
        with reader.database.read() as moment:
            with pytest.raises(ReadOnlyError, match="end that moment first"):
                eventq.open(path)
            assert moment.events.last() == 1
        with eventq.open(path) as writer:
            assert writer.push("self", "note", "two").id == 2
        assert [event.id for event in reader.peek(1)] == [2]
