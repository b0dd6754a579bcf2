"""New session files that go on from an entry of a session, as its tool would have made them."""

from __future__ import annotations

import os
import re
from itertools import count
from time import time as system_time
from uuid import UUID, uuid4

from blake3 import blake3

from eventq.errors import ConflictError, InputError, LogicError
from eventq.output import entries
from eventq.output.spelling import ASCII, parse, parse_leniently, spell
from eventq.records.checks import REF, SHA256
from eventq.sessions import lines
from eventq.sessions.imports import OF_LINES, bytes_of, grouped
from eventq.sessions.links import BACK, MESSAGE, NewSession, is_node
from eventq.sessions.reading import reader_named, reader_of
from eventq.system.clock import stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eventq.memory.contexts import Context, Contexts
    from eventq.output.output_store import OutputStore
    from eventq.records.turn import Turn
    from eventq.sessions.links import Cut, Entry
    from eventq.sessions.plain import Plain
    from eventq.store.session_rows import SessionRow, StoredLine

    Warn = Callable[[str], object]

# The types of turns. Versions before made two: an externalized entry, or the line as it was.
ENTRY, OLD_LINE = OF_LINES
_AT = "turn:"
_ID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_ODD = re.compile(rb"[\x00-\x1f]|NaN|Infinity")  # of what has it, some is no JSON
_REF = REF.encode()
_FULL = entries.FULL.encode()
_PAGE = 500
_FIRST = 20  # entries by which a reader is chosen


