"""Questions to people and programs, and their answers."""

from __future__ import annotations

from eventq.record import Record


class Question(Record):
    """A question, and its answer once there is one.

    `type` is `question`, which takes any answer, or `approval`, which takes one of its `options`;
    of a question they are proposals. `asked_at` and `answered_at` are times as those of events,
    `source` and `answered_by` who asked and who answered. What was answered is None while the
    question is open.
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
