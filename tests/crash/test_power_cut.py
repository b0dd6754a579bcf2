"""A power cut at any moment: synced data stays, the rest is arbitrary, promises hold."""

from __future__ import annotations

import functools
import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.store import opening
from eventq.store.sqlite.database import Database
from tests.crash.support import PowerVFS, sound
from tests.engines import sqlite

if TYPE_CHECKING:
    from pathlib import Path


class Cuts:
    """The images that power cuts would leave, each with what was promised by then."""

    def __init__(self, path: str, folder: str, vfs: PowerVFS, seed: int) -> None:
        self._path = path
        self._folder = folder
        self._vfs = vfs
        self._chance = random.Random(seed)
        self.promised: list[str] = []
        self.images: list[tuple[str, list[str]]] = []

    def cut(self) -> None:
        """Record what a power cut leaves now: only synced data, and with some of the rest."""
        self._image(lambda disk: disk.safe)
        if any(disk.since for disk in self._vfs.disks.values()):
            self._image(lambda disk: disk.some(self._chance))

    def _image(self, content: object) -> None:
        target = os.path.join(self._folder, str(len(self.images)))
        os.makedirs(os.path.join(target, "run"))
        os.makedirs(os.path.join(target, "logs"))
        for path, disk in self._vfs.disks.items():
            with open(os.path.join(target, os.path.basename(path)), "wb") as file:
                file.write(content(disk))  # type: ignore[operator]
        # never synced: any part of it may be there
        with open(os.path.join(self._path, "events.jsonl"), "rb") as file:
            mirror = file.read()
        with open(os.path.join(target, "events.jsonl"), "wb") as file:
            file.write(mirror[: self._chance.randrange(len(mirror) + 1)])
        self.images.append((target, list(self.promised)))


def work(thread: eventq.Thread, cuts: Cuts, rounds: int) -> None:
    """Push singly, with keys and in batches, ack and read, and cut the power around each change."""
    thread.subscribe("worker", "true")
    for number in range(rounds):
        single, keyed = f"{number} single", f"{number} keyed " + "x" * 5000
        thread.push("self", "test", single)
        cuts.promised.append(single)
        thread.push("self", "test", keyed, key=str(number))
        cuts.promised.append(keyed)
        batch = [f"{number} batch {n} " + "y" * 900 for n in range(8)]
        thread.push_many([("self", "test", text) for text in batch])
        cuts.promised += batch
        thread.pop("worker", thread.last_id())
        cuts.cut()
        if number % 3 == 2:
            sqlite(thread.database).connection.wal_checkpoint(mode=1)
            cuts.cut()


def run(tmp_path: Path, vfs: PowerVFS, patch: pytest.MonkeyPatch, seed: int, rounds: int) -> int:
    """Work through the scenario, then look at every image; give their number."""
    path = eventq.init(tmp_path / "thread")
    cuts = Cuts(path, str(tmp_path / "cuts"), vfs, seed)
    with patch.context() as patched:
        patched.setattr(opening, "Database", functools.partial(Database, vfs="power"))
        with eventq.open(path) as thread:
            vfs.moment = cuts.cut
            work(thread, cuts, rounds)
    everything = cuts.promised
    for image, promised in cuts.images:
        found = sound(image)
        assert found[: len(promised)] == promised
        assert found == everything[: len(found)]
        assert len(found) - len(promised) in (0, 1, 8), "a batch is there or not"
        shutil.rmtree(image)
    return len(cuts.images)


MANY = [pytest.param(seed, 20, marks=pytest.mark.soak) for seed in range(2, 12)]


@pytest.mark.parametrize(("seed", "rounds"), [(1, 3), *MANY])
def test_a_power_cut_takes_nothing_that_was_acknowledged(
    seed: int, rounds: int, tmp_path: Path, power: PowerVFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut, every acknowledged event exists, in order, and no other in part."""
    assert run(tmp_path, power, monkeypatch, seed, rounds) > 20 * rounds


def test_without_a_sync_at_commit_the_cut_would_show(
    tmp_path: Path, power: PowerVFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With EVENTQ_SYNCHRONOUS=normal, a power cut does take the newest events."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    with pytest.raises(AssertionError):
        run(tmp_path, power, monkeypatch, seed=1, rounds=3)
