"""Sessions of OpenAI Codex: a log, whose order is the history, with marks that take turns back.

The items of the conversation become turns. Everything else stands beside them: the head of the
file, settings, counts of tokens, and events that repeat items for the screen. A mark takes the
last turns back, each from the message of a person on, with what the tool itself has put before it.
That was seen in versions 0.66 to 0.171 of the tool; the files of early 2025 have bare items.
"""

from __future__ import annotations

import re
from datetime import datetime

from eventq.said.values import mapping, objects
from eventq.sessions.links import (
    BACK,
    BEGINS,
    CALLS,
    FOLLOWS,
    MESSAGE,
    META,
    RESULT,
    Cut,
    Link,
    Title,
    string,
    text_of,
)
from eventq.sessions.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.sessions.links import Entry, NewSession

_THREAD = ("thread_id", "session_id")
_LEADS = frozenset({"task_started", "turn_started", "thread_settings_applied"})
_NAMED = "thread_name_updated"
_NAME = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f-]{36}\.jsonl")
_OF_THE_SOURCE = frozenset(
    {"history_base", "history_mode", "parent_thread_id", "context_window", "account_scoped"}
    | {"agent_nickname", "agent_role", "agent_path"}
)  # of the head
_OF_THE_LINE = frozenset({"timestamp", "ordinal"})
_DEFAULTS = {"source": "cli", "originator": "codex_cli_rs", "cli_version": "0.0.0"}
_LONGEST = 200  # characters of a title that is taken from a prompt
_HEAD = "session_meta"
_ITEM = "response_item"
_EVENT = "event_msg"
_MAIL = "inter_agent_communication"
_ITEMS = frozenset({_ITEM, "compacted", _MAIL})
_DATA = frozenset({_HEAD, _EVENT, "turn_context", "world_state"})
_BARE = frozenset({"message", "reasoning", "function_call", "function_call_output"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
# What the tool itself says in the name of the user: about the directory, rules, what was run.
_OF_THE_TOOL = re.compile(
    r"# AGENTS\.md instructions.*</INSTRUCTIONS>|<(environment_context|user_instructions|skill"
    r"|goal_context|user_shell_command|turn_aborted|subagent_notification|hook_prompt"
    r"|recommended_plugins|codex_internal_context)>.*</\1>",
    re.IGNORECASE | re.DOTALL,
)


class Codex(Plain):
    """Reads sessions of OpenAI Codex."""

    name = "codex"
    is_log = True

    def resume(self, own: str) -> str:
        """Return the command with which the tool goes on in a session."""
        return f"codex resume {own}"

    def is_header(self, entry: Entry) -> bool:
        """Return whether an entry describes the file, and is no part of its tree."""
        return string(entry, "type") == _HEAD

    def is_record(self, entry: Entry) -> bool:
        """Return whether an entry looks like a record of the tool, and not like a part of one."""
        known = string(entry, "type") in _ITEMS | _DATA and "timestamp" in entry
        return (known and bool(mapping(entry, "payload"))) or is_codex(entry)

    def link(self, entry: Entry) -> Link | None:
        """Return how an entry belongs into the tree of its file; None: it does not.

        Ids of items are left out: a server may give one twice, and both are said.
        """
        if string(entry, "type") == _EVENT:
            taken = _taken_back(entry)
            return Link(None, str(taken), BACK) if taken else None
        item = item_of(entry)
        return Link(None, None, MESSAGE | FOLLOWS | _kind(entry, item)) if item else None

    def session_id(self, entry: Entry) -> str | None:
        """Return the id of the session, if the entry states it."""
        return string(mapping(entry, "payload"), "id") if self.is_header(entry) else None

    def title(self, entry: Entry) -> Title | None:
        """Return the title that an entry gives to its session: a name, or what was said first."""
        event = mapping(entry, "payload") if string(entry, "type") == _EVENT else {}
        if string(event, "type") == _NAMED:
            return Title(string(event, "thread_name") or "", 1)
        if string(event, "type") == "user_message":
            text = string(event, "message")
        else:
            item = item_of(entry)
            text = text_of(item) if item and _kind(entry, item) == BEGINS else None
        return Title(" ".join(text.split())[:_LONGEST], -1) if text and text.strip() else None

    def leads(self, entry: Entry) -> bool:
        """Return whether what stands beside the turns of a log belongs to the next one."""
        return string(entry, "type") == "turn_context" or (
            string(entry, "type") == _EVENT and string(mapping(entry, "payload"), "type") in _LEADS
        )

    def fork(
        self,
        path: Iterable[Entry],
        carried: Iterable[Entry],
        new: NewSession,
    ) -> Iterator[Entry]:
        """Yield a head that names the source, and the path, calls only with their results.

        The file stands for itself, so the lines are not numbered.
        """
        whole = [*path]
        old = next((mapping(one, "payload") for one in carried), {})
        kept = _answered(whole)
        if not any(map(item_of, kept)):
            return
        yield _line(new.time, _HEAD, _head(old, new))
        for one in kept:
            if self.is_header(one):
                continue
            payload = mapping(one, "payload")
            if not payload and not _is_bare(one):
                continue
            time = string(one, "timestamp") or new.time
            if not payload:
                yield _line(time, _ITEM, one)
                continue
            own = {key: new.id for key in _THREAD if payload.get(key) == old.get("id", payload)}
            if new.cwd is not None and string(one, "type") == "turn_context":
                own["cwd"] = new.cwd
            made = {key: value for key, value in one.items() if key != "ordinal"}
            yield made | {"timestamp": time, "payload": payload | own}
        if new.title is not None:
            named = {"type": _NAMED, "thread_id": new.id, "thread_name": new.title}
            yield _line(new.time, _EVENT, named)

    def file_name(self, new: NewSession) -> str:
        """Return the name of the file of a new session, which has the local time."""
        local = datetime.fromisoformat(new.time).astimezone()
        return f"rollout-{local:%Y-%m-%dT%H-%M-%S}-{new.id}.jsonl"

    def begins_in(self, first: Entry) -> Cut | None:
        """Return where the beginning of a session stands whose file has this first entry."""
        base = mapping(mapping(first, "payload"), "history_base")
        size = base.get("end_byte_offset")
        thread = string(base, "thread_id")
        return Cut(thread, size) if thread and type(size) is int and size >= 0 else None

    def source(self, first: Entry) -> str | None:
        """Return the session that one was forked from whose file has this first entry."""
        head = mapping(first, "payload") if self.is_header(first) else {}
        return None if mapping(head, "history_base") else string(head, "forked_from_id")

    def copied(self, entry: Entry) -> Entry:
        """Return what a copy of an entry in the file of a fork has as well: all but its time."""
        return {key: value for key, value in entry.items() if key not in _OF_THE_LINE}

    def origin(self, first: Entry) -> str:
        """Return a sentence on what session one comes from that has a copy of its lines, or ""."""
        parent, _ = self.started_in(first)
        return f"this is a subagent of session '{parent}'" if parent else super().origin(first)

    def started_in(self, first: Entry) -> tuple[str | None, str]:
        """Return the session that started a subagent whose file has this first entry, and its name.

        Its file is one like any other.
        """
        head = mapping(first, "payload") if self.is_header(first) else {}
        spawn = mapping(mapping(mapping(head, "source"), "subagent"), "thread_spawn")
        parent = string(spawn, "parent_thread_id") or string(head, "parent_thread_id")
        return parent, string(spawn, "agent_nickname") or string(head, "agent_nickname") or ""

    def refusal(self, first: Entry) -> str:  # noqa: ARG002
        """Return why no file can be written that the tool resumes from; "" if one can."""
        return ""

    def doubt(self, name: str, new: NewSession) -> str:
        """Return why the tool may not resume from a file of this name; "" if it does."""
        what = f"Codex looks for this session in a file of the name '{self.file_name(new)}'"
        return "" if _NAME.fullmatch(name) and name.endswith(f"-{new.id}.jsonl") else what


def _line(time: str, kind: str, payload: Entry) -> Entry:
    return {"timestamp": time, "type": kind, "payload": payload}


def _head(old: Entry, new: NewSession) -> Entry:
    """Return the head of a new session: one that a person has begun, whoever began the source."""
    made = {key: value for key, value in old.items() if key not in _OF_THE_SOURCE}
    cwd = new.cwd if new.cwd is not None else string(old, "cwd") or ""
    made |= {"id": new.id, "timestamp": new.time, "cwd": cwd}
    made |= {key: string(old, key) or value for key, value in _DEFAULTS.items()}
    if "session_id" in old:
        made["session_id"] = new.id
    if source := string(old, "id"):
        made["forked_from_id"] = source
    if not isinstance(old.get("source"), str):
        made.pop("thread_source", None)
    return made


def _answered(path: Iterable[Entry]) -> list[Entry]:
    """Return a path without calls and results that lack the other, and thoughts that led there."""
    whole = [*path]
    calls: set[str] = set()
    answered: set[str] = set()
    for item in map(item_of, whole):
        if call := string(item, "call_id"):
            if string(item, "type") in _CALLS:
                calls.add(call)
            elif call in calls:
                answered.add(call)
    kept: list[Entry] = []
    for one in whole:
        item = item_of(one)
        call = string(item, "call_id")
        if string(item, "type") in _CALLS | _RESULTS and call and call not in answered:
            while kept and string(item_of(kept[-1]), "type") == "reasoning":
                kept.pop()
        else:
            kept.append(one)
    return kept


def is_codex(entry: Entry) -> bool:
    """Return whether an entry tells that a file is one of the tool: others have a type alone."""
    if string(entry, "type") in (_HEAD, _ITEM):
        return bool(mapping(entry, "payload"))
    return _is_bare(entry) or string(entry, "record_type") == "state"


def item_of(entry: Entry) -> Entry:
    """Return the item of the conversation that an entry has; an empty one for none."""
    if string(entry, "type") in _ITEMS:
        item = mapping(entry, "payload")
        return {} if string(item, "type") == "ghost_snapshot" else item
    return entry if _is_bare(entry) else {}


def _is_bare(entry: Entry) -> bool:
    """Return whether an entry is an item as it stands, as in the files of early 2025."""
    kind = string(entry, "type")
    if kind == "message":
        kinds = {string(one, "type") for one in objects(entry, "content")}
        return bool(kinds & {"input_text", "output_text"})
    return kind in _BARE and ("call_id" in entry or "summary" in entry)


def _kind(entry: Entry, item: Entry) -> int:
    """Return the flags of an item, but for those that all have."""
    kind = string(item, "type")
    if kind in _CALLS:
        return CALLS
    if kind in _RESULTS:
        return RESULT
    if string(entry, "type") == _MAIL:
        return BEGINS if item.get("trigger_turn") else META
    if kind == "agent_message":
        return BEGINS
    if kind != "message":
        return 0
    role = string(item, "role")
    if role == "user":
        return META if _is_of_the_tool(item) else BEGINS
    begins = (text_of(item) or "").lstrip()[:1]
    return META if role == "developer" and begins == "<" else 0


def _is_of_the_tool(item: Entry) -> bool:
    """Return whether a message of a user is what the tool itself tells the model."""
    kinds = mapping(item, "internal_chat_message_metadata_passthrough").get("content_item_kinds")
    if isinstance(kinds, list) and "user.text" in kinds:
        return False
    texts = (string(one, "text") for one in objects(item, "content"))
    return any(text and _OF_THE_TOOL.fullmatch(text.strip()) for text in texts)


def _taken_back(entry: Entry) -> int:
    """Return how many turns an event takes back."""
    event = mapping(entry, "payload")
    count = event.get("num_turns")
    is_mark = string(event, "type") == "thread_rolled_back"
    return count if is_mark and type(count) is int and 0 < count < 1 << 32 else 0
