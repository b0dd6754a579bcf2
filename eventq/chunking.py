"""Content-defined chunking: a payload is cut at places that its content decides, so that what is alike is stored once.

An output that grows, or a file with an edit in the middle, has most of its chunks in common with the version before.
The algorithm is FastCDC 2020, of the library `pyfastcdc`. No stored format depends on it: a payload is read back as
its chunks in their order, wherever they were cut. Another algorithm or other sizes only have less in common with what
is stored already.
"""

from __future__ import annotations

from pyfastcdc import FastCDC

from eventq import zstd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_BYTES = 4 << 10  # only the last chunk of a payload is smaller
AVERAGE_BYTES = (
    16 << 10
)  # where a cut becomes more likely; real text has chunks of 20 KiB on average
MAX_BYTES = 64 << 10  # no chunk is larger, whatever the content

_LOOK_BYTES = 8 << 10  # what `pays` compresses at one place
_LOOKS = 4  # at how many places it looks
_WORTH = 16  # it pays when at least one byte of so many is saved


class Chunker:
    """Cuts a stream of bytes at places that its content decides.

    The chunks are those of `cut`, however the stream was fed. They are views of memory that nobody writes to again, so
    the caller may reuse the buffer that was fed. Holds less than MAX_BYTES besides what was fed last.
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Take the next bytes of the stream; give the chunks that are complete by now."""
        if len(self._held) + len(data) < MAX_BYTES:  # a cut may depend on so many bytes
            self._held += data
            return iter(())
        whole = memoryview(b"".join((self._held, data)))
        done = 0
        chunks = []
        for chunk in cut(whole):
            if len(whole) - done < MAX_BYTES:
                break
            chunks.append(chunk)
            done += len(chunk)
        self._held = bytearray(whole[done:])
        return iter(chunks)

    def end(self) -> Iterator[memoryview]:
        """Give the chunks of what is left; the chunker can then take another stream."""
        rest, self._held = bytes(self._held), bytearray()
        return cut(rest)


def cut(data: bytes | memoryview) -> Iterator[memoryview]:
    """Give the chunks of a whole payload, as views of it."""
    cutter = FastCDC(AVERAGE_BYTES, min_size=MIN_BYTES, max_size=MAX_BYTES)
    return (chunk.data for chunk in cutter.cut_buf(data))


def pays(sample: bytes | memoryview) -> bool:
    """Say whether a payload that begins with `sample` is worth chunking: whether it compresses.

    What is random, encrypted or compressed already (an image, an archive) does not. Looks at a few places, so the
    header of an image does not speak for all of it.
    """
    compress = zstd.ZstdCompressor(level=1).compress
    step = max(0, (len(sample) - _LOOK_BYTES) // (_LOOKS - 1))
    looks = [sample[step * place : step * place + _LOOK_BYTES] for place in range(_LOOKS)]
    raw = sum(map(len, looks))
    return sum(len(compress(look)) for look in looks) < raw - raw // _WORTH
