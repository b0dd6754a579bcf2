"""What agents put out: documents by name, `0-Scout` or `0-Scout.1-Helper`, which keep their first version.

A name is given once: the number counts the outputs under one parent. What is published under the same name later is a
version of its own; the name goes on giving the first, so that nothing that was read changes.
"""

from __future__ import annotations

import os
import re

from eventq import system
from eventq.blobs import digest_of
from eventq.errors import InputError, UnknownOutputError, UsageError
from eventq.event import check_positive, check_whole
from eventq.output.artifacts import LARGEST_ID, LISTED, is_plain, listed, save_or_compare
from eventq.records import OutputInfo
from eventq.storage.sqlite.outputs import OutputTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from eventq.blobs import Blobs, Prepared

    Names = list[str]

_NAME = 64  # characters of the name that is asked for
_LONGEST = 240  # characters of a whole id: it names a file
_PART = r"(?:0|[1-9][0-9]{0,18})-[A-Za-z0-9_-]+"
_ID = re.compile(rf"{_PART}(?:\.{_PART})*")
_FILE = re.compile(rf"({_PART}(?:\.{_PART})*)(?:\.v([1-9][0-9]{{0,8}}))?\.md")


def output_name(text: str) -> str:
    """Give a name as it can stand in an id: letters, digits, `_` and `-`, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:_NAME].rstrip("_") or "agent"


class Outputs:
    """The outputs of agents in one thread."""

    def __init__(self, blobs: Blobs, table: OutputTable) -> None:
        """Keep them as blobs; nothing is read yet."""
        self._blobs = blobs
        self.table = table

    # --- in -------------------------------------------------------------------------------------------------------

    def allocate(self, name: str, parent: str | None = None) -> str:
        """Give the id for the output of an agent: the next number of its parent, and its name. No other is the same."""
        if not isinstance(name, str):
            raise UsageError(f"the name must be text, not {type(name).__name__}", "give a string such as 'Scout'")
        if parent is not None:
            self._check_known(parent)
        with self.table.database.write():
            number = self.table.next(_counter(parent or ""))
            output_id = (f"{parent}." if parent else "") + f"{number}-{output_name(name)}"
            check_id(output_id)
        return output_id

    def put(self, name: str, content: str | bytes | BinaryIO, parent: str | None = None) -> OutputInfo:
        """Allocate an id and publish its content, as one change."""
        ready = self._prepare(content)
        with self.table.database.write():
            return self._publish(self.allocate(name, parent), ready)

    def publish(self, output_id: str, content: str | bytes | BinaryIO) -> OutputInfo:
        """Store the content of an output: the first is what its id gives, each later one a version beside it."""
        self._check_known(output_id)
        ready = self._prepare(content)
        with self.table.database.write():
            self._pass_by(output_id)
            return self._publish(output_id, ready)

    def _prepare(self, content: object) -> Prepared:
        self.table.database.check_writable()
        if isinstance(content, str):
            check_whole(content, "the content")
            content = content.encode()
        return self._blobs.prepare(content, what="content")

    def _publish(self, output_id: str, ready: Prepared) -> OutputInfo:
        row, _ = self._blobs.store(ready)
        now = system.milliseconds()
        version = self.table.add_output(output_id, row.digest, now)
        return OutputInfo(output_id, version, row.digest.hex(), row.size, now)

    def _pass_by(self, output_id: str) -> None:
        """Have the counters of an id and its parents go on after it."""
        for counter, number in _numbers(output_id):
            self.table.pass_by(counter, number)

    def _is_known(self, output_id: object) -> bool:
        """Say whether something may be stored under an id: of the numbers beyond LARGEST_ID, those that were given."""
        if not _is_id(output_id):
            return False
        large = [one for one in _numbers(str(output_id)) if one[1] > LARGEST_ID]
        counters = self.table.counters() if large else {}
        return all(number < counters.get(counter, 0) for counter, number in large)

    def _check_known(self, output_id: object) -> None:
        if not self._is_known(output_id):
            raise _no_id(output_id)

    # --- out ------------------------------------------------------------------------------------------------------

    def get(self, output_id: str, version: int = 1) -> OutputInfo:
        """Say what an output is. Raises UnknownOutputError."""
        check_positive(version, "version")
        row = self.table.output(output_id, version)
        if row is None:
            raise UnknownOutputError(
                output_id if version == 1 else f"{output_id}, version {version}",
                listed(self.table.output_ids(LISTED), self.table.count_outputs()),
            )
        return _info(row)

    def stream(self, info: OutputInfo) -> Iterator[bytes]:
        """Give the bytes of an output in pieces of at most a MiB; all of them are checked first."""
        return self._blobs.stream(info.hash)

    def read(self, output_id: str, version: int = 1) -> bytes:
        """Give the bytes of an output. Raises UnknownOutputError, DamagedBlobError."""
        return b"".join(self.stream(self.get(output_id, version)))

    def list(self) -> list[OutputInfo]:
        """Say what each version of each output is, sorted by name."""
        return list(self)

    def __iter__(self) -> Iterator[OutputInfo]:
        """Say what each version of each output is, one by one."""
        return map(_info, self.table.outputs())

    def __len__(self) -> int:
        """Give the number of outputs, versions not counted."""
        return self.table.count_outputs()

    # --- folders --------------------------------------------------------------------------------------------------

    def export_folder(self, folder: str) -> Names:
        """Write all outputs to a folder as `{id}.md` files, later versions as `{id}.v2.md`, and give their names.

        A file that is there already and the same is left alone; raises ConflictError for one that is not, OSError.
        """
        names = []
        for info in self:
            name = info.output_id + (f".v{info.version}" if info.version > 1 else "") + ".md"
            save_or_compare(os.path.join(folder, name), self.stream(info), info.hash)
            names.append(name)
        return names

    def import_folder(self, folder: str) -> dict[str, OutputInfo]:
        """Keep the `{id}.md` files of a folder as outputs; give them by the names of the files.

        A version that is here already is found again, so importing twice adds nothing.
        """
        names = [name for name in os.listdir(folder) if is_plain(os.path.join(folder, name))]
        matches = [match for name in names if (match := _FILE.fullmatch(name)) and self._is_known(match[1])]
        matches.sort(key=lambda match: (match[1], int(match[2] or 1)))
        made = {}
        taken: set[tuple[str, int]] = set()
        for match in matches:
            with system.open_regular(os.path.join(folder, match[0]), follow=False) as file:
                made[match[0]], _ = self.take(match[1], int(match[2] or 1), self._blobs.put(file).hash, taken=taken)
        return made

    def take(
        self,
        output_id: str,
        version: int,
        name: str,
        created: int | None = None,
        taken: set[tuple[str, int]] | None = None,
    ) -> tuple[OutputInfo, bool]:
        """Have a blob be a version of an output, unless it is; where another is, it becomes the next version.

        Gives what it is, and whether it is new. What is here already and not in `taken` is found again, and then is.
        """
        self._check_known(output_id)
        digest = digest_of(name)
        taken = set() if taken is None else taken
        with self.table.database.write():
            rows = self.table.versions(output_id)
            same = [row[1] for row in rows if row[2] == digest and (output_id, row[1]) not in taken]
            found = version if version in same else next(iter(same), None)
            if found is None:
                self._pass_by(output_id)
                now = system.milliseconds() if created is None else created
                number = self.table.add_output(output_id, digest, now)
            else:
                number = found
            taken.add((output_id, number))
            return self.get(output_id, number), found is None

    # --- looking for damage ---------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Say of each id that its counter could give again, in a sentence."""
        counters = self.table.counters()
        for output_id in self.table.output_ids(-1):
            for counter, number in _numbers(output_id) if _ID.fullmatch(output_id) else ():
                if counters.get(counter, 0) <= number:
                    yield f"output {output_id} has a number that is not below the next, {counters.get(counter, 0)}"


def check_id(output_id: object) -> None:
    """Raise InputError for what is no id of an output."""
    if not _is_id(output_id):
        raise _no_id(output_id)


def _is_id(output_id: object) -> bool:
    good = isinstance(output_id, str) and len(output_id) <= _LONGEST and _ID.fullmatch(output_id)
    return bool(good) and all(number <= 2 * LARGEST_ID for _, number in _numbers(str(output_id)))


def _no_id(output_id: object) -> InputError:
    return InputError(
        f"{output_id!r} is no id of an output", "give one such as 0-Scout or 0-Scout.1-Helper, as it was printed"
    )


def _numbers(output_id: str) -> Iterator[tuple[str, int]]:
    """Give the counter and the number of an id, and of each of its parents."""
    parent = ""
    for part in output_id.split("."):
        yield _counter(parent), int(part.partition("-")[0])
        parent = f"{parent}.{part}" if parent else part


def _counter(parent: str) -> str:
    return f"output:{parent}"


def _info(row: tuple[Any, ...]) -> OutputInfo:
    output_id, version, digest, size, created = row
    return OutputInfo(output_id, version, digest.hex(), size, created)
