"""`eventq work` with real processes: it starts handlers, ends, is killed, and meets pushes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log.notifier import quote
from eventq.system import locks, processes
from tests.race.support import DEADLINE, until
from tests.race.test_each import fill, got, noting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.race.support import Box


class Worker:
    """A running `eventq work`."""

    def __init__(self, folder: str, *words: str) -> None:
        self._log = os.path.join(folder, f"work-{len(os.listdir(folder))}.log")
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                processes.python("work", *words), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def said(self, text: str = "") -> list[str]:
        """Return the lines with a text."""
        with open(self._log, encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if text in line]

    def wait_for(self, text: str) -> None:
        """Wait until it has written a text."""
        until(lambda: self.said(text), f"it says {text!r}: {self.said()}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Return a list of workers, which are killed at the end."""
    made: list[Worker] = []
    yield made
    for worker in made:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


def start(box: Box, workers: list[Worker], *words: str) -> Worker:
    """Start a worker for a box, and wait until it works for the consumer."""
    made = Worker(box.folder, *(words or ("--thread", box.path)))
    workers.append(made)
    made.wait_for("works for consumer 'w'")
    return made


def test_a_push_leaves_its_event_to_the_worker(box: Box, workers: list[Worker]) -> None:
    """It starts nothing, and the worker runs the handler of each event."""
    box.thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers)
    box.push()
    until(box.all_handled, "the event is handled")
    assert not os.path.exists(box.thread.layout.queue)  # no dispatch was ever started
    assert got(box) == [(1, 1)]
    assert len(box.alive()) == 2  # it and its watchdog
    assert worker.end() == 0
    assert worker.said()[-1].endswith("] eventq work: stopped")
    assert locks.guards(box.thread.layout.guards) == []


@pytest.mark.parametrize("each", [True, False])
def test_a_handler_of_a_worker_has_no_token(box: Box, workers: list[Worker], each: bool) -> None:
    """EVENTQ_TOKEN, which the worker may have for a server, is removed."""
    told = os.path.join(box.folder, "told")
    command = f'echo "${{EVENTQ_TOKEN-none}}" > {quote(told)}'
    box.thread.subscribe("w", command if each else f"{command}; {box.handler()}", each=each)
    box.patch.setenv("EVENTQ_TOKEN", "s3cret")
    start(box, workers)
    box.push()
    until(box.all_handled, "the event is handled")
    with open(told, encoding="utf-8") as file:
        assert file.read() == "none\n"


def test_a_loop_handler_runs_too(box: Box, workers: list[Worker]) -> None:
    """Handlers that pop by themselves are started as well, and interrupts end the worker."""
    box.thread.subscribe("w", box.handler())
    worker = start(box, workers)
    for _ in range(3):
        box.push()
    until(box.all_handled, "all events are handled")
    assert worker.end(signal.SIGINT) == 130


def test_a_worker_loads_the_part_of_portalocker_that_locks(box: Box, workers: list[Worker]) -> None:
    """It takes the consumer's lock with that, and does not load the whole package."""
    box.patch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    box.thread.subscribe("w", box.handler())
    worker = start(box, workers)
    worker.end(signal.SIGINT)
    imported = {line.rpartition("|")[2].strip() for line in worker.said("|")}
    assert "eventq.system.flock.portalocker" in imported
    assert "portalocker" not in imported


def test_what_waits_at_the_start_is_handled(box: Box, workers: list[Worker]) -> None:
    """So is what was pushed while nobody was woken."""
    fill(box, 3)
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.subscribe("w", noting(box), each=True)
    start(box, workers)
    until(box.all_handled, "all events are handled")
    assert [event for event, _ in got(box)] == [1, 2, 3]


def test_a_new_consumer_and_one_that_is_gone(box: Box, workers: list[Worker]) -> None:
    """A consumer that is subscribed later is worked for, and one that is unsubscribed is not."""
    worker = Worker(box.folder, "--thread", box.path)
    workers.append(worker)
    worker.wait_for("has no consumer to work for yet")
    box.thread.subscribe("w", noting(box), each=True)
    worker.wait_for("works for consumer 'w'")
    box.push()
    until(box.all_handled, "the event is handled")
    box.thread.unsubscribe("w")
    worker.wait_for("no longer works for consumer 'w'")
    worker.end()


