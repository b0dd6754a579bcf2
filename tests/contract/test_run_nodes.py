"""The nodes of runs, to the byte: starts, contents, steps, what they name, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import DamagedError, InputError, UnknownBlobError, UsageError
from eventq.memory import nodes
from eventq.records.run import NewRun, NewStep, Step
from tests.contract.memory import AT, MISSING, ref_of
from tests.contract.runs import grow, read, spelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Thread
    from eventq.memory.runs import Run
    from tests.conftest import Clock
    from tests.contract.memory import Stored

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]

H = "blob:blake3:"
PROMPT = "Behebe #426 ☃"
PROMPT_REF = H + "d06db5b552011c3bf74f1759dd6276f84951e9aa421ce7304b2a799edb2c31be"
ANA = H + "a905402326f4929e376529a94cab411ba726ca1767d94f5a78f38a51d98d2286"
CODER = H + "5851d0a51c84a447a6a2160ffc5c36a7f8122cd7828d3d712c441bcbb3f4ecac"
ARTIFACT = H + "e068dc010bf492707f7e8d896457770f24703784cfe76bd785f8b76cc010bbf3"
START = (
    '{"payload":{"answer":"text","depth":1,"hash":"BUNDLE","maxRounds":10,"name":"solve-issue",'
    f'"summaryCap":2000,"system":{{"ana":"{ANA}","coder":"{CODER}"}},"taskInSystem":false}},'
    f'"refs":["{PROMPT_REF}","{ANA}","{CODER}"],"type":"start"}}'
)
START_REF = H + "a7ebf46eadeaf30b62f01c60e751c12ea3941a3261840764adcf49860289ac87"
CONTENT = '{"payload":"looked\\n\\"well\\"","refs":["' + ARTIFACT + '"],"type":"content"}'
CONTENT_REF = H + "dfdd50e8ff6013f41d4ed05ca1023a64041a1acedd654d0f1c75cdfecafe59ae"
ATTEMPT_REF = H + "e0b5e9ef97f22af1dcc386a7cb8684dac516389e4b2576c6c17a7d54c9d3b597"
STATE = (
    f'{{"payload":{{"agent":"claude","ancestors":[],"attempts":["{ATTEMPT_REF}"],"compact":null,'
    f'"content":"{CONTENT_REF}","edgePrompt":"Look!","meta":{{"a":[null,true],"z":1.0,"ä":"☃"}},'
    f'"role":"ana","start":"{START_REF}","timestamp":1773829800123}},'
    f'"refs":["{START_REF}","{CONTENT_REF}","{ATTEMPT_REF}"],"type":"state"}}'
)
STATE_REF = H + "d9e1cf974d2df65ceb3838319b5109e8154fef2272356c0cd92b8e6a8f283438"
COMPACT_REF = H + "142d9001c0d96122d3cdcaf475148a2d22422996051c3c453238f6be346cd4e0"
EMPTY_REF = H + "ebaeb9d210043f4ba25e0f47404953749cade25f8951ff8cb5b441f158c6bdcd"
COMPACTED = (
    f'{{"payload":{{"agent":"","ancestors":["{STATE_REF}"],"compact":"{COMPACT_REF}",'
    f'"content":"{EMPTY_REF}","edgePrompt":"","meta":null,"role":"coder","start":"{START_REF}",'
    f'"timestamp":1773829800123}},'
    f'"refs":["{START_REF}","{EMPTY_REF}","{STATE_REF}","{COMPACT_REF}"],"type":"state"}}'
)
COMPACTED_REF = H + "fe68d547342a9574910a9cc7ad6ba4111beceb9b79bc096d33888f66965b46e6"
DONE_REF = H + "b2f4c144fb4f6f8d84f4dfa38be8c9f9398868c15bbe706e9c44d968c5b260ab"
END = (
    f'{{"payload":{{"agent":"","ancestors":["{COMPACTED_REF}","{STATE_REF}"],"compact":null,'
    f'"content":"{DONE_REF}","edgePrompt":"","meta":{{"returnCode":0,"summary":"done"}},'
    f'"role":"__end__","start":"{START_REF}","timestamp":1773829800123}},'
    f'"refs":["{START_REF}","{DONE_REF}","{COMPACTED_REF}","{STATE_REF}"],"type":"state"}}'
)
END_REF = H + "711c178582f31ae87e58d1c3b10a28a51ba1cc5c10ed728dafc6ed6e923ebaef"
VECTORS = {
    START_REF: START, CONTENT_REF: CONTENT, STATE_REF: STATE, COMPACTED_REF: COMPACTED,
    END_REF: END,
}  # fmt: skip


@pytest.fixture
def run(thread: Thread) -> Run:
    """Return a run without steps, with id 1, whose start is turn 1."""
    return thread.runs.start("solve", "the task", system={"coder": "You code."})


def test_nodes_to_the_byte(thread: Thread, clock: Clock) -> None:
    """Start, content, step, compaction and end are these bytes, under these hashes."""
    system = {"coder": "You code.", "ana": "You look."}
    new = NewRun("solve-issue", PROMPT, system, group="BUNDLE", max_rounds=10, depth=1)
    run = thread.runs.start(new)
    thread.blobs.put(b"artifact")
    assert run.attempt("ana", content="no") == ATTEMPT_REF
    meta = {"z": 1.0, "a": [None, True], "ä": "☃"}
    text = 'looked\n"well"'
    step = NewStep("ana", meta, text, refs=[ARTIFACT], edge_prompt="Look!", agent="claude")
    taken = [
        run.step(step),
        run.step(NewStep("coder", compact="summary so far")),
        run.end(0, "done"),
    ]
    assert [step.ref for step in taken] == [STATE_REF, COMPACTED_REF, END_REF]
    assert (run.info().head, run.info().start) == (END_REF, START_REF)
    for ref, node in VECTORS.items():
        assert (ref_of(node.encode()), thread.blobs.get(ref)) == (ref, node.encode())
    assert taken[0] == Step(
        1, 2, STATE_REF, "ana", meta, text, (ARTIFACT,), "Look!", "claude", AT, (), None,
        (ATTEMPT_REF,), None, CONTENT_REF,
    )  # fmt: skip
    assert list(run.replay()) == taken
    turns = list(run.context.replay())
    assert [turn.type_id for turn in turns] == ["eventq.start", *["eventq.state"] * 3]
    assert {(turn.type_version, turn.canonical) for turn in turns} == {(1, "eventq-json-1")}
    assert [turn.depth for turn in turns] == [0, 1, 2, 3]


def test_the_order_of_keys_is_nothing(thread: Thread, clock: Clock) -> None:
    """The same values with their keys in any order are the same node, stored once."""
    one = thread.runs.start("w", "p", system={"a": "A", "b": "B"})
    before = len(thread.blobs)
    first = one.step("a", {"x": 1, "y": {"p": [], "q": {}}}, "c")
    other = thread.runs.start("w", "p", system={"b": "B", "a": "A"})
    second = other.step("a", {"y": {"q": {}, "p": []}, "x": 1}, "c")
    assert (one.info().start, first.ref) == (other.info().start, second.ref)
    assert len(thread.blobs) == before + 2  # the content and the step
    assert one.step("a", {"x": 1}).ref != other.step("a", {"x": 1.0}).ref


def test_equal_starts_share_a_blob(thread: Thread, stored: Stored) -> None:
    """Two runs that begin alike share one start blob; any difference is another blob."""
    first = thread.runs.start("w", "p", label="one")
    before = stored()
    second = thread.runs.start("w", "p", label="two")
    more = {name: len(rows) - len(before[name]) for name, rows in stored().items()}
    assert {name: count for name, count in more.items() if count} == {
        "turns": 1, "contexts": 1, "runs": 1, "context_log": 1, "run_changes": 1,
    }  # fmt: skip
    assert first.info().start == second.info().start
    assert first.info().head_turn_id != second.info().head_turn_id
    fields = {
        "name", "hash", "maxRounds", "depth", "system", "summaryCap", "taskInSystem", "answer",
    }  # fmt: skip
    assert set(read(thread, first.info().start)["payload"]) == fields
    grow(first, "a")
    others = [
        NewRun("x", "p"),
        NewRun("w", "q"),
        NewRun("w", "p", max_rounds=1),
        NewRun("w", "p", depth=1),
        NewRun("w", "p", group="g"),
        NewRun("w", "p", system={"a": "p"}),
        NewRun("w", "p", system={"a": "p"}, task_in_system=True),
        NewRun("w", "p", summary_cap=9),
        NewRun("w", "p", summary_cap=0),
        NewRun("w", "p", answer="json"),
        NewRun("w", "p", parent_state=first.info().head),
    ]
    starts = {thread.runs.start(new).info().start for new in others} | {first.info().start}
    assert len(starts) == len(others) + 1


def test_a_run_is_a_name_or_a_new_run(thread: Thread) -> None:
    """A name, a prompt and system texts start what a `NewRun` of them does."""
    system = {"a": "You act."}
    one = thread.runs.start("w", "p", system=system, label="one", source="self")
    two = thread.runs.start(NewRun("w", "p", system), label="two", source="self")
    assert one.info().start == two.info().start
    assert [run.context.info().name for run in (one, two)] == ["one", "two"]
    assert [event.source for event in thread.peek()] == ["self"] * 2


@pytest.mark.parametrize("prompt", ["", "x", "ä ☃ \0 \r\n", "x" * 200_000, '{"type":"start"}'])
def test_the_prompt_is_a_blob(thread: Thread, prompt: str) -> None:
    """The prompt is the blob `refs[0]` of the start; the same bytes come back."""
    run = thread.runs.start("w", prompt, system={"a": "first by name of role"})
    node = read(thread, run.info().start)
    assert node["refs"][0] == ref_of(prompt.encode())
    assert (thread.blobs.get(node["refs"][0]), run.prompt()) == (prompt.encode(), prompt)
    assert prompt not in node["payload"].values() or len(prompt) < 2


X = ref_of(b"x")
STATE_FIELDS = {
    "role": "r", "meta": 1, "start": X, "content": X, "ancestors": [], "compact": None,
    "timestamp": 5, "edgePrompt": "", "agent": "",
}  # fmt: skip
START_FIELDS = {"name": "n", "hash": "", "maxRounds": 0, "depth": 0, "system": {}}


@pytest.mark.parametrize(
    ("kind", "known", "more"),
    [
        ("start", START_FIELDS, {"new": {"b": 1.0, "a": [X]}}),
        ("state", STATE_FIELDS, {"später": None, "a": "☃"}),
    ],
)
def test_unknown_fields_are_kept(kind: str, known: dict[str, Any], more: dict[str, Any]) -> None:
    """Fields that this version does not know are read and written again byte for byte."""
    data = spelled({"type": kind, "payload": known | more, "refs": [X]})
    node = nodes.decode(data, "it")
    assert not isinstance(node, nodes.ContentNode)
    assert (node.encode(), node.more) == (data, more)


@pytest.mark.parametrize(
    ("payload", "refs"),
    [
        *(({"name": "n", "taskInSystem": odd}, [MISSING]) for odd in ("no", 0, 1.0)),
        ({"name": "n", "taskInSystem": []}, [MISSING]),
        ({"name": "x"}, []),  # no prompt
    ],
)
def test_a_start_that_is_none(payload: Any, refs: list[str]) -> None:
    """A field that is there and is not what it must be is damage, not a default."""
    data = spelled({"type": "start", "payload": payload, "refs": refs})
    with pytest.raises(DamagedError, match="is no node of a run"):
        nodes.decode(data, "it")


def test_refs_are_what_the_payload_names(thread: Thread) -> None:
    """`refs` of a node, and of its blob, are the hashes that its payload names, each once."""
    put = [thread.blobs.put(b"%d" % n).ref for n in range(3)]
    end = thread.runs.start("child", "p").end()
    run = thread.runs.start(NewRun("w", "p", system={"b": "B", "a": "A"}, parent_state=end.ref))
    expected = [ref_of(b"p"), ref_of(b"A"), ref_of(b"B"), end.ref]
    assert read(thread, run.info().start)["refs"] == expected
    assert thread.blobs.refs(run.info().start) == sorted(expected)
    first = run.step("a")
    failed = run.attempt(NewStep("a", content="failed", refs=put[:1]))
    text = f"{put[0]} in the text"
    step = run.step(NewStep("a", content=text, refs=put, compact="sum", child=end.ref))
    payload = read(thread, step.ref)["payload"]
    assert (payload["start"], payload["compact"]) == (run.info().start, ref_of(b"sum"))
    assert (payload["attempts"], payload["childThread"]) == ([failed], end.ref)
    expected = [run.info().start, payload["content"], first.ref, ref_of(b"sum"), failed, end.ref]
    assert read(thread, step.ref)["refs"] == expected
    assert thread.blobs.refs(step.ref) == sorted(expected)
    assert sorted(read(thread, payload["content"])["refs"]) == sorted(put)
    assert thread.blobs.refs(payload["content"]) == sorted(put)
    assert "childThread" not in read(thread, first.ref)["payload"]
    same = thread.runs.start("w", "A", system={"a": "A"})
    assert read(thread, same.info().start)["refs"] == [ref_of(b"A")]


def test_ancestors(thread: Thread, run: Run) -> None:
    """A step names its parent and up to ten steps above that, nearest first."""
    steps = grow(run, *("abc" * 5))
    refs = [step.ref for step in steps]
    for number, step in enumerate(steps):
        expected = refs[max(0, number - 11) : number][::-1]
        assert list(step.ancestors) == read(thread, step.ref)["payload"]["ancestors"] == expected
    assert list(run.fork(7).step("z").ancestors) == refs[:7][::-1]
    with eventq.open(thread.path) as other:  # which holds no nodes
        assert list(other.runs.get(1).step("z").ancestors) == refs[4:][::-1]


def test_ancestors_are_not_the_callers(run: Run, stored: Stored) -> None:
    """Nobody passes ancestors, a start or a time; nothing is stored of what tries."""
    before = stored()
    odd: Any = NewStep
    for field in ("ancestors", "start", "timestamp", "depth"):
        with pytest.raises(TypeError):
            odd("a", **{field: []})
        with pytest.raises(InputError, match="is nothing that is extracted"):
            run.step(NewStep("a", extracted={"meta": {}, field: []}))
    assert stored() == before


MISSED: dict[str, Callable[[Thread, Run], object]] = {
    "an artifact": lambda _, run: run.step(NewStep("a", content="new", refs=[MISSING])),
    "one of many": lambda _, run: run.step(NewStep("a", refs=[ref_of(b"there"), MISSING])),
    "extracted": lambda _, run: run.step(
        NewStep("a", extracted={"contentPayload": "new", "refs": [MISSING]})
    ),
    "a child": lambda _, run: run.step(NewStep("a", compact="new too", child=MISSING)),
    "of an attempt": lambda _, run: run.attempt(NewStep("a", content="new", refs=[MISSING])),
    "of one of its attempts": lambda _, run: run.step(
        NewStep("a", attempts=[NewStep("a"), NewStep("a", refs=[MISSING])])
    ),
    "a caller": lambda thread, _: thread.runs.start(
        NewRun("new", "new", parent_state=MISSING), label="new"
    ),
    "of what replaces": lambda _, run: run.poke(content="new", refs=[MISSING]),
}


@pytest.mark.parametrize("what", MISSED)
def test_missing_refs_are_refused(thread: Thread, run: Run, stored: Stored, what: str) -> None:
    """What names a blob that is not stored is refused, and nothing of it is stored."""
    thread.blobs.put(b"there")
    grow(run, "a")
    before = stored()
    with pytest.raises(UnknownBlobError) as caught:
        MISSED[what](thread, run)
    assert caught.value.what == f"missing blob {MISSING}"
    assert stored() == before
    assert run.step("b").number == 2


def test_content_is_a_node(thread: Thread, run: Run) -> None:
    """Content is text and refs of artifacts; the step names the content and not the artifacts."""
    put = [thread.blobs.put(b"%d" % n).ref for n in range(3)]
    step = run.step(NewStep("a", content="text", refs=[*put, put[0]]))  # one that stands twice
    node = read(thread, step.ref)
    assert set(put) & set(node["refs"]) == set()
    content = read(thread, node["payload"]["content"])
    assert content == {"type": "content", "payload": "text", "refs": put}
    assert step.artifacts == next(run.replay()).artifacts == tuple(put)


@pytest.mark.parametrize("kind", ["state", "content", "start"])
def test_text_that_looks_like_a_node(thread: Thread, run: Run, kind: str) -> None:
    """Text that looks like a node stays text: no node lists what it names, which is only kept."""
    thing = thread.blobs.put(b"a thing").ref
    payload = {"start": thing, "content": thing}
    text = spelled({"type": kind, "payload": payload, "refs": [thing]}).decode()
    meta = {"refs": [thing], "text": text}
    new = NewStep("a", meta, text, edge_prompt=text, agent=thing, compact=text)
    step = run.step(new._replace(attempts=[NewStep(text)]))
    found = next(run.replay())
    assert (found.content, found.artifacts, found.edge_prompt, found.meta) == (text, (), text, meta)
    assert (run.chain(), step) == ((text, [found]), found)
    content, summary = step.content_ref or "", step.compact or ""
    assert sorted(thread.blobs.holders(thing)) == sorted(
        f"blob {ref[12:]}" for ref in (step.ref, content, summary)
    )
    assert thing not in read(thread, step.ref)["refs"]
    assert read(thread, content)["refs"] == []
    named = thread.runs.start("w", text)
    assert (named.prompt(), thread.blobs.refs(named.info().start)) == (
        text,
        [ref_of(text.encode())],
    )


def test_what_was_extracted(thread: Thread, clock: Clock) -> None:
    """What an extractor returns is taken in one call, and is the same step as its three parts."""
    thing = thread.blobs.put(b"a thing").ref
    one, other, third = (thread.runs.start("w", "p") for _ in range(3))
    parts = one.step(NewStep("a", {"ok": True}, "text", refs=[thing]))
    version = other.context.info().version
    value: dict[str, Any] = {"meta": {"ok": True}, "contentPayload": "text", "refs": [thing]}
    whole = other.step(NewStep("a", extracted=value))
    assert (whole.ref, other.context.info().version) == (parts.ref, version + 1)
    assert third.step(NewStep("a", extracted={})).ref == one.fork(0).step("a").ref
    odd: list[tuple[dict[str, Any], str]] = [
        ({"extracted": {"content": "x"}}, "is nothing that is extracted"),
        ({"extracted": {"meta": 1, "more": 2}}, "is nothing that is extracted"),
        ({"extracted": {"contentPayload": {"a": 1}}}, "content must be text"),
        ({"extracted": {}, "meta": 1}, "give one of the two"),
        ({"extracted": {}, "content": "x"}, "give one of the two"),
        ({"extracted": {}, "refs": [thing]}, "give one of the two"),
    ]
    for words, text in odd:
        with pytest.raises(UsageError, match=text):
            third.step(NewStep("a", **words))
    assert third.info().depth == 1


Bad = tuple["Callable[[Thread, Run], object]", str]


def step(text: str, *values: Any, **more: Any) -> Bad:
    """Return a step that cannot be, and why."""
    return lambda _, run: run.step(NewStep(*values, **more)), text


def begin(text: str, *values: Any, **more: Any) -> Bad:
    """Return a start that cannot be, and why."""
    return lambda thread, _: thread.runs.start(NewRun(*values, **more)), text


NOWHERE = "there is no system text that could state the task"
BAD: dict[str, Bad] = {
    "a role that is empty": step("role is empty", ""),
    "a role of two lines": step("control character", "a\nb"),
    "the role of the end": step("'__end__' is no role", "__end__"),
    "the role of a compaction": step("'__compact__' is no role", "__compact__"),
    "a meta of a set": step("is of type set", "a", {1, 2}),
    "a meta of a number that is none": step("JSON has no word", "a", [float("nan")]),
    "content that is bytes": step("content must be text", "a", content=b"x"),
    "an unpaired surrogate": step("content holds", "a", content="\ud800"),
    "an unpaired surrogate in an edge prompt": step("holds", "a", edge_prompt="\ud800"),
    "an agent that is none": step("agent must be text", "a", agent=None),
    "refs that are one": step("refs are several names", "a", refs=MISSING),
    "a ref that is none": step("'x' names no blob", "a", refs=["x"]),
    "an extracted ref that is none": step("'x' names no blob", "a", extracted={"refs": ["x"]}),
    "a summary that is none": step("summary must be text", "a", compact=5),
    "a key that is empty": (lambda _, run: run.step("a", key=""), "key is empty"),
    "messages of no role": (lambda _, run: run.messages(""), "role is empty"),
    "a caller that is none": begin("'x' names no blob", "w", "p", parent_state="x"),
    "a prompt that is bytes": begin("prompt must be text", "w", b"p"),
    "a name that is empty": begin("name is empty", "", "p"),
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
    "a system text of no role": begin("role is empty", "w", "p", {"": "x"}),
    "a system text that is none": begin("system text of a must be text", "w", "p", {"a": 1}),
    "rounds below 0": begin("max_rounds must be a whole", "w", "p", max_rounds=-1),
    "a depth that is none": begin("depth must be a whole", "w", "p", depth="1"),
    "a cap below 0": begin("summary_cap must be a whole", "w", "p", summary_cap=-1),
    "a cap that is none": begin("summary_cap must be a whole", "w", "p", summary_cap=None),
    "a form of answers": begin("'yaml' is no form of answers", "w", "p", answer="yaml"),
    "a form that is no text": begin("is no form of answers", "w", "p", answer=["text"]),
    "a task in no system text": begin(NOWHERE, "w", "p", task_in_system=True),
    "a task in system texts of nobody": begin(NOWHERE, "w", "p", {}, task_in_system=True),
    "a word for where the task is": begin(
        "task_in_system must be True or False, not 'no'", "w", "p", {"a": "A"}, task_in_system="no"
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(thread: Thread, run: Run, stored: Stored, what: str) -> None:
    """What cannot be a step or a start is refused, and nothing changes."""
    call, text = BAD[what]
    before = stored()
    with pytest.raises(UsageError, match=text):
        call(thread, run)
    assert stored() == before
