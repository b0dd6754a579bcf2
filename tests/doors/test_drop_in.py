"""Compatibility with the older `thread` command: its words, its batches, its names."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

import eventq
from eventq.cli import groups
from eventq.errors import cited
from eventq.log.notifier import slug
from tests.doors.support import EVENTQ, THREAD, contents, environ, run

COMMANDS = groups.every()

BOTH = pytest.mark.parametrize("program", [EVENTQ, THREAD], ids=["eventq", "thread"])
LINE = '{"source":"self","type":"note","content":"%s"}'


# --- words ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("at", range(9))
def test_verbose_is_taken_anywhere(inbox: str, program: str, at: int) -> None:
    """--verbose before, between and after the words of a command changes nothing."""
    words = ["push", "--thread", inbox, "--source", "self", "--type", "note", "--content", "x"]
    places = [0, 1, 3, 5, 7, 9]
    if at < len(places):
        words.insert(places[at], "--verbose")
    elif at == 6:
        words = ["--verbose", *words, "--verbose", "--verbose"]
    else:  # where a value is due it is one
        words[8 if at == 7 else 4] = "--verbose"
    done = run(*words, program=program)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert contents(inbox) == ["--verbose" if at == 7 else "x"]


@BOTH
def test_verbose_is_taken_by_groups_and_by_what_captures(inbox: str, program: str) -> None:
    """`--verbose` is accepted before and within two-word commands, but not after `--`."""
    for words in (
        ["--verbose", "mirror", "rebuild"],
        ["mirror", "--verbose", "rebuild"],
        ["mirror", "rebuild", "--verbose"],
    ):
        expected = "Rebuilt events.jsonl with 0 events\n"
        assert run(*words, "--thread", inbox, program=program).out == expected
    done = run(
        "capture --verbose --thread", inbox, "--", "echo", "--verbose", "--version", program=program
    )
    assert (done.code, done.out) == (0, "--verbose --version\n")


@pytest.mark.parametrize("words", [
    ["--version"], ["-V"], ["info", "--version"], ["push", "-V"], ["--verbose", "-V"],
    ["mirror", "-V"],
    ["push", "--thread", "INBOX", "--source", "s", "--type", "t", "--content", "c", "--version"],
])  # fmt: skip
def test_the_version_is_given_anywhere(inbox: str, words: list[str]) -> None:
    """--version and -V print the version, bare for `thread`, and do nothing else."""
    words = [inbox if word == "INBOX" else word for word in words]
    for program, shown in (
        (EVENTQ, f"eventq {eventq.__version__}\n"),
        (THREAD, f"{eventq.__version__}\n"),
    ):
        done = run(*words, program=program)
        assert (done.code, done.out, done.err) == (0, shown, "")
    assert contents(inbox) == []


@BOTH
def test_help_is_a_command_too(program: str) -> None:
    """`help` and `help COMMAND` print what `--help` prints."""
    for words in ([], ["push"], ["mirror", "rebuild"], ["blob"]):
        done = run("help", *words, program=program)
        assert (done.code, done.err) == (0, "")
        assert done.out == run(*words, "--help", program=program).out
    for words in (["pish"], ["mirror", "pish"]):
        done = run("help", *words, program=program)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("Error: No such command 'pish'")


@BOTH
def test_verbose_help_says_more(program: str) -> None:
    """--help --verbose, in either order, adds what the files and the exit statuses are."""
    for words in ([], ["push"]):
        plain = run(*words, "--help", program=program).out
        for options in (["--help", "--verbose"], ["--verbose", "--help"]):
            done = run(*words, *options, program=program)
            assert (done.code, done.err) == (0, "")
            assert done.out.startswith(plain.rstrip("\n"))
            assert "events.jsonl" in done.out
            assert "Exit status:" in done.out


@BOTH
@pytest.mark.parametrize("words", [[], ["blob"], ["mirror"]])
def test_no_command_shows_help_on_stderr(program: str, words: list[str]) -> None:
    """Without a command, help is printed on stderr, with status 2."""
    done = run(*words, program=program)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {os.path.basename(program)} ")


@BOTH
def test_a_hook_is_silent_behind_verbose_too(program: str) -> None:
    """Whatever stands before it, a hook exits 0 in silence."""
    done = run("--verbose hook --what", program=program)
    assert (done.code, done.out, done.err) == (0, "", "")


@BOTH
@pytest.mark.parametrize("filter", [[], ["--filter", ""], ["--filter", "type = 'note'"]])
def test_a_first_pop_of_0_is_an_ack(inbox: str, program: str, filter: list[str]) -> None:
    """`info` shows its time, with any filter and under both names."""
    who = ["--thread", inbox, "--consumer", "w"]
    run("subscribe", *who, "--handler", "true", *filter, program=program)
    shown = run("info --thread", inbox, program=program).out
    assert "    last_acked_id: 0\n    updated_at: (never)\n" in shown
    done = run("pop", *who, "--last-event-id", "0", program=program)
    assert (done.code, done.out, done.err) == (0, "", "")
    shown = run("info --thread", inbox, program=program).out
    assert re.search(r"    last_acked_id: 0\n    updated_at: \d{4}-.*Z\n", shown)


@pytest.mark.parametrize("words", [["unsubscribe", "--consumer", "w"], ["dispatch"]])
def test_json_where_the_older_tool_has_none(inbox: str, words: list[str]) -> None:
    """`thread unsubscribe` and `thread dispatch` refuse --json and do nothing; eventq takes it."""
    run("subscribe --thread", inbox, "--consumer", "w", "--handler", "true")
    words = [*words, "--thread", inbox]
    for more in (["--json"], ["--verbose", "--json"]):
        done = run(*words, *more, program=THREAD)
        assert (done.code, done.out) == (2, "")
        assert json.loads(done.err)["error"].startswith("No such option '--json'")
    assert "--json" not in run(words[0], "--help", program=THREAD).out
    assert json.loads(run("info --json --thread", inbox).out)["subscriptions"]
    assert run(*words, "--json").code == 0
    assert "--json" in run(words[0], "--help").out


# --- batches --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("end", [
    "\r", "\n", "\r\n", "\r\r\n", "\n\u00a0\n", "\r\u00a0\u2003\ufeff\r", "\n \t\u3000\r\n",
    "\u00a0\n\u00a0",
])  # fmt: skip
def test_lines_end_and_are_blank_as_in_the_older_tool(inbox: str, program: str, end: str) -> None:
    """CR, LF and CR LF end a line; Unicode blanks around it are ignored."""
    given = end.join([LINE % "one", LINE % "two", LINE % "three"]) + end
    done = run("push --thread", inbox, "--batch", given=given, program=program)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert contents(inbox) == ["one", "two", "three"]


def test_lines_are_the_same_however_they_are_cut_into_blocks(inbox: str) -> None:
    """Line ends across the blocks of a read count once."""
    line = LINE % ("x" * 200)
    for end in ("\r", "\r\n", "\n"):
        for extra in range(3):
            given = " " * extra + end.join([line] * 2000) + end + "nonsense" + end
            done = run("push --thread", inbox, "--batch", given=given)
            assert done.err.startswith("Error: line 2001: "), (end, extra)
    given = "".join(line + end for end in ("\r", "\n", "\r\n", "\n\r") for _ in range(2000))
    assert run("push --thread", inbox, "--batch", "--json", given=given).out.startswith(
        '{"count":8000,'
    )


def test_blanks_of_unicode_inside_of_texts_are_kept(inbox: str) -> None:
    """Only around the objects they count for nothing."""
    text = "\u00a0a\u2028b\u2029c\u0085d\ufeff"
    given = f"\ufeff\u00a0{LINE % text}\u00a0\n"
    assert run("push --thread", inbox, "--batch", given=given).code == 0
    assert contents(inbox) == [text]


# --- what info shows ------------------------------------------------------------------------------


@BOTH
def test_an_empty_filter_is_shown_as_it_was_given(inbox: str, program: str) -> None:
    """A filter of no characters means all events, and `info` does not turn it into none."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", "x")] * 2)
    words = ["--thread", inbox, "--handler", "true"]
    done = run("subscribe", *words, "--consumer", "a", "--filter", "", "--json", program=program)
    assert json.loads(done.out)["filter"] == ""
    assert run("subscribe", *words, "--consumer", "b", program=program).code == 0
    assert [
        one["filter"]
        for one in json.loads(run("info --thread", inbox, "--json", program=program).out)[
            "subscriptions"
        ]
    ] == ["", None]
    shown = run("info --thread", inbox, program=program).out
    assert "  - a\n    handler: true\n    filter:  \n    last_acked_id: 0\n" in shown
    assert "  - b\n    handler: true\n    filter:  (none)\n" in shown
    assert shown.count("pending: 2\n") == 2
    with eventq.open(inbox) as thread:
        assert [one.filter for one in thread.subscriptions()] == ["", None]
        assert len(thread.pop("a", 0)) == 2


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    ["home/user/x", "é", "\U0001f600", "a\U0001f600b", "x" * 38 + "\U0001f600", "\U0001f600" * 20],
)
def test_the_name_of_a_task_counts_utf_16_units(tail: str) -> None:
    """A character beyond the Basic Multilingual Plane counts as two UTF-16 units."""
    path = f"/{tail}"
    units = path.encode("utf-16-le")
    pairs = [chr(int.from_bytes(units[at : at + 2], "little")) for at in range(0, len(units), 2)]
    plain = re.sub("[^A-Za-z0-9]", "-", "".join(pairs))
    long = f"{plain[:32]}-{hashlib.sha1(path.encode()).hexdigest()[:6]}"
    assert slug(path) == (plain if len(plain) <= 40 else long)


