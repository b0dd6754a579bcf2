"""New files that a tool resumes from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventq.output.spelling import spell
from eventq.sessions import tree
from eventq.sessions.omp import SLOT_BYTES, slot
from eventq.sessions.plain import Plain
from eventq.sessions.reading import READERS
from tests.sessions.support import (
    NOW,
    SESSION,
    answers,
    call,
    entry,
    fresh,
    grown,
    header,
    line,
    result,
    says,
    shape,
)

CLAUDE, PI, OMP = READERS["claude"], READERS["pi"], READERS["omp"]
Entry = dict[str, Any]
SOURCE: list[Entry] = [
    says("u1", None, "<command/>"),
    says("u2", "u1", "Look\n at it", teamName="x", slug="y"),
    answers("a1", "u2", {"type": "thinking", "thinking": "hm"}, response="m"),
    answers("a2", "a1", call("t1"), response="m"),
    answers("a3", "a2", call("t2"), response="m"),
    line("progress", "p", "a2"),
    result("r1", "p", "t1", sourceToolAssistantUUID="a2"),
    result("r2", "a3", "t2"),
    {"type": "custom-title", "customTitle": "Before", "sessionId": SESSION},
    {"type": "custom-title", "customTitle": "By me", "sessionId": SESSION},
    {"type": "ai-title", "aiTitle": "By the model", "sessionId": SESSION},
    line("system", "cb", "r1", logicalParentUuid="p"),
    says("u3", "cb"),
]


def forked(reader: Plain, entries: list[Entry], at: str | None = None, **more: Any) -> list[Entry]:
    """Return a fork at an entry, by default at the active one; check that nothing was changed."""
    before = json.dumps(entries)
    found = grown(entries)
    ids = [one.get("uuid") or one.get("id") for one in entries]
    end = found.active if at is None else ids.index(at)
    assert end is not None
    path = [entries[n] for n in tree.path(found.places, end)]
    made = list(reader.fork(path, filter(reader.carried, entries), fresh(**more)))
    assert json.dumps(entries) == before
    return made


# --- Claude Code ----------------------------------------------------------------------------------


def test_a_claude_fork_is_a_chain_under_new_ids() -> None:
    """All results are on it, progress is not; each line names the session and where it is from."""
    *made, title = forked(CLAUDE, SOURCE)
    assert [one["forkedFrom"]["messageUuid"] for one in made] == (
        ["u1", "u2", "a1", "a2", "a3", "r1", "r2", "cb", "u3"]
    )
    assert {one["forkedFrom"]["sessionId"] for one in made} == {SESSION}
    assert {one["sessionId"] for one in (*made, title)} == {fresh().id}
    ids = [one["uuid"] for one in made]
    assert len({*ids, title["uuid"]} - {one.get("uuid") for one in SOURCE}) == len(made) + 1
    assert [one["parentUuid"] for one in made] == [None, *ids[:-1]]
    assert not {"teamName", "slug", "sourceToolAssistantUUID"} & {
        key for one in made for key in one
    }
    assert [one["timestamp"] for one in made] == [SOURCE[0]["timestamp"]] * 8 + [NOW]
    assert made[-2]["logicalParentUuid"] == made[4]["uuid"]  # the line before what was left out
    assert title["customTitle"] == "By me (fork)"
    assert CLAUDE.file_name(fresh()) == f"{fresh().id}.jsonl"


def test_a_fork_of_a_claude_fork_is_the_same_conversation() -> None:
    """Read again it is one path, and it can be forked again."""
    once = forked(CLAUDE, SOURCE)
    paths, active = shape(once)
    assert paths == [active] == [" ".join(one["uuid"] for one in once[:-1])]
    again = forked(CLAUDE, once)
    assert [one.get("message") for one in again] == [one.get("message") for one in once]
    assert again[-1]["customTitle"] == "By me (fork) (fork)"


@pytest.mark.parametrize(
    ("at", "kept"),
    [
        ("u1", ["u1"]),
        ("a1", ["u1", "u2"]),
        ("a2", ["u1", "u2"]),
        ("r1", ["u1", "u2", "a1", "a2", "r1"]),
        ("r2", ["u1", "u2", "a1", "a2", "a3", "r1", "r2"]),
    ],
)
def test_a_claude_fork_has_no_call_without_result(at: str, kept: list[str]) -> None:
    """An open call is cut, and what thoughts it leaves alone, as the API takes neither."""
    made = forked(CLAUDE, SOURCE, at)[:-1]
    assert [one["forkedFrom"]["messageUuid"] for one in made] == kept


def test_a_claude_fork_keeps_what_stands_beside_a_cut_call() -> None:
    """The text of a line stays when its call goes, and a result without call goes."""
    text = {"type": "text", "text": "I look"}
    entries = [says("u", None), answers("a", "u", text, call("t1")), result("r", "a", "t2")]
    made = forked(CLAUDE, entries)[:-1]
    assert [one["message"]["content"] for one in made] == ["hello", [text]]


def test_a_claude_fork_leaves_sidechains_out_unless_it_is_one() -> None:
    """A subagent can be forked to a session of its own."""
    side: Entry = {"isSidechain": True, "agentId": "x"}
    mixed = [says("u", None), says("s", "u", **side), says("v", "s")]
    assert len(forked(CLAUDE, mixed, "v")) == 3
    made = forked(CLAUDE, [says("s", None, **side)])
    assert [one.get("isSidechain") for one in made] == [False, None]
    assert "agentId" not in made[0]


def test_a_claude_fork_takes_replacements_along() -> None:
    """Those of its own session, before the title."""
    one: Entry = {"type": "content-replacement", "sessionId": SESSION, "replacements": [{"a": 1}]}
    other = one | {"sessionId": "other", "replacements": [{"a": 2}]}
    made = forked(CLAUDE, [one, says("u", None), other, one | {"replacements": [{"a": 3}]}])
    assert made[1]["type"] == "content-replacement"
    assert made[1]["replacements"] == [{"a": 1}, {"a": 3}]
    assert made[1]["sessionId"] == fresh().id


def test_a_claude_fork_gets_a_title() -> None:
    """The given one, that of the source, or its first prompt."""
    plain = SOURCE[:2]
    assert forked(CLAUDE, plain)[-1]["customTitle"] == "Look at it (fork)"
    assert forked(CLAUDE, plain[:1])[-1]["customTitle"] == "Forked session (fork)"
    assert forked(CLAUDE, plain, title="Mine")[-1]["customTitle"] == "Mine"
    assert forked(CLAUDE, plain, cwd="/b")[0]["cwd"] == "/b"


def test_a_claude_fork_of_nothing_is_nothing() -> None:
    """Where no line would be left, there is no title either."""
    assert list(CLAUDE.fork([], [], fresh())) == []
    assert list(CLAUDE.fork([line("progress", "p", None)], [], fresh())) == []


BLOCKS = st.lists(
    st.one_of(
        st.builds(call, st.sampled_from("xyz")),
        st.builds(
            lambda name: {"type": "tool_result", "tool_use_id": name}, st.sampled_from("xyz")
        ),
        st.just({"type": "thinking"}),
        st.just({"type": "text", "text": "t"}),
    ),
    max_size=3,
)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), BLOCKS), max_size=7))
def test_every_call_of_a_claude_fork_has_one_result(lines: list[tuple[str, list[Entry]]]) -> None:
    """And every result a call before it, whatever the source has."""
    path = [
        line(kind, f"n{n}", f"n{n - 1}", message={"id": f"m{n // 2}", "content": blocks})
        for n, (kind, blocks) in enumerate(lines)
    ]
    waiting, seen = set(), set()
    for one in list(CLAUDE.fork(path, [], fresh()))[:-1]:
        for block in one["message"]["content"]:
            if block["type"] == "tool_use":
                assert block["id"] not in seen
                waiting.add(block["id"])
                seen.add(block["id"])
            elif block["type"] == "tool_result":
                waiting.remove(block["tool_use_id"])
    assert not waiting


# --- Pi -------------------------------------------------------------------------------------------

LABELLED = [
    header(),
    entry("a", None),
    entry("l1", "a", "label", targetId="a", label="first"),
    entry("b", "l1"),
    entry("m", "b", "leaf", targetId="b"),
    entry("c", "b"),
    entry("l2", "c", "label", targetId="b", label="second"),
    entry("l3", "l2", "label", targetId="a", label="third"),
    entry("l4", "l3", "label", targetId="c", label="gone"),
    entry("l5", "l4", "label", targetId="c"),
    entry("d", "b"),
    entry("l6", "d", "label", targetId="d", label="elsewhere"),
]


def test_a_pi_fork_is_closed_over_its_labels() -> None:
    """They follow at the end under new ids, as they are in the end, those of the path only."""
    head, *made = forked(PI, LABELLED, "c")
    assert head == header(id=fresh().id, timestamp=NOW, parentSession="/sessions/old.jsonl")
    assert [(one["id"], one["parentId"]) for one in made[:3]] == [
        ("a", None),
        ("b", "a"),
        ("c", "b"),
    ]
    assert [(one["targetId"], one["label"]) for one in made[3:]] == [
        ("a", "third"),
        ("b", "second"),
    ]
    assert [one["parentId"] for one in made[3:]] == ["c", made[3]["id"]]
    assert {one["id"] for one in made[3:]} == {"00000001", "00000002"}
    assert PI.file_name(fresh()) == f"2026-03-18T10-30-00-123Z_{fresh().id}.jsonl"
    assert forked(PI, [head, *made])[1:4] == made[:3]


@pytest.mark.parametrize(
    ("first", "kept"), [("l1", "c"), ("l2", "c"), ("l3", "m"), ("c", "c"), ("m", "m"), ("x", "x")]
)
def test_a_pi_fork_keeps_what_a_compaction_keeps(first: str, kept: str) -> None:
    """What it keeps may begin with a label: then with what follows on that."""
    entries = [
        header(),
        entry("a", None),
        entry("l1", "a", "label", targetId="a", label="one"),
        entry("l2", "l1", "label", targetId="a", label="two"),
        entry("c", "l2"),
        entry("l3", "c", "label", targetId="c", label="three"),
        entry("m", "l3", "compaction", firstKeptEntryId=first),
        entry("d", "m"),
    ]
    made = {one["id"]: one for one in forked(PI, entries)}
    assert made["m"] == entry("m", "c", "compaction", firstKeptEntryId=kept)


def test_a_pi_fork_of_the_first_version_stays_one() -> None:
    """Entries without ids are not changed, as Pi gives them ids when it opens the file."""
    entries: list[Entry] = [header(), {"type": "message"}, {"type": "compaction"}]
    del entries[0]["version"]
    head, *made = forked(PI, entries)
    assert "version" not in head
    assert made == entries[1:]


def test_a_pi_fork_may_move_and_get_a_name() -> None:
    """The folder is in the header, the name is an entry at the end; a header is made if need be."""
    head, *_, last = forked(PI, LABELLED, "a", cwd="/b", title="Mine")
    assert head["cwd"] == "/b"
    assert (last["type"], last["name"]) == ("session_info", "Mine")
    (made,) = PI.fork([], [], fresh())
    assert (made["type"], made["version"], made["cwd"]) == ("session", 3, "")


# --- Oh My Pi -------------------------------------------------------------------------------------


def test_an_oh_my_pi_fork_keeps_its_entries() -> None:
    """Only the title's line and the header are new; the source is named by its id."""
    entries = [slot("Title", NOW, "user"), header(titleSource="user", previousSessionFiles=["/x"])]
    entries += [entry("a", None), entry("l", "a", "label"), entry("b", "l"), entry("c", "a")]
    first, head, *made = forked(OMP, entries, "b", title="Other")
    assert first == slot("Other", NOW, "user")
    assert head == header(
        id=fresh().id, timestamp=NOW, titleSource="user", title="Other", parentSession="old"
    )
    assert made == entries[2:5]
    assert forked(OMP, entries[1:], "b")[0]["type"] == "session"


