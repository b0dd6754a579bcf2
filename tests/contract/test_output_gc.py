"""What was produced, in collections and checks: outputs keep their blobs, and each fault is said and stops a collection."""

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
from eventq.errors import DamagedError, UnknownBlobError, UnknownOutputError
from tests.contract.support import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock

CHUNK = 1 << 16
NOISE = random.Random(5).randbytes(2 * CHUNK + 9)
LARGE = random.Random(6).randbytes(300_000)


pytestmark = pytest.mark.usefixtures("quick")


def name(data: bytes) -> str:
    """Give the hash of bytes."""
    return blake3(data).hexdigest()


def sha256(data: bytes) -> str:
    """Give the ref that another tool has for bytes."""
    return f"blob:sha256:{hashlib.sha256(data).hexdigest()}"


def collect(thread: eventq.Thread, grace: float = 0) -> set[str]:
    """Delete what nothing leads to, and give its hashes, which a dry run gave as well."""
    dry = thread.gc(grace=grace)
    done = thread.gc(apply=True, grace=grace)
    assert (dry.turns, dry.hashes, dry.stored) == (done.turns, done.hashes, done.stored)
    return set(done.hashes)


# --- collections ------------------------------------------------------------------------------------------------------


def test_outputs_keep_their_blobs(thread: eventq.Thread) -> None:
    """Every version of an output is kept, also one of many parts, and the blobs that it names; nothing else is."""
    thread.blobs.put(b"v2", refs=[thread.blobs.put(b"named").hash])
    thread.blobs.put(b"loose")
    thread.outputs.put("A", "v1")
    thread.outputs.publish("0-A", "v2")
    thread.outputs.put("B", LARGE)
    assert collect(thread) == {name(b"loose")}
    assert [thread.outputs.read("0-A", n) for n in (1, 2)] == [b"v1", b"v2"]
    assert thread.outputs.read("1-B") == LARGE
    assert thread.blobs.get(name(b"named")) == b"named"
    assert collect(thread) == set()


def test_an_output_that_is_deleted(thread: eventq.Thread, clock: Clock) -> None:
    """The blob of an output that is no more goes, after the time of grace."""
    thread.outputs.put("A", "v1")
    thread.database.run("DELETE FROM agent_outputs")
    clock.move(10)
    assert collect(thread, 11) == set()
    assert collect(thread, 9) == {name(b"v1")}


def test_an_output_that_is_undone(thread: eventq.Thread) -> None:
    """Row 85: an output whose transaction is undone is not there, nor its blob."""

    def undone() -> None:
        with thread.write():
            thread.outputs.put("A", "v1")
            raise LookupError

    with pytest.raises(LookupError):
        undone()
    with pytest.raises(UnknownOutputError):
        thread.outputs.get("0-A")
    assert not thread.blobs.has(name(b"v1"))
    assert thread.outputs.allocate("A") == "0-A"


def test_a_name_keeps_no_blob(thread: eventq.Thread) -> None:
    """The name that another tool has for a blob does not keep it, and goes with it."""
    for data in (b"kept", b"loose", LARGE):
        thread.blobs.put(data)
        assert thread.produced.name_blob(name(data), bytes.fromhex(sha256(data)[12:]))
    thread.blobs.pin(name(b"kept"), "me")
    assert collect(thread) == {name(b"loose"), name(LARGE)}
    assert thread.read(sha256(b"kept")).data == b"kept"
    for data in (b"loose", LARGE):
        with pytest.raises(UnknownBlobError):
            thread.read(sha256(data))
    assert thread.database.one("SELECT count(*) FROM blob_names") == 1
    thread.blobs.put(b"loose")
    with pytest.raises(UnknownBlobError):
        thread.read(sha256(b"loose"))


def test_a_name_that_is_wrong(thread: eventq.Thread) -> None:
    """A blob is not noted under a SHA-256 that is not its own, nor twice."""
    thread.blobs.put(b"text")
    assert not thread.produced.name_blob(name(b"text"), bytes(32))
    for _ in range(2):
        assert thread.produced.name_blob(name(b"text"), bytes.fromhex(sha256(b"text")[12:]))
    assert thread.database.one("SELECT count(*) FROM blob_names") == 1
    with pytest.raises(UnknownBlobError):
        thread.produced.name_blob(name(b"none"), bytes(32))


