"""Handlers run, and pushes return, whatever the caller, the store or the folder is like."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.errors import DamagedError
from eventq.log.consumers import Subscriptions
from eventq.running.dispatch import Dispatch
from eventq.running.supervisor import Supervisor
from eventq.store.queue_rows import Verdict, Worker
from eventq.system import clock, locks, processes
from eventq.system.locks import ConsumerLock, FolderLock
from tests.race.support import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.records.consumer import ConsumerState
    from tests.race.support import Box

PUSH = 'import sys, eventq\nwith eventq.open(sys.argv[1]) as thread:\n    thread.push("self", "test", "x")\n'


def test_a_caller_that_blocks_or_ignores_signals_has_its_handlers_run(box: Box) -> None:
    """The supervisor waits for SIGCHLD, whatever mask and dispositions the pusher had."""
    box.thread.subscribe("w", box.handler())
    for trouble in (
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    ):
        before = len(box.trace("end"))
        child = box.start(f"import signal\n{trouble}\n{PUSH}")
        assert (child.communicate(timeout=120), child.returncode) == (("", ""), 0)
        until(lambda: len(box.trace("end")) > before, "the handler runs")  # noqa: B023
        box.settle()


def test_a_failing_notifier_is_noticed_though_its_code_is_lost(box: Box) -> None:
    """With SIGCHLD ignored nobody learns an exit code: the built-in dispatch runs as well."""
    box.thread.subscribe("w", box.handler())
    code = f"import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{PUSH}"
    environ = {**os.environ, "EVENTQ_NOTIFIER": "/bin/false"}
    assert subprocess.run([sys.executable, "-c", code, box.path], env=environ).returncode == 0
    until(lambda: box.trace("end"), "the handler runs")
    box.settle()


def supervisor(thread: eventq.Thread, *, yields: bool = False) -> Supervisor:
    """Return a supervisor in this process, which holds the consumer `w`."""
    lock = ConsumerLock.take(thread.layout.consumer("w"))
    assert lock is not None
    return Supervisor(thread.layout, thread.consumers, thread.journal, {"w": lock}, yields=yields)


def journal(thread: eventq.Thread) -> str:
    """Return what the journal of a thread says."""
    return Path(thread.layout.journal).read_text()


def run_until(boss: Supervisor, thread: eventq.Thread, text: str) -> None:
    """Supervise until the journal says a text."""
    until(lambda: boss.advance() and text in journal(thread), text)


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[eventq.Thread]:
    """A thread with one event and one consumer, that nobody is woken for."""
    with eventq.open(tmp_path / "t", create=True) as made:
        made.subscribe("w", "exit 1", max_attempts=100_000)
        made.push("self", "test", "x")
        yield made


def test_the_back_off_of_the_thousandth_attempt_is_a_number(thread: eventq.Thread) -> None:
    """However many attempts were made, the wait is at most five minutes."""
    thread.consumers.note_attempts(thread.consumers.known("w"), 4_999)
    run_until(supervisor(thread), thread, "attempt=5000/")
    wait = re.search(r"; next attempt in ([\d.]+)m;", journal(thread))
    assert wait is not None
    assert 2.5 <= float(wait[1]) <= 5


@pytest.mark.parametrize(
    "error", [eventq.StoreError("busy", "wait"), OSError("full"), RuntimeError("surprise")]
)
def test_trouble_with_the_store_is_waited_out(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """After any error the supervisor retries, with growing delays."""

    def fail(*_: object) -> bool:
        raise error

    boss, times = supervisor(thread), iter(range(100, 1_000_000, 100))
    monkeypatch.setattr(clock, "monotonic", lambda: next(times))
    with monkeypatch.context() as patch:
        patch.setattr(Subscriptions, "ready", fail)
        assert [boss.advance() for _ in range(3)] == [True] * 3
    assert re.findall(r"failed, retried in (.*)s ", journal(thread)) == ["0.5", "1", "2"]
    assert locks.held(thread.layout.consumer("w"))
    thread.ack("w", 1)
    assert not boss.advance()


def test_an_ack_at_the_end_of_the_back_off_forgets_the_attempts(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts count runs without progress after one acked id, also in memory."""
    thread.push("self", "test", "y")
    thread.subscribe("w", "true", replace=True)
    boss = supervisor(thread)
    run_until(boss, thread, "attempt=1/")
    real = Subscriptions.state

    def state(self: Subscriptions, consumer: str) -> ConsumerState | None:
        monkeypatch.setattr(Subscriptions, "state", real)
        found = real(self, consumer)
        thread.ack("w", 1)
        return found

    monkeypatch.setattr(Subscriptions, "state", state)
    monkeypatch.setattr(clock, "monotonic", lambda: 1e9)  # it is over
    run_until(boss, thread, "event=2 attempt=")
    assert "event=2 attempt=1/5" in journal(thread), "nor does the first run count as idle"


