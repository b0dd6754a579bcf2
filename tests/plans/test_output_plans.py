"""Query plans of artifacts and outputs: cost depends on size, not on what is stored."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.output.artifacts import CHUNK
from tests.plans.test_plans import Traced

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES = {
    "artifacts",
    "artifact_chunks",
    "counters",
    "agent_outputs",
    "blob_names",
    "blobs",
    "blob_bytes",
    "blob_parts",
}
TEXT = b"".join(b"%06d the quick brown fox\n" % n for n in range(12_000))  # five chunks


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a thread with artifacts, outputs and names of blobs, for copying."""
    path = eventq.init(tmp_path_factory.mktemp("full") / "thread")
    with eventq.open(path) as thread, thread.write():
        for number in range(300):
            thread.artifacts.put(b"artifact %d" % number)
            info = thread.outputs.put(f"Scout {number}", f"output {number}")
            thread.outputs.publish(info.output_id, f"again {number}")
            thread.produced.name_blob(info.hash, hashlib.sha256(b"output %d" % number).digest())
        for _ in range(3):
            thread.artifacts.put(TEXT)
    return path


def bad(sql: str, step: str) -> bool:
    """Return whether a step scans a table or index, or builds an index."""
    words = step.split()
    if "AUTOMATIC" in words:
        return True
    if words[0] not in ("SCAN", "SEARCH") or (words[0] == "SEARCH" and "(" in step):
        return False
    named = sql.replace("(", " ").replace(")", " ").replace(",", " ").split()
    aliases = {alias for table, alias in itertools.pairwise(named) if table in TABLES}
    return words[1] in TABLES | aliases


def calls(thread: eventq.Thread) -> dict[str, Callable[[], object]]:
    """Return what artifacts and outputs are used by."""
    artifacts, outputs, areas = thread.artifacts, thread.outputs, thread.database.memory
    writer = artifacts.allocate()
    sha256 = hashlib.sha256(b"output 7").hexdigest()
    told = outputs.get("7-Scout_7")

    def write() -> None:
        writer.write(bytes(5 << 20))
        writer.seal()

    return {
        "next number": lambda: [areas.outputs.next_number("artifact"), areas.artifacts.reserve(5)],  # type: ignore[func-returns-value]
        "allocate": lambda: artifacts.allocate("bash"),
        "write and seal": write,
        "put": lambda: artifacts.put(TEXT),
        "fail": lambda: artifacts.allocate().fail("so"),
        "get": lambda: artifacts.get(77),
        "read": lambda: artifacts.open(301).read(),
        "by line": lambda: list(artifacts.open(301).lines_from(9_000)),
        "a chunk of a line": lambda: [
            areas.artifacts.find_line(301, 9_000),
            areas.artifacts.find_line(301, 0),
        ],
        "a page of the list": lambda: next(iter(artifacts)),
        "remove": lambda: artifacts.remove(5),
        "allocate a name": lambda: outputs.allocate("Scout", "7-Scout_7"),
        "put an output": lambda: outputs.put("Scout", "new"),
        "publish": lambda: outputs.publish("7-Scout_7", "once more"),
        "read an output": lambda: [outputs.get("7-Scout_7"), outputs.read("7-Scout_7", 2)],
        "a page of the outputs": lambda: next(iter(outputs)),
        "the newest outputs": lambda: [outputs.newest("1", 9), outputs.older("7-Scout_7", 9, 9)],
        "take": lambda: outputs.take("7-Scout_7", 1, told.hash),
        "another name of a blob": lambda: thread.read(f"blob:sha256:{sha256}"),
        "a page of the names": lambda: next(thread.produced.aliases()),
        "holders": lambda: thread.blobs.holders(told.hash),
    }


NAMES = [
    "next number", "allocate", "write and seal", "put", "fail", "get", "read", "by line", "a chunk of a line",
    "a page of the list", "remove", "allocate a name", "put an output", "publish", "read an output",
    "a page of the outputs", "the newest outputs", "take", "another name of a blob", "a page of the names", "holders",
]  # fmt: skip


def scans(traced: Traced, call: Callable[[], object]) -> list[tuple[str, str]]:
    """Return the steps of a call that read what they need not."""
    return [(sql, step) for sql, step in traced.of(call) if bad(sql, step)]


