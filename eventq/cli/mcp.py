"""The command that lets an agent use a thread over MCP."""

from __future__ import annotations

import shlex

from eventq.cli import kinds, show
from eventq.cli.options import thread_option
from eventq.cli.serve import load, prepare
from eventq.cli.table import Command, Option

MAX_RESULT = 16 << 10
_URL = "http://127.0.0.1:9010/mcp"


def mcp(*, read_only: bool, max_result: int, print_config: bool, thread: str) -> int:
    """Let an agent use a thread over MCP, on stdin and stdout.

    The agent's program starts it, and ends it by closing its stdin; --print-config shows what to
    write into the settings of such programs. For agents on other machines, or many at once, see
    'eventq serve --http --mcp'.
    """
    if print_config:
        words = ["--read-only"] * read_only
        words += ["--max-result", str(max_result)] * (max_result != MAX_RESULT)
        show.say(config(thread, words))
        return 0
    serve_stdio = load("stdio", "serve_stdio")
    import asyncio

    prepare()
    return int(asyncio.run(serve_stdio(thread, write=not read_only, room=max_result)))


def config(thread: str, options: list[str]) -> str:
    """Return what to write into the settings of programs that run agents."""
    import json

    from eventq.errors import NotAThreadError
    from eventq.store.paths import is_url, resolve, shown
    from eventq.system.processes import program
    from eventq.thread import exists

    if not exists(thread):
        raise NotAThreadError(thread)

    path = shown(thread) if is_url(thread) else resolve(thread)
    command, *first = program()
    words = [*first, "mcp", "--thread", path, *options]
    entry = {"command": command, "args": words}
    # TOML has these strings too, but for the escapes of characters that need two.
    program_text, *texts = [json.dumps(word, ensure_ascii=False) for word in (command, *words)]
    return f"""\
# Claude Code: run this, or write the JSON below into .mcp.json of a project
claude mcp add eventq -- {shlex.join([command, *words])}

# Claude Desktop, Cursor and most others: claude_desktop_config.json, .cursor/mcp.json
{json.dumps({"mcpServers": {"eventq": entry}}, indent=2)}

# VS Code: .vscode/mcp.json
{json.dumps({"servers": {"eventq": {"type": "stdio", **entry}}}, indent=2)}

# Codex: config.toml in ~/.codex
[mcp_servers.eventq]
command = {program_text}
args = [{", ".join(texts)}]

# Over HTTP, from EVENTQ_TOKEN=… eventq serve --http 127.0.0.1:9010 --write --mcp --thread …
{
        json.dumps(
            {
                "mcpServers": {
                    "eventq": {
                        "type": "http",
                        "url": _URL,
                        "headers": {"Authorization": "Bearer ${EVENTQ_TOKEN}"},
                    }
                }
            },
            indent=2,
        )
    }

# The same for Codex
[mcp_servers.eventq]
url = "{_URL}"
bearer_token_env_var = "EVENTQ_TOKEN\""""


COMMANDS = {
    "mcp": Command(
        mcp,
        [
            Option("read-only", "Offer only what changes nothing."),
            Option(
                "max-result BYTES",
                "The size of a result; what is longer is returned in parts.",
                kinds.Whole(2_048),
                default=str(MAX_RESULT),
            ),
            Option(
                "print-config",
                "Print settings for the programs of agents, and exit.",
            ),
            thread_option(kinds.place),
        ],
        "eventq mcp --print-config --thread ./inbox",
        "claude mcp add inbox -- eventq mcp --thread $PWD/inbox",
    )
}
