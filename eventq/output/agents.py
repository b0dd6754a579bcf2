"""What agents put out: documents by name, `0-Scout` or `0-Scout.1-Helper`, which keep their first version.

A name is given once: the number counts the outputs under one parent. What is published under the same name later is a
version of its own; the name goes on giving the first, so that nothing that was read changes.
"""

from __future__ import annotations

import os
import re

from eventq import system
from eventq.backends.outputs import OutputTable
from eventq.blobs import digest_of
from eventq.errors import InputError, UnknownOutputError, UsageError
from eventq.event import check_positive, check_whole
from eventq.output.artifacts import LISTED, listed
from eventq.records import OutputInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from eventq.blobs import Blobs, Prepared

    Names = list[str]

_NAME = 64  # characters of the name that is asked for
_LONGEST = 1024  # characters of a whole id
_PART = r"(?:0|[1-9][0-9]{0,17})-[A-Za-z0-9_-]+"
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
            check_id(parent)
        with self.table.store.write():
            number = self.table.next(_counter(parent or ""))
        return (f"{parent}." if parent else "") + f"{number}-{output_name(name)}"

    def put(self, name: str, content: str | bytes | BinaryIO, parent: str | None = None) -> OutputInfo:
        """Allocate an id and publish its content, as one change."""
        ready = self._prepare(content)
        with self.table.store.write():
            return self._publish(self.allocate(name, parent), ready)

    def publish(self, output_id: str, content: str | bytes | BinaryIO) -> OutputInfo:
        """Store the content of an output: the first is what its id gives, each later one a version beside it."""
        check_id(output_id)
        ready = self._prepare(content)
        with self.table.store.write():
            self._pass_by(output_id)
            return self._publish(output_id, ready)

    def _prepare(self, content: object) -> Prepared:
        self.table.store.check_writable()
        if isinstance(content, str):
            check_whole(content, "the content")
            content = content.encode()
        return self._blobs.prepare(content, what="content")

    def _publish(self, output_id: str, ready: Prepared) -> OutputInfo:
        blob_id, _ = self._blobs.hold(ready)
        now = system.milliseconds()
        version = self.table.add_output(output_id, blob_id, now)
        return OutputInfo(output_id, version, ready.digest.hex(), ready.size, now)

    def _pass_by(self, output_id: str) -> None:
        """Have the counters of an id and its parents go on after it."""
        parent = ""
        for part in output_id.split("."):
            self.table.pass_by(_counter(parent), int(part.partition("-")[0]))
            parent = f"{parent}.{part}" if parent else part

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
        """Write all outputs to a folder as `{id}.md` files, later versions as `{id}.v2.md`, and give their names."""
        names = []
        for info in self:
            name = info.output_id + (f".v{info.version}" if info.version > 1 else "") + ".md"
            system.save(os.path.join(folder, name), self.stream(info))
            names.append(name)
        return names

    def import_folder(self, folder: str) -> dict[str, OutputInfo]:
        """Keep the `{id}.md` files of a folder as outputs; give them by the names of the files.

        A version that is here already is found again, so importing twice adds nothing.
        """
        matches = [match for name in os.listdir(folder) if (match := _FILE.fullmatch(name))]
        matches.sort(key=lambda match: (match[1], int(match[2] or 1)))
        made = {}
        for match in matches:
            with open(os.path.join(folder, match[0]), "rb") as file:
                made[match[0]], _ = self.take(match[1], int(match[2] or 1), self._blobs.put(file).hash)
        return made

    def take(self, output_id: str, version: int, name: str, created: int | None = None) -> tuple[OutputInfo, bool]:
        """Have a blob be a version of an output, unless it is; where another is, it becomes the next version.

        Gives what it is, and whether it is new.
        """
        check_id(output_id)
        digest = digest_of(name)
        with self.table.store.write():
            rows = self.table.versions(output_id)
            if len(rows) >= version:
                for row in (rows[version - 1], *rows):
                    if row[2] == digest:
                        return _info(row), False
            self._pass_by(output_id)
            now = system.milliseconds() if created is None else created
            return self.get(output_id, self.table.add_output(output_id, self._blobs.blob_id(digest), now)), True


def check_id(output_id: object) -> None:
    """Raise InputError for what is no id of an output."""
    if not isinstance(output_id, str) or len(output_id) > _LONGEST or not _ID.fullmatch(output_id):
        raise InputError(
            f"{output_id!r} is no id of an output", "give one such as 0-Scout or 0-Scout.1-Helper, as it was printed"
        )


def _counter(parent: str) -> str:
    return f"output:{parent}"


def _info(row: tuple[Any, ...]) -> OutputInfo:
    output_id, version, digest, size, created = row
    return OutputInfo(output_id, version, digest.hex(), size, created)