def test_a_consumer_that_is_named_wrong_is_answered_with_those_there_are(
    box: Box, workers: list[Worker]
) -> None:
    """It is waited for, as it may be subscribed later; the worker says so once."""
    for name in ("mailer", "worker"):
        box.thread.subscribe(name, noting(box), each=True)
    workers.append(Worker(box.folder, "--thread", box.path, "--consumer", "wroker"))
    workers[0].wait_for("has no consumer 'wroker' yet; it has 'mailer', 'worker'")
    box.thread.subscribe("wroker", noting(box), each=True)
    workers[0].wait_for("works for consumer 'wroker'")


def test_only_the_consumers_that_are_named(box: Box, workers: list[Worker]) -> None:
    """With --consumer a push starts the handlers of the others."""
    box.thread.subscribe("w", noting(box), each=True)
    box.thread.subscribe("other", noting(box), each=True)
    worker = start(box, workers, "--thread", box.path, "--consumer", "w")
    box.push()
    until(lambda: box.all_handled("w") and box.all_handled("other"), "both have it")
    assert not worker.said("'other'")
    worker.end()


def test_a_failed_handler_is_reported(box: Box, workers: list[Worker]) -> None:
    """The line has the time, and names consumer, event, attempt and exit code."""
    box.thread.subscribe("w", noting(box, "exit 65"), each=True)
    worker = start(box, workers)
    box.push()
    worker.wait_for("dead: consumer=w event=1 attempt=1/21: exited with code 65")
    assert all(re.match(r"\[\d{4}-.+Z\] eventq work: /", line) for line in worker.said())
    worker.end()


def test_a_stall_is_reported(box: Box, workers: list[Worker]) -> None:
    """Once, with its reason; after `resume` the worker starts the handler at once."""
    box.thread.subscribe("w", noting(box, "exit 3"), each=True, max_attempts=1)
    worker = start(box, workers)
    box.push()
    worker.wait_for("stall: consumer=w event=1 attempt=1/1: exited with code 3")
    box.thread.resume("w")
    until(lambda: len(worker.said("stall: ")) == 2, "it stalls again")
    assert got(box) == [(1, 1), (1, 1)]
    assert len(box.alive()) == 2  # it and its watchdog
    worker.end()


def test_a_worker_takes_what_a_push_began(box: Box, workers: list[Worker]) -> None:
    """While the handler backs off: from then on the worker runs it, and reports what becomes of it.

    A supervisor that keeps a consumer would leave the worker without a word for as long.
    """
    box.thread.subscribe("w", "exit 75", each=True, backoff=(0.5, 0.5))
    box.push()
    until(lambda: box.journal("] retry: consumer=w"), "a push has begun")
    (supervisor,) = box.alive()
    worker = start(box, workers)
    until(lambda: supervisor not in box.alive(), "its supervisor has left")
    until(lambda: len(worker.said("retry: consumer=w event=1 ")) > 1, "the worker goes on")
    box.thread.unsubscribe("w")
    worker.end()


def test_a_killed_worker_leaves_nothing_waiting(box: Box, workers: list[Worker]) -> None:
    """The next push starts the handler, and what the worker has left is removed."""
    box.thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers, "--thread", box.path, "--no-dispatch")  # nor does its watchdog
    worker.process.kill()
    worker.process.wait()
    assert len(locks.guards(box.thread.layout.guards)) == 1
    box.push()
    until(box.all_handled, "the event is handled")
    box.settle()
    assert locks.guards(box.thread.layout.guards) == []


def test_a_push_for_somebody_else_notices_a_lost_worker(box: Box, workers: list[Worker]) -> None:
    """An event that a worker did not live to handle is handled after the next push of any."""
    box.thread.subscribe("w", noting(box), each=True, filter="type = 'note'")
    worker = start(box, workers, "--thread", box.path, "--no-dispatch")
    worker.process.send_signal(signal.SIGSTOP)
    box.thread.push("self", "note", "x")  # left to the worker, which is there still
    worker.process.kill()
    worker.process.wait()
    assert got(box) == []
    box.thread.push("self", "other", "x")
    until(lambda: got(box) == [(1, 1)], "the first event is handled")


