"""Notes beside answers: kept with them, and never a part of what was answered."""

from __future__ import annotations

import json

import pytest

import eventq
from eventq.errors import AnsweredError, InputError

pytestmark = pytest.mark.engines("sqlite", "postgres")


def test_a_note_stands_beside_the_answer(thread: eventq.Thread) -> None:
    """Who waits for an option gets that option; an answer without a note has none."""
    asked = thread.ask("Deploy?", approval=True)
    found = thread.answer(asked.question_id, "approve", note="after six, please")
    assert (found.answer, found.note) == ("approve", "after six, please")
    assert thread.question(asked.question_id) == found
    plain = thread.answer(thread.ask("Which?").question_id, "this")
    assert (plain.answer, plain.note) == ("this", None)


def test_the_same_answer_again(thread: eventq.Thread) -> None:
    """It changes nothing, with the note or without it; another note would be lost."""
    number = thread.ask("Deploy?", approval=True).question_id
    first = thread.answer(number, "deny", note="not today")
    assert thread.answer(number, "deny") == first
    assert thread.answer(number, "deny", note="not today") == first
    with pytest.raises(AnsweredError):
        thread.answer(number, "deny", note="not on Fridays")
    assert thread.question(number) == first


@pytest.mark.parametrize("note", ["", " \n", 7, "\ud800"])
def test_what_is_no_note(thread: eventq.Thread, note: object) -> None:
    """Nothing is answered."""
    number = thread.ask("Well?").question_id
    with pytest.raises(InputError):
        thread.answer(number, "yes", note=note)  # type: ignore[arg-type]
    content = {"question": number, "text": "yes", "note": note}
    if note != "\ud800":
        with pytest.raises(InputError, match="perhaps a note"):
            thread.push("self", "answer", json.dumps(content), key=f"answer:{number}")
    assert thread.question(number).answer is None


def test_an_erased_answer_has_no_note(thread: eventq.Thread) -> None:
    """What was said beside it goes with it."""
    number = thread.ask("Well?").question_id
    thread.answer(number, "yes", note="a secret")
    thread.erasures.event(thread.last_id())
    found = thread.question(number)
    assert (found.answer, found.note) == ("[erased]", None)
