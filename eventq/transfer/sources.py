"""The sources of an import: a pack, which is a folder, or a snapshot of a thread.

Both yield the records of the interchange format. What the format cannot express they yield as
lines, which are JSON objects: names and lineage of contexts, patches, roots, runs and attempts,
refs between blobs, pins, canonical rules, artifacts and outputs.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from itertools import chain

from blake3 import blake3

from eventq.errors import DamagedError, LogicError
from eventq.memory.blobs import Blobs
from eventq.output.artifacts import Artifacts
from eventq.output.output_store import scope_of
from eventq.store.copy_rows import (
    AliasCopy,
    AttemptCopy,
    ContextCopy,
    ErasedCopy,
    FileCopy,
    LineCopy,
    OutputCopy,
    PatchCopy,
    PinCopy,
    RefCopy,
    RootCopy,
    RunCopy,
    SessionCopy,
    TipCopy,
)
from eventq.store.output_rows import ScopeRow
from eventq.store.usage_rows import UsageCopy
from eventq.system import disk
from eventq.transfer import packfile
from eventq.transfer.packfile import BlobRecord, HeadRecord, MetaRecord, TurnRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from eventq.records.artifact import ArtifactInfo
    from eventq.store.copy_rows import TurnCopy
    from eventq.store.engine import Engine
    from eventq.transfer.packfile import FoundBlob

    Note = Callable[[str], object]
    Line = dict[str, Any]
    Uncounted = Callable[[Engine, Blobs], Iterable[UsageCopy]]

_NAMED = re.compile(
    rb"(?i:artifact):(?:\\?/){2}([0-9]{1,19})(?![0-9])(\?session=[A-Za-z0-9_.~%/-]{1,999})?"
    rb"|(?i:agent):(?:\\?/){2}([A-Za-z0-9_.-]{1,1024})(\?session=[A-Za-z0-9_.~%/-]{1,999})?"
)
_OVERLAP = 2200  # bytes: no name that is looked for is longer


@lru_cache(1000)
def type_tag(type_id: str) -> int:
    """Return the number of a type: the first 8 bytes of its name's BLAKE3, little-endian."""
    return int.from_bytes(blake3(type_id.encode()).digest()[:8], "little")


def tag_of(turn: TurnCopy) -> int:
    """Return the number of a turn's type: the one that it came with, or that of the name."""
    return type_tag(turn.type_id) if turn.type_tag is None else turn.type_tag & (1 << 64) - 1


def file_name(line: Line) -> str:
    """Return the name of the file that holds an artifact in a pack."""
    whole = line["status"] == "sealed"
    scope = f"scope-{line['scope']}." if line.get("scope") else ""
    return f"{scope}{line['artifact']}.{line['tool']}{'' if whole else '.partial'}.log"


