"""Packs and copies: the memory of a thread out into a folder of the interchange format, and in again, or to another.

The layouts are in `eventq.dag.packfile`. What they have no room for lies beside them in `eventq.ndjson`, and artifacts
as files in the folder `artifacts`; other programs may ignore both.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_left

from eventq import system
from eventq.blobs import digest_of
from eventq.dag import packfile
from eventq.dag.contexts import check_context_name
from eventq.dag.nodes import START_TYPE, STATE_TYPE, Node, StartNode, StateNode, decode
from eventq.dag.packfile import HeadRecord, MetaRecord, PackWriter, TurnRecord
from eventq.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    EventqError,
    InputError,
    LogicError,
    StoreError,
    UnknownBlobError,
)
from eventq.event import REF, check_name
from eventq.output.artifacts import hash_of, tool_name
from eventq.output.store import OutputStore
from eventq.records import ArtifactInfo, Imported
from eventq.storage.rules import place
from eventq.storage.sqlite.packs import PackTable
from eventq.transfer.datadir import DataDirectory, is_data_directory
from eventq.transfer.descriptions import Descriptions
from eventq.transfer.known import KnownContexts, KnownRows, KnownTurns
from eventq.transfer.sources import PackSource, ThreadSource, file_name, type_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from eventq.dag.contexts import Contexts
    from eventq.dag.packfile import BlobRecord, FoundBlob
    from eventq.storage.sqlite.database import Database
    from eventq.transfer.sources import Told

    Source = PackSource | ThreadSource

STATUSES = ("active", "suspended", "completed", "cancelled")
LARGEST_ID = (
    1 << 62
) - 1  # larger ones are given anew: the next id must fit as well, and ids elsewhere may be random
_GROUP_BYTES = (
    4 << 20
)  # blobs that are stored in one transaction; a longer one is never in memory whole
_FOLDED = 100  # times that a blob is as long as its bytes there: from here on it costs the reader more than the writer
_SPARE = (
    1 << 30
)  # bytes of such blobs that may prove wrong before others are left out unread: they could take hours


# --- out --------------------------------------------------------------------------------------------------------------


def export_pack(db: Database, folder: str) -> None:
    """Write all blobs, turns, heads and artifacts to a folder that holds no pack yet, as they are at one moment.

    Every blob is checked; one of many parts is in memory whole while it is written. Raises DamagedBlobError, LogicError
    for a folder that holds a pack, DiskError.
    """
    inside = os.path.realpath(db.directory)
    if os.path.commonpath([inside, os.path.realpath(folder)]) == inside:
        raise LogicError(f"'{folder}' is inside the thread", "give a folder outside of it")
    with ThreadSource(db) as source, PackWriter(folder) as pack:
        _write(source, pack)


def _write(source: ThreadSource, pack: PackWriter) -> None:
    for _, record in source.blobs():
        pack.blob(record)
    for turn in source.turns():
        pack.turn(turn)
    for meta in source.metas():
        pack.meta(meta)
    for head in source.heads():
        pack.head(head)
    for told in source.extra():
        if told.get("status") == "open":
            continue  # its number would stand for what it is not yet
        if "artifact" in told:
            pack.artifact(file_name(told), source.artifact(told))
        if told.get("hash", "") is None:  # it has none of its own, as it is not whole
            told["blake3"] = hash_of(source.artifact(told))[0]
        pack.beside(json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def _raise(what: str) -> None:
    raise DamagedError(what, "run 'eventq check' on the source, or restore a backup")


# --- in ---------------------------------------------------------------------------------------------------------------


def import_pack(contexts: Contexts, produced: OutputStore, folder: str) -> Imported:
    """Store what is in a pack, or in a CXDB data directory, and not here yet; see `Thread.import_pack`.

    Blobs come first, some a transaction, and artifacts, one a transaction; then turns and heads in one. What is damaged
    is left out, with all that needs it, and said in the notes. Raises LogicError for a folder that holds no pack.
    """
    source = DataDirectory(folder) if is_data_directory(folder) else PackSource(folder)
    return _Import(contexts, produced, source).run()


def copy(
    contexts: Contexts, produced: OutputStore, db: Database, chosen: Iterable[int | str] | None
) -> Imported:
    """Store what a thread holds, or some of its contexts lead to, and is not here yet; see `Thread.copy_to`.

    Nothing is left out: what is damaged there, or would be another artifact or output here, is an error.
    """
    with ThreadSource(db, chosen) as source:
        return _Import(contexts, produced, source, strict=True).run()


class _Import:
    """One import: what was found, and what became of it. A `strict` one leaves nothing out."""

    def __init__(
        self, contexts: Contexts, produced: OutputStore, source: Source, *, strict: bool = False
    ) -> None:
        self._turns = contexts.turns
        self._db = produced.database
        self._blobs = contexts.turns.blobs
        self._produced = produced
        self._table = PackTable(self._db)
        self._source = source
        source.note = self._note
        self._strict = strict
        self._notes: list[str] = []
        self._seen = array("Q")  # ids of the source's turns that are here, in order
        self._renamed: dict[int, int] = {}  # those of them that have another id here
        self._anew: set[int] = set()  # those ids: a turn here stands for one of the source
        self._known_turns = KnownTurns(self._table, self._is_free)
        self._patches = KnownRows(self._table.overlays)
        self._attempts = KnownRows(self._table.attempts_after)
        self._highest = 0  # id of a turn that the source names
        self._tips: set[int] = set()  # turns of the source that no other one of it follows
        self._made: set[int] = set()  # contexts
        self._moved: set[int] = set()
        self._bad: set[bytes] = set()  # blobs of the source that were left out
        self._long: set[bytes] = set()  # long ones that came
        self._spare = _SPARE
        self._came: set[bytes] | None = None  # blobs of the source, once one is missed
        self._names: dict[int, str] = {}  # of the source's contexts
        self._new_turns = 0
        self._artifacts: set[int] = set()  # artifacts here that stand for one of the source
        self._new_artifacts = 0
        self._versions: set[tuple[str, int]] = (
            set()
        )  # of outputs here that stand for one of the source
        self._new_outputs = 0

    def run(self) -> Imported:
        """Do it."""
        self._source.heal()
        if self._strict:
            self._check_numbers()
        new_blobs = self._import_blobs()
        self._import_artifacts()
        with self._db.write():
            self._names = self._names_of_contexts()
            self._import_turns()
            known = self._import_heads()
            self._import_extra(known)
            if self._highest > self._db.turns.last_id():
                self._table.raise_last_turn(self._highest)
        return Imported(
            new_blobs, self._new_turns, len(self._made), len(self._moved), tuple(self._notes), self._new_artifacts,
            self._new_outputs,
        )  # fmt: skip

    def _note(self, what: str) -> None:
        """Say what is damaged, and was left out; a strict import leaves nothing out."""
        if self._strict:
            _raise(what)
        self._notes.append(what)

    # --- blobs ----------------------------------------------------------------------------------------------------

    def _import_blobs(self) -> int:
        """Store the sound blobs, some MiB a transaction, and a longer one by itself; return how many are new."""
        count = 0
        group: list[bytes] = []
        size = 0
        for offset, blob in self._source.blobs():
            data = self._proven(offset, blob)
            if data is None:
                continue
            if isinstance(data, packfile.Unfolded):
                count += self._blobs.put(data, expect_hash=blob.hash, expect_size=blob.raw_len).new  # type: ignore[arg-type]
                continue
            group.append(data)
            size += len(data)
            if size >= _GROUP_BYTES:
                count += self._put(group)
                group, size = [], 0
        return count + self._put(group)

    def _put(self, group: list[bytes]) -> int:
        with self._db.write():
            return sum(self._blobs.put(data).new for data in group)

    def _proven(
        self, offset: int, blob: FoundBlob | BlobRecord
    ) -> bytes | packfile.Unfolded | None:
        """Return the bytes of a blob, a long one as a file; None for one that has come or was left out."""
        folded = blob.raw_len if blob.raw_len > _FOLDED * blob.stored_len else 0
        try:
            if blob.hash in self._long:
                return None
            if self._spare < 0 and folded:
                blob.fail(
                    f"says that it has {blob.raw_len} bytes, and others that said so were wrong"
                )
            self._spare -= folded
            data = blob.raw() if blob.raw_len <= _GROUP_BYTES else None
            if data is None:
                blob.check()
            self._spare += folded
        except DamagedError as error:
            self._bad.add(blob.hash)
            self._note(f"{packfile.BLOBS}: the record at byte {offset} was left out: {error.what}")
            return None
        if data is not None:
            return data
        self._long.add(blob.hash)
        return blob.open()

    # --- artifacts and outputs ------------------------------------------------------------------------------------

    def _check_numbers(self) -> None:
        """Raise ConflictError when an artifact or output would be another one here: texts name them by number."""
        for told in self._source.extra():
            if told and "artifact" in told:
                if told["status"] == "open":
                    continue
                info = _artifact(told)
                other = info is None or not self._produced.artifacts.is_same(
                    info,
                    lambda told=told: self._source.artifact(told),  # type: ignore[misc]
                )
                name = f"artifact://{told['artifact']}"
            elif told and "output" in told:
                found = self._produced.outputs.find(told["output"], told["version"])
                other = found is not None and found.hash != told["blob"]
                name = f"agent://{told['output']}"
            else:
                continue
            if other:
                raise ConflictError(
                    f"{name} is another one in the destination: nothing was copied",
                    "copy to a new thread",
                    0,
                )

    def _import_artifacts(self) -> None:
        """Keep the artifacts; one that cannot be read is left out, one whose number is another's gets a new one."""
        later = [
            told
            for told in self._source.extra()
            if told and _fits(told, _ARTIFACT) and not self._take(told)
        ]
        for told in later:
            self._take(told, anew=True)

    def _take(self, told: Told, *, anew: bool = False) -> bool:
        """Keep an artifact, or say why it was left out; give False when it needs another number."""
        number, info = told["artifact"], _artifact(told)
        if told["status"] == "open":
            self._notes.append(f"artifact {number} is still being written there: it was left out")
            return True
        if info is None:
            self._note(
                f"{packfile.BESIDE}: artifact {number} was left out: what is said of it cannot be"
            )
            return True
        try:
            made = self._produced.artifacts.take(
                info, lambda: self._source.artifact(told), self._artifacts, anew=anew
            )
            changed = "blake3" in told and told["blake3"] != hash_of(self._source.artifact(told))[0]
        except (DamagedError, OSError) as error:
            self._note(f"artifact {number} was left out: {getattr(error, 'what', error)}")
            return True
        if made is None:
            return False
        here, new = made
        self._new_artifacts += new
        if changed:
            self._note(f"artifact {number} is not what was exported: it is kept as it is")
        if int(here.artifact_id) != number:
            self._notes.append(
                f"artifact {number} is artifact {here.artifact_id} here: artifact://{number} in a"
                f" text means another"
            )
        return True

    def _import_output(self, told: Told, _: dict[int, int]) -> bool:
        """Keep a version of an output; where another has its number it is the next one."""
        at, version = told["created_at_ms"], told["version"]
        if not _is_time(at) or not 1 <= version < 1 << 31:
            return False
        made, new = self._produced.outputs.take(
            told["output"], version, told["blob"], at, self._versions
        )
        self._new_outputs += new
        if made.version != version:
            self._notes.append(
                f"version {version} of output {told['output']} is version {made.version} here"
            )
        return True

    def _import_name(self, told: Told, _: dict[int, int]) -> bool:
        """Keep the name that another tool has for a blob, if it is right."""
        return self._produced.name_blob(told["blob"], digest_of(told["sha256"]))

    def _import_nothing(self, _: Told, __: dict[int, int]) -> bool:
        """Say that a line was of use: artifacts came before."""
        return True

    # --- turns ----------------------------------------------------------------------------------------------------

    def _import_turns(self) -> None:
        said = Descriptions(self._source.metas(), right=self._source.describes())
        rules = self._rules()
        last = 0
        for record in self._source.turns():
            if record.turn_id <= last:
                self._drop(record, "its id is not above the one before it")
                continue
            last = record.turn_id
            self._highest = max(self._highest, last if last <= LARGEST_ID else 0)
            self._import_turn(record, said, rules.get(last))
        for fault in said.faults():
            self._note(fault)

    def _rules(self) -> dict[int, str]:
        """Give the canonical rules of the turns that have one."""
        return {
            told["turn"]: told["canonical"]
            for told in self._source.extra()
            if told and type(told.get("turn")) is int and type(told.get("canonical")) is str
            if told["canonical"].isprintable()
        }

    def _drop(self, record: TurnRecord, why: str) -> None:
        self._note(f"{packfile.TURNS}: turn {record.turn_id} was left out: {why}")

    def _import_turn(self, record: TurnRecord, said: Descriptions, rule: str | None) -> None:
        meta = said.of(record.turn_id)
        parent = self._here(record.parent)
        if parent is None:
            self._drop(record, f"its parent, turn {record.parent}, is not there")
            return
        above = self._db.turns.spot(parent) if parent else ()
        if above is None or record.depth != (above[0] + 1 if above else 0):
            self._drop(record, f"its depth, {record.depth}, does not follow from its parent's")
            return
        if record.created_at_ms >= 1 << 63:
            self._drop(record, f"its time, {record.created_at_ms}, is none")
            return
        try:
            size = self._blobs.size_of(record.payload_hash)
            meta = said.checked(record, meta, size)
            if meta is not None and meta.type_id in (START_TYPE, STATE_TYPE):
                self._check_node(record.payload_hash)
        except (UnknownBlobError, DamagedError) as error:
            self._check_collected(record.payload_hash)
            self._drop(record, error.what)
            return
        here = self._known_turns.find(record, parent, record.payload_hash)
        if here is None:
            here = self._add(record, parent, above, meta, rule)
        self._seen.append(record.turn_id)
        if here != record.turn_id:
            self._renamed[record.turn_id] = here
            self._anew.add(here)
        self._tips.discard(record.parent)
        self._tips.add(record.turn_id)

    def _check_node(self, digest: bytes) -> Node:
        """Return a node; raise UnknownBlobError when something that it names is not here: it could not be read."""
        node = decode(self._blobs.get(digest) or b"", REF + digest.hex())
        for named in node.refs():
            self._blobs.size_of(digest_of(named))
        return node

    def _is_node(self, digest: bytes, kind: type[Node]) -> bool:
        """Tell whether a blob is a node of a kind, and all that it names is here."""
        try:
            return isinstance(self._check_node(digest), kind)
        except (UnknownBlobError, DamagedError):
            return False

    def _check_collected(self, digest: bytes) -> None:
        """Raise BusyError when a blob that is not here any more had come with the pack."""
        if digest in self._bad or self._blobs.has(digest):
            return
        if self._came is None:
            self._came = self._source.blob_hashes()
        if digest in self._came:
            raise BusyError("a collection deleted what the import had stored", "import again")

    def _names_of_contexts(self) -> dict[int, str]:
        """Give the names of the pack's contexts, without those that none can have: it is found again without one."""
        return {
            told["context"]: told["name"]
            for told in self._source.extra()
            if told and type(told.get("context")) is int and type(told.get("name")) is str
            if _is_context_name(told["name"])
        }

    def _here(self, turn_id: int) -> int | None:
        """Give the id that a turn of the pack has here, 0 for no turn, None for one that is not here."""
        if turn_id == 0:
            return 0
        at = bisect_left(self._seen, turn_id)
        if at == len(self._seen) or self._seen[at] != turn_id:
            return None
        return self._renamed.get(turn_id, turn_id)

    def _is_free(self, turn_id: int) -> bool:
        """Tell whether a turn here stands for none of the source yet."""
        return turn_id not in self._anew and self._here(turn_id) != turn_id

    def _add(
        self,
        record: TurnRecord,
        parent: int,
        above: Any,
        meta: MetaRecord | None,
        rule: str | None,
    ) -> int:
        type_id, version = (meta.type_id, meta.type_version) if meta else ("", 0)
        tag = None if type_tag(type_id) == record.type_tag else _signed(record.type_tag)
        free = self._db.turns.last_id() < record.turn_id <= LARGEST_ID
        self._new_turns += 1
        row = (
            parent or None, *place(parent, above), type_id, version, tag, record.codec, rule,
            record.flags, record.created_at_ms,
        )  # fmt: skip
        turn_id = record.turn_id if free else None
        return self._table.add_turn(turn_id, record.payload_hash, row)

    # --- heads ----------------------------------------------------------------------------------------------------

    def _import_heads(self) -> dict[int, int]:
        """Store what heads there are and can be proved; give the ids that the pack's contexts have here."""
        known: dict[int, int] = {}
        notes = len(self._notes)
        heads, lost = self._heads()
        damaged = len(self._notes) > notes
        times = {record.created_at_ms for some in (heads, lost) for record in some.values()}
        self._known_contexts = KnownContexts(self._table, times)
        self._check_depths(heads)
        for record in heads.values():
            known[record.context_id] = self._import_head(record)
        if damaged or not heads:
            self._rebuild_heads({record.head_turn_id for record in heads.values()}, lost, known)
        return known

    def _heads(self) -> tuple[dict[int, HeadRecord], dict[int, HeadRecord]]:
        """Give the last record of each context whose turn is here, and of the others the last one."""
        heads: dict[int, HeadRecord] = {}
        lost: dict[int, HeadRecord] = {}
        for record in self._source.heads():
            if record.head_turn_id <= LARGEST_ID:
                self._highest = max(self._highest, record.head_turn_id)
            if self._here(record.head_turn_id) is None or record.created_at_ms >= 1 << 63:
                lost[record.context_id] = record
            else:
                heads[record.context_id] = record
                lost.pop(record.context_id, None)
        for context_id, record in lost.items():
            where = "stands where it stood before" if context_id in heads else "was left out"
            why = f"turn {record.head_turn_id}, is not in {packfile.TURNS}"
            if record.created_at_ms >= 1 << 63:
                why = f"turn {record.head_turn_id}, has no time"
            self._note(
                f"{packfile.HEADS}: the head of context {context_id}, {why}: the context {where}"
            )
        return heads, {
            context_id: record for context_id, record in lost.items() if context_id not in heads
        }

    def _check_depths(self, heads: dict[int, HeadRecord]) -> None:
        """Tell of heads whose depth is not that of their turn; it is not needed."""
        wrong = [
            record.context_id
            for record in heads.values()
            if record.head_depth != self._depth(record.head_turn_id)
        ]
        if wrong:
            count = "1 head says" if len(wrong) == 1 else f"{len(wrong)} heads say"
            self._note(
                f"{packfile.HEADS}: {count} another depth than the turn has, that of context"
                f" {wrong[0]} first"
            )

    def _depth(self, turn_id: int) -> int:
        here = self._here(turn_id)
        return self._turns.depth(here) if here else 0

    def _import_head(self, record: HeadRecord) -> int:
        """Give the context here that a record stands for; make one when there is none."""
        head = self._here(record.head_turn_id) or 0
        found = self._match(record, head)
        if found is not None:
            self._go_on(found, self._known_contexts.head(found), head)
            self._known_contexts.take(found)
            return found
        free = self._table.last_context() < record.context_id <= LARGEST_ID
        wanted = record.context_id if free else None
        return self._add_context(wanted, head, record.flags, record.created_at_ms)

    def _match(self, record: HeadRecord, head: int) -> int | None:
        """Return the context that a record is of, by its birth and name, then its id, then its head.

        Several that were born together and have no names cannot be told apart, so none of them is taken.
        """
        known, at, name = (
            self._known_contexts,
            record.created_at_ms,
            self._names.get(record.context_id),
        )
        found = known.same(record.context_id, at, name)
        if found is None and name is not None:
            found = known.named(at, name)
            if found is None and self._db.contexts.named(name) is None:
                return None
        if found is None:
            found = known.at_head(at, head)
        if found is None:
            found = known.only(at)
            here = 0 if found is None else known.head(found)
            if here and head and not self._turns.common(here, head):
                return None
        return found

    def _add_context(self, context_id: int | None, head: int, flags: int, at: int) -> int:
        here = self._table.add_context(context_id, head, flags, at, system.milliseconds())
        self._made.add(here)
        return here

    def _go_on(self, context_id: int, here: int, head: int) -> None:
        """Move the head of a context on if the pack is ahead; say so when it went another way."""
        shared = self._turns.common(here, head)
        if shared not in (here, head):
            self._notes.append(
                f"context {context_id} went another way here: it stays at turn {here}, the pack's"
                f" head is turn {head}"
            )
        elif head != here == shared:
            self._db.contexts.move(context_id, head, "import", run=True)
            self._moved.add(context_id)

    def _rebuild_heads(
        self, found: set[int], lost: dict[int, HeadRecord], known: dict[int, int]
    ) -> None:
        """Make a context of each branch that no head is left for; the only one lost keeps its id."""
        loose = sorted(self._tips - found)
        for tip in loose:
            head = self._here(tip) or 0
            record = next(iter(lost.values())) if len(lost) == len(loose) == 1 else None
            if record is not None and record.created_at_ms < 1 << 63:
                proven = HeadRecord(record.context_id, tip, 0, record.flags, record.created_at_ms)
                known[record.context_id] = here = self._import_head(proven)
            elif self._table.is_reached(head):  # by a context that an earlier import made
                continue
            else:
                here = self._add_context(
                    None, head, 0, self._turns.turn(head, payload=False).created_at_ms
                )
            self._note(
                f"{packfile.HEADS}: no head is left for turn {tip}: context {here} stands at it"
            )

    # --- the rest -------------------------------------------------------------------------------------------------

    def _import_extra(self, known: dict[int, int]) -> None:
        count = 0
        for told in self._source.extra():
            try:
                count += told is None or not self._import_one(told, known)
            except StoreError:
                raise
            except (EventqError, OverflowError, KeyError):
                count += 1
        if count:
            self._notes.append(
                f"{packfile.BESIDE}: {count} lines were left out: what they name is not there"
            )

    def _import_one(self, told: dict[str, Any], known: dict[int, int]) -> bool:
        """Store what one line says; give False when it cannot be."""
        for kinds, store in _LINES:
            if _fits(told, kinds):
                return store(self, told, known)
        return False

    def _import_context(self, told: dict[str, Any], known: dict[int, int]) -> bool:
        """Give a context its name and lineage, if it was made now; one that was here is what it is."""
        here, name, fork_of = known.get(told["context"]), told.get("name"), told.get("fork_of")
        if here not in self._made:
            return here is not None
        if type(fork_of) is int and fork_of in known:
            self._table.descend(here or 0, known[fork_of])
        elif not isinstance(fork_of, (int, type(None))):
            return False
        if name is not None:
            check_context_name(name)
            if self._db.contexts.named(name) is None:
                self._table.name(here or 0, name)
            else:
                self._notes.append(f"context {here} has no name here: '{name}' is another one's")
        return True

    def _import_run(self, told: dict[str, Any], known: dict[int, int]) -> bool:
        """Make a run of a context, if it was made now; one that went on in the pack has the pack's status."""
        here, start = known.get(told["run"]), self._here(told["start"])
        if here not in self._made and here not in self._moved:
            return here is not None
        check_name(told["name"], "name")
        check_name(told["group"], "group", empty=True)
        done = told.get("completed_at_ms")
        sound = told["status"] in STATUSES and (told["status"] == "completed") == _is_time(done)
        head = self._db.contexts.head(here or 0)
        if (
            not sound
            or not start
            or not head
            or not self._turns.is_above(start, head)
            or self._turns.depth(start)
        ):
            return False
        turn = self._turns.turn(start, payload=False, as_of=0)
        if turn.type_id != START_TYPE or not self._is_node(digest_of(turn.ref), StartNode):
            return False
        self._table.set_run(here or 0, told["name"], told["group"], told["status"], start, done)
        return True

    def _import_patch(self, told: dict[str, Any], _: dict[int, int]) -> bool:
        turn_id, flags, at = self._here(told["patch"]), told["flags"], told["created_at_ms"]
        if not turn_id or not 0 <= flags < 1 << 32 or not _is_time(at):
            return False
        digest = None if told["blob"] is None else digest_of(told["blob"])
        if digest is not None:
            self._blobs.size_of(digest)  # it must be here
        if not self._patches.take(turn_id, digest, flags, at):
            self._table.add_patch(turn_id, digest, flags, at)
        return True

    def _import_root(self, told: dict[str, Any], _: dict[int, int]) -> bool:
        """Give a turn its root; one that has another here keeps that."""
        turn_id, root = self._here(told["root"]), digest_of(told["hash"])
        if not turn_id:
            return False
        kept = self._db.turns.attach(turn_id, root, only_new=True)
        if kept != root:
            self._notes.append(
                f"turn {turn_id} keeps the root that it has here, {kept.hex()}, not {root.hex()}"
            )
        return True

    def _import_attempt(self, told: dict[str, Any], _: dict[int, int]) -> bool:
        parent, at = self._here(told["attempt"]), told["created_at_ms"]
        digest = digest_of(told["blob"])
        if not parent or not _is_time(at) or not self._is_node(digest, StateNode):
            return False
        if not self._attempts.take(parent, digest, at):
            self._table.add_attempt(parent, digest, at)
        return True

    def _import_ref(self, told: dict[str, Any], _: dict[int, int]) -> bool:
        self._blobs.add_refs(told["blob"], [told["ref"]])
        return True

    def _import_pin(self, told: dict[str, Any], _: dict[int, int]) -> bool:
        self._blobs.pin(told["blob"], told["pin"])
        return True

    def _import_rule(self, told: dict[str, Any], _: dict[int, int]) -> bool:
        """Say whether a rule was of any use: it was stored with its turn."""
        return told["canonical"].isprintable() and bool(self._here(told["turn"]))


