"""List and copy threads, and delete those in a database."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON
from eventq.cli.rules import exclude
from eventq.cli.table import Argument, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.thread import Thread


def ls(*, place: str, json: bool) -> None:
    """List the threads in a database, or below a folder."""
    from eventq.thread import threads

    found = [*threads(place)]
    show.result({"threads": found}, "\n".join(found), json=json)


def rm(*, url: str, json: bool) -> None:
    """Delete a thread in a database, and everything in it. Nothing brings it back.

    A thread in a directory is deleted with the directory: rm -r.
    """
    from eventq.store.paths import shown
    from eventq.thread import destroy

    destroy(url)
    show.result({"thread": shown(url)}, f"Deleted thread {shown(url)}", json=json)


def copy(src: Thread, *, dst: str, contexts: list[int | str] | None, all: bool, json: bool) -> None:
    """Copy the memory of one thread to another.

    Turns, blobs, artifacts and outputs are copied; the other thread is created if it is missing.
    With --all the other thread goes on where this one is: pause the consumers first.
    """
    from eventq.thread import open_thread

    src.produced  # noqa: B018 (refuses a thread without these tables before the copy is created)
    chosen = contexts and [src.contexts.get(one).id for one in contexts]
    with open_thread(dst, create=True) as theirs:
        found = src.copy_to(theirs, chosen, log=all)
    show.result(render.fields(found), f"Copied {render.added(found)}", json=json)
    for note in () if json else found.notes:
        show.note(note)


COMMANDS = {
    "thread ls": Command(
        ls,
        [Argument("PLACE", kinds.place), JSON],
        "eventq thread ls postgresql://user@host/database",
        "eventq thread ls /srv/threads",
    ),
    "thread copy": Command(
        copy,
        [
            Argument("SRC", kinds.Opened(reads=True)),
            Argument("DST", kinds.place),
            Option(
                "contexts NAME,NAME",
                "Copy only these contexts with all that they refer to. Give names or ids.",
                kinds.branches,
            ),
            Option("all", "Copy the events, the consumers and their progress, too."),
            JSON,
        ],
        "eventq thread copy ./inbox ./archive --contexts main,retry",
        "eventq thread copy --all ./inbox 'postgresql://user@host/database?thread=inbox'",
        rules=[exclude("all", "contexts")],
    ),
    "thread rm": Command(
        rm,
        [Argument("URL"), JSON],
        "eventq thread rm 'postgresql://user@host/database?thread=inbox'",
    ),
}
