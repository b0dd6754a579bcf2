"""An artifact has its own number, is whole once it is sealed, and shows its progress until then."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import (
    ConflictError,
    DamagedError,
    EventqError,
    InputError,
    LogicError,
    ReadOnlyError,
    UnknownArtifactError,
    UsageError,
)
from eventq.output.artifacts import (
    CHUNK,
    COMMIT_BYTES,
    COMMIT_SECONDS,
    LARGEST_ID,
    in_memory,
    tool_name,
)
from eventq.records.artifact import ArtifactInfo
from eventq.system import processes
from tests.conftest import ROOT
from tests.contract.produced import (
    BLOCK,
    NOISE,
    TEXT,
    THREE,
    Flood,
    files,
    from_line,
    line_count,
    save,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.output.artifacts import Artifacts, ArtifactWriter
    from tests.conftest import Clock


class Moments:
    """Seconds that only grow when they are told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        """Return the moment."""
        return self.at


pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    """Return seconds that are moved by hand."""
    made = Moments()
    monkeypatch.setattr("eventq.system.clock.monotonic", made)
    return made


@pytest.fixture
def opened(path: str) -> Iterator[eventq.Thread]:
    """Yield a fresh thread that may be broken."""
    with eventq.open(path) as made:
        yield made


def numbers(artifacts: Artifacts) -> list[str]:
    """Return the numbers that there are."""
    return [info.artifact_id for info in artifacts]


# --- numbers --------------------------------------------------------------------------------------


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
    """Row 86: numbers continue after reopening and after a deletion; none is used again."""
    with eventq.open(path) as thread:
        assert [thread.artifacts.put(b"x").artifact_id for _ in range(3)] == ["0", "1", "2"]
    with eventq.open(path) as thread:
        writer = thread.artifacts.allocate()
        writer.fail("so")
        assert writer.artifact_id == "3"
        thread.artifacts.remove(3)
        thread.artifacts.remove("2")
    with eventq.open(path) as thread:
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


@pytest.mark.parametrize(("count", "listed"), [
    (0, "none"), (1, "0"), (3, "0, 1, 2"), (100, ", ".join(map(str, range(100)))),
    (101, ", ".join(map(str, range(100))) + ", and 1 more"),
    (250, ", ".join(map(str, range(100))) + ", and 150 more"),
])  # fmt: skip
def test_what_is_available(thread: eventq.Thread, count: int, listed: str) -> None:
    """Row 99: an error lists at most 100 numbers, in order, and how many more there are."""
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
    """Row 89: runs of characters outside `[A-Za-z0-9_-]` become one `_`; at most 64 are kept."""
    assert tool_name(given_name) == kept
    assert tool_name(kept) == kept
    assert thread.artifacts.put(b"x", given_name).tool == kept
    writer = thread.artifacts.allocate(given_name)
    assert thread.artifacts.get(writer.artifact_id).tool == kept


@pytest.mark.parametrize("tool", [None, 3, b"bash"])
def test_a_tool_is_text(thread: eventq.Thread, tool: Any) -> None:
    """A tool's name that is no text is refused, and no number is used up."""
    for call in (lambda: thread.artifacts.allocate(tool), lambda: thread.artifacts.put(b"x", tool)):
        with pytest.raises(UsageError, match="the tool's name must be text"):
            call()
    assert thread.artifacts.put(b"x").artifact_id == "0"


# --- in and out -----------------------------------------------------------------------------------


def test_written_and_sealed(thread: eventq.Thread, clock: Clock) -> None:
    """Row 90: an artifact is open until it is sealed with its size, lines, hash and times."""
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
    """A newline ends a line, an unfinished last line counts, and an empty artifact has none."""
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
    """Row 90: size, lines, hash and bytes are right for any size, written in any pieces."""
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


def test_what_was_written_is_what_it_was(thread: eventq.Thread) -> None:
    """A buffer that changes later, or shows every third of its bytes, is stored as it was shown."""
    big = bytearray(THREE)
    with thread.artifacts.allocate() as writer:
        writer.write(big)
        big[:3] = b"###"  # what was written is what it was
        big.extend(b"it is not held any more")
        writer.write(memoryview(b"a1-b2-c3-")[::3])
    assert thread.artifacts.open(writer.artifact_id).read() == THREE + b"abc"


def test_what_is_no_bytes(thread: eventq.Thread) -> None:
    """Text and files in text mode are refused; an artifact allocated for one says why it failed."""
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


def test_a_file(thread: eventq.Thread) -> None:
    """A binary file is read to its end, and one that breaks leaves what it had given, as failed."""
    found = thread.artifacts.open(thread.artifacts.put(io.BytesIO(THREE), "cat").artifact_id).read()
    assert found == THREE
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


# --- while it is written --------------------------------------------------------------------------


