"""`events.jsonl`: an exact copy of the log for people, and a witness of what the log has lost.

After a commit, the process that holds the lock of the thread's directory appends all events after
the last one in the file. So the files are always a prefix of the log, in order, without gaps or
repeats, even after a crash and with many simultaneous pushes; the next push repairs what a crash
left. The cost of a push is constant: ids are consecutive, so the first and the last id in the file
determine its number of lines, and both are cached until another process writes.

The code never reads the file's times: under kernels with fine-grained time stamps, `stat` on a file
that is being written makes each later write change its inode, and a durable commit has to wait for
that. The end of the file shows whether another process has written; the change time of the
directory shows whether the file is still the one at the path.
"""

from __future__ import annotations

import os

from eventq.errors import NotAThreadError
from eventq.log.mirror_lines import (
    HEAD_BYTES,
    beginning,
    first_line,
    is_usual,
    last_id,
    last_line,
    last_of,
    line,
    lines_of,
    number_of,
)
from eventq.store.paths import ROTATE_LINES, Layout, rotate, rotated, touch_folder
from eventq.system import disk
from eventq.system.disk import write_all
from eventq.system.locks import FolderLock, alone_in, lock_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    from eventq.log.adoption import Staged
    from eventq.log.journal import Journal
    from eventq.records.event import Commit
    from eventq.store.protocol import Mirrored

    Change = Callable[[int, bytes], bytes]
    T = TypeVar("T")

_REBUILD = "run 'eventq mirror rebuild'"
STEP = 1_000  # events between two looks whether a file is long enough


def _changed(file: Iterable[bytes], change: Change) -> Iterator[tuple[bytes, bytes]]:
    """Yield each line of a file, and what becomes of it.

    One that is torn, or has another glued to it, may say anything of any event: it goes.
    """
    from eventq.log.adoption import number_in

    for text in file:
        number = number_of(text) if text.find(b'{"', 1) < 0 else number_in(text)
        yield text, change(number, text) if number else b""


class _OriginalError(Exception):
    """The files are those of the original `thread` command."""


