"""How a run of the tests behaves: limits, signals, leftover processes, and failures shown as they happen.

- Each test has the limit `timeout` of pyproject.toml. pytest-timeout interrupts the test and prints the stack of every
  thread. A test that is stuck where Python runs no signal handler ends its whole process a minute later, with the same
  stacks; under pytest-xdist the run then goes on in a new worker.
- A background job starts with some signals ignored, which every child inherits. The session undoes that.
- What a test started ends with it: processes are recognized by a variable of their environment.
- A failure is printed when it happens; at the end there is only the list.
- Working files are in memory where there is room, since most of the time goes to waiting for a disk. The soak uses the
  disk, and so does a run with TMPDIR.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import shutil
import signal
import sys
import tempfile
import traceback
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

SOAK = "soak or hypothesis"  # what `make soak` chooses
MORE = 10  # times as many examples of a property as in the suite
MARK = "TESTS_RUN_AS"  # not EVENTQ_…: tests look at those
SOAK_SECONDS = 7200.0
MEMORY = "/dev/shm"
ROOM = 4 << 30

_stderr = 2
_session = ""
_count = 0
_known: set[int] = set()  # the children that live longer than a test
_kept: set[int] = set()
_began = False  # whether a process was started since somebody looked

# What the interpreter calls every start of a process.
STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}


# --- signals --------------------------------------------------------------------------------------


def reset_signals() -> None:
    """Undo what `nohup` and `&` leave to their children: ignored and blocked signals.

    Python handlers are used where a handler is enough, as a program that is executed gets the default for those, while
    the session itself still outlives its terminal under `nohup`.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _nothing if number == signal.SIGHUP else signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _nothing(*_: object) -> None:
    pass


# --- leftover processes ---------------------------------------------------------------------------


def marked(value: str) -> list[int]:
    """Return the processes, other than this one, whose mark begins with `value` (Linux only)."""
    wanted = f"\0{MARK}={value}".encode()  # in what the process was started with
    return [
        pid for pid in _pids() if wanted in b"\0" + _read(pid, "environ") and pid != os.getpid()
    ]


def children() -> set[int]:
    """Return the running children of this process, without zombies (Linux only)."""
    found = set()
    for pid in _pids():
        fields = _read(pid, "stat").rpartition(b") ")[2].split()
        if fields[1:2] == [str(os.getpid()).encode()] and fields[0] != b"Z":
            found.add(pid)
    return found


def keep(pid: int) -> None:
    """Let a process live until the session ends."""
    _kept.add(pid)


@contextmanager
def unmarked() -> Iterator[None]:
    """Let what is started in this block, and what that starts, live until a fixture ends it."""
    del os.environ[MARK]
    try:
        yield
    finally:
        os.environ[MARK] = _session


def end(pids: list[int]) -> None:
    """Kill processes."""
    for pid in set(pids) - _kept:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_killed(work: Callable[[], object]) -> bool:
    """Do some work in a fork; return whether a SIGKILL ends it. A failure of it is one of the test."""
    child = os.fork()
    if not child:
        gc.disable()  # what it finalizes is its parent's, and comes at no fixed step
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


# --- the session ----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what one test of this file sets."""
    parser.addini(
        "limit_grace", "seconds after the time limit for its signal handler to run", default="60"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare this process, the one that was started or a worker of pytest-xdist."""
    global _session, _stderr
    reset_signals()
    _stderr = os.dup(2)  # the real one: nothing is captured yet
    worker = getattr(config, "workerinput", None)
    _session = (
        f"{worker['testrunuid']}.{worker['workerid']}." if worker else f"{uuid.uuid4().hex}.main."
    )
    os.environ[MARK] = _session
    sys.addaudithook(_notice)
    if worker is None:
        if "TMPDIR" not in os.environ and config.option.markexpr != SOAK and _has_room():
            os.environ["TMPDIR"] = MEMORY
            tempfile.tempdir = None  # it is looked up again
        config.pluginmanager.register(_Shown(config))


def _has_room() -> bool:
    try:
        return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    except OSError:
        return False


def _notice(event: str, _: object) -> None:
    global _began
    if event in STARTS:
        _began = True


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """End what a worker of pytest-xdist leaves when it was ended by force."""
    end(marked(f"{node.workerinput['testrunuid']}.{node.workerinput['workerid']}."))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Allow the tests that take long more time; in the soak, try properties more often."""
    is_soak = config.option.markexpr == SOAK
    properties = [item for item in items if is_soak and item.get_closest_marker("hypothesis")]
    for item in [*properties, *(item for item in items if item.get_closest_marker("soak"))]:
        item.add_marker(pytest.mark.timeout(SOAK_SECONDS))
    for function in {item.obj for item in properties if isinstance(item, pytest.Function)}:
        try_more(function)


def try_more(function: Any) -> None:
    """Let a property have more examples than it is given in the suite."""
    from hypothesis import settings

    given = function._hypothesis_internal_use_settings  # noqa: SLF001 (no profile changes them)
    more = settings(given, max_examples=MORE * given.max_examples)
    function._hypothesis_internal_use_settings = more  # noqa: SLF001


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(
        marker.args[0]
        if marker
        else item.config.getoption("timeout") or item.config.getini("timeout")
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Run a test with a time limit; after the last one of a module, end leftover processes."""
    faulthandler.dump_traceback_later(
        _limit(item) + float(item.config.getini("limit_grace")), exit=True, file=_stderr
    )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        if nextitem is None or nextitem.path != item.path:
            end(marked(_session))


@pytest.fixture(autouse=True)
def _own_processes() -> Iterator[None]:
    """End what a test started when the test is over, with or without success."""
    global _count, _began, _known
    _count += 1
    if _began:  # by fixtures that several tests share
        _known = children()
    _began = False
    os.environ[MARK] = mine = f"{_session}{_count}."
    yield
    os.environ[MARK] = _session
    if _began:
        end(marked(mine))
        # Forked without an exec, or started with another environment.
        end(list(children() - _known))


class _Shown:
    """Prints each failure when it happens, in place of all of them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)  # after the letter in the row of dots
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the failure of a test, of its fixtures, or of its end."""
        self._show(report, f"{report.nodeid} ({report.when})")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print why a file was not collected."""
        self._show(report, report.nodeid)

    def _show(self, report: pytest.TestReport | pytest.CollectReport, title: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None or self._config.option.tbstyle == "no":
            return
        terminal.ensure_newline()
        terminal.section(title, sep="_", red=True, bold=True)
        terminal.line(report.longreprtext)
        for name, text in report.sections:
            terminal.section(name, sep="-")
            terminal.line(text.rstrip("\n"))
        terminal.flush()

    def pytest_sessionfinish(self) -> None:
        """Leave the list of failures, without their texts."""
        self._config.option.tbstyle = "no"


@pytest.fixture
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pytest that a test starts load no plugin but these: the others take it two seconds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist -p randomly -p timeout")