def test_artifacts_are_never_collected(thread: eventq.Thread, clock: Clock) -> None:
    """Artifacts of every status stay, however old they are and whatever leads to them."""
    thread.artifacts.put(NOISE, "bash")
    writer = thread.artifacts.allocate("bash")
    writer.write(b"failed")
    writer.fail("for a test")
    with thread.artifacts.allocate("bash") as writer:
        writer.write(NOISE)
        writer._commit()
        clock.move(10 * 24 * 3600)
        thread.blobs.put(b"loose")
        assert collect(thread) == {name(b"loose")}
        assert [one.status for one in thread.artifacts] == ["sealed", "failed", "open"]
    assert [thread.artifacts.open(n).read() for n in range(3)] == [NOISE, b"failed", NOISE]
    assert thread.artifacts.get(2).status == "sealed"


def test_a_collection_gives_the_space_of_artifacts_back(thread: eventq.Thread) -> None:
    """The chunks of an artifact that was removed go with it, and their space when something is collected."""
    thread.artifacts.put(NOISE * 8)
    thread.artifacts.put(b"stays")
    thread.artifacts.remove(0)
    assert thread.database.one("SELECT count(*) FROM artifact_chunks") == 1
    assert thread.database.free_bytes() > 200 << 12
    collect(thread)
    assert thread.database.free_bytes() == 0


def test_a_text_of_an_artifact_keeps_no_blob(thread: eventq.Thread) -> None:
    """Artifacts are texts of tools: a ref in one keeps nothing."""
    thread.blobs.put(b"mentioned")
    thread.artifacts.put(f"blob:blake3:{name(b'mentioned')}".encode())
    assert collect(thread) == {name(b"mentioned")}


# --- checks -----------------------------------------------------------------------------------------------------------


def fill(thread: eventq.Thread) -> None:
    """Store artifacts 0 (three chunks), 1 (failed), 2 (with lines), 3 (empty), 4 (open), and outputs in versions."""
    thread.artifacts.put(NOISE, "bash")
    writer = thread.artifacts.allocate("bash")
    writer.write(b"failed\nhere")
    writer.fail("for a test")
    thread.artifacts.put(b"one\ntwo\n" * 20_000, "bash")
    thread.artifacts.put(b"", "bash")
    writer = thread.artifacts.allocate("bash")
    writer.write(b"so far\n")
    writer._commit()
    for text in ("v1", "v2", "v3"):
        thread.outputs.publish("0-A", text)
    thread.outputs.put("B", "b")
    thread.blobs.put(b"loose")


