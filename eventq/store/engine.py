"""What an engine supplies to the areas of the memory, which know nothing else of it.

Statements are SQLite's, with values bound by number or in order. An area is made when it is first
used: a push needs none of them.

Every operation of an area joins the `write()` of its OS thread if there is one, and sees what that
wrote; otherwise it is a transaction of its own. Blobs are named by their digests, never by keys of
tables. The domain above hashes, cuts, compresses, canonicalises and validates; areas store opaque
pieces of at most 1 MiB, and return pages as lists, so nothing stays open after an operation.
"""

from __future__ import annotations

from eventq.store.transactions import Transactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from eventq.records.event import NewEvent
    from eventq.records.info import Overview
    from eventq.records.rows import Rows, Values
    from eventq.store.blobs import Blobs
    from eventq.store.causes import Causes
    from eventq.store.contexts import Contexts
    from eventq.store.copies import Copies
    from eventq.store.erasures import Erasures
    from eventq.store.outputs import Outputs
    from eventq.store.protocol import Area
    from eventq.store.protocol import Database as Log
    from eventq.store.queue_rules import QueueStatements
    from eventq.store.runs import Runs
    from eventq.store.scopes import Scopes
    from eventq.store.sessions import Sessions
    from eventq.store.settings import ThreadSettings
    from eventq.store.streams import Artifacts, OpenTurns
    from eventq.store.turns import Turns
    from eventq.store.usage import TokenUsage

    Row = tuple[Any, ...]

    class _Faulty(Protocol):
        def faults(self) -> Iterable[str]: ...
else:
    Log = object

# What holds an area: its module, its class, and what a thread of the original tool lacks of it.
AREAS = {
    "blobs": ("blobs", "Blobs", "turns or blobs"),
    "turns": ("turns", "Turns", "turns or blobs"),
    "contexts": ("contexts", "Contexts", "turns or blobs"),
    "runs": ("runs", "Runs", "turns or blobs"),
    "open_turns": ("streams", "OpenTurns", "turns or blobs"),
    "artifacts": ("streams", "Artifacts", "artifacts or outputs"),
    "outputs": ("outputs", "Outputs", "artifacts or outputs"),
    "scopes": ("scopes", "Scopes", "artifacts or outputs"),
    "sessions": ("sessions", "Sessions", "artifacts or outputs"),
    "erasures": ("erasures", "Erasures", ""),
    "settings": ("settings", "ThreadSettings", ""),
    "copies": ("copies", "Copies", "turns or blobs"),
    "causes": ("causes", "Causes", ""),
    "usage": ("usage", "TokenUsage", ""),
}


