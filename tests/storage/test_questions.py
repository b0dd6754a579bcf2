"""Questions and their answers, on both engines: an open one is listed until it is answered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from eventq import (
    AnsweredError,
    InputError,
    KeyConflictError,
    LogicError,
    Question,
    UnknownQuestionError,
    UsageError,
)

if TYPE_CHECKING:
    from eventq import Thread


def open_ids(thread: Thread) -> list[int]:
    """Return the ids of the questions that are open."""
    return [one.question_id for one in thread.questions()]


def test_a_question_is_open_until_somebody_answers_it(opened: Thread) -> None:
    """It is an event like others, listed while it is open; then it has its answer."""
    asked = opened.ask("Which region?", ["eu", "us"], source="self")
    assert asked == Question(
        1, "question", "self", "Which region?", ("eu", "us"), opened.last(1)[0].created_at
    )
    assert (opened.last(1)[0].type, opened.last(1)[0].content) == (
        "question", '{"text":"Which region?","options":["eu","us"]}',
    )  # fmt: skip
    assert opened.questions() == [asked] == [opened.question(1)]
    answered = opened.answer(1, "neither", source="internal:dm:default:ada")
    event = opened.last(1)[0]
    assert answered == asked._replace(
        answer="neither", answered_by="internal:dm:default:ada", answered_at=event.created_at
    )
    assert (event.type, event.content) == ("answer", '{"question":1,"text":"neither"}')
    assert (opened.questions(), opened.question(1)) == ([], answered)
    status = opened.status()
    assert (status.questions, status.question_count) == ((), 0)


def test_an_approval_takes_one_of_its_options(opened: Thread) -> None:
    """By default it is approved or denied; another answer is refused with what it takes."""
    assert opened.ask("Deploy?", approval=True).options == ("approve", "deny")
    assert opened.ask("When?", ["now", "later"], approval=True).type == "approval"
    for number, takes in ((1, "answer 'approve' or 'deny'"), (2, "answer 'now' or 'later'")):
        with pytest.raises(InputError, match=takes):
            opened.answer(number, "maybe")
    opened.answer(1, "deny")
    assert (open_ids(opened), opened.question(1).answer) == ([2], "deny")
    assert [one.question_id for one in opened.status().questions] == [2]


def test_the_first_answer_counts(opened: Thread) -> None:
    """The same again is no error and stores nothing; another one is refused with the first."""
    opened.ask("Go on?")
    first = opened.answer(1, "yes")
    assert (opened.answer(1, "yes", source="other"), opened.last_id()) == (first, 2)
    with pytest.raises(AnsweredError, match="answered before, by 'self': yes") as caught:
        opened.answer(1, "no")
    assert (caught.value.answer, opened.last_id()) == ("yes", 2)


def test_events_of_that_form_are_questions_and_answers(opened: Thread) -> None:
    """Whoever pushed them, one by one or in a batch, and also both at once."""
    opened.push("self", "question", '{"text": "one"}')
    opened.push("self", "approval", '{"text": "two", "options": ["a"]}', key="k")
    opened.push_many(
        [
            ("self", "question", '{"text": "three", "more": 1}'),
            ("self", "note", "x"),
            ("self", "answer", '{"question": 1}', None, "answer:1"),
            ("self", "question", '{"text": "six"}'),
            ("self", "answer", '{"question": 6, "text": "at once"}', None, "answer:6"),
        ]
    )
    assert open_ids(opened) == [2, 3]
    assert opened.question(1).answer == '{"question": 1}', "without a text, all of it"
    assert opened.question(6).answer == "at once"


@pytest.mark.parametrize(
    ("kind", "content", "key"),
    [
        ("answer", '{"question": 1, "text": "x"}', None),
        ("answer", '{"question": 1, "text": "x"}', "answer:01"),
        ("answer", '{"question": 2, "text": "x"}', "answer:1"),
        ("answer", '{"question": true, "text": "x"}', "answer:1"),
        ("answer", "not JSON", "answer:1"),
        ("note", '{"question": 1, "text": "x"}', "answer:1"),
    ],
)
def test_what_is_no_answer_closes_nothing(
    opened: Thread, kind: str, content: str, key: str | None
) -> None:
    """An answer has the type, names the question, and has its key."""
    opened.ask("Well?")
    opened.push("self", kind, content, key=key)
    assert (open_ids(opened), opened.question(1).answer) == ([1], None)
    if key == "answer:1":
        with pytest.raises(LogicError, match="event 2 has the key of an answer to 1, and is none"):
            opened.answer(1, "yes")
    else:
        assert opened.answer(1, "yes").answer == "yes"


@pytest.mark.parametrize(
    "content",
    ["", "x", "[]", "{}", '{"text": 1}', '{"text": " "}', '{"text": "x", "options": "y"}',
     '{"text": "x", "options": [1]}', "[" * 10_000, '{"text": "x"} y'],
)  # fmt: skip
def test_what_asks_nothing_is_an_event_like_others(opened: Thread, content: str) -> None:
    """A content of another form is stored, and is no question."""
    opened.push("self", "question", content)
    assert (open_ids(opened), opened.last(1)[0].content) == ([], content)
    with pytest.raises(UnknownQuestionError, match="event 1 is no question"):
        opened.question(1)
    for number in (2, 0):
        with pytest.raises(UnknownQuestionError):
            opened.answer(number, "x")


def test_a_key_asks_once(opened: Thread) -> None:
    """A program that was restarted finds the question, and the answer, that it had asked for."""
    first = opened.ask("Deploy?", key="deploy-7")
    assert (opened.ask("Deploy?", key="deploy-7"), opened.last_id()) == (first, 1)
    opened.answer(1, "yes")
    assert opened.ask("Deploy?", key="deploy-7").answer == "yes"
    with pytest.raises(KeyConflictError, match="belongs to event 1"):
        opened.ask("Deploy now?", key="deploy-7")


def test_a_question_is_waited_for(opened: Thread) -> None:
    """Until somebody answers, or the time is up; and not at all if there is an answer."""
    assert opened.ask("Well?", wait=0.01).answer is None
    found: list[Question] = []
    waits = threading.Thread(target=lambda: found.append(opened.question(1, wait=None)))
    waits.start()
    opened.answer(1, "yes")
    waits.join(20)
    assert [one.answer for one in found] == ["yes"] == [opened.question(1, wait=None).answer]


def test_pruned_questions_are_asked_no_more(opened: Thread) -> None:
    """They go with their events; those after them stay."""
    for text in ("one", "two", "three"):
        opened.ask(text)
    opened.prune(before_id=3, force=True)
    assert open_ids(opened) == [3]
    with pytest.raises(UnknownQuestionError):
        opened.answer(1, "x")


def test_a_rolled_back_question_was_never_asked(opened: Thread) -> None:
    """Nor was a question answered by what was undone; inside, both are seen."""
    opened.ask("stays")

    def ask_and_fail() -> None:
        with opened.write():
            opened.ask("goes")
            opened.answer(1, "x")
            assert open_ids(opened) == [2]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask_and_fail()
    assert open_ids(opened) == [1]


@pytest.mark.parametrize(
    ("text", "options"),
    [("", ()), (" \n", ()), ("x", ("",)), ("x", ("a", "a")), ("\ud800", ()), ("x", ("\ud800",))],
)
def test_bad_questions_are_refused(opened: Thread, text: str, options: tuple[str, ...]) -> None:
    """With what is wrong with them; nothing is stored."""
    with pytest.raises(InputError):
        opened.ask(text, options)
    assert opened.last_id() == 0


def test_bad_answers_are_refused(opened: Thread) -> None:
    """With what is wrong with them; the question stays open."""
    opened.ask("Well?")
    for bad in ("", " ", "\ud800"):
        with pytest.raises(InputError):
            opened.answer(1, bad)
    for number in (-1, True, 1 << 63):
        with pytest.raises(UsageError):
            opened.answer(number, "x")
    assert open_ids(opened) == [1]
