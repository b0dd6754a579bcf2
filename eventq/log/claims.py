"""Claims: events that are leased to one worker at a time, and settled by it.

A claim that is neither settled nor extended before its deadline is given to somebody else. So each
event is done at least once, and never by two workers who both hold it.
"""

from __future__ import annotations

import os

from eventq.errors import InputError, LeaseLostError, UsageError
from eventq.records.checks import check_name, check_positive
from eventq.store.queue_rows import Verdict, Worker
from eventq.system import clock
from eventq.system.clock import SLOW_LOOK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eventq.log.journal import Journal
    from eventq.records.claim import ClaimInfo
    from eventq.store.causing import During
    from eventq.store.protocol import Database
    from eventq.store.queue_rows import Claimed, Taken

MOST_SECONDS = 365 * 24 * 3600.0  # of a lease or a delay
PAGE = 500  # rows that are listed at once
MOST_ERROR = 4 << 10  # characters of an error that are kept, its last ones
NEVER = float("inf")
_TOKEN = 16  # bytes
_KEPT_MS = 1_000  # for which an event is left to a process that hangs in the kernel


class Claim:
    """One event that this worker has until `deadline` (seconds since 1970).

    `attempt` counts from 1. `done`, `retry` and `dead` end it, and raise LeaseLostError when its
    lease has ended: then somebody else may have the event. Called inside `thread.write()`, they are
    part of that change. `is_settled` says whether any of them, or `settle`, was called for it.
    """

    __slots__ = (
        "_claims",
        "_revived",
        "_span",
        "_taken",
        "attempt",
        "consumer",
        "deadline",
        "event",
        "is_settled",
    )

    def __init__(self, claims: Claims, consumer: str, taken: Taken, claimed: Claimed) -> None:
        """Take one of the events that a claim leased."""
        self._claims = claims
        self._taken = taken
        self.event, self.attempt, self._revived, _ = claimed
        self.consumer = consumer
        self.deadline = taken.until / 1000
        self._span = taken.span
        self.is_settled = False

    @property
    def token(self) -> str:
        """The name of the claim, for other processes: `eventq done TOKEN`."""
        return token_of(self._taken.token, self.event.id, self.consumer, revived=self._revived)

    def done(self) -> None:
        """Finish the event."""
        self._settle("done")

    def retry(
        self, delay: float | None = None, error: str | None = None, *, count: bool = True
    ) -> None:
        """Put the event back, for an attempt after `delay` seconds (None: the back-off).

        With `count`, this was a failed attempt, and after the last one the event is dead, or stops
        the consumer.
        """
        span = None if delay is None else milliseconds(delay, "the delay")
        self._settle("retry", span, error, counts=count)

    def dead(self, reason: str | None = None) -> None:
        """Make a dead letter of the event."""
        self._settle("dead", error=reason)

    def extend(self, seconds: float | None = None) -> None:
        """Set the end of the lease to `seconds` from now (None: as long as it was before)."""
        now = clock.now()  # the database may be waited for: then the lease ends a little later
        span = self._span if seconds is None else extension(seconds)
        self._settle("extend", span)
        self.deadline, self._span = now + span / 1000, span

    def during(self) -> During:
        """Return a context manager: what is written meanwhile is caused by the event.

        This holds for this OS thread, or this task, and whatever thread is written to.
        """
        from eventq.store.causing import During

        return During(self._claims.place, (self.event.id,))

    def parts(self) -> tuple[str, bytes, int, bool]:
        """Return the consumer, the secret of the lease, the event, and whether it was dead."""
        return self.consumer, self._taken.token, self.event.id, self._revived

    def _settle(
        self, what: str, span: int | None = None, error: str | None = None, *, counts: bool = True
    ) -> None:
        error = None if error is None else check_error(error)
        consumer, secret, event, revived = self.parts()
        self._claims.settle_one(
            Verdict(consumer, secret, (event,), revived, what, span, counts, None, error)
        )
        self.is_settled = self.is_settled or what != "extend"

    def __repr__(self) -> str:
        """Return the consumer, the event and the attempt."""
        return f"<eventq.Claim {self.consumer}: event {self.event.id}, attempt {self.attempt}>"


