"""The tree of a session file: places, branches, and where the session goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from eventq.sessions import tree
from eventq.sessions.claude import Claude
from eventq.sessions.links import (
    CALLS,
    ENDS,
    FOLLOWS,
    GOES,
    MESSAGE,
    META,
    RESULT,
    Link,
    Spawn,
    message_text,
)
from eventq.sessions.tree import ABSENT, ROOT, Spawns, build, path
from tests.sessions.support import answers, call, entry, grown, header, line, result, says, shape

# --- branches -------------------------------------------------------------------------------------


def test_a_rewind_is_a_branch() -> None:
    """Two prompts under one answer: two tips, the one further down is active."""
    entries = [
        says("u1", None), answers("a1", "u1"), says("u2", "a1"), answers("a2", "u2"),
        says("u3", "a1"), answers("a3", "u3"),
    ]  # fmt: skip
    assert shape(entries) == (["u1 a1 u2 a2", "u1 a1 u3 a3"], "u1 a1 u3 a3")


def test_a_boundary_begins_a_new_root() -> None:
    """A boundary of a compaction is a root, also when its logical parent is a later line."""
    boundary = line("system", "cb", None, subtype="compact_boundary", logicalParentUuid="a3")
    entries = [
        says("u1", None), answers("a1", "u1"), says("u2", "a1"), says("u3", "a1"), boundary,
        says("cs", "cb", isCompactSummary=True), answers("a3", "cs"), says("u4", "a3"),
    ]  # fmt: skip
    assert shape(entries) == (["u1 a1 u2", "u1 a1 u3", "cb cs a3 u4"], "cb cs a3 u4")


def test_what_stands_beside_the_conversation_is_no_branch() -> None:
    """Progress, attachments and system lines make no tip but for the one where it goes on."""
    entries = [
        says("u1", None), line("attachment", "x1", "u1"), answers("a1", "u1", call("t1")),
        line("progress", "x2", "a1"), result("r1", "a1", "t1"), answers("a2", "r1"),
        line("system", "x3", "a2"), line("attachment", "x4", "a1"),
    ]  # fmt: skip
    assert shape(entries) == (["u1 a1 r1 a2", "u1 a1 r1 x4"], "u1 a1 r1 x4")
    assert shape(entries[:-1]) == (["u1 a1 r1 a2 x3"], "u1 a1 r1 a2 x3")
    assert shape(entries[:-2]) == (["u1 a1 r1 a2"], "u1 a1 r1 a2")


def test_two_prompts_under_a_system_line_are_a_branch() -> None:
    """A line that is no message may be where a branch begins."""
    entries = [says("u1", None), line("system", "x", "u1"), says("u2", "x"), says("u3", "x")]
    assert shape(entries) == (["u1 x u2", "u1 x u3"], "u1 x u3")


def test_a_line_by_the_tool_is_no_branch() -> None:
    """An end that is meta or of a team mate is no tip, unless the session goes on there."""
    for mark in ({"isMeta": True}, {"teamName": "x"}):
        entries = [says("u1", None), says("u2", "u1"), says("u3", "u1", **mark)]
        assert shape(entries) == (["u1 u2", "u1 u3"], "u1 u3")
        assert shape([*entries, says("u4", "u2")]) == (["u1 u2 u4"], "u1 u2 u4")


def test_what_hangs_below_a_line_repeated_at_the_end_is_a_branch() -> None:
    """The session goes on at the line, and its head is above another one's."""
    entries = [says("u1", None), says("u2", "u1"), says("u1", None)]
    assert shape(entries) == (["u1 u2", "u1"], "u1")
    assert shape([*entries, line("system", "x", "u1")]) == (["u1 u2", "u1 x"], "u1 x")


def test_a_file_without_messages_goes_on_at_its_last_entry() -> None:
    """Without any node there is no leaf; with some, the last one is it."""
    assert grown([]) == ([], [], None, [], {}, [])
    assert shape([line("system", "x1", None), line("system", "x2", "x1")]) == (["x1 x2"], "x1 x2")


# --- parallel calls -------------------------------------------------------------------------------

A1 = answers("a1", "u", call("t1"), response="m")
A2 = answers("a2", "a1", call("t2"), response="m")
R1, R2 = result("r1", "a1", "t1"), result("r2", "a2", "t2")


