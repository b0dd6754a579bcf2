"""The addresses of senders."""

from __future__ import annotations

from eventq.errors import InputError
from eventq.record import Record

_USUAL = ("main", "default")  # names of agents that tell nobody apart
_PARTS = {"external": 5, "internal": 3, "self": 0}


class Source(Record):
    """A structured source address: `external:` with 6 parts, `internal:` with 4, or `self`.

    Parts are lower case, not empty and hold no colon and no control character.
    """

    kind: str
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InputError for an address of another form."""
        wanted = _PARTS.get(self.kind)
        good = wanted == len(self.parts) and all(
            p and p == p.lower() and p.isprintable() and ":" not in p for p in self.parts
        )
        if not good:
            raise InputError(
                f"'{self}' is not a source address",
                "write external:<channel_type>:<channel_id>:<session_type>:<session_id>:<peer_id>, "
                "internal:<session_type>:<session_id>:<agent_id> or self, in lower case",
            )

    def __str__(self) -> str:
        """Return the address as it is stored."""
        return ":".join((self.kind, *self.parts))

    @classmethod
    def parse(cls, text: str) -> Source:
        """Return the address of a text. Raises InputError."""
        kind, *parts = text.split(":")
        return cls(kind, tuple(parts))

    @classmethod
    def external(
        cls, channel_type: str, channel_id: str, session_type: str, session_id: str, peer_id: str
    ) -> Source:
        """Return the address of an outside peer, reached through a channel."""
        return cls("external", (channel_type, channel_id, session_type, session_id, peer_id))

    @classmethod
    def internal(cls, session_type: str, session_id: str, agent_id: str) -> Source:
        """Return the address of another agent."""
        return cls("internal", (session_type, session_id, agent_id))

    @classmethod
    def own(cls) -> Source:
        """Return the address of the agent itself, `self`."""
        return cls("self")


class Sender(Record):
    """Who sends, shortened for people; `kind` is agent, the type of a channel, or nothing."""

    name: str
    kind: str
    source: str


def sender_of(source: str) -> Sender:
    """Return who sends, from any source of an event; the whole of it stays in `source`.

    `internal:dm:coder:main` is the agent coder, `external:webhook:shop:acme::` the webhook acme,
    and `self` this thread. Other sources are names themselves.
    """
    kind, *parts = source.split(":")
    if source == "self":
        return Sender("this thread", "", source)
    told = [part for part in parts[1:] if part]
    if kind == "internal" and len(parts) == 3 and told:
        named = [part for part in told[::-1] if part not in _USUAL]
        return Sender((named or told[::-1])[0], "agent", source)
    if kind == "external" and len(parts) == 5 and told:
        return Sender(told[-1], parts[0], source)
    return Sender(source, "", source)
