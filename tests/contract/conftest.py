"""Fixtures of the library's tests: a context, a folder, a second thread, a moving clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.output import entries
from eventq.store.paths import is_shared
from tests.servers import made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eventq import Context, Thread
    from tests.conftest import Clock


@pytest.fixture
def handler(path: str) -> str | None:
    """Return a handler that does nothing, or None where no handler runs."""
    return None if is_shared(path) else "true"


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Let every look at the clock find it a millisecond later, so that nothing is a twin."""

    def tick() -> float:
        clock.move(0.001)
        return clock.at

    monkeypatch.setattr("eventq.system.clock.now", tick)


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[eventq.Thread]:
    """Return a second fresh thread; it must check out when the test is over."""
    with eventq.open(made(request, tmp_path / "other")) as opened:
        yield opened
        assert opened.check() == []


@pytest.fixture(name="fresh")
def _fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Thread]]:
    """Return a maker of fresh threads; each of them must check out when the test is over."""
    threads: list[Thread] = []

    def make() -> Thread:
        folder = tmp_path / f"fresh-{len(threads)}"
        threads.append(eventq.open(made(request, folder)))
        return threads[-1]

    yield make
    for one in threads:
        assert one.check() == []
        one.close()


@pytest.fixture
def context(thread: Thread) -> Context:
    """Return an empty context of a thread that must check out."""
    return thread.contexts.create("main")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return an empty folder."""
    made = tmp_path / "folder"
    made.mkdir()
    return str(made)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits for text and base64 to a few characters, for random values."""
    monkeypatch.setattr(entries, "MAX_CHARS", 80)  # a ref has 76
    monkeypatch.setattr(entries, "NOTICE", "\n[cut]")
    monkeypatch.setattr(entries, "THRESHOLD", 8)
