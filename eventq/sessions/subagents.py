"""The sessions of subagents, whose files stand in the folder beside that of their session."""

from __future__ import annotations

import json
import os
import posixpath

from eventq.record import Record
from eventq.sessions.imports import LONG, free_name
from eventq.sessions.links import Start, message_text
from eventq.sessions.reading import reader_named
from eventq.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eventq.sessions.links import Beside, Entry
    from eventq.sessions.tree import Spawns
    from eventq.store.session_rows import SessionRow
    from eventq.store.sessions import Sessions

    Index = tuple[list[str | None], Spawns]

_SIDECAR_BYTES = 1 << 20
_ENDING = ".jsonl"
AGENTS = "subagents"  # a folder in that of a session, of Claude Code


class Agent(Record):
    """A subagent's file, what it is called here, and where it began."""

    path: str  # in the folder
    name: str
    parent: str  # the name of the session that started it
    started_by: str | None  # the id of the entry there


class Agents:
    """The subagents in the folder of a session, those that start others first."""

    def __init__(
        self,
        store: Sessions,
        owner: SessionRow,
        folder: str,
        spawns: Callable[[str], Index],
        first: Callable[[str], Entry | None],
        is_context: Callable[[str], bool],
    ) -> None:
        """Look at nothing yet.

        `spawns` returns for the name of a session the ids of its entries, and the starts that they
        know of; `first` returns the first entry of a file, None for one that is no session;
        `is_context` whether a name is taken already.
        """
        self._store = store
        self._owner = owner
        self._folder = folder
        self._read_spawns = spawns
        self._first = first
        self._is_context = is_context
        self._reader = reader_named(owner.tool)
        self._found: dict[str, Beside] = {}
        self._by_id: dict[str | None, str] = {}
        self._starts: dict[str | None, Start] = {}
        self._known = {row.path: row for row in store.beside(owner.name)}
        self._taken = {row.name for row in self._known.values()}
        self._spawns: dict[str, Index] = {}

    def find(self, paths: Iterable[str]) -> list[str]:
        """Return which of the files in the folder are sessions, those above others first."""
        for path in sorted(paths, key=lambda path: (path.count("/"), path)):
            beside = self._reader.folder(path)
            if beside.kind == "session":
                self._found[path] = beside
                self._by_id.setdefault(beside.name, path)
            elif beside.kind == "sidecar":
                self._starts[posixpath.join(posixpath.dirname(path), beside.name or "")] = (
                    self._sidecar(path)
                )
        order: dict[str, None] = {}
        for path in self._found:
            self._add(path, order, set())
        return list(order)

    def _add(self, path: str, order: dict[str, None], below: set[str]) -> None:
        """Add a file behind those above it; a circle of these is cut."""
        above = []
        while path not in order and path not in below:
            below.add(path)
            above.append(path)
            path = self._above(path) or path
        order.update(dict.fromkeys(reversed(above)))

    def get(self, path: str) -> Agent | None:
        """Return a subagent; None if its file is no session. Those above it have been stored."""
        entry = self._first(path)
        if entry is None:
            return None
        beside, known = self._found[path], self._known.get(path)
        if known is None:
            own = beside.name or path
            name = free_name(f"{self._owner.name}/agent-", own, LONG, self._is_taken)
            self._taken.add(name)
        else:
            name = known.name
        above = self._above(path)
        upper = self._known.get(above) if above else None
        parent = upper.name if upper else self._owner.name
        started_by = known.started_by if known else None
        return Agent(path, name, parent, started_by or self._begin(path, entry, parent))

    def _is_taken(self, name: str) -> bool:
        return name in self._taken or self._is_context(name)

    def stored(self, path: str, name: str) -> None:
        """Take note that a subagent's session is there."""
        row = self._store.find(name)
        if row is not None:
            self._known[path] = row

    def _above(self, path: str) -> str | None:
        """Return the file of the agent that started another: the one whose folder it is in."""
        around = posixpath.dirname(path) + _ENDING
        found = around if around in self._found else self._by_id.get(self._start(path).parent)
        return None if found == path else found

    def _start(self, path: str) -> Start:
        folder, name = posixpath.dirname(path), self._found[path].name
        return self._starts.get(posixpath.join(folder, name or ""), Start(None, None))

    def _sidecar(self, path: str) -> Start:
        try:
            with disk.open_regular(os.path.join(self._folder, path), follow=False) as file:
                content = json.loads(file.read(_SIDECAR_BYTES))
        except (OSError, ValueError, RecursionError):
            return Start(None, None)
        return self._reader.sidecar(content)

    def _begin(self, path: str, first: Entry, parent: str) -> str | None:
        """Return the id of the entry that started a subagent."""
        if parent not in self._spawns:
            self._spawns[parent] = self._read_spawns(parent)
        ids, spawns = self._spawns[parent]
        beside = self._found[path]
        at = spawns.of(call=self._start(path).call, agent=beside.name)
        if at is None and beside.parent:
            at = spawns.of(agent=beside.parent)
        if at is None:
            at = spawns.of(prompt=message_text(first))
        return None if at is None else ids[at]
