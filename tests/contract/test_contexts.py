"""Contexts are heads that move, fork and go; turns that are still being written lose nothing; many may do it at once."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3

import eventq
from eventq import InputError, Turn, UsageError
from eventq.dag.contexts import OpenTurn
from eventq.errors import (
    ConflictError,
    TooLargeError,
    UnknownBlobError,
    UnknownContextError,
    UnknownTurnError,
)
from eventq.records import ContextInfo, Move, OpenInfo
from tests.contract.support import counts, dump, ids
from tests.crash.support import kill, numbers, read_lines, start

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

    from eventq import Context, Thread
    from tests.conftest import Clock

    Tables = dict[str, list[tuple[Any, ...]]]

AT = 1773829800123  # what the clock shows
DAY = 24 * 3600
LARGEST_ID = (1 << 63) - 1
MIB = 1 << 20
MISSING = "blob:blake3:" + "0" * 64


pytestmark = pytest.mark.usefixtures("quick")


def grow(context: Context, count: int) -> list[int]:
    """Append some turns and give their ids."""
    return [context.append(f"{context.id}: {number}").turn_id for number in range(count)]


# --- create, get, list ---


def test_create(thread: Thread, clock: Clock) -> None:
    """A context is empty or begins at any turn; ids count 1, 2, 3; `info` gives all of it."""
    empty = thread.contexts.create()
    assert (empty.id, empty.head_id()) == (1, 0)
    assert ContextInfo(1, None, 0, 0, 0, None, 0, 0, AT, AT) == empty.info()
    grow(empty, 3)
    clock.move(60)
    named = thread.contexts.create("a name", base=2)
    assert ContextInfo(2, "a name", 2, 1, 2, None, 0, 0, AT + 60_000, AT + 60_000) == named.info()
    assert ContextInfo(1, None, 3, 2, 0, None, 3, 0, AT, AT) == empty.info()
    assert ids(named.last()) == [1, 2]
    assert repr(named) == "<eventq.Context 2>"


@pytest.mark.parametrize(
    "name", ["a", "x" * 200, "ein Name ☃", "-5", "1.0", "1a", "²", "１２", " ", "blob:x"]
)
def test_names_that_are_taken(thread: Thread, name: str) -> None:
    """A name is any text up to 200 characters that is no number, and finds its context."""
    assert thread.contexts.create(name).id == 1
    assert (1, name) == (thread.contexts.get(name).id, thread.contexts.get(1).info().name)
    assert (2, name + "'") == (
        thread.contexts.fork(name, name=name[:199] + "'").id,
        name + "'",
    ) or len(name) > 199


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "name is empty"),
        ("1", "'1' is a number, not a name"),
        ("007", "is a number, not a name"),
        ("9" * 30, "is a number, not a name"),
        ("x" * 201, "longer than 200 characters"),
        ("a\nb", "control character"),
        ("\0", "control character"),
        ("\x1b[2J", "control character"),
        ("\x85", "control character"),
        ("\ud800", "half a character"),
        (7, "name must be text, not int"),
        (b"a", "name must be text, not bytes"),
    ],
)
def test_names_that_are_refused(
    context: Context, thread: Thread, raw: apsw.Connection, name: Any, text: str
) -> None:
    """Names that could be taken for ids or that cannot be shown are refused, and nothing changes."""
    before = dump(raw)
    calls: list[Callable[[], object]] = [
        lambda: thread.contexts.create(name),
        lambda: context.fork(name=name),
    ]
    for call in calls:
        with pytest.raises(InputError, match=text):
            call()
    assert before == dump(raw)


def test_a_name_is_unique(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """A name that is taken is refused with its owner; it is free again when that is deleted, the id never."""
    before = dump(raw)
    calls: list[Callable[[], object]] = [
        lambda: thread.contexts.create("main"),
        lambda: context.fork(name="main"),
    ]
    for call in calls:
        with pytest.raises(
            ConflictError, match="the name 'main' is taken by context 1 - "
        ) as caught:
            call()
        assert caught.value.actual == 1
    assert before == dump(raw)
    thread.contexts.delete("main")
    assert (thread.contexts.create("main").id, thread.contexts.create("Main").info().name) == (
        2,
        "Main",
    )


def test_contexts_are_found(thread: Thread, context: Context) -> None:
    """A context is found by id, by name, and by its id as text; nothing else finds it."""
    thread.contexts.create()
    assert [thread.contexts.get(which).id for which in (1, "main", "1", 2, "2", "002")] == [
        1,
        1,
        1,
        2,
        2,
        2,
    ]
    for which in (
        0,
        3,
        LARGEST_ID,
        "3",
        "Main",
        "main ",
        "",
        "-1",
        "+1",
        " 1",
        "１",
        "1.0",
        "9" * 18,
        "9" * 40,
        "%",
    ):
        with pytest.raises(UnknownContextError) as caught:
            thread.contexts.get(which)
        assert f"there is no context '{which}'" == caught.value.what
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
    """All contexts are listed by id, in pages that do not show, after an id on request; iterating is the same."""
    with thread.write():
        for number in range(1203):
            thread.contexts.create(f"c{number}")
    thread.contexts.delete("c4")
    expected = [number for number in range(1, 1204) if number != 5]
    assert expected == [info.context_id for info in thread.contexts.list()]
    assert expected == [info.context_id for info in thread.contexts]
    assert [info.context_id for info in thread.contexts.list(after=1201)] == [1202, 1203]
    assert list(thread.contexts.list(after=1203)) == []
    assert thread.contexts.get(7).info() == next(iter(thread.contexts.list(6)))


@pytest.mark.parametrize("value", [-1, True, "1", 1.5, 1 << 63, 1 << 70])
def test_numbers_of_lists_are_checked(thread: Thread, context: Context, value: Any) -> None:
    """Where a list begins, whose history it is and how many children are numbers, or refused in eventq's words."""
    grow(context, 2)
    calls: list[Callable[[], object]] = [
        lambda: list(thread.contexts.list(value)),
        lambda: thread.contexts.children(1, value),
    ]
    if not isinstance(value, str):  # a name
        calls.append(lambda: list(thread.contexts.history(value)))
    for call in calls:
        with pytest.raises(UsageError, match="must be a whole number"):
            call()


