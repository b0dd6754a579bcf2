"""Erase what was stored so that its bytes are gone from every file of the thread.

An erasure is noted first, as unfinished, in the transaction that replaces the bytes. Then they are
removed from the logs of handlers and from the mirror, and the database is written anew without
them; only then is the erasure finished. One that was interrupted is finished by the same call.
Copies, packs, backups and the memory of running processes are not reached.
"""

from __future__ import annotations

from itertools import chain

from eventq.erasure.traces import AT_ONCE, Traces, logs
from eventq.errors import (
    BusyError,
    DiskError,
    LogicError,
    StoreError,
    UnknownBlobError,
    UnknownTurnError,
    refused,
)
from eventq.log.mirror import keep_from
from eventq.log.mirror_lines import line
from eventq.memory.blobs import digest_of
from eventq.record import Record
from eventq.records.checks import check_name, check_natural
from eventq.store.paths import rotated
from eventq.store.question_rules import erased_content
from eventq.store.rules import erased, thing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from eventq.erasure.finding import Found, Left, Place
    from eventq.erasure.targets import Targets
    from eventq.log.journal import Journal
    from eventq.log.mirror import Change, Mirror
    from eventq.memory.blobs import Name
    from eventq.memory.turns import Turns
    from eventq.output.artifacts import Artifacts
    from eventq.records.info import Erasure
    from eventq.store.engine import Engine
    from eventq.store.paths import Layout

    # An erasure, step by step: each yields the texts that logs are to lose before the next one.
    # First it only says them, as nobody knows them after a crash; then they are erased, and said
    # again for what was printed meanwhile. So many erasures can share a look at the logs.
    Steps = Generator[Iterable[str], None, "_Done | None"]

_PAGE = 500
_LEFT = "no erasure reaches it - change or delete it yourself"
_AGAIN = "it was stored meanwhile - do this again"
_FOLLOWS = "it has what stands in events - erase these"


class _Done(Record):
    """An erasure whose mirror and database are still to be written anew."""

    kind: str
    name: str
    events: Sequence[int] = ()  # whose lines have changed


