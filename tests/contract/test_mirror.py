"""`events.jsonl` is always a prefix of the log, in order, without gaps or repeats."""

from __future__ import annotations

import errno
import json
import os
import threading
import tracemalloc
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.log import adoption
from eventq.log.mirror_lines import line
from eventq.store.paths import rotated
from eventq.system import disk
from tests.conftest import write_as_original

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from tests.conftest import Clock, RunPython, Until


def mirror(path: str) -> str:
    """Return the path of the mirror."""
    return os.path.join(path, "events.jsonl")


def files(path: str) -> list[str]:
    """Return the names of the mirror's files, the rotated ones first."""
    names = sorted(
        name for name in os.listdir(path) if name.startswith("events") and name.endswith(".jsonl")
    )
    return sorted(names, key=lambda name: name == "events.jsonl")


def read(path: str, name: str = "events.jsonl") -> list[bytes]:
    """Return the lines of a file of the mirror."""
    with open(os.path.join(path, name), "rb") as file:
        return file.read().splitlines(keepends=True)


def numbers(path: str, name: str = "events.jsonl") -> list[int]:
    """Return the ids in a file of the mirror."""
    return [json.loads(text)["id"] for text in read(path, name)]


def push(thread: eventq.Thread, count: int = 1) -> None:
    """Push so many events."""
    for _ in range(count):
        thread.push("self", "note", "x")


def append(path: str, data: bytes) -> None:
    """Add bytes to the mirror."""
    with open(mirror(path), "ab") as file:
        file.write(data)


def test_one_line_an_event(thread: eventq.Thread, clock: Clock) -> None:
    """A line has exactly six keys in order, compact, with only what JSON demands escaped."""
    thread.push("self", "record", 'é ☃ "q" \\ \0\x1f\x7f\n', None)
    thread.push_many([("external:a:b:c:d:e", "message", "", "")])
    assert b"".join(read(thread.path)).decode() == (
        '{"id":1,"created_at":"2026-03-18T10:30:00.123Z","source":"self","type":"record","subtype":null,'
        '"content":"é ☃ \\"q\\" \\\\ \\u0000\\u001f\x7f\\n"}\n'
        '{"id":2,"created_at":"2026-03-18T10:30:00.123Z","source":"external:a:b:c:d:e","type":"message","subtype":"",'
        '"content":""}\n'
    )


def test_it_is_there_when_push_returns(thread: eventq.Thread) -> None:
    """After each push, of one or of many, the file ends with the newest event."""
    for number in range(1, 4):
        event = thread.push("self", "note", str(number))
        assert read(thread.path)[-1].decode() == line(event) + "\n"
    thread.push_many([("self", "note", "x")] * 1_500)
    assert numbers(thread.path) == list(range(1, 1_504))


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("tail", [
    b"{", b'{"id":4,"created_at":"2026-0', b'{"id":4', b'{"id":4}', b"\xff\xfe\x00", b"x" * 100_000,
])  # fmt: skip
def test_a_torn_tail_is_cut_off(path: str, tail: bytes, reopen: bool) -> None:
    """A torn line is cut off by the next push, and nothing is missing afterwards."""
    thread = eventq.open(path)
    push(thread, 3)
    append(path, tail)
    if reopen:
        thread.close()
        thread = eventq.open(path)
    push(thread)
    assert numbers(path) == [1, 2, 3, 4]
    assert thread.check() == []
    thread.close()


@pytest.mark.parametrize("at", range(0, 270, 9))
def test_a_file_torn_anywhere_is_healed(thread: eventq.Thread, at: int) -> None:
    """A mirror that was cut at any byte has every event again after the next push."""
    push(thread, 3)
    os.truncate(mirror(thread.path), min(at, os.path.getsize(mirror(thread.path))))
    push(thread)
    assert numbers(thread.path) == [1, 2, 3, 4]


def test_a_torn_huge_line(thread: eventq.Thread) -> None:
    """A torn line of megabytes is cut off like any other."""
    push(thread, 2)
    thread.push("self", "note", "y" * 5_000_000)
    os.truncate(mirror(thread.path), os.path.getsize(mirror(thread.path)) - 1)
    push(thread)
    assert numbers(thread.path) == [1, 2, 3, 4]


