"""Packs that lie: what is small costs little memory and little work, whatever it says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import zstandard
from blake3 import blake3

import eventq
from eventq.transfer import packfile
from tests.contract.pack_files import blob, kept_blob, write

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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


def imported(path: str, folder: Path, *records: bytes) -> tuple[int, list[str]]:
    """Import a pack in a process with limited memory; return the count and the notes."""
    write(folder, blob=b"".join(records))
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, path, str(folder)],
        env={**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    taken, blobs, notes = json.loads(done.stdout)
    assert taken < 64  # MiB
    return blobs, [note for note in notes if note.startswith("blobs.pack: ")]


def packed(stored: bytes, raw_len: int, hashed: bytes = bytes(32)) -> bytes:
    """Return a record of a blob that says it is compressed."""
    return kept_blob(hashed, 1, raw_len, stored)


@pytest.mark.parametrize("sized", [True, False])
def test_a_long_blob_of_another_hash(sized: bool, path: str, tmp_path: Path) -> None:
    """A record of some KB that says it unfolds to 600 MiB is refused in bounded memory."""
    lie = packed(frame(600, sized=sized), 600 * MIB)
    blobs, (note,) = imported(path, tmp_path / "pack", lie)
    assert blobs == 0
    assert "holds other bytes than its hash says" in note


def test_a_long_blob_is_stored_in_bounded_memory(path: str, tmp_path: Path) -> None:
    """Blobs of 300 MiB and 100 MiB are never whole in memory; a repeated record is skipped."""
    whole = packed(frame(300), 300 * MIB, zeros(300))
    raw = kept_blob(zeros(100), 0, 100 * MIB, bytes(100 * MIB))
    assert imported(path, tmp_path / "pack", whole, whole, raw) == (2, [])
    with eventq.open(path) as thread:
        assert thread.blobs.stat(zeros(300)).size == 300 * MIB
        assert thread.blobs.verify(zeros(300)) == []


def test_a_length_that_is_not_that_of_the_frame(path: str, tmp_path: Path) -> None:
    """A record of another length than its frame says is refused in bounded memory."""
    lengths = [1, 300 * MIB - 1, 300 * MIB + 1, (1 << 32) - 1]
    lies = [packed(frame(300), length, zeros(300)) for length in lengths]
    blobs, notes = imported(path, tmp_path / "pack", *lies)
    assert blobs == 0
    assert [f"is not {n} bytes long" in note for n, note in zip(lengths, notes, strict=True)] == [
        True
    ] * 4


@pytest.mark.parametrize("sized", [True, False])
def test_a_frame_that_is_cut(sized: bool, path: str, tmp_path: Path) -> None:
    """A frame that ends early is refused; the blob after it comes."""
    whole = frame(20, sized=sized)
    cuts = [packed(whole[:cut], 20 * MIB, zeros(20)) for cut in (0, 3, 8, 17, len(whole) // 2)]
    blobs, notes = imported(path, tmp_path / "pack", *cuts, blob(b"sound"))
    assert (blobs, len(notes)) == (1, len(cuts))


def test_a_frame_with_a_huge_window(path: str, tmp_path: Path) -> None:
    """A frame that asks for a window of 128 MiB is refused; one of 8 MiB is read."""
    large = packed(frame(200, sized=False, window=27), 200 * MIB, zeros(200))
    small = packed(frame(20, sized=False, window=23), 20 * MIB, zeros(20))
    blobs, (note,) = imported(path, tmp_path / "pack", large, small)
    assert blobs == 1
    assert "too much memory" in note


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
