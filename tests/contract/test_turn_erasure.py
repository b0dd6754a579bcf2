"""A turn is erased: its bytes are gone, and its place, its hash and all that leads to it stay."""

from __future__ import annotations

import base64
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import (
    DamagedError,
    ErasedError,
    LogicError,
    UnknownBlobError,
    UnknownTurnError,
)
from eventq.output import folders
from eventq.records.checks import ERASED
from eventq.records.run import NewRun, NewStep
from eventq.records.turn import NewTurn
from tests.erasing import remains, secret
from tests.servers import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

    from eventq import Thread
    from eventq.memory.contexts import Context
    from eventq.memory.runs import Run

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.engines(*ENGINES),
    pytest.mark.into("sqlite", soaked=["postgres"]),
]
CHANCE = random.Random(7)
NOISE = CHANCE.randbytes(3 << 20)
WORDS = " ".join(
    "".join(CHANCE.choices("etaoinshrdlu", k=CHANCE.randrange(2, 9))) for _ in range(60_000)
)


@pytest.fixture
def main(thread: Thread) -> Context:
    """Return a context with two turns."""
    context = thread.contexts.create("main")
    context.append("first")
    context.append("second")
    return context


def is_gone(thread: Thread, *texts: str | bytes) -> bool:
    """Return whether nothing is left of texts, and the thread is sound."""
    assert thread.check() == []
    return [remains(thread.path, text) for text in texts] == [[] for _ in texts]


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.engines("sqlite")  # it looks into the files
@pytest.mark.parametrize(
    "payload",
    [secret(1, 60), secret(2, 5_000), NOISE, NOISE[:70_000], WORDS, "a" * 500_000 + secret(3)],
    ids=["short", "some pages", "several parts", "one piece", "cut by content", "folded"],
)
def test_a_turn_is_erased(thread: Thread, main: Context, payload: str | bytes) -> None:
    """Only its bytes go: id, hash, size, depth and neighbours stay, and no reader is stopped."""
    turn = main.append(payload)
    main.append("after")
    assert remains(thread.path, payload)
    made = thread.erasures.turn(turn.turn_id, reason="why")
    assert (made.kind, made.name, made.reason, made.finished) == ("turn", "3", "why", True)
    assert is_gone(thread, payload)
    found = [*main.replay()]
    kept = (turn.hash, turn.size, turn.depth, turn.parent_turn_id, True, None)
    gone = found[2]
    shown = (gone.hash, gone.size, gone.depth, gone.parent_turn_id, gone.tombstone, gone.payload)
    assert shown == kept
    assert [one.payload for one in found] == [b"first", b"second", None, b"after"]
    assert [one.tombstone for one in main.replay(payload=False)] == [False, False, True, False]
    for call in (
        lambda: thread.blobs.get(turn.ref),
        lambda: [*thread.blobs.stream(turn.ref)],
        lambda: thread.read(turn.ref),
        lambda: thread.erasures.turn(3),
        lambda: thread.erasures.blob(turn.ref, everywhere=True),
    ):
        with pytest.raises(ErasedError, match=r"turn 3 was erased on \S+Z \(why\)"):
            call()
    stat = thread.blobs.stat(turn.ref)
    assert (stat.codec, stat.size, stat.stored) == ("erased", turn.size, 0)
    assert thread.blobs.verify() == []


def test_what_another_process_has_read_is_not_shown_again(thread: Thread, main: Context) -> None:
    """A program that has the bytes in its cache does not give them out after they were erased."""
    main.append("to be erased")
    with eventq.open(thread.path) as other:
        before = other.contexts.get("main").last().turns[-1]
        assert before.payload == b"to be erased"
        thread.erasures.turn(3)
        assert other.contexts.get("main").last().turns[-1].payload is None
        with pytest.raises(ErasedError):
            other.blobs.get(before.ref)


