"""Tokens: what a response of a model took, and sums of that."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Spent(Record):
    """What one response of a model took, as far as it says so.

    A response may be several turns, which state it each. What stands `beside` them counts for the
    turn before.
    """

    out: int
    fresh: int  # tokens that were read, but for those from a cache
    cached: int
    model: str = ""
    at: int | None = None  # when, in milliseconds
    response: str = ""  # its id
    beside: bool = False


class ModelUsage(Record):
    """The tokens that the responses of one model took; "" is one that is not named."""

    model: str
    out: int
    fresh: int
    cached: int
    responses: int


class HourUsage(Record):
    """The tokens that the responses of an hour took; `at` is its beginning, in milliseconds."""

    at: int
    out: int
    fresh: int
    cached: int
    responses: int


class UsageSum(Record):
    """The tokens that responses of models took: written, read, and read from a cache.

    `models` has the share of each, the most written first. `subagents` is what those of a session
    took beside it; it has none of its own. `is_all` is False while turns of before this was counted
    are still to be read.
    """

    out: int = 0
    fresh: int = 0
    cached: int = 0
    responses: int = 0
    models: tuple[ModelUsage, ...] = ()
    subagents: UsageSum | None = None
    is_all: bool = True

    @property
    def read(self) -> int:
        """All tokens that were read, also those from a cache."""
        return self.fresh + self.cached


def usage_object(one: UsageSum) -> dict[str, Any]:
    """Return a sum as a JSON object."""
    models = [model._asdict() for model in one.models]
    beside = None if one.subagents is None else usage_object(one.subagents)
    return {**one._asdict(), "models": models, "subagents": beside}
