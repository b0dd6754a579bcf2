"""Bytes are kept by their hash: once, whole, and never returned when they have changed."""

from __future__ import annotations

import array
import ctypes
import hashlib
import io
import os
import random
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq import InputError
from eventq.errors import ReadOnlyError, StoreError, TooLargeError, UnknownBlobError
from eventq.memory.blobs import CUT_BYTES, PART_BYTES, parse_ref
from eventq.records.turn import Blob, NewTurn
from tests.conftest import ROOT
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import apsw

    from eventq import Thread
    from tests.conftest import RunPython
    from tests.contract.support import Tables

    Stored = Callable[[], Tables]

MIB = 1 << 20
NOISE = random.Random(7).randbytes(3 * MIB + 2)
_LINES = random.Random(8)
TEXT = b"".join(
    b"%06d the quick brown %d\n" % (n, _LINES.randrange(10**9)) for n in range(100_000)
)[: 3 * MIB + 2]
THREE = NOISE[: 2 * MIB + 5000]  # three parts
GOOD = "0123456789abcdef" * 4
UNKNOWN = "blob:blake3:" + "0" * 64

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]


class Drip(io.RawIOBase):
    """A pipe that gives a few bytes at a time, and at its end something else or an error."""

    def __init__(self, data: bytes, step: int = 1, last: Any = b"") -> None:
        self._file = io.BytesIO(data)
        self._step = step
        self._last = last

    def read(self, size: int = -1) -> Any:
        """Return the next bytes."""
        found = self._file.read(self._step if size < 0 else min(self._step, size))
        if not found and isinstance(self._last, Exception):
            raise self._last
        return found or self._last


def ref_of(data: bytes) -> str:
    """Return the ref of bytes, stored or not."""
    return "blob:blake3:" + blake3(data).hexdigest()


# --- what goes in comes out -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["noise", "text", "zeros"])
@pytest.mark.parametrize(
    "size",
    [
        0, 1, 11, 1000, CUT_BYTES - 1, CUT_BYTES, CUT_BYTES + 1, PART_BYTES - 1, PART_BYTES,
        PART_BYTES + 1,
        2 * PART_BYTES - 1, 2 * PART_BYTES, 2 * PART_BYTES + 1, 3 * PART_BYTES,
    ],
)  # fmt: skip
def test_bytes_come_back(thread: Thread, kind: str, size: int) -> None:
    """The hash is BLAKE3 of the bytes, equal bytes come back, and never more bytes are kept."""
    data = {"noise": NOISE, "text": TEXT, "zeros": bytes(size)}[kind][:size]
    name = blake3(data).hexdigest()
    blob = thread.blobs.put(data)
    assert (blob.hash, blob.ref, blob.size, blob.new) == (name, f"blob:blake3:{name}", size, True)
    if kind == "noise":
        assert (blob.codec, blob.stored) == ("none" if size <= PART_BYTES else "parts", size)
    elif kind == "text" and size >= 1000:
        assert blob.codec == ("zstd" if size < CUT_BYTES else "parts")
        assert 0 < blob.stored < size * 3 // 4
    else:
        assert 0 <= blob.stored <= size
    with eventq.open(thread.path, read_only=True) as reader:
        assert reader.blobs.get(name) == b"".join(reader.blobs.stream(name)) == data
        assert reader.blobs.stat(name) == Blob(name, size, blob.stored, blob.codec, new=False)
        assert reader.blobs.verify(name) == []


@pytest.mark.parametrize("file_first", [False, True])
@pytest.mark.parametrize("file_second", [False, True])
@pytest.mark.parametrize(
    "data",
    [b"", b"hello", TEXT[:70_000], TEXT[: 2 * MIB], NOISE[:100_000], NOISE[: 2 * MIB]],
    ids=["empty", "few", "text", "long text", "noise", "long noise"],
)
def test_a_put_says_whether_it_was_new(
    thread: Thread, stored: Stored, data: bytes, file_first: bool, file_second: bool
) -> None:
    """Equal bytes are stored once, as bytes and as a file; the second put reports it."""
    first = thread.blobs.put(io.BytesIO(data) if file_first else data)
    before = {name: len(rows) for name, rows in stored().items()}
    second = thread.blobs.put(io.BytesIO(data) if file_second else data)
    assert (first.hash, first.new) == (blake3(data).hexdigest(), True)
    assert second == Blob(first.hash, first.size, first.stored, first.codec, new=False)
    assert {name: len(rows) for name, rows in stored().items()} == before  # no part twice
    assert thread.blobs.get(first.ref) == b"".join(thread.blobs.stream(first.ref)) == data
    assert [blob.hash for blob in thread.blobs] == [first.hash]


