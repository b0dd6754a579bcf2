"""The mirror as a witness: what only its lines still say is given back to the log, or kept aside.

A log may end before its mirror: an older events.db was put back, its WAL was taken away, or the
power was cut when commits did not wait for the disk. If the two agree up to there, the events are
stored again as the lines say them, with their ids and times, before another event takes an id.

If they do not agree, the ids of these lines belong to other events by now. The lines are moved to
the folder `lost`, from which a person has them pushed again.
"""

from __future__ import annotations

import os
from json import dumps, loads
from shlex import quote

from eventq.errors import InputError, LogicError, cited
from eventq.log.adoption import agrees, fields_of
from eventq.log.mirror_lines import last_place, line
from eventq.records.event import NewEvent
from eventq.store.paths import rotated
from eventq.store.question_rules import erased_content, key_in
from eventq.system import clock, disk
from eventq.system.counts import count
from eventq.system.locks import alone_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from eventq.log.journal import Journal
    from eventq.records.event import Event
    from eventq.store.paths import Layout
    from eventq.store.protocol import Database, Mirrored

    Row = tuple[int, str, NewEvent]  # id, time, and what was pushed

_NOTES = "mirror.restored"  # the setting that says what was given back, and when
_NOTED_SECONDS = 7 * 86_400  # for which `check` says it
_BATCH = 500
_MOST = 1 << 62  # ids from here on would leave none for others
_BLOCK = 1 << 20
_LACK = "keys that pushes may repeat, and what was stored beside events, are not in its lines"


def give_back(db: Database, layout: Layout, journal: Journal) -> bool:
    """Store the events that the mirror has after the end of the log; return whether there are any.

    Nothing is stored if the two do not agree up to there. Raises OSError for a file that cannot be
    read.
    """
    with db.write():
        return alone_in(layout.directory, lambda: _give_back(db, layout, journal))


def _give_back(db: Database, layout: Layout, journal: Journal) -> bool:
    last = db.events.last()
    files = _files_after(layout, last)
    if not files or not _agree(db.events.get(last), files, last):
        return False
    found = _Found(last)
    for rows in _batches(found.rows(files)):
        db.memory.restore(rows)
    if not found.count:
        return False
    _note(db, found.said())
    db.on_commit(lambda: journal.warn(f"log: {found.said()}; {_LACK}"))
    return True


class _Found:
    """The lines after the end of the log, as they are read."""

    def __init__(self, last: int) -> None:
        self._before = last
        self.count = 0
        self._first = self._last = self._bad = 0

    def rows(self, files: Sequence[str]) -> Iterator[Row]:
        """Yield the whole lines, in order of their ids."""
        at = 0  # the id in the last line that was read
        for path in files:
            with open(path, "rb") as file:
                for text in file:
                    row = _row(text)
                    # Ids have no gaps but for what was pruned before the first one.
                    if row is None and path == files[-1] and not text.endswith(b"\n"):
                        return  # it was being written: its event was never stored
                    if row is None or (at and not at < row[0] <= at + self._bad + 1):
                        self._bad += 1
                        continue
                    at = row[0]
                    if at > (self._last or self._before):
                        self._first, self._last = self._first or at, at
                        self.count += 1
                        yield row

    def said(self) -> str:
        """Return what was given back, in words."""
        one = self.count == 1
        which = (
            f"event {self._first}"
            if one
            else f"{count(self.count, 'event')}, {self._first} to {self._last},"
        )
        bad = f"; {count(self._bad, 'line')} of it cannot be read" if self._bad else ""
        return (
            f"{which} which the log had lost {_were(self.count)} taken back from events.jsonl{bad}"
        )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _row(text: bytes) -> Row | None:
    """Return what a line says of an event, None if it says nothing that can be stored."""
    found = fields_of(text)
    names = ("created_at", "source", "type", "content", "subtype")
    texts: list[Any] = [found.get(name) for name in names]
    if texts[-1] is None:
        texts[-1] = ""  # not to be told from a text by what follows
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return None
    if found["id"] >= _MOST or not all(texts[:3]):
        return None
    at, source, kind, content, _ = texts
    subtype = found.get("subtype")
    new = NewEvent(source, kind, content, subtype, key_in(kind, content, subtype))
    return found["id"], at, new


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in batches of bounded size."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[2].content)
        if len(batch) == _BATCH or size > _BLOCK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _files_after(layout: Layout, last: int) -> list[str]:
    """Return the files of the mirror from the one on that has the line of an id, in order."""
    files: list[str] = []
    for path in (layout.mirror, *reversed(rotated(layout.mirror))):
        if os.path.isfile(path) and (first := _first_in(path)):
            files.insert(0, path)
            if first <= last:
                break
    return files


