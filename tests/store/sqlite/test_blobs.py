"""Damaged rows and bytes of blobs: found, named, never returned, and healed by a put."""

from __future__ import annotations

import io
import os
import random
import struct
import sys
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import zstandard
from blake3 import blake3

import eventq
from eventq.errors import DamagedBlobError, StoreError
from eventq.store.sqlite import migrate
from tests.contract.support import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Thread
    from tests.conftest import RunPython

    Damage = Callable[[apsw.Connection, bytes], object]

MIB = 1 << 20
NOISE = random.Random(7).randbytes(2 * MIB + 5000)
THREE = NOISE  # three parts
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, n * n % 99991) for n in range(2000))
OF = "(SELECT blob_id FROM blobs WHERE hash = ?)"

pytestmark = pytest.mark.usefixtures("quick")


def flip(at: int) -> Damage:
    """Return a damage that flips one byte of what is kept, from the front or from the back."""

    def damage(raw: apsw.Connection, name: bytes) -> None:
        (stored,) = ask(raw, f"SELECT bytes FROM blob_bytes WHERE blob_id = {OF}", (name,))[0]
        changed = bytearray(stored)
        changed[at] ^= 0x41
        raw.execute(f"UPDATE blob_bytes SET bytes = ? WHERE blob_id = {OF}", (bytes(changed), name))

    return damage


def run(sql: str) -> Damage:
    """Return a damage that is one statement."""
    return lambda raw, name: raw.execute(sql, (name,) * sql.count("?"))


PIECE: dict[str, Damage] = {
    "first byte": flip(0),
    "a byte of the header": flip(4),
    "a byte": flip(40),
    "last byte": flip(-1),
    "cut": run(f"UPDATE blob_bytes SET bytes = substr(bytes, 1, 40) WHERE blob_id = {OF}"),
    "emptied": run(f"UPDATE blob_bytes SET bytes = x'' WHERE blob_id = {OF}"),
    "gone": run(f"DELETE FROM blob_bytes WHERE blob_id = {OF}"),
    "text": run(f"UPDATE blob_bytes SET bytes = 'text' WHERE blob_id = {OF}"),
    "number": run(f"UPDATE blob_bytes SET bytes = 7 WHERE blob_id = {OF}"),
    "codec": run("UPDATE blobs SET codec = 1 - codec WHERE hash = ?"),
    "codec of parts": run("UPDATE blobs SET codec = 2 WHERE hash = ?"),
    "shorter": run("UPDATE blobs SET raw_len = raw_len - 1 WHERE hash = ?"),
    "longer": run("UPDATE blobs SET raw_len = raw_len + 1 WHERE hash = ?"),
    "as long as can be": run("UPDATE blobs SET raw_len = 4294967295 WHERE hash = ?"),
}
PART = f"(SELECT part_id FROM blob_parts WHERE position = 1 AND blob_id = {OF})"
LIST: dict[str, Damage] = {
    "no parts": run(f"DELETE FROM blob_parts WHERE blob_id = {OF}"),
    "first part gone": run(f"DELETE FROM blob_parts WHERE position = 0 AND blob_id = {OF}"),
    "last part gone": run(f"DELETE FROM blob_parts WHERE position = 2 AND blob_id = {OF}"),
    "order": run(
        "UPDATE blob_parts SET part_id = (SELECT part_id FROM blob_parts q WHERE"
        " q.blob_id = blob_parts.blob_id AND q.position = 2 - blob_parts.position)"
        f" WHERE blob_id = {OF}"
    ),
    "one twice": run(
        "INSERT INTO blob_parts SELECT blob_id, 9, part_id FROM blob_parts"
        f" WHERE position = 2 AND blob_id = {OF}"
    ),
    "one for another": run(
        f"UPDATE blob_parts SET part_id = {PART} WHERE position = 0 AND blob_id = {OF}"
    ),
    "codec": run("UPDATE blobs SET codec = 0 WHERE hash = ?"),
    "compressed": run("UPDATE blobs SET codec = 1 WHERE hash = ?"),
    "shorter": PIECE["shorter"],
    "longer": PIECE["longer"],
    "a byte of a part": run(
        "UPDATE blob_bytes SET bytes = CAST(x'000102' || substr(bytes, 4) AS BLOB)"
        f" WHERE blob_id = {PART}"
    ),
    "a part's bytes": run(f"DELETE FROM blob_bytes WHERE blob_id = {PART}"),
    "a part's codec": run(f"UPDATE blobs SET codec = 1 - codec WHERE blob_id = {PART}"),
    "a part's length": run(
        f"UPDATE blobs SET raw_len = raw_len - 1, stored_len = 0 WHERE blob_id = {PART}"
    ),
    "a part that is a list": run(f"UPDATE blobs SET codec = 2 WHERE blob_id = {PART}"),
    "itself as a part": run(
        f"UPDATE blob_parts SET part_id = blob_id WHERE position = 1 AND blob_id = {OF}"
    ),
}
DATA = {"noise": NOISE[:5000], "text": TEXT, "list": THREE}
DAMAGED = [
    *((data, PIECE[name], f"{data}: {name}") for data in ("noise", "text") for name in PIECE),
    *(("list", LIST[name], f"list: {name}") for name in LIST),
]
AGAIN = ["bytes", "file", "append"]
CASES = [  # in the suite each is healed in one of the ways
    pytest.param(
        kind, damage, again, id=f"{name}, {again}", marks=[pytest.mark.soak] * (at != number % 3)
    )
    for number, (kind, damage, name) in enumerate(DAMAGED)
    for at, again in enumerate(AGAIN)
]


