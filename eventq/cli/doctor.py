"""Say what is installed where, and whether it works."""

from __future__ import annotations

import os
import sys
from functools import cache
from shlex import join, quote

from eventq.cli import kinds, show
from eventq.cli.options import JSON
from eventq.cli.table import Command, Option
from eventq.errors import EventqError, cited
from eventq.record import Record
from eventq.running import coding_agents
from eventq.running.coding_agents import AGENTS
from eventq.store.paths import is_shared, shown
from eventq.system import clock, environment, processes
from eventq.system.counts import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from eventq.running.coding_agents import Agent
    from eventq.thread import Thread

# The extras, each with the module of its package and what needs it.
EXTRAS = {
    "mcp": ("mcp", "'eventq mcp'"),
    "postgres": ("psycopg", "threads in PostgreSQL"),
}
_CHECKED_BYTES = 64 << 20  # of a database that is checked in a moment
_TRIAL_SECONDS = 60  # for a program that takes a fiftieth of a second, on a busy machine
_TRIAL = '{"hook_event_name": "Stop", "session_id": "eventq doctor"}'
_OK, _ABSENT, _WARNING, _BROKEN = "ok", "absent", "warning", "broken"


class Finding(Record):
    """What is found: `ok`, `absent`, a `warning` or `broken`, of what, and what to do about it."""

    state: str
    about: str
    what: str
    fix: str = ""


def doctor(*, thread: str | None, json: bool) -> int:
    """Say what is installed where, and whether it works.

    It looks at eventq itself, at a thread, and at what the settings of coding agents for you and
    for this directory say of eventq. Each hook and MCP server of eventq is tried with a thread of
    its own, which is deleted again. Nothing else is written. The exit status is 1 if something is
    broken.
    """
    found = [*_guarded("eventq", _eventq)]
    if thread is not None:
        found += _guarded("thread", _thread, thread)
    for agent in AGENTS.values():
        found += _guarded(agent.title, _agent, agent)
        found += _guarded(agent.title, _gone, agent)
    is_ok = not any(one.state == _BROKEN for one in found)
    if json:
        show.dump({"ok": is_ok, "findings": [one._asdict() for one in found]})
    else:
        for one in found:
            fix = f" - {one.fix}" if one.fix else ""
            show.say(show.readable(f"{one.state:7}  {one.about}: {one.what}{fix}"))
    return 0 if is_ok else 1


def _guarded(
    about: str, part: Callable[..., Iterator[Finding]], *values: object
) -> Iterator[Finding]:
    """Yield the findings of a part; whatever it stumbles over is one more."""
    try:
        yield from part(*values)
    except EventqError as error:
        yield Finding(_BROKEN, about, error.what, error.advice)
    except Exception as error:  # noqa: BLE001 (of files that hold any nonsense)
        what = f"could not be checked: {error or type(error).__name__}"
        yield Finding(_BROKEN, about, what, "look at what is named here")


def _eventq() -> Iterator[Finding]:
    from importlib.util import find_spec

    from eventq import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    what = f"{__version__}, {join(processes.program())}, Python {python} ({sys.executable})"
    yield Finding(_OK, "eventq", what)
    for name, (module, use) in EXTRAS.items():
        if find_spec(module):
            yield Finding(_OK, f"extra {name}", "installed")
        else:
            yield Finding(_ABSENT, f"extra {name}", f"not installed (needed for {use})")


