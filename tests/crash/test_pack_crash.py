"""Exports and imports killed at every step, or refused by the disk, can be repeated."""

from __future__ import annotations

import functools
import os
import shutil
import signal
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import LogicError
from eventq.records.turn import NewTurn
from tests.contract.pack_files import FILES, added, tree
from tests.crash.support import REFUSALS, FaultyVFS, copy
from tests.crash.test_every_step import fell
from tests.running import is_killed

if TYPE_CHECKING:
    from pathlib import Path

NAMING = "rename", "replace", "unlink", "rmdir"
EVERY = ("open", "mkdir", "fsync", *NAMING)


@pytest.fixture
def filled(path: str) -> str:
    """Return the path of a thread that holds turns, an artifact and a part of one."""
    with eventq.open(path) as thread:
        thread.contexts.create("main").append("one")
        thread.artifacts.put(b"whole", "bash")
        writer = thread.artifacts.allocate("bash")
        writer.write(b"a part")
        writer.fail("for a test")
    return path


def export(path: str, folder: Path, number: int, calls: tuple[str, ...]) -> None:
    """Export a thread; die before the n-th of these calls."""
    left = count(number - 1, -1)

    def dying(real: Any) -> Any:
        kill = functools.partial(os.kill, os.getpid(), signal.SIGKILL)
        return lambda *given, **more: real(*given, **more) if next(left) else kill()

    with eventq.open(path, read_only=True) as thread:
        for name in calls:
            setattr(os, name, dying(getattr(os, name)))
        thread.export_pack(folder)


def killed(path: str, tmp_path: Path, calls: tuple[str, ...], *, made: bool) -> int:
    """Kill exports into `pack-1`, `pack-2`, …, a step later each; return the completed one."""
    for number in count(1):
        folder = tmp_path / f"pack-{number}"
        if made:
            folder.mkdir()
            (folder / "notes.txt").write_bytes(b"mine")
        if not is_killed(functools.partial(export, path, folder, number, calls)):
            return number
    raise AssertionError


@pytest.mark.parametrize(("calls", "made"), [(EVERY, True), (NAMING, False)])
def test_a_killed_export_is_done_again(
    calls: tuple[str, ...], made: bool, filled: str, tmp_path: Path
) -> None:
    """After a kill at any step a part is known as one, and repeating an export gives the whole."""
    last = killed(filled, tmp_path, calls, made=made)
    whole = tree(tmp_path / f"pack-{last}")
    assert {*FILES, "artifacts/0.bash.log", "artifacts/1.bash.partial.log"} <= set(whole)
    assert last > (30 if made else 10)
    said = []
    with eventq.open(filled, read_only=True) as thread:
        for number in range(1, last):
            pack = tmp_path / f"pack-{number}"
            if (pack / "blobs.pack").exists() and (number % 3 == 0 or number > last - 3):
                copied = shutil.copytree(
                    pack, tmp_path / f"copy-{number}"
                )  # an import adds indexes
                with eventq.open(eventq.init(tmp_path / f"other-{number}")) as other:
                    said.append("was killed" in " ".join(other.import_pack(copied).notes))
            if (pack / "heads.tbl").exists():
                # It is renamed last: if it is there, everything is.
                assert whole.items() <= tree(pack).items()
            if (pack / "heads.tbl").exists() and not (pack / ".eventq-export" / "names").exists():
                assert tree(pack) == whole  # killed after its very end
                with pytest.raises(LogicError, match="holds a pack already"):
                    thread.export_pack(pack)
                continue
            thread.export_pack(pack)
            assert tree(pack) == whole
            assert sorted({*os.listdir(pack)} - {"notes.txt"}) == sorted([*FILES, "artifacts"])
    assert (said[0], said[-1]) == (True, False)


