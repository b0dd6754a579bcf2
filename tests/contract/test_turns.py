"""A turn is stored as it was given, or refused without a trace; chains of turns are read."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq import InputError, LogicError, Turn, UsageError
from eventq.errors import (
    ConflictError,
    ReadOnlyError,
    UnknownBlobError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.memory import turns as turns_module
from eventq.records.turn import NewTurn
from tests.contract.memory import AT, DAY, LARGEST_ID, MISSING, NO_NUMBERS, U32, grow, hash_of, said
from tests.contract.support import append, ids
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq import Context, Thread
    from tests.conftest import Clock
    from tests.contract.memory import Stored

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


def place_of(turn: Turn) -> tuple[int, int, int]:
    """Return id, parent and depth of a turn."""
    return turn.turn_id, turn.parent_turn_id, turn.depth


# --- appending ------------------------------------------------------------------------------------


def test_append_returns_the_turn_as_stored(thread: Thread, context: Context, clock: Clock) -> None:
    """`append` returns all that was given but the payload; reading returns the same with it."""
    first = context.append(b"one")
    assert first == Turn(1, 0, 0, "message", 1, 0, hash_of(b"one"), 3, 0, AT)
    clock.move(60)
    new = NewTurn("zwölf", type_id="tool.call", type_version=U32, encoding=7, flags=U32)
    second = context.append(new._replace(refs=[first.ref]), key="k")
    text, at = "zwölf".encode(), AT + 60_000
    assert second == Turn(2, 1, 1, "tool.call", U32, 7, hash_of(text), 6, U32, at)
    assert second.ref == "blob:blake3:" + hash_of(text)
    value = {"b": 1, "a": [1.5, None]}
    third = context.append(NewTurn(value, canonical="eventq-json-1", type_id="", type_version=0))
    data = b'{"a":[1.5,null],"b":1}'
    assert third == Turn(3, 2, 2, "", 0, 0, hash_of(data), len(data), 0, at, "eventq-json-1")
    bare, payloads = [first, second, third], [b"one", text, data]
    full = [turn._replace(payload=data) for turn, data in zip(bare, payloads, strict=True)]
    assert list(context.last()) == full
    assert [thread.contexts.turn(number) for number in (1, 2, 3)] == full
    assert list(context.last(payload=False)) == bare
    assert thread.blobs.refs(second.ref) == [first.ref]


BIG = bytes(range(256)) * 1000


class Drips(io.BytesIO):
    """A binary file that gives less at once than it is asked for, as a pipe does."""

    def read(self, size: int | None = -1) -> bytes:
        """Return up to 1,000 bytes."""
        return super().read(min(size or 0, 1000))


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
    """Bytes, text, binary files and canonical values come back as exactly their bytes."""
    turn = context.append(NewTurn(payload() if callable(payload) else payload, canonical=canonical))
    assert (turn.hash, turn.size, turn.canonical) == (hash_of(stored), len(stored), canonical)
    assert said(context.last()) == [stored] == [thread.blobs.get(turn.ref)]


# --- parent and expected head ---------------------------------------------------------------------


def test_an_expected_head(thread: Thread, context: Context, stored: Stored) -> None:
    """Only who knows the head may append; the refusal names the actual one. 0 expects none."""
    empty = thread.contexts.create()
    assert [context.append(b"x", expected_head=head).turn_id for head in (0, 1)] == [1, 2]
    before = stored()
    for expected in (0, 1, 3, LARGEST_ID):
        with pytest.raises(ConflictError, match=f"1 is turn 2, not {expected} - ") as caught:
            context.append(b"new", expected_head=expected)
        assert caught.value.actual == 2
    with pytest.raises(ConflictError) as caught:
        empty.append(b"new", expected_head=2)
    assert caught.value.actual == 0
    assert stored() == before
    assert context.append(b"a", parent=1, expected_head=2).parent_turn_id == 1  # about the head
    with pytest.raises(ConflictError, match="the head of context 1 is turn 3, not 1"):
        context.append(b"b", parent=1, expected_head=1)


# --- refusals -------------------------------------------------------------------------------------

NUMBERS = ("type_version", "encoding", "flags")
ODD_NUMBERS: list[Any] = [-1, 1 << 32, 1 << 64, None, *NO_NUMBERS]
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"parent": 99}, UnknownTurnError, "there is no turn 99"),
    ({"parent": LARGEST_ID}, UnknownTurnError, f"there is no turn {LARGEST_ID}"),
    *(
        ({"parent": value}, UsageError, "parent must be a whole number")
        for value in (-1, 1 << 63, "x", True, 1.0, False, 0.0, "", b"")
    ),
    ({"expected_head": 1}, ConflictError, "is turn 2, not 1"),
    *(
        ({"expected_head": value}, UsageError, "expected_head must be a whole number")
        for value in (-1, 1 << 63, *NO_NUMBERS)
    ),
    *(
        ({name: value}, InputError, f"{name} must be a whole number from 0 to")
        for name in NUMBERS
        for value in ODD_NUMBERS
    ),
    ({"type_id": 7}, InputError, "type_id must be text, not int"),
    ({"type_id": None}, InputError, "type_id must be text, not NoneType"),
    ({"type_id": "a\nb"}, InputError, "type_id holds a control character"),
    ({"type_id": "\ud800"}, InputError, "type_id holds "),
    ({"type_id": "x" * 65537}, InputError, "type_id is too long"),
    ({"expect_hash": hash_of(b"other")}, InputError, f"not the {hash_of(b'other')} that"),
    ({"expect_hash": "x"}, InputError, "'x' names no blob"),
    ({"expect_hash": hash_of(b"new").upper()}, InputError, "names no blob"),
    ({"expect_size": 4}, InputError, "has 3 bytes, not the 4 that were declared"),
    ({"expect_size": 2}, InputError, "has 3 bytes, not the 2 that were declared"),
    ({"refs": [MISSING]}, UnknownBlobError, f"missing blob {MISSING}"),
    ({"refs": [MISSING], "source": "self", "key": "k"}, UnknownBlobError, "missing blob"),
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


@pytest.mark.parametrize("door", ["bytes", "file", "inside"])
def test_a_refused_append_changes_nothing(
    thread: Thread, context: Context, stored: Stored, door: str
) -> None:
    """Whatever is wrong with an append, no row changes."""
    grow(context, 2)
    before = stored()
    for words, error, text in REFUSED:
        with pytest.raises(error) as caught:
            if door == "inside":
                with thread.write():
                    append(context, b"new", **words)
            else:
                append(context, b"new" if door == "bytes" else io.BytesIO(b"new"), **words)
        assert text in str(caught.value), words
        assert type(caught.value) is error, words
        assert stored() == before, words


RULE = "eventq-json-1"
NO_PAYLOADS: list[tuple[Any, str | None]] = [
    *((value, None) for value in (None, 7, 1.5, ("x",), {"x"}, "\ud800", "ok\udfff")),
    (io.StringIO("text"), None),
    *((value, RULE) for value in (float("nan"), {1: 2}, b"{", b"\xff", {"a": object()}, "\ud800")),
]


@pytest.mark.parametrize(("payload", "canonical"), NO_PAYLOADS)
def test_payloads_that_are_refused(
    context: Context, stored: Stored, payload: Any, canonical: str | None
) -> None:
    """What is neither bytes nor text nor a binary file, or what a rule cannot say, is refused."""
    before = stored()
    with pytest.raises(InputError):
        context.append(NewTurn(payload, canonical=canonical))
    assert stored() == before


@pytest.mark.parametrize(
    "name", [hash_of(b"x"), "blob:blake3:" + hash_of(b"x"), blake3(b"x").digest()]
)
def test_declared_hash_and_size(context: Context, name: Any) -> None:
    """What is declared rightly is accepted, for bytes and for files."""
    for payload in (b"x", io.BytesIO(b"x")):
        assert context.append(NewTurn(payload, expect_hash=name, expect_size=1)).size == 1


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    "words", [{"parent": 99}, {"expected_head": 7}, {"refs": [MISSING]}, {"expect_size": 1}]
)
def test_a_refused_append_of_megabytes(
    thread: Thread, context: Context, stored: Stored, words: dict[str, Any], as_file: bool
) -> None:
    """A refused payload of megabytes cannot be seen, and a collection takes what waits in parts."""
    grow(context, 1)
    before = stored()
    data = os.urandom(3 << 20)
    with pytest.raises((UsageError, LogicError)):
        append(context, io.BytesIO(data) if as_file else data, **words)
    assert thread.blobs.get(hash_of(data)) is None
    thread.gc(apply=True, grace=0)
    assert stored() == before


def test_an_unknown_context(thread: Thread, context: Context, stored: Stored) -> None:
    """A context that is deleted meanwhile refuses everything; its turns are still there."""
    grow(context, 2)
    thread.contexts.create("another")
    thread.contexts.delete("main")
    before = stored()
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
        lambda: list(context.replay()),
        lambda: context.at(1),
        lambda: context.has(1),
        lambda: context.ancestor(0),
        context.head_id,
        context.info,
    ]
    for call in calls:
        with pytest.raises(UnknownContextError, match="there is no context '1'"):
            call()
    assert stored() == before
    assert ids(thread.contexts.at(2).last()) == [1, 2]


# --- keys -----------------------------------------------------------------------------------------

ONE = NewTurn(b"one", type_id="t", flags=3)


def test_the_same_key_is_the_same_turn(thread: Thread, context: Context, stored: Stored) -> None:
    """The same key and bytes are the first turn again; nothing is stored, and no head moves."""
    first = context.append(ONE, key="k")
    grow(context, 2)
    before = stored()
    assert context.append(ONE, key="k") == first
    assert context.append(ONE._replace(payload="one"), key="k", expected_head=999) == first
    file = ONE._replace(payload=io.BytesIO(b"one"))
    assert context.append(file, key="k", parent=2, source="self") == first
    with thread.write():
        assert context.append(ONE, key="k") == first
    assert stored() == before
    assert (context.append(ONE).turn_id, context.append(ONE, key="K").turn_id) == (4, 5)


@pytest.mark.parametrize(
    "words", [{"type_id": "u"}, {"type_version": 2}, {"encoding": 1}, {"flags": 1}]
)
def test_a_key_for_another_turn(context: Context, stored: Stored, words: dict[str, Any]) -> None:
    """The same key with other bytes or another type is refused, with the first turn's id."""
    grow(context, 1)
    context.append(b"one", key="k")
    before = stored()
    for payload, more in ((b"two", {}), (b"one", words), (b"", {})):
        with pytest.raises(ConflictError, match="key 'k' was used for another payload") as caught:
            append(context, payload, key="k", **more)
        assert caught.value.actual == 2
    assert stored() == before


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
    """A key is the first turn's for 24 hours, to the millisecond; then it is new."""
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