class PackSource:
    """A pack; what is damaged in it is left out, with a `note`."""

    def __init__(self, folder: str) -> None:
        """Read from a folder. Raises LogicError when it holds no pack."""
        self.note: Note = ignore
        self._noted: set[str] = set()
        self._folder = folder
        self._unproven: dict[str, bool] = {}
        if not any(os.path.isfile(self._path(name)) for name in (packfile.TURNS, packfile.BLOBS)):
            raise LogicError(
                f"'{folder}' holds no pack",
                "give a folder that 'eventq pack export' wrote, or a CXDB data directory",
            )

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def heal(self) -> None:
        """Rebuild the indexes where they are missing or damaged; an import does not need them."""
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
        """Yield the offset of each blob, and its record."""
        return packfile.find_blobs(self._path(packfile.BLOBS), self.note)

    def blob_hashes(self) -> set[bytes]:
        """Return the hashes of the blobs that are sound."""
        return {blob.hash for _, blob in packfile.find_blobs(self._path(packfile.BLOBS), ignore)}

    def turns(self) -> Iterator[TurnRecord]:
        """Yield the turns."""
        return (record for _, record in packfile.read_turns(self._path(packfile.TURNS), self.note))

    def describes(self) -> bool | None:
        """Return whether the descriptions of turns are right; None when that is not known."""
        if not os.path.lexists(self._path(packfile.META)):
            return True  # there are none
        return {None: True, True: False, False: None}[self._unproven.get(packfile.META)]

    def metas(self) -> Iterator[MetaRecord]:
        """Yield the descriptions of turns, in the order of the turns."""
        return packfile.read_meta(self._path(packfile.META), self.note)

    def heads(self) -> Iterator[HeadRecord]:
        """Yield the heads of contexts; the last one of a context counts."""
        return packfile.read_heads(self._path(packfile.HEADS), self.note)

    def lines(self) -> Iterator[Line | None]:
        """Yield the objects of `eventq.ndjson`, None for a line that is no object."""
        path = self._path(packfile.BESIDE)
        if not os.path.lexists(path):  # other programs write none
            return
        for text in packfile.read_lines(path, self._note_once):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                line = None
            if not isinstance(line, dict):
                yield None
            elif not isinstance(line.get(packfile.SUMS), dict):
                yield line

    def _note_once(self, what: str) -> None:
        """Pass on what is wrong with a file that is read several times."""
        if what not in self._noted:
            self._noted.add(what)
            self.note(what)

    def artifact(self, line: Line) -> Iterator[bytes]:
        """Yield the bytes of an artifact in pieces; raise OSError, also for what is no plain file.

        Any bytes will do, so no link is followed: it could bring in any file.
        """
        path = os.path.join(self._folder, packfile.ARTIFACTS, file_name(line))
        with disk.open_regular(path, follow=False) as file:
            yield from iter(lambda: file.read(1 << 16), b"")


