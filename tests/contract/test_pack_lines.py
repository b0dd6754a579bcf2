"""Lines of `eventq.ndjson` that nobody has checked: what cannot be is left out, and nothing breaks."""

from __future__ import annotations

import hashlib
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from eventq import EventqError
from tests.contract.pack_files import NOTHING, added, artifact, digest, head, output, pack, tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines("sqlite", soaked=["postgres"]),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]

HASH, LOST = digest(b"1").hex(), "0" * 64
HALF = "\ud800"  # half of a surrogate pair
DATA = b"the bytes of an artifact"
ENTRY = b'{"id": "a"}'
TEXT = digest(b"text").hex()
FILE = digest(DATA).hex()
PATCH: dict[str, Any] = {"patch": 2, "blob": HASH, "flags": 1, "created_at_ms": 5}
SESSION: dict[str, Any] = {
    "session": 1, "session_name": "s", "generation": 1, "tool": "pi", "size": len(ENTRY) + 1,
    "digest": digest(ENTRY + b"\n").hex(),
}  # fmt: skip
LINE: dict[str, Any] = {
    "line": 0, "session": 1, "blob": digest(ENTRY).hex(), "form": 1, "before": "", "after": "0a", "is_node": 1,
    "kind": 1, "at_turn": 0, "entry": "a", "parent": None, "response": None, "agent": None,
}  # fmt: skip
OUTPUT = output("0-A", b"text")
ANOTHER = {**SESSION, "session_name": "t"}
NEXT = {**LINE, "line": 1}
SOUND = [
    {"pin": "good", "blob": HASH}, PATCH, output("5-Sound", b"text"), artifact(3, hash=FILE), SESSION, LINE,
]  # fmt: skip
# Files that a bad line might lead to.
DECOYS = [f"{n}.{tool}.log" for n in ("0", "-1", "True") for tool in ("bash", "bash.partial", "..")]
DECOYS += [f"0.{'x' * 65}.log", "0.../x.log", "0.a/b.log", "3.bash.log"]


def sound(folder: Path, *bad: Any) -> Path:
    """Write a pack of sound lines, and bad ones among them."""
    files = dict.fromkeys(DECOYS, DATA)
    heads = head(1, 3, 2, at=1) + head(2, 2, 1, at=2)
    lines = *SOUND, *bad, {"pin": "last", "blob": HASH}
    return pack(folder, *lines, count=3, blobs=(b"text", ENTRY), head=heads, files=files)


def exported(thread: eventq.Thread, folder: Path) -> dict[str, bytes]:
    """Return the pack of a thread."""
    thread.export_pack(folder)
    return tree(folder)


def each(mold: dict[str, Any], key: str, *values: Any) -> list[dict[str, Any]]:
    """Return a line with each of these values of a key."""
    return [{**mold, key: one} for one in values]


