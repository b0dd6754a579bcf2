"""Every bit of every file of a pack: a change is refused, told of, or makes no difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import EventqError
from eventq.records.turn import NewTurn
from tests.contract.pack_files import FILES, blob, flip, head, meta, says, tag, turn, write
from tests.contract.support import outputs

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
    contexts, artifacts = list(thread.contexts), thread.artifacts
    return (
        [(one.context_id, one.name, one.fork_of, one.head_turn_id, one.flags, one.created_at_ms) for one in contexts],
        [list(thread.contexts.get(one.context_id).replay(as_of=at)) for one in contexts for at in (None, 0)],
        thread.blobs.pins(),
        sorted((one.hash, one.size, tuple(thread.blobs.refs(one.hash))) for one in thread.blobs),
        [(one.artifact_id, one.tool, one.status, one.created_at_ms, artifacts.open(one.artifact_id).read())
         for one in artifacts],
        outputs(thread),
    )  # fmt: skip


class Undo(BaseException):
    """What ends a transaction without a trace."""


def imported(thread: eventq.Thread, pack: Path) -> tuple[Any, tuple[str, ...]]:
    """Import a pack and roll back; return what the thread held and the notes, or the error."""
    with pytest.raises(Undo), thread.write():
        try:
            notes = thread.import_pack(pack).notes
        except EventqError as error:
            notes = (str(error),)
        found = state(thread)
        raise Undo
    return found, notes


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", [*FILES, "artifacts/0.bash.log", "artifacts/1.bash.partial.log"])
def test_every_flipped_bit(name: str, step: int, pack: Path, other: eventq.Thread) -> None:
    """No flipped bit silently changes an import; the suite samples bits of each byte."""
    sound, notes = imported(other, pack)
    assert notes == ()
    data = (pack / name).read_bytes()
    for bit in range(0, len(data) * 8, step if name == "turns.meta" or step == 1 else 9 * step):
        flip(pack / name, bit // 8, 1 << bit % 8)
        found, notes = imported(other, pack)
        assert notes or found == sound, bit
        (pack / name).write_bytes(data)


def foreign(folder: Path, metas: list[bytes] | None = None, depth: int = 3) -> Path:
    """Write a pack of four turns as other programs do, without hashes."""
    return write(
        folder,
        blob=b"".join(blob(b"%d" % n) for n in range(1, 5)),
        turn=b"".join(turn(n, n - 1, n - 1, b"%d" % n, number=tag(TYPE)) for n in range(1, 5)),
        meta=b"".join(map(of_type, range(1, 5)) if metas is None else metas),
        head=head(1, 4, depth),
    )


def of_type(turn_id: int, type_id: str = TYPE, length: int = 1, **more: int) -> bytes:
    """Return what is said of a turn."""
    return meta(turn_id, type_id, length=length, **more)


def types(thread: eventq.Thread) -> list[str]:
    """Return the types of the turns of context 1."""
    return [turn.type_id for turn in thread.contexts.get(1).replay()]


ONE, TWO, THREE, FOUR = map(of_type, range(1, 5))
OTHER = of_type(2, "ly.Type")
STRAY = "no turn that stands there"
BAD: dict[str, tuple[list[bytes], list[str], str]] = {  # the records, the types that come of them, what is said
    "none": ([ONE, TWO, THREE, FOUR], [TYPE] * 4, ""),
    "another tag": ([ONE, OTHER, THREE, FOUR], [TYPE, "ly.Type", TYPE, TYPE], "another type than the tag"),
    "missing": ([ONE, THREE, FOUR], [TYPE, "", TYPE, TYPE], "missing of turns in turns.log, that of turn 2"),
    "renumbered up": ([ONE, of_type(1 << 60), THREE, FOUR], [TYPE, "", TYPE, TYPE], STRAY),
    "renumbered to the next": ([ONE, THREE, THREE, FOUR], [TYPE, "", TYPE, TYPE], STRAY),
    "renumbered down": ([ONE, of_type(0), THREE, FOUR], [TYPE, "", TYPE, TYPE], STRAY),
    "twice": ([ONE, TWO, TWO, THREE, FOUR], [TYPE] * 4, STRAY),
    "too many": ([ONE, TWO, THREE, FOUR, of_type(5)], [TYPE] * 4, STRAY),
    "another encoding": ([ONE, of_type(2, encoding=7), THREE, FOUR], [TYPE] * 4, "another encoding"),
    "another length": ([ONE, of_type(2, length=2), THREE, FOUR], [TYPE] * 4, "another length"),
    "no compression": ([ONE, of_type(2, compression=2), THREE, FOUR], [TYPE] * 4, "an unknown compression"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_turns_log_contradicts(kind: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """What is said of one turn and cannot be is told of, and costs no other turn its type."""
    metas, expected, said = BAD[kind]
    notes = thread.import_pack(foreign(tmp_path / "pack", metas)).notes
    told = [note for note in notes if not note.endswith("anew")]
    assert types(thread) == expected
    assert bool(told) == bool(said)
    assert not said or any(note.startswith("turns.meta: ") and said in note for note in told)


def test_a_head_of_another_depth(thread: eventq.Thread, tmp_path: Path) -> None:
    """A head whose depth is not that of its turn is told of."""
    found = thread.import_pack(foreign(tmp_path / "pack", depth=7))
    assert says(found, "heads.tbl: 1 head says another depth")


@pytest.mark.parametrize("at", [39, 12, 19])  # of a length, a name and a version
def test_one_bit_of_descriptions(
    at: int, thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """A flipped bit of `turns.meta` is reported; an unproven type is left out."""
    context = thread.contexts.create("main")
    for number in range(4):
        context.append(NewTurn(f"m{number}", type_id=TYPE))
    thread.export_pack(tmp_path / "pack")
    flip(tmp_path / "pack" / "turns.meta", at)
    found = other.import_pack(tmp_path / "pack")
    assert "turns.meta: is not what was exported: what it says may be wrong" in found.notes
    assert set(types(other)) <= {TYPE, ""}
    assert types(other).count("") <= 2


def test_a_file_of_holes(thread: eventq.Thread, tmp_path: Path) -> None:
    """A `turns.meta` of holes, which reads as records of turn 0 without end, is given up."""
    foreign(tmp_path / "pack")
    with open(tmp_path / "pack" / "turns.meta", "wb") as file:
        file.truncate(1 << 40)
    assert thread.import_pack(tmp_path / "pack").turns == 4
