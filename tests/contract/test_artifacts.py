"""An artifact has a number of its own, is whole once it is sealed, and tells how far it is until then."""

from __future__ import annotations

import array
import ctypes
import io
import os
import random
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eventq
from eventq import system
from eventq.errors import (
    ConflictError,
    DamagedError,
    EventqError,
    InputError,
    LogicError,
    ReadOnlyError,
    StoreError,
    UnknownArtifactError,
    UsageError,
)
from eventq.output.artifacts import (
    CHUNK,
    COMMIT_BYTES,
    COMMIT_SECONDS,
    LARGEST_ID,
    TRANSITIONS,
    in_memory,
    tool_name,
)
from eventq.records import ArtifactInfo
from eventq.storage.sqlite import migrate
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.output.artifacts import Artifacts, ArtifactWriter
    from tests.conftest import Clock

_CHANCE = random.Random(41)
NOISE = _CHANCE.randbytes(3 * CHUNK)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, _CHANCE.randrange(10**9)) for n in range(9_000))
BLOCK = TEXT[: CHUNK - 1] + b"\n"
THREE = TEXT[: 2 * CHUNK + 1000]  # in three chunks
REFUSE = (
    "CREATE TEMP TRIGGER refused BEFORE {} BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
)


class Moments:
    """Seconds that only grow when they are told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        """Give the moment."""
        return self.at


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    """Give seconds that are moved by hand."""
    made = Moments()
    monkeypatch.setattr(system, "monotonic", made)
    return made


@pytest.fixture
def opened(path: str) -> Iterator[eventq.Thread]:
    """Give a fresh thread that may be broken."""
    with eventq.open(path) as made:
        yield made


def line_count(data: bytes) -> int:
    """Give how many lines there are: one that has not ended is one."""
    return data.count(b"\n") + (data != b"" and data[-1:] != b"\n")


def from_line(data: bytes, offset: int) -> bytes:
    """Give the bytes from a line on, in the slow and simple way."""
    return b"\n".join(data.split(b"\n")[offset - 1 :])


def save(folder: str, **files: bytes) -> None:
    """Write files into a folder; `_` in a name stands for a dot."""
    for name, data in files.items():
        write_file(folder, name.lstrip("_").replace("_", "."), data)


def write_file(folder: str, name: str, data: bytes) -> None:
    """Write a file."""
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def files(folder: str) -> dict[str, bytes]:
    """Give all files of a folder."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def numbers(artifacts: Artifacts) -> list[str]:
    """Give the numbers that there are."""
    return [info.artifact_id for info in artifacts]


def refuse(thread: eventq.Thread, what: str) -> None:
    """Have the store refuse a kind of change until `allow`."""
    thread.database.run(REFUSE.format(what))


def allow(thread: eventq.Thread) -> None:
    """Let it pass again."""
    thread.database.run("DROP TRIGGER refused")


def orphan(
    thread: eventq.Thread, writer: ArtifactWriter | str, owner: str | None = "0:999999999:x"
) -> None:
    """Have an artifact be that of another process."""
    number = writer if isinstance(writer, str) else writer.artifact_id
    thread.database.run(
        "UPDATE artifacts SET owner = ? WHERE artifact_id = ?", (owner, int(number))
    )


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_numbers_count_from_zero(thread: eventq.Thread) -> None:
    """Row 86: ids are "0", "1", … in the order of their allocation, whatever becomes of them."""
    artifacts = thread.artifacts
    writers = [artifacts.allocate() for _ in range(3)]
    assert [writer.artifact_id for writer in writers] == ["0", "1", "2"]
    writers[1].fail("no")
    assert artifacts.put(b"x").artifact_id == "3"
    assert artifacts.allocate("bash").artifact_id == "4"
    assert (numbers(artifacts), len(artifacts)) == (["0", "1", "2", "3", "4"], 5)
    assert [info.url for info in artifacts.list()] == [f"artifact://{n}" for n in range(5)]


def test_numbers_sort_as_numbers(thread: eventq.Thread) -> None:
    """A list is in the order of the numbers, not of their digits, also beyond one page of it."""
    with thread.write():
        for _ in range(1_003):
            thread.artifacts.put(b"x")
    assert numbers(thread.artifacts) == [str(n) for n in range(1_003)]
    assert len(thread.artifacts) == 1_003


def test_numbers_go_on(path: str) -> None:
    """Row 86: numbers go on after reopening and after a deletion, also of the newest; none is used again."""
    with eventq.open(path) as thread:
        assert [thread.artifacts.put(b"x").artifact_id for _ in range(3)] == ["0", "1", "2"]
    with eventq.open(path) as thread:
        assert thread.artifacts.allocate().artifact_id == "3"
        thread.artifacts.remove("2")
    with eventq.open(path) as thread:
        orphan(thread, "3")
        thread.artifacts.remove(3)
        assert thread.artifacts.put(b"y").artifact_id == "4"
        for number in ("0", "1", "4"):
            thread.artifacts.remove(number)
        assert thread.artifacts.list() == []
        assert thread.artifacts.put(b"z").artifact_id == "5"
        assert thread.check() == []


@pytest.mark.parametrize("wrong", [
    "1", "", "00", "-1", "+0", " 0", "0 ", "0\n", "x", "٠", "1e0", "0.0", 7, -1, True, None, 0.0,
    b"0", 10**30,
])  # fmt: skip
def test_an_unknown_number(thread: eventq.Thread, wrong: Any) -> None:
    """What is no number of an artifact, as it was printed, is refused with those that there are."""
    thread.artifacts.put(b"x")
    for call in (thread.artifacts.get, thread.artifacts.open, thread.artifacts.remove):
        with pytest.raises(UnknownArtifactError) as caught:
            call(wrong)
        assert caught.value.what == f"Artifact {wrong} not found. Available: 0"
    with pytest.raises(UnknownArtifactError):
        thread.artifacts.export_folder("/nowhere", [wrong])


def test_a_number_as_a_number(thread: eventq.Thread) -> None:
    """A number may be given as text and as a whole number."""
    info = thread.artifacts.put(b"x")
    assert thread.artifacts.get(0) == thread.artifacts.get("0") == info
    assert thread.artifacts.open(0).read() == b"x"


@pytest.mark.parametrize(("count", "listed"), [
    (0, "none"), (1, "0"), (3, "0, 1, 2"), (100, ", ".join(map(str, range(100)))),
    (101, ", ".join(map(str, range(100))) + ", and 1 more"),
    (250, ", ".join(map(str, range(100))) + ", and 150 more"),
])  # fmt: skip
def test_what_is_available(thread: eventq.Thread, count: int, listed: str) -> None:
    """Row 99: an error lists the numbers in their order, 100 at most, and says how many more there are."""
    with thread.write():
        for _ in range(count):
            thread.artifacts.put(b"")
    assert thread.artifacts.available() == listed


@pytest.mark.parametrize(("given_name", "kept"), [
    ("bash", "bash"), ("", "tool"), ("///", "tool"), ("_", "tool"), ("__a__", "a"),
    ("a/b\\c d", "a_b_c_d"), ("web-search_2", "web-search_2"), ("-", "-"), ("größe", "gr_e"),
    ("日本", "tool"), ("٣", "tool"), ("a..log", "a_log"), ("../../etc/passwd", "etc_passwd"),
    ("a\nb\0c", "a_b_c"), ("a\ud800b", "a_b"), ("x" * 64, "x" * 64), ("x" * 65, "x" * 64),
    ("x" * 63 + "/y", "x" * 63), ("/" * 100 + "y", "y"), ("é" * 70 + "z", "z"), ("TOOL", "TOOL"),
])  # fmt: skip
def test_the_name_of_a_tool(thread: eventq.Thread, given_name: str, kept: str) -> None:
    """Row 89: what is no letter, digit, `_` or `-` becomes one `_`, none at the ends; at most 64 are left, else `tool`."""
    assert tool_name(given_name) == kept
    assert tool_name(kept) == kept
    assert thread.artifacts.put(b"x", given_name).tool == kept
    writer = thread.artifacts.allocate(given_name)
    assert thread.artifacts.get(writer.artifact_id).tool == kept


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_any_name_of_a_tool(name: str) -> None:
    """Row 89: whatever the name, what is kept can stand in the name of a file, and stays as it is."""
    kept = tool_name(name)
    assert 1 <= len(kept) <= 64
    assert set(kept) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    assert tool_name(kept) == kept