BAD: list[Any] = [
    # no object, or of no kind that is known
    b"junk", b"\0\0\0\0", b'[{"context":1,"name":"x"}]', b"7", b"{", b"[1]", b'{"context":1,"na', b'{"context":1,"name":"\xff"}',
    b"[" * 50_000, b'{"context":' * 5_000, b'{"context":' + b"9" * 4_000 + b"}", b'{"context":' + b"9" * 9_000 + b"}",
    b'{"artifact":' + b"9" * 5000 + b"}", b'{"artifact":"\xff"}', {"a": 1},
    # contexts, rules, and runs
    *each({"name": "x"}, "context", 77, "1", -1), {"context": 1, "fork_of": [1]},
    *each({"context": 1}, "name", ["x"], 5, True, "5", "", "n" * 201, "a\0b", HALF),
    {"turn": 1, "canonical": []}, {"turn": 99, "canonical": "x"}, {"turn": 1, "canonical": HALF}, {"turn": 1, "canonical": "\0"},
    {"attempt": 1, "blob": HASH, "created_at_ms": 5},  # which is no node
    {"run": 1, "name": "n", "group": "", "status": "active", "start": 1},  # whose turn starts none
    # patches, roots, refs, and pins
    *each(PATCH, "patch", 9, True, 0, -1, 10**99),
    *each(PATCH, "blob", LOST, "00", "zz", HALF, 5),
    *each(PATCH, "flags", 10**30, 1 << 32, -1),
    *each(PATCH, "created_at_ms", 1 << 63, None), {"patch": 1, "flags": 0, "created_at_ms": 1},
    *each({"hash": HASH}, "root", 9, 0, -1, 10**99, True, "1"),
    *each({"root": 1}, "hash", None, "00", "z" * 64, HASH.upper(), HALF), {"root": 1},
    {"ref": LOST, "blob": HASH}, {"ref": HASH, "blob": LOST}, {"ref": "é", "blob": HASH},
    *each({"pin": "x"}, "blob", LOST, "zz", HALF), *each({"blob": HASH}, "pin", "", HALF, "a\0", 5),
    # outputs, and names of blobs
    *each(OUTPUT, "output", "A.v2", "../0-A", "0-A/../../x", "0-A\0", "", "0-" + "A" * 2000, "0-" + "A" * 239),
    *each(OUTPUT, "output", f"{1 << 62}-A", "0-" + HALF, ".A"),
    *each(OUTPUT, "version", 0, -1, 10**30, True, "1"), *each(OUTPUT, "created_at_ms", -1, 1 << 63),
    *each(OUTPUT, "blob", LOST, "../../x", 7),
    *each({"blob": TEXT}, "sha256", LOST, "../../x", []),
    {"sha256": hashlib.sha256(b"other").hexdigest(), "blob": digest(b"other").hex()},
    # artifacts
    *each(artifact(), "artifact", "0", True, 0.5, -1), *each(artifact(), "status", None), *each(artifact(), "created_at_ms", -1, 1 << 63),
    *each(artifact(), "tool", ["bash"], "../x", "a/b", "..", "a\0b", "", "x" * 65, HALF, "a\n", "/etc/passwd"),
    *each(artifact(), "hash", 7, [], LOST, "x"), {"artifact": 0, "tool": "bash", "status": "sealed"},
    # sessions, and more lines of one
    *each(ANOTHER, "generation", 0, 1 << 63), *each(ANOTHER, "size", -1, 1 << 63), *each(ANOTHER, "digest", "x"),
    *each(ANOTHER, "tool", 7, HALF), *each(ANOTHER, "owner", 7), *each(ANOTHER, "path", []), *each(ANOTHER, "session", "1"),
    *each(ANOTHER, "session_name", "", "1\n"),
    *each(NEXT, "line", 2, 0, -1), *each(NEXT, "blob", "x", LOST), *each(NEXT, "form", 3, -1), *each(NEXT, "before", "x"),
    *each(NEXT, "after", "0"), *each(NEXT, "at_turn", 99, -1), *each(NEXT, "entry", 7), *each(NEXT, "kind", -1, 1 << 31, 1 << 70),
    *each(NEXT, "is_node", 2, 1 << 64), *each(NEXT, "agent", HALF), *each(NEXT, "session", 9),
]  # fmt: skip
SAID = re.compile(r"eventq\.ndjson: 1 line left out|artifact -?\d+ was left out")


