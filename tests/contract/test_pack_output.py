"""Packs with artifacts and outputs: all are imported once, and under their numbers where these are free."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import DiskError
from eventq.transfer.sources import PackSource
from tests.contract.pack_files import FILES, artifact, digest, flip, output, pack, tree
from tests.contract.support import left_behind, outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq.records.turn import Imported

NOISE = random.Random(4).randbytes(3 * 65536 + 7)
DATA = b"the bytes of an artifact"

pytestmark = [
    pytest.mark.usefixtures("quick", "ticking"),
    pytest.mark.engines("sqlite", soaked=["postgres"]),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]


def artifacts(thread: eventq.Thread) -> dict[str, Any]:
    """Return what every artifact is that comes over with it."""
    return {
        one.artifact_id: (
            one.tool, one.status == "sealed", one.size, one.lines, one.hash, one.created_at_ms,
            thread.artifacts.open(one.artifact_id).read(),
        )
        for one in thread.artifacts
    }  # fmt: skip


def held(thread: eventq.Thread) -> tuple[Any, ...]:
    """Return a thread's artifacts, outputs, and foreign names of blobs."""
    return artifacts(thread), outputs(thread), list(thread.produced.aliases())


def statuses(thread: eventq.Thread) -> list[str]:
    """Return the statuses of the artifacts."""
    return [one.status for one in thread.artifacts]


def fail(thread: eventq.Thread, data: bytes, tool: str) -> None:
    """Begin an artifact, and fail it."""
    writer = thread.artifacts.allocate(tool)
    writer.write(data)
    writer.fail("for a test")


def fill(thread: eventq.Thread) -> None:
    """Store artifacts of every status, outputs in versions, names, and a turn about them."""
    thread.artifacts.put(b"gone")
    thread.artifacts.remove(0)
    thread.artifacts.put(NOISE, "bash")
    thread.artifacts.put(b"", "read file!")
    fail(thread, b"failed\n", "grep")
    left_behind(thread, b"died\nhere", "grep")
    thread.artifacts.allocate("grep")  # and not sealed
    thread.artifacts.put(b"x\n" * 50_000, "bash")
    thread.outputs.put("Scout", "v1")
    thread.outputs.publish("0-Scout", "v2")
    thread.outputs.publish("0-Scout", "v1")
    thread.outputs.put("Helper", NOISE, "0-Scout")
    thread.outputs.allocate("Never")
    named = thread.blobs.put(NOISE[:5000])
    thread.produced.name_blob(named.hash, hashlib.sha256(NOISE[:5000]).digest())
    thread.contexts.create("main").append("artifact://1 agent://0-Scout")


def added(found: Imported) -> tuple[Any, ...]:
    """Return the numbers of blobs, artifacts and outputs, and the notes."""
    return found.blobs, found.artifacts, found.outputs, found.notes


def test_all_of_it_comes_over(thread: eventq.Thread, other: eventq.Thread, tmp_path: Path) -> None:
    """Numbers, tools, hashes, times, versions and names are kept, once; parts come as failed."""
    fill(thread)
    expected = held(thread)
    assert statuses(thread) == ["sealed", "sealed", "failed", "partial", "open", "sealed"]
    folder = tmp_path / "pack"
    thread.export_pack(folder)
    assert sorted(os.listdir(folder)) == ["artifacts", *FILES]
    assert tree(folder / "artifacts") == {  # without what is still being written
        "1.bash.log": NOISE, "2.read_file.log": b"", "3.grep.partial.log": b"failed\n",
        "4.grep.partial.log": b"died\nhere", "6.bash.log": b"x\n" * 50_000,
    }  # fmt: skip
    found = other.import_pack(folder)
    assert (found.artifacts, found.outputs, found.turns, found.notes) == (5, 4, 1, ())
    for one in (other, thread):
        assert added(one.import_pack(folder)) == (0, 0, 0, ())
    del expected[0]["5"]
    assert held(other) == expected
    assert statuses(other) == ["sealed", "sealed", "failed", "failed", "sealed"]
    errors = {one.error for one in other.artifacts}
    assert errors == {None, "it was incomplete when it was exported"}
    sha256 = hashlib.sha256(NOISE[:5000]).hexdigest()
    assert other.read(f"blob:sha256:{sha256}").data == NOISE[:5000]
    other.export_pack(tmp_path / "again")
    first, second = tree(folder), tree(tmp_path / "again")
    assert first.keys() == second.keys()
    for name in first.keys() - {"eventq.ndjson", "blobs.pack", "blobs.idx"}:
        assert first[name] == second[name]
    assert other.artifacts.put(b"next").artifact_id == "7"


