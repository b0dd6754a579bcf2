"""`event erase`, `artifact erase` and `erasures`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import eventq
from eventq.records.run import NewRun, NewStep
from tests.doors.support import objects, ok, refused, run
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from pathlib import Path

LEFT = "; copies, packs and backups made before still have it, and programs that have read it\n"
TEXT = secret(5)


@pytest.fixture
def box(tmp_path: Path) -> str:
    """A thread with three events and an artifact in two scopes."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        for text in ("first", TEXT, "third"):
            thread.push("self", "note", text)
        thread.contexts.create("main")
        for context in (None, "main"):
            thread.scope(context).artifacts.put(TEXT.encode())
    return path


def test_an_event_is_erased(box: str) -> None:
    """The command says what it did, and what it does not reach; the list says when and why."""
    words = ("event", "erase", "2", "--reason", "a password", "--thread", box)
    assert run(*words).out == f"Erased event 2{LEFT}"
    (line,) = ok("erasures --thread", box).splitlines()
    assert line.endswith("Z  event 2  a password")
    told = json.loads(ok("erasures --json --thread", box))
    assert list(told) == ["kind", "name", "reason", "at_ms", "finished"]
    assert (told["kind"], told["name"], told["finished"]) == ("event", "2", True)
    refused(1, "event 2 was erased on", run("event", "erase", "2", "--thread", box))
    refused(1, "there is no event 9", run("event", "erase", "9", "--thread", box))
    refused(2, "ID must be a whole number", run("event", "erase", "x", "--thread", box))
    json.loads(ok("event erase 1 --json --thread", box))


def test_an_artifact_is_erased(box: str) -> None:
    """By its number, as an address, or in the scope of a context."""
    done = run("artifact", "erase", "artifact://0", "--thread", box)
    assert (done.code, done.out) == (0, f"Erased artifact 0{LEFT}")
    assert "still stands in artifact 1/0, event 2, path events.jsonl - erase it there" in done.err
    words = ("artifact", "erase", "0", "--context", "main", "--thread", box)
    assert run(*words, "--reason", "a key").out == f"Erased artifact 0 of scope 1{LEFT}"
    ok("event erase 2 --thread", box)
    assert remains(box, TEXT) == []
    refused(1, "artifact 0 was erased on", run("artifact", "cat", "0", "--thread", box))
    refused(1, "(a key)", run(*words))
    refused(1, "Artifact 7 not found", run("artifact", "erase", "7", "--thread", box))


def test_an_unfinished_erasure_is_listed(box: str) -> None:
    """Until it was done again, the list and `check` say so."""
    with eventq.open(box) as thread:
        thread.database.memory.erasures.event(2, None)
    assert "Z  event 2  unfinished: do it again" in ok("erasures --thread", box)
    found = run("check", "--thread", box)
    assert (found.code, "event 2 is not erased yet: erase it again\n" in found.out) == (1, True)
    ok("event erase 2 --thread", box)
    assert ok("check --thread", box) == "ok\n"
    assert os.path.isdir(box)


def test_a_text_is_found(box: str) -> None:
    """Its places are lines or objects; the text never stands on the command line."""
    done = run("find", "--text", "-", "--thread", box, given=f"{TEXT}\n")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "event         2"
    assert lines[-1] == "path          events.jsonl"
    assert (
        done.err == "copies, packs and backups, and what programs have read, were not looked at\n"
    )
    told = objects("find", "--text", "-", "--json", "--thread", box, given=TEXT)
    assert told[0] == {"kind": "event", "name": "2", "blob": None}
    assert [one["name"] for one in told if one["kind"] == "artifact"] == ["0/0", "1/0"]
    assert ok("find", "--text", "-", "--json", "--thread", box, given="nowhere") == ""
    shown = run("find", "--text", "hunter2", "--thread", box)
    refused(2, "every user of this machine sees a text on a command line", shown)
    refused(2, "5 characters", run("find", "--text", "-", "--thread", box, given="short"))


def test_a_text_is_erased(box: str) -> None:
    """After a question, or with --yes; what is left is listed, and the status is 1."""
    words = ("find", "--text", "-", "--erase", "--thread", box)
    refused(2, "there is no terminal to ask at - add --yes", run(*words, given=TEXT))
    with open(f"{box}/mine.txt", "w", encoding="utf-8") as file:
        file.write(TEXT)
    done = run(*words, "--yes", "--reason", "a password", given=TEXT)
    assert done.code == 1
    assert done.out == (
        "path          mine.txt: no erasure reaches it - change or delete it yourself\n"
    )
    assert done.err == f"still found at 1 place{LEFT}"
    told = json.loads(run(*words, "--yes", "--json", given=TEXT).out)
    assert told["why"] == "no erasure reaches it - change or delete it yourself"
    os.unlink(f"{box}/mine.txt")
    done = run(*words, "--yes", given=TEXT)
    assert (done.code, done.out, done.err) == (0, "", f"still found at 0 places{LEFT}")
    assert remains(box, TEXT) == []
    refused(
        2,
        "--yes has no effect without --erase",
        run("find", "--text", "-", "--yes", "--thread", box),
    )


