"""What is known of the session files that a thread keeps, and of the branches of each."""

from __future__ import annotations

from itertools import starmap

from eventq.errors import LogicError, UnknownContextError, UnknownSessionError
from eventq.records.session import EntryInfo, SessionBranch, SessionDifference, SessionInfo
from eventq.sessions import lines
from eventq.sessions.forks import Forks, as_json
from eventq.sessions.imports import OF_LINES, Import
from eventq.sessions.links import MESSAGE
from eventq.sessions.notes import of_entries, of_gaps, raw
from eventq.sessions.reading import reader_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq.memory.contexts import Contexts
    from eventq.output.output_store import OutputStore
    from eventq.records.turn import Turn
    from eventq.sessions.links import Entry, Title
    from eventq.sessions.notes import Noted
    from eventq.sessions.plain import Plain
    from eventq.store.session_rows import LineLink, SessionRow, StoredLine

    Which = int | str

_PAGE = 500
_EXCERPT = 80  # characters of an entry's text


class Views:
    """Reads the sessions of a thread; changes nothing."""

    def __init__(self, contexts: Contexts, produced: OutputStore) -> None:
        """Look at nothing yet."""
        self._contexts = contexts
        self._produced = produced
        self._store = produced.database.sessions
        self._forks = Forks(contexts, produced, lambda _: None)

    def all(self) -> Iterator[SessionInfo]:
        """Yield the sessions by name, but for those of subagents."""
        after = ""
        while page := self._store.newest(after, _PAGE):
            for name in page:
                yield self.info(name)
            after = page[-1]

    def info(self, name: str) -> SessionInfo:
        """Return a session by its own name, or by that of one of its contexts.

        Raises LogicError, UnknownSessionError.
        """
        return self._info(self._row(name))

    def _info(self, row: SessionRow) -> SessionInfo:
        beside = self._store.beside(row.name)
        updated = self._store.updated_at(row.session)
        count = self._store.counts(row.session, row.lines)[0]
        return SessionInfo(
            row.name, row.tool, row.generation, count, row.size,
            len(self._store.tips(row.name)), len(beside), row.place, updated,
        )  # fmt: skip

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

        return [*self._raw(row, some), *of_entries(some, wanted), *of_gaps(some, wanted)]

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
                head = self._contexts.head(tip.context)
                shared = self._contexts.turns.common(head, active.turn) if active else 0
                found.append(
                    SessionBranch(
                        tip.context, tip.name, one.name, self._id(one, head),
                        self._contexts.turns.depth(head) + 1 if head else 0,
                        None if tip is active else self._id(row, shared) or self._id(one, shared),
                        one.started_by,
                    )
                )  # fmt: skip
        return found

    def _id(self, row: SessionRow, turn: int) -> str | None:
        return self._store.entry_of(row.session, turn) if turn else None

    def generations(self, name: Which) -> list[SessionInfo]:
        """Return the generations of a session, the oldest first."""
        row = self._row(name)
        numbers = self._store.generations(row.name)
        rows = (self._store.find(row.name, number) for number in numbers)
        return [self._info(one) for one in rows if one]

    def entry(self, turn: int) -> EntryInfo:
        """Return what the entry of a turn is."""
        return self._described(self._contexts.turn(turn), self._reader(turn))

    def _reader(self, turn: int) -> Plain:
        row = self._store.of_turn(turn)
        return reader_named(row.tool if row else "")

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
        kind = reader.kind(entry) or turn.type_id
        text = reader.text(entry)
        shown = None if text is None else " ".join(text[: 4 * _EXCERPT].split())[:_EXCERPT]
        return EntryInfo(turn.turn_id, link.id if link else None, kind or None, shown)

    def _parsed(self, turn: Turn) -> Entry:
        """Return the entry of a turn, images left out; an empty one for any other turn."""
        payload = self._contexts.turns.shown(turn) if turn.type_id in OF_LINES else None
        return lines.lenient(payload or b"") or {}
