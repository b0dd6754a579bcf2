"""A moved thread, or a link to another: no refused write is stored."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import NotAThreadError
from tests.contract.test_reading import ids
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Write = Callable[[eventq.Thread], object]

BLOB = "blob:blake3:" + "0" * 64


def tables(folder: str) -> dict[str, list[Any]]:
    """Return all that a database holds."""
    connection = apsw.Connection(os.path.join(folder, "events.db"))
    names = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    found = {str(name): connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    connection.close()
    return found


@pytest.fixture(params=["moved", "moved, and another thread is there", "a link to a copy"])
def elsewhere(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[eventq.Thread, Callable[[], None], list[str]]]:
    """Yield an open thread, a function that takes its directory away, and the folders that nothing may change then.

    The copy has the times of the directory that it was made of.
    """
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")  # no power is cut here
    first, second, path = (str(tmp_path / name) for name in ("first", "second", "thread"))
    eventq.init(first)
    os.symlink(first, path)

    def leave() -> None:
        os.unlink(path)
        if request.param == "a link to a copy":
            shutil.copytree(first, second)
            os.symlink(second, path)
            assert os.stat(path).st_mtime_ns == os.stat(first).st_mtime_ns
        elif request.param != "moved":
            eventq.init(path)

    with eventq.open(path) as thread:
        yield thread, leave, [first, second if request.param == "a link to a copy" else path]


def prepare(thread: eventq.Thread) -> dict[str, Any]:
    """Store some of everything, and give what is held of it."""
    thread.push_many([("self", "note", str(number)) for number in range(5)])
    thread.subscribe("w", "true", filter="type = 'other'")
    thread.pop("w", 2)
    thread.contexts.create("c").append("one")
    thread.push("self", "note", "keyed", key="k")
    run = thread.runs.start("flow", "do it")
    return {
        "context": thread.contexts.get("c"), "open": thread.contexts.create("d").open_turn(), "run": run,
        "writer": thread.artifacts.allocate("tool"), "blob": thread.blobs.put(b"pinned"),
    }  # fmt: skip


WRITES: list[Callable[[eventq.Thread, dict[str, Any]], object]] = [
    lambda thread, _: thread.push("self", "note", "x"),
    lambda thread, _: thread.push("self", "note", "x", key="l"),
    lambda thread, _: thread.push("self", "note", BLOB),
    lambda thread, _: thread.push_many([("self", "note", "x")]),
    lambda thread, _: thread.push_many([("self", "note", "x", None, "l")]),
    lambda thread, _: thread.write().__enter__(), lambda thread, _: thread.pop("w", 4),
    lambda thread, _: thread.ack("w", 4), lambda thread, _: thread.ack("w", 1, replay=True),
    lambda thread, _: thread.subscribe("v", "true"), lambda thread, _: thread.unsubscribe("w"),
    lambda thread, _: thread.resume("w"), lambda thread, _: thread.prune(keep_last=1, force=True),
    lambda thread, _: thread.contexts.create("e"), lambda _, held: held["context"].append("two"),
    lambda _, held: held["context"].fork(), lambda _, held: held["open"].append_delta(b"x"),
    lambda _, held: held["open"].seal(), lambda _, held: held["run"].suspend(),
    lambda thread, _: thread.blobs.put(b"others"),
    lambda thread, held: thread.blobs.pin(held["blob"].ref, "name"),
    lambda thread, _: thread.artifacts.put(b"x"),
    lambda _, held: (held["writer"].write(b"x" * 200_000), held["writer"].seal()),
    lambda thread, _: thread.outputs.put("Scout", b"x"), lambda thread, _: thread.rebuild_mirror(),
    lambda thread, _: thread.gc(apply=True, grace=0),
]  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_what_is_refused_is_not_stored(
    elsewhere: tuple[eventq.Thread, Callable[[], None], list[str]],
    write: Callable[[eventq.Thread, dict[str, Any]], object],
) -> None:
    """Each write raises NotAThreadError, and neither place contains any of it."""
    thread, leave, folders = elsewhere
    held = prepare(thread)
    leave()
    before = [tables(folder) for folder in folders if os.path.exists(folder)]
    for _ in range(2):
        with pytest.raises(NotAThreadError):
            write(thread, held)
    assert [tables(folder) for folder in folders if os.path.exists(folder)] == before


@pytest.mark.parametrize("has_mirror", [False, True])
def test_what_is_taken_away_meanwhile_is_not_acknowledged(
    elsewhere: tuple[eventq.Thread, Callable[[], None], list[str]], *, has_mirror: bool
) -> None:
    """A thread whose directory is taken away before the commit says so, and wakes nobody.

    Otherwise the program would go on with what nobody finds at the path.
    """
    thread, leave, _ = elsewhere
    held = prepare(thread)
    effects: list[str] = []
    with pytest.raises(NotAThreadError), thread.write():
        held["context"].append("two")
        if has_mirror:
            thread.push("self", "note", "x")
        thread.database.on_commit(lambda: effects.append("run"))
        leave()
    assert effects == []


def test_an_event_is_stored_once_by_who_tries_again(tmp_path: Path) -> None:
    """A push that is refused may be tried again at the new place: the event is there once."""
    path, moved = str(tmp_path / "thread"), str(tmp_path / "moved")
    eventq.init(path)
    with eventq.open(path) as thread:
        thread.push("self", "note", "a")
        os.rename(path, moved)
        with pytest.raises(NotAThreadError):
            thread.push("self", "note", "b")
    with eventq.open(moved) as thread:
        thread.push("self", "note", "b")
        assert [event.content for event in thread.peek()] == ["a", "b"]
        assert ids(thread.peek()) == [1, 2]
        assert thread.check() == []


@pytest.mark.parametrize("write", WRITES)
def test_a_write_after_an_ack_is_as_durable_as_one_before(
    write: Callable[[eventq.Thread, dict[str, Any]], object], tmp_path: Path
) -> None:
    """The relaxed commit of an ack does not affect others: each waits for the disk."""
    with eventq.open(tmp_path / "thread", create=True) as thread:
        held, connection = prepare(thread), sqlite(thread.database).connection
        thread.pop("w", 3)
        assert connection.pragma("synchronous") == 1
        levels: list[bool] = []

        def note() -> bool:
            levels.append(sqlite(thread.database).is_relaxed)
            return False

        connection.set_commit_hook(note)
        made = write(thread, held)
        if leave := getattr(made, "__exit__", None):  # a block that was entered
            leave(None, None, None)
        connection.set_commit_hook(None)
        state = thread.consumers.state("w")
        is_ack = state is not None and state.acked != 3
        assert levels[:1] in ([], [False]) or is_ack  # a watermark that follows may be lost, too


def test_only_what_may_be_done_again_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """A power cut may undo `done` and `extend`; failures and deaths are kept, and so is a claim."""
    with eventq.open(tmp_path / "thread", create=True) as thread:
        thread.subscribe("w")
        thread.push_many([("self", "note", "x")] * 9)
        one, two, three, four = thread.claim("w", 4)
        is_relaxed = []
        for settle in (
            lambda: thread.extend([one, two]),
            one.done,
            two.retry,
            three.dead,
            lambda: thread.claim("w"),
            lambda: thread.settle(thread.claim("w"), dead=[four]),
        ):
            settle()
            is_relaxed.append(sqlite(thread.database).is_relaxed)
    assert is_relaxed == [True, True, False, False, False, False]
