"""Runs of a workflow: nodes to the byte, statuses, forks, compaction, what a collection keeps, and what damage costs."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq.dag import nodes
from eventq.errors import (
    ConflictError,
    DamagedError,
    InputError,
    LogicError,
    StoreError,
    UnknownBlobError,
    UnknownRunError,
    UsageError,
)
from eventq.records import Move, NewRun, NewStep, NewTurn, RunInfo, RunText, Step
from tests.contract import support
from tests.contract.support import counts, dump, found
from tests.crash.support import kill, numbers, read_lines, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq import Thread
    from eventq.dag.runs import Run
    from tests.conftest import Clock

AT = 1773829800123  # what the clock shows: 2026-03-18T10:30:00.123Z
DAY = 24 * 3600
MISSING = "blob:blake3:" + "0" * 64
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def run(thread: Thread) -> Run:
    """Give a run without steps, with id 1, whose start is turn 1."""
    return thread.runs.start(
        "solve", "the task", system={"coder": "You code.", "tester": "You test."}
    )


def name_of(data: bytes) -> str:
    """Give the ref of bytes."""
    return "blob:blake3:" + blake3(data).hexdigest()


def spelled(value: object) -> bytes:
    """Give canonical JSON, by means of another program than eventq's."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def read(thread: Thread, ref: str) -> Any:
    """Give the value that a blob of JSON spells."""
    data = thread.blobs.get(ref)
    assert data is not None
    return json.loads(data)


def grow(run: Run, *roles: str) -> list[Step]:
    """Take a step of each role, whose content is its place among them."""
    return [run.step(role, content=f"{number}") for number, role in enumerate(roles)]


def trail(run: Run) -> list[tuple[int, str]]:
    """Give number and role of every step."""
    return [(step.number, step.role) for step in run.replay()]


def ids(runs: Iterator[RunInfo]) -> list[int]:
    """Give the ids of runs."""
    return [info.run_id for info in runs]


def told(entries: Iterator[str]) -> list[Any]:
    """Give the values of entries that are JSON text."""
    return [json.loads(entry) for entry in entries]


def alter(path: str, *statements: str, checks: bool = False) -> None:
    """Change what may not be changed, while nobody has the thread open."""
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.pragma("foreign_keys", 0)
    raw.pragma("ignore_check_constraints", 0 if checks else 1)
    ((trigger,),) = raw.execute(
        "SELECT sql FROM sqlite_master WHERE name = 'turns_are_immutable'"
    ).fetchall()
    raw.execute("DROP TRIGGER turns_are_immutable")
    for sql in statements:
        raw.execute(sql)
    raw.execute(str(trigger))
    raw.close()


def spoil(path: str, ref: str) -> None:
    """Break the bytes of a blob."""
    hexed = ref.rsplit(":", 1)[1]
    alter(
        path,
        f"UPDATE blob_bytes SET bytes = zeroblob(9) WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = x'{hexed}')",
    )


# --- nodes, to the byte ---

H = "blob:blake3:"
PROMPT = "Behebe #426 ☃"
ANA = H + "a905402326f4929e376529a94cab411ba726ca1767d94f5a78f38a51d98d2286"
CODER = H + "5851d0a51c84a447a6a2160ffc5c36a7f8122cd7828d3d712c441bcbb3f4ecac"
ARTIFACT = H + "e068dc010bf492707f7e8d896457770f24703784cfe76bd785f8b76cc010bbf3"
START = (
    '{"payload":{"depth":1,"hash":"BUNDLE","maxRounds":10,"name":"solve-issue","system":{"ana":"'
    + ANA
    + '","coder":"'
    + CODER
    + '"},"taskInSystem":false},"refs":["blob:blake3:d06db5b552011c3bf74f1759dd6276f84951e9aa421ce7304b2a799edb2c31be","'
    + ANA
    + '","'
    + CODER
    + '"],"type":"start"}'
).encode()
START_REF = H + "b8b4c1e2391b6d97f510bc2a7dd227fa456949e9984ecaa66d6c3948a00abba4"
CONTENT = (
    b'{"payload":"looked\\n\\"well\\"","refs":["' + ARTIFACT.encode() + b'"],"type":"content"}'
)
CONTENT_REF = H + "dfdd50e8ff6013f41d4ed05ca1023a64041a1acedd654d0f1c75cdfecafe59ae"
ATTEMPT_REF = H + "ca8a350aee2cfce825649c7f74c47bca445a99b8cd5784530fa4a2788b7d827a"
STATE = (
    '{"payload":{"agent":"claude","ancestors":[],"attempts":["'
    + ATTEMPT_REF
    + '"],"compact":null,"content":"'
    + CONTENT_REF
    + '","edgePrompt":"Look!","meta":{"a":[null,true],"z":1.0,"ä":"☃"},"role":"ana","start":"'
    + START_REF
    + '","timestamp":1773829800123},"refs":["'
    + f'{START_REF}","{CONTENT_REF}","{ATTEMPT_REF}'
    + '"],"type":"state"}'
).encode()
STATE_REF = H + "d5b5ff4048c7091c35f6d59eac1e271722a375e7c50b8c663197a81580167915"
COMPACT_REF = H + "142d9001c0d96122d3cdcaf475148a2d22422996051c3c453238f6be346cd4e0"
EMPTY_REF = H + "ebaeb9d210043f4ba25e0f47404953749cade25f8951ff8cb5b441f158c6bdcd"
COMPACTED = (
    '{"payload":{"agent":"","ancestors":["'
    + STATE_REF
    + '"],"compact":"'
    + COMPACT_REF
    + '","content":"'
    + EMPTY_REF
    + '","edgePrompt":"","meta":null,"role":"coder","start":"'
    + START_REF
    + '","timestamp":1773829800123},"refs":["'
    + f'{START_REF}","{EMPTY_REF}","{STATE_REF}","{COMPACT_REF}'
    + '"],"type":"state"}'
).encode()
COMPACTED_REF = H + "75eea7a54fb76c13d5d9b0ce4a32c85929f78f2bccab17e38214a2992206fea0"
DONE_REF = H + "b2f4c144fb4f6f8d84f4dfa38be8c9f9398868c15bbe706e9c44d968c5b260ab"
END = (
    '{"payload":{"agent":"","ancestors":["'
    f'{COMPACTED_REF}","{STATE_REF}'
    '"],"compact":null,"content":"'
    + DONE_REF
    + '","edgePrompt":"","meta":{"returnCode":0,"summary":"done"},"role":"__end__","start":"'
    + START_REF
    + '","timestamp":1773829800123},"refs":["'
    + f'{START_REF}","{DONE_REF}","{COMPACTED_REF}","{STATE_REF}'
    + '"],"type":"state"}'
).encode()
END_REF = H + "52097d178ddf2bed78136d6c2f3d3aee9d54726ae16a01e783e2aacd1c5030c7"


def test_nodes_to_the_byte(thread: Thread, clock: Clock) -> None:
    """Rows 1, 4, 12: start, content, step, compaction and end are these bytes, under these hashes."""
    run = thread.runs.start(
        NewRun(
            "solve-issue",
            PROMPT,
            {"coder": "You code.", "ana": "You look."},
            group="BUNDLE",
            max_rounds=10,
            depth=1,
        )
    )
    thread.blobs.put(b"artifact")
    assert run.attempt("ana", content="no") == ATTEMPT_REF
    meta = {"z": 1.0, "a": [None, True], "ä": "☃"}
    first = run.step(
        NewStep("ana", meta, 'looked\n"well"', refs=[ARTIFACT], edge_prompt="Look!", agent="claude")
    )
    second = run.step(NewStep("coder", compact="summary so far"))
    last = run.end(0, "done")
    assert (first.ref, second.ref, last.ref) == (STATE_REF, COMPACTED_REF, END_REF)
    assert (run.info().head, run.info().start) == (END_REF, START_REF)
    vectors = {
        START_REF: START,
        CONTENT_REF: CONTENT,
        STATE_REF: STATE,
        COMPACTED_REF: COMPACTED,
        END_REF: END,
    }
    for ref, data in vectors.items():
        assert (name_of(data), data) == (ref, thread.blobs.get(ref))
    expected = Step(
        1, 2, STATE_REF, "ana", meta, 'looked\n"well"', (ARTIFACT,), "Look!", "claude", AT, (), None, (ATTEMPT_REF,),
        None,
    )  # fmt: skip
    assert expected == first == next(run.replay())
    assert [first, second, last] == list(run.replay())
    turns = list(run.context.replay())
    assert [(turn.type_id, turn.type_version, turn.canonical, turn.depth) for turn in turns] == [
        ("eventq.start", 1, "eventq-json-1", 0),
        *[("eventq.state", 1, "eventq-json-1", depth) for depth in (1, 2, 3)],
    ]


def test_the_order_of_keys_is_nothing(thread: Thread, clock: Clock, raw: apsw.Connection) -> None:
    """Row 1: the same values with their keys in any order are the same node, stored once."""
    one = thread.runs.start("w", "p", system={"a": "A", "b": "B"})
    before = counts(raw)["blobs"]
    first = one.step("a", {"x": 1, "y": {"p": [], "q": {}}}, "c")
    other = thread.runs.start("w", "p", system={"b": "B", "a": "A"})
    second = other.step("a", {"y": {"q": {}, "p": []}, "x": 1}, "c")
    assert (one.info().start, first.ref) == (other.info().start, second.ref)
    assert counts(raw)["blobs"] == before + 2  # the content and the step
    assert one.step("a", {"x": 1}).ref != other.step("a", {"x": 1.0}).ref


def test_equal_starts_share_a_blob(thread: Thread, raw: apsw.Connection) -> None:
    """Row 2: two runs that begin alike share one start blob, which names neither; any difference is another blob."""
    first = thread.runs.start("w", "p", label="one")
    before = counts(raw)
    second = thread.runs.start("w", "p", label="two")
    after = counts(raw)
    assert first.info().start == second.info().start
    assert first.info().head_turn_id != second.info().head_turn_id
    assert {
        table: after[table] - before[table] for table in after if after[table] != before[table]
    } == {
        "turns": 1,
        "contexts": 1,
        "runs": 1,
        "context_log": 1,
    }
    fields = {"name", "hash", "maxRounds", "depth", "system", "taskInSystem"}
    assert fields == set(read(thread, first.info().start)["payload"])
    grow(first, "a")
    others = [
        thread.runs.start("x", "p"),
        thread.runs.start("w", "q"),
        thread.runs.start(NewRun("w", "p", max_rounds=1)),
        thread.runs.start(NewRun("w", "p", depth=1)),
        thread.runs.start(NewRun("w", "p", group="g")),
        thread.runs.start("w", "p", system={"a": "p"}),
        thread.runs.start(NewRun("w", "p", system={"a": "p"}, task_in_system=True)),
        thread.runs.start(NewRun("w", "p", summary_cap=9)),
        thread.runs.start(NewRun("w", "p", parent_state=first.info().head)),
    ]
    assert len({run.info().start for run in (first, *others)}) == len(others) + 1


def test_a_run_is_a_name_or_a_new_run(thread: Thread) -> None:
    """A name, a prompt and system texts start what a `NewRun` of them does; label and source go with both."""
    system = {"a": "You act."}
    one = thread.runs.start("w", "p", system=system, label="one", source="self")
    two = thread.runs.start(NewRun("w", "p", system), label="two", source="self")
    assert one.info().start == two.info().start
    assert [run.context.info().name for run in (one, two)] == ["one", "two"]
    assert [event.source for event in thread.peek()] == ["self"] * 2


@pytest.mark.parametrize("prompt", ["", "x", "ä ☃ \0 \r\n", "x" * 200_000, '{"type":"start"}'])
def test_the_prompt_is_a_blob(thread: Thread, prompt: str) -> None:
    """Row 3: the prompt is not inline: `refs[0]` of the start is its blob, and the same bytes come back."""
    run = thread.runs.start("w", prompt, system={"a": "first by name of role"})
    node = read(thread, run.info().start)
    assert (name_of(prompt.encode()), prompt.encode()) == (
        node["refs"][0],
        thread.blobs.get(node["refs"][0]),
    )
    assert run.prompt() == prompt
    assert prompt not in node["payload"].values() or len(prompt) < 2


def test_unknown_fields_are_kept() -> None:
    """Row 4: fields that this program does not know are read and written again byte for byte."""
    ref = name_of(b"x")
    for kind, payload, refs in (
        ("start", {"name": "n", "hash": "", "maxRounds": 0, "depth": 0, "system": {}, "new": {"b": 1.0, "a": [ref]}}, [ref]),
        (
            "state",
            {
                "role": "r", "meta": 1, "start": ref, "content": ref, "ancestors": [], "compact": None, "timestamp": 5,
                "edgePrompt": "", "agent": "", "später": None, "a": "☃",
            },
            [ref],
        ),
    ):  # fmt: skip
        data = spelled({"type": kind, "payload": payload, "refs": refs})
        node = nodes.decode(data, "it")
        assert not isinstance(node, nodes.ContentNode)
        assert data == node.encode()
        assert len(node.more) == len({"new", "später", "a"} & set(payload))


