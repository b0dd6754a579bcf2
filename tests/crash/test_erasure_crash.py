"""An erasure that is killed, or that a disk refuses, at any step: done again, nothing is left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.log import mirror
from eventq.records.checks import ERASED
from tests.crash.support import REFUSALS, FaultyVFS, copy
from tests.crash.test_every_step import fell
from tests.engines import sqlite
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq import Thread

TEXTS = [secret(number, 64) for number in range(3)]


def event(thread: Thread) -> None:
    """Erase the event that has the second text."""
    thread.erasures.event(2)


def artifact(thread: Thread) -> None:
    """Erase the artifact that has the second text."""
    thread.erasures.artifact(1)


def prune(thread: Thread) -> None:
    """Delete the events that have the first two texts."""
    thread.prune(before_id=3, force=True)


def turn(thread: Thread) -> None:
    """Erase the turn that has the second text."""
    thread.erasures.turn(2)


def text(thread: Thread) -> None:
    """Erase the second text wherever it stands."""
    assert thread.erasures.text(TEXTS[1]) == []


WORK: dict[str, Callable[[Thread], None]] = {
    "event": event, "artifact": artifact, "prune": prune, "turn": turn, "text": text,
}  # fmt: skip
IN_LOGS = "event", "turn", "text"  # what is removed from the logs of handlers


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a thread that has the texts in several files, for copying."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    monkeypatch.setattr(mirror, "ROTATE_LINES", 2)
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        log = thread.layout.handler_log("w")
        for text in TEXTS:
            thread.push("self", "note", text)
        thread.push("self", "note", "more")
    with open(log, "w", encoding="utf-8") as file:
        file.writelines(f"got {text}\n" for text in TEXTS)
    return path


def prepared(template: str, path: str, work: str) -> str:
    """Return a copy of the thread that holds the texts where a piece of work is to erase them."""
    made = f"{template} for {work}"
    return copy(made if os.path.exists(made) else _made(template, made, work), path)


def _made(template: str, path: str, work: str) -> str:
    copy(template, path)
    if work == "text":
        with eventq.open(path) as thread:
            context = thread.contexts.create()
            for one in TEXTS:
                context.append(one)
                thread.artifacts.put(one.encode())
    if work in ("artifact", "turn"):
        with eventq.open(path) as thread:
            thread.prune(keep_last=0, force=True)
            context = thread.contexts.create()
            for text in TEXTS:
                if work == "turn":
                    context.append(text)
                else:
                    thread.artifacts.put(text.encode())
    if work not in IN_LOGS:  # what handlers said is theirs
        with open(f"{path}/logs/handlers/w.log", "w"):
            pass
    return path


def finished(path: str, work: str) -> None:
    """Do the work again, unless it was done; check that nothing is left, and that all else is."""
    with eventq.open(path) as thread:
        every = [erasure.finished for erasure in thread.erasures]
        done = (
            work != "prune" and any(every) and (work != "text" or (len(every) == 3 and all(every)))
        )
        faults = thread.check()
        if faults:
            assert not done
            assert all("again" in what or "mirror rebuild" in what for what in faults)
        if not done:
            WORK[work](thread)
        assert thread.check() == []
        if work in ("event", "prune", "text"):
            contents = [one.content for one in thread.peek()]
            assert contents[-2:] == [TEXTS[2], "more"]
            assert contents[:-2] == ([] if work == "prune" else [TEXTS[0], ERASED])
        assert remains(path, TEXTS[2]) != []
    assert remains(path, TEXTS[1]) == []


@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("work", WORK)
def test_killed_at_a_step(template: str, tmp_path: Path, work: str, stride: int) -> None:
    """A process that dies anywhere has erased it, or can be asked to do it again."""
    number = 0
    while True:
        number += min(stride, 3) if number < 12 else stride
        path = prepared(template, str(tmp_path / f"{number}"), work)

        def erase(path: str = path) -> None:
            with eventq.open(path) as thread:
                WORK[work](thread)

        if not fell(number, erase):
            break
        finished(path, work)
    assert number > 20


@pytest.mark.parametrize("stride", [149, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("error", "lasting"), REFUSALS)
@pytest.mark.parametrize("work", WORK)
def test_refused_at_a_step(
    template: str, tmp_path: Path, work: str, error: type[Exception], lasting: bool, stride: int
) -> None:
    """A disk that refuses is an error, and nothing is called erased that is not.

    Most steps are pages of the database that is written anew: some of them stand for all.
    """
    vfs = FaultyVFS("erasure")
    number = 1
    while True:
        path = prepared(template, str(tmp_path / f"{number}"), work)
        with vfs.opened(path, number, error, lasting=lasting) as thread:
            WORK[work](thread)
        if not vfs.failed:
            break
        with eventq.open(path) as thread:
            done = [erasure for erasure in thread.erasures if erasure.finished]
        assert work == "prune" or vfs.refused is not bool(done)
        finished(path, work)
        number += min(stride, 3) if number < 12 else stride
    assert number > 20


# --- what a power cut leaves ----------------------------------------------------------------------


def inode_of(fd: int) -> int:
    """Return the number of an open file or folder."""
    return os.fstat(fd).st_ino


@pytest.mark.parametrize(
    ("work", "change", "what"),
    [
        ("event", event, "named"),
        ("prune", prune, "named"),
        ("prune", lambda thread: thread.prune(before_id=4, force=True), "gone"),
    ],
    ids=["lines that change", "lines that go", "a file that goes"],
)
def test_a_rewritten_mirror_is_on_the_disk(
    template: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    change: Callable[[Thread], None],
    what: str,
) -> None:
    """The new lines are there before a file of them gets its name, and the name before the return.

    So does a power cut leave the lines of before or of after, and of after once it has returned.
    """
    path = prepared(template, str(tmp_path / "thread"), work)
    folder = os.stat(path).st_ino
    files = {f"{path}/{name}" for name in os.listdir(path) if "jsonl" in name}
    done: list[tuple[str, int]] = []
    sync, replace, unlink = os.fsync, os.replace, os.unlink

    def note_sync(fd: int) -> None:
        sync(fd)
        done.append(("synced", inode_of(fd)))

    def note_replace(old: str, new: str) -> None:
        done.append(("named", os.stat(old).st_ino))
        replace(old, new)

    def note_unlink(name: str) -> None:
        if name in files:
            done.append(("gone", os.stat(name).st_ino))
        unlink(name)

    with eventq.open(path) as thread:
        monkeypatch.setattr(os, "fsync", note_sync)
        monkeypatch.setattr(os, "replace", note_replace)
        monkeypatch.setattr(os, "unlink", note_unlink)
        change(thread)
        monkeypatch.undo()
    (at,) = (at for at, (how, _) in enumerate(done) if how in ("named", "gone"))
    assert done[at][0] == what
    assert what == "gone" or ("synced", done[at][1]) in done[:at]
    assert ("synced", folder) in done[at:]


@pytest.mark.parametrize("work", IN_LOGS)
def test_an_erased_log_is_on_the_disk(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """A log is synced before the database forgets the text, by which it would be sought again."""
    path = prepared(template, str(tmp_path / "thread"), work)
    log = os.stat(f"{path}/logs/handlers/w.log").st_ino
    done: list[str] = []
    sync, write = os.fsync, os.pwrite

    def note_sync(fd: int) -> None:
        sync(fd)
        if inode_of(fd) == log:
            done.append("synced")

    def note_write(fd: int, data: bytes, at: int) -> int:
        if inode_of(fd) == log:
            done.append("written")
        return write(fd, data, at)

    def note_commit() -> bool:
        done.append("committed")
        return False

    with eventq.open(path) as thread:
        monkeypatch.setattr(os, "fsync", note_sync)
        monkeypatch.setattr(os, "pwrite", note_write)
        sqlite(thread.database).connection.set_commit_hook(note_commit)
        WORK[work](thread)
        sqlite(thread.database).connection.set_commit_hook(None)
        monkeypatch.undo()
    assert done[:3] == ["written", "synced", "committed"]
    assert "written" not in done[3:]


@pytest.mark.parametrize("work", IN_LOGS)
def test_what_a_handler_prints_meanwhile_is_erased(
    template: str, tmp_path: Path, work: str
) -> None:
    """Logs are looked at again once nobody can read the text any more: a handler had read it."""
    path = prepared(template, str(tmp_path / "thread"), work)
    with eventq.open(path) as thread:
        connection = sqlite(thread.database).connection

        def print_it() -> bool:
            connection.set_commit_hook(None)
            with open(thread.layout.handler_log("late"), "a", encoding="utf-8") as file:
                file.write(f"got {TEXTS[1]}\n")
            return False

        connection.set_commit_hook(print_it)
        WORK[work](thread)
    assert os.path.getsize(f"{path}/logs/handlers/late.log") > 64
    assert remains(path, TEXTS[1]) == []
