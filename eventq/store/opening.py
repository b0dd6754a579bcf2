"""Open a database without knowing its engine."""

from __future__ import annotations

from eventq.errors import PlatformError
from eventq.store.sqlite.database import Database

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.store import protocol
    from eventq.store.address import Address
    from eventq.store.sqlite.memory import MemoryDatabase
    from eventq.store.sqlite.watcher import Bells


def open_database(
    directory: str, *, write: bool = True, patience: float | None = None
) -> protocol.Database:
    """Open the database of the thread in a directory; without `write` nothing is ever changed.

    `patience` is how many seconds a change waits for other writers (default: 30).
    Raises NotAThreadError when there is none, DamagedError when the file is no store of eventq.
    """
    return Database(directory, write=write, patience=patience)


def open_shared(address: Address, *, write: bool = True) -> protocol.Database:
    """Open a thread in PostgreSQL; see `open_database`. Raises PlatformError without its driver."""
    check_driver()
    from eventq.store.postgres import database

    return database.Database(address, write=write)


def is_sound(database: str) -> bool:
    """Return whether a file is a whole database with a log, of any version."""
    from eventq.store.sqlite import creation

    return creation.is_sound(database)


def init_shared(url: str) -> str:
    """Create a thread in a database that has the tables; return its URL without a password."""
    address = _address(url)
    from eventq.store.postgres import schema

    schema.init_thread(address)
    return address.shown


def init_schema(url: str) -> int:
    """Make the tables in a database, or bring them up to date; return the newest migration."""
    address = _address(url)
    from eventq.store.postgres import schema

    return schema.init(address)


def shared_exists(url: str) -> bool:
    """Return whether there is a thread at a URL."""
    address = _address(url)
    from eventq.store.postgres import schema

    return address.name in schema.names(address)


def destroy_shared(url: str) -> None:
    """Delete a thread and everything in it. Raises NotAThreadError."""
    address = _address(url)
    from eventq.store.postgres import schema

    schema.destroy(address)


def shared_threads(url: str, *, secret: bool = False) -> list[str]:
    """Return the URLs of all threads in a database, by name: with the password if `secret`."""
    address = _address(url)
    from eventq.store.address import with_thread
    from eventq.store.postgres import schema

    names = schema.names(address)
    return [with_thread(url, name) if secret else address.at(name) for name in names]


def needing(url: str) -> set[str]:
    """Return which threads of a database need a person, as `shown` has their URLs."""
    address = _address(url)
    from eventq.store.postgres import schema

    return {address.at(name) for name in schema.names(address, needing=True)}


def watchers(address: Address, *, memory: bool = False) -> protocol.Watchers:
    """Return a watcher of many threads of a database; with `memory` of that, too."""
    check_driver()
    from eventq.store.postgres.watchers import Watchers

    return Watchers(address, memory=memory)


def share_connections() -> None:
    """Let what is opened from now on share the connections to each database in PostgreSQL."""
    from eventq.store.postgres import pool

    pool.share()


def unshare_connections() -> None:
    """End what `share_connections` began."""
    from eventq.store.postgres import pool

    pool.unshare()


def _address(url: str) -> Address:
    """Return what a URL says; raise PlatformError without the driver, before it is imported."""
    check_driver()
    from eventq.store.address import parse

    return parse(url)


def check_driver() -> None:
    """Raise PlatformError when the driver for PostgreSQL is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise PlatformError(
            f"threads in PostgreSQL need its driver: {error}",
            "run pip install '.[postgres]' in a clone of eventq",
        ) from error


def check_path(directory: str) -> None:
    """Raise InputError for a directory that cannot hold a database; nothing is created."""
    from eventq.store.sqlite import creation

    creation.check_path(directory)


def create(directory: str, path: str, mode: int) -> bool:
    """Create the database of a new thread, whole or not at all; return False if there is one."""
    from eventq.store.sqlite import creation

    return creation.create(directory, path, mode)


def in_memory() -> MemoryDatabase:
    """Open a database that lives in memory, for as long as it is used, and that nobody shares."""
    from eventq.store.sqlite.memory import MemoryDatabase

    return MemoryDatabase()


def trace(directory: str) -> object:
    """Return what changes whenever anything of a thread does; this does not open the thread."""
    from eventq.store.sqlite.watcher import trace

    return trace(directory)


def bells() -> Bells:
    """Return a watcher of many threads, for a process with one OS thread."""
    from eventq.store.sqlite.watcher import Bells

    return Bells()