def test_expired_keys_are_forgotten(context: Context, clock: Clock, stored: Stored) -> None:
    """Each append forgets two expired keys, and none that lives."""
    for number in range(100):
        context.append(b"x", key=f"old {number}")
    clock.move(DAY + 1)
    for number in range(30):
        context.append(b"x", key=f"new {number}")
    assert len(stored()["turn_keys"]) == 100 - 60 + 30
    for number in range(30, 60):
        context.append(b"x", key=f"new {number}")
    assert len(stored()["turn_keys"]) == 60
    assert [context.append(b"x", key=f"new {n}").turn_id for n in (0, 59)] == [101, 160]


def test_a_key_gives_the_turn_as_it_was(context: Context) -> None:
    """The first turn is returned as it was appended, whatever was laid over it since."""
    first = context.append(b"one", key="k")
    context.patch(1, b"patched")
    assert context.append(b"one", key="k") == first
    context.tombstone(1)
    assert context.append(b"one", key="k") == first
    with pytest.raises(ConflictError):
        context.append(b"patched", key="k")


def test_a_repeated_append_may_know_more_refs(thread: Thread, context: Context) -> None:
    """What only the repetition names is kept with the first turn as well."""
    one, two = thread.blobs.put(b"one"), thread.blobs.put(b"two")
    first = context.append(NewTurn(b"x", refs=[one.ref]), key="k")
    assert context.append(NewTurn(b"x", refs=[two.ref]), key="k") == first
    assert thread.blobs.refs(first.hash) == sorted([one.ref, two.ref])


