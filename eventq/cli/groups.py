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
# lists them. The first part is what most people need, in the order in which a newcomer does.
PARTS = {
    "Everyday: create a thread, store and read events, ask people, run handlers": {
        "init": "admin",
        "push": "log",
        "tail": "log",
        "peek": "log",
        "info": "admin",
        "ask": "questions",
        "questions": "questions",
        "answer": "questions",
        "subscribe": "consumer",
        "work": "work",
        "pop": "log",
        "ack": "log",
        "ui": "ui",
        "top": "top",
        "check": "admin",
    },
    "Consumers: stop and start them; claim single events; what failed": {
        "unsubscribe": "consumer",
        "pause": "consumer",
        "resume": "consumer",
        "dispatch": "consumer",
        "service": "service",
        "claim": "claims",
        "done": "claims",
        "retry": "claims",
        "extend": "claims",
        "claims": "claims",
        "dead": "dead",
    },
    "Memory: conversations in branches, runs of workflows, bytes of any size": {
        "context": "context",
        "turn": "turn",
        "run": "run",
        "blob": "blob",
        "usage": "tally",
    },
    "Output: what tools and agents put out": {
        "capture": "capture",
        "cat": "output",
        "artifact": "artifact",
        "output": "output",
    },
    "Agents and other programs: let them report, read and write": {
        "guide": "admin",
        "hooks": "hooks",
        "hook": "hook",
        "session": "session",
        "mcp": "mcp",
        "serve": "serve",
    },
    "Erasure: find a text, and erase it from every file": {
        "find": "erase",
        "event": "erase",
        "erasures": "erase",
    },
    "Care: set up, look up, clean, copy": {
        "config": "config",
        "doctor": "doctor",
        "sql": "sql",
        "prune": "admin",
        "gc": "admin",
        "mirror": "mirror",
        "pack": "pack",
        "thread": "thread",
        "completion": "admin",
    },
}
FORMER = {"thread-copy": "thread copy"}  # spellings that still work; no help lists them
MODULES = {word: module for words in PARTS.values() for word, module in words.items()}


def _module(word: str) -> Any:
    name = f"eventq.cli.{MODULES[word]}"
    __import__(name)
    return sys.modules[name]


def find(argv: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
    """Return a command line's command and the words after its name, or None."""
    if argv and argv[0] in FORMER:
        argv = [*FORMER[argv[0]].split(), *argv[1:]]
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
