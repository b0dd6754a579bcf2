"""Runs of workflows and their steps."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


class RunInfo(Record):
    """A run of a workflow at one moment; `head` and `start` are the refs of its nodes.

    `status` is `active`, `suspended`, `completed` or `cancelled`; `completed_at_ms` is None unless
    it is completed. `label` is the name of the run's context, None for none.
    """

    run_id: int
    name: str
    group: str
    status: str
    head_turn_id: int
    depth: int
    head: str
    start: str
    fork_of: int | None
    updated_at_ms: int
    completed_at_ms: int | None
    label: str | None


class RunChange(Record):
    """The last change of a run, and the run as it is now; None for one that was removed.

    `op` is `start`, `step`, `attempt`, `poke`, `compact`, `suspend`, `resume`, `end`, `fork`,
    `import`, or `remove`; it is `active` for a run that was under way when somebody began to watch.
    """

    op: str
    run_id: int
    run: RunInfo | None


class NewRun(Record):
    """A run that is to be started.

    `name` is that of the workflow, `prompt` its task. `system` maps each role to its system text;
    when it has any, only these roles and those that took a step have messages. `group` is what the
    workflow was made of (a hash of its bundle), `parent_state` the step of a calling run.
    `summary_cap` bounds the characters of one step in a summary, 0 for no bound. With
    `task_in_system` the system texts state the task: the messages do not add it to them (default:
    they do). `answer` is the form of a step's output in messages: its `text`, its `meta` as JSON
    (each stands in for the other where that is missing), or `json` with both.
    """

    name: str
    prompt: str
    system: Mapping[str, str] | None = None
    group: str = ""
    max_rounds: int = 0
    depth: int = 0
    parent_state: str | bytes | None = None
    summary_cap: int = 2_000
    task_in_system: bool = False
    answer: str = "text"


class Step(Record):
    """One step of a run: `number` counts from the start of the run, `ref` names its node.

    `meta` is the structured part of the role's output and `content` its text, which the node that
    `content_ref` names holds; `artifacts` are refs. A turn of a type that this version does not
    know has no role, and its type as `meta`.
    """

    number: int
    turn_id: int
    ref: str
    role: str
    meta: Any
    content: str
    artifacts: tuple[str, ...]
    edge_prompt: str
    agent: str
    timestamp: int
    ancestors: tuple[str, ...]
    compact: str | None
    attempts: tuple[str, ...]
    child: str | None
    content_ref: str | None


class NewStep(Record):
    """A step that is to be taken, or an attempt at one: the output of a role.

    `meta` is the structured part, any JSON value; `content` the text, and `refs` the blobs it made;
    or `extracted` is the three at once, `{"meta", "contentPayload", "refs"}`. `edge_prompt` is what
    the role was asked, verbatim. `attempts` are failed ones that came before. `compact` is a
    summary of all steps before this one. `child` is the end of a run that this one called.
    """

    role: str
    meta: Any = None
    content: str = ""
    refs: Iterable[str | bytes] = ()
    edge_prompt: str = ""
    agent: str = ""
    compact: str | None = None
    child: str | bytes | None = None
    attempts: Iterable[NewStep] = ()
    extracted: Mapping[str, Any] | None = None


class RunText(Record):
    """The newest steps of a run as text; `omitted` counts the steps that did not fit."""

    text: str
    steps: int
    omitted: int
