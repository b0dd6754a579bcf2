"""What the tests of the memory share: names of bytes, and turns to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eventq import Context, Turn
    from tests.contract.support import Tables

    Stored = Callable[[], Tables]

MIB = 1 << 20
DAY = 24 * 3600
AT = 1773829800123  # what the clock shows: 2026-03-18T10:30:00.123Z
U32 = (1 << 32) - 1
LARGEST_ID = (1 << 63) - 1
MISSING = "blob:blake3:" + "0" * 64
NO_NUMBERS: list[Any] = [True, False, 1.0, "1", b"1", [1]]


def hash_of(data: bytes) -> str:
    """Return the name of bytes."""
    return blake3(data).hexdigest()


def ref_of(data: bytes) -> str:
    """Return the ref of bytes, stored or not."""
    return "blob:blake3:" + hash_of(data)


def grow(context: Context, count: int) -> list[int]:
    """Append some turns, whose payloads are all different, and return their ids."""
    return [context.append(f"{context.id}: {number}").turn_id for number in range(count)]


def said(turns: Iterable[Turn]) -> list[bytes | None]:
    """Return the payloads of turns."""
    return [turn.payload for turn in turns]
