"""The command that shows threads in a browser."""

from __future__ import annotations

from contextlib import contextmanager

from eventq.cli import kinds, show
from eventq.cli.options import JSON, choose_threads
from eventq.cli.serve import TOKENS, http_server, prepare, token_of, tokens_of, until_signal
from eventq.cli.table import Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = "127.0.0.1:9010"


def ui(
    *, thread: list[str], all: str | None, http: str | None, tokens: str | None, browse: bool,
    json: bool,
) -> int:  # fmt: skip
    """Show threads in a browser, until SIGTERM.

    The pages say who needs you, who is stuck, and what each does. The address is for this machine
    alone; the link lets in one browser of the user who runs this, which then may also answer
    questions, try dead letters again and the like. Other browsers come in at /login, with the token
    that EVENTQ_TOKEN sets, or one of --tokens. It serves HTTP as 'eventq serve --http' does.
    """
    import secrets
    from contextlib import ExitStack

    prepare()
    token, others = token_of(None), tokens_of(tokens)
    server = http_server(
        thread or [], http or _free(), token=token or secrets.token_urlsafe(32), write=True,
        insecure=False, place=all, tokens=others,
    )  # fmt: skip

    def ready(address: str) -> None:
        show.note(f"listening on {address}")
        link = f"{_here(address, has_token=bool(token or others))}{server.link()}"
        if json:
            show.dump({"listening": address, "link": link})
        else:
            show.say(link)
        if browse:
            _open(stack.enter_context(_file_to(link)))

    with ExitStack() as stack:
        return until_signal([server], ready)


def _free() -> str:
    """Return the default address, or one of any port when that one is in use."""
    import socket

    host, _, port = DEFAULT.rpartition(":")
    try:
        socket.create_server((host, int(port))).close()
    except OSError:
        show.note(f"Note: {DEFAULT} is in use: this takes another port")
        return f"{host}:0"
    return DEFAULT


def _here(address: str, *, has_token: bool) -> str:
    """Return the URL that this machine opens; say where others come in, if that is another."""
    import socket

    host, _, port = address.removeprefix("http://").rpartition(":")
    own = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host)  # noqa: S104 (nothing is bound)
    if own is None:
        return address
    how = "with a token" if has_token else "once EVENTQ_TOKEN or --tokens sets a token"
    there = f"others come in at http://{socket.gethostname()}:{port}/login, {how}"
    show.note(f"Note: the link is for this machine; {there}")
    return f"http://{own}:{port}"


@contextmanager
def _file_to(link: str) -> Iterator[str]:
    """Write a page that leads to a link, for this user only, and return its URL.

    Every user of a machine can read the arguments of a browser that is started.
    """
    import html
    import os
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="eventq-") as folder:  # of mode 0700
        path, quoted = Path(folder, "open.html"), html.escape(link)
        page = (
            '<!doctype html><meta charset="utf-8"><title>eventq</title>'
            f'<meta http-equiv="refresh" content="0; url={quoted}"><a href="{quoted}">eventq</a>'
        )
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(page)
        yield path.as_uri()


def _open(url: str) -> None:
    """Open a URL in a browser, which may take its time to start."""
    import threading
    import webbrowser

    def run() -> None:
        if not webbrowser.open(url):
            show.note("no browser was found: open the link yourself; it works once")

    threading.Thread(target=run, daemon=True).start()


COMMANDS = {
    "ui": Command(
        ui,
        [
            Option(
                "thread PATH…",
                "The directory or URL of a thread; may be repeated (default: $EVENTQ_THREAD).",
                kinds.place,
            ),
            Option(
                "all DIR", "Every thread below DIR, or in a database, also new ones.", kinds.place
            ),
            Option(
                "http ADDRESS",
                "HOST:PORT, where port 0 picks one (default: 127.0.0.1:9010, or another port if"
                " that is in use).",
            ),
            TOKENS,
            Option(
                "no-browser",
                "Only print the link, which lets in one browser.",
                kinds.OFF,
                parameter="browse",
            ),
            JSON,
        ],
        "eventq ui --thread ./inbox",
        "eventq ui --all /srv/threads --no-browser",
        rules=[choose_threads],
    )
}
