"""The contract of `eventq.storage.base.Copies` and `Selection` on every engine."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq.errors import StoreError, UnknownBlobError, UnknownContextError, UnknownTurnError
from eventq.storage.copied import (
    AliasCopy,
    AttemptCopy,
    ContextCopy,
    ContextLabel,
    OutputCopy,
    PatchCopy,
    PinCopy,
    RefCopy,
    RootCopy,
    RunCopy,
    TurnCopy,
)

if TYPE_CHECKING:
    from eventq.storage.base import Copies, Database
    from eventq.storage.copied import Restorable

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
AT = 1_773_829_800_000


def digest(data: bytes) -> bytes:
    """Return the name of a blob."""
    return bytes(blake3(data).digest())


def turn(number: int, parent: int = 0, data: bytes = b"a", **more: Any) -> TurnCopy:
    """Return a turn to be restored."""
    made = TurnCopy(number, parent, 0, "message", 1, None, 0, 0, AT, None, digest(data))
    return made._replace(**more)


@pytest.fixture
def copies(opened: eventq.Thread, database: Database) -> Copies:
    """Return the area of a thread that has some blobs and nothing else."""
    for data in (b"a", b"b", b"c"):
        opened.blobs.put(data)
    return database.memory.copies


@pytest.fixture
def filled(opened: eventq.Thread) -> eventq.Thread:
    """Return a thread with some of everything; `main` has turns 1 and 2, `side` 1 and 3."""
    blobs, main = opened.blobs, opened.contexts.create("main")
    deep = blobs.put(b"deep")
    leaf = blobs.put(b"leaf", refs=[deep.hash])
    main.append(eventq.NewTurn(b"a", refs=[leaf.hash]))
    main.append(eventq.NewTurn({"text": "b"}, canonical="eventq-json-1"))
    main.fork(at=1, name="side").append(b"c")
    opened.contexts.create("apart").append(b"d")
    main.patch(2, b"over")
    opened.contexts.tombstone(3, flags=7)
    opened.contexts.attach(1, blobs.put(b"root").hash)
    blobs.pin(leaf.hash, "keeper")
    opened.produced.name_blob(leaf.hash, sha256(b"leaf").digest())
    for text in (b"v1", b"v2"):
        opened.outputs.put("Scout", text)
    opened.artifacts.put(b"text")
    return opened


# --- what is chosen -------------------------------------------------------------------------------


def test_everything_is_chosen(filled: eventq.Thread, database: Database) -> None:
    """Without contexts all records of all kinds are chosen, each kind in its order."""
    info = filled.contexts.get("main").info()
    filled.blobs.put(bytes(range(256)) * 8_000)  # in parts, which are no blobs of their own
    with database.memory.read() as moment:
        chosen = moment.copies.select(None)
        turns = list(chosen.turns())
        assert [(one.turn, one.parent, one.depth) for one in turns] == [
            (1, 0, 0), (2, 1, 1), (3, 1, 1), (4, 0, 0),
        ]  # fmt: skip
        assert (turns[0].digest, turns[0].size, turns[0].type_tag) == (digest(b"a"), 1, None)
        assert [one.turn for one in chosen.turns(canonical=True)] == [2]
        assert [(one.context, one.head, one.depth, one.name) for one in chosen.records(ContextCopy)] == [
            (1, 2, 1, "main"), (2, 3, 1, "side"), (3, 4, 0, "apart"),
        ]  # fmt: skip
        first, fork, _ = chosen.records(ContextCopy)
        assert (first.at, first.fork_of, fork.fork_of) == (info.created_at_ms, None, 1)
        assert [one[:3] for one in chosen.records(PatchCopy)] == [
            (2, digest(b"over"), 0),
            (3, None, 7),
        ]
        assert list(chosen.records(RootCopy)) == [RootCopy(1, digest(b"root"))]
        refs = {RefCopy(digest(b"leaf"), digest(b"deep")), RefCopy(digest(b"a"), digest(b"leaf"))}
        assert set(chosen.records(RefCopy)) == refs
        assert list(chosen.records(PinCopy)) == [PinCopy("keeper", digest(b"leaf"))]
        assert list(chosen.records(AliasCopy)) == [
            AliasCopy(digest(b"leaf"), sha256(b"leaf").digest())
        ]
        versions = [("0-Scout", 1), ("1-Scout", 1)]
        assert [(one.output, one.version) for one in chosen.records(OutputCopy)] == versions
        assert list(chosen.artifacts()) == [(0, 0)]
        assert len(list(chosen.blobs())) == len(filled.blobs)


def test_contexts_lead_to_what_they_need(filled: eventq.Thread, database: Database) -> None:
    """Some contexts, by name or id: their chains, and all that those lead to; nothing else."""
    with database.memory.read() as moment:
        chosen = moment.copies.select(["main"])
        assert [one.name for one in chosen.records(ContextCopy)] == ["main"]
        assert [one.turn for one in chosen.turns()] == [1, 2]
        assert [one.turn for one in chosen.records(PatchCopy)] == [2]
        expected = {*map(digest, (b"a", b"leaf", b"deep", b"over", b"root", b'{"text":"b"}'))}
        assert set(chosen.blobs()) == expected
        assert [*chosen.records(OutputCopy), *chosen.artifacts()] == []
        assert len(list(chosen.records(PinCopy))) == len(list(chosen.records(AliasCopy))) == 1
        again = moment.copies.select([3, "2"])  # in place of the one before
        assert [one.name for one in again.records(ContextCopy)] == ["side", "apart"]
        assert [one.turn for one in again.turns()] == [1, 3, 4]
        assert list(moment.copies.select([]).blobs()) == []


@pytest.mark.parametrize("which", ["none", "01x", 9, ""])
def test_an_unknown_context(which: int | str, filled: eventq.Thread, database: Database) -> None:
    """A context that is not there is an error that names it."""
    with database.memory.read() as moment, pytest.raises(UnknownContextError):
        moment.copies.select(["main", which])


def test_artifacts_and_outputs_are_added(filled: eventq.Thread, database: Database) -> None:
    """Each is added once; an output brings the blobs that were not chosen, and what they name."""
    named = filled.blobs.put(b"named")
    text = b"names it"
    filled.blobs.put(text, refs=[named.hash])
    team = filled.outputs.put("Team", text).output_id
    with database.memory.read() as moment:
        chosen = moment.copies.select([])
        assert [chosen.add_artifact(0, 0), chosen.add_artifact(0, 0)] == [True, False]
        assert chosen.add_artifact(0, 77) is False
        assert set(chosen.add_output(0, team)) == {digest(text), digest(b"named")}
        assert chosen.add_output(0, team) == chosen.add_output(0, "nobody") == []
        assert chosen.add_output(0, "0-Scout") == [digest(b"v1")]
        assert [one.output for one in chosen.records(OutputCopy)] == ["0-Scout", team]
        assert list(chosen.artifacts()) == [(0, 0)]
        assert len(set(chosen.blobs())) == 3


def test_runs_and_attempts_are_chosen(copies: Copies, database: Database) -> None:
    """A run comes with its context, an attempt with the turn that it came after."""
    run = RunCopy(1, "flow", "group", "completed", 3, AT + 5)
    attempt = AttemptCopy(1, digest(b"c"), AT + 4)
    other: list[Restorable] = [turn(2), ContextCopy(2, 2, 0, 0, AT)]
    copies.restore([turn(1), turn(3, data=b"b"), ContextCopy(1, 1, 0, 0, AT), run, attempt])
    copies.restore(other)
    with database.memory.read() as moment:
        chosen = moment.copies.select([1])
        assert (list(chosen.records(RunCopy)), list(chosen.records(AttemptCopy))) == (
            [run],
            [attempt],
        )
        assert [one.turn for one in chosen.turns()] == [1, 3]
        assert set(chosen.blobs()) == {digest(b"a"), digest(b"b"), digest(b"c")}
        chosen = moment.copies.select([2])
        assert (list(chosen.records(RunCopy)), list(chosen.records(AttemptCopy))) == ([], [])


def test_more_than_a_page(copies: Copies, database: Database) -> None:
    """What comes in several pages comes whole, once and in order."""
    count = 2_500
    copies.restore([turn(number) for number in range(1, count + 1)])
    copies.restore([ContextCopy(number, number, 0, 0, AT) for number in range(1, count + 1)])
    copies.restore([PatchCopy(1, None, 0, number) for number in range(count)])
    with database.memory.read() as moment:
        chosen = moment.copies.select(None)
        assert [one.turn for one in chosen.turns()] == [*range(1, count + 1)]
        assert [one.context for one in chosen.records(ContextCopy)] == [*range(1, count + 1)]
        assert [one.at for one in chosen.records(PatchCopy)] == [*range(count)]


def test_a_selection_is_of_its_moment(filled: eventq.Thread, database: Database) -> None:
    """What is committed after the moment is not chosen, though it is read later."""
    with database.memory.read() as moment:
        chosen = moment.copies.select(None)
        filled.contexts.get("main").append(b"late")
        filled.blobs.pin(digest(b"deep"), "late")
        assert (len(list(chosen.turns())), len(list(chosen.records(PinCopy)))) == (4, 1)


# --- what an import finds and stores --------------------------------------------------------------


def test_what_is_restored_is_what_was_read(copies: Copies, database: Database) -> None:
    """All records come back as they were stored; depths and sizes follow from what they name."""
    rule = turn(9, 5, b"b", type_tag=-3, encoding=2, flags=8, at=4, canonical="plain")
    records: list[Restorable] = [
        turn(5, type_id="", type_version=0), rule, ContextCopy(3, 9, 0, 6, AT),
        ContextLabel(3, "name", None), PatchCopy(9, digest(b"c"), 1, 2), PatchCopy(9, None, 3, 4),
        AttemptCopy(5, digest(b"c"), 7), RunCopy(3, "r", "", "active", 5, None),
    ]  # fmt: skip
    copies.restore(records)
    with database.memory.read() as moment:
        chosen = moment.copies.select(None)
        first, second = chosen.turns()
        assert first == turn(5, type_id="", type_version=0, size=1)
        assert second == rule._replace(depth=1, size=1)
        assert list(chosen.records(ContextCopy)) == [ContextCopy(3, 9, 1, 6, AT, "name", None)]
        assert [one.base_turn_id for one in moment.contexts.page(0, 9)] == [9]
        assert list(chosen.records(PatchCopy)) == records[4:6]
        assert [*chosen.records(AttemptCopy), *chosen.records(RunCopy)] == records[6:]


def test_a_chain_that_is_restored_can_be_walked(copies: Copies, database: Database) -> None:
    """Ancestors of a restored turn are found as those of appended ones, and nothing is amiss."""
    copies.restore([turn(number, number - 1) for number in range(1, 101)])
    assert [database.memory.turns.ancestor(100, depth) for depth in range(100)] == [*range(1, 101)]
    assert [*database.memory.faults("turns")] == []


def test_ids_go_on_after_what_was_restored(opened: eventq.Thread, copies: Copies) -> None:
    """The next turn and context have ids above all restored ones, and above a reserved one."""
    copies.restore([turn(70), ContextCopy(30, 70, 0, 0, AT)])
    assert copies.last_ids().context == 30
    made = opened.contexts.create()
    assert (made.id, made.append(b"x").turn_id) == (31, 71)
    copies.reserve(turn=50)
    assert opened.database.memory.copies.last_ids().turn == 71
    assert made.append(b"x").turn_id == 72
    copies.reserve(turn=100)
    assert opened.database.memory.copies.last_ids().turn == 100
    assert made.append(b"x").turn_id == 101


def test_labels_change_what_they_have(copies: Copies, database: Database) -> None:
    """A label sets a name or an origin; None leaves what there is."""
    copies.restore([ContextCopy(1, 0, 0, 0, AT), ContextCopy(2, 0, 0, 0, AT)])
    for labels in ([(2, "two", None), (2, None, 1)], [(1, None, 2), (1, "one", None)]):
        copies.restore([ContextLabel(*label) for label in labels])
    found = [(one.name, one.fork_of) for one in database.memory.contexts.page(0, 9)]
    assert found == [("one", 2), ("two", 1)]


def test_a_run_that_is_there_gets_the_new_status(copies: Copies, database: Database) -> None:
    """A second record of a run changes its status and time, and nothing else."""
    copies.restore([turn(1), turn(2), ContextCopy(1, 1, 0, 0, AT)])
    copies.restore([RunCopy(1, "first", "g", "active", 1, None)])
    copies.restore([RunCopy(1, "second", "h", "completed", 2, 9)])
    with database.memory.read() as moment:
        runs = list(moment.copies.select(None).records(RunCopy))
    assert runs == [RunCopy(1, "first", "g", "completed", 1, 9)]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (turn(2, 77), UnknownTurnError),
        (turn(2, data=b"nowhere"), UnknownBlobError),
        (PatchCopy(1, digest(b"nowhere"), 0, 0), UnknownBlobError),
        (PatchCopy(77, None, 0, 0), StoreError),
        (AttemptCopy(1, digest(b"nowhere"), 0), UnknownBlobError),
        (ContextCopy(1, 77, 0, 0, AT), StoreError),
        (turn(1), StoreError),
    ],
)
def test_all_or_nothing(
    record: Restorable, error: type[Exception], copies: Copies, database: Database
) -> None:
    """A record that names what is not there, or has an id that is taken, undoes those before it."""
    copies.restore([turn(1)])
    with pytest.raises(error):
        copies.restore([turn(9), PatchCopy(1, None, 0, 0), record])
    assert (database.memory.turns.link(9), copies.beside(1, PatchCopy)) == (None, [])


def test_restoring_tells_nobody(opened: eventq.Thread, copies: Copies) -> None:
    """No event tells of what was restored."""
    copies.restore([turn(1), ContextCopy(1, 1, 0, 0, AT)])
    assert opened.last_id() == 0


def test_candidates_for_a_turn(copies: Copies) -> None:
    """Those of one parent and one payload, oldest first, whatever else they are."""
    twins = [turn(3, 1, b"b"), turn(4, 1, b"b", flags=5, at=9), turn(5, 1, b"b", type_tag=8)]
    copies.restore([turn(1), turn(2), *twins, turn(6, 1, b"c"), turn(7, 2, b"b")])
    assert copies.alike(1, digest(b"b")) == [one._replace(depth=1) for one in twins]
    assert [one.turn for one in copies.alike(1, digest(b"b"), 2)] == [3, 4]
    assert [one.turn for one in copies.alike(0, digest(b"a"))] == [1, 2]
    assert copies.alike(1, digest(b"nowhere")) == copies.alike(77, digest(b"a")) == []


def test_what_follows_a_turn(copies: Copies) -> None:
    """Patches and attempts of one turn are found, twins too."""
    twin, attempt = PatchCopy(1, digest(b"b"), 2, 3), AttemptCopy(1, digest(b"c"), 4)
    grave = PatchCopy(1, None, 0, 1)
    copies.restore([turn(1), turn(2), twin, twin, grave, attempt, PatchCopy(2, None, 0, 0)])
    found = copies.beside(1, PatchCopy)
    assert (found.count(twin), found.count(grave), len(found)) == (2, 1, 3)
    assert copies.beside(1, AttemptCopy) == [attempt]
    assert (copies.beside(2, AttemptCopy), copies.beside(77, PatchCopy)) == ([], [])


def test_turns_that_contexts_reach(copies: Copies) -> None:
    """A turn is reached by a context at it or below it, not by one above or beside it."""
    copies.restore([turn(1), turn(2, 1), turn(3, 2), turn(4, 1), ContextCopy(1, 2, 0, 0, AT)])
    assert [copies.is_reached(number) for number in (1, 2, 3, 4)] == [True, True, False, False]
