"""The mirror is a witness: what the log has lost comes back from it, or is kept, never cut.

The kind: the log and its mirror say different things, and whoever comes next believes the wrong
one. Its members, each tried here:

- the log ends before the mirror, and agrees with it so far: an older events.db was put back, with
  and without its WAL, also across rotated files, after a prune, and for each kind of first write;
- they do not agree: events were stored meanwhile under the same ids, also in rotated files;
- events.db is empty, missing, overwritten, damaged inside, a directory, or somebody else's;
- the mirror ends in a torn line, or has a line that nobody can read;
- what was erased stays erased, in the log and in what was kept aside;
- hints: each is followed to its end, and nothing is lost by it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import DamagedError, DiskError, EventqError, LogicError, NotAThreadError
from eventq.system import disk
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("quick")


def fill(thread: eventq.Thread, first: int, last: int) -> None:
    """Push some events that say which they are."""
    for number in range(first, last + 1):
        assert thread.push("self", "note", f"event {number}").id == number


def contents(path: str) -> list[str]:
    """Return what the events of a thread say, in order of their ids, which have no gap."""
    with eventq.open(path, read_only=True) as thread:
        found = [*thread.peek(0)]
        first = found[0].id if found else 1
        assert [event.id for event in found] == [*range(first, first + len(found))]
        return [event.content for event in found]


def lines(path: str) -> list[dict[str, Any]]:
    """Return the lines of the mirror and its rotated files."""
    names = sorted(name for name in os.listdir(path) if name.startswith("events-"))
    found = []
    for name in [*names, "events.jsonl"]:
        with open(f"{path}/{name}", encoding="utf-8") as file:
            found += [json.loads(text) for text in file]
    return found


def lost(path: str) -> list[str]:
    """Return what the lines say that were kept aside."""
    folder = f"{path}/lost"
    names = [name for name in sorted(os.listdir(folder)) if name.endswith(".jsonl")]
    found = []
    for name in names:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            found += [json.loads(text)["content"] for text in file]
    return found


def back_up(path: str, to: Path, *, wal: bool = False) -> None:
    """Copy events.db, and its WAL if asked; nobody has the thread open."""
    if not wal:
        connection = apsw.Connection(f"{path}/events.db")
        connection.execute("SELECT 1 FROM events").fetchall()  # only now is the WAL open
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.close()
    to.mkdir()
    for name in ("events.db", "events.db-wal") if wal else ("events.db",):
        shutil.copy2(f"{path}/{name}", to / name)


def restore(path: str, kept: Path) -> None:
    """Put the copy back, as people do: over nothing that is left of the newer database."""
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(f"{path}/events.db{suffix}"):
            os.unlink(f"{path}/events.db{suffix}")
    for name in os.listdir(kept):
        shutil.copy2(kept / name, f"{path}/{name}")


def run(*words: str, status: int = 0) -> str:
    """Run eventq and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "eventq", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout + done.stderr


