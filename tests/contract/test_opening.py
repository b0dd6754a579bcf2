"""A path becomes a thread, or causes an error with a hint; other files stay unchanged."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import (
    DiskError,
    InputError,
    LogicError,
    NotAThreadError,
    PlatformError,
    ReadOnlyError,
    ThreadExistsError,
    UsageError,
)
from tests.contract.support import listing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython


def mode(path: str) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(os.stat(path).st_mode)


def test_init_makes_the_whole_directory(tmp_path: Path) -> None:
    """`init` creates events.db, an empty events.jsonl, run/ and logs/; it returns the path."""
    path = eventq.init(tmp_path / "deep" / "down")
    assert path == str(tmp_path / "deep" / "down")
    assert sorted(os.listdir(path)) == ["events.db", "events.jsonl", "logs", "run"]
    assert os.path.getsize(os.path.join(path, "events.jsonl")) == 0


def test_init_inside_an_existing_directory_keeps_what_is_there(tmp_path: Path) -> None:
    """A directory that exists becomes a thread, and its other files stay."""
    (tmp_path / "note.txt").write_text("mine")
    eventq.init(tmp_path)
    assert (tmp_path / "note.txt").read_text() == "mine"
    with eventq.open(tmp_path) as thread:
        assert thread.check() == []


def test_init_twice_is_refused(path: str) -> None:
    """A second `init` raises ThreadExistsError and changes nothing."""
    before = listing(path)
    with pytest.raises(ThreadExistsError, match="already a thread"):
        eventq.init(path)
    assert listing(path) == before


def test_init_of_an_empty_path_is_refused() -> None:
    """The empty path is the caller's mistake, not the current directory."""
    with pytest.raises(UsageError, match="the path is empty"):
        eventq.init("")


def test_init_where_a_file_is_in_the_way(tmp_path: Path) -> None:
    """A file at the path, or above it, is a DiskError that names the path, and stays as it is."""
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DiskError, match=f"^'{tmp_path}/file"):
            eventq.init(path)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_private_thread_is_for_its_owner_only(tmp_path: Path) -> None:
    """Directories are 0700 and files 0600, also those that come later, whatever the umask."""
    before = os.umask(0)
    try:
        path = eventq.init(tmp_path / "thread")
        with eventq.open(path) as thread:
            thread.push("self", "note", "x")
            assert {name: mode(os.path.join(path, name)) for name in os.listdir(path)} == {
                "events.db": 0o600,
                "events.db-shm": 0o600,
                "events.db-wal": 0o600,
                "events.jsonl": 0o600,
                "logs": 0o700,
                "run": 0o700,
            }
            assert mode(os.path.join(path, "logs", "thread.log")) == 0o600
        assert mode(path) == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "folder", "file"), [(0o022, 0o755, 0o644), (0o002, 0o775, 0o664)])
def test_a_shared_thread_follows_the_umask(
    tmp_path: Path, mask: int, folder: int, file: int
) -> None:
    """`shared=True` makes what the umask allows, also for what is made later."""
    before = os.umask(mask)
    try:
        path = eventq.init(tmp_path / "thread", shared=True)
        with eventq.open(path) as thread:
            thread.push("self", "note", "x")
        os.umask(0o077)  # of whoever comes later
        os.unlink(os.path.join(path, "events.jsonl"))
        os.unlink(os.path.join(path, "logs", "thread.log"))
        with eventq.open(path) as thread:
            thread.push("self", "note", "y")
        assert {mode(os.path.join(path, name)) for name in ("", "run", "logs")} == {folder}
        assert {mode(os.path.join(path, name)) for name in ("events.db", "events.db-wal")} == {file}
    finally:
        os.umask(before)


