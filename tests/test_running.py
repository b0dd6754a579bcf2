"""The test run itself: limits, signals, leftover processes, immediate failures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.running import MORE, marked, try_more

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Until

pytestmark = pytest.mark.usefixtures("few_plugins")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

SAMPLE = """
import os, signal, subprocess, time

def test_waits_for_ever():
    subprocess.Popen(["sh", "-c", f"echo $$ >> {FOLDER}/pids; exec sleep 1000"])
    time.sleep(1000)

def test_leaves_an_orphan():
    subprocess.run(["sh", "-c", f"setsid sh -c 'echo $$ >> {FOLDER}/pids; exec sleep 1000' > /dev/null 2>&1 &"])
    while len(open(f"{FOLDER}/pids").readlines() if os.path.exists(f"{FOLDER}/pids") else []) < WANTED:
        time.sleep(0.01)

def test_has_its_signals():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    show = "import signal; print(*[signal.getsignal(n) is signal.SIG_IGN for n in (1, 2, 3)])"
    assert subprocess.run([PYTHON, "-c", show], capture_output=True, text=True).stdout == "False False False\\n"

def test_goes_wrong():
    print("what was printed")
    assert 1 == 2

def test_comes_later():
    assert "assert 1 == 2" in open(f"{FOLDER}/output").read()
    assert "what was printed" in open(f"{FOLDER}/output").read()
"""
STUCK = """
import signal, time

def test_is_deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)

def test_another():
    pass
"""


def ignoring() -> None:
    """Do as a background job begins: with signals ignored, here also with one blocked."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def runs(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for yet does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in b"ZX"
    except OSError:
        return False


def session(folder: Path, code: str, *words: str) -> str:
    """Run a file of tests in its own session, as a background job; return its output."""
    (folder / "pytest.ini").write_text(
        "[pytest]\ntimeout = 2\ntimeout_method = signal\nfilterwarnings = ignore\n"
    )
    (folder / "test_sample.py").write_text(code)
    with open(folder / "output", "w", encoding="utf-8") as output:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "tests.running", "-p", "no:randomly", *words, str(folder)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=ignoring, timeout=120,
        )  # fmt: skip
    return (folder / "output").read_text()


@pytest.mark.parametrize("jobs", ["0", "1"])
def test_a_session(jobs: str, tmp_path: Path, until: Until) -> None:
    """A hanging test fails with a stack, its processes end, and signals are reset."""
    said = session(
        tmp_path,
        f"FOLDER, WANTED, PYTHON = {str(tmp_path)!r}, 2, {sys.executable!r}\n{SAMPLE}",
        "-n",
        jobs,
    )
    assert "2 failed, 3 passed" in said, said
    assert re.search(
        r"test_waits_for_ever.*time\.sleep\(1000\).*Timeout \(>2\.0s\)", said, re.DOTALL
    )
    assert said.count("\nwhat was printed\n") == 1
    for line in (tmp_path / "pids").read_text().splitlines():
        until(lambda pid=int(line): not runs(pid), "it has ended")  # type: ignore[misc]


def test_a_test_that_hears_no_signal_ends_its_worker(tmp_path: Path) -> None:
    """It is named, its stack is shown, and the others run."""
    said = session(tmp_path, STUCK, "-n", "1", "-o", "limit_grace=1")
    assert "1 failed, 1 passed" in said, said
    assert "crashed while running" in said
    assert re.search(r"File .*test_sample\.py\", line 6 in test_is_deaf", said)


def test_processes_are_known_by_their_mark() -> None:
    """A process is found by what it inherited, and only then."""
    process = subprocess.Popen(
        [sys.executable, "-uc", "print(); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # before it runs, the system shows no environment of it
        assert process.pid in marked(os.environ["TESTS_RUN_AS"])
        assert process.pid not in marked("somebody else")
        process.communicate(b"\n")
    assert process.pid not in marked(os.environ["TESTS_RUN_AS"])


def test_a_property_is_tried_more_often_in_the_soak() -> None:
    """With so many times the examples that it has in the suite."""
    tried: list[int] = []

    @settings(max_examples=3, database=None)
    @given(st.integers())
    def note(number: int) -> None:
        tried.append(number)

    note()
    assert len(tried) == 3
    try_more(note)
    note()
    assert len(tried) == 3 + 3 * MORE
