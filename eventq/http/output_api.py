"""The operations of what was produced: artifacts, outputs and blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.errors import TooLargeError
from eventq.http.operations import AT, Content, Operation, Reply, of_json
from eventq.said.media import IMAGES, type_of
from eventq.serving.parameters import Given, Part
from eventq.serving.plans import QUICK, READ, WRITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.output.artifacts import Artifacts
    from eventq.output.outputs import Outputs
    from eventq.thread import Thread

PAGE = 1_000
PAGE_BYTES = 16 << 20  # of lines that are returned at once
_BYTES, _TEXT = "application/octet-stream", "text/plain; charset=utf-8"


# --- artifacts ------------------------------------------------------------------------------------


def _artifacts(thread: Thread, given: Given) -> Artifacts:
    return thread.scope(given["context"]).artifacts


def _shown(found: Any) -> dict[str, Any]:
    return {**found._asdict(), "url": found.url}


def artifacts(thread: Thread, given: Given) -> Reply:
    """List the artifacts by number: those of the thread, or of a context's session."""
    after = -1 if given["after"] is None else given["after"]
    found = _artifacts(thread, given).page(after, given["limit"])
    reached = int(found[-1].artifact_id) if found else given["after"]
    return of_json({"artifacts": [*map(_shown, found)], "next": reached})


def put_artifact(thread: Thread, given: Given) -> Reply:
    """Store the body as a sealed artifact."""
    made = _artifacts(thread, given).put(given["body"], given["tool"])
    return of_json(_shown(made), status=201)


def artifact(thread: Thread, given: Given) -> Reply:
    """Read what is known of an artifact, such as its size and whether it is still written."""
    return of_json(_shown(_artifacts(thread, given).get(given["artifact"])))


def artifact_content(thread: Thread, given: Given) -> Reply:
    """Read an artifact, a range of its bytes, or with `follow` all of it as it is written."""
    name = given["artifact"]
    info = _artifacts(thread, given).get(name)

    def read(thread: Thread, start: int, count: int) -> tuple[bytes, bool]:
        found = _artifacts(thread, given).open(name)
        return found.part(start, count), found.info.status == "open"

    grows = given["follow"] and info.status == "open"
    kind = type_of(read(thread, 0, 12)[0])  # a browser may show images, and text as it stands
    shown = kind if kind in IMAGES else _TEXT
    return Reply(b"", content=Content(read, info.size, shown, info.hash, grows))


def lines(thread: Thread, given: Given) -> Reply:
    """Read some lines of an artifact; `next` is the line to go on at, null at the end.

    Bytes that are not UTF-8 are replaced.
    """
    name, first, limit = given["artifact"], given["offset"], given["limit"]
    info = _artifacts(thread, given).get(name)
    pieces, size, left = [], 0, None
    if first <= info.lines:
        found = thread.open_url(f"artifact://{name}", first, limit, context=given["context"])
        for piece in found:
            pieces.append(piece)
            size += len(piece)
            if size > PAGE_BYTES:
                fix = "ask for fewer lines, or for a range of its bytes"
                raise TooLargeError(None, PAGE_BYTES, "page of lines", fix)
        left = found.next_offset
    text = b"".join(pieces).decode(errors="replace")
    return of_json({"text": text, "next": left, "lines": info.lines, "status": info.status})


# --- outputs --------------------------------------------------------------------------------------


def _outputs(thread: Thread, given: Given) -> Outputs:
    return thread.scope(given["context"]).outputs


def outputs(thread: Thread, given: Given) -> Reply:
    """List the versions of all outputs by name: those of the thread, or of a context's session."""
    name, _, version = (given["after"] or "").rpartition(":")
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 19 else 0
    found = _outputs(thread, given).page(name, number, given["limit"])
    reached = f"{found[-1].output_id}:{found[-1].version}" if found else given["after"]
    return of_json({"outputs": [*map(_shown, found)], "next": reached})


def put_output(thread: Thread, given: Given) -> Reply:
    """Publish the body as an output, under a new name of that kind."""
    made = _outputs(thread, given).put(given["name"], given["body"], given["parent"])
    return of_json(_shown(made), status=201)


