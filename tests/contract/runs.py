"""What the tests of runs share: builders of runs, and nodes as another program spells them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eventq.records.run import NewStep
from tests.contract.memory import ref_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eventq import Thread
    from eventq.memory.runs import Run
    from eventq.records.run import RunInfo, Step


def spelled(value: object) -> bytes:
    """Return canonical JSON, by means of another program than eventq's."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def content_ref(text: str, refs: list[str] | None = None) -> str:
    """Return the ref of the content node of a text."""
    return ref_of(spelled({"type": "content", "payload": text, "refs": refs or []}))


def read(thread: Thread, ref: str) -> Any:
    """Return the value that a blob of JSON spells."""
    return json.loads(thread.blobs.get(ref) or b"")


def grow(run: Run, *roles: str) -> list[Step]:
    """Take a step of each role, whose content is its place among them."""
    return [run.step(role, content=f"{number}") for number, role in enumerate(roles)]


def trail(run: Run) -> list[tuple[int, str]]:
    """Return number and role of every step."""
    return [(step.number, step.role) for step in run.replay()]


def ids(runs: Iterable[RunInfo]) -> list[int]:
    """Return the ids of runs."""
    return [info.run_id for info in runs]


STOPS: dict[str, Callable[[Run], object]] = {
    "completed": lambda run: run.end(),
    "cancelled": lambda run: run.cancel(),
    "suspended": lambda run: run.suspend(),
}


def stop(run: Run, status: str) -> None:
    """Set the status of a run."""
    if status in STOPS:
        STOPS[status](run)


def full(thread: Thread) -> Run:
    """Return a run with everything that can hang on one: its bytes all begin with `full`."""
    things = [thread.blobs.put(b"full artifact %d" % number).ref for number in range(4)]
    child = thread.runs.start("full child", "full prompt of the child")
    child.step(NewStep("a", content="full inner work", refs=things[:1]))
    system = {"a": "full system a", "b": "full system b"}
    run = thread.runs.start("full", "full prompt", system=system)
    run.step(NewStep("a", content="full first", refs=things[1:2]))
    run.attempt(NewStep("b", content="full failed", refs=things[2:3]))
    run.step(NewStep("b", content="full second", child=child.end().ref, compact="full summary"))
    run.step(NewStep("b", content="full replaced", refs=things[3:4]))
    run.poke(content="full third")
    run.compact("full marker")
    run.attempt("c", content="full failed at the head")
    child.context.delete()
    return run
