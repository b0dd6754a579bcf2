"""The messages that a model should see, rebuilt from the steps of a run by a pure function.

`messages(visit k)` followed by the assistant's answer is a byte-identical prefix of
`messages(visit k + 1)`, so that a provider's prompt cache hits. Nothing here reads a clock, an
environment or a database.
"""

from __future__ import annotations

from eventq.dag import canonical
from eventq.dag.nodes import NO_ROLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eventq.records import Step

HEADING = "## What Happened Since Your Last Turn"


def rebuild(
    system: str,
    steps: Iterable[Step],
    role: str,
    edge_prompt: str,
    *,
    compact: str = "",
    cap: int | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the messages as chat APIs take them: the system's, a pair a visit, and the current one.

    `steps` are those since the last compaction, oldest first, and `compact` is its summary. `cap`
    bounds the characters of one step in a summary.
    """
    yield {"role": "system", "content": system}
    between: list[Step] = []
    for step in steps:
        if step.role in NO_ROLES:
            continue
        if step.role != role:
            between.append(step)
            continue
        yield {"role": "user", "content": join(compact, step.edge_prompt, summary(between, cap))}
        yield {"role": "assistant", "content": output(step)}
        compact, between = "", []
    yield {"role": "user", "content": join(compact, edge_prompt, summary(between, cap))}


def join(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between."""
    return "\n\n".join(part for part in parts if part)


def output(step: Step) -> str:
    """Return the output of a step as canonical JSON: its text and its structured part."""
    return canonical.dump({"content": step.content, "meta": step.meta}).decode()


def summary(steps: Sequence[Step], cap: int | None = None) -> str:
    """Return a summary of steps, numbered from the start of the run; "" for none."""
    if not steps:
        return ""
    return "\n\n".join([HEADING, *(_summarized(step, cap) for step in steps)])


def _summarized(step: Step, cap: int | None) -> str:
    text = output(step)
    if cap is not None and len(text) > cap:
        text = f"{text[:cap]}… ({len(text) - cap} characters more)"
    return f"### Step {step.number}: {step.role}\nOutput: {text}\nAgent: {step.agent}"
