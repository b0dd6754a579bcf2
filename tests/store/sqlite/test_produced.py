"""Artifacts and outputs in the file: refused changes are undone, damage is found and named."""

from __future__ import annotations

import hashlib
import os
import random
import re
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq.errors import (
    ConflictError,
    DamagedBlobError,
    DamagedError,
    LogicError,
    StoreError,
    UnknownBlobError,
)
from eventq.output.artifacts import CHUNK, COMMIT_BYTES, TRANSITIONS
from eventq.store.sqlite import migrate
from tests.contract.support import ask, collect, packed
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq.output.artifacts import ArtifactWriter
    from tests.conftest import Clock

NOISE = random.Random(5).randbytes(2 * CHUNK + 9)
TEXT = b"one\ntwo\n" * 20_000  # in three chunks
DEAD = "0:999999999:x"

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def opened(path: str) -> Iterator[eventq.Thread]:
    """Yield a fresh thread that may be broken."""
    with eventq.open(path) as made:
        yield made


@pytest.fixture
def broken(path: str) -> Callable[..., None]:
    """Return a function that changes the file behind the back of eventq."""

    def run(sql: str, bindings: tuple[Any, ...] = ()) -> None:
        raw = apsw.Connection(os.path.join(path, "events.db"))
        raw.execute("PRAGMA ignore_check_constraints = 1")
        raw.execute("PRAGMA foreign_keys = 0")
        raw.execute(sql, bindings)
        assert raw.changes() >= 1
        raw.close()

    return run


@pytest.fixture
def full(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a thread with artifacts in all statuses, and outputs in versions."""
    with eventq.open(path) as thread:
        thread.artifacts.put(NOISE, "bash")
        writer = thread.artifacts.allocate("bash")
        writer.write(b"failed\nhere")
        writer.fail("for a test")
        thread.artifacts.put(TEXT, "bash")
        thread.artifacts.put(b"", "bash")
        writer = thread.artifacts.allocate("bash")
        with monkeypatch.context() as patch:
            patch.setattr("eventq.output.artifacts.COMMIT_SECONDS", 0)
            writer.write(b"so far\n")
        for text in ("v1", "v2", "v3"):
            thread.outputs.publish("0-A", text)
        thread.outputs.put("B", "b")
        thread.blobs.put(b"loose")
        assert thread.check() == []
    return path


def refuse(thread: eventq.Thread, what: str) -> None:
    """Make the file refuse a kind of change until `allow`."""
    sqlite(thread.database).run(
        f"CREATE TEMP TRIGGER refused BEFORE {what}"
        " BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
    )


def allow(thread: eventq.Thread) -> None:
    """Let it pass again."""
    sqlite(thread.database).run("DROP TRIGGER refused")


def disown(thread: eventq.Thread, number: int, owner: str | None = DEAD) -> None:
    """Make an artifact belong to another process."""
    sqlite(thread.database).run("UPDATE artifacts SET owner = ? WHERE number = ?", (owner, number))


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look at the clock find that what waits has waited long enough."""
    moments = iter(range(0, 1_000_000, 10))
    monkeypatch.setattr("eventq.system.clock.monotonic", lambda: float(next(moments)))


# --- changes that the file refuses ----------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["UPDATE OF status ON main.artifacts", "INSERT ON main.artifact_chunks"]
)
def test_bytes_are_sealed_or_not_there(
    thread: eventq.Thread, raw: apsw.Connection, what: str
) -> None:
    """Bytes that are put at once and refused leave nothing, not even a number."""
    refuse(thread, what)
    with pytest.raises(StoreError, match="refused by the test"):
        thread.artifacts.put(TEXT)
    allow(thread)
    assert ask(raw, "SELECT 1 FROM artifacts UNION ALL SELECT 1 FROM artifact_chunks") == []
    assert thread.artifacts.put(b"x").artifact_id == "0"


