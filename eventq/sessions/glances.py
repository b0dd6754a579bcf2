"""What tells a session from others: its title, its first words, where and when it was worked on.

Only the first and last lines of each file are read, so that a thousand sessions are listed in a
second. Tools write their titles there again and again, for their own lists.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from eventq import said
from eventq.records.session import SessionInfo
from eventq.said.values import mapping, string, time_of
from eventq.sessions import lines
from eventq.sessions.imports import grouped
from eventq.sessions.links import MESSAGE
from eventq.sessions.reading import reader_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventq.output.output_store import OutputStore
    from eventq.sessions.links import Entry, Title
    from eventq.store.session_rows import EdgeLine, SessionRow

EDGE = 24  # lines at each end of a file
_LONGEST = 64 << 10  # bytes of a line that is read
_SHORT = 2 << 10  # bytes of a line that may have a title
_FIRST, _LAST = 8, 3  # lines that are read at each end, besides those that may have a title
_EXCERPT = 200  # characters


class Glance:
    """What a few entries of a session say about it."""

    def __init__(self, tool: str) -> None:
        """Know nothing yet."""
        self._reader = reader_named(tool)
        self._title: Title | None = None
        self.prompt: str | None = None
        self.cwd: str | None = None
        self.branch: str | None = None  # of Git, there
        self.version: str | None = None  # of the tool
        self.at: int | None = None

    def take(self, entry: Entry) -> None:
        """Look at an entry, which stands behind those before."""
        reader = self._reader
        found = reader.title(entry)
        if found is not None and (self._title is None or found.rank >= self._title.rank):
            self._title = found
        self.prompt = self.prompt or _prompt(entry)
        self.cwd = self.cwd or reader.cwd(entry)
        inside = mapping(entry, "payload")
        git = string(mapping(inside, "git"), "branch")
        self.branch = string(entry, "gitBranch") or git or self.branch
        self.version = string(entry, "version") or string(inside, "cli_version") or self.version
        at = time_of(entry)
        self.at = self.at if at is None else max(at, self.at or at)

    @property
    def title(self) -> str | None:
        """The title of the highest rank, the last one of those."""
        return _excerpt(self._title.text) if self._title else None


def glances_at(produced: OutputStore, rows: Sequence[SessionRow]) -> dict[int, Glance]:
    """Return what the first and last lines of some sessions say about each."""
    store = produced.database.sessions
    numbers = [row.session for row in rows]
    glances = {row.session: Glance(row.tool) for row in rows}
    for group in grouped(_chosen(store.edges(numbers, EDGE))):
        payloads = produced.blobs.shown_many([line.digest for line in group])
        for line in group:
            entry = lines.lenient(payloads.get(line.digest, b""))
            if entry:
                glances[line.session].take(entry)
    return glances


def infos(produced: OutputStore, rows: Sequence[SessionRow]) -> list[SessionInfo]:
    """Return what is known of some sessions."""
    store = produced.database.sessions
    numbers = [row.session for row in rows]
    glances = glances_at(produced, rows)
    counts = {count.session: count for count in store.outlines(numbers)}
    made = []
    for row in rows:
        glance, count = glances[row.session], counts[row.session]
        at = count.updated_at if glance.at is None else glance.at
        made.append(
            SessionInfo(
                row.name, row.tool, row.generation, count.lines, row.size, count.branches,
                count.agents, row.place, count.updated_at, glance.title, glance.prompt, glance.cwd,
                at, count.turns,
            )
        )  # fmt: skip
    return made


def _chosen(edges: Sequence[EdgeLine]) -> Iterator[EdgeLine]:
    """Yield those lines of each session that may say anything, in order."""
    for _, found in groupby(edges, attrgetter("session")):
        rows = [one for one in found if one.form != lines.RAW and one.size <= _LONGEST]
        first = [one for one in rows if one.position < EDGE and one.kind & MESSAGE]
        wanted = {one.position for one in (*rows[:2], *first[:_FIRST], *rows[-_LAST:])}
        wanted |= {one.position for one in [one for one in rows if one.kind & MESSAGE][-_LAST:]}
        for one in rows:
            if one.position in wanted or (one.size <= _SHORT and not one.kind & MESSAGE):
                yield one


def _prompt(entry: Entry) -> str | None:
    """Return the beginning of what a person wrote in an entry; None for any other."""
    found = said.of(entry)
    is_prompt = found.role == "user" and not found.kind and not found.name
    return _excerpt(found.line(_EXCERPT)) if is_prompt else None


def _excerpt(text: str | None) -> str | None:
    """Return the beginning of a text on one line; None for none."""
    return " ".join((text or "")[: 4 * _EXCERPT].split())[:_EXCERPT] or None