def test_nothing_waits_longer_than_its_bytes(thread: eventq.Thread, moments: Moments) -> None:
    """After COMMIT_BYTES others can read what was written, and not before."""
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
    """After COMMIT_SECONDS the next write or tick stores what waits, not before."""
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
    """After COMMIT_SECONDS a tick stores everything, including the rest beyond COMMIT_BYTES."""
    writer = thread.artifacts.allocate()
    writer.write(bytes(COMMIT_BYTES + more))
    moments.at += COMMIT_SECONDS
    writer.tick()
    assert thread.artifacts.get(0).size == COMMIT_BYTES + more


def test_what_was_opened_stays_as_far_as_it_was(thread: eventq.Thread, moments: Moments) -> None:
    """An artifact opened during a write returns what was stored then."""
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


# --- the end --------------------------------------------------------------------------------------


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
    """A block seals its artifact, or fails it with the exception; one ended inside stays."""
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
    """A writer also fails for an error with an unpaired surrogate, as in names of files."""
    with pytest.raises(OSError, match="no such"), thread.artifacts.allocate():
        raise OSError("no such file: '\udcff'")
    assert thread.artifacts.get(0).status == "failed"


@pytest.mark.parametrize("ended", ["sealed", "failed"])
def test_after_the_end(thread: eventq.Thread, ended: str) -> None:
    """A sealed or failed artifact refuses every further call, and does not change."""
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


# --- its writer dies ------------------------------------------------------------------------------

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
    """Row 91: an artifact is open while its process lives; after a kill it is partial."""
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
    assert thread.open_url("artifact://0").incomplete == "artifact://0 is partial"
    assert thread.check() == []
    assert thread.artifacts.allocate().artifact_id == "1"
    thread.artifacts.remove(0)
    assert numbers(thread.artifacts) == ["1"]


# --- a store that refuses -------------------------------------------------------------------------


def test_a_transaction_around_it(thread: eventq.Thread) -> None:
    """An artifact written in a transaction that rolls back is gone, and its writer says so."""
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
    """A writer whose allocation was rolled back does not write to the number's next artifact."""
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


# --- lines ----------------------------------------------------------------------------------------

LENGTHS = st.sampled_from(
    [0, 0, 1, 2, 7, 80, 5_000, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 3 * CHUNK]
)
TEXTS: Any = st.tuples(st.lists(LENGTHS, max_size=12), st.binary(max_size=3))


@given(TEXTS, st.integers(1, 3))
@example(([CHUNK - 1, 0, CHUNK - 1], b""), 1)
@example(([0] * 12, b"x"), 1)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_every_line_of_any_text(text: tuple[list[int], bytes], cuts: int) -> None:
    """Reading from any line equals a plain split, for any line lengths and chunk boundaries."""
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


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_out(thread: eventq.Thread, folder: str) -> None:
    """Row 88: artifacts are exported as `{id}.{tool}.log`, unfinished ones as `….partial.log`."""
    thread.artifacts.put(THREE, "bash")
    thread.artifacts.put(b"", "a/b")
    failed = thread.artifacts.allocate("x")
    failed.write(b"some")
    failed.fail("so")
    thread.artifacts.allocate("y")
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


def test_a_folder_in(thread: eventq.Thread, folder: str) -> None:
    """Row 88: files are imported under their numbers, partial ones as failed."""
    save(
        folder, _0_bash_log=THREE, _7_web_log=b"seven\n", _3_x_partial_log=b"some",
        _12_empty_log=b"",
    )  # fmt: skip
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
    """Exported artifacts, imported elsewhere and exported again, give the same files."""
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
    """A file whose number is taken gets one after the highest; a second import finds it there."""
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
    """Row 86: the number of a deleted or an imported artifact is not reused for a file."""
    thread.artifacts.put(b"mine")
    save(folder, _0_tool_log=b"zero", _1_tool_log=b"one", _5_tool_log=b"five")
    thread.artifacts.remove(0)
    made = {name: info.artifact_id for name, info in thread.artifacts.import_folder(folder).items()}
    assert made == {"0.tool.log": "6", "1.tool.log": "1", "5.tool.log": "5"}
    thread.artifacts.remove(5)
    made = {name: info.artifact_id for name, info in thread.artifacts.import_folder(folder).items()}
    assert made == {"0.tool.log": "6", "1.tool.log": "1", "5.tool.log": "7"}


