"""A power cut at any moment of claims and settles: what was stored at FULL stays."""

from __future__ import annotations

import functools
import os
import shutil
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.store import opening
from eventq.store.sqlite.database import Database
from tests.claiming import dead, ids, progress, settle, subscribe, take, verdict
from tests.crash.support import PowerVFS
from tests.engines import sqlite

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = 8


class Cuts:
    """What power cuts would leave, each with the events that were settled for good by then."""

    def __init__(self, folder: str, vfs: PowerVFS) -> None:
        self._folder = folder
        self._vfs = vfs
        self.finished: list[int] = []
        self.images: list[tuple[str, list[int]]] = []

    def cut(self) -> None:
        """Keep what has been synced, and nothing else."""
        target = os.path.join(self._folder, str(len(self.images)))
        os.makedirs(os.path.join(target, "run"))
        os.makedirs(os.path.join(target, "logs"))
        for path, disk in self._vfs.disks.items():
            with open(os.path.join(target, os.path.basename(path)), "wb") as file:
                file.write(disk.safe)
        self.images.append((target, [*self.finished]))


def work(thread: eventq.Thread, cuts: Cuts) -> None:
    """Settle at FULL: in a write, as dead, and after a retry; cut the power around each change."""
    db = thread.database
    for number in range(1, EVENTS, 2):
        claim = take(db, 1)
        assert ids(claim) == [number]
        with thread.write():
            db.claims.settle([verdict(claim)])
        cuts.finished.append(number)
        claim = take(db, 1)
        settle(db, claim, "retry")
        claim = take(db, 1)
        assert ids(claim) == [number + 1]
        settle(db, claim, "dead")
        cuts.finished.append(number + 1)


def run(tmp_path: Path, vfs: PowerVFS, patch: pytest.MonkeyPatch) -> int:
    """Work, then look at what each power cut leaves; return how many there were."""
    path = eventq.init(tmp_path / "thread")
    cuts = Cuts(str(tmp_path / "cuts"), vfs)
    with patch.context() as patched:
        patched.setattr(opening, "Database", functools.partial(Database, vfs="power"))
        with eventq.open(path) as thread:
            subscribe(thread.database)
            thread.push_many(("self", "t", str(n)) for n in range(EVENTS))
            sqlite(thread.database).connection.wal_checkpoint(mode=3)  # these stay in any case
            vfs.moment = cuts.cut
            work(thread, cuts)
    for image, finished in cuts.images:
        check(image, finished)
        shutil.rmtree(image)
    return len(cuts.images)


def check(image: str, finished: list[int]) -> None:
    """Check that what was finished is, and that everything else is done at last."""
    with eventq.open(image) as thread:
        db = thread.database
        assert list(db.faults()) == []
        assert progress(db) >= len(finished), "a settle was undone"
        letters = [number for number in finished if number % 2 == 0]
        assert dead(db)[: len(letters)] == letters, "a dead letter was lost"
        sqlite(db).run("UPDATE unfinished SET due_at = 0, state = 1, token = NULL")
        sqlite(db).run("UPDATE queues SET expires_at = NULL")
        found: list[int] = []
        while ids(claim := take(db, 3)):
            settle(db, claim)
            found += ids(claim)
        assert not set(found) & set(finished), "an event is done again"
        assert {*found, *finished, *dead(db), *range(1, progress(db) + 1)} == {
            *range(1, EVENTS + 1)
        }
        assert (progress(db), list(db.faults())) == (EVENTS, [])


def test_a_power_cut_undoes_no_settle_that_was_acknowledged_at_full(
    tmp_path: Path, power: PowerVFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settles in a write, retries and deaths stay; a claim that is lost is only given again."""
    assert run(tmp_path, power, monkeypatch) > 20


def test_without_a_sync_the_cut_would_show(
    tmp_path: Path, power: PowerVFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With EVENTQ_SYNCHRONOUS=normal, a power cut does undo settles."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    with pytest.raises(AssertionError, match="undone"):
        run(tmp_path, power, monkeypatch)