class Erasures:
    """What was erased of one thread: `event`, `turn`, `artifact`, `blob`, and iteration."""

    def __init__(
        self,
        database: Engine,
        turns: Callable[[], Turns],
        layout: Layout,
        journal: Journal,
        mirror: Callable[[], Mirror | None],
    ) -> None:
        """Use the files of a thread; turns and mirror are made when they are needed."""
        self._database = database
        self._turns = turns
        self._layout = layout
        self._journal = journal
        self._mirror = mirror
        self._engine = database.erasures

    def __iter__(self) -> Iterator[Erasure]:
        """Yield what was erased, in the order in which that began."""
        after = 0
        while page := self._engine.page(after, _PAGE):
            yield from [erasure for _, erasure in page]
            after = page[-1][0]

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each erasure that was interrupted."""
        for past in self:
            if past.kind == "prune":
                what = f"the events below {past.name} are deleted, but their bytes are not gone"
                yield f"{what}: prune again"
            elif not past.finished:
                yield f"{thing(past)} is not erased yet: erase it again"

    def get(self, kind: str, name: str | int) -> Erasure | None:
        """Return the erasure of a thing by its kind and name, or None."""
        return self._engine.get(kind, str(name))

    def find(self, *texts: str) -> Found:
        """Return the places where any of some texts stands, found while they are iterated over.

        It stands there as it is or escaped as JSON, `repr` or the journal. Copies, packs, backups,
        and what programs have read are not looked at. Raises InputError.
        """
        from eventq.erasure.finding import Found

        return Found(self._database, self._layout, texts)

    def said(self, kind: str, name: str | int, artifacts: Artifacts | None = None) -> list[str]:
        """Return the texts that an event, a turn, a blob or an artifact says, before it is erased.

        By these `find` finds what says the same: of a run the task, the steps and their attempts.
        There are none of what cannot be erased; to erase it says why.
        """
        from eventq.erasure.finding import MOST
        from eventq.erasure.redact import sayings
        from eventq.erasure.targets import Targets

        try:
            if kind == "event":
                event = self._database.events.get(int(name))
                return [] if event is None else sayings(event.content)
            if artifacts is not None:
                is_short = artifacts.get(name).size <= 4 * MOST
                return [artifacts.open(name).read().decode()] if is_short else []
            targets = Targets(self._turns(), self._database)
            if kind == "turn":
                targets.add_turn(int(name))
            else:
                targets.add_blob(digest_of(str(name)))
        except (LogicError, UnicodeDecodeError):
            return []
        return targets.said

    def text(self, text: str, *, reason: str | None = None) -> list[Left]:
        """Erase a text wherever `find` finds it; return the places where it still stands, and why.

        Each is erased in the form that its kind has, `everywhere`: an event, a turn, an artifact, a
        blob as a whole; of dead letters what was said, of logs each occurrence. What is leased,
        open or pinned is left, and so are names, settings, and files that are not the thread's. To
        call it again goes on with those, and with what was interrupted. Raises InputError,
        DiskError, and BusyError as `event` does.
        """
        from eventq.erasure.finding import Left, Place, spelled

        found = self.find(text)
        self._past("text", "", reason)
        left = [Place(one.kind, one.name) for one in self if not one.finished]
        why: dict[tuple[str, str], str] = {}
        done = self._together(chain(left, found), reason, why)
        _erase_in_logs(Traces(self._layout), (one.decode() for one in spelled(text)))
        self._end(done)
        self._clean()  # prunes that were interrupted
        return [Left(one, why.get((one.kind, one.name)) or self._left(one)) for one in found]

    def _left(self, place: Place) -> str:
        """Return why a text stands at a place that no erasure has refused."""
        from eventq.log.adoption import kept_files

        if place.kind != "path":
            return _LEFT if place.kind == "row" else _AGAIN
        path = f"{self._layout.directory}/{place.name}"
        layout = self._layout
        if path in (layout.mirror, *rotated(layout.mirror), *kept_files(layout)):
            return _FOLLOWS
        return _AGAIN if path in logs(layout) else _LEFT

    def _together(
        self, places: Iterable[Place], reason: str | None, why: dict[tuple[str, str], str]
    ) -> list[_Done]:
        """Erase what stands at places, and note why something cannot be erased now.

        The logs are read once for as many of them as have texts that are sought at once.
        """
        done: list[_Done] = []

        def next_of(place: Place, steps: Steps) -> list[str] | None:
            try:
                return [*next(steps)]
            except StopIteration as end:
                done.extend(filter(None, [end.value]))
            except (BusyError, DiskError):
                raise
            except LogicError as error:  # or it was erased with another place
                why[place.kind, place.name] = f"{error.what} - {error.fix}"
            return None

        def finish(some: list[tuple[Place, Steps]], texts: list[str]) -> None:
            traces = Traces(self._layout)
            _erase_in_logs(traces, texts)
            again: list[str] = []
            try:
                for place, steps in some:
                    again += next_of(place, steps) or []
            finally:
                _erase_in_logs(traces, again)
            for place, steps in some:
                next_of(place, steps)

        some: list[tuple[Place, Steps]] = []
        texts: list[str] = []
        for place in places:
            steps = self._at(place, reason)
            if (found := next_of(place, steps)) is not None:
                some.append((place, steps))
                texts += found
            if len(some) == _PAGE or sum(map(len, texts)) >= AT_ONCE:
                finish(some, texts)
                some, texts = [], []
        finish(some, texts)
        return done

    def _at(self, place: Place, reason: str | None) -> Steps:
        """Erase what stands at a place; raise LogicError for what cannot be erased now."""
        from eventq.output.artifacts import Artifacts

        kind, name, ref = place
        if kind == "event":
            return (yield from self._event(int(name), reason))
        if kind == "turn":
            return (yield from self._turn(int(name), reason, everywhere=True))
        if kind.endswith("artifact"):
            scope, _, number = name.rpartition("/")
            artifacts = Artifacts(self._database, int(scope))
            return (yield from self._artifact(number, artifacts, reason))
        if kind in ("dead letter", "attempt at event"):
            self._engine.said(int(name))
        elif kind == "open turn":
            what, fix = (
                f"turn {name} is still being written",
                "seal or discard it, then do this again",
            )
            raise LogicError(what, fix)
        elif kind == "blob" or ref is not None:
            return (yield from self._blob(digest_of(ref or name), reason, everywhere=True))
        return None

    def _do(self, steps: Steps) -> Erasure:
        """Take all steps of one erasure, and return it."""
        traces = Traces(self._layout)
        while True:
            try:
                _erase_in_logs(traces, next(steps))
            except StopIteration as end:
                self._end([end.value])
                made = self._engine.get(end.value.kind, end.value.name)
                assert made is not None
                return made

    def _end(self, done: list[_Done]) -> None:
        """Write the mirror and the database anew, and note that erasures are finished."""
        self._renew({number for one in done for number in one.events})
        self._database.scrub()  # also what was interrupted before it was noted
        with self._database.write():
            for one in done:
                self._engine.finish(one.kind, one.name)

    def event(self, number: int, *, reason: str | None = None) -> Erasure:
        """Erase the content of an event, and return the erasure.

        The event stays, with `[erased]` as its content, an answer with the question that it had;
        consumers that have not had it yet get it so. What its handlers printed of it is removed
        from their logs, and from dead letters.
        Raises LogicError for an event that is not stored, ErasedError for one that was erased
        before, ConflictError while a worker has leased it, and BusyError while a reader still sees
        it: call it again then.
        """
        return self._do(self._event(number, reason))

    def _event(self, number: int, reason: str | None) -> Steps:
        check_natural(number, "event")
        self._unfinished("event", str(number), reason)
        event = self._database.events.get(number)
        if event is None:
            raise LogicError(f"there is no event {number}", "list them with 'eventq peek'")
        self._settle()  # lines of the original are known by the rows that they agree with
        content = event.content
        is_done = content == erased_content(event.type, content, event.subtype)
        texts = [] if is_done else [content]
        yield texts
        changed = self._engine.event(number, reason)
        yield texts
        return _Done("event", str(number), changed)

    def _renew(self, wanted: set[int]) -> None:
        """Write the lines of some events anew in the mirror."""

        def change(number: int, text: bytes) -> bytes:
            # Read under the mirror's lock: another erasure may have changed it since.
            event = self._database.events.get(number) if number in wanted else None
            if event is None:
                return text
            return line(event).encode() + b"\n"

        self._rewrite(change)

    def _rewrite(self, change: Change) -> None:
        """Replace lines in the files of the mirror. Raises DiskError."""
        mirror = self._mirror()
        try:
            if mirror is not None:
                mirror.rewrite(change)
        except OSError as error:
            raise _refused(error) from error

    def _settle(self) -> None:
        if (mirror := self._mirror()) is not None:
            mirror.settle()

    def artifact(
        self,
        artifact_id: str | int,
        *,
        artifacts: Artifacts | None = None,
        reason: str | None = None,
    ) -> Erasure:
        """Erase an artifact, and return the erasure; its number is never reused.

        `artifacts` are those of the scope that it is numbered in (default: the thread's).
        Raises UnknownArtifactError, ErasedError for one that was erased before, ConflictError while
        it is being written, and BusyError as `event` does.
        """
        if artifacts is None:
            from eventq.output.artifacts import Artifacts

            artifacts = Artifacts(self._database)
        return self._do(self._artifact(artifact_id, artifacts, reason))

    def _artifact(self, artifact_id: str | int, artifacts: Artifacts, reason: str | None) -> Steps:
        name = f"{artifacts.scope}/{artifact_id}"
        yield ()  # it is as long as it likes: logs are not looked at
        if self._unfinished("artifact", name, reason) is None:
            with self._database.write():
                artifacts.remove(artifact_id)
                self._engine.begin("artifact", name, reason)
        return _Done("artifact", name)

    def turn(self, turn_id: int, *, reason: str | None = None, everywhere: bool = False) -> Erasure:
        """Erase what a turn says, and return the erasure.

        The turn keeps its id, hash and depth, and is a tombstone. Its patches are erased with it,
        and the blobs that only it refers to. Of a step of a run the text, `meta`, the question and
        the attempts before it are erased, and messages say `[erased]`; of the start of a run the
        task and the system texts. Where others have the same bytes, LogicError lists them, unless
        they are to be erased `everywhere`. Raises UnknownTurnError, ErasedError for one that was
        erased before and says nothing again, LogicError for what is pinned, and BusyError as
        `event` does.
        """
        return self._do(self._turn(turn_id, reason, everywhere=everywhere))

    def _turn(self, turn_id: int, reason: str | None, *, everywhere: bool) -> Steps:
        check_natural(turn_id, "turn")

        def find(targets: Targets) -> None:
            targets.add_turn(turn_id)

        return self._erase("turn", str(turn_id), reason, find, everywhere=everywhere)

    def blob(self, name: Name, *, reason: str | None = None, everywhere: bool = False) -> Erasure:
        """Erase the bytes of a blob, and return the erasure; its hash and size stay.

        What refers to it must be erased `everywhere`, or LogicError lists it. Raises
        UnknownBlobError and others as `turn` does.
        """
        return self._do(self._blob(digest_of(name), reason, everywhere=everywhere))

    def _blob(self, digest: bytes, reason: str | None, *, everywhere: bool) -> Steps:
        def find(targets: Targets) -> None:
            targets.add_blob(digest)

        return self._erase("blob", digest.hex(), reason, find, everywhere=everywhere)

    def _erase(
        self,
        kind: str,
        name: str,
        reason: str | None,
        find: Callable[[Targets], None],
        *,
        everywhere: bool,
    ) -> Steps:
        """Erase the blobs that are found for a thing."""
        from eventq.erasure.targets import Targets

        past = self._past(kind, name, reason)

        def look() -> Targets:
            targets = Targets(self._turns(), self._database)
            find(targets)
            targets.check(everywhere=everywhere)
            if not targets.shown and (past is None or past.finished):
                raise targets.nothing_left() if past is None else erased(past)
            return targets

        try:
            texts = look().texts()
        except (UnknownTurnError, UnknownBlobError):
            if past is not None:  # a collection has taken it since
                raise erased(past) from None
            raise
        yield texts
        with self._database.write():
            found = look()  # somebody may refer to it by now, or have erased it
            number = self._engine.begin(kind, name, reason)
            self._engine.blobs(number, [*found.shown.items()])
        yield dict.fromkeys([*texts, *found.texts()])
        return _Done(kind, name)

    def prune(self, delete: Callable[[], tuple[int, int]]) -> int:
        """Delete events, leave nothing of them in any file, and return how many there were.

        `delete` deletes those below an id, and returns their number and the id.
        """
        is_inner = self._database.in_write()
        with self._database.write():
            if not is_inner:  # otherwise, what is last has not been stored yet
                self._settle()
            count, before = delete()
            if count:
                self._engine.begin("prune", str(before), None)
        if self._database.in_write():
            self._database.on_commit(self._clean_later)
            return count
        try:
            self._clean()
        except (DiskError, BusyError) as error:
            raise type(error)(
                f"the events are deleted, but their bytes are not gone: {error.what}",
                f"{error.fix}; then prune again",
            ) from error
        return count

    def _clean(self) -> None:
        """Remove what prunes have left, also those that were interrupted."""
        left = [int(past.name) for past in self if past.kind == "prune"]
        if left:
            self._rewrite(keep_from(max(left)))
            self._database.scrub()
            self._engine.forget("prune", map(str, left))  # not those that have begun since

    def _clean_later(self) -> None:
        """Clean after the transaction that pruned; the next prune goes on with what fails."""
        try:
            self._clean()
        except StoreError as error:
            self._journal.warn(f"prune: {error.what}; prune again")

    def _unfinished(self, kind: str, name: str, reason: str | None) -> Erasure | None:
        """Check that something can be erased; return the erasure of it that was interrupted."""
        past = self._past(kind, name, reason)
        if past is not None and past.finished:
            raise erased(past)
        return past

    def _past(self, kind: str, name: str, reason: str | None) -> Erasure | None:
        """Check that something can be erased now; return an earlier erasure of it."""
        self._database.check_writable()
        if self._database.in_write():
            what = "what is erased in a transaction is there until the transaction ends"
            raise LogicError(what, "erase outside of write()")
        if reason is not None:
            check_name(reason, "reason")
        return self._engine.get(kind, name)


def _erase_in_logs(traces: Traces, texts: Iterable[str]) -> None:
    try:
        traces.erase(texts)
    except OSError as error:
        raise _refused(error) from error


def _refused(error: OSError) -> DiskError:
    """Return the error for a log or a mirror that the system did not let be changed."""
    what = f"'{error.filename or 'a file'}' could not be changed: {error.strerror or error}"
    found = refused(error, what)
    return DiskError(found.what, f"{found.fix}; then do this again")
