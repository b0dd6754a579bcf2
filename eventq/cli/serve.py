"""The command that serves a thread to clients in other languages or on other machines."""

from __future__ import annotations

import gc
import signal
from contextlib import suppress

from eventq.cli import kinds, show
from eventq.cli.options import JSON, choose_threads
from eventq.cli.rules import needs
from eventq.cli.table import Command, Option, together
from eventq.errors import LogicError, UsageError
from eventq.store import causing
from eventq.system import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypedDict

    class Web(TypedDict):
        """Where HTTP is served, and what it allows."""

        http: str | None
        write: bool
        insecure_local: bool
        mcp: bool
        tokens: str | None

    class Rules(TypedDict):
        """What clients of the binary protocol get away with."""

        keys: str
        foreign_roots: bool

    class Bounds(TypedDict):
        """What peers may take."""

        connections: int
        idle: float
        frame: int
        in_flight: int


MAX_TOKEN = 1024  # characters: more might not fit into a HELLO
_MMAP_THRESHOLD = -3  # the parameter of glibc's mallopt
_LONG_BLOCK = 1 << 20  # bytes
_KEYS = {
    "matching": "a key counts only for the same turn on the same named parent",
    "strict": "a key is one turn; other bytes are refused",
    "ignore": "every turn is appended",
}


def serve(
    *,
    thread: list[str],
    listen: str | None,
    web: Web,
    token: str | None,
    limits: Bounds,
    rules: Rules,
    json: bool,
) -> int:
    """Serve threads to other programs and machines, until SIGTERM.

    With --http, in JSON, with streams of events; /api/openapi.json lists what there is. Without a
    token, everybody on this machine may read. --listen is for clients of the binary protocol, which
    is served by default; it is for the first thread. Requests in progress are answered at the end.
    """
    prepare()
    shown, servers = token_of(token), []
    binary = web["http"] is None or listen is not None
    if binary:
        from eventq.wire.server import DEFAULT, Limits, Server

        made = Limits(**limits)
        servers.append(Server(thread[0], listen or DEFAULT, token=shown, limits=made, **rules))
    if web["http"] is not None:
        servers.append(_web(thread, web, shown, limits["connections"]))
    elif web["mcp"]:
        raise UsageError("--mcp is for a server of HTTP", "add --http, or see 'eventq mcp'")
    elif len(thread) > 1:
        raise UsageError("the binary protocol serves one thread", "give --thread once, or --http")

    def ready(address: str) -> None:
        show.note(f"listening on {address}")
        if binary and "//" not in address:
            keys = rules["keys"]
            show.note(f"keys of APPEND_TURN: {keys} ({_KEYS[keys]})")
        if json:
            show.dump({"listening": address})

    return until_signal(servers, ready)


