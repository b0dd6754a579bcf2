"""Every value that eventq gives back: the glossary in code, and the file to read first.

All are immutable. `Event` and `Batch` live in a module of their own for the sake of start-up time.
"""

from __future__ import annotations

from dataclasses import dataclass

from eventq.errors import InputError
from eventq.event import Batch, Event

__all__ = ["Batch", "ConsumerInfo", "Event", "Source", "Subscription", "ThreadInfo"]

_PARTS = {"external": 5, "internal": 3, "self": 0}


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer's standing order: run `handler_cmd` while events that match `filter` are not acked."""

    consumer_id: str
    handler_cmd: str
    filter: str | None
    max_attempts: int = 5
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A subscription and where its consumer stands.

    `pending` counts matching events after `last_acked_id` (None when the filter cannot be run); `attempts` counts runs
    without progress since the last ack; `stalled` says why no handler is started any more, or is None.
    """

    consumer_id: str
    handler_cmd: str
    filter: str | None
    last_acked_id: int
    updated_at: str | None
    pending: int | None
    running: bool
    attempts: int
    stalled: str | None
    max_attempts: int
    timeout: float | None


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A thread at a glance; sizes are bytes."""

    path: str
    event_count: int
    subscriptions: tuple[ConsumerInfo, ...]
    last_id: int
    db_bytes: int
    wal_bytes: int
    mirror_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """A structured source address: `external:` with 6 parts, `internal:` with 4, or `self`.

    Parts are lower case, not empty and hold no colon and no control character.
    """

    kind: str
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an address that does not have the form."""
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
        """Give the address as it is stored."""
        return ":".join((self.kind, *self.parts))

    @classmethod
    def parse(cls, text: str) -> Source:
        """Give the address that `text` spells; raise InputError for anything else."""
        kind, *parts = text.split(":")
        return cls(kind, tuple(parts))

    @classmethod
    def external(cls, channel_type: str, channel_id: str, session_type: str, session_id: str, peer_id: str) -> Source:
        """Give the address of somebody outside, reached through a channel."""
        return cls("external", (channel_type, channel_id, session_type, session_id, peer_id))

    @classmethod
    def internal(cls, session_type: str, session_id: str, agent_id: str) -> Source:
        """Give the address of another agent."""
        return cls("internal", (session_type, session_id, agent_id))

    @classmethod
    def own(cls) -> Source:
        """Give the address of the agent itself, `self`."""
        return cls("self")
