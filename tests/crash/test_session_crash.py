"""After a disk error at any step, imported sessions and copies are sound and repeatable."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.errors import DiskError
from eventq.sessions import imports as sessions
from tests.crash.support import FaultyVFS, copy
from tests.crash.test_every_step import fell

if TYPE_CHECKING:
    from pathlib import Path

_CHANCE = random.Random(31)
PICTURES = [_CHANCE.randbytes(size) for size in (900, 30_000, 300_000, 5_000)]
FOREIGN = _CHANCE.randbytes(2_000)
NAMED = f"blob:sha256:{hashlib.sha256(FOREIGN).hexdigest()}"


def entry(text: str, *data: str) -> bytes:
    """Return a line with images."""
    images = [{"type": "image", "mimeType": "image/png", "data": one} for one in data]
    message = {
        "type": "message", "role": "assistant", "usage": {"output_tokens": 7},
        "content": [{"type": "text", "text": text}, *images],
    }  # fmt: skip
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


BASE64 = [base64.b64encode(data).decode() for data in PICTURES]
OLD = entry("one", BASE64[0]) + entry("two") + b'{"torn":"x'  # what was imported before
ENTRIES = [entry(f"entry {n}", one) for n, one in enumerate([*BASE64, BASE64[1], NAMED])]
LONG = entry("long " + "x" * 600_000 + NAMED)
NEW = b"".join([OLD, b'y"}\n', *ENTRIES, b'{"odd": 1}\r\n', LONG, b'{"torn":'])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs, as no power is cut here, and use small transactions."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    monkeypatch.setattr(sessions, "BATCH_LINES", 3)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Return a folder with a session file, another tool's blobs, and a thread with some lines."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / NAMED[12:]).write_bytes(FOREIGN)
    (tmp_path / "session.jsonl").write_bytes(OLD)
    with eventq.open(eventq.init(tmp_path / "template")) as thread:
        thread.sessions.import_file(str(tmp_path / "session.jsonl"))
    (tmp_path / "session.jsonl").write_bytes(NEW)
    return str(tmp_path)


def work(thread: eventq.Thread, place: str) -> None:
    """Import."""
    thread.sessions.import_file(f"{place}/session.jsonl", blobs=f"{place}/blobs")


def check_usage(thread: eventq.Thread, lines: list[bytes]) -> None:
    """Check that a turn was stored with what it took, or neither of them."""
    sql = """
        SELECT turn_id IS NOT NULL AS placed, turn_id IN (SELECT turn_id FROM usage) AS noted
        FROM session_lines
        ORDER BY position
    """
    rows = [*thread.sql(sql)]
    says = [b'"usage"' in line for line in lines]
    assert [bool(row["noted"]) for row in rows] == [
        bool(row["placed"] and say) for row, say in zip(rows, says, strict=True)
    ]


def after(place: str, path: str, *, collected: bool) -> int:
    """Check an import and that repeating it completes it; return the number of lines before."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        found = list(thread.sessions.lines("session"))
        held = b"".join(found)
        assert NEW.startswith(held)
        check_usage(thread, found)
        assert held.startswith(OLD[: OLD.rindex(b"\n") + 1])
        if collected:
            thread.gc(apply=True, grace=0)
            assert b"".join(thread.sessions.lines("session")) == held
        work(thread, place)
        assert b"".join(thread.sessions.lines("session")) == NEW
        check_usage(thread, NEW.splitlines())
        assert thread.usage(context="session").out == 7 * NEW.count(b'"usage"')
        assert thread.read(NAMED).data == FOREIGN
        assert thread.check() == []
        if collected:
            thread.gc(apply=True, grace=0)
            assert b"".join(thread.sessions.lines("session")) == NEW
            assert len(thread.blobs) == NEW.count(b"\n") + 1 + len(PICTURES) + 1
        head = thread.contexts.head("session")
        work(thread, place)
        assert thread.contexts.head("session") == head
    return len(found)


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("error", "lasting"), [(apsw.IOError, False), (apsw.FullError, True)], ids=["once", "lasting"]
)
def test_a_disk_that_refuses(
    error: type[Exception], lasting: bool, stride: int, place: str, vfs: FaultyVFS
) -> None:
    """After any failed change, the thread is sound, and importing again adds the rest."""
    template, path = f"{place}/template", f"{place}/thread"
    count = vfs.steps_of(copy(template, path), lambda thread: work(thread, place))
    assert count > 20
    lines = []
    for number in (*range(1, count + 1, stride), count + 1):
        with vfs.opened(copy(template, path), number, error, lasting=lasting) as thread:
            work(thread, place)
        lines.append(after(place, path, collected=number % 4 == 1))
        assert lines[-1] == NEW.count(b"\n") + 1 or vfs.refused
    assert len(set(lines)) > 4  # nothing, the torn line gone, and after each transaction


def test_the_same_thread_goes_on(place: str, vfs: FaultyVFS) -> None:
    """A process whose disk refused once imports again with the thread that it has open."""
    template, path = f"{place}/template", f"{place}/thread"
    count = vfs.steps_of(copy(template, path), lambda thread: work(thread, place))
    for number in range(1, count + 1, 13):
        with vfs.opened(copy(template, path), number, apsw.FullError) as thread:
            with suppress(DiskError):
                work(thread, place)
            vfs.disarm()
            work(thread, place)
            assert b"".join(thread.sessions.lines("session")) == NEW
            assert thread.check() == []


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.soak)])
def test_a_process_that_is_killed(place: str, stride: int) -> None:
    """After a kill at any step, the thread is sound, and importing again adds the rest."""
    path = f"{place}/thread"

    def imported() -> None:
        with eventq.open(path) as thread:
            work(thread, place)

    lines: list[int] = []
    number, going = 0, True
    while going:
        number += stride
        copy(f"{place}/template", path)
        going = fell(number, imported)
        lines.append(after(place, path, collected=len(lines) % 4 == 0))
    assert len(lines) > 10
    assert lines[-1] == NEW.count(b"\n") + 1


@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.soak)])
def test_a_copy_whose_disk_refuses(stride: int, place: str, vfs: FaultyVFS, tmp_path: Path) -> None:
    """After any failed change of a copy, the destination is sound; copying again completes it."""
    template, path = eventq.init(tmp_path / "empty"), f"{place}/thread"
    with eventq.open(f"{place}/template") as source:
        work(source, place)
        source.artifacts.put(PICTURES[2])
        source.outputs.put("A", PICTURES[3])
        source.contexts.create("main").append("artifact://0 agent://0-A")
        count = vfs.steps_of(copy(template, path), source.copy_to)
        for number in range(1, count + 1, stride):
            with vfs.opened(copy(template, path), number, apsw.FullError, lasting=True) as other:
                source.copy_to(other)
            with eventq.open(path) as other:
                assert other.check() == []
                assert {one.status for one in other.artifacts} <= {"sealed"}
                source.copy_to(other)
                assert b"".join(other.sessions.lines("session")) == NEW
                assert other.read("artifact://0").data == PICTURES[2]
                assert other.read("agent://0-A").data == PICTURES[3]
                assert len(other.artifacts) == len(other.outputs) == 1
                assert source.copy_to(other).turns == 0
