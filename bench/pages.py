"""The pages in a real browser: when a push is shown, and how soon a view is painted.

It needs the browser of the tests: run `make test-browser` before.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eventq
from bench.contestants import KIND, SOURCE
from bench.machine import environment
from bench.machine import eventq as command
from bench.report import Row, Sample, alone, percentile
from bench.scale import busy_thread
from bench.served import SERVE_HTTP, Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rounds import Plan

CHROMIUM = Path(__file__).resolve().parent.parent / "tests" / "browser" / ".browser" / "chromium"
VIEWS = (
    ("Now", ""),
    ("Live", "live"),
    ("an event", "events/9000"),
    ("Consumers", "consumers"),
    ("a consumer", "consumers/{consumer}"),
    ("Runs", "runs"),
    ("a run of 200 steps", "runs/solve"),
    ("Branches, 10,000 turns in 200 contexts", "branches"),
    ("a conversation", "contexts/main"),
    ("a turn", "turns/1"),
    ("Output", "output"),
    ("an artifact of 10,000 lines", "output/0"),
    ("Health", "health"),
)
# Of a session of many messages; its first and its middle turn are put in.
LONG = (
    ("the newest 200", "contexts/long"),
    ("the first 200", "contexts/long?at={first}"),
    ("200 in its middle", "contexts/long?at={middle}"),
    ("the newest 200 of a chat as long", "contexts/chat"),
)
SEARCHES = (
    ("a search for what is in it", "contexts/long?q=step+7"),
    ("a search for what is not in it", "contexts/long?q=nowhere"),
    ("calls that failed", "contexts/long?only=failed"),
)
MOST_LONG, MOST_SEARCH = 500, 1_500  # ms until the first paint
MOST = 150  # ms until the first paint
THREADS, MOST_TOGETHER = 20, 200  # of the page of all threads, in ms
CONTEXTS, TURNS = 200, 10_000
# Resolves with the time at which a text is on the screen.
_SHOWN = """text => { window.shown = new Promise(resolve => {
  const look = () => document.body.textContent.includes(text)
    ? requestAnimationFrame(() => setTimeout(() => resolve(performance.timeOrigin + performance.now())))
    : null;
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}); }"""
# Resolves with the time of the first paint with content, in ms since the navigation began.
_PAINT = """() => new Promise(resolve => new PerformanceObserver(list => {
  const found = list.getEntriesByName("first-contentful-paint")[0];
  if (found) resolve(found.startTime);
}).observe({type: "paint", buffered: true}))"""


def run(plan: Plan) -> Iterator[Row]:
    """Measure both, or say what is missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield Row("the pages in a browser", "not measured: run `make test-browser` first")
        return
    if not CHROMIUM.exists():
        yield Row("the pages in a browser", "not measured: run `make test-browser` first")
        return
    with ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, chromium_sandbox=False,
            args=["--disable-quic", "--disable-gpu"],
        )  # fmt: skip
        stack.callback(browser.close)
        yield from _shown(plan, stack, browser)
        plan.clear()
        yield from _painted(plan, stack, browser)
        plan.clear()
        yield from _together(plan, stack, browser)


def _shown(plan: Plan, stack: ExitStack, browser: Any) -> Iterator[Row]:
    path = plan.place("thread")
    eventq.open(path, create=True).close()
    url = _url(stack.enter_context(Served(path, "full", SERVE_HTTP)))
    page = browser.new_page()
    count = plan.size(20, 3)
    tasks = {
        "live": lambda: _times(page, f"{url}/t/thread/live", _push, path, count),
        "now": lambda: _times(page, f"{url}/t/thread/", _ask, path, count),
    }
    found = plan.take(tasks)
    for name, what in (
        ("live", "`eventq push`, a whole process, to the page (Live)"),
        ("now", "`eventq ask`, a whole process, to the page (Now)"),
    ):
        for share, most in ((0.5, 150), (0.99, 300)):
            sample = Sample([percentile(one, share) for one in found[name]], "ms")
            yield alone(f"{what}, p{share * 100:.0f}", sample, most=most)
    page.close()


def _push(path: str, text: str) -> list[str]:
    return command("push", "--thread", path, "--source", SOURCE, "--type", KIND, "--content", text)


def _ask(path: str, text: str) -> list[str]:
    return command("ask", text, "--thread", path)