def _first_in(path: str) -> int:
    """Return the id in the first line of a file that can be read, 0 for none."""
    with open(path, "rb") as file:
        return next(filter(None, (fields_of(text).get("id", 0) for text in file)), 0)


def _agree(event: Event | None, files: Sequence[str], last: int) -> bool:
    """Return whether the files say of the last event of the log what the log does."""
    if event is None:  # none was stored, or it was pruned
        return True
    for path in files:
        with open(path, "rb") as file:
            for text in file:
                found = fields_of(text)
                if found and found["id"] >= last:
                    return found["id"] > last or says(text, event)
    return False


def says(text: bytes, event: Event) -> bool:
    """Return whether a line says of an event what the log does, or did before it was erased."""
    ours = line(event).encode()
    if text.rstrip(b"\n") == ours or agrees(text, ours):
        return True
    found = fields_of(text)
    if not found or not agrees(dumps({**found, "content": event.content}).encode(), ours):
        return False
    theirs = str(found["content"])
    return theirs == _erased(event, event.content) or event.content == _erased(event, theirs)


def _erased(event: Event, content: str) -> str:
    return erased_content(event.type, content, event.subtype)


def says_erased(text: bytes, ours: bytes) -> bool:
    """Return whether a line says that an event was erased, of which ours has all."""
    found, wanted = fields_of(text), fields_of(ours)
    if not found or not wanted:
        return False
    content = wanted["content"]
    is_erased = found["content"] == erased_content(wanted["type"], content, wanted["subtype"])
    return is_erased and agrees(dumps({**found, "content": content}).encode(), ours)


# --- what is told of it ---------------------------------------------------------------------------


def _note(db: Database, what: str) -> None:
    """Note what was given back, for `check`."""
    notes = [*_notes(db), [clock.stamp(clock.now()), what]]
    db.memory.settings.put(_NOTES, dumps(notes[-20:]))


def _notes(db: Database) -> list[list[str]]:
    kept = db.memory.settings.get(_NOTES)
    since = clock.stamp(clock.now() - _NOTED_SECONDS)
    return [note for note in loads(kept or "[]") if note[0] > since]


def warnings(db: Database, layout: Layout) -> Iterator[str]:
    """Yield what was given back to the log and what was kept aside, within a week."""
    if db.has_memory():
        for at, what in _notes(db):
            yield f"{what}, at {at}; {_LACK}"
    for path in lost_files(layout):
        if clock.now() - os.stat(path).st_mtime < _NOTED_SECONDS:
            with open(path, "rb") as file:
                count = sum(1 for _ in file)
            yield _moved(layout, path, count)


def _moved(layout: Layout, path: str, lines: int) -> str:
    """Return what became of lines that did not agree, and the command that pushes them again."""
    command = f"eventq mirror recover --thread {quote(layout.directory)} {quote(path)}"
    them = "it" if lines == 1 else "them"
    return (
        f"{count(lines, 'line')} of events.jsonl did not agree with the log and {_were(lines)}"
        f" moved to lost/{os.path.basename(path)}; {cited(command)} pushes {them} again"
    )


# --- lines that do not agree ----------------------------------------------------------------------


def lost_files(layout: Layout) -> list[str]:
    """Return the files with lines that did not agree with the log."""
    folder = layout.lost
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [f"{folder}/{name}" for name in names if name.endswith(".jsonl")]
    return [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]


