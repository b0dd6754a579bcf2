"""Questions and their answers, on both engines: an open one is listed until it is answered.

An answer is an event with a key that names its question. Its kind of fault is an event that closes
a question without being an answer to it, or that says itself who answers: pushed alone, with
`key_strict`, in a batch, in a group of a stream; of another type, with a subtype, with no, other,
more or repeated members; before its question, in its place, or as the question itself; to an event
that asks nothing, or was erased; with an option that an approval does not have; as an agent, where
a person is asked for; what would be taken for an answer where keys are gone; and events of older versions that have such a key.
"""

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
from eventq.records.event import NewEvent
from eventq.records.question import Answerer
from eventq.system.environment import user_name

if TYPE_CHECKING:
    from eventq import Thread


ME = user_name()


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
        answer="neither", answered_by=ME, answered_via="program", answered_at=event.created_at
    )
    assert (event.source, event.type, event.content) == (
        "internal:dm:default:ada", "answer",
        f'{{"question":1,"text":"neither","via":"program","by":"{ME}"}}',
    )  # fmt: skip
    assert (opened.questions(), opened.question(1)) == ([], answered)
    status = opened.status()
    assert (status.questions, status.question_count) == ((), 0)


def test_a_question_says_where_it_is_asked(opened: Thread) -> None:
    """In a context, a run, or both; what is no name or number of one is refused."""
    asked = opened.ask("Which one?", context="main", run=7)
    assert (asked.context, asked.run) == ("main", 7)
    assert opened.questions() == [asked] == [*opened.status().questions]
    answered = opened.answer(1, "this")
    assert (answered.context, answered.run) == ("main", 7)
    for context in ("", "a\nb", "\ud800"):
        with pytest.raises(InputError):
            opened.ask("?", context=context)
    for run in (0, -1, True, 1 << 63):
        with pytest.raises(UsageError):
            opened.ask("?", run=run)
    assert opened.last_id() == 2


@pytest.mark.parametrize("where", ['{"a":1}', "7", "true", '""', "null"])
def test_events_that_say_nothing_of_where_they_ask(opened: Thread, where: str) -> None:
    """Another program may have pushed anything there: it is a question all the same."""
    run = '"7"' if where == "7" else where
    opened.push("self", "question", f'{{"text":"?","context":{where},"run":{run}}}')
    (asked,) = opened.questions()
    assert (asked.text, asked.context, asked.run) == ("?", None, None)


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
    with pytest.raises(AnsweredError, match=f"answered before, by '{ME}': yes") as caught:
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
            ("self", "answer", '{"question": 1, "text": "x"}', None, "answer:1"),
            ("self", "question", '{"text": "six"}'),
            ("self", "answer", '{"question": 6, "text": "at once"}', None, "answer:6"),
        ]
    )
    assert open_ids(opened) == [2, 3]
    assert opened.question(1).answer == "x"
    assert opened.question(6).answer == "at once"


@pytest.mark.parametrize(
    ("kind", "key"),
    [("answer", None), ("answer", "answer:01"), ("answer", "answer:x"), ("answer", "answer:"),
     ("answer", "answer:1 "), ("answer", "Answer:1"), ("note", None)],
)  # fmt: skip
def test_what_has_no_key_of_an_answer_means_nothing(
    opened: Thread, kind: str, key: str | None
) -> None:
    """It is an event like others, if it does not say how an answer came."""
    opened.ask("Well?")
    content = '{"question":1,"text":"x","by":"ada"}'
    assert opened.push("self", kind, content, key=key).content == content
    assert (open_ids(opened), opened.question(1).answer) == ([1], None)
    assert opened.answer(1, "yes").answer == "yes"


@pytest.mark.parametrize("key", [None, "answer:01", "k", "answer:x"])
def test_nothing_but_an_answer_says_how_it_came(opened: Thread, key: str | None) -> None:
    """A mirror has no keys: what is made of it would take such an event for the answer."""
    opened.ask("Deploy?", approval=True, by_person=True)
    content = '{"question":1,"text":"approve","via":"page","by":"ada","by_person":true}'
    event = ("self", "answer", content, None, key)
    with pytest.raises(InputError, match="has to be that answer"):
        opened.push(*event[:3], key=key)
    for some in ([event], [event[:3]], iter([event]), [("self", "note", "x"), event]):
        with pytest.raises(InputError, match=r"^event [12]: .*has to be that answer"):
            opened.push_many(some)
    ids = opened.log.push_each([("self", "note", "y"), event, ("self", "note", "z")])
    assert (ids[0], str(ids[1])[:9], ids[2]) == (2, "event 2: ", 3)
    assert opened.push("self", "answer", content, subtype="quoted").id == 4
    assert opened.push("self", "note", content).id == 5
    assert (open_ids(opened), opened.last_id()) == ([1], 5)


