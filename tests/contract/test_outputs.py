"""An agent's output has a name that is given once, and goes on giving what was published first."""

from __future__ import annotations

import hashlib
import io
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import (
    InputError,
    ReadOnlyError,
    UnknownBlobError,
    UnknownOutputError,
    UsageError,
)
from eventq.output.artifacts import LARGEST_ID
from eventq.output.outputs import check_id, output_name
from eventq.records.artifact import OutputInfo
from tests.contract.produced import Flood, files, write_file
from tests.contract.support import collect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Clock
    from tests.contract.support import Tables

NOISE = random.Random(43).randbytes(2_500_000)
WRONG_IDS: list[Any] = [
    "", "0-Scout.", ".0-Scout", "0-Scout..1-x", "@Scout",
    "0-a/b", "0-a b", "0-größe", "٣-x", "0-Scout\n", " 0-Scout", "0-Scout.v2", "Scout.v2", "../0-x", "0-a\0", "+1-x",
    f"{1 << 62}-x", f"{(1 << 63) - 1}-x", f"{1 << 63}-x", f"0-x.{1 << 62}-x",
    "0-" + "x" * 239, "0-a\ud800", None, 0, b"0-Scout", ["0-Scout"],
]  # fmt: skip


pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]


def said(thread: eventq.Thread) -> list[tuple[str, int, bytes]]:
    """Return name, version and bytes of all outputs."""
    outputs = thread.outputs
    return [
        (info.output_id, info.version, outputs.read(info.output_id, info.version))
        for info in outputs
    ]


# --- names ----------------------------------------------------------------------------------------


def test_names(thread: eventq.Thread) -> None:
    """Row 102: an id is the next number of its parent and the requested name."""
    allocate = thread.outputs.allocate
    expected = ["0-Scout", "1-Scout", "2-Plan"]
    assert [allocate("Scout"), allocate("Scout"), allocate("Plan")] == expected
    assert allocate("Child", "0-Scout") == "0-Scout.0-Child"
    assert allocate("Child", "0-Scout") == "0-Scout.1-Child"
    assert allocate("Child", parent="1-Scout") == "1-Scout.0-Child"
    assert allocate("Leaf", "0-Scout.1-Child") == "0-Scout.1-Child.0-Leaf"
    assert allocate("Other") == "3-Other"
    assert (len(thread.outputs), thread.outputs.list()) == (0, [])  # nothing was published yet


def test_names_go_on(path: str) -> None:
    """Row 102: numbers go on after reopening, also of names that were never published."""
    with eventq.open(path) as thread:
        thread.outputs.put("a", "x")
        thread.outputs.allocate("b")
        thread.outputs.allocate("c", "0-a")
    with eventq.open(path) as thread:
        assert thread.outputs.allocate("d") == "2-d"
        assert thread.outputs.allocate("e", "0-a") == "0-a.1-e"


def test_names_go_on_after_what_is_published(thread: eventq.Thread) -> None:
    """Row 102: after an imported id, the numbers of it and its parents continue from there."""
    thread.outputs.publish("7-Scout.3-Child.5-Leaf", "x")
    assert thread.outputs.allocate("a") == "8-a"
    assert thread.outputs.allocate("a", "7-Scout") == "7-Scout.4-a"
    assert thread.outputs.allocate("a", "7-Scout.3-Child") == "7-Scout.3-Child.6-a"
    assert thread.outputs.allocate("a", "7-Other") == "7-Other.0-a"
    thread.outputs.publish("2-Early", "x")
    assert thread.outputs.allocate("a") == "9-a"


def test_a_parent_that_was_never_allocated(thread: eventq.Thread) -> None:
    """Nobody else gets its number, nor those of its own parents, once it has a child."""
    assert thread.outputs.allocate("a", "4-x") == "4-x.0-a"
    assert thread.outputs.put("b", "x", "7-Scout.3-Child").output_id == "7-Scout.3-Child.0-b"
    assert thread.outputs.allocate("c") == "8-c"
    assert thread.outputs.allocate("d", "7-Scout") == "7-Scout.4-d"


