"""Handlers of a thread in PostgreSQL: who runs them, which are allowed, and what ends a lease."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventq
from eventq.errors import BusyError, FencedError, UsageError
from eventq.log.notifier import quote
from eventq.running.allowed import Allowed
from eventq.running.shared_runner import News, SharedRunner
from eventq.running.watchdog import Watchdog
from eventq.running.work import Work
from eventq.store import opening
from eventq.system import clock, processes
from eventq.thread import destroy
from tests.race.support import DEADLINE, until
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.store.address import Address

SLEEP = "exec sleep 600"


class Machines:
    """Runners of one thread, as if each were on a machine of its own, and the clock of all."""

    def __init__(self, path: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.path, self.folder, self.patch = path, folder, patch
        self.later = 0.0
        self.runners: list[SharedRunner] = []
        self.said: dict[int, list[str]] = {}
        self.heard: list[News] = []
        self.heard_of: list[str] = []
        self.guarded: dict[str, float] = {}
        self.name = "other"
        self.freeze = 0.0  # for which the worker freezes once it has said until when one may run
        now, monotonic, opened = clock.now, clock.monotonic, opening.open_shared

        def open_shared(*args: Any, **more: Any) -> Any:
            made: Any = opened(*args, **more)
            made.clock = lambda: int(clock.now() * 1000)
            return made

        patch.setattr(clock, "now", lambda: now() + self.later)
        patch.setattr(clock, "monotonic", lambda: monotonic() + self.later)
        patch.setattr(opening, "open_shared", open_shared)
        patch.setattr(processes, "machine", lambda: self.name)
        self.thread = eventq.open(path)

    def add(self, *lines: str, labels: tuple[str, ...] = ()) -> SharedRunner:
        """Return a runner that allows some commands, or all."""
        number = len(self.runners)
        file = self.folder / f"allow-{number}"
        file.write_text("\n".join(lines or ("**",)))
        said = self.said[number] = []
        runner = SharedRunner(
            self.path, (), said.append, allowed=Allowed(str(file), labels), guard=self.guard,
            news_of=self.news,
        )  # fmt: skip
        self.runners.append(runner)
        return runner

    def news(self, address: Address) -> News:
        """Return what is heard of the threads of a database."""
        self.heard.append(News(address, self.heard_of.append))
        return self.heard[-1]

    def guard(self, handler: str, deadline: float | None) -> None:
        """Note until when a handler may run."""
        self.guarded.pop(handler, None)
        if deadline is not None:
            self.guarded[handler] = deadline
            self.later += self.freeze

    def work(self, runner: SharedRunner, *, look: bool = True) -> None:
        """Let a machine do what can be done without waiting."""
        self.name = f"machine-{self.runners.index(runner)}"
        if look:
            runner.look()
        runner.advance()
        self.name = "other"

    def lines(self, name: str = "trace") -> list[str]:
        """Return what handlers have written."""
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def close(self) -> None:
        """End all handlers."""
        for handler in self.guarded:
            if (number := processes.group_of(handler)) is not None:
                processes.kill_group(number, signal.SIGKILL)
        for runner in self.runners:
            runner.close()
        for news in self.heard:
            news.close()
        self.thread.close()


@pytest.fixture
def machines(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Return machines that work for a new thread."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Machines(fresh(postgres), tmp_path, monkeypatch)
    yield made
    made.close()


def noting(machines: Machines, then: str = SLEEP) -> str:
    """Return a command that notes its fence, and goes on."""
    return f"echo ${{EVENTQ_FENCE%% *}} >> {machines.folder}/trace; {then}"


@pytest.mark.parametrize("each", [False, True])
def test_a_worker_that_was_frozen_has_lost_its_consumer(machines: Machines, each: bool) -> None:
    """Another takes over after the lease; the old handler is killed, and what it stored refused."""
    machines.thread.subscribe("w", noting(machines), each=each, lease=10)
    machines.thread.push("self", "t", "x")
    first, second = machines.add(), machines.add()
    machines.work(first)
    until(lambda: len(machines.lines()) == 1, "the handler runs")
    (handler,) = machines.guarded
    machines.work(second)
    assert (first.running, second.running) == (1, 0)  # the lease is held
    machines.later += 16
    machines.work(second)
    until(lambda: len(machines.lines()) == 2, "the other machine runs it")
    assert machines.lines() == [
        "1",
        "2",
    ]  # the fence is the lease's: who has lost it cannot raise it
    assert first.running == second.running == 1
    machines.patch.setenv("EVENTQ_FENCE", f"{machines.lines()[0]} w {machines.thread.path}")
    if not each:
        with pytest.raises(FencedError):
            machines.thread.ack("w", 1)
    machines.work(first, look=False)  # it thaws
    assert first.running == 0
    assert processes.group_of(handler) is None
    assert handler not in machines.guarded
    assert any("lost its lease" in line for line in machines.said[0])
    assert second.running == 1
    if each:
        assert [claim.attempt for claim in machines.thread.claims()] == [2]


def test_a_handler_is_guarded_until_it_ends(machines: Machines) -> None:
    """It has to be dead when its lease ends; each renewal moves that, and its end lifts it."""
    machines.thread.subscribe("w", noting(machines), each=True, lease=9)
    machines.thread.push("self", "t", "x")
    runner = machines.add()
    machines.work(runner)
    ((handler, before),) = machines.guarded.items()
    assert before <= clock.monotonic() + 9
    machines.later += 5.5
    machines.work(runner)
    assert machines.guarded[handler] >= before + 5.5
    number = processes.group_of(handler)
    assert number is not None
    processes.kill_group(number, signal.SIGKILL)
    until(lambda: processes.group_of(handler) is None, "it is dead")
    machines.work(runner)
    assert machines.guarded == {}


def test_who_has_lost_a_lease_starts_nothing(machines: Machines) -> None:
    """The pid of a handler is noted before it may begin, and only under a lease that holds."""
    machines.thread.subscribe("w", SLEEP)
    consumers = machines.thread.consumers
    first = consumers.lease("w")
    machines.later += 16
    second = consumers.lease("w")
    assert first is not None
    assert second is not None
    with pytest.raises(BusyError, match="has ended"):
        first.note(os.getpid())
    assert not first.renew()
    second.note(os.getpid())
    second.release()


@pytest.mark.parametrize("each", [False, True])
def test_a_worker_that_freezes_at_the_start_of_a_handler_starts_none(
    machines: Machines, each: bool
) -> None:
    """After the thaw another machine may run the next one: the handler does not even begin."""
    machines.thread.subscribe("w", noting(machines), each=each, lease=10)
    machines.thread.push("self", "t", "x")
    first, second = machines.add(), machines.add()
    machines.freeze = 16.0
    machines.work(first)
    machines.freeze = 0.0
    machines.work(second)
    until(lambda: len(machines.lines()) == 1, "the other machine runs it")
    machines.work(first, look=False)
    assert (first.running, second.running) == (0, 1)
    assert machines.lines() == ["2"]
    assert len(machines.guarded) == 1


def test_a_server_that_does_not_answer_extends_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the lease cannot be renewed its handler keeps the deadline that it had."""
    machines.thread.subscribe("w", noting(machines))
    machines.thread.push("self", "t", "x")
    runner = machines.add()
    machines.work(runner)
    before = dict(machines.guarded)

    def fails(*_: object) -> None:
        raise eventq.errors.StoreError("the server cannot be reached", "check that it runs")

    machines.later += 8
    with monkeypatch.context() as patch:
        patch.setattr("eventq.store.postgres.database.Database.aside", fails)
        patch.setattr("eventq.store.postgres.database.Database.rows", fails)
        machines.work(runner, look=False)
        assert runner.running == 1
        machines.later += 8
        machines.work(runner, look=False)
    assert runner.running == 0
    assert machines.guarded == {} != before


