"""A home folder that nobody knows is an error with the variable to set, never a folder named `~`.

Members of the kind: no HOME and no entry in the table of users, as in a container that runs under
any number; an empty HOME, a relative one, and one that is `~` itself; at a thread's path, at the
folders of agents for hooks and skills and MCP servers, and at the state of shared threads.
"""

from __future__ import annotations

import importlib
import os
import pwd
from typing import TYPE_CHECKING

import pytest

import eventq
import eventq.cli
from eventq.errors import UsageError
from eventq.store.shared_paths import SharedLayout

if TYPE_CHECKING:
    from pathlib import Path


def run(words: list[str]) -> int:
    """Run a command here, where the table of users is another one; a module has the name, too."""
    code: int = importlib.reload(eventq.cli).run(words)
    return code


VARIABLES = ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME", "EVENTQ_THREAD")


@pytest.fixture(params=[None, "", "relative", "~"], autouse=True)
def nowhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have no home, in an empty folder."""

    def unknown(number: int) -> object:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if request.param is not None:
        monkeypatch.setenv("HOME", request.param)
    (tmp_path / "empty").mkdir()
    eventq.init(tmp_path / "inbox")
    monkeypatch.chdir(tmp_path / "empty")


@pytest.mark.parametrize(
    "words",
    [
        ["init", "~/inbox"],
        ["push", "--thread", "~/inbox", "--source", "a", "--type", "b", "--content", "c"],
        ["hooks", "install", "--agent", "claude", "--thread", "../inbox"],
        ["hooks", "install", "--agent", "codex", "--thread", "../inbox"],
        ["hooks", "uninstall"],
    ],
)
def test_a_home_that_nobody_knows(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Commands that need a home say which variable to set, and make nothing."""
    assert run(words) == 2
    out, error = capfd.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert "Error: there is no home folder: HOME is " in error
    assert " - set HOME" in error
    assert os.listdir() == []


def test_doctor_without_a_home(capfd: pytest.CaptureFixture[str]) -> None:
    """`doctor` finds nothing ok that it did not look at."""
    assert run(["doctor"]) == 1
    assert "broken   Claude Code: there is no home folder" in capfd.readouterr().out
    assert os.listdir() == []


def test_the_library_without_a_home() -> None:
    """The library refuses paths below an unknown home, and knows no place for a shared thread."""
    with pytest.raises(UsageError, match="set HOME to"):
        eventq.open("~/inbox")
    with pytest.raises(UsageError, match="set HOME or XDG_STATE_HOME to"):
        SharedLayout("postgresql://user@host/database?thread=inbox")


def test_another_variable_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of an agent, or an absolute XDG_STATE_HOME, is enough; a relative one is not."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    layout = SharedLayout("postgresql://user@host/database?thread=inbox")
    assert layout.directory.startswith(f"{tmp_path}/eventq/")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    with pytest.raises(UsageError):
        SharedLayout("postgresql://user@host/database?thread=inbox")
