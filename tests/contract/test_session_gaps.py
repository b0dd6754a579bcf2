"""A session with gaps, from its import to its fork: no turn is lost or made twice.

The kind: what an import knows of a file only when more of it has come. Members: a missing parent
that comes later, an entry that comes later and is nearer, an import by a version before, which left
each entry without its parent a root, and passed over what says where a session goes on.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventq.sessions.claude import Claude
from eventq.sessions.links import FOLLOWS, Link
from tests.contract.test_session_branches import export, load, shown, spell, turns
from tests.servers import ENGINES
from tests.sessions.support import answers, line, says
from tests.sessions.test_gaps import GAP, TWO, at
from tests.sessions.test_leaf import goes_on, rootless

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import eventq

Entry = dict[str, Any]

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


def imported_by_an_older_version(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, *entries: Entry
) -> None:
    """Import a file as it was done before gaps were closed."""
    with monkeypatch.context() as patch:
        patch.setattr(Claude, "closes_gaps", False)
        load(thread, *entries)
    store = thread.database.memory.sessions
    row = store.find("s")
    assert row is not None
    if row.missing is not None:
        found = json.dumps(json.loads(row.missing)["parents"])
        store.settle(row.session, row.settled, found)


def test_a_gap_is_closed(thread: eventq.Thread, tmp_path: Path) -> None:
    """Main holds all entries, the file comes out as it was, and a fork has all of them."""
    load(thread, *TWO, *GAP)
    assert shown(thread) == {"s": "u1 a1 u2 a2"}
    assert export(thread) == spell(*TWO, *GAP)
    made = thread.sessions.fork("s", os.fspath(tmp_path))
    with open(made.output, "rb") as file:
        forked = [json.loads(one) for one in file]
    assert [one["forkedFrom"]["messageUuid"] for one in forked[:4]] == ["u1", "a1", "u2", "a2"]
    assert [one["parentUuid"] for one in forked[:4]] == [None, *(one["uuid"] for one in forked[:3])]


def test_what_an_older_version_imported_is_put_right(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing the same file again, or one that has grown, moves its branches; nothing is lost."""
    more = (says("u3", "a2", **at(9000)), answers("a3", "u3", **at(9100)))
    late = (says("u4", "a3", **at(19_000)), answers("a4", "u4", **at(19_001)))
    imported_by_an_older_version(thread, monkeypatch, *TWO, *GAP, *more)
    assert shown(thread) == {"s": "u2 a2 u3 a3", "s/a1": "u1 a1"}
    before = turns(thread)
    acked = thread.contexts.get("s/a1").head_id()
    for _ in range(2):
        load(thread, *TWO, *GAP, *more)
        assert shown(thread) == {"s": "u1 a1 u2 a2 u3 a3"}
        assert turns(thread) == before + 4  # those of before stay until they are collected
        assert thread.contexts.turn(acked).payload is not None
    load(thread, *TWO, *GAP, *more, *late)
    assert shown(thread) == {"s": "u1 a1 u2 a2 u3 a3 u4 a4"}
    assert export(thread) == spell(*TWO, *GAP, *more, *late)
    thread.gc(apply=True, grace=0)
    assert turns(thread) == 8