@pytest.mark.parametrize("tool", [None, 3, b"bash"])
def test_a_tool_is_text(thread: eventq.Thread, tool: Any) -> None:
    """A tool's name that is no text is refused, and no number is used up."""
    for call in (lambda: thread.artifacts.allocate(tool), lambda: thread.artifacts.put(b"x", tool)):
        with pytest.raises(UsageError, match="the tool's name must be text"):
            call()
    assert thread.artifacts.put(b"x").artifact_id == "0"


# --- in and out -------------------------------------------------------------------------------------------------------


def test_written_and_sealed(thread: eventq.Thread, clock: Clock) -> None:
    """Row 90: an artifact is open until it is sealed with its size, lines, hash and times; then it is read whole."""
    writer = thread.artifacts.allocate("bash")
    now = thread.database.milliseconds()
    assert thread.artifacts.get("0") == ArtifactInfo(
        "0", "bash", "open", 0, 0, None, None, now, None
    )
    writer.write(b"one\ntwo")
    writer.write(b" and a half\n")
    clock.move(2)
    data = b"one\ntwo and a half\n"
    expected = ArtifactInfo(
        "0", "bash", "sealed", len(data), 2, blake3(data).hexdigest(), None, now, now + 2000
    )
    assert writer.seal() == expected
    assert thread.artifacts.get("0") == expected
    assert thread.artifacts.open("0").info == expected
    assert thread.artifacts.open("0").read() == data


@pytest.mark.parametrize(("data", "lines"), [
    (b"", 0), (b"\n", 1), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\nb\n", 2), (b"\n\n", 2),
    (b"\n\na", 3), (b"a\r\nb\r", 2), (b"\0", 1), ("\u2028\x85\x0b".encode(), 1), (b"\xff\xfe", 1),
])  # fmt: skip
def test_lines(thread: eventq.Thread, data: bytes, lines: int) -> None:
    """A line ends with a newline byte; a last one that has not ended is one, and an empty artifact has none."""
    info = thread.artifacts.put(data)
    assert (info.lines, info.size, info.hash) == (lines, len(data), blake3(data).hexdigest())
    with thread.artifacts.allocate() as writer:
        for at in range(len(data)):
            writer.write(data[at : at + 1])
    again = thread.artifacts.get(writer.artifact_id)
    assert (again.lines, again.size, again.hash) == (lines, len(data), info.hash)


BORDERS = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1]


@pytest.mark.parametrize("step", [None, 1000, CHUNK - 1, CHUNK, CHUNK + 1])
@pytest.mark.parametrize(("kind", "size"), [
    *[("text", size) for size in BORDERS],
    *[("zeros", size) for size in BORDERS],
    *[("noise", size) for size in BORDERS if NOISE[size - 1] == 10 or size % CHUNK],
])  # fmt: skip
def test_sizes_at_the_borders_of_chunks(
    opened: eventq.Thread, kind: str, size: int, step: int | None
) -> None:
    """Row 90: whatever the size and in whatever pieces it is written, size, lines, hash and bytes are what was given."""
    data = {"text": TEXT, "noise": NOISE, "zeros": bytes(2 * CHUNK + 1)}[kind][:size]
    if kind == "text" and size:
        data = data[:-1] + b"\n"
    writer = opened.artifacts.allocate()
    for at in range(0, len(data), step or len(data)) if data else ():
        writer.write(data[at : at + (step or len(data))])
    info = writer.seal()
    assert (info.size, info.lines, info.hash) == (size, line_count(data), blake3(data).hexdigest())
    artifact = opened.artifacts.open(writer.artifact_id)
    pieces = list(artifact.stream())
    assert b"".join(pieces) == artifact.read() == data
    assert [len(piece) for piece in pieces] == [
        min(CHUNK, size - at) for at in range(0, size, CHUNK)
    ]
    assert opened.check() == []


