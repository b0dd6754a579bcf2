"""The modules of the commands: a command line imports only the module of its group.

The docstring of a module is the help of its group.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from eventq.cli.table import Command

# The first word of each command, in the order of the reference.
MODULES = {
    "init": "admin",
    "push": "log",
    "pop": "log",
    "ack": "log",
    "peek": "log",
    "tail": "log",
    "hook": "log",
    "subscribe": "consumer",
    "unsubscribe": "consumer",
    "dispatch": "consumer",
    "pause": "consumer",
    "resume": "consumer",
    "claim": "claims",
    "done": "claims",
    "retry": "claims",
    "extend": "claims",
    "claims": "claims",
    "dead": "dead",
    "work": "work",
    "service": "service",
    "info": "admin",
    "check": "admin",
    "prune": "admin",
    "mirror": "admin",
    "gc": "admin",
    "guide": "admin",
    "completion": "admin",
    "blob": "blob",
    "context": "context",
    "turn": "turn",
    "run": "run",
    "artifact": "artifact",
    "output": "output",
    "cat": "output",
    "capture": "capture",
    "session": "session",
    "thread-copy": "session",
    "thread": "thread",
    "pack": "pack",
    "serve": "serve",
}


def _module(word: str) -> Any:
    name = f"eventq.cli.{MODULES[word]}"
    __import__(name)
    return sys.modules[name]


def find(argv: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
    """Return a command line's command and the words after its name, or None."""
    if not argv or argv[0] not in MODULES:
        return None
    commands: Mapping[str, Command] = _module(argv[0]).COMMANDS
    for length in (1, 2):
        if command := commands.get(" ".join(argv[:length])):
            return command, argv[length:]
    return None


def every() -> dict[str, Command]:
    """Return all commands by name; this imports all their modules."""
    return {
        name: command
        for word in MODULES
        for name, command in _module(word).COMMANDS.items()
        if name.split()[0] == word
    }


def about(word: str) -> tuple[str, str]:
    """Return the help and an example of a group; of a single command, its own."""
    module = _module(word)
    commands = [command for name, command in module.COMMANDS.items() if name.split()[0] == word]
    return commands[0].help if len(commands) == 1 else module.__doc__, commands[0].examples[0]
