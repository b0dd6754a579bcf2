"""The pages of runs: a list, and one with its steps."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.http.pages.markdown import html
from eventq.http.pages.page_request import whole_in
from eventq.http.pages.talk import shown
from eventq.said.values import dump

if TYPE_CHECKING:
    from eventq.http.pages.page_request import Ask
    from eventq.records.run import Step
    from eventq.thread import Thread

    Values = dict[str, Any]

PAGE = 200  # steps of a page
SHOWN = 100_000  # characters of a text
LISTED = 200


def runs(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List all runs by id, whatever their status."""
    found = [*islice(thread.runs.list(after=whole_in(ask.query, "after", 0)), LISTED + 1)]
    more = found[LISTED - 1].run_id if len(found) > LISTED else None
    return "runs.html", {"runs": found[:LISTED], "more": more}


def run(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show a run: its task, and its steps from one on."""
    found = thread.runs.get(ask.names["run"])
    info, first = found.info(), whole_in(ask.query, "from", 1)
    steps = [*islice(found.replay(first), PAGE + 1)]
    return "run.html", {
        "info": info, "prompt": found.prompt()[:SHOWN], "steps": [*map(_step, steps[:PAGE])],
        "more": steps[PAGE].number if len(steps) > PAGE else None, "first": first,
    }  # fmt: skip


def _step(one: Step) -> tuple[Step, list[Values], str]:
    """Return a step with the blocks of its text, and its meta as text."""
    blocks = [shown(block) for block in said.read(one.content.encode("utf-8", "replace")).blocks]
    for block in blocks:
        if block["shape"] == "text":
            block["html"] = html(block["text"])
    meta = one.meta if isinstance(one.meta, str) else dump(one.meta) if one.meta else ""
    return one, blocks, meta[:SHOWN]
