"""The OpenAPI 3.1 document, made of the table of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.http.operations import MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.http.operations import Operation, Part

_ID = {"type": "integer", "minimum": 0, "maximum": MOST}
_TEXT = {"type": "string"}
_PERHAPS = {"type": ["string", "null"]}
_ANY = {"type": "object"}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": [*members]}


def _list(of: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{of}"}}


_EVENT = _object(
    id=_ID, created_at=_TEXT, source=_TEXT, type=_TEXT, subtype=_PERHAPS, content=_TEXT
)
_COUNT = {"type": "integer", "minimum": 0, "maximum": MOST}
SCHEMAS: dict[str, dict[str, Any]] = {
    "Event": _EVENT,
    "Events": _object(events=_list("Event"), next=_ID),
    "Pushed": {
        "oneOf": [
            {"$ref": "#/components/schemas/Event"},
            _object(
                count=_COUNT,
                first_id={"type": ["integer", "null"]},
                last_id={"type": ["integer", "null"]},
            ),
        ]
    },
    "Question": _object(
        question_id=_ID, type={"enum": ["question", "approval"]}, source=_TEXT, text=_TEXT,
        options={"type": "array", "items": _TEXT}, asked_at=_TEXT, answer=_PERHAPS,
        answered_by=_PERHAPS, answered_at=_PERHAPS,
    ),
    "Questions": _list("Question"),
    "Consumer": _ANY,
    "Consumers": _list("Consumer"),
    "Popped": _object(events=_list("Event")),
    "Claim": _object(token=_TEXT, attempt=_COUNT, deadline_ms=_COUNT, event=_EVENT),
    "Claimed": _object(claims=_list("Claim")),
    "Settled": _object(settled=_COUNT, lost={"type": "array", "items": _TEXT}),
    "Extended": _object(extended=_COUNT, lost={"type": "array", "items": _TEXT}),
    "Claims": {"type": "array", "items": _ANY},
    "DeadLetters": {"type": "array", "items": _ANY},
    "Count": _object(count=_COUNT),
    "Status": _ANY,
    "Checked": _object(
        ok={"type": "boolean"}, faults={"type": "array", "items": _TEXT},
        warnings={"type": "array", "items": _TEXT},
    ),
    "Problem": _object(type=_TEXT, title=_TEXT, status=_COUNT, detail=_TEXT),
    "Threads": _object(threads={"type": "array", "items": _ANY}, write={"type": "boolean"}),
    "Health": _object(status=_TEXT, threads=_COUNT),
}  # fmt: skip
_PROBLEM = {
    "description": "What went wrong, and the next step.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_NAMES = {
    "thread": ("The name of the thread, as /api/threads lists it.", _TEXT),
    "consumer": ("The name of the consumer.", {"type": "string", "minLength": 1}),
    "id": ("The id.", _ID),
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document of some operations, and of what is about the server."""
    paths: dict[str, dict[str, Any]] = {
        "/api/health": {"get": _plain("health", "Whether the server answers.", "Health")},
        "/api/threads": {"get": _plain("listThreads", "List the threads by name.", "Threads")},
    }
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "eventq",
            "version": "1",
            "description": "A durable inbox and memory for AI agents.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _plain(name: str, about: str, reply: str) -> dict[str, Any]:
    return {"operationId": name, "summary": about, "responses": _replies(200, reply)}


def _replies(status: int, reply: str, kind: str = "application/json") -> dict[str, Any]:
    found: dict[str, Any] = {"description": "What came of it."}
    if reply:
        found["content"] = {kind: {"schema": {"$ref": f"#/components/schemas/{reply}"}}}
    return {str(status): found, "default": _PROBLEM}


def _operation(one: Operation) -> dict[str, Any]:
    names = [part[1:-1] for part in one.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "description": _NAMES[name][0],
         "schema": _NAMES[name][1]}
        for name in names
    ]  # fmt: skip
    parameters += [
        {"name": part.name, "in": "query", "required": part.required, "description": part.about,
         "schema": part.schema}
        for part in one.query
    ]  # fmt: skip
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.about.partition("\n")[0],
        "description": " ".join(one.about.split()),
        "parameters": parameters,
    }
    if one.name == "streamEvents":
        text = {"schema": _TEXT}
        content = {"text/event-stream": text, "application/x-ndjson": text}
        ok = {"description": "The events as they come.", "content": content}
        return {**found, "responses": {"200": ok, "default": _PROBLEM}}
    if one.body is not None:
        schema = _body(one.body)
        if one.many:
            schema = {"oneOf": [schema, {"type": "array", "items": schema, "maxItems": 100_000}]}
        found["requestBody"] = {
            "required": any(part.required for part in one.body),
            "content": {"application/json": {"schema": schema}},
        }
    made = one.method in ("POST", "PUT") and one.name in ("pushEvents", "ask", "subscribe")
    replies = _replies(200 if one.reply else 204, one.reply)
    if made:
        replies["201"] = replies["200"]
    return {**found, "responses": replies}


def _body(parts: Sequence[Part]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {part.name: {**part.schema, "description": part.about} for part in parts},
        "required": [part.name for part in parts if part.required],
        "additionalProperties": False,
    }
