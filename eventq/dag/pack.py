"""Packs: a whole store out of a thread into a folder of the interchange format, and in again.

The layouts are in `eventq.dag.packfile`. What they have no room for lies beside them in `eventq.ndjson`, which other
programs may ignore: names and lineage of contexts, overlays, refs between blobs, pins, names of canonical rules.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_left
from functools import lru_cache

from blake3 import blake3

from eventq import system
from eventq.backends.packs import PackTable
from eventq.backends.sqlite import Store
from eventq.blobs import Blobs
from eventq.dag import packfile
from eventq.dag.packfile import BlobRecord, HeadRecord, MetaRecord, PackWriter, TurnRecord
from eventq.dag.turns import place
from eventq.errors import DamagedError, LogicError, UnknownBlobError
from eventq.records import Imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.dag.contexts import Contexts

LARGEST_ID = (1 << 62) - 1  # larger ones are given anew: the next id must fit as well, and ids elsewhere may be random
_GROUP_BYTES = 4 << 20  # blobs that are stored in one transaction


@lru_cache(1000)
def type_tag(type_id: str) -> int:
    """Give the number that stands for a type: the first 8 bytes of the BLAKE3 of its name, little-endian."""
    return int.from_bytes(blake3(type_id.encode()).digest()[:8], "little")


# --- out --------------------------------------------------------------------------------------------------------------


def export_pack(contexts: Contexts, folder: str) -> None:
    """Write all blobs, turns and heads to a folder that holds no pack yet, as they are at one moment.

    Every blob is checked; one of many parts is in memory whole while it is written. Raises DamagedBlobError, LogicError
    for a folder that holds a pack, DiskError.
    """
    mine = contexts.turns.store
    store = Store(mine.directory, write=mine.writable)
    try:
        store.run("BEGIN")  # one moment: what others commit meanwhile does not show
        connection = store.connection
        with PackWriter(folder) as pack:
            _write(store, pack)
            if store.connection is not connection:
                raise LogicError("another program took the database over meanwhile", "export again")
    finally:
        store.close()


def _write(store: Store, pack: PackWriter) -> None:
    table = PackTable(store)
    blobs = Blobs(store)
    for blob_id, digest, raw_len, codec in table.blobs():
        pack.blob(BlobRecord(digest, *blobs.kept(blob_id, digest, raw_len, codec)))
    for row in table.turns():
        turn_id, parent, depth, type_id, version, tag, encoding, canonical, digest, size, flags, at = row
        number = type_tag(type_id) if tag is None else tag & (1 << 64) - 1
        pack.turn(TurnRecord(turn_id, parent, depth, encoding, number, digest, flags, at))
        pack.meta(MetaRecord(turn_id, type_id, version, encoding, 0, size))
        if canonical is not None:
            pack.beside(_line(turn=turn_id, canonical=canonical))
    for context_id, head, depth, flags, at, name, fork_of in table.contexts():
        pack.head(HeadRecord(context_id, head, depth, flags, at))
        if name is not None or fork_of is not None:
            pack.beside(_line(context=context_id, name=name, fork_of=fork_of))
    for _, turn_id, digest, flags, at in table.patches():
        pack.beside(_line(patch=turn_id, blob=digest and digest.hex(), flags=flags, created_at_ms=at))
    for _, digest, to in table.refs():
        pack.beside(_line(ref=to.hex(), blob=digest.hex()))
    for name, pinned in blobs.pins():
        pack.beside(_line(pin=name, blob=pinned))


def _line(**told: object) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# --- in ---------------------------------------------------------------------------------------------------------------


def import_pack(contexts: Contexts, folder: str) -> Imported:
    """Store the blobs, turns and heads of a pack that are not here yet; see `Thread.import_pack`.

    Blobs come first, some a transaction; then turns and heads in one. What is damaged is left out, with all that needs
    it, and said in the notes. Raises LogicError for a folder that holds no pack.
    """
    if not os.path.isfile(os.path.join(folder, packfile.TURNS)) and not os.path.isfile(
        os.path.join(folder, packfile.BLOBS)
    ):
        raise LogicError(f"'{folder}' holds no pack", "give a folder that 'eventq pack export' wrote")
    return _Import(contexts, folder).run()


class _Import:
    """One import: what was found, and what became of it."""

    def __init__(self, contexts: Contexts, folder: str) -> None:
        self._turns = contexts.turns
        self._store = contexts.turns.store
        self._blobs = contexts.turns.blobs
        self._table = PackTable(self._store)
        self._folder = folder
        self._notes: list[str] = []
        self._seen = array("Q")  # ids of the pack's turns that are here, in order
        self._renamed: dict[int, int] = {}  # those of them that have another id here
        self._claimed: set[int] = set()  # turns here that were found again, of those that have twins
        self._tips: set[int] = set()  # turns of the pack that no other one of it follows
        self._made: set[int] = set()  # contexts
        self._new_turns = self._moved = 0

    def run(self) -> Imported:
        """Do it."""
        self._heal_indexes()
        new_blobs = self._import_blobs()
        with self._store.write():
            self._import_turns()
            known = self._import_heads()
            self._import_extra(known)
        return Imported(new_blobs, self._new_turns, len(self._made), self._moved, tuple(self._notes))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _heal_indexes(self) -> None:
        """Make the indexes anew where they are missing or damaged; they are not needed here."""
        faults = packfile.index_faults(self._folder)
        if not faults:
            return
        try:
            packfile.rebuild_indexes(self._folder)
            self._notes += [f"{fault}: both indexes were made anew" for fault in faults]
        except (DamagedError, LogicError) as error:
            self._notes += [f"{fault}, and was not made anew: {error.what}" for fault in faults]

    # --- blobs ----------------------------------------------------------------------------------------------------

    def _import_blobs(self) -> int:
        count = 0
        for group in self._groups():
            with self._store.write():
                count += sum(self._blobs.put(data).new for data in group)
        return count

    def _groups(self) -> Iterator[list[bytes]]:
        """Give the bytes of sound blobs, some MiB at once."""
        group: list[bytes] = []
        size = 0
        for offset, record in packfile.read_blobs(self._path(packfile.BLOBS), self._notes.append):
            try:
                data = record.raw()
            except DamagedError as error:
                self._notes.append(f"{packfile.BLOBS}: the record at byte {offset} was left out: {error.what}")
                continue
            group.append(data)
            size += len(data)
            if size >= _GROUP_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group

    # --- turns ----------------------------------------------------------------------------------------------------

    def _import_turns(self) -> None:
        metas = packfile.read_meta(self._path(packfile.META), self._notes.append)
        meta: MetaRecord | None = next(metas, None)
        rules = self._rules()
        last = 0
        for _, record in packfile.read_turns(self._path(packfile.TURNS), self._notes.append):
            if record.turn_id <= last:
                self._drop(record, "its id is not above the one before it")
                continue
            last = record.turn_id
            while meta is not None and meta.turn_id < record.turn_id:
                meta = next(metas, None)
            self._import_turn(record, meta if meta and meta.turn_id == last else None, rules.get(last))

    def _rules(self) -> dict[int, str]:
        """Give the canonical rules of the turns that have one."""
        return {
            told["turn"]: told["canonical"]
            for told in self._extra()
            if _is(told, turn=int, canonical=str) and told["canonical"].isprintable()
        }

    def _drop(self, record: TurnRecord, why: str) -> None:
        self._notes.append(f"{packfile.TURNS}: turn {record.turn_id} was left out: {why}")

    def _import_turn(self, record: TurnRecord, meta: MetaRecord | None, rule: str | None) -> None:
        parent = self._here(record.parent)
        if parent is None:
            self._drop(record, f"its parent, turn {record.parent}, is not there")
            return
        above = self._turns.table.spot(parent) if parent else ()
        if above is None or record.depth != (above[0] + 1 if above else 0):
            self._drop(record, f"its depth, {record.depth}, does not follow from its parent's")
            return
        if record.created_at_ms >= 1 << 63:
            self._drop(record, f"its time, {record.created_at_ms}, is none")
            return
        try:
            blob_id = self._blobs.blob_id(record.payload_hash)
        except UnknownBlobError as error:
            self._drop(record, error.what)
            return
        here = self._find(record, parent, blob_id)
        if here is None:
            here = self._add(record, parent, above, blob_id, meta, rule)
        self._seen.append(record.turn_id)
        if here != record.turn_id:
            self._renamed[record.turn_id] = here
        self._tips.discard(record.parent)
        self._tips.add(record.turn_id)

    def _here(self, turn_id: int) -> int | None:
        """Give the id that a turn of the pack has here, 0 for no turn, None for one that is not here."""
        if turn_id == 0:
            return 0
        at = bisect_left(self._seen, turn_id)
        if at == len(self._seen) or self._seen[at] != turn_id:
            return None
        return self._renamed.get(turn_id, turn_id)

    def _find(self, record: TurnRecord, parent: int, blob_id: int) -> int | None:
        """Give the turn that is here already, or None: twins are found again one by one."""
        rows = self._table.alike(
            parent, blob_id, record.codec, record.flags, record.created_at_ms, min(record.turn_id, LARGEST_ID + 1)
        )
        for turn_id, type_id, tag in rows:
            same = (type_tag(type_id) if tag is None else tag & (1 << 64) - 1) == record.type_tag
            if same and turn_id not in self._claimed:
                if len(rows) > 1:
                    self._claimed.add(turn_id)
                return int(turn_id)
        return None

    def _add(
        self,
        record: TurnRecord,
        parent: int,
        above: Any,
        blob_id: int,
        meta: MetaRecord | None,
        rule: str | None,
    ) -> int:
        type_id, version = (meta.type_id, meta.type_version) if meta else ("", 0)
        tag = None if type_tag(type_id) == record.type_tag else _signed(record.type_tag)
        free = self._turns.table.last_id() < record.turn_id <= LARGEST_ID
        self._new_turns += 1
        turn_id = self._turns.table.add(
            parent or None, *place(parent, above), type_id, version, tag, record.codec, rule, blob_id, record.flags,
            record.created_at_ms, turn_id=record.turn_id if free else None,
        )  # fmt: skip
        if self._table.alike(parent, blob_id, record.codec, record.flags, record.created_at_ms, turn_id)[1:]:
            self._claimed.add(turn_id)
        return turn_id

    # --- heads ----------------------------------------------------------------------------------------------------

    def _import_heads(self) -> dict[int, int]:
        """Store what heads there are and can be proved; give the ids that the pack's contexts have here."""
        known: dict[int, int] = {}
        notes = len(self._notes)
        heads, lost = self._heads()
        damaged = len(self._notes) > notes
        for record in heads.values():
            known[record.context_id] = self._import_head(record)
        if damaged or not heads:
            self._rebuild_heads({record.head_turn_id for record in heads.values()}, lost, known)
        return known

    def _heads(self) -> tuple[dict[int, HeadRecord], dict[int, HeadRecord]]:
        """Give the last record of each context whose turn is here, and of the others the last one."""
        heads: dict[int, HeadRecord] = {}
        lost: dict[int, HeadRecord] = {}
        for record in packfile.read_heads(self._path(packfile.HEADS), self._notes.append):
            if self._here(record.head_turn_id) is None or record.created_at_ms >= 1 << 63:
                lost[record.context_id] = record
            else:
                heads[record.context_id] = record
                lost.pop(record.context_id, None)
        for context_id, record in lost.items():
            where = "stands where it stood before" if context_id in heads else "was left out"
            self._notes.append(
                f"{packfile.HEADS}: the head of context {context_id}, turn {record.head_turn_id}, is not in"
                f" {packfile.TURNS}: the context {where}"
            )
        return heads, {context_id: record for context_id, record in lost.items() if context_id not in heads}

    def _import_head(self, record: HeadRecord) -> int:
        head = self._here(record.head_turn_id) or 0
        for context_id, here in self._table.born(record.created_at_ms, min(record.context_id, LARGEST_ID + 1)):
            if self._relate(record, context_id, here, head):
                return context_id
        free = self._table.last_context() < record.context_id <= LARGEST_ID
        wanted = record.context_id if free else None
        return self._add_context(wanted, head, record.flags, record.created_at_ms)

    def _add_context(self, context_id: int | None, head: int, flags: int, at: int) -> int:
        here = self._table.add_context(context_id, head, flags, at, system.milliseconds())
        self._made.add(here)
        return here

    def _relate(self, record: HeadRecord, context_id: int, here: int, head: int) -> bool:
        """Say whether a context of a pack is one that is here, and move that one's head on if the pack is ahead."""
        shared = self._turns.common(here, head)
        if shared not in (here, head):
            if context_id != record.context_id:
                return False
            self._notes.append(
                f"context {context_id} went another way here: it stays at turn {here}, the pack's head is turn {head}"
            )
        elif head != here == shared:
            _, version = self._turns.table.head(context_id) or (0, 0)
            self._turns.table.move(context_id, version + 1, "import", here, head, system.milliseconds())
            self._moved += 1
        return True

    def _rebuild_heads(self, found: set[int], lost: dict[int, HeadRecord], known: dict[int, int]) -> None:
        """Make a context of each branch that no head is left for; the only one lost keeps its id."""
        loose = sorted(self._tips - found)
        for tip in loose:
            head = self._here(tip) or 0
            record = next(iter(lost.values())) if len(lost) == len(loose) == 1 else None
            if record is not None and record.created_at_ms < 1 << 63:
                proven = HeadRecord(record.context_id, tip, 0, record.flags, record.created_at_ms)
                known[record.context_id] = here = self._import_head(proven)
            elif self._has_head(head):
                continue
            else:
                here = self._add_context(None, head, 0, self._turns.turn(head, payload=False).created_at_ms)
            self._notes.append(f"{packfile.HEADS}: no head is left for turn {tip}: context {here} stands at it")

    def _has_head(self, turn_id: int) -> bool:
        """Say whether a context that an earlier import made stands at a turn or went on from it."""
        at = self._turns.turn(turn_id, payload=False).created_at_ms
        return any(self._turns.common(head, turn_id) == turn_id for _, head in self._table.born(at, 0))

    # --- the rest -------------------------------------------------------------------------------------------------

    def _extra(self) -> Iterator[dict[str, Any]]:
        """Give the objects of `eventq.ndjson`; what is none is left out."""
        try:
            with open(self._path(packfile.BESIDE), "rb") as file:
                for line in file:
                    try:
                        told = json.loads(line)
                    except (ValueError, RecursionError):
                        continue
                    if isinstance(told, dict):
                        yield told
        except FileNotFoundError:
            return

    def _import_extra(self, known: dict[int, int]) -> None:
        count = 0
        for told in self._extra():
            try:
                count += self._import_one(told, known)
            except (LogicError, ValueError, OverflowError, TypeError, KeyError):
                count += 1
        if count:
            self._notes.append(f"{packfile.BESIDE}: {count} lines were left out: what they name is not there")

    def _import_one(self, told: dict[str, Any], known: dict[int, int]) -> bool:
        """Store what one line says; give True when it cannot be."""
        if _is(told, context=int):
            here = known.get(told["context"])
            if here in self._made:
                self._table.name(here or 0, told.get("name"), known.get(told.get("fork_of") or 0))
            return here is None
        if _is(told, patch=int, flags=int, created_at_ms=int):
            turn_id = self._here(told["patch"])
            if turn_id:
                blob_id = None if told["blob"] is None else self._blobs.blob_id(bytes.fromhex(told["blob"]))
                self._table.add_patch(turn_id, blob_id, told["flags"], told["created_at_ms"])
            return not turn_id
        if _is(told, blob=str, ref=str):
            self._blobs.add_refs(self._blobs.blob_id(bytes.fromhex(told["blob"])), [bytes.fromhex(told["ref"])])
        elif _is(told, blob=str, pin=str):
            self._blobs.pin(told["blob"], told["pin"])
        else:
            return not _is(told, turn=int, canonical=str)
        return False


def _is(told: dict[str, Any], **kinds: type) -> bool:
    return all(type(told.get(name)) is kind for name, kind in kinds.items())


def _signed(number: int) -> int:
    """Give an unsigned number of 64 bits as the signed one that has the same bits."""
    return number - (1 << 64) if number >= 1 << 63 else number
