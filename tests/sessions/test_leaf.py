"""Where a session of Claude Code goes on: at its last entry, or where a line says.

The tool (2.1.197) was tried with each of these files against a made-up model server, and sent the
messages that are expected here. The kind: several entries that it may go on at. Members: a rewind,
an entry that is repeated, one before its parent, one without the key of a parent, one that is no
message, a line that names the leaf; each before and behind a compaction.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sessions.support import SESSION, answers, call, line, result, says
from tests.sessions.test_gaps import at, main

Entry = dict[str, Any]

U1, A1 = says("u1", None, **at(1000)), answers("a1", "u1", **at(2000))
U2, A2 = says("u2", "a1", **at(10_000)), answers("a2", "u2", **at(11_000))
U3, A3 = says("u3", "a1", **at(20_000)), answers("a3", "u3", **at(21_000))
TALK = (U1, A1, U2, A2)
REWOUND = (*TALK, U3, A3)
BOUNDARY = line("system", "cb", None, subtype="compact_boundary", **at(30_000))
COMPACTED = (*TALK, BOUNDARY, says("cs", "cb", isCompactSummary=True, **at(30_001)),
             answers("a4", "cs", **at(40_000)))  # fmt: skip
LATE = at(60_000)


def goes_on(leaf: str | None, **more: Any) -> Entry:
    """Return the line that names the leaf."""
    return {
        "type": "last-prompt",
        "lastPrompt": "hello",
        "leafUuid": leaf,
        "sessionId": SESSION,
    } | more


def rootless(entry: Entry) -> Entry:
    """Return an entry without the key of its parent."""
    return {key: value for key, value in entry.items() if key != "parentUuid"}


def aside(uuid: str, parent: str | None) -> Entry:
    """Return an entry of a subagent."""
    return says(uuid, parent, isSidechain=True, agentId="ab", **LATE)


CALLED = (
    *TALK, answers("b1", "a2", call("t1"), response="m", **at(30_000)),
    answers("b2", "b1", call("t2"), response="m", **at(30_100)),
    result("r1", "b1", "t1", **at(30_200)), result("r2", "b2", "t2", **at(30_300)),
)  # fmt: skip
LAST: dict[str, tuple[tuple[Entry, ...], str]] = {
    "a rewind": (REWOUND, "u1 a1 u3 a3"),
    "the last in the file, not in time": (
        (*TALK, U3 | at(5000), A3 | at(6000)), "u1 a1 u3 a3",
    ),
    "a leaf again": ((*TALK, A2), "u1 a1 u2 a2"),
    "another branch again": ((*REWOUND, A2), "u1 a1 u2 a2"),
    "an inner entry again": ((*TALK, A1), "u1 a1"),
    "an inner prompt again": ((*REWOUND, U2), "u1 a1 u2"),
    "the root again": ((*TALK, U1), "u1"),
    "an inner entry again, and more": ((*TALK, A1, says("u4", "a2", **LATE)), "u1 a1 u2 a2 u4"),
    "again with another parent": ((*TALK, A2 | {"parentUuid": "u1"}), "u1 a2"),
    "again without a parent": ((*TALK, U2 | {"parentUuid": None}), "u2"),
    "again behind a gap": ((*TALK, says("u4", "gone", **at(12_000)), A1), "u1 a1"),
    "one before its parent": ((U1, A1, A2, U2), "u1 a1 u2"),
    "all in reverse": (TALK[::-1], "u1"),
    "a system line": ((*REWOUND, line("system", "x", "a2", **LATE)), "u1 a1 u2 a2 x"),
    "an attachment": ((*REWOUND, line("attachment", "x", "a1", **LATE)), "u1 a1 x"),
    "a meta line": ((*REWOUND, says("m", "a2", isMeta=True, **LATE)), "u1 a1 u2 a2 m"),
    "a team mate": ((*REWOUND, says("m", "a2", teamName="x", **LATE)), "u1 a1 u2 a2 m"),
    "not progress": ((*REWOUND, line("progress", "x", "a2", **LATE)), "u1 a1 u3 a3"),
    "not a subagent": ((*REWOUND, aside("s", "a2")), "u1 a1 u3 a3"),
    "not a type that is not known": ((*REWOUND, line("novel", "x", "a2", **LATE)), "u1 a1 u3 a3"),
    "not a line that is below no message": (
        (*REWOUND, line("system", "x", None, **LATE)), "u1 a1 u3 a3",
    ),
    "not one that is behind a gap": (
        (*REWOUND, line("system", "x", "gone", **at(22_000))), "u1 a1 u3 a3",
    ),
    "not a boundary": ((*TALK, BOUNDARY), "u1 a1 u2 a2"),
    "not what is right below a boundary": (
        (*TALK, BOUNDARY, line("system", "x", "cb", **LATE)), "u1 a1 u2 a2",
    ),
    "behind a boundary": (COMPACTED, "cb cs a4"),
    "a boundary again": ((*COMPACTED, BOUNDARY), "cb cs a4"),
    "an entry before a boundary again": ((*COMPACTED, A1), "u1 a1"),
    "before a boundary": ((*COMPACTED, says("u5", "a2", **LATE)), "u1 a1 u2 a2 u5"),
    "only a system line": ((line("system", "x", None),), "x"),
    "below a subagent": (
        (*TALK, aside("s", "a2"), says("u4", "s", **LATE)), "u1 a1 u2 a2 s u4",
    ),
    "a part of a response again": ((*CALLED, answers("b3", "r2", **LATE), CALLED[4]), "u1 a1 u2 a2 b1 b2 r1 r2"),
    "a line beside parallel calls": (
        (*CALLED, line("system", "x", "r1", **LATE)), "u1 a1 u2 a2 b1 b2 r1 r2 x",
    ),
}  # fmt: skip
ROOTS: dict[str, tuple[tuple[Entry, ...], str]] = {
    "a prompt": ((*TALK, rootless(says("u4", None, **at(12_000))), answers("a4", "u4", **LATE)), "u4 a4"),
    "an answer": ((*TALK, says("u4", "a2", **LATE), rootless(answers("a4", "u4", **LATE))), "a4"),
    "in the middle": ((U1, A1, rootless(U2), A2), "u2 a2"),
    "the first": ((rootless(U1), A1, U2, A2), "u1 a1 u2 a2"),
    "all": (tuple(map(rootless, TALK)), "a2"),
    "a system line": ((*TALK, rootless(line("system", "x", None, **LATE)), says("u4", "x", **LATE)), "x u4"),
}  # fmt: skip
LONG = (U1, A1, U2, A2, says("u3", "a2", **at(15_000)), answers("a3", "u3", **at(16_000)))
SUMMARY = says("cs", "cb", isCompactSummary=True, **at(30_001))
ON = (says("u4", "cs", **at(40_000)), answers("a4", "u4", **at(41_000)))


def keeps(anchor: str, *ids: str, own: str = "cb") -> Entry:
    """Return the boundary of a compaction that has kept some entries."""
    about = {"preservedMessages": {"anchorUuid": anchor, "uuids": [*ids]}}
    return BOUNDARY | {"uuid": own, "compactMetadata": about}


def keeps_from(head: str, tail: str, anchor: str = "cs") -> Entry:
    """Return the boundary of a compaction that has kept the entries from one to another."""
    segment = {"headUuid": head, "anchorUuid": anchor, "tailUuid": tail}
    return BOUNDARY | {"compactMetadata": {"preservedSegment": segment}}


BOTH = BOUNDARY | {
    "compactMetadata": keeps("cs", "u3", "a3")["compactMetadata"] | keeps_from("u2", "a3")["compactMetadata"]
}  # fmt: skip
KEPT: dict[str, tuple[tuple[Entry, ...], str]] = {
    "some entries": ((*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON), "cb cs u3 a3 u4 a4"),
    "a segment": ((*LONG, keeps_from("u3", "a3"), SUMMARY, *ON), "cb cs u3 a3 u4 a4"),
    "one entry": ((*LONG, keeps_from("a3", "a3"), SUMMARY, *ON), "cb cs a3 u4 a4"),
    "the entries count, not the segment": ((*LONG, BOTH, SUMMARY, *ON), "cb cs u3 a3 u4 a4"),
    "nothing follows": ((*LONG, keeps("cs", "u3", "a3"), SUMMARY), "cb cs u3 a3"),
    "more comes below the last": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, says("u4", "a3", **at(40_000))), "cb cs u3 a3 u4",
    ),
    "more comes below another": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, says("u5", "u3", **LATE)), "cb cs u3 u5",
    ),
    "more comes below the summary": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, says("u5", "cs", **LATE)), "cb cs u3 a3 u5",
    ),
    "an entry that is written again": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, LONG[5] | {"parentUuid": "cs"}, says("u4", "a3", **LATE)),
        "cb cs u3 a3 u4",
    ),
    "entries that are no chain": ((*LONG, keeps("cs", "u2", "a3"), SUMMARY, *ON), "cb cs u2 a3 u4 a4"),
    "below the boundary": ((*LONG, keeps("cb", "u3", "a3"), SUMMARY, *ON), "cb u3 a3 cs u4 a4"),
    "an attachment among them": (
        (*LONG[:5], line("attachment", "x", "u3", **at(15_500)), LONG[5] | {"parentUuid": "x"},
         keeps_from("u3", "a3"), SUMMARY, *ON), "cb cs u3 x a3 u4 a4",
    ),
    "by two compactions": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, says("u4", "a3", **at(40_000)), keeps("c2", "a3", "u4", own="b2"),
         says("c2", "b2", isCompactSummary=True, **at(50_000)), says("u5", "u4", **LATE)), "b2 c2 a3 u4 u5",
    ),
    "where a line says": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, says("u5", "cs", **LATE), goes_on("a4")), "cb cs u3 a3 u4 a4",
    ),
    "an entry of before that is written again": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, A1), "cb cs u3 a3 u4 a4",
    ),
    "an entry of behind that is written again": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, says("u5", "cs", **LATE), ON[0]), "cb cs u3 a3 u4",
    ),
    "the boundary is written again": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, keeps("cs", "u3", "a3")), "cb cs u3 a3 u4 a4",
    ),
    "where a line says, before": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, goes_on("a2")), "cb cs u3 a3 u4 a4",
    ),
    "behind a gap of what is past": (
        (*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, says("u5", "gone", **at(12_000))), "u5",
    ),
    "one is not there": ((*LONG, keeps("cs", "u3", "gone", "a3"), SUMMARY, *ON), "cb cs u4 a4"),
    "the anchor is not there": ((*LONG, keeps("gone", "u3", "a3"), SUMMARY, *ON), "cb cs u4 a4"),
    "one is only progress": (
        (*LONG, line("progress", "x", "a3", **LATE), keeps("cs", "a3", "x"), SUMMARY, *ON), "cb cs u4 a4",
    ),
    "the ends are no chain": ((*LONG, keeps_from("a3", "u3"), SUMMARY, *ON), "cb cs u4 a4"),
    "a gap in the segment": (
        (*LONG[:4], says("u3", "gone", **at(12_000)), LONG[5], keeps_from("u2", "a3"), SUMMARY, *ON), "cb cs u4 a4",
    ),
    "none": ((*LONG, keeps("cs"), SUMMARY, *ON), "cb cs u4 a4"),
}  # fmt: skip
SAID: dict[str, tuple[tuple[Entry, ...], str]] = {
    "another branch": ((*REWOUND, goes_on("a2")), "u1 a1 u2 a2"),
    "an inner entry of it": ((*REWOUND, goes_on("u2")), "u1 a1 u2"),
    "before all": ((goes_on("a2"), *REWOUND), "u1 a1 u2 a2"),
    "more comes elsewhere": ((*REWOUND, goes_on("a2"), says("u4", "a3", **LATE)), "u1 a1 u2 a2"),
    "more comes below": ((*REWOUND, goes_on("a2"), says("u4", "a2", **LATE)), "u1 a1 u2 a2 u4"),
    "the last one is below": ((*REWOUND, goes_on("u1")), "u1 a1 u3 a3"),
    "the last one is behind a gap": (
        (*TALK, goes_on("a2"), says("u4", "gone", **at(12_000))), "u1 a1 u2 a2",
    ),
    "an entry behind a gap": (
        (*TALK, says("u4", "gone", **at(12_000)), goes_on("u4"), answers("a4", "u4", **LATE)), "u1 a1 u2 a2 u4 a4",
    ),
    "the last word counts": ((*REWOUND, goes_on("a3"), goes_on("a2"), goes_on("a3")), "u1 a1 u3 a3"),
    "an unknown one": ((*REWOUND, goes_on("a2"), goes_on("gone")), "u1 a1 u3 a3"),
    "none": ((*REWOUND, goes_on("a2"), goes_on(None)), "u1 a1 u2 a2"),
    "by another session": ((*REWOUND, goes_on("a2", sessionId="other")), "u1 a1 u2 a2"),
    "a system line": (
        (*REWOUND, line("system", "x", "a2", **LATE), says("u4", "a3", **LATE), goes_on("x")), "u1 a1 u2 a2 x",
    ),
    "not progress": (
        (*REWOUND, line("progress", "x", "a2", **LATE), says("u4", "a3", **LATE), goes_on("x")), "u1 a1 u3 a3 u4",
    ),
    "not a line below no message": (
        (*REWOUND, line("system", "x", None, **LATE), goes_on("x"), says("u4", "a2", **LATE)), "u1 a1 u2 a2 u4",
    ),
    "not a boundary": ((*COMPACTED, says("u5", "a2", **LATE), goes_on("cb")), "u1 a1 u2 a2 u5"),
    "before a compaction": ((*COMPACTED, goes_on("a2")), "u1 a1 u2 a2"),
    "behind a compaction": ((*COMPACTED, says("u5", "a2", **LATE), goes_on("cs")), "cb cs"),
    "and a compaction follows": ((*REWOUND, goes_on("a2"), *COMPACTED[4:]), "cb cs a4"),
    "and only a boundary follows": ((*REWOUND, goes_on("a2"), BOUNDARY), "u1 a1 u3 a3"),
    "the last one is a boundary": ((*TALK, BOUNDARY, goes_on("u2")), "u1 a1 u2"),
    "the last one is below no message": (
        (*TALK, line("system", "x", None, **LATE), goes_on("u2")), "u1 a1 u2",
    ),
    "an entry that is repeated": ((*REWOUND, A2 | {"parentUuid": "u1"}, goes_on("a2")), "u1 a2"),
    "by a summary it is not said": (
        (*REWOUND, {"type": "summary", "summary": "x", "leafUuid": "a2"}), "u1 a1 u3 a3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAST)
def test_a_session_goes_on_at_its_last_entry(name: str) -> None:
    """The last line of an id counts, and messages, attachments and system lines below one do."""
    entries, expected = LAST[name]
    assert main(*entries) == expected


@pytest.mark.parametrize("name", ROOTS)
def test_an_entry_without_the_key_of_a_parent_is_a_root(name: str) -> None:
    """As one is that names none, whatever was written right before it."""
    entries, expected = ROOTS[name]
    assert main(*entries) == expected


@pytest.mark.parametrize("name", KEPT)
def test_what_a_compaction_has_kept_hangs_below_its_summary(name: str) -> None:
    """And what comes below the summary hangs below that, unless anything of it is not there."""
    entries, expected = KEPT[name]
    assert main(*entries) == expected


@pytest.mark.parametrize("name", SAID)
def test_a_session_goes_on_where_it_is_said(name: str) -> None:
    """Wherever the line stands, unless the last entry is below it, or a boundary follows."""
    entries, expected = SAID[name]
    assert main(*entries) == expected