def test_only_allowed_commands_run(machines: Machines) -> None:
    """Others are named once; a file that is changed counts at once."""
    machines.thread.subscribe("w", "echo  no", each=True)
    machines.thread.push("self", "t", "x")
    runner = machines.add("echo no", "# echo  no")
    for _ in range(2):
        machines.work(runner)
    (said,) = [line for line in machines.said[0] if "does not allow" in line]
    assert "consumer 'w' is left to other machines" in said
    assert "'echo  no'" in said
    assert runner.running == 0
    assert not runner.has_changed()
    (machines.folder / "allow-0").write_text("echo  no\n")
    assert runner.has_changed()
    machines.work(runner)
    assert runner.running == 1


@pytest.mark.parametrize("each", [False, True])
def test_a_command_that_is_changed_meanwhile_does_not_run(machines: Machines, each: bool) -> None:
    """A supervisor looks at the file before each start, and leaves the consumer to others."""
    allowed = noting(machines, "exit 1")
    machines.thread.subscribe("w", allowed, each=each, backoff=(1, 1))
    machines.thread.push("self", "t", "x")
    first, second = machines.add(allowed), machines.add()
    machines.work(first)

    def ended() -> bool:
        machines.work(first, look=False)
        return first.running == 0

    until(ended, "the first attempt has failed")
    machines.thread.subscribe("w", noting(machines), each=each, backoff=(1, 1), replace=True)
    machines.later += 2
    machines.work(first)
    assert (first.running, len(machines.lines())) == (0, 1)
    machines.work(second)
    until(lambda: len(machines.lines()) == 2, "another machine runs it")