class Forks:
    """Makes the lines of new files of what a thread keeps."""

    def __init__(self, contexts: Contexts, produced: OutputStore, warn: Warn) -> None:
        """Read from a thread; `warn` gets a sentence about what cannot be in a new file."""
        self._contexts = contexts
        self._produced = produced
        self._store = produced.database.sessions
        self._warn = warn

    def source(self, context: Context) -> SessionRow | None:
        """Return the session that a context is a tip of, or has been forked from; None for none."""
        found = self._store.of_context(context.id)
        root = context.range(0, 1, payload=False).turns
        turn = context.head_id()
        if found is None and root and self._store.of_turn(root[0].turn_id):
            while found is None:  # there is one, at the root
                found = self._store.of_turn(turn)
                turn = self._contexts.turn(turn, payload=False).parent_turn_id
        return found

    def turn_at(self, row: SessionRow, head: int, at: str | None) -> int:
        """Return a turn by the id of its entry, the beginning of it, or `turn:` and its own id.

        The default is the head. Raises LogicError for none or several.
        """
        if at is None:
            return head
        if at.startswith(_AT):
            digits = at.removeprefix(_AT)
            if not (digits.isascii() and digits.isdigit()):
                raise InputError(f"'{at}' names no turn", f"give {_AT} and its number")
            turn = self._contexts.turn(int(digits), payload=False).turn_id
            if self._store.has_turn(row.session, turn) or self._is_above(turn, head):
                return turn
            raise LogicError(f"turn {turn} is of another session", f"give one of '{row.name}'")
        exact = self._store.turn_of(row.session, at)
        found = self._store.turns_like(row.session, at, 2) if exact is None else [exact]
        if len(found) == 1:
            return found[0]
        what = f"several entries of session '{row.name}' begin with" if found else (
            f"session '{row.name}' has no entry"
        )  # fmt: skip
        raise LogicError(
            f"{what} '{at}'", f"see 'eventq session show {row.name} --tree', or give {_AT}ID"
        )

    def _is_above(self, turn: int, head: int) -> bool:
        try:
            self._contexts.at(head).before(turn, 1, payload=False)
        except ConflictError:
            return False
        return True

    def lines(self, row: SessionRow, turn: int, new: NewSession) -> Iterator[bytes]:
        """Yield the lines of a new file that goes on from a turn; none if nothing is left of it."""
        reader = reader_named(row.tool)
        path = self._log(row, reader, turn) if reader.is_log else self._path(row, reader, turn)
        for entry in reader.fork(path, self._carried(row, reader), new):
            yield spelled(entry)

    def refusal(self, row: SessionRow) -> str:
        """Return why no file can be written that its tool resumes from; "" if one can."""
        first, reader = self.first(row), reader_named(row.tool)
        cut = reader.begins_in(first)
        if cut is not None and not self.base(cut)[0]:
            return f"its beginning stands in the file of session {cut.session}"
        return reader.refusal(first)

    def first(self, row: SessionRow) -> Entry:
        """Return the first entry of a session."""
        entries = map(self._entry_of, self._store.lines(row.session, -1, _FIRST))
        return next(filter(None, entries), {})

    def firsts(self, rows: Sequence[SessionRow]) -> Iterator[tuple[SessionRow, Entry]]:
        """Yield sessions with what is on their first lines, if that is an entry."""
        by_id = {row.session: row for row in rows}
        for group in grouped(self._store.edges([*by_id], 1)):
            payloads = self._produced.blobs.shown_many([line.digest for line in group])
            for line in group:
                if line.position == 0 and line.form != lines.RAW:
                    yield by_id[line.session], lines.lenient(payloads.get(line.digest, b"")) or {}

    def base(self, cut: Cut) -> tuple[int, str]:
        """Return the last turn before a cut in another session, or 0 and why there is none."""
        row = self._store.find(cut.session)
        if row is None:
            return 0, "that is not here: import it, too"
        links = self._store.links(row.session)
        size = turn = 0
        after = -1
        while size < cut.bytes and (page := self._store.lines(row.session, after, _PAGE)):
            for line, data in zip(page, bytes_of(self._produced, page, self._warn), strict=True):
                if size < cut.bytes:
                    size += len(data)
                    turn = next(links).turn or turn
                after = line.position
        if size != cut.bytes:
            return 0, f"no line of that ends at byte {cut.bytes:,}: it is another file"
        return turn, "" if turn else "nothing is said before that"

    def alone(self, context: Context, new: NewSession) -> Iterator[bytes]:
        """Yield the lines of a new file of a context, whose session is not here any longer."""
        turns = (one for one in context.replay() if one.type_id in OF_LINES)
        found = [*filter(None, map(self._entry, turns))]
        reader = reader_of(found[:_FIRST])
        path = [one for one in found if (link := reader.link(one)) and is_node(link)]
        for entry in reader.fork(path, filter(reader.carried, found), new):
            yield spelled(entry)

    def _path(self, row: SessionRow, reader: Plain, turn: int) -> Iterator[Entry]:
        """Yield the entries from the root to a turn; of a subagent only its own."""
        alone = self._ends_with_agent(reader, turn)
        for one in self._contexts.at(turn).replay():
            if not row.owner or self._store.has_turn(row.session, one.turn_id):
                entry = self._entry(one)
                if entry is not None and (not alone or _is_of_agent(reader, entry)):
                    yield entry

    def _log(self, row: SessionRow, reader: Plain, turn: int) -> Iterator[Entry]:
        """Yield the entries of a log up to a turn, with what stands beside them, but no marks."""
        way = {one.turn_id for one in self._contexts.at(turn).replay(payload=False)}
        own = (one.turn_parent for one in self._store.links(row.session) if one.turn in way)
        base = next(own, turn)
        above = self._store.of_turn(base) if base else None
        if above is not None and above.session != row.session:
            yield from self._log(above, reader, base)
        links = self._store.links(row.session)
        kept = True
        held: list[Entry] = []  # they belong to the next turn
        after = -1
        while page := self._store.lines(row.session, after, _PAGE):
            for line, link in zip(page, links, strict=False):
                if link.turn is not None:
                    kept = link.turn in way
                    if kept:
                        yield from held
                    held = []
                entry = None if link.kind & BACK else self._entry_of(line)
                if entry is None or (link.turn is not None and not kept):
                    continue
                if link.turn is None and (held or reader.leads(entry)):
                    held.append(entry)
                elif kept:
                    yield entry
            after = page[-1].position

    def _ends_with_agent(self, reader: Plain, turn: int) -> bool:
        """Return whether the last entry on the way to a turn is one of a subagent in the file."""
        while turn:
            found = self._contexts.turn(turn)
            entry = self._entry(found, _ignore)
            if entry is not None:
                return _is_of_agent(reader, entry)
            turn = found.parent_turn_id
        return False

    def text(self, turn: Turn, warn: Warn) -> bytes | None:
        """Return the text of the entry of a turn, with its images; None for no entry."""
        payload = self._contexts.turns.shown(turn)
        if turn.type_id not in OF_LINES or payload is None:
            return None
        if turn.flags & lines.CUT:
            return lines.unpack(lines.CUT, payload, self._produced.get, warn)
        has_refs = turn.type_id == ENTRY and (_REF in payload or _FULL in payload)
        if not has_refs or self._store.of_turn(turn.turn_id):  # the refs in a line are its own
            return payload
        return self._rehydrated(payload, warn)

    def _rehydrated(self, payload: bytes, warn: Warn) -> bytes:
        """Return the text of an externalized entry, as versions before made them of lines."""

        def get(ref: str) -> bytes | None:  # a ref of another tool is what the file said
            return None if ref.startswith(SHA256) else self._produced.get(ref)

        def warn_of_own(what: str) -> None:
            if SHA256 not in what:
                warn(what)

        try:
            whole = entries.rehydrate(parse(payload), get, warn_of_own, parse=parse)
        except (ValueError, RecursionError, InputError):
            return payload
        return spelled(whole).rstrip(b"\n")

    def _entry(self, turn: Turn, warn: Warn | None = None) -> Entry | None:
        """Return the entry of a turn, None for a turn of other origin."""
        warn = warn or self._warn
        text = self.text(turn, warn)
        entry = None if text is None else _parsed(text)
        if entry is None:
            warn(f"turn {turn.turn_id} is no entry of a session: it was left out")
        return entry

    def _carried(self, row: SessionRow, reader: Plain) -> Iterator[Entry]:
        """Yield the entries that a fork needs wherever in the file they stand."""
        after = -1
        while page := self._store.lines(row.session, after, _PAGE, without=MESSAGE):
            for line in page:
                entry = self._entry_of(line)
                if entry is not None and reader.carried(entry):
                    yield entry
            after = page[-1].position

    def _entry_of(self, line: StoredLine) -> Entry | None:
        if line.form == lines.RAW:
            return None
        payload = self._produced.blobs.shown(line.digest) or b"{}"
        return _parsed(lines.unpack(line.form, payload, self._produced.get, self._warn))


