"""Import a session file: each line a row, each entry a turn under the one that it names.

Lines are stored some MiB a transaction as they are read, then the turns of all that have none yet,
and last the tips of the branches as contexts. Whatever interrupts it, an import that follows goes
on from there.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import chain, count
from typing import Generic, NamedTuple, TypeVar

from eventq.errors import ConflictError, TooLargeError, UnknownBlobError, UnknownTurnError
from eventq.records.checks import REF
from eventq.sessions import lines, tree
from eventq.sessions.counting import Tally, count_session
from eventq.sessions.links import (
    CALLS,
    CONTINUES,
    KEEPS,
    MORE,
    ODD,
    REST,
    RESULT,
    Link,
    is_node,
    message_text,
)
from eventq.sessions.notes import Noted, of_gaps
from eventq.sessions.reading import reader_named
from eventq.sessions.salvage import ROWS, pieces
from eventq.store.session_rows import NewLine
from eventq.store.turn_rows import GoneError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any, BinaryIO

    from eventq.memory.contexts import Contexts
    from eventq.output.output_store import OutputStore
    from eventq.sessions.links import Entry, Kept
    from eventq.sessions.plain import Plain
    from eventq.store.engine import Engine
    from eventq.store.session_rows import EdgeLine, LineLink, SessionRow, StoredLine, Tip
    from eventq.store.turn_rows import PreparedBlob
    from eventq.store.usage_rows import Figure

    Fetch = Callable[[str], bytes | None]

OF_LINES = ("session/entry", "session/line")  # types of turns; only older versions made the second
LONGEST = 128 << 20  # bytes of a line
BATCH_BYTES = 2 << 20  # of lines that share a transaction
BATCH_LINES = 4_000
BATCH_TURNS = 10_000  # turns that share a transaction
_NO_LINK = Link(None)
_EVER = 1 << 62
_MISSING = 1_000  # parents that no line has, with which a file is built anew each time
_RULES = 2  # by which links were made: they are made anew where an older version has done it
_PAGE = 500
_SHORT = 8  # characters of an entry's id in the name of its branch
LONG = 36  # if that is taken, and of the id of a subagent


class OvertakenError(ConflictError):
    """Somebody else has imported the same session meanwhile."""

    def __init__(self, name: str) -> None:
        """Name the session."""
        what = f"somebody else imports '{name}' at the same time, again and again"
        super().__init__(what, "import it when they have finished", 0)


class Read(NamedTuple):
    """What an import has read: how many entries there are, and which of them are new.

    A line without an entry is counted as one.
    """

    entries: int
    new: int
    first: int  # the position of the first new one
    raw: dict[str, list[int]]  # numbers of the new lines that are no entries, by what is wrong
    found: dict[int, int]  # how many entries each new line has that is not just one
    rest: int  # how many of these have anything else


class Known(NamedTuple):
    """What is known of the lines before a settled one; nothing, where there is no such line."""

    parents: frozenset[str] = frozenset()  # that no line has
    until: int | None = None  # when the last entry without its parent was written, not above it

    @classmethod
    def read(cls, text: str | None) -> Known | None:
        """Return what was written; None for nothing, and for what older versions wrote."""
        found = None if text is None else json.loads(text)
        if not isinstance(found, dict) or found.get("rules") != _RULES:
            return None
        return cls(frozenset(found["parents"]), found["until"])

    def written(self) -> str:
        """Return a text for `read`."""
        return json.dumps({"rules": _RULES, "parents": sorted(self.parents), "until": self.until})


class Part(NamedTuple):
    """The lines of a session from one on, and the tree of these; positions in it count from 0."""

    first: int
    rows: Sequence[LineLink]
    links: Sequence[Link | None]
    tree: tree.Tree
    places: list[int]  # those of the tree, and subagents under what started them
    turns: list[int]
    placed: set[int]  # the positions of entries that have another turn now

    def repeated(self, start: int) -> int:
        """Return how many lines from a position on have the id of an earlier one."""
        seen: set[str] = set()
        found = 0
        for position, link in enumerate(self.links, self.first):
            if link and link.id is not None:
                found += position >= start and link.id in seen
                seen.add(link.id)
        return found


_Item = TypeVar("_Item")
_Line = TypeVar("_Line", "StoredLine", "EdgeLine")


class Ahead(Generic[_Item]):
    """Iterates over what is made in another thread, while this one waits for the disk."""

    def __init__(self, given: Iterator[_Item]) -> None:
        """Begin nothing yet."""
        self._given = given
        self._pool: ThreadPoolExecutor | None = None
        self._next: Future[_Item | None] | None = None

    def __enter__(self) -> Ahead[_Item]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self) -> None:
        """Begin to make the next one."""
        if self._next is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = self._pool or ThreadPoolExecutor(1)
            self._next = self._pool.submit(next, self._given, None)

    def __iter__(self) -> Iterator[_Item]:
        """Yield them; one that has not been begun is made here."""
        while True:
            found = next(self._given, None) if self._next is None else self._next.result()
            self._next = None
            if found is None:
                return
            yield found


class Import:
    """One import of one file into a session."""

    def __init__(
        self,
        contexts: Contexts,
        produced: OutputStore,
        row: SessionRow,
        fetch: Fetch,
        base: int = 0,
        source: SessionRow | None = None,
    ) -> None:
        """Go on with a generation of a session; `fetch` finds the blobs of other tools' refs.

        Its roots hang under the turn `base`. It may begin with a copy of `source`.
        """
        self._contexts = contexts
        self._produced = produced
        self._database = produced.database
        self._store = produced.database.sessions
        self._row = row
        self._reader: Plain = reader_named(row.tool)
        self._fetch = fetch
        self._base = base
        self._source = source
        self.new_blobs = 0  # that were stored of images
        self._first_new = row.lines  # the first line that was read here
        self._tally = Tally(self._database, produced.blobs, row, row.lines)

    # --- lines ------------------------------------------------------------------------------------

    def read(self, file: Iterable[bytes], hasher: Any) -> Read:
        """Store the lines of a file, from where the session ends, in place of an unfinished one.

        `hasher` has taken the bytes before.
        """
        unended = self._store.unended(self._row.session, self._row.lines, ROWS)
        start = self._row.lines - len(unended)
        number, entries = self._store.counts(self._row.session, start)
        read = Read(entries, 0, start, {}, {}, 0)
        given = iter(file)
        first = next(given, b"")
        if unended and first == b"".join(bytes_of(self._produced, unended, lambda _: None)):
            total = self._store.counts(self._row.session, self._row.lines)[1]
            return read._replace(entries=total, first=self._row.lines)
        if not first:
            if unended:  # what had not ended was cut off
                self._store_lines(start, [], [], hasher, bool)
            return read
        position = self._first_new = start
        self._tally = Tally(self._database, self._produced.blobs, self._row, start)
        with Ahead(map(self._split, _batches(chain([first], given)))) as batches:
            for batch, split in batches:
                for parts in split:
                    number += 1
                    read = _noted(read, number, parts)
                rows = [one for parts in split for one in parts]
                new = self._store_lines(position, batch, rows, hasher, batches.begin)
                for at, (row, line) in enumerate(zip(rows, new, strict=True), position):
                    self._tally.line(
                        at, row.entry, is_node=line.is_node, agent=line.agent is not None
                    )
                position += len(rows)
        return read._replace(entries=entries + read.new)

    def _split(self, batch: list[bytes]) -> tuple[list[bytes], list[list[lines.Line]]]:
        return batch, [pieces(one, self._reader.is_record) for one in batch]

    def _store_lines(
        self,
        first: int,
        batch: list[bytes],
        rows: list[lines.Line],
        hasher: Any,
        begin: Callable[[], object],
    ) -> list[NewLine]:
        """Store lines, and return them; they need not be on the disk before the import's end."""
        ended = batch if not batch or batch[-1].endswith(b"\n") else batch[:-1]
        size = self._row.size + sum(map(len, ended))
        hasher.update(b"".join(ended))
        for last_try in (False, True):
            ready = self._prepared(rows)
            try:
                with self._database.write(relaxed=True):
                    begin()
                    found = self._store.grow(self._row, first, ready, size, hasher.digest())
                break
            except (GoneError, UnknownBlobError):  # to a collection
                if last_try:
                    raise
        if found is None:
            raise OvertakenError(self._row.name)
        self._row, new = found
        self.new_blobs += new
        return ready

    def _prepared(self, rows: list[lines.Line]) -> list[NewLine]:
        """Return lines as they are stored, with their images; fetch what is elsewhere."""
        images: list[list[PreparedBlob]] = [[] for _ in rows]
        packed = [
            lines.pack(line, partial(self._image, into)) if line.images else lines.pack(line, _none)
            for line, into in zip(rows, images, strict=True)
        ]
        fetched: dict[str, bytes | None] = {}
        if foreign := {ref for one in packed for ref in one.foreign}:
            with self._database.write():
                fetched = {ref: self._fetch(ref) for ref in sorted(foreign)}
        return [
            self._new_line(line, one, into, [*filter(None, map(fetched.get, one.foreign))], marks)
            for line, one, into, marks in zip(rows, packed, images, _marks(rows), strict=True)
        ]

    def _image(self, into: list[PreparedBlob], data: bytes) -> str:
        blob = self._produced.blobs.prepare(data, mentions=False).blob
        into.append(blob)
        return REF + blob.digest.hex()

    def _new_line(
        self,
        line: lines.Line,
        packed: lines.Packed,
        images: list[PreparedBlob],
        refs: list[bytes],
        marks: int,
    ) -> NewLine:
        blob = self._produced.blobs.prepare(packed.payload, refs or ()).blob
        link = self._reader.link(line.entry) if line.entry is not None else None
        own, parent, kind, response, agent = (link or _NO_LINK)[:5]
        if link is not None and link.continues:
            parent, marks = link.continues, marks | CONTINUES
        return NewLine(
            blob, packed.form, line.before, line.after, link is not None,
            own and _text(own), parent and _text(parent), kind | marks,
            response and _text(response), agent and _text(agent), images,
        )  # fmt: skip

    # --- turns ------------------------------------------------------------------------------------

    def place(self) -> Part:
        """Make a turn of each entry, under that of the entry before it; return what was looked at.

        That is the end of the file, if the rest has no say in it, or else all of it.
        """
        if self._source is not None:
            self._share(self._source)
            part = self._whole()
        else:
            part = self._grown() or self._whole()
        turns = [row.turn or 0 for row in part.rows]
        todo = [
            (part.first + n, part.first + above if above >= 0 else tree.ROOT, part.rows[n].turn)
            for n, above in _to_place(part, turns, self._base)
        ]
        new = self._first_new
        late = min((n for n, _, was in todo if was is None and n < new), default=new)
        count = _Count(self._database, self._row, new, late, self._tally.figures())
        for n in range(0, len(todo), BATCH_TURNS):
            nodes = todo[n : n + BATCH_TURNS]
            try:
                with self._database.write(relaxed=True):
                    made = self._store.place(self._row.session, nodes, self._base)
                    count.note(nodes, is_last=n + BATCH_TURNS >= len(todo))
            except UnknownTurnError as error:
                raise OvertakenError(self._row.name) from error
            for (position, _, _), turn in zip(nodes, made, strict=True):
                turns[position - part.first] = turn
        if not todo:
            count.finish()
        if count.is_behind:
            count_session(self._database, self._produced.blobs, self._row, count.done)
        return part._replace(turns=turns, placed={position for position, _, _ in todo})

    def _share(self, source: SessionRow) -> None:
        """Take the turns of the session that this one begins with a copy of.

        What hangs elsewhere nevertheless gets a turn of its own when it is placed.
        """
        theirs = self._nodes(source.session)
        shared = []
        for line, entry in self._nodes(self._row.session):
            turn = next((one.turn for one, said in theirs if said == entry), None)
            if turn is None:
                break
            shared.append((turn, line.position))
        self._store.take_over(self._row.session, shared)

    def _nodes(self, session: int) -> Iterator[tuple[StoredLine, Entry]]:
        """Yield the lines of a log whose entries are nodes, with what a copy has of them."""
        after = -1
        while page := self._store.lines(session, after, _PAGE):
            for group in grouped(page):
                payloads = self._produced.blobs.shown_many([line.digest for line in group])
                for line in group:
                    entry = lines.lenient(payloads.get(line.digest, b"")) or {}
                    link = self._reader.link(entry) if line.form != lines.RAW else None
                    if link is not None and is_node(link):
                        yield line, self._reader.copied(entry)
            after = page[-1].position

    def _whole(self) -> Part:
        some = self.noted()
        places = self._with_agents(some.links, some.tree)
        return Part(0, some.rows, some.links, some.tree, places, [], set())

    def noted(self) -> Noted:
        """Return all rows of the session, and their tree."""
        rows = [*self._store.links(self._row.session)]
        links = [_link(row) for row in rows]
        if kept := self._kept(links):
            links = tree.relinked(links, kept)
        found = tree.build(links, last_is_leaf=self._reader.last_is_leaf)
        if self._reader.closes_gaps and tree.lost(links, found):
            links = [*self._dated(links, 0)]
            found = tree.build(links, last_is_leaf=self._reader.last_is_leaf)
        return Noted(1, rows, links, found)

    def _kept(self, links: Sequence[Link | None]) -> dict[int, Kept]:
        """Return what compactions have kept, by the positions of their entries."""
        keep = [n for n, link in enumerate(links) if link and link.kind & KEEPS]
        return {n: one for n in keep if (one := self._reader.kept(self._entry(n)))}

    def gaps(self, part: Part) -> list[str]:
        """Return the notes on entries of a part that were placed, and whose parents are missing."""
        number = self._store.counts(self._row.session, part.first)[0] + 1
        links = tree.rooted(part.links) if part.first else part.links
        return of_gaps(
            Noted(number, part.rows, links, part.tree), lambda row: row.position in part.placed
        )

    def _dated(self, links: Iterable[Link | None], first: int) -> Iterator[Link | None]:
        """Yield links with the times of their entries; the first one is that of a position."""
        given = iter(links)
        after = first - 1
        while page := self._store.lines(self._row.session, after, _PAGE):
            for group in grouped(page):
                payloads = self._produced.blobs.shown_many([line.digest for line in group])
                for line in group:
                    link = next(given)
                    entry = link and lines.lenient(payloads.get(line.digest, b""))
                    yield link._replace(at=self._reader.at(entry)) if link and entry else link
            after = page[-1].position

    def _grown(self) -> Part | None:
        """Return the end of the file with what is new, None if the rest has a say in it."""
        first, known = self._row.settled, Known.read(self._row.missing)
        if first is None or known is None or self._base:
            return None
        if not self._store.tips(self._row.name):  # they were deleted: all come back
            return None
        rows = [*self._store.links(self._row.session, first)]
        links = [_link(row) for row in rows]
        found = tree.ending(links, last_is_leaf=self._reader.last_is_leaf)
        if found is None:
            return None
        end, ids = found
        if not ids.isdisjoint(known.parents) or self._may_close(known, first, links, end):
            return None
        if self._store.has_any(self._row.session, first, ids):
            return None
        return Part(first, rows, links, end, end.places, [], set())

    def _may_close(
        self, known: Known, first: int, links: list[Link | None], end: tree.Tree
    ) -> bool:
        """Return whether the end of a file has a gap, or may close one that is before it."""
        gaps = self._reader.closes_gaps and tree.lost(tree.rooted(links), end)
        if not self._reader.closes_gaps or not (known.parents or gaps):
            return False
        if gaps:
            return True
        times = (link.at for link in self._dated(links, first) if link and link.at is not None)
        return known.until is not None and any(at <= known.until for at in times)

    def _settle(self, part: Part) -> None:
        """Note from where on the tree has to be built next time."""
        first = tree.settled(part.links, part.tree)
        if part.first and first is None:
            return
        known = Known.read(self._row.missing) if part.first else None
        missing = tree.unknown(tree.rooted(part.links) if known else part.links, part.tree)
        missing |= known.parents if known else frozenset()
        if first is None or len(missing) > _MISSING:
            now, text = None, Known().written()
        else:
            until = known.until if known else _until(part, first)
            now, text = part.first + first, Known(frozenset(missing), until).written()
        if (now, text) != (self._row.settled, self._row.missing):
            self._store.settle(self._row.session, now, text)

    def _with_agents(self, links: Sequence[Link | None], found: tree.Tree) -> list[int]:
        """Return the places, those of subagents under the entries that started them."""
        if not found.agents:
            return found.places
        begun = tree.starts(
            links, found, self._spawns(links), lambda n: message_text(self._entry(n))
        )
        return tree.hung(found, begun)

    def _spawns(self, links: Iterable[Link | None]) -> tree.Spawns:
        calls = (n for n, link in enumerate(links) if link and link.kind & (CALLS | RESULT))
        return tree.Spawns((n, one) for n in calls for one in self._reader.spawns(self._entry(n)))

    def spawns(self) -> tuple[list[str | None], tree.Spawns]:
        """Return the ids of all lines, and the starts of subagents that they know of."""
        rows = [*self._store.links(self._row.session)]
        return [row.entry for row in rows], self._spawns(map(_link, rows))

    def _entry(self, position: int) -> dict[str, Any]:
        (line,) = self._store.lines(self._row.session, position - 1, 1)
        payload = self._produced.blobs.shown(line.digest) or b""
        return lines.lenient(payload) or {}  # a pack may hold anything

    # --- tips -------------------------------------------------------------------------------------

    def show(self, part: Part, scope: int | None = None) -> int:
        """Make contexts of the tips, and remove those that were tips before; return the main one.

        They are in a scope, by default one of their own. A head moves from the turn where an import
        has left it only. Raises ConflictError.
        """
        with self._database.write():
            now = self._store.find(self._row.name)
            if now is None or now[0] != self._row[0] or now.lines != self._row.lines:
                raise OvertakenError(self._row.name)  # it may have other tips by now
            was = {one.context: one for one in self._store.tips(self._row.name)}
            kept = {context: one for context, one in was.items() if self._is_before(one, part)}
            wanted = self._wanted(part, {one.name for one in kept.values()}, was)
            main = self._context(self._row.name, wanted.pop(self._row.name, 0), was)
            if scope is None:
                scope = self._database.scopes.of_context(main)
            else:
                self._database.scopes.assign(main, scope)
            here = {main, *kept}
            for name, turn in wanted.items():
                context = self._context(name, turn, was)
                self._database.scopes.assign(context, scope)
                self._store.set_tip(context, self._row.session)
                here.add(context)
            self._store.set_tip(main, self._row.session)
            for context in was.keys() - here:
                self._check_unmoved(was[context], self._contexts.head(context))
                self._contexts.get(context).delete()
            self._settle(part)
        return main

    def _is_before(self, tip: Tip, part: Part) -> bool:
        """Return whether a tip is in the part of the file that was not looked at again."""
        is_here = tip.session == self._row.session and tip.position is not None
        return is_here and (tip.position or 0) < part.first

    def _wanted(self, part: Part, kept: set[str | None], was: Collection[int]) -> dict[str, int]:
        """Return the turn of each tip by the name of its context."""
        taken = kept | {row.name for row in self._store.beside(self._row.name)}

        def is_taken(name: str) -> bool:
            """Return whether a name is that of another tip, or of a context that is none."""
            if name in taken or name in wanted:
                return True
            other = self._database.contexts.named(name)
            return other is not None and other not in was

        name, found = self._row.name, part.tree
        wanted = {} if found.active is None else {name: part.turns[found.active]}
        for tip in found.tips:
            if tip != found.active:
                own = part.rows[tip][2] or f"line-{part.rows[tip][0] + 1}"
                wanted[free_name(f"{name}/", own, _SHORT, is_taken)] = part.turns[tip]
        for agent, one in found.agents.items():
            free = free_name(f"{name}/agent-", agent, LONG, is_taken)
            wanted[free] = part.turns[one.tip]
        return wanted

    def _context(self, name: str, turn: int, was: dict[int, Tip]) -> int:
        """Return the context of a name, with its head at a turn."""
        context = self._database.contexts.named(name)
        if context is None:
            return self._contexts.create(name, base=turn).id
        head = self._contexts.head(context)
        if head == turn:
            return context
        if context not in was and head and not self._is_of_an_older_import(head):
            raise ConflictError(
                f"context '{name}' is no session that was imported", "import it --as another", head
            )
        if context in was:
            self._check_unmoved(was[context], head)
        self._contexts.get(context).move(turn, expected_head=head)
        return context

    def _check_unmoved(self, tip: Tip, head: int) -> None:
        """Raise ConflictError for a tip whose head is not where an import has left it."""
        if head != tip.turn:
            raise ConflictError(
                f"somebody else has moved context '{tip.name or tip.context}', which is a tip of"
                " the session",
                "fork it under another name and move it back, or import the file --as another",
                head,
            )

    def _is_of_an_older_import(self, head: int) -> bool:
        """Return whether a turn is a line, as versions before made it; they were compared."""
        return self._contexts.turn(head, payload=False).type_id in OF_LINES


