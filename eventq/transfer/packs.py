"""Packs and copies: export the memory of a thread, import it, or copy it to another thread.

`packfile` defines the layouts of the interchange format. What the format cannot express
is stored next to it: lines in `eventq.ndjson`, and artifacts as files in the folder `artifacts`.
Other programs may ignore both.
"""

from __future__ import annotations

import json
import os
from collections import Counter

from eventq.errors import LogicError
from eventq.output.artifacts import hash_of
from eventq.records.turn import Imported
from eventq.store.causing import place_of
from eventq.transfer.artifact_import import ArtifactImport
from eventq.transfer.blob_import import BlobImport
from eventq.transfer.datadir import DataDirectory, is_data_directory
from eventq.transfer.head_import import HeadImport
from eventq.transfer.job import Job
from eventq.transfer.line_import import LineImport
from eventq.transfer.log_import import LogImport
from eventq.transfer.packfile import PackWriter
from eventq.transfer.scope_import import ScopeImport
from eventq.transfer.sources import PackSource, ThreadSource, file_name
from eventq.transfer.turn_import import Nodes, TurnImport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.memory.contexts import Contexts
    from eventq.output.output_store import OutputStore
    from eventq.store.engine import Engine
    from eventq.transfer.sources import Uncounted

_PAGE = 1_000  # causes that are read at once


def export_pack(database: Engine, folder: str, uncounted: Uncounted) -> None:
    """Write a thread, as it is at one moment, to a folder that holds no pack yet.

    `uncounted` is that of `ThreadSource`. Every blob is checked; one of many parts is in memory
    whole while it is written. Raises DamagedBlobError, LogicError for a folder that holds a pack,
    DiskError.
    """
    with database.read() as moment:
        source = ThreadSource(moment, uncounted)
        with PackWriter(folder) as pack:
            _write(source, pack)


def check_outside(folder: str, directory: str) -> None:
    """Raise LogicError for a folder inside the directory of a thread."""
    inside = os.path.realpath(directory)
    if os.path.commonpath([inside, os.path.realpath(folder)]) == inside:
        raise LogicError(f"'{folder}' is inside the thread", "give a folder outside of it")


def _write(source: ThreadSource, pack: PackWriter) -> None:
    for _, record in source.blobs():
        pack.blob(record)
    for turn in source.turns():
        pack.turn(turn)
    for meta in source.metas():
        pack.meta(meta)
    for head in source.heads():
        pack.head(head)
    for line in source.lines():
        if line.get("status") == "open":
            continue  # its number would stand for what it is not yet
        if "artifact" in line:
            pack.artifact(file_name(line), source.artifact(line))
        if line.get("hash", "") is None:  # it has none of its own, as it is not whole
            line["blake3"] = hash_of(source.artifact(line))[0]
        pack.beside(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def import_pack(contexts: Contexts, produced: OutputStore, folder: str) -> Imported:
    """Store what is in a pack, or in a CXDB data directory, and not here; see `Thread.import_pack`.

    What is damaged is left out, with all that needs it, and noted. Raises LogicError for a folder
    that holds no pack.
    """
    source = DataDirectory(folder) if is_data_directory(folder) else PackSource(folder)
    return _import(Job(contexts, produced, source, Counter(), strict=False))


def copy(
    contexts: Contexts,
    produced: OutputStore,
    database: Engine,
    choose: Callable[[Engine], ThreadSource],
    new: Counter[str],
    *,
    log: bool,
    shared: bool,
) -> Imported:
    """Store what a thread holds, or what we `choose` of it, and is not here.

    Nothing is left out: what is damaged there, or would be another artifact or output here, is an
    error. `new` counts on from an attempt that was lost. The log comes as well if `log` is true,
    into a thread that machines share, or not. See `Thread.copy_to`.
    """
    with database.read() as moment:
        job = Job(contexts, produced, choose(moment), new, strict=True)
        came = LogImport(job, moment, shared=shared) if log else None
        return _import(job, came, lambda turns: _copy_causes(job, moment, turns, log=log))


def _copy_causes(job: Job, moment: Engine, turns: TurnImport, *, log: bool) -> None:
    """Store what caused the turns that are here now.

    Without the log, the events of the source are those of another thread. A pack leaves causes out:
    whoever reads it does not know that thread.
    """
    here, there = job.database.causes, moment.causes
    own = "" if log else place_of(moment.place)
    after = (0, "", 0)
    while rows := there.of_turns(after, _PAGE):
        after = rows[-1]
        found = [(turns.here(turn), place or own, cause) for turn, place, cause in rows]
        here.restore(turns=[(turn, at, one) for turn, at, one in found if turn and at is not None])


def _import(
    job: Job,
    log: LogImport | None = None,
    finish: Callable[[TurnImport], object] = lambda _: None,
) -> Imported:
    """Store blobs, some a transaction, artifacts, one a transaction, then all the rest in one."""
    job.source.heal()
    if log is not None:
        log.check()
    scopes = ScopeImport(job)
    artifacts, blobs, nodes = ArtifactImport(job, scopes), BlobImport(job), Nodes(job.blobs)
    if job.notes.strict:
        artifacts.check_numbers()
    blobs.run()
    artifacts.run()
    with job.database.write():
        turns = TurnImport(job, nodes, blobs)
        turns.run()
        heads = HeadImport(job, turns, scopes)
        heads.run()
        lines = LineImport(job, nodes, turns, heads, artifacts)
        lines.run()
        job.database.copies.reserve(
            turn=max(turns.highest, heads.highest), context=max(scopes.made, default=0)
        )
        if log is not None:
            log.run(heads.here)
        finish(turns)
    return Imported(
        job.new["blob"], turns.new, len(heads.made), len(heads.moved), tuple(job.notes.all),
        job.new["artifact"], lines.new_outputs, *((log.events, log.consumers) if log else ()),
    )  # fmt: skip
