"""`eventq mirror follow`: the log of a shared thread as `events.jsonl` on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import LogicError, NotAThreadError
from eventq.log import mirror
from eventq.log.mirror_lines import line as line_of
from eventq.running.follower import Follower
from eventq.store.paths import rotated
from eventq.system import processes
from tests.race.support import DEADLINE, until
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def thread(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[eventq.Thread]:
    """Yield an open thread."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with eventq.open(fresh(postgres)) as made:
        yield made


def lines(folder: Path) -> list[str]:
    """Return all lines of the mirror."""
    found: list[str] = []
    path = str(folder / "events.jsonl")
    for name in [*sorted(rotated(path)), path]:
        with open(name, encoding="utf-8") as file:
            found += file.read().splitlines()
    return found


def expected(thread: eventq.Thread) -> list[str]:
    """Return the line of each event."""
    return [line_of(event) for event in thread.peek(last_event_id=0, limit=100_000)]


def test_a_follower_goes_on_where_the_files_end(thread: eventq.Thread, tmp_path: Path) -> None:
    """Each event is one line, once, in order; torn and lost files are mended."""
    said: list[str] = []
    folder = tmp_path / "a" / "b"
    first = Follower(thread, str(folder), said.append)
    thread.push("self", "note", 'one "quoted"\n\x00')
    assert first.step()
    thread.push("self", "note", "two", subtype="\u00e9")
    second = Follower(thread, str(folder), said.append)
    assert second.step()
    assert first.step()
    assert lines(folder) == expected(thread)
    with open(folder / "events.jsonl", "r+b") as file:
        file.truncate(os.path.getsize(folder / "events.jsonl") - 3)
    thread.push("self", "note", "three")
    assert first.step()
    assert lines(folder) == expected(thread)
    (folder / "events.jsonl").unlink()
    assert second.step()
    assert lines(folder) == expected(thread)
    assert said == []
    with eventq.open(folder) as same:
        assert [event.id for event in same.peek(last_event_id=0)] == [1, 2, 3]


def test_long_files_are_rotated(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a directory are, also while a long log is caught up with."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 10)
    monkeypatch.setattr(mirror, "STEP", 4)
    follower = Follower(thread, str(tmp_path / "copy"), print)
    thread.push_many([("self", "note", str(n)) for n in range(50)])
    thread.prune(before_id=5, force=True)
    assert follower.step()
    assert lines(tmp_path / "copy") == expected(thread)
    assert len(rotated(str(tmp_path / "copy" / "events.jsonl"))) >= 2
    assert Follower(thread, str(tmp_path / "copy"), print).step()
    assert lines(tmp_path / "copy") == expected(thread)


def test_a_folder_has_one_thread(thread: eventq.Thread, postgres: str, tmp_path: Path) -> None:
    """Not one of another URL, one that was made anew, a thread of its own, or files of others."""
    Follower(thread, str(tmp_path / "copy"), print)
    with (
        eventq.open(fresh(postgres)) as other,
        pytest.raises(LogicError, match="of another thread"),
    ):
        Follower(other, str(tmp_path / "copy"), print)
    url = thread.path
    eventq.destroy(url)
    eventq.init(url)
    with eventq.open(url) as anew, pytest.raises(LogicError, match="of another thread"):
        Follower(anew, str(tmp_path / "copy"), print)
    own = eventq.init(tmp_path / "own")
    with eventq.open(url) as anew, pytest.raises(LogicError, match="of another thread"):
        Follower(anew, own, print)
    with eventq.open(own) as local, pytest.raises(LogicError, match="in its own directory"):
        Follower(local, str(tmp_path / "new"), print)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "events.jsonl").write_text("{}\n")
    with eventq.open(url) as anew, pytest.raises(LogicError, match="of another thread"):
        Follower(anew, str(tmp_path / "files"), print)
    assert (tmp_path / "files" / "events.jsonl").read_text() == "{}\n"


def test_an_error_that_may_pass_is_told_once(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk refuses is written later, whole; a thread that is gone ends it."""
    said: list[str] = []
    follower = Follower(thread, str(tmp_path / "copy"), said.append)
    thread.push("self", "note", "one")
    with monkeypatch.context() as patch:

        def write(*_: object) -> int:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "write", write)
        assert not follower.step()
        assert not follower.step()
    (line,) = said
    assert "No space left on device" in line
    assert follower.step()
    assert lines(tmp_path / "copy") == expected(thread)
    eventq.destroy(thread.path)
    with pytest.raises(NotAThreadError):
        follower.step()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_command(thread: eventq.Thread, tmp_path: Path, number: int, status: int) -> None:
    """It follows until a signal; the folder then stands for the thread."""
    folder = tmp_path / "copy"
    words = processes.python("mirror", "follow", str(folder), "--thread", thread.path)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"follows {thread.path} in {folder}" in process.stderr.readline()
            thread.push("self", "note", "x")
            until(lambda: (folder / "events.jsonl").exists() and lines(folder), "it is written")
            assert lines(folder) == expected(thread)
            process.send_signal(number)
            assert process.wait(DEADLINE) == status
            assert process.stderr.read() == ""
        finally:
            process.kill()
