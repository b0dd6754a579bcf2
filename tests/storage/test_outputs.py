"""The contract of `eventq.storage.base.Outputs` on every engine."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from eventq.errors import UnknownBlobError

if TYPE_CHECKING:
    import eventq
    from eventq.storage.base import Outputs
    from eventq.storage.sqlite.database import Database

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
LARGE = (1 << 62) - 1


@pytest.fixture
def outputs(database: Database) -> Outputs:
    """Return the area."""
    return database.outputs


@pytest.fixture
def digests(opened: eventq.Thread) -> list[bytes]:
    """Return the digests of three blobs."""
    return [bytes.fromhex(opened.blobs.put(b"blob %d" % n).hash) for n in range(3)]


def test_counters_count_each_for_itself(outputs: Outputs, second: Database) -> None:
    """A number is used once; reserved numbers are skipped."""
    assert [
        outputs.next_number("a"),
        second.outputs.next_number("a"),
        outputs.next_number("b"),
    ] == [0, 1, 0]
    outputs.reserve([("a", 9), ("b", 0), ("é 'x\"", 4)])
    outputs.reserve([("a", 3)])
    outputs.reserve([])
    assert outputs.counters() == {"a": 10, "b": 1, "é 'x\"": 5}
    outputs.reserve([("a", LARGE)])
    assert outputs.next_number("a") == LARGE + 1


def test_versions_count_from_one(outputs: Outputs, digests: list[bytes]) -> None:
    """Each blob that is added is the next version, with its size; the first stays what it is."""
    made = [
        outputs.add("0-a", digest, at=at) for digest, at in zip(digests, (5, None, 7), strict=True)
    ]
    assert [(one.output_id, one.version, one.hash, one.size) for one in made] == [
        ("0-a", n + 1, digest.hex(), 6) for n, digest in enumerate(digests)
    ]
    assert (made[0].created_at_ms, made[2].created_at_ms) == (5, 7)
    assert made[1].created_at_ms > 1_700_000_000_000
    assert outputs.versions("0-a") == made
    assert [outputs.versions("0-a", n) for n in range(5)] == [[], *([one] for one in made), []]
    assert outputs.versions("0-b") == []


def test_an_output_is_a_blob_that_is_stored(outputs: Outputs) -> None:
    """Of bytes that are not there no version is made, and no other name."""
    with pytest.raises(UnknownBlobError, match="missing blob blob:blake3:0707"):
        outputs.add("0-a", b"\7" * 32)
    with pytest.raises(UnknownBlobError, match="missing blob blob:blake3:0707"):
        outputs.add_alias(b"\1" * 32, b"\7" * 32)
    assert (outputs.count(), outputs.has_any(), outputs.aliases(b"", 9)) == (0, False, [])


def test_lists_of_outputs(database: Database, digests: list[bytes]) -> None:
    """Versions come by output and number, names once each, both in pages; names are counted."""
    outputs = database.outputs
    for name in ("2-c", "0-a", "1-b", "0-a"):
        outputs.add(name, digests[0])
    every = [(one.output_id, one.version) for one in outputs.page(("", 0), 9)]
    assert every == [("0-a", 1), ("0-a", 2), ("1-b", 1), ("2-c", 1)]
    assert [(one.output_id, one.version) for one in outputs.page(("0-a", 1), 2)] == every[1:3]
    assert (outputs.names("", 2), outputs.names("1-b", 9)) == (["0-a", "1-b"], ["2-c"])
    assert (outputs.count(), list(database.faults("outputs"))) == (3, [])


def test_whether_anything_was_produced(database: Database, digests: list[bytes]) -> None:
    """An artifact or an output is something; a blob is not."""
    assert not database.outputs.has_any()
    number = database.artifacts.create("tool", "me")
    assert database.outputs.has_any()
    database.artifacts.remove(number)
    assert not database.outputs.has_any()
    database.outputs.add("0-a", digests[0])
    assert database.outputs.has_any()


def test_other_names_of_blobs(outputs: Outputs, digests: list[bytes]) -> None:
    """A SHA-256 leads to the blob that was first noted with it; pairs come sorted, in pages."""
    names = [hashlib.sha256(b"%d" % n).digest() for n in range(3)]
    for name, digest in zip(names, digests, strict=True):
        outputs.add_alias(name, digest)
    outputs.add_alias(names[0], digests[2])
    assert [outputs.find_alias(name) for name in names] == digests
    assert outputs.find_alias(b"\0" * 32) is None
    pairs = sorted(zip(names, digests, strict=True))
    assert (outputs.aliases(b"", 9), outputs.aliases(pairs[0][0], 1)) == (pairs, [pairs[1]])


def test_an_undone_transaction_takes_all_along(database: Database, digests: list[bytes]) -> None:
    """Numbers, versions and names of a `write` that fails have not been."""
    outputs = database.outputs
    with pytest.raises(ZeroDivisionError), database.write():
        outputs.next_number("a")
        outputs.add("0-a", digests[0])
        outputs.add_alias(b"\1" * 32, digests[0])
        raise ZeroDivisionError
    assert (outputs.counters(), outputs.count(), outputs.aliases(b"", 9)) == ({}, 0, [])