def test_the_question_is_asked_at_the_terminal(box: str) -> None:
    """The text comes from stdin, so the answer does not; anything but yes erases nothing."""
    words = [sys.executable, "-m", "eventq", "find", "--text", "-", "--erase", "--thread", box]
    for answer, code in (("n", 1), ("y", 0)):
        pid, terminal = os.forkpty()
        if not pid:
            read, write = os.pipe()
            os.write(write, TEXT.encode())
            os.close(write)
            os.dup2(read, 0)
            os.execv(words[0], words)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 4096)
        assert b"Erase what stands at 4 places?" in shown
        os.write(terminal, f"{answer}\n".encode())
        with suppress(OSError):  # its end
            while os.read(terminal, 4096):
                pass
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        os.close(terminal)
    assert remains(box, TEXT) == []


def test_an_erasure_says_where_the_same_text_still_stands(box: str) -> None:
    """In the log, or in a line of the session that is no turn, with the command that erases it."""
    hint = f" - erase it there too: eventq find --text - --erase --thread {box}\n"
    done = run("event", "erase", "2", "--thread", box)
    assert (done.code, done.out) == (0, f"Erased event 2{LEFT}")
    assert done.err == f"the same text still stands in artifact 0/0, artifact 1/0{hint}"
    said = {"role": "user", "content": [{"type": "text", "text": "hunter2-hunter2"}]}
    lines = [
        {"type": "user", "uuid": "u0", "parentUuid": None, "sessionId": "s-1", "message": said,
         "timestamp": "2026-01-01T00:00:00Z"},
        {"type": "last-prompt", "sessionId": "s-1", "lastPrompt": "hunter2-hunter2"},
    ]  # fmt: skip
    with open(f"{box}-s-1.jsonl", "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)
    ok("session", "import", f"{box}-s-1.jsonl", "--thread", box)
    done = run("turn", "erase", "1", "--thread", box)
    assert (done.code, done.out) == (0, f"Erased turn 1{LEFT}")
    assert "line box-s-1:2" in done.err or "line s-1:2" in done.err
    assert done.err.endswith(hint)


TEXTS = [f"secret-{number}-{number}" for number in range(11)]


@pytest.fixture
def many(tmp_path: Path) -> str:
    """A thread with something of each kind, which says a text; event 1 says all of them, too."""
    path = eventq.init(tmp_path / "many")
    texts = iter(TEXTS)
    with eventq.open(path) as thread:
        thread.push("self", "note", " ".join(TEXTS))
        run = thread.runs.start(NewRun("w", next(texts), {"coder": next(texts)}))
        run.attempt(NewStep("coder", None, next(texts)))
        run.step(NewStep("coder", {"to": [next(texts)]}, next(texts), edge_prompt=next(texts)))
        turn = thread.contexts.create("main").append("patched")
        thread.contexts.patch(turn.turn_id, next(texts))
        thread.artifacts.put(next(texts).encode())
        thread.blobs.put(next(texts).encode())
        thread.answer(thread.ask(next(texts)).question_id, next(texts))
    return path


def test_what_each_kind_said_is_looked_for(many: str) -> None:
    """Of a run the task, the system text, a step, its question, its meta and the attempts."""
    with eventq.open(many, read_only=True) as thread:
        blob = next(one.name for one in thread.erasures.find(TEXTS[8]) if one.kind == "blob")
    commands = [
        (TEXTS[0:2], ["turn", "erase", "1"]),
        (TEXTS[2:6], ["turn", "erase", "2"]),
        (TEXTS[6:7], ["turn", "erase", "3"]),
        (TEXTS[7:8], ["artifact", "erase", "0"]),
        (TEXTS[8:9], ["blob", "erase", blob]),
        (TEXTS[9:10], ["event", "erase", "2"]),
        (TEXTS[10:], ["event", "erase", "3"]),
    ]
    for texts, command in commands:
        with eventq.open(many, read_only=True) as thread:
            kind, _, name = command
            artifacts = thread.artifacts if kind == "artifact" else None
            assert {*thread.erasures.said(kind, name, artifacts)} >= {*texts}
        done = run(*command, "--thread", many)
        assert done.code == 0, done.err
        assert done.err.startswith("the same text still stands in event 1"), command
    assert ok("check --thread", many) == "ok\n"


def test_as_many_texts_as_one_scan_looks_for(tmp_path: Path) -> None:
    """A step of many attempts: the longest are looked for, and that others were not is said."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        run_ = thread.runs.start(NewRun("w", "task"))
        for number in range(21):
            run_.attempt(NewStep("coder", None, f"attempt {number}" + "x" * number))
        run_.step(NewStep("coder", None, "done"))
        thread.push("self", "note", f"attempt 20{'x' * 20}")
    done = run("turn", "erase", "2", "--thread", path)
    assert done.err.startswith("the same text still stands in event 1, path events.jsonl - erase")
    assert "only the longest 20 of its 21 texts were looked for elsewhere" in done.err
