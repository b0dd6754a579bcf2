"""The names that a thread has, for errors about unknown ones and for completion in a shell."""

from __future__ import annotations

import os
from difflib import get_close_matches
from itertools import islice

from eventq.errors import (
    EventqError,
    NotAThreadError,
    UnknownConsumerError,
    UnknownContextError,
    UnknownRunError,
    has_mirror,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq.thread import Thread

_SHOWN = 10  # names that an error lists; it counts the others
_MOST = 1000  # names that are looked at, however many there are


def consumers(thread: Thread) -> Iterator[str]:
    """Yield the names of all consumers."""
    return (one.consumer_id for one in thread.subscriptions())


def contexts(thread: Thread) -> Iterator[str]:
    """Yield the names of contexts, or their ids."""
    return (one.name or str(one.context_id) for one in thread.contexts)


def runs(thread: Thread) -> Iterator[str]:
    """Yield the labels of runs, or their ids."""
    return (one.label or str(one.run_id) for one in thread.runs)


_KINDS: dict[type[EventqError], tuple[str, Callable[[Thread], Iterable[str]], str]] = {
    UnknownConsumerError: ("consumers", consumers, "eventq subscribe"),
    UnknownContextError: ("contexts", contexts, "eventq context create"),
    UnknownRunError: ("runs", runs, "eventq run start"),
}


def advise(error: EventqError, thread: Thread) -> None:
    """Let the advice of an error about an unknown name list the names that there are."""
    plural, names, maker = _KINDS.get(type(error), ("", consumers, ""))
    name = getattr(error, "name", None)
    if not plural or name is None:
        return
    try:
        found = _like(name, names(thread))
    except EventqError:  # the error itself matters more than its advice
        return
    if found:
        error.fix = f"{plural} here: {found}; '{maker}' makes a new one"
    else:
        error.fix = f"there are no {plural} here; '{maker}' makes one"


def advise_thread(error: NotAThreadError) -> None:
    """Let the advice of an error about a path list the threads in its folder, or in itself."""
    if has_mirror(error.path) or os.path.isfile(error.path):
        return  # then it says what to do about those
    is_folder = os.path.isdir(error.path)
    folder, name = (error.path, "") if is_folder else os.path.split(error.path)
    if found := _like(name, _threads_in(folder)):
        error.command = f"threads in {folder}: {found}; or {error.command}"


def _threads_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(one.name for one in islice(entries, _MOST))
    except OSError:
        return []
    return [one for one in names if os.path.exists(f"{folder}/{one}/events.db")]


def _like(name: str, names: Iterable[str]) -> str:
    """Return names as text, those most like another first, and how many others there are."""
    left = iter(names)
    found = [*dict.fromkeys(islice(left, _MOST))]
    shown = get_close_matches(name, found, _SHOWN, 0.0)
    others, is_least = len(found) - len(shown), next(left, None) is not None
    more = f" and {others}{'+' * is_least} more" if others or is_least else ""
    return ", ".join(f"'{one}'" for one in shown) + more
