"""The contract of `eventq.storage.base.Streams`, for open turns and artifacts, on every engine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from eventq.memory.streams import READ_AHEAD, after_lines, first_bytes, pieces_from
from eventq.storage.output_rows import ArtifactRow
from eventq.storage.turn_rows import Ending, Growth, StreamPiece

if TYPE_CHECKING:
    from collections.abc import Sequence

    import eventq
    from eventq.records.turn import OpenInfo
    from eventq.storage.base import Artifacts, OpenTurns, Streams
    from eventq.storage.sqlite.database import Database

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
MIB = 1 << 20
ME = "me:1:2:3"
LINES = [b"one\ntwo\nth", b"ree\n", b"\n\nsix", b" and seven\nno end"]


class Kind:
    """Streams of one kind, used in one way."""

    def __init__(self, streams: Streams[Any], number: int, owner: str | None) -> None:
        self.streams = streams
        self.number = number
        self.owner = owner

    def seen_by(self, database: Database) -> Kind:
        """Return the same stream in a database that somebody else has opened."""
        area = database.open_turns if self.owner is None else database.artifacts
        return Kind(area, self.number, self.owner)

    def append(self, pieces: Sequence[bytes], **guards: Any) -> int | None:
        """Append pieces after the last one."""
        if self.owner is not None:
            guards.setdefault("owner", self.owner)
        return self.streams.append(self.number, self.growth(pieces), **guards)

    def growth(self, pieces: Sequence[bytes]) -> Growth:
        """Return pieces as they are appended: those of open turns have no position."""
        found = self.stored() if self.owner is not None else []
        position, newlines = len(found), b"".join(found).count(b"\n")
        made = []
        for piece in pieces:
            made.append(StreamPiece(None if self.owner is None else position, newlines, piece))
            position, newlines = position + 1, newlines + piece.count(b"\n")
        return Growth(sum(map(len, pieces)), newlines, tuple(made))

    def end(self, ending: Ending, growth: Growth | None = None, **guards: Any) -> Any:
        """End the stream."""
        if self.owner is not None:
            guards.setdefault("owner", self.owner)
        return self.streams.end(self.number, ending, growth, **guards)

    def size(self) -> int:
        """Return how far it is."""
        return int(self.row().size)

    def row(self) -> Any:
        """Return its row, or None."""
        return self.streams.get(self.number)

    def stored(self) -> list[bytes]:
        """Return the pieces."""
        return [bytes(piece.stored) for piece in pieces_from(self.streams, self.number)]

    def data(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.stored())


@pytest.fixture
def open_turn(opened: eventq.Thread) -> Kind:
    """Return an empty open turn."""
    number = opened.database.memory.open_turns.create(opened.contexts.create().id, "note", 2, 3)
    assert number is not None
    return Kind(opened.database.memory.open_turns, number, None)


@pytest.fixture(params=["open turn", "artifact"])
def stream(request: pytest.FixtureRequest, database: Database, open_turn: Kind) -> Kind:
    """Return an empty stream of each kind."""
    if request.param == "open turn":
        return open_turn
    return Kind(database.artifacts, database.artifacts.create("tool", ME), ME)


def test_the_engine_has_the_interface(database: Database) -> None:
    """What the engine offers is what the interface says: type checkers see it."""
    turns: OpenTurns = database.open_turns
    artifacts: Artifacts = database.artifacts
    assert (turns.get(1), artifacts.get(1)) == (None, None)


# --- both kinds -----------------------------------------------------------------------------------


def test_a_stream_is_read_while_it_grows(stream: Kind, second: Database) -> None:
    """Every piece that was appended can be read by others, in order, before anything is ended."""
    others = stream.seen_by(second)
    assert (others.data(), others.size()) == (b"", 0)
    assert stream.append([b"first"], was=0) == 5
    assert others.data() == b"first"
    assert stream.append([b"x" * MIB, b"last"], was=5) == MIB + 9
    assert others.data() == b"first" + b"x" * MIB + b"last"
    assert others.size() == MIB + 9


@pytest.mark.parametrize("guards", [{"was": 4}, {"was": 0}, {"most": 9}])
def test_a_guard_refuses_without_a_change(stream: Kind, guards: dict[str, Any]) -> None:
    """What expects another size, or less room, is not appended and does not end the stream."""
    stream.append([b"12345"])
    before = stream.row()
    assert stream.append([b"67890"], **guards) is None
    if "was" in guards:
        assert stream.end(Ending("failed", error="so"), **guards) is None
    assert stream.row() == before
    assert stream.data() == b"12345"
    assert stream.append([b"67890"], was=5, most=10) == 10


def test_an_unknown_number(stream: Kind) -> None:
    """Of a stream that is not there nothing is read, and nothing is appended to it."""
    nobody = Kind(stream.streams, 99, stream.owner)
    assert (nobody.row(), nobody.data()) == (None, b"")
    assert nobody.append([b"x"]) is None
    assert nobody.end(Ending("failed", error="so")) is None


def test_an_undone_transaction_takes_the_pieces_along(stream: Kind, database: Database) -> None:
    """What is appended, or ended, inside a `write` that fails has not happened."""
    stream.append([b"kept"])
    before = stream.row()
    with pytest.raises(ZeroDivisionError), database.write():
        stream.append([b"gone"])
        assert stream.data() == b"keptgone"
        assert stream.end(Ending("failed", error="so")) is not None
        raise ZeroDivisionError
    assert (stream.row(), stream.data()) == (before, b"kept")


def test_a_look_is_bounded(stream: Kind) -> None:
    """A look brings at least the piece that is asked for, and no more than one beyond the room."""
    chance = random.Random(3)
    pieces = [chance.randbytes(chance.choice([5_000, 70_000, MIB])) for _ in range(12)]
    for piece in pieces:
        stream.append([piece])
    assert stream.stored() == pieces
    for position in range(12):
        for room in (0, 1, 80_000, READ_AHEAD):
            found = [
                bytes(one.stored) for one in stream.streams.read(stream.number, position, room)
            ]
            assert found == pieces[position : position + len(found)]
            assert len(found) == 1 or sum(map(len, found[:-1])) < room
            full = sum(map(len, found)) >= room
            assert full or position + len(found) == 12
    assert stream.streams.read(stream.number, 12, MIB) == []


def test_a_line_is_found_from_where_the_engine_says(stream: Kind) -> None:
    """From any position that is named for a newline, reading on leads to that line."""
    for piece in LINES:
        stream.append([piece])
    text = b"".join(LINES)
    for line in range(text.count(b"\n") + 1):
        position, before = stream.streams.find_line(stream.number, line)
        pieces = (bytes(one.stored) for one in pieces_from(stream.streams, stream.number, position))
        assert b"".join(after_lines(pieces, line - before)) == text.split(b"\n", line)[-1]


def test_what_is_ended_is_over(stream: Kind) -> None:
    """A stream ends once; its row comes back, and nothing is appended any more."""
    stream.append([b"text"])
    ended = stream.end(Ending("sealed", b"h" * 32), was=4)
    assert ended.size == 4
    assert stream.append([b"more"]) is None
    assert stream.end(Ending("failed", error="so")) is None


def test_what_a_dead_writer_left_is_found(
    stream: Kind, opened: eventq.Thread, second: Database
) -> None:
    """What was appended is there, and listed, when its writer is gone."""
    stream.append([b"acknowledged"])
    left = stream.seen_by(second)
    opened.close()
    (row,) = (
        second.open_turns.page(0, 9)
        if stream.owner is None
        else second.artifacts.page(-1, 9, status="open")
    )
    assert (row.size, left.data()) == (12, b"acknowledged")


# --- open turns -----------------------------------------------------------------------------------


def test_an_open_turn_belongs_to_a_context(opened: eventq.Thread, database: Database) -> None:
    """It is begun for a context that is there and is no run's; otherwise there is no new number."""
    first, other = opened.contexts.create().id, opened.contexts.create().id
    run = opened.runs.start("w", "task")
    turns = database.open_turns
    assert turns.create(99, "note", 1, 0) is None
    assert turns.create(run.id, "note", 1, 0) is None
    numbers = [turns.create(context, "note", 1, 0) for context in (first, other, first)]
    assert numbers == [1, 2, 3]
    assert [one.open_id for one in turns.page(0, 9)] == numbers
    assert [one.open_id for one in turns.page(1, 1)] == [2]
    assert [one.open_id for one in turns.page(0, 9, context=first)] == [1, 3]
    assert [one.open_id for one in turns.page(1, 9, context=first)] == [3]
    assert turns.page(0, 9, context=99) == []


