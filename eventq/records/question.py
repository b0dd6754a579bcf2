"""Questions to people and programs, and their answers."""

from __future__ import annotations

from eventq.record import Record


class Question(Record):
    """A question, and its answer once there is one.

    `type` is `question`, which takes any answer, or `approval`, which takes one of its `options`;
    of a question they are proposals. `asked_at` and `answered_at` are times as those of events,
    `source` is who asked. `answered_by` is the system user or, such as `token:ci`, the token, and
    `answered_via` how the answer came: page, terminal, shell, http, mcp or program. Of an answer
    that was stored before these were noted, the latter is None and the former the event's source.
    With `by_person` only a page, a terminal or the right `answer` can answer. What was answered is
    None while the question is open. `note` is what was said beside the answer, which is the same
    without one. `context`, a name or an id, and `run` say where it was asked, as the asker says; a
    question without them belongs to the whole thread.
    """

    question_id: int
    type: str
    source: str
    text: str
    options: tuple[str, ...]
    asked_at: str
    answer: str | None = None
    answered_by: str | None = None
    answered_at: str | None = None
    answered_via: str | None = None
    by_person: bool = False
    context: str | None = None
    run: int | None = None
    note: str | None = None


class Answerer(Record):
    """Who answers, as the door says that the answer comes through.

    `via` and `by` are `answered_via` and `answered_by` of `Question`; `is_person` says whether this
    is enough for a question that asks for a person.
    """

    via: str
    by: str
    is_person: bool = False
