"""Session files as the domain and an engine exchange them."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.store.turn_rows import PreparedBlob


class SessionRow(Record):
    """A session file as it was last read: `size` and `digest` of its bytes to the last newline."""

    session: int  # 0 for one that is not there yet
    name: str
    generation: int
    tool: str
    place: str | None  # the path of the file
    size: int
    digest: bytes
    lines: int
    settled: int | None = None  # the line from where on the tree has to be built when it has grown
    missing: str | None = None  # what is known of the lines before that one, as JSON
    owner: str | None = None  # of a subagent's: the session in whose folder the file stands
    path: str | None = None  # where it stands there
    started_by: str | None = None  # the entry that started the subagent


class Tip(Record):
    """A context at the end of a branch of a session, at the turn where an import has left it."""

    context: int
    name: str | None
    session: int
    turn: int
    position: int | None  # of the line, if the session has it still


class Begun(Record):
    """A subagent that begins right below a turn: its first turn, and the session of its lines."""

    below: int
    turn: int
    session: str
    owner: str | None  # None: its lines stand among those of the session that started it
    agent: str | None
    entry: str | None  # the id of its first entry


class NewLine(Record):
    """A line of a session file: `before`, the text that a blob holds in a form, and `after`.

    Or a part of one that has several entries, or an entry and anything else.
    """

    blob: PreparedBlob
    form: int
    before: bytes
    after: bytes
    is_node: bool
    entry: str | None
    parent: str | None
    kind: int
    response: str | None
    agent: str | None
    images: Sequence[PreparedBlob]


class StoredLine(Record):
    """What the bytes of a line consist of, and its turn."""

    position: int
    form: int
    before: bytes
    after: bytes
    digest: bytes
    turn: int | None
    size: int  # of the blob


class EdgeLine(Record):
    """A line near an end of a file."""

    session: int
    position: int
    form: int
    kind: int
    digest: bytes
    size: int  # of the blob


class Outline(Record):
    """What is counted of a session, but for the subagents of all its generations."""

    session: int
    updated_at: int
    lines: int
    branches: int
    agents: int
    turns: int  # of the active branch


class LineLink(Record):
    """How a stored line is linked; `entry` and those after it are those of a `Link`."""

    position: int
    is_node: int
    entry: str | None
    parent: str | None
    kind: int
    response: str | None
    agent: str | None
    turn: int | None
    turn_parent: int  # 0 for none
    form: int
