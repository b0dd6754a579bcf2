"""Packs that hold artifacts and outputs: all of it comes over, once, and a hostile pack does nothing but say less."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from eventq import EventqError, LogicError, system
from eventq.dag import packfile
from eventq.errors import DamagedError, DiskError
from eventq.transfer import packs, sources
from tests.contract.support import outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq.records import Imported

FILES = [
    "blobs.idx",
    "blobs.pack",
    "eventq.ndjson",
    "heads.tbl",
    "turns.idx",
    "turns.log",
    "turns.meta",
]
NOISE = random.Random(4).randbytes(3 * 65536 + 7)
AT = 1773829800123


pytestmark = pytest.mark.usefixtures("quick", "ticking")


def artifacts(thread: eventq.Thread) -> dict[str, Any]:
    """Give what every artifact is that comes over with it."""
    return {
        one.artifact_id: (
            one.tool, one.status == "sealed", one.size, one.lines, one.hash, one.created_at_ms,
            thread.artifacts.open(one.artifact_id).read(),
        )
        for one in thread.artifacts
    }  # fmt: skip


def names(thread: eventq.Thread) -> list[Any]:
    """Give the names that other tools have for blobs."""
    return list(thread.produced.aliases())


def fill(thread: eventq.Thread) -> None:
    """Store artifacts of every status, outputs in versions, names, and a turn that speaks of them."""
    thread.artifacts.put(b"gone")
    thread.artifacts.remove(0)
    thread.artifacts.put(NOISE, "bash")
    thread.artifacts.put(b"", "read file!")
    for text in (b"failed\n", b"died\nhere", b"open"):
        writer = thread.artifacts.allocate("grep")
        writer.write(text)
        writer.fail("for a test")
    raw = apsw.Connection(os.path.join(thread.path, "events.db"))
    raw.execute(
        "UPDATE artifacts SET status = 'open', ended_at_ms = NULL, error = NULL,"
        " owner = iif(artifact_id = 4, '0:999999999:x', ?) WHERE artifact_id IN (4, 5)",
        (f"0:{os.getpid()}:{system.namespace()}:{system.birth(os.getpid())}",),
    )
    raw.close()
    thread.artifacts.put(b"x\n" * 50_000, "bash")
    thread.outputs.put("Scout", "v1")
    thread.outputs.publish("0-Scout", "v2")
    thread.outputs.publish("0-Scout", "v1")
    thread.outputs.put("Helper", NOISE, "0-Scout")
    thread.outputs.allocate("Never")
    data = NOISE[:5000]
    thread.produced.name_blob(thread.blobs.put(data).hash, hashlib.sha256(data).digest())
    thread.contexts.create("main").append("artifact://1 agent://0-Scout")


def told(folder: Path) -> list[dict[str, Any]]:
    """Give the objects of `eventq.ndjson`, but for the hashes at its end."""
    with open(folder / "eventq.ndjson", "rb") as file:
        return [one for line in file if "sums" not in (one := json.loads(line))]


def retell(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Write `eventq.ndjson` anew, each object changed; what is None is left out."""
    changed = [change(one) for one in told(folder)]
    with open(folder / "eventq.ndjson", "w") as file:
        file.writelines(json.dumps(one) + "\n" for one in changed if one is not None)


