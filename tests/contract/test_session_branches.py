"""Session files as they branch: turns under their parents, tips as contexts, generations."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import ConflictError, InputError, LogicError, UnknownContextError
from eventq.sessions import imports, tree
from eventq.sessions.omp import slot
from eventq.system.zstd import ZstdCompressor
from tests.engines import rows_in
from tests.servers import ENGINES
from tests.sessions.support import (
    SESSION,
    answers,
    call,
    entry,
    header,
    result,
    says,
)
from tests.sessions.test_leaf import LONG, ON, SUMMARY, keeps

if TYPE_CHECKING:
    from pathlib import Path

    from eventq.records.session import SessionImported

Entry = dict[str, Any]

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]


def spell(*entries: Any) -> bytes:
    """Return a session file."""
    return b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in entries
    )


def load(
    thread: eventq.Thread, *entries: Any, name: str = "s", folder: str = "files"
) -> SessionImported:
    """Import a file of these entries."""
    folder = f"{thread.path}.{folder}"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "session.jsonl")
    with open(path, "wb") as file:
        file.write(spell(*entries))
    return thread.sessions.import_file(path, name=name)


def export(thread: eventq.Thread, name: str = "s", generation: int | None = None) -> bytes:
    """Return a session's file."""
    return b"".join(thread.sessions.lines(name, generation=generation))


def shown(thread: eventq.Thread) -> dict[str, str]:
    """Return the ids of the entries of each context."""
    return {
        one.name or "": " ".join(
            str(found.get("uuid") or found.get("id") or found.get("n"))
            for turn in thread.contexts.get(one.context_id).replay()
            for found in [json.loads(turn.payload or b"{}")]
        )
        for one in thread.contexts
    }  # fmt: skip


def turns(thread: eventq.Thread) -> int:
    """Return how many turns there are."""
    return rows_in(thread.database, "turns")


# --- branches -------------------------------------------------------------------------------------

REWOUND = [
    says("u1", None), answers("a1", "u1"), says("u2-is-long-enough", "a1"), answers("a2-is-long-too", "u2-is-long-enough"),
    says("u3", "a1"), answers("a3", "u3"),
]  # fmt: skip


def test_a_rewind_is_a_context_of_its_own(thread: eventq.Thread) -> None:
    """The active branch has the session's name, another one that of its last entry too."""
    made = load(thread, *REWOUND)
    assert shown(thread) == {
        "s": "u1 a1 u3 a3", "s/a2-is-lo": "u1 a1 u2-is-long-enough a2-is-long-too",
    }  # fmt: skip
    assert thread.contexts.get("s").id == made.context_id
    assert turns(thread) == 6
    for name in shown(thread):
        assert export(thread, name) == spell(*REWOUND)


def test_a_head_follows_the_leaf(thread: eventq.Thread) -> None:
    """When the session goes on elsewhere, the branch it was on becomes a context; and back."""
    load(thread, *REWOUND[:4])
    assert shown(thread) == {"s": "u1 a1 u2-is-long-enough a2-is-long-too"}
    load(thread, *REWOUND)
    assert list(shown(thread)) == ["s", "s/a2-is-lo"]
    load(thread, *REWOUND, says("u4", "a2-is-long-too"))
    assert shown(thread) == {
        "s": "u1 a1 u2-is-long-enough a2-is-long-too u4", "s/a3": "u1 a1 u3 a3",
    }  # fmt: skip
    assert turns(thread) == 7


def test_a_leaf_entry_moves_the_head(thread: eventq.Thread) -> None:
    """The last entry is the leaf, and one of type `leaf` names another."""
    chain = [header(), entry("a", None), entry("b", "a"), entry("c", "b")]
    load(thread, *chain)
    leaf = entry("l", "c", "leaf", targetId="a")
    load(thread, *chain, leaf)
    assert shown(thread) == {"s": "a l", "s/c": "a b c"}
    load(thread, *chain, leaf, entry("d", "l"))
    assert shown(thread) == {"s": "a l d", "s/c": "a b c"}


def test_parallel_calls_are_one_conversation(thread: eventq.Thread) -> None:
    """Results in either order make no context."""
    for n, order in enumerate((("r1", "r2"), ("r2", "r1"))):
        results = {"r1": result("r1", "a1", "t1"), "r2": result("r2", "a2", "t2")}
        load(
            thread, says("u", None), answers("a1", "u", call("t1"), response="m"),
            answers("a2", "a1", call("t2"), response="m"), *map(results.get, order),
            answers("b", order[1]), name=f"s{n}",
        )  # fmt: skip
    assert shown(thread) == {"s0": "u a1 a2 r1 r2 b", "s1": "u a1 a2 r2 r1 b"}


