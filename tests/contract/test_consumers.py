"""Consumers: each reads at its own pace, loses nothing, and may go back."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import InputError, Subscription, UsageError
from eventq.errors import (
    AckError,
    AlreadyAckedError,
    ConsumerExistsError,
    ConsumerInUseError,
    LeaseLostError,
    UnknownConsumerError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conftest import Clock, RunPython, Until


pytestmark = pytest.mark.engines("sqlite", "postgres")


@pytest.fixture
def consumer(thread: eventq.Thread, handler: str | None) -> str:
    """Return a consumer of ten events, of which the even ones have another type."""
    thread.push_many(("self", "odd" if n % 2 else "even", str(n)) for n in range(1, 11))
    thread.subscribe("w", handler)
    return "w"


def ids(events: Iterable[eventq.Event]) -> list[int]:
    """Return the ids of events."""
    return [event.id for event in events]


def acked(thread: eventq.Thread, consumer: str = "w") -> tuple[int, str | None]:
    """Return the last acked id of a consumer, and when it was acked."""
    found = next(c for c in thread.status().consumers if c.consumer_id == consumer)
    return found.last_acked_id, found.updated_at


def test_subscribe_gives_what_is_kept(thread: eventq.Thread, handler: str | None) -> None:
    """`subscribe` returns the subscription; `subscriptions` returns all in order of creation."""
    command = handler and "run 'this'\nand that"
    first = thread.subscribe("w", handler)
    second = thread.subscribe("a", command, filter="id > 0", max_attempts=2, timeout=1.5)
    more: Any = {"directory": os.getcwd()} if handler else {"kind": "pull"}
    assert first == Subscription("w", handler, None, 21, None, **more)
    assert second == Subscription("a", command, "id > 0", 2, 1.5, **more)
    assert thread.subscriptions() == [first, second]


def test_subscribe_twice_is_refused(thread: eventq.Thread, handler: str | None) -> None:
    """A consumer id is taken once; the first subscription stays as it was."""
    first = thread.subscribe("w", handler)
    with pytest.raises(
        ConsumerExistsError, match=r"'w' is already subscribed, differently: .* - add --replace"
    ):
        thread.subscribe("w", handler and "other", filter="id > 3", from_now=True)
    assert thread.subscriptions() == [first]
    assert acked(thread) == (0, None)


@pytest.mark.engines("sqlite")
def test_the_refusal_of_another_subscription_names_each_value(thread: eventq.Thread) -> None:
    """Every value that differs is named, as it is and as it would be; a long text in part."""
    long = "echo " + "x" * 500
    thread.subscribe("w", f"{long} one", each=True, timeout=1.5, lease=60, directory="/tmp")
    with pytest.raises(ConsumerExistsError) as refused:
        thread.subscribe(
            "w", f"{long} two and more", filter="id > 1", each=True, timeout=3, max_attempts=2,
            concurrency=4, ordered_by="source", on_failure="dead", backoff=(2, 90), emit_dead=True,
        )  # fmt: skip
    assert refused.value.what == (
        "consumer 'w' is already subscribed, differently:"
        " handler …'xxxxxxxxxxxxxxxxxxx one' -> …'xxxxxxxxxxxxxxxxxxx two and more',"
        " filter none -> 'id > 1', max attempts 21 -> 2, timeout 1.5 -> 3, concurrency 0 -> 4,"
        " ordered by none -> 'source', on failure 'stall' -> 'dead', backoff 1..300 -> 2..90,"
        " lease 60 -> 30, emit dead false -> true"
    )
    assert refused.value.fix is not None
    assert "--replace" in refused.value.fix
    thread.subscribe("p", None)
    with pytest.raises(
        ConsumerExistsError, match=r"handler none -> 'a+'…, no handler -> a handler that pops,"
    ):
        thread.subscribe("p", "a" * 70_000)


@pytest.mark.engines("sqlite")
def test_subscribing_again_with_equal_values_changes_nothing(thread: eventq.Thread) -> None:
    """A program may subscribe each time it starts; `replace` changes values and keeps the place."""
    thread.push("self", "note", "one")
    first = thread.subscribe("w", "echo hi", timeout=3)
    thread.ack("w", 1)
    thread.subscribe("w", "echo hi", timeout=3)
    assert thread.subscriptions() == [first]
    second = thread.subscribe("w", "echo ho", each=True, batch=7, replace=True)
    assert thread.subscriptions() == [second]
    assert (second.kind, second.batch, second.timeout) == ("each", 7, None)
    assert acked(thread)[0] == 1


def test_two_subscribes_at_once(thread: eventq.Thread, run_python: RunPython) -> None:
    """If several processes subscribe at once, one succeeds; the others get the usual error."""
    code = (
        "import os, sys, eventq\nfrom eventq.errors import ConsumerExistsError\n"
        "with eventq.open(sys.argv[1]) as thread:\n"
        "    for n in range(30):\n"
        "        try: print(thread.subscribe(f'c{n}', max_attempts=os.getpid()).consumer_id)\n"
        "        except ConsumerExistsError: pass\n"
    )
    printed: list[str] = []
    runs = [
        threading.Thread(target=lambda: printed.extend(run_python(code, thread.path).split()))
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sorted(printed) == sorted(f"c{n}" for n in range(30))


@pytest.mark.parametrize("name", ["", "a\nb", "\0", "\ud800", 7, None])
def test_consumer_ids_that_are_refused(thread: eventq.Thread, name: Any) -> None:
    """A consumer id is text, not empty, without control characters: everywhere."""
    calls = (
        lambda: thread.subscribe(name, "true"), lambda: thread.unsubscribe(name),
        lambda: thread.pop(name, 0), lambda: thread.ack(name, 0), lambda: thread.resume(name),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(InputError, match="consumer"):
            call()


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", ".", "..", "x" * 300, "%41", "A", "a", "mein Ü ☃", "'; DROP TABLE events"],
)
def test_consumer_ids_that_work(thread: eventq.Thread, name: str, handler: str | None) -> None:
    """Any other text names a consumer."""
    thread.push("self", "note", "x")
    thread.subscribe(name, handler)
    assert ids(thread.pop(name, 0)) == [1]
    assert [c.consumer_id for c in thread.status().consumers] == [name]
    thread.unsubscribe(name)


@pytest.mark.parametrize("wrong", [
    {"handler": ""}, {"handler": " \n"}, {"handler": "a\0b"}, {"max_attempts": 0},
    {"max_attempts": 1 << 63}, {"timeout": 0}, {"timeout": -1.0}, {"timeout": float("inf")},
    {"timeout": float("nan")},
])  # fmt: skip
def test_subscriptions_that_are_refused(thread: eventq.Thread, wrong: dict[str, Any]) -> None:
    """An empty handler, no attempts and an impossible timeout are the caller's mistakes."""
    with pytest.raises(UsageError):
        thread.subscribe(**{"consumer": "w", "handler": "true", **wrong})
    assert thread.subscriptions() == []


