"""A capture into a file whose commits are refused: the view is whole, and the cause is told."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.output import artifacts as artifacts_module
from eventq.output.sink import SPILL
from eventq.store import opening
from eventq.store.sqlite.database import Database
from tests.contract.test_capture import SEQ, SOON, seen
from tests.contract.test_sink import model_view
from tests.crash.support import FaultyFile, FaultyVFS
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Until


class CommitFile(FaultyFile):
    """A file of a CommitVFS."""

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        """Write, counting what ends a transaction: a frame's head with a size of the database."""
        if len(data) == 24 and data[4:8] != bytes(4):
            self._faults.count("commit")
        super().xWrite(data, offset)


class CommitVFS(FaultyVFS):
    """A file layer that refuses commits only."""

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802
        return CommitFile(self, name, flags)

    def count(self, what: str) -> None:
        """Count a commit."""
        if what == "commit":
            super().count(what)


@pytest.fixture
def vfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[CommitVFS]:
    """Open every thread on the faulty VFS, unarmed."""
    made = CommitVFS("faulty-capture")
    opened = functools.partial(Database, vfs="faulty-capture")
    monkeypatch.setattr(opening, "Database", opened)
    yield made
    monkeypatch.undo()
    made.unregister()


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_store_that_refuses(
    path: str,
    vfs: CommitVFS,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    lasting: bool,
    error: type[Exception],
) -> None:
    """Row 98: whichever commit is refused, the view is whole, and cause and code are told."""
    monkeypatch.setattr(artifacts_module, "COMMIT_BYTES", 1 << 16)
    data = SEQ * 3  # the artifact, four times in the middle, and the seal
    with eventq.open(path) as thread:
        vfs.arm(number, error, lasting=lasting)
        code, captured, shown = seen(
            ["sh", "-c", "seq 20000; seq 20000; seq 20000; exit 4"], thread, tool="x"
        )
        failed = vfs.failed
        vfs.disarm()
        assert failed == "commit"
        assert code == 4
        assert captured.text.encode() == model_view(data, SPILL, 20 * 1024)
        assert captured.text.encode().startswith(shown)
        expected = (len(data), True, None)
        assert (captured.total_bytes, captured.truncated, captured.artifact_id) == expected
        assert captured.error
        assert "events.db" in captured.error
    with eventq.open(path) as thread:
        # As if this process had died.
        sqlite(thread.database).run("UPDATE artifacts SET owner = '1:0' WHERE status = 'open'", ())
        for info in thread.artifacts:
            assert info.status == ("partial" if lasting else "failed")
            assert data.startswith(thread.artifacts.open(info.artifact_id).read())
        assert thread.check() == []
        assert thread.capture(["seq", "20000"])[1].error is None


def test_a_refusal_while_the_command_is_silent(
    path: str, vfs: CommitVFS, gate: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses what waited in a silence ends nothing; the cause is told at the end."""
    monkeypatch.setattr(artifacts_module, "COMMIT_SECONDS", 0.05)

    def go_on() -> None:
        until(lambda: vfs.failed, "what waited is refused", SOON)
        Path(gate).write_text("\n", encoding="ascii")

    with eventq.open(path) as thread:
        vfs.arm(2, apsw.FullError, lasting=False)  # the first makes the artifact
        helper = threading.Thread(target=go_on)
        helper.start()
        code, captured = thread.capture(
            ["sh", "-c", f"echo one; read x <{gate}; echo two; exit 4"], keep=True
        )
        helper.join()
        vfs.disarm()
        assert (code, captured.text, captured.artifact_id) == (4, "one\ntwo\n", None)
        assert "events.db" in (captured.error or "")
        assert thread.artifacts.get(0).status == "failed"
        assert thread.check() == []
