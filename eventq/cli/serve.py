"""The command that serves a thread to clients of other languages, and of other machines."""

from __future__ import annotations

import signal
from contextlib import suppress

from eventq import system
from eventq.cli import show
from eventq.cli.log import directory
from eventq.cli.options import maybe, seconds, text
from eventq.errors import UsageError
from eventq.wire.server import DEFAULT, Limits, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.cli.options import Raw

MAX_TOKEN = 1024  # characters: more might not fit into a HELLO
_MMAP_THRESHOLD = -3  # the parameter of glibc's mallopt
_LONG_BLOCK = 1 << 20  # bytes
_ENDING = (signal.SIGTERM, signal.SIGINT)


def serve(raw: Raw) -> int:
    """Serve until SIGTERM or SIGINT, then finish what was begun; the second of them ends it at once."""
    ended_by: list[int] = []
    _return_long_blocks()
    server = Server(
        directory(raw),
        text(raw, "listen") or DEFAULT,
        token=_token(raw),
        limits=_limits(raw),
        keys=not raw["ignore-keys"],
        foreign_roots=bool(raw["foreign-roots"]),
    )

    def stop(number: int, _: object) -> None:
        ended_by.append(number)
        server.stop()
        _on_end(signal.SIG_DFL)  # the system's own: a KeyboardInterrupt would come out somewhere inside asyncio

    def ready(address: str) -> None:
        _on_end(stop)
        show.note(f"listening on {address}")
        if raw["json"]:
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
    for number in _ENDING:
        signal.signal(number, do)


def _token(raw: Raw) -> str:
    """Give what every peer has to show. The handlers that their events start do not inherit it."""
    known = system.take_env("EVENTQ_TOKEN")
    told = text(raw, "token")
    name, token = ("--token", told) if told is not None else ("EVENTQ_TOKEN", known)
    if len(token) > MAX_TOKEN:
        raise UsageError(f"{name} has {len(token)} characters", f"give a token of at most {MAX_TOKEN}")
    return token


def _limits(raw: Raw) -> Limits:
    given = {
        "connections": maybe(raw, "connections", least=1),
        "idle": seconds(raw, "idle"),
        "frame": maybe(raw, "frame", least=1),
        "in_flight": maybe(raw, "in-flight", least=1),
    }
    return Limits(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