@pytest.mark.parametrize("last", ["r1", "r2"])
@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([A1, A2, R1, R2], "u a1 a2 r1 r2"),
        ([A1, A2, R2, R1], "u a1 a2 r2 r1"),
        ([A1, R1, A2, R2], "u a1 r1 a2 r2"),
    ],
)
def test_parallel_calls_are_one_conversation(
    entries: list[dict[str, Any]], expected: str, last: str
) -> None:
    """All results are on the path, in the order of the file, whichever the next line hangs from."""
    whole = [says("u", None), *entries, line("attachment", "x", "r1"), answers("b", last)]
    assert shape(whole[:-2]) == ([expected], expected)
    assert shape(whole[:-1]) == ([f"{expected} x"], f"{expected} x")
    assert shape(whole) == ([f"{expected} b"], f"{expected} b")


def test_a_hook_between_a_call_and_its_result_is_on_the_path() -> None:
    """What a result hangs from belongs to the response, also if it is no message."""
    hook, r2 = line("progress", "x", "a2"), result("r2", "x", "t2")
    entries = [says("u", None), A1, A2, hook, R1, r2, answers("b", "r1")]
    assert shape(entries) == (["u a1 a2 x r1 r2 b"], "u a1 a2 x r1 r2 b")


def test_a_rewind_to_parallel_calls_is_a_branch() -> None:
    """Two prompts below the results of one response are two branches with all results."""
    entries = [says("u", None), A1, A2, R1, R2, says("v", "r1"), says("w", "r2")]
    assert shape(entries) == (["u a1 a2 r1 r2 v", "u a1 a2 r1 r2 w"], "u a1 a2 r1 r2 w")


def test_the_same_response_twice_is_not_one() -> None:
    """A response that was copied to another branch stays there."""
    other = answers("c1", "v", call("t1"), response="m")
    entries = [says("u", None), A1, R1, says("v", "u"), other, result("s1", "c1", "t1")]
    assert shape(entries) == (["u a1 r1", "u v c1 s1"], "u v c1 s1")


def test_a_sidechain_under_a_call_is_no_part_of_the_response() -> None:
    """It hangs where it says, and results come below the call."""
    side = Link("s", "a", MESSAGE | RESULT, None, "x")
    called, answered = Link("a", None, MESSAGE | CALLS, "m"), Link("r", "a", MESSAGE | RESULT)
    assert places(called, side, answered) == [ROOT, 0, 0]
    assert places(called, answered, side) == [ROOT, 0, 0]


@st.composite
def conversations(draw: st.DrawFn) -> list[Link]:
    """Return a conversation of responses with parallel calls, as the tool writes it."""
    links = [Link("u", None, MESSAGE)]
    last = "u"
    for turn in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 4))
        open_calls: list[str] = []
        answered: list[str] = []
        made = 0
        while made < count or open_calls:
            if made < count and (not open_calls or draw(st.booleans())):
                own = f"a{turn}.{made}"
                links.append(Link(own, last, MESSAGE | CALLS, f"m{turn}"))
                open_calls.append(own)
                last, made = own, made + 1
            else:
                above = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
                links.append(Link(f"r{above}", above, MESSAGE | RESULT))
                answered.append(f"r{above}")
                if draw(st.booleans()):
                    links.append(Link(f"x{above}", f"r{above}"))
        last = draw(st.sampled_from(answered))
    return links


@given(conversations())
def test_every_conversation_is_one_path(links: list[Link]) -> None:
    """All messages are on the active path in the order of the file, and nothing is a branch."""
    found = build(links, last_is_leaf=False)
    messages = [n for n, link in enumerate(links) if link.kind & MESSAGE]
    assert found.tips == [messages[-1]]
    assert path(found.places, messages[-1]) == messages


@given(conversations(), st.data())
def test_places_outlive_an_append(links: list[Link], data: st.DataObject) -> None:
    """What was placed stays there when the file grows."""
    half = data.draw(st.integers(0, len(links)))
    assert (
        build(links[:half], last_is_leaf=False).places
        == (build(links, last_is_leaf=False).places[:half])
    )


# --- bad links ------------------------------------------------------------------------------------


def places(*links: Link | None) -> list[int]:
    """Return the places of some links."""
    return build(links, last_is_leaf=True).places


def test_links_are_resolved_over_the_whole_file() -> None:
    """Missing parents and own ones make roots, later ones are found, a cycle is cut at its first."""
    assert places(Link("a", "none"), Link("b", "b"), Link("c", "d"), Link("d", None)) == [
        ROOT, ROOT, 3, ROOT,
    ]  # fmt: skip
    assert places(Link("z", "c"), Link("a", "b"), Link("b", "c"), Link("c", "a")) == [3, ROOT, 3, 1]