def test_a_key_is_free_when_its_append_failed(thread: Thread, context: Context) -> None:
    """An append that is rolled back or refused leaves its key unused."""
    with pytest.raises(ZeroDivisionError), thread.write():
        context.append(b"gone", key="k")
        raise ZeroDivisionError
    with pytest.raises(ConflictError):
        context.append(b"refused", key="k", expected_head=9)
    assert context.append(b"kept", key="k").turn_id == 1


# --- events, and `write` --------------------------------------------------------------------------


def test_an_event_tells_of_a_turn(thread: Thread, context: Context) -> None:
    """With a source an event tells of the turn, once; a consumer's filter picks it."""
    thread.subscribe("w", "true", filter="subtype = 'turn'")
    thread.push("self", "record", "something else", "note")
    context.append(b"silent")
    new = NewTurn("zwölf", type_id="tüp", type_version=2, encoding=3)
    turn = context.append(new, source="self")
    (event,) = thread.pop("w", 0)
    assert (event.id, event.source, event.type, event.subtype) == (2, "self", "record", "turn")
    assert json.loads(event.content) == {
        "context_id": 1, "turn_id": 2, "parent_turn_id": 1, "depth": 1, "type_id": "tüp",
        "type_version": 2, "encoding": 3, "size": 6, "payload": turn.ref,
    }  # fmt: skip
    assert thread.blobs.holders(turn.ref) == [f"turn {turn.turn_id}", f"event {event.id}"]
    source = "external:a:b:c:d:e"
    for _ in range(2):
        context.append(b"x", key="k", source=source)
    assert [(event.id, event.source) for event in thread.pop("w", 2)] == [(3, source)]