GOOD = '{"question": 1, "text": "deny"}'
BAD = [
    ("note", GOOD, None, "answer:1"),
    ("answer", GOOD, "x", "answer:1"),
    ("answer", GOOD, "", "answer:1"),
    ("answer", '{"question": 1, "text": "nonsense"}', None, "answer:1"),
    ("answer", '{"question": 1, "text": "deny", "by": "ada"}', None, "answer:1"),
    ("answer", '{"question": 1, "text": "deny", "by_person": true}', None, "answer:1"),
    ("answer", '{"question": 2, "text": "deny"}', None, "answer:1"),
    ("answer", '{"question": true, "text": "deny"}', None, "answer:1"),
    ("answer", '{"question": 1.0, "text": "deny"}', None, "answer:1"),
    ("answer", '{"question": 1}', None, "answer:1"),
    ("answer", '{"question": 1, "text": " "}', None, "answer:1"),
    ("answer", '{"question": 1, "text": ["deny"]}', None, "answer:1"),
    ("answer", '{"question": 1, "text": "\\ud800"}', None, "answer:1"),
    ("answer", "not JSON", None, "answer:1"),
    ("answer", "[]", None, "answer:1"),
    ("answer", '{"question": 2, "text": "x"}', None, "answer:2"),
    ("answer", '{"question": 3, "text": "x"}', None, "answer:3"),
    ("answer", '{"question": 4, "text": "x"}', None, "answer:4"),
    ("answer", '{"question": 0, "text": "x"}', None, "answer:0"),
    ("answer", f'{{"question": {10**30}, "text": "x"}}', None, f"answer:{10**30}"),
    ("answer", f'{{"question": {2**63}, "text": "x"}}', None, f"answer:{2**63}"),
]


@pytest.mark.parametrize("bad", BAD)
def test_what_answers_no_open_question_is_not_stored(
    opened: Thread, bad: tuple[str, str, str | None, str]
) -> None:
    """Nor is the batch that it stands in; a group of a stream stores the rest of it."""
    opened.ask("Deploy?", approval=True)
    opened.push("self", "note", "x")
    event = ("self", *bad)
    for strict in (False, True):
        with pytest.raises((InputError, UnknownQuestionError)):
            opened.push(*event, key_strict=strict)
    for some in ([event], iter([("self", "note", "x", None, "k"), event])):
        with pytest.raises((InputError, UnknownQuestionError), match=r"^event [12]: "):
            opened.push_many(some)
    assert (open_ids(opened), opened.last_id()) == ([1], 2)
    ids = opened.log.push_each([("self", "note", "y"), event, ("self", "note", "z")])
    assert [one for one in ids if isinstance(one, int)] == [3, 4]
    assert isinstance(ids[1], InputError | UnknownQuestionError)
    assert (ids[1].what.startswith("event 2: "), open_ids(opened)) == (True, [1])


def test_the_engine_itself_refuses_what_does_not_answer(opened: Thread) -> None:
    """Whoever calls it; the rest of a transaction goes on."""
    opened.ask("Deploy?", approval=True)
    with opened.write():
        for text, number in (("maybe", 1), ("deny", 2)):
            content = f'{{"question":{number},"text":"{text}","via":"page","by":"ada"}}'
            new = NewEvent("self", "answer", content, None, f"answer:{number}")
            with pytest.raises((InputError, UnknownQuestionError)):
                opened.database.events.append((new,))
        opened.push("self", "note", "x")
    assert (open_ids(opened), opened.last_id()) == ([1], 2)


def test_a_key_is_not_taken_before_its_question(opened: Thread) -> None:
    """So nobody has answered what is asked later, not even in the same batch."""
    ahead = ("self", "answer", '{"question": 2, "text": "x"}', None, "answer:2")
    for some in ([ahead], [ahead, ("self", "question", '{"text": "later"}')]):
        with pytest.raises(UnknownQuestionError):
            opened.push_many(some)
    opened.push("self", "note", "x")
    assert opened.ask("later").answer is None


