"""Following the changes of runs: all of them, each once, in its newest state, whoever makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import InputError, StoreError
from eventq.memory import runs as domain
from eventq.records.run import NewRun, RunChange
from tests.contract.runs import grow
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq import Thread
    from eventq.memory.runs import Run

    Act = Callable[[], object]
    Seen = list[list[tuple[str, int, str | None]]]  # op, run and status of each page

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]
LONG = 60.0  # seconds that nobody waits in vain


class OverError(Exception):
    """The last act is over."""


class Acts:
    """A real watcher of a thread, but that something happens whenever it is to wait."""

    def __init__(self, thread: Thread, acts: tuple[Act, ...], *, rings: bool) -> None:
        self._watcher = thread.database.watch()
        self._acts = list(acts)
        self._seconds = LONG if rings else 0  # the bell is heard by another OS thread
        self.woken: list[bool] = []

    def __enter__(self) -> Acts:
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.close()

    def wait(self, seconds: float) -> bool:
        """Let the next thing happen, then wait for it as ever."""
        assert seconds <= 1
        if not self._acts:
            raise OverError
        self._acts.pop(0)()
        self.woken.append(self._watcher.wait(self._seconds))
        return self.woken[-1]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Seen]:
    """Return a function that watches while something happens, one thing in each wait."""

    def look(thread: Thread, *acts: Act, group: str | None = None, rings: bool = True) -> Seen:
        played = Acts(thread, acts, rings=rings)
        pages: Seen = []
        with monkeypatch.context() as patch, pytest.raises(OverError):
            patch.setattr(thread.database, "watch", lambda: played)
            pages.extend(map(shown, thread.runs.watch_pages(group)))
        assert played.woken == [rings] * len(acts)
        return pages

    def shown(page: Any) -> list[tuple[str, int, str | None]]:
        return [(one.op, one.run_id, one.run and one.run.status) for one in page]

    return look


@pytest.fixture
def run(thread: Thread) -> Run:
    """Return a run of group `g` with two steps, with id 1."""
    made = thread.runs.start(NewRun("w", "p", group="g"), label="main")
    grow(made, "a", "b")
    return made


def test_what_is_under_way_comes_first(thread: Thread, run: Run) -> None:
    """Active and suspended runs by id, as they are now; then what they become."""
    other = thread.runs.start("w", "p")
    other.suspend()
    thread.runs.start("w", "p").end()
    found: Any = thread.runs.watch()
    assert next(found) == RunChange("active", 1, run.info())
    assert next(found) == RunChange("active", 2, other.info())
    other.resume()
    run.step("c")
    assert next(found) == RunChange("resume", 2, other.info())
    assert next(found) == RunChange("step", 1, run.info())
    found.close()


def test_every_change_is_seen(
    thread: Thread, run: Run, other: Thread, tmp_path: Path, watch: Callable[..., Seen]
) -> None:
    """Whatever is done to a run comes with what was done, and with the status that it has then."""
    other.runs.start("theirs", "p", label="theirs")
    grow(other.runs.get("theirs"), "a")

    def bring() -> None:
        other.export_pack(tmp_path / "pack")
        thread.import_pack(tmp_path / "pack")

    acts: list[tuple[Act, tuple[str, int, str | None]]] = [
        (lambda: run.step("c"), ("step", 1, "active")),
        (lambda: run.attempt("c"), ("attempt", 1, "active")),
        (run.poke, ("poke", 1, "active")),
        (lambda: run.compact("sum"), ("compact", 1, "active")),
        (run.suspend, ("suspend", 1, "suspended")),
        (run.resume, ("resume", 1, "active")),
        (run.end, ("end", 1, "completed")),
        (run.fork, ("fork", 2, "active")),
        (lambda: thread.runs.get(2).cancel(), ("end", 2, "cancelled")),
        (lambda: thread.runs.start("w", "p"), ("start", 3, "active")),
        (bring, ("import", 4, "active")),
        (lambda: thread.contexts.delete("main"), ("remove", 1, None)),
    ]
    seen = watch(thread, *[act for act, _ in acts])
    assert seen == [[("active", 1, "active")], *[[expected] for _, expected in acts]]


def test_what_changes_twice_between_two_looks_comes_once(
    thread: Thread, run: Run, watch: Callable[..., Seen]
) -> None:
    """In its newest state and in the order of the last changes; an end comes exactly once."""
    two = thread.runs.start("w", "p")

    def much() -> None:
        run.step("c")
        two.step("a")
        run.end()
        thread.runs.start("w", "gone").context.delete()
        two.step("b")

    def nothing() -> None:
        thread.database.ring()

    seen = watch(thread, much, nothing, lambda: two.step("c"))
    assert seen[1:] == [
        [("end", 1, "completed"), ("remove", 3, None), ("step", 2, "active")],
        [("step", 2, "active")],
    ]


def test_nothing_comes_of_what_is_undone(
    thread: Thread, run: Run, watch: Callable[..., Seen]
) -> None:
    """Only what was committed is seen."""

    def undone() -> None:
        with pytest.raises(ZeroDivisionError), thread.write():
            run.end()
            thread.contexts.delete("main")
            raise ZeroDivisionError

    assert watch(thread, undone, rings=False)[1:] == []
    assert watch(thread, lambda: run.step("c"))[1:] == [[("step", 1, "active")]]


def test_runs_of_one_group(thread: Thread, run: Run, watch: Callable[..., Seen]) -> None:
    """Others are left out, also those that are removed."""
    others = [thread.runs.start(NewRun("w", "p", group="other")) for _ in range(2)]

    def change_others() -> None:
        others[0].step("a")
        others[1].context.delete()

    seen = watch(thread, change_others, run.fork, thread.runs.get("main").context.delete, group="g")
    assert seen == [
        [("active", 1, "active")], [("fork", 4, "active")], [("remove", 1, None)],
    ]  # fmt: skip
    assert watch(thread, others[0].end, group="nobody") == []


def test_changes_of_other_groups_are_read_once(
    thread: Thread, run: Run, watch: Callable[..., Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look begins behind them, or each would take longer than the one before."""
    starts: list[int] = []
    changes = thread.runs.engine.changes

    def note(after: int, *more: Any) -> Any:
        starts.append(after)
        return changes(after, *more)

    with monkeypatch.context() as patch:
        patch.setattr(thread.runs.engine, "changes", note)
        begun = thread.runs.engine.last_change()
        assert watch(thread, lambda: grow(run, "c", "d"), run.poke, group="other") == []
    assert starts == [begun, begun, begun + 2]


