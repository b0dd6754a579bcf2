"""Links that a file states beside its tree: what a compaction continues, what a fork begins with.

The kind: history that goes on in another tree or file than that of its entries. Members: a chain of
compactions, a link that leads nowhere, below itself, or in a circle; a copy, an older import; a fork
that came before its source, of a fork, of another file of the name, of what was taken back, in a
folder, whose context was moved; what is erased in one of them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from eventq.cli.graph import by_turn, draw
from eventq.errors import LogicError
from eventq.http.pages.lanes import lanes_of, scale_of, ways_of
from eventq.sessions.claude import Claude
from tests.contract.test_session_branches import export, load, shown, spell, turns
from tests.servers import ENGINES
from tests.sessions.support import answers, back, entry, header, line, meta, prompt, reply, says

if TYPE_CHECKING:
    import eventq
    from eventq.records.session import SessionBranch

Entry = dict[str, Any]

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]


def boundary(uuid: str, logical: str | None) -> Entry:
    """Return the boundary of a compaction that continues an entry."""
    return line("system", uuid, None, subtype="compact_boundary", logicalParentUuid=logical)


OLD = [says("u1", None), answers("a1", "u1"), says("u2", "a1"), answers("a2", "u2")]
NEW = [boundary("c1", "a2"), says("s1", "c1"), answers("a3", "s1")]
NEWER = [boundary("c2", "a3"), says("s2", "c2"), answers("a4", "s2")]


def told(thread: eventq.Thread) -> dict[str | None, tuple[str | None, str | None]]:
    """Return what each branch says: where it leaves main, and what it continues."""
    found: list[SessionBranch] = thread.sessions.views.branches("s")
    return {one.name: (one.leaves_at, one.continues) for one in found}


def difference(thread: eventq.Thread, one: str, other: str) -> tuple[str | None, str, str]:
    """Return the ids of what two branches share, and of what each has after it."""
    found = thread.sessions.views.diff(one, other)
    mine, theirs = (
        " ".join(str(each.entry) for each in side) for side in (found.mine, found.theirs)
    )
    return found.shared.entry, mine, theirs


def drawn(thread: eventq.Thread) -> list[str]:
    """Return the drawing of all contexts, each line with its depth and names alone."""
    turns = thread.contexts.turns
    return [*draw(thread.contexts, turns, by_turn(turns.depth, lambda one: one.name or ""))]


def lanes(thread: eventq.Thread) -> dict[str | None, tuple[int, int, int, str | None]]:
    """Return shift, start and end of each lane, and the name of the one that it leaves."""
    found = lanes_of(thread.contexts.turns, [*thread.contexts])
    names: dict[int | None, str | None] = {one.row: one.info.name for one in found}
    assert len(found) == len(names)
    return {one.info.name: (one.shift, one.start, one.end, names.get(one.above)) for one in found}


def test_a_compaction_continues_what_it_states(thread: eventq.Thread) -> None:
    """Main is as the tool has it, and `diff`, the drawings and the branches follow the link."""
    load(thread, *OLD, *NEW)
    assert shown(thread) == {"s": "c1 s1 a3", "s/a2": "u1 a1 u2 a2"}
    assert told(thread) == {"s": (None, "a2"), "s/a2": ("a2", None)}
    assert difference(thread, "s", "s/a2") == ("a2", "c1 s1 a3", "")
    assert difference(thread, "s/a2", "s") == ("a2", "", "c1 s1 a3")
    old, main = thread.contexts.get("s/a2").head_id(), thread.contexts.get("s").head_id()
    assert thread.contexts.get("s").common_ancestor(thread.contexts.get("s/a2")) == old
    assert drawn(thread) == [
        f"turn {old - 3}",
        f"└─ turn {old} (depth 3)  s/a2",
        f"   └┄ turn {main - 2}",
        f"      └─ turn {main} (depth 2)  s",
    ]
    assert lanes(thread) == {"s/a2": (0, 0, 3, None), "s": (4, 4, 6, "s/a2")}
    drawn_lanes = lanes_of(thread.contexts.turns, [*thread.contexts])
    ways = ways_of(drawn_lanes, scale_of(drawn_lanes, 40, 0))
    rows = {one.info.name: ways[one.row] for one in drawn_lanes}
    assert rows["s/a2"].out == [rows["s"].into] == ["8.75%"]


def test_a_chain_of_compactions_is_one_way(thread: eventq.Thread) -> None:
    """A branch before the first one shares with what comes after the second what it continues."""
    rewound = [says("u9", "a1"), answers("a9", "u9")]
    load(thread, *OLD, *rewound, *NEW, *NEWER)
    assert shown(thread)["s"] == "c2 s2 a4"
    assert told(thread)["s/a9"] == ("a1", None)
    assert told(thread)["s/a3"] == ("a3", "a2")
    assert difference(thread, "s", "s/a9") == ("a1", "u2 a2 c1 s1 a3 c2 s2 a4", "u9 a9")
    assert len(thread.contexts.get("s").diff(thread.contexts.get("s/a9")).mine) == 8
    assert lanes(thread)["s"] == (7, 7, 9, "s/a3")
    assert sum("┄" in one for one in drawn(thread)) == 2


@pytest.mark.parametrize("logical", [None, "gone", "a3", "c1", 7])
def test_a_link_that_leads_nowhere_is_none(thread: eventq.Thread, logical: Any) -> None:
    """The boundary begins a tree of its own then, also where it names what is below itself."""
    load(thread, *OLD, boundary("c1", logical), *NEW[1:])
    assert told(thread) == {"s": (None, None), "s/a2": (None, None)}
    assert lanes(thread) == {"s": (0, 0, 2, None), "s/a2": (0, 0, 3, None)}
    assert len(drawn(thread)) == 4
    with pytest.raises(LogicError, match="have no entry in common"):
        difference(thread, "s", "s/a2")


def test_a_circle_of_links_ends(thread: eventq.Thread) -> None:
    """Two compactions that continue each other are shown, each once."""
    load(thread, boundary("c1", "a4"), *NEW[1:], boundary("c2", "a3"), *NEWER[1:])
    assert {own: continues for own, (_, continues) in told(thread).items()} == {
        "s": "a3", "s/a3": "a4",
    }  # fmt: skip
    shared, mine, theirs = difference(thread, "s", "s/a3")
    assert (shared, mine, theirs) in (("a3", "c2 s2 a4", ""), ("a4", "", "c1 s1 a3"))
    assert sum(one.endswith((" s", " s/a3")) for one in drawn(thread)) == 2
    assert {*lanes(thread)} == {"s", "s/a3"}


def test_a_link_comes_along(thread: eventq.Thread, other: eventq.Thread) -> None:
    """A copy has it, and a removal of the older branch leaves it, as the session has its turns."""
    load(thread, *OLD, *NEW)
    thread.copy_to(other)
    assert difference(other, "s", "s/a2") == ("a2", "c1 s1 a3", "")
    thread.contexts.get("s/a2").delete()
    thread.gc(apply=True, grace=0)
    assert told(thread) == {"s": (None, "a2")}
    load(thread, *OLD, *NEW, says("u4", "a3"))
    assert export(thread) == spell(*OLD, *NEW, says("u4", "a3"))
    assert told(thread) == {"s": (None, "a2")}


def test_an_older_import_is_put_right(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing the same file again finds the link; no turn is made for it."""
    with monkeypatch.context() as patch:
        link = Claude.link

        def without(self: Claude, entry: Entry) -> Any:
            made = link(self, entry)
            return made and made._replace(continues=None)

        patch.setattr(Claude, "link", without)
        load(thread, *OLD, *NEW)
    store = thread.database.memory.sessions
    row = store.find("s")
    assert row is not None
    if row.missing is not None:
        store.settle(row.session, row.settled, json.dumps(json.loads(row.missing)["parents"]))
    was = thread.contexts.get("s").head_id()
    assert told(thread)["s"] == (None, None)
    load(thread, *OLD, *NEW)
    assert told(thread)["s"] == (None, "a2")
    assert thread.contexts.get("s").head_id() == was


