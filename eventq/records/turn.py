"""Blobs, turns and contexts, and what collections and imports did to them."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Blob(Record):
    """Stored bytes, named by their hash.

    `hash` is BLAKE3-256 in 64 lower-case hex digits. `size` counts the bytes, `stored` those on the
    disk. `codec` is `none`, `zstd` or `parts`. `new` is false if a put found the bytes stored.
    """

    hash: str
    size: int
    stored: int
    codec: str
    new: bool = False

    @property
    def ref(self) -> str:
        """The name that others refer to it by."""
        return f"blob:blake3:{self.hash}"


class Turn(Record):
    """One immutable node of a conversation, as it is read.

    `turn_id` counts 1, 2, 3 …; `parent_turn_id` is 0 for a root, whose `depth` is 0. `type_id`,
    `type_version`, `encoding` and `flags` are application-defined. `hash` and `size` are those of
    the payload as it is read; `payload` is None if it was not requested, and for a tombstone. One
    with a hash was erased: its bytes are gone for good.
    `patch` is the `seq` of the patch that was applied, 0 for none. `canonical` names the rule that
    made the payload's bytes, or is None.
    """

    turn_id: int
    parent_turn_id: int
    depth: int
    type_id: str
    type_version: int
    encoding: int
    hash: str
    size: int
    flags: int
    created_at_ms: int
    canonical: str | None = None
    patch: int = 0
    tombstone: bool = False
    payload: bytes | None = None

    @property
    def ref(self) -> str:
        """The name of the payload's blob."""
        return f"blob:blake3:{self.hash}"


def turn_object(one: Turn, *, payload: bool = True) -> dict[str, Any]:
    """Return a turn as a JSON object; bytes that are not UTF-8 become `payload_base64`."""
    shown: dict[str, Any] = one._asdict()
    data = shown.pop("payload")
    if not payload:
        return shown
    try:
        shown["payload"] = None if data is None else data.decode()
    except UnicodeDecodeError:
        from binascii import b2a_base64

        shown["payload_base64"] = b2a_base64(data, newline=False).decode()
    return shown


class NewTurn(Record):
    """A turn that is to be appended.

    `payload` is bytes, text or a binary file; or a value, of which `canonical` names the rule that
    makes bytes: `eventq-json-1`, also for a dict or a list without one. `refs` are the blobs that
    it names. `type_id`, `type_version`, `encoding` and `flags` are application-defined. A payload
    that is not that of `expect_hash` and `expect_size` is refused.
    """

    payload: Any
    type_id: str = "message"
    type_version: int = 1
    encoding: int = 0
    flags: int = 0
    canonical: str | None = None
    refs: Iterable[str | bytes] = ()
    expect_hash: str | bytes | None = None
    expect_size: int | None = None


class Page(tuple[Turn, ...]):  # noqa: SLOT001 (a tuple can have none)
    """Some turns of a chain, oldest first; `next_cursor` is None at the end of the chain."""

    next_cursor: int | None
    __match_args__ = ("turns", "next_cursor")

    def __new__(cls, turns: Iterable[Turn], next_cursor: int | None = None) -> Page:
        """Return a page of these turns."""
        page = super().__new__(cls, turns)
        page.next_cursor = next_cursor
        return page

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns as a plain tuple."""
        return tuple(self)

    def __getnewargs__(self) -> tuple[tuple[Turn, ...], int | None]:
        """Return what copies and pickles are made of."""
        return self.turns, self.next_cursor

    def __repr__(self) -> str:
        """Show the turns and the cursor."""
        return f"Page(turns={self.turns!r}, next_cursor={self.next_cursor!r})"


class ContextInfo(Record):
    """A context at one moment: a head over turns, and its origin.

    `head_turn_id` is 0 while it is empty; `base_turn_id` is the turn it began at; `fork_of` the
    context it was forked from, None for none or a deleted one; `version` counts the moves of the
    head.
    """

    context_id: int
    name: str | None
    head_turn_id: int
    head_depth: int
    base_turn_id: int
    fork_of: int | None
    version: int
    flags: int
    created_at_ms: int
    updated_at_ms: int


class Move(Record):
    """One move of a head; turn ids are 0 for none.

    `op` is `create`, `append`, `move`, `import` or `delete`.
    """

    version: int
    op: str
    old_turn_id: int
    new_turn_id: int
    at_ms: int


class OpenInfo(Record):
    """A turn that is still being written; `size` counts the bytes stored so far."""

    open_id: int
    context_id: int
    type_id: str
    type_version: int
    encoding: int
    size: int
    created_at_ms: int
    updated_at_ms: int


class Collected(Record):
    """What a collection deleted, or would delete if it was not `applied`.

    `hashes` are those of the blobs, sorted; `size` counts their bytes, `stored` those on the disk.
    """

    applied: bool
    turns: int
    blobs: int
    size: int
    stored: int
    hashes: tuple[str, ...]


class Imported(Record):
    """What an import added; `notes` has a sentence for each thing that was dropped or missing."""

    blobs: int
    turns: int
    contexts: int
    moved: int
    notes: tuple[str, ...]
    artifacts: int = 0
    outputs: int = 0
    events: int = 0
    consumers: int = 0
