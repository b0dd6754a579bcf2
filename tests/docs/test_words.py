"""The prose of the package is plain: docstrings say what is returned, and lines have a width."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "eventq"
COLUMNS = 100
PRAGMA = re.compile(r"  # (noqa|type: ignore).*")  # ends with the tool that reads it
OPENINGS = ("Bring", "Give", "Have", "Say", "Tell")  # in place of Return, Raise, Make, Start
LATER: tuple[str, ...] = ()  # folders and files that are still to be rewritten
MODULES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if not any(path.is_relative_to(PACKAGE / name) for name in LATER)
]
DOCUMENTED = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.Module)


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_docstring_begins_with_an_ordinary_verb(path: Path) -> None:
    """No docstring begins with one of OPENINGS: "Return" and "Raise" are what readers expect."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED)]
    first = [(ast.get_docstring(node) or " ").split(" ")[0] for node in nodes]
    assert [word for word in first if word in OPENINGS] == []


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_no_line_is_wider_than_a_screen(path: Path) -> None:
    """Code and prose end at 100 columns."""
    lines = [PRAGMA.sub("", line) for line in path.read_text().splitlines()]
    assert [(n, line) for n, line in enumerate(lines, 1) if len(line) > COLUMNS] == []


def test_what_is_left_is_listed_exactly() -> None:
    """What LATER names exists."""
    assert [name for name in LATER if not (PACKAGE / name).exists()] == []
