"""Blobs: their rows and parts, and what refers to them.

The domain computes and verifies all hashes. A row id never leaves the engine.
"""

from __future__ import annotations

from _functools import partial  # type: ignore[import-not-found]  # the package costs 1 ms

from eventq.errors import UnknownBlobError
from eventq.records.checks import REF
from eventq.store.turn_rows import PARTS, BlobRow, GoneError, Holder, Piece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from eventq.store.engine import Engine
    from eventq.store.turn_rows import PreparedBlob

_KNOWN = 4096  # row ids that are remembered
_FIRST = -1 << 63  # before the first row id
_piece: Callable[[Any], Piece] = partial(tuple.__new__, Piece)  # a row as it is: `_make` costs 3 x
_blob_row: Callable[[Any], BlobRow] = partial(tuple.__new__, BlobRow)

ADD = """
INSERT INTO blobs (hash, raw_len, stored_len, codec, part, touched_at_ms)
VALUES (?, ?, ?, ?, 0, ?)
ON CONFLICT (hash) DO NOTHING
"""
# A blob that is stored as it was prepared, and no mere part.
_PUT_AGAIN = """
UPDATE blobs
SET touched_at_ms = ?5
WHERE hash = ?1
    AND raw_len = ?2
    AND stored_len = ?3
    AND codec = ?4
    AND part = 0
    AND EXISTS (SELECT 1 FROM blob_bytes y WHERE y.blob_id = blobs.blob_id AND y.bytes = ?6)
"""
_ADD_BYTES_OF = """
INSERT INTO blob_bytes (blob_id, bytes)
SELECT blob_id, ?2
FROM blobs
WHERE hash = ?1
ON CONFLICT (blob_id) DO NOTHING
"""
ADD_REFS = """
INSERT OR IGNORE INTO blob_refs (blob_id, ref_id)
SELECT ?, blob_id
FROM json_each(?)
    CROSS JOIN blobs ON hash = unhex(value)
WHERE part = 0
"""
# ?2 are hashes that the text of the digest ?1 names: BLAKE3, or SHA-256 as other tools do.
_UNNOTED = """
WITH named (id) AS (
    SELECT blob_id
    FROM json_each(?2)
        CROSS JOIN blobs ON hash = unhex(value)
    WHERE part = 0
    UNION
    SELECT blob_id
    FROM json_each(?2)
        CROSS JOIN blob_names ON sha256 = unhex(value)
)
SELECT hash
FROM named
    CROSS JOIN blobs ON blob_id = id
WHERE NOT EXISTS (
    SELECT 1
    FROM blobs b
        CROSS JOIN blob_refs r ON r.blob_id = b.blob_id AND ref_id = id
    WHERE b.hash = ?1
)
"""
# ?3 are types of turns that consist of several texts.
_TEXTS = """
SELECT hash, raw_len, stored_len, codec, part, blob_id
FROM blobs b
WHERE blob_id > ?1 AND part = 0 AND codec <> 3
    AND (
        EXISTS (SELECT 1 FROM turns t WHERE t.blob_id = b.blob_id)
        OR EXISTS (SELECT 1 FROM turn_patches p WHERE p.blob_id = b.blob_id)
        OR EXISTS (SELECT 1 FROM run_attempts a WHERE a.blob_id = b.blob_id)
        OR EXISTS (SELECT 1 FROM agent_outputs o WHERE o.blob_id = b.blob_id)
        OR EXISTS (
            SELECT 1
            FROM blob_refs r
                CROSS JOIN turns t ON t.blob_id = r.blob_id
            WHERE ref_id = b.blob_id AND type_id IN (SELECT value FROM json_each(?3))
        )
        OR EXISTS (
            SELECT 1
            FROM blob_refs r
                CROSS JOIN run_attempts a ON a.blob_id = r.blob_id
            WHERE ref_id = b.blob_id
        )
    )
ORDER BY blob_id
LIMIT ?2
"""
ADD_BYTES = "INSERT INTO blob_bytes (blob_id, bytes) VALUES (?, ?)"