def test_an_unknown_base(thread: Thread, raw: apsw.Connection) -> None:
    """A context at a turn that is not there is refused."""
    before = dump(raw)
    with pytest.raises(UnknownTurnError):
        thread.contexts.create("new", base=1)
    assert before == dump(raw)


# --- fork ---


def test_a_fork_is_one_row(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """Row 38: a fork at any step is one row of `contexts`: no blob, no turn, no byte of a payload is copied."""
    turns = grow(context, 12)
    context.patch(3, b"patched")
    expected = counts(raw)
    for at in (None, *turns):
        fork = context.fork(at=at)
        expected["contexts"] += 1
        assert expected == counts(raw)
        head = at or turns[-1]
        info = fork.info()
        assert (head, head - 1, head, 1, 0) == (
            info.head_turn_id, info.head_depth, info.base_turn_id, info.fork_of, info.version,
        )  # fmt: skip
        assert list(context.at(head).last()) == list(fork.last())
    empty = context.fork(at=0)
    assert (ids(empty.last()), empty.info().fork_of, empty.info().base_turn_id) == ([], 1, 0)


def test_a_fork_goes_its_own_way(thread: Thread, context: Context) -> None:
    """Row 39: a fork has the same start, its first append goes after the fork point, and the original stays as it is."""
    grow(context, 5)
    fork = thread.contexts.fork("main", at=3, name="fork")
    turn = fork.append(b"mine")
    assert (turn.parent_turn_id, turn.depth) == (3, 3)
    assert ids(fork.last()) == [1, 2, 3, 6]
    assert ids(context.last()) == [1, 2, 3, 4, 5]
    assert fork.info().base_turn_id == 3
    second = fork.fork()
    assert (second.info().fork_of, second.info().base_turn_id) == (2, 6)


def test_forks_that_are_refused(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """A fork is made at a turn of the chain; another branch's turn and one that is not there are refused."""
    grow(context, 3)
    fork = context.fork(at=1)
    before = dump(raw)
    odd: list[Any] = [-1, True, False, "1", 1.0, 1 << 63, ""]
    cases: list[tuple[Any, type[Exception]]] = [
        (2, ConflictError), (3, ConflictError), (99, UnknownTurnError), *((value, UsageError) for value in odd),
    ]  # fmt: skip
    for at, error in cases:
        with pytest.raises(error):
            fork.fork(at=at, name="new")
        with pytest.raises(error):
            thread.contexts.fork(2, at=at)
    assert before == dump(raw)


def test_lineage_survives_the_parent(thread: Thread, context: Context, clock: Clock) -> None:
    """Row 42: a fork names its origin and its turn; deleting the origin, and collecting, does not break it."""
    grow(context, 5)
    fork = context.fork(at=3)
    fork.append(b"mine")
    second = fork.fork()
    context.delete()
    assert (fork.info().fork_of, fork.info().base_turn_id) == (None, 3)
    clock.move(3 * DAY)
    assert thread.gc(apply=True).turns == 2
    assert ids(fork.last()) == [1, 2, 3, 6]
    assert (second.info().fork_of, ids(second.last())) == (2, [1, 2, 3, 6])
    assert fork.append(b"more").turn_id == 7
    fork.move(0)
    fork.delete()
    assert (second.info().fork_of, second.info().base_turn_id) == (None, 6)


# --- moves ---


def test_every_move_is_logged(thread: Thread, clock: Clock) -> None:
    """Row 27: create, append, move and delete are in the history, old, new and when; that of the deleted one too."""
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
    assert expected == list(context.history())
    assert context.info().version == 6
    fork = thread.contexts.create("begun at 3", base=3)
    assert [Move(0, "create", 0, 3, AT + 1000)] == list(fork.history())
    context.move(3)
    context.delete()
    gone = [*expected, Move(7, "move", 0, 3, AT + 1000), Move(8, "delete", 3, 0, AT + 1000)]
    assert gone == list(thread.contexts.history(1))
    assert gone == list(context.history())
    with pytest.raises(UnknownContextError):
        list(thread.contexts.history("main"))
    for unknown in (0, 99, LARGEST_ID):
        with pytest.raises(UnknownContextError):
            list(thread.contexts.history(unknown))


def test_a_long_history(context: Context, thread: Thread) -> None:
    """A history of more than a page has each move once, in order, each beginning where the last one ended."""
    with thread.write():
        grow(context, 3)
        for number in range(1200):
            context.move(number % 4)
    moves = list(context.history())
    assert list(range(1204)) == [move.version for move in moves]
    assert [move.new_turn_id for move in moves[:-1]] == [move.old_turn_id for move in moves[1:]]


def test_a_lost_head_is_found(thread: Thread, context: Context) -> None:
    """Row 27: after a head was moved away, and its context deleted, the history leads back and a fork is made there."""
    grow(context, 4)
    context.move(1)
    grow(context, 2)
    lost = max(move.old_turn_id for move in context.history() if move.op == "move")
    assert ids(thread.contexts.create("found", base=lost).last()) == [1, 2, 3, 4]
    context.delete()
    last = [move.old_turn_id for move in thread.contexts.history(1)][-1]
    assert ids(thread.contexts.create(base=last).last()) == [1, 5, 6]


def test_compare_and_set(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """Row 22: a head is moved only from where it is expected, to any turn; the refusal names the actual one."""
    grow(context, 3)
    other = thread.contexts.create()
    grow(other, 1)
    info = thread.contexts.compare_and_set(1, 4, expected_head=3)
    assert (info.head_turn_id, info.head_depth, info.version) == (4, 0, 4)
    assert thread.contexts.compare_and_set(context, 0, expected_head=4).head_turn_id == 0
    assert context.move(2, expected_head=0).head_turn_id == 2
    before = dump(raw)
    for expected in (0, 1, 3, 99, LARGEST_ID):
        with pytest.raises(
            ConflictError, match=f"the head of context 1 is turn 2, not {expected} - "
        ) as caught:
            thread.contexts.compare_and_set(1, 1, expected_head=expected)
        assert caught.value.actual == 2
    for unknown in (99, LARGEST_ID):
        with pytest.raises(UnknownTurnError):
            context.move(unknown)
        with pytest.raises(UnknownTurnError):
            thread.contexts.compare_and_set(1, unknown, expected_head=2)
    odd: list[Any] = [-1, True, False, None, "1", 1.0, 1 << 63]
    for value in odd:
        with pytest.raises(UsageError):
            context.move(value)
    assert before == dump(raw)


def test_a_head_that_moves_at_the_last_moment(
    thread: Thread, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 22: what somebody does just before the transaction begins counts: the head is compared inside of it."""
    grow(context, 4)
    begin = thread.database.begin

    def late(*, relaxed: bool = False) -> None:
        if not thread.database.depth:
            with eventq.open(thread.path) as other:
                other.contexts.get(1).move(2)
        begin(relaxed=relaxed)

    calls: list[Callable[[], object]] = [
        lambda: context.move(3, expected_head=4),
        lambda: context.append(b"new", expected_head=4),
        lambda: context.fork(at=4),
    ]
    for call in calls:
        context.move(4)
        with monkeypatch.context() as patch:
            patch.setattr(thread.database, "begin", late)
            with pytest.raises(ConflictError) as caught:
                call()
        assert (caught.value.actual, context.head_id()) == (2, 2)
    context.move(4)
    monkeypatch.setattr(thread.database, "begin", late)
    assert context.append(b"new").parent_turn_id == 2
    assert context.fork().head_id() == 2
    moves = list(context.history())
    assert [move.new_turn_id for move in moves[:-1]] == [move.old_turn_id for move in moves[1:]]


def test_delete(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """Row 29: deleting takes the row and nothing else; a second time it is unknown; its id is given to no other."""
    grow(context, 3)
    expected = counts(raw)
    context.delete()
    expected["contexts"] -= 1
    expected["context_log"] += 2  # the end, and the beginning, which the row knew
    assert expected == counts(raw)
    for which in (1, "main", context):
        with pytest.raises(UnknownContextError):
            thread.contexts.delete(which)
    assert ids(thread.contexts.at(3).last()) == [1, 2, 3]
    assert thread.contexts.create("main").id == 2


def test_a_rolled_back_delete(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """Create, fork, move and delete inside a `write` that fails have not happened."""
    grow(context, 2)
    before = dump(raw)
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.contexts.create("new")
        context.fork(at=1)
        context.move(1)
        context.delete()
        raise ZeroDivisionError
    assert before == dump(raw)
    assert ids(context.last()) == [1, 2]


# --- many processes ---

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
    """Run a program in several processes that begin at one moment; give the words of the lines that each has said."""
    processes = [
        start(GATE + code, path, str(number), str(rounds), stdin=subprocess.PIPE)
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said = []
    for process in processes:
        out, complaint = process.communicate(timeout=120)
        assert (complaint, process.returncode) == (b"", 0)
        said.append([line.split() for line in out.decode().splitlines()])
    return said


SWAP = """
for n in range(rounds):
    mine = 2 + me
    try:
        contexts.compare_and_set(2 + n, mine, expected_head=1)
        say(f"{n} won {mine}")
    except ConflictError as error:
        say(f"{n} lost {error.actual}")
wins = 0
while wins < 25:
    head = contexts.head(1)
    try:
        contexts.compare_and_set(1, 2 + me, expected_head=head)
        wins += 1
    except ConflictError as error:
        assert error.actual != head
"""


def test_one_of_many_swaps_wins(thread: Thread, context: Context) -> None:
    """Row 22: of four processes that move a head from one place exactly one wins, and the others are told its turn."""
    rounds = 60
    with thread.write():
        grow(context, 5)
        for _ in range(rounds):
            context.fork(at=1)
    said = together(SWAP, thread.path, 4, rounds)
    winners = {}
    for number, lines in enumerate(said):
        winners.update({n: 2 + number for n, word, _ in lines if word == "won"})
        assert rounds == len(lines)
    assert rounds == sum(word == "won" for lines in said for _, word, _ in lines)
    assert [winners[n] for lines in said for n, _, _ in lines] == [
        int(actual) for lines in said for *_, actual in lines
    ]
    assert [winners[str(n)] for n in range(rounds)] == [
        thread.contexts.head(2 + n) for n in range(rounds)
    ]
    moves = list(context.history())
    assert [move.new_turn_id for move in moves[:-1]] == [move.old_turn_id for move in moves[1:]]
    assert len(moves) == 5 + 4 * 25 + 1


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
    """Row 23: four processes lose no turn, each in a context of its own and all in one; with `expected_head` and
    another try each depth of the one chain is there exactly once.
    """  # noqa: D205
    rounds, count = 30, 4
    for _ in range(count + 1):
        thread.contexts.create()
    said = together(APPEND, thread.path, count, rounds)
    for number, lines in enumerate(said):
        own = [int(turn) for word, turn in lines if word == "own"]
        found = list(thread.contexts.get(2 + number).last(10_000))
        assert own == ids(found)
        assert [f"{number} own {n}".encode() for n in range(rounds)] == [
            turn.payload for turn in found
        ]
    for which, kind in ((1, "one"), (6, "any")):
        found = list(thread.contexts.get(which).replay())
        assert sorted(
            int(turn) for lines in said for word, turn in lines if word == kind
        ) == sorted(ids(found))
        assert list(range(count * rounds)) == [turn.depth for turn in found]
        assert sorted(
            f"{me} {kind} {n}".encode() for me in range(count) for n in range(rounds)
        ) == sorted(turn.payload or b"" for turn in found)
        moves = list(thread.contexts.history(which))[1:]
        assert ids(found) == [move.new_turn_id for move in moves]
    assert 3 * count * rounds == max(int(turn) for lines in said for _, turn in lines)


KILLED = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    contexts = thread.contexts
    main, opened = contexts.get("main"), contexts.open_turn(1)
    say("go")
    fall(int(sys.argv[2]))
    for n in range(100000):
        turn = main.append(f"{sys.argv[3]} {n} " + "x" * (n % 7 * 300), key=f"{sys.argv[3]} {n}", source="self" if n % 2 == 0 else None)
        say(f"{turn.turn_id} {sys.argv[3]} {n} ")
        if n % 5 == 0:
            say(f"size {opened.append_delta(f'{sys.argv[3]} {n};')}")
"""


def test_nothing_acknowledged_is_lost(
    thread: Thread, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 24: after each of twelve kills every acknowledged turn and byte is there, the head is a whole turn, and the
    thread checks out. Row 108: as many events as turns that asked for one.
    """  # noqa: D205
    monkeypatch.delenv("EVENTQ_SYNCHRONOUS")
    opened = context.open_turn()
    promised: dict[int, str] = {}
    size = 0
    for number, (count, call) in enumerate(
        zip(numbers(7, 12, 1, 40), numbers(8, 12, 20, 20_000), strict=True)
    ):
        by_call = number % 2
        process = start(KILLED, thread.path, str(int(call) if by_call else 0), str(number))
        out = read_lines(process, None if by_call else 1 + int(count)) + kill(process)
        for line in out.decode().split("\n")[1:-1]:
            word, text = line.split(" ", 1)
            if word == "size":
                size = int(text)
            else:
                promised[int(word)] = text.strip()
        stored = {turn.turn_id: (turn.payload or b"").decode() for turn in context.replay()}
        assert promised == {turn_id: stored[turn_id].rstrip("x").strip() for turn_id in promised}
        assert len(stored) - len(promised) <= number + 1  # at most one each was under way
        assert list(stored) == list(range(1, len(stored) + 1))
        data = b"".join(opened.read())
        assert size <= len(data) == opened.info().size
        assert data.split(b";")[-1:] == [b""]
        assert [*thread.database.turns.faults(), *thread.blobs.faults()] == []
    assert promised
    assert [text for text in stored.values() if int(text.split()[1]) % 2 == 0] == [
        stored[int(event.content.split('"turn_id":')[1].split(",")[0])]
        for event in thread.peek(limit=None)
    ]
    opened.discard()
    thread.push("self", "note", "the next push, which makes the mirror whole")


# --- open turns ---


def test_an_open_turn(thread: Thread, context: Context, raw: apsw.Connection, clock: Clock) -> None:
    """Bits are appended, seen at once by others, and sealed into one turn with one blob; the pieces are gone then."""
    grow(context, 1)
    opened = context.open_turn(type_id="tool.output", type_version=3, encoding=9)
    assert OpenInfo(1, 1, "tool.output", 3, 9, 0, AT, AT) == opened.info()
    assert b"".join(opened.read()) == b""
    clock.move(1)
    bits: list[Any] = [
        b"a\0\xff",
        "zwölf",
        b"",
        "",
        bytearray(b"\x80"),
        memoryview(b"xy"),
        bytes(range(256)),
    ]
    expected = b"a\0\xffzw\xc3\xb6lf\x80xy" + bytes(range(256))
    assert [opened.append_delta(bit) for bit in bits] == [3, 9, 9, 9, 10, 12, 268]
    info = OpenInfo(1, 1, "tool.output", 3, 9, 268, AT, AT + 1000)
    with eventq.open(thread.path, read_only=True) as other:
        assert info == other.contexts.open_turn(1).info()
        assert expected == b"".join(other.contexts.open_turn(1).read())
    assert ([info], [info]) == (context.open_turns(), list(thread.contexts.open_turns()))
    assert context.head_id() == 1
    clock.move(1)
    turn = opened.seal(flags=5, key="k", source="self")
    digest = blake3(expected).hexdigest()
    assert Turn(2, 1, 1, "tool.output", 3, 9, digest, 268, 5, AT + 2000) == turn
    assert [expected] == [turn.payload for turn in context.last(1)]
    assert tuple(counts(raw)[name] for name in ("blobs", "open_turns", "open_pieces")) == (2, 0, 0)
    assert [event.subtype for event in thread.peek()] == ["turn"]
    assert context.open_turn().id == 2


def test_equal_bytes_are_one_blob(context: Context, raw: apsw.Connection) -> None:
    """What is sealed is the same blob as what is appended at once."""
    grow(context, 1)
    opened = context.open_turn()
    for bit in ("1", ": ", "0"):
        opened.append_delta(bit)
    assert next(iter(context.last())).hash == opened.seal().hash
    assert counts(raw)["blobs"] == 1


def test_an_empty_open_turn(context: Context) -> None:
    """Nothing written is a turn without bytes."""
    opened = context.open_turn()
    opened.append_delta(b"")
    assert (opened.seal().turn_id, context.last().turns[0].size) == (1, 0)


def test_an_open_turn_grows_to_the_largest_payload(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delta beyond what a payload may have is refused when it comes, and what was there can be sealed."""
    monkeypatch.setattr("eventq.dag.contexts.LARGEST", 2 * MIB)
    opened = context.open_turn()
    assert opened.append_delta(b"x" * (2 * MIB - 1)) == 2 * MIB - 1
    with pytest.raises(TooLargeError, match="seal what there is"):
        opened.append_delta(b"xx")
    assert opened.append_delta(b"y") == 2 * MIB
    assert opened.seal().size == 2 * MIB


def test_megabytes_at_once(context: Context, raw: apsw.Connection) -> None:
    """3 MiB at once lie in pieces of at most a MiB, between small bits, and are sealed as they are."""
    data = os.urandom(3 * MIB + 5)
    opened = context.open_turn()
    sizes = [
        opened.append_delta(b"before"),
        opened.append_delta(data),
        opened.append_delta(b"after"),
    ]
    assert [6, 6 + len(data), 11 + len(data)] == sizes
    expected = b"before" + data + b"after"
    pieces = list(opened.read())
    assert expected == b"".join(pieces)
    assert max(map(len, pieces)) <= MIB
    turn = opened.seal()
    assert (blake3(expected).hexdigest(), len(expected)) == (turn.hash, turn.size)
    assert expected == context.last().turns[0].payload
    assert counts(raw)["open_pieces"] == 0


def test_tiny_bits_coalesce(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """5,000 bits of a few bytes lie in rows of 4 KiB, not in 5,000, and come back in order."""
    opened = context.open_turn()
    bits = [f"{number};" for number in range(5000)]
    with thread.write():
        for bit in bits:
            opened.append_delta(bit)
    expected = "".join(bits).encode()
    pieces = list(opened.read())
    assert expected == b"".join(pieces)
    assert -(-len(expected) // 4090) >= len(pieces) == counts(raw)["open_pieces"]
    assert all(4090 <= len(piece) <= 4096 for piece in pieces[:-1])
    assert expected == (
        context.append(b"first") and opened.seal() and context.last().turns[1].payload
    )


def test_bits_that_are_refused(context: Context, raw: apsw.Connection) -> None:
    """What is neither bytes nor text is refused, half characters too; so are types that no turn may have."""
    opened = context.open_turn()
    opened.append_delta(b"good")
    before = dump(raw)
    odd: list[Any] = [None, 7, ["x"], {"a": 1}, "\ud800"]
    for value in odd:
        with pytest.raises(InputError):
            opened.append_delta(value)
    words: list[dict[str, Any]] = [
        {"type_id": "a\nb"}, {"type_id": 7}, {"type_version": -1}, {"type_version": True}, {"encoding": 1 << 32},
    ]  # fmt: skip
    for each in words:
        with pytest.raises(InputError):
            context.open_turn(**each)
    assert before == dump(raw)
    opened.discard()


def test_bits_of_any_shape(context: Context) -> None:
    """Every second byte of something is bytes too, for a bit as it is for an append."""
    opened = context.open_turn()
    assert opened.append_delta(memoryview(b"abcdef")[::2]) == 3
    assert b"".join(opened.read()) == b"ace"


def test_a_rolled_back_bit(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """A bit, a seal and a discard inside a `write` that fails have not happened."""
    opened = context.open_turn()
    opened.append_delta(b"kept")
    before = dump(raw)
    for end in (opened.seal, opened.discard):
        with pytest.raises(ZeroDivisionError), thread.write():
            opened.append_delta(b"gone" * 5000)
            end()
            raise ZeroDivisionError
    assert before == dump(raw)
    assert b"".join(opened.read()) == b"kept"


CALLS: list[Callable[[OpenTurn], object]] = [
    OpenTurn.seal,
    OpenTurn.discard,
    OpenTurn.info,
    lambda opened: list(opened.read()),
    lambda opened: opened.append_delta(b"more"),
    lambda opened: opened.append_delta(b""),
]


def test_a_closed_open_turn(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """What was sealed or discarded is no open turn any more, for anybody; nothing changes."""
    sealed, discarded = context.open_turn(), context.open_turn()
    sealed.append_delta(b"x")
    discarded.append_delta(b"y" * 10_000)
    sealed.seal()
    discarded.discard()
    assert tuple(counts(raw)[name] for name in ("open_turns", "open_pieces", "turns")) == (0, 0, 1)
    before = dump(raw)
    for opened in (sealed, discarded):
        for call in CALLS:
            with pytest.raises(
                ConflictError, match=f"there is no open turn {opened.id} - "
            ) as caught:
                call(opened)
            assert caught.value.actual == opened.id
        with pytest.raises(ConflictError, match=f"there is no open turn {opened.id} - "):
            thread.contexts.open_turn(opened.id)
    with pytest.raises(ConflictError):
        thread.contexts.open_turn(99)
    with pytest.raises(UsageError):
        thread.contexts.open_turn(-1)
    assert before == dump(raw)


def test_a_refused_seal(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """A seal that is refused changes nothing: the turn is open still, and can be sealed."""
    opened = context.open_turn()
    opened.append_delta(b"text")
    context.append(b"other", key="used")
    before = dump(raw)
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
    assert before == dump(raw)
    turn = opened.seal(expected_head=1)
    assert (turn.turn_id, turn.parent_turn_id) == (2, 1)


def test_a_seal_with_a_used_key(thread: Thread, context: Context, raw: apsw.Connection) -> None:
    """A seal with a key that sealed the same bytes before gives the first turn, and the open turn is closed too."""
    first = context.open_turn()
    first.append_delta(b"text")
    turn = first.seal(key="k")
    again = context.open_turn()
    again.append_delta(b"te")
    again.append_delta(b"xt")
    assert turn == again.seal(key="k", source="self")
    assert tuple(
        counts(raw)[name] for name in ("turns", "open_turns", "open_pieces", "events")
    ) == (1, 0, 0, 0)
    with pytest.raises(ConflictError):
        again.info()


def test_sealing_while_somebody_writes(
    thread: Thread, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seal that finds other bytes than it has read is refused: no byte is lost, and the next seal has all."""
    opened = context.open_turn()
    opened.append_delta(b"one")
    prepare = thread.contexts.turns.prepare

    def slow(*values: Any, **words: Any) -> Any:
        ready = prepare(*values, **words)
        with eventq.open(thread.path) as other:
            other.contexts.open_turn(opened.id).append_delta(b" two")
        return ready

    with monkeypatch.context() as patch:
        patch.setattr(thread.contexts.turns, "prepare", slow)
        with pytest.raises(
            ConflictError, match="somebody is still writing to open turn 1 - seal it again"
        ):
            opened.seal(key="k")
    assert (context.head_id(), opened.info().size) == (0, 7)
    opened.seal(key="k")
    assert [turn.payload for turn in context.last()] == [b"one two"]


def test_sealing_what_somebody_seals(
    thread: Thread, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that seal at once one wins; there is one turn."""
    opened = context.open_turn()
    opened.append_delta(b"one")
    prepare = thread.contexts.turns.prepare

    def slow(*values: Any, **words: Any) -> Any:
        ready = prepare(*values, **words)
        with eventq.open(thread.path) as other:
            other.contexts.open_turn(opened.id).seal()
        return ready

    monkeypatch.setattr(thread.contexts.turns, "prepare", slow)
    with pytest.raises(ConflictError, match="there is no open turn 1"):
        opened.seal()
    assert ids(context.last()) == [1]


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


def test_another_process_seals(thread: Thread, context: Context, run_python: Any) -> None:
    """Row 24: after a kill -9 of the writer another process seals it: all that was acknowledged is there, in order."""
    for count in (0, 5, 40):
        opened = context.open_turn()
        process = start(WRITER, thread.path, str(opened.id))
        out = read_lines(process, 1 + count) + kill(process)
        acked = [int(line) for line in out.decode().split("\n")[1:-1]]
        assert [opened.id] == [info.open_id for info in context.open_turns()]
        size = int(run_python(SEALER, thread.path, str(opened.id)))
        payload = context.last().turns[-1].payload or b""
        assert size == len(payload)
        assert (acked[-1:] or [0])[0] <= size
        expected, n = b"", 0
        while len(expected) < size:
            expected += f"{n};".encode() + b"x" * (n % 9 * 100)
            n += 1
        assert expected == payload
        assert len(acked) <= n <= len(acked) + 1
    assert context.open_turns() == []


def test_deleting_a_context_with_open_turns(
    thread: Thread, context: Context, raw: apsw.Connection
) -> None:
    """A context with open turns is not deleted; once they are sealed or discarded it is."""
    first, second = context.open_turn(), context.open_turn()
    other = thread.contexts.create()
    before = dump(raw)
    for call in (context.delete, lambda: thread.contexts.delete("main")):
        with pytest.raises(
            ConflictError,
            match=r"context 1 has turns that are still open \(2\) - seal or discard them first",
        ) as caught:
            call()
        assert first.id == caught.value.actual
    assert before == dump(raw)
    other.delete()
    first.discard()
    second.seal()
    context.delete()
    assert list(thread.contexts.list()) == []


def test_open_turns_are_sealed_at_the_head(thread: Thread, context: Context) -> None:
    """Several may be open at once; each goes after the head there is when it is sealed."""
    first, second = context.open_turn(), context.open_turn()
    second.append_delta(b"second")
    first.append_delta(b"first")
    grow(context, 1)
    assert (second.seal().parent_turn_id, first.seal().parent_turn_id) == (1, 2)
    assert [turn.payload for turn in context.last()] == [b"1: 0", b"second", b"first"]
