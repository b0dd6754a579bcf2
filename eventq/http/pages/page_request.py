"""What a page is asked for, and the numbers in it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from eventq.errors import UsageError
from eventq.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventq.serving.served import ServedThread


class Ask(Record):
    """A request for a page: the thread, what stands for the braces of its path, query and form.

    One that is asked for `again` is on a screen already, and what it asks for may take longer.
    """

    served: ServedThread
    names: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    again: bool = False

    @property
    def at(self) -> str:
        """The path of the thread."""
        return path_of(self.served)


def path_of(served: ServedThread) -> str:
    """Return the path of a thread's pages."""
    return f"/t/{quote(served.name, safe='')}"


def is_fetched_again(headers: Mapping[str, str]) -> bool:
    """Return whether the script of a page asks for it once more, not a person."""
    return headers.get("sec-fetch-dest", "document") != "document"


def whole_in(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a number of a query or a form. Raises UsageError."""
    word = given.get(name, "")
    if not word and default is not None:
        return default
    if not word.isascii() or not word.isdigit() or len(word) > 18:
        raise UsageError(f"'{word:.50}' is no number", "give one such as 7")
    return int(word)


def word_in(given: Mapping[str, str], name: str) -> str:
    """Return a word of a query or a form. Raises UsageError."""
    word = given.get(name, "")
    if not word:
        raise UsageError(f"{name} is missing", "load the page again, and send its form")
    return word
