"""A turn is stored as it was given, once and for ever, or refused without a trace; and chains of them are read."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from array import array
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from blake3 import blake3

import eventq
from eventq import InputError, LogicError, StoreError, Turn, UsageError
from eventq.dag import turns as turns_module
from eventq.errors import (
    ConflictError,
    DamagedError,
    ReadOnlyError,
    UnknownBlobError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.records import NewTurn
from tests.contract.support import append, dump, ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eventq import Context, Thread
    from tests.conftest import Clock

    Tables = dict[str, list[tuple[Any, ...]]]

DAY = 24 * 3600
U32 = (1 << 32) - 1
LARGEST_ID = (1 << 63) - 1
MISSING = "blob:blake3:" + "0" * 64
NO_NUMBERS: list[Any] = [True, False, 1.0, "1", b"1", [1]]


pytestmark = pytest.mark.usefixtures("quick")


def hash_of(data: bytes) -> str:
    """Give the name of bytes."""
    return blake3(data).hexdigest()


def place_of(turn: Turn) -> tuple[int, int, int]:
    """Give id, parent and depth of a turn."""
    return turn.turn_id, turn.parent_turn_id, turn.depth


def said(turns: Iterable[Turn]) -> list[bytes | None]:
    """Give the payloads of turns."""
    return [turn.payload for turn in turns]


def grow(context: Context, count: int) -> list[int]:
    """Append some turns, whose payloads are all different, and give their ids."""
    return [context.append(f"{context.id}: {number}").turn_id for number in range(count)]


# --- appending ---


def test_append_gives_the_turn_as_stored(thread: Thread, context: Context, clock: Clock) -> None:
    """`append` gives all that was given, without the payload; reading gives the same with it. Row 35."""
    first = context.append(b"one")
    assert first == Turn(1, 0, 0, "message", 1, 0, hash_of(b"one"), 3, 0, 1773829800123)
    clock.move(60)
    second = context.append(
        NewTurn(
            "zwölf", type_id="tool.call", type_version=U32, encoding=7, flags=U32, refs=[first.ref]
        ),
        key="k",
    )
    text = "zwölf".encode()
    assert second == Turn(2, 1, 1, "tool.call", U32, 7, hash_of(text), 6, U32, 1773829860123)
    assert second.ref == "blob:blake3:" + hash_of(text)
    third = context.append(
        NewTurn({"b": 1, "a": [1.5, None]}, canonical="eventq-json-1", type_id="", type_version=0)
    )
    data = b'{"a":[1.5,null],"b":1}'
    assert third == Turn(
        3, 2, 2, "", 0, 0, hash_of(data), len(data), 0, 1773829860123, "eventq-json-1"
    )
    expected = [
        Turn(1, 0, 0, "message", 1, 0, hash_of(b"one"), 3, 0, 1773829800123, payload=b"one"),
        Turn(2, 1, 1, "tool.call", U32, 7, hash_of(text), 6, U32, 1773829860123, payload=text),
        Turn(
            3,
            2,
            2,
            "",
            0,
            0,
            hash_of(data),
            len(data),
            0,
            1773829860123,
            "eventq-json-1",
            payload=data,
        ),
    ]
    assert expected == list(context.last())
    assert expected == [thread.contexts.turn(number) for number in (1, 2, 3)]
    assert [first, second, third] == list(context.last(payload=False))
    assert [first.ref] == thread.blobs.refs(second.ref)


BIG = bytes(range(256)) * 1000


class Drips:
    """A binary file that gives less at once than it is asked for, as a pipe does."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        """Give up to 1,000 bytes."""
        given, self.data = self.data[: min(size, 1000)], self.data[min(size, 1000) :]
        return given


@pytest.mark.parametrize(
    ("payload", "canonical", "stored"),
    [
        (b"", None, b""),
        ("", None, b""),
        (bytearray(b"\0\xff"), None, b"\0\xff"),
        (memoryview(b"abcdef")[::2], None, b"ace"),
        (memoryview(array("H", [1, 2])), None, array("H", [1, 2]).tobytes()),
        ("\0é\U0001f600\r\n", None, b"\0\xc3\xa9\xf0\x9f\x98\x80\r\n"),
        (lambda: io.BytesIO(b"file"), None, b"file"),
        (lambda: io.BytesIO(b""), None, b""),
        (lambda: Drips(BIG), None, BIG),
        (lambda: Drips(BIG * 9), None, BIG * 9),
        (BIG * 9, None, BIG * 9),
        (b'{"b": 1, "a": 2.0}', "eventq-json-1", b'{"a":2.0,"b":1}'),
        (None, "eventq-json-1", b"null"),
        (0, "eventq-json-1", b"0"),
        ("text", "eventq-json-1", b'"text"'),
        ([], "eventq-json-1", b"[]"),
    ],
)
def test_payloads(
    thread: Thread, context: Context, payload: Any, canonical: str | None, stored: bytes
) -> None:
    """Bytes of any shape, text, binary files and canonical values come back as exactly their bytes."""
    turn = context.append(NewTurn(payload() if callable(payload) else payload, canonical=canonical))
    assert (hash_of(stored), len(stored), canonical) == (turn.hash, turn.size, turn.canonical)
    assert [stored] == said(context.last())
    assert stored == thread.blobs.get(turn.ref)


def test_equal_payloads_are_one_blob(
    thread: Thread, context: Context, raw: apsw.Connection
) -> None:
    """Equal bytes in many turns and contexts are stored once; the turns are different ones."""
    other = thread.contexts.create()
    assert [c.append(b"same").turn_id for c in (context, context, other)] == [1, 2, 3]
    assert raw.execute("SELECT count(*) FROM blobs").fetchall() == [(1,)]


def test_ids_and_depths(thread: Thread, context: Context) -> None:
    """Ids count 1, 2, 3 over all contexts; a root has depth 0, each other turn its parent's + 1. Row 35."""
    other = thread.contexts.create()
    found = [c.append(b"x") for c in (context, other, context, context, other)]
    assert [(turn.turn_id, turn.parent_turn_id, turn.depth) for turn in found] == [
        (1, 0, 0),
        (2, 0, 0),
        (3, 1, 1),
        (4, 3, 2),
        (5, 2, 1),
    ]


