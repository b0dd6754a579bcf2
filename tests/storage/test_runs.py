"""The contract of `eventq.storage.base.Runs`, on every engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

from eventq.errors import (
    ConflictError,
    UnknownBlobError,
    UnknownRunError,
)
from eventq.storage.run_rows import PreparedAttempt, PreparedRun, PreparedStep, RunChoice
from eventq.storage.turn_rows import AppendTo
from tests.storage.test_blobs import UNKNOWN, small
from tests.storage.test_turns import new

if TYPE_CHECKING:
    import eventq
    from eventq.storage.base import Runs
    from eventq.storage.sqlite.database import Database
    from eventq.storage.turn_rows import PreparedTurn
    from tests.conftest import Clock

pytestmark = pytest.mark.engines("sqlite")  # the others hold events only
DAY = "2026-03-18"  # what the clock shows


def begin(
    name: str, group: str = "", label: str | None = None, source: str | None = None
) -> PreparedRun:
    """Return a run whose start names one text."""
    text = small(f"text of {name}".encode())
    first = new(f"start of {name}".encode(), text.digest)
    return PreparedRun(name, group, label, (text,), first, source, AppendTo())


def take(runs: Runs, run_id: int, turn: PreparedTurn | bytes, **more: Any) -> Any:
    """Take a step of a run from where it stands."""
    more.setdefault("after", runs.state(run_id))
    told: dict[str, Any] = {
        "to": AppendTo(),
        "blobs": (),
        "attempts": (),
        "op": "step",
    }
    turn = new(turn) if isinstance(turn, bytes) else turn
    return runs.step(run_id, PreparedStep(turn=turn, **(told | more)))


@pytest.fixture
def runs(database: Database, clock: Clock) -> Runs:
    """Return the runs of a thread: 1 of a group, with a step, and 2 with a label."""
    database.runs.start(begin("one", group="g"))
    database.runs.start(begin("two", label="second"))
    assert take(database.runs, 1, b"a step").turn == 3
    return database.runs


def last_op(database: Database) -> str:
    """Return the operation of the newest move of the first run."""
    return database.contexts.history(1, 0, 9)[-1].op


def test_a_start_is_one_change(database: Database, runs: Runs) -> None:
    """A run is a context with a label, its texts, its first turn and an event."""
    assert runs.start(begin("three", label="third", source="self")) == 3
    assert (database.contexts.named("third"), database.contexts.head(3)) == (3, 4)
    info = runs.get(3)
    assert info is not None
    assert (info.name, info.status, info.depth, info.start) == ("three", "active", 0, info.head)
    event = database.events.get(1)
    assert event is not None
    assert (event.source, event.subtype, json.loads(event.content)["run_id"]) == ("self", "run", 3)
    assert runs.starts() == {1, 2, 4}
    assert (runs.has(3), runs.has(4), runs.get(4)) == (True, False, None)


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (begin("three", label="second"), ConflictError),
        (begin("three")._replace(first=new(b"x", UNKNOWN)), UnknownBlobError),
    ],
)
def test_a_start_that_is_refused(
    database: Database, runs: Runs, run: PreparedRun, error: type[Exception]
) -> None:
    """A label that is taken and a missing blob leave nothing of a start."""
    before = database.blobs.count()
    with pytest.raises(error):
        runs.start(run)
    assert (len(runs.page(0, 9, RunChoice())), database.blobs.count()) == (2, before)


def test_a_step_is_one_change(database: Database, runs: Runs) -> None:
    """Blobs, attempts, turn, status and event of a step are stored together."""
    database.settings.put("runs.emit", "self")
    before = runs.state(1)
    blobs = (small(b"its text"), small(b"failed"))
    row = take(
        runs, 1, new(b"end", blobs[0].digest), blobs=blobs[:1], attempts=blobs[1:], op="end",
        becomes="completed",
    )  # fmt: skip
    assert (row.turn, row.parent, row.depth) == (4, 3, 2)
    after = runs.state(1)
    assert (before.status, before.head, before.start) == ("active", 3, 1)
    assert (after.status, after.head, after.digest) == ("completed", 4, row.digest)
    assert runs.attempts(3) == [blobs[1].digest]
    assert database.blobs.refs([blake3(b"end").digest()])[blake3(b"end").digest()] == [
        blobs[0].digest
    ]
    event = database.events.get(1)
    assert event is not None
    told = json.loads(event.content)
    assert (told["op"], told["status"], told["step"]) == ("end", "completed", 2)
    assert last_op(database) == "append"


def test_a_step_from_elsewhere(database: Database, runs: Runs) -> None:
    """A step from where the run does not stand any more is not stored, and says so with None."""
    before = runs.state(1)
    assert runs.attempt(1, PreparedAttempt(before, (), small(b"failed")))
    assert take(runs, 1, b"late", after=before) is None  # an attempt came between
    before = runs.state(1)
    take(runs, 1, b"next")
    count = database.blobs.count()
    assert take(runs, 1, b"late", after=before) is None
    assert not runs.attempt(1, PreparedAttempt(before, (), small(b"late")))
    assert (database.blobs.count(), database.copies.last_ids().turn) == (count, 4)


def test_a_step_that_is_refused(database: Database, runs: Runs) -> None:
    """Another head than the expected one, a missing blob and an unknown run leave nothing."""
    before = database.blobs.count(), runs.state(1)
    with pytest.raises(ConflictError) as caught:
        take(runs, 1, b"x", to=AppendTo(expected_head=1))
    assert caught.value.actual == 3
    with pytest.raises(UnknownBlobError):
        take(runs, 1, new(b"x", UNKNOWN), blobs=(small(b"y"),))
    for unknown in (lambda: runs.state(9), lambda: take(runs, 9, b"x", after=before[1])):
        with pytest.raises(UnknownRunError):
            unknown()
    assert (database.blobs.count(), runs.state(1)) == before


def test_a_step_that_replaces(runs: Runs) -> None:
    """A step that replaces the last one goes after its parent, and makes it an attempt."""
    row = take(runs, 1, b"instead", replaces=True)
    assert (row.turn, row.parent, row.depth) == (4, 1, 1)
    assert runs.attempts(1) == [blake3(b"a step").digest()]


def test_keys(runs: Runs) -> None:
    """The turn that has a key is part of where a run stands."""
    assert runs.state(1, "k").keyed == 0
    row = take(runs, 1, b"x", to=AppendTo(key="k", key_digest=b"d"))
    assert (runs.state(1, "k").keyed, runs.state(2, "k").keyed, runs.state(1).keyed) == (
        row.turn,
        0,
        0,
    )


def test_attempts(runs: Runs) -> None:
    """Attempts stand beside the turn that they came after, oldest first, and move no head."""
    digests = []
    for data in (b"first", b"second"):
        before = runs.state(1)
        assert runs.attempt(1, PreparedAttempt(before, (), small(data)))
        assert runs.state(1).tried > before.tried
        digests.append(blake3(data).digest())
    assert (runs.attempts(3), runs.attempts(1), runs.state(1).head) == (digests, [], 3)
    every = runs.all_attempts(0, 9)
    assert [digest for _, digest in every] == digests
    assert (runs.all_attempts(every[0][0], 9), runs.all_attempts(0, 1)) == (every[1:], every[:1])
    runs.attempt(1, PreparedAttempt(runs.state(1), (), small(b"first")))
    runs.attempt(2, PreparedAttempt(runs.state(2), (), small(b"first")))
    assert [sorted(runs.attempted(one, 9)) for one in digests] == [[2, 3], [3]]
    assert (len(runs.attempted(digests[0], 1)), runs.attempted(UNKNOWN, 9)) == (1, [])


def test_statuses(database: Database, runs: Runs) -> None:
    """A run is suspended and resumed, each from the other, as a move of its head that is logged."""
    assert runs.set_status(1, "suspended", "suspend").status == "suspended"
    assert (runs.state(1).status, last_op(database)) == ("suspended", "suspend")
    with pytest.raises(ConflictError):
        runs.set_status(1, "suspended", "suspend")
    assert runs.set_status(1, "active", "resume").status == "active"
    with pytest.raises(ConflictError):
        runs.set_status(1, "active", "resume")
    with pytest.raises(UnknownRunError):
        runs.set_status(9, "active", "resume")


def test_forks(database: Database, runs: Runs) -> None:
    """A fork goes on from a turn of another run; it is that run's but for its head and label."""
    assert runs.fork(1, 1, "fork") == 3
    info, origin = runs.get(3), runs.get(1)
    assert info is not None
    assert origin is not None
    assert (info.name, info.group, info.start) == ("one", "g", origin.start)
    assert (info.fork_of, info.head_turn_id, info.status) == (1, 1, "active")
    assert (runs.started(1, 9), runs.started(1, 1), runs.started(3, 9)) == ([1, 3], [1], [])
    assert database.contexts.named("fork") == 3
    with pytest.raises(ConflictError):
        runs.fork(1, 1, "fork")
    with pytest.raises(UnknownRunError):
        runs.fork(9, 1, None)


