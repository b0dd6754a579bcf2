"""The command that serves a thread to clients of other languages, and of other machines."""

from __future__ import annotations

import signal
from contextlib import suppress

from eventq.cli import kinds, show
from eventq.cli.options import FOLDER, JSON
from eventq.cli.table import Command, Option, together
from eventq.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Bounds(TypedDict):
        """What peers may take."""

        connections: int
        idle: float
        frame: int
        in_flight: int

    class Service(TypedDict):
        """How requests are taken."""

        keys: bool
        foreign_roots: bool


MAX_TOKEN = 1024  # characters: more might not fit into a HELLO
_MMAP_THRESHOLD = -3  # the parameter of glibc's mallopt
_LONG_BLOCK = 1 << 20  # bytes


def serve(
    *,
    thread: str,
    listen: str,
    token: str | None,
    limits: Bounds,
    service: Service,
    json: bool,
) -> int:
    """Serve until SIGTERM or SIGINT, then finish what was begun; the second of them ends it at once."""
    from eventq.wire.server import Limits, Server

    ended_by: list[int] = []
    _return_long_blocks()
    server = Server(thread, listen, token=_token(token), limits=Limits(**limits), **service)

    def stop(number: int, _: object) -> None:
        ended_by.append(number)
        server.stop()
        _on_end(signal.SIG_DFL)  # the system's own: a KeyboardInterrupt would come out inside asyncio

    def ready(address: str) -> None:
        _on_end(stop)
        show.note(f"listening on {address}")
        if json:
            show.dump({"listening": address})

    server.run(ready)
    return 130 if ended_by[:1] == [signal.SIGINT] else 0


def _return_long_blocks() -> None:
    """Have the C library give long blocks back to the system as soon as they are freed.

    glibc otherwise raises its limit for that with each long block that is freed, up to 32 MiB, and keeps what lies
    between blocks that are in use: a server that had 256 MiB of replies to send would keep twice as much for good.
    """
    import ctypes

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LONG_BLOCK)


def _on_end(do: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do)


def _token(token: str | None) -> str:
    """Return what every peer has to show. The handlers that their events start do not inherit it."""
    from eventq import system

    known = system.take_env("EVENTQ_TOKEN")
    name, found = ("--token", token) if token is not None else ("EVENTQ_TOKEN", known)
    if len(found) > MAX_TOKEN:
        what = f"{name} has {len(found)} characters"
        raise UsageError(what, f"give a token of at most {MAX_TOKEN}")
    return found


COMMANDS = {
    "serve": Command(
        serve,
        "Serve the thread over the binary protocol, until SIGTERM. What was begun then is finished and answered.",
        [
            Option(
                "listen ADDRESS",
                "HOST:PORT, where port 0 picks one, or unix:PATH.",
                default="127.0.0.1:9009",
            ),
            Option(
                "token TOKEN",
                "The token of every peer (default: EVENTQ_TOKEN). The variable is in no list of"
                " processes. Needed where other machines can connect.",
            ),
            *together(
                "limits",
                Option("connections N", "Serve at most N connections at once.", kinds.POSITIVE, default="4096"),
                Option(
                    "idle SECONDS",
                    "Close a connection after this much silence.",
                    kinds.seconds,
                    default="3600",
                ),
                Option(
                    "frame BYTES",
                    "Refuse longer requests; the default is the most.",
                    kinds.POSITIVE,
                    default="67108864",
                ),
                Option(
                    "in-flight BYTES",
                    "Hold at most this much of all requests and replies.",
                    kinds.POSITIVE,
                    default="268435456",
                ),
            ),
            *together(
                "service",
                Option(
                    "ignore-keys",
                    "Ignore the idempotency key of an APPEND_TURN. This is for clients of the"
                    " protocol whose key is a hash; those of eventq.connect and of the commands"
                    " count as ever.",
                    kinds.OFF,
                    parameter="keys",
                ),
                Option(
                    "foreign-roots",
                    "Accept roots that are no stored blobs. File trees are kept elsewhere then;"
                    " this concerns ATTACH_FS, and APPEND_TURN with a root.",
                ),
            ),
            FOLDER,
            JSON,
        ],
        examples=[
            "eventq serve --thread ./inbox --listen 127.0.0.1:9009",
            "eventq serve --thread ./inbox --listen unix:./inbox.sock",
        ],
    ),
}