def test_the_same_answer_pushed_again_returns_the_first_event(opened: Thread) -> None:
    """Whoever pushes it, and however it is spelled; another one is refused with the first."""
    opened.ask("Deploy?", approval=True)
    first = opened.push("ada", "answer", GOOD, key="answer:1")
    again = ("bob", "answer", '{"text":"deny","question":1}', None, "answer:1")
    assert opened.push(*again, key_strict=True) == first
    assert opened.push_many([again, again], key_strict=True).count == 0
    assert opened.log.push_each([again, ("self", "note", "x"), again]) == [2, 3, 2]
    other = ("bob", "answer", GOOD.replace("deny", "approve"), None, "answer:1")
    with pytest.raises(AnsweredError, match=f"by '{ME}': deny"):
        opened.push(*other)
    with pytest.raises(AnsweredError, match=r"^event 1: question 1 was answered before"):
        opened.push_many([other])
    assert isinstance(opened.log.push_each([other])[0], AnsweredError)
    opened.push("self", "approval", '{"text": "x"}')
    both = [("a", "answer", f'{{"question": 4, "text": "{one}"}}', None, "answer:4")
            for one in ("deny", "approve")]  # fmt: skip
    with pytest.raises(AnsweredError, match=r"^event 2: "):
        opened.push_many(both)
    assert open_ids(opened) == [4]


def test_one_that_asks_for_a_person_is_not_answered_by_a_program(opened: Thread) -> None:
    """By the doors that say that it is one, it is."""
    asked = opened.ask("Deploy?", approval=True, by_person=True)
    assert (asked.by_person, opened.question(1)) == (True, asked)
    for refused in (
        lambda: opened.answer(1, "deny"),
        lambda: opened.push("self", "answer", GOOD, key="answer:1"),
        lambda: opened.push_many([("self", "answer", GOOD, None, "answer:1")]),
    ):
        with pytest.raises(LogicError, match="approval 1 is for a person to answer"):
            refused()
    opened.log.answerer = lambda: Answerer("page", "ada", is_person=True)
    found = opened.answer(1, "deny")
    assert (found.answered_by, found.answered_via) == ("ada", "page")
    assert opened.answer(1, "deny") == found
    with pytest.raises(InputError, match="only an approval"):
        opened.ask("Well?", by_person=True)


def test_an_approval_without_options_is_approved_or_denied(opened: Thread) -> None:
    """However it was pushed."""
    opened.push("self", "approval", '{"text": "Deploy?"}')
    with pytest.raises(InputError, match="answer 'approve' or 'deny'"):
        opened.answer(1, "x")
    assert opened.answer(1, "approve").answer == "approve"


@pytest.mark.engines("sqlite")
def test_answers_of_older_versions(opened: Thread) -> None:
    """Those that closed their question still do; those that took its key do not."""
    for number, kind in enumerate(("question", "note", "question"), 1):
        opened.push("self", kind, f'{{"text": "{number}"}}')
    connection = opened.database.connection  # type: ignore[attr-defined]
    for number, key, content in (
        (4, "answer:1", '{"question": 1, "text": "x"}'), (5, "answer:3", "{}"),
        (6, "answer:7", '{"question": 7, "text": "x"}'),
    ):  # fmt: skip
        connection.execute(
            "INSERT INTO events VALUES (?, '2026-01-01T00:00:00.000Z', 'bob', 'answer', NULL, ?)",
            (number, content),
        )
        connection.execute("INSERT INTO event_keys (key, event_id) VALUES (?, ?)", (key, number))
    connection.execute("DELETE FROM open_questions WHERE event_id = 1")
    found = opened.question(1)
    assert (found.answer, found.answered_by, found.answered_via) == ("x", "bob", None)
    assert opened.ask("seven").answer is None
    for number in (3, 7):
        with pytest.raises(LogicError, match=f"has the key of an answer to {number}, and is none"):
            opened.answer(number, "yes")


@pytest.mark.engines("sqlite")
def test_an_erased_question_is_closed(opened: Thread) -> None:
    """It is listed no more, and takes no answer; whoever waits for one hears that."""
    opened.ask("a secret?", approval=True)
    opened.erasures.event(1)
    assert (open_ids(opened), opened.status().question_count) == ([], 0)
    for refused in (
        lambda: opened.question(1, wait=None),
        lambda: opened.answer(1, "deny"),
        lambda: opened.push("self", "answer", GOOD, key="answer:1"),
    ):
        with pytest.raises(UnknownQuestionError, match="question 1 was erased, and is closed"):
            refused()


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
