"""What is erased is gone from every file of the thread; what stays says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.erasure import traces
from eventq.errors import (
    BusyError,
    ConflictError,
    DiskError,
    ErasedError,
    InputError,
    LogicError,
    ReadOnlyError,
    UnknownArtifactError,
    UsageError,
)
from eventq.log import mirror
from eventq.log.mirror_lines import line as line_of
from eventq.records.checks import ERASED
from eventq.records.info import Erasure
from eventq.store.sqlite import care
from eventq.system.jsontext import quote
from eventq.system.locks import lock_whole
from tests.conftest import write_as_original
from tests.contract.test_write import contents
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Thread
    from eventq.records.event import Commit
    from tests.conftest import Clock

pytestmark = pytest.mark.usefixtures("quick")


# --- events ---------------------------------------------------------------------------------------


def test_an_event_is_erased(thread: Thread, clock: Clock) -> None:
    """The event stays, with another content; nothing of the old one is in any file."""
    texts = [secret(number, size) for number, size in enumerate((40, 400, 9_000, 400))]
    for text in texts:
        thread.push("self", "note", text, "private", key=f"k{text[:9]!r}")
    assert all(remains(thread.path, text) for text in texts)
    made = thread.erasures.event(3, reason="a password")
    assert made == Erasure("event", "3", "a password", 1773829800123, finished=True)
    assert remains(thread.path, texts[2]) == []
    assert contents(thread) == [*texts[:2], ERASED, texts[3]]
    event = [*thread.peek()][2]
    assert (event.source, event.type, event.subtype) == ("self", "note", "private")
    assert [*thread.erasures] == [thread.erasures.get("event", 3)] == [made]
    with open(thread.layout.mirror, encoding="utf-8") as file:
        assert [line for line in file if ERASED in line] == [line_of(event) + "\n"]
    thread.push("self", "note", "later")
    assert thread.check() == []


def test_an_erased_event_keeps_no_blob(thread: Thread) -> None:
    """It names none any more; what another event names stays."""
    gone, kept = thread.blobs.put(b"gone"), thread.blobs.put(b"kept")
    for text in (f"{gone.ref} and {kept.ref}", kept.ref):
        thread.push("self", "note", text)
    thread.erasures.event(1)
    assert thread.blobs.holders(gone.ref) == []
    assert thread.blobs.holders(kept.ref) == ["event 2"]
    assert thread.gc(apply=True, grace=0).hashes == (gone.hash,)


def test_a_rotated_mirror_is_erased(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any file of the mirror may hold the line; the last one and the first are no exception."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 3)
    texts = [secret(number) for number in range(10)]
    for text in texts:
        thread.push("self", "note", text)
    for number in (1, 5, 10):
        thread.erasures.event(number)
        assert remains(thread.path, texts[number - 1]) == []
        assert thread.check() == []
    thread.push("self", "note", "later")
    assert contents(thread).count(ERASED) == 3


def test_a_mirror_of_the_original_is_erased(thread: Thread) -> None:
    """The files that are kept of the original hold no line of it either."""
    texts = [secret(number) for number in range(4)]
    for text in texts:
        thread.push("self", "note", text)
    os.unlink(thread.layout.mirror)
    write_as_original(thread.path, "events.jsonl", 1, 4)
    with eventq.open(thread.path) as again:
        again.push("self", "note", "of another")
        assert os.path.isdir(f"{thread.path}/original-mirror")
        again.erasures.event(2)
        assert remains(thread.path, texts[1]) == []
        assert remains(thread.path, texts[2]) != []


def test_a_rebuild_under_way_does_not_bring_it_back(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild that has read the event before it was erased ends before the mirror is cleaned."""
    text = secret(1)
    thread.push("self", "note", text)
    thread.push("self", "note", "another")
    code = (
        "import sys, eventq; from eventq.log import mirror\n"
        "write = mirror.write_all\n"
        "def slow(fd, block):\n"
        "    write(fd, block)\n"
        "    print('read', flush=True)\n"
        "    sys.stdin.readline()\n"
        "mirror.write_all = slow\n"
        "eventq.open(sys.argv[1]).rebuild_mirror()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, thread.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"read\n"

        def going_on(fd: int, *, wait: bool) -> None:
            monkeypatch.setattr(mirror, "lock_whole", lock_whole)
            assert other.stdin is not None
            other.stdin.write(b"\n")
            other.stdin.flush()
            lock_whole(fd, wait=wait)

        monkeypatch.setattr(mirror, "lock_whole", going_on)
        thread.erasures.event(1)
        assert other.wait(60) == 0
    assert remains(thread.path, text) == []


@pytest.mark.parametrize(
    "name", ["events.jsonl.new", "events.jsonl.rebuilt", "events.jsonl.rewritten"]
)
def test_what_a_killed_rebuild_has_left_is_erased(thread: Thread, name: str) -> None:
    """It has written a file of its own, or had only to give it its name."""
    text = secret(1)
    for content in (text, "another"):
        thread.push("self", "note", content)
    shutil.copy(thread.layout.mirror, f"{thread.path}/{name}")
    thread.erasures.event(1)
    assert remains(thread.path, text) == []


def test_what_an_event_is_ordered_by_is_erased(thread: Thread) -> None:
    """Unless other events that wait are ordered by the same."""
    thread.subscribe("w", "true", each=True, ordered_by="$.user", concurrency=4)
    for user in ("ann-of-the-north", "bob-of-the-south", "bob-of-the-south"):
        thread.push("self", "note", f'{{"user": "{user}"}}')
    claims = thread.claim("w", limit=9)
    thread.settle(retry=claims, delay=60)
    for number in (1, 2):
        thread.erasures.event(number)
    assert remains(thread.path, "ann-of-the-north", whole=True) == []
    assert remains(thread.path, "bob-of-the-south", whole=True)
    thread.erasures.event(3)
    assert remains(thread.path, "bob-of-the-south", whole=True) == []


@pytest.mark.parametrize("work", ["erase", "prune"])
def test_a_push_under_way_does_not_bring_it_back(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """A push that has committed, and has not written its line yet, leaves the mirror as it is."""
    text, append = secret(1), mirror.Mirror.committed

    def late(self: mirror.Mirror, commit: Commit) -> None:
        if work == "erase":
            thread.erasures.event(2)
        else:
            thread.prune(keep_last=0, force=True)
        append(self, commit)

    thread.push("self", "note", "before")
    with monkeypatch.context() as patch:
        patch.setattr(mirror.Mirror, "committed", late)
        with eventq.open(thread.path) as other:
            other.push("self", "note", text)
    assert remains(thread.path, text) == []
    thread.push("self", "note", "later")
    with open(thread.layout.mirror, encoding="utf-8") as file:
        assert len(file.readlines()) == (3 if work == "erase" else 1)


@pytest.mark.parametrize("work", ["erase", "prune"])
def test_a_file_that_cannot_be_changed_is_an_error(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """It is one of eventq, which says what to do; nothing is called erased, and it is done again."""
    text = secret(1)
    thread.push("self", "note", text)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", thread.layout.mirror)

    def erase() -> object:
        if work == "erase":
            return thread.erasures.event(1)
        return thread.prune(keep_last=0, force=True)

    with monkeypatch.context() as patch:
        patch.setattr(mirror.Mirror, "rewrite", refuse)
        with pytest.raises(DiskError, match="could not be changed: Permission denied"):
            erase()
    assert [one.finished for one in thread.erasures] == [False]
    erase()
    assert remains(thread.path, text) == []


def test_dead_letters_and_logs_are_erased(thread: Thread) -> None:
    """What was said of attempts at an event goes, and what handlers printed of it."""
    text = secret(7)
    thread.subscribe("w", "true", each=True, on_failure="dead", max_attempts=1, emit_dead=True)
    thread.push("internal:a:b:c", "note", text)
    thread.push("internal:a:b:c", "note", "another")
    for _ in range(2):
        (claim,) = thread.claim("w", limit=1)
        thread.settle(dead=[claim], error=f"cannot do {claim.event.content}")
    log = thread.layout.handler_log("w")
    rotated = log.replace(".log", "-20260101-000000.log")
    lines = [f"got {text}", *text.splitlines(), quote(text), "harmless"]
    for path in (log, rotated):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    size = os.path.getsize(log)
    thread.erasures.event(1)
    assert remains(thread.path, text) == []
    assert [letter.error for letter in thread.dead_letters()] == [ERASED, "cannot do another"]
    assert os.path.getsize(log) == size
    with open(log, encoding="utf-8") as file:
        assert file.read().endswith("\nharmless\n")
    assert thread.check() == []


@pytest.mark.parametrize(
    "text", [secret(7, 200), "".join(f'{{"password":"p{n}"}},\n' for n in range(40))]
)
def test_a_log_of_several_blocks_is_erased(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Wherever the text is, no part of it stays at the end of a block."""
    monkeypatch.setattr(traces, "BLOCK", 1024)
    logs = {before: thread.layout.handler_log(f"w{before}") for before in range(700, 1300)}
    for before, log in logs.items():
        with open(log, "w", encoding="utf-8") as file:
            file.write(f"{'.' * before}{text}{'.' * 99}")
    traces.Traces(thread.layout).erase([text])
    for before, log in logs.items():
        with open(log, encoding="utf-8") as file:
            assert set(file.read().replace(ERASED, "")) <= set(" .*"), before


def test_a_part_that_begins_as_another_does_is_erased(thread: Thread) -> None:
    """In a text that repeats itself, each part of 31 bytes is found, wherever it stands."""
    text = '[{"user_password":"aaaaaaaaaaa-1111111"},{"user_password":"bbbbbbbbbbb-2222"}]'
    log = thread.layout.handler_log("w")
    for size in (31, 35):
        for before in range(32):
            with open(log, "w", encoding="utf-8") as file:
                file.write(f"{'.' * before}{text[-36 : size - 36 or None]}{'.' * 99}")
            traces.Traces(thread.layout).erase([text])
            with open(log, encoding="utf-8") as file:
                assert set(file.read().replace(ERASED, "")) <= set(" .*"), before


def test_a_long_text_in_a_log_is_found_once() -> None:
    """Not anew at each of its bytes: the time would grow with the square of its length."""
    text = secret(7, 9_000)
    assert len([*traces.Sought([text]).among(text.encode())]) < 100


def test_two_erasures_at_once_do_not_undo_each_other(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of a death may be erased while the event that it reports is."""
    text = secret(7)
    thread.subscribe("w", "true", each=True, on_failure="dead", max_attempts=1, emit_dead=True)
    thread.push("internal:a:b:c", "note", text)
    (claim,) = thread.claim("w", limit=1)
    thread.settle(dead=[claim], error="what it said")
    thread.push("self", "note", "last")

    def meanwhile(fd: int, *, wait: bool) -> None:
        monkeypatch.setattr(mirror, "lock_whole", lock_whole)
        with eventq.open(thread.path) as other:
            other.erasures.event(2)
        lock_whole(fd, wait=wait)

    monkeypatch.setattr(mirror, "lock_whole", meanwhile)
    thread.erasures.event(1)
    assert contents(thread) == [ERASED, ERASED, "last"]
    with open(thread.layout.mirror, encoding="utf-8") as file:
        assert file.read().count("event_id") == 0


def test_two_prunes_at_once_do_not_forget_each_other(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is killed after another one has looked is still to be finished."""
    for text in ("one", secret(1), "three"):
        thread.push("self", "note", text)
    scrub = thread.database.memory.scrub

    def meanwhile() -> None:
        with eventq.open(thread.path) as other, monkeypatch.context() as patch:
            patch.setattr(mirror.Mirror, "rewrite", None)  # it goes no further
            with pytest.raises(TypeError):
                other.prune(before_id=3, force=True)
        scrub()

    monkeypatch.setattr(thread.database, "scrub", meanwhile)
    thread.prune(before_id=2, force=True)
    assert any("below 3 are deleted" in what for what in thread.check())
    thread.prune(before_id=1, force=True)
    assert remains(thread.path, secret(1)) == []


def test_dead_letters_of_reports_are_erased(thread: Thread) -> None:
    """Who handles the report of a death, and fails, may have said what the report says."""
    text = secret(7)
    for name, kind in (("w", "note"), ("r", "record")):
        where = f"type = '{kind}'"
        how: dict[str, Any] = {"max_attempts": 1, "emit_dead": True, "filter": where}
        thread.subscribe(name, "true", each=True, on_failure="dead", **how)
    thread.push("internal:a:b:c", "note", text)
    for name in ("w", "r"):
        (claim,) = thread.claim(name, limit=1)
        thread.settle(dead=[claim], error=f"cannot do {claim.event.content}")
    thread.erasures.event(1)
    assert remains(thread.path, text) == []
    assert [letter.error for letter in thread.dead_letters()] == [ERASED, ERASED]


def test_a_leased_event_is_not_erased(thread: Thread) -> None:
    """A worker that has it may print it yet; nothing is changed, and later it can be erased."""
    thread.subscribe("w", None)
    thread.push("self", "note", "hello there")
    (claim,) = thread.claim("w", limit=1)
    with pytest.raises(ConflictError, match="event 1 is leased by a worker of consumer 'w'"):
        thread.erasures.event(1)
    assert (contents(thread), [*thread.erasures]) == (["hello there"], [])
    thread.settle(done=[claim])
    thread.erasures.event(1)
    assert contents(thread) == [ERASED]


def test_what_cannot_be_erased(thread: Thread) -> None:
    """An unknown event, one that was erased, a bad reason, a reader: an error, nothing else."""
    thread.push("self", "note", "hello there")
    thread.push("self", "note", "hello")
    thread.erasures.event(2, reason="why")
    bad: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
        "there is no event 3": (lambda: thread.erasures.event(3), LogicError),
        r"event 2 was erased on \S+Z \(why\)": (lambda: thread.erasures.event(2), ErasedError),
        "event must be a whole number": (lambda: thread.erasures.event(-1), UsageError),
        "reason is empty": (lambda: thread.erasures.event(1, reason=""), InputError),
        "reason holds a control": (lambda: thread.erasures.event(1, reason="\n"), InputError),
    }
    for what, (call, kind) in bad.items():
        with pytest.raises(kind, match=what):
            call()
    with pytest.raises(LogicError, match="what is erased in a transaction"), thread.write():
        thread.erasures.event(1)
    with eventq.open(thread.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.erasures.event(1)
    assert contents(thread) == ["hello there", ERASED]
    assert len([*thread.erasures]) == 1


# --- readers --------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for readers."""
    monkeypatch.setattr(care, "BUSY_SECONDS", 0)


@pytest.mark.usefixtures("impatient")
def test_a_reader_that_pins_the_wal_is_named(thread: Thread) -> None:
    """While it reads nothing is called erased; then the same call finishes what was begun."""
    text = secret(3)
    thread.push("self", "note", text)
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1])\n"
        "db.execute('BEGIN'); db.execute('SELECT count(*) FROM events').fetchall()\n"
        "print('reads', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, thread.layout.database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"reads\n"
        for _ in range(2):
            with pytest.raises(BusyError, match=f"process {other.pid} .* still reads") as caught:
                thread.erasures.event(1, reason="first")
        assert caught.value.fix.startswith("end that, or wait for it")
        assert [erasure.finished for erasure in thread.erasures] == [False]
        assert any("event 1 is not erased yet" in what for what in thread.check())
        other.communicate(b"\n")
    made = thread.erasures.event(1, reason="again")
    assert (made.finished, made.reason) == (True, "again")
    assert remains(thread.path, text) == []
    with pytest.raises(ErasedError):
        thread.erasures.event(1)


def test_a_reader_that_ends_is_waited_for(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure goes on as soon as nobody sees what was erased."""
    text = secret(3)
    thread.push("self", "note", text)
    reader = apsw.Connection(thread.layout.database)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        reader.close()

    monkeypatch.setattr("eventq.system.clock.pause", pause)
    thread.erasures.event(1)
    assert len(looks) == 1
    assert remains(thread.path, text) == []


# --- artifacts ------------------------------------------------------------------------------------


def test_an_artifact_is_erased(thread: Thread) -> None:
    """Its number is not used again, and says what became of it; others stay."""
    texts = [secret(number, 90_000) for number in range(2)]
    for text in texts:
        thread.artifacts.put(text.encode())
    artifacts = thread.artifacts
    made = thread.erasures.artifact("0", reason="a key")
    assert (made.kind, made.name, made.finished) == ("artifact", "0/0", True)
    assert remains(thread.path, texts[0]) == []
    assert artifacts.open(1).read() == texts[1].encode()
    for call in (
        lambda: artifacts.get(0),
        lambda: thread.read("artifact://0"),
        lambda: thread.erasures.artifact(0),
    ):
        with pytest.raises(ErasedError, match=r"artifact 0 was erased on \S+ \(a key\)"):
            call()
    assert artifacts.put(b"new").artifact_id == "2"
    with pytest.raises(UnknownArtifactError):
        thread.erasures.artifact(9)
    with artifacts.allocate("make") as writer:
        writer.write(b"being written")
        with pytest.raises(ConflictError, match="still being written"):
            thread.erasures.artifact(3)
        writer.seal()
    assert [erasure.name for erasure in thread.erasures] == ["0/0"]


def test_artifacts_of_sessions_are_told_apart(thread: Thread) -> None:
    """Two sessions have an artifact 0; one is erased."""
    for name in ("one", "two"):
        thread.contexts.create(name)
        thread.scope(name).artifacts.put(f"artifact of {name}".encode())
    thread.erasures.artifact(0, artifacts=thread.scope("one").artifacts)
    with pytest.raises(ErasedError):
        thread.scope("one").artifacts.get(0)
    assert thread.scope("two").artifacts.get(0).size == 15


# --- pruning --------------------------------------------------------------------------------------


def test_nothing_is_left_of_what_is_pruned(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the database nor any file of the mirror holds a part of it."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 5)
    texts = [secret(number, (30, 300, 3_000, 9_000)[number % 4]) for number in range(24)]
    gone = 0
    for count in (7, 15, 24):
        for text in texts[gone if count == 7 else thread.last_id() : count]:
            thread.push("self", "note", text)
        assert thread.prune(before_id=count - 3, force=True) == count - 4 - gone
        gone = count - 4
        assert [remains(thread.path, text) for text in texts[:gone]] == [[]] * gone
        assert all(remains(thread.path, text) for text in texts[gone:count])
        assert thread.check() == []
    assert contents(thread) == texts[gone:]
    thread.prune(keep_last=0, force=True)
    assert not any(remains(thread.path, text) for text in texts)
    assert thread.push("self", "note", "later").id == 25
    assert thread.check() == []


@pytest.mark.usefixtures("impatient")
def test_a_prune_that_a_reader_kept_from_ending_is_finished_later(thread: Thread) -> None:
    """Events are deleted, yet the error says what is left; the next prune removes it."""
    text = secret(1)
    thread.push("self", "note", text)
    thread.push("self", "note", "another")
    reader = apsw.Connection(thread.layout.database)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()
    with pytest.raises(BusyError, match="the events are deleted, but their bytes are not gone"):
        thread.prune(before_id=2, force=True)
    assert any("prune again" in what for what in thread.check())
    reader.close()
    assert thread.prune(before_id=1, force=True) == 0
    assert remains(thread.path, text) == []
    assert thread.check() == []


def test_a_prune_inside_a_transaction_ends_after_it(thread: Thread) -> None:
    """Nothing is left once the transaction has ended; undone, the event is there as before."""
    text = secret(1)
    thread.push("self", "note", text)
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.prune(keep_last=0, force=True)
        raise ZeroDivisionError
    assert contents(thread) == [text]
    with thread.write():
        assert thread.prune(keep_last=0, force=True) == 1
        assert remains(thread.path, text)
    assert remains(thread.path, text) == []
    assert thread.check() == []


def test_a_collection_beside_an_erasure(thread: Thread) -> None:
    """An erasure that is not finished is no damage: what nothing leads to is collected."""
    thread.push("self", "note", "hello there")
    thread.blobs.put(b"nobody needs it")
    thread.database.memory.erasures.event(1, None)
    assert len(thread.check()) == 2  # the mirror has the event still
    assert thread.gc(apply=True, grace=0).blobs == 1
    thread.erasures.event(1)