def _thread(place: str) -> Iterator[Finding]:
    from eventq.thread import Thread

    with Thread(place, read_only=True) as thread:
        about, status = f"thread {thread.path}", thread.status()
        events = count(status.event_count, "event")
        yield Finding(_OK, about, f"{events}, {count(status.db_bytes, 'byte')}")
        paths = [] if is_shared(place) else [thread.path, thread.layout.database]
        for path in paths:
            if not os.access(path, os.W_OK) or not os.stat(path).st_mode & 0o222:
                fix = f"run {cited(f'chmod u+w {quote(path)}')}, or see who owns it"
                yield Finding(_BROKEN, about, f"'{path}' may not be written", fix)
        if not is_shared(place) and not thread.database.has_memory():
            what = "the original 'thread' tool wrote it, and it was not brought up to date"
            yield Finding(_WARNING, about, what, "push an event")
        if status.db_bytes > _CHECKED_BYTES:
            yield Finding(_OK, about, "not checked, as it is large; 'eventq check' does that")
        for fault in thread.check() if status.db_bytes <= _CHECKED_BYTES else []:
            yield Finding(_BROKEN, about, fault, "see 'eventq check --help'")
        for what in thread.warnings():
            yield Finding(_WARNING, about, what, "see 'eventq info'")
        yield Finding(_OK, about, _newest(thread))


def _newest(thread: Thread) -> str:
    """Return what the newest event of a hook is, and how old."""
    from datetime import datetime

    from eventq.cli.render import duration

    names = {event for agent in AGENTS.values() for event in agent.events}
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    found = thread.last(1, filter=f"type = 'record' AND subtype IN ({listed})")
    if not found:
        return "no event of a hook"
    age = clock.now() - datetime.fromisoformat(found[0].created_at).timestamp()
    return f"the newest event of a hook is {found[0].subtype}, stored {duration(age)} ago"


def _agent(agent: Agent) -> Iterator[Finding]:
    if not agent.is_here():
        yield Finding(_ABSENT, agent.title, "not found on this machine")
        return
    scopes = {path: scope for scope in ("project", "user") for path in agent.files(scope)}
    targets: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for path in filter(os.path.lexists, scopes):
        try:
            held = coding_agents.settings(path)
        except EventqError as error:
            yield Finding(_BROKEN, agent.title, error.what, error.advice)
            continue
        if held.is_off:
            what = f"all hooks are turned off in {path}"
            yield Finding(_WARNING, agent.title, what, "remove 'disableAllHooks' there")
        for entry in held.entries:
            about, to = f"{agent.title}, {path}, {entry.event}", shown(entry.thread)
            if entry.matcher:
                what = f"only what matches {entry.matcher!r} is sent to {to}"
                yield Finding(_WARNING, about, what, "remove 'matcher' there to have all sent")
            if not entry.seconds >= (least := agent.limit(entry.event)):
                what = f"its 'timeout' is less than {least} s, so that events for {to} may be lost"
                yield Finding(_WARNING, about, what, "run 'eventq hooks install' again")
            targets.setdefault((path, entry.program, entry.thread), []).append(entry.event)
    if not targets:
        yield Finding(_OK, agent.title, "no hooks of eventq; 'eventq hooks install' adds them")
    for (path, program, place), events in targets.items():
        about = f"{agent.title}, {path}, {', '.join(events)}"
        yield from _guarded(about, _target, about, program, place, scopes[path])
    yield from _guarded(agent.title, _doubled, agent, targets)
    for path in {agent.skill("user"): 0, agent.skill("project"): 0}:
        yield from _guarded(f"{agent.title}, {path}", _skill, f"{agent.title}, {path}", path)
    for path in agent.configs():
        yield from _guarded(f"{agent.title}, {path}", _servers, f"{agent.title}, {path}", path)


def _gone(agent: Agent) -> Iterator[Finding]:
    """Yield what `hooks install` has put into files that are looked at, and is there no more."""
    noted = coding_agents.remembered()
    for scope in ("project", "user"):
        for path in filter(noted.get, agent.files(scope)):
            try:
                held = {(one.event, one.thread) for one in coding_agents.settings(path).entries}
            except EventqError:
                continue  # which is said already
            lost: dict[str, list[str]] = {}
            for event, place in sorted(noted[path] - held):
                lost.setdefault(place, []).append(event)
            for place, events in lost.items():
                where = f"--agent {agent.name} --scope {scope} --thread {quote(shown(place))}"
                again = cited(f"eventq hooks install {where} --events {','.join(events)}")
                end = cited(f"eventq hooks uninstall {where}")
                fix = f"run {again}, or {end} if nothing is to be sent there"
                what = f"hooks that were installed for {shown(place)} are gone"
                yield Finding(_BROKEN, f"{agent.title}, {path}, {', '.join(events)}", what, fix)
        path = agent.skill(scope)
        if path in noted and coding_agents.skill_state(path) == "absent":
            fix = "run 'eventq hooks install' again, or 'eventq hooks uninstall'"
            yield Finding(_WARNING, f"{agent.title}, {path}", "it was installed and is gone", fix)


