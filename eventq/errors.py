"""Every exception of eventq in one tree, each class with its exit code and wire code.

    EventqError                 1  500
    ├── UsageError              2  400   the caller's words are wrong
    │   ├── FilterError         2  422   a filter that is refused, with a caret under the fault
    │   └── InputError          2  422   a line or a value of the input
    └── LogicError              1  409   the words are right, the store says no
        ├── NotAThreadError     1  404
        ├── ThreadExistsError   1  409
        ├── UnknownConsumerError 1 404
        ├── ConsumerExistsError 1  409
        ├── ConsumerInUseError  1  409   somebody has claims of the consumer, or reads as it
        ├── LeaseLostError      4  409   the lease of a claim has ended: others may have the event
        │   └── FencedError     4  409   a newer supervisor runs the consumer of this handler
        ├── ForbiddenError      1  403   the token of the caller does not have the right for this
        ├── UnknownDeadLetterError 1 404
        ├── UnknownEventError   1  404
        ├── UnknownQuestionError 1 404
        ├── AnsweredError       1  409   somebody else has answered the question, differently
        ├── AckError            1  409   an ack beyond the newest event
        ├── PositionError       1  409   a position above the newest id that ever was
        ├── AlreadyAckedError   1  409   a pop that would go back, without asking for a replay
        ├── UnknownBlobError    1  404
        ├── UnknownTurnError    1  404
        ├── ErasedError         1  410   its bytes are gone for good
        ├── UnknownContextError 1  404
        │   └── UnknownSessionError 1 404
        ├── UnknownRunError     1  404
        ├── UnknownArtifactError 1 404
        ├── UnknownOutputError  1  404
        ├── ConflictError       1  409   a head that moved meanwhile, a key or a name that is taken
        │   └── KeyConflictError 1 409   a key of another event
        ├── TooLargeError       1  413
        ├── MomentLostError     1  409   what is read without locks has changed meanwhile
        ├── ClosedError         1  409   used after close, or in a forked process
        ├── PlatformError       1  500   this system lacks what the call needs
        └── StoreError          1  500
            ├── DamagedError    1  500   not a database, a foreign one, a newer one, or a broken one
            │   ├── LostError   1  500   what was stored went with a WAL that was taken away
            │   └── DamagedBlobError 1 500   bytes that do not have the hash they are stored under
            ├── UnsupportedError 1 501   the engine of the thread does not hold that
            ├── BusyError       1  503
            ├── UnknownOutcomeError 1 503  the answer to a change was lost: it may be stored or not
            ├── ReadOnlyError   1  403
            └── DiskError       1  507   no space, or the system refused to read or write

`str(error)` reads `<what went wrong> - <how to fix>`; both halves are attributes.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


NO_DESCRIPTORS = errno.EMFILE, errno.ENFILE  # of this process, of the system
_NAMED = 10  # events that an error names; it counts the others

# What to do about the address of a server, where a directory is wanted.
SERVER_ADVICE = (
    "run this on the machine of the thread: 'eventq serve' is for clients of the binary protocol,"
    " and PostgreSQL shares a thread among machines"
)


class EventqError(Exception):
    """The root: `what` went wrong and how to `fix` it."""

    exit_code = 1
    wire_code = 500

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    @property
    def advice(self) -> str:
        """The fix as the command line prints it: the `command`, where Python has a call."""
        return str(vars(self).get("command", self.fix))

    def __str__(self) -> str:
        """Return both halves in one line."""
        return f"{self.what} - {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy both halves and the attributes: subclasses take other arguments."""
        from copyreg import __newobj__  # type: ignore[attr-defined]

        return __newobj__, (type(self), *self.args), vars(self)


class UsageError(EventqError):
    """The call itself is wrong: an option, a number, a name."""

    exit_code = 2
    wire_code = 400


class InputError(UsageError):
    """A value that was given as data cannot be stored as it is."""

    wire_code = 422


class FilterError(UsageError):
    """A filter is refused; `text` is the filter, `at` the offset of the fault in characters."""

    wire_code = 422

    def __init__(
        self,
        what: str,
        text: str,
        at: int,
        fix: str = "write one condition over id, created_at, source, type, subtype, content;"
        " text stands in single quotes",
    ) -> None:
        super().__init__(what, fix)
        self.text = text
        self.at = at

    def __str__(self) -> str:
        """Return the message, then the line of the filter with a caret under the fault."""
        return f"{self.what} - {self.fix}\n{self.caret()}"

    def caret(self) -> str:
        """Return the line of the filter that has the fault, with a caret under it."""
        at = min(max(self.at, 0), len(self.text))
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[start : end if end >= 0 else len(self.text)]
        column = at - start
        if len(line) > 120:  # a window of the line, or the caret would be off the screen
            left = max(0, column - 60)
            line, column = line[left : left + 120], column - left
        shown = "".join(c if c.isprintable() else " " for c in line)
        return f"  {shown}\n  {' ' * column}^"