@pytest.mark.parametrize(
    "what", ["UPDATE OF status ON main.artifacts", "INSERT ON main.artifact_chunks"]
)
def test_a_seal_may_be_tried_again(thread: eventq.Thread, what: str) -> None:
    """A seal whose bytes or end could not be stored can be repeated, and all is there."""
    writer = thread.artifacts.allocate()
    writer.write(TEXT)
    refuse(thread, what)
    for _ in range(2):
        with pytest.raises(StoreError, match="refused by the test"):
            writer.seal()
    assert (thread.artifacts.get(0).status, thread.artifacts.get(0).size) == ("open", 0)
    allow(thread)
    assert writer.seal().hash == blake3(TEXT).hexdigest()
    assert thread.artifacts.open(0).read() == TEXT


def test_a_hole_is_never_sealed(thread: eventq.Thread, late: None) -> None:
    """Row 98: after bytes that were refused only `fail` is left; what is there is a prefix."""
    writer = thread.artifacts.allocate()
    writer.write(b"good\n")
    writer.tick()
    refuse(thread, "INSERT ON main.artifact_chunks")
    with pytest.raises(StoreError, match="refused by the test"):
        for _ in range(3):
            writer.write(b"lost\n")
    allow(thread)
    for call in (lambda: writer.write(b"x"), writer.seal):
        with pytest.raises(LogicError, match=r"artifact 0 has a hole: .*refused by the test"):
            call()
    assert thread.artifacts.get(0).status == "open"
    writer.fail("no space")
    info = thread.artifacts.get(0)
    assert (info.status, info.error, info.lines) == ("failed", "no space", 1)
    assert thread.artifacts.open(0).read() == b"good\n"


def test_a_hole_in_a_context_manager(thread: eventq.Thread) -> None:
    """The error of the store goes on to the caller, and the artifact has failed for its reason."""
    refuse(thread, "INSERT ON main.artifact_chunks")
    with pytest.raises(StoreError, match="refused by"), thread.artifacts.allocate() as writer:
        writer.write(bytes(COMMIT_BYTES))
    allow(thread)
    info = thread.artifacts.get(0)
    assert (info.status, info.size) == ("failed", 0)
    assert "refused by the test" in (info.error or "")


def test_an_error_on_the_way_out_hides_nothing(thread: eventq.Thread) -> None:
    """When not even the failure can be stored, the caller gets the first error."""
    writer = thread.artifacts.allocate()
    with pytest.raises(ZeroDivisionError), writer:
        refuse(thread, "UPDATE OF status ON main.artifacts")
        raise ZeroDivisionError
    allow(thread)
    assert thread.artifacts.get(0).status == "open"


def test_an_output_is_published_or_not_there(thread: eventq.Thread) -> None:
    """Row 85: a publication that is refused leaves no version, no blob and no used number."""
    refuse(thread, "INSERT ON main.agent_outputs")
    with pytest.raises(StoreError, match="refused by the test"):
        thread.outputs.put("b", "two")
    allow(thread)
    assert not thread.blobs.has(blake3(b"two").hexdigest())
    assert thread.outputs.allocate("c") == "0-c"


def test_a_tick_without_need_changes_nothing(thread: eventq.Thread, late: None) -> None:
    """A tick with nothing to store runs no statement that writes, so that it may come often."""
    writer = thread.artifacts.allocate()
    writer.write(b"abc")
    writer.tick()
    changes = sqlite(thread.database).connection.total_changes()
    for _ in range(3):
        writer.tick()
    assert sqlite(thread.database).connection.total_changes() == changes


def test_what_is_removed_leaves_no_chunks(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """The chunks of a removed artifact go with it, and their space when something is collected."""
    thread.artifacts.put(NOISE * 8)
    thread.artifacts.put(b"stays")
    thread.artifacts.remove(0)
    assert ask(raw, "SELECT artifact_id FROM artifact_chunks") == [(2,)]  # the row of number 1
    assert thread.database.stats().free > 200 << 12
    thread.gc(apply=True, grace=0)
    assert thread.database.stats().free == 0


# --- owners ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [
    "", None, "x", ":", "::", "0:1:0", "0:999999999:5", "0:own:0", "0:own:", "0:own", "own",
    "0:-1:x", "0::", "0:x:y",
])  # fmt: skip
def test_the_owner_is_dead(thread: eventq.Thread, owner: str | None) -> None:
    """An open artifact whose row names no living process, or a younger one, is partial."""
    thread.artifacts.allocate()
    disown(thread, 0, owner and owner.replace("own", str(os.getpid())))
    assert thread.artifacts.get(0).status == "partial"
    assert [info.status for info in thread.artifacts] == ["partial"]


