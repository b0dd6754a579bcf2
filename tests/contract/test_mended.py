"""What an attack found and was mended: readers in a busy thread, rows of other tools, copies, forks, clocks."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq import system
from eventq.errors import ClosedError, DamagedError, FilterError, ReadOnlyError, UsageError
from eventq.storage.sqlite import migrate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMED = "created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 seconds')"


def readonly_recovery() -> apsw.ReadOnlyError:
    """Give the error of a reader that came while a writer made the index of the WAL."""
    error = apsw.ReadOnlyError("ReadOnlyError: attempt to write a readonly database")
    error.extendedresult = apsw.SQLITE_READONLY_RECOVERY  # type: ignore[attr-defined]
    return error


def test_a_reader_outlasts_a_recovery(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READONLY_RECOVERY passes: the store and its fence try again, at opening and later, and then work."""
    thread.push("self", "note", "x")
    left = [20]

    def disturbed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any, **words: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                raise readonly_recovery()
            return call(*values, **words)

        return run

    monkeypatch.setattr(migrate, "version", disturbed(migrate.version))
    with eventq.open(thread.path, read_only=True) as reader:
        assert left[0] < 0
        monkeypatch.setattr(
            reader.database.sandbox, "page", disturbed(reader.database.sandbox.page)
        )
        left[0] = 20
        assert [event.content for event in reader.peek(filter="id = 1")] == ["x"]
        assert left[0] < 0


def test_a_recovery_that_never_ends_is_an_error(thread: eventq.Thread) -> None:
    """A reader gives up after a while, and refuses a real attempt to write at once."""
    with eventq.open(thread.path, read_only=True) as reader:
        tries = []

        def never(_: object) -> None:
            tries.append(1)
            raise readonly_recovery()

        with pytest.raises(ReadOnlyError):
            reader.database.steady(never)
        assert len(tries) > 1


def test_time_makes_an_event_match(thread: eventq.Thread, raw: apsw.Connection) -> None:
    """A filter that looks at the clock leaves no watermark, so what matches later is found later."""
    raw.execute(
        "INSERT INTO events (created_at, source, type, content) VALUES ('2999-01-01', 's', 't', 'x')"
    )
    thread.subscribe("w", "true", filter=TIMED)
    assert not thread.consumers.due(thread.consumers.known("w"))
    assert thread.consumers.known("w").scanned == 0
    raw.execute("UPDATE events SET created_at = '2000-01-01'")
    assert thread.consumers.due(thread.consumers.known("w"))


BAD_TEXT = ["x'61ff'", "CAST(x'61ff' AS TEXT)"]


@pytest.mark.parametrize("value", BAD_TEXT)
def test_content_that_is_not_utf8(path: str, raw: apsw.Connection, value: str) -> None:
    """Reading it is a DamagedError, pushes go on, the mirror is whole, and `check` names the event."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "one")
        raw.execute(
            f"INSERT INTO events (created_at, source, type, content) VALUES ('', 's', 't', {value})"
        )
        assert thread.push("self", "note", "three").id == 3
        reads: list[Callable[[], Any]] = [
            thread.last,
            lambda: list(thread.peek()),
            lambda: list(thread.peek(filter="id > 0")),
        ]
        for read in reads:
            with pytest.raises(DamagedError, match="not UTF-8"):
                read()
        assert any(fault.startswith("event 2 ") for fault in thread.check())
        assert not any("events.jsonl" in fault for fault in thread.check())
        assert thread.rebuild_mirror() == 3
    with (
        eventq.open(path) as thread,
        open(os.path.join(path, "events.jsonl"), encoding="utf-8") as mirror,
    ):
        assert "a\ufffd" in mirror.read()
        assert thread.push("self", "note", "four").id == 4


@pytest.mark.parametrize("value", BAD_TEXT)
def test_a_mirror_that_ends_in_bad_text(path: str, raw: apsw.Connection, value: str) -> None:
    """A push goes on after the line of an event that is not UTF-8."""
    raw.execute(
        f"INSERT INTO events (created_at, source, type, content) VALUES ('', 's', 't', {value})"
    )
    with eventq.open(path) as thread:
        thread.rebuild_mirror()
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 2


def test_a_blob_that_is_text_is_read_as_text(path: str, raw: apsw.Connection) -> None:
    """Content that another tool stored as a BLOB is given as text, and `check` says what it is."""
    raw.execute(
        "INSERT INTO events (created_at, source, type, content) VALUES ('', 's', 't', CAST('h\u00e9' AS BLOB))"
    )
    with eventq.open(path) as thread:
        assert [e.content for e in (*thread.last(), *thread.peek(filter="id > 0"))] == [
            "h\u00e9",
            "h\u00e9",
        ]
        assert "event 1 has content that is not text" in thread.check()


@pytest.mark.parametrize(
    "value", ["x'31'", "x'31ff'", "CAST(x'31ff' AS TEXT)", "CAST(x'2731ff27' AS TEXT)"]
)
def test_a_filter_that_is_not_text(path: str, raw: apsw.Connection, value: str) -> None:
    """A filter that another tool stored as a BLOB or bad UTF-8 is refused, and harms no other consumer."""
    with eventq.open(path) as thread:
        thread.subscribe("good", "true")
        raw.execute(
            f"INSERT INTO subscriptions (consumer_id, handler_cmd, filter) VALUES ('bad', 'true', {value})"
        )
        thread.push("self", "note", "x")
        assert [s.consumer_id for s in thread.subscriptions()] == ["good", "bad"]
        assert thread.consumers.due(thread.consumers.known("good"))
        with pytest.raises(FilterError):
            thread.consumers.due(thread.consumers.known("bad"))
        with pytest.raises(FilterError):
            thread.pop("bad", 0)
        assert [c.pending for c in thread.info().subscriptions] == [1, None]


def test_a_copy_without_shared_memory_is_read(thread: eventq.Thread, tmp_path: Path) -> None:
    """A copy with a WAL and without -shm is read whole, nothing is made, and a writer that comes is seen."""
    thread.push("self", "note", "x")
    copy = str(tmp_path / "copy")
    shutil.copytree(thread.path, copy)
    os.unlink(os.path.join(copy, "events.db-shm"))
    before = sorted(os.listdir(copy))
    with eventq.open(copy, read_only=True) as reader:
        assert [e.content for e in reader.peek(filter="id > 0")] == ["x"]
        assert reader.info().event_count == 1
        assert sorted(os.listdir(copy)) == before
        with eventq.open(copy) as writer:
            writer.push("self", "note", "y")
            assert reader.last_id() == 2


def test_a_fork_beside_a_write_is_refused(thread: eventq.Thread) -> None:
    """A child that was forked while another thread was inside `write` gets ClosedError and does not wait."""
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with thread.write():
            inside.set()
            done.wait(120)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert inside.wait(120)
        store = thread.database
        for call in (
            lambda: thread.push("self", "note", "x"), thread.last_id, lambda: thread.write().__enter__(), thread.last,
            lambda: store.on_commit(lambda: None), lambda: store.write(relaxed=True).__enter__(), store.consumers.any,
        ):  # fmt: skip
            assert system.wait(forked(call), 60) == 7
    finally:
        done.set()
        holder.join()


def forked(call: Callable[[], Any]) -> int:
    """Call something in a child that ends with 7 for ClosedError, and give its pid."""
    pid = os.fork()
    if not pid:
        try:
            call()
        except ClosedError:
            os._exit(7)
        finally:
            os._exit(1)
    return pid


def test_check_beside_a_push_and_an_ack(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pushed and acked after `check` looked up the newest id is no fault."""
    thread.subscribe("w", "true")
    thread.push("self", "note", "x")
    thread.ack("w", 1)
    monkeypatch.setattr(thread.database.events, "last", lambda: 0)
    assert list(thread.database.faults()) == []