class LogicError(EventqError):
    """The call is right and the store says no."""

    wire_code = 409


class NotAThreadError(LogicError):
    """There is no thread at the path."""

    wire_code = 404

    def __init__(self, path: str) -> None:
        call, self.command = _ways_to_a_thread(path)
        super().__init__(f"'{without_user(path)}' is not a thread", call)
        self.path = path


def without_user(path: str) -> str:
    """Return a path to show; a URL that was taken for one loses its user and password."""
    scheme, _, rest = path.partition(":/")
    _, at, place = rest.rpartition("@")
    is_known = not at or path.startswith("postgresql://")  # of those no password comes so far
    return path if is_known else f"{scheme}://{place}"


def has_mirror(directory: str) -> bool:
    """Return whether there is anything in the mirror of a thread."""
    try:
        with os.scandir(directory) as entries:
            names = [one for one in entries if one.name.startswith("events")]
            return any(one.name.endswith(".jsonl") and one.stat().st_size for one in names)
    except OSError:
        return False


def cited(command: str) -> str:
    """Return a command in quotes for a sentence: in double ones if it has single ones itself."""
    return f'"{command}"' if "'" in command else f"'{command}'"


def way_back(database: str) -> str:
    """Return what to do about an events.db that is of no use."""
    directory = os.path.dirname(database)
    if has_mirror(directory):
        return f"restore a backup, or {_recover(directory)}"
    return "restore a backup, or move it away and run 'eventq init' on its directory"


def _recover(directory: str) -> str:
    from shlex import quote

    command = f"eventq mirror recover --thread {quote(directory)}"
    return f"run {cited(command)}, which makes the log anew from events.jsonl"


def _ways_to_a_thread(path: str) -> tuple[str, str]:
    """Return what to do about a path that is no thread: in Python, and at the command line."""
    from shlex import quote

    folder, name = os.path.split(path)
    host, _, port = name.rpartition(":")
    if os.path.isfile(path) and os.path.exists(os.path.join(folder, "events.db")):
        return f"open its directory, {folder!r}", f"give its directory: --thread {folder}"
    if os.path.isfile(path):
        return ("it is a file: give the directory of a thread",) * 2
    if has_mirror(path) and not os.path.exists(f"{path}/events.db"):
        return (f"its events.db is gone: {_recover(path)}",) * 2
    call = f"create it with eventq.open({path!r}, create=True)"
    command = f"run {cited(f'eventq init {quote(path)}')} first"
    if path.startswith("postgresql://"):
        return call, f"{command}, or give 'eventq thread ls' its database"
    if ":/" in path or (host and port.isdigit()):  # an address that was taken for a path
        return (f"give the directory of a thread; for a server, {SERVER_ADVICE}",) * 2
    return call, command


class ThreadExistsError(LogicError):
    """There is a thread at the path already."""

    def __init__(self, path: str) -> None:
        super().__init__(f"'{path}' is already a thread", "use it as it is, or choose another path")


class UnknownConsumerError(LogicError):
    """No subscription has this consumer id."""

    wire_code = 404

    def __init__(self, consumer: str) -> None:
        super().__init__(
            f"consumer '{consumer}' is not subscribed", "run 'eventq subscribe' for it first"
        )
        self.name = consumer


class ConsumerExistsError(LogicError):
    """A subscription has this consumer id already; `differs` says which values would change."""

    def __init__(self, consumer: str, differs: str = "") -> None:
        super().__init__(
            f"consumer '{consumer}' is already subscribed"
            + (differs and f", differently: {differs}"),
            "add --replace to change it, which keeps its place"
            if differs
            else "run 'eventq unsubscribe' first, then subscribe again",
        )


class ConsumerInUseError(LogicError):
    """Somebody else reads as this consumer."""

    def __init__(self, consumer: str, who: str) -> None:
        super().__init__(
            f"consumer '{consumer}' is in use: {who}",
            "wait until that ends, or see 'eventq claims ls'",
        )


class LeaseLostError(LogicError):
    """The lease of a claim has ended, or the event was acked or replayed: nothing was changed."""

    exit_code = 4

    def __init__(self, consumer: str, event_id: int, *others: int) -> None:
        which = f"event {event_id} is"
        if others:
            *some, last = [event_id, *others][:_NAMED]
            more = f" and {len(others) + 1 - _NAMED} others" * (len(others) >= _NAMED)
            listed = ", ".join(map(str, some)) + (f", {last}" if more else f" and {last}")
            which = f"events {listed}{more} are"
        super().__init__(
            f"{which} not leased to this worker of '{consumer}' any more",
            "drop what was done with it, and claim again",
        )
        self.event_id = event_id