def test_an_event_that_a_killed_worker_was_at_is_tried_again(
    box: Box, workers: list[Worker]
) -> None:
    """Nobody has to push for that."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    hangs = f"[ $EVENTQ_EVENT_ATTEMPT != 1 ] || cat < {quote(os.path.join(box.folder, 'gate'))}"
    box.thread.subscribe("w", noting(box, hangs), each=True, backoff=(0.01, 0.01))
    worker = start(box, workers)
    box.push()
    until(lambda: got(box), "the handler runs")
    worker.process.kill()
    until(box.all_handled, "the event is handled")
    assert got(box) == [(1, 1), (1, 2)]
    assert len(box.journal("[WARN] work: the worker was killed; a dispatch takes over")) == 1


def test_an_event_does_not_wait_for_a_worker_that_is_stopped(
    box: Box, workers: list[Worker]
) -> None:
    """It is handled as soon as the worker counts as stuck, without another push."""
    box.thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers)
    worker.process.send_signal(signal.SIGSTOP)
    box.push()  # which leaves it to the worker
    until(box.all_handled, "the event is handled")
    assert len(box.journal("[WARN] work: the worker does nothing; a dispatch takes over")) == 1
    worker.process.send_signal(signal.SIGCONT)
    worker.end()
    assert got(box) == [(1, 1)]


def test_a_watchdog_that_is_killed_is_missed(box: Box, workers: list[Worker]) -> None:
    """The worker says so and goes on; at its end, a watchdog ends too."""
    box.thread.subscribe("w", noting(box), each=True)
    worker, other = start(box, workers), start(box, workers)
    (first, *_) = sorted({*box.alive()} - {worker.process.pid, other.process.pid})
    os.kill(first, signal.SIGKILL)
    until(
        lambda: worker.said("watchdog has ended") or other.said("watchdog has ended"), "it says so"
    )
    box.push()
    until(box.all_handled, "the event is handled")
    assert (worker.end(), other.end()) == (0, 0)
    box.settle()


def test_a_stuck_worker_is_not_waited_for(box: Box, workers: list[Worker]) -> None:
    """Ten seconds after its last refresh, a push starts the handlers itself."""
    box.thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers)
    worker.process.send_signal(signal.SIGSTOP)
    (name,) = locks.guards(box.thread.layout.guards)
    hold = os.path.join(box.thread.layout.guards, name)
    before = os.stat(hold).st_mtime - locks.FRESH_SECONDS
    os.utime(hold, (before, before))
    box.push()
    until(box.all_handled, "the event is handled")
    worker.process.send_signal(signal.SIGCONT)
    until(lambda: os.stat(hold).st_mtime > before, "it refreshes its time")
    worker.end()
    assert got(box) == [(1, 1)]


def test_the_end_waits_for_running_handlers(box: Box, workers: list[Worker]) -> None:
    """What runs may finish; what waits then is left to a dispatch."""
    gate = os.path.join(box.folder, "gate")
    os.mkfifo(gate)
    first = f'[ "$EVENTQ_EVENT_ID" != 1 ] || {{ read x < {gate}; true; }}'
    box.thread.subscribe("w", noting(box, first), each=True)
    worker = start(box, workers)
    box.push()
    until(lambda: got(box), "the handler runs")
    box.push()
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("1 running handler")
    box.open_gate()
    assert worker.process.wait(DEADLINE) == 0
    assert worker.said("events still wait: a dispatch takes over")
    until(box.all_handled, "both events are handled")
    assert got(box) == [(1, 1), (2, 1)]


def test_no_dispatch_leaves_what_waits(box: Box, workers: list[Worker]) -> None:
    """With --no-dispatch it waits for the next push or worker; a handler that is too slow is ended.

    Its event goes back as if it had not been tried.
    """
    box.thread.subscribe("w", noting(box, "exec sleep 600"), each=True)
    words = ("--thread", box.path, "--grace", "0", "--no-dispatch")
    worker = start(box, workers, *words)
    box.push()
    until(lambda: got(box), "the handler runs")
    assert worker.end() == 0
    assert worker.said("events still wait")
    assert not worker.said("dispatch takes over")
    assert box.quiet()
    worker = start(box, workers, *words)
    until(lambda: len(got(box)) == 2, "it runs again")
    assert got(box) == [(1, 1), (1, 1)]
    worker.end()


def test_all_threads_below_a_folder(box: Box, workers: list[Worker], tmp_path: Path) -> None:
    """With --all those are worked for that are there, and those that come later, however deep."""
    root = tmp_path / "all"
    (root / "deep").mkdir(parents=True)
    with eventq.open(root / "first", create=True) as thread:
        thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers, "--all", str(root))
    for name in ("second", "deep/third", "new/fourth"):
        with eventq.open(root / name, create=True) as thread:
            worker.wait_for(f"{name}: has no consumer")
            thread.subscribe("w", noting(box), each=True)
            worker.wait_for(f"{name}: works for consumer 'w'")
            thread.push("self", "note", "x")
    until(lambda: len(got(box)) == 3, "all are handled")
    worker.end()


def test_a_folder_that_is_missing_at_the_start_is_an_error(
    box: Box, workers: list[Worker], tmp_path: Path
) -> None:
    """So is a file in its place, or one of several; a worker would wait for nothing."""
    (tmp_path / "file").touch()
    for wrong in ("typo", "file"):
        path = str(tmp_path / wrong)
        worker = Worker(box.folder, "--all", str(tmp_path), "--all", path)
        workers.append(worker)
        assert worker.process.wait(DEADLINE) == 1
        assert worker.said() == [
            f"Error: '{path}' is no folder - give the folder that holds the threads"
        ]


def test_a_folder_that_disappears_is_no_error(
    box: Box, workers: list[Worker], tmp_path: Path
) -> None:
    """The worker goes on, and ends as ever."""
    eventq.init(tmp_path / "all" / "thread")
    worker = Worker(box.folder, "--all", str(tmp_path / "all"))
    workers.append(worker)
    worker.wait_for("has no consumer")
    shutil.rmtree(tmp_path / "all")
    worker.wait_for("it is given up until it changes")
    assert worker.end() == 0


def test_a_deleted_thread_does_not_end_the_others(
    box: Box, workers: list[Worker], tmp_path: Path
) -> None:
    """It is reported once, and worked for again when it is created again."""
    other = tmp_path / "more" / "other"
    eventq.init(other)
    box.thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers, "--all", str(tmp_path / "more"), "--thread", box.path)
    worker.wait_for(f"{other}: has no consumer")
    shutil.rmtree(other)
    worker.wait_for("it is given up until it changes")
    box.push()
    until(box.all_handled, "the other thread is worked for")
    with eventq.open(other, create=True) as thread:
        thread.subscribe("w", noting(box), each=True)
        worker.wait_for(f"{other}: works for consumer 'w'")
    assert len(worker.said("it is given up")) == 1
    worker.end()


def test_a_damaged_thread_does_not_end_the_others(
    box: Box, workers: list[Worker], tmp_path: Path
) -> None:
    """It is reported once."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "events.db").write_bytes(b"x" * 8192)
    box.thread.subscribe("w", noting(box), each=True)
    worker = start(box, workers, "--thread", str(other), "--thread", box.path)
    box.push()
    until(box.all_handled, "the other thread is worked for")
    assert len(worker.said("it is given up until it changes")) == 1
    worker.end()


