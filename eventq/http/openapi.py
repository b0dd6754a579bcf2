"""The OpenAPI 3.1 document, made of the table of operations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eventq.records import artifact, cause, claim, consumer, event, info, question, run, spent, turn
from eventq.serving.parameters import MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.http.operations import Operation
    from eventq.serving.parameters import Part

_ID = {"type": "integer", "minimum": 0, "maximum": MOST}
_TEXT = {"type": "string"}
_PERHAPS = {"type": ["string", "null"]}
_PLAIN = {
    "int": {"type": "integer"}, "float": {"type": "number"}, "str": _TEXT,
    "bool": {"type": "boolean"}, "None": {"type": "null"}, "Any": {},
}  # fmt: skip
_ITEMS = re.compile(r"tuple\[(\w+), (?:\.\.\.|\1)\]")


def of_annotation(text: str) -> dict[str, Any]:
    """Return the schema of the annotation of a record's field; another record is named."""
    kinds = text.split(" | ")
    if len(kinds) > 1:
        return {"anyOf": [*map(of_annotation, kinds)]}
    if text in _PLAIN:
        return _PLAIN[text]
    if text.startswith("Mapping["):
        return {"type": "object", "additionalProperties": of_annotation(text.split(", ")[1][:-1])}
    if items := _ITEMS.fullmatch(text):
        return {"type": "array", "items": of_annotation(items[1])}
    return _named(_NAMES_OF.get(text, text))