def test_a_handler_keeps_its_timeout_when_its_subscription_is_replaced(
    thread: eventq.Thread,
) -> None:
    """The time that a handler was started with counts, whatever becomes of the subscription."""
    thread.unsubscribe("w")
    thread.subscribe("w", "sleep 1000", timeout=0.01)
    boss = supervisor(thread)
    boss.advance()
    thread.unsubscribe("w")
    thread.subscribe("w", "true")
    run_until(boss, thread, "killed signal=15")


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_handler_whose_log_is_no_file_runs_all_the_same(box: Box, kind: str) -> None:
    """What stands in the log's place costs the output, not the run; no link is followed."""
    mine, log = Path(box.folder, "mine"), Path(box.thread.layout.handler_log("w"))
    mine.write_text("mine")
    log.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        log.symlink_to(mine)
    else:
        log.mkdir()
    box.thread.subscribe("w", f"echo spilled; {box.handler()}")
    box.thread.push("self", "test", "x")
    until(lambda: box.trace("end"), "the handler runs")
    box.settle()
    assert "[WARN]" in box.journal("runs without a log")[0]
    assert mine.read_text() == "mine"


def test_a_push_does_not_wait_for_ever_for_the_mirror(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who keeps the folder's lock costs the mirror a line for a while, never a push."""
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.01)
    fd = os.open(thread.path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    thread.push("self", "test", "y")
    assert Path(thread.layout.mirror).read_text().count("\n") == 1
    assert "keeps the lock" in Path(thread.layout.journal).read_text()
    os.close(fd)
    thread.push("self", "test", "z")
    assert Path(thread.layout.mirror).read_text().count("\n") == 3
    assert thread.check() == []


def test_a_lasting_shared_lock_counts_as_held(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps a shared lock on a lock file does not make a dispatch spin for ever."""
    path = thread.layout.consumer("w").lock
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_SH)
    monkeypatch.setattr(clock, "monotonic", count().__next__)
    assert ConsumerLock.take(thread.layout.consumer("w")) is None
    os.close(fd)


def test_a_push_whose_follow_ups_fail_is_still_a_push(thread: eventq.Thread) -> None:
    """After the commit a failure is only a warning, or the event would be pushed twice."""

    def fail(*_: object) -> None:
        raise ValueError("surprise")

    for name in ("mirror", "notifier"):
        thread.database.subscribe(name, fail)
    assert thread.push("self", "test", "y").id == 2
    assert thread.push_many([("self", "test", "z")]).last_id == 3
    text = Path(thread.layout.journal).read_text()
    assert text.count("[WARN] mirror: surprise; the event is stored") == 2
    assert text.count("[WARN] notifier: surprise; the event is stored") == 2


@pytest.mark.parametrize("value", ["²", "9" * 5000, "x", "-1", " "])
def test_nonsense_in_the_environment_keeps_no_handler_from_running(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of the background that are no numbers leave the defaults in force."""
    for name in ("EVENTQ_BACKOFF", "EVENTQ_DISPATCH_FD", "EVENTQ_DISPATCH_AFTER"):
        monkeypatch.setenv(name, value)
    with eventq.open(tmp_path / "t", create=True) as thread:
        assert thread.push("self", "test", "x").id == 1
        thread.subscribe("w", "true")
        supervisor(thread)
        assert "that of the consumer is used" in journal(thread)
    for fd in ("3", value):
        monkeypatch.setenv("EVENTQ_DISPATCH_FD", fd)
        assert command("dispatch", "--thread", thread.path).returncode == 0


def test_a_file_beside_the_mirror_is_somebodys_own(thread: eventq.Thread) -> None:
    """Only names of rotations are treated as rotated files."""
    own = Path(thread.path, "events-archive.jsonl")
    own.write_text("mine\n")
    assert thread.rebuild_mirror() == 1
    assert own.read_text() == "mine\n"
    assert thread.check() == []


@pytest.mark.parametrize("kind", ["fifo", "directory", "link"])
def test_check_names_a_mirror_that_is_no_file(kind: str, tmp_path: Path) -> None:
    """A pipe, a directory or a link to a device in the mirror's place is a fault, not a hang."""
    path = eventq.init(tmp_path / "t")
    mirror = f"{path}/events.jsonl"
    os.unlink(mirror)
    if kind == "fifo":
        os.mkfifo(mirror)
    elif kind == "directory":
        os.mkdir(mirror)
    else:
        os.symlink("/dev/full", mirror)
    with eventq.open(path, read_only=True) as thread:
        assert ["is not a file" in fault for fault in thread.check()] == [True]


def test_check_finds_nothing_while_others_push(box: Box) -> None:
    """What is pushed while the mirror is compared is no fault."""
    pusher = box.start(
        'import sys, eventq\nwith eventq.open(sys.argv[1]) as t:\n    for n in range(3000): t.push("a", "b", "c")\n'
    )
    found = []
    with eventq.open(box.path, read_only=True) as thread:
        while pusher.poll() is None:
            found += thread.check()
    assert pusher.communicate(timeout=120) == ("", "")
    assert found == []


def test_names_are_of_bounded_length(thread: eventq.Thread) -> None:
    """A source, type, subtype or key of more than 64 Ki characters is refused."""
    good: dict[str, Any] = {"source": "s", "type": "t", "content": "c"}
    for name in ("source", "type", "subtype", "key"):
        with pytest.raises(eventq.InputError, match="too long"):
            thread.push(**{**good, name: "x" * 65_537})
    assert thread.last_id() == 1


def test_stdin_that_is_closed_is_an_error(box: Box) -> None:
    """A push that is to read from a closed stdin stores nothing and says so."""
    for words in ("--batch", "--source s --type t --content-file -"):
        program = shlex.join(processes.python())
        shell = ["sh", "-c", f"{program} push --thread '{box.path}' {words} <&-"]
        done = subprocess.run(shell, capture_output=True, text=True)
        assert done.returncode == 1
        assert "stdin is closed" in done.stderr
    assert box.thread.last_id() == 0


def test_the_folder_lock_is_one_holders(tmp_path: Path) -> None:
    """Two descriptors never hold it at once, and the second gets it when the first lets go."""
    one, two = FolderLock(str(tmp_path)), FolderLock(str(tmp_path))
    seconds, locks.LOCK_SECONDS = locks.LOCK_SECONDS, 0.01
    try:
        with pytest.raises(TimeoutError):
            one.run(lambda: two.run(lambda: None))
        assert two.run(lambda: "mine") == "mine"
    finally:
        locks.LOCK_SECONDS = seconds
        one.close()
        two.close()


def test_errors_are_one_line_whatever_they_name(tmp_path: Path) -> None:
    """A path or a number with a line end or an escape in it does not break the form of an error."""
    for words in (
        ["info", "--thread", f"{tmp_path}/a\nb\x1b[31m"],
        ["peek", "--thread", eventq.init(tmp_path / "t"), "--last", "1\n2"],
    ):
        done = subprocess.run(processes.python(*words), capture_output=True, text=True)
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1
        assert "\x1b" not in done.stderr


# --- a database that refuses ----------------------------------------------------------------------


def damage(path: str, table: str) -> None:
    """Overwrite the first page of a table."""
    with apsw.Connection(f"{path}/events.db") as connection:
        connection.pragma("wal_checkpoint(TRUNCATE)")
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
        size = connection.pragma("page_size")
    connection.close()
    with open(f"{path}/events.db", "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, waking nobody."""
    return subprocess.run(
        processes.python(*words), capture_output=True, text=True, timeout=120, check=False
    )


def errors(path: str) -> list[str]:
    """Return the lines of the journal that tell of a failure."""
    lines = Path(path, "logs", "thread.log").read_text().splitlines()
    return [line for line in lines if "[ERROR]" in line]


def test_a_push_that_a_damaged_database_refuses_is_in_the_journal(tmp_path: Path) -> None:
    """The error is there for whoever looks later, also when nobody saw the exit status."""
    path = eventq.init(tmp_path / "t")
    damage(path, "events")
    push = ("push", "--thread", path, "--source", "s", "--type", "t", "--content", "x")
    assert command(*push).returncode == 1
    (line,) = errors(path)
    assert f"[ERROR] database: '{path}/events.db' is damaged - " in line
    assert command(*push, "--key", "k").returncode == 1
    assert len(errors(path)) == 2
    with eventq.open(path) as thread, pytest.raises(DamagedError):
        thread.push_many([("s", "t", "x")])
    assert len(errors(path)) == 3
    assert command("check", "--thread", path).returncode == 1
    assert len(errors(path)) == 3, "who only reads writes nothing"


@pytest.mark.parametrize(
    "words", [("dispatch",), ("push", "--source", "s", "--type", "t", "--content", "x")]
)
def test_a_database_that_cannot_be_opened_is_in_the_journal(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """A thread whose file is no longer a database says so in its log and exit status."""
    path = eventq.init(tmp_path / "t")
    with eventq.open(path) as thread:
        thread.push("s", "t", "x")
    Path(path, "events.db").write_bytes(b"rubbish" * 1000)
    for suffix in ("-wal", "-shm"):
        Path(path, f"events.db{suffix}").unlink(missing_ok=True)
    done = command(*words, "--thread", path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = errors(path)
    assert "is not a database" in line


def test_somebody_elses_directory_gets_no_log(tmp_path: Path) -> None:
    """A file that happens to be called events.db does not make its directory ours."""
    (tmp_path / "events.db").write_bytes(b"rubbish" * 1000)
    push = ("push", "--thread", str(tmp_path), "--source", "s", "--type", "t", "--content", "x")
    assert command(*push).returncode == 1
    assert os.listdir(tmp_path) == ["events.db"]


def test_a_push_beyond_the_size_that_the_system_allows_is_in_the_journal(tmp_path: Path) -> None:
    """With `ulimit -f` the database cannot grow: the push is refused and logged."""
    path = eventq.init(tmp_path / "t")
    code = (
        "import resource, sys, eventq\n"
        "with eventq.open(sys.argv[1]) as thread:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "    try:\n"
        "        thread.push('s', 't', 'x' * (4 << 20))\n"
        "    except eventq.StoreError:\n"
        "        print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")
    assert len(errors(path)) == 1


@pytest.mark.parametrize("table", ["events", "subscriptions"])
def test_dispatch_on_a_damaged_database_fails_and_says_so(table: str, tmp_path: Path) -> None:
    """Exit status 1, one sentence, and a line in the journal."""
    path = eventq.init(tmp_path / "t")
    with eventq.open(path) as thread:
        thread.subscribe("w", "true")
        thread.push("s", "t", "x")
    damage(path, table)
    done = command("dispatch", "--thread", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "damaged" in done.stderr
    assert errors(path)


def test_dispatch_runs_whom_it_can_and_fails_for_the_rest(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that cannot be checked delays no other, and is reported."""
    box.thread.subscribe("bad", "true")
    box.thread.subscribe("w", box.handler())
    monkeypatch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.push("self", "test", "x")
    os.makedirs(box.thread.layout.consumer("bad").lock)
    done = box.run("dispatch", "--thread", box.path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: consumer 'bad' could not be checked: ")
    until(box.all_handled, "the other one is run")
    assert len(box.journal("[ERROR] dispatch: consumer=bad could not be checked")) == 1
    os.rmdir(box.thread.layout.consumer("bad").lock)


# --- the end of a back-off ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["resume", "ack", "subscribe"])
def test_a_back_off_ends_when_the_attempts_do_not_count_any_more(
    how: str, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume`, an ack and a new subscription start the handler now, and reset attempts."""
    thread.push("self", "test", "y")
    thread.consumers.note_attempts(thread.consumers.known("w"), 7)
    boss = supervisor(thread)
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)  # the back-off does not end by itself
    run_until(boss, thread, "attempt=8/")
    if how == "resume":
        thread.resume("w")
    elif how == "ack":
        thread.ack("w", 1)
    else:
        thread.unsubscribe("w")
        thread.subscribe("w", "exit 1")
    run_until(boss, thread, "attempt=1/")


def test_resume_during_a_run_counts_anew(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the run that is under way then makes of it is the first attempt."""
    gate = f"{thread.path}/gate"
    os.mkfifo(gate)
    thread.subscribe("w", f"read line < '{gate}'; exit 1", replace=True, max_attempts=100_000)
    thread.consumers.note_attempts(thread.consumers.known("w"), 7)
    monkeypatch.setenv("EVENTQ_BACKOFF", "0")
    boss = supervisor(thread)
    for text in ("attempt=8/", "attempt=1/"):
        until(lambda: boss.advance() and boss.running, "the handler runs")
        if text == "attempt=1/":
            thread.resume("w")
        os.close(os.open(gate, os.O_WRONLY))
        run_until(boss, thread, text)


def test_a_worker_that_ends_while_a_supervisor_makes_way_leaves_nothing(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks it is gone: then the supervisor keeps what waits for its time."""
    thread.subscribe("w", "exit 1", each=True, backoff=(9, 9), replace=True)
    boss = supervisor(thread, yields=True)
    run_until(boss, thread, "next attempt in")
    looks = iter([True])
    monkeypatch.setattr(locks.Leases, "is_worked", lambda *_: next(looks, False))
    assert boss.advance()
    assert next(looks, None) is None, "it made way"
    assert locks.held(thread.layout.consumer("w"))
    thread.unsubscribe("w")
    until(lambda: not boss.advance(), "it ends")


def test_a_dispatch_takes_what_will_be_due(thread: eventq.Thread) -> None:
    """A worker may end before it has taken what waited for its time; nobody else would look."""
    thread.subscribe("w", "exit 1", each=True, replace=True)
    taken = thread.database.claims.take("w", 1, 1_000, Worker("other"), b"t" * 16)
    verdict = Verdict("w", taken.token, (1,), False, "retry", 60_000)
    thread.database.claims.settle([verdict])
    locks = Dispatch(thread.consumers, thread.layout, thread.journal).scan()
    assert [*locks] == ["w"]
    locks["w"].release()
    locks["w"].forget()


def test_resume_wakes_a_supervisor_that_backs_off(box: Box) -> None:
    """A real supervisor in its back-off starts the handler at once, and resets attempts."""
    box.patch.setenv("EVENTQ_BACKOFF", "1000")
    box.thread.subscribe("w", box.handler("fail"))
    box.thread.push("self", "test", "x")
    for number in range(1, 4):
        until(lambda: len(box.journal("event=1 attempt=1/21: ")) == number, "it backs off")  # noqa: B023
        assert len(box.trace("start")) == number
        assert box.run("resume", "--thread", box.path, "--consumer", "w").returncode == 0
    until(lambda: len(box.trace("start")) == 4, "it runs again")
    assert box.journal("event=1 attempt=2/21: ") == []
    box.thread.unsubscribe("w")
    os.kill(box.supervisors()[0], signal.SIGCHLD)


@pytest.mark.parametrize(
    "note", [b"", b"supervisor", b"supervisor 0\n", b"supervisor 1\n", b"supervisor -1\n"]
)
def test_rubbish_in_a_guard_is_signalled_to_nobody(
    note: bytes, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a group of processes nor everybody gets a signal, whatever stands in the file."""
    lock = ConsumerLock.take(thread.layout.consumer("w"))
    assert lock is not None
    os.pwrite(lock.guard, note, 0)
    os.ftruncate(lock.guard, len(note))
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: sent.append(pid))
    thread.resume("w")
    assert sent == []
    lock.release()
    lock.forget()