def test_two_inits_at_once(tmp_path: Path) -> None:
    """Of several simultaneous `init`s one succeeds; the others get ThreadExistsError."""

    def compete(path: Path) -> list[str]:
        results: list[str] = []
        start = threading.Barrier(4)

        def one() -> None:
            start.wait()
            try:
                results.append(os.path.basename(eventq.init(path)))
            except Exception as error:
                results.append(type(error).__name__)

        threads = [threading.Thread(target=one) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return sorted(results)

    for number in range(25):
        assert compete(tmp_path / f"t{number}") == ["ThreadExistsError"] * 3 + [f"t{number}"]


def test_inits_of_two_processes_at_once(tmp_path: Path, run_python: RunPython) -> None:
    """`open(create=True)` gives every process the same thread, however many make it at once."""
    code = (
        "import sys, eventq\n"
        "for n in range(20):\n"
        "    with eventq.open(f'{sys.argv[1]}/t{n}', create=True) as thread: thread.push('self', 'note', 'x')\n"
    )
    threads = [threading.Thread(target=run_python, args=(code, str(tmp_path))) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for number in range(20):
        with eventq.open(tmp_path / f"t{number}") as thread:
            assert (thread.last_id(), thread.check()) == (2, [])


@pytest.mark.parametrize("left", [
    [], ["run"], ["run", "logs", "logs/handlers"], ["events.jsonl"], ["events.db.new"],
    ["events.db"],
])  # fmt: skip
def test_a_half_made_thread_is_finished_by_the_next_init(tmp_path: Path, left: list[str]) -> None:
    """Whatever a crashed `init` left behind, the next one finishes the thread."""
    path = tmp_path / "thread"
    path.mkdir()
    for name in left:
        if "." in name:
            (path / name).write_bytes(b"half" if name.endswith("new") else b"")
        else:
            (path / name).mkdir()
    eventq.init(path)
    assert sorted(os.listdir(path)) == ["events.db", "events.jsonl", "logs", "run"]
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 1
        assert thread.check() == []


def test_open_needs_a_thread_unless_told_to_make_one(tmp_path: Path) -> None:
    """`open` raises NotAThreadError, which names `create=True`; the command line has a command."""
    path = tmp_path / "thread"
    with pytest.raises(NotAThreadError, match="is not a thread - create it with ") as caught:
        eventq.open(path)
    assert not path.exists()
    assert caught.value.fix == f"create it with eventq.open({str(path)!r}, create=True)"
    assert caught.value.advice == f"run 'eventq init {path}' first"
    with eventq.open(path, create=True) as thread:
        thread.push("self", "note", "x")
    with eventq.open(path, create=True) as thread:
        assert thread.last_id() == 1


@pytest.mark.parametrize(
    "url", ["http://localhost:9009", "tcp://x/y", "eventq://x:1", "127.0.0.1:9009", "[::1]:9009"]
)
def test_an_address_is_not_advised_to_be_created(url: str) -> None:
    """The hint says where a thread is used that is served."""
    with pytest.raises(NotAThreadError) as caught:
        eventq.open(url)
    assert caught.value.fix == caught.value.advice
    start = "give the directory of a thread; for a server, run this on the machine of the thread"
    assert caught.value.fix.startswith(start)


def _listed(place: str) -> None:
    list(eventq.threads(place))


@pytest.mark.parametrize(
    "start", ["mysql://", "postgresql+psycopg://", "POSTGRESQL://", "postgresql:/", "https://"]
)
def test_the_url_of_something_else_is_shown_without_a_password(start: str) -> None:
    """Whoever opens, makes, deletes or lists it: it was meant for a server, and logs are read."""
    url = f"{start}bob:s3cr3t@db.example/agents?thread=a"
    for call in (eventq.open, eventq.init, eventq.destroy, eventq.init_schema, _listed):
        if call is eventq.init and "://" not in url:
            continue  # a directory, like any other
        with pytest.raises(eventq.EventqError, match=r"db\.example") as caught:
            call(url)
        assert "s3cr3t" not in f"{caught.value}{caught.value.fix}"


@pytest.mark.parametrize("kind", ["missing", "directory", "file", "below a file"])
def test_what_is_no_thread_is_named(tmp_path: Path, kind: str) -> None:
    """A missing path, an empty directory and a file are not threads, and do not change."""
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif "file" in kind:
        path.write_text("mine")
        path = path / "y" if kind == "below a file" else path
    before = listing(str(tmp_path))
    with pytest.raises(NotAThreadError):
        eventq.open(path)
    with pytest.raises(NotAThreadError):
        eventq.open(path, read_only=True)
    assert not eventq.exists(path)
    assert listing(str(tmp_path)) == before


@pytest.mark.parametrize(
    ("spelled", "command"),
    [
        ("thread", "rm -r {}/thread"),
        ("link", "rm -r {}/thread"),
        ("thread/../thread/.", "rm -r {}/thread"),
        ("it's", """rm -r '{}/it'"'"'s'"""),
        ("proj", "rm -r {0}/proj/events.db {0}/proj/events.jsonl"),
        ("plain", ""),
        ("plain/note", ""),
        ("missing", ""),
        (".", ""),
        ("/", ""),
        ("~", ""),
        ("named", "give the URL in thread.url"),
    ],
)
def test_destroy_deletes_no_directory(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str, command: str
) -> None:
    """A directory is deleted by its owner: `destroy` names a command that deletes the thread only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, file in (("plain", "note"), ("proj", "code.py"), ("named", "thread.url")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("mine")
    (tmp_path / "link").symlink_to(path)
    eventq.init("it's")
    eventq.init("proj")
    before = listing(str(tmp_path))
    with pytest.raises(UsageError) as raised:
        eventq.destroy(spelled)
    assert "nothing was deleted" in raised.value.what
    assert raised.value.fix.endswith(command.format(os.path.realpath(tmp_path)))
    assert ("rm -r" in raised.value.fix) == ("rm -r" in command)
    assert listing(str(tmp_path)) == before
    assert eventq.exists(path)


@pytest.mark.parametrize("kind", ["text", "link", "folder"])
def test_init_leaves_a_file_alone_that_a_thread_would_write(kind: str, tmp_path: Path) -> None:
    """Somebody's own events.jsonl, or a link in its place, is refused: a rebuild would lose it."""
    mine, mirror = tmp_path / "mine", tmp_path / "t" / "events.jsonl"
    mine.write_text("mine")
    mirror.parent.mkdir()
    if kind == "text":
        mirror.write_text("mine")
    elif kind == "link":
        mirror.symlink_to(mine)
    else:
        mirror.mkdir()
    before = listing(str(tmp_path))
    with pytest.raises(LogicError, match=r"is no file|is there already, and has no events in it"):
        eventq.init(tmp_path / "t")
    assert listing(str(tmp_path)) == before


def test_init_in_the_directory_of_a_thread_in_a_database(tmp_path: Path) -> None:
    """It is a thread already; another one in its files would hide it."""
    (tmp_path / "thread.url").write_text("postgresql://nowhere/x?thread=y")
    with pytest.raises(ThreadExistsError):
        eventq.init(tmp_path)
    assert os.listdir(tmp_path) == ["thread.url"]


@pytest.mark.parametrize("text", ["", "http://localhost/x", "eventq://localhost:9009"])
def test_destroy_without_a_path_names_none(text: str) -> None:
    """What is neither a URL of a database nor a path is not answered with a directory to delete."""
    with pytest.raises(UsageError, match=r"give postgresql://") as raised:
        eventq.destroy(text)
    assert "rm -r" not in str(raised.value)


def test_the_path_is_resolved_as_text(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths, `..`, a trailing slash and `~/` are resolved; symbolic links are kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(path)
    for spelled in (
        "thread",
        "./thread/",
        "x/../thread",
        "~/thread",
        path + "/",
        tmp_path / "thread",
    ):
        with eventq.open(spelled) as thread:
            assert thread.path == path
    with eventq.open("link") as thread:
        assert thread.path == str(tmp_path / "link")
        assert repr(thread) == f"<eventq.Thread {tmp_path / 'link'}>"


def test_a_nul_in_the_path_is_refused() -> None:
    """A path that no system can have is the caller's mistake."""
    with pytest.raises(UsageError, match="NUL"):
        eventq.open("a\0b")


# --- only reading ---------------------------------------------------------------------------------


def test_writing_to_what_was_opened_to_read(thread: eventq.Thread) -> None:
    """Every call that would write raises ReadOnlyError and changes nothing."""
    thread.push("self", "note", "x")
    thread.subscribe("w", "true")
    with eventq.open(thread.path, read_only=True) as reader:
        before = listing(thread.path)
        calls: tuple[Callable[[], object], ...] = (
            lambda: reader.push("self", "note", "y"),
            lambda: reader.push("self", "note", "y", key="k"),
            lambda: reader.push_many([("self", "note", "y")]),
            lambda: reader.subscribe("v", "true"), lambda: reader.unsubscribe("w"),
            lambda: reader.pop("w", 0), lambda: reader.ack("w", 1), lambda: reader.resume("w"),
            lambda: reader.prune(keep_last=0, force=True), lambda: reader.write().__enter__(),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(ReadOnlyError, match="opened to read - open the thread for writing"):
                call()
        assert listing(thread.path) == before
    assert thread.last_id() == 1


def test_init_puts_the_names_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once `init` returns, a power cut takes neither the database's name nor the directory's."""
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append((os.fstat(fd).st_ino, os.path.exists(tmp_path / "t" / "events.db")))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    eventq.init(tmp_path / "t")
    assert {(os.stat(tmp_path / "t").st_ino, True), (os.stat(tmp_path).st_ino, True)} <= set(synced)


def test_init_says_who_is_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who keeps the lock of the folder is named in the error."""
    monkeypatch.setattr("eventq.system.locks.LOCK_SECONDS", 0.01)
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(eventq.StoreError, match="keeps the lock"):
        eventq.init(tmp_path)
    os.close(fd)


# --- long paths -----------------------------------------------------------------------------------

LONGEST = (
    490  # bytes of the real path of a directory: SQLite opens 512, with the longest of its suffixes
)


def deep(folder: Path, size: int, letter: str = "x") -> str:
    """Return a path of so many bytes below a folder, with short names."""
    path = os.fsencode(folder)
    name = letter.encode() * (100 // len(letter.encode()))
    while len(path) + 2 * len(name) < size:
        path += b"/" + name
    return os.fsdecode(path + b"/" + b"y" * (size - len(path) - 1))


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
@pytest.mark.parametrize("linked", [False, True])
def test_the_longest_path_works(tmp_path: Path, letter: str, linked: bool) -> None:
    """A thread at the end of the longest path that is accepted does everything, for readers too."""
    real = path = deep(tmp_path, LONGEST, letter)
    assert len(os.fsencode(path)) == LONGEST
    if linked:
        os.makedirs(path)
        path = str(tmp_path / "link")
        os.symlink(real, path)
    eventq.init(path)
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        thread.subscribe("w", "true")
        thread.pop("w", 1)
        for other in (real, path):
            with eventq.open(other, read_only=True) as reader:
                assert [event.id for event in reader.peek(filter="type = 'note'")] == [1]
    for suffix in ("-wal", "-shm"):
        os.unlink(os.path.join(path, "events.db" + suffix))
    with eventq.open(path, read_only=True) as reader:
        reader.check()


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
@pytest.mark.parametrize("size", [LONGEST + 1, 505, 600, 5_000])
def test_a_path_that_is_too_long_is_refused_before_anything_is_made(
    tmp_path: Path, letter: str, size: int
) -> None:
    """`init` and `open(create=True)` report the limit in bytes, and leave nothing behind."""
    path = deep(tmp_path, size, letter)
    for make in (eventq.init, lambda path: eventq.open(path, create=True)):
        with pytest.raises(
            InputError, match=rf"is too long \({size} bytes; .* {LONGEST}\) - choose a shorter path"
        ):
            make(path)
    assert os.listdir(tmp_path) == []


def test_a_link_to_a_path_that_is_too_long(tmp_path: Path) -> None:
    """The length of a link's target counts, and nothing is created in its directory."""
    os.makedirs(real := deep(tmp_path, LONGEST + 1))
    os.symlink(real, tmp_path / "link")
    with pytest.raises(InputError, match=str(LONGEST)):
        eventq.init(tmp_path / "link")
    assert os.listdir(real) == []


def test_long_links_to_a_short_path_work(tmp_path: Path) -> None:
    """A path that is long only until its links are resolved is fine."""
    os.symlink(tmp_path, tmp_path / ("l" * 200))
    path = os.path.join(tmp_path, *["l" * 200] * 4, "thread")
    eventq.init(path)
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        assert thread.check() == []


def test_a_name_that_is_too_long_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """A name that the file system refuses is refused before the folders above it are made."""
    with pytest.raises(
        InputError, match=r"a name in the path of a thread is too long \(256 bytes; .* 255\)"
    ):
        eventq.init(tmp_path / "a" / "b" / ("é" * 128))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_a_thread_that_was_moved_too_deep(path: str, tmp_path: Path, read_only: bool) -> None:
    """The error is about the long path, not permissions; moved back, the thread works."""
    os.makedirs(os.path.dirname(far := deep(tmp_path, 600)))
    os.rename(path, far)
    with pytest.raises(
        InputError, match=r"is too long \(610 bytes; .* 504\) - move the thread to a shorter path"
    ):
        eventq.open(far, read_only=read_only)
    os.rename(far, path)
    with eventq.open(path) as thread:
        assert thread.check() == []


def test_a_missing_driver_is_installed_from_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver for PostgreSQL, the error names a command that works without a release."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PlatformError) as refused:
        eventq.open("postgresql://app@db.example/agents?thread=inbox")
    assert refused.value.fix == "run pip install '.[postgres]' in a clone of eventq"
