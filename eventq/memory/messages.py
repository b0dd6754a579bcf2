"""The messages that a model should see, rebuilt from the steps of a run by a pure function.

`messages(visit k)` followed by the assistant's answer is a byte-identical prefix of
`messages(visit k + 1)`, so that a provider's prompt cache hits. Nothing here reads a clock, an
environment or a database.
"""

from __future__ import annotations

from eventq.errors import StoreError
from eventq.memory import canonical
from eventq.memory.nodes import NO_ROLES
from eventq.record import Record
from eventq.records.checks import ERASED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eventq.records.run import Step

HEADING = "## What Happened Since Your Last Turn"
GO_ON = "Go on."
NOTHING = "(no output)"  # APIs refuse a blank answer, and a model would read that it said null


class Form(Record):
    """How the messages of a run are worded, frozen with its start.

    `answer` is one of `ANSWERS`, None for a run of an older version: its messages keep their bytes.
    `cap` bounds the characters of one step in a summary, None for no bound. `task` is the task.
    """

    answer: str | None
    cap: int | None
    task: str


def rebuild(
    system: str,
    steps: Iterable[Step],
    role: str,
    edge_prompt: str,
    *,
    form: Form,
    compact: str = "",
) -> Iterator[dict[str, str]]:
    """Yield the messages as chat APIs take them: the system's, a pair a visit, and the current one.

    `steps` are those since the last compaction, oldest first, and `compact` is its summary.
    """
    yield {"role": "system", "content": system}
    silence = form.task if form.task.strip() else GO_ON
    between: list[Step] = []
    for step in steps:
        if step.role in NO_ROLES:
            continue
        if step.role != role:
            between.append(step)
            continue
        yield _question(form, silence, compact, step.edge_prompt, summary(between, form))
        yield {"role": "assistant", "content": output(step, form)}
        compact, between, silence = "", [], GO_ON
    yield _question(form, silence, compact, edge_prompt, summary(between, form))


def _question(form: Form, silence: str, *parts: str) -> dict[str, str]:
    """Return the user message of some parts; `silence` in place of a blank one, which APIs refuse.

    Runs of older versions keep their blank ones.
    """
    text = join(*parts)
    return {"role": "user", "content": text if text.strip() or form.answer is None else silence}


def join(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between."""
    return "\n\n".join(part for part in parts if part)


def output(step: Step, form: Form) -> str:
    """Return the output of a step in a run's form. Raises StoreError for a form of later versions.

    A blank text gives way to the structured part, an absent structured part to the text, and both
    to words that say so.
    """
    answer = "json" if form.answer is None else form.answer
    if answer not in ANSWERS:
        raise StoreError(
            f"this version does not know the form '{answer}' of a run's answers", "upgrade eventq"
        )
    return ANSWERS[answer](step)


def _text(step: Step) -> str:
    if step.content.strip():
        return step.content
    return NOTHING if step.meta is None else _structured(step)


def _meta(step: Step) -> str:
    return _text(step) if step.meta is None else _structured(step)


def _structured(step: Step) -> str:
    return ERASED if step.meta == ERASED else canonical.dump(step.meta).decode()


def _json(step: Step) -> str:
    return canonical.dump({"content": step.content, "meta": step.meta}).decode()


ANSWERS: dict[str, Callable[[Step], str]] = {"text": _text, "json": _json, "meta": _meta}


def summary(steps: Sequence[Step], form: Form) -> str:
    """Return a summary of steps, numbered from the start of the run; "" for none."""
    if not steps:
        return ""
    return "\n\n".join([HEADING, *(_summarized(step, form) for step in steps)])


def _summarized(step: Step, form: Form) -> str:
    text = output(step, form)
    if form.cap is not None and len(text) > form.cap:
        text = f"{text[: form.cap]}… ({_rest(step, text, len(text) - form.cap, form)})"
    return f"### Step {step.number}: {step.role}\nOutput: {text}\nAgent: {step.agent}"


def _rest(step: Step, text: str, more: int, form: Form) -> str:
    """Return how much of an output was left out, and which blob has it: the text or the step."""
    if form.answer is None:
        return f"{more} characters more"
    return f"{more} more characters, {step.content_ref if text is step.content else step.ref}"
