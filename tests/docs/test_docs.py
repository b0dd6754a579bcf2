"""The documents say what is so: USAGE.md is run, and what is generated is up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import reference

ROOT = Path(__file__).parent.parent.parent
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.parametrize("path", reference.documents(), ids=lambda p: p.name)
def test_what_is_generated_is_up_to_date(path: Path) -> None:
    """README's module tree, USAGE's command reference and SPEC's states are what `make reference` writes."""
    assert path.read_text() == reference.documents()[path]


def blocks(language: str, text: str) -> list[str]:
    """Give the fenced blocks of a document in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Give the commands of a console block, each with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", found[-1][1])
        else:
            found[-1][1].append(line)
    return found


def same(expected: list[str], actual: list[str]) -> bool:
    """Compare output line by line; `…` stands for anything, and times are all alike."""
    if len(expected) != len(actual):
        return False
    pairs = zip(expected, (_TIME.sub("2026-01-01T00:00:00.000Z", line) for line in actual), strict=True)
    return all(re.fullmatch(".*".join(map(re.escape, want.split("…"))), got) for want, got in pairs)


def test_every_example_of_usage_does_what_it_shows(tmp_path: Path) -> None:
    """The console examples of USAGE.md print what stands below them, and the Python ones run."""
    usage = (ROOT / "USAGE.md").read_text()
    bin_folder = os.path.dirname(sys.executable)
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "EVENTQ_NOTIFIER": "builtin"}
    count = 0
    for block in blocks("console", usage):
        for command, expected in steps(block):
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300
            )
            actual = (done.stdout + done.stderr).splitlines()
            if done.returncode:
                actual.append(f"[exit {done.returncode}]")
            assert same(expected, actual), f"{command}\nprinted\n" + "\n".join(actual)
            count += 1
    assert count > 30
    script = "\n".join(blocks("python", usage))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_of_readme_runs(tmp_path: Path) -> None:
    """The Python example of README.md runs as it stands."""
    (script,) = blocks("python", (ROOT / "README.md").read_text())
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1 chose plan B\n")
