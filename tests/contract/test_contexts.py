"""Contexts are heads that move, fork and go; open turns lose nothing, whoever writes them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import InputError, Turn, UsageError
from eventq.errors import (
    ConflictError,
    TooLargeError,
    UnknownBlobError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.memory.streams import first_bytes
from eventq.records.turn import ContextInfo, Move, OpenInfo
from eventq.store.turn_rows import Growth, StreamPiece
from tests.contract.memory import AT, DAY, LARGEST_ID, MIB, MISSING, grow, hash_of, said
from tests.contract.support import ids
from tests.crash.support import kill, read_lines, start
from tests.servers import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq import Context, Thread
    from eventq.memory.contexts import OpenTurn
    from tests.conftest import Clock
    from tests.contract.memory import Stored

    Call = Callable[[], object]

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines(*ENGINES)]


def counts(stored: Stored) -> dict[str, int]:
    """Return the number of rows of each table but SQLite's own."""
    return {name: len(rows) for name, rows in stored().items() if not name.startswith("sqlite_")}


def follow(moves: list[Move]) -> bool:
    """Return whether each move begins where the last one ended."""
    return [move.new_turn_id for move in moves[:-1]] == [move.old_turn_id for move in moves[1:]]


# --- create, get, list ----------------------------------------------------------------------------


def test_create(thread: Thread, clock: Clock) -> None:
    """A context is empty or begins at any turn; ids count 1, 2, 3; `info` returns all of it."""
    empty = thread.contexts.create()
    assert (empty.id, empty.head_id()) == (1, 0)
    assert empty.info() == ContextInfo(1, None, 0, 0, 0, None, 0, 0, AT, AT)
    grow(empty, 3)
    clock.move(60)
    named = thread.contexts.create("a name", base=2)
    assert named.info() == ContextInfo(2, "a name", 2, 1, 2, None, 0, 0, AT + 60_000, AT + 60_000)
    assert empty.info() == ContextInfo(1, None, 3, 2, 0, None, 3, 0, AT, AT)
    assert ids(named.last()) == [1, 2]
    with pytest.raises(UnknownTurnError):
        thread.contexts.create("new", base=4)
    assert len(list(thread.contexts)) == 2


@pytest.mark.engines("sqlite", soaked=["postgres"])  # it is looked at before an engine sees it
@pytest.mark.parametrize(
    "name", ["a", "x" * 200, "ein Name ☃", "-5", "1.0", "1a", "²", "１２", " ", "blob:x"]
)
def test_names_that_are_taken(thread: Thread, name: str) -> None:
    """A name is any text up to 200 characters that is no number, and finds its context."""
    assert thread.contexts.create(name).id == thread.contexts.get(name).id == 1
    assert thread.contexts.get(1).info().name == name
    fork = thread.contexts.fork(name, name=name[:199] + "'")
    assert (fork.id, fork.info().name) == (2, name[:199] + "'")


@pytest.mark.engines("sqlite", soaked=["postgres"])  # it is looked at before an engine sees it
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "name is empty"),
        *((name, "is a number, not a name") for name in ("1", "007", "9" * 30)),
        ("x" * 201, "longer than 200 characters"),
        *((name, "control character") for name in ("a\nb", "\0", "\x1b[2J", "\x85")),
        ("\ud800", "name holds "),
        (7, "name must be text, not int"),
        (b"a", "name must be text, not bytes"),
    ],
)
def test_names_that_are_refused(
    thread: Thread, context: Context, stored: Stored, name: Any, text: str
) -> None:
    """Names that could be taken for ids or that cannot be shown are refused; nothing changes."""
    before = stored()
    for call in (thread.contexts.create, lambda name: context.fork(name=name)):
        with pytest.raises(InputError, match=text):
            call(name)
    assert stored() == before


