"""The documents say what is so: USAGE.md is run, and what is generated is up to date."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import eventq
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


@pytest.mark.parametrize("name", ["README.md", "USAGE.md"])
def test_the_handlers_of_the_guides_ack_whatever_comes(tmp_path: Path, name: str) -> None:
    """`work.sh` as it is shown gets each event once, also where a shell's echo would take it for escapes."""
    if name == "README.md":
        (script,) = blocks("sh", (ROOT / name).read_text())
    else:
        (command,) = (
            command
            for block in blocks("console", (ROOT / name).read_text())
            for command, _ in steps(block)
            if command.startswith("cat > work.sh")
        )
        script = command.partition("\n")[2].rpartition("EOF")[0]
    inbox = eventq.init(tmp_path / "inbox")
    with eventq.open(inbox) as thread:
        thread.subscribe("worker", "true", from_now=True)
        for content in ("one", "a\nb\\c\\n\t\\", '"}\n{"id":9,', "\\0"):
            thread.push("self", "message", content)
        stored = [event.content for event in thread.peek()]
    environ = {
        **os.environ,
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", "EVENTQ_NOTIFIER": "none",
        "EVENTQ_THREAD": inbox, "EVENTQ_CONSUMER": "worker", "EVENTQ_LAST_ACKED_ID": "0",
    }  # fmt: skip
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["content"] for line in done.stdout.splitlines()] == stored
    with eventq.open(inbox) as thread:
        assert thread.info().subscriptions[0].last_acked_id == 4