class Blobs:
    """Bytes by their digest: small ones in one piece, long ones as a list of parts."""

    def __init__(self, db: Engine) -> None:
        """Use the statements and transactions of an engine."""
        self._db = db
        self._run = db.run
        self._one = db.one
        self._ids: dict[bytes, int] = {}  # row ids of digests that were returned lately

    # --- putting ----------------------------------------------------------------------------------

    def put(self, blob: PreparedBlob) -> tuple[BlobRow, bool]:
        """Store a blob and its refs; return its row, and whether it was new.

        New is also what was only a part of others. Stored bytes that differ from the prepared ones
        are replaced, which heals a damaged blob; a sound one is noted as put again. Raises
        UnknownBlobError for a ref to a blob that is not stored, GoneError for a part, or a blob
        that comes without bytes, that is not.
        """
        with self._db.write():
            now = self._db.milliseconds()
            blob_id, new = self.keep(blob, now)
            if not new:  # it was asked for: a collection must not take it before it is named
                sql = "UPDATE blobs SET touched_at_ms = ? WHERE blob_id = ?"
                self._run(sql, (now, blob_id))
            return self._row(blob, blob_id), new

    def put_many(self, blobs: Sequence[PreparedBlob]) -> int:
        """Do as `put` with blobs of one piece that name nothing; return how many were new.

        It takes a few statements, unless some are damaged or were parts: a server may be far away.
        """
        with self._db.write():
            now = self._db.milliseconds()
            pieces = [blob.pieces[0] for blob in blobs]
            rows = [(d, size, len(raw), codec, now, raw) for d, size, codec, raw in pieces]
            new = self._db.many(ADD, [row[:-1] for row in rows])
            if new:
                self._db.many(_ADD_BYTES_OF, [(row[0], row[-1]) for row in rows])
            if new == len(rows) or self._db.many(_PUT_AGAIN, rows) == len(rows):
                return new
            return new + sum(self.put(blob)[1] for blob in blobs)

    def _row(self, blob: PreparedBlob, blob_id: int) -> BlobRow:
        if not blob.parts and blob.pieces:
            _, size, codec, stored = blob.pieces[0]
            return BlobRow(blob.digest, size, len(stored), codec, part=False)
        sql = "SELECT hash, raw_len, stored_len, codec, part FROM blobs WHERE blob_id = ?"
        return BlobRow(*self._run(sql, (blob_id,))[0])

    def keep(self, blob: PreparedBlob, now: int) -> tuple[int, bool]:
        """Store a blob and its refs inside `write`; return its row id, and whether it was new.

        Stored bytes that differ from the prepared ones are replaced. Those are what the domain
        hashed, so nothing needs to be verified: damage heals, and a sound piece that another
        version compressed is written once more.
        """
        if blob.parts:
            found = self._keep_list(blob, now)
        elif blob.pieces:
            found = self._keep_piece(blob.pieces[0], now)
        else:
            found = self._keep_known(blob.digest), False
        if blob.refs:
            self._add_refs(found[0], blob.refs)
        if blob.mentions:
            self.add_mentions(found[0], blob.mentions)
        return found

    def _keep_piece(self, piece: Piece, now: int) -> tuple[int, bool]:
        digest, size, codec, stored = piece
        blob_id = self._db.insert(ADD, (digest, size, len(stored), codec, now))
        if blob_id is None:
            return self.match(piece, now)
        self._db.later(ADD_BYTES, (blob_id, stored))
        return blob_id, True

    def match(self, piece: Piece, now: int) -> tuple[int, bool]:
        """Make a stored blob one piece; return its row id, and whether it was a part."""
        digest, size, codec, stored = piece
        shape = (size, len(stored), codec)
        sql = """
            SELECT blob_id, raw_len, stored_len, codec, part, bytes IS ?2
            FROM blobs
                LEFT JOIN blob_bytes USING (blob_id)
            WHERE hash = ?1
        """
        blob_id, *found, part, same = self._run(sql, (digest, stored))[0]
        if not same or tuple(found) != shape:
            self._mend(blob_id, shape, now)
            self._db.later(ADD_BYTES, (blob_id, stored))
        elif part:
            sql = "UPDATE blobs SET part = 0, touched_at_ms = ? WHERE blob_id = ?"
            self._db.later(sql, (now, blob_id))
        return blob_id, bool(part)

    def _mend(self, blob_id: int, shape: tuple[int, int, int], now: int) -> None:
        """Put the row of a blob right, which is no part from now on, and forget its bytes."""
        sql = """
            UPDATE blobs
            SET raw_len = ?, stored_len = ?, codec = ?, part = 0, touched_at_ms = ?
            WHERE blob_id = ?
        """
        self._run(sql, (*shape, now, blob_id))
        self._run("DELETE FROM blob_bytes WHERE blob_id = ?", (blob_id,))
        self._run("DELETE FROM blob_parts WHERE blob_id = ?", (blob_id,))

    def _keep_known(self, digest: bytes) -> int:
        """Return the row id of a blob that the domain has found and verified."""
        blob_id: int | None = self._one("SELECT blob_id FROM blobs WHERE hash = ?", (digest,))
        if blob_id is None:
            raise GoneError
        return blob_id

    def _keep_list(self, blob: PreparedBlob, now: int) -> tuple[int, bool]:
        """Store a blob that is a list of parts, and those of its parts that come with it."""
        if blob.pieces:
            self._keep_parts(blob.pieces, now)
        blob_id, new = self._db.insert(ADD, (blob.digest, blob.size, 0, PARTS, now)), True
        if blob_id is None:
            blob_id, new, same = self._match_list(blob, now)
            if same:
                return blob_id, new
        sql = """
            INSERT INTO blob_parts (blob_id, position, part_id)
            SELECT ?, ?, blob_id
            FROM blobs
            WHERE hash = ? AND codec < 2
        """
        parts = [(blob_id, at, part) for at, part in enumerate(blob.parts)]
        if self._db.many(sql, parts) != len(parts):
            raise GoneError
        sql = """
            UPDATE blobs
            SET stored_len = (
                SELECT coalesce(sum(stored_len), 0)
                FROM blob_parts p
                    CROSS JOIN blobs b ON b.blob_id = p.part_id
                WHERE p.blob_id = ?1
            )
            WHERE blob_id = ?1
        """
        self._run(sql, (blob_id,))
        return blob_id, new

    def _match_list(self, blob: PreparedBlob, now: int) -> tuple[int, bool, bool]:
        """Return a stored blob's row id, whether it was a part, and whether it is this list."""
        sql = """
            SELECT blob_id,
                raw_len = ?
                    AND codec = ?
                    AND part = 0
                    AND NOT EXISTS (SELECT 1 FROM blob_bytes y WHERE y.blob_id = b.blob_id),
                part
            FROM blobs b
            WHERE hash = ?
        """
        blob_id, same, part = self._run(sql, (blob.size, PARTS, blob.digest))[0]
        if same and tuple(self.parts(blob.digest)) == blob.parts:
            return blob_id, False, True
        self._mend(blob_id, (blob.size, 0, PARTS), now)
        return blob_id, bool(part), False

    def put_parts(self, pieces: Sequence[Piece]) -> None:
        """Store parts ahead of the blob that will list them; damaged ones are replaced."""
        with self._db.write():
            self._keep_parts(pieces, self._db.milliseconds())

    def _keep_parts(self, pieces: Sequence[Piece], now: int) -> None:
        sql = """
            INSERT INTO blobs (hash, raw_len, stored_len, codec, part, touched_at_ms)
            VALUES (?, ?, ?, ?, 1, ?)
            ON CONFLICT (hash) DO UPDATE SET
                raw_len = excluded.raw_len,
                stored_len = excluded.stored_len,
                codec = excluded.codec,
                touched_at_ms = excluded.touched_at_ms
        """
        self._db.many(
            sql, [(d, size, len(stored), codec, now) for d, size, codec, stored in pieces]
        )
        sql = """
            INSERT INTO blob_bytes (blob_id, bytes)
            SELECT blob_id, ?2
            FROM blobs
            WHERE hash = ?1
            ON CONFLICT (blob_id) DO UPDATE SET bytes = excluded.bytes
            WHERE blob_bytes.bytes IS NOT excluded.bytes
        """
        self._db.many(sql, [(piece.digest, piece.stored) for piece in pieces])
        sql = "DELETE FROM blob_parts WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = ?)"
        self._db.many(sql, [(piece.digest,) for piece in pieces])  # of one that was a list itself

    # --- refs -------------------------------------------------------------------------------------

    def add_refs(self, digest: bytes, refs: Sequence[bytes]) -> None:
        """Note that a blob names others. Raises UnknownBlobError."""
        with self._db.write():
            self._add_refs(self.row_id(digest), refs)

    def _add_refs(self, blob_id: int, refs: Sequence[bytes]) -> None:
        if self._db.changed(ADD_REFS, (blob_id, _list(refs))) != len(set(refs)):
            self.check_refs(refs)

    def add_mentions(self, blob_id: int, mentions: Sequence[bytes]) -> None:
        """Note inside `write` which of the blobs that a text names are stored."""
        self._db.later(ADD_REFS, (blob_id, _list(mentions)))

    def check_refs(self, refs: Sequence[bytes]) -> None:
        """Raise UnknownBlobError for a ref to what is not stored."""
        found = self.find(refs)
        for digest in refs:
            if digest not in found or found[digest].part:
                raise UnknownBlobError(REF + digest.hex())

    def row_id(self, digest: bytes) -> int:
        """Return the row id of a blob, for the engine's other tables. Raises UnknownBlobError."""
        sql = "SELECT blob_id FROM blobs WHERE hash = ? AND part = 0"
        blob_id: int | None = self._one(sql, (digest,))
        if blob_id is None:
            raise UnknownBlobError(REF + digest.hex())
        return blob_id

    def refs(self, digests: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Return the digests that each of some blobs names, sorted; [] for what is not stored."""
        sql = """
            SELECT a.hash, b.hash
            FROM json_each(?)
                CROSS JOIN blobs a ON a.hash = unhex(value)
                CROSS JOIN blob_refs r ON r.blob_id = a.blob_id
                CROSS JOIN blobs b ON b.blob_id = r.ref_id
        """
        found: dict[bytes, list[bytes]] = {digest: [] for digest in digests}
        for digest, ref in self._run(sql, (_list(list(found)),)):
            found[digest].append(ref)
        for refs in found.values():
            refs.sort()
        return found

    # --- reading ----------------------------------------------------------------------------------

    def find(self, digests: Sequence[bytes]) -> dict[bytes, BlobRow]:
        """Return the rows of those that are stored, parts included."""
        one = len(digests) == 1  # what most look for
        rows = self._run(_FIND if one else _FIND_MANY, (digests[0] if one else _list(digests),))
        self.remember({row[0]: row[5] for row in rows})
        return {row[0]: _blob_row(row[:5]) for row in rows}

    def row(self, digest: bytes) -> BlobRow | None:
        """Return the row of a blob, or None; a mere part is not a blob."""
        rows = self._run(_FIND, (digest,))
        if not rows or rows[0][4]:
            return None
        if len(self._ids) > _KNOWN:
            self._ids = {}
        self._ids[digest] = rows[0][5]
        return _blob_row(rows[0][:5])

    def parts(self, digest: bytes) -> list[bytes]:
        """Return the digests of a blob's parts, in order; [] for one in one piece."""
        sql = """
            SELECT hash
            FROM blob_parts p
                CROSS JOIN blobs b ON b.blob_id = part_id
            WHERE p.blob_id = (SELECT blob_id FROM blobs WHERE hash = ?)
            ORDER BY position
        """
        return [row[0] for row in self._run(sql, (digest,))]

    def read(self, digests: Sequence[bytes]) -> dict[bytes, Piece]:
        """Return the pieces of those that are stored, as they are kept.

        One that is a list, or has lost its bytes, is left out. The caller bounds what it asks for
        at once.
        """
        ids = self._ids
        by_id = [ids[digest] for digest in digests if digest in ids]
        found: dict[bytes, Piece] = {}
        if by_id:  # half as long as by digest; whether a row is that of another blob now is seen
            rows = self._run(_PIECES, (str(by_id),))
            found = {row[0]: _piece(row) for row in rows}
        if missing := [digest for digest in digests if digest not in found]:
            rows = self._run(_PIECES_OF, (_list(missing),))
            found.update((row[0], _piece(row)) for row in rows)
        return found

    def remember(self, ids: dict[bytes, int]) -> None:
        """Remember row ids of digests that are about to be read."""
        if len(self._ids) + len(ids) > _KNOWN:
            self._ids = {}
        if len(ids) <= _KNOWN:
            self._ids.update(ids)

    def page(self, after: bytes, limit: int) -> list[BlobRow]:
        """Return the next blobs in the order of their digests, parts left out."""
        sql = """
            SELECT hash, raw_len, stored_len, codec, part
            FROM blobs
            WHERE hash > ? AND part = 0
            ORDER BY hash
            LIMIT ?
        """
        return [BlobRow(*row) for row in self._run(sql, (after, limit))]

    def count(self) -> int:
        """Return the number of blobs, parts left out."""
        return int(self._one("SELECT count(*) FROM blobs WHERE part = 0"))

    def scan(self, cursor: object, room: int) -> tuple[list[tuple[BlobRow, bytes | None]], object]:
        """Return the next blobs, parts included, in the order they lie, each with its piece.

        At most `room` bytes of pieces, or one blob. None begins, and comes back at the end; in
        between the cursor is the engine's business.
        """
        low = _FIRST if cursor is None else cursor
        high = self._one(_RANGE, (low, room))
        if high is None:
            return [], None
        sql = """
            SELECT hash, raw_len, stored_len, codec, part, bytes
            FROM blobs b
                LEFT JOIN blob_bytes USING (blob_id)
            WHERE b.blob_id > ? AND b.blob_id <= ?
            ORDER BY b.blob_id
        """
        return [(BlobRow(*row[:5]), row[5]) for row in self._run(sql, (low, high))], high

    # --- what holds what --------------------------------------------------------------------------

    def holders(self, digest: bytes, limit: int) -> list[Holder]:
        """Return what keeps a blob, at most `limit` of a kind."""
        blob_id = self.row_id(digest)
        found: list[Holder] = []
        for sql in _HOLDERS:
            rows = self._run(sql, (blob_id, limit))
            found += [Holder(kind, str(name), turn) for kind, name, turn in rows]
        return found

    def wholes(self, digest: bytes) -> list[bytes]:
        """Return the digests of all blobs that consist of a part, among others."""
        sql = """
            SELECT DISTINCT w.hash
            FROM blobs b
                CROSS JOIN blob_parts p ON p.part_id = b.blob_id
                CROSS JOIN blobs w ON w.blob_id = p.blob_id
            WHERE b.hash = ?
        """
        return [row[0] for row in self._run(sql, (digest,))]

    def pin(self, owner: str, digest: bytes, *, keep: bool) -> bool:
        """Pin or unpin a blob; return whether that changed anything. Raises UnknownBlobError."""
        with self._db.write():
            blob_id = self.row_id(digest)
            if keep:
                sql = "INSERT OR IGNORE INTO pins (name, blob_id, created_at_ms) VALUES (?, ?, ?)"
                return bool(self._db.changed(sql, (owner, blob_id, self._db.milliseconds())))
            sql = "DELETE FROM pins WHERE name = ? AND blob_id = ?"
            return bool(self._db.changed(sql, (owner, blob_id)))

    def pins(self) -> list[tuple[str, bytes]]:
        """Return owner and digest of every pin, sorted."""
        sql = """
            SELECT name, hash
            FROM pins
                CROSS JOIN blobs USING (blob_id)
            ORDER BY 1, 2
        """
        return [(name, digest) for name, digest in self._run(sql)]

    def texts(
        self, cursor: object, limit: int, types: Sequence[str]
    ) -> tuple[list[BlobRow], object]:
        """Return the next blobs whose text may name others, and where to go on, as `scan` does.

        They are payloads, patches, attempts and outputs, and what turns of some types and attempts
        refer to.
        """
        after = _FIRST if cursor is None else cursor
        from json import dumps  # a collection alone needs it

        rows = self._run(_TEXTS, (after, limit, dumps(types)))
        return [BlobRow(*row[:5]) for row in rows], rows[-1][5] if len(rows) == limit else None

    def unnoted(self, digest: bytes, mentions: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the stored blobs that a text mentions and that are no refs of it.

        It mentions each by its digest, or by its SHA-256.
        """
        return [row[0] for row in self._run(_UNNOTED, (digest, _list(mentions)))]

    def sweep(
        self, grace: int, spared: Sequence[bytes], *, apply: bool
    ) -> tuple[int, list[BlobRow]]:
        """Return how many turns are unreachable, and the unreachable blobs by digest.

        Blobs that are `spared`, and what is younger than `grace` milliseconds, count as reachable.
        With `apply` the others are deleted.
        """
        from eventq.store import collect

        return collect.sweep(self._db, grace, _list(spared), apply=apply)

    def reachable(self, turns: Sequence[int], digests: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the blobs that some turns and blobs keep, themselves included.

        Sorted, without parts; what is not stored is left out. `sweep` follows the same links.
        """
        from eventq.store import collect

        return collect.reachable(self._db, turns, digests)

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each fault of the rows that reading the blobs does not show."""
        for sql in _FAULTS:
            for digest, what in self._run(sql):
                yield f"{REF}{digest.hex()} is damaged: {what}"


def _list(digests: Sequence[bytes]) -> str:
    """Return digests as a JSON list of their digits."""
    return '["' + '","'.join([digest.hex() for digest in digests]) + '"]'


_FIND = "SELECT hash, raw_len, stored_len, codec, part, blob_id FROM blobs WHERE hash = ?"
_FIND_MANY = """
SELECT hash, raw_len, stored_len, codec, part, blob_id
FROM json_each(?)
    CROSS JOIN blobs ON hash = unhex(value)
"""
# By row ids, and by digests.
_PIECES = """
SELECT hash, raw_len, codec, bytes
FROM json_each(?)
    CROSS JOIN blobs b ON b.blob_id = CAST(value AS INTEGER)
    CROSS JOIN blob_bytes y ON y.blob_id = b.blob_id
"""
_PIECES_OF = """
SELECT hash, raw_len, codec, bytes
FROM json_each(?)
    CROSS JOIN blobs b ON hash = unhex(value)
    CROSS JOIN blob_bytes y ON y.blob_id = b.blob_id
"""
# Where a few MiB of what is kept end, at most 500 blobs on.
_RANGE = """
SELECT max(blob_id)
FROM (
    SELECT blob_id,
        sum(CASE WHEN codec < 2 THEN stored_len ELSE 0 END) OVER (ORDER BY blob_id) AS kept
    FROM (
        SELECT blob_id, stored_len, codec
        FROM blobs
        WHERE blob_id > ?1
        ORDER BY blob_id
        LIMIT 500
    )
)
WHERE kept <= ?2 OR blob_id = (SELECT min(blob_id) FROM blobs WHERE blob_id > ?1)
"""
_FAULTS = (
    """
    SELECT hash, 'it is in parts, and has bytes of its own'
    FROM blobs
        CROSS JOIN blob_bytes USING (blob_id)
    WHERE codec = 2
    LIMIT 20
    """,
    """
    SELECT DISTINCT hash, 'it is in one piece, and has parts'
    FROM blobs b
        CROSS JOIN blob_parts p ON p.blob_id = b.blob_id
    WHERE codec <> 2
    LIMIT 20
    """,
)
# Kind, name, and the turn that it has to do with.
_HOLDERS = (
    """
    SELECT 'turn', turn_id, turn_id
    FROM turns
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'patch', seq, turn_id
    FROM turn_patches
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'attempt after turn', parent_id, parent_id
    FROM run_attempts
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'blob', lower(hex(hash)), 0
    FROM blob_refs r
        CROSS JOIN blobs b ON b.blob_id = r.blob_id
    WHERE ref_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT DISTINCT 'parts of', lower(hex(hash)), 0
    FROM blob_parts p
        CROSS JOIN blobs b ON b.blob_id = p.blob_id
    WHERE part_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'event', event_id, 0
    FROM event_blob_refs
    WHERE hash = (SELECT hash FROM blobs WHERE blob_id = ?)
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'pin', name, 0
    FROM pins
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'output', output_id, 0
    FROM agent_outputs
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'file', path, 0
    FROM files
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'root', turn_id, turn_id
    FROM turn_roots
    WHERE root = (SELECT hash FROM blobs WHERE blob_id = ?)
    ORDER BY 2
    LIMIT ?
    """,
    """
    SELECT 'line', name || ':' || (position + 1), coalesce(turn_id, 0)
    FROM session_lines
        CROSS JOIN sessions USING (session_id)
    WHERE blob_id = ?
    ORDER BY 2
    LIMIT ?
    """,
)
