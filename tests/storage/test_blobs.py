"""The contract of `eventq.storage.base.Blobs`, on every engine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from blake3 import blake3

from eventq.errors import UnknownBlobError
from eventq.memory.blobs import CUT_BYTES, PART_BYTES
from eventq.storage.turn_rows import GoneError, Piece, PreparedBlob

if TYPE_CHECKING:
    from collections.abc import Sequence

    import eventq
    from eventq.storage.base import Blobs
    from eventq.storage.sqlite.database import Database

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
NONE, ZSTD, PARTS = 0, 1, 2
UNKNOWN = bytes(32)
NOISE = random.Random(1).randbytes(3 * PART_BYTES)
TEXT = b"".join(b"%06d the quick brown %d\n" % (n, n * n % 9973) for n in range(30_000))


def piece(data: bytes, codec: int = NONE) -> Piece:
    """Return bytes as a piece; an engine does not mind that they are no zstd."""
    return Piece(blake3(data).digest(), len(data), codec, data)


def small(data: bytes, *refs: bytes) -> PreparedBlob:
    """Return a blob that is one piece."""
    return PreparedBlob(blake3(data).digest(), len(data), (piece(data),), (), refs)


def long(parts: Sequence[bytes], pieces: Sequence[bytes] | None = None) -> PreparedBlob:
    """Return a blob of parts, which come with it unless `pieces` says which of them do."""
    data = b"".join(parts)
    brought = tuple(map(piece, parts if pieces is None else pieces))
    names = tuple(blake3(part).digest() for part in parts)
    return PreparedBlob(blake3(data).digest(), len(data), brought, names, ())


@pytest.fixture
def blobs(database: Database) -> Blobs:
    """Return the blobs of a fresh thread."""
    return database.blobs


def test_a_blob_of_one_piece(blobs: Blobs) -> None:
    """A blob is new once; it is found by its digest, and its piece comes back as it was kept."""
    row, new = blobs.put(small(b"hello"))
    assert (row, new) == ((blake3(b"hello").digest(), 5, 5, NONE, False), True)
    assert blobs.put(small(b"hello")) == (row, False)
    assert blobs.find([row.digest, UNKNOWN]) == {row.digest: row}
    assert blobs.read([UNKNOWN, row.digest]) == {row.digest: piece(b"hello")}
    assert (blobs.parts(row.digest), blobs.count(), blobs.page(b"", 9)) == ([], 1, [row])


def test_a_blob_of_parts(blobs: Blobs) -> None:
    """Parts stand in order, one as often as it occurs; they are read, and are no blobs."""
    parts = [b"one", b"two", b"one"]
    row, new = blobs.put(long(parts))
    names = [blake3(part).digest() for part in parts]
    assert (row, new) == ((blake3(b"onetwoone").digest(), 9, 9, PARTS, False), True)
    assert blobs.parts(row.digest) == names
    assert {digest: found.part for digest, found in blobs.find(names).items()} == dict.fromkeys(
        names, True
    )
    assert blobs.read([row.digest, *names]) == {
        name: piece(part) for name, part in zip(names, parts, strict=True)
    }
    assert (blobs.count(), blobs.page(b"", 9), blobs.put(long(parts))) == (1, [row], (row, False))


def test_parts_that_were_put_ahead(blobs: Blobs) -> None:
    """Parts may be put ahead of their list; a list of what is not stored is refused."""
    with pytest.raises(GoneError):
        blobs.put(long([b"one", b"two"], [b"two"]))
    assert blobs.find([blake3(b"two").digest()]) == {}
    blobs.put_parts([piece(b"one")])
    assert (blobs.count(), blobs.put(long([b"one", b"two"], [b"two"]))[1]) == (0, True)


def test_a_part_becomes_a_blob(blobs: Blobs) -> None:
    """A part that is put by itself is new, and a blob of its own from then on."""
    blobs.put(long([b"one", b"two"]))
    assert [blobs.put(small(b"one"))[1] for _ in range(2)] == [True, False]
    assert blobs.count() == 2
    blobs.put_parts([piece(b"one")])
    assert blobs.count() == 2


def test_a_blob_that_was_found(blobs: Blobs) -> None:
    """A blob without bytes must be stored already."""
    known = PreparedBlob(blake3(b"hello").digest(), 5, (), (), ())
    with pytest.raises(GoneError):
        blobs.put(known)
    row, _ = blobs.put(small(b"hello"))
    assert blobs.put(known) == (row, False)


@pytest.mark.parametrize("good", [small(b"hello"), long([b"hel", b"lo"])], ids=["piece", "parts"])
@pytest.mark.parametrize("bad", [b"HELLO", b"hell"])
def test_other_bytes_are_replaced(database: Database, good: PreparedBlob, bad: bytes) -> None:
    """Bytes that differ from those that are put are replaced, which heals a damaged blob."""
    blobs = database.blobs
    wrong = Piece(good.digest, len(bad), ZSTD, bad)
    blobs.put(PreparedBlob(good.digest, len(bad), (wrong,), (), ()))
    row, new = blobs.put(good)
    assert (row.size, row.codec, new) == (5, PARTS if good.parts else NONE, False)
    assert tuple(blobs.parts(good.digest)) == good.parts
    found = blobs.read(good.parts or [good.digest])
    assert b"".join(found[name].stored for name in good.parts or [good.digest]) == b"hello"
    assert list(database.faults("blobs")) == []


def test_refs(blobs: Blobs) -> None:
    """A blob names others, sorted and each once; more are added; none that is unknown or a part."""
    names = sorted(blobs.put(small(data))[0].digest for data in (b"1", b"2", b"3"))
    node, _ = blobs.put(small(b"node", names[2], names[0], names[2]))
    assert blobs.refs([node.digest, UNKNOWN]) == {node.digest: [names[0], names[2]], UNKNOWN: []}
    blobs.add_refs(node.digest, names[:2])
    assert blobs.refs([node.digest]) == {node.digest: names}
    blobs.put_parts([piece(b"part")])
    for unknown in (UNKNOWN, blake3(b"part").digest()):
        with pytest.raises(UnknownBlobError, match=unknown.hex()):
            blobs.put(small(b"new", names[0], unknown))
        with pytest.raises(UnknownBlobError, match=unknown.hex()):
            blobs.add_refs(node.digest, [unknown])
        with pytest.raises(UnknownBlobError, match=unknown.hex()):
            blobs.add_refs(unknown, names)
    assert (blobs.find([blake3(b"new").digest()]), blobs.refs([node.digest])) == (
        {},
        {node.digest: names},
    )


def test_pages(blobs: Blobs) -> None:
    """Pages go by digest and skip parts; a scan meets every row once, with its piece."""
    rows = sorted(blobs.put(small(b"%d" % n * 100))[0] for n in range(30))
    blobs.put(long([b"one" * 100, b"two" * 100]))
    listed = blobs.page(b"", 7)
    while more := blobs.page(listed[-1].digest, 7):
        listed += more
    assert [row for row in listed if row.codec != PARTS] == rows
    scanned, cursor = blobs.scan(None, 1000)
    while cursor is not None:
        page, cursor = blobs.scan(cursor, 1000)
        assert sum(len(stored or b"") for _, stored in page) <= 1000
        scanned += page
    assert (len(scanned), len({row.digest for row, _ in scanned})) == (33, 33)
    for row, stored in scanned:
        assert (
            stored is None if row.codec == PARTS else blake3(stored or b"").digest() == row.digest
        )
    assert len(blobs.scan(None, 1)[0]) == 1  # one, however small the room


def test_holders(database: Database, opened: eventq.Thread) -> None:
    """What keeps a blob has kind and name, up to a limit of each kind."""
    leaf = opened.blobs.put(b"leaf")
    digest = bytes.fromhex(leaf.hash)
    nodes = [database.blobs.put(small(b"node %d" % n, digest))[0].digest.hex() for n in range(3)]
    turns = [opened.contexts.create().append(b"leaf").turn_id for _ in range(2)]
    assert [tuple(one) for one in database.blobs.holders(digest, 2)] == [
        *(("turn", f"{turn}", turn) for turn in turns),
        *(("blob", node, 0) for node in sorted(nodes)[:2]),
    ]
    with pytest.raises(UnknownBlobError):
        database.blobs.holders(UNKNOWN, 1)


def test_pins(blobs: Blobs) -> None:
    """A pin is made and undone once, and reports that."""
    one, two = (blobs.put(small(data))[0].digest for data in (b"1", b"2"))
    assert [blobs.pin("b", one, keep=True) for _ in range(2)] == [True, False]
    assert blobs.pin("a", two, keep=True)
    assert blobs.pins() == [("a", two), ("b", one)]
    assert [tuple(one) for one in blobs.holders(one, 9)] == [("pin", "b", 0)]
    assert [blobs.pin("b", one, keep=False) for _ in range(2)] == [True, False]
    assert blobs.pins() == [("a", two)]
    with pytest.raises(UnknownBlobError):
        blobs.pin("a", UNKNOWN, keep=True)


def test_a_sweep(blobs: Blobs, second: Database) -> None:
    """A sweep lists what nothing keeps, by digest, and may delete it; what is young stays."""
    kept = blobs.put(small(b"kept"))[0].digest
    node = blobs.put(small(b"node", kept))[0].digest
    blobs.pin("me", node, keep=True)
    lost = sorted([blobs.put(small(b"lost"))[0], blobs.put(long([b"1", b"2"]))[0]])
    assert blobs.sweep(3_600_000, apply=True) == (0, [])
    turns, rows = blobs.sweep(0, apply=False)
    assert (turns, [row for row in rows if not row.part]) == (0, lost)
    assert second.blobs.sweep(0, apply=True) == (0, rows)
    assert {row.digest for row in blobs.page(b"", 9)} == {kept, node}
    assert blobs.find([row.digest for row in rows]) == {}


def test_an_undone_transaction_takes_all_along(database: Database, blobs: Blobs) -> None:
    """Blobs, parts, refs and pins of a `write` that fails have not been; inside they are seen."""
    one = blobs.put(small(b"one"))[0].digest
    with pytest.raises(ZeroDivisionError), database.write():
        node = blobs.put(small(b"node", one))[0].digest
        blobs.put(long([b"1", b"2"]))
        blobs.pin("me", one, keep=True)
        assert (blobs.count(), blobs.refs([node]), len(blobs.pins())) == (3, {node: [one]}, 1)
        raise ZeroDivisionError
    assert (blobs.count(), blobs.pins(), blobs.holders(one, 9)) == (1, [], [])
    assert blobs.scan(None, 1 << 20)[0] == [(blobs.find([one])[one], b"one")]


@pytest.mark.parametrize("data", [NOISE[:10], NOISE, TEXT[:10], TEXT, bytes(PART_BYTES + 1)])
def test_what_an_engine_is_given(opened: eventq.Thread, data: bytes) -> None:
    """Bytes arrive in pieces of at most 1 MiB, compressed where that is shorter."""
    blobs = opened.database.memory.blobs
    blob = opened.blobs.put(data)
    digest = bytes.fromhex(blob.hash)
    names = blobs.parts(digest) or [digest]
    rows, pieces = blobs.find(names), blobs.read(names)
    assert sum(rows[name].size for name in names) == len(data)
    for name in set(names):
        kept = len(pieces[name].stored)
        assert rows[name].size <= (PART_BYTES if data is NOISE else CUT_BYTES)
        assert (kept, pieces[name].codec) == (rows[name].stored, int(kept < rows[name].size))


def test_what_is_alike_shares_its_parts(opened: eventq.Thread) -> None:
    """A text that grew, or was edited in the middle, adds only its new parts."""
    versions = [TEXT[:400_000], TEXT[:420_000], TEXT[:200_000] + b"edit" + TEXT[200_000:400_000]]
    blobs, kept = opened.database.memory.blobs, []
    for data in versions:
        blob = opened.blobs.put(data)
        rows, _ = blobs.scan(None, 1 << 30)
        kept.append(sum(len(stored or b"") for _, stored in rows))
        assert opened.blobs.get(blob.ref) == data
    assert max(kept[1] - kept[0], kept[2] - kept[1]) < kept[0] / 3