class Claims:
    """The claims of one thread."""

    def __init__(self, db: Database, journal: Journal) -> None:
        """Take the database and the journal of the thread."""
        self.place = db.place
        self._db = db
        self._journal = journal

    def claim(
        self,
        consumer: str,
        limit: int,
        lease: float | None,
        wait: float | None,
        nonce: str | None,
        worker: str | None,
    ) -> list[Claim]:
        """Lease the next events; wait up to `wait` seconds (None: forever) for the first one."""
        check_name(consumer, "consumer")
        check_positive(limit, "limit")
        if nonce is not None:
            check_name(nonce, "nonce")
        span = None if lease is None else milliseconds(lease, "lease")
        if span == 0:
            raise UsageError("lease must be above zero", "give seconds, such as 30")
        worker = f"{os.uname().nodename}:{os.getpid()}" if worker is None else worker
        check_name(worker, "worker")
        who = Worker(worker)

        def take() -> list[Claim]:
            token = os.urandom(_TOKEN)
            taken = self._db.claims.take(consumer, limit, span, who, token, nonce=nonce)
            taken = without_orphans(self._db, self._journal, consumer, taken)
            return [Claim(self, consumer, taken, claimed) for claimed in taken.claims]

        found = take()
        if found or wait == 0:
            return found
        deadline = NEVER if wait is None else clock.monotonic() + wait
        with self._db.watch() as watcher:
            while not (found := take()) and (left := deadline - clock.monotonic()) > 0:
                watcher.wait(min(left, SLOW_LOOK, self._next_look(consumer)))
        return found

    def _next_look(self, consumer: str) -> float:
        """Return the seconds until an event may be due that was claimed before."""
        wait = self._db.claims.next_due(consumer)
        return SLOW_LOOK if wait is None else max(wait, 1) / 1000

    def settle(
        self,
        done: Iterable[Claim | str],
        retry: Iterable[Claim | str] = (),
        dead: Iterable[Claim | str] = (),
        *,
        delay: float | None = None,
        error: str | None = None,
        count: bool = True,
    ) -> list[Claim | str]:
        """Settle many claims as one change; return those that were lost."""
        claims: dict[tuple[bytes, int], Claim | str] = {}
        alike: dict[tuple[str, bytes, bool, str], list[int]] = {}
        why = None if error is None else check_error(error)
        wait = None if delay is None else milliseconds(delay, "the delay")
        for what, given in (("done", done), ("retry", retry), ("dead", dead)):
            for claim in given:
                parts = claim.parts() if isinstance(claim, Claim) else parts_of(claim)
                consumer, secret, event, revived = parts
                if (secret, event) in claims:
                    raise UsageError(f"event {event} is settled twice", "give each claim once")
                claims[secret, event] = claim
                alike.setdefault((consumer, secret, revived, what), []).append(event)
        verdicts = [
            Verdict(name, token, events, revived, what, wait, count, error=why)
            for (name, token, revived, what), events in alike.items()
        ]
        lost = self._db.claims.settle(verdicts).lost
        for one, claim in claims.items():
            if isinstance(claim, Claim) and one not in lost:
                claim.is_settled = True
        return [claims[one] for one in sorted(lost)] if lost else []

    def extend(self, claims: Iterable[Claim | str], seconds: float | None) -> list[Claim | str]:
        """Extend many claims as one change; return those that were lost."""
        span = None if seconds is None else extension(seconds)
        given: dict[tuple[bytes, int], Claim | str] = {}
        verdicts = []
        for claim in claims:
            consumer, secret, event, revived = (
                claim.parts() if isinstance(claim, Claim) else parts_of(claim)
            )
            given[secret, event] = claim
            verdicts.append(Verdict(consumer, secret, (event,), revived, "extend", span))
        return [given[one] for one in sorted(self._db.claims.settle(verdicts).lost)]

    def out(self, consumer: str | None) -> Iterator[ClaimInfo]:
        """Yield the claims that are out, of one consumer or all, by consumer and event."""
        from eventq.records.claim import ClaimInfo
        from eventq.system.processes import is_lost

        if consumer is not None:
            check_name(consumer, "consumer")
        after = ("", 0)
        while rows := self._db.claims.out(consumer, after, PAGE):
            for row in rows:
                token = token_of(row.token, row.event, row.consumer, revived=row.revived)
                lost = row.process is not None and is_lost(row.process)
                yield ClaimInfo(*row[:4], token, row.since, row.until, lost)
            after = (rows[-1].consumer, rows[-1].event)

    def settle_one(self, verdict: Verdict) -> None:
        """Settle one claim. Raises LeaseLostError."""
        if self._db.claims.settle([verdict]).lost:
            raise LeaseLostError(verdict.consumer, verdict.events[0])


