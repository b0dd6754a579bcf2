"""Session files of coding agents, kept as they branch: import them, and export the same bytes.

Each line is a row, and each entry that belongs into the conversation a turn under the entry that it
names. Nothing is lost: a line that is no JSON object is kept as it is. The tips of the branches are
contexts: `NAME` where the session goes on, `NAME/<8 characters of an entry's id>` for the others,
and `NAME/agent-<id>` for subagents. A file that was rewritten is the next generation of its
session. A file without an entry in its first lines is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain, starmap
from operator import attrgetter
from typing import NamedTuple

from blake3 import blake3

from eventq.errors import (
    ConflictError,
    EventqError,
    InputError,
    LogicError,
    StoreError,
    UnknownContextError,
    UsageError,
    refused,
)
from eventq.memory.contexts import check_context_name
from eventq.output import artifacts, entries, folders
from eventq.records.checks import SHA256
from eventq.records.session import SessionFile, SessionForked, SessionImported, SessionRemoved
from eventq.sessions import lines
from eventq.sessions.forks import Forks, anew, of_context
from eventq.sessions.imports import (
    OF_LINES,
    Import,
    Known,
    OvertakenError,
    Read,
    bytes_of,
    read_lines,
)
from eventq.sessions.notes import found, raw
from eventq.sessions.reading import is_record, reader_named, reader_of
from eventq.sessions.salvage import ROWS, pieces
from eventq.sessions.subagents import AGENTS, Agent, Agents
from eventq.store.session_rows import SessionRow
from eventq.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, BinaryIO

    from eventq.memory.contexts import Context, Contexts
    from eventq.output.output_store import OutputStore
    from eventq.records.turn import Turn
    from eventq.sessions.links import Entry
    from eventq.sessions.tree import Spawns
    from eventq.sessions.views import Views

    Warn = Callable[[str], object]

NO_NEWLINE = 1  # flag of the turn of a last line that has not ended
_BEGIN_BYTES = 4 << 20  # in which the first entry has to be
_BEGIN_LINES = 500
_ENDING = ".jsonl"
_COMPRESSED = ".zst"
_OWN = 8  # digits of a hash at the end of a name that is too long
_WINDOW = 128 << 20  # bytes of memory to expand a compressed file
_PIECE = 1 << 10  # bytes that are expanded at once
_ZSTD = b"\x28\xb5\x2f\xfd"  # RFC 8878, section 3.1.1
_FIRST = 20  # entries by which a reader is chosen
_SHORT = 100  # lines of a file that may have had fewer when that was done
_BLOCK = 4 << 20  # bytes that are hashed at once: two threads are a third faster then
_PAGE = 500
_TRIES = 50  # after others who import the same session at the same time
_FOREIGN = re.compile(rb'"(%s[0-9a-f]{64})"' % SHA256.encode())
_NAME = 110  # characters of a context's name that is taken from a file


class Sessions:
    """The session files that a thread keeps, the ends of their branches as contexts."""

    def __init__(self, contexts: Contexts, produced: OutputStore, directory: str) -> None:
        """Keep turns and blobs in the thread of a directory."""
        self._contexts = contexts
        self._produced = produced
        self._database = produced.database
        self._store = produced.database.sessions
        self._directory = directory

    @property
    def views(self) -> Views:
        """What is known of the sessions: `all`, `info`, `branches`, `entries`, `diff` and more."""
        from eventq.sessions.views import Views

        return Views(self._contexts, self._produced)

    # --- in ---------------------------------------------------------------------------------------

    def import_file(
        self, path: str, *, name: str | None = None, blobs: str | None = None
    ) -> SessionImported:
        """Store the lines of a file that are new, its turns and its tips; return what was added.

        The session's `name` is the id in the file's first line (default), or the file's name.
        Importing again adds what the file has grown by; a last line that was torn is replaced when
        it is whole. A file that was rewritten is stored as the next generation. `blobs` is the
        folder where another tool keeps the blobs that the entries name by their SHA-256. Raises
        InputError for a file that is no session, and ConflictError for one of the same name from
        another folder, or when somebody has moved the contexts of the session.
        """
        self._database.check_writable()
        try:
            notes: list[str] = []
            with self._opened(path, notes.append) as file:
                made, name = self._import(file, path, name, blobs, notes)
        except OSError as error:
            raise _unread(error, path) from error
        for row, problem in self._join_forks([name] if _is_new(made) else []):
            what = f"session '{row.name}' goes on from it, "
            notes.append(
                what + (f"but is not below it: {problem}" if problem else "and hangs below it now")
            )
        return made._replace(notes=tuple(notes))

    def import_folder(self, path: str, *, blobs: str | None = None) -> Iterator[SessionFile]:
        """Import each session file in a folder and those below it, as `import_file` does.

        Yield each with what was added, or the error why it was not imported; the others are tried
        nevertheless. What is no session is left out, and so is what `import_file` takes along: the
        folder of a session, and subagents. Links to folders are not followed. A file without
        anything new is read once, and nothing is written. Raises StoreError if the thread fails.
        """
        self._database.check_writable()
        self._check_outside(path)
        new: list[str] = []
        yield from self._import_below(path, blobs, new)
        for row, error in self._join_forks(new):
            if error is not None:
                yield SessionFile(row.place or row.name, None, error)

    def _import_below(self, path: str, blobs: str | None, new: list[str]) -> Iterator[SessionFile]:
        try:
            with os.scandir(path) as entries:
                found = sorted(entries, key=attrgetter("name"))
        except OSError as error:
            yield SessionFile(path, None, _unread(error, path))
            return
        ends = _ENDING, _ENDING + _COMPRESSED
        files = {one.name for one in found if one.name.endswith(ends) and one.is_file()}
        files -= {name + _COMPRESSED for name in files}  # as the tool does, with both of them here
        stems = {name.removesuffix(_COMPRESSED).removesuffix(_ENDING) for name in files}
        for one in found:
            if one.name in files:
                yield from self._import_one(one.path, blobs, new)
            elif one.is_dir(follow_symlinks=False):
                is_of_a_session = one.name in stems or one.name == AGENTS
                if not is_of_a_session and os.path.realpath(one.path) != self._inside:
                    yield from self._import_below(one.path, blobs, new)

    def _import_one(self, path: str, blobs: str | None, new: list[str]) -> Iterator[SessionFile]:
        """Import a file; note the name of its session if that was not here."""
        try:
            notes: list[str] = []
            with self._opened(path, notes.append) as file:
                if not _is_session(file, path):
                    return
                made, name = self._import(file, path, None, blobs, notes)
            new += [name] if _is_new(made) else []
            yield SessionFile(path, made, None)
        except OSError as error:
            yield SessionFile(path, None, _unread(error, path))
        except EventqError as error:
            if isinstance(error, StoreError) and not isinstance(error.__cause__, OSError):
                raise
            yield SessionFile(path, None, error)

    @property
    def _inside(self) -> str:
        return os.path.realpath(self._directory)

    def _check_outside(self, path: str) -> None:
        """Raise LogicError for a path in the thread, and for the folder of a session."""
        if os.path.commonpath([self._inside, os.path.realpath(path)]) == self._inside:
            raise LogicError(f"'{path}' is inside the thread", "give a session file outside of it")
        if os.path.isdir(path) and os.path.exists(f"{path.rstrip('/')}{_ENDING}"):
            raise LogicError(f"'{path}' is the folder of a session", f"give '{path}{_ENDING}'")

    def _opened(self, path: str, warn: Warn) -> BinaryIO:
        """Open a session file; refuse what never ends. A pipe is read to its end first.

        A file that is compressed, as Codex does with old ones, is expanded into a temporary one.
        """
        if not isinstance(path, str):
            raise UsageError(
                f"the path must be text, not {type(path).__name__}", "give it as a string"
            )
        self._check_outside(path)
        folder = folder_of(path)
        if folder is not None and os.path.isdir(folder) and not os.path.lexists(path):
            raise LogicError(
                f"'{path}' is not there, only the folder that belongs to it",
                "import the session's file: what is in the folder hangs under its entries",
            )
        file: BinaryIO = open(path, "rb")  # noqa: SIM115 (the caller closes it)
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISFIFO(mode):
            with file:
                file = _spooled(read_lines(file))
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
            is_zstd = file.read(len(_ZSTD)) == _ZSTD
            file.seek(0)
            if not is_zstd:
                return file
            warn(f"'{path}' is compressed: an export has what is in it, not compressed")
            with file:
                return _spooled(_expanded(file, path))
        file.close()
        raise LogicError(f"'{path}' is neither a file nor a pipe", "give a session file")

    def _import(
        self, file: BinaryIO, path: str, name: str | None, folder: str | None, notes: list[str]
    ) -> tuple[SessionImported, str]:
        """Import a file that is open; return what was added, and the name of its session."""
        found = _first_entries(file, path, 2)
        name = _name_of(found, path) if name is None else name
        _check_name(name)
        fetch = _Fetch(self._produced, folder, notes)
        row, taken = self._again_and_again(file, path, name, fetch)
        notes += taken.notes
        if row.generation > 1 and not row.lines:
            notes.append(
                f"'{path}' was rewritten: it is generation {row.generation} of '{row.name}' now"
            )
        beside = path.removesuffix(_COMPRESSED)
        count, agents = self._bring_folder(row, taken.context, beside, fetch)
        read = taken.read
        as_text = sum(map(len, read.raw.values())) + read.rest
        made = SessionImported(
            taken.context, read.entries, read.new, taken.blobs + fetch.new, tuple(notes), as_text,
            count, agents, row.generation,
        )  # fmt: skip
        return made, name

    def _again_and_again(
        self, file: BinaryIO, path: str, name: str, fetch: _Fetch, beside: _Beside | None = None
    ) -> tuple[SessionRow, _Taken]:
        """Store what a file has grown by; go on after somebody else who does that, too."""
        for _ in range(_TRIES):
            with suppress(OvertakenError):
                return self._once(file, path, name, fetch, beside)
        return self._once(file, path, name, fetch, beside)

    def _once(
        self, file: BinaryIO, path: str, name: str, fetch: _Fetch, beside: _Beside | None
    ) -> tuple[SessionRow, _Taken]:
        if beside is not None:
            row, hasher = self._generation(file, path, name, beside.owner)
            row = self._beside(row, beside)
            base = self._base_of(beside.agent)
            return row, self._take(file, row, hasher, fetch, base, scope=beside.scope)
        row, hasher = self._generation(file, path, name)
        base, source = self._above(row, _first_entries(file, path, 1)[0], fetch.note)
        if self._store.tips(row.name):  # it has its turns already
            source = None
        return row, self._take(file, row, hasher, fetch, base, source)

    def _above(self, row: SessionRow, first: Entry, warn: Warn) -> tuple[int, SessionRow | None]:
        """Return what a log goes on from as its first entry states.

        That is a turn of another session, or one that it begins with a copy of.
        """
        reader = reader_named(row.tool)
        if not reader.is_log:
            return 0, None
        if (cut := reader.begins_in(first)) is not None:
            turn, why = Forks(self._contexts, self._produced, warn).base(cut)
            if why:
                warn(f"its beginning stands in the file of session {cut.session}: {why}")
            return turn, None
        source = reader.source(first)
        return 0, self._store.find(source) if source and source != row.name else None

    def _join_forks(
        self, names: Iterable[str]
    ) -> Iterator[tuple[SessionRow, ConflictError | None]]:
        """Hang the forks of sessions that have come after them below these.

        Yield each, with the error if somebody has moved its contexts.
        """
        rows = filter(None, map(self._store.find, names))
        new = {row.name for row in rows if reader_named(row.tool).is_log}
        after = ""
        while new and (page := self._store.newest(after, _PAGE)):
            logs = [row for row in page if reader_named(row.tool).is_log]
            for row, first in Forks(self._contexts, self._produced, _ignore).firsts(logs):
                cut = reader_named(row.tool).begins_in(first)
                named = cut.session if cut else reader_named(row.tool).source(first)
                if named not in new or self._is_below(row, named or ""):
                    continue
                base, source = self._above(row, first, _ignore)
                if base or source:
                    yield row, self._place_again(row, base, source)
            after = page[-1].name

    def _is_below(self, row: SessionRow, source: str) -> bool:
        """Return whether a session begins with a turn of its source, or right below one."""
        first = next((one for one in self._store.links(row.session) if one.turn), None)
        other = self._store.find(source)
        if first is None or other is None:
            return False
        turns = (first.turn, first.turn_parent)
        return any(self._store.has_turn(other.session, turn) for turn in turns if turn)

    def _place_again(
        self, row: SessionRow, base: int, source: SessionRow | None
    ) -> ConflictError | None:
        """Place what is here of a session elsewhere; return the error if that cannot be."""
        work = Import(self._contexts, self._produced, row, lambda _: None, base, source)
        try:
            work.show(work.place())
        except ConflictError as error:
            return error
        return None

    def _take(
        self,
        file: BinaryIO,
        row: SessionRow,
        hasher: Any,
        fetch: _Fetch,
        base: int = 0,
        source: SessionRow | None = None,
        scope: int | None = None,
    ) -> _Taken:
        """Store what a file has grown by; see `Import`. `scope` is that of its tips."""
        if fetch.folder is not None:
            self._fetch_again(row, fetch)
        file.seek(row.size)
        work = Import(self._contexts, self._produced, row, fetch, base, source)
        read = work.read(read_lines(file), hasher)
        part = work.place()
        context = work.show(part, scope)
        notes = [*starmap(raw, read.raw.items()), *found(read.found), *work.gaps(part)]
        if not read.first and read.new:
            origin = reader_named(row.tool).origin(_first_entries(file, "", 1)[0])
            notes[:0] = [origin] if origin else []
        if repeated := part.repeated(read.first):
            what = "1 line repeats" if repeated == 1 else f"{repeated:,} lines repeat"
            notes.append(f"{what} the id of an earlier entry: the last entry of an id counts")
        return _Taken(context, read, work.new_blobs, notes)

    def _fetch_again(self, row: SessionRow, fetch: _Fetch) -> None:
        """Store the blobs that lines which are here name, if their folder is given only now."""
        after = -1
        while page := self._store.lines(row.session, after, _PAGE):
            for line in page:
                payload = self._produced.blobs.shown(line.digest) or b""
                if line.form != lines.RAW and SHA256.encode() in payload:
                    refs = entries.foreign_refs(lines.lenient(payload) or {})
                    found = sorted(filter(None, map(fetch, refs)))
                    self._produced.blobs.add_refs(line.digest, found)
            after = page[-1].position

    def _generation(
        self, file: BinaryIO, path: str, name: str, owner: SessionRow | None = None
    ) -> tuple[SessionRow, Any]:
        """Return the session that a file goes on with, and what has hashed the bytes before.

        That is the next generation for a file that was rewritten. A new one is stored with its
        first lines. `owner` is the session in whose folder the file stands.
        """
        threads = 2 if os.fstat(file.fileno()).st_size > _BLOCK else 1  # a start of one costs more
        hasher = blake3(max_threads=threads)
        place = _place_of(path) if os.path.isfile(path) else None  # not of a pipe
        row = self._store.find(name)
        if row is not None and row.owner is not None and owner is None:
            raise ConflictError(
                f"session '{name}' is that of a subagent of '{row.owner}'",
                "import the file of that session, or this one --as another name", 0,
            )  # fmt: skip
        if row is None:
            file.seek(0)
            self._check_older(file, name)
        elif self._goes_on(row, file, hasher):
            if place and place != row.place:
                self._store.move(row.session, place)
                row = row._replace(place=place)
            return self._recognised(row, file, path, hasher)
        elif row.place and place and owner is None and not _is_beside(row.place, place):
            raise ConflictError(
                f"session '{row.name}' is another one here: its file was '{row.place}'",
                "import this one --as another name", 0,
            )  # fmt: skip
        tool = owner.tool if owner else reader_of(_first_entries(file, path, _FIRST)).name
        number = row.generation + 1 if row else 1
        empty, none = blake3(), Known().written()
        row = SessionRow(0, name, number, tool, place, 0, empty.digest(), 0, missing=none)
        return row, empty

    def _recognised(
        self, row: SessionRow, file: BinaryIO, path: str, hasher: Any
    ) -> tuple[SessionRow, Any]:
        """Return a session that is read otherwise now as one without lines, to begin again.

        Its tool did not show in the few lines that there were, or an older version left entries, or
        linked them by other rules.
        """
        tool = row.tool
        if row.lines < _SHORT and row.owner is None:
            tool = reader_of(_first_entries(file, path, _FIRST)).name
        if tool == row.tool and not self._is_of_older_rules(row):
            return row, hasher
        empty, none = blake3(), Known().written()
        new = row._replace(tool=tool, size=0, digest=empty.digest(), lines=0)
        return new._replace(settled=None, missing=none), empty

    def _is_of_older_rules(self, row: SessionRow) -> bool:
        """Return whether a session is of an older version, which reads it otherwise.

        That is one of Claude Code, as its links have changed, or one with a line that is stored as
        text and has entries.
        """
        if row.lines == 0 or Known.read(row.missing) is not None:
            return False
        if row.tool == "claude":
            return True
        is_record = reader_named(row.tool).is_record
        after = -1
        while page := self._store.raw(row.session, after, _PAGE):
            for line in page:
                text = b"" if not line.size else self._produced.blobs.shown(line.digest) or b""
                if line.after and any(one.entry for one in pieces(text, is_record)):
                    return True
            after = page[-1].position
        return False

    def _goes_on(self, row: SessionRow, file: BinaryIO, hasher: Any) -> bool:
        """Return whether a file begins with the lines that are here."""
        file.seek(0)
        left = row.size
        block = memoryview(bytearray(min(left, _BLOCK)))
        while left and (count := file.readinto(block[: min(left, _BLOCK)])):  # type: ignore[attr-defined]
            hasher.update(block[:count])
            left -= count
        if left or hasher.digest() != row.digest:
            return False
        last = self._store.unended(row.session, row.lines, ROWS)
        while last and last[-1].form == lines.RAW:  # what is no entry may become anything
            del last[-1]
        unfinished = b"".join(bytes_of(self._produced, last, _ignore))
        return file.read(len(unfinished)) == unfinished

    def _check_older(self, file: BinaryIO, name: str) -> None:
        """Raise ConflictError for a context of a name that is not what an import of before made."""
        try:
            context = self._contexts.get(name)
        except UnknownContextError:
            return
        if (other := self._store.of_context(context.id)) is not None:
            raise ConflictError(
                f"context '{name}' is a branch of session '{other.name}'",
                "import it --as another name", context.head_id(),
            )  # fmt: skip
        for turn in context.replay():
            line = self.line(turn, _ignore) if turn.type_id in OF_LINES else None
            if line is None or file.read(len(line)) != line:
                raise ConflictError(
                    f"context '{name}' has turns that are not lines of this session: turn"
                    f" {turn.turn_id}",
                    "import it --as another name", context.head_id(),
                )  # fmt: skip

    # --- the folder beside it -------------------------------------------------------------------

    def _bring_folder(
        self, row: SessionRow, context: int, path: str, fetch: _Fetch
    ) -> tuple[int, int]:
        """Store the folder beside a session's file; return how many files and agents have grown."""
        folder = folder_of(path)
        if folder is None or not os.path.isdir(folder):
            return 0, 0
        produced = self._produced.of_context(context)
        if not produced.scope:  # the context came in a pack without scopes
            self._database.scopes.separate(context)
            produced = self._produced.of_context(context)
        inside = self._inside
        if os.path.realpath(folder) == inside:
            fetch.note(f"the folder beside '{path}' was left out: it is the thread")
            return 0, 0
        paths = folders.paths(folder, fetch.note, inside)
        taken = self._bring_agents(row, produced.scope, folder, paths, fetch)
        others = [one for one in paths if one not in taken]
        return folders.bring_session(produced, folder, others, fetch.note), sum(taken.values())

    def _bring_agents(
        self, owner: SessionRow, scope: int, folder: str, paths: list[str], fetch: _Fetch
    ) -> dict[str, bool]:
        """Store the sessions of subagents; return the path of each, and whether it has grown."""
        first = partial(_first_of, folder)
        agents = Agents(self._store, owner, folder, self._spawns, first, self._is_context)
        taken = {}
        for path in agents.find(paths):
            place = os.path.join(folder, path)
            try:
                agent = agents.get(path)
                if agent is not None:
                    found = self._bring_agent(owner, scope, agent, place, fetch)
                    taken[path] = bool(found.read.new)
                    agents.stored(path, agent.name)
            except OSError as error:
                fetch.note(f"'{place}' was left out: {error.strerror or error}")
            except ConflictError as error:  # its lines are here, its contexts are as others want
                taken[path] = False
                fetch.note(f"{path}: {error.what} - {error.fix}")
        return taken

    def _bring_agent(
        self, owner: SessionRow, scope: int, agent: Agent, place: str, fetch: _Fetch
    ) -> _Taken:
        with disk.open_regular(place, follow=False) as file:
            beside = _Beside(owner, scope, agent)
            _, found = self._again_and_again(file, place, agent.name, fetch, beside)
        for note in found.notes:
            fetch.note(f"{agent.path}: {note}")
        return found

    def _beside(self, row: SessionRow, beside: _Beside) -> SessionRow:
        """Return the session of a subagent that says whose it is."""
        agent = beside.agent
        now = row._replace(owner=beside.owner.name, path=agent.path, started_by=agent.started_by)
        if row.session and now != row:
            self._store.keep_beside(now)
        return now

    def _base_of(self, agent: Agent) -> int:
        """Return the turn that a subagent hangs under, 0 for none."""
        parent = self._store.find(agent.parent)
        if parent is None or agent.started_by is None:
            return 0
        return self._store.turn_of(parent.session, agent.started_by) or 0

    def _is_context(self, name: str) -> bool:
        return self._database.contexts.named(name) is not None

    def _spawns(self, name: str) -> tuple[list[str | None], Spawns]:
        row = self._store.find(name)
        assert row is not None
        return Import(self._contexts, self._produced, row, lambda _: None).spawns()

    def remove(self, name: str) -> SessionRemoved:
        """Delete a session with its generations and subagents: their lines, and their contexts.

        Its turns and blobs go with the next collection, but for those that a fork needs. What it
        produced stays in its scope. Raises UnknownSessionError, LogicError for a branch or a
        subagent, ConflictError for a context that has anything else than the session by now.
        """
        with self._database.write():
            row = self._store.find(name)
            if row is None or row.owner is not None:
                own = self.views.info(name).name if row is None else row.owner
                raise LogicError(
                    f"'{name}' is a part of session '{own}'",
                    f"delete the whole: 'eventq session rm {own}', or only this branch:"
                    f" 'eventq context rm {name}'",
                )
            agents = self._store.beside(name)
            tips = [tip for one in (row, *agents) for tip in self._store.tips(one.name)]
            for tip in tips:
                head = self._contexts.head(tip.context)
                if head != tip.turn:
                    raise ConflictError(
                        f"context '{tip.name or tip.context}' has moved on from the session",
                        "keep it as a fork, and move it back to turn"
                        f" {tip.turn}, then try again: see 'eventq context fork --help'",
                        head,
                    )
            for tip in tips:
                self._contexts.get(tip.context).delete()
            names = tuple(tip.name or str(tip.context) for tip in tips)
            return SessionRemoved(name, self._store.remove(name), names, len(agents))

    # --- out --------------------------------------------------------------------------------------

    def fork(
        self,
        context: int | str,
        out: str,
        *,
        at: str | None = None,
        title: str | None = None,
        cwd: str | None = None,
        blobs: str | None = None,
    ) -> SessionForked:
        """Write a new session file that goes on from an entry, for the tool to resume from.

        `at` is the id of an entry, or the beginning of it, or `turn:` and the id of a turn; by
        default it is where the context is. `out` is a new file, or a folder, where the tool's own
        name for it is taken; if the name ends with a UUID, that is the id of the new session.
        `title` and `cwd` replace those of the source, and the blobs that entries name by their
        SHA-256 are written to the folder `blobs`. What is stored stays as it is. Raises LogicError,
        ConflictError for a file that exists, UnknownContextError.
        """
        notes: list[str] = []
        found = self._contexts.get(context)
        forks = Forks(self._contexts, self._produced, notes.append)
        row = forks.source(found)
        if row is None:
            raise _of_no_session(context)
        turn = forks.turn_at(row, found.head_id(), at)
        reader = reader_named(row.tool)
        if why := forks.refusal(row):
            what = f"no file can be written that '{context}' goes on from: {why}"
            raise LogicError(what, f"read its entries with 'eventq session cat {context}'")
        new = anew(row, out, title=title, cwd=cwd)
        path = os.path.join(out, reader.file_name(new)) if os.path.isdir(out) else out
        if os.path.lexists(path):
            raise ConflictError(f"'{path}' exists", "give a new file, or a folder", 0)
        if note := reader.doubt(os.path.basename(path), new):
            notes.append(note)
        made = forks.lines(row, turn, new)
        first = next(made, None)
        if first is None:
            what = f"there is nothing that a session could go on from at turn {turn}"
            raise LogicError(what, "fork it at a later entry")
        notes += self.views.notes_of(row, turn)
        written = Written(chain([first], made))
        folder = folder_of(path)
        with ExitStack() as undone:  # unless all of it is written
            if folder is not None and not os.path.lexists(folder):
                undone.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                self.export_folder(context, path, notes.append, forked=True)
                size = disk.save(path, written, mode=0o600)
            except OSError as error:
                what = f"'{path}', or the folder beside it, could not be written: {error.strerror}"
                raise refused(error, what) from error
            undone.callback(os.unlink, path)
            if blobs is not None:
                self.export_blobs(written.refs, blobs, notes.append)
            undone.pop_all()
        return SessionForked(new.id, path, row.tool, written.lines, size, tuple(notes))

    def export_folder(
        self, context: int | str, path: str, warn: Warn, *, forked: bool = False
    ) -> dict[str, int]:
        """Write what a session produced to the folder beside its file; return the counts.

        For one that is `forked`, as far as its tool would. `warn` gets a sentence about what cannot
        be written there. Raises ConflictError for a file that is there with other content,
        UnknownContextError, OSError.
        """
        found = self._standing(context)
        if found is None:
            return {}
        produced = self._produced.of_context(found.id)
        row = Forks(self._contexts, self._produced, warn).source(found)
        agents = {} if row is None else self._agents_of(row)
        folder = folder_of(path)
        if not produced.scope or not (agents or folders.has_any(produced)):
            return {}
        if folder is None:
            warn(f"the files beside the session were not written: '{path}' does not end in .jsonl")
            return {}
        os.makedirs(folder, exist_ok=True)
        for name in _hidden(agents, {file.path for file in folders.files_of(produced)}):
            warn(f"'{name}' was not written: another file of the session has its place")
            del agents[name]
        left = set()
        if forked and row is not None and not reader_named(row.tool).forks_agents:
            kinds = reader_named(row.tool).folder
            paths = (file.path for file in folders.files_of(produced))
            left = {one for one in paths if kinds(one).kind == "sidecar"} | agents.keys()
            agents = {}
        counts = folders.write(produced, folder, warn, left | agents.keys())
        for name, one in agents.items():
            place = os.path.join(folder, name)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            digest = artifacts.hash_of(self._lines(one, _ignore))[0]
            artifacts.save_or_compare(place, self._lines(one, warn), digest)
        return {**counts, "agents": len(agents)}

    def _standing(self, context: int | str) -> Context | None:
        """Return a context, or any of a session whose own one is gone; None if all of them are.

        Raises UnknownContextError for the name of neither.
        """
        try:
            return self._contexts.get(context)
        except UnknownContextError:
            row = self._store.find(context) if isinstance(context, str) else None
            if row is None:
                raise
            tips = self._store.tips(row.name)
            return self._contexts.get(tips[0].context) if tips else None

    def export_blobs(self, refs: Iterable[str], folder: str, warn: Warn) -> int:
        """Write blobs of other tools' refs to a folder, where they are named by their SHA-256.

        Return how many there are; `warn` gets a sentence about each that is not here. Raises
        ConflictError for a file with other content, LogicError.
        """
        count = 0
        try:
            os.makedirs(folder, exist_ok=True)
            for ref in sorted(refs):
                data = self._produced.get(ref)
                if data is None:
                    warn(f"{ref} was not written: it is not here")
                else:
                    path = os.path.join(folder, ref.removeprefix(SHA256))
                    artifacts.save_or_compare(path, [data], blake3(data).hexdigest())
                    count += 1
        except OSError as error:
            what = f"'{error.filename or folder}' could not be written: {error.strerror}"
            raise refused(error, what) from error
        return count

    def _agents_of(self, row: SessionRow) -> dict[str, SessionRow]:
        """Return the sessions in the folder of a session, or of the one that it is in, by path."""
        beside = self._store.beside(row.owner or row.name)
        return {one.path: one for one in beside if one.path and folders.is_path(one.path)}

    def lines(
        self, context: int | str, *, generation: int | None = None, warn: Warn | None = None
    ) -> Iterator[bytes]:
        """Yield the lines of a session file as they were imported.

        `generation` is that of a file that was rewritten (default: the newest). Of a context that
        was forked here they are those of a new session, always of the same id, so that an import of
        them never adds to the original. `warn` gets a sentence about each blob that is not here.
        Raises UnknownContextError, LogicError for a context of no session, and for a generation
        that there is not.
        """
        found = self._standing(context)
        warn = warn or _ignore
        row = self._store.find(str(context)) if found is None else self._store.of_context(found.id)
        if row is not None and generation is not None:
            row = self._store.find(row.name, generation)
        if row is not None:
            return self._lines(row, warn)
        if generation is not None:
            what = f"there is no generation {generation} of session '{context}'"
            raise LogicError(what, "see 'eventq session ls'")
        assert found is not None
        made = self._lines_of(found, warn)
        if (first := next(made, None)) is None:
            raise _of_no_session(context)
        return chain([first], made)

    def _lines_of(self, context: Context, warn: Warn) -> Iterator[bytes]:
        """Return the lines of a context that no file was imported into."""
        if not context.info().base_turn_id:
            return self._older_lines(context, warn)
        forks = Forks(self._contexts, self._produced, warn)
        source = forks.source(context)
        new = of_context(context, source)
        if source is None:
            return forks.alone(context, new)
        return forks.lines(source, context.head_id(), new)

    def _lines(self, row: SessionRow, warn: Warn) -> Iterator[bytes]:
        after = -1
        while page := self._store.lines(row.session, after, _PAGE):
            yield from bytes_of(self._produced, page, warn)
            after = page[-1].position

    def _older_lines(self, context: Context, warn: Warn) -> Iterator[bytes]:
        """Yield what a version of before has made turns of, one by one."""
        for turn in context.replay():
            if turn.type_id in OF_LINES:
                yield self.line(turn, warn)

    def line(self, turn: Turn, warn: Warn) -> bytes:
        """Return the line that a turn of a version of before was made from."""
        data = Forks(self._contexts, self._produced, warn).text(turn, warn) or b""
        return data if turn.flags & NO_NEWLINE else data + b"\n"


