"""The command that serves a thread to clients of other languages, and of other machines."""

from __future__ import annotations

import signal

from eventq import system
from eventq.cli import show
from eventq.cli.log import directory
from eventq.cli.options import maybe, seconds, text
from eventq.wire.server import DEFAULT, Limits, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.options import Raw


def serve(raw: Raw) -> int:
    """Serve until SIGTERM or SIGINT, then finish what was begun."""
    ended_by: list[int] = []
    server = Server(
        directory(raw),
        text(raw, "listen") or DEFAULT,
        token=text(raw, "token") or system.env("EVENTQ_TOKEN"),
        limits=_limits(raw),
        keys=not raw["ignore-keys"],
    )

    def stop(number: int, _: object) -> None:
        ended_by.append(number)
        server.stop()

    def ready(address: str) -> None:
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        show.note(f"listening on {address}")
        if raw["json"]:
            show.dump({"listening": address})

    server.run(ready)
    return 130 if ended_by[:1] == [signal.SIGINT] else 0


def _limits(raw: Raw) -> Limits:
    given = {
        "connections": maybe(raw, "connections", least=1),
        "idle": seconds(raw, "idle"),
        "frame": maybe(raw, "frame", least=1),
        "in_flight": maybe(raw, "in-flight", least=1),
    }
    return Limits(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