def test_patches_go_with_their_turn(thread: Thread, main: Context) -> None:
    """No number of a patch shows an older payload; a later patch can say something again."""
    texts = [secret(number) for number in range(3)]
    turn = main.append(texts[0])
    for text in texts[1:]:
        main.patch(turn.turn_id, text)
    main.tombstone(turn.turn_id)
    thread.erasures.turn(turn.turn_id)
    assert is_gone(thread, *texts)
    for number in (0, 1, 2, None):
        found = thread.contexts.turn(turn.turn_id, as_of=number)
        assert (found.payload, found.tombstone) == (None, True)
    main.patch(turn.turn_id, "[as agreed]")
    assert thread.contexts.turn(turn.turn_id).payload == b"[as agreed]"


def test_others_that_have_the_same_bytes_are_listed_first(thread: Thread, main: Context) -> None:
    """Without `everywhere` nothing is changed; with it, it is erased in all of them."""
    text = secret(5)
    for _ in range(3):
        main.append(text)
    main.append("else")
    thread.contexts.patch(6, text)
    thread.outputs.publish("0-A", text)
    ref = thread.contexts.turn(3).ref
    thread.push("self", "note", f"see {ref}")
    others = "these have the same bytes, or refer to them: turn 4, turn 5, patch 1, event 1, output"
    with pytest.raises(LogicError, match=others):
        thread.erasures.turn(3)
    assert thread.contexts.turn(3).payload == text.encode()
    assert [*thread.erasures] == []
    thread.erasures.turn(3, everywhere=True)
    assert is_gone(thread, text)
    assert [turn.tombstone for turn in main.replay()] == [False] * 2 + [True] * 4
    with pytest.raises(ErasedError, match="turn 3 was erased"):
        thread.erasures.turn(4)
    with pytest.raises(ErasedError):
        thread.read("agent://0-A")


def test_blobs_that_share_parts_are_listed_and_erased(thread: Thread, main: Context) -> None:
    """Two long texts that are alike share parts: to erase one is to erase what the other shares."""
    one, other = WORDS, f"{WORDS[:200_000]} another end {secret(9)}"
    main.append(one)
    main.append(other)
    with pytest.raises(LogicError, match="which has a part of it"):
        thread.erasures.turn(3)
    thread.erasures.turn(3, everywhere=True)
    assert is_gone(thread, one, other)
    assert [turn.tombstone for turn in main.replay()] == [False, False, True, True]


@pytest.mark.engines("sqlite")  # it looks into the files
def test_however_many_share_a_part_all_are_erased(thread: Thread, main: Context) -> None:
    """A growing text that is stored again and again shares its beginning a hundred times."""
    begin = WORDS[:70_000]
    for number in range(110):
        main.append(f"{begin} {number}")
    thread.erasures.turn(3, everywhere=True)
    assert is_gone(thread, begin)
    assert [turn.tombstone for turn in main.replay()] == [False, False] + [True] * 110


def test_what_only_the_turn_refers_to_goes_too(thread: Thread, main: Context) -> None:
    """A blob that something else needs stays: of another turn, an event, or a pin."""
    mine, shared, pinned = (
        thread.blobs.put(text.encode()).ref for text in (secret(1), secret(2), secret(3))
    )
    thread.blobs.pin(pinned, "me")
    main.append(NewTurn("the turn", refs=[mine, shared, pinned]))
    main.append(NewTurn("another turn", refs=[shared]))
    thread.erasures.turn(3)
    assert is_gone(thread, secret(1))
    assert [thread.blobs.get(ref) for ref in (shared, pinned)] == [
        secret(2).encode(),
        secret(3).encode(),
    ]


def test_what_cannot_be_erased(thread: Thread, main: Context) -> None:
    """What is pinned, unknown or empty is a sentence, and nothing is changed."""
    turn = main.append("pinned")
    thread.blobs.pin(turn.ref, "me")
    main.append(b"")
    for number, what in ((3, "is pinned by 'me'"), (4, "nothing in it that could be erased")):
        with pytest.raises(LogicError, match=what):
            thread.erasures.turn(number, everywhere=True)
    with pytest.raises(UnknownTurnError):
        thread.erasures.turn(9)
    with pytest.raises(UnknownBlobError):
        thread.erasures.blob("0" * 64)
    assert (thread.contexts.turn(3).payload, [*thread.erasures]) == (b"pinned", [])