def test_a_name_is_unique(thread: Thread, context: Context, stored: Stored) -> None:
    """A name that is taken is refused with its owner; once that is deleted it is free again."""
    before = stored()
    for call in (thread.contexts.create, lambda name: context.fork(name=name)):
        with pytest.raises(ConflictError, match="'main' is taken by context 1 - ") as caught:
            call("main")
        assert caught.value.actual == 1
    assert stored() == before
    thread.contexts.delete("main")
    assert [thread.contexts.create(name).id for name in ("main", "Main")] == [2, 3]


def test_contexts_are_found(thread: Thread, context: Context) -> None:
    """A context is found by id, by name, and by its id as text; nothing else finds it."""
    thread.contexts.create()
    found = {which: thread.contexts.get(which).id for which in (1, "main", "1", 2, "2", "002")}
    assert found == {1: 1, "main": 1, "1": 1, 2: 2, "2": 2, "002": 2}
    unknown: list[Any] = [0, 3, LARGEST_ID, "3", "Main", "main ", "", "-1", "+1", " 1", "１"]
    for which in [*unknown, "1.0", "9" * 18, "9" * 40, "%"]:
        with pytest.raises(UnknownContextError) as caught:
            thread.contexts.get(which)
        assert caught.value.what == f"there is no context '{which}'"
    odd: list[Any] = [-1, 1 << 63, True, 1.0, b"main", [1]]
    for value in odd:
        with pytest.raises(UsageError, match="context must be a whole number"):
            thread.contexts.get(value)


@pytest.mark.parametrize("which", [1, "main", "1", "handle"])
def test_every_way_of_naming_a_context(thread: Thread, context: Context, which: Any) -> None:
    """Wherever a context is asked for, its id, its name and itself will do."""
    grow(context, 2)
    contexts = thread.contexts
    it = context if which == "handle" else which
    assert contexts.head(it) == 2
    assert contexts.compare_and_set(it, 1, expected_head=2).head_turn_id == 1
    assert contexts.fork(it).head_id() == 1
    assert [move.op for move in contexts.history(it)] == ["create", "append", "append", "move"]
    contexts.delete(it)
    with pytest.raises(UnknownContextError):
        contexts.head(it)


def test_list(thread: Thread) -> None:
    """All contexts are listed by id, over several pages, after an id on request."""
    with thread.write():
        for number in range(1203):
            thread.contexts.create(f"c{number}")
    thread.contexts.delete("c4")
    expected = [number for number in range(1, 1204) if number != 5]
    assert [info.context_id for info in thread.contexts.list()] == expected
    assert [info.context_id for info in thread.contexts] == expected
    assert [info.context_id for info in thread.contexts.list(after=1201)] == [1202, 1203]
    assert list(thread.contexts.list(after=1203)) == []
    assert next(iter(thread.contexts.list(6))) == thread.contexts.get(7).info()
    assert repr(thread.contexts.get(7)) == "<eventq.Context 7>"


# --- fork -----------------------------------------------------------------------------------------


def test_a_fork_is_one_row(context: Context, stored: Stored) -> None:
    """A fork at any turn is one row of contexts: no blob, no turn, no byte is copied."""
    turns = grow(context, 12)
    context.patch(3, b"patched")
    expected = counts(stored)
    for at in (None, *turns):
        fork = context.fork(at=at)
        expected["contexts"] += 1
        assert counts(stored) == expected
        head, info = at or turns[-1], fork.info()
        assert (info.head_turn_id, info.head_depth, info.base_turn_id) == (head, head - 1, head)
        assert (info.fork_of, info.version) == (1, 0)
        assert list(fork.last()) == list(context.at(head).last())
    empty = context.fork(at=0)
    assert (ids(empty.last()), empty.info().fork_of, empty.info().base_turn_id) == ([], 1, 0)


def test_forks_that_are_refused(thread: Thread, context: Context, stored: Stored) -> None:
    """A fork is made at a turn of the chain; another branch's and an unknown one are refused."""
    grow(context, 3)
    fork = context.fork(at=1)
    before = stored()
    cases: list[tuple[Any, type[Exception]]] = [
        *((at, ConflictError) for at in (2, 3)),
        (99, UnknownTurnError),
        *((at, UsageError) for at in (-1, True, False, "1", 1.0, 1 << 63, "")),
    ]
    for at, error in cases:
        with pytest.raises(error):
            fork.fork(at=at, name="new")
        with pytest.raises(error):
            thread.contexts.fork(2, at=at)
    assert stored() == before


