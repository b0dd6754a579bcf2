"""Import and export session files of coding agents: each line, a JSON entry, becomes a turn.

Images become blobs. Nothing is lost: an entry that could not be restored byte for byte, and a line
that is not an entry, is kept unchanged as a line. So an export returns exactly the imported bytes.
A file without an entry in its first lines is refused.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from io import BufferedReader
from itertools import chain

from eventq import system
from eventq.blobs import parse_ref
from eventq.dag.contexts import check_context_name
from eventq.errors import (
    ConflictError,
    InputError,
    LogicError,
    TooLargeError,
    UnknownContextError,
    UsageError,
)
from eventq.event import REF, refs_in
from eventq.output import entries, folders
from eventq.output.spelling import parse, spell
from eventq.output.store import SHA256
from eventq.records import NewTurn, SessionImported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, BinaryIO

    from eventq.dag.contexts import Context, Contexts
    from eventq.output.store import OutputStore
    from eventq.records import Turn

    Warn = Callable[[str], object]

ENTRY = "session/entry"  # the type of a turn whose payload is an externalized entry
LINE = "session/line"  # of one whose payload is the line as it was
NO_NEWLINE = 1  # flag of the turn of a last line that has not ended
_BATCH_BYTES = 4 << 20  # of lines that share a transaction
_BATCH_LINES = 500
_URL = b"data:image/"
_REF = REF.encode()
_FULL = entries.FULL.encode()
LONGEST = 128 << 20  # bytes of a line
_NAME = 200  # characters of a context's name that is taken from a file


class _Lines(BufferedReader):
    """The lines of a file, each at most as long as may be held in memory."""

    def readline(self, size: int | None = -1) -> bytes:  # noqa: ARG002 (of the class above)
        """Return the next line; raise TooLargeError for a longer one before it is held."""
        line = super().readline(LONGEST + 1)
        if len(line) > LONGEST:
            raise TooLargeError(
                None, LONGEST, "line", "give a session file, which has a line for each entry"
            )
        return line

    def __next__(self) -> bytes:
        """Return the next line."""
        if line := self.readline():
            return line
        raise StopIteration


class Sessions:
    """The session files that a thread keeps, each as a context."""

    def __init__(self, contexts: Contexts, produced: OutputStore, directory: str) -> None:
        """Keep turns and blobs in the thread of a directory."""
        self.produced = produced
        self._contexts = contexts
        self._database = produced.database
        self._directory = directory

    # --- in ---------------------------------------------------------------------------------------

    def import_file(
        self, path: str, *, name: str | None = None, blobs: str | None = None
    ) -> SessionImported:
        """Append the entries of a file to a context, made if need be, and return what was added.

        The context's `name` is that of the session in the file's first line (default). Importing
        again adds what the file has grown by; a last line that was torn is replaced when it is
        whole. `blobs` is the folder where another tool keeps the blobs that the entries name by
        their SHA-256. Raises InputError for a file that is no session, and ConflictError when the
        context and the file differ; both add nothing.
        """
        self._database.check_writable()
        try:
            with self._opened(path) as file:
                begun = _beginning(file, path)
                known = self._context(name or _name_of(begun[0], path))
                made = SessionImport(self, known, path, blobs).run(chain(begun, file))
            return self._bring_folder(known, path, made)
        except OSError as error:
            raise LogicError(
                f"'{error.filename or path}' could not be read: {error.strerror}",
                "check the path and its permissions",
            ) from error

    def _opened(self, path: str) -> BinaryIO:
        """Open a session file; refuse what never ends."""
        if not isinstance(path, str):
            raise UsageError(
                f"the path must be text, not {type(path).__name__}", "give it as a string"
            )
        inside = os.path.realpath(self._directory)
        if os.path.commonpath([inside, os.path.realpath(path)]) == inside:
            raise LogicError(f"'{path}' is inside the thread", "give a session file outside of it")
        file = _Lines(open(path, "rb", buffering=0))  # noqa: SIM115 (the caller closes it)
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            file.close()
            raise LogicError(f"'{path}' is neither a file nor a pipe", "give a session file")
        return file

    def _bring_folder(self, context: Context, path: str, made: SessionImported) -> SessionImported:
        """Store the files of the folder beside a session's file, in the scope of the session."""
        folder = folder_of(path)
        if folder is None or not os.path.isdir(folder):
            return made
        produced = self.produced.of_context(context.id)
        if not produced.scope:  # the context is of an older version
            self._database.scopes.separate(context.id)
            produced = self.produced.of_context(context.id)
        notes = [*made.notes]
        inside = os.path.realpath(self._directory)
        if os.path.realpath(folder) == inside:
            notes.append(f"the folder beside '{path}' was left out: it is the thread")
            return replace(made, notes=tuple(notes))
        count = folders.bring_session(produced, folder, notes.append, inside)
        return replace(made, files=count, notes=tuple(notes))

    def _context(self, name: str) -> Context:
        check_context_name(name)
        with self._database.write():
            try:
                return self._contexts.get(name)
            except UnknownContextError:
                return self._contexts.create(name)

    # --- out --------------------------------------------------------------------------------------

    def export_folder(self, context: int | str, path: str, warn: Warn) -> dict[str, int]:
        """Write what a session produced to the folder beside its file; return the counts.

        `warn` gets a sentence about what cannot be written there. Raises ConflictError for a file
        that is there with other content, UnknownContextError, OSError.
        """
        produced = self.produced.of_context(self._contexts.get(context).id)
        folder = folder_of(path)
        if not produced.scope or not folders.has_any(produced):
            return {}
        if folder is None:
            warn(f"the files beside the session were not written: '{path}' does not end in .jsonl")
            return {}
        os.makedirs(folder, exist_ok=True)
        return folders.write(produced, folder, warn)

    def lines(self, context: int | str, *, warn: Warn | None = None) -> Iterator[bytes]:
        """Yield the lines of a session file as they were imported, each with its newline.

        Turns of other types are left out. `warn` gets a sentence about each blob that is not here.
        Raises UnknownContextError.
        """
        for turn in self._contexts.get(context).replay():
            if turn.type_id in (ENTRY, LINE):
                yield self.line(turn, warn or (lambda _: None))

    def line(self, turn: Turn, warn: Warn) -> bytes:
        """Return the line that a turn was made from."""
        data = turn.payload or b""
        if turn.type_id == ENTRY and (_REF in data or _FULL in data):  # others are what they were
            stored = parse(data)
            whole = entries.rehydrate(
                stored, self.own_blob, lambda what: _warn_of_own(what, warn), parse=parse
            )
            data = spell(whole).encode()
        return data if turn.flags & NO_NEWLINE else data + b"\n"

    def own_blob(self, ref: str) -> bytes | None:
        """Return the bytes of a ref of ours; None for one of another tool, which the file had."""
        return None if ref.startswith(SHA256) else self.produced.get(ref)