@pytest.mark.parametrize(("asked", "kept"), [
    ("Scout", "Scout"), ("", "agent"), ("///", "agent"), ("_", "agent"), ("a b.c", "a_b_c"),
    ("größe", "gr_e"), ("日本", "agent"), ("..", "agent"), ("-", "-"), ("a\ud800b", "a_b"),
    ("x" * 64, "x" * 64), ("x" * 65, "x" * 64), ("x" * 63 + " y", "x" * 63),
    (" Scout 2 ", "Scout_2"), ("__advisor", "advisor"), ("@x", "x"),
])  # fmt: skip
def test_the_name_that_is_asked_for(thread: eventq.Thread, asked: str, kept: str) -> None:
    """Row 102: runs of characters outside `[A-Za-z0-9_-]` become one `_`; at most 64 are kept."""
    assert output_name(asked) == kept
    assert thread.outputs.allocate(asked) == f"0-{kept}"
    info = thread.outputs.put(asked, "x", "0-Parent")
    assert info.output_id == f"0-Parent.0-{kept}"
    assert thread.outputs.read(info.output_id) == b"x"


@given(st.text(max_size=150))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_any_name(name: str) -> None:
    """Row 102: whatever is asked for, an id can be made of it."""
    check_id(f"0-{output_name(name)}")


@pytest.mark.parametrize("name", [None, 3, b"Scout"])
def test_a_name_is_text(thread: eventq.Thread, name: Any) -> None:
    """A name that is no text is refused, and no number is used up."""
    for call in (lambda: thread.outputs.allocate(name), lambda: thread.outputs.put(name, "x")):
        with pytest.raises(UsageError, match="the name must be text"):
            call()
    assert thread.outputs.allocate("a") == "0-a"


@pytest.mark.parametrize("wrong", WRONG_IDS)
def test_ids_that_are_none(thread: eventq.Thread, stored: Callable[[], Tables], wrong: Any) -> None:
    """An invalid id is refused by everything that stores, and nothing is stored."""
    before = stored()
    calls: list[Callable[[], object]] = [
        lambda: thread.outputs.publish(wrong, "x"),
        lambda: thread.outputs.take(wrong, 1, "0" * 64),
    ]
    if wrong is not None:
        calls += [
            lambda: thread.outputs.allocate("a", wrong),
            lambda: thread.outputs.put("a", "x", wrong),
        ]
    for call in calls:
        with pytest.raises(InputError, match="is not the id of an output"):
            call()
    assert stored() == before


def test_deep_names(thread: eventq.Thread, stored: Callable[[], Tables]) -> None:
    """Names nest up to 240 characters; a deeper one is refused, and uses no number."""
    parent, ids = None, []
    for _ in range(60):
        parent = thread.outputs.allocate("a", parent)
        ids.append(parent)
    assert parent == ".".join(["0-a"] * 60)
    before = stored()
    for call in (
        thread.outputs.allocate,
        lambda name, parent: thread.outputs.put(name, "x", parent),
    ):
        with pytest.raises(InputError, match="is not the id of an output"):
            call("a", parent)
    assert stored() == before
    for each in ids:
        thread.outputs.publish(each, each)
    assert thread.outputs.read(ids[-1]) == ids[-1].encode()
    assert thread.outputs.allocate("b", ids[50]) == ids[50] + ".1-b"


def test_a_name_that_is_allocated_can_be_published(thread: eventq.Thread) -> None:
    """What would be too long an id is refused at once: whatever was allocated or put is an id."""
    parent: str | None = None
    with pytest.raises(InputError):
        for _ in range(20):
            check_id(parent := thread.outputs.put("x" * 64, "x", parent).output_id)
    assert max(len(info.output_id) for info in thread.outputs) == 3 * 67 - 1


