"""The work of imports and exports grows as what they carry does, and no pack that lies costs more."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import zstandard
from blake3 import blake3

import eventq
from eventq.transfer import packfile
from tests.contract.pack_files import BORN, added, blob, digest, head, kept_blob, line, turn, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.conftest import RunPython

FEW, MANY = 150, 600
HASH = digest(b"1").hex()
ONE = {"blob": blob(b"1"), "turn": turn(1, 0, 0, b"1"), "head": head(1, 1, 0)}


@contextmanager
def hooked(hook: Callable[[apsw.Connection], None]) -> Iterator[None]:
    """Hook into connections that are opened meanwhile."""
    apsw.connection_hooks.append(hook)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(hook)


@contextmanager
def steps() -> Iterator[list[int]]:
    """Count the steps of all statements of connections that are opened meanwhile."""
    counted = [0]

    def tick() -> bool:
        counted[0] += 1
        return False

    with hooked(lambda connection: connection.set_progress_handler(tick, 10)):
        yield counted


def each(numbers: Iterable[int], make: Callable[[int], bytes]) -> bytes:
    """Return a record for each number."""
    return b"".join(map(make, numbers))


def roots(count: int) -> dict[str, bytes]:
    """Return first turns with payloads of their own."""
    numbers = range(1, count + 1)
    return {
        "blob": each(numbers, lambda n: blob(b"%d" % n)),
        "turn": each(numbers, lambda n: turn(n, 0, 0, b"%d" % n)),
    }


def patch(at: int = 5, blob: str | None = None, turn_id: int = 1) -> bytes:
    """Return a patch."""
    return line(patch=turn_id, blob=blob, flags=0, created_at_ms=at)


def named(number: int) -> bytes:
    """Return the name of a context."""
    return line(context=number, name=f"name {number}", fork_of=None)


def chain_among_roots(count: int) -> dict[str, bytes]:
    """Return a chain of turns of one payload, and as many first turns of others."""
    first = roots(2 * count)
    log = each(range(1, count + 1), lambda n: turn(n, n - 1, n - 1, b"ok"))
    return {"blob": blob(b"ok") + first["blob"], "turn": log + first["turn"][count * 80 :]}


# What there may be much of; `n` is how many.
SHAPES: dict[str, Callable[[int], dict[str, bytes]]] = {
    "equal patches": lambda n: {**ONE, "beside": patch() * n},
    "patches of one turn": lambda n: {**ONE, "beside": each(range(n), lambda at: patch(at, HASH))},
    "equal attempts": lambda n: {**ONE, "beside": line(attempt=1, blob=HASH, created_at_ms=5) * n},
    "lost heads": roots,
    "contexts at one turn": lambda n: {**ONE, "head": each(range(1, n + 1), lambda one: head(one, 1, 0))},
    "contexts of one moment": lambda n: {**roots(n), "head": each(range(1, n + 1), lambda one: head(one, one, 0))},
    "contexts of many moments": lambda n: {
        **ONE, "head": each(range(1, n + 1), lambda one: head(one, 1, 0, at=BORN + one)),
        "beside": each(range(2, n + 1), named),
    },
    "equal turns": lambda n: {
        "blob": blob(b"1"), "turn": each(range(1, n + 1), lambda one: turn(one, 0, 0, b"1")), "head": head(1, n, 0),
    },
    "equal first turns": lambda n: {
        "blob": blob(b"1"), "turn": each(range(1, n + 1), lambda one: turn(one, 0, 0, b"1", at=BORN + one)),
        "head": each(range(1, n + 1), lambda one: head(one, one, 0, at=BORN + one)),
    },
    "a chain of one payload among first turns": chain_among_roots,
}  # fmt: skip


def thread_with_a_turn(folder: Path) -> str:
    """Return a thread with a turn and a context, so that no id of a pack is free."""
    path = eventq.init(folder)
    with eventq.open(path) as thread:
        thread.contexts.create("another").append("another")
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_an_import_is_linear(shape: str, tmp_path: Path) -> None:
    """Four times the data takes about four times the steps, with the same ids or others."""
    taken: dict[str, list[int]] = {}
    for count in (FEW, MANY):
        folder = write(tmp_path / f"pack-{count}", **SHAPES[shape](count))
        for what, path in (
            ("fresh", eventq.init(tmp_path / f"fresh-{count}")),
            ("other ids", thread_with_a_turn(tmp_path / f"other-{count}")),
        ):
            with steps() as counted, eventq.open(path) as thread:
                for when in ("first", "again"):
                    before = counted[0]
                    found = thread.import_pack(folder)
                    taken.setdefault(f"{what}, {when}", []).append(counted[0] - before)
                assert added(found)[1:] == (0, 0, 0)
    for few, many in taken.values():
        assert many < 6 * few, taken


def told(number: int) -> bytes:
    """Return a patch, an attempt, a ref, a root and a run."""
    at = 4 * number + 1
    named: dict[str, Any] = {"ref": HASH, "blob": digest(b"%d" % number).hex()}
    run = {"run": number + 2, "name": "r", "group": "", "status": "active", "start": 1}
    attempt = {"attempt": at, "blob": HASH, "created_at_ms": 5}
    rest = (attempt, named, {"root": at, "hash": HASH}, run)
    return patch(number, HASH, at) + b"".join(line(**one) for one in rest)


def test_an_export_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the patches, refs, attempts and runs take about four times the steps."""
    monkeypatch.setattr("eventq.store.reach.PAGE", 10)
    taken: dict[str, list[int]] = {"export": [], "copy": []}
    for count in (FEW, MANY):
        folder = write(
            tmp_path / f"pack-{count}",
            blob=each(range(count), lambda n: blob(b"%d" % n)),
            turn=ONE["turn"] + each(range(2, 4 * count), lambda n: turn(n, 1, 1, b"1", at=BORN + n)),
            head=ONE["head"] + each(range(count), lambda n: head(n + 2, 4 * n + 1, 0, at=BORN + n)),
            beside=each(range(count), told),
        )  # fmt: skip
        with eventq.open(eventq.init(tmp_path / f"thread-{count}")) as thread:
            thread.import_pack(folder)
            contexts = [one.context_id for one in thread.contexts]
            with steps() as counted:
                thread.export_pack(tmp_path / f"out-{count}")
            taken["export"].append(counted[0])
            path = eventq.init(tmp_path / f"copy-{count}")
            with steps() as counted, eventq.open(path) as other:
                thread.copy_to(other, contexts)
            taken["copy"].append(counted[0])
    for few, many in taken.values():
        assert many < 6 * few, taken


