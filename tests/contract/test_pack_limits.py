"""Packs that lie: what is small costs little memory and little work, whatever it says of itself."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import zstandard
from blake3 import blake3

import eventq
from eventq.transfer import packfile
from tests.contract.pack_files import blob, kept_blob, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython

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
    """Return records of 300 MiB that say they have these lengths."""
    return [packed(frame(300, sized=sized), length, zeros(300)) for length in lengths]


def cut(*, sized: bool) -> list[bytes]:
    """Return records whose frames end early, and a sound one."""
    whole = frame(20, sized=sized)
    ends = 0, 3, 8, 17, len(whole) // 2
    return [*(packed(whole[:end], 20 * MIB, zeros(20)) for end in ends), blob(b"sound")]


LENGTHS = [1, 100_000, 300 * MIB - 1, 300 * MIB + 1, (1 << 32) - 1]
WRONG = [f"is not {length} bytes long" for length in LENGTHS]
# The records, how many blobs come of them, and what is said of the others.
CASES: dict[str, tuple[Callable[[], list[bytes]], int, list[str]]] = {
    "another hash": (lambda: [packed(frame(600), 600 * MIB)], 0, ["holds other bytes than its hash"]),
    "another hash, no length": (
        lambda: [packed(frame(600, sized=False), 600 * MIB)], 0, ["holds other bytes than its hash"],
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
        lambda: [*of_lengths(300 * MIB) * 2, kept_blob(zeros(100), 0, 100 * MIB, bytes(100 * MIB))], 2, [],
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
            assert thread.blobs.stat(zeros(300)).size == 300 * MIB
            assert thread.blobs.verify(zeros(300)) == []


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
