"""Sessions of agents that can be told apart, but for which no file to resume from is written.

Where an entry names its parent it hangs there, as in a file of an unknown tool. Copilot CLI names
none in most of its events (versions up to 1.0.77): they follow each other. Qwen Code (0.21) has the
links of Claude Code, but goes on from its last line. Gemini CLI (0.40 to 0.61) writes a log, with a
line again when a message has changed. A mark (`$rewindTo`) takes back a message and what follows.
"""

from __future__ import annotations

from eventq import said
from eventq.said.values import mapping
from eventq.sessions.links import BACK, FOLLOWS, MESSAGE, TO, Link, Title, string
from eventq.sessions.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.sessions.links import Entry

_LONGEST = 200  # characters of a title that is taken from a prompt


class Other(Plain):
    """Reads sessions of an agent whose files hold what files of unknown tools do."""

    def __init__(self, name: str, label: str) -> None:
        """Name the agent, for programs and for people."""
        self.name = name
        self._label = label

    def title(self, entry: Entry) -> Title | None:
        """Return the title that an entry gives to its session: what was said first."""
        found = said.of(entry)
        text = found.text if found.role == "user" and not found.kind else None
        return Title(" ".join(text.split())[:_LONGEST], -1) if text and text.strip() else None

    def refusal(self, first: Entry) -> str:  # noqa: ARG002
        """Return why no file can be written that the tool resumes from; "" if one can."""
        return f"what {self._label} resumes from is not known here"


class Copilot(Other):
    """Reads events of Copilot CLI."""

    def is_header(self, entry: Entry) -> bool:
        """Return whether an entry describes the file; it is an event of the history, too."""
        return string(entry, "type") == "session.start"

    def session_id(self, entry: Entry) -> str | None:
        """Return the id of the session, if the entry states it: all files have one name."""
        return string(mapping(entry, "data"), "sessionId") if self.is_header(entry) else None

    def link(self, entry: Entry) -> Link | None:
        """Return how an entry belongs into the tree of its file: without a parent it follows."""
        own, parent = string(entry, "id"), string(entry, "parentId")
        if own and parent and own != parent:
            return Link(own, parent, MESSAGE)
        return Link(None if own == parent else own, None, MESSAGE | FOLLOWS)


class Gemini(Other):
    """Reads logs of Gemini CLI."""

    def is_header(self, entry: Entry) -> bool:
        """Return whether an entry describes the file, and is no part of its tree."""
        return bool(string(entry, "projectHash")) and "startTime" in entry

    def session_id(self, entry: Entry) -> str | None:
        """Return the id of the session, if the entry states it."""
        return string(entry, "sessionId") if self.is_header(entry) else None

    def link(self, entry: Entry) -> Link | None:
        """Return how an entry belongs into the tree of its file; None: it does not."""
        if back := string(entry, "$rewindTo"):
            return Link(None, back, BACK | TO)
        own = string(entry, "id")
        return Link(own, None, MESSAGE | FOLLOWS) if string(entry, "type") else None


OTHERS = (
    Copilot("copilot", "Copilot CLI"),
    Gemini("gemini", "Gemini CLI"),
    Other("qwen", "Qwen Code"),
    Other("opencode", "opencode"),
    Other("gptme", "gptme"),
)


def told(entry: Entry) -> str | None:
    """Return the name of the agent whose file has an entry, if that shows."""
    kind = string(entry, "type") or ""
    if "." in kind and "parentId" in entry and isinstance(entry.get("data"), dict):
        return "copilot"
    if string(entry, "projectHash") and "startTime" in entry:
        return "gemini"
    if "parentUuid" in entry and string(entry, "agentSlug") == "opencode":
        return "opencode"
    parts = mapping(entry, "message").get("parts")
    if "parentUuid" in entry and (isinstance(parts, list) or mapping(entry, "systemPayload")):
        return "qwen"
    return "gptme" if string(entry, "role") and {"pinned", "hide"} & entry.keys() else None
