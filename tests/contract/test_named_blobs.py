"""A blob that an entry names is kept as long as the entry, without anybody saying so.

The kind of fault: something is stored whose text names a blob, nothing notes that, and a collection
deletes the blob. Its members: a turn that is appended as bytes, text, a buffer, a file, canonical
JSON, or piece by piece; a patch; a retry under a key; an imported turn; the text, the metadata, the
edge prompt, the summary, the prompt, the system text and the attempts of a run; the output of an
agent; names by SHA-256; a name across the border of two pieces that are read; a blob that is stored
after what names it; and what earlier versions have stored.
"""

from __future__ import annotations

import base64
import io
import json
import random
import zlib
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq.records.run import NewRun, NewStep
from eventq.records.turn import NewTurn
from tests.contract.memory import DAY, MIB, ref_of
from tests.contract.support import HOUR, collect
from tests.engines import sqlite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventq import Context, Thread
    from tests.conftest import Clock

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]

PIXELS = bytes(range(256)) * 8
IMAGE = {"type": "image", "data": base64.b64encode(PIXELS).decode(), "mimeType": "image/png"}
ENTRY = {"type": "message", "message": {"role": "user", "content": [IMAGE]}}
REF = ref_of(PIXELS)


def stored(thread: Thread) -> str:
    """Return the JSON of an entry whose image was stored as a blob."""
    return json.dumps(thread.externalize(ENTRY))


def sealed(context: Context, *deltas: str) -> None:
    """Append a turn that is written piece by piece."""
    turn = context.open_turn()
    for delta in deltas:
        turn.append_delta(delta)
    turn.seal()


def canonical(value: object) -> NewTurn:
    """Return a turn whose payload is a value, as canonical JSON."""
    return NewTurn(value, canonical="eventq-json-1")


def long(text: str) -> bytes:
    """Return a text after bytes that are no text, of some MiB."""
    return random.Random(5).randbytes(2 * MIB) + text.encode() + bytes(100_000)


TURNS: dict[str, Callable[[Context, str], object]] = {
    "text": lambda context, text: context.append(text),
    "bytes": lambda context, text: context.append(text.encode()),
    "a bytearray": lambda context, text: context.append(bytearray(text.encode())),
    "a buffer": lambda context, text: context.append(memoryview(text.encode())),
    "a file": lambda context, text: context.append(io.BytesIO(text.encode())),
    "a turn": lambda context, text: context.append(NewTurn(text)),
    "canonical JSON": lambda context, text: context.append(canonical(json.loads(text))),
    "a list": lambda context, text: context.append(canonical(["a", [json.loads(text)]])),
    "a key": lambda context, text: context.append(canonical({REF: 1})),
    "JSON in JSON": lambda context, text: context.append(json.dumps({"arguments": text})),
    "no JSON": lambda context, _: context.append(f"look at {REF}, or {REF[:-1]}"),
    "long bytes": lambda context, text: context.append(long(text)),
    "a long bytearray": lambda context, text: context.append(bytearray(long(text))),
    "a long file": lambda context, text: context.append(io.BytesIO(long(text))),
    "deltas": lambda context, _: sealed(context, "see ", REF[:20], REF[20:]),
    "many deltas": lambda context, text: sealed(context, *["x" * 300_000 for _ in range(5)], text),
    "a key's retry": lambda context, text: [context.append(text, key="k") for _ in "12"],
    "a patch": lambda context, text: context.patch(context.append(b"first").turn_id, text),
    "a fork": lambda context, text: context.fork().append(text),
}


@pytest.mark.parametrize("how", TURNS)
def test_a_turn_keeps_what_its_text_names(
    thread: Thread, context: Context, clock: Clock, how: str
) -> None:
    """Nobody has to know about refs: an entry is externalized, dumped and appended."""
    TURNS[how](context, stored(thread))
    clock.move(DAY)
    assert collect(thread).blobs == 0
    assert thread.rehydrate(thread.externalize(ENTRY)) == ENTRY
    assert thread.blobs.get(REF) == PIXELS
    assert len(thread.blobs.holders(REF)) == 1


