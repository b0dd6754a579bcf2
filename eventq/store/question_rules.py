"""The form of questions: which events ask something, and which of them answer it.

A question is an event of type `question` or `approval` whose content is a JSON object with a `text`
and perhaps `options`, `by_person`, `context` and `run`. A later event of type `answer` with the key
`answer:<id>` and a content of `{"question": <id>, "text": …}`, perhaps with a `note`, closes it,
also once its text was erased. `signed` adds to the content how it came and by whom, and
`check_answers` refuses what answers nothing.
"""

from __future__ import annotations

from eventq.errors import AnsweredError, InputError, LogicError, UnknownQuestionError
from eventq.records.checks import ERASED
from eventq.records.event import ANSWER, ANSWER_KEY, ASKING, Event, NewEvent, question_in
from eventq.records.question import Question
from eventq.system.jsontext import Reader, writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.records.question import Answerer
    from eventq.store.protocol import Events

DECISIONS = ("approve", "deny")  # the options of an approval that has no others
KEYS_SEEN = 20_000  # keys of events that a look for answers reads
_MEMBERS = {"question", "text"}


def key_of(question: int) -> str:
    """Return the key of the event that answers a question."""
    return f"{ANSWER_KEY}{question}"


def question_of(asked: Event, answered: Event | None = None) -> Question | None:
    """Return the question that an event asks, or None if it asks none."""
    found = _asked(asked.type, asked.content)
    if found is None:
        return None
    text, options, value = found
    context, run = value.get("context"), value.get("run")
    question = Question(
        asked.id, asked.type, asked.source, text, options, asked.created_at,
        by_person=bool(value.get("by_person")),
        context=context if isinstance(context, str) and context else None,
        run=run if type(run) is int and run > 0 else None,
    )  # fmt: skip
    if answered is None or answered.id < asked.id:
        return question
    if _answered(answered.type, answered.content, key_of(asked.id)) is None:
        return question
    said, by, via, note = map(_object(answered.content).get, ("text", "by", "via", "note"))
    return question._replace(
        answer=said if isinstance(said, str) else answered.content,
        answered_by=by if isinstance(by, str) else answered.source,
        answered_at=answered.created_at,
        answered_via=via if isinstance(via, str) else None,
        note=note if isinstance(note, str) else None,
    )


def answered_by(answer: Event) -> int | None:
    """Return the question that an event with the key of an answer says it answers."""
    number = _object(answer.content).get("question")
    return number if type(number) is int and number > 0 else None


def signed(new: NewEvent, answerer: Answerer) -> str:
    """Return the content of an answer with how it came and by whom; raise InputError for none.

    The pusher says what is answered, and nothing else.
    """
    number, value = question_in(new.key), _object(new.content)
    what = f"an event with the key '{new.key:.100}' answers a question"
    if new.type != ANSWER or new.subtype is not None:
        fix = f"use 'eventq answer', give the type {ANSWER} and no subtype, or another key"
        raise InputError(what, fix)
    texts = value.get("text"), value.get("note", "x")
    is_right = type(value.get("question")) is int and value["question"] == number
    is_said = all(isinstance(text, str) and text.strip() for text in texts)
    if value.keys() - {"note"} != _MEMBERS or not is_right or not is_said:
        fix = f'its content is {{"question": {new.key[len(ANSWER_KEY) :]:.20}, "text": "…"}}'  # type: ignore[index]
        raise InputError(what, f"{fix}, perhaps a note, and nothing else; who answers is added")
    value |= {"via": answerer.via, "by": answerer.by}
    return writer()(value | ({"by_person": True} if answerer.is_person else {}))


def check_answers(
    events: Events, new: Sequence[NewEvent], found: Sequence[tuple[int, int]]
) -> None:
    """Raise unless each answer among new events has an open question that takes it.

    It is called inside the transaction that stores them; `found` is what `append` found by key. The
    same answer again is accepted. Raises UnknownQuestionError, AnsweredError, InputError; `place`
    of the error is that of the event.
    """
    first, known = events.last() + 1, dict(found)
    here: list[Event] = []  # those that will be stored

    def get(number: int) -> Event | None:
        if number < first:
            return events.get(number) if number >= 0 else None
        return here[number - first] if number - first < len(here) else None

    for place, row in enumerate(new):
        if place not in known:
            source, kind, content, subtype, _ = row
            here.append(Event(first + len(here), "", source, kind, subtype, content))
        number = question_in(row[4])
        try:
            if number is None:
                _check_unsigned(row)
                continue
            before = known.get(place)
            if before is None:
                _check_taken(number, get(number), _object(row[2]))
            else:
                was = get(before) if before > 0 else here[-before - 1]
                _check_same(number, was, _object(row[2]))
        except (InputError, LogicError) as error:
            error.place = place  # type: ignore[union-attr]
            raise


