"""After a kill at any step of a folder's import, importing again has every file once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from tests.crash.support import copy
from tests.crash.test_every_step import fell

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "0.bash.log": b"equal\n",
    "0.other.log": b"another of that number\n",
    "1.bash.log": b"equal\n",
    "Scout.md": b"an output",
    "Scout.jsonl": b"{}\n",
    "plan.txt": b"a plan",
}


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.soak)])
def test_a_process_that_is_killed(
    stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is sound, and importing again completes the folder without a file twice."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")  # no power is cut here
    eventq.init(tmp_path / "template")
    (tmp_path / "s.jsonl").write_bytes(b'{"type":"session","id":"s-1"}\n')
    (tmp_path / "s").mkdir()
    for name, data in FILES.items():
        (tmp_path / "s" / name).write_bytes(data)
    path = str(tmp_path / "thread")

    def work() -> None:
        with eventq.open(path) as thread:
            thread.sessions.import_file(str(tmp_path / "s.jsonl"))

    number, going, stored = 0, True, set()
    while going:
        number += stride
        copy(str(tmp_path / "template"), path)
        going = fell(number, work)
        with eventq.open(path) as thread:
            assert thread.check() == []
            stored.add(sum(len(one.artifacts) for one in thread.produced.all_scopes()))
        work()
        with eventq.open(path) as thread:
            produced = thread.scope("s-1")
            sealed = [one for one in produced.artifacts if one.status == "sealed"]
            assert (len(sealed), len(produced.outputs)) == (3, 1)
            assert thread.check() == []
            out = tmp_path / f"out-{number}"
            thread.sessions.export_folder("s-1", f"{out}.jsonl", print)
            assert {name: (out / name).read_bytes() for name in FILES} == FILES
    assert stored >= {0, 1, 2, 3}