def test_lineage_survives_the_parent(thread: Thread, context: Context, clock: Clock) -> None:
    """A fork names its origin and its turn; deleting and collecting the origin do not break it."""
    grow(context, 5)
    fork = context.fork(at=3)
    fork.append(b"mine")
    second = fork.fork()
    context.delete()
    assert (fork.info().fork_of, fork.info().base_turn_id) == (None, 3)
    clock.move(3 * DAY)
    assert thread.gc(apply=True).turns == 2
    assert ids(fork.last()) == ids(second.last()) == [1, 2, 3, 6]
    assert second.info().fork_of == 2
    assert fork.append(b"more").turn_id == 7
    fork.move(0)
    fork.delete()
    assert (second.info().fork_of, second.info().base_turn_id) == (None, 6)


# --- moves ----------------------------------------------------------------------------------------


def test_every_move_is_logged(thread: Thread, clock: Clock) -> None:
    """Create, append, move and delete are in the history, also in that of the deleted context."""
    context = thread.contexts.create("main")
    grow(context, 2)
    clock.move(1)
    context.append(b"x", parent=1)
    context.move(2)
    context.move(0, expected_head=2)
    context.move(0)
    expected = [
        Move(0, "create", 0, 0, AT),
        Move(1, "append", 0, 1, AT),
        Move(2, "append", 1, 2, AT),
        Move(3, "append", 2, 3, AT + 1000),
        Move(4, "move", 3, 2, AT + 1000),
        Move(5, "move", 2, 0, AT + 1000),
        Move(6, "move", 0, 0, AT + 1000),
    ]
    assert (list(context.history()), context.info().version) == (expected, 6)
    fork = thread.contexts.create("begun at 3", base=3)
    assert list(fork.history()) == [Move(0, "create", 0, 3, AT + 1000)]
    context.move(3)
    context.delete()
    gone = [*expected, Move(7, "move", 0, 3, AT + 1000), Move(8, "delete", 3, 0, AT + 1000)]
    assert list(thread.contexts.history(1)) == list(context.history()) == gone
    for unknown in ("main", 0, 99, LARGEST_ID):
        with pytest.raises(UnknownContextError):
            list(thread.contexts.history(unknown))


def test_a_long_history(thread: Thread) -> None:
    """A history of several pages has each move once, in order."""
    with thread.write():
        context = thread.contexts.create()
        grow(context, 3)
        for number in range(1200):
            context.move(number % 4)
    moves = list(thread.contexts.history(1))
    assert [move.version for move in moves] == list(range(1204))
    assert follow(moves)


def test_compare_and_set(thread: Thread, context: Context, stored: Stored) -> None:
    """A head is moved only from where it is expected, to any turn; the refusal names the actual."""
    contexts = thread.contexts
    grow(context, 3)
    grow(contexts.create(), 1)
    info = contexts.compare_and_set(1, 4, expected_head=3)
    assert (info.head_turn_id, info.head_depth, info.version) == (4, 0, 4)
    assert contexts.compare_and_set(context, 0, expected_head=4).head_turn_id == 0
    assert context.move(2, expected_head=0).head_turn_id == 2
    before = stored()
    for expected in (0, 1, 3, 99, LARGEST_ID):
        with pytest.raises(ConflictError, match=f"1 is turn 2, not {expected} - ") as caught:
            contexts.compare_and_set(1, 1, expected_head=expected)
        assert caught.value.actual == 2
    cases: list[tuple[Any, type[Exception]]] = [
        *((to, UnknownTurnError) for to in (99, LARGEST_ID)),
        *((to, UsageError) for to in (-1, True, False, None, "1", 1.0, 1 << 63)),
    ]
    for to, error in cases:
        with pytest.raises(error):
            context.move(to)
        with pytest.raises(error):
            contexts.compare_and_set(1, to, expected_head=2)
    assert stored() == before