def test_ids_are_never_reused(thread: Thread, context: Context, clock: Clock) -> None:
    """The id of a turn that a collection deleted, the newest too, is given to no other. Row 35."""
    grow(context, 3)
    context.move(1)
    clock.move(3 * DAY)
    assert thread.gc(apply=True).turns == 2
    with pytest.raises(UnknownTurnError):
        thread.contexts.turn(3)
    assert context.append(b"next").turn_id == 4
    assert ids(context.last()) == [1, 4]


def test_an_undone_append_leaves_nothing(
    thread: Thread, context: Context, raw: apsw.Connection
) -> None:
    """What a rolled back `write` had appended is gone, every row of it, and ids go on without a gap."""
    grow(context, 2)
    before = dump(raw)
    with pytest.raises(ZeroDivisionError), thread.write():
        assert context.append(b"gone", key="k", source="self").turn_id == 3
        raise ZeroDivisionError
    assert before == dump(raw)
    with pytest.raises(UnknownTurnError):
        thread.contexts.turn(3)
    assert context.append(b"kept", key="k").turn_id == 3


COLUMNS = (
    "turn_id, parent_id, depth, jump_id, jump_depth, type_id, type_version, type_tag, encoding, canonical, blob_id,"
    " flags, created_at_ms"
)


@pytest.mark.parametrize("column", COLUMNS.split(", "))
def test_turns_are_immutable(context: Context, raw: apsw.Connection, column: str) -> None:
    """Row 36: an UPDATE of any column of a turn is refused by the database itself."""
    grow(context, 2)
    before = dump(raw)
    with pytest.raises(apsw.ConstraintError, match="a turn is immutable"):
        raw.execute(f"UPDATE turns SET {column} = {column}")
    assert before == dump(raw)


def test_a_parent_is_earlier_than_its_child(context: Context, raw: apsw.Connection) -> None:
    """Row 35: the database refuses a turn whose parent is itself or later, and one whose depth is no root's."""
    grow(context, 2)
    before = dump(raw)
    for turn_id, parent, depth, jump, jump_depth in [
        (9, 9, 1, 1, 0),
        (9, 10, 1, 1, 0),
        (9, None, 1, 1, 0),
        (9, 2, 0, None, None),
        (9, 2, 2, None, None),
        (9, 2, 2, 1, None),
        (9, 2, -1, 1, 0),
        (9, 2, 1 << 32, 1, 0),
    ]:
        values = (turn_id, parent, depth, jump, jump_depth)
        with pytest.raises(apsw.ConstraintError, match="CHECK constraint failed"):
            raw.execute(
                f"INSERT INTO turns ({COLUMNS}) VALUES (?, ?, ?, ?, ?, 'x', 1, NULL, 0, NULL, 1, 0, 0)",
                values,
            )
    assert before == dump(raw)


# --- parent and expected head ---


def test_an_explicit_parent(thread: Thread, context: Context) -> None:
    """A turn goes after the parent that is given, on whatever branch, and the head moves to it; 0 is the head."""
    grow(context, 3)
    other = thread.contexts.create()
    grow(other, 2)
    assert place_of(context.append(b"a", parent=1)) == (6, 1, 1)
    assert ids(context.last()) == [1, 6]
    assert place_of(context.append(b"b", parent=5)) == (7, 5, 2)
    assert ids(context.last()) == [4, 5, 7]
    assert ids(other.last()) == [4, 5]
    assert context.append(b"c", parent=0).parent_turn_id == 7
    assert context.append(b"d", parent=8).parent_turn_id == 8
    assert [(m.old_turn_id, m.new_turn_id) for m in context.history()][-4:] == [
        (3, 6),
        (6, 7),
        (7, 8),
        (8, 9),
    ]
    empty = thread.contexts.create()
    assert empty.append(b"e", parent=2).depth + 1 == 3
    assert ids(empty.last()) == [1, 2, 10]


def test_an_expected_head(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """Row 22: only who knows the head may append; the refusal names the actual one. 0 expects an empty context."""
    assert context.append(b"x", expected_head=0).turn_id == 1
    assert context.append(b"x", expected_head=1).turn_id == 2
    before = dump(raw)
    for expected in (0, 1, 3, LARGEST_ID):
        with pytest.raises(
            ConflictError, match=f"the head of context 1 is turn 2, not {expected} - "
        ) as caught:
            context.append(b"new", expected_head=expected)
        assert caught.value.actual == 2
    with pytest.raises(ConflictError) as caught:
        thread.contexts.create().append(b"new", expected_head=2)
    assert caught.value.actual == 0
    raw.execute(
        "DELETE FROM contexts WHERE context_id = 2; UPDATE sqlite_sequence SET seq = 1 WHERE name = 'contexts'"
    )
    assert before == dump(raw)


def test_an_expected_head_beside_a_parent(context: Context) -> None:
    """`expected_head` is about the head, also when the turn goes elsewhere."""
    grow(context, 3)
    assert context.append(b"a", parent=1, expected_head=3).parent_turn_id == 1
    with pytest.raises(ConflictError, match="the head of context 1 is turn 4, not 1"):
        context.append(b"b", parent=1, expected_head=1)
    assert ids(context.last()) == [1, 4]


# --- refusals ---

NUMBERS = ("type_version", "encoding", "flags")
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"parent": 99}, UnknownTurnError, "there is no turn 99"),
    ({"parent": -1}, UsageError, "parent must be a whole number"),
    ({"parent": 1 << 63}, UsageError, "parent must be a whole number"),
    ({"parent": "x"}, UsageError, "parent must be a whole number"),
    ({"parent": LARGEST_ID}, UnknownTurnError, f"there is no turn {LARGEST_ID}"),
    ({"expected_head": 1}, ConflictError, "is turn 2, not 1"),
    ({"expected_head": -1}, UsageError, "expected_head must be a whole number"),
    ({"expected_head": 1 << 63}, UsageError, "expected_head must be a whole number"),
    *(({"expected_head": value}, UsageError, "expected_head must be") for value in NO_NUMBERS),
    *(({name: -1}, InputError, f"{name} must be a whole number from 0 to") for name in NUMBERS),
    *(
        ({name: 1 << 32}, InputError, f"{name} must be a whole number from 0 to")
        for name in NUMBERS
    ),
    *(
        ({name: 1 << 64}, InputError, f"{name} must be a whole number from 0 to")
        for name in NUMBERS
    ),
    *(
        ({name: v}, InputError, f"{name} must be a whole")
        for name in NUMBERS
        for v in [None, *NO_NUMBERS]
    ),
    ({"type_id": 7}, InputError, "type_id must be text, not int"),
    ({"type_id": None}, InputError, "type_id must be text, not NoneType"),
    ({"type_id": "a\nb"}, InputError, "type_id holds a control character"),
    ({"type_id": "\ud800"}, InputError, "type_id holds half a character"),
    ({"type_id": "x" * 65537}, InputError, "type_id is too long"),
    (
        {"expect_hash": hash_of(b"other")},
        InputError,
        f"hash is {hash_of(b'new')}, not the {hash_of(b'other')} that",
    ),
    ({"expect_hash": "x"}, InputError, "'x' names no blob"),
    ({"expect_hash": hash_of(b"new").upper()}, InputError, "names no blob"),
    ({"expect_size": 4}, InputError, "the payload has 3 bytes, not the 4 that were declared"),
    ({"expect_size": 2}, InputError, "the payload has 3 bytes, not the 2 that were declared"),
    ({"refs": [MISSING]}, UnknownBlobError, f"missing blob {MISSING}"),
    (
        {"refs": [MISSING], "source": "self", "key": "k"},
        UnknownBlobError,
        f"missing blob {MISSING}",
    ),
    ({"refs": ["artifact://1"]}, InputError, "names no blob"),
    ({"refs": MISSING}, InputError, "refs are several names"),
    ({"key": ""}, InputError, "key is empty"),
    ({"key": "a\tb"}, InputError, "key holds a control character"),
    ({"key": 7}, InputError, "key must be text"),
    ({"key": "x" * 65537}, InputError, "key is too long"),
    ({"canonical": "eventq-json-9"}, UsageError, "there is no rule 'eventq-json-9'"),
    ({"canonical": 7}, UsageError, "there is no rule"),
    ({"source": ""}, InputError, "source is empty"),
    ({"source": "a\nb", "key": "k"}, InputError, "source holds a control character"),
]