NUMBERS = array.array("I", range(20_000))
WHOLE = NUMBERS.tobytes()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"abc", b"abc"),
        (bytearray(b"abd"), b"abd"),
        (memoryview(b"a1b2c3")[::2], b"abc"),
        (memoryview(b"abcdef")[::-1], b"fedcba"),
        (memoryview(b"abcdef")[2:4], b"cd"),
        (memoryview(NUMBERS), WHOLE),
        (memoryview(NUMBERS)[::3], NUMBERS[::3].tobytes()),
        (memoryview(WHOLE).cast("B", [200, 400]), WHOLE),
        (memoryview(bytearray(TEXT[:90_000]))[::2], TEXT[:90_000:2]),
        (memoryview(array.array("d", [1.5, 2.5])), struct.pack("2d", 1.5, 2.5)),
        (bytearray(), b""),
        (memoryview(b""), b""),
        (memoryview(((ctypes.c_int * 0) * 3)()), b""),
    ],
    ids=lambda value: "",
)
def test_every_kind_of_buffer(thread: Thread, data: Any, expected: bytes) -> None:
    """A buffer of any type, format, shape and step is the bytes that it shows."""
    assert thread.blobs.get(thread.blobs.put(data).hash) == expected


def test_a_buffer_is_let_go(thread: Thread) -> None:
    """A bytearray that was put can grow again."""
    big = bytearray(TEXT[:300_000])
    thread.blobs.put(big)
    big.extend(b"it is not held any more")


def test_a_column_first_view_is_its_bytes(thread: Thread) -> None:
    """A view whose columns lie one after the other in memory is the bytes that it shows."""
    buffers = pytest.importorskip("_testbuffer")
    columns = buffers.ndarray(list(range(12)), shape=[3, 4], format="B", flags=buffers.ND_FORTRAN)
    view = memoryview(columns)
    assert (view.contiguous, view.c_contiguous) == (True, False)
    assert thread.blobs.get(thread.blobs.put(view).hash) == bytes(view)


@pytest.mark.parametrize("data", ["text", None, 7, ["list"], {"a": 1}, object()])
def test_what_is_no_bytes_is_refused(thread: Thread, stored: Stored, data: Any) -> None:
    """Text, numbers and objects are refused, and nothing is stored."""
    before = stored()
    with pytest.raises(InputError, match=r"a blob is bytes, not \w+"):
        thread.blobs.put(data)
    assert stored() == before


@pytest.mark.parametrize("size", [0, 1, 1000, CUT_BYTES, MIB, MIB + 1, 2 * MIB + 3])
@pytest.mark.parametrize("source", [NOISE, TEXT], ids=["noise", "text"])
def test_a_file_is_its_bytes(thread: Thread, tmp_path: Path, source: bytes, size: int) -> None:
    """A file on the disk is the blob of its bytes, from where it stands to its end."""
    place = tmp_path / "file"
    place.write_bytes(b"skip" + source[:size])
    with place.open("rb") as file:
        file.seek(4)
        blob = thread.blobs.put(file)
    assert (blob.ref, blob.size) == (ref_of(source[:size]), size)
    assert thread.blobs.get(blob.ref) == source[:size]
    assert not thread.blobs.put(source[:size]).new


@pytest.mark.parametrize("source", [NOISE, TEXT], ids=["noise", "text"])
@pytest.mark.parametrize(
    ("size", "step"), [(3000, 1), (70_000, 1), (2 * MIB, 7000), (MIB + 1, 65_536)]
)
def test_a_pipe_gives_little_at_once(thread: Thread, source: bytes, size: int, step: int) -> None:
    """A pipe that gives one byte at a time, or a few, is read to its end."""
    blob = thread.blobs.put(Drip(source[:size], step))  # type: ignore[arg-type]
    assert (blob.ref, thread.blobs.get(blob.ref)) == (ref_of(source[:size]), source[:size])


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (lambda: io.StringIO(""), InputError),
        (lambda: io.StringIO("text"), InputError),
        *(
            (lambda size=size, last=last: Drip(NOISE[:size], 65_536, last), error)
            for size in (10, 2 * MIB)
            for last, error in (("late", InputError), (ZeroDivisionError(), ZeroDivisionError))
        ),
    ],
)
def test_a_file_that_fails_is_no_blob(
    thread: Thread, file: Callable[[], Any], error: type[Exception]
) -> None:
    """A file that gives text, even late, is refused; a file's own error comes through."""
    with pytest.raises(error) as caught:
        thread.blobs.put(file())
    assert error is not InputError or "str, not bytes" in str(caught.value)
    assert (len(thread.blobs), list(thread.blobs)) == (0, [])


