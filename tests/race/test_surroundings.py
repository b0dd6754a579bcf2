"""Handlers find `eventq`, however short the PATH is that they were started with.

Members of the kind: a push from cron (`env -i /path/eventq push`), with a short PATH or none or an
empty one; a program that uses the library; `work` of a service manager; under the name `thread`;
and an `eventq` that is on PATH already, which stays the first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from eventq.system import processes
from tests.race.support import Box, until

if TYPE_CHECKING:
    from pathlib import Path

BIN = os.path.dirname(sys.executable)
PUSH = ("--source", "self", "--type", "t", "--content", "x")


def found_by(box: Box) -> str:
    """Return which `eventq` the handler of an event has found."""
    path = os.path.join(box.folder, "found")
    until(lambda: os.path.exists(path) and box.all_handled(), "the handler has run")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


@pytest.mark.parametrize("program", ["eventq", "thread"])
@pytest.mark.parametrize("path", [None, "", "/usr/bin:/bin"])
def test_a_push_of_cron(box: Box, program: str, path: str | None) -> None:
    """A handler finds `eventq` if the push has a short PATH, an empty one or none."""
    place = os.path.join(box.folder, "found")
    box.thread.subscribe("w", f"command -v eventq > {place}", each=True)
    environ = {"EVENTQ_NOTIFIER": "builtin", "EVENTQ_TEST_MARK": box.mark}
    environ |= {} if path is None else {"PATH": path}
    words = [os.path.join(BIN, program), "push", "--thread", box.path, *PUSH]
    subprocess.run(words, env=environ, check=True, timeout=60)
    assert found_by(box) == os.path.join(BIN, "eventq")


def test_an_eventq_that_is_elsewhere(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `eventq` on PATH is the one of handlers, and PATH stays as it is."""
    ours = tmp_path / "bin/eventq"
    ours.parent.mkdir()
    ours.write_text("#!/bin/sh\n")
    ours.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ours.parent}:/usr/bin:/bin")
    assert processes.path_of_handlers() == os.environ["PATH"]
    place = os.path.join(box.folder, "found")
    box.thread.subscribe("w", f"command -v eventq > {place}", each=True)
    box.push()
    assert found_by(box) == str(ours)


def test_a_program_that_is_called_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command that runs is found beside its interpreter or not, and so is a library's."""
    for name in ("eventq", "thread"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "thread"), "push"])
    assert processes.path_of_handlers() == f"/usr/bin:/bin:{tmp_path}"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert processes.path_of_handlers() == f"/usr/bin:/bin:{BIN}"
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert processes.path_of_handlers() == f"/usr/bin:/bin:{BIN}"  # where pip has put it


def test_where_the_package_is() -> None:
    """The command line of a dispatch names the folder that holds the package."""
    code = processes.python()[3]
    folder = code.partition("append('")[2].partition("')")[0]
    assert os.path.exists(os.path.join(folder, "eventq/cli/__init__.py"))