def pack(
    folder: Path, *lines: Any, blobs: tuple[bytes, ...] = (), files: dict[str, bytes] | None = None
) -> Path:
    """Write a pack of some blobs, lines of `eventq.ndjson`, and files of artifacts."""
    with packfile.PackWriter(folder) as made:
        for data in blobs:
            made.blob(packfile.BlobRecord(blake3(data).digest(), 0, len(data), data))
        for line in lines:
            made.beside((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
    if files:
        (folder / "artifacts").mkdir()
        for name, data in files.items():
            (folder / "artifacts" / name).write_bytes(data)
    return folder


def artifact(
    number: Any = 0, tool: Any = "bash", status: Any = "sealed", at: Any = AT, **more: Any
) -> dict[str, Any]:
    """Give the line of an artifact."""
    return {"artifact": number, "tool": tool, "status": status, "created_at_ms": at, **more}


def output(name: Any, data: bytes, version: Any = 1, at: Any = AT) -> dict[str, Any]:
    """Give the line of an output."""
    return {
        "output": name,
        "version": version,
        "blob": blake3(data).hexdigest(),
        "created_at_ms": at,
    }


def tree(folder: Path | str) -> dict[str, bytes]:
    """Give every file below a folder."""
    found = {}
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if os.path.islink(path):
                found[os.path.relpath(path, folder)] = os.readlink(path).encode()
                continue
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def added(found: Imported) -> tuple[Any, ...]:
    """Give the numbers of blobs, artifacts and outputs, and the notes."""
    return found.blobs, found.artifacts, found.outputs, found.notes


# --- there and back ---------------------------------------------------------------------------------------------------


def test_all_of_it_comes_over(thread: eventq.Thread, other: eventq.Thread, tmp_path: Path) -> None:
    """Numbers, tools, hashes, times, versions and names come over; what is not whole arrives as failed."""
    fill(thread)
    expected = artifacts(thread), outputs(thread), names(thread)
    assert [one.status for one in thread.artifacts] == [
        "sealed",
        "sealed",
        "failed",
        "partial",
        "open",
        "sealed",
    ]
    thread.export_pack(tmp_path / "pack")
    assert sorted(os.listdir(tmp_path / "pack")) == ["artifacts", *FILES]
    assert tree(tmp_path / "pack" / "artifacts") == {  # without what is still being written
        "1.bash.log": NOISE, "2.read_file.log": b"", "3.grep.partial.log": b"failed\n",
        "4.grep.partial.log": b"died\nhere", "6.bash.log": b"x\n" * 50_000,
    }  # fmt: skip
    found = other.import_pack(tmp_path / "pack")
    del expected[0]["5"]
    assert (artifacts(other), outputs(other), names(other)) == expected
    assert [one.status for one in other.artifacts] == [
        "sealed",
        "sealed",
        "failed",
        "failed",
        "sealed",
    ]
    assert {one.error for one in other.artifacts} == {
        None,
        "it was incomplete when it was exported",
    }
    assert (found.artifacts, found.outputs, found.turns, found.notes) == (5, 4, 1, ())
    assert (
        thread.read(f"blob:sha256:{hashlib.sha256(NOISE[:5000]).hexdigest()}").data == NOISE[:5000]
    )
    assert other.artifacts.put(b"next").artifact_id == "7"
    other.artifacts.remove(7)


def test_what_the_lines_say(thread: eventq.Thread, tmp_path: Path) -> None:
    """The lines of `eventq.ndjson` say number, tool, status, size, hash and time; version, blob and time; both names."""
    info = thread.artifacts.put(b"one", "bash")
    out = thread.outputs.put("A", "text")
    thread.produced.name_blob(out.hash, hashlib.sha256(b"text").digest())
    thread.export_pack(tmp_path / "pack")
    assert told(tmp_path / "pack") == [
        {"sha256": hashlib.sha256(b"text").hexdigest(), "blob": out.hash},
        {"output": "0-A", "version": 1, "blob": out.hash, "created_at_ms": out.created_at_ms},
        {"artifact": 0, "tool": "bash", "status": "sealed", "size": 3, "hash": info.hash, "created_at_ms": info.created_at_ms},
    ]  # fmt: skip
    assert os.stat(tmp_path / "pack" / "artifacts").st_mode & 0o777 == 0o700


def test_importing_twice_adds_nothing(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """What is there is found again, in the destination and where it came from; a second export is the same."""
    fill(thread)
    thread.export_pack(tmp_path / "pack")
    other.import_pack(tmp_path / "pack")
    expected = artifacts(other), outputs(other), names(other)
    for one in (other, thread):
        assert added(one.import_pack(tmp_path / "pack")) == (0, 0, 0, ())
    assert (artifacts(other), outputs(other), names(other)) == expected
    other.export_pack(tmp_path / "again")
    first, second = tree(tmp_path / "pack"), tree(tmp_path / "again")
    assert first.keys() == second.keys()
    for name in first.keys() - {"eventq.ndjson", "blobs.pack", "blobs.idx"}:
        assert first[name] == second[name]
    assert other.artifacts.put(b"next").artifact_id == "7"


def test_a_pack_that_holds_artifacts_only(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Artifacts come over without any turn or blob."""
    thread.artifacts.put(NOISE)
    thread.export_pack(tmp_path / "pack")
    assert added(other.import_pack(tmp_path / "pack")) == (0, 1, 0, ())
    assert artifacts(other) == artifacts(thread)


def test_a_thread_without_artifacts(thread: eventq.Thread, tmp_path: Path) -> None:
    """Without an artifact no folder is made for them."""
    thread.outputs.put("A", "text")
    thread.export_pack(tmp_path / "pack")
    assert sorted(os.listdir(tmp_path / "pack")) == FILES


def test_a_number_that_is_taken(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An artifact whose number is another's gets one after all others, once, with a note each time; the other stays."""
    for data in (b"theirs 0", b"theirs 1", b"theirs 2"):
        thread.artifacts.put(data, "bash")
    thread.export_pack(tmp_path / "pack")
    other.artifacts.put(b"theirs 1", "bash")
    other.artifacts.put(b"mine", "bash")
    for count in (2, 0):
        found = other.import_pack(tmp_path / "pack")
        assert found.artifacts == count
        assert sorted(found.notes) == [
            "artifact 0 is artifact 3 here: artifact://0 in a text means another",
            "artifact 1 is artifact 0 here: artifact://1 in a text means another",
        ]
        assert {key: one[-1] for key, one in artifacts(other).items()} == {
            "0": b"theirs 1", "1": b"mine", "2": b"theirs 2", "3": b"theirs 0"
        }  # fmt: skip


def test_a_number_that_was_removed(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """The number of an artifact that was deleted is not given to one that comes: that gets another, with a note."""
    for data in (b"theirs 0", b"theirs 1"):
        thread.artifacts.put(data, "bash")
    thread.export_pack(tmp_path / "pack")
    other.artifacts.put(b"mine", "bash")
    other.artifacts.remove(0)
    for count in (2, 0):
        found = other.import_pack(tmp_path / "pack")
        assert found.artifacts == count
        assert found.notes == (
            "artifact 0 is artifact 2 here: artifact://0 in a text means another",
        )
        assert {key: one[-1] for key, one in artifacts(other).items()} == {
            "1": b"theirs 1",
            "2": b"theirs 0",
        }


def test_artifacts_that_are_alike(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Two artifacts with the same bytes are two, and two that are not whole; again they are found one by one."""
    for _ in range(2):
        thread.artifacts.put(b"same", "bash")
        writer = thread.artifacts.allocate("bash")
        writer.write(b"same")
        writer.fail("for a test")
    thread.artifacts.put(b"same", "grep")
    thread.export_pack(tmp_path / "pack")
    other.artifacts.put(b"mine")
    for count in (5, 0):
        assert other.import_pack(tmp_path / "pack").artifacts == count
        assert sorted((one[0], one[1]) for one in artifacts(other).values()) == [
            ("bash", False), ("bash", False), ("bash", True), ("bash", True), ("grep", True), ("tool", True)
        ]  # fmt: skip


def test_a_version_that_is_taken(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """A version of an output that is another's becomes the next one, once, with a note; the name gives what it gave."""
    thread.outputs.publish("0-A", "theirs 1")
    thread.outputs.publish("0-A", "theirs 2")
    thread.export_pack(tmp_path / "pack")
    other.outputs.publish("0-A", "mine")
    for count in (2, 0):
        found = other.import_pack(tmp_path / "pack")
        assert found.outputs == count
        assert found.notes == (
            "version 1 of output 0-A is version 2 here",
            "version 2 of output 0-A is version 3 here",
        )
        assert [other.outputs.read("0-A", n) for n in (1, 2, 3)] == [
            b"mine",
            b"theirs 1",
            b"theirs 2",
        ]


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


# --- damage -----------------------------------------------------------------------------------------------------------

WOUNDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: file.unlink(),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "shorter": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "flipped": lambda file: file.write_bytes(b"y" + file.read_bytes()[1:]),
    "empty": lambda file: file.write_bytes(b""),
    "a folder": lambda file: (
        file.rename(file.with_name("moved")).parent.joinpath(file.name).mkdir()
    ),
    "another name": lambda file: file.rename(file.with_name("1.grep.log")),
    "no folder": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("how", WOUNDS)
def test_the_file_of_an_artifact_is_damaged(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, how: str
) -> None:
    """An artifact whose file is missing or changed is left out, with a note, and its number stays free."""
    thread.artifacts.put(b"sound", "bash")
    thread.artifacts.put(b"the bytes of the second", "bash")
    thread.contexts.create("main").append("artifact://1")
    thread.outputs.put("A", "text")
    sound = artifacts(thread)
    thread.export_pack(tmp_path / "pack")
    kept = tree(tmp_path / "pack" / "artifacts")
    WOUNDS[how](tmp_path / "pack" / "artifacts" / "1.bash.log")
    found = other.import_pack(tmp_path / "pack")
    left_out = ["0", "1"] if how == "no folder" else ["1"]
    assert [note.split(":")[0] for note in found.notes] == [
        f"artifact {one} was left out" for one in left_out
    ]
    assert artifacts(other) == {key: one for key, one in sound.items() if key not in left_out}
    assert (found.turns, found.outputs) == (1, 1)
    shutil.rmtree(tmp_path / "pack" / "artifacts", ignore_errors=True)
    (tmp_path / "pack" / "artifacts").mkdir()
    for name, data in kept.items():
        (tmp_path / "pack" / "artifacts" / name).write_bytes(data)
    found = other.import_pack(tmp_path / "pack")
    assert (found.artifacts, found.notes) == (len(left_out), ())
    assert artifacts(other) == sound


def test_a_part_whose_file_is_changed(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An artifact that is not whole has no hash: what its file holds is what comes, and never as whole."""
    writer = thread.artifacts.allocate("bash")
    writer.write(b"begun")
    writer.fail("for a test")
    thread.export_pack(tmp_path / "pack")
    (tmp_path / "pack" / "artifacts" / "0.bash.partial.log").write_bytes(b"changed")
    assert other.import_pack(tmp_path / "pack").artifacts == 1
    assert other.artifacts.get(0).status == "failed"
    assert other.artifacts.open(0).read() == b"changed"


def test_an_output_whose_blob_is_damaged(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """An output whose blob is not in the pack is left out, with a note; the sound ones come."""
    thread.outputs.put("A", "one")
    thread.outputs.put("B", "two")
    thread.export_pack(tmp_path / "pack")
    retell(
        tmp_path / "pack",
        lambda one: {**one, "blob": "0" * 64} if one.get("output") == "0-A" else one,
    )
    found = other.import_pack(tmp_path / "pack")
    assert (found.outputs, len(found.notes)) == (1, 1)
    assert {key[0]: one[0] for key, one in outputs(other).items()} == {"1-B": b"two"}


def test_a_version_after_one_that_was_lost(other: eventq.Thread, tmp_path: Path) -> None:
    """A later version whose first is lost comes once, however often it is imported."""
    folder = pack(
        tmp_path / "pack", output("0-A", b"lost"), output("0-A", b"two", 2), blobs=(b"two",)
    )
    assert other.import_pack(folder).outputs == 1
    assert other.import_pack(folder).outputs == 0
    assert [one[0] for one in outputs(other).values()] == [b"two"]


# --- hostile packs ----------------------------------------------------------------------------------------------------

DATA = b"the bytes of an artifact"
HASH = blake3(DATA).hexdigest()
BAD_ARTIFACTS: dict[str, dict[str, Any]] = {
    "a slash": artifact(tool="../x"),
    "a folder": artifact(tool="a/b"),
    "two dots": artifact(tool=".."),
    "NUL": artifact(tool="a\x00b"),
    "no tool": artifact(tool=""),
    "a long tool": artifact(tool="x" * 65),
    "half a character": artifact(tool="\ud800"),
    "a newline": artifact(tool="a\n"),
    "negative": artifact(-1),
    "a time before": artifact(at=-1),
    "a time beyond": artifact(at=1 << 63),
    "a hash of others": artifact(hash="0" * 64),
    "a hash that is none": artifact(hash="x"),
    "a hash that is a number": artifact(hash=7),
    "a hash that is a list": artifact(hash=[]),
    "an absolute tool": artifact(tool="/etc/passwd"),
}


def hostile(tmp_path: Path, line: Any) -> Path:
    """Write a pack with that line, and files wherever it might lead."""
    folder = tmp_path / "in" / "pack"
    (tmp_path / "in").mkdir()
    pack(folder, line, files={"0.bash.log": DATA, "-1.bash.log": DATA, "0.bash.partial.log": DATA})
    (folder / "x.log").write_bytes(DATA)
    (folder / "artifacts" / "0...").mkdir()
    (folder / "artifacts" / "0...log").write_bytes(DATA)
    (folder / "artifacts" / "0..").mkdir()
    (folder / "artifacts" / "0..log").write_bytes(DATA)
    (folder / "artifacts" / "0.a").mkdir()
    (folder / "artifacts" / "0.a" / "b.log").write_bytes(DATA)
    (folder / "artifacts" / ("0." + "x" * 65 + ".log")).write_bytes(DATA)
    return folder


@pytest.mark.parametrize("how", BAD_ARTIFACTS)
def test_an_artifact_that_cannot_be(
    other: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An artifact that is not told as an export tells it is left out, with a note, and no file elsewhere is opened."""
    folder = hostile(tmp_path, BAD_ARTIFACTS[how])
    before = tree(tmp_path / "in")
    opened = []
    real, plain = os.open, open

    def noted(path: Any, *given: Any, **more: Any) -> Any:
        if not str(path).startswith(other.path):
            opened.append(os.path.relpath(path, folder))
        return real(path, *given, **more)

    def noted_too(path: Any, *given: Any, **more: Any) -> Any:
        if not isinstance(path, int):  # what `os.open` gave
            opened.append(os.path.relpath(path, folder))
        return plain(path, *given, **more)

    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(sources, "open", noted_too, raising=False)
    found = other.import_pack(folder)
    assert set(opened) <= {*FILES, "artifacts/0.bash.log"}
    assert ("artifacts/0.bash.log" in opened) == how.startswith(
        ("a hash of", "a hash that is none")
    )
    assert (found.artifacts, len(found.notes)) == (0, 1)
    assert "was left out" in found.notes[0]
    assert artifacts(other) == {}
    assert tree(tmp_path / "in") == before
    assert other.artifacts.put(b"first").artifact_id == "0"


@pytest.mark.parametrize(
    "number", [1 << 62, (1 << 63) - 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 10**30]
)
def test_a_huge_number(other: eventq.Thread, tmp_path: Path, number: int) -> None:
    """An artifact whose number is too large to go on after gets another one, and is read and found by it."""
    folder = pack(
        tmp_path / "pack", artifact(number, hash=HASH), files={f"{number}.bash.log": DATA}
    )
    for count in (1, 0):
        assert other.import_pack(folder).artifacts == count
        [info] = other.artifacts
        assert info.artifact_id == "0"
        assert other.read(info.url).data == DATA
    after = other.artifacts.put(b"next")
    assert other.read(after.url).data == b"next"


@pytest.mark.parametrize("number", [10**17, 10**18, (1 << 62) - 1])
def test_the_largest_number_of_a_file(other: eventq.Thread, tmp_path: Path, number: int) -> None:
    """A number that is large, and has others after it, is kept."""
    folder = pack(
        tmp_path / "pack", artifact(number, hash=HASH), files={f"{number}.bash.log": DATA}
    )
    assert added(other.import_pack(folder)) == (0, 1, 0, ())
    assert other.read(f"artifact://{number}").data == DATA
    info = other.artifacts.put(b"next")
    assert info.artifact_id == str(number + 1)
    assert other.read(info.url).data == b"next"


def test_the_largest_number_of_an_output(other: eventq.Thread, tmp_path: Path) -> None:
    """After an output with the largest number that can come, others can still be put."""
    folder = pack(tmp_path / "pack", output(f"{(1 << 62) - 1}-A", b"text"), blobs=(b"text",))
    assert added(other.import_pack(folder)) == (1, 0, 1, ())
    assert other.read(other.outputs.put("B", "next").url).data == b"next"


BAD_LINES: dict[str, Any] = {
    "an output that is none": output("A", b"text"),
    "a parent folder": output("../0-A", b"text"),
    "a path": output("0-A/../../x", b"text"),
    "NUL": output("0-A\x00", b"text"),
    "an empty output": output("", b"text"),
    "a long output": output("0-" + "A" * 2000, b"text"),
    "an output that is one character too long": output("0-" + "A" * 239, b"text"),
    "a number that is one too large": output(f"{1 << 62}-A", b"text"),
    "a zero in front": output("00-A", b"text"),
    "half a character": output("0-\ud800", b"text"),
    "a huge index": output("9" * 30 + "-A", b"text"),
    "version 0": output("0-A", b"text", 0),
    "a negative version": output("0-A", b"text", -1),
    "a huge version": output("0-A", b"text", 10**30),
    "a version that is true": output("0-A", b"text", True),
    "a version that is text": output("0-A", b"text", "1"),
    "a time before": output("0-A", b"text", at=-1),
    "a time beyond": output("0-A", b"text", at=1 << 63),
    "another blob": output("0-A", b"other"),
    "a blob that is none": {**output("0-A", b"text"), "blob": "../../x"},
    "a blob that is a number": {**output("0-A", b"text"), "blob": 7},
    "another sha256": {"sha256": "0" * 64, "blob": blake3(b"text").hexdigest()},
    "a sha256 that is none": {"sha256": "../../x", "blob": blake3(b"text").hexdigest()},
    "a sha256 of nothing": {
        "sha256": hashlib.sha256(b"other").hexdigest(),
        "blob": blake3(b"other").hexdigest(),
    },
    "a sha256 that is a list": {"sha256": [], "blob": blake3(b"text").hexdigest()},
    "an artifact that is text": artifact("0"),
    "an artifact that is true": artifact(True),
    "an artifact that is half": artifact(0.5),
    "an artifact without time": {"artifact": 0, "tool": "bash", "status": "sealed"},
    "a tool that is a list": artifact(tool=["bash"]),
    "a status that is none": artifact(status=None),
    "no JSON": b"{",
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "a long number": b'{"artifact":' + b"9" * 5000 + b"}",
    "no UTF-8": b'{"artifact":"\xff"}',
    "nothing known": {"what": 1},
}


@pytest.mark.parametrize("how", BAD_LINES)
def test_a_line_that_cannot_be(other: eventq.Thread, tmp_path: Path, how: str) -> None:
    """A line that says what cannot be is left out and counted in a note; what is sound beside it comes."""
    sound = output("5-Sound", b"text"), artifact(3, hash=HASH)
    folder = pack(tmp_path / "pack", sound[0], BAD_LINES[how], sound[1], blobs=(b"text",), files={
        "3.bash.log": DATA, "0.bash.log": DATA, "True.bash.log": DATA, "0.bash.partial.log": DATA
    })  # fmt: skip
    before = tree(tmp_path / "pack")
    found = other.import_pack(folder)
    assert added(found) == (
        1,
        1,
        1,
        ("eventq.ndjson: 1 lines were left out: what they name is not there",),
    )
    assert (list(artifacts(other)), list(outputs(other)), names(other)) == (
        ["3"],
        [("5-Sound", 1)],
        [],
    )
    assert tree(tmp_path / "pack") == before
    assert other.outputs.allocate("Next") == "6-Next"
    other.artifacts.remove(3)
    other.gc(apply=True, grace=0)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(-(1 << 62), (1 << 62) - 1), st.floats(),
    st.sampled_from(["bash", "sealed", "failed", "..", "/", "a/b", "\x00", "0-A", "0-A.1-B", HASH, blake3(b"text").hexdigest()]),
    st.text(max_size=4), st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)  # fmt: skip
MOLD = st.sampled_from(
    [
        artifact(hash=HASH), artifact(1), output("0-A", b"text"), {"sha256": hashlib.sha256(b"text").hexdigest(), "blob": HASH},
        {"context": 1, "name": "x"}, {"pin": "x", "blob": blake3(b"text").hexdigest()},
    ]
)  # fmt: skip
HOSTILE = st.lists(
    st.builds(
        lambda mold, changes: {**mold, **changes},
        MOLD,
        st.dictionaries(
            st.sampled_from(["artifact", "tool", "status", "created_at_ms", "hash", "output", "version", "blob", "sha256", "size"]),
            JUNK, max_size=3,
        ),
    ),
    max_size=6,
)  # fmt: skip


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(HOSTILE)
def test_random_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[Any]) -> None:
    """Whatever the lines say, an import raises nothing but EventqError, changes no file, and the thread checks out."""
    lines = [
        one
        for one in lines
        if type(one.get("artifact")) is not int or abs(one["artifact"]) < 10**17
    ]
    place = tmp_path_factory.mktemp("hostile")
    folder = pack(place / "pack", *lines, blobs=(b"text",), files={
        f"{number}.bash{partial}.log": DATA for number in range(-1, 4) for partial in ("", ".partial")
    })  # fmt: skip
    before = tree(folder)
    with eventq.open(eventq.init(place / "thread")) as thread:
        try:
            thread.import_pack(folder)
        except EventqError:
            pass
        assert thread.check() == []
        state = artifacts(thread), names(thread)
        try:
            assert thread.import_pack(folder).artifacts == 0
        except EventqError:
            pass
        assert (artifacts(thread), names(thread)) == state
        assert thread.check() == []
    assert tree(folder) == before
    assert sorted(os.listdir(place)) == ["pack", "thread"]
    shutil.rmtree(place)


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["folder", "file", "dangling link"])
def test_a_folder_that_has_artifacts_already(
    thread: eventq.Thread, tmp_path: Path, what: str
) -> None:
    """An export into a folder that has an `artifacts` already is refused, and leaves the folder as it was."""
    fill(thread)
    place = tmp_path / "pack"
    place.mkdir()
    if what == "folder":
        (place / "artifacts").mkdir()
        (place / "artifacts" / "0.mine.log").write_bytes(b"mine")
    elif what == "file":
        (place / "artifacts").write_bytes(b"mine")
    else:
        os.symlink(tmp_path / "elsewhere", place / "artifacts")
    before = tree(place)
    with pytest.raises(
        LogicError, match="artifacts' is there already - choose a folder without one"
    ):
        thread.export_pack(place)
    assert (tree(place), os.listdir(place)) == (before, ["artifacts"])
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("what", ["artifact", "blob", "last"])
def test_an_export_that_fails_leaves_nothing(
    path: str, tmp_path: Path, what: str, made: bool
) -> None:
    """After an export that found damage there is no folder, or the one that was there is empty."""
    with eventq.open(path) as thread:
        fill(thread)
    raw = apsw.Connection(os.path.join(path, "events.db"))
    if what == "blob":
        raw.execute(
            "UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT max(blob_id) FROM blob_bytes)"
        )
    else:
        number = {"artifact": 1, "last": 6}[what]
        raw.execute(
            "UPDATE artifact_chunks SET bytes = x'00' WHERE artifact_id = ? AND position = 0",
            (number,),
        )
    raw.close()
    if made:
        (tmp_path / "pack").mkdir()
    with eventq.open(path) as thread, pytest.raises(DamagedError):
        thread.export_pack(tmp_path / "pack")
    assert (tmp_path / "pack").exists() == made
    assert tree(tmp_path / "pack") == {}
    assert not made or os.listdir(tmp_path / "pack") == []


@pytest.mark.parametrize("made", [True, False])
def test_an_export_that_the_disk_refuses(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """A disk that refuses an artifact is a DiskError, and leaves nothing."""
    fill(thread)
    real = system.save
    saved = []

    def refusing(name: str, pieces: Any) -> int:
        saved.append(name)
        if len(saved) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(name, pieces)

    monkeypatch.setattr(system, "save", refusing)
    if made:
        (tmp_path / "pack").mkdir()
    with pytest.raises(DiskError):
        thread.export_pack(tmp_path / "pack")
    assert len(saved) == 3
    assert (tmp_path / "pack").exists() == made
    assert tree(tmp_path / "pack") == {}
    monkeypatch.undo()
    thread.export_pack(tmp_path / "pack")


@pytest.mark.parametrize("made", [True, False])
def test_an_export_that_fails_at_its_very_end(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """When the files of the pack cannot get their names, its artifacts go as well."""
    fill(thread)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packfile._Target, "_finish", refuse)
    if made:
        (tmp_path / "pack").mkdir()
    with pytest.raises(DiskError):
        thread.export_pack(tmp_path / "pack")
    assert (tmp_path / "pack").exists() == made
    assert tree(tmp_path / "pack") == {}


def test_an_export_into_the_thread(thread: eventq.Thread) -> None:
    """A folder inside the thread is refused, also by another spelling."""
    for place in (
        thread.path,
        os.path.join(thread.path, "pack"),
        os.path.join(thread.path, "..", "thread", "logs", "x"),
    ):
        with pytest.raises(LogicError, match="is inside the thread"):
            thread.export_pack(place)


def test_an_import_that_the_disk_refuses(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that ends between two artifacts leaves those before whole; doing it again adds the rest."""
    fill(thread)
    thread.export_pack(tmp_path / "pack")
    real = packs._Import._take
    seen = []

    def refusing(self: packs._Import, one: Any, *, anew: bool = False) -> bool:
        seen.append(one)
        if len(seen) == 3:
            raise DiskError("refused", "by the test")
        return real(self, one, anew=anew)

    with monkeypatch.context() as patch:
        patch.setattr(packs._Import, "_take", refusing)
        with pytest.raises(DiskError):
            other.import_pack(tmp_path / "pack")
    assert list(artifacts(other)) == ["1", "2"]
    assert other.check() == []
    assert other.import_pack(tmp_path / "pack").artifacts == 3
    assert artifacts(other) == {
        name: one for name, one in artifacts(thread).items() if name != "5"
    }  # still written
