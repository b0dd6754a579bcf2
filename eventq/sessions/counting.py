"""Count the tokens of sessions as they are imported, and of what older versions have stored."""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile

from eventq.errors import DamagedError, UnknownBlobError
from eventq.memory.nodes import START_TYPE, STATE_TYPE, StateNode, decode
from eventq.records.checks import REF
from eventq.said import spending
from eventq.sessions import lines
from eventq.sessions.reading import reader_named
from eventq.store.usage import number_of
from eventq.store.usage_rows import Figure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.memory.blobs import Blobs
    from eventq.records.spent import Spent
    from eventq.sessions.links import Entry
    from eventq.store.engine import Engine
    from eventq.store.session_rows import SessionRow
    from eventq.store.usage_rows import Appended, UsageCopy

_SETTINGS = b"turn_context"  # a line of Codex that names the model of what follows
_NEAR = 100  # lines that are read for it
PAGE = 500  # lines or turns whose payloads are read together
QUICKLY = 0.01  # seconds that a question waits for other writers before it is answered


class Tally:
    """What the lines of a session say that responses took, from one on."""

    def __init__(self, database: Engine, blobs: Blobs, row: SessionRow, first: int) -> None:
        """Begin at a line; those after it are given in order."""
        self._database = database
        self._blobs = blobs
        self._row = row
        self._first = first
        self._is_log = reader_named(row.tool).is_log
        self._node = -1  # the position of the entry that what stands beside counts for
        self._model: str | None = None  # of what stands beside
        # Position, agent, time, model, and counts, by the response, or by the position of another.
        self._found: dict[str | int, list[Any]] = {}

    def figures(self) -> list[Figure]:
        """Return what each response took, with the most that is said of it."""
        return [
            Figure(place, number_of(key) if isinstance(key, str) else 0, *rest)
            for key, (place, *rest) in self._found.items()
        ]

    def line(self, position: int, entry: Entry | None, *, is_node: bool, agent: bool) -> None:
        """Look at a line, and its entry, if it has one."""
        if is_node:
            self._node = position
        if entry is None:
            return
        if self._is_log and (model := _model_of(entry)) is not None:
            self._model = model
        found = spending.of(entry)
        if found is not None and (is_node or found.beside):
            self._add(found, agent=agent)

    def _add(self, found: Spent, *, agent: bool) -> None:
        response = found.response
        if found.beside:
            found = self._above(found)
            response = f"{self._row.name}\n{response}" if response else ""
        if not response and found.at is not None:
            response = "/".join(map(str, (found.at, *found[:4])))
        if self._node < 0:
            return
        counts = found[:3]
        before = self._found.get(response or self._node)
        if before is None:
            about = [self._node, int(agent), found.at, found.model, *counts]
            self._found[response or self._node] = about
        elif tuple(before[4:]) != counts:
            before[4:] = map(max, before[4:], counts)

    def _above(self, found: Spent) -> Spent:
        """Return what stands beside with the model; where that begins, look for both above."""
        session = self._row.session
        if session and self._node < 0:
            self._node = self._database.sessions.node_before(session, self._first)
        if self._model is None:
            self._model = self._model_above() if session else ""
        return found._replace(model=self._model)

    def _model_above(self) -> str:
        """Return the model that was stated last above the first line, if it is near."""
        session = self._row.session
        near = self._database.sessions.others_before(session, self._first, _NEAR)
        payloads = _payloads(self._blobs, [digest for _, digest in near])
        for _, digest in near:
            payload = payloads.get(digest, b"")
            entry = lines.lenient(payload) if _SETTINGS in payload else None
            if entry is not None and (model := _model_of(entry)) is not None:
                return model
        return self._database.usage.last_model(session)


def _model_of(entry: Entry) -> str | None:
    """Return the model that the settings of a turn of Codex name; None for another entry."""
    is_stated = entry.get("type") == _SETTINGS.decode()
    return spending.model_of(entry.get("payload")) if is_stated else None


