"""Any other file of JSON lines: a chain, unless its entries name their parents."""

from __future__ import annotations

from eventq.said.values import mapping
from eventq.sessions.links import FOLLOWS, MESSAGE, Beside, Link, Start, string

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.sessions.links import Cut, Entry, Kept, NewSession, Spawn, Title

_NAMES = (("uuid", "parentUuid"), ("id", "parentId"), ("id", "parent_id"))


class Plain:
    """Reads files of unknown tools, and is what the other readers are built on."""

    name = "plain"
    last_is_leaf = True
    closes_gaps = False  # by the time of entries; see `eventq.sessions.gaps`
    forks_agents = True  # the files of subagents come along with a fork
    is_log = False  # a fork has all lines but those of other branches, not the turns alone

    def is_header(self, entry: Entry) -> bool:  # noqa: ARG002
        """Return whether an entry describes the file, and is no part of its tree."""
        return False

    def is_record(self, entry: Entry) -> bool:
        """Return whether an entry looks like a record of the tool, and not like a part of one."""
        if not string(entry, "type"):
            return False
        linked = any(string(entry, own) and parent in entry for own, parent in _NAMES)
        return linked or bool(string(entry, "timestamp"))

    def link(self, entry: Entry) -> Link | None:
        """Return how an entry belongs into the tree of its file; None: it does not."""
        for name, parent in _NAMES:
            if (own := string(entry, name)) and parent in entry:
                return Link(own, string(entry, parent), MESSAGE)
        own = string(entry, "uuid") or string(entry, "id")
        return Link(own, None, MESSAGE | FOLLOWS)

    def at(self, entry: Entry) -> int | None:  # noqa: ARG002
        """Return when an entry was written, in milliseconds, if the tool closes gaps by that."""
        return None

    def kept(self, entry: Entry) -> Kept | None:  # noqa: ARG002
        """Return what a compaction has kept; None for nothing, and for any other entry."""
        return None

    def session_id(self, entry: Entry) -> str | None:  # noqa: ARG002
        """Return the id of the session, if the entry states it."""
        return None

    def title(self, entry: Entry) -> Title | None:  # noqa: ARG002
        """Return the title that an entry gives to its session."""
        return None

    def cwd(self, entry: Entry) -> str | None:
        """Return the directory that the tool worked in, if the entry states it."""
        return string(entry, "cwd") or string(mapping(entry, "payload"), "cwd")

    def spawns(self, entry: Entry) -> list[Spawn]:  # noqa: ARG002
        """Return the starts of subagents that an entry knows of."""
        return []

    def folder(self, path: str) -> Beside:  # noqa: ARG002
        """Return what a file is whose path inside the session's folder, with `/`, is given."""
        return Beside("other")

    def sidecar(self, content: Any) -> Start:  # noqa: ARG002
        """Return what the JSON value in a sidecar says about the start of its subagent."""
        return Start(None, None)

    def leads(self, entry: Entry) -> bool:  # noqa: ARG002
        """Return whether what stands beside the turns of a log belongs to the next one."""
        return False

    def carried(self, entry: Entry) -> bool:
        """Return whether a fork needs an entry wherever in the file it stands."""
        return self.is_header(entry)

    def fork(
        self,
        path: Iterable[Entry],
        carried: Iterable[Entry],  # noqa: ARG002
        new: NewSession,  # noqa: ARG002
    ) -> Iterator[Entry]:
        """Yield the entries of a new file that goes on from the end of a path.

        `path` are the entries from the root to that end, `carried` those that `carried` is true
        for; both in order. They stay unchanged, and the new ones may share values with them. Lines
        are to be written as `eventq.output.spelling.spell` does.
        """
        yield from path

    def file_name(self, new: NewSession) -> str:
        """Return the name of the file of a new session."""
        return f"{new.id}.jsonl"

    def resume(self, own: str) -> str:  # noqa: ARG002
        """Return the command with which the tool goes on in a session; "" if none is known."""
        return ""

    def begins_in(self, first: Entry) -> Cut | None:  # noqa: ARG002
        """Return where the beginning of a session stands whose file has this first entry."""
        return None

    def source(self, first: Entry) -> str | None:  # noqa: ARG002
        """Return the session that one was forked from whose file has this first entry."""
        return None

    def started_in(self, first: Entry) -> tuple[str | None, str]:  # noqa: ARG002
        """Return the session that started a subagent whose file has this first entry, and its name.

        None for what is none, or whose file stands in the folder beside that session.
        """
        return None, ""

    def copied(self, entry: Entry) -> Entry:
        """Return what a copy of an entry in the file of a fork has as well."""
        return entry

    def origin(self, first: Entry) -> str:
        """Return a sentence on what session one comes from that has a copy of its lines, or ""."""
        source = self.source(first)
        return f"this is a fork of session '{source}', with a copy of its lines" if source else ""

    def refusal(self, first: Entry) -> str:  # noqa: ARG002
        """Return why no file can be written that the tool resumes from; "" if one can.

        `first` is the first entry of the file.
        """
        return "the tool of this session is not known"

    def doubt(self, name: str, new: NewSession) -> str:  # noqa: ARG002
        """Return why the tool may not resume from a file of this name; "" if it does."""
        return ""