def test_refs_are_what_the_payload_names(thread: Thread) -> None:
    """Row 5: `refs` of a node and the rows of refs are just the hashes that its payload names, none twice, no nulls."""
    put = [thread.blobs.put(b"%d" % n).ref for n in range(3)]
    child = thread.runs.start("child", "p")
    end = child.end()
    run = thread.runs.start(NewRun("w", "p", system={"b": "B", "a": "A"}, parent_state=end.ref))
    expected = [name_of(b"p"), name_of(b"A"), name_of(b"B"), end.ref]
    assert expected == read(thread, run.info().start)["refs"]
    assert sorted(expected) == thread.blobs.refs(run.info().start)
    first = run.step("a")
    failed = run.attempt(NewStep("a", content="failed", refs=put[:1]))
    step = run.step(
        NewStep("a", content=f"{put[0]} in the text", refs=put, compact="sum", child=end.ref)
    )
    payload = read(thread, step.ref)["payload"]
    expected = [
        payload["start"],
        payload["content"],
        first.ref,
        payload["compact"],
        failed,
        end.ref,
    ]
    assert expected == read(thread, step.ref)["refs"]
    assert sorted(expected) == thread.blobs.refs(step.ref)
    assert (run.info().start, name_of(b"sum"), [failed], end.ref) == (
        payload["start"], payload["compact"], payload["attempts"], payload["childThread"],
    )  # fmt: skip
    assert (
        sorted(put)
        == sorted(read(thread, payload["content"])["refs"])
        == thread.blobs.refs(payload["content"])
    )
    assert "childThread" not in read(thread, first.ref)["payload"]
    same = thread.runs.start("w", "A", system={"a": "A"})
    assert [name_of(b"A")] == read(thread, same.info().start)["refs"]


def test_ancestors(thread: Thread, run: Run) -> None:
    """Row 6: the first step names no ancestors, each later one its parent and up to ten more, nearest first."""
    steps = grow(run, *("abc" * 5))
    assert [min(number - 1, 11) for number in range(1, 16)] == [
        len(step.ancestors) for step in steps
    ]
    refs = [step.ref for step in steps]
    for number, step in enumerate(steps):
        expected = tuple(reversed(refs[max(0, number - 11) : number]))
        assert expected == step.ancestors == tuple(read(thread, step.ref)["payload"]["ancestors"])
    fork = run.fork(7)
    assert tuple(reversed(refs[:7])) == fork.step("z").ancestors
    with eventq.open(thread.path) as other:  # which holds no nodes
        assert tuple(reversed(refs[4:])) == other.runs.get(1).step("z").ancestors


