"""Install hooks by which coding agents report to a thread."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import JSON, thread_option
from eventq.cli.table import Command, Option, together
from eventq.errors import EventqError, LogicError, NotAThreadError, UsageError
from eventq.store.paths import is_url, resolve, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypedDict

    from eventq.running.coding_agents import Agent, Change

    class Where(TypedDict):
        """Whose settings are changed, and which."""

        agent: str | None
        scope: str

    class How(TypedDict):
        """What is done with the changes, and how they are shown."""

        dry_run: bool
        json: bool


def install(*, thread: str, where: Where, events: tuple[str, ...], how: How) -> None:
    """Send the hook events of coding agents to a thread.

    It adds 'eventq hook' to the settings of Claude Code or Codex, beside what stands there, and
    installs the skill of 'eventq guide'. A second time it changes nothing. By default these events
    are stored: sessions that start and end, prompts, notifications, and ends of turns. The session
    file of an agent that stops is imported; 'eventq config hooks.sessions off' turns that off.
    """
    from eventq.running import coding_agents
    from eventq.thread import exists

    if not exists(thread):
        raise NotAThreadError(thread)
    agents = _agents(where["agent"])
    known = {event for agent in agents for event in agent.events}
    if unknown := [event for event in events if event not in known]:
        titles = " or ".join(agent.title for agent in agents)
        raise UsageError(
            f"'{unknown[0]}' is no hook event of {titles} that 'eventq hook' can store",
            f"choose among {', '.join(sorted(known))}",
        )
    changes: list[Change] = []
    advice: list[str] = []
    for agent in agents:
        chosen = [event for event in events or agent.usual if event in agent.events]
        made = [*coding_agents.install(agent, where["scope"], _place(thread), chosen)]
        changes += made
        advice += [f"{agent.title}: {agent.advice}"] if made[0].before != made[0].after else []
    _finish(changes, advice, coding_agents.remember, **how)


def uninstall(*, thread: str | None, where: Where, how: How) -> None:
    """Remove the hooks that install made, and then the skill.

    Other hooks stay, and so does a skill that somebody changed.
    """
    from eventq.running import coding_agents

    agents = _agents(where["agent"] or "all")
    place = None if thread is None else _place(thread)
    changes = [
        change
        for agent in agents
        for change in coding_agents.uninstall(agent, where["scope"], place)
    ]
    _finish(changes, [], lambda made: coding_agents.forget(made, place), **how)


def _place(thread: str) -> str:
    """Return a thread as entries name it: wherever the agent runs, and without a password."""
    return shown(thread) if is_url(thread) else resolve(thread)


def _agents(name: str | None) -> list[Agent]:
    """Return the agents with a name, `all` of them, or without a name those that are here."""
    from eventq.running.coding_agents import AGENTS

    agents = AGENTS.values()
    found = [one for one in agents if name in (one.name, "all") or (not name and one.is_here())]
    if not found:
        raise LogicError(
            "neither Claude Code nor Codex was found", "choose with --agent claude or codex"
        )
    return found


def _finish(
    changes: Sequence[Change],
    advice: list[str],
    note: Callable[[Sequence[Change]], None],
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Make the changes and note them, unless it is a dry run, and show them."""
    from eventq.running import coding_agents

    if dry_run:
        advice = []
        for change in changes:
            coding_agents.check(change)
    else:
        coding_agents.apply(changes)
        try:
            note(changes)
        except (EventqError, OSError) as error:
            advice = [*advice, f"'eventq doctor' will not know of this: {error}"]
    if json:
        files = [
            {name: getattr(change, name) for name in ("agent", "path", "outcome", "backup", "kept")}
            | ({"diff": _diff(change)} if dry_run else {})
            for change in changes
        ]
        show.dump({"dry_run": dry_run, "files": files, "advice": advice})
    elif dry_run:
        show.say("".join(map(_diff, changes)).removesuffix("\n") or "Nothing would change")
    else:
        lines = [_line(change) for change in changes if change.outcome != "absent"]
        show.say("\n".join(lines) or "There is nothing of eventq")
        for line in advice:
            show.note(line)


def _line(change: Change) -> str:
    """Return what became of a file."""
    more = f" (kept: {change.kept})" if change.kept else ""
    more += f" (as it was before: {change.backup})" if change.backup else ""
    return show.readable(f"{change.agent}: {change.outcome} {change.path}{more}")


def _diff(change: Change) -> str:
    """Return the difference of a change as `diff -u` writes it, "" for none."""
    from difflib import unified_diff

    old, new = [
        (data or b"").decode(errors="replace").splitlines(keepends=True)
        for data in (change.before, change.after)
    ]
    before = "/dev/null" if change.before is None else change.path
    after = "/dev/null" if change.after is None else change.path
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in unified_diff(old, new, before, after)
    )


_WHERE = together(
    "where",
    Option(
        "agent AGENT",
        "Whose settings: claude, codex or all (default: those that are here).",
        kinds.Choice("claude", "codex", "all"),
    ),
    Option(
        "scope SCOPE",
        "Where: user (everywhere) or project (in this directory).",
        kinds.Choice("user", "project"),
        default="user",
    ),
)
_HOW = together("how", Option("dry-run", "Show what would change, and change nothing."), JSON)

COMMANDS = {
    "hooks install": Command(
        install,
        [
            thread_option(kinds.place),
            *_WHERE,
            Option(
                "events NAME,NAME",
                "Store these events instead. Those of each tool, such as PreToolUse and"
                " PostToolUse, are many, so that they are not stored unless they are named.",
                kinds.refs,
                default=(),
            ),
            *_HOW,
        ],
        "eventq hooks install --thread ./inbox",
        "eventq hooks install --thread ./inbox --agent claude --scope project --dry-run",
        "eventq hooks install --thread ./inbox --events PostToolUse,Stop",
    ),
    "hooks uninstall": Command(
        uninstall,
        [
            Option("thread PATH", "Remove the hooks of this thread only.", kinds.place).or_from(
                "EVENTQ_THREAD"
            ),
            *_WHERE,
            *_HOW,
        ],
        "eventq hooks uninstall",
        "eventq hooks uninstall --thread ./inbox --agent codex",
    ),
}