@pytest.mark.parametrize(("words", "error", "text"), REFUSED)
@pytest.mark.parametrize("door", ["bytes", "file", "inside"])
def test_a_refused_append_changes_nothing(
    thread: Thread, context: Context, raw: apsw.Connection, words: dict[str, Any], error: type[Exception], text: str,
    door: str,
) -> None:  # fmt: skip
    """§1: whatever is wrong with an append, no table changes; inside `write` too, what else is in it stays. Row 8."""
    grow(context, 2)
    before = dump(raw)
    with pytest.raises(error) as caught:
        if door == "inside":
            with thread.write():
                append(context, b"new", **words)
        else:
            append(context, b"new" if door == "bytes" else io.BytesIO(b"new"), **words)
    assert text in str(caught.value)
    assert error is type(caught.value)
    assert before == dump(raw)


@pytest.mark.parametrize("value", [True, 1.0, False, 0.0, "", b""])
def test_a_parent_is_a_number(context: Context, raw: apsw.Connection, value: Any) -> None:
    """A parent that is no whole number is refused, also where Python says that it equals the head."""
    grow(context, 1)
    before = dump(raw)
    with pytest.raises(UsageError, match="parent must be a whole number"):
        context.append(b"new", parent=value)
    assert before == dump(raw)


@pytest.mark.parametrize(
    "payload", [None, 7, 1.5, ["x"], {"a": 1}, "\ud800", "ok\udfff", io.StringIO("text")]
)
def test_payloads_that_are_refused(context: Context, raw: apsw.Connection, payload: Any) -> None:
    """What is neither bytes nor text nor a binary file is refused, half characters too."""
    before = dump(raw)
    with pytest.raises(InputError):
        context.append(payload)
    assert before == dump(raw)


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, b"{", b"\xff", {"a": object()}, "\ud800"])
def test_values_that_are_refused(context: Context, raw: apsw.Connection, value: Any) -> None:
    """What a rule cannot say is refused by it, and nothing is stored."""
    before = dump(raw)
    with pytest.raises(InputError):
        context.append(NewTurn(value, canonical="eventq-json-1"))
    assert before == dump(raw)


def test_declared_hash_and_size(context: Context) -> None:
    """What is declared rightly is accepted: as a ref, as digits and as bytes, for bytes and for files."""
    for name in (hash_of(b"x"), "blob:blake3:" + hash_of(b"x"), blake3(b"x").digest()):
        assert context.append(NewTurn(b"x", expect_hash=name, expect_size=1)).size == 1
        assert context.append(NewTurn(io.BytesIO(b"x"), expect_hash=name, expect_size=1)).size == 1


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    "words", [{"parent": 99}, {"expected_head": 7}, {"refs": [MISSING]}, {"expect_size": 1}]
)
def test_a_refused_append_of_megabytes(
    thread: Thread, context: Context, raw: apsw.Connection, words: dict[str, Any], as_file: bool
) -> None:
    """Of a refused payload of megabytes nothing is to be seen, and what waits in parts a collection takes."""
    grow(context, 1)
    before = dump(raw)
    data = os.urandom(3 << 20)
    with pytest.raises((UsageError, LogicError)):
        append(context, io.BytesIO(data) if as_file else data, **words)
    assert thread.blobs.get(hash_of(data)) is None
    thread.gc(apply=True, grace=0)
    assert before == dump(raw)


