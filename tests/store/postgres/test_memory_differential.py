"""The memory on both engines beside each other: whatever happens, both give the same answers.

The kind: a statement of PostgreSQL that is not the one of SQLite, which it was translated from.
What is told and what is raised may differ, and so may ids, orders, counts, and what an undone or a
refused change leaves. In the same tables are the rows of other threads, which have the same ids:
those of all histories before, and those of the `crowd`, which must not change.

Members: blobs, in parts as well, their refs, pins and other names; turns, patches, roots; contexts,
forks, moves, and who follows them; open turns; runs with steps, attempts, pokes, summaries, forks;
artifacts and outputs, in the thread's scope and in those of sessions, and folders of them; session
files that grow, are rewritten and forked; the tokens of all of these, also of what is counted
later; settings, erasures, collections; packs and copies, out and in; all of it in transactions, some
of which are undone.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq.memory.contexts import Context, OpenTurn
from eventq.memory.runs import Run
from eventq.memory.turns import Diff
from eventq.output import artifacts
from eventq.records.info import ThreadStatus
from eventq.records.run import NewRun, NewStep
from eventq.records.run import Step as Taken
from eventq.records.turn import NewTurn, Page, Turn
from eventq.store.postgres import database
from eventq.store.postgres.translated import translated
from tests.contract.pack_files import tree
from tests.contract.runs import full
from tests.contract.support import rows_of
from tests.contract.test_usage_beside import uncount
from tests.sessions.support import answers, call, result, says
from tests.store.postgres.beside import Side, Sides, fill
from tests.store.postgres.pooler import Transactions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eventq.store.postgres.translated import Translated
    from tests.conftest import Clock
    from tests.store.postgres.beside import Step

NOISE = random.Random(52).randbytes(200_000)
LINES = b"".join(b"%d %d\n" % (n, NOISE[n]) for n in range(12_000))
# The last ones are large: of those that compress, parts are stored, which others have as well.
PAYLOADS = [
    b"", b"a", b"b\n", b'{"k": 1}', "é\n\0".encode(), b"x" * 300, NOISE[:3_000],
    NOISE, LINES, b"begin\n" + LINES, LINES[:70_000],
]  # fmt: skip
LARGE = 4
NAMES = [blake3(data).hexdigest() for data in PAYLOADS]
NAMES.append(blake3(b"stored by nobody").hexdigest())
TEXTS = ["", "a text", "another one\n\nof lines", "é" * 40, f"it names blob:blake3:{NAMES[1]}"]
TEXTS.append("see artifact://0, agent://0-Scout and agent://0-Given")
LABELS = [*[None] * 12, "main", *["side"] * 4, "third", "7", "a" * 201]
# Places in the list of those that were made, or names.
CONTEXTS: list[Any] = [*range(12), "main", "side"]
RUNS: list[Any] = [*range(12), "side"]
ROLES = ["a", "b", "b", "__end__"]
SCOPES: list[Any] = [*[None] * 4, 0, 0, 0, 1, 2, "main", "s"]
OUTPUTS = ["0-Scout", "0-Scout.0-b", "1-a", "no/name"]
NEW = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|2\d{3}-\d\d-\d\dT[\d:.]+Z"
)  # ids, times
SHOWN = ("last_id", "event_count", "contexts", "context_count", "runs", "artifacts")
IN_TABLES = {
    "event", "turn", "patch", "line", "attempt after turn", "output", "file", "pin", "blob",
    "artifact", "open artifact", "open turn",
}  # fmt: skip


# --- random histories -----------------------------------------------------------------------------


class Chance(random.Random):
    """Random steps; what they name mostly exists."""

    def one(self, *values: Any) -> Any:
        """Return one of some values."""
        return self.choice(values)

    def data(self) -> int:
        """Return the number of a payload; large ones are rare."""
        return self.randrange(len(PAYLOADS) - LARGE * (self.random() > 0.1))

    def large(self) -> int:
        """Return the number of a large payload, which fills several chunks of an artifact."""
        return self.randrange(len(PAYLOADS) - LARGE, len(PAYLOADS))

    def stored(self) -> str:
        """Return the name of a blob; most of them are stored by somebody."""
        return self.choice(NAMES[:2] if self.random() < 0.8 else NAMES)

    def refs(self) -> list[str]:
        """Return the names of some blobs; nearly all of them are stored by somebody."""
        return self.sample(NAMES[:2] if self.random() < 0.95 else NAMES, self.one(0, 0, 0, 1, 2))

    def new_step(self) -> dict[str, Any]:
        """Return the output of a role."""
        return {
            "role": self.choice(ROLES[: self.one(*[3] * 9, 4)]),
            "meta": self.one(None, 1, {"k": [1.5, "é"]}, self.spent()), "content": self.choice(TEXTS),
            "refs": self.refs(), "edge_prompt": self.one("", "go on"), "agent": self.one("", "m"),
            "compact": self.one(None, None, None, "so far"),
        }  # fmt: skip

    def spent(self) -> dict[str, Any]:
        """Return what a response took, as a step or a message states it."""
        usage = {"input_tokens": self.randint(0, 99), "output_tokens": self.randint(0, 9)}
        return {"usage": usage, "model": self.one("m", "é", "")}

    def step(self) -> Step:
        """Return one step of a history."""
        name = self.choices(*zip(*WEIGHTS.items(), strict=True))[0]
        context, turn = self.choice(CONTEXTS), self.randint(0, 12)  # the newest turn is 0
        of = {"context": context}
        scope = {"scope": self.choice(SCOPES)}
        expected = {"expected_head": self.one(*[None] * 6, 0, 0, 1)}
        key = {"key": self.one(None, None, None, "k1", "k2")}
        source = {"source": self.one(*[None] * 6, "self", "a b")}
        made: dict[str, Any] = {
            "put": {"data": self.data(), "refs": self.refs(), "mentions": self.random() < 0.3},
            "pin": {"name": self.stored(), "owner": self.one("x", "y"), "keep": self.random() < 0.6},
            "add_refs": {"name": self.stored(), "refs": self.refs()},
            "blob": {"name": self.stored()},
            "create": {"name": self.choice(LABELS), "base": turn},
            "fork": {**of, "at": self.one(None, None, turn), "name": self.choice(LABELS)},
            "append": {
                **of, "data": self.data(), "refs": self.refs(), "parent": self.one(None, None, None, turn),
                "type_id": self.one(*["message"] * 5, "note", ""), **expected, **key, **source,
            },
            "append_some": {**of, "count": self.randint(2, 7)},
            "spend": {
                **of, "response": self.one("", "r", "s"), "spent": self.spent(),
                "at": self.one(None, 0, 1_000, 3_600.5), **key,
            },
            "used": {
                "context": self.one(*[None] * 4, context, "s", "t"), "run": self.choice(RUNS),
                "since": self.one(0, 0, 1_000_000), "until": self.one(None, None, 3_600_000),
            },
            "head": {**of, "to": turn, **expected},
            "patch": {"context": self.one(None, None, context), "turn": turn, "data": self.one(None, self.data())},
            "attach": {"turn": turn, "root": self.choice(NAMES)},
            "delete": of,
            "open_turn": {**of, "type_id": self.one("message", "note")},
            "delta": {"opened": self.randrange(12), "data": self.data()},
            "seal": {"opened": self.randrange(12), "refs": self.refs(), **expected, **key, **source},
            "discard": {"opened": self.randrange(12)},
            "read": {
                **of, "other": self.choice(CONTEXTS), "limit": self.randint(1, 5),
                "as_of": self.one(None, self.randint(0, 4)), "depth": self.randint(0, 4),
            },
            "before": {**of, "turn": turn, "limit": self.randint(1, 5)},
            "start": {
                "new": {
                    "name": self.one("solve", *["w"] * 8, ""), "prompt": self.choice(TEXTS),
                    "system": self.one(None, {"a": "be a"}, {"a": "be a", "b": TEXTS[4]}),
                    "group": self.one("", "g"), "answer": self.one("text", "json", "meta"),
                },
                "label": self.choice(LABELS), "source": self.one(None, None, "self"),
            },
            "take": {
                "run": self.choice(RUNS), "new": self.new_step(), "tried": self.one(0, 0, 0, 1, 2),
                **expected, **key,
            },
            "attempt": {"run": self.choice(RUNS), "new": {**self.new_step(), "compact": None if self.random() < 0.9 else ""}},
            "poke": {
                "run": self.choice(RUNS), "content": self.choice(TEXTS), "refs": self.refs(),
                "spent": self.one({}, self.spent()),
            },
            "to_run": {
                "run": self.choice(RUNS),
                "how": self.one("end", "cancel", "suspend", "suspend", "resume", "delete", "compact"),
            },
            "fork_run": {
                "run": self.choice(RUNS), "label": self.choice(LABELS),
                **self.one({"step": None}, {"step": self.randint(0, 3)}, {"step": None, "role": "b"}),
                "turn": turn, "named": self.one("", "", "turn", "node"),
            },
            "followed": {"turn": turn, "limit": self.randint(1, 9)},
            "given": {"grown": self.random() < 0.5, "packed": self.random() < 0.3},
            "alias": {"data": self.data(), "name": self.stored()},
            "fork_session": {
                "context": self.one("newest", "newest", "newest", context),
                "at": self.one(None, None, "u1", "u2", "turn"), "turn": turn,
            },
            "read_run": {"run": self.choice(RUNS), "role": self.one("a", "b")},
            "runs_of": {"group": self.one(None, "g", "")},
            "setting": {"value": self.one("on", "on", "off", "somebody", "no")},
            "artifact": {**scope, "data": self.one(self.data(), self.data(), self.large()), "tool": self.one("bash", "a/b", "")},
            "write_artifact": {
                **scope, "parts": [self.one(self.data(), self.data(), self.large()) for _ in range(self.randint(0, 3))],
                "how": self.one("seal", "seal", "fail", "leave"),
            },
            "remove_artifact": {**scope, "number": self.one(0, 0, 0, 1)},
            "output": {
                **scope, "name": self.one("Scout", "a b", "é"), "data": self.data(),
                "parent": self.one(None, None, *OUTPUTS),
            },
            "publish": {**scope, "output": self.choice(OUTPUTS), "data": self.data()},
            "produced": scope,
            "folders": {**scope, "data": self.data(), "number": self.randint(0, 12)},
            "url": {
                "context": self.one(None, None, context), "limit": self.one(None, 1),
                "url": self.one(
                    f"artifact://{self.one(0, 0, 1)}", f"agent://{self.choice(OUTPUTS)}",
                    f"agent://{OUTPUTS[0]}?q=.k", f"blob:blake3:{self.stored()}",
                ),
                "offset": self.one(None, None, 1, 2),
            },
            "capture": {"context": self.one(None, context), "count": self.one(1, 4_000)},
            "session": {
                "name": self.one("s", "s", "t"), "count": self.randint(1, 12),
                "branch": self.one(0, 0, 3), "torn": self.random() < 0.2, "title": self.one("one", "one", "two"),
                "read": self.random() < 0.3, "beside": self.one(None, None, self.data()),
            },
            "read_session": {"name": self.one("newest", "newest", "s", "main")},
            "push": {"text": self.choice(TEXTS)},
            "erase": {
                "kind": self.one("turn", "turn", "blob", "artifact", "event"), "turn": turn,
                "number": self.one(0, 1, 1, 2), "everywhere": self.random() < 0.7,
            },
            "erase_text": {"text": self.one("another one", "xxxxxxxxxx", "be a text", "no such text")},
            "find": {"text": self.one("another one", "xxxxxxxxxx", "a text")},
            "gc": {"apply": self.random() < 0.7, "grace": self.one(0, 0, 60, 3600)},
            "reachable": {"turn": turn, "roots": self.refs()},
            "pack": {},
            "pack_back": {},
            "copy": {"context": self.one(None, None, context)},
            "move": {"seconds": self.one(0.001, 1, 60, 3_600, 86_400, -3)},
            "block": {"undo": self.random() < 0.4},
        }.get(name, {})  # fmt: skip
        if name == "block":
            steps = [self.step() for _ in range(self.randint(1, 5))]
            made["steps"] = [step for step in steps if step[0] not in ALONE]
        return name, made


WEIGHTS = {
    "put": 5, "pin": 3, "add_refs": 1.5, "blob": 2, "create": 3, "fork": 4, "append": 12, "append_some": 1.5,
    "head": 4, "patch": 5, "attach": 2, "delete": 2, "open_turn": 4, "delta": 5, "seal": 4, "discard": 1.5,
    "read": 4, "before": 4, "start": 4, "take": 9, "attempt": 4, "poke": 3, "to_run": 6, "fork_run": 4, "read_run": 2,
    "runs_of": 1.5, "setting": 2, "artifact": 3, "write_artifact": 3, "remove_artifact": 3, "output": 3,
    "publish": 3, "produced": 1, "folders": 1, "url": 4, "capture": 1.5, "session": 2, "read_session": 2,
    "push": 3, "erase": 4, "erase_text": 0.8, "find": 1.5, "gc": 1.5, "reachable": 2, "pack": 1.2,
    "pack_back": 1, "copy": 0.5, "move": 5, "block": 7, "status": 2, "warnings": 1.2, "swap": 2,
    "followed": 3, "given": 0.8, "alias": 2, "fork_session": 2, "spend": 6, "used": 4, "uncounted": 2,
}  # fmt: skip
# What is not done inside a transaction: what cannot be, and what looks at what is committed.
ALONE = {
    "move", "swap", "block", "erase", "erase_text", "find", "gc", "pack", "pack_back", "copy", "capture",
    "session", "folders", "status", "warnings", "reachable", "write_artifact", "given", "fork_session",
}  # fmt: skip


SESSION = {
    "name": "s", "count": 5, "branch": 3, "torn": False, "title": "one", "read": False,
    "beside": None,
}  # fmt: skip


def history(seed: int) -> list[Step]:
    """Return a random history; at its end all is looked at."""
    chance = Chance(seed)
    begin: list[Step] = [
        *(("put", {"data": n, "refs": [], "mentions": False}) for n in range(2)),
        ("create", {"name": "main", "base": 0}),
        ("append_some", {"context": 0, "count": chance.randint(1, 3)}),
        ("start", {"new": {"name": "w", "prompt": "go"}, "label": None, "source": None}),
        ("take", {"run": 0, "new": chance.new_step(), "tried": chance.one(0, 1)}),
        ("open_turn", {"context": 0, "type_id": chance.one("message", "note")}),
    ]
    more: list[Step] = [
        ("artifact", {"scope": None, "data": chance.data(), "tool": "bash"}),
        ("artifact", {"scope": 0, "data": chance.data(), "tool": "bash"}),
        ("output", {"scope": chance.one(None, 0), "name": "Scout", "data": 3, "parent": None}),
        ("session", SESSION),
        ("fork", {"context": 0, "at": None, "name": chance.one(None, "side")}),
        ("push", {"text": chance.choice(TEXTS)}),
    ]
    steps = [chance.step() for _ in range(chance.randint(6, 20))]
    looks: list[Step] = [
        ("produced", {"scope": chance.one(None, 0, 1, "s")}),
        ("everything", {}),
    ]
    if chance.random() < 0.12:  # the rest takes as long as twenty steps
        looks += [("gc", {"apply": True, "grace": 0}), ("everything", {}), ("check", {})]
    return [*begin, *chance.sample(more, chance.randint(1, 4)), *steps, *looks]


# --- both sides -----------------------------------------------------------------------------------


@cache
def lines(count: int, branch: int, title: str) -> list[bytes]:
    """Return the lines of a session file, one of which is a branch, if there are so many."""
    found: list[dict[str, Any]] = [says("u0", None, f"{title}: {TEXTS[4]}")]
    for n in range(1, count):
        parent = "u1" if n == branch else f"u{n - 1}"
        if n % 3 == 1:
            found.append(answers(f"u{n}", parent, call(f"c{n}"), response=f"{title[0]}{n // 6}"))
            found[-1]["message"] |= {"model": "m", "usage": {"output_tokens": n, "input_tokens": 7}}
            found[-1]["timestamp"] = f"1970-01-01T00:{n:02}:00Z"
        elif n % 3 == 2:
            found.append(result(f"u{n}", parent, f"c{n - 1}"))
        else:
            found.append(says(f"u{n}", parent, "x" * n))
    return [json.dumps(one).encode() + b"\n" for one in found]


class MemorySide(Side):
    """A thread, and the ids of what was made in it, which may be gone again."""

    sources: tuple[str, str]  # threads to copy from; the second is the first, grown

    def __init__(self, path: str, folder: str) -> None:
        self.contexts: list[int] = []
        self.runs: list[int] = []
        self.opened: list[int] = []
        self.newest = 0
        super().__init__(path, folder)

    def call(self, name: str, given: dict[str, Any]) -> Any:
        """Do a step, with ids in place of places, and note the ids of what it makes."""
        found = super().call(name, {key: self.at(key, value) for key, value in given.items()})
        for kind, ids in ((Context, self.contexts), (Run, self.runs), (OpenTurn, self.opened)):
            if isinstance(found, kind):
                ids.append(found.id)
        if isinstance(found, (Turn, Taken)):
            self.newest = max(self.newest, found.turn_id)
        return found

    def at(self, key: str, value: Any) -> Any:
        """Return a value of a step; ids of what is there in place of numbers."""
        if type(value) is not int:
            return value
        if key in ("turn", "at", "to", "base", "parent", "expected_head"):
            return 0 if value == 12 else self.newest - value % max(1, self.newest)  # 0 is no turn
        ids = {"context": self.contexts, "other": self.contexts, "scope": self.contexts}.get(key)
        ids = {"run": self.runs, "opened": self.opened}.get(key, ids)
        return ids[value % len(ids)] if ids else value

    # --- blobs ------------------------------------------------------------------------------------

    def put(self, data: int, refs: list[str], mentions: bool) -> object:
        return self.thread.blobs.put(PAYLOADS[data], refs=refs, mentions=mentions)

    def pin(self, name: str, owner: str, keep: bool) -> object:
        blobs = self.thread.blobs
        if keep:
            blobs.pin(name, owner)
        return keep or blobs.unpin(name, owner), blobs.pins()

    def add_refs(self, name: str, refs: list[str]) -> None:
        self.thread.blobs.add_refs(name, refs)

    def blob(self, name: str) -> object:
        blobs = self.thread.blobs
        return blobs.get(name), blobs.holders(name), blobs.refs(name), blobs.part(name, 2, 70_000)

    # --- turns and contexts -----------------------------------------------------------------------

    def create(self, name: str | None, base: int) -> object:
        return self.thread.contexts.create(name, base=base)

    def fork(self, context: Any, at: int | None, name: str | None) -> object:
        return self.thread.contexts.fork(context, at=at, name=name)

    def append(self, context: Any, data: int, refs: list[str], type_id: str, **to: Any) -> object:
        new = NewTurn(PAYLOADS[data], type_id, refs=refs)
        return self.thread.contexts.get(context).append(new, **to)

    def spend(
        self, context: Any, response: str, spent: dict[str, Any], at: float | None, key: str | None
    ) -> object:
        message = {"role": "assistant", "content": "x", "id": response, "timestamp": at, **spent}
        return self.thread.contexts.get(context).append(message, key=key)

    def used(self, context: Any, run: Any, since: int, until: int | None) -> object:
        times: dict[str, Any] = {"since": since, "until": until}
        thread = self.thread
        if context is not None:
            return thread.usage(context=context, **times)
        return (
            thread.usage(**times), thread.usage_by_hour(**times), thread.usage_of_runs(self.runs),
            thread.usage(run=run),
        )  # fmt: skip

    def uncounted(self) -> None:
        uncount(self.thread)

    def append_some(self, context: Any, count: int) -> object:
        found = self.thread.contexts.get(context)
        made = [found.append(f"{number}") for number in range(count)]
        self.newest = made[-1].turn_id
        return made

    def head(self, context: Any, to: int, expected_head: int | None) -> object:
        return self.thread.contexts.get(context).move(to, expected_head=expected_head)

    def patch(self, context: Any, turn: int, data: int | None) -> object:
        contexts = self.thread.contexts
        where = contexts if context is None else contexts.get(context)
        return where.tombstone(turn) if data is None else where.patch(turn, PAYLOADS[data])

    def attach(self, turn: int, root: str) -> object:
        self.thread.contexts.attach(turn, root)
        return self.thread.contexts.root(turn)

    def delete(self, context: Any) -> None:
        self.thread.contexts.delete(context)

    def open_turn(self, context: Any, type_id: str) -> object:
        return self.thread.contexts.get(context).open_turn(type_id=type_id)

    def delta(self, opened: int, data: int) -> object:
        found = self.thread.contexts.open_turn(opened)
        return found.append_delta(PAYLOADS[data]), b"".join(found.read())

    def seal(self, opened: int, **to: Any) -> object:
        return self.thread.contexts.open_turn(opened).seal(**to)

    def discard(self, opened: int) -> None:
        self.thread.contexts.open_turn(opened).discard()

    def read(self, context: Any, other: Any, limit: int, as_of: int | None, depth: int) -> object:
        contexts = self.thread.contexts
        one, two = contexts.get(context), contexts.get(other)
        return [
            one.last(limit, as_of=as_of), one.range(depth, limit, as_of=as_of), one.ancestor(depth),
            one.replay(as_of=as_of, start_depth=depth), one.diff(two, as_of=as_of), one.history(),
            one.info(), one.open_turns(),
        ]  # fmt: skip

    def followed(self, turn: int, limit: int) -> object:
        contexts, engine = self.thread.contexts, self.thread.database.memory.contexts
        appended = engine.appended(turn, limit), engine.appended(0, 1_000)
        return [*contexts.turns.newest(turn + 1, limit)], appended, engine.born(0, 1_000)

    def before(self, context: Any, turn: int, limit: int) -> object:
        contexts = self.thread.contexts
        found = contexts.turn(turn), contexts.children(turn, limit), contexts.root(turn)
        one = contexts.get(context)
        return found, self.plain(one.before(turn, limit) if one.has(turn) else one.last(limit))

    # --- runs -------------------------------------------------------------------------------------

    def start(self, new: dict[str, Any], label: str | None, source: str | None) -> object:
        return self.thread.runs.start(NewRun(**new), label=label, source=source)

    def take(self, run: Any, new: dict[str, Any], tried: int, **to: Any) -> object:
        attempts = [NewStep("a", n, f"tried {n}") for n in range(tried)]
        return self.thread.runs.get(run).step(NewStep(**new, attempts=attempts), **to)

    def attempt(self, run: Any, new: dict[str, Any]) -> object:
        return self.thread.runs.get(run).attempt(NewStep(**new))

    def poke(self, run: Any, content: str, refs: list[str], spent: dict[str, Any]) -> object:
        return self.thread.runs.get(run).poke({"again": True, **spent}, content, refs=refs)

    def to_run(self, run: Any, how: str) -> object:
        found = self.thread.runs.get(run)
        return found.compact("all of it") if how == "compact" else getattr(found, how)()

    def fork_run(self, run: Any, step: Any, turn: int, named: str, **how: Any) -> object:
        if named and "role" not in how:
            found = self.thread.contexts.turn(turn)
            step = f"turn:{turn}" if named == "turn" else found.hash
        return self.thread.runs.get(run).fork(step, **how)

    def read_run(self, run: Any, role: str) -> object:
        found = self.thread.runs.get(run)
        seen = (
            found.info(),
            found.prompt(),
            self.plain(found.replay()),
            found.chain(),
            found.read(200),
        )
        return seen, found.messages(role, "and now?")

    def runs_of(self, group: str | None) -> object:
        runs = self.thread.runs
        day = runs.history("2026-03-18", group)
        changes = runs.changes(1, 20, group)
        return (
            self.plain(runs.active(group)),
            self.plain(day),
            self.plain(runs.list(group)),
            changes,
        )

    def setting(self, value: str) -> object:
        self.thread.settings.set("runs.emit", value)
        return self.thread.settings

    # --- artifacts, outputs, sessions -------------------------------------------------------------

    def artifact(self, scope: Any, data: int, tool: str) -> object:
        return self.thread.scope(scope).artifacts.put(PAYLOADS[data], tool)

    def write_artifact(self, scope: Any, parts: list[int], how: str) -> object:
        writer = self.thread.scope(scope).artifacts.allocate("w")
        for part in parts:
            writer.write(PAYLOADS[part])
        if how == "fail":
            writer.fail("it was too much")
        return writer.seal() if how == "seal" else writer.artifact_id

    def remove_artifact(self, scope: Any, number: int) -> None:
        self.thread.scope(scope).artifacts.remove(number)

    def output(self, scope: Any, name: str, data: int, parent: str | None) -> object:
        return self.thread.scope(scope).outputs.put(name, PAYLOADS[data], parent)

    def publish(self, scope: Any, output: str, data: int) -> object:
        return self.thread.scope(scope).outputs.publish(output, PAYLOADS[data])

    def produced(self, scope: Any) -> object:
        found = self.thread.scope(scope)
        made = [(info, found.artifacts.open(info.artifact_id).read()) for info in found.artifacts]
        outputs = [
            (info, found.outputs.read(info.output_id, info.version)) for info in found.outputs
        ]
        pages = found.artifacts.page(0, 2), found.outputs.page(OUTPUTS[0], 1, 2)
        newest = found.outputs.newest("", 2), found.outputs.older(OUTPUTS[0], 9, 2)
        return made, outputs, found.artifacts.newest(2), found.artifacts.available(), pages, newest

    def folders(self, scope: Any, data: int, number: int) -> object:
        found, payload = self.thread.scope(scope), PAYLOADS[data]
        logs = fill(
            f"{self.folder}/logs", {f"{number}.x.log": payload, f"{number + 1}.y.partial.log": b"z"}
        )
        notes = fill(f"{self.folder}/notes", {"2-a.md": payload, "2-a.v2.md": b"v2"})
        made = found.artifacts.import_folder(logs), found.outputs.import_folder(notes)
        out = fill(f"{self.folder}/out", {})
        names = found.artifacts.export_folder(out), found.outputs.export_folder(out)
        return made, self.plain(names), sorted(tree(out).items())

    def url(self, url: str, offset: int | None, limit: int | None, context: Any) -> object:
        return self.thread.read(url, offset, limit, context=context)

    def capture(self, context: Any, count: int) -> object:
        return self.thread.capture(["seq", f"{count}"], context=context, spill=1_000)

    def session(
        self,
        name: str,
        count: int,
        branch: int,
        torn: bool,
        title: str,
        read: bool,
        beside: int | None,
    ) -> object:
        data = b"".join(lines(count, branch, title))
        if beside is not None:
            tools = f"{self.folder}/{name}/tool-results"
            fill(tools, {"a.txt": PAYLOADS[beside], "0.bash.log": b"of a tool"})
        path = f"{self.folder}/{name}.jsonl"
        with open(path, "wb") as file:
            file.write(data[:-9] if torn else data)
        found = self.thread.sessions.import_file(path, name=name)
        self.contexts.append(found.context_id)
        notes = tuple(note.replace(self.folder, "F") for note in found.notes)
        return found._replace(notes=notes), read and self.read_session(name)

    def read_session(self, name: str) -> object:
        sessions, name = self.thread.sessions, self.named(name)
        kept, said = self.plain(sessions.lines(name, warn=str)), sessions.views
        found = said.info(name)
        file = str(found.file).replace(self.folder, "F")
        others = [one._replace(file=None) for one in said.generations(name)]
        shown = said.branches(name), said.title(name), self.plain(said.entries(name, str))
        return kept, found._replace(file=file), others, shown

    def named(self, session: Any) -> Any:
        """Return the name of a session; "newest" is that which was imported last."""
        names = [session, *(info.name for info in self.thread.sessions.views.all())]
        return names[-1] if session == "newest" else session

    def fork_session(self, context: Any, at: str | None, turn: int) -> object:
        path = f"{self.folder}/11111111-1111-4111-8111-111111111111.jsonl"
        if os.path.exists(path):
            os.unlink(path)
        context = self.named(context)
        found = self.thread.sessions.fork(context, path, at=f"turn:{turn}" if at == "turn" else at)
        with open(path, encoding="utf-8") as file:
            return found._replace(output="", notes=(), session_id=""), NEW.sub("", file.read())

    # --- the rest ---------------------------------------------------------------------------------

    def push(self, text: str) -> object:
        return self.thread.push("self", "note", text)

    def erase(self, kind: str, turn: int, number: int, everywhere: bool) -> object:
        erasures = self.thread.erasures
        if kind == "blob":
            return erasures.blob(NAMES[number], everywhere=everywhere)
        if kind == "turn":
            return erasures.turn(turn, everywhere=everywhere, reason="asked to")
        return getattr(erasures, kind)(number)

    def erase_text(self, text: str) -> object:
        left = self.thread.erasures.text(text)
        return [one for one in left if one.place.kind in IN_TABLES]

    def find(self, text: str) -> object:
        return {place for place in self.thread.erasures.find(text) if place.kind in IN_TABLES}

    def reachable(self, turn: int, roots: list[str]) -> object:
        return self.thread.reachable([f"turn:{turn}", *roots])

    def pack(self) -> object:
        self.thread.export_pack(fill(f"{self.folder}/pack", {}))
        return sorted(tree(f"{self.folder}/pack").items())

    def pack_back(self) -> object:
        if not os.path.exists(f"{self.folder}/pack"):
            return None
        return self.thread.import_pack(f"{self.folder}/pack")

    def given(self, grown: bool, packed: bool) -> object:
        source = self.sources[grown]
        if packed:
            return self.thread.import_pack(f"{source}.pack")
        with eventq.open(source, read_only=True) as other:
            return other.copy_to(self.thread)

    def alias(self, data: int, name: str) -> object:
        produced, sha256 = self.thread.produced, hashlib.sha256(PAYLOADS[data])
        made = produced.name_blob(name, sha256.digest())
        return made, produced.get(f"blob:sha256:{sha256.hexdigest()}"), [*produced.aliases()]

    def copy(self, context: Any) -> object:
        contexts = None if context is None else [context]
        with eventq.open(f"{self.folder}/copy", create=True) as other:
            made = self.thread.copy_to(other, contexts)._replace(notes=())
            return made, other.usage(), other.check()

    def everything(self) -> object:
        """Return all that lists can show."""
        thread = self.thread
        contexts = [*thread.contexts]
        moves = [[*thread.contexts.history(info.context_id)] for info in contexts]
        turns = [
            [*thread.contexts.at(info.head_turn_id).replay()]
            for info in contexts
            if info.head_turn_id
        ]
        runs = [*thread.runs], [*thread.runs.changes(0, 1_000)], [*thread.runs.changes(2, 3)]
        opened, events = [*thread.contexts.open_turns()], [*thread.peek(limit=None)]
        said = [info._replace(file=None) for info in thread.sessions.views.all()]
        used = [thread.usage(context=info.context_id) for info in contexts]
        return (
            used,
            thread.usage(),
            thread.usage_by_hour(0),
            contexts,
            moves,
            turns,
            runs,
            opened,
            events,
            said,
            [*thread.erasures],
            [*thread.blobs],
        )

    def plain(self, value: Any) -> Any:
        """Return an answer without what is the engine's own."""
        if isinstance(value, (Context, Run, OpenTurn)):
            return type(value).__name__, value.id
        if isinstance(value, Page):
            return [*value], value.next_cursor
        if isinstance(value, Diff):
            return value.ancestor, [*value.mine], [*value.theirs]
        if isinstance(value, ThreadStatus):
            return {name: getattr(value, name) for name in SHOWN}
        return super().plain(value)