def check(path: str) -> list[str]:
    """Return the warnings of a thread that is sound."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        return thread.warnings()


@pytest.mark.parametrize("how", ["push", "keyed", "batch", "block", "subscribe", "rebuild"])
@pytest.mark.parametrize("wal", [False, True])
def test_an_older_database_is_put_back(path: str, tmp_path: Path, how: str, *, wal: bool) -> None:
    """The first write takes the missing events back, before it takes an id; and says so."""
    with eventq.open(path) as thread:
        fill(thread, 1, 3)
    back_up(path, tmp_path / "kept", wal=wal)
    with eventq.open(path) as thread:
        fill(thread, 4, 8)
        before = [*thread.peek(0)]
    restore(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        if how == "push":
            thread.push("self", "note", "event 9")
        elif how == "keyed":
            thread.push("self", "note", "event 9", key="k")
        elif how == "batch":
            thread.push_many([("self", "note", "event 9")])
        elif how == "block":
            with thread.write():
                assert thread.push("self", "note", "event 9").id == 9
        elif how == "subscribe":
            thread.subscribe("c")
            thread.push("self", "note", "event 9")
        else:
            assert thread.rebuild_mirror() == 8
            thread.push("self", "note", "event 9")
        assert [*thread.peek(0)][:8] == before
    assert contents(path) == [f"event {number}" for number in range(1, 10)]
    assert [found["content"] for found in lines(path)] == contents(path)
    (warned,) = check(path)[-1:]
    assert "5 events, 4 to 8, which the log had lost were taken back from events.jsonl" in warned
    with open(f"{path}/logs/thread.log", encoding="utf-8") as journal:
        assert "5 events, 4 to 8, which the log had lost" in journal.read()


def test_the_warning_ends_after_a_week(path: str, tmp_path: Path, clock: Any) -> None:
    """`check` says it for a week."""
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 1, 1)
    restore(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 2, 2)
    clock.move(7 * 86_400 - 1)
    assert len(check(path)) == 1
    clock.move(2)
    assert check(path) == []


def test_the_wal_was_deleted(path: str) -> None:
    """After a WAL is gone, the write after the one that says so brings back what the mirror has."""
    with eventq.open(path) as thread:
        fill(thread, 1, 5)
        for suffix in ("-wal", "-shm"):
            os.unlink(f"{path}/events.db{suffix}")
        with pytest.raises(DamagedError, match=r"events 1 to 5, .* the next write takes back"):
            thread.push("self", "note", "event 6")
        thread.push("self", "note", "event 6")
    assert contents(path) == [f"event {number}" for number in range(1, 7)]
    assert len(check(path)) == 1


def test_rotated_files_and_a_prune(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events come back from as many files as hold them; those that were pruned do not."""
    monkeypatch.setattr("eventq.log.mirror.ROTATE_LINES", 3)
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 1, 14)
        thread.prune(before_id=3, force=True)
        fill(thread, 15, 16)
    restore(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 17, 17)
    assert contents(path) == [f"event {number}" for number in range(3, 18)]
    check(path)


def test_what_lines_hold_and_what_they_do_not(path: str, tmp_path: Path) -> None:
    """Questions, answers and the blobs that events name come back; keys of pushes do not."""
    with eventq.open(path) as thread:
        ref = f"blob:blake3:{thread.blobs.put(b'an image').hash}"
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        thread.ask("Which?")
        thread.ask("And this?")
        thread.answer(1, "that one")
        thread.push("self", "note", f"see {ref}", key="once")
    restore(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        assert thread.push("self", "note", f"see {ref}", key="once").id == 5, "its key is gone"
        assert [question.question_id for question in thread.questions()] == [2]
        assert thread.question(1).answer == "that one"
        assert thread.gc(apply=True, grace=0).blobs == 0
    assert "keys that pushes may repeat" in check(path)[0]


def test_an_answer_among_lines_that_do_not_agree(path: str, tmp_path: Path) -> None:
    """It is pushed again as an event that answers nothing, then and after the next recovery."""
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        thread.ask("Which?")
        thread.answer(1, "that one")
    ahead = Path(path, "events.jsonl").read_bytes()
    restore(path, tmp_path / "kept")
    os.unlink(f"{path}/events.jsonl")
    with eventq.open(path) as thread:
        thread.ask("Delete all?")
    Path(path, "events.jsonl").write_bytes(ahead)
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
    (name,) = os.listdir(f"{path}/lost")
    run("mirror", "recover", "--thread", path, f"{path}/lost/{name}")
    os.unlink(f"{path}/events.db")
    run("mirror", "recover", "--thread", path)
    with eventq.open(path) as thread:
        assert [event.subtype for event in thread.peek(0) if event.type == "answer"] == [
            "recovered"
        ]
        assert [question.question_id for question in thread.questions()] == [1, 3]


def test_a_line_that_cannot_be_read(path: str, tmp_path: Path) -> None:
    """A line that is damaged is counted, those after it come back, and a torn one is nobody's."""
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 1, 4)
    restore(path, tmp_path / "kept")
    with open(f"{path}/events.jsonl", "r+b") as file:
        found = file.read().replace(b'"content":"event 2"', b'"content":"event 2')
        file.seek(0)
        file.write(found + b'{"id":5,"created_at":"2026-03-18T10')
        file.truncate()
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "event 5").id == 5
        assert [event.id for event in thread.peek(0)] == [1, 3, 4, 5]
        assert "1 line of it cannot be read" in thread.warnings()[0]


