"""Reading growing byte sequences: the code that open turns and artifacts share."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.store.streams import Artifacts, OpenTurns
    from eventq.store.turn_rows import StreamPiece

READ_AHEAD = 1 << 20  # stored bytes that one read of the storage returns at most
_SECOND_READ = 1 << 14


def pieces_from(
    streams: OpenTurns | Artifacts, number: int, position: int = 0
) -> Iterator[StreamPiece]:
    """Yield the pieces of a stream from a position on, as they are stored, up to the first gap.

    The first read returns one piece, each later one twice as much as the one before: a caller that
    wants some lines does not read a MiB.
    """
    size = 0
    while pieces := streams.read(number, position, size):
        yield from pieces
        position += len(pieces)
        size = min(max(2 * size, _SECOND_READ), READ_AHEAD)


def first_bytes(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of pieces: a stream may grow while it is read."""
    for piece in pieces:
        if len(piece) >= size:
            yield piece[:size]
            return
        size -= len(piece)
        yield piece


def after_lines(pieces: Iterator[bytes], lines: int) -> Iterator[bytes]:
    """Yield what follows the first `lines` newlines."""
    for piece in pieces:
        parts = piece.split(b"\n", lines)
        lines -= len(parts) - 1
        if not lines:
            yield parts[-1]
            yield from pieces
            return