def test_appends_inside_write_commit_together(
    thread: Thread, context: Context, stored: Stored
) -> None:
    """Turns, moves, forks, patches and events of one `write` are seen together or not at all."""
    grow(context, 1)
    before = stored()

    def change() -> None:
        thread.push("self", "note", "x")
        assert (
            context.append(b"two", key="k", source="self").turn_id == 2
        )  # ids go on without a gap
        context.fork(at=1, name="fork").append(b"three")
        context.patch(1, b"patched")
        context.tombstone(2)
        context.move(1, expected_head=2)
        assert stored() == before  # another connection sees none of it

    with pytest.raises(ZeroDivisionError), thread.write():
        change()
        raise ZeroDivisionError
    assert stored() == before
    assert context.head_id() == 1
    with pytest.raises(UnknownTurnError):
        thread.contexts.turn(2)
    with thread.write():
        change()
    assert (context.head_id(), thread.contexts.head("fork"), thread.last_id()) == (1, 3, 2)
    assert said(thread.contexts.get("fork").last()) == [b"patched", b"three"]


# --- reading --------------------------------------------------------------------------------------


class Tree:
    """A trunk of 20 turns, a branch at depth 5, one off that, one at its end; and another root."""

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
        """Yield each context and the ids of its chain."""
        return iter(self.chains.values())


@pytest.fixture
def tree(thread: Thread) -> Tree:
    """Return branches with known chains."""
    return Tree(thread)


def test_last_is_chronological(tree: Tree) -> None:
    """`last` returns the newest turns, oldest first, and a cursor while there are more above."""
    for context, chain in tree:
        for limit in (*range(1, len(chain) + 2), 1 << 40, LARGEST_ID):
            page = context.last(limit)
            assert (ids(page), len(page)) == (chain[-limit:], len(chain[-limit:]))
            assert page.next_cursor == (chain[-limit] if limit < len(chain) else None)


def test_a_cursor_of_another_branch(tree: Tree) -> None:
    """A cursor that is not on the chain is refused, with the head; one that is nowhere too."""
    for context, chain in tree:
        head = chain[-1] if chain else 0
        for turn_id in sorted(tree.all.difference(chain)):
            assert not context.has(turn_id)
            for refuse in (context.before, context.at):
                with pytest.raises(ConflictError, match=f"{turn_id} is not on the chain") as caught:
                    refuse(turn_id)
                assert caught.value.actual == head
        for unknown in (0, 999, LARGEST_ID):
            calls: list[Callable[[int], object]] = [context.before, context.has, context.at]
            for call in calls:
                with pytest.raises(UnknownTurnError, match=f"there is no turn {unknown}"):
                    call(unknown)


def test_a_view_stands_still(tree: Tree, thread: Thread) -> None:
    """What `at` and `replay` returned does not move with the head; the context itself does."""
    context, chain = tree.chains["trunk"]
    view, replay = context.at(chain[-1]), context.replay()
    context.append(b"more")
    context.move(chain[2])
    assert ids(view.replay()) == ids(replay) == ids(thread.contexts.at(chain[-1]).last()) == chain
    assert ids(context.last()) == chain[:3]


def test_children(tree: Tree, thread: Thread) -> None:
    """The children of a turn are those of all contexts."""
    trunk, twig, top = (tree.chains[name][1] for name in ("trunk", "twig", "top"))
    children = thread.contexts.children
    assert (children(trunk[5]), children(trunk[5], 1)) == ([trunk[6], twig[6]], [trunk[6]])
    assert (children(trunk[-1]), children(top[-1])) == ([top[20]], [])


