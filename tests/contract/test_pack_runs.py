"""Damaged packs of runs: what comes of them checks out, and what does not come is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import EventqError
from eventq.records.run import NewRun, NewStep
from tests.contract.pack_files import FILES, flip, says
from tests.contract.runs import full, trail

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")

SAMPLED = pytest.param(1_499, id="sampled")
EVERY = pytest.param(1, marks=pytest.mark.soak, id="every")


@pytest.fixture
def pack(thread: eventq.Thread, tmp_path: Path) -> Path:
    """Return a pack of runs with everything that hangs on runs."""
    caller = full(thread).info().head
    run = thread.runs.start(NewRun("w", "p", {"a": "A"}, parent_state=caller), label="main")
    made = [thread.blobs.put(b"made by step %d" % number).ref for number in (1, 2, 3)]
    for number, ref in enumerate(made, 1):
        run.step(NewStep("a", content=f"{number}", refs=[ref]))
    run.fork(at=2, label="fork").step("b")
    run.end()
    thread.export_pack(tmp_path / "pack")
    return tmp_path / "pack"


class Undo(BaseException):
    """What ends a transaction without a trace."""


def outcome(thread: eventq.Thread, pack: Path) -> tuple[list[str], tuple[str, ...]]:
    """Import a pack and roll back; return what `check` found and what the import reported."""
    with pytest.raises(Undo), thread.write():
        try:
            notes = thread.import_pack(pack).notes
        except EventqError as error:
            notes = (str(error),)
        faults = thread.check()
        raise Undo
    return faults, notes


@pytest.mark.parametrize("step", [SAMPLED, EVERY])
@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_leaves_a_sound_thread(
    name: str, step: int, pack: Path, other: eventq.Thread
) -> None:
    """Whatever bit is flipped, the import reports it, and `check` finds no fault."""
    data = (pack / name).read_bytes()
    for bit in range(0, len(data) * 8, min(step, max(1, len(data) // 3))):
        flip(pack / name, bit // 8, 1 << bit % 8)
        faults, notes = outcome(other, pack)
        assert (faults, bool(notes)) == ([], True), (bit, notes)
        (pack / name).write_bytes(data)


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
    types = [
        [turn.type_id for turn in one.contexts.get("main").replay()] for one in (thread, other)
    ]
    assert types[0] == types[1]