def test_an_ended_open_turn_is_dropped(opened: eventq.Thread, database: Database) -> None:
    """Its row and its pieces are gone; its number is not given again."""
    context, turns = opened.contexts.create().id, database.open_turns
    for status in ("sealed", "failed", "discarded"):
        number = turns.create(context, "note", 1, 0)
        assert number is not None
        turns.append(number, Growth(3, 0, (StreamPiece(None, 0, b"abc"),)))
        info: OpenInfo | None = turns.end(number, Ending(status))
        assert info is not None
        assert (info.open_id, info.context_id, info.size) == (number, context, 3)
        assert (turns.get(number), turns.read(number, 0, MIB)) == (None, [])
    assert number == 3


@pytest.mark.parametrize(("size", "most"), [(20, 260), (1_500, 600), (5_000, 100)])
def test_small_deltas_make_few_pieces(open_turn: Kind, size: int, most: int) -> None:
    """50 KiB of deltas are stored in few pieces, and a large one is not rewritten."""
    chance = random.Random(size)
    deltas = [chance.randbytes(size) for _ in range(50_000 // size)]
    open_turn.append([b"y" * MIB])
    for delta in deltas:
        open_turn.append([delta])
    stored = open_turn.stored()
    assert b"".join(stored[1:]) == b"".join(deltas)
    assert len(stored[0]) == MIB
    assert len(stored) <= 1 + min(most, -(-50_000 // 2_048), len(deltas))


# --- artifacts ------------------------------------------------------------------------------------


def begin(artifacts: Artifacts, text: bytes = b"", **how: Any) -> int:
    """Begin an artifact with some bytes."""
    number = artifacts.create("tool", ME, **how)
    if text:
        piece = StreamPiece(0, 0, text)
        assert artifacts.append(number, Growth(len(text), 1, (piece,)), owner=ME) == len(text)
    return number


def test_an_artifact_belongs_to_its_writer(database: Database) -> None:
    """Nobody else appends to it or ends it, and nobody at all once it has ended."""
    artifacts = database.artifacts
    number = begin(artifacts, b"mine")
    growth = Growth(1, 1, (StreamPiece(1, 0, b"x"),))
    for owner in ("you:1:2:3", None):
        assert artifacts.append(number, growth, owner=owner) is None
        assert artifacts.end(number, Ending("failed", error="so"), owner=owner) is None
    row = artifacts.end(number, Ending("failed", error="so"), owner=ME)
    assert row is not None
    assert (row.status, row.owner, row.error, row.size) == ("failed", None, "so", 4)
    assert artifacts.append(number, growth, owner=ME) is None
    assert artifacts.append(number, growth, owner=None) is None


def test_the_last_chunk_is_replaced(database: Database) -> None:
    """A piece at the last position takes the place of the one that was not full."""
    artifacts = database.artifacts
    number = begin(artifacts, b"ab")
    pieces = (StreamPiece(0, 0, b"abc\n"), StreamPiece(1, 1, b"d"))
    assert artifacts.append(number, Growth(3, 2, pieces), owner=ME, was=2) == 5
    assert artifacts.read(number, 0, MIB) == list(pieces)
    row = artifacts.get(number)
    assert row is not None
    assert (row.size, row.lines, row.status, row.owner) == (5, 2, "open", ME)


def test_a_last_growth_and_the_end_are_one(database: Database) -> None:
    """What is left is stored with the end; a guard that refuses the end refuses both."""
    artifacts = database.artifacts
    number = begin(artifacts, b"ab")
    growth = Growth(2, 1, (StreamPiece(0, 0, b"abcd"),))
    sealed = Ending("sealed", b"h" * 32)
    assert artifacts.end(number, sealed, growth, owner=ME, was=3) is None
    assert [one.stored for one in artifacts.read(number, 0, MIB)] == [b"ab"]
    row = artifacts.end(number, sealed, growth, owner=ME, was=2)
    assert row == artifacts.get(number)
    assert row is not None
    assert (row.status, row.size, row.lines, row.digest, row.error) == (
        "sealed",
        4,
        1,
        b"h" * 32,
        None,
    )
    assert row.ended_at is not None
    assert [one.stored for one in artifacts.read(number, 0, MIB)] == [b"abcd"]


def test_a_gap_ends_a_look(database: Database) -> None:
    """Pieces are given as far as they follow one another."""
    artifacts = database.artifacts
    number = begin(artifacts, b"0")
    growth = Growth(2, 1, tuple(StreamPiece(n, 0, b"%d" % n) for n in (1, 3)))
    artifacts.append(number, growth, owner=ME)
    assert [one.position for one in artifacts.read(number, 0, MIB)] == [0, 1]
    assert artifacts.read(number, 2, MIB) == []
    assert [one.position for one in artifacts.read(number, 3, MIB)] == [3]


def test_numbers_are_given_once(database: Database) -> None:
    """A number that was given, taken or deleted is not given again; a reserved one is passed by."""
    artifacts = database.artifacts
    assert [begin(artifacts), begin(artifacts), begin(artifacts, number=7), begin(artifacts)] == [
        0,
        1,
        7,
        8,
    ]
    assert begin(artifacts, number=3) == 3
    artifacts.reserve(20)
    artifacts.reserve(2)
    assert begin(artifacts) == 21
    assert (artifacts.remove(1), artifacts.remove(1), artifacts.remove(99)) == (True, False, False)
    assert (artifacts.get(1), artifacts.read(1, 0, MIB)) == (None, [])
    assert [n for n in range(24) if not artifacts.is_unused(n)] == [0, 1, 3, 7, 8, 21]
    assert begin(artifacts) == 22


def test_lists_of_artifacts(database: Database) -> None:
    """They come by number, in pages, all or those of a status; and are counted."""
    artifacts = database.artifacts
    for number in range(6):
        begin(artifacts, b"%d" % number)
        if number % 2:
            artifacts.end(number, Ending("sealed", bytes([number]) * 32), owner=ME)
    assert [row.number for row in artifacts.page(-1, 4)] == [0, 1, 2, 3]
    assert [row.number for row in artifacts.page(3, 4)] == [4, 5]
    assert [row.number for row in artifacts.page(-1, 2, status="sealed")] == [1, 3]
    assert [row.number for row in artifacts.page(1, 9, status="open")] == [2, 4]
    assert (
        artifacts.count(),
        artifacts.count(status="sealed"),
        artifacts.count(status="failed"),
    ) == (6, 3, 0)
    assert all(isinstance(row, ArtifactRow) for row in artifacts.page(-1, 9))


def test_artifacts_that_are_alike(database: Database) -> None:
    """Those of a tool and size are found that have the digest, or none yet."""
    artifacts = database.artifacts
    for digest in (b"a" * 32, b"b" * 32, None):
        number = begin(artifacts, b"same")
        if digest:
            artifacts.end(number, Ending("sealed", digest), owner=ME)
    begin(artifacts, b"longer")
    assert [row.number for row in artifacts.alike("tool", 4, b"a" * 32)] == [0, 2]
    assert [row.number for row in artifacts.alike("tool", 4, b"c" * 32)] == [2]
    assert artifacts.alike("other", 4, b"a" * 32) == []


def test_when_an_artifact_began(database: Database) -> None:
    """It begins now, unless it is told when."""
    artifacts = database.artifacts
    rows = [artifacts.get(begin(artifacts)), artifacts.get(begin(artifacts, at=1_234))]
    assert rows[0] is not None
    assert rows[1] is not None
    assert (rows[0].created_at > 1_700_000_000_000, rows[1].created_at) == (True, 1_234)
    assert (rows[0].ended_at, rows[1].ended_at) == (None, None)


# --- above the engines ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(9))
def test_the_first_bytes(size: int) -> None:
    """A stream is read as far as it was, whatever has come since."""
    found = list(first_bytes([b"abc", b"de", b"f", b"gh"], size))
    assert b"".join(found) == b"abcdefgh"[:size]
    assert len(found) <= 4
