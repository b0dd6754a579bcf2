"""Copies between threads: exactly what is reachable, every byte verified, idempotent."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq import UsageError
from eventq.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    NotAThreadError,
    ReadOnlyError,
    UnknownContextError,
)
from eventq.records.artifact import ArtifactInfo
from eventq.records.run import NewRun
from eventq.records.turn import NewTurn
from eventq.store.paths import is_url
from eventq.transfer.sources import ThreadSource
from tests.contract.pack_files import tree
from tests.contract.support import chain, left_behind, outputs
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.records.turn import Imported

CHUNK = 1 << 16
NOISE = random.Random(3).randbytes(3 * CHUNK + 5)
NOTHING = (0, 0, 0, 0, 0, 0, ())


pytestmark = [
    pytest.mark.usefixtures("quick", "ticking"),
    pytest.mark.engines("sqlite", soaked=["postgres"]),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]


def everywhere(test: Any) -> Any:
    """Run a test from every engine into every engine."""
    return pytest.mark.engines(*ENGINES)(pytest.mark.into(*ENGINES)(test))


def added(found: Imported) -> tuple[Any, ...]:
    """Return the counts and notes of a copy."""
    memory = found.blobs, found.turns, found.contexts, found.moved
    return (*memory, found.artifacts, found.outputs, found.notes)


def blobs(thread: eventq.Thread) -> set[str]:
    """Return the hashes of all blobs."""
    return {one.hash for one in thread.blobs}


def names(*raw: bytes) -> set[str]:
    """Return the hashes of bytes."""
    return {blake3(data).hexdigest() for data in raw}


def of(thread: eventq.Thread, name: str) -> list[bytes | None]:
    """Return the payloads of a context."""
    return [one.payload for one in thread.contexts.get(name).replay()]


def artifacts(thread: eventq.Thread) -> dict[str, Any]:
    """Return what every artifact is, and its bytes."""
    return {
        one.artifact_id: (
            one.tool, one.status, one.size, one.lines, one.hash, one.created_at_ms,
            thread.artifacts.open(one.artifact_id).read(),
        )
        for one in thread.artifacts
    }  # fmt: skip


def held(thread: eventq.Thread) -> tuple[Any, ...]:
    """Return the artifacts, outputs and blobs."""
    return artifacts(thread), outputs(thread), blobs(thread)


def state(thread: eventq.Thread) -> dict[str, Any]:
    """Return all that a copy could change, as a pack and the histories of contexts."""
    with tempfile.TemporaryDirectory() as folder:
        thread.export_pack(folder)
        found: dict[str, Any] = dict(tree(folder))
    for name in ("blobs.pack", "blobs.idx", "eventq.ndjson"):
        found[name] = sorted(found[name].splitlines()) if name == "eventq.ndjson" else None
    infos = list(thread.contexts)
    moves = [list(thread.contexts.history(one.context_id)) for one in infos]
    return {**found, "contexts": (infos, moves), "blobs": blobs(thread)}


def empty(thread: eventq.Thread) -> bool:
    """Tell whether a thread holds no memory, nor any bytes."""
    return not (*thread.contexts, *thread.blobs, *thread.artifacts, *thread.outputs)


# --- the closure ----------------------------------------------------------------------------------


def fill(thread: eventq.Thread) -> None:
    """Store connected objects: `main` refers to some, `other` to some, nothing to the rest."""
    put = thread.blobs.put
    put(b"deep")
    named = put(b"named", refs=[blake3(b"deep").digest()]).hash
    main = thread.contexts.create("main")
    main.append(NewTurn("m1", refs=[named]))
    text = "m2: see artifact://0, and more"
    main.append(NewTurn(text, type_id="chat/2", type_version=2, encoding=3, flags=4))
    main.append(NewTurn({"b": "m3"}, canonical="eventq-json-1"))
    main.fork(at=2, name="side").append("s3")
    apart = thread.contexts.create("other")
    apart.append(NewTurn("o1 artifact://3 agent://1-Apart", refs=[put(b"apart").hash]))
    thread.contexts.patch(2, r'{"patched":"artifact:\/\/4"}')
    thread.contexts.patch(5, "o1 patched")
    thread.contexts.tombstone(1)
    thread.contexts.attach(1, blake3(b"deep").digest())
    thread.contexts.attach(5, bytes(32))
    for pinned in (named, put(b"loose").hash):
        thread.blobs.pin(pinned, "me")
    for data in (b"deep", b"loose"):
        thread.produced.name_blob(blake3(data).hexdigest(), hashlib.sha256(data).digest())
    for data, tool in (
        (b"a0 leads to artifact://1.", "bash"), (b"a1 leads to agent://0-Scout.0-Helper\n", "read"),
        (b"a2 " + NOISE, "grep"), (b"a3 of the other", "bash"), (b"", "bash"), (b"a5 of the run", "bash"),
        (b"a6 of nobody artifact://7", "bash"), (b"a7 of nobody", "bash"),
    ):  # fmt: skip
        thread.artifacts.put(data, tool)
    thread.outputs.put("Scout", "of nobody")
    thread.outputs.put("Apart", "of the other")
    thread.outputs.put("Helper", "v1", "0-Scout")
    thread.outputs.publish("0-Scout.0-Helper", HELPER)
    run = thread.runs.start(NewRun("plan", "the prompt artifact://5", group="g"), label="run")
    run.attempt("coder", {"n": 1}, "failed")
    run.step("coder", {"n": 2}, "done")
    thread.runs.start("apart", "another prompt", label="run 2").step("coder", 1, "apart step")


HELPER = "v2 artifact://2 and artifact://99 and agent://7-None"


@everywhere
def test_exactly_the_closure(thread: eventq.Thread, other: eventq.Thread) -> None:
    """What comes is what the chosen contexts lead to, through texts as well, and nothing else."""
    fill(thread)
    found = thread.copy_to(other, ["side"])
    assert [one.name for one in other.contexts] == ["side"]
    assert chain(other, "side") == chain(thread, "side")
    patched = rb'{"patched":"artifact:\/\/4"}'
    assert of(other, "side") == [None, patched, b"s3"]
    texts = [b"m1", b"named", b"deep", b"m2: see artifact://0, and more", b"s3", patched]
    expected = names(*texts, b"v1", HELPER.encode())
    assert blobs(other) == expected
    assert artifacts(other) == {key: one for key, one in artifacts(thread).items() if key in "0124"}
    helper = {key: one for key, one in outputs(thread).items() if key[0] == "0-Scout.0-Helper"}
    assert outputs(other) == helper
    assert added(found) == (8, 3, 1, 0, 4, 2, ())
    named = blake3(b"named").hexdigest()
    assert other.blobs.refs(named) == [f"blob:blake3:{blake3(b'deep').hexdigest()}"]
    assert other.blobs.pins() == [("me", named)]
    assert len(list(other.produced.aliases())) == 1
    assert list(other.runs) == []
    told = [line[:9] for line in state(other)["eventq.ndjson"]]
    assert told.count(b'{"patch":') == 2
    other.gc(apply=True, grace=0)
    assert blobs(other) == expected


@everywhere
def test_a_run(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A run comes with its prompt, steps and attempts, and what its texts name."""
    fill(thread)
    thread.copy_to(other, ["run"])
    [info] = other.runs
    mine, theirs = thread.runs.get("run"), other.runs.get("run")
    start = mine.info()
    assert (info.name, info.group, info.status) == ("plan", "g", "active")
    assert (info.head, info.start) == (start.head, start.start)
    (first,) = theirs.replay()
    assert [(first.meta, first.content, first.attempts)] == [
        (step.meta, step.content, step.attempts) for step in mine.replay()
    ]
    assert len(first.attempts) == 1
    assert theirs.prompt() == "the prompt artifact://5"
    assert artifacts(other).keys() == {"5"}
    assert outputs(other) == {}
    assert not blobs(other) & names(b"another prompt", b"m1", b"apart")
    assert other.runs.get("run").step("coder", 3, "goes on").number == 2


