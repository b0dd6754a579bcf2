"""The public face: its names, its values, and who may import whom."""

from __future__ import annotations

import ast
import builtins
import functools
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import eventq
from eventq import Event, errors
from eventq.store import protocol

PACKAGE = os.path.dirname(eventq.__file__)
EVENT: Event = Event(7, "2026-03-18T10:30:00.123Z", "self", "note", None, "x")

# Who may import whom: downwards only. The levels are the folders; those of one level are siblings
# that do not know each other. Between them stand the modules at the root.
LEVELS = [
    ["errors", "record"],
    ["system", "records"],
    ["log.filters", "said"],
    ["store"],
    ["log", "memory"],
    ["output"],
    ["sessions", "transfer", "erasure"],
    ["thread"],
    ["running", "serving", "aio"],
    ["wire", "http", "mcp"],
    ["cli"],
    ["__main__"],
]
LEVEL = {f"eventq.{name}": level for level, names in enumerate(LEVELS) for name in names}


def prefix(module: str) -> str:
    """Return the folder, or the module at the root, that a module stands in."""
    found = [name for name in LEVEL if module == name or module.startswith(name + ".")]
    assert found, f"{module} stands at no level"
    return max(found, key=len)


@functools.cache
def modules() -> dict[str, str]:
    """Return name and path of every module but the package itself."""
    found = {}
    for folder, _, names in os.walk(PACKAGE):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                inside = os.path.relpath(path, os.path.dirname(PACKAGE))[:-3].replace(os.sep, ".")
                found[inside.removesuffix(".__init__")] = path
    del found["eventq"]
    return found


@functools.cache
def imports(path: str, *, types: bool = True) -> set[str]:
    """Return the modules of eventq that a file imports, also in functions and for types."""
    known = {"eventq", *modules()}
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    if not types:
        tree.body = [node for node in tree.body if not _is_for_types(node)]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & known
            found.update(inside or {str(node.module)})
    return {name for name in found if name in known}


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_imports_point_down() -> None:
    """A module imports what stands below it, or what stands in its own folder."""
    for module, path in modules().items():
        mine = prefix(module)
        for other in imports(path) - {module}:
            if other == "eventq":
                assert LEVEL[mine] > LEVEL["eventq.thread"], f"{module} imports the whole package"
                continue
            below = LEVEL[prefix(other)] < LEVEL[mine]
            assert below or prefix(other) == mine, f"{module} imports {other}"


def test_no_modules_import_each_other() -> None:
    """Imports make no circle, not even those that stand in functions."""
    waiting = {module: imports(path, types=False) - {module} for module, path in modules().items()}
    while free := {module for module, others in waiting.items() if not others & waiting.keys()}:
        for module in free:
            del waiting[module]
    assert not waiting


def test_the_layout_is_small_and_its_names_are_unique() -> None:
    """At most nine levels of folders, six modules at the root, and each file name occurs once.

    The engines are alike on purpose, and the command line has a file for each group of commands.
    """
    assert sum(os.path.isdir(os.path.join(PACKAGE, *names[0].split("."))) for names in LEVELS) <= 9
    paths = [name.removeprefix("eventq.") for name in modules()]
    root = [
        path for path in paths if not os.path.isdir(os.path.join(PACKAGE, path)) and "." not in path
    ]
    assert len(root) + 1 <= 6  # and `__init__`
    apart = ("cli.", "store.")
    names = [path.split(".")[-1] for path in paths if not path.startswith(apart)]
    assert not {name for name in names if names.count(name) > 1}


ABOVE = sorted(  # the sandbox of filters is SQLite's, whatever the engine
    name for name in modules() if not name.startswith(("eventq.store.", "eventq.log.filters."))
)
HOLDERS = {"database", "_database", "db", "_db", "moment"}  # what a database is called above
OF_AN_ENGINE = {
    "begin", "change", "commit", "connection", "cursor", "depth", "inodes", "joined", "lock",
    "many", "one", "path", "pid", "ready", "reopened", "rollback", "run", "snapshot", "steady",
    "version",
}  # fmt: skip


def members(kind: type) -> set[str]:
    """Return the names that a protocol promises, those of the protocols above it too."""
    return {
        name
        for one in kind.__mro__
        if one.__module__ == protocol.__name__
        for name in (*vars(one), *vars(one).get("__annotations__", ()))
        if not name.startswith("_")
    }