def test_a_blob_is_bounded(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and files beyond the largest size are refused, and no blob can be seen."""
    monkeypatch.setattr("eventq.memory.blobs.LARGEST", 2 * MIB)
    assert thread.blobs.put(NOISE[: 2 * MIB]).size == 2 * MIB
    for data in (NOISE[: 2 * MIB + 1], io.BytesIO(NOISE[: 2 * MIB + 1])):
        with pytest.raises(TooLargeError, match=r"2097153 bytes, the limit is 2097152"):
            thread.blobs.put(data)
    assert len(thread.blobs) == 1


@pytest.mark.parametrize("data", [NOISE[:10], NOISE, TEXT[:10], TEXT, bytes(PART_BYTES + 1)])
def test_what_an_engine_is_given(thread: Thread, data: bytes) -> None:
    """Bytes arrive in pieces of at most 1 MiB, compressed where that is shorter."""
    blobs = thread.database.memory.blobs
    digest = bytes.fromhex(thread.blobs.put(data).hash)
    names = blobs.parts(digest) or [digest]
    rows, pieces = blobs.find(names), blobs.read(names)
    assert sum(rows[name].size for name in names) == len(data)
    for name in set(names):
        kept = len(pieces[name].stored)
        assert rows[name].size <= (PART_BYTES if data is NOISE else CUT_BYTES)
        assert (kept, pieces[name].codec) == (rows[name].stored, int(kept < rows[name].size))


def test_what_is_alike_shares_its_parts(thread: Thread) -> None:
    """A text that grew, or was edited in the middle, adds only its new parts."""
    versions = [TEXT[:400_000], TEXT[:420_000], TEXT[:200_000] + b"edit" + TEXT[200_000:400_000]]
    kept = []
    for data in versions:
        blob = thread.blobs.put(data)
        rows, _ = thread.database.memory.blobs.scan(None, 1 << 30)
        kept.append(sum(len(stored or b"") for _, stored in rows))
        assert thread.blobs.get(blob.ref) == data
    assert max(kept[1] - kept[0], kept[2] - kept[1]) < kept[0] / 3


# --- names ----------------------------------------------------------------------------------------

BAD: list[Any] = [
    "", "blob:blake3:", GOOD[:63], GOOD + "0", GOOD.upper(), "A" + GOOD[1:],
    "blob:blake3:" + GOOD[:63],
    "blob:blake3:" + GOOD + "0", "blob:blake3:" + GOOD.upper(), "BLOB:BLAKE3:" + GOOD,
    "blob:blake3:../../x",
    "../" + GOOD[3:], "blob:blake3:../" + GOOD[3:], "blob:sha256:" + GOOD,
    "blob:blake3:blob:blake3:" + GOOD,
    " " + GOOD, GOOD + "\n", GOOD[:63] + "\n", GOOD[:63] + " ", GOOD[:63] + "g", "0x" + GOOD[2:],
    "\uff10" * 64, "\u0660" * 64, GOOD[:63] + "\u00b2", "1_" * 32, GOOD[:32] + " " + GOOD[33:],
    None, 7, 1.5, True, [], {}, object(),
    ("blob:blake3:" + GOOD).encode(), b"", b"x" * 31, b"x" * 33, GOOD.encode(), bytearray(32),
]  # fmt: skip


def uses(blobs: Any, name: Any) -> dict[str, Callable[[], object]]:
    """Return the calls that take the name of a blob that must be stored."""
    return {
        "stream": lambda: list(blobs.stream(name)),
        "stat": lambda: blobs.stat(name),
        "refs": lambda: blobs.refs(name),
        "holders": lambda: blobs.holders(name),
        "verify": lambda: blobs.verify(name),
        "pin": lambda: blobs.pin(name, "me"),
        "unpin": lambda: blobs.unpin(name, "me"),
        "put": lambda: blobs.put(b"x", refs=[name]),
    }


def test_refs_that_are_read() -> None:
    """A ref and the bare 64 lower-case digits are the 32 bytes that they spell."""
    assert parse_ref(GOOD) == parse_ref("blob:blake3:" + GOOD) == bytes.fromhex(GOOD)


@pytest.mark.parametrize("name", BAD)
def test_refs_that_are_refused(thread: Thread, stored: Stored, name: Any) -> None:
    """Whatever else is None to the parser, and every call that takes a name refuses it."""
    assert parse_ref(name) is None
    blobs, before = thread.blobs, stored()
    calls = uses(blobs, name) | {"get": lambda: blobs.get(name), "has": lambda: blobs.has(name)}
    if name is None:  # no name at all is all blobs
        del calls["verify"]
    else:
        calls["expected"] = lambda: blobs.put(b"x", expect_hash=name)
    for call in calls.values():
        with pytest.raises(InputError, match="names no blob - give blob:blake3:"):
            call()
    assert stored() == before


def test_three_spellings_of_one_name(thread: Thread) -> None:
    """A blob is found by its ref, its digits and its 32 bytes."""
    blob = thread.blobs.put(b"hello")
    for name in (blob.ref, blob.hash, bytes.fromhex(blob.hash)):
        assert (thread.blobs.get(name), thread.blobs.has(name)) == (b"hello", True)
        assert thread.blobs.stat(name).hash == blob.hash


def test_what_is_unknown(thread: Thread, stored: Stored) -> None:
    """`get` returns None and `has` False for an unknown blob; all else raises UnknownBlobError."""
    before = stored()
    assert (thread.blobs.get(UNKNOWN), thread.blobs.has(UNKNOWN)) == (None, False)
    for call in uses(thread.blobs, UNKNOWN).values():
        with pytest.raises(UnknownBlobError, match=f"^missing blob {UNKNOWN} - "):
            call()
    assert stored() == before


# --- refused puts change nothing ------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"hello", TEXT[:70_000], NOISE[: 2 * MIB]], ids=["none", "few", "text", "parts"]
)
@pytest.mark.parametrize("file", [False, True])
def test_what_was_expected_must_come(
    thread: Thread, stored: Stored, data: bytes, file: bool
) -> None:
    """Another hash or size than was declared is refused, and no blob can be seen."""
    give: Callable[[], Any] = (lambda: io.BytesIO(data)) if file else (lambda: data)
    good, before = blake3(data).hexdigest(), stored()
    wrong: list[tuple[dict[str, Any], str]] = [({"expect_hash": UNKNOWN}, f"hash is {good}, not ")]
    for size in (len(data) + 1, len(data) - 1):
        wrong.append(({"expect_size": size}, f"not the {size} that were declared"))
        wrong.append(({"expect_size": size, "expect_hash": good}, f"not the {size} that were"))
    for words, text in wrong:
        with pytest.raises(InputError, match=text):
            thread.blobs.put(give(), **words)
    assert (thread.blobs.get(good), len(thread.blobs)) == (None, 0)
    if len(data) < MIB:  # of a stream, parts wait for a name, and the next collection takes them
        assert stored() == before
    for name in (good, "blob:blake3:" + good, bytes.fromhex(good)):
        assert thread.blobs.put(give(), expect_hash=name, expect_size=len(data)).hash == good


def test_a_stream_that_was_refused_leaves_nothing_for_long(thread: Thread, stored: Stored) -> None:
    """The parts of a refused stream cannot be seen, and a collection deletes them all."""
    with pytest.raises(InputError):
        thread.blobs.put(io.BytesIO(NOISE[: 3 * MIB]), expect_hash=UNKNOWN)
    found = thread.gc(apply=True, grace=0)
    assert (found.blobs, found.hashes, found.stored) == (0, (), 3 * MIB)
    assert (stored()["blobs"], stored()["blob_bytes"]) == ([], [])


@pytest.mark.parametrize("size", [10, 70_000])
def test_refs_must_be_stored(thread: Thread, stored: Stored, size: int) -> None:
    """A ref to a blob that is not stored is refused as `missing blob <ref>`; nothing changes."""
    there, old = thread.blobs.put(b"there"), thread.blobs.put(b"old")
    context = thread.contexts.create()
    turn = context.append(b"a turn")
    before, data = stored(), TEXT[:size]
    wanted: list[Callable[[], object]] = [
        lambda: thread.blobs.put(data, refs=[there.ref, UNKNOWN]),
        lambda: thread.blobs.put(b"old", refs=[UNKNOWN]),
        lambda: context.append(NewTurn(data, refs=[there.ref, UNKNOWN])),
        lambda: context.append(NewTurn(b"old", refs=[UNKNOWN]), key="k"),
        lambda: thread.contexts.patch(turn.turn_id, NewTurn(data, refs=[UNKNOWN])),
    ]
    for call in wanted:
        with pytest.raises(UnknownBlobError, match=f"^missing blob {UNKNOWN} - "):
            call()
        assert stored() == before
    assert thread.blobs.refs(old.ref) == []


def test_a_part_is_no_blob_that_can_be_named(thread: Thread, stored: Stored) -> None:
    """A part of a blob cannot be seen or named until it is put by itself."""
    whole = thread.blobs.put(NOISE[: 2 * MIB])
    part = ref_of(NOISE[:MIB])
    assert (thread.blobs.get(part), thread.blobs.has(part), len(thread.blobs)) == (None, False, 1)
    for call in uses(thread.blobs, part).values():
        with pytest.raises(UnknownBlobError):
            call()
    before = len(stored()["blobs"])
    assert [thread.blobs.put(NOISE[:MIB]).new for _ in range(2)] == [True, False]
    assert len(stored()["blobs"]) == before
    assert thread.blobs.get(part) == NOISE[:MIB]
    assert [blob.ref for blob in thread.blobs] == sorted([whole.ref, part])
    assert thread.blobs.holders(part) == [f"parts of {whole.hash}"]


def test_a_part_that_a_turn_names_is_seen(thread: Thread) -> None:
    """A part that is appended as a turn's payload is a blob of its own from then on."""
    thread.blobs.put(NOISE[: 2 * MIB])
    turn = thread.contexts.create().append(NOISE[MIB : 2 * MIB])
    assert thread.blobs.get(turn.ref) == NOISE[MIB : 2 * MIB]
    assert f"turn {turn.turn_id}" in thread.blobs.holders(turn.ref)


# --- at once --------------------------------------------------------------------------------------

PUT = """
import eventq, random, sys
noise = random.Random(3).randbytes(1_300_000)
text = b"".join(b"%d line %d\\n" % (n, n * 7919 % 104729) for n in range(30_000))
with eventq.open(sys.argv[1]) as thread:
    print("ready", flush=True)
    sys.stdin.readline()
    few = [b"few %d" % n for n in range(60)]
    for data in [*few, text[:20_000], text[:300_000], text, noise[:100_000], noise]:
        print(thread.blobs.put(data).new)
"""


def test_processes_that_put_the_same(thread: Thread, stored: Stored) -> None:
    """Of four processes that put the same bytes at once one stores each, and none sees an error."""
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
        (program.returncode, errors) for program, (_, errors) in zip(programs, told, strict=True)
    ] == [(0, "")] * 4
    answers = [words.split() for words, _ in told]
    assert [sorted(each) for each in zip(*answers, strict=True)] == [["False"] * 3 + ["True"]] * 65
    assert len(thread.blobs) == 65
    assert len({row[1] for row in stored()["blobs"]}) == len(stored()["blobs"])