class _Count:
    """What new lines of a session say that responses took, noted as their turns are made.

    What an interrupted import or an older version has left is counted later, some at a time.
    """

    def __init__(
        self, database: Engine, row: SessionRow, first: int, late: int, figures: Sequence[Figure]
    ) -> None:
        """Take the first new line, the first before it that had no turn, and what the new ones say.

        What was counted while a line had no turn left it out.
        """
        self._database = database
        self._row = row
        self._left: dict[int, list[Figure]] = {}
        for one in figures:
            self._left.setdefault(one.position, []).append(one)
        self._counted = database.usage.read_of(row.session)
        self.done = min(self._counted, late)  # lines that were counted before
        self.is_behind = self.done < first

    def note(self, nodes: Iterable[tuple[int, int, int | None]], *, is_last: bool) -> None:
        """Note what the lines say that have turns now, inside `write`; at last all there is.

        The rest counts for entries that had their turns before.
        """
        places = [*self._left] if is_last else [node[0] for node in nodes]
        some = [one for position in places for one in self._left.pop(position, ())]
        upto = self._row.lines if is_last and not self.is_behind else None
        if self.done < self._counted:
            self._database.usage.again(self._row.session, self.done)
        self._database.usage.of_session(self._row.session, some, upto)

    def finish(self) -> None:
        """Note what is left where no line has got a turn."""
        if self._left or self.done < self._row.lines:
            with self._database.write(relaxed=True):
                self.note((), is_last=True)