def test_an_export_reads_many_blobs_at_once(tmp_path: Path) -> None:
    """An export takes far fewer statements than blobs."""
    path, statements = eventq.init(tmp_path / "thread"), [0]

    def count(_: object) -> None:
        statements[0] += 1

    with eventq.open(path) as thread:
        thread.import_pack(write(tmp_path / "pack", **roots(FEW)))
    traced = hooked(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, count))
    with traced, eventq.open(path) as thread:
        thread.export_pack(tmp_path / "out")
    assert 0 < statements[0] < FEW / 2
    assert (tmp_path / "out" / "blobs.idx").stat().st_size == 52 * FEW


# Packs that lie of lengths.


MIB = 1 << 20
ZEROS = bytes(MIB)
IMPORT = """
import json, resource, sys
import eventq
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "linux" else 1 << 20)
with eventq.open(sys.argv[1]) as thread:
    thread.blobs.put(bytes(8 << 20))  # whatever an import needs anyway is there
    before = peak()
    found = thread.import_pack(sys.argv[2])
    print(json.dumps([peak() - before, found.blobs, found.notes]))
"""


def frame(mib: int, *, sized: bool = True, window: int = 19) -> bytes:
    """Return so many MiB of zeros as one frame, without ever holding them."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        1, window_log=window, write_content_size=sized
    )
    made = zstandard.ZstdCompressor(compression_params=parameters).compressobj(
        size=mib * MIB if sized else -1
    )
    return b"".join([*(made.compress(ZEROS) for _ in range(mib)), made.flush()])


def zeros(mib: int) -> bytes:
    """Return the hash of so many MiB of zeros."""
    hasher = blake3()
    for _ in range(mib):
        hasher.update(ZEROS)
    return bytes(hasher.digest())


def packed(stored: bytes, raw_len: int, hashed: bytes = bytes(32)) -> bytes:
    """Return a record of a blob that says it is compressed."""
    return kept_blob(hashed, 1, raw_len, stored)


def of_lengths(*lengths: int, sized: bool = True) -> list[bytes]:
    """Return records of 160 MiB that say they have these lengths."""
    return [packed(frame(160, sized=sized), length, zeros(160)) for length in lengths]


def cut(*, sized: bool) -> list[bytes]:
    """Return records whose frames end early, and a sound one."""
    whole = frame(20, sized=sized)
    ends = 0, 3, 8, 17, len(whole) // 2
    return [*(packed(whole[:end], 20 * MIB, zeros(20)) for end in ends), blob(b"sound")]


LENGTHS = [1, 100_000, 160 * MIB - 1, 160 * MIB + 1, (1 << 32) - 1]
WRONG = [f"is not {length} bytes long" for length in LENGTHS]
# The records, how many blobs come of them, and what is said of the others.
CASES: dict[str, tuple[Callable[[], list[bytes]], int, list[str]]] = {
    "another hash": (lambda: [packed(frame(320), 320 * MIB)], 0, ["holds other bytes than its hash"]),
    "another hash, no length": (
        lambda: [packed(frame(320, sized=False), 320 * MIB)], 0, ["holds other bytes than its hash"],
    ),
    "another length": (lambda: of_lengths(*LENGTHS), 0, WRONG),
    "another length, no length": (lambda: of_lengths(*LENGTHS, sized=False), 0, WRONG),
    "cut frames": (lambda: cut(sized=True), 1, [""] * 5),
    "cut frames, no length": (lambda: cut(sized=False), 1, [""] * 5),
    "a huge window": (
        lambda: [packed(frame(200, sized=False, window=27), 200 * MIB, zeros(200)),
                 packed(frame(20, sized=False, window=23), 20 * MIB, zeros(20))],
        1, ["too much memory"],
    ),
    "sound, and twice": (
        lambda: [*of_lengths(160 * MIB) * 2, kept_blob(zeros(100), 0, 100 * MIB, bytes(100 * MIB))], 2, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_an_import_takes_bounded_memory(
    kind: str, path: str, tmp_path: Path, run_python: RunPython
) -> None:
    """No blob is whole in memory, sound or not, whatever its record or its frame says."""
    make, count, said = CASES[kind]
    folder = write(tmp_path / "pack", blob=b"".join(make()))
    taken, blobs, all_notes = json.loads(run_python(IMPORT, path, str(folder)))
    notes = [note for note in all_notes if note.startswith("blobs.pack: ")]
    assert taken < 64  # MiB
    assert blobs == count
    assert [words in note for words, note in zip(said, notes, strict=True)] == [True] * len(said)
    if not said:
        with eventq.open(path) as thread:
            assert thread.blobs.stat(zeros(160)).size == 160 * MIB
            assert thread.blobs.verify(zeros(160)) == []


@pytest.mark.parametrize(("mib", "count"), [(100, 60), (4, 1500), (1, 6000)])
def test_many_lies(
    mib: int, count: int, thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After several bombs no more are decompressed; sound blobs are still imported."""
    lie = frame(mib)
    lies = [packed(lie, mib * MIB, number.to_bytes(32, "big")) for number in range(count)]
    sound = blob(os.urandom(5 * MIB)) + blob(b"sound")
    real, unfolded = packfile.Unfolded.read, [0]

    def read(self: packfile.Unfolded, size: int) -> bytes:
        data = real(self, size)
        unfolded[0] += len(data)
        return data

    monkeypatch.setattr(packfile.Unfolded, "read", read)
    found = thread.import_pack(write(tmp_path / "pack", blob=b"".join(lies) + sound))
    assert found.blobs == 2
    assert sum("was left out" in note for note in found.notes) == count
    assert unfolded[0] < 1500 * MIB  # without an end it would be 6,000
