"""The nodes of a workflow run: pure values, and the canonical bytes that name them.

A node is the canonical JSON of `{"type", "payload", "refs"}`. The payload is the truth; `refs` is
derived from the payload's named fields and is what keeps other blobs. Refs are written
`blob:blake3:<64 hex>`. Nothing here reads a clock, a file or a database.
"""

from __future__ import annotations

from eventq.errors import DamagedError, InputError
from eventq.memory import canonical
from eventq.memory.blobs import parse_ref
from eventq.record import Record
from eventq.records.checks import REF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

END = "__end__"
COMPACT = "__compact__"
NO_ROLES = (END, COMPACT, "")  # of steps that no role took; "" is that of an unknown turn
ANCESTORS = 11  # the parent and ten more
START_TYPE, STATE_TYPE = "eventq.start", "eventq.state"  # of the turns that carry them
VERSION = 1
_NOTHING: Mapping[str, Any] = {}  # that nobody changes
_START = ("name", "hash", "maxRounds", "depth")
_STATE = ("role", "meta", "start", "content", "ancestors", "compact", "timestamp")


class StartNode(Record):
    """The start of a run: the workflow, the task, and the system text of each role, frozen.

    It does not name the run. With `task_in_system` the system texts state the task, so it is not
    added to them. `answer` is the form of outputs in messages. None is the value of both in nodes
    of older versions, which lack the fields.
    """

    name: str
    prompt: str
    group: str = ""
    max_rounds: int = 0
    depth: int = 0
    system: Mapping[str, str] = _NOTHING
    parent_state: str | None = None
    summary_cap: int | None = None
    task_in_system: bool | None = None
    answer: str | None = None
    more: Mapping[str, Any] = _NOTHING

    def refs(self) -> list[str]:
        """Return what the node names: prompt, system texts by role, the caller's state."""
        systems = [self.system[role] for role in sorted(self.system)]
        caller = [self.parent_state] if self.parent_state else []
        return list(dict.fromkeys([self.prompt, *systems, *caller]))

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        payload = {
            **self.more,
            "name": self.name,
            "hash": self.group,
            "maxRounds": self.max_rounds,
            "depth": self.depth,
            "system": dict(self.system),
        }
        if self.parent_state is not None:
            payload["parentState"] = self.parent_state
        if self.summary_cap is not None:
            payload["summaryCap"] = self.summary_cap
        if self.task_in_system is not None:
            payload["taskInSystem"] = self.task_in_system
        if self.answer is not None:
            payload["answer"] = self.answer
        return canonical.dump({"type": "start", "payload": payload, "refs": self.refs()})


class ContentNode(Record):
    """The output of a role: a text, whatever it looks like, and the refs of what it made."""

    text: str
    artifacts: tuple[str, ...] = ()

    def refs(self) -> list[str]:
        """Return what the node names: the artifacts, but no ref that the text contains."""
        return list(dict.fromkeys(self.artifacts))

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return canonical.dump({"type": "content", "payload": self.text, "refs": self.refs()})


class StateNode(Record):
    """One step of a role, or the end; `ancestors` are the states before it, the nearest first."""

    role: str
    meta: Any
    start: str
    content: str
    ancestors: tuple[str, ...]
    timestamp: int
    compact: str | None = None
    edge_prompt: str = ""
    agent: str = ""
    attempts: tuple[str, ...] = ()
    child: str | None = None
    more: Mapping[str, Any] = _NOTHING

    def refs(self) -> list[str]:
        """Return what the node names: start, content, ancestors, compact, attempts, child."""
        rest = (self.compact, *self.attempts, self.child)
        found = dict.fromkeys((self.start, self.content, *self.ancestors, *rest))
        found.pop(None, None)
        return list(found)  # type: ignore[arg-type]  # None is out

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        payload = {
            **self.more,
            "role": self.role,
            "meta": self.meta,
            "start": self.start,
            "content": self.content,
            "ancestors": list(self.ancestors),
            "compact": self.compact,
            "timestamp": self.timestamp,
            "edgePrompt": self.edge_prompt,
            "agent": self.agent,
        }
        if self.attempts:
            payload["attempts"] = list(self.attempts)
        if self.child is not None:
            payload["childThread"] = self.child
        return canonical.dump({"type": "state", "payload": payload, "refs": self.refs()})


