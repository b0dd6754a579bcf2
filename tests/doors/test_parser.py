"""The quick parser declines or agrees with click, and the quick way imports little."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventq
from eventq.cli import app, groups, show
from eventq.cli.table import Command, parse
from tests.doors.support import environ, run

COMMANDS = groups.every()
_WORDS = sorted({f"--{o.name}" for c in COMMANDS.values() for o in c.options})


_NAMES = [name.split() for name in COMMANDS]


def quickly(argv: list[str]) -> dict[str, Any] | None:
    """Return what the quick parser makes of a command line, None when it declines."""
    found = groups.find(argv)
    return parse(*found) if found else None


@functools.cache
def built(_: str) -> click.Group:
    """Return click's commands, as a program of this name has them."""
    return app.build()


def by_click(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """Return what click makes of a command line, None when it refuses or does something else."""
    seen: list[dict[str, Any]] = []

    def note(_: Command, raw: dict[str, Any]) -> int:
        seen.append(raw)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(app, "execute", note)
        try:
            built(show.program()).main(argv, prog_name="eventq", standalone_mode=False)
        except click.ClickException:
            return None
    return seen[0] if seen else None


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    name=st.one_of(
        st.sampled_from(_NAMES),
        st.lists(
            st.sampled_from(sorted({"x", "", *(word for name in _NAMES for word in name)})),
            max_size=2,
        ),
    ),
    words=st.lists(
        st.one_of(
            st.sampled_from(_WORDS),
            st.sampled_from(
                [
                    "-",
                    "--",
                    "-n",
                    "-f",
                    "--verbose",
                    "--verbos",
                    "-V",
                    "--version",
                    "--help",
                    "1",
                    "",
                    "--source=x",
                    "--json",
                    "-x",
                    "--batc",
                    "-1",
                ]
            ),
            st.text(st.characters(exclude_characters="\0"), max_size=4),
        ),
        max_size=10,
    ),
)
def test_the_quick_parser_declines_or_agrees_with_click(name: list[str], words: list[str]) -> None:
    """The quick parser agrees with click on any words, or leaves them to click."""
    quick = quickly([*name, *words])
    if quick is not None:
        assert quick == by_click([*name, *words], pytest.MonkeyPatch())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_quick_parser_takes_every_command(name: str) -> None:
    """A full command line is parsed quickly, and as click does."""
    command = COMMANDS[name]
    argv = [*name.split(), *("word" for part in command.own if not part.is_rest)]
    for option in command.options:
        argv += [f"--{option.name}"] + ([f"{option.name} value"] if option.value else [])
    has_rest = any(part.is_rest for part in command.own)
    rest = ["--", "do", "-x", ""] if has_rest else []
    raw = quickly(argv + rest)
    assert raw is not None
    assert raw == by_click(argv + rest, pytest.MonkeyPatch())
    if command.own and not has_rest:
        less = quickly([word for word in argv if word != "word"])
        assert (less is None) == command.own[0].required
        many = any(part.repeats for part in command.own)
        assert (quickly([*argv, "another"]) is None) != many


@pytest.mark.parametrize("at", [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)])
def test_two_words_are_taken_wherever_they_stand(at: tuple[int, int]) -> None:
    """Arguments are assigned in order, with options before, between and after them."""
    options = [["--contexts", "a,b"], ["--json"]]
    argv = ["thread-copy"]
    for place in range(3):
        argv += [word for word, where in zip(("here", "there"), at, strict=True) if where == place]
        argv += options[place] if place < 2 else []
    raw = quickly(argv)
    assert raw == {"SRC": "here", "DST": "there", "contexts": "a,b", "all": False, "json": True}
    assert raw == by_click(argv, pytest.MonkeyPatch())
    for wrong in (
        [word for word in argv if word != "here"],
        ["thread-copy"],
        [*argv, "elsewhere"],
        [*argv, "--x"],
    ):
        assert quickly(wrong) is None
        assert by_click(wrong, pytest.MonkeyPatch()) is None