class SessionImport:
    """One import: the context, and the result for its lines."""

    def __init__(self, sessions: Sessions, context: Context, path: str, folder: str | None) -> None:
        self._sessions = sessions
        self._context = context
        self._path = path
        self._folder = folder
        self._produced = sessions.produced
        self._database = sessions.produced.database
        self._blobs = sessions.produced.blobs
        self._notes: list[str] = []
        self._missing: set[str] = set()
        self._put: set[str] = set()
        self._head = context.info().head_turn_id
        self._torn: int | None = None  # the turn before a torn line that is to be replaced
        self._raw = 0  # lines that are kept as they are
        self._odd = self._first_odd = 0  # whole ones among them, and the number of the first

    def run(self, file: Iterable[bytes]) -> SessionImported:
        """Append the lines that are new."""
        lines = iter(file)
        count, torn = self._compare(lines)
        number = count
        for batch in _batches(lines, torn):
            with self._database.write():
                self._leave_torn()
                for line in batch:
                    number += 1
                    self._append(number, line)
        if self._odd:
            self._notes.append(_raw_note(self._odd, self._first_odd))
        context_id, notes = self._context.info().context_id, tuple(self._notes)
        return SessionImported(context_id, number, number - count, len(self._put), notes, self._raw)

    def _compare(self, lines: Iterator[bytes]) -> tuple[int, bytes | None]:
        """Read the lines that are here already; return how many, and what replaces a torn one."""
        count = 0
        for turn in self._context.replay() if self._head else ():
            if turn.type_id not in (ENTRY, LINE):
                raise ConflictError(
                    f"context '{self._name()}' has turns that are no entries of a session: turn"
                    f" {turn.turn_id}",
                    "import under another name", self._head,
                )  # fmt: skip
            mine, theirs = self._sessions.line(turn, _ignore), next(lines, None)
            if theirs is None:
                self._notes.append(
                    f"'{self._path}' ends after line {count}, and the session here goes on"
                )
                break
            count += 1
            if mine == theirs:
                self._fetch_again(turn, theirs)
                continue
            if turn.turn_id == self._head and turn.flags & NO_NEWLINE and theirs.startswith(mine):
                self._torn = turn.parent_turn_id
                return count - 1, theirs
            raise ConflictError(
                f"line {count} of '{self._path}' is not that of the session '{self._name()}' here",
                "import it under another name", self._head,
            )  # fmt: skip
        return count, None

    def _leave_torn(self) -> None:
        """Move the head to before a torn line, in the transaction that stores what replaces it."""
        if self._torn is not None:
            self._context.move(self._torn, expected_head=self._head)
            self._head, self._torn = self._torn, None

    def _fetch_again(self, turn: Turn, line: bytes) -> None:
        """Store the blobs of a line that is here, if their folder is given only now."""
        entry = _entry(line) if self._folder is not None and SHA256.encode() in line else None
        if entry is not None and (foreign := self._foreign(entry)):
            with self._database.write():
                self._blobs.add_refs(turn.ref, sorted(foreign))

    def _name(self) -> str:
        info = self._context.info()
        return info.name or str(info.context_id)

    def _append(self, number: int, line: bytes) -> None:
        flags = 0 if line.endswith(b"\n") else NO_NEWLINE
        data = line.removesuffix(b"\n")
        kind, payload, named = self._prepared(data)
        if kind == LINE:
            self._count_raw(number, torn=bool(flags) and _entry(data) is None)
        if self._context.head_id() != self._head:
            raise ConflictError(
                f"somebody else appended to '{self._name()}' meanwhile",
                "import again: what is here already is found again", self._context.head_id(),
            )  # fmt: skip
        turn = self._context.append(NewTurn(payload, kind, flags=flags, refs=self._known(named)))
        self._head = turn.turn_id

    def _count_raw(self, number: int, *, torn: bool) -> None:
        self._raw += 1
        if torn:
            self._notes.append(f"the last line of '{self._path}' is torn: it is kept as it is")
        else:
            self._odd += 1
            self._first_odd = self._first_odd or number

    def _prepared(self, data: bytes) -> tuple[str, bytes, set[bytes]]:
        """Return type and payload of the turn that a line becomes, and the blobs that it names."""
        entry = _entry(data)
        foreign = set() if entry is None else self._foreign(entry)
        stored = None if entry is None or entries.FULL in entry else self._externalized(entry, data)
        if stored is None:
            return LINE, data, refs_in(data.decode(errors="replace")) | foreign
        named = {digest for ref in entries.refs(stored) if (digest := parse_ref(ref))}
        return ENTRY, data if stored is entry else spell(stored).encode(), named | foreign

    def _foreign(self, entry: dict[str, Any]) -> set[bytes]:
        """Return the blobs that an entry names by SHA-256; those that are not here are fetched."""
        try:
            refs = entries.foreign_refs(entry)
        except InputError:  # nested too deeply: it is kept as the line that it is
            return set()
        self._fetch(refs)
        return {bytes.fromhex(digits) for ref in refs if (digits := self._produced.blob_hash(ref))}

    def _externalized(self, entry: dict[str, Any], data: bytes) -> dict[str, Any] | None:
        """Return what is stored of an entry; None if it does not spell the same line again."""
        put: dict[str, int] = {}
        times = 0

        def keep(raw: bytes) -> str:
            nonlocal times
            times += 1
            made = self._produced.put(raw)
            if made.new:
                self._put.add(made.hash)
            put[made.ref] = len(raw) if raw.startswith(_URL) else (len(raw) + 2) // 3 * 4
            return made.ref

        def own(ref: str) -> bytes | None:
            if ref not in put and not ref.startswith(SHA256):
                raise InputError(f"the entry names {ref} already", "keep the line as it is")
            return self._sessions.own_blob(ref)

        try:
            stored: dict[str, Any] = entries.externalize(entry, keep, full=True)
            spelled = spell(stored).encode()
            plain = entries.FULL not in stored and spelled.count(_REF) == times
            if plain and _REF not in data and _is_around(spelled, put, data):
                return stored
            whole = entries.rehydrate(stored, own, _ignore, parse=parse)
            return stored if spell(whole).encode() == data else None
        except (InputError, UnicodeEncodeError, RecursionError):
            return None

    def _known(self, named: set[bytes]) -> list[bytes]:
        return [digest for digest in sorted(named) if self._blobs.has(digest)]

    def _fetch(self, refs: list[str]) -> None:
        """Store the blobs that another tool has, under the names that it has for them."""
        for ref in refs:
            if (
                self._folder is None
                or ref in self._missing
                or self._produced.blob_hash(ref) is not None
            ):
                continue
            digits = ref.removeprefix(SHA256)
            try:
                with system.open_regular(os.path.join(self._folder, digits)) as file:
                    made = self._blobs.put(file)
            except OSError as error:
                self._leave(
                    ref, f"{ref} is not in '{self._folder}' ({error.strerror}): the ref is kept"
                )
                continue
            if not self._produced.name_blob(made.hash, bytes.fromhex(digits)):
                self._leave(
                    ref, f"'{os.path.join(self._folder, digits)}' is damaged: the ref is kept"
                )
            elif made.new:
                self._put.add(made.hash)

    def _leave(self, ref: str, why: str) -> None:
        self._missing.add(ref)
        self._notes.append(why)


