"""Bytes are kept by their hash: once, whole, and never given back when they are not what they were."""

from __future__ import annotations

import array
import hashlib
import io
import os
import random
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import apsw
import pytest
import zstandard
from blake3 import blake3

import eventq
from eventq import InputError
from eventq.blobs import CUT_BYTES, PART_BYTES, parse_ref
from eventq.errors import (
    DamagedBlobError,
    ReadOnlyError,
    StoreError,
    TooLargeError,
    UnknownBlobError,
)
from eventq.records import NewTurn
from eventq.storage.sqlite import migrate
from tests.conftest import ROOT
from tests.contract.support import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Clock, RunPython

KIB, MIB = 1 << 10, 1 << 20
NOISE = random.Random(7).randbytes(3 * MIB + 2)
_LINES = random.Random(8)
TEXT = b"".join(
    b"%06d the quick brown %d\n" % (n, _LINES.randrange(10**9)) for n in range(100_000)
)[: 3 * MIB + 2]
UNKNOWN = "blob:blake3:" + "0" * 64
TABLES = (
    "blobs", "blob_bytes", "blob_parts", "blob_refs", "pins", "event_blob_refs", "turns", "turn_patches", "contexts",
    "context_log", "turn_keys",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


def rows(raw: apsw.Connection) -> dict[str, list[Any]]:
    """Give all rows of all tables of the memory."""
    return {table: ask(raw, f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}


def counts(raw: apsw.Connection) -> tuple[int, int, int]:
    """Give the number of blobs, of kept bytes and of entries in lists of parts."""
    tables = ("blobs", "blob_bytes", "blob_parts")
    one, two, three = (int(ask(raw, f"SELECT count(*) FROM {table}")[0][0]) for table in tables)
    return one, two, three


def digest(name: str) -> bytes:
    """Give the bytes of a hash."""
    return bytes.fromhex(name)


def part_sizes(raw: apsw.Connection, name: str) -> list[int]:
    """Give the sizes of the parts of a blob, in order."""
    sql = (
        "SELECT p.raw_len FROM blobs b JOIN blob_parts USING (blob_id) JOIN blobs p ON p.blob_id = part_id"
        " WHERE b.hash = ? ORDER BY position"
    )
    return [int(size) for (size,) in raw.execute(sql, (digest(name),))]


class Drip(io.RawIOBase):
    """A pipe that gives one byte at a time, or a few."""

    def __init__(self, data: bytes, step: int = 1) -> None:
        self._data = data
        self._step = step
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        """Give the next bytes."""
        step = self._step if size < 0 else min(self._step, size)
        found = self._data[self._at : self._at + step]
        self._at += len(found)
        return found


# --- what goes in comes out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["noise", "text", "zeros"])
@pytest.mark.parametrize(
    "size",
    [
        0, 1, 11, 1000, CUT_BYTES - 1, CUT_BYTES, CUT_BYTES + 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1,
        2 * PART_BYTES - 1, 2 * PART_BYTES, 2 * PART_BYTES + 1, 3 * PART_BYTES,
    ],
)  # fmt: skip
def test_bytes_come_back_and_are_kept_as_promised(
    thread: eventq.Thread, raw: apsw.Connection, kind: str, size: int
) -> None:
    """Rows 72, 75: the hash is BLAKE3 of the bytes, equal bytes come back, and how they are kept never makes them more."""
    data = {"noise": NOISE, "text": TEXT, "zeros": bytes(size)}[kind][:size]
    name = blake3(data).hexdigest()
    blob = thread.blobs.put(data)
    assert (blob.hash, blob.ref, blob.size, blob.new) == (name, f"blob:blake3:{name}", size, True)
    if kind == "noise" or size in (0, 1, 11):
        codec = "none" if size <= PART_BYTES and (kind != "zeros" or size < 11) else "parts"
        codec = blob.codec if kind == "zeros" else codec
    else:
        codec = "zstd" if size < CUT_BYTES or (kind == "zeros" and size == CUT_BYTES) else "parts"
    assert blob.codec == codec
    assert 0 <= blob.stored <= size
    if codec == "none" or kind == "noise":
        assert blob.stored == size
    elif kind == "text" and size >= 1000:
        assert 0 < blob.stored < size * 3 // 4
    kept = ask(
        raw, "SELECT octet_length(bytes), codec, raw_len FROM blob_bytes JOIN blobs USING (blob_id)"
    )
    for length, number, raw_len in kept:
        assert raw_len <= PART_BYTES
        assert number == (1 if length < raw_len else 0)
    parts = part_sizes(raw, name)
    assert sum(parts) == (size if codec == "parts" else 0)
    assert max(parts, default=0) <= (PART_BYTES if kind == "noise" else CUT_BYTES)
    assert ask(raw, "SELECT sum(octet_length(bytes)) FROM blob_bytes")[0][0] <= size
    with eventq.open(thread.path, read_only=True) as reader:
        assert reader.blobs.get(name) == data
        assert b"".join(reader.blobs.stream(name)) == data
        assert reader.blobs.stat(name) == eventq.records.Blob(
            name, size, blob.stored, codec, new=False
        )
        assert reader.blobs.verify(name) == []


@pytest.mark.parametrize("file_first", [False, True])
@pytest.mark.parametrize("file_second", [False, True])
@pytest.mark.parametrize(
    "data",
    [b"", b"hello", TEXT[:70_000], TEXT[: 2 * MIB], NOISE[:100_000], NOISE[: 2 * MIB]],
    ids=["empty", "few", "text", "long text", "noise", "long noise"],
)
def test_a_put_says_whether_it_was_new(
    thread: eventq.Thread,
    raw: apsw.Connection,
    data: bytes,
    file_first: bool,
    file_second: bool,
) -> None:
    """Row 72: equal bytes are stored once, as bytes and as a file; the second put says that they were there."""
    first = thread.blobs.put(io.BytesIO(data) if file_first else data)
    before = counts(raw)
    second = thread.blobs.put(io.BytesIO(data) if file_second else data)
    assert (first.new, second.new) == (True, False)
    assert first.hash == second.hash
    assert (first.size, first.stored, first.codec) == (second.size, second.stored, second.codec)
    assert counts(raw) == before


def test_every_kind_of_buffer(thread: eventq.Thread) -> None:
    """Bytes, bytearrays and memoryviews of any format, shape and step are the bytes they show, and are let go again."""
    numbers = array.array("I", range(20_000))
    whole = numbers.tobytes()
    given: list[tuple[Any, bytes]] = [
        (b"abc", b"abc"),
        (bytearray(b"abd"), b"abd"),
        (memoryview(b"abe"), b"abe"),
        (memoryview(b"a1b2c3")[::2], b"abc"),
        (memoryview(b"abcdef")[::-1], b"fedcba"),
        (memoryview(b"abcdef")[2:4], b"cd"),
        (memoryview(numbers), whole),
        (memoryview(numbers)[::3], numbers[::3].tobytes()),
        (memoryview(whole).cast("B", [200, 400]), whole),
        (memoryview(bytearray(TEXT[:90_000]))[::2], TEXT[:90_000:2]),
        (memoryview(array.array("d", [1.5, 2.5])), struct.pack("2d", 1.5, 2.5)),
        (bytearray(), b""),
        (memoryview(b""), b""),
        (memoryview(bytearray()), b""),
    ]
    for data, expected in given:
        blob = thread.blobs.put(data)
        assert blob.hash == blake3(expected).hexdigest()
        assert thread.blobs.get(blob.hash) == expected
    big = bytearray(TEXT[:300_000])
    thread.blobs.put(big)
    big.extend(b"it is not held any more")


def test_a_column_first_view_is_its_bytes(thread: eventq.Thread) -> None:
    """A view whose columns lie one after the other in memory (an image, a matrix) is stored as the bytes that it shows."""
    buffers = pytest.importorskip("_testbuffer")
    view = memoryview(
        buffers.ndarray(list(range(12)), shape=[3, 4], format="B", flags=buffers.ND_FORTRAN)
    )
    assert view.contiguous
    assert not view.c_contiguous
    assert thread.blobs.get(thread.blobs.put(view).hash) == bytes(view)


@pytest.mark.parametrize("data", ["text", None, 7, ["list"], {"a": 1}, object()])
def test_what_is_no_bytes_is_refused(
    thread: eventq.Thread, raw: apsw.Connection, data: Any
) -> None:
    """Text, numbers and objects are refused with what to do, and nothing is stored."""
    with pytest.raises(
        InputError, match=r"a blob is bytes, not \w+ - encode it, or give a binary file"
    ):
        thread.blobs.put(data)
    assert counts(raw) == (0, 0, 0)


@pytest.mark.parametrize("size", [0, 1, 1000, CUT_BYTES, MIB, MIB + 1, 2 * MIB + 3])
@pytest.mark.parametrize("source", [NOISE, TEXT], ids=["noise", "text"])
def test_a_file_is_its_bytes(
    thread: eventq.Thread, tmp_path: Path, source: bytes, size: int
) -> None:
    """A file on the disk gives the blob that its bytes give, from where it stands to its end."""
    place = tmp_path / "file"
    place.write_bytes(b"skip" + source[:size])
    with place.open("rb") as file:
        file.seek(4)
        blob = thread.blobs.put(file)
    assert (blob.hash, blob.size) == (blake3(source[:size]).hexdigest(), size)
    assert thread.blobs.get(blob.ref) == source[:size]
    assert not thread.blobs.put(source[:size]).new


@pytest.mark.parametrize(
    ("size", "step"), [(3000, 1), (70_000, 1), (2 * MIB, 7000), (MIB + 1, 65_536)]
)
def test_a_pipe_gives_little_at_once(thread: eventq.Thread, size: int, step: int) -> None:
    """A pipe that gives one byte at a time, or a few, is read to its end."""
    for source in (NOISE, TEXT):
        blob = thread.blobs.put(Drip(source[:size], step))  # type: ignore[arg-type]
        assert blob.hash == blake3(source[:size]).hexdigest()
        assert thread.blobs.get(blob.ref) == source[:size]


def test_a_real_pipe(thread: eventq.Thread) -> None:
    """What another program writes into a pipe, slowly and for more than a MiB, is stored whole."""
    code = "import sys; d = b'0123456789' * 200000; [sys.stdout.buffer.write(d[n:n+999]) for n in range(0, len(d), 999)]"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, bufsize=0
    ) as program:
        assert program.stdout is not None
        blob = thread.blobs.put(program.stdout)  # type: ignore[arg-type]
    assert thread.blobs.get(blob.hash) == b"0123456789" * 200_000


def test_text_files_are_refused(
    thread: eventq.Thread, raw: apsw.Connection, tmp_path: Path
) -> None:
    """A file opened in text mode, also one that is empty or that turns to text late, is refused with what to do."""

    class Late(Drip):
        def read(self, size: int = -1) -> Any:
            return super().read(size) or "late"

    place = tmp_path / "file"
    for content in ("", "text"):
        place.write_text(content)
        with (
            place.open() as file,
            pytest.raises(InputError, match="gives str, not bytes - open it in binary mode"),
        ):
            thread.blobs.put(file)  # type: ignore[arg-type]
    for size in (10, 2 * MIB):
        with pytest.raises(InputError, match="gives str, not bytes"):
            thread.blobs.put(Late(NOISE[:size], 65_536))  # type: ignore[arg-type]
    assert ask(raw, "SELECT count(*) FROM blobs WHERE part = 0") == [(0,)]


def test_what_a_file_raises_comes_through(thread: eventq.Thread) -> None:
    """A file that fails while it is read gives its own error, and no blob can be seen."""

    class Broken(Drip):
        def read(self, size: int = -1) -> bytes:
            found = super().read(size)
            if not found:
                raise ZeroDivisionError
            return found

    for size in (10, 2 * MIB):
        with pytest.raises(ZeroDivisionError):
            thread.blobs.put(Broken(NOISE[:size], 65_536))  # type: ignore[arg-type]
    assert (len(thread.blobs), list(thread.blobs)) == (0, [])


def test_a_blob_is_bounded(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and files beyond the largest size are refused, and no blob can be seen."""
    monkeypatch.setattr("eventq.blobs.LARGEST", 2 * MIB)
    assert thread.blobs.put(NOISE[: 2 * MIB]).size == 2 * MIB
    for data in (NOISE[: 2 * MIB + 1], io.BytesIO(NOISE[: 2 * MIB + 1])):
        with pytest.raises(
            TooLargeError, match=r"the blob is too large \(2097153 bytes, the limit is 2097152\)"
        ):
            thread.blobs.put(data)
    assert len(thread.blobs) == 1


# --- names ------------------------------------------------------------------------------------------------------------

GOOD = "0123456789abcdef" * 4
BAD: list[Any] = [
    "", "blob:blake3:", GOOD[:63], GOOD + "0", GOOD.upper(), "A" + GOOD[1:], "blob:blake3:" + GOOD[:63],
    "blob:blake3:" + GOOD + "0", "blob:blake3:" + GOOD.upper(), "BLOB:BLAKE3:" + GOOD, "blob:blake3:../../x",
    "../" + GOOD[3:], "blob:blake3:../" + GOOD[3:], "blob:sha256:" + GOOD, "blob:blake3:blob:blake3:" + GOOD,
    " " + GOOD, GOOD + "\n", GOOD[:63] + "\n", GOOD[:63] + " ", GOOD[:63] + "g", "0x" + GOOD[2:], "\uff10" * 64,
    "\u0660" * 64, GOOD[:63] + "\u00b2", "1_" * 32, GOOD[:32] + " " + GOOD[33:], None, 7, 1.5, True, [], {}, object(),
    ("blob:blake3:" + GOOD).encode(), b"", b"x" * 31, b"x" * 33, GOOD.encode(), bytearray(32),
]  # fmt: skip


def test_refs_that_are_read() -> None:
    """Row 74: a ref and the bare 64 lower-case digits give the 32 bytes that they spell."""
    assert parse_ref(GOOD) == parse_ref("blob:blake3:" + GOOD) == bytes.fromhex(GOOD)


@pytest.mark.parametrize("name", BAD)
def test_refs_that_are_refused(thread: eventq.Thread, raw: apsw.Connection, name: Any) -> None:
    """Row 74: whatever else is None to the parser, and refused by every call that takes a name, without a trace."""
    assert parse_ref(name) is None
    blobs = thread.blobs
    calls: list[Callable[[], object]] = [
        lambda: blobs.get(name),
        lambda: blobs.stream(name),
        lambda: blobs.has(name),
        lambda: blobs.stat(name),
        lambda: blobs.refs(name),
        lambda: blobs.holders(name),
        lambda: blobs.pin(name, "me"),
        lambda: blobs.unpin(name, "me"),
        lambda: blobs.put(b"x", refs=[name]),
    ]
    if name is not None:  # no name at all is all blobs, and no expectation
        calls += [lambda: blobs.verify(name), lambda: blobs.put(b"x", expect_hash=name)]
    for call in calls:
        with pytest.raises(
            InputError, match="names no blob - give blob:blake3:<64 lower-case hex digits>"
        ):
            call()
    assert counts(raw) == (0, 0, 0)


def test_three_spellings_of_one_name(thread: eventq.Thread) -> None:
    """A blob is found by its ref, its digits and its 32 bytes."""
    blob = thread.blobs.put(b"hello")
    for name in (blob.ref, blob.hash, digest(blob.hash)):
        assert thread.blobs.get(name) == b"hello"
        assert thread.blobs.has(name)
        assert thread.blobs.stat(name).hash == blob.hash


def test_what_is_unknown(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """Row 73: get gives None and has False for what is not stored; everything else raises UnknownBlobError."""
    blobs = thread.blobs
    assert (blobs.get(UNKNOWN), blobs.has(UNKNOWN)) == (None, False)
    calls: list[Callable[[], object]] = [
        lambda: list(blobs.stream(UNKNOWN)),
        lambda: blobs.stat(UNKNOWN),
        lambda: blobs.refs(UNKNOWN),
        lambda: blobs.holders(UNKNOWN),
        lambda: blobs.verify(UNKNOWN),
        lambda: blobs.pin(UNKNOWN, "me"),
        lambda: blobs.unpin(UNKNOWN, "me"),
    ]
    for call in calls:
        with pytest.raises(
            UnknownBlobError, match=f"^missing blob {UNKNOWN} - put its bytes first$"
        ):
            call()
    assert not any(rows(raw).values())


# --- refused puts change nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"hello", TEXT[:70_000], NOISE[: 2 * MIB]], ids=["none", "few", "text", "parts"]
)
@pytest.mark.parametrize("file", [False, True])
def test_what_was_expected_must_come(
    thread: eventq.Thread, raw: apsw.Connection, data: bytes, file: bool
) -> None:
    """Another hash or another size than was declared is refused and no blob can be seen; the right ones are taken."""
    give: Callable[[], Any] = (lambda: io.BytesIO(data)) if file else (lambda: data)
    good = blake3(data).hexdigest()
    with pytest.raises(InputError, match=f"hash is {good}, not the {'0' * 64} that was declared"):
        thread.blobs.put(give(), expect_hash=UNKNOWN)
    for size in (len(data) + 1, len(data) - 1):
        with pytest.raises(InputError, match=f"not the {size} that were declared"):
            thread.blobs.put(give(), expect_size=size)
        with pytest.raises(InputError, match=f"not the {size} that were declared"):
            thread.blobs.put(give(), expect_size=size, expect_hash=good)
    assert (thread.blobs.get(good), len(thread.blobs)) == (None, 0)
    if not (
        file and len(data) > MIB
    ):  # of a stream, parts wait for a name, and the next collection takes them
        assert counts(raw) == (0, 0, 0)
    for name in (good, "blob:blake3:" + good, digest(good)):
        assert thread.blobs.put(give(), expect_hash=name, expect_size=len(data)).hash == good


def test_a_stream_that_was_refused_leaves_nothing_for_long(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """The parts of a stream that was refused at its end cannot be seen, and a collection deletes them all."""
    with pytest.raises(InputError):
        thread.blobs.put(io.BytesIO(NOISE[: 3 * MIB]), expect_hash=UNKNOWN)
    assert counts(raw)[0] > 0
    found = thread.gc(apply=True, grace=0)
    assert (found.blobs, found.hashes, found.stored) == (0, (), 3 * MIB)
    assert counts(raw) == (0, 0, 0)


@pytest.mark.parametrize("size", [10, 70_000])
def test_refs_must_be_stored(thread: eventq.Thread, raw: apsw.Connection, size: int) -> None:
    """Row 8: a ref to a blob that does not exist is refused as `missing blob <ref>`, and nothing changes."""
    there = thread.blobs.put(b"there")
    old = thread.blobs.put(b"old")
    context = thread.contexts.create()
    turn = context.append(b"a turn")
    before = rows(raw)
    wanted: list[Callable[[], object]] = [
        lambda: thread.blobs.put(TEXT[:size], refs=[there.ref, UNKNOWN]),
        lambda: thread.blobs.put(b"old", refs=[UNKNOWN]),
        lambda: context.append(NewTurn(TEXT[:size], refs=[there.ref, UNKNOWN])),
        lambda: context.append(NewTurn(b"old", refs=[UNKNOWN]), key="k"),
        lambda: thread.contexts.patch(turn.turn_id, NewTurn(TEXT[:size], refs=[UNKNOWN])),
    ]
    for call in wanted:
        with pytest.raises(UnknownBlobError, match=f"^missing blob {UNKNOWN} - "):
            call()
        assert rows(raw) == before
    assert thread.blobs.refs(old.ref) == []


def test_a_part_is_no_blob_that_can_be_named(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A chunk of a blob is not to be seen, pinned or referred to until it is put by itself; then it is, and stored once."""
    whole = thread.blobs.put(NOISE[: 2 * MIB])
    chunk = blake3(NOISE[:MIB]).hexdigest()
    assert (thread.blobs.get(chunk), thread.blobs.has(chunk), len(thread.blobs)) == (None, False, 1)
    for call in (
        lambda: thread.blobs.pin(chunk, "me"),
        lambda: thread.blobs.put(b"x", refs=[chunk]),
        lambda: thread.blobs.stat(chunk),
    ):
        with pytest.raises(UnknownBlobError):
            call()
    before = counts(raw)
    assert thread.blobs.put(NOISE[:MIB]).new
    assert not thread.blobs.put(NOISE[:MIB]).new
    assert counts(raw) == before
    assert thread.blobs.get(chunk) == NOISE[:MIB]
    assert [blob.hash for blob in thread.blobs] == sorted([whole.hash, chunk])
    assert thread.blobs.holders(chunk) == [f"parts of {whole.hash}"]


def test_a_part_that_a_turn_names_is_seen(thread: eventq.Thread) -> None:
    """A chunk that is appended as a turn's payload is a blob of its own from then on."""
    thread.blobs.put(NOISE[: 2 * MIB])
    turn = thread.contexts.create().append(NOISE[MIB : 2 * MIB])
    assert thread.blobs.get(turn.ref) == NOISE[MIB : 2 * MIB]
    assert f"turn {turn.turn_id}" in thread.blobs.holders(turn.ref)


def test_what_is_alike_shares_its_parts(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A text that grew, or was edited in the middle, adds only its new chunks, and each version comes back exactly."""
    versions = [TEXT[:400_000], TEXT[:420_000], TEXT[:200_000] + b"an edit" + TEXT[200_000:400_000]]
    names = []
    kept = []
    for data in versions:
        names.append(thread.blobs.put(data).hash)
        kept.append(int(ask(raw, "SELECT sum(octet_length(bytes)) FROM blob_bytes")[0][0]))
    assert kept[1] - kept[0] < kept[0] / 3
    assert kept[2] - kept[1] < kept[0] / 3
    with eventq.open(thread.path) as again:
        assert [again.blobs.get(name) for name in names] == versions


def test_a_blob_of_equal_parts(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A blob that repeats itself keeps one part once, and lists it as often as it occurs."""
    data = NOISE[:MIB] * 3
    blob = thread.blobs.put(data)
    assert thread.blobs.get(blob.hash) == data
    assert counts(raw) == (2, 1, 3)


# --- at once ----------------------------------------------------------------------------------------------------------

PUT = """
import eventq, random, sys
noise = random.Random(3).randbytes(1_300_000)
text = b"".join(b"%d line %d\\n" % (n, n * 7919 % 104729) for n in range(30_000))
with eventq.open(sys.argv[1]) as thread:
    print("ready", flush=True)
    sys.stdin.readline()
    for data in [*(b"few %d" % n for n in range(60)), text[:20_000], text[:300_000], text, noise[:100_000], noise]:
        print(thread.blobs.put(data).new)
"""


def test_processes_that_put_the_same(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """Row 76: of four processes that put the same bytes at once one stores each, and none sees an error."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PUT, thread.path],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    told = [program.communicate(timeout=120) for program in programs]
    assert [
        (program.returncode, words[1]) for program, words in zip(programs, told, strict=True)
    ] == [(0, "")] * 4
    answers = [words[0].split() for words in told]
    assert [sorted(each) for each in zip(*answers, strict=True)] == [["False"] * 3 + ["True"]] * 65
    assert len(thread.blobs) == 65
    assert ask(raw, "SELECT count(*), count(DISTINCT hash) FROM blobs")[0][0] == counts(raw)[0]


def test_threads_that_put_the_same(thread: eventq.Thread) -> None:
    """Row 76: threads that share one thread, or have their own, store equal bytes once, and read them meanwhile."""
    payloads = [b"few %d" % n for n in range(30)] + [
        TEXT[:60_000],
        TEXT[:300_000],
        NOISE[:200_000],
        NOISE[:1_100_000],
    ]
    gate = threading.Barrier(6)
    news: list[bool] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = thread if number % 2 else eventq.open(thread.path)
            gate.wait()
            for data in payloads:
                blob = mine.blobs.put(data)
                news.append(blob.new)
                if mine.blobs.get(blob.hash) != data:
                    errors.append(AssertionError(blob))
            if mine is not thread:
                mine.close()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert (news.count(True), len(thread.blobs)) == (len(payloads), len(payloads))


# --- what there is ----------------------------------------------------------------------------------------------------


def test_all_blobs_in_the_order_of_their_hashes(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterating gives every blob once, sorted, over several pages, and parts are left out; len counts them."""
    monkeypatch.setattr("eventq.blobs._PAGE", 7)
    made = [thread.blobs.put(b"%d" % number) for number in range(50)] + [
        thread.blobs.put(TEXT[:200_000])
    ]
    found = list(thread.blobs)
    assert [blob.hash for blob in found] == sorted(blob.hash for blob in made)
    assert len(thread.blobs) == 51
    assert {(b.hash, b.size, b.stored, b.codec) for b in found} == {
        (b.hash, b.size, b.stored, b.codec) for b in made
    }


def test_iterating_while_others_put(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put or collected while all blobs are listed disturbs nobody: each that stays is given exactly once."""
    monkeypatch.setattr("eventq.blobs._PAGE", 3)
    stay = {thread.blobs.put(b"stay %d" % number).hash for number in range(20)}
    for name in stay:
        thread.blobs.pin(name, "me")
    found: list[str] = []
    for number, blob in enumerate(thread.blobs):
        found.append(blob.hash)
        if number < 30:
            thread.blobs.put(b"new %d" % number)
        if number == 10:
            thread.gc(apply=True, grace=0)
    assert len(found) == len(set(found))
    assert stay <= set(found)


def test_refs_and_holders(thread: eventq.Thread) -> None:
    """`refs` gives what a blob names, sorted; `holders` who keeps it: turns, patches, blobs, parts, events and pins."""
    blobs = thread.blobs
    leaf = blobs.put(b"leaf")
    other = blobs.put(b"other")
    assert (blobs.refs(leaf.ref), blobs.holders(leaf.ref)) == ([], [])
    node = blobs.put(b"node", refs=[leaf.ref, other.hash, digest(leaf.hash)])
    assert blobs.refs(node.hash) == sorted([leaf.ref, other.ref])
    context = thread.contexts.create()
    turn = context.append(b"leaf")
    seq = context.patch(turn.turn_id, b"leaf")
    event = thread.push("self", "note", f"see {leaf.ref}")
    blobs.pin(leaf.ref, "me")
    blobs.pin(leaf.ref, "you")
    assert blobs.holders(leaf.ref) == [
        f"turn {turn.turn_id}", f"patch {seq}", f"blob {node.hash}", f"event {event.id}", "pin me", "pin you",
    ]  # fmt: skip
    assert blobs.holders(leaf.ref, 1)[-2:] == [f"event {event.id}", "pin me"]
    assert blobs.holders(other.ref) == [f"blob {node.hash}"]


def test_refs_of_equal_bytes_are_added(thread: eventq.Thread) -> None:
    """Putting bytes again with other refs keeps both; without any it loses none; naming oneself is no harm."""
    one, two = thread.blobs.put(b"one"), thread.blobs.put(b"two")
    node = thread.blobs.put(b"node", refs=[one.ref])
    thread.blobs.put(b"node", refs=[two.ref])
    thread.blobs.put(b"node")
    assert thread.blobs.refs(node.ref) == sorted([one.ref, two.ref])
    thread.blobs.put(b"node", refs=[node.ref])
    assert node.ref in thread.blobs.refs(node.ref)


@pytest.mark.parametrize("refs", ["blob:blake3:" + GOOD, GOOD, b"x" * 32])
def test_refs_are_several(thread: eventq.Thread, refs: Any) -> None:
    """One name in place of a list of names is refused, not read letter by letter."""
    with pytest.raises(InputError, match="refs are several names"):
        thread.blobs.put(b"x", refs=refs)
    assert len(thread.blobs) == 0


def test_pins(thread: eventq.Thread) -> None:
    """A pin belongs to its owner, holds once however often it is made, and says whether it was there."""
    one, two = thread.blobs.put(b"one"), thread.blobs.put(b"two")
    thread.blobs.pin(one.ref, "b")
    thread.blobs.pin(one.ref, "b")
    thread.blobs.pin(one.ref, "a")
    thread.blobs.pin(two.ref, "b")
    assert thread.blobs.pins() == [("a", one.hash), *sorted([("b", one.hash), ("b", two.hash)])]
    assert [thread.blobs.unpin(one.ref, owner) for owner in ("b", "b", "c")] == [True, False, False]
    assert thread.blobs.pins() == [("a", one.hash), ("b", two.hash)]
    for owner in ("", "a\nb", None, 7):
        with pytest.raises(InputError, match="owner"):
            thread.blobs.pin(one.ref, owner)  # type: ignore[arg-type]


# --- damage -----------------------------------------------------------------------------------------------------------

Damage = "Callable[[apsw.Connection, bytes], object]"
OF = "(SELECT blob_id FROM blobs WHERE hash = ?)"


def flip(at: int) -> Callable[[apsw.Connection, bytes], object]:
    """Give a damage that flips one byte of what is kept, from the front or from the back."""

    def work(raw: apsw.Connection, name: bytes) -> None:
        (stored,) = ask(raw, f"SELECT bytes FROM blob_bytes WHERE blob_id = {OF}", (name,))[0]
        changed = bytearray(stored)
        changed[at] ^= 0x41
        raw.execute(f"UPDATE blob_bytes SET bytes = ? WHERE blob_id = {OF}", (bytes(changed), name))

    return work


def run(sql: str) -> Callable[[apsw.Connection, bytes], object]:
    """Give a damage that is one statement."""
    return lambda raw, name: raw.execute(sql, (name,) * sql.count("?"))


PIECE: dict[str, Any] = {
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
PART = "(SELECT part_id FROM blob_parts WHERE position = 1 AND blob_id = (SELECT blob_id FROM blobs WHERE hash = ?))"
LIST: dict[str, Any] = {
    "no parts": run(f"DELETE FROM blob_parts WHERE blob_id = {OF}"),
    "first part gone": run(f"DELETE FROM blob_parts WHERE position = 0 AND blob_id = {OF}"),
    "last part gone": run(f"DELETE FROM blob_parts WHERE position = 2 AND blob_id = {OF}"),
    "order": run(
        f"UPDATE blob_parts SET part_id = (SELECT part_id FROM blob_parts q WHERE q.blob_id = blob_parts.blob_id AND"
        f" q.position = 2 - blob_parts.position) WHERE blob_id = {OF}"
    ),
    "one twice": run(f"INSERT INTO blob_parts SELECT blob_id, 9, part_id FROM blob_parts WHERE position = 2 AND blob_id = {OF}"),
    "one in place of another": run(f"UPDATE blob_parts SET part_id = {PART} WHERE position = 0 AND blob_id = {OF}"),
    "codec": run("UPDATE blobs SET codec = 0 WHERE hash = ?"),
    "compressed": run("UPDATE blobs SET codec = 1 WHERE hash = ?"),
    "shorter": run("UPDATE blobs SET raw_len = raw_len - 1 WHERE hash = ?"),
    "longer": run("UPDATE blobs SET raw_len = raw_len + 1 WHERE hash = ?"),
    "a byte of a part": run(f"UPDATE blob_bytes SET bytes = CAST(x'000102' || substr(bytes, 4) AS BLOB) WHERE blob_id = {PART}"),
    "a part's bytes": run(f"DELETE FROM blob_bytes WHERE blob_id = {PART}"),
    "a part's codec": run(f"UPDATE blobs SET codec = 1 - codec WHERE blob_id = {PART}"),
    "a part's length": run(f"UPDATE blobs SET raw_len = raw_len - 1, stored_len = 0 WHERE blob_id = {PART}"),
    "a part that is a list": run(f"UPDATE blobs SET codec = 2 WHERE blob_id = {PART}"),
    "itself as a part": run(f"UPDATE blob_parts SET part_id = blob_id WHERE position = 1 AND blob_id = {OF}"),
}  # fmt: skip
THREE = NOISE[: 2 * MIB + 5000]  # three parts
CASES = [
    *(
        (name, data, damage)
        for data in (NOISE[:5000], TEXT[:50_000])
        for name, damage in PIECE.items()
    ),
    *(("list: " + name, THREE, damage) for name, damage in LIST.items()),
]
IDS = [f"{name}, {len(data)}" for name, data, _ in CASES]


@pytest.mark.parametrize(("_name", "data", "damage"), CASES, ids=IDS)
@pytest.mark.parametrize("again", ["bytes", "file", "append"])
def test_damage_is_named_never_given_and_healed(
    thread: eventq.Thread,
    raw: apsw.Connection,
    _name: str,
    data: bytes,
    damage: Any,
    again: str,
) -> None:
    """Row 17: damage of any kind gives DamagedBlobError with the hash, from get, stream, verify and check; a put heals it."""
    try:
        damage_and_heal(thread, raw, data, damage, again)
    finally:
        for start in range(0, len(data), MIB):  # whatever was not healed
            thread.blobs.put(data[start : start + MIB])


def damage_and_heal(
    thread: eventq.Thread, raw: apsw.Connection, data: bytes, damage: Any, again: str
) -> None:
    """Damage a blob, look at it from all sides, and put it again."""
    sound = thread.blobs.put(b"another one")
    blob = thread.blobs.put(data)
    turn = thread.contexts.create("mine").append(data)
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    damage(raw, digest(blob.hash))
    with eventq.open(thread.path) as fresh:
        with pytest.raises(DamagedBlobError, match=blob.ref):
            fresh.blobs.get(blob.hash)
        with pytest.raises(DamagedBlobError, match=blob.ref):
            list(fresh.blobs.stream(blob.hash))
        with pytest.raises(DamagedBlobError) as caught:
            fresh.contexts.turn(turn.turn_id)
        assert caught.value.ref == blob.ref
        assert fresh.contexts.turn(turn.turn_id, payload=False).hash == blob.hash
        (fault,) = fresh.blobs.verify(blob.hash)
        assert fault.startswith(blob.ref)
        faults = fresh.blobs.verify()
        assert any(fault.startswith(blob.ref) for fault in faults)
        assert not any(sound.hash in fault for fault in faults)
        assert [fault for fault in fresh.check() if fault.startswith(blob.ref)] != []
        assert fresh.blobs.get(sound.hash) == b"another one"
        with pytest.raises(StoreError, match="nothing was deleted"):
            fresh.gc(apply=True, grace=0)
        if again == "append":
            fresh.contexts.get("mine").append(data)
        else:
            healed = fresh.blobs.put(data if again == "bytes" else io.BytesIO(data))
            assert (healed.hash, healed.size, healed.new) == (blob.hash, len(data), False)
    with eventq.open(thread.path) as fresh:
        assert fresh.blobs.get(blob.hash) == data
        assert b"".join(fresh.blobs.stream(blob.hash)) == data
        assert fresh.blobs.verify() == []
        assert fresh.check() == []
        assert fresh.contexts.turn(turn.turn_id).payload == data
    kept = ask(raw, "SELECT codec FROM blobs WHERE hash = ?", (digest(blob.hash),))[0][0]
    assert ("none", "zstd", "parts")[kept] == blob.codec


def test_a_damaged_part_is_healed_by_any_blob_that_has_it(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """A part that two blobs share is healed for both by a put of either, or of the part itself."""
    one = thread.blobs.put(NOISE[: 2 * MIB])
    two = thread.blobs.put(NOISE[:MIB] + b"x" * MIB)
    for data in (NOISE[: 2 * MIB], NOISE[:MIB] + b"x" * MIB, NOISE[:MIB]):
        flip(7)(raw, blake3(NOISE[:MIB]).digest())
        with eventq.open(thread.path) as fresh:
            for blob in (one, two):
                with pytest.raises(DamagedBlobError, match=f"{blob.ref} is damaged: its part"):
                    fresh.blobs.get(blob.ref)
            fresh.blobs.put(data)
            assert fresh.blobs.get(one.ref) == NOISE[: 2 * MIB]
            assert fresh.blobs.get(two.ref) == NOISE[:MIB] + b"x" * MIB
            assert fresh.check() == []
    assert thread.blobs.has(
        blake3(NOISE[:MIB]).digest()
    )  # it was put by itself, and stays so when it is healed
    flip(7)(raw, blake3(NOISE[:MIB]).digest())
    with eventq.open(thread.path) as fresh:
        fresh.blobs.put(NOISE[: 2 * MIB])
        assert fresh.blobs.get(blake3(NOISE[:MIB]).digest()) == NOISE[:MIB]


def test_verify_of_many_names_the_damaged_ones(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """`verify` without a name reads every blob over all pages, and names each damaged one and no other."""
    made = [thread.blobs.put(b"blob %d " % number * 20) for number in range(1200)]
    bad = [made[index] for index in (0, 499, 500, 777, 1199)]
    for blob in bad:
        flip(-2)(raw, digest(blob.hash))
    with eventq.open(thread.path, read_only=True) as reader:
        assert sorted(fault.split()[0] for fault in reader.blobs.verify()) == sorted(
            blob.ref for blob in bad
        )
    for blob in bad:
        thread.blobs.put(b"blob %d " % made.index(blob) * 20)


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


def lie(raw: apsw.Connection, name: str) -> None:
    """Let the frame of a blob claim 4 GiB."""
    (stored,) = ask(raw, f"SELECT bytes FROM blob_bytes WHERE blob_id = {OF}", (digest(name),))[0]
    frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", (1 << 32) - 1) + stored[7:]
    assert zstandard.frame_content_size(frame) == (1 << 32) - 1
    raw.execute(f"UPDATE blob_bytes SET bytes = ? WHERE blob_id = {OF}", (frame, digest(name)))


@pytest.mark.skipif(sys.platform == "darwin", reason="no limit of the address space")
def test_a_frame_that_lies_takes_no_memory(
    thread: eventq.Thread, raw: apsw.Connection, run_python: RunPython
) -> None:
    """A frame that claims 4 GiB is damage, found within a GiB of address space."""
    blob = thread.blobs.put(TEXT[:30_000])
    lie(raw, blob.hash)
    assert run_python(LIE, thread.path, blob.hash).split() == [blob.ref, "1"]
    thread.blobs.put(TEXT[:30_000])


@pytest.mark.skipif(sys.platform == "darwin", reason="no limit of the address space")
def test_a_frame_and_a_row_that_lie_take_no_memory(
    thread: eventq.Thread, raw: apsw.Connection, run_python: RunPython
) -> None:
    """The same when the row claims as much: one piece is never larger than a MiB, so nothing so large is believed."""
    blob = thread.blobs.put(TEXT[:30_000])
    lie(raw, blob.hash)
    raw.execute("UPDATE blobs SET raw_len = 4294967295 WHERE hash = ?", (digest(blob.hash),))
    try:
        assert run_python(LIE, thread.path, blob.hash).split() == [blob.ref, "1"]
    finally:
        thread.blobs.put(TEXT[:30_000])


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE blobs SET stored_len = stored_len - 1 WHERE hash = ?",
        f"INSERT INTO blob_bytes VALUES ({OF}, x'00')",
    ],
    ids=["stored_len", "bytes beside a list"],
)
def test_rows_that_lie_are_named(thread: eventq.Thread, raw: apsw.Connection, sql: str) -> None:
    """A kept size that is not that of the bytes, and bytes where there should be none, are found by check."""
    blob = thread.blobs.put(THREE)
    raw.execute(sql, (digest(blob.hash),))
    try:
        assert any(blob.ref in fault for fault in thread.check())
    finally:
        raw.execute(f"DELETE FROM blob_bytes WHERE blob_id = {OF}", (digest(blob.hash),))
        raw.execute(
            f"UPDATE blobs SET stored_len = (SELECT sum(p.stored_len) FROM blob_parts JOIN blobs p ON p.blob_id ="
            f" part_id WHERE blob_parts.blob_id = {OF}) WHERE hash = ?",
            (digest(blob.hash), digest(blob.hash)),
        )


@pytest.mark.parametrize(
    "data",
    [NOISE[:5000], THREE],
    ids=["piece", "parts"],
)
def test_a_stream_of_a_blob_that_goes_away_is_no_shorter_blob(
    thread: eventq.Thread, data: bytes
) -> None:
    """A blob that is collected while it is streamed gives an error or all of its bytes, never fewer without a word."""
    for taken in (0, 1):
        blob = thread.blobs.put(data)
        stream = thread.blobs.stream(blob.ref)
        first = [next(stream) for _ in range(taken)]
        thread.gc(apply=True, grace=0)
        assert not thread.blobs.has(blob.ref)
        try:
            found = b"".join([*first, *stream])
        except StoreError:
            found = data
        assert found == data


def test_a_stream_is_checked_before_its_first_byte(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """Damage in the last part of a blob is found before the first part is given."""
    blob = thread.blobs.put(THREE)
    flip(3)(raw, blake3(THREE[2 * MIB :]).digest())
    given: list[int] = []
    with pytest.raises(DamagedBlobError):
        given.extend(len(piece) for piece in thread.blobs.stream(blob.ref))
    assert given == []
    thread.blobs.put(THREE)
    assert max(len(piece) for piece in thread.blobs.stream(blob.ref)) == MIB


# --- cache and memory -------------------------------------------------------------------------------------------------


def test_reads_are_held_within_a_bound(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is held, checked, within EVENTQ_BLOB_CACHE bytes: the latest stay, and what is large never does."""
    monkeypatch.setenv("EVENTQ_BLOB_CACHE", "160000")
    with eventq.open(path) as thread:
        blobs = thread.blobs
        made = [blobs.put(NOISE[n * 10_000 : (n + 1) * 10_000]) for n in range(40)]
        large = blobs.put(NOISE[:10_001])
        for blob in [large, *made]:
            blobs.get(blob.ref)
            assert blobs._cache._size == sum(map(len, blobs._cache._found.values())) <= 160_000
        assert list(blobs._cache._found) == [digest(blob.hash) for blob in made[-16:]]
        blobs.get(made[-16].ref)
        blobs.get(made[0].ref)
        assert digest(made[-16].hash) in blobs._cache._found
        assert digest(made[-15].hash) not in blobs._cache._found


@pytest.mark.parametrize("setting", ["0", "", "nonsense"])
def test_the_cache_may_be_off(
    path: str, raw: apsw.Connection, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """EVENTQ_BLOB_CACHE=0 reads the disk each time; nonsense is the default."""
    monkeypatch.setenv("EVENTQ_BLOB_CACHE", setting)
    with eventq.open(path) as thread:
        blob, empty = thread.blobs.put(b"hello" * 10), thread.blobs.put(b"")
        assert (thread.blobs.get(blob.ref), thread.blobs.get(empty.ref)) == (b"hello" * 10, b"")
        flip(1)(raw, digest(blob.hash))
        if setting == "0":
            with pytest.raises(DamagedBlobError):
                thread.blobs.get(blob.ref)
        else:
            assert thread.blobs.get(blob.ref) == b"hello" * 10
        assert len(thread.blobs.verify()) == 1  # which reads the disk


def test_what_was_collected_is_not_in_the_cache(thread: eventq.Thread) -> None:
    """A blob that was read and then collected is gone, for this process too."""
    blob = thread.blobs.put(b"hello")
    assert thread.blobs.get(blob.ref) == b"hello"
    with eventq.open(thread.path) as other:
        other.gc(apply=True, grace=0)
    assert thread.blobs.get(blob.ref) is None


MEMORY = """
import io, random, resource, sys, eventq
from blake3 import blake3
def peak():
    try:
        with open("/proc/self/status") as file:  # getrusage counts what the parent held when it forked
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1024)
path, place, what = sys.argv[1:]
with eventq.open(path) as thread:
    warm = thread.blobs.put(io.BytesIO(random.Random(1).randbytes(1 << 20) + bytes(1 << 20)))
    for piece in thread.blobs.stream(warm.ref):
        pass
    base = peak()
    if what == "put":
        with open(place, "rb") as file:
            name = thread.blobs.put(file).hash
    else:
        name = max(thread.blobs, key=lambda blob: blob.size).hash
        if what == "get":
            size = len(thread.blobs.get(name))
        else:
            size = sum(map(len, thread.blobs.stream(name))) if what == "stream" else len(thread.blobs.verify())
    print(name, peak() - base)
"""


@pytest.mark.parametrize("kind", ["noise", "text"])
def test_large_files_in_bounded_memory(
    path: str, tmp_path: Path, run_python: RunPython, kind: str
) -> None:
    """A blob of 64 MiB is put, streamed and verified within 40 MiB, and got within that beside its bytes."""
    place = tmp_path / "file"
    chance = random.Random(2)
    hasher = blake3()
    with place.open("wb") as file:
        for number in range(64):
            block = (
                chance.randbytes(MIB)
                if kind == "noise"
                else (b"%d " % number + chance.randbytes(99).hex().encode()) * 5300
            )
            block = block[:MIB].ljust(MIB)
            hasher.update(block)
            file.write(block)
    for what, bound in (("put", 40), ("stream", 40), ("verify", 40), ("get", 64 + 40)):
        name, more = run_python(MEMORY, path, str(place), what).split()
        assert name == hasher.hexdigest()
        assert float(more) < bound, what


# --- doors that are closed --------------------------------------------------------------------------------------------


def test_a_reader_reads_and_does_not_write(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A thread that was opened to read gives every answer about blobs, and refuses to put, pin, unpin and collect."""
    blob = thread.blobs.put(THREE)
    thread.blobs.pin(blob.ref, "me")
    before = rows(raw)
    with eventq.open(thread.path, read_only=True) as reader:
        blobs = reader.blobs
        assert blobs.get(blob.ref) == b"".join(blobs.stream(blob.ref)) == THREE
        assert (blobs.has(blob.ref), blobs.stat(blob.ref).size, len(blobs)) == (True, len(THREE), 1)
        assert [each.hash for each in blobs] == [blob.hash]
        assert (blobs.refs(blob.ref), blobs.holders(blob.ref), blobs.verify()) == (
            [],
            ["pin me"],
            [],
        )
        for call in (
            lambda: blobs.put(b"x"),
            lambda: blobs.put(THREE),
            lambda: blobs.put(io.BytesIO(THREE + b"x")),
            lambda: blobs.pin(blob.ref, "you"),
            lambda: blobs.unpin(blob.ref, "me"),
            lambda: reader.gc(apply=True),
        ):
            with pytest.raises(ReadOnlyError, match="was opened to read"):
                call()
        assert reader.gc(grace=0).blobs == 0
    assert rows(raw) == before


@pytest.mark.parametrize("version", range(2))
def test_an_older_thread_that_is_only_read(
    original: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread from before there were blobs says what to do when it is opened to read; opened for writing it has them."""
    if version:
        connection = apsw.Connection(os.path.join(original, "events.db"))
        monkeypatch.setattr(migrate, "SCHEMA", version)
        files = migrate.files()
        monkeypatch.setattr(migrate, "files", lambda: files[:version])
        migrate.apply(connection, "then")
        monkeypatch.undo()
        connection.close()
    with eventq.open(original, read_only=True) as reader:
        for call in (lambda: reader.blobs, lambda: reader.contexts, reader.gc):
            with pytest.raises(
                StoreError,
                match=r"older eventq, and holds no turns or blobs - open it for writing once",
            ):
                call()
        assert [event.content for event in reader.peek()] == ["one", "two", "3"]
        assert reader.check() == []
    with eventq.open(original) as thread:
        blob = thread.blobs.put(b"hello")
    with eventq.open(original, read_only=True) as reader:
        assert (reader.blobs.get(blob.ref), reader.check()) == (b"hello", [])


# --- transactions -----------------------------------------------------------------------------------------------------

UNDONE: dict[str, Any] = {
    "bytes": lambda t: t.blobs.put(b"hello"),
    "text": lambda t: t.blobs.put(TEXT[:100_000]),
    "parts": lambda t: t.blobs.put(THREE),
    "stream": lambda t: t.blobs.put(io.BytesIO(THREE)),
    "again": lambda t: t.blobs.put(b"there", refs=[t.blobs.put(b"new").ref]),
    "part": lambda t: t.blobs.put(NOISE[MIB : 2 * MIB]),
    "pin": lambda t: t.blobs.pin(t.blobs.put(b"there").ref, "me"),
    "append": lambda t: t.contexts.create().append(TEXT[:100_000]),
    "event": lambda t: t.push("self", "note", t.blobs.put(b"there").ref),
}


@pytest.mark.parametrize("name", UNDONE)
@pytest.mark.parametrize("nested", [False, True])
def test_what_is_rolled_back_was_never_put(
    thread: eventq.Thread, raw: apsw.Connection, name: str, nested: bool
) -> None:
    """Row 85: a put inside `write` is seen by others when that commits, and leaves nothing when it is rolled back."""
    thread.blobs.put(b"there")
    thread.blobs.put(NOISE[: 2 * MIB])
    before = rows(raw)
    with pytest.raises(ZeroDivisionError), thread.write():
        if nested:
            with thread.write():
                UNDONE[name](thread)
        else:
            UNDONE[name](thread)
        inside = len(thread.blobs)
        with eventq.open(thread.path, read_only=True) as reader:
            assert len(reader.blobs) == 2 <= inside
        raise ZeroDivisionError
    assert rows(raw) == before
    for known in ("hello", "new"):
        assert thread.blobs.get(blake3(known.encode()).hexdigest()) is None
    with thread.write():
        with pytest.raises(ZeroDivisionError), thread.write():
            UNDONE[name](thread)
            raise ZeroDivisionError
        kept = thread.blobs.put(b"kept")
    assert thread.blobs.get(kept.ref) == b"kept"
    assert ask(raw, "SELECT count(*) FROM blobs")[0][0] == len(before["blobs"]) + 1


def test_a_put_that_fails_in_a_block_leaves_the_block(thread: eventq.Thread) -> None:
    """A put that is refused inside `write` undoes itself alone."""
    with thread.write():
        one = thread.blobs.put(b"one")
        with pytest.raises(UnknownBlobError):
            thread.blobs.put(b"two", refs=[UNKNOWN])
        three = thread.blobs.put(b"three", refs=[one.ref])
    assert sorted(blob.hash for blob in thread.blobs) == sorted([one.hash, three.hash])


# --- refs in events ---------------------------------------------------------------------------------------------------


def noted(raw: apsw.Connection) -> list[tuple[int, str]]:
    """Give the refs of events that are noted: event and hash."""
    return [
        (int(n), str(h))
        for n, h in raw.execute(
            "SELECT event_id, lower(hex(hash)) FROM event_blob_refs ORDER BY 1, 2"
        )
    ]


def name_of(number: int) -> str:
    """Give some hash."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def ref(number: int) -> str:
    """Give a ref, of a blob that need not be there."""
    return f"blob:blake3:{name_of(number)}"


def ways() -> Iterator[tuple[str, Callable[[eventq.Thread, str], object]]]:
    """Give the ways to push one event."""
    yield "push", lambda t, c: t.push("self", "note", c)
    yield "key", lambda t, c: t.push("self", "note", c, key="k")
    yield "list", lambda t, c: t.push_many([("self", "note", c)])
    yield "list of keyed", lambda t, c: t.push_many([("self", "note", c, None, "k")])
    yield "mappings", lambda t, c: t.push_many([{"source": "self", "type": "note", "content": c}])
    yield "generator", lambda t, c: t.push_many(x for x in [("self", "note", c)])
    yield (
        "generator of keyed",
        lambda t, c: t.push_many(x for x in [("self", "note", c, None, "k")]),
    )


@pytest.mark.parametrize(("_way", "push"), list(ways()), ids=[name for name, _ in ways()])
@pytest.mark.parametrize("inside", [False, True])
def test_an_event_that_names_blobs(
    thread: eventq.Thread,
    raw: apsw.Connection,
    _way: str,
    push: Callable[[eventq.Thread, str], object],
    inside: bool,
) -> None:
    """Rows 84, 110: however it is pushed, each blob that an event's content names is noted once, and the event is as given."""
    thread.push("self", "note", "before")
    content = f'{{"a":"{ref(1)}","b":"see {ref(2)}, {ref(1)}"}} é'
    if inside:
        with thread.write():
            push(thread, content)
    else:
        push(thread, content)
    assert noted(raw) == sorted((2, name_of(n)) for n in (1, 2))
    push(thread, "nothing")  # a key that is taken stores nothing; a new event names nothing
    assert noted(raw) == sorted((2, name_of(n)) for n in (1, 2))
    assert next(iter(thread.peek(1))).content == content
    with pytest.raises(ZeroDivisionError), thread.write():
        push(thread, ref(3))
        thread.push("self", "note", ref(4))
        raise ZeroDivisionError
    assert noted(raw) == sorted((2, name_of(n)) for n in (1, 2))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_batch_notes_each_event_by_its_own_id(
    thread: eventq.Thread, raw: apsw.Connection, keyed: bool, lazy: bool
) -> None:
    """Row 110: of a long batch exactly the events that name a blob are noted, each under its own id, over all chunks."""
    thread.push("self", "note", "first")
    named = {3, 249, 250, 251, 777, 1400}
    events: list[Any] = [
        ("self", "note", ref(n) if n in named else "no blob:blake3: here") for n in range(1401)
    ]
    if keyed:
        events[5] = ("self", "note", ref(9000), None, "k")
        events[6] = ("self", "note", ref(9001), None, "k")  # the key is taken: it is left out
    thread.push_many(iter(events) if lazy else events)
    expected = [(n + 2 - (keyed and n > 6), name_of(n)) for n in named] + (
        [(7, name_of(9000))] if keyed else []
    )
    assert noted(raw) == sorted(expected)
    for number, name in noted(raw):
        assert name in next(iter(thread.peek(number - 1))).content


@pytest.mark.parametrize(
    "content",
    [
        "blob:blake3:" + GOOD[:63], "blob:blake3:" + GOOD.upper(), "blob:blake3:" + GOOD[:63] + "g", "blob:sha256:" + GOOD,
        GOOD, "blob:blake3:" + "\uff10" * 64, "BLOB:BLAKE3:" + GOOD, "blob:blake3: " + GOOD, "blob:blake3:",
    ],
)  # fmt: skip
def test_what_is_no_ref_is_not_noted(
    thread: eventq.Thread, raw: apsw.Connection, content: str
) -> None:
    """Row 74: content with something that only looks like a ref is stored as it is and names nothing."""
    thread.push("self", "note", content)
    thread.push_many([("self", "note", content)])
    assert noted(raw) == []
    assert [event.content for event in thread.peek()] == [content] * 2


def test_refs_that_touch(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """Refs with nothing between them, and one behind a broken one, are all noted."""
    thread.push("self", "note", f"blob:blake3:{ref(1)}{ref(2)}blob:blake3:xx{ref(3)}")
    assert noted(raw) == sorted((1, name_of(n)) for n in (1, 2, 3))


def test_prune_forgets_what_events_named(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """Row 110: an event keeps a blob for as long as it is stored: prune forgets what it named."""
    blob = thread.blobs.put(b"hello")
    for number in range(5):
        thread.push("self", "note", f"{blob.ref} {ref(number)}")
    thread.prune(before_id=4)
    assert noted(raw) == sorted((n, name) for n in (4, 5) for name in (blob.hash, name_of(n - 1)))
    assert thread.blobs.holders(blob.ref) == ["event 4", "event 5"]
    thread.prune(keep_last=0)
    assert (noted(raw), thread.blobs.holders(blob.ref)) == ([], [])


def test_an_event_may_come_before_its_blob(thread: eventq.Thread, clock: Clock) -> None:
    """Row 110: a ref that is pushed before its bytes are put keeps them all the same."""
    thread.push("self", "note", "blob:blake3:" + blake3(b"later").hexdigest())
    blob = thread.blobs.put(b"later")
    clock.move(90_000)
    assert thread.gc(apply=True, grace=0).blobs == 0
    assert thread.blobs.get(blob.ref) == b"later"