def test_an_oh_my_pi_fork_has_the_labels_of_other_branches() -> None:
    """Those of its entries, as they are in the end, follow on the path; others do not come along."""
    entries = [
        header(),
        entry("a", None),
        entry("l1", "a", "label", targetId="a", label="first"),
        entry("b", "l1"),
        entry("l2", "b", "label", targetId="b", label="same"),
        entry("c", "l2"),
        entry("d", "a"),
        entry("l3", "d", "label", targetId="a"),
        entry("l4", "l3", "label", targetId="c", label="new"),
        entry("l5", "l4", "label", targetId="d", label="not here"),
        entry("l6", "l5", "label", targetId="b", label="other"),
        entry("l7", "l6", "label", targetId="b", label="same"),
    ]
    _, *made = forked(OMP, entries, "c")
    assert made[:5] == entries[1:6]
    assert [(one["targetId"], one.get("label")) for one in made[5:]] == [("a", None), ("c", "new")]
    assert [one["parentId"] for one in made[5:]] == ["c", made[5]["id"]]
    assert made[5]["id"] not in {one["id"] for one in entries}


@example("\ud800" * 60, None)
@example("é€😀" * 60, "auto")
@given(st.text(st.characters(exclude_categories=()), max_size=300), st.sampled_from([None, "auto"]))
def test_the_line_of_a_title_has_its_size(title: str, source: str | None) -> None:
    """256 bytes with the newline, cut between characters, and no shorter than need be."""
    made = slot(title, NOW, source)
    assert len(_bytes(made)) == SLOT_BYTES
    assert title.startswith(made["title"])
    if made["title"] != title:
        longer = made | {"title": title[: len(made["title"]) + 1], "pad": ""}
        assert len(_bytes(longer)) > SLOT_BYTES


def test_the_line_of_a_title_ends_in_no_loop() -> None:
    """Where nothing fits, the title is empty."""
    assert slot("title", "x" * 300, None)["title"] == ""


def _bytes(one: Entry) -> bytes:
    return (spell(one) + "\n").encode("utf-8", "backslashreplace")


# --- others ---------------------------------------------------------------------------------------


def test_a_fork_of_another_file_is_its_path() -> None:
    """Nothing is known of its tool, so nothing is changed."""
    entries = [{"a": 1}, {"b": 2}]
    assert list(Plain().fork(entries, [], fresh())) == entries
    assert Plain().file_name(fresh()) == f"{fresh().id}.jsonl"