def disagree(path: str, tmp_path: Path, count: int) -> None:
    """Make a thread whose mirror has `count` lines from 3 on that its log does not say."""
    with eventq.open(path) as thread:
        fill(thread, 1, 2)
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 3, 2 + count)
    names = [name for name in os.listdir(path) if name.endswith(".jsonl")]
    ahead = {name: Path(path, name).read_bytes() for name in names}
    restore(path, tmp_path / "kept")
    for name in ahead:
        os.unlink(f"{path}/{name}")
    with eventq.open(path) as thread:
        thread.push("self", "note", "another 3")
    for name in os.listdir(path):
        if name.endswith(".jsonl"):
            os.unlink(f"{path}/{name}")
    for name, text in ahead.items():
        Path(path, name).write_bytes(text)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("how", ["push", "rebuild"])
def test_lines_that_do_not_agree(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, *, rotated: bool
) -> None:
    """They are kept aside before anything is cut, and can be pushed again, each once."""
    if rotated:
        monkeypatch.setattr("eventq.log.mirror.ROTATE_LINES", 2)
    disagree(path, tmp_path, 4)
    with eventq.open(path) as thread:
        if how == "push":
            thread.push("self", "note", "another 4")
        else:
            thread.rebuild_mirror()
            thread.push("self", "note", "another 4")
    assert sorted(lost(path)) == [f"event {number}" for number in range(3, 7)]
    assert contents(path) == ["event 1", "event 2", "another 3", "another 4"]
    assert [found["content"] for found in lines(path)] == contents(path)
    warned = check(path)
    assert "did not agree with the log" in warned[0]
    hints = [one.split("'")[-2] for one in warned if "did not agree" in one]
    assert len(hints) == len(os.listdir(f"{path}/lost"))
    for hint in hints * 2:
        run(*shlex.split(hint)[1:])
    assert sorted(contents(path)[4:]) == [f"event {number}" for number in range(3, 7)]
    check(path)


def test_an_erasure_reaches_what_was_kept(path: str, tmp_path: Path) -> None:
    """What is erased is erased in the lines that were kept aside, and does not come back."""
    disagree(path, tmp_path, 2)
    with eventq.open(path) as thread:
        secret = thread.push("self", "note", "event 3").id
        assert "event 3" in lost(path)
        thread.erasures.event(secret)
        assert "event 3" not in lost(path)
    check(path)
    back_up(path, tmp_path / "later")
    with eventq.open(path) as thread:
        number = thread.push("self", "note", "a secret of some length").id
        thread.erasures.event(number)
    restore(path, tmp_path / "later")
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        assert [event.content for event in thread.peek(number - 1)] == ["[erased]", "x"]


def spoil_head(path: str) -> None:
    """Overwrite what tells that the file is a database."""
    with open(f"{path}/events.db", "r+b") as file:
        file.write(b"0123456789abcdef")


def spoil_pages(path: str) -> None:
    """Overwrite pages in the middle."""
    with open(f"{path}/events.db", "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (os.path.getsize(f"{path}/events.db") - 4096))


def empty(path: str) -> None:
    """Cut the file to nothing."""
    os.truncate(f"{path}/events.db", 0)


def remove(path: str) -> None:
    """Delete it, and leave the WAL."""
    os.unlink(f"{path}/events.db")


def replace(path: str) -> None:
    """Put the database of another program there."""
    os.unlink(f"{path}/events.db")
    connection = apsw.Connection(f"{path}/events.db")
    connection.execute("CREATE TABLE things (name)")
    connection.close()


def make_folder(path: str) -> None:
    """Put a directory there."""
    os.unlink(f"{path}/events.db")
    os.mkdir(f"{path}/events.db")


@pytest.mark.parametrize("spoil", [spoil_head, spoil_pages, empty, remove, replace, make_folder])
@pytest.mark.parametrize("wal", [False, True])
def test_the_hints_are_followed(
    path: str, spoil: Callable[[str], None], tmp_path: Path, *, wal: bool
) -> None:
    """Whatever became of events.db, the command that the error names brings every event back."""
    with eventq.open(path) as thread:
        fill(thread, 1, 5)
        thread.subscribe("c")
    if not wal:
        back_up(path, tmp_path / "kept")
    spoil(path)
    if wal is False:
        for suffix in ("-wal", "-shm"):
            if os.path.exists(f"{path}/events.db{suffix}"):
                os.unlink(f"{path}/events.db{suffix}")
    mirror = lines(path)
    with (
        pytest.raises((DamagedError, NotAThreadError, LogicError)) as refused,
        eventq.open(path) as thread,
    ):
        thread.push("self", "note", "x")
    with pytest.raises(EventqError):
        eventq.init(path)
    if spoil is spoil_pages and "database disk image" not in str(refused.value):
        command = f"eventq mirror recover --thread {shlex.quote(path)}"
    else:
        command = str(refused.value).split("'")[-2]
    assert lines(path) == mirror
    said = run(*shlex.split(command)[1:])
    assert "5 events" in said
    assert "consumers" in said
    assert lines(path) == mirror
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "event 6").id == 6
        assert thread.subscriptions() == []
    assert contents(path) == [f"event {number}" for number in range(1, 7)]
    check(path)
    assert os.listdir(f"{path}/lost") or spoil is remove


