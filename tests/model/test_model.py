"""A thread and a plain Python model, driven side by side: equal after every step."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import eventq
from eventq import InputError, LogicError, UsageError
from eventq.errors import (
    AckError,
    AlreadyAckedError,
    ConsumerExistsError,
    UnknownConsumerError,
)
from tests.model.support import Beside, drive

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = ["self", "a", "internal:dm:default:warden"]
TYPES = ["note", "message"]
CONTENTS = ["", "x", '{"k": 1}', "é\n\0"]
KEYS = ["k1", "k2", "K1"]
CONSUMERS = ["w", "../W"]

NEW = st.tuples(
    st.sampled_from(SOURCES),
    st.sampled_from(TYPES),
    st.sampled_from(CONTENTS),
    st.sampled_from([None, "", "sub"]),
    st.sampled_from([None, None, None, *KEYS]),
)
BAD = st.sampled_from(
    [
        ("self", "", "x"),
        ("a\nb", "note", "x"),
        ("self", "note", None),
        ("self", "note", "\ud800"),
        {},
        7,
    ]
)


@dataclass(frozen=True)
class Filter:
    """A filter as SQL and as Python."""

    sql: str | None
    test: Callable[[Row], bool]


@dataclass(frozen=True)
class Row:
    """An event of the model."""

    id: int
    source: str
    type: str
    content: str
    subtype: str | None

    @classmethod
    def of(cls, event: eventq.Event) -> Row:
        return cls(event.id, event.source, event.type, event.content, event.subtype)


def one_of(column: str, values: list[str]) -> st.SearchStrategy[Filter]:
    """Return the filters that compare a column with a value."""
    return st.sampled_from(values).map(
        lambda v: Filter(f"{column} = '{v}'", lambda e: getattr(e, column) == v)
    )


def both(one: Filter, other: Filter) -> Filter:
    """Return a conjunction."""
    return Filter(f"({one.sql}) AND ({other.sql})", lambda e: one.test(e) and other.test(e))


def either(one: Filter, other: Filter) -> Filter:
    """Return a disjunction."""
    return Filter(f"{one.sql} OR {other.sql}", lambda e: one.test(e) or other.test(e))


def negated(one: Filter) -> Filter:
    """Return a negation."""
    return Filter(f"NOT ({one.sql})", lambda e: not one.test(e))


SIMPLE = st.one_of(
    one_of("source", SOURCES),
    one_of("type", TYPES),
    st.integers(0, 20).map(lambda n: Filter(f"id > {n}", lambda e: e.id > n)),
    st.integers(1, 3).map(lambda n: Filter(f"id % 3 = {n - 1}", lambda e: e.id % 3 == n - 1)),
    st.just(Filter("subtype IS NULL", lambda e: e.subtype is None)),
    st.just(Filter("content LIKE '%k%'", lambda e: "k" in e.content)),
    st.just(Filter("json_extract(content, '$.k') IS 1", lambda e: e.content == '{"k": 1}')),
    st.just(Filter("0", lambda _: False)),
)
FILTERS = st.one_of(
    st.just(Filter(None, lambda _: True)),
    SIMPLE,
    st.builds(both, SIMPLE, SIMPLE),
    st.builds(either, SIMPLE, SIMPLE),
    st.builds(negated, SIMPLE),
)


@dataclass
class Model:
    """What a thread is, in plain Python."""

    events: list[Row] = field(default_factory=list)
    newest: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    subscriptions: dict[str, Filter] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Model:
        return Model(
            list(self.events),
            self.newest,
            dict(self.keys),
            dict(self.subscriptions),
            dict(self.acked),
        )

    def restore(self, other: Model) -> None:
        self.__dict__.update(other.copy().__dict__)

    def push(self, new: tuple[Any, ...]) -> Row | None:
        """Store an event and give it; None for a key that is taken."""
        source, kind, content, subtype, key = new
        if key in self.keys:
            return None
        self.newest += 1
        row = Row(self.newest, source, kind, content, subtype)
        self.events.append(row)
        if key is not None:
            self.keys[key] = row.id
        return row

    def after(self, after: int, chosen: Filter) -> list[Row]:
        return [row for row in self.events if row.id > after and chosen.test(row)]

    def prune(self, before: int) -> int:
        count = len(self.events)
        self.events = [row for row in self.events if row.id >= before]
        self.keys = {key: number for key, number in self.keys.items() if number >= before}
        return count - len(self.events)


class _UndoError(Exception):
    """Ends a block that is to be undone."""


class Machine(Beside):
    """The rules: one for each thing that may happen to a thread."""

    @initialize()
    def begin(self) -> None:
        self.make_thread()
        self.model = Model()

    # --- writing ----------------------------------------------------------------------------------

    @rule(new=NEW)
    def push(self, new: tuple[Any, ...]) -> None:
        source, kind, content, subtype, key = new
        event = self.thread.push(source, kind, content, subtype, key)
        row = self.model.push(new)
        if row is None:
            assert event.id == self.model.keys[key]
        else:
            assert Row.of(event) == row

    @rule(new=st.lists(NEW, max_size=6), by_name=st.booleans())
    def push_many(self, new: list[tuple[Any, ...]], by_name: bool) -> None:
        names = ("source", "type", "content", "subtype", "key")
        batch = self.thread.push_many(
            [dict(zip(names, each, strict=True)) for each in new] if by_name else new
        )
        rows = [row for row in map(self.model.push, new) if row is not None]
        assert batch == ((len(rows), rows[0].id, rows[-1].id) if rows else (0, None, None))

    @rule(good=st.lists(NEW, max_size=4), bad=BAD, more=st.lists(NEW, max_size=2))
    def push_many_with_a_bad_one(self, good: list[Any], bad: Any, more: list[Any]) -> None:
        with pytest.raises(InputError):
            self.thread.push_many([*good, bad, *more])

    @rule(
        news=st.tuples(*[st.lists(NEW, max_size=most) for most in (2, 3, 2)]),
        undo_inner=st.booleans(),
        undo_outer=st.booleans(),
        consumer=st.sampled_from(CONSUMERS),
        chosen=FILTERS,
    )
    def block(
        self, news: Any, undo_inner: bool, undo_outer: bool, consumer: str, chosen: Filter
    ) -> None:
        before, inner, after = news
        outermost = self.model.copy()
        try:
            with self.thread.write():
                for new in before:
                    self.push(new)
                within = self.model.copy()
                try:
                    with self.thread.write():
                        self.push_many(inner, by_name=False)
                        self.subscribe(consumer, chosen, from_now=True)
                        if undo_inner:
                            raise _UndoError
                except _UndoError:
                    self.model.restore(within)
                self.same_events()
                for new in after:
                    self.push(new)
                if undo_outer:
                    raise _UndoError
        except _UndoError:
            self.model.restore(outermost)

    # --- consumers --------------------------------------------------------------------------------

    @rule(consumer=st.sampled_from(CONSUMERS), chosen=FILTERS, from_now=st.booleans())
    def subscribe(self, consumer: str, chosen: Filter, from_now: bool) -> None:
        known = self.model.subscriptions.get(consumer)
        if known is not None:
            again = nullcontext() if known.sql == chosen.sql else pytest.raises(ConsumerExistsError)
            with again:
                self.thread.subscribe(consumer, "true", filter=chosen.sql, from_now=from_now)
            return
        self.thread.subscribe(consumer, "true", filter=chosen.sql, from_now=from_now)
        self.model.subscriptions[consumer] = chosen
        if from_now and self.model.newest:
            self.model.acked[consumer] = self.model.newest

    @rule(consumer=st.sampled_from(CONSUMERS))
    def unsubscribe(self, consumer: str) -> None:
        if self.model.subscriptions.pop(consumer, None) is None:
            with pytest.raises(UnknownConsumerError):
                self.thread.unsubscribe(consumer)
        else:
            self.thread.unsubscribe(consumer)

    @rule(
        consumer=st.sampled_from(CONSUMERS),
        share=st.floats(0, 1.1),
        limit=st.integers(1, 8),
        only_ack=st.booleans(),
        replay=st.booleans(),
    )
    def pop(self, consumer: str, share: float, limit: int, only_ack: bool, replay: bool) -> None:
        number = round(self.model.newest * share)
        chosen = self.model.subscriptions.get(consumer)
        if chosen is None or number > self.model.newest:
            with pytest.raises(UnknownConsumerError if chosen is None else AckError):
                self.thread.pop(consumer, number, limit=limit)
            return
        goes_back = number < self.model.acked.get(consumer, 0) and not replay
        if only_ack:
            self.thread.ack(consumer, number, replay=replay)
        elif goes_back:
            with pytest.raises(AlreadyAckedError):
                self.thread.pop(consumer, number, limit=limit)
        else:
            popped = self.thread.pop(consumer, number, limit=limit, replay=replay)
            assert [Row.of(event) for event in popped] == self.model.after(number, chosen)[:limit]
        if not goes_back:
            self.model.acked[consumer] = number
        got = [Row.of(event) for event in self.thread.pop(consumer, limit=limit)]
        assert got == self.model.after(self.model.acked[consumer], chosen)[:limit]

    @rule(consumer=st.sampled_from(CONSUMERS))
    def due(self, consumer: str) -> None:
        state = self.thread.consumers.state(consumer)
        chosen = self.model.subscriptions.get(consumer)
        assert (state is None) == (chosen is None)
        if state is not None and chosen is not None:
            waiting = self.model.after(self.model.acked.get(consumer, 0), chosen)
            assert self.thread.consumers.due(state) == bool(waiting)

    # --- reading ----------------------------------------------------------------------------------

    @rule(after=st.integers(0, 30), limit=st.none() | st.integers(1, 10), chosen=FILTERS)
    def peek(self, after: int, limit: int | None, chosen: Filter) -> None:
        if after > self.model.newest:
            with pytest.raises(eventq.PositionError):
                self.thread.peek(after, limit=limit, filter=chosen.sql)
            return
        got = [Row.of(event) for event in self.thread.peek(after, limit=limit, filter=chosen.sql)]
        assert got == self.model.after(after, chosen)[:limit]

    @rule(count=st.integers(1, 10), chosen=FILTERS)
    def last(self, count: int, chosen: Filter) -> None:
        got = [Row.of(event) for event in self.thread.last(count, filter=chosen.sql)]
        assert got == self.model.after(0, chosen)[-count:]

    @rule(by=st.sampled_from(["source", "type"]))
    def latest(self, by: str) -> None:
        expected = {getattr(row, by): row for row in self.model.events}
        assert {name: Row.of(event) for name, event in self.thread.latest(by).items()} == expected

    # --- upkeep and trouble -----------------------------------------------------------------------

    @rule(number=st.integers(0, 40), keep=st.booleans(), force=st.booleans())
    def prune(self, number: int, keep: bool, force: bool) -> None:
        if keep:
            left = self.model.events[-number:] if number else []
            before = left[0].id if left else self.model.newest + 1
        else:
            before = min(number, self.model.newest + 1)
        blocked = any(
            self.model.acked.get(consumer, 0) < row.id < before
            for consumer in self.model.subscriptions
            for row in self.model.events
        )
        chosen: dict[str, Any] = {"keep_last": number} if keep else {"before_id": number}
        if blocked and not force:
            with pytest.raises(LogicError):
                self.thread.prune(**chosen)
        else:
            assert self.thread.prune(**chosen, force=force) == self.model.prune(before)

    @rule()
    def prune_without_a_number(self) -> None:
        with pytest.raises(UsageError):
            self.thread.prune()

    @rule()
    def reopen(self) -> None:
        self.open_again()

    @rule(share=st.floats(0, 1))
    def tear_the_mirror(self, share: float) -> None:
        """Cut the file anywhere: what is left is a torn prefix, as after a crash."""
        mirror = os.path.join(self.path, "events.jsonl")
        if os.path.exists(mirror):
            os.truncate(mirror, round(os.path.getsize(mirror) * share))

    @rule()
    def delete_the_mirror(self) -> None:
        mirror = os.path.join(self.path, "events.jsonl")
        if os.path.exists(mirror):
            os.unlink(mirror)

    @rule()
    def rebuild_the_mirror(self) -> None:
        assert self.thread.rebuild_mirror() == len(self.model.events)

    @precondition(lambda self: self.model.events)
    @rule()
    def read_with_another_handle(self) -> None:
        with eventq.open(self.path, read_only=True) as reader:
            assert [Row.of(event) for event in reader.peek(limit=None)] == self.model.events

    # --- after every step -------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        self.same_events()
        model, info = self.model, self.thread.status()
        assert (info.last_id, info.event_count) == (model.newest, len(model.events))
        acked = {name: model.acked.get(name, 0) for name in model.subscriptions}
        assert [
            (one.consumer_id, one.filter, one.last_acked_id, one.pending) for one in info.consumers
        ] == [
            (name, chosen.sql, acked[name], len(model.after(acked[name], chosen)))
            for name, chosen in model.subscriptions.items()
        ]

    def same_events(self) -> None:
        assert [Row.of(event) for event in self.thread.peek(limit=None)] == self.model.events
        assert self.thread.last_id() == self.model.newest


@pytest.mark.parametrize(
    ("examples", "steps"), [(12, 35), pytest.param(1_000, 60, marks=pytest.mark.soak)]
)
def test_a_thread_is_its_model(monkeypatch: pytest.MonkeyPatch, examples: int, steps: int) -> None:
    """Whatever is done to a thread, it is what the model is, and checks out at the end."""
    drive(Machine, monkeypatch, examples, steps)
