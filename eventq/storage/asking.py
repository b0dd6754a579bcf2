"""The form of questions: which events ask something, and which of them answer it.

A question is an event of type `question` or `approval` whose content is a JSON object with a `text`
and perhaps `options`. A later event of type `answer` with the key `answer:<id>` and a content of
`{"question": <id>, "text": …}` closes it, also once that content was erased.
"""

from __future__ import annotations

from eventq.records.checks import ERASED
from eventq.records.event import ANSWER, ASKING, NewEvent
from eventq.records.question import Question
from eventq.system.jsontext import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.records.event import Event


def key_of(question: int) -> str:
    """Return the key of the event that answers a question."""
    return f"{ANSWER}:{question}"


def question_of(asked: Event, answered: Event | None = None) -> Question | None:
    """Return the question that an event asks, or None if it asks none."""
    found = _asked(asked.type, asked.content)
    if found is None:
        return None
    question = Question(asked.id, asked.type, asked.source, *found, asked.created_at)
    if answered is None or answered.id < asked.id:
        return question
    if _answered(answered.type, answered.content, key_of(asked.id)) is None:
        return question
    text = _object(answered.content).get("text")
    return question._replace(
        answer=text if isinstance(text, str) else answered.content,
        answered_by=answered.source,
        answered_at=answered.created_at,
    )


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


def key_in(kind: str, content: str) -> str | None:
    """Return the key that an answer has, as its content says; None for an event of another kind."""
    question = _object(content).get("question") if kind == ANSWER else None
    return key_of(question) if type(question) is int else None


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
    if kind != ANSWER or key is None:
        return None
    question = _object(content).get("question")
    if content == ERASED:
        digits = key.removeprefix(f"{ANSWER}:")[:19]
        question = int(digits) if digits.isdecimal() else None
    return question if type(question) is int and key == key_of(question) else None


def _asked(kind: str, content: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the text and the options of a question, or None for a content that is none."""
    value = _object(content) if kind in ASKING else {}
    text, options = value.get("text"), value.get("options", [])
    if not isinstance(text, str) or not text.strip():
        return None
    if not isinstance(options, list) or not all(isinstance(one, str) for one in options):
        return None
    return text, tuple(options)


def _object(content: str) -> dict[str, object]:
    """Return a content as a JSON object, {} for what is none."""
    try:
        value = Reader().decode(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
