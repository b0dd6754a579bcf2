"""Packs in two sizes: what is alike in them must cost what it weighs, and no more; and a pack that lies about its size."""

from __future__ import annotations

import json
import struct
import time
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard
from blake3 import blake3

import eventq
from bench.machine import eventq as command
from bench.machine import watch_process
from bench.report import Row, Sample, alone, versus
from eventq.transfer.packfile import BlobRecord, HeadRecord, PackWriter, TurnRecord
from eventq.transfer.sources import type_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

_MIB = 1 << 20


def run(plan: Plan) -> Iterator[Row]:
    """Measure imports of much that is alike and an export, each at a size and at four times that, then a lie."""
    small = plan.size(4_000, 500)
    for what, task in (
        ("import of equal patches of one turn", _patches),
        ("import of branches without a head", _branches),
        ("export of turns, each with a patch", _export),
    ):
        found = plan.take({str(n): partial(task, plan, n) for n in (small, 4 * small)})
        few, many = (Sample(found[str(n)], "s") for n in (small, 4 * small))
        yield versus(f"{what}, {4 * small:,}", many, few, most=8, note=f" ({small:,})")
    mib = plan.size(4_000, 400)
    ended = watch_process(command("pack", "import", _lie(plan, mib), "--thread", _thread(plan)))
    what = (
        f"import of a blob of {mib:,} MiB of zeros in a small pack, with a wrong hash: largest"
        f" resident size"
    )
    yield alone(what, Sample([ended.peak_mb], "MB"), most=100)
    plan.clear()


def _thread(plan: Plan) -> str:
    return eventq.init(plan.place("thread"))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _import(plan: Plan, folder: str) -> float:
    with eventq.open(_thread(plan)) as thread:
        return _timed(lambda: thread.import_pack(folder))


def _turn(pack: PackWriter, number: int) -> None:
    raw = b"%d" % number
    digest = blake3(raw).digest()
    pack.blob(BlobRecord(digest, 0, len(raw), raw))
    pack.turn(TurnRecord(number, 0, 0, 0, type_tag(""), digest, 0, 1))


def _patches(plan: Plan, count: int) -> float:
    folder = plan.place("pack")
    with PackWriter(folder) as pack:
        _turn(pack, 1)
        pack.head(HeadRecord(1, 1, 0, 0, 1))
        for _ in range(count):
            pack.beside(
                json.dumps({"patch": 1, "blob": None, "flags": 0, "created_at_ms": 1}).encode()
                + b"\n"
            )
    return _import(plan, folder)


def _branches(plan: Plan, count: int) -> float:
    folder = plan.place("pack")
    with PackWriter(folder) as pack:
        for number in range(1, count + 1):
            _turn(pack, number)
    return _import(plan, folder)


def _export(plan: Plan, count: int) -> float:
    with eventq.open(_thread(plan)) as thread:
        context = thread.contexts.create()
        with thread.write():
            for _ in range(count):
                thread.contexts.patch(context.append("x").turn_id, "y")
        return _timed(lambda: thread.export_pack(plan.place("pack")))


def _lie(plan: Plan, mib: int) -> str:
    """Write a pack of one record that unfolds to many zeros, and has the hash of something else."""
    made = zstandard.ZstdCompressor(level=1).compressobj(size=mib * _MIB)
    stored = b"".join([*(made.compress(bytes(_MIB)) for _ in range(mib)), made.flush()])
    body = struct.pack("<IHHII", 0x42534C42, 1, 1, mib * _MIB, len(stored)) + bytes(32) + stored
    folder = Path(plan.place("lie"))
    folder.mkdir()
    (folder / "blobs.pack").write_bytes(body + struct.pack("<I", zlib.crc32(body)))
    return str(folder)