def without_orphans(db: Database, journal: Journal, consumer: str, taken: Taken) -> Taken:
    """Kill the handlers that others have left at work on claimed events; return what is free.

    One that cannot be killed keeps its event: that is given back, uncounted, for a while.
    """
    if not any(claimed.orphan for claimed in taken.claims):
        return taken
    from eventq.system.processes import end_orphan  # `pop` loads this module, too

    kept = [c for c in taken.claims if c.orphan and not end_orphan(c.orphan, db.identity)]
    if not kept:
        return taken
    ids = [claimed.event.id for claimed in kept]
    verdict = Verdict(consumer, taken.token, ids, kept[0].revived, "retry", _KEPT_MS, counts=False)
    db.claims.settle([verdict])
    journal.warn(
        f"claim: consumer={consumer} events={ids} wait for a handler that cannot be killed"
    )
    return taken._replace(claims=[claimed for claimed in taken.claims if claimed not in kept])


def token_of(secret: bytes, event: int, consumer: str, *, revived: bool) -> str:
    """Return a claim's name: a random number, the event and the consumer.

    A consumer id that begins or ends with a blank is quoted: other tokens lose or gain none unseen.
    """
    if consumer != consumer.strip() or consumer.startswith('"'):
        consumer = f'"{consumer}"'
    return f"{secret.hex()}.{event}{'r' * revived}.{consumer}"


def claim_line(claim: Claim) -> str:
    """Return a claim as a line of JSON, with its event."""
    from eventq.log.mirror_lines import line
    from eventq.system.jsontext import quote

    return (
        f'{{"token":{quote(claim.token)},"attempt":{claim.attempt},'
        f'"deadline_ms":{round(claim.deadline * 1000)},"event":{line(claim.event)}}}'
    )


def parts_of(token: str) -> tuple[str, bytes, int, bool]:
    """Return the consumer of a token, its random number, its event, and whether that was dead.

    Raises InputError for text that is no token: each has one spelling, the printed one.
    """
    parts = token.split(".", 2) if isinstance(token, str) else []
    secret, event, consumer = parts if len(parts) == 3 else ("", "", "")
    if consumer.startswith('"'):
        consumer = consumer[1:-1]
    revived = event.endswith("r")
    try:
        lease, number = bytes.fromhex(secret), int(event.removesuffix("r"))
    except ValueError:
        lease, number = b"", 0
    if (
        len(lease) == _TOKEN
        and 0 <= number < 1 << 63
        and token == token_of(lease, number, consumer, revived=revived)
    ):
        return consumer, lease, number, revived
    raise InputError(f"{token!r:.100} is not the token of a claim", "give one that 'claim' printed")


def milliseconds(seconds: float, what: str) -> int:
    """Return seconds as ms; raise UsageError for what is no time, or too long."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 <= seconds <= MOST_SECONDS
    ):
        raise UsageError(
            f"{what} must be seconds from 0 to {MOST_SECONDS:.0f}, not {seconds!r:.50}",
            "give a number, such as 30",
        )
    return max(1, round(seconds * 1000)) if seconds else 0


def extension(seconds: float) -> int:
    """Return the seconds of a new lease as ms; raise UsageError for what is none."""
    span = milliseconds(seconds, "the time")
    if not span:
        raise UsageError("an extension must be above zero", "give seconds, such as 30")
    return span


def check_error(error: str) -> str:
    """Return the end of an error that is kept. Raises InputError for what is no text."""
    if not isinstance(error, str):
        raise InputError(f"an error must be text, not {type(error).__name__}", "give a string")
    return error[-MOST_ERROR:].encode(errors="replace").decode().replace("\0", "\ufffd")
