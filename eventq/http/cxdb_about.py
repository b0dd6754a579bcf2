"""What the first turn of a context says of it, and searches for it, as clients of CXDB do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eventq.http.registry import Rendering, unpacked
from eventq.record import Record

if TYPE_CHECKING:
    from eventq.records.turn import ContextInfo
    from eventq.thread import Thread

_ABOUT = 30  # the key of the first turn's payload that has what is known of the context


class About(Record):
    """What the first turn of a context says of it."""

    client_tag: str = ""
    title: str = ""
    labels: tuple[str, ...] = ()
    provenance: dict[str, Any] | None = None


def about(payload: bytes) -> About:
    """Return what a first turn says; nothing if it is of another form."""
    value = unpacked(payload)
    found = value.get(_ABOUT, value.get(str(_ABOUT)))
    if not isinstance(found, dict):
        return About()

    def part(key: int) -> Any:
        return found.get(key, found.get(str(key)))

    labels = part(3) if isinstance(part(3), list) else []
    provenance = part(10)
    return About(
        part(1) if isinstance(part(1), str) else "",
        part(2) if isinstance(part(2), str) else "",
        tuple([one for one in labels if isinstance(one, str)]),
        Rendering().plain(provenance) if isinstance(provenance, dict) else None,
    )


class Abouts:
    """What the first turns of contexts say, by the hash of their payload."""

    MOST = 50_000

    def __init__(self) -> None:
        self._known: dict[str, About] = {}

    def of(self, thread: Thread, info: ContextInfo) -> About:
        """Return what is known of a context."""
        return self.at(thread, info.head_turn_id)

    def at(self, thread: Thread, turn: int) -> About:
        """Return what is known of the contexts that have a turn, 0 for none."""
        turns = thread.contexts.turns
        root = turns.ancestor(turn, 0) if turn else 0
        if not root:
            return About()
        first = turns.turn(root, payload=False)
        if first.tombstone:
            self._known.pop(first.hash, None)  # it may be erased
            return About()
        if first.hash not in self._known:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[first.hash] = about(turns.turn(root).payload or b"")
        return self._known[first.hash]


class QueryError(Exception):
    """A search that is not understood, as it is shown."""

    def __init__(self, what: str, kind: str, at: int, field: str | None = None) -> None:
        super().__init__(what)
        self.shown = {"error": what, "error_type": kind, "position": at, "field": field}


class Term(Record):
    """One condition: `tag` or `label`, an operator, a text."""

    field: str
    operator: str
    text: str

    def matches(self, known: About) -> bool:
        """Return whether what is known of a context fulfils it."""
        values = (known.client_tag,) if self.field == "tag" else known.labels
        if self.operator == "^=":
            return any(one.startswith(self.text) for one in values)
        return (self.text in values) == (self.operator == "=")


_TERM = re.compile(r'\s*(\w+)\s*(\^=|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*')
_AND = re.compile(r"and\b\s*", re.IGNORECASE)


def terms_of(text: str) -> list[Term]:
    """Return the conditions of a search, which AND joins."""
    found: list[Term] = []
    at = 0
    while at < len(text) or not found:
        match = _TERM.match(text, at)
        if match is None:
            what = 'expected a condition such as tag = "x", joined by AND'
            raise QueryError(what, "syntax", at)
        if match[1] not in ("tag", "label"):
            raise QueryError(f"unknown field '{match[1]}'", "field", match.start(1), match[1])
        found.append(Term(match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])))
        at = match.end()
        if at < len(text):
            more = _AND.match(text, at)
            if more is None:
                raise QueryError("expected AND", "syntax", at)
            at = more.end()
            if at >= len(text):
                raise QueryError("expected a condition after AND", "syntax", at)
    return found