@pytest.mark.parametrize("value", [0, -1, 1 << 63, None, *NO_NUMBERS])
def test_limits_that_are_refused(thread: Thread, context: Context, value: Any) -> None:
    """A limit is 1 or more."""
    grow(context, 2)
    calls: list[Callable[[Any], object]] = [
        context.last,
        lambda n: context.before(2, n),
        lambda n: context.range(0, n),
        lambda n: thread.contexts.children(1, n),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="limit must be a whole number from 1 to"):
            call(value)


@pytest.mark.parametrize("value", [-1, 1 << 63, *NO_NUMBERS])
def test_numbers_that_are_refused(thread: Thread, context: Context, value: Any) -> None:
    """Ids, depths and seqs are whole numbers from 0 to 2^63-1, and no bool or float."""
    grow(context, 2)
    contexts = thread.contexts
    calls: list[Callable[[Any], object]] = [
        context.before,
        context.has,
        context.at,
        context.range,
        context.ancestor,
        lambda n: list(context.replay(start_depth=n)),
        lambda n: list(context.replay(as_of=n)),
        lambda n: context.last(as_of=n),
        lambda n: context.before(2, as_of=n),
        lambda n: context.range(0, as_of=n),
        context.move,
        lambda n: context.move(1, expected_head=n),
        lambda n: context.patch(n, b"x"),
        context.tombstone,
        contexts.turn,
        lambda n: contexts.turn(1, as_of=n),
        contexts.at,
        contexts.children,
        lambda n: contexts.patch(n, b"x"),
        contexts.tombstone,
        lambda n: contexts.create(base=n),
        lambda n: list(contexts.list(n)),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="must be a whole number from 0 to"):
            call(value)


def test_payloads_are_left_out_on_request(tree: Tree, thread: Thread) -> None:
    """With `payload=False` everything but the payload is read, in every way of reading."""
    context, chain = tree.chains["twig"]
    context.patch(chain[2], b"patched")
    context.tombstone(chain[3])

    def readings(payload: bool) -> list[list[Turn]]:
        return [
            list(context.last(payload=payload)),
            list(context.before(chain[9], payload=payload)),
            list(context.range(1, 7, payload=payload)),
            list(context.replay(payload=payload)),
            list(context.diff(tree.empty, payload=payload).mine),
            [thread.contexts.turn(turn_id, payload=payload) for turn_id in chain],
        ]

    for full, bare in zip(readings(True), readings(False), strict=True):
        assert bare == [turn._replace(payload=None) for turn in full]
        for turn in full:
            assert turn.tombstone == (turn.payload is None)
            assert turn.tombstone or turn.hash == hash_of(turn.payload or b"")


def test_large_payloads(context: Context) -> None:
    """Turns of 200 KB, with much in common, come back whole through every way of reading."""
    base = os.urandom(60_000)
    texts = [json.dumps({"n": n, "doc": base[n:].hex(), "tail": n * 7}).encode() for n in range(30)]
    texts += [os.urandom(200_000) for _ in range(5)]
    for text in texts:
        context.append(text)
    assert said(context.last()) == said(context.replay()) == texts
    assert said(context.range(10, 3)) == texts[10:13]


def test_a_replay_is_held_in_bounded_memory(thread: Thread, context: Context) -> None:
    """A replay of 48 MiB holds few of them at once."""
    with thread.write():
        for _ in range(96):
            context.append(os.urandom(512 << 10))
    tracemalloc.start()
    try:
        count = sum(turn.size for turn in context.replay())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 48 << 20
    assert peak < 24 << 20


# --- patches --------------------------------------------------------------------------------------


def test_patches_as_of_each_seq(thread: Thread, context: Context) -> None:
    """Each seq shows what was laid over a turn until then, 0 what was appended, None the newest."""
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
        name, size = "" if payload is None else hash_of(payload), len(payload or b"")
        for turn in (
            context.last(2, as_of=seq).turns[0],
            list(context.replay(as_of=seq))[1],
            context.range(1, 1, as_of=seq).turns[0],
            thread.contexts.turn(2, as_of=seq),
        ):
            assert (turn.turn_id, turn.payload, turn.patch) == (2, payload, patch)
            assert (turn.tombstone, turn.hash, turn.size) == (payload is None, name, size)
    newest = (context.last(), context.last(as_of=LARGEST_ID), context.before(3, as_of=None))
    assert [page.turns[1].payload for page in newest] == [b""] * 3


