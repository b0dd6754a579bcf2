"""Real dispatches, supervisors and handlers: what they run, when they stop, and what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

import apsw
import pytest

import eventq
from eventq.log.notifier import quote
from eventq.system import processes
from tests.engines import sqlite
from tests.race.support import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.race.support import Box

PUSHER = """
import sys, eventq
with eventq.open(sys.argv[1]) as thread:
    for n in range(int(sys.argv[2])):
        thread.push("self", "test", str(n))
"""


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["all", "one"])
def test_no_event_waits_for_the_next_push(mode: str, count: int, box: Box) -> None:
    """Pushes while real handlers end: all events are handled, in order, once."""
    box.thread.subscribe("w", box.handler(mode))
    for number in range(count):
        pushers = [box.start(PUSHER, str(1 + (number + n) % 3)) for n in range(2)]
        before = len(box.trace("end"))
        box.thread.push("self", "test", "x")
        until(lambda: len(box.trace("end")) > before, "a handler ends")  # noqa: B023
        box.thread.push("self", "test", "just as it ends")
        for pusher in pushers:
            assert pusher.communicate(timeout=120) == ("", "")
        until(box.all_handled, "every event is handled without a further push")
    box.settle()
    got = [int(line.split()[3]) for line in box.trace("got")]
    assert got == list(range(1, box.thread.last_id() + 1))


def test_a_handler_without_progress_is_retried_then_stalled_until_resume(box: Box) -> None:
    """After max_attempts runs without an ack the consumer stalls; resume restarts it."""
    box.thread.subscribe("w", box.handler("fail"), max_attempts=3)
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer().stalled, "the stall is noted")
    box.settle()
    assert len(box.trace("start")) == 3
    assert box.consumer().attempts == 3
    assert not box.consumer().running
    assert len(box.journal("[WARN] retry: consumer=w event=1 attempt=")) == 2
    (line,) = box.journal(
        "[WARN] stall: consumer=w is stalled: 3 times in a row its handler exited with code "
    )
    assert line.endswith(f"; fix it, then: eventq resume --thread {box.path} --consumer w")
    box.thread.push("self", "test", "y")
    told = box.run("dispatch", "--thread", box.path).stderr
    assert told.startswith(
        "Note: consumer 'w' was skipped: it is stalled: 3 times in a row its handler exited "
    )
    step = f"; fix it, then run: eventq resume --thread {box.path} --consumer w\n"
    assert told.endswith(f" at event 1{step}")
    box.settle()
    assert len(box.trace("start")) == 3, "nothing is started for a stalled consumer"
    assert len(box.journal("skipped: it is stalled")) == 1
    box.thread.resume("w")
    until(lambda: len(box.trace("start")) == 6, "three more runs")
    until(lambda: box.consumer().stalled, "it stalls again")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("true", "2 times in a row its handler exited with code 0 without acking event 1"),
        ("exit 7", "2 times in a row its handler exited with code 7 at event 1"),
        (
            "sleep 1000 & kill -9 $$",
            "2 times in a row its handler was killed by signal 9 (SIGKILL) at event 1",
        ),
        (
            "test -e mark && exit 4; touch mark",
            "2 times in a row its handler exited with code 0 or exited with code 4 at event 1",
        ),
    ],
)
def test_a_stall_says_what_happened(box: Box, tmp_path: Path, command: str, why: str) -> None:
    """How the runs ended, and at which event, in `info` and in the log."""
    with contextlib.chdir(tmp_path):
        box.thread.subscribe("w", command, max_attempts=2)
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer().stalled, "the stall is noted")
    assert box.consumer().stalled == why
    box.settle()  # the line is written after that; children of a killed handler die with it
    (line,) = box.journal("[WARN] stall: consumer=w is stalled: ")
    assert ("subscribe with --each" in line) == (command == "true")


def test_a_handler_that_exits_well_and_acks_nothing_stalls_after_five_runs(box: Box) -> None:
    """However many attempts there are: more of them would not help. One that fails has all."""
    box.patch.setenv("EVENTQ_BACKOFF", "0.001")
    box.thread.subscribe("idle", "true", max_attempts=9)
    box.thread.subscribe("w", "exit 3", max_attempts=7)
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer("idle").stalled and box.consumer().stalled, "both stall")
    idle, fails = box.consumer("idle"), box.consumer()
    assert (idle.attempts, fails.attempts) == (5, 7)
    assert str(idle.stalled).startswith("5 times in a row its handler exited with code 0 without")
    assert str(fails.stalled).startswith("7 times in a row its handler exited with code 3 at")
    tries = [
        line.split("attempt=")[1].split(":")[0] for line in box.journal("] retry: consumer=idle")
    ]
    assert tries == ["1/5", "2/5", "3/5", "4/5"]


def test_a_paused_consumer_rests_until_it_is_resumed(box: Box) -> None:
    """Its handler is not started; `resume` starts it at once."""
    box.thread.subscribe("w", box.handler())
    box.thread.pause("w")
    box.thread.push("self", "test", "x")
    told = box.run("dispatch", "--thread", box.path).stderr
    step = f"run: eventq resume --thread {box.path} --consumer w"
    assert told == f"Note: consumer 'w' was skipped: it is paused; {step}\n"
    box.settle()
    assert box.trace("start") == []
    assert box.consumer().paused
    box.thread.resume("w")
    until(box.all_handled, "the handler has run")
    assert not box.consumer().paused


def test_an_ack_ends_a_stall(box: Box) -> None:
    """Any ack ends a stall, and the rest is handled without a push."""
    box.thread.subscribe("w", box.handler("fail"), max_attempts=1)
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer().stalled, "the stall is noted")
    box.settle()
    box.thread.push("self", "test", "y")
    assert len(box.trace("start")) == 1
    box.thread.ack("w", 1)
    until(lambda: len(box.trace("start")) == 2, "the handler is started again")
    until(lambda: box.consumer().stalled, "and fails again")
    box.settle()
    box.thread.ack("w", 2)
    assert box.consumer().stalled is None
    assert box.quiet()


def test_back_off_grows(box: Box) -> None:
    """Each further run without progress waits twice as long as before, less up to half of it."""
    box.thread.subscribe("w", "exit 1", max_attempts=4)
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer().stalled, "the stall is noted")
    waits = [float(line.split(" in ")[1].split("s;")[0]) for line in box.journal("] retry: ")]
    for wait, most in zip(waits, (0.01, 0.02, 0.04), strict=True):
        assert most / 2 <= wait <= most


def test_a_handler_that_runs_too_long_is_asked_then_killed(box: Box) -> None:
    """After its timeout a handler and its children get SIGTERM; the run counts as failed."""
    asked = os.path.join(box.folder, "asked")
    command = f"trap 'echo asked >> {quote(asked)}; exit 1' TERM; mkfifo {quote(asked)}.pipe; read x < {quote(asked)}.pipe & wait"
    box.thread.subscribe("w", command, max_attempts=1, timeout=3)
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer().stalled, "the stall is noted")
    box.settle()
    with open(asked, encoding="utf-8") as file:
        assert file.read() == "asked\n"
    assert len(box.journal("[INFO] dispatch: consumer=w timed out after 3 seconds")) == 1


def test_a_handler_that_ignores_sigterm_is_killed(box: Box, tmp_path: Path) -> None:
    """SIGKILL follows SIGTERM after five seconds, for the handler and its children."""
    assert processes.GRACE_SECONDS == 5
    pipe = quote(str(tmp_path / "pipe"))
    box.thread.subscribe(
        "w",
        f"trap '' TERM; mkfifo {pipe}; (read x < {pipe}) & read x < {pipe}",
        max_attempts=1,
        timeout=3,
    )
    began = time.monotonic()
    box.thread.push("self", "test", "x")
    until(lambda: box.consumer().stalled, "the stall is noted")
    assert time.monotonic() - began >= 5
    box.settle()
    assert len(box.journal("killed signal=9")) == 1


def test_what_a_handler_says_goes_to_its_log_which_is_rotated(box: Box) -> None:
    """Both streams go to logs/handlers/<consumer>.log, which rotates at 10,000 lines."""
    ack = (
        " ".join(quote(word) for word in sys.orig_argv[:1])
        + ' -c \'import eventq, os; eventq.open(os.environ["EVENTQ_THREAD"]).ack("Say/It", {})\''
    )
    code = "import sys; sys.stdout.write('out\\n' * 600000); sys.stdout.flush(); sys.stderr.write('err\\n')"
    loud = f"{quote(sys.executable)} -c {quote(code)}; {ack.replace('{}', '1')}"
    box.thread.subscribe("Say/It", loud)
    box.thread.push("self", "test", "x")
    until(lambda: box.all_handled("Say/It"), "the handler has run")
    box.settle()
    folder = os.path.join(box.path, "logs", "handlers")
    assert os.listdir(folder) == ["+say%2f+it.log"]
    with open(os.path.join(folder, "+say%2f+it.log"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert (len(lines), lines[-1]) == (600_001, "err")
    box.thread.unsubscribe("Say/It")
    box.thread.subscribe("Say/It", f"echo next; {ack.replace('{}', '2')}")
    box.thread.push("self", "test", "y")
    until(lambda: box.all_handled("Say/It"), "the handler has run again")
    box.settle()
    assert len(os.listdir(folder)) == 2
    with open(os.path.join(folder, "+say%2f+it.log"), encoding="utf-8") as file:
        assert file.read() == "next\n"


def test_rotated_logs_of_a_handler_are_bounded(box: Box) -> None:
    """A rotation keeps 64 files and 64 MiB of a consumer, and touches no log of another one."""
    folder = os.path.join(box.path, "logs", "handlers")
    sizes = {"a": [1] * 70, "b": [30 << 20] * 4, "c": [1, 100 << 20]}
    others = ["a-b.log", "a-b-20200101-000000.log", "a-20200101.log", "a-20200101-000099+.log"]
    for name in others:
        open(os.path.join(folder, name), "w").close()
    for consumer, found in sizes.items():
        box.thread.subscribe(consumer, "true", each=True)
        for number, size in enumerate(found):
            path = os.path.join(folder, f"{consumer}-20200101-0000{number:02}.log")
            with open(path, "wb") as file:
                file.truncate(size)
        with open(box.thread.layout.handler_log(consumer), "w") as log:
            log.write("x" * 200 + "\n")
            log.write("x" * 110 + "\n" * 10_001 + "x" * (1 << 20))
    assert box.thread.layout.handler_log("a-20200101-000099") == os.path.join(folder, others[-1])
    box.thread.push("self", "test", "x")
    until(lambda: all(map(box.all_handled, sizes)), "the handlers have run")
    box.settle()
    left = {
        consumer: len([name for name in os.listdir(folder) if name.startswith(f"{consumer}-2")])
        for consumer in sizes
    }
    assert left == {"a": 64 + 2, "b": 3, "c": 1}
    assert {*others, "a.log", "b.log", "c.log"} <= {*os.listdir(folder)}


def test_a_handler_inherits_directory_and_environment_and_nothing_else(
    box: Box, tmp_path: Path
) -> None:
    """A handler has the push's environment without a server's token, and three streams."""
    code = (
        "import json, os, sys\n"
        "fds = sorted(int(n) for n in os.listdir('/dev/fd'))\n"
        "links = {n: os.readlink(f'/dev/fd/{n}') for n in fds if os.path.islink(f'/dev/fd/{n}') and n < 3}\n"
        "opened = [n for n in fds if n > 2 and os.path.exists(f'/dev/fd/{n}')]\n"
        "env = {k: v for k, v in os.environ.items() if k.startswith('EVENTQ') or k == 'COLOUR'}\n"
        "found = {'cwd': os.getcwd(), 'env': env, 'open': opened, 'pid': os.getpid(), 'leader': os.getsid(0) == os.getpgid(0), 'links': links}\n"
        "open(sys.argv[1] + '.new', 'w').write(json.dumps(found))\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "import eventq; eventq.open(os.environ['EVENTQ_THREAD']).ack('w', 1)\n"
    )
    found = str(tmp_path / "found")
    place = tmp_path / "a place"
    place.mkdir()
    with contextlib.chdir(place):
        box.thread.subscribe("w", f"exec {quote(sys.executable)} -c {quote(code)} {quote(found)}")
    box.push(cwd=str(tmp_path), COLOUR="blue", EVENTQ_TOKEN="s3cret")
    until(box.all_handled, "the handler has run")
    box.settle()
    with open(found, encoding="utf-8") as file:
        seen = json.load(file)
    assert seen["cwd"] == str(place)
    assert seen["env"].pop("EVENTQ_HANDLER").startswith(f"{seen['pid']}:")
    assert seen["env"] == {
        "EVENTQ_THREAD": box.path, "EVENTQ_CONSUMER": "w", "EVENTQ_LAST_ACKED_ID": "0", "EVENTQ_FENCE": f"1 w {box.path}", "COLOUR": "blue",
        "EVENTQ_NOTIFIER": "builtin", "EVENTQ_BACKOFF": "0.01", "EVENTQ_TEST_MARK": box.mark,
    }  # fmt: skip
    assert seen["open"] == []
    assert seen["leader"]
    if seen["links"]:
        assert seen["links"]["0"] == "/dev/null"
        assert seen["links"]["1"] == seen["links"]["2"] == box.thread.layout.handler_log("w")


def test_a_daemon_that_a_handler_leaves_behind_holds_no_lock(box: Box, tmp_path: Path) -> None:
    """A handler's background process holds neither the lock nor files of eventq."""
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    box.thread.subscribe("w", f"(read x < {quote(pipe)}) & {box.handler()}")
    box.thread.push("self", "test", "x")
    until(lambda: box.all_handled() and not box.held(), "the first event is handled")
    box.thread.push("self", "test", "y")
    until(lambda: box.all_handled() and not box.held(), "the second event is handled")
    assert len(box.trace("start")) == 2
    assert not box.quiet()
    until(lambda: _open_and_close(pipe) or box.quiet(), "the daemons read their word")