def test_of_equal_ids_the_last_is_the_node() -> None:
    """Children of the id hang under its last line; an earlier one has no place."""
    twice = (Link("a", None), Link("b", "a"), Link("a", None), Link("c", "b"))
    assert places(*twice) == [ABSENT, 2, ROOT, 1]
    moved = (Link("a", None), Link("b", "a"), Link("c", "b"), Link("c", "a"))
    assert places(*moved) == [ROOT, 0, ABSENT, 0]


def test_entries_without_links_have_no_place() -> None:
    """Titles, snapshots and unknown lines change no branch."""
    lines: list[dict[str, Any]] = [
        {"type": "last-prompt", "lastPrompt": "u2", "sessionId": "s"},
        {"type": "file-history-snapshot", "messageId": "u2", "snapshot": {"a": 1}},
        {"type": "ai-title", "aiTitle": "t", "sessionId": "s", "uuid": "u2"},
        {"type": "what-comes-next"},
    ]
    entries = [lines[0], says("u1", None), *lines, says("u2", "u1"), *lines]
    assert shape(entries) == (["u1 u2"], "u1 u2")
    assert [n for n, place in enumerate(grown(entries).places) if place != ABSENT] == [1, 6]


KINDS = st.integers(0, 31)
IDS = st.sampled_from("abcdefgh")
PARENTS = st.sampled_from([*"abcdefghx", None])
LINKS = st.builds(
    Link,
    st.one_of(IDS, st.none()),
    PARENTS,
    KINDS,
    st.sampled_from([None, "m", "n"]),
    st.sampled_from([None, None, None, "", "s", "t"]),
)
FILES = st.lists(st.one_of(LINKS, st.none()), max_size=16)


@given(FILES, st.booleans())
def test_any_links_make_a_forest(links: list[Link | None], last: bool) -> None:
    """Each node but repeated ones has a place, no way leads in a circle, no message is lost."""
    found = build(links, last_is_leaf=last)
    ids = [link and link.id for link in links]
    for n, link in enumerate(links):
        gone = link is None or (link.id is not None and link.id in ids[n + 1 :])
        assert (found.places[n] == ABSENT) == gone
        assert gone or len(path(found.places, n)) <= len(links)
    own = [n for n, place in enumerate(found.places) if place != ABSENT and found.names[n] is None]
    assert (found.active is None) == (not own)
    assert set(found.tips) <= set(own)
    assert found.active is None or found.active in found.tips
    reached = {n for tip in found.tips for n in path(found.places, tip)}
    for n in own:
        link = links[n]
        assert n in reached or not link or link.kind & META or not link.kind & MESSAGE


@given(FILES)
def test_places_are_those_of_a_simple_model(links: list[Link | None]) -> None:
    """Without responses, an entry hangs under the last line of its parent's id."""
    links = [link and link._replace(response=None, agent=None) for link in links]
    known: dict[str | None, int] = {link.id: n for n, link in enumerate(links) if link and link.id}
    model = {}
    before = ROOT
    for n, link in enumerate(links):
        if link and known.get(link.id, n) == n:
            model[n] = before if link.kind & FOLLOWS else known.get(link.parent, ROOT)
            before = n
    for n in model:
        seen = [n]
        while model[seen[-1]] not in (ROOT, *seen):
            seen.append(model[seen[-1]])
        if model[seen[-1]] == n and n == min(seen):
            model[n] = ROOT
    assert build(links, last_is_leaf=True).places == [
        model.get(n, ABSENT) for n in range(len(links))
    ]


@given(
    st.lists(
        st.builds(Link, IDS, PARENTS, st.just(0), st.none(), st.none()),
        unique_by=lambda link: link.id,
    ),
    st.randoms(),
)
def test_the_order_of_lines_does_not_matter_to_links(links: list[Link], random: Any) -> None:
    """The same entry hangs under the same one, in whatever order they come, but for cycles."""
    tail = build(links, last_is_leaf=True).places
    mixed = random.sample(links, len(links))
    other = build(mixed, last_is_leaf=True).places

    def parents(some: list[Link], found: list[int]) -> dict[str | None, str | None]:
        return {one.id: some[n].id for one, n in zip(some, found, strict=True) if n != ROOT}

    first, second = parents(links, tail), parents(mixed, other)
    linked = {link.id: link.parent for link in links}
    for own in first.keys() ^ second.keys():  # only where a cycle was cut
        above = linked[own]
        while above != own:
            assert above in linked
            above = linked[above]
    assert all(second[own] == above for own, above in first.items() if own in second)


