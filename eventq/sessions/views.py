"""What is known of the session files that a thread keeps, and of the branches of each."""

from __future__ import annotations

import os
import re
import shlex
from itertools import chain, starmap

from eventq.errors import LogicError, UnknownContextError, UnknownSessionError, UsageError
from eventq.records.session import AGENT, EntryInfo, SessionBranch, SessionDifference, Subagent
from eventq.said import Data
from eventq.said import of as said_by
from eventq.sessions import lines
from eventq.sessions.forks import Forks, as_json, of_context
from eventq.sessions.glances import glances_at, infos
from eventq.sessions.imports import OF_LINES, Import
from eventq.sessions.links import MESSAGE, string
from eventq.sessions.notes import of_entries, of_gaps, raw
from eventq.sessions.reading import READERS, reader_named, reader_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eventq.memory.contexts import Context, Contexts
    from eventq.output.output_store import OutputStore
    from eventq.records.session import SessionInfo
    from eventq.records.turn import ContextInfo, Turn
    from eventq.sessions.glances import Glance
    from eventq.sessions.links import Entry, Title
    from eventq.sessions.notes import Noted
    from eventq.sessions.plain import Plain
    from eventq.store.session_rows import Begun, LineLink, SessionRow, StoredLine

    Which = int | str

_ANY_ID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID = re.compile(f"{_ANY_ID.pattern}$")  # at the end of a file's name
_PAGE = 500
_PAGE_OF_SESSIONS = 50
_EXCERPT = 80  # characters of an entry's text
_AGENTS = 50  # that one is looked for among