def _open_and_close(pipe: str) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass
    return False


def test_dispatch_returns_at_once_though_its_output_is_a_pipe(box: Box, tmp_path: Path) -> None:
    """A dispatch leaves no process that holds its output open."""
    os.mkfifo(tmp_path / "gate")
    box.patch.setenv("EVENTQ_NOTIFIER", "none")
    box.thread.subscribe("w", box.handler("hang"))
    box.thread.push("self", "test", "x")
    done = box.run("dispatch", "--thread", box.path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    until(lambda: box.trace("start"), "the handler runs")
    assert box.held()
    assert box.consumer().running
    box.open_gate()
    until(box.all_handled, "the handler goes on")


def test_a_broken_filter_stalls_its_own_consumer_only(box: Box) -> None:
    """A foreign filter that does not run stalls its consumer, with a message, and no other."""
    box.thread.subscribe("bad", "true")
    box.thread.subscribe("w", box.handler())
    with box.thread.write():
        sqlite(box.thread.database).connection.execute(
            "UPDATE subscriptions SET filter = 'nonsense(' WHERE consumer_id = 'bad'"
        )
    box.thread.push("self", "test", "x")
    until(box.all_handled, "the other consumer is run")
    until(lambda: box.consumer("bad").stalled, "the stall is noted")
    stalled = box.consumer("bad").stalled
    assert stalled is not None
    assert stalled.startswith("its filter is refused")
    assert box.consumer("bad").pending is None
    assert len(box.journal("stall: consumer=bad is stalled: its filter is refused")) == 1
    assert box.run("check", "--thread", box.path).returncode == 1
    box.settle()
    box.thread.unsubscribe("bad")


def test_a_thread_that_is_deleted_while_its_handler_runs_is_not_made_again(box: Box) -> None:
    """Supervisor and handler end, and no file of the thread comes back."""
    box.hang(max_attempts=2)
    box.thread.close()
    shutil.rmtree(box.path)
    box.open_gate()
    box.settle()
    assert not os.path.exists(box.path)


def test_a_thread_that_is_made_anew_while_a_handler_runs_is_served(box: Box) -> None:
    """The supervisor of a deleted thread does not affect its replacement."""
    box.hang(max_attempts=2)
    box.thread.close()
    shutil.rmtree(box.path)
    eventq.init(box.path)
    box.thread = eventq.open(box.path)
    box.thread.subscribe("other", box.handler())
    box.thread.push("self", "test", "new")
    until(lambda: box.all_handled("other"), "the new thread's handler runs")
    assert box.thread.last_id() == 1
    box.open_gate()
    box.settle()
    assert [info.consumer_id for info in box.thread.status().consumers] == ["other"]


def test_a_clock_that_goes_backwards_hurts_nobody(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids order the events: with a clock that jumps back, all are handled in order."""
    from eventq.system import clock

    real = clock.now
    box.thread.subscribe("w", box.handler())
    for number, offset in enumerate((0, -86_400 * 400, 3600, -3600, -5)):
        monkeypatch.setattr("eventq.system.clock.now", lambda offset=offset: real() + offset)
        assert box.thread.push("self", "test", str(number)).id == number + 1
        box.thread.journal.info("still written")
    until(box.all_handled, "all is handled")
    box.settle()
    assert [line.split()[-1] for line in box.trace("got")] == ["1", "2", "3", "4", "5"]
    assert len(box.journal("still written")) == 5
    assert [event.content for event in box.thread.peek()] == ["0", "1", "2", "3", "4"]


def test_a_supervisor_gives_up_a_thread_that_a_newer_eventq_has_changed(box: Box) -> None:
    """An outdated supervisor logs that and releases the lock for a newer one."""
    box.hang()
    raw = apsw.Connection(os.path.join(box.path, "events.db"))
    raw.set_busy_timeout(30_000)
    change = (
        "BEGIN IMMEDIATE; ALTER TABLE subscriptions RENAME {}; PRAGMA user_version = {}; COMMIT"
    )
    version = raw.pragma("user_version")
    raw.execute(change.format("COLUMN filter TO wanted", 1000))
    os.kill(box.handler_pid(), signal.SIGKILL)
    until(lambda: not box.held(), "the lock is let go")
    assert box.journal("consumer=w given up (") == box.journal(
        "was brought up to date by a newer eventq - open it again"
    )
    assert len(box.journal("consumer=w given up (")) == 1
    box.settle()
    # Undone, as the thread must check out.
    raw.execute(change.format("COLUMN wanted TO filter", version))
    raw.close()