def test_ancestors_are_the_stores_to_say(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 7: nobody passes ancestors, a start or a time; nothing is stored of what tries."""
    before = dump(raw)
    odd: Any = NewStep
    for field in ("ancestors", "start", "timestamp", "depth"):
        with pytest.raises(TypeError):
            odd("a", **{field: []})
        with pytest.raises(InputError, match="is nothing that is extracted"):
            run.step(NewStep("a", extracted={"meta": {}, field: []}))
    assert before == dump(raw)


MISSED: dict[str, Callable[[Thread, Run], object]] = {
    "an artifact": lambda thread, run: run.step(NewStep("a", content="new", refs=[MISSING])),
    "one of many": lambda thread, run: run.step(
        NewStep("a", refs=[thread.blobs.put(b"there").ref, MISSING])
    ),
    "extracted": lambda thread, run: run.step(
        NewStep("a", extracted={"contentPayload": "new", "refs": [MISSING]})
    ),
    "a child": lambda thread, run: run.step(
        NewStep("a", content="new", compact="new too", child=MISSING)
    ),
    "of an attempt": lambda thread, run: run.attempt(NewStep("a", content="new", refs=[MISSING])),
    "of one of its attempts": lambda thread, run: run.step(
        NewStep("a", attempts=[NewStep("a"), NewStep("a", refs=[MISSING])])
    ),
    "a caller": lambda thread, run: thread.runs.start(
        NewRun("new", "new", parent_state=MISSING), label="new"
    ),
    "of what replaces": lambda thread, run: run.poke(content="new", refs=[MISSING]),
}


@pytest.mark.parametrize("what", MISSED)
def test_missing_refs_are_refused(
    thread: Thread, run: Run, raw: apsw.Connection, what: str
) -> None:
    """Row 8: what names a blob that is not there is refused by its name, and nothing of it is stored."""
    thread.blobs.put(b"there")
    grow(run, "a")
    before = dump(raw)
    with pytest.raises(UnknownBlobError) as caught:
        MISSED[what](thread, run)
    assert caught.value.what == f"missing blob {MISSING}"
    after = dump(raw)
    if what == "one of many":  # put by itself, once more
        after["blobs"] = before["blobs"]
    assert before == after
    assert run.step("b").number == 2


def test_content_is_a_node(thread: Thread, run: Run) -> None:
    """Row 9: content is text and refs of artifacts; the step names the content and not the artifacts."""
    put = [thread.blobs.put(b"%d" % n).ref for n in range(3)]
    step = run.step(NewStep("a", content="text", refs=put))
    node = read(thread, step.ref)
    assert set(put) & set(node["refs"]) == set()
    assert {"type": "content", "payload": "text", "refs": put} == read(
        thread, node["payload"]["content"]
    )
    assert tuple(put) == step.artifacts == next(run.replay()).artifacts


@pytest.mark.parametrize("kind", ["state", "content", "start"])
def test_text_that_looks_like_a_node(thread: Thread, run: Run, kind: str) -> None:
    """Row 10: text that looks like a node, or that names blobs, stays text: no refs come of it, wherever it stands."""
    thing = thread.blobs.put(b"a thing").ref
    text = spelled(
        {"type": kind, "payload": {"start": thing, "content": thing}, "refs": [thing]}
    ).decode()
    step = run.step(NewStep("a", {"refs": [thing], "text": text}, text, edge_prompt=text, agent=thing, compact=text, attempts=[NewStep(text)]))  # fmt: skip
    found = next(run.replay())
    assert (text, (), text, {"refs": [thing], "text": text}) == (
        found.content, found.artifacts, found.edge_prompt, found.meta,
    )  # fmt: skip
    assert (text, [found]) == run.chain()
    assert thread.blobs.holders(thing) == []
    assert step == found
    named = thread.runs.start("w", text)
    assert (text, [name_of(text.encode())]) == (
        named.prompt(),
        thread.blobs.refs(named.info().start),
    )


def test_what_was_extracted(thread: Thread, clock: Clock) -> None:
    """Row 11: what an extractor gives is taken in one call, and is the same step as its three parts."""
    thing = thread.blobs.put(b"a thing").ref
    one, other, third = (thread.runs.start("w", "p") for _ in range(3))
    parts = one.step(NewStep("a", {"ok": True}, "text", refs=[thing]))
    version = other.context.info().version
    whole = other.step(
        NewStep("a", extracted={"meta": {"ok": True}, "contentPayload": "text", "refs": [thing]})
    )
    assert (parts.ref, version + 1) == (whole.ref, other.context.info().version)
    assert third.step(NewStep("a", extracted={})).ref == one.fork(0).step("a").ref
    odd: list[dict[str, Any]] = [{"content": "x"}, {"meta": 1, "more": 2}]
    for value in odd:
        with pytest.raises(InputError, match="is nothing that is extracted"):
            third.step(NewStep("a", extracted=value))
    with pytest.raises(InputError, match="content must be text"):
        third.step(NewStep("a", extracted={"contentPayload": {"a": 1}}))
    for words in ({"meta": 1}, {"content": "x"}, {"refs": [thing]}):
        with pytest.raises(UsageError, match="give one of the two"):
            third.step(NewStep("a", extracted={}, **words))
    assert third.info().depth == 1


# --- the end, and other statuses ---


def test_the_end(thread: Thread, run: Run, clock: Clock) -> None:
    """Row 12: an end is a node of role `__end__` with a return code and a summary, 130 when it was cancelled."""
    end = run.end(3, "so so")
    assert (
        end.role, end.meta, end.content, end.number,
    ) == ("__end__", {"returnCode": 3, "summary": "so so"}, "so so", 1)  # fmt: skip
    assert ("completed", AT, end.ref) == (
        run.info().status,
        run.info().completed_at_ms,
        run.info().head,
    )
    second = thread.runs.start("w", "p")
    ended = second.cancel("no more")
    assert (ended.role, ended.meta) == ("__end__", {"returnCode": 130, "summary": "no more"})
    assert ("cancelled", None, ended.ref) == (
        second.info().status, second.info().completed_at_ms, second.info().head,
    )  # fmt: skip
    third = thread.runs.start("w", "p")
    assert third.end().meta == {"returnCode": 0, "summary": ""}


@pytest.mark.parametrize("code", ["0", 1.5, None, True])
def test_return_codes_are_numbers(run: Run, code: Any) -> None:
    """Row 12: a return code is a whole number, or is refused."""
    with pytest.raises(InputError, match="the return code must be a whole number"):
        run.end(code)
    assert run.info().status == "active"


REFUSED: dict[str, Callable[[Run], object]] = {
    "step": lambda run: run.step("a"),
    "step with a key": lambda run: run.step("a", key="new"),
    "attempt": lambda run: run.attempt("a"),
    "poke": lambda run: run.poke(content="x"),
    "compact": lambda run: run.compact("x"),
    "end": lambda run: run.end(),
    "cancel": lambda run: run.cancel(),
    "suspend": lambda run: run.suspend(),
}
STOPS: dict[str, Callable[[Run], object]] = {
    "completed": lambda run: run.end(),
    "cancelled": lambda run: run.cancel(),
    "suspended": lambda run: run.suspend(),
}


def stop(run: Run, status: str) -> None:
    """Give a run a status."""
    if status in STOPS:
        STOPS[status](run)


@pytest.mark.parametrize("status", STOPS)
def test_a_run_that_does_not_go_on(
    thread: Thread, run: Run, raw: apsw.Connection, status: str
) -> None:
    """Rows 13 and 26: a run that ended or was suspended takes nothing until it is resumed; an end stays in the chain."""
    grow(run, "a", "b")
    STOPS[status](run)
    before, head = dump(raw), run.info().head_turn_id
    assert run.info().status == status
    for name, call in REFUSED.items():
        if (name, status) == ("cancel", "suspended"):
            continue  # what was set aside may be given up
        with pytest.raises(ConflictError) as caught:
            call(run)
        assert (f"run 1 is {status}", head) == (caught.value.what, caught.value.actual)
    assert before == dump(raw)
    info = run.resume()
    assert ("active", None, head) == (info.status, info.completed_at_ms, info.head_turn_id)
    assert info == run.info()
    ended = [] if status == "suspended" else [(3, "__end__")]
    step = run.step("c")
    assert [(1, "a"), (2, "b"), *ended, (step.number, "c")] == trail(run)
    run.end()
    assert [(1, "a"), (2, "b"), *ended, (step.number, "c"), (step.number + 1, "__end__")] == trail(
        run
    )


def test_resuming_what_goes_on(run: Run, raw: apsw.Connection) -> None:
    """Row 13: a run that is active is not resumed."""
    before = dump(raw)
    with pytest.raises(ConflictError) as caught:
        run.resume()
    assert (caught.value.what, caught.value.actual) == ("run 1 is active", 1)
    assert before == dump(raw)


def test_runs_that_call_runs(thread: Thread, clock: Clock, raw: apsw.Connection) -> None:
    """Row 14: a start names the caller's step and a step the end of the run it called; both keep what they name."""
    caller = thread.runs.start("outer", "p")
    asked = caller.step("a", content="the asking")
    called = thread.runs.start(NewRun("inner", "q", parent_state=asked.ref, depth=1))
    called.step("b", content="inner work")
    end = called.end()
    done = caller.step(NewStep("a", child=end.ref))
    assert (end.ref, asked.ref) == (done.child, called.start_node().parent_state)
    assert asked.ref in thread.blobs.refs(called.info().start)
    assert end.ref in thread.blobs.refs(done.ref)
    inner = {step.ref for step in called.replay()} | {called.info().start}
    called.context.delete()
    clock.move(2 * DAY)
    assert thread.gc(apply=True).turns == 3
    assert all(thread.blobs.has(ref) for ref in inner)
    second = thread.runs.start(NewRun("inner", "q", parent_state=done.ref))
    outer = {step.ref for step in caller.replay()}
    caller.context.delete()
    clock.move(2 * DAY)
    thread.gc(apply=True)
    assert all(thread.blobs.has(ref) for ref in outer | inner)
    second.context.delete()
    clock.move(2 * DAY)
    thread.gc(apply=True)
    assert counts(raw)["blobs"] == 0


def test_reading_the_chain(run: Run) -> None:
    """Row 15: the chain is read from the start to the head; ends are left out of what a model is to know."""
    grow(run, "a", "b")
    run.end()
    run.resume()
    grow(run, "c")
    run.cancel()
    every = ["a", "b", "__end__", "c", "__end__"]
    assert every == [step.role for step in run.replay()]
    assert [step.number for step in run.replay()] == [1, 2, 3, 4, 5]
    assert every[2:] == [step.role for step in run.replay(3)]
    assert list(run.replay(6)) == []
    compact, steps = run.chain()
    assert (compact, [step.role for step in steps], [step.number for step in steps]) == (
        "",
        ["a", "b", "c"],
        [1, 2, 4],
    )
    assert "__end__" not in json.dumps(run.messages("tester"))


def test_a_long_chain_is_read_in_order(thread: Thread, run: Run) -> None:
    """Row 15: a chain that is longer than any page is read whole, from any step on."""
    with thread.write():
        grow(run, *("ab" * 300))
    assert list(range(1, 601)) == [step.number for step in run.replay()]
    assert [str(number) for number in range(600)] == [step.content for step in run.replay()]
    assert list(range(257, 601)) == [step.number for step in run.replay(257)]


# --- old nodes, foreign turns, damage ---


def nodes_of(run: Run) -> list[Step]:
    """Give the steps of a run."""
    return list(run.replay())


class Elsewhere:
    """A run whose nodes are written by a program of another age: by hand, on a context that becomes a run at last."""

    def __init__(self, thread: Thread, **more: Any) -> None:
        """Begin with a start without any field that it can do without."""
        self.thread = thread
        self.context = thread.contexts.create()
        prompt = thread.blobs.put(b"p").ref
        self.start = self.plant("eventq.start", "start", {"name": "old", **more}, [prompt]).ref
        self.refs: list[str] = []

    def plant(
        self, type_id: str, kind: str, payload: object, refs: list[str], version: int = 1
    ) -> eventq.Turn:
        """Append a node."""
        data = spelled({"type": kind, "payload": payload, "refs": refs})
        return self.context.append(NewTurn(data, type_id=type_id, type_version=version, refs=refs))

    def step(self, version: int = 1, **more: Any) -> str:
        """Append a step without any field that it can do without, and give its ref."""
        content = self.thread.blobs.put(
            spelled({"type": "content", "payload": "old", "refs": []})
        ).ref
        before = self.refs[::-1][:11]
        payload = {
            "role": "old",
            "start": self.start,
            "content": content,
            "ancestors": before,
            **more,
        }
        refs = [self.start, content, *before]
        self.refs.append(self.plant("eventq.state", "state", payload, refs, version).ref)
        return self.refs[-1]

    def run(self) -> Run:
        """Make it a run."""
        sql = "INSERT INTO runs (context_id, name, grouped, start_id) VALUES (?, 'old', '', ?)"
        with self.thread.write():
            self.thread.database.run(sql, (self.context.id, self.context.ancestor(0)))
        return self.thread.runs.get(self.context.id)


def test_old_nodes(thread: Thread) -> None:
    """Row 16: nodes without fields that came later read with their defaults; those with unknown ones read too."""
    elsewhere = Elsewhere(thread, later=[1])
    refs = [
        elsewhere.step(version=0),
        elsewhere.step(version=99, meta={"m": 1}, timestamp=5, compact=None, future={"x": 1}),
    ]
    run = elsewhere.run()
    first, second = run.replay()
    assert (
        first.role, first.meta, first.content, first.artifacts, first.edge_prompt, first.agent, first.timestamp,
        first.ancestors, first.compact, first.attempts, first.child,
    ) == ("old", None, "old", (), "", "", 0, (), None, (), None)  # fmt: skip
    assert ({"m": 1}, 5, "", (refs[0],)) == (
        second.meta,
        second.timestamp,
        second.edge_prompt,
        second.ancestors,
    )
    assert (
        run.prompt(), run.start_node().system, run.start_node().more, run.start_node().max_rounds,
    ) == ("p", {}, {"later": [1]}, 0)  # fmt: skip
    assert (*refs[::-1],) == run.step("new").ancestors
    assert [step.number for step in run.replay()] == [1, 2, 3]
    user = run.messages("old")
    assert [message["role"] for message in user] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert (user[0]["content"], user[1]["content"]) == ("p", "")
    assert [run.id] == ids(thread.runs.active())


def test_turns_of_other_types(path: str) -> None:
    """Row 16: turns of types that are no steps are listed among the turns and are not fatal to reading or going on."""
    with eventq.open(path) as thread:
        elsewhere = Elsewhere(thread)
        first = elsewhere.step()
        elsewhere.context.append(NewTurn(b"a note", type_id="eventq.future"))
        run = elsewhere.run()
        assert [turn.depth for turn in run.context.replay() if turn.type_id == "eventq.future"] == [
            2
        ]
        assert [(step.number, step.role) for step in run.replay()] == [(1, "old"), (2, "")]
        assert [step.number for step in run.chain()[1]] == [1, 2]
        assert [step.meta for step in run.replay()][1] == {"type": "eventq.future", "version": 1}
        assert len(run.messages("old")) == 4
        assert [run.id] == ids(thread.runs.active())
        assert thread.check() == []
        assert (3, (first,)) == ((step := run.step("a")).number, step.ancestors)


def test_a_run_takes_steps_only(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 7: a turn that is no step is not appended to the context of a run behind the store's back."""
    before = dump(raw)
    with pytest.raises(ConflictError, match="context 1 is that of a run, whose turns are steps"):
        run.context.append(b"a note")
    assert before["turns"] == dump(raw)["turns"]
    assert run.info().depth == 0


def test_one_bad_run_breaks_no_list(path: str) -> None:
    """Rows 16 and 17: lists of runs do not read nodes: one whose nodes are damaged is in them, and others are read."""
    with eventq.open(path) as thread:
        bad, good = thread.runs.start("bad", "p" * 3000), thread.runs.start("good", "q")
        step = bad.step("a", content="x" * 3000)
        grow(good, "a")
        infos = list(thread.runs)
        entries = list(thread.runs.index_entries())
        texts = [bad.info().start, step.ref]
    for ref in texts:
        spoil(path, ref)
    with eventq.open(path) as thread:
        assert infos == list(thread.runs) == list(thread.runs.active()) == list(thread.runs.list())
        assert entries == list(thread.runs.index_entries())
        assert [step.content for step in thread.runs.get(2).replay()] == ["0"]
        assert len(thread.runs.get(2).messages("a")) == 4
        for call in (
            lambda run: list(run.replay()),
            lambda run: run.read(),
            lambda run: run.messages("a"),
        ):
            with pytest.raises(DamagedError, match="blob:blake3:"):
                call(thread.runs.get(1))
        assert any(texts[1] in fault for fault in thread.check())


def read_all(run: Run) -> list[Callable[[], object]]:
    """Give the ways to read the steps of a run."""
    return [lambda: list(run.replay()), run.chain, lambda: run.messages("a"), run.read, run.fork]


def three(path: str) -> list[Step]:
    """Make a run of three steps, whose second is to be damaged."""
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "p")
        return [run.step("a", content=f"{number}" * 3000) for number in (1, 2, 3)]


@pytest.mark.parametrize("what", ["node", "content"])
def test_damage_names_hash_and_depth(path: str, what: str) -> None:
    """Rows 15 and 17: bytes of a step that are damaged are never given; the error names their hash and the step."""
    steps = three(path)
    ref = (
        steps[1].ref
        if what == "node"
        else name_of(spelled({"type": "content", "payload": "2" * 3000, "refs": []}))
    )
    spoil(path, ref)
    with eventq.open(path) as thread:
        for call in read_all(thread.runs.get(1)):
            with pytest.raises(DamagedError) as caught:
                call()
            assert ref in caught.value.what
            assert ("step 2 " if what == "content" else "(depth 2)") in caught.value.what


@pytest.mark.parametrize("what", ["node", "content"])
def test_damage_is_never_given(path: str, what: str) -> None:
    """Row 17: bytes of a step that are damaged are never given; the error names their hash, and so does a check."""
    steps = three(path)
    ref = (
        steps[1].ref
        if what == "node"
        else name_of(spelled({"type": "content", "payload": "2" * 3000, "refs": []}))
    )
    spoil(path, ref)
    with eventq.open(path) as thread:
        for call in read_all(thread.runs.get(1)):
            with pytest.raises(DamagedError) as caught:
                call()
            assert ref in caught.value.what
        assert any(ref in fault for fault in thread.check())
        assert thread.runs.get(1).info().depth == 3


def test_a_missing_content(path: str) -> None:
    """Rows 15 and 69: a step whose content is not there is an error that names the hash and the step's number."""
    three(path)
    ref = name_of(spelled({"type": "content", "payload": "2" * 3000, "refs": []}))
    alter(path, f"DELETE FROM blobs WHERE hash = x'{ref[12:]}'")
    with eventq.open(path) as thread:
        for call in read_all(thread.runs.get(1)):
            with pytest.raises(DamagedError) as caught:
                call()
            assert caught.value.what == f"step 2 of run 1: missing blob {ref}"
        assert thread.check() != []


def test_a_missing_node(path: str) -> None:
    """Row 15: a step whose node is not there is an error that names the step's number."""
    ref = three(path)[1].ref
    alter(path, f"DELETE FROM blobs WHERE hash = x'{ref[12:]}'")
    with eventq.open(path) as thread:
        for call in read_all(thread.runs.get(1)):
            with pytest.raises(DamagedError, match=r"\(depth 2\)"):
                call()


def test_a_missing_turn(path: str) -> None:
    """Row 15: a chain with a turn missing is an error, never a shorter chain; a check says it."""
    three(path)
    alter(path, "DELETE FROM turns WHERE turn_id = 3")
    with eventq.open(path) as thread:
        assert thread.check() != []
        for call in read_all(thread.runs.get(1)):
            with pytest.raises(StoreError):
                call()


# --- lists and statuses ---


def test_the_active_list(thread: Thread, clock: Clock) -> None:
    """Row 18: the active list holds the runs under way: head, start and time of the last change, of a group or of all."""
    first = thread.runs.start(NewRun("one", "p", group="g"))
    clock.move(1)
    second = thread.runs.start(NewRun("two", "q", group="h"), label="second")
    third = thread.runs.start(NewRun("three", "r", group="g"))
    clock.move(1)
    step = first.step("a")
    second.suspend()
    third.end()
    start = first.info().start
    assert [
        RunInfo(1, "one", "g", "active", 4, 1, step.ref, start, None, AT + 2000, None),
        RunInfo(
            2, "two", "h", "suspended", 2, 0, second.info().start, second.info().start, None, AT + 2000, None
        ),
    ] == list(thread.runs.active())  # fmt: skip
    assert tuple(ids(thread.runs.active(group)) for group in ("g", "h", "")) == ([1], [2], [])
    assert (ids(thread.runs.list()), ids(thread.runs.list("g"))) == ([1, 2, 3], [1, 3])
    expected = f'{{"threadId":"1","head":"{step.ref}","start":"{start}","updatedAt":{AT + 2000}}}'
    assert [expected] == list(thread.runs.index_entries("g"))
    assert [entry["threadId"] for entry in told(thread.runs.index_entries())] == ["1", "2"]
    assert repr(first) == "<eventq.Run 1>"


def test_long_lists(thread: Thread) -> None:
    """Row 18: lists of any length are whole, in pages that do not show, by id."""
    with thread.write():
        for number in range(2005):
            run = thread.runs.start(NewRun("w", "p", group=f"{number % 2}"))
            if number % 5 == 0:
                run.end()
    assert list(range(1, 2006)) == ids(thread.runs.list())
    assert [number for number in range(1, 2006) if number % 5 != 1] == ids(thread.runs.active())
    day = next(thread.runs.list()).completed_at_ms
    assert day is not None
    (today,) = thread.database.run(
        "SELECT DISTINCT completed_on FROM runs WHERE completed_on IS NOT NULL"
    )[0]
    assert list(range(1, 2006, 5)) == ids(thread.runs.history(today))
    assert list(range(1, 2006, 10)) == ids(thread.runs.history(today, "0"))


def test_history_by_day(thread: Thread, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 20: a run that was completed is in the history of the day of UTC, and in no other; a cancelled one in none."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    runs = [
        thread.runs.start(NewRun("w", f"{number}", group="g" if number else ""))
        for number in range(4)
    ]
    clock.at = 1773878399.999
    first = runs[0].end()
    clock.at = 1773878400.0
    second = runs[1].end()
    runs[2].cancel()
    assert [info.status for info in thread.runs] == [
        "completed",
        "completed",
        "cancelled",
        "active",
    ]
    assert (ids(thread.runs.history("2026-03-18")), ids(thread.runs.history("2026-03-19"))) == (
        [1],
        [2],
    )
    assert (
        ids(thread.runs.history("2026-03-18", "g")),
        ids(thread.runs.history("2026-03-19", "g")),
    ) == ([], [2])
    assert ids(thread.runs.history("2026-03-20")) == []
    starts = [info.start for info in thread.runs]
    assert [
        f'{{"threadId":"1","head":"{first.ref}","start":"{starts[0]}","completedAt":1773878399999}}'
    ] == list(thread.runs.history_entries("2026-03-18"))  # fmt: skip
    assert [
        f'{{"threadId":"2","head":"{second.ref}","start":"{starts[1]}","completedAt":1773878400000}}'
    ] == list(thread.runs.history_entries("2026-03-19"))  # fmt: skip
    runs[0].resume()
    assert (ids(thread.runs.history("2026-03-18")), ids(thread.runs.active())) == ([], [1, 4])
    clock.move(3 * DAY)
    runs[0].end()
    assert ids(thread.runs.history("2026-03-22")) == [1]


@pytest.mark.parametrize(
    "day", ["", "2026-3-18", "18.03.2026", "2026-03-18T00", "2026/03/18", "x", 20260318, None]
)
def test_days_are_checked(thread: Thread, day: Any) -> None:
    """Row 20: what is no day is refused."""
    for look in (thread.runs.history, thread.runs.history_entries):
        with pytest.raises(UsageError, match="is no day"):
            list(look(day))


def test_completing_is_one_change(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 21: completing is one move and one event; later reads of the history change nothing, nor does a second end."""
    grow(run, "a")
    version, events = run.context.info().version, thread.last_id()
    run.end(source="self")
    assert (version + 1, events + 1) == (run.context.info().version, thread.last_id())
    before = dump(raw)
    list(thread.runs.history("2026-03-18"))
    with pytest.raises(ConflictError):
        run.end(source="self")
    assert (before, [], []) == (
        dump(raw),
        ids(thread.runs.active()),
        list(thread.runs.index_entries()),
    )


def test_statuses(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 26: there are four statuses, the table refuses others; a suspended run is listed as active."""
    run.suspend()
    assert ids(thread.runs.active()) == [1]
    for status in ("", "ended", "Active", "completed"):  # completed: without a time
        with pytest.raises(apsw.ConstraintError):
            raw.execute("UPDATE runs SET status = ?", (status,))
    with pytest.raises(apsw.ConstraintError):
        raw.execute("UPDATE runs SET completed_at_ms = 5")
    with pytest.raises(apsw.ConstraintError):
        raw.execute("UPDATE runs SET status = NULL")
    assert run.info().status == "suspended"


def test_moves_are_logged(thread: Thread, clock: Clock) -> None:
    """Row 27: each change of a head is logged, and the head of a run that was deleted is found again."""
    run = thread.runs.start("w", "p")
    grow(run, "a", "b")
    run.suspend()
    run.resume()
    run.poke(content="B")
    end = run.end()
    expected = [
        Move(0, "create", 0, 0, AT), Move(1, "append", 0, 1, AT), Move(2, "append", 1, 2, AT),
        Move(3, "append", 2, 3, AT), Move(4, "suspend", 3, 3, AT), Move(5, "resume", 3, 3, AT),
        Move(6, "move", 3, 2, AT), Move(7, "append", 2, 4, AT), Move(8, "append", 4, 5, AT),
    ]  # fmt: skip
    assert expected == list(run.context.history())
    run.context.delete()
    assert [*expected, Move(9, "delete", 5, 0, AT)] == list(thread.contexts.history(1))
    assert end.ref == thread.contexts.turn(5).ref


def test_deleting_a_run(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 29: deleting a run deletes its rows only, no blob and no turn; what stands for it then finds nothing."""
    grow(run, "a")
    run.attempt("a")
    run.fork()
    before = counts(raw)
    run.context.delete()
    after = counts(raw)
    assert {
        table: after[table] - before[table] for table in after if after[table] != before[table]
    } == {
        "contexts": -1,
        "runs": -1,
        "context_log": 2,
    }
    assert ids(thread.runs.list()) == [2]
    calls: list[Callable[[], object]] = [
        run.info, lambda: run.step("a"), run.end, run.resume, lambda: run.messages("a"), lambda: thread.runs.get(1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(LogicError, match=r"there is no (run|context) '1'"):
            call()


def test_finding_a_run(thread: Thread, run: Run) -> None:
    """Row 18: a run is found by id or label; a context that is no run is none."""
    named = thread.runs.start("w", "p", label="named")
    thread.contexts.create("plain")
    assert (1, named.id, named.id) == tuple(
        thread.runs.get(which).id for which in ("1", "named", 2)
    )
    for which in ("plain", 3):
        with pytest.raises(UnknownRunError) as caught:
            thread.runs.get(which)
        assert f"there is no run '{which}'" == caught.value.what
    with pytest.raises(ConflictError, match="the name 'named' is taken by context 2"):
        thread.runs.start("w", "another prompt", label="named")
    assert not thread.blobs.has(name_of(b"another prompt"))


# --- many writers, crashes, and a damaged index ---


def test_two_writers(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 22: of two writers that expect the same head one wins, and the other is told the head there is."""
    grow(run, "a")
    with eventq.open(thread.path) as other:
        theirs = other.runs.get(1)
        first = theirs.step("b", content="theirs", expected_head=2)
        before = dump(raw)
        with pytest.raises(ConflictError) as caught:
            run.step(
                NewStep(
                    "b", content="mine", refs=[first.ref], compact="new", attempts=[NewStep("x")]
                ),
                expected_head=2,
            )
        assert ("the head of context 1 is turn 3, not 2", first.turn_id) == (
            caught.value.what,
            caught.value.actual,
        )
        assert before == dump(raw)
        second = run.step("b", content="mine", expected_head=caught.value.actual)
        theirs.end()
        with pytest.raises(ConflictError, match="run 1 is completed") as caught:
            run.step("c", expected_head=second.turn_id)
        assert caught.value.actual == 5
    assert [step.content for step in run.replay()] == ["0", "theirs", "mine", ""]


STEPS = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    own, one = thread.runs.get(int(sys.argv[2])), thread.runs.get(1)
    say("go")
    sys.stdin.read(1)
    for n in range(20):
        own.step("r", n, f"{sys.argv[2]} {n}")
        one.step(sys.argv[2], n, "shared")
"""


def test_many_processes(thread: Thread, run: Run) -> None:
    """Row 23: processes that take steps of their own runs and of one together lose none, and each follows the last."""
    which = [thread.runs.start("w", f"{n}").id for n in range(3)]
    writers = [start(STEPS, thread.path, str(number), stdin=subprocess.PIPE) for number in which]
    for writer in writers:
        read_lines(writer, 1)
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"x")
        writer.stdin.flush()
    for writer in writers:
        assert (writer.communicate(timeout=120)[1], writer.returncode) == (b"", 0)
    for number in which:
        steps = nodes_of(thread.runs.get(number))
        assert [f"{number} {n}" for n in range(20)] == [step.content for step in steps]
    steps = nodes_of(run)
    assert sorted((str(number), n) for number in which for n in range(20)) == sorted(
        (step.role, step.meta) for step in steps
    )
    assert list(range(1, 61)) == [step.number for step in steps]
    assert [step.ref for step in steps[:-1]] == [step.ancestors[0] for step in steps[1:]]


ENDS = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    runs = thread.runs
    known = [info.run_id for info in runs.active()]
    say("go")
    fall(int(sys.argv[2]))
    for n in range(100000):
        run = runs.start(eventq.NewRun("w", f"{sys.argv[3]} {n}", group="killed"))
        say(f"start {run.id}")
        step = run.step(eventq.NewStep("a", n, "x" * (n % 7 * 300), edge_prompt="go"))
        say(f"step {run.id} {step.ref}")
        if n % 3 == 0 and known:
            run = runs.get(known.pop())
        say(f"end {run.id} {run.end(n, source='self').ref}")
        if n % 4 == 0:
            run.resume()
            say(f"resume {run.id} -")
"""


def test_completing_is_one_moment(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 19 and 24: after each of nine kills a run is in one of the lists, never in both or neither, as its head
    says; what was acknowledged is there, and there is an event for each end.
    """  # noqa: D205
    monkeypatch.delenv("EVENTQ_SYNCHRONOUS")
    said: dict[int, tuple[str, str]] = {}
    for number, (count, call) in enumerate(
        zip(numbers(7, 9, 1, 40), numbers(8, 9, 100, 20_000), strict=True)
    ):
        by_call = number % 2
        process = start(ENDS, thread.path, str(int(call) if by_call else 0), str(number))
        out = read_lines(process, None if by_call else 1 + int(count)) + kill(process)
        for line in out.decode().split("\n")[1:-1]:
            word, which, ref = (*line.split(), "-")[:3]
            said[int(which)] = (word, ref)
        infos = {info.run_id: info for info in thread.runs}
        days = {
            info.completed_at_ms // (DAY * 1000)
            for info in infos.values()
            if info.completed_at_ms is not None
        }
        shown = [
            f"{row[0]}"
            for row in thread.database.run(
                "SELECT DISTINCT completed_on FROM runs WHERE status = 'completed'"
            )
        ]
        assert len(days) == len(shown)
        active, history = (
            ids(thread.runs.active()),
            [one for day in shown for one in ids(thread.runs.history(day))],
        )
        assert sorted([*active, *history]) == list(infos)
        ended = 0
        for run_id, info in infos.items():
            steps = nodes_of(thread.runs.get(run_id))
            ends = [step for step in steps if step.role == "__end__"]
            ended += len(ends)
            assert len(steps) == info.depth
            assert info.status == "active" or steps[-1].role == "__end__"
            resumed = "resume" in [move.op for move in thread.contexts.history(run_id)]
            assert bool(ends) == (info.status == "completed" or resumed)
        assert ended == thread.last_id()
        for run_id, (word, ref) in said.items():
            assert run_id in infos
            assert ref == "-" or ref in {step.ref for step in thread.runs.get(run_id).replay()}
            if (
                word == "end"
            ):  # nobody resumes it later without saying so, but for what was under way
                assert (
                    run_id in history
                    or thread.runs.get(run_id).context.info().version > infos[run_id].depth + 1
                )
        assert [*thread.database.turns.faults(), *thread.blobs.faults()] == []
    assert said
    assert thread.push("self", "note", "the next push, which makes the mirror whole").id > 1


ENDS_ONCE = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    run = thread.runs.start("w", sys.argv[2])
    run.step("a", content="x")
    left = [int(sys.argv[2])]
    def count(cursor, sql, bindings):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        return True
    thread.database.connection.exec_trace = count
    run.end(source="self")
    say("done")
"""


def test_completing_has_no_half(thread: Thread) -> None:
    """Row 19: killed at each of the statements of an end, one by one, a run is active without an end, or completed with
    one and its event, and nothing between.
    """  # noqa: D205
    said, number = b"", 0
    while b"done" not in said:
        number += 1
        process = start(ENDS_ONCE, thread.path, str(number))
        said = read_lines(process) + kill(process)
        info = thread.runs.get(number).info()
        day = (
            f"{thread.database.run('SELECT completed_on FROM runs ORDER BY context_id DESC')[0][0]}"
        )
        history = [] if info.completed_at_ms is None else ids(thread.runs.history(day))
        ends = [step.number for step in thread.runs.get(number).replay() if step.role == "__end__"]
        assert (info.status, ends, number in ids(thread.runs.active()), number in history, thread.last_id() > 0) in (
            ("active", [], True, False, False), ("completed", [2], False, True, True),
        )  # fmt: skip
        if info.status == "completed":
            break
    assert 5 < number < 60
    thread.push("self", "note", "the next push, which makes the mirror whole")


@pytest.mark.parametrize("table", ["runs", "runs_active", "runs_by_day"])
def test_a_damaged_index_is_loud(path: str, table: str) -> None:
    """Row 25: a damaged table or index of runs is an error, never an empty list, and nothing is collected then."""
    with eventq.open(path) as thread:
        with thread.write():
            for _ in range(5):
                thread.runs.start("w", "p")
                thread.runs.start("w", "p").end()
        thread.blobs.put(b"an orphan")
        (day,) = thread.database.run(
            "SELECT DISTINCT completed_on FROM runs WHERE completed_on IS NOT NULL"
        )[0]
        looks: dict[str, Callable[[Thread], object]] = {
            "runs": lambda thread: [*thread.runs.list(), *thread.runs.active()],
            "runs_active": lambda thread: list(thread.runs.active()),
            "runs_by_day": lambda thread: list(thread.runs.history(day)),
        }
    raw = apsw.Connection(os.path.join(path, "events.db"))
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    ((page,),) = raw.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
    ).fetchall()
    size = raw.pragma("page_size")
    raw.close()
    assert isinstance(page, int)
    assert isinstance(size, int)
    with open(os.path.join(path, "events.db"), "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with eventq.open(path) as thread:
        with pytest.raises(StoreError):
            looks[table](thread)
        assert thread.check() != []
        with pytest.raises(StoreError):
            thread.gc(apply=True, grace=0)
        assert thread.blobs.has(name_of(b"an orphan"))


# --- attempts and what is replaced ---


def test_attempts(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 28: a failed attempt is stored and named by the next step, in order, and moves nothing."""
    grow(run, "a")
    before = run.info()
    thing = thread.blobs.put(b"a thing").ref
    first = run.attempt(
        NewStep("b", {"try": 1}, "failed", refs=[thing], edge_prompt="do", agent="x")
    )
    second = run.attempt("c", content="failed too")
    assert before == run.info()
    assert [step.role for step in run.replay()] == ["a"]
    node = read(thread, first)["payload"]
    assert ("b", {"try": 1}, "do", "x", run.info().start, [run.info().head]) == tuple(
        node[name] for name in ("role", "meta", "edgePrompt", "agent", "start", "ancestors")
    )
    assert {"type": "content", "payload": "failed", "refs": [thing]} == read(
        thread, node["content"]
    )
    step = run.step(NewStep("b", attempts=[NewStep("b", content="third")]))
    (third,) = set(step.attempts) - {first, second}
    assert (first, second, third) == step.attempts == next(run.replay(2)).attempts
    assert run.step("b").attempts == ()
    assert raw.execute("SELECT parent_id FROM run_attempts").fetchall() == [(2,), (2,), (2,)]
    failed = run.attempt("z")
    assert failed == run.end().attempts[0]


def test_a_poke(thread: Thread, run: Run) -> None:
    """Row 66: the last step is replaced by one of its role and edge prompt; the old one is kept as an attempt of it."""
    steps = [
        run.step("a", content="1"),
        run.step(NewStep("b", {"v": 1}, "old", edge_prompt="do\n it ", agent="x")),
    ]
    messages = run.messages("b")
    new = run.poke({"v": 2}, "new")
    assert (2, "b", {"v": 2}, "new", "do\n it ", "x", (steps[1].ref,), (steps[0].ref,)) == (
        new.number, new.role, new.meta, new.content, new.edge_prompt, new.agent, new.attempts, new.ancestors,
    )  # fmt: skip
    assert [steps[0], new] == list(run.replay())
    assert messages[:2] == run.messages("b")[:2]
    newer = run.poke(content="newer", edge_prompt="other", agent="y")
    assert ("other", "y", (steps[1].ref, new.ref)) == (
        newer.edge_prompt,
        newer.agent,
        newer.attempts,
    )
    assert run.poke(edge_prompt="", agent="").edge_prompt == ""
    assert read(thread, read(thread, steps[1].ref)["payload"]["content"])["payload"] == "old"
    events = thread.last_id()
    run.poke(source="self")
    assert events + 1 == thread.last_id()


def test_what_cannot_be_replaced(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 66: the start, an end and a compaction are not replaced; a poke that is refused leaves all as it was."""
    for head, prepare in (
        (1, lambda: None),
        (2, lambda: run.compact("sum")),
        (3, lambda: (run.end(), run.resume())),
    ):
        prepare()
        before = dump(raw)
        with pytest.raises(ConflictError) as caught:
            run.poke(content="x")
        assert ("run 1 has no last step to replace", head) == (
            caught.value.what,
            caught.value.actual,
        )
        assert before == dump(raw)
    run.step("a")
    before = dump(raw)
    with pytest.raises(InputError):
        run.poke({"bad": {1, 2}})
    assert before == dump(raw)


def test_a_poke_keeps_what_hangs_on_the_step(path: str) -> None:
    """Rows 14 and 46: the step that replaces another keeps its compaction and its child, as it was not asked to drop them."""
    with eventq.open(path) as thread:
        child = thread.runs.start("inner", "q").end()
        run = thread.runs.start("w", "p")
        grow(run, "a")
        old = run.step(NewStep("b", compact="sum", child=child.ref))
        new = run.poke(content="again")
        assert (old.compact, old.child, "sum") == (new.compact, new.child, run.chain()[0])


def test_overlays_do_not_show(path: str) -> None:
    """Row 37: an overlay on a step does not show in what a run reads, nor in what replaces the step."""
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "p")
        step = run.step("a", content="1")
        run.context.tombstone(step.turn_id)
        assert [step] == list(run.replay())
        assert (step.ref,) == run.poke(content="2").attempts


# --- forks ---


def test_a_fork_is_a_row(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 38: a fork at any step is a row of contexts and one of runs: no blob, no turn, no byte of a payload."""
    grow(run, *"abcab")
    expected = counts(raw)
    for at in range(6):
        fork = run.fork(at)
        expected["contexts"] += 1
        expected["runs"] += 1
        assert expected == counts(raw)
        info = fork.info()
        assert (at, at + 1, run.info().start, "active", 1, "solve") == (
            info.depth, info.head_turn_id, info.start, info.status, info.fork_of, info.name,
        )  # fmt: skip
        assert nodes_of(run)[:at] == nodes_of(fork)
        assert run.prompt() == fork.prompt()


def test_a_fork_goes_its_own_way(thread: Thread, run: Run) -> None:
    """Rows 39 and 42: a fork's first step follows the fork point; the one it came from is as it was, and may go."""
    steps = grow(run, *"abc")
    before = run.info()
    fork = run.fork(2, label="fork")
    mine = fork.step("x", content="mine")
    assert (3, (steps[1].ref, steps[0].ref)) == (mine.number, mine.ancestors)
    assert (before, steps) == (run.info(), list(run.replay()))
    assert [*steps[:2], mine] == list(fork.replay())
    assert (fork.info().fork_of, fork.context.info().base_turn_id) == (1, 3)
    run.context.delete()
    assert (fork.info().fork_of, fork.context.info().base_turn_id) == (None, 3)
    assert [*steps[:2], mine] == list(thread.runs.get("fork").replay())
    thread.gc(apply=True, grace=0)
    assert [*steps[:2], mine] == list(fork.replay())


def test_where_a_fork_begins(run: Run) -> None:
    """Row 40: by role at its first step, without one at the second to last, with a single step at the start."""
    run.step("a")
    assert (run.fork().info().depth, run.fork(role="a").info().depth) == (0, 1)
    run.compact("sum")
    assert run.fork().info().depth == 0  # what a compaction says is no step
    run.step("b")
    run.step("a")
    run.end()
    assert run.fork().info().depth == 3
    run.resume()
    run.step("c")
    run.cancel()
    assert run.fork().info().depth == 4
    assert [run.fork(role=role).info().depth for role in "abc"] == [1, 3, 6]


def test_a_fork_far_from_steps(thread: Thread, run: Run) -> None:
    """Row 40: the second-to-last step is found however far above the head it is."""
    grow(run, "a", "b")
    with thread.write():
        for _ in range(120):
            run.compact("sum")
    assert run.fork().info().depth == 1


def test_forks_that_are_refused(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 41: a role that took no step, and a run without steps, are refused in these words."""

    def refused(**words: Any) -> str:
        with pytest.raises((LogicError, UsageError)) as caught:
            run.fork(**words)
        return caught.value.what

    none = "thread has no completed role steps to fork from"
    assert (none, none) == (refused(), refused(role="a"))
    run.compact("sum")
    assert (none, none) == (refused(), refused(role="__compact__"))
    grow(run, "b", "a", "b")
    run.end()
    before = dump(raw)
    for role in ("x", "__end__", "__compact__", "B"):
        assert f"role not found in thread: {role} (available: b, a)" == refused(role=role)
    assert refused(at=9) == "run 1 has no step 9"
    assert refused(at=5) == "step 5 of run 1 is its end"
    assert refused(at=1, role="a") == "a fork takes a step's number or a role, and not both"
    with pytest.raises(UsageError, match="at must be a whole number"):
        run.fork(-1)
    thread.contexts.create("taken")
    before = dump(raw)
    assert refused(at=1, label="taken") == "the name 'taken' is taken by context 2"
    assert before == dump(raw)


@pytest.mark.parametrize("status", STOPS)
def test_a_fork_of_what_ended(thread: Thread, run: Run, status: str) -> None:
    """Row 43: a fork of a run that ended or was suspended is active, and that run stays as it is."""
    grow(run, "a", "b")
    STOPS[status](run)
    fork = run.fork()
    assert ("active", None, status) == (
        fork.info().status,
        fork.info().completed_at_ms,
        run.info().status,
    )
    assert fork.step("b").number == 2
    assert 2 in ids(thread.runs.active())


def test_attempts_and_forks(thread: Thread, run: Run) -> None:
    """Rows 28 and 42: attempts are kept with the turn that they came after: who goes on from there names them."""
    grow(run, "a")
    failed = run.attempt("b")
    fork = run.fork(1)
    assert (failed,) == run.step("b").attempts == fork.step("c").attempts
    assert run.fork(2).step("c").attempts == ()


# --- compaction ---


def test_compaction(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Rows 44, 45, 46, 47: models are shown the summary and what comes from that node on; nothing goes, numbers stay."""
    before = grow(run, "a", "b")
    assert ("", before) == run.chain()
    marker = run.compact("What happened: ☃")
    after = grow(run, "b", "a")
    assert ("What happened: ☃", [marker, *after]) == run.chain()
    assert ("__compact__", name_of("What happened: ☃".encode())) == (marker.role, marker.compact)
    assert [*before, marker, *after] == list(run.replay())
    assert "### Step 4: b\n" in run.messages("a")[1]["content"]
    second = run.step(NewStep("a", content="with it", compact="Second"))
    last = run.step("b")
    assert ("Second", [second, last]) == run.chain()
    assert ("What happened: ☃", [marker, *after]) == run.fork(5).chain()
    assert ("What happened: ☃", [marker]) == run.fork(3).chain()
    assert ("", before) == run.fork(2).chain()
    assert name_of(b"Second") in thread.blobs.refs(second.ref)
    run.end()
    assert ("Second", [second, last]) == run.chain()
    messages = run.messages("b")
    assert (
        "Second\n\n## What Happened Since Your Last Turn\n\n### Step 6: a\n"
        in messages[1]["content"]
    )
    assert "What happened: ☃" not in json.dumps(messages, ensure_ascii=False)
    with eventq.open(thread.path) as other:
        assert run.chain() == other.runs.get(1).chain()
        assert messages == other.runs.get(1).messages("b")


def test_an_empty_compaction(run: Run) -> None:
    """Row 44: a summary without text is one too: what was before it is not shown."""
    grow(run, "a")
    run.compact("")
    assert [step.role for step in run.chain()[1]] == ["__compact__"]
    assert [message["role"] for message in run.messages("a")] == ["system", "user"]


# --- the task, and the roles ---


@pytest.mark.parametrize(
    "text", ["commit", "Write code, then commit.", "commitment", "", "COMMIT", "commit\n\ncommit"]
)
@pytest.mark.parametrize("told", [False, True])
def test_the_task_is_stated_unless_the_start_says_that_it_is(
    thread: Thread, text: str, told: bool
) -> None:
    """Row 71: whatever a role's text holds, the task is added to it, or not when the start says so; nothing is guessed."""
    run = thread.runs.start(
        NewRun("w", "commit", system={"a": text, "b": "B"}, task_in_system=told)
    )
    whole = "\n\n".join(filter(None, [text, "commit"]))
    left_out = told and text != ""  # no text states no task
    run.step("c")
    for one in (run, run.fork(0), run.fork(1)):
        assert one.messages("a")[0] == {"role": "system", "content": text if left_out else whole}
    assert run.messages("c")[0] == {"role": "system", "content": "commit"}
    node = read(thread, run.info().start)
    assert node["payload"]["taskInSystem"] is told
    assert node["refs"][0] == name_of(b"commit")
    assert run.start_node().task_in_system is told


def test_roles_that_have_messages(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Where roles are declared those have messages, and those that took a step, also before a compaction; others none."""
    words = "role not found in thread: {} (available: {})"

    def refused(one: Run, role: str) -> str:
        before = dump(raw)
        with pytest.raises(LogicError) as caught:
            one.messages(role)
        assert before == dump(raw)
        assert caught.value.fix == "give one of them, or start the run with a system text for it"
        return caught.value.what

    assert len(run.messages("tester")) == 2
    assert refused(run, "nobody") == words.format("nobody", "coder, tester")
    assert refused(run, "Coder") == words.format("Coder", "coder, tester")
    run.attempt("nobody")  # a failed attempt is no step
    assert refused(run, "nobody") == words.format("nobody", "coder, tester")
    grow(run, "z", "coder", "y", "z")
    assert [message["role"] for message in run.messages("y")] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert refused(run, "nobody") == words.format("nobody", "coder, tester, z, y")
    assert refused(run.fork(2), "y") == words.format("y", "coder, tester, z")
    run.compact("sum")
    assert [message["role"] for message in run.messages("y")] == ["system", "user"]
    run.end()
    assert refused(run, "nobody") == words.format("nobody", "coder, tester, z, y")
    with pytest.raises(InputError, match="'__end__' is no role"):
        run.messages("__end__")


@pytest.mark.parametrize("system", [None, {}])
def test_a_run_that_declares_no_roles_has_any(
    thread: Thread, system: dict[str, str] | None
) -> None:
    """Without system texts nobody says which roles there are: each may be asked, before its first step too."""
    run = thread.runs.start("w", "the task", system=system)
    assert run.messages("anybody") == [
        {"role": "system", "content": "the task"},
        {"role": "user", "content": ""},
    ]
    grow(run, "a")
    assert len(run.messages("b")) == 2


@pytest.mark.parametrize("value", ["no", 0, [], 1.0])
def test_a_start_that_says_rubbish_of_its_task_is_damaged(value: object) -> None:
    """Row 16: a field that is there and is not what it must be is damage, not a default."""
    data = spelled(
        {"type": "start", "payload": {"name": "n", "taskInSystem": value}, "refs": [MISSING]}
    )
    with pytest.raises(DamagedError, match="is no node of a run"):
        nodes.decode(data, "it")


# --- as text ---


def test_reading_within_a_budget(run: Run) -> None:
    """Row 34: the newest steps that fit and at least one, oldest first, and the number of those left out."""
    assert RunText("", 0, 0) == run.read() == run.read(1)
    run.step(NewStep("a", {"n": 1}, "first", agent="x"))
    run.step("b", content="second")
    run.step("c")
    texts = ['### Step 1: a (x)\n\nfirst\n\n{"n":1}', "### Step 2: b\n\nsecond", "### Step 3: c"]
    assert RunText("\n\n".join(texts), 3, 0) == run.read() == run.read(10_000)
    two = len(texts[1]) + len(texts[2])
    left = "(1 earlier steps omitted)"
    assert RunText("\n\n".join([left, *texts[1:]]), 2, 1) == run.read(two)
    left = "(2 earlier steps omitted)"
    assert RunText("\n\n".join([left, texts[2]]), 1, 2) == run.read(two - 1) == run.read(1)
    assert run.read(two + len(texts[0])).steps == 3
    for budget in (0, -1, True, "9"):
        with pytest.raises(UsageError, match="budget"):
            run.read(budget)  # type: ignore[arg-type]


def test_reading_a_long_run(thread: Thread, run: Run) -> None:
    """Row 34: a long run is read from its newest step on; the count of those left out is right."""
    with thread.write():
        grow(run, *("ab" * 100))
    found = run.read(1000)
    assert f"({200 - found.steps} earlier steps omitted)" == found.text.split("\n", 1)[0]
    assert (200, found.omitted) == (found.steps + found.omitted, 200 - found.steps)
    lines = [line for line in found.text.split("\n") if line.startswith("###")]
    assert [f"### Step {n}: {'ab'[(n - 1) % 2]}" for n in range(201 - found.steps, 201)] == lines
    assert run.read().steps == 200


# --- keys, events, transactions ---


def test_keys(thread: Thread, run: Run, raw: apsw.Connection, clock: Clock) -> None:
    """Row 22: a step with a key that was used in 24 hours is given again, whatever came since; another is a conflict."""
    thing = thread.blobs.put(b"a thing").ref

    def again(**words: Any) -> Step:
        told: dict[str, Any] = {
            "meta": {"a": [1, 2]},
            "content": "x",
            "refs": [thing],
            "edge_prompt": "e",
            "agent": "y",
        }
        head = words.pop("expected_head", None)
        return run.step(
            NewStep(words.pop("role", "a"), **(told | words)), expected_head=head, key="k"
        )

    first = again(attempts=[NewStep("a")])
    clock.move(60)
    before = dump(raw)
    assert first == again(attempts=[NewStep("a")]) == again(expected_head=999)
    assert before == dump(raw)
    grow(run, "b")
    before = dump(raw)
    assert first == again()
    with eventq.open(thread.path) as other:
        assert first == other.runs.get(1).step(
            NewStep("a", {"a": [1, 2]}, "x", refs=[thing], edge_prompt="e", agent="y"), key="k"
        )
    odd: list[dict[str, Any]] = [
        {"role": "c"}, {"meta": {"a": [2, 1]}}, {"content": "y"}, {"refs": []}, {"edge_prompt": ""}, {"agent": ""},
    ]  # fmt: skip
    for words in odd:
        with pytest.raises(
            ConflictError, match=f"the key was used for another step: turn {first.turn_id}"
        ) as caught:
            again(**words)
        assert first.turn_id == caught.value.actual
    assert before == dump(raw)
    run.end()
    assert first == again()
    fork = run.fork(1)
    assert fork.step("a", key="k").number == 2
    run.resume()
    clock.move(DAY)
    assert again(content="new").number == 4


def test_refs_that_stand_twice(path: str) -> None:
    """Row 9: an artifact that was named twice is one; a retry with the same key gives the first step."""
    with eventq.open(path) as thread:
        thing = thread.blobs.put(b"a thing").ref
        run = thread.runs.start("w", "p")
        step = run.step(NewStep("a", refs=[thing, thing]), key="k")
        assert step == next(run.replay())
        assert step == run.step(NewStep("a", refs=[thing, thing]), key="k")


def test_keys_and_the_rest_of_a_step(path: str) -> None:
    """Row 22: a key that was used for a step with another summary or child is a conflict."""
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "p")
        run.step(NewStep("a", compact="one"), key="k")
        with pytest.raises(ConflictError):
            run.step(NewStep("a", compact="two"), key="k")


def test_events(thread: Thread, run: Run) -> None:
    """Row 21: with a source each change of a run tells of itself in one event, in its own transaction."""
    made = thread.runs.start(NewRun("w", "p", group="g"), source="self")
    calls: dict[str, Callable[[], object]] = {
        "step": lambda: made.step("a", source="self"),
        "attempt": lambda: made.attempt("a", source="self"),
        "poke": lambda: made.poke(source="self"),
        "compact": lambda: made.compact("sum", source="self"),
        "suspend": lambda: made.suspend(source="self"),
        "resume": lambda: made.resume(source="self"),
        "end": lambda: made.end(source="self"),
    }
    for op, call in calls.items():
        call()
        event = thread.last(1)[0]
        info = made.info()
        assert {
            "op": op, "run_id": 2, "name": "w", "group": "g", "status": info.status, "step": info.depth,
            "head": info.head, "start": info.start,
        } == json.loads(event.content)  # fmt: skip
        assert (event.source, event.type, event.subtype) == ("self", "record", "run")
    made.fork(source="internal:a:b:c")
    assert (
        (event := thread.last(1)[0]).source, json.loads(event.content)["op"], json.loads(event.content)["run_id"],
    ) == ("internal:a:b:c", "fork", 3)  # fmt: skip
    thread.runs.start("w", "p").cancel(source="self")
    assert (
        json.loads(thread.last(1)[0].content)["op"],
        json.loads(thread.last(1)[0].content)["status"],
    ) == ("end", "cancelled")
    assert [1, *range(2, 11)] == [event.id for event in thread.peek(limit=None)]


def test_an_event_that_is_refused_undoes_its_step(
    thread: Thread, run: Run, raw: apsw.Connection
) -> None:
    """Row 11: step and event are one transaction: a source that cannot be one leaves nothing of the step."""
    grow(run, "a")
    before = dump(raw)
    calls: list[Callable[[], object]] = [
        lambda: run.step("a", content="new", source="\n"),
        lambda: run.end(source=""),
        lambda: run.cancel(source="\n"),
        lambda: run.suspend(source="\n"),
        lambda: run.attempt("a", content="new", source="\n"),
        lambda: run.poke(content="new", source="\n"),
        lambda: run.compact("new", source="\n"),
        lambda: run.fork(source="\n"),
        lambda: thread.runs.start("new", "new", label="new", source="\n"),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()
        assert before == dump(raw)


def test_changes_that_are_undone(thread: Thread, run: Run, raw: apsw.Connection) -> None:
    """Row 11: what is done to runs in a transaction that fails never was; what goes on afterwards follows what is."""
    grow(run, "a", "b")
    before = dump(raw)
    with pytest.raises(KeyError), thread.write():
        run.step("c", content="undone")
        run.poke(content="undone too")
        run.compact("undone")
        run.end(source="self")
        thread.runs.start("undone", "undone", label="x").fork(0).attempt("z")
        raise KeyError
    assert before == dump(raw)
    steps = nodes_of(run)
    assert (3, (steps[1].ref, steps[0].ref)) == (
        (step := run.step("c", content="undone")).number,
        step.ancestors,
    )


BAD: dict[str, tuple[Callable[[Thread, Run], object], str]] = {
    "a role that is empty": (lambda _, run: run.step(""), "role is empty"),
    "a role of two lines": (lambda _, run: run.step("a\nb"), "control character"),
    "the role of the end": (lambda _, run: run.step("__end__"), "'__end__' is no role"),
    "the role of a compaction": (
        lambda _, run: run.step("__compact__"),
        "'__compact__' is no role",
    ),
    "a meta of a set": (lambda _, run: run.step("a", {1, 2}), "is of type set"),
    "a meta of a number that is none": (
        lambda _, run: run.step("a", [float("nan")]),
        "JSON has no word",
    ),
    "content that is bytes": (lambda _, run: run.step("a", content=b"x"), "content must be text"),  # type: ignore[arg-type]
    "an unpaired surrogate": (
        lambda _, run: run.step("a", content="\ud800"),
        "an unpaired surrogate",
    ),
    "an unpaired surrogate in an edge prompt": (
        lambda _, run: run.step(NewStep("a", edge_prompt="\ud800")),
        "an unpaired surrogate",
    ),
    "an agent that is none": (
        lambda _, run: run.step(NewStep("a", agent=None)),  # type: ignore[arg-type]
        "agent must be text",
    ),
    "refs that are one": (
        lambda _, run: run.step(NewStep("a", refs=MISSING)),
        "refs are several names",
    ),
    "a ref that is none": (lambda _, run: run.step(NewStep("a", refs=["x"])), "'x' names no blob"),
    "an extracted ref that is none": (
        lambda _, run: run.step(NewStep("a", extracted={"refs": ["x"]})),
        "'x' names no blob",
    ),
    "a caller that is none": (
        lambda thread, _: thread.runs.start(NewRun("w", "p", parent_state="x")),
        "'x' names no blob",
    ),
    "a summary that is none": (
        lambda _, run: run.step(NewStep("a", compact=5)),  # type: ignore[arg-type]
        "summary must be text",
    ),
    "a key that is empty": (lambda _, run: run.step("a", key=""), "key is empty"),
    "a prompt that is bytes": (
        lambda thread, _: thread.runs.start("w", b"p"),  # type: ignore[arg-type]
        "prompt must be text",
    ),
    "a name that is empty": (lambda thread, _: thread.runs.start("", "p"), "name is empty"),
    "a prompt that is left out": (
        lambda thread, _: thread.runs.start("w"),
        "prompt must be text, not NoneType",
    ),
    "a prompt beside a new run": (
        lambda thread, _: thread.runs.start(NewRun("w", "p"), "p"),
        "a NewRun holds prompt and system itself",
    ),
    "system texts beside a new run": (
        lambda thread, _: thread.runs.start(NewRun("w", "p"), system={}),
        "a NewRun holds prompt and system itself",
    ),
    "a system text of no role": (
        lambda thread, _: thread.runs.start("w", "p", system={"": "x"}),
        "role is empty",
    ),
    "a system text that is none": (
        lambda thread, _: thread.runs.start("w", "p", system={"a": 1}),  # type: ignore[dict-item]
        "system text of a must be text",
    ),
    "rounds below 0": (
        lambda thread, _: thread.runs.start(NewRun("w", "p", max_rounds=-1)),
        "max_rounds must be a whole",
    ),
    "a depth that is none": (
        lambda thread, _: thread.runs.start(NewRun("w", "p", depth="1")),  # type: ignore[arg-type]
        "depth must be a whole",
    ),
    "a cap of 0": (
        lambda thread, _: thread.runs.start(NewRun("w", "p", summary_cap=0)),
        "summary_cap must be",
    ),
    "messages of no role": (lambda _, run: run.messages(""), "role is empty"),
    "a task in no system text": (
        lambda thread, _: thread.runs.start(NewRun("w", "p", task_in_system=True)),
        "there is no system text that could state the task - give system texts, or have the task added",
    ),
    "a task in system texts of nobody": (
        lambda thread, _: thread.runs.start(NewRun("w", "p", system={}, task_in_system=True)),
        "there is no system text that could state the task",
    ),
    "a word for where the task is": (
        lambda thread, _: thread.runs.start(
            NewRun("w", "p", {"a": "A"}, task_in_system="no")  # type: ignore[arg-type]
        ),
        "task_in_system must be True or False, not 'no'",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(thread: Thread, run: Run, raw: apsw.Connection, what: str) -> None:
    """Rows 7 and 8: what cannot be a step or a start is refused in eventq's words, and nothing changes."""
    call, text = BAD[what]
    before = dump(raw)
    with pytest.raises(UsageError, match=text):
        call(thread, run)
    assert before == dump(raw)


# --- collection ---


def collect(thread: Thread, grace: float = 0) -> tuple[int, int, tuple[str, ...]]:
    """Collect; give turns, blobs and hashes."""
    done = support.collect(thread, grace)
    return done.turns, done.blobs, done.hashes


def full(thread: Thread) -> Run:
    """Give a run with everything that can hang on one: its bytes all begin with `full`."""
    things = [thread.blobs.put(b"full artifact %d" % number).ref for number in range(4)]
    child = thread.runs.start("full child", "full prompt of the child")
    child.step(NewStep("a", content="full inner work", refs=things[:1]))
    run = thread.runs.start(
        "full", "full prompt", system={"a": "full system a", "b": "full system b"}
    )
    run.step(NewStep("a", content="full first", refs=things[1:2]))
    run.attempt(NewStep("b", content="full failed", refs=things[2:3]))
    run.step(NewStep("b", content="full second", child=child.end().ref, compact="full summary"))
    run.step(NewStep("b", content="full replaced", refs=things[3:4]))
    run.poke(content="full third")
    run.compact("full marker")
    run.attempt("c", content="full failed at the head")
    child.context.delete()
    return run


@pytest.mark.parametrize("status", ["active", *STOPS])
def test_what_a_run_keeps(thread: Thread, clock: Clock, raw: apsw.Connection, status: str) -> None:
    """Rows 48, 50, 53, 54, 57: start, prompt, systems, contents, artifacts, summaries, attempts and a child's chain stay
    whatever the run's status is, and go with the run.
    """  # noqa: D205
    run = full(thread)
    stop(run, status)
    steps = nodes_of(run)
    clock.move(1000 * DAY)
    assert collect(thread) == (4, 0, ())  # the turns of the child, and the one that was replaced
    texts = {
        b"full artifact 0", b"full artifact 1", b"full artifact 2", b"full artifact 3", b"full prompt", b"full system a",
        b"full system b", b"full summary", b"full marker", b"full prompt of the child",
    }  # fmt: skip
    assert all(thread.blobs.has(name_of(text)) for text in texts)
    contents = {"first", "failed", "second", "replaced", "third", "failed at the head"}
    stored = [thread.blobs.get(blob.ref) or b"" for blob in thread.blobs]
    assert {f"full {text}" for text in contents} <= {
        json.loads(data)["payload"] for data in stored if data.startswith(b'{"payload":"')
    }
    assert steps == nodes_of(run)
    before = counts(raw)
    run.context.delete()
    clock.move(2 * DAY)
    turns, blobs, _ = collect(thread)
    assert (before["turns"], before["blobs"]) == (turns, blobs)
    assert {
        table: count for table, count in counts(raw).items()
        if table in ("turns", "blobs", "blob_refs", "run_attempts", "runs")
    } == {"turns": 0, "blobs": 0, "blob_refs": 0, "run_attempts": 0, "runs": 0}  # fmt: skip


def test_the_tip_of_a_fork_goes(thread: Thread, clock: Clock) -> None:
    """Row 49: what only a deleted fork has goes, what it shares stays."""
    run = thread.runs.start("w", "p")
    shared = grow(run, "a", "b")
    fork = run.fork(1)
    mine = fork.step(NewStep("x", content="mine", compact="mine too"))
    failed = fork.attempt("y", content="mine as well")
    fork.context.delete()
    clock.move(2 * DAY)
    gone = [mine.ref, failed, name_of(b"mine too")]
    gone += [
        name_of(spelled({"type": "content", "payload": f"mine{more}", "refs": []}))
        for more in ("", " as well")
    ]
    assert (1, 5, tuple(sorted(ref[12:] for ref in gone))) == collect(thread, 3600)
    assert shared == list(run.replay())


def test_a_context_that_was_moved(thread: Thread, clock: Clock) -> None:
    """Row 48: when the head of a run was moved to its start what it left goes, with the attempts there; the start stays."""
    run = full(thread)
    assert run.info().head_turn_id > 1
    with pytest.raises(ConflictError, match="is that of a run"):
        run.context.move(run.context.ancestor(0))
    thread.database.contexts.move(run.id, run.context.ancestor(0), "move", run=True)
    clock.move(1000 * DAY)
    collect(thread)
    assert (run.info().depth, run.prompt(), list(run.replay())) == (0, "full prompt", [])
    assert [name_of(b"full system a")] == [run.start_node().system["a"]]
    assert not thread.blobs.has(name_of(b"full summary"))
    assert run.step("a").number == 1
    assert run.step("b").attempts == ()


def test_a_start_stays(path: str, clock: Clock) -> None:
    """Row 48: the start of a run is a root of its own, wherever its head is."""
    with eventq.open(path) as thread:
        run = full(thread)
        alter(
            path,
            "UPDATE contexts SET head_id = NULL WHERE context_id = 2",
            "DELETE FROM context_log",
        )
        clock.move(1000 * DAY)
        thread.check = list  # type: ignore[method-assign]
        thread.gc(apply=True, grace=0)
        assert ("full prompt", {"a", "b"}) == (run.prompt(), set(run.start_node().system))
        assert thread.blobs.has(name_of(b"full system b"))
        assert not thread.blobs.has(name_of(b"full summary"))


def test_what_is_to_be_named_waits(thread: Thread, clock: Clock) -> None:
    """Row 51: an artifact that was put and is named by no step yet stays for the time of grace, which a new put renews."""
    run = thread.runs.start("w", "p")
    thing = thread.blobs.put(b"a thing").ref
    clock.move(3599)
    assert collect(thread, 3600) == (0, 0, ())
    thread.blobs.put(b"a thing")
    clock.move(3599)
    assert collect(thread, 3600) == (0, 0, ())
    run.step(NewStep("a", refs=[thing]))
    clock.move(2 * DAY)
    assert collect(thread, 0) == (0, 0, ())
    assert thing in next(run.replay()).artifacts


GROWS = """
import eventq
from eventq.errors import UnknownBlobError
with eventq.open(sys.argv[1]) as thread:
    run = thread.runs.get(1)
    for n in range(60):
        while True:
            thing = thread.blobs.put(f"artifact {n}".encode()).ref
            try:
                if n % 3 == 0:
                    run.attempt(eventq.NewStep("a", content=f"failed {n}", refs=[thing]))
                compact = "sum" if n % 7 == 0 else None
                run.step(eventq.NewStep("a", n, f"content {n}", refs=[thing], compact=compact))
                break
            except UnknownBlobError:
                pass
        if n % 5 == 0:
            run.fork().context.delete()
        if n % 6 == 0:
            run.poke(n, "poked", refs=[thing] if thread.blobs.has(thing) else [])
        if n == 0:
            say("go")
"""


def test_collecting_while_steps_are_taken(thread: Thread, run: Run) -> None:
    """Row 52: collections without grace while another process takes steps leave no run with a missing blob."""
    writer = start(GROWS, thread.path)
    read_lines(writer, 1)
    rounds = 0
    while writer.poll() is None:
        thread.gc(apply=True, grace=0)
        rounds += 1
    assert (writer.communicate(timeout=60)[1], writer.returncode) == (b"", 0)
    assert rounds > 0
    assert thread.check() == []
    assert [n for n in range(60)] == [step.meta for step in run.replay()]  # noqa: C416
    names = [f"artifact {step.meta}".encode() for step in run.replay() if step.artifacts]
    assert [(name_of(name), name) for name in names] == [
        (ref, thread.blobs.get(ref)) for step in run.replay() for ref in step.artifacts
    ]


def test_events_keep_what_they_name(thread: Thread, clock: Clock) -> None:
    """Row 53: the event of a step names its head and start: they stay, with all that they name, until it is pruned."""
    run = thread.runs.start("w", "p", source="self")
    step = run.step("a", content="kept", source="self")
    run.context.delete()
    clock.move(1000 * DAY)
    assert collect(thread) == (2, 0, ())
    assert read(thread, read(thread, step.ref)["payload"]["content"])["payload"] == "kept"
    thread.prune(before_id=3, force=True)
    assert collect(thread)[:2] == (0, 4)


def test_nothing_goes_from_what_is_damaged(path: str, clock: Clock) -> None:
    """Rows 55 and 56: when a run is damaged or a ref leads nowhere nothing is deleted at all."""
    steps = three(path)
    with eventq.open(path) as thread:
        thread.blobs.put(b"an orphan")
        thread.runs.start("w", "another").context.delete()
    clock.move(1000 * DAY)
    content = name_of(spelled({"type": "content", "payload": "2" * 3000, "refs": []}))
    damages: list[Callable[[], None]] = [
        lambda: spoil(path, steps[0].ref),
        lambda: alter(path, f"DELETE FROM blobs WHERE hash = x'{content[12:]}'"),
    ]
    for damage in damages:
        damage()
        with eventq.open(path) as thread:
            before = len(thread.blobs)
            with pytest.raises(DamagedError, match="nothing was deleted"):
                thread.gc(apply=True, grace=0)
            assert (before, True) == (len(thread.blobs), thread.blobs.has(name_of(b"an orphan")))


# --- what a check says ---


@pytest.fixture
def sound(path: str) -> str:
    """Give the path of a thread with five runs that checks out.

    Run 1 is turns 1 (start), 2 (with an artifact), 3 (with a summary and an attempt before it) and 4 (its end); run 2
    is turns 5, 6 and 7 and active; run 3 is turns 8 and 9 and cancelled; run 4 is turn 10 and suspended; run 5 is
    turns 5, 6 and 11, a fork of run 2 that was completed and resumed.
    """
    with eventq.open(path) as thread:
        run = thread.runs.start("w", "prompt" * 20, system={"a": "system" * 20})
        run.step(NewStep("a", content="first" * 20, refs=[thread.blobs.put(b"artifact" * 20).ref]))
        run.attempt(
            NewStep("a", content="failed" * 20, refs=[thread.blobs.put(b"of an attempt" * 20).ref])
        )
        run.step(NewStep("a", content="second", compact="summary" * 20))
        run.end()
        other = thread.runs.start("w", "q")
        grow(other, "b", "c")
        thread.runs.start("w", "r").cancel()
        thread.runs.start("w", "s").suspend()
        fork = other.fork(1)
        fork.end()
        fork.resume()
        assert thread.check() == []
    return path


def hexed(text: str) -> str:
    """Give the hash of a text, repeated as in `sound`, for SQL."""
    return f"x'{name_of((text * 20).encode())[12:]}'"


def hexed_content(text: str, artifact: str) -> str:
    """Give the hash of the content node of a text, repeated as in `sound`, for SQL."""
    node = {"type": "content", "payload": text * 20, "refs": [name_of((artifact * 20).encode())]}
    return f"x'{name_of(spelled(node))[12:]}'"


FIRST = hexed_content("first", "artifact")
FAILED = hexed_content("failed", "of an attempt")
FAULTS: dict[str, tuple[str, str]] = {
    "1: a prompt's bytes": (f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {hexed('prompt')})", "is damaged"),
    "1: a system's bytes": (f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {hexed('system')})", "is damaged"),
    "1: a summary's bytes": (f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {hexed('summary')})", "is damaged"),
    "1: an artifact's bytes": (f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {hexed('artifact')})", "is damaged"),
    "1: a content's bytes": (f"UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {FIRST})", "is damaged"),
    "1: a step's bytes": ("UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM turns WHERE turn_id = 7)", "is damaged"),
    "1: an attempt's bytes": ("UPDATE blob_bytes SET bytes = x'00' WHERE blob_id = (SELECT blob_id FROM run_attempts)", "is damaged"),
    "2: the rows of a step's refs": ("DELETE FROM blob_refs WHERE blob_id = (SELECT blob_id FROM turns WHERE turn_id = 2)", "turn 2 names "),
    "2: the rows of an end's refs": ("DELETE FROM blob_refs WHERE blob_id = (SELECT blob_id FROM turns WHERE turn_id = 4)", "turn 4 names "),
    "2: the rows of a start's refs": ("DELETE FROM blob_refs WHERE blob_id = (SELECT blob_id FROM turns WHERE turn_id = 1)", "turn 1 names "),
    "2: one row of refs": (f"DELETE FROM blob_refs WHERE ref_id = (SELECT blob_id FROM blobs WHERE hash = {hexed('summary')})", "turn 3 names "),
    "2: the target of a ref": (f"DELETE FROM blobs WHERE hash = {hexed('prompt')}", "turn 1 names "),
    "2: the target of a content's ref": (f"DELETE FROM blobs WHERE hash = {hexed('artifact')}", "a row of blob_refs refers to a row of blobs that is not there"),
    "2: a content": (f"DELETE FROM blobs WHERE hash = {FIRST}", "turn 2 names "),
    "4: a depth": ("UPDATE turns SET depth = 7 WHERE turn_id = 7", "turn 7 has depth 7, and its parent 1"),
    "4: a jump": ("UPDATE turns SET jump_id = 1, jump_depth = 0 WHERE turn_id = 7", "turn 7 jumps to 1, not to "),
    "4: a jump's depth": ("UPDATE turns SET jump_depth = 9 WHERE turn_id = 7", "turn 7 says that turn "),
    "5: a start that is no root": ("UPDATE runs SET start_id = 6 WHERE context_id = 2", "run 2 starts at turn 6, which is no root"),
    "5: a start of another run": ("UPDATE runs SET start_id = 1 WHERE context_id = 2", "run 2 stands at turn 7, which does not come from its start, turn 1"),
    "5: a start of another run, suspended": ("UPDATE runs SET start_id = 1 WHERE context_id = 4", "run 4 stands at turn 10, which does not come from its start, turn 1"),
    "5: a start that is not there": ("UPDATE runs SET start_id = 99 WHERE context_id = 2", "a row of runs refers to a row of turns that is not there"),
    "5: a head of another run": ("UPDATE contexts SET head_id = 9 WHERE context_id = 2", "run 2 stands at turn 9, which does not come from its start, turn 5"),
    "5: a head that is not there": ("UPDATE contexts SET head_id = 99 WHERE context_id = 2", "a row of contexts refers to a row of turns that is not there"),
    "5: no head": ("UPDATE contexts SET head_id = NULL WHERE context_id = 1", "run 1 is empty, though it was started"),
    "6: completed without a time": ("UPDATE runs SET completed_at_ms = NULL WHERE context_id = 1", "runs"),
    "6: a time of what goes on": ("UPDATE runs SET completed_at_ms = 7 WHERE context_id = 2", "runs"),
    "6: a status that is none": ("UPDATE runs SET status = 'odd' WHERE context_id = 2", "runs"),
    "6: active at its end": ("UPDATE runs SET status = 'active', completed_at_ms = NULL WHERE context_id = 1", "run 1 is active, and its head is an end that nobody resumed from"),
    "7: a run of no context": ("UPDATE runs SET context_id = 77 WHERE context_id = 1", "a row of runs refers to a row of contexts that is not there"),
    "7: an attempt after no turn": ("UPDATE run_attempts SET parent_id = 77", "a row of run_attempts refers to a row of turns that is not there"),
    "7: an attempt that is not there": ("UPDATE run_attempts SET blob_id = 777", "a row of run_attempts refers to a row of blobs that is not there"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_said(sound: str, what: str) -> None:
    """Invariants 1, 2, 4, 5, 6, 7: each that is planted broken is said by a check, in a sentence."""
    sql, text = FAULTS[what]
    alter(sound, sql)
    assert [fault for fault in found(sound) if text in fault] != []


UNSAID: dict[str, str] = {
    "2: the ref of a content": f"DELETE FROM blob_refs WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {FIRST})",
    "2: the ref of an attempt's content": f"DELETE FROM blob_refs WHERE blob_id = (SELECT blob_id FROM blobs WHERE hash = {FAILED})",
    "2: the refs of an attempt": "DELETE FROM blob_refs WHERE blob_id = (SELECT blob_id FROM run_attempts)",
    "5: a start of another run, completed": "UPDATE runs SET start_id = 5 WHERE context_id = 1",
    "5: a start of another run, cancelled": "UPDATE runs SET start_id = 5 WHERE context_id = 3",
}


@pytest.mark.parametrize("what", UNSAID)
def test_faults_that_are_not_said(sound: str, what: str) -> None:
    """Invariants 2 and 5: each that is planted broken is said by a check, in a sentence."""
    alter(sound, UNSAID[what])
    assert found(sound) != []


@pytest.mark.parametrize(
    "what", [what for what in FAULTS if what.startswith("6: ") and "active" not in what]
)
def test_faults_that_a_reader_is_told(sound: str, what: str) -> None:
    """Invariant 6: a check by a reader says it too."""
    alter(sound, FAULTS[what][0])
    assert found(sound, read_only=True) != []


def test_nodes_that_are_forged(path: str) -> None:
    """Row 7 and invariant 3: a check says ancestors, starts and places that do not follow from the chain, and rubbish."""
    with eventq.open(path) as thread:
        said: set[str] = set()

        def fresh(text: str) -> None:
            faults = set(thread.check())
            assert [fault for fault in faults - said if text in fault] != [], (text, faults)
            said.update(faults)

        other = Elsewhere(thread, other=True)
        one, two = other.step(), other.step()
        assert thread.check() == []
        assert two != one
        for ancestors in ([], [one], [two, one, one], [one, two], [other.start]):
            forged = Elsewhere(thread, forged=ancestors)
            forged.step()
            forged.step(ancestors=ancestors)
            forged.run()
            fresh(
                f"turn {forged.context.head_id()} names other ancestors than the turn before it leads to"
            )
        forged = Elsewhere(thread, forged=1)
        forged.step(ancestors=[one])
        forged.run()
        fresh(
            f"turn {forged.context.head_id()} names other ancestors than the turn before it leads to"
        )
        forged = Elsewhere(thread, forged=2)
        forged.step(start=other.start)
        forged.run()
        fresh(
            f"turn {forged.context.head_id()} names {other.start} as its start, not {forged.start}"
        )
        forged = Elsewhere(thread, forged=3)
        turn = forged.plant("eventq.start", "start", {"name": "x"}, [name_of(b"p")])
        forged.run()
        fresh(f"turn {turn.turn_id} is a start, {turn.ref}, and no root")
        bare = Elsewhere(thread, forged=4)
        bare.context = thread.contexts.create()
        state = thread.blobs.get(one) or b""
        turn = bare.context.append(
            NewTurn(state, type_id="eventq.state", refs=thread.blobs.refs(one))
        )
        bare.run()
        fresh(f"turn {turn.turn_id} is a step without a start")
        for data in (
            b"junk",
            b"[]",
            b"{}",
            b'{"type":"x","payload":1,"refs":[]}',
            b'{"type":"state","payload":[],"refs":[]}',
        ):
            junk = Elsewhere(thread, forged=5)
            turn = junk.context.append(NewTurn(data, type_id="eventq.state"))
            junk.run()
            fresh(f"turn {turn.turn_id}: {turn.ref} is no node of a run")
        junk = Elsewhere(thread, forged=6)
        turn = junk.context.append(
            NewTurn(b'{"type":"content","payload":"","refs":[]}', type_id="eventq.state")
        )
        junk.run()
        fresh(f"turn {turn.turn_id} ")


def test_turns_that_only_look_like_nodes(thread: Thread, clock: Clock) -> None:
    """Row 10: what stands on a context that is no run is nobody's step, whatever its type: check and gc go on."""
    context = thread.contexts.create()
    context.append(NewTurn(b"junk", type_id="eventq.state"))
    context.append(NewTurn(b"junk", type_id="eventq.start"))
    assert thread.check() == []
    clock.move(DAY)
    assert (thread.gc(apply=True).turns, thread.check()) == (0, [])


def test_a_start_without_a_prompt(path: str) -> None:
    """Rows 16 and 17: a start that names no prompt is said by a check, and is an error of eventq's."""
    with eventq.open(path) as thread:
        elsewhere = Elsewhere(thread)
        elsewhere.context = thread.contexts.create()
        data = b'{"payload":{"name":"x"},"refs":[],"type":"start"}'
        turn = elsewhere.context.append(NewTurn(data, type_id="eventq.start"))
        elsewhere.run()
        assert [
            fault
            for fault in thread.check()
            if f"turn {turn.turn_id}: {turn.ref} is no node" in fault
        ] != []
        with pytest.raises(DamagedError):
            nodes.decode(
                turn.payload or b'{"payload":{"name":"x"},"refs":[],"type":"start"}', turn.ref
            )


def test_refs_that_are_forged(path: str) -> None:
    """Invariant 2: the refs that stand in a node's JSON are those that its payload names, or a check says so."""
    with eventq.open(path) as thread:
        elsewhere = Elsewhere(thread)
        content = thread.blobs.put(spelled({"type": "content", "payload": "old", "refs": []})).ref
        thing = thread.blobs.put(b"a thing").ref
        payload = {"role": "old", "start": elsewhere.start, "content": content, "ancestors": []}
        elsewhere.plant("eventq.state", "state", payload, [elsewhere.start, content, thing])
        elsewhere.run()
        assert thread.check() != []


# --- packs ---


def story(run: Run) -> tuple[Any, ...]:
    """Give all that is told of a run but its ids and its times of change."""
    info = run.info()
    steps = [
        (step.number, step.ref, step.role, step.meta, step.content, step.attempts)
        for step in run.replay()
    ]
    return (
        info.name, info.group, info.status, info.depth, info.head, info.start, info.completed_at_ms, steps, run.prompt(),
        run.start_node(), run.chain()[0], run.messages("a"), run.read(),
    )  # fmt: skip


def test_packs_carry_runs(thread: Thread, tmp_path: Path, clock: Clock) -> None:
    """Rows 28, 42, 48: a pack carries runs with status, attempts and lineage; imported twice it adds nothing more."""
    runs = []
    for status in ("active", *STOPS):
        clock.move(1)
        runs.append(full(thread))
        stop(runs[-1], status)
    clock.move(1)
    runs.append(runs[0].fork(2, label="a fork"))
    runs[-1].step("z", content="of the fork")
    folder = str(tmp_path / "pack")
    thread.export_pack(folder)
    day = [ids(thread.runs.history("2026-03-18")), list(thread.runs.history_entries("2026-03-18"))]
    for others in (0, 3):
        path = eventq.init(str(tmp_path / f"into {others}"))
        with eventq.open(path) as into:
            for number in range(others):
                clock.move(1)
                mine = into.runs.start("mine", f"{number}")
                grow(mine, "a")
            assert into.import_pack(folder).contexts == len(runs)
            found = [info.run_id for info in into.runs if info.name != "mine"]
            assert [story(run) for run in runs] == [story(into.runs.get(which)) for which in found]
            assert into.check() == []
            fork = into.runs.get("a fork")
            assert found[0] == fork.info().fork_of
            if not others:
                assert day == [
                    ids(into.runs.history("2026-03-18")),
                    list(into.runs.history_entries("2026-03-18")),
                ]
            before = {
                table: into.database.run(f"SELECT * FROM {table} ORDER BY 1, 2")
                for table in (
                    "runs",
                    "run_attempts",
                    "turns",
                    "contexts",
                    "context_log",
                    "blob_refs",
                )
            }
            again = into.import_pack(folder)
            assert (again.blobs, again.turns, again.contexts, again.moved, again.notes) == (
                0,
                0,
                0,
                0,
                (),
            )
            assert before == {
                table: into.database.run(f"SELECT * FROM {table} ORDER BY 1, 2") for table in before
            }
            run = into.runs.get(found[0])
            head = run.info().head
            assert (head, len(run.step("a").attempts)) == (nodes_of(run)[-1].ancestors[0], 1)
            clock.move(1000 * DAY)
            into.gc(apply=True, grace=0)
            assert [story(run) for run in runs[1:]] == [
                story(into.runs.get(which)) for which in found[1:]
            ]
            assert into.check() == []
            clock.at = 1773829900.0


def test_a_pack_that_is_ahead(path: str, tmp_path: Path, clock: Clock) -> None:
    """Rows 13 and 19: a run that went on elsewhere and ended there has ended here when it is imported again."""
    with eventq.open(path) as thread, eventq.open(eventq.init(str(tmp_path / "into"))) as into:
        run = thread.runs.start("w", "p")
        grow(run, "a")
        thread.export_pack(str(tmp_path / "1"))
        into.import_pack(str(tmp_path / "1"))
        grow(run, "b")
        run.end()
        thread.export_pack(str(tmp_path / "2"))
        assert into.import_pack(str(tmp_path / "2")).moved == 1
        assert (run.info().head, "completed", []) == (
            into.runs.get(1).info().head, into.runs.get(1).info().status, ids(into.runs.active()),
        )  # fmt: skip
        with pytest.raises(ConflictError):
            into.runs.get(1).step("c")
