"""The work of imports and exports grows as what they carry does, however much of it is alike."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq.dag.packfile import BlobRecord, HeadRecord, MetaRecord, PackWriter, TurnRecord
from eventq.transfer.sources import type_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FEW, MANY = 300, 1_200
BORN = 1773829800123
OTHER = "another"


@contextmanager
def steps() -> Iterator[list[int]]:
    """Count the steps of all statements of connections that are opened meanwhile."""
    counted = [0]

    def tick() -> bool:
        counted[0] += 1
        return False

    def hook(connection: apsw.Connection) -> None:
        connection.set_progress_handler(tick, 10)

    apsw.connection_hooks.append(hook)
    try:
        yield counted
    finally:
        apsw.connection_hooks.remove(hook)


def blob(raw: bytes) -> BlobRecord:
    """Return the record of a blob."""
    return BlobRecord(bytes(blake3(raw).digest()), 0, len(raw), raw)


def turn(
    pack: PackWriter, turn_id: int, parent: int, depth: int, raw: bytes, at: int = BORN
) -> None:
    """Write a turn and what is said of it."""
    pack.turn(
        TurnRecord(turn_id, parent, depth, 0, type_tag("message"), blake3(raw).digest(), 0, at)
    )
    pack.meta(MetaRecord(turn_id, "message", 1, 0, 0, len(raw)))


def line(pack: PackWriter, **told: Any) -> None:
    """Write a line of eventq.ndjson."""
    pack.beside(json.dumps(told).encode() + b"\n")


def one_turn(pack: PackWriter, payload: bytes = b"1") -> None:
    """Write turn 1 and context 1, which stands at it."""
    pack.blob(blob(payload))
    turn(pack, 1, 0, 0, payload)
    pack.head(HeadRecord(1, 1, 0, 0, BORN))


def equal_patches(pack: PackWriter, count: int) -> None:
    """Write overlays of one turn that are alike."""
    one_turn(pack)
    for _ in range(count):
        line(pack, patch=1, blob=None, flags=0, created_at_ms=5)


def patches_of_one_turn(pack: PackWriter, count: int) -> None:
    """Write overlays of one turn that differ."""
    one_turn(pack)
    for number in range(count):
        line(pack, patch=1, blob=blob(b"1").hash.hex(), flags=0, created_at_ms=number)


def equal_attempts(pack: PackWriter, count: int) -> None:
    """Write attempts after one turn that are alike."""
    one_turn(pack)
    for _ in range(count):
        line(pack, attempt=1, blob=blob(b"1").hash.hex(), created_at_ms=5)


def lost_heads(pack: PackWriter, count: int) -> None:
    """Write branches that no head is left for."""
    for number in range(1, count + 1):
        pack.blob(blob(b"%d" % number))
        turn(pack, number, 0, 0, b"%d" % number)


def contexts_at_one_turn(pack: PackWriter, count: int) -> None:
    """Write contexts that were born together and stand at one turn."""
    one_turn(pack)
    for number in range(2, count + 1):
        pack.head(HeadRecord(number, 1, 0, 0, BORN))


def contexts_of_one_moment(pack: PackWriter, count: int) -> None:
    """Write contexts that were born together and stand at turns of their own."""
    for number in range(1, count + 1):
        pack.blob(blob(b"%d" % number))
        turn(pack, number, 0, 0, b"%d" % number)
        pack.head(HeadRecord(number, number, 0, 0, BORN))


def contexts_of_many_moments(pack: PackWriter, count: int) -> None:
    """Write contexts with names that were born one after the other."""
    one_turn(pack)
    for number in range(2, count + 1):
        pack.head(HeadRecord(number, 1, 0, 0, BORN + number))
        line(pack, context=number, name=f"name {number}", fork_of=None)


def equal_turns(pack: PackWriter, count: int) -> None:
    """Write turns that are alike."""
    pack.blob(blob(b"1"))
    for number in range(1, count + 1):
        turn(pack, number, 0, 0, b"1")
    pack.head(HeadRecord(1, count, 0, 0, BORN))


def equal_first_turns(pack: PackWriter, count: int) -> None:
    """Write first turns of one payload, as of a prompt that all begin with."""
    pack.blob(blob(b"1"))
    for number in range(1, count + 1):
        turn(pack, number, 0, 0, b"1", BORN + number)
        pack.head(HeadRecord(number, number, 0, 0, BORN + number))


def equal_payloads(pack: PackWriter, count: int) -> None:
    """Write a chain of turns of one payload, and as many first turns of others."""
    pack.blob(blob(b"ok"))
    for number in range(1, count + 1):
        turn(pack, number, number - 1, number - 1, b"ok")
    for number in range(1, count + 1):
        pack.blob(blob(b"%d" % number))
        turn(pack, count + number, 0, 0, b"%d" % number)
    pack.head(HeadRecord(1, count, count - 1, 0, BORN))


SHAPES = [
    equal_payloads,
    equal_patches, patches_of_one_turn, equal_attempts, lost_heads, contexts_at_one_turn, contexts_of_one_moment,
    contexts_of_many_moments, equal_turns, equal_first_turns,
]  # fmt: skip


def thread_with_a_turn(folder: Path) -> str:
    """Return the path of a thread that holds a turn and a context, so that no id of a pack is free."""
    path = eventq.init(folder)
    with eventq.open(path) as thread:
        thread.contexts.create(OTHER).append(OTHER)
    return path


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_an_import_is_linear(shape: Callable[[PackWriter, int], None], tmp_path: Path) -> None:
    """Four times as much takes about four times the steps, the first time and again, under the same ids and others."""
    taken: dict[str, list[int]] = {}
    for count in (FEW, MANY):
        folder = tmp_path / f"pack-{count}"
        with PackWriter(folder) as pack:
            shape(pack, count)
        for what, path in (
            ("fresh", eventq.init(tmp_path / f"fresh-{count}")),
            ("other ids", thread_with_a_turn(tmp_path / f"other-{count}")),
        ):
            with steps() as counted, eventq.open(path) as thread:
                for when in ("first", "again"):
                    before = counted[0]
                    found = thread.import_pack(folder)
                    taken.setdefault(f"{what}, {when}", []).append(counted[0] - before)
                assert (found.turns, found.contexts, found.moved) == (0, 0, 0)
    for few, many in taken.values():
        assert many < 6 * few, taken


@pytest.mark.parametrize("all_of_it", [True, False])
def test_an_export_is_linear(
    all_of_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times as many overlays, refs, attempts and runs, of four times as many turns, take about four times the steps."""
    monkeypatch.setattr("eventq.storage.sqlite.packs._PAGE", 10)
    taken = []
    for count in (FEW, MANY):
        folder = tmp_path / f"pack-{count}"
        with PackWriter(folder) as pack:
            one_turn(pack)
            for number in range(2, 4 * count):
                turn(pack, number, 1, 1, b"1", BORN + number)
            for number in range(count):
                pack.blob(blob(b"%d" % number))
                line(
                    pack,
                    patch=4 * number + 1,
                    blob=blob(b"1").hash.hex(),
                    flags=0,
                    created_at_ms=number,
                )
                line(pack, attempt=4 * number + 1, blob=blob(b"1").hash.hex(), created_at_ms=5)
                line(pack, ref=blob(b"1").hash.hex(), blob=blob(b"%d" % number).hash.hex())
                line(pack, root=4 * number + 1, hash=blob(b"1").hash.hex())
                pack.head(HeadRecord(number + 2, 4 * number + 1, 0, 0, BORN + number))
                line(pack, run=number + 2, name="r", group="", status="active", start=1)
        path = eventq.init(tmp_path / f"thread-{count}")
        with eventq.open(path) as thread:
            thread.import_pack(folder)
            contexts = [one.context_id for one in thread.contexts]
            with steps() as counted:
                if all_of_it:
                    thread.export_pack(tmp_path / f"out-{count}")
                else:
                    with eventq.open(eventq.init(tmp_path / f"copy-{count}")) as other:
                        thread.copy_to(other, contexts)
            taken.append(counted[0])
    assert taken[1] < 6 * taken[0], taken