def test_bytes_that_are_put_again_are_stored_again(thread: Thread, main: Context) -> None:
    """Somebody says the same once more: it is there, as anything that is said."""
    for text in (secret(1), WORDS):
        turn = main.append(text)
        thread.erasures.turn(turn.turn_id)
        assert thread.blobs.put(text.encode()).hash == turn.hash
        assert thread.blobs.get(turn.ref) == text.encode()
        assert thread.contexts.turn(turn.turn_id).payload == text.encode()
        assert thread.check() == []
        main.append(text)
        assert thread.blobs.stat(turn.ref).codec != "erased"


def test_what_is_said_again_is_erased_again(thread: Thread, main: Context) -> None:
    """A later patch, or bytes that were put anew; a reason is kept unless there is another one."""
    turn = main.append(secret(1))
    thread.erasures.turn(turn.turn_id, reason="a key")
    main.patch(turn.turn_id, secret(2))
    assert thread.erasures.turn(turn.turn_id).reason == "a key"
    assert is_gone(thread, secret(1), secret(2))
    assert thread.contexts.turn(turn.turn_id).tombstone
    thread.blobs.put(secret(1).encode())
    thread.erasures.turn(turn.turn_id, reason="once more")
    blob = thread.blobs.put(secret(3).encode())
    thread.erasures.blob(blob.ref)
    thread.blobs.put(secret(3).encode())
    thread.blobs.pin(blob.ref, "me")
    with pytest.raises(LogicError, match="is pinned by 'me'"):
        thread.erasures.blob(blob.ref)
    thread.blobs.unpin(blob.ref, "me")
    thread.erasures.blob(blob.ref)
    assert is_gone(thread, secret(1), secret(2), secret(3))
    assert [one.reason for one in thread.erasures] == ["once more", None]
    with pytest.raises(ErasedError, match="turn 3 was erased on"):
        thread.erasures.turn(turn.turn_id)
    with pytest.raises(ErasedError, match=f"{blob.ref} was erased on"):
        thread.erasures.blob(blob.ref)
    assert thread.check() == []


def test_a_blob_is_erased(thread: Thread, main: Context) -> None:
    """Whatever refers to it is named; an output and an imported file say that it is gone."""
    text = secret(4)
    thread.outputs.publish("0-A", text)
    (info,) = list(thread.outputs)
    ref = f"blob:blake3:{info.hash}"
    with pytest.raises(LogicError, match="output 0-A"):
        thread.erasures.blob(ref)
    thread.erasures.blob(ref, everywhere=True, reason="a key")
    assert is_gone(thread, text)
    with pytest.raises(ErasedError, match=r"was erased on \S+Z \(a key\)"):
        thread.read("agent://0-A")
    free = thread.blobs.put(b"nobody needs it").ref
    thread.erasures.blob(free)
    assert is_gone(thread, b"nobody needs it")
    assert (thread.gc(apply=True, grace=0).blobs, thread.check()) == (1, [])


def test_a_collection_takes_what_was_erased(thread: Thread) -> None:
    """A turn that nothing leads to is collected, erased or not; the erasure is remembered."""
    context = thread.contexts.create("gone")
    context.append(secret(1))
    thread.erasures.turn(1, reason="why")
    context.delete()
    thread.gc(apply=True, grace=0)
    assert [erasure.reason for erasure in thread.erasures] == ["why"]
    with pytest.raises(ErasedError, match="turn 1 was erased"):
        thread.erasures.turn(1)