class Engine(Transactions, Log):
    """A database with the areas of the memory beside the log."""

    areas = AREAS
    is_shared = False  # processes of other machines may use it

    if TYPE_CHECKING:
        blobs: Blobs
        turns: Turns
        contexts: Contexts
        runs: Runs
        open_turns: OpenTurns
        artifacts: Artifacts
        outputs: Outputs
        scopes: Scopes
        sessions: Sessions
        settings: ThreadSettings
        erasures: Erasures
        copies: Copies
        causes: Causes
        usage: TokenUsage

        schema_guard: str  # the condition of a statement that is a change of its own

        @property
        def queue_statements(self) -> QueueStatements:
            """The statements of changes of queues, which `run` and `many` take too."""

        def stamp(self) -> str:
            """Return the time of the engine as text."""

        def run(self, sql: str, bindings: Row = ()) -> list[Row]:
            """Run one statement and return all its rows; one that writes, inside `write`."""

        def one(self, sql: str, bindings: Row = ()) -> Any:
            """Return the first column of the first row, or None."""

        def some(self, sql: str, bindings: Row, room: int) -> list[Row]:
            """Return the first rows until their bytes fill `room`, at least one: it may be long."""

        def change(self, sql: str, bindings: Row = (), *, relaxed: bool = False) -> list[Row]:
            """Run one statement that writes, also outside of `write`; return its rows."""

        def later(self, sql: str, bindings: Row = ()) -> None:
            """Run one statement inside `write` that nobody waits for, by the next that has rows.

            What it raises may come then.
            """

        def changed(self, sql: str, bindings: Row = ()) -> int:
            """Run one statement inside `write`; return how many rows it changed."""

        def insert(self, sql: str, bindings: Row = ()) -> int | None:
            """Store one row inside `write`; return its id, None if a conflict kept it out.

            Raises LogicError when there are no more ids.
            """

        def inserts(self, sql: str, rows: Sequence[Row]) -> list[int | None]:
            """Store some rows, as `insert` does each."""

        def many(self, sql: str, rows: Iterable[Row]) -> int:
            """Run a statement inside `write` for each of some rows; return how many it changed."""

        def new_ids(self, table: str, count: int) -> range:
            """Return ids that no row of a table has, inside `write`.

            Raises LogicError when there are no more.
            """

        def last_id(self, table: str) -> int:
            """Return the highest id that a row of a table ever had, 0 for none."""

        def reserve(self, table: str, upto: int) -> None:
            """Give no new row of a table an id up to this one."""

        def wake_on_commit(self) -> None:
            """Wake who watches after the transaction under way, or now if there is none."""

        def check_tables(self, what: str) -> None:
            """Raise StoreError when there are no tables of the memory."""

        # --- of the database as a whole, beside what it does for the log ----------------------

        on_first_write: Callable[[], object] | None  # called before it, once the files were opened
        refuses_links: bool  # whether it takes no write to a file with several names

        def read(self) -> AbstractContextManager[Engine]:  # type: ignore[override]
            """Return a context manager for what is committed when its block begins."""

        def query(
            self,
            text: str,
            values: Values,
            limit: int | None,
            seconds: float,
            payload: Callable[[Any], str | bytes | None],
        ) -> Rows:
            """Run one statement that only reads, inside `read`, and nothing after it.

            "" lists tables and views. `payload` is the SQL function of that name. Raises UsageError
            for a statement that is refused, InputError for its values, LogicError after `seconds`,
            and without a `limit` TooLargeError for a result that takes too much memory.
            """

        def overview(self, limit: int) -> Overview:
            """Return what goes on in the memory, with so many contexts and artifacts at most."""

        def faults(self, area: Area = "log") -> Iterable[str]:
            """Return a sentence for each fault of the rows of an area, at most 20 of a kind."""

        def texts(self) -> Iterator[tuple[str, list[tuple[bytes, ...]]]]:
            """Yield what tables hold as text, a few MiB at a time: the table, and rows.

            A row begins with its name, which holds no text; b"" is a value that is missing.
            """

        def restore(self, rows: Sequence[tuple[int, str, NewEvent]]) -> None:
            """Store events again, inside `write`, with the ids and times that they had.

            What their contents say of blobs and questions is noted as when they were pushed.
            """

        def scrub(self) -> None:
            """Leave nothing in the files of what was deleted; outside of `write`.

            Readers that still see it are waited for. Raises BusyError with the name of one that
            goes on.
            """

    def memory_faults(self, area: Area) -> Iterable[str]:
        """Return a sentence for each fault of the rows of an area of the memory."""
        if area == "outputs":
            return [*self.outputs.faults(), *self.scopes.faults(), *self.sessions.faults()]
        if area == "roots":
            return self.turns.root_faults()
        kept: _Faulty = getattr(self, area.replace(" ", "_"))
        return kept.faults()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Make an area when it is first used."""
            if name not in self.areas:
                raise AttributeError(name)
            module, kind, what = self.areas[name]
            if what:
                self.check_tables(what)
            area = getattr(__import__(f"eventq.store.{module}", fromlist=(kind,)), kind)(self)
            setattr(self, name, area)
            return area