@pytest.mark.parametrize("reopen", [False, True])
def test_a_deleted_file_is_written_again(path: str, reopen: bool) -> None:
    """Deleting the file does no harm: the next push writes all of it."""
    thread = eventq.open(path)
    push(thread, 3)
    os.unlink(mirror(path))
    if reopen:
        thread.close()
        thread = eventq.open(path)
    push(thread)
    assert numbers(path) == [1, 2, 3, 4]
    assert thread.check() == []
    thread.close()


@pytest.mark.parametrize(
    "foreign",
    [b"hello\n", b"\n\n", b'{"id":x}\n', b'{"id":' + b"9" * 5_000 + b",\n", b"\xff\n" * 9_000],
)
def test_foreign_last_lines_do_not_hide_events(path: str, foreign: bytes) -> None:
    """Foreign lines are skipped; `check` reports them, and a rebuild removes them."""
    with eventq.open(path) as thread:
        push(thread, 2)
        append(path, foreign)
        push(thread)
        assert read(path)[-1].startswith(b'{"id":3,')
        assert thread.check() == [
            "events.jsonl line 3 is not an event; run 'eventq mirror rebuild'"
        ]
        assert thread.rebuild_mirror() == 3
        assert (numbers(path), thread.check()) == ([1, 2, 3], [])


def test_two_threads_of_one_process(thread: eventq.Thread) -> None:
    """Two handles of one thread that push in turn keep one file in order."""
    with eventq.open(thread.path) as other:
        for _ in range(20):
            push(thread)
            push(other)
    assert numbers(thread.path) == list(range(1, 41))


# --- rotation -------------------------------------------------------------------------------------


def test_a_long_file_is_rotated_at_the_next_push(thread: eventq.Thread, clock: Clock) -> None:
    """The mirror rotates at the push after more than 10,000 lines."""
    thread.push_many([("self", "note", "x")] * 9_999)
    push(thread, 2)
    assert files(thread.path) == ["events.jsonl"]
    push(thread)
    assert files(thread.path) == ["events-20260318-103000.jsonl", "events.jsonl"]
    assert numbers(thread.path, "events-20260318-103000.jsonl") == list(range(1, 10_002))
    assert numbers(thread.path) == [10_002]


def test_rotated_names_are_never_taken_twice(thread: eventq.Thread, clock: Clock) -> None:
    """Names of rotated files sort in order, even within one second or with a clock set back."""
    for _ in range(3):
        thread.push_many([("self", "note", "x")] * 10_001)
    clock.move(-86_400)
    push(thread)
    assert files(thread.path) == [
        "events-20260318-103000.jsonl", "events-20260318-103001.jsonl",
        "events-20260318-103002.jsonl", "events.jsonl",
    ]  # fmt: skip
    assert [n for name in files(thread.path) for n in numbers(thread.path, name)] == list(
        range(1, 30_005)
    )


def test_names_that_earlier_versions_gave_are_known(thread: eventq.Thread, clock: Clock) -> None:
    """Files with -2 and -10 after their time belong to the mirror; the next name follows them."""
    for name in ("-103000", "-103000-2", "-103000-10"):
        thread.push_many([("self", "note", "x")] * 100)
        os.rename(mirror(thread.path), os.path.join(thread.path, f"events-20260318{name}.jsonl"))
        clock.move(0.001)
    thread.push_many([("self", "note", "x")] * 10_001)
    push(thread)
    assert files(thread.path)[-2:] == ["events-20260318-103001.jsonl", "events.jsonl"]
    assert numbers(thread.path, "events-20260318-103001.jsonl")[0] == 301
    assert thread.check() == []
    os.unlink(mirror(thread.path))
    push(thread)
    assert numbers(thread.path) == [10_302, 10_303]
    names = [os.path.basename(found) for found in rotated(mirror(thread.path))]
    assert names == [
        f"events-20260318-{n}.jsonl" for n in ("103000", "103000-2", "103000-10", "103001")
    ]