def test_an_unknown_consumer(thread: eventq.Thread) -> None:
    """Every call for an unknown consumer raises UnknownConsumerError, before it checks the id."""
    thread.push("self", "note", "x")
    for call in (
        lambda: thread.pop("w", 0),
        lambda: thread.pop("w", 99),
        lambda: thread.ack("w", 99),
        lambda: thread.unsubscribe("w"),
        lambda: thread.resume("w"),
    ):
        with pytest.raises(
            UnknownConsumerError, match="'w' is not subscribed - run 'eventq subscribe'"
        ):
            call()


# --- pop and ack ----------------------------------------------------------------------------------


def test_pop_acks_and_gives_what_is_next(
    thread: eventq.Thread, consumer: str, clock: Clock
) -> None:
    """`pop` acks the id it is given and gives the next events, at most `limit`."""
    assert acked(thread) == (0, None)
    assert ids(thread.pop(consumer, 0, limit=4)) == [1, 2, 3, 4]
    assert acked(thread) == (0, "2026-03-18T10:30:00.123Z")
    clock.move(1)
    assert ids(thread.pop(consumer, 4)) == [5, 6, 7, 8, 9, 10]
    assert acked(thread) == (4, "2026-03-18T10:30:01.123Z")
    assert ids(thread.pop(consumer, 10)) == []
    assert acked(thread)[0] == 10