def test_bad_links_lose_nothing(thread: eventq.Thread) -> None:
    """Orphans, entries that are their own parent, and the first of a cycle are roots."""
    entries = [
        header(), entry("a", "gone"), entry("b", "b"), entry("c", "d"), entry("d", "c"), entry("e", "f"),
        entry("f", "a"), entry("g", None),
    ]  # fmt: skip
    made = load(thread, *entries)
    assert (made.added, made.raw) == (8, 0)
    assert made.notes == ("lines 2, 3 and 4 begin branches: their parents are missing",)
    assert shown(thread) == {"s": "g", "s/b": "b", "s/d": "c d", "s/e": "a f e"}
    assert export(thread) == spell(*entries)
    assert turns(thread) == 7


def test_a_sidechain_above_the_session(thread: eventq.Thread) -> None:
    """A subagent never hangs under what hangs under it."""
    load(thread, says("u1", "s1"), says("s1", None, isSidechain=True), answers("a1", "u1"))
    assert shown(thread) == {"s": "s1 u1 a1", "s/agent-s1": "s1"}


def test_a_parent_that_comes_late(thread: eventq.Thread) -> None:
    """What waited for it is stored again under it, and the heads are there."""
    orphans = [header(), entry("b", "a"), entry("c", "b"), entry("x", "b")]
    load(thread, *orphans)
    assert shown(thread) == {"s": "b x", "s/c": "b c"}
    load(thread, *orphans, entry("a", None))
    assert shown(thread) == {"s": "a", "s/c": "a b c", "s/x": "a b x"}
    assert export(thread) == spell(*orphans, entry("a", None))
    assert thread.check() == []


@pytest.mark.parametrize("more", [{}, {"gitBranch": "other"}], ids=["equal", "changed"])
def test_an_entry_that_is_repeated_is_one_node(thread: eventq.Thread, more: Entry) -> None:
    """The last line of an id counts, its children are kept, both lines come out."""
    again = [says("u1", None), answers("a1", "u1"), answers("a2", "a1")]
    load(thread, *again)
    made = load(thread, *again, answers("a1", "u1", **more))
    assert made.notes == (
        "1 line repeats the id of an earlier entry: the last entry of an id counts",
    )
    assert shown(thread) == {"s": "u1 a1", "s/a2": "u1 a1 a2"}
    assert export(thread) == spell(*again, answers("a1", "u1", **more))
    assert turns(thread) == (5 if more else 3)
    assert load(thread, *again, answers("a1", "u1", **more)).notes == ()


def test_an_entry_that_is_repeated_elsewhere_moves(thread: eventq.Thread) -> None:
    """With another parent it hangs there, and its children with it."""
    load(thread, says("u1", None), answers("a1", "u1"), says("u2", "a1"), answers("a2", "u2"))
    load(
        thread, says("u1", None), answers("a1", "u1"), says("u2", "a1"), answers("a2", "u2"),
        says("u2", "u1"),
    )  # fmt: skip
    assert shown(thread) == {"s": "u1 u2", "s/a1": "u1 a1", "s/a2": "u1 u2 a2"}


def test_a_head_goes_where_a_line_says(thread: eventq.Thread) -> None:
    """Also back to an entry above it, which was settled, and from there on again."""
    told = {"type": "last-prompt", "leafUuid": "a1", "sessionId": "s"}
    on = (says("u4", "a3"), answers("a4", "u4"))
    load(thread, *REWOUND, *on)
    load(thread, *REWOUND, *on, told | {"leafUuid": "a4"})
    assert shown(thread)["s"] == "u1 a1 u3 a3 u4 a4"
    load(thread, *REWOUND, *on, told | {"leafUuid": "a2-is-long-too"})
    assert shown(thread)["s"] == "u1 a1 u2-is-long-enough a2-is-long-too"
    again = (told, answers("a1", "u1"))
    load(thread, *REWOUND, *on, *again)
    assert shown(thread) == {
        "s": "u1 a1", "s/a2-is-lo": "u1 a1 u2-is-long-enough a2-is-long-too", "s/a4": "u1 a1 u3 a3 u4 a4",
    }  # fmt: skip
    load(thread, *REWOUND, *on, *again, says("u5", "a1"))
    assert shown(thread)["s"] == "u1 a1 u5"


def test_a_line_far_above_says_where_a_session_goes_on(thread: eventq.Thread) -> None:
    """It does so as soon as an entry comes that does not hang below what the line names."""
    talk = [
        one for n in range(2, 9) for one in (says(f"u{n}", f"a{n - 1}"), answers(f"a{n}", f"u{n}"))
    ]
    told = {"type": "last-prompt", "leafUuid": "a1", "sessionId": "s"}
    begin = (says("u1", None), answers("a1", "u1"), told, *talk)
    load(thread, *begin)
    load(thread, *begin, says("u9", "a8"))
    assert shown(thread)["s"].endswith("a8 u9")
    load(thread, *begin, says("u9", "a8"), says("r", None))
    assert shown(thread)["s"] == "u1 a1"