def test_many_small_writes(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small writes, stored now and then, are one run of bytes."""
    monkeypatch.setattr("eventq.output.artifacts.COMMIT_SECONDS", 0.0)
    with thread.write():  # one transaction, as this is not about them
        writer = thread.artifacts.allocate()
        chance, at = random.Random(3), 0
        while at < len(THREE):
            step = chance.randrange(400)
            writer.write(THREE[at : at + step])
            at += step
        info = writer.seal()
    expected = (len(THREE), line_count(THREE), blake3(THREE).hexdigest())
    assert (info.size, info.lines, info.hash) == expected
    assert thread.artifacts.open(0).read() == THREE


BUFFERS: list[tuple[Any, bytes]] = [
    (b"abc", b"abc"),
    (bytearray(b"abd"), b"abd"),
    (memoryview(b"a1b2c3")[::2], b"abc"),
    (memoryview(b"abcdef")[::-1], b"fedcba"),
    (memoryview(array.array("I", range(40_000))), array.array("I", range(40_000)).tobytes()),
    (
        memoryview(array.array("I", range(40_000)))[::3],
        array.array("I", range(0, 40_000, 3)).tobytes(),
    ),
    (memoryview(BLOCK * 2).cast("B", [2, CHUNK]), BLOCK * 2),
    (memoryview(b""), b""),
    (memoryview(array.array("d")), b""),
    (bytearray(), b""),
]


def test_every_kind_of_buffer(thread: eventq.Thread) -> None:
    """Bytes, bytearrays and memoryviews of any format, shape and step are the bytes they show, and are let go again."""
    for data, expected in BUFFERS:
        with thread.artifacts.allocate() as writer:
            writer.write(b"<")
            writer.write(data)
            writer.write(b">")
        assert thread.artifacts.open(writer.artifact_id).read() == b"<" + expected + b">"
        assert thread.artifacts.open(thread.artifacts.put(data).artifact_id).read() == expected
    big = bytearray(THREE)
    with thread.artifacts.allocate() as writer:
        writer.write(big)
        big[:3] = b"###"  # what was written is what it was
        big.extend(b"it is not held any more")
    assert thread.artifacts.open(writer.artifact_id).read() == THREE


def test_a_buffer_of_a_strange_shape(opened: eventq.Thread) -> None:
    """A memoryview of no bytes at all, of several dimensions, is no bytes."""
    with opened.artifacts.allocate() as writer:
        writer.write(memoryview(((ctypes.c_int * 0) * 3)()))


def test_what_is_no_bytes(thread: eventq.Thread) -> None:
    """Text and files in text mode are refused with a sentence; what was allocated for a file says why it failed."""
    wrong: Any
    for wrong in ("text", None, 3, ["a"]):
        with pytest.raises(InputError, match=f"an artifact is bytes, not {type(wrong).__name__}"):
            thread.artifacts.put(wrong)
    assert len(thread.artifacts) == 0
    with pytest.raises(InputError, match="the file returns str, not bytes"):
        thread.artifacts.put(io.StringIO("text"))  # type: ignore[arg-type]
    info = thread.artifacts.get(0)
    expected = ("failed", 0, "the file returns str, not bytes - open it in binary mode")
    assert (info.status, info.size, info.error) == expected


class Flood:
    """A file that gives so many blocks, and perhaps breaks then."""

    def __init__(self, blocks: int, error: Exception | None = None) -> None:
        self._left = blocks
        self._error = error
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Give the next bytes, never more than is asked for."""
        assert size > 0
        if not self._rest and self._left:
            self._left -= 1
            self._rest = BLOCK
        if not self._rest and self._error is not None:
            raise self._error
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def test_a_file(thread: eventq.Thread) -> None:
    """A binary file is read to its end, and one that breaks leaves what it had given, as failed."""
    assert (
        thread.artifacts.open(thread.artifacts.put(io.BytesIO(THREE), "cat").artifact_id).read()
        == THREE
    )
    broken: Any = Flood(3, OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        thread.artifacts.put(broken)
    info = thread.artifacts.get(1)
    assert (info.status, info.size, info.error) == ("failed", 3 * CHUNK, "gone")
    assert thread.artifacts.open(1).read() == BLOCK * 3


def test_a_large_file_is_never_in_memory(thread: eventq.Thread) -> None:
    """A stream of 60 MB takes a small part of that as memory, in and out."""
    blocks = 60 * (1 << 20) // CHUNK
    flood: Any = Flood(blocks)
    tracemalloc.start()
    try:
        info = thread.artifacts.put(flood)
        size = sum(map(len, thread.artifacts.open(info.artifact_id).stream()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert info.size == size == blocks * CHUNK
    assert peak < 20 << 20


def test_bytes_are_one_change(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """Bytes that are put at once are sealed or not there: a refusal leaves nothing, not even a number."""
    refuse(thread, "UPDATE OF status ON main.artifacts")
    with pytest.raises(StoreError, match="refused by the test"):
        thread.artifacts.put(THREE)
    allow(thread)
    assert raw.execute("SELECT count(*) FROM artifacts").fetchall() == [(0,)]
    assert raw.execute("SELECT count(*) FROM artifact_chunks").fetchall() == [(0,)]
    assert thread.artifacts.put(b"x").artifact_id == "0"


# --- while it is written ----------------------------------------------------------------------------------------------


def test_nothing_waits_longer_than_its_bytes(thread: eventq.Thread, moments: Moments) -> None:
    """After COMMIT_BYTES the rest of the world reads what was written; before, neither bytes nor time call for it."""
    del moments  # it stands
    writer = thread.artifacts.allocate()
    block = BLOCK
    with eventq.open(thread.path, read_only=True) as reader:
        for number in range(1, 2 * COMMIT_BYTES // CHUNK + 1):
            writer.write(block)
            stored = number * CHUNK // COMMIT_BYTES * COMMIT_BYTES
            info = reader.artifacts.get("0")
            assert (info.status, info.size) == ("open", stored)
        assert info.lines == line_count(block * (2 * COMMIT_BYTES // CHUNK))
        assert reader.artifacts.open(0).read() == block * (2 * COMMIT_BYTES // CHUNK)


def test_nothing_waits_longer_than_its_time(thread: eventq.Thread, moments: Moments) -> None:
    """After COMMIT_SECONDS what waits is stored by the next write or tick, not before; the time is that of the oldest."""
    writer = thread.artifacts.allocate()
    with eventq.open(thread.path, read_only=True) as reader:

        def sizes() -> int:
            found = reader.artifacts.open("0")
            assert found.read() == (b"abcdefgh" * 9)[: found.info.size]
            assert reader.artifacts.get("0").lines == (found.info.size > 0)
            return found.info.size

        writer.write(b"abc")
        assert sizes() == 0
        moments.at += COMMIT_SECONDS * 0.6
        writer.write(b"d")
        writer.tick()
        assert sizes() == 0
        moments.at += COMMIT_SECONDS * 0.6
        writer.tick()
        assert sizes() == 4
        moments.at += 9 * COMMIT_SECONDS  # nothing waits, so the time begins with the next write
        writer.tick()
        writer.write(b"e")
        assert sizes() == 4
        moments.at += COMMIT_SECONDS
        writer.write(b"fgh")
        assert sizes() == 8
        writer.write(b"abc")
        assert sizes() == 8
        assert writer.seal().size == 11
        assert sizes() == 11


@pytest.mark.parametrize("more", [100, 2 * CHUNK])
def test_the_rest_of_a_large_write_waits_for_its_time_too(
    thread: eventq.Thread, moments: Moments, more: int
) -> None:
    """After COMMIT_SECONDS a tick stores all that was written, also the end of what was more than COMMIT_BYTES."""
    writer = thread.artifacts.allocate()
    writer.write(bytes(COMMIT_BYTES + more))
    moments.at += COMMIT_SECONDS
    writer.tick()
    assert thread.artifacts.get(0).size == COMMIT_BYTES + more


def test_a_tick_stores_once(thread: eventq.Thread, moments: Moments) -> None:
    """A tick with nothing to store changes nothing, so that it may come often."""
    writer = thread.artifacts.allocate()
    writer.write(b"abc")
    moments.at += COMMIT_SECONDS
    writer.tick()
    changes = thread.database.connection.total_changes()
    for _ in range(3):
        moments.at += COMMIT_SECONDS
        writer.tick()
    assert thread.database.connection.total_changes() == changes


def test_what_was_opened_stays_as_far_as_it_was(thread: eventq.Thread, moments: Moments) -> None:
    """An artifact that was opened while it was written gives what there was then, whatever comes later."""
    found = {}
    with eventq.open(thread.path, read_only=True) as reader, thread.artifacts.allocate() as writer:
        for at in range(0, len(THREE), 30_000):
            writer.write(THREE[at : at + 30_000])
            moments.at += COMMIT_SECONDS
            writer.tick()
            found[min(at + 30_000, len(THREE))] = reader.artifacts.open(0)
            if at == 60_000:
                begun = found[60_000].stream()
                assert next(begun) == THREE[:60_000]
        assert [(size, artifact.read()) for size, artifact in found.items()] == [
            (n, THREE[:n]) for n in found
        ]
        assert list(begun) == []
        for size, artifact in found.items():
            last = line_count(THREE[:size])
            assert artifact.info.lines == last
            for offset in (1, 2, last // 2, last, last + 1):
                expected = from_line(THREE[:size], offset) if offset <= last else b""
                assert b"".join(artifact.lines_from(offset)) == expected


# --- the end ----------------------------------------------------------------------------------------------------------


def test_failed(thread: eventq.Thread, clock: Clock) -> None:
    """A writer that gives up says why; what it had written is kept and readable, without a hash."""
    writer = thread.artifacts.allocate("bash")
    began = thread.database.milliseconds()
    writer.write(b"one\ntw")
    clock.move(1)
    writer.fail("the tool was interrupted")
    assert thread.artifacts.get(0) == ArtifactInfo(
        "0", "bash", "failed", 6, 2, None, "the tool was interrupted", began, began + 1000
    )
    assert thread.artifacts.open(0).read() == b"one\ntw"


def test_as_a_context_manager(thread: eventq.Thread) -> None:
    """It is sealed at the end, or failed with what was raised, which goes on; what was ended inside is left alone."""
    with thread.artifacts.allocate() as writer:
        writer.write(b"a")
    with pytest.raises(ZeroDivisionError, match="so it was"), thread.artifacts.allocate() as writer:
        writer.write(b"b")
        raise ZeroDivisionError("so it was")
    with pytest.raises(KeyboardInterrupt), thread.artifacts.allocate() as writer:
        writer.write(b"c")
        raise KeyboardInterrupt
    with thread.artifacts.allocate() as writer:
        writer.fail("itself")
    with pytest.raises(RuntimeError), thread.artifacts.allocate() as writer:
        writer.seal()
        raise RuntimeError("after the end")
    found = [(info.status, info.size, info.error) for info in thread.artifacts]
    assert found == [
        ("sealed", 1, None), ("failed", 1, "so it was"), ("failed", 1, "it was interrupted"), ("failed", 0, "itself"),
        ("sealed", 0, None),
    ]  # fmt: skip


def test_a_reason_that_cannot_be_encoded(thread: eventq.Thread) -> None:
    """A writer that gives up for an error with half a character in it, as names of files may have, has failed too."""
    with pytest.raises(OSError, match="no such"), thread.artifacts.allocate():
        raise OSError("no such file: '\udcff'")
    assert thread.artifacts.get(0).status == "failed"


@pytest.mark.parametrize("ended", ["sealed", "failed"])
def test_after_the_end(thread: eventq.Thread, ended: str) -> None:
    """What was sealed or has failed takes nothing more: each call is refused, and nothing changes."""
    writer = thread.artifacts.allocate()
    writer.write(b"abc")
    writer.seal() if ended == "sealed" else writer.fail("why")
    before = thread.artifacts.get(0)
    for call in (
        lambda: writer.write(b"x"),
        writer.seal,
        lambda: writer.fail("again"),
        lambda: writer.write(b""),
    ):
        with pytest.raises(LogicError, match="artifact 0 has ended - allocate another one"):
            call()
    writer.tick()
    assert thread.artifacts.get(0) == before
    assert thread.artifacts.open(0).read() == b"abc"


def test_the_transitions_are_what_happens(thread: eventq.Thread) -> None:
    """TRANSITIONS says exactly what each event makes of each status; what it has no entry for is refused or changes nothing."""

    def make(status: str) -> ArtifactWriter:
        writer = thread.artifacts.allocate()
        writer.write(b"abc")
        if status == "sealed":
            writer.seal()
        elif status == "failed":
            writer.fail("so")
        elif status == "partial":
            orphan(thread, writer)
        assert thread.artifacts.get(writer.artifact_id).status == status
        return writer

    def written(writer: ArtifactWriter) -> None:
        writer.write(b"\n" * COMMIT_BYTES)

    def died(writer: ArtifactWriter) -> None:
        orphan(thread, writer)

    events = {
        "written": written, "sealed": lambda w: w.seal(), "gave up": lambda w: w.fail("so"), "writer died": died,
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


# --- its writer dies --------------------------------------------------------------------------------------------------

WRITER = """
import os, sys, eventq
from eventq.output import artifacts
artifacts.COMMIT_SECONDS = 0.0
thread = eventq.open(sys.argv[1])
writer = thread.artifacts.allocate("bash")
writer.write(b"one\\ntwo\\n" * 20_000)
writer.write(b"thr")
artifacts.COMMIT_SECONDS = 1e9
writer.write(b"ee")
os.write(1, b"wrote")
sys.stdin.read()
"""


def test_a_writer_that_is_killed(thread: eventq.Thread, until: Any) -> None:
    """Row 91: while its process lives an artifact is open; killed, it leaves what was stored, partial, and removable."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, thread.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read(5) == b"wrote"
        assert thread.artifacts.get(0).status == "open"
        with pytest.raises(ConflictError, match="artifact 0 is still being written"):
            thread.artifacts.remove(0)
        process.kill()
    data = b"one\ntwo\n" * 20_000 + b"thr"
    info = thread.artifacts.get(0)
    expected = ("partial", len(data), 40001, None, None)
    assert (info.status, info.size, info.lines, info.hash, info.ended_at_ms) == expected
    assert thread.artifacts.open(0).read() == data
    assert b"".join(thread.artifacts.open(0).lines_from(40_000)) == b"two\nthr"
    content = thread.read("artifact://0")
    assert (content.data, content.complete) == (data, False)
    assert thread.check() == []
    assert thread.artifacts.allocate().artifact_id == "1"
    thread.artifacts.remove(0)
    assert numbers(thread.artifacts) == ["1"]


@pytest.mark.parametrize("owner", [
    "", None, "x", ":", "::", "0:1:0", "0:999999999:5", "0:own:0", "0:own:", "0:own", "own",
    "0:-1:x", "0::", "0:x:y",
])  # fmt: skip
def test_the_owner_is_dead(thread: eventq.Thread, owner: str | None) -> None:
    """An open artifact whose row names no living process, or one that is younger than it, is partial."""
    writer = thread.artifacts.allocate()
    orphan(thread, writer, owner and owner.replace("own", str(os.getpid())))
    assert thread.artifacts.get(0).status == "partial"
    assert [info.status for info in thread.artifacts] == ["partial"]


def test_a_writer_whose_artifact_is_not_its_own(thread: eventq.Thread) -> None:
    """A writer does not store into an artifact that another owner has, or that was deleted."""
    for number, data in enumerate((b"abc", b"")):
        writer = thread.artifacts.allocate()
        writer.write(data)
        orphan(thread, writer)
        if number:
            thread.artifacts.remove(number)
        with pytest.raises(
            ConflictError, match=f"artifact {number} is no longer the one that was written"
        ):
            writer.seal()
    assert thread.artifacts.open(0).read() == b""
    assert numbers(thread.artifacts) == ["0"]


def test_a_writer_whose_artifact_was_deleted(thread: eventq.Thread) -> None:
    """A writer with bytes to store says that its artifact was deleted, and not that the database is broken."""
    writer = thread.artifacts.allocate()
    writer.write(b"abc")
    orphan(thread, writer)
    thread.artifacts.remove(0)
    with pytest.raises(ConflictError, match="artifact 0 is no longer the one that was written"):
        writer.seal()


# --- a store that refuses ---------------------------------------------------------------------------------------------


def test_a_hole_is_never_sealed(thread: eventq.Thread, moments: Moments) -> None:
    """Row 98: after bytes that could not be stored nothing but `fail` is left, and what is there is a prefix."""
    writer = thread.artifacts.allocate()
    writer.write(b"good\n")
    moments.at += COMMIT_SECONDS
    writer.tick()
    refuse(thread, "INSERT ON main.artifact_chunks")
    moments.at += COMMIT_SECONDS
    writer.write(b"waits\n")
    moments.at += COMMIT_SECONDS
    with pytest.raises(StoreError, match="refused by the test"):
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
    with (
        pytest.raises(StoreError, match="refused by the test"),
        thread.artifacts.allocate() as writer,
    ):
        writer.write(bytes(COMMIT_BYTES))
    allow(thread)
    info = thread.artifacts.get(0)
    assert (info.status, info.size) == ("failed", 0)
    assert "refused by the test" in (info.error or "")


def test_a_seal_may_be_tried_again(thread: eventq.Thread) -> None:
    """A seal whose bytes could not be stored is repeated once they can be, and all is there."""
    writer = thread.artifacts.allocate()
    writer.write(THREE)
    refuse(thread, "INSERT ON main.artifact_chunks")
    for _ in range(2):
        with pytest.raises(StoreError, match="refused by the test"):
            writer.seal()
    assert (thread.artifacts.get(0).status, thread.artifacts.get(0).size) == ("open", 0)
    allow(thread)
    assert writer.seal().hash == blake3(THREE).hexdigest()
    assert thread.artifacts.open(0).read() == THREE


def test_a_seal_that_was_undone_may_be_tried_again(thread: eventq.Thread) -> None:
    """A seal that fails after its bytes were given to the transaction, as at its commit, may be tried again."""
    writer = thread.artifacts.allocate()
    writer.write(THREE)
    refuse(thread, "UPDATE OF status ON main.artifacts")
    with pytest.raises(StoreError, match="refused by the test"):
        writer.seal()
    allow(thread)
    assert writer.seal().size == len(THREE)


def test_an_error_on_the_way_out_hides_nothing(thread: eventq.Thread) -> None:
    """When not even the failure can be stored, the caller gets the first error."""
    writer = thread.artifacts.allocate()
    with pytest.raises(ZeroDivisionError), writer:
        refuse(thread, "UPDATE OF status ON main.artifacts")
        raise ZeroDivisionError
    allow(thread)
    assert thread.artifacts.get(0).status == "open"


def test_a_transaction_around_it(thread: eventq.Thread) -> None:
    """What is written inside a transaction that is undone is gone; its writer says so, and the artifact never is whole."""
    kept = thread.artifacts.allocate()
    kept.write(b"before\n")
    with pytest.raises(ZeroDivisionError), thread.write():
        kept.write(bytes(COMMIT_BYTES))
        lost = thread.artifacts.allocate()
        assert lost.artifact_id == "1"
        assert thread.artifacts.put(b"x").status == "sealed"
        raise ZeroDivisionError
    assert numbers(thread.artifacts) == ["0"]
    for writer in (kept, lost):
        with pytest.raises(
            ConflictError,
            match=f"artifact {writer.artifact_id} is no longer the one that was written",
        ):
            writer.seal()
    assert (thread.artifacts.get(0).status, thread.artifacts.get(0).size) == ("open", 0)
    with thread.write():
        assert thread.artifacts.put(b"y").artifact_id == "1"


def test_a_transaction_that_commits(thread: eventq.Thread) -> None:
    """Artifacts and events of one transaction are seen by others together."""
    with eventq.open(thread.path, read_only=True) as reader:
        with thread.write():
            info = thread.artifacts.put(b"x")
            thread.push("self", "note", info.url)
            assert (len(reader.artifacts), reader.last_id()) == (0, 0)
        assert (len(reader.artifacts), reader.last_id()) == (1, 1)


def _begin_and_undo(thread: eventq.Thread) -> ArtifactWriter:
    with pytest.raises(ZeroDivisionError), thread.write():
        writer = thread.artifacts.allocate()
        raise ZeroDivisionError
    return writer


def test_a_writer_that_was_undone_writes_to_nobody_else(thread: eventq.Thread) -> None:
    """A writer whose allocation was undone does not write to the artifact that has the number then."""
    undone = _begin_and_undo(thread)
    with thread.artifacts.allocate() as heir:
        with pytest.raises(ConflictError):
            undone.seal()
        heir.write(b"mine")
    assert thread.artifacts.open(0).read() == b"mine"


def test_a_writer_that_was_undone_fails_nobody_else(thread: eventq.Thread) -> None:
    """A writer whose allocation was undone does not end the artifact that has the number then."""
    undone = _begin_and_undo(thread)
    info = thread.artifacts.put(b"whole")
    with pytest.raises(ConflictError), undone:
        undone.write(bytes(COMMIT_BYTES))
    assert thread.artifacts.get(0) == info


# --- removal ----------------------------------------------------------------------------------------------------------


def test_removal(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A removed artifact is gone with its chunks, others stay; one that is being written is not removed."""
    first, second = thread.artifacts.put(THREE), thread.artifacts.put(b"two")
    failed = thread.artifacts.allocate()
    failed.fail("so")
    writing = thread.artifacts.allocate()
    writing.write(b"more")
    with pytest.raises(ConflictError, match="artifact 3 is still being written") as caught:
        thread.artifacts.remove(writing.artifact_id)
    assert caught.value.actual == 3
    writing.seal()
    opened = thread.artifacts.open(first.artifact_id)
    thread.artifacts.remove(first.artifact_id)
    thread.artifacts.remove(failed.artifact_id)
    with pytest.raises(UnknownArtifactError, match=r"Artifact 0 not found. Available: 1, 3"):
        thread.artifacts.remove(first.artifact_id)
    with pytest.raises(DamagedError, match="artifact 0 is damaged: its chunk 0 is missing"):
        opened.read()
    assert thread.artifacts.open(second.artifact_id).read() == b"two"
    found = raw.execute("SELECT artifact_id, count(*) FROM artifact_chunks GROUP BY 1").fetchall()
    assert found == [(1, 1), (3, 1)]


# --- lines ------------------------------------------------------------------------------------------------------------

LENGTHS = st.sampled_from(
    [0, 0, 1, 2, 7, 80, 5_000, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 3 * CHUNK]
)
TEXTS: Any = st.tuples(st.lists(LENGTHS, max_size=12), st.binary(max_size=3))


@given(TEXTS, st.integers(1, 3))
@example(([CHUNK - 1, 0, CHUNK - 1], b""), 1)
@example(([0] * 12, b"x"), 1)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_every_line_of_any_text(text: tuple[list[int], bytes], cuts: int) -> None:
    """The bytes from any line on are those of a plain split, however long the lines and wherever chunks end."""
    lengths, rest = text
    data = b"".join(b"%d" % (n % 10) * length + b"\n" for n, length in enumerate(lengths)) + rest
    artifacts = in_memory()
    with artifacts.allocate() as writer:
        for at in range(0, len(data), len(data) // cuts + 1):
            writer.write(data[at : at + len(data) // cuts + 1])
    opened = artifacts.open(writer.artifact_id)
    assert opened.info.lines == line_count(data)
    for offset in range(1, opened.info.lines + 1):
        assert b"".join(opened.lines_from(offset)) == from_line(data, offset)
    for offset in (opened.info.lines + 1, opened.info.lines + 2, 1 << 62):
        assert b"".join(opened.lines_from(offset)) == b""
    assert list(artifacts.faults()) == []


def test_what_comes_before_is_not_read(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A line far behind is found without reading the chunks before it: they may even be damaged."""
    info = thread.artifacts.put(TEXT)
    raw.execute("UPDATE artifact_chunks SET bytes = x'00' WHERE position < 2")
    offset = TEXT[: 2 * CHUNK + 5_000].count(b"\n") + 1
    assert b"".join(thread.artifacts.open(0).lines_from(offset)) == from_line(TEXT, offset)
    with pytest.raises(DamagedError):
        b"".join(thread.artifacts.open(0).lines_from(1))
    thread.artifacts.remove(info.artifact_id)


# --- damage -----------------------------------------------------------------------------------------------------------


def test_flipped_bits(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """Whichever byte of a chunk is damaged, reading and the check say of which artifact; the others are as they were."""
    opened.artifacts.put(b"before")
    opened.artifacts.put(THREE)
    opened.artifacts.put(b"after")
    chance = random.Random(5)
    for position in range(3):
        bytes_of = "FROM artifact_chunks WHERE artifact_id = 1 AND position = ?"
        stored: Any = raw.execute(f"SELECT bytes {bytes_of}", (position,)).fetchall()[0][0]
        for at in {0, 1, 4, 5, 6, 9, len(stored) - 1, *chance.sample(range(len(stored)), 8)}:
            broken = bytearray(stored)
            broken[at] ^= 1 << chance.randrange(8)
            raw.execute(
                f"UPDATE artifact_chunks SET bytes = ? {bytes_of[21:]}", (bytes(broken), position)
            )
            try:
                faults = [] if opened.artifacts.open(1).read() == THREE else ["wrong bytes"]
            except DamagedError as error:  # or it is a bit of the header that means nothing
                faults = [error.what]
            assert opened.check() == faults
            assert all(fault.startswith("artifact 1 is damaged: its ") for fault in faults)
        raw.execute(f"UPDATE artifact_chunks SET bytes = ? {bytes_of[21:]}", (stored, position))
    assert opened.check() == []


DAMAGE = {
    "a chunk is gone": (
        "DELETE FROM artifact_chunks WHERE artifact_id = 1 AND position = {}",
        "chunk {} is missing",
    ),
    "a chunk is empty": (
        "UPDATE artifact_chunks SET bytes = x'' WHERE artifact_id = 1 AND position = {}",
        "chunk {} ",
    ),
    "a chunk is no frame": (
        "UPDATE artifact_chunks SET bytes = x'74657874' WHERE artifact_id = 1 AND position = {}",
        "chunk {} ",
    ),
    "a chunk is another's": (
        "UPDATE artifact_chunks SET bytes = (SELECT bytes FROM artifact_chunks WHERE artifact_id = 0) WHERE artifact_id = 1 AND position = {}",
        "chunk {} has 6 bytes, not ",
    ),
}


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_chunk(
    opened: eventq.Thread, raw: apsw.Connection, kind: str, position: int
) -> None:
    """A chunk that is gone, empty, no frame or another's is found by reading and by the check."""
    opened.artifacts.put(b"before")
    opened.artifacts.put(THREE)
    sql, said = DAMAGE[kind]
    raw.execute(sql.format(position))
    with pytest.raises(
        DamagedError, match=f"artifact 1 is damaged: its {said.format(position)}"
    ) as caught:
        opened.artifacts.open(1).read()
    assert caught.value.what in opened.check()
    assert opened.artifacts.open(0).read() == b"before"


def test_a_gap_between_chunks(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """A chunk at a wrong place is found by its row, too."""
    opened.artifacts.put(THREE)
    raw.execute("UPDATE artifact_chunks SET position = 9 WHERE position = 2")
    assert f"artifact 0 has {len(THREE)} bytes, and 3 chunks up to number 9" in opened.check()


def test_swapped_chunks(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """Chunks that are sound, in a wrong order, do not have the hash."""
    opened.artifacts.put(THREE)
    for was, becomes in ((0, 9), (1, 0), (9, 1)):
        raw.execute("UPDATE artifact_chunks SET position = ? WHERE position = ?", (becomes, was))
    with pytest.raises(DamagedError, match="artifact 0 is damaged: its bytes do not have its hash"):
        opened.artifacts.open(0).read()
    assert opened.check() == ["artifact 0 is damaged: its bytes do not have its hash"]


@pytest.mark.parametrize(("change", "said"), [
    ("size = size - 1", "artifact 0 is damaged: its chunk 2 has 1000 bytes, not 999"),
    ("size = size + 1", "artifact 0 is damaged: its chunk 2 has 1000 bytes, not 1001"),
    ("size = size + 70000", "artifact 0 has 202072 bytes, and 3 chunks up to number 2"),
    ("size = 65536", "artifact 0 has 65536 bytes, and 3 chunks up to number 2"),
    ("size = 0", "artifact 0 has 0 bytes, and 3 chunks up to number 2"),
    ("size = -1", "artifact 0 has -1 bytes, and 3 chunks up to number 2"),
    ("lines = lines + 1", "artifact 0 should have 3863 lines, but has 3862"),
    ("lines = 0", "artifact 0 should have 0 lines, but has 3862"),
    ("hash = randomblob(32)", "artifact 0 is damaged: its bytes do not have its hash"),
    ("hash = x''", "artifact 0 is damaged: its bytes do not have its hash"),
    ("hash = NULL", "artifact 0 is sealed, and has a hash or an end of another status"),
    ("ended_at_ms = NULL", "artifact 0 is sealed, and has a hash or an end of another status"),
    ("status = 'open'", "artifact 0 is open, and has a hash or an end of another status"),
    ("status = 'failed'", "artifact 0 is failed, and has a hash or an end of another status"),
    ("status = 'whole'", "artifact 0 is whole, and has a hash or an end of another status"),
    ("artifact_id = 5", "artifact 5 is not below the next number, 1"),
])  # fmt: skip
def test_a_damaged_row(opened: eventq.Thread, raw: apsw.Connection, change: str, said: str) -> None:
    """A size, lines, hash, status or number that is not that of the bytes is found by the check."""
    data = TEXT[: 2 * CHUNK + 999] + b"\n"
    info = opened.artifacts.put(data)
    raw.pragma("ignore_check_constraints", True)
    raw.execute(f"UPDATE artifacts SET {change}")
    faults = [
        fault.replace(str(info.lines + 1), "3863").replace(f"has {info.lines}", "has 3862")
        for fault in opened.check()
    ]
    assert said in faults


def test_damaged_counts_of_newlines(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """Counts of newlines that are not those of the chunks before, so that a wrong line would be given, are found."""
    opened.artifacts.put(THREE)
    raw.execute("UPDATE artifact_chunks SET newlines = newlines + 1 WHERE position = 1")
    assert opened.check() != []


@pytest.mark.parametrize("change", [
    "artifacts SET hash = 'text'", "artifacts SET size = 'text'", "artifacts SET hash = 5",
    "artifact_chunks SET bytes = 'text'", "artifact_chunks SET newlines = x'00'",
    "counters SET next = 'text'",
])  # fmt: skip
def test_values_of_a_wrong_type(thread: eventq.Thread, raw: apsw.Connection, change: str) -> None:
    """The tables take no values of a wrong type, whoever writes them."""
    thread.artifacts.put(b"x")
    raw.pragma("ignore_check_constraints", True)
    with pytest.raises(apsw.ConstraintError, match="cannot store"):
        raw.execute(f"UPDATE {change}")


def test_a_number_that_comes_again_is_a_fault(opened: eventq.Thread, raw: apsw.Connection) -> None:
    """A counter that would give a number again, or is gone, is found by the check."""
    opened.artifacts.put(b"x")
    raw.execute("UPDATE counters SET next = 0")
    assert opened.check() == ["artifact 0 is not below the next number, 0"]
    raw.execute("DELETE FROM counters")
    assert opened.check() == ["artifact 0 is not below the next number, 0"]


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_out(thread: eventq.Thread, folder: str) -> None:
    """Row 88: artifacts are written as `{id}.{tool}.log`, those that are not whole as `{id}.{tool}.partial.log`."""
    thread.artifacts.put(THREE, "bash")
    thread.artifacts.put(b"", "a/b")
    failed = thread.artifacts.allocate("x")
    failed.write(b"some")
    failed.fail("so")
    orphan(thread, thread.artifacts.allocate("y"))
    names = ["0.bash.log", "1.a_b.log", "2.x.partial.log", "3.y.partial.log"]
    expected = dict(zip(names, [THREE, b"", b"some", b""], strict=True))
    assert thread.artifacts.export_folder(folder) == names
    assert files(folder) == expected
    before = {name: os.stat(os.path.join(folder, name)).st_ino for name in names[:2]}
    assert thread.artifacts.export_folder(folder) == names
    assert files(folder) == expected
    assert {
        name: os.stat(os.path.join(folder, name)).st_ino for name in names[:2]
    } == before  # left alone


def test_some_of_a_folder_out(thread: eventq.Thread, folder: str) -> None:
    """Only those are written that are asked for, in that order; an unknown one is refused."""
    for number in range(4):
        thread.artifacts.put(b"%d" % number)
    assert thread.artifacts.export_folder(folder, ["3", 1]) == ["3.tool.log", "1.tool.log"]
    assert files(folder) == {"3.tool.log": b"3", "1.tool.log": b"1"}
    assert thread.artifacts.export_folder(folder, []) == []
    with pytest.raises(UnknownArtifactError):
        thread.artifacts.export_folder(folder, [4])


def test_another_file_in_the_way(thread: eventq.Thread, folder: str) -> None:
    """A file that is another is not overwritten; one that is partial grows with its artifact."""
    thread.artifacts.put(b"mine")
    write_file(folder, "0.tool.log", b"yours")
    with pytest.raises(ConflictError, match="exists with other content"):
        thread.artifacts.export_folder(folder)
    assert files(folder) == {"0.tool.log": b"yours"}
    thread.artifacts.remove(0)
    writer = thread.artifacts.allocate()
    thread.artifacts.export_folder(folder)
    writer.write(b"some")
    writer.fail("so")
    thread.artifacts.export_folder(folder)
    assert files(folder) == {"0.tool.log": b"yours", "1.tool.partial.log": b"some"}


def test_a_folder_that_cannot_be_written(
    thread: eventq.Thread, tmp_path: Path, folder: str
) -> None:
    """A folder that is none is an OSError; a damaged artifact leaves no file, nor a part of one."""
    thread.artifacts.put(THREE)
    with pytest.raises(OSError, match="No such file"):
        thread.artifacts.export_folder(str(tmp_path / "nowhere"))
    thread.database.run("UPDATE artifact_chunks SET bytes = x'00' WHERE position = 2")
    with pytest.raises(DamagedError):
        thread.artifacts.export_folder(folder)
    assert os.listdir(folder) == []
    thread.artifacts.remove(0)


def test_a_folder_in(thread: eventq.Thread, folder: str) -> None:
    """Row 88: files become artifacts under their own numbers, partial ones as failed; numbers go on after the highest."""
    save(
        folder,
        _0_bash_log=THREE,
        _7_web_log=b"seven\n",
        _3_x_partial_log=b"some",
        _12_empty_log=b"",
    )
    made = thread.artifacts.import_folder(folder)
    assert list(made) == ["0.bash.log", "3.x.partial.log", "7.web.log", "12.empty.log"]
    found = [
        (info.artifact_id, info.tool, info.status, info.size, info.hash) for info in made.values()
    ]
    assert found == [
        ("0", "bash", "sealed", len(THREE), blake3(THREE).hexdigest()), ("3", "x", "failed", 4, None),
        ("7", "web", "sealed", 6, blake3(b"seven\n").hexdigest()), ("12", "empty", "sealed", 0, blake3(b"").hexdigest()),
    ]  # fmt: skip
    assert made["3.x.partial.log"].error == "it was incomplete when it was exported"
    assert list(made.values()) == thread.artifacts.list()
    assert thread.artifacts.open(0).read() == THREE
    assert thread.artifacts.put(b"next").artifact_id == "13"


def test_a_folder_goes_round(thread: eventq.Thread, tmp_path: Path, folder: str) -> None:
    """What was exported and imported elsewhere is exported from there as the very same files; twice changes nothing."""
    for number in range(12):
        thread.artifacts.put(TEXT[: number * 20_000], f"tool {number % 3}")
    for data in (b"", b"part", THREE, THREE):  # the last two alike
        writer = thread.artifacts.allocate("p")
        writer.write(data)
        writer.fail("so")
    thread.artifacts.put(b"same")
    thread.artifacts.put(b"same")
    names = thread.artifacts.export_folder(folder)
    with eventq.open(eventq.init(tmp_path / "other")) as other:
        made = other.artifacts.import_folder(folder)
        assert list(made) == names
        assert [info.artifact_id for info in made.values()] == numbers(thread.artifacts)
        again = str(tmp_path / "again")
        os.mkdir(again)
        assert other.artifacts.export_folder(again) == names
        assert files(again) == files(folder)
        before = other.artifacts.list()
        for _ in range(2):
            assert other.artifacts.import_folder(folder) == made
            assert other.artifacts.list() == before
        assert other.check() == []
        assert other.artifacts.put(b"next").artifact_id == str(len(names))
    assert thread.artifacts.import_folder(folder).keys() == made.keys()
    assert len(thread.artifacts) == len(names)


def test_numbers_that_are_taken(thread: eventq.Thread, folder: str) -> None:
    """A file whose number is another's gets one after the highest, also of the folder; imported again it is found there."""
    thread.artifacts.put(b"mine")
    thread.artifacts.put(b"mine too", "bash")
    save(folder, _0_tool_log=b"yours", _1_bash_partial_log=b"mine too", _2_tool_log=b"mine")
    save(folder, _9_tool_log=b"nine")
    made = {name: info.artifact_id for name, info in thread.artifacts.import_folder(folder).items()}
    assert made["2.tool.log"] == "0"  # it is that one, whatever its number
    assert made["9.tool.log"] == "9"
    assert {made["0.tool.log"], made["1.bash.partial.log"]} == {"10", "11"}
    assert thread.artifacts.open(made["0.tool.log"]).read() == b"yours"
    assert thread.artifacts.get(made["1.bash.partial.log"]).status == "failed"
    before = thread.artifacts.list()
    again = thread.artifacts.import_folder(folder)
    assert {name: info.artifact_id for name, info in again.items()} == made
    assert thread.artifacts.list() == before
    assert [thread.artifacts.open(n).read() for n in (0, 1)] == [b"mine", b"mine too"]
    assert thread.artifacts.put(b"next").artifact_id == "12"


def test_numbers_that_were_removed(thread: eventq.Thread, folder: str) -> None:
    """Row 86: the number of an artifact that was deleted is given to no file, nor is that of one that came in."""
    thread.artifacts.put(b"mine")
    save(folder, _0_tool_log=b"zero", _1_tool_log=b"one", _5_tool_log=b"five")
    thread.artifacts.remove(0)
    made = {name: info.artifact_id for name, info in thread.artifacts.import_folder(folder).items()}
    assert made == {"0.tool.log": "6", "1.tool.log": "1", "5.tool.log": "5"}
    thread.artifacts.remove(5)
    made = {name: info.artifact_id for name, info in thread.artifacts.import_folder(folder).items()}
    assert made == {"0.tool.log": "6", "1.tool.log": "1", "5.tool.log": "7"}


def test_a_new_number_is_nobody_elses_in_the_folder(thread: eventq.Thread, folder: str) -> None:
    """Row 88: a file keeps its number where that is free, also when one before it needs a new one."""
    thread.artifacts.put(b"mine")
    save(folder, _0_tool_log=b"yours", _1_tool_log=b"one")
    made = thread.artifacts.import_folder(folder)
    assert {name: info.artifact_id for name, info in made.items()} == {
        "0.tool.log": "2",
        "1.tool.log": "1",
    }


def test_numbers_go_on_after_a_file_that_was_found(thread: eventq.Thread, folder: str) -> None:
    """Row 88: numbers go on after the highest of a folder, also when that file is here under another number."""
    thread.artifacts.put(b"mine")
    save(folder, _9_tool_log=b"mine")
    assert thread.artifacts.import_folder(folder)["9.tool.log"].artifact_id == "0"
    assert thread.artifacts.put(b"next").artifact_id == "10"


def test_equal_files(thread: eventq.Thread, folder: str) -> None:
    """Files that are equal, under several numbers or spellings of one, are that many artifacts, also the second time."""
    save(
        folder,
        _0_a_log=b"same",
        _1_a_log=b"same",
        _4_a_log=b"same",
        _4_b_log=b"same",
        _04_a_log=b"same",
    )
    made = thread.artifacts.import_folder(folder)
    assert (
        len(made) == len({info.artifact_id for info in made.values()}) == len(thread.artifacts) == 5
    )
    assert [made[f"{n}.a.log"].artifact_id for n in (0, 1)] == ["0", "1"]
    assert {
        name: info.artifact_id for name, info in thread.artifacts.import_folder(folder).items()
    } == {name: info.artifact_id for name, info in made.items()}
    assert len(thread.artifacts) == 5


@pytest.mark.parametrize("name", [
    "0.log", "0", "x.bash.log", "-1.bash.log", "1.bash.txt", "1.bash.log.gz", "1.bash.LOG",
    "٣.bash.log", " 1.bash.log", "12345678901234567890.bash.log", "artifact.1.bash.log",
    ".eventq-00.tmp", "1.bash.log\n", "1.bash.log.partial",
])  # fmt: skip
def test_foreign_files(thread: eventq.Thread, folder: str, name: str) -> None:
    """What is not named like an artifact is none: files and folders alike are left alone."""
    write_file(folder, name, b"x")
    os.mkdir(os.path.join(folder, "sub"))
    write_file(os.path.join(folder, "sub"), "5.bash.log", b"x")
    assert thread.artifacts.import_folder(folder) == {}
    assert thread.artifacts.put(b"x").artifact_id == "0"


@pytest.mark.parametrize(("name", "number", "tool", "status"), [
    ("0..log", "0", "tool", "sealed"), ("0..partial.log", "0", "tool", "failed"),
    ("007.a.log", "7", "a", "sealed"), ("1.partial.log", "1", "partial", "sealed"),
    ("1.partial.partial.log", "1", "partial", "failed"), ("2.a.b c.log", "2", "a_b_c", "sealed"),
    ("3.\udcff.log", "3", "tool", "sealed"), ("4.a\nb.log", "4", "a_b", "sealed"),
    ("5." + "x" * 200 + ".log", "5", "x" * 64, "sealed"), ("6.log.log", "6", "log", "sealed"),
])  # fmt: skip
def test_odd_names(
    thread: eventq.Thread, folder: str, name: str, number: str, tool: str, status: str
) -> None:
    """Whatever the tool's name in a file's, it is read as other tools write it, and made one of ours."""
    write_file(folder, name, b"x")
    info = thread.artifacts.import_folder(folder)[name]
    assert (info.artifact_id, info.tool, info.status) == (number, tool, status)
    assert list(thread.artifacts.import_folder(folder).values()) == [info]


def test_large_numbers(thread: eventq.Thread, folder: str) -> None:
    """Numbers of many digits are kept, and go on."""
    save(folder, _99999999999999999_a_log=b"x")
    assert thread.artifacts.import_folder(folder)["99999999999999999.a.log"].artifact_id == "9" * 17
    info = thread.artifacts.put(b"y")
    assert info.artifact_id == "1" + "0" * 17
    assert thread.artifacts.get(info.artifact_id) == info


def test_the_largest_number(thread: eventq.Thread, folder: str) -> None:
    """After the largest number that a file can have, artifacts can still be written, read and exported."""
    write_file(folder, f"{LARGEST_ID}.a.log", b"x")
    assert thread.artifacts.import_folder(folder)[f"{LARGEST_ID}.a.log"].artifact_id == str(
        LARGEST_ID
    )
    info = thread.artifacts.put(b"y")
    assert info.artifact_id == str(LARGEST_ID + 1)
    assert thread.artifacts.get(info.artifact_id) == info
    assert thread.read(info.url).data == b"y"
    thread.artifacts.export_folder(folder)
    assert len(thread.artifacts.import_folder(folder)) == len(thread.artifacts) == 2


@pytest.mark.parametrize("number", [LARGEST_ID + 1, (1 << 63) - 1, 1 << 63, 10**19 - 1])
def test_a_larger_number_is_given_anew(thread: eventq.Thread, folder: str, number: int) -> None:
    """A file whose number is larger than that gets another one, and is found there again."""
    write_file(folder, f"{number}.a.log", b"x")
    for _ in range(2):
        assert thread.artifacts.import_folder(folder)[f"{number}.a.log"].artifact_id == "0"
    assert thread.artifacts.put(b"y").artifact_id == "1"


def test_a_folder_that_cannot_be_read(thread: eventq.Thread, tmp_path: Path, folder: str) -> None:
    """A folder that is none is an OSError; what is named like a file and is none is left out."""
    with pytest.raises(OSError, match="No such file"):
        thread.artifacts.import_folder(str(tmp_path / "nowhere"))
    save(folder, _0_a_log=b"x", _2_a_log=b"y")
    os.mkdir(os.path.join(folder, "1.a.log"))
    os.mkfifo(os.path.join(folder, "3.a.log"))
    os.symlink("nowhere", os.path.join(folder, "4.a.log"))
    for _ in range(2):
        assert list(thread.artifacts.import_folder(folder)) == ["0.a.log", "2.a.log"]
        assert numbers(thread.artifacts) == ["0", "2"]
    os.rmdir(os.path.join(folder, "1.a.log"))
    write_file(folder, "1.a.log", b"z")
    thread.artifacts.import_folder(folder)
    assert numbers(thread.artifacts) == ["0", "1", "2"]


def test_a_file_that_breaks_off(
    thread: eventq.Thread, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes, or cannot be read, between its two readings is not kept in part, and no number is used up."""
    save(folder, _5_a_log=THREE)
    module = sys.modules["eventq.output.artifacts"]
    real = module._read
    for after in (lambda _: iter([b"other"]), lambda _: (_ for _ in ()).throw(OSError("gone"))):
        reads = [real, after]
        monkeypatch.setattr(module, "_read", lambda path, reads=reads: reads.pop(0)(path))
        with pytest.raises((OSError, DamagedError)):
            thread.artifacts.import_folder(folder)
    monkeypatch.setattr(module, "_read", real)
    for info in thread.artifacts:
        assert info.hash != blake3(THREE).hexdigest()
    assert thread.artifacts.import_folder(folder)["5.a.log"].hash == blake3(THREE).hexdigest()


def test_taken_from_elsewhere(thread: eventq.Thread) -> None:
    """Row 106: what comes with a hash and a time keeps them; bytes that do not have the hash are refused, and not kept."""
    told = ArtifactInfo("3", "bash", "sealed", 5, 1, blake3(b"bytes").hexdigest(), None, 1234, 5678)
    with pytest.raises(DamagedError, match="the bytes of artifact 3 do not have its hash"):
        thread.artifacts.take(told, lambda: [b"other"], set())
    assert len(thread.artifacts) == 0
    made = thread.artifacts.take(told, lambda: [b"by", b"tes"], set(), anew=False)
    assert made is not None
    info, new = made
    assert (info.artifact_id, info.created_at_ms, info.hash, new) == ("3", 1234, told.hash, True)
    assert thread.artifacts.take(told, lambda: [b"bytes"], set()) == (info, False)
    assert thread.artifacts.take(told, lambda: [b"bytes"], {3}, anew=False) is None
    taken = {3}
    made = thread.artifacts.take(told, lambda: [b"bytes"], taken)
    assert made is not None
    assert (made[0].artifact_id, made[1], taken) == ("4", True, {3, 4})


# --- doors that are closed, and none ----------------------------------------------------------------------------------


def test_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 92: somebody without a thread has artifacts with numbers of their own; nothing of them is on the disk."""
    monkeypatch.chdir(tmp_path)
    artifacts, others = in_memory(), in_memory()
    assert [artifacts.put(b"x").artifact_id, artifacts.put(THREE, "bash").artifact_id] == ["0", "1"]
    with artifacts.allocate() as writer:
        writer.write(b"two")
    assert others.put(b"y").artifact_id == "0"
    found = (artifacts.open(1).read(), artifacts.open("2").read(), artifacts.open(0).read())
    assert found == (THREE, b"two", b"x")
    assert (len(artifacts), len(others), list(artifacts.faults())) == (3, 1, [])
    artifacts.remove(0)
    assert artifacts.available() == "1, 2"
    assert os.listdir(tmp_path) == []


def test_a_reader_reads_and_does_not_write(
    thread: eventq.Thread, folder: str, tmp_path: Path
) -> None:
    """A thread that was opened to read gives every answer about artifacts, and refuses to make or remove one."""
    info = thread.artifacts.put(THREE)
    save(folder, _1_a_log=b"x")
    out = tmp_path / "out"
    out.mkdir()
    with eventq.open(thread.path, read_only=True) as reader:
        artifacts = reader.artifacts
        found = (artifacts.get(0), artifacts.list(), len(artifacts), artifacts.available())
        assert found == (info, [info], 1, "0")
        assert artifacts.open(0).read() == THREE
        assert b"".join(artifacts.open(0).lines_from(9)) == from_line(THREE, 9)
        assert artifacts.export_folder(str(out)) == ["0.tool.log"]
        for call in (
            artifacts.allocate,
            lambda: artifacts.put(b"x"),
            lambda: artifacts.put(io.BytesIO(b"x")),
            lambda: artifacts.remove(0),
            lambda: artifacts.import_folder(folder),
        ):
            with pytest.raises(ReadOnlyError, match="was opened to read"):
                call()
        assert reader.check() == []
    assert thread.artifacts.list() == [info]


@pytest.mark.parametrize("version", range(4))
def test_an_older_thread_that_is_only_read(
    original: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread from before there were artifacts says what to do when it is opened to read; opened to write it has them."""
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
                StoreError, match=r"older eventq, and holds no .* - open it for writing once"
            ):
                call()
        assert [event.content for event in reader.peek()] == ["one", "two", "3"]
        assert reader.check() == []
    with eventq.open(original) as thread:
        info = thread.artifacts.put(b"hello")
    with eventq.open(original, read_only=True) as reader:
        assert (reader.artifacts.get(0), reader.check()) == (info, [])


def test_after_close(path: str) -> None:
    """A writer and an artifact of a thread that was closed say so."""
    with eventq.open(path) as thread:
        thread.artifacts.put(b"x")
        writer, artifact = thread.artifacts.allocate(), thread.artifacts.open(0)
    for call in (writer.seal, artifact.read, lambda: writer.fail("so")):
        with pytest.raises(EventqError, match="the thread is closed"):
            call()


def test_a_file_in_the_way_of_an_export(thread: eventq.Thread, tmp_path: Path) -> None:
    """What is no file in the place of one is refused, not waited for; the file of what was not whole goes."""
    writer = thread.artifacts.allocate("sh")
    writer.write(b"begun")
    writer._commit()
    folder = str(tmp_path / "out")
    os.mkdir(folder)
    assert thread.artifacts.export_folder(folder) == ["0.sh.partial.log"]
    writer.seal()
    assert thread.artifacts.export_folder(folder) == ["0.sh.log"]
    assert os.listdir(folder) == ["0.sh.log"]
    os.unlink(f"{folder}/0.sh.log")
    os.mkfifo(f"{folder}/0.sh.log")
    with pytest.raises(ConflictError, match="exists, but is not a file"):
        thread.artifacts.export_folder(folder)


def test_links_in_a_folder_lead_nowhere(thread: eventq.Thread, tmp_path: Path) -> None:
    """A link in a folder that is imported is left alone: it may lead anywhere."""
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    for name in ("0.sh.log", "0-A.md"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "secret")
    assert thread.artifacts.import_folder(str(tmp_path / "in")) == {}
    assert thread.outputs.import_folder(str(tmp_path / "in")) == {}


def test_a_writer_whose_transaction_was_undone_fails(thread: eventq.Thread) -> None:
    """An artifact whose bytes a transaction around them took back can still be ended as failed, and deleted."""
    writer = thread.artifacts.allocate("sh")
    with pytest.raises(ZeroDivisionError), thread.write():
        writer.write(b"9" * 5_000_000)
        raise ZeroDivisionError
    with pytest.raises(ConflictError, match="or its transaction was rolled back"):
        writer.seal()
    writer.fail("it was undone")
    assert thread.artifacts.get(0).status == "failed"
    thread.artifacts.remove(0)


def test_a_writer_of_another_container(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer whose process cannot be seen from here is taken to live: nobody deletes what it writes."""
    writer = thread.artifacts.allocate("sh")
    monkeypatch.setattr(system, "namespace", lambda: "another")
    monkeypatch.setattr(system, "birth", lambda _: None)
    assert thread.artifacts.get(0).status == "open"
    with pytest.raises(ConflictError, match="still being written"):
        thread.artifacts.remove(0)
    monkeypatch.undo()
    writer.seal()
