"""Store whole outputs of tools under numbers."""

from __future__ import annotations

import os

from eventq.cli import kinds, render, show
from eventq.cli.inputs import Input
from eventq.cli.options import IN_CONTEXT, JSON, READ, REASON, THREAD
from eventq.cli.output import PART, show_url
from eventq.cli.table import Argument, Command, Option
from eventq.errors import refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.output import Part
    from eventq.errors import StoreError
    from eventq.thread import Thread


def put(thread: Thread, *, file: str, tool: str, context: int | str | None, json: bool) -> None:
    """Store a tool's output durably, and print its URL. Reads stdin if FILE is - or missing."""
    made = thread.scope(context).artifacts.put(Input(file), tool)
    show.result(render.produced(made), made.url, json=json)


def cat(thread: Thread, *, id: str, part: Part, json: bool) -> None:
    """Write an artifact, or some of its lines, to stdout.

    If it is unfinished, this writes what is stored so far.
    """
    show_url(thread, f"artifact://{id.removeprefix('artifact://')}", part, json=json)


def ls(thread: Thread, *, context: int | str | None, json: bool) -> None:
    """List all artifacts in the order of their numbers."""
    render.show_all(thread.scope(context).artifacts, render.produced, render.artifact, json=json)


def rm(thread: Thread, *, id: str, context: int | str | None, json: bool) -> None:
    """Delete an artifact. Its number is never used again."""
    from eventq.output.urls import artifacts_at

    artifacts, name = artifacts_at(id.removeprefix("artifact://"), thread.scope(context))
    info = artifacts.get(name)
    artifacts.remove(name)
    show.result({"artifact_id": name}, f"Deleted {info.url}", json=json)


def erase(
    thread: Thread, *, id: str, context: int | str | None, reason: str | None, json: bool
) -> None:
    """Erase an artifact from all files of the thread. Its number is never used again.

    Copies of the thread, packs and backups are not reached.
    """
    from eventq.cli.erase import show_erasure
    from eventq.output.urls import artifacts_at

    artifacts, name = artifacts_at(id.removeprefix("artifact://"), thread.scope(context))
    said = thread.erasures.said("artifact", name, artifacts)
    made = thread.erasures.artifact(name, artifacts=artifacts, reason=reason)
    show_erasure(thread, made, said, json=json)


def export(thread: Thread, *, folder: str, context: int | str | None, json: bool) -> None:
    """Export all artifacts and outputs to a folder, one file each. It is created if missing.

    Other files that were imported are written too.
    """
    from eventq.output import folders

    produced = thread.scope(context)
    try:
        os.makedirs(folder, exist_ok=True)
        counts = folders.write(produced, folder, show.note)
    except OSError as error:
        raise _refused(folder, error, "written") from error
    place = os.path.abspath(folder)
    written = {"folder": place, **counts}
    show.result(written, f"Exported {render.folder(counts)} to {place}", json=json)


def take(thread: Thread, *, folder: str, context: int | str | None, json: bool) -> None:
    """Import the files of a folder as artifacts and outputs. Importing twice adds nothing.

    N.TOOL.log is an artifact, NAME.md an output, and any other file is kept as it is.
    """
    from eventq.output import folders

    produced = thread.scope(context)
    try:
        made = folders.bring(produced, folder, show.note, os.path.realpath(thread.layout.directory))
    except OSError as error:
        raise _refused(str(error.filename or folder), error, "read") from error
    render.show_all(
        made.items(),
        lambda pair: {"name": pair[0], **render.produced(pair[1])},
        lambda pair: f"{show.readable(pair[0])} -> {render.url(pair[1])}",
        json=json,
    )


def _refused(path: str, error: OSError, done: str) -> StoreError:
    return refused(error, f"'{path}' could not be {done}: {error.strerror or error}")


_ID, _FOLDER = Argument("ID"), Argument("FOLDER", kinds.path)

COMMANDS = {
    "artifact put": Command(
        put,
        [
            Argument("[FILE]", kinds.path, default="-", yields=True),
            Option("tool NAME", "The tool that printed the output.", default="tool"),
            IN_CONTEXT,
            THREAD,
            JSON,
        ],
        "eventq artifact put build.log --tool make --thread ./inbox",
        "make 2>&1 | eventq artifact put --tool make --thread ./inbox",
    ),
    "artifact cat": Command(
        cat, [_ID, *PART], "eventq artifact cat 3 --offset 101 --limit 100 --thread ./inbox"
    ),
    "artifact ls": Command(
        ls, [IN_CONTEXT, READ, JSON], "eventq artifact ls --context s-1 --thread ./inbox"
    ),
    "artifact rm": Command(
        rm, [_ID, IN_CONTEXT, THREAD, JSON], "eventq artifact rm 3 --thread ./inbox"
    ),
    "artifact erase": Command(
        erase,
        [_ID, IN_CONTEXT, REASON, THREAD, JSON],
        "eventq artifact erase 3 --reason 'a password' --thread ./inbox",
    ),
    "artifact export": Command(
        export, [_FOLDER, IN_CONTEXT, READ, JSON], "eventq artifact export ./files --thread ./inbox"
    ),
    "artifact import": Command(
        take, [_FOLDER, IN_CONTEXT, THREAD, JSON], "eventq artifact import ./files --thread ./inbox"
    ),
}
