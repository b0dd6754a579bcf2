"""Ask questions, answer them, and see which are open."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import JSON, READ, THREAD, unless_thread
from eventq.cli.render import fields
from eventq.cli.rules import needs
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import LogicError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from eventq.cli.table import Raw
    from eventq.records.question import Question
    from eventq.thread import Thread

    class Asked(TypedDict):
        """A question that is to be asked, without its text."""

        options: list[str]
        approval: bool
        by_person: bool
        source: str
        key: str | None
        context: str | None
        run: int | None


def ask(thread: Thread, *, text: str, asked: Asked, wait: float | None, json: bool) -> None:
    """Ask something: print its id, or wait for the answer.

    Whoever looks after the thread sees it in 'eventq questions' and answers with 'eventq answer'.
    The exit status is 1 when nobody has answered in time: the question stays open then.
    """
    _show(thread.ask(text, **asked, wait=wait or 0), wait, json=json)


def answer(
    thread: Thread, *, question: int, text: str, note: str | None, source: str, json: bool
) -> None:
    """Answer a question. The first answer counts.

    Who answers is noted: the user, and whether at a terminal. Whoever waits for the answer gets the
    note beside it, on stderr.
    """
    thread.log.answerer = show.answerer
    found = thread.answer(question, text, source=source, note=note)
    show.result(fields(found), f"Answered question {question}", json=json)


def questions(thread: Thread, *, question: int | None, wait: float | None, json: bool) -> None:
    """List the open questions, or print the answer to one.

    With --wait, wait for the answer. The exit status is 1 when there is none.
    """
    if question is not None:
        _show(thread.question(question, wait=wait or 0), wait or 0, json=json)
        return
    for found in thread.questions():
        if json:
            show.dump(fields(found))
        else:
            show.say("  ".join(_line(found)))


def _show(found: Question, wait: float | None, *, json: bool) -> None:
    """Print an answer; raise LogicError when it was wanted and there is none yet."""
    number = found.question_id
    if found.answer is None and wait is not None:
        late = f" within {wait:g}s" * bool(wait)
        raise LogicError(
            f"nobody has answered question {number}{late}",
            f"run 'eventq answer {number} TEXT', or wait: 'eventq questions {number} --wait 10m'",
        )
    if found.note and not json:
        show.note(f"Note: {show.readable(found.note)}")
    show.result(fields(found), str(number) if found.answer is None else found.answer, json=json)


def _line(found: Question) -> list[str]:
    options = f"[{' | '.join(map(show.readable, found.options))}]" if found.options else ""
    parts = [
        str(found.question_id),
        found.asked_at,
        show.readable(found.source),
        found.type,
        show.readable(found.text),
        options,
        f"in run {found.run}" if found.run else "",
        f"in {show.readable(found.context)}" if found.context else "",
    ]
    return [part for part in parts if part]


def _check_wait(raw: Raw) -> None:
    if raw["wait"] is not None and raw["QUESTION"] is None:
        raise UsageError("--wait has no effect without a question", "give its id")


_WAIT = Option("wait DURATION", "Wait this long for the answer.", kinds.seconds)

COMMANDS = {
    "ask": Command(
        ask,
        [
            Argument("TEXT", kinds.verbatim),
            THREAD,
            *together(
                "asked",
                Option(
                    "option TEXT…", "An answer that is proposed.", kinds.text, parameter="options"
                ),
                Option("approval", "Take nothing but one of the options (approve or deny)."),
                Option("by-person", "Let only a page, a terminal or the right 'answer' answer."),
                Option("source ADDRESS", "Who asks.", default="self"),
                Option("key KEY", "Ask once. If the key was used, return to that question."),
                Option("context NAME", "The context or session in which it is asked."),
                Option("run ID", "The run in which it is asked.", kinds.POSITIVE),
            ),
            _WAIT,
            JSON,
        ],
        *unless_thread("eventq ask ./inbox 'Deploy to production?'"),
        "eventq ask 'Deploy to production?' --approval --wait 10m --thread ./inbox",
        "eventq ask 'Which region?' --option eu --option us --context main --thread ./inbox",
        rules=[needs("by-person", "approval")],
    ),
    "answer": Command(
        answer,
        [
            Argument("QUESTION", kinds.POSITIVE),
            Argument("TEXT", kinds.verbatim),
            THREAD,
            Option("note TEXT", "What is said beside the answer.", kinds.text),
            Option("source ADDRESS", "The sender of the event.", default="self"),
            JSON,
        ],
        "eventq answer 17 approve --thread ./inbox",
    ),
    "questions": Command(
        questions,
        [Argument("[QUESTION]", kinds.POSITIVE, yields=True), READ, _WAIT, JSON],
        *unless_thread("eventq questions ./inbox"),
        "eventq questions --thread ./inbox",
        "eventq questions 17 --wait 10m --thread ./inbox",
        rules=[_check_wait],
    ),
}
