"""Where an import reads from: a pack, which is a folder of files, or a thread as it is at one moment.

Both give the records of the interchange format, and as dictionaries what it has no room for: names and lineage of
contexts, overlays, roots, runs and attempts, refs between blobs, pins, canonical rules, artifacts and outputs.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from itertools import chain

from blake3 import blake3

from eventq import system
from eventq.blobs import Blobs
from eventq.dag import packfile
from eventq.dag.packfile import BlobRecord, FoundBlob, HeadRecord, MetaRecord, TurnRecord
from eventq.errors import DamagedError, LogicError, UnknownContextError
from eventq.output.artifacts import Artifacts
from eventq.records import ArtifactInfo
from eventq.storage.sqlite.packs import PackTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any

    from eventq.storage.sqlite.database import Database

    Note = Callable[[str], object]
    Told = dict[str, Any]

_NAMED = re.compile(
    rb"(?i:artifact):(?:\\?/){2}([0-9]{1,19})(?![0-9])|(?i:agent):(?:\\?/){2}([A-Za-z0-9_.-]{1,1024})"
)
_OVERLAP = 1100  # bytes: no name that is looked for is longer


@lru_cache(1000)
def type_tag(type_id: str) -> int:
    """Give the number that stands for a type: the first 8 bytes of the BLAKE3 of its name, little-endian."""
    return int.from_bytes(blake3(type_id.encode()).digest()[:8], "little")


def file_name(told: Told) -> str:
    """Give the name of the file that holds an artifact in a pack."""
    return (
        f"{told['artifact']}.{told['tool']}{'' if told['status'] == 'sealed' else '.partial'}.log"
    )


class PackSource:
    """A pack: what is damaged in it is left out, and said to `note`."""

    def __init__(self, folder: str) -> None:
        """Read from a folder. Raises LogicError when it holds no pack."""
        self.note: Note = ignore
        self._noted: set[str] = set()
        self._folder = folder
        self._unproven: dict[str, bool] = {}
        if not os.path.isfile(self._path(packfile.TURNS)) and not os.path.isfile(
            self._path(packfile.BLOBS)
        ):
            raise LogicError(
                f"'{folder}' holds no pack",
                "give a folder that 'eventq pack export' wrote, or a CXDB data directory",
            )

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def heal(self) -> None:
        """Make the indexes anew where they are missing or damaged; they are not needed here."""
        if packfile.is_unfinished(self._folder):
            self.note(
                "the export into this folder was killed before its end: it may hold a part only"
            )
        self._unproven = packfile.unproven(self._folder)
        for name, damaged in self._unproven.items():
            if damaged:
                self.note(f"{name}: is not what was exported: what it says may be wrong")
        faults = packfile.index_faults(self._folder)
        if not faults:
            return
        try:
            packfile.rebuild_indexes(self._folder)
            then = ": both indexes were made anew"
        except (DamagedError, LogicError) as error:
            then = f", and was not made anew: {error.what}"
        for fault in faults:
            self.note(fault + then)

    def blobs(self) -> Iterator[tuple[int, FoundBlob]]:
        """Give where each blob is, and its record."""
        return packfile.find_blobs(self._path(packfile.BLOBS), self.note)

    def blob_hashes(self) -> set[bytes]:
        """Give the hashes of the blobs that are sound."""
        return {blob.hash for _, blob in packfile.find_blobs(self._path(packfile.BLOBS), ignore)}

    def turns(self) -> Iterator[TurnRecord]:
        """Give the turns."""
        return (record for _, record in packfile.read_turns(self._path(packfile.TURNS), self.note))

    def describes(self) -> bool | None:
        """Tell whether what is said of turns is right; None when nobody knows."""
        if not os.path.lexists(self._path(packfile.META)):
            return True  # nothing is said
        return {None: True, True: False, False: None}[self._unproven.get(packfile.META)]

    def metas(self) -> Iterator[MetaRecord]:
        """Give what there is to say about turns, in their order."""
        return packfile.read_meta(self._path(packfile.META), self.note)

    def heads(self) -> Iterator[HeadRecord]:
        """Give the heads of contexts; the last one of a context counts."""
        return packfile.read_heads(self._path(packfile.HEADS), self.note)

    def extra(self) -> Iterator[Told | None]:
        """Give the objects of `eventq.ndjson`, None for a line that is none."""
        path = self._path(packfile.BESIDE)
        if not os.path.lexists(path):  # other programs write none
            return
        for line in packfile.read_lines(path, self._once):
            try:
                told = json.loads(line)
            except (ValueError, RecursionError):
                told = None
            if not isinstance(told, dict):
                yield None
            elif not isinstance(told.get(packfile.SUMS), dict):
                yield told

    def _once(self, what: str) -> None:
        """Pass on what is wrong with a file that is read several times."""
        if what not in self._noted:
            self._noted.add(what)
            self.note(what)

    def artifact(self, told: Told) -> Iterator[bytes]:
        """Give the bytes of an artifact in pieces. Raises OSError, also for what is no plain file."""
        path = os.path.join(self._folder, packfile.ARTIFACTS, file_name(told))
        with system.open_regular(
            path, follow=False
        ) as file:  # any bytes will do: a link could bring in any file
            yield from iter(lambda: file.read(1 << 16), b"")


class ThreadSource:
    """A thread as it is at one moment: all of it, or some contexts and all that they lead to; a context manager.

    What others commit meanwhile does not show.
    """

    def __init__(self, mine: Database, contexts: Iterable[int | str] | None = None) -> None:
        """Read what the thread of a store holds."""
        self.note: Note = ignore
        self._contexts = None if contexts is None else list(contexts)
        self._moment = mine.read()

    def __enter__(self) -> ThreadSource:
        """Begin the moment."""
        self._db = self._moment.__enter__()
        try:
            self._db.check_memory()
            self._db.check_output()
            self._table = PackTable(self._db)
            self._blobs = Blobs(self._db)
            self._choose()
        except BaseException as error:
            self._moment.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """End it."""
        self._moment.__exit__(kind, _, __)

    # --- what is chosen -------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        if self._contexts is None:
            self._table.choose_all()
            return
        self._table.choose_none()
        for name in self._contexts:
            context_id = self._table.find_context(name)
            if context_id is None:
                raise UnknownContextError(name)
            self._table.choose(context_id)
        self._table.choose_what_they_lead_to()
        self._follow_names()

    def _follow_names(self) -> None:
        """Choose the artifacts and outputs that what is chosen names in its text, and so on."""
        todo: list[Iterable[bytes]] = [
            self._blobs.stream(digest) for _, digest in self._table.blobs()
        ]
        while todo:
            for number, output in sorted(_names_in(todo.pop())):
                if output:
                    names = self._table.choose_output(output)
                    todo += [self._blobs.stream(digest) for digest in names]
                elif number < 1 << 63 and self._table.choose_artifact(number):
                    todo.append(self._stream(number))

    def _stream(self, number: int) -> Iterator[bytes]:
        return Artifacts(self._db).open(number).stream()

    # --- what it gives --------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Do nothing: nothing here is kept twice."""

    def blobs(self) -> Iterator[tuple[int, BlobRecord]]:
        """Give the number of each blob, and its record; each is checked, one of many parts in memory whole."""
        for blob_id, digest in self._table.blobs():
            _, size, codec, stored = self._blobs.kept(digest)
            yield blob_id, BlobRecord(digest, codec, size, bytes(stored))

    def blob_hashes(self) -> set[bytes]:
        """Give the hashes of the blobs."""
        return {digest for _, digest in self._table.blobs()}

    def turns(self) -> Iterator[TurnRecord]:
        """Give the turns."""
        for (
            turn_id,
            parent,
            depth,
            type_id,
            _,
            tag,
            encoding,
            _,
            digest,
            _,
            flags,
            at,
        ) in self._table.turns():
            number = type_tag(type_id) if tag is None else tag & (1 << 64) - 1
            yield TurnRecord(turn_id, parent, depth, encoding, number, digest, flags, at)

    def describes(self) -> bool:
        """Tell that what is said of turns is right."""
        return True

    def metas(self) -> Iterator[MetaRecord]:
        """Give what there is to say about turns, in their order."""
        for turn_id, _, _, type_id, version, _, encoding, _, _, size, _, _ in self._table.turns():
            yield MetaRecord(turn_id, type_id, version, encoding, 0, size)

    def heads(self) -> Iterator[HeadRecord]:
        """Give the heads of contexts."""
        for context_id, head, depth, flags, at, _, _ in self._table.contexts():
            yield HeadRecord(context_id, head, depth, flags, at)

    def extra(self) -> Iterator[Told]:
        """Give what the format has no room for."""
        for turn_id, canonical in self._table.rules():
            yield {"turn": turn_id, "canonical": canonical}
        for context_id, _, _, _, _, name, fork_of in self._table.contexts():
            if name is not None or fork_of is not None:
                yield {"context": context_id, "name": name, "fork_of": fork_of}
        for _, turn_id, digest, flags, at in self._table.patches():
            yield {
                "patch": turn_id,
                "blob": digest and digest.hex(),
                "flags": flags,
                "created_at_ms": at,
            }
        for turn_id, root in self._table.roots():
            yield {"root": turn_id, "hash": root.hex()}
        for context_id, name, group, status, start, completed in self._table.runs():
            told = {
                "run": context_id,
                "name": name,
                "group": group,
                "status": status,
                "start": start,
            }
            yield {**told, "completed_at_ms": completed}
        for _, parent, digest, at in self._table.attempts():
            yield {"attempt": parent, "blob": digest.hex(), "created_at_ms": at}
        for _, digest, to in self._table.refs():
            yield {"ref": to.hex(), "blob": digest.hex()}
        for name, digest in self._table.pins():
            yield {"pin": name, "blob": digest.hex()}
        yield from self._produced()

    def _produced(self) -> Iterator[Told]:
        for digest, sha256 in self._table.names():
            yield {"sha256": sha256.hex(), "blob": digest.hex()}
        for output_id, version, digest, at in self._table.outputs():
            yield {
                "output": output_id,
                "version": version,
                "blob": digest.hex(),
                "created_at_ms": at,
            }
        for number in self._table.artifacts():
            yield _told(Artifacts(self._db).get(number))

    def artifact(self, told: Told) -> Iterator[bytes]:
        """Give the bytes of an artifact in pieces."""
        return self._stream(told["artifact"])


def ignore(_: str) -> None:
    """Do nothing with what is said."""


def _told(info: ArtifactInfo) -> Told:
    return {
        "artifact": int(info.artifact_id),
        "tool": info.tool,
        "status": info.status,
        "size": info.size,
        "hash": info.hash,
        "created_at_ms": info.created_at_ms,
    }


def _names_in(pieces: Iterable[bytes]) -> set[tuple[int, str]]:
    """Give the artifacts (as number and "") and the outputs (as 0 and their id) that a text names by their URLs."""
    found = set()
    kept = b""
    for piece in chain(pieces, [b" "]):  # a name that reaches to the end of a piece may go on
        text = kept + piece
        for match in _NAMED.finditer(text):
            if match.end() == len(text):
                continue
            number, output = match.groups(b"")
            found.add((int(number or 0), output.rstrip(b".").decode()))  # a sentence may end there
        kept = text[-_OVERLAP:]
    return found