@pytest.mark.parametrize("data", [b"", b"abc"])
@pytest.mark.parametrize("removed", [False, True])
def test_a_writer_whose_artifact_is_not_its_own(
    thread: eventq.Thread, data: bytes, removed: bool
) -> None:
    """A writer does not store into an artifact that another owner has, or that was deleted."""
    writer = thread.artifacts.allocate()
    writer.write(data)
    disown(thread, 0)
    if removed:
        thread.artifacts.remove(0)
    with pytest.raises(ConflictError, match="artifact 0 is no longer the one that was written"):
        writer.seal()
    assert [info.size for info in thread.artifacts] == [0] * (not removed)


# --- a thread of the original tool ----------------------------------------------------------------


@pytest.mark.parametrize("version", range(migrate.OWN))
def test_a_thread_of_the_original_tool_that_is_only_read(
    original: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread without artifacts, opened to read, says how to get them, also half migrated."""
    if version:
        connection = apsw.Connection(os.path.join(original, "events.db"))
        monkeypatch.setattr(migrate, "SCHEMA", version)
        older = migrate.files()[:version]
        monkeypatch.setattr(migrate, "files", lambda: older)
        migrate.apply(connection, "then")
        monkeypatch.undo()
        monkeypatch.setenv("EVENTQ_NOTIFIER", "none")
        connection.close()
    with eventq.open(original, read_only=True) as reader:
        for call in (
            lambda: reader.artifacts,
            lambda: reader.outputs,
            lambda: reader.produced,
            lambda: reader.read("artifact://0"),
            lambda: reader.open_url("agent://0-Scout"),
        ):
            with pytest.raises(
                StoreError, match=r"'thread' tool, and holds no .* - open it for writing once"
            ):
                call()
        assert [event.content for event in reader.peek()] == ["one", "two", "3"]
        assert reader.check() == []
    with eventq.open(original) as thread:
        info = thread.artifacts.put(b"hello")
    with eventq.open(original, read_only=True) as reader:
        assert (reader.artifacts.get(0), reader.check()) == (info, [])


# --- damage ---------------------------------------------------------------------------------------

ARTIFACT = "UPDATE artifacts SET {} WHERE number = {}"
CHUNK_OF_0 = "artifact_chunks WHERE artifact_id = 1 AND position = "
END = "artifact {} is {}, and has a hash or an end of another status"
NEXT = "artifact {} is not below the next number, {}"
CHUNKS = "artifact {} has {} bytes, and {} chunks up to number {}"
DAMAGED = "artifact {} is damaged: its {}"
LINES = "artifact 2 should have {} lines, but has 40000"
VERSIONS = "output {} has versions up to {}, and {} of them"


def digest(data: bytes) -> str:
    """Return the digest of bytes as SQL."""
    return f"x'{blake3(data).hexdigest()}'"


OTHER = f" SET bytes = x'{packed(b'z' * CHUNK).hex()}' "

FAULTS: dict[str, list[str]] = {
    "UPDATE counters SET next = 3 WHERE name = 'artifact'": [NEXT.format(n, 3) for n in (3, 4)],
    "DELETE FROM counters WHERE name = 'artifact'": [NEXT.format(n, 0) for n in range(5)],
    ARTIFACT.format("ended_at_ms = 1", 4): [END.format(4, "open")],
    ARTIFACT.format("hash = " + digest(b"so far\n"), 4): [END.format(4, "open")],
    ARTIFACT.format("ended_at_ms = NULL", 0): [END.format(0, "sealed")],
    ARTIFACT.format("hash = NULL", 0): [END.format(0, "sealed")],
    ARTIFACT.format("hash = " + digest(b"failed\nhere"), 1): [END.format(1, "failed")],
    ARTIFACT.format("status = 'done'", 1): [END.format(1, "done")],
    f"DELETE FROM {CHUNK_OF_0} 1": [
        CHUNKS.format(0, 131081, 2, 2), DAMAGED.format(0, "chunk 1 is missing"),
    ],
    f"DELETE FROM {CHUNK_OF_0} 2": [
        CHUNKS.format(0, 131081, 2, 1), DAMAGED.format(0, "chunk 2 is missing"),
    ],
    "DELETE FROM artifact_chunks WHERE artifact_id = 2": [
        CHUNKS.format(1, 11, 0, -1), DAMAGED.format(1, "chunk 0 is missing"),
    ],
    f"INSERT INTO artifact_chunks VALUES (4, 0, 0, x'{packed(b'x').hex()}')": [
        CHUNKS.format(3, 0, 1, 0),
    ],
    f"UPDATE {CHUNK_OF_0.replace(' ', ' SET position = 7 ', 1)} 2": [
        CHUNKS.format(0, 131081, 3, 7), DAMAGED.format(0, "chunk 2 is missing"),
    ],
    ARTIFACT.format("size = size + 1", 0): [DAMAGED.format(0, "chunk 2 has 9 bytes, not 10")],
    ARTIFACT.format("size = size - 1", 0): [DAMAGED.format(0, "chunk 2 has 9 bytes, not 8")],
    ARTIFACT.format("size = size + 1", 1): [DAMAGED.format(1, "chunk 0 has 11 bytes, not 12")],
    f"UPDATE {CHUNK_OF_0.replace(' ', OTHER, 1)} 1": [
        DAMAGED.format(0, "bytes do not have its hash"),
    ],
    ARTIFACT.format("hash = zeroblob(32)", 3): [DAMAGED.format(3, "bytes do not have its hash")],
    ARTIFACT.format("lines = lines + 1", 2): [LINES.format(40001)],
    ARTIFACT.format("lines = lines - 1", 2): [LINES.format(39999)],
    "DELETE FROM agent_outputs WHERE version = 2": [VERSIONS.format("0-A", 3, 2)],
    "DELETE FROM agent_outputs WHERE version = 1 AND output_id = '0-A'": [
        VERSIONS.format("0-A", 3, 2),
    ],
    "UPDATE agent_outputs SET version = 9 WHERE output_id = '1-B'": [VERSIONS.format("1-B", 9, 1)],
}  # fmt: skip


@pytest.mark.parametrize("sql", FAULTS)
def test_each_fault_is_said(full: str, broken: Callable[..., None], sql: str) -> None:
    """A broken invariant is one sentence of check, and a collection refuses to delete anything."""
    broken(sql)
    for read_only in (False, True):
        with eventq.open(full, read_only=read_only) as thread:
            found = [one for one in thread.check() if "CHECK constraint" not in one]
            assert found == FAULTS[sql]
    with eventq.open(full) as thread:
        for apply in (False, True):
            with pytest.raises(DamagedError, match="nothing was deleted"):
                thread.gc(apply=apply, grace=0)
        assert thread.blobs.has(blake3(b"loose").hexdigest())


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda kept: kept[:-5],
    "nothing": lambda _: b"",
    "no frame": lambda _: b"zz" * 50,
    "one byte": lambda _: b"\0",
    "another's": lambda _: packed(b"of another"),
    "a bomb": lambda _: packed(b"\0" * (1 << 24)),
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize(("number", "position"), [(0, 0), (0, 1), (0, 2), (1, 0)])
def test_a_chunk_that_is_spoiled(
    full: str, raw: apsw.Connection, how: str, number: int, position: int
) -> None:
    """A spoiled chunk is one fault, and an error for whoever reads it, and for a collection."""
    chunk = "artifact_chunks WHERE artifact_id = ? + 1 AND position = ?"  # rows count from 1
    kept = ask(raw, f"SELECT bytes FROM {chunk}", (number, position))[0][0]
    raw.execute(
        f"UPDATE {chunk.replace(' ', ' SET bytes = ? ', 1)}", (SPOILED[how](kept), number, position)
    )
    with eventq.open(full) as thread:
        [fault] = thread.check()
        assert fault.startswith(f"artifact {number} is damaged: its chunk {position} ")
        assert "\n" not in fault
        with pytest.raises(DamagedError, match=f"artifact {number} is damaged: its chunk"):
            thread.read(f"artifact://{number}")
        with pytest.raises(DamagedError):
            thread.gc(apply=True)
        assert thread.artifacts.open(2).read() == TEXT


def test_flipped_bits(full: str, raw: apsw.Connection) -> None:
    """Whichever byte of a chunk is damaged, reading and the check say of which artifact."""
    chance = random.Random(5)
    with eventq.open(full) as thread:
        for rowid, position, stored in ask(
            raw, "SELECT rowid, position, bytes FROM artifact_chunks WHERE artifact_id = 3"
        ):
            sql = "UPDATE artifact_chunks SET bytes = ? WHERE rowid = ?"
            for at in {0, 1, 4, 5, 6, 9, len(stored) - 1, *chance.sample(range(len(stored)), 8)}:
                flipped = bytearray(stored)
                flipped[at] ^= 1 << chance.randrange(8)
                raw.execute(sql, (bytes(flipped), rowid))
                try:
                    faults = [] if thread.artifacts.open(2).read() == TEXT else ["wrong bytes"]
                except DamagedError as error:  # or it is a bit of the header that means nothing
                    faults = [error.what]
                assert thread.check() == faults, position
                assert all(fault.startswith("artifact 2 is damaged: its ") for fault in faults)
            raw.execute(sql, (stored, rowid))


def test_swapped_chunks(full: str, raw: apsw.Connection) -> None:
    """Chunks that are sound, in a wrong order, do not have the hash."""
    for was, becomes in ((0, 9), (1, 0), (9, 1)):
        raw.execute(
            "UPDATE artifact_chunks SET position = ? WHERE artifact_id = 1 AND position = ?",
            (becomes, was),
        )
    with eventq.open(full) as thread:
        with pytest.raises(
            DamagedError, match="artifact 0 is damaged: its bytes do not have its hash"
        ):
            thread.artifacts.open(0).read()
        assert thread.check() == ["artifact 0 is damaged: its bytes do not have its hash"]


@pytest.mark.parametrize(("sql", "said"), [
    ("UPDATE artifact_chunks SET newlines = newlines + 1 WHERE artifact_id = 3 AND position", ""),
    ("UPDATE counters SET next = 0 WHERE name = 'output:'", ""),
    ("INSERT INTO blob_names SELECT zeroblob(32), min(blob_id) FROM blobs", "another SHA-256"),
    ("DELETE FROM artifacts WHERE number = 1", "artifact_chunks"),
    (ARTIFACT.format("size = -1", 0), CHUNKS.format(0, -1, 3, 2)),
])  # fmt: skip
def test_what_leads_elsewhere_is_said(
    full: str, broken: Callable[..., None], sql: str, said: str
) -> None:
    """A row that leads to other lines, numbers, bytes or nowhere is found by the check."""
    broken(sql)
    with eventq.open(full) as thread:
        faults = thread.check()
    assert faults
    assert any(said in fault for fault in faults)


def test_an_output_without_its_blob(full: str, broken: Callable[..., None]) -> None:
    """An output whose blob is gone is said, and stops a collection."""
    broken("DELETE FROM blobs WHERE hash = ?", (blake3(b"b").digest(),))
    with eventq.open(full) as thread:
        assert any("agent_outputs" in fault for fault in thread.check())
        with pytest.raises(DamagedError):
            thread.gc(apply=True, grace=0)


def test_an_output_is_a_blob_that_is_stored(opened: eventq.Thread) -> None:
    """Of bytes that are not there no version is made, and no other name."""
    outputs = opened.database.memory.outputs
    for add in (
        lambda: outputs.add("0-a", b"\7" * 32),
        lambda: outputs.add_alias(b"\1" * 32, b"\7" * 32),
    ):
        with pytest.raises(UnknownBlobError, match="missing blob blob:blake3:0707"):
            add()
    assert (outputs.count(), outputs.aliases(b"", 9)) == (0, [])


def test_an_output_with_damaged_bytes(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """Damaged bytes are an error by id and by URL; other outputs are as they were."""
    opened.outputs.put("a", "one")
    opened.outputs.put("b", "two")
    raw.execute("UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = 1")
    with pytest.raises(DamagedBlobError):
        opened.outputs.read("0-a")
    with pytest.raises(DamagedError):
        opened.read("agent://0-a")
    assert opened.outputs.read("1-b") == b"two"


def test_a_damaged_blob_with_another_name(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """A damaged blob with a name of another tool is named once; the check goes on."""
    blob = opened.blobs.put(b"text")
    opened.database.memory.outputs.add_alias(
        hashlib.sha256(b"text").digest(), bytes.fromhex(blob.hash)
    )
    raw.execute("UPDATE blob_bytes SET bytes = x'00'")
    [fault] = opened.check()
    assert blob.hash in fault


def test_a_damaged_artifact_leaves_no_file(
    opened: eventq.Thread, raw: apsw.Connection, tmp_path: Path
) -> None:
    """An export that finds a damaged artifact leaves no file, nor a part of one."""
    opened.artifacts.put(TEXT)
    raw.execute("UPDATE artifact_chunks SET bytes = x'00' WHERE position = 2")
    (tmp_path / "out").mkdir()
    with pytest.raises(DamagedError):
        opened.artifacts.export_folder(str(tmp_path / "out"))
    assert os.listdir(tmp_path / "out") == []


def test_lines_are_found_without_what_comes_before(
    opened: eventq.Thread, raw: apsw.Connection
) -> None:
    """A line far behind is found without the chunks before it: they may even be damaged."""
    opened.artifacts.put(TEXT)
    raw.execute("UPDATE artifact_chunks SET bytes = x'00' WHERE position < 2")
    assert b"".join(opened.artifacts.open(0).lines_from(40_000)) == b"two\n"
    with pytest.raises(DamagedError):
        b"".join(opened.artifacts.open(0).lines_from(1))


def test_at_most_twenty_of_a_kind(path: str) -> None:
    """Of a kind of fault at most twenty are said."""
    with eventq.open(path) as thread, thread.write():
        for _ in range(30):
            thread.artifacts.put(b"x")
            thread.outputs.put("A", "x")
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("UPDATE agent_outputs SET version = 2")
    raw.execute("DELETE FROM counters")
    raw.executemany(
        "INSERT INTO blob_names SELECT ?, min(blob_id) FROM blobs",
        [(bytes([number]) * 32,) for number in range(30)],
    )
    raw.close()
    with eventq.open(path) as thread:
        faults = thread.check()
    for kind in (
        r"artifact \d+ is not below the next number, 0",
        r"output \d+-A has versions up to 2, and 1 of them",
        r"output \d+-A has a number that is not below the next one, 0",
        r"blob:sha256:[0-9a-f]{64} names blob:blake3:[0-9a-f]{64}, which has another SHA-256",
    ):
        assert len([fault for fault in faults if re.fullmatch(kind, fault)]) == 20
    assert len(faults) == 80


def test_the_transitions_are_what_happens(thread: eventq.Thread) -> None:
    """TRANSITIONS says exactly what each event makes of each status; others change nothing."""

    def make(status: str) -> ArtifactWriter:
        writer = thread.artifacts.allocate()
        writer.write(b"abc")
        if status == "sealed":
            writer.seal()
        elif status == "failed":
            writer.fail("so")
        elif status == "partial":
            disown(thread, int(writer.artifact_id))
        assert thread.artifacts.get(writer.artifact_id).status == status
        return writer

    def written(writer: ArtifactWriter) -> None:
        writer.write(b"\n" * COMMIT_BYTES)

    def died(writer: ArtifactWriter) -> None:
        disown(thread, int(writer.artifact_id))

    events = {
        "written": written, "sealed": lambda w: w.seal(),
        "gave up": lambda w: w.fail("so"), "writer died": died,
    }  # fmt: skip
    seen: dict[str, dict[str, str]] = {}
    for status in TRANSITIONS:
        seen[status] = {}
        for event, happen in events.items():
            writer = make(status)
            before = thread.artifacts.get(writer.artifact_id)
            try:
                happen(writer)
            except (LogicError, ConflictError):
                assert thread.artifacts.get(writer.artifact_id) == before
                continue
            after = thread.artifacts.get(writer.artifact_id)
            if after != before:
                seen[status][event] = after.status
    assert seen == TRANSITIONS


def test_an_output_that_is_deleted(thread: eventq.Thread, clock: Clock) -> None:
    """The blob of an output that is no more goes after the grace period."""
    thread.outputs.put("A", "v1")
    sqlite(thread.database).run("DELETE FROM agent_outputs")
    clock.move(10)
    assert collect(thread, 11).blobs == 0
    assert collect(thread, 9).hashes == (blake3(b"v1").hexdigest(),)
