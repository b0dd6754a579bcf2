"""Definitions for service managers, which keep `eventq work` running."""

from __future__ import annotations

import os

from eventq.cli import kinds, show
from eventq.cli.options import JSON_ERRORS, choose_threads
from eventq.cli.rules import needs
from eventq.cli.table import Command, Option, together
from eventq.cli.work import ALLOW, LABEL
from eventq.errors import NotAThreadError, UsageError
from eventq.log.claims import milliseconds
from eventq.store.address import parse
from eventq.store.paths import is_shared, is_url, resolve, resolve_folder, shown
from eventq.system import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.cli.work import Shared

_GRACE_SECONDS = 30  # unless it is given
_END_SECONDS = 20  # beyond the grace period, for what was killed to be gone
_UNIT = """\
# {path}
#
# To install it:
#
#   {command} | {tee}
#   {ctl} daemon-reload
#   {ctl} enable --now {name}
#
# To see what it does, and to end it:
#
#   {journal} -f
#   {ctl} disable --now {name}
#{more}
[Unit]
Description={description}
RequiresMountsFor={mounts}

[Service]
Type=exec
ExecStart={start}
{user}Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec={timeout}

[Install]
WantedBy={target}
"""
_LINGER = """
# So that it also runs while you are not logged in:
#
#   loginctl enable-linger
#"""


def systemd(*, thread: list[str], all: list[str], user: bool, grace: float, shared: Shared) -> None:
    """Print a systemd unit that runs handlers.

    It runs 'eventq work' for the threads. The first lines say how to install it.
    """
    places = [*_threads(thread), *_folders(all)]
    words = [word for option, path in places for word in (option, path)]
    paths = [path for _, path in places]
    files = [path for path in paths if not is_url(path)]
    if shared["allow"] is not None:
        files.append(os.path.abspath(shared["allow"]))
        words += ["--allow", files[-1]]
        words += [word for label in shared["label"] for word in ("--label", label)]
    elif any(map(is_shared, paths)):
        raise UsageError(
            "a worker runs of threads in PostgreSQL only what a file allows", "add --allow FILE"
        )
    name = os.path.basename(paths[0])
    if is_url(paths[0]):
        address = parse(paths[0])
        name = address.thread or os.path.basename(address.database.partition("?")[0])
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)
    name = f"eventq-{slug.strip('-') or 'work'}"
    folder = "~/.config/systemd/user" if user else "/etc/systemd/system"
    sudo = "" if user else "sudo "
    # What is started at the end would be killed with the service.
    command = [*processes.program(), "work", *words, "--grace", _digits(grace), "--no-dispatch"]
    options = ["--user"] * user + ["--grace", _digits(grace)] * (grace != _GRACE_SECONDS)
    show.say(
        _UNIT.format(
            path=f"{folder}/{name}.service",
            command=_line("eventq", "service", "systemd", *words, *options),
            tee=f"{sudo}tee {folder}/{name}.service",
            ctl=f"{sudo}systemctl{' --user' * user}",
            journal=f"journalctl {'--user ' * user}-u {name}",
            name=name,
            more=_LINGER if user else "",
            description=_literal(f"eventq handlers of {', '.join(paths)}"),
            mounts=" ".join(map(escape, files)),
            start=" ".join(escape(word).replace("$", "$$") for word in command),
            user="" if user else f"User={_owner(files[0])}\n",
            timeout=_digits(grace + _END_SECONDS),
            target="default.target" if user else "multi-user.target",
        ).rstrip("\n")
    )


def _threads(paths: list[str]) -> list[tuple[str, str]]:
    from eventq.thread import exists

    for path in paths:
        if not exists(path):
            raise NotAThreadError(path)
    return [("--thread", shown(path) if is_url(path) else resolve(path)) for path in paths]


def _folders(paths: list[str]) -> list[tuple[str, str]]:
    return [("--all", shown(path) if is_url(path) else resolve_folder(path)) for path in paths]


def _digits(seconds: float) -> str:
    """Return seconds as `--grace` and systemd read them; raise UsageError for too many."""
    milliseconds(seconds, "--grace")
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def _owner(path: str) -> str:
    """Return the user whose thread it is: handlers should not run as root."""
    from pwd import getpwuid

    number = os.stat(path).st_uid
    try:
        return getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _line(*words: str) -> str:
    """Return a command line for a shell, on one line."""
    from shlex import quote

    return _literal(" ".join(map(quote, words)), percent="%")


def escape(word: str) -> str:
    """Return a word of a list in a unit."""
    plain = all(c.isascii() and (c.isalnum() or c in "/._-:+=,@") for c in word)
    if plain and word:
        return word
    text = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_literal(text)}"'


def _literal(text: str, percent: str = "%%") -> str:
    """Return text as it stands in a unit: on one line, and `%` begins no specifier."""
    return "".join(
        percent if c == "%" else f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c for c in text
    )


COMMANDS = {
    "service systemd": Command(
        systemd,
        [
            Option(
                "thread PATH…",
                "The directory or URL of a thread; may be repeated (default: $EVENTQ_THREAD).",
                kinds.place,
            ),
            Option(
                "all DIR…",
                "Work for all threads in DIR or in a database, also new ones.",
                kinds.place,
            ),
            Option("user", "Make a unit for your own services, which needs no root."),
            Option(
                "grace DURATION",
                "How long running handlers may take to end.",
                kinds.duration,
                default="30s",
            ),
            *together("shared", ALLOW, LABEL),
            JSON_ERRORS,
        ],
        "eventq service systemd --thread ./inbox",
        "eventq service systemd --all /srv/threads --user",
        rules=[choose_threads, needs("label", "allow")],
    )
}