def test_the_test_can_fail(traced: Traced) -> None:
    """A scan is recognised, by the table's name and by another."""
    queries = [
        "SELECT * FROM artifacts WHERE tool = 'x'",
        "SELECT count(*) FROM artifact_chunks c WHERE position = 3",
        "SELECT max(version) FROM agent_outputs o JOIN blobs USING (blob_id)",
        "SELECT count(*) FROM agent_outputs WHERE version = 1",
    ]
    assert [sql for sql in queries if not any(bad(sql, step) for step in traced.plan(sql))] == []
    good = (
        "SELECT * FROM artifacts a JOIN artifact_chunks c USING (artifact_id) WHERE artifact_id = 3"
    )
    assert not any(bad(good, step) for step in traced.plan(good))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_scans_what_was_produced(traced: Traced, name: str) -> None:
    """Whatever is run to number, write or read one artifact or output goes by an index or an id."""
    assert scans(traced, calls(traced.thread)[name]) == []


def test_every_call_is_looked_at(traced: Traced) -> None:
    """The list of names is the list of calls."""
    assert list(calls(traced.thread)) == NAMES


@pytest.mark.parametrize(
    "name", ["put", "get", "read", "a page of the list", "read an output", "a page of the outputs"]
)
def test_nothing_sorts_what_is_stored(traced: Traced, name: str) -> None:
    """Artifacts, chunks and outputs come in the order of an index."""
    assert [
        step for _, step in traced.of(calls(traced.thread)[name]) if "TEMP B-TREE" in step
    ] == []


def test_a_line_is_looked_up(traced: Traced) -> None:
    """Chunks with more newlines before them than are looked for are not looked at."""
    steps = [
        step
        for _, step in traced.of(
            lambda: traced.thread.database.memory.artifacts.find_line(301, 9_000)
        )
        if "artifact_chunks" in step
    ]
    assert steps[0].endswith("INDEX artifact_chunks_by_line (artifact_id=? AND newlines<?)")


def test_a_line_is_found_by_its_index(traced: Traced) -> None:
    """The chunk of a line is the last one of an index, and one row of it."""
    (step,) = [
        step
        for _, step in traced.of(
            lambda: traced.thread.database.memory.artifacts.find_line(301, 9_000)
        )
        if "artifact_chunks" in step
    ]
    assert (
        step
        == "SEARCH artifact_chunks USING COVERING INDEX artifact_chunks_by_line (artifact_id=? AND newlines<?)"
    )


def test_what_comes_before_is_not_read(traced: Traced) -> None:
    """Lines at the end are read without earlier chunks, first lines without later ones."""
    artifact = traced.thread.artifacts.open(301)
    traced.statements.clear()
    assert b"".join(artifact.lines_from(artifact.info.lines)) == TEXT.splitlines(keepends=True)[-1]
    assert (
        len(
            [
                sql
                for sql, _ in traced.statements
                if "bytes FROM artifact_chunks" in " ".join(sql.split())
            ]
        )
        == 1
    )
    assert len(TEXT) > 4 * CHUNK
    traced.statements.clear()
    assert traced.thread.read("artifact://301", limit=3).next_offset == 4
    assert (
        len(
            [
                sql
                for sql, _ in traced.statements
                if "bytes FROM artifact_chunks" in " ".join(sql.split())
            ]
        )
        == 1
    )


@pytest.mark.parametrize("url", ["artifact://7", "agent://7-Scout_7"])
def test_a_url_scans_nothing(traced: Traced, url: str) -> None:
    """What a URL names is read by its number or name, however much else there is."""
    assert scans(traced, lambda: traced.thread.read(url)) == []


def test_an_import_scans_nothing(traced: Traced) -> None:
    """What is imported is looked for by its hash or number, however much else there is."""
    from eventq.records.artifact import ArtifactInfo

    told = ArtifactInfo("900", "bash", "sealed", 3, 1, None, None, 0, None)
    assert scans(traced, lambda: traced.thread.artifacts.take(told, lambda: [b"new"], set())) == []


@pytest.mark.parametrize(
    ("name", "most"), [("allocate", 5), ("get", 1), ("put an output", 14), ("read an output", 6)]
)
def test_few_statements_are_run(traced: Traced, name: str, most: int) -> None:
    """The number of statements of a call does not grow with what is stored."""
    work = calls(traced.thread)[name]
    traced.statements.clear()
    work()
    assert len(traced.statements) <= most