def test_what_the_lines_say(thread: eventq.Thread, tmp_path: Path) -> None:
    """The lines of `eventq.ndjson` describe artifacts, outputs and names completely."""
    out = thread.outputs.put("A", "text")
    thread.export_pack(tmp_path / "bare")
    assert sorted(os.listdir(tmp_path / "bare")) == FILES  # no folder for no artifact
    info = thread.artifacts.put(b"one", "bash")
    thread.produced.name_blob(out.hash, hashlib.sha256(b"text").digest())
    thread.export_pack(tmp_path / "pack")
    *lines, _ = map(json.loads, (tmp_path / "pack" / "eventq.ndjson").read_bytes().splitlines())
    assert lines == [
        {"sha256": hashlib.sha256(b"text").hexdigest(), "blob": out.hash},
        output("0-A", b"text", at=out.created_at_ms),
        artifact(at=info.created_at_ms, size=3, hash=info.hash),
    ]
    assert os.stat(tmp_path / "pack" / "artifacts").st_mode & 0o777 == 0o700


def test_a_number_that_is_taken(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An artifact whose number was used gets one after all others, with a note."""
    for data in (b"theirs 0", b"theirs 1", b"theirs 2", b"theirs 3"):
        thread.artifacts.put(data, "bash")
    thread.export_pack(tmp_path / "pack")
    for data in (b"theirs 1", b"mine", b"gone"):
        other.artifacts.put(data, "bash")
    other.artifacts.remove(2)
    for count in (3, 0):
        found = other.import_pack(tmp_path / "pack")
        assert found.artifacts == count
        assert sorted(found.notes) == [
            f"artifact {one} is artifact {here} here: artifact://{one} in a text means another"
            for one, here in ((0, 4), (1, 0), (2, 5))
        ]
        assert {key: one[-1] for key, one in artifacts(other).items()} == {
            "0": b"theirs 1", "1": b"mine", "3": b"theirs 3", "4": b"theirs 0", "5": b"theirs 2",
        }  # fmt: skip


def test_artifacts_that_are_alike(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Two equal artifacts stay two, also unfinished ones, and are found one by one."""
    for _ in range(2):
        thread.artifacts.put(b"same", "bash")
        fail(thread, b"same", "bash")
    thread.artifacts.put(b"same", "grep")
    thread.export_pack(tmp_path / "pack")
    other.artifacts.put(b"mine")
    kinds = [("bash", False)] * 2 + [("bash", True)] * 2 + [("grep", True), ("tool", True)]
    for count in (5, 0):
        assert other.import_pack(tmp_path / "pack").artifacts == count
        assert sorted((one[0], one[1]) for one in artifacts(other).values()) == kinds


def test_a_version_that_is_taken(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """A taken version becomes the next one, with a note; the name's first version stays."""
    for text in ("theirs 1", "theirs 2"):
        thread.outputs.publish("0-A", text)
    thread.export_pack(tmp_path / "pack")
    other.outputs.publish("0-A", "mine")
    notes = tuple(f"version {n} of output 0-A is version {n + 1} here" for n in (1, 2))
    for count in (2, 0):
        found = other.import_pack(tmp_path / "pack")
        assert (found.outputs, found.notes) == (count, notes)
        texts = [other.outputs.read("0-A", n) for n in (1, 2, 3)]
        assert texts == [b"mine", b"theirs 1", b"theirs 2"]


def test_a_version_after_one_that_was_lost(other: eventq.Thread, tmp_path: Path) -> None:
    """A later version whose first is lost comes once, however often it is imported."""
    lines = output("0-A", b"lost"), output("0-A", b"two", 2)
    folder = pack(tmp_path / "pack", *lines, blobs=(b"two",))
    assert [other.import_pack(folder).outputs for _ in range(2)] == [1, 0]
    assert [one[0] for one in outputs(other).values()] == [b"two"]


def test_the_counters_of_outputs_go_on(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """After an import the next names are beyond those that came, under every parent."""
    thread.outputs.publish("3-A.4-B.5-C", "text")
    thread.export_pack(tmp_path / "pack")
    other.import_pack(tmp_path / "pack")
    assert other.outputs.allocate("X") == "4-X"
    assert other.outputs.allocate("X", "3-A") == "3-A.5-X"
    assert other.outputs.allocate("X", "3-A.4-B") == "3-A.4-B.6-X"


@pytest.mark.parametrize("number", [10**17, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, 10**30])
def test_a_huge_number(other: eventq.Thread, tmp_path: Path, number: int) -> None:
    """An artifact keeps a free number below others, and gets another one otherwise."""
    line, files = artifact(number, hash=digest(DATA).hex()), {f"{number}.bash.log": DATA}
    folder = pack(tmp_path / "pack", line, files=files)
    kept = number < 1 << 62
    for count in (1, 0):
        found = other.import_pack(folder)
        assert (found.artifacts, found.notes == ()) == (count, kept)
        [info] = other.artifacts
        assert info.artifact_id == str(number if kept else 0)
        assert other.read(info.url).data == DATA
    after = other.artifacts.put(b"next")
    assert after.artifact_id == str(number + 1 if kept else 1)
    assert other.read(after.url).data == b"next"


def test_the_largest_number_of_an_output(other: eventq.Thread, tmp_path: Path) -> None:
    """After an output with the largest number that can come, others can still be put."""
    folder = pack(tmp_path / "pack", output(f"{(1 << 62) - 1}-A", b"text"), blobs=(b"text",))
    assert added(other.import_pack(folder)) == (1, 0, 1, ())
    assert other.read(other.outputs.put("B", "next").url).data == b"next"


WOUNDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: file.unlink(),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "shorter": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "flipped": lambda file: flip(file, 0),
    "empty": lambda file: file.write_bytes(b""),
    "a folder": lambda file: file.rename(file.with_name("moved")).with_name(file.name).mkdir(),
    "a link": lambda file: file.symlink_to(file.rename(file.with_name("moved"))),
    "another name": lambda file: file.rename(file.with_name("1.grep.log")),
    "no folder": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("how", WOUNDS)
def test_the_file_of_an_artifact_is_damaged(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, how: str
) -> None:
    """An artifact whose file is missing or changed is left out, and its number stays free."""
    for data in (b"sound", b"the bytes of the second"):
        thread.artifacts.put(data, "bash")
    thread.contexts.create("main").append("artifact://1")
    thread.outputs.put("A", "text")
    sound = artifacts(thread)
    thread.export_pack(tmp_path / "pack")
    shutil.copytree(tmp_path / "pack", tmp_path / "sound")
    WOUNDS[how](tmp_path / "pack" / "artifacts" / "1.bash.log")
    found = other.import_pack(tmp_path / "pack")
    left_out = ["0", "1"] if how == "no folder" else ["1"]
    said = [note.split(":")[0] for note in found.notes]
    assert said == [f"artifact {one} was left out" for one in left_out]
    assert artifacts(other) == {key: one for key, one in sound.items() if key not in left_out}
    assert (found.turns, found.outputs) == (1, 1)
    found = other.import_pack(tmp_path / "sound")
    assert (found.artifacts, found.notes) == (len(left_out), ())
    assert artifacts(other) == sound


def test_a_part_whose_file_is_changed(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An unfinished artifact comes as its file is, never as whole, and a note says that it changed."""
    fail(thread, b"begun", "bash")
    thread.export_pack(tmp_path / "pack")
    (tmp_path / "pack" / "artifacts" / "0.bash.partial.log").write_bytes(b"changed")
    note = "artifact 0 is not what was exported: it is kept as it is"
    assert added(other.import_pack(tmp_path / "pack")) == (0, 1, 0, (note,))
    assert statuses(other) == ["failed"]
    assert other.artifacts.open(0).read() == b"changed"


def test_an_import_that_ends_between_two_artifacts(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import interrupted between two artifacts keeps the first; repeating it adds the rest."""
    fill(thread)
    thread.export_pack(tmp_path / "pack")
    real = PackSource.artifact

    def refusing(source: PackSource, told: Any) -> Any:
        if told["artifact"] == 3:
            raise DiskError("refused", "by the test")
        return real(source, told)

    with monkeypatch.context() as patch, pytest.raises(DiskError):
        patch.setattr(PackSource, "artifact", refusing)
        other.import_pack(tmp_path / "pack")
    assert list(artifacts(other)) == ["1", "2"]
    assert other.check() == []
    assert other.import_pack(tmp_path / "pack").artifacts == 3