FAULTS: dict[str, tuple[str, tuple[Any, ...], list[str]]] = {
    "a number that is to come": (
        "UPDATE counters SET next = 3 WHERE name = 'artifact'", (),
        ["artifact 3 is not below the next number, 3", "artifact 4 is not below the next number, 3"],
    ),
    "no next number": (
        "DELETE FROM counters WHERE name = 'artifact'", (),
        [f"artifact {number} is not below the next number, 0" for number in range(5)],
    ),
    "open with an end": (
        "UPDATE artifacts SET ended_at_ms = 1 WHERE artifact_id = 4", (),
        ["artifact 4 is open, and has a hash or an end of another status"],
    ),
    "open with a hash": (
        "UPDATE artifacts SET hash = ? WHERE artifact_id = 4", (blake3(b"so far\n").digest(),),
        ["artifact 4 is open, and has a hash or an end of another status"],
    ),
    "sealed without an end": (
        "UPDATE artifacts SET ended_at_ms = NULL WHERE artifact_id = 0", (),
        ["artifact 0 is sealed, and has a hash or an end of another status"],
    ),
    "sealed without a hash": (
        "UPDATE artifacts SET hash = NULL WHERE artifact_id = 0", (),
        ["artifact 0 is sealed, and has a hash or an end of another status"],
    ),
    "failed with a hash": (
        "UPDATE artifacts SET hash = ? WHERE artifact_id = 1", (blake3(b"failed\nhere").digest(),),
        ["artifact 1 is failed, and has a hash or an end of another status"],
    ),
    "a status that is none": (
        "UPDATE artifacts SET status = 'done' WHERE artifact_id = 1", (),
        ["artifact 1 is done, and has a hash or an end of another status"],
    ),
    "a chunk that is missing": (
        "DELETE FROM artifact_chunks WHERE artifact_id = 0 AND position = 1", (),
        ["artifact 0 has 131081 bytes, and 2 chunks up to number 2", "artifact 0 is damaged: its chunk 1 is missing"],
    ),
    "the last chunk is missing": (
        "DELETE FROM artifact_chunks WHERE artifact_id = 0 AND position = 2", (),
        ["artifact 0 has 131081 bytes, and 2 chunks up to number 1", "artifact 0 is damaged: its chunk 2 is missing"],
    ),
    "the only chunk is missing": (
        "DELETE FROM artifact_chunks WHERE artifact_id = 1", (),
        ["artifact 1 has 11 bytes, and 0 chunks up to number -1", "artifact 1 is damaged: its chunk 0 is missing"],
    ),
    "a chunk too many": (
        "INSERT INTO artifact_chunks VALUES (3, 0, 0, ?)", (packed(b"x"),),
        ["artifact 3 has 0 bytes, and 1 chunks up to number 0"],
    ),
    "a chunk beyond the end": (
        "UPDATE artifact_chunks SET position = 7 WHERE artifact_id = 0 AND position = 2", (),
        ["artifact 0 has 131081 bytes, and 3 chunks up to number 7", "artifact 0 is damaged: its chunk 2 is missing"],
    ),
    "a size that is larger": (
        "UPDATE artifacts SET size = size + 1 WHERE artifact_id = 0", (),
        ["artifact 0 is damaged: its chunk 2 has 9 bytes, not 10"],
    ),
    "a size that is smaller": (
        "UPDATE artifacts SET size = size - 1 WHERE artifact_id = 0", (),
        ["artifact 0 is damaged: its chunk 2 has 9 bytes, not 8"],
    ),
    "a size of a failed one that is larger": (
        "UPDATE artifacts SET size = size + 1 WHERE artifact_id = 1", (),
        ["artifact 1 is damaged: its chunk 0 has 11 bytes, not 12"],
    ),
    "other bytes": (
        "UPDATE artifact_chunks SET bytes = ? WHERE artifact_id = 0 AND position = 1", (packed(b"z" * CHUNK),),
        ["artifact 0 is damaged: its bytes do not have its hash"],
    ),
    "another hash": (
        "UPDATE artifacts SET hash = ? WHERE artifact_id = 3", (bytes(32),),
        ["artifact 3 is damaged: its bytes do not have its hash"],
    ),
    "more lines": (
        "UPDATE artifacts SET lines = lines + 1 WHERE artifact_id = 2", (),
        ["artifact 2 should have 40001 lines, but has 40000"],
    ),
    "fewer lines": (
        "UPDATE artifacts SET lines = lines - 1 WHERE artifact_id = 2", (),
        ["artifact 2 should have 39999 lines, but has 40000"],
    ),
    "a version that is missing": (
        "DELETE FROM agent_outputs WHERE output_id = '0-A' AND version = 2", (),
        ["output 0-A has versions up to 3, and 2 of them"],
    ),
    "the first version is missing": (
        "DELETE FROM agent_outputs WHERE output_id = '0-A' AND version = 1", (),
        ["output 0-A has versions up to 3, and 2 of them"],
    ),
    "a version that is far away": (
        "UPDATE agent_outputs SET version = 9 WHERE output_id = '1-B'", (),
        ["output 1-B has versions up to 9, and 1 of them"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", FAULTS)
def test_each_fault_is_said(path: str, how: str) -> None:
    """A broken invariant is one sentence of check, and a collection refuses to delete anything."""
    with eventq.open(path) as thread:
        fill(thread)
        assert thread.check() == []
    sql, bindings, expected = FAULTS[how]
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("PRAGMA ignore_check_constraints = 1")
    raw.execute(sql, bindings)
    assert raw.changes() >= 1
    raw.close()
    for read_only in (False, True):
        with eventq.open(path, read_only=read_only) as thread:
            found = [one for one in thread.check() if "CHECK constraint" not in one]
            assert found == expected
    with eventq.open(path) as thread:
        for apply in (False, True):
            with pytest.raises(DamagedError, match="nothing was deleted"):
                thread.gc(apply=apply, grace=0)
        assert thread.blobs.has(name(b"loose"))


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit": lambda kept: kept[:-1] + bytes([kept[-1] ^ 1]),
    "cut off": lambda kept: kept[:-5],
    "nothing": lambda _: b"",
    "no frame": lambda _: b"zz" * 50,
    "one byte": lambda _: b"\0",
    "a bomb": lambda _: packed(b"\0" * (1 << 24)),
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("number", [0, 1])
def test_a_chunk_that_is_spoiled(path: str, how: str, number: int) -> None:
    """A chunk that is no longer what was kept is one sentence, an error for whoever reads it, and for a collection."""
    with eventq.open(path) as thread:
        fill(thread)
        kept = thread.database.one(
            "SELECT bytes FROM artifact_chunks WHERE artifact_id = ? AND position = 0", (number,)
        )
    raw = apsw.Connection(os.path.join(path, "events.db"))
    spoiled = SPOILED[how](bytes(kept))
    raw.execute(
        "UPDATE artifact_chunks SET bytes = ? WHERE artifact_id = ? AND position = 0",
        (spoiled, number),
    )
    raw.close()
    with eventq.open(path) as thread:
        [fault] = thread.check()
        assert fault.startswith(f"artifact {number} is damaged: its chunk 0 ")
        assert "\n" not in fault
        with pytest.raises(DamagedError):
            thread.read(f"artifact://{number}")
        with pytest.raises(DamagedError):
            thread.gc(apply=True)
        assert thread.artifacts.open(2).read() == b"one\ntwo\n" * 20_000


def test_an_output_without_its_blob(path: str) -> None:
    """An output whose blob is gone is said, and stops a collection."""
    with eventq.open(path) as thread:
        fill(thread)
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("PRAGMA foreign_keys = 0")
    raw.execute("DELETE FROM blobs WHERE hash = ?", (blake3(b"b").digest(),))
    raw.close()
    with eventq.open(path) as thread:
        assert any("agent_outputs" in fault for fault in thread.check())
        with pytest.raises(DamagedError):
            thread.gc(apply=True, grace=0)


def test_the_chunks_of_no_artifact(path: str) -> None:
    """Chunks whose artifact is gone are said."""
    with eventq.open(path) as thread:
        fill(thread)
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("PRAGMA foreign_keys = 0")
    raw.execute("DELETE FROM artifacts WHERE artifact_id = 1")
    raw.close()
    with eventq.open(path) as thread:
        assert any("artifact_chunks" in fault for fault in thread.check())


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


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK + 1, 2 * CHUNK - 1])
@pytest.mark.parametrize("last", [b"\n", b"x"])
def test_artifacts_of_many_sizes_check_out(thread: eventq.Thread, size: int, last: bytes) -> None:
    """An artifact checks out around the borders of its chunks, with and without a newline at its end."""
    data = (b"a\n" * size)[: max(size - 1, 0)] + (last if size else b"")
    info = thread.artifacts.put(data)
    assert info.lines == data.count(b"\n") + (not data.endswith(b"\n") and size > 0)
    assert thread.check() == []


@pytest.mark.parametrize("size", [CHUNK, 2 * CHUNK])
@pytest.mark.parametrize("last", [b"\n", b"x"])
def test_artifacts_of_whole_chunks_check_out(path: str, size: int, last: bytes) -> None:
    """An artifact that ends where a chunk ends checks out, and has all its lines, also one that has not ended."""
    data = (b"a\n" * size)[: size - 1] + last
    with eventq.open(path) as thread:
        info = thread.artifacts.put(data)
        assert thread.check() == []
        assert (info.size, info.lines) == (size, data.count(b"\n") + (last != b"\n"))


def test_a_chunk_that_miscounts_the_newlines_before_it(path: str) -> None:
    """A chunk whose count of newlines before it is wrong leads to other lines, so it is said."""
    with eventq.open(path) as thread:
        fill(thread)
        thread.database.run(
            "UPDATE artifact_chunks SET newlines = newlines + 1 WHERE artifact_id = 2 AND position = 1"
        )
        assert thread.check() != []


def test_a_name_that_is_to_come(path: str) -> None:
    """An output whose number is not below its parent's next one would be given again, so it is said."""
    with eventq.open(path) as thread:
        fill(thread)
        thread.database.run("UPDATE counters SET next = 0 WHERE name = 'output:'")
        assert thread.check() != []


def test_a_name_of_a_blob_that_is_damaged(path: str) -> None:
    """A blob that is damaged, and has a name of another tool, is said once, and the rest of the check is done."""
    with eventq.open(path) as thread:
        thread.blobs.put(b"text")
        thread.produced.name_blob(name(b"text"), bytes.fromhex(sha256(b"text")[12:]))
        thread.database.run("UPDATE blob_bytes SET bytes = x'00'")
    with eventq.open(path) as thread:
        [fault] = thread.check()
        assert name(b"text") in fault


def test_a_name_of_another_blob(path: str) -> None:
    """A SHA-256 that is not that of the blob it names leads to other bytes, so it is said."""
    with eventq.open(path) as thread:
        fill(thread)
        thread.database.run("INSERT INTO blob_names SELECT zeroblob(32), min(blob_id) FROM blobs")
        assert thread.check() != []