Node = StartNode | StateNode | ContentNode


def decode(data: bytes, ref: str) -> Node:
    """Return the node of its bytes: missing fields get defaults, unknown ones are kept in `more`.

    Raises DamagedError, naming `ref`, for what is no node.
    """
    try:
        found = canonical.parse(data)
        kind, payload = found["type"], found["payload"]
        return _DECODERS[kind](payload, found["refs"])  # type: ignore[no-any-return]
    except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(
            f"{ref} is no node of a run ({error})", "run 'eventq check' on the thread"
        ) from error


def listed_refs(data: bytes) -> list[str]:
    """Return the refs that a node's bytes list; `decode` must accept them."""
    return list(canonical.parse(data)["refs"])


def _start(payload: Any, refs: Any) -> StartNode:
    known = {*_START, "system", "parentState", "summaryCap", "taskInSystem", "answer"}
    return StartNode(
        name=_text(payload["name"]),
        prompt=_ref(refs[0]),
        group=_text(payload.get("hash", "")),
        max_rounds=_number(payload.get("maxRounds", 0)),
        depth=_number(payload.get("depth", 0)),
        system={_text(role): _ref(ref) for role, ref in payload.get("system", {}).items()},
        parent_state=_maybe(payload.get("parentState")),
        summary_cap=None if payload.get("summaryCap") is None else _number(payload["summaryCap"]),
        task_in_system=None
        if payload.get("taskInSystem") is None
        else _truth(payload["taskInSystem"]),
        answer=None if payload.get("answer") is None else _text(payload["answer"]),
        more={name: value for name, value in payload.items() if name not in known},
    )


def _state(payload: Any, _: Any) -> StateNode:
    known = {*_STATE, "edgePrompt", "agent", "attempts", "childThread"}
    return StateNode(
        role=_text(payload["role"]),
        meta=payload.get("meta"),
        start=_ref(payload["start"]),
        content=_ref(payload["content"]),
        ancestors=tuple(map(_ref, payload.get("ancestors", ()))),
        timestamp=_number(payload.get("timestamp", 0)),
        compact=_maybe(payload.get("compact")),
        edge_prompt=_text(payload.get("edgePrompt", "")),
        agent=_text(payload.get("agent", "")),
        attempts=tuple(map(_ref, payload.get("attempts", ()))),
        child=_maybe(payload.get("childThread")),
        more={name: value for name, value in payload.items() if name not in known},
    )


def _content(payload: Any, refs: Any) -> ContentNode:
    return ContentNode(_text(payload), tuple(map(_ref, refs)))


_DECODERS: dict[str, Any] = {"start": _start, "state": _state, "content": _content}


def linked(node: Node) -> list[str]:
    """Return what a node names as other nodes: no texts, and nothing that a step has made."""
    if isinstance(node, StartNode):
        return [node.parent_state] if node.parent_state else []
    if isinstance(node, ContentNode):
        return []
    child = [node.child] if node.child else []
    return [node.start, node.content, *node.ancestors, *node.attempts, *child]


def ancestors_after(ref: str, node: Node) -> tuple[str, ...]:
    """Return the ancestors of the step after a node: none after the start."""
    return (ref, *node.ancestors)[:ANCESTORS] if isinstance(node, StateNode) else ()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _ref(value: Any) -> str:
    text = _text(value)
    if not text.startswith(REF) or parse_ref(text) is None:
        raise ValueError(f"{text!r} is no ref")
    return text


def _maybe(value: Any) -> str | None:
    return None if value is None else _ref(value)
