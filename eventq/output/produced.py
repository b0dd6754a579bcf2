"""What was produced in one thread, together: blobs, artifacts, outputs, and the names other tools have for blobs."""

from __future__ import annotations

from itertools import islice

from eventq.blobs import digest_of, parse_ref
from eventq.errors import DamagedError, LogicError
from eventq.event import REF, refs_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.blobs import Blobs
    from eventq.output.agents import Outputs
    from eventq.output.artifacts import Artifacts
    from eventq.records import Blob

SHA256 = "blob:sha256:"  # the refs of other tools


class Produced:
    """Blobs, artifacts and outputs of one thread."""

    def __init__(self, blobs: Blobs, artifacts: Artifacts, outputs: Outputs) -> None:
        """Hold the three."""
        self.blobs = blobs
        self.artifacts = artifacts
        self.outputs = outputs

    def check_any(self) -> None:
        """Raise LogicError when nothing was ever produced here."""
        if self.artifacts.table.is_empty():
            raise LogicError("No artifacts directory found", "nothing was stored yet: see 'eventq artifact put'")

    def blob_hash(self, ref: str) -> str | None:
        """Give the hash of the blob that a ref names, also one of another tool's; None when it is not here."""
        if ref.startswith(SHA256):
            sha256 = parse_ref(ref.removeprefix(SHA256)) if len(ref) == len(SHA256) + 64 else None
            digest = None if sha256 is None else self.artifacts.table.named(sha256)
            return None if digest is None else digest.hex()
        digest = parse_ref(ref)
        return digest.hex() if digest is not None and self.blobs.has(digest) else None

    def faults(self) -> Iterator[str]:
        """Say what is wrong with what was produced, in a sentence each; all bytes of artifacts are read."""
        yield from self.artifacts.table.faults()
        yield from self.artifacts.faults()
        yield from islice(self.outputs.faults(), 20)
        yield from islice(self._wrong_names(), 20)

    def _wrong_names(self) -> Iterator[str]:
        for sha256, digest in self.artifacts.table.names():
            try:
                sound = not self.blobs.has(digest) or self.is_named(digest, sha256)
            except DamagedError:  # which is said of the blob
                continue
            if not sound:
                yield f"blob:sha256:{sha256.hex()} leads to blob:blake3:{digest.hex()}, which has another SHA-256"

    def put(self, data: bytes) -> Blob:
        """Store bytes as a blob that keeps the blobs whose refs are in it as text."""
        named = refs_in(data.decode(errors="replace")) if REF.encode() in data else ()
        return self.blobs.put(data, refs=[digest for digest in sorted(named) if self.blobs.has(digest)])

    def get(self, ref: str) -> bytes | None:
        """Give the bytes that a ref names, also one of another tool's; None when they are not here."""
        name = self.blob_hash(ref)
        return None if name is None else self.blobs.get(name)

    def name_blob(self, name: str | bytes, sha256: bytes) -> bool:
        """Note the SHA-256 that other tools name a blob by; give False, and note nothing, when it is not that."""
        if not self.is_named(name, sha256):
            return False
        self.artifacts.table.name_blob(sha256, digest_of(name))
        return True

    def is_named(self, name: str | bytes, sha256: bytes) -> bool:
        """Say whether the bytes of a blob have a SHA-256."""
        from hashlib import sha256 as hasher

        found = hasher()
        for piece in self.blobs.stream(name):
            found.update(piece)
        return found.digest() == sha256
