"""Runs and steps as the domain and an engine exchange them."""

from __future__ import annotations

from eventq.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.spent import Spent
    from eventq.store.turn_rows import AppendTo, PreparedBlob, PreparedTurn


class RunChoice(Record):
    """The runs to list: of a group or all; with `active` those that are active or suspended.

    With a `day` (UTC) they are those completed on it, and `active` is not looked at.
    """

    group: str | None = None
    active: bool = False
    day: str | None = None


class RunState(Record):
    """The state of a run: its head (0 for none) and the digest of the head's payload.

    `tried` grows with each attempt after the head, 0 for none; `keyed` is the turn that has the
    requested key, 0 for none.
    """

    status: str
    head: int
    start: int
    digest: bytes
    tried: int
    keyed: int


class PreparedRun(Record):
    """A run that can be started: `texts` are the blobs that its first turn names.

    Events from `source` report its changes; None leaves that to the setting `runs.emit`.
    """

    name: str
    group: str
    label: str | None
    texts: tuple[PreparedBlob, ...]
    first: PreparedTurn
    source: str | None
    to: AppendTo


class PreparedAttempt(Record):
    """A step that failed after the head of `after`; `blobs` are stored ahead of its node."""

    after: RunState
    blobs: tuple[PreparedBlob, ...]
    node: PreparedBlob
    spent: Spent | None = None


class PreparedStep(Record):
    """A step that can be taken if the state of the run is still `after`.

    `blobs` are stored ahead of it, `attempts` beside the chain. With `replaces` it replaces the
    last step, which becomes an attempt. The run's status changes to `becomes`, or stays. It is
    reported as `op`. Its attempts have `spent` tokens.
    """

    turn: PreparedTurn
    to: AppendTo
    after: RunState
    blobs: tuple[PreparedBlob, ...]
    attempts: tuple[PreparedBlob, ...]
    op: str
    becomes: str | None = None
    replaces: bool = False
    spent: tuple[Spent, ...] = ()