def _times(page: Any, url: str, make: Any, path: str, count: int) -> list[float]:
    page.goto(url)
    page.get_by_text("live", exact=True).wait_for()
    taken = []
    for _ in range(count):
        time.sleep(0.3)
        text = f"text-{time.time_ns()}"
        page.evaluate(_SHOWN, text)
        start = time.time()
        subprocess.run(make(path, text), env=environment(EVENTQ_NOTIFIER="none"), check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        taken.append(page.evaluate("window.shown") - start * 1_000)
        with eventq.open(path) as thread:  # a page shows the oldest ones
            for one in thread.questions():
                thread.answer(one.question_id, "yes")
    return taken


def _painted(plan: Plan, stack: ExitStack, browser: Any) -> Iterator[Row]:
    size = plan.size(1_000_000, 20_000)
    with busy_thread(plan, size) as thread:
        _talk(thread)
        _work(thread)
        consumer = thread.subscriptions()[0].consumer_id
        thread.artifacts.put(b"a line\n" * 10_000, "make")
        messages = plan.size(50_000, 1_000)
        first = _long(thread, plan.place("long.jsonl"), messages)
        path = thread.path
    url = _url(stack.enter_context(Served(path, "full", SERVE_HTTP)))

    def paint(view: str) -> float:
        return _paint(browser, f"{url}/t/thread/{view}")

    views = [(name, view.format(consumer=consumer)) for name, view in VIEWS]
    found = plan.take({view: partial(paint, view) for _, view in views})
    for name, view in views:
        what = f"first paint at {size:,} events and 100 consumers: {name}"
        yield alone(what, Sample(found[view], "ms"), most=MOST)
    places = {"first": first, "middle": first + messages // 2}
    for long, most in ((LONG, MOST_LONG), (SEARCHES, MOST_SEARCH)):
        named = [(name, view.format(**places)) for name, view in long]
        found = plan.take({view: partial(paint, view) for _, view in named})
        for name, view in named:
            what = f"first paint of a session of {messages:,} messages: {name}"
            yield alone(what, Sample(found[view], "ms"), most=most)


def _paint(browser: Any, url: str) -> float:
    """Return when a page is painted first; what it asks for next is not left to the next one."""
    page = browser.new_page()
    page.goto(url, wait_until="load")
    found = float(page.evaluate(_PAINT))
    if page.locator("[data-part]").count():
        page.get_by_text("live", exact=True).wait_for()
    page.close()
    return found


def _together(plan: Plan, stack: ExitStack, browser: Any) -> Iterator[Row]:
    """Measure the page of all threads, each of which has needs, contexts and runs."""
    count, size = plan.size(THREADS, 3), plan.size(50_000, 2_000)
    paths = []
    for number in range(count):
        with busy_thread(plan, size, consumers=19) as thread:
            _need(thread, size)
            context = thread.contexts.create(f"of thread {number}")
            for turn in range(50):
                context.append(eventq.NewTurn(f"turn {turn}", ("user", "tool", "agent")[turn % 3]))
            thread.runs.start("solve", "a task").step("coder", content="half of it")
            paths.append(thread.path)
    options = [word for path in paths[1:] for word in (path, "--thread")]
    served = stack.enter_context(Served(paths[0], "full", (*SERVE_HTTP, *options)))
    url = _url(served)
    found = plan.take({"now": partial(_paint, browser, f"{url}/")})
    what = f"first paint of Now of {count} threads of {size:,} events and 20 consumers"
    yield alone(what, Sample(found["now"], "ms"), most=MOST_TOGETHER)


def _need(thread: eventq.Thread, size: int) -> None:
    """Let ten questions, and the dead letters of a consumer, wait for somebody."""
    for number in range(10):
        thread.ask(f"Deploy version {number}?", approval=True, source="internal:dm:deployer:main")
    thread.subscribe("mailer", filter=f"id > {size - 100}", max_attempts=1, on_failure="dead")
    claims = thread.claim("mailer", 50)
    thread.settle(dead=[one.token for one in claims], error="ConnectionRefusedError: 10.0.0.7")


def _talk(thread: eventq.Thread) -> None:
    """Make contexts that leave each other, and turns."""
    each = TURNS // CONTEXTS
    with thread.write():
        context = thread.contexts.create("main")
        for number in range(CONTEXTS):
            for turn in range(each):
                context.append(eventq.NewTurn(f"turn {turn}", ("user", "tool", "agent")[turn % 3]))
            context = context.fork(name=f"branch {number}")


def _long(thread: eventq.Thread, file: str, count: int) -> int:
    """Make a session and a chat of so many messages; return the first turn of the session."""
    with Path(file).open("w") as lines:
        lines.writelines(f"{json.dumps(_entry(n))}\n" for n in range(count))
    thread.sessions.import_file(file, name="long")
    with thread.write():
        chat = thread.contexts.create("chat")
        for n in range(count):
            role = ("user", "assistant")[n % 2]
            chat.append({"role": role, "content": f"message {n} about **things** and more"})
    return thread.contexts.get("long").ancestor(0)


def _entry(n: int) -> dict[str, Any]:
    """Return an entry of Claude Code: of ten, one is a person's, four call a tool."""
    content: Any = f"What is to be done in step {n}?"
    role = "assistant" if n % 2 else "user"
    if n % 10 in (1, 3, 5, 7):
        given = {"command": f"make step {n}", "description": "a step of many"}
        content = [{"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": given}]
    elif n % 10 in (2, 4, 6, 8):
        is_error = n % 100 == 2
        told = {"content": "a line of output\n" * 20, "is_error": is_error}
        content = [{"type": "tool_result", "tool_use_id": f"t{n - 1}", **told}]
    message = {"role": role, "model": "m-1", "id": f"m{n}", "content": content}
    above = f"e{n - 1}" if n else None
    return {
        "uuid": f"e{n}", "parentUuid": above, "type": role, "sessionId": "long",
        "timestamp": "2026-01-01T00:00:00.000Z", "message": message,
    }  # fmt: skip


def _work(thread: eventq.Thread) -> None:
    """Make a run of some length."""
    with thread.write():
        run = thread.runs.start("solve", "find the fault", label="solve")
        for step in range(200):
            role = ("coder", "reviewer")[step % 2]
            run.step(role, meta={"tokens": {"in": 2_000, "out": step}}, content=f"step {step}")


def _url(served: Served) -> str:
    host, port = served.address
    return f"http://{host}:{port}"
