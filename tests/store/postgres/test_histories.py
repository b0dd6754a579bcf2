"""Recorded histories: what several processes were told of one thread is true, whatever breaks."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from eventq.thread import init_schema
from tests.servers import fresh
from tests.store.postgres.clients import LEASE, ROLES, Clients
from tests.store.postgres.machines import Server, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOCKET = ".s.PGSQL.5432"
LOST_ANSWER = 40  # of each connection; the first few are those of its login


@pytest.fixture
def server(postgres: str) -> Iterator[Server]:
    """Return a server with the tables, for these clients alone."""
    made = Server()
    try:
        made.start()
        init_schema(made.url)
        yield made
    finally:
        made.close()


@pytest.fixture
def clients(server: Server, tmp_path: Path) -> Iterator[Clients]:
    """Return clients at work; at the end, all that they were told must hold."""
    place = fresh(server.url)
    made = Clients(place, place, tmp_path)
    try:
        made.go_on()
        yield made
        made.finish()
    finally:
        made.close()


def wait(seconds: float) -> None:
    """Wait while something is stopped: nobody can tell how far the others have got."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, "time passes")


def test_clients_that_are_stopped(clients: Clients) -> None:
    """For longer than a lease, also in the middle of a change; then all go on."""
    for name in ROLES:
        clients.signal(name, signal.SIGSTOP)
        wait(LEASE)
        clients.signal(name, signal.SIGCONT)
    clients.go_on()
    assert done_once(clients)


def test_clients_that_are_killed(clients: Clients) -> None:
    """In the middle of an append, a step, an artifact; another process goes on with the same."""
    for name in ("speaker", "runner", "maker"):
        clients.replace(name)
    clients.go_on()
    assert done_once(clients)


def test_servers_processes_that_are_stopped(server: Server, clients: Clients) -> None:
    """Each with what it has locked, for a while; then all go on."""
    for (pid,) in server.run("SELECT pid FROM pg_stat_activity WHERE application_name = 'eventq'"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            wait(LEASE / 4)
            os.kill(pid, signal.SIGCONT)
    clients.go_on()
    assert done_once(clients)


def test_a_server_that_is_killed_and_started(server: Server, clients: Clients) -> None:
    """What it had acknowledged is there; what workers had just done may be done again."""
    server.restart()
    clients.go_on()


class Lossy:
    """Listens before a server; each connection breaks at one answer, which nobody gets."""

    def __init__(self, folder: str, server: Server) -> None:
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self.lost = 0
        self._server = os.path.join(server.folder, SOCKET)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(folder, SOCKET))
        self._listener.listen(50)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                for way in ((client, server, None), (server, client, LOST_ANSWER)):
                    threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, come: socket.socket, go: socket.socket, most: int | None) -> None:
        with suppress(OSError):
            while data := come.recv(1 << 16):
                if most is not None:
                    most -= 1
                if most == 0:
                    self.lost += 1
                    break
                go.sendall(data)
        for end in (come, go):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        come.close()  # the other way has the other end

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_answers_that_are_lost(server: Server, tmp_path: Path) -> None:
    """The server has done what nobody was told of: it is there once, or said to be unknown."""
    folder = os.path.join(server.folder, "lossy")
    os.mkdir(folder)
    proxy = Lossy(folder, server)
    place = fresh(server.url)
    clients = Clients(place.replace(server.url, proxy.url), place, tmp_path)
    try:
        until(lambda: proxy.lost >= 20, "answers are lost")
        clients.go_on()
        clients.finish()
    finally:
        clients.close()
        proxy.close()
    assert done_once(clients)


def done_once(clients: Clients) -> bool:
    """Return whether no event was done twice: nobody was told so of one that another had."""
    return max(Counter(number for (number,) in clients.all("done")).values()) == 1
