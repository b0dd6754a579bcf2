"""Outputs of agents: documents by name, `0-Scout` or `0-Scout.1-Helper`, in versions.

A name is assigned once: its number counts the outputs under one parent. Names without a number are
somebody else's. Publishing under the same name again adds a version. The plain name always returns
the first version, so that nothing already read changes.
"""

from __future__ import annotations

import os
import re

from eventq.errors import InputError, UnknownOutputError, UsageError
from eventq.memory.blobs import digest_of
from eventq.output.artifacts import LARGEST_ID, LISTED, is_plain, listed, save_or_compare
from eventq.records.checks import check_positive, check_whole
from eventq.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from eventq.memory.blobs import Blobs, Prepared
    from eventq.records.artifact import OutputInfo
    from eventq.store.engine import Engine

    Names = list[str]

_PAGE = 1_000
_NAME = 64  # characters of the name that is asked for
_LONGEST = 240  # characters of a whole id: it names a file
_PART = r"[A-Za-z0-9_-]+"
_VERSION = r"\.v([1-9][0-9]{0,8})"  # not the end of an id: it would be the name of another's file
_ID = re.compile(rf"{_PART}(?:\.{_PART})*")
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,18})-.")
_FILE = re.compile(rf"({_PART}(?:\.{_PART})*?)(?:{_VERSION})?\.md")


