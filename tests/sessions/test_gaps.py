"""Entries whose parent is not in the file: main is what Claude Code resumes with.

The tool (2.1.197) was tried with each of these files against a made-up model server, and sent what
is expected here. The kind: a link that leads nowhere. Members: a parent that was never written, one
on a line that no reader takes, an entry that is its own parent or above it, a parent that is no
part of the conversation; each for entries of every type, within the five seconds and after them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventq.sessions import gaps, tree
from eventq.sessions.claude import Claude
from eventq.sessions.links import MESSAGE, Link
from tests.sessions.support import answers, line, names, says

Entry = dict[str, Any]
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def at(milliseconds: float) -> dict[str, str]:
    """Return the time of an entry."""
    time = BEGIN + timedelta(milliseconds=milliseconds)
    return {"timestamp": time.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def main(*entries: Entry) -> str:
    """Return the ids of the entries that a session goes on with."""
    reader = Claude()
    kept = {n: one for n, entry in enumerate(entries) if (one := reader.kept(entry))}
    links = tree.relinked([*map(reader.link, entries)], kept)
    links = [
        link and link._replace(at=reader.at(one)) for link, one in zip(links, entries, strict=True)
    ]
    found = tree.build(links, last_is_leaf=reader.last_is_leaf)
    assert found.active is not None
    return names(entries, tree.path(found.places, found.active))


TWO = (says("u1", None, **at(1000)), answers("a1", "u1", **at(2000)))
GAP = (says("u2", "gone", **at(4000)), answers("a2", "u2", **at(4001)))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-1001, "u2 a2"), (-1, "u1 u2 a2"), (0, "u1 a1 u2 a2"), (1, "u1 a1 u2 a2"),
        (3000, "u1 a1 u2 a2"), (4000, "u1 a1 u2 a2"), (5000, "u1 a1 u2 a2"), (5001, "u2 a2"),
        (6000, "u2 a2"), (7000, "u2 a2"), (9000, "u2 a2"), (60_000, "u2 a2"),
    ],
)  # fmt: skip
def test_a_gap_of_five_seconds_is_closed(after: int, expected: str) -> None:
    """The entry hangs below the one that was written last before it, if that is not too long ago."""
    late = (says("u2", "gone", **at(2000 + after)), answers("a2", "u2", **at(99_000)))
    assert main(*TWO, *late) == expected
    assert main(*TWO, answers("a2", "gone", **at(2000 + after))) == expected.replace("u2 ", "")


CLOSED: dict[str, tuple[tuple[Entry, ...], str]] = {
    "it stands later in the file": (
        (*TWO, *GAP, says("u3", "a1", **at(3000)), answers("a3", "u3", **at(3500)), says("u4", "a2", **at(5000))),
        "u1 a1 u3 a3 u2 a2 u4",
    ),
    "it is on another branch": (
        (*TWO, says("u3", "a1", **at(3000)), answers("a3", "u3", **at(3500)), says("u5", "a1", **at(2500)),
         answers("a5", "u5", **at(2600)), *GAP), "u1 a1 u3 a3 u2 a2",
    ),
    "of one time the first": ((*TWO, answers("b1", "u1", **at(2000)), *GAP), "u1 a1 u2 a2"),
    "a system line": (
        (*TWO, says("u3", "a1", **at(2500)), line("system", "x", "a1", **at(3500)), *GAP), "u1 a1 x u2 a2",
    ),
    "an attachment": ((*TWO, line("attachment", "x", "a1", **at(3500)), *GAP), "u1 a1 x u2 a2"),
    "a meta line": ((*TWO, says("m", "a1", isMeta=True, **at(3000)), *GAP), "u1 a1 m u2 a2"),
    "not progress": ((*TWO, line("progress", "x", "a1", **at(3500)), *GAP), "u1 a1 u2 a2"),
    "not a sidechain": (
        (*TWO, says("s", None, isSidechain=True, agentId="ab", **at(3500)), *GAP), "u1 a1 u2 a2",
    ),
    "not an entry below it": ((*TWO, GAP[0], answers("a2", "u2", **at(3500))), "u1 a1 u2 a2"),
    "one after the other": (
        (*TWO, says("u2", "x", **at(3000)), answers("a2", "y", **at(4000)), says("u3", "z", **at(5000))),
        "u1 a1 u2 a2 u3",
    ),
    "two of one time": (
        (says("u2", "x", **at(3000)), answers("a2", "y", **at(3000)), says("u3", "a2", **at(6000))), "u2 a2 u3",
    ),
    "its parent is no part of the conversation": (
        (*TWO, {"type": "custom-title", "customTitle": "x", "sessionId": "s", "uuid": "gone"}, *GAP), "u1 a1 u2 a2",
    ),
    "its parent is itself": ((*TWO, says("u2", "u2", **at(4000)), GAP[1]), "u1 a1 u2 a2"),
    "its parent is below it": (
        (*TWO, says("u2", "a2", **at(3000)), answers("a2", "u2", **at(3500)), says("u3", "a2", **at(4000))),
        "u1 a1 u2 a2 u3",
    ),
    "with an offset": ((*TWO, says("u2", "gone", timestamp="2026-03-01T02:00:04+02:00")), "u1 a1 u2"),
    "a system line hangs there": (
        (*TWO, line("system", "x", "gone", **at(2500)), says("u2", "x", **at(4000))), "u1 a1 x u2",
    ),
    "it hangs below progress without its parent": (
        (*TWO, line("progress", "x", "gone", **at(2500)), line("progress", "y", "x", **at(2600)), says("u2", "y", **at(4000))),
        "u1 a1 u2",
    ),
    "two hang below progress without its parent": (
        (*TWO, line("progress", "x", "gone", **at(2500)), says("u2", "x", **at(3000)), answers("a2", "x", **at(4000))),
        "u1 a1 u2 a2",
    ),
    "a compaction itself": (
        (*TWO, line("system", "cb", None, subtype="compact_boundary", **at(2500)), *GAP), "cb u2 a2",
    ),
    "a compaction between": (
        (*TWO, line("system", "cb", None, subtype="compact_boundary", **at(2500)),
         says("cs", "cb", isCompactSummary=True, **at(2600)), *GAP), "cb cs u2 a2",
    ),
}  # fmt: skip
OPEN: dict[str, tuple[tuple[Entry, ...], str]] = {
    "it names none": ((*TWO, says("u2", None, **at(2500)), GAP[1]), "u2 a2"),
    "a compaction that names a parent": (
        (*TWO, line("system", "cb", "gone", subtype="compact_boundary", **at(2500)), says("u2", "cb", **at(4000))), "cb u2",
    ),
    "a compaction whose parent is there": (
        (*TWO, line("system", "cb", "a1", subtype="compact_boundary", **at(2500)), says("u2", "cb", **at(4000))), "cb u2",
    ),
    "below progress without its parent, too late": (
        (*TWO, line("progress", "x", "gone", **at(2500)), says("u2", "x", **at(9000))), "x u2",
    ),
    "below progress that names no parent": (
        (*TWO, line("progress", "x", None, **at(2500)), says("u2", "x", **at(3000))), "x u2",
    ),
    "no time": ((*TWO, says("u2", "gone", timestamp=None), GAP[1]), "u2 a2"),
    "no such time": ((*TWO, says("u2", "gone", timestamp="yesterday"), GAP[1]), "u2 a2"),
    "only progress": (
        (*TWO, line("progress", "x", "a1", **at(7500)), says("u2", "gone", **at(8000))), "u2",
    ),
    "only a sidechain": (
        (*TWO, says("s", "a1", isSidechain=True, agentId="ab", **at(7500)), says("u2", "gone", **at(8000))), "u2",
    ),
    "what is behind has no say in where it ends": (
        (says("u1", None, **at(1000)), *GAP, answers("a1", "u1", **at(2000))), "u1 a1",
    ),
    "the end is not behind it": (
        (*TWO, says("u2", "gone", **at(20_000)), says("u3", "a1", **at(22_000))), "u1 a1 u3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CLOSED, *OPEN])
def test_where_an_entry_without_its_parent_hangs(name: str) -> None:
    """Below the nearest entry before it, of the same agent and not below itself; or it is a root."""
    entries, expected = (CLOSED | OPEN)[name]
    assert main(*entries) == expected


def test_agents_are_apart() -> None:
    """An entry of a subagent hangs below one of the same; of those without a name, below none."""
    found = {}
    for own, other in (("a", "a"), ("a", "b"), ("", "")):
        links = [
            Link("u", None, MESSAGE, at=1), Link("s", "u", MESSAGE, agent=own, at=2),
            Link("t", "gone", MESSAGE, agent=other, at=3),
        ]  # fmt: skip
        found[own, other] = tree.build(links, last_is_leaf=False).places[2]
    assert found == {("a", "a"): 1, ("a", "b"): tree.ROOT, ("", ""): tree.ROOT}


def test_many_gaps_of_one_time() -> None:
    """A file of nothing else takes a number of steps that grows with its length only."""
    for parents in (["gone"] * 40_000, ["gone", *map(str, range(39_999))]):
        links = [Link(f"{n}", parent, MESSAGE, at=0) for n, parent in enumerate(parents)]
        found = tree.build(links, last_is_leaf=False)
        assert found.places.count(tree.ROOT) == 1
    assert gaps.NEAREST == 5_000
