"""The messages of a role beside an independent program; prefixes, forks, and purity."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import StoreError
from eventq.memory.messages import ANSWERS
from eventq.records.run import NewRun, NewStep
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq import Thread
    from eventq.memory.runs import Run

    Messages = list[dict[str, str]]
    Form = tuple[str, int]  # how an output reads, and how much of one a summary shows, 0 for all

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REF = "blob:blake3:"
ROLES = ("coder", "tester", "Prüfer ☃")
SYSTEM = {
    "coder": "You code.",
    "tester": "Test this: the task ☃\nNow.",
    "Prüfer ☃": "",
    "nobody": "",
}
TASK = "the task ☃"
BUDGET = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

SPECIAL = ['{"type":"state"}', "## What Happened Since Your Last Turn", "ä ☃ 😀 \u2028 \x00"]
TEXTS = st.sampled_from(["", "", "x", "two\nlines\n", " ", "\n\n", *SPECIAL])
SUMMARIES = st.sampled_from(["x", "two\nlines\n", *SPECIAL])
METAS: st.SearchStrategy[Any] = st.sampled_from(
    [None, {}, 0, 1.0, "é", [], {"b": 1, "a": {"ü": [1.5, None, True]}, "😀": -0.0, "\uffff": 1}]
)
COMPACT = st.one_of(st.none(), st.none(), st.none(), st.none(), SUMMARIES)
STEPS = st.tuples(
    st.just("step"), st.sampled_from(ROLES), METAS, TEXTS, TEXTS, TEXTS, st.integers(0, 2),
    st.integers(0, 1), COMPACT,
)  # fmt: skip
OTHERS = st.one_of(
    st.tuples(st.just("attempt"), st.sampled_from(ROLES), METAS, TEXTS),
    st.tuples(st.sampled_from(["suspend", "end", "cancel"])),
    st.tuples(st.just("compact"), SUMMARIES),
    st.tuples(st.just("poke"), METAS, TEXTS, st.one_of(st.none(), TEXTS)),
    st.tuples(st.just("fork"), st.floats(0, 1, exclude_max=True)),
)
FORMS = st.tuples(st.sampled_from(["text", "json", "meta"]), st.sampled_from([0, 1, 40, 2_000]))
HISTORIES = st.lists(st.one_of(STEPS, STEPS, STEPS, OTHERS), min_size=1, max_size=18)


# --- the contract, in plain Python ----------------------------------------------------------------


@dataclass
class Done:
    """What a step, or an end, or a compaction left."""

    number: int
    role: str | None  # None for what is no step of a role
    meta: Any = None
    content: str = ""
    edge: str = ""
    agent: str = ""
    compact: str | None = None
    things: int = 0
    ref: str = ""


def canonical(value: object) -> str:
    """Return canonical JSON by the means of the standard library."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def joined(*parts: str) -> str:
    """Return the non-empty ones with a blank line between."""
    return "\n\n".join(filter(None, parts))


def node_ref(text: str, things: int) -> str:
    """Return the ref of the content node of a text that made some things."""
    refs = list(dict.fromkeys(REF + blake3(b"thing %d" % at).hexdigest() for at in range(things)))
    node = canonical({"type": "content", "payload": text, "refs": refs})
    return REF + blake3(node.encode()).hexdigest()


def put_out(step: Done, answer: str) -> str:
    """Return the output of a step in a form."""
    if answer == "json":
        return canonical({"meta": step.meta, "content": step.content})
    if blank(step.content) and step.meta is None:
        return "(no output)"
    if answer == "meta" and step.meta is not None:
        return canonical(step.meta)
    return canonical(step.meta) if blank(step.content) else step.content


def blank(text: str) -> bool:
    """Return whether a text shows nothing."""
    return text.strip() == ""


