"""Sessions of Claude Code: lines that name their parents, among lines that do not.

There is no header. One response of the model is several lines, and so are its parallel calls. What
its subagents write stands in files of their own, or, in older ones, in sidechains of the same file.
"""

from __future__ import annotations

from eventq.said.values import mapping, objects, time_of
from eventq.sessions.links import (
    CALLS,
    ENDS,
    GOES,
    KEEPS,
    MESSAGE,
    META,
    RESULT,
    Beside,
    Kept,
    Link,
    Spawn,
    Start,
    Title,
    message_text,
    string,
)
from eventq.sessions.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.sessions.links import Entry, NewSession

LINKED = frozenset({"user", "assistant", "attachment", "system", "progress"})
UNLINKED = frozenset(
    {"ai-title", "custom-title", "agent-name", "agent-setting", "content-replacement", "tag"}
    | {"file-history-snapshot", "file-history-delta", "last-prompt", "mode", "permission-mode"}
    | {"bridge-session", "continued-in", "pr-link", "queue-operation"}
)
_TITLES = {"customTitle": 2, "aiTitle": 1, "summary": 0}
_TITLED = frozenset({"custom-title", "ai-title", "summary"})
_LONGEST = 200  # characters of a title that is taken from a prompt
_OF_THE_SOURCE = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")
_THINKING = frozenset({"thinking", "redacted_thinking"})
_REPLACED = "content-replacement"


