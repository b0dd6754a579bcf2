"""Publish outputs of agents under names; `cat` reads them."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.inputs import Input
from eventq.cli.options import IN_CONTEXT, JSON, READ, THREAD
from eventq.cli.rules import exclude, one_of
from eventq.cli.table import Argument, Command, Option, together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    from eventq.output.urls import Resource
    from eventq.records.artifact import Content
    from eventq.thread import Thread

    class Part(TypedDict):
        """In which context a URL is read, and which lines of its content are shown."""

        context: int | str | None
        offset: int | None
        limit: int | None

    class Text(TypedDict):
        """Where an output comes from."""

        content: str | None
        file: str


def put(
    thread: Thread,
    *,
    name: str | None,
    id: str | None,
    parent: str | None,
    text: Text,
    context: int | str | None,
    json: bool,
) -> None:
    """Publish an agent's output durably, and print its URL. It is read from stdin by default."""
    data = Input(text["file"]) if text["content"] is None else text["content"]
    outputs = thread.scope(context).outputs
    made = outputs.publish(id, data) if id else outputs.put(name or "", data, parent)
    show.result(render.produced(made), made.url, json=json)


def ls(thread: Thread, *, context: int | str | None, json: bool) -> None:
    """List all outputs of agents by name, one line per version."""
    render.show_all(thread.scope(context).outputs, render.produced, render.output, json=json)


def rm(thread: Thread, *, name: str, context: int | str | None, json: bool) -> None:
    """Delete an output with all its versions. Its number is never assigned again.

    Outputs of agents that it called stay. The next gc frees the space. A session's folder that has
    it as a file brings it back when it is imported again.
    """
    output = name.removeprefix("agent://")
    count = thread.scope(context).outputs.remove(output)
    what = f"Deleted agent://{output}, {render.count(count, 'version')}"
    show.result({"output_id": output, "versions": count}, what, json=json)


# --- URLs -----------------------------------------------------------------------------------------


def cat(thread: Thread, *, url: str, part: Part, json: bool) -> None:
    """Write the content of a URL, or some of its lines, to stdout.

    A URL is artifact://ID, agent://ID or blob:blake3:HASH. With ?session=NAME it is read in that
    session, whatever the context.
    """
    show_url(thread, url, part, json=json)


def show_url(thread: Thread, url: str, part: Part, *, json: bool) -> None:
    """Write the content of a URL, and print a note about lines left out."""
    if json:
        show.dump(_as_json(thread.read(url, **part)))
        return
    found = thread.open_url(url, **part)
    for piece in found:
        show.out(piece)
    if found.content_type == "application/json":
        show.out(b"\n")
    if found.next_offset is not None:
        show.note(_left_out(found, part["offset"] or 1, found.next_offset))
    if found.incomplete is not None:
        show.note(f"[Incomplete: {found.incomplete}]")


def _left_out(found: Resource, first: int, after: int) -> str:
    whole = "" if found.lines is None else f" of {found.lines}"
    return f"[Showing lines {first}-{after - 1}{whole}. Use --offset {after} to continue]"


def _as_json(found: Content) -> dict[str, Any]:
    shown: dict[str, Any] = {"url": found.url, "content_type": found.content_type}
    try:
        shown["text"] = found.data.decode()
    except UnicodeDecodeError:
        from binascii import b2a_base64

        shown["base64"] = b2a_base64(found.data, newline=False).decode()
    return {**shown, "next_offset": found.next_offset, "complete": found.complete}


PART = (
    *together(
        "part",
        IN_CONTEXT,
        Option("offset N", "Start at this line, counted from 1.", kinds.POSITIVE),
        Option("limit N", "Print at most N lines (default: all).", kinds.POSITIVE),
    ),
    READ,
    JSON,
)

COMMANDS = {
    "output put": Command(
        put,
        [
            Argument("[NAME]"),
            Option(
                "id ID",
                "Publish under this id. One that is taken gets a new version.",
            ),
            Option("parent ID", "The output of the agent that called this one."),
            *together(
                "text",
                Option("content TEXT", "The output.", kinds.verbatim),
                Option(
                    "file FILE",
                    "Read the output from a file, or from stdin for -.",
                    kinds.path,
                    default="-",
                ),
            ),
            IN_CONTEXT,
            THREAD,
            JSON,
        ],
        "eventq output put Scout --file report.md --thread ./inbox",
        "eventq output put --id 0-Scout --content 'nothing new' --thread ./inbox",
        rules=[one_of("NAME", "id"), exclude("id", "parent"), exclude("content", "file")],
    ),
    "output rm": Command(
        rm,
        [Argument("NAME", kinds.text), IN_CONTEXT, THREAD, JSON],
        "eventq output rm 0-Scout --thread ./inbox",
    ),
    "output ls": Command(
        ls, [IN_CONTEXT, READ, JSON], "eventq output ls --context s-1 --thread ./inbox"
    ),
    "cat": Command(
        cat,
        [Argument("URL"), *PART],
        "eventq cat artifact://3 --limit 100 --thread ./inbox",
        "eventq cat 'agent://0-Scout?q=.findings[0]' --thread ./inbox",
        "eventq cat artifact://3 --context s-1 --thread ./inbox",
    ),
}
