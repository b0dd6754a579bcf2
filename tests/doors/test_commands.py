"""Output, status and bytes of commands, beyond USAGE.md and the black-box suite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import eventq
from eventq.cli import groups
from tests.doors.support import BIN, EVENTQ, environ, ok, run

COMMANDS = groups.every()


@pytest.fixture
def inbox(tmp_path: Path) -> str:
    """A thread with three events."""
    path = eventq.init(tmp_path / "inbox")
    with eventq.open(path) as thread:
        thread.push_many([("self", "record", str(n)) for n in range(3)])
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_explains_it_with_an_example(name: str) -> None:
    """`--help` names every option, and shows an example that starts with the command."""
    done = run(*name.split(), "--help")
    assert done.code == 0
    assert done.err == ""
    for option in COMMANDS[name].options:
        assert f"--{option.name}" in done.out
    assert "Example:\n" in done.out
    assert f"eventq {name}" in done.out.split("Example:\n")[1]


@pytest.mark.parametrize("program", ["eventq", "thread"])
def test_both_programs_say_their_name_and_version(program: str) -> None:
    """`eventq` and `thread` are one program; the version of `thread` is a bare number."""
    done = run("--version", program=os.path.join(BIN, program))
    shown = eventq.__version__ if program == "thread" else f"eventq {eventq.__version__}"
    assert (done.code, done.out) == (0, f"{shown}\n")


def test_no_command_at_all_shows_help() -> None:
    """Called with nothing, it says what it is, and that this was a mistake."""
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "Usage: eventq" in done.err


@pytest.mark.parametrize(("words", "says"), [
    (["pish"], "No such command 'pish'"), (["push", "--thred", "x"], "No such option"),
    (["push", "--thread"], "Option '--thread' requires an argument"),
    (["ack", "--thread", "x", "--consumer", "w"], "Missing option '--last-event-id'"),
    (["info", "--thread", "INBOX", "more"], "Got unexpected extra argument"),
    (["completion", "tcsh"], "SHELL must be bash, zsh or fish, not 'tcsh'"),
    (["push", "--thread", "INBOX", "--content", "a", "--content-file", "b"], "exclude each other"),
    (["push", "--thread", "INBOX"], "stdin is empty"),
    (["peek", "--thread", "INBOX", "--last", "1", "--last-event-id", "0"], "exclude each other"),
    (["prune", "--thread", "INBOX"], "--keep-last or --before-id"),
    (["pop", "--thread", "INBOX", "--consumer", "w", "--last-event-id", "1.5"], "whole number"),
    (["peek", "--thread", "INBOX", "--last-event-id", "0", "--limit", "0"], "from 1"),
    (["pop", "--thread", "INBOX", "--consumer", "w", "--last-event-id", "0", "--wait", "soon"], "duration"),
    (["push", "--thread", "", "--source", "a", "--type", "b", "--content", "c"],
     "--thread is empty"),
    (["push", "--thread", "INBOX", "--source", "", "--type", "b", "--content", "c"],
     "--source is empty"),
    (["push", "--thread", "INBOX", "--source", "a\nb", "--type", "b", "--content", "c"],
     "control character"),
    (["push", "--thread", "INBOX", "--source", "me", "--type", "b", "--content", "c", "--strict-source"], "source"),
])  # fmt: skip
def test_a_mistake_in_the_command_is_one_line_and_status_2(
    inbox: str, words: list[str], says: str
) -> None:
    """A usage error has one form, from click or from eventq; nothing is stored."""
    words = [inbox if word == "INBOX" else word for word in words]
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: ")
    assert says in done.err
    assert " - " in done.err
    assert len(done.err.splitlines()) == 1
    if words[0] in COMMANDS and any(option.name == "json" for option in COMMANDS[words[0]].options):
        done = run(words[0], "--json", *words[1:])
        assert done.code == 2
        error = json.loads(done.err)
        assert set(error) == {"error", "suggestion"}
        assert says in error["error"]
    with eventq.open(inbox) as thread:
        assert thread.last_id() == 3


@pytest.mark.parametrize(("words", "hint"), [
    (["push", "--thread"], "run 'eventq push --help'"),
    (["turn", "last", "main", "--limit"], "run 'eventq turn last --help'"),
    (["info", "--thread", ""], "give the directory of a thread"),
    (["unsubscribe", "--thread", "INBOX", "--consumer", ""], "give a value"),
    (["push", "--thread", "INBOX", "--source", "", "--type", "b", "--content", "c"],
     "give a value, or leave --source out"),
    (["tail", "--thread", "INBOX", "--lines", "-1"], "give 0 or more"),
    (["peek", "--thread", "INBOX", "--last", "-1"], "give 1 or more"),
    (["peek", "--thread", "INBOX", "--last", "1.5"], "give plain digits"),
    (["peek", "--thread", "INBOX", "--last", "0"], "give 1 or more"),
])  # fmt: skip
def test_a_hint_fits_the_mistake(inbox: str, words: list[str], hint: str) -> None:
    """A hint can be followed: a required option cannot be left out, 0 has plain digits."""
    done = run(*(inbox if word == "INBOX" else word for word in words))
    assert done.code == 2
    assert done.err.endswith(f" - {hint}\n")


def test_subscribe_warns_of_times_in_another_spelling(inbox: str) -> None:
    """A filter with datetime() on created_at is stored with a warning; the right form is not."""
    words = ["subscribe", "--thread", inbox, "--handler", "true", "--consumer"]
    right = "strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour')"
    odd = run(*words, "odd", "--filter", "created_at > datetime('now','-1 hour')")
    assert (odd.code, odd.out) == (0, "Subscribed consumer 'odd'\n")
    assert odd.err.startswith("Warning: the filter compares created_at with datetime()")
    assert right in odd.err
    assert odd.err.count("\n") == 2, "the other one is about --each"
    even = run(*words, "even", "--filter", f"created_at > {right}")
    assert (even.code, even.out) == (0, "Subscribed consumer 'even'\n")
    assert even.err.startswith("Note: without --each, this handler has to pop and ack its events")
    for command in ("subscribe", "peek", "tail"):
        assert right.replace(" ", "") in "".join(run(command, "--help").out.split())


@pytest.mark.parametrize("command", ["peek", "tail"])
def test_a_look_warns_of_times_in_another_spelling(inbox: str, command: str) -> None:
    """A filter that selects by a time, and selects the wrong events, is not silent.

    Members of the kind: each command with --filter, alone and with --since; `thread`, whose output
    is as ever, is silent.
    """
    words = [command, "--thread", inbox, "--filter"]
    for more in ([], ["--since", "1h"]):
        odd = run(*words, "Created_At > datetime('now','-1 hour')", *more)
        assert (odd.code, odd.out != "") == (0, True)
        assert odd.err.startswith("Warning: the filter compares created_at with datetime()")
        even = run(*words, "created_at > strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour')", *more)
        assert (even.code, even.err, even.out) == (0, "", odd.out)


@pytest.mark.parametrize("operator", ["MATCH", "REGEXP"])
def test_a_search_that_no_filter_has_names_those_that_there_are(inbox: str, operator: str) -> None:
    """An operator of other databases is answered with LIKE, not with a function spelled alike."""
    done = run("peek", "--thread", inbox, "--filter", f"content {operator} 'x'")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[0] == (
        f"Error: '{operator}' is not a function a filter may use"
        " - search with LIKE, GLOB or instr(content, 'text')"
    )


@pytest.mark.parametrize("words", [
    ["mirror", "recover", "nofile"], ["push", "--content-file", "nofile"], ["blob", "put", "nofile"],
    ["serve", "--http", "127.0.0.1:0", "--tokens", "nofile"],
    ["ui", "--http", "127.0.0.1:0", "--tokens", "nofile", "--no-browser"],
    ["work", "--allow", "nofile"], ["session", "import", "nofile"], ["artifact", "import", "nofile"],
])  # fmt: skip
def test_a_file_that_is_not_there_is_named_once(inbox: str, words: list[str]) -> None:
    """A sentence says what the system said of which file; it shows no number of an error."""
    done = run(*words, "--thread", inbox)
    assert done.code in (1, 2)
    assert done.out == ""
    assert "No such file or directory - " in done.err
    assert done.err.count("nofile") == 1
    assert "Errno" not in done.err


def test_init_in_a_folder_that_is_not_empty_says_so(tmp_path: Path) -> None:
    """Other entries of the folder stay, and a line on stderr counts them; `thread` prints none."""
    folders = [tmp_path / name for name in ("a", "b", "c", "d")]
    for folder in folders:
        (folder / "run").mkdir(parents=True)  # as an init that crashed leaves it
        (folder / "events.jsonl").touch()
    for folder in folders[1:]:
        (folder / ".git").mkdir()
        (folder / "code.py").write_text("mine")
    half, full, json_too, older = map(str, folders)
    done = run("init", half)
    assert (done.out, done.err) == (f"Initialized thread at {half}\n", "")
    done = run("init", full)
    assert (done.code, done.out) == (0, f"Initialized thread at {full}\n")
    assert done.err == "Note: the folder was not empty; its other entries (2) are left alone\n"
    done = run("init", json_too, "--json")
    assert (json.loads(done.out), done.err.count("\n")) == ({"thread": json_too}, 1)
    done = run("init", older, program=os.path.join(BIN, "thread"))
    assert (done.out, done.err) == (f"Initialized thread at {older}\n", "")
    assert (folders[1] / "code.py").read_text() == "mine"


@pytest.mark.parametrize("spelled", ["proj/.", "link", "proj", "plain"])
def test_thread_rm_deletes_no_directory(tmp_path: Path, spelled: str) -> None:
    """Given a directory, thread or not, `thread rm` deletes nothing and says how to."""
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "code.py").write_text("mine")
    (tmp_path / "plain").mkdir()
    (tmp_path / "link").symlink_to("proj")
    eventq.init(tmp_path / "proj")
    before = sorted(map(str, tmp_path.rglob("*")))
    done = run("thread rm", os.path.join(tmp_path, spelled))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert (f"rm -r {tmp_path}/proj/events.db " in done.err) == (spelled != "plain")
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_json_results_of_the_commands_that_have_them(inbox: str, tmp_path: Path) -> None:
    """With --json each command gives one JSON object."""
    fresh = str(tmp_path / "fresh")
    assert json.loads(run("init", fresh, "--json").out) == {"thread": fresh}
    words = [
        "subscribe", "--thread", inbox, "--consumer", "w", "--handler", "true", "--filter",
        "id > 0", "--json",
    ]  # fmt: skip
    expected = {"consumer_id": "w", "handler_cmd": "true", "filter": "id > 0"}
    assert json.loads(run(*words).out) == expected
    assert json.loads(run("resume --thread", inbox, "--consumer", "w", "--json").out) == {
        "consumer_id": "w"
    }
    assert json.loads(run("check --thread", inbox, "--json").out) == {
        "ok": True,
        "faults": [],
        "warnings": [],
    }
    assert json.loads(run("mirror rebuild --thread", inbox, "--json").out) == {"count": 3}
    assert json.loads(
        run("prune --thread", inbox, "--keep-last", "1", "--force", "--json").out
    ) == {"count": 2}
    info = json.loads(run("info --thread", inbox, "--json").out)
    assert info["event_count"] == 1
    assert info["newest_id"] == 3
    assert info["subscriptions"][0]["pending"] == 1


def test_info_names_what_waits_behind_an_unfinished_event(inbox: str) -> None:
    """Unfinished events are told from those that no worker has looked at; `thread` says neither."""
    run("subscribe --thread", inbox, "--consumer", "w", "--backoff", "60s")
    shown = run("info --thread", inbox).out
    assert "    pending: 3\n" in shown
    assert "unexamined" not in shown
    token = run("claim --thread", inbox, "--consumer", "w").out.split('"token":"')[1].split('"')[0]
    shown = run("info --thread", inbox).out
    assert "    pending: 3\n" in shown
    assert "    unfinished: 1 (1 claimed now)\n" in shown
    assert "    unexamined: 2 (no worker has looked at them yet)\n" in shown
    run("retry", token, "--thread", inbox)
    assert "    unfinished: 1 (1 waits for another attempt)\n" in run("info --thread", inbox).out
    (found,) = json.loads(run("info --json --thread", inbox).out)["subscriptions"]
    counted = {name: found[name] for name in ("pending", "unfinished", "leased", "parked")}
    assert counted == {"pending": 3, "unfinished": 1, "leased": 0, "parked": 0}
    assert found["unexamined"] == 2
    older = run("info --thread", inbox, program=os.path.join(BIN, "thread")).out
    assert "    pending: 3\n    running: no\n" in older
    assert "un" not in older.partition("    running")[2]


def test_pause_rests_a_consumer_and_check_warns_of_it(inbox: str) -> None:
    """`info` shows it too; --strict makes a warning an exit status of 3; `resume` ends it."""
    run("subscribe --thread", inbox, "--consumer", "w")
    done = run("pause --thread", inbox, "--consumer", "w")
    assert (done.code, done.out) == (0, "Paused consumer 'w'\n")
    assert "paused: yes (until 'eventq resume')" in run("info --thread", inbox).out
    done = run("check --thread", inbox)
    warned = f"consumer 'w' is paused; run: eventq resume --thread {inbox} --consumer w"
    assert (done.code, done.out, done.err) == (0, "ok\n", f"Warning: {warned}\n")
    assert run("check --thread", inbox, "--strict").code == 3
    found = run("check --thread", inbox, "--strict", "--json")
    assert (found.code, json.loads(found.out)["warnings"]) == (3, [warned])
    done = run("check --thread", inbox, program="thread")
    assert (done.code, done.out, done.err) == (0, "ok\n", "")
    run("resume --thread", inbox, "--consumer", "w")
    assert run("check --thread", inbox, "--strict").code == 0


def test_check_says_what_is_wrong_and_exits_1(inbox: str) -> None:
    """A line of the mirror that is not what the log holds is a fault."""
    with open(f"{inbox}/events.jsonl", "r+b") as file:
        file.write(b'{"id":1,"x')
    done = run("check --thread", inbox)
    assert done.code == 1
    assert "events.jsonl line 1 is not an event" in done.out


def test_an_empty_batch_is_a_success(inbox: str) -> None:
    """No events on stdin: nothing is done, and that is fine."""
    done = run("push --thread", inbox, "--batch", "--json", given="\n\r\n  \n")
    assert (done.code, done.out) == (0, '{"count":0,"first_id":null,"last_id":null}\n')


@pytest.mark.parametrize(("line", "says"), [
    ("{", "not JSON"), ("[1]", "not a JSON object"), ("7", "not a JSON object"),
    ('{"source":"a","type":"b","content":"c"} x', "more than one JSON value"),
    ('{"source":"a","type":"b"}', "content is missing"),
    ('{"source":"a","type":"b","content":null}', "content is missing"),
    ('{"source":1,"type":"b","content":"c"}', "source is not a string"),
    ('{"source":"","type":"b","content":"c"}', "source is empty"),
    ('{"source":"a","type":"b","content":"c","subtype":1}', "subtype is not a string"),
    ('{"source":"a","type":"b","content":"c","key":[]}', "key is not a string"),
    ('{"source":"a","type":"b","content":"\\ud800"}', "unpaired surrogate"),
    ('{"source":"a","type":"b","content":NaN}', "NaN"),
    ('{"source":"a","type":"b","content":' + "[" * 100000 + "]" * 100000 + "}", "nested too deep"),
    (b'{"source":"a","type":"b","content":"\xff"}', "not UTF-8"),
])  # fmt: skip
def test_a_bad_line_refuses_the_batch_and_is_named(
    inbox: str, line: str | bytes, says: str
) -> None:
    """A bad line is named by its number, and nothing of the batch is stored."""
    good = b'{"source":"a","type":"b","content":"c"}\n'
    bad = line if isinstance(line, bytes) else line.encode()
    done = run("push --thread", inbox, "--batch", given=good + b"\n" + bad + b"\n" + good)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: line 3: ")
    assert says in done.err
    with eventq.open(inbox) as thread:
        assert thread.last_id() == 3


@pytest.mark.parametrize(("value", "kept"), [
    ("1.50", "1.50"), ("[1, 2]", "[1, 2]"), ('{"a": "é"}', '{"a": "é"}'), ("true", "true"),
    ("9" * 5000, "9" * 5000),
])  # fmt: skip
def test_content_that_is_no_string_is_kept_as_it_was_written(
    inbox: str, value: str, kept: str
) -> None:
    """Numbers, arrays and objects keep their JSON text; the last of equal keys counts."""
    line = f'{{"source":"a", "content" : "old", "type":"b" , "content" :  {value} , "more": [1]}}'
    assert run("push --thread", inbox, "--batch", given=line).code == 0
    with eventq.open(inbox) as thread:
        assert thread.last(1)[0].content == kept


def test_content_from_a_file_and_from_stdin(inbox: str, tmp_path: Path) -> None:
    """`--content-file` is stored unchanged; a missing file is status 1, binary status 2."""
    path = tmp_path / "content"
    path.write_text("a\0b\r\né")
    words = ["push", "--thread", inbox, "--source", "s", "--type", "t", "--content-file"]
    assert run(*words, str(path)).code == 0
    assert run(*words, "-", given="from stdin").code == 0
    with eventq.open(inbox) as thread:
        assert [e.content for e in thread.last(2)] == ["a\0b\r\né", "from stdin"]
    missing = run(*words, str(tmp_path / "missing"))
    assert (missing.code, missing.out) == (1, "")
    path.write_bytes(b"\xff")
    assert run(*words, str(path)).code == 2
    assert run(*words, str(tmp_path)).code == 1


def test_a_hook_stores_the_object_once_and_is_always_silent(inbox: str) -> None:
    """The subtype is the hook's event, the key its tool use; it always exits 0, silently."""
    text = '{"hook_event_name":"PreToolUse","tool_use_id":"t1","n":1e999}'
    after = text.replace("Pre", "Post")
    for given in (text, text, after, "{}", "nonsense", "", "[" * 100_000, b"\xff"):
        done = run("hook --thread", inbox, given=given)
        assert (done.code, done.out, done.err) == (0, "", "")
    for words in (
        ["hook"],
        ["hook", "--thread", "/nowhere"],
        ["hook", "--what"],
        ["hook", "--thread", inbox, "x"],
    ):
        done = run(*words, given=text)
        assert (done.code, done.out, done.err) == (0, "", "")
    with eventq.open(inbox) as thread:
        stored = list(thread.peek(3))
    assert [(e.type, e.subtype, e.content) for e in stored] == [
        ("record", "PreToolUse", text),
        ("record", "PostToolUse", after),
        ("record", None, "{}"),
    ]