def test_an_attempt_that_no_step_names(thread: eventq.Thread, other: eventq.Thread) -> None:
    """An attempt comes also while no step after it names it."""
    thread.runs.start("plan", "prompt", label="run").attempt("coder", 1, "failed artifact://0")
    thread.artifacts.put(b"x")
    found = thread.copy_to(other, ["run"])
    assert (found.artifacts, found.notes) == (1, ())
    assert blobs(other) == blobs(thread)
    for one in (thread, other):
        assert len(one.runs.get("run").step("coder", 2, "done").attempts) == 1


def test_where_a_context_began(thread: eventq.Thread, other: eventq.Thread) -> None:
    """The turns that a context began at come as well, when its head was moved away from them."""
    thread.contexts.create("main").append("m1")
    thread.contexts.create("apart").append("a1")
    thread.contexts.create("moved", base=1).move(2)
    assert added(thread.copy_to(other, ["moved"])) == (2, 2, 1, 0, 0, 0, ())
    assert [one[0] for one in chain(other, "moved")] == [b"a1"]


def test_the_blob_of_a_root(thread: eventq.Thread, other: eventq.Thread) -> None:
    """The root of a chosen turn is copied with its blobs; the root of another turn is not."""
    put = thread.blobs.put
    tree = put(b"tree see artifact://0", refs=[put(b"leaf").hash])
    thread.artifacts.put(b"a0")
    thread.contexts.create("main").append("m1")
    thread.contexts.create("apart").append("a1")
    thread.contexts.attach(1, tree.hash)
    thread.contexts.attach(2, put(b"apart").hash)
    thread.contexts.get("main").append("m2")
    for number in (4, 0):
        found = thread.copy_to(other, ["main"])
        assert (found.blobs, found.notes) == (number, ())
    assert blobs(other) == names(b"m1", b"m2", b"leaf", b"tree see artifact://0")
    head = other.contexts.head("main")
    assert other.contexts.root(head) == bytes.fromhex(tree.hash)
    assert artifacts(other).keys() == {"0"}
    assert other.gc(apply=True, grace=0).blobs == 0


