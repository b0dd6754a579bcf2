"""What `.ci/run` makes of a run in which tests have failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import verdict

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("few_plugins")

ROOT = verdict.ROOT
# Fails only when another test ran before it in the same process.
SAMPLE = """
import pytest

ran = []

def test_before():
    ran.append(1)

def test_{name}():
    assert not ran
"""
BROKEN = """
def test_sound():
    pass

def test_broken():
    raise ValueError("always")
"""
SKIPPED = """
import pytest

@pytest.mark.skip
def test_skipped():
    pass

@pytest.mark.xfail
def test_known():
    raise ValueError
"""


def run(folder: Path, *words: str, **files: str) -> verdict.Part:
    """Run files of tests, named with `__` for a slash, and return what they found."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    for name, text in files.items():
        file = folder / "tests" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    results = str(folder / "results.json")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.results", "--results", results, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return verdict.of_pytest(results, str(folder))


@pytest.mark.parametrize("words", [("-n0",), ("-n1",)], ids=["alone", "in a worker"])
def test_what_fails_now_and_then_is_shown_and_let_through(
    words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It passes alone; the command that is printed makes it fail again."""
    order = ("--randomly-seed=7", "--randomly-dont-reorganize")
    part = run(tmp_path, *words, *order, test_one=SAMPLE.format(name="odd"))
    assert [test.name for test in part.failed] == ["tests/test_one.py::test_odd"]
    assert verdict.judge([part]) == []
    said = capfd.readouterr().out
    flaky, command = said.splitlines()[-2:]
    assert "E       assert not [1]" in said.partition("FLAKY")[0]
    assert flaky.startswith("FLAKY tests/test_one.py::test_odd")
    assert "--randomly-seed=7" in command
    assert command.endswith("tests/test_one.py::test_before tests/test_one.py::test_odd")
    again = subprocess.run(command, cwd=tmp_path, shell=True, capture_output=True, check=False)
    assert again.returncode == 1
    assert b"1 failed, 1 passed" in again.stdout


@pytest.mark.parametrize("kind", ["race", "crash", "model"])
def test_what_fails_now_and_then_is_a_failure_where_that_is_looked_for(
    kind: str, tmp_path: Path
) -> None:
    """A race, a crash or a model that fails once has found something."""
    order = "--randomly-dont-reorganize"
    part = run(tmp_path, order, **{f"{kind}__test_one": SAMPLE.format(name="odd")})
    assert verdict.judge([part]) == [
        f"flaky, where that is a failure: tests/{kind}/test_one.py::test_odd"
    ]


def test_two_that_fail_now_and_then_are_too_many(tmp_path: Path) -> None:
    """One may be bad luck."""
    texts = {f"test_{name}": SAMPLE.format(name=name) for name in ("odd", "even")}
    part = run(tmp_path, "--randomly-dont-reorganize", **texts)
    assert len(verdict.judge([part])) == 1


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    """A second run excuses nothing that fails in it."""
    part = run(tmp_path, test_one=BROKEN)
    assert verdict.judge([part]) == ["failed twice: tests/test_one.py::test_broken"]


def test_a_skipped_test_is_a_failure(tmp_path: Path) -> None:
    """So is one that is expected to fail."""
    part = run(tmp_path, "-p", "no:randomly", test_one=SAMPLE.format(name="odd"), test_two=SKIPPED)
    assert sorted(part.faults) == [
        "skipped: tests/test_two.py::test_known",
        "skipped: tests/test_two.py::test_skipped",
    ]


def test_a_file_that_is_skipped_is_a_failure(tmp_path: Path) -> None:
    """None of its tests is named then."""
    skip = "import pytest\npytest.skip('no', allow_module_level=True)"
    part = run(
        tmp_path, "--randomly-dont-reorganize", test_one=skip, test_two=SAMPLE.format(name="odd")
    )
    assert part.faults == ["skipped: tests/test_one.py"]


def test_a_worker_that_dies_is_a_failure(tmp_path: Path) -> None:
    """Its tests may pass alone, and what ended it is unknown."""
    dies = "import os\ndef test_last():\n    os._exit(3)\n"
    part = run(tmp_path, "-n1", test_one=dies, test_two=SAMPLE.format(name="odd"))
    assert part.faults == ["the Python tests did not run to their end"]


@pytest.mark.parametrize("text", ["", "raise ValueError", "import os\nos._exit(0)"])
def test_a_run_without_tests_or_without_an_end_is_a_failure(text: str, tmp_path: Path) -> None:
    """Nothing has been tested."""
    part = run(tmp_path, test_one=text)
    assert len(part.faults) == 1
    assert verdict.judge([part]) == part.faults


def report(folder: Path, **found: Any) -> verdict.Part:
    """Return what a report of vitest says."""
    file = folder / "parity.json"
    file.write_text(json.dumps(found))
    return verdict.of_vitest(str(file))


def test_tests_on_node_are_run_again_by_name(tmp_path: Path) -> None:
    """A file that cannot be loaded is run again as a whole; what was skipped is a fault."""
    folder = os.path.join(ROOT, "vitest-parity")
    tests = [
        {"fullName": "pop acks (twice)", "status": "failed"},
        {"fullName": "pop reads", "status": "passed"},
        {"fullName": "pop waits", "status": "todo"},
    ]
    files = [
        {"name": f"{folder}/vitest/a.test.ts", "status": "failed", "assertionResults": tests},
        {"name": f"{folder}/vitest/b.test.ts", "status": "failed", "assertionResults": []},
    ]
    part = report(tmp_path, numPassedTests=1, testResults=files)
    assert part.faults == ["skipped: pop waits"]
    assert [(test.alone, test.folder) for test in part.failed] == [
        (["npx", "vitest", "run", "vitest/a.test.ts", "-t", r"^pop\ acks\ \(twice\)$"], folder),
        (["npx", "vitest", "run", "vitest/b.test.ts"], folder),
    ]


def test_an_error_outside_of_the_tests_on_node_is_a_failure(tmp_path: Path) -> None:
    """The report does not have it; the exit status does, which `make` has noted."""
    tests = [{"fullName": "pop reads", "status": "passed"}]
    file = {"name": "a.test.ts", "status": "passed", "assertionResults": tests}
    assert report(tmp_path, numPassedTests=1, testResults=[file]).faults == []
    (tmp_path / "parity.failed").touch()
    assert len(report(tmp_path, numPassedTests=1, testResults=[file]).faults) == 1


def test_no_report_of_node_is_a_failure(tmp_path: Path) -> None:
    """Neither is one in which nothing has passed."""
    assert verdict.of_vitest(str(tmp_path / "parity.json")).faults
    assert report(tmp_path, numPassedTests=0, testResults=[]).faults


def test_every_part_of_the_tests_is_run(tmp_path: Path) -> None:
    """`make test` goes on after a part that fails, and says at its end which ones did."""
    fake = tmp_path / "make"
    fake.write_text(f"echo $@ >> {tmp_path}/ran\ncase $@ in *test-python) exit 2;; esac\n")
    done = subprocess.run(
        ["make", "test", f"MAKE=sh {fake}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ran = (tmp_path / "ran").read_text().split("\n")
    assert [line.split()[-1] for line in ran if line] == ["test-python", "test-parity"]
    assert done.returncode == 2
    assert "failed: test-python\n" in done.stderr