def test_the_guide_is_the_skill_without_its_head() -> None:
    """`guide` prints what the skill's folder holds."""
    folder = run("guide --path").out.strip()
    text = Path(folder, "SKILL.md").read_text()
    assert text.startswith("---\nname: eventq\n")
    shown = run("guide").out
    assert shown.startswith("# eventq")
    assert text.endswith(shown)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_both_programs(shell: str) -> None:
    """The script of each shell completes `eventq` and `thread`."""
    done = run("completion", shell)
    assert done.code == 0
    assert "_EVENTQ_COMPLETE" in done.out
    assert "_THREAD_COMPLETE" in done.out


def test_bash_completes_commands_and_options() -> None:
    """In a real bash the completion gives the commands and options that begin so."""
    script = """
    eval "$(eventq completion bash)"
    COMP_WORDS=(eventq sub) COMP_CWORD=1; _eventq_completion eventq; echo "${COMPREPLY[@]}"
    COMPREPLY=() COMP_WORDS=(thread pop --con) COMP_CWORD=2; _thread_completion thread; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
    )
    assert done.stdout.split() == ["subscribe", "--consumer"]


def test_tail_follows_across_rotation_and_ends_quietly(inbox: str) -> None:
    """`tail -f` prints other processes' events, even after a rotation; ^C ends it silently."""
    with subprocess.Popen(
        [EVENTQ, "tail", "--thread", inbox, "-n", "1", "-f", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ(),
    ) as tail:  # fmt: skip
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["id"] == 3
        with eventq.open(inbox) as thread:
            thread.push("self", "record", "four")
            assert json.loads(tail.stdout.readline())["id"] == 4
            thread.push_many([("self", "record", "x")] * 10_001)
            for number in range(5, 10_006):
                assert json.loads(tail.stdout.readline())["id"] == number
            thread.push("self", "record", "after")
            assert len(list(Path(inbox).glob("events-*.jsonl"))) == 1
            assert json.loads(tail.stdout.readline())["id"] == 10_006
        tail.send_signal(signal.SIGINT)
        assert tail.stdout.read() == b""
        assert tail.stderr.read() == b""
        assert tail.wait() == 0


def test_a_closed_pipe_ends_a_command_quietly(inbox: str) -> None:
    """`| head` is no error, neither for what prints much nor for what waits for more."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "record", "x" * 1000)] * 1000)
    for words in ("peek --last-event-id 0 --limit 5000", "tail -n 2000 -f"):
        script = (
            f"{EVENTQ} {words} --thread {inbox} | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
        )
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_full_stdout_is_an_error(inbox: str) -> None:
    """What could not be printed is not a success."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [EVENTQ, "peek", "--thread", inbox, "--last", "1"], stdout=full, stderr=subprocess.PIPE,
            env=environ(),
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: stdout could not be written")


def closed(inbox: str, words: str, streams: str = ">&-") -> tuple[int, str]:
    """Return the exit status and stderr of a command with closed streams."""
    done = subprocess.run(
        ["sh", "-c", f"{EVENTQ} {words} {streams}"], capture_output=True, text=True, timeout=300,
        env=environ(EVENTQ_THREAD=inbox, EVENTQ_CONSUMER="w"), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "pop", "pop --last-event-id 1", "peek --last 1", "tail", "tail -f", "info", "info --json",
        "check", "push --source self --type record --content x --json", "pause --consumer w",
        "turn append main --content x", "completion bash", "guide", "--help", "help push",
        "push --help", "--version", "-V",
    ],
)  # fmt: skip
def test_a_closed_stdout_is_an_error(inbox: str, words: str) -> None:
    """A command whose result goes nowhere says so; it does not exit with 0."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "record", "x")] * 2)
        thread.subscribe("w")
        thread.contexts.create("main")
    code, error = closed(inbox, words)
    assert code == 1
    assert error.startswith('{"error":"' if "--json" in words else "Error: ")
    assert "stdout could not be written: Bad file descriptor" in error


def test_a_follower_with_a_closed_stdout_does_not_wait(inbox: str) -> None:
    """It fails at once, though there is nothing to print yet."""
    assert closed(inbox, "tail -f")[0] == 1


def test_a_command_that_prints_nothing_needs_no_stdout(inbox: str) -> None:
    """With all streams closed it is done, and no file of the thread is taken for a stream."""
    for number in range(1, 3):
        words = f"push --source self --type record --content {number}"
        assert closed(inbox, words, "<&- >&- 2>&-") == (0, "")
    assert closed(inbox, "push --source self --type record --content 3 --json", ">&- 2>&-")[0] == 1
    assert closed(inbox, "push --source self", "<&- >&- 2>&-")[0] == 2
    with eventq.open(inbox) as thread:
        assert [event.content for event in thread.last(3)] == ["1", "2", "3"]
        assert thread.check() == []
        assert "could not" not in Path(thread.layout.journal).read_text()


def test_a_stdout_that_does_not_block_is_waited_for(inbox: str) -> None:
    """A pipe that somebody made non-blocking is full for a while, not for good."""
    with eventq.open(inbox) as thread:
        thread.push_many([("self", "record", "x" * 1000)] * 1000)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    while True:
        try:
            os.write(writing, b"\n" * 4096)  # full when the command begins
        except BlockingIOError:
            break
    words = [EVENTQ, "peek", "--thread", inbox, "--last", "1000"]
    with subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE, env=environ()) as process:
        os.close(writing)
        with open(reading, "rb") as pipe:
            assert len(pipe.read().split()) == 1000
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == (b"", 0)


@pytest.mark.parametrize(
    "words", [["--help"], ["help"], ["help", "push"], ["push", "--help"], ["--version"], ["-V"]]
)
def test_a_help_or_version_that_could_not_be_printed_is_an_error(words: list[str]) -> None:
    """A full disk is a sentence here as well."""
    for more in ([], ["--json"] if words[0] == "push" else []):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [EVENTQ, *more, *words], stdout=full, stderr=subprocess.PIPE, env=environ()
            )
        assert done.returncode == (2 if more else 1)
        assert b"Traceback" not in done.stderr
        assert done.stderr.startswith(
            b'{"error":' if more else b"Error: stdout could not be written: No space left"
        )


def test_no_control_character_of_others_reaches_the_terminal(inbox: str) -> None:
    """What other tools put into a thread is escaped by `info` and `check`, a line each."""
    with apsw.Connection(os.path.join(inbox, "events.db")) as raw:
        raw.execute(
            "INSERT INTO subscriptions VALUES ('a' || char(10, 27) || '[31m', 'x' || char(7), '(' || char(27))"
        )
        raw.execute(
            "INSERT INTO consumer_progress VALUES ('a' || char(10, 27) || '[31m', 0, char(27) || 'c')"
        )
        raw.execute(f'CREATE VIEW "v{chr(27)}{chr(10)}" AS SELECT 1')
    for words in ("info", "check"):
        done = run(words, "--thread", inbox)
        assert "\x1b" not in done.out + done.err
        assert "\x07" not in done.out + done.err
    assert done.code == 1
    assert len(done.out.splitlines()) == 2


@pytest.mark.parametrize(("line", "what"), [
    ('{"source":"a\tb"}', "Invalid control character, at character 12"),
    ('{"source":"a', "Unterminated string starting, at character 10"),
    ('{"source":"\\q"}', "Invalid \\escape, at character 11"),
])  # fmt: skip
def test_a_line_that_is_no_json_is_placed_once(inbox: str, line: str, what: str) -> None:
    """The scanner's own words are made for a place behind them."""
    assert run("push --batch --thread", inbox, given=line).err.startswith(
        f"Error: line 1: not JSON: {what} - "
    )