# --- what there is --------------------------------------------------------------------------------


def page_by(size: int, thread: Thread, patch: pytest.MonkeyPatch) -> None:
    """Let pages of blobs be small."""
    engine = type(thread.database.memory.blobs)
    page = engine.page
    patch.setattr(engine, "page", lambda self, after, _: page(self, after, size))


def test_all_blobs_in_the_order_of_their_hashes(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterating yields every blob once, sorted, over several pages; parts are left out."""
    page_by(7, thread, monkeypatch)
    made = [thread.blobs.put(b"%d" % number) for number in range(50)]
    made.append(thread.blobs.put(TEXT[:200_000]))
    found = [(blob.hash, blob.size, blob.stored, blob.codec) for blob in thread.blobs]
    assert found == sorted((blob.hash, blob.size, blob.stored, blob.codec) for blob in made)
    assert len(thread.blobs) == 51


def test_iterating_while_others_put(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others put or collect while blobs are listed disturbs nobody."""
    page_by(3, thread, monkeypatch)
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


def test_refs_and_holders(thread: Thread) -> None:
    """`refs` returns what a blob names, sorted; `holders` what keeps it, of each kind."""
    blobs = thread.blobs
    leaf, other = blobs.put(b"leaf"), blobs.put(b"other")
    assert (blobs.refs(leaf.ref), blobs.holders(leaf.ref)) == ([], [])
    node = blobs.put(b"node", refs=[leaf.ref, other.hash, bytes.fromhex(leaf.hash)])
    assert blobs.refs(node.hash) == sorted([leaf.ref, other.ref])
    context = thread.contexts.create()
    turn = context.append(b"leaf")
    seq = context.patch(turn.turn_id, b"leaf")
    event = thread.push("self", "note", f"see {leaf.ref}")
    for owner in ("me", "you"):
        blobs.pin(leaf.ref, owner)
    assert blobs.holders(leaf.ref) == [
        f"turn {turn.turn_id}", f"patch {seq}", f"blob {node.hash}", f"event {event.id}",
        "pin me", "pin you",
    ]  # fmt: skip
    assert blobs.holders(leaf.ref, 1)[-2:] == [f"event {event.id}", "pin me"]
    assert blobs.holders(other.ref) == [f"blob {node.hash}"]


def test_refs_of_equal_bytes_are_added(thread: Thread) -> None:
    """Putting bytes again with other refs keeps both; a blob may name itself."""
    one, two = thread.blobs.put(b"one"), thread.blobs.put(b"two")
    node = thread.blobs.put(b"node", refs=[one.ref])
    thread.blobs.put(b"node", refs=[two.ref])
    thread.blobs.put(b"node")
    assert thread.blobs.refs(node.ref) == sorted([one.ref, two.ref])
    thread.blobs.put(b"node", refs=[node.ref])
    assert node.ref in thread.blobs.refs(node.ref)


@pytest.mark.parametrize("refs", ["blob:blake3:" + GOOD, GOOD, b"x" * 32])
def test_refs_are_several(thread: Thread, refs: Any) -> None:
    """One name in place of a list of names is refused, not read letter by letter."""
    with pytest.raises(InputError, match="refs are several names"):
        thread.blobs.put(b"x", refs=refs)
    assert len(thread.blobs) == 0


def test_pins(thread: Thread) -> None:
    """A pin belongs to its owner and holds once; an unpin reports whether it was there."""
    blobs = thread.blobs
    one, two = blobs.put(b"one"), blobs.put(b"two")
    for blob, owner in ((one, "b"), (one, "b"), (one, "a"), (two, "b")):
        blobs.pin(blob.ref, owner)
    assert blobs.pins() == [("a", one.hash), *sorted([("b", one.hash), ("b", two.hash)])]
    assert [blobs.unpin(one.ref, owner) for owner in ("b", "b", "c")] == [True, False, False]
    assert blobs.pins() == [("a", one.hash), ("b", two.hash)]
    odd: list[Any] = ["", "a\nb", None, 7]
    for owner in odd:
        with pytest.raises(InputError, match="owner"):
            blobs.pin(one.ref, owner)


@pytest.mark.parametrize("data", [NOISE[:5000], THREE], ids=["piece", "parts"])
@pytest.mark.parametrize("taken", [0, 1])
def test_a_stream_of_a_blob_that_goes_away_is_no_shorter_blob(
    thread: Thread, data: bytes, taken: int
) -> None:
    """A blob that is collected while it is streamed fails or is whole, never shorter."""
    blob = thread.blobs.put(data)
    stream = thread.blobs.stream(blob.ref)
    found = [next(stream) for _ in range(taken)]
    thread.gc(apply=True, grace=0)
    assert not thread.blobs.has(blob.ref)
    try:
        found += stream
    except StoreError:
        return
    assert b"".join(found) == data


# --- cache and memory -----------------------------------------------------------------------------


def test_what_was_collected_is_not_in_the_cache(thread: Thread) -> None:
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
        with open("/proc/self/status") as file:  # getrusage counts what the parent held
            lines = [line for line in file if line.startswith("VmHWM")]
            return int(lines[0].split()[1]) / 1024
    except FileNotFoundError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (1 << 20 if sys.platform == "darwin" else 1024)
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
        elif what == "stream":
            size = sum(map(len, thread.blobs.stream(name)))
        else:
            size = len(thread.blobs.verify())
    print(name, peak() - base)
"""


@pytest.mark.parametrize("kind", ["noise", "text"])
def test_large_files_in_bounded_memory(
    path: str, tmp_path: Path, run_python: RunPython, kind: str
) -> None:
    """A blob of 64 MiB is put, streamed, verified within 40 MiB, read within that and itself."""
    place = tmp_path / "file"
    chance = random.Random(2)
    hasher = blake3()
    with place.open("wb") as file:
        for number in range(64):
            line = b"%d " % number + chance.randbytes(99).hex().encode()
            block = chance.randbytes(MIB) if kind == "noise" else (line * 5300)[:MIB].ljust(MIB)
            hasher.update(block)
            file.write(block)
    for what, bound in (("put", 40), ("stream", 40), ("verify", 40), ("get", 64 + 40)):
        name, more = run_python(MEMORY, path, str(place), what).split()
        assert name == hasher.hexdigest()
        assert float(more) < bound, what


# --- doors that are closed ------------------------------------------------------------------------


def test_a_reader_reads_and_does_not_write(thread: Thread, stored: Stored) -> None:
    """A thread that was opened to read answers everything about blobs, and changes nothing."""
    blob = thread.blobs.put(THREE)
    thread.blobs.pin(blob.ref, "me")
    before = stored()
    with eventq.open(thread.path, read_only=True) as reader:
        blobs = reader.blobs
        assert blobs.get(blob.ref) == b"".join(blobs.stream(blob.ref)) == THREE
        assert (blobs.has(blob.ref), blobs.stat(blob.ref).size, len(blobs)) == (True, len(THREE), 1)
        assert [each.hash for each in blobs] == [blob.hash]
        assert (blobs.refs(blob.ref), blobs.holders(blob.ref)) == ([], ["pin me"])
        assert (blobs.verify(), reader.gc(grace=0).blobs) == ([], 0)
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
    assert stored() == before


# --- transactions ---------------------------------------------------------------------------------

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
    thread: Thread, stored: Stored, name: str, nested: bool
) -> None:
    """A put inside `write` is seen by others when that commits, and is undone with it."""
    thread.blobs.put(b"there")
    thread.blobs.put(NOISE[: 2 * MIB])
    before = stored()
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
    assert stored() == before
    for known in (b"hello", b"new"):
        assert thread.blobs.get(ref_of(known)) is None
    with thread.write():
        with pytest.raises(ZeroDivisionError), thread.write():
            UNDONE[name](thread)
            raise ZeroDivisionError
        kept = thread.blobs.put(b"kept")
    assert thread.blobs.get(kept.ref) == b"kept"
    assert len(stored()["blobs"]) == len(before["blobs"]) + 1


def test_a_put_that_fails_in_a_block_leaves_the_block(thread: Thread) -> None:
    """A put that is refused inside `write` undoes itself alone."""
    with thread.write():
        one = thread.blobs.put(b"one")
        with pytest.raises(UnknownBlobError):
            thread.blobs.put(b"two", refs=[UNKNOWN])
        three = thread.blobs.put(b"three", refs=[one.ref])
    assert sorted(blob.hash for blob in thread.blobs) == sorted([one.hash, three.hash])


# --- refs in events -------------------------------------------------------------------------------


def noted(stored: Stored) -> list[tuple[int, str]]:
    """Return the refs that events name: event and hash."""
    return sorted((number, digest.hex()) for number, digest in stored()["event_blob_refs"])


def name_of(number: int) -> str:
    """Return some hash."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def ref(number: int) -> str:
    """Return a ref, of a blob that need not be there."""
    return f"blob:blake3:{name_of(number)}"


PUSHES: dict[str, Callable[[Any, str], object]] = {
    "push": lambda t, c: t.push("self", "note", c),
    "key": lambda t, c: t.push("self", "note", c, key="k"),
    "list": lambda t, c: t.push_many([("self", "note", c)]),
    "list of keyed": lambda t, c: t.push_many([("self", "note", c, None, "k")]),
    "mappings": lambda t, c: t.push_many([{"source": "self", "type": "note", "content": c}]),
    "generator": lambda t, c: t.push_many(iter([("self", "note", c)])),
    "generator of keyed": lambda t, c: t.push_many(iter([("self", "note", c, None, "k")])),
}


@pytest.mark.parametrize("push", PUSHES.values(), ids=PUSHES)
@pytest.mark.parametrize("inside", [False, True])
def test_an_event_that_names_blobs(
    thread: Thread, stored: Stored, push: Callable[[Any, str], object], inside: bool
) -> None:
    """However it is pushed, each blob that an event's content names is noted once."""
    thread.push("self", "note", "before")
    content = f'{{"a":"{ref(1)}","b":"see {ref(2)}, {ref(1)}"}} é'
    if inside:
        with thread.write():
            push(thread, content)
    else:
        push(thread, content)
    expected = sorted((2, name_of(n)) for n in (1, 2))
    assert noted(stored) == expected
    push(thread, "nothing")  # a key that is taken stores nothing; a new event names nothing
    assert noted(stored) == expected
    assert next(iter(thread.peek(1))).content == content
    with pytest.raises(ZeroDivisionError), thread.write():
        push(thread, ref(3))
        thread.push("self", "note", ref(4))
        raise ZeroDivisionError
    assert noted(stored) == expected


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_batch_notes_each_event_by_its_own_id(
    thread: Thread, stored: Stored, keyed: bool, lazy: bool
) -> None:
    """In a long batch exactly the events that name a blob are noted, each under its own id."""
    thread.push("self", "note", "first")
    named = {3, 249, 250, 251, 777, 1400}
    events: list[Any] = [
        ("self", "note", ref(n) if n in named else "no blob:blake3: here") for n in range(1401)
    ]
    if keyed:
        events[5] = ("self", "note", ref(9000), None, "k")
        events[6] = ("self", "note", ref(9001), None, "k")  # the key is taken: it is left out
    thread.push_many(iter(events) if lazy else events)
    expected = [(n + 2 - (keyed and n > 6), name_of(n)) for n in named]
    assert noted(stored) == sorted([*expected, (7, name_of(9000))] if keyed else expected)
    for number, name in noted(stored):
        assert name in next(iter(thread.peek(number - 1))).content


@pytest.mark.parametrize(
    "content",
    [
        "blob:blake3:" + GOOD[:63], "blob:blake3:" + GOOD.upper(), "blob:blake3:" + GOOD[:63] + "g",
        "blob:sha256:" + GOOD,
        GOOD, "blob:blake3:" + "\uff10" * 64, "BLOB:BLAKE3:" + GOOD, "blob:blake3: " + GOOD,
        "blob:blake3:",
    ],
)  # fmt: skip
def test_what_is_no_ref_is_not_noted(thread: Thread, stored: Stored, content: str) -> None:
    """Content with something that only looks like a ref is stored as it is and names nothing."""
    thread.push("self", "note", content)
    thread.push_many([("self", "note", content)])
    assert noted(stored) == []
    assert [event.content for event in thread.peek()] == [content] * 2


def test_refs_that_touch(thread: Thread, stored: Stored) -> None:
    """Refs with nothing between them, and one behind a broken one, are all noted."""
    thread.push("self", "note", f"blob:blake3:{ref(1)}{ref(2)}blob:blake3:xx{ref(3)}")
    assert noted(stored) == sorted((1, name_of(n)) for n in (1, 2, 3))


def test_prune_forgets_what_events_named(thread: Thread, stored: Stored) -> None:
    """An event keeps a blob for as long as it is stored: prune forgets what it named."""
    blob = thread.blobs.put(b"hello")
    for number in range(5):
        thread.push("self", "note", f"{blob.ref} {ref(number)}")
    thread.prune(before_id=4)
    assert noted(stored) == sorted(
        (n, name) for n in (4, 5) for name in (blob.hash, name_of(n - 1))
    )
    assert thread.blobs.holders(blob.ref) == ["event 4", "event 5"]
    thread.prune(keep_last=0)
    assert (noted(stored), thread.blobs.holders(blob.ref)) == ([], [])


@pytest.mark.engines(*ENGINES)
def test_many_blobs_at_once(thread: Thread) -> None:
    """They come as one by one: new ones, those that are there, a part of others, a long one."""
    some = [b"a", b"b", b"c" * 100_000, random.Random(8).randbytes(300_000)]
    assert thread.blobs.put_many([*some, b"a"]) == 4
    assert thread.blobs.put_many(some) == 0
    assert thread.blobs.put_many([b"d", *some, b"e"]) == 2
    pieces = thread.blobs.prepare(b"a part").blob.pieces
    thread.database.memory.blobs.put_parts(pieces)
    assert not thread.blobs.has(blake3(b"a part").digest())
    assert thread.blobs.put_many([b"a part", b"a", b"f"]) == 2
    for data in (*some, b"a part", b"d", b"e", b"f"):
        assert thread.blobs.get(blake3(data).digest()) == data


def test_many_blobs_heal_a_damaged_one(thread: Thread, raw: apsw.Connection) -> None:
    """One whose stored bytes are others is stored again among sound and new ones."""
    thread.blobs.put_many([b"a", b"b"])
    raw.execute("UPDATE blob_bytes SET bytes = x'00' WHERE bytes = CAST('a' AS BLOB)")
    assert thread.blobs.verify() != []
    assert thread.blobs.put_many([b"a", b"b", b"c"]) == 1
    assert thread.blobs.verify() == []
