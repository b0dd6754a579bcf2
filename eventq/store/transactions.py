"""The transactions of a database, whatever its engine: nesting, effects, subscribers, interrupts.

An interrupt (Ctrl-C) may strike after any call. So what was begun carries a number, from which
`abandon` knows what is left to undo, and nothing is called between a change of the nesting and the
release of the lock.
"""

from __future__ import annotations

import os
from _thread import RLock

from eventq.errors import (
    BusyError,
    ClosedError,
    LogicError,
    LostError,
    MomentLostError,
    NotAThreadError,
    ReadOnlyError,
)
from eventq.records.event import Commit
from eventq.store.blocks import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from eventq.errors import EventqError
    from eventq.records.event import NewEvent
    from eventq.store.queue_rows import Outcome

    Part = tuple[int, int, str, Sequence[NewEvent]]  # first id, count, time, events
    T = TypeVar("T")

KEPT_CHARACTERS = 4 << 20  # of events that subscribers get with a commit: more are read again
_TRIES = 10  # to read a moment that is lost again and again
_PATIENCE = 0.01  # seconds that a read waits for what another OS thread does, but for `write`
# Set by `store.causing`, which is imported once a cause may be stated: most pushes do without.
find_causes: Callable[[str], Sequence[tuple[str, int]]] | None = None


def at_a_moment(read: Callable[[], T]) -> T:
    """Return what a function reads through `Transactions.read`, again if the moment is lost."""
    for _ in range(_TRIES):
        try:
            return read()
        except MomentLostError:  # a writer has come, whose locks now hold what is read
            pass
    return read()


