"""The engines beside each other: whatever happens to a thread, both give the same answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.records.claim import ClaimInfo
from eventq.records.consumer import ConsumerStatus
from eventq.records.info import ThreadStatus
from eventq.store.postgres.claims import Claims
from eventq.store.queue_rows import Settled
from tests.store.postgres.beside import Side, Sides

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eventq.store.queue_rows import Verdict
    from tests.conftest import Clock
    from tests.store.postgres.beside import Step

CONSUMERS = ["w"] * 7 + ["v"]
CONTENTS = ["", "x", '{"k": 1}', '{"k": 2}', '{"k": "é"}', "a\0b"]
FILTERS = [
    None, None, None, "type = 'note'", "source <> 'self' AND id % 2 = 0", "content LIKE '{%'",
    "json_extract(content, '$.k') = 1", "subtype IS NULL OR id > 5", "id > 10 AND 0",
    "datetime(created_at) < datetime('now')", "nosuch = 1", "content = 1",
]  # fmt: skip


# --- random histories -----------------------------------------------------------------------------


class Chance(random.Random):
    """Random steps; numbers of events and claims are small, so that they often exist."""

    def one(self, *values: Any) -> Any:
        """Return one of some values."""
        return self.choice(values)

    def new(self) -> dict[str, Any]:
        """Return an event, most often without a key."""
        return {
            "source": self.one("self", "a", "internal:dm:default:warden"),
            "type": self.one("note", "message"),
            "content": self.choice(CONTENTS),
            "subtype": self.one(None, None, "", "sub"),
            "key": self.one(None, None, None, None, "k1", "k2", "k3"),
        }

    def subscription(self) -> dict[str, Any]:
        """Return how somebody subscribes; some of it makes no sense."""
        more: dict[str, Any] = {"replace": self.random() < 0.5, "from_now": self.random() < 0.2}
        kind = self.one("pull", "pull", "each", "each", "loop")
        if kind != "pull":
            more |= {"handler": "true", "each": kind == "each", "directory": "/"}
        if kind == "each" or self.random() < 0.05:
            more |= {"concurrency": self.one(0, 0, 2, 3), "batch": self.one(1, 1, 2)}
        for name, values, nonsense in (
            ("ordered_by", ("source", "type", "$.k"), "$."),
            ("on_failure", ("dead", "stall"), "sink"),
            ("max_attempts", (1, 2), 0),
            ("backoff", ((0.0, 0.0), (1.0, 20.0)), (9.0, 1.0)),
            ("lease", (5.0, 60.0), 0),
            ("emit_dead", (True,), True),
        ):
            if self.random() < 0.25:
                more[name] = nonsense if self.random() < 0.05 else self.choice(values)
        return {"consumer": self.choice(CONSUMERS), "filter": self.choice(FILTERS), **more}

    def step(self) -> Step:
        """Return one step of a history."""
        name = self.choices(*zip(*WEIGHTS.items(), strict=True))[0]
        claims = self.sample(range(5), 5)  # their places, counted from the newest one
        who = {"consumer": self.choice(CONSUMERS)}
        made: dict[str, Any] = {
            "push": {**self.new(), "key_strict": self.random() < 0.3},
            "push_many": {"events": [self.new() for _ in range(self.one(*range(7), *range(7), 260))]},
            "peek": {"last_event_id": self.randint(0, 9), "filter": self.choice(FILTERS)},
            "last": {"count": self.randint(1, 4), "filter": self.choice(FILTERS)},
            "latest": {"by": self.one("source", "type")},
            "subscribe": self.subscription(),
            "pop": {
                **who, "last_event_id": self.one(None, *range(6)), "limit": self.one(1, 2, 9),
                "replay": self.random() < 0.2,
            },
            "ack": {**who, "last_event_id": self.randint(0, 7), "replay": self.random() < 0.4},
            "claim": {
                **who, "limit": self.one(1, 1, 2, 5), "lease": self.one(None, None, 5, 20),
                "nonce": self.one(None, None, None, "n1", "n2"), "worker": "one",
            },
            "settle": {
                "done": claims[: self.randint(0, 3)], "retry": claims[3 : 3 + self.randint(0, 1)],
                "dead": claims[4 : 4 + self.randint(0, 1)],
                "delay": self.one(None, 0, 3), "error": self.one(None, "it broke"),
                "count": self.random() < 0.8,
            },
            "extend": {"claims": claims[:2], "seconds": self.one(None, 1, 90)},
            "finish": {"place": claims[0], "how": self.one("done", "dead", "extend")},
            "retry": {
                "place": claims[0], "delay": self.one(None, 0, 0, 9),
                "error": self.one(None, "x" * 9), "count": self.random() < 0.9,
            },
            "dead_letters": {"consumer": self.one(None, "w")},
            "retry_dead": {"events": self.one(None, {self.randint(1, 6)}), "consumer": "w"},
            "drop_dead": {"events": self.one(None, {self.randint(1, 6)}), "consumer": "w"},
            "prune": {
                self.one("before_id", "keep_last"): self.randint(0, 9),
                "force": self.random() < 0.4,
            },
            "ask": {
                "text": self.one("a", "b", " "), "approval": self.random() < 0.5,
                "key": self.one(None, "k1", "k2"),
            },
            "answer": {"question_id": self.randint(1, 9), "text": self.one("approve", "x")},
            "move": {"seconds": self.one(0.001, 1, 1, 6, 6, 31, 31, 700, -3)},
            "block": {"undo": self.random() < 0.3},
        }.get(name, {})  # fmt: skip
        if name == "block":
            steps = [self.step() for _ in range(self.randint(1, 4))]
            made["steps"] = [step for step in steps if step[0] not in ALONE]
        return name, who if name in ("unsubscribe", "pause", "resume") else made


WEIGHTS = {
    "push": 8, "push_many": 5, "peek": 1, "last": 1, "latest": 1, "subscribe": 6,
    "unsubscribe": 1, "pop": 5, "ack": 3, "claim": 14, "settle": 8, "extend": 2, "finish": 5,
    "retry": 6, "dead_letters": 1, "retry_dead": 3, "drop_dead": 1, "prune": 1, "pause": 1,
    "resume": 2, "move": 7, "block": 4, "status": 2, "claims": 1, "subscriptions": 1, "last_id": 1,
    "warnings": 1, "swap": 2, "ask": 2, "answer": 2, "questions": 1,
}  # fmt: skip


SHOWN = ("event_count", "last_id", "last_at", "questions", "question_count")  # of a status
# What is not done inside a transaction. The other handle would wait for its end, also that of a claim.
ALONE = ("block", "prune", "move", "swap", "finish", "retry")


def history(seed: int) -> list[Step]:
    """Return a random history; at its end all is looked at."""
    chance = Chance(seed)
    begin: list[Step] = [("subscribe", chance.subscription() | {"consumer": "w"}) for _ in range(2)]
    begin.append(("push_many", {"events": [chance.new() for _ in range(chance.randint(1, 9))]}))
    steps = [chance.step() for _ in range(chance.randint(8, 32))]
    looks = ("peek", "status", "claims", "dead_letters", "check")
    return [*begin, *steps, *((name, {}) for name in looks)]


# --- both sides -----------------------------------------------------------------------------------


class LogSide(Side):
    """A thread, and the claims that were made."""

    def __init__(self, path: str, folder: str) -> None:
        self.made: list[eventq.Claim] = []
        super().__init__(path, folder)

    def told(self, name: str, given: dict[str, Any]) -> object:
        """Return what a step gives, or the error that it raises, and the state of all claims."""
        found = super().told(name, given)
        return found, [(claim.deadline, claim.is_settled) for claim in self.made]

    def call(self, name: str, given: dict[str, Any]) -> Any:
        """Do a step."""
        if name in ("settle", "extend"):
            if not self.made:
                return None
            given = {
                key: [*map(self.claim_at, value)] if isinstance(value, list) else value
                for key, value in given.items()
            }
            return sorted(self.place(claim) for claim in getattr(self.thread, name)(**given))
        found = super().call(name, given)
        if name == "claim":
            self.made += found
        if name == "warnings":
            return [said.partition("; ")[0] for said in found]  # without the command to run
        return found

    def claim_at(self, place: int) -> Any:
        """Return a claim, or its token, by its place from the newest one."""
        claim = self.made[-1 - place % min(5, len(self.made))]
        return claim.token if place % 2 else claim

    def place(self, claim: Any) -> int:
        """Return the place of a claim, or of its token."""
        token = claim if isinstance(claim, str) else claim.token
        return next(n for n, one in enumerate(self.made) if one.token == token)

    def plain(self, value: Any) -> Any:
        """Return an answer without what is random, or the engine's own."""
        if isinstance(value, ThreadStatus):
            kept = {name: getattr(value, name) for name in SHOWN}
            return {**kept, "subscriptions": [self.plain(one) for one in value.consumers]}
        if isinstance(value, ConsumerStatus):
            return value._replace(log=None, advice=None)
        if isinstance(value, ClaimInfo):
            return value._replace(token=str(self.place(value.token)))
        if isinstance(value, eventq.Claim):
            return (self.place(value), value.event, value.attempt, value.consumer)
        return super().plain(value)

    def finish(self, place: int, how: str) -> None:
        """Settle or extend one claim."""
        if self.made:
            getattr(self.made[-1 - place % len(self.made)], how)()

    def retry(self, place: int, **how: Any) -> None:
        """Put an event back."""
        if self.made:
            self.made[-1 - place % len(self.made)].retry(**how)


