"""Listening: one server per path, however many start and end; clear errors."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eventq.errors import LogicError
from eventq.serving import endpoint
from eventq.serving.endpoint import Address

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

SERVERS = 8
ROUNDS = 12


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Return a path where a dead server has left its socket."""
    made = str(tmp_path / "s")
    leave(made)
    return made


@pytest.fixture
def _together(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make each server wait, after it removed a dead socket, until the others have too."""
    remove = os.unlink
    barrier = threading.Barrier(SERVERS)

    def slow(path: str) -> None:
        remove(path)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(0.05)

    monkeypatch.setattr(os, "unlink", slow)
    before = os.umask(0o022)
    yield
    assert os.umask(before) == 0o022


def leave(path: str) -> None:
    """Leave a socket that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)


async def listening(at: Address) -> asyncio.AbstractServer:
    """Begin to listen."""
    return await at.listen(asyncio.get_running_loop(), asyncio.Protocol)


def run(told: Coroutine[Any, Any, Any]) -> Any:
    """Do something in a loop of its own."""
    return asyncio.run(told)


class Crowd:
    """Servers that start at one path simultaneously, each in a thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.listens: list[Address] = []
        self.refused: list[str] = []
        self._begin, self._told = threading.Barrier(SERVERS), threading.Barrier(SERVERS + 1)
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=run, args=(self._serve(),)) for _ in range(SERVERS)
        ]
        for one in self._threads:
            one.start()
        self._told.wait(60)

    async def _serve(self) -> None:
        at, listener = Address(f"unix:{self.path}"), None
        self._begin.wait(60)
        try:
            listener = await listening(at)
            self.listens.append(at)
        except LogicError as error:
            self.refused.append(str(error))
        self._told.wait(60)
        self._end.wait(60)
        if listener:
            listener.close()
            at.unlink()

    def end(self) -> None:
        """End them all."""
        self._end.set()
        for one in self._threads:
            one.join(60)


# --- one at most ----------------------------------------------------------------------------------


def test_of_many_servers_one_listens(place: str) -> None:
    """In each round one server listens; the others fail, and the socket is removed."""
    for number in range(ROUNDS):
        if number % 2 and not os.path.lexists(place):
            leave(place)
        _one_of_many(place)


@pytest.mark.usefixtures("_together")
def test_who_finds_the_same_dead_socket_does_not_remove_the_next(place: str) -> None:
    """However slow a server is between check and bind, no other one comes between."""
    _one_of_many(place)


def _one_of_many(place: str) -> None:
    crowd = Crowd(place)
    try:
        assert len(crowd.listens) == 1
        assert crowd.refused == [
            f"another server listens on '{place}' - choose another path, or stop it"
        ] * (SERVERS - 1)  # fmt: skip
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(place)
    finally:
        crowd.end()
    assert not os.path.lexists(place)


def test_a_server_that_ends_leaves_its_successors_socket(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the other socket has the same inode, reused by the file system."""
    lstat = os.lstat
    old, new = Address(f"unix:{place}"), Address(f"unix:{place}")

    async def succeed() -> None:
        (await listening(old)).close()  # as while it drains
        before = os.stat(place).st_mtime_ns
        # The clock of files is coarse: wait until it has moved on.
        while os.stat(place).st_mtime_ns == before:
            os.utime(place)
        os.utime(place, ns=(before, before))
        (await listening(new)).close()

    with monkeypatch.context() as patch:  # what removes the folder needs the real one
        patch.setattr(os, "lstat", lambda path: _with_inode(lstat(path), 7))
        run(succeed())
        old.unlink()
        assert os.path.lexists(place)
        new.unlink()
        assert not os.path.lexists(place)


def _with_inode(found: os.stat_result, inode: int) -> SimpleNamespace:
    return SimpleNamespace(
        st_mode=found.st_mode, st_dev=found.st_dev, st_ino=inode, st_mtime_ns=found.st_mtime_ns
    )  # fmt: skip


def test_a_server_whose_queue_is_full_is_alive(tmp_path: Path) -> None:
    """It is not waited for, and its socket is left alone."""
    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(place)
        busy.listen(0)
        peers = []
        with suppress(BlockingIOError):
            for _ in range(10):
                peers.append(socket.socket(socket.AF_UNIX))
                peers[-1].setblocking(False)
                peers[-1].connect(place)
        assert len(peers) < 10
        with pytest.raises(LogicError, match="another server listens on"):
            run(listening(Address(f"unix:{place}")))
        for peer in peers:
            peer.close()
    assert os.path.exists(place)


def test_a_folder_that_is_locked_is_not_waited_for_long(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may read a folder can lock it: a server says so, and leaves all as it is."""
    monkeypatch.setattr(endpoint, "LOCK_SECONDS", 0.02)
    fd = os.open(os.path.dirname(place), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with pytest.raises(
            LogicError,
            match=r"another program holds the folder of '.*' locked - choose another folder",
        ):
            run(listening(Address(f"unix:{place}")))
    finally:
        os.close(fd)
    assert os.path.exists(place)


def test_the_folder_is_free_again(place: str) -> None:
    """The lock is held only while a server begins; a refused one does not keep it either."""

    async def serve() -> None:
        at = Address(f"unix:{place}")
        listener = await listening(at)
        with pytest.raises(LogicError):
            await listening(Address(f"unix:{place}"))
        fd = os.open(os.path.dirname(place), os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        listener.close()
        at.unlink()

    run(serve())


def test_a_socket_listens_before_it_is_handed_over(place: str) -> None:
    """A socket listens before its path exists; a loop that refuses it leaves nothing."""

    class Loop:
        async def create_unix_server(self, *_: object, sock: socket.socket, **__: object) -> None:
            assert sock.getsockname() == place
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(place)
            raise OSError(24, "no more files")

    with pytest.raises(LogicError, match=r"cannot listen on unix:.*: Too many open files - "):
        run(Address(f"unix:{place}").listen(Loop(), asyncio.Protocol))  # type: ignore[arg-type]
    assert not os.path.exists(place)


# --- what is said ---------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told_once() -> None:
    """The error has the address, the system's reason and the next step, once each."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(LogicError) as caught:
            run(listening(Address(told)))
    assert str(caught.value) == (
        f"cannot listen on {told}: Address already in use - choose another address, or stop who is there"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("unix:{}/missing/s", "No such file or directory"),
        ("unix:{}/" + "x" * 200, "AF_UNIX path too long"),
    ],
)
def test_a_place_where_no_socket_can_be(text: str, reason: str, tmp_path: Path) -> None:
    """The reason is the system's, or Python's where the system was not asked."""
    told = text.format(tmp_path)
    with pytest.raises(LogicError) as caught:
        run(listening(Address(told)))
    assert str(caught.value) == (
        f"cannot listen on {told}: {reason} - choose another address, or stop who is there"
    )  # fmt: skip


def test_a_name_that_is_no_host_is_told_as_such() -> None:
    """Its error has a number of another kind, which is no errno."""

    class Loop:
        async def create_server(self, *_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(LogicError, match=r"nowhere:0: Name or service not known - "):
        run(Address("nowhere:0").listen(Loop(), asyncio.Protocol))  # type: ignore[arg-type]
