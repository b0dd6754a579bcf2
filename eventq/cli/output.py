"""The commands of agents' outputs and of URLs: each parses, makes one call, and shows the result."""

from __future__ import annotations

from eventq.cli import render, show
from eventq.cli.given import Input, check_one
from eventq.cli.log import open_thread
from eventq.cli.options import maybe, text
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.cli.options import Raw
    from eventq.output.urls import Resource
    from eventq.records import Content
    from eventq.thread import Thread


def put(raw: Raw) -> None:
    """Publish an output, or a further version of one."""
    if (raw["NAME"] is None) == (raw["id"] is None):
        raise UsageError("output put needs NAME or --id, and not both", "give one of the two")
    check_one(raw, "id", "parent")
    check_one(raw, "content", "file")
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        name, output_id, parent = text(raw, "NAME"), text(raw, "id"), text(raw, "parent")
        content = _content(raw, is_open=is_open)
        if output_id is None:
            made = thread.outputs.put(name or "", content, parent)
        else:
            made = thread.outputs.publish(output_id, content)
    if raw["json"]:
        show.dump(render.produced(made))
    else:
        show.say(made.url)


def _content(raw: Raw, *, is_open: bool) -> str | Input:
    if raw["content"] is not None:
        return str(raw["content"])
    return Input(text(raw, "file") or "-", is_open=is_open)


def ls(raw: Raw) -> None:
    """List all outputs."""
    with open_thread(raw, read_only=True) as thread:
        if raw["json"]:
            render.dump_all(map(render.produced, thread.outputs))
        else:
            render.say_all(map(render.output, thread.outputs))


# --- URLs -------------------------------------------------------------------------------------------------------------


def cat(raw: Raw) -> None:
    """Give what a URL names."""
    with open_thread(raw, read_only=True) as thread:
        _show(raw, thread, text(raw, "URL") or "")


def cat_artifact(raw: Raw) -> None:
    """Give an artifact, by its number or its URL."""
    with open_thread(raw, read_only=True) as thread:
        _show(raw, thread, f"artifact://{(text(raw, 'ID') or '').removeprefix('artifact://')}")


def _show(raw: Raw, thread: Thread, url: str) -> None:
    offset, limit = maybe(raw, "offset", least=1), maybe(raw, "limit", least=1)
    if raw["json"]:
        show.dump(_as_json(thread.read(url, offset, limit)))
        return
    found = thread.open_url(url, offset, limit)
    for piece in found:
        show.out(piece)
    if found.content_type == "application/json":
        show.out(b"\n")
    if found.next_offset is not None:
        show.note(_left_out(found, offset or 1, found.next_offset))
    if found.incomplete is not None:
        show.note(f"[Incomplete: {found.incomplete}]")


def _left_out(found: Resource, first: int, after: int) -> str:
    whole = "" if found.lines is None else f" of {found.lines}"
    return f"[Showing lines {first}-{after - 1}{whole}. Use --offset {after} to continue]"


def _as_json(found: Content) -> dict[str, Any]:
    told: dict[str, Any] = {"url": found.url, "content_type": found.content_type}
    try:
        told["text"] = found.data.decode()
    except UnicodeDecodeError:
        from binascii import b2a_base64

        told["base64"] = b2a_base64(found.data, newline=False).decode()
    return {**told, "next_offset": found.next_offset, "complete": found.complete}