def test_the_largest_number(thread: eventq.Thread) -> None:
    """After the largest number of an id, allocated outputs can be published, and be parents."""
    thread.outputs.publish(f"{LARGEST_ID}-x", "x")
    for number in range(1, 4):
        given_id = thread.outputs.allocate("y")
        assert given_id == f"{LARGEST_ID + number}-y"
        assert thread.outputs.publish(given_id, "y").version == 1
        child = thread.outputs.put("z", "z", given_id)
        assert (child.output_id, thread.read(child.url).data) == (f"{given_id}.0-z", b"z")
    for wrong in (f"{LARGEST_ID + 4}-y", f"{LARGEST_ID}-x.{LARGEST_ID + 1}-y"):
        with pytest.raises(InputError):
            thread.outputs.publish(wrong, "x")


def test_a_folder_with_the_largest_numbers(thread: eventq.Thread, folder: str) -> None:
    """An id beyond the largest number is exported and found again, but not valid elsewhere."""
    thread.outputs.publish(f"{LARGEST_ID}-x", "x")
    thread.outputs.put("y", "y")
    before = said(thread)
    assert thread.outputs.export_folder(folder) == [f"{LARGEST_ID}-x.md", f"{LARGEST_ID + 1}-y.md"]
    assert len(thread.outputs.import_folder(folder)) == 2
    assert said(thread) == before
    with eventq.open(eventq.init(os.path.join(folder, "other"))) as other:
        assert list(other.outputs.import_folder(folder)) == [f"{LARGEST_ID}-x.md"]
        assert other.check() == []


# --- content --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given_content", "data"), [
    ("text größe\n", "text größe\n".encode()), (b"bytes", b"bytes"),
    (bytearray(b"array"), b"array"), (memoryview(b"a1b2")[::2], b"ab"), ("", b""), (b"", b""),
    (NOISE, NOISE), ("x" * 200_000, b"x" * 200_000),
])  # fmt: skip
def test_content(thread: eventq.Thread, clock: Clock, given_content: Any, data: bytes) -> None:
    """Text is stored as UTF-8, bytes unchanged; the result has name, version, hash, size, time."""
    del clock
    info = thread.outputs.put("Scout", given_content)
    assert info == OutputInfo(
        "0-Scout", 1, blake3(data).hexdigest(), len(data), thread.database.milliseconds()
    )
    assert info.url == "agent://0-Scout"
    assert thread.outputs.get("0-Scout") == info
    assert thread.outputs.list() == [info]
    assert thread.outputs.read("0-Scout") == data
    pieces = list(thread.outputs.stream(info))
    assert b"".join(pieces) == data
    assert max(map(len, pieces), default=0) <= 1 << 20