def folder_of(path: str) -> str | None:
    """Return the folder that belongs to a session's file, None for a name that has none."""
    stem = path.removesuffix(".jsonl")
    return stem if os.path.basename(stem) and stem != path else None


def _beginning(file: Iterable[bytes], path: str) -> list[bytes]:
    """Return the lines up to the first entry; raise InputError when the first batch has none."""
    begun: list[bytes] = []
    size = 0
    for line in file:
        begun.append(line)
        size += len(line)
        if _entry(line.removesuffix(b"\n")) is not None:
            return begun
        if size >= _BATCH_BYTES or len(begun) >= _BATCH_LINES:
            break
    why = f"none of its first {len(begun)} lines is a JSON object" if begun else "it is empty"
    why = "its first line is no JSON object" if len(begun) == 1 else why
    raise InputError(
        f"'{path}' is no session file: {why}",
        "give a file of one JSON object a line, when its tool has written the first one whole",
    )


def _raw_note(count: int, first: int) -> str:
    """Return the note on whole lines that are kept as they are."""
    which = f"line {first} is" if count == 1 else f"{count:,} lines, the first is line {first}, are"
    why = "no JSON object, or none that could be written again byte for byte"
    return f"{which} kept as raw text: {why}"


def _name_of(first: bytes, path: str) -> str:
    """Return the name of a session: the id in its first entry, or that of the file."""
    entry = _entry(first.removesuffix(b"\n"))
    told = entry.get("id") if entry is not None and entry.get("type") == "session" else None
    name = told if isinstance(told, str) and told else os.path.splitext(os.path.basename(path))[0]
    name = "".join(c if c.isprintable() else "_" for c in name)[:_NAME]
    return f"session-{name}" if not name or (name.isascii() and name.isdigit()) else name


def _entry(data: bytes) -> dict[str, Any] | None:
    """Return the object that a line is, None for anything else."""
    try:
        entry = parse(data)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _is_around(spelled: bytes, put: dict[str, int], data: bytes) -> bool:
    """Return whether a line is what is spelled, with so many bytes in place of each ref.

    Images need not be spelled again: those bytes are what was parsed. Had they been escaped, there
    would be more of them, and what follows would be elsewhere.
    """
    first, *others = spelled.split(_REF)
    if not data.startswith(first):
        return False
    at = len(first)
    for other in others:
        at += put.get((_REF + other[:64]).decode("ascii", "replace"), 1 << 40)
        if not data.startswith(other[64:], at):
            return False
        at += len(other) - 64
    return at == len(data)


def _batches(lines: Iterator[bytes], first: bytes | None) -> Iterator[list[bytes]]:
    """Yield lines in groups of some MiB, `first` before all."""
    batch = [] if first is None else [first]
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_LINES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _warn_of_own(what: str, warn: Warn) -> None:
    if SHA256 not in what:  # a ref of another tool is what the file said
        warn(what)


def _ignore(_: str) -> None:
    pass
