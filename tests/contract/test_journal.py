"""`logs/thread.log`: one fact a line, whole lines, never in the way."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log.journal import Journal
from eventq.store.paths import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Clock, RunPython


def log(path: str) -> str:
    """Return the path of the log."""
    return os.path.join(path, "logs", "thread.log")


def lines(path: str) -> list[str]:
    """Return the lines of a file of the thread."""
    with open(log(path), encoding="utf-8", newline="") as file:
        return file.read().split("\n")[:-1]


def test_each_fact_has_its_line(thread: eventq.Thread, clock: Clock) -> None:
    """Pushes, batches, subscriptions and prunes are noted in the documented form."""
    thread.push("self", "note", "x")
    clock.move(1)
    thread.push("self", "note", "x", "sub")
    thread.push_many([("self", "note", "x")] * 2)
    thread.subscribe("w", "true", filter="id > 1")
    thread.resume("w")
    thread.unsubscribe("w")
    thread.prune(keep_last=1)
    assert lines(thread.path) == [
        "[2026-03-18T10:30:00.123Z] [INFO] push: source=self type=note id=1",
        "[2026-03-18T10:30:01.123Z] [INFO] push: source=self type=note subtype=sub id=2",
        "[2026-03-18T10:30:01.123Z] [INFO] push batch: count=2 last_id=4",
        "[2026-03-18T10:30:01.123Z] [INFO] subscribe: consumer=w filter=id > 1",
        "[2026-03-18T10:30:01.123Z] [INFO] resume: consumer=w",
        "[2026-03-18T10:30:01.123Z] [INFO] unsubscribe: consumer=w",
        "[2026-03-18T10:30:01.123Z] [INFO] prune: count=3 before_id=4",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x00\x1b[31m\x7f", "\\x00\\x1b[31m\\x7f"),
        ("\u2028\u202e", "\\u2028\\u202e"),
        ("é ☃ \U0001f600", "é ☃ \U0001f600"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_nothing_breaks_out_of_a_line(path: str, text: str, shown: str) -> None:
    """Line ends, control characters and half characters are escaped; other text is as it was."""
    journal = Journal(Layout(path))
    journal.info(text)
    journal.warn(text)
    journal.error(text)
    journal.close()
    found = lines(path)
    assert [text.split("] ", 2)[2] for text in found] == [shown] * 3
    assert [text.split("] ")[1] for text in found] == ["[INFO", "[WARN", "[ERROR"]


def fill(path: str, count: int) -> None:
    """Fill the thread, or a file of it, with so much."""
    with open(log(path), "w") as file:
        file.write("[2026-03-18T10:30:00.123Z] [INFO] something that happened\n" * count)


@pytest.mark.parametrize(("count", "rotated"), [(10_000, False), (10_001, True)])
def test_a_long_log_is_rotated(
    thread: eventq.Thread, clock: Clock, count: int, rotated: bool
) -> None:
    """After 10,000 lines the journal rotates; the old file has its time in its name."""
    fill(thread.path, count)
    thread.push("self", "note", "x")
    names = sorted(os.listdir(os.path.join(thread.path, "logs")))
    assert names == ["handlers"] * ("handlers" in names) + [
        "thread-20260318-103000.log"
    ] * rotated + ["thread.log"]
    assert len(lines(thread.path)) == (1 if rotated else count + 1)


def test_names_of_rotated_logs_are_in_order(thread: eventq.Thread, clock: Clock) -> None:
    """Rotations within one second have names that sort in their order."""
    for _ in range(3):
        fill(thread.path, 10_001)
        clock.move(-0.001)  # a clock that goes back makes an open log look again
        thread.push("self", "note", "x")
    assert {
        name for name in os.listdir(os.path.join(thread.path, "logs")) if name.endswith(".log")
    } == {
        "thread.log",
        "thread-20260318-103000.log",
        "thread-20260318-103001.log",
        "thread-20260318-103002.log",
    }


@pytest.mark.parametrize(("sizes", "size", "kept"), [
    ([1] * 63, 0, 64), ([1] * 70, 0, 64), ([30 << 20] * 5, 0, 3), ([1, 65 << 20], 0, 1),
    ([1, 1], 65 << 20, 1),
])  # fmt: skip
def test_rotated_logs_are_bounded(
    thread: eventq.Thread, clock: Clock, sizes: list[int], size: int, kept: int
) -> None:
    """A rotation keeps the newest files: at most 64 and 64 MiB, whatever size the newest has."""
    folder = os.path.join(thread.path, "logs")
    for number, old in enumerate(sizes):
        with open(os.path.join(folder, f"thread-20260101-0000{number:02}.log"), "wb") as file:
            file.truncate(old)
    own = {"thread-notes.log", "thread-20260101.log", "thread-20260101-000000.txt"}
    for name in own:
        open(os.path.join(folder, name), "w").close()
    before = {name for name in os.listdir(folder) if name.startswith("thread-2026")}
    fill(thread.path, 10_001)
    os.truncate(log(thread.path), max(size, os.path.getsize(log(thread.path))))
    thread.push("self", "note", "x")
    after = {name for name in os.listdir(folder) if name.startswith("thread-")}
    assert own <= after
    rotated = sorted((before | {"thread-20260318-103000.log"}) - own)
    assert sorted(after - own) == rotated[-kept:]
    assert lines(thread.path)[-1].endswith("id=1")


def test_a_rotated_log_that_cannot_be_deleted(thread: eventq.Thread, clock: Clock) -> None:
    """What stands in the place of a rotated file keeps no fact from being logged."""
    folder = os.path.join(thread.path, "logs")
    for number in range(70):
        os.mkdir(os.path.join(folder, f"thread-20260101-0000{number:02}.log"))
    fill(thread.path, 10_001)
    thread.push("self", "note", "x")
    assert len(lines(thread.path)) == 1


def test_a_log_in_use_is_rotated_too(path: str, clock: Clock) -> None:
    """A writer that stays open rotates after 10,000 lines of its own."""
    journal = Journal(Layout(path))
    for number in range(10_005):
        journal.info(f"fact number {number}")
    journal.close()
    (rotated,) = (
        name for name in os.listdir(os.path.join(path, "logs")) if name.startswith("thread-")
    )
    with open(os.path.join(path, "logs", rotated)) as file:
        old = file.read().count("\n")
    assert old + len(lines(path)) == 10_005
    assert old >= 10_000


def test_a_long_lived_writer_finds_the_new_file(thread: eventq.Thread, clock: Clock) -> None:
    """A log that somebody else rotated or deleted is found again within a second."""
    thread.push("self", "note", "x")
    os.unlink(log(thread.path))
    clock.move(1)
    thread.push("self", "note", "x")
    assert len(lines(thread.path)) == 1


@pytest.mark.parametrize("how", ["directory", "folder is a file", "folder is missing"])
def test_a_log_that_cannot_be_written_fails_nothing(path: str, how: str) -> None:
    """Whatever is wrong with the log, the push is stored; a missing folder is made again."""
    folder = os.path.dirname(log(path))
    shutil.rmtree(folder)
    if how == "directory":
        os.makedirs(log(path))
    elif how == "folder is a file":
        open(folder, "w").close()
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        thread.push_many([("self", "note", "x")])
        assert thread.last_id() == 2
    if how == "folder is missing":
        assert len(lines(path)) == 2


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_place_of_the_log_is_not_followed(path: str, tmp_path: Path, there: bool) -> None:
    """It is as a log that cannot be written; the file that it leads to stays as it is."""
    elsewhere = tmp_path / "elsewhere"
    if there:
        elsewhere.write_text("mine")
    os.makedirs(os.path.dirname(log(path)), exist_ok=True)
    os.symlink(elsewhere, log(path))
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 1
    assert os.path.islink(log(path))
    assert elsewhere.read_text() == "mine" if there else not elsewhere.exists()


def test_the_folder_of_logs_may_be_a_link(path: str, tmp_path: Path) -> None:
    """Where the logs are kept is for the owner to say."""
    shutil.rmtree(os.path.dirname(log(path)), ignore_errors=True)
    (tmp_path / "kept").mkdir()
    os.symlink(tmp_path / "kept", os.path.dirname(log(path)))
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
    assert "push: source=self" in (tmp_path / "kept" / "thread.log").read_text()


def test_a_full_disk_fails_nothing(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that cannot be written is lost, and the next one is written."""
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if b"[INFO]" in bytes(data):
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", full)
    thread.push("self", "note", "x")
    monkeypatch.undo()
    thread.push("self", "note", "x")
    assert [text[-4:] for text in lines(thread.path)] == ["id=2"]


