"""A thread of an older eventq, whose tokens were not counted: they are, some at a time."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.records.run import NewStep
from eventq.records.spent import UsageSum
from eventq.sessions import counting
from eventq.sessions import sums as sums_module
from eventq.store.sqlite import migrate
from tests.contract.test_usage import CODEX, Entry, asked, claude, load, said, sums

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")
OLD = migrate.USAGE - 1


def take_back(path: str) -> None:
    """Make a thread one of the schema before, and leave what was counted out."""
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.execute("DROP TABLE usage; DROP TABLE usage_read")
    connection.execute(f"DROP VIEW {migrate.CURRENT}; CREATE VIEW schema_{OLD} AS SELECT 1")
    connection.execute("DELETE FROM migrations WHERE number > ?", (OLD,))
    connection.pragma("user_version", OLD)
    connection.close()


def counted(thread: eventq.Thread, *names: str) -> list[UsageSum]:
    """Return all sums, or those of some contexts, when all is counted."""
    while not thread.usage().is_all:
        pass
    if names:
        return [thread.usage(context=name) for name in names]
    return [*sums(thread), thread.usage(context="c")]


LONG = [asked(0), *(claude(n, f"r{n // 3}", n, timestamp=f"2026-03-01T1{n % 10}:00:00Z")
                    for n in range(1, 60))]  # fmt: skip


def fill(path: str, folder: Path) -> list[UsageSum]:
    """Store sessions, a chat, its fork and a run; return what was used."""
    with eventq.open(path) as thread:
        load(thread, folder, LONG)
        load(thread, folder, CODEX, "c")
        chat = thread.contexts.create("chat")
        for n in range(40):
            chat.append(said(n + 1, f"r{n // 2}"))
        chat.append(b"\xff")
        thread.contexts.fork("chat", name="fork").append(said(50))
        run = thread.runs.start("work", "do it", label="run")
        run.attempt("a", {"usage": {"output_tokens": 4}}, "bad")
        tried = NewStep("a", {"usage": {"output_tokens": 30}}, "worse")
        run.step(NewStep("a", {"usage": {"output_tokens": 500}}, "one", attempts=(tried,)))
        run.step("b", {}, "two")
        chat.append(json.dumps({"type": "state"}))
        return [*sums(thread), thread.usage(context="c")]


@pytest.mark.parametrize("page", [7, 1_000])
def test_all_of_it_is_counted_when_it_is_asked(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Some with each question, of which none says that it knows all before."""
    expected = fill(path, tmp_path)
    take_back(path)
    with eventq.open(path, read_only=True) as thread:
        assert thread.usage() == UsageSum(is_all=False)
        assert (thread.usage(context="s").out, thread.usage_by_hour(0)) == (0, [])
    monkeypatch.setattr(counting, "PAGE", page)
    with eventq.open(path) as thread:
        asked_for = 0
        while not thread.usage().is_all:
            asked_for += 1
            assert asked_for < 9
        assert [*sums(thread), thread.usage(context="c")] == expected
        assert thread.check() == []


def test_a_session_that_goes_on_is_counted_as_a_whole(path: str, tmp_path: Path) -> None:
    """What is new is counted at once, the rest with it."""
    fill(path, tmp_path)
    take_back(path)
    more: list[Entry] = [*LONG, asked(60), claude(61, "r99", 1_000)]
    with eventq.open(path) as thread:
        load(thread, tmp_path, more)
        found = thread.usage(context="s")
    with eventq.open(eventq.init(tmp_path / "fresh")) as thread:
        load(thread, tmp_path, more)
        assert found == thread.usage(context="s")


@pytest.mark.parametrize("asked_for", [None, 0, 3, 4, 5])
def test_a_copy_has_all_of_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_for: int | None
) -> None:
    """Also of a thread that is only read: before its tables are there, and while it is counted."""
    expected = fill(path, tmp_path)
    take_back(path)
    monkeypatch.setattr(counting, "PAGE", 7)
    monkeypatch.setattr(sums_module, "LINES", 20)
    if asked_for is not None:
        with eventq.open(path) as thread:
            for _ in range(asked_for):
                assert not thread.usage().is_all
    with eventq.open(path, read_only=True) as thread:
        before = thread.usage()
        thread.export_pack(tmp_path / "pack")
        with eventq.open(eventq.init(tmp_path / "copy")) as other:
            for _ in range(2):
                thread.copy_to(other)
                assert counted(other) == expected
        with eventq.open(eventq.init(tmp_path / "part")) as other:
            assert thread.copy_to(other, ["fork", "s"]).notes == ()
            assert counted(other, "s", "fork") == [expected[0], expected[2]]
        assert thread.usage() == before
    with eventq.open(eventq.init(tmp_path / "packed")) as other:
        assert other.import_pack(tmp_path / "pack").notes == ()
        assert counted(other) == expected


def test_a_copy_of_what_goes_on_counts_once(path: str, tmp_path: Path) -> None:
    """A response that was stored before and after has the most that is said of it."""
    with eventq.open(path) as thread:
        thread.contexts.create("chat").append(said(5, "r"))
    take_back(path)
    with eventq.open(path) as thread:
        thread.contexts.get("chat").append(said(60, "r"))
        thread.contexts.get("chat").append(said(7, "r"))
        with eventq.open(eventq.init(tmp_path / "copy")) as other:
            thread.copy_to(other)
            assert other.usage().out == 60
            assert other.usage().responses == 1
        assert thread.usage().out == 60


def test_a_session_that_is_removed_meanwhile(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may do so between two looks: the next session is counted as a whole."""
    expected = fill(path, tmp_path)
    take_back(path)
    with eventq.open(path) as thread:
        usage = type(thread.database.memory.usage)
        real, gone = usage.behind, [(0, 30, 60), (99, 30, 60)]
        monkeypatch.setattr(usage, "behind", lambda self: gone.pop() if gone else real(self))
        while not thread.usage().is_all:
            pass
        assert [*sums(thread), thread.usage(context="c")] == expected


def test_damage_does_not_keep_the_rest_from_being_counted(path: str, tmp_path: Path) -> None:
    """A payload that is not whole is left out: `check` finds it."""
    fill(path, tmp_path)
    take_back(path)
    connection = apsw.Connection(os.path.join(path, "events.db"))
    connection.execute("UPDATE blob_bytes SET bytes = x'00' WHERE blob_id IN (3, 90)")
    connection.close()
    with eventq.open(path) as thread:
        assert thread.usage().is_all
        assert thread.usage().out > 1_000
