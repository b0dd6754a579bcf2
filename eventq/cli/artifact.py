"""The commands of artifacts: each parses, makes one call, and shows the result."""

from __future__ import annotations

import os

from eventq.cli import render, show
from eventq.cli.given import Input
from eventq.cli.log import open_thread
from eventq.cli.options import text
from eventq.errors import LogicError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.options import Raw
    from eventq.records import ArtifactInfo, OutputInfo

    Made = dict[str, ArtifactInfo | OutputInfo]


def put(raw: Raw) -> None:
    """Keep the output of a tool."""
    is_open = show.stdin_is_open()
    with open_thread(raw) as thread:
        file, tool = Input(text(raw, "FILE") or "-", is_open=is_open), text(raw, "tool") or "tool"
        made = thread.artifacts.put(file, tool)
    if raw["json"]:
        show.dump(render.produced(made))
    else:
        show.say(made.url)


def ls(raw: Raw) -> None:
    """List all artifacts."""
    with open_thread(raw, read_only=True) as thread:
        if raw["json"]:
            render.dump_all(map(render.produced, thread.artifacts))
        else:
            render.say_all(map(render.artifact, thread.artifacts))


def rm(raw: Raw) -> None:
    """Delete an artifact."""
    with open_thread(raw) as thread:
        name = (text(raw, "ID") or "").removeprefix("artifact://")
        thread.artifacts.remove(name)
    if raw["json"]:
        show.dump({"artifact_id": name})
    else:
        show.say(f"Deleted artifact://{name}")


def export(raw: Raw) -> None:
    """Write artifacts and outputs to a folder."""
    with open_thread(raw, read_only=True) as thread:
        folder, artifacts, outputs = text(raw, "FOLDER") or "", thread.artifacts, thread.outputs
        try:
            os.makedirs(folder, exist_ok=True)
            counts = len(artifacts.export_folder(folder)), len(outputs.export_folder(folder))
        except OSError as error:
            raise _refused(folder, error, "written") from error
    place = os.path.abspath(folder)
    if raw["json"]:
        show.dump({"folder": place, "artifacts": counts[0], "outputs": counts[1]})
    else:
        show.say(f"Exported {render.count(counts[0], 'artifact')} and {render.count(counts[1], 'output')} to {place}")


def take(raw: Raw) -> None:
    """Keep the files of a folder as artifacts and outputs."""
    with open_thread(raw) as thread:
        folder = text(raw, "FOLDER") or ""
        try:
            made: Made = {**thread.artifacts.import_folder(folder), **thread.outputs.import_folder(folder)}
        except OSError as error:
            raise _refused(str(error.filename or folder), error, "read") from error
    if raw["json"]:
        render.dump_all({"name": name, **render.produced(one)} for name, one in made.items())
    else:
        render.say_all(f"{show.readable(name)} -> {one.url}" for name, one in made.items())


def _refused(path: str, error: OSError, done: str) -> LogicError:
    return LogicError(
        f"'{path}' could not be {done}: {error.strerror or error}", "check the path, its permissions and the disk"
    )
