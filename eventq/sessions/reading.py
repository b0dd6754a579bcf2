"""Who reads a session file: one reader for each tool, all with the same face.

A reader is pure and never raises, whatever JSON object it is given. It says how entries are linked;
`eventq.sessions.tree` makes a tree of that.
"""

from __future__ import annotations

from eventq.sessions.claude import Claude
from eventq.sessions.codex import Codex, is_codex
from eventq.sessions.links import string
from eventq.sessions.omp import OWN_KEYS, OWN_TYPES, OhMyPi, is_slot
from eventq.sessions.others import OTHERS, told
from eventq.sessions.pi import Pi
from eventq.sessions.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.sessions.links import Entry

    Reader = Plain  # what all of them can do

READERS: dict[str, Plain] = {
    one.name: one for one in (Claude(), Codex(), OhMyPi(), Pi(), *OTHERS, Plain())
}


def reader_named(tool: str) -> Plain:
    """Return the reader of a tool; the plain one for a tool that only a newer eventq knows."""
    return READERS.get(tool) or READERS["plain"]


def reader_of(first: Sequence[Entry]) -> Plain:
    """Return the reader of a file that begins with these entries."""
    for entry in first:
        if is_slot(entry):
            return READERS["omp"]
        if string(entry, "type") == "session" and string(entry, "id"):
            return READERS["omp" if _is_omp(entry, first) else "pi"]
        if other := told(entry):
            return READERS[other]
        if READERS["claude"].is_record(entry):
            return READERS["claude"]
        if is_codex(entry):
            return READERS["codex"]
    return READERS["plain"]


def is_record(entry: Entry) -> bool:
    """Return whether an entry looks like a record of any tool."""
    return any(reader.is_record(entry) for reader in READERS.values())


def _is_omp(header: Entry, first: Iterable[Entry]) -> bool:
    """Return whether a session without a line for its title is nevertheless one of Oh My Pi."""
    return not OWN_KEYS.isdisjoint(header) or any(
        string(one, "type") in OWN_TYPES
        or (string(one, "type") == "model_change" and string(one, "model"))
        for one in first
    )
