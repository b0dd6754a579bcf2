"""The environment variables that replace missing options."""

from __future__ import annotations

import pytest

import eventq
from eventq.cli import groups
from eventq.cli.table import Command
from tests.doors.support import EVENTQ, THREAD, contents, run
from tests.doors.test_parser import by_click, quickly

COMMANDS = groups.every()
VARIABLES = {"thread": "EVENTQ_THREAD", "consumer": "EVENTQ_CONSUMER"}
WITH_DEFAULTS = {
    name: found
    for name, command in COMMANDS.items()
    if (found := [option.name for option in command.options if option.env])
}


def words_of(name: str, without: str = "") -> list[str]:
    """Return a command line that has all options of a command but one."""
    command: Command = COMMANDS[name]
    has_rest = any(part.is_rest for part in command.own)
    words = [*name.split(), *("word" for _ in command.own if not has_rest)]
    for option in command.options:
        if option.name != without:
            words += [f"--{option.name}", *(["given"] if option.value else [])]
    return [*words, "--", "do"] if has_rest else words


def test_every_thread_and_consumer_has_a_default() -> None:
    """All commands with the option take it from the environment, `subscribe` like `pop`.

    Where many may be given, `work` has its own default: it does not count beside --all.
    """
    for command in COMMANDS.values():
        for option in command.options:
            assert option.env == (None if option.repeats else VARIABLES.get(option.name))
    assert {"pop", "ack", "subscribe", "push", "info"} <= set(WITH_DEFAULTS)


@pytest.mark.parametrize("name", WITH_DEFAULTS)
def test_both_parsers_take_a_missing_option_from_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A variable is used where the option is missing, and only there."""
    for option in WITH_DEFAULTS[name]:
        short, full = words_of(name, option), words_of(name)
        monkeypatch.delenv(VARIABLES[option], raising=False)
        (needed,) = (one.required for one in COMMANDS[name].options if one.name == option)
        assert (quickly(short) is None) == (by_click(short, monkeypatch) is None) == needed
        monkeypatch.setenv(VARIABLES[option], "from here")
        raw = quickly(short)
        assert raw is not None
        assert raw[option] == "from here"
        assert raw == by_click(short, monkeypatch)
        raw = quickly(full)
        assert raw is not None
        assert raw[option] == "given"
        assert raw == by_click(full, monkeypatch)


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers then lack the option; an empty option is a value."""
    monkeypatch.setenv("EVENTQ_THREAD", "")
    assert quickly(["info"]) is None
    assert by_click(["info"], monkeypatch) is None
    monkeypatch.setenv("EVENTQ_THREAD", "inbox")
    raw = quickly(["info", "--thread", ""])
    assert raw == {"thread": "", "short": False, "json": False}
    assert raw == by_click(["info", "--thread", ""], monkeypatch)


@pytest.mark.parametrize(("name", "words"), [
    ("thread", "pop --consumer w"), ("consumer", "pop --thread x"),
    ("thread", "subscribe --consumer w"), ("thread", "check"), ("thread", "info --json"),
])  # fmt: skip
@pytest.mark.parametrize("empty", [True, False])
def test_the_error_names_the_option_and_its_variable(name: str, words: str, empty: bool) -> None:
    """Who gave neither learns of both."""
    more = {VARIABLES[name]: ""} if empty else {}
    done = run(words, **more)
    assert (done.code, done.out) == (2, "")
    assert f"Missing option '--{name}'" in done.err
    command = words.split(maxsplit=1)[0]
    fix = f"give --{name}, set {VARIABLES[name]}, or run 'eventq {command} --help'"
    assert fix in done.err
    assert done.err.count("\n") == 1


def test_a_handler_needs_neither_option(inbox: str) -> None:
    """What a handler has in its environment is enough to push, pop and ack."""
    given = {"EVENTQ_THREAD": inbox, "EVENTQ_CONSUMER": "w"}
    with eventq.open(inbox) as thread:
        thread.subscribe("w")
    assert run("push --source s --type t --content one", **given).code == 0
    done = run("pop", **given)
    assert (done.code, done.err) == (0, "")
    assert '"content":"one"' in done.out
    assert run("ack --last-event-id 1", **given).code == 0
    assert run("pop", **given).out == ""
    assert run("pop --consumer=v", **given).err.startswith("Error: consumer 'v' is not subscribed")
    assert run("hook", given='{"a": 1}', **given).code == 0
    assert contents(inbox) == ["one", '{"a": 1}']


def test_thread_reads_no_variable(inbox: str) -> None:
    """Under the name `thread` both options are required, and its help names no variable."""
    given = {"EVENTQ_THREAD": inbox, "EVENTQ_CONSUMER": "w"}
    for words, name in ((["pop", "--thread", inbox], "consumer"), (["info"], "thread")):
        done = run(*words, program=THREAD, **given)
        fix = f"run 'thread {words[0]} --help'"
        assert (done.code, done.err) == (2, f"Error: Missing option '--{name}' - {fix}\n")
    shown = run("pop", "--help", program=THREAD, **given).out
    assert "EVENTQ_" not in shown
    shown = run("pop", "--help", program=EVENTQ).out
    assert "$EVENTQ_THREAD" in shown
    assert "$EVENTQ_CONSUMER" in shown