def test_damage_is_still_found(thread: Thread, main: Context, raw: Any) -> None:
    """Bytes that are missing without an erasure are damage, as ever."""
    turn = main.append(secret(1))
    raw.execute("DELETE FROM blob_bytes WHERE blob_id = (SELECT max(blob_id) FROM blob_bytes)")
    with pytest.raises(DamagedError):
        thread.blobs.get(turn.ref)
    assert len(thread.check()) == 1
    thread.blobs.put(secret(1).encode())


# --- runs -----------------------------------------------------------------------------------------

SYSTEM = {"coder": "You code. " + secret(10), "tester": "You test."}


@pytest.fixture
def run(thread: Thread) -> Run:
    """Return a run of four steps; the second has texts that are to be erased."""
    run = thread.runs.start(NewRun("w", "The task: " + secret(11), SYSTEM))
    run.step(NewStep("coder", {"n": 1}, "one", edge_prompt="begin"))
    tried = NewStep("tester", {"m": secret(12)}, secret(13), edge_prompt=secret(14))
    run.attempt(tried)
    thing = thread.blobs.put(secret(15).encode()).ref
    run.step(
        NewStep("tester", {"m": secret(16)}, secret(17), [thing], edge_prompt=secret(18), agent="a")
    )
    run.step(NewStep("coder", {"n": 3}, "three", edge_prompt="go on"))
    run.step(NewStep("tester", {"n": 4}, ""))
    return run


def test_a_step_is_erased(thread: Thread, run: Run) -> None:
    """Text, meta, question, attempts and what it made go; role, links and numbers stay."""
    before = {role: run.messages(role, "now") for role in SYSTEM}
    thread.erasures.turn(3)
    assert is_gone(thread, *map(secret, range(12, 19)))
    step = [*run.replay()][1]
    said = (step.role, step.agent, step.content, step.meta, step.edge_prompt, len(step.attempts))
    assert said == ("tester", "a", ERASED, ERASED, ERASED, 1)
    after = {role: run.messages(role, "now") for role in SYSTEM}
    changed = {
        role: [
            n
            for n, pair in enumerate(zip(before[role], after[role], strict=True))
            if pair[0] != pair[1]
        ]
        for role in SYSTEM
    }
    assert changed == {"coder": [3], "tester": [1, 2]}  # no other message, and none is missing
    assert "### Step 2: tester\nOutput: [erased]\nAgent: a" in after["coder"][3]["content"]
    assert after["tester"][2] == {"role": "assistant", "content": ERASED}
    assert after["tester"][1]["content"].startswith(f"{ERASED}\n\n## What Happened")
    run.step("coder", None, "five")  # it goes on
    assert [*run.fork(2).replay()][1].content == ERASED
    assert run.messages("tester", "now")[: len(after["tester"]) - 1] == after["tester"][:-1]