def test_who_reports(database: Database, runs: Runs) -> None:
    """The source of a run, which its forks have too, goes before the setting; neither is silence."""

    def sources() -> list[str]:
        return [event.source for event in database.events.page("", 0, 99, 99).events]

    def change(run_id: int) -> None:
        take(runs, run_id, b"a step")
        runs.attempt(run_id, PreparedAttempt(runs.state(run_id), (), small(b"failed")))
        runs.set_status(run_id, "suspended", "suspend")

    change(1)
    assert runs.fork(1, 1, None) == 3
    assert sources() == []
    own = runs.start(begin("three", source="own"))
    fork = runs.fork(own, database.contexts.head(own) or 0, None)
    change(fork)
    assert sources() == ["own"] * 5
    database.settings.put("runs.emit", "all")
    change(own)
    assert sources() == ["own"] * 8
    change(2)
    assert runs.fork(2, 2, None) == 6
    assert sources()[8:] == ["all"] * 4
    database.settings.put("runs.emit", None)
    change(3)
    assert len(sources()) == 12


def test_changes(database: Database, runs: Runs) -> None:
    """Each change has a number above all others; the last one of each run is found by it."""

    def changes(after: int, upto: int, limit: int = 9, group: str | None = None) -> list[Any]:
        found = runs.changes(after, upto, limit, group)
        assert all(one.run == runs.get(one.run_id) for _, one in found)
        return [(number, one.op, one.run_id) for number, one in found]

    assert (runs.last_change(), changes(0, 9)) == (3, [(2, "start", 2), (3, "step", 1)])
    take(runs, 1, b"another step")
    assert (runs.last_change(), changes(0, 9)) == (4, [(2, "start", 2), (4, "step", 1)])
    assert (changes(2, 9), changes(0, 3), changes(0, 9, 1)) == (
        [(4, "step", 1)],
        [(2, "start", 2)],
        [(2, "start", 2)],
    )
    assert (changes(0, 9, group="g"), changes(0, 9, group="x")) == ([(4, "step", 1)], [])
    database.contexts.delete(1)
    assert (runs.last_change(), changes(0, 9)) == (5, [(2, "start", 2), (5, "remove", 1)])
    assert (changes(0, 9, group="g"), changes(0, 9, group="")) == (
        [(5, "remove", 1)],
        [(2, "start", 2)],
    )
    with pytest.raises(ZeroDivisionError), database.write():
        runs.set_status(2, "suspended", "suspend")
        assert runs.last_change() == 6
        raise ZeroDivisionError
    assert runs.last_change() == 5
    database.contexts.create("plain", 0, None)
    database.contexts.delete(database.contexts.named("plain") or 0)
    assert runs.last_change() == 5