def test_a_thread_that_is_none(box: Box, workers: list[Worker], tmp_path: Path) -> None:
    """Without any thread there is nothing to work for."""
    done = box.run("work", "--thread", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "is not a thread" in done.stderr or "no thread" in done.stderr
    done = box.run("work")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: no thread is given")


def test_a_second_signal_ends_the_grace(box: Box, workers: list[Worker]) -> None:
    """Who cannot wait sends it: handlers that still run are ended at once."""
    box.thread.subscribe("w", noting(box, "exec sleep 600"), each=True)
    words = ("--thread", box.path, "--grace", "500s", "--no-dispatch")
    worker = start(box, workers, *words)
    box.push()
    until(lambda: got(box), "the handler runs")
    worker.process.send_signal(signal.SIGINT)
    worker.wait_for("waits up to 500 seconds for 1 running handler")
    assert worker.end(signal.SIGTERM) == 130
    assert box.quiet()
    row = box.thread.claim("w")
    assert [(claim.event.id, claim.attempt) for claim in row] == [(1, 1)]


def test_a_loop_handler_that_is_ended_has_not_failed(box: Box, workers: list[Worker]) -> None:
    """Its attempts are those of handlers that ended by themselves."""
    begun = os.path.join(box.folder, "begun")
    box.thread.subscribe("w", f"echo > {quote(begun)}; exec sleep 600")
    worker = start(box, workers, "--thread", box.path, "--grace", "500s", "--no-dispatch")
    box.push()
    until(lambda: os.path.exists(begun), "the handler runs")
    worker.process.send_signal(signal.SIGINT)
    worker.wait_for("waits up to 500 seconds for 1 running handler")
    assert worker.end(signal.SIGTERM) == 130
    assert box.quiet()
    state = box.thread.consumers.state("w")
    assert state is not None
    assert (state.attempts, state.acked) == (0, 0)


def test_links_to_folders_are_not_followed(box: Box, workers: list[Worker], tmp_path: Path) -> None:
    """A link to a folder above would never end; a folder with a thread in it is one."""
    root = tmp_path / "all"
    root.mkdir()
    (root / "up").symlink_to(root)
    (root / "link").symlink_to(box.path)
    eventq.init(root / "thread")
    worker = Worker(box.folder, "--all", str(root))
    workers.append(worker)
    worker.wait_for("all/thread: has no consumer to work for yet")
    worker.end()
    assert len(worker.said("has no consumer")) == 1


def test_the_thread_of_the_environment(box: Box, workers: list[Worker]) -> None:
    """Without --thread and --all it is EVENTQ_THREAD, as for other commands."""
    box.patch.setenv("EVENTQ_THREAD", box.path)
    box.thread.subscribe("w", noting(box), each=True)
    worker = Worker(box.folder)
    workers.append(worker)
    worker.wait_for("works for consumer 'w'")
    worker.end()


def test_handlers_may_open_as_many_files_as_ever(box: Box, workers: list[Worker]) -> None:
    """The worker raises its own limit, and theirs stays."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 700), hard))
    try:
        log = quote(os.path.join(box.folder, "limit"))
        box.thread.subscribe("w", f"ulimit -n > {log}", each=True)
        worker = start(box, workers)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    box.push()
    until(box.all_handled, "the event is handled")
    worker.end()
    with open(os.path.join(box.folder, "limit"), encoding="utf-8") as file:
        assert int(file.read()) == min(soft, 700)


def test_without_inotify_it_looks_often(box: Box) -> None:
    """Then the times of the files say what has changed."""
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.subscribe("w", "true", each=True)
    worker = box.start(
        "import sys, inotify_simple; from eventq.running.work import Work\n"
        "def refuse(*_): raise OSError(28, 'no more watches')\n"
        "inotify_simple.INotify.add_watch = refuse\n"
        "Work([sys.argv[1]]).run()\n"
    )
    until(lambda: locks.Leases(box.path).is_worked("w"), "it works")
    box.thread.push("self", "note", "x")
    until(box.all_handled, "the event is handled")
    worker.terminate()
    assert worker.communicate(timeout=DEADLINE)[1] == ""


def test_idle_threads_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are looked at, few stay open, and one that is closed is opened for its next event."""
    from eventq.running.work import Work

    monkeypatch.setenv("EVENTQ_NOTIFIER", "none")
    for number in range(60):
        with eventq.open(tmp_path / str(number), create=True) as thread:
            thread.subscribe("w", f"kill {os.getpid()}", each=True)  # that ends the worker
    closed, real = [], eventq.Thread.close

    def close(thread: eventq.Thread) -> None:
        real(thread)
        closed.append(thread.path)
        if len(closed) == 60 - 32:
            with eventq.open(closed[0]) as again:
                again.push("self", "note", "x")

    monkeypatch.setattr(eventq.Thread, "close", close)
    before, said = len(os.listdir("/dev/fd")), list[str]()
    assert Work([], [str(tmp_path)], say=said.append).run() == signal.SIGTERM
    assert len([line for line in said if "works for consumer 'w'" in line]) == 60
    with eventq.open(closed[0]) as thread:
        assert thread.status().consumers[0].last_acked_id == 1
    assert len(os.listdir("/dev/fd")) == before