def test_what_many_attempts_made_and_another_step_has_stays(
    thread: Thread, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of those that are to be erased refer to it, the other one counts."""
    blobs = type(thread.database.memory.blobs)
    holders = blobs.holders  # which names 99 fewer than it is asked for
    monkeypatch.setattr(
        blobs, "holders", lambda self, digest, limit: holders(self, digest, limit - 99)
    )
    thing = thread.blobs.put(secret(21).encode()).ref
    run.step(NewStep("tester", None, "made", [thing]))
    for number in range(40):
        run.attempt(NewStep("coder", {"tried": number}, f"attempt {number}", [thing]))
    run.step("coder", None, secret(20))
    thread.erasures.turn(run.info().head_turn_id)
    assert is_gone(thread, secret(20))
    assert thread.blobs.get(thing) == secret(21).encode()


@pytest.mark.parametrize("answer", ["text", "json", "meta"])
def test_a_step_without_a_text_is_erased(thread: Thread, answer: str) -> None:
    """In each form its message says so; a blank text, which others have, stays."""
    run = thread.runs.start(NewRun("w", "task", answer=answer))
    run.step("coder", {"m": secret(1)})
    run.step("coder", {"n": 2})
    thread.erasures.turn(2)
    assert is_gone(thread, secret(1))
    said = run.messages("coder")[2]["content"]
    assert said == (ERASED if answer != "json" else '{"content":"","meta":"[erased]"}')


def test_the_task_of_a_run_is_erased(thread: Thread, run: Run) -> None:
    """The start says the task and the system texts; other runs of the same ones are listed."""
    other = thread.runs.start(NewRun("w", "another task", SYSTEM))
    with pytest.raises(LogicError, match=f"refer to them: turn {other.info().head_turn_id} - "):
        thread.erasures.turn(1)
    thread.erasures.turn(1, everywhere=True)
    assert is_gone(thread, secret(10), secret(11))
    assert run.prompt() == ERASED
    assert run.messages("coder")[0] == {"role": "system", "content": f"{ERASED}\n\n{ERASED}"}
    with pytest.raises(ErasedError):
        thread.erasures.turn(1)


def test_a_compaction_is_erased(thread: Thread, run: Run) -> None:
    """Its summary is, in the messages too; steps after it stay."""
    run.compact(secret(20))
    run.step("coder", None, "five")
    thread.erasures.turn(run.info().head_turn_id - 1)
    assert is_gone(thread, secret(20))
    assert run.messages("tester", "now")[1]["content"].startswith(f"{ERASED}\n\nnow")


def test_an_attempt_is_erased_by_its_ref(thread: Thread, run: Run) -> None:
    """One that no step names yet is a blob with a ref that was printed."""
    ref = run.attempt("coder", {"m": secret(21)}, secret(22))
    thread.erasures.blob(ref, everywhere=True)
    assert is_gone(thread, secret(21), secret(22))
    run.step("coder", None, "five")
    assert [*run.replay()][-1].attempts == (ref,)


def test_many_attempts_are_erased_once_each(thread: Thread, run: Run) -> None:
    """Each names those before it: to follow all of these names would take for ever."""
    tried = [NewStep("coder", None, secret(30 + number)) for number in range(40)]
    run.step(NewStep("coder", None, "done at last", attempts=tried))
    thread.erasures.turn(6)
    assert is_gone(thread, *(secret(30 + number) for number in range(40)))


def test_attempts_that_the_step_of_a_fork_has_too_are_listed(thread: Thread, run: Run) -> None:
    """Both runs go on after the same attempts: to erase one step is to erase those of the other."""
    run.attempt("coder", {"m": 1}, secret(24))
    fork = run.fork(4)
    fork.step("coder", None, "here")
    run.step("coder", None, "there")
    other = fork.info().head_turn_id
    with pytest.raises(LogicError, match=f"refer to them: turn {other} - "):
        thread.erasures.turn(run.info().head_turn_id)
    thread.erasures.turn(run.info().head_turn_id, everywhere=True)
    assert is_gone(thread, secret(24))
    assert [*fork.replay()][-1].content == "here"


def test_a_text_that_two_steps_have_is_listed(thread: Thread, run: Run) -> None:
    """By the turns that have it, not by their nodes."""
    for _ in range(2):
        run.step("coder", {"m": secret(23)}, "the same")
    with pytest.raises(LogicError, match=r"refer to them: turn 7 - "):
        thread.erasures.turn(6)
    thread.erasures.turn(6, everywhere=True)
    assert [step.content for step in run.replay()][-2:] == [ERASED, ERASED]
    assert [step.meta for step in run.replay()][-1] == {"m": secret(23)}


# --- sessions -------------------------------------------------------------------------------------


def entry(number: int, text: str, **more: Any) -> str:
    """Return a line as Claude Code writes it."""
    return json.dumps(
        {
            "parentUuid": f"u{number - 1}" if number else None,
            "isSidechain": False,
            "sessionId": "s-1",
            "type": "assistant" if number % 2 else "user",
            "message": {"role": "assistant" if number % 2 else "user", "content": text, **more},
            "uuid": f"u{number}",
            "timestamp": f"2026-01-01T00:00:0{number}.000Z",
        }
    )


def test_an_entry_of_a_session_is_erased(thread: Thread, tmp_path: Path) -> None:
    """Its line keeps what links it; the exported file can be read, and the import goes on."""
    image = base64.b64encode(NOISE[:3_000]).decode()
    block = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": image},
    }
    texts = ["hello", secret(1), "go on", "done"]
    lines = [entry(number, text) for number, text in enumerate(texts)]
    call = {"type": "tool_use", "id": "t1", "name": "put", "input": {"id": "hunter2-is-secret"}}
    lines[1] = entry(1, secret(1), usage={"input_tokens": 987_654_321}, extra=[block, call])
    file = tmp_path / "s-1.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    imported = thread.sessions.import_file(str(file))
    turns = [*thread.contexts.get(imported.context_id).replay()]
    thread.erasures.turn(turns[1].turn_id)
    assert is_gone(thread, secret(1), NOISE[:3_000], "hunter2-is-secret")
    out = tmp_path / "out.jsonl"
    out.write_bytes(b"".join(thread.sessions.lines("s-1")))
    shown = [json.loads(line) for line in out.read_text().splitlines()]
    assert [json.loads(line) for n, line in enumerate(lines) if n != 1] == [
        one for n, one in enumerate(shown) if n != 1
    ]
    was, now = json.loads(lines[1]), shown[1]
    assert {key: now[key] for key in was if key != "message"} == {
        key: was[key] for key in was if key != "message"
    }
    assert (now["message"]["role"], now["message"]["content"]) == ("assistant", ERASED)
    assert now["message"]["usage"] == {"input_tokens": 0}
    views = thread.sessions.views
    assert [json.loads(one) for one in views.entries("s-1", print)] == shown
    assert (views.entry(turns[1].turn_id).entry, views.entry(turns[1].turn_id).text) == (
        "u1",
        ERASED,
    )
    fork = thread.sessions.fork("s-1", str(tmp_path / "fork.jsonl"))
    forked = [json.loads(line) for line in (tmp_path / "fork.jsonl").read_text().splitlines()]
    assert [one["message"]["content"] for one in forked if "message" in one] == [
        "hello", ERASED, "go on", "done",
    ]  # fmt: skip
    assert fork
    file.write_text(file.read_text() + entry(4, "one more") + "\n")
    grown = thread.sessions.import_file(str(file))
    assert (grown.added, grown.generation) == (1, 1)
    assert is_gone(thread, secret(1))
    assert len([*thread.contexts.get(grown.context_id).replay()]) == 5


# --- packs and copies -----------------------------------------------------------------------------


@pytest.fixture
def erased(thread: Thread, run: Run, tmp_path: Path) -> Thread:
    """Return a thread with a turn, a step, an entry and a task that were erased."""
    context = thread.contexts.create("main")
    context.append("first")
    context.append(secret(30))
    context.append("third")
    file = tmp_path / "s-1.jsonl"
    file.write_text("".join(f"{entry(n, secret(31 + n))}\n" for n in range(3)))
    imported = thread.sessions.import_file(str(file))
    turns = [*thread.contexts.get(imported.context_id).replay(payload=False)]
    thread.erasures.turn(1, reason="the task")
    thread.erasures.turn(3)
    thread.erasures.turn(context.last().turns[1].turn_id, reason="a password")
    thread.erasures.turn(turns[1].turn_id)
    return thread


def said(thread: Thread) -> Any:
    """Return all that turns, runs and sessions say."""
    run = thread.runs.get(1)
    turns = [
        (one.hash, one.size, one.tombstone, one.payload)
        for one in thread.contexts.get("main").replay()
    ]
    return (
        turns,
        [(step.content, step.meta, step.edge_prompt, step.ref) for step in run.replay()],
        run.messages("tester", "now"),
        b"".join(thread.sessions.lines("s-1")),
    )


@pytest.mark.parametrize("way", ["pack", "copy", "some"])
def test_the_tombstones_come_along(erased: Thread, tmp_path: Path, way: str) -> None:
    """A pack and a copy have no byte of what was erased, and say that it was."""
    with eventq.open(str(tmp_path / "other"), create=True) as other:
        for _ in range(2):  # twice is once
            if way == "pack":
                folder = tmp_path / f"pack {_}"
                erased.export_pack(str(folder))
                assert remains(str(folder), secret(30)) == []
                made = other.import_pack(str(folder))
            else:
                chosen = (
                    None
                    if way == "copy"
                    else [*(one.name or one.context_id for one in erased.contexts)]
                )
                made = erased.copy_to(other, chosen)
            assert made.notes == ()
        assert said(other) == said(erased)
        assert is_gone(other, *map(secret, (10, 11, 16, 17, 18, 30, 32)))
        with pytest.raises(ErasedError, match=r"was erased on \S+ \(a password\)"):
            other.blobs.get(other.contexts.get("main").last().turns[1].ref)
        other.runs.get(1).step("coder", None, "it goes on")
        assert other.check() == []


def test_what_is_here_is_not_erased_by_an_import(thread: Thread, tmp_path: Path) -> None:
    """Only whoever has a thread erases in it: an import leaves its bytes alone."""
    context = thread.contexts.create("main")
    context.append("first")
    thread.export_pack(str(tmp_path / "before"))
    with eventq.open(str(tmp_path / "other"), create=True) as other:
        other.import_pack(str(tmp_path / "before"))
        thread.erasures.turn(1)
        thread.export_pack(str(tmp_path / "after"))
        assert other.import_pack(str(tmp_path / "after")).turns == 0
        assert other.contexts.get("main").last().turns[0].payload == b"first"


def test_an_older_pack_does_not_bring_back_what_was_erased(thread: Thread, tmp_path: Path) -> None:
    """It stays erased, and the import says so."""
    context = thread.contexts.create("main")
    context.append(secret(1))
    thread.export_pack(str(tmp_path / "pack"))
    thread.erasures.turn(1)
    made = thread.import_pack(str(tmp_path / "pack"))
    assert made.notes == ("1 blob was erased here, and stays so",)
    assert is_gone(thread, secret(1))
    assert context.last().turns[0].payload is None


# --- folders and images ---------------------------------------------------------------------------


def test_a_folder_is_written_without_what_was_erased(thread: Thread, tmp_path: Path) -> None:
    """What was erased is left out and named; all else is written."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "notes.txt").write_text(secret(1))
    (folder / "more.txt").write_text("kept")
    (folder / "0-Scout.md").write_text(secret(2))
    folders.bring(thread.produced, str(folder), print, thread.path)
    for name in ("notes.txt", "0-Scout.md"):
        ref = thread.blobs.put((folder / name).read_bytes()).ref
        thread.erasures.blob(ref, everywhere=True)
    notes: list[str] = []
    counts = folders.write(thread.produced, str(tmp_path / "out"), notes.append)
    assert sum(counts.values()) == 1
    assert (tmp_path / "out" / "more.txt").read_text() == "kept"
    assert sorted(note.partition(" was not written: blob:blake3:")[0] for note in notes) == [
        "'0-Scout.md'",
        "'notes.txt'",
    ]


def test_an_image_of_a_session_is_erased(thread: Thread, tmp_path: Path) -> None:
    """Its line keeps the ref in its place, and everything else; the export says so."""
    image = NOISE[:3_000]
    data = base64.b64encode(image).decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    line = entry(0, "see this", extra=[block])
    file = tmp_path / "s-1.jsonl"
    file.write_text(f"{line}\n")
    thread.sessions.import_file(str(file))
    ref = thread.blobs.put(image).ref
    thread.erasures.blob(ref, everywhere=True)
    assert is_gone(thread, image)
    notes: list[str] = []
    text = b"".join(thread.sessions.lines("s-1", warn=notes.append)).decode()
    assert text == line.replace(data, ref) + "\n"
    assert len(notes) == 1