@pytest.fixture
def sides(
    path: str,
    tmp_path: Path,
    postgres: str,
    clock: Clock,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Sides:
    """Return both engines; they wait equally long after failures."""
    monkeypatch.setattr(
        "eventq.store.queue_rules.backoff",
        lambda attempt, base, most: min(base << min(attempt - 1, 30), most),
    )
    return Sides(LogSide, history, path, tmp_path, postgres, clock)


@pytest.mark.parametrize(
    "seeds", [range(15), pytest.param(range(15, 10_015), marks=pytest.mark.soak)], ids=len
)
def test_the_engines_answer_alike(sides: Sides, seeds: range) -> None:
    """Whatever happens to a thread, its answers and errors do not say where it is stored."""
    assert (found := sides.first_difference(seeds)) is None, found


def test_a_difference_is_found(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that takes a stale claim for a live one of the same event is found out."""
    settle = Claims.settle

    def forgiving(self: Claims, verdicts: Sequence[Verdict]) -> Settled:
        found = settle(self, verdicts)
        given = {(one.token, event) for one in verdicts for event in one.events}
        held = {event for _, event in given - found.lost}
        return Settled({one for one in found.lost if one[1] not in held}, found.freed)

    monkeypatch.setattr(Claims, "settle", forgiving)
    # The first that finds it now; if histories change, another one does.
    assert any(sides.difference(history(seed)) for seed in (31, *range(300)))