def test_workers_run_what_has_their_label(machines: Machines) -> None:
    """A worker without labels runs consumers without, and one with labels those with one of them."""
    for name, label in (("a", None), ("b", "gpu"), ("c", "big")):
        machines.thread.subscribe(name, noting(machines), each=True, label=label)
    machines.thread.push("self", "t", "x")
    plain, gpu = machines.add(), machines.add(labels=("gpu", "tiny"))
    machines.work(plain)
    machines.work(gpu)
    said = [
        [line.rpartition(" ")[2] for line in machines.said[n] if "works" in line] for n in (0, 1)
    ]
    assert said == [["'a'"], ["'b'"]]
    assert [one.label for one in machines.thread.subscriptions()] == [None, "gpu", "big"]
    assert [one.worked for one in machines.thread.status().consumers] == [True, True, False]


def test_who_works_is_said(machines: Machines) -> None:
    """`info` names the command that is missing, and `check --strict` says what waits for it."""
    machines.thread.subscribe("w", SLEEP, each=True, label="gpu")
    machines.thread.push("self", "t", "x")
    (info,) = machines.thread.status().consumers
    assert (info.waits_for, info.label) == ("a handler, and nobody runs it", "gpu")
    command = f"eventq work --thread '{machines.thread.path}' --allow FILE --label gpu"
    assert info.advice == command
    machines.later += 100
    (warning,) = machines.thread.warnings()
    assert "nobody works for it" in warning
    assert command in warning
    machines.work(machines.add(labels=("gpu",)))
    assert machines.thread.status().consumers[0].advice is None
    assert list(machines.thread.warnings()) == []


def test_a_label_is_for_machines(tmp_path: Path, machines: Machines) -> None:
    """A thread in a directory refuses it, and so does a consumer without a handler."""
    with eventq.open(tmp_path / "thread", create=True) as thread:
        with pytest.raises(UsageError, match="belongs to one machine"):
            thread.subscribe("w", "true", label="gpu")
        assert thread.subscriptions() == []
    with pytest.raises(UsageError, match="for a handler"):
        machines.thread.subscribe("w", label="gpu")


def test_a_thread_that_is_made_anew_is_worked_for(machines: Machines, postgres: str) -> None:
    """A worker of several looks again after 30 seconds, and says once that one was gone."""
    (machines.folder / "allow").write_text("**")
    said: list[str] = []
    paths = [machines.path, fresh(postgres)]
    made = Work(paths, allowed=Allowed(str(machines.folder / "allow")), say=said.append)
    machines.thread.subscribe("w", SLEEP)
    made.advance()
    destroy(machines.path)
    for _ in range(3):
        machines.later += 31
        made.advance()
    with eventq.open(machines.path, create=True) as thread:
        thread.subscribe("w", SLEEP)
        machines.later += 31
        made.advance()
        made.stop()
    assert [line.partition(": ")[2] for line in said if "'w'" in line] == 2 * [
        "works for consumer 'w'"
    ]
    assert len([line for line in said if "given up" in line]) == 1


# --- the file of allowed commands -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "command", "is_allowed"),
    [
        ("make mail", "make mail", True),
        ("  make mail  ", "make mail", True),
        ("make mail", "make mail; rm -rf /", False),
        ("make *", "make all -j 2", True),
        ("make *", "make ", True),
        ("make *", "make", False),
        ("make *", "make all; rm -rf /", False),
        ("make *", "make $(rm -rf /)", False),
        ("make *", "make `id`", False),
        ("make *", "make all\nrm -rf /", False),
        ("make ?", "make a", True),
        ("make ?", "make ab", False),
        ("echo * > log", "echo a b > log", True),
        ("echo * > log", "echo a > b > log", False),
        ("a.b", "aXb", False),
        ("ls *.txt", "ls *.txt", True),
        ("**", "anything; at | all", True),
        ("# make mail", "make mail", False),
        ("# make mail", "# make mail", False),
        ("", "", False),
    ],
)
def test_what_a_line_allows(tmp_path: Path, line: str, command: str, is_allowed: bool) -> None:
    """The command itself, or a pattern that lets nobody add another command."""
    file = tmp_path / "allow"
    file.write_text(f"first\n{line}\nlast\n")
    assert Allowed(str(file))(command) is is_allowed