def test_a_note_after_an_unsubscribe_leaves_nothing(
    thread: eventq.Thread, raw: apsw.Connection
) -> None:
    """A supervisor that notes attempts or a stall of a consumer that has gone makes no row."""
    thread.subscribe("w", "true")
    state = thread.consumers.known("w")
    thread.unsubscribe("w")
    thread.consumers.note_attempts(state, 1)
    thread.consumers.stall(state, "late")
    assert raw.execute("SELECT count(*) FROM subscription_state").fetchall() == [(0,)]


def test_a_read_only_thread_changes_nothing(thread: eventq.Thread) -> None:
    """Every method that would change something raises ReadOnlyError, and no file is changed."""
    thread.push("self", "note", "x")
    thread.subscribe("w", "true")
    with eventq.open(thread.path, read_only=True) as reader:
        before = {e.name: e.stat().st_mtime_ns for e in os.scandir(thread.path)}
        for call in (
            reader.rebuild_mirror, reader.dispatch, lambda: reader.prune(keep_last=0), lambda: reader.resume("w"),
            lambda: reader.subscribe("v", "true"), reader.write, lambda: reader.unsubscribe("w"),
        ):  # fmt: skip
            with pytest.raises(ReadOnlyError):
                call()
        assert {e.name: e.stat().st_mtime_ns for e in os.scandir(thread.path)} == before


def test_the_newest_events_are_read_in_pages(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`last` fetches large events page by page, and gives all of them in order."""
    monkeypatch.setattr("eventq.storage.sqlite.events.PAGE_BYTES", 100)
    thread.push_many([("self", "note", str(n) * 60) for n in range(9)])
    pages = []
    page = thread.database.events._newest_page

    def counted(*values: Any) -> Any:
        pages.append(page(*values))
        return pages[-1]

    monkeypatch.setattr(thread.database.events, "_newest_page", counted)
    assert [event.id for event in thread.last(7)] == [3, 4, 5, 6, 7, 8, 9]
    assert [len(rows) for rows, _ in pages] == [2, 2, 2, 1]


def test_arguments_of_the_wrong_kind(thread: eventq.Thread) -> None:
    """What is no path, number or text is the caller's mistake."""
    anything: Any = thread
    calls: list[Callable[[], Any]] = [
        lambda: eventq.open(os.fsencode(thread.path)),  # type: ignore[arg-type]
        lambda: eventq.init(b"x"),  # type: ignore[arg-type]
        lambda: anything.subscribe("w", "true", max_attempts=1.5),
        lambda: anything.subscribe("w", "true", timeout="1"),
        lambda: anything.subscribe("w", b"true"),
        lambda: anything.subscribe("w", "true", filter=3),
    ]
    for call in calls:
        with pytest.raises(UsageError):
            call()


def test_a_filter_that_cannot_be_read_gives_nothing_to_a_pop(tmp_path: Path) -> None:
    """A BLOB in the filter's place is refused, also where its bytes would spell a condition, and the ack stays."""
    path = eventq.init(tmp_path / "t")
    with eventq.open(path) as thread:
        thread.push("self", "record", "x")
        thread.subscribe("w", "true")
    with apsw.Connection(f"{path}/events.db") as db:
        db.execute("UPDATE subscriptions SET filter = x'31'")
    db.close()
    with eventq.open(path) as thread:
        for acked in (0, 1):
            with pytest.raises(eventq.FilterError):
                thread.pop("w", acked)
        assert thread.info().subscriptions[0].updated_at is None
