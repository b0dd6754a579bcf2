"""Options shared by several groups of commands."""

from __future__ import annotations

from eventq.cli import kinds
from eventq.cli.table import Argument, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.kinds import Kind


def _thread(kind: Kind, more: str = "") -> Option:
    return Option("thread PATH", f"The directory of the thread{more}.", kind, required=True)


_SERVER = ". A server's address works too: eventq://HOST:PORT or unix:PATH"
THREAD, READ = _thread(kinds.Opened()), _thread(kinds.Opened(reads=True))
FOLDER = _thread(kinds.directory)  # for commands that open the thread themselves
MEMORY = _thread(kinds.Opened(remote=True), _SERVER)
MEMORY_READ = _thread(kinds.Opened(reads=True, remote=True), _SERVER)
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
EXPECTED_HEAD = Option(
    "expected-head TURN",
    "Fail unless this is the newest turn; 0 for none. The error names the newest.",
    kinds.WHOLE,
)
CONSUMER = Option("consumer ID", "The name of the consumer.", required=True)
FILTER = Option(
    "filter SQL",
    "Only events that match this SQL condition, as after WHERE. For the last hour:"
    " created_at > strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour').",
    kinds.verbatim,
)
