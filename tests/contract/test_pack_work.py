"""The work of imports and exports grows as what they carry does, however much of it is alike."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from tests.contract.pack_files import BORN, added, blob, digest, head, line, turn, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

FEW, MANY = 300, 1_200
HASH = digest(b"1").hex()
ONE = {"blob": blob(b"1"), "turn": turn(1, 0, 0, b"1"), "head": head(1, 1, 0)}


@contextmanager
def steps() -> Iterator[list[int]]:
    """Count the steps of all statements of connections that are opened meanwhile."""
    counted = [0]

    def tick() -> bool:
        counted[0] += 1
        return False

    def hook(connection: apsw.Connection) -> None:
        connection.set_progress_handler(tick, 10)

    apsw.connection_hooks.append(hook)
    try:
        yield counted
    finally:
        apsw.connection_hooks.remove(hook)


def each(numbers: Iterable[int], make: Callable[[int], bytes]) -> bytes:
    """Return a record for each number."""
    return b"".join(map(make, numbers))


def roots(count: int) -> dict[str, bytes]:
    """Return first turns with payloads of their own."""
    numbers = range(1, count + 1)
    return {
        "blob": each(numbers, lambda n: blob(b"%d" % n)),
        "turn": each(numbers, lambda n: turn(n, 0, 0, b"%d" % n)),
    }


def patch(at: int = 5, blob: str | None = None, turn_id: int = 1) -> bytes:
    """Return a patch."""
    return line(patch=turn_id, blob=blob, flags=0, created_at_ms=at)


def named(number: int) -> bytes:
    """Return the name of a context."""
    return line(context=number, name=f"name {number}", fork_of=None)


def chain_among_roots(count: int) -> dict[str, bytes]:
    """Return a chain of turns of one payload, and as many first turns of others."""
    first = roots(2 * count)
    log = each(range(1, count + 1), lambda n: turn(n, n - 1, n - 1, b"ok"))
    return {"blob": blob(b"ok") + first["blob"], "turn": log + first["turn"][count * 80 :]}


# What there may be much of; `n` is how many.
SHAPES: dict[str, Callable[[int], dict[str, bytes]]] = {
    "equal patches": lambda n: {**ONE, "beside": patch() * n},
    "patches of one turn": lambda n: {**ONE, "beside": each(range(n), lambda at: patch(at, HASH))},
    "equal attempts": lambda n: {**ONE, "beside": line(attempt=1, blob=HASH, created_at_ms=5) * n},
    "lost heads": roots,
    "contexts at one turn": lambda n: {**ONE, "head": each(range(1, n + 1), lambda one: head(one, 1, 0))},
    "contexts of one moment": lambda n: {**roots(n), "head": each(range(1, n + 1), lambda one: head(one, one, 0))},
    "contexts of many moments": lambda n: {
        **ONE, "head": each(range(1, n + 1), lambda one: head(one, 1, 0, at=BORN + one)),
        "beside": each(range(2, n + 1), named),
    },
    "equal turns": lambda n: {
        "blob": blob(b"1"), "turn": each(range(1, n + 1), lambda one: turn(one, 0, 0, b"1")), "head": head(1, n, 0),
    },
    "equal first turns": lambda n: {
        "blob": blob(b"1"), "turn": each(range(1, n + 1), lambda one: turn(one, 0, 0, b"1", at=BORN + one)),
        "head": each(range(1, n + 1), lambda one: head(one, one, 0, at=BORN + one)),
    },
    "a chain of one payload among first turns": chain_among_roots,
}  # fmt: skip


def thread_with_a_turn(folder: Path) -> str:
    """Return a thread with a turn and a context, so that no id of a pack is free."""
    path = eventq.init(folder)
    with eventq.open(path) as thread:
        thread.contexts.create("another").append("another")
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_an_import_is_linear(shape: str, tmp_path: Path) -> None:
    """Four times the data takes about four times the steps, with the same ids or others."""
    taken: dict[str, list[int]] = {}
    for count in (FEW, MANY):
        folder = write(tmp_path / f"pack-{count}", **SHAPES[shape](count))
        for what, path in (
            ("fresh", eventq.init(tmp_path / f"fresh-{count}")),
            ("other ids", thread_with_a_turn(tmp_path / f"other-{count}")),
        ):
            with steps() as counted, eventq.open(path) as thread:
                for when in ("first", "again"):
                    before = counted[0]
                    found = thread.import_pack(folder)
                    taken.setdefault(f"{what}, {when}", []).append(counted[0] - before)
                assert added(found)[1:] == (0, 0, 0)
    for few, many in taken.values():
        assert many < 6 * few, taken


def told(number: int) -> bytes:
    """Return a patch, an attempt, a ref, a root and a run."""
    at = 4 * number + 1
    named: dict[str, Any] = {"ref": HASH, "blob": digest(b"%d" % number).hex()}
    run = {"run": number + 2, "name": "r", "group": "", "status": "active", "start": 1}
    attempt = {"attempt": at, "blob": HASH, "created_at_ms": 5}
    rest = (attempt, named, {"root": at, "hash": HASH}, run)
    return patch(number, HASH, at) + b"".join(line(**one) for one in rest)


def test_an_export_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the patches, refs, attempts and runs take about four times the steps."""
    monkeypatch.setattr("eventq.storage.sqlite.copies.PAGE", 10)
    taken: dict[str, list[int]] = {"export": [], "copy": []}
    for count in (FEW, MANY):
        folder = write(
            tmp_path / f"pack-{count}",
            blob=each(range(count), lambda n: blob(b"%d" % n)),
            turn=ONE["turn"] + each(range(2, 4 * count), lambda n: turn(n, 1, 1, b"1", at=BORN + n)),
            head=ONE["head"] + each(range(count), lambda n: head(n + 2, 4 * n + 1, 0, at=BORN + n)),
            beside=each(range(count), told),
        )  # fmt: skip
        with eventq.open(eventq.init(tmp_path / f"thread-{count}")) as thread:
            thread.import_pack(folder)
            contexts = [one.context_id for one in thread.contexts]
            with steps() as counted:
                thread.export_pack(tmp_path / f"out-{count}")
            taken["export"].append(counted[0])
            path = eventq.init(tmp_path / f"copy-{count}")
            with steps() as counted, eventq.open(path) as other:
                thread.copy_to(other, contexts)
            taken["copy"].append(counted[0])
    for few, many in taken.values():
        assert many < 6 * few, taken