@given(st.text(alphabet="ab ;&|<>()$`\\\n*?", max_size=12))
def test_a_pattern_adds_no_command(tmp_path_factory: pytest.TempPathFactory, more: str) -> None:
    """Whatever stands for a `*` holds nothing that a shell acts upon."""
    file = tmp_path_factory.getbasetemp() / "allow-run"
    file.write_text("run *\n")
    assert Allowed(str(file))(f"run {more}") == (
        f"run {more}" == "run *" or not set(more) & set(";&|<>()$`\\\n")
    )


@given(
    st.text(alphabet="ab;?*", max_size=8),
    st.text(alphabet="ab;", max_size=10),
)
def test_a_pattern_finds_what_trying_all_would(
    tmp_path_factory: pytest.TempPathFactory, line: str, command: str
) -> None:
    """Each star stops at the first place where it can: no other one would have done."""
    file = tmp_path_factory.getbasetemp() / "allow-all"
    file.write_text(line)
    tried = "".join({"*": "[^;]*", "?": "[^;]"}.get(c, c) for c in line)
    assert Allowed(str(file))(command) == (
        line == "**" or (line != "" and re.fullmatch(tried, command) is not None)
    )


def test_a_long_command_is_compared_at_once(tmp_path: Path) -> None:
    """Who may subscribe cannot keep a worker busy with it."""
    file = tmp_path / "allow"
    file.write_text("run * * * *\n")
    allowed = Allowed(str(file))
    assert allowed("run" + " " * 100_000)
    assert not allowed("run" + " " * 100_000 + ";")


def test_a_file_that_is_gone_allows_nothing(tmp_path: Path) -> None:
    """One that never was is an error; what cannot be read any more allows nothing."""
    file = tmp_path / "allow"
    with pytest.raises(UsageError, match="cannot be read"):
        Allowed(str(file))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        Allowed(str(file))
    file.write_text("true")
    allowed = Allowed(str(file))
    assert allowed("true")
    file.unlink()
    assert not allowed("true")
    file.write_text("true ")
    assert allowed("true")


# --- the watchdog ---------------------------------------------------------------------------------


def sleeper() -> int:
    """Start a handler that sleeps."""
    return processes.spawn(["/bin/sleep", "600"])


def test_the_watchdog_kills_at_the_deadline() -> None:
    """It needs nothing of the worker, which may hang."""
    dog = Watchdog(print, hands_over=False)
    late, ended, going_on = sleeper(), sleeper(), sleeper()
    now = clock.monotonic()
    dog.guard(processes.identity(going_on), now + 1)
    dog.guard(processes.identity(going_on), now + 1000)
    dog.guard(processes.identity(ended), now + 1)
    dog.guard(processes.identity(ended), None)
    dog.guard(processes.identity(late), now + 1)
    assert processes.wait(late, DEADLINE) == -signal.SIGKILL
    assert processes.reap(ended) is None
    assert processes.reap(going_on) is None
    dog.close(farewell=False)  # the worker was killed
    assert processes.wait(going_on, DEADLINE) == -signal.SIGKILL
    assert processes.reap(ended) is None
    processes.kill_group(ended, signal.SIGKILL)
    assert processes.wait(ended, DEADLINE) == -signal.SIGKILL


def test_the_watchdog_leaves_short_leases_time() -> None:
    """It kills a little before the deadline, but not so early that nothing could run at all."""
    dog = Watchdog(print, hands_over=False)
    handler, begun = sleeper(), clock.monotonic()
    dog.guard(processes.identity(handler), begun + 0.4)
    assert processes.wait(handler, DEADLINE) == -signal.SIGKILL
    assert clock.monotonic() >= begun + 0.2
    dog.close(farewell=True)