def test_what_an_older_version_linked_otherwise_is_put_right(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the file of a subagent; once it is, importing again finds nothing new."""
    entries = [
        *TWO,
        says("u2", "a1"),
        goes_on("a1"),
        rootless(says("u3", "u2")),
        answers("a3", "u3"),
    ]
    side = [one | {"isSidechain": True, "agentId": "ab"} for one in entries]
    folder = f"{thread.path}.files/session/subagents"
    os.makedirs(folder)
    with open(os.path.join(folder, "agent-ab.jsonl"), "wb") as file:
        file.write(spell(*side))
    ours = Claude.link

    def link(reader: Claude, entry: Entry) -> Link | None:
        found = ours(reader, entry)
        if found is None or found.id is None:
            return None
        return found if "parentUuid" in entry else found._replace(kind=found.kind | FOLLOWS)

    with monkeypatch.context() as patch:
        patch.setattr(Claude, "link", link)
        load(thread, *entries, goes_on("u1"))
    assert shown(thread) == {"s": "u1 a1 u2 u3 a3", "s/agent-ab": "u1 a1 u2 u3 a3"}
    store = thread.database.memory.sessions
    for name in shown(thread):
        row = store.find(name)
        assert row is not None
        store.settle(row.session, row.settled, '{"parents": [], "until": null}')
    for added in (7, 0):
        assert load(thread, *entries, goes_on("u1")).added == added
        assert shown(thread) == {
            "s": "u1", "s/u2": "u1 a1 u2", "s/a3": "u3 a3", "s/agent-ab": "u1 a1", "s/agent-ab/u2": "u1 a1 u2",
            "s/agent-ab/a3": "u3 a3",
        }  # fmt: skip
    assert export(thread) == spell(*entries, goes_on("u1"))


BELOW = "line 3 hangs below line 2, the entry written last before it: its parent is not in the file"
BEGINS = "line 3 begins a branch: its parent is not in the file"


@pytest.mark.parametrize("after", [2000, 9000])
def test_a_gap_is_noted(thread: eventq.Thread, tmp_path: Path, after: int) -> None:
    """An import says once where a branch begins behind a gap; what is shown and forked, always."""
    late = (says("u2", "gone", **at(2000 + after)), answers("a2", "u2", **at(20_000)))
    note = BELOW if after < 5000 else BEGINS
    assert load(thread, *TWO, *late).notes == (note,)
    assert load(thread, *TWO, *late).notes == ()
    assert load(thread, *TWO, *late, says("u3", "a2", **at(30_000))).notes == ()
    views = thread.sessions.views
    assert views.notes("s") == [note]
    assert thread.sessions.fork("s", os.fspath(tmp_path)).notes == (note,)
    assert thread.sessions.fork("s", os.fspath(tmp_path), at="a1").notes == ()


def test_a_gap_above_progress_is_noted(thread: eventq.Thread) -> None:
    """What hangs below it is named, and the progress begins a branch that nothing is on."""
    beside = line("progress", "x", "gone", **at(2500))
    made = load(thread, *TWO, beside, says("u2", "x", **at(3000)))
    assert made.notes == (BELOW.replace("line 3", "line 4"), BEGINS)
    assert shown(thread) == {"s": "u1 a1 u2"}


def test_what_is_put_right_is_noted(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that moves what an older version has stored says so."""
    imported_by_an_older_version(thread, monkeypatch, *TWO, *GAP)
    assert load(thread, *TWO, *GAP).notes == (BELOW,)


def test_many_gaps_are_one_note(thread: eventq.Thread) -> None:
    """The first three lines are named, the others are counted; a subagent's begin is none."""
    near = [says(f"n{n}", f"x{n}", **at(2001 + n)) for n in range(6)]
    far = [says(f"f{n}", f"y{n}", **at(100_000 * (n + 1))) for n in range(2)]
    side = says("s", "z", isSidechain=True, **at(500_000))
    itself = says("i", "i", **at(900_000))
    hang = "hang below the entries written last before them: their parents are missing"
    assert load(thread, *TWO, *near, *far, side).notes == (
        f"lines 3, 4, 5 and 3 more {hang}",
        "lines 9 and 10 begin branches: their parents are missing",
    )
    assert load(thread, *TWO, itself, name="t").notes == (
        "line 3 begins a branch: its parent is below it",
    )


@pytest.mark.parametrize("comes", ["the parent", "a nearer one", "another root"])
def test_what_comes_later_moves_what_hangs_behind_a_gap(thread: eventq.Thread, comes: str) -> None:
    """A file that grew is like one that came whole."""
    talk = [
        one
        for n in range(3, 9)
        for one in (says(f"u{n}", f"a{n - 1}", **at(n * 10_000)), answers(f"a{n}", f"u{n}"))
    ]
    new = {
        "the parent": answers("gone", "u1", **at(2500)),
        "a nearer one": line("system", "x", "a1", **at(3000)),
        "another root": says("r", None, **at(3000)),
    }[comes]
    load(thread, *TWO, *GAP, *talk)
    load(thread, *TWO, *GAP, *talk, new, says("u9", "a8", **at(99_000)))
    grown = shown(thread)
    load(thread, *TWO, *GAP, *talk, new, says("u9", "a8", **at(99_000)), name="c")
    whole = {name: ids for name, ids in shown(thread).items() if name[0] == "c"}
    assert {name.replace("s", "c", 1): ids for name, ids in grown.items()} == whole
    above = {"the parent": "u1 gone u2", "a nearer one": "u1 a1 x u2", "another root": "r u2"}
    assert grown["s"].startswith(f"{above[comes]} a2 u3")


@st.composite
def growing(draw: st.DrawFn) -> list[Entry]:
    """Return the entries of a session with gaps."""
    made: list[Entry] = []
    time = 0
    for n in range(draw(st.integers(2, 16))):
        near = [f"{at}" for at in range(max(0, n - 2), n)]
        parent = draw(st.sampled_from([*near * 6, *map(str, range(18)), "gone", None]))
        time += draw(st.sampled_from([0, 1, 1000, 3000, 9000, -4000]))
        more: dict[str, Any] = {"isSidechain": draw(st.sampled_from([False] * 30 + [True]))} | at(
            time
        )
        kinds = (says(f"{n}", parent, **more), answers(f"{n}", parent, **more), line("system", f"{n}", parent, **more), line("progress", f"{n}", parent, **more))  # fmt: skip
        leaf = draw(st.sampled_from([*near * 3, *map(str, range(18))]))
        beside = (goes_on(leaf), line("system", f"{n}", None, subtype="compact_boundary", **more))
        made.append(draw(st.sampled_from([*kinds * 6, *beside])))
    return made


@settings(
    max_examples=20, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(growing(), st.randoms(use_true_random=False))
def test_a_file_with_gaps_that_grew_is_like_one_that_came_whole(
    thread: eventq.Thread, entries: list[Entry], chance: random.Random
) -> None:
    """The branches are the same, whatever an import has seen before."""
    for one in list(thread.contexts):
        thread.contexts.delete(one.context_id)
    thread.gc(apply=True, grace=0)
    for end in sorted(chance.sample(range(1, len(entries)), min(5, len(entries) - 1))):
        load(thread, *entries[:end])
    load(thread, *entries)
    grown = shown(thread)
    load(thread, *entries, name="c")
    whole = {name: ids for name, ids in shown(thread).items() if name[0] == "c"}
    assert {name.replace("s", "c", 1): ids for name, ids in grown.items()} == whole
