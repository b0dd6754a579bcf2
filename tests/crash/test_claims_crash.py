"""A worker is killed at every step of a claim, a settle, a death, a replay and a replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.system import clock
from tests.claiming import (
    SPAN,
    attempts,
    dead,
    ids,
    leased,
    progress,
    push,
    settle,
    subscribe,
    take,
)
from tests.crash.support import copy
from tests.crash.test_every_step import fell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq.store.queue_rows import Taken

pytestmark = pytest.mark.usefixtures("quick", "clock")


@pytest.fixture
def template(tmp_path: Path) -> str:
    """Return a thread with a consumer that has claimed nothing yet, for copying."""
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        subscribe(thread.database, ordered_by="type", attempts=1, emit_dead=True)
        for kind in "aabbcc":
            push(thread.database, type=kind)
        thread.database.compact()
    return path


def begun(path: str) -> Taken:
    """Claim the first events of each group, and finish one."""
    with eventq.open(path) as thread:
        claim = take(thread.database, 9)
        assert ids(claim) == [1, 3, 5]
        settle(thread.database, claim, "done", [3])
    return claim


def claiming(path: str, _: Taken) -> None:
    """Claim what the end of an event has let go on."""
    with eventq.open(path) as thread:
        take(thread.database, 9, nonce="n")


def settling(path: str, claim: Taken) -> None:
    """Finish two events as one."""
    with eventq.open(path) as thread:
        settle(thread.database, claim, "done", [1, 5])


def dying(path: str, claim: Taken) -> None:
    """Fail for the last time."""
    with eventq.open(path) as thread:
        settle(thread.database, claim, "retry", [1])


def putting_back(path: str, claim: Taken) -> None:
    """Put an event back without a count, and extend the other lease."""
    with eventq.open(path) as thread:
        settle(thread.database, claim, "retry", [1], counts=False, span=9_000)
        settle(thread.database, claim, "extend", [5], span=90_000)


def declaring_dead(path: str, claim: Taken) -> None:
    """Declare an event dead, whose group goes on."""
    with eventq.open(path) as thread:
        settle(thread.database, claim, "dead", [5])


def reviving(path: str, claim: Taken) -> None:
    """Give two events up, try one of them again, and drop the other."""
    with eventq.open(path) as thread:
        settle(thread.database, claim, "dead", [1, 5])
        assert thread.retry_dead([1]) == 1
        assert thread.drop_dead(None) == 1


def expiring(path: str, _: Taken) -> None:
    """Claim after the last attempts have expired."""
    clock.now.move(SPAN / 1000 + 1)  # type: ignore[attr-defined]
    with eventq.open(path) as thread:
        take(thread.database, 9)


def refiltering(path: str, _: Taken) -> None:
    """Choose another filter, and claim: what is leased stays, what waits and fits is claimed."""
    with eventq.open(path) as thread:
        db = thread.database
        with db.write():
            subscribe(db, filter="id <> 4", attempts=1, ordered_by="type", replace=True)
            db.claims.refilter("w")
        take(db, 9)


def going_back(path: str, _: Taken) -> None:
    """Go back to the first event, and claim all again."""
    with eventq.open(path) as thread:
        thread.database.consumers.pop("w", 1, 0, replay=True)
        thread.database.consumers.pop("w", 0, 0, replay=True)
        take(thread.database, 9)


# What may be found afterwards: leased, dead and newest event, and the progress.
Found = tuple[list[int], list[int], int, int]
BEFORE: Found = ([1, 5], [], 6, 0)
OUTCOMES: list[tuple[Callable[[str, Taken], None], list[Found]]] = [
    (claiming, [([1, 5], [], 6, 0), ([1, 4, 5], [], 6, 0)]),
    (settling, [([1, 5], [], 6, 0), ([], [], 6, 1)]),
    (dying, [([1, 5], [], 6, 0), ([5], [1], 7, 1)]),
    (putting_back, [BEFORE, ([5], [], 6, 0)]),
    (declaring_dead, [BEFORE, ([1], [5], 7, 0)]),
    (
        reviving,
        [BEFORE, ([], [1, 5], 8, 1), ([], [5], 8, 1), ([], [], 8, 1)],
    ),
    (expiring, [BEFORE, ([2, 4, 6], [1, 5], 8, 1)]),
    (refiltering, [BEFORE, ([1, 5], [], 6, 0)]),
    (
        going_back,
        [([1, 5], [], 6, 0), ([1, 5], [], 6, 1), ([], [], 6, 0), ([1, 3, 5], [], 6, 0)],
    ),
]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("work", "outcomes"), OUTCOMES)
def test_a_worker_may_be_killed_at_any_step(
    work: Callable[[str, Taken], None],
    outcomes: list[Found],
    every: bool,
    template: str,
    tmp_path: Path,
) -> None:
    """All of a change is stored or nothing of it, and everything can be finished afterwards."""
    path, number, going = str(tmp_path / "thread"), 0, True
    seen = []
    while going:
        number += 1 if every else 13
        copy(template, path)
        claim = begun(path)
        going = fell(number, lambda: work(path, claim), every=every)  # noqa: B023
        with eventq.open(path) as thread:
            db = thread.database
            assert thread.check() == []
            now = (leased(db), dead(db), db.events.last(), progress(db))
            # A replay that no claim has followed yet leaves the leases in their rows.
            assert now in [*outcomes, ([1, 5], [], 6, 0)]
            seen.append(now)
            finish(thread)
    assert number > (100 if every else 20)
    assert seen[0] == outcomes[0]
    assert seen[-1] == outcomes[-1]


def finish(thread: eventq.Thread) -> None:
    """Replay all, and finish it: nothing is lost."""
    db = thread.database
    last = db.events.last()
    db.consumers.pop("w", last, 0, replay=True)
    db.consumers.pop("w", 0, 0, replay=True)
    found: dict[int, int] = {}
    while ids(claim := take(db, 9)):
        found.update(attempts(claim))
        settle(db, claim)
    state = db.consumers.get("w")
    skipped = {4} if state is not None and state.filter else set()
    assert found == dict.fromkeys({*range(1, last + 1)} - skipped, 1)
    assert progress(db) == last
    assert thread.check() == []
