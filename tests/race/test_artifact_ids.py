"""Many processes: each number is used once, and readers see a prefix."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.conftest import ROOT
from tests.race.support import together
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]

PROCESSES, EACH = 4, 50
# All begin together: when the pipe that is their stdin is closed.
FRAME = """
import sys, eventq
with eventq.open(sys.argv[1]) as thread:
    sys.stdin.read()
    for n in range(int(sys.argv[3])):
"""
ALLOCATE = """
        writer = thread.artifacts.allocate("t" + sys.argv[2])
        writer.write(f"{writer.artifact_id} {sys.argv[2]} {n}".encode())
        writer.seal()
        print(writer.artifact_id)
"""
PUT = """
        print(thread.artifacts.put(f"{sys.argv[2]} {n}".encode(), "t" + sys.argv[2]).artifact_id)
"""
REOPEN = """
        with eventq.open(sys.argv[1]) as other:
            print(other.artifacts.allocate("t" + sys.argv[2]).artifact_id)
"""
NAMES = """
        print(thread.outputs.allocate("x" + sys.argv[2]), thread.outputs.put("y", f"{sys.argv[2]} {n}", "0-p").output_id)
"""
VERSIONS = """
        print(thread.outputs.publish("0-a", f"{sys.argv[2]} {n}").version)
"""
# Writes numbered lines, and stores after each; a letter on its stdin lets it write on.
LINES = """
import sys, eventq
from eventq.output import artifacts
artifacts.COMMIT_SECONDS = 0.0
with eventq.open(sys.argv[1]) as thread:
    with thread.artifacts.allocate() as writer:
        for n in range(int(sys.argv[2])):
            writer.write(b"%06d " % n * 50 + b"\\n" * (n % 3))
            if n % int(sys.argv[3]) == 0:
                print(n, flush=True)
                sys.stdin.read(1)