def _artifact(told: Told) -> ArtifactInfo | None:
    """Give what is told of an artifact, None when it cannot be."""
    number, tool, digest, at = (
        told["artifact"],
        told["tool"],
        told.get("hash"),
        told["created_at_ms"],
    )
    if (
        number < 0
        or tool != tool_name(tool)
        or not isinstance(digest, (str, type(None)))
        or not _is_time(at)
    ):
        return None
    return ArtifactInfo(str(number), tool, told["status"], 0, 0, digest, None, at, None)


_ARTIFACT: dict[str, type] = {"artifact": int, "tool": str, "status": str, "created_at_ms": int}

# What each kind of line in eventq.ndjson is recognised by, and what stores it.
_LINES: list[tuple[dict[str, type], Callable[[_Import, dict[str, Any], dict[int, int]], bool]]] = [
    ({"context": int}, _Import._import_context),
    ({"run": int, "name": str, "group": str, "status": str, "start": int}, _Import._import_run),
    ({"patch": int, "flags": int, "created_at_ms": int}, _Import._import_patch),
    ({"root": int, "hash": str}, _Import._import_root),
    ({"attempt": int, "blob": str, "created_at_ms": int}, _Import._import_attempt),
    ({"blob": str, "ref": str}, _Import._import_ref),
    ({"blob": str, "pin": str}, _Import._import_pin),
    ({"turn": int, "canonical": str}, _Import._import_rule),
    ({"blob": str, "sha256": str}, _Import._import_name),
    ({"output": str, "version": int, "blob": str, "created_at_ms": int}, _Import._import_output),
    (_ARTIFACT, _Import._import_nothing),
]


def _fits(told: Told, kinds: dict[str, type]) -> bool:
    return all(type(told.get(name)) is kind for name, kind in kinds.items())


def _is_context_name(name: str) -> bool:
    try:
        check_context_name(name)
    except InputError:
        return False
    return True


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _signed(number: int) -> int:
    """Give an unsigned number of 64 bits as the signed one that has the same bits."""
    return number - (1 << 64) if number >= 1 << 63 else number
