"""A small firm with four threads, as the pages show it: a day of work, and what went wrong in it.

Everything is made up and comes through the doors that agents use, at the times that it would have:
a session of Claude Code with a subagent and a rewind, runs, consumers in each state, questions.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import eventq
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq.records.info import ThreadStatus

HOURS, MINUTES = 15, 60  # of the day before, and of the last hour
SESSION = "5b7c2a90-1d34-4e6f-8a21-7c90de11f203"
CODER, TESTER, DEPLOYER, WRITER = (
    f"internal:dm:{name}:main" for name in ("coder", "tester", "deployer", "writer")
)
SHOP = "external:webhook:shop:acme::"
CI = "external:webhook:ci:builds::"


class World:
    """The threads of a folder, and what was seen of the first in each minute of the last hour."""

    def __init__(self, folder: Path, text: str = "") -> None:
        """Make them. `text` stands in whatever a person reads, so that hostile texts are tried."""
        self.text = text
        self.now = clock.now()
        self.seen: list[ThreadStatus] = []
        self.folder = folder
        self.run = self.died = 0
        folder.mkdir()
        self.paths: list[str] = []
        for name, fill in (
            ("atelier", self._atelier), ("support", self._support), ("nightly", self._nightly),
            ("scratch", lambda _: None),
        ):  # fmt: skip
            self.paths.append(str(folder / name))
            with eventq.open(self.paths[-1], create=True) as thread:
                fill(thread)

    @contextmanager
    def ago(self, minutes: float) -> Iterator[None]:
        """Let it be so many minutes ago; the clock goes on as it is used."""
        before, moment = clock.now, self.now - 60 * minutes
        started = before()
        clock.now = lambda: moment + (before() - started)
        try:
            yield
        finally:
            clock.now = before

    # --- the thread with everything ---------------------------------------------------------------

    def _atelier(self, thread: eventq.Thread) -> None:
        with self.ago(60 * HOURS + MINUTES):
            self._subscribe(thread)
        for hour, orders in enumerate(
            (90, 40, 20, 0, 0, 310, 580, 440, 220, 60, 30, 20, 480, 410, 300)
        ):
            with self.ago(60 * (HOURS - hour) + MINUTES):
                self._orders(thread, orders, dead=1 if hour == 5 else 0)
                if hour == 12:
                    self._old_run(thread)
        self._session(thread)
        for minute in range(MINUTES):
            with self.ago(MINUTES - minute):
                self._minute(thread, minute)
                self.seen.append(thread.status())
        with self.ago(2):
            self._output(thread)
            self._chats(thread)

    def _subscribe(self, thread: eventq.Thread) -> None:
        thread.subscribe("mailer", filter="type = 'order'", max_attempts=1, on_failure="dead")
        thread.subscribe("ledger", filter="type = 'order'")
        thread.subscribe("coder", filter="type IN ('ci', 'note')")
        thread.subscribe("indexer", filter="type = 'note'")
        thread.subscribe("deploy-bot", filter="type = 'deploy'", max_attempts=1, on_failure="stall")
        thread.subscribe("reviewer", filter="type = 'review'")

    def _orders(self, thread: eventq.Thread, number: int, dead: int = 0) -> None:
        first = thread.last_id() + 1
        thread.push_many(
            (SHOP, "order", json.dumps({"order": first + n, "total": 19 + 7 * n, "for": "acme"}))
            for n in range(number)
        )
        for name in ("mailer", "ledger"):
            claims = thread.claim(name, max(1, number), worker=f"{name}-1")
            bad = claims[:dead] if name == "mailer" else []
            thread.settle(claims[len(bad) :])
            for one in bad:
                self.died += 1
                thread.settle(dead=[one], error=self._reason(self.died))

    def _reason(self, n: int) -> str:
        if n % 4 == 3:
            return f"SMTPRecipientsRefused: <box{n}@example.org> is unknown {self.text}"
        return f"ConnectionRefusedError: [Errno 111] mail.example.org:25, attempt {n} {self.text}"

    def _minute(self, thread: eventq.Thread, minute: int) -> None:
        self._orders(thread, 1 + minute % 3, dead=3 if 22 <= minute < 28 else 0)
        for n in range(12 if minute % 2 else 7):
            status = "failed" if n == 3 else "passed"
            said = {"build": 4_000 + minute, "job": n, "status": status, "seconds": 31 + n}
            thread.push(CI, "ci", json.dumps(said), status)
        thread.settle(thread.claim("coder", 8, worker="coder-1"))
        if minute % 4 == 0:
            said_now = f"Reviewed the change of minute {minute}: two remarks, none blocks it."
            thread.push(TESTER, "note", f"{said_now} {self.text}")
        if minute < 48:
            thread.settle(thread.claim("indexer", 9))
        acts: dict[int, Callable[[eventq.Thread], object]] = {
            2: self._run_begins, 4: self._run_plans, 9: self._run_fails, 14: self._run_tests,
            15: self._run_compacts, 17: self._run_asks, 29: self._deploy, 38: self._region, 47: self._pause, 48: self._branch,
            55: self._answers, 59: self._under_way,
        }  # fmt: skip
        if minute in acts:
            acts[minute](thread)

    def _deploy(self, thread: eventq.Thread) -> None:
        thread.push(DEPLOYER, "deploy", '{"version": "v2.14.2", "to": "production"}')
        claims = thread.claim("deploy-bot", 1)
        thread.settle(
            retry=claims, error=f"kubectl: error: You must be logged in (Unauthorized) {self.text}"
        )

    def _region(self, thread: eventq.Thread) -> None:
        thread.ask(
            f"Which region should the new customer live in? {self.text}", source=WRITER,
            options=("eu-central", "us-east", "ap-south"), context="theme-port",
        )  # fmt: skip

    def _pause(self, thread: eventq.Thread) -> None:
        thread.pause("indexer")

    def _branch(self, thread: eventq.Thread) -> None:
        thread.ask(
            "May I delete the branch feature/old-importer? It has 14 commits that are not on main:"
            f"\n- 3f2a1 spike\n- 99aa2 wip\n- 11bc0 tests\n… 11 more commits {self.text}",
            options=("approve", "deny"), approval=True, source=CODER, context="theme-port",
        )  # fmt: skip

    def _answers(self, thread: eventq.Thread) -> None:
        for what, options, answer in (
            ("Re-run the quarantined tests?", ("approve", "deny"), "approve"),
            ("Where do backups of acme go?", ("eu-central", "us-east"), "eu-central"),
            ("Force-push to main?", ("approve", "deny"), "deny"),
        ):
            one = thread.ask(what, options=options, source=TESTER)
            thread.answer(one.question_id, answer, source="person")

    def _under_way(self, thread: eventq.Thread) -> None:
        thread.claim("reviewer", 1)
        thread.push(CODER, "review", "Please look at the last three commits of theme-port.")
        thread.claim("reviewer", 1, lease=600, worker="reviewer-2")

    # --- runs -------------------------------------------------------------------------------------

    def _old_run(self, thread: eventq.Thread) -> None:
        for label, code in (("nightly-tests", 0), ("docs-links", 0), ("bench-compare", 1)):
            run = thread.runs.start("check", f"Check {label}, and say what changed.", label=label)
            run.step("runner", meta={"tests": 214}, content=f"Ran all of {label}.")
            run.step("judge", content="Nothing changed." if not code else "12% slower: stop here.")
            run.end(code, "nothing to do" if not code else "gave up: slower than the limit")

    def _run_begins(self, thread: eventq.Thread) -> None:
        system = {
            "planner": "You plan releases. Be brief.",
            "tester": "You run the tests, and say what is red.",
            "deployer": "You deploy, after a person has approved it.",
        }
        prompt = f"Release v2.14.3 from main: changelog, tests, staging, production. {self.text}"
        self.run = thread.runs.start("release", prompt, system=system, label="release-2.14.3").id

    def _run_plans(self, thread: eventq.Thread) -> None:
        thread.runs.get(self.run).step(
            "planner", meta={"usage": {"input_tokens": 2_100, "output_tokens": 420}, "files": 3},
            content="1. changelog\n2. tests\n3. staging, 40 minutes\n4. ask, then production",
        )  # fmt: skip

    def _run_fails(self, thread: eventq.Thread) -> None:
        thread.runs.get(self.run).attempt(
            "tester", content="The runner had no disk left.", meta={"exit": 28}
        )

    def _run_tests(self, thread: eventq.Thread) -> None:
        passes = "211 of 214 pass; **3 are quarantined**: `test_dark`, `test_print`, `test_wide`."
        thread.runs.get(self.run).step(
            "tester", edge_prompt="Run the tests of the release branch.",
            meta={"usage": {"input_tokens": 9_400, "output_tokens": 1_020}, "passed": 211},
            content=f"{passes} {self.text}",
        )  # fmt: skip

    def _run_compacts(self, thread: eventq.Thread) -> None:
        thread.runs.get(self.run).compact("Plan made; tests pass but for three in quarantine.")

    def _run_asks(self, thread: eventq.Thread) -> None:
        run = thread.runs.get(self.run)
        run.step("deployer", meta={"usage": {"input_tokens": 4_800, "output_tokens": 300}},
                 content="Staging is green since 40 minutes. I ask before production.")  # fmt: skip
        thread.ask(
            "Deploy v2.14.3 to production? Staging has been green for 40 minutes; 3 of 214 tests"
            f" are quarantined. {self.text}",
            options=("approve", "deny"), approval=True, source=DEPLOYER, run=run.id,
        )  # fmt: skip
        run.suspend()

    # --- what was said ----------------------------------------------------------------------------

    def _session(self, thread: eventq.Thread) -> None:
        place = self.folder / f"{SESSION}.jsonl"
        lines, agent = theme_port(self.now - 3_000, self.text)
        _write(place, lines)
        beside = self.folder / SESSION / "subagents"
        beside.mkdir(parents=True)
        _write(beside / "agent-a1b2c3d4e5f60718.jsonl", agent)
        said = {"agentType": "Explore", "toolUseId": "toolu_11", "description": "find readers"}
        (beside / "agent-a1b2c3d4e5f60718.meta.json").write_text(json.dumps(said))
        with self.ago(3):
            thread.sessions.import_file(str(place), name="theme-port")

    def _chats(self, thread: eventq.Thread) -> None:
        main = thread.contexts.create("design-notes")
        talk = (
            _plain("user", f"Compare the two layouts of the settings page. {self.text}"),
            _plain("assistant", "The first has **fewer clicks**:\n\n| | clicks | words |\n|---|---|"
                                "---|\n| one page | 2 | 180 |\n| tabs | 4 | 160 |"),
            _plain("user", "And on a phone?"),
            _plain("assistant", "One page, too: tabs need a second row."),
        )  # fmt: skip
        turns = [main.append(json.dumps(one)) for one in talk]
        tabs = main.fork(at=turns[1].turn_id, name="tabs")
        tabs.append(json.dumps(_plain("user", "Then tabs it is: which four?")))

    def _output(self, thread: eventq.Thread) -> None:
        lines = [f"tests/test_{n:03}.py \x1b[32mPASSED\x1b[0m\n" for n in range(211)]
        lines[120] = f"tests/test_theme.py::test_dark \x1b[31mFAILED\x1b[0m {self.text}\n"
        thread.artifacts.put("".join(lines).encode(), "pytest")
        thread.artifacts.put(picture(320, 200), "screenshot")
        thread.artifacts.put(bytes(range(256)) * 40, "core")
        report = (
            f"# Release v2.14.3\n\nGreen since this morning. {self.text}\n\n## What was tried\n\n"
            "| part | state |\n|---|---|\n| tests | 211 of 214 |\n| staging | `green` |\n\n"
            "## What is left\n\n- production: a person was asked\n- three tests in quarantine\n"
        )
        first = thread.outputs.put("report", report)
        thread.outputs.publish(first.output_id, report.replace("211", "213"))
        thread.outputs.put("counts.json", '{"passed": 211, "quarantined": 3, "seconds": 402.5}')

    # --- the others -------------------------------------------------------------------------------

    def _support(self, thread: eventq.Thread) -> None:
        with self.ago(40):
            chat = thread.contexts.create("chat-alice")
            chat.append(json.dumps(_plain("user", "My order came on day 31. Can I return it?")))
            chat.append(json.dumps(_plain("assistant", f"I ask a colleague. {self.text}")))
            thread.ask(
                "The refund policy says 30 days, the customer writes on day 31. Refund anyway?"
                f" Give a reason. {self.text}",
                source="internal:dm:support:main", context="chat-alice",
            )  # fmt: skip
            thread.push("external:chat:web:alice::", "message", "Is anybody there?")

    def _nightly(self, thread: eventq.Thread) -> None:
        with self.ago(330):
            run = thread.runs.start("backup", "Back up every thread.", label="backup")
            run.step("copier", content="Copied 4 threads, 1.2 GB.")
            run.end(0, "all copied")
            thread.push("self", "note", "The nightly backup is done.")


# --- a session of Claude Code ---------------------------------------------------------------------


def theme_port(start: float, text: str = "") -> tuple[list[Any], list[Any]]:
    """Return the lines of a session that ports a theme, and those of its subagent."""
    made: list[dict[str, Any]] = []
    agent: list[dict[str, Any]] = []

    def add(
        kind: str, content: Any, parent: int | None = -1, into: list[Any] = made, **more: Any
    ) -> int:
        at = clock.stamp(start + 40 * (len(made) + len(agent)))
        above = into[parent]["uuid"] if into and parent is not None else None
        message = {"role": kind, "content": content} | more.pop("message", {})
        into.append({
            "parentUuid": above, "isSidechain": into is agent, "userType": "external",
            "cwd": "/home/dev/atelier", "sessionId": SESSION, "version": "2.1.197",
            "gitBranch": "theme-port", "type": kind, "message": message,
            "uuid": f"{len(made) + len(agent):08x}-aaaa-4bbb-8ccc-000000000000", "timestamp": at,
        } | ({"agentId": "a1b2c3d4e5f60718"} if into is agent else {}) | more)  # fmt: skip
        return len(into) - 1

    def says(content: str, parent: int | None = -1, into: list[Any] = made) -> int:
        return add("user", f"{content} {text}".strip(), parent, into)

    def answers(*blocks: Any, into: list[Any] = made) -> int:
        n = len(made) + len(agent)
        usage = {
            "input_tokens": 12, "output_tokens": 190 + 31 * n,
            "cache_read_input_tokens": 18_000 + 900 * n, "cache_creation_input_tokens": 640,
        }  # fmt: skip
        content = [
            {"type": "text", "text": f"{one} {text}".strip()} if isinstance(one, str) else one
            for one in blocks
        ]
        about = {"id": f"msg_{n:04}", "model": "claude-opus-4-5", "usage": usage, "type": "message"}
        return add("assistant", content, into=into, message=about)

    def call(n: int, name: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{n:02}", "name": name, "input": given}

    def came(
        n: int, what: Any, into: list[Any] = made, *, failed: bool = False, **more: Any
    ) -> int:
        block = {"type": "tool_result", "tool_use_id": f"toolu_{n:02}", "content": what}
        return add("user", [block | ({"is_error": True} if failed else {})], into=into, **more)

    says("The dark theme is gone since the port. Find out why, and bring it back.", None)
    answers(
        {"type": "thinking", "thinking": "The registry is the first place to look.", "signature": ""},
        "I look at what the tests say first.", call(1, "Bash", command="make test 2>&1 | tail -20"),
    )  # fmt: skip
    came(1, f"\x1b[31mFAILED\x1b[0m tests/test_theme.py::test_dark {text}\n1 failed, 213 passed")
    answers(
        "One test fails:\n\n- `test_dark` expects **two** themes\n- the registry has one",
        call(2, "Bash", command="git log --oneline -3 src/theme.py"),
    )
    came(2, "fatal: not a git repository", failed=True)
    answers(
        "It is one folder up.", call(3, "Bash", command="git -C .. log --oneline -3 src/theme.py")
    )
    came(3, "3f2a1 themes: read the registry once\n99aa2 themes: dark\n11bc0 themes")
    answers("I let an agent find all who read the registry.",
            call(11, "Task", description="find readers", subagent_type="Explore",
                 prompt="Find every reader of the theme registry."))  # fmt: skip
    says("Find every reader of the theme registry.", None, agent)
    answers(call(21, "Grep", pattern="registry\\(", path="src"), into=agent)
    came(21, "src/theme.py:14\nsrc/print.py:88\nsrc/app.py:203", agent)
    answers("Three: `theme.py`, `print.py`, and `app.py`, which reads it at import.", into=agent)
    came(11, [{"type": "text", "text": "Three readers; app.py reads it at import."}],
         toolUseResult={"agentId": "a1b2c3d4e5f60718", "status": "completed"})  # fmt: skip
    way = answers("Since `3f2a1` the registry is read once, before the dark theme is added. I can"
                  " read it at first use, or add themes earlier.")  # fmt: skip
    says("Add them earlier.")
    answers("Then each plugin has to be loaded before `app.py`; four tests break.")
    says("Read it at first use then.", way)
    answers(
        call(
            4,
            "Edit",
            file_path="/home/dev/atelier/src/theme.py",
            old_string="REGISTRY = read()",
            new_string="@cache\ndef registry():\n    return read()",
        )
    )
    came(4, "The file has been updated.")
    answers(call(5, "Bash", command="make test && make screenshot"))
    shown = {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(picture(240, 150)).decode(),
    }
    came(5, [{"type": "text", "text": "214 passed in 41.2s"}, {"type": "image", "source": shown}])
    answers(
        "Done: it is read at first use now.\n\n1. All 214 tests pass.\n2. The screenshot shows both"
        " themes.\n\n> The print theme reads it, too.\n\n```python\n@cache\ndef registry():\n"
        "    return read()\n```"
    )
    says("Thanks. Write a line for the changelog.")
    answers("`themes: read the registry at first use, so that the dark theme is back`")
    return made, agent


def _plain(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _write(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines), encoding="utf-8")


def picture(width: int, height: int) -> bytes:
    """Return a PNG: two halves, light and dark, each with a panel in it."""

    def shade(x: int, y: int) -> int:
        is_dark = 2 * x >= width
        is_panel = 0.2 < (2 * x % width) / width < 0.8 and 0.2 < y / height < 0.8
        return (40 if is_panel else 20) if is_dark else (255 if is_panel else 230)

    rows = b"".join(b"\0" + bytes(shade(x, y) for x in range(width)) for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + end

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in parts)
