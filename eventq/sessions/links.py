"""Values about the entries of session files, and access to entries of any shape.

An entry is a parsed JSON object of any shape: tools change their formats every few weeks, and a
file may hold lines of other programs. A missing key and a value of the wrong type are the same
here.
"""

from __future__ import annotations

from eventq.record import Record
from eventq.said.values import mapping, objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Entry = dict[str, Any]

# Flags of `Link.kind`; they are stored, so a number never changes its meaning.
MESSAGE = 1  # part of the conversation; entries without it only stand beside it
CALLS = 2  # calls a tool
RESULT = 4  # has the result of a tool call
META = 8  # written by the tool itself or by a team mate: no branch ends with it
FOLLOWS = 16  # names no parent: it belongs below the entry before it
# Flags of what is stored of a line, beside those of its link.
MORE = 32  # the next row has more of the same line
REST = 64  # what stands on a line beside its entries
ODD = 128  # an entry that is no JSON as it stands
# More flags of `Link.kind`, of logs.
BEGINS = 256  # a turn that may be taken back
BACK = 512  # no node: takes back as many turns as `Link.parent` says
TO = 2048  # with BACK: takes back the entry `Link.parent`, and what follows on it
# Another flag of what is stored: its parent is what it continues.
CONTINUES = 1024
# More flags of `Link.kind`, of trees.
ENDS = 4096  # no message, but the session may go on here nevertheless
GOES = 8192  # the session goes on at `Link.parent`, unless its last entry hangs below that
KEEPS = 16384  # a compaction has kept entries: see `Kept`
PAST = 32768  # a compaction has kept others, not this one: nothing goes on here; it is not stored


class Link(Record):
    """How an entry belongs into the tree of its file."""

    id: str | None  # unique in the file, unless an entry is repeated; None for GOES is no node
    parent: str | None = None  # the id of another entry; None at a root
    kind: int = 0  # flags
    response: str | None = None  # the answer of the model that this entry is a part of
    agent: str | None = None  # the subagent that wrote it, "" for one without a name
    on: str | None = None  # the id of the entry where the session goes on if this is the last one
    at: int | None = None  # when, in milliseconds, where a file with gaps may be bridged there
    continues: str | None = None  # the entry that a root goes on from, without being below it


class Kept(Record):
    """What a compaction has kept: entries that are a chain now, below one that comes later."""

    anchor: str  # the id of that one
    ids: tuple[str, ...]  # of all entries of the chain, or of its ends
    is_whole: bool


def is_node(link: Link) -> bool:
    """Return whether an entry is in the tree, and does not only say something about it."""
    return not link.kind & BACK and (link.id is not None or not link.kind & GOES)


class Title(Record):
    """A title that an entry gives to its session.

    Of the highest rank the last one counts, of one below 0 the first.
    """

    text: str  # empty: the session has no title
    rank: int


class Spawn(Record):
    """A start of a subagent, as far as an entry knows it."""

    call: str | None = None  # the id of the tool call
    agent: str | None = None  # the id of the agent, or of the run that it is a part of
    prompt: str | None = None  # its first message


class Beside(Record):
    """What a file is that stands in the folder beside a session."""

    kind: str  # "session" of a subagent, "sidecar" of one, "artifact", "output" or "other"
    name: str | None = None  # the agent's; the number of an artifact; the id of an output
    parent: str | None = None  # the agent or run that it belongs to; None: the session itself


class Cut(Record):
    """Where the beginning of a log ends that stands in another file."""

    session: str
    bytes: int  # of that file


class Start(Record):
    """What a sidecar says about the start of its subagent."""

    call: str | None  # the id of the tool call
    parent: str | None  # the id of the agent that made the call; None: the session itself


class NewSession(Record):
    """What a fork is to be."""

    id: str
    time: str  # now, as in 2026-03-18T10:30:00.123Z
    source: str  # the path of the file that is forked
    new_id: Callable[[], str]  # returns another UUID at each call
    cwd: str | None = None  # None: as before
    title: str | None = None  # None: that of the source


def string(entry: Any, key: str) -> str | None:
    """Return the text under a key; None if there is none or an empty one."""
    value = entry.get(key) if isinstance(entry, dict) else None
    return value if isinstance(value, str) and value else None


def text_of(message: Any) -> str | None:
    """Return the text of a message, of all its blocks."""
    if whole := string(message, "content"):
        return whole
    blocks = [string(one, "text") for one in objects(message, "content")]
    return "\n".join(one for one in blocks if one) or None


def message_text(entry: Any) -> str | None:
    """Return the text of the message in an entry."""
    return text_of(mapping(entry, "message"))