def grow(thread: eventq.Thread, count: int) -> None:
    """Make more of all that a thread can hold; its session file has some lines."""
    full(thread)
    with open(f"{thread.path}.jsonl", "wb") as file:
        file.writelines(lines(count, 0, "given"))
    thread.sessions.import_file(f"{thread.path}.jsonl", name="given session")
    erased = thread.contexts.get("given").append(f"to be erased {count}")
    thread.erasures.turn(erased.turn_id)
    context = thread.contexts.create(base=thread.contexts.get("given").head_id())
    for data in (b"given", LINES, NOISE[:9_000]):
        context.append(data, key=f"k{len(data)}")
    context.patch(context.head_id(), b"patched where it was given")
    context.fork().append("on a fork")
    scope = thread.scope("given")
    scope.artifacts.put(LINES[:80_000], "bash")
    scope.outputs.put("Given", f"output {context.id}")
    scope.outputs.publish("0-Given", f"again {context.id}")


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return two threads to copy from, of which there are packs as well."""
    folder = tmp_path_factory.mktemp("sources")
    paths = str(folder / "one"), str(folder / "two")
    with eventq.open(paths[0], create=True) as thread:
        thread.contexts.create("given").append("root")
        grow(thread, 4)
        thread.export_pack(fill(f"{paths[0]}.pack", {}))
    shutil.copytree(*paths)
    with eventq.open(paths[1]) as thread:
        grow(thread, 7)
        thread.export_pack(fill(f"{paths[1]}.pack", {}))
    return paths


@pytest.fixture
def given(sources: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let histories copy from those threads, and artifacts be stored while they are written."""
    monkeypatch.setattr(MemorySide, "sources", sources, raising=False)
    monkeypatch.setattr(artifacts, "COMMIT_BYTES", 1_000)


