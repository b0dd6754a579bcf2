"""Results that fit: as many items as there is room for, and the start of a text that is long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.serving.parameters import fitting
from eventq.system.jsontext import writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    Object = dict[str, Any]

FRAME = 1_000  # bytes of a result that are kept for what is no item
NAME = 200  # bytes of a name or a type
SHARE = 4  # one of several texts takes no more than this part of a result
dump = writer()


def size(value: object) -> int:
    """Return the bytes of a value as JSON."""
    return len(dump(value).encode("utf-8", "replace"))


def cut(text: str, room: int) -> str:
    """Return the start of a text, at most so many bytes of it as JSON."""
    text = text[:room]
    while (needed := size(text)) > room and len(text) > 1:
        text = text[: min(len(text) - 1, len(text) * room // needed)]
    return text


def shorten(item: Object, name: str, room: int, offset: int, rest: Object) -> Object:
    """Return an item whose text begins at an offset; if it is cut, `rest` tells how to read on.

    `rest` has the arguments of the call that returns what follows, without its offset.
    """
    whole = item[name]
    shown = cut(whole[offset:] if offset else whole, room)
    end = offset + len(shown)
    item = {**item, name: shown}
    if end < len(whole):
        item |= {"length": len(whole), "rest": {**rest, "offset": end}}
    return item


def share(room: int, count: int) -> int:
    """Return the bytes that one of so many texts may take."""
    return room - FRAME if count == 1 else room // SHARE


def first(items: Sequence[Object], room: int) -> list[Object]:
    """Return as many of the first items as fit into a result, at least one."""
    return fitting(items, room - FRAME, lambda one: size(one) + 1)


def last(items: Sequence[Object], room: int) -> list[Object]:
    """Return as many of the last items as fit into a result, at least one."""
    return first(items[::-1], room)[::-1]
