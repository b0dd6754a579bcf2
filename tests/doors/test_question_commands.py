"""The commands that ask and answer, and what `info` says of a whole thread."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import eventq
from eventq.system.environment import user_name
from tests.doors.support import EVENTQ, Done, environ, objects, ok, refused, run

ME = user_name()


@pytest.fixture
def desk(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a thread that the commands use."""
    monkeypatch.setenv("EVENTQ_THREAD", path)
    return path


@pytest.mark.usefixtures("desk")
def test_a_question_is_asked_listed_and_answered() -> None:
    """`ask` prints the id, `questions` a line for each, and `questions ID` the answer."""
    assert ok("ask", "Which region?", "--option", "eu", "--option", "us") == "1\n"
    assert ok("ask", "Deploy\nnow?", "--approval", "--source", "internal:a:b:c") == "2\n"
    lines = ok("questions").splitlines()
    assert lines[0].split("  ")[0::2] == ["1", "self", "Which region?"]
    assert lines[1].endswith("  internal:a:b:c  approval  Deploy\\nnow?  [approve | deny]")
    assert ok("answer", "2", "deny", "--source", "ada") == "Answered question 2\n"
    assert ok("questions 2") == "deny\n"
    (answered,) = objects("questions 2")
    assert (answered["answer"], answered["answered_by"], answered["options"]) == (
        "deny", ME, ["approve", "deny"],
    )  # fmt: skip
    (asked,) = objects("questions")
    assert (asked["question_id"], asked["answer"]) == (1, None)
    assert objects("answer", "1", "neither")[0]["answer"] == "neither"
    assert ok("questions") == ""


@pytest.mark.usefixtures("desk")
def test_a_question_says_where_it_is_asked() -> None:
    """`ask` takes a context and a run, and `questions` shows both."""
    ok("ask", "Which one?", "--context", "main\u202e", "--run", "3")
    assert ok("questions").endswith("  Which one?  in run 3  in main\\u202e\n")
    (asked,) = objects("questions")
    assert (asked["context"], asked["run"]) == ("main\u202e", 3)


@pytest.mark.usefixtures("desk")
def test_a_note_beside_an_answer() -> None:
    """Stdout has the answer alone, as it is without a note; JSON has both."""
    ok("ask", "Deploy?", "--approval")
    ok("answer", "1", "approve", "--note", "after\nsix")
    found = run("questions", "1")
    assert (found.out, found.err) == ("approve\n", "Note: after\\nsix\n")
    (shown,) = objects("questions", "1")
    assert (shown["answer"], shown["note"]) == ("approve", "after\nsix")
    refused(1, "question 1 was answered", run("answer", "1", "approve", "--note", "other"))


@pytest.mark.usefixtures("desk")
def test_ask_waits_for_the_answer(desk: str) -> None:
    """It prints the answer that comes meanwhile; without one in time it says how to go on."""
    late = run("ask", "Well?", "--wait", "0.01s")
    refused(1, "nobody has answered question 1 within 0.01s - run 'eventq answer 1 TEXT'", late)
    refused(1, "nobody has answered question 1 - run", run("questions 1 --wait 0"))
    with (
        subprocess.Popen(
            [EVENTQ, "ask", "Go on?", "--key", "k", "--wait", "20s"],
            env=environ(), stdout=subprocess.PIPE, text=True,
        ) as waits,
        eventq.open(desk) as thread,
    ):  # fmt: skip
        thread.answer(next(thread.follow(1)).id, "yes")
        assert waits.communicate()[0] == "yes\n"
    assert ok("ask", "Go on?", "--key", "k", "--wait", "20s") == "yes\n"
    assert ok("questions 2 --wait 1h") == "yes\n"


@pytest.mark.usefixtures("desk")
def test_what_cannot_be_asked_or_answered_is_refused() -> None:
    """With one sentence, and the next step."""
    ok("ask", "Deploy?", "--approval")
    refused(
        2, "approval 1 cannot be answered with 'x' - answer 'approve' or 'deny'", run("answer 1 x")
    )
    refused(1, "event 7 is no question - see 'eventq questions'", run("answer 7 x"))
    refused(1, "event 7 is no question", run("questions 7"))
    refused(2, "the question is empty - give it a text", run("ask", " "))
    refused(2, "two options are the same", run("ask", "x", "--option", "a", "--option", "a"))
    refused(2, "--wait has no effect without a question", run("questions --wait 1"))
    ok("answer 1 deny")
    refused(
        1,
        f"was answered before, by '{ME}': deny - the first answer counts",
        run("answer 1 approve"),
    )
    assert ok("answer 1 deny") == "Answered question 1\n"