def output_name(text: str) -> str:
    """Return a name as part of an id: letters, digits, `_` and `-`, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:_NAME].rstrip("_") or "agent"


class Outputs:
    """The outputs of agents in one scope: those of the thread, or of a session."""

    def __init__(
        self, db: Engine, blobs: Blobs, scope: int = 0, session: str | None = None
    ) -> None:
        """Use a scope of a database, and its name. Raises StoreError if that is too old."""
        self._db = db
        self._blobs = blobs
        self._session = session
        self._outputs = db.outputs.of(scope)

    def _named(self, info: OutputInfo) -> OutputInfo:
        """Return an output with the session that it is of."""
        return info if self._session is None else info._replace(session=self._session)

    # --- in ---------------------------------------------------------------------------------------

    def allocate(self, name: str, parent: str | None = None) -> str:
        """Return a new id for an agent's output: the next number of its parent, and its name."""
        self._check_name(name, parent)
        with self._db.write():
            return self._next_id(name, parent)

    def _check_name(self, name: object, parent: str | None) -> None:
        if not isinstance(name, str):
            what = f"the name must be text, not {type(name).__name__}"
            raise UsageError(what, "give a string such as 'Scout'")
        if parent is not None:
            self._check_known(parent)

    def _next_id(self, name: str, parent: str | None) -> str:
        """Return a new id. Call it inside `write`, which frees the number of an id too long.

        The parent may be one that was not allocated here: nobody else gets its number.
        """
        if parent:
            self._outputs.reserve([*_numbers(parent)])
        number = self._outputs.next_number(_counter(parent or ""))
        output_id = (f"{parent}." if parent else "") + f"{number}-{output_name(name)}"
        check_id(output_id)
        return output_id

    def put(
        self, name: str, content: str | bytes | BinaryIO, parent: str | None = None
    ) -> OutputInfo:
        """Allocate an id and publish its content, as one change."""
        ready = self._prepare(content)
        with self._db.write():
            self._check_name(name, parent)
            return self._publish(self._next_id(name, parent), ready)

    def publish(self, output_id: str, content: str | bytes | BinaryIO) -> OutputInfo:
        """Publish a version of an output. Its id always returns the first version."""
        self._check_known(output_id)
        ready = self._prepare(content)
        with self._db.write():
            self._outputs.reserve([*_numbers(output_id)])
            return self._publish(output_id, ready)

    def _prepare(self, content: object) -> Prepared:
        self._db.check_writable()
        if isinstance(content, str):
            check_whole(content, "the content")
            content = content.encode()
        return self._blobs.prepare(content, what="content")

    def _publish(self, output_id: str, ready: Prepared) -> OutputInfo:
        row, _ = self._blobs.store(ready)
        return self._named(self._outputs.add(output_id, row.digest))

    def _is_known(self, output_id: object) -> bool:
        """Return whether an id is valid, and its numbers above LARGEST_ID were assigned here."""
        if not _is_id(output_id):
            return False
        large = [one for one in _numbers(str(output_id)) if one[1] > LARGEST_ID]
        counters = self._outputs.counters() if large else {}
        return all(number < counters.get(counter, 0) for counter, number in large)

    def _check_known(self, output_id: object) -> None:
        if not self._is_known(output_id):
            raise _no_id(output_id)

    def remove(self, output_id: str) -> int:
        """Delete an output with all its versions; return how many there were.

        Those of agents that it called stay, and so does its number: `put` never assigns it again. A
        folder that it came from brings it back when it is imported again.
        Raises UnknownOutputError.
        """
        with self._db.write():
            count = self._outputs.remove(output_id) if isinstance(output_id, str) else 0
            return count or self.get(output_id).version  # which raises

    # --- out --------------------------------------------------------------------------------------

    def get(self, output_id: str, version: int = 1) -> OutputInfo:
        """Return the record of an output's version. Raises UnknownOutputError."""
        check_positive(version, "version")
        found = self.find(output_id, version)
        if found is None:
            names = self._outputs.names("", LISTED)
            raise UnknownOutputError(
                output_id if version == 1 else f"{output_id}, version {version}",
                listed(names, self._outputs.count()),
            )
        return found

    def find(self, output_id: str, version: int) -> OutputInfo | None:
        """Return the record of an output's version, or None."""
        if not isinstance(output_id, str):
            return None
        found = self._outputs.versions(output_id, version)
        return self._named(found[0]) if found else None

    def stream(self, info: OutputInfo) -> Iterator[bytes]:
        """Verify the bytes of an output, then yield them in pieces of at most 1 MiB."""
        return self._blobs.stream(info.hash)

    def read(self, output_id: str, version: int = 1) -> bytes:
        """Return the bytes of an output. Raises UnknownOutputError, DamagedBlobError."""
        return b"".join(self.stream(self.get(output_id, version)))

    def list(self) -> list[OutputInfo]:
        """Return each version of each output, sorted by name."""
        return list(iter(self))  # not `list(self)`, which counts them first

    def __iter__(self) -> Iterator[OutputInfo]:
        """Yield each version of each output, sorted by name."""
        page = self.page("", 0, _PAGE)
        while page:
            yield from page
            page = self.page(page[-1].output_id, page[-1].version, _PAGE)

    def page(self, after: str, version: int, limit: int) -> Sequence[OutputInfo]:
        """Return the next versions after one of an output, sorted by name."""
        return tuple(map(self._named, self._outputs.page((after, version), limit)))

    def older(self, output_id: str, before: int, limit: int) -> Sequence[OutputInfo]:
        """Return the versions of an output before one, the newest first."""
        return tuple(map(self._named, self._outputs.older(output_id, before, limit)))

    def newest(self, after: str, limit: int) -> Sequence[OutputInfo]:
        """Return the newest version of each of the next outputs after a name, sorted by that."""
        return tuple(map(self._named, self._outputs.newest(after, limit)))

    def __len__(self) -> int:
        """Return the number of outputs, versions not counted."""
        return self._outputs.count()

    # --- folders ----------------------------------------------------------------------------------

    def export_folder(self, folder: str) -> Names:
        """Write all outputs to a folder as `{id}.md`, later versions as `{id}.v2.md`; return names.

        An existing file with the same content is left alone. Raises ConflictError for one with
        other content, OSError.
        """
        names = []
        for info in self:
            name = file_name(info)
            save_or_compare(os.path.join(folder, name), self.stream(info), info.hash)
            names.append(name)
        return names

    def import_folder(self, folder: str) -> dict[str, OutputInfo]:
        """Store the `{id}.md` files of a folder; return outputs by the names of the files.

        A version that exists already is reused, so importing twice adds nothing.
        """
        names = [name for name in os.listdir(folder) if is_plain(os.path.join(folder, name))]
        files = filter(None, map(_FILE.fullmatch, names))
        matches = [match for match in files if self._is_known(match[1])]
        matches.sort(key=lambda match: (match[1], int(match[2] or 1)))
        made = {}
        taken: set[tuple[str, int]] = set()
        for match in matches:
            with disk.open_regular(os.path.join(folder, match[0]), follow=False) as file:
                blob = self._blobs.put(file)
            made[match[0]], _ = self.take(match[1], int(match[2] or 1), blob.hash, taken=taken)
        return made

    def take(
        self,
        output_id: str,
        version: int,
        name: str,
        created: int | None = None,
        taken: set[tuple[str, int]] | None = None,
    ) -> tuple[OutputInfo, bool]:
        """Store a blob as a version of an output, or as the next one if that number is taken.

        Returns the version, and whether it is new. An equal version that exists already and is not
        in `taken` is reused, and added to `taken`.
        """
        self._check_known(output_id)
        digest = digest_of(name)
        taken = set() if taken is None else taken
        with self._db.write():
            here = self._outputs.versions(output_id)
            same = [
                one
                for one in here
                if one.hash == digest.hex() and (output_id, one.version) not in taken
            ]
            found = next((one for one in same if one.version == version), None) or next(
                iter(same), None
            )
            made = found or self._add(output_id, digest, created)
            taken.add((output_id, made.version))
            return self._named(made), found is None

    def _add(self, output_id: str, digest: bytes, at: int | None) -> OutputInfo:
        self._outputs.reserve([*_numbers(output_id)])
        return self._outputs.add(output_id, digest, at=at)

    # --- looking for damage -----------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each id that its counter could assign again."""
        counters, after = self._outputs.counters(), ""
        while names := self._outputs.names(after, _PAGE):
            for name in names:
                yield from _count_faults(name, counters)
            after = names[-1]