def summed(steps: list[Done], form: Form) -> str:
    """Return the summary of some steps."""
    if not steps:
        return ""
    answer, cap = form
    lines = ["## What Happened Since Your Last Turn"]
    for step in steps:
        output = put_out(step, answer)
        if cap and len(output) > cap:
            plain = answer != "json" and output == step.content
            where = node_ref(step.content, step.things) if plain else step.ref
            output = output[:cap] + f"… ({len(output) - cap} more characters, {where})"
        lines += [
            "",
            f"### Step {step.number}: {step.role}",
            f"Output: {output}",
            f"Agent: {step.agent}",
        ]
    return "\n".join(lines)


def answer_of(step: Done, form: Form) -> dict[str, str]:
    """Return the message of what a role put out."""
    return {"role": "assistant", "content": put_out(step, form[0])}


def expected(chain: list[Done], role: str, edge: str, form: Form) -> Messages:
    """Return the messages that the contract asks for, from all that was done."""
    frozen = SYSTEM.get(role, "")
    given = [{"role": "system", "content": joined(frozen, TASK)}]
    begin = max((at for at, done in enumerate(chain) if done.compact is not None), default=0)
    steps = [done for done in chain[begin:] if done.role is not None]
    ahead = (chain[begin].compact or "") if chain else ""
    last = 0
    for at in [at for at, done in enumerate(steps) if done.role == role] + [len(steps)]:
        question = steps[at].edge if at < len(steps) else edge
        text = joined(ahead, question, summed(steps[last:at], form))
        if blank(text):
            text = TASK if len(given) == 1 else "Go on."
        given.append({"role": "user", "content": text})
        if at < len(steps):
            given.append(answer_of(steps[at], form))
        ahead, last = "", at + 1
    return given


def compacted(chain: list[Done]) -> int:
    """Return the number of the step that carries the last compaction, 0 for none."""
    return max((done.number for done in chain if done.compact is not None), default=0)


# --- a run beside it ------------------------------------------------------------------------------


@dataclass
class Pair:
    """A run beside a list: what each visit was shown (`asked`), what each role sees (`shown`)."""

    thread: Thread
    run: Run
    form: Form
    chain: list[Done] = field(default_factory=list)
    asked: dict[int, Messages] = field(default_factory=dict)
    shown: dict[int, dict[str, Messages]] = field(default_factory=dict)

    def do(self, action: tuple[Any, ...]) -> None:
        """Do one thing to both, and compare them."""
        getattr(self, action[0])(*action[1:])
        self.look()

    def look(self) -> None:
        """Compare what each role sees, and one that took no step."""
        seen = {role: self.run.messages(role, "now") for role in (*ROLES, "nobody")}
        for role, messages in seen.items():
            assert expected(self.chain, role, "now", self.form) == messages
        self.shown[len(self.chain)] = seen

    def step(self, role: str, meta: Any, content: str, edge: str, *more: Any) -> None:
        agent, things, attempts, compact = more
        self.asked[len(self.chain) + 1] = self.run.messages(role, edge)
        refs = [self.thread.blobs.put(b"thing %d" % number).ref for number in range(things)]
        words: dict[str, Any] = {"edge_prompt": edge} if edge else {}  # a missing one is ""
        tried = [NewStep(role, content="no")] * attempts
        words |= {"refs": refs, "agent": agent, "compact": compact, "attempts": tried}
        step = self.run.step(NewStep(role, meta, content, **words))
        done = Done(step.number, role, deepcopy(meta), content, edge, agent, compact)
        done.things, done.ref = things, step.ref
        self.chain.append(done)
        assert step.number == len(self.chain)

    def attempt(self, role: str, meta: Any, content: str) -> None:
        self.run.attempt(
            NewStep(role, meta, content, edge_prompt="not to be seen", agent="nor this")
        )

    def suspend(self) -> None:
        self.run.suspend()
        self.look()
        self.run.resume()

    def end(self) -> None:
        self.chain.append(Done(self.run.end(0, "not to be seen").number, None))
        self.look()
        self.run.resume()

    def cancel(self) -> None:
        self.chain.append(Done(self.run.cancel("not to be seen").number, None))
        self.run.resume()

    def compact(self, text: str) -> None:
        self.chain.append(Done(self.run.compact(text).number, None, compact=text))

    def poke(self, meta: Any, content: str, edge: str | None) -> None:
        if not self.chain or self.chain[-1].role is None or self.chain[-1].compact is not None:
            return
        old = self.chain.pop()
        assert old.role is not None
        asked = old.edge if edge is None else edge
        new = Done(old.number, old.role, deepcopy(meta), content, asked, old.agent)
        self.asked[old.number] = expected(self.chain, old.role, new.edge, self.form)
        new.ref = self.run.poke(meta, content, edge_prompt=edge).ref
        self.chain.append(new)

    def fork(self, share: float) -> None:
        at = int(share * (len(self.chain) + 1))
        while at and self.chain[at - 1].role is None and self.chain[at - 1].compact is None:
            at -= 1  # not at an end
        before = {role: self.run.messages(role, "now") for role in ROLES}
        fork = self.run.fork(at)
        for role in ROLES:
            there = self.shown[at][role]
            assert there == fork.messages(role, "now")
            if compacted(self.chain) <= at:
                assert there[:-1] == before[role][: len(there) - 1]
        self.run, self.chain = fork, self.chain[:at]

    def prefixes(self) -> int:
        """Check that what a visit was shown begins what the next one was; return their number."""
        compared = 0
        for role in ROLES:
            visits = [done for done in self.chain if done.role == role]
            shown = [
                (visit, self.asked[visit.number], compacted(self.chain[: visit.number - 1]))
                for visit in visits
            ]
            for at, (visit, messages, begin) in enumerate(shown):
                assert (
                    expected(self.chain[: visit.number - 1], role, visit.edge, self.form)
                    == messages
                )
                later = [other for _, other, start in shown[at + 1 :] if start == begin]
                if compacted(self.chain) == begin:
                    later.append(self.run.messages(role, "last"))
                for other in later:
                    assert [*messages, answer_of(visit, self.form)] == other[: len(messages) + 1]
                    compared += 1
        return compared


