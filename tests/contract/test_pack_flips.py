"""Every bit of every file of a pack: a change is refused, told of, or makes no difference."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.dag.packfile import BlobRecord, HeadRecord, MetaRecord, PackWriter, TurnRecord
from eventq.errors import EventqError
from eventq.records import NewTurn
from eventq.transfer.sources import type_tag

if TYPE_CHECKING:
    from pathlib import Path


TYPE = "my.Type"


@pytest.fixture
def pack(path: str, tmp_path: Path) -> Path:
    """Return a small pack that holds some of everything."""
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for number in range(1, 5):
            main.append(NewTurn(f"m{number}", type_id=TYPE, type_version=number))
        main.fork(at=2, name="side")
        thread.contexts.patch(2, "again")
        thread.contexts.tombstone(3)
        thread.blobs.pin(thread.blobs.put(b"pinned", refs=[main.append("last").hash]).hash, "me")
        thread.artifacts.put(b"whole", "bash")
        writer = thread.artifacts.allocate("bash")
        writer.write(b"a part")
        writer.fail("for a test")
        thread.outputs.put("Scout", "found")
        thread.export_pack(tmp_path / "pack")
    return tmp_path / "pack"


def state(thread: eventq.Thread) -> Any:
    """Return what a thread holds, but for when it was stored here."""
    return (
        [
            (one.context_id, one.name, one.fork_of, one.head_turn_id, one.flags, one.created_at_ms)
            for one in thread.contexts
        ],
        [list(thread.contexts.get(one.context_id).replay()) for one in thread.contexts],
        [list(thread.contexts.get(one.context_id).replay(as_of=0)) for one in thread.contexts],
        thread.blobs.pins(),
        sorted((one.hash, one.size, tuple(thread.blobs.refs(one.hash))) for one in thread.blobs),
        [(one.artifact_id, one.tool, one.status, one.hash, one.created_at_ms, thread.artifacts.open(one.artifact_id).read())
         for one in thread.artifacts],
        [(one.output_id, one.version, one.hash, one.created_at_ms) for one in thread.outputs],
    )  # fmt: skip


class Undo(BaseException):
    """What ends a transaction without a trace."""


def imported(thread: eventq.Thread, pack: Path) -> tuple[Any, tuple[str, ...]]:
    """Import a pack and undo it; return what the thread held, and the notes, or the error as one."""
    with pytest.raises(Undo), thread.write():
        try:
            notes = thread.import_pack(pack).notes
        except EventqError as error:
            notes = (str(error),)
        found = state(thread)
        raise Undo
    return found, notes


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "name",
    [
        "blobs.idx", "blobs.pack", "eventq.ndjson", "heads.tbl", "turns.idx", "turns.log", "turns.meta",
        "artifacts/0.bash.log", "artifacts/1.bash.partial.log",
    ],
)  # fmt: skip
def test_every_flipped_bit(name: str, step: int, pack: Path, tmp_path: Path) -> None:
    """No flipped bit changes what an import brings without a word; the suite takes some of each byte, or byte in turn."""
    with eventq.open(eventq.init(tmp_path / "other")) as other:
        sound, notes = imported(other, pack)
        assert notes == ()
        data = (pack / name).read_bytes()
        for bit in range(0, len(data) * 8, step if name == "turns.meta" or step == 1 else 9 * step):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            (pack / name).write_bytes(changed)
            found, notes = imported(other, pack)
            assert notes or found == sound, bit


def foreign(folder: Path, *metas: MetaRecord, depth: int = 3) -> Path:
    """Write a pack of four turns of a type as other programs do, without hashes of what has no checksums."""
    from blake3 import blake3

    payloads = [b"%d" % number for number in range(1, 5)]
    hashes = [blake3(payload).digest() for payload in payloads]
    with PackWriter(folder) as pack:
        for number in range(4):
            pack.blob(BlobRecord(hashes[number], 0, 1, payloads[number]))
            pack.turn(
                TurnRecord(number + 1, number, number, 0, type_tag(TYPE), hashes[number], 0, 5)
            )
        for meta in metas:
            pack.meta(meta)
        pack.head(HeadRecord(1, 4, depth, 0, 5))
    (folder / "eventq.ndjson").unlink()
    return folder


def meta(
    turn_id: int, type_id: str = TYPE, encoding: int = 0, compression: int = 0, length: int = 1
) -> MetaRecord:
    """Return what is said of a turn."""
    return MetaRecord(turn_id, type_id, 1, encoding, compression, length)


def types(thread: eventq.Thread) -> list[str]:
    """Return the types of the turns of context 1."""
    return [turn.type_id for turn in thread.contexts.get(1).replay()]


BAD = {
    "none": ([meta(1), meta(2), meta(3), meta(4)], [TYPE] * 4, ""),
    "another tag": ([meta(1), meta(2, "ly.Type"), meta(3), meta(4)], [TYPE, "ly.Type", TYPE, TYPE], "another type than the tag"),
    "missing": ([meta(1), meta(3), meta(4)], [TYPE, "", TYPE, TYPE], "missing of turns in turns.log, that of turn 2"),
    "renumbered up": ([meta(1), meta(1 << 60), meta(3), meta(4)], [TYPE, "", TYPE, TYPE], "no turn that stands there"),
    "renumbered to the next": ([meta(1), meta(3), meta(3), meta(4)], [TYPE, "", TYPE, TYPE], "no turn that stands there"),
    "renumbered down": ([meta(1), meta(0), meta(3), meta(4)], [TYPE, "", TYPE, TYPE], "no turn that stands there"),
    "twice": ([meta(1), meta(2), meta(2), meta(3), meta(4)], [TYPE] * 4, "no turn that stands there"),
    "too many": ([meta(1), meta(2), meta(3), meta(4), meta(5)], [TYPE] * 4, "no turn that stands there"),
    "another encoding": ([meta(1), meta(2, encoding=7), meta(3), meta(4)], [TYPE] * 4, "another encoding"),
    "another length": ([meta(1), meta(2, length=2), meta(3), meta(4)], [TYPE] * 4, "another length"),
    "no compression": ([meta(1), meta(2, compression=2), meta(3), meta(4)], [TYPE] * 4, "an unknown compression"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_turns_log_contradicts(kind: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """What is said of one turn and cannot be is told of, and costs no other turn its type."""
    metas, expected, said = BAD[kind]
    notes = thread.import_pack(foreign(tmp_path / "pack", *metas)).notes
    notes = tuple(note for note in notes if not note.endswith("anew"))
    assert types(thread) == expected
    assert (
        any(note.startswith("turns.meta: ") and said in note for note in notes)
        if said
        else notes == ()
    )


def test_a_head_of_another_depth(thread: eventq.Thread, tmp_path: Path) -> None:
    """A head whose depth is not that of its turn is told of."""
    notes = thread.import_pack(foreign(tmp_path / "pack", *map(meta, range(1, 5)), depth=7)).notes
    assert any(note.startswith("heads.tbl: 1 head says another depth") for note in notes)


@pytest.mark.parametrize(("at", "bit"), [(39, 0), (12, 0), (19, 0)])
def test_one_bit_of_descriptions(at: int, bit: int, thread: eventq.Thread, tmp_path: Path) -> None:
    """A flipped bit of `turns.meta` is told of; a type that its tag does not prove is left out, the others stay."""
    context = thread.contexts.create("main")
    for number in range(4):
        context.append(NewTurn(f"m{number}", type_id=TYPE))
    thread.export_pack(tmp_path / "pack")
    data = bytearray((tmp_path / "pack" / "turns.meta").read_bytes())
    data[at] ^= 1 << bit
    (tmp_path / "pack" / "turns.meta").write_bytes(data)
    with eventq.open(eventq.init(tmp_path / "other")) as other:
        notes = other.import_pack(tmp_path / "pack").notes
        assert "turns.meta: is not what was exported: what it says may be wrong" in notes
        assert set(types(other)) <= {TYPE, ""}
        assert types(other).count("") <= 2


def test_a_file_of_holes(thread: eventq.Thread, tmp_path: Path) -> None:
    """A `turns.meta` of holes, which reads as records of turn 0 without end, is given up."""
    foreign(tmp_path / "pack")
    with open(tmp_path / "pack" / "turns.meta", "wb") as file:
        file.truncate(1 << 40)
    assert thread.import_pack(tmp_path / "pack").turns == 4


def test_records_of_turns_meta_are_as_long_as_they_say() -> None:
    """The places that the tests above change are those of a length, a name and a version."""
    data = meta(1).pack()
    assert (len(data), data[12:19]) == (35, TYPE.encode())
    assert struct.unpack_from("<I", data, 19) == (1,)
