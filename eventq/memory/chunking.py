"""Content-defined chunking: the content of a payload decides where it is cut.

Similar payloads share chunks, which are stored once: an output that grows, or a file with an edit
in the middle, has most of its chunks in common with the version before. The algorithm is FastCDC
2020, of the library `pyfastcdc`. No stored format depends on it: a payload is read back as its
chunks in order, wherever they were cut. Another algorithm or other sizes only share less with what
is stored already.
"""

from __future__ import annotations

from pyfastcdc import FastCDC

from eventq.system import zstd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_BYTES = 4 << 10  # only the last chunk of a payload is smaller
AVERAGE_BYTES = 16 << 10  # a cut becomes more likely here; chunks of real text average 20 KiB
MAX_BYTES = 64 << 10  # no chunk is larger, whatever the content

_SAMPLE_BYTES = 8 << 10  # of one sample that `pays` compresses
_SAMPLES = 4
_WORTH = 16  # chunking pays if compression saves at least one byte in so many


class Chunker:
    """Cuts a stream of bytes at places that its content decides.

    The chunks are those of `cut`, however the stream was fed. They are views of memory that is not
    written again, so the caller may reuse the buffer that was fed. It holds less than MAX_BYTES
    besides what was fed last.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Take the next bytes of the stream; return the chunks that are complete now."""
        if len(self._rest) + len(data) < MAX_BYTES:  # a cut may depend on so many bytes
            self._rest += data
            return iter(())
        whole = memoryview(b"".join((self._rest, data)))
        done = 0
        chunks = []
        for chunk in cut(whole):
            if len(whole) - done < MAX_BYTES:
                break
            chunks.append(chunk)
            done += len(chunk)
        self._rest = bytearray(whole[done:])
        return iter(chunks)

    def end(self) -> Iterator[memoryview]:
        """Return the chunks of the rest; the chunker can then take another stream."""
        rest, self._rest = bytes(self._rest), bytearray()
        return cut(rest)


def cut(data: bytes | memoryview) -> Iterator[memoryview]:
    """Yield the chunks of a whole payload, as views of it."""
    cutter = FastCDC(AVERAGE_BYTES, min_size=MIN_BYTES, max_size=MAX_BYTES)
    return (chunk.data for chunk in cutter.cut_buf(data))


def pays(head: bytes | memoryview) -> bool:
    """Return whether a payload is worth chunking: whether its beginning, `head`, compresses.

    Random, encrypted or compressed bytes (an image, an archive) do not. Several samples are taken,
    or the header of an image would decide for all of it.
    """
    compress = zstd.ZstdCompressor(level=1).compress
    step = max(0, (len(head) - _SAMPLE_BYTES) // (_SAMPLES - 1))
    samples = [head[step * n : step * n + _SAMPLE_BYTES] for n in range(_SAMPLES)]
    raw = sum(map(len, samples))
    return sum(len(compress(sample)) for sample in samples) < raw - raw // _WORTH
