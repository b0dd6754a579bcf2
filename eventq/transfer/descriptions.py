"""Descriptions of turns in `turns.meta`, checked against `turns.log` and the payloads.

The records of `turns.meta` have no checksums. But the ids in both files increase, and each type
tag, encoding and length is stored twice. So a damaged record is left out or reported, and does not
affect the records after it.
"""

from __future__ import annotations

from functools import cache

from eventq.memory.nodes import START_TYPE, STATE_TYPE, VERSION
from eventq.transfer import packfile
from eventq.transfer.packfile import MetaRecord
from eventq.transfer.sources import type_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.transfer.packfile import TurnRecord

_LEAST = 1_000  # records of no turn that are read in any case; a file of holes is full of them
_FAULTS = {
    "stray": "{} of no turn that stands there in {turns}",
    "missing": "{} missing of turns in {turns}",
    "type": "{} of another type than the tag in {turns}",
    "encoding": "{} of another encoding than in {turns}",
    "length": "{} of another length than the payload has",
    "compression": "{} of an unknown compression",
}


@cache
def _node_types() -> dict[int, str]:
    """Return the types of the nodes of runs by their tags."""
    return {type_tag(type_id): type_id for type_id in (START_TYPE, STATE_TYPE)}


class Descriptions:
    """The records, taken in the order of the turns."""

    def __init__(self, metas: Iterator[MetaRecord], *, right: bool | None) -> None:
        """Read records as they are asked for; `right`: whether they are proven, None if unknown."""
        self._metas = metas
        self._right = right
        self._turns = 0
        self._found: dict[str, list[int]] = {}  # number and first turn of each kind of fault
        self._next, self._after = next(metas, None), next(metas, None)

    def of(self, turn_id: int) -> MetaRecord | None:
        """Return the description of the next turn, or None."""
        self._turns += 1
        while self._next is not None and self._is_stray(turn_id):
            self._note("stray", self._next.turn_id)
            self._advance()
        if self._next is None or self._next.turn_id != turn_id:
            self._note("missing", turn_id)
            return None
        found = self._next
        self._advance()
        return found

    def _is_stray(self, turn_id: int) -> bool:
        """Return whether the next record is of no turn: an earlier one, or before ids go back."""
        here, after = self._next, self._after
        if here is None or here.turn_id == turn_id:
            return False
        return here.turn_id < turn_id or (
            after is not None and turn_id <= after.turn_id <= here.turn_id
        )

    def _advance(self) -> None:
        self._next, self._after = self._after, next(self._metas, None)
        if self._found.get("stray", [0])[0] > _LEAST + 4 * self._turns:
            self._next = self._after = None

    def checked(self, record: TurnRecord, meta: MetaRecord | None, size: int) -> MetaRecord | None:
        """Return the description of a turn, None if it is wrong; `size` is that of the payload.

        The type of a node of a run follows from the tag alone.
        """
        found = meta if meta is None or self._right else self._confirmed(record, meta, size)
        if found is not None and self._right:
            return found
        kind = _node_types().get(record.type_tag)
        if kind is None or (found is not None and found.type_id == kind):
            return found
        # Without its type the turn would be no step, and the next step would name the wrong parent.
        return MetaRecord(record.turn_id, kind, VERSION, record.codec, 0, size)

    def _confirmed(self, record: TurnRecord, meta: MetaRecord, size: int) -> MetaRecord | None:
        """Return a description unless it is known to be wrong; note what contradicts it."""
        # A CXDB server writes 0 for every type.
        has_tag = record.type_tag or self._right is not None
        is_type = type_tag(meta.type_id) == record.type_tag or not has_tag
        for kind, holds in (
            ("type", is_type),
            ("encoding", meta.encoding == record.codec),
            ("length", meta.uncompressed_len == size),
            ("compression", meta.compression in (0, 1)),
        ):
            if not holds:
                self._note(kind, record.turn_id)
        # Other programs make tags in their own ways: a name without a proof is kept unless the file
        # is known to be bad.
        return meta if is_type or self._right is None else None

    def _note(self, kind: str, turn_id: int) -> None:
        self._found.setdefault(kind, [0, turn_id])[0] += 1

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each kind of fault, when all turns were asked for."""
        while self._next is not None:
            self._note("stray", self._next.turn_id)
            self._advance()
        if self._right:
            return
        for kind, (count, first) in self._found.items():
            what = _FAULTS[kind].format(
                "1 is" if count == 1 else f"{count} are", turns=packfile.TURNS
            )
            yield (
                f"{packfile.META}: of the descriptions of turns {what}, that of turn {first} first"
            )
