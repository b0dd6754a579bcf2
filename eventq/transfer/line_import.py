"""Import the lines of `eventq.ndjson`: what the interchange format cannot express."""

from __future__ import annotations

from eventq.errors import EventqError, StoreError
from eventq.memory.blobs import digest_of
from eventq.memory.contexts import check_context_name
from eventq.memory.nodes import START_TYPE, StartNode, StateNode
from eventq.records.checks import check_name
from eventq.said.spending import MOST, model_of
from eventq.store.copy_rows import AttemptCopy, ContextLabel, PatchCopy, RunCopy
from eventq.store.output_rows import FileRow
from eventq.store.usage_rows import UsageCopy
from eventq.system.counts import count as counted
from eventq.transfer import packfile
from eventq.transfer.artifact_import import ARTIFACT
from eventq.transfer.blob_import import ERASED
from eventq.transfer.job import fits, is_time, scope_in
from eventq.transfer.known import KnownRows
from eventq.transfer.scope_import import FILE, SCOPE
from eventq.transfer.session_import import LINE, SESSION, TIP, SessionImport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.store.copy_rows import Restorable
    from eventq.transfer.artifact_import import ArtifactImport
    from eventq.transfer.head_import import HeadImport
    from eventq.transfer.job import Job
    from eventq.transfer.sources import Line
    from eventq.transfer.turn_import import Nodes, TurnImport

_USAGE = {
    "usage": int, "response": int, "agent": int, "at_ms": int, "model": str, "out": int,
    "fresh": int, "cached": int,
}  # fmt: skip
STATUSES = ("active", "suspended", "completed", "cancelled")
_PAGE = 500  # records that are stored together


