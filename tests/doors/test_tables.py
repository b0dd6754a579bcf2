"""The tables of commands agree with their functions, the library and the help."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eventq
from eventq.cli import groups, kinds
from eventq.cli.table import Argument, Command, Option
from eventq.output import sink
from eventq.records.consumer import Subscription
from eventq.wire.requests import KEY_RULES
from eventq.wire.server import DEFAULT, Limits
from tests.doors.support import environ, run

COMMANDS = groups.every()
CLI = Path(groups.__file__).parent
CLASSES = {
    node.name: node
    for path in CLI.glob("*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ClassDef)
}


def types_of(option: Option) -> set[str]:
    """Return the types of the values that an option gives."""
    kind: Any = option.kind
    if isinstance(kind, kinds.Opened):
        return {"Thread"}
    if isinstance(kind, kinds.Switch):
        return {
            "None" if value is None else type(value).__name__
            for value in (kind.given, kind.missing)
        }
    made = inspect.signature(kind).return_annotation.split(" | ")
    if option.repeats:
        return {f"list[{made[0]}]"}
    return (
        {*made, "None"}
        if option.default is None and not option.required and made != ["Any"]
        else {*made}
    )


def fields(name: str) -> dict[str, set[str]]:
    """Return the fields of a TypedDict and of those that it is made from, with their types."""
    found: dict[str, set[str]] = {}
    for base in CLASSES[name].bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found |= fields(base.id)
    for node in CLASSES[name].body:
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = set(ast.unparse(node.annotation).split(" | "))
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_function_takes_what_its_table_gives(name: str) -> None:
    """Every parameter stands in the table, with the type of its values, and the other way round."""
    command, wanted = COMMANDS[name], dict[str, Any]()
    for part in command.parts:
        group, _, parameter = part.parameter.rpartition(".")
        place = wanted.setdefault(group, {}) if group else wanted
        if parameter:
            place[parameter] = place.get(parameter, set()) | types_of(part)
    taken = inspect.signature(command.function).parameters
    assert set(taken) == set(wanted)
    for parameter, types in wanted.items():
        annotation = taken[parameter].annotation
        found = fields(annotation) if isinstance(types, dict) else set(annotation.split(" | "))
        assert found == types, f"{name}: {parameter}"


def test_every_word_leads_to_the_module_of_its_commands() -> None:
    """The map of modules lists exactly the commands that each module has."""
    held: dict[str, str] = {}
    for module in sorted(set(groups.MODULES.values())):
        __import__(f"eventq.cli.{module}")
        held |= dict.fromkeys(sys.modules[f"eventq.cli.{module}"].COMMANDS, module)
    assert {name: groups.MODULES[name.split()[0]] for name in COMMANDS} == held


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_a_phrase_that_survives_being_cut(name: str) -> None:
    """The first sentence of each help text has at most 60 characters; defaults are shown."""
    command = COMMANDS[name]
    for text in [command.help, *(option.help for option in command.options)]:
        assert text.endswith(".")
        assert len(text.split(". ")[0].split(" (default:")[0].split(";")[0]) <= 60, text
    for option in command.options:
        if option.default:
            assert f"(default: {option.default})" in option.described


def test_defaults_are_those_of_the_library() -> None:
    """Where the library has a default of its own, the table says the same."""
    default = {
        (name, part.name): part.convert(None)
        for name, command in COMMANDS.items()
        for part in command.parts
        if not isinstance(part.kind, kinds.Opened)
    }
    limits = Limits()
    (listen,) = [part for part in COMMANDS["serve"].options if part.name == "listen"]
    assert f"(default without --http: {DEFAULT})" in listen.help
    for option, value in (
        ("listen", None), ("connections", limits.connections), ("idle", limits.idle), ("frame", limits.frame),
        ("in-flight", limits.in_flight), ("keys", "matching"), ("foreign-roots", False),
    ):  # fmt: skip
        assert default["serve", option] == value
    (rules,) = [part.kind for part in COMMANDS["serve"].parts if part.name == "keys"]
    assert isinstance(rules, kinds.Choice)
    assert rules.words == (*KEY_RULES,)
    unset = Subscription._field_defaults
    for name in ("max_attempts", "timeout", "batch", "concurrency", "ordered_by", "on_failure",
                 "backoff", "lease", "emit_dead"):  # fmt: skip
        assert default["subscribe", name.replace("_", "-")] == unset[name]
    for option, value in (("spill", sink.SPILL), ("head", sink.HEAD), ("columns", sink.COLUMNS)):
        assert default["capture", option] == value
    thread = eventq.Thread
    for name, option, method, parameter in (
        ("pop", "limit", thread.pop, "limit"),
        ("pop", "wait", thread.pop, "wait"),
        ("peek", "limit", thread.peek, "limit"),
        ("tail", "lines", thread.last, "count"),
        ("gc", "grace", thread.gc, "grace"),
    ):
        assert default[name, option] == inspect.signature(method).parameters[parameter].default


@pytest.mark.parametrize(("words", "says"), [
    ("pop --consumer w --last-event-id 0 --limit x", "--limit must be a whole number"),
    ("pop --consumer w --last-event-id -1", "--last-event-id must be a whole number"),
    ("tail --lines 99999999999999999999", "--lines must be a whole number"),
    ("pop --consumer w --last-event-id 0 --wait 1e3", "--wait must be a duration"),
    ("gc --grace soon", "--grace must be a duration"), ("turn show one", "TURN must be a whole number"),
    ("run step r --role x --meta {", "--meta: the text is not JSON"),
    ("unsubscribe --consumer=", "--consumer is empty"),
    ("turn append main --content x --flags no", "--flags must be a whole number"),
])  # fmt: skip
def test_a_missing_thread_comes_before_a_bad_value(
    inbox: str, tmp_path: Path, words: str, says: str
) -> None:
    """Both parsers say the same of a bad value, and say nothing of it while there is no thread."""
    for call in (words.split(), [*words.split(), "--json"]):
        done = run(*call, "--thread", inbox)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
        by_click = run(*call, f"--thread={inbox}")
        assert (by_click.code, by_click.out, by_click.err) == (2, "", done.err)
        assert run(*call, "--thread", str(tmp_path / "none")).code == 1


def test_a_rule_for_keys_that_does_not_exist_is_refused(inbox: str) -> None:
    """The error names those that do."""
    done = run("serve --keys often --thread", inbox)
    error = "Error: --keys must be matching, strict or ignore, not 'often' - choose one of them\n"
    assert (done.code, done.out, done.err) == (2, "", error)


def test_a_combination_that_is_refused_comes_before_the_thread(tmp_path: Path) -> None:
    """Which options go together is known without looking at a thread."""
    for words in (
        "peek --last 1 --last-event-id 1",
        "prune",
        "turn append main --content x --source y",
        "run step r",
    ):
        assert run(*words.split(), "--thread", str(tmp_path / "none")).code == 2


@pytest.mark.parametrize(
    "words",
    ["turn last main", "run messages build --role r", "push --source s --type t --content c"],
)
def test_a_command_imports_the_module_of_its_group_only(inbox: str, words: str) -> None:
    """The other groups are left alone, and so is the application for help."""
    code = (
        "import sys; from eventq.cli import run; run(sys.argv[1:]);"
        "print(*(name for name in sys.modules if name.startswith('eventq.cli.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split(), "--thread", inbox], capture_output=True,
        text=True, env=environ(), timeout=300,
    )  # fmt: skip
    found = {name.removeprefix("eventq.cli.") for name in done.stdout.split()}
    assert found & set(groups.MODULES.values()) == {groups.MODULES[words.split(maxsplit=1)[0]]}
    assert "app" not in found


def test_a_group_puts_options_into_a_dictionary() -> None:
    """If two options share a parameter, the given one counts."""
    command = Command(
        _nothing,
        [
            Argument("[NAME]", kinds.branch),
            Option("refs REF", "Refs.", kinds.refs, default=()).within("given"),
            Option("on", "On.", kinds.Switch("self", None), parameter="source"),
            Option("source WHO", "Who."),
            Option("json", "Nothing.", parameter=""),
        ],
    )
    nothing = {"NAME": None, "refs": None, "on": False, "source": None, "json": False}
    for given, values in (
        ({}, {"name": None, "given": {"refs": ()}, "source": None}),
        ({"on": True}, {"name": None, "given": {"refs": ()}, "source": "self"}),
        (
            {"on": True, "source": "me", "NAME": "7"},
            {"name": 7, "given": {"refs": ()}, "source": "me"},
        ),
        (
            {"refs": "a, b", "json": True},
            {"name": None, "given": {"refs": ("a", "b")}, "source": None},
        ),
    ):
        raw: Any = {**nothing, **given}
        assert command.values(raw) == values


def _nothing(**_: object) -> None:
    """Do nothing."""


def test_words_of_a_choice_are_completed() -> None:
    """A shell that asks for the word after `completion` gets the shells."""
    more = environ(
        _EVENTQ_COMPLETE="bash_complete", COMP_WORDS="eventq completion z", COMP_CWORD="2"
    )
    program = os.path.join(os.path.dirname(sys.executable), "eventq")
    done = subprocess.run([program], capture_output=True, text=True, env=more, timeout=300)
    assert done.stdout.split() == ["plain,zsh"]
