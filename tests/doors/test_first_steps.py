"""What somebody types who has not read the manual: defaults, and hints that can be followed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.cli import groups, hints
from tests.doors.support import (
    EVENTQ,
    THREAD,
    Done,
    contents,
    environ,
    objects,
    ok,
    refused,
    run,
)

if TYPE_CHECKING:
    from pathlib import Path


# --- push without options -------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["hello\n", "two\nlines", "é\0\r\n", "\n"])
def test_push_stores_what_is_piped_in(inbox: str, text: str) -> None:
    """Without --content, stdin is the content, byte for byte, from self, a message."""
    assert ok("push", "--thread", inbox, given=text) == ""
    with eventq.open(inbox) as thread:
        (event,) = thread.peek()
    assert (event.source, event.type, event.content) == ("self", "message", text)


def test_a_push_with_a_content_leaves_stdin_alone(inbox: str) -> None:
    """A stdin that a caller inherits, and that never ends, holds up no push."""
    reader, writer = os.pipe()
    done = subprocess.run(
        [EVENTQ, "push", "--thread", inbox, "--content", "x"], stdin=reader, env=environ(), timeout=300
    )  # fmt: skip
    os.close(reader)
    os.close(writer)
    assert done.returncode == 0
    assert contents(inbox) == ["x"]


def test_a_push_of_nothing_is_refused(inbox: str) -> None:
    """An empty stdin, which a failed program leaves, is a usage error; an empty content is not."""
    done = run("push", "--thread", inbox, given=b"")
    refused(2, "stdin is empty, and there is no text - give a text, pipe in some", done)
    ok("push", "--thread", inbox, "--content", "")
    ok("push", "--thread", inbox, "--content-file", "-", given=b"")
    assert contents(inbox) == ["", ""]


def test_a_push_at_a_terminal_does_not_wait_for_typing(inbox: str) -> None:
    """Without content it says how to give one; so it does where stdin is closed."""
    controller, terminal = os.openpty()
    for shell in ("exec eventq push", "exec eventq push <&-"):
        done = subprocess.run(
            ["sh", "-c", shell], stdin=terminal, capture_output=True, text=True, timeout=300,
            env=environ(EVENTQ_THREAD=inbox),
        )  # fmt: skip
        what = "there is no text, and nothing is piped in"
        fix = "give it after the command, in quotes, or pipe it into this command"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {what} - {fix}\n")
    os.close(controller)
    os.close(terminal)
    assert contents(inbox) == []


def test_a_push_of_bytes_is_refused(inbox: str) -> None:
    """What is no UTF-8 is refused, with the byte at which it goes wrong."""
    done = run("push", "--thread", inbox, given=b"ab\xff")
    refused(2, "stdin is not UTF-8 text (byte 2) - encode it, for example as base64", done)


@pytest.mark.parametrize(("words", "says"), [
    ([], "--source is missing - give --source"),
    (["--source", "s"], "--type is missing - give --type"),
    (["--source", "s", "--type", "t"], "either --content or --content-file is needed"),
])  # fmt: skip
def test_thread_push_assumes_nothing(inbox: str, words: list[str], says: str) -> None:
    """Under the name `thread` every field is required, and stdin is not read."""
    refused(2, says, run("push", "--thread", inbox, *words, given="x", program=THREAD))
    shown = run("push", "--help", program=THREAD).out
    assert "(default" not in shown
    assert "echo" not in shown
    assert "echo hello | eventq push --thread ./inbox\n" in ok("push --help")
    assert contents(inbox) == []


# --- peek without options -------------------------------------------------------------------------


def test_peek_shows_the_newest_events(inbox: str) -> None:
    """Without options those are 20, the oldest of them first; --limit and --filter still hold."""
    with eventq.open(inbox) as thread:
        thread.push_many({"source": "s", "type": "t", "content": str(n)} for n in range(1, 31))

    def shown(*words: str) -> list[int]:
        return [event["id"] for event in objects("peek", "--thread", inbox, *words)]

    assert shown() == [*range(11, 31)]
    assert shown("--limit", "3") == [28, 29, 30]
    assert shown("--filter", "id % 10 = 0") == [10, 20, 30]
    assert shown("--last", "25") == [*range(6, 31)]
    assert shown("--last-event-id", "0") == [*range(1, 31)]
    done = run("peek", "--thread", inbox, program=THREAD)
    refused(2, "either --last-event-id or --last is needed", done)
    assert "(default: 20)" in " ".join(ok("peek --help").split())
    assert "20" not in run("peek --help", program=THREAD).out


# --- words that are no commands -------------------------------------------------------------------

COMMANDS = groups.every()


def suggested(done: Done) -> str:
    """Return the command that the hint of an error says to run."""
    found = re.search(r"run 'eventq (.*?)'", done.err)
    assert found is not None
    return found[1]


def test_the_words_of_other_programs_lead_to_a_command() -> None:
    """Each is answered with what does it here, and the help that the hint names exists."""
    known = {word for name in COMMANDS for word in (name, name.split()[0])}
    assert {
        "status", "stats", "log", "consumers", "send", "publish", "emit", "add", "get", "read",
        "show", "watch", "follow", "start", "create", "new", "enqueue", "receive",
    } <= set(hints.MEANT)  # fmt: skip
    for word, meant in hints.MEANT.items():
        assert word not in known
        command, _, option = meant.partition(" --")
        done = run(word)
        refused(2, f"No such command '{word}'. Did you mean '{meant}'? - run 'eventq ", done)
        assert suggested(done) == f"{command} --help"
        shown = ok(suggested(done))
        assert shown.startswith("Usage: eventq")
        assert not option or f"--{option}" in shown


@pytest.mark.parametrize(("word", "says"), [
    ("rm", "run 'rm -r DIR' to delete a thread, 'eventq prune' to delete old events"),
    ("delete", "run 'rm -r DIR' to delete a thread"), ("remove", "run 'rm -r DIR' to delete"),
    ("drop", "run 'rm -r DIR' to delete"), ("destroy", "run 'rm -r DIR' to delete"),
    ("ls", "run 'eventq thread ls DIR' for the threads in a folder, 'eventq peek' for events"),
    ("list", "run 'eventq thread ls DIR' for the threads in a folder"),
])  # fmt: skip
def test_a_word_that_may_mean_several_things_is_answered_with_each(word: str, says: str) -> None:
    """Deleting a thread is no command here; the commands that are named exist."""
    done = run(word, "inbox")
    refused(2, f"Error: No such command '{word}' - {says}", done)
    for name in re.findall("'eventq ([a-z ]+?)(?: DIR)?'", done.err):
        assert name in COMMANDS


@pytest.mark.parametrize(("words", "says"), [
    ("pus", "No such command 'pus'. Did you mean 'pause' or 'push'? - run 'eventq --help'"),
    ("pish", "No such command 'pish'. Did you mean 'push'? - run 'eventq --help'"),
    ("xyzzy", "No such command 'xyzzy' - run 'eventq --help'"),
    ("context list", "No such command 'list'. Did you mean 'ls'? - run 'eventq context --help'"),
    ("push --delay 3", "No such option '--delay' - run 'eventq push --help'"),
    ("push --contnt x", "No such option '--contnt'. Did you mean '--content' or '--content-file'?"),
    ("push --message x", "No such option '--message'. Did you mean '--content'? - run 'eventq p"),
    ("peek --max 3", "No such option '--max'. Did you mean '--limit'? - run 'eventq peek --help'"),
    ("peek --before 1h", "No such option '--before'. Did you mean '--until'? - run 'eventq peek"),
    ("tail --from 1h", "No such option '--from'. Did you mean '--since'? - run 'eventq tail"),
    ("prune --keep 3", "No such option '--keep'. Did you mean '--keep-last'? - run 'eventq prun"),
    ("info --max 3", "No such option '--max' - run 'eventq info --help'"),
    ("--thread x push", "No such option '--thread' - give it after the command; run 'eventq --h"),
    ("--nothing", "No such option '--nothing' - run 'eventq --help'"),
])  # fmt: skip
def test_a_misspelt_word_is_answered_with_near_ones_only(words: str, says: str) -> None:
    """An option that is like no other is answered with the help of its command."""
    done = run(words)
    refused(2, f"Error: {says}", done)
    assert ok(suggested(done)).startswith("Usage: eventq")


@pytest.mark.parametrize(("option", "meant"), [
    ("before", ". Did you mean '--before-id'?"), ("older-than", ""), ("max-age", ""), ("ttl", ""),
])  # fmt: skip
def test_an_age_for_prune_is_answered_with_the_way_to_an_id(
    inbox: str, option: str, meant: str
) -> None:
    """Neither `--force` nor silence: the command that is named prints the id for `--before-id`."""
    done = run("prune", "--thread", inbox, f"--{option}", "1h")
    fix = "ages are not taken: give --before-id the id that 'eventq peek --until 1h --last 1' shows"
    refused(2, f"Error: No such option '--{option}'{meant} - {fix}\n", done)
    (command,) = re.findall("'eventq ([^']*)' shows", done.err)
    assert run(*command.split(), "--thread", inbox).code == 0


def test_every_option_of_other_programs_has_a_meaning_here() -> None:
    """Each of them leads to an option that some command has."""
    known = {option.name for command in COMMANDS.values() for option in command.options}
    for word in ["message", "body", "data", "group", "since", "max", "where"]:
        assert hints.option(f"--{word}", [f"--{name}" for name in known]).startswith(". Did you")
    for name in known:
        assert hints.option(f"--{name}", [f"--{name}"]) == f". Did you mean '--{name}'?"


@pytest.mark.parametrize(
    "words", ["info --json", "unsubscribe --json", "dispatch --json", "--json"]
)
def test_thread_suggests_no_option_that_is_far_off(words: str) -> None:
    """`--json`, where `thread` does not know it, is not answered with `--version`."""
    done = run(*words.split(), program=THREAD)
    assert done.code == 2
    assert "Did you mean" not in done.err
    assert "eventq" not in done.err


def test_thread_keeps_its_words() -> None:
    """Under the name `thread`, a word is answered with what is spelled nearly alike."""
    done = run("publish", program=THREAD)
    refused(2, "No such command 'publish'. Did you mean 'push'? - run 'thread --help'", done)
    refused(2, "No such command 'send'. Did you mean 'extend'? -", run("send", program=THREAD))


# --- words that have no place ---------------------------------------------------------------------


@pytest.mark.parametrize(("words", "option"), [
    ("context create main", "name"), ("subscribe w", "consumer"),
    ("turn append main hello", "content"), ("pop w", "consumer"),
])  # fmt: skip
def test_a_word_too_many_is_told_its_option(inbox: str, words: str, option: str) -> None:
    """The hint names an option that takes the word, and it works."""
    *command, word = words.split()
    ok("context create --thread", inbox, "--name", "main" if command[0] == "turn" else "other")
    with eventq.open(inbox) as thread:
        thread.subscribe("w")
    more = {"EVENTQ_THREAD": inbox, "EVENTQ_CONSUMER": "w"}
    done = run(*command, word, **more)
    name = " ".join(part for part in command if part != "main")
    fix = f"give it as --{option}, or run 'eventq {name} --help'"
    refused(2, f"Error: Got unexpected extra argument ({word}) - {fix}", done)
    assert run(*command, f"--{option}", word, **more).code == 0


def test_the_bare_address_of_a_server_is_no_directory_to_be_created() -> None:
    """The answer says where to run the command."""
    fix = "give the directory of a thread; for a server, run this on the machine of the thread"
    refused(1, fix, run("info --thread", "127.0.0.1:9"))


# --- the first page of help -----------------------------------------------------------------------


def test_help_lists_every_command_in_one_part() -> None:
    """Those of every day come first, all of them complete; no line is wrapped or cut."""
    words = [word for part in groups.PARTS.values() for word in part]
    assert len(words) == len(set(words)) == len(groups.MODULES)
    assert [*dict.fromkeys(name.split()[0] for name in COMMANDS)] == words
    everyday = next(iter(groups.PARTS.values()))
    assert {"init", "push", "tail", "info", "ask", "answer", "subscribe", "pop"} <= {*everyday}
    assert len(everyday) == 15
    shown = ok("--help").splitlines()
    lines = [line for line in shown if re.match(r"  [a-z][a-z -]*  ", line)]
    assert [line.split()[0] for line in lines] == [*words, "help"]
    assert max(map(len, shown)) <= 80
    assert not any(line.endswith("...") for line in lines)
    assert set(groups.PARTS) <= set(shown)
    for name in ("claims ls", "event erase", "service systemd"):  # each is alone in its group
        assert any(line.startswith(f"  {name}  ") for line in lines)


def test_the_help_of_a_group_is_its_own() -> None:
    """It is the docstring of the module, which names any other command that is in the module."""
    modules: dict[str, set[str]] = {}
    for name in COMMANDS:
        modules.setdefault(groups.MODULES[name.split()[0]], set()).add(name.split()[0])
    for word in groups.MODULES:
        if sum(name.split()[0] == word for name in COMMANDS) > 1:
            about, _ = groups.about(word)
            others = modules[groups.MODULES[word]] - {word}
            assert all(f"`{other}`" in about for other in others)
    assert "\n  Rebuild events.jsonl" in ok("mirror --help")


def test_former_spellings_work_and_are_not_listed(inbox: str) -> None:
    """`thread-copy` is `thread copy`; under the name `thread` it stands in the list, as ever."""
    assert ok("thread-copy", inbox, f"{inbox}-1") == ok("thread copy", inbox, f"{inbox}-2")
    assert ok("thread-copy --help").startswith("Usage: eventq thread-copy [OPTIONS] SRC DST\n")
    assert "thread-copy" not in ok("--help")


@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_fits_the_terminal(columns: str) -> None:
    """Each command keeps to its line, from 80 columns on."""
    done = subprocess.run(
        [EVENTQ, "--help"], env=environ(COLUMNS=columns), capture_output=True, text=True, check=True
    )  # fmt: skip
    shown = done.stdout.split("\nEveryday")[1].split("\n  Example:")[0].splitlines()
    assert max(map(len, shown)) <= int(columns)
    lines = [line for line in shown if line.startswith("  ")]
    assert len(lines) == len(groups.MODULES) + 1


def test_help_ends_with_examples_that_work(tmp_path: Path) -> None:
    """Pasted as they stand, they create a thread with an event; then come commands to read on."""
    text = ok("--help").split("  Example:\n")[1]
    examples, read_on = text.split("\n  Read on:\n")
    assert len(examples.splitlines()) == 3
    for block in (examples, "\n".join(line.split("   ")[0] for line in read_on.splitlines())):
        done = subprocess.run(
            ["sh", "-ec", "\n".join(map(str.strip, block.splitlines()))],
            cwd=tmp_path, env=environ(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
    assert contents(str(tmp_path / "inbox")) == ["hello"]


def test_thread_lists_its_commands_as_ever() -> None:
    """Under the name `thread`, help has one list, in alphabetical order."""
    shown = run("--help", program=THREAD).out
    (listed,) = re.findall(r"\nCommands:\n(.*?)\n\n", shown, re.DOTALL)
    words = [line.split()[0] for line in listed.splitlines()]
    assert words == sorted([*groups.MODULES, *groups.FORMER, "help"])
    assert "Read on" not in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["init", "--thread", "x"],
            "No such option '--thread' - give the path by itself, or run 'eventq init",
        ),
        (["init", "redis://localhost/0"], "'redis://localhost/0' is no directory, and not the URL"),
        (["pop", "--thread", "{}", "--consumer", "w", "3"], "- give it as --last-event-id, or run"),
        (["peek", "--thread", "{}", "--last", "9" * 30], "- give a smaller number"),
        (
            ["push", "--thread", "http://localhost:80", "--content", "x"],
            "run this on the machine of the thread",
        ),
        (["help", "push", "nonsense"], "'push nonsense' is no command"),
    ],
)
def test_a_mistake_of_the_first_hour_is_answered(inbox: str, words: list[str], says: str) -> None:
    """With what to give instead, and nothing is made."""
    done = run(*[word.format(inbox) for word in words])
    assert done.code in (1, 2)
    assert says in done.err
    assert not os.path.exists("redis:")


def test_a_limit_of_peek_is_not_cut_in_silence(inbox: str) -> None:
    """Without an id, --limit says how many of the newest are printed."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", "x")] * 30)
    assert run("peek", "--thread", inbox).out.count("\n") == 20
    for limit in (3, 25):
        out = run("peek", "--thread", inbox, "--limit", str(limit)).out
        assert [json.loads(line)["id"] for line in out.splitlines()] == [*range(31 - limit, 31)]


def test_from_now_says_when_it_comes_too_late(inbox: str) -> None:
    """A consumer that was subscribed before keeps its place."""
    words = ["subscribe", "--thread", inbox, "--consumer", "w", "--from-now"]
    assert run(*words).err == ""
    assert "keeps its place" in run(*words).err