def test_delete(thread: Thread, context: Context, stored: Stored) -> None:
    """Deleting takes the row and nothing else; a second time it is unknown; no id comes again."""
    grow(context, 3)
    expected = counts(stored)
    context.delete()
    expected["contexts"] -= 1
    expected["context_log"] += 2  # the end, and the beginning, which the row knew
    assert counts(stored) == expected
    for which in (1, "main", context):
        with pytest.raises(UnknownContextError):
            thread.contexts.delete(which)
    assert ids(thread.contexts.at(3).last()) == [1, 2, 3]
    assert thread.contexts.create("main").id == 2


# --- many processes -------------------------------------------------------------------------------

GATE = """
import sys, eventq
from eventq.errors import ConflictError
me, rounds = int(sys.argv[2]), int(sys.argv[3])
thread = eventq.open(sys.argv[1])
contexts = thread.contexts
say("ready")
sys.stdin.readline()
"""


def together(code: str, path: str, count: int, rounds: int) -> list[list[list[str]]]:
    """Run a program in processes that begin at one moment; return the words of what each said."""
    processes = [
        start(GATE + code, path, str(number), str(rounds), stdin=subprocess.PIPE)
        for number in range(count)
    ]
    for process in processes:
        assert read_lines(process, 1) == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    lines = []
    for process in processes:
        out, complaint = process.communicate(timeout=120)
        assert (complaint, process.returncode) == (b"", 0)
        lines.append([line.split() for line in out.decode().splitlines()])
    return lines


APPEND = """
for n in range(rounds):
    say(f"own {contexts.get(2 + me).append(f'{me} own {n}').turn_id}")
    say(f"any {contexts.get(6).append(f'{me} any {n}').turn_id}")
    while True:
        head = contexts.head(1)
        try:
            turn = contexts.get(1).append(f'{me} one {n}', expected_head=head)
        except ConflictError:
            continue
        assert turn.parent_turn_id == head
        say(f"one {turn.turn_id}")
        break
"""


def test_many_processes_append(thread: Thread, context: Context) -> None:
    """Four processes lose no turn, each in its own context and all in one, tried again or not."""
    rounds, count = 12, 4
    for _ in range(count + 1):
        thread.contexts.create()
    each = together(APPEND, thread.path, count, rounds)
    lines = [(word, int(turn)) for lines in each for word, turn in lines]
    for number in range(count):
        found = list(thread.contexts.get(2 + number).last(10_000))
        assert ids(found) == [int(turn) for word, turn in each[number] if word == "own"]
        assert said(found) == [f"{number} own {n}".encode() for n in range(rounds)]
    for which, kind in ((1, "one"), (6, "any")):
        found = list(thread.contexts.get(which).replay())
        assert sorted(ids(found)) == sorted(turn for word, turn in lines if word == kind)
        assert [turn.depth for turn in found] == list(range(count * rounds))
        expected = {f"{me} {kind} {n}".encode() for me in range(count) for n in range(rounds)}
        assert set(said(found)) == expected
        moves = list(thread.contexts.history(which))[1:]
        assert [move.new_turn_id for move in moves] == ids(found)
    assert max(turn for _, turn in lines) == 3 * count * rounds


# --- open turns -----------------------------------------------------------------------------------


