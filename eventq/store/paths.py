"""The files of a thread: their paths and names, and the rotation of growing files."""

from __future__ import annotations

import os

from eventq.errors import InputError, LogicError, without_user
from eventq.system import clock, disk, environment
from eventq.system.locks import ConsumerFiles, encode, files_of

FRESH = "events.db.new"  # a database that is being made
LINK = "thread.url"  # the file in a directory that names a thread in PostgreSQL
ROTATE_LINES = 10_000  # a file that holds more begins anew
# What is kept of the files that a log was rotated to, the newest first. It bounds what handlers
# print without a limit; the number counts where the files are smaller than the usual 1 MiB.
KEPT_BYTES = 64 << 20
KEPT_FILES = 64


class Layout:
    """The paths of one thread."""

    def __init__(self, directory: str) -> None:
        """Take the thread's directory, absolute."""
        self.directory = directory
        self.thread = directory  # what programs know the thread by
        self.environ: dict[str, str] = {}  # what they need beside that, to open it
        self.database = f"{directory}/events.db"
        self.mirror = f"{directory}/events.jsonl"
        self.rebuilt = f"{directory}/events.jsonl.rebuilt"
        self.adopting = f"{directory}/events.jsonl.adopting"
        self.adopt = f"{directory}/events.jsonl.adopt"
        self.adopted = f"{directory}/events.jsonl.adopted"
        self.run = f"{directory}/run"
        self.guards = f"{directory}/.guards"
        self.lost = f"{directory}/lost"  # what did not agree with the log, or was no log any more
        self.logs = f"{directory}/logs"
        self.journal = f"{directory}/logs/thread.log"
        self.handlers = f"{directory}/logs/handlers"
        self.queue = f"{directory}/run/.dispatch"
        self.deferred = f"{directory}/run/.deferred"

    def consumer(self, consumer: str) -> ConsumerFiles:
        """Return the files of a consumer's lock."""
        return files_of(self.directory, consumer)

    def handler_log(self, consumer: str) -> str:
        """Return the path of the log of a consumer's handler.

        `+` marks a name that would pass for a file which another consumer's log was rotated to.
        """
        name = encode(consumer)
        is_alike = any(_parts(name, name[:at], "")[0] for at, c in enumerate(name) if c == "-")
        return f"{self.handlers}/{name}{'+' * is_alike}.log"

    def exists(self) -> bool:
        """Return whether the thread has not been deleted."""
        return os.path.exists(self.database)

    def entries(self) -> tuple[list[str], list[str]]:
        """Return the paths in the directory that are a thread's, and all others, sorted."""
        known = {self.mirror, self.run, self.logs, self.lost, self.guards, *rotated(self.mirror)}
        paths = [f"{self.directory}/{name}" for name in sorted(os.listdir(self.directory))]
        # SQLite's own files begin with the name of the database.
        own = [path for path in paths if path in known or path.startswith(self.database)]
        return own, [path for path in paths if path not in own]

    def create(self, path: str, flags: int) -> int:
        """Open a file of the thread to write; one that is missing is as open as the database is.

        It belongs to the owner of the database, whoever makes it.
        """
        return disk.create(path, flags, self.database)

    def make_folder(self, path: str) -> None:
        """Make a folder of the thread that is missing, as open as the database is."""
        disk.make_folder(path, self.database)

    def foreign(self, *consumers: str) -> list[str]:
        """Return what the owner or this process may not write, of what starting handlers needs.

        For some consumers, their locks and logs are looked at too.
        """
        paths = [self.run, self.guards, self.queue, self.deferred]
        paths += [self.logs, self.handlers, self.journal]
        for consumer in consumers:
            files = self.consumer(consumer)
            paths += [files.guard, files.lock, self.handler_log(consumer)]
        return [path for path in paths if disk.is_foreign(path, self.database)]


def is_url(path: str) -> bool:
    """Return whether a path is the URL of a thread in PostgreSQL."""
    return path.startswith(("postgresql://", "postgres://"))


def is_shared(path: str) -> bool:
    """Return whether a path leads to a thread in PostgreSQL: its URL, or a directory with one."""
    if is_url(path):
        return True
    directory = resolve(path)
    is_own = os.path.exists(Layout(directory).database)
    return not is_own and os.path.exists(f"{directory}/{LINK}")