@pytest.mark.parametrize(("told", "made", "following"), [
    ({0: b"yours", 1: b"one"}, {0: 2, 1: 1}, 3), ({9: b"mine"}, {9: 0}, 10),
    ({10**17 - 1: b"x"}, {10**17 - 1: 10**17 - 1}, 10**17),
    ({LARGEST_ID + 1: b"x"}, {LARGEST_ID + 1: 1}, 2),
    ({(1 << 63) - 1: b"x"}, {(1 << 63) - 1: 1}, 2), ({10**19 - 1: b"x"}, {10**19 - 1: 1}, 2),
])  # fmt: skip
def test_numbers_of_files(
    thread: eventq.Thread, folder: str, told: dict[int, bytes], made: dict[int, int], following: int
) -> None:
    """Row 88: a file keeps a free, valid number; otherwise it gets a new one, always the same."""
    thread.artifacts.put(b"mine")
    for number, data in told.items():
        write_file(folder, f"{number}.tool.log", data)
    for _ in range(2):
        found = thread.artifacts.import_folder(folder).items()
        assert {int(name[:-9]): int(info.artifact_id) for name, info in found} == made
    info = thread.artifacts.put(b"next")
    assert info.artifact_id == str(following)
    assert thread.artifacts.get(info.artifact_id) == info


def test_equal_files(thread: eventq.Thread, folder: str) -> None:
    """Equal files are separate artifacts, also under several spellings of one number."""
    save(
        folder, _0_a_log=b"same", _1_a_log=b"same", _4_a_log=b"same", _4_b_log=b"same",
        _04_a_log=b"same",
    )  # fmt: skip
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
    """Any tool name in a file name is read as other tools write it, and sanitized."""
    write_file(folder, name, b"x")
    info = thread.artifacts.import_folder(folder)[name]
    assert (info.artifact_id, info.tool, info.status) == (number, tool, status)
    assert list(thread.artifacts.import_folder(folder).values()) == [info]


def test_the_largest_number(thread: eventq.Thread, folder: str) -> None:
    """After the largest number of a file, artifacts can still be written, read and exported."""
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
    """A file that changes or disappears between two reads stores nothing and uses no number."""
    save(folder, _5_a_log=THREE)
    module = sys.modules["eventq.output.artifacts"]
    real = module.read_file
    for after in (lambda _: iter([b"other"]), lambda _: (_ for _ in ()).throw(OSError("gone"))):
        reads = [real, after]
        monkeypatch.setattr(module, "read_file", lambda path, reads=reads: reads.pop(0)(path))
        with pytest.raises((OSError, DamagedError)):
            thread.artifacts.import_folder(folder)
    monkeypatch.setattr(module, "read_file", real)
    for info in thread.artifacts:
        assert info.hash != blake3(THREE).hexdigest()
    assert thread.artifacts.import_folder(folder)["5.a.log"].hash == blake3(THREE).hexdigest()


def test_taken_from_elsewhere(thread: eventq.Thread) -> None:
    """Row 106: an import keeps hash and time, and refuses bytes that do not match the hash."""
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


# --- doors that are closed, and none --------------------------------------------------------------


def test_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 92: without a thread, artifacts have their own numbers and leave nothing on the disk."""
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
    """A read-only thread answers everything about artifacts, and refuses changes."""
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


def test_after_close(path: str) -> None:
    """A writer and an artifact of a thread that was closed say so."""
    with eventq.open(path) as thread:
        thread.artifacts.put(b"x")
        writer, artifact = thread.artifacts.allocate(), thread.artifacts.open(0)
    for call in (writer.seal, artifact.read, lambda: writer.fail("so")):
        with pytest.raises(EventqError, match="the thread is closed"):
            call()


def test_a_file_in_the_way_of_an_export(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything but a file in its place is refused at once; a partial one's file is removed."""
    monkeypatch.setattr("eventq.output.artifacts.COMMIT_SECONDS", 0)
    writer = thread.artifacts.allocate("sh")
    writer.write(b"begun")
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
    """An artifact whose bytes were rolled back can still be failed and deleted."""
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
    """A writer whose process is invisible is assumed to be alive: no one deletes its artifact."""
    writer = thread.artifacts.allocate("sh")
    monkeypatch.setattr(processes, "namespace", lambda: "another")
    monkeypatch.setattr(processes, "birth", lambda _: None)
    assert thread.artifacts.get(0).status == "open"
    with pytest.raises(ConflictError, match="still being written"):
        thread.artifacts.remove(0)
    monkeypatch.undo()
    writer.seal()


@pytest.mark.engines("postgres")
def test_a_writer_of_another_machine(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is assumed to be alive, as its processes are not ours; after a reboot of ours it is not."""
    writer = thread.artifacts.allocate("sh")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processes, "host", lambda: "another")
        elsewhere.setattr(processes, "machine", lambda: "its boot")
        elsewhere.setattr(processes, "birth", lambda _: None)
        assert thread.artifacts.get(0).status == "open"
        with pytest.raises(ConflictError, match="still being written"):
            thread.artifacts.remove(0)
    with monkeypatch.context() as rebooted:
        rebooted.setattr(processes, "machine", lambda: "another boot")
        assert thread.artifacts.get(0).status == "partial"
    writer.write(b"all")
    assert writer.seal().size == 3


def test_removal(thread: eventq.Thread) -> None:
    """A removed artifact is gone, others stay; one that is being written is not removed."""
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