def bytes_of(
    produced: OutputStore, page: Iterable[StoredLine], warn: Callable[[str], object]
) -> Iterator[bytes]:
    """Yield the bytes that lines were read from; the payloads of short ones are read together."""
    for group in grouped(page):
        payloads = produced.blobs.shown_many([line.digest for line in group])
        for line in group:
            text = lines.unpack(line.form, payloads.get(line.digest, b""), produced.get, warn)
            yield line.before + text + line.after


def grouped(page: Iterable[_Line]) -> Iterator[list[_Line]]:
    """Yield lines in groups whose payloads have some MiB."""
    group: list[_Line] = []
    size = 0
    for line in page:
        if group and size + line.size > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(line)
        size += line.size
    if group:
        yield group


def _until(part: Part, settled: int) -> int | None:
    """Return when the last entry was written that lacks its parent and is not above a node."""
    above = {*tree.path(part.tree.parents, settled)}
    gaps = (part.links[n] for n in tree.lost(part.links, part.tree) if n not in above)
    return max((_EVER if link.at is None else link.at for link in gaps if link), default=None)


def _link(row: LineLink) -> Link | None:
    if not row.is_node:
        return None
    if row.kind & CONTINUES:
        return Link(row.entry, None, row.kind, row.response, row.agent, continues=row.parent)
    return Link(row.entry, row.parent, row.kind, row.response, row.agent)


