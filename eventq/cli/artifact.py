"""Store whole outputs of tools under numbers."""

from __future__ import annotations

import os

from eventq.cli import kinds, render, show
from eventq.cli.inputs import Input
from eventq.cli.options import JSON, READ, THREAD
from eventq.cli.output import LINES, show_url
from eventq.cli.table import Argument, Command, Option
from eventq.errors import LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records import ArtifactInfo, OutputInfo
    from eventq.thread import Thread

    Made = dict[str, ArtifactInfo | OutputInfo]


def put(thread: Thread, *, file: str, tool: str, json: bool) -> None:
    """Store a tool's output durably, and print its URL. Reads stdin if FILE is - or missing."""
    made = thread.artifacts.put(Input(file), tool)
    show.result(render.produced(made), made.url, json=json)


def cat(thread: Thread, *, id: str, offset: int | None, limit: int | None, json: bool) -> None:
    """Write an artifact, or some of its lines, to stdout.

    If it is unfinished, this writes what is stored so far.
    """
    show_url(thread, f"artifact://{id.removeprefix('artifact://')}", offset, limit, json=json)


def ls(thread: Thread, *, json: bool) -> None:
    """List all artifacts in the order of their numbers."""
    render.show_all(thread.artifacts, render.produced, render.artifact, json=json)


def rm(thread: Thread, *, id: str, json: bool) -> None:
    """Delete an artifact. Its number is never used again."""
    name = id.removeprefix("artifact://")
    thread.artifacts.remove(name)
    show.result({"artifact_id": name}, f"Deleted artifact://{name}", json=json)


def export(thread: Thread, *, folder: str, json: bool) -> None:
    """Export all artifacts and outputs to a folder, one file each. It is created if missing."""
    artifacts, outputs = thread.artifacts, thread.outputs
    try:
        os.makedirs(folder, exist_ok=True)
        counts = len(artifacts.export_folder(folder)), len(outputs.export_folder(folder))
    except OSError as error:
        raise _refused(folder, error, "written") from error
    place = os.path.abspath(folder)
    what = f"{render.count(counts[0], 'artifact')} and {render.count(counts[1], 'output')}"
    written = {"folder": place, "artifacts": counts[0], "outputs": counts[1]}
    show.result(written, f"Exported {what} to {place}", json=json)


def take(thread: Thread, *, folder: str, json: bool) -> None:
    """Import artifacts and outputs from the files of a folder. Importing twice adds nothing."""
    try:
        made: Made = {
            **thread.artifacts.import_folder(folder),
            **thread.outputs.import_folder(folder),
        }
    except OSError as error:
        raise _refused(str(error.filename or folder), error, "read") from error
    render.show_all(
        made.items(),
        lambda pair: {"name": pair[0], **render.produced(pair[1])},
        lambda pair: f"{show.readable(pair[0])} -> {pair[1].url}",
        json=json,
    )


def _refused(path: str, error: OSError, done: str) -> LogicError:
    what = f"'{path}' could not be {done}: {error.strerror or error}"
    return LogicError(what, "check the path, its permissions and the disk")


_ID, _FOLDER = Argument("ID"), Argument("FOLDER", kinds.path)

COMMANDS = {
    "artifact put": Command(
        put,
        [
            Argument("[FILE]", kinds.path, default="-"),
            Option("tool NAME", "The tool that printed the output.", default="tool"),
            THREAD,
            JSON,
        ],
        "eventq artifact put build.log --tool make --thread ./inbox",
        "make 2>&1 | eventq artifact put --tool make --thread ./inbox",
    ),
    "artifact cat": Command(
        cat, [_ID, *LINES], "eventq artifact cat 3 --offset 101 --limit 100 --thread ./inbox"
    ),
    "artifact ls": Command(ls, [READ, JSON], "eventq artifact ls --thread ./inbox"),
    "artifact rm": Command(rm, [_ID, THREAD, JSON], "eventq artifact rm 3 --thread ./inbox"),
    "artifact export": Command(
        export, [_FOLDER, READ, JSON], "eventq artifact export ./files --thread ./inbox"
    ),
    "artifact import": Command(
        take, [_FOLDER, THREAD, JSON], "eventq artifact import ./files --thread ./inbox"
    ),
}
