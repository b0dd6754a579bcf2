"""Read the data directory of a CXDB server: the files of a pack, in folders, and file-tree roots.

    blobs/   blobs.pack, blobs.idx
    turns/   turns.log, turns.idx, turns.meta, heads.tbl
    fs/      roots.idx, 44 bytes each: u64 turn_id, [32] root, u32 crc; a turn's last one counts

Nothing is written into it. It differs from a pack of eventq in several ways. `type_tag` is always
0. A head is written again with each turn, with the time of the turn, so a context is as old as its
first record. The order of `turns.idx` has no meaning. Some versions of the server empty `blobs/`
and `turns/` when they start, but not `fs/`, and count turns from 1 again: a root whose blob is
missing may belong to another turn.
"""

from __future__ import annotations

import os
import struct

from eventq.transfer import packfile
from eventq.transfer.packfile import HeadRecord
from eventq.transfer.sources import PackSource, ignore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.transfer.sources import Line

ROOTS = "roots.idx"
_FOLDERS = {
    packfile.BLOBS: "blobs",
    packfile.TURNS: "turns",
    packfile.META: "turns",
    packfile.HEADS: "turns",
    ROOTS: "fs",
}
_ROOT = struct.Struct("<Q32s")


def is_data_directory(folder: str) -> bool:
    """Return whether a folder is laid out as a data directory, and not as a pack."""
    names = packfile.BLOBS, packfile.TURNS
    if any(os.path.lexists(os.path.join(folder, name)) for name in names):
        return False
    return any(os.path.isfile(os.path.join(folder, _FOLDERS[name], name)) for name in names)


class DataDirectory(PackSource):
    """A data directory; what is damaged in it is left out, with a `note`."""

    def __init__(self, folder: str) -> None:
        """Read from a folder. Raises LogicError when it holds neither blobs nor turns."""
        super().__init__(folder)
        self._roots: dict[int, bytes] | None = None

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, _FOLDERS.get(name, ""), name)

    def heal(self) -> None:
        """Do nothing: the indexes are the server's own, and an import does not need them."""

    def describes(self) -> bool | None:
        """Return None, not known, where turns are described: the server leaves no hash of that."""
        return None if os.path.lexists(self._path(packfile.META)) else True

    def heads(self) -> Iterator[HeadRecord]:
        """Yield the heads of contexts, each with the time of the first one of its context."""
        born: dict[int, int] = {}
        for head in super().heads():
            at = born.setdefault(head.context_id, head.created_at_ms)
            yield HeadRecord(head.context_id, head.head_turn_id, head.head_depth, head.flags, at)

    def lines(self) -> Iterator[Line | None]:
        """Yield the roots of turns, and nothing else: there is no `eventq.ndjson`."""
        if self._roots is None:
            self._roots = self._sound_roots()
        return (
            {"root": turn_id, "hash": root.hex()} for turn_id, root in sorted(self._roots.items())
        )

    def _sound_roots(self) -> dict[int, bytes]:
        """Return the last root of each turn, without those that can only be of other turns."""
        path = self._path(ROOTS)
        if not os.path.lexists(path):  # older servers have none
            return {}
        found: dict[int, bytes] = dict(packfile.read_sealed(path, self.note, _ROOT))
        if not found:
            return {}
        turns = {
            turn.turn_id for _, turn in packfile.read_turns(self._path(packfile.TURNS), ignore)
        }
        blobs = self.blob_hashes()
        sound = {
            turn_id: root for turn_id, root in found.items() if turn_id in turns and root in blobs
        }
        if len(sound) < len(found):
            lost = len(found) - len(sound)
            self.note(
                f"{ROOTS}: {lost} roots were left out: their turns, or their blobs, are not there"
            )
        return sound