def test_a_sound_log_is_not_made_anew(path: str) -> None:
    """`mirror recover` refuses a log that is whole, and a mirror without events."""
    with eventq.open(path) as thread:
        fill(thread, 1, 1)
    assert "is sound" in run("mirror", "recover", "--thread", path, status=1)
    os.unlink(f"{path}/events.db")
    os.truncate(f"{path}/events.jsonl", 0)
    assert "has no event" in run("mirror", "recover", "--thread", path, status=1)
    assert "is not a thread" in run("mirror", "recover", "--thread", f"{path}/x", status=1)


def test_init_refuses_what_is_left(path: str, tmp_path: Path) -> None:
    """Where a mirror with lines or a WAL lies, no new thread begins, and the sentence is true."""
    with eventq.open(path) as thread:
        fill(thread, 1, 1)
    os.unlink(f"{path}/events.db")
    said = run("init", path, status=1)
    assert "has the events of a thread, whose events.db is gone" in said
    assert "mirror recover" in said
    os.rename(f"{path}/events.jsonl", tmp_path / "aside.jsonl")
    said = run("init", path, status=1)
    assert "events.db-wal' is left of a database that is gone" in said
    os.unlink(f"{path}/events.db-wal")
    run("init", path)


def test_a_reader_changes_nothing(path: str, tmp_path: Path) -> None:
    """A read-only handle and `check` leave a mirror that is ahead alone; any write mends it."""
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 1, 2)
    restore(path, tmp_path / "kept")
    mirror = lines(path)
    with eventq.open(path, read_only=True) as thread:
        assert [*thread.peek(0)] == []
        assert "the next push takes" in thread.check()[0]
    assert lines(path) == mirror


