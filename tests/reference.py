"""The generated parts of README.md, USAGE.md and SPEC.md: `python -m tests.reference` writes them, a test compares them."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

from eventq.cli import groups
from eventq.log import supervisor
from eventq.output import artifacts
from eventq.wire import frames

ROOT = Path(__file__).parent.parent
TABLES = {
    "states": supervisor.TRANSITIONS,
    "artifacts": artifacts.TRANSITIONS,
    "server": frames.SERVER,
    "client": frames.CLIENT,
}


def tree() -> str:
    """Give the modules of the package, each with the first sentence of its docstring."""
    lines = []
    for path in sorted((ROOT / "eventq").rglob("*.py"), key=lambda p: (len(p.parts) > 1, str(p))):
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        name = path.relative_to(ROOT).as_posix()
        lines.append(f"{name:<30} {doc.splitlines()[0]}")
    return "```text\n" + "\n".join(lines) + "\n```"


def states(table: dict[str, dict[str, str]]) -> str:
    """Give the states of something, and what leads from one to another."""
    rows = [f"{state:<9} --{event}--> {to}" for state, events in table.items() for event, to in events.items()]
    return "```text\n" + "\n".join(rows) + "\n```"


def commands() -> str:
    """Give every command with its options."""
    parts = []
    for name, command in groups.every().items():
        shown = [f"-- {one.value}" if "…" in one.value else one.value for one in command.arguments]
        usage = " ".join(["eventq", name, *shown])
        lines = [f"### {usage}", "", command.help]
        if command.options:
            lines += ["", "| option | means |", "|---|---|"]
        for option in command.options:
            short = f"-{option.short}, " if option.short else ""
            value = f" {option.value}" if option.value else ""
            needed = " Required." if option.required else ""
            lines.append(f"| `{short}--{option.name}{value}` | {option.described}{needed} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def filled(text: str, mark: str, content: str) -> str:
    """Give a document with the part between two marks replaced."""
    head, rest = text.split(f"<!-- {mark} -->\n", 1)
    tail = rest.split(f"<!-- /{mark} -->", 1)[1]
    return f"{head}<!-- {mark} -->\n{content}\n<!-- /{mark} -->{tail}"


def documents() -> dict[Path, str]:
    """Give the documents as they should be."""
    readme, usage, spec = ROOT / "README.md", ROOT / "USAGE.md", ROOT / "SPEC.md"
    promised = spec.read_text()
    for mark, table in TABLES.items():
        promised = filled(promised, mark, states(table))
    return {
        readme: filled(readme.read_text(), "tree", tree()),
        usage: filled(usage.read_text(), "commands", commands()),
        spec: promised,
    }


if __name__ == "__main__":
    for document, text in documents().items():
        document.write_text(text)
        sys.stdout.write(f"wrote {os.path.relpath(document)}\n")
