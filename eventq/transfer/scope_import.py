"""Import scopes: known ones are recognised by their time, new ones get an id, as contexts do."""

from __future__ import annotations

from eventq.memory.contexts import is_context_name
from eventq.output.folders import is_path
from eventq.store.output_rows import FileRow, ScopeRow
from eventq.transfer.job import LARGEST_ID, Ids, fits, is_time, scope_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.output.output_store import OutputStore
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
                self._take(line)
            if line and type(line.get("context")) is int:
                last = max(last, min(line["context"], LARGEST_ID))
        self._match()
        self._ids = Ids("contexts", last)
        self.made: dict[int, int] = {}  # scopes of the source, by what they became

    def _take(self, line: Line) -> None:
        """Take the row of a scope, unless it cannot be one."""
        scope, name, at = line["scope"], line["scope_name"], line["created_at_ms"]
        if 0 < scope <= LARGEST_ID and is_time(at):
            name = name if isinstance(name, str) and is_context_name(name) else None
            self._rows[scope] = ScopeRow(scope, name, at)

    def _match(self) -> None:
        """Find the scopes that are here: of the same time, and best of the same id and name.

        Another name is another scope; one of the two may have none, as names are unique. Several
        without a name that were born together cannot be told apart, so none is taken.
        """
        born = self._database.scopes.born_at({row.created_at for row in self._rows.values()})
        for rule in (_is_same, _is_named_alike, _may_be):
            for row in self._rows.values():
                alike = [one for one in born if rule(one, row)]
                if row.scope not in self._here and len(alike) == 1:
                    self._here[row.scope] = alike[0].scope
                    born.remove(alike[0])

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
        if produced is None or not is_path(file.path):
            return False
        if self._database.scopes.file(produced.scope, file.path) is None:
            self._database.scopes.put_file(produced.scope, file)
        return True


def _is_same(here: ScopeRow, row: ScopeRow) -> bool:
    return here == row


def _is_named_alike(here: ScopeRow, row: ScopeRow) -> bool:
    return row.name is not None and here[1:] == row[1:]


def _may_be(here: ScopeRow, row: ScopeRow) -> bool:
    return here.created_at == row.created_at and None in (here.name, row.name)
