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

# The modules of the first words of all commands, by the part of the help and the reference that
# lists them, in the order in which a newcomer needs them.
PARTS = {
    "Everyday: create a thread, store events, read them": {
        "init": "admin",
        "push": "log",
        "peek": "log",
        "tail": "log",
        "pop": "log",
        "info": "admin",
    },
    "People: ask for a decision, and answer": {
        "ask": "questions",
        "answer": "questions",
        "questions": "questions",
        "ui": "ui",
        "mcp": "mcp",
        "top": "top",
    },
    "Consumers and workers: have something done for each event": {
        "subscribe": "consumer",
        "unsubscribe": "consumer",
        "pause": "consumer",
        "resume": "consumer",
        "dispatch": "consumer",
        "work": "work",
        "service": "service",
        "ack": "log",
        "claim": "claims",
        "done": "claims",
        "retry": "claims",
        "extend": "claims",
        "claims": "claims",
        "dead": "dead",
    },
    "Memory: conversations, in branches, and bytes of any size": {
        "context": "context",
        "turn": "turn",
        "blob": "blob",
        "session": "session",
        "serve": "serve",
    },
    "Runs: workflows of several roles": {
        "run": "run",
    },
    "Output: what tools and agents put out": {
        "capture": "capture",
        "cat": "output",
        "artifact": "artifact",
        "output": "output",
        "hook": "hook",
        "hooks": "hooks",
    },
    "Care: set up, check, clean, copy, look up": {
        "config": "config",
        "check": "admin",
        "doctor": "doctor",
        "sql": "sql",
        "prune": "admin",
        "event": "erase",
        "erasures": "erase",
        "find": "erase",
        "gc": "admin",
        "mirror": "admin",
        "pack": "pack",
        "thread-copy": "session",
        "thread": "thread",
        "guide": "admin",
        "completion": "admin",
    },
}
MODULES = {word: module for words in PARTS.values() for word, module in words.items()}


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