RUNS: dict[str, Callable[[Thread, str], object]] = {
    "content": lambda thread, text: begun(thread).step("a", content=text),
    "meta": lambda thread, text: begun(thread).step("a", json.loads(text)),
    "edge prompt": lambda thread, text: begun(thread).step(NewStep("a", edge_prompt=text)),
    "a summary": lambda thread, text: begun(thread).compact(text),
    "an attempt": lambda thread, text: begun(thread).attempt("a", content=text),
    "an attempt's meta": lambda thread, text: begun(thread).attempt("a", {"see": text}),
    "a step's attempts": lambda thread, text: begun(thread).step(
        NewStep("a", attempts=[NewStep("a", {"see": text})])
    ),
    "the end": lambda thread, text: begun(thread).end(0, text),
    "a prompt": lambda thread, text: thread.runs.start("w", text, system={"a": "b"}),
    "a system text": lambda thread, text: thread.runs.start(NewRun("w", "p", system={"a": text})),
    "an output": lambda thread, text: thread.outputs.put("Scout", text),
}


def begun(thread: Thread) -> Any:
    """Return a new run."""
    return thread.runs.start("w", "prompt", system={"a": "system"})


@pytest.mark.parametrize("where", RUNS)
def test_what_agents_produce_keeps_what_its_text_names(
    thread: Thread, clock: Clock, where: str
) -> None:
    """Each text of a run does, and so does an output."""
    RUNS[where](thread, stored(thread))
    clock.move(DAY)
    assert collect(thread).blobs == 0
    assert thread.blobs.get(REF) == PIXELS


@pytest.mark.parametrize("at", range(MIB - 80, MIB + 4, 7))
def test_a_name_may_stand_anywhere(thread: Thread, context: Context, at: int) -> None:
    """Across the border of two pieces that are read, too, of a file as of bytes."""
    thread.blobs.put(PIXELS)
    data = b"x" * at + REF.encode() + b"y" * 300_000
    for payload in (io.BytesIO(data), data, memoryview(data)):
        turn = context.append(payload)
        assert thread.blobs.refs(turn.hash) == [REF]
        with thread.write():
            context.append(b"other")


def test_names_of_other_tools_count(thread: Thread, context: Context, clock: Clock) -> None:
    """A turn keeps a blob that it names by its SHA-256, if that is known."""
    thread.blobs.put(PIXELS)
    assert thread.produced.name_blob(REF, sha256(PIXELS).digest())
    context.append(f"see blob:sha256:{sha256(PIXELS).hexdigest()}")
    clock.move(DAY)
    assert collect(thread).blobs == 0
    assert thread.blobs.get(REF) == PIXELS


def test_what_is_not_stored_is_no_ref(thread: Thread, context: Context) -> None:
    """A text may name anything, as an event's may; only a ref that is given has to be stored."""
    turn = context.append(f"what is {REF}?")
    assert thread.blobs.refs(turn.hash) == []
    assert thread.check() == []
    with pytest.raises(eventq.UnknownBlobError):
        context.append(NewTurn(b"payload", refs=[REF]))


def test_given_refs_and_named_ones_count(thread: Thread, context: Context) -> None:
    """Both are noted, each once."""
    one, two = thread.blobs.put(b"one").ref, thread.blobs.put(b"two").ref
    turn = context.append(NewTurn(f"see {one} and {one}", refs=[two, one]))
    assert thread.blobs.refs(turn.hash) == sorted([one, two])


def test_what_is_put_by_itself_names_nothing(thread: Thread, clock: Clock) -> None:
    """The bytes of a blob that is put say nothing of what it keeps: `refs` does."""
    thread.blobs.put(PIXELS)
    thread.blobs.pin(thread.blobs.put(f"see {REF}".encode()).hash, "me")
    clock.move(DAY)
    assert collect(thread).hashes == (blake3(PIXELS).hexdigest(),)


# --- how long -------------------------------------------------------------------------------------


def test_what_nobody_names_any_more_goes(thread: Thread, clock: Clock) -> None:
    """The blob goes with the last turn that names it."""
    main = thread.contexts.create("main")
    main.append(stored(thread))
    main.fork(name="fork").append(b"more")
    main.delete()
    clock.move(DAY + 1)
    assert collect(thread).blobs == 0
    thread.contexts.delete("fork")
    clock.move(DAY + 1)
    assert collect(thread).blobs == 3
    assert thread.blobs.get(REF) is None


def test_an_erasure_takes_the_blob_along(thread: Thread, context: Context) -> None:
    """What only an erased turn names is erased with it, and what others name stays."""
    turn = context.append(stored(thread))
    other = thread.blobs.put(b"other").ref
    shared = context.append(f"see {other}")
    context.append(f"see {other} too")
    thread.erasures.turn(turn.turn_id)
    with pytest.raises(eventq.ErasedError):
        thread.blobs.get(REF)
    thread.erasures.turn(shared.turn_id)
    assert thread.blobs.get(other) == b"other"