def test_only_turns_of_the_chain_are_patched(
    thread: Thread, context: Context, stored: Stored
) -> None:
    """`Context.patch` takes turns of its chain only; `Contexts.patch` any turn there is."""
    grow(context, 3)
    contexts, fork = thread.contexts, context.fork(at=2)
    before = stored()
    calls: list[Callable[[], object]] = [lambda: fork.patch(3, b"new"), lambda: fork.tombstone(3)]
    for call in calls:
        with pytest.raises(ConflictError, match="turn 3 is not on the chain that ends at turn 2"):
            call()
    for each in (fork, contexts):
        with pytest.raises(UnknownTurnError):
            each.patch(99, b"new")
        with pytest.raises(UnknownTurnError):
            each.tombstone(99)
    assert stored() == before
    assert [contexts.patch(3, b"new"), contexts.tombstone(2)] == [1, 2]
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
    thread: Thread, context: Context, stored: Stored, payload: Any, words: dict[str, Any],
    error: type[Exception],
) -> None:  # fmt: skip
    """A patch that cannot be is refused, and no row changes."""
    grow(context, 1)
    before = stored()
    with pytest.raises(error):
        thread.contexts.patch(1, NewTurn(payload, **words))
    with pytest.raises(InputError):
        thread.contexts.tombstone(1, flags=-1)
    assert stored() == before


def test_a_replay_does_not_see_later_patches(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that is under way shows no patch that came after it began; the next one does."""
    monkeypatch.setattr(turns_module, "PAGE_TURNS", 2)
    grow(context, 9)
    context.patch(9, b"before")
    replay = iter(context.replay())
    assert next(replay).payload == b"1: 0"
    for turn_id in range(1, 10):
        context.patch(turn_id, b"meanwhile")
    assert said(replay) == [*(f"1: {n}".encode() for n in range(1, 8)), b"before"]
    assert said(context.replay()) == [b"meanwhile"] * 9


# --- a reader -------------------------------------------------------------------------------------


def test_reading_only(thread: Thread, stored: Stored) -> None:
    """A thread that is opened to read answers everything and takes nothing."""
    tree = Tree(thread)
    tree.chains["twig"][0].patch(3, b"patched")
    bit = tree.empty.open_turn()
    bit.append_delta(b"bit")
    expected = {name: list(context.last()) for name, (context, _) in tree.chains.items()}
    before = stored()
    with eventq.open(thread.path, read_only=True) as reader:
        contexts = reader.contexts
        assert {name: list(contexts.get(name).last()) for name in expected} == expected
        trunk, twig, opened = contexts.get("trunk"), contexts.get("twig"), contexts.open_turn(1)
        assert trunk.ancestor(5) == trunk.common_ancestor(twig)
        assert list(contexts.get("top").replay()) == expected["top"]
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
            lambda: opened.append_delta(b"x"),
            opened.seal,
            opened.discard,
            reader.write,
        ]
        for call in calls:
            with pytest.raises(ReadOnlyError):
                call()
        assert b"".join(opened.read()) == b"bit"
    assert stored() == before


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"role": "user", "content": "hé"}, '{"content":"hé","role":"user"}'),
        ([1, 2.0, None, {"b": 1, "a": (True,)}], '[1,2.0,null,{"a":[true],"b":1}]'),
        ({}, "{}"),
        ([], "[]"),
    ],
)
def test_a_dict_or_list_is_a_value(context: Context, value: Any, stored: str) -> None:
    """It is stored as canonical JSON, alone and in a NewTurn, in a patch too."""
    first, second = context.append(value), context.append(NewTurn(value, "answer"))
    assert first.hash == second.hash == context.append(NewTurn(stored)).hash
    assert (first.canonical, second.canonical) == ("eventq-json-1", "eventq-json-1")
    context.patch(first.turn_id, [value])
    page = context.last(10)
    assert [turn.payload for turn in page] == [f"[{stored}]".encode(), *[stored.encode()] * 2]


@pytest.mark.parametrize(
    "value", [{1: 2}, [object()], {"a": float("nan")}, {"a": {1, 2}}, ["\ud800"]]
)
def test_a_value_that_is_no_json(context: Context, stored: Stored, value: Any) -> None:
    """A value that JSON cannot say is refused with the path of the fault, and nothing is stored."""
    before = stored()
    with pytest.raises(InputError, match=r" at | the root"):
        context.append(value)
    assert stored() == before
