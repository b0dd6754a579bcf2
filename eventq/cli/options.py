"""Options shared by several groups of commands."""

from __future__ import annotations

import os

from eventq.cli import kinds, show
from eventq.cli.table import Argument, Option
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.cli.kinds import Kind
    from eventq.cli.table import Raw


def thread_option(kind: Kind) -> Option:
    """Return the option --thread of a command that opens the thread in this way."""
    what = "The directory or URL of the thread."
    return Option("thread PATH", what, kind, required=True).or_from("EVENTQ_THREAD")


IS_THREAD = show.program() == "thread"


def choose_threads(raw: Raw) -> None:
    """Use the thread of the environment where none is given; raise UsageError for none."""
    if raw["thread"] is None and raw.get("all") is None:
        path = os.environ.get("EVENTQ_THREAD")
        if not path:
            from eventq.cli.names import threads_here

            more = " or --all DIR" if "all" in raw else ""
            fix = f"{threads_here()}add --thread PATH{more}, or set EVENTQ_THREAD"
            raise UsageError("no thread is given", fix)
        raw["thread"] = [path]


def unless_thread(*parts: Any) -> tuple[Any, ...]:
    """Return what a command has beyond the tool that `thread` replaces."""
    return () if IS_THREAD else parts


THREAD, READ = thread_option(kinds.Opened()), thread_option(kinds.Opened(reads=True))
TRIED = thread_option(kinds.Opened(reads=lambda raw: raw.get("dry-run", False)))
DRY_RUN = Option("dry-run", "Print what would go, and change nothing.")
PLACE = thread_option(kinds.place)  # for commands that open the thread themselves
HANDLED = thread_option(kinds.handled)
JSON = Option("json", "Print the result, and errors, as JSON.")
JSON_ERRORS = Option("json", "Print errors as JSON.", parameter="")
REFS = Option(
    "refs REF,REF",
    "The blobs that the payload refers to. They are kept while it is.",
    kinds.refs,
    default=(),
)
EXPECT_HASH = Option("expect-hash HASH", "Refuse bytes that have a different hash.")
OUTPUT = Option("output FILE", "Write to FILE, atomically.", kinds.path)
CONTEXT = Argument("CONTEXT", kinds.branch)
IN_CONTEXT = Option(
    "context NAME",
    "Number artifacts and outputs as in this context (default: in the thread).",
    kinds.branch,
)
EVERYWHERE = Option("everywhere", "Erase it also where others have the same bytes.")
REASON = Option("reason TEXT", "Why it is erased; kept for everybody to read.", kinds.verbatim)
EXPECTED_HEAD = Option(
    "expected-head TURN",
    "Fail unless this is the newest turn; 0 for none. The error names the newest.",
    kinds.WHOLE,
)
CONSUMER = Option("consumer ID", "The name of the consumer.", required=True).or_from(
    "EVENTQ_CONSUMER"
)
OF_CONSUMER = Option("consumer ID", "Only those of this consumer.").or_from("EVENTQ_CONSUMER")
FILTER = Option(
    "filter SQL",
    "Only events that match this SQL condition, as after WHERE. For the last hour:"
    " created_at > strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour'). LIKE, GLOB, length and substr"
    " see a text only up to its first NUL; instr(content, char(0)) finds events that have one.",
    kinds.verbatim,
)