HINTS = [
    (["info", "--thread", "NOWHERE"], "run '{} init NOWHERE' first"),
    (
        ["pop", "--thread", "INBOX", "--consumer", "w", "--last-event-id", "0"],
        "run '{} subscribe' for it first",
    ),
    (["resume", "--thread", "INBOX", "--consumer", "w"], "run '{} subscribe' for it first"),
    (["turn", "last", "nothing", "--thread", "INBOX"], "see '{} context ls'"),
    (["push", "--what"], "run '{} push --help'"),
    (["pish"], "run '{} --help'"),
]


INSTEAD = {  # what is said of them with the names that there are, which `thread` does not list
    "run '{} subscribe' for it first": "consumers here: 'there'; '{} subscribe' makes a new one",
    "see '{} context ls'": "there are no contexts here; '{} context create' makes one",
}


@pytest.mark.parametrize(("words", "hint"), HINTS, ids=[" ".join(words[:2]) for words, _ in HINTS])
def test_hints_name_the_program_as_it_was_called(
    inbox: str, tmp_path: Path, words: list[str], hint: str
) -> None:
    """Hints are commands of the name that was called; `python -m eventq` is eventq."""
    with eventq.open(inbox) as thread:
        thread.subscribe("there", "true")
    paths = {"INBOX": inbox, "NOWHERE": str(tmp_path / "it's 'eventq x")}
    words = [paths.get(word, word) for word in words]
    missing = cited(f"{{}} init {quote(paths['NOWHERE'])}")
    hint = hint.replace("'{} init NOWHERE'", missing)
    calls = {"eventq": [EVENTQ], "thread": [THREAD], "module": [sys.executable, "-m", "eventq"]}
    for name, call in calls.items():
        of_name = hint if name == "thread" else INSTEAD.get(hint, hint)
        named = of_name.format("thread" if name == "thread" else "eventq")
        for more in ([], ["--json"]):
            done = subprocess.run(
                [*call, *words, *more], capture_output=True, text=True, env=environ(), timeout=300
            )
            said = json.loads(done.stderr)["suggestion"] if more else done.stderr
            assert named in said


