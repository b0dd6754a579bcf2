"""Every command of the memory: output, status, and bytes out as they came in."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventq
from eventq.cli import groups, inputs, render, show
from eventq.cli.graph import by_turn, draw
from eventq.records.turn import ContextInfo, Turn
from tests.doors.support import (
    EVENTQ,
    LARGE,
    MIXED,
    NOWHERE,
    environ,
    objects,
    ok,
    raw_run,
    refused,
    run,
)

COMMANDS = groups.every()

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventq.memory.turns import Turns
    from tests.conftest import Until

TURN_FIELDS = [
    "turn_id", "parent_turn_id", "depth", "type_id", "type_version", "encoding", "hash", "size", "flags",
    "created_at_ms", "canonical", "patch", "tombstone",
]  # fmt: skip


@pytest.fixture
def box(tmp_path: Path) -> str:
    """A thread with `main` (1) of three turns, forked at the second as `retry` (2), plus one."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        main = thread.contexts.create("main")
        for text in ("one", "two", "three"):
            main.append(text)
        main.fork(at=2, name="retry").append("other")
    return path


# --- blobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", MIXED + LARGE], ids=["empty", "binary"])
def test_the_bytes_of_a_blob_come_out_as_they_went_in(
    box: str, tmp_path: Path, data: bytes
) -> None:
    """A blob has the same bytes and ref through stdin, stdout and files."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    ref = ok("blob put", str(source), "--thread", box).strip()
    for words in (["-"], []):
        (told,) = objects("blob put", *words, "--thread", box, given=data)
        assert list(told) == ["ref", "hash", "size", "stored", "codec", "new"]
        assert (told["ref"], told["size"], told["new"]) == (ref, len(data), False)
    done = raw_run("blob get", ref, "--thread", box)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")
    assert (
        ok("blob get", ref.removeprefix("blob:blake3:"), "--thread", box, "--output", str(target))
        == ""
    )
    assert target.read_bytes() == data


def test_a_pipe_that_gives_little_at_a_time_is_read_to_its_end(box: str) -> None:
    """Short reads of stdin are not the end of it."""
    with subprocess.Popen(
        [EVENTQ, "blob", "put", "--thread", box], stdin=-1, stdout=-1, env=environ()
    ) as put:
        assert put.stdin is not None
        assert put.stdout is not None
        for _ in range(50):
            put.stdin.write(b"x" * 5000)
            put.stdin.flush()
        put.stdin.close()
        ref = put.stdout.read().decode().strip()
    assert raw_run("blob get", ref, "--thread", box).stdout == b"x" * 250_000


def test_a_stdin_that_does_not_block_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A non-blocking pipe is read to its end, however slow it is."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    wait, late = show.wait_for, [b"later", b"late"]

    def write_late(fd: int) -> None:
        os.write(theirs, late.pop())
        wait(fd)

    monkeypatch.setattr(show, "stdin", lambda: ours)
    monkeypatch.setattr(show, "wait_for", write_late)
    file = inputs.Input("-")
    assert (file.read(), file.read()) == (b"late", b"later")
    os.close(theirs)
    assert file.read() == b""
    os.close(ours)


def test_what_a_blob_should_be_is_checked(box: str, tmp_path: Path) -> None:
    """Another hash, bad or missing refs, and missing files store nothing."""
    put = ["blob", "put", "--thread", box]
    refused(2, "not the 0000", run(*put, "--expect-hash", "0" * 64, given="x"))
    refused(2, "names no blob", run(*put, "--expect-hash", "nonsense", given="x"))
    refused(2, "names no blob", run(*put, "--refs", f"{NOWHERE},", given="x"))
    refused(1, f"missing blob {NOWHERE}", run(*put, "--refs", NOWHERE, given="x"))
    refused(1, "could not be read", run(*put, str(tmp_path / "missing")))
    refused(1, "could not be read", run(*put, str(tmp_path)))
    refused(2, "FILE is empty", run(*put, ""))
    closed = subprocess.run(
        ["sh", "-c", f"{EVENTQ} blob put --thread {box} <&-"], capture_output=True, env=environ()
    )
    assert (closed.returncode, closed.stdout) == (1, b"")
    assert b"stdin is closed" in closed.stderr
    with eventq.open(box) as thread:
        assert len(thread.blobs) == 4


def test_a_blob_that_is_not_there_is_status_1(box: str, tmp_path: Path) -> None:
    """Every command names an unknown blob, with status 1; an invalid name is status 2."""
    target = tmp_path / "target"
    for words in (
        ["get"],
        ["get", "--output", str(target)],
        ["stat"],
        ["refs"],
        ["verify"],
        ["pin", "--owner", "me"],
    ):
        done = run("blob", words[0], NOWHERE, *words[1:], "--thread", box)
        refused(1, f"missing blob {NOWHERE}", done)
        refused(2, "names no blob", run("blob", words[0], "nonsense", *words[1:], "--thread", box))
    assert os.listdir(tmp_path) == ["box"]
    told = json.loads(run("blob get", NOWHERE, "--thread", box, "--json").err)
    assert told["error"] == f"missing blob {NOWHERE}"


def test_an_output_is_whole_or_as_it_was(box: str, tmp_path: Path) -> None:
    """A damaged blob, a folder or a device as the target change nothing; a link is followed."""
    ref = ok("blob put --thread", box, given=LARGE).strip()
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    get = ["blob", "get", ref, "--thread", box, "--output"]
    (told,) = objects(*get, str(link))
    assert told == {"ref": ref, "size": len(LARGE), "output": str(link)}
    assert target.read_bytes() == LARGE
    assert link.is_symlink()
    refused(1, "not a regular file", run(*get, str(tmp_path)))
    refused(1, "not a regular file", run(*get, "/dev/null"))
    refused(1, "could not be written", run(*get, str(tmp_path / "nowhere" / "file")))
    assert not os.path.isfile("/dev/null")
    target.write_bytes(b"before")
    damage(box)
    refused(1, "is damaged", run(*get, str(target)))
    refused(1, "is damaged", run("blob get", ref, "--thread", box))
    assert target.read_bytes() == b"before"
    assert sorted(os.listdir(tmp_path)) == ["box", "link", "target"]


def damage(path: str) -> None:
    """Break the stored bytes of the largest piece of a thread."""
    connection = apsw.Connection(f"{path}/events.db")
    sql = "UPDATE blob_bytes SET bytes = zeroblob(9) WHERE blob_id = (SELECT blob_id FROM blob_bytes ORDER BY length(bytes) DESC LIMIT 1)"
    connection.execute(sql)
    connection.close()


def test_blobs_are_listed_and_looked_at(box: str) -> None:
    """`ls` lists all by hash, `stat` shows one, `refs` shows both directions."""
    ref = ok("blob put --thread", box, given="child").strip()
    parent = ok("blob put --refs", f"{ref}", "--thread", box, given="parent" * 100).strip()
    listed = objects("blob ls --thread", box)
    assert len(listed) == 6
    assert [one["hash"] for one in listed] == sorted(one["hash"] for one in listed)
    (told,) = objects("blob stat", parent, "--thread", box)
    assert told in listed
    assert (told["ref"], told["size"], told["codec"]) == (parent, 600, "zstd")
    assert (
        ok("blob stat", ref, "--thread", box) == f"{ref}\nsize: 5 bytes\nstored: 5 bytes (none)\n"
    )
    assert f"{parent}  600 bytes  zstd\n" in ok("blob ls --thread", box)
    ok("blob pin", ref, "--owner", "me", "--thread", box)
    held = [f"blob {parent.removeprefix('blob:blake3:')}", "pin me"]
    assert objects("blob refs", ref, "--thread", box) == [
        {"ref": ref, "names": [], "held_by": held}
    ]
    assert ok("blob refs", parent, "--thread", box) == f"names {ref}\nheld by nothing\n"
    assert ok("blob refs", ref, "--thread", box) == "".join(f"held by {one}\n" for one in held)


def test_a_pin_is_its_owners(box: str) -> None:
    """Pinning twice is one pin; unpinning says whether there was one."""
    ref = ok("blob put --thread", box, given="x").strip()
    words = [ref, "--owner", "me", "--thread", box]
    assert ok("blob pin", *words) == f"Pinned {ref} for 'me'\n"
    assert objects("blob pin", *words) == [{"ref": ref, "owner": "me", "pinned": True}]
    assert ok("blob unpin", *words) == f"Unpinned {ref} for 'me'\n"
    assert ok("blob unpin", *words) == f"There was no pin of {ref} for 'me'\n"
    assert objects("blob unpin", *words) == [
        {"ref": ref, "owner": "me", "pinned": False, "was_pinned": False}
    ]
    refused(2, "--owner is empty", run("blob pin", ref, "--owner", "", "--thread", box))


def test_verify_says_which_blobs_are_damaged(box: str) -> None:
    """`blob verify` prints `ok`, or a sentence for each damaged blob with status 1."""
    ref = ok("blob put --thread", box, given=b"\xff" * 9 + os.urandom(5000)).strip()
    assert ok("blob verify --thread", box) == "ok\n"
    assert objects("blob verify", ref, "--thread", box) == [{"ok": True, "faults": []}]
    damage(box)
    for words in ([], [ref]):
        done = run("blob verify", *words, "--thread", box)
        assert (done.code, done.err) == (1, "")
        (line,) = done.out.splitlines()
        assert line.startswith(f"{ref} is damaged: ")
        told = json.loads(run("blob verify", *words, "--thread", box, "--json").out)
        assert told == {"ok": False, "faults": [line]}


# --- contexts -------------------------------------------------------------------------------------


def test_contexts_are_made_forked_moved_and_deleted(box: str) -> None:
    """Each command prints the context afterwards, by name or by id, with all fields."""
    (made,) = objects("context create --thread", box)
    assert list(made) == list(ContextInfo._fields)
    expected = (3, None, 0, None)
    assert (made["context_id"], made["name"], made["head_turn_id"], made["fork_of"]) == expected
    (made,) = objects("context create --name based --base 2 --thread", box)
    assert (made["head_turn_id"], made["base_turn_id"], made["head_depth"]) == (2, 2, 1)
    (made,) = objects("context fork main --at 1 --name early --thread", box)
    assert (made["context_id"], made["head_turn_id"], made["fork_of"]) == (5, 1, 1)
    wanted = "Forked context 6  turn 3 (depth 2)  fork of 1 at turn 3\n"
    assert ok("context fork 1 --thread", box) == wanted
    (moved,) = objects("context move early --to 4 --expected-head 1 --thread", box)
    assert (moved["head_turn_id"], moved["version"]) == (4, 1)
    found = ok("context move 5 --to 0 --thread", box)
    assert found == "Moved context 5 early  (empty)  fork of 1 at turn 1\n"
    assert ok("context rm early --thread", box).startswith("Deleted context 5; ")
    assert objects("context rm 6 --thread", box) == [{"context_id": 6}]
    assert objects("context show retry --thread", box) == objects("context show 2 --thread", box)
    shown = ok("context show retry --thread", box)
    assert shown.startswith(
        "Context: 2 retry\nHead: turn 4\nDepth: 2\nBase: turn 2\nFork of: 1\nMoves: 1\nCreated: 2"
    )
    assert [one["context_id"] for one in objects("context ls --thread", box)] == [1, 2, 3, 4]
    assert ok("context ls --thread", box).splitlines() == [
        "1 main  turn 3 (depth 2)", "2 retry  turn 4 (depth 2)  fork of 1 at turn 2", "3  (empty)",
        "4 based  turn 2 (depth 1)  begun at turn 2",
    ]  # fmt: skip


def test_the_moves_of_a_head_are_logged_also_of_a_deleted_context(box: str) -> None:
    """`context log` finds a context by name or id while it is there, and by its id afterwards."""
    moves = objects("context log retry --thread", box)
    expected = [(0, "create", 0, 2), (1, "append", 2, 4)]
    assert [(m["version"], m["op"], m["old_turn_id"], m["new_turn_id"]) for m in moves] == expected
    ok("context rm retry --thread", box)
    after = objects("context log 2 --thread", box)
    assert [m["op"] for m in after] == ["create", "append", "delete"]
    assert ok("context log 2 --thread", box).endswith("Z  v2  delete  4 -> 0\n")
    refused(1, "there is no context 'retry'", run("context log retry --thread", box))
    refused(1, "there is no context '9'", run("context log 9 --thread", box))


def test_a_head_that_has_moved_is_a_conflict_that_says_where_it_is(box: str) -> None:
    """`--expected-head` that is not the head is status 1, names the head, and changes nothing."""
    words = ["--expected-head", "2", "--thread", box]
    for command in (
        ["context", "move", "main", "--to", "1"],
        ["turn", "append", "main", "--content", "x"],
    ):
        refused(1, "the head of context 1 is turn 3, not 2", run(*command, *words))
        told = json.loads(run(*command, *words, "--json").err)
        assert told == {
            "error": "the head of context 1 is turn 3, not 2",
            "suggestion": "read what is new, then try again",
        }
    refused(1, "'main' is taken by context 1", run("context create --name main --thread", box))
    with eventq.open(box) as thread:
        assert thread.contexts.head("main") == 3


@pytest.mark.parametrize(("words", "code", "says"), [
    ("context show nobody", 1, "there is no context 'nobody'"),
    ("context create --name 12", 2, "is a number, not a name"),
    ("context move main --to -1", 2, "--to must be a whole number"),
    ("context move main --to two", 2, "--to must be a whole number"),
    ("context show 9223372036854775808", 2, "CONTEXT must be a whole number"),
    ("context show", 2, "Missing argument 'CONTEXT'"),
    ("context show main retry", 2, "unexpected extra argument"),
    ("context show -5", 2, "No such option"), ("context pish", 2, "No such command 'pish'"),
    ("turn last main --limit 0", 2, "--limit must be a whole number from 1"),
    ("turn last main --as-of 9223372036854775808", 2, "--as-of must be a whole number"),
    ("turn before main --turn 4", 1, "turn 4 is not on the chain that ends at turn 3"),
    ("turn range main --from -1", 2, "--from must be a whole number"),
    ("turn show 99", 1, "there is no turn 99"),
    ("turn show main", 2, "TURN must be a whole number"),
    ("turn show 9223372036854775808", 2, "TURN must be a whole number"),
    ("turn patch 1 --content x --file y", 2, "--content and --file exclude each other"),
    ("turn patch 1 --tombstone --content x", 2, "--content and --tombstone exclude each other"),
    ("turn patch 1 --tombstone --refs x", 2, "--tombstone and --refs exclude each other"),
    ("turn diff main --with nobody", 1, "there is no context 'nobody'"),
    ("turn seal 9", 1, "there is no open turn 9"),
    ("turn append main --content x --file y", 2, "--content and --file exclude each other"),
    ("turn append main --content x --stream", 2, "--stream and --content exclude each other"),
    ("turn append main --file y --stream", 2, "--stream and --file exclude each other"),
    ("turn append main --canonical r --stream", 2, "--stream and --canonical exclude each other"),
    ("turn append main --parent 1 --stream", 2, "--stream and --parent exclude each other"),
    ("turn append main --expect-hash 1 --stream", 2,
     "--stream and --expect-hash exclude each other"),
    ("turn append main --file missing", 1, "'missing' could not be read: No such file"),
    ("turn append main --content x --flags -1", 2, "--flags must be a whole number"),
    ("turn append main --content x --parent 0", 2, "--parent must be a whole number from 1"),
    ("turn append main --content x --source me", 2, "--source has no effect without --emit"),
    ("turn append main --content {x --canonical eventq-json-1", 2, "JSON"),
    ("turn append main --content x --expect-hash " + "0" * 64, 2, "hash is"),
    ("gc --grace soon", 2, "--grace must be a duration"),
    ("gc --grace -1", 2, "--grace must be a duration"),
])  # fmt: skip
def test_what_is_wrong_is_a_sentence_and_stores_nothing(
    box: str, words: str, code: int, says: str
) -> None:
    """Unknown ids and conflicts are status 1, usage errors 2, each in one line."""
    refused(code, says, run(*words.split(), "--thread", box))
    with eventq.open(box) as thread:
        assert [one.head_turn_id for one in thread.contexts] == [3, 4]
        assert thread.database.memory.turns.last_patch() == 0
        assert thread.last_id() == 0


@pytest.mark.parametrize("group", sorted({name.split()[0] for name in COMMANDS if " " in name}))
def test_a_group_alone_shows_its_commands(group: str) -> None:
    """A group called without a command shows its help and is a mistake; `--help` is none."""
    done, asked = run(group), run(group, "--help")
    assert (done.code, done.out) == (2, "")
    assert (asked.code, asked.err) == (0, "")
    assert done.err.strip() == asked.out.strip()
    assert f"Example:\n    eventq {group} " in asked.out.replace("make 2>&1 | ", "")
    for name in COMMANDS:
        if name.startswith(f"{group} "):
            assert f"\n  {name.split()[1]} " in asked.out


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [MIXED + LARGE, "é\u2028\n".encode()], ids=["binary", "text"])
def test_the_payload_of_a_turn_comes_out_as_it_went_in(
    box: str, tmp_path: Path, data: bytes
) -> None:
    """A payload from stdin, a file or a stream is stored unchanged, and printed in JSON."""
    source = tmp_path / "source"
    source.write_bytes(data)
    (one,) = objects("turn append main --allow-empty --thread", box, given=data)
    (two,) = objects("turn append main --file", str(source), "--thread", box)
    (three,) = objects("turn append main --stream --allow-empty --thread", box, given=data)
    assert list(one) == TURN_FIELDS
    assert one["hash"] == two["hash"] == three["hash"]
    assert [one["turn_id"], two["turn_id"], three["turn_id"]] == [5, 6, 7]
    (told,) = objects("turn show 7 --thread", box)
    found = (
        told["payload"].encode() if "payload" in told else base64.b64decode(told["payload_base64"])
    )
    assert found == data
    assert raw_run("blob get", told["hash"], "--thread", box).stdout == data


def test_an_append_says_all_that_it_was_told(box: str) -> None:
    """Type, version, encoding, flags, parent, refs, key and `--emit` have their effect."""
    ref = ok("blob put --thread", box, given="named").strip()
    words = [
        "turn", "append", "main", "--content", "", "--type", "tool call", "--type-version", "7", "--encoding", "3",
        "--flags", "5", "--parent", "1", "--key", "k", "--refs", f"{ref}, {ref}", "--emit", "--source", "internal:a:b:c",
        "--expected-head", "3", "--thread", box,
    ]  # fmt: skip
    (made,) = objects(*words)
    assert [made[name] for name in TURN_FIELDS[:6]] == [5, 1, 1, "tool call", 7, 3]
    assert (made["size"], made["flags"], made["canonical"]) == (0, 5, None)
    assert objects(*words) == [made]
    refused(1, "key 'k' was used for another payload: turn 5", run(*words[:4], "else", *words[5:]))
    (event,) = [
        json.loads(line) for line in ok("peek --last-event-id 0 --thread", box).splitlines()
    ]
    expected = ("internal:a:b:c", "record", "turn")
    assert (event["source"], event["type"], event["subtype"]) == expected
    assert json.loads(event["content"])["turn_id"] == 5
    empty = made["hash"]
    assert objects("blob refs", ref, "--thread", box)[0]["held_by"] == [f"blob {empty}"]
    text = ok("turn append 1 --content hi --thread", box)
    assert text.startswith("#6 depth 2 message v1 2 bytes 2")


def test_canonical_input_is_json_text(box: str, tmp_path: Path) -> None:
    """With --canonical, equal JSON values in any spelling are one blob."""
    source = tmp_path / "source"
    source.write_text('{ "b" : [1, 2.0], "a": "é" }')
    rule = ["--canonical", "eventq-json-1", "--thread", box]
    made = [
        *objects("turn append main --content", '{"a":"\\u00e9","b":[1,2.0]}', *rule),
        *objects("turn append main --file", str(source), *rule),
        *objects("turn append main", *rule, given=source.read_text()),
    ]
    assert len({one["hash"] for one in made}) == 1
    assert {one["canonical"] for one in made} == {"eventq-json-1"}
    assert objects("turn show 7 --thread", box)[0]["payload"] == '{"a":"é","b":[1,2.0]}'
    ok("turn patch 1 --content", " [1 ] ", *rule)
    assert objects("turn show 1 --thread", box)[0]["payload"] == "[1]"


def test_pages_of_turns_lead_on(box: str) -> None:
    """`last`, `before` and `range` print the oldest first, and then the command for more."""
    expected = ["two", "three"]
    assert [t["payload"] for t in objects("turn last main --limit 2 --thread", box)] == expected
    assert [t["payload"] for t in objects("turn before main --turn 2 --thread", box)] == ["one"]
    pages = [t["turn_id"] for t in objects("turn range main --from 1 --limit 9 --thread", box)]
    assert pages == [2, 3]
    assert objects("turn range main --from 3 --thread", box) == []
    assert objects("turn before main --turn 1 --thread", box) == []
    lines = ok("turn last main --limit 2 --thread", box).splitlines()
    assert [line[:28] for line in lines[:4]] == [
        "#2 depth 1 message v1 3 byte",
        "  two",
        "#3 depth 2 message v1 5 byte",
        "  three",
    ]
    assert lines[4:] == [
        f"-- more above: eventq turn before main --turn 2 --limit 2 --thread {box}"
    ]
    more = lines[4].split(": eventq ")[1].split()
    assert "more" not in ok(*more)
    assert ok(*more).splitlines()[1] == "  one"
    lines = ok("turn range main --limit 2 --no-payload --as-of 0 --thread", box).splitlines()
    assert len(lines) == 3
    assert (
        lines[2]
        == f"-- more below: eventq turn range main --from 2 --limit 2 --as-of 0 --thread {box} --no-payload"
    )
    bare = objects("turn last main --limit 1 --no-payload --thread", box)
    assert [list(one) for one in bare] == [TURN_FIELDS]


def test_overlays_show_wherever_a_turn_is_read(box: str, tmp_path: Path) -> None:
    """A patch gives its seq and shows from then on, a tombstone hides, and `--as-of` goes back."""
    source = tmp_path / "source"
    source.write_bytes(b"\xfe")
    assert ok("turn patch 2 --content second --thread", box) == "1\n"
    assert objects("turn patch 2 --file", str(source), "--thread", box) == [
        {"turn_id": 2, "seq": 2}
    ]
    assert ok("turn patch 2 --thread", box, given="third") == "3\n"
    assert ok("turn patch 3 --tombstone --thread", box) == "4\n"
    shown = ok("turn replay main --thread", box).splitlines()
    assert [line[:12] for line in shown] == [
        "#1 depth 0 m",
        "  one",
        "#2 depth 1 m",
        "  third",
        "#3 depth 2 m",
    ]
    assert shown[2].endswith("Z [patched]")
    assert shown[4].endswith("Z [tombstone]")
    as_of = {n: objects("turn show 2 --as-of", str(n), "--thread", box)[0] for n in range(4)}
    assert [as_of[n].get("payload") for n in range(4)] == ["two", "second", None, "third"]
    assert as_of[2]["payload_base64"] == "/g=="
    (hidden,) = objects("turn show 3 --thread", box)
    expected = (None, True, 4, "")
    assert (hidden["payload"], hidden["tombstone"], hidden["patch"], hidden["hash"]) == expected
    assert [t["patch"] for t in objects("turn replay main --as-of 1 --thread", box)] == [0, 1, 0]
    assert [t["turn_id"] for t in objects("turn replay main --to 2 --thread", box)] == [1, 2]


def test_the_difference_of_two_contexts(box: str) -> None:
    """`turn diff` prints the common ancestor, then - and + lines; JSON has counts and turns."""
    ok("turn append retry --content", "a\nb" + "x" * 99, "--thread", box)
    ok("turn append retry --thread", box, given=b"\xff\0")
    first, *rest = objects("turn diff main --with retry --thread", box)
    assert first == {"ancestor_turn_id": 2, "mine": 1, "theirs": 3}
    expected = [("mine", 3), ("theirs", 4), ("theirs", 5), ("theirs", 6)]
    assert [(t["side"], t["turn_id"]) for t in rest] == expected
    assert rest[0]["payload"] == "three"
    bare = objects("turn diff main --with 2 --no-payload --thread", box)
    assert [list(one) for one in bare[1:]] == [["side", *TURN_FIELDS]] * 4
    lines = ok("turn diff main --with retry --thread", box).splitlines()
    assert lines[0] == "common ancestor: turn 2"
    assert [line[:4] for line in lines[1:]] == ["- #3", "+ #4", "+ #5", "+ #6"]
    assert lines[1].endswith("Z  three")
    assert lines[3].endswith("Z  a b" + "x" * 56 + "…")
    assert lines[4].endswith("Z  binary, 2 bytes")
    ok("context create --name empty --thread", box)
    assert ok("turn diff main --with empty --thread", box).startswith(
        "common ancestor: (none)\n- #1 "
    )
    assert objects("turn diff main --with main --thread", box) == [
        {"ancestor_turn_id": 3, "mine": 0, "theirs": 0}
    ]


def turn_of(payload: bytes | None, **more: Any) -> Turn:
    """Return a turn with a payload."""
    size = len(payload or b"")
    return Turn(12, 11, 11, "message", 1, 0, "ab", size, 0, 1773829800123, payload=payload, **more)


def test_a_turn_is_readable(box: str) -> None:
    """Text shows a head line and the escaped payload; binary and long ones only by size."""
    head = "#12 depth 11 message v1 {} 2026-03-18T10:30:00.123Z"

    def lines(payload: bytes | None, **more: Any) -> list[str]:
        first, *rest = render.readable(turn_of(payload, **more))
        assert first.startswith(head.format(render.count(len(payload or b""), "byte")))
        return rest

    assert lines(None) == lines(b"") == []
    assert next(render.readable(turn_of(None, patch=3))) == head.format("0 bytes") + " [patched]"
    expected = head.format("0 bytes") + " [tombstone]"
    hidden = turn_of(None, patch=3, tombstone=True)
    assert next(render.readable(hidden._replace(hash=""))) == expected
    assert next(render.readable(hidden)) == head.format("0 bytes") + " [erased]"
    assert lines(b"a\n\nb\x1b[2J\t\r\n") == ["  a", "  ", "  b\\x1b[2J\\t\\r"]
    assert lines(b"\n") == ["  "]
    assert lines(b"\xff" * 10240) == ["  (binary, 10,240 bytes)"]
    assert lines(b"x\n" * 20) == ["  x"] * 20
    assert lines(b"x\n" * 21) == ["  x"] * 20 + [
        "  … (3 bytes more; eventq blob get blob:blake3:ab)"
    ]
    assert lines("é".encode() * 2000) == ["  " + "é" * 2000]
    wanted = ["  " + "é" * 2000, "  … (1,000 bytes more; eventq blob get blob:blake3:ab)"]
    assert lines("é".encode() * 2500) == wanted
    assert lines("a€".encode() * 3000)[0] == "  " + "a€" * 1000
    assert lines(b"\xe2\x82") == ["  (binary, 2 bytes)"]


def test_a_long_chain_is_replayed_whole_and_a_closed_pipe_ends_it_quietly(box: str) -> None:
    """`turn replay` gives every turn of thousands, and `| head` is no error."""
    with eventq.open(box) as thread, thread.write():
        main = thread.contexts.get("main")
        for number in range(3000):
            main.append(str(number) + "x" * 1000)
    found = objects("turn replay main --thread", box)
    assert [turn["depth"] for turn in found] == list(range(3003))
    assert found[-1]["payload"] == "2999" + "x" * 1000
    for words in (
        "turn replay main",
        "turn replay main --json",
        "turn diff main --with retry",
        "blob ls",
    ):
        script = f"{EVENTQ} {words} --thread {box} | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=environ(), timeout=300
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


def test_reading_changes_nothing(box: str) -> None:
    """No command that reads touches a file of the thread."""

    def stamps() -> dict[str, tuple[int, int]]:
        files = [p for p in Path(box).rglob("*") if p.is_file() and not p.name.endswith("-shm")]
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in files}

    before = stamps()
    for words in (
        "blob ls", "blob verify", "context ls", "context ls --graph", "context show main", "context log main", "gc",
        "turn last main", "turn before main --turn 3", "turn range main", "turn replay main", "turn show 1",
        "turn diff main --with retry", "turn opened",
    ):  # fmt: skip
        ok(*words.split(), "--thread", box)
    assert stamps() == before


# --- open turns -----------------------------------------------------------------------------------


def start_stream(box: str, until: Until, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a stream into `main` with three bytes stored; return it and its open id."""
    process = subprocess.Popen(
        [EVENTQ, "turn", "append", "main", "--stream", "--thread", box, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ(),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"ab\xff")
    process.stdin.flush()
    with eventq.open(box, read_only=True) as thread:
        until(
            lambda: [one.size for one in thread.contexts.open_turns()] == [3],
            "three bytes are stored",
        )
        (info,) = thread.contexts.open_turns()
    return process, info.open_id


def test_what_a_killed_writer_streamed_can_be_sealed(box: str, until: Until) -> None:
    """After a kill the open turn is listed with all its bytes, and can be sealed."""
    process, open_id = start_stream(box, until, "--type", "draft")
    process.kill()
    process.communicate()
    (told,) = objects("turn opened --thread", box)
    expected = (open_id, 1, "draft", 3)
    assert (told["open_id"], told["context_id"], told["type_id"], told["size"]) == expected
    assert ok("turn opened --thread", box).startswith(
        f"{open_id}  context 1  draft v1  3 bytes  begun 2"
    )
    done = run("turn seal", str(open_id), "--expected-head", "1", "--thread", box)
    refused(1, "the head of context 1 is turn 3, not 1", done)
    (made,) = objects(
        "turn seal", str(open_id), "--emit", "--source", "me", "--flags", "4", "--thread", box
    )
    found = (made["turn_id"], made["parent_turn_id"], made["type_id"], made["size"], made["flags"])
    assert found == (5, 3, "draft", 3, 4)
    wanted = base64.b64encode(b"ab\xff").decode()
    assert objects("turn show 5 --thread", box)[0]["payload_base64"] == wanted
    assert ok("turn opened --thread", box) == ""
    assert json.loads(ok("peek --last 1 --thread", box))["source"] == "me"
    refused(1, f"there is no open turn {open_id}", run("turn seal", str(open_id), "--thread", box))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_stream_says_how_to_go_on(box: str, until: Until, number: int) -> None:
    """On ^C and SIGTERM the open turn stays, and stderr has the command that seals it."""
    process, open_id = start_stream(box, until)
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert f"run 'eventq turn seal {open_id} --thread {box}', or 'turn discard'" in err.decode()
    assert len(err.splitlines()) == 1
    assert ok("turn discard", str(open_id), "--thread", box) == f"Discarded open turn {open_id}\n"
    process, second = start_stream(box, until, "--json")
    process.send_signal(number)
    assert json.loads(process.communicate()[1])["error"] == f"open turn {second} was interrupted"
    assert objects("turn discard", str(second), "--thread", box) == [{"open_id": second}]
    assert second > open_id
    with eventq.open(box) as thread:
        assert thread.contexts.head("main") == 3


def test_an_interrupted_stream_names_its_thread_as_a_shell_reads_it(
    tmp_path: Path, until: Until
) -> None:
    """Also where the path has what a shell would take for its own, as the URL of a database has."""
    path = eventq.init(tmp_path / "a & b")
    with eventq.open(path) as thread:
        thread.contexts.create("main")
    process, open_id = start_stream(path, until)
    process.send_signal(signal.SIGTERM)
    advice = process.communicate()[1].decode().split('"')[1]
    assert advice == f"eventq turn seal {open_id} --thread '{path}'"
    assert ok(*shlex.split(advice.replace("seal", "discard"))[1:]).startswith("Discarded")


def test_a_stream_whose_head_has_moved_is_kept(box: str, until: Until) -> None:
    """A conflict at the end of a stream names the actual head, and how to seal; nothing is lost."""
    process, open_id = start_stream(box, until, "--expected-head", "3")
    ok("turn append main --content meanwhile --thread", box)
    out, err = process.communicate(b"more")
    assert (process.returncode, out) == (1, b"")
    assert err.decode().startswith("Error: the head of context 1 is turn 5, not 3 - ")
    assert f"'eventq turn seal {open_id} --thread {box}'" in err.decode()
    (told,) = objects("turn opened --thread", box)
    assert told["size"] == 7
    made = ok("turn seal", str(open_id), "--expected-head", "5", "--thread", box)
    assert made.startswith("#6 depth 4 message v1 7 bytes ")


# --- collection and packs -------------------------------------------------------------------------


def test_a_collection_says_first_what_it_would_delete(box: str) -> None:
    """`gc` deletes only with --apply; JSON lists the hashes, sorted."""
    ok("context move main --to 2 --thread", box)
    ref = ok("blob put --thread", box, given="x" * 2000).strip()
    assert (
        ok("gc --thread", box) == "Would delete 0 turns and 0 blobs (0 bytes); run with --apply\n"
    )
    (would,) = objects("gc --grace 0 --thread", box)
    assert list(would) == ["applied", "turns", "blobs", "size", "stored", "hashes"]
    assert (would["applied"], would["turns"], would["blobs"], would["size"]) == (False, 1, 2, 2005)
    assert would["hashes"] == sorted(would["hashes"])
    assert ref.removeprefix("blob:blake3:") in would["hashes"]
    size = f"{would['stored']:,}"
    expected = f"Would delete 1 turn and 2 blobs ({size} bytes); run with --apply\n"
    assert ok("gc --grace 0s --thread", box) == expected
    assert (
        ok("gc --apply --grace 0 --thread", box) == f"Deleted 1 turn and 2 blobs ({size} bytes)\n"
    )
    assert objects("gc --apply --grace 0 --thread", box)[0]["turns"] == 0
    refused(1, "missing blob", run("blob get", ref, "--thread", box))


def test_what_is_reachable_is_printed(box: str) -> None:
    """`gc --reachable` prints a ref a line, as JSON in objects, of all roots together; sorted."""
    one = ok("blob put --thread", box, given="one").strip()
    two = ok("blob put --refs", one, "--thread", box, given="two").strip()
    assert ok("gc --reachable", two, "--thread", box).splitlines() == sorted([one, two])
    assert objects("gc --reachable", one, "--thread", box) == [{"ref": one}]
    with eventq.open(box, read_only=True) as thread:
        both = thread.reachable([one, "turn:4", two])
    assert {one, two} < {*both}  # the payload of turn 4, too
    words = [["--reachable", f"{one}, {two},turn:4"], ["--reachable", "turn:4", "--reachable", two]]
    for more in (*words, [f"--reachable=turn:4,{two}"]):
        assert ok("gc", *more, "--thread", box).splitlines() == both
    refused(1, "there is no turn 99", run("gc --reachable turn:99 --thread", box))
    refused(1, "missing blob " + NOWHERE, run("gc --reachable", NOWHERE, "--thread", box))
    refused(2, "'x' names no blob and no turn", run("gc --reachable x --thread", box))
    refused(2, "--reachable is empty", run("gc --reachable", "", "--thread", box))
    for other in (["--apply"], ["--grace", "1h"]):
        done = run("gc --reachable", one, *other, "--thread", box)
        refused(2, f"--reachable and {other[0]} exclude each other", done)


def test_a_pack_goes_to_another_thread_and_twice_adds_nothing(box: str, tmp_path: Path) -> None:
    """What was exported is imported with its heads; importing again adds nothing."""
    folder, other = str(tmp_path / "pack"), eventq.init(tmp_path / "other")
    assert ok("pack export", folder, "--thread", box) == f"Exported to {folder}\n"
    (told,) = objects("pack export", folder + "2", "--thread", box)
    assert told == {"folder": folder + "2"}
    (made,) = objects("pack import", folder, "--thread", other)
    assert list(made) == [
        "blobs",
        "turns",
        "contexts",
        "moved",
        "notes",
        "artifacts",
        "outputs",
        "events",
        "consumers",
    ]
    assert (made["blobs"], made["turns"]) == (4, 4)
    assert ok("pack import", folder, "--thread", other).startswith(
        "Imported 0 blobs, 0 turns and 0 contexts; 0 heads moved\n"
    )
    expected = ["one", "two", "three"]
    assert [t["payload"] for t in objects("turn replay 1 --thread", other)] == expected
    for command in ("import", "export"):
        assert run("pack", command, "", "--thread", other).code == 2
        refused(
            1,
            "",
            run(
                "pack", command, folder if command == "export" else folder + "3", "--thread", other
            ),
        )


# --- the drawing ----------------------------------------------------------------------------------


@dataclass
class Forest:
    """Turns given as the parent of each, 0 for a root; turn ids count from 1."""

    parents: Sequence[int]
    asked: int = 0

    def up(self, turn: int) -> list[int]:
        """Return a turn and all above it, the root first."""
        chain: list[int] = []
        while turn:
            chain.append(turn)
            turn = self.parents[turn - 1]
        return chain[::-1]

    def depth(self, turn: int) -> int:
        return len(self.up(turn)) - 1

    def ancestor(self, turn: int, depth: int) -> int:
        self.asked += 1
        chain = self.up(turn)
        return chain[depth] if depth < len(chain) else 0

    def common(self, one: int, other: int) -> int:
        self.asked += 1
        shared = [a for a, b in zip(self.up(one), self.up(other), strict=False) if a == b]
        return shared[-1] if shared else 0

    def way(self, head: int) -> dict[int, int]:
        return {self.ancestor(head, 0): head} if head else {}


def context_at(number: int, head: int) -> ContextInfo:
    """Return a context; only its id, name and head matter."""
    return ContextInfo(number, f"c{number}", head, 0, 0, None, 0, 0, 0, 0)


def drawn(forest: Forest, heads: Sequence[int]) -> list[str]:
    """Draw contexts 1, 2, 3 … with these heads."""
    contexts = [context_at(n, head) for n, head in enumerate(heads, 1)]
    line = by_turn(forest.depth, lambda c: f"{c.context_id} {c.name}")
    return [*draw(contexts, cast("Turns", forest), line)]


def chain(length: int) -> list[int]:
    """Return the parents of one chain."""
    return list(range(length))


def test_no_contexts_and_empty_ones_are_drawn() -> None:
    """Nothing is nothing, and contexts without turns stand on a line of their own."""
    assert drawn(Forest([]), []) == []
    assert drawn(Forest([]), [0, 0]) == ["(empty)  1 c1, 2 c2"]


def test_one_line_of_turns_is_drawn() -> None:
    """A single chain is its root and its heads; several contexts at one turn share its line."""
    assert drawn(Forest([0]), [1]) == ["turn 1  1 c1"]
    assert drawn(Forest(chain(9)), [9]) == ["turn 1", "└─ turn 9 (depth 8)  1 c1"]
    assert drawn(Forest(chain(9)), [9, 4, 0, 9]) == [
        "turn 1", "└─ turn 4 (depth 3)  2 c2", "   └─ turn 9 (depth 8)  1 c1, 4 c4",
        "(empty)  3 c3",
    ]  # fmt: skip


def test_forks_of_forks_are_drawn() -> None:
    """A turn where branches fork is drawn; the branch of the oldest context comes first."""
    # 1-2-3-4-5 main; 2-6-7 forked, of which 6-8 was forked in turn; 3-9
    forest = Forest([0, 1, 2, 3, 4, 2, 6, 6, 3])
    expected = [
        "turn 1", "└─ turn 2 (depth 1)", "   ├─ turn 3 (depth 2)",
        "   │  ├─ turn 5 (depth 4)  1 c1", "   │  └─ turn 9 (depth 3)  4 c4",
        "   └─ turn 6 (depth 2)", "      ├─ turn 7 (depth 3)  2 c2",
        "      └─ turn 8 (depth 3)  3 c3",
    ]  # fmt: skip
    assert drawn(forest, [5, 7, 8, 9]) == expected


def test_several_roots_are_drawn() -> None:
    """Trees that share nothing stand below one another."""
    assert drawn(Forest([0, 1, 0, 3, 3]), [4, 2, 5]) == [
        "turn 3", "├─ turn 4 (depth 1)  1 c1", "└─ turn 5 (depth 1)  3 c3", "turn 1",
        "└─ turn 2 (depth 1)  2 c2",
    ]  # fmt: skip


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_a_drawing_shows_the_heads_where_they_part_and_nothing_else(data: st.DataObject) -> None:
    """For any forest, each drawn turn is below its nearest drawn ancestor."""
    parents = [
        data.draw(st.integers(0, n), label="parent")
        for n in range(data.draw(st.integers(1, 25), label="turns"))
    ]
    heads = data.draw(
        st.lists(st.integers(1, len(parents)), min_size=1, max_size=12), label="heads"
    )
    forest = Forest(parents)
    wanted = {*heads, *(forest.up(head)[0] for head in heads)}
    wanted |= {forest.common(a, b) for a in heads for b in heads} - {0}
    above: list[int] = []
    seen = set()
    for line in drawn(forest, heads):
        level, turn = line.index("turn") // 3, int(line.split("turn ")[1].split()[0])
        above[level:] = [turn]
        assert above == [one for one in forest.up(turn) if one in wanted]
        names = {f"c{n}" for n, head in enumerate(heads, 1) if head == turn}
        assert {word.strip(",") for word in line.split() if word.startswith("c")} == names
        assert turn not in seen
        seen.add(turn)
    assert seen == wanted


class Comb(Forest):
    """Large graphs, answered without walking them: a spine, and teeth on it."""

    def __init__(self, spine: int, leaves: dict[int, int]) -> None:
        """Create a spine of turns 1, 2, 3, … and teeth at the given places."""
        super().__init__([])
        self.spine = spine
        self.leaves = leaves

    def depth(self, turn: int) -> int:
        return turn - 1 if turn <= self.spine else self.leaves[turn]

    def ancestor(self, turn: int, depth: int) -> int:
        self.asked += 1
        return turn if depth == self.depth(turn) else depth + 1 if depth < self.depth(turn) else 0

    def common(self, one: int, other: int) -> int:
        self.asked += 1
        ends = [turn if turn <= self.spine else self.leaves[turn] for turn in (one, other)]
        return one if one == other else min(ends)


@pytest.mark.parametrize("shape", ["star", "comb", "line"])
def test_two_thousand_contexts_are_drawn_at_once(shape: str) -> None:
    """Drawing takes n log n queries for n contexts, and no recursion."""
    count = 2000
    comb = Comb(count, {count + 1 + n: 500 if shape == "star" else n + 1 for n in range(count)})
    heads = [n + 1 if shape == "line" else count + 1 + n for n in range(count)]
    lines = drawn(comb, heads)
    assert len(lines) == {"star": count + 2, "comb": 2 * count - 1, "line": count}[shape]
    assert comb.asked < count * 2 * 11


def test_the_command_draws_what_is_stored(box: str) -> None:
    """`context ls --graph` is the drawing of the contexts of a thread, and is not for programs."""
    done = run("context ls --graph --thread", box, "--json")
    assert (done.code, done.out) == (2, "")
    assert json.loads(done.err)["error"].startswith("--graph and --json exclude")
    ok("context create --name scratch --thread", box)
    assert ok("context ls --graph --thread", box).splitlines() == [
        "turn 1", "└─ turn 2 (depth 1)", "   ├─ turn 3 (depth 2)  1 main",
        "   └─ turn 4 (depth 2)  2 retry", "(empty)  3 scratch",
    ]  # fmt: skip
