"""Export blobs, turns and contexts; import them elsewhere."""

from __future__ import annotations

import os

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, READ, THREAD
from eventq.cli.table import Argument, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.thread import Thread


def export(thread: Thread, *, folder: str, json: bool) -> None:
    """Export all blobs, turns and heads to a folder. It must hold no pack yet.

    Events and consumers are no part of a pack.
    """
    thread.export_pack(folder)
    place = os.path.abspath(folder)
    show.result({"folder": place}, f"Exported to {place}", json=json)


def take(thread: Thread, *, folder: str, json: bool) -> None:
    """Import what is new in a pack. FOLDER may be a CXDB server's data directory."""
    found = thread.import_pack(folder)
    lines = [f"Imported {render.added(found)}", *map(show.readable, found.notes)]
    show.result(render.fields(found), "\n".join(lines), json=json)


_FOLDER = Argument("FOLDER", kinds.path)

COMMANDS = {
    "pack export": Command(
        export, [_FOLDER, READ, JSON], "eventq pack export ./pack --thread ./inbox"
    ),
    "pack import": Command(
        take,
        [_FOLDER, THREAD, JSON],
        "eventq pack import ./pack --thread ./inbox",
        "eventq pack import ./cxdb/data --thread ./inbox",
    ),
}