@pytest.mark.parametrize(("kind", "damage", "again"), CASES)
def test_damage_is_named_never_returned_and_healed(
    opened: Thread, raw: apsw.Connection, kind: str, damage: Damage, again: str
) -> None:
    """Damage of any kind raises DamagedBlobError wherever it is read; a put heals it."""
    data = DATA[kind]
    sound, blob = opened.blobs.put(b"another one"), opened.blobs.put(data)
    turn = opened.contexts.create("mine").append(data)
    raw.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
    damage(raw, bytes.fromhex(blob.hash))
    with eventq.open(opened.path) as fresh:
        for read in (
            lambda: fresh.blobs.get(blob.hash),
            lambda: list(fresh.blobs.stream(blob.hash)),
            lambda: fresh.contexts.turn(turn.turn_id),
        ):
            with pytest.raises(DamagedBlobError, match=blob.ref) as caught:
                read()
            assert caught.value.ref == blob.ref
        assert fresh.contexts.turn(turn.turn_id, payload=False).hash == blob.hash
        assert [fault.startswith(blob.ref) for fault in fresh.blobs.verify(blob.hash)] == [True]
        faults = fresh.blobs.verify()
        assert any(fault.startswith(blob.ref) for fault in faults)
        assert not any(sound.hash in fault for fault in faults)
        assert any(fault.startswith(blob.ref) for fault in fresh.check())
        assert fresh.blobs.get(sound.hash) == b"another one"
        with pytest.raises(StoreError, match="nothing was deleted"):
            fresh.gc(apply=True, grace=0)
        if again == "append":
            fresh.contexts.get("mine").append(data)
        else:
            healed = fresh.blobs.put(data if again == "bytes" else io.BytesIO(data))
            assert (healed.hash, healed.size, healed.new) == (blob.hash, len(data), False)
    with eventq.open(opened.path) as fresh:
        assert fresh.blobs.get(blob.hash) == b"".join(fresh.blobs.stream(blob.hash)) == data
        assert (fresh.blobs.verify(), fresh.check()) == ([], [])
        assert fresh.contexts.turn(turn.turn_id).payload == data
        assert fresh.blobs.stat(blob.ref).codec == blob.codec


def test_a_damaged_part_is_healed_by_any_blob_that_has_it(
    opened: Thread, raw: apsw.Connection
) -> None:
    """A part that two blobs share is healed for both by a put of either, or of the part itself."""
    part, other = NOISE[:MIB], NOISE[:MIB] + b"x" * MIB
    one, two = opened.blobs.put(NOISE), opened.blobs.put(other)
    for data in (NOISE, other, part, NOISE):
        flip(7)(raw, blake3(part).digest())
        with eventq.open(opened.path) as fresh:
            for blob in (one, two):
                with pytest.raises(DamagedBlobError, match=f"{blob.ref} is damaged: its part"):
                    fresh.blobs.get(blob.ref)
            fresh.blobs.put(data)
            assert (fresh.blobs.get(one.ref), fresh.blobs.get(two.ref)) == (NOISE, other)
            assert fresh.check() == []
    assert opened.blobs.has(blake3(part).digest())  # it was put by itself, and stays so


def test_verify_of_many_names_the_damaged_ones(opened: Thread, raw: apsw.Connection) -> None:
    """`verify` without a name reads every blob, over all pages, and names only damaged ones."""
    made = [opened.blobs.put(b"blob %d " % number * 20) for number in range(1200)]
    bad = [made[index] for index in (0, 499, 500, 777, 1199)]
    for blob in bad:
        flip(-2)(raw, bytes.fromhex(blob.hash))
    with eventq.open(opened.path, read_only=True) as reader:
        found = [fault.split()[0] for fault in reader.blobs.verify()]
    assert sorted(found) == sorted(blob.ref for blob in bad)


