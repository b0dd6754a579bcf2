"""Adopt the mirror of a thread that the original `thread` command created, and read its lines.

That command writes what it was given, then what it has added, so the order of the keys depends on
the call; programs that use its library choose it themselves:

    {"source":…,"type":…,"content":…,"id":…,"created_at":…,"subtype":null}
    {"source":…,"type":…,"content":…,"subtype":…,"id":…,"created_at":…}

Its versions before 2 spell a line as eventq does. In all of them `created_at` is the time of the
line, which is often later than that of the row. So lines are known by what they say.

The first write creates the whole mirror anew, in files of the length at which the mirror rotates,
and keeps the old files in the folder `original-mirror`, which eventq never reads.

The new files are written next to the log while others push. Then, under the lock of the thread's
directory, the events pushed meanwhile are added, and the folder of new files is renamed. After that
all steps are renames, which the next writer can repeat:

    events.jsonl.adopting   new files are being written; useless once their writer is dead
    events.jsonl.adopt      they are complete; old files are being moved into its folder `old`
    events.jsonl.adopted    no old file is left; new ones are being moved into place

Removing old files step by step while appending new lines lost: a kill between any two steps left a
mirror that looked damaged.
"""

from __future__ import annotations

import os
from json import loads

from eventq.store.paths import ROTATE_LINES, rotated, touch_folder
from eventq.system import clock, disk
from eventq.system.locks import lock_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from eventq.store.paths import Layout

KEPT = "original-mirror"  # the folder of the old files; -2, -3 … when taken
_OLD = "old"
_KEYS = {"id", "created_at", "source", "type", "content"}


def number_in(text: bytes) -> int:
    """Return the id in a line that says what an event is, in any order; 0 for another text."""
    fields = fields_of(text)
    return fields["id"] if fields else 0


def agrees(text: bytes, ours: bytes) -> bool:
    """Return whether a line says what eventq's line of an event does, at the same time or later."""
    found, wanted = fields_of(text), fields_of(ours)
    if not found or not wanted or str(found.pop("created_at")) < wanted.pop("created_at"):
        return False
    return all(_stored(found.get(key)) == value for key, value in wanted.items())


def fields_of(text: bytes) -> dict[str, Any]:
    """Return what a line says of an event, nothing if it is not one's."""
    try:
        fields = loads(text)
    except (ValueError, RecursionError):
        return {}
    is_event = isinstance(fields, dict) and fields.keys() >= _KEYS and type(fields["id"]) is int
    return fields if is_event and 0 < fields["id"] < 1 << 63 else {}


def _stored(value: Any) -> Any:
    """Return a value as it is read after the original has stored it: no half surrogate pairs."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="surrogatepass").decode(errors="replace")


def kept_files(layout: Layout) -> list[str]:
    """Return the paths of what is kept of originals."""
    folders = [name for name in os.listdir(layout.directory) if name.startswith(KEPT)]
    return [
        entry.path for name in sorted(folders) for entry in os.scandir(f"{layout.directory}/{name}")
    ]


class Staged:
    """The new files of one adoption, until they are in place."""

    def __init__(self, layout: Layout, last: int, *, wait: bool) -> None:
        """Make their folder and lock it; `last` is about the id of the last event.

        Raise BlockingIOError when somebody else is at it; with `wait`, wait for that to end.
        """
        self._layout = layout
        self._folder = layout.adopting
        self._name = os.path.basename(layout.mirror)
        # The names are a second apart. Start early enough that the last is not in the future.
        self._time = clock.now() - last // ROTATE_LINES
        self._fd = -1
        self._lines = 0
        self.lock = _lock(layout, wait=wait)
        try:
            self._empty()
        except BaseException:
            os.close(self.lock)
            raise

    def add(self, blocks: Iterable[bytes]) -> None:
        """Append whole lines."""
        for block in blocks:
            lines = block.splitlines(keepends=True)
            while lines:
                if self._fd < 0 or self._lines >= ROTATE_LINES:
                    self._begin()
                part = lines[: ROTATE_LINES - self._lines]
                del lines[: len(part)]
                disk.write_all(self._fd, b"".join(part))
                self._lines += len(part)

    def _begin(self) -> None:
        """Begin a file, once the one before it is full and has its name."""
        path = f"{self._folder}/{self._name}"
        if self._fd >= 0:
            self._end()
            stem, extension = os.path.splitext(path)
            os.rename(path, f"{stem}-{clock.file_stamp(self._time)}{extension}")
            self._time += 1
        self._fd, self._lines = self._layout.create(path, os.O_WRONLY | os.O_EXCL), 0

    def _end(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def commit(self) -> None:
        """Move the new files to their places; the caller holds the lock of the thread's folder."""
        self._end()
        os.rename(self._folder, self._layout.adopt)
        finish(self._layout)

    def clear(self) -> None:
        """Remove what was not committed; then the lock is to be closed."""
        self._end()
        if _is_at(self.lock, self._folder):
            self._empty()
            os.rmdir(self._folder)

    def _empty(self) -> None:
        for name in os.listdir(self._folder):
            os.unlink(f"{self._folder}/{name}")


def _lock(layout: Layout, *, wait: bool) -> int:
    """Return a locked descriptor of the folder of new files, reusing what a kill left."""
    while True:
        layout.make_folder(layout.adopting)
        try:
            fd = os.open(layout.adopting, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # it has just become complete
        try:
            lock_whole(fd, wait=wait)
            if _is_at(fd, layout.adopting):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    """Return whether a descriptor is that of what is at a path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def finish(layout: Layout) -> None:
    """Do what is left of a committed adoption; the caller holds the lock of the thread's folder."""
    before = os.stat(layout.directory).st_mtime_ns
    if os.path.isdir(layout.adopt):
        mode = os.stat(layout.directory).st_mode & 0o777
        disk.make_folder(f"{layout.adopt}/{_OLD}", layout.database, mode)
        for path in [*rotated(layout.mirror), layout.mirror]:
            _set_aside(path, f"{layout.adopt}/{_OLD}")
        os.rename(layout.adopt, layout.adopted)
    if os.path.isdir(layout.adopted):
        old = f"{layout.adopted}/{_OLD}"
        # The oldest first, so that the files in place never have a gap.
        for name in sorted(os.listdir(layout.adopted)):
            if name != _OLD:
                _set_aside(f"{layout.directory}/{name}", old)  # the original has written again
                os.rename(f"{layout.adopted}/{name}", f"{layout.directory}/{name}")
        if os.path.isdir(old):
            os.rename(old, _free(f"{layout.directory}/{KEPT}", "-"))
        os.rmdir(layout.adopted)
    touch_folder(layout.directory, before)


def _set_aside(path: str, folder: str) -> None:
    """Move a file that is there into a folder, over nothing."""
    if os.path.lexists(path):
        os.rename(path, _free(f"{folder}/{os.path.basename(path)}", "."))


def _free(path: str, sign: str) -> str:
    """Return a free path: this one, or this one followed by 2, 3 and so on."""
    target, number = path, 2
    while os.path.lexists(target):
        target, number = f"{path}{sign}{number}", number + 1
    return target
