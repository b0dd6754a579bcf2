"""Small sessions, written for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.sessions import tree
from eventq.sessions.links import NewSession
from eventq.sessions.reading import reader_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.sessions.tree import Tree

Entry = dict[str, Any]
SESSION = "11111111-2222-4333-8444-555555555555"
NOW = "2026-03-18T10:30:00.123Z"


def line(kind: str, uuid: str, parent: str | None, **more: Any) -> Entry:
    """Return a linked line of Claude Code."""
    made = {"parentUuid": parent, "isSidechain": False, "type": kind, "uuid": uuid}
    return made | {"sessionId": SESSION, "timestamp": "2026-03-01T00:00:00Z", "cwd": "/a"} | more


def says(uuid: str, parent: str | None, text: str = "hello", **more: Any) -> Entry:
    """Return a prompt."""
    return line("user", uuid, parent, message={"role": "user", "content": text}, **more)


def answers(
    uuid: str, parent: str | None, *blocks: Any, response: str | None = None, **more: Any
) -> Entry:
    """Return a line of a response, by default one with a text."""
    content = list(blocks) or [{"type": "text", "text": "well"}]
    message = {"role": "assistant", "id": response or f"msg_{uuid}", "content": content}
    return line("assistant", uuid, parent, message=message, **more)


def call(name: str, tool: str = "Bash", **given: Any) -> Entry:
    """Return the block of a tool call."""
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def result(uuid: str, parent: str | None, name: str, **more: Any) -> Entry:
    """Return the line with the result of a tool call."""
    block = {"type": "tool_result", "tool_use_id": name, "content": "done"}
    return line("user", uuid, parent, message={"role": "user", "content": [block]}, **more)


def header(**more: Any) -> Entry:
    """Return the header of a session of Pi."""
    made = {"type": "session", "version": 3, "id": "old", "timestamp": "2026-01-01T00:00:00.000Z"}
    return made | {"cwd": "/a"} | more


def entry(own: str, parent: str | None, kind: str = "message", **more: Any) -> Entry:
    """Return an entry of Pi, by default a prompt."""
    made: Entry = {"type": kind, "id": own, "parentId": parent, "timestamp": "2026-01-02T00:00:00Z"}
    if kind == "message" and "message" not in more:
        made["message"] = {"role": "user", "content": "hello"}
    return made | more


def grown(entries: Sequence[Entry]) -> Tree:
    """Return the tree of a file."""
    reader = reader_of(entries)
    return tree.build([reader.link(one) for one in entries], last_is_leaf=reader.last_is_leaf)


def shape(entries: Sequence[Entry]) -> tuple[list[str], str]:
    """Return the paths to all tips of a file, and the active one, each by the ids of its entries."""
    found = grown(entries)
    paths = {tip: names(entries, tree.path(found.places, tip)) for tip in found.tips}
    return list(paths.values()), "" if found.active is None else paths[found.active]


def names(entries: Sequence[Entry], positions: Iterable[int]) -> str:
    """Return the ids of some entries."""
    found = (entries[n] for n in positions)
    return " ".join(str(one.get("uuid") or one.get("id")) for one in found)


def fresh(**more: Any) -> NewSession:
    """Return what a fork is to be; its ids are counted."""
    ids = counted()
    new = NewSession(
        "99999999-2222-4333-8444-555555555555", NOW, "/sessions/old.jsonl", lambda: next(ids)
    )
    return new._replace(**more)


def counted() -> Iterator[str]:
    """Yield ids that look like UUIDs."""
    number = 0
    while True:
        number += 1
        yield f"{number:08x}-0000-4000-8000-000000000000"


def meta(**more: Any) -> Entry:
    """Return the first line of a rollout of Codex."""
    payload = {"id": SESSION, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/a", "source": "cli"}
    payload |= {"originator": "codex_cli_rs", "cli_version": "0.125.0"}
    return rollout("session_meta", **payload | more)


def rollout(kind: str, **payload: Any) -> Entry:
    """Return a line of Codex."""
    return {"timestamp": "2026-01-01T00:00:01.000Z", "type": kind, "payload": payload}


def item(kind: str, **more: Any) -> Entry:
    """Return a line of Codex that has an item of the conversation."""
    return rollout("response_item", type=kind, **more)


def event(kind: str, **more: Any) -> Entry:
    """Return a line of Codex that has an event."""
    return rollout("event_msg", type=kind, **more)


def prompt(text: str, kinds: list[str] | None = None) -> Entry:
    """Return what a person said to Codex."""
    made = item("message", role="user", content=[{"type": "input_text", "text": text}])
    if kinds is not None:
        made["payload"]["internal_chat_message_metadata_passthrough"] = {
            "content_item_kinds": kinds
        }
    return made


wrapper = prompt  # what Codex itself says in the name of a person: the text tells


def reply(text: str) -> Entry:
    """Return what Codex said."""
    return item("message", role="assistant", content=[{"type": "output_text", "text": text}])


def codex_call(own: str, name: str = "shell") -> Entry:
    """Return a tool call of Codex."""
    return item("function_call", call_id=own, name=name, arguments="{}")


def codex_output(own: str) -> Entry:
    """Return the result of a tool call of Codex."""
    return item("function_call_output", call_id=own, output="done")


def back(turns: int) -> Entry:
    """Return the mark of Codex that takes turns back."""
    return event("thread_rolled_back", num_turns=turns)