@pytest.mark.parametrize("name", ["events-99999999-999999.jsonl", "events-99991231-235959.jsonl"])
def test_a_name_that_is_no_time_stops_no_rotation(path: str, clock: Clock, name: str) -> None:
    """Whatever lies there under such a name is not written over."""
    with open(os.path.join(path, name), "w") as file:
        file.write("mine\n")
    with eventq.open(path) as thread:
        thread.push_many([("self", "note", "x")] * 10_001)
        push(thread)
    assert "events-20260318-103000.jsonl" in files(path)
    assert read(path, name) == [b"mine\n"]
    assert numbers(path) == [10_002]


def test_another_handle_notices_the_rotation(thread: eventq.Thread) -> None:
    """A handle that was open while another one rotated goes on in the new file."""
    with eventq.open(thread.path) as other:
        push(other)
        thread.push_many([("self", "note", "x")] * 10_000)
        push(thread)
        push(other)
    assert numbers(thread.path) == [10_002, 10_003]


def is_older(path: str, folder: Path) -> bool:
    """Return whether the file system's clock has passed a folder's change time."""
    (folder / "now").write_bytes(b"x")
    return os.stat(path).st_mtime_ns < (folder / "now").stat().st_mtime_ns


@pytest.mark.parametrize("gone", ["current", "rotated", "all"])
def test_deleted_files_after_a_rotation(
    thread: eventq.Thread, gone: str, tmp_path: Path, until: Until
) -> None:
    """After any file is deleted, the rest remains a part of the log, and continues."""
    thread.push_many([("self", "note", "x")] * 10_001)
    push(thread, 2)
    until(lambda: is_older(thread.path, tmp_path), "the next change of the folder has another time")
    for name in files(thread.path):
        if gone == "all" or (name == "events.jsonl") == (gone == "current"):
            os.unlink(os.path.join(thread.path, name))
    push(thread)
    expected = {
        "current": range(10_002, 10_005),
        "rotated": range(10_002, 10_005),
        "all": range(1, 10_005),
    }[gone]
    assert numbers(thread.path) == list(expected)


# --- rebuild --------------------------------------------------------------------------------------


def test_rebuild_writes_everything_again(thread: eventq.Thread) -> None:
    """A rebuild writes one file, removes the rotated ones, and returns the number of lines."""
    thread.push_many([("self", "note", "x")] * 10_001)
    push(thread)
    before = [text for name in files(thread.path) for text in read(thread.path, name)]
    with open(mirror(thread.path), "wb") as file:
        file.write(b'{"id":3,"wrong":1}\n')
    assert thread.rebuild_mirror() == 10_002
    assert files(thread.path) == ["events.jsonl"]
    assert read(thread.path) == before
    push(thread)
    assert numbers(thread.path) == [10_003]


def test_rebuild_after_a_prune(thread: eventq.Thread) -> None:
    """What was pruned is not in a rebuilt mirror; an empty thread has an empty one."""
    push(thread, 5)
    thread.prune(keep_last=2)
    assert thread.rebuild_mirror() == 2
    push(thread)
    assert numbers(thread.path) == [4, 5, 6]
    thread.prune(keep_last=0)
    assert thread.rebuild_mirror() == 0
    assert os.path.getsize(mirror(thread.path)) == 0
    push(thread)
    assert numbers(thread.path) == [7]