def free_name(begin: str, own: str, short: int, is_taken: Callable[[str], bool]) -> str:
    """Return the name of a context: the beginning of an id, or more of it if that is taken."""
    own = "".join(c if c.isprintable() else "_" for c in own)
    numbered = (f"{own[:LONG]}~{n}" for n in count(2))
    names = (begin + end for end in chain((own[:short], own[:LONG]), numbered))
    return next(name for name in names if not is_taken(name))


def _to_place(part: Part, turns: Sequence[int], base: int) -> Iterator[tuple[int, int]]:
    """Yield each node whose turn is not under that of its place, parents first, and the place.

    What comes before a part is settled, and so is its first node, unless it begins the file.
    """
    rows, places = part.rows, part.places
    moved = bytearray(len(rows))
    for n in _parents_first(places):
        above = places[n]
        parent = turns[above] if above >= 0 else base
        if part.first and n == 0:
            continue
        if not turns[n] or rows[n].turn_parent != parent or (above >= 0 and moved[above]):
            moved[n] = 1
            yield n, above


def _parents_first(places: Sequence[int]) -> Iterator[int]:
    seen = bytearray(len(places))
    for start in range(len(places)):
        above = []
        node = start
        while node >= 0 and places[node] != tree.ABSENT and not seen[node]:
            seen[node] = 1
            above.append(node)
            node = places[node]
        yield from reversed(above)


