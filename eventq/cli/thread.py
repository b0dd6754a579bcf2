"""List threads, and delete those in a database."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import JSON
from eventq.cli.table import Argument, Command


def ls(*, place: str, json: bool) -> None:
    """List the threads in a database, or below a folder."""
    from eventq.thread import threads

    found = [*threads(place)]
    show.result({"threads": found}, "\n".join(found), json=json)


def rm(*, url: str, json: bool) -> None:
    """Delete a thread in a database, and everything in it. Nothing brings it back.

    A thread in a directory is deleted with the directory: rm -r.
    """
    from eventq.storage.layout import shown
    from eventq.thread import destroy

    destroy(url)
    show.result({"thread": shown(url)}, f"Deleted thread {shown(url)}", json=json)


COMMANDS = {
    "thread ls": Command(
        ls,
        [Argument("PLACE", kinds.place), JSON],
        "eventq thread ls postgresql://user@host/database",
        "eventq thread ls /srv/threads",
    ),
    "thread rm": Command(
        rm,
        [Argument("URL"), JSON],
        "eventq thread rm 'postgresql://user@host/database?thread=inbox'",
    ),
}
