"""Sessions of Oh My Pi: those of Pi with a title in a first line of fixed size."""

from __future__ import annotations

import json

from eventq.said.values import mapping, objects
from eventq.sessions.links import Beside, Spawn, Title, string
from eventq.sessions.pi import Pi, labelled, short_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.sessions.links import Entry, NewSession

SLOT_BYTES = 256  # of the first line, with its newline
OWN_KEYS = frozenset(
    {"title", "titleSource", "additionalDirectories", "previousSessionFiles"}
    | {"providerPromptCacheKey"}
)  # of a header, that Pi does not write
OWN_TYPES = frozenset(
    {"service_tier_change", "reset_boundary", "title_change", "ttsr_injection", "credential_pin"}
    | {"session_init", "mode_change", "model_usage", "mcp_tool_selection", "archive"}
)  # of entries


class OhMyPi(Pi):
    """Reads sessions of Oh My Pi."""

    name = "omp"

    def is_header(self, entry: Entry) -> bool:
        """Return whether an entry describes the file, and is no part of its tree."""
        return is_slot(entry) or super().is_header(entry)

    def session_id(self, entry: Entry) -> str | None:
        """Return the id of the session, if the entry states it."""
        return string(entry, "id") if super().is_header(entry) else None

    def title(self, entry: Entry) -> Title | None:
        """Return the title that an entry gives to its session: the first line has the newest."""
        if is_slot(entry):
            return Title(string(entry, "title") or "", 3)
        kind = string(entry, "type")
        if kind == "title_change" or (kind == "session" and string(entry, "title")):
            return Title(string(entry, "title") or "", 2 if kind == "title_change" else 0)
        return super().title(entry)

    def resume(self, own: str) -> str:
        """Return the command with which the tool goes on in a session."""
        return f"omp --resume {own}"

    def spawns(self, entry: Entry) -> list[Spawn]:
        """Return the starts of subagents that an entry knows of."""
        message = mapping(entry, "message")
        if string(message, "toolName") == "task":
            call = string(message, "toolCallId")
            details = mapping(message, "details")
            found = (*objects(details, "results"), *objects(details, "progress"))
            return [_spawn(call, one, "id", "taskId") for one in found]
        return [
            _spawn(string(block, "id"), one, "name", "id")
            for block in objects(message, "content")
            if string(block, "type") == "toolCall" and string(block, "name") == "task"
            for one in objects(mapping(block, "arguments"), "tasks")
            or [mapping(block, "arguments")]
        ]

    def folder(self, path: str) -> Beside:
        """Return what a file is whose path inside the session's folder, with `/`, is given.

        A subagent's own files are in a folder of its name, beside its session.
        """
        *above, last = path.split("/")
        parent = above[-1] if above else None
        stem, _, ending = last.rpartition(".")
        number = stem.partition(".")[0]
        if ending == "log" and "." in stem and number.isascii() and number.isdigit():
            return Beside("artifact", number, parent)
        if ending in ("jsonl", "md") and stem and not stem.startswith("."):
            return Beside("session" if ending == "jsonl" else "output", stem, parent)
        return Beside("other", None, parent)

    def fork(
        self, path: Iterable[Entry], carried: Iterable[Entry], new: NewSession
    ) -> Iterator[Entry]:
        """Yield the title's line if there was one, the header, the path as it is, and its labels.

        These are those that other branches have given to its entries, or have taken from them.
        """
        rest = list(carried)
        old = next((one for one in rest if is_slot(one)), None)
        rest = [one for one in rest if not is_slot(one)]
        if old is not None:
            title = new.title if new.title is not None else string(old, "title") or ""
            yield slot(title, new.time, string(old, "source"))
        header = self._header(rest, new)
        header.pop("previousSessionFiles", None)  # where the source has been
        if new.title is not None:
            header["title"] = new.title
        if parent := next(filter(None, map(self.session_id, rest)), None):
            header["parentSession"] = parent
        yield header
        yield from _relabelled((one for one in path if not self.is_header(one)), rest, new)


def _relabelled(path: Iterable[Entry], rest: list[Entry], new: NewSession) -> Iterator[Entry]:
    """Yield a path, and entries that give it the labels which it has at the end of the file."""
    known: set[str | None] = set()
    labels = []
    above = None
    for entry in path:
        yield entry
        own = string(entry, "id")
        known.add(own)
        above = own or above
        if string(entry, "type") == "label":
            labels.append(entry)
    was = labelled(labels)
    for target, entry in labelled(rest).items():
        if target in known and string(entry, "label") != string(was.get(target), "label"):
            own = short_id(new, known)
            yield {**entry, "id": own, "parentId": above}
            above = own


def is_slot(entry: Entry) -> bool:
    """Return whether an entry is the line of a title that is overwritten in place."""
    return string(entry, "type") == "title" and "v" in entry and "pad" in entry


def slot(title: str, time: str, source: str | None) -> Entry:
    """Return the entry of a title whose line has SLOT_BYTES; a longer title is cut."""
    made = {"type": "title", "v": 1, "title": "", "updatedAt": time, "pad": ""}
    if source in ("auto", "user"):
        made = {"type": "title", "v": 1, "title": "", "source": source} | made
    room = SLOT_BYTES - _size(made)
    kept = title
    while (used := _size(kept) - 2) > room and kept:
        kept = kept[: -max(1, (used - room) // 6)]  # no character has more than six bytes
    return made | {"title": kept, "pad": " " * (room - used)}


def _size(value: object) -> int:
    """Return the bytes of a value in a line; for an object with the newline."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "backslashreplace")) + isinstance(value, dict)


def _spawn(call: str | None, one: Entry, *names: str) -> Spawn:
    agent = next(filter(None, (string(one, name) for name in names)), None)
    return Spawn(call, agent, string(one, "task") or string(one, "assignment"))