def test_paths_and_names_that_are_not_text_are_refused(inbox: str) -> None:
    """Bytes that are no UTF-8 in an argument are a sentence, not a traceback."""
    for words in (
        [b"info", b"--thread", b"/tmp/\xff"],
        [
            b"push",
            b"--thread",
            inbox.encode(),
            b"--source",
            b"\xff",
            b"--type",
            b"t",
            b"--content",
            b"c",
        ],
        [
            b"push",
            b"--thread",
            inbox.encode(),
            b"--source",
            b"s",
            b"--type",
            b"t",
            b"--content",
            b"\xff",
        ],
        [b"peek", b"--thread", inbox.encode(), b"--last", b"1", b"--filter", b"type = '\xff'"],
        [b"subscribe", b"--thread", inbox.encode(), b"--consumer", b"w", b"--handler", b"\xff"],
    ):
        done = subprocess.run(
            [EVENTQ.encode(), *words], capture_output=True, env=environ(), timeout=300
        )
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(b"Error: ")
        assert b"Traceback" not in done.stderr


def test_python_m_eventq_is_the_command() -> None:
    """`python -m eventq` works where no script is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "eventq", "--version"], capture_output=True, text=True, env=environ()
    )
    assert (done.returncode, done.stdout) == (0, f"eventq {eventq.__version__}\n")


def test_one_of_a_thing_is_singular(inbox: str) -> None:
    """There is no "1 bytes" and no "1 events", wherever a number is shown."""
    run("prune --keep-last 2 --force --thread", inbox)
    assert run("prune --keep-last 1 --force --thread", inbox).out == "Pruned 1 event\n"
    assert run("mirror rebuild --thread", inbox).out == "Rebuilt events.jsonl with 1 event\n"
    source = Path(inbox, "source")
    source.write_text("x")
    ref = run("blob put --thread", inbox, str(source)).out.strip()
    run("context create --name main --thread", inbox)
    run("turn append main --content x --thread", inbox)
    run("artifact put --tool t --thread", inbox, str(source))
    run("output put --id 0-a --file", str(source), "--thread", inbox)
    for words in (
        ["blob stat", ref], ["blob ls"], ["turn last main"], ["artifact ls"], ["output ls"],
    ):  # fmt: skip
        done = run(*words, "--thread", inbox)
        assert " 1 byte" in done.out, words
        assert "1 bytes" not in done.out


def test_tail_shows_what_turns_text_as_an_escape(path: str) -> None:
    """In names as well: U+202E and its like, and what some terminals take for the end of a line."""
    odd = "a\u202eb\u2028c\u2066d\u200fe"
    with eventq.open(path) as thread:
        thread.push(odd, odd, odd, odd)
    shown = ok("tail", "--thread", path)
    assert shown.isascii()
    assert shown.count(r"a\u202eb\u2028c\u2066d\u200fe") == 4