def test_an_open_turn(thread: Thread, context: Context, stored: Stored, clock: Clock) -> None:
    """Bits are appended, seen at once by others, and sealed into one turn with one blob."""
    grow(context, 1)
    opened = context.open_turn(type_id="tool.output", type_version=3, encoding=9)
    assert opened.info() == OpenInfo(1, 1, "tool.output", 3, 9, 0, AT, AT)
    assert b"".join(opened.read()) == b""
    clock.move(1)
    whole = bytes(range(256))
    bits: list[Any] = [b"a\0\xff", "zwölf", b"", "", bytearray(b"\x80"), memoryview(b"x-y-")[::2]]
    expected = b"a\0\xffzw\xc3\xb6lf\x80xy" + whole
    assert [opened.append_delta(bit) for bit in [*bits, whole]] == [3, 9, 9, 9, 10, 12, 268]
    info = OpenInfo(1, 1, "tool.output", 3, 9, 268, AT, AT + 1000)
    with eventq.open(thread.path, read_only=True) as other:
        assert other.contexts.open_turn(1).info() == info
        assert b"".join(other.contexts.open_turn(1).read()) == expected
    assert context.open_turns() == list(thread.contexts.open_turns()) == [info]
    assert context.head_id() == 1
    clock.move(1)
    turn = opened.seal(flags=5, key="k", source="self")
    assert turn == Turn(2, 1, 1, "tool.output", 3, 9, hash_of(expected), 268, 5, AT + 2000)
    assert said(context.last(1)) == [expected]
    rows = counts(stored)
    assert (rows["blobs"], rows["open_turns"], rows["open_pieces"]) == (2, 0, 0)
    assert [event.subtype for event in thread.peek()] == ["turn"]
    assert context.open_turn().id == 2


def test_equal_bytes_are_one_blob(context: Context, stored: Stored) -> None:
    """What is sealed is the same blob as what is appended at once; nothing is a turn, too."""
    grow(context, 1)
    opened = context.open_turn()
    for bit in ("1", ": ", "0"):
        opened.append_delta(bit)
    assert opened.seal().hash == context.last().turns[0].hash
    assert counts(stored)["blobs"] == 1
    assert context.open_turn().seal().size == 0