@pytest.fixture(scope="module")
def shared() -> Iterator[Thread]:
    """Return one thread for all histories: each is a run of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_SYNCHRONOUS", "normal")
        patch.setenv("EVENTQ_NOTIFIER", "none")
        folder = tempfile.mkdtemp()
        with eventq.open(eventq.init(os.path.join(folder, "thread"))) as thread:
            yield thread
            assert thread.check() == []
        shutil.rmtree(folder)


def begin(thread: Thread, answer: str = "text", cap: int = 2_000) -> Pair:
    """Begin a run and what stands beside it."""
    new = NewRun("w", TASK, system=SYSTEM, summary_cap=cap, answer=answer)
    pair = Pair(thread, thread.runs.start(new), (answer, cap))
    pair.look()
    return pair


@BUDGET
@given(HISTORIES, FORMS)
@example([("step", "coder", None, "", "", "", 0, 0, None)] * 6, ("text", 0))
@example(
    [("step", role, {"n": 1}, "x" * 30, "go", "a", 1, 1, None) for role in ROLES * 4], ("text", 9)
)
@example([("step", role, None, "x" * 30, "go", "a", 1, 1, None) for role in ROLES * 4], ("meta", 9))
@example(
    [("step", role, {"n": 1}, "x" * 30, "go", "a", 1, 1, None) for role in ROLES * 4], ("json", 9)
)
def test_messages_are_those_of_the_contract(shared: Thread, history: list[Any], form: Form) -> None:
    """Any history shows each role what the contract says, at every moment.

    What a visit was shown, and its answer, are a prefix of all that follows until a compaction.
    """
    pair = begin(shared, *form)
    with shared.write():  # one commit for all of them
        for action in history:
            pair.do(action)
    assert pair.prefixes() >= 0
    with eventq.open(shared.path, read_only=True) as other:
        run = other.runs.get(pair.run.id)
        assert {role: run.messages(role, "now") for role in (*ROLES, "nobody")} == pair.shown[
            len(pair.chain)
        ]


def test_the_prefix_law_compares_something(shared: Thread) -> None:
    """Of three roles that take turns each visit begins with all of those before it."""
    pair = begin(shared)
    for number in range(12):
        pair.do(
            ("step", ROLES[number % 3], {"n": number}, f"c{number}", f"e{number}", "", 0, 0, None)
        )
    assert pair.prefixes() == 3 * (4 + 3 + 2 + 1)
    pair.do(("compact", "sum"))
    assert pair.prefixes() == 3 * (3 + 2 + 1)
    assert [2 + 2 * k for k in range(4)] == [len(pair.asked[1 + 3 * k]) for k in range(4)]


def test_the_messages_to_the_byte(shared: Thread) -> None:
    """A short history, written out."""
    run = shared.runs.start("w", TASK, system=SYSTEM)
    first = [
        {"role": "system", "content": f"You code.\n\n{TASK}"},
        {"role": "user", "content": " do\n"},
    ]
    assert first == run.messages("coder", " do\n")
    assert run.messages("tester") == [
        {"role": "system", "content": f"Test this: the task ☃\nNow.\n\n{TASK}"},
        {"role": "user", "content": TASK},
    ]
    for role in ("Prüfer ☃", "nobody"):
        assert run.messages(role)[0] == {"role": "system", "content": TASK}
    run.step(NewStep("coder", {"b": 1, "a": [1.0]}, 'é"', edge_prompt=" do\n", agent="claude"))
    run.step("tester", None, "")
    run.step(NewStep("tester", "no", "x", agent="y"))
    told = (
        "## What Happened Since Your Last Turn\n\n"
        "### Step 2: tester\nOutput: (no output)\nAgent: \n\n"
        "### Step 3: tester\nOutput: x\nAgent: y"
    )
    given = [*first, {"role": "assistant", "content": 'é"'}]
    again = {"role": "user", "content": f"again\n\n{told}"}
    assert run.messages("coder", "again") == [*given, again]
    assert [*given, {"role": "user", "content": told}] == run.messages("coder")
    run.compact("So far.")
    again = {"role": "user", "content": "So far.\n\nagain"}
    assert run.messages("coder", "again") == [first[0], again]
    run.step(NewStep("coder", {"b": 1, "a": 2}, edge_prompt="go"))
    assert [
        first[0],
        {"role": "user", "content": "So far.\n\ngo"},
        {"role": "assistant", "content": '{"a":2,"b":1}'},
        {"role": "user", "content": "Go on."},
    ] == run.messages("coder")
    told = (
        '## What Happened Since Your Last Turn\n\n### Step 5: coder\nOutput: {"a":2,"b":1}\nAgent: '
    )
    assert {"role": "user", "content": f"So far.\n\n{told}"} == run.messages("tester")[1]


def test_a_long_output_is_cut_and_says_where_it_is_whole(shared: Thread) -> None:
    """2,000 characters of another role's step are shown, then how many more, and their blob."""
    run = shared.runs.start("w", TASK)
    step = run.step("coder", {"n": 1}, "ä" * 200_000)
    assert step.content_ref == node_ref(step.content, 0)
    (_, question) = run.messages("tester")
    output = f"{'ä' * 2_000}… (198000 more characters, {step.content_ref})"
    assert f"\nOutput: {output}\nAgent: " in question["content"]
    assert step.content in (shared.blobs.get(step.content_ref) or b"").decode()
    assert run.messages("coder")[2] == {"role": "assistant", "content": step.content}
    whole = shared.runs.start(NewRun("w", TASK, summary_cap=0))
    whole.step("coder", {"n": 1}, "ä" * 200_000)
    assert "ä" * 200_000 in whole.messages("tester")[1]["content"]
    fits = shared.runs.start("w", TASK)
    fits.step("coder", {"n": 1}, "ä" * 2_000)
    assert f"\nOutput: {'ä' * 2_000}\nAgent: " in fits.messages("tester")[1]["content"]


