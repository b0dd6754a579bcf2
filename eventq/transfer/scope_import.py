"""Import scopes: known ones are recognised by their time, new ones get an id, as contexts do."""

from __future__ import annotations

from eventq.errors import InputError
from eventq.output.folders import check_path
from eventq.storage.rows import FileRow, ScopeRow
from eventq.transfer.job import LARGEST_ID, Ids, fits, is_time, scope_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.output.store import OutputStore
    from eventq.transfer.job import Job
    from eventq.transfer.sources import Line

SCOPE: dict[str, type] = {"scope": int, "created_at_ms": int}
FILE: dict[str, type] = {"file": str, "scope": int}


class ScopeImport:
    """The scopes of one source, and the matching scopes of the target."""

    def __init__(self, job: Job) -> None:
        """Look for the source's scopes; nothing is stored yet."""
        self._database = job.database
        self._produced = job.produced
        self._first = job.database.copies.last_ids().context
        self._rows: dict[int, ScopeRow] = {}
        self._here: dict[int, int] = {}  # scopes of the source here
        self._stores = {0: job.produced}
        last = self._first
        for line in job.source.lines():
            if line and "scope_name" in line and fits(line, SCOPE):
                self._look(line)
            if line and type(line.get("context")) is int:
                last = max(last, min(line["context"], LARGEST_ID))
        self._ids = Ids("contexts", last)
        self.made: dict[int, int] = {}  # scopes of the source, by what they became

    def _look(self, line: Line) -> None:
        scope, name = line["scope"], line["scope_name"]
        name = name if isinstance(name, str) and name.isprintable() else None
        if not 0 < scope <= LARGEST_ID or not is_time(line["created_at_ms"]):
            return
        row = self._rows[scope] = ScopeRow(scope, name, line["created_at_ms"])
        taken = set(self._here.values())
        born = [
            one for one in self._database.scopes.born_at(row.created_at) if one.scope not in taken
        ]
        named = [one for one in born if one.name == name is not None]
        same = [one for one in born if one.scope == scope and one.name == name]
        found = same or named or (born if len(born) == 1 else [])
        if found:
            self._here[scope] = found[0].scope

    def find(self, line: Line) -> OutputStore | None:
        """Return what was produced in the scope of a line here, None for a scope that is new."""
        scope = scope_in(line)
        here = self._here.get(scope) if scope else 0
        return None if here is None else self._store(here)

    def _store(self, here: int) -> OutputStore:
        if here not in self._stores:
            self._stores[here] = self._produced.of(here)
        return self._stores[here]

    def of(self, line: Line) -> OutputStore | None:
        """Return what was produced in the scope of a line; make the scope if it is new.

        Returns None where nothing is told of the scope.
        """
        found = self.find(line)
        if found is None and (row := self._rows.get(scope_in(line))) is not None:
            found = self._store(self._make(row))
        return found

    def _make(self, row: ScopeRow) -> int:
        """Store a scope under the source's number if no context and no scope here has that."""
        free = row.scope > self._first and self._database.scopes.get(row.scope) is None
        here = row.scope if free else self._ids.take(0)
        with self._database.write():
            self._database.scopes.add(row._replace(scope=here))
            self._database.copies.reserve(context=here)
        self._here[row.scope] = here
        self.made[here] = row.scope
        return here

    def last_context(self) -> int:
        """Return the last id of a context, not counting what only new scopes have reserved."""
        last = self._database.copies.last_ids().context
        return self._first if last == max(self.made, default=0) else last

    def of_context(self, line: Line, contexts: dict[int, int]) -> int | None:
        """Return the scope here of a context of the source; None for one of its own.

        `contexts` are those that came. A scope that nothing was produced in has no row: its
        contexts share that of its first one here.
        """
        if not (scope := scope_in(line)):
            return 0
        if (found := self.of(line)) is not None:
            return found.scope
        root = contexts.get(scope, contexts[line["context"]])
        self._here[scope] = self._database.scopes.of_context(root) or root
        return None if root == contexts[line["context"]] else self._here[scope]

    def file(self, line: Line, file: FileRow) -> bool:
        """Store what a file of the source is, unless its path has been taken here."""
        produced = self.of(line)
        try:
            check_path(file.path)
        except InputError:
            return False
        if produced is None:
            return False
        if self._database.scopes.file(produced.scope, file.path) is None:
            self._database.scopes.put_file(produced.scope, file)
        return True
