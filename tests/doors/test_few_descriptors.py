"""What is refused for want of file descriptors says so, and how to get more.

Members of the kind: the database, its WAL and its index cannot be opened; a module cannot be read;
`capture` cannot make its pipe; a file is opened for an artifact, a blob or the mirror; and a server
that cannot accept a connection, of HTTP and of the binary protocol.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import eventq

# Leaves some descriptors, then does what is named; prints the error, if it is one of ours.
PROGRAM = """
import os, resource, sys, eventq
from eventq.errors import EventqError
what, path = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
acts = {
    "open": lambda: eventq.open(path).close(),
    "push": lambda: thread.push("a", "b", "c"),
    "read": lambda: thread.last(1),
    "capture": lambda: thread.capture(["true"]),
}
with eventq.open(path) as warm:
    warm.push("a", "b", "c"); warm.last(1); warm.capture(["true"])
for left in range(10):
    thread = None if what == "open" else eventq.open(path)
    kept = []
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(left):
        os.close(kept.pop())
    try:
        acts[what]()
        said = "done"
    except EventqError as error:
        said = str(error)
    except OSError as error:
        said = f"bare {error!r}"
    for fd in kept:
        os.close(fd)
    if thread is not None:
        thread.close()
    print(said)
"""

# Runs a command with a limit, which is its first word.
LIMITED = ["/bin/sh", "-c", 'ulimit -n "$1"; shift; exec "$0" -m eventq "$@"', sys.executable]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a thread with an event."""
    with eventq.open(tmp_path / "t", create=True) as thread:
        thread.push("a", "b", "c")
    return os.fspath(tmp_path / "t")


@pytest.mark.parametrize("what", ["open", "push", "read", "capture"])
def test_the_library(path: str, what: str) -> None:
    """With few descriptors left each call succeeds, or says that they are too few."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "EVENTQ_NOTIFIER": "none"},
    )
    assert done.stderr == ""
    said = done.stdout.splitlines()
    assert said[-1] == "done"
    assert all(one == "done" or "ulimit -n" in one for one in said), said


@pytest.mark.parametrize("files", range(5, 9))
@pytest.mark.parametrize(
    "words",
    ["push --source a --type b --content c", "info", "capture -- true", "peek --filter id>0",
     "blob put {}", "session import {}", "pack export {}-pack", "mirror rebuild"],
)  # fmt: skip
def test_commands(path: str, files: int, words: str) -> None:
    """A command with few descriptors succeeds, or names the way to more."""
    given = Path(f"{path}.jsonl")
    given.write_text('{"type":"user"}\n')
    done = subprocess.run(
        [*LIMITED, str(files), *words.format(given).split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "EVENTQ_NOTIFIER": "none", "EVENTQ_THREAD": path},
    )
    assert done.returncode == 0 or "ulimit -n" in done.stderr, done.stderr
    assert "permissions" not in done.stderr


@pytest.mark.parametrize("protocol", ["--http", "--listen"])
def test_a_server_that_is_full(path: str, protocol: str) -> None:
    """A server that cannot accept says so in one line, and goes on when callers have gone."""
    more = ["--insecure-local"] if protocol == "--http" else []
    process = subprocess.Popen(
        [*LIMITED, "64", "serve", protocol, "127.0.0.1:0", *more, "--thread", path],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    callers: list[socket.socket] = []
    try:
        said = b""
        while not (found := re.search(rb"listening on .*:(\d+)", said)):
            said += os.read(process.stderr.fileno(), 4096)
        process.send_signal(signal.SIGSTOP)  # so that all of them come at once
        while len(callers) < 80:
            callers.append(socket.create_connection(("127.0.0.1", int(found[1])), timeout=60))
        process.send_signal(signal.SIGCONT)
        while b"ulimit" not in said:
            assert select.select([process.stderr], [], [], 60)[0]
            said += os.read(process.stderr.fileno(), 1 << 20)
        while callers:
            callers.pop().close()
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=60) as caller:
            caller.sendall(b"GET /api/health HTTP/1.0\r\n\r\n".ljust(64))
            assert caller.recv(100)  # of the binary protocol the error for what is no frame
        process.terminate()
        said += process.stderr.read()
        assert process.wait(60) == 0
    finally:
        for caller in callers:
            caller.close()
        process.kill()
        process.wait()
        process.stderr.close()
    assert b"Traceback" not in said
    assert said.count(b"no connection can be accepted") == 1