def test_a_fork_of_a_compaction_is_what_the_tool_resumes(thread: eventq.Thread) -> None:
    """The link changes neither a fork nor an export: both begin at the boundary."""
    load(thread, *OLD, *NEW)
    folder = f"{thread.path}.forks"
    os.makedirs(folder)
    with open(thread.sessions.fork("s", folder).output, "rb") as file:
        made = [json.loads(one) for one in file]
    assert [one["forkedFrom"]["messageUuid"] for one in made if "forkedFrom" in one] == [
        "c1", "s1", "a3",
    ]  # fmt: skip


# --- forks ----------------------------------------------------------------------------------------


def fork_of(source: str, *copied: Entry) -> list[Entry]:
    """Return the beginning of a fork of Codex: its own head, and a copy with other times."""
    return [meta(id="f", forked_from_id=source), *(one | {"timestamp": LATER} for one in copied)]


LATER = "2026-02-02T00:00:00.000Z"
SOURCE = [meta(id="p"), prompt("a"), reply("A"), prompt("b"), reply("B")]
FORK = [*fork_of("p", *SOURCE[:3]), prompt("c"), reply("C")]
PI = [header(id="p"), entry("a", None), entry("b", "a"), entry("c", "b")]
PI_FORK = [
    header(id="f", parentSession="/home/x/2026-01-01T00-00-00-000Z_p.jsonl"),
    *PI[1:3], entry("d", "b"),
]  # fmt: skip
FORKS = {"codex": (SOURCE, FORK, 4, 2), "pi": (PI, PI_FORK, 3, 1)}


