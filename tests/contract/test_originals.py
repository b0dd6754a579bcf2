"""Threads of the original `thread` command, with lines as its versions write them.

The kind: a line of the mirror is told by where its keys stand, not by what it says. Members: both
orders of version 2 (without a subtype, with one), that of version 1, any order of programs that use
its library; long lines, escapes, half surrogate pairs, contents that look like a line; a file that
begins with its lines and ends with ours, the other way round, and in turns; rotations by either; an
empty current file; lines in another order than the ids, missing, torn, or glued to a torn one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import eventq
from eventq.log import mirror
from eventq.log.mirror_lines import line as line_of
from eventq.records.checks import ERASED
from tests.conftest import write_as_original
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunPython

pytestmark = pytest.mark.usefixtures("quick")

VERSIONS = pytest.mark.parametrize("version", [1, 2])

# What versions 1.0.9 and 2.1.0 wrote into events.jsonl for the same four pushes.
RECORDED = {
    1: r"""
{"id":1,"created_at":"2026-03-18T10:30:00.533Z","source":"self","type":"note","subtype":null,"content":"a \"q\" é \\u2028\nnl"}
{"id":2,"created_at":"2026-03-18T10:30:01.860Z","source":"self","type":"record","subtype":"s","content":"two"}
{"id":3,"created_at":"2026-03-18T10:30:02.250Z","source":"s","type":"t","subtype":null,"content":"\ud800x\udc00 \u0001/😀"}
{"id":4,"created_at":"2026-03-18T10:30:02.250Z","source":"s","type":"t","subtype":"","content":"{\"id\":9,\"created_at\":\"\"}"}
""",
    2: r"""
{"source":"self","type":"note","content":"a \"q\" é \\u2028\nnl","id":1,"created_at":"2026-03-18T10:30:00.533Z","subtype":null}
{"source":"self","type":"record","content":"two","subtype":"s","id":2,"created_at":"2026-03-18T10:30:01.860Z"}
{"source":"s","type":"t","content":"\ud800x\udc00 \u0001/😀","id":3,"created_at":"2026-03-18T10:30:02.250Z","subtype":null}
{"source":"s","type":"t","content":"{\"id\":9,\"created_at\":\"\"}","subtype":"","id":4,"created_at":"2026-03-18T10:30:02.250Z"}
""",
}


def insert(path: str, content: str, **more: Any) -> int:
    """Store an event as the original does, and return its id; its line is for the test to write."""
    row = {"source": "tool", "type": "note", "content": content, **more}
    db = apsw.Connection(os.path.join(path, "events.db"))
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    db.execute(f"INSERT INTO events ({names}) VALUES ({marks})", tuple(row.values())).fetchall()
    number = db.last_insert_rowid()
    db.close()
    return number


def push_as_original(path: str, content: str, version: int, **more: Any) -> None:
    """Store an event and write its line, as the original does."""
    number = insert(path, content, **more)
    write_as_original(path, "events.jsonl", number, number, version)


def made(path: str, version: int, contents: list[str]) -> str:
    """Push these to a thread of the original that has no mirror yet, and return its path."""
    write_as_original(path, "events.jsonl", 1, 3, version)
    for content in contents:
        push_as_original(path, content, version)
    return path


def lines(path: str) -> list[bytes]:
    """Return the lines of the mirror, of all its files."""
    names = sorted(n for n in os.listdir(path) if n.startswith("events") and n.endswith("jsonl"))
    names.sort(key=lambda name: name == "events.jsonl")
    return [
        text
        for name in names
        for text in (Path(path) / name).read_bytes().splitlines(keepends=True)
    ]


def is_exact(thread: eventq.Thread) -> bool:
    """Return whether the mirror is the log as we spell it, and a check finds no fault."""
    ours = [line_of(event).encode() + b"\n" for event in thread.peek(limit=100_000)]
    return lines(thread.path) == ours and thread.check() == []


# --- taking over ----------------------------------------------------------------------------------


@VERSIONS
def test_lines_that_were_recorded_are_taken_over(original: str, version: int) -> None:
    """Its files are fine as they are; a push writes ours, and keeps its own byte for byte."""
    db = apsw.Connection(os.path.join(original, "events.db"))
    db.execute("DELETE FROM events; DELETE FROM sqlite_sequence").fetchall()
    text = RECORDED[version].lstrip().encode()
    for line in text.splitlines():
        row = json.loads(line)
        content = row["content"].encode(errors="surrogatepass")
        db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))",
            (
                row["id"],
                row["created_at"][:-3] + "0Z",
                row["source"],
                row["type"],
                row["subtype"],
                content,
            ),
        ).fetchall()
    db.close()
    (Path(original) / "events.jsonl").write_bytes(text)
    bad = ["event 3 holds text that is not UTF-8"]  # as the original stores half a pair
    with eventq.open(original) as thread:
        assert thread.check() == bad
        assert (Path(original) / "events.jsonl").read_bytes() == text
        thread.push("self", "note", "ours")
        assert [json.loads(line)["id"] for line in lines(original)] == [1, 2, 3, 4, 5]
        assert all(line.startswith(b'{"id":') for line in lines(original))
        assert thread.check() == bad
    assert (Path(original) / "original-mirror" / "events.jsonl").read_bytes() == text


CONTENTS = [
    "",
    'a "q" \\ \n\r\t\b\f\0\x1f\x7f  é😀',
    "x" * 300_000,
    '{"id":1,"created_at":"2026-03-18T10:30:00.123Z","source":"self"}',
    "{",
    "[" * 5_000,
]


@VERSIONS
@pytest.mark.parametrize("how", ["push", "rebuild", "prune", "erase"])
def test_any_content_is_taken_over(original: str, version: int, how: str) -> None:
    """Whatever comes first to write, the mirror is exact after it, and its own files are kept."""
    path = made(original, version, CONTENTS)
    before = (Path(path) / "events.jsonl").read_bytes()
    works: dict[str, Callable[[eventq.Thread], object]] = {
        "push": lambda thread: thread.push("self", "note", "ours"),
        "rebuild": lambda thread: thread.rebuild_mirror(),
        "prune": lambda thread: thread.prune(before_id=2, force=True),
        "erase": lambda thread: thread.erasures.event(1),
    }
    with eventq.open(path) as thread:
        assert thread.check() == []
        works[how](thread)
        assert is_exact(thread)
        kept = (Path(path) / "original-mirror" / "events.jsonl").read_bytes()
        assert kept.endswith(before.split(b"\n", 1)[1])
        assert (kept == before) is (how in {"push", "rebuild"})
        thread.push("self", "note", "more")
        assert is_exact(thread)


def test_lines_of_programs_that_use_its_library_are_known(original: str) -> None:
    """They choose the order of the keys, and may give more of them."""
    texts = [
        '{"content":"one","subtype":"note","type":"record","source":"self","id":1,"created_at":"2099"}',
        '{"subtype":null,"source":"external:a:b:c:d:e","n":{"id":7},"type":"message","content":"two","id":2,"created_at":"2099"}',
        '{"id":3,"source":"self","type":"record","content":"3","created_at":"2099","subtype":""}',
    ]
    (Path(original) / "events.jsonl").write_text("".join(f"{text}\n" for text in texts))
    with eventq.open(original) as thread:
        assert thread.check() == []
        thread.push("self", "note", "ours")
        assert is_exact(thread)
        assert os.path.isdir(f"{original}/original-mirror")


@VERSIONS
def test_an_empty_file_after_a_rotation_is_its_own(original: str, version: int) -> None:
    """It begins a new file before it writes the line; killed between, the old one is known."""
    write_as_original(original, "events-20250101-000000.jsonl", 1, 3, version)
    (Path(original) / "events.jsonl").touch()
    with eventq.open(original) as thread:
        assert thread.check() == []
        thread.push("self", "note", "ours")
        assert is_exact(thread)
        assert len(os.listdir(f"{original}/original-mirror")) == 2


def test_a_mirror_in_which_ours_follow_all_of_its_lines_is_mended(original: str) -> None:
    """Where an eventq that did not know its lines has written all events again, each is left once."""
    write_as_original(original, "events.jsonl", 1, 3)
    with eventq.open(original) as thread, open(f"{original}/events.jsonl", "a") as file:
        file.writelines(line_of(event) + "\n" for event in thread.peek())
    with eventq.open(original) as thread:
        thread.push("self", "note", "ours")
        assert is_exact(thread)


@VERSIONS
def test_its_mirror_is_rotated_after_it_was_taken_over(
    original: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files have the usual length, those of the adoption and those after it."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 5)
    path = made(original, version, [])
    with eventq.open(path) as thread:
        for _ in range(15):
            thread.push("self", "note", "ours")
        assert is_exact(thread)
    assert len([name for name in os.listdir(path) if name.startswith("events-")]) == 2


# --- in turns -------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("is_open", [False, True], ids=["anew", "open"])
def test_both_may_push_in_turns(original: str, version: int, is_open: bool) -> None:
    """Each event is there once, in order, and a check finds no fault after any push."""
    path = made(original, version, [])
    one = eventq.open(path)
    for number in range(6):
        for _ in range(number % 3):
            push_as_original(path, f"theirs {number}", version, subtype="s" if number % 2 else None)
            assert one.check() == []
        if not is_open:
            one.close()
            one = eventq.open(path)
        one.push("self", "note", f"ours {number}")
        assert one.check() == []
        assert [json.loads(text)["id"] for text in lines(path)] == [e.id for e in one.peek()]
    if version == 2 or not is_open:
        assert is_exact(one)
    one.close()
    assert not os.path.exists(f"{path}/original-mirror-2")


@VERSIONS
def test_it_may_rotate_our_files(original: str, version: int) -> None:
    """After a rotation by it, with lines of both in the old file, nothing is missing or twice."""
    path = made(original, version, [])
    with eventq.open(path) as thread:
        thread.push("self", "note", "ours")
        push_as_original(path, "theirs", version)
        os.rename(f"{path}/events.jsonl", f"{path}/events-20300101-000000.jsonl")
        for _ in range(3):
            push_as_original(path, "theirs", version)
        assert thread.check() == []
        thread.push("self", "note", "ours")
        assert thread.check() == []
        assert [json.loads(text)["id"] for text in lines(path)] == [*range(1, 10)]
        assert not os.path.exists(f"{path}/original-mirror-2")
        thread.rebuild_mirror()
        assert is_exact(thread)
        assert not os.path.exists(f"{path}/original-mirror-2")


def test_lines_that_it_left_out_or_wrote_in_another_order_are_mended(original: str) -> None:
    """It takes no lock, and may be killed before it writes the line."""
    path = made(original, 2, [])
    with eventq.open(path) as thread:
        thread.push("self", "note", "ours")
        insert(path, "5, of which there is no line")
        numbers = [insert(path, "two at once") for _ in range(2)]
        for number in reversed(numbers):
            write_as_original(path, "events.jsonl", number, number)
        thread.push("self", "note", "ours")
        assert is_exact(thread)


@VERSIONS
@pytest.mark.parametrize("key", ["content", "source", "subtype", "created_at"])
def test_a_line_of_it_that_says_something_else_is_a_fault(
    original: str, version: int, key: str
) -> None:
    """A check reads its lines as well: another text, or a time before that of the row."""
    path = made(original, version, [])
    with eventq.open(path) as thread:
        thread.push("self", "note", "ours")
        push_as_original(path, "theirs", version)
        *before, last = lines(path)
        fields = {**json.loads(last), key: "1999"}
        text = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        (Path(path) / "events.jsonl").write_bytes(b"".join([*before, text]))
        assert thread.check() == [
            "events.jsonl line 5 differs from event 5; run 'eventq mirror rebuild'"
        ]


# --- erasing --------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("where", ["before", "kept", "theirs since"])
@pytest.mark.parametrize("how", ["erase", "prune"])
def test_what_is_erased_is_in_no_line_of_it(
    original: str, version: int, where: str, how: str
) -> None:
    """Neither in the mirror, nor in what is kept of it, nor in what it has written since."""
    texts = [secret(number) for number in range(4)]
    if where == "theirs since":
        path = made(original, version, [])
        with eventq.open(path) as thread:
            thread.push("self", "note", "ours")
        for text in texts:
            push_as_original(path, text, version)
    else:
        path = made(original, version, texts)
    with eventq.open(path) as thread:
        if where == "kept":
            thread.push("self", "note", "ours")
        event = next(event for event in thread.peek() if event.content == texts[1])
        if how == "erase":
            thread.erasures.event(event.id)
        else:
            thread.prune(before_id=event.id + 1, force=True)
        assert remains(path, texts[1]) == []
        assert remains(path, texts[2]) != []
        assert is_exact(thread)
        assert (ERASED in {event.content for event in thread.peek()}) is (how == "erase")


@VERSIONS
@pytest.mark.parametrize("is_glued", [False, True], ids=["torn", "glued"])
def test_what_is_erased_is_in_no_damaged_line_of_it(
    original: str, version: int, is_glued: bool
) -> None:
    """A line that was torn, and another that it wrote after that, may hold anything: both go."""
    path, text = original, secret(1)
    write_as_original(path, "events.jsonl", 1, 3, version)
    number = insert(path, "torn" if is_glued else text)
    write_as_original(path, "events.jsonl", number, number, version)
    *whole, last = lines(path)
    at = last.index(b"torn") if is_glued else last.index(b'"content"') + 30
    (Path(path) / "events.jsonl").write_bytes(b"".join([*whole, last[:at]]))
    if is_glued:
        push_as_original(path, text, version)
    found = (Path(path) / "events.jsonl").read_bytes()
    with eventq.open(path) as thread:
        assert thread.check() == []
        thread.push("self", "note", "ours")
        assert is_exact(thread)
        if version == 2 or is_glued:
            assert (Path(path) / "original-mirror" / "events.jsonl").read_bytes() == found
        thread.erasures.event(4 + is_glued)
        assert remains(path, text) == []
        assert is_exact(thread)


# --- what it costs --------------------------------------------------------------------------------


def test_a_mirror_of_ours_is_not_read_as_the_originals(path: str, run_python: RunPython) -> None:
    """Pushes after pushes, by this process and others, parse no line and need no `json`."""
    code = (
        "import sys, eventq\n"
        "with eventq.open(sys.argv[1]) as one, eventq.open(sys.argv[1]) as two:\n"
        "    for thread in (one, two, one): thread.push('self', 'note', 'x')\n"
        "print(*{'json', 'eventq.log.adoption'} & sys.modules.keys())\n"
    )
    assert [run_python(code, path).strip() for _ in range(2)] == ["", ""]