def test_subscribing_again(inbox: str) -> None:
    """`thread` refuses a consumer id that is taken; `eventq` only where the values differ."""
    words = ["subscribe", "--thread", inbox, "--consumer", "w", "--handler"]
    assert run(*words, "true", program=THREAD).code == 0
    again = run(*words, "true", program=THREAD)
    assert (again.code, "run 'thread unsubscribe' first" in again.err) == (1, True)
    differs = run(*words, "true", program=EVENTQ)
    assert (differs.code, "max attempts 5 -> 21, backoff 0.5..60 -> 1..300" in differs.err) == (
        1,
        True,
    )
    assert run(*words, "true", "--replace", program=EVENTQ).code == 0
    assert run(*words, "true", program=EVENTQ).code == 0
    other = run(*words, "false", program=EVENTQ)
    assert (other.code, "add --replace" in other.err) == (1, True)
    assert run(*words, "false", "--replace", program=EVENTQ).code == 0
    lacking = run(*words[:-1], program=THREAD)
    assert (lacking.code, lacking.err) == (
        2,
        "Error: Missing option '--handler' - run 'thread subscribe --help'\n",
    )


def test_going_back(inbox: str) -> None:
    """`thread` goes back whenever it is told a smaller id; `eventq` only with --replay."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", "x")] * 5)
        thread.subscribe("w")
    words = ["--thread", inbox, "--consumer", "w", "--last-event-id"]
    for program in (THREAD, EVENTQ):
        replay = ["--replay"] if program == EVENTQ else []
        assert run("ack", *words, "4", program=program).code == 0
        refused = run("pop", *words, "2", program=EVENTQ)
        assert (refused.code, refused.out) == (1, "")
        assert "consumer 'w' has acked 4 already - " in refused.err
        assert run("ack", *words, "2", program=EVENTQ).code == 0
        assert acked(inbox) == 4
        done = run("pop", *words, "2", *replay, program=program)
        assert [json.loads(line)["id"] for line in done.out.splitlines()] == [3, 4, 5]
        assert acked(inbox) == 2
        assert run("ack", *words, "1", *replay, program=program).code == 0
        assert acked(inbox) == 1


def test_beside_claims(inbox: str) -> None:
    """`thread` knows of no claims; `eventq` refuses to read and ack beside them."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", "x")] * 5)
        thread.subscribe("w")
        words = ["--thread", inbox, "--consumer", "w"]
        for at, command in enumerate(("pop", "ack"), start=1):
            assert thread.claim("w")
            more = [*words, "--last-event-id", str(2 * at)]
            refused = run(command, *more, program=EVENTQ)
            assert (refused.code, refused.out) == (1, "")
            assert "consumer 'w' is in use: workers have claims of it" in refused.err
            assert run(command, *more, program=THREAD).code == 0
            assert acked(inbox) == 2 * at


