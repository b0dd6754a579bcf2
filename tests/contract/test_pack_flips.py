"""Damaged packs: whatever bit is changed, it is told of or makes no difference, and the thread is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import EventqError
from eventq.records.run import NewRun, NewStep
from eventq.records.turn import NewTurn
from tests.contract.pack_files import FILES, NOTHING, added, flip, meta, says, small, tag, turn
from tests.contract.runs import full, trail
from tests.contract.support import outputs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")

TYPE = "my.Type"
EVERY = pytest.mark.soak


def fill(thread: eventq.Thread) -> None:
    """Store a little of everything but runs."""
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


def fill_runs(thread: eventq.Thread) -> None:
    """Store runs with everything that hangs on runs."""
    caller = full(thread).info().head
    run = thread.runs.start(NewRun("w", "p", {"a": "A"}, parent_state=caller), label="main")
    made = [thread.blobs.put(b"made by step %d" % number).ref for number in (1, 2, 3)]
    for number, ref in enumerate(made, 1):
        run.step(NewStep("a", content=f"{number}", refs=[ref]))
    run.fork(at=2, label="fork").step("b")
    run.end()


@pytest.fixture
def pack(request: pytest.FixtureRequest, thread: eventq.Thread, tmp_path: Path) -> Path:
    """Return a pack of runs, or of what is asked for."""
    getattr(request, "param", fill_runs)(thread)
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
    """Import a pack, check, and roll back; return what the thread held and the notes, or the error."""
    with pytest.raises(Undo), thread.write():
        try:
            notes = thread.import_pack(pack).notes
        except EventqError as error:
            notes = (str(error),)
        assert thread.check() == []
        found = state(thread)
        raise Undo
    return found, notes


NAMES = [*FILES, "artifacts/0.bash.log", "artifacts/1.bash.partial.log"]


@pytest.mark.parametrize(
    ("pack", "names", "first", "step"),
    [
        (fill, NAMES, 0, 499),
        (fill, ["turns.meta"], 0, 29),
        (fill_runs, FILES, 0, 4_999),
        *(pytest.param(fill, [name], 0, 1, marks=EVERY) for name in NAMES),
        *(
            pytest.param(fill_runs, [name], bit, 8, marks=EVERY)
            for name in FILES
            for bit in range(8)
        ),
    ],
    indirect=["pack"],
)
def test_every_flipped_bit(
    names: list[str], first: int, step: int, pack: Path, other: eventq.Thread
) -> None:
    """No flipped bit silently changes an import, or leaves a fault; the suite samples the bits."""
    sound, notes = imported(other, pack)
    assert notes == ()
    for name in names:
        data = (pack / name).read_bytes()
        for bit in range(first, len(data) * 8, min(step, max(1, len(data) // 3))):
            flip(pack / name, bit // 8, 1 << bit % 8)
            found, notes = imported(other, pack)
            assert notes or found == sound, (name, bit)
            (pack / name).write_bytes(data)


# Descriptions of turns.


def foreign(folder: Path, metas: list[bytes]) -> Path:
    """Write a pack of four turns as other programs do, without hashes."""
    log = b"".join(turn(n, n - 1, n - 1, b"%d" % n, number=tag(TYPE)) for n in range(1, 5))
    return small(folder, 4, turn=log, meta=b"".join(metas))


def of_type(turn_id: int, type_id: str = TYPE, length: int = 1, **more: int) -> bytes:
    """Return what is said of a turn."""
    return meta(turn_id, type_id, length=length, **more)


def types(thread: eventq.Thread) -> list[str]:
    """Return the types of the turns of context 1."""
    return [turn.type_id for turn in thread.contexts.get(1).replay()]


ONE, TWO, THREE, FOUR = map(of_type, range(1, 5))
STRAY = "no turn that stands there"
LOST = [TYPE, "", TYPE, TYPE]
BAD: dict[str, tuple[list[bytes], list[str], str]] = {  # the records, the types that come of them, what is said
    "none": ([ONE, TWO, THREE, FOUR], [TYPE] * 4, ""),
    "another tag": ([ONE, of_type(2, "ly.Type"), THREE, FOUR], [TYPE, "ly.Type", TYPE, TYPE], "another type than the tag"),
    "missing": ([ONE, THREE, FOUR], LOST, "missing of turns in turns.log, that of turn 2"),
    "renumbered up": ([ONE, of_type(1 << 60), THREE, FOUR], LOST, STRAY),
    "renumbered to the next": ([ONE, THREE, THREE, FOUR], LOST, STRAY),
    "renumbered down": ([ONE, of_type(0), THREE, FOUR], LOST, STRAY),
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
    folder = foreign(tmp_path / "pack", metas)
    told = [one for one in thread.import_pack(folder).notes if not one.endswith("anew")]
    assert types(thread) == expected
    assert bool(told) == bool(said)
    assert not said or any(note.startswith("turns.meta: ") and said in note for note in told)
    sound = thread.import_pack(foreign(tmp_path / "sound", BAD["none"][0]))
    assert added(sound) == NOTHING
    thread.export_pack(tmp_path / "out")
    assert (tmp_path / "out/turns.log").read_bytes() == (folder / "turns.log").read_bytes()


def test_a_file_of_holes(thread: eventq.Thread, tmp_path: Path) -> None:
    """A `turns.meta` of holes, which reads as records of turn 0 without end, is given up."""
    with open(foreign(tmp_path / "pack", []) / "turns.meta", "wb") as file:
        file.truncate(1 << 40)
    assert thread.import_pack(tmp_path / "pack").turns == 4


@pytest.mark.parametrize("pack", [fill], indirect=True)
@pytest.mark.parametrize("at", [39, 12, 19])  # of a length, a name and a version
def test_one_bit_of_descriptions(at: int, pack: Path, other: eventq.Thread) -> None:
    """A flipped bit of `turns.meta` is reported; an unproven type is left out."""
    flip(pack / "turns.meta", at)
    found = other.import_pack(pack)
    assert "turns.meta: is not what was exported: what it says may be wrong" in found.notes
    assert set(types(other)) <= {TYPE, "message", ""}
    assert types(other).count("") <= 3


# Runs.


def test_refs_are_those_of_the_nodes(
    pack: Path, thread: eventq.Thread, other: eventq.Thread
) -> None:
    """Without the lines of refs, the nodes of runs, of their attempts and children have all refs."""
    lines = (pack / "eventq.ndjson").read_bytes().splitlines(keepends=True)
    left = [line for line in lines if not line.startswith(b'{"ref":')]
    assert len(left) < len(lines)
    (pack / "eventq.ndjson").write_bytes(b"".join(left))
    found = other.import_pack(pack)
    assert found.notes == ("eventq.ndjson: is not what was exported: what it says may be wrong",)
    assert {one.hash: other.blobs.refs(one.hash) for one in other.blobs} == {
        one.hash: thread.blobs.refs(one.hash) for one in thread.blobs
    }


def test_a_step_whose_content_names_a_missing_blob(pack: Path, other: eventq.Thread) -> None:
    """A blob that only the content of a step names costs that step, and the steps after it."""
    data = (pack / "blobs.pack").read_bytes()
    flip(pack / "blobs.pack", data.index(b"made by step 3"))
    found = other.import_pack(pack)
    assert says(found, "blobs.pack: ", "were skipped: the record there is damaged")
    assert says(found, "turns.log: turn ", "was left out: missing blob ")
    assert trail(other.runs.get("fork")) == [(1, "a"), (2, "a"), (3, "b")]
    assert [info.status for info in other.runs.list() if info.name == "w"] == ["active"]


@pytest.mark.parametrize("lost", ["all", "a bit"])
def test_steps_are_known_by_their_tags(
    lost: str, pack: Path, thread: eventq.Thread, other: eventq.Thread
) -> None:
    """A step whose description is lost or damaged is a step all the same."""
    meta = pack / "turns.meta"
    if lost == "all":
        meta.write_bytes(b"")
    else:
        flip(meta, meta.read_bytes().index(b"eventq.state"))
    assert says(other.import_pack(pack), "turns.meta: is not what was exported")
    assert trail(other.runs.get("main")) == trail(thread.runs.get("main"))
    one, two = (
        [turn.type_id for turn in at.contexts.get("main").replay()] for at in (thread, other)
    )
    assert one == two  # fmt: skip
