"""The commands of packs: the interchange format."""

from __future__ import annotations

import os

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, READ, THREAD
from eventq.cli.table import Argument, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.thread import Thread


def export(thread: Thread, *, folder: str, json: bool) -> None:
    """Write a pack."""
    thread.export_pack(folder)
    place = os.path.abspath(folder)
    show.result({"folder": place}, f"Exported to {place}", json=json)


def take(thread: Thread, *, folder: str, json: bool) -> None:
    """Store what a pack holds."""
    found = thread.import_pack(folder)
    lines = [f"Imported {render.added(found)}", *map(show.readable, found.notes)]
    show.result(render.fields(found), "\n".join(lines), json=json)


_FOLDER = Argument("FOLDER", kinds.path)

ABOUT = {"pack": "Take blobs, turns and contexts to another thread."}

COMMANDS = {
    "pack export": Command(
        export,
        "Write all blobs, turns and heads to a folder. It must hold no pack yet; the format is the interchange format.",
        [_FOLDER, READ, JSON],
        examples=["eventq pack export ./pack --thread ./inbox"],
    ),
    "pack import": Command(
        take,
        "Store what is new in a pack. The data directory of a CXDB server will do, too. Importing twice adds nothing.",
        [_FOLDER, THREAD, JSON],
        examples=[
            "eventq pack import ./pack --thread ./inbox",
            "eventq pack import ./cxdb/data --thread ./inbox",
        ],
    ),
}
