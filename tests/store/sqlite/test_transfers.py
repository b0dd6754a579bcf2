"""Packs, copies and sessions of a database that is damaged, of the original tool, or only read."""

from __future__ import annotations

import base64
import json
import os
import random
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq import StoreError
from eventq.errors import DamagedBlobError, DamagedError
from eventq.records.turn import NewTurn
from tests.contract.pack_files import added, tree
from tests.contract.support import packed
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK = 1 << 16
NOISE = random.Random(3).randbytes(3 * CHUNK + 5)
NEWEST = "UPDATE blob_bytes SET bytes = ? WHERE blob_id = (SELECT max(blob_id) FROM blob_bytes)"
PIECE = "UPDATE artifact_chunks SET bytes = ? WHERE artifact_id = ? + 1 AND position = ?"
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def source(path: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread that may be broken."""
    with eventq.open(path) as opened:
        yield opened


@pytest.fixture
def other(tmp_path: Path) -> Iterator[eventq.Thread]:
    """Return a second fresh thread, in which all that says it is whole must be."""
    with eventq.open(eventq.init(tmp_path / "other")) as opened:
        yield opened
        assert opened.check() == []
        for info in opened.artifacts:
            data = opened.artifacts.open(info.artifact_id).read()
            assert info.hash == (blake3(data).hexdigest() if info.status == "sealed" else None)


def breaks(thread: eventq.Thread, sql: str, *bindings: Any) -> None:
    """Change one row of a database behind the thread's back."""
    raw = apsw.Connection(os.path.join(thread.path, "events.db"))
    raw.execute("PRAGMA ignore_check_constraints = 1")
    raw.execute(sql, bindings)
    assert raw.changes() == 1
    raw.close()


def flipped(data: bytes, at: int) -> bytes:
    """Return bytes with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_blob_is_healed(source: eventq.Thread, tmp_path: Path) -> None:
    """An import puts bytes right that were damaged here."""
    source.contexts.create("main").append("text")
    source.export_pack(tmp_path / "pack")
    breaks(source, NEWEST, b"zz")
    with eventq.open(source.path) as again:
        assert again.check() != []
        assert added(again.import_pack(tmp_path / "pack")) == (0, 0, 0, 0)
        assert again.check() == []


DAMAGED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "a blob": (NEWEST, (b"\0",)),
    "the first artifact": (PIECE, (b"\0", 0, 0)),
    "the last artifact": (PIECE, (b"\0", 2, 0)),
}


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("what", DAMAGED)
def test_damage_refuses_an_export(
    what: str, made: bool, source: eventq.Thread, tmp_path: Path
) -> None:
    """An export of damaged data is an error, and leaves no folder, or an empty one."""
    for text in ("one", "two", "three"):
        source.artifacts.put(text.encode(), "bash")
        source.contexts.create(text).append(text)
    sql, bindings = DAMAGED[what]
    breaks(source, sql, *bindings)
    if made:
        (tmp_path / "pack").mkdir()
    with pytest.raises(DamagedError):
        source.export_pack(tmp_path / "pack")
    assert (tmp_path / "pack").exists() == made
    assert not made or os.listdir(tmp_path / "pack") == []


@pytest.mark.parametrize("data", [b"bytes", b"%07d the quick brown\n" * 30_000 % (*range(30_000),)])
def test_a_damaged_blob_is_named(data: bytes, source: eventq.Thread, tmp_path: Path) -> None:
    """The error of an export names the damaged blob, even if only a part is damaged."""
    source.contexts.create("main").append(data)
    breaks(source, NEWEST, b"\0")
    with pytest.raises(DamagedBlobError, match=blake3(data).hexdigest()):
        source.export_pack(tmp_path / "pack")


@pytest.mark.parametrize("chosen", [None, ["main"]])
@pytest.mark.parametrize("at", [0, -2])
def test_a_copy_of_a_damaged_blob(
    source: eventq.Thread, other: eventq.Thread, at: int, chosen: Any
) -> None:
    """A blob whose bytes are damaged is an error, and nothing that needs it is copied."""
    main = source.contexts.create("main")
    main.append("m1")
    main.append(b"the payload " * 3)
    [(data,)] = sqlite(source.database).run(
        "SELECT bytes FROM blob_bytes ORDER BY blob_id DESC LIMIT 1"
    )
    breaks(source, NEWEST, flipped(bytes(data), at % len(data)))
    with pytest.raises(DamagedError, match=r"damaged|hash"):
        source.copy_to(other, chosen)
    assert (list(other.contexts), other.gc(grace=0).turns) == ([], 0)


SECOND = "UPDATE artifact_chunks SET bytes = ? WHERE position = 1"
DAMAGED_ARTIFACT: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "flipped": (SECOND, lambda kept: flipped(kept, 40)),
    "other bytes": (SECOND, lambda _: packed(b"z" * CHUNK)),
    "shorter": (SECOND, lambda _: packed(b"z" * (CHUNK - 1))),
    "no bytes": (SECOND, lambda _: b""),
    "missing": ("DELETE FROM artifact_chunks WHERE position = 1 AND ?", lambda _: 1),
    "another hash": ("UPDATE artifacts SET hash = ? WHERE number = 1", lambda _: bytes(32)),
    "another size": ("UPDATE artifacts SET size = size + ? WHERE number = 1", lambda _: 1),
}


@pytest.mark.parametrize("chosen", [None, ["main"]])
@pytest.mark.parametrize("how", DAMAGED_ARTIFACT)
def test_a_copy_of_a_damaged_artifact(
    source: eventq.Thread, other: eventq.Thread, how: str, chosen: Any
) -> None:
    """A damaged artifact is an error; none arrives that claims to be whole."""
    source.contexts.create("main").append("artifact://0 artifact://1 artifact://2")
    for data in (b"sound", NOISE, b"sound too"):
        source.artifacts.put(data)
    sql, make = DAMAGED_ARTIFACT[how]
    kept = sqlite(source.database).one("SELECT bytes FROM artifact_chunks WHERE position = 1")
    breaks(source, sql, make(bytes(kept)))
    with pytest.raises(DamagedError, match="artifact 1"):
        source.copy_to(other, chosen)
    assert (list(other.contexts), other.gc(grace=0).turns) == ([], 0)
    assert "1" not in [one.artifact_id for one in other.artifacts]


def test_a_session_with_a_blob_that_is_gone(source: eventq.Thread, tmp_path: Path) -> None:
    """A missing blob is reported once per line, and the line keeps its ref."""
    one, two = NOISE[:900], NOISE[900:1800]
    stored = f"blob:blake3:{blake3(one).hexdigest()}"
    file = tmp_path / "session.jsonl"
    images = [base64.b64encode(data).decode() for data in (one, two)]
    entry = {"content": [{"type": "image", "data": data} for data in images]}
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    file.write_bytes(line)
    source.sessions.import_file(str(file), name="s")
    sqlite(source.database).run("DELETE FROM blob_refs")
    breaks(source, "DELETE FROM blobs WHERE hash = ?", blake3(one).digest())
    said: list[str] = []
    found = b"".join(source.sessions.lines("s", warn=said.append))
    assert said == [f"blob {stored} is missing; the line keeps its ref"]
    assert found == line.replace(images[0].encode(), stored.encode())
    assert b"".join(source.sessions.lines("s")) == found
    source.blobs.put(one)
    assert b"".join(source.sessions.lines("s")) == line


# --- the file itself ------------------------------------------------------------------------------


def test_a_tag_that_follows_from_its_type_takes_no_space(
    source: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An imported turn whose number of a type is that of its type has none stored."""
    source.contexts.create("main").append(NewTurn("text", type_id="chat/1"))
    source.export_pack(tmp_path / "pack")
    other.import_pack(tmp_path / "pack")
    assert sqlite(other.database).run("SELECT type_tag FROM turns") == [(None,)]


def test_what_is_only_read_is_read_by_connections_that_only_read(
    source: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An export and a copy of a read-only thread open nothing for writing."""
    source.contexts.create("main").append("text")
    source.close()
    before = {name: data for name, data in tree(source.path).items() if not name.endswith("-shm")}
    writing: list[bool] = []

    def opened(connection: apsw.Connection) -> None:
        if connection.filename.startswith(source.path):
            writing.append(not connection.readonly("main"))

    apsw.connection_hooks.append(opened)
    try:
        with eventq.open(source.path, read_only=True) as reader:
            reader.export_pack(tmp_path / "pack")
            assert reader.copy_to(other).turns == 1
    finally:
        apsw.connection_hooks.remove(opened)
    assert len(writing) > 2
    assert not any(writing)
    after = {name: data for name, data in tree(source.path).items() if not name.endswith("-shm")}
    assert {name: data for name, data in after.items() if data} == {
        name: data for name, data in before.items() if data
    }


def test_a_source_of_the_original_tool(other: eventq.Thread, original: str) -> None:
    """A read-only thread of that is a StoreError with a hint."""
    why = "original 'thread' tool, and holds no turns or blobs - open it for writing once"
    with eventq.open(original, read_only=True) as reader:
        for chosen in (None, ["main"]):
            with pytest.raises(StoreError, match=why):
                reader.copy_to(other, chosen)
    with eventq.open(original) as writer:
        assert added(writer.copy_to(other)) == (0, 0, 0, 0)


def test_a_move_leaves_no_path_behind(tmp_path: Path) -> None:
    """No path of the directory is in the database, so that renaming it is the whole move."""
    with eventq.open(eventq.init(tmp_path / "the old place")) as thread:
        thread.contexts.create("main").append("artifact://0")
        thread.artifacts.put(NOISE)
        thread.push("self", "test", "text")
    with open(tmp_path / "the old place" / "events.db", "rb") as file:
        assert b"the old place" not in file.read()
