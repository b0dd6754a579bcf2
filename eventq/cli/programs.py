"""Find a worker in the caller's program, and say what to do when that fails."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from eventq.errors import EventqError, LogicError, UsageError
from eventq.running.worker import Worker

if TYPE_CHECKING:
    from types import ModuleType


def find_worker(place: str) -> Worker:
    """Return the worker at `module:name`; the current directory is searched first."""
    module, _, name = place.partition(":")
    if not module or not name or ":" in name:
        raise UsageError(f"'{place:.200}' is no worker", "give module:name, such as tasks:worker")
    found: object = _import(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Worker):
        return found
    what = f"module '{module}' has no '{name}'"
    if found is not None:
        what = f"'{place}' is no eventq.Worker, but of type {type(found).__name__}"
    raise LogicError(what, _advice(module, name))


def run_worker(worker: Worker) -> None:
    """Run a worker. Raises LogicError for what it does not expect, whose traceback is logged."""
    try:
        worker.run()
    except (EventqError, OSError, MemoryError):
        raise
    except BaseException as error:
        what = f"the worker has ended: {type(error).__name__}: {error}"
        raise LogicError(what, "its traceback is above; start it again") from error


def _import(module: str) -> ModuleType:
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise LogicError("the current directory is gone", "change to another one") from error
    sys.path.insert(0, here)
    try:
        return import_module(module)
    except EventqError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module == missing or module.startswith(f"{missing}."):
            raise LogicError(
                f"there is no module '{module}' in {here}, and none is installed",
                f"run this in the folder of {module.partition('.')[0]}.py",
            ) from error
        fix = f"install it for {sys.executable}"
        raise LogicError(f"module '{module}' needs '{missing}'", fix) from error
    except (Exception, SystemExit) as error:
        what = f"module '{module}' cannot be imported: {type(error).__name__}: {error}"
        fix = f"run '{sys.executable} -c \"import {module}\"' to see where"
        raise LogicError(what, fix) from error


def _advice(module: str, name: str) -> str:
    known = [one for one, value in vars(sys.modules[module]).items() if isinstance(value, Worker)]
    if known:
        return f"it has {', '.join(f'{module}:{one}' for one in known)}"
    return f"write '{name.partition('.')[0]} = eventq.Worker()' there"