def test_pop_gives_a_hundred_by_default(thread: eventq.Thread, handler: str | None) -> None:
    """Without a limit 100 events come; with one, as many as are asked for, over many pages."""
    thread.push_many([("self", "note", "x")] * 2_500)
    thread.subscribe("w", handler)
    assert ids(thread.pop("w", 0)) == list(range(1, 101))
    assert ids(thread.pop("w", 0, limit=2_400)) == list(range(1, 2_401))


def test_ack_alone(thread: eventq.Thread, consumer: str) -> None:
    """`ack` moves the progress without reading."""
    thread.ack(consumer, 7)
    assert acked(thread)[0] == 7
    assert ids(thread.pop(consumer, 7)) == [8, 9, 10]


@pytest.mark.parametrize("how", ["pop", "ack"])
def test_the_same_ack_again_changes_nothing(
    thread: eventq.Thread, consumer: str, clock: Clock, how: str
) -> None:
    """An ack that is repeated leaves even the time of the first."""
    act = getattr(thread, how)
    act(consumer, 5)
    before = acked(thread)
    clock.move(60)
    act(consumer, 5)
    assert acked(thread) == before


@pytest.mark.parametrize("how", ["pop", "ack"])
@pytest.mark.parametrize("to", [0, 3])
def test_a_smaller_ack_replays(thread: eventq.Thread, consumer: str, how: str, to: int) -> None:
    """A smaller id is a replay where that is asked for: what comes after it is given again."""
    thread.ack(consumer, 8)
    getattr(thread, how)(consumer, to, replay=True)
    assert acked(thread)[0] == to
    assert ids(thread.pop(consumer, to)) == list(range(to + 1, 11))


@pytest.mark.parametrize("to", [0, 3])
def test_nobody_goes_back_by_mistake(thread: eventq.Thread, consumer: str, to: int) -> None:
    """Without `replay` a pop below the progress is refused, and an ack changes nothing."""
    thread.ack(consumer, 8)
    before = acked(thread)
    for pop in (thread.pop, thread.pop_lines):
        with pytest.raises(AlreadyAckedError, match=rf"'w' has acked 8 already - .* from {to}$"):
            pop(consumer, to, wait=120)
    thread.ack(consumer, to)
    assert acked(thread) == before


def test_pop_without_an_id(thread: eventq.Thread, consumer: str) -> None:
    """Nothing is acked; what follows the progress is returned, again and again."""
    assert ids(thread.pop(consumer)) == ids(thread.pop(consumer)) == list(range(1, 11))
    assert acked(thread) == (0, None)
    thread.ack(consumer, 8)
    assert ids(thread.pop(consumer, limit=1)) == [9]
    assert [line[:8] for line in thread.pop_lines(consumer)] == ['{"id":9,', '{"id":10']
    assert acked(thread)[0] == 8
    thread.ack(consumer, 10)
    assert thread.pop(consumer, wait=0.01) == []


def test_while_a_claim_is_out(thread: eventq.Thread, consumer: str) -> None:
    """Nobody reads, acks or consumes beside workers; a replay ends their claims."""
    thread.ack(consumer, 5)
    (claim,) = thread.claim(consumer)
    for call in (
        lambda: thread.pop(consumer), lambda: thread.pop(consumer, 7),
        lambda: thread.pop(consumer, wait=120), lambda: thread.ack(consumer, 7),
        lambda: next(thread.consume(consumer, idle=0)),
    ):  # fmt: skip
        with pytest.raises(ConsumerInUseError, match="'w' is in use: workers have claims of it"):
            call()
    assert acked(thread)[0] == 5
    thread.ack(consumer, 2, replay=True)
    assert ids(thread.pop(consumer, limit=1)) == [3]
    with pytest.raises(LeaseLostError):
        claim.done()


def test_a_loop_ends_when_somebody_claims(thread: eventq.Thread, consumer: str) -> None:
    """A claim beside a loop is not acked by it: the loop stops at its next ack."""
    loop = thread.consume(consumer, idle=0)
    assert next(loop).id == 1
    (claim,) = thread.claim(consumer)
    with pytest.raises(ConsumerInUseError):
        next(loop)
    claim.done()
    assert acked(thread)[0] == 1