# --- real processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [False, True], ids=["told", "polling"])
def test_work_runs_handlers(postgres: str, tmp_path: Path, pooled: bool) -> None:
    """It does so for each event and for a handler that pops, by the URL or a directory with it."""
    url = fresh(postgres)
    place = tmp_path / "thread"
    place.mkdir()
    (place / "thread.url").write_text(url + "&pooled=1" * pooled)
    (tmp_path / "allow").write_text("**")
    trace = tmp_path / "trace"
    with eventq.open(url) as thread:
        thread.subscribe("each", f"cat >> {trace}", each=True)
        pops = " ".join(map(quote, processes.python("pop", "--consumer", "pops")))
        thread.subscribe("pops", f"{pops} && {pops} --last-event-id 1")
    words = processes.python("work", "--thread", str(place), "--allow", str(tmp_path / "allow"))
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stderr is not None
            for _ in range(2):
                assert "works for consumer" in worker.stderr.readline()
            with eventq.open(url) as thread:
                thread.push("self", "t", "hello")
                until(
                    lambda: all(one.last_acked_id for one in thread.status().consumers),
                    "both handlers have run",
                )
            assert '"content":"hello"' in trace.read_text()
            assert os.path.exists(place / "logs" / "handlers" / "pops.log")
            worker.send_signal(signal.SIGTERM)
            *_, last = worker.stderr
            assert last.endswith("eventq work: stopped\n")
        finally:
            worker.kill()
    assert worker.returncode == 0


def test_a_worker_goes_on_when_its_connections_are_cut(postgres: str, tmp_path: Path) -> None:
    """The server may end all of them, at any time: what is pushed after that is handled."""
    url, role = fresh(postgres), f"r{uuid4().hex}"
    (tmp_path / "allow").write_text("**")
    trace = tmp_path / "trace"
    words = processes.python(
        "work", "--allow", str(tmp_path / "allow"),
        "--thread", url.replace("postgres@", f"{role}@"),
    )  # fmt: skip
    with psycopg.connect(postgres, autocommit=True) as server, eventq.open(url) as thread:
        server.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
        thread.subscribe("w", f"cat >> {trace}", each=True)
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as worker:
            try:
                assert worker.stderr is not None
                assert "works for consumer 'w'" in worker.stderr.readline()
                for number in range(1, 4):
                    cut = (
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"
                    )
                    assert server.execute(cut, (role,)).fetchall()
                    thread.push("self", "t", str(number))
                    handled = f"event {number} is handled"
                    until(lambda: thread.status().consumers[0].pending == 0, handled)
                assert len(trace.read_text().splitlines()) == 3
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(DEADLINE) == 0
            finally:
                worker.kill()
        server.execute(f"DROP ROLE {role}")


def test_a_worker_ends_when_its_watchdog_is_killed(postgres: str, tmp_path: Path) -> None:
    """Its handlers would outlive their leases if it were stopped or killed after that."""
    url = fresh(postgres)
    (tmp_path / "allow").write_text("**")
    with eventq.open(url) as thread:
        thread.subscribe("w", SLEEP)
    words = processes.python("work", "--thread", url, "--allow", str(tmp_path / "allow"))
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stderr is not None
            assert "works for consumer" in worker.stderr.readline()
            listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True)
            rows = [line.split() for line in listed.stdout.splitlines()]
            (watchdog,) = [int(pid) for pid, parent in rows if int(parent) == worker.pid]
            os.kill(watchdog, signal.SIGKILL)
            said = worker.stderr.read()
        finally:
            worker.kill()
    assert worker.returncode == 1
    assert "do not run without a watchdog" in said
    assert "the watchdog of this worker was killed - start the worker again" in said


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "add --allow FILE"),
        (["--allow", "/nowhere"], 2, "'/nowhere' cannot be read"),
        (["--label", "gpu"], 2, "--label"),
    ],
)
def test_work_wants_to_know_what_it_may_run(
    postgres: str, words: list[str], status: int, said: str
) -> None:
    """Without a file it ends at once, and says what to do."""
    line = processes.python("work", "--thread", fresh(postgres), *words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr


def test_work_for_a_thread_that_is_not_there_ends(postgres: str, tmp_path: Path) -> None:
    """So it does where nobody listens: who has started it sees why."""
    (tmp_path / "allow").write_text("**")
    for url, said in (
        (f"{postgres}&thread=none", "not a thread"),
        ("postgresql:///d?host=/nowhere&thread=none", "cannot be reached"),
    ):
        line = processes.python("work", "--thread", url, "--allow", str(tmp_path / "allow"))
        done = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