def _text(text: str) -> str:
    """Return a text as every engine stores it: escape an unpaired surrogate, and NUL."""
    text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _none(_: bytes) -> str:
    raise AssertionError


def _marks(rows: Sequence[lines.Line]) -> Iterator[int]:
    """Yield the flags of rows that say how they are parts of their lines."""
    after_more = False
    for row in rows:
        more = not row.after.endswith(b"\n") and row is not rows[-1]
        part = more or after_more
        rest = REST if row.entry is None and part else 0
        yield (MORE if more else 0) | rest | (ODD if row.entry is not None and row.why else 0)
        after_more = more


def _noted(read: Read, number: int, parts: list[lines.Line]) -> Read:
    """Return what was read with another line."""
    entries = [one for one in parts if one.entry is not None]
    last = parts[-1]
    if not entries:
        if last.why != "empty":
            why = last.why if last.after.endswith(b"\n") else f"{last.why}, and not ended yet"
            read.raw.setdefault(why, []).append(number)
    elif len(parts) > 1 or last.why:
        read.found[number] = len(entries)
    rest = len(entries) not in (0, len(parts))
    return read._replace(new=read.new + max(len(entries), 1), rest=read.rest + rest)


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; raise TooLargeError for a longer one before it is held.

    A line that has not ended is the last one, even if the file has grown by then: it would be torn.
    """
    line = b"\n"
    while line.endswith(b"\n") and (line := file.readline(LONGEST + 1)):
        if len(line) > LONGEST:
            raise TooLargeError(
                None, LONGEST, "line", "give a session file, which has a line for each entry"
            )
        yield line


def _batches(file: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield lines in groups of some MiB."""
    batch: list[bytes] = []
    size = 0
    for line in file:
        batch.append(line)
        size += len(line)
        if size >= BATCH_BYTES or len(batch) >= BATCH_LINES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