def ways(thread: eventq.Thread) -> tuple[list[int], list[int]]:
    """Return the turns of the source and of the fork."""
    source, fork = (
        [turn.turn_id for turn in thread.contexts.get(name).replay()] for name in ("p", "f")
    )
    return source, fork


@pytest.mark.parametrize("tool", FORKS)
@pytest.mark.parametrize("first", ["source", "fork"])
def test_a_fork_shares_the_turns_that_it_begins_with(
    thread: eventq.Thread, tool: str, first: str
) -> None:
    """Whichever came first: the turns are stored once, and each file comes out as it was."""
    source, fork, length, own = FORKS[tool]
    files = {
        "source": lambda: load(thread, *source, name="p"),
        "fork": lambda: load(thread, *fork, name="f", folder="forks"),
    }
    files.pop(first)()
    files.popitem()[1]()
    mine, theirs = ways(thread)
    assert (mine[:2], len(mine), len(theirs)) == (theirs[:2], length, 2 + own)
    assert not {*mine[2:]} & {*theirs[2:]}
    assert export(thread, "p") == spell(*source)
    assert export(thread, "f") == spell(*fork)
    found = thread.sessions.views.diff("f", "p")
    assert (found.shared.turn_id, len(found.mine), len(found.theirs)) == (mine[1], own, length - 2)
    assert "this is a fork of session 'p', with a copy of its lines" in thread.sessions.views.notes(
        "f"
    )
    thread.gc(apply=True, grace=0)
    assert turns(thread) == length + own
    assert thread.check() == []
    more = reply("D") if tool == "codex" else entry("e", "d")
    load(thread, *fork, more, name="f", folder="forks")
    assert ways(thread)[1][:-1] == theirs
    forked = thread.sessions.fork("f", f"{thread.path}.again")
    with open(forked.output, "rb") as file:
        assert len([*file]) == 1 + 2 + own + 1


def test_a_source_that_comes_later_is_told_of_its_forks(thread: eventq.Thread) -> None:
    """Also where a fork cannot be moved, because somebody else has moved its context."""
    load(thread, *FORK, name="f", folder="forks")
    load(thread, *fork_of("f", *FORK), prompt("x"), name="g", folder="again")
    moved = thread.contexts.get("g")
    moved.append("mine")
    assert load(thread, *SOURCE, name="p").notes == (
        "session 'f' goes on from it, and hangs below it now",
    )
    assert load(thread, *SOURCE, name="p").notes == ()
    load(thread, *FORK, name="h", folder="others")
    mine, theirs = ways(thread)
    assert mine[:2] == theirs[:2]
    head = thread.contexts.get("g").head_id()
    (note,) = load(thread, *fork_of("g"), prompt("y"), name="i", folder="i").notes
    assert note.startswith("this is a fork")
    (note,) = load(thread, meta(id="z"), name="z", folder="z").notes or ("",)
    assert (note, thread.contexts.get("g").head_id()) == ("", head)