class ThreadSource:
    """A thread at one moment: all of it, or some contexts and all that they lead to."""

    def __init__(
        self, moment: Engine, uncounted: Uncounted, contexts: Iterable[int | str] | None = None
    ) -> None:
        """Choose what is to be read, inside a `read` of the thread's database.

        `uncounted` finds the tokens that no row has yet. Raises UnknownContextError, StoreError for
        a thread of the original tool.
        """
        self._uncounted = uncounted
        self.note: Note = ignore
        self._chosen = moment.copies.select(contexts)
        self._blobs = Blobs(moment)
        self._moment = moment
        self._scopes: dict[int, Artifacts] = {}
        if contexts is not None:
            self._follow_names()

    def _follow_names(self) -> None:
        """Choose the artifacts and outputs that chosen texts name, and so on."""
        todo: list[Iterable[bytes]] = [self._blobs.stream(one) for one in self._chosen.blobs()]
        todo += [
            self._artifacts(scope).open(one).stream() for scope, one in self._chosen.artifacts()
        ]
        scopes = [row.scope for row in self._chosen.records(ScopeRow)]
        while todo:
            for number, output, session in sorted(_names_in(todo.pop())):
                scope = scope_of(self._moment, session) if session else 0
                if scope is None or (not session and self._is_in(scopes, number, output)):
                    continue
                if output:
                    new = self._chosen.add_output(scope, output)
                    todo += [self._blobs.stream(one) for one in new]
                elif number < 1 << 63 and self._chosen.add_artifact(scope, number):
                    todo.append(self._artifacts(scope).open(number).stream())

    def _is_in(self, scopes: Iterable[int], number: int, output: str) -> bool:
        """Return whether something in scopes that were chosen whole has a number or a name."""
        if output:
            return any(self._moment.outputs.of(one).versions(output, 1) for one in scopes)
        return any(self._moment.artifacts.of(one).get(number) for one in scopes)

    def _artifacts(self, scope: int) -> Artifacts:
        if scope not in self._scopes:
            self._scopes[scope] = Artifacts(self._moment, scope)
        return self._scopes[scope]

    def heal(self) -> None:
        """Do nothing: a thread has no indexes that could disagree with it."""

    def blobs(self) -> Iterator[tuple[int, BlobRecord]]:
        """Yield a number and the record of each blob, checked; one in parts is in memory whole."""
        pieces = self._blobs.kept(self._chosen.blobs())
        for number, (digest, size, codec, stored) in enumerate(pieces):
            yield number, BlobRecord(digest, codec, size, bytes(stored))

    def blob_hashes(self) -> set[bytes]:
        """Return the hashes of the blobs."""
        return set(self._chosen.blobs())

    def turns(self) -> Iterator[TurnRecord]:
        """Yield the turns."""
        for turn in self._chosen.turns():
            yield TurnRecord(
                turn.turn, turn.parent, turn.depth, turn.encoding, tag_of(turn), turn.digest,
                turn.flags, turn.at,
            )  # fmt: skip

    def describes(self) -> bool:
        """Return True: the descriptions of turns are right."""
        return True

    def metas(self) -> Iterator[MetaRecord]:
        """Yield the descriptions of turns, in the order of the turns."""
        for turn in self._chosen.turns():
            yield MetaRecord(
                turn.turn, turn.type_id, turn.type_version, turn.encoding, 0, turn.size
            )

    def heads(self) -> Iterator[HeadRecord]:
        """Yield the heads of contexts."""
        for one in self._chosen.records(ContextCopy):
            yield HeadRecord(one.context, one.head, one.depth, one.flags, one.at)

    def lines(self) -> Iterator[Line]:
        """Yield what the format cannot express."""
        yield from self._lines_of_graph()
        yield from self._lines_of_runs()
        yield from self._lines_of_blobs()
        yield from self._lines_of_outputs()
        yield from self._lines_of_usage()

    def _lines_of_graph(self) -> Iterator[Line]:
        for turn in self._chosen.turns(canonical=True):
            yield {"turn": turn.turn, "canonical": turn.canonical}
        for one in self._chosen.records(ContextCopy):
            if one.name is not None or one.fork_of is not None or one.scope:
                yield {
                    "context": one.context, "name": one.name, "fork_of": one.fork_of,
                    **_of_scope(one.scope),
                }  # fmt: skip
        yield from self._lines_of_sessions()
        for scope in self._chosen.records(ScopeRow):
            yield {
                "scope": scope.scope, "scope_name": scope.name, "created_at_ms": scope.created_at,
            }  # fmt: skip
        for patch in self._chosen.records(PatchCopy):
            blob = patch.digest and patch.digest.hex()
            yield {
                "patch": patch.turn, "blob": blob, "flags": patch.flags, "created_at_ms": patch.at,
            }  # fmt: skip
        for root in self._chosen.records(RootCopy):
            yield {"root": root.turn, "hash": root.root.hex()}

    def _lines_of_sessions(self) -> Iterator[Line]:
        for one in self._chosen.records(SessionCopy):
            yield {
                "session": one.session, "session_name": one.name, "generation": one.generation,
                "tool": one.tool, "size": one.size, "digest": one.digest.hex(),
                "owner": one.owner, "path": one.path, "started_by": one.started_by,
                "counted": self._moment.usage.read_of(one.session),
            }  # fmt: skip
        for line in self._chosen.records(LineCopy):
            yield {
                "line": line.position, "session": line.session, "blob": line.digest.hex(),
                "form": line.form, "before": line.before.hex(), "after": line.after.hex(),
                "is_node": line.is_node, "entry": line.entry, "parent": line.parent,
                "kind": line.kind, "response": line.response, "agent": line.agent,
                "at_turn": line.turn,
            }  # fmt: skip
        for tip in self._chosen.records(TipCopy):
            yield {"tip": tip.context, "session": tip.session, "at_turn": tip.turn}

    def _lines_of_runs(self) -> Iterator[Line]:
        for run in self._chosen.records(RunCopy):
            yield {
                "run": run.context, "name": run.name, "group": run.group, "status": run.status,
                "start": run.start, "completed_at_ms": run.completed_at,
            }  # fmt: skip
        for attempt in self._chosen.records(AttemptCopy):
            blob = attempt.digest.hex()
            yield {"attempt": attempt.parent, "blob": blob, "created_at_ms": attempt.at}

    def _lines_of_blobs(self) -> Iterator[Line]:
        for ref in self._chosen.records(RefCopy):
            yield {"ref": ref.named.hex(), "blob": ref.digest.hex()}
        for gone in self._chosen.records(ErasedCopy):
            yield {
                "erased": gone.digest.hex(), "size": gone.size, "shown": gone.shown.hex(),
                "reason": gone.reason, "erased_at_ms": gone.at,
            }  # fmt: skip
        for pin in self._chosen.records(PinCopy):
            yield {"pin": pin.owner, "blob": pin.digest.hex()}
        for alias in self._chosen.records(AliasCopy):
            yield {"sha256": alias.sha256.hex(), "blob": alias.digest.hex()}

    def _lines_of_outputs(self) -> Iterator[Line]:
        for one in self._chosen.records(OutputCopy):
            yield {
                "output": one.output, "version": one.version, "blob": one.digest.hex(),
                "created_at_ms": one.at, **_of_scope(one.scope),
            }  # fmt: skip
        for scope, number in self._chosen.artifacts():
            yield {**_line_of(self._artifacts(scope).get(number)), **_of_scope(scope)}
        for scope, file in self._chosen.records(FileCopy):
            line = {"file": file.path, "scope": scope}
            if file.number is not None:
                yield {**line, "number": file.number}
            elif file.output is not None:
                yield {**line, "of": file.output, "version": file.version}
            else:
                yield {**line, "blob": (file.digest or b"").hex()}

    def _lines_of_usage(self) -> Iterator[Line]:
        known = self._chosen.records(UsageCopy) if self._moment.has_usage() else ()
        rest = self._uncounted(self._moment, self._blobs)
        for one in chain(known, filter(lambda one: self._chosen.has_turn(one.turn), rest)):
            yield {
                "usage": one.turn, "response": one.response, "of_session": one.session,
                "of_context": one.context, "agent": one.agent, "at_ms": one.at, "model": one.model,
                "out": one.out, "fresh": one.fresh, "cached": one.cached,
            }  # fmt: skip

    def artifact(self, line: Line) -> Iterator[bytes]:
        """Yield the bytes of an artifact in pieces."""
        return self._artifacts(line.get("scope", 0)).open(line["artifact"]).stream()


