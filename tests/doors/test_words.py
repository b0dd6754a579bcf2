"""Words beside the options: the text of `push`, and the thread in front of a command's own words.

The kind of fault: a command that a person writes from memory is refused although nothing else can
be meant. Its members, which are tried here: a text without --content; a thread without --thread,
for commands that take no other word, one, two, an optional one, many options --thread, or a
variable; a text that begins with `-` or `@`, or is the path of a thread; too many words.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.cli import groups
from eventq.cli.table import parse
from tests.doors.support import EVENTQ, THREAD, contents, environ, ok, refused, run

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = groups.every()
WITH_PLACE = [name for name, one in COMMANDS.items() if len(one.arguments) > len(one.own)]


@pytest.fixture
def near(inbox: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A thread in the current directory, as it is written there."""
    monkeypatch.chdir(os.path.dirname(inbox))
    return os.path.basename(inbox)


# --- a text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["hello", "two words", "", "@file", "-", "é\n", "17"])
def test_a_text_is_pushed_as_it_is_written(
    inbox: str, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Whatever it begins with, it is neither a file nor stdin, which is not read."""
    monkeypatch.chdir(inbox)  # where no text at all is not the thread either
    assert ok("push", "--thread", inbox, text, given="piped") == ""
    assert run("push", text, EVENTQ_THREAD=inbox).code == 0
    assert contents(inbox) == [text, text]


def test_a_text_that_begins_with_a_dash_follows_two(inbox: str) -> None:
    """Without `--` it is an option that does not exist, and the error says what to do."""
    ok("push", "--thread", inbox, "--", "-x")
    ok("ask", "--thread", inbox, "--", "--why?")
    done = run("push", "--thread", inbox, "- item")
    refused(2, "put -- before a text that begins with -, or run 'eventq push --help'", done)
    assert contents(inbox) == ["-x", '{"text":"--why?"}']


@pytest.mark.parametrize(("words", "says"), [
    ("--content b", "TEXT and --content exclude each other - give one of them"),
    ("--content-file -", "TEXT and --content-file exclude each other - give one of them"),
    ("--batch", "--batch and TEXT exclude each other - leave it out: each line of a batch has"),
    ("--stream --lines", "--stream and TEXT exclude each other - leave it out: each line of a"),
    ("world", "unexpected extra argument (world) - put a text of several words in quotes, or run"),
])  # fmt: skip
def test_a_text_is_the_only_content(inbox: str, words: str, says: str) -> None:
    """Two contents are a usage error, and nothing is stored."""
    refused(2, says, run("push", "hello", *words.split(), given="{}", EVENTQ_THREAD=inbox))
    assert contents(inbox) == []


def test_a_loop_may_push_each_line_that_it_reads(inbox: str) -> None:
    """A text leaves stdin to the loop, which would end after the first line otherwise."""
    script = 'while read -r line; do eventq push "$line" --thread "$1"; done'
    subprocess.run(
        ["sh", "-c", script, "sh", inbox], input=b"one\ntwo\n", env=environ(), check=True, timeout=300
    )  # fmt: skip
    assert contents(inbox) == ["one", "two"]


# --- a thread -------------------------------------------------------------------------------------


def test_every_command_with_a_thread_takes_it_as_a_word() -> None:
    """All but those that take any number of words, or run a command."""
    others = {
        name for name, one in COMMANDS.items() if any(o.name == "thread" for o in one.options)
    }
    many = {"done", "retry", "extend", "dead add", "dead retry", "dead drop", "capture", "sql"}
    assert others - set(WITH_PLACE) == many
    for name in WITH_PLACE:
        assert f"Usage: eventq {name} [OPTIONS] [THREAD]" in ok(f"{name} --help")


@pytest.mark.parametrize("name", WITH_PLACE)
def test_a_thread_before_a_command_s_own_words_is_its_thread(near: str, name: str) -> None:
    """The quick parser takes it, wherever it stands among the options, as it takes --thread."""
    command = COMMANDS[name]
    own = ["7" for _ in command.own]
    needed = [f"--{one.name}=x" for one in command.options if one.required and one.name != "thread"]
    options = [part for one in needed for part in one.split("=")]
    by_option = parse(command, [*own, *options, "--thread", near])
    assert by_option is not None
    assert parse(command, [near, *own, *options]) == by_option
    assert parse(command, [*options, near, *own]) == by_option
    assert parse(command, ["nowhere", *own, *options]) is None


@pytest.mark.parametrize("words", [
    "info", "tail", "peek", "check", "questions", "ask Why?", "push x", "pop --consumer w",
    "context ls", "blob verify", "config", "doctor", "config runs.emit", "context create --name m",
])  # fmt: skip
def test_a_command_uses_the_thread_that_a_word_names(near: str, words: str) -> None:
    """It wins over the variable, and an absolute path is as good as a relative one."""
    name = max((one for one in COMMANDS if f"{words} ".startswith(f"{one} ")), key=len)
    own = words.removeprefix(name).split()
    with eventq.open(near) as thread:
        thread.subscribe("w")
    done = run(name, near, *own, EVENTQ_THREAD="elsewhere")
    assert (done.code, done.err) == (0, "")
    done = run(name, *own, EVENTQ_THREAD=os.path.abspath(near))
    assert done.code == (1 if name == "context create" else 0)


def test_a_file_or_an_id_is_no_thread(near: str) -> None:
    """An optional word of the command's own stays what it is; only a thread is the thread."""
    ok("ask", near, "Why?")
    assert json.loads(ok("questions", near, "--json"))["question_id"] == 1
    refused(1, "nobody has answered question 1", run("questions 1", EVENTQ_THREAD=near))
    refused(1, "'nothing' could not be read", run("blob put nothing", EVENTQ_THREAD=near))
    ok("output put", near, "given", "--content", "c")
    done = run("output put", near, "--content", "c", EVENTQ_THREAD=near)  # a name may be any text
    assert (done.code, done.out) == (0, f"agent://1-{near}\n")


@pytest.mark.parametrize("command", ["push", "ask"])
def test_a_thread_is_no_text(near: str, command: str) -> None:
    """So a word meant for the thread is not stored in another one, and what is piped in not lost."""
    done = run(command, near, given="piped", EVENTQ_THREAD=near)
    fix = "add the TEXT after it, or name the thread with --thread"
    refused(2, f"'{near}' is a thread, and there is no TEXT beside it - {fix}", done)
    assert run(command, near, "--thread", near).code == 0
    assert contents(near) == [{"push": near, "ask": f'{{"text":"{near}"}}'}[command]]


def test_two_threads_are_refused(near: str) -> None:
    """A thread by a word and one by an option: neither is left out in silence."""
    for words in (["info", near], ["push", near, "x"], ["questions", near, "1"]):
        done = run(*words, "--thread", near)
        refused(2, f"'{near}' and --thread both name a thread - give one of them", done)


def test_a_word_that_is_no_thread_is_answered_with_those_that_there_are(near: str) -> None:
    """The nearest of the folder first, ten at most; and how to make one."""
    for number in range(12):
        eventq.init(f"orders{number:02}")
    for words in (["tail", "in"], ["info", "--thread", "in"], ["top", "in"]):
        done = run(*words, EVENTQ_THREAD="elsewhere")
        here = os.getcwd()
        refused(1, f"'{here}/in' is not a thread - threads in {here}: '{near}', 'orders", done)
        assert done.err.endswith(f"' and 3 more; or run 'eventq init {here}/in' first\n")
        assert done.err.count("orders") == 9
    refused(1, f"threads in {here}: '", run("tail", "."))
    done = run("tail", "--thread", "in", program=THREAD)
    refused(1, f"'{here}/in' is not a thread - run 'thread init {here}/in' first\n", done)
    refused(
        2, "unexpected extra argument (more) - run 'eventq info --help'", run("info", near, "more")
    )
    with pytest.raises(eventq.NotAThreadError) as caught:
        eventq.open("in")
    assert caught.value.fix == f"create it with eventq.open('{here}/in', create=True)"


def test_thread_takes_neither_text_nor_thread_as_a_word(near: str) -> None:
    """Under the name `thread` such a word is refused, as ever."""
    fields = ["--thread", near, "--source", "s", "--type", "t"]
    for words in (["push", *fields, "hello"], ["tail", "--thread", near, "more"]):
        done = run(*words, program=THREAD)
        what = f"Got unexpected extra argument ({words[-1]})"
        refused(2, f"{what} - run 'thread {words[0]} --help'", done)
    refused(
        2, "Missing option '--thread' - run 'thread info --help'", run("info", near, program=THREAD)
    )
    assert "Usage: thread push [OPTIONS]\n" in run("push", "--help", program=THREAD).out


def test_a_url_is_a_thread(tmp_path: Path) -> None:
    """It need not be looked up to be taken for one."""
    url = "postgresql://nobody@127.0.0.1:1/none?thread=t"
    parsed = parse(COMMANDS["info"], [url])
    assert parsed is not None
    assert parsed["thread"] == url
    done = subprocess.run(
        [EVENTQ, "push", url], env=environ(), cwd=tmp_path, capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert "there is no TEXT beside it" in done.stderr


@pytest.mark.parametrize(("words", "more"), [
    ("peek", "give --thread, set EVENTQ_THREAD, or run 'eventq peek --help'"),
    ("ui", "add --thread PATH or --all DIR, or set EVENTQ_THREAD"),
    ("work", "add --thread PATH or --all DIR, or set EVENTQ_THREAD"),
    ("serve", "add --thread PATH, or set EVENTQ_THREAD"),
])  # fmt: skip
def test_without_a_thread_those_in_the_current_folder_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, more: str
) -> None:
    """Every command that needs one says so, also one that takes many; none are listed for none."""
    monkeypatch.chdir(tmp_path)
    refused(2, f" - {more}\n", run(words))
    eventq.init("desk")
    eventq.init("mail")
    refused(2, f" - threads here: 'desk', 'mail'; {more}\n", run(words))