class Written:
    """Yields lines, counts them, and notes the refs of other tools' blobs in them."""

    def __init__(self, given: Iterable[bytes]) -> None:
        """Take nothing yet."""
        self._given = given
        self.lines = 0
        self.refs: set[str] = set()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines."""
        for line in self._given:
            self.lines += 1
            if SHA256.encode() in line:
                self.refs.update(found.decode() for found in _FOREIGN.findall(line))
            yield line


class _Beside(NamedTuple):
    """Whose session a subagent's is, and the scope of all."""

    owner: SessionRow
    scope: int
    agent: Agent


class _Taken(NamedTuple):
    """What was stored of one file."""

    context: int
    read: Read
    blobs: int
    notes: list[str]


class _Fetch:
    """Brings the blobs that entries name by their SHA-256 from the folder of another tool."""

    def __init__(self, produced: OutputStore, folder: str | None, notes: list[str]) -> None:
        self._produced = produced
        self.folder = folder
        self.note = notes.append
        self._missing: set[str] = set()
        self.new = 0  # blobs

    def __call__(self, ref: str) -> bytes | None:
        """Return the hash of the blob of a ref, fetched if need be; None where there is none."""
        known = self._produced.blob_hash(ref)
        if known is None and self.folder is not None and ref not in self._missing:
            self._fetch(ref, self.folder)
            known = self._produced.blob_hash(ref)
        return None if known is None else bytes.fromhex(known)

    def _fetch(self, ref: str, folder: str) -> None:
        digits = ref.removeprefix(SHA256)
        path = os.path.join(folder, digits)
        try:
            with disk.open_regular(path) as file:
                made = self._produced.blobs.put(file)
        except OSError as error:
            self._leave(ref, f"{ref} is not in '{folder}' ({error.strerror}): the ref is kept")
            return
        if not self._produced.name_blob(made.hash, bytes.fromhex(digits)):
            self._leave(ref, f"'{path}' is damaged: the ref is kept")
        else:
            self.new += made.new

    def _leave(self, ref: str, why: str) -> None:
        self._missing.add(ref)
        self.note(why)


