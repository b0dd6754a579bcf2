"""The pages in a real browser: what comes live, the keyboard, what does without a script."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eventq.http.pages import branch_pages
from tests.browser.conftest import HERE, Tab, opened

if TYPE_CHECKING:
    from pathlib import Path

    import eventq
    from tests.conftest import Until
    from tests.http.conftest import Running

pytestmark = pytest.mark.browser
EVIL = "<script>window.evil=1</script><img src=x onerror='window.evil=1'>"


def talk(text: str) -> list[dict[str, Any]]:
    """Return a conversation of twelve messages, with calls and what came of them."""

    def calls(n: int, says: str, command: str) -> dict[str, Any]:
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": command}}
        usage = {
            "input_tokens": 900 * n,
            "output_tokens": 120 + n,
            "cache_read_input_tokens": 8_000,
        }
        content = [{"type": "text", "text": f"{says} {text}"}, call]
        return {
            "role": "assistant",
            "model": "m-5",
            "id": f"r{n}",
            "usage": usage,
            "content": content,
        }

    def came(n: int, what: str, *, failed: bool = False) -> dict[str, Any]:
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{n}",
            "content": what,
            "is_error": failed,
        }
        return {"role": "user", "content": [result]}

    def says(role: str, what: str) -> dict[str, Any]:
        return {"role": role, "content": f"{what} {text}"}

    return [
        says("user", "The build is red since this morning. Find out why, and mend it."),
        calls(1, "I look at what the build says.", "make test 2>&1 | tail -20"),
        came(1, f"FAILED tests/test_theme.py::test_dark {text}\n1 failed, 213 passed"),
        says(
            "assistant",
            "One test fails:\n\n- `test_dark` expects **two** themes\n- the registry has one",
        ),
        says("user", "Since when?"),
        calls(2, "The log of that file tells.", "git log --oneline -3 src/theme.py"),
        came(2, "fatal: not a git repository", failed=True),
        calls(3, "It is one folder up.", "git -C .. log --oneline -3 src/theme.py"),
        came(3, "3f2a1 themes: read the registry once\n99aa2 themes: dark\n11bc0 themes"),
        says("assistant", "Since `3f2a1`: the registry is read before the dark theme is added."),
        says("user", "Mend it then."),
        says("assistant", "Done: it is read at first use now. All 214 tests pass."),
    ]


def fill(thread: eventq.Thread, text: str = "") -> None:
    """Put something of everything into a thread."""
    thread.push("alice", "note", f"A plain event {text}")
    thread.push("bob", "json", '{"build": {"status": "failed", "tests": [1, 2, 3]}}')
    thread.ask(f"Deploy to production? {text}", options=("yes", "no"), approval=True)
    thread.ask(f"Which name shall it have? {text}", options=("north", "south"))
    thread.subscribe("worker", max_attempts=1, on_failure="dead")
    thread.settle(dead=[one.token for one in thread.claim("worker", 2)], error=f"no disk {text}")
    main = thread.contexts.create("main")
    for one in talk(text):
        main.append(json.dumps(one))
    main.fork(at=5, name="retry").append("another way")
    thread.runs.start("solve", f"fix the build {text}", label="build").step(
        "coder", meta={"files": 2}, content="done"
    )
    thread.artifacts.put(b"".join(b"line %d FAILED\n" % n for n in range(800)), "make")
    thread.artifacts.put(bytes(range(256)), "core")
    notes = thread.outputs.put("notes", f"# Notes\n\n{text}\n\n## More\n\n|a|b|\n|-|-|\n|1|2|\n")
    thread.outputs.publish(notes.output_id, '{"findings": [1, 2]}')


def test_a_push_is_shown(tab: Tab, thread: eventq.Thread) -> None:
    """Without a reload, on Now and on Live."""
    page = tab.show("")
    assert page.get_by_text("there is no event yet").is_visible()
    thread.push("self", "note", "x")
    page.get_by_text("the last event came").wait_for()
    page = tab.show("live")
    thread.push("self", "note", '{"now": 1}')
    page.get_by_text("now 1", exact=True).wait_for()
    page.get_by_role("button", name="Pause").click()
    thread.push("self", "note", "later")
    page.get_by_text("paused: 1 event came since").wait_for()
    assert page.get_by_text("later", exact=True).count() == 0
    page.get_by_role("button", name="Go on").click()
    page.get_by_text("later", exact=True).wait_for()


def test_a_change_before_the_stream_is_shown(tab: Tab, thread: eventq.Thread) -> None:
    """What ends after a page was made, and before its stream is heard, does not wait for a poll."""
    thread.subscribe("worker")
    thread.push("self", "note", "x")
    (claim,) = thread.claim("worker", 1)

    def connect(route: Any) -> None:
        if claims:
            thread.settle(done=[claims.pop().token])
        route.fulfill(content_type="text/event-stream", body=": connected\n\n")  # and no change

    claims = [claim]
    tab.page.clock.install(time=0)
    tab.page.clock.pause_at(1000)  # so that no timer of the page ends
    tab.page.route("**/changes?*", connect)
    tab.show("").get_by_role("link", name="1 done").wait_for()


def test_many_events_are_sampled(tab: Tab, thread: eventq.Thread) -> None:
    """What a page cannot show, and nobody can read, is left out; it says so."""
    page = tab.show("live")
    page.get_by_text("live", exact=True).wait_for()
    for _ in range(5):
        thread.push_many([("self", "note", f"{n}") for n in range(2_000)])
    page.get_by_text("came at once: the newest of them are shown").wait_for()
    assert page.locator("#events tbody tr").count() == 100
    thread.push("self", "note", "the last one")
    page.get_by_text("the last one", exact=True).wait_for()


def test_a_found_event_is_in_view(tab: Tab, thread: eventq.Thread, until: Until) -> None:
    """By the fragment of its link; what comes meanwhile does not move it."""
    thread.push_many([("self", "note", f"it is {n}") for n in range(300)])
    page = tab.show("live?id=100#e-100")
    row = page.locator("#e-100")
    thread.push("self", "note", "x")
    page.get_by_text("live", exact=True).wait_for()
    assert row.get_attribute("class") == "found"
    seen = (
        "e => { const r = e.getBoundingClientRect(); return r.top > 0 && r.bottom < innerHeight; }"
    )
    until(lambda: row.evaluate(seen), "it is in view", 20)  # a browser scrolls when it has time


def test_live_is_filtered_with_the_keyboard(tab: Tab, thread: eventq.Thread) -> None:
    """A chip, then a text; on a phone behind a fold."""
    thread.push_many([("self", kind, f"{kind} {n}") for kind in ("note", "task") for n in (1, 2)])
    tab.page.set_viewport_size({"width": 390, "height": 700})
    page = tab.show("live")
    page.locator(".filters > summary").focus()
    page.keyboard.press("Enter")
    page.locator(".chips a", has_text="task").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**type=task*")
    assert page.locator("#events tbody tr").count() == 2
    page.get_by_label("text", exact=True).focus()
    page.keyboard.type("task 2")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=task*")
    assert [one.inner_text() for one in page.locator("#events tbody th").all()] == ["4"]


def test_a_question_is_answered_with_the_keyboard(tab: Tab, thread: eventq.Thread) -> None:
    """From the top of the page to the answer, with Tab and Enter alone."""
    asked = thread.ask("Which name?")
    page = tab.show("")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('main input')"):
            break
    page.keyboard.type("north")
    thread.push("self", "note", "something else happens meanwhile")
    page.get_by_text("live", exact=True).wait_for()
    assert page.evaluate("document.activeElement.value") == "north"
    page.keyboard.press("Enter")
    page.get_by_text("Nobody needs you").wait_for()
    assert thread.question(asked.question_id).answer == "north"


def test_rows_do_not_move_under_the_finger(tab: Tab, thread: eventq.Thread) -> None:
    """While a control among them has focus, new ones wait and are counted."""
    thread.ask("The first?", approval=True)
    page = tab.show("")
    page.get_by_role("button", name="Deny").focus()
    number = thread.ask("The second?").question_id
    page.get_by_role("button", name="1 new").wait_for()
    assert page.get_by_text("The second?").count() == 0
    page.get_by_role("button", name="1 new").click()
    page.get_by_text("The second?").wait_for()
    page.get_by_role("button", name="Deny").focus()
    thread.answer(number, "yes")
    page.get_by_role("button", name="the list has changed").wait_for()
    page.get_by_role("link", name="eventq").focus()
    page.locator("#needs").get_by_text("The second?").wait_for(state="detached")
    assert page.get_by_role("button", name="the list has changed").count() == 0


def test_what_is_open_or_written_stays(tab: Tab, thread: eventq.Thread) -> None:
    """A fold stays open when its list is shown anew, and a note is not lost with the focus."""
    thread.ask("May I delete it?\nIt has:\n- a spike\n- the last line", approval=True)
    page = tab.show("")
    page.get_by_text("All of it").click()
    page.get_by_role("link", name="eventq").focus()
    thread.ask("Another?")
    page.get_by_text("Another?").wait_for()
    assert page.get_by_text("- the last line").is_visible()
    page.get_by_text("with a note").click()
    page.get_by_placeholder("a note").fill("only if it is old")
    page.get_by_role("link", name="eventq").focus()
    thread.ask("A third?")
    page.get_by_text("3 need you").wait_for()
    assert page.get_by_placeholder("a note").input_value() == "only if it is old"
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("approve, with the note: only if it is old").wait_for()
    assert thread.question(1).note == "only if it is old"


def test_dead_letters_are_tried_again(tab: Tab, thread: eventq.Thread) -> None:
    """And what others do shows at once."""
    fill(thread)
    page = tab.show("consumers/worker")
    page.get_by_role("button", name="Retry all 2").click()
    page.get_by_text("No dead letters").wait_for()
    assert [*thread.dead_letters("worker")] == []
    thread.pause("worker")
    page.get_by_text("paused").wait_for()


def test_chosen_dead_letters_are_dropped_with_the_keyboard(tab: Tab, thread: eventq.Thread) -> None:
    """Through a page that names them; what is chosen stays so while other things happen."""
    fill(thread)
    page = tab.show("consumers/worker")
    page.get_by_label("Choose event 1").focus()
    page.keyboard.press("Space")
    thread.push("self", "note", "something else happens meanwhile")
    page.get_by_text("1 event waits").wait_for(state="detached")
    page.get_by_role("button", name="Drop chosen…").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Drop 1 dead letter of worker?").wait_for()
    page.get_by_role("button", name="Drop 1 dead letter").focus()
    page.keyboard.press("Enter")
    page.get_by_text("1 dead letter of worker dropped").wait_for()
    assert [one.event_id for one in thread.dead_letters("worker")] == [2]


def test_a_click_on_a_lane_shows_its_turn(tab: Tab, thread: eventq.Thread) -> None:
    """And a fork can be made there."""
    fill(thread)
    page = tab.show("branches")
    page.locator(".lane a[href$='/1?depth=3']").click()
    page.wait_for_url("**/contexts/*?depth=3")
    page.locator("a[title='Turn 4']").click()
    page.get_by_label("Fork here as").fill("here")
    page.get_by_role("button", name="Fork").click()
    page.wait_for_url("**/contexts/*")
    assert page.get_by_role("heading", name="here").is_visible()
    assert thread.contexts.head("here") == 4


def test_what_was_not_read_yet_comes_by_itself(
    tab: Tab, thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes in the thread, and nobody loads the page."""
    fill(thread)
    monkeypatch.setattr(branch_pages, "SECONDS", -1)
    monkeypatch.setattr(branch_pages, "SECONDS_AGAIN", -1)
    page = tab.show("branches")
    page.get_by_text("live", exact=True).wait_for()
    assert page.locator(".lanes path.b-unknown").count()
    monkeypatch.setattr(branch_pages, "SECONDS_AGAIN", 60)
    page.locator(".lanes path.b-user").first.wait_for(state="attached", timeout=9_000)