@pytest.mark.parametrize("how", ["pack", "copy", "copy of one"])
def test_an_import_brings_it(
    thread: Thread, other: Thread, clock: Clock, tmp_path: Path, how: str
) -> None:
    """A pack and a copy carry the blob, and that the turn keeps it."""
    thread.contexts.create("aside").append(b"aside")
    thread.contexts.create("main").append(stored(thread))
    begun(thread).step("a", json.loads(stored(thread)))
    clock.move(DAY)
    thread.gc(apply=True)
    if how == "pack":
        thread.export_pack(tmp_path / "pack")
        other.import_pack(tmp_path / "pack")
    else:
        thread.copy_to(other, ["main"] if how == "copy of one" else None)
    clock.move(DAY)
    collect(other)
    assert other.blobs.get(REF) == PIXELS


# --- what was not noted ---------------------------------------------------------------------------


def forget(thread: Thread) -> None:
    """Leave the thread as earlier versions did, which noted no refs of texts."""
    sqlite(thread.database).change("DELETE FROM blob_refs WHERE ref_id = (SELECT blob_id FROM blobs WHERE hash = ?)",
                       (blake3(PIXELS).digest(),))  # fmt: skip


@pytest.mark.engines("sqlite")  # earlier versions had no other
@pytest.mark.parametrize("how", TURNS)
def test_what_earlier_versions_have_stored_keeps_what_it_names(
    thread: Thread, context: Context, clock: Clock, how: str
) -> None:
    """A collection reads the texts of turns whose refs were not noted."""
    TURNS[how](context, stored(thread))
    forget(thread)
    clock.move(DAY)
    assert collect(thread).blobs == 0
    assert thread.blobs.get(REF) == PIXELS


@pytest.mark.engines("sqlite")  # earlier versions had no other
@pytest.mark.parametrize("where", RUNS)
def test_what_agents_of_earlier_versions_produced_keeps_what_it_names(
    thread: Thread, clock: Clock, where: str
) -> None:
    """So it does with each text of a run, and with outputs."""
    RUNS[where](thread, stored(thread))
    forget(thread)
    clock.move(DAY)
    assert collect(thread).blobs == 0
    assert thread.blobs.get(REF) == PIXELS


def test_a_blob_may_come_after_what_names_it(
    thread: Thread, context: Context, clock: Clock
) -> None:
    """As with events, a text may name a blob that is stored later."""
    context.append(f"what is {REF}?")
    thread.blobs.put(PIXELS)
    clock.move(HOUR + 1)
    assert collect(thread).blobs == 0
    assert thread.blobs.get(REF) == PIXELS


# --- the refs of an entry --------------------------------------------------------------------------


def test_the_refs_of_an_entry(thread: Thread) -> None:
    """They are those that its JSON names, in whatever it consists of."""
    also = ref_of(b"x")
    entry = thread.externalize({**ENTRY, also: (f"see {ref_of(b'y')}", [{"deep": (REF,)}])})
    assert thread.refs(entry) == sorted([REF, also, ref_of(b"y")])
    assert thread.refs(json.loads(json.dumps(entry))) == thread.refs(entry)
    assert thread.refs((f"see {also}", REF[:-1])) == thread.refs(f"see {also}") == [also]
    assert thread.refs(thread.externalize({"type": "message"})) == []


def test_a_payload_that_nobody_can_read_is_given_its_refs(
    thread: Thread, context: Context, clock: Clock
) -> None:
    """Where the text of an entry is not in the payload, its refs say what it names."""
    entry = thread.externalize(ENTRY)
    payload = zlib.compress(json.dumps(entry).encode())
    context.append(NewTurn(payload, refs=thread.refs(entry)))
    clock.move(DAY)
    assert collect(thread).blobs == 0
    assert thread.blobs.get(REF) == PIXELS


def test_a_text_that_names_what_is_not_stored(thread: eventq.Thread) -> None:
    """`check` warns of it with the turn that says so; it is no fault, and a collection goes on."""
    ref = "blob:blake3:" + "ab" * 32
    context = thread.contexts.create()
    turn = context.append(f"see {ref}").turn_id
    context.append(f"see blob:blake3:{thread.blobs.put(b'here').hash}")
    assert thread.check() == []
    assert thread.warnings() == [f"turn {turn} names {ref}, which is not stored"]
    thread.gc(apply=True, grace=0)
    assert len(thread.warnings()) == 1
