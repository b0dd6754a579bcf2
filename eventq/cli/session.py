"""The commands of session files and of copies: each parses, makes one call, and shows the result."""

from __future__ import annotations

from eventq.cli import render, show
from eventq.cli.blob import save
from eventq.cli.given import which
from eventq.cli.log import open_thread
from eventq.cli.options import text
from eventq.errors import LogicError
from eventq.thread import Thread
from eventq.thread import open_thread as open_or_make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.options import Raw


def take(raw: Raw) -> None:
    """Keep a session file as a context."""
    with open_thread(raw) as thread:
        path, name, blobs = text(raw, "FILE") or "", text(raw, "name"), text(raw, "blobs")
        try:
            made = thread.sessions.import_file(path, name=name, blobs=blobs)
        except OSError as error:
            why = error.strerror or error
            raise LogicError(f"'{path}' could not be read: {why}", "check the path and its permissions") from error
        context = thread.contexts.get(made.context_id).info()
    if raw["json"]:
        show.dump(render.fields(made))
        return
    name = show.readable(context.name or "")
    show.say(f"Imported {made.added:,} of {made.entries:,} entries into context '{name}' ({made.context_id})")
    _note_all(made.notes)


def export(raw: Raw) -> None:
    """Give a context as the session file that it was."""
    notes: list[str] = []
    with open_thread(raw, read_only=True) as thread:
        context, path = which(raw), text(raw, "output")
        to_stdout = path is None or path == "-"
        warn = notes.append if raw["json"] and not to_stdout else show.note
        lines = thread.sessions.lines(context, warn=warn)
        if to_stdout:
            for line in lines:
                show.out(line)
            return
        size = save(path or "", lines)
    if raw["json"]:
        show.dump({"context": context, "size": size, "output": path, "notes": notes})


def copy(raw: Raw) -> None:
    """Copy the memory of a thread to another."""
    source, target = text(raw, "SRC") or "", text(raw, "DST") or ""
    with Thread(source, read_only=True) as mine:
        mine.produced  # noqa: B018 (what an older thread lacks is said before another is made)
        chosen = _chosen(raw, mine)
        with open_or_make(target, create=True) as theirs:
            found = mine.copy_to(theirs, chosen)
    if raw["json"]:
        show.dump(render.fields(found))
        return
    show.say(f"Copied {render.added(found)}")
    _note_all(found.notes)


def _chosen(raw: Raw, thread: Thread) -> list[int] | None:
    """Give the ids of the contexts that were asked for, None for all; one that is not there is said at once."""
    asked = text(raw, "contexts")
    if asked is None:
        return None
    words = [word.strip() for word in asked.split(",")]
    return [thread.contexts.get(which({"contexts": word}, "contexts")).id for word in words]


def _note_all(notes: tuple[str, ...]) -> None:
    for note in notes:
        show.note(note)
