"""Import heads: contexts are recognised and moved, or created."""

from __future__ import annotations

from eventq.memory.contexts import is_context_name
from eventq.store.copy_rows import ContextCopy
from eventq.transfer import packfile
from eventq.transfer.job import LARGEST_ID, Ids
from eventq.transfer.known import KnownContexts
from eventq.transfer.packfile import HeadRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.transfer.job import Job
    from eventq.transfer.scope_import import ScopeImport
    from eventq.transfer.turn_import import TurnImport

    Heads = dict[int, HeadRecord]  # by context


class HeadImport:
    """The contexts of one source, and the matching contexts of the target."""

    if TYPE_CHECKING:
        _known: KnownContexts

    def __init__(self, job: Job, came: TurnImport, scopes: ScopeImport) -> None:
        """Begin, inside a transaction; the turns have come."""
        self._database = job.database
        self._turns = job.turns
        self._came = came
        self._source = job.source
        self._notes = job.notes
        self.scopes = scopes
        self._ids = Ids("contexts", scopes.last_context(), scopes.made)
        self._names: dict[int, str] = {}
        self.here: dict[int, int] = {}  # ids of the source's contexts here
        self.made: set[int] = set()
        self.moved: set[int] = set()
        self.diverged: dict[int, int] = {}  # contexts here, and the turns of the source's heads
        self.behind: dict[int, int] = {}  # as well, where these are above the heads here
        self.highest = 0  # id of a turn that a head names, and that may be kept

    def run(self) -> None:
        """Store the heads that can be proven; where some are lost, make contexts of loose ends."""
        self._names = self._names_of_contexts()
        before = len(self._notes.all)
        heads, lost = self._heads()
        damaged = len(self._notes.all) > before
        times = {record.created_at_ms for some in (heads, lost) for record in some.values()}
        self._known = KnownContexts(self._database.contexts, times)
        self._check_depths(heads)
        for record in heads.values():
            self.here[record.context_id] = self._import(record)
        if damaged or not heads:
            self._rebuild({record.head_turn_id for record in heads.values()}, lost)

    def _names_of_contexts(self) -> dict[int, str]:
        """Return the names of the source's contexts; an invalid one counts as none."""
        return {
            line["context"]: line["name"]
            for line in self._source.lines()
            if line and type(line.get("context")) is int and type(line.get("name")) is str
            if is_context_name(line["name"])
        }

    def _heads(self) -> tuple[Heads, Heads]:
        """Return the last record of each context whose turn is here, and the last of the others."""
        heads: Heads = {}
        lost: Heads = {}
        for record in self._source.heads():
            if record.head_turn_id <= LARGEST_ID:
                self.highest = max(self.highest, record.head_turn_id)
            if self._came.here(record.head_turn_id) is None or _has_no_time(record):
                lost[record.context_id] = record
            else:
                heads[record.context_id] = record
                lost.pop(record.context_id, None)
        for record in lost.values():
            self._note_lost(record, stands=record.context_id in heads)
        return heads, {number: one for number, one in lost.items() if number not in heads}

    def _note_lost(self, record: HeadRecord, *, stands: bool) -> None:
        where = "stands where it stood before" if stands else "was left out"
        why = "has no time" if _has_no_time(record) else f"is not in {packfile.TURNS}"
        self._notes.fault(
            f"{packfile.HEADS}: the head of context {record.context_id}, turn"
            f" {record.head_turn_id}, {why}: the context {where}"
        )

    def _check_depths(self, heads: Heads) -> None:
        """Note the heads whose depth is not that of their turn; nothing needs it."""
        wrong = [
            record.context_id
            for record in heads.values()
            if record.head_depth != self._depth(record.head_turn_id)
        ]
        if wrong:
            count = "1 head says" if len(wrong) == 1 else f"{len(wrong)} heads say"
            self._notes.fault(
                f"{packfile.HEADS}: {count} another depth than the turn has, that of context"
                f" {wrong[0]} first"
            )

    def _depth(self, turn_id: int) -> int:
        here = self._came.here(turn_id)
        return self._turns.depth(here) if here else 0

    def _import(self, record: HeadRecord) -> int:
        """Return the target's context for a record; create it if there is none."""
        head = self._came.here(record.head_turn_id) or 0
        found = self._match(record, head)
        if found is None:
            return self._add(record.context_id, head, record.flags, record.created_at_ms)
        self._move_on(found, self._known.head(found), head)
        self._known.take(found)
        return found

    def _match(self, record: HeadRecord, head: int) -> int | None:
        """Return the context of a record: by time and id or name, then by head, then by time alone.

        Several that were born together and have no names cannot be told apart, so none is taken.
        """
        known, at, name = self._known, record.created_at_ms, self._names.get(record.context_id)
        found = known.same(record.context_id, at, name)
        if found is None and name is not None:
            found = known.named(at, name)
            if found is None and self._database.contexts.named(name) is None:
                return None
        if found is None:
            found = known.at_head(at, head)
        if found is None:
            found = known.only(at)
            here = 0 if found is None else known.head(found)
            if here and head and not self._turns.common(here, head):
                return None
        return found

    def _add(self, wanted: int, head: int, flags: int, at: int) -> int:
        here = self._ids.take(wanted)
        self._database.copies.restore([ContextCopy(here, head, 0, flags, at)])
        self.made.add(here)
        return here

    def _move_on(self, context_id: int, here: int, head: int) -> None:
        """Advance a context's head if the source is ahead."""
        shared = self._turns.common(here, head)
        if shared not in (here, head):
            self.diverged[context_id] = head
        elif shared == here != head:
            self.move(context_id, head)
        elif head != here:
            self.behind[context_id] = head

    def move(self, context_id: int, head: int) -> None:
        """Move a context's head to that of the source."""
        self._database.contexts.move(context_id, head, "import", run=True)
        self.moved.add(context_id)
        self.diverged.pop(context_id, None)

    def note_diverged(self) -> None:
        """Note the contexts that are elsewhere than in the source, and stay there."""
        for context_id, head in self.diverged.items():
            here = self._database.contexts.head(context_id)
            self._notes.remark(
                f"context {context_id} went another way here: it stays at turn {here}, the pack's"
                f" head is turn {head}"
            )

    def _rebuild(self, found: set[int], lost: Heads) -> None:
        """Make a context of each branch without a head; where one is lost, it keeps its id."""
        loose = sorted(self._came.tips - found)
        for tip in loose:
            head = self._came.here(tip) or 0
            record = next(iter(lost.values())) if len(lost) == len(loose) == 1 else None
            if record is not None and not _has_no_time(record):
                proven = HeadRecord(record.context_id, tip, 0, record.flags, record.created_at_ms)
                self.here[record.context_id] = here = self._import(proven)
            elif self._database.copies.is_reached(head):  # by a context that an earlier import made
                continue
            else:
                here = self._add(0, head, 0, self._turns.turn(head, payload=False).created_at_ms)
            self._notes.fault(
                f"{packfile.HEADS}: no head is left for turn {tip}: context {here} stands at it"
            )


def _has_no_time(record: HeadRecord) -> bool:
    return record.created_at_ms >= 1 << 63
