"""The face for event loops: the same calls, and nothing blocks the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import eventq
from eventq.records.run import RunChange


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine with a deadline."""

    async def main() -> Any:
        async with asyncio.timeout(120):
            return await work

    return asyncio.run(main())


def test_every_call_has_its_async_twin() -> None:
    """AsyncThread has the public methods of Thread, but for those that make no sense in a loop."""
    sync = {
        n for n, _ in inspect.getmembers(eventq.Thread, inspect.isfunction) if not n.startswith("_")
    }
    twin = {
        n
        for n, _ in inspect.getmembers(eventq.AsyncThread, inspect.isfunction)
        if not n.startswith("_")
    }
    assert sync - twin == {
        "write", "follow_pages", "reader", "pop_lines", "rebuild_mirror", "gc", "reachable", "export_pack", "import_pack", "capture",
        "check_place", "copy_to", "externalize", "refs", "open_url", "rehydrate", "scope",
    }  # fmt: skip
    assert twin - sync == {"run", "watch_runs"}


def test_everything_else_is_run_in_the_threads_place(tmp_path: Path) -> None:
    """`run` gives what any call of the library gives: contexts, blobs, a whole transaction."""

    async def work() -> None:
        async with await eventq.AsyncThread.open(tmp_path / "t", create=True) as thread:
            context = await thread.run(lambda t: t.contexts.create("main"))
            turn = await thread.run(lambda t: context.append("hello", source="self"))
            assert await thread.run(lambda t: [x.payload for x in context.last()]) == [b"hello"]
            assert (await thread.last())[0].subtype == "turn"
            assert (turn.turn_id, await thread.run(lambda t: t.blobs.has(turn.hash))) == (1, True)

    run(work())


def test_the_calls_give_what_the_sync_ones_give(tmp_path: Path) -> None:
    """push, peek, pop, ack and the rest, awaited."""

    async def work() -> None:
        async with await eventq.AsyncThread.open(tmp_path / "t", create=True) as thread:
            event = await thread.push("self", "record", "x", key="k")
            assert await thread.push("self", "record", "x", key="k") == event
            with pytest.raises(eventq.KeyConflictError):
                await thread.push("self", "record", "y", key="k", key_strict=True)
            with pytest.raises(eventq.KeyConflictError):
                await thread.push_many([("self", "record", "y", None, "k")], key_strict=True)
            assert (await thread.push_many([("a", "b", "c")])).last_id == 2
            assert await thread.peek(1) == await thread.last(1)
            assert (await thread.latest())["self"] == event
            assert (await thread.subscribe("w", "true", filter="type = 'b'")).consumer_id == "w"
            assert [e.id for e in await thread.pop("w", 0)] == [2]
            await thread.ack("w", 2)
            assert (await thread.status()).consumers[0].last_acked_id == 2
            assert await thread.sql("SELECT ? AS a", [1], limit=1, timeout=9) == [{"a": 1}]
            await thread.resume("w")
            assert [s.consumer_id for s in await thread.subscriptions()] == ["w"]
            await thread.unsubscribe("w")
            with pytest.raises(eventq.LogicError):
                await thread.pop("w", 0)
            assert await thread.prunable(keep_last=1) == range(1, 2)
            assert await thread.prune(keep_last=1) == 1
            assert await thread.last_id() == 2
            assert await thread.check() == []
            assert thread.path == str(tmp_path / "t")
        await thread.close()
        with pytest.raises(eventq.LogicError, match="closed"):
            await thread.last_id()

    run(work())


def test_waiting_does_not_keep_other_calls_from_running(tmp_path: Path) -> None:
    """While one task waits in pop and another follows, a third one pushes."""

    async def work() -> None:
        async with await eventq.AsyncThread.open(tmp_path / "t", create=True) as thread:
            await thread.subscribe("w", "true", filter="type = 'x'")
            popped = asyncio.create_task(thread.pop("w", 0, wait=100))

            async def first() -> eventq.Event:
                async for event in thread.follow(0, filter="type = 'x'"):
                    return event
                raise AssertionError

            followed = asyncio.create_task(first())
            while not any(t.name.startswith("eventq-follow") for t in threading.enumerate()):  # noqa: ASYNC110
                await asyncio.sleep(0)
            await thread.push("self", "other", "1")
            event = await thread.push("self", "x", "2")
            assert await popped == [event]
            assert await followed == event

    run(work())


def test_runs_are_watched(tmp_path: Path) -> None:
    """What is under way comes, then each change, while other calls go on; of one group or all."""

    async def work() -> None:
        async with await eventq.AsyncThread.open(tmp_path / "t", create=True) as thread:
            await thread.run(lambda t: t.runs.start("w", "p"))
            new = eventq.NewRun("w", "p", group="g")
            await thread.run(lambda t: t.runs.start(new))
            everything: Any = thread.watch_runs()
            group: Any = thread.watch_runs("g")
            try:
                assert [(await anext(everything)).run_id for _ in "12"] == [1, 2]
                assert (await anext(group)).run_id == 2
                awaited = asyncio.create_task(anext(everything))
                await thread.run(lambda t: t.runs.get(1).step("a"))
                assert ((await awaited).op, (await awaited).run_id) == ("step", 1)
                await thread.run(lambda t: t.runs.get(2).end())
                for watcher in (everything, group):
                    change = await anext(watcher)
                    assert change == RunChange(
                        "end", 2, await thread.run(lambda t: t.runs.get(2).info())
                    )
            finally:
                await everything.aclose()
                await group.aclose()

    run(work())


def test_a_wait_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """A pop gives nothing when nothing came."""

    async def work() -> None:
        async with await eventq.AsyncThread.open(tmp_path / "t", create=True) as thread:
            await thread.subscribe("w", "true")
            assert await thread.pop("w", 0, wait=0.01) == []
            assert await thread.pop("w", wait=0.01) == []

    run(work())


def test_a_slow_iterator_blocks_no_other_call(path: str) -> None:
    """While `push_many` waits for its next event, other calls are answered."""
    is_read, may_end = threading.Event(), threading.Event()

    def events() -> Iterator[tuple[str, str, str]]:
        yield "self", "note", "slow"
        is_read.set()
        assert may_end.wait(120)

    async def main() -> None:
        async with await eventq.AsyncThread.open(path) as thread:
            slow = asyncio.create_task(thread.push_many(events()))
            try:
                await asyncio.to_thread(is_read.wait, 120)
                assert (await thread.push("self", "note", "meanwhile")).id == 1
            finally:
                may_end.set()
            assert (await slow).first_id == 2

    run(main())
