"""A run of 36 steps, as it was recorded: what each visit saw is a prefix of the next one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq.records.run import NewRun, NewStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.memory.runs import Run
    from tests.conftest import Clock

    Messages = list[dict[str, str]]

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded_run.jsonl")
DIGESTS = {
    "text": "c705689ee75100d9698a2b62751359f10d4814987a022a4fa19ed7488eb12b8e",
    "json": "d4d1e46837d66f6fcdc05aced562a043d156463ec8fad5a5a3acda7b9ac63094",
    "meta": "7cdf27c908b7bff8b4061365616a7f493d29818b6a4d6250d830a2edfa83d1ef",
}


def recorded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each operation and its values."""
    with open(RECORDED, encoding="utf-8") as lines:
        for line in lines:
            values = json.loads(line)
            yield values.pop("op"), values


def do(run: Run, op: str, values: dict[str, Any]) -> None:
    """Do to a run what was done to the recorded one."""
    if op == "step":
        run.step(NewStep(**values))
    elif op == "attempt":
        run.attempt(NewStep(**values))
    else:
        getattr(run, op)(**values)


@pytest.mark.parametrize("answer", ["text", "json", "meta"])
def test_a_recorded_run_keeps_its_messages(tmp_path: Path, clock: Clock, answer: str) -> None:
    """In each form, what a visit saw and its answer begin all that the role sees later.

    A compaction, also one that a step carries, begins anew. The bytes are those of the recording.
    """
    (_, start), *operations = recorded()
    with eventq.open(eventq.init(str(tmp_path / "thread"))) as thread:
        run = thread.runs.start(NewRun(**start, answer=answer))
        roles, seen, compared = list(start["system"]), blake3(), 0
        asked: dict[str, Messages] = {}
        for op, values in operations:
            before = {role: run.messages(role, values.get("edge_prompt", "")) for role in roles}
            if op == "poke":
                before = {}  # the last visit was answered anew: it was shown what it was shown then
            for role, messages in before.items():
                old = asked.get(role, [])
                assert messages[: len(old)] == old
                compared += len(old)
                assert all(message["content"].strip() for message in messages)
                seen.update(json.dumps(messages, ensure_ascii=False).encode())
            do(run, op, values)
            if op == "compact" or values.get("compact"):
                asked = {}
            elif op == "step":
                role = values["role"]
                asked[role] = run.messages(role)[: len(before[role]) + 1]
                assert asked[role][:-1] == before[role]
            elif op == "poke":
                role = next(run.replay(run.info().depth)).role
                asked[role] = run.messages(role)[: len(asked[role])]
        assert (run.info().depth, len(list(run.replay()))) == (36, 36)
        assert compared > 500
        assert seen.hexdigest() == DIGESTS[answer]
        assert thread.check() == []