def _doubled(
    agent: Agent, targets: dict[tuple[str, tuple[str, ...], str], list[str]]
) -> Iterator[Finding]:
    """Yield a warning for each event that several hooks send to one thread."""
    sent = [(event, place) for (_, _, place), events in targets.items() for event in events]
    for event, place in dict.fromkeys(one for one in sent if sent.count(one) > 1):
        fix = "remove one of them, for example by 'eventq hooks uninstall --scope project'"
        yield Finding(_WARNING, agent.title, f"several hooks store {event} in {shown(place)}", fix)


def _target(about: str, program: tuple[str, ...], place: str, scope: str) -> Iterator[Finding]:
    """Yield whether a hook leads to a thread, and whether its program stores what it is sent."""
    from eventq.thread import exists

    label = shown(place)
    again = f"run {cited(f'eventq hooks install --scope {scope} --thread {quote(label)}')}"
    if scope == "project" and is_shared(place):
        what = f"{label} was not looked for, as settings of a project may name any server"
        fix = f"if you know that server, run {cited(f'eventq info --thread {quote(label)}')}"
        yield Finding(_WARNING, about, what, fix)
    elif not exists(place):
        begin = cited(f"eventq init {quote(label)}")
        fix = f"run {begin}, or 'eventq hooks uninstall' with this thread"
        yield Finding(_BROKEN, about, f"there is no thread at {label}", fix)
    if scope == "project" and [*program] != processes.program():
        # A folder that was copied from somewhere must not decide what runs here.
        what = f"{join(program)} was not tried, as settings of a project may name anything"
        yield Finding(_WARNING, about, what, again)
    elif reason := _trial(program):
        yield Finding(_BROKEN, about, f"{join(program)} stores nothing: {reason}", again)
    else:
        yield Finding(_OK, about, f"{join(program)} stores what it is sent; the thread is {label}")


@cache
def _trial(program: tuple[str, ...]) -> str | None:
    """Send an event to a thread of its own as an agent would; return why it was not stored."""
    from subprocess import DEVNULL, TimeoutExpired, run
    from tempfile import TemporaryDirectory

    from eventq.thread import Thread, init

    with TemporaryDirectory(prefix="eventq-doctor-") as folder:
        place = init(os.path.join(folder, "thread"), any_mount=True)
        line = coding_agents.command(program, place)
        with open(os.path.join(folder, "stderr"), "w+b") as errors:
            try:
                run(  # noqa: S603 (what an agent would run)
                    ["/bin/sh", "-c", line], input=_TRIAL.encode(), stdout=DEVNULL, stderr=errors,
                    cwd=folder, env={**environment.environ, "EVENTQ_NOTIFIER": "none"},
                    timeout=_TRIAL_SECONDS, check=False,
                )  # fmt: skip
            except TimeoutExpired:
                return f"it did not end within {_TRIAL_SECONDS}s"
            with Thread(place, read_only=True) as thread:
                if [event.content for event in thread.last(1)] == [_TRIAL]:
                    return None
            errors.seek(0)
            return errors.readline(500).decode(errors="replace").strip() or "it gives no reason"


def _skill(about: str, path: str) -> Iterator[Finding]:
    state = coding_agents.skill_state(path)
    if state == "older":
        yield Finding(_WARNING, about, "of another version", "run 'eventq hooks install' again")
    elif state == "changed":
        fix = "compare it with 'eventq guide'; 'eventq hooks install' keeps it as a backup"
        yield Finding(_WARNING, about, "changed by somebody", fix)
    elif state != "absent":
        yield Finding(_OK, about, state)


