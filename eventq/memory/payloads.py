"""`payload(hash)`, the SQL function that shows what a blob holds."""

from __future__ import annotations

from eventq.errors import TooLargeError
from eventq.memory.blobs import Blobs, digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from eventq.store.engine import Engine

MOST = 64 << 20  # bytes of a blob that a statement reads: all of it is in memory at once


def payload_of(moment: Engine) -> Callable[[Any], str | bytes | None]:
    """Return the function: the text of a blob, its bytes if they are not UTF-8, or None.

    Of an erased blob it returns what is shown in its place. Raises InputError for what is no hash
    or ref, TooLargeError, and DamagedBlobError.
    """
    blobs: list[Blobs] = []  # made with the first call: a thread may have no tables of blobs

    def payload(name: Any) -> str | bytes | None:
        if name is None:
            return None
        digest = digest_of(name)
        found = moment.blobs.find([digest])
        if digest not in found or found[digest].part:
            return None
        if found[digest].size > MOST:
            fix = "read it with 'eventq blob get'"
            raise TooLargeError(found[digest].size, MOST, "blob", fix)
        if not blobs:
            blobs.append(Blobs(moment))
        data = blobs[0].shown(digest) or b""
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    return payload