def of_context(context: Context, source: SessionRow | None) -> NewSession:
    """Return what the file of a forked context is: for the same context always the same."""
    info = context.info()
    name = source.name if source else info.name
    seed = f"{name}\n{info.context_id}\n{info.created_at_ms}"
    numbers = count()

    def new_id() -> str:
        digest = blake3(f"{seed}\n{next(numbers)}".encode()).digest(16)
        return str(UUID(bytes=digest, version=4))

    time = stamp(info.updated_at_ms / 1_000)
    return NewSession(new_id(), time, (source and source.place) or str(name), new_id)


def anew(source: SessionRow, path: str, *, title: str | None, cwd: str | None) -> NewSession:
    """Return what a new file is: of the id at the end of its name, or of one of its own.

    Raises LogicError for the id of the source.
    """
    named = _ID.search(os.path.basename(path).removesuffix(".jsonl"))
    own = named[0] if named else str(uuid4())
    if own in (source.name, *_ID.findall((source.place or "").removesuffix(".jsonl"))):
        raise LogicError(f"'{path}' has the id of the source", "give a name with another one")
    time = stamp(system_time())
    cwd = None if cwd is None else os.path.abspath(cwd)
    return NewSession(own, time, source.place or source.name, lambda: str(uuid4()), cwd, title)


def spelled(entry: Entry) -> bytes:
    """Return the line of an entry."""
    try:
        return spell(entry).encode() + b"\n"
    except UnicodeEncodeError:  # an unpaired surrogate can only be escaped
        return spell(entry, ASCII).encode() + b"\n"


def as_json(text: bytes) -> bytes:
    """Return the text of an entry, written again if it is no JSON as it stands."""
    if not _ODD.search(text) and _is_utf8(text):
        return text
    try:
        lines.parse(text)
    except (ValueError, RecursionError):
        entry = _parsed(text)
        return text if entry is None else spelled(entry).rstrip(b"\n")
    return text


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parsed(text: bytes) -> Entry | None:
    """Return an entry with its numbers as they are spelled, None for what is none."""
    try:
        entry = parse_leniently(text) if _ODD.search(text) or not _is_utf8(text) else parse(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _ignore(_: str) -> None:
    pass


def _is_of_agent(reader: Plain, entry: Entry) -> bool:
    link = reader.link(entry)
    return link is not None and link.agent is not None
