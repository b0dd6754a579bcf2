"""Changes of resources, for the clients that subscribe to them.

A client of a protocol up to 2025-11-25 subscribes to one resource after the other, in a session; a
later one listens to several at once, for as long as its request lasts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from eventq.errors import EventqError
from eventq.mcp.resources import content, resources
from eventq.serving.plans import READ
from eventq.system.clock import SLOW_LOOK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterable

    from mcp.server.session import ServerSession
    from mcp.server.subscriptions import SubscriptionBus

    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

PAUSE = 0.2  # seconds between two looks: changes that come together are one
SLOW_SECONDS = 2.0  # that a client may take for a notification
MOST = 1_000  # resources that are watched at once
_LIST = ""  # stands for the list of all resources


class Watching:
    """Looks at the resources that somebody watches whenever the thread has changed."""

    def __init__(self, served: ServedThread, bus: SubscriptionBus, room: int) -> None:
        self._served = served
        self._bus = bus
        self._room = room
        self._counts: Counter[str] = Counter()
        self._seen: dict[str, Hashable] = {}
        self._sessions: dict[tuple[object, str], ServerSession] = {}
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()

    # --- who watches ------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self, uris: Iterable[str], *, whole: bool) -> AsyncIterator[None]:
        """Watch some resources during a block, and their list with `whole`."""
        wanted = [*dict.fromkeys(uris), *[_LIST] * whole]
        added = []
        try:
            for uri in wanted:
                self._add(uri)
                added.append(uri)
            await self._begin()
            yield
        finally:
            for uri in added:
                self._remove(uri)

    async def subscribe(self, session: ServerSession, uri: str) -> None:
        """Watch a resource for a session, until that ends."""
        connection = _connection_of(session)
        if (connection, uri) not in self._sessions:
            self._add(uri)
            self._sessions[connection, uri] = session
            connection.exit_stack.callback(self.unsubscribe, session, uri)
            await self._begin()

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """End that."""
        if self._sessions.pop((_connection_of(session), uri), None) is not None:
            self._remove(uri)

    def _add(self, uri: str) -> None:
        if len(self._counts) >= MOST and uri not in self._counts:
            raise MCPError(INVALID_PARAMS, f"{MOST:,} resources are watched - end some of that")
        self._counts[uri] += 1

    async def _begin(self) -> None:
        """Look at what nobody watched before: whatever comes after this is a change."""
        new = [uri for uri in self._counts if uri not in self._seen]
        with suppress(EventqError):  # the next look is the first, then
            for uri, mark in (await self._marks(new)).items():
                if uri in self._counts:
                    self._seen.setdefault(uri, mark)
        if self._task is None and self._counts:
            self._served.feed.watchers += 1
            self._task = asyncio.create_task(self._look())

    def _remove(self, uri: str) -> None:
        self._counts[uri] -= 1
        if not self._counts[uri]:
            del self._counts[uri]
            self._seen.pop(uri, None)
        if not self._counts and self._task is not None:
            self._task.cancel()
            self._task = None
            self._served.feed.watchers -= 1

    # --- what changes -----------------------------------------------------------------------------

    async def _look(self) -> None:
        feed = self._served.feed
        while not feed.is_closed:
            changed = feed.changed
            try:
                marks = await self._marks([*self._counts])
            except EventqError:  # it is gone, or busy
                await asyncio.sleep(SLOW_LOOK)
                continue
            for uri, mark in marks.items():
                if uri in self._counts and self._seen.setdefault(uri, mark) != mark:
                    self._seen[uri] = mark
                    await self._tell(uri)
            await asyncio.wait((changed,))
            await asyncio.sleep(PAUSE)

    async def _marks(self, uris: list[str]) -> dict[str, Hashable]:
        """Return what changes with each resource: what is read of it."""

        def run(thread: Thread) -> dict[str, Hashable]:
            return {uri: self._mark(thread, uri) for uri in uris}

        return await self._served.do(run, READ)

    def _mark(self, thread: Thread, uri: str) -> Hashable:
        try:
            if uri == _LIST:
                return tuple(str(one.uri) for one in resources(thread))
            return hash(content(thread, uri, self._room)), _grown(thread, uri)
        except EventqError as error:
            return type(error).__name__

    async def _tell(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri) if uri else ResourcesListChanged())
        sessions = [session for (_, one), session in self._sessions.items() if one == uri]
        if not sessions:
            return
        sent = {asyncio.create_task(one.send_resource_updated(uri)): one for one in sessions}
        _, waits = await asyncio.wait(sent, timeout=SLOW_SECONDS)
        for task in waits:  # of a client that does not read: the others need not wait for it
            task.cancel()
            self.unsubscribe(sent[task], uri)


def _grown(thread: Thread, uri: str) -> Hashable:
    """Return what changes when an artifact grows beyond what is read of it."""
    with suppress(EventqError):
        info = thread.artifacts.get(uri.removeprefix("artifact://"))
        return info.size, info.status
    return None


def _connection_of(session: ServerSession) -> Any:
    """Return what lasts as long as a session: each of its requests has an object of its own."""
    return session._connection  # noqa: SLF001 (no other way)