@pytest.mark.parametrize("how", ["pop", "ack"])
@pytest.mark.parametrize("beyond", [11, (1 << 63) - 1])
def test_an_ack_beyond_the_newest_event(
    thread: eventq.Thread, consumer: str, how: str, beyond: int
) -> None:
    """An ack of events that do not exist yet is refused, names the newest, and changes nothing."""
    thread.ack(consumer, 4)
    before = acked(thread)
    with pytest.raises(
        AckError, match=rf"cannot ack event {beyond}: the newest event is 10 - "
    ) as caught:
        getattr(thread, how)(consumer, beyond)
    assert caught.value.last_id == 10
    assert acked(thread) == before
    thread.prune(keep_last=0, force=True)
    getattr(thread, how)(consumer, 10)  # the newest there ever was, though it is gone


def test_pop_with_a_filter(thread: eventq.Thread, handler: str | None) -> None:
    """The filter selects the returned events; an ack may name any event, and skips no match."""
    thread.push_many(("self", "odd" if n % 2 else "even", str(n)) for n in range(1, 11))
    thread.subscribe("w", handler, filter="type = 'even'")
    assert ids(thread.pop("w", 0, limit=2)) == [2, 4]
    assert ids(thread.pop("w", 5)) == [6, 8, 10]


def test_pop_waits_for_another_process(
    thread: eventq.Thread, consumer: str, run_python: RunPython
) -> None:
    """With `wait` a pop that finds nothing gives what another process pushes meanwhile."""
    code = "import sys, eventq\nwith eventq.open(sys.argv[1]) as thread: thread.push('self', 'note', 'x')\n"
    pusher = threading.Thread(target=run_python, args=(code, thread.path))
    pusher.start()
    assert ids(thread.pop(consumer, 10, wait=120)) == [11]
    pusher.join()
    assert acked(thread)[0] == 10


def test_pop_waits_for_a_match(thread: eventq.Thread, until: Until, handler: str | None) -> None:
    """What does not match does not end the wait."""
    thread.subscribe("w", handler, filter="type = 'wanted'")
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.extend(ids(thread.pop("w", 0, wait=120))))
    waiter.start()
    until(lambda: acked(thread)[1], "the pop acks before it waits")
    thread.push("self", "unwanted", "x")
    thread.push("self", "wanted", "x")
    waiter.join()
    assert got == [2]


def test_pop_gives_up_waiting(thread: eventq.Thread, consumer: str) -> None:
    """A wait that is over gives an empty list; one that is needless gives at once."""
    assert thread.pop(consumer, 10, wait=0.01) == []
    assert thread.pop(consumer, 10, wait=-1) == []
    assert len(thread.pop(consumer, 0, wait=1e9, replay=True)) == 10


def test_consumers_are_independent(
    thread: eventq.Thread, consumer: str, handler: str | None
) -> None:
    """What one consumer acks is nothing to another."""
    thread.subscribe("v", handler)
    thread.ack(consumer, 10)
    assert ids(thread.pop("v", 0)) == list(range(1, 11))
    assert [c.pending for c in thread.status().consumers] == [0, 10]


# --- unsubscribe, again, from now -----------------------------------------------------------------


def test_progress_survives_unsubscribe(
    thread: eventq.Thread, consumer: str, handler: str | None
) -> None:
    """`unsubscribe` deletes the subscription and keeps the progress for a later one."""
    thread.ack(consumer, 6)
    before = acked(thread)
    thread.unsubscribe(consumer)
    assert thread.subscriptions() == []
    thread.subscribe(consumer, handler and "other", filter="type = 'even'")
    assert acked(thread) == before
    assert thread.status().consumers[0].pending == 2


def test_from_now_skips_what_is_stored(
    thread: eventq.Thread, consumer: str, handler: str | None
) -> None:
    """`from_now` starts at the newest event, also for a consumer that was subscribed before."""
    thread.subscribe("v", handler, from_now=True)
    thread.ack(consumer, 2)
    thread.unsubscribe(consumer)
    thread.subscribe(consumer, handler, from_now=True)
    assert (acked(thread)[0], acked(thread, "v")[0]) == (10, 10)
    thread.push("self", "note", "x")
    assert ids(thread.pop(consumer, 10)) == ids(thread.pop("v", 10)) == [11]