class FencedError(LeaseLostError):
    """A handler pops or acks, but a newer supervisor runs its consumer: nothing was changed.

    `event_id` is the event that was to be acked, 0 for none.
    """

    def __init__(self, consumer: str, event_id: int = 0) -> None:
        LogicError.__init__(
            self,
            f"a newer supervisor runs consumer '{consumer}'",
            "end this handler: its events are handled by another one",
        )
        self.event_id = event_id


class UnknownDeadLetterError(LogicError):
    """The event is no dead letter."""

    wire_code = 404

    def __init__(self, event_id: int, consumer: str | None) -> None:
        whose = "" if consumer is None else f" of consumer '{consumer}'"
        super().__init__(f"event {event_id} is no dead letter{whose}", "see 'eventq dead ls'")
        self.event_id = event_id


class UnknownEventError(LogicError):
    """There is no such event: its id was not given yet, or it was pruned."""

    wire_code = 404

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no event {number}", "look at the newest ones for their ids")
        self.number = number


class ForbiddenError(LogicError):
    """The token of the caller does not have the right for this."""

    wire_code = 403

    def __init__(self, right: str) -> None:
        super().__init__(f"this token does not have the right '{right}'", "use one that has it")


class UnknownQuestionError(LogicError):
    """The event asks nothing, or there is no such event."""

    wire_code = 404

    def __init__(self, number: int, *, is_erased: bool = False) -> None:
        what = f"question {number} was erased, and is closed" if is_erased else ""
        fix = "ask anew" if is_erased else "see 'eventq questions'"
        super().__init__(what or f"event {number} is no question", fix)
        self.number = number


class AnsweredError(LogicError):
    """A question was answered before, and differently; `answer` says how."""

    def __init__(self, number: int, answer: str, source: str) -> None:
        super().__init__(
            f"question {number} was answered before, by '{source}': {answer:.200}",
            "the first answer counts: push an event of its own if it was wrong",
        )
        self.answer = answer


class AckError(LogicError):
    """An ack names an event that does not exist yet; `last_id` is the newest that does."""

    def __init__(self, asked: int, last_id: int) -> None:
        super().__init__(
            f"cannot ack event {asked}: the newest event is {last_id}",
            "ack the id of an event that was read",
        )
        self.last_id = last_id


class PositionError(LogicError):
    """A position is above the newest id that ever was, `last_id`: it is another log's."""

    def __init__(self, asked: int, last_id: int, what: str = "an event") -> None:
        super().__init__(
            f"there was never {what} {asked}: the newest is {last_id}, so the log was restored or"
            " made anew",
            f"read on after {last_id}, or read all after 0 again",
        )
        self.last_id = last_id


class AlreadyAckedError(LogicError):
    """A pop names an event below the progress; `acked` is the last id that was acked."""

    def __init__(self, consumer: str, acked: int, asked: int) -> None:
        super().__init__(
            f"consumer '{consumer}' has acked {acked} already",
            f"pop without an id to read on, or add --replay to read again from {asked}",
        )
        self.acked = acked


class TooLargeError(LogicError):
    """An event or a blob is larger than the limit; `size` is None if it was not read to its end."""

    wire_code = 413

    def __init__(
        self,
        size: int | None,
        limit: int,
        what: str = "event",
        fix: str = "put the data in a file and push its path, or raise EVENTQ_MAX_EVENT_BYTES",
        unit: str = "bytes",
    ) -> None:
        found = f"{size} {unit}, the limit is {limit}"
        if size is None:
            found = f"more than the limit of {limit} {unit}"
        super().__init__(f"the {what} is too large ({found})", fix)


class UnknownBlobError(LogicError):
    """No blob has this hash; what should have referred to it was not stored."""

    wire_code = 404

    def __init__(self, ref: str) -> None:
        super().__init__(f"missing blob {ref}", "put its bytes first")


class ErasedError(LogicError):
    """What was erased can neither be read nor be erased again."""

    wire_code = 410


class UnknownTurnError(LogicError):
    """No turn has this id."""

    wire_code = 404

    def __init__(self, turn_id: int) -> None:
        super().__init__(f"there is no turn {turn_id}", "give the id of a turn that was read")


class UnknownContextError(LogicError):
    """No context has this id or name."""

    wire_code = 404

    def __init__(self, context: int | str) -> None:
        super().__init__(
            f"there is no context '{context}'", "see 'eventq context ls', or create it first"
        )
        self.name = str(context)


class UnknownSessionError(UnknownContextError):
    """No session has this name, and no context that a session could be of."""

    def __init__(self, session: int | str) -> None:
        what = f"there is no session '{session}'"
        fix = "see 'eventq session ls', or import its file with 'eventq session import'"
        LogicError.__init__(self, what, fix)
        self.name = str(session)


