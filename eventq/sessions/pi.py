"""Sessions of Pi: a header, then entries that name their parents.

Everything is a node of the tree, also labels and changes of the model. The first version had no
ids: each entry belongs below the one before it. The agent library of version 0.74 moves its leaf
with an entry of type `leaf`, which hangs from the old leaf and names the new one as its target;
1.6 writes none. The tree has it below its target: there it is the end of the path that the session
goes on from.
"""

from __future__ import annotations

import re

from eventq.said.values import mapping, objects
from eventq.sessions.links import CALLS, FOLLOWS, MESSAGE, RESULT, Link, Title, string
from eventq.sessions.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.sessions.links import Entry, NewSession

_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d-]+Z_")  # in the name of a file, before its id
VERSION = 3  # of a header, where the source has none
_TOLD = frozenset({"message", "custom_message", "compaction", "branch_summary"})  # to the model
_POINTERS = frozenset({"label", "leaf"})  # nodes that no fork has at their place


class Pi(Plain):
    """Reads sessions of Pi."""

    name = "pi"

    def is_header(self, entry: Entry) -> bool:
        """Return whether an entry describes the file, and is no part of its tree."""
        return string(entry, "type") == "session"

    def link(self, entry: Entry) -> Link | None:
        """Return how an entry belongs into the tree of its file; None: it does not."""
        if self.is_header(entry):
            return None
        kind = _kind(entry)
        if not (own := string(entry, "id")):
            return Link(None, None, kind | FOLLOWS)
        leaf = entry.get("type") == "leaf"
        return Link(own, string(entry, "targetId" if leaf else "parentId"), kind)

    def session_id(self, entry: Entry) -> str | None:
        """Return the id of the session, if the entry states it."""
        return string(entry, "id") if self.is_header(entry) else None

    def title(self, entry: Entry) -> Title | None:
        """Return the title that an entry gives to its session."""
        if string(entry, "type") != "session_info":
            return None
        return Title((string(entry, "name") or "").strip(), 1)

    def carried(self, entry: Entry) -> bool:
        """Return whether a fork needs an entry wherever in the file it stands."""
        return self.is_header(entry) or string(entry, "type") == "label"

    def fork(
        self, path: Iterable[Entry], carried: Iterable[Entry], new: NewSession
    ) -> Iterator[Entry]:
        """Yield the header, the path in a chain without its labels, and these at its end."""
        rest = list(carried)
        yield self._header(rest, new) | {"parentSession": new.source}
        above = None
        known: set[str | None] = set()
        left: list[str | None] = []
        instead: dict[str | None, str | None] = {}  # what follows on an entry that is left out
        for entry in path:
            own = string(entry, "id")
            if string(entry, "type") in _POINTERS or self.is_header(entry):
                left.append(own)
                continue
            instead |= dict.fromkeys(left, own)
            left = []
            yield _below(above, entry, instead) if own else entry
            above = own or above
            known.add(own)
        for entry in (*_labels(rest, known), *_named(new)):
            own = short_id(new, known)
            yield {**entry, "id": own, "parentId": above}
            above = own

    def _header(self, carried: Iterable[Entry], new: NewSession) -> Entry:
        old = next((one for one in carried if self.is_header(one)), {"version": VERSION})
        cwd = new.cwd if new.cwd is not None else string(old, "cwd") or ""
        return {"type": "session", **old, "id": new.id, "timestamp": new.time, "cwd": cwd}

    def resume(self, own: str) -> str:
        """Return the command with which the tool goes on in a session."""
        return f"pi --session {own}"

    def source(self, first: Entry) -> str | None:
        """Return the session that one was forked from whose file has this first entry.

        A header has its path, or its id.
        """
        named = string(first, "parentSession") if self.is_header(first) else None
        stem = re.split(r"[/\\]", named or "")[-1].removesuffix(".jsonl")
        return _TIME.sub("", stem) or None

    def refusal(self, first: Entry) -> str:  # noqa: ARG002
        """Return why no file can be written that the tool resumes from; "" if one can."""
        return ""

    def file_name(self, new: NewSession) -> str:
        """Return the name of the file of a new session."""
        return f"{new.time.replace(':', '-').replace('.', '-')}_{new.id}.jsonl"


def _below(above: str | None, entry: Entry, instead: dict[str | None, str | None]) -> Entry:
    """Return an entry under another one; a compaction may keep what begins with a label."""
    first = string(entry, "firstKeptEntryId")
    kept = {"firstKeptEntryId": instead[first]} if instead.get(first) else {}
    return {**entry, "parentId": above, **kept}


def _kind(entry: Entry) -> int:
    """Return the flags of an entry."""
    kind = MESSAGE if string(entry, "type") in _TOLD else 0
    message = mapping(entry, "message")
    role = message.get("role")
    if role == "toolResult":
        return kind | RESULT
    calls = role == "assistant" and any(
        one.get("type") == "toolCall" for one in objects(message, "content")
    )
    return kind | CALLS if calls else kind


def _labels(entries: Iterable[Entry], known: set[str | None]) -> list[Entry]:
    """Return the entries of the labels that known entries have at the end of a file."""
    labels = {key: one for key, one in labelled(entries).items() if key in known}
    return [one for one in labels.values() if string(one, "label")]


def labelled(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the last entry about the label of each entry that has had one, by its id."""
    labels: dict[str, Entry] = {}
    for entry in entries:
        if string(entry, "type") == "label" and (target := string(entry, "targetId")):
            labels[target] = entry
    return labels


def _named(new: NewSession) -> list[Entry]:
    """Return the entry that gives a new session its title, if it gets one."""
    if new.title is None:
        return []
    return [{"type": "session_info", "timestamp": new.time, "name": new.title}]


def short_id(new: NewSession, known: set[str | None]) -> str:
    """Return a new id of an entry: eight digits, as others have them, if these are free."""
    whole = new.new_id()
    own = whole if whole[:8] in known else whole[:8]
    known.add(own)
    return own
