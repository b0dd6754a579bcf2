"""Coding agents: where their settings and skills are, and what `eventq hooks` writes there.

Hooks of Claude Code and of Codex have one shape: `{"hooks": {EVENT: [{"hooks": [{"type": "command",
"command": …, "timeout": SECONDS}]}]}}`. An entry is ours if its command is one that eventq would
write for some program and some thread, so that no mark is needed that an agent might refuse.
"""

from __future__ import annotations

import os
from math import nan
from shlex import join, quote, split

from eventq.errors import READ_ONLY, LogicError, cited, refused
from eventq.record import Record
from eventq.system import disk, environment, jsonedit, processes
from eventq.system.jsontext import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

SKILL_FOLDER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "skill", "eventq"
)
_SKILL = "SKILL.md"
_BACKUP = ".eventq-backup"
_NONE = "{}\n"  # the settings that a missing file stands for
_SECONDS = 10  # that an agent waits for a hook at most, which usually takes a fiftieth of one
# Never changed: the skills that earlier versions installed end in it.
_MARK = "\n<!-- 'eventq hooks install' keeps this file up to date while it is unchanged: {} -->\n"


class Agent(Record):
    """A coding agent: the paths of its files, and the events that its hooks may listen to.

    `folder` is that of the user's settings, below the home directory unless `variable` names
    another, and of a project's. Hooks are read from all files of `settings`, and written to the
    first. `skills` is a folder below the home directory, or below that of the project, too; None
    for one inside `folder`. `usual` are the events that are stored by default, of all in `events`;
    `seconds` are time limits that the agent does not let a hook exceed.
    """

    name: str
    title: str
    folder: str
    variable: str
    settings: tuple[str, ...]
    skills: str | None
    usual: tuple[str, ...]
    events: tuple[str, ...]
    seconds: Mapping[str, int]
    advice: str

    def home(self, scope: str) -> str:
        """Return the folder of the settings of the user, or of the project in this directory."""
        if scope == "project":
            return os.path.abspath(self.folder)
        return environment.env(self.variable) or f"{environment.home(self.variable)}/{self.folder}"

    def files(self, scope: str) -> list[str]:
        """Return the paths of the settings that hold hooks."""
        names = self.settings if scope == "project" else self.settings[:1]
        return [os.path.abspath(os.path.join(self.home(scope), name)) for name in names]

    def skill(self, scope: str) -> str:
        """Return the path of eventq's skill."""
        root = "." if scope == "project" else environment.home()
        skills = self.skills or os.path.join(self.home(scope), "skills")
        return os.path.abspath(os.path.join(root, skills, "eventq", _SKILL))

    def configs(self) -> list[str]:
        """Return the paths of the files that name MCP servers."""
        if self.name == "codex":
            return [os.path.join(self.home(scope), "config.toml") for scope in ("user", "project")]
        home = environment.env(self.variable) or environment.home(self.variable)
        return [os.path.join(home, ".claude.json"), os.path.abspath(".mcp.json")]

    def limit(self, event: str) -> int:
        """Return the seconds after which the agent is to end a hook for an event."""
        return self.seconds.get(event, _SECONDS)

    def is_here(self) -> bool:
        """Return whether the agent is on this machine, or was used in this project."""
        folders = self.home("user"), self.home("project")
        return any(map(os.path.isdir, folders)) or processes.which(self.name) is not None


_SHARED = (  # events that both agents have
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse",
    "PreCompact", "PostCompact", "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
)  # fmt: skip
AGENTS = {
    # Claude Code ignores a file whose hooks have a name that it does not know. WorktreeCreate is
    # left out, as its hook has to print a path, and FileChanged, which needs names of files.
    "claude": Agent(
        "claude", "Claude Code", ".claude", "CLAUDE_CONFIG_DIR",
        ("settings.json", "settings.local.json"), None,
        ("SessionStart", "UserPromptSubmit", "Notification", "SubagentStop", "Stop", "SessionEnd"),
        (*_SHARED, "Notification", "StopFailure", "PostToolUseFailure", "PermissionDenied",
         "TaskCreated", "TaskCompleted", "TeammateIdle", "InstructionsLoaded", "ConfigChange",
         "CwdChanged", "WorktreeRemove", "Elicitation", "ElicitationResult", "Setup"),
        {}, "sessions that are open read new hooks and skills when they are started again",
    ),
    # Codex warns of a longer time. Its own folder for skills is the one of earlier versions.
    "codex": Agent(
        "codex", "Codex", ".codex", "CODEX_HOME", ("hooks.json",), ".agents/skills",
        ("SessionStart", "UserPromptSubmit", "SubagentStop", "Stop", "SessionEnd"),
        (*_SHARED, "Interrupt"),
        {"SessionEnd": 3, "Interrupt": 3},
        "it runs new hooks once they are trusted: type /hooks in it",
    ),
}  # fmt: skip