def test_a_change_between_a_look_and_the_wait_is_not_lost(
    thread: Thread, run: Run, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher listens before the first look, so a change after any look ends the next wait."""
    with eventq.open(path) as other:
        theirs = other.runs.get("main")
        engine, looks = thread.runs.engine, [0]
        changes = engine.changes

        def look(*found: Any) -> Any:
            seen = changes(*found)
            if not seen and looks[0] < 3:  # it is about to wait
                looks[0] += 1
                theirs.step(f"r{looks[0]}")
            return seen

        monkeypatch.setattr(engine, "changes", look)
        monkeypatch.setattr(domain, "SLOW_LOOK", LONG)
        begun = eventq.system.clock.monotonic()
        found: Any = thread.runs.watch()
        assert next(found).op == "active"
        for number in (1, 2, 3):
            change = next(found)
            assert change.run is not None
            assert (change.op, change.run.depth) == ("step", 2 + number)
        assert eventq.system.clock.monotonic() - begun < LONG / 2
        found.close()


def test_a_change_between_the_call_and_the_first_look_is_not_lost(thread: Thread, run: Run) -> None:
    """A run that ended meanwhile is not under way, and its end comes."""
    found: Any = thread.runs.watch()
    run.end()
    assert next(found) == RunChange("end", 1, run.info())
    found.close()


def test_changes_end_where_they_were_counted(thread: Thread, run: Run) -> None:
    """What comes after the number of the last change is left to the next look."""
    engine = thread.database.memory.runs
    last = engine.last_change()
    later = thread.runs.start("w", "p")
    for upto, expected in ((last, [run.id]), (engine.last_change(), [run.id, later.id])):
        assert [one.run_id for _, one in engine.changes(0, upto, 9, None)] == expected


def test_pages_are_bounded(thread: Thread, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page is as it is read: what changes between two pages comes later, in its newest state."""
    engine = type(thread.database.memory.runs)
    page, changes = engine.page, engine.changes
    monkeypatch.setattr(engine, "page", lambda self, after, _, choice: page(self, after, 2, choice))
    monkeypatch.setattr(
        engine, "changes", lambda self, after, upto, _, group: changes(self, after, upto, 2, group)
    )
    made = [run, *[thread.runs.start("w", f"{number}") for number in range(4)]]
    pages: Any = thread.runs.watch_pages()
    assert [[one.run_id for one in next(pages)] for _ in range(3)] == [[1, 2], [3, 4], [5]]
    for one in made:
        one.step("a")
    assert [(one.op, one.run_id) for one in next(pages)] == [("step", 1), ("step", 2)]
    made[2].end()
    made[0].step("b")
    seen = [(one.op, one.run_id, one.run and one.run.depth) for _ in "12" for one in next(pages)]
    assert seen == [("step", 4, 1), ("step", 5, 1), ("end", 3, 2), ("step", 1, 4)]
    pages.close()


def test_a_watcher_that_only_reads(thread: Thread, run: Run, path: str) -> None:
    """It sees what others change."""
    with eventq.open(path, read_only=True) as reader:
        found: Any = reader.runs.watch()
        assert next(found) == RunChange("active", 1, run.info())
        run.step("c")
        assert next(found) == RunChange("step", 1, run.info())
        run.context.delete()
        assert next(found) == RunChange("remove", 1, None)
        found.close()


def test_a_thread_of_the_original_tool(original: str) -> None:
    """One that is only read has no changes to follow, and says what to do."""
    with eventq.open(original, read_only=True) as reader:
        with pytest.raises(StoreError, match="holds no turns or blobs - open it for writing once"):
            reader.runs.watch()
        with eventq.open(original) as thread:
            thread.runs.start("w", "p")
            found: Any = reader.runs.watch()
            assert next(found).op == "active"
            thread.runs.get(1).step("a")
            assert next(found).op == "step"
            found.close()


def test_the_same_pack_again_changes_nothing(
    thread: Thread, run: Run, other: Thread, tmp_path: Path, watch: Callable[..., Seen]
) -> None:
    """A run that an import does not move is not seen; one that goes on is."""
    thread.export_pack(tmp_path / "pack")
    other.import_pack(tmp_path / "pack")

    def longer() -> None:
        run.end()
        thread.copy_to(other)

    def again() -> None:
        other.import_pack(tmp_path / "pack")
        other.database.ring()

    assert watch(other, again, longer) == [
        [("active", 1, "active")], [("import", 1, "completed")],
    ]  # fmt: skip


def test_the_tick_ends_a_wait(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raises reaches the caller; it is called after each wait."""
    monkeypatch.setattr(domain, "SLOW_LOOK", 0.0)

    def tick() -> None:
        raise OverError

    with pytest.raises(OverError):
        next(thread.runs.watch_pages(tick=tick))


def test_a_group_that_is_no_text_is_refused(thread: eventq.Thread) -> None:
    """To wait for the runs of such a group would be to wait for ever."""
    with pytest.raises(InputError, match="group must be text"):
        next(thread.runs.watch(5))  # type: ignore[arg-type]