def test_what_a_compaction_keeps_moves(thread: eventq.Thread, tmp_path: Path) -> None:
    """A file that grew is like one that came whole, and a fork has all that main has."""
    entries = [*LONG, keeps("cs", "u3", "a3"), SUMMARY, *ON, says("u5", "a4"), answers("a5", "u5")]
    for end in range(6, len(entries) + 1):
        load(thread, *entries[:end])
    assert shown(thread) == {"s": "cb cs u3 a3 u4 a4 u5 a5", "s/a2": "u1 a1 u2 a2"}
    made = thread.sessions.fork("s", str(tmp_path))
    load(thread, *entries, name="w")
    assert [*shown(thread).values()] == [*shown(thread).values()][:2] * 2
    with open(made.output, "rb") as file:
        load(thread, *file.read().splitlines(), name="f")
    fork = [json.loads(turn.payload or b"") for turn in thread.contexts.get("f").replay()]
    assert [one["forkedFrom"]["messageUuid"] for one in fork] == shown(thread)["s"].split()


def test_lines_that_are_no_nodes(thread: eventq.Thread) -> None:
    """Titles, snapshots and what is unknown change no branch, and keep their places."""
    entries = [
        {"type": "last-prompt", "sessionId": SESSION, "leafUuid": "a1"}, says("u1", None),
        {"type": "custom-title", "customTitle": "t", "sessionId": SESSION, "uuid": "x"}, answers("a1", "u1"),
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}}, {"type": "of-tomorrow", "version": 9},
    ]  # fmt: skip
    made = load(thread, *entries)
    assert (made.added, made.raw) == (6, 0)
    assert shown(thread) == {"s": "u1 a1"}
    assert export(thread) == spell(*entries)


def test_a_sidechain_is_a_context_under_its_call(thread: eventq.Thread) -> None:
    """A subagent inside the file begins at the entry that started it, and is never the leaf."""
    entries = [
        says("u", None), answers("a", "u", call("t1", "Task", prompt="go")), says("n", "a"),
        says("s1", None, "go", isSidechain=True, agentId="x1"),
        answers("s2", "s1", isSidechain=True, agentId="x1"),
    ]  # fmt: skip
    load(thread, *entries)
    assert shown(thread) == {"s": "u a n", "s/agent-x1": "u a s1 s2"}
    assert export(thread, "s/agent-x1") == spell(*entries)


def test_ends_whose_ids_begin_alike(thread: eventq.Thread) -> None:
    """The first has the short name, in a file that grows too."""
    entries = [
        header(), entry("a", None), entry("12345678-1", "a"), entry("12345678-2", "a"),
        entry("12345678-3", "a"),
    ]  # fmt: skip
    load(thread, *entries)
    names = ["s", "s/12345678", "s/12345678-2"]
    assert sorted(shown(thread)) == names
    grown = [*entries, entry("b", "a"), entry("c", "b"), entry("d", "c")]
    load(thread, *grown[:6])
    assert sorted(shown(thread)) == [*names, "s/12345678-3"]
    found = shown(thread)
    load(thread, *grown, name="cold")
    assert {one.replace("s", "cold", 1): ids for one, ids in found.items() if one != "s"} == {
        one: ids for one, ids in shown(thread).items() if one.startswith("cold/")
    }


def test_ids_of_any_kind(thread: eventq.Thread) -> None:
    """Long, equal, unprintable and surrogate ids name contexts, as far as they can."""
    ids = [
        "x" * 300 + "1",
        "x" * 300 + "2",
        "x" * 300 + "3",
        "tab\there",
        "\ud800",
        "é" * 9,
        "1/../2",
    ]
    entries = [header(), entry("a", None), *(entry(own, "a") for own in ids), entry("z", "a")]
    load(thread, *entries)
    long = "s/" + "x" * 36
    assert set(shown(thread)) == {
        "s", "s/xxxxxxxx", long, f"{long}~2", "s/tab_here", "s/\\ud800", "s/" + "é" * 8, "s/1/../2",
    }  # fmt: skip
    assert export(thread) == spell(*entries)
    with pytest.raises(InputError, match="longer than 110 characters"):
        load(thread, *entries, name="n" * 111)
    load(thread, *entries, name="n" * 110)
    agents = [
        says("u", None),
        *(says(f"s{n}", None, isSidechain=True, agentId=own) for n, own in enumerate(ids)),
    ]
    load(thread, *agents, name="t")
    names = [name for name in shown(thread) if name.startswith("t/agent-")]
    assert len(names) == len(ids)