def test_lines_stay_whole(path: str, run_python: RunPython) -> None:
    """Lines of simultaneous processes and threads never mix, even during a rotation."""
    code = (
        "import sys, threading\n"
        "from eventq.log.journal import Journal\n"
        "from eventq.store.paths import Layout\n"
        "journal = Journal(Layout(sys.argv[1]))\n"
        "def write(name):\n"
        "    for n in range(1500): journal.info(f'{name} {n} ' + 'x' * 60)\n"
        "threads = [threading.Thread(target=write, args=(sys.argv[2] + t,)) for t in 'ab']\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    fill(path, 8_000)
    runners = [threading.Thread(target=run_python, args=(code, path, str(n))) for n in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    found: list[str] = []
    folder = os.path.dirname(log(path))
    for name in os.listdir(folder):
        if name.endswith(".log"):
            with open(os.path.join(folder, name)) as file:
                found += file.read().splitlines()
    ours = sorted(text.split("] ")[2] for text in found if text.endswith("x"))
    assert ours == sorted(
        f"{p}{t} {n} " + "x" * 60 for p in "01" for t in "ab" for n in range(1_500)
    )
    assert len(found) == 14_000


def test_a_deleted_thread_is_not_made_again_for_its_log(path: str) -> None:
    """The journal of a thread that is gone writes nothing."""
    journal = Journal(Layout(path))
    shutil.rmtree(path)
    journal.info("too late")
    journal.close()
    assert not os.path.exists(path)


def test_a_line_that_a_full_disk_has_cut_is_removed(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next line would be glued to it, whoever writes that."""
    real = os.write
    thread.journal.info("before")
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
    thread.journal.info("cut")
    monkeypatch.setattr(os, "write", real)
    thread.journal.info("after")
    found = lines(thread.path)[-2:]
    assert [line.rpartition(" ")[2] for line in found] == ["before", "after"]