def test_lists(runs: Runs) -> None:
    """Runs come by id, of a group or all, by status and by the day of their end."""
    runs.start(begin("three", group="g"))
    runs.set_status(2, "suspended", "suspend")
    take(runs, 3, b"end", becomes="completed")

    active, ended = RunChoice(active=True), RunChoice(day=DAY)

    def ids(page: list[Any]) -> list[int]:
        return [info.run_id for info in page]

    assert (ids(runs.page(0, 9, RunChoice())), ids(runs.page(1, 1, RunChoice()))) == (
        [1, 2, 3],
        [2],
    )
    assert (ids(runs.page(0, 9, RunChoice("g"))), ids(runs.page(0, 9, active))) == ([1, 3], [1, 2])
    assert (ids(runs.page(1, 9, active)), ids(runs.page(0, 9, RunChoice("g", active=True)))) == (
        [2],
        [1],
    )
    assert (ids(runs.page(0, 9, ended)), ids(runs.page(3, 9, ended))) == ([3], [])
    assert ids(runs.page(0, 9, RunChoice(day="2026-03-19"))) == []
    assert ids(runs.page(0, 9, RunChoice("other", day=DAY))) == []
    (done,) = runs.page(0, 9, ended)
    assert (done.completed_at_ms, done) == (1773829800123, runs.get(3))
    assert [info.label for info in runs.page(0, 9, RunChoice())] == [None, "second", None]


def test_a_run_is_no_context_to_append_to(database: Database, runs: Runs) -> None:
    """The context of a run takes no turn and no move but as a run, and goes with the run."""
    with pytest.raises(ConflictError):
        database.turns.append(1, new(b"x"), AppendTo())
    with pytest.raises(ConflictError):
        database.contexts.move(1, 1, "move")
    assert database.contexts.move(1, 1, "move", run=True).head_turn_id == 1
    database.contexts.delete(1)
    assert (runs.get(1), runs.has(1), runs.starts()) == (None, False, {2})


def test_an_undone_transaction_takes_all_along(
    database: Database, opened: eventq.Thread, runs: Runs
) -> None:
    """What a `write` did to runs is seen inside it, and is undone with it."""
    before = runs.page(0, 9, RunChoice())
    with pytest.raises(ZeroDivisionError), database.write():
        runs.start(begin("three"))
        runs.fork(1, 1, None)
        runs.set_status(2, "suspended", "suspend")
        take(runs, 1, b"end", becomes="completed")
        assert [info.status for info in runs.page(0, 9, RunChoice())] == [
            "completed", "suspended", "active", "active",
        ]  # fmt: skip
        raise ZeroDivisionError
    assert runs.page(0, 9, RunChoice()) == before
    assert (list(database.faults("runs")), database.copies.last_ids().turn) == ([], 3)