"""


def said(path: str, bodies: list[str]) -> list[list[str]]:
    """Run programs at once and give the lines that each printed."""
    found = together(path, [FRAME + body for body in bodies], str(EACH))
    return [lines.splitlines() for lines in found]


@pytest.mark.parametrize(
    "bodies",
    [[ALLOCATE] * PROCESSES, [ALLOCATE, PUT, REOPEN, ALLOCATE]],
    ids=["allocations", "mixed"],
)
def test_each_number_is_given_once(thread: eventq.Thread, bodies: list[str]) -> None:
    """Row 87: four processes with fifty allocations each get 0 to 199, each once."""
    found = said(thread.path, bodies)
    assert sorted(int(line) for lines in found for line in lines) == list(range(PROCESSES * EACH))
    for name, (body, lines) in enumerate(zip(bodies, found, strict=True)):
        assert [int(line) for line in lines] == sorted(map(int, lines))
        for n, line in enumerate(lines):
            info = thread.artifacts.get(line)
            status = "partial" if body == REOPEN else "sealed"
            assert (info.tool, info.status) == (f"t{name}", status)
            expected = {ALLOCATE: f"{line} {name} {n}", PUT: f"{name} {n}", REOPEN: ""}[body]
            assert thread.artifacts.open(line).read() == expected.encode()
    assert thread.artifacts.allocate().artifact_id == str(PROCESSES * EACH)


def test_each_name_is_given_once(thread: eventq.Thread) -> None:
    """Rows 87, 102: names of outputs are given once too, each parent counting for itself."""
    found = said(thread.path, [NAMES] * PROCESSES)
    pairs = [line.split() for lines in found for line in lines]
    everything = list(range(PROCESSES * EACH))
    assert sorted(int(top.partition("-")[0]) for top, _ in pairs) == everything
    children = [child.removeprefix("0-p.").partition("-")[0] for _, child in pairs]
    assert sorted(map(int, children)) == everything
    for name, lines in enumerate(found):
        assert [line.split()[0].partition("-")[2] for line in lines] == [f"x{name}"] * EACH
        assert [thread.outputs.read(line.split()[1]) for line in lines] == [
            b"%d %d" % (name, n) for n in range(EACH)
        ]


def test_each_version_is_given_once(thread: eventq.Thread) -> None:
    """Row 103: processes that publish under one id create versions in sequence."""
    found = said(thread.path, [VERSIONS] * PROCESSES)
    versions = {
        int(line): b"%d %d" % (name, n)
        for name, lines in enumerate(found)
        for n, line in enumerate(lines)
    }
    assert sorted(versions) == list(range(1, PROCESSES * EACH + 1))
    for version, data in versions.items():
        assert thread.outputs.read("0-a", version) == data
    assert thread.read("agent://0-a").data == versions[1]


def expected(count: int) -> bytes:
    """Return what LINES writes."""
    return b"".join(b"%06d " % n * 50 + b"\n" * (n % 3) for n in range(count))


def writer(path: str, count: int, step: int) -> subprocess.Popen[str]:
    """Start LINES."""
    return subprocess.Popen(
        [sys.executable, "-c", LINES, path, str(count), str(step)], cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": ROOT}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def steps(process: subprocess.Popen[str]) -> Iterator[int]:
    """Let a writer write on, step by step, and give how far it says that it is."""
    assert process.stdout is not None
    assert process.stdin is not None
    for line in process.stdout:
        yield int(line)
        process.stdin.write("x")
        process.stdin.flush()


def test_a_reader_follows_a_writer(thread: eventq.Thread) -> None:
    """Row 91: a reader sees what was stored when it opened the artifact."""
    count, whole = 600, expected(600)
    early = None
    with (
        writer(thread.path, count, 60) as process,
        eventq.open(thread.path, read_only=True) as reader,
    ):
        for n in steps(process):
            artifact = reader.artifacts.open(0)
            stored = expected(n + 1)
            assert (artifact.info.status, artifact.info.size) == ("open", len(stored))
            assert artifact.read() == stored
            middle = artifact.info.lines // 2 + 1
            assert b"".join(artifact.lines_from(middle)) == b"\n".join(
                stored.split(b"\n")[middle - 1 :]
            )
            if n == 300:
                early = (artifact.stream(), stored)
                begun = next(early[0])
        assert process.wait(120) == 0
    assert early is not None
    with eventq.open(thread.path, read_only=True) as reader:
        assert reader.artifacts.get(0).status == "sealed"
        assert reader.artifacts.open(0).read() == whole
    assert begun == early[1][:65_536]


def test_a_stream_goes_on_while_it_is_written(thread: eventq.Thread) -> None:
    """Row 91: a stream returns what was stored when it was opened."""
    with writer(thread.path, 600, 60) as process:
        begun = {}
        for n in steps(process):
            stream = thread.open_url("artifact://0")
            begun[n] = (iter(stream), thread.artifacts.open(0).stream())
            for _, other in begun.values():
                next(other, b"")
    assert len(begun) == 10
    for n, (stream_of_url, _) in begun.items():
        assert b"".join(stream_of_url) == expected(n + 1)


def test_a_reader_beside_a_writer(thread: eventq.Thread) -> None:
    """Row 91: whenever a reader looks, it has a prefix, which only grows, until it is whole."""
    count, whole = 1500, expected(1500)
    with (
        writer(thread.path, count, count) as process,
        eventq.open(thread.path, read_only=True) as reader,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        last = looks = 0
        while (artifact := reader.artifacts.open(0)).info.status != "sealed":
            assert artifact.info.status == "open"
            data = artifact.read()
            assert whole.startswith(data)
            assert last <= len(data) == artifact.info.size
            assert artifact.info.lines == data.count(b"\n") + (data[-1:] not in (b"", b"\n"))
            assert reader.check() == []
            if not looks:
                process.stdin.close()  # from here on it writes as fast as it can
            last, looks = len(data), looks + 1
        assert artifact.read() == whole
        assert process.wait(120) == 0
    assert looks > 0
