"""Import session files of coding agents, export them, and copy threads."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.blob import save
from eventq.cli.options import CONTEXT, JSON, OUTPUT, READ, THREAD
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.thread import Thread


def take(thread: Thread, *, file: str, name: str | None, blobs: str | None, json: bool) -> None:
    """Import a coding agent's session file as a context. Importing again adds what is new.

    So is the folder beside it, FILE without .jsonl: N.TOOL.log is artifact://N of the session,
    NAME.md is agent://NAME, and other files are kept as they are.
    """
    try:
        made = thread.sessions.import_file(file, name=name, blobs=blobs)
    except OSError as error:
        what = f"'{file}' could not be read: {error.strerror or error}"
        raise LogicError(what, "check the path and its permissions") from error
    if json:
        show.dump(render.fields(made))
        return
    context = show.readable(thread.contexts.get(made.context_id).info().name or "")
    what = f"{made.added:,} of {made.entries:,} entries"
    beside = [
        render.count(count, one)
        for count, one in ((made.files, "file"), (made.agents, "subagent"))
        if count
    ]
    if beside:
        what += f" and {' and '.join(beside)} beside it"
    show.say(f"Imported {what} into context '{context}' ({made.context_id})")
    _note_all(made.notes)


def export(
    thread: Thread,
    *,
    context: int | str,
    generation: int | None,
    output: str | None,
    blobs: str | None,
    json: bool,
) -> None:
    """Export a session's file, byte for byte, and its folder.

    The folder, FILE without .jsonl, is written beside an --output FILE only.
    """
    from eventq.sessions.files import Written

    notes: list[str] = []
    to_stdout = output is None or output == "-"
    warn = notes.append if json and not to_stdout else show.note
    lines = Written(thread.sessions.lines(context, generation=generation, warn=warn))
    if to_stdout:
        for line in lines:
            show.out(line)
    else:
        size = save(output or "", _some(lines, context))
    if blobs is not None:
        thread.sessions.export_blobs(lines.refs, blobs, warn)
    if to_stdout:
        return
    try:
        counts = thread.sessions.export_folder(context, output or "", warn)
    except OSError as error:
        what = f"the folder beside '{output}' could not be written: {error.strerror or error}"
        raise LogicError(what, "check the path, its permissions and the disk") from error
    if json:
        written = {"context": context, "size": size, "output": output, "notes": notes}
        show.dump({**written, "files": sum(counts.values())})


def fork(
    thread: Thread,
    *,
    context: int | str,
    at: str | None,
    out: str,
    new: dict[str, str | None],
    blobs: str | None,
    json: bool,
) -> None:
    """Write a new session file that goes on from an entry, for the agent to resume from.

    It is what the agent itself would write: under a new id, with the folder beside it. OUT is a new
    file, or a folder, where it gets the agent's own name. What is stored stays as it is.
    """
    made = thread.sessions.fork(context, out, at=at, blobs=blobs, **new)
    if json:
        show.dump(render.fields(made))
        return
    what = f"Forked '{context}' into '{made.output}': session {made.session_id},"
    show.say(f"{what} {render.count(made.lines, 'line')}")
    _note_all(made.notes)


def _some(lines: Iterable[bytes], context: int | str) -> Iterator[bytes]:
    """Yield the lines of a session; raise LogicError at the end if there were none."""
    is_empty = True
    for line in lines:
        is_empty = False
        yield line
    if is_empty:
        what = f"context {context} has no lines of a session"
        raise LogicError(what, "name one that 'eventq session import' made; the file is unchanged")


def copy(src: Thread, *, dst: str, contexts: list[int | str] | None, json: bool) -> None:
    """Copy the memory of one thread to another.

    Turns, blobs, artifacts and outputs are copied; the other thread is created if it is missing.
    """
    from eventq.thread import open_thread

    src.produced  # noqa: B018 (refuses a thread without these tables before the copy is created)
    chosen = contexts and [src.contexts.get(one).id for one in contexts]
    with open_thread(dst, create=True) as theirs:
        found = src.copy_to(theirs, chosen)
    show.result(render.fields(found), f"Copied {render.added(found)}", json=json)
    if not json:
        _note_all(found.notes)


def _note_all(notes: tuple[str, ...]) -> None:
    for note in notes:
        show.note(note)


_BLOBS = Option("blobs FOLDER", "Where to write blobs that entries name by SHA-256.", kinds.path)
COMMANDS = {
    "session import": Command(
        take,
        [
            Argument("FILE", kinds.path),
            Option("as NAME", "The session's name here (default: its own).", parameter="name"),
            Option(
                "blobs FOLDER",
                "The agent's directory of blobs, named by SHA-256.",
                kinds.path,
            ),
            THREAD,
            JSON,
        ],
        "eventq session import session.jsonl --as work --thread ./inbox",
    ),
    "session export": Command(
        export,
        [
            CONTEXT,
            Option(
                "generation N",
                "The file as it was before it was rewritten (default: the newest).",
                kinds.POSITIVE,
            ),
            OUTPUT,
            _BLOBS,
            READ,
            JSON,
        ],
        "eventq session export work --output session.jsonl --thread ./inbox",
    ),
    "session fork": Command(
        fork,
        [
            CONTEXT,
            Option("at ENTRY|turn:ID", "The last entry (default: where the context is)."),
            Option("out OUT", "A new file, or a folder.", kinds.path, required=True),
            *together(
                "new",
                Option("title TITLE", "The title of the new session (default: by the source's)."),
                Option("cwd DIR", "The directory it is for (default: the source's).", kinds.path),
            ),
            _BLOBS,
            READ,
            JSON,
        ],
        "eventq session fork work --at 1f0c2a9e --out ./sessions --thread ./inbox",
    ),
    "thread-copy": Command(
        copy,
        [
            Argument("SRC", kinds.Opened(reads=True)),
            Argument("DST", kinds.directory),
            Option(
                "contexts NAME,NAME",
                "Copy only these contexts with all that they refer to. Give names or ids.",
                kinds.branches,
            ),
            JSON,
        ],
        "eventq thread-copy ./inbox ./archive --contexts main,retry",
    ),
}
