"""A log that is made anew from its mirror has the questions that it had, erased ones included.

The kind: the line of an erased event says less than the row that the log has lost. Its members,
each tried here, with lines as eventq and as the original spell them, after a rebuild of the mirror
too, for a log that is made anew and for one that ends before its mirror:

- an answer that was erased, by its id or by its text, to a question and to an approval: it stays
  the answer, and nobody can give a second one;
- a question that was erased while it was open, or once it was answered: it stays closed;
- erased twice: what stays of an answer is nothing that can be erased once more;
- what handlers are ordered by: the value of an erased answer is gone with the last that has it;
- a backup that still has the text, put back below a mirror that does not: no line is a stranger.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.errors import AnsweredError, ErasedError, UnknownQuestionError
from tests.crash.test_witness import back_up, check, restore
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("quick")

SECRET = secret(1)


def by_id(thread: eventq.Thread, number: int) -> None:
    """Erase an event by its id."""
    thread.erasures.event(number)


def by_text(thread: eventq.Thread, number: int) -> None:
    """Erase an event by what it says."""
    event = thread.database.events.get(number)
    assert event is not None
    assert thread.erasures.text(json.loads(event.content)["text"]) == []


def respell(path: str) -> None:
    """Write the mirror in the order of keys that the original writes."""
    with open(f"{path}/events.jsonl", encoding="utf-8") as file:
        rows = [json.loads(text) for text in file]
    order = ("source", "type", "content", "id", "created_at", "subtype")
    with open(f"{path}/events.jsonl", "w", encoding="utf-8") as file:
        file.writelines(
            json.dumps({key: row[key] for key in order}, separators=(",", ":")) + "\n"
            for row in rows
        )


def lose(path: str, tmp_path: Path) -> None:
    """Lose the whole log, and make it anew."""
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(f"{path}/events.db{suffix}"):
            os.unlink(f"{path}/events.db{suffix}")
    eventq.recover(path)


def lose_end(path: str, tmp_path: Path) -> None:
    """Put back the database as it was when it had one event."""
    restore(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        thread.subscribe("first write")


def state(path: str) -> list[tuple[object, ...]]:
    """Return what is open, and what each question says."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        found: list[tuple[object, ...]] = [
            ("open", *(one.question_id for one in thread.questions()))
        ]
        for number in range(1, thread.database.events.last() + 1):
            try:
                found.append(tuple(thread.question(number)))
            except UnknownQuestionError as error:
                found.append((str(error),))
        return found


@pytest.mark.parametrize("spelled", ["ours", "original", "rebuilt"])
@pytest.mark.parametrize("loss", [lose, lose_end])
@pytest.mark.parametrize("erase", [by_id, by_text])
def test_questions_are_as_they_were(
    path: str,
    tmp_path: Path,
    erase: Callable[[eventq.Thread, int], None],
    loss: Callable[[str, Path], None],
    spelled: str,
) -> None:
    """What was answered is answered, what was erased is closed, and what was open is open."""
    with eventq.open(path) as thread:
        thread.push("self", "note", "first")
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        asked = [thread.ask(f"question {number}? {SECRET}").question_id for number in range(5)]
        approval = thread.ask("deploy?", approval=True).question_id
        for number in (*asked[:3], approval):
            thread.answer(number, "approve" if number == approval else f"{number} {SECRET}")
        answers = [one.id for one in thread.peek() if one.type == "answer"]
        for number in (answers[0], answers[1], answers[3], asked[1], asked[4]):
            if number == answers[3] and erase is by_text:
                by_id(thread, number)  # others say "approve" as well
            else:
                erase(thread, number)
        if spelled == "rebuilt":
            thread.rebuild_mirror()
    before = state(path)
    if spelled == "original":
        respell(path)
    loss(path, tmp_path)
    assert state(path) == before
    assert before[0] == ("open", asked[3])
    with eventq.open(path) as thread:
        for number in (*asked[:3], approval):
            with pytest.raises(AnsweredError):
                thread.answer(number, "deny" if number == approval else "another")
        with pytest.raises(UnknownQuestionError, match="erased"):
            thread.answer(asked[4], "another")
        thread.answer(asked[3], "the first")


def test_what_stays_of_an_answer_names_its_question_only(path: str) -> None:
    """Text, way and person are gone from every file; consumers get what is left as JSON."""
    with eventq.open(path) as thread:
        number = thread.ask("which?").question_id
        thread.answer(number, SECRET)
        with pytest.raises(AnsweredError):
            thread.answer(number, "another")
        thread.erasures.event(2)
        event = thread.database.events.get(2)
        assert event is not None
        assert json.loads(event.content) == {"question": 1, "text": "[erased]", "via": None}
        found = thread.question(number)
        assert (found.answer, found.answered_via) == ("[erased]", None)
        with pytest.raises(ErasedError):
            thread.erasures.event(2)
        assert thread.check() == []
    assert remains(path, SECRET) == []


def test_answers_that_are_ordered_by_their_text(path: str) -> None:
    """The value that a handler is ordered by stays for those that wait, and goes with the last."""
    with eventq.open(path) as thread:
        answers = "type = 'answer'"
        thread.subscribe("c", "true", each=True, filter=answers, ordered_by="$.text", concurrency=4)
        for number in (1, 3):
            assert thread.ask("Which?").question_id == number
            thread.answer(number, SECRET)
        thread.settle(retry=thread.claim("c", limit=9), delay=60)
        thread.erasures.event(2)
        assert remains(path, SECRET)
        thread.erasures.event(4)
    assert remains(path, SECRET) == []


@pytest.mark.parametrize("spelled", ["ours", "original"])
def test_a_backup_still_has_the_text(path: str, tmp_path: Path, spelled: str) -> None:
    """Put back below a mirror without it, the log is what counts; the line is nobody's else."""
    with eventq.open(path) as thread:
        number = thread.ask("Which?").question_id
        thread.answer(number, SECRET)
    back_up(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        thread.erasures.event(2)
        thread.push("self", "note", "later")
    if spelled == "original":
        respell(path)
    restore(path, tmp_path / "kept")
    with eventq.open(path) as thread:
        assert thread.push("self", "note", "x").id == 4
        assert thread.question(number).answer == SECRET
        fault = (
            "events.jsonl line 2 says that event 2 was erased, and the log still has it;"
            " 'eventq event erase 2' erases it again, and 'eventq mirror rebuild' keeps it"
        )
        assert thread.check() == ([fault] if spelled == "ours" else [])  # else it was adopted
        thread.erasures.event(2)
    assert not os.path.exists(f"{path}/lost")
    assert "was taken back" in check(path)[0]
    assert remains(path, SECRET) == []
