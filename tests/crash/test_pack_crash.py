"""Exports and imports killed at every step, or refused by the disk, can be repeated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq import LogicError
from eventq.records.turn import NewTurn
from tests.contract.pack_files import FILES, added, tree
from tests.crash.support import REFUSALS, FaultyVFS, copy
from tests.crash.test_every_step import fell

if TYPE_CHECKING:
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Each child exports and kills itself before its nth call that changes the disk; the last one comes
# through.
KILLED = """
import json, os, signal, sys
import eventq
thread, folder, named = sys.argv[1], sys.argv[2], sys.argv[3] == "named"
calls = ("rename", "replace", "unlink", "rmdir") if named else ("open", "mkdir", "fsync", "rename", "replace", "unlink", "rmdir")
print(json.dumps(calls))
def export(number):
    left = [number]
    def dying(real):
        def call(*given, **more):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **more)
        return call
    with eventq.open(thread, read_only=True) as opened:
        for name in calls:
            setattr(os, name, dying(getattr(os, name)))
        opened.export_pack(folder.format(number))
number = 0
while True:
    number += 1
    if sys.argv[4] == "made":
        os.mkdir(folder.format(number))
        with open(os.path.join(folder.format(number), "notes.txt"), "w") as file:
            file.write("mine")
    child = os.fork()
    if not child:
        export(number)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(number)
"""


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


def killed(filled: str, tmp_path: Path, *words: str) -> int:
    """Kill exports into `pack-1`, `pack-2`, …, a step later each; return the completed one."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, filled, str(tmp_path / "pack-{}"), *words],
        env={**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"},
        stdout=subprocess.PIPE, timeout=300, check=True,
    )  # fmt: skip
    return int(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("calls", "folder"), [("every", "made"), ("named", "new")])
def test_a_killed_export_is_done_again(
    calls: str, folder: str, filled: str, tmp_path: Path
) -> None:
    """After a kill at any step a part is known as one, and repeating an export gives the whole."""
    last = killed(filled, tmp_path, calls, folder)
    whole = tree(tmp_path / f"pack-{last}")
    assert {*FILES, "artifacts/0.bash.log", "artifacts/1.bash.partial.log"} <= set(whole)
    assert last > (30 if calls == "every" else 10)
    said = []
    with eventq.open(filled, read_only=True) as thread:
        for number in range(1, last):
            pack = tmp_path / f"pack-{number}"
            if (pack / "blobs.pack").exists():
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
    last = killed(filled, tmp_path, "named", "made")
    changed = "artifacts/0.bash.log"
    seen = set()
    with eventq.open(filled, read_only=True) as thread:
        for number in range(1, last):
            for name in (*FILES, "artifacts", changed):
                pack = tmp_path / f"copy-{number}-{name.replace('/', '-')}"
                # Linked, so that the files are the very same.
                shutil.copytree(tmp_path / f"pack-{number}", pack, copy_function=os.link)
                path = pack / name
                seen.add((name, path.exists()))
                if name == changed and not path.exists():
                    continue
                if path.is_dir():
                    shutil.rmtree(path)
                elif name != changed:
                    path.unlink(missing_ok=True)
                path.write_bytes(b"somebody else's")
                said = (
                    "artifacts' is there already|holds a pack already" if name == changed else name
                )
                with pytest.raises(LogicError, match=said):
                    thread.export_pack(pack)
                assert path.read_bytes() == b"somebody else's"
                assert (pack / "notes.txt").read_bytes() == b"mine"
    assert seen == {(name, there) for name in (*FILES, "artifacts", changed) for there in (True, False)}  # fmt: skip


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


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.soak)])
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


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("error", "lasting"), REFUSALS)
def test_an_import_that_the_disk_refuses(
    error: type[Exception], lasting: bool, stride: int, packed: Path, vfs: FaultyVFS
) -> None:
    """After any failed change, turns are all there or none; repeating adds the rest."""
    template, path = f"{packed}/template", f"{packed}/thread"
    seen = set()
    count = vfs.steps_of(copy(template, path), lambda thread: thread.import_pack(packed / "pack"))
    assert count > 10
    for number in (*range(1, count + 1, stride), count + 1):
        with vfs.opened(copy(template, path), number, error, lasting=lasting) as thread:
            thread.import_pack(packed / "pack")
        seen.add(brought(packed, path))
    assert seen == {True, False}
