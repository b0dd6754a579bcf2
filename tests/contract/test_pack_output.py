"""Packs with artifacts and outputs: all are imported once; a hostile pack only loses data."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from eventq import EventqError, LogicError
from eventq.errors import DiskError
from eventq.transfer import packfile, sources
from tests.contract.pack_files import FILES, flip, tree
from tests.contract.support import left_behind, outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq.records.turn import Imported

NOISE = random.Random(4).randbytes(3 * 65536 + 7)
AT = 1773829800123


pytestmark = pytest.mark.usefixtures("quick", "ticking")


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


def fill(thread: eventq.Thread) -> None:
    """Store artifacts of every status, outputs in versions, names, and a turn about them."""
    thread.artifacts.put(b"gone")
    thread.artifacts.remove(0)
    thread.artifacts.put(NOISE, "bash")
    thread.artifacts.put(b"", "read file!")
    writer = thread.artifacts.allocate("grep")
    writer.write(b"failed\n")
    writer.fail("for a test")
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


def told(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of `eventq.ndjson`, but for the hashes at its end."""
    with open(folder / "eventq.ndjson", "rb") as file:
        return [one for line in file if "sums" not in (one := json.loads(line))]


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
    """Return the line of an artifact."""
    return {"artifact": number, "tool": tool, "status": status, "created_at_ms": at, **more}


def output(name: Any, data: bytes, version: Any = 1, at: Any = AT) -> dict[str, Any]:
    """Return the line of an output."""
    hashed = blake3(data).hexdigest()
    return {"output": name, "version": version, "blob": hashed, "created_at_ms": at}


def added(found: Imported) -> tuple[Any, ...]:
    """Return the numbers of blobs, artifacts and outputs, and the notes."""
    return found.blobs, found.artifacts, found.outputs, found.notes


# --- there and back -------------------------------------------------------------------------------


def test_all_of_it_comes_over(thread: eventq.Thread, other: eventq.Thread, tmp_path: Path) -> None:
    """Numbers, tools, hashes, times, versions and names are kept; partial artifacts are failed."""
    fill(thread)
    expected = held(thread)
    assert statuses(thread) == ["sealed", "sealed", "failed", "partial", "open", "sealed"]
    thread.export_pack(tmp_path / "pack")
    assert sorted(os.listdir(tmp_path / "pack")) == ["artifacts", *FILES]
    assert tree(tmp_path / "pack" / "artifacts") == {  # without what is still being written
        "1.bash.log": NOISE, "2.read_file.log": b"", "3.grep.partial.log": b"failed\n",
        "4.grep.partial.log": b"died\nhere", "6.bash.log": b"x\n" * 50_000,
    }  # fmt: skip
    found = other.import_pack(tmp_path / "pack")
    del expected[0]["5"]
    assert held(other) == expected
    assert statuses(other) == ["sealed", "sealed", "failed", "failed", "sealed"]
    assert {one.error for one in other.artifacts} == {
        None,
        "it was incomplete when it was exported",
    }
    assert (found.artifacts, found.outputs, found.turns, found.notes) == (5, 4, 1, ())
    sha256 = hashlib.sha256(NOISE[:5000]).hexdigest()
    assert other.read(f"blob:sha256:{sha256}").data == NOISE[:5000]
    assert other.artifacts.put(b"next").artifact_id == "7"


def test_what_the_lines_say(thread: eventq.Thread, other: eventq.Thread, tmp_path: Path) -> None:
    """The lines of `eventq.ndjson` describe artifacts, outputs and names completely."""
    out = thread.outputs.put("A", "text")
    thread.export_pack(tmp_path / "bare")
    assert sorted(os.listdir(tmp_path / "bare")) == FILES  # no folder for no artifact
    info = thread.artifacts.put(b"one", "bash")
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
    """A second import finds everything, and a second export is identical."""
    fill(thread)
    thread.export_pack(tmp_path / "pack")
    other.import_pack(tmp_path / "pack")
    expected = held(other)
    for one in (other, thread):
        assert added(one.import_pack(tmp_path / "pack")) == (0, 0, 0, ())
    assert held(other) == expected
    other.export_pack(tmp_path / "again")
    first, second = tree(tmp_path / "pack"), tree(tmp_path / "again")
    assert first.keys() == second.keys()
    for name in first.keys() - {"eventq.ndjson", "blobs.pack", "blobs.idx"}:
        assert first[name] == second[name]


