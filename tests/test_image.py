"""The container image and compose.yaml: what can be seen of them without a container.

The kind: an image that builds and does not work. A file that is copied and not there, or kept back
by .dockerignore; a command that does not exist, or that a shell runs, which passes no signal on; a
service that the documents show otherwise; a health check that is content with a worker that is
gone, or calls a thread ill that only waits. `race/test_containers.py` has eventq as PID 1.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import eventq

if TYPE_CHECKING:
    from tests.conftest import Until

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", "").splitlines()
    return [(word, rest) for line in lines if line for word, _, rest in [line.partition(" ")]]


def argument(word: str) -> str:
    """Return the argument of the last instruction of a kind."""
    return [rest for name, rest in instructions() if name == word][-1]


def sources() -> list[str]:
    """Return what is copied from the repository."""
    copied = [shlex.split(rest) for word, rest in instructions() if word == "COPY"]
    return [name for words in copied if not words[0].startswith("--") for name in words[:-1]]


def test_an_installation_needs_what_is_copied(tmp_path: Path) -> None:
    """A wheel is built from the files that are copied alone, and none of them is kept back."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    context = tmp_path / "context"
    context.mkdir()
    for name in sources():
        assert "*" in rules
        assert any(fnmatch(name, f"{one}*") for one in kept), name
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, context / name, ignore=ignored, dirs_exist_ok=True)
        elif "/" not in name:
            shutil.copy(ROOT / name, context)
    assert kept == {name.partition("/")[0] for name in sources()}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=context, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (install,) = (rest for word, rest in instructions() if word == "RUN" and "pip install" in rest)
    extras = set(re.findall(r"\w+", shlex.split(install)[-1]))
    assert extras == {"mcp", "postgres"}


def test_eventq_is_pid_1_of_a_user() -> None:
    """No shell stands between the container and eventq, which does not run as root."""
    command = json.loads(argument("CMD"))
    assert command[0] == "eventq"
    assert argument("USER") not in ("root", "0")
    assert not any(word == "ENTRYPOINT" for word, _ in instructions())
    assert argument("VOLUME") in command
    assert f"eventq {argument('VOLUME')}" in " ".join(rest for word, rest in instructions())


def test_compose_is_what_the_documents_show() -> None:
    """The guide to workers shows compose.yaml; it runs what the image does, and stops it after the grace."""
    text = (ROOT / "compose.yaml").read_text()
    assert f"```yaml\n{text}```" in (ROOT / "docs/guides/workers.md").read_text()
    (service,) = yaml.safe_load(text)["services"].values()
    words = shlex.split(service["command"])
    assert words == json.loads(argument("CMD"))
    grace = words[words.index("--grace") + 1]
    assert int(service["stop_grace_period"].rstrip("s")) >= int(grace.rstrip("s")) + 10
    assert service["volumes"] == [f"threads:{argument('VOLUME')}"]


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    """Return a folder with a thread whose consumer has a handler, and with one that is empty."""
    folder = tmp_path / "threads"
    eventq.init(folder / "empty")
    eventq.init(folder / "inbox")
    with eventq.open(folder / "inbox") as thread:
        thread.subscribe("worker", "false", each=True)  # so that its event always waits
        thread.subscribe("reader")
    return folder


def health(folder: Path) -> tuple[int, str]:
    """Run the health check on a folder; return its exit status and output."""
    words = json.loads(re.sub(r"^.*? CMD ", "", argument("HEALTHCHECK")))
    assert words[-1] == argument("VOLUME")
    copied = [rest.split() for word, rest in instructions() if word == "COPY"]
    (source,) = (one[0] for one in copied if one[-1] == words[1])
    done = subprocess.run(
        [BIN / words[0], ROOT / source, folder], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


def push(folder: Path) -> None:
    """Store an event that nobody is woken for."""
    subprocess.run(
        [BIN / "eventq", "push", "--thread", folder / "inbox", "--content", "x"],
        check=True, capture_output=True, env={**os.environ, "EVENTQ_NOTIFIER": "none"}, timeout=300,
    )  # fmt: skip


def test_the_image_is_healthy_while_its_command_works(threads: Path, until: Until) -> None:
    """A thread is healthy while it waits and while somebody works for it, ill when nobody does."""
    assert health(threads) == (0, "ok")
    push(threads)
    what = f"{threads / 'inbox'}: nobody runs the handler of consumer 'worker'"
    assert health(threads) == (1, what)
    command = [
        str(threads) if word == argument("VOLUME") else word for word in json.loads(argument("CMD"))
    ]
    with subprocess.Popen([BIN / command[0], *command[1:]], stderr=subprocess.DEVNULL) as worker:
        try:
            until(lambda: health(threads) == (0, "ok"), "the worker's thread is healthy")
        finally:
            worker.terminate()
    assert worker.returncode == 0


def test_what_a_restart_does_not_help_is_no_illness(threads: Path) -> None:
    """A consumer that is paused waits for a person, and so does one without a handler."""
    push(threads)
    with eventq.open(threads / "inbox") as thread:
        thread.pause("worker")
    assert health(threads) == (0, "ok")


def test_a_thread_that_cannot_be_read_is_ill(threads: Path) -> None:
    """It is named with what is wrong; the other threads are looked at all the same."""
    push(threads)
    (threads / "empty/events.db").write_bytes(b"nonsense" * 1000)
    code, what = health(threads)
    assert code == 1
    first, second = what.splitlines()
    assert first.startswith(f"{threads / 'empty'}: ")
    assert "consumer 'worker'" in second
