"""The OS threads of a thread that is served: they come with its requests, and go.

The kind: a request is queued while the last OS thread ends, and lies there. Members: a reader, the
reader of what is quick, the writer, which takes several at a time.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from eventq.serving import workers

if TYPE_CHECKING:
    import httpx
    import pytest

    from tests.conftest import Until
    from tests.http.conftest import Serve


def ours() -> list[str]:
    """Return the names of the OS threads that do requests."""
    names = ("eventq-writer", "eventq-reader", "eventq-quick")
    return [one.name for one in threading.enumerate() if one.name.startswith(names)]


def test_os_threads_come_and_go(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """Each request is answered, also one that comes while an OS thread ends."""
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.0005)
    client = serve(path)

    def ask(number: int) -> set[int]:
        event = client.post("/api/threads/thread/events", json={"content": str(number)})
        read: httpx.Response = client.get("/api/threads/thread/events")
        return {event.status_code, read.status_code, client.get("/api/health").status_code}

    with ThreadPoolExecutor(4) as callers:
        assert set.union(*callers.map(ask, range(150))) == {201, 200}
    until(lambda: not ours(), "all have ended")
    assert ask(0) == {201, 200}
