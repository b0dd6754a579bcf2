"""Many processes at once: ids, mirror, journal, and who wins."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from tests.race.support import together, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.race.support import Box

PROCESSES = 8
JOURNAL_LINE = re.compile(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[(INFO|WARN|ERROR)\] \S.*")

SINGLES = """
for n in range(count):
    thread.push("self", "test", f"{name} {n} " + "ü" * (n % 7 * 300))
"""
BATCHES = """
for n in range(count // 10):
    thread.push_many([("self", "test", f"{name} {n * 10 + i} ") for i in range(10)])
"""
REOPENING = """
for n in range(count):
    with eventq.open(sys.argv[1]) as other:
        other.push("self", "test", f"{name} {n} ", key=f"{name} {n}")
"""
BLOCKS = """
for n in range(count // 2):
    with thread.write():
        thread.push("self", "test", f"{name} {n * 2} ")
        thread.push("self", "test", f"{name} {n * 2 + 1} ")
"""
# All begin together: when the pipe that is their stdin is closed.
FRAME = """
import sys, eventq
from eventq.log import journal, mirror
from eventq.store import paths
rotate = int(sys.argv[4])
if rotate:
    mirror.ROTATE_LINES = journal.ROTATE_LINES = rotate
    journal._SHORTEST = 1
    paths.KEPT_FILES = 10_000  # every fact is looked for
name, count = sys.argv[2], int(sys.argv[3])
with eventq.open(sys.argv[1]) as thread:
    sys.stdin.read()
"""


def program(body: str) -> str:
    """Return the program of one pusher."""
    return FRAME + "".join(f"    {line}\n" for line in body.strip().splitlines())


def mirror(box: Box) -> list[str]:
    """Return all lines of the mirror in the order of their files."""
    names = [n for n in os.listdir(box.path) if n.startswith("events") and n.endswith(".jsonl")]
    files = []
    for name in names:
        with open(os.path.join(box.path, name), encoding="utf-8") as file:
            text = file.read()
        assert not text or text.endswith("\n")
        if text:
            files.append(text.split("\n")[:-1])
    files.sort(key=lambda lines: int(json.loads(lines[0])["id"]))
    return [line for lines in files for line in lines]


CASES = [
    [SINGLES] * PROCESSES,
    [BATCHES] * PROCESSES,
    [SINGLES, BATCHES, REOPENING, BLOCKS] * 2,
]


MANY = pytest.mark.soak


@pytest.mark.parametrize(
    ("bodies", "count", "rotate"),
    [
        *((bodies, 40, rotate) for bodies, rotate in zip(CASES, (7, 100, 0), strict=True)),
        *(pytest.param(bodies, 2000, n, marks=MANY) for bodies in CASES for n in (0, 50, 1000)),
    ],
)
def test_eight_processes_push_at_once(bodies: list[str], count: int, rotate: int, box: Box) -> None:
    """No push is refused, ids are contiguous, the mirror is in order, journal lines are whole."""
    together(box.path, list(map(program, bodies)), str(count), str(rotate))
    events = list(box.thread.peek(limit=None))
    assert [event.id for event in events] == list(range(1, len(bodies) * count + 1))
    for name in range(len(bodies)):
        mine = [one.content.split()[1] for one in events if one.content.startswith(f"{name} ")]
        assert mine == [str(n) for n in range(count)]
    if rotate:  # heals what a process that ended between two steps has left
        box.thread.push("self", "test", "the last")
    last = box.thread.last_id()
    assert [json.loads(line)["id"] for line in mirror(box)] == list(range(1, last + 1))
    assert box.thread.check() == []
    facts = box.journal()
    assert [line for line in facts if not JOURNAL_LINE.fullmatch(line)] == []
    batches = [re.search(r"push batch: count=(\d+)", line) for line in facts]
    singles = sum("push: " in line for line in facts)
    assert singles + sum(int(one[1]) for one in batches if one) == last
    if rotate:
        assert len(os.listdir(box.path)) > 6


def race(box: Box, words: Callable[[int], list[str]], count: int) -> list[tuple[int, str, str]]:
    """Run a command in several processes at once."""
    import subprocess

    from eventq.system import processes

    started = [
        subprocess.Popen(
            processes.python(*words(n)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for n in range(count)
    ]
    ended = [(process.communicate(timeout=120), process.returncode) for process in started]
    return sorted((code, out, err) for (out, err), code in ended)


def test_of_several_inits_one_wins(box: Box) -> None:
    """One `init` creates the thread; the others get the usual error, and no data is lost."""
    for number in range(5):
        path = os.path.join(box.folder, f"new-{number}")
        first, *others = race(box, lambda _: ["init", path], 4)  # noqa: B023
        assert first == (0, f"Initialized thread at {path}\n", "")
        error = f"Error: '{path}' is already a thread - use it as it is, or choose another path\n"
        assert others == [(1, "", error)] * 3
        with eventq.open(path) as thread:
            thread.push("self", "test", "x")
            assert thread.check() == []
        assert not os.path.exists(os.path.join(path, "events.db.new"))


def test_of_several_subscribes_one_wins(box: Box) -> None:
    """One subscribe is stored, with its own handler; the others get the ordinary error."""
    words = ["subscribe", "--thread", box.path, "--consumer"]
    for number in range(5):
        name = f"w{number}"
        first, *others = race(
            box,
            lambda n, name=name: [*words, name, "--each", "--handler", f"echo {n}"],  # type: ignore[misc]
            4,
        )
        assert first == (0, f"Subscribed consumer '{name}'\n", "")
        won = next(s.handler_cmd for s in box.thread.subscriptions() if s.consumer_id == name)
        assert sorted(others) == [
            (1, "", f"Error: consumer '{name}' is already subscribed, differently: handler '{won}' -> 'echo {n}' - add --replace to change it, which keeps its place\n")
            for n in range(4) if won != f"echo {n}"
        ]  # fmt: skip
    assert len(box.thread.subscriptions()) == 5


def test_of_several_pushes_with_one_key_one_is_stored(box: Box) -> None:
    """Processes that push the same key at once store one event, and all are told of it."""
    body = """
for n in range(count):
    print(thread.push("self", "test", name, key=str(n)).id)
"""
    import subprocess
    import sys

    gate, opener = os.pipe()
    pushers = [
        subprocess.Popen(
            [sys.executable, "-c", program(body), box.path, str(n), "20", "0"],
            stdin=gate, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for n in range(4)
    ]  # fmt: skip
    os.close(gate)
    os.close(opener)
    said = {pusher.communicate(timeout=120) for pusher in pushers}
    assert said == {("".join(f"{n}\n" for n in range(1, 21)), "")}
    assert box.thread.last_id() == 20


def test_rebuilds_at_once_leave_an_exact_mirror(box: Box) -> None:
    """Rebuilds that meet each other and pushes leave every line once and in order."""
    body = """
for n in range(count):
    thread.push("self", "test", f"{name} {n}" + "x" * 1000)
    if n % 5 == 0:
        thread.rebuild_mirror()
"""
    together(box.path, [program(body)] * 4, "40", "0")
    assert [json.loads(line)["id"] for line in mirror(box)] == list(range(1, 161))
    assert box.thread.check() == []
    assert [name for name in os.listdir(box.path) if "jsonl" in name] == ["events.jsonl"]


def test_fast_pushes_start_few_dispatches(box: Box) -> None:
    """At most one dispatch waits to begin, and none while a supervisor is looking."""
    os.mkfifo(os.path.join(box.folder, "gate"))
    os.mkfifo(os.path.join(box.folder, "begin"))
    box.thread.subscribe("w", box.handler("hang"))
    began: list[int] = []
    from eventq.system import processes

    real = processes.spawn
    late = ["sh", "-c", 'read x < "$0"; exec "$@"', os.path.join(box.folder, "begin")]

    def spawn(argv: list[str], **named: Any) -> int:
        began.append(1)
        return real([*late, *argv], **named)

    box.patch.setattr(processes, "spawn", spawn)
    for number in range(50):
        box.thread.push("self", "test", str(number))
    assert len(began) == 1, "the dispatch that is yet to begin will see every event"
    with open(os.path.join(box.folder, "begin"), "w", encoding="utf-8") as pipe:
        pipe.write("\n")
    until(lambda: box.trace("start"), "the handler runs")
    until(lambda: len(box.alive()) == 2, "only the supervisor and the handler are left")
    for number in range(200):
        box.thread.push("self", "test", str(number))
    assert len(began) == 1, "a consumer whose lock is held needs no dispatch"
    box.open_gate()
    until(box.all_handled, "all is handled")


def test_a_waiting_dispatch_is_not_joined_by_another(box: Box) -> None:
    """Until a dispatch starts to look, further pushes start none: it will see their events."""
    from eventq.system import processes

    began: list[int] = []
    kept: list[int] = []

    def spawn(argv: list[str], *, keep: list[int], environ: dict[str, str]) -> int:
        began.append(1)
        kept.append(os.dup(keep[0]))  # as the child would
        return 2**22 + 1

    box.thread.subscribe("w", box.handler())
    with box.patch.context() as patch:
        patch.setattr(processes, "spawn", spawn)
        for number in range(20):
            box.thread.push("self", "test", str(number))
        assert began == [1]
        os.close(kept[0])
        box.thread.push("self", "test", "after it has begun")
        assert began == [1, 1]
        os.close(kept[1])
    box.thread.push("self", "test", "really")
    until(box.all_handled, "all is handled")


def test_no_dispatch_is_started_when_nobody_could_be_due(box: Box) -> None:
    """Without a consumer, a match, or an unstalled one, a push starts no process."""
    from eventq.system import processes

    def spawn(*_: object, **__: object) -> int:
        raise AssertionError("a process was started")

    with box.patch.context() as patch:
        patch.setattr(processes, "spawn", spawn)
        box.thread.push("self", "test", "nobody is there")
        box.thread.subscribe("other", "true", filter="type = 'other'")
        box.thread.subscribe("later", "true", from_now=True, filter="type = 'later'")
        box.thread.push("self", "test", "not for them")
        box.thread.push_many([("self", "test", "nor this")] * 3)
        box.thread.subscribe("stalled", "true", from_now=True)
        box.thread.consumers.stall(box.thread.consumers.known("stalled"), "a test")
        box.thread.push("self", "test", "it is stalled")


def test_a_descriptor_of_the_queue_is_not_left_to_other_children(box: Box) -> None:
    """Only the dispatch inherits the slot, not a program that another thread starts."""
    import fcntl

    seen: list[bool] = []
    real = os.posix_spawnp

    def spawn(*arguments: object, **named: object) -> int:
        names = [int(name) for name in os.listdir("/dev/fd")]
        for fd in names:
            try:
                if fd > 2 and not fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                    seen.append(os.path.samestat(os.fstat(fd), os.stat(box.thread.layout.queue)))
            except OSError:
                pass
        return real(*arguments, **named)  # type: ignore[arg-type]

    box.thread.subscribe("w", box.handler())
    box.patch.setattr(os, "posix_spawnp", spawn)
    box.thread.push("self", "test", "x")
    assert True not in seen
    until(box.all_handled, "it is handled")