class Claude(Plain):
    """Reads sessions of Claude Code."""

    name = "claude"
    last_is_leaf = False
    closes_gaps = True
    forks_agents = False  # their lines name the source

    def link(self, entry: Entry) -> Link | None:
        """Return how an entry belongs into the tree of its file; None: it does not."""
        own, kind = string(entry, "uuid"), string(entry, "type")
        if kind == "last-prompt" and (leaf := string(entry, "leafUuid")):
            return Link(None, leaf, GOES)
        if not own or (kind not in LINKED and "parentUuid" not in entry):
            return None
        flags = META if entry.get("isMeta") or entry.get("teamName") else 0
        agent = (string(entry, "agentId") or "") if entry.get("isSidechain") else None
        if string(entry, "subtype") == "compact_boundary":
            # The tool ends its way up there, whatever that names, and forgets where it went on.
            flags |= GOES if self.kept(entry) is None else GOES | KEEPS
            logical = string(entry, "logicalParentUuid")
            return Link(own, None, flags, agent=agent, continues=logical)
        response = None
        if kind in ("attachment", "system"):
            flags |= ENDS
        elif kind in ("user", "assistant"):
            flags |= MESSAGE | _calls(entry)
        if kind == "assistant":
            message = mapping(entry, "message")
            response = string(message, "id") or string(entry, "requestId") or own
        return Link(own, string(entry, "parentUuid"), flags, response, agent)

    def is_record(self, entry: Entry) -> bool:
        """Return whether an entry looks like a record of the tool, and not like a part of one."""
        kind = string(entry, "type")
        if string(entry, "uuid") and "parentUuid" in entry:
            return kind in LINKED
        if kind == "file-history-snapshot":
            return bool(mapping(entry, "snapshot"))
        if kind == "summary":
            return bool(string(entry, "leafUuid"))
        return kind in UNLINKED and bool(string(entry, "sessionId"))

    def at(self, entry: Entry) -> int | None:
        """Return when an entry was written, in milliseconds; None for what is only progress."""
        return None if string(entry, "type") == "progress" else time_of(entry)

    def kept(self, entry: Entry) -> Kept | None:
        """Return what a compaction has kept: each entry, or those from one to another."""
        about = mapping(entry, "compactMetadata")
        messages, segment = mapping(about, "preservedMessages"), mapping(about, "preservedSegment")
        ids = messages.get("uuids", [segment.get("headUuid"), segment.get("tailUuid")])
        anchor = string(messages or segment, "anchorUuid")
        if anchor is None or not isinstance(ids, list) or not ids or not all(map(_is_id, ids)):
            return None
        return Kept(anchor, tuple(ids), bool(messages))

    def session_id(self, entry: Entry) -> str | None:
        """Return the id of the session; a subagent's entries state that of its parent."""
        return string(entry, "sessionId")

    def title(self, entry: Entry) -> Title | None:
        """Return the title that an entry gives to its session."""
        if string(entry, "type") not in _TITLED:
            return None
        found = (Title(string(entry, key) or "", rank) for key, rank in _TITLES.items())
        return next((one for one in found if one.text), None)

    def spawns(self, entry: Entry) -> list[Spawn]:
        """Return the starts of subagents that an entry knows of."""
        blocks = _blocks(entry)
        data = mapping(entry, "data")  # of a line that reports progress
        if agent := string(data, "agentId"):
            return [Spawn(string(entry, "parentToolUseID"), agent, string(data, "prompt"))]
        result = mapping(entry, "toolUseResult")
        if agent := string(result, "agentId") or string(result, "runId"):
            calls = filter(None, (string(block, "tool_use_id") for block in blocks))
            return [Spawn(next(calls, None), agent, string(result, "prompt"))]
        return [
            Spawn(string(block, "id"), None, string(mapping(block, "input"), "prompt"))
            for block in blocks
            if string(block, "type") == "tool_use"
            if string(block, "name") in ("Agent", "Task", "Workflow")
        ]

    def folder(self, path: str) -> Beside:
        """Return what a file is whose path inside the session's folder, with `/`, is given."""
        *above, last = path.split("/")
        if above[:1] == ["subagents"] and last.startswith("agent-"):
            parent = above[-1] if len(above) > 1 else None
            for ending, kind in ((".meta.json", "sidecar"), (".jsonl", "session")):
                if last.endswith(ending):
                    return Beside(kind, last[len("agent-") : -len(ending)], parent)
        if above == ["tool-results"]:
            return Beside("output", last.rpartition(".")[0] or last)
        return Beside("other")

    def sidecar(self, content: Any) -> Start:
        """Return what the JSON value in a sidecar says about the start of its subagent."""
        return Start(string(content, "toolUseId"), string(content, "parentAgentId"))

    def carried(self, entry: Entry) -> bool:
        """Return whether a fork needs an entry wherever in the file it stands."""
        return string(entry, "type") in _TITLED or string(entry, "type") == _REPLACED

    def fork(
        self, path: Iterable[Entry], carried: Iterable[Entry], new: NewSession
    ) -> Iterator[Entry]:
        """Yield the path under new ids, what replaces contents, and a title; nothing for no path.

        Left out are progress, sidechains, unless the path is one, and what the API would refuse:
        calls without result, results without call, and responses that would be thoughts only.
        """
        rest, whole = list(carried), list(path)
        kept = _answered(_own(whole))
        if not kept:
            return
        source = next(filter(None, map(self.session_id, reversed(whole))), None)
        yield from _renewed(whole, kept, source, new)
        common = {"sessionId": new.id, "timestamp": new.time}
        replaced = [
            one
            for entry in rest
            if string(entry, "type") == _REPLACED and string(entry, "sessionId") == source
            for one in objects(entry, "replacements")
        ]
        if replaced:
            yield {"type": _REPLACED, "replacements": replaced, "uuid": new.new_id()} | common
        title = new.title if new.title is not None else self._title(kept, rest) + " (fork)"
        yield {"type": "custom-title", "customTitle": title, "uuid": new.new_id()} | common

    def resume(self, own: str) -> str:
        """Return the command with which the tool goes on in a session."""
        return f"claude --resume {own}"

    def source(self, first: Entry) -> str | None:
        """Return the session that one was forked from whose file has this first entry."""
        return string(mapping(first, "forkedFrom"), "sessionId")

    def refusal(self, first: Entry) -> str:  # noqa: ARG002
        """Return why no file can be written that the tool resumes from; "" if one can."""
        return ""

    def doubt(self, name: str, new: NewSession) -> str:
        """Return why the tool may not resume from a file of this name; "" if it does."""
        wanted = self.file_name(new)
        what = f"Claude Code looks for this session in a file of the name '{wanted}'"
        return "" if name == wanted else what

    def _title(self, path: Iterable[Entry], carried: Iterable[Entry]) -> str:
        """Return the title of the source, or what it begins with."""
        titles = [title for title in map(self.title, carried) if title]
        if titles:
            return max(reversed(titles), key=lambda title: title.rank).text
        for entry in path:
            text = message_text(entry) if string(entry, "type") == "user" else None
            if (
                text
                and text[0] != "<"
                and not (entry.get("isMeta") or entry.get("isCompactSummary"))
            ):
                return " ".join(text.split())[:_LONGEST]
        return "Forked session"


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _blocks(entry: Entry) -> list[Entry]:
    return objects(mapping(entry, "message"), "content")


