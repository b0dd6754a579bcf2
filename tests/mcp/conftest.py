"""MCP servers of a thread, and the official client in every mode that it has."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from eventq.mcp.mounting import Mount
from eventq.mcp.thread_server import ThreadServer
from eventq.serving.served import ServedThread
from tests.http.conftest import TOKEN, path, serve, thread  # noqa: F401 (fixtures)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import httpx

    Connect = Callable[..., Any]

MODES = ("auto", "legacy", "2026-07-28")
WAYS = ("object", "stdio", "http")
# Protocols do not depend on ways: a process takes most of a second to start.
PAIRS = [*(("object", mode) for mode in MODES), ("stdio", "legacy"), ("http", "2026-07-28")]
COMMAND = [sys.executable, "-m", "eventq", "mcp"]
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}  # fmt: skip


def parameters(place: str, *words: str) -> StdioServerParameters:
    """Return how the official client starts a server on stdio."""
    args = [*COMMAND[1:], "--thread", place, *words]
    return StdioServerParameters(command=COMMAND[0], args=args, env={**os.environ})


@asynccontextmanager
async def on_stdio(place: str, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """Connect to a server in a process of its own."""
    async with Client(stdio_client(parameters(place)), mode=mode, **options) as client:
        yield client


@asynccontextmanager
async def on_http(
    url: str, mode: str = "auto", token: str = TOKEN, **options: Any
) -> AsyncIterator[Client]:
    """Connect over streamable HTTP, with a token or without."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, verify=False) as session,
        Client(streamable_http_client(url, http_client=session), mode=mode, **options) as client,
    ):
        yield client


@asynccontextmanager
async def on_object(place: str, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """Connect to a server in this loop."""
    served = ServedThread("thread", place)
    server = ThreadServer(served, **{"write": True, **options})
    try:
        async with Client(server.sdk, mode=mode) as client:
            yield client
    finally:
        served.feed.close()
        await server.close(0)  # calls are tasks of this test
        await asyncio.to_thread(served.close, 5.0)


def mounted(serve: Callable[..., httpx.Client], *paths: str, **options: Any) -> str:  # noqa: F811
    """Serve threads over HTTP, MCP too, and return the URL of MCP."""
    client = serve(*paths, mcp=Mount, **options)
    return f"{client.base_url}/mcp".replace("//mcp", "/mcp")


@pytest.fixture
def connect(serve: Callable[..., httpx.Client], path: str) -> Connect:  # noqa: F811
    """Return a function that connects to a server of a thread in one of the ways and modes."""

    def connect(way: str = "object", mode: str = "auto", **options: Any) -> Any:
        if way == "http":
            return on_http(mounted(serve, path), mode, **options)
        return on_stdio(path, mode, **options) if way == "stdio" else on_object(path, mode)

    return connect


def run(call: Callable[[], Awaitable[None]]) -> None:
    """Run a test in a loop of its own."""
    asyncio.run(asyncio.wait_for(call(), 50))


async def call(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """Call a tool, and return its result: the same as text and as an object."""
    found = await client.call_tool(tool, given)
    assert not found.is_error, found.content
    value: dict[str, Any] = json.loads(text_of(found))
    assert value == found.structured_content
    return value


def text_of(found: CallToolResult) -> str:
    """Return the text of a result."""
    (block,) = found.content
    assert isinstance(block, TextContent)
    return block.text


async def refusal(client: Client, tool: str, **given: Any) -> str:
    """Call a tool that refuses, and return what it says: what is wrong, and what to do next."""
    found = await client.call_tool(tool, given)
    assert found.is_error
    text = text_of(found)
    assert "Traceback" not in text
    assert " - " in text
    return text


class Stdio:
    """A server in a process, spoken to line by line."""

    def __init__(self, place: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--thread", place], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**os.environ, **environ},
        )  # fmt: skip

    def send(self, value: Any) -> None:
        """Send a message, or any line of bytes."""
        line = value if isinstance(value, bytes) else json.dumps(value).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """Return the next message."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def begin(self, revision: str = "2025-11-25") -> None:
        """Shake hands."""
        self.send({**HELLO, "params": {**HELLO["params"], "protocolVersion": revision}})
        assert self.receive()["id"] == 0
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, number: int, tool: str, **given: Any) -> None:
        """Send a call of a tool."""
        params = {"name": tool, "arguments": given}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    def end(self) -> tuple[int, bytes]:
        """Close stdin, and return the exit code and what it wrote to stderr."""
        _, error = self.process.communicate()
        return self.process.returncode, error