def test_a_root_that_is_another(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A turn with another root in the destination keeps it, with a note."""
    thread.contexts.create("main").append("m1")
    thread.copy_to(other)
    thread.contexts.attach(1, bytes(32))
    other.contexts.attach(1, b"\1" * 32)
    assert thread.copy_to(other).notes == (
        f"turn 1 keeps the root that it has here, {'01' * 32}, not {'00' * 32}",
    )
    assert other.contexts.root(1) == b"\1" * 32


@pytest.mark.engines(*ENGINES)
@pytest.mark.into(*ENGINES, alike=True)
def test_everything(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Without a selection everything is copied, with all ids, even the unreachable."""
    fill(thread)
    found = thread.copy_to(other)
    mine, theirs = state(thread), state(other)
    for one in (mine, theirs):
        one["contexts"] = [
            (info.context_id, info.name, info.fork_of) for info in one["contexts"][0]
        ]
    assert theirs == mine
    assert held(other) == held(thread)
    assert added(found) == (len(thread.blobs), 9, 5, 0, 8, 4, ())
    assert other.artifacts.put(b"next").artifact_id == "8"
    assert other.outputs.allocate("Next") == "2-Next"
    assert other.outputs.allocate("Next", "0-Scout") == "0-Scout.1-Next"


def test_the_choice(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Contexts are chosen by id or by name, twice is once, and none is nothing."""
    fill(thread)
    assert added(thread.copy_to(other, [])) == NOTHING
    assert thread.copy_to(other, ["main", 1, "1", thread.contexts.get("side").id]).contexts == 2
    found = [(one.context_id, one.name, one.fork_of) for one in other.contexts]
    assert found == [(1, "main", None), (2, "side", 1)]
    assert chain(other, "main") == chain(thread, "main")


@pytest.mark.parametrize("name", ["none", 99, "99", 0, -1, "", "1 ", 1 << 70])
def test_a_context_that_is_not_there(
    thread: eventq.Thread, other: eventq.Thread, name: Any
) -> None:
    """An unknown context is UnknownContextError, and nothing is copied."""
    thread.contexts.create("main").append("text")
    with pytest.raises(UnknownContextError):
        thread.copy_to(other, ["main", name])
    assert empty(other)


TEXTS = {
    "artifact://1": "1",
    "See artifact://1.": "1",
    "(artifact://1)": "1",
    "`artifact://1`, artifact://2;": "12",
    r'{"a":"artifact:\/\/1"}': "1",
    r"artifact:\/\/1 artifact:/\/2": "12",
    "artifact://1/": "1",
    "artifact://1artifact://2": "12",
    "\x00artifact://1\xff": "1",
    "artifact://12": "",
    "artifact:/1 artifact//1 artifact: //1 artifact://x1": "",
    "artifact://": "",
    "artifact://999999999999999999 artifact://1": "1",
    "artifact://9223372036854775808 artifact://9999999999999999999 artifact://1": "1",
    "artifact://00000000000000000001 artifact://10000000000000000000": "",
}


@pytest.mark.parametrize("text", TEXTS)
def test_how_a_text_names_an_artifact(
    thread: eventq.Thread, other: eventq.Thread, text: str
) -> None:
    """A URL of an artifact is found anywhere in a text, also escaped in JSON."""
    for _ in range(4):
        thread.artifacts.put(b"x")
    thread.contexts.create("main").append(text.encode("latin-1"))
    assert thread.copy_to(other, ["main"]).notes == ()
    assert "".join(artifacts(other)) == TEXTS[text]


@pytest.mark.parametrize(("named", "found"), [
    ((1 << 62) - 1, [(1 << 62) - 1]), (1 << 62, [1 << 62]), (10**18, []), (10**17, [10**17]), (10**36, []),
])  # fmt: skip
def test_how_a_text_names_a_large_number(
    thread: eventq.Thread, other: eventq.Thread, named: int, found: list[int]
) -> None:
    """The largest numbers are found as well, and no number that is the beginning of another."""
    for number in (10**17, (1 << 62) - 1):
        told = ArtifactInfo(str(number), "tool", "sealed", 0, 0, None, None, 0, None)
        thread.artifacts.take(told, lambda: [b"x"], {10**17})
    thread.artifacts.put(b"y")
    thread.contexts.create("main").append(f"see artifact://{named}, and so on")
    if named == 1 << 62:  # which was given after the largest, and is nobody's elsewhere
        with pytest.raises(ConflictError, match="is another one"):
            thread.copy_to(other, ["main"])
        return
    assert thread.copy_to(other, ["main"]).notes == ()
    assert list(artifacts(other)) == [str(number) for number in found]


OUTPUT_TEXTS = {
    "agent://0-A": ["0-A"],
    "It is in agent://0-A.": ["0-A"],
    "agent://0-A... agent://1-B?version=2": ["0-A", "1-B"],
    "agent://0-A.0-C/a/0": ["0-A.0-C"],
    "agent://0-A.0-C. agent://1-B?q=.a": ["0-A.0-C", "1-B"],
    r'{"a":"agent:\/\/1-B"}': ["1-B"],
    "agent://1-B#x": ["1-B"],
    "agent://0-AA agent://0 agent:/0-A": [],
}


@pytest.mark.parametrize("text", OUTPUT_TEXTS)
def test_how_a_text_names_an_output(thread: eventq.Thread, other: eventq.Thread, text: str) -> None:
    """A URL of an output is found anywhere, with a path or query, or at the end of a sentence."""
    thread.outputs.put("A", "a")
    thread.outputs.put("B", "b")
    thread.outputs.publish("1-B", "b again")
    thread.outputs.put("C", "c", "0-A")
    thread.contexts.create("main").append(text)
    thread.copy_to(other, ["main"])
    assert sorted({one[0] for one in outputs(other)}) == OUTPUT_TEXTS[text]
    assert len(outputs(other)) == sum(1 + (name == "1-B") for name in OUTPUT_TEXTS[text])


@pytest.mark.parametrize("back", [0, 1, 5, 9, 10, 11, 12, 13, 14])
def test_a_name_across_two_pieces(thread: eventq.Thread, other: eventq.Thread, back: int) -> None:
    """A name that spans two pieces of a text is found, and no shorter prefix of it."""
    for _ in range(124):
        thread.artifacts.put(b"x")
    text = b"x" * (CHUNK - back) + b"artifact://123 "
    number = thread.artifacts.put(text).artifact_id
    thread.contexts.create("main").append(f"artifact://{number}")
    thread.copy_to(other, ["main"])
    assert list(artifacts(other)) == ["123", number]


@pytest.mark.parametrize("back", [1, 120, 240, 248])
def test_a_long_name_across_two_pieces(
    thread: eventq.Thread, other: eventq.Thread, back: int
) -> None:
    """The longest name that an output can have is found across two pieces of a text."""
    name = f"0-{'x' * 64}.0-{'x' * 171}"
    assert len(name) == 240
    thread.outputs.publish(name, "the output")
    text = b"y" * (CHUNK - back) + b"agent:\\/\\/" + name.encode() + b" and so on"
    thread.artifacts.put(text)
    thread.contexts.create("main").append("artifact://0")
    assert thread.copy_to(other, ["main"]).outputs == 1


def test_a_long_text(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A text that is stored in parts is looked through from end to end."""
    for _ in range(3):
        thread.artifacts.put(b"x")
    line = b"".join(b"%07d the quick brown\n" % number for number in range(130_000))
    turn = thread.contexts.create("main").append(b"artifact://0 " + line + b" artifact://2")
    assert thread.blobs.stat(turn.hash).codec == "parts"
    thread.copy_to(other, ["main"])
    assert list(artifacts(other)) == ["0", "2"]


def test_names_in_a_circle(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Texts that name one another, or themselves, come once each."""
    thread.artifacts.put(b"artifact://0 artifact://1 agent://0-A")
    thread.artifacts.put(b"artifact://0")
    thread.outputs.put("A", "agent://0-A artifact://1")
    thread.contexts.create("main").append("artifact://1")
    assert added(thread.copy_to(other, ["main"])) == (2, 1, 1, 0, 2, 1, ())


def test_the_blobs_that_an_output_names(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A blob that the blob of an output names comes with it, and the ref between them."""
    inner = thread.blobs.put(b"inner")
    outer = thread.blobs.put(b"outer artifact://1", refs=[inner.hash])
    thread.blobs.put(b"artifact://0", refs=[outer.hash])
    for _ in range(3):
        thread.artifacts.put(b"x")
    thread.outputs.put("A", b"artifact://0")
    thread.contexts.create("main").append("agent://0-A")
    found = thread.copy_to(other, ["main"])
    assert blobs(other) == names(b"inner", b"outer artifact://1", b"artifact://0", b"agent://0-A")
    assert (list(artifacts(other)), found.notes) == (["0", "1"], ())


# --- again, and into what there is ----------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("chosen", [None, ["side", "run"], ["main", "other"]])
def test_copying_again_adds_nothing(
    thread: eventq.Thread, other: eventq.Thread, chosen: Any
) -> None:
    """Copying again, or back, finds everything and adds nothing."""
    fill(thread)
    thread.artifacts.allocate("broken").fail("for a test")
    thread.copy_to(other, chosen)
    before = state(other)
    assert added(thread.copy_to(other, chosen)) == NOTHING
    assert state(other) == before
    assert added(other.copy_to(thread)) == NOTHING


@everywhere
def test_a_source_that_has_grown(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Of a source that has grown the difference comes only."""
    fill(thread)
    thread.copy_to(other)
    thread.contexts.get("main").append("m4 artifact://8")
    thread.contexts.create("new", base=2)
    thread.artifacts.put(b"a8")
    thread.outputs.publish("1-Apart", "v2")
    assert added(thread.copy_to(other)) == (2, 1, 1, 1, 1, 1, ())
    assert held(other) == held(thread)
    assert chain(other, "main") == chain(thread, "main")
    assert added(thread.copy_to(other)) == NOTHING


@everywhere
def test_a_thread_that_has_other_things(thread: eventq.Thread, other: eventq.Thread) -> None:
    """The destination keeps what it has; turns get new ids, artifacts and outputs keep theirs."""
    for text in ("mine 1", "mine 2"):
        (other.contexts.get("mine") if text[-1] == "2" else other.contexts.create("mine")).append(
            text
        )
    other.outputs.publish("9-Mine", "mine")
    mine = ArtifactInfo("8", "tool", "sealed", 0, 0, None, None, 0, None)
    other.artifacts.take(mine, lambda: [b"mine 8"], set())
    fill(thread)
    before = chain(other, "mine")
    found = thread.copy_to(other)
    assert added(found)[1:] == (9, 5, 0, 8, 4, ())
    assert chain(other, "mine") == before
    assert chain(other, "main") == chain(thread, "main")
    assert artifacts(other) == {**artifacts(thread), "8": artifacts(other)["8"]}
    assert other.artifacts.open(8).read() == b"mine 8"
    assert {**outputs(other), **outputs(thread)} == outputs(other)
    assert other.artifacts.put(b"next").artifact_id == "9"
    assert other.outputs.allocate("Next") == "10-Next"
    assert added(thread.copy_to(other)) == NOTHING


def conflicts(thread: eventq.Thread, other: eventq.Thread, what: str) -> None:
    """Expect a copy to be refused, and to leave the destination as it was."""
    before = state(other)
    with pytest.raises(ConflictError, match=f"{what} is another one.*nothing was copied"):
        thread.copy_to(other)
    assert state(other) == before


@everywhere
def test_an_artifact_that_is_another(thread: eventq.Thread, other: eventq.Thread) -> None:
    """An artifact whose number is another's, or was, is a ConflictError, and nothing is copied."""
    fill(thread)
    other.artifacts.put(b"mine")
    conflicts(thread, other, "artifact://0")
    other.artifacts.remove(0)
    conflicts(thread, other, "artifact://0")  # texts may name it


def test_an_artifact_that_is_another_and_not_chosen(
    thread: eventq.Thread, other: eventq.Thread
) -> None:
    """Only what is chosen can be a conflict."""
    fill(thread)
    for number in range(4):
        other.artifacts.put(b"mine %d" % number)
    assert list(thread.copy_to(other, ["run"]).notes) == []
    assert list(artifacts(other)) == ["0", "1", "2", "3", "5"]


@pytest.mark.parametrize("mine", [b"mine", b"its"])
def test_a_partial_artifact_that_is_another(
    thread: eventq.Thread, other: eventq.Thread, mine: bytes
) -> None:
    """An artifact that is not whole, and whose number is another's, is a ConflictError as well."""
    writer = thread.artifacts.allocate("bash")
    writer.write(b"its")
    writer.fail("for a test")
    other.artifacts.put(mine, "bash")
    thread.contexts.create("main").append("artifact://0")
    conflicts(thread, other, "artifact://0")


def test_an_artifact_of_another_tool(thread: eventq.Thread, other: eventq.Thread) -> None:
    """An equal artifact of another tool is not silently given another number."""
    thread.artifacts.put(b"same", "bash")
    other.artifacts.put(b"same", "grep")
    try:
        found = thread.copy_to(other)
        assert (found.artifacts, found.notes) == (0, ())
    except ConflictError:
        pass
    assert list(artifacts(other)) == ["0"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_output_that_is_another(
    thread: eventq.Thread, other: eventq.Thread, version: int
) -> None:
    """A different output or version under the same id is a ConflictError; nothing is copied."""
    thread.outputs.publish("0-A", "one")
    thread.outputs.publish("0-A", "two")
    thread.contexts.create("main").append("agent://0-A")
    for text in ["one", "mine"][2 - version :]:
        other.outputs.publish("0-A", text)
    conflicts(thread, other, "agent://0-A")


def test_an_output_with_fewer_versions(thread: eventq.Thread, other: eventq.Thread) -> None:
    """The versions that are missing come; those that are there are found again."""
    for text in ("one", "two", "one"):
        thread.outputs.publish("0-A", text)
    other.outputs.publish("0-A", "one")
    assert thread.copy_to(other).outputs == 2
    assert [outputs(other)["0-A", n][0] for n in (1, 2, 3)] == [b"one", b"two", b"one"]
    assert thread.copy_to(other).outputs == 0


def test_a_context_whose_name_is_taken(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A context whose name is taken is copied without a name, with a note."""
    thread.contexts.create("main").append("theirs")
    other.contexts.create("main").append("mine")
    for count in (1, 0):
        found = thread.copy_to(other)
        assert (found.contexts, found.turns) == (count, count)
        assert len(found.notes) == 1 or not count
        assert [(one.context_id, one.name) for one in other.contexts] == [(1, "main"), (2, None)]
    assert [chain(other, one)[0][0] for one in (1, 2)] == [b"mine", b"theirs"]


@pytest.mark.engines(*ENGINES)
def test_the_same_thread(thread: eventq.Thread, tmp_path: Path) -> None:
    """A thread is not copied to itself, by whatever path."""
    if is_url(thread.path):
        (tmp_path / "link").mkdir()
        (tmp_path / "link" / "thread.url").write_text(thread.path)
    else:
        os.symlink(thread.path, tmp_path / "link")
    with (
        eventq.open(tmp_path / "link") as again,
        eventq.open(thread.path, read_only=True) as reader,
    ):
        for one, two in ((thread, thread), (thread, again), (again, thread), (reader, thread)):
            with pytest.raises(UsageError, match="are the same thread"):
                one.copy_to(two)


# --- damage ---------------------------------------------------------------------------------------


def test_an_artifact_that_changes_while_it_is_copied(
    thread: eventq.Thread, other: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that change between two reads are an error: only verified bytes are stored."""
    thread.artifacts.put(NOISE)
    real = ThreadSource.artifact
    asked = []

    def changed(self: ThreadSource, told: Any) -> Iterator[bytes]:
        asked.append(told)
        return real(self, told) if len(asked) == 1 else iter([NOISE[:-1]])

    monkeypatch.setattr(ThreadSource, "artifact", changed)
    with pytest.raises(DamagedError, match="hash"):
        thread.copy_to(other)
    assert len(asked) == 2
    assert "sealed" not in [one.status for one in other.artifacts]


def test_an_artifact_that_cannot_be_stored(
    thread: eventq.Thread, other: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact that breaks off during a copy leaves no row."""
    thread.artifacts.put(NOISE)
    real = ThreadSource.artifact
    asked = []

    def breaking(self: ThreadSource, told: Any) -> Iterator[bytes]:
        asked.append(told)
        for number, piece in enumerate(real(self, told)):
            if len(asked) == 2 and number == 2:
                raise LookupError
            yield piece

    with monkeypatch.context() as patch:
        patch.setattr(ThreadSource, "artifact", breaking)
        with pytest.raises(LookupError):
            thread.copy_to(other)
    assert artifacts(other) == {}
    assert thread.copy_to(other).artifacts == 1
    assert other.artifacts.get(0).status == "sealed"


@everywhere
def test_artifacts_that_are_not_whole(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Failed and abandoned artifacts are copied as not whole; open ones are left out."""
    writer = thread.artifacts.allocate("bash")
    writer.write(b"failed")
    writer.fail("for a test")
    left_behind(thread, b"partial", "bash")
    writer = thread.artifacts.allocate("bash")
    writer.write(b"open ")
    assert [one.status for one in thread.artifacts] == ["failed", "partial", "open"]
    thread.contexts.create("main").append("artifact://0 artifact://1 artifact://2")
    found = thread.copy_to(other, ["main"])
    note = "artifact 2 is still being written there: it was left out"
    assert (found.artifacts, found.notes) == (2, (note,))
    why = "it was incomplete when it was exported"
    assert [(one.status, one.hash, one.error, one.created_at_ms) for one in other.artifacts] == [
        ("failed", None, why, one.created_at_ms) for one in thread.artifacts.list()[:2]
    ]
    assert [other.artifacts.open(n).read() for n in range(2)] == [b"failed", b"partial"]
    assert not other.read("artifact://1").complete
    writer.write(b"and ended")
    writer.seal()
    assert thread.copy_to(other, ["main"]).artifacts == 1  # under its own number
    assert added(thread.copy_to(other, ["main"])) == NOTHING
    assert other.artifacts.open(2).read() == b"open and ended"


# --- threads of all kinds -------------------------------------------------------------------------


@everywhere
def test_a_read_only_source(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A source that is only read is copied, some of it or all."""
    fill(thread)
    with eventq.open(thread.path, read_only=True) as reader:
        assert reader.copy_to(other, ["main", "other", "run"]).contexts == 3
        assert reader.copy_to(other).notes == ()
    assert held(other) == held(thread)


def test_a_read_only_destination(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A destination that is only read, or closed, is refused."""
    fill(thread)
    with eventq.open(other.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
        thread.copy_to(reader)
    with eventq.open(other.path) as closed:
        pass
    with pytest.raises(ClosedError):
        thread.copy_to(closed)
    assert empty(other)


def test_a_source_that_is_gone(tmp_path: Path, other: eventq.Thread) -> None:
    """A deleted or replaced source is not a thread; a closed one is closed."""
    path = eventq.init(tmp_path / "gone")
    with eventq.open(path) as gone:
        gone.contexts.create("main").append("m1")
        shutil.rmtree(path)
        with pytest.raises(NotAThreadError):
            gone.copy_to(other)
        eventq.init(path)
        with pytest.raises(NotAThreadError):
            gone.copy_to(other, ["main"])
    assert list(other.contexts) == []


@everywhere
def test_a_copy_is_one_moment(
    thread: eventq.Thread, other: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy reads one snapshot: what is committed meanwhile is not copied."""
    fill(thread)
    expected = held(thread), chain(thread, "main"), [one.name for one in thread.contexts]
    steps = 0

    def disturb() -> None:
        nonlocal steps
        steps += 1
        with eventq.open(thread.path) as writer, writer.write():
            number = writer.artifacts.put(b"late").artifact_id
            writer.outputs.publish("1-Apart", f"late {steps}")
            writer.contexts.get("main").append(f"late artifact://{number}")
            writer.contexts.create(f"late {steps}")
            if steps == 1:
                writer.artifacts.remove(3)
                writer.contexts.delete("side")

    for name in ("blobs", "turns", "heads", "lines", "artifact"):
        real = getattr(ThreadSource, name)

        def noisy(self: Any, *given: Any, real: Any = real) -> Any:
            disturb()
            return real(self, *given)

        monkeypatch.setattr(ThreadSource, name, noisy)
    assert thread.copy_to(other).notes == ()
    assert steps > 5
    assert (held(other), chain(other, "main"), [one.name for one in other.contexts]) == expected


@everywhere
def test_a_copy_that_is_broken_off(
    thread: eventq.Thread, other: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that ends in the middle leaves a sound thread; doing it again completes it."""
    fill(thread)

    def broken(*_: Any) -> Any:
        raise LookupError

    with monkeypatch.context() as patch:
        patch.setattr(ThreadSource, "heads", broken)
        with pytest.raises(LookupError):
            thread.copy_to(other)
    assert other.check() == []
    assert (list(other.contexts), outputs(other)) == ([], {})
    assert {one.status for one in other.artifacts} == {"sealed"}
    found = thread.copy_to(other)
    assert (found.turns, found.contexts, found.outputs, found.notes) == (9, 5, 4, ())
    assert held(other) == held(thread)


# --- the store itself -----------------------------------------------------------------------------


def test_a_renamed_directory(tmp_path: Path, other: eventq.Thread) -> None:
    """Row 107: renaming the directory is the whole move: all refs work."""
    old, new = tmp_path / "the old place", tmp_path / "new"
    with eventq.open(eventq.init(old)) as thread:
        fill(thread)
        expected = held(thread), chain(thread, "main"), chain(thread, "run")
    os.rename(old, new)
    with eventq.open(new) as thread:
        assert (held(thread), chain(thread, "main"), chain(thread, "run")) == expected
        assert thread.read("artifact://1").data.startswith(b"a1 leads")
        assert thread.read("agent://0-Scout.0-Helper").data == b"v1"
        assert thread.read(f"blob:blake3:{blake3(b'deep').hexdigest()}").data == b"deep"
        assert thread.artifacts.put(b"next").artifact_id == "8"
        assert thread.check() == []
        assert thread.copy_to(other, ["main"]).notes == ()
    assert not old.exists()


@pytest.mark.engines("sqlite")
def test_a_copied_directory(thread: eventq.Thread, tmp_path: Path) -> None:
    """A copy of the directory is another thread; copying it back adds nothing."""
    fill(thread)
    thread.close()
    shutil.copytree(thread.path, tmp_path / "two")
    with eventq.open(thread.path) as one, eventq.open(tmp_path / "two") as two:
        assert added(one.copy_to(two)) == NOTHING


def test_a_fork_copies_no_byte(thread: eventq.Thread) -> None:
    """Row 105: a fork sees the artifacts and outputs of its parent, and new numbers continue."""
    main = thread.contexts.create("main")
    main.append("artifact://0 agent://0-A")
    thread.artifacts.put(NOISE * 10)
    thread.outputs.put("A", NOISE)
    before = held(thread)
    fork = main.fork()
    assert held(thread) == before
    assert chain(thread, fork.id) == chain(thread, "main")
    assert thread.artifacts.put(b"of the fork").artifact_id == "1"
    assert thread.outputs.put("B", "of the fork").output_id == "1-B"