def test_a_file(thread: eventq.Thread) -> None:
    """A binary file is read to its end, also one that is larger than it may be in memory."""
    assert thread.outputs.read(thread.outputs.put("a", io.BytesIO(NOISE)).output_id) == NOISE
    flood: Any = Flood(20)
    assert thread.outputs.put("b", flood).size == 20 * 65_536
    broken: Any = Flood(20, OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        thread.outputs.put("c", broken)
    assert [info.output_id for info in thread.outputs] == ["0-a", "1-b"]
    assert thread.outputs.allocate("d") == "2-d"


def test_what_is_no_content(thread: eventq.Thread, stored: Callable[[], Tables]) -> None:
    """Unpaired surrogates and other types are refused; nothing is stored, no number is used."""
    before = stored()
    wrong: Any
    for wrong in ("half \ud800", None, 3, ["a"], {"a": 1}, io.StringIO("text")):
        with pytest.raises(InputError):
            thread.outputs.put("a", wrong)
        with pytest.raises(InputError):
            thread.outputs.publish("0-a", wrong)
    assert stored() == before


# --- versions -------------------------------------------------------------------------------------


def test_versions(thread: eventq.Thread, clock: Clock) -> None:
    """Row 103: publishing again under one id keeps the first version and adds another."""
    outputs = thread.outputs
    first = outputs.put("Scout", "one")
    clock.move(1)
    second = outputs.publish("0-Scout", "two")
    third = outputs.publish("0-Scout", "three")
    assert [first.version, second.version, third.version] == [1, 2, 3]
    assert [info.url for info in (first, second, third)] == [
        "agent://0-Scout", "agent://0-Scout?version=2", "agent://0-Scout?version=3"
    ]  # fmt: skip
    assert second.created_at_ms == first.created_at_ms + 1000
    assert outputs.get("0-Scout") == first
    assert [outputs.get("0-Scout", version) for version in (1, 2, 3)] == [first, second, third]
    assert [outputs.read("0-Scout", version) for version in (1, 2, 3)] == [b"one", b"two", b"three"]
    assert outputs.list() == [first, second, third]
    assert len(outputs) == 1
    for url, data in (
        (first.url, b"one"),
        (second.url, b"two"),
        ("agent://0-Scout?version=1", b"one"),
    ):
        assert thread.read(url).data == data


def test_equal_content(thread: eventq.Thread) -> None:
    """Equal content is a new version each time; its bytes are stored once."""
    for _ in range(3):
        thread.outputs.publish("0-a", "same")
    thread.outputs.put("b", "same")
    expected = [*[("0-a", version, b"same") for version in (1, 2, 3)], ("1-b", 1, b"same")]
    assert said(thread) == expected
    assert len(thread.blobs) == 1


def test_the_list_is_sorted(thread: eventq.Thread) -> None:
    """The list is sorted by name and version, each once, also beyond one page of it."""
    ids = [f"{number}-x" for number in range(600)]
    with thread.write():
        for each in random.Random(2).sample(ids, len(ids)):
            for version in (1, 2):
                assert thread.outputs.publish(each, f"{each} {version}").version == version
    found = [(info.output_id, info.version) for info in thread.outputs.list()]
    assert found == [(each, version) for each in sorted(ids) for version in (1, 2)]
    assert len(thread.outputs) == 600


@pytest.mark.parametrize("version", [0, -1, True, None, "1", 1.0, 1 << 63])
def test_versions_that_are_none(thread: eventq.Thread, version: Any) -> None:
    """A version is a whole number from 1 on."""
    thread.outputs.put("a", "x")
    for call in (thread.outputs.get, thread.outputs.read):
        with pytest.raises(UsageError, match="version must be a whole number from 1"):
            call("0-a", version)


def test_unknown_outputs(thread: eventq.Thread) -> None:
    """Row 100: an unknown output is refused with a list of names; an unknown version is named."""
    with pytest.raises(UnknownOutputError) as caught:
        thread.outputs.get("0-a")
    assert caught.value.what == "Not found: 0-a\nAvailable: none"
    thread.outputs.publish("0-b", "x")
    thread.outputs.publish("0-a", "x")
    thread.outputs.publish("0-a", "y")
    with pytest.raises(UnknownOutputError) as caught:
        thread.outputs.read("0-A")
    assert caught.value.what == "Not found: 0-A\nAvailable: 0-a, 0-b"
    with pytest.raises(UnknownOutputError) as caught:
        thread.outputs.get("0-a", 3)
    assert caught.value.what == "Not found: 0-a, version 3\nAvailable: 0-a, 0-b"
    wrong: Any
    for wrong in ("", "x'; --", "0-a\n", "%", 0, None):
        with pytest.raises(UnknownOutputError):
            thread.outputs.get(wrong)


# --- what keeps the bytes -------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """Return the hash of bytes."""
    return blake3(data).hexdigest()


def sha256(data: bytes) -> str:
    """Return the ref that another tool has for bytes."""
    return f"blob:sha256:{hashlib.sha256(data).hexdigest()}"


def test_outputs_keep_their_blobs(thread: eventq.Thread) -> None:
    """A collection keeps every version of an output and the blobs that it names, and no others."""
    thread.blobs.put(b"v2", refs=[thread.blobs.put(b"named").hash])
    thread.blobs.put(b"loose")
    thread.outputs.put("A", "v1")
    thread.outputs.publish("0-A", "v2")
    thread.outputs.put("B", NOISE)
    assert set(collect(thread, 0).hashes) == {digest(b"loose")}
    assert [thread.outputs.read("0-A", n) for n in (1, 2)] == [b"v1", b"v2"]
    assert thread.outputs.read("1-B") == NOISE
    assert thread.blobs.holders(digest(b"v1")) == ["output 0-A"]
    assert thread.blobs.get(digest(b"named")) == b"named"
    assert collect(thread, 0).hashes == ()


def test_a_name_keeps_no_blob(thread: eventq.Thread) -> None:
    """The name that another tool has for a blob does not keep it, and goes with it."""
    for data in (b"kept", b"loose", NOISE):
        thread.blobs.put(data)
        assert thread.produced.name_blob(digest(data), bytes.fromhex(sha256(data)[12:]))
    thread.blobs.pin(digest(b"kept"), "me")
    assert set(collect(thread, 0).hashes) == {digest(b"loose"), digest(NOISE)}
    assert thread.read(sha256(b"kept")).data == b"kept"
    for data in (b"loose", NOISE):
        with pytest.raises(UnknownBlobError):
            thread.read(sha256(data))
    thread.blobs.put(b"loose")
    with pytest.raises(UnknownBlobError):
        thread.read(sha256(b"loose"))


def test_a_name_that_is_wrong(thread: eventq.Thread) -> None:
    """A blob is not noted under a SHA-256 that is not its own, nor twice."""
    thread.blobs.put(b"text")
    assert not thread.produced.name_blob(digest(b"text"), bytes(32))
    for _ in range(2):
        assert thread.produced.name_blob(digest(b"text"), bytes.fromhex(sha256(b"text")[12:]))
    with pytest.raises(UnknownBlobError):
        thread.produced.name_blob(digest(b"none"), bytes(32))


def test_artifacts_are_never_collected(
    thread: eventq.Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artifacts of every status stay, however old they are and whatever leads to them."""
    monkeypatch.setattr("eventq.output.artifacts.COMMIT_SECONDS", 0)
    thread.artifacts.put(NOISE, "bash")
    writer = thread.artifacts.allocate("bash")
    writer.write(b"failed")
    writer.fail("for a test")
    with thread.artifacts.allocate("bash") as writer:
        writer.write(NOISE)
        clock.move(10 * 24 * 3600)
        thread.blobs.put(b"loose")
        assert set(collect(thread, 0).hashes) == {digest(b"loose")}
        assert [one.status for one in thread.artifacts] == ["sealed", "failed", "open"]
    assert [thread.artifacts.open(n).read() for n in range(3)] == [NOISE, b"failed", NOISE]
    assert thread.artifacts.get(2).status == "sealed"


def test_a_text_of_an_artifact_keeps_no_blob(thread: eventq.Thread) -> None:
    """Artifacts are texts of tools: a ref in one keeps nothing."""
    thread.blobs.put(b"mentioned")
    thread.artifacts.put(f"blob:blake3:{digest(b'mentioned')}".encode())
    assert set(collect(thread, 0).hashes) == {digest(b"mentioned")}


def test_a_transaction_that_is_undone(thread: eventq.Thread) -> None:
    """What is published in a transaction that is undone is gone, the number of its name too."""
    thread.outputs.publish("0-a", "one")
    with pytest.raises(ZeroDivisionError), thread.write():
        assert thread.outputs.put("b", "two").output_id == "1-b"
        assert thread.outputs.publish("0-a", "three").version == 2
        assert thread.outputs.allocate("c", "0-a") == "0-a.0-c"
        raise ZeroDivisionError
    assert said(thread) == [("0-a", 1, b"one")]
    assert thread.outputs.put("d", "two").output_id == "1-d"
    assert thread.outputs.allocate("e", "0-a") == "0-a.0-e"
    assert thread.outputs.publish("0-a", "four").version == 2


def test_a_publication_is_one_change(thread: eventq.Thread) -> None:
    """Row 85: name, number and bytes are seen by others together, or not at all."""
    with eventq.open(thread.path, read_only=True) as reader:
        with thread.write():
            info = thread.outputs.put("a", "one")
            assert (len(reader.outputs), reader.blobs.has(info.hash)) == (0, False)
        assert (reader.outputs.list(), reader.outputs.read("0-a")) == ([info], b"one")


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_goes_round(thread: eventq.Thread, tmp_path: Path, folder: str) -> None:
    """Row 102: outputs are exported as `{id}.md` and `{id}.v2.md`, and imported unchanged."""
    given_outputs: list[tuple[str, str | bytes]] = [
        ("0-a", "one"), ("0-a", "two"), ("0-a", "two"), ("0-a.3-b", NOISE), ("12-c", ""), ("2-d", "one"), ("0-a", "x"),
        *[("1-many", str(n)) for n in range(12)],
    ]  # fmt: skip
    for output_id, content in given_outputs:
        thread.outputs.publish(output_id, content)
    names = thread.outputs.export_folder(folder)
    expected = {f"{i}.md" if v == 1 else f"{i}.v{v}.md": data for i, v, data in said(thread)}
    assert (names, files(folder)) == (list(expected), expected)
    assert thread.outputs.export_folder(folder) == names
    assert files(folder) == expected
    with eventq.open(eventq.init(tmp_path / "other")) as other:
        for _ in range(3):
            made = other.outputs.import_folder(folder)
            assert {
                name: other.outputs.read(info.output_id, info.version)
                for name, info in made.items()
            } == expected
            assert {n: f"{i.output_id}.v{i.version}" for n, i in made.items()} == {
                n: n.removesuffix(".md") + ("" if ".v" in n else ".v1") for n in names
            }
            assert said(other) == said(thread)
        again = tmp_path / "again"
        again.mkdir()
        assert other.outputs.export_folder(str(again)) == names
        assert files(str(again)) == expected
        assert other.outputs.allocate("e") == "13-e"
        assert other.outputs.allocate("e", "0-a") == "0-a.4-e"
        assert other.check() == []
    before = thread.outputs.list()
    thread.outputs.import_folder(folder)
    assert thread.outputs.list() == before


def test_a_folder_into_others(thread: eventq.Thread, folder: str) -> None:
    """Row 103: a different first version becomes the next version; a second import finds it."""
    thread.outputs.publish("0-a", "mine")
    write_file(folder, "0-a.md", b"yours")
    write_file(folder, "0-a.v2.md", b"mine")
    write_file(folder, "0-a.v3.md", b"third")
    for _ in range(2):
        made = thread.outputs.import_folder(folder)
        expected = {"0-a.md": 2, "0-a.v2.md": 1, "0-a.v3.md": 3}
        assert {name: info.version for name, info in made.items()} == expected
        assert said(thread) == [("0-a", 1, b"mine"), ("0-a", 2, b"yours"), ("0-a", 3, b"third")]
    assert thread.outputs.read("0-a") == b"mine"


@pytest.mark.parametrize("name", ["Named.md", "0.md", "00-a.md", "Parent.Child.md", "0-a.x.md"])
def test_names_without_a_number(thread: eventq.Thread, folder: str, name: str) -> None:
    """A file of any plain name is an output under it, and uses up no number."""
    write_file(folder, name, b"one")
    ((_, info),) = thread.outputs.import_folder(folder).items()
    assert info.output_id == name.removesuffix(".md")
    assert thread.read(info.url).data == b"one"
    assert thread.outputs.export_folder(folder) == [name]
    assert thread.outputs.publish(info.output_id, "two").version == 2
    assert thread.outputs.allocate("b") == ("1-b" if name == "0-a.x.md" else "0-b")


@pytest.mark.parametrize("name", ["0-a.v2.md", "0-a.v3.md"])
def test_a_later_version_alone(thread: eventq.Thread, folder: str, name: str) -> None:
    """Importing twice adds nothing, even if earlier versions are missing in the folder."""
    write_file(folder, name, b"x")
    thread.outputs.import_folder(folder)
    thread.outputs.import_folder(folder)
    assert said(thread) == [("0-a", 1, b"x")]


@pytest.mark.parametrize("name", [
    "x", "0-a.txt", "0-a.md.bak", "0-a b.md", "@x.md",
    "0-a.MD", "0-a.md\n", "0-a..md", f"{1 << 62}-a.md", f"0-a.{1 << 63}-a.md",
    "0-\udcff.md", ".0-a.md", "0-" + "x" * 239 + ".md",
])  # fmt: skip
def test_foreign_files(thread: eventq.Thread, folder: str, name: str) -> None:
    """What is not named like an output is none, and is left alone."""
    write_file(folder, name, b"x")
    os.mkdir(os.path.join(folder, "sub"))
    assert thread.outputs.import_folder(folder) == {}
    assert (len(thread.outputs), len(thread.blobs)) == (0, 0)


def test_folders_that_cannot_be_used(thread: eventq.Thread, tmp_path: Path, folder: str) -> None:
    """A folder that is none is an OSError; what is named like a file and is none is left out."""
    thread.outputs.put("a", "one")
    with pytest.raises(OSError, match="No such file"):
        thread.outputs.export_folder(str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match="No such file"):
        thread.outputs.import_folder(str(tmp_path / "nowhere"))
    os.mkdir(os.path.join(folder, "5-b.md"))
    os.mkfifo(os.path.join(folder, "6-b.md"))
    os.symlink("nowhere", os.path.join(folder, "7-b.md"))
    write_file(folder, "3-b.md", b"three")
    assert list(thread.outputs.import_folder(folder)) == ["3-b.md"]
    assert said(thread) == [("0-a", 1, b"one"), ("3-b", 1, b"three")]
    assert thread.outputs.allocate("c") == "4-c"


def test_taken_from_elsewhere(thread: eventq.Thread) -> None:
    """Row 106: a version from elsewhere keeps its time, and is said to be new once."""
    blob = thread.blobs.put(b"one")
    info, new = thread.outputs.take("4-a", 1, blob.hash, 1234)
    assert (info, new) == (OutputInfo("4-a", 1, blob.hash, 3, 1234), True)
    assert thread.outputs.take("4-a", 1, blob.hash, 9999) == (info, False)
    assert thread.outputs.allocate("b") == "5-b"


# --- doors that are closed ------------------------------------------------------------------------


def test_a_reader_reads_and_does_not_write(
    thread: eventq.Thread, tmp_path: Path, folder: str
) -> None:
    """A read-only thread answers everything about outputs, and refuses to create one."""
    info = thread.outputs.put("a", "one")
    write_file(folder, "1-b.md", b"x")
    out = tmp_path / "out"
    out.mkdir()
    with eventq.open(thread.path, read_only=True) as reader:
        outputs = reader.outputs
        expected = (info, [info], 1, b"one")
        assert (outputs.get("0-a"), outputs.list(), len(outputs), outputs.read("0-a")) == expected
        assert outputs.export_folder(str(out)) == ["0-a.md"]
        for call in (
            lambda: outputs.allocate("x"),
            lambda: outputs.put("x", "x"),
            lambda: outputs.publish("0-a", "x"),
            lambda: outputs.import_folder(folder),
        ):
            with pytest.raises(ReadOnlyError, match="was opened to read"):
                call()
        assert reader.check() == []
    assert thread.outputs.list() == [info]
