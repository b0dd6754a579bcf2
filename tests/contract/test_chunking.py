"""The chunks of a payload: all of it, of bounded size, and mostly kept by an edit."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventq.memory import chunking
from eventq.memory.chunking import AVERAGE_BYTES, MAX_BYTES, MIN_BYTES, Chunker, cut, pays

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = [
    "request", "response", "worker", "error", "timeout", "cache", "session", "token", "chunk",
    "retry", "select",
]  # fmt: skip


def text(size: int, seed: int = 0) -> bytes:
    """Make the log of a program."""
    dice = random.Random(seed)
    lines: list[bytes] = []
    while size > 0:
        words = " ".join(dice.choices(WORDS, k=dice.randrange(3, 12)))
        numbers = dice.randrange(10**6), dice.getrandbits(40)
        lines.append(b"%d %s id=%x\n" % (numbers[0], words.encode(), numbers[1]))
        size -= len(lines[-1])
    return b"".join(lines)[: size or None]


def fed(pieces: list[bytes | memoryview]) -> list[bytes]:
    """Return the chunks of a stream that comes in such pieces."""
    chunker = Chunker()
    chunks = [bytes(chunk) for piece in pieces for chunk in chunker.feed(piece)]
    return chunks + [bytes(chunk) for chunk in chunker.end()]


def in_pieces(data: bytes, sizes: list[int]) -> list[bytes | memoryview]:
    """Split, by these sizes in turn, into bytes and views by turns."""
    pieces: list[bytes | memoryview] = []
    done = 0
    while done < len(data):
        size = sizes[len(pieces) % len(sizes)]
        piece = data[done : done + size]
        pieces.append(memoryview(piece) if len(pieces) % 2 else piece)
        done += size
    return pieces


KINDS = {
    "text": text(600_000),
    "one line": text(600_000).replace(b"\n", b","),
    "random": random.Random(1).randbytes(600_000),
    "zeros": bytes(600_000),
    "newlines": b"\n" * 600_000,
    "period": b"0123456789" * 60_000,
}
# Lengths around the limits, where a last chunk begins, and any other.
LENGTHS = st.sampled_from(
    [limit + off for limit in (0, MIN_BYTES, AVERAGE_BYTES, MAX_BYTES) for off in (-1, 0, 1, 2)]
)
PAYLOADS = st.builds(
    lambda kind, start, size: KINDS[kind][start : start + max(size, 0)],
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 200_000),
    LENGTHS | st.integers(0, 400_000),
)
SIZES = st.lists(st.integers(1, 3000) | st.integers(1, 200_000), min_size=1, max_size=8)
PROPERTY = settings(max_examples=120, deadline=None, derandomize=True, database=None)


@PROPERTY
@given(PAYLOADS)
def test_the_chunks_are_the_payload(data: bytes) -> None:
    """The chunks one after the other are the payload, and none is empty."""
    chunks = list(cut(data))
    assert b"".join(chunks) == data
    assert all(chunks)


@PROPERTY
@given(PAYLOADS, SIZES)
@example(KINDS["text"], [MAX_BYTES])
@example(KINDS["text"], [600_000])
@example(KINDS["text"][:70_000], [1])
def test_feeding_decides_nothing(data: bytes, sizes: list[int]) -> None:
    """A stream has the chunks of the whole payload, whatever the pieces that it came in."""
    assert fed(in_pieces(data, sizes)) == [bytes(chunk) for chunk in cut(data)]


@PROPERTY
@given(PAYLOADS)
def test_sizes_are_bounded(data: bytes) -> None:
    """No chunk is larger than MAX_BYTES, and only the last is smaller than MIN_BYTES."""
    sizes = [len(chunk) for chunk in cut(data)]
    assert all(MIN_BYTES <= size <= MAX_BYTES for size in sizes[:-1])
    assert max(sizes, default=0) <= MAX_BYTES


@pytest.mark.parametrize("byte", range(256))
def test_runs_of_one_byte(byte: int) -> None:
    """A long run of any one byte makes chunks within the bounds, and only two different ones."""
    data = bytes([byte]) * (4 * MAX_BYTES + 1)
    chunks = [bytes(chunk) for chunk in cut(data)]
    assert b"".join(chunks) == data
    assert all(MIN_BYTES <= len(chunk) <= MAX_BYTES for chunk in chunks[:-1])
    assert len(set(chunks)) <= 2


def test_the_average_is_near() -> None:
    """Text and random bytes have chunks of about AVERAGE_BYTES, between half and twice as much."""
    for kind in ("text", "one line", "random"):
        assert AVERAGE_BYTES / 2 < 600_000 / len(list(cut(KINDS[kind]))) < AVERAGE_BYTES * 2


@pytest.mark.parametrize(
    ("kind", "count", "places"),
    [("text", 30, 4109951152), ("one line", 31, 400570136), ("random", 30, 2066099443)],
)
def test_the_cuts_of_before(kind: str, count: int, places: int) -> None:
    """Payloads are cut where they always were: elsewhere, nothing of what is stored would match."""
    sizes = [len(chunk) for chunk in cut(KINDS[kind])]
    assert (len(sizes), zlib.crc32(",".join(map(str, sizes)).encode())) == (count, places)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 1_000_000), st.binary(min_size=1, max_size=300), st.integers(0, 300))
def test_an_edit_changes_few_chunks(place: int, new: bytes, gone: int) -> None:
    """An edit anywhere in 1 MB of text changes no more than five of its some fifty chunks."""
    after = MEGABYTE[:place] + new + MEGABYTE[place + gone :]
    known = {bytes(chunk) for chunk in cut(MEGABYTE)}
    chunks = [bytes(chunk) for chunk in cut(after)]
    assert len(chunks) > 30
    assert sum(chunk not in known for chunk in chunks) <= 5


MEGABYTE = text(1_000_000, 4)


def test_what_grows_keeps_its_chunks() -> None:
    """A payload that grows at its end has all chunks it had, but the last."""
    for size in range(100_000, 300_000, 5_003):
        before = list(cut(MEGABYTE[:size]))
        assert list(cut(MEGABYTE[: size + 5_003]))[: len(before) - 1] == before[:-1]


def test_cut_copies_nothing() -> None:
    """The chunks of a whole payload are views of it, not copies."""
    data = bytearray(KINDS["text"])
    chunks = list(cut(memoryview(data)))
    data[:] = bytes(len(data))
    assert all(isinstance(chunk, memoryview) for chunk in chunks)
    assert not any(any(chunk) for chunk in chunks)


def test_a_stream_is_not_held() -> None:
    """After each feed, fewer than MAX_BYTES are still to come out."""
    for size in (1_000, 8_192, 65_536, 100_001):
        chunker = Chunker()
        inside = 0
        for piece in in_pieces(KINDS["random"], [size]):
            inside += len(piece) - sum(map(len, chunker.feed(piece)))
            assert 0 <= inside < MAX_BYTES
        assert sum(map(len, chunker.end())) == inside


def test_a_buffer_can_be_used_again() -> None:
    """A caller may read the next piece into the buffer of the last one."""
    data = KINDS["text"]
    for size in (8_192, 300_000):
        buffer = bytearray(size)
        chunker = Chunker()
        chunks: list[memoryview] = []
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            buffer[: len(piece)] = piece
            chunks += chunker.feed(memoryview(buffer)[: len(piece)])
            buffer[:] = bytes(size)
        assert b"".join([*chunks, *chunker.end()]) == data


def test_chunks_need_not_be_taken() -> None:
    """A feed takes its bytes at once, even when nobody reads the chunks it gives."""
    data = KINDS["text"]
    chunker = Chunker()
    given_out = [chunker.feed(data[:300_000]), chunker.feed(data[300_000:]), chunker.end()]
    assert b"".join(chunk for chunks in given_out for chunk in chunks) == data


def test_an_ended_chunker_begins_anew() -> None:
    """After the end a chunker knows nothing of the stream before."""
    chunker = Chunker()
    first, second = ([*chunker.feed(KINDS["text"]), *chunker.end()] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("run", [b"\0", b"\n", b"x", b"ab\n"])
def test_dull_input_is_not_slow(run: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros and newlines make no more chunks than anything else, and are looked at few times."""
    data = run * (2_000_000 // len(run))
    looked = 0

    def count(piece: bytes | memoryview) -> Iterator[memoryview]:
        nonlocal looked
        looked += len(piece)
        return cut(piece)

    whole = sum(1 for _ in cut(data))
    monkeypatch.setattr(chunking, "cut", count)
    assert whole == len(fed(in_pieces(data, [8_192])))
    assert looked < 8 * len(data)
    assert whole <= len(data) / MIN_BYTES + 1


def test_what_compresses_pays() -> None:
    """Text, one long line and zeros are worth chunking, however little or much of them is shown."""
    for kind in ("text", "one line", "zeros"):
        for size in (2_000, 8_192, 8_193, 65_536, 131_072):
            assert pays(KINDS[kind][:size])
            assert pays(memoryview(KINDS[kind])[:size])


def test_what_does_not_compress_does_not_pay() -> None:
    """Random and compressed bytes are not worth chunking, behind a header either."""
    packed = zlib.compress(MEGABYTE)
    for size in (0, 1, 100, 8_192, 8_193, 65_536, 131_072):
        assert not pays(KINDS["random"][:size])
        assert not pays(packed[:size])
    assert not pays(KINDS["text"][:1_500] + packed[:131_072])


def test_all_of_the_sample_is_looked_at() -> None:
    """Text behind an image pays: its beginning does not speak for all of it."""
    assert pays(KINDS["random"][:65_536] + KINDS["text"][:65_536])
