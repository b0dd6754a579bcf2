"""A full disk: a clear error, nothing lost, and all is well again once there is space."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.system import processes
from tests.crash.support import contents, sound, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Pushes until it is refused, and says what it was promised and how it was refused.
FILL = """
import resource, signal
import eventq
from eventq.errors import DiskError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with eventq.open(sys.argv[1]) as thread:
    limit = int(sys.argv[2])
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    refused = 0
    n = 0
    while refused < 3:
        try:
            if sys.argv[3] == "batch":
                done = thread.push_many([("self", "test", f"{n} {i} " + "x" * 900) for i in range(20)])
                say(f"{done.first_id} {done.last_id}")
            else:
                say(thread.push("self", "test", f"{n} " + "x" * 900).id)
        except DiskError as error:
            refused += 1
            assert " - " in str(error)
            say(f"refused: {error}")
        n += 1
        assert n < 100000
"""


def fill(path: str, limit: int, how: str) -> tuple[list[int], list[str]]:
    """Fill the disk; give the ids that were promised and the errors."""
    process = start(FILL, path, str(limit), how)
    out, complaint = process.communicate(timeout=120)
    assert complaint == b""
    assert process.returncode == 0
    lines = out.decode().splitlines()
    errors = [line for line in lines if line.startswith("refused: ")]
    ids: list[int] = []
    for line in lines:
        if not line.startswith("refused: "):
            numbers = [int(word) for word in line.split()]
            ids += range(numbers[0], numbers[-1] + 1)
    return ids, errors


@pytest.mark.parametrize("how", ["single", "batch"])
@pytest.mark.parametrize("limit", [100_000, 150_001, 199_999, 250_000])
def test_a_file_that_may_not_grow_loses_nothing(limit: int, how: str, tmp_path: Path) -> None:
    """On a full disk, every push that returned is stored, and later ones work again."""
    path = eventq.init(tmp_path / "thread")
    ids, errors = fill(path, limit, how)
    assert len(errors) == 3
    assert all("events.db" in error for error in errors)
    with eventq.open(path) as thread:
        assert [event.id for event in thread.peek(limit=None)] == ids
    assert len(ids) > 5
    assert len(sound(path)) == len(ids)


def test_the_command_says_what_is_wrong_and_exits_with_1(tmp_path: Path) -> None:
    """`push` on a full disk exits with 1 and the documented message."""
    path = eventq.init(tmp_path / "thread")
    with eventq.open(path) as thread:
        thread.push("self", "test", "before")
    code = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    words = [
        "push",
        "--thread",
        path,
        "--source",
        "self",
        "--type",
        "t",
        "--content",
        "x" * 100_000,
    ]
    for extra in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *processes.python(*words, *extra)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (1, "")
        error = json.loads(done.stderr)["error"] if extra else done.stderr
        assert "events.db" in error
        assert extra or done.stderr.startswith("Error: ")
        assert extra or " - " in done.stderr
    assert contents(path) == ["before"]
    assert sound(path) == ["before"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Return a folder on a disk of 1 MiB, or a folder and a limit for each file."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    yield str(place), 0 if mounted else 400_000
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["single", "batch"])
def test_a_disk_that_is_full_loses_nothing(how: str, small: tuple[str, int]) -> None:
    """Without any space, even for the mirror, nothing is lost; with space it continues."""
    folder, limit = small
    path = eventq.init(os.path.join(folder, "thread"))
    ids, errors = fill(path, limit, how)
    assert len(errors) == 3
    if not limit:
        assert all("is full - nothing was stored; free some space" in error for error in errors)
    with eventq.open(path) as thread:
        assert [event.id for event in thread.peek(limit=None)] == ids
        if not limit:
            subprocess.run(["mount", "-o", "remount,size=8m", folder], check=True)
        assert thread.prune(keep_last=10) == len(ids) - 10
        thread.push("self", "test", "again")
        assert thread.check() == []
    assert len(contents(path)) == 11