def _servers(about: str, path: str) -> Iterator[Finding]:
    """Yield whether the MCP servers that name eventq can be started, and whether hooks are off."""
    if coding_agents.are_hooks_off(path):
        yield Finding(_WARNING, about, "hooks are turned off", "set 'hooks = true' in [features]")
    for name, server in coding_agents.mcp_servers(path):
        command, args, url = (server.get(key) for key in ("command", "args", "url"))
        words = [str(word) for word in (args if isinstance(args, list) else [])]
        if isinstance(url, str) and "eventq" in name:
            yield Finding(_OK, about, f"MCP server {name} is reached over HTTP, and was not tried")
        if not isinstance(command, str) or "eventq" not in "".join([name, command, *words]):
            continue
        if not processes.which(os.path.expandvars(command)):
            fix = f"give the absolute path of the program as the command of {name}"
            yield Finding(_BROKEN, about, f"MCP server {name}: there is no {command}", fix)
        elif reason := _ends(os.path.basename(command), words, server):
            fix = "'eventq mcp --print-config' shows settings that work"
            yield Finding(_BROKEN, about, f"MCP server {name} ends at once: {reason}", fix)
        else:
            yield Finding(_OK, about, f"MCP server {name} starts {command}")


def _ends(program: str, words: list[str], server: dict[str, Any]) -> str | None:
    """Return why `eventq mcp` ends at once with these words; None if it does not, or is not tried.

    A folder that was copied must not decide what runs here, nor which server is sent a password:
    this eventq is started, and only for a thread of this machine.
    """
    from eventq.thread import exists

    at = words.index("mcp") if "mcp" in words else -1
    if at < 0 or (words[at - 1] if at else program) != "eventq":
        return None
    place, others = _without("--thread", words[at + 1 :])
    named = server.get("env")
    default = named.get("EVENTQ_THREAD") if isinstance(named, dict) else None
    place = place or default or environment.env("EVENTQ_THREAD")
    if not place:
        return "it has no --thread"
    if not isinstance(place, str) or "cwd" in server or "$" in place or is_shared(place):
        return None
    return _mcp_trial(tuple(others)) if exists(place) else f"there is no thread at {place}"


def _without(option: str, words: list[str]) -> tuple[str, list[str]]:
    """Return the value that words give an option, "" for none, and the other words."""
    for at, word in enumerate(words):
        if word == option:
            return "".join(words[at + 1 : at + 2]), words[:at] + words[at + 2 :]
        if word.startswith(f"{option}="):
            return word.partition("=")[2], words[:at] + words[at + 1 :]
    return "", words


@cache
def _mcp_trial(words: tuple[str, ...]) -> str | None:
    """Start `eventq mcp` with no input, for a thread of its own; return why it fails."""
    from subprocess import DEVNULL, TimeoutExpired, run
    from tempfile import TemporaryDirectory

    from eventq.thread import init

    with TemporaryDirectory(prefix="eventq-doctor-") as folder:
        place = init(os.path.join(folder, "thread"), any_mount=True)
        try:
            done = run(  # noqa: S603 (this program; a second --thread is an error)
                [*processes.program(), "mcp", "--thread", place, *words], stdin=DEVNULL,
                capture_output=True, timeout=_TRIAL_SECONDS, check=False,
            )  # fmt: skip
        except TimeoutExpired:
            return f"it did not end within {_TRIAL_SECONDS}s"
        except (OSError, ValueError) as error:  # words that no program can be given
            return str(error)
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return (said.removeprefix("Error: ") or "it says nothing") if done.returncode else None


COMMANDS = {
    "doctor": Command(
        doctor,
        [
            Option("thread PATH", "Look at this thread, too.", kinds.place).or_from(
                "EVENTQ_THREAD"
            ),
            JSON,
        ],
        "eventq doctor",
        "eventq doctor --thread ./inbox --json",
    )
}