def test_consumers_are_woken(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer gets what was taken back, by a write that pushes nothing."""
    with eventq.open(path) as thread:
        thread.subscribe("c", "true")
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 1, 2)
    restore(path, tmp_path / "kept")
    woken = []
    monkeypatch.setattr("eventq.log.notifier.Notifier.wake_one", lambda _: woken.append(1))
    with eventq.open(path) as thread:
        thread.contexts.create()
        assert [event.id for event in thread.pop("c")] == [1, 2]
    assert woken == [1]


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_a_mirror_that_is_no_file_keeps_nobody_waiting(path: str, kind: str) -> None:
    """A push looks at it first, and is stored all the same."""
    mirror = f"{path}/events.jsonl"
    os.unlink(mirror)
    if kind == "fifo":
        os.mkfifo(mirror)
    elif kind == "directory":
        os.mkdir(mirror)
    else:
        os.symlink("/dev/zero", mirror)
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 1


def ahead(path: str, tmp_path: Path, count: int) -> None:
    """Make a thread whose log is empty, and whose mirror has some events."""
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        fill(thread, 1, count)
    restore(path, tmp_path / "kept")


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_rotated_file_that_was_torn(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    """What comes in the files after it is given back; the line counts if it is whole."""
    monkeypatch.setattr("eventq.log.mirror.ROTATE_LINES", 3)
    ahead(path, tmp_path, 10)
    (first, *_) = sorted(Path(path).glob("events-*.jsonl"))
    first.write_bytes(first.read_bytes()[:-1] + end)
    with eventq.open(path) as thread:
        fill(thread, 11, 11)
    assert contents(path) == [f"event {number}" for number in range(1, 12)]


def test_a_file_whose_first_line_is_damaged(path: str, tmp_path: Path) -> None:
    """The other lines are given back, and no id comes twice."""
    ahead(path, tmp_path, 4)
    mirror = Path(path, "events.jsonl")
    mirror.write_bytes(b"\xff\xfe" + mirror.read_bytes())
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "event 5").id == 5
        assert [event.id for event in thread.peek(0)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "line",
    [
        {"subtype": []}, {"subtype": {}}, {"subtype": 0}, {"content": None}, {"source": 7},
        {"id": (1 << 63) - 1}, {"id": 1 << 62}, {"id": 100}, {"created_at": None},
        {"content": "\ud800"},
    ],
)  # fmt: skip
def test_a_line_that_says_nonsense(path: str, tmp_path: Path, line: dict[str, Any]) -> None:
    """It is counted and left; what is pushed next is stored, under the next id."""
    ahead(path, tmp_path, 3)
    mirror = Path(path, "events.jsonl")
    fields = json.loads(mirror.read_text().splitlines()[-1])
    with mirror.open("a") as file:
        file.write(json.dumps({**fields, "id": 4, **line}) + "\n")
    with eventq.open(path) as thread:
        for number in (4, 5):
            assert thread.push("self", "note", f"event {number}").id == number
    assert contents(path) == [f"event {number}" for number in range(1, 6)]


def test_a_lock_that_somebody_keeps(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write is refused while the lines cannot be read, and takes no id of theirs."""
    ahead(path, tmp_path, 3)
    monkeypatch.setattr("eventq.system.locks.LOCK_SECONDS", 0.1)
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with eventq.open(path) as thread:
        with pytest.raises(DiskError, match="has events that the log has lost"):
            thread.push("self", "note", "x")
        os.close(fd)
        assert thread.push("self", "note", "event 4").id == 4


def test_a_database_in_use_is_not_moved_away(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mirror recover` refuses what it cannot look at, and asks once it has the lock."""
    with eventq.open(path) as thread:
        fill(thread, 1, 2)
    monkeypatch.setattr("eventq.store.sqlite.creation.BUSY_MS", 1)
    holder = apsw.Connection(f"{path}/events.db")
    holder.pragma("locking_mode", "exclusive")
    holder.execute("BEGIN EXCLUSIVE; CREATE TABLE x (y); ROLLBACK")
    with pytest.raises(EventqError):
        eventq.recover(path)
    holder.close()
    with pytest.raises(LogicError, match="is sound"):
        eventq.recover(path)
    assert contents(path) == ["event 1", "event 2"]


def test_what_was_pruned_is_no_stranger(path: str) -> None:
    """A rebuild after a prune that was killed keeps nothing of what was pruned."""
    with eventq.open(path) as thread:
        fill(thread, 1, 3)
        mirror = Path(path, "events.jsonl").read_bytes()
        thread.prune(keep_last=0, force=True)
        Path(path, "events.jsonl").write_bytes(mirror)
        thread.rebuild_mirror()
    assert not Path(path, "lost").exists()


def test_a_full_disk_while_lines_are_kept_aside(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut then, the push is stored, and the next one keeps whole lines aside."""
    disagree(path, tmp_path, 3)
    before = Path(path, "events.jsonl").read_bytes()
    write = disk.write_all

    def full(fd: int, data: bytes) -> None:
        write(fd, data[: len(data) // 2])
        raise OSError(28, "no space left")

    monkeypatch.setattr("eventq.system.disk.write_all", full)
    with eventq.open(path) as thread:
        thread.push("self", "note", "another 4")
        assert Path(path, "events.jsonl").read_bytes() == before
        monkeypatch.undo()
        thread.push("self", "note", "another 5")
    assert lost(path) == ["event 3", "event 4", "event 5"]
    assert contents(path)[2:] == ["another 3", "another 4", "another 5"]
    check(path)


def test_a_stranger_at_the_end_without_its_newline(path: str, tmp_path: Path) -> None:
    """A rebuild keeps a whole line aside, though nothing ends it; what is torn says nothing."""
    disagree(path, tmp_path, 2)
    mirror = Path(path, "events.jsonl")
    mirror.write_bytes(mirror.read_bytes().rstrip(b"\n"))
    with eventq.open(path) as thread:
        thread.rebuild_mirror()
    assert lost(path) == ["event 3", "event 4"]


def test_recoveries_in_one_second_keep_what_each_found(path: str, clock: Any) -> None:
    """Each moves the database that it found to a name of its own."""
    with eventq.open(path) as thread:
        fill(thread, 1, 1)
    for text in ("one", "two"):
        Path(path, "events.db").write_text(text * 100)
        assert eventq.recover(path) == 1
    kept = {one.read_text()[:3] for one in Path(path, "lost").glob("*.db")}
    assert kept == {"one", "two"}
