"""Ask questions, answer them, and wait for answers; `store.question_rules` has their form."""

from __future__ import annotations

from eventq.errors import InputError, UnknownQuestionError
from eventq.records.checks import ERASED, check_name, check_natural, check_positive, check_whole
from eventq.records.event import ANSWER, ASKING
from eventq.store.question_rules import DECISIONS, answered_by, key_of, question_of
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK
from eventq.system.jsontext import writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.log.events import EventLog
    from eventq.records.question import Question
    from eventq.store.protocol import Database, Log

LISTED = 1_000  # open questions that are listed at once, the oldest first


def listed(log: Log) -> list[Question]:
    """Return the oldest open questions, at most LISTED."""
    found = map(question_of, log.events.questions(LISTED))
    return [question for question in found if question is not None]  # None: one that was erased


def answered(log: Log, before: int | None, limit: int) -> tuple[list[Question], int]:
    """Return the questions that were answered last, before an event, and where to look on.

    That is an id to come again with, 0 at the end. There may be fewer than `limit`, even none, and
    more further back: a bounded part of the log is looked at.
    """
    events, found = log.events, []
    numbers, after = events.answers(events.last() + 1 if before is None else before, limit)
    for answer in map(events.get, numbers):
        number = None if answer is None else answered_by(answer)
        asked = None if number is None else events.get(number)
        question = None if asked is None else question_of(asked, answer)
        if question is not None and question.answer is not None:
            found.append(question)
    return found, after


class Questions:
    """The questions of one thread."""

    def __init__(self, db: Database, log: EventLog) -> None:
        """Use the database of a thread, and push to its log."""
        self._db = db
        self._log = log

    def ask(  # noqa: PLR0913 (each is a part of a question)
        self, text: str, options: Sequence[str], source: str, key: str | None, *, approval: bool,
        by_person: bool, context: str | None, run: int | None,
    ) -> Question:  # fmt: skip
        """Store a question and return it; with a key that was used before, the one stored first."""
        options = _checked(options) or (DECISIONS if approval else ())
        _check_text(text, "question")
        if by_person and not approval:
            raise InputError("only an approval can ask for a person", "make it an approval")
        content: dict[str, object] = {"text": text}
        if options:
            content["options"] = [*options]
        if by_person:
            content["by_person"] = True
        if context is not None:
            check_name(context, "context")
            content["context"] = context
        if run is not None:
            content["run"] = check_positive(run, "a run")
        kind = "approval" if approval else "question"
        event = self._log.push(source, kind, writer()(content), None, key, key_strict=True)
        return self.get(event.id)

    def open(self) -> list[Question]:
        """Return the oldest open questions, at most LISTED."""
        return listed(self._db)

    def get(self, number: int) -> Question:
        """Return a question, with its answer if there is one. Raises UnknownQuestionError."""
        events = self._db.events
        event = events.get(check_natural(number, "a question"))
        found = None if event is None else question_of(event, events.keyed(key_of(number)))
        if found is None:
            is_erased = event is not None and event.type in ASKING and event.content == ERASED
            raise UnknownQuestionError(number, is_erased=is_erased)
        return found

    def wait(self, number: int, seconds: float | None) -> Question:
        """Return a question once it is answered, or after a time as it is; None waits forever."""
        found = self.get(number)
        if found.answer is not None or seconds == 0:
            return found
        deadline = float("inf") if seconds is None else clock.monotonic() + seconds
        with self._db.watch() as watcher:
            while (found := self.get(number)).answer is None:
                left = deadline - clock.monotonic()
                if left <= 0:
                    break
                watcher.wait(min(left, SLOW_LOOK))
        return found

    def answer(self, number: int, text: str, source: str, note: str | None = None) -> Question:
        """Answer a question and return it; the same answer again changes nothing.

        Raises UnknownQuestionError, AnsweredError, InputError for no option of an approval, and
        LogicError for one that only a person can answer.
        """
        _check_text(text, "answer")
        content: dict[str, object] = {"question": check_natural(number, "a question"), "text": text}
        if note is not None:
            _check_text(note, "note")
            content["note"] = note
        self._log.push(source, ANSWER, writer()(content), None, key_of(number))
        return self.get(number)


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"the {what} is empty", "give it a text")
    check_whole(text, f"the {what}")


def _checked(options: Sequence[str]) -> tuple[str, ...]:
    for one in options:
        _check_text(one, "option")
    if len(set(options)) < len(options):
        raise InputError("two options are the same", "give each of them once")
    return tuple(options)
