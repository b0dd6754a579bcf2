"""Take documents apart, and run what they show as a reader would."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def read(name: str) -> str:
    """Return the text of a document."""
    return (ROOT / name).read_text()


def environ(**more: str) -> dict[str, str]:
    """Return an environment in which `eventq` and `python` are those under test."""
    # The last one is for what a machine may lack.
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:{ROOT / 'tests/docs/bin'}"
    return {**os.environ, "PATH": path, "EVENTQ_NOTIFIER": "builtin", **more}


def blocks(language: str, text: str) -> list[str]:
    """Return the fenced blocks of a document in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines that it should print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line == ">" or line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", found[-1][1])
        else:
            found[-1][1].append(line)
    return found


def same(expected: list[str], actual: list[str]) -> bool:
    """Compare output line by line; `…` stands for any text, and all times are equal."""
    if len(expected) != len(actual):
        return False
    pairs = zip(
        expected, (_TIME.sub("2026-01-01T00:00:00.000Z", line) for line in actual), strict=True
    )
    return all(re.fullmatch(".*".join(map(re.escape, want.split("…"))), got) for want, got in pairs)


def section(text: str, title: str) -> str:
    """Return the part of a document under one heading of the second level."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def anchors(text: str) -> list[str]:
    """Return the anchors that GitHub gives the headings of a document."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
