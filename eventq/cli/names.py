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
    UnknownSessionError,
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


def sessions(thread: Thread) -> Iterator[str]:
    """Yield the names of sessions."""
    return thread.sessions.views.names()


def artifacts(thread: Thread) -> Iterator[str]:
    """Yield the numbers of artifacts."""
    return (str(one.artifact_id) for one in thread.artifacts)


def urls(thread: Thread) -> Iterator[str]:
    """Yield the URLs of outputs and artifacts."""
    yield from (f"agent://{one.output_id}" for one in thread.outputs)
    yield from (f"artifact://{one}" for one in artifacts(thread))


def types(thread: Thread) -> Iterator[str]:
    """Yield the types of the newest events."""
    return (one.type for one in thread.last(_MOST))


def questions(thread: Thread) -> Iterator[str]:
    """Yield the ids of the open questions."""
    return (str(one.question_id) for one in thread.questions())


def settings(thread: Thread) -> Iterator[str]:
    """Yield the names of the settings."""
    return (one.name for one in thread.settings)


# What completes a value, by its name; a name that means several things has its group before it.
_COMPLETED: dict[str, Callable[[Thread], Iterable[str]]] = {
    "consumer": consumers,
    "context": contexts,
    "contexts": contexts,
    "CONTEXT": contexts,
    "RUN": runs,
    "push type": types,
    "peek type": types,
    "tail type": types,
    "QUESTION": questions,
    "session NAME": sessions,
    "config NAME": settings,
    "artifact ID": artifacts,
    "cat URL": urls,
}


def completed(group: str, name: str) -> Callable[[Thread], Iterable[str]] | None:
    """Return what yields the names for an option or a word of a group of commands, or None."""
    return _COMPLETED.get(f"{group} {name}") or _COMPLETED.get(name)


def beginning(start: str, place: str | None, names: Callable[[Thread], Iterable[str]]) -> list[str]:
    """Return the names of a thread that begin with a text; none if it cannot be read."""
    from eventq.thread import Thread

    if not place:
        return []
    try:
        with Thread(place, read_only=True) as thread:
            found = islice(names(thread), _MOST)
            return [*dict.fromkeys(one for one in found if one.startswith(start))]
    except (EventqError, OSError):  # a shell has no place for an error
        return []


_KINDS: dict[type[EventqError], tuple[str, Callable[[Thread], Iterable[str]], str]] = {
    UnknownConsumerError: ("consumers", consumers, "eventq subscribe"),
    UnknownContextError: ("contexts", contexts, "eventq context create"),
    UnknownRunError: ("runs", runs, "eventq run start"),
    UnknownSessionError: ("sessions", sessions, "eventq session import"),
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


def threads_here() -> str:
    """Return the beginning of advice that lists the threads in the current folder, or nothing."""
    found = _like("", _threads_in("."))
    return f"threads here: {found}; " if found else ""


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
    shown = get_close_matches(name, found, _SHOWN, 0.0) if name else found[:_SHOWN]
    others, is_least = len(found) - len(shown), next(left, None) is not None
    more = f" and {others}{'+' * is_least} more" if others or is_least else ""
    return ", ".join(f"'{one}'" for one in shown) + more