def _check_unsigned(row: NewEvent) -> None:
    """Raise for what a mirror, which has no keys, could not tell from an answer."""
    _, kind, content, subtype, _ = row
    if (key := key_in(kind, content, subtype)) is not None:
        what = "an event that says how an answer came has to be that answer"
        raise InputError(what, f"use 'eventq answer', the key '{key}', or another type")


def _check_taken(number: int, asked: Event | None, value: dict[str, object]) -> None:
    question = None if asked is None else question_of(asked)
    if asked is None or question is None:
        is_erased = asked is not None and asked.type in ASKING and asked.content == ERASED
        raise UnknownQuestionError(number, is_erased=is_erased)
    text = value.get("text")
    if question.type == "approval" and text not in question.options:
        takes = " or ".join(map(repr, question.options))
        what = f"approval {number} cannot be answered with {text!r:.100}"
        raise InputError(what, f"answer {takes}")
    if question.by_person and not value.get("by_person"):
        fix = "answer it at its page or a terminal, or with a token that has the right 'answer'"
        raise LogicError(f"{question.type} {number} is for a person to answer", fix)


def _check_same(number: int, first: Event | None, value: dict[str, object]) -> None:
    """Raise unless the first event with the key of an answer says the same."""
    if first is None:  # pruned meanwhile
        return
    is_answer = _answered(first.type, first.content, key_of(number)) is not None
    if not is_answer or first.id < number:
        what = f"event {first.id} has the key of an answer to {number}, and is none"
        raise LogicError(what, "ask anew")
    said = _object(first.content)
    text = said.get("text", first.content)
    is_lost = "note" in value and value["note"] != said.get("note")  # it would not be stored
    if text != value.get("text") or is_lost:  # somebody else was first
        raise AnsweredError(number, str(text), str(said.get("by", first.source)))


def changes(rows: Sequence[NewEvent], first: int) -> tuple[list[int], list[int]]:
    """Return the ids of the questions that new events ask, and of those that they answer.

    `first` is the id of the first of them.
    """
    asked, answered = [], []
    for number, (_, kind, content, _, key) in enumerate(rows, first):
        if _asked(kind, content) is not None:
            asked.append(number)
        question = _answered(kind, content, key)
        if question is not None and question < number:
            answered.append(question)
    return asked, answered


def key_in(kind: str, content: str, subtype: str | None) -> str | None:
    """Return the key that an answer has, as its content says; None for an event of another kind.

    `check_answers` refuses an event that says so and has another key, or none.
    """
    value = _object(content) if kind == ANSWER and subtype is None else {}
    question = value.get("question")
    return key_of(question) if type(question) is int and "via" in value else None


def erased_content(kind: str, content: str, subtype: str | None) -> str:
    """Return what an event says once it was erased: `[erased]`, of an answer which question it had.

    A mirror has no keys: by a mere `[erased]`, a log that is made anew of it would let the question
    be answered again. A key in the lines themselves lost: they would differ from the rows.
    """
    key = key_in(kind, content, subtype)
    if key is None:
        return ERASED
    question = int(key[len(ANSWER_KEY) :])
    return writer()({"question": question, "text": ERASED, "via": None})


def open_after(rows: Iterable[tuple[int, str, str, str | None]]) -> set[int]:
    """Return the questions that are open after all events: id, type, content and key, in order."""
    found: set[int] = set()
    for number, kind, content, key in rows:
        asked, answered = changes((NewEvent("", kind, content, None, key),), number)
        found.update(asked)
        found.difference_update(answered)
    return found


def differences(listed: set[int], found: set[int]) -> Iterator[str]:
    """Yield a sentence for each question that is listed and not open, or open and not listed."""
    for number in sorted(found - listed)[:20]:
        yield f"question {number} is open and not listed: 'eventq answer {number} TEXT' closes it"
    for number in sorted(listed - found)[:20]:
        yield f"event {number} is listed as an open question, and is none"


def _answered(kind: str, content: str, key: str | None) -> int | None:
    """Return the question that an event answers, or None."""
    number = question_in(key) if kind == ANSWER else None
    if number is None or number < 0:
        return None
    question = _object(content).get("question")
    is_named = type(question) is int and question == number
    return number if is_named or content == ERASED else None


def _asked(kind: str, content: str) -> tuple[str, tuple[str, ...], dict[str, object]] | None:
    """Return text, options and members of a question, or None for a content that is none."""
    value = _object(content) if kind in ASKING else {}
    text, options = value.get("text"), value.get("options", [])
    if not isinstance(text, str) or not text.strip():
        return None
    if not isinstance(options, list) or not all(isinstance(one, str) for one in options):
        return None
    if kind == "approval" and not options:
        options = DECISIONS
    return text, tuple(options), value


def _object(content: str) -> dict[str, object]:
    """Return a content as a JSON object, {} for what is none."""
    try:
        value = Reader().decode(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