@pytest.mark.parametrize("task", ["", " \n"])
def test_a_role_is_never_asked_nothing(shared: Thread, task: str) -> None:
    """Without a question, news and a task the user message is `Go on.`, at each visit."""
    run = shared.runs.start("w", task)
    run.step("coder", None, "done")
    run.step(NewStep("coder", None, "again", edge_prompt="\n"))
    asked = [one["content"] for one in run.messages("coder") if one["role"] == "user"]
    assert asked == ["Go on."] * 3


def test_a_form_of_later_versions_is_refused(
    shared: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that this version cannot word are an error, and the steps can still be read."""
    with monkeypatch.context() as patch:
        patch.setitem(ANSWERS, "later", lambda _: "")
        run = shared.runs.start(NewRun("w", TASK, answer="later"))
        run.step("coder", None, "done")
    with pytest.raises(StoreError, match="does not know the form 'later'"):
        run.messages("coder")
    assert [step.content for step in run.replay()] == ["done"]


# --- purity ---------------------------------------------------------------------------------------

ELSEWHERE = """
import json, os, sys
path, run, roles = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
import eventq
with eventq.open(path, read_only=True) as thread:
    told = {role: thread.runs.get(run).messages(role, "now \\u2603") for role in roles}
    sys.stdout.buffer.write(json.dumps(told).encode())
"""
PLACES = [
    "PYTHONHASHSEED=1 LANG=C LC_ALL=C TZ=Asia/Tokyo PYTHONUTF8=0 PYTHONCOERCECLOCALE=0",
    "PYTHONHASHSEED=77 LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=America/New_York HOME=/nowhere",
    "PYTHONHASHSEED=0 TZ=Pacific/Kiritimati USER=somebody EVENTQ_BLOB_CACHE=0",
]


def test_messages_are_pure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same head is the same bytes in any process and environment; nothing is changed."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    path = eventq.init(str(tmp_path / "thread"))
    roles = [*ROLES, "nobody"]
    with eventq.open(path) as thread:
        pair = begin(thread, cap=60)
        with thread.write():
            for number in range(30):
                meta = {"ü": number, "b": [1.5], "😀": None}
                role, ask = ROLES[number * 7 % 5 % 3], f"ask {number}"
                pair.do(("step", role, meta, "x" * number, ask, "", 1, number % 2, None))
            pair.do(("compact", "so far ☃"))
            pair.do(("step", "coder", {"z": 1, "a": 2}, "done", "", "agent", 0, 0, None))
            pair.do(("end",))
        run_id = pair.run.id
        asked_once = thread.runs.start("w", "asked once", system={"coder": "Code."})
        asked_once.step("coder", 1, "x")
        before, changes = rows(thread), sqlite(thread.database).connection.total_changes()
        assert len(asked_once.messages("coder")) == 4
        here = {role: pair.run.messages(role, "now ☃") for role in roles}
        assert here == {role: list(pair.run.iter_messages(role, "now ☃")) for role in roles}
        assert (changes, before) == (
            sqlite(thread.database).connection.total_changes(),
            rows(thread),
        )
    files = everything(path)
    with eventq.open(path, read_only=True) as reader:
        assert here == {role: reader.runs.get(run_id).messages(role, "now ☃") for role in roles}
    for number, place in enumerate(PLACES):
        folder = tmp_path / f"cwd {number}"
        folder.mkdir()
        more = dict(word.split("=") for word in place.split())
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, path, str(run_id), json.dumps(roles)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": ROOT, **more},
            capture_output=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.dumps(here).encode() == done.stdout
        assert list(folder.iterdir()) == []
    assert files == everything(path)
    with eventq.open(path) as thread:
        assert before == rows(thread)
        assert thread.check() == []


def rows(thread: Thread) -> dict[str, list[Any]]:
    """Return every row of every table."""
    names = sqlite(thread.database).run(
        "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1"
    )
    return {name: sqlite(thread.database).run(f'SELECT * FROM "{name}"') for (name,) in names}


def everything(path: str) -> dict[str, bytes]:
    """Return every file of a thread but SQLite's shared memory and log, which are empty."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            if not name.endswith(("-shm", "-wal")):
                with open(os.path.join(folder, name), "rb") as file:
                    found[name] = file.read()
    return found
