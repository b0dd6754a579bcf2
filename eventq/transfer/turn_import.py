"""Import turns: known ones are recognised, new ones get an id."""

from __future__ import annotations

from itertools import islice

from eventq.errors import DamagedError, UnknownBlobError
from eventq.memory.blobs import digest_of
from eventq.memory.nodes import START_TYPE, STATE_TYPE, StateNode, decode, linked
from eventq.records.checks import REF
from eventq.store.copy_rows import TurnCopy
from eventq.transfer import packfile
from eventq.transfer.descriptions import Descriptions
from eventq.transfer.job import LARGEST_ID, Ids
from eventq.transfer.known import KnownTurns, SeenTurns
from eventq.transfer.sources import type_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.memory.blobs import Blobs
    from eventq.memory.nodes import Node
    from eventq.store.turn_rows import BlobRow
    from eventq.transfer.blob_import import BlobImport
    from eventq.transfer.job import Job
    from eventq.transfer.packfile import MetaRecord, TurnRecord

_PAGE = 500  # turns that are stored together


class Nodes:
    """The blobs that are nodes of runs; their refs are stored as they stand in their own bytes.

    The lines of a source name these refs as well, but may be damaged; a node is verified.
    """

    def __init__(self, blobs: Blobs) -> None:
        """Read nodes from blobs."""
        self._blobs = blobs
        self._seen: set[bytes] = set()

    def check(self, digest: bytes) -> Node:
        """Return a node, and store its refs, those of its content, and of the nodes it leads to.

        Raises UnknownBlobError when a blob that it or its content names is not here, DamagedError.
        """
        node = self._read(digest)
        self._blobs.add_refs(digest, node.refs())
        self._seen.add(digest)
        if isinstance(node, StateNode):
            self._check_content(digest_of(node.content))
        self._follow(node)
        return node

    def _check_content(self, digest: bytes) -> None:
        self._seen.add(digest)
        found = self._node(digest)
        if found is not None and found.refs():
            self._blobs.add_refs(digest, found.refs())

    def _read(self, digest: bytes) -> Node:
        return decode(self._blobs.shown(digest) or b"", REF + digest.hex())

    def _node(self, digest: bytes) -> Node | None:
        try:
            return self._read(digest)
        except DamagedError:
            return None

    def _follow(self, node: Node) -> None:
        """Store the refs of the nodes that a node leads to and that may be no turns, once each."""
        todo = linked(node)
        while todo:
            digest = digest_of(todo.pop())
            if digest in self._seen:
                continue
            self._seen.add(digest)
            if (found := self._node(digest)) is not None:
                here = [ref for ref in found.refs() if self._blobs.has(ref)]
                self._blobs.add_refs(digest, here)
                todo += linked(found)

    def is_a(self, digest: bytes, kind: type[Node]) -> bool:
        """Return whether a blob is a node of a kind, and all that it names is here."""
        try:
            return isinstance(self.check(digest), kind)
        except (UnknownBlobError, DamagedError):
            return False