def test_an_open_turn_grows_to_the_largest_payload(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit beyond what a payload may have is refused, and what was there can be sealed."""
    monkeypatch.setattr("eventq.memory.contexts.LARGEST", 2 * MIB)
    opened = context.open_turn()
    assert opened.append_delta(b"x" * (2 * MIB - 1)) == 2 * MIB - 1
    with pytest.raises(TooLargeError, match="seal what there is"):
        opened.append_delta(b"xx")
    assert opened.append_delta(b"y") == opened.seal().size == 2 * MIB


def test_megabytes_at_once(context: Context) -> None:
    """3 MiB at once are read in pieces of at most a MiB, and sealed as they are."""
    data = os.urandom(3 * MIB + 5)
    opened = context.open_turn()
    sizes = [opened.append_delta(bit) for bit in (b"before", data, b"after")]
    assert sizes == [6, 6 + len(data), 11 + len(data)]
    expected = b"before" + data + b"after"
    pieces = list(opened.read())
    assert (b"".join(pieces), max(map(len, pieces)) <= MIB) == (expected, True)
    assert opened.seal().hash == hash_of(expected)
    assert said(context.last()) == [expected]


@pytest.mark.engines("sqlite", soaked=["postgres"])  # it is long there
def test_tiny_bits_coalesce(thread: Thread, context: Context, stored: Stored) -> None:
    """5,000 bits of a few bytes lie in rows of 4 KiB, not in 5,000, and come back in order."""
    opened = context.open_turn()
    bits = [f"{number};" for number in range(5000)]
    with thread.write():
        for bit in bits:
            opened.append_delta(bit)
    expected = "".join(bits).encode()
    pieces = list(opened.read())
    assert b"".join(pieces) == expected
    assert counts(stored)["open_pieces"] == len(pieces) <= -(-len(expected) // 4090)
    assert all(4090 <= len(piece) <= 4096 for piece in pieces[:-1])
    opened.seal()
    assert said(context.last()) == [expected]


@pytest.mark.parametrize("size", range(9))
def test_the_first_bytes(size: int) -> None:
    """A stream is read as far as it was, whatever has come since."""
    found = list(first_bytes([b"abc", b"de", b"f", b"gh"], size))
    assert b"".join(found) == b"abcdefgh"[:size]
    assert len(found) <= 4


def test_bits_that_are_refused(context: Context, stored: Stored) -> None:
    """What is neither bytes nor text is refused, and so are types that no turn may have."""
    opened = context.open_turn()
    opened.append_delta(b"good")
    before = stored()
    odd: list[Any] = [None, 7, ["x"], {"a": 1}, "\ud800"]
    for value in odd:
        with pytest.raises(InputError):
            opened.append_delta(value)
    words: list[tuple[str, Any]] = [
        ("type_id", "a\nb"), ("type_id", 7), ("type_version", -1), ("type_version", True),
        ("encoding", 1 << 32),
    ]  # fmt: skip
    for name, value in words:
        with pytest.raises(InputError):
            context.open_turn(**{name: value})
    assert stored() == before


def test_a_bit_for_another_size(context: Context) -> None:
    """An engine appends nothing to an open turn that is not as long as was expected."""
    opened = context.open_turn()
    opened.append_delta(b"12345")
    growth = Growth(1, 0, (StreamPiece(None, 0, b"6"),))
    append = context.turns.database.open_turns.append
    assert [append(opened.id, growth, was=size) for size in (4, 0, 5)] == [None, None, 6]
    assert b"".join(opened.read()) == b"123456"


def test_a_rolled_back_bit(thread: Thread, context: Context, stored: Stored) -> None:
    """A bit, a seal and a discard inside a `write` that fails have not happened."""
    opened = context.open_turn()
    opened.append_delta(b"kept")
    before = stored()
    for end in (opened.seal, opened.discard):
        with pytest.raises(ZeroDivisionError), thread.write():
            opened.append_delta(b"gone" * 5000)
            end()
            raise ZeroDivisionError
    assert stored() == before
    assert b"".join(opened.read()) == b"kept"


def test_a_closed_open_turn(thread: Thread, context: Context, stored: Stored) -> None:
    """What was sealed or discarded is no open turn any more, for anybody; nothing changes."""
    sealed, discarded = context.open_turn(), context.open_turn()
    sealed.append_delta(b"x")
    discarded.append_delta(b"y" * 10_000)
    sealed.seal()
    discarded.discard()
    before = stored()
    assert (before["open_turns"], before["open_pieces"], len(before["turns"])) == ([], [], 1)
    calls: list[Callable[[OpenTurn], object]] = [
        lambda opened: opened.seal(),
        lambda opened: opened.discard(),
        lambda opened: opened.info(),
        lambda opened: list(opened.read()),
        lambda opened: opened.append_delta(b"more"),
        lambda opened: opened.append_delta(b""),
        lambda opened: thread.contexts.open_turn(opened.id),
    ]
    for opened in (sealed, discarded):
        for call in calls:
            with pytest.raises(ConflictError, match=f"no open turn {opened.id} - ") as caught:
                call(opened)
            assert caught.value.actual == opened.id
    for number, error in ((99, ConflictError), (-1, UsageError)):
        with pytest.raises(error):
            thread.contexts.open_turn(number)
    assert stored() == before


def test_a_refused_seal(context: Context, stored: Stored) -> None:
    """A seal that is refused changes nothing: the turn is open still, and can be sealed."""
    opened = context.open_turn()
    opened.append_delta(b"text")
    context.append(b"other", key="used")
    before = stored()
    cases: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"expected_head": 0}, ConflictError),
        ({"key": "used"}, ConflictError),
        ({"refs": [MISSING]}, UnknownBlobError),
        ({"flags": -1}, InputError),
        ({"source": "a\nb"}, InputError),
    ]
    for words, error in cases:
        with pytest.raises(error):
            opened.seal(**words)
    assert stored() == before
    turn = opened.seal(expected_head=1)
    assert (turn.turn_id, turn.parent_turn_id) == (2, 1)


def test_a_seal_with_a_used_key(context: Context, stored: Stored) -> None:
    """A key that sealed the same bytes before is the first turn's; the open turn ends, too."""
    first, again = context.open_turn(), context.open_turn()
    first.append_delta(b"text")
    turn = first.seal(key="k")
    for bit in (b"te", b"xt"):
        again.append_delta(bit)
    assert again.seal(key="k", source="self") == turn
    rows = counts(stored)
    assert [rows[name] for name in ("turns", "open_turns", "open_pieces", "events")] == [1, 0, 0, 0]


WRITER = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    opened = thread.contexts.open_turn(int(sys.argv[2]))
    say("go")
    for n in range(100000):
        say(opened.append_delta(f"{n};" + "x" * (n % 9 * 100)))
"""
SEALER = """
import sys, eventq
with eventq.open(sys.argv[1]) as thread:
    print(thread.contexts.open_turn(int(sys.argv[2])).seal().size)
"""


@pytest.mark.parametrize("count", [0, 20])
def test_another_process_seals(
    thread: Thread, context: Context, run_python: Any, count: int
) -> None:
    """After a kill -9 of the writer another process seals what was acknowledged, in order."""
    opened = context.open_turn()
    process = start(WRITER, thread.path, str(opened.id))
    out = read_lines(process, 1 + count) + kill(process)
    acked = [int(line) for line in out.decode().split("\n")[1:-1]]
    assert [info.open_id for info in context.open_turns()] == [opened.id]
    size = int(run_python(SEALER, thread.path, str(opened.id)))
    (payload,) = said(context.last())
    assert max([0, *acked]) <= size == len(payload or b"")
    expected, n = b"", 0
    while len(expected) < size:
        expected += f"{n};".encode() + b"x" * (n % 9 * 100)
        n += 1
    assert (payload, context.open_turns()) == (expected, [])
    assert len(acked) <= n <= len(acked) + 1


def test_deleting_a_context_with_open_turns(
    thread: Thread, context: Context, stored: Stored
) -> None:
    """A context with open turns is not deleted; once they are sealed or discarded it is."""
    first, second = context.open_turn(), context.open_turn()
    other = thread.contexts.create()
    before = stored()
    for call in (context.delete, lambda: thread.contexts.delete("main")):
        with pytest.raises(ConflictError, match=r"has turns that are still open \(2\)") as caught:
            call()
        assert caught.value.actual == first.id
    assert stored() == before
    other.delete()
    first.discard()
    second.seal()
    context.delete()
    assert list(thread.contexts.list()) == []


def test_open_turns_are_sealed_at_the_head(context: Context) -> None:
    """Several may be open at once; each goes after the head there is when it is sealed."""
    first, second = context.open_turn(), context.open_turn()
    second.append_delta(b"second")
    first.append_delta(b"first")
    grow(context, 1)
    assert (second.seal().parent_turn_id, first.seal().parent_turn_id) == (1, 2)
    assert said(context.last()) == [b"1: 0", b"second", b"first"]


@pytest.mark.parametrize(
    ("meanwhile", "text", "rest"),
    [
        (lambda opened: opened.append_delta(b" two"), "somebody is still writing", [b"one two"]),
        (lambda opened: opened.seal(), "there is no open turn 1", [b"one"]),
    ],
    ids=["a bit", "a seal"],
)
def test_what_others_do_while_it_is_sealed(
    thread: Thread, context: Context, monkeypatch: pytest.MonkeyPatch, meanwhile: Any, text: str,
    rest: list[bytes],
) -> None:  # fmt: skip
    """A seal that finds other bytes than it has read is refused: no byte is lost."""
    opened = context.open_turn()
    opened.append_delta(b"one")
    prepare = thread.contexts.turns.prepare

    def slow(*values: Any, **words: Any) -> Any:
        ready = prepare(*values, **words)
        with eventq.open(thread.path) as other:
            meanwhile(other.contexts.open_turn(opened.id))
        return ready

    with monkeypatch.context() as patch:
        patch.setattr(thread.contexts.turns, "prepare", slow)
        with pytest.raises(ConflictError, match=text):
            opened.seal(key="k")
    if context.open_turns():
        assert (context.head_id(), opened.info().size) == (0, 7)
        opened.seal(key="k")
    assert said(context.last()) == rest