@pytest.mark.parametrize("step", [-1, 1])
def test_a_chain_may_be_long(step: int) -> None:
    """250,000 entries below each other, in either order, need no recursion."""
    links = [Link(f"{n}", f"{n + step}", MESSAGE, f"{n // 9}") for n in range(250_000)]
    found = build(links, last_is_leaf=False)
    assert len(path(found.places, 0 if step == 1 else 249_999)) == 250_000
    assert len(found.tips) == (2 if step == 1 else 1)  # the last entry may be above all others


# --- growth ---------------------------------------------------------------------------------------


@st.composite
def growing(draw: st.DrawFn) -> list[Link | None]:
    """Return links as files have them: mostly below one of the last, rarely anywhere or again."""
    links: list[Link | None] = []
    for n in range(draw(st.integers(1, 20))):
        near = [f"{at}" for at in range(max(0, n - 3), n)]
        far = [f"{at}" for at in range(22)]
        parent = draw(st.sampled_from([*near * 9, *far, None]))
        own = draw(st.sampled_from([f"{n}"] * 40 + far))
        kind = draw(
            st.sampled_from([MESSAGE] * 4 + [0, META, ENDS, MESSAGE | META, MESSAGE | FOLLOWS])
        )
        if draw(st.booleans()):
            kind |= draw(st.sampled_from([0, CALLS, RESULT]))
        response = draw(st.sampled_from([None, None, None, "m", f"m{n // 4}"]))
        agent = draw(st.sampled_from([None] * 60 + ["s"]))
        one = Link(own, parent, kind, response if kind & MESSAGE else None, agent)
        said = Link(None, draw(st.sampled_from([*near * 9, *far])), GOES)
        boundary = Link(own, None, GOES)
        links.append(draw(st.sampled_from([one] * 20 + [None, said, said, boundary])))
    return links


@given(st.one_of(growing(), growing(), FILES, conversations()), st.booleans(), st.data())
def test_the_end_of_a_file_is_that_part_of_its_tree(
    links: list[Link | None], last: bool, data: st.DataObject
) -> None:
    """From a settled node on, the tree is that of the whole file, when the file has grown too."""
    if last:  # no tool has both
        links = [link and link._replace(kind=link.kind & ~META) for link in links]
    half = data.draw(st.integers(0, len(links)))
    before = build(links[:half], last_is_leaf=last)
    first = tree.settled(links[:half], before)
    if first is None:
        return
    found = tree.ending(links[first:], last_is_leaf=last)
    known = {link.id for link in links[:first] if link} | tree.unknown(links[:half], before)
    event("settled")
    if found is None or not known.isdisjoint(found[1]):
        return
    end, whole = found[0], build(links, last_is_leaf=last)
    event("grown" if half < len(links) else "same")

    def shifted(places: list[int]) -> list[int]:
        return [n + first if n >= 0 else n for n in places]

    assert whole.places[: first + 1] == before.places[: first + 1]
    assert whole.places[first + 1 :] == shifted(end.places[1:])
    assert whole.active == first + (end.active or 0)
    assert whole.agents == end.agents == {}
    kept = [tip for tip in before.tips if tip < first]
    assert whole.tips == kept + shifted(end.tips)


def test_a_settled_node_is_near_the_end() -> None:
    """In an ordinary session that is the last prompt, in a chain of lines the last but one."""
    entries = [
        says("u1", None), answers("a1", "u1"), says("u2", "a1"), answers("a2", "u2", call("t1")),
        result("r1", "a2", "t1"), answers("a3", "r1"),
    ]  # fmt: skip
    reader = Claude()
    links = [reader.link(one) for one in entries]
    assert tree.settled(links, build(links, last_is_leaf=False)) == 2
    chain = [Link(None, None, MESSAGE | FOLLOWS)] * 5
    assert tree.settled(chain, build(chain, last_is_leaf=True)) == 3


# --- subagents ------------------------------------------------------------------------------------


def test_a_sidechain_is_no_branch_of_its_parent() -> None:
    """Its lines are an agent of their own, never the leaf, and start at the call with their prompt."""
    entries = [
        says("u", None), answers("a", "u", call("t1", "Task", prompt="go")), says("n", "a"),
        says("s1", None, "go", isSidechain=True), answers("s2", "s1", isSidechain=True),
        line("attachment", "x", "s2", isSidechain=True),
    ]  # fmt: skip
    found = grown(entries)
    assert shape(entries) == (["u a n"], "u a n")
    assert found.agents == {"s1": (3, 4)}
    assert begun(entries) == {"s1": 1}


def test_equal_prompts_start_one_agent_each() -> None:
    """Two calls with one prompt start two agents, in the order of the file."""
    calls = [answers(f"a{n}", "u", call(f"t{n}", "Agent", prompt="go")) for n in (1, 2)]
    sides = [says(f"s{n}", None, "go", isSidechain=True) for n in (1, 2)]
    assert begun([says("u", None), *calls, *sides]) == {"s1": 1, "s2": 2}


