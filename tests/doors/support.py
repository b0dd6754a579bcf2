"""Running the command line as a user does."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from typing import Any

import eventq
from eventq.system import disk
from tests import running

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

BIN = os.path.dirname(sys.executable)
EVENTQ, THREAD = os.path.join(BIN, "eventq"), os.path.join(BIN, "thread")

MIXED = bytes(range(256)) * 3 + b"\0\r\n"
NOWHERE = "blob:blake3:" + "0" * 64
LARGE = b"".join(n.to_bytes(4, "big") * 64 for n in range(3 << 12)) + b"\xff"  # 3 MiB and a byte


@dataclass
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str


def environ(**more: str) -> dict[str, str]:
    """Return an environment in which nobody is woken, unless told."""
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "EVENTQ_NOTIFIER": "none", **more}


# Starting Python, importing the program and building click's commands takes longer than most commands
# do. So there is one process that has done all three; each command runs in a fork of it, with
# descriptors, environment and folder of its own.
FORKS = """
import array, json, os, socket, sys
sys.argv[0] = sys.argv[2]  # the words depend on it
import eventq, eventq.cli
from eventq.cli import app, show
run = eventq.cli.run  # there is a module of that name, too
for name in os.listdir(os.path.dirname(eventq.cli.__file__)):
    if name.endswith(".py"):
        __import__("eventq.cli." + name[:-3])
eventq.cli.run = run
build, built = app.build, app.build()
app.build = lambda *, verbose=False: build(verbose=True) if verbose else built
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, extra, *_ = server.recvmsg(1 << 20, socket.CMSG_SPACE(12))
    if not data:
        os._exit(0)
    fds = array.array("i", extra[0][2])
    pid = os.fork()
    if not pid:
        server.close()
        asked = json.loads(data)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(asked["environ"])
        os.chdir(asked["folder"])
        sys.argv = asked["argv"]
        eventq.cli.main()
    for fd in fds:
        os.close(fd)
    server.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
"""


class Forks:
    """The process whose forks run commands of a program."""

    def __init__(self, program: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", FORKS, str(theirs.fileno()), program],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        running.keep(self._process.pid)  # it ends with us

    def run(
        self, argv: list[str], environ: dict[str, str], data: bytes | None
    ) -> tuple[int, bytes, bytes]:
        """Run a command in a fork; return its exit code and what it said."""
        asked = json.dumps({"argv": argv, "environ": environ, "folder": os.getcwd()}).encode()
        with ThreadPoolExecutor(3) as pool, ExitStack() as stack:
            fds = [fd for _ in range(3) for fd in os.pipe()]
            ends = [stack.enter_context(FileIO(fd, "rwrwrw"[n])) for n, fd in enumerate(fds)]
            given, giving, said, saying, complained, complaining = ends
            socket.send_fds(
                self._socket, [asked], [given.fileno(), saying.fileno(), complaining.fileno()]
            )
            for end in (given, saying, complaining):
                end.close()
            pool.submit(_give, giving, data or b"")
            out, err = pool.submit(said.readall), pool.submit(complained.readall)
            return int(self._socket.recv(100)), out.result() or b"", err.result() or b""


def _give(pipe: FileIO, data: bytes) -> None:
    with suppress(BrokenPipeError), pipe:
        disk.write_all(pipe.fileno(), data)


@functools.cache
def _forks(program: str) -> Forks:
    return Forks(program)


def split(words: tuple[str, ...]) -> list[str]:
    """Return the words of some words: one of several is those, and an empty one is itself."""
    return [each for word in words for each in (word.split() or [word])]


def run(*words: str, given: str | bytes | None = None, program: str = EVENTQ, **more: str) -> Done:
    """Run eventq with these words; the first may be several, with blanks between them."""
    argv = [program, *split(words[:1]), *words[1:]]
    data = given.encode() if isinstance(given, str) else given
    if program in (EVENTQ, THREAD) and all(name.startswith("EVENTQ_") for name in more):
        code, out, err = _forks(program).run(argv, environ(**more), data)
        return Done(code, out.decode(), err.decode())
    done = subprocess.run(
        argv, input=data, stdin=None if data is not None else subprocess.DEVNULL, capture_output=True,
        env=environ(**more), timeout=300,
    )  # fmt: skip
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def raw_run(*words: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run eventq and return what it printed as bytes."""
    argv = [EVENTQ, *split(words[:1]), *words[1:]]
    return subprocess.CompletedProcess(argv, *_forks(EVENTQ).run(argv, environ(), given))


def ok(*words: str, given: str | bytes | None = None) -> str:
    """Run eventq, which must succeed in silence, and give what it printed."""
    done = run(*words, given=given)
    assert (done.code, done.err) == (0, "")
    return done.out


def objects(*words: str, given: str | bytes | None = None) -> list[dict[str, Any]]:
    """Run eventq with --json and give the objects of its lines."""
    return [
        json.loads(line)
        for line in ok(*words, "--json", given=given).removesuffix("\n").split("\n")
        if line
    ]


def refused(code: int, says: str, done: Done) -> None:
    """Check that a command failed with a sentence."""
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("Error: ")
    assert says in done.err
    assert len(done.err.splitlines()) == 1


def contents(path: str) -> list[str]:
    """Return the contents of all events, of a thread that must check out."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        return [event.content for event in thread.peek()]