def _count_faults(output_id: str, counters: dict[str, int]) -> Iterator[str]:
    for counter, number in _numbers(output_id) if _ID.fullmatch(output_id) else ():
        following = counters.get(counter, 0)
        if following <= number:
            yield f"output {output_id} has a number that is not below the next one, {following}"


def file_name(info: OutputInfo) -> str:
    """Return the name of the file that a version of an output is exported to."""
    return info.output_id + (f".v{info.version}" if info.version > 1 else "") + ".md"


def file_parts(name: str) -> re.Match[str] | None:
    """Return id and version of the file of an output, None for any other name."""
    match = _FILE.fullmatch(name)
    return match if match and _is_id(match[1]) else None


def check_id(output_id: object) -> None:
    """Raise InputError unless it is the id of an output."""
    if not _is_id(output_id):
        raise _no_id(output_id)


def _is_id(output_id: object) -> bool:
    if not isinstance(output_id, str) or len(output_id) > _LONGEST:
        return False
    if not _ID.fullmatch(output_id) or re.search(rf"{_VERSION}$", output_id):
        return False
    return all(number <= 2 * LARGEST_ID for _, number in _numbers(output_id))


def _no_id(output_id: object) -> InputError:
    return InputError(
        f"{output_id!r} is not the id of an output",
        "give one such as 0-Scout, Scout or 0-Scout.1-Helper: letters, digits, _ and -",
    )


def _numbers(output_id: str) -> Iterator[tuple[str, int]]:
    """Yield the counter and the number of an id, and of each of its parents."""
    parent = ""
    for part in output_id.split("."):
        if match := _NUMBER.match(part):
            yield _counter(parent), int(match[1])
        parent = f"{parent}.{part}" if parent else part


def _counter(parent: str) -> str:
    return f"output:{parent}"