@pytest.fixture
def sides(
    path: str,
    tmp_path: Path,
    postgres: str,
    crowd: str,
    clock: Clock,
    quick: None,
    shared_connections: None,
    given: None,
) -> Iterator[Sides]:
    """Return both engines; nothing that is done to a thread changes another one."""
    with eventq.open(crowd) as others:
        before = rows_of(others.database)
        yield Sides(MemorySide, history, path, tmp_path, postgres, clock)
        assert rows_of(others.database) == before


SEEDS = [range(150), range(150, 300)]
SOAKED = [range(first, first + 500) for first in range(300, 10_300, 500)]


@pytest.mark.parametrize(
    "seeds", [*SEEDS, *(pytest.param(one, marks=pytest.mark.soak) for one in SOAKED)], ids=str
)
def test_the_engines_answer_alike(sides: Sides, seeds: range) -> None:
    """Whatever happens to a memory, its answers and errors do not say where it is stored.

    Each kind of step is taken, and not refused.
    """
    assert (found := sides.first_difference(seeds)) is None, found
    assert [name for name in WEIGHTS if not sides.done[name]] == []


@pytest.mark.parametrize(
    "seeds", [range(100, 105), pytest.param(range(105, 205), marks=pytest.mark.soak)], ids=str
)
def test_behind_a_pooler(
    seeds: range,
    path: str,
    tmp_path: Path,
    postgres: str,
    crowd: str,
    clock: Clock,
    quick: None,
    given: None,
) -> None:
    """That each transaction has another connection makes no difference."""
    pooler = Transactions(postgres)
    try:
        sides = Sides(MemorySide, history, path, tmp_path, pooler.url, clock)
        assert (found := sides.first_difference(seeds)) is None, found
        assert pooler.lent > 100 * len(seeds)
    finally:
        pooler.close()


def test_a_difference_is_found(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that is not tied to its thread is found out: others have the same ids."""

    def loose(sql: str, **how: bool) -> Translated:
        found = translated(sql, **how)
        is_it = "SELECT turn_id FROM eventq.turns WHERE parent_id =" in " ".join(found.text.split())
        return found._replace(text=found.text.replace("= $2", "<> -$2")) if is_it else found

    monkeypatch.setattr(database, "translated", loose)
    assert any(sides.difference(history(seed)) for seed in range(50))
