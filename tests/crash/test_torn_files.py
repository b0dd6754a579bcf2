"""The mirror and the journal: writes fail or stop half-way, and ends are torn off."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log import journal, mirror
from eventq.system import disk
from tests.crash.support import Calls, contents, mirror_lines, sound

if TYPE_CHECKING:
    from pathlib import Path


def texts() -> list[str]:
    """Return contents whose lines take every shape that a tear can hit."""
    return [
        "plain", "ümläut ☃ 🜲", 'quotes " and \\', "line\nbreak", '{"id":99,"created_at":', "x" * 30, "",
    ]  # fmt: skip


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("short", [None, 0, 1, 7, 50])
def test_a_push_succeeds_though_the_mirror_cannot_be_written(
    short: int | None, number: int, lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed write to the mirror the event is stored, and the next push repairs it."""
    path = eventq.init(tmp_path / "thread")
    with eventq.open(path) as thread, monkeypatch.context() as patch:
        calls = Calls(os, number, short=short, lasting=lasting)
        for module in (disk, mirror):
            patch.setattr(module, "os", calls)
        for text in texts():
            thread.push("self", "test", text)
        thread.push_many([("self", "test", text) for text in texts()])
        assert calls.hit
        assert [event.content for event in thread.peek()] == texts() * 2
        assert thread.check() == []
        if lasting:
            with open(os.path.join(path, "logs", "thread.log"), encoding="utf-8") as file:
                assert "[WARN] mirror: events.jsonl could not be written" in file.read()
        else:
            assert len(mirror_lines(path)) == 14
        patch.undo()
        thread.push("self", "test", "healed")
        assert len(mirror_lines(path)) == 15
    assert sound(path) == [*texts(), *texts(), "healed"]


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("short", [None, 0, 20])
def test_a_push_succeeds_though_the_journal_cannot_be_written(
    short: int | None, number: int, lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to the journal fails or stops half-way: nobody notices but the journal."""
    path = eventq.init(tmp_path / "thread")
    with eventq.open(path) as thread, monkeypatch.context() as patch:
        calls = Calls(os, number, short=short, lasting=lasting)
        patch.setattr(journal, "os", calls)
        for text in texts():
            thread.push("self", "test", text)
        assert calls.hit
        patch.undo()
        thread.push("self", "test", "afterwards")
    with open(os.path.join(path, "logs", "thread.log"), encoding="utf-8") as file:
        last = file.readlines()[-1]
    assert last.startswith("[")
    assert last.endswith("] [INFO] push: source=self type=test id=8\n")
    assert sound(path) == [*texts(), "afterwards"]


@pytest.mark.parametrize("opened", [True, False], ids=["same process", "new process"])
def test_a_tail_torn_at_any_byte_is_healed(opened: bool, tmp_path: Path) -> None:
    """Whatever part of the mirror a crash leaves, the next push completes it."""
    path = eventq.init(tmp_path / "thread")
    mirror = os.path.join(path, "events.jsonl")
    with eventq.open(path) as thread:
        thread.push_many([("self", "test", text) for text in texts()])
        writer = thread if opened else None
        size = os.path.getsize(mirror)
        for left in range(size + 1):
            os.truncate(mirror, left)
            if writer is not None:
                writer.push("self", "test", str(left))
            else:
                with eventq.open(path) as other:
                    other.push("self", "test", str(left))
            assert len(mirror_lines(path)) == len(texts()) + left + 1
        assert thread.check() == []
    assert sound(path) == texts() + [str(left) for left in range(size + 1)]


def test_a_long_torn_line_is_healed(tmp_path: Path) -> None:
    """A torn line longer than one read is cut off, even without any line before it."""
    path = eventq.init(tmp_path / "thread")
    mirror = os.path.join(path, "events.jsonl")
    with eventq.open(path) as thread:
        thread.push("self", "test", "y" * 300_000)
        thread.push("self", "test", "x" * 300_000)
        size = os.path.getsize(mirror)
        half = size // 2
        for left in (size - 1, size - 5000, half + 50, half - 50, 290_000, 4096, 4095, 1, 0):
            os.truncate(mirror, left)
            thread.push("self", "test", str(left))
            assert thread.check() == []
    sound(path)


RUBBISH = [
    b"", b"\n", b"rubbish\n", b'{"id":', b'{"id":x,\n', b"\0" * 5000, b'{"id":7,\n\n\n', b"\xff\xfe\n",
]  # fmt: skip


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_rubbish_in_the_mirror_never_costs_an_event(rubbish: bytes, tmp_path: Path) -> None:
    """`check` reports a damaged mirror, a rebuild replaces it, and pushes continue."""
    path = eventq.init(tmp_path / "thread")
    mirror = os.path.join(path, "events.jsonl")
    with eventq.open(path) as thread:
        thread.push("self", "test", "before")
        with open(mirror, "ab") as file:
            file.write(rubbish)
        thread.push("self", "test", "after")
        assert bool(thread.check()) == (b"\n" in rubbish)
        assert thread.rebuild_mirror() == 2
        assert thread.check() == []
    assert sound(path) == ["before", "after"]


def test_missing_files_are_made_again(tmp_path: Path) -> None:
    """The mirror, logs and run folder may be deleted at any time; a push recreates them."""
    path = eventq.init(tmp_path / "thread")
    with eventq.open(path) as thread:
        thread.push("self", "test", "one")
        os.unlink(os.path.join(path, "events.jsonl"))
        os.unlink(os.path.join(path, "logs", "thread.log"))
        os.rmdir(os.path.join(path, "logs", "handlers"))
        os.rmdir(os.path.join(path, "logs"))
        shutil.rmtree(os.path.join(path, "run"))
        thread.push("self", "test", "two")
    assert contents(path) == ["one", "two"]
    assert sound(path) == ["one", "two"]
    assert os.path.exists(os.path.join(path, "logs", "thread.log"))
