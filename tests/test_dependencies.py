"""What `pip install .` brings is what the package imports; what developers need is for them alone.

The kind: a command of the documents that fails after an installation as they say it. A package that
is imported and not declared, one that is declared in an extra and imported without it, one that is
declared and imported nowhere, an extra that no user needs, and a hint that names an extra that is
not there.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
OF_EXTRAS = {"mcp": "mcp", "postgres": "store/postgres"}  # where each is imported, and engines.py
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    """Return the names of the packages that are required, normalized."""
    found = (re.match(r"[\w.-]+", one) for one in requirements)
    return {normal(one[0]) for one in found if one}


def normal(name: str) -> str:
    """Return a name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


known = functools.cache(packages_distributions)


def imported(path: Path) -> Iterator[str]:
    """Yield the packages of others that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        for top in {module.partition(".")[0] for module in modules}:
            if top != "eventq" and top not in sys.stdlib_module_names:
                yield from map(normal, known().get(top, [top]))


def test_an_installation_has_what_is_imported() -> None:
    """The dependencies are what is imported outside of the folders of extras, no more and no less."""
    of_extras = tuple(ROOT / "eventq" / folder for folder in OF_EXTRAS.values())
    engines = ROOT / "eventq/store/opening.py"
    used: dict[str, list[str]] = {}
    for path in (ROOT / "eventq").rglob("*.py"):
        if not any(path.is_relative_to(folder) for folder in of_extras):
            for name in imported(path):
                if (name, path) != ("psycopg", engines):  # which says how to install it
                    used.setdefault(name, []).append(str(path))
    declared = names(PROJECT["project"]["dependencies"])
    assert {name: used[name] for name in used.keys() - declared} == {}
    assert declared - used.keys() == {"httptools"}  # which uvicorn imports for us


def test_extras_are_for_users() -> None:
    """An extra is a part of eventq; what its developers need stands in groups, which no user sees."""
    assert PROJECT["project"]["optional-dependencies"].keys() == OF_EXTRAS.keys()
    assert {"dev", "bench", "browser", "fuzz", "release"} == PROJECT["dependency-groups"].keys()


def test_hints_name_extras_that_exist() -> None:
    """What the package, the tests, the documents and the Makefile tell to install is declared."""
    paths = [ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    paths += [*(ROOT / "eventq").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    paths.remove(ROOT / "CHANGELOG.md")  # which tells of what is gone, too
    text = "\n".join(path.read_text() for path in paths)
    extras = re.findall(r"'(?:\.|eventq)\[([\w,]+)\]'", text)
    extras += re.findall(r"\bthe extra `(\w+)`", text)
    assert {one for named in extras for one in named.split(",")} == OF_EXTRAS.keys()
    groups = set(re.findall(r"pip\) .*--group (\w+)|pip install --group (\w+)", text))
    assert {one for pair in groups for one in pair if one} <= PROJECT["dependency-groups"].keys()
