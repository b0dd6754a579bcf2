"""Show and change the settings of a thread."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, thread_option
from eventq.cli.table import Argument, Command
from eventq.store.rules import ANY_MOUNT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.info import Setting
    from eventq.thread import Thread


def config(thread: Thread, *, name: str | None, value: str | None, json: bool) -> None:
    """Show the settings of a thread, or change one.

    A NAME alone prints its value; with a VALUE it is changed. `runs.emit` says who reports the
    changes of workflow runs: `off`, `on` (the source `self`), or a source. Each change then pushes
    an event of type record and subtype run. `any_mount true` lets a thread be written on a file
    system that `init` refuses, as only this machine writes there. `hooks.sessions off` keeps hooks
    from importing the session files of agents that stop.
    """
    if name is None:
        render.show_all(thread.settings, render.fields, _line, json=json)
        return
    if value is not None:
        thread.settings.set(name, value)
    found = thread.settings.get(name)
    (setting,) = [one for one in thread.settings if one.name == name]
    show.result(render.fields(setting), found if value is None else _line(setting), json=json)


def _line(one: Setting) -> str:
    """Return the line that describes a setting."""
    return f"{one.name}  {show.readable(one.value)}  (default: {one.default})"


COMMANDS = {
    "config": Command(
        config,
        [
            Argument("[NAME]", yields=True),
            Argument("[VALUE]"),
            thread_option(
                kinds.Opened(
                    reads=lambda raw: not raw["VALUE"], allows=lambda raw: raw["NAME"] == ANY_MOUNT
                )
            ),
            JSON,
        ],
        "eventq config --thread ./inbox",
        "eventq config runs.emit on --thread ./inbox",
    ),
}
