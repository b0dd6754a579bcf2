"""Sessions in packs that nobody has checked: what cannot be is left out, and nothing breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from tests.contract.test_pack_output import JUNK, pack

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")

TEXT = b'{"id": "a"}'
BLOB = blake3(TEXT).hexdigest()
SESSION: dict[str, Any] = {
    "session": 1, "session_name": "s", "generation": 1, "tool": "pi", "size": len(TEXT) + 1,
    "digest": blake3(TEXT + b"\n").hexdigest(),
}  # fmt: skip
LINE: dict[str, Any] = {
    "line": 0, "session": 1, "blob": BLOB, "form": 1, "before": "", "after": "0a", "is_node": 1, "kind": 1,
    "at_turn": 0, "entry": "a", "parent": None, "response": None, "agent": None,
}  # fmt: skip
TIP = {"tip": 1, "session": 1, "at_turn": 0}


@pytest.fixture
def other(tmp_path: Path) -> Any:
    """Return a thread to import into."""
    with eventq.open(tmp_path / "other", create=True) as found:
        yield found


def lines(thread: eventq.Thread) -> list[bytes]:
    """Return the lines of all sessions; a damaged one has others, and still none fails."""
    found: list[bytes] = []
    for one in thread.database.memory.sessions.page(0, 99):
        found += thread.sessions._lines(one, lambda _: None)
    return found


def test_a_sound_session(other: eventq.Thread, tmp_path: Path) -> None:
    """It is there, and has its line."""
    found = other.import_pack(pack(tmp_path / "pack", SESSION, LINE, blobs=(TEXT,)))
    assert found.notes == ()
    assert lines(other) == [TEXT + b"\n"]


BAD_SESSIONS: list[dict[str, Any]] = [
    {"generation": 0}, {"generation": 1 << 63}, {"size": -1}, {"size": 1 << 63}, {"digest": "x"}, {"tool": 7},
    {"tool": "\ud800"}, {"owner": 7}, {"path": []}, {"session": "1"}, {"session_name": ""}, {"session_name": "1\n"},
]  # fmt: skip
BAD_LINES: list[dict[str, Any]] = [
    {"line": 1}, {"line": -1}, {"blob": "x"}, {"blob": "0" * 64}, {"form": 3}, {"form": -1}, {"before": "x"},
    {"after": "0"}, {"at_turn": 99}, {"at_turn": -1}, {"entry": 7}, {"kind": 1 << 70}, {"is_node": 1 << 64},
    {"agent": "\ud800"}, {"session": 9},
]  # fmt: skip
BAD = [*({**SESSION, **one} for one in BAD_SESSIONS), *({**LINE, **one} for one in BAD_LINES)]


@pytest.mark.parametrize("line", BAD, ids=lambda line: ascii(line)[:90])
def test_a_line_that_cannot_be(other: eventq.Thread, tmp_path: Path, line: Any) -> None:
    """It is left out and counted; the rest comes, as far as it does not need it."""
    rest = [one for one in (SESSION, LINE) if ("line" in one) != ("line" in line)]
    found = other.import_pack(pack(tmp_path / "pack", *rest, line, blobs=(TEXT,)))
    assert found.notes != ()
    assert other.check() == []
    assert lines(other) == []
    list(other.sessions.views.all())


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("text", [b"not JSON", b"[1]", b"\xff", b""])
def test_a_text_that_is_no_entry(
    other: eventq.Thread, tmp_path: Path, text: bytes, form: int
) -> None:
    """Reading a session fails at none of its lines, and neither does an import into it."""
    start = {"blob": blake3(text).hexdigest(), "form": form, "parent": None}
    odd = [{**LINE, **start, "line": 0, "kind": kind, "agent": "x"} for kind in (0, 7)]
    held = b"".join(text + b"\n" for _ in odd)
    session = {**SESSION, "tool": "claude", "size": len(held), "digest": blake3(held).hexdigest()}
    rows = [{**one, "line": n, "entry": f"e{n}"} for n, one in enumerate(odd)]
    other.import_pack(pack(tmp_path / "pack", session, *rows, blobs=(text,)))
    path = tmp_path / "s.jsonl"
    path.write_bytes(held + b'{"type": "user", "uuid": "a", "parentUuid": null}\n')
    assert other.sessions.import_file(str(path), blobs=str(tmp_path)).entries == 3
    assert other.sessions.views.title("s") is None
    assert other.sessions.fork("s", str(tmp_path / "fork.jsonl")).lines > 0
    assert other.check() == []


def test_a_generation_of_any_number(other: eventq.Thread, tmp_path: Path) -> None:
    """Those before it that are not there are not looked for."""
    last = {**SESSION, "generation": (1 << 31) - 1}
    other.import_pack(pack(tmp_path / "pack", last, LINE, blobs=(TEXT,)))
    assert [one.generation for one in other.sessions.views.generations("s")] == [(1 << 31) - 1]


@settings(
    max_examples=200, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(
    st.lists(
        st.builds(
            lambda mold, changes: {**mold, **changes},
            st.sampled_from([SESSION, LINE, TIP]),
            st.dictionaries(st.sampled_from([*SESSION, *LINE, "owner", "path", "tip"]), JUNK, max_size=2),
        ),
        max_size=5,
    )
)  # fmt: skip
def test_any_lines(tmp_path_factory: pytest.TempPathFactory, found: list[Any]) -> None:
    """Whatever comes, the thread is sound, and reading it fails nowhere."""
    place = tmp_path_factory.mktemp("any")
    with eventq.open(place / "other", create=True) as other:
        other.import_pack(pack(place / "pack", *found, blobs=(TEXT,)))
        assert other.check() == []
        lines(other)
        for one in other.sessions.views.all():
            other.sessions.views.branches(one.name)
        other.gc(apply=True, grace=0)