class LineImport:
    """The lines of one source; blobs, artifacts, turns and contexts have come."""

    def __init__(
        self,
        job: Job,
        nodes: Nodes,
        turns: TurnImport,
        heads: HeadImport,
        artifacts: ArtifactImport,
    ) -> None:
        """Begin, inside a transaction."""
        self._database = job.database
        self._job = job
        self._notes = job.notes
        self._nodes = nodes
        self._came = turns
        self._heads = heads
        self._scopes = heads.scopes
        self._sessions = SessionImport(job, turns, heads)
        self._artifacts = artifacts
        copies = job.database.copies
        self._patches = KnownRows(lambda turn: copies.beside(turn, PatchCopy))
        self._attempts = KnownRows(lambda turn: copies.beside(turn, AttemptCopy))
        # Versions of outputs here that stand for one there, by scope there; and the other way.
        self._taken: dict[int, set[tuple[str, int]]] = {}
        self._versions: dict[tuple[int, str, int], int] = {}
        self._pending: list[Restorable] = []
        self._used: list[Line] = []
        self.new_outputs = 0
        # What each kind of line is recognised by, and what stores it.
        self._kinds: list[tuple[dict[str, type], Callable[[Line], bool]]] = [
            ({"context": int}, self._label),
            (FILE, self._file),
            (LINE, self._sessions.line),
            (SESSION, self._sessions.session),
            (TIP, self._sessions.tip),
            ({"run": int, "name": str, "group": str, "status": str, "start": int}, self._run),
            ({"patch": int, "flags": int, "created_at_ms": int}, self._patch),
            ({"root": int, "hash": str}, self._root),
            ({"attempt": int, "blob": str, "created_at_ms": int}, self._attempt),
            ({"blob": str, "ref": str}, self._ref),
            ({"blob": str, "pin": str}, self._pin),
            ({"turn": int, "canonical": str}, self._rule),
            ({"blob": str, "sha256": str}, self._alias),
            ({"output": str, "version": int, "blob": str, "created_at_ms": int}, self._output),
            (ARTIFACT, lambda _: True),  # artifacts came before
            (SCOPE, lambda _: True),  # so did scopes
            (ERASED, lambda _: True),  # and what was erased
            (_USAGE, self._usage),
        ]

    def run(self) -> None:
        """Store the content of the lines, and note how many could not be stored."""
        count = 0
        for line in self._job.source.lines():
            try:
                count += line is None or not self._import(line)
            except StoreError:
                raise
            except (EventqError, OverflowError, KeyError, ValueError):
                count += 1
            if len(self._pending) >= _PAGE:
                self._flush()
        self._flush()
        self._sessions.run()
        self._store_usage()
        self._heads.note_diverged()
        if count:
            lines = counted(count, "line")
            self._notes.remark(
                f"{packfile.BESIDE}: {lines} left out, as what is named there is missing"
            )

    def _flush(self) -> None:
        self._database.copies.restore(self._pending)
        self._pending = []

    def _import(self, line: Line) -> bool:
        """Store the content of one line; return False if it cannot be stored."""
        for kinds, store in self._kinds:
            if fits(line, kinds):
                return store(line)
        return False

    def _label(self, line: Line) -> bool:
        """Store name and lineage of a context that was made now; others stay as they are."""
        here, fork_of = self._heads.here.get(line["context"]), line.get("fork_of")
        if here is None or here not in self._heads.made:
            return here is not None
        if not isinstance(fork_of, (int, type(None))):
            return False
        self._database.scopes.assign(here, self._scopes.of_context(line, self._heads.here))
        if type(fork_of) is int and fork_of in self._heads.here:
            origin = self._heads.here[fork_of]
            self._database.copies.restore([ContextLabel(here, None, origin)])
        if (name := line.get("name")) is not None:
            check_context_name(name)
            if self._database.contexts.named(name) is None:
                self._database.copies.restore([ContextLabel(here, name, None)])
            else:
                self._notes.remark(f"context {here} has no name here: '{name}' is another one's")
        return True

    def _usage(self, line: Line) -> bool:
        """Take what a response took, for when the sessions have come."""
        counts = (line["out"], line["fresh"], line["cached"])
        owners = {type(line.get("of_session")), type(line.get("of_context"))}
        is_sound = owners <= {int, type(None)} and line["agent"] in (0, 1)
        is_sound = is_sound and 0 <= line["response"] < 1 << 63
        if not is_sound or not is_time(line["at_ms"]) or not all(0 <= n <= MOST for n in counts):
            return False
        self._used.append(line)
        return bool(self._came.here(line["usage"]))

    def _store_usage(self) -> None:
        """Store what responses took whose turns are here now, each for what it counted for."""
        rows = [
            UsageCopy(
                turn, line["response"], self._sessions.here.get(line.get("of_session") or 0),
                self._heads.here.get(line.get("of_context") or 0), line["agent"], line["at_ms"],
                model_of(line), line["out"], line["fresh"], line["cached"],
            )
            for line in self._used
            if (turn := self._came.here(line["usage"]))
        ]  # fmt: skip
        for n in range(0, len(rows), _PAGE):
            self._database.usage.restore(rows[n : n + _PAGE])

    def _run(self, line: Line) -> bool:
        """Store the run of a context that was made or moved on now; it has the source's status."""
        here, start = self._heads.here.get(line["run"]), self._came.here(line["start"])
        if here is None or not (here in self._heads.made or here in self._heads.moved):
            return here is not None
        check_name(line["name"], "name")
        check_name(line["group"], "group", empty=True)
        status, done = line["status"], line.get("completed_at_ms")
        is_sound = status in STATUSES and (is_time(done) if status == "completed" else done is None)
        if not is_sound or not start or not self._is_start(start, here):
            return False
        self._pending.append(RunCopy(here, line["name"], line["group"], status, start, done))
        return True

    def _is_start(self, start: int, here: int) -> bool:
        """Return whether a turn is the first one of a context, and the start of a run."""
        turns, head = self._job.turns, self._database.contexts.head(here)
        if not head or not turns.is_above(start, head) or turns.depth(start):
            return False
        turn = turns.turn(start, payload=False, as_of=0)
        return turn.type_id == START_TYPE and self._nodes.is_a(digest_of(turn.ref), StartNode)

    def _patch(self, line: Line) -> bool:
        turn_id, flags, at = self._came.here(line["patch"]), line["flags"], line["created_at_ms"]
        if not turn_id or not 0 <= flags < 1 << 32 or not is_time(at):
            return False
        digest = None if line["blob"] is None else digest_of(line["blob"])
        if digest is not None:
            self._job.blobs.size_of(digest)  # it must be here
        new = PatchCopy(turn_id, digest, flags, at)
        if not self._patches.take(new):
            self._pending.append(new)
        return True

    def _root(self, line: Line) -> bool:
        """Store the root of a turn; one that has another here keeps that."""
        turn_id, root = self._came.here(line["root"]), digest_of(line["hash"])
        if not turn_id:
            return False
        kept = self._database.turns.attach(turn_id, root, only_new=True)
        if kept != root:
            self._notes.remark(
                f"turn {turn_id} keeps the root that it has here, {kept.hex()}, not {root.hex()}"
            )
        return True

    def _attempt(self, line: Line) -> bool:
        parent, at = self._came.here(line["attempt"]), line["created_at_ms"]
        digest = digest_of(line["blob"])
        if not parent or not is_time(at) or not self._nodes.is_a(digest, StateNode):
            return False
        new = AttemptCopy(parent, digest, at)
        if not self._attempts.take(new):
            self._pending.append(new)
        return True

    def _ref(self, line: Line) -> bool:
        self._job.blobs.add_refs(line["blob"], [line["ref"]])
        return True

    def _pin(self, line: Line) -> bool:
        self._job.blobs.pin(line["blob"], line["pin"])
        return True

    def _rule(self, line: Line) -> bool:
        """Return whether a rule was used: it is stored with its turn."""
        return line["canonical"].isprintable() and bool(self._came.here(line["turn"]))

    def _alias(self, line: Line) -> bool:
        """Store the name that another tool has for a blob, if it is right."""
        return self._job.produced.name_blob(line["blob"], digest_of(line["sha256"]))

    def _output(self, line: Line) -> bool:
        """Store a version of an output; where another has its number it is the next one."""
        at, version = line["created_at_ms"], line["version"]
        if not is_time(at) or not 1 <= version < 1 << 31:
            return False
        produced, scope = self._scopes.of(line), scope_in(line)
        if produced is None:
            return False
        made, new = produced.outputs.take(
            line["output"], version, line["blob"], at, self._taken.setdefault(scope, set())
        )
        self.new_outputs += new
        self._versions[scope, line["output"], version] = made.version
        if made.version != version:
            self._notes.remark(
                f"version {version} of output {line['output']} is version {made.version} here"
            )
        return True

    def _file(self, line: Line) -> bool:
        """Store what a file of a scope is here; outputs stand before the files."""
        scope, path = line["scope"], line["file"]
        if fits(line, {"number": int}):
            number = self._artifacts.here.get((scope, line["number"]))
            return number is not None and self._scopes.file(line, FileRow(path, number))
        if fits(line, {"of": str, "version": int}):
            version = self._versions.get((scope, line["of"], line["version"]))
            file = FileRow(path, None, line["of"], version)
            return version is not None and self._scopes.file(line, file)
        return self._scopes.file(line, FileRow(path, digest=digest_of(line["blob"])))
