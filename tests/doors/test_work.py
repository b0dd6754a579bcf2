"""`eventq work` with a Python program, `service systemd`, and file systems that are refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import LogicError, PlatformError, cited
from eventq.log.notifier import quote
from eventq.system import processes
from tests.doors.support import run
from tests.doors.test_mounts import mount
from tests.servers import fresh

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import eventq
worker = eventq.Worker()
number = 7
@worker.consumer("w")
def handle(event):
    print(event.content, flush=True)
    worker.stop()
"""


def work(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `eventq work` with a program in a folder."""
    command = processes.python("work", *words)
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def assert_quiet(stderr: str) -> None:
    """Check that a Python worker has said nothing but when it began and ended."""
    first, *others = stderr.splitlines()
    stamp = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[INFO\] eventq.worker: "
    assert re.fullmatch(stamp + "works for consumer 'w' of .+", first)
    ends = ["stops once its functions have ended, in 30 seconds at most", "has stopped"]
    assert [re.sub(stamp, "", line) for line in others] == ends


# --- a Python worker ------------------------------------------------------------------------------


def test_a_python_worker_is_found_here_and_gets_its_thread(tmp_path: Path) -> None:
    """The module is looked for in the current directory, and --thread says where events are."""
    (tmp_path / "tasks.py").write_text(PROGRAM)
    with eventq.open(tmp_path / "inbox", create=True) as thread:
        thread.push("self", "note", "hello")
    done = work(tmp_path, "tasks:worker", "--thread", "inbox")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert_quiet(done.stderr)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
@pytest.mark.parametrize("runs_itself", [False, True])
def test_the_exit_status_tells_how_a_python_worker_was_ended(
    number: signal.Signals, code: int, runs_itself: bool, tmp_path: Path
) -> None:
    """As with handlers: 0 after SIGTERM, and 130 after SIGINT."""
    text = PROGRAM.replace("Worker()", "Worker('inbox')") + "worker.run()\n" * runs_itself
    ending = f"__import__('os').kill(__import__('os').getpid(), {int(number)})"
    (tmp_path / "tasks.py").write_text(text.replace("worker.stop()", ending))
    with eventq.open(tmp_path / "inbox", create=True) as thread:
        thread.push("self", "note", "hello")
    done = work(tmp_path, "tasks:worker")
    assert (done.returncode, done.stdout) == (code, "hello\n")
    if runs_itself:
        assert done.stderr == ""
    else:
        assert_quiet(done.stderr)


def test_a_module_that_runs_its_worker_is_stopped_once(tmp_path: Path) -> None:
    """Otherwise it would begin again after SIGTERM, and be killed by its service manager."""
    text = PROGRAM.replace("Worker()", "Worker('inbox')") + "worker.run()\n"
    (tmp_path / "tasks.py").write_text(text)
    with eventq.open(tmp_path / "inbox", create=True) as thread:
        thread.push_many(
            [("self", "note", "hello"), ("self", "note", "not before it is run again")]
        )
    done = work(tmp_path, "tasks:worker")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


LOGGING = [
    ("basicConfig(level=logging.INFO)", "INFO:eventq.worker:"),
    (("config.dictConfig({'version': 1, 'root': {'handlers': ['h'], 'level': 'INFO'},"
     " 'handlers': {'h': {'class': 'logging.StreamHandler'}}})"), ""),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "start"), LOGGING, ids=["basicConfig", "dictConfig"])
def test_a_program_that_has_set_up_logging_gets_each_line_once(
    setup: str, start: str, tmp_path: Path
) -> None:
    """In its own form, also where it has disabled the loggers that were there before."""
    (tmp_path / "tasks.py").write_text(f"import logging.config\n{PROGRAM}\nlogging.{setup}\n")
    with eventq.open(tmp_path / "inbox", create=True) as thread:
        thread.push("self", "note", "hello")
    done = work(tmp_path, "tasks:worker", "--thread", "inbox")
    first, *others = done.stderr.splitlines()
    assert first.startswith(f"{start}works for consumer 'w' of ")
    assert others[-1] == f"{start}has stopped"
    assert len(others) == 2


HANGING = """
import asyncio, concurrent.futures, os, threading
import eventq
worker = eventq.Worker("inbox", grace=0.1)
@worker.consumer("w", timeout=0.1, max_attempts=1)
async def handle(event):
    if event.id == 1:
        one = concurrent.futures.ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(one)
        await asyncio.to_thread(threading.Event().wait)
    os.kill(os.getpid(), 15)
"""


def test_calls_that_hang_keep_no_python_worker_from_exiting(tmp_path: Path) -> None:
    """Nor from going on to the next event; after SIGTERM they have the grace period to end."""
    (tmp_path / "tasks.py").write_text(HANGING)
    with eventq.open(tmp_path / "inbox", create=True) as thread:
        thread.push_many([("self", "note", "x")] * 2)
    done = work(tmp_path, "tasks:worker")
    assert done.returncode == 0
    assert "TimeoutError: timed out after 0.1 seconds" in done.stderr


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("SystemExit(0)", "Error: the worker has ended: SystemExit: 0 - its traceback is above"),
        ("OSError(24, 'x')", None),
        ("eventq.NotAThreadError('inbox')", "Error: 'inbox' is not a thread - "),
    ],
)
def test_a_python_worker_that_fails_says_why(
    ending: str, error: str | None, hangs: bool, tmp_path: Path
) -> None:
    """It exits with 1 though another consumer is served, or calls hang, unless it may pass."""
    text = HANGING.replace("os.kill(os.getpid(), 15)", "pass") if hangs else PROGRAM
    failing = f"""
real, times = eventq.Thread.claim, []
def claim(self, consumer, *args):
    if consumer == "v":
        times.append(1)
        if len(times) == 1:
            raise {ending}
        worker.stop()
    return real(self, consumer, *args)
eventq.Thread.claim = claim
worker.consumer("v")(print)
"""
    (tmp_path / "tasks.py").write_text(text.replace("Worker()", "Worker('inbox')") + failing)
    with eventq.open(tmp_path / "inbox", create=True) as thread:
        if hangs:
            thread.push("self", "note", "x")
    done = work(tmp_path, "tasks:worker")
    assert done.returncode == (0 if error is None else 1)
    if error is None:
        assert "consumer 'v' could not claim: OSError: [Errno 24] x" in done.stderr
    else:
        assert any(line.startswith(error) for line in done.stderr.splitlines())


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("tasks", "Error: 'tasks' is no worker - give module:name, such as tasks:worker"),
        ("none:worker", "Error: there is no module 'none' in .*run this in the folder of none.py"),
        ("tasks:other", "Error: module 'tasks' has no 'other' - it has tasks:worker"),
        ("tasks:number", "Error: 'tasks:number' is no eventq.Worker, but of type int - it has"),
        ("lacks:worker", "Error: module 'lacks' needs 'not_installed' - install it for "),
        ("broken:worker", "Error: module 'broken' cannot be imported: ValueError: no - run '.*"),
        (
            "empty:worker",
            r"Error: module 'empty' has no 'worker' - write 'worker = eventq.Worker\(",
        ),
        (
            "tasks:worker",
            "Error: the worker has no thread, and EVENTQ_THREAD is not set - give its",
        ),
    ],
)
def test_what_cannot_be_imported_says_what_to_do(
    place: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error names the cause and the next step."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("tasks", PROGRAM), ("lacks", "import not_installed"), ("broken", "raise ValueError('no')"),
        ("empty", ""),
    ):  # fmt: skip
        (tmp_path / f"{name}.py").write_text(text)
    done = run("work", place)
    assert done.code in (1, 2)
    assert re.match(error, done.err), done.err


# --- systemd --------------------------------------------------------------------------------------


def unit_of(*words: str) -> tuple[str, dict[str, str]]:
    """Return a unit, and its settings."""
    done = run("service", "systemd", *words)
    assert (done.code, done.err) == (0, "")
    lines = [line for line in done.out.splitlines() if not line.startswith("#")]
    return done.out, dict(line.split("=", 1) for line in lines if "=" in line)


def words_of(line: str) -> list[str]:
    """Return the words of a command line as systemd reads it."""
    return [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(line)]


@pytest.mark.parametrize("name", ["inbox", "with a blank", '50%h of "it" costs $HOME', "ü\\x"])
@pytest.mark.parametrize("user", [False, True])
def test_a_unit_runs_a_worker(name: str, user: bool, tmp_path: Path) -> None:
    """Paths come through as they are, and `systemd-analyze verify` finds no fault."""
    path = eventq.init(tmp_path / name)
    text, settings = unit_of("--thread", path, "--grace", "1m", *["--user"] * user)
    words = words_of(settings["ExecStart"])
    assert words[-6:] == ["work", "--thread", path, "--grace", "60", "--no-dispatch"]
    assert words_of(settings["RequiresMountsFor"].replace("$", "$$")) == [path]
    assert float(settings["TimeoutStopSec"]) > 60
    assert ("User" in settings) is not user
    assert settings["WantedBy"] == ("default.target" if user else "multi-user.target")
    assert "enable --now eventq-" in text
    verify(tmp_path, text, user=user)


@pytest.mark.parametrize(
    ("grace", "seconds"),
    [("12d", "1036800"), ("0.25", "0.25"), ("0", "0"), ("1234567.5", "1234567.5")],
)
def test_a_unit_has_the_grace_that_was_given(grace: str, seconds: str, tmp_path: Path) -> None:
    """As digits, which `work` takes; and the line that installs the unit gives it too."""
    path = eventq.init(tmp_path / "inbox")
    text, settings = unit_of("--thread", path, "--grace", grace)
    assert f" --grace {seconds} --no-dispatch" in settings["ExecStart"]
    assert f" --grace {seconds} | sudo tee " in text
    assert "--grace" not in unit_of("--thread", path)[0].partition(" | ")[0]
    done = run("service", "systemd", "--thread", path, "--grace", "366d")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: --grace must be seconds from 0 to 31536000")


def verify(folder: Path, text: str, *, user: bool) -> None:
    """Let systemd check a unit where it can."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return
    unit = folder / "eventq-test.service"
    unit.write_text(text)
    scope = ["--user"] if user else []
    done = subprocess.run(
        [program, *scope, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    if "Failed to initialize" in done.stderr or "Failed to allocate" in done.stderr:
        return  # there is no manager to ask
    assert (done.returncode, done.stderr) == (0, "")


def test_a_unit_for_many_threads(tmp_path: Path) -> None:
    """Several threads and folders stand in one unit; those that are missing are refused."""
    one = eventq.init(tmp_path / "one")
    _, settings = unit_of("--thread", one, "--all", str(tmp_path))
    assert words_of(settings["ExecStart"])[-7:-3] == ["--thread", one, "--all", str(tmp_path)]
    for words in (("--thread", str(tmp_path / "none")), ("--all", str(tmp_path / "none")), ()):
        done = run("service", "systemd", *words)
        assert done.code == (1 if words else 2)
        assert not done.out


def test_a_unit_for_the_thread_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same as with its path; an option comes first."""
    path = eventq.init(tmp_path / "one")
    expected = unit_of("--thread", path)[0]
    monkeypatch.setenv("EVENTQ_THREAD", path)
    assert unit_of()[0] == expected
    assert f"--all {tmp_path}" in unit_of("--all", str(tmp_path))[1]["ExecStart"]


# --- file systems ---------------------------------------------------------------------------------


def test_a_worker_refuses_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports the thread; without another one it ends with the error."""
    from eventq.running.work import Work

    path = eventq.init(tmp_path / "inbox")
    mount(monkeypatch, tmp_path / "table", (str(tmp_path), "nfs"))
    said: list[str] = []
    before = signal.getsignal(signal.SIGCHLD)
    try:
        with pytest.raises(PlatformError):
            Work([path], say=said.append).run()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert "is on NFS" in said[0]
    assert "eventq serve" in said[0]
    assert os.listdir(tmp_path / "inbox" / "run") == []


# --- threads in PostgreSQL ------------------------------------------------------------------------


@pytest.fixture(params=["its URL", "a directory that names it"])
def shared(request: pytest.FixtureRequest, postgres: str, tmp_path: Path) -> str:
    """Return what leads to a thread in PostgreSQL."""
    url = fresh(postgres)
    if request.param == "its URL":
        return url
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "thread.url").write_text(url)
    return str(tmp_path / "shared")


def test_a_dispatch_names_the_command_that_works(shared: str) -> None:
    """No dispatch runs handlers on other machines: one line says what does."""
    for place, variable in ((["--thread", shared], ""), ([], shared)):
        done = run("dispatch", *place, EVENTQ_THREAD=variable)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        command = f"eventq work --thread {quote(shared)} --allow FILE"
        assert f"run {cited(command)} on" in done.err
    with eventq.open(shared) as thread, pytest.raises(LogicError, match="--allow FILE"):
        thread.dispatch()


def test_a_subscription_says_that_a_worker_is_needed(shared: str) -> None:
    """On stderr, with the command; not for a consumer that nothing runs for."""
    done = run(
        "subscribe", "--thread", shared, "--consumer", "w", "--handler", "cat", "--label", "a b"
    )
    with eventq.open(shared) as thread:
        path = quote(thread.path)
        (made,) = thread.subscriptions()
        assert (made.handler_cmd, made.label, made.directory) == ("cat", "a b", None)
    assert f": eventq work --thread {path} --allow FILE --label 'a b'\n" in done.err
    done = run("subscribe", "--thread", shared, "--consumer", "v")
    assert (done.code, done.err) == (0, "")


def test_a_unit_for_threads_in_postgresql(shared: str, tmp_path: Path) -> None:
    """It has the file of what is allowed; without one, it is refused."""
    done = run("service", "systemd", "--thread", shared)
    assert (done.code, done.out) == (2, "")
    assert "add --allow FILE" in done.err
    (tmp_path / "allow").write_text("true")
    words = ("--allow", str(tmp_path / "allow"), "--label", "gpu")
    done = run("service", "systemd", "--thread", shared, *words)
    assert (done.code, done.err) == (0, "")
    assert f"--allow {tmp_path}/allow --label gpu --grace 30 --no-dispatch\n" in done.out


@pytest.mark.parametrize("place", ["--thread", "EVENTQ_THREAD", "run"])
def test_a_python_worker_runs_for_a_thread_in_postgresql(
    shared: str, place: str, tmp_path: Path
) -> None:
    """`eventq work module:name` takes its URL, and a directory that names it, as `run` does."""
    (tmp_path / "tasks.py").write_text(PROGRAM)
    with eventq.open(shared) as thread:
        thread.push("self", "note", "hello")
    words = processes.python("work", "tasks:worker")
    if place == "--thread":
        words += ["--thread", shared]
    if place == "run":
        words = [sys.executable, "-c", "import tasks; tasks.worker.run()"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | ({} if place == "--thread" else {"EVENTQ_THREAD": shared}),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "hello\n")
    if place == "run":
        assert done.stderr == ""
    else:
        assert_quiet(done.stderr)


def test_a_worker_of_many_threads_names_those_that_it_passes_over(
    postgres: str, tmp_path: Path
) -> None:
    """Once, in one line; it works for the others."""
    from eventq.running.work import Work

    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "thread.url").write_text(fresh(postgres))
    said: list[str] = []

    def own(name: str) -> None:
        with eventq.open(tmp_path / name, create=True) as thread:
            thread.subscribe("w", "true", each=True)

    def say(line: str) -> None:
        said.append(line)
        if line == f"{tmp_path}/later: works for consumer 'w'":
            signal.raise_signal(signal.SIGTERM)
        elif "works for" in line:
            own("later")

    own("own")
    assert Work([], [str(tmp_path)], say=say).run() == signal.SIGTERM
    (line,) = [line for line in said if "passed over" in line]
    assert line.startswith(f"'{tmp_path}/shared', a thread in PostgreSQL, is passed over")
    assert "--allow FILE" in line


@pytest.mark.parametrize(
    "words", [["mirror", "rebuild"], ["mirror", "recover"], ["dispatch"], ["sql", "SELECT 1"]]
)
def test_what_a_thread_in_postgresql_does_not_have(shared: str, words: list[str]) -> None:
    """One line says so, and names what there is."""
    done = run(*words, "--thread", shared)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert re.search("'eventq peek'|restore a backup|eventq work|psql", done.err)


def test_lines_of_events_are_pushed_again(shared: str, tmp_path: Path) -> None:
    """Those of a file, each once, as into a directory."""
    event = {"id": 9, "created_at": "2026-01-01T00:00:00.000Z", "source": "self", "type": "t"}
    line = json.dumps({**event, "subtype": None, "content": "again"})
    (tmp_path / "lines.jsonl").write_text(f"{line}\n")
    for count in ("1 event", "0 events"):
        done = run("mirror", "recover", str(tmp_path / "lines.jsonl"), "--thread", shared)
        assert (done.code, done.out) == (0, f"Pushed {count} again\n")
