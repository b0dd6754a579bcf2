"""`push --batch`, whose input may come slowly: nobody waits for it, and a kill leaves nothing.

No other door reads its input inside a transaction. Tried: `push`, `hook`, `turn append`, `blob put`,
`artifact put`, `output put`, with three megabytes of an input that goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest

from tests.doors.support import EVENTQ, contents, environ, ok

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Until

MIB = 1 << 20


def line(content: str) -> bytes:
    """Return an event as a line of a batch."""
    return json.dumps({"source": "self", "type": "note", "content": content}).encode() + b"\n"


@contextmanager
def batch(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """Begin a batch whose input stays open."""
    with subprocess.Popen(
        [EVENTQ, "push", "--thread", path, "--batch", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ(),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def feed(pipe: IO[bytes] | None, data: bytes, until: Until) -> None:
    """Write to a pipe, and wait until all of it was read."""
    assert pipe is not None
    pipe.write(data)
    pipe.flush()
    until(lambda: not unread(pipe.fileno()), "the batch has read its lines")


def unread(pipe: int) -> int:
    """Return the number of bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("size", [0, 10_000])
def test_nobody_waits_for_the_input_of_a_batch(inbox: str, until: Until, size: int) -> None:
    """While the input is open others push; when it ends, all of it is stored at once."""
    many = 3_000 if size else 1
    with batch(inbox) as process:
        feed(process.stdin, line("x" * size) * many + b'{"source": "self", ', until)
        assert ok("push --thread", inbox, "--content", "meanwhile") == ""
        assert contents(inbox) == ["meanwhile"]
        out, _ = process.communicate(b'"type": "note", "content": "last"}\n', timeout=120)
    assert json.loads(out) == {"count": many + 1, "first_id": 2, "last_id": many + 2}
    assert process.returncode == 0


def test_a_killed_batch_leaves_nothing(inbox: str, until: Until) -> None:
    """What it had read is in no file that anybody would have to delete."""
    before = {*os.listdir(inbox), "events.db-wal", "events.db-shm"}
    with batch(inbox) as process:
        feed(process.stdin, line("x" * 10_000) * 3_000, until)
        files = f"/proc/{process.pid}/fd"
        places = [os.readlink(f"{files}/{fd}") for fd in os.listdir(files)]
        assert [place for place in places if place.startswith(f"{inbox}/") and "(deleted)" in place]
        process.send_signal(signal.SIGKILL)
        process.wait(120)
    assert {*os.listdir(inbox)} <= before
    assert contents(inbox) == []