def test_an_agent_is_found_by_its_id() -> None:
    """A result, or a line of progress, names the agent that its call has started."""
    named: dict[str, Any] = {"agentId": "x7", "isSidechain": True}
    later = result("r", "a", "t1", toolUseResult={"agentId": "x7"})
    progress = line("progress", "p", "a", parentToolUseID="t1", data={"agentId": "x7"})
    for end in (later, progress):
        entries = [
            says("u", None), answers("a", "u", call("t1", "Agent", prompt="go")),
            answers("b", "a"), says("s1", None, "other", **named), says("s2", "none", **named), end,
        ]  # fmt: skip
        assert begun(entries) == {"x7": 1}
        assert grown(entries).agents == {"x7": (3, 4)}


def test_an_agent_starts_at_the_message_before_it_or_above_it() -> None:
    """Where no call is known, the last message before counts, or the line that it hangs under."""
    entries = [says("u", None), answers("a", "u"), says("s", None, isSidechain=True)]
    assert begun(entries) == {"s": 1}
    assert begun([entries[2], *entries[:2]]) == {"s": None}
    assert begun([*entries[:2], says("s", "u", isSidechain=True)]) == {"s": 0}


def test_the_entries_of_a_subagents_own_file_are_its_conversation() -> None:
    """A file of sidechain lines only is read as the session that it is."""
    named: dict[str, Any] = {"agentId": "x7", "isSidechain": True}
    entries = [says("u", None, **named), answers("a", "u", **named)]
    assert shape(entries) == (["u a"], "u a")
    assert grown(entries).agents == {}


def test_a_start_is_found_by_its_call() -> None:
    """A sidecar names the call; a run names all agents in it."""
    spawns = Spawns([(3, Spawn("t1", None, "go")), (5, Spawn("t1", "run", "go"))])
    assert (spawns.of(call="t1"), spawns.of(agent="run"), spawns.of(agent="x")) == (3, 3, None)
    assert (spawns.of(prompt="go"), spawns.of(prompt="go"), spawns.of()) == (3, None, None)


def begun(entries: list[dict[str, Any]]) -> dict[str, int | None]:
    """Return where the subagents of a file start."""
    reader = Claude()
    links = [reader.link(one) for one in entries]
    found = build(links, last_is_leaf=False)
    spawns = Spawns((n, spawn) for n, one in enumerate(entries) for spawn in reader.spawns(one))
    return tree.starts(links, found, spawns, lambda n: message_text(entries[n]))


# --- Pi -------------------------------------------------------------------------------------------


def test_pi_goes_on_at_its_last_entry() -> None:
    """Also at a label or a stale exit; a branch without a message is none."""
    chain = [header(), entry("a", None), entry("b", "a"), entry("c", "b")]
    assert shape([*chain, entry("d", "a")]) == (["a b c", "a d"], "a d")
    assert shape([*chain, entry("l", "a", "label")]) == (["a b c", "a l"], "a l")
    assert shape([*chain, entry("l", "c", "label")]) == (["a b c l"], "a b c l")
    moved = [*chain, entry("l", "a", "label"), entry("d", "c")]
    assert shape(moved) == (["a b c d"], "a b c d")
    assert shape([*chain, entry("d", None)]) == (["a b c", "d"], "d")


def test_pi_moves_its_leaf_with_an_entry() -> None:
    """The session goes on at the target; where that has a next entry, the mover is no branch."""
    chain = [header(), entry("a", None), entry("b", "a"), entry("c", "b")]
    moved = [*chain, entry("m", "c", "leaf", targetId="a")]
    assert shape(moved) == (["a b c", "a m"], "a m")
    assert shape([*moved, entry("d", "a")]) == (["a b c", "a d"], "a d")
    assert shape([*chain, entry("m", "c", "leaf", targetId=None)]) == (["a b c", "m"], "m")


def test_pi_has_had_no_ids() -> None:
    """In the first version each entry hangs below the one before."""
    entries = [
        header(version=1),
        {"type": "message"},
        {"type": "model_change"},
        {"type": "message"},
    ]
    assert grown(entries).places == [ABSENT, ROOT, 1, 2]


def test_a_doubled_beginning_is_one_tree() -> None:
    """The same entries twice make one chain of the later ones."""
    chain = [header(), entry("a", None), entry("b", "a")]
    assert shape([*chain, *chain, entry("c", "b")]) == (["a b c"], "a b c")