def test_an_unknown_context(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """A context that is deleted meanwhile refuses all: appends, moves, reads; its turns are still there."""
    grow(context, 2)
    thread.contexts.delete("main")
    before = dump(raw)
    calls: list[Callable[[], object]] = [
        lambda: context.append(b"new"),
        lambda: context.append(b"new", parent=1, key="k", source="self"),
        lambda: context.move(1),
        lambda: context.patch(1, b"new"),
        lambda: context.tombstone(1),
        context.fork,
        context.open_turn,
        context.delete,
        context.last,
        lambda: context.before(1),
        lambda: context.range(0),
        context.replay,
        lambda: context.at(1),
        lambda: context.has(1),
        lambda: context.ancestor(0),
        context.head_id,
        context.info,
    ]
    for call in calls:
        with pytest.raises(UnknownContextError, match="there is no context '1'"):
            call()
    assert before == dump(raw)
    assert ids(thread.contexts.at(2).last()) == [1, 2]


def test_the_greatest_depth(path: str, raw: apsw.Connection) -> None:
    """After a turn at depth 2^32-1 no other can come; it is refused with a sentence and nothing changes."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        context.append(b"x")
        for number, depth in ((2, U32 - 1), (3, U32)):
            raw.execute(
                f"INSERT INTO turns ({COLUMNS}) VALUES (?, 1, ?, 1, 0, 'x', 1, NULL, 0, NULL, 1, 0, 0)",
                (number, depth),
            )
        assert context.append(b"the last", parent=2).depth == U32
        before = dump(raw)
        for parent in (None, 3):
            with pytest.raises(
                LogicError, match=r"is at the greatest depth there is, 4294967295 - fork"
            ):
                context.append(b"new", parent=parent)
        assert before == dump(raw)
        assert context.append(b"new", parent=1).depth == 1


def test_the_last_turn_id(path: str, raw: apsw.Connection) -> None:
    """When all ids are given, an append says so, and not that the disk is full; nothing changes."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        context.append(b"x")
        raw.execute(f"UPDATE sqlite_sequence SET seq = {LARGEST_ID - 1} WHERE name = 'turns'")
        assert context.append(b"the last").turn_id == LARGEST_ID
        assert ids(context.last()) == [1, LARGEST_ID]
        before = dump(raw)
        with pytest.raises(LogicError) as caught:
            context.append(b"new", key="k", source="self")
        assert caught.value.what == "the store has given the last id that there is in turns, 2^63-1"
        assert LogicError is type(caught.value)
        assert before == dump(raw)


@pytest.mark.parametrize("table", ["turn_patches", "contexts", "open_turns"])
def test_the_last_id_of_others(path: str, raw: apsw.Connection, table: str) -> None:
    """When all seqs, context ids or open ids are given, that is said, and not that the disk is full."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        grow(context, 1)
        context.tombstone(1)
        context.open_turn()
        raw.execute(f"UPDATE sqlite_sequence SET seq = {LARGEST_ID} WHERE name = '{table}'")
        calls: dict[str, Callable[[], object]] = {
            "turn_patches": lambda: context.patch(1, b"x"),
            "contexts": context.fork,
            "open_turns": context.open_turn,
        }
        with pytest.raises(LogicError, match="has given the last id") as caught:
            calls[table]()
        assert type(caught.value) is LogicError


# --- keys ---


def test_the_same_key_is_the_same_turn(
    thread: Thread, context: Context, raw: apsw.Connection
) -> None:
    """§1: same key, same bytes: the first turn again; nothing is stored and the head stays where it is."""
    first = context.append(NewTurn(b"one", type_id="t", flags=3), key="k")
    grow(context, 2)
    before = dump(raw)
    assert first == context.append(NewTurn(b"one", type_id="t", flags=3), key="k")
    assert first == context.append(NewTurn("one", type_id="t", flags=3), key="k", expected_head=999)
    assert first == context.append(
        NewTurn(io.BytesIO(b"one"), type_id="t", flags=3), key="k", parent=2, source="self"
    )
    with thread.write():
        assert first == context.append(NewTurn(b"one", type_id="t", flags=3), key="k")
    assert before == dump(raw)
    assert context.append(NewTurn(b"one", type_id="t", flags=3)).turn_id == 4
    assert context.append(NewTurn(b"one", type_id="t", flags=3), key="K").turn_id == 5


@pytest.mark.parametrize(
    "words", [{"type_id": "u"}, {"type_version": 2}, {"encoding": 1}, {"flags": 1}]
)
def test_a_key_for_another_turn(
    context: Context, raw: apsw.Connection, words: dict[str, Any]
) -> None:
    """Same key, other bytes or another type: refused, with the first turn's id."""
    grow(context, 1)
    context.append(b"one", key="k")
    before = dump(raw)
    for payload, more in ((b"two", {}), (b"one", words), (b"", {})):
        with pytest.raises(
            ConflictError, match="key 'k' was used for another payload: turn 2 - use a new key"
        ) as got:
            append(context, payload, key="k", **more)
        assert got.value.actual == 2
    assert before == dump(raw)


def test_a_key_does_not_mix_its_parts(context: Context) -> None:
    """Two appends whose fields look alike when they are strung together are two."""
    context.append(NewTurn(b"x", type_version=1, encoding=23), key="k")
    with pytest.raises(ConflictError):
        context.append(NewTurn(b"x", type_version=12, encoding=3), key="k")


def test_keys_are_per_context(thread: Thread, context: Context) -> None:
    """The same key in another context, a fork too, is another key."""
    context.append(b"one", key="k")
    assert context.fork().append(b"one", key="k").turn_id == 2
    assert thread.contexts.create().append(b"two", key="k").turn_id == 3


def test_a_key_is_honoured_for_24_hours(context: Context, clock: Clock) -> None:
    """A key gives the first turn for 24 hours, to the millisecond; then it is new."""
    clock.at = 1773829800.0
    context.append(b"one", key="k")
    clock.move(DAY)
    assert context.append(b"one", key="k").turn_id == 1
    with pytest.raises(ConflictError):
        context.append(b"two", key="k")
    clock.move(0.0015)
    assert context.append(b"two", key="k").turn_id == 2
    with pytest.raises(ConflictError, match="turn 2"):
        context.append(b"one", key="k")
    clock.move(DAY)
    assert context.append(b"two", key="k").turn_id == 2


def test_expired_keys_are_forgotten(context: Context, clock: Clock, raw: apsw.Connection) -> None:
    """The table of keys holds what was used in the last day: each append forgets expired ones, none that lives."""
    for number in range(100):
        context.append(b"x", key=f"old {number}")
    clock.move(DAY + 1)
    for number in range(30):
        context.append(b"x", key=f"new {number}")
    assert raw.execute("SELECT count(*) FROM turn_keys").fetchall() == [(100 - 60 + 30,)]
    for number in range(30, 60):
        context.append(b"x", key=f"new {number}")
    assert raw.execute("SELECT count(*) FROM turn_keys WHERE key LIKE 'new %'").fetchall() == [
        (60,)
    ]
    assert raw.execute("SELECT count(*) FROM turn_keys").fetchall() == [(60,)]
    assert context.append(b"x", key="new 0").turn_id == 101


def test_a_key_gives_the_turn_as_it_was(context: Context) -> None:
    """The first turn is given as it was appended, whatever was laid over it since."""
    first = context.append(b"one", key="k")
    context.patch(1, b"patched")
    assert first == context.append(b"one", key="k")
    context.tombstone(1)
    assert first == context.append(b"one", key="k")
    with pytest.raises(ConflictError):
        context.append(b"patched", key="k")


def test_a_key_is_free_when_its_append_failed(thread: Thread, context: Context) -> None:
    """An append that is rolled back or refused leaves its key unused."""
    with pytest.raises(ZeroDivisionError), thread.write():
        context.append(b"gone", key="k")
        raise ZeroDivisionError
    with pytest.raises(ConflictError):
        context.append(b"refused", key="k", expected_head=9)
    assert context.append(b"kept", key="k").turn_id == 1


# --- events of turns ---


def test_emit(thread: Thread, context: Context) -> None:
    """Rows 108, 109: an event tells of the turn; a consumer's filter picks it; without `emit` there is none."""
    thread.subscribe("w", "true", filter="subtype = 'turn'")
    thread.push("self", "record", "something else", "note")
    context.append(b"silent")
    turn = context.append(
        NewTurn("zwölf", type_id="tüp", type_version=2, encoding=3), source="self"
    )
    (event,) = thread.pop("w", 0)
    assert (event.id, event.source, event.type, event.subtype) == (2, "self", "record", "turn")
    assert {
        "context_id": 1,
        "turn_id": 2,
        "parent_turn_id": 1,
        "depth": 1,
        "type_id": "tüp",
        "type_version": 2,
        "encoding": 3,
        "size": 6,
        "payload": turn.ref,
    } == json.loads(event.content)
    assert [f"turn {turn.turn_id}", f"event {event.id}"] == thread.blobs.holders(turn.ref)
    source = "external:a:b:c:d:e"
    context.append(b"x", key="k", source=source)
    context.append(b"x", key="k", source=source)
    assert [(3, source)] == [(event.id, event.source) for event in thread.pop("w", 2)]


@pytest.mark.parametrize(
    "table", ["turns", "context_log", "contexts", "blobs", "blob_bytes", "turn_keys", "events"]
)
def test_an_append_is_atomic(
    thread: Thread, context: Context, raw: apsw.Connection, table: str
) -> None:
    """Row 108, §1: blob, turn, head, its log, key and event: when one of them fails, none is there."""
    grow(context, 2)
    before = dump(raw)
    what = "UPDATE" if table == "contexts" else "INSERT"
    raw.execute(
        f"CREATE TRIGGER broken AFTER {what} ON {table} BEGIN SELECT RAISE(ABORT, 'broken'); END"
    )
    with pytest.raises(StoreError, match="broken"):
        context.append(b"new", key="k", source="self")
    with thread.write(), pytest.raises(StoreError, match="broken"):
        context.append(b"new", key="k", source="self")
    raw.execute("DROP TRIGGER broken")
    assert before == dump(raw)
    assert context.append(b"new", key="k", source="self").turn_id == 3


# --- inside `write` ---


def test_appends_inside_write_commit_together(
    thread: Thread, context: Context, raw: apsw.Connection
) -> None:
    """Rows 22, 108: turns, head moves, forks, overlays and events of one `write` are seen together or not at all."""
    grow(context, 1)
    before = dump(raw)

    def change() -> None:
        thread.push("self", "note", "x")
        context.append(b"two", source="self")
        fork = context.fork(at=1, name="fork")
        fork.append(b"three")
        context.patch(1, b"patched")
        context.move(1, expected_head=2)
        assert before == dump(raw)  # another connection sees none of it

    with pytest.raises(ZeroDivisionError), thread.write():
        change()
        raise ZeroDivisionError
    assert before == dump(raw)
    assert context.head_id() == 1
    with thread.write():
        change()
    assert (context.head_id(), thread.contexts.head("fork"), thread.last_id()) == (1, 3, 2)
    assert said(thread.contexts.get("fork").last()) == [b"patched", b"three"]


def test_nested_writes(thread: Thread, context: Context) -> None:
    """An inner `write` that fails undoes what is its own; an outer one undoes the inner too."""
    with thread.write():
        context.append(b"outer")
        with pytest.raises(ZeroDivisionError), thread.write():
            context.append(b"inner", key="k", source="self")
            raise ZeroDivisionError
        assert context.head_id() == 1
        with thread.write():
            context.append(b"second", key="k")
    assert said(context.last()) == [b"outer", b"second"]
    assert thread.last_id() == 0
    with pytest.raises(ZeroDivisionError), thread.write():
        with thread.write():
            context.append(b"undone")
        raise ZeroDivisionError
    assert said(context.last()) == [b"outer", b"second"]


# --- reading ---


class Tree:
    """A trunk of 20 turns, a branch at depth 5, one off that, and one at the end of the trunk; and another root."""

    def __init__(self, thread: Thread) -> None:
        contexts = thread.contexts
        trunk = contexts.create("trunk")
        first = grow(trunk, 20)
        twig = trunk.fork(at=first[5], name="twig")
        second = grow(twig, 9)
        leaf = twig.fork(at=second[3], name="leaf")
        third = grow(leaf, 4)
        top = trunk.fork(name="top")
        fourth = grow(top, 3)
        alien = contexts.create("alien")
        fifth = grow(alien, 7)
        self.empty = contexts.create("empty")
        self.chains: dict[str, tuple[Context, list[int]]] = {
            "trunk": (trunk, first),
            "twig": (twig, first[:6] + second),
            "leaf": (leaf, first[:6] + second[:4] + third),
            "top": (top, first + fourth),
            "alien": (alien, fifth),
            "empty": (self.empty, []),
        }
        self.all = {*first, *second, *third, *fourth, *fifth}

    def __iter__(self) -> Iterator[tuple[Context, list[int]]]:
        """Give each context and the ids of its chain."""
        return iter(self.chains.values())


@pytest.fixture
def tree(thread: Thread) -> Tree:
    """Give branches with known chains."""
    with thread.write():
        return Tree(thread)


def test_last_is_chronological(tree: Tree) -> None:
    """Row 30: `last` gives the newest turns, oldest first, and a cursor exactly while there are more above."""
    for context, chain in tree:
        for limit in (*range(1, len(chain) + 2), 1 << 40, LARGEST_ID):
            page = context.last(limit)
            assert chain[-limit:] == ids(page)
            assert page.next_cursor == (chain[-limit] if limit < len(chain) else None)
            assert len(chain[-limit:]) == len(page)


def test_pages_upwards_concatenate(tree: Tree) -> None:
    """Row 31: whatever the size of the pages, `last` and `before` give each turn of the chain once, on forks too."""
    for context, chain in tree:
        for size in range(1, len(chain) + 3):
            page = context.last(size)
            found = ids(page)
            pages = 1
            while page.next_cursor is not None:
                page = context.before(page.next_cursor, size)
                found = ids(page) + found
                pages += 1
            assert chain == found
            assert max(1, -(-len(chain) // size)) == pages


def test_before_each_turn(tree: Tree) -> None:
    """Row 31: before a turn of the chain come those above it; the root has none."""
    for context, chain in tree:
        for at, turn_id in enumerate(chain):
            assert chain[max(0, at - 4) : at] == ids(context.before(turn_id, 4))
            assert chain[:at] == ids(context.before(turn_id, LARGEST_ID))


def test_a_cursor_of_another_branch(tree: Tree) -> None:
    """Row 31: a cursor that is not on the chain is refused, with the head; one that is nowhere too."""
    for context, chain in tree:
        head = chain[-1] if chain else 0
        for turn_id in sorted(tree.all.difference(chain)):
            with pytest.raises(ConflictError) as caught:
                context.before(turn_id)
            assert (
                f"turn {turn_id} is not on the chain that ends at turn {head}" == caught.value.what
            )
            assert head == caught.value.actual
            assert not context.has(turn_id)
            with pytest.raises(ConflictError, match="is not on the chain"):
                context.at(turn_id)
        for unknown in (0, 999, LARGEST_ID):
            for call in (context.before, context.has, context.at):
                with pytest.raises(UnknownTurnError, match=f"there is no turn {unknown}"):
                    call(unknown)


def test_windows_by_depth(tree: Tree) -> None:
    """Row 33: `range` is a slice of the chain, whatever its start and length; its cursor is the next depth."""
    for context, chain in tree:
        for start in range(len(chain) + 3):
            for limit in (1, 2, 3, 7, 64, LARGEST_ID):
                page = context.range(start, limit)
                assert chain[start : start + limit] == ids(page)
                assert page.next_cursor == (start + limit if start + limit < len(chain) else None)
        for size in range(1, len(chain) + 2):
            found: list[int] = []
            cursor: int | None = 0
            while cursor is not None:
                page = context.range(cursor, size)
                found += ids(page)
                cursor = page.next_cursor
            assert chain == found
        assert (ids(context.range(LARGEST_ID, LARGEST_ID)), context.range(1 << 40).next_cursor) == (
            [],
            None,
        )


def test_replay_and_at(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """`replay` gives the chain from the root or a depth on and knows its length; `at` gives it up to a turn."""
    for page_turns in (1, 3, 256):
        monkeypatch.setattr(turns_module, "PAGE_TURNS", page_turns)
        for context, chain in tree:
            for start in (0, 1, 5, len(chain), 99, LARGEST_ID):
                replay = context.replay(start_depth=start)
                assert chain[start:] == ids(replay)
                assert chain[start:] == ids(replay)  # a second time
                assert len(chain[start:]) == len(replay)
    for context, chain in tree:
        for at, turn_id in enumerate(chain):
            view = context.at(turn_id)
            assert (turn_id, chain[: at + 1]) == (view.head_id(), ids(view.last(1000)))
            assert chain[: at + 1] == ids(view.replay())


def test_a_view_stands_still(tree: Tree, thread: Thread) -> None:
    """What `at` and `replay` gave does not move with the head; the context itself does."""
    context, chain = tree.chains["trunk"]
    view, replay = context.at(chain[-1]), context.replay()
    context.append(b"more")
    context.move(chain[2])
    assert (chain, chain) == (ids(view.replay()), ids(replay))
    assert chain[:3] == ids(context.last())
    assert chain == ids(thread.contexts.at(chain[-1]).last())


def test_ancestors(tree: Tree) -> None:
    """Row 32: `ancestor` gives the turn of the chain at a depth, 0 beyond its end; `has` knows what is on it."""
    for context, chain in tree:
        assert [*chain, 0, 0] == [context.ancestor(depth) for depth in range(len(chain) + 2)]
        assert context.ancestor(LARGEST_ID) == 0
        assert {turn: turn in chain for turn in tree.all} == {
            turn: context.has(turn) for turn in tree.all
        }


def test_common_ancestors_and_diffs(tree: Tree) -> None:
    """`diff` gives the last turn that two chains share and what each has after it: all shapes, both ways."""
    for one, mine in tree:
        for other, theirs in tree:
            shared = [a for a, b in zip(mine, theirs, strict=False) if a == b]
            ancestor = shared[-1] if shared else 0
            assert ancestor == one.common_ancestor(other)
            diff = one.diff(other)
            assert (ancestor, mine[len(shared) :], theirs[len(shared) :]) == (
                diff.ancestor,
                ids(diff.mine),
                ids(diff.theirs),
            )
            assert (len(mine) - len(shared), len(theirs) - len(shared)) == (
                len(diff.mine),
                len(diff.theirs),
            )
    (trunk, chain), (_, leaf) = tree.chains["trunk"], tree.chains["leaf"]
    assert chain[5] == trunk.at(chain[9]).common_ancestor(tree.chains["leaf"][0].at(leaf[8]))


def test_children(tree: Tree, thread: Thread) -> None:
    """The children of a turn are those of all contexts."""
    trunk, twig, top = (tree.chains[name][1] for name in ("trunk", "twig", "top"))
    children = thread.contexts.children
    assert [trunk[6], twig[6]] == children(trunk[5])
    assert [trunk[6]] == children(trunk[5], 1)
    assert [top[20]] == children(trunk[-1])
    assert children(top[-1]) == []


@pytest.mark.parametrize("value", [0, -1, 1 << 63, None, *NO_NUMBERS])
def test_limits_that_are_refused(context: Context, value: Any) -> None:
    """A limit is 1 or more."""
    grow(context, 2)
    for call in (context.last, lambda n: context.before(2, n), lambda n: context.range(0, n)):
        with pytest.raises(UsageError, match="limit must be a whole number from 1 to"):
            call(value)


@pytest.mark.parametrize("value", [-1, 1 << 63, *NO_NUMBERS])
def test_numbers_that_are_refused(thread: Thread, context: Context, value: Any) -> None:
    """Ids, depths and seqs are whole numbers from 0 to 2^63-1, and nothing that Python takes for one."""
    grow(context, 2)
    calls: list[Callable[[Any], object]] = [
        context.before,
        context.has,
        context.at,
        context.range,
        context.ancestor,
        lambda n: context.replay(start_depth=n),
        lambda n: list(context.replay(as_of=n)),
        lambda n: context.last(as_of=n),
        lambda n: context.before(2, as_of=n),
        lambda n: context.range(0, as_of=n),
        context.move,
        lambda n: context.move(1, expected_head=n),
        lambda n: context.patch(n, b"x"),
        context.tombstone,
        thread.contexts.turn,
        lambda n: thread.contexts.turn(1, as_of=n),
        thread.contexts.at,
        thread.contexts.children,
        lambda n: thread.contexts.patch(n, b"x"),
        thread.contexts.tombstone,
        lambda n: thread.contexts.create(base=n),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="must be a whole number from 0 to"):
            call(value)


def test_payloads_are_left_out_on_request(tree: Tree, thread: Thread) -> None:
    """With `payload=False` everything but the payload is given, in every way of reading."""
    context, chain = tree.chains["twig"]
    context.patch(chain[2], b"patched")
    context.tombstone(chain[3])

    def readings(payload: bool) -> list[list[Turn]]:
        diff = context.diff(tree.empty, payload=payload)
        return [
            list(found)
            for found in (
                context.last(payload=payload),
                context.before(chain[9], payload=payload),
                context.range(1, 7, payload=payload),
                context.replay(payload=payload),
                diff.mine,
                [thread.contexts.turn(turn_id, payload=payload) for turn_id in chain],
            )
        ]

    for full, bare in zip(readings(True), readings(False), strict=True):
        assert [None] * len(full) == said(bare)
        assert [(t.turn_id, t.hash, t.size, t.patch, t.tombstone) for t in full] == [
            (t.turn_id, t.hash, t.size, t.patch, t.tombstone) for t in bare
        ]
        assert all((turn.payload is None) == turn.tombstone for turn in full)
        assert [t.hash for t in full if not t.tombstone] == [
            hash_of(t.payload or b"") for t in full if not t.tombstone
        ]


def test_large_payloads(thread: Thread, context: Context) -> None:
    """Turns of 200 KB, with much in common, come back whole through every way of reading."""
    base = os.urandom(200_000)
    texts = [
        json.dumps({"n": n, "doc": base[: 60_000 - n].hex(), "tail": n * 7}).encode()
        for n in range(30)
    ]
    texts += [os.urandom(200_000) for _ in range(5)]
    with thread.write():
        for text in texts:
            context.append(text)
    assert texts == said(context.last())
    assert texts == said(context.replay())
    assert texts[10:13] == said(context.range(10, 3))


def test_a_replay_is_held_in_bounded_memory(thread: Thread, context: Context) -> None:
    """A replay of 48 MiB holds few of them at once."""
    with thread.write():
        for _ in range(96):
            context.append(os.urandom(512 << 10))
    count = 0
    tracemalloc.start()
    try:
        for turn in context.replay():
            count += turn.size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 48 << 20
    assert peak < 24 << 20


# --- overlays ---


def test_overlays_as_of_each_seq(context: Context, raw: apsw.Connection) -> None:
    """Row 37: each seq shows what was laid over a turn until then, 0 what was appended, None what is newest."""
    grow(context, 1)
    context.append(b"0")
    context.append(b"after")
    seqs = [
        context.patch(2, b"1"),
        context.patch(2, "zwölf"),
        context.tombstone(2),
        context.patch(3, b"another turn"),
        context.patch(2, NewTurn({"a": 1}, canonical="eventq-json-1")),
        context.tombstone(2),
        context.tombstone(2),
        context.patch(2, b""),
    ]
    assert seqs == [1, 2, 3, 4, 5, 6, 7, 8]
    shown = [b"0", b"1", "zwölf".encode(), None, None, b'{"a":1}', None, None, b""]
    patches = [0, 1, 2, 3, 3, 5, 6, 7, 8]
    for seq, (payload, patch) in enumerate(zip(shown, patches, strict=True)):
        for turn in (
            context.last(2, as_of=seq).turns[0],
            [*context.replay(as_of=seq)][1],
            *context.range(1, 1, as_of=seq),
        ):
            name = "" if payload is None else hash_of(payload)
            assert (2, payload, patch, payload is None, name, len(payload or b"")) == (
                turn.turn_id, turn.payload, turn.patch, turn.tombstone, turn.hash, turn.size,
            )  # fmt: skip
    newest = [
        context.last(),
        context.last(as_of=8),
        context.last(as_of=LARGEST_ID),
        context.before(3, as_of=None),
    ]
    assert [page.turns[1].payload for page in newest] == [b""] * 4
    assert [context.turns.turn(2, as_of=0).payload] == [b"0"]
    assert raw.execute("SELECT count(*), count(blob_id) + 1 FROM turn_patches").fetchall() == [
        (8, 6)
    ]


def test_overlays_show_on_every_branch(thread: Thread, context: Context) -> None:
    """An overlay is of the turn: forks that share it, made before or after, show it; other turns do not."""
    grow(context, 3)
    early = context.fork()
    context.patch(2, b"patched")
    late = context.fork()
    assert [said(c.last()) for c in (context, early, late)] == [[b"1: 0", b"patched", b"1: 2"]] * 3
    early.append(b"on the fork")
    assert early.tombstone(2) == 2
    assert said(context.last()) == [b"1: 0", None, b"1: 2"]
    assert said(context.last(as_of=1)) == [b"1: 0", b"patched", b"1: 2"]


def test_only_turns_of_the_chain_are_patched(
    thread: Thread, context: Context, raw: apsw.Connection
) -> None:
    """`Context.patch` refuses a turn that is not on its chain; `Contexts.patch` takes any turn there is."""
    grow(context, 3)
    fork = context.fork(at=2)
    before = dump(raw)
    calls: list[Callable[[], object]] = [lambda: fork.patch(3, b"new"), lambda: fork.tombstone(3)]
    for call in calls:
        with pytest.raises(ConflictError, match="turn 3 is not on the chain that ends at turn 2"):
            call()
    calls = [
        lambda: fork.patch(99, b"new"),
        lambda: fork.tombstone(99),
        lambda: thread.contexts.patch(99, b"new"),
        lambda: thread.contexts.tombstone(99),
    ]
    for call in calls:
        with pytest.raises(UnknownTurnError):
            call()
    assert before == dump(raw)
    assert [thread.contexts.patch(3, b"new"), thread.contexts.tombstone(2)] == [1, 2]
    assert said(context.last()) == [b"1: 0", None, b"new"]


@pytest.mark.parametrize(
    ("payload", "words", "error"),
    [
        (7, {}, InputError),
        ("\ud800", {}, InputError),
        (b"new", {"refs": [MISSING]}, UnknownBlobError),
        (b"new", {"canonical": "none"}, UsageError),
        (b"new", {"flags": -1}, InputError),
        (b"new", {"expect_size": 2}, InputError),
        (b"new", {"expect_hash": hash_of(b"old")}, InputError),
    ],
)
def test_a_refused_patch_changes_nothing(
    thread: Thread,
    context: Context,
    raw: apsw.Connection,
    payload: Any,
    words: dict[str, Any],
    error: type[Exception],
) -> None:
    """An overlay that cannot be is refused, and no table changes."""
    grow(context, 1)
    before = dump(raw)
    with pytest.raises(error):
        thread.contexts.patch(1, NewTurn(payload, **words))
    with pytest.raises(InputError):
        thread.contexts.tombstone(1, flags=-1)
    assert before == dump(raw)


def test_overlays_keep_both_payloads(thread: Thread, context: Context, clock: Clock) -> None:
    """Row 37: no collection takes the payload under an overlay, nor one that a newer overlay hides."""
    context.append(NewTurn(b"under", refs=[thread.blobs.put(b"ref of it").ref]))
    context.patch(1, NewTurn(b"over", refs=[thread.blobs.put(b"ref over it").ref]))
    context.tombstone(1)
    clock.move(3 * DAY)
    assert thread.gc(apply=True, grace=0).hashes == ()
    assert [context.last(as_of=seq).turns[0].payload for seq in range(3)] == [
        b"under",
        b"over",
        None,
    ]
    assert [thread.blobs.get(hash_of(b)) for b in (b"ref of it", b"ref over it")] == [
        b"ref of it",
        b"ref over it",
    ]


def test_a_replay_does_not_see_later_overlays(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that is under way shows no overlay that came after it began; the next one does."""
    monkeypatch.setattr(turns_module, "PAGE_TURNS", 2)
    grow(context, 9)
    context.patch(9, b"before")
    replay = iter(context.replay())
    assert next(replay).payload == b"1: 0"
    for turn_id in range(1, 10):
        context.patch(turn_id, b"meanwhile")
    assert [*(f"1: {n}".encode() for n in range(1, 8)), b"before"] == said(replay)
    assert said(context.replay()) == [b"meanwhile"] * 9


def test_overlays_inside_write(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """An overlay of a rolled back `write` is gone."""
    grow(context, 1)
    before = dump(raw)
    with pytest.raises(ZeroDivisionError), thread.write():
        context.patch(1, b"gone")
        context.tombstone(1)
        raise ZeroDivisionError
    assert before == dump(raw)


# --- others ---


def test_a_lost_payload_is_said(path: str, raw: apsw.Connection) -> None:
    """A turn whose payload's row is gone is damage that is named, never a tombstone."""
    with eventq.open(path) as thread:
        context = thread.contexts.create()
        grow(context, 1)
        raw.execute("DELETE FROM blobs")
        with pytest.raises(DamagedError, match=r"turn 1 \(depth 0\) has lost its payload's row"):
            context.last()


def test_reading_only(path: str, raw: apsw.Connection) -> None:
    """A thread that is opened to read gives everything and takes nothing."""
    with eventq.open(path) as thread:
        tree = Tree(thread)
        tree.chains["twig"][0].patch(3, b"patched")
        tree.empty.open_turn().append_delta(b"bit")
        expected = {name: list(context.last()) for name, (context, _) in tree.chains.items()}
    before = dump(raw)
    with eventq.open(path, read_only=True) as thread:
        contexts = thread.contexts
        assert expected == {name: list(contexts.get(name).last()) for name in expected}
        trunk, twig = contexts.get("trunk"), contexts.get("twig")
        assert trunk.ancestor(5) == trunk.common_ancestor(twig)
        assert expected["top"] == list(contexts.get("top").replay())
        (opened,) = contexts.open_turns()
        calls: list[Callable[[], object]] = [
            lambda: trunk.append(b"new"),
            lambda: trunk.append(os.urandom(3 << 20)),
            lambda: trunk.patch(1, b"new"),
            lambda: trunk.tombstone(1),
            lambda: trunk.move(1),
            trunk.fork,
            trunk.delete,
            trunk.open_turn,
            contexts.create,
            lambda: contexts.patch(1, b"new"),
            lambda: contexts.tombstone(1),
            lambda: contexts.open_turn(opened.open_id).append_delta(b"x"),
            lambda: contexts.open_turn(opened.open_id).seal(),
            lambda: contexts.open_turn(opened.open_id).discard(),
            thread.write,
        ]
        for call in calls:
            with pytest.raises(ReadOnlyError):
                call()
        assert b"".join(contexts.open_turn(opened.open_id).read()) == b"bit"
    assert before == dump(raw)