def _is_new(made: SessionImported) -> bool:
    """Return whether a session was not here before."""
    return made.generation == 1 and made.added == made.entries


def folder_of(path: str) -> str | None:
    """Return the folder that belongs to a session's file, None for a name that has none."""
    stem = path.removesuffix(_ENDING)
    return stem if os.path.basename(stem) and stem != path else None


def _of_no_session(context: int | str) -> LogicError:
    return LogicError(
        f"context '{context}' is of no session", "see 'eventq session ls' for their names"
    )


def _unread(error: OSError, path: str) -> StoreError:
    why = refused(error, f"'{error.filename or path}' could not be read: {error.strerror}")
    if isinstance(error, IsADirectoryError):
        why.fix = "take all session files in it by 'eventq session import DIR'"
    return why


def _is_session(file: BinaryIO, path: str) -> bool:
    """Return whether a file, whose name may be that of anything, begins as one of a session."""
    try:
        return any(map(is_record, _first_entries(file, path, _FIRST)))
    except InputError:
        return False


def _place_of(path: str) -> str:
    """Return the whole path of a file as text, with escapes for what is not UTF-8."""
    return os.fsencode(os.path.realpath(path)).decode(errors="backslashreplace")


def _spooled(given: Iterable[bytes]) -> BinaryIO:
    """Return a temporary file with the bytes that are given."""
    import tempfile

    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        file.writelines(given)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _expanded(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield what is in a compressed file; raise InputError for a damaged one.

    It is read in small pieces, because each byte may become 32 KiB.
    """
    from eventq.system.zstd import ZstdDecompressor, ZstdError

    frames = ZstdDecompressor(max_window_size=_WINDOW)
    frame = None
    try:
        while piece := file.read(_PIECE):
            while piece:
                frame = frame or frames.decompressobj()
                yield frame.decompress(piece)
                piece = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
        why = "it ends in the middle" if frame is not None else ""
    except ZstdError as error:
        why = str(error)
    if why:
        fix = f"see what 'zstd -d --long=31 {path}' makes of it, and import that"
        raise InputError(f"'{path}' cannot be unpacked: {why}", fix)


def _first_entries(file: BinaryIO, path: str, most: int) -> list[dict[str, Any]]:
    """Return the first entries of a file; raise InputError when there is none."""
    file.seek(0)
    found: list[dict[str, Any]] = []
    count = size = 0
    for line in read_lines(file):
        count, size = count + 1, size + len(line)
        found += [one.entry for one in pieces(line, is_record) if one.entry is not None]
        if len(found) >= most or size >= _BEGIN_BYTES or count >= _BEGIN_LINES:
            break
    if found:
        return found[:most]
    why = f"none of its first {count:,} lines is a JSON object" if count else "it is empty"
    why = "its first line is no JSON object" if count == 1 else why
    raise InputError(
        f"'{path}' is no session file: {why}",
        "give a file of one JSON object a line, when its tool has written the first one whole",
    )


def _first_of(folder: str, path: str) -> dict[str, Any] | None:
    """Return the first entry of a file in a folder, None for what is no session."""
    with disk.open_regular(os.path.join(folder, path), follow=False) as file:
        try:
            return _first_entries(file, path, 1)[0]
        except InputError:
            return None


def _hidden(agents: Iterable[str], files: set[str]) -> list[str]:
    """Return the paths of agents that files cannot stand beside: one is a folder of the other."""
    agents = [*agents]
    above = {parent for path in (*files, *agents) for parent in _parents(path)}
    return [one for one in agents if one in above or not files.isdisjoint(_parents(one))]


def _parents(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def _is_beside(path: str, other: str) -> bool:
    return os.path.dirname(path) == os.path.dirname(other)


def _name_of(found: list[dict[str, Any]], path: str) -> str:
    """Return the name of a session: the id in its header, or that of the file."""
    reader = reader_of(found)
    told = (reader.session_id(one) for one in found if reader.is_header(one))
    stem = os.path.splitext(os.path.basename(path.removesuffix(_COMPRESSED)))[0]
    name = next(filter(None, told), stem)
    if len(name) > _NAME:  # others may begin alike
        own = blake3(name.encode(errors="surrogatepass")).hexdigest(length=_OWN // 2)
        name = f"{name[: _NAME - _OWN - 1]}-{own}"
    name = "".join(c if c.isprintable() else "_" for c in name)
    return f"session-{name}" if not name or (name.isascii() and name.isdigit()) else name


def _check_name(name: str) -> None:
    """Raise InputError for what cannot name a session, whose branches have longer names."""
    check_context_name(name)
    if len(name) > _NAME:
        raise InputError(f"the name is longer than {_NAME} characters", "shorten it")


def _ignore(_: str) -> None:
    pass
