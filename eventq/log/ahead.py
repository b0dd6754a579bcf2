"""What was read ahead of a transaction: in memory up to a size, beyond it in a file.

An iterator may wait for its next value, a program that writes into a pipe for hours. Nobody else
could store anything meanwhile if it was read inside the transaction.
"""

from __future__ import annotations

import marshal

from eventq.errors import DiskError
from eventq.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Any, BinaryIO

MOST_BYTES = 16 << 20  # in memory
_HEAD = 8  # bytes of the size of each value in the file


class ReadAhead:
    """Values of plain types, all read at once, to be iterated over once.

    They are kept as `marshal` writes them: that is three times as fast as to measure them as they
    are, and takes less memory. The file has no name, so that a crash leaves nothing.
    """

    def __init__(self, folder: str) -> None:
        """Begin with nothing; `folder` is for the file, if one is needed."""
        self._folder = folder
        self._held: list[bytes] = []
        self._file: BinaryIO | None = None

    def __enter__(self) -> ReadAhead:
        """Return itself."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()

    def fill(self, values: Iterable[Any]) -> None:
        """Read all values. Raises DiskError when there is no room for them."""
        size = 0
        for value in values:
            data = marshal.dumps(value)
            if size and size + len(data) > MOST_BYTES:
                self._spill()
                size = 0
            self._held.append(data)
            size += len(data)
        if self._file is not None:
            self._spill()
            self._file.seek(0)

    def _spill(self) -> None:
        """Move what is in memory to the file."""
        try:
            if self._file is None:
                self._file = disk.unnamed_file(self._folder)
            for data in self._held:
                self._file.write(len(data).to_bytes(_HEAD, "big"))
                self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise DiskError(
                f"there is no room to read the input to its end: {error.strerror}",
                f"nothing was stored; free some space on the disk of '{self._folder}', or give"
                " less at once",
            ) from error
        self._held.clear()

    def __iter__(self) -> Iterator[Any]:
        """Yield the values in order."""
        if self._file is None:
            yield from map(marshal.loads, self._held)
            return
        while head := self._file.read(_HEAD):
            yield marshal.loads(self._file.read(int.from_bytes(head, "big")))  # noqa: S302 (our own)