class Mirror:
    """The mirror of one thread."""

    def __init__(self, db: Mirrored, layout: Layout, journal: Journal) -> None:
        """Prepare; the file is opened with the first event."""
        self._db = db
        self._layout = layout
        self._journal = journal
        self._rewritten = f"{layout.mirror}.rewritten"
        self._lock = FolderLock(layout.directory)
        self._fd = -1
        self._folder_time = -1
        self._end = 0
        self._first = 0  # id in the first line, 0 for an empty file
        self._last = 0  # id in the last line, here or in the newest rotated file

    def committed(self, commit: Commit) -> None:
        """Append the new events of the log after a commit.

        A file that cannot be written is a warning in the journal: the events are stored, and the
        next push heals the mirror. Raises NotAThreadError when the thread was deleted or replaced
        meanwhile.
        """
        try:
            self._alone(lambda: self._append(commit, self._db.alive()))
        except _OriginalError:
            self._try(lambda: self._adopt(wait=False))
        except OSError as error:
            self._give_up(error)
        except BaseException:
            self._forget()  # an interrupt may have come after a write, before that was noted
            raise

    def _alone(self, step: Callable[[], T]) -> T:
        """Run a step that writes, or looks at what others write: nobody else does meanwhile."""
        with self._db.exclusive:  # in this order, as reading takes it
            return self._lock.run(step)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Leave the file to the next push; raise NotAThreadError if the thread is gone."""
        with self._db.exclusive:
            self._forget()
        if not os.path.exists(self._layout.database):
            raise NotAThreadError(self._layout.directory) from error
        if disk.is_foreign(self._layout.mirror, self._layout.database):
            what = disk.foreign(self._layout.mirror, self._layout.database)
            disk.tell(f"Warning: the event is stored, and events.jsonl lacks it: {what}")
        self._journal.warn(
            f"mirror: events.jsonl could not be written ({error}); the next push tries again"
        )

    def _append(self, commit: Commit, time: int) -> None:
        """Write what the file lacks, under the lock; `time` is when the folder was changed.

        The descriptor is that of the file at the path while the folder has not changed, and
        nobody else has written while the file ends where we left it.
        """
        if (
            time != self._folder_time
            or self._fd < 0
            or os.lseek(self._fd, 0, os.SEEK_END) != self._end
        ):
            self._sync(time)
        if self._first and self._last - self._first >= ROTATE_LINES:
            self._rotate()
        last = commit[1]
        if self._last >= last:
            return
        # What an empty file would begin with may have been pruned since.
        if self._last and self._last == commit[0] - 1 and (known := lines_of(commit)):
            self._write(known)
            self._last = last
        else:
            self._catch_up()

    def _catch_up(self) -> None:
        """Write what the file lacks from the database."""
        last = self._db.events.last()
        for block in self._db.events.blocks(self._last, last):
            self._write(block)
        self._last = last

    def _write(self, block: bytes) -> None:
        try:
            if (done := os.write(self._fd, block)) != len(block):
                write_all(self._fd, block[done:])
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._end += len(block)
        if not self._first:
            self._first = number_of(block)

    def _sync(self, time: int) -> None:
        """Open the file again if it is not the one at the path, and find its end."""
        if time != self._folder_time or self._fd < 0:
            self._open()
            self._folder_time = self._db.alive()
            return
        text = self._learn()
        if not is_usual(text) and self._is_wrong(text):
            self._cut()

    def _open(self) -> None:
        self._forget()
        if os.path.exists(self._layout.adopt) or os.path.exists(self._layout.adopted):
            self._finish_adoption()
        if os.path.exists(self._layout.rebuilt):
            self._put_in_place()
        flags = os.O_RDWR | os.O_APPEND
        self._fd = self._layout.create(self._layout.mirror, flags)
        if not is_usual(os.pread(self._fd, HEAD_BYTES, 0)):
            self._leave_originals()
        text = self._learn()
        if self._is_wrong(text):
            self._leave_originals()
            self._cut()

    def _leave_originals(self) -> None:
        if self._is_originals():
            self._forget()
            raise _OriginalError

    def _is_wrong(self, text: bytes) -> bool:
        """Return whether a line differs from the log's, or the log lacks it.

        A power cut may undo mirrored commits. What is not there any more has been pruned.
        """
        number = number_of(text)
        event = self._db.events.get(number) if number else None
        return number > self._db.events.last() or (
            event is not None and line(event).encode() != text
        )

    def _cut(self) -> None:
        """Cut off the last lines, which are wrong; what the log does not say is kept aside.

        If all of the file are, the one before it is looked at, too.
        """
        from eventq.log.witness import cut

        for path in [self._layout.mirror, *reversed(rotated(self._layout.mirror))]:
            if cut(path, self._is_wrong, self._db, self._layout, self._journal):
                break
            if path != self._layout.mirror:
                os.unlink(path)
        self._learn()

    def _learn(self) -> bytes:
        """Find the end of the file, cut off a torn line; return the line of the last event."""
        self._end = os.lseek(self._fd, 0, os.SEEK_END)
        self._last, whole, _, text = last_line(self._fd, self._end)
        if whole < self._end:
            os.ftruncate(self._fd, whole)
            self._end = whole
        self._first = number_of(beginning(self._fd))
        if not self._last:
            self._first = 0
            self._last = max((last_id(path) for path in rotated(self._layout.mirror)), default=0)
        return text

    def _rotate(self) -> None:
        rotate(self._layout.mirror)
        last = self._last
        self._open()
        self._folder_time = self._db.alive()
        self._last = last

    def _is_originals(self) -> bool:
        """Return whether the mirror is still that of the original, by how its files begin.

        Once one of the files is ours, lines of the original in others are cut off or left alone: it
        may be in use as well, and rotate a file of ours.
        """
        paths = [self._layout.mirror, *rotated(self._layout.mirror)]
        authors = map(self._is_by_original, filter(number_of, map(first_line, paths)))
        return next(authors, False) and all(authors)

    def _is_by_original(self, text: bytes) -> bool:
        """Return whether the original wrote a line, not eventq."""
        number = number_of(text)
        if not is_usual(text):
            return number > 0
        event = self._db.events.get(number)
        if event is None or (ours := line(event).encode()) == text.rstrip(b"\n"):
            return False
        from eventq.log.adoption import agrees

        return agrees(text, ours)

    def _adopt(self, *, wait: bool) -> None:
        """Create the mirror of the original's thread anew, and move its files aside.

        While another process does that, nothing is done, or with `wait` it is waited for: it adds
        what was stored before it is done, and so all that this one has seen no mirror for.
        """
        from eventq.log.adoption import KEPT, Staged

        db = self._db
        db.alive()
        done = db.events.last()
        try:
            staged = Staged(self._layout, done, wait=wait)
        except BlockingIOError:
            return
        try:
            if not self._are_originals():  # somebody has just done it: not all of it again
                return
            staged.add(db.events.blocks(0, done))
            if not self._alone(lambda: self._take_over(staged, done)):
                return
        finally:
            try:
                staged.clear()
            finally:
                os.close(staged.lock)  # no method: an interrupt may come as one begins
        self._journal.info(f"mirror: written anew; the files of the original are kept in {KEPT}")

    def _take_over(self, staged: Staged, done: int) -> bool:
        """Put the new files in place, unless somebody has done so."""
        self._db.alive()
        if not self._is_originals():
            return False
        staged.add(self._db.events.blocks(done, self._db.events.last()))
        staged.commit()
        self._forget()
        return True

    def _finish_adoption(self) -> None:
        """Do what is left of an adoption that was killed."""
        from eventq.log.adoption import finish

        finish(self._layout)

    def extend(self) -> None:
        """Write what the files lack, and rotate them meanwhile.

        Raises OSError, what reading raises, and NotAThreadError.
        """
        self._alone(self._write_missing)

    def _write_missing(self) -> None:
        try:
            self._sync(self._db.alive())
            last = self._db.events.last()
            while self._last < last:
                if self._first and self._last - self._first >= ROTATE_LINES:
                    self._rotate()
                upto = min(last, self._last + STEP)
                for block in self._db.events.blocks(self._last, upto):
                    self._write(block)
                self._last = upto
        except BaseException:
            self._forget()
            raise

    def settle(self) -> None:
        """Write what the files lack, and adopt or replace what the original wrote.

        So nothing is pruned before it was written, which would leave a gap.
        """
        self._try(self._settle)

    def _settle(self) -> None:
        self._adopt_first()
        self._alone(self._write_missing)

    def rebuild(self) -> int:
        """Rewrite the mirror as one file, remove the rotated ones; return the number of lines.

        Pushes go on meanwhile: only the last events are written under the lock. Another rebuild is
        waited for. Lines that the log does not know are kept aside.
        """
        from eventq.log.witness import keep_aside, strangers

        self._db.alive()
        self._adopt_first()
        fresh = self._layout.mirror + ".new"
        fd = self._fresh(fresh)
        try:
            found = [*rotated(self._layout.mirror), self._layout.mirror]
            files = [path for path in found if os.path.isfile(path)]
            keep_aside(self._layout, strangers(files, self._db), self._journal)
            done = self._db.events.last()
            lines = _copy(fd, self._db.events.blocks(0, done))
            lines += self._alone(lambda: self._replace(fresh, fd, done))
        except BaseException:
            if os.path.exists(fresh):
                os.unlink(fresh)
            raise
        finally:
            os.close(fd)
        return lines

    def _replace(self, fresh: str, fd: int, done: int) -> int:
        """Write the last events to a rebuilt file, put it in place; return how many they are."""
        self._db.alive()
        lines = _copy(fd, self._db.events.blocks(done, self._db.events.last()))
        before = os.stat(self._layout.directory).st_mtime_ns
        os.replace(fresh, self._layout.rebuilt)
        self._put_in_place()
        touch_folder(self._layout.directory, before)
        self._forget()
        return lines

    def rewrite(self, change: Change) -> None:
        """Replace lines in all files that hold any, also in those that are kept of the original.

        `change` gets the id of an event and its line, and returns the line to keep, or nothing.
        Pushes wait meanwhile. What was replaced does not come back, not even after a power cut, nor
        from a push that has yet to write its line: what the files lack is written first.
        """
        self._adopt_first()
        fresh = self._layout.mirror + ".new"
        fd = self._fresh(fresh)  # a rebuild that began before puts its file in place first
        try:
            self._alone(lambda: self._rewrite_all(change))
        finally:
            os.unlink(fresh)
            os.close(fd)

    def _rewrite_all(self, change: Change) -> None:
        self._db.alive()
        before = os.stat(self._layout.directory).st_mtime_ns
        self._forget()
        if os.path.exists(self._layout.rebuilt):
            self._put_in_place()
        if os.path.exists(self._rewritten):  # left by a kill
            os.unlink(self._rewritten)
        for path in self._every_file():
            self._rewrite(path, change)
            disk.sync_folder(os.path.dirname(path))
        touch_folder(self._layout.directory, before)
        self._sync(self._db.alive())
        self._catch_up()

    def _rewrite(self, path: str, change: Change) -> None:
        """Replace lines in a file that has some; delete a rotated one that has no line to keep."""
        with open(path, "rb") as file:
            if all(line == text for text, line in _changed(file, change)):
                return
            file.seek(0)
            fresh = self._rewritten
            with open(fresh, "wb", opener=self._layout.create) as new:
                new.writelines(line for _, line in _changed(file, change))
                new.flush()
                os.fsync(new.fileno())
                size = new.tell()
        if size or path == self._layout.mirror:
            os.replace(fresh, path)
        else:
            os.unlink(fresh)
            os.unlink(path)

    def _every_file(self) -> list[str]:
        """Return the files with lines of events, those of an original mirror too."""
        from eventq.log.adoption import kept_files

        found = [*rotated(self._layout.mirror), self._layout.mirror, *kept_files(self._layout)]
        return [path for path in found if os.path.isfile(path) and not os.path.islink(path)]

    def _adopt_first(self) -> None:
        """Keep what the original wrote from being removed by a rebuild."""
        if self._are_originals():
            self._adopt(wait=True)

    def _are_originals(self) -> bool:
        """Return whether the files are the original's, after finishing an adoption under way."""
        return self._alone(self._finish_and_look)

    def _finish_and_look(self) -> bool:
        if os.path.exists(self._layout.adopt) or os.path.exists(self._layout.adopted):
            self._finish_adoption()
        return self._is_originals()

    def _fresh(self, path: str) -> int:
        """Open the file that a rebuild writes, empty and locked, reusing what a kill left."""
        while True:
            fd = self._layout.create(path, os.O_RDWR)
            try:
                lock_whole(fd, wait=True)
                if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
                    os.ftruncate(fd, 0)
                    return fd
            except FileNotFoundError:
                pass  # gone between the two looks
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the rebuild that we waited for has put it in place

    def _put_in_place(self) -> None:
        """Replace all files with a rebuilt one, also after a rebuild that was killed.

        While it has its name, the others are not worth anything: some may be gone already.
        """
        for path in rotated(self._layout.mirror):
            os.unlink(path)
        os.replace(self._layout.rebuilt, self._layout.mirror)

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each file that differs from the log."""
        found: list[str] = []
        for _ in range(5):  # anew when a file was rotated meanwhile
            before = self._db.alive()
            # A push that has committed and not yet written is not a fault.
            alone_in(self._layout.directory, lambda: None)
            found = list(self._faults_now())
            if self._db.alive() == before:
                break
        yield from found

    def _faults_now(self) -> Iterator[str]:
        seen = 0
        fix = _REBUILD
        try:
            if last_of(self._layout) > self._db.events.last():
                fix = "the next push takes back what the log lost"
        except OSError:
            pass  # as is said below
        is_left = self._is_originals()  # the first write replaces them
        files = sorted(
            (number_of(first_line(path)), path)
            for path in rotated(self._layout.mirror)
            if os.path.isfile(path)
        )
        if os.path.lexists(self._layout.mirror):
            files.append((0, self._layout.mirror))
        for _, path in files:
            if not os.path.isfile(path):
                yield f"'{path}' is not a file; move it away, then {_REBUILD}"
                return
            if is_left:
                continue
            try:
                fault, seen = self._compare(path, seen)
            except OSError as error:
                fault, seen = f"cannot be read ({error.strerror})", 0
            if fault:
                yield f"{os.path.basename(path)} {fault}" + ("" if ";" in fault else f"; {fix}")

    def _compare(self, path: str, seen: int) -> tuple[str, int]:
        """Compare one file with the log, line by line.

        Give the fault and the last id. Pruned events are only counted.
        """
        oldest = self._db.events.bounds().first or self._db.events.last() + 1
        stream: Iterator[bytes] | None = None
        with open(path, "rb") as file:
            for number, text in enumerate(file, 1):
                here = number_of(text)
                if not text.endswith(b"\n"):
                    return (
                        ("", seen)
                        if path == self._layout.mirror
                        else (f"ends in a torn line, {number}", seen)
                    )
                if not here:
                    return f"line {number} is not an event", 0
                if here <= seen:
                    return f"line {number} repeats event {here}", 0
                if here >= oldest:
                    if stream is None:
                        stream = self._expected(seen if seen and seen >= oldest - 1 else here - 1)
                    if fault := _difference(number, here, text, next(stream, None)):
                        return fault, 0  # what follows is not to be blamed for it
                elif seen and here != seen + 1:
                    return f"lacks event {seen + 1}, before line {number}", 0
                seen = here
        return "", seen

    def _expected(self, after: int) -> Iterator[bytes]:
        # A loop, as other processes may push while a long file is compared.
        while after < (upto := self._db.events.last()):
            for block in self._db.events.blocks(after, upto):
                yield from block.splitlines(keepends=True)
            after = upto

    def _forget(self) -> None:
        fd, self._fd = (
            self._fd,
            -1,
        )  # first: by the time of an interrupt the number may be another's
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close the file and the lock, once no other thread writes."""
        with self._db.exclusive:
            self._forget()
            self._lock.close()


def keep_from(number: int) -> Change:
    """Return a change for `Mirror.rewrite` that drops the events below an id."""
    return lambda here, text: text if here >= number else b""


def _difference(number: int, here: int, text: bytes, want: bytes | None) -> str:
    """Return how a line differs from the log's, "" if it does not."""
    if text == want:
        return ""
    if want is None:
        return f"line {number} holds event {here}, which does not exist"
    if (there := number_of(want)) < here:
        return f"lacks event {there}, before line {number}"
    from eventq.log.adoption import agrees

    if agrees(text, want):
        return ""
    from eventq.log.witness import says_erased

    if says_erased(text, want):  # a backup was put back: a rebuilt mirror would say it again
        return (
            f"line {number} says that event {here} was erased, and the log still has it;"
            f" 'eventq event erase {here}' erases it again, and 'eventq mirror rebuild' keeps it"
        )
    return f"line {number} differs from event {here}"


def _copy(fd: int, blocks: Iterator[bytes]) -> int:
    lines = 0
    for block in blocks:
        write_all(fd, block)
        lines += block.count(b"\n")
    return lines
