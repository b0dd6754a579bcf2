"""The command that serves a thread to clients in other languages or on other machines."""

from __future__ import annotations

import gc
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
    thread: str,
    listen: str,
    token: str | None,
    limits: Bounds,
    keys: str,
    foreign_roots: bool,
    json: bool,
) -> int:
    """Serve the thread over the binary protocol, until SIGTERM.

    Requests in progress are answered before it exits.
    """
    from eventq.wire.server import Limits, Server

    ended_by: list[int] = []
    _return_long_blocks()
    gc.set_threshold(2_000, 10, 10)  # as ever: what the command line set is for short lives
    server = Server(
        thread,
        listen,
        token=_token(token),
        limits=Limits(**limits),
        keys=keys,
        foreign_roots=foreign_roots,
    )

    def stop(number: int, _: object) -> None:
        ended_by.append(number)
        server.stop()
        # The system's own handler: a KeyboardInterrupt would be raised inside asyncio.
        _on_end(signal.SIG_DFL)

    def ready(address: str) -> None:
        _on_end(stop)
        show.note(f"listening on {address}")
        show.note(f"keys of APPEND_TURN: {keys} ({_KEYS[keys]})")
        if json:
            show.dump({"listening": address})

    server.run(ready)
    return 130 if ended_by[:1] == [signal.SIGINT] else 0


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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do)


def _token(token: str | None) -> str:
    """Return what every peer has to show; handlers that events start do not inherit it."""
    from eventq.system import environment

    known = environment.take_env("EVENTQ_TOKEN")
    name, found = ("--token", token) if token is not None else ("EVENTQ_TOKEN", known)
    if len(found) > MAX_TOKEN:
        what = f"{name} has {len(found)} characters"
        raise UsageError(what, f"give a token of at most {MAX_TOKEN}")
    return found


COMMANDS = {
    "serve": Command(
        serve,
        [
            Option(
                "listen ADDRESS",
                "HOST:PORT, where port 0 picks one, or unix:PATH.",
                default="127.0.0.1:9009",
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
            Option(
                "keys RULE",
                "How the idempotency key of an APPEND_TURN counts. matching: only with the same"
                " bytes, type and non-zero parent; then the first turn is returned, otherwise the"
                " turn is appended. strict: a key is one turn, and other bytes are refused. ignore:"
                " never. The keys of commands always count.",
                kinds.Choice(*_KEYS),
                default="matching",
            ),
            Option(
                "foreign-roots",
                "Accept file-tree roots that are not stored blobs. This is for trees that are kept"
                " elsewhere, and concerns ATTACH_FS and APPEND_TURN.",
            ),
            FOLDER,
            JSON,
        ],
        "eventq serve --thread ./inbox --listen 127.0.0.1:9009",
        "eventq serve --thread ./inbox --listen unix:./inbox.sock",
        "eventq serve --thread ./inbox --keys strict",
    )
}