class Entry(Record):
    """A hook of eventq in settings: at which path, for which event, program and thread.

    `matcher` is what somebody lets it hear of alone, "" for everything, as `install` writes it.
    `seconds` are those after which the agent ends it; nan for what is no number.
    """

    path: tuple[str | int, ...]
    command: str
    program: tuple[str, ...]
    thread: str
    matcher: str = ""
    seconds: float = _SECONDS

    @property
    def event(self) -> str:
        """The event of the agent that it listens to."""
        return str(self.path[1])


def command(program: Sequence[str], thread: str) -> str:
    """Return the command of an entry, for a shell."""
    return join([*program, "hook", "--thread", thread])


def _ours(found: object) -> tuple[tuple[str, ...], str] | None:
    """Return program and thread of a command if eventq would write it so."""
    try:
        *program, verb, option, thread = split(str(found))
    except ValueError:
        return None
    is_ours = verb == "hook" and option == "--thread" and found == command(program, thread)
    is_program = len(program) == 1 or program[-2:-1] == ["-m"]
    if not (is_ours and is_program and os.path.basename(program[-1]) == "eventq"):
        return None
    return tuple(program), thread


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_json = Reader(parse_float=float, parse_int=float, parse_constant=_refuse)


def parse(path: str, data: bytes) -> dict[str, Any]:
    """Return the object in a file, all numbers as floats; raise LogicError."""
    try:
        value = _json.decode(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        raise LogicError(
            f"'{path}' is not valid JSON: {error}", "correct it, or move it away"
        ) from error
    if not isinstance(value, dict):
        raise LogicError(f"'{path}' is not a JSON object", "correct it, or move it away")
    return value


class Settings(Record):
    """A settings file: its bytes, None if it is missing, their text, and the hooks of eventq."""

    data: bytes | None
    text: str
    entries: list[Entry]
    is_off: bool


def settings(path: str) -> Settings:
    """Return what a settings file holds; raise LogicError for what an agent would not read."""
    data = read(path)
    value = parse(path, _NONE.encode() if data is None else data)
    text = _NONE if data is None else data.decode()
    return Settings(data, text, _entries(path, text), value.get("disableAllHooks") is True)


def _entries(path: str, text: str) -> list[Entry]:
    return [*_walk(path, parse(path, text.encode()).get("hooks", {}))]


def _walk(path: str, hooks: object) -> Iterator[Entry]:
    for event, groups in _shaped(path, "hooks", hooks, dict).items():
        for number, group in enumerate(_shaped(path, event, groups, list)):
            held = _shaped(path, event, group, dict).get("hooks", [])
            matcher = group.get("matcher")
            matcher = "" if matcher in (None, "*") else str(matcher)
            for index, hook in enumerate(_shaped(path, event, held, list)):
                found = _shaped(path, event, hook, dict).get("command")
                if ours := _ours(found):
                    place = ("hooks", event, number, "hooks", index)
                    seconds = hook.get("timeout", _SECONDS)
                    is_number = isinstance(seconds, float | int)
                    yield Entry(place, found, *ours, matcher, seconds if is_number else nan)


def _shaped(path: str, name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        word = "an object" if kind is dict else "a list"
        raise LogicError(
            f"'{path}' has hooks of a wrong shape: {word} is missing in {name!r}",
            "correct it: each event has a list of objects, each with a list named 'hooks'",
        )
    return value


class Change(Record):
    """What becomes of a file: its bytes before and after, None for no file.

    `backup` is where the bytes of before are or will be kept; `kept` says why a file stays as it is
    that might be expected to change.
    """

    agent: str
    path: str
    before: bytes | None
    after: bytes | None
    backup: str | None = None
    kept: str | None = None

    @property
    def target(self) -> str:
        """The file that is written: a link stays one."""
        return os.path.realpath(self.path)

    @property
    def outcome(self) -> str:
        """What is done to the file, in a word."""
        if self.before == self.after:
            return "absent" if self.before is None else "unchanged"
        return "created" if self.before is None else "removed" if self.after is None else "changed"


def install(agent: Agent, scope: str, thread: str, events: Sequence[str]) -> Iterator[Change]:
    """Yield the changes that send the events of an agent to a thread, and bring the skill."""
    path = agent.files(scope)[0]
    before = settings(path)
    text = before.text
    for event in events:
        hook = {
            "type": "command",
            "command": command(processes.program(), thread),
            "timeout": agent.limit(event),
        }
        text = _one(path, text, event, thread, hook)
    yield _changed(agent, path, before, text)
    path = agent.skill(scope)
    data, state = read(path), skill_state(path)
    backup = _free(path, data) if data and state == "changed" else None
    after = data if state in ("linked", "current") else skill()
    yield Change(agent.name, path, data, after, backup, "a link" if state == "linked" else None)


def _one(path: str, text: str, event: str, thread: str, hook: dict[str, Any]) -> str:
    """Return settings with exactly one of our entries for an event and a thread."""
    found = [one for one in _entries(path, text) if (one.event, one.thread) == (event, thread)]
    for one in found[:0:-1]:
        text = _without(text, one)
    if not found:
        return _with(text, event, {"hooks": [hook]})
    one = found[0]
    if not one.seconds >= hook["timeout"]:
        text = jsonedit.put(text, (*one.path, "timeout"), hook["timeout"])
    is_same = one.command == hook["command"]
    return text if is_same else jsonedit.put(text, (*one.path, "command"), hook["command"])


def uninstall(agent: Agent, scope: str, thread: str | None) -> Iterator[Change]:
    """Yield the changes that remove our entries, for one thread or any, and then the skill.

    A settings file that held nothing else, and of which there is no backup, was made by `install`.
    """
    left = 0
    for path in agent.files(scope):
        before = settings(path)
        gone = [one for one in before.entries if thread in (None, one.thread)]
        left += len(before.entries) - len(gone)
        yield _changed(agent, path, before, _without_all(before.text, gone))
    path = agent.skill(scope)
    data = read(path)
    is_ours = data is not None and skill_state(path) != "linked" and _is_marked(data)
    if left or not is_ours:
        why = "for the hooks that are left" if left else "not as 'eventq hooks' wrote it"
        yield Change(agent.name, path, data, data, kept=why if data else None)
    else:
        yield Change(agent.name, path, data, None)


def _with(text: str, event: str, group: object) -> str:
    """Return settings with one more group of hooks for an event: Codex trusts them by position."""
    if jsonedit.find(text, ("hooks",)) is None:
        text = jsonedit.add(text, (), "hooks", {})
    if jsonedit.find(text, ("hooks", event)) is None:
        text = jsonedit.add(text, ("hooks",), event, [])
    return jsonedit.add(text, ("hooks", event), None, group)


def _without(text: str, entry: Entry) -> str:
    """Return settings without an entry, and without the lists and objects that this empties."""
    path = entry.path
    text = jsonedit.drop(text, path[:-1], path[-1])
    for emptied, length in ((4, 3), (2, 2), (1, 1)):  # its group, the event, all hooks
        if not jsonedit.is_empty(text, path[:emptied]):
            break
        text = jsonedit.drop(text, path[: length - 1], path[length - 1])
    return text


def _without_all(text: str, gone: Sequence[Entry]) -> str:
    for one in reversed(gone):  # the places of those before stay the same
        text = _without(text, one)
    return text


def _changed(agent: Agent, path: str, before: Settings, text: str) -> Change:
    """Return the change of a settings file; what others wrote is kept in a backup, once."""
    data, first = before.data, path + _BACKUP
    if text == before.text or data is None:
        return Change(agent.name, path, data, data if text == before.text else text.encode())
    is_kept = os.path.lexists(first)
    is_ours = before.entries and jsonedit.is_empty(_without_all(before.text, before.entries), ())
    if not before.entries or not (is_kept or is_ours):
        return Change(agent.name, path, data, text.encode(), _free(path, data))
    is_gone = not is_kept and jsonedit.is_empty(text, ())
    after = None if is_gone else text.encode()
    return Change(agent.name, path, data, after, first if is_kept else None)


def _free(path: str, data: bytes) -> str:
    """Return the first name of a backup that is free, or is that of one with these bytes."""
    name, number = path + _BACKUP, 1
    while os.path.lexists(name) and read(name) != data:
        number += 1
        name = f"{path}{_BACKUP}-{number}"
    return name


def read(path: str) -> bytes | None:
    """Return the bytes of a file, None if there is none; raise LogicError if it is unreadable."""
    try:
        with disk.open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, f"'{path}' could not be read: {error.strerror}") from error


def apply(changes: Sequence[Change]) -> None:
    """Write the files that change, after all of them were found to be writable."""
    for one in changes:
        check(one)
    for one in changes:
        if one.before != one.after:
            _write(one)


def remembered() -> dict[str, set[tuple[str, str]]]:
    """Return what was installed where: event and thread of each hook in a file, none of a skill.

    Raises LogicError, UsageError.
    """
    path = _record()
    try:
        found = parse(path, read(path) or _NONE.encode())
        return {file: {(event, place) for event, place in held} for file, held in found.items()}
    except (TypeError, ValueError) as error:
        what = f"'{path}' is not as eventq wrote it"
        raise LogicError(what, "move it away, then run 'eventq hooks install' again") from error


def remember(changes: Sequence[Change]) -> None:
    """Note what `install` has written, so that `doctor` can tell when it is gone.

    Raises OSError, LogicError, UsageError.
    """
    noted = remembered()
    for one in changes:
        held = noted.setdefault(one.path, set())
        if os.path.basename(one.path) != _SKILL and one.after is not None:
            held |= {
                (entry.event, entry.thread) for entry in _entries(one.path, one.after.decode())
            }
    _note(noted)


def forget(changes: Sequence[Change], thread: str | None) -> None:
    """Note that `uninstall` has taken hooks away, for one thread or any, even if they were gone.

    Raises OSError, LogicError, UsageError.
    """
    noted = remembered()
    left: set[str] = set()  # agents with other hooks, for which the skill stays
    for one in changes:
        held = noted.pop(one.path, None)
        rest = {hook for hook in held or () if thread not in (None, hook[1])}
        left |= {one.agent} if rest else set()
        if rest or (held == set() and one.agent in left):
            noted[one.path] = rest
    _note(noted)


def _note(noted: Mapping[str, set[tuple[str, str]]]) -> None:
    """Write what was installed, without projects that are gone; no file if that is nothing."""
    import json
    from contextlib import suppress

    path = _record()
    kept = {
        file: sorted(held)
        for file, held in sorted(noted.items())
        if os.path.basename(file) == _SKILL or os.path.isdir(os.path.dirname(os.path.dirname(file)))
    }
    data, before = f"{json.dumps(kept, indent=2)}\n".encode(), read(path)
    if kept and data != before:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        disk.save(path, [data], mode=0o600)
    elif not kept and before is not None:
        os.unlink(path)
        with suppress(OSError):  # it holds the state of threads
            os.rmdir(os.path.dirname(path))


def _record() -> str:
    return f"{environment.state()}/hooks.json"


def check(change: Change) -> None:
    """Raise LogicError if the file of a change may not be written."""
    path = change.target
    if change.before == change.after:
        return
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    for place in (path, folder):
        if not os.access(place, os.W_OK) or not os.stat(place).st_mode & 0o222:
            command = cited(f"chmod u+w {quote(place)}")
            fix = READ_ONLY if disk.is_read_only(place) else f"run {command}"
            raise LogicError(f"'{place}' may not be written", fix)


def _write(change: Change) -> None:
    path, before = change.target, change.before
    if read(path) != before:
        raise LogicError(f"'{path}' has changed meanwhile", "run the command again")
    mode = None if before is None else os.stat(path).st_mode & 0o777
    if change.backup and before is not None and not os.path.lexists(change.backup):
        disk.save(change.backup, [before], mode=mode or 0)
    if change.after is None:
        os.unlink(path)
        if os.path.basename(path) == _SKILL and not os.listdir(os.path.dirname(path)):
            os.rmdir(os.path.dirname(path))
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    disk.save(path, [change.after], mode=0o666 if mode is None else mode)
    if mode is not None:
        os.chmod(path, mode)  # whatever the umask


def skill() -> bytes:
    """Return the skill as it is installed: with its sum, which tells who changed it."""
    with open(os.path.join(SKILL_FOLDER, _SKILL), "rb") as file:
        return _marked(file.read())


def _marked(data: bytes) -> bytes:
    from hashlib import sha256

    return data + _MARK.format(sha256(data).hexdigest()).encode()


def _is_marked(data: bytes) -> bool:
    """Return whether a skill is as `install` of some version wrote it."""
    return data == _marked(data[: -len(_marked(b""))])


def skill_state(path: str) -> str:
    """Return `absent`, `current`, `older`, `changed` by somebody, or `linked` to another place."""
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return "linked"
    data, wanted = read(path), skill()
    if data is None:
        return "absent"
    if data in (wanted, wanted[: -len(_marked(b""))]):  # the second is a copy by hand
        return "current"
    return "older" if _is_marked(data) else "changed"


def mcp_servers(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and settings of each MCP server in a file; raise LogicError if it is invalid."""
    found = _config(path)
    tables = [found, _dict(_dict(found.get("projects")).get(os.getcwd()))]
    for table in tables:
        for name, server in _dict(table.get("mcpServers", table.get("mcp_servers"))).items():
            yield name, _dict(server)


def are_hooks_off(path: str) -> bool:
    """Return whether a `config.toml` turns hooks off."""
    features = _dict(_config(path).get("features"))
    return False in (features.get("hooks"), features.get("codex_hooks"))


def _config(path: str) -> dict[str, Any]:
    data = read(path)
    if data is None or not path.endswith(".toml"):
        return {} if data is None else parse(path, data)
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise LogicError(f"'{path}' is not valid TOML: {error}", "correct it") from error


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
