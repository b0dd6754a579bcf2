"""A consumer's claims and a plain Python model of them, driven side by side."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from eventq.errors import ConsumerInUseError
from eventq.log.notifier import Notifier
from eventq.records.consumer import Settings
from eventq.records.event import NewEvent
from eventq.store import rules
from eventq.store.queue_rows import Verdict, Worker
from tests.conftest import Clock
from tests.engines import sqlite
from tests.model.support import Beside, drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.store.queue_rows import Taken
    from eventq.store.sqlite.database import Database

MOST = 7  # unfinished events of a queue
SLACK = 1_000
DAY = 24 * 3600 * 1000
LEASED, WAITING, HELD, STALLED = range(4)

FILTERS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda _: True,
    "type = 'a'": lambda row: row.type == "a",
    "source <> 'self'": lambda row: row.source != "self",
    "id % 3 > 0": lambda row: row.id % 3 > 0,
    "0": lambda _: False,
}
CONTENTS = ['{"k": 1}', '{"k": 2}', '{"k": null}', "{}", "no JSON"]
NEW = st.builds(
    NewEvent, st.sampled_from(["self", "other"]), st.sampled_from(["a", "b"]),
    st.sampled_from(CONTENTS), st.none(), st.none(),
)  # fmt: skip
SPANS = st.sampled_from([1_000, 30_000])
NONCES = st.sampled_from([None, None, None, "n", "m"])
HOWS: dict[str, list[Any]] = {
    "filter": [None, None, *FILTERS],
    "ordered_by": [None, None, "source", "type", "$.k"],
    "most": [1, 2, 3],
    "on_failure": [None, "dead", "stall"],
    "emit_dead": [False, True],
    "concurrency": [None, None, 0, 2],  # None: without a handler
}
HOW = st.fixed_dictionaries({key: st.sampled_from(values) for key, values in HOWS.items()})
ACTS = (
    [
        "claim",
        "settle",
        "time",
        "push",
        "subscribe",
        "write",
        "read",
        "pause",
        "resume",
        "unsubscribe",
        "prune",
        "reopen",
        "revive",
        "drop",
    ],
    [10, 12, 3, 5, 0.8, 0.7, 1, 0.6, 2, 0.2, 0.2, 0.1, 2, 0.3],
)


@dataclass(frozen=True)
class Row:
    """An event."""

    id: int
    source: str
    type: str
    subtype: str | None
    content: str

    def group(self, by: str | None) -> str | None:
        """Return the value that the event is ordered by, as it is stored."""
        if by in ("source", "type"):
            return str(getattr(self, by))
        value = json.loads(self.content).get("k") if by and self.content[0] == "{" else None
        return None if value is None else json.dumps(value)


@dataclass
class Unfinished:
    """An event that is not finished."""

    state: int
    attempts: int
    due: int
    span: int
    group: str | None
    token: bytes | None = None
    revived: bool = False  # a dead letter that is tried again, outside the order

    def is_set_back(self, now: int) -> bool:
        """Return whether its end is further away than it is long."""
        return self.due > now + self.span + SLACK

    def holds(self, token: bytes, now: int) -> bool:
        """Return whether it is leased with a token, and the lease has not ended."""
        return self.state == LEASED and self.token == token and not self.has_ended(now)

    def has_ended(self, now: int) -> bool:
        """Return whether its lease has ended."""
        return self.due <= now or self.is_set_back(now)


@dataclass
class Model:
    """One consumer and its log, in plain Python."""

    events: dict[int, Row] = field(default_factory=dict)
    last: int = 0
    how: dict[str, Any] | None = None  # None: not subscribed
    paused: bool = False
    progress: int | None = None  # None: there is no row
    frontier: int = 0
    rows: dict[int, Unfinished] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)  # attempts
    stalled: int | None = None
    nonces: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    is_begun: bool = False  # whether there was a claim
    is_written: bool = False  # whether others wrote the progress since the last look
    seen: int = 0  # the progress at the last look
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])  # done, failed, dead

    # --- the log ----------------------------------------------------------------------------------

    def push(self, new: NewEvent) -> None:
        self.last += 1
        self.events[self.last] = Row(self.last, new.source, new.type, new.subtype, new.content)

    # --- progress that others write ---------------------------------------------------------------

    def is_leased(self, now: int) -> bool:
        """Return whether a lease has not ended."""
        return any(r.state == LEASED and not r.has_ended(now) for r in self.rows.values())

    def write(self, acked: int) -> None:
        """Apply an ack, or a replay."""
        before = self.progress or 0
        self.progress = acked
        if not self.is_begun:
            self.frontier = self.seen = acked
            return
        self.is_written = True
        if acked < before:
            self.go_back(acked)
        self.frontier = max(self.frontier, acked)
        self.rows = {n: row for n, row in self.rows.items() if n > acked or row.revived}
        for group in {row.group for row in self.rows.values() if row.group is not None}:
            self.free(group)
        self.find_stall()

    def go_back(self, acked: int) -> None:
        """Forget what was done after an event, and take all leases away."""
        self.is_written = True
        self.rows = {number: row for number, row in self.rows.items() if number <= acked}
        self.frontier = acked
        self.end_all()
        self.find_stall()

    def end_all(self) -> None:
        """Take all leases away."""
        for row in self.rows.values():
            if row.state == LEASED:
                row.state, row.due, row.token = WAITING, 0, None

    def find_stall(self) -> None:
        stalls = (n for n, r in self.rows.items() if r.state == STALLED and r.group is None)
        self.stalled = min(stalls, default=None)

    def free(self, group: str | None) -> None:
        """Let the first event of a group be claimed."""
        mine = [number for number, row in self.rows.items() if row.group == group]
        if group is not None and mine and self.rows[min(mine)].state == HELD:
            self.rows[min(mine)].state, self.rows[min(mine)].due = WAITING, 0

    def in_order(self) -> list[int]:
        """Return what is unfinished, without dead letters that are tried again."""
        return sorted(number for number, row in self.rows.items() if not row.revived)

    def look(self) -> None:
        """End a change: what is finished counts as progress."""
        acked = min(self.in_order(), default=self.frontier + 1) - 1
        if acked > (self.progress or 0):
            self.progress = acked
        self.seen = self.progress or 0
        self.is_written = False

    # --- claims -----------------------------------------------------------------------------------

    @property
    def is_in_order(self) -> bool:
        """Whether nothing is claimed while an event before it is unfinished."""
        return self.how is not None and self.how["concurrency"] == 0

    def claim(
        self, limit: int, span: int, token: bytes, nonce: str | None, now: int
    ) -> list[tuple[int, int]]:
        """Return event and attempt of what is claimed."""
        if nonce in self.nonces and self.nonces[nonce][1] >= now - DAY:
            mine = self.nonces[nonce][0]
            self.look()
            left = [(n, r.attempts) for n, r in sorted(self.rows.items()) if r.holds(mine, now)]
            return [one for one in left if one[0] in self.events]
        if not self.is_written and (self.paused or self.stalled is not None):
            return []
        goal, is_over = self.last, False
        found: list[tuple[int, int]] = []
        while not found and not is_over:
            last = self.last
            self.is_begun |= self.frontier < last
            self.end_leases(now)
            if not self.paused and self.stalled is None:
                found = self.claim_due(limit, now)
                if not self.is_in_order or not (found or self.in_order()):
                    found += self.claim_new(limit - len(found), last, limit)
            self.look()
            is_over = (
                self.frontier >= goal
                or len(self.rows) >= MOST
                or self.paused
                or self.stalled is not None
                or (self.is_in_order and bool(self.in_order()))
            )
        for number, _ in found:
            row = self.rows[number]
            row.state, row.due, row.span, row.token = LEASED, now + span, span, token
        if found and nonce is not None:
            self.nonces = {name: one for name, one in self.nonces.items() if one[1] >= now - DAY}
            self.nonces[nonce] = token, now
        return found

    def end_leases(self, now: int) -> None:
        freed: set[str | None] = set()
        for number, row in sorted(self.rows.items(), key=lambda one: (one[1].revived, one[0])):
            if row.state == LEASED and row.has_ended(now):
                freed |= self.fail(number, 0, now)
            elif row.state == WAITING and row.is_set_back(now):
                row.due = now
        for group in freed:
            self.free(group)

    def claim_due(self, limit: int, now: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while len(found) < limit:
            chosen = self.due(now)[: limit - len(found)]
            gone = [self.rows.pop(number).group for number in chosen if number not in self.events]
            for number in chosen:
                if number in self.events:
                    row = self.rows[number]
                    row.state, row.attempts = LEASED, row.attempts + 1
                    found.append((number, row.attempts))
            if not gone:
                break
            for group in gone:
                self.free(group)
        return found

    def due(self, now: int) -> list[int]:
        """Return what can be tried again: the longest wait first.

        In order, these are the events from the first on, or one dead letter.
        """
        due = [n for n, row in self.rows.items() if row.state == WAITING and row.due <= now]
        due.sort(key=lambda number: (self.rows[number].due, self.rows[number].revived, number))
        if self.is_in_order:
            first = [*takewhile(lambda number: number in due, self.in_order())]
            return first or [number for number in due if self.rows[number].revived][:1]
        return due

    def claim_new(self, limit: int, last: int, most: int) -> list[tuple[int, int]]:
        """Examine events one by one, until enough are found.

        With a filter, `most` that match are looked for at once: those that wait for their group
        count too.
        """
        assert self.how is not None
        test, by = FILTERS[self.how["filter"]], self.how["ordered_by"]
        found: list[tuple[int, int]] = []
        room = limit if self.how["filter"] else MOST
        ahead = [n for n in self.events if self.frontier < n <= last and test(self.events[n])]
        if self.how["filter"] and limit and len(self.rows) < MOST and len(ahead) < most:
            beyond = last if len(ahead) <= min(limit, MOST - len(self.rows)) else 0
        else:
            beyond = 0
        for number in ahead:
            if len(found) == limit or len(self.rows) >= MOST or not room:
                break
            self.frontier = number
            event, room = self.events[number], room - 1
            group = event.group(by)
            is_held = group is not None and any(r.group == group for r in self.rows.values())
            state = HELD if is_held else LEASED
            self.rows[event.id] = Unfinished(state, 1 - is_held, 0, 0, group)
            if not is_held:
                found.append((event.id, 1))
        if self.how["filter"] is None and len(found) < limit and len(self.rows) < MOST:
            beyond = last
        self.frontier = max(self.frontier, beyond)
        return found

    # --- settling ---------------------------------------------------------------------------------

    def settle(
        self, token: bytes, number: int, what: str, span: int, counts: bool, now: int
    ) -> bool:
        """Apply a verdict; return False when the lease is lost."""
        row = self.rows.get(number)
        if row is None or not row.holds(token, now):
            return False
        freed: set[str | None] = set()
        if what == "extend":
            row.due, row.span = now + span, span
        elif what == "done":
            del self.rows[number]
            freed = {row.group}
            self.counts[0] += 1
        elif what == "dead":
            self.counts[1] += 1
            freed = self.bury(number)
        elif counts:
            freed = self.fail(number, span, now)
        else:
            row.attempts -= 1
            self.put_back(number, span, now)
        for group in freed:
            self.free(group)
        return True

    def put_back(self, number: int, span: int, now: int) -> None:
        row = self.rows[number]
        row.state = HELD if self.is_behind(number) else WAITING
        row.due, row.span, row.token = now + span, span, None

    def is_behind(self, number: int) -> bool:
        """Return whether an event waits for another one of its group."""
        group = self.rows[number].group
        same = (n for n, other in self.rows.items() if other.group == group)
        return group is not None and min(same) < number

    def waits(self) -> bool:
        """Return whether there is anything for a `resume`."""
        return any(row.state in (WAITING, STALLED) for row in self.rows.values())

    def resume(self) -> None:
        """End a stall, and all waits after failures."""
        for number, row in self.rows.items():
            if row.state in (WAITING, STALLED):
                row.state = HELD if self.is_behind(number) else WAITING
                row.attempts = row.due = 0
        self.stalled = None
        if self.is_begun:
            self.look()

    def fail(self, number: int, span: int, now: int) -> set[str | None]:
        """End an attempt; return the group that may go on."""
        row = self.rows[number]
        how = self.how or {"most": 5, "on_failure": None}
        self.counts[1] += 1
        if row.attempts < how["most"]:
            self.put_back(number, span, now)
        elif row.revived or self.on_failure() == "dead":
            return self.bury(number)
        else:
            row.state, row.span, row.token = STALLED, 0, None
            if row.group is None and self.stalled is None:
                self.stalled = number
        return set()

    def on_failure(self) -> str:
        """Return what becomes of an event that has failed for the last time."""
        given: str | None = self.how["on_failure"] if self.how else None
        return given or ("stall" if self.is_in_order else "dead")

    def bury(self, number: int) -> set[str | None]:
        row = self.rows.pop(number)
        self.dead[number] = row.attempts
        self.counts[2] += 1
        event = self.events.get(number)
        if self.how and self.how["emit_dead"] and event and event.subtype != "dead-letter":
            self.push(NewEvent(event.source, "record", '{"consumer": "w"}', "dead-letter", None))
        return {row.group}

    def revive(self, numbers: list[int]) -> set[int]:
        """Let dead letters be tried again, and return them; without their event, they stay."""
        if not self.is_begun:
            return set()
        found = {n for n in numbers if n in self.dead and n in self.events}
        for number in found:
            del self.dead[number]
            if number <= self.frontier and number not in self.rows:
                self.rows[number] = Unfinished(WAITING, 0, 0, 0, None, revived=True)
        self.look()
        return found

    def drop(self, numbers: list[int]) -> set[int]:
        """Forget dead letters, and return them."""
        return {n for n in numbers if self.dead.pop(n, None) is not None}

    # --- subscriptions ----------------------------------------------------------------------------

    def subscribe(self, how: dict[str, Any], now: int) -> None:
        """Subscribe, or replace the subscription."""
        self.how = how
        if not self.is_begun:
            return
        self.end_leases(now)
        test, firsts = FILTERS[how["filter"]], set()
        for number, row in sorted(self.rows.items()):
            if row.revived:
                continue
            event = self.events.get(number)
            if row.state != LEASED and (event is None or not test(event)):
                del self.rows[number]
                continue
            row.group = event.group(how["ordered_by"]) if event else None
            is_first = row.group is None or row.group not in firsts
            firsts.add(row.group)
            if is_first and row.state == HELD:
                row.state, row.due = WAITING, 0
            elif not is_first and row.state == WAITING:
                row.state = HELD
        self.find_stall()
        self.look()

    def unsubscribe(self) -> None:
        self.how, self.paused = None, False
        self.end_all()


WORKER = Worker("worker")


class Machine(Beside):
    """What workers, operators and other programs do to a consumer."""

    @initialize(how=HOW, new=st.lists(NEW, min_size=4, max_size=8))
    def begin(self, how: dict[str, Any], new: list[NewEvent]) -> None:
        self.patch = pytest.MonkeyPatch()
        # Nobody handles anything but this machine.
        self.patch.setattr(Notifier, "committed", lambda *_: None)
        self.make_thread()
        self.clock = Clock(1773829800.0)
        self.patch.setattr("eventq.system.clock.now", self.clock)
        self.patch.setattr(rules, "MOST_UNFINISHED", MOST)
        self.model = Model()
        self.claims: list[tuple[bytes, int]] = []  # all that were ever given
        self.revived: set[tuple[bytes, int]] = set()  # those of dead letters
        self.is_sound = True  # or nothing more is done with what differs
        self.subscribe(how)
        self.push(new)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            try:
                if self.is_sound:
                    self.drain()
            finally:
                self.patch.undo()
        super().teardown()

    @property
    def db(self) -> Database:
        return sqlite(self.thread.database)

    @property
    def now(self) -> int:
        return self.db.milliseconds()

    # --- the log and the time ---------------------------------------------------------------------

    @rule(new=st.lists(NEW, min_size=1, max_size=4))
    def push(self, new: list[NewEvent]) -> None:
        self.db.events.append(new)
        for one in new:
            self.model.push(one)

    @rule(seconds=st.sampled_from([0.4, 1.1, 5, 31, 31, 25 * 3600, -0.4, -0.7, -3600]))
    def move_the_clock(self, seconds: float) -> None:
        self.clock.move(seconds)

    @rule(number=st.integers(1, 20))
    def prune(self, number: int) -> None:
        before = min(number, self.model.last)
        self.db.events.prune(before)
        self.model.events = {n: e for n, e in self.model.events.items() if n >= before}

    @rule()
    def reopen(self) -> None:
        self.open_again()

    # --- workers ----------------------------------------------------------------------------------

    @precondition(lambda self: self.model.how is not None)
    @rule(limit=st.integers(1, 4), span=SPANS, nonce=NONCES)
    def claim(self, limit: int, span: int, nonce: str | None) -> None:
        self.take(limit, span, nonce)

    def take(self, limit: int, span: int, nonce: str | None) -> list[tuple[int, int]]:
        self.is_sound = False
        token = os.urandom(16)
        known = self.model.nonces.get(nonce or "")
        known = known if known and known[1] >= self.now - DAY else None
        taken: Taken = self.db.claims.take("w", limit, span, WORKER, token, nonce=nonce)
        expected = self.model.claim(limit, span, token, nonce, self.now)
        found = [(one.event.id, one.attempt) for one in taken.claims]
        assert sorted(found) == sorted(expected)
        assert taken.token == (known[0] if known else token)
        assert all(self.is_leased(number, taken) for number, _ in found)
        self.claims += [(taken.token, number) for number, _ in found]
        again = {one.event.id for one in taken.claims if one.revived}
        self.revived |= {(taken.token, number) for number in again}
        assert again == {number for number, _ in found if self.model.rows[number].revived}
        self.is_sound = True
        return found

    def is_leased(self, number: int, taken: Taken) -> bool:
        row = self.model.rows[number]
        return row.holds(taken.token, self.now) and taken.until <= row.due

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        what=st.sampled_from(["done", "done", "retry", "retry", "dead", "extend"]),
        span=st.sampled_from([0, 0, 5_000]),
        counts=st.booleans(),
    )
    def settle(self, data: Any, what: str, span: int, counts: bool) -> None:
        newest = [*reversed(self.claims)]  # what is left of a failure is about one that holds
        chosen = data.draw(
            st.lists(st.sampled_from(newest), min_size=1, max_size=3, unique_by=lambda c: c[1])
        )
        self.judge(chosen, what, span, counts)

    def judge(self, chosen: list[tuple[bytes, int]], what: str, span: int, counts: bool) -> None:
        """Settle some claims, each with a verdict of its own."""
        span += 2_000 * (what == "extend")
        now = self.now
        verdicts = [
            Verdict("w", token, (number,), (token, number) in self.revived, what, span, counts)
            for token, number in chosen
        ]
        self.is_sound = False
        lost = self.db.claims.settle(verdicts).lost
        model = self.model
        held = [model.settle(token, number, what, span, counts, now) for token, number in chosen]
        model.look()
        assert lost == {one for one, is_held in zip(chosen, held, strict=True) if not is_held}

    @precondition(lambda self: self.model.how is not None)
    @rule(
        data=st.data(),
        limit=st.integers(1, 4),
        seconds=st.sampled_from([0, 0, 1.1, 31, -0.7, -3600]),
        span=st.sampled_from([0, 0, 5_000]),
    )
    def work(self, data: Any, limit: int, seconds: float, span: int) -> None:
        """Claim, let time pass, settle some, and claim again."""
        self.take(limit, 30_000, None)
        self.same()
        self.clock.move(seconds)
        for what in data.draw(st.lists(st.sampled_from(["done", "retry"]), max_size=3)):
            if self.claims:
                self.settle(data, what, span, counts=True)
                self.same()
        self.take(limit, 30_000, None)

    @rule(seed=st.integers(0, 1 << 32), count=st.integers(1, 20))
    def rush(self, seed: int, count: int) -> None:
        """Do many things in a row: what a chain of choices alone hardly comes to."""
        chance = random.Random(seed)
        for _ in range(count):
            self.act(chance, chance.choices(*ACTS)[0])
            self.same()

    def act(self, chance: random.Random, name: str) -> None:
        """Do one thing, if it can be done now."""
        model = self.model
        if name == "push":
            contents = [chance.choice(CONTENTS) for _ in range(chance.randint(1, 3))]
            sources, types = ("self", "other"), ("a", "b")
            self.push([NewEvent(chance.choice(sources), chance.choice(types), c) for c in contents])
        elif name == "subscribe":
            self.subscribe({key: chance.choice(values) for key, values in HOWS.items()})
        elif name == "write":
            ways = ("ack", "replay", "update", "replace")
            self.write(chance.random(), chance.choice(ways))
        elif name == "time":
            self.clock.move(chance.choice((0.4, 1.1, 5, 5, 31, 31, 25 * 3600, -0.7, -3600)))
        elif name == "prune":
            self.prune(chance.randint(1, max(1, model.last // 2)))
        elif name == "reopen":
            self.reopen()
        elif name in ("revive", "drop") and model.dead:
            self.change_dead(chance.randrange(1 << 32), revives=name == "revive")
        elif name == "settle" and self.claims:
            self.settle_newest(chance)
        elif model.how is None:
            self.subscribe({key: chance.choice(values) for key, values in HOWS.items()})
        elif name == "claim":
            nonce = chance.choice((None, None, None, "n"))
            self.take(chance.randint(1, 4), chance.choice((1_000, 30_000)), nonce)
        elif name == "read":
            self.read(chance.randint(1, 4), chance.random() < 0.7)
        elif name == "pause":
            self.pause(chance.random() < 0.3)
        elif name == "unsubscribe":
            self.unsubscribe()
        elif name == "resume" and model.waits() and not model.is_written:
            self.resume()

    def settle_newest(self, chance: random.Random) -> None:
        """Settle a few of the newest claims, mostly of those that hold."""
        rows, given = self.model.rows, self.claims[-12:]
        held = [(t, n) for t, n in given if n in rows and rows[n].holds(t, self.now)]
        newest = {n: t for t, n in (held if chance.random() < 0.9 else self.claims[-4:])}
        if not newest:
            return
        chosen = chance.sample(sorted(newest), chance.randint(1, len(newest)))
        what = chance.choice(("done", "retry", "retry", "retry", "dead", "extend"))
        span, counts = chance.choice((0, 0, 5_000)), chance.random() < 0.8
        self.judge([(newest[number], number) for number in chosen], what, span, counts)

    # --- operators --------------------------------------------------------------------------------

    @precondition(lambda self: self.model.how is not None)
    @rule(paused=st.sampled_from([False, False, True]))
    def pause(self, paused: bool) -> None:
        self.db.consumers.pause("w", paused=paused)
        self.model.paused = paused

    @precondition(lambda self: self.model.waits() and not self.model.is_written)
    @rule()
    def resume(self) -> None:
        self.is_sound = False
        self.db.claims.resume("w")
        self.model.resume()
        self.is_sound = True

    @precondition(lambda self: self.model.dead)
    @rule(seed=st.integers(0, 1 << 32), revives=st.sampled_from([True, True, True, False]))
    def change_dead(self, seed: int, revives: bool) -> None:
        """Let some dead letters be tried again, or forget them."""
        chance, letters = random.Random(seed), sorted(self.model.dead)
        chosen = [*chance.sample(letters, chance.randint(1, len(letters))), self.model.last + 1]
        self.is_sound = False
        if revives:
            assert self.db.claims.revive("w", chosen) == self.model.revive(chosen)
        else:
            assert self.db.claims.drop("w", chosen) == self.model.drop(chosen)
        self.is_sound = True

    @rule(how=HOW)
    def subscribe(self, how: dict[str, Any]) -> None:
        if how["concurrency"] == 0:
            how = {**how, "ordered_by": None}
        self.put(how, replace=self.model.how is not None)

    def put(self, how: dict[str, Any], *, replace: bool) -> None:
        db = self.db
        names = {name: how[name] for name in ("ordered_by", "on_failure", "emit_dead")}
        many = how["concurrency"]
        kind = "pull" if many is None else "each"
        settings = Settings(kind=kind, concurrency=many or 0, backoff=0)._replace(**names)
        with db.write():
            if replace:
                assert db.consumers.change("w", ":", how["filter"], how["most"], None, settings)
            else:
                assert db.consumers.put(
                    "w", ":", how["filter"], how["most"], None, settings=settings
                )
            db.claims.refilter("w")
        self.model.subscribe(how, self.now)

    @precondition(lambda self: self.model.how is not None)
    @rule()
    def unsubscribe(self) -> None:
        assert self.db.consumers.delete("w")
        self.model.unsubscribe()

    # --- reading in order -------------------------------------------------------------------------

    @precondition(lambda self: self.model.how is not None)
    @rule(limit=st.integers(1, 4), acks=st.sampled_from([False, True, True]))
    def read(self, limit: int, acks: bool) -> None:
        """Read on after what was acked last, and ack some of it, as `consume` does."""
        model, consumers = self.model, self.db.consumers
        if model.is_leased(self.now):
            with pytest.raises(ConsumerInUseError):
                consumers.pop("w", None, limit)
            if model.progress is not None:
                assert not consumers.advance("w", model.progress, model.last, 0)
            return
        assert model.how is not None
        before, test = model.progress or 0, FILTERS[model.how["filter"]]
        matching = [n for n, event in sorted(model.events.items()) if n > before and test(event)]
        page: Any = consumers.pop("w", None, limit).page
        assert [event.id for event in page.events] == matching[:limit]
        if acks and model.progress is not None and page.next > before:
            assert not consumers.advance("w", before - 1, page.next, 0)
            assert consumers.advance("w", before, page.next, 0)
            model.write(page.next)

    # --- other programs ---------------------------------------------------------------------------

    @rule(share=st.floats(0, 1), how=st.sampled_from(["ack", "replay", "update", "replace"]))
    def write(self, share: float, how: str) -> None:
        acked = round(self.model.last * share)
        if how in ("ack", "replay") and self.model.how is not None:
            self.ack(acked, replay=how == "replay")
        elif how == "update" and self.model.progress is not None:
            self.update(acked)
        else:
            self.replace(acked)

    def ack(self, acked: int, *, replay: bool) -> None:
        """Ack: refused while a claim is out, and nothing below the progress, but for a replay."""
        if not replay and self.model.is_leased(self.now):
            with pytest.raises(ConsumerInUseError):
                self.db.consumers.pop("w", acked, 0)
            return
        self.db.consumers.pop("w", acked, 0, replay=replay)
        if replay and acked == (self.model.progress or 0):
            if self.model.is_begun and self.model.frontier > acked:
                self.model.go_back(acked)
            return
        if self.model.progress != acked and (replay or acked >= (self.model.progress or 0)):
            self.model.write(acked)

    def update(self, acked: int) -> None:
        self.db.change("UPDATE consumer_progress SET last_acked_id = ?", (acked,))
        if self.model.progress != acked:
            self.model.write(acked)

    def replace(self, acked: int) -> None:
        model = self.model
        if model.seen <= acked < (model.progress or 0):
            return  # it goes back to before an ack that no claim has seen: seen as a smaller ack
        sql = "INSERT OR REPLACE INTO consumer_progress VALUES ('w', ?, '2026-03-18T10:30:00.123Z')"
        self.db.change(sql, (acked,))
        if model.progress == acked:
            return
        if model.progress is None and acked == 0:
            model.progress = 0
        else:
            model.write(acked)

    # --- what always holds ------------------------------------------------------------------------

    def drain(self) -> None:
        """Finish everything: in the end nothing is left, and nothing is missing."""
        model = self.model
        how = {**HOW_TO_END, "filter": None if model.how is None else model.how["filter"]}
        if model.how is None:
            self.put(how, replace=False)
        self.db.consumers.pause("w", paused=False)
        model.paused = False
        self.clock.move(26 * 3600)
        # A claim may announce deaths, which the next one finds; a group that stalls may fill it.
        while (
            self.take(4, 30_000, None)
            or model.stalled
            or (model.frontier < model.last and len(model.rows) < MOST)
        ):
            for token, number in self.claims[-4:]:
                if number in model.rows and model.rows[number].holds(token, self.now):
                    was_dead = (token, number) in self.revived
                    verdict = Verdict("w", token, (number,), was_dead, "done")
                    assert not self.db.claims.settle([verdict]).lost
                    assert model.settle(token, number, "done", 0, True, self.now)
                    model.look()
            self.same()
            if model.stalled is not None:
                upto = max(model.stalled, model.progress or 0)
                is_new = upto != model.progress  # a replay of the progress itself is another thing
                self.db.consumers.pop("w", upto, 0, replay=is_new)
                model.write(upto)
        assert all(row.state in (STALLED, HELD) for row in model.rows.values())
        assert model.rows or (model.progress or 0) == model.last or not model.is_begun

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        model, db = self.model, self.db
        self.is_sound = False
        assert list(db.faults()) == []
        assert db.events.last() == model.last
        state = db.consumers.get("w")
        assert (state is None) == (model.how is None)
        if state is not None:
            assert (state.acked, state.paused) == (model.progress or 0, model.paused)
        found = db.run("SELECT event_id, attempts FROM dead_letters ORDER BY event_id")
        assert dict(found) == model.dead
        counts = db.run("SELECT total(done), total(failed), total(dead) FROM queue_counts")
        assert all(found <= counted for found, counted in zip(counts[0], model.counts, strict=True))
        if not model.is_written:
            self.same_queue()
        self.is_sound = True

    def same_queue(self) -> None:
        model, db = self.model, self.db
        found = db.run("SELECT frontier, unfinished, stalled_at, acked FROM queues")
        if not model.is_begun:
            assert found == []
            return
        stored = {
            row[0]: Unfinished(*row[1:])
            for row in db.run(
                "SELECT event_id, state, attempts, due_at, span_ms, group_value, token, revived"
                " FROM unfinished"
            )
        }
        for number, row in model.rows.items():
            if row.state in (HELD, STALLED) and number in stored:
                stored[number].due, stored[number].span = row.due, row.span  # they mean nothing
        assert stored == model.rows
        acked = model.progress or 0
        assert found == [(model.frontier, len(model.rows), model.stalled, acked)]
        # Everything up to the progress is finished, and the event after it is not.
        assert min(model.in_order(), default=model.frontier + 1) == acked + 1


HOW_TO_END = {
    "filter": None, "ordered_by": None, "most": 3, "on_failure": "dead", "emit_dead": False,
    "concurrency": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("examples", "steps"), [(5, 40), pytest.param(3_000, 60, marks=pytest.mark.soak)]
)
def test_a_consumer_is_its_model(
    monkeypatch: pytest.MonkeyPatch, examples: int, steps: int
) -> None:
    """Whatever is done with a consumer, its claims are what the model says, and nothing is lost."""
    drive(Machine, monkeypatch, examples, steps)


@pytest.mark.parametrize(
    ("programs", "acts"), [(4, 100), pytest.param(1_000, 300, marks=pytest.mark.soak)]
)
def test_long_programs(programs: int, acts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come to what short ones do not: last attempts, stalls in groups, full queues."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    for seed in range(programs):
        chance, machine = random.Random(seed), Machine()
        try:
            how = {key: chance.choice(values) for key, values in HOWS.items()}
            machine.begin(how, [NewEvent("self", "a", CONTENTS[0])])
            for _ in range(acts):
                machine.act(chance, chance.choices(*ACTS)[0])
                machine.same()
            machine.teardown()
        except BaseException as error:
            error.add_note(f"the program of seed {seed}")
            raise
        finally:
            machine.patch.undo()  # a clock that is left behind would fail every later test
