"""The page about MCP: its table of tools, and what the official client and a real server say."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent

import eventq
from eventq.mcp.tools import TOOLS
from eventq.records.question import Answerer
from tests.reference import cell, filled

PAGE = "docs/integrations/mcp.md"
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ")
_START = 'echo $$ > "$0"; exec "$@"'


def page() -> str:
    """Return the page as it should be."""
    return filled(PAGE, {"tools": tools(), "exchange": exchange()})


def parameters(path: str, noted: str = os.devnull) -> StdioServerParameters:
    """Return how to start a server whose process id is noted in a file."""
    command = [sys.executable, "-m", "eventq", "mcp", "--thread", path]
    return StdioServerParameters(
        command="sh", args=["-c", _START, noted, *command], env={**os.environ}
    )


def noted_in(path: str) -> int:
    """Return the process id in a file."""
    return int(Path(path).read_text(encoding="ascii"))


def tools() -> str:
    """Return the table of tools."""
    rows = ["| tool | arguments | what a model is told |", "|---|---|---|"]
    for tool in TOOLS:
        names = ", ".join(f"**{part.name}**" if part.required else part.name for part in tool.parts)
        rows.append(f"| `{tool.name}` | {names} | {cell(tool.about)} |")
    return "\n".join(rows)


def exchange() -> str:
    """Return what is said between the client and two servers, of which the first is killed."""
    said: list[str] = []

    async def call(client: Client, tool: str, **given: Any) -> None:
        found = await client.call_tool(tool, given)
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        said.append(f"agent    {tool}({shown})")
        (block,) = found.content
        assert isinstance(block, TextContent)
        said.append(f"eventq   {_TIME.sub('2026-01-01T12:00:00.000Z', block.text)}")

    async def run(path: str) -> None:
        noted = f"{path}.pid"
        with suppress(BaseExceptionGroup):  # its client misses the server in the end
            async with Client(stdio_client(parameters(path, noted))) as client:
                await first(client)
                os.kill(noted_in(noted), signal.SIGKILL)
        said.append("         (eventq mcp is killed, and started again)")
        with eventq.open(path) as thread:
            thread.log.answerer = lambda: Answerer("terminal", "ada", is_person=True)
            thread.answer(2, "blue", source="self")
        said.append("person   eventq answer 2 blue")
        async with Client(stdio_client(parameters(path))) as client:
            await second(client)

    async def first(client: Client) -> None:
        await call(client, "push", type="task", content="paint the shed", key="shed-1")
        await call(client, "remember", text="the shed is 4 m by 3 m", context="shed")
        await call(client, "fork", context="shed", name="shed-in-blue")
        await call(client, "search", text="SHED")
        await call(client, "ask_person", question="Blue or red?", seconds=0, key="colour")

    async def second(client: Client) -> None:
        await call(client, "ask_person", id=2)
        await call(client, "wait", after=2, seconds=30)
        await call(client, "recall", context="shed-in-blue")
        await call(client, "recall", context="shd")
        await call(client, "status")

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "inbox"
        eventq.init(place)
        asyncio.run(run(str(place)))
    return "\n".join(["```text", *said, "```"])