def _calls(entry: Entry) -> int:
    """Return the flags for the tool calls of a message and their results."""
    kinds = {string(block, "type") for block in _blocks(entry)}
    return (CALLS if "tool_use" in kinds else 0) | (RESULT if "tool_result" in kinds else 0)


# --- forks ----------------------------------------------------------------------------------------


def _own(path: list[Entry]) -> list[Entry]:
    """Return the entries of a path that a new session has: progress is for the screen only."""
    main = [one for one in path if not one.get("isSidechain")]
    return [one for one in main or path if string(one, "type") != "progress"]


def _answered(path: list[Entry]) -> list[Entry]:
    """Return a path without the calls and results that lack the other, and their leftovers."""
    answered = _pairs(path)
    used: set[tuple[str, str]] = set()
    kept = [found for one in path if (found := _cut(one, answered, used))]
    told = {_response(one) for one in kept if _tells(one)}
    return [one for one in kept if _response(one) is None or _response(one) in told]


def _pairs(path: Iterable[Entry]) -> set[str]:
    """Return the ids of the calls that have a result further down."""
    calls, answered = set(), set()
    for block in (block for entry in path for block in _blocks(entry)):
        if string(block, "type") == "tool_use":
            calls.add(string(block, "id"))
        elif (call := string(block, "tool_use_id")) and call in calls:
            answered.add(call)
    return answered


def _cut(entry: Entry, answered: set[str], used: set[tuple[str, str]]) -> Entry | None:
    """Return an entry without the calls and results that must not be; None if nothing is left."""
    blocks = mapping(entry, "message").get("content")
    if not isinstance(blocks, list):
        return entry
    kept = [one for one in blocks if _may_stay(one, answered, used)]
    if len(kept) == len(blocks):
        return entry
    return {**entry, "message": {**entry["message"], "content": kept}} if kept else None


def _may_stay(block: Any, answered: set[str], used: set[tuple[str, str]]) -> bool:
    """Return whether a block is no call or result, or the first one of a pair."""
    kind = string(block, "type")
    if kind not in ("tool_use", "tool_result"):
        return True
    call = string(block, "id" if kind == "tool_use" else "tool_use_id")
    if call not in answered or (kind, call) in used:
        return False
    if kind == "tool_result" and ("tool_use", call) not in used:
        return False  # its call comes later
    used.add((kind, call))
    return True


def _response(entry: Entry) -> str | None:
    """Return the response of the model that an entry is a part of."""
    if string(entry, "type") != "assistant":
        return None
    return string(mapping(entry, "message"), "id") or string(entry, "uuid") or ""


def _tells(entry: Entry) -> bool:
    """Return whether an entry has more than thoughts."""
    kinds = [string(block, "type") for block in _blocks(entry)]
    return any(kind not in _THINKING for kind in kinds) or bool(
        string(mapping(entry, "message"), "content")
    )


def _renewed(
    path: list[Entry], kept: list[Entry], source: str | None, new: NewSession
) -> Iterator[Entry]:
    """Yield the kept entries of a path as a chain of the new session."""
    ids: dict[str, str] = {}
    fresh = {string(one, "uuid"): new.new_id() for one in kept}
    above = None
    for one in path:  # what is left out stands for the last one before it
        if own := string(one, "uuid"):
            above = fresh.get(own, above)
            if above:
                ids[own] = above
    above = None
    for one in kept:
        own = string(one, "uuid")
        made = {key: value for key, value in one.items() if key not in _OF_THE_SOURCE}
        made |= {"uuid": fresh[own], "parentUuid": above, "sessionId": new.id}
        made |= {"isSidechain": False, "forkedFrom": {"sessionId": source, "messageUuid": own}}
        if "logicalParentUuid" in one:
            made["logicalParentUuid"] = ids.get(string(one, "logicalParentUuid") or "")
        if new.cwd is not None:
            made["cwd"] = new.cwd
        if one.get("isSidechain"):
            made.pop("agentId", None)
        if one is kept[-1] or "timestamp" not in one:
            made["timestamp"] = new.time
        yield made
        above = fresh[own]