class TurnImport:
    """The turns of one source, and the matching turns of the target."""

    def __init__(self, job: Job, nodes: Nodes, blobs: BlobImport) -> None:
        """Begin, inside a transaction; the blobs have come."""
        self._database = job.database
        self._nodes = nodes
        self._blobs = blobs
        self._source = job.source
        self._notes = job.notes
        last = job.database.copies.last_ids().turn
        self._ids = Ids("turns", last)
        self._seen = SeenTurns()
        self._known = KnownTurns(job.database.copies, self._seen, last)
        self._described = Descriptions(job.source.metas(), right=job.source.describes())
        self._last = 0  # id of the turn of the source before
        self._found: dict[bytes, BlobRow] = {}  # payloads of a page
        self._pending: list[TurnCopy] = []
        self.highest = 0  # id of a turn that the source names, and that may be kept
        self.tips: set[int] = set()  # turns of the source that no other one of it follows
        self.new = 0

    def run(self) -> None:
        """Store the turns that are sound and not here yet, some at once."""
        rules = self._rules()
        turns = iter(self._source.turns())
        while page := self._next_page(turns):
            records, late = page
            self._found = self._database.blobs.find([one.payload_hash for one in records])
            self._known.look_at(records)
            for record in records:
                self._import(record, rules.get(record.turn_id))
            self._database.copies.restore(self._pending)
            self._pending = []
            self._notes.all += late
        for fault in self._described.faults():
            self._notes.fault(fault)

    def _next_page(self, turns: Iterator[TurnRecord]) -> tuple[list[TurnRecord], list[str]] | None:
        """Return the next turns, and the notes on what follows them; None at the end."""
        before = len(self._notes.all)
        records = list(islice(turns, _PAGE))
        if not records:
            return None
        late = self._notes.all[before:]
        del self._notes.all[before:]
        return records, late

    def _rules(self) -> dict[int, str]:
        """Return the canonical rules of the turns that have one."""
        return {
            line["turn"]: line["canonical"]
            for line in self._source.lines()
            if line and type(line.get("turn")) is int and type(line.get("canonical")) is str
            if line["canonical"].isprintable()
        }

    def here(self, turn_id: int) -> int | None:
        """Return the target's id for a turn of the source; 0 for 0, None for a missing one."""
        return self._seen.here(turn_id)

    def _drop(self, record: TurnRecord, why: str) -> None:
        self._notes.fault(f"{packfile.TURNS}: turn {record.turn_id} was left out: {why}")

    def _import(self, record: TurnRecord, rule: str | None) -> None:
        if record.turn_id <= self._last:
            self._drop(record, "its id is not above the one before it")
            return
        self._last = record.turn_id
        if record.turn_id <= LARGEST_ID:
            self.highest = max(self.highest, record.turn_id)
        meta = self._described.of(record.turn_id)
        parent = self._seen.here(record.parent)
        if parent is None:
            self._drop(record, f"its parent, turn {record.parent}, is not there")
        elif why := self._refusal(record):
            self._drop(record, why)
        else:
            self._import_sound(record, parent, meta, rule)

    def _refusal(self, record: TurnRecord) -> str:
        """Return why a turn cannot follow its parent, "" when it can."""
        if record.depth != self._seen.depth_below(record.parent):
            return f"its depth, {record.depth}, does not follow from its parent's"
        if record.created_at_ms >= 1 << 63:
            return f"its time, {record.created_at_ms}, is none"
        return ""

    def _import_sound(
        self, record: TurnRecord, parent: int, meta: MetaRecord | None, rule: str | None
    ) -> None:
        try:
            meta = self._described.checked(record, meta, self._size(record.payload_hash))
            if meta is not None and meta.type_id in (START_TYPE, STATE_TYPE):
                self._nodes.check(record.payload_hash)
        except (UnknownBlobError, DamagedError) as error:
            self._blobs.check_collected(record.payload_hash)
            self._drop(record, error.what)
            return
        here = self._known.find(record, parent)
        self._seen.add(record, self._add(record, parent, meta, rule) if here is None else here)
        self.tips.discard(record.parent)
        self.tips.add(record.turn_id)

    def _size(self, digest: bytes) -> int:
        row = self._found.get(digest)
        if row is None or row.part:
            raise UnknownBlobError(REF + digest.hex())
        return row.size

    def _add(
        self, record: TurnRecord, parent: int, meta: MetaRecord | None, rule: str | None
    ) -> int:
        type_id, version = (meta.type_id, meta.type_version) if meta else ("", 0)
        tag = None if type_tag(type_id) == record.type_tag else _signed(record.type_tag)
        here = self._ids.take(record.turn_id)
        new = TurnCopy(
            here, parent, record.depth, type_id, version, tag, record.codec, record.flags,
            record.created_at_ms, rule, record.payload_hash,
        )  # fmt: skip
        self._pending.append(new)
        self.new += 1
        return here


def _signed(number: int) -> int:
    """Return an unsigned number of 64 bits as the signed one that has the same bits."""
    return number - (1 << 64) if number >= 1 << 63 else number
