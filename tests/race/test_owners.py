"""What a process of another user makes in a thread is the owner's, or that is said at once.

Root is the usual other user: `docker exec`, `sudo eventq check`, a cron job. Members of the kind:
guards and locks of consumers, slots of dispatches, the bell, journal and handler logs with their
folders, a new and a rebuilt and a rewritten mirror, rotated files, lines kept aside in `lost/`, the
files of an original mirror, and a database that is made or made anew in somebody's directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.store.paths import Layout
from eventq.system import disk
from tests.race.support import Box, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
SOMEBODY = 4321


def give(path: str) -> None:
    """Make a thread somebody's."""
    for at, folders, files in os.walk(path):
        for name in (".", *folders, *files):
            os.chown(os.path.join(at, name), SOMEBODY, SOMEBODY)


def strangers(path: str) -> list[str]:
    """Return what is root's in a thread."""
    return sorted(
        os.path.relpath(os.path.join(at, name), path)
        for at, folders, files in os.walk(path)
        for name in (".", *folders, *files)
        if os.lstat(os.path.join(at, name)).st_uid != SOMEBODY
    )


@pytest.fixture
def theirs(tmp_path: Path) -> str:
    """Return the path of somebody's thread, whose folders are gone, as after a restore."""
    path = eventq.init(tmp_path / "theirs")
    bare(path)
    return path


def bare(path: str) -> None:
    """Make a thread somebody's, without the folders that come back by themselves."""
    for name in ("run", "logs"):
        shutil.rmtree(os.path.join(path, name))
    give(path)


def test_handlers_that_root_starts(box: Box) -> None:
    """A push of root and the handler that it starts leave nothing that is root's."""
    theirs = box.path
    box.thread.subscribe("one", "cat", each=True)
    box.thread.close()
    bare(theirs)
    box.push()
    box.thread = eventq.open(theirs)
    until(lambda: box.all_handled("one"), "it was handled")
    until(lambda: not os.listdir(Layout(theirs).guards), "the supervisor has ended")
    assert {"run", "logs", ".guards"} <= set(os.listdir(theirs))
    assert os.path.exists(Layout(theirs).handler_log("one"))
    assert strangers(theirs) == []


def test_a_mirror_that_root_writes(theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New, rotated, rebuilt and rewritten mirrors and lines kept aside are the owner's."""
    monkeypatch.setattr("eventq.log.mirror.ROTATE_LINES", 3)
    with eventq.open(theirs) as thread:
        os.unlink(os.path.join(theirs, "events.jsonl"))
        for number in range(8):
            thread.push("self", "note", str(number))
        thread.erasures.event(2)
        assert strangers(theirs) == []
        with open(os.path.join(theirs, "events.jsonl"), "ab") as file:
            file.write(b'{"id":99,"created_at":"x","source":"a","type":"b","content":"c"}\n')
        thread.rebuild_mirror()
    assert os.listdir(os.path.join(theirs, "lost"))
    assert strangers(theirs) == []


def test_a_database_that_root_makes(tmp_path: Path) -> None:
    """`init` and `recover` in somebody's directory make a thread of theirs."""
    path = str(tmp_path / "inbox")
    os.mkdir(path)
    os.chown(path, SOMEBODY, SOMEBODY)
    eventq.init(path)
    assert strangers(path) == []
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
    os.truncate(os.path.join(path, "events.db"), 0)
    eventq.recover(path)
    assert strangers(path) == []


def test_a_link_is_not_given_away(theirs: str, tmp_path: Path) -> None:
    """A link that the owner has put in a thread gives them nothing that it leads to."""
    for name, flags in (("there", 0), ("missing", 0), ("exclusive", os.O_EXCL)):
        target, link = tmp_path / f"target-{name}", tmp_path / name
        if name != "missing":
            target.write_text("")
        link.symlink_to(target)
        try:
            os.close(disk.create(str(link), os.O_WRONLY | flags, f"{theirs}/events.db"))
        except FileExistsError:
            assert flags
        assert os.stat(target).st_uid == 0


def as_somebody(path: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as the owner, who may read this checkout wherever it stands."""
    caps = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    user = ["setpriv", "--reuid", str(SOMEBODY), "--regid", str(SOMEBODY), "--clear-groups", *caps]
    command = [*user, sys.executable, "-P", "-m", "eventq", *words, "--thread", path]
    environ = {**os.environ, "EVENTQ_NOTIFIER": "builtin"}
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("what", ["guards", "mirror", "journal"])
def test_what_was_root_s_before(theirs: str, what: str) -> None:
    """What an owner cannot write is said by their push and by `check`, with the command for it."""
    with eventq.open(theirs) as thread:
        thread.subscribe("one", "true", each=True)
    files = Layout(theirs)
    path = {"guards": files.consumer("one").guard, "mirror": files.mirror, "journal": files.journal}
    os.makedirs(files.guards, exist_ok=True)
    os.close(os.open(path[what], os.O_CREAT | os.O_WRONLY, 0o600))
    give(theirs)
    os.chown(path[what], 0, 0)
    words = ["push", "--source", "self", "--type", "note", "--content", "x"]
    done = as_somebody(theirs, words)
    command = f"sudo chown -hR {SOMEBODY}:{SOMEBODY} {theirs}"
    assert (done.returncode, done.stderr.count(command)) == (0, 1), done.stderr
    assert f"'{path[what]}' belongs to root" in done.stderr
    checked = as_somebody(theirs, ["check"])
    assert command in checked.stdout + checked.stderr


def test_what_cannot_be_given(theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who cannot give a file away is told at once, with the command."""

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(disk, "tell", partial(warnings.warn, stacklevel=1))
    monkeypatch.setattr(os, "fchown", refused)
    with (
        eventq.open(theirs) as thread,
        pytest.warns(UserWarning, match=f"belongs to root; run 'chown -hR {SOMEBODY}:{SOMEBODY}"),
    ):
        thread.push("self", "note", "x")