def test_a_page_stays_where_it_is_read(tab: Tab, thread: eventq.Thread, until: Until) -> None:
    """What comes anew is as high as what it stands for, also what was never on the screen."""
    with thread.write():
        for number in range(80):
            thread.contexts.create(f"c{number}").append("a turn")
    page = tab.show("branches")
    page.locator("#branches[data-shown]").wait_for()  # it has come anew once, with all its rows
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    row = page.locator(".lanes li").nth(60)
    before = row.bounding_box()
    thread.contexts.get("c79").append("another")
    page.locator(".lanes li").first.get_by_text("2 turns").wait_for(state="attached")
    assert row.bounding_box() == before


def tab_to(page: Any, name: str) -> None:
    """Press Tab until a control has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == name:
            return
    raise AssertionError(name)


def test_a_run_is_forked_and_ended_with_the_keyboard(tab: Tab, thread: eventq.Thread) -> None:
    """A step opens, is forked from, and the run ends; each by Tab and Enter alone."""
    fill(thread)
    page = tab.show("runs/build")
    for _ in range(60):
        page.keyboard.press("Tab")
        if "done" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    page.get_by_text("What the model saw").wait_for()
    tab_to(page, "Fork")
    page.keyboard.press("Enter")
    page.get_by_text("Forked at step 1.").wait_for()
    page.wait_for_url("**/runs/4")
    tab_to(page, "End…")
    page.keyboard.press("Enter")
    tab_to(page, "End run 4")
    page.keyboard.press("Enter")
    page.get_by_text("Run 4 ended. Its steps stay.").wait_for()
    assert thread.runs.get(4).info().status == "cancelled"


def test_long_names_fit_on_a_phone(tab: Tab, thread: eventq.Thread) -> None:
    """Of runs, roles, contexts, tools, outputs and what they hold; without a blank in them."""
    long = "W" * 190
    run = thread.runs.start(long, long * 9, label=long)
    run.attempt(long, {long: long}, long)
    run.step(long, {long: long * 5, "model": long}, long * 9, edge_prompt=long)
    run.end(10**9, long)
    context = thread.contexts.create(f"c{long}")
    context.append(long)
    context.fork(name=f"f{long}")
    table = f"|{'W' * 40}" * 9 + "|\n" + "|-" * 9 + f"|\n{f'|{long}' * 9}|"
    thread.outputs.put("doc", f"# {long}\n\n{long}\n\n{table}\n\n## {long}\n")
    thread.artifacts.put(f"{long * 5}\nFAILED {long}".encode(), "t" * 60)
    with thread.artifacts.allocate("x") as writer:
        writer.write(bytes(200))
        writer.fail(long * 3)
    for view in (
        "runs", "runs/1", "runs/1?step=1", "branches", "branches?zoom=0", "output", "output/0",
        "output/1", "output/0?lines=failed", "published/0-doc",
    ):  # fmt: skip
        page = tab.show(view)
        for width in (360, 768, 1360):
            page.set_viewport_size({"width": width, "height": 700})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert (view, wide) == (view, min(wide, width))


def test_who_signs_in_can_use_the_form(tab: Tab) -> None:
    """The page has a name for its field, on a phone, too."""
    tab.page.goto(f"{tab.url}/login")
    assert tab.faults() == []
    tab.page.set_viewport_size({"width": 360, "height": 700})
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_an_artifact_is_followed(tab: Tab, thread: eventq.Thread) -> None:
    """Its lines come as they are written."""
    with thread.artifacts.allocate("make") as writer:
        writer.write(b"first\n")
        page = tab.show("output/0")
        writer.write(b"x" * (5 << 20) + b"\nthe end\n")
        writer.seal()
    page.get_by_text("sealed").wait_for()


def test_hostile_data_does_nothing(tab: Tab, thread: eventq.Thread) -> None:
    """Nothing that comes live runs."""
    page = tab.show("live")
    thread.push(EVIL, EVIL, EVIL)
    page.locator("tbody td", has_text="onerror").first.wait_for()
    assert page.evaluate("window.evil") is None


def test_a_time_that_no_browser_reads(tab: Tab, thread: eventq.Thread) -> None:
    """It stands there as it is, and what comes is shown nevertheless."""
    main = thread.contexts.create("main")
    said = {"role": "user", "content": "from far away"}
    entry = {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": 9e14, "message": said}
    main.append(json.dumps(entry))
    page = tab.show("contexts/main")
    assert page.locator('time[datetime^="30489-"]').first.is_visible()
    main.append("said later")
    page.get_by_text("said later").wait_for()


def test_a_server_that_ends_is_said(browser: Any, site: Running, thread: eventq.Thread) -> None:
    """In words; what was shown stays."""
    thread.push("self", "note", "x")
    with opened(browser, site) as tab:
        page = tab.show("")
        page.get_by_text("live", exact=True).wait_for()
        site.stop()
        page.get_by_text("the server does not answer").wait_for()
        assert page.get_by_text("the last event came").is_visible()
        tab.problems.clear()  # the browser notes that it cannot connect


def test_what_is_gone_is_said(tab: Tab, thread: eventq.Thread) -> None:
    """The server answers, but not with the page; what was shown stays."""
    main = thread.contexts.create("main")
    main.append("said before")
    page = tab.show("contexts/main")
    page.get_by_text("live", exact=True).wait_for()
    main.delete()
    page.get_by_text("load the page to see why").wait_for()
    assert page.get_by_text("said before").first.is_visible()
    tab.problems.clear()  # the browser notes that it was not found


def test_without_a_script(browser: Any, site: Running, thread: eventq.Thread) -> None:
    """Everything can be read, and answered."""
    asked = thread.ask("Well?", options=("yes",))
    with opened(browser, site, java_script_enabled=False) as tab:
        page = tab.show("")
        page.get_by_role("button", name="yes").click()
        assert thread.question(asked.question_id).answer == "yes"


def test_what_the_browser_is(tmp_path: Path) -> None:
    """It was installed from packages, and nothing was skipped."""
    assert (HERE / ".browser" / "chromium").stat().st_size > 100_000_000