@pytest.mark.parametrize(
    "words", [["make"], ["make", "--json"], ["--", "-"], ["", "--thread"], ["-x", "--", "--"]]
)
@pytest.mark.parametrize(
    "options", [["--thread", "t"], ["--json", "--thread", "t", "--tool", "x"], ["--thread=t"]]
)
def test_what_follows_two_dashes_is_handed_on_as_it_is(
    words: list[str], options: list[str]
) -> None:
    """Options, empty words and further dashes after the first `--` are the command's own."""
    argv = ["capture", *options, "--", *words]
    raw = by_click(argv, pytest.MonkeyPatch())
    assert raw is not None
    assert (raw["CMD"], raw["thread"]) == (words, "t")
    assert quickly(argv) == (None if options == ["--thread=t"] else raw)


@pytest.mark.parametrize(("words", "says"), [
    ("", "Missing the command to run: it follows '--'"),
    ("--", "Missing the command to run: it follows '--'"),
    ("make test", "'make' is before '--': the command to run follows '--'"),
    ("make -- test", "'make' is before '--': the command to run follows '--'"),
    ("make --tool", "Option '--tool' requires an argument"),
    ("--tool -- make", "Option '--tool' requires an argument"),
    ("--pish -- make", "No such option"),
])  # fmt: skip
def test_without_two_dashes_there_is_no_command_to_run(words: str, says: str) -> None:
    """A command before `--`, or none after it, is an error that says where it belongs."""
    done = run("capture --thread nowhere", *words.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {says}")
    assert done.err.count("\n") == 1
    assert quickly(["capture", "--thread", "nowhere", *words.split()]) is None


@pytest.mark.parametrize("argv", [
    [], ["blob"], ["blob", "--thread", "t"], ["blob put"], ["blob put", "x"],
    ["mirror rebuild", "--thread", "t"], ["gc x"], ["turn", "append", "-x", "--thread", "t"],
    ["turn", "append", "--", "main", "--thread", "t"], ["turn", "--help"],
])  # fmt: skip
def test_the_quick_parser_leaves_groups_and_what_is_unusual_to_click(argv: list[str]) -> None:
    """A group alone, an unknown command and words that begin with a dash are click's."""
    assert quickly(argv) is None


def test_the_quick_parser_takes_verbose() -> None:
    """`--verbose` keeps the quick parser; in place of a value it is left to click."""
    argv = ["pop", "--verbose", "--thread", "a", "--consumer", "b", "--last-event-id", "1"]
    raw = quickly(argv)
    assert (
        raw
        == by_click(argv, pytest.MonkeyPatch())
        == quickly([word for word in argv if word != "--verbose"])
    )
    assert raw is not None
    assert quickly([*argv, "--limit", "--verbose"]) is None


def test_the_quick_parser_takes_plain_pairs() -> None:
    """What agents write is not left to click."""
    argv = ["pop", "--thread", "a", "--consumer", "b", "--last-event-id", "1", "--json"]
    raw = quickly(argv)
    assert raw == by_click(argv, pytest.MonkeyPatch())
    assert raw is not None
    assert raw["last-event-id"] == "1"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "hook"])