def of_record(kind: Any, *without: str, **more: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a record that is shown as an object, without some fields."""
    fields = {name: text for name, text in kind.__annotations__.items() if name not in without}
    return _object(**{name: of_annotation(text) for name, text in fields.items()}, **more)


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": [*members]}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: str) -> dict[str, Any]:
    return {"type": "array", "items": _named(of)}


def _page(name: str, of: str, cursor: dict[str, Any]) -> dict[str, Any]:
    return _object(**{name: _list(of), "next": cursor})


def _with(of: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Return the schema of an object with members that are not always there."""
    return {**of, "properties": {**of["properties"], **members}}


_COUNT = {"type": "integer", "minimum": 0, "maximum": MOST}
_NUMBER = {"type": ["integer", "null"]}
# What records that stand in others are called here.
_NAMES_OF = {
    "ConsumerStatus": "Consumer", "WorkerStatus": "Worker", "ContextInfo": "Context",
    "ArtifactInfo": "OpenArtifact", "UsageSum": "Usage",
}  # fmt: skip
SCHEMAS: dict[str, dict[str, Any]] = {
    "Event": of_record(event.Event),
    "Events": _page("events", "Event", _ID),
    "Cause": of_record(cause.Cause),
    "EventCauses": _object(
        causes=_list("Cause"), events={"type": "array", "items": _ID},
        turns={"type": "array", "items": _ID}, is_all={"type": "boolean"},
    ),
    "TurnCauses": _object(causes=_list("Cause")),
    "ModelUsage": of_record(spent.ModelUsage),
    "HourUsage": of_record(spent.HourUsage),
    "Usage": of_record(spent.UsageSum),
    "UsageByHour": _object(hours=_list("HourUsage")),
    "Pushed": {
        "oneOf": [_named("Event"), _object(count=_COUNT, first_id=_NUMBER, last_id=_NUMBER)]
    },
    "Question": of_record(question.Question),
    "Questions": _list("Question"),
    "Worker": of_record(claim.WorkerStatus),
    "Consumer": of_record(consumer.ConsumerStatus, "handler_cmd", "log", "advice"),
    "Consumers": _list("Consumer"),
    "Popped": _object(events=_list("Event")),
    "Claim": _object(token=_TEXT, attempt=_COUNT, deadline_ms=_COUNT, event=_named("Event")),
    "Claimed": _object(claims=_list("Claim")),
    "Settled": _object(settled=_COUNT, lost={"type": "array", "items": _TEXT}),
    "Extended": _object(extended=_COUNT, lost={"type": "array", "items": _TEXT}),
    "ClaimInfo": of_record(claim.ClaimInfo, "token"),
    "Claims": _list("ClaimInfo"),
    "DeadLetter": of_record(claim.DeadLetter),
    "DeadLetters": _list("DeadLetter"),
    "Count": _object(count=_COUNT),
    "Status": of_record(info.ThreadStatus, "path"),
    "Checked": _object(
        ok={"type": "boolean"}, faults={"type": "array", "items": _TEXT},
        warnings={"type": "array", "items": _TEXT},
    ),
    "Context": of_record(turn.ContextInfo),
    "Contexts": _page("contexts", "Context", _ID),
    "Turn": _with(of_record(turn.Turn, "payload"), payload=_PERHAPS, payload_base64=_TEXT),
    "Turns": _page("turns", "Turn", _NUMBER),
    "Diff": _object(
        ancestor_turn_id=_ID, mine=_list("Turn"), mine_count=_COUNT, theirs=_list("Turn"),
        theirs_count=_COUNT,
    ),
    "RunInfo": of_record(run.RunInfo),
    "Run": of_record(run.RunInfo, prompt=_TEXT),
    "Runs": _page("runs", "RunInfo", _ID),
    "Step": of_record(run.Step),
    "Steps": _page("steps", "Step", _NUMBER),
    "Messages": _object(
        messages={"type": "array", "items": _object(role=_TEXT, content=_TEXT)}
    ),
    "OpenArtifact": of_record(artifact.ArtifactInfo),
    "Artifact": of_record(artifact.ArtifactInfo, url=_TEXT),
    "Artifacts": _page("artifacts", "Artifact", _NUMBER),
    "Lines": _object(text=_TEXT, next=_NUMBER, lines=_COUNT, status=_TEXT),
    "Output": of_record(artifact.OutputInfo, url=_TEXT),
    "Outputs": _page("outputs", "Output", _PERHAPS),
    "Blob": _object(hash=_TEXT, ref=_TEXT, size=_COUNT),
    "Problem": _object(type=_TEXT, title=_TEXT, status=_COUNT, detail=_TEXT),
    "Threads": _object(
        threads={"type": "array", "items": _with(_object(name=_TEXT), path=_TEXT)},
        write={"type": "boolean"},
    ),
    "Health": _object(
        status={**_TEXT, "enum": ["ok", "damaged"]}, threads=_COUNT,
        damaged={"type": "array", "items": _TEXT},
    ),
}  # fmt: skip
_PROBLEM = {
    "description": "What went wrong, and the next step.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_WORD = {"type": "string", "minLength": 1}
_NAMES = {
    "thread": ("The name of the thread, as /api/threads lists it.", _TEXT),
    "consumer": ("The name of the consumer.", _WORD),
    "context": ("The id or the name of the context.", _WORD),
    "run": ("The id or the label of the run.", _WORD),
    "artifact": ("The number of the artifact.", _WORD),
    "output": ("The name of the output.", _WORD),
    "hash": ("The hash of the blob, 64 hex digits, or its ref.", _WORD),
    "id": ("The id.", _ID),
}
_KINDS = ("application/octet-stream", "text/plain", "image/png", "image/jpeg", "image/gif",
          "image/webp")  # fmt: skip
# What is no JSON: status, what it is, and content types.
_STREAMS: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "Stream": [
        ("200", "The events as they come.", ("text/event-stream", "application/x-ndjson"))
    ],
    "Content": [
        ("200", "The bytes.", _KINDS),
        ("206", "The range that was asked for.", _KINDS),
        ("416", "There is no such range.", ()),
    ],
}  # fmt: skip
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def _schema(kind: str) -> dict[str, Any]:
    """Return what is said of bytes; an event stream is no text to those who read the document."""
    return {} if kind == "text/event-stream" else _BYTES


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document of some operations, and of what is about the server."""
    paths: dict[str, dict[str, Any]] = {
        "/api/health": {
            "get": _plain("health", "Whether it answers, and which threads are damaged.", "Health")
        },
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
    if one.reply in _STREAMS:
        replies = {
            status: {"description": about, "content": {kind: _schema(kind) for kind in kinds}}
            for status, about, kinds in _STREAMS[one.reply]
        }
        return {**found, "responses": {**replies, "default": _PROBLEM}}
    if one.raw:
        found["requestBody"] = {"required": True, "content": {"application/octet-stream": _BYTES}}
    if one.body is not None:
        schema = _body(one.body)
        if one.many:
            schema = {"oneOf": [schema, {"type": "array", "items": schema, "maxItems": 100_000}]}
        found["requestBody"] = {
            "required": any(part.required for part in one.body),
            "content": {"application/json": {"schema": schema}},
        }
    replies = _replies(200 if one.reply else 204, one.reply)
    if one.made:
        replies["201"] = replies["200"]
    return {**found, "responses": replies}


def _body(parts: Sequence[Part]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {part.name: {**part.schema, "description": part.about} for part in parts},
        "required": [part.name for part in parts if part.required],
        "additionalProperties": False,
    }
