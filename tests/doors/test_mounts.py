"""No thread is written where SQLite's locks do not hold, unless somebody says that they do.

The kind: two writers that do not exclude each other. Its members: file systems that other machines
or the host of a container write too, by `init`, by the first write of each door to a thread that is
there already, and by a worker; and one database under several names, which has a WAL for each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import LogicError, PlatformError
from eventq.system import mounts
from tests.doors.support import Done, environ

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


LINE = "36 35 98:0 / {} rw,noatime master:1 - {} /dev/x rw,errors=continue\n"


def mount(monkeypatch: pytest.MonkeyPatch, table: Path, *points: tuple[str, str]) -> None:
    """Pretend that file systems are mounted."""
    lines = [LINE.format("/", "ext4"), *(LINE.format(*point) for point in points)]
    table.write_text("".join(lines))
    monkeypatch.setattr(mounts, "TABLE", str(table))


def command(program: str) -> Callable[..., Done]:
    """Return a function that runs a command line under a name, where the mounts are pretended."""

    def run(*words: str) -> Done:
        code = (
            "import sys; from eventq.cli import main; from eventq.system import mounts;"
            f"mounts.TABLE = {mounts.TABLE!r}; sys.argv = {[program, *words]!r}; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environ(), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("nfs", "NFS"), ("nfs4", "NFS"), ("cifs", "SMB"), ("smb3", "SMB"), ("9p", "9p"),
        ("fuse", r"FUSE \(fuse\)"), ("fuse.sshfs", r"FUSE \(fuse.sshfs\)"), ("fuseblk", "FUSE .fuseblk."),
        ("virtiofs", "virtiofs"), ("fakeowner", "a folder of Docker's host"), ("ceph", "Ceph"),
        ("vboxsf", "a folder of the host"), ("lustre", "Lustre"), ("gfs2", "GFS2"),
        ("ocfs2", "OCFS2"), ("prl_fs", "a folder of the host"), ("vmhgfs", "a folder of the host"),
    ],
)  # fmt: skip
def test_shared_file_systems_are_refused(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init` creates nothing there, and names what to do; with `any_mount` it does."""
    mount(monkeypatch, tmp_path / "table", (str(tmp_path / r"the\040share"), kind))
    path = tmp_path / "the share" / "inbox"
    with pytest.raises(PlatformError, match=f"is on {name}, where SQLite's locks") as caught:
        eventq.init(path)
    assert "eventq serve" in caught.value.fix
    assert not path.exists()
    assert eventq.init(tmp_path / "the shareholder")
    eventq.init(path, any_mount=True)
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        assert thread.settings.get("any_mount") == "true"


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fusectl"])
def test_other_file_systems_are_not(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two mounts at one place the later one counts, and of nested ones the inner one."""
    place = str(tmp_path)
    mount(monkeypatch, tmp_path / "table", ("/", "nfs"), (place, "9p"), (place, kind))
    assert mounts.kind_of(str(tmp_path / "inbox")) == kind
    assert eventq.init(tmp_path / "inbox", any_mount=True)
    with eventq.open(tmp_path / "inbox") as thread:
        thread.push("self", "note", "x")
        assert thread.settings.get("any_mount") == "false", "nothing needs it here"


def test_a_table_that_cannot_be_read_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does one that makes no sense."""
    (tmp_path / "table").write_text("nonsense\n\n1 2 3 4 -\n - nfs\n")
    for table in ("table", "none"):
        monkeypatch.setattr(mounts, "TABLE", str(tmp_path / table))
        assert eventq.init(tmp_path / f"{table}-inbox")


@pytest.mark.parametrize(
    "write",
    [
        lambda thread: thread.push("self", "note", "x"),
        lambda thread: thread.push("self", "note", "x", key="k"),
        lambda thread: thread.push_many([("self", "note", "x")]),
        lambda thread: thread.subscribe("d"),
        lambda thread: thread.ack("c", 1),
        lambda thread: thread.contexts.create(),
        lambda thread: thread.settings.set("runs.emit", "on"),
        lambda thread: thread.prune(before_id=1, force=True),
    ],
)
def test_the_first_write_is_refused(
    path: str,
    write: Callable[[eventq.Thread], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that is on such a file system already is read, and not written; then it is allowed."""
    with eventq.open(path) as thread:
        thread.subscribe("c")
        thread.push("self", "note", "x")
    mount(monkeypatch, tmp_path / "table", (str(tmp_path), "fuse.bindfs"))
    with eventq.open(path) as thread:
        assert len([*thread.peek(0)]) == 1
        for _ in range(2):
            with pytest.raises(PlatformError, match="eventq config any_mount true"):
                write(thread)
    with eventq.open(path, any_mount=True) as thread:
        write(thread)
    with eventq.open(path) as thread:
        write(thread)
        thread.settings.set("any_mount", "false")
    with eventq.open(path) as thread, pytest.raises(PlatformError):
        thread.push("self", "note", "x")


def test_the_command_line_allows_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init --any-mount` and `config any_mount true` keep the choice in the thread."""
    mount(monkeypatch, tmp_path / "table", (str(tmp_path), "nfs"))
    run = command("eventq")
    push = ("push", "--source", "self", "--type", "note", "--content", "x", "--thread")
    assert run(*push, path).code == 1
    assert run("config", "any_mount", "--thread", path).out == "false\n"
    assert run("config", "any_mount", "perhaps", "--thread", path).code == 2
    assert run("config", "any_mount", "true", "--thread", path).code == 0
    assert run(*push, path).code == 0
    other = str(tmp_path / "other")
    assert run("config", "any_mount", "false", "--thread", path).code == 0
    assert run("config", "runs.emit", "on", "--thread", path).code == 1
    assert run("output", "put", "any_mount", "--thread", path).code == 1, "a name allows nothing"
    assert run("init", other).code == 1
    assert run("init", "--any-mount", other).code == 0
    assert run(*push, other).code == 0


def test_the_original_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name `thread` everything goes on as it did, and what that starts goes on too."""
    mount(monkeypatch, tmp_path / "table", (str(tmp_path), "9p"))
    path = str(tmp_path / "inbox")
    run = command("thread")
    assert run("init", path).code == 0
    words = ("--source", "self", "--type", "note", "--content", "x")
    assert run("push", "--thread", path, *words).code == 0
    run = command("eventq")
    assert run("push", "--thread", path, *words).code == 0


def test_a_database_with_two_names(path: str, tmp_path: Path) -> None:
    """A write to a database that has a second hard link is refused, also by who has it open."""
    shutil.copytree(path, tmp_path / "links", copy_function=os.link)
    with eventq.open(tmp_path / "links", read_only=True) as reader:
        assert reader.last_id() == 0
    for place in (path, str(tmp_path / "links")):
        with eventq.open(place) as thread:
            for _ in range(2):
                with pytest.raises(LogicError, match="has 2 hard links"):
                    thread.push("self", "note", "x")
    shutil.rmtree(tmp_path / "links")
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")


def test_a_second_name_comes_while_it_is_open(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the thread open sees it within a second: no time of the folder tells."""
    now = [1_000.0]
    monkeypatch.setattr("eventq.system.clock.monotonic", lambda: now[0])
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        os.link(f"{path}/events.db", tmp_path / "backup.db")
        now[0] += 1.1
        with pytest.raises(LogicError, match="hard links"):
            thread.push("self", "note", "x")
        os.unlink(tmp_path / "backup.db")
        assert thread.push("self", "note", "x").id == 2


def test_an_init_under_way_is_no_second_name(path: str) -> None:
    """While `init` has its database under two names, whoever is quicker may write."""
    os.link(f"{path}/events.db", f"{path}/events.db.new")
    with eventq.open(path) as thread:
        thread.push("self", "note", "x")
        os.unlink(f"{path}/events.db.new")
        os.link(f"{path}/events.db", f"{path}/backup.db")
        with open(f"{path}/events.db.new", "w", encoding="utf-8"), pytest.raises(LogicError):
            thread.push("self", "note", "x")
    os.unlink(f"{path}/backup.db")


def test_a_database_that_is_a_link(path: str, tmp_path: Path) -> None:
    """It is read, and not written: its WAL lies in another folder, which nobody looks at."""
    os.rename(f"{path}/events.db", tmp_path / "real.db")
    os.symlink(tmp_path / "real.db", f"{path}/events.db")
    with eventq.open(path) as thread:
        assert thread.last_id() == 0
        with pytest.raises(LogicError, match="is a symbolic link"):
            thread.push("self", "note", "x")