def test_from_now_on_an_empty_thread(thread: eventq.Thread, handler: str | None) -> None:
    """Where nothing is stored `from_now` starts at the beginning."""
    thread.subscribe("w", handler, from_now=True)
    assert acked(thread) == (0, None)
    thread.push("self", "note", "x")
    assert ids(thread.pop("w", 0)) == [1]


@pytest.mark.engines("sqlite")
def test_a_handler_of_each_event_needs_a_filter_without_a_clock(thread: eventq.Thread) -> None:
    """What was examined is not examined again, so time must not change the answer."""
    where = "created_at < strftime('%Y-%m-%dT%H:%M:%fZ','now')"
    with pytest.raises(eventq.FilterError, match="may not read the clock"):
        thread.subscribe("w", "true", each=True, filter=where)
    thread.subscribe("w", "true", filter=where)
    thread.push("self", "note", "x")
    with pytest.raises(eventq.FilterError, match="may not read the clock"):
        thread.claim("w")


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"each": True}, "there is no handler to run for each event"),
    ({"batch": 2}, "batch and concurrency are for a handler of each event"),
    ({"handler": "x", "concurrency": 2}, "batch and concurrency are for a handler of each"),
    ({"handler": "x", "each": True, "ordered_by": "type"}, "come in order already"),
    ({"ordered_by": "size"}, "events cannot be ordered by 'size'"),
    ({"ordered_by": "$.a\0"}, "events cannot be ordered by"),
    ({"ordered_by": "$."}, "events cannot be ordered by"),
    ({"ordered_by": "$.a["}, "events cannot be ordered by"),
    ({"ordered_by": "$..a"}, "events cannot be ordered by"),
    ({"ordered_by": "$[-1]"}, "events cannot be ordered by"),
    ({"ordered_by": '$."a'}, "events cannot be ordered by"),
    ({"ordered_by": 5}, "events cannot be ordered by '5'"),
    ({"on_failure": "weep"}, "on_failure is 'weep'"),
    (
        {"backoff": (5, 1)},
        "^backoff must not end below its start, as .5, 1. does - give two dur",
    ),
    ({"backoff": (-1, 1)}, "backoff must be seconds from 0"),
    ({"lease": 0}, "^a lease must be above zero - give seconds"),
    ({"handler": "x", "each": True, "batch": 0}, "batch must be a whole number from 1"),
    ({"handler": "x", "each": True, "concurrency": -1}, "concurrency must be a whole number"),
    ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
    ({"timeout": "soon"}, "timeout must be a number of seconds"),
]


def test_terms_that_make_no_sense(thread: eventq.Thread) -> None:
    """They are refused before anything is stored."""
    for terms, says in NONSENSE:
        with pytest.raises(eventq.UsageError, match=says):
            thread.subscribe("w", **terms)
        assert thread.subscriptions() == []


PATHS = ["$", "$.a", "$.order.id", '$."a.b"', "$[0]", "$.a[#-1].b", "$.a b", "$.日本", "$[#]"]


@pytest.mark.parametrize("by", PATHS)
def test_events_are_ordered_by_any_path_of_json(thread: eventq.Thread, by: str) -> None:
    """What is accepted can be read in all events: a claim would raise otherwise."""
    contents = ['{"a": [[1], {"b": 2}], "a.b": 3}', "[[], 4]", "null", "no JSON", '{"日本": {}}']
    thread.push_many([("self", "note", content) for content in contents])
    thread.subscribe("w", ordered_by=by)
    assert thread.claim("w", len(contents))


@pytest.mark.engines("sqlite")
def test_a_default_that_is_given_is_no_change(thread: eventq.Thread) -> None:
    """It says what is the case already."""
    first = thread.subscribe("w", "true", each=True)
    terms = {"filter": "", "on_failure": "stall", "max_attempts": 21, "backoff": (1, 300)}
    thread.subscribe("w", "true", each=True, **terms)  # type: ignore[arg-type]
    assert thread.subscriptions() == [first]