class Views:
    """Reads the sessions of a thread; changes nothing."""

    def __init__(self, contexts: Contexts, produced: OutputStore) -> None:
        """Look at nothing yet."""
        self._contexts = contexts
        self._produced = produced
        self._store = produced.database.sessions
        self._forks = Forks(contexts, produced, lambda _: None)

    def names(self) -> Iterator[str]:
        """Yield the names of the sessions, but for those of subagents."""
        return (row.name for page in self._pages() for row in page)

    def all(self) -> Iterator[SessionInfo]:
        """Yield the sessions by name, but for those of subagents."""
        return chain.from_iterable(infos(self._produced, page) for page in self._pages())

    def _pages(self) -> Iterator[list[SessionRow]]:
        after = ""
        while page := self._store.newest(after, _PAGE_OF_SESSIONS):
            yield page
            after = page[-1].name

    def found(
        self,
        *,
        project: str | None = None,
        since: float | None = None,
        tool: str | None = None,
    ) -> list[SessionInfo]:
        """Return sessions, but for those of subagents; the one that was worked on last is first.

        `project` is a directory that their tool worked in, or above that, `since` a time in
        seconds, `tool` the name of their reader. Raises UsageError for a tool that is not known.
        """
        every = [one for one in self.all() if _is_in(one.cwd, project)]
        tools = {one.tool for one in every}
        if tool is not None and tool not in tools and tool not in READERS:
            known = ", ".join(sorted(READERS))
            raise UsageError(f"there is no tool '{tool}'", f"choose among {known}")
        wanted = (
            one
            for one in every
            if tool in (None, one.tool) and (since is None or one.active_at_ms >= since * 1000)
        )
        return sorted(wanted, key=lambda one: (-one.active_at_ms, one.name))

    def info(self, name: str) -> SessionInfo:
        """Return a session by its own name, or by that of one of its contexts.

        Raises LogicError, UnknownSessionError.
        """
        return infos(self._produced, [self._row(name)])[0]

    def glance(self, row: SessionRow) -> Glance:
        """Return what the first and last lines of a session say about it."""
        return glances_at(self._produced, [row])[row.session]

    def _row(self, name: Which) -> SessionRow:
        row = self._store.find(name) if isinstance(name, str) else None
        if row is None:
            try:
                context = self._contexts.get(name)
            except UnknownContextError as error:
                raise UnknownSessionError(error.name) from None
            row = self._forks.source(context)
        if row is None:
            raise LogicError(f"context '{name}' is of no session", "see 'eventq session ls'")
        return row

    def notes(self, name: Which) -> list[str]:
        """Return what is peculiar about the file of a session, with the numbers of its lines."""
        return self.notes_of(self._row(name))

    def notes_of(self, row: SessionRow, turn: int | None = None) -> list[str]:
        """Return the notes on a session; those on entries only of what is above a turn, with it."""
        some = Import(self._contexts, self._produced, row, lambda _: None).noted()
        path = None if turn is None else {
            one.turn_id for one in self._contexts.at(turn).replay(payload=False)
        }  # fmt: skip

        def wanted(one: LineLink) -> bool:
            return path is None or one.turn in path

        origin = reader_named(row.tool).origin(self._forks.first(row)) if turn is None else ""
        notes = [origin] if origin else []
        return [*notes, *self._raw(row, some), *of_entries(some, wanted), *of_gaps(some, wanted)]

    def _raw(self, row: SessionRow, some: Noted) -> Iterator[str]:
        """Yield the notes on lines that are kept as raw text."""
        numbers = [*some.numbers()]
        found: dict[str, list[int]] = {}
        after = -1
        while page := self._store.raw(row.session, after, _PAGE):
            for line in page:
                text = self._produced.blobs.shown(line.digest) if line.size else None
                if text is not None:
                    ended = line.after.endswith(b"\n")
                    why = lines.split(text).why + ("" if ended else ", and not ended yet")
                    found.setdefault(why, []).append(numbers[line.position])
            after = page[-1].position
        return starmap(raw, found.items())

    def raw_lines(self, row: SessionRow, limit: int = 20) -> list[tuple[int, str, str]]:
        """Return the first lines of a session that are kept as raw text: number, why, the text."""
        found = []
        for line in self._store.raw(row.session, -1, limit):
            text = self._produced.blobs.shown(line.digest) if line.size else None
            if text is not None:
                number = self._store.counts(row.session, line.position)[0] + 1
                found.append((number, lines.split(text).why, text.decode(errors="replace")))
        return found

    def title(self, name: Which) -> str | None:
        """Return the title of a session, or what was said first in it."""
        row = self._row(name)
        found = None
        after = -1
        while page := self._store.lines(row.session, after, _PAGE, without=MESSAGE):
            for one in self._titles(row, page):
                if found is None or one.rank >= max(found.rank, 0):
                    found = one
            after = page[-1].position
        if found is None:  # the first words may be in a message only
            found = next(self._titles(row, self._store.lines(row.session, -1, _PAGE)), None)
        return found.text if found and found.text else None

    def _titles(self, row: SessionRow, page: Iterable[StoredLine]) -> Iterator[Title]:
        for line in page:
            payload = self._produced.blobs.shown(line.digest) or b"{}"
            entry = (line.form != lines.RAW and lines.lenient(payload)) or {}
            if one := reader_named(row.tool).title(entry):
                yield one

    def branches(self, name: Which) -> list[SessionBranch]:
        """Return the branches of a session and of its subagents, the active one first."""
        row = self._row(name)
        found = []
        for one in (row, *self._store.beside(row.name)):
            tips = self._store.tips(one.name)
            active = next((tip for tip in tips if tip.name == one.name), None)
            for tip in sorted(tips, key=lambda tip: tip is not active):
                turns, head = self._contexts.turns, self._contexts.head(tip.context)
                shared = turns.shared(head, active.turn) if active else 0
                root = turns.ancestor(head, 0) if head else 0
                found.append(
                    SessionBranch(
                        tip.context, tip.name, one.name, self._id(one, head),
                        self._contexts.turns.depth(head) + 1 if head else 0,
                        None if tip is active else self._id(row, shared) or self._id(one, shared),
                        one.started_by, self._id(row, turns.continued(root)),
                    )
                )  # fmt: skip
        return found

    def _id(self, row: SessionRow, turn: int) -> str | None:
        return self._store.entry_of(row.session, turn) if turn else None

    def subagents(self, turns: Sequence[int], limit: int = 100) -> list[Subagent]:
        """Return the subagents that the calls in some turns have started.

        One that several sessions share, as a fork does with its source, is returned once.
        """
        found: dict[int, Subagent | None] = {}
        for one in self._store.begun(turns, limit):
            found[one.turn] = found.get(one.turn) or self._begun(one)
        return [*filter(None, found.values())]

    def _begun(self, one: Begun) -> Subagent | None:
        """Return a subagent with its context, None for one whose context is gone."""
        if one.owner is not None:
            found = self._contexts.turns.database.contexts.named(one.session)
            return Subagent(one.below, one.turn, found, one.session) if found else None
        named = f"{one.session}{AGENT}{one.agent or one.entry}"
        tips = [tip for tip in self._store.tips(one.session) if AGENT in (tip.name or "")]
        for tip in sorted(tips, key=lambda tip: tip.name != named)[:_AGENTS]:
            if tip.name == named or self._contexts.turns.is_above(one.turn, tip.turn):
                return Subagent(one.below, one.turn, tip.context, tip.name or "")
        return None

    def subagent(self, context: Context) -> Subagent | None:
        """Return where a context begins that is the branch of a subagent; None for any other."""
        row, info = self._store.of_context(context.id), context.info()
        if row is None or not info.head_turn_id:
            return None
        turns = self._contexts.turns
        if row.owner is not None:
            first = self._store.first_turn(row.session)
        elif AGENT in (info.name or ""):
            first = self._begin(row, info.head_turn_id)
        else:
            return self._started_in(row, info)
        above = turns.parent(first)
        return Subagent(above, first, info.context_id, info.name or "") if first else None

    def _started_in(self, row: SessionRow, info: ContextInfo) -> Subagent | None:
        """Return a subagent whose file is one like any other, and names the session above."""
        session, nickname = reader_named(row.tool).started_in(self._forks.first(row))
        if session is None:
            return None
        first = self._contexts.turns.ancestor(info.head_turn_id, 0)
        return Subagent(0, first, info.context_id, info.name or "", session, nickname)

    def named_in(self, text: str, limit: int = 4) -> list[Subagent]:
        """Return the subagents whose ids stand in a text, each in a session of its own."""
        found = []
        for own in dict.fromkeys(_ANY_ID.findall(text)):
            row = self._store.find(own)
            context = row and self._contexts.turns.database.contexts.named(row.name)
            one = self.subagent(self._contexts.get(context)) if context else None
            found += [one] if one is not None and one.session else []
        return found[:limit]

    def _begin(self, row: SessionRow, head: int) -> int:
        """Return the turn on the way up from a head above which is none of a subagent."""
        turns, first = self._contexts.turns, 0
        while head:
            rows = turns.rows(head, _PAGE, None)
            own = {*self._store.own(row.session, [one.turn for one in rows])}
            below = [n for n, one in enumerate(rows) if one.turn in own][-1:]
            start = below[0] + 1 if below else 0
            first = rows[start].turn if start < len(rows) else first
            head = 0 if below else rows[0].parent
        return first

    def resume(self, context: Context, row: SessionRow, thread: str) -> list[str]:
        """Return the commands with which the tool of a session goes on from a context.

        Where an import has left the session, that is the tool's own; anywhere else the file is
        written first, by a command that names the `thread`. There are none for a subagent, and
        where the tool is not known.
        """
        info, reader = context.info(), reader_named(row.tool)
        tip = next((one for one in self._store.tips(row.name) if one.context == context.id), None)
        if not info.head_turn_id or AGENT in (info.name or ""):
            return []
        stem = (row.place or "").removesuffix(".jsonl").rpartition("/")[2]
        own = _ID.search(stem) or _ID.search(row.name)
        if own and tip and (tip.name, tip.turn) == (row.name, info.head_turn_id):
            command = reader.resume(own[0])
            return [command] if command else []
        new = of_context(context, row)
        owner = self._store.find(row.owner) if row.owner else row
        folder = os.path.dirname((owner or row).place or "")
        command = "" if self._forks.refusal(row) else reader.resume(new.id)
        out = os.path.join(folder, reader.file_name(new))
        fork = ["eventq", "session", "fork", info.name or str(context.id), "--out", out]
        return [shlex.join([*fork, "--thread", thread]), command] if command else []

    def generations(self, name: Which) -> list[SessionInfo]:
        """Return the generations of a session, the oldest first."""
        row = self._row(name)
        numbers = self._store.generations(row.name)
        rows = (self._store.find(row.name, number) for number in numbers)
        return infos(self._produced, [one for one in rows if one])

    def entry(self, turn: int) -> EntryInfo:
        """Return what the entry of a turn is."""
        return self._described(self._contexts.turn(turn), self._reader(turn))

    def _reader(self, turn: int) -> Plain:
        row = self._store.of_turn(turn)
        if row is not None:
            return reader_named(row.tool)
        return reader_of([self._parsed(self._contexts.turn(turn))])  # its session is not here

    def entries(self, context: Which, warn: Callable[[str], object]) -> Iterator[bytes]:
        """Yield the text of each entry of a branch, with its images, from the root to its end.

        `warn` gets a sentence about turns that are no entries, and about blobs that are not here.
        """
        found = self._contexts.get(context)
        others = 0
        for turn in found.replay():
            text = self._forks.text(turn, warn)
            if text is None:
                others += 1
            else:
                yield as_json(text) + b"\n"
        if others:
            what = "1 turn is" if others == 1 else f"{others:,} turns are"
            warn(f"{what} no entry of a session, and left out")

    def diff(self, one: Which, other: Which) -> SessionDifference:
        """Return what each of two branches has after the last entry that they share.

        Raises LogicError when they share none, UnknownContextError.
        """
        mine, theirs = self._contexts.get(one), self._contexts.get(other)
        found = mine.diff(theirs)
        if not found.ancestor:
            raise LogicError(
                f"'{one}' and '{other}' have no entry in common",
                "give two branches of one session: see 'eventq session show NAME'",
            )
        reader = self._reader(found.ancestor)
        return SessionDifference(
            self.entry(found.ancestor),
            tuple(self._described(turn, reader) for turn in found.mine),
            tuple(self._described(turn, reader) for turn in found.theirs),
        )

    def _described(self, turn: Turn, reader: Plain) -> EntryInfo:
        entry = self._parsed(turn)
        link = reader.link(entry)
        found = said_by(entry)
        kind = found.kind or found.role or string(entry, "type") or turn.type_id
        is_told = any(not isinstance(block, Data) for block in found.blocks)
        shown = found.line(_EXCERPT) if is_told else None
        return EntryInfo(turn.turn_id, link.id if link else None, kind or None, shown or None)

    def _parsed(self, turn: Turn) -> Entry:
        """Return the entry of a turn, images left out; an empty one for any other turn."""
        payload = self._contexts.turns.shown(turn) if turn.type_id in OF_LINES else None
        return lines.lenient(payload or b"") or {}


def _is_in(cwd: str | None, project: str | None) -> bool:
    """Return whether a directory is another one, or below it, as either is spelled."""
    if project is None:
        return True
    above = {os.path.join(one, "") for one in (os.path.abspath(project), os.path.realpath(project))}
    return cwd is not None and os.path.join(cwd, "").startswith(tuple(above))
