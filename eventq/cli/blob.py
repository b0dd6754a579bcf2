"""The commands of blobs: each parses, makes one call, and shows the result."""

from __future__ import annotations

import os

from eventq import system
from eventq.cli import render, show
from eventq.cli.given import Input, open_memory, refs
from eventq.cli.options import text
from eventq.errors import LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.cli.options import Raw


def put(raw: Raw) -> None:
    """Store bytes."""
    is_open = show.stdin_is_open()
    with open_memory(raw) as thread:
        file = Input(text(raw, "FILE") or "-", is_open=is_open)
        made = thread.blobs.put(file, refs=refs(raw), expect_hash=text(raw, "expect-hash"))
    if raw["json"]:
        show.dump({**render.blob(made), "new": made.new})
    else:
        show.say(made.ref)


def get(raw: Raw) -> None:
    """Give the bytes of a blob."""
    with open_memory(raw, read_only=True) as thread:
        name, path = _name(raw), text(raw, "output")
        pieces = thread.blobs.stream(name)
        if path is None or path == "-":
            for piece in pieces:
                show.out(piece)
            return
        size = save(path, pieces)
    if raw["json"]:
        show.dump({"ref": _ref(name), "size": size, "output": path})


def save(path: str, pieces: Iterable[bytes]) -> int:
    """Write a file that is there whole or not at all, also after a power cut, and give its size."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise LogicError(f"'{path}' is no regular file", "give another path, or leave --output out and redirect stdout")
    try:
        return system.save(target, pieces)
    except OSError as error:
        raise LogicError(
            f"'{path}' could not be written: {error.strerror}", "check the path, its permissions and the disk"
        ) from error


def _name(raw: Raw) -> str:
    return text(raw, "REF") or ""


def _ref(name: str) -> str:
    """Give the ref that a ref or a bare hash spells."""
    from eventq.event import REF

    return REF + name.removeprefix(REF)


def stat(raw: Raw) -> None:
    """Show the sizes of a blob."""
    with open_memory(raw, read_only=True) as thread:
        found = thread.blobs.stat(_name(raw))
    if raw["json"]:
        show.dump(render.blob(found))
    else:
        show.say(f"{found.ref}\nsize: {found.size:,} bytes\nstored: {found.stored:,} bytes ({found.codec})")


def ls(raw: Raw) -> None:
    """List all blobs."""
    with open_memory(raw, read_only=True) as thread:
        if raw["json"]:
            render.dump_all(map(render.blob, thread.blobs))
        else:
            render.say_all(f"{one.ref}  {one.size:,} bytes  {one.codec}" for one in thread.blobs)


def show_refs(raw: Raw) -> None:
    """Show what a blob names and what holds it."""
    with open_memory(raw, read_only=True) as thread:
        name = _name(raw)
        named, holders = thread.blobs.refs(name), thread.blobs.holders(name)
    if raw["json"]:
        show.dump({"ref": _ref(name), "names": named, "held_by": holders})
        return
    render.say_all(f"names {ref}" for ref in named)
    render.say_all(f"held by {show.readable(holder)}" for holder in holders or ["nothing"])


def verify(raw: Raw) -> int:
    """Say which blobs are damaged."""
    with open_memory(raw, read_only=True) as thread:
        faults = thread.blobs.verify(text(raw, "REF"))
    if raw["json"]:
        show.dump({"ok": not faults, "faults": faults})
    else:
        show.say("\n".join(faults) or "ok")
    return 1 if faults else 0


def pin(raw: Raw) -> None:
    """Keep a blob for an owner."""
    with open_memory(raw) as thread:
        name, owner = _name(raw), text(raw, "owner") or ""
        thread.blobs.pin(name, owner)
    if raw["json"]:
        show.dump({"ref": _ref(name), "owner": owner, "pinned": True})
    else:
        show.say(f"Pinned {_ref(name)} for '{owner}'")


def unpin(raw: Raw) -> None:
    """Keep a blob no more for an owner."""
    with open_memory(raw) as thread:
        name, owner = _name(raw), text(raw, "owner") or ""
        was = thread.blobs.unpin(name, owner)
    if raw["json"]:
        show.dump({"ref": _ref(name), "owner": owner, "pinned": False, "was_pinned": was})
    else:
        show.say(f"{'Unpinned' if was else 'There was no pin of'} {_ref(name)} for '{owner}'")