def test_files_of_others_beside_a_killed_export(filled: str, tmp_path: Path) -> None:
    """What somebody put or changed where a killed export renamed a file stays, and is an error."""
    last = killed(filled, tmp_path, NAMING, made=True)
    names = [*FILES, "artifacts", "artifacts/0.bash.log"]
    seen = set()
    with eventq.open(filled, read_only=True) as thread:
        for number in range(1, last, 2):
            for name in names:
                pack = left = tmp_path / f"pack-{number}"
                if name in names[:-1]:  # linked, so that the files are the very same
                    pack = tmp_path / f"copy-{number}-{name}"
                    shutil.copytree(left, pack, copy_function=os.link)
                path = pack / name
                seen.add((name, path.exists()))
                if path.is_dir():
                    shutil.rmtree(path)
                elif pack != left:
                    path.unlink(missing_ok=True)
                elif not path.exists():
                    continue
                path.write_bytes(b"somebody else's")
                said = name if pack != left else "artifacts' is there already|holds a pack already"
                with pytest.raises(LogicError, match=said):
                    thread.export_pack(pack)
                assert path.read_bytes() == b"somebody else's"
                assert (pack / "notes.txt").read_bytes() == b"mine"
    assert seen == {(name, there) for name in names for there in (True, False)}


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a pack of everything, and a fresh thread to import it into."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    with eventq.open(eventq.init(tmp_path / "source")) as source:
        main = source.contexts.create("main")
        for number in range(4):
            main.append(
                NewTurn(f"m{number}", type_id="chat", refs=[source.blobs.put(b"named").ref])
            )
        main.fork(at=2, name="side").append("s")
        source.contexts.patch(2, "again")
        source.contexts.tombstone(3)
        source.contexts.attach(2, bytes(32))
        source.blobs.pin(source.blobs.put(b"pinned").hash, "me")
        source.runs.start("plan", "prompt").step("coder", 1, "done")
        source.outputs.put("A", "output")
        source.artifacts.put(b"artifact")
        source.export_pack(tmp_path / "pack")
    eventq.init(tmp_path / "template")
    return tmp_path


def brought(packed: Path, path: str) -> bool:
    """Check an interrupted import, and that repeating it adds the rest."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        whole = len(list(thread.contexts)) == 3
        assert whole or (list(thread.contexts), thread.gc(grace=0).turns) == ([], 0)
        assert whole or (thread.blobs.pins(), list(thread.outputs)) == ([], [])
        thread.import_pack(packed / "pack")
        assert added(thread.import_pack(packed / "pack")) == (0, 0, 0, 0)
        assert thread.check() == []
        out = f"{path}-out"
        shutil.rmtree(out, ignore_errors=True)
        thread.export_pack(out)
    again, first = tree(out), tree(packed / "pack")
    assert all(again[name] == first[name] for name in first if name != "blobs.idx")
    return whole


@pytest.mark.parametrize("stride", [53, pytest.param(1, marks=pytest.mark.soak)])
def test_a_killed_import(packed: Path, stride: int) -> None:
    """After a kill at any step, turns and heads are all there or none; repeating adds the rest."""
    path = f"{packed}/thread"

    def imported() -> None:
        with eventq.open(path) as thread:
            thread.import_pack(packed / "pack")

    seen: list[bool] = []
    number, going = 0, True
    while going:
        number += stride
        copy(f"{packed}/template", path)
        going = fell(number, imported)
        seen.append(brought(packed, path))
    assert len(seen) > 10
    assert set(seen) == {True, False}


@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("error", "lasting"), REFUSALS)
def test_an_import_that_the_disk_refuses(
    error: type[Exception], lasting: bool, stride: int, packed: Path, vfs: FaultyVFS
) -> None:
    """After any failed change, turns are all there or none; repeating adds the rest."""
    template, path = f"{packed}/template", f"{packed}/thread"
    seen = set()
    steps = vfs.steps_of(copy(template, path), lambda thread: thread.import_pack(packed / "pack"))
    assert steps > 10
    for number in (*range(1, steps + 1, stride), steps + 1):
        with vfs.opened(copy(template, path), number, error, lasting=lasting) as thread:
            thread.import_pack(packed / "pack")
        seen.add(brought(packed, path))
    assert seen == {True, False}