def output(thread: Thread, given: Given) -> Reply:
    """Read what is known of a version of an output."""
    return of_json(_shown(_outputs(thread, given).get(given["output"], given["version"])))


def output_content(thread: Thread, given: Given) -> Reply:
    """Read a version of an output, or a range of its bytes."""
    return _bytes(thread, _outputs(thread, given).get(given["output"], given["version"]).hash)


# --- blobs ----------------------------------------------------------------------------------------


def blob(thread: Thread, given: Given) -> Reply:
    """Read a blob by its hash, or a range of its bytes."""
    return _bytes(thread, given["hash"])


def _bytes(thread: Thread, name: str) -> Reply:
    info = thread.blobs.stat(name)

    def read(thread: Thread, start: int, count: int) -> tuple[bytes, bool]:
        return thread.blobs.part(name, start, count), False

    kind = type_of(read(thread, 0, 12)[0])  # others a browser must not open
    shown = kind if kind in IMAGES else _BYTES
    return Reply(b"", content=Content(read, info.size, shown, info.hash))


def put_blob(thread: Thread, given: Given) -> Reply:
    """Store the body as a blob; until a turn or a step refers to it, it is kept for an hour."""
    made = thread.blobs.put(given["body"])
    shown = {"hash": made.hash, "ref": made.ref, "size": made.size}
    return of_json(shown, status=201 if made.new else 200)


_CONTEXT = Part("context", "string", "Of this context's session, by id or name.")
_ARTIFACT, _OUTPUT = f"{AT}/artifacts/{{artifact}}", f"{AT}/outputs/{{output}}"
_LIMIT = Part("limit", "integer", "How many at most.", 100, least=1, most=PAGE)
_VERSION = Part("version", "integer", "The version.", 1, least=1)

OPERATIONS: Sequence[Operation] = (
    Operation(
        "listArtifacts", "GET", f"{AT}/artifacts", READ, artifacts, "Artifacts",
        (Part("after", "integer", "Only those above this number."), _LIMIT, _CONTEXT),
    ),
    Operation(
        "putArtifact", "POST", f"{AT}/artifacts", WRITE, put_artifact, "Artifact",
        (Part("tool", "string", "The tool that printed it.", "tool"), _CONTEXT),
        raw=True, made=True, alone=True,
    ),
    Operation("getArtifact", "GET", _ARTIFACT, QUICK, artifact, "Artifact", (_CONTEXT,)),
    Operation(
        "readArtifact", "GET", f"{_ARTIFACT}/content", QUICK, artifact_content, "Content",
        (Part("follow", "boolean", "Go on for as long as it is written.", False), _CONTEXT),
    ),
    Operation(
        "readLines", "GET", f"{_ARTIFACT}/lines", READ, lines, "Lines",
        (
            Part("offset", "integer", "The first line, counted from 1.", 1, least=1),
            Part("limit", "integer", "How many at most.", 1000, least=1, most=100_000),
            _CONTEXT,
        ),
    ),
    Operation(
        "listOutputs", "GET", f"{AT}/outputs", READ, outputs, "Outputs",
        (Part("after", "string", "The `next` of the page before."), _LIMIT, _CONTEXT),
    ),
    Operation(
        "putOutput", "POST", f"{AT}/outputs", WRITE, put_output, "Output",
        (
            Part("name", "string", "The name.", required=True),
            Part("parent", "string", "The output that it belongs to."),
            _CONTEXT,
        ),
        raw=True, made=True, alone=True,
    ),
    Operation("getOutput", "GET", _OUTPUT, QUICK, output, "Output", (_VERSION, _CONTEXT)),
    Operation(
        "readOutput", "GET", f"{_OUTPUT}/content", READ, output_content, "Content",
        (_VERSION, _CONTEXT),
    ),
    Operation("readBlob", "GET", f"{AT}/blobs/{{hash}}", READ, blob, "Content"),
    Operation(
        "putBlob", "POST", f"{AT}/blobs", WRITE, put_blob, "Blob", raw=True, made=True, alone=True
    ),
)  # fmt: skip