class UnknownRunError(LogicError):
    """The context is not a run of a workflow."""

    wire_code = 404

    def __init__(self, run: int | str, fix: str | None = None) -> None:
        super().__init__(
            f"there is no run '{run}'", fix or "see 'eventq run ls', or start it first"
        )
        self.name = str(run) if fix is None else None  # None: it is there, and something else


class UnknownArtifactError(LogicError):
    """No artifact has this number."""

    wire_code = 404

    def __init__(self, artifact_id: str, available: str) -> None:
        super().__init__(
            f"Artifact {artifact_id} not found. Available: {available}",
            "give a number that was printed or listed",
        )


class UnknownOutputError(LogicError):
    """No output of an agent has this name, or this version."""

    wire_code = 404

    def __init__(self, output_id: str, available: str) -> None:
        super().__init__(
            f"Not found: {output_id}\nAvailable: {available}",
            "give a name that was printed or listed",
        )


class ConflictError(LogicError):
    """The store has changed.

    `actual` is the head's turn id, the first turn of a key, or the owner of a name.
    """

    def __init__(self, what: str, fix: str, actual: int) -> None:
        super().__init__(what, fix)
        self.actual = actual


class KeyConflictError(ConflictError):
    """A push names the key of an event that differs from it; `actual` is the id of that event."""

    def __init__(self, key: str, first: int, fields: Sequence[str]) -> None:
        *others, last = fields
        which = f"{', '.join(others)} and {last} differ" if others else f"{last} differs"
        super().__init__(
            f"key '{key}' belongs to event {first}, whose {which}",
            "read that event, or use another key",
            first,
        )


class MomentLostError(LogicError):
    """What is read has changed meanwhile, or its connection is lost: read it again."""

    def __init__(self, what: str = "another program took the database over meanwhile") -> None:
        super().__init__(what, "do it again")


class ClosedError(LogicError):
    """A thread was used after `close`, or in a fork of the process that opened it."""


class PlatformError(LogicError):
    """This system lacks what the call needs."""

    wire_code = 500


class StoreError(LogicError):
    """The database or its directory cannot be used as it should."""

    wire_code = 500


class UnsupportedError(StoreError):
    """The engine that keeps this thread does not hold what was asked for."""

    wire_code = 501


class DamagedError(StoreError):
    """The file is not a database, not eventq's, newer than this program, or broken."""


class LostError(DamagedError):
    """What this process had stored is not in the database any more, whose WAL was taken away."""


class DamagedBlobError(DamagedError):
    """Stored bytes do not match their hash; `ref` names the blob."""

    def __init__(self, ref: str, what: str = "its stored bytes do not have its hash") -> None:
        super().__init__(
            f"{ref} is damaged: {what}", "put the same bytes again, or restore a backup"
        )
        self.ref = ref


class BusyError(StoreError):
    """Too much is under way, or another writer held the store for too long; nothing was stored."""

    wire_code = 503


class UnknownOutcomeError(StoreError):
    """The connection to a server was lost before it answered: the change is stored, or it is not.

    A push with a key may be repeated: it stores the event once.
    """

    wire_code = 503

    def __init__(self, place: str) -> None:
        super().__init__(
            f"the connection to '{place}' was lost: the change was stored, or it was not",
            "look whether it was; a push with a key can be repeated safely",
        )


class ReadOnlyError(StoreError):
    """The directory or its database cannot be written by this user."""

    wire_code = 403


class DiskError(StoreError):
    """The disk is full, or the system refused to read or write."""

    wire_code = 507


_LOOK = "check the path, its permissions and the disk"
READ_ONLY = "the file system is read-only: choose another folder, or mount it for writing"
_REMEDIES = {  # of what is to be seen at none of the three
    errno.EDQUOT: "delete some files, or have the quota raised, then try again",
    errno.EISDIR: "give a file, not a folder",
    errno.ENAMETOOLONG: "choose a shorter name or path",
    errno.ENOSPC: "free some space on the disk, then try again",
    errno.EROFS: READ_ONLY,
}


def refused(error: OSError, what: str) -> StoreError:
    """Return the error for what the system refused: `what` it is, and what helps against that."""
    if error.errno in NO_DESCRIPTORS:
        return no_descriptors()
    return DiskError(what, _REMEDIES.get(error.errno or 0, _LOOK))


def reason(error: Exception) -> str:
    """Return what the system says of a file, without the file and the number of the error."""
    return getattr(error, "strerror", None) or str(error)


def no_descriptors() -> StoreError:
    """Return the error of a process that may open no more files."""
    return StoreError(
        "there are too few file descriptors: no more files can be opened",
        "raise the limit with 'ulimit -n', or close some files, then try again",
    )
