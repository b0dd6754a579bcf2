"""The SQL of blobs: their rows, their bytes, and what refers to them. No hash is made or checked here."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from eventq.storage.sqlite.database import Database

NONE, ZSTD, PARTS = 0, 1, 2  # codecs
PAGE = 500


class BlobTable:
    """The tables of blobs in one store."""

    def __init__(self, db: Database) -> None:
        """Use the store's connection and transactions."""
        self.database = db
        self._run = db.run
        self._one = db.one

    # --- one blob -------------------------------------------------------------------------------------------------

    def find(self, digest: bytes) -> tuple[int, int, int, int, int] | None:
        """Give blob_id, raw_len, stored_len, codec and whether it is a part only, or None."""
        rows = self._run("SELECT blob_id, raw_len, stored_len, codec, part FROM blobs WHERE hash = ?", (digest,))
        return rows[0] if rows else None

    def row(self, blob_id: int) -> tuple[bytes, int, int] | None:
        """Give hash, raw_len and codec of a blob, or None."""
        rows = self._run("SELECT hash, raw_len, codec FROM blobs WHERE blob_id = ?", (blob_id,))
        return rows[0] if rows else None

    def bytes_of(self, blob_id: int) -> bytes | None:
        """Give the bytes as they are kept, or None."""
        return self._one("SELECT bytes FROM blob_bytes WHERE blob_id = ?", (blob_id,))  # type: ignore[no-any-return]

    def bytes_of_many(self, blob_ids: list[int]) -> list[tuple[int, bytes]]:
        """Give blob_id and kept bytes of each of some blobs that has them."""
        sql = "SELECT blob_id, bytes FROM json_each(?) JOIN blob_bytes ON blob_id = value"
        return self._run(sql, (str(blob_ids),)) if blob_ids else []

    def stored_len(self, blob_id: int) -> int:
        """Give the number of bytes that a blob is kept in."""
        return int(self._one("SELECT stored_len FROM blobs WHERE blob_id = ?", (blob_id,)))

    def parts(self, blob_id: int) -> list[int]:
        """Give the blob_ids of the parts of a blob, in order."""
        sql = "SELECT part_id FROM blob_parts WHERE blob_id = ? ORDER BY position"
        return [row[0] for row in self._run(sql, (blob_id,))]

    def add(self, digest: bytes, raw_len: int, stored_len: int, codec: int, *, part: bool, now: int) -> int | None:
        """Store the row of a new blob and give its blob_id, or None when there is one."""
        sql = (
            "INSERT INTO blobs (hash, raw_len, stored_len, codec, part, touched_at_ms) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (hash) DO NOTHING"
        )
        self._run(sql, (digest, raw_len, stored_len, codec, part, now))
        connection = self.database.connection
        return connection.last_insert_rowid() if connection.changes() else None

    def mend(self, blob_id: int, raw_len: int, stored_len: int, codec: int, *, part: bool) -> None:
        """Put the row of a damaged blob right and forget its bytes and parts."""
        sql = "UPDATE blobs SET raw_len = ?, stored_len = ?, codec = ?, part = ? WHERE blob_id = ?"
        self._run(sql, (raw_len, stored_len, codec, part, blob_id))
        self._run("DELETE FROM blob_bytes WHERE blob_id = ?", (blob_id,))
        self._run("DELETE FROM blob_parts WHERE blob_id = ?", (blob_id,))

    def set_bytes(self, blob_id: int, stored: bytes | bytearray | memoryview) -> None:
        """Store the bytes of a blob that has none."""
        self._run("INSERT INTO blob_bytes (blob_id, bytes) VALUES (?, ?)", (blob_id, stored))

    def set_parts(self, blob_id: int, parts: list[int]) -> None:
        """Store the list of parts of a blob that has none."""
        sql = "INSERT INTO blob_parts (blob_id, position, part_id) VALUES (?, ?, ?)"
        for position, part in enumerate(parts):
            self._run(sql, (blob_id, position, part))

    def touch(self, blob_id: int, now: int) -> None:
        """Note that a blob was put again: by itself now, if it was only a part before."""
        self._run("UPDATE blobs SET touched_at_ms = ?, part = 0 WHERE blob_id = ?", (now, blob_id))

    def renew(self, blob_id: int, now: int) -> None:
        """Note that a part was met again."""
        self._run("UPDATE blobs SET touched_at_ms = ? WHERE blob_id = ?", (now, blob_id))

    # --- all of them ----------------------------------------------------------------------------------------------

    def page(self, after: bytes) -> list[Any]:
        """Give hash, blob_id, raw_len, stored_len and codec of the next PAGE blobs in the order of their hashes.

        What is a part only is left out.
        """
        sql = (
            "SELECT hash, blob_id, raw_len, stored_len, codec FROM blobs WHERE hash > ? AND part = 0"
            " ORDER BY hash LIMIT ?"
        )
        return self._run(sql, (after, PAGE))

    def count(self) -> int:
        """Give the number of blobs that are not parts only."""
        return int(self._one("SELECT count(*) FROM blobs WHERE part = 0"))

    def stored_len_of_parts(self, blob_id: int) -> int:
        """Give the number of bytes that the parts of a blob are kept in."""
        sql = "SELECT total(stored_len) FROM blob_parts p JOIN blobs b ON b.blob_id = p.part_id WHERE p.blob_id = ?"
        return int(self._one(sql, (blob_id,)))

    def pages_by_id(self) -> Iterator[list[Any]]:
        """Give all blobs, in the order they were stored, in pages.

        Columns: blob_id, hash, raw_len, stored_len, codec and the kept bytes.
        """
        sql = (
            "SELECT b.blob_id, hash, raw_len, stored_len, codec, bytes"
            " FROM blobs b LEFT JOIN blob_bytes USING (blob_id)"
            " WHERE b.blob_id > ? AND b.blob_id <= ? ORDER BY b.blob_id"
        )
        for low, high in self._ranges():
            if rows := self._run(sql, (low, high)):
                yield rows

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Give ranges of blob_ids, each of a few MiB kept."""
        sql = (
            "SELECT max(blob_id) FROM (SELECT blob_id, sum(stored_len * (codec < 2)) OVER (ORDER BY blob_id) AS kept"
            " FROM (SELECT blob_id, stored_len, codec FROM blobs WHERE blob_id > ?1 ORDER BY blob_id LIMIT 500))"
            " WHERE kept <= 4194304 OR blob_id = (SELECT min(blob_id) FROM blobs WHERE blob_id > ?1)"
        )
        low = -1 << 63
        while (high := self._one(sql, (low,))) is not None:
            yield low, high
            low = high

    # --- edges ----------------------------------------------------------------------------------------------------

    def find_many(self, digests: list[bytes]) -> list[tuple[int, bytes, int, int]]:
        """Give blob_id, hash, raw_len and codec of each of some blobs that is stored, and not as a part only."""
        sql = (
            "SELECT blob_id, hash, raw_len, codec FROM json_each(?) CROSS JOIN blobs ON hash = unhex(value)"
            " WHERE part = 0"
        )
        return self._run(sql, (_list(digests),))

    def add_refs(self, blob_id: int, digests: list[bytes]) -> int:
        """Note that a blob names others, as far as they are stored, and give how many of these notes are new."""
        sql = (
            "INSERT OR IGNORE INTO blob_refs (blob_id, ref_id) SELECT ?, blob_id FROM json_each(?)"
            " CROSS JOIN blobs ON hash = unhex(value) WHERE part = 0"
        )
        self._run(sql, (blob_id, _list(digests)))
        return self.database.connection.changes()

    def refs(self, blob_id: int) -> list[bytes]:
        """Give the hashes of what a blob names, sorted."""
        sql = "SELECT hash FROM blob_refs JOIN blobs ON blobs.blob_id = ref_id WHERE blob_refs.blob_id = ? ORDER BY 1"
        return [row[0] for row in self._run(sql, (blob_id,))]

    def holders(self, blob_id: int, limit: int) -> list[tuple[str, Any]]:
        """Give kind and name of what keeps a blob: turns, patches, blobs, events, pins, outputs, roots.

        At most `limit` of a kind.
        """
        found: list[tuple[str, Any]] = []
        outputs = (_OUTPUTS,) if self.database.has_output() else ()
        roots = (_ROOTS,) if self.database.has_roots() else ()
        for sql in (*_HOLDERS, *outputs, *roots):
            found += self._run(sql, (blob_id, limit))
        return found

    def pin(self, name: str, blob_id: int, now: int) -> None:
        """Keep a blob under a name."""
        self._run("INSERT OR IGNORE INTO pins (name, blob_id, created_at_ms) VALUES (?, ?, ?)", (name, blob_id, now))

    def unpin(self, name: str, blob_id: int) -> bool:
        """Keep a blob under a name no more; give False when it was not."""
        self._run("DELETE FROM pins WHERE name = ? AND blob_id = ?", (name, blob_id))
        return bool(self.database.connection.changes())

    def pins(self) -> list[tuple[str, bytes]]:
        """Give name and hash of every pin, sorted."""
        return self._run("SELECT name, hash FROM pins JOIN blobs USING (blob_id) ORDER BY 1, 2")

    def faults(self) -> Iterator[str]:
        """Say what is wrong with the rows of blobs that reading them does not show."""
        for sql in _FAULTS:
            for digest, what in self._run(sql):
                yield f"blob:blake3:{digest.hex()} is damaged: {what}"


def _list(digests: list[bytes]) -> str:
    """Give hashes as a JSON list of their digits."""
    return '["' + '","'.join([digest.hex() for digest in digests]) + '"]'


_FAULTS = (
    (
        "SELECT hash, 'it is in parts, and has bytes of its own' FROM blobs JOIN blob_bytes USING (blob_id)"
        " WHERE codec = 2 LIMIT 20"
    ),
    (
        "SELECT DISTINCT hash, 'it is in one piece, and has parts' FROM blob_parts p"
        " JOIN blobs b ON b.blob_id = p.blob_id WHERE codec <> 2 LIMIT 20"
    ),
)
_HOLDERS = (
    "SELECT 'turn', turn_id FROM turns WHERE blob_id = ? ORDER BY 2 LIMIT ?",
    "SELECT 'patch', seq FROM turn_patches WHERE blob_id = ? ORDER BY 2 LIMIT ?",
    (
        "SELECT 'blob', lower(hex(hash)) FROM blob_refs r JOIN blobs b ON b.blob_id = r.blob_id WHERE ref_id = ?"
        " ORDER BY 2 LIMIT ?"
    ),
    (
        "SELECT DISTINCT 'parts of', lower(hex(hash)) FROM blob_parts p JOIN blobs b ON b.blob_id = p.blob_id"
        " WHERE part_id = ? ORDER BY 2 LIMIT ?"
    ),
    (
        "SELECT 'event', event_id FROM event_blob_refs WHERE hash = (SELECT hash FROM blobs WHERE blob_id = ?)"
        " ORDER BY 2 LIMIT ?"
    ),
    "SELECT 'pin', name FROM pins WHERE blob_id = ? ORDER BY 2 LIMIT ?",
)
_OUTPUTS = "SELECT 'output', output_id FROM agent_outputs WHERE blob_id = ? ORDER BY 2 LIMIT ?"
_ROOTS = (
    "SELECT 'root', turn_id FROM turn_roots WHERE root = (SELECT hash FROM blobs WHERE blob_id = ?) ORDER BY 2 LIMIT ?"
)
