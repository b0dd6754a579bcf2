"""Everything that a URL can name in a thread: blobs, artifacts, outputs, other tools' blob refs."""

from __future__ import annotations

from itertools import islice

from eventq.blobs import digest_of, parse_ref
from eventq.errors import DamagedError, LogicError
from eventq.event import REF, refs_in
from eventq.output.agents import Outputs
from eventq.output.artifacts import Artifacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.blobs import Blobs
    from eventq.records import Blob
    from eventq.storage.base import Database

SHA256 = "blob:sha256:"  # the refs of other tools
_PAGE = 1_000


class OutputStore:
    """Blobs, artifacts and outputs of one thread."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        """Use a database and its blobs. Raises StoreError if the database is too old."""
        self.database = db
        self.blobs = blobs
        self.artifacts = Artifacts(db)
        self.outputs = Outputs(db, blobs)
        self._outputs = db.outputs

    def check_any(self) -> None:
        """Raise LogicError if there is neither an artifact nor an output."""
        if not self._outputs.has_any():
            hint = "nothing was stored yet: see 'eventq artifact put'"
            raise LogicError("No artifacts directory found", hint)

    def blob_hash(self, ref: str) -> str | None:
        """Return the hash of the blob that a ref names, or None. Accepts other tools' refs."""
        if ref.startswith(SHA256):
            sha256 = parse_ref(ref.removeprefix(SHA256)) if len(ref) == len(SHA256) + 64 else None
            digest = None if sha256 is None else self._outputs.find_alias(sha256)
            return None if digest is None else digest.hex()
        digest = parse_ref(ref)
        return digest.hex() if digest is not None and self.blobs.has(digest) else None

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each fault; this reads all bytes of artifacts."""
        yield from self.database.faults("outputs")
        yield from self.artifacts.faults()
        yield from islice(self.outputs.faults(), 20)
        yield from islice(self._wrong_aliases(), 20)

    def _wrong_aliases(self) -> Iterator[str]:
        for sha256, digest in self.aliases():
            try:
                sound = not self.blobs.has(digest) or self.is_named(digest, sha256)
            except DamagedError:  # reported by the check of blobs
                continue
            if not sound:
                yield (
                    f"blob:sha256:{sha256.hex()} names blob:blake3:{digest.hex()}, which has"
                    f" another SHA-256"
                )

    def aliases(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the SHA-256 and the digest of each blob that has an alias, sorted."""
        after = b""
        while page := self._outputs.aliases(after, _PAGE):
            yield from page
            after = page[-1][0]

    def put(self, data: bytes) -> Blob:
        """Store bytes as a blob that refers to the blobs whose refs it contains as text."""
        named = refs_in(data.decode(errors="replace")) if REF.encode() in data else ()
        refs = [digest for digest in sorted(named) if self.blobs.has(digest)]
        return self.blobs.put(data, refs=refs)

    def get(self, ref: str) -> bytes | None:
        """Return the bytes that a ref names, or None. Accepts other tools' refs."""
        name = self.blob_hash(ref)
        return None if name is None else self.blobs.get(name)

    def name_blob(self, name: str | bytes, sha256: bytes) -> bool:
        """Store a blob's SHA-256, by which other tools name it; return False if it is wrong."""
        if not self.is_named(name, sha256):
            return False
        self._outputs.add_alias(sha256, digest_of(name))
        return True

    def is_named(self, name: str | bytes, sha256: bytes) -> bool:
        """Return whether the bytes of a blob have this SHA-256."""
        from hashlib import sha256 as hasher

        found = hasher()
        for piece in self.blobs.stream(name):
            found.update(piece)
        return found.digest() == sha256