def keep_aside(layout: Layout, blocks: Iterable[bytes], journal: Journal) -> None:
    """Add lines of the mirror to a file in the folder `lost`, so that they survive a power cut."""
    blocks = iter(blocks)
    if (block := next(blocks, None)) is None:
        return
    folder = layout.lost
    if not os.path.isdir(folder):
        layout.make_folder(folder)
        disk.sync_folder(layout.directory)
    path = f"{folder}/events-{clock.file_stamp(clock.now())}.jsonl"
    fd = layout.create(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    count, begun = 0, os.lseek(fd, 0, os.SEEK_END)
    try:
        while block is not None:
            disk.write_all(fd, block)
            count += block.count(b"\n")
            block = next(blocks, None)
        os.fsync(fd)
    except BaseException:  # a full disk: what is torn would be glued to what comes next
        os.ftruncate(fd, begun)
        if not begun:
            os.unlink(path)
        raise
    finally:
        os.close(fd)
    disk.sync_folder(folder)
    journal.warn(f"mirror: {_moved(layout, path, count)}")


def cut(
    path: str, is_wrong: Callable[[bytes], bool], db: Mirrored, layout: Layout, journal: Journal
) -> int:
    """Cut off the last lines of a file that are wrong; return how many bytes are left.

    What the log does not say is kept aside first.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        end = os.lseek(fd, 0, os.SEEK_END)
        place, text = last_place(fd, end)
        while text and is_wrong(text):
            end = place
            place, text = last_place(fd, end)
        with open(fd, "rb", closefd=False) as file:
            file.seek(end)
            keep_aside(layout, _strangers_in(file, db), journal)
        os.ftruncate(fd, end)
        return end
    finally:
        os.close(fd)


def strangers(files: Iterable[str], db: Mirrored) -> Iterator[bytes]:
    """Yield the lines of some files that a rewrite of the mirror from the log would lose."""
    for path in files:
        with open(path, "rb") as file:
            yield from _strangers_in(file, db)


def _strangers_in(file: Iterable[bytes], db: Mirrored) -> Iterator[bytes]:
    last = db.events.last()
    for text in file:
        number = fields_of(text).get("id", 0)
        event = db.events.get(number) if number else None
        is_known = 0 < number <= last if event is None else says(text, event)  # or it was pruned
        if not is_known and (number or text.endswith(b"\n")):  # what is torn says nothing
            yield text.rstrip(b"\n") + b"\n"


# --- lines that a person has pushed again ---------------------------------------------------------


def events_of(path: str) -> Iterator[dict[str, Any]]:
    """Yield the events that the lines of a file say, each with a key, so that it is pushed once.

    Raises InputError for a line that is none.
    """
    from blake3 import blake3

    with disk.open_regular(path) as file:
        for number, text in enumerate(file, 1):
            row = _row(text)
            if row is None:
                raise InputError(
                    f"line {number} of '{path}' is not an event, as events.jsonl has them",
                    "remove the line, then do this again",
                )
            new = row[2]._asdict()
            if row[2].key is not None:  # an answer, to what may be another question by now
                new["subtype"] = "recovered"
            yield {**new, "key": f"recovered:{blake3(text.rstrip()).hexdigest()[:32]}"}


def set_aside(layout: Layout) -> bool:
    """Move what is left of a database to the folder `lost`; return whether others may read that.

    Raises LogicError if there is nothing that a new one could be made of.
    """
    if not any(_first_in(p) for p in (layout.mirror, *rotated(layout.mirror)) if os.path.isfile(p)):
        raise LogicError(
            f"'{layout.mirror}' has no event: the log cannot be made of it",
            "restore a backup, or begin anew with 'eventq init' in another directory",
        )
    folder = layout.lost
    stamp = clock.file_stamp(clock.now())
    disk.make_folder(folder, layout.directory, 0o700)
    while os.path.lexists(f"{folder}/events-{stamp}.db"):  # of another recovery, a moment ago
        stamp = clock.file_stamp_after(stamp)
    # The database first: a WAL beside none is left alone, and one of another database is not.
    for suffix in ("", "-wal", "-shm", "-journal"):
        if os.path.lexists(layout.database + suffix):
            os.rename(layout.database + suffix, f"{folder}/events-{stamp}.db{suffix}")
    disk.sync_folder(folder)
    disk.sync_folder(layout.directory)
    return bool(os.stat(layout.directory).st_mode & 0o077)
