"""Store bytes by their hash."""

from __future__ import annotations

import os

from eventq.cli import kinds, render, show
from eventq.cli.inputs import Input
from eventq.cli.options import (
    EVERYWHERE,
    EXPECT_HASH,
    JSON,
    OUTPUT,
    READ,
    REASON,
    REFS,
    THREAD,
)
from eventq.cli.table import Argument, Command, Option
from eventq.errors import LogicError, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from eventq.thread import Thread


def put(
    thread: Thread, *, file: str, expect_hash: str | None, refs: tuple[str, ...], json: bool
) -> None:
    """Store bytes durably, and print their ref. Reads stdin if FILE is - or missing."""
    made = thread.blobs.put(Input(file), refs=refs, expect_hash=expect_hash)
    show.result({**render.blob(made), "new": made.new}, made.ref, json=json)


def get(thread: Thread, *, ref: str, output: str | None, json: bool) -> None:
    """Write the bytes of a blob to stdout or a file. They are verified first."""
    pieces = thread.blobs.stream(ref)
    if output is None or output == "-":
        for piece in pieces:
            show.out(piece)
        return
    size = save(output, pieces)
    if json:
        show.dump({"ref": _ref(ref), "size": size, "output": output})


def save(path: str, pieces: Iterable[bytes]) -> int:
    """Write a file atomically, even across a power cut, and return its size."""
    from eventq.system import disk

    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        fix = "give another path, or leave --output out and redirect stdout"
        raise LogicError(f"'{path}' is not a regular file", fix)
    try:
        return disk.save(target, pieces)
    except OSError as error:
        raise refused(error, f"'{path}' could not be written: {error.strerror}") from error


def _ref(name: str) -> str:
    """Return the ref that a ref or a bare hash spells."""
    from eventq.records.checks import REF

    return REF + name.removeprefix(REF)


def stat(thread: Thread, *, ref: str, json: bool) -> None:
    """Show the sizes of a blob without reading its bytes."""
    found = thread.blobs.stat(ref)
    size, stored = (render.count(number, "byte") for number in (found.size, found.stored))
    sizes = f"size: {size}\nstored: {stored} ({found.codec})"
    show.result(render.blob(found), f"{found.ref}\n{sizes}", json=json)


def ls(thread: Thread, *, json: bool) -> None:
    """List all blobs in the order of their hashes."""
    render.show_all(
        thread.blobs,
        render.blob,
        lambda one: f"{one.ref}  {render.count(one.size, 'byte')}  {one.codec}",
        json=json,
    )


def show_refs(thread: Thread, *, ref: str, json: bool) -> None:
    """Show what a blob refers to, and what refers to it.

    A gc keeps a blob while a turn, patch, blob, event or pin refers to it.
    """
    named, holders = thread.blobs.refs(ref), thread.blobs.holders(ref)
    if json:
        show.dump({"ref": _ref(ref), "names": named, "held_by": holders})
        return
    render.say_all(f"names {name}" for name in named)
    render.say_all(f"held by {show.readable(holder)}" for holder in holders or ["nothing"])


def verify(thread: Thread, *, ref: str | None, json: bool) -> int:
    """Verify one blob or all, and print the damaged ones. Exits with 1 if there are any."""
    faults = thread.blobs.verify(ref)
    show.result({"ok": not faults, "faults": faults}, "\n".join(faults) or "ok", json=json)
    return 1 if faults else 0


def pin(thread: Thread, *, ref: str, owner: str, json: bool) -> None:
    """Keep a blob until the same owner unpins it."""
    thread.blobs.pin(ref, owner)
    pinned = {"ref": _ref(ref), "owner": owner, "pinned": True}
    show.result(pinned, f"Pinned {_ref(ref)} for '{owner}'", json=json)


def unpin(thread: Thread, *, ref: str, owner: str, json: bool) -> None:
    """Remove an owner's pin of a blob."""
    was = thread.blobs.unpin(ref, owner)
    unpinned = {"ref": _ref(ref), "owner": owner, "pinned": False, "was_pinned": was}
    done = "Unpinned" if was else "There was no pin of"
    show.result(unpinned, f"{done} {_ref(ref)} for '{owner}'", json=json)


def erase(thread: Thread, *, ref: str, reason: str | None, everywhere: bool, json: bool) -> None:
    """Erase the bytes of a blob from all files of the thread. Its hash and size stay.

    What refers to it is listed first, and --everywhere is needed. Copies of the thread, packs and
    backups are not reached.
    """
    from eventq.cli.erase import show_erasure

    said = thread.erasures.said("blob", ref)
    made = thread.erasures.blob(ref, reason=reason, everywhere=everywhere)
    show_erasure(thread, made, said, json=json)


_EXAMPLE = "blob:blake3:9eff4037940429b2564d5a150b86cde302d60985a31c9af827f8055bfa842cb2"
_REF = Argument("REF")
_OWNER = Option("owner NAME", "The owner of the pin.", required=True)

COMMANDS = {
    "blob put": Command(
        put,
        [Argument("[FILE]", kinds.path, default="-", yields=True), EXPECT_HASH, REFS, THREAD, JSON],
        "eventq blob put report.pdf --thread ./inbox",
        "tar c src | eventq blob put --thread ./inbox",
    ),
    "blob get": Command(
        get,
        [_REF, OUTPUT, READ, JSON],
        f"eventq blob get {_EXAMPLE} --thread ./inbox --output report.pdf",
    ),
    "blob stat": Command(stat, [_REF, READ, JSON], f"eventq blob stat {_EXAMPLE} --thread ./inbox"),
    "blob ls": Command(ls, [READ, JSON], "eventq blob ls --thread ./inbox"),
    "blob refs": Command(
        show_refs, [_REF, READ, JSON], f"eventq blob refs {_EXAMPLE} --thread ./inbox"
    ),
    "blob verify": Command(
        verify, [Argument("[REF]", yields=True), READ, JSON], "eventq blob verify --thread ./inbox"
    ),
    "blob erase": Command(
        erase,
        [_REF, REASON, EVERYWHERE, THREAD, JSON],
        f"eventq blob erase {_EXAMPLE} --reason 'a key' --thread ./inbox",
    ),
    "blob pin": Command(
        pin,
        [_REF, _OWNER, THREAD, JSON],
        f"eventq blob pin {_EXAMPLE} --owner reports --thread ./inbox",
    ),
    "blob unpin": Command(
        unpin,
        [_REF, _OWNER, THREAD, JSON],
        f"eventq blob unpin {_EXAMPLE} --owner reports --thread ./inbox",
    ),
}
