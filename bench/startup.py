"""Commands as whole processes: what a script that calls eventq a thousand times an hour pays."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import eventq
from bench.contestants import BATCH, KIND, PAGE, PAYLOAD, SOURCE
from bench.machine import LIMIT, PYTHON, ROOT, environment, time_process
from bench.machine import eventq as command
from bench.report import Row, Sample, versus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

CLICK = """
import apsw, click

@click.command()
@click.option("--thread", required=True)
@click.option("--source", required=True)
@click.option("--type", "kind", required=True)
@click.option("--content", required=True)
def push(thread, source, kind, content):
    connection = apsw.Connection(thread + "/events.db", apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(30_000)
    sql = "INSERT INTO events (source, type, content) VALUES (?, ?, ?)"
    connection.execute(sql, (source, kind, content))

push()
"""


def run(plan: Plan) -> Iterator[Row]:
    """Measure single commands, those of agents, those that move 100 events, then a push's imports."""
    yield from _single(plan)
    yield from _looped(plan)
    yield from _hundred(plan)
    yield _imports(plan)


def _thread(plan: Plan, events: int) -> str:
    path = plan.place("thread")
    with eventq.open(path, create=True) as thread:
        thread.subscribe("reader", "true")
        for _ in range(-(-events // BATCH)):
            thread.push_many([(SOURCE, KIND, PAYLOAD)] * BATCH)
    return path


def _file(plan: Plan, text: str) -> str:
    path = plan.place("input")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class _Pop:
    """`eventq pop` as a consumer calls it: each acks what the one before has read."""

    def __init__(self, thread: str, limit: int) -> None:
        self._thread, self._limit, self._at = thread, limit, 0

    def __call__(self) -> float:
        words = [
            "pop",
            "--thread",
            self._thread,
            "--consumer",
            "reader",
            "--last-event-id",
            str(self._at),
        ]
        self._at += self._limit
        return time_process(command(*words, "--limit", str(self._limit)))


def _command(*words: str, stdin: str = os.devnull) -> Callable[[], float]:
    return lambda: time_process(command(*words), stdin=stdin)


def _single(plan: Plan) -> Iterator[Row]:
    path, other = _thread(plan, 0), _thread(plan, 1_000)
    event = ["--source", SOURCE, "--type", KIND, "--content", PAYLOAD]
    hook = _file(
        plan,
        json.dumps({"hook_event_name": "PostToolUse", "tool_name": "sh", "tool_input": PAYLOAD}),
    )
    tasks: dict[str, Callable[[], float]] = {
        "bare": lambda: time_process([PYTHON, "-c", "pass"]),
        "push": _command("push", "--thread", path, *event),
        "click": lambda: time_process([PYTHON, "-c", CLICK, "--thread", path, *event]),
        "pop": _Pop(other, 10),
        "peek": _command("peek", "--thread", other, "--last-event-id", "0", "--limit", "10"),
        "hook": _command("hook", "--thread", path, stdin=hook),
    }
    found = plan.take(tasks, rounds=plan.size(40, 6))
    times = {name: Sample(values, "ms") for name, values in found.items()}
    for name in ("push", "pop", "peek", "hook"):
        yield versus(
            f"`eventq {name}`, whole process",
            times[name],
            times["bare"],
            most=2.5,
            note=" (`python -c pass`)",
        )
    yield versus(
        "`eventq push` against a click program that imports apsw",
        times["push"],
        times["click"],
        note=" (that program)",
    )


def _looped(plan: Plan) -> Iterator[Row]:
    """Measure the commands that agents call in loops, each against a bare Python."""
    path = _memory(plan)
    with eventq.open(path) as thread:
        thread.subscribe("pool")
        (claim,) = thread.claim("pool", lease=86_400)
    acked = ["--consumer", "reader", "--last-event-id", "1"]
    words = {
        "turn append": ["main", "--content", PAYLOAD],
        "turn last": ["main", "--limit", "10"],
        "run step": ["growing", "--role", "coder", "--content", PAYLOAD],
        "run messages": ["build", "--role", "coder", "--json"],
        "info": [],
        "tail": [],
        "blob put": [_file(plan, PAYLOAD)],
        "ack": acked,
        "pop": [*acked, "--limit", "10"],
        "peek": ["--last", "10"],
        "claim": ["--consumer", "pool"],
        "extend": [claim.token],
    }
    tasks = {name: _command(*name.split(), *more, "--thread", path) for name, more in words.items()}
    tasks["bare"] = lambda: time_process([PYTHON, "-c", "pass"])
    found = plan.take(tasks, rounds=plan.size(40, 6))
    bare = Sample(found.pop("bare"), "ms")
    of_memory = ("turn append", "turn last", "run step", "run messages", "info", "blob put")
    for name, values in found.items():
        label = f"`eventq {name}` in a loop, whole process"
        most = 2.9 if name in of_memory else 2.5
        yield versus(label, Sample(values, "ms"), bare, most=most, note=" (`python -c pass`)")


def _memory(plan: Plan) -> str:
    """Make a thread with 1,000 events, a context of 20 turns, and two runs of 10 steps."""
    path = _thread(plan, 1_000)
    with eventq.open(path) as thread:
        context = thread.contexts.create("main")
        for _ in range(20):
            context.append(PAYLOAD)
        for label in ("build", "growing"):
            run = thread.runs.start("solve", PAYLOAD, system={"coder": PAYLOAD}, label=label)
            for _ in range(10):
                run.step("coder", None, PAYLOAD)
    return path


def _hundred(plan: Plan) -> Iterator[Row]:
    rounds = plan.size(20, 4)
    path, other = _thread(plan, 0), _thread(plan, PAGE * (rounds + 2))
    line = json.dumps({"source": SOURCE, "type": KIND, "content": PAYLOAD})
    tasks: dict[str, Callable[[], float]] = {
        "push --batch": _command(
            "push", "--thread", path, "--batch", stdin=_file(plan, (line + "\n") * PAGE)
        ),
        "pop": _Pop(other, PAGE),
        "peek": _command("peek", "--thread", other, "--last-event-id", "0", "--limit", str(PAGE)),
    }
    found = plan.take(tasks, rounds=rounds)
    times = {name: Sample(values, "ms") for name, values in found.items()}
    for name, sample in times.items():
        yield Row(f"`eventq {name}` of 100 events, whole process", sample)
    slow, fast = (pick(times.values(), key=lambda sample: sample.median) for pick in (max, min))
    yield versus("the slowest of the three against the fastest", slow, fast, most=1.3)


def _imports(plan: Plan) -> Row:
    path = _thread(plan, 0)
    words = ["push", "--thread", path, "--source", SOURCE, "--type", KIND, "--content", PAYLOAD]
    argv = [PYTHON, "-X", "importtime", "-m", "eventq", *words]
    env = environment(EVENTQ_NOTIFIER="none")
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=LIMIT, env=env, cwd=ROOT, check=True
    )
    found = re.findall(r"import time:\s+(\d+) \|\s+\d+ \| +(\S+)", done.stderr)
    slowest = sorted(((int(time), name) for time, name in found), reverse=True)[:8]
    text = ", ".join(f"{name} {time / 1_000:.1f}" for time, name in slowest)
    return Row("the slowest imports of a push, ms each by itself", text, f"{len(found)} modules")