def asked_of_databases(path: str) -> set[str]:
    """Return the attributes that a file reads or sets on what it calls a database."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        if getattr(node.value, "attr", getattr(node.value, "id", "")) in HOLDERS
    }


def test_the_interface_of_storage_holds_nothing_of_an_engine() -> None:
    """No connection, cursor, lock, statement, savepoint, path or version is promised."""
    assert not members(protocol.Database) & OF_AN_ENGINE


def test_statements_stand_in_the_store_alone() -> None:
    """Above it nothing runs one, or begins a transaction by hand."""
    verbs = {"changed", "insert", "last_id", "reserve", "some", *OF_AN_ENGINE}
    asked = {module: asked_of_databases(modules()[module]) & verbs for module in ABOVE}
    assert not {module: names for module, names in asked.items() if names}


@pytest.mark.parametrize("engine", ["eventq.store.sqlite", "eventq.store.postgres"])
def test_only_one_module_knows_an_engine(engine: str) -> None:
    """Outside of an engine nothing imports it but what opens databases."""
    known = {
        module
        for module in modules()
        if not module.startswith(engine)
        if any(name.startswith(engine) for name in imports(modules()[module]))
    }
    assert known == {"eventq.store.opening"}


def test_the_public_names_are_exact() -> None:
    """`__all__` is sorted and small: what most programs need, and the errors that they catch."""
    assert eventq.__all__ == sorted(eventq.__all__)
    assert len(eventq.__all__) <= 40
    assert set(eventq.__all__) == {
        "BusyError", "ConflictError", "EventqError", "LeaseLostError", "LogicError",
        "NotAThreadError", "StoreError", "UsageError",
        "AsyncThread", "Batch", "Blob", "Captured", "Claim", "ClaimInfo", "ConsumerStatus",
        "Content", "Context", "Dead", "DeadLetter", "Event", "NewEvent", "NewRun", "NewStep",
        "NewTurn", "OutputSink", "Question", "Retry", "Source", "Subscription", "Thread",
        "ThreadStatus", "Turn", "Worker", "destroy", "exists", "init", "init_schema", "open", "recover",
        "threads",
    }  # fmt: skip
    assert dir(eventq) == eventq.__all__
    for name in eventq.__all__:
        assert getattr(eventq, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = eventq.nonsense
    with pytest.raises(AttributeError, match="no attribute 'NonsenseError'"):
        _ = eventq.NonsenseError


# What could be imported from the package and is not in `__all__`: no program is to break for it.
OTHERS = (
    "AckError", "AlreadyAckedError", "AnsweredError", "CannotStartError", "ClosedError",
    "ConsumerExistsError", "ConsumerInUseError", "DamagedBlobError", "DamagedError", "DiskError",
    "ErasedError", "FencedError", "FilterError", "ForbiddenError", "InputError", "KeyConflictError",
    "LostError", "MomentLostError", "PlatformError", "PositionError", "ReadOnlyError",
    "ThreadExistsError", "TooLargeError", "UnknownArtifactError", "UnknownBlobError",
    "UnknownConsumerError", "UnknownContextError", "UnknownDeadLetterError", "UnknownEventError",
    "UnknownOutcomeError", "UnknownOutputError", "UnknownQuestionError", "UnknownRunError",
    "UnknownSessionError", "UnknownTurnError", "UnsupportedError",
)  # fmt: skip


def test_every_exception_can_be_imported() -> None:
    """All of the tree can be had from the package, by its name alone."""
    assert not {*OTHERS} & {*eventq.__all__}
    assert len({*OTHERS, *eventq.__all__}) == 76
    tree = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert tree <= {*OTHERS, *eventq.__all__}
    for name in OTHERS:
        assert issubclass(getattr(eventq, name), eventq.EventqError)


def test_types_know_every_name() -> None:
    """What type checkers are told can be imported is what can be."""
    told = set()
    with open(eventq.__file__, encoding="utf-8") as file:
        for node in ast.walk(ast.parse(file.read())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("eventq."):
                told |= {alias.asname or alias.name for alias in node.names}
    assert told == {*OTHERS, *eventq.__all__}


def test_every_name_comes_from_its_home() -> None:
    """A public name is the same object as in the module that makes it."""
    for name in (*OTHERS, *eventq.__all__):
        made = getattr(eventq, name)
        assert getattr(import_module(made.__module__), made.__name__) is made


def test_every_exception_that_a_docstring_names_can_be_imported() -> None:
    """From the package itself, or it is one of Python's."""
    named = set()
    for path in modules().values():
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                named |= {*re.findall(r"\b[A-Z]\w+Error\b", ast.get_docstring(node) or "")}
    assert {"LeaseLostError", "UnknownConsumerError"} <= named
    known = {*OTHERS, *eventq.__all__, *vars(builtins), *vars(json)}
    assert named - known == {"GoneError"}  # of the interface of engines, which no caller sees


def test_importing_the_package_imports_none_of_its_modules() -> None:
    """A name is fetched from its module when it is asked for."""
    code = (
        "import sys; before = {*sys.modules}; import eventq;"
        "print(*sorted({*sys.modules} - before)); eventq.UnknownConsumerError;"
        "assert 'eventq.errors' in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in found.stdout.split() if name.startswith("eventq")] == ["eventq"]


def test_everything_public_is_documented() -> None:
    """Every module, and every public method of a thread, begins with a sentence."""
    for module in modules():
        if module != "eventq.__main__":
            assert import_module(module).__doc__, module
    for name, value in vars(eventq.Thread).items():
        if not name.startswith("_"):
            assert (value.__doc__ or "").strip(), name


def test_the_package_is_typed() -> None:
    """The marker that tells type checkers so is there."""
    assert os.path.exists(os.path.join(PACKAGE, "py.typed"))


def called(function: ast.expr) -> str:
    """Return the name of what is called, without what it is an attribute of."""
    return str(getattr(function, "attr", getattr(function, "id", "")))


def test_tests_reach_for_no_private_names() -> None:
    """Ruff finds attributes; this finds names that are imported, or patched as strings."""
    for path in Path(__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("eventq"):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Call) and re.search("[gs]etattr$", called(node.func)):
                given = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
                names = ".".join(given).split(".")
            assert not [name for name in names if re.match("_[^_]", name)], path