def ignore(_: str) -> None:
    """Do nothing with a note."""


def _of_scope(scope: int) -> Line:
    return {"scope": scope} if scope else {}  # other programs know the thread's only


def _line_of(info: ArtifactInfo) -> Line:
    return {
        "artifact": int(info.artifact_id),
        "tool": info.tool,
        "status": info.status,
        "size": info.size,
        "hash": info.hash,
        "created_at_ms": info.created_at_ms,
    }


def _names_in(pieces: Iterable[bytes]) -> set[tuple[int, str, str]]:
    """Return what a text names by URL, each with its session or ""; numbers have no id."""
    found = set()
    kept = b""
    for piece in chain(pieces, [b" "]):  # a name that reaches to the end of a piece may go on
        text = kept + piece
        for match in _NAMED.finditer(text):
            if match.end() == len(text):
                continue
            number, of_number, output, of_output = match.groups(b"")
            session = (of_number or of_output).removeprefix(b"?session=").decode()
            name = output if of_output else output.rstrip(b".")  # a sentence may end there
            found.add((int(number or 0), name.decode(), _unquoted(session)))
        kept = text[-_OVERLAP:]
    return found


def _unquoted(session: str) -> str:
    from urllib.parse import unquote

    return unquote(session.rstrip(".")) if session else ""


Source = PackSource | ThreadSource
