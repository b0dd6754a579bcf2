"""Everything that a URL can name in a thread: blobs, artifacts, outputs, other tools' blob refs.

Artifacts and outputs are numbered in a scope, which is the thread's or a session's.
"""

from __future__ import annotations

from itertools import islice

from eventq.errors import DamagedError, ErasedError, LogicError, UnknownContextError
from eventq.memory.blobs import digest_of, parse_ref
from eventq.output.artifacts import Artifacts
from eventq.output.outputs import Outputs
from eventq.records.checks import SHA256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.memory.blobs import Blobs
    from eventq.records.turn import Blob
    from eventq.store.engine import Engine

_PAGE = 1_000
_NAMED = 5  # sessions that an error names


class OutputStore:
    """Blobs of one thread, and artifacts and outputs of one scope: the thread's, or a session's."""

    def __init__(
        self, db: Engine, blobs: Blobs, scope: int = 0, session: str | None = None
    ) -> None:
        """Use a scope of a database, and its name. Raises StoreError if that is too old."""
        self.database = db
        self.blobs = blobs
        self.scope = scope
        self.session = session
        self.artifacts = Artifacts(db, scope, session)
        self.outputs = Outputs(db, blobs, scope, session)
        self._outputs = db.outputs.of(scope)

    # --- scopes -----------------------------------------------------------------------------------

    def of(self, scope: int) -> OutputStore:
        """Return what was produced in another scope."""
        if not scope:
            return OutputStore(self.database, self.blobs)
        found = self.database.scopes.get(scope)
        name = found.name if found is not None else self._name_of_context(scope)
        return OutputStore(self.database, self.blobs, scope, name or str(scope))

    def _name_of_context(self, context: int) -> str | None:
        info = self.database.contexts.get(context)
        return None if info is None else info.name

    def of_context(self, context: int) -> OutputStore:
        """Return what was produced in the scope of a context. Raises UnknownContextError."""
        scope = self.database.scopes.of_context(context)
        if scope is None:
            raise UnknownContextError(context)
        return self.of(scope)

    def of_session(self, name: str) -> OutputStore:
        """Return what was produced in a scope, by its name or that of a context, or by a number.

        Scopes come first: what names one has named it ever since. Raises UnknownContextError.
        """
        scope = scope_of(self.database, name)
        if scope is None:
            raise UnknownContextError(name)
        return self.of(scope)

    def all_scopes(self) -> Iterator[OutputStore]:
        """Yield what was produced in the thread's scope, and in each session's."""
        yield self.of(0)
        after = 0
        while page := self.database.scopes.page(after, _PAGE):
            yield from (self.of(row.scope) for row in page)
            after = page[-1].scope

    def check_any(self) -> None:
        """Raise LogicError if there is neither an artifact nor an output."""
        if self._outputs.has_any():
            return
        if self.session is None:
            names = self.database.scopes.used(_NAMED)
            hint = "nothing was stored yet: see 'eventq artifact put'"
            if names:
                listed = ", ".join(f"'{name}'" for name in names)
                hint = f"sessions have some: give --context or ?session= with one ({listed})"
            raise LogicError("No artifacts directory found", hint)
        from shlex import quote

        raise LogicError(
            f"No artifacts directory found for session '{self.session}'",
            f"nothing was stored in it yet: see 'eventq artifact put --context"
            f" {quote(self.session)}', or leave --context out for what is the thread's own",
        )

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
        for produced in self.all_scopes():
            yield from produced.artifacts.faults()
            yield from islice(produced.outputs.faults(), 20)
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
        return self.blobs.put(data, mentions=True)

    def get(self, ref: str) -> bytes | None:
        """Return the bytes that a ref names, or None, also for what was erased.

        Accepts other tools' refs.
        """
        name = self.blob_hash(ref)
        try:
            return None if name is None else self.blobs.get(name)
        except ErasedError:
            return None

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


def scope_of(database: Engine, session: str) -> int | None:
    """Return the scope that the `session` of a URL names; see `OutputStore.of_session`."""
    scopes = database.scopes
    scope, context = scopes.named(session), database.contexts.named(session)
    if scope is None and context is None and session.isascii() and session.isdigit():
        context = int(session) if len(session) < 19 else None
        scope = context if context and scopes.get(context) else None
    if scope is None and context is not None:
        scope = scopes.of_context(context)
    return scope