LIE = """
import resource, sys, eventq
path, name = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
with eventq.open(path) as thread:
    try:
        thread.blobs.get(name)
    except eventq.errors.DamagedBlobError as error:
        print(error.ref)
    print(len([fault for fault in thread.check() if name in fault]))
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="no limit of the address space")
@pytest.mark.parametrize("row_lies", [False, True])
def test_a_frame_that_lies_takes_no_memory(
    opened: Thread, raw: apsw.Connection, run_python: RunPython, row_lies: bool
) -> None:
    """A frame that claims 4 GiB, and a row that does, are damage, found within a GiB of memory."""
    blob = opened.blobs.put(TEXT)
    digest = bytes.fromhex(blob.hash)
    (stored,) = ask(raw, f"SELECT bytes FROM blob_bytes WHERE blob_id = {OF}", (digest,))[0]
    frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", (1 << 32) - 1) + stored[7:]
    assert zstandard.frame_content_size(frame) == (1 << 32) - 1
    raw.execute(f"UPDATE blob_bytes SET bytes = ? WHERE blob_id = {OF}", (frame, digest))
    if row_lies:
        PIECE["as long as can be"](raw, digest)
    assert run_python(LIE, opened.path, blob.hash).split() == [blob.ref, "1"]


@pytest.mark.parametrize(
    "damage",
    [
        run("UPDATE blobs SET stored_len = stored_len - 1 WHERE hash = ?"),
        run(f"INSERT INTO blob_bytes VALUES ({OF}, x'00')"),
    ],
    ids=["kept size", "bytes beside a list"],
)
def test_rows_that_lie_are_named(opened: Thread, raw: apsw.Connection, damage: Damage) -> None:
    """A kept size that is wrong, and bytes where there should be none, are found by a check."""
    blob = opened.blobs.put(THREE)
    damage(raw, bytes.fromhex(blob.hash))
    assert any(blob.ref in fault for fault in opened.check())


def test_a_stream_is_checked_before_its_first_byte(opened: Thread, raw: apsw.Connection) -> None:
    """Damage in the last part of a blob is found before the first part is returned."""
    blob = opened.blobs.put(THREE)
    assert max(len(piece) for piece in opened.blobs.stream(blob.ref)) == MIB
    flip(3)(raw, blake3(THREE[2 * MIB :]).digest())
    read: list[bytes] = []
    with pytest.raises(DamagedBlobError):
        read.extend(opened.blobs.stream(blob.ref))
    assert read == []


def held(thread: Thread, raw: apsw.Connection, blobs: list[Any]) -> list[bool]:
    """Return which blobs are still read when the disk has none of them any more."""
    raw.execute("DELETE FROM blob_bytes")

    def is_held(blob: Any) -> bool:
        try:
            return thread.blobs.get(blob.ref) is not None
        except DamagedBlobError:
            return False

    return [is_held(blob) for blob in blobs]


def test_reads_are_held_within_a_bound(
    path: str, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read last is held within EVENTQ_BLOB_CACHE bytes, and what is large never is."""
    monkeypatch.setenv("EVENTQ_BLOB_CACHE", "160000")
    with eventq.open(path) as thread:
        made = [thread.blobs.put(NOISE[n * 10_000 :][:10_000]) for n in range(40)]
        large = thread.blobs.put(NOISE[:10_001])
        for blob in [large, *made, made[-16], made[0]]:
            thread.blobs.get(blob.ref)
        expected = [True, *[False] * 23, True, False, *[True] * 14]
        assert held(thread, raw, made) == expected
        assert held(thread, raw, [large]) == [False]


@pytest.mark.parametrize("setting", ["0", ""])
def test_the_cache_may_be_off(
    path: str, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """EVENTQ_BLOB_CACHE=0 reads the disk each time, and so does `verify`."""
    monkeypatch.setenv("EVENTQ_BLOB_CACHE", setting)
    with eventq.open(path) as thread:
        blob, empty = thread.blobs.put(b"hello" * 10), thread.blobs.put(b"")
        assert (thread.blobs.get(blob.ref), thread.blobs.get(empty.ref)) == (b"hello" * 10, b"")
        assert held(thread, raw, [blob]) == [setting != "0"]
        assert len(thread.blobs.verify()) == 2


@pytest.mark.parametrize("version", range(migrate.OWN))
def test_a_thread_of_the_original_tool_that_is_only_read(
    original: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread without blobs wants to be opened for writing once, also half migrated."""
    if version:
        connection = apsw.Connection(os.path.join(original, "events.db"))
        files = migrate.files()
        monkeypatch.setattr(migrate, "SCHEMA", version)
        monkeypatch.setattr(migrate, "files", lambda: files[:version])
        migrate.apply(connection, "then")
        monkeypatch.undo()
        connection.close()
    with eventq.open(original, read_only=True) as reader:
        reads = (lambda: reader.blobs, lambda: reader.contexts, lambda: reader.reachable([]))
        for call in (*reads, reader.gc):
            with pytest.raises(StoreError, match="holds no turns or blobs - open it for writing"):
                call()
        assert [event.content for event in reader.peek()] == ["one", "two", "3"]
        assert reader.check() == []
    with eventq.open(original) as thread:
        blob = thread.blobs.put(b"hello")
    with eventq.open(original, read_only=True) as reader:
        assert (reader.blobs.get(blob.ref), reader.check()) == (b"hello", [])