def test_a_prune_that_fails_after_a_push_that_was_killed_leaves_no_gap(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the push had yet to write is written before it is deleted."""
    push(thread, 4)
    with open(mirror(thread.path), "rb+") as file:  # as the kill has left it
        file.truncate(len(b"".join(file.readlines()[:2])))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        with pytest.raises(eventq.DiskError, match="prune again"):
            thread.prune(keep_last=0)
    push(thread)
    assert numbers(thread.path) == [1, 2, 3, 4, 5]
    assert [what for what in thread.check() if not what.endswith("prune again")] == []
    thread.prune(keep_last=1)
    assert numbers(thread.path) == [5]
    assert thread.check() == []


def full_disk(*_: object) -> None:
    """Fail as a file that cannot be replaced."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_rebuild_while_others_push(thread: eventq.Thread, run_python: RunPython) -> None:
    """Rebuilding loses and repeats nothing that is pushed meanwhile."""
    code = (
        "import sys, eventq\n"
        "with eventq.open(sys.argv[1]) as thread:\n"
        "    for n in range(150): thread.push('self', 'note', 'x')\n"
    )
    runners = [threading.Thread(target=run_python, args=(code, thread.path)) for _ in range(2)]
    for runner in runners:
        runner.start()
    while any(runner.is_alive() for runner in runners):
        thread.rebuild_mirror()
    for runner in runners:
        runner.join()
    assert numbers(thread.path) == list(range(1, 301))


def test_rebuild_in_one_thread_while_another_pushes(thread: eventq.Thread) -> None:
    """Threads that share a handle neither wait for each other for ever nor lose a line."""
    pusher = threading.Thread(target=push, args=(thread, 300))
    pusher.start()
    while pusher.is_alive():
        thread.rebuild_mirror()
        thread.check()
    pusher.join()
    assert numbers(thread.path) == list(range(1, 301))


def test_two_rebuilds_at_once(thread: eventq.Thread) -> None:
    """Rebuilds of several handles at once give one whole mirror."""
    thread.push_many([("self", "note", "x")] * 5_000)
    handles = [eventq.open(thread.path) for _ in range(3)]
    counts: list[int] = []
    runners = [
        threading.Thread(target=lambda h: counts.append(h.rebuild_mirror()), args=(h,))
        for h in handles
    ]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    for handle in handles:
        handle.close()
    assert counts == [5_000] * 3
    assert numbers(thread.path) == list(range(1, 5_001))
    assert not [name for name in os.listdir(thread.path) if "new" in name or "rebuilt" in name]


# --- trouble --------------------------------------------------------------------------------------


def test_a_mirror_that_cannot_be_written_fails_no_push(thread: eventq.Thread) -> None:
    """With a directory in its place the push succeeds with a warning; the next one repairs it."""
    push(thread)
    os.unlink(mirror(thread.path))
    os.mkdir(mirror(thread.path))
    push(thread)
    with open(os.path.join(thread.path, "logs", "thread.log")) as file:
        assert "[WARN] mirror: events.jsonl could not be written" in file.read()
    os.rmdir(mirror(thread.path))
    push(thread)
    assert numbers(thread.path) == [1, 2, 3]


def test_a_write_that_fails_half_way_is_taken_back(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the disk takes half a line, that half is cut off again."""
    push(thread)
    real: Callable[[int, bytes], int] = os.write

    def full(fd: int, data: bytes) -> int:
        if data.startswith(b'{"id":2'):
            real(fd, data[:20])
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", full)
    push(thread)
    monkeypatch.undo()
    assert numbers(thread.path) == [1]
    push(thread)
    assert numbers(thread.path) == [1, 2, 3]


def test_a_thread_of_the_older_tool_gets_its_mirror(original: str) -> None:
    """A thread whose mirror was never written gets all of it with the next push."""
    with eventq.open(original) as thread:
        push(thread)
        assert numbers(original) == [1, 2, 3, 4]
        assert thread.check() == []


def old_files(path: str, folder: str = "original-mirror") -> dict[str, bytes]:
    """Return the files that were kept aside, by name."""
    where = os.path.join(path, folder)
    return {name: b"".join(read(where, name)) for name in sorted(os.listdir(where))}


def mirror_files(path: str) -> dict[str, bytes]:
    """Return the files of the mirror, by name."""
    return {name: b"".join(read(path, name)) for name in files(path)}


def test_the_mirror_of_the_older_tool_is_fine_until_we_write(originals_mirror: str) -> None:
    """Neither opening, nor reading, nor a check changes or blames it."""
    before = mirror_files(originals_mirror)
    with eventq.open(originals_mirror) as thread:
        assert thread.check() == []
        assert len(list(thread.peek())) == 3
        thread.pop("w", 0, replay=True)
        assert thread.check() == []
    assert mirror_files(originals_mirror) == before
    assert not os.path.exists(os.path.join(originals_mirror, "original-mirror"))


@pytest.mark.parametrize("how", ["push", "push_many", "rebuild"])
def test_the_first_write_makes_the_mirror_of_the_older_tool_anew(
    originals_mirror: str, how: str
) -> None:
    """Each event once, in our form; the old files are aside, byte for byte, and stay there."""
    path = originals_mirror
    before = mirror_files(path)
    with eventq.open(path) as thread:
        if how == "push":
            push(thread)
        elif how == "push_many":
            thread.push_many([("self", "note", "x")])
        else:
            assert thread.rebuild_mirror() == 3
            push(thread)
        assert files(path) == ["events.jsonl"]
        assert read(path) == [line(event).encode() + b"\n" for event in thread.peek()]
        assert thread.check() == []
        assert old_files(path) == before
        thread.rebuild_mirror()
        push(thread)
        assert numbers(path) == [1, 2, 3, 4, 5]
        assert old_files(path) == before
    assert sorted(name for name in os.listdir(path) if "jsonl" in name) == ["events.jsonl"]


def test_a_large_mirror_of_the_older_tool_is_rotated(originals_mirror: str, clock: Clock) -> None:
    """An adoption writes as many files as rotations would have; later pushes rotate as usual."""
    path = originals_mirror
    db = apsw.Connection(os.path.join(path, "events.db"))
    db.execute(
        "WITH n(i) AS (SELECT 4 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)"
        " INSERT INTO events (source, type, content) SELECT 'self', 'note', i FROM n"
    ).fetchall()
    db.close()
    write_as_original(path, "events.jsonl", 4, 25_000)
    with eventq.open(path) as thread:
        push(thread)
        assert [len(read(path, name)) for name in files(path)] == [10_000, 10_000, 5_001]
        assert [n for name in files(path) for n in numbers(path, name)] == list(range(1, 25_002))
        thread.push_many([("self", "note", "x")] * 5_000)
        push(thread)
        assert [len(read(path, name)) for name in files(path)] == [10_000, 10_000, 10_001, 1]
        assert [n for name in files(path) for n in numbers(path, name)] == list(range(1, 30_003))
        assert thread.check() == []


def test_taking_over_a_mirror_takes_little_memory(originals_mirror: str) -> None:
    """However long the log is, no more than some megabytes of it are held at a time."""
    db = apsw.Connection(os.path.join(originals_mirror, "events.db"))
    db.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)"
        " INSERT INTO events (source, type, content) SELECT 'self', 'note', hex(zeroblob(1000000)) FROM n"
    ).fetchall()
    db.close()
    with eventq.open(originals_mirror) as thread:
        tracemalloc.start()
        push(thread)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 40_000_000
        assert numbers(originals_mirror) == list(range(1, 65))


def test_two_processes_take_a_mirror_over_at_once(
    originals_mirror: str, run_python: RunPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them does it, no event is missing or there twice, and the old files are kept once."""
    path, before = originals_mirror, mirror_files(originals_mirror)
    code = (
        "import sys, eventq\n"
        "with eventq.open(sys.argv[1]) as thread:\n"
        "    for n in range(20): thread.push('self', 'note', 'x')\n"
    )
    runners = [threading.Thread(target=run_python, args=(code, path)) for _ in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    with eventq.open(path) as thread:
        push(thread)
        assert thread.check() == []
    assert numbers(path) == list(range(1, 85))
    assert old_files(path) == before
    assert not os.path.exists(os.path.join(path, "original-mirror-2"))


def test_a_push_while_another_takes_the_mirror_over_is_in_it(originals_mirror: str) -> None:
    """Whoever pushes meanwhile does not wait for the new files, and its event is in them."""
    path = originals_mirror
    with eventq.open(path) as one, eventq.open(path) as two:
        real = one.database.events.blocks
        pushed: list[int] = []

        def lines(after: int, upto: int) -> Iterator[bytes]:
            if not pushed:
                pushed.append(two.push("self", "note", "meanwhile").id)
                assert files(path) == ["events-20250101-000000.jsonl", "events.jsonl"]
            yield from real(after, upto)

        one.database.events.blocks = lines  # type: ignore[method-assign]
        push(one)
        push(two)
        assert numbers(path) == [1, 2, 3, 4, 5, 6]
        assert two.check() == []


def test_a_mirror_that_another_has_just_taken_over_is_not_written_once_more(
    originals_mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that comes after an adoption copies nothing: a kill would leave the copy."""
    path, made = originals_mirror, adoption.Staged.__init__
    blocks: list[bytes] = []

    def late(self: adoption.Staged, *words: Any, wait: bool) -> None:
        monkeypatch.setattr(adoption.Staged, "__init__", made)
        with eventq.open(path) as quicker:
            push(quicker)
        made(self, *words, wait=wait)
        monkeypatch.setattr(adoption.Staged, "add", lambda _, lines: blocks.extend(lines))

    monkeypatch.setattr(adoption.Staged, "__init__", late)
    with eventq.open(path) as thread:
        push(thread)
        assert numbers(path) == [1, 2, 3, 4, 5]
        assert thread.check() == []
    assert blocks == []
    assert not os.path.exists(thread.layout.adopting)


def test_a_mirror_that_cannot_be_taken_over_stays_as_it_is(
    originals_mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the events are stored and the old files stay; a later push adopts them."""
    path, before = originals_mirror, mirror_files(originals_mirror)

    def full(fd: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with eventq.open(path) as thread:
        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_all", full)
            push(thread)
        assert mirror_files(path) == before
        assert thread.check() == []
        push(thread)
        assert numbers(path) == [1, 2, 3, 4, 5]
        assert old_files(path) == before


def test_the_older_tool_may_go_on_writing(originals_mirror: str) -> None:
    """What the older tool adds or starts later is rewritten by the next push."""
    path = originals_mirror
    with eventq.open(path) as thread:
        push(thread)
        for rotate in (False, True):
            db = apsw.Connection(os.path.join(path, "events.db"))
            db.execute(
                "INSERT INTO events (source, type, content) VALUES ('tool', 'note', 'a')"
            ).fetchall()
            db.close()
            if rotate:
                os.rename(mirror(path), os.path.join(path, "events-20260318-103000.jsonl"))
            write_as_original(path, "events.jsonl", thread.last_id(), thread.last_id())
            push(thread)
            assert thread.check() == []
        assert [n for name in files(path) for n in numbers(path, name)] == list(range(1, 9))
    assert not os.path.exists(os.path.join(path, "original-mirror-2"))


def test_nothing_that_was_kept_is_written_over(originals_mirror: str) -> None:
    """A second mirror of the older tool is kept next to the first, and so are similar names."""
    path = originals_mirror
    os.mkdir(os.path.join(path, "original-mirror"))
    with eventq.open(path) as thread:
        push(thread)
        os.unlink(mirror(path))
        write_as_original(path, "events.jsonl", 1, 4)
        push(thread)
        assert thread.check() == []
    assert sorted(old_files(path, "original-mirror")) == []
    expected = ["events-20250101-000000.jsonl", "events.jsonl"]
    assert sorted(old_files(path, "original-mirror-2")) == expected
    assert sorted(old_files(path, "original-mirror-3")) == ["events.jsonl"]


def test_lines_that_the_log_does_not_hold_go_back_to_it(tmp_path: Path) -> None:
    """After a power cut undoes mirrored commits, the next push takes them back."""
    path = eventq.init(tmp_path / "t")
    with eventq.open(path) as thread:
        for number in range(1, 11):
            thread.push("self", "record", f"before {number}")
    with apsw.Connection(f"{path}/events.db") as db:  # the log forgets its last three events
        db.execute(
            "DELETE FROM events WHERE id > 7; UPDATE sqlite_sequence SET seq = 7 WHERE name = 'events'"
        )
    db.close()
    with eventq.open(path) as thread:
        thread.push_many([("self", "record", "after")] * 3)
        assert thread.check() == []
        assert [e.content for e in thread.peek(9)] == ["before 10", "after", "after", "after"]


def test_a_mirror_of_another_thread_is_replaced(tmp_path: Path) -> None:
    """A file whose every line is wrong is cut to nothing, and written again from the start."""
    with (
        eventq.open(tmp_path / "one", create=True) as one,
        eventq.open(tmp_path / "two", create=True) as two,
    ):
        one.push_many([("self", "record", "x" * 5000)] * 100)
        two.push("self", "record", "y")
    (tmp_path / "two" / "events.jsonl").write_bytes(
        (tmp_path / "one" / "events.jsonl").read_bytes()
    )
    with eventq.open(tmp_path / "two") as two:
        two.push("self", "record", "z")
        assert two.check() == []
    assert len((tmp_path / "two" / "events.jsonl").read_bytes().splitlines()) == 2