def test_a_head_that_somebody_has_moved_stays(thread: eventq.Thread) -> None:
    """The import says so and adds no turn to a context of others; its lines are kept."""
    load(thread, *REWOUND[:4])
    thread.contexts.get("s").append('{"id": "mine"}')
    with pytest.raises(ConflictError, match="somebody else has moved context 's'"):
        load(thread, *REWOUND)
    assert shown(thread)["s"].endswith(" mine")
    thread.contexts.get("s").move(4, expected_head=thread.contexts.head("s"))
    load(thread, *REWOUND)
    assert shown(thread)["s"] == "u1 a1 u3 a3"
    assert turns(thread) == 7


def test_a_branch_that_somebody_has_moved_stays(thread: eventq.Thread) -> None:
    """What they appended to it is not deleted with it when the file goes on from there."""
    rows = [header(), entry("a", None), entry("b", "a"), entry("c", "a")]
    load(thread, *rows)
    thread.contexts.get("s/b").append('{"id": "mine"}')
    rows += [entry("d", "b"), entry("e", "c")]
    for _ in range(2):
        with pytest.raises(ConflictError, match="somebody else has moved context 's/b'"):
            load(thread, *rows)
        assert shown(thread) == {"s": "a c", "s/b": "a b mine"}
    thread.contexts.get("s/b").fork(name="mine")
    thread.contexts.get("s/b").move(2, expected_head=thread.contexts.head("s/b"))
    load(thread, *rows)
    assert shown(thread) == {"s": "a c e", "s/d": "a b d", "mine": "a b mine"}


def test_names_that_are_taken(thread: eventq.Thread) -> None:
    """A context of another origin is left alone, and the branch gets more of its id."""
    thread.contexts.create("s/a2-is-lo").append('{"id": "mine"}')
    for _ in range(2):
        load(thread, *REWOUND)
        assert shown(thread) == {
            "s": "u1 a1 u3 a3", "s/a2-is-long-too": "u1 a1 u2-is-long-enough a2-is-long-too", "s/a2-is-lo": "mine",
        }  # fmt: skip
    with pytest.raises(LogicError, match="is of no session"):
        export(thread, "s/a2-is-lo")
    thread.contexts.create("t").append('{"id": "mine"}')
    with pytest.raises(ConflictError, match="context 't' has turns that are not lines"):
        load(thread, *REWOUND, name="t")


# --- growth ---------------------------------------------------------------------------------------


@st.composite
def growing(draw: st.DrawFn) -> list[Entry]:
    """Return the entries of a session: mostly below one of the last, rarely anywhere or again."""
    made: list[Entry] = [] if draw(st.booleans()) else [header()]
    for n in range(draw(st.integers(2, 14))):
        near = [f"{at}" for at in range(max(0, n - 3), n)]
        parent = draw(st.sampled_from([*near * 6, *map(str, range(15)), None]))
        own = draw(st.sampled_from([f"{n}"] * 20 + [*map(str, range(15))]))
        text = str(draw(st.integers(0, 2)))
        if made and made[0].get("type") == "session":
            made.append(entry(own, parent, name=text))
        else:
            more = {"isSidechain": draw(st.sampled_from([False] * 30 + [True])), "text": text}
            kinds = (says(own, parent), answers(own, parent), result(own, parent, f"t{parent}"))
            made.append(draw(st.sampled_from(kinds)) | more)
    return made