def until_signal(servers: list[Any], ready: Callable[[str], object]) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, and return the exit status; `ready` gets addresses."""
    ended_by: list[int] = []

    def stop(number: int, _: object) -> None:
        ended_by.append(number)
        for server in servers:
            server.stop()
        # The system's own handler: a KeyboardInterrupt would be raised inside asyncio.
        _on_end(signal.SIG_DFL)

    def listens(address: str) -> None:
        _on_end(stop)
        ready(address)

    import asyncio

    asyncio.run(_serve(servers, listens))
    return 130 if ended_by[:1] == [signal.SIGINT] else 0


async def _serve(servers: list[Any], ready: Callable[[str], object]) -> None:
    """Run one server, or both: then the workers of the one for HTTP do the requests of both."""
    first = servers[-1]
    if len(servers) == 1:
        await first.serve(ready)
        return
    import asyncio

    is_ready = asyncio.Event()

    def note(url: str) -> None:
        ready(url)
        is_ready.set()

    task = asyncio.create_task(first.serve(note))
    waits = asyncio.create_task(is_ready.wait())
    await asyncio.wait((task, waits), return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    try:
        if not task.done():
            await servers[0].serve(ready, first.service)
    finally:
        first.stop()
        await task


def _web(threads: list[str], web: Web, token: str, connections: int) -> Any:
    server = http_server(
        threads, web["http"] or "", token=token, write=web["write"],
        insecure=web["insecure_local"], connections=connections, tokens=tokens_of(web["tokens"]),
    )  # fmt: skip
    if web["mcp"]:
        server.mcp = load("mounting", "Mount")
    return server


def tokens_of(path: str | None) -> list[Any]:
    """Return the tokens of a file, none without one. Raises UsageError, LogicError."""
    if path is None:
        return []
    from eventq.http.tokens import read_tokens

    return read_tokens(path)


def load(module: str, name: str) -> Callable[..., Any]:
    """Return what stands in a module of `eventq.mcp`; raise LogicError without its packages."""
    try:
        found = __import__(f"eventq.mcp.{module}", fromlist=(name,))
    except ModuleNotFoundError as error:
        what = f"MCP needs the package '{error.name}'"
        raise LogicError(what, "run pip install '.[mcp]' in a clone of eventq") from error
    call: Callable[..., Any] = getattr(found, name)
    return call


def http_server(threads: list[str], listen: str, **rules: Any) -> Any:
    """Return a server for HTTP."""
    from eventq.http.site import Server

    return Server(threads, listen, **rules)


def prepare() -> None:
    """Prepare this process for a long life."""
    processes.serve_long()
    causing.disown()
    gc.set_threshold(2_000, 10, 10)  # as ever: what the command line set is for short lives
    _return_long_blocks()


def _return_long_blocks() -> None:
    """Make the C library return long blocks to the system as soon as they are freed.

    Otherwise glibc raises its limit for that with each long block that is freed, up to 32 MiB, and
    keeps what lies between blocks in use: a server that once sent 256 MiB of replies would keep
    twice as much for good.
    """
    import ctypes

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LONG_BLOCK)


def _on_end(do: Any) -> None:
    for number in processes.ends():
        # When a terminal closes, shell and kernel both send one: only another signal hurries.
        is_second = number == signal.SIGHUP and do == signal.SIG_DFL
        signal.signal(number, _go_on if is_second else do)


def _go_on(*_: object) -> None:
    """Take a signal, and do nothing."""


def token_of(token: str | None) -> str:
    """Return what every peer has to show; handlers that events start do not inherit it."""
    from eventq.system import environment

    known = environment.take_env("EVENTQ_TOKEN")
    name, found = ("--token", token) if token is not None else ("EVENTQ_TOKEN", known)
    if len(found) > MAX_TOKEN:
        what = f"{name} has {len(found)} characters"
        raise UsageError(what, f"give a token of at most {MAX_TOKEN}")
    return found


TOKENS = Option(
    "tokens FILE",
    "More tokens for HTTP, a JSON object a line. Each has a name, a value, and as right one or more"
    " of read, push, work, all and answer.",
    kinds.path,
)
COMMANDS = {
    "serve": Command(
        serve,
        [
            Option(
                "listen ADDRESS",
                "HOST:PORT or unix:PATH, for the binary protocol; port 0 picks one (default without"
                " --http: 127.0.0.1:9009).",
            ),
            *together(
                "web",
                Option("http ADDRESS", "HOST:PORT, where port 0 picks one, for HTTP."),
                Option("write", "Let those with the token change things over HTTP, too."),
                Option(
                    "insecure-local",
                    "Allow changes over HTTP from this machine without a token.",
                ),
                TOKENS,
                Option("mcp", "Speak MCP too, at /mcp, and at /mcp/NAME for any thread."),
            ),
            Option(
                "token TOKEN",
                "The token that clients must send (default: EVENTQ_TOKEN). Required if other"
                " machines can connect. Other users can read command lines: prefer the variable.",
            ),
            *together(
                "limits",
                Option(
                    "connections N",
                    "Serve at most N connections at once.",
                    kinds.POSITIVE,
                    default="4096",
                ),
                Option(
                    "idle DURATION",
                    "Close a connection after this much silence.",
                    kinds.seconds,
                    default="3600",
                ),
                Option(
                    "frame BYTES",
                    "Refuse longer requests; the default is the maximum.",
                    kinds.POSITIVE,
                    default="67108864",
                ),
                Option(
                    "in-flight BYTES",
                    "Limit the memory for all requests and replies together.",
                    kinds.POSITIVE,
                    default="268435456",
                ),
            ),
            *together(
                "rules",
                Option(
                    "keys RULE",
                    "How the idempotency key of an APPEND_TURN counts. matching: only with the"
                    " same bytes, type and non-zero parent; then the first turn is returned,"
                    " otherwise the turn is appended. strict: a key is one turn, and other bytes"
                    " are refused. ignore: never. The keys of commands always count.",
                    kinds.Choice(*_KEYS),
                    default="matching",
                ),
                Option(
                    "foreign-roots",
                    "Accept file-tree roots that are not stored blobs. This is for trees that are"
                    " kept elsewhere, and concerns ATTACH_FS and APPEND_TURN.",
                ),
            ),
            Option(
                "thread PATH…",
                "The directory or URL of a thread; over HTTP, may be repeated (default:"
                " $EVENTQ_THREAD).",
                kinds.place,
            ),
            JSON,
        ],
        "eventq serve --thread ./inbox --listen 127.0.0.1:9009",
        "eventq serve --thread ./inbox --listen unix:./inbox.sock",
        "eventq serve --thread ./inbox --keys strict",
        "EVENTQ_TOKEN=$(openssl rand -hex 16) eventq serve --thread ./inbox --http 127.0.0.1:9010"
        " --write",
        rules=[choose_threads, needs("tokens", "http")],
    )
}