def test_a_pop_without_an_id(inbox: str) -> None:
    """`eventq` reads on from the last ack; `thread` has always wanted an id, as `ack` does."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "note", "x")] * 3)
        thread.subscribe("w")
        thread.ack("w", 1)
    words = ["--thread", inbox, "--consumer", "w"]
    done = run("pop", *words, program=EVENTQ)
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [2, 3]
    assert acked(inbox) == 1
    for command, program in (("pop", THREAD), ("ack", THREAD), ("ack", EVENTQ)):
        done = run(command, *words, program=program)
        name = os.path.basename(program)
        hint = f"run '{name} {command} --help'"
        assert (done.code, done.err) == (2, f"Error: Missing option '--last-event-id' - {hint}\n")
    done = run("pop", *words, "--replay", program=EVENTQ)
    assert (done.code, "--replay has no effect without --last-event-id" in done.err) == (2, True)


def acked(inbox: str) -> int:
    """Return how far the only consumer has got."""
    with eventq.open(inbox) as thread:
        return thread.status().consumers[0].last_acked_id


def test_what_is_shown_names_the_program_as_it_was_called(inbox: str) -> None:
    """So do results that say how to go on, and the examples of every command's help."""
    with eventq.open(inbox) as thread:
        context = thread.contexts.create("main")
        for _ in range(3):
            context.append("x" * 5000)
    words = ["turn", "last", "main", "--limit", "1", "--thread", inbox]
    for program, other in ((EVENTQ, "thread"), (THREAD, "eventq")):
        name = os.path.basename(program)
        shown = run(*words, program=program).out
        assert f"bytes more; {name} blob get blob:blake3:" in shown
        assert f"-- more above: {name} turn before main --turn 3" in shown
        assert f"{other} turn" not in shown
        shown = run("--help", program=program).out
        assert f" {name} init ./inbox\n" in shown


@pytest.mark.parametrize(
    "name", ["push", "mirror rebuild", "artifact put", "completion", "cat", "turn append"]
)
def test_the_examples_of_help_name_the_program_as_it_was_called(name: str) -> None:
    """An example can be copied as it stands."""
    shown = run(*name.split(), "--help", program=THREAD).out
    examples = shown.split("Example:\n")[1]
    assert f"thread {name}" in examples
    assert "eventq " not in examples
    ours = [one.replace("eventq ", "thread ") for one in COMMANDS[name].examples]
    assert {line.strip() for line in examples.splitlines()} <= {*ours}


# --- a file inside of a thread --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["events.db", "events.jsonl"])
def test_a_file_of_a_thread_leads_to_the_thread(inbox: str, name: str) -> None:
    """A file in the directory of a thread is answered with that directory, not with `init`."""
    for words in (
        ["info"],
        ["push", "--source", "s", "--type", "t", "--content", "c"],
        ["peek", "--last", "1"],
    ):
        done = run(*words, "--thread", f"{inbox}/{name}")
        assert (done.code, done.out) == (1, "")
        wanted = f"Error: '{inbox}/{name}' is not a thread - give its directory: --thread {inbox}\n"
        assert done.err == wanted
    with pytest.raises(eventq.LogicError, match=f"open its directory, {inbox!r}"):
        eventq.open(f"{inbox}/{name}")


def test_other_paths_lead_to_init(inbox: str, tmp_path: Path) -> None:
    """A directory inside of a thread, and a file elsewhere, are no thread's files."""
    (tmp_path / "file").write_text("x")
    os.mkdir(f"{inbox}/more")
    done = run("info --thread", str(tmp_path / "file"))
    assert done.err.endswith(" - it is a file: give the directory of a thread\n")
    for path in (f"{inbox}/more", f"{inbox}/missing"):
        assert run("info --thread", path).err.endswith(f" run 'eventq init {path}' first\n")
