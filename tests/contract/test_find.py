"""A text is found wherever it stands in a thread, and escaped as programs write it.

Where it may stand: events, dead letters and attempts; turns, patches, lines of sessions that are no
turns, tasks and steps of runs and their attempts; artifacts, outputs, pins, other blobs, turns that
are being written; settings and other rows; logs of handlers, the journal, the mirror, `lost/`. In
blobs and artifacts it may be compressed, and cross the boundary of two pieces.
"""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import given, strategies

import eventq
from eventq.erasure import erasures, finding, traces
from eventq.errors import BusyError, DiskError, InputError, StoreError
from eventq.log import mirror
from eventq.records.checks import ERASED
from eventq.records.run import NewRun, NewStep
from eventq.store.sqlite import care
from tests.erasing import remains, secret

if TYPE_CHECKING:
    from pathlib import Path

    from eventq import Thread

pytestmark = pytest.mark.usefixtures("quick")
PLAIN = "hunter2-hunter2"
ODD = "hun\"ter\\2\n\t☃ \x01'x"
CHANCE = random.Random(5)


def places(thread: Thread, text: str) -> list[tuple[str, str]]:
    """Return kind and name of each place."""
    return [(one.kind, one.name) for one in thread.erasures.find(text)]


def fill(thread: Thread, text: str, folder: Path) -> None:
    """Store a text in everything that can hold one."""
    thread.push("self", "note", "first")
    thread.push("self", "note", f"my {text} is")
    thread.subscribe("w", "true", each=True, on_failure="dead", max_attempts=1)
    (claim,) = thread.claim("w")
    thread.settle(dead=[claim], error=f"cannot use {text}")
    main = thread.contexts.create("main")
    main.append(f"it is {text}")
    patched = main.append("second")
    thread.contexts.patch(patched.turn_id, f"now {text}")
    run = thread.runs.start(NewRun("w", f"task {text}", {"coder": f"system {text}"}))
    run.step(NewStep("coder", {"n": 1}, f"step {text}"))
    run.step(NewStep("coder", {"n": text}, "step"))
    run.step(NewStep("coder", {"n": 1}, "step", edge_prompt=f"asked {text}"))
    run.attempt(NewStep("coder", {"n": 1}, f"tried {text}"))
    thread.artifacts.put(f"artifact {text}".encode())
    thread.outputs.publish("Scout", f"output {text}".encode())
    thread.blobs.put(f"blob {text}".encode())
    stream = main.open_turn()
    stream.append_delta(f"open {text}".encode())
    lines = [
        {"type": "user", "uuid": "u0", "parentUuid": None, "sessionId": "s-1",
         "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "hello"}},
        {"type": "last-prompt", "sessionId": "s-1", "lastPrompt": text},
    ]  # fmt: skip
    file = folder / "s-1.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    thread.sessions.import_file(str(file))
    log = thread.layout.handler_log("w")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "w", encoding="utf-8") as written:
        written.write(f"got {text!r}\n")
    os.makedirs(thread.layout.lost, exist_ok=True)
    with open(f"{thread.layout.lost}/1", "w", encoding="utf-8") as written:
        written.write(json.dumps({"content": text}) + "\n")
    thread.journal.warn(f"about {text}")


@pytest.mark.parametrize("text", [PLAIN, ODD])
def test_a_text_is_found_everywhere(thread: Thread, tmp_path: Path, text: str) -> None:
    """Each place once, by the name that people have for it."""
    fill(thread, text, tmp_path)
    found = places(thread, text)
    assert len(set(found)) == len(found)
    kinds: dict[str, int] = {}
    for kind, _ in found:
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds == {
        "event": 1, "dead letter": 1, "turn": 5, "patch": 1, "attempt after turn": 1, "artifact": 1,
        "output": 1, "blob": 1, "open turn": 1, "line": 1, "path": 4,
    }  # fmt: skip
    assert ("event", "2") in found
    assert ("dead letter", "2") not in found  # it was the first that was claimed
    assert ("dead letter", "1") in found
    assert ("artifact", "0/0") in found
    assert ("line", "s-1:2") in found
    assert {name for kind, name in found if kind == "path"} == {
        "events.jsonl", "logs/thread.log", "logs/handlers/w.log", "lost/1",
    }  # fmt: skip
    assert places(thread, "nowhere at all") == []