def count_session(
    database: Engine, blobs: Blobs, row: SessionRow, first: int, patience: float | None = None
) -> int:
    """Count what the next lines of a session took, from one on; return how many were looked at."""
    is_log = reader_named(row.tool).is_log
    page = database.sessions.lines(row.session, first - 1, PAGE)
    tally = Tally(database, blobs, row, first)
    payloads = _payloads(blobs, [line.digest for line in page])
    upto = page[-1].position + 1 if page else row.lines
    near = takewhile(lambda one: one.position < upto, database.sessions.links(row.session, first))
    links = {one.position: one for one in near}
    for line in page:
        link, payload = links.get(line.position), payloads.get(line.digest, b"")
        if link is None:
            break  # it is gone meanwhile
        may_say = b"usage" in payload or b'"tokens"' in payload
        may_say |= is_log and _SETTINGS in payload
        entry = lines.lenient(payload) if may_say and line.form != lines.RAW else None
        agent = link.agent is not None
        tally.line(line.position, entry, is_node=bool(link.is_node), agent=agent)
    with database.write(relaxed=True, patience=patience):
        now = database.sessions.find(row.name, row.generation)
        if now is not None and _same(now) == _same(row):  # else they are others now
            database.usage.of_session(row.session, tally.figures(), upto)
    return upto - first


def _same(row: SessionRow) -> tuple[int, int, bytes]:
    """Return what is the same while a session's lines are."""
    return row.session, row.lines, row.digest


def catch_up(database: Engine, blobs: Blobs, most: int, patience: float | None = QUICKLY) -> None:
    """Count what was stored before tokens were counted, of so many lines or turns at most.

    Raises BusyError when somebody else has written for longer than its patience, in seconds.
    """
    while most > 0:
        if (behind := database.usage.behind()) is not None:
            session, first, _ = behind
            rows = [one for one in database.sessions.page(session - 1, 1) if one.session == session]
            most -= sum(count_session(database, blobs, row, first, patience) for row in rows) or 1
        elif done := _count_turns(database, blobs, patience):
            most -= done
        else:
            return


def _count_turns(database: Engine, blobs: Blobs, patience: float | None) -> int:
    """Count what the next turns of contexts and runs took; return how many there were."""
    if (looked := database.usage.looked()) is None:
        return 0
    *after, upto = looked
    page = database.usage.appended(after, upto, PAGE)
    payloads = _payloads(blobs, [one.digest for one in page])
    with database.write(relaxed=True, patience=patience):
        if database.usage.looked() != looked:
            return len(page)  # somebody else has counted it
        there = {*database.usage.appended(after, upto, PAGE)}  # or it was collected or erased
        for one in filter(there.__contains__, page):
            for spent in _spent(database, blobs, one, payloads.get(one.digest)):
                database.usage.of_turn(one.context, one.turn, spent, one.at)
        database.usage.look(page[-1] if page else None, upto)
    return len(page)


def uncounted(database: Engine, blobs: Blobs) -> Iterator[UsageCopy]:
    """Yield what turns of contexts and runs took that older versions have stored, as it will count.

    A copy has no notes of what was appended where, from which that is known.
    """
    if (looked := database.usage.looked()) is None:
        return
    context, version, upto = looked
    found: dict[int, UsageCopy] = {}  # of one context, by the response, or by the turn of another
    while page := database.usage.appended((context, version), upto, PAGE):
        payloads = _payloads(blobs, [one.digest for one in page])
        for one in page:
            if one.context != context:
                yield from found.values()
                found = {}
            context, version = one.context, one.version
            for spent in _spent(database, blobs, one, payloads.get(one.digest)):
                response = number_of(spent.response)
                was = found.get(response or -one.turn)
                new = database.usage.as_counted(context, one.turn, spent, one.at, was)
                found[response or -one.turn] = new
    yield from found.values()


def _spent(database: Engine, blobs: Blobs, one: Appended, payload: bytes | None) -> list[Spent]:
    """Return what a turn took, and of a run the attempts after it."""
    if payload is None:
        return []
    if one.type_id not in (START_TYPE, STATE_TYPE):
        found = spending.of_payload(payload)
        return [] if found is None else [found]
    nodes = {one.digest: payload, **_payloads(blobs, database.runs.attempts(one.turn))}
    return [took for key, data in nodes.items() if (took := _of_node(data, REF + key.hex()))]


def _of_node(data: bytes, ref: str) -> Spent | None:
    """Return what a step took, or an attempt."""
    try:
        node = decode(data, ref)
    except DamagedError:  # anybody may append turns of any type
        return None
    found = spending.of_meta(node.meta) if isinstance(node, StateNode) else None
    return None if found is None else found._replace(response=ref)


def _payloads(blobs: Blobs, digests: list[bytes]) -> dict[bytes, bytes]:
    """Return the bytes of blobs that are stored whole; `check` finds the others."""
    try:
        return blobs.shown_many(digests)
    except (DamagedError, UnknownBlobError):
        found: dict[bytes, bytes] = {}
        for digest in digests:
            with suppress(DamagedError, UnknownBlobError):
                found |= blobs.shown_many([digest])
        return found