def renumbered(*pairs: tuple[int, int]) -> list[str]:
    """Return the notes of artifacts that got other numbers."""
    return [
        f"artifact {one} is artifact {here} here: artifact://{one} in a text means another"
        for one, here in pairs
    ]


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
        assert sorted(found.notes) == renumbered((0, 4), (1, 0), (2, 5))
        assert {key: one[-1] for key, one in artifacts(other).items()} == {
            "0": b"theirs 1", "1": b"mine", "3": b"theirs 3", "4": b"theirs 0", "5": b"theirs 2",
        }  # fmt: skip


def test_artifacts_that_are_alike(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Two equal artifacts stay two, also unfinished ones, and are found one by one."""
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


# --- damage ---------------------------------------------------------------------------------------

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
    """An unfinished artifact has no hash: it is imported as its file is, and never as whole."""
    writer = thread.artifacts.allocate("bash")
    writer.write(b"begun")
    writer.fail("for a test")
    thread.export_pack(tmp_path / "pack")
    (tmp_path / "pack" / "artifacts" / "0.bash.partial.log").write_bytes(b"changed")
    assert other.import_pack(tmp_path / "pack").artifacts == 1
    assert statuses(other) == ["failed"]
    assert other.artifacts.open(0).read() == b"changed"


def test_an_output_whose_blob_is_lost(other: eventq.Thread, tmp_path: Path) -> None:
    """An output whose blob is not in the pack is left out, with a note; the sound ones come."""
    lines = output("0-A", b"one"), output("1-B", b"two")
    found = other.import_pack(pack(tmp_path / "pack", *lines, blobs=(b"two",)))
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


# --- hostile packs --------------------------------------------------------------------------------

DATA = b"the bytes of an artifact"
HASH = blake3(DATA).hexdigest()
BAD_ARTIFACTS: list[dict[str, Any]] = [
    *(artifact(tool=one) for one in ("../x", "a/b", "..", "a\0b", "", "x" * 65, "\ud800", "a\n", "/etc/passwd")),
    artifact(-1), artifact(at=-1), artifact(at=1 << 63), artifact(hash=7), artifact(hash=[]),
    *(artifact(hash=one) for one in ("0" * 64, "x")),  # only these are looked for
]  # fmt: skip


def hostile(tmp_path: Path, line: Any) -> Path:
    """Write a pack with that line, and files wherever it might lead."""
    folder = tmp_path / "in" / "pack"
    (tmp_path / "in").mkdir()
    names = ["0", "-1"], ["bash", "bash.partial", "..", "."], [f"0.{'x' * 65}.log"]
    files = {f"{number}.{name}.log": DATA for number in names[0] for name in names[1]}
    pack(folder, line, files={**files, names[2][0]: DATA})
    for name in ("x.log", "artifacts/0.../x", "artifacts/0../x", "artifacts/0.a/b.log"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(DATA)
    return folder


@pytest.mark.parametrize("line", BAD_ARTIFACTS, ids=ascii)
def test_an_artifact_that_cannot_be(
    other: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: dict[str, Any]
) -> None:
    """A malformed line of an artifact is left out with a note, and opens no other file."""
    folder = hostile(tmp_path, line)
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
    looked_for = {"artifacts/0.bash.log"} if line in BAD_ARTIFACTS[-2:] else set()
    assert set(opened) - {*FILES} == looked_for
    assert (found.artifacts, len(found.notes)) == (0, 1)
    assert "was left out" in found.notes[0]
    assert artifacts(other) == {}
    assert tree(tmp_path / "in") == before
    assert other.artifacts.put(b"first").artifact_id == "0"


@pytest.mark.parametrize("number", [10**17, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, 10**30])
def test_a_huge_number(other: eventq.Thread, tmp_path: Path, number: int) -> None:
    """An artifact keeps a free number below others, and gets another one otherwise."""
    line, files = artifact(number, hash=HASH), {f"{number}.bash.log": DATA}
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


TEXT = blake3(b"text").hexdigest()
BAD_LINES: list[Any] = [
    *(output(one, b"text") for one in (
        "A.v2", "../0-A", "0-A/../../x", "0-A\0", "", "0-" + "A" * 2000, "0-" + "A" * 239, f"{1 << 62}-A",
        "0-\ud800", ".A",
    )),
    *(output("0-A", b"text", one) for one in (0, -1, 10**30, True, "1")),
    output("0-A", b"text", at=-1), output("0-A", b"text", at=1 << 63), output("0-A", b"other"),
    *({**output("0-A", b"text"), "blob": one} for one in ("../../x", 7)),
    *({"sha256": one, "blob": TEXT} for one in ("0" * 64, "../../x")), {"sha256": [], "blob": TEXT},
    {"sha256": hashlib.sha256(b"other").hexdigest(), "blob": blake3(b"other").hexdigest()},
    *map(artifact, ("0", True, 0.5)), artifact(tool=["bash"]), artifact(status=None),
    {"artifact": 0, "tool": "bash", "status": "sealed"}, {"what": 1},
    b"{", b"[1]", b"[" * 100_000, b'{"artifact":' + b"9" * 5000 + b"}", b'{"artifact":"\xff"}',
]  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: ascii(line)[:60])
def test_a_line_that_cannot_be(other: eventq.Thread, tmp_path: Path, line: Any) -> None:
    """An impossible line is left out and counted in a note; its neighbours are imported."""
    files = {f"{name}.log": DATA for name in ("3.bash", "0.bash", "True.bash", "0.bash.partial")}
    lines = output("5-Sound", b"text"), line, artifact(3, hash=HASH)
    folder = pack(tmp_path / "pack", *lines, blobs=(b"text",), files=files)
    before = tree(tmp_path / "pack")
    note = "eventq.ndjson: 1 lines were left out: what they name is not there"
    assert added(other.import_pack(folder)) == (1, 1, 1, (note,))
    artifacts, outputs, names = held(other)
    assert (list(artifacts), list(outputs), names) == (["3"], [("5-Sound", 1)], [])
    assert tree(tmp_path / "pack") == before
    assert other.outputs.allocate("Next") == "6-Next"


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
    max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
@given(HOSTILE)
def test_random_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[Any]) -> None:
    """For any lines, an import raises only EventqError, and the thread checks out."""
    numbers = [one.get("artifact") for one in lines]
    if any(type(number) is int and abs(number) >= 10**17 for number in numbers):
        return
    place = tmp_path_factory.mktemp("hostile")
    files = {f"{n}.bash{part}.log": DATA for n in range(-1, 4) for part in ("", ".partial")}
    folder = pack(place / "pack", *lines, blobs=(b"text",), files=files)
    before = tree(folder)
    with eventq.open(eventq.init(place / "thread")) as thread:
        states: list[Any] = []
        for _ in range(2):
            try:
                assert thread.import_pack(folder).artifacts == 0 or not states
            except EventqError:
                pass
            assert thread.check() == []
            states.append((artifacts(thread), list(thread.produced.aliases())))
        assert states[0] == states[1]
    assert tree(folder) == before
    assert sorted(os.listdir(place)) == ["pack", "thread"]
    shutil.rmtree(place)


# --- folders --------------------------------------------------------------------------------------


TAKEN: dict[str, Callable[[Path], object]] = {
    "folder": lambda place: os.makedirs(place / "mine"),
    "file": lambda place: place.write_bytes(b"mine"),
    "dangling link": lambda place: place.symlink_to(place.parent.parent / "elsewhere"),
}


@pytest.mark.parametrize("what", TAKEN)
def test_a_folder_that_has_artifacts_already(
    thread: eventq.Thread, tmp_path: Path, what: str
) -> None:
    """An export into a folder with `artifacts` is refused, and changes nothing."""
    thread.artifacts.put(b"text")
    place = tmp_path / "pack"
    place.mkdir()
    TAKEN[what](place / "artifacts")
    before = tree(place)
    with pytest.raises(LogicError, match="artifacts' is there already - choose a folder"):
        thread.export_pack(place)
    assert (tree(place), os.listdir(place)) == (before, ["artifacts"])
    assert not (tmp_path / "elsewhere").exists()


def test_an_import_that_ends_between_two_artifacts(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import interrupted between two artifacts keeps the first; repeating it adds the rest."""
    fill(thread)
    thread.export_pack(tmp_path / "pack")
    real = sources.PackSource.artifact

    def refusing(source: sources.PackSource, told: Any) -> Any:
        if told["artifact"] == 3:
            raise DiskError("refused", "by the test")
        return real(source, told)

    with monkeypatch.context() as patch:
        patch.setattr(sources.PackSource, "artifact", refusing)
        with pytest.raises(DiskError):
            other.import_pack(tmp_path / "pack")
    assert list(artifacts(other)) == ["1", "2"]
    assert other.check() == []
    assert other.import_pack(tmp_path / "pack").artifacts == 3
    expected = artifacts(thread)
    del expected["5"]  # still written
    assert artifacts(other) == expected