def is_thread(path: str) -> bool:
    """Return whether a path is that of a thread: a URL, or a directory with one."""
    is_there = any(os.path.exists(f"{path}/{name}") for name in ("events.db", LINK))
    return is_url(path) or (path != "" and is_there)


def shown(path: str) -> str:
    """Return a path as people may see it: of a URL, without the password."""
    if not is_url(path):
        return path
    from eventq.store.address import parse

    return parse(path).shown


def resolve(path: str) -> str:
    """Return the absolute path of a thread, with `~/` and `..` resolved and symbolic links kept."""
    if path.startswith("~/") or path == "~":
        path = environment.home() + path[1:]
    if "\0" in path:
        raise InputError("the path of a thread holds a NUL character", "give another path")
    try:
        path.encode()
        full = os.path.abspath(path)
    except UnicodeEncodeError as error:
        raise InputError("the path of a thread is not UTF-8", "give another path") from error
    except FileNotFoundError as error:
        raise InputError("the current directory is gone", "give an absolute path") from error
    return full[1:] if full.startswith("//") else full


def resolve_folder(path: str) -> str:
    """Return the absolute path of a folder with threads in it; raise LogicError if it is none."""
    full = resolve(path)
    if not os.path.isdir(full):
        what = f"'{without_user(full)}' is no folder"
        raise LogicError(what, "give the folder that holds the threads")
    return full


def rotate(path: str) -> str:
    """Rename `name.ext` to `name-<YYYYMMDD-HHmmss>.ext`, and return the new path.

    Names sort in the order of the rotations: the time is now, or a second after the newest file's,
    when that is as late. The `-2` and `-3` of earlier versions sorted before the file they came
    after; any other sign in their place would be sorted differently by `ls` from one locale to the
    next, and a file of that name be unknown to those versions.

    The caller holds the folder's lock. The folder's time of change is how others see that the file
    is another one. It is moved on by hand, as two changes within one tick of the file system's
    clock would leave it the same.
    """
    folder = os.path.dirname(path)
    stem, extension = os.path.splitext(path)
    stamp = clock.file_stamp(clock.now())
    for name in reversed(rotated(path)):
        newest = _parts(name, stem, extension)[0]
        if newest < stamp:
            break
        if later := clock.file_stamp_after(newest):
            stamp = later
            break
    target, number = f"{stem}-{stamp}{extension}", 2
    while os.path.lexists(target):  # nothing of ours
        target, number = f"{stem}-{stamp}-{number}{extension}", number + 1
    before = os.stat(folder).st_mtime_ns
    os.rename(path, target)
    touch_folder(folder, before)
    return target


def rotate_log(path: str) -> None:
    """Rotate a log, and delete the oldest of its files beyond KEPT_BYTES and KEPT_FILES.

    The newest is kept, however large it is. The caller holds the folder's lock.
    """
    rotate(path)
    size = 0
    for number, name in enumerate(reversed(rotated(path))):
        try:
            size += os.lstat(name).st_size
            if number and (number >= KEPT_FILES or size > KEPT_BYTES):
                os.unlink(name)
        except OSError:
            pass  # deleted by hand, or no file


def rotated(path: str) -> list[str]:
    """Return the files that `path` was rotated to, by any version, oldest first."""
    folder = os.path.dirname(path)
    stem, extension = os.path.splitext(path)
    paths = [f"{folder}/{name}" for name in os.listdir(folder)]
    found = [(_parts(name, stem, extension), name) for name in paths]
    return [name for parts, name in sorted(found) if parts[0]]


def _parts(path: str, stem: str, extension: str) -> tuple[str, int]:
    """Return time and number in a rotated file's name, "" and 0 for a file of another kind."""
    if not path.startswith(f"{stem}-") or not path.endswith(extension):
        return "", 0
    parts = path[len(stem) + 1 : len(path) - len(extension)].split("-")
    lengths = [len(part) for part in parts[:2]]
    if (
        lengths != [8, 6]
        or len(parts) > 3
        or not all(part.isascii() and part.isdigit() for part in parts)
    ):
        return "", 0
    return f"{parts[0]}-{parts[1]}", int(parts[2]) if len(parts) > 2 else 1


def touch_folder(folder: str, before: int) -> None:
    """Set the folder's time of change unless it differs from `before`."""
    found = os.stat(folder)
    if found.st_mtime_ns <= before:
        os.utime(folder, ns=(found.st_atime_ns, before + 1))
