"""The generated parts of the documents.

`python -m tests.reference` writes them; a test fails when they are out of date.
"""

from __future__ import annotations

import ast
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eventq.cli import groups
from eventq.output import artifacts
from eventq.running import supervisor
from eventq.store import queue_rules
from eventq.wire import frames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = Path(__file__).parent.parent
DIAGRAMS = {  # page of promises: mark: transitions, initial states
    "consumers": {
        "states": (supervisor.TRANSITIONS, ["look"]),
        "queue": (queue_rules.TRANSITIONS, ["unexamined"]),
    },
    "output": {"artifacts": (artifacts.TRANSITIONS, ["open"])},
    "servers": {"server": (frames.SERVER, ["new", "locked"])},
}


class CommandText(NamedTuple):
    """What the reference shows of one command; `options` are pairs of a label and its meaning."""

    name: str
    words: str
    summary: str
    options: list[tuple[str, str]]
    examples: list[str]


def declared() -> Iterator[CommandText]:
    """Yield every command, in the order of the table.

    The only function here that knows how commands are declared.
    """
    for name, command in groups.every().items():
        words = command.words
        options = []
        for option in command.options:
            label = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
            needed = " Required." if option.required and not option.env else ""
            options.append(
                (f"{label} {option.value}" if option.value else label, option.described + needed)
            )
        yield CommandText(name, words, command.help, options, list(command.examples))


def cell(text: str) -> str:
    """Return a text as it can stand in a cell of a table."""
    return text.replace("|", r"\|")


def index() -> str:
    """Return a table of commands for each part of the help, each linked to its section."""
    return "\n\n".join(
        "\n".join([f"**{name}**:{about}", "", "| Command | Purpose |", "|---|---|", *rows(words)])
        for part, words in groups.PARTS.items()
        for name, _, about in [part.partition(":")]
    )


def rows(words: Collection[str]) -> Iterator[str]:
    """Yield a row of the index for each command that begins with one of the words."""
    for command in declared():
        if command.name.split()[0] in words:
            anchor = f"#eventq-{command.name.replace(' ', '-')}"
            yield f"| [{command.name}]({anchor}) | {cell(command.summary)} |"


def commands() -> str:
    """Return a section for each command: usage, summary, options, examples."""
    return "\n\n".join(section(command) for command in declared())


def section(command: CommandText) -> str:
    """Return the section of one command."""
    usage = " ".join(filter(None, ["eventq", command.name, "[OPTIONS]", command.words]))
    summary = textwrap.fill(command.summary, 100)
    lines = [f"### eventq {command.name}", "", summary, "", "```text", usage, "```"]
    if command.options:
        lines += ["", "| Option | Meaning |", "|---|---|"]
        lines += [f"| `{label}` | {cell(meaning)} |" for label, meaning in command.options]
    if command.examples:
        lines += ["", "For example:", "", "```sh", *command.examples, "```"]
    return "\n".join(lines)


def tree() -> str:
    """Return the modules of the package, each with the first line of its docstring."""
    lines = []
    modules = (ROOT / "eventq").rglob("*.py")
    for path in sorted(modules, key=lambda p: (len(p.relative_to(ROOT).parts) > 2, str(p))):
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        lines.append(f"{path.relative_to(ROOT).as_posix():<30} {doc.splitlines()[0]}")
    return "\n".join(["```text", *lines, "```"])


def diagram(table: dict[str, dict[str, str]], initial: list[str]) -> str:
    """Return a table of transitions as a Mermaid state diagram."""
    arrows = [f"[*] --> {state}" for state in initial]
    for state, events in table.items():
        arrows += [f"{state} --> {to}: {event}" for event, to in events.items()]
        arrows += [] if events else [f"{state} --> [*]"]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```"]
    )


def filled(name: str, parts: dict[str, str]) -> str:
    """Return a document with the text between each pair of marks replaced."""
    text = (ROOT / name).read_text()
    for mark, content in parts.items():
        head, rest = text.split(f"<!-- {mark} -->\n", 1)
        tail = rest.split(f"<!-- /{mark} -->", 1)[1]
        text = f"{head}<!-- {mark} -->\n{content}\n<!-- /{mark} -->{tail}"
    return text


def documents() -> dict[str, str]:
    """Return each document with generated parts, by name, as it should be."""
    generated = {
        "docs/modules.md": {"tree": tree()},
        **{
            f"docs/spec/{page}.md": {mark: diagram(*table) for mark, table in tables.items()}
            for page, tables in DIAGRAMS.items()
        },
        "docs/reference.md": {"index": index(), "commands": commands()},
    }
    return {name: filled(name, parts) for name, parts in generated.items()}


if __name__ == "__main__":
    from tests.mcp import exchange  # it starts servers, which the test of these here need not do

    for document, text in {**documents(), exchange.PAGE: exchange.page()}.items():
        (ROOT / document).write_text(text)
        sys.stdout.write(f"wrote {os.path.relpath(ROOT / document)}\n")