@pytest.mark.usefixtures("desk")
def test_an_answer_that_is_pushed_says_who_answers() -> None:
    """The door does; under both names, alone, in a batch and in a stream. Hooks answer nothing."""
    good = {"source": "ada", "type": "answer", "content": {"question": 1, "text": "deny"}}
    line = json.dumps({**good, "key": "answer:1"})
    bad = json.dumps({**good, "content": {"question": 1, "text": "no"}, "key": "answer:1"})
    ok("ask", "Deploy?", "--approval")
    options = ("push", "--source", "ada", "--type", "answer", "--key", "answer:1", "--content")
    says = "approval 1 cannot be answered with 'no' - answer 'approve' or 'deny'"
    refused(2, says, run(*options, '{"question": 1, "text": "no"}'))
    refused(2, f"line 1: {says}", run("push --batch", given=bad))
    thread = (os.environ["EVENTQ_THREAD"],)
    done = run("push --batch --thread", *thread, given=bad, program="thread")
    refused(2, f"line 1: {says}", done)
    done = run("push --stream", given=f"{bad}\n")
    assert (done.code, says in done.err) == (1, True)
    refused(2, "and nothing else; who answers is added",
            run(*options, '{"question": 1, "text": "deny", "by": "x"}'))  # fmt: skip
    hook = json.dumps({"hook_event_name": "answer", "tool_use_id": "1"})
    run("hook", given=hook)
    assert objects("peek --last 1")[0]["content"] == hook
    assert ok("push --stream", given=line) == "3\n"
    assert run(*options, '{"question": 1, "text": "deny"}') == Done(0, "", "")
    (found,) = objects("questions 1")
    assert (found["answered_by"], found["answered_via"]) == (ME, "shell")


@pytest.mark.usefixtures("desk")
def test_a_terminal_answers_for_a_person() -> None:
    """A script does not, where a person is asked for."""
    refused(2, "--by-person has no effect without --approval", run("ask x --by-person"))
    ok("ask", "Deploy?", "--approval", "--by-person")
    refused(1, "approval 1 is for a person to answer - answer it at", run("answer 1 deny"))
    leader, follower = os.openpty()
    try:
        subprocess.run([EVENTQ, "answer", "1", "deny"], env=environ(), stdin=follower, check=True)
    finally:
        os.close(leader)
        os.close(follower)
    (found,) = objects("questions 1")
    assert (found["answer"], found["answered_via"]) == ("deny", "terminal")


@pytest.mark.usefixtures("desk")
def test_info_says_what_goes_on(desk: str) -> None:
    """Questions, contexts, runs and what is written; as JSON with all their fields."""
    assert ok("info").splitlines()[1:] == ["Events: 0", "Subscriptions: 0"]
    with eventq.open(desk) as thread:
        thread.ask("Well?")
        thread.contexts.create("main").append("hello")
        thread.runs.start(eventq.NewRun("w", "p")).suspend()
        with thread.artifacts.allocate("log") as writer:
            writer.write(b"x")
            lines = ok("info").splitlines()
            (found,) = objects("info")
    assert lines[1:3] == ["Events: 1", "Questions: 1 (see 'eventq questions')"]
    assert lines[3].startswith("Contexts: 2 (last change: ")
    assert lines[4:6] == ["Runs: 1 suspended", "Being written: artifact://0 (log, 0 bytes)"]
    assert (found["question_count"], found["context_count"], found["runs"]) == (
        1, 2, {"suspended": 1},
    )  # fmt: skip
    assert found["questions"][0]["text"] == "Well?"
    assert found["contexts"][-1]["name"] == "main"
    assert (found["artifacts"][0]["status"], found["newest_at"][:2]) == ("open", "20")


@pytest.mark.usefixtures("desk")
def test_info_says_that_more_may_wait() -> None:
    """With a plus; and who holds claims."""
    ok("subscribe --consumer w --filter", "type = 'a'")
    line = '{"source":"self","type":"a","content":"x"}\n'
    ok("push --batch", given=line * 2_000)
    run("claim --consumer w --worker ada --limit 2")
    found = json.loads(ok("info --json"))["subscriptions"][0]
    assert (found["pending_is_least"], found["workers"][0]["claims"]) == (True, 2)
    lines = ok("info").splitlines()
    assert any(line.startswith("    pending: ") and line.endswith("+") for line in lines)
    assert "    claimed by: ada (2)" in lines