class Write(Block):
    """One `with db.write()`: begins at once, joins an outer one, rolls back on any exception.

    One that `joins` is a part of the transaction under way without a savepoint of its own, which
    spares two statements. What fails in it spoils the transaction around it: there is nothing to go
    back to.
    """

    _number = 0  # of the transaction that this one began
    _is_joined = False

    def __init__(
        self,
        db: Transactions,
        *,
        relaxed: bool = False,
        joins: bool = False,
        at_once: bool = True,
        patience: float | None = None,
    ) -> None:
        """Prepare a transaction; nothing begins yet."""
        self._db = db
        self._relaxed = relaxed
        self._at_once = at_once
        self._patience = patience
        self._joins = joins

    def __enter__(self) -> Write:
        """Begin, or set a savepoint inside the transaction under way."""
        db = self._db
        if self._joins and db.join():
            self._is_joined = True
            return self
        db.begin(relaxed=self._relaxed, at_once=self._at_once, patience=self._patience)
        self._number = db.begun
        if self._guard is None:
            self.__class__ = _ByHand
        return self

    def leave(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, or undo what was done since the matching `__enter__`."""
        number = self._number
        try:
            if not number:
                if kind is not None:
                    self._db.spoil()
            elif kind is None:
                self._db.commit(number)
            else:
                self._db.rollback(number)
        except BaseException:
            self.undo()  # if an interrupt came before the database had left it
            raise
        self._guard = None

    def undo(self, *_: object) -> None:
        """Roll back, if that is left to do."""
        if self._number:
            self._db.abandon(self._number)
        elif self._is_joined:
            self._db.spoil()
        self._guard = None


class _ByHand(Write):
    """One that no `with` looks after, as in `contextlib.ExitStack`: its last reference ends it."""

    def __del__(self) -> None:
        """Roll back, if that is left to do."""
        self.undo()


class Read(Block):
    """One `with db.read()`: a snapshot, on a separate connection."""

    def __init__(self, db: Any) -> None:
        """Prepare; the moment begins with the block."""
        self._db = db
        self._own: Any = None

    def __enter__(self) -> Any:
        """Open the connection and begin the moment; return what reads at it."""
        self._own = own = self._db.reopened()
        try:
            if own.identity != self._db.identity:  # deleted meanwhile, and made anew by somebody
                raise NotAThreadError(self._db.place)
            own.snapshot()
        except BaseException:
            own.close()
            raise
        return own

    def leave(self, *_: object) -> None:
        """Close the connection."""
        self.undo()

    def undo(self, *_: object) -> None:
        """Close the connection, if that is left to do."""
        if self._own is not None:
            self._own.close()
        self._guard = None


class Transactions:
    """What a database does around its statements; an engine begins, ends and undoes them."""

    if TYPE_CHECKING:  # what an engine supplies

        def _begin(self, *, relaxed: bool, patience: float | None) -> None:
            """Begin a transaction. Raises ReadOnlyError, NotAThreadError, BusyError."""

        def _set_savepoint(self, depth: int) -> None:
            """Set a savepoint. Raises StoreError when the transaction can only be undone."""

        def _release(self, depth: int) -> None:
            """Release a savepoint; raise as `_set_savepoint` does."""

        def _commit(self) -> None:
            """Commit, or raise: also when an earlier step has failed."""

        def _note(self, commit: Commit | None) -> None:
            """Note the events of a transaction that has been committed; the lock is held."""

        def _tell(self, commit: Commit | None) -> None:
            """Wake who waits and tell subscribers what was noted, with no lock held."""

        def _undo_statements(self, depth: int) -> None:
            """Roll back to a savepoint, or all with 0; do nothing where that is undone already."""

        def _leave_behind(self) -> None:
            """Roll back what an interrupt may have begun."""

        def check_process(self) -> None:
            """Raise ClosedError in a forked process, before it waits for a lock."""

        def ready(self) -> object:
            """Refuse to go on in a transaction that can only be undone."""

    def __init__(self, place: str, *, write: bool, lock: RLock) -> None:
        """Begin with no subscriber; `place` is the path or the URL that errors name."""
        self.place = place
        self.writable = write
        # A file lock that is held while reading is taken inside this one.
        self.lock = self.exclusive = lock
        self.pid = os.getpid()
        # Called with the error for what the engine refuses.
        self.on_refusal: Callable[[EventqError], object] | None = None
        # Called with the name of a subscriber and its error.
        self.on_failure: Callable[[str, Exception], object] | None = None
        # Called with attempts that did not finish their events.
        self.on_outcomes: Callable[[Sequence[Outcome]], object] | None = None
        self._subscribers: list[tuple[str, Callable[[Commit], object]]] = []
        self._effects: list[Callable[[], None]] = []  # of the transaction under way
        self._parts: list[Part] = []  # the events that it has stored
        self._size = 0  # characters of these
        self._source = ""  # of the last of these
        # For each nested transaction, the numbers of effects and parts when it began, and its own.
        self._marks: list[tuple[int, int, int]] = []
        self.begun = 0  # the number of the last transaction that began
        self.depth = 0  # how many transactions are under way, each inside the one before
        self._spoiled = 0  # the level that can only be undone
        self.is_relaxed = False  # whether the transaction under way need not be on the disk
        self.is_alone = False  # another connection would not read the same
        self._reads_beside = True  # what another OS thread is inside of, on another connection

    @property
    def forked(self) -> bool:
        """Whether this process is not the one that opened it."""
        return self.pid != os.getpid()

    def gone(self) -> ClosedError:
        """Return the error for a use after `close`, or in a forked process."""
        if self.forked:
            return ClosedError(
                "the thread was opened before this process was forked",
                "open it again after the fork",
            )
        return ClosedError("the thread is closed", "open it again with eventq.open")

    def stated_causes(self) -> Sequence[tuple[str, int]]:
        """Return the events that cause what is written now: where each is, and its id."""
        return () if find_causes is None else find_causes(self.place)

    def check_writable(self) -> None:
        """Raise ReadOnlyError when it was opened to read."""
        if not self.writable:
            raise ReadOnlyError(f"'{self.place}' was opened to read", "open the thread for writing")

    # --- blocks -----------------------------------------------------------------------------------

    def write(
        self, *, relaxed: bool = False, at_once: bool = True, patience: float | None = None
    ) -> Write:
        """Return a context manager that makes everything inside it one change.

        Others wait from its beginning, or without `at_once` perhaps from its first statement: that
        spares a trip to a server. `patience` is how many seconds it waits for other writers
        (default: as the thread was opened, which is 30). Raises BusyError.

        The commit of a `relaxed` one need not be on the disk at once: a power cut may undo it, and
        a process that is killed may not. The outermost block decides; a strict one inside a
        relaxed one raises LogicError.
        """
        return Write(self, relaxed=relaxed, at_once=at_once, patience=patience)

    def joined(self) -> Write:
        """Return a context manager for statements that belong together; see `Write`."""
        return Write(self, joins=True)

    def read(self) -> Read:
        """Return a context manager for what is committed when its block begins.

        What is read through it is of that one moment, whatever is committed meanwhile; of a
        transaction under way it shows nothing.
        """
        return Read(self)

    def in_write(self) -> bool:
        """Return whether this OS thread is inside `write`."""
        return bool(self.depth) and is_owned(self.lock)

    def join(self) -> bool:
        """Return whether this OS thread is in a transaction, which goes on."""
        self.check_process()
        if not self.in_write():
            return False
        self.ready()
        return True

    def spoil(self) -> None:
        """Let the transaction under way end in nothing: a part of it that was joined has failed."""
        self._spoiled = max(self._spoiled, self.depth)

    def begin(
        self, *, relaxed: bool = False, at_once: bool = True, patience: float | None = None
    ) -> None:
        """Begin a transaction, or a savepoint inside one; see `write`."""
        self.check_process()
        depth = -1
        try:
            if not self.lock.acquire(timeout=-1 if patience is None else patience):
                raise BusyError(
                    f"another OS thread of this process writes to '{self.place}'", "try again later"
                )
            depth = len(self._marks)
            if not depth:
                self._begin(relaxed=relaxed, patience=patience)
                if at_once:
                    self._have_begun()
            elif self.is_relaxed and not relaxed:
                raise LogicError(
                    "a transaction that must be durable began inside a relaxed one",
                    "begin the outer one with write()",
                )
            else:
                self._set_savepoint(depth)
            self.begun += 1
            self._marks.append((len(self._effects), len(self._parts), self.begun))
            self.depth = depth + 1
        except BaseException:
            if depth >= 0:
                del self._marks[depth:]
                self.depth = depth
            if not depth:
                self._leave_behind()  # an interrupt may have come after it began
            self.let_go()
            raise

    def _have_begun(self) -> None:
        """Wait for the lock of the thread, if `_begin` leaves that to the first statement."""

    def commit(self, number: int) -> None:
        """End a transaction; the outermost one commits, then runs its effects."""
        self._undo_inside(number)
        depth = len(self._marks)
        effects: Sequence[Callable[[], None]] = ()
        commit = None
        try:
            if depth > 1:
                self._release(depth - 1)
            else:
                self._commit()
                effects, self._effects = self._effects, []
                parts, self._parts, self._size = self._parts, [], 0
                commit = commit_of(parts, self._source) if parts else None
                self._note(commit)
        except BaseException:  # an interrupt may have come before or after the commit
            self._undo()
            raise
        finally:
            self._leave()
        if depth == 1:
            self._tell(commit)
        for effect in effects:
            effect()

    def rollback(self, number: int) -> None:
        """Undo a transaction, and those inside it that were not left."""
        self._undo_inside(number)
        try:
            self._undo()
        finally:
            self._leave()

    def abandon(self, number: int) -> None:
        """Roll back a transaction whose block was interrupted, and those inside it."""
        if self.forked or not is_owned(self.lock):
            return
        while any(mark[2] == number for mark in self._marks):
            self.rollback(self._marks[-1][2])

    def _undo_inside(self, number: int) -> None:
        """Undo the transactions inside one: an interrupt kept them from being left."""
        while self._marks[-1][2] > number:
            self.rollback(self._marks[-1][2])

    def _undo(self) -> None:
        effects, parts, _ = self._marks[-1]
        del self._effects[effects:], self._parts[parts:]
        if not parts:
            self._size = 0
        if self._spoiled >= self.depth:
            self._spoiled = 0  # what failed is undone as well
        self._undo_statements(self.depth - 1)

    def _leave(self) -> None:
        del self._marks[-1]  # no call: an interrupt could strike after one
        self.depth -= 1
        self.lock.release()

    def let_go(self) -> None:
        """Release the lock, unless an interrupt came while it was waited for."""
        if is_owned(self.lock):
            self.lock.release()

    def _hold_moment(self) -> None:
        """Take what the connection has begun for a snapshot that ends when it is closed."""
        self._marks.append((0, 0, 0))
        self.depth = 1
        self.is_alone, self._reads_beside = True, False

    def _take(self) -> bool:
        """Take the lock; return False, without it, when another OS thread is inside `write`.

        An interrupt leaves it as it was. Nothing is called between this and the `try` that ends in
        a release: an interrupt strikes after a call.
        """
        try:
            if self.lock.acquire(blocking=False):
                return True
            if not self._reads_beside:
                return self.lock.acquire()
            return not self.depth and self.lock.acquire(timeout=_PATIENCE)
        except BaseException:
            self.let_go()
            raise

    # --- after a commit ---------------------------------------------------------------------------

    def on_commit(self, effect: Callable[[], None]) -> None:
        """Run `effect` after the current transaction commits, or now if there is none."""
        self.check_process()
        with self.lock:  # a depth that another thread made is not ours
            if self.depth:
                self._effects.append(effect)
                return
        effect()

    def subscribe(self, name: str, subscriber: Callable[[Commit], object]) -> None:
        """Call `subscriber` with each transaction that stores events, once it has committed.

        It is called with no lock held. What it raises is reported to `on_failure`, as the events
        are stored whatever becomes of it; only NotAThreadError and LostError reach the caller.
        """
        self._subscribers.append((name, subscriber))

    def call_subscribers(self, commit: Commit) -> None:
        """Call all subscribers with a commit."""
        for name, subscriber in self._subscribers:
            try:
                subscriber(commit)
            except (NotAThreadError, LostError):
                raise
            except Exception as error:
                if self.on_failure is None:
                    raise
                self.on_failure(name, error)

    def report(self, outcomes: Sequence[Outcome]) -> None:
        """Report attempts that did not finish their events, if anybody wants to know."""
        if self.on_outcomes is not None:
            self.on_outcomes(outcomes)

    def note_part(self, part: Part, source: str, *, goes_on: bool = False) -> None:
        """Note events that the transaction under way has stored, with contents while they are few.

        A part that `goes_on` with a batch is made one with the part before it.
        """
        first, count, at, rows = part
        self._source = source
        self._size += sum([len(content) for _, _, content, _, _ in rows])
        if self._size > KEPT_CHARACTERS:
            rows = ()
            if self._parts and self._parts[-1][3]:
                self._parts = [(*one[:3], ()) for one in self._parts]
        if goes_on and self._parts and sum(self._parts[-1][:2]) == first:
            begun, before, at, kept = self._parts.pop()
            first, count, rows = begun, before + count, [*kept, *rows]
        self._parts.append((first, count, at, rows))


def commit_of(parts: list[Part], source: str) -> Commit:
    """Return what a transaction that stored some events has to tell."""
    first, count = parts[-1][:2]
    return Commit(parts[0][0], first + count - 1, source, parts)


def is_owned(lock: RLock) -> bool:
    """Return whether this OS thread holds a lock."""
    return lock._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001 (no other way)
