"""Judge a run of all tests: `python -m tests.verdict FOLDER`.

`make test` and `make test-browser` wrote into the folder, with REPORT=FOLDER. Each failed test is
run once more, alone in a fresh process. One that fails again has failed. One that passes is FLAKY:
it is printed with how it failed and with the command that repeats its run, seed and the tests
before it in the same process included. One such test is let through, unless it is about races,
crashes or models: there, what happens now and then is what is looked for. A test that was skipped,
and a part that ran no test or did not end, fail the run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STRICT = ("tests/race/", "tests/crash/", "tests/model/")
SECONDS = 600  # for a test that is run again


class Failed(NamedTuple):
    """A failed test: its name, how to run it alone, how to repeat the run, and how it failed."""

    name: str
    alone: list[str]
    again: list[str]
    folder: str
    how: str = ""


class Part(NamedTuple):
    """What one part of the tests found: faults that no second run can excuse, and failed tests."""

    faults: list[str]
    failed: list[Failed]


def of_pytest(path: str, folder: str = ROOT, mark: str = "") -> Part:
    """Read what `tests.results` wrote, of the tests with a mark or of those that have none."""
    found = _read(path)
    what = f"Python ({mark})" if mark else "Python"
    if found is None or not found["ended"]:
        return Part([f"the {what} tests did not run to their end"], [])
    run = [sys.executable, "-m", "pytest", "-n", "0", *(["-m", mark] if mark else [])]
    seed = [f"--randomly-seed={found['seed']}", "--randomly-dont-reorganize"]
    failed = [
        Failed(name, [*run, name], [*run, *seed, *one["before"], name], folder, one["how"])
        for name, one in found["failed"].items()
    ]
    return Part([*_faults(what, found["passed"], found["skipped"])], failed)


def of_vitest(path: str) -> Part:
    """Read what the JSON reporter of vitest wrote."""
    found = _read(path)
    if found is None:
        return Part(["the tests on Node did not run to their end"], [])
    failed, skipped = [], []
    for file in found["testResults"]:
        tests = file["assertionResults"]
        if file["status"] == "failed" and not any(test["status"] == "failed" for test in tests):
            failed.append(_on_node(file["name"], None))
        for test in tests:
            if test["status"] == "failed":
                failed.append(_on_node(file["name"], test["fullName"]))
            elif test["status"] != "passed":
                skipped.append(test["fullName"])
    faults = [*_faults("Node", found["numPassedTests"], skipped)]
    if os.path.exists(path.replace(".json", ".failed")) and not failed:
        faults.append("the tests on Node failed, though each of them passed: see the errors above")
    return Part(faults, failed)


def _on_node(file: str, name: str | None) -> Failed:
    folder = os.path.join(ROOT, "vitest-parity")
    shown = os.path.relpath(file, folder)
    command = ["npx", "vitest", "run", shown]
    if name is not None:
        command += ["-t", f"^{re.escape(name)}$"]
        shown = f"{shown} > {name}"
    return Failed(shown, command, command, folder)


def _faults(language: str, passed: int, skipped: list[str]) -> Iterator[str]:
    if not passed:
        yield f"no {language} test passed"
    for name in skipped:
        yield f"skipped: {name}"


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None


def passes(test: Failed) -> bool:
    """Run a test alone in a fresh process, and return whether it passes."""
    print(f"\n--- once more, alone: {test.name}", flush=True)
    try:
        done = subprocess.run(test.alone, cwd=test.folder, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def judge(parts: list[Part]) -> list[str]:
    """Run the failed tests again, print those that are flaky, and return why the run has failed."""
    reasons = [fault for part in parts for fault in part.faults]
    failed = [test for part in parts for test in part.failed]
    flaky = [test for test in failed if passes(test)]
    reasons += [f"failed twice: {test.name}" for test in failed if test not in flaky]
    for test in flaky:
        print(f"\n{test.how}")
        print(f"\nFLAKY {test.name}; the run in which it failed:\n{shlex.join(test.again)}")
        if test.name.startswith(STRICT):
            reasons.append(f"flaky, where that is a failure: {test.name}")
    if len(flaky) > 1:
        reasons.append(f"{len(flaky)} tests are flaky: {', '.join(t.name for t in flaky)}")
    return reasons


def main(folder: str) -> int:
    """Judge what is in a folder, print why the run has failed, and return the exit status."""
    parts = [
        of_pytest(f"{folder}/python.json"),
        of_pytest(f"{folder}/browser.json", mark="browser"),
        of_vitest(f"{folder}/parity.json"),
    ]
    reasons = judge(parts)
    for reason in reasons:
        print(reason, file=sys.stderr)
    print("failed" if reasons else "passed", file=sys.stderr)
    return bool(reasons)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