@given(strategies.text(alphabet="ab \"'\\\n\x7f☃é~[]/", min_size=6, max_size=20))
def test_the_part_that_no_spelling_escapes(text: str) -> None:
    """Every spelling of a text has it: what is looked for first misses nothing."""
    for plain in finding.UNESCAPED.findall(text):
        assert all(plain.encode() in way for way in finding.spelled(text))


def test_json_in_json_is_found(thread: Thread) -> None:
    """An event may hold JSON, which a line of the mirror escapes once more."""
    inner = json.dumps({"text": json.dumps(ODD)})
    thread.push("self", "note", inner)
    assert places(thread, ODD) == [("event", "1"), ("path", "events.jsonl")]


def test_rotated_files_of_the_mirror_are_read(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the names of events that are no content, which are rows."""
    monkeypatch.setattr(mirror, "ROTATE_LINES", 2)
    for number in range(6):
        thread.push("self", f"type-{PLAIN}" if number == 5 else "note", PLAIN * (number == 0))
    found = places(thread, PLAIN)
    assert found[:2] == [("event", "1"), ("row", "events 6")]
    assert len([name for _, name in found if name.startswith("events-")]) == 1
    assert found[-2:] == [("path", "events.jsonl"), ("path", "logs/thread.log")]


def test_a_reader_that_still_sees_it(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is called erased; the same call finishes all of it once the reader is gone."""
    monkeypatch.setattr(care, "BUSY_SECONDS", 0)
    for number in range(3):
        thread.push("self", "note", f"{number} {PLAIN}")
        thread.contexts.create().append(f"{number} {PLAIN}")
    reader = apsw.Connection(thread.layout.database)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()
    for _ in range(2):
        with pytest.raises(BusyError, match="still reads"):
            thread.erasures.text(PLAIN)
        assert [one.finished for one in thread.erasures] == [False] * 6
        assert len([what for what in thread.check() if "erase it again" in what]) == 6
    reader.close()
    thread.push("self", "note", f"later {PLAIN}")
    assert thread.erasures.text(PLAIN) == []
    assert [one.finished for one in thread.erasures] == [True] * 7
    assert remains(thread.path, PLAIN) == []
    assert thread.check() == []


@pytest.mark.parametrize("kind", ["blob", "artifact", "open turn", "path"])
def test_a_text_that_crosses_pieces_is_found(thread: Thread, kind: str, tmp_path: Path) -> None:
    """Wherever the bytes are cut: the text stands at each of the places where it may be."""
    text = "".join(CHANCE.choices("abcdefgh", k=3_000))
    data = CHANCE.randbytes(1 << 20) + (text.encode() + b"-") * 2_000 + CHANCE.randbytes(1 << 20)
    once = CHANCE.randbytes(1 << 20)[: -len(text) // 2] + text.encode() + CHANCE.randbytes(1 << 20)
    for content in (data, once):
        if kind == "blob":
            thread.blobs.put(content)
        elif kind == "artifact":
            thread.artifacts.put(content)
        elif kind == "open turn":
            stream = thread.contexts.create().open_turn()
            for start in range(0, len(content), 100_003):
                stream.append_delta(content[start : start + 100_003])
        else:
            os.makedirs(thread.layout.lost, exist_ok=True)
            name = f"{thread.layout.lost}/{len(content)}"
            with open(name, "wb") as file:
                file.write(content)
    assert [one for one, _ in places(thread, text)] == [kind, kind]
    assert places(thread, text[:-1] + "Z") == []


def test_the_scan_has_bounded_memory(thread: Thread) -> None:
    """Some pages are in memory at once, whatever is stored."""
    for _ in range(6):
        thread.push_many([("self", "note", "x" * 100_000)] * 100)
    tracemalloc.start()
    found = thread.erasures.find(PLAIN)
    assert [*found] == []
    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()
    assert found.bytes > 120_000_000 - (1 << 20)  # the table and the mirror


@pytest.mark.parametrize("text", ["", "short", "x" * 65_537])
def test_texts_that_are_not_sought(thread: Thread, text: str) -> None:
    """A short one stands everywhere."""
    with pytest.raises(InputError, match="give 6 to 65,536 characters"):
        thread.erasures.find(text)


def test_a_thread_that_is_only_read_is_searched(thread: Thread) -> None:
    """Nothing is written."""
    thread.push("self", "note", PLAIN)
    with eventq.open(thread.path, read_only=True) as reader:
        found: Any = places(reader, PLAIN)
    assert found == [("event", "1"), ("path", "events.jsonl")]


# --- erasing it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [PLAIN, ODD])
def test_a_text_is_erased_everywhere(thread: Thread, tmp_path: Path, text: str) -> None:
    """In the form of each kind; afterwards it is found only where something is still written."""
    fill(thread, text, tmp_path)
    thread.push("self", "note", json.dumps({"inner": json.dumps(text)}))
    (left,) = thread.erasures.text(text, reason="a password")
    assert (left.place.kind, left.place.name) == ("open turn", "1")
    assert left.why == "turn 1 is still being written - seal or discard it, then do this again"
    assert places(thread, text) == [("open turn", "1")]
    thread.contexts.open_turn(1).discard()
    assert thread.erasures.text(text) == []
    assert remains(thread.path, text, whole=True) == []
    assert [event.content for event in thread.peek()] == ["first", ERASED, ERASED]
    assert [letter.error for letter in thread.dead_letters()] == [ERASED]
    assert all(erasure.finished and erasure.reason for erasure in thread.erasures)
    run = thread.runs.get(2)
    assert run.prompt() == ERASED
    assert [step.role for step in run.replay()] == ["coder"] * 3
    assert json.loads([*thread.sessions.lines("s-1")][1])["type"] == "last-prompt"


def test_what_cannot_be_erased_now_is_left(thread: Thread) -> None:
    """Leased, open, pinned, or no content: it is listed with its reason, and erased later."""
    thread.subscribe("w", "true", each=True)
    thread.push("self", "note", PLAIN)
    thread.push("self", "note", f"also {PLAIN}")
    (claim,) = thread.claim("w", limit=1)
    pinned = thread.blobs.put(PLAIN.encode() + b"-pinned")
    thread.blobs.pin(pinned.ref, "me")
    writer = thread.artifacts.allocate()
    writer.write(PLAIN.encode() * 500_000)
    with open(f"{thread.path}/mine.txt", "w", encoding="utf-8") as file:
        file.write(PLAIN)
    left = {one.place.kind: one.why for one in thread.erasures.text(PLAIN)}
    assert [*left] == ["event", "pin", "open artifact", "path"]
    assert "event 1 is leased by a worker of consumer 'w'" in left["event"]
    assert "is pinned by 'me' - unpin it first" in left["pin"]
    assert "is still being written" in left["open artifact"]
    assert [event.content for event in thread.peek()] == [PLAIN, ERASED]
    thread.settle(done=[claim])
    thread.blobs.unpin(pinned.ref, "me")
    writer.seal()
    (one,) = thread.erasures.text(PLAIN)
    assert (one.place.name, one.why) == (
        "mine.txt", "no erasure reaches it - change or delete it yourself",
    )  # fmt: skip
    os.unlink(f"{thread.path}/mine.txt")
    assert remains(thread.path, PLAIN) == []


@pytest.mark.parametrize("at_once", [traces.AT_ONCE, 3_000])
def test_logs_are_read_once_for_many_events(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """And again only from where they ended, for what was printed meanwhile; not for each event."""
    for module in (traces, erasures):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    texts = [f"{number} {PLAIN} and {secret(number, 60)}" for number in range(60)]
    thread.push_many([("self", "note", text) for text in texts])
    log = thread.layout.handler_log("w")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        file.writelines(f"got {text}\n" for text in [*texts, "harmless"])
    size, looks = os.path.getsize(log), []
    look, erase = traces.erase_in, thread.database.memory.erasures.event

    def note(path: str, sought: traces.Sought, begin: int) -> int:
        looks.append(begin) if path == log else None
        return look(path, sought, begin)

    def erased(number: int, reason: str | None) -> list[int]:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"late {texts[number - 1]}\n")
        return erase(number, reason)

    monkeypatch.setattr(traces, "erase_in", note)
    monkeypatch.setattr(thread.database.memory.erasures, "event", erased)
    assert thread.erasures.text(PLAIN) == []
    assert looks.count(0) <= sum(map(len, texts)) // at_once + 2, "the text itself is sought, too"
    assert all(begin >= size for begin in looks if begin)
    assert any(looks)
    assert [text for text in texts if remains(thread.path, text)] == []
    with open(log, encoding="utf-8") as file:
        assert "harmless\n" in file.read()


def test_a_log_that_begins_anew_is_read_from_its_beginning(thread: Thread) -> None:
    """A program may cut its log while a text is erased, and print it once more."""
    log = thread.layout.handler_log("w")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    text = secret(1)
    found = traces.Traces(thread.layout)
    for printed in (f"{'.' * 9_000}{text}", f"..{text}"):
        with open(log, "w", encoding="utf-8") as file:
            file.write(printed)
        found.erase([text])
        assert remains(thread.path, text) == []


@pytest.mark.parametrize("size", range(4, 31))
def test_short_texts_are_found_wherever_they_begin(size: int) -> None:
    """In any of the steps in which a log is looked at, many at once."""
    texts = [f"{number}{secret(number)[1:]}"[:size] for number in range(40)]
    sought = traces.Sought(texts)
    for before in range(33):
        block = ".".join(["." * before, *texts, "", ""]).encode()
        left = bytearray(block)
        for start, end in sought.among(block):
            left[start:end] = b"." * (end - start)
        assert set(left) == {ord(".")}


def test_places_of_one_blob_are_erased_together(thread: Thread) -> None:
    """Two turns, an output and an artifact have the same bytes; each of them is done once."""
    thread.contexts.create("a").append(PLAIN)
    thread.contexts.create("b").append(PLAIN)
    thread.outputs.publish("Scout", PLAIN.encode())
    thread.artifacts.put(PLAIN.encode())
    assert thread.erasures.text(PLAIN) == []
    assert sorted((one.kind, one.finished) for one in thread.erasures) == [
        ("artifact", True), ("turn", True),
    ]  # fmt: skip
    assert thread.check() == []
    assert remains(thread.path, PLAIN) == []


def test_a_prune_that_was_interrupted_is_finished(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are no places any more, and their lines are still in the mirror."""
    for text in (PLAIN, "second"):
        thread.push("self", "note", text)
    with monkeypatch.context() as patch:
        patch.setattr(thread.database, "scrub", _refuse)
        with pytest.raises(StoreError):
            thread.prune(keep_last=1, force=True)
    assert any("prune again" in fault for fault in thread.check())
    assert thread.erasures.text(PLAIN) == []
    assert thread.check() == []
    assert remains(thread.path, PLAIN) == []


def _refuse() -> None:
    raise DiskError("no room", "make some")


def test_what_is_stored_meanwhile_is_left_with_the_way_to_go_on(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked to edit a file that follows the log, or to erase what the call erases."""
    thread.push("self", "note", PLAIN)
    thread.subscribe("w", "true", each=True)
    scrub = thread.database.memory.scrub

    def meanwhile() -> None:
        scrub()
        monkeypatch.setattr(thread.database, "scrub", scrub)
        monkeypatch.setattr(mirror, "ROTATE_LINES", 2)
        for content in ("other", PLAIN, f"also {PLAIN}", "other"):
            thread.push("self", "note", content)
        thread.contexts.create("main").append(PLAIN)
        log = thread.layout.handler_log("w")
        os.makedirs(os.path.dirname(log), exist_ok=True)
        with open(log, "w", encoding="utf-8") as file:
            file.write(PLAIN)
        (first,) = [one for one in thread.claim("w", limit=2) if one.event.id == 1][:1]
        thread.settle(done=[first])

    monkeypatch.setattr(thread.database, "scrub", meanwhile)
    left = [(one.place.kind, one.place.name, one.why) for one in thread.erasures.text(PLAIN)]
    again = "it was stored meanwhile - do this again"
    follows = "it has what stands in events - erase these"
    rotated = [name for _, name, _ in left if name.startswith("events-")]
    assert len(rotated) == 1
    assert [(kind, name) for kind, name, _ in left] == [
        ("event", "3"), ("event", "4"), ("turn", "1"), ("path", rotated[0]),
        ("path", "events.jsonl"), ("path", "logs/handlers/w.log"),
    ]  # fmt: skip
    assert [why for _, _, why in left] == [again, again, again, follows, follows, again]
    assert thread.erasures.text(PLAIN) == []
    assert remains(thread.path, PLAIN) == []
    assert thread.check() == []


def test_a_text_that_was_only_printed_goes_from_the_log(thread: Thread) -> None:
    """A part of a content under 31 bytes stays in a log when the event is erased; not with this."""
    thread.push("self", "note", f"a longer content, with {PLAIN} in it, and more than that")
    log = thread.layout.handler_log("w")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        file.write(f"got {PLAIN}!\n")
    thread.erasures.event(1)
    assert places(thread, PLAIN) == [("path", "logs/handlers/w.log")]
    assert thread.erasures.text(PLAIN) == []
    with open(log, encoding="utf-8") as file:
        assert file.read() == "got [erased]       !\n"