@settings(
    max_examples=8, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(growing(), st.randoms(use_true_random=False))
def test_a_file_that_grew_is_like_one_that_came_whole(
    thread: eventq.Thread, entries: list[Entry], chance: random.Random
) -> None:
    """The branches are the same, whatever an import has seen before; only old turns are more."""
    for one in list(thread.contexts):
        thread.contexts.delete(one.context_id)
    thread.gc(apply=True, grace=0)
    for end in sorted(chance.sample(range(1, len(entries)), min(4, len(entries) - 1))):
        load(thread, *entries[:end])
    load(thread, *entries)
    grown = shown(thread)
    assert export(thread) == spell(*entries)
    load(thread, *entries, name="c")
    whole = {name: ids for name, ids in shown(thread).items() if name[0] == "c"}
    assert {name.replace("s", "c", 1): ids for name, ids in grown.items()} == whole
    assert thread.check() == []


def test_only_the_end_of_a_file_is_looked_at(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that grows at its end is placed without its beginning."""
    sizes: list[int] = []
    real = tree.build

    def counted(links: Any, *, last_is_leaf: bool) -> tree.Tree:
        sizes.append(len(links))
        return real(links, last_is_leaf=last_is_leaf)

    monkeypatch.setattr(tree, "build", counted)
    entries = [
        says(f"{n}", f"{n - 1}") if n % 3 == 0 else answers(f"{n}", f"{n - 1}") for n in range(60)
    ]
    for end in range(10, 61, 5):
        load(thread, *entries[:end])
    assert max(sizes[1:]) < 16
    assert shown(thread)["s"].split() == [f"{n}" for n in range(60)]
    load(thread, *entries, says("60", "59"), says("61", "2"))
    assert sizes[-1] == 62
    assert len(shown(thread)) == 2


# --- generations ----------------------------------------------------------------------------------


def test_a_title_that_was_changed_in_place(thread: eventq.Thread) -> None:
    """The newest bytes are exported, the ones before too, and no turn is made twice."""
    rest = [header(title="x"), entry("a", None), entry("b", "a")]
    before, after = (slot(title, "2026-01-01T00:00:00Z", None) for title in ("old", "new"))
    load(thread, before, *rest)
    made = load(thread, after, *rest)
    assert (made.generation, made.added) == (2, 4)
    (note,) = made.notes
    assert note.endswith("was rewritten: it is generation 2 of 's' now")
    assert (export(thread), export(thread, generation=1)) == (
        spell(after, *rest),
        spell(before, *rest),
    )
    assert turns(thread) == 2
    made = load(thread, after, *rest, entry("c", "b"))
    assert (made.generation, made.added, made.notes) == (2, 1, ())
    assert shown(thread) == {"s": "a b c"}
    with pytest.raises(LogicError, match="there is no generation 3 of session 's'"):
        export(thread, generation=3)


def test_a_file_that_was_written_anew(thread: eventq.Thread) -> None:
    """New ids are new turns; what is as before is not stored twice; old tips go."""
    old = [
        header(version=1),
        *({"type": "message", "n": n, "message": {"role": "user"}} for n in range(3)),
    ]
    new = [header(), entry("a", None), entry("b", "a"), entry("c", "a")]
    load(thread, *old)
    load(thread, *new)
    assert shown(thread) == {"s": "a c", "s/b": "a b"}
    made = load(thread, *new[:2], entry("b", "a", shortened=True), *new[3:])
    assert (made.generation, turns(thread)) == (3, 3 + 3 + 1)
    assert [export(thread, generation=n) for n in (1, 2)] == [spell(*old), spell(*new)]
    thread.gc(apply=True, grace=0)
    assert export(thread, generation=1) == spell(*old)
    assert thread.check() == []


def test_a_file_that_was_cut(thread: eventq.Thread) -> None:
    """A file cut at a line is a generation; the turns and the later one stay."""
    entries = [header(), entry("a", None), entry("b", "a"), entry("c", "b")]
    load(thread, *entries)
    made = load(thread, *entries[:3])
    assert (made.generation, export(thread), turns(thread)) == (2, spell(*entries[:3]), 3)
    assert shown(thread) == {"s": "a b"}
    assert export(thread, generation=1) == spell(*entries)


def test_no_id_of_a_turn_is_left_out(thread: eventq.Thread) -> None:
    """Turns that are there already take none: of an import again, of another generation."""
    lines = [header(), *(entry(f"e{n}", f"e{n - 1}" if n else None) for n in range(4))]
    for file in (lines, lines, [*lines[:2], entry("x", "e0")], [*lines[:2], entry("y", "e0")]):
        load(thread, *file)
        turn = thread.contexts.create().append("next")
        assert turn.turn_id == rows_in(thread.database, "turns")


def test_a_torn_end_that_was_cut_off(thread: eventq.Thread, tmp_path: Path) -> None:
    """It is no generation: what had not ended is replaced."""
    entries = [header(), entry("a", None)]
    path = str(tmp_path / "torn.jsonl")
    for data in (spell(*entries) + b'{"type":', spell(*entries), spell(*entries) + b'{"other": 1}'):
        with open(path, "wb") as file:
            file.write(data)
        made = thread.sessions.import_file(path, name="s")
        assert (made.generation, export(thread)) == (1, data)


def test_a_last_line_that_is_no_entry_any_more(thread: eventq.Thread, tmp_path: Path) -> None:
    """What an entry without a newline had become is given up when more of its line comes."""
    path = str(tmp_path / "s.jsonl")
    data = spell(*REWOUND[:2], {"type": "user", "uuid": "u2"})[:-1]  # it looks like no record
    for end, left in ((b"", 3), (b" more\n", 2)):
        with open(path, "wb") as file:
            file.write(data + end)
        thread.sessions.import_file(path, name="s")
        thread.gc(apply=True, grace=0)
        assert turns(thread) == sum(len(ids.split()) for ids in shown(thread).values()) == left
    assert export(thread) == data + b" more\n"


def test_a_file_that_was_moved_is_the_same(thread: eventq.Thread) -> None:
    """It goes on from another folder, and is rewritten there."""
    entries = [header(), entry("a", None), entry("b", "a")]
    load(thread, *entries[:2])
    load(thread, *entries)
    made = load(thread, *entries, folder="moved")
    assert (made.generation, made.added) == (1, 0)
    assert load(thread, *entries[:1], entry("x", None), folder="moved").generation == 2


def test_a_file_whose_path_is_not_text(thread: eventq.Thread, tmp_path: Path) -> None:
    """It is a session like any other, and one in another folder is told apart."""
    for folder in (b"\xff", b"\xfe"):
        os.makedirs(os.path.join(os.fsencode(tmp_path), folder))
    first, other = (tmp_path / os.fsdecode(one) / "\udcff.jsonl" for one in (b"\xff", b"\xfe"))
    first.write_bytes(spell(says("a", None)))
    other.write_bytes(spell(says("b", None)))
    for _ in range(2):
        assert thread.sessions.import_file(str(first)).entries == 1
    with pytest.raises(ConflictError, match="session '_' is another one here"):
        thread.sessions.import_file(str(other))
    assert shown(thread) == {"_": "a"}


def test_a_file_that_is_compressed(thread: eventq.Thread, tmp_path: Path) -> None:
    """It is what is in it, in several frames too, and the session goes on when it is unpacked."""
    whole = spell(says("u", None), answers("a", "u"), says("v", "a"))
    path = tmp_path / "one.jsonl.zst"
    packed = ZstdCompressor().compress(whole[:200])
    path.write_bytes(packed + ZstdCompressor().compress(whole[200:-1]))
    made = thread.sessions.import_file(str(path))
    assert (made.entries, made.notes[0]) == (
        3, f"'{path}' is compressed: an export has what is in it, not compressed",
    )  # fmt: skip
    assert thread.sessions.import_file(str(path)).added == 0
    assert export(thread, "one") == whole[:-1]
    (tmp_path / "one.jsonl").write_bytes(whole)
    made = thread.sessions.import_file(str(tmp_path / "one.jsonl"))
    assert (made.generation, made.notes) == (1, ())
    assert export(thread, "one") == whole


@pytest.mark.parametrize(
    ("why", "packed"),
    [
        ("it ends in the middle", ZstdCompressor().compress(spell(says("u", None)) * 9)[:-5]),
        ("(?:Unknown frame|.*prefix|.*magic)", ZstdCompressor().compress(b"{}\n") + b"rubbish"),
        (".*memory", b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00"),  # a window of 2 GiB
    ],
    ids=["cut", "rubbish", "window"],
)
def test_a_compressed_file_that_is_damaged(
    thread: eventq.Thread, tmp_path: Path, why: str, packed: bytes
) -> None:
    """It is refused before anything is stored, and so is one that would take too much memory."""
    path = tmp_path / "one.jsonl.zst"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=f"cannot be unpacked: .*{why}"):
        thread.sessions.import_file(str(path))
    assert shown(thread) == {}


def test_a_session_through_a_pipe(thread: eventq.Thread, tmp_path: Path) -> None:
    """It is what a file is, wherever the pipe stands; what it continues may be a file."""
    entries = [header(), entry("a", None), entry("b", "a")]
    load(thread, *entries[:2])
    for name, data in (("one", spell(*entries)), ("two", spell(entries[0], entry("x", None)))):
        pipe = tmp_path / name
        os.mkfifo(pipe)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(pipe.write_bytes, data)
            thread.sessions.import_file(str(pipe), name="s")
        assert export(thread) == data
    assert shown(thread) == {"s": "x"}


def test_two_files_of_one_session(thread: eventq.Thread) -> None:
    """The second one, in another folder, is told apart by a name of its own."""
    load(thread, header(), entry("a", None))
    with pytest.raises(
        ConflictError, match="session 's' is another one here: its file was '"
    ) as told:
        load(thread, header(), entry("b", None), folder="other")
    assert "--as" in str(told.value)
    load(thread, header(), entry("b", None), folder="other", name="s2")
    assert shown(thread) == {"s": "a", "s2": "b"}


def test_a_name_that_is_a_branch_of_another_session(thread: eventq.Thread) -> None:
    """It is refused, also for a file that begins with that branch: the branch stays one."""
    rows = [says("a", None), says("b", "a"), says("c", "a")]
    load(thread, *rows)
    with pytest.raises(ConflictError, match="context 's/b' is a branch of session 's'"):
        load(thread, *rows[:2], says("d", "b"), name="s/b", folder="other")
    assert shown(thread) == {"s": "a c", "s/b": "a b"}
    assert load(thread, *rows, says("e", "b")).added == 1
    assert shown(thread) == {"s": "a b e", "s/c": "a c"}


# --- copies ---------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Any:
    """Return another thread."""
    with eventq.open(tmp_path / "other", create=True) as found:
        yield found


@pytest.mark.parametrize("how", ["copy", "pack"])
def test_a_copy_has_the_branches(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path, how: str
) -> None:
    """Lines, generations and tips come along; an import there goes on, twice adds nothing."""

    def copied() -> None:
        if how == "copy":
            thread.copy_to(other)
        else:
            pack = tmp_path / str(len(os.listdir(tmp_path)))
            thread.export_pack(pack)
            other.import_pack(pack)

    load(thread, header(), entry("z", None))
    load(thread, header(cwd="/b"), entry("a", None), entry("b", "a"), entry("c", "a"))
    copied()
    for _ in range(2):
        assert shown(other) == shown(thread) == {"s": "a c", "s/b": "a b"}
        assert export(other, "s/b") == export(thread)
        assert export(other, generation=1) == spell(header(), entry("z", None))
        assert turns(other) == turns(thread)
        copied()
    grown = [header(cwd="/b"), entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "c")]
    assert load(thread, *grown).added == 1
    copied()
    assert (shown(other)["s"], export(other)) == ("a c d", spell(*grown))
    assert load(other, *grown, entry("e", "d")).added == 1
    assert shown(other) == {"s": "a c d e", "s/b": "a b"}
    assert other.check() == []


def test_a_copy_follows_where_the_session_goes_on(
    thread: eventq.Thread, other: eventq.Thread
) -> None:
    """Its own context moves to another branch as in the source, unless somebody has moved it."""
    rows = [header(), entry("a", None), entry("b", "a")]
    load(thread, *rows)
    thread.copy_to(other)
    with eventq.open(f"{thread.path}-moved", create=True) as moved:
        thread.copy_to(moved)
        moved.contexts.get("s").append('{"id": "mine"}')
        load(thread, *rows, entry("c", "a"))
        assert thread.copy_to(other).notes == ()
        assert shown(other) == shown(thread) == {"s": "a c", "s/b": "a b"}
        assert any("went another way here" in one for one in thread.copy_to(moved).notes)
        assert shown(moved) == {"s": "a b mine", "s/b": "a b"}
    load(thread, header(cwd="/b"), entry("a", None), entry("d", "a"))
    assert (thread.copy_to(other).moved, shown(other)["s"]) == (1, "a d")
    load(thread, header(cwd="/b"), entry("a", None), entry("d", "a"), entry("e", "a"))
    with eventq.open(f"{thread.path}-newer", create=True) as newer:
        thread.copy_to(newer)
        other.copy_to(newer)  # older
        assert shown(newer) == shown(thread) | {"s/b": "a b"}
    load(other, header(cwd="/b"), entry("a", None), entry("d", "a"), entry("e", "a"))
    assert shown(other) == {"s": "a e", "s/d": "a d"}
    assert other.check() == []


def test_a_copy_keeps_an_entry_without_its_newline(
    thread: eventq.Thread, other: eventq.Thread, tmp_path: Path
) -> None:
    """Where the source has another entry in its place, it is another session, and stays."""
    rows = spell(header(), entry("a", None))
    path = str(tmp_path / "end.jsonl")
    for where, end in (
        (thread, spell(entry("y", "a"), entry("z", "y"))),
        (other, spell(entry("x", "a"))[:-1]),
    ):
        with open(path, "wb") as file:
            file.write(rows + end)
        where.sessions.import_file(path, name="s")
    found = thread.copy_to(other)
    assert any("is another one here" in note for note in found.notes)
    assert export(other) == rows + spell(entry("x", "a"))[:-1]


@pytest.mark.parametrize("end", ["not ended", "no newline"])
def test_a_copy_goes_on_after_a_torn_line(
    thread: eventq.Thread, other: eventq.Thread, end: str
) -> None:
    """What has replaced it in the source replaces it there; an older copy changes nothing."""
    whole = json.dumps(entry("b", "a")).encode()
    torn = whole[:9] if end == "not ended" else whole
    with eventq.open(f"{thread.path}-older", create=True) as older:
        for one in (thread, older):
            load(one, header(), entry("a", None))
            with open(f"{one.path}.files/session.jsonl", "ab") as file:
                file.write(torn)
            one.sessions.import_file(file.name, name="s")
        thread.copy_to(other)
        rows = [header(), entry("a", None), entry("b", "a"), entry("c", "b")]
        load(thread, *rows)
        assert thread.copy_to(other).notes == ()
        assert export(other) == spell(*rows)
        assert shown(other) == {"s": "a b c"}
        assert [one for one in older.copy_to(other).notes if "generation" in one] == []
        assert export(other) == spell(*rows)
    load(other, *rows, entry("d", "c"))
    assert shown(other)["s"] == "a b c d"
    assert other.check() == []


def test_a_copy_of_a_branch_that_somebody_has_moved(
    thread: eventq.Thread, other: eventq.Thread
) -> None:
    """What they appended stays there, too: an import into the copy moves nothing of theirs."""
    load(thread, header(), entry("a", None))
    thread.contexts.get("s").append('{"id": "mine"}')
    thread.copy_to(other)
    with pytest.raises(ConflictError, match="somebody else has moved context 's'"):
        load(other, header(), entry("a", None), entry("b", "a"))
    assert shown(other) == shown(thread) == {"s": "a mine"}
    thread.contexts.get("s").move(1, expected_head=thread.contexts.head("s"))
    load(thread, header(), entry("a", None), entry("b", "a"))
    thread.copy_to(other)
    assert shown(other) == {"s": "a mine"}


def test_a_chosen_branch_brings_its_session(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A copy of one tip can be exported whole."""
    load(thread, *REWOUND)
    load(thread, header(), entry("a", None), name="t")
    thread.copy_to(other, [thread.contexts.get("s/a2-is-lo").id])
    assert list(shown(other)) == ["s/a2-is-lo"]
    assert export(other, "s/a2-is-lo") == spell(*REWOUND)
    assert turns(other) == 6


def test_a_session_without_its_own_context(thread: eventq.Thread, tmp_path: Path) -> None:
    """It can be exported by its name as long as it is there."""
    load(thread, *REWOUND)
    thread.contexts.delete("s")
    assert export(thread) == spell(*REWOUND)
    assert thread.sessions.export_folder("s", str(tmp_path / "x.jsonl"), pytest.fail) == {}
    thread.contexts.delete("s/a2-is-lo")
    assert export(thread) == spell(*REWOUND)
    with pytest.raises(LogicError, match="there is no generation 2 of session 's'"):
        export(thread, generation=2)
    with pytest.raises(UnknownContextError, match="'t'"):
        export(thread, "t")


@pytest.mark.parametrize("copied", [False, True])
def test_a_file_whose_tool_shows_late_and_that_was_cut_then(
    thread: eventq.Thread, other: eventq.Thread, copied: bool
) -> None:
    """What an import that broke off has left of the lines before goes, and none comes twice."""
    rows: list[Entry] = [{"n": 1}, {"n": 2}, {"n": 3}]
    load(thread, *rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports.Import, "read", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            load(thread, *rows, says("a", None))
    if copied:
        thread.copy_to(other)
        thread = other
    load(thread, rows[0], says("a", None))
    assert export(thread) == spell(rows[0], says("a", None))
    assert shown(thread) == {"s": "a"}
    assert thread.check() == []


def test_a_session_lives_as_long_as_a_tip(thread: eventq.Thread) -> None:
    """A collection keeps all lines while one context of them is there, and nothing afterwards."""
    load(thread, *REWOUND)
    thread.contexts.delete("s")
    assert thread.gc(apply=True, grace=0).turns == 0
    assert export(thread, "s/a2-is-lo") == spell(*REWOUND)
    thread.contexts.delete("s/a2-is-lo")
    assert thread.gc(apply=True, grace=0).turns == 6
    assert len(thread.blobs) == 0
    assert load(thread, *REWOUND).added == 6
    assert thread.check() == []


def test_a_session_without_any_tip_gets_all_of_them_again(thread: eventq.Thread) -> None:
    """An import before a collection brings what an import after it brings."""
    rows = [header(), entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "c")]
    load(thread, *rows)
    before = shown(thread)
    for name in before:
        thread.contexts.delete(name)
    assert load(thread, *rows).added == 0
    assert shown(thread) == before == {"s": "a c d", "s/b": "a b"}


# --- damage ---------------------------------------------------------------------------------------


def test_an_import_that_broke_off_goes_on(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines without turns get them, turns without contexts too."""
    for name in ("place", "show"):
        with monkeypatch.context() as patch:
            patch.setattr(imports.Import, name, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                load(thread, *REWOUND, name=name)
        assert load(thread, *REWOUND, name=name).added == 0
        assert shown(thread)[name] == "u1 a1 u3 a3"
    assert turns(thread) == 6  # both are copies of one file