@pytest.fixture(scope="module")
def expected(_pristine: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the pack of a thread that has taken the sound lines."""
    folder = tmp_path_factory.mktemp("expected")
    with eventq.open(shutil.copytree(_pristine, folder / "thread")) as thread:
        assert thread.import_pack(sound(folder / "sound")).notes == ()
        return exported(thread, folder / "out")


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: ascii(bad)[:70])
def test_a_line_that_cannot_be(
    bad: Any, thread: eventq.Thread, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """An impossible line is left out with a note, and opens no other file; the rest is imported."""
    folder = sound(tmp_path / "bad", bad)
    (note,) = thread.import_pack(folder).notes
    assert SAID.search(note)
    assert exported(thread, tmp_path / "out") == expected
    again = thread.import_pack(folder)
    assert added(again) == NOTHING
    assert {*again.notes} <= {note}  # nothing is said of what only new contexts take
    assert thread.outputs.allocate("Next") == "6-Next"


def test_a_name_that_is_taken(thread: eventq.Thread, tmp_path: Path) -> None:
    """A context whose name is another one's here comes without it, with a note."""
    thread.contexts.create("taken")
    found = thread.import_pack(sound(tmp_path / "pack", {"context": 1, "name": "taken"}))
    assert found.notes == ("context 2 has no name here: 'taken' is another one's",)
    assert [one.name for one in thread.contexts] == ["taken", None, None]


def read_sessions(thread: eventq.Thread) -> list[bytes]:
    """Return the lines of all sessions; a damaged one has others, and still none fails."""
    found: list[bytes] = []
    for one in thread.sessions.views.all():
        thread.sessions.views.branches(one.name)
        found += thread.sessions.lines(one.name, generation=one.generation)
    return found


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("text", [b"not JSON", b"[1]", b"\xff", b""])
def test_a_text_that_is_no_entry(
    text: bytes, form: int, thread: eventq.Thread, tmp_path: Path
) -> None:
    """Reading a session fails at none of its lines, and neither does an import into it."""
    start = {"blob": digest(text).hex(), "form": form, "parent": None}
    odd = [{**LINE, **start, "line": 0, "kind": kind, "agent": "x"} for kind in (0, 7)]
    held = b"".join(text + b"\n" for _ in odd)
    session = {**SESSION, "tool": "claude", "size": len(held), "digest": digest(held).hex()}
    rows = [{**one, "line": n, "entry": f"e{n}"} for n, one in enumerate(odd)]
    thread.import_pack(pack(tmp_path / "pack", session, *rows, blobs=(text,)))
    path = tmp_path / "s.jsonl"
    path.write_bytes(held + b'{"type": "user", "uuid": "a", "parentUuid": null}\n')
    assert thread.sessions.import_file(str(path), blobs=str(tmp_path)).entries == 3
    assert thread.sessions.views.title("s") is None
    assert thread.sessions.fork("s", str(tmp_path / "fork.jsonl")).lines > 0


def test_a_generation_of_any_number(thread: eventq.Thread, tmp_path: Path) -> None:
    """Those before it that are not there are not looked for."""
    last = {**SESSION, "generation": (1 << 31) - 1}
    assert thread.import_pack(pack(tmp_path / "pack", last, LINE, blobs=(ENTRY,))).notes == ()
    assert [one.generation for one in thread.sessions.views.generations("s")] == [(1 << 31) - 1]
    assert read_sessions(thread) == [ENTRY + b"\n"]


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(-(1 << 62), (1 << 62) - 1), st.floats(),
    st.sampled_from(["bash", "sealed", "failed", "..", "/", "a/b", "\x00", "0-A", "0-A.1-B", HASH, TEXT, FILE]),
    st.text(max_size=4), st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)  # fmt: skip
MOLDS: list[dict[str, Any]] = [
    *SOUND, artifact(hash=FILE), artifact(1), output("0-A", b"text"), {"sha256": hashlib.sha256(b"text").hexdigest(), "blob": TEXT},
    {"context": 1, "name": "x"}, {"tip": 1, "session": 1, "at_turn": 0}, {"root": 1, "hash": HASH},
]  # fmt: skip
KEYS = sorted(
    {key for mold in MOLDS for key in mold} | {"owner", "path", "size", "fork_of", "scope"}
)
ANY_LINE = st.builds(
    lambda mold, changes: {**mold, **changes},
    st.sampled_from(MOLDS),
    st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
)


@settings(
    max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
@given(st.lists(ANY_LINE, max_size=6))
def test_any_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[Any]) -> None:
    """For any lines an import raises only EventqError, comes once, and leaves what can be read."""
    numbers = [one.get("artifact") for one in lines]
    if any(type(number) is int and abs(number) >= 10**17 for number in numbers):
        return
    place = tmp_path_factory.mktemp("any")
    folder = sound(place / "pack", *lines)
    before = tree(folder)
    with eventq.open(eventq.init(place / "thread")) as thread:
        states: list[Any] = []
        for _ in range(2):
            try:
                assert thread.import_pack(folder).artifacts == 0 or not states
            except EventqError:
                pass
            assert thread.check() == []
            read = [thread.artifacts.open(one.artifact_id).read() for one in thread.artifacts]
            states.append((read, list(thread.produced.aliases()), read_sessions(thread)))
        assert states[0] == states[1]
        thread.gc(apply=True, grace=0)
    assert tree(folder) == before