def test_a_fork_whose_context_was_moved_is_named(thread: eventq.Thread) -> None:
    """It stays where it is, and the source is imported nevertheless."""
    load(thread, *FORK, name="f", folder="forks")
    thread.contexts.get("f").append("mine")
    (note,) = load(thread, *SOURCE, name="p").notes
    assert note.startswith("session 'f' goes on from it, but is not below it: somebody else has")
    assert len(ways(thread)[0]) == 4


def test_a_fork_of_another_file_shares_nothing(thread: eventq.Thread) -> None:
    """What the copy says has to be what the source says, from the first turn on."""
    load(thread, meta(id="p"), prompt("else"), *SOURCE[2:], name="p")
    load(thread, *FORK, name="f", folder="forks")
    mine, theirs = ways(thread)
    assert not {*mine} & {*theirs}
    assert export(thread, "f") == spell(*FORK)


def test_a_fork_of_what_was_taken_back(thread: eventq.Thread) -> None:
    """The copy may have the turns that were taken back, or only what is left."""
    source = [*SOURCE, back(1), prompt("c"), reply("C")]
    load(thread, *source, name="p")
    load(thread, *fork_of("p", *source), prompt("d"), name="f", folder="forks")
    mine, theirs = ways(thread)
    assert theirs[:-1] == mine
    load(thread, *fork_of("p", *SOURCE[:3], *source[-2:]), prompt("e"), name="g", folder="again")
    assert [turn.turn_id for turn in thread.contexts.get("g").replay()][:-1] == mine


def test_forks_in_a_folder_come_in_any_order(thread: eventq.Thread) -> None:
    """They are read by name, and hang below their sources in the end."""
    folder = f"{thread.path}.many"
    os.makedirs(folder)
    for name, lines in (("a", FORK), ("b", SOURCE)):
        with open(os.path.join(folder, f"{name}.jsonl"), "wb") as file:
            file.write(spell(*lines))
    assert [one.error for one in thread.sessions.import_folder(folder)] == [None, None]
    mine, theirs = ways(thread)
    assert mine[:2] == theirs[:2]
    assert turns(thread) - 4 == 4 + 2  # until those of before are collected
    assert [one.is_new for one in thread.sessions.import_folder(folder)] == [False, False]


def test_a_shared_turn_is_erased_in_both(thread: eventq.Thread) -> None:
    """A copy has other bytes of the same, which must not stay."""
    secret = prompt("secret-3f1c")
    load(thread, SOURCE[0], secret, *SOURCE[2:], name="p")
    load(thread, *fork_of("p", secret, *SOURCE[2:3]), prompt("c"), name="f", folder="forks")
    mine, theirs = ways(thread)
    assert mine[:2] == theirs[:2]
    thread.erasures.turn(mine[0], reason="a key")
    for name in ("p", "f"):
        assert b"secret-3f1c" not in export(thread, name)
        assert len(export(thread, name).splitlines()) >= 4
    assert thread.check() == []


def test_turns_with_several_below_are_found(thread: eventq.Thread) -> None:
    """All at once, each with what is right below it, the oldest first; others are left out."""
    main = thread.contexts.create("main")
    a, b, c = (main.append(f"{n}").turn_id for n in range(3))
    d, e = (thread.contexts.fork("main", at=b).append(f"x{n}").turn_id for n in range(2))
    turns = thread.contexts.turns
    assert turns.forks([a, b, c, d, 99]) == {b: [c, d, e]}
    assert turns.forks([]) == {}
    assert turns.forks([b], 2) == {b: [c, d]}