def test_a_second_value_for_an_option_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No value is dropped in silence, whichever way it is spelled; for `thread` the last one wins.

    Options that collect their values take many, and a flag may be repeated.
    """
    command = COMMANDS[name]
    argv = [*name.split(), *("word" for part in command.own if not part.is_rest)]
    for option in command.options:
        argv += [f"--{option.name}", *(["first"] if option.value else [])]
    rest = ["--", "do"] if any(part.is_rest for part in command.own) else []
    ran = False
    for option in command.options:
        twice = [*argv, f"--{option.name}", *(["second"] if option.value else []), *rest]
        monkeypatch.setattr(sys, "argv", ["eventq"])
        if not option.value or option.repeats:
            assert quickly(twice) == by_click(twice, monkeypatch) is not None
            continue
        what = f"--{option.name} has more than one value"
        equals = [*argv, f"--{option.name}=second", *rest]
        for words in (twice, equals):
            assert quickly(words) is None
            if name != "push" and (ran or words is equals):  # both parsers refuse it, as the first
                continue
            done = run(*words)
            fix = "give one, as only one of them would count"
            assert (done.code, done.out) == (2, "")
            assert what in done.err
            assert fix in done.err
        ran = True
        monkeypatch.setattr(sys, "argv", ["thread"])
        for raw in (quickly(twice), by_click(twice, monkeypatch), by_click(equals, monkeypatch)):
            assert raw is not None
            assert raw[option.name] == "second"


_SLOW = ("click", "json", "re", "typing", "dataclasses", "inspect", "importlib.metadata", "subprocess", "hashlib",
     "blake3", "zstandard", "asyncio", "random", "shutil", "tempfile", "enum", "logging", "eventq.memory.blobs",
     "eventq.system.flock", "portalocker",
     "eventq.memory", "eventq.records.turn", "eventq.records.run", "eventq.cli.turn", "eventq.cli.output", "eventq.cli.app",
     "eventq.output", "eventq.transfer")  # fmt: skip


@pytest.mark.parametrize("words", [
    ["push", "--source", "s", "--type", "t", "--content", "c", "--json"], ["push", "--batch"], ["push"],
    ["pop", "--consumer", "w", "--last-event-id", "0"],
    ["peek", "--last-event-id", "0", "--filter", "type = 't'"], ["peek"],
    ["ack", "--consumer", "w", "--last-event-id", "0"], ["hook"],
], ids=lambda words: words[0])  # fmt: skip
def test_the_quick_commands_import_nothing_slow(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    """push, pop, peek, ack and hook import no module that costs more than the work itself."""
    path = eventq.init(tmp_path_factory.mktemp("quick") / "t")
    with eventq.open(path) as thread:
        thread.subscribe("w", "true")
    script = (
        "import sys, os; sys.argv[0] = 'eventq'; before = set(sys.modules); from eventq.cli import run;"
        "code = run(sys.argv[1:]); print(code, *(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"sys_path = {sys.path!r}\nimport sys; sys.path[:] = sys_path\n{script}", words[0], "--thread", path, *words[1:]],
        input=b'{"source":"a","type":"b","content":{}}', capture_output=True, env=environ(), timeout=300,
    )  # fmt: skip
    code, *modules = done.stderr.decode().split()
    assert code == "0"
    assert not set(modules) & set(_SLOW)


def test_a_turn_is_appended_without_click(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`turn append` needs neither click nor what reads the metadata of packages."""
    path = eventq.init(tmp_path_factory.mktemp("quick") / "t")
    with eventq.open(path) as thread:
        thread.contexts.create("main")
    code = (
        "import sys; from eventq.cli import run; code = run(sys.argv[1:]);"
        "print(code, sorted({'click', 'json', 'importlib.metadata', 'subprocess', 'tempfile'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}", "turn", "append", "main",
     "--thread", path, "--content", "hi"],
        capture_output=True, env=environ(), timeout=300,
    )  # fmt: skip
    assert done.stdout.decode().splitlines()[1:] == ["0 []"]


_MEMORY = [
    ["turn", "append", "main", "--content", "c"],
    ["turn", "last", "main"],
    ["run", "step", "r", "--role", "coder", "--content", "c"],
    ["run", "messages", "r", "--role", "coder"],
]


@pytest.mark.parametrize("words", _MEMORY, ids=lambda words: " ".join(words[:2]))
def test_the_commands_of_memory_import_nothing_slow(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    """Those that agents call in loops import no more of the standard library than `push`."""
    path = eventq.init(tmp_path_factory.mktemp("quick") / "t")
    with eventq.open(path) as thread:
        thread.contexts.create("main").append("c")
        thread.runs.start("solve", "task", system={"coder": "c"}, label="r").step("coder")
    script = (
        f"import sys; sys.path[:] = {sys.path!r}; sys.argv[0] = 'eventq'\n"
        "from eventq.cli import run; code = run(sys.argv[1:])\n"
        "print(code, *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, *words, "--thread", path],
        stdin=subprocess.DEVNULL, capture_output=True, env=environ(), timeout=300,
    )  # fmt: skip
    code, *modules = done.stderr.decode().split()
    assert code == "0"
    assert not set(modules) & {"typing", "dataclasses", "functools", "click"}
    assert {"apsw", "eventq.memory.blobs"} <= set(modules)
    assert done.returncode == 0
