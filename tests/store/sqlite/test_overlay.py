"""A reader that began before anybody wrote to a thread of a lower layer, as of a container's image.

overlayfs copies a file up when somebody first opens it to write. What a reader opened before leads
to the copy, but the shared memory that it has mapped stays with the lower file, where nobody writes:
it read nothing more, for ever. The kind: shared memory that is not that of the file. Its members:
`tail -f`, `follow` of the library, with a filter too, and a handle that is asked again and again; a
lower thread with shared memory, without it, and without a WAL; layers on one file system and on two.

Where no overlayfs can be mounted, a copy takes the file's place under the same descriptor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

import eventq

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE = 60
# Stores each line of stdin, and says so: the thread stays open to write.
WRITER = """
import sys
import eventq
with eventq.open(sys.argv[1]) as thread:
    print("open", flush=True)
    for line in sys.stdin:
        print(thread.push("self", "note", line.strip()).id, flush=True)
"""
# Reads what the lower thread has, lets another process write, and waits for that.
FOLLOWER = """
import os, shutil, subprocess, sys
import eventq
from eventq.system.clock import pause
from eventq.system.locks import descriptor_of

kind, path, is_copied, writing = sys.argv[1], sys.argv[2], sys.argv[3] == "by hand", sys.argv[4]
shared = path + "/events.db-shm"

def writer():
    command = [sys.executable, "-c", writing, path]
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert one.stdout.readline().strip() == "open"
    return one

def copy_up():
    shutil.copy(shared, path + "/copy")
    os.rename(path + "/copy", shared)
    copy = os.open(shared, os.O_RDWR)
    os.dup2(copy, mapped)
    os.close(copy)

def tail():
    command = [sys.executable, "-m", "eventq", "tail", "-f", "--thread", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
        try:
            for line in one.stdout:
                yield line.split()[-1]
        finally:
            one.kill()

def texts():
    with eventq.open(path, read_only=True) as thread:
        if kind != "handle":
            for event in thread.follow(0, filter="type = 'note'" if kind == "filter" else None):
                yield event.content
        last = 0
        while True:
            for event in thread.peek(last):
                last = event.id
                yield event.content
            pause(0.01)

before = writer() if is_copied else None  # memory is mapped while somebody may write
found = tail() if kind == "tail" else texts()
assert next(found) == "lower"
if is_copied:
    mapped = descriptor_of(shared)
    copy_up()
    before.communicate()
after = writer()
for number in range(3):
    print(f"upper{number}", file=after.stdin, flush=True)
    assert int(after.stdout.readline()) == number + 2
    assert next(found) == f"upper{number}"
found.close()
after.communicate()
"""
MOUNT = (
    'mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$2/upper,workdir=$2/work" "$1/merged"'
    ' && shift 2 && exec "$@"'
)
NAMESPACES = ["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]


def mounting(one: str, other: str) -> list[str]:
    """Return the command that runs another where overlayfs is mounted, [] if that cannot be."""
    for namespace in NAMESPACES if sys.platform == "linux" else ():
        command = [*namespace, "sh", "-c", MOUNT, "sh", one, other]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


def elsewhere(path: Path) -> str:
    """Return a folder on another file system than a path, or where there is none the path's own."""
    for folder in ("/dev/shm", "/tmp"):
        if os.path.isdir(folder) and os.stat(folder).st_dev != path.stat().st_dev:
            return folder
    return str(path)


@pytest.mark.parametrize(
    ("kind", "lacks", "upper"),
    [
        ("tail", "", "beside"), ("follow", "", "beside"), ("filter", "", "beside"),
        ("handle", "", "beside"), ("tail", "", "apart"), ("tail", "events.db-shm", "beside"),
        ("tail", "events.db-wal", "beside"), ("follow", "", "by hand"), ("handle", "", "by hand"),
    ],
)  # fmt: skip
def test_a_reader_that_began_before_the_first_write(
    tmp_path: Path, kind: str, lacks: str, upper: str
) -> None:
    """It reads what is written, whatever the thread of the lower layer has."""
    with TemporaryDirectory(dir=elsewhere(tmp_path) if upper == "apart" else tmp_path) as other:
        for folder in ("lower", "merged", f"{other}/upper", f"{other}/work"):
            (tmp_path / folder).mkdir()
        path = eventq.init(tmp_path / "lower" / "inbox")
        with eventq.open(path) as thread:
            thread.push("self", "note", "lower")
            if lacks == "events.db-wal":
                thread.database.compact()
        for name in {"events.db-shm", lacks} if lacks else ():
            os.remove(os.path.join(path, name))
        mount = [] if upper == "by hand" else mounting(str(tmp_path), other)
        if not mount:  # only the program itself can be given a copy
            kind = "follow" if kind == "tail" else kind
        path = str(tmp_path / "merged" / "inbox") if mount else path
        how = "by overlayfs" if mount else "by hand"
        command = [sys.executable, "-c", FOLLOWER, kind, path, how, WRITER]
        subprocess.run([*mount, *command], check=True, timeout=DEADLINE)
