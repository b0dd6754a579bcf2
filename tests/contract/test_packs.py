"""Packs of whole threads: the exact bytes, what an import adds, and the cost of damage."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq import LogicError
from eventq.errors import BusyError, DiskError, NotAThreadError, ReadOnlyError
from eventq.memory.blobs import Blobs
from eventq.records.turn import NewTurn
from eventq.transfer import packfile
from eventq.transfer.sources import PackSource
from tests.contract.pack_files import (
    BORN,
    FILES,
    added,
    blob,
    blob_entry,
    digest,
    flip,
    head,
    kept_blob,
    line,
    meta,
    says,
    small,
    sums,
    tag,
    tree,
    turn,
    write,
)  # fmt: skip
from tests.contract.support import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Clock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAST = 1 << 62  # ids from here on are given anew
NOTHING = (0, 0, 0, 0)
pytestmark = pytest.mark.usefixtures("quick")


# Threads to export and import.


@dataclass
class Fresh:
    """Makes fresh threads; each of them must check out when the test is over."""

    folder: Path
    made: list[eventq.Thread] = field(default_factory=list)

    def __call__(self) -> eventq.Thread:
        self.made.append(eventq.open(eventq.init(self.folder / f"fresh-{len(self.made)}")))
        return self.made[-1]

    def close(self) -> None:
        for one in self.made:
            assert one.check() == []
            one.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    """Return a maker of fresh threads."""
    made = Fresh(tmp_path)
    yield made
    made.close()


def heads(thread: eventq.Thread) -> dict[int, int]:
    """Return the head of every context."""
    return {one.context_id: one.head_turn_id for one in thread.contexts}


def payloads(thread: eventq.Thread, context: int | str) -> list[bytes | None]:
    """Return the payloads of a context."""
    return [one.payload for one in thread.contexts.get(context).replay()]


def exported(thread: eventq.Thread) -> dict[str, bytes]:
    """Return the pack of a thread."""
    for number in count():
        folder = f"{thread.path}-out-{number}"
        if not os.path.exists(folder):
            break
    thread.export_pack(folder)
    return tree(folder)


def lines_of(thread: eventq.Thread, key: str) -> list[bytes]:
    """Return the lines of eventq.ndjson that tell of one kind of thing."""
    told = exported(thread)["eventq.ndjson"].splitlines()
    return [one for one in told if one.startswith(b'{"%s"' % key.encode())]


def state(thread: eventq.Thread) -> Any:
    """Return all that an import could change: the pack, and the contexts with their moves."""
    infos = list(thread.contexts)
    return exported(thread), infos, [list(thread.contexts.history(one.context_id)) for one in infos]


def big(size: int, seed: int = 0) -> bytes:
    """Return text that compresses, and that no other seed shares."""
    return b"".join(b"%d:%d;" % (seed, n * n * 7919 % 10007) for n in range(size // 8))[:size]


def fill(thread: eventq.Thread, tick: Callable[[], None]) -> None:
    """Store turns 1 to 5 in `main`, 6 and 7 in `side`, forked at 3, 8 in `other`, and `empty`."""
    contexts = thread.contexts
    refs = [thread.blobs.put(b"named").hash]

    def ticked(step: Callable[..., Any], *given: Any, **more: Any) -> Any:
        tick()
        return step(*given, **more)

    main = ticked(contexts.create, "main")
    for n in range(1, 6):
        new = NewTurn(f"m{n}", type_id=f"chat/{n}", type_version=n, encoding=n, flags=n)
        ticked(main.append, new)
    side = ticked(main.fork, at=3, name="side")
    ticked(side.append, b"x" * 400)
    ticked(side.append, NewTurn({"b": 1, "a": [2]}, canonical="eventq-json-1", refs=refs))
    ticked(ticked(contexts.create, "other").append, "o1")
    ticked(contexts.create, "empty")
    ticked(contexts.patch, 2, NewTurn("m2 again", flags=3))
    ticked(contexts.patch, 2, "m2 once more")
    ticked(contexts.tombstone, 4)
    contexts.attach(2, digest(b"kept"))
    contexts.attach(7, digest(b"not here"))
    for name in ("me", "and you: é"):
        thread.blobs.pin(thread.blobs.put(b"kept").hash, name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of the pack of a thread that holds some of everything."""
    at = [BORN / 1000]

    def tick() -> None:
        at[0] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENTQ_NOTIFIER", "none")
        patch.setattr("eventq.system.clock.now", lambda: at[0])
        with eventq.open(eventq.init(tmp_path_factory.mktemp("whole") / "thread")) as thread:
            fill(thread, tick)
            return exported(thread)


@pytest.fixture
def pack(whole: dict[str, bytes], tmp_path: Path) -> Path:
    """Return a copy of that pack, to break."""
    folder = tmp_path / "pack"
    folder.mkdir()
    for name, data in whole.items():
        (folder / name).write_bytes(data)
    return folder


# The bytes.


def test_exact_bytes_of_a_store(thread: eventq.Thread, clock: Clock, tmp_path: Path) -> None:
    """An export is these files, byte for byte, made here with struct alone."""
    long = b"a" * 300
    main = thread.contexts.create("main")
    clock.move(1)
    main.append(NewTurn("one", type_id="chat/é", type_version=3, encoding=9, flags=0x80000001))
    clock.move(1)
    main.append(long)
    clock.move(1)
    fork = main.fork(at=1)
    clock.move(1)
    fork.append(NewTurn("one", type_id=""))
    thread.contexts.create(None)
    thread.contexts.patch(2, "two")
    thread.contexts.tombstone(3, flags=5)
    thread.contexts.attach(2, digest(b"three"))
    clock.move(1)
    thread.blobs.put(b"three", refs=[digest(b"one"), digest(b"two")])
    thread.blobs.pin(digest(b"three"), "pin")
    thread.export_pack(tmp_path / "pack")
    found = tree(tmp_path / "pack")
    assert sorted(found) == FILES
    raws = [(b"one", False), (long, True), (b"two", False), (b"three", False)]
    records = [blob(raw, zstd=zstd) for raw, zstd in raws]
    assert found["blobs.pack"] == b"".join(records)
    assert found["blobs.idx"] == b"".join(
        blob_entry(raw, sum(map(len, records[:n])), zstd=zstd) for n, (raw, zstd) in enumerate(raws)
    )
    assert tag("message").to_bytes(8, "little").hex() == "4bd766dabadb76f2"
    assert found["turns.log"] == (
        turn(1, 0, 0, b"one", at=BORN + 1000, number=tag("chat/é"), encoding=9, flags=0x80000001)
        + turn(2, 1, 1, long, at=BORN + 2000)
        + turn(3, 1, 1, b"one", at=BORN + 4000, number=tag(""))
    )
    assert found["turns.idx"] == struct.pack("<6Q", 1, 0, 2, 80, 3, 160)
    metas = meta(1, "chat/é", 3, 9, 3) + meta(2, "message", 1, 0, 300) + meta(3, "", 1, 0, 3)
    assert found["turns.meta"] == metas
    assert found["heads.tbl"] == (
        head(1, 2, 1) + head(2, 3, 1, at=BORN + 3000) + head(3, 0, 0, at=BORN + 4000)
    )
    one, two, three = (digest(raw).hex() for raw in (b"one", b"two", b"three"))
    beside = "\n".join(
        [
            '{"context":1,"name":"main","fork_of":null,"scope":1}',
            '{"context":2,"name":null,"fork_of":1,"scope":1}',
            '{"context":3,"name":null,"fork_of":null,"scope":3}',
            f'{{"patch":2,"blob":"{two}","flags":0,"created_at_ms":{BORN + 4000}}}',
            f'{{"patch":3,"blob":null,"flags":5,"created_at_ms":{BORN + 4000}}}',
            f'{{"root":2,"hash":"{three}"}}',
            *[f'{{"ref":"{ref}","blob":"{three}"}}' for ref in sorted((one, two))],
            f'{{"pin":"pin","blob":"{three}"}}\n',
        ]
    ).encode()
    assert found["eventq.ndjson"] == beside + sums(metas, beside)
    modes = [(tmp_path / "pack" / name).stat().st_mode & 0o777 for name in (".", *FILES)]
    assert modes == [0o700] + [0o600] * len(FILES)


def test_an_empty_store(fresh: Fresh, tmp_path: Path) -> None:
    """An empty thread exports files without records, which import as nothing."""
    fresh().export_pack(tmp_path / "pack")
    expected = {**dict.fromkeys(FILES, b""), "eventq.ndjson": sums(b"", b"")}
    assert tree(tmp_path / "pack") == expected
    found = fresh().import_pack(tmp_path / "pack")
    assert (added(found), found.notes) == (NOTHING, ())


# There and back.


def test_a_pack_of_another_program(fresh: Fresh, tmp_path: Path) -> None:
    """A foreign pack, with any u64 as context id and any tag, is read and written again."""
    largest, most, late = (1 << 64) - 1, (1 << 32) - 1, (1 << 63) - 1
    ids = [largest, 0x9E3779B97F4A7C15, 7]
    log = (
        turn(1, 0, 0, b"root", at=1, number=largest, encoding=most, flags=most)
        + turn(5, 1, 1, b"a" * 500, at=2, number=0)
        + turn(6, 1, 1, b"", at=3, number=1 << 63)
        + turn(900, 6, 2, b"root", at=late, number=late)
    )
    folder = write(
        tmp_path / "theirs",
        blob=blob(b"root") + blob(b"a" * 500, zstd=True) + blob(b""),
        turn=log,
        head=head(ids[0], 5, 1, at=5) + head(ids[1], 1, 0, at=6, flags=9) + head(ids[1], 900, 2, at=6, flags=9)
        + head(ids[2], 0, 0, at=7),
    )  # fmt: skip
    thread = fresh()
    found = thread.import_pack(folder)
    assert (added(found), len(found.notes)) == ((3, 4, 3, 0), 3)
    for name in ("blobs.idx", "turns.idx", "turns.meta"):
        assert says(found, f"{name}: is missing", "" if name == "turns.meta" else "made anew")
    first, second, third = thread.contexts
    assert (first.head_turn_id, second.head_turn_id, third.head_turn_id) == (5, 900, 0)
    assert (first.head_depth, second.flags, third.created_at_ms) == (1, 9, 7)
    assert payloads(thread, first.context_id) == [b"root", b"a" * 500]
    assert payloads(thread, second.context_id) == [b"root", b"", b"root"]
    last = thread.contexts.turn(900)
    assert (last.parent_turn_id, last.depth, last.type_id, last.created_at_ms) == (6, 2, "", late)
    assert thread.contexts.turn(1).encoding == thread.contexts.turn(1).flags == most
    thread.export_pack(tmp_path / "ours")
    assert (tmp_path / "ours" / "turns.log").read_bytes() == log
    assert (folder / "turns.idx").read_bytes() == struct.pack("<8Q", 1, 0, 5, 80, 6, 160, 900, 240)
    assert tree(folder)["blobs.idx"] == tree(tmp_path / "ours")["blobs.idx"]
    for again in (folder, tmp_path / "ours"):
        assert added(thread.import_pack(again)) == NOTHING


def test_there_and_back(whole: dict[str, bytes], pack: Path, fresh: Fresh) -> None:
    """A pack imported into a fresh thread is exported again with identical bytes."""
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts, found.moved) == ((), 8, 4, 0)
    assert exported(thread) == tree(pack) == whole
    contexts = thread.contexts
    assert [(one.context_id, one.name, one.fork_of) for one in contexts] == [
        (1, "main", None), (2, "side", 1), (3, "other", None), (4, "empty", None),
    ]  # fmt: skip
    begun = [b"m1", b"m2 once more", b"m3"]
    assert payloads(thread, "main") == [*begun, None, b"m5"]
    assert payloads(thread, "side") == [*begun, b"x" * 400, b'{"a":[2],"b":1}']
    assert contexts.turn(7).canonical == "eventq-json-1"
    assert contexts.turn(2, as_of=0).payload == b"m2"
    assert thread.blobs.refs(contexts.turn(7).hash) == [f"blob:blake3:{digest(b'named').hex()}"]
    assert [name for name, _ in thread.blobs.pins()] == ["and you: é", "me"]
    roots = [None, digest(b"kept"), digest(b"kept"), digest(b"not here")]
    assert [contexts.root(turn) for turn in (1, 2, 6, 7)] == roots


def test_large_payloads_there_and_back(fresh: Fresh, tmp_path: Path) -> None:
    """Payloads in parts are exported as one blob each, and imported in parts again."""
    first, second = fresh(), fresh()
    data = [big(300_000), big(300_000)[:200_000] + b"!" + big(300_000)[200_000:], big(3 << 20, 1)]
    context = first.contexts.create("big")
    for one in [*data, os.urandom(2 << 20)]:
        context.append(one)
    first.export_pack(tmp_path / "one")
    assert added(second.import_pack(tmp_path / "one")) == (4, 4, 1, 0)
    assert payloads(second, "big")[:3] == data
    for thread in (first, second):
        assert [thread.blobs.stat(digest(one)).codec for one in data] == ["parts"] * 3
    assert exported(second) == tree(tmp_path / "one")


def contexts_of_one_moment(thread: eventq.Thread, clock: Clock) -> None:
    """Make contexts in one millisecond, with and without turns."""
    main = thread.contexts.create("main")
    thread.contexts.create("empty")
    main.fork(name="fork")
    main.append("1")
    main.fork(name="behind")
    main.append("2")


def twins(thread: eventq.Thread, clock: Clock) -> None:
    """Append turns that are the same in all but the id."""
    for name in "abc":
        context = thread.contexts.create(name)
        clock.move(1)
        context.fork(name=f"{name}2")
    for text in ("hello", "more {}"):
        for name in "abc":
            thread.contexts.get(name).append(text.format(name))


def patches_that_go_back(thread: eventq.Thread, clock: Clock) -> None:
    """Patch a turn to A, to B and to A again in one millisecond."""
    thread.contexts.create("main").append("0")
    for one in "ABA":
        thread.contexts.patch(1, one)


@pytest.mark.parametrize("build", [contexts_of_one_moment, twins, patches_that_go_back])
def test_what_is_alike_stays_apart(
    build: Callable[[eventq.Thread, Clock], None], fresh: Fresh, clock: Clock, tmp_path: Path
) -> None:
    """Rows that differ only in id or order are imported as often as they occur, in order."""
    first, second = fresh(), fresh()
    build(first, clock)
    first.export_pack(tmp_path / "pack")
    clock.move(1)
    found = second.import_pack(tmp_path / "pack")
    assert (found.turns, found.contexts) == (
        len(tree(tmp_path / "pack")["turns.log"]) // 80,
        len(heads(first)),
    )
    for thread in (first, second):
        assert added(thread.import_pack(tmp_path / "pack")) == NOTHING
        assert exported(thread) == tree(tmp_path / "pack")
    for one in heads(first):
        assert payloads(second, one) == payloads(first, one)


def test_twins_under_other_ids(fresh: Fresh, tmp_path: Path) -> None:
    """Twins are imported once each into a thread with its own turns, however often."""
    log = b"".join(turn(n, 0, 0, b"same", at=5) for n in (1, 2, 3)) + turn(4, 2, 1, b"next", at=5)
    table = head(1, 1, 0, at=1) + head(2, 4, 1, at=2) + head(3, 3, 0, at=3)
    folder = write(tmp_path / "pack", blob=blob(b"same") + blob(b"next"), turn=log, head=table)
    thread = fresh()
    thread.contexts.create("mine").append("own")
    assert thread.import_pack(folder).turns == 4
    assert added(thread.import_pack(folder)) == NOTHING
    log = exported(thread)["turns.log"]
    assert [parent for _, parent in struct.iter_unpack("<QQ64x", log)] == [0, 0, 0, 0, 3]


# Again, and into a thread that holds something.


def test_again(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """Importing a pack where it came from, or again, adds nothing and changes nothing."""
    first, second = fresh(), fresh()
    fill(first, lambda: clock.move(1))
    first.export_pack(tmp_path / "pack")
    second.import_pack(tmp_path / "pack")
    for thread in (first, second):
        before = state(thread)
        found = thread.import_pack(tmp_path / "pack")
        assert (added(found), found.notes) == (NOTHING, ())
        assert state(thread) == before


def test_names_stay(fresh: Fresh, tmp_path: Path) -> None:
    """An existing context keeps its lineage; another name is another context."""
    thread = fresh()
    table = head(1, 3, 2, at=1) + head(2, 3, 2, at=2)

    def told(name: str, first: int | None, second: int | None) -> Any:
        beside = line(context=1, name=name, fork_of=first)
        beside += line(context=2, name="side", fork_of=second)
        return thread.import_pack(
            small(tmp_path / f"{name} {first} {second}", 3, head=table, beside=beside)
        )

    told("main", None, 1)
    before = state(thread)
    told("main", 2, None)
    assert state(thread) == before
    assert told("other", None, None).contexts == 1
    assert [info.name for info in thread.contexts] == ["main", "side", "other"]


def test_contexts_of_one_moment_are_told_apart(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """Contexts of one millisecond are distinguished by name, and advance separately."""
    first, second = fresh(), fresh()
    second.contexts.create("own").append("own")
    main = first.contexts.create("main")
    main.append("0")
    with first.write():
        for name in "xyz":
            main.fork(name=name)
    first.export_pack(tmp_path / "one")
    second.import_pack(tmp_path / "one")
    second.contexts.get("x").append("x here")
    for name in "xyz":
        first.contexts.get(name).append(f"{name} there")
    first.export_pack(tmp_path / "two")
    found = second.import_pack(tmp_path / "two")
    assert [payloads(second, name)[1] for name in "xyz"] == [b"x here", b"y there", b"z there"]
    assert (found.contexts, found.moved, len(found.notes)) == (0, 2, 1)


def test_a_collection_beside_an_import(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection during an import causes an error, never missing turns."""
    thread = fresh()
    folder = small(tmp_path / "pack")
    real = PackSource.lines
    collected: list[int] = []
    calls: list[object] = []

    def collect(source: PackSource) -> Any:
        calls.append(source)
        if len(calls) == 2:  # the blobs have come
            with eventq.open(thread.path) as other:
                collected.append(other.gc(apply=True, grace=0).blobs)
        return real(source)

    monkeypatch.setattr(PackSource, "lines", collect)
    with pytest.raises(BusyError, match="a collection deleted"):
        thread.import_pack(folder)
    assert collected == [3]
    assert thread.import_pack(folder).turns == 3


def test_a_thread_that_was_replaced_is_not_exported(tmp_path: Path) -> None:
    """A handle on a deleted thread does not export the one that replaced it."""
    path = eventq.init(tmp_path / "replaced")
    with eventq.open(path) as gone:
        shutil.rmtree(path)
        eventq.init(path)
        with pytest.raises(NotAThreadError):
            gone.export_pack(tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_branches_of_deleted_contexts(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A branch whose context was deleted comes without one while heads.tbl is sound."""
    first, second = fresh(), fresh()
    main = first.contexts.create("main")
    main.append("1")
    clock.move(1)
    fork = main.fork()
    fork.append("2")
    fork.delete()
    first.export_pack(tmp_path / "pack")
    found = second.import_pack(tmp_path / "pack")
    assert (found.notes, added(found)) == ((), (2, 2, 1, 0))
    assert heads(second) == {1: 1}
    assert second.contexts.turn(2).payload == b"2"


def test_ids_anew(pack: Path, fresh: Fresh) -> None:
    """In a thread with its own turns, imported ones get higher ids, once."""
    thread, plain = fresh(), fresh()
    mine = thread.contexts.create("mine")
    for n in range(3):
        mine.append(f"own {n}")
    plain.import_pack(pack)
    before = chain(thread, "mine")
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts) == ((), 8, 4)
    assert chain(thread, "mine") == before
    for name in ("main", "side", "other", "empty"):
        assert chain(thread, name) == chain(plain, name)
    assert heads(thread) == {1: 3, 2: 8, 3: 10, 4: 11, 5: 0}
    assert [thread.contexts.root(n) for n in (5, 10)] == [digest(b"kept"), digest(b"not here")]
    assert len(lines_of(thread, "root")) == 2
    assert [one.fork_of for one in thread.contexts] == [None, None, 2, None, None]
    after = state(thread)
    assert added(thread.import_pack(pack)) == NOTHING
    assert state(thread) == after
    assert mine.append("next").turn_id == 12


def test_a_root_that_is_another_here(fresh: Fresh, tmp_path: Path) -> None:
    """A turn with another root keeps it, with a note; one without gets that of the pack."""
    folder = small(tmp_path / "pack", beside=line(root=1, hash=LOST) + line(root=2, hash=LOST))
    thread, plain = fresh(), fresh()
    thread.import_pack(small(tmp_path / "bare"))
    thread.contexts.attach(1, HASH)
    note = f"turn 1 keeps the root that it has here, {HASH}, not {LOST}"
    for _ in range(2):
        assert [said for said in thread.import_pack(folder).notes if "root" in said] == [note]
        assert not says(plain.import_pack(folder), "root")
    for one, first in ((thread, digest(b"1")), (plain, bytes(32))):
        assert [one.contexts.root(n) for n in (1, 2, 3)] == [first, bytes(32), bytes(32)]
        assert len(lines_of(one, "root")) == 2


def test_a_newer_export(fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A newer export adds to an older one and advances heads; an older one changes nothing."""
    first, second, third = fresh(), fresh(), fresh()
    third.contexts.create("own").append("own")
    fill(first, lambda: clock.move(1))
    first.export_pack(tmp_path / "old")
    second.import_pack(tmp_path / "old")
    third.import_pack(tmp_path / "old")
    clock.move(1)
    first.contexts.get("main").append("m6")
    first.contexts.get("empty").append("e1")
    first.contexts.get("other").fork(name="late")
    first.contexts.patch(1, "m1 again")
    first.export_pack(tmp_path / "new")
    clock.move(1)
    for thread in (second, third):
        found = thread.import_pack(tmp_path / "new")
        assert (found.notes, added(found)) == ((), (3, 2, 1, 2))
        for name in ("main", "side", "other", "empty", "late"):
            assert chain(thread, name) == chain(first, name)
        before = state(thread)
        for name in ("old", "new"):
            again = thread.import_pack(tmp_path / name)
            assert (again.notes, added(again)) == ((), NOTHING)
        assert state(thread) == before
    assert heads(second) == heads(first)
    last = list(second.contexts.history("main"))[-1]
    assert (last.version, last.op, last.old_turn_id, last.new_turn_id) == (1, "import", 5, 9)
    assert last.at_ms == thread.database.milliseconds()


@pytest.mark.parametrize("own", [0, 1])
def test_another_way(own: int, fresh: Fresh, clock: Clock, tmp_path: Path) -> None:
    """A context that diverged stays where it is, with a note."""
    first, second = fresh(), fresh()
    if own:
        second.contexts.create("own").append("own")
    clock.move(1)
    main = first.contexts.create("main")
    main.append("1")
    first.export_pack(tmp_path / "old")
    second.import_pack(tmp_path / "old")
    here = second.contexts.get("main").append("here").turn_id
    clock.move(1)
    main.append("there")
    first.export_pack(tmp_path / "new")
    for turns in (1, 0):
        found = second.import_pack(tmp_path / "new")
        assert (found.turns, found.contexts, found.moved) == (turns, 0, 0)
        assert says(found, f"context {1 + own} ", f"stays at turn {here}", f"turn {here + 1}")
        assert heads(second)[1 + own] == here
    assert second.contexts.turn(here + 1).payload == b"there"


def test_descriptions_later(fresh: Fresh, tmp_path: Path) -> None:
    """A pack without descriptions and then the same with them are the same turns."""
    thread = fresh()
    bare = write(tmp_path / "bare", blob=blob(b"1"), turn=turn(1, 0, 0, b"1"), head=head(1, 1, 0))
    thread.import_pack(bare)
    assert added(thread.import_pack(small(tmp_path / "whole", 1))) == NOTHING


@pytest.mark.parametrize(
    "other",
    [{"encoding": 5}, {"flags": 5}, {"at": 5}, {"number": 5}, {"raw": b"1"}, {"parent": 0, "depth": 0}],
    ids=str,
)  # fmt: skip
def test_what_makes_a_turn(other: dict[str, Any], fresh: Fresh, tmp_path: Path) -> None:
    """Turns that differ in parent, payload, type, time, encoding or flags are different."""
    thread = fresh()
    thread.import_pack(small(tmp_path / "one", 2))
    log = turn(1, 0, 0, b"1") + turn(
        **{"turn_id": 2, "parent": 1, "depth": 1, "raw": b"2", **other}
    )
    found = thread.import_pack(small(tmp_path / "two", 2, turn=log, head=head(1, 2, 1, at=77)))
    assert (found.turns, found.contexts) == (1, 1)
    assert heads(thread) == {1: 2, 2: 3}


# Ids.


def test_appends_after_an_import(pack: Path, fresh: Fresh) -> None:
    """After an import, new ids follow the highest imported one."""
    thread = fresh()
    thread.import_pack(pack)
    assert thread.contexts.create("new").id == 5
    assert thread.contexts.get("new").append("n").turn_id == 9
    assert payloads(thread, "new") == [b"n"]


def test_ids_after_a_collection(pack: Path, fresh: Fresh, clock: Clock) -> None:
    """Collected imports leave their ids unused, also for the same pack again."""
    thread = fresh()
    thread.import_pack(pack)
    clock.move(90_000)
    for one in list(thread.contexts):
        thread.contexts.delete(one.context_id)
    clock.move(90_000)
    assert thread.gc(apply=True, grace=0).turns == 8
    mine = thread.contexts.create("mine")
    assert (mine.id, mine.append("x").turn_id) == (5, 9)
    found = thread.import_pack(pack)
    assert (found.notes, found.turns, found.contexts) == ((), 8, 4)
    assert heads(thread) == {5: 9, 6: 14, 7: 16, 8: 17, 9: 0}
    assert payloads(thread, "main") == [b"m1", b"m2 once more", b"m3", None, b"m5"]
    assert added(thread.import_pack(pack)) == NOTHING


def test_the_largest_ids(fresh: Fresh, tmp_path: Path) -> None:
    """Ids up to 2^62-1 are kept, larger ones given anew, so that there is always a next one."""
    ids = [PAST - 1, PAST, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    log = b"".join(turn(one, [0, *ids][n], n, b"%d" % (n + 1)) for n, one in enumerate(ids))
    table = b"".join(head(one, one, n, at=n) for n, one in enumerate(ids))
    metas = b"".join(meta(one) for one in ids)
    folder = small(tmp_path / "pack", 5, turn=log, head=table, meta=metas)
    thread = fresh()
    assert added(thread.import_pack(folder)) == (5, 5, 5, 0)
    turns = list(thread.contexts.at(PAST + 3).replay())
    assert [one.turn_id for one in turns] == [PAST - 1 + n for n in range(5)]
    assert [one.payload for one in turns] == [b"1", b"2", b"3", b"4", b"5"]
    assert {one.type_id for one in turns} == {"message"}
    assert heads(thread) == {PAST - 1 + n: PAST - 1 + n for n in range(5)}
    assert added(thread.import_pack(folder)) == NOTHING
    assert thread.contexts.get(PAST + 3).append("next").turn_id == PAST + 4
    assert thread.contexts.create().id == PAST + 4


def test_an_append_after_a_torn_log(fresh: Fresh, tmp_path: Path) -> None:
    """After a torn tail an append stores its turn after what was kept, and both read right."""
    folder = small(tmp_path / "pack", 5)
    os.truncate(folder / "turns.log", 3 * 80 + 79)
    thread = fresh()
    thread.import_pack(folder)
    new = thread.contexts.get(1).append("new")
    for _ in range(2):
        assert payloads(thread, 1) == [b"1", b"2", b"3", b"new"]
        assert thread.contexts.turn(new.turn_id).payload == b"new"
        thread.import_pack(small(tmp_path / f"sound {_}", 5))


@pytest.mark.parametrize(
    ("name", "size"), [("turns.log", 4 * 80 + 79), ("blobs.pack", 5 * len(blob(b"1")) - 1)]
)
def test_ids_of_what_was_left_out(name: str, size: int, fresh: Fresh, tmp_path: Path) -> None:
    """The id of a lost turn that the pack names is not given to a new turn."""
    folder = small(tmp_path / "pack", 5)
    os.truncate(folder / name, size)
    thread = fresh()
    assert thread.import_pack(folder).turns == 4
    assert thread.contexts.get(1).append("new").turn_id > 5


# Damage.


def test_a_torn_log(pack: Path, fresh: Fresh) -> None:
    """Before a tear in turns.log everything is kept; importing the whole pack repairs it."""
    flip(pack / "turns.log", 4 * 80 + 40)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (4, 2)
    assert says(found, "turns.log", "4 records after byte 320", "dropped", "damaged")
    for context, at in ((1, 5), (2, 7), (3, 8)):
        assert says(found, "heads.tbl", f"context {context}, turn {at}, is not in turns.log")
    assert says(found, "heads.tbl: no head is left for turn 4")
    assert says(found, "turns.idx: disagrees with turns.log from entry 4")
    assert heads(thread) == {4: 0, 5: 4}
    assert payloads(thread, 5) == [b"m1", b"m2 once more", b"m3", None]
    assert added(thread.import_pack(pack)) == NOTHING


def test_the_only_context_lost(fresh: Fresh, tmp_path: Path) -> None:
    """A head beyond the log leaves its context at the log's end, with its id and name."""
    folder = small(
        tmp_path / "pack", head=head(44, 99, 98, at=123, flags=6), beside=line(context=44, name="mine")
    )  # fmt: skip
    thread = fresh()
    found = thread.import_pack(folder)
    assert says(found, "heads.tbl", "context 44, turn 99, is not in turns.log")
    assert says(found, "heads.tbl", "no head is left for turn 3: context 44 stands at it")
    (info,) = thread.contexts
    assert (info.context_id, info.head_turn_id, info.created_at_ms) == (44, 3, 123)
    assert (info.flags, info.name) == (6, "mine")
    assert added(thread.import_pack(folder)) == NOTHING


@pytest.mark.parametrize(
    "last", [head(1, 99, 98), head(1, 3, 2)[:-1] + b"\0"], ids=["beyond", "damaged"]
)
def test_the_head_before(last: bytes, fresh: Fresh, tmp_path: Path) -> None:
    """If the last head of a context is missing or damaged, the one before it counts."""
    folder = small(tmp_path / "pack", head=head(1, 1, 0) + head(1, 2, 1) + last)
    thread = fresh()
    found = thread.import_pack(folder)
    assert heads(thread)[1] == 2
    assert says(found, "heads.tbl: ")
    assert 3 in heads(thread).values()  # the branch that no head is left for
    assert added(thread.import_pack(folder)) == NOTHING


def test_the_last_head_counts(fresh: Fresh, tmp_path: Path) -> None:
    """The last of several sound records of a context counts."""
    table = head(1, 3, 2) + head(2, 99, 98, at=5) + head(2, 3, 2, at=5) + head(1, 2, 1)
    thread = fresh()
    found = thread.import_pack(small(tmp_path / "pack", head=table))
    assert found.contexts == 2
    assert not says(found, "heads.tbl")
    assert heads(thread) == {1: 2, 2: 3}


@pytest.mark.parametrize("at", range(36))
def test_a_flipped_byte_in_a_head(at: int, pack: Path, fresh: Fresh) -> None:
    """A damaged head is reported; its branch gets a new context."""
    flip(pack / "heads.tbl", at)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts, found.moved) == (8, 4, 0)
    assert says(found, "heads.tbl: 1 record after byte 0 was skipped: damaged")
    assert says(found, "heads.tbl: no head is left for turn 5: context 5 stands at it")
    assert heads(thread) == {2: 7, 3: 8, 4: 0, 5: 5}
    assert [one.name for one in thread.contexts] == ["side", "other", "empty", None]
    assert added(thread.import_pack(pack)) == NOTHING


@pytest.mark.parametrize("how", ["lost", "empty"])
def test_heads_lost(how: str, pack: Path, fresh: Fresh) -> None:
    """Without heads.tbl, or with an empty one, every branch gets a context of its own, once."""
    (pack / "heads.tbl").unlink()
    if how == "empty":
        (pack / "heads.tbl").touch()
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (8, 3)
    assert sorted(heads(thread).values()) == [5, 7, 8]
    for tip in (5, 7, 8):
        assert says(found, f"heads.tbl: no head is left for turn {tip}")
    assert says(found, "heads.tbl: is missing") == (how == "lost")
    assert payloads(thread, min(heads(thread))) == [b"m1", b"m2 once more", b"m3", None, b"m5"]
    assert added(thread.import_pack(pack)) == NOTHING
    thread.contexts.get(min(heads(thread))).append("on")
    assert added(thread.import_pack(pack)) == NOTHING


def test_a_damaged_head_of_a_context_that_is_here(pack: Path, fresh: Fresh) -> None:
    """A branch that a context here stands on needs no other one when the pack's head is damaged."""
    thread = fresh()
    thread.import_pack(pack)
    flip(pack / "heads.tbl", 0)
    assert added(thread.import_pack(pack)) == NOTHING
    assert heads(thread) == {1: 5, 2: 7, 3: 8, 4: 0}


@pytest.mark.parametrize("time", [1 << 63, (1 << 64) - 1])
def test_a_head_of_no_time(time: int, fresh: Fresh, tmp_path: Path) -> None:
    """A head whose time does not fit is left out, and its branch is kept."""
    folder = small(tmp_path / "pack", head=head(1, 3, 2, at=time))
    thread = fresh()
    found = thread.import_pack(folder)
    assert says(found, "heads.tbl: ")
    assert not says(found, "is not in turns.log")
    assert list(heads(thread).values()) == [3]
    assert added(thread.import_pack(folder)) == NOTHING


BAD_INDEXES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "torn": lambda data: data[:-3],
    "flipped": lambda data: data[:40] + b"\xff" + data[41:],
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("name", ["blobs.idx", "turns.idx"])
@pytest.mark.parametrize("how", ["lost", "a folder", *BAD_INDEXES])
def test_indexes(name: str, how: str, whole: dict[str, bytes], pack: Path, fresh: Fresh) -> None:
    """An index that is lost or damaged costs nothing: it is said, and made anew as it was."""
    (pack / name).unlink()
    if how == "a folder":
        (pack / name).mkdir()
    elif how != "lost":
        (pack / name).write_bytes(BAD_INDEXES[how](whole[name]))
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts, len(found.notes)) == (8, 4, 1)
    assert says(found, f"{name}: {'disagrees with' if how in BAD_INDEXES else 'is missing'}")
    if how == "a folder":
        assert says(found, "was not made anew")
    else:
        assert says(found, "both indexes were made anew")
        assert tree(pack) == whole
        assert thread.import_pack(pack).notes == ()


@pytest.mark.parametrize("how", ["read-only", "in the way"])
def test_indexes_that_cannot_be_written(
    how: str, pack: Path, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost index in a folder that cannot be written is said, and costs nothing."""
    (pack / "turns.idx").unlink()
    thread = fresh()
    real = os.open

    def refuse(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_CREAT and os.fspath(path).startswith(str(pack)):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *more)

    if how == "in the way":
        (pack / "turns.idx.part").mkdir()
    else:
        monkeypatch.setattr(os, "open", refuse)
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts, len(found.notes)) == (8, 4, 1)
    assert says(found, "turns.idx: is missing", "was not made anew")


def test_blob_tail_lost(fresh: Fresh, tmp_path: Path) -> None:
    """A turn whose payload was lost is left out with its descendants; the blobs stay."""
    beside = line(patch=3, blob=None, flags=0, created_at_ms=1)
    folder = small(tmp_path / "pack", 4, beside=beside)
    os.truncate(folder / "blobs.pack", 3 * len(blob(b"1")) - 1)
    thread = fresh()
    found = thread.import_pack(folder)
    assert added(found) == (2, 2, 1, 0)
    assert says(found, "blobs.pack", "dropped: the record there is torn")
    assert says(found, "turns.log: turn 3 was left out", digest(b"3").hex())
    assert says(found, "turns.log: turn 4 was left out: its parent, turn 3, is not there")
    assert says(found, "heads.tbl", "turn 4")
    assert says(found, "eventq.ndjson: ")
    assert heads(thread) == {1: 2}
    later = thread.import_pack(small(tmp_path / "whole", 4))
    assert (later.turns, later.contexts, later.moved) == (2, 0, 1)
    assert payloads(thread, 1) == [b"1", b"2", b"3", b"4"]


def test_first_blob_bad(pack: Path, fresh: Fresh) -> None:
    """The first record of blobs.pack bad costs the turns that need it, and no other."""
    first = [b"named", b"m1"].index  # in the order they were stored
    flip(pack / "blobs.pack", len(blob(b"named")) * first(b"m1") + 20)
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (1, 2)
    assert says(found, "blobs.pack", f"after byte {len(blob(b'named'))}", "damaged")
    assert says(found, "turns.log: turn 1 was left out", digest(b"m1").hex())
    assert says(found, "turns.log: turn 7 was left out: its parent, turn 6")
    assert {one.name: one.head_turn_id for one in thread.contexts} == {"other": 8, "empty": 0}
    assert thread.blobs.has(digest(b"x" * 400))


@pytest.mark.parametrize(
    ("codec", "raw_len", "stored"), [(0, 1, b"?"), (0, 2, b"1"), (1, 1, b"no frame")]
)
def test_a_blob_that_is_not_its_hash(
    codec: int, raw_len: int, stored: bytes, fresh: Fresh, tmp_path: Path
) -> None:
    """A blob that does not match its hash is left out, and so is its turn."""
    bad = kept_blob(digest(b"1"), codec, raw_len, stored)
    log = turn(1, 0, 0, b"1") + turn(2, 0, 0, b"2")
    folder = write(tmp_path / "pack", blob=bad + blob(b"2"), turn=log, head=head(1, 2, 0))
    thread = fresh()
    found = thread.import_pack(folder)
    assert added(found) == (1, 1, 1, 0)
    assert says(found, "blobs.pack: the record at byte 0 was left out", digest(b"1").hex())
    assert says(found, "turns.log: turn 1 was left out")
    assert heads(thread) == {1: 2}


def test_first_turn_bad(pack: Path, fresh: Fresh) -> None:
    """The first record of turns.log bad costs all turns; blobs and empty contexts stay."""
    flip(pack / "turns.log", 0)
    thread = fresh()
    found = thread.import_pack(pack)
    assert added(found) == (12, 0, 1, 0)
    assert says(found, "turns.log: 8 records after byte 0 were dropped")
    assert [one.name for one in thread.contexts] == ["empty"]
    assert len(thread.blobs.pins()) == 2


def test_first_description_bad(pack: Path, fresh: Fresh, whole: dict[str, bytes]) -> None:
    """A bad first record of turns.meta costs names of types, but no turn."""
    data = whole["turns.meta"]
    (pack / "turns.meta").write_bytes(data[:8] + b"\xff\xff\xff\xff" + data[12:])
    thread = fresh()
    found = thread.import_pack(pack)
    assert (found.turns, found.contexts) == (8, 4)
    assert says(found, "turns.meta", "after byte 0", "dropped")
    assert thread.contexts.turn(1).type_id == ""
    assert exported(thread)["turns.log"] == whole["turns.log"]


CHAIN = turn(1, 0, 0, b"1") + turn(2, 1, 1, b"2")
LAST = (1 << 64) - 1
BAD_TURNS = [  # parent, depth, payload, time, what is said
    (6, 2, b"3", BORN, "its parent, turn 6, is not there"),
    (7, 2, b"3", BORN, "its parent, turn 7, is not there"),
    (8, 2, b"3", BORN, "its parent, turn 8, is not there"),
    (2, 2, b"lost", BORN, digest(b"lost").hex()),
    (2, 1, b"3", BORN, "its depth, 1, does not follow"),
    (2, 3, b"3", BORN, "its depth, 3, does not follow"),
    (2, (1 << 32) - 1, b"3", BORN, "its depth, 4294967295, does not follow"),
    (0, 1, b"3", BORN, "its depth, 1, does not follow"),
    (2, 2, b"3", 1 << 63, f"its time, {1 << 63}, is none"),
    (2, 2, b"3", LAST, f"its time, {LAST}, is none"),
]


@pytest.mark.parametrize(("parent", "depth", "raw", "at", "why"), BAD_TURNS)
def test_a_turn_that_cannot_be(
    parent: int, depth: int, raw: bytes, at: int, why: str, fresh: Fresh, tmp_path: Path
) -> None:
    """An impossible turn is left out and named, with its descendants."""
    log = CHAIN + turn(7, parent, depth, raw, at=at) + turn(9, 7, 3, b"3") + turn(10, 2, 2, b"4")
    table = head(1, 9, 3) + head(2, 10, 2, at=5)
    folder = small(tmp_path / "pack", 4, turn=log, head=table, meta=b"")
    thread = fresh()
    found = thread.import_pack(folder)
    assert says(found, "turns.log: turn 7 was left out: ", why)
    assert says(found, "turns.log: turn 9 was left out: its parent, turn 7, is not there")
    assert says(found, "heads.tbl: the head of context 1, turn 9, is not in turns.log")
    assert (found.turns, found.contexts) == (3, 1)
    assert payloads(thread, 2) == [b"1", b"2", b"4"]
    assert added(thread.import_pack(folder)) == NOTHING


@pytest.mark.parametrize("turn_id", [2, 1, 0])
def test_ids_that_go_back(turn_id: int, fresh: Fresh, tmp_path: Path) -> None:
    """A turn whose id is not above the one before it is left out; the one that came first stays."""
    log = CHAIN + turn(turn_id, 0, 0, b"3") + turn(5, 2, 2, b"4")
    thread = fresh()
    found = thread.import_pack(small(tmp_path / "pack", 4, turn=log, head=head(1, 5, 2), meta=b""))
    assert says(found, f"turn {turn_id} was left out: its id is not above the one before it")
    assert found.turns == 3
    assert payloads(thread, 1) == [b"1", b"2", b"4"]


def test_descriptions_that_disagree(fresh: Fresh, tmp_path: Path) -> None:
    """turns.log decides where turns.meta disagrees; a name with another tag is kept."""
    told = meta(1, "other", 5, 77, 99) + meta(2) + meta(2, "twice") + meta(50, "nobody's")
    log = turn(1, 0, 0, b"1", encoding=3) + turn(2, 1, 1, b"2") + turn(3, 2, 2, b"3")
    thread = fresh()
    assert thread.import_pack(small(tmp_path / "pack", meta=told, turn=log)).turns == 3
    first, second, third = thread.contexts.get(1).replay()
    assert (first.type_id, first.type_version, first.encoding, first.size) == ("other", 5, 3, 1)
    assert (second.type_id, third.type_id, third.type_version) == ("message", "", 0)
    assert exported(thread)["turns.log"] == log


HASH, LOST = digest(b"1").hex(), "0" * 64


@pytest.mark.parametrize(
    "name", ["blobs.pack", "turns.log", "turns.meta", "heads.tbl", "eventq.ndjson"]
)
@pytest.mark.parametrize("there", [False, True])
def test_a_file_that_is_none(name: str, there: bool, fresh: Fresh, tmp_path: Path) -> None:
    """A missing file is reported; what the others prove is imported."""
    folder = small(tmp_path / "pack")
    (folder / name).unlink()
    if there:
        (folder / name).mkdir()
    thread = fresh()
    found = thread.import_pack(folder)
    if there or name != "eventq.ndjson":  # other programs write none
        assert says(found, f"{name}: is {'not a file' if there else 'missing'}")
    lost = {"blobs.pack": (0, 0), "turns.log": (3, 0)}
    assert added(found)[:2] == lost.get(name, (3, 3))
    sound = small(tmp_path / "sound")
    assert added(thread.import_pack(sound))[:2] == tuple(3 - n for n in added(found)[:2])
    assert added(thread.import_pack(sound)) == NOTHING


# Export.


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_a_disk_that_refuses(
    call: str, there: bool, thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that fails at any step leaves nothing behind, and can be repeated."""
    thread.contexts.create("main").append("x")
    thread.artifacts.put(b"an artifact", "bash")
    real = getattr(os, call)
    for number in count(1):
        folder = tmp_path / f"pack {number}"
        if there:
            folder.mkdir()
            (folder / "notes.txt").write_bytes(b"my notes")
        calls: list[Any] = []

        def refuse(*given: Any, calls: list[Any] = calls, number: int = number, **more: Any) -> Any:
            calls.append(given)
            if len(calls) >= number:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*given, **more)

        monkeypatch.setattr(os, call, refuse)
        try:
            thread.export_pack(folder)
            refused = False
        except DiskError as error:
            refused = "No space left on device" in error.what
        monkeypatch.setattr(os, call, real)
        if refused:
            assert tree(folder) == {"notes.txt": b"my notes"} if there else not folder.exists()
            thread.export_pack(folder)
        assert {*tree(folder)} - {"notes.txt"} == {*FILES, "artifacts/0.bash.log"}
        if len(calls) < number:
            break
    assert number > {"fsync": 10, "rename": 7, "mkdir": 2}[call]


def test_one_moment(thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while an export runs is not in it, between any two of its tables."""
    thread.contexts.create("main").append("before")
    disturbed = []
    with eventq.open(thread.path) as other:
        for name in ("blob", "turn", "meta", "head", "beside"):
            real = getattr(packfile.PackWriter, name)

            def late(
                pack: Any, record: Any, real: Callable[..., Any] = real, name: str = name
            ) -> Any:
                disturbed.append(name)
                late = other.contexts.get("main").append(f"late {name}")
                other.contexts.patch(1, f"over {name}")
                other.contexts.get("main").fork()
                other.blobs.pin(late.hash, name)
                return real(pack, record)

            monkeypatch.setattr(packfile.PackWriter, name, late)
        thread.export_pack(tmp_path / "pack")
    assert disturbed == ["blob", "turn", "meta", "head", "beside"]  # each once
    found = tree(tmp_path / "pack")
    assert found["blobs.pack"] == blob(b"before")
    assert (len(found["turns.log"]), len(found["heads.tbl"])) == (80, 36)
    told = b'{"context":1,"name":"main","fork_of":null,"scope":1}\n'
    assert found["eventq.ndjson"] == told + sums(meta(1, length=6), told)
    assert len(payloads(thread, "main")) == 6


def start(code: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a program."""
    env = {**os.environ, "PYTHONPATH": ROOT, "EVENTQ_NOTIFIER": "none"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, *words], stdin=pipe, stdout=pipe, env=env)


def test_read_only(pack: Path, fresh: Fresh, tmp_path: Path) -> None:
    """A thread that was opened to read exports, and does not import."""
    thread = fresh()
    thread.import_pack(pack)
    with eventq.open(thread.path, read_only=True) as reader:
        reader.export_pack(tmp_path / "out")
        with pytest.raises(ReadOnlyError):
            reader.import_pack(pack)
    assert tree(tmp_path / "out") == tree(pack)


def test_into_its_own_folder(thread: eventq.Thread) -> None:
    """An export into the thread's own folder is refused, however it is spelled."""
    before = tree(thread.path).keys()
    for folder in (".", "run", "new", "../thread/logs/x"):
        with pytest.raises(LogicError, match="is inside the thread"):
            thread.export_pack(os.path.join(thread.path, folder))
    assert tree(thread.path).keys() == before


def test_inside_a_transaction(fresh: Fresh, tmp_path: Path) -> None:
    """An export inside `write` holds what was committed; an import inside one goes with it."""
    thread, other = fresh(), fresh()
    thread.contexts.create("main").append("1")
    with pytest.raises(ZeroDivisionError), thread.write():
        thread.contexts.get("main").append("2")
        thread.export_pack(tmp_path / "pack")
        raise ZeroDivisionError
    assert (tmp_path / "pack" / "turns.log").stat().st_size == 80
    before = state(other)
    with pytest.raises(ZeroDivisionError), other.write():
        assert other.import_pack(tmp_path / "pack").turns == 1
        raise ZeroDivisionError
    assert state(other) == before
    with other.write():
        other.import_pack(tmp_path / "pack")
    assert payloads(other, "main") == [b"1"]


@pytest.mark.parametrize("where", ["missing/pack", "file", "file/pack", "a" * 300])
def test_nowhere_to_export(where: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """A folder that cannot be made is an error that names it, and nothing is left."""
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(DiskError, match=where):
        thread.export_pack(tmp_path / where)
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert not (tmp_path / "missing").exists()


NO_PACKS: dict[str, Callable[[Path], object]] = {
    "missing": lambda folder: None,
    "a file": lambda folder: folder.write_bytes(b"mine"),
    "empty": write,
    "only heads": lambda folder: write(folder, head=head(1, 0, 0)),
    "a pipe": lambda folder: os.mkfifo(write(folder) / "turns.log"),
    "a loop": lambda folder: os.symlink("turns.log", write(folder) / "turns.log"),
}


@pytest.mark.parametrize("kind", NO_PACKS)
def test_no_pack(kind: str, thread: eventq.Thread, tmp_path: Path) -> None:
    """What is no pack is refused by an error that names it, and nothing is stored."""
    NO_PACKS[kind](tmp_path / "pack")
    with pytest.raises(LogicError, match=rf"'{tmp_path / 'pack'}' holds no pack"):
        thread.import_pack(tmp_path / "pack")
    assert heads(thread) == {}


@pytest.mark.parametrize(
    "name", ["blobs.pack", "turns.log", "turns.meta", "heads.tbl", "eventq.ndjson"]
)
def test_a_file_that_cannot_be_read(name: str, fresh: Fresh, tmp_path: Path) -> None:
    """A file that the system refuses to read is an error that names it, and no turn is stored."""
    folder = small(tmp_path / "pack")
    fresh().import_pack(folder)  # makes the indexes
    (folder / name).unlink()
    (folder / name).symlink_to(name)  # a loop: refused to root as well
    thread = fresh()
    with pytest.raises(DiskError, match=name):
        thread.import_pack(folder)
    assert (exported(thread)["turns.log"], heads(thread)) == (b"", {})


# Several transactions, and several processes.


def test_blobs_come_some_at_once(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is stopped among its blobs has kept those before, but for some MiB."""
    raws = [os.urandom(3 << 20) for _ in range(3)]
    folder = small(tmp_path / "pack", blob=b"".join(blob(raw) for raw in raws))
    thread = fresh()
    real, calls = Blobs.put, []

    def stop(self: Blobs, data: bytes) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, data)

    monkeypatch.setattr(Blobs, "put", stop)
    with pytest.raises(KeyboardInterrupt):
        thread.import_pack(folder)
    assert [thread.blobs.has(digest(raw)) for raw in raws] == [True, True, False]


IMPORTER = """
import sys, eventq
with eventq.open(sys.argv[1]) as thread:
    sys.stdin.read(1)
    found = thread.import_pack(sys.argv[2])
print(found.blobs, found.turns, found.contexts, found.moved)
"""


def test_two_imports_at_once(pack: Path, path: str, whole: dict[str, bytes]) -> None:
    """Two processes that import the same pack at the same time bring everything once."""
    both = [start(IMPORTER, path, str(pack)) for _ in range(2)]
    told = [[int(word) for word in one.communicate(b"g", timeout=120)[0].split()] for one in both]
    assert [sum(pair) for pair in zip(*told, strict=True)] == [12, 8, 4, 0]
    with eventq.open(path) as thread:
        assert thread.check() == []
        again = exported(thread)
    assert again["turns.log"] == whole["turns.log"]
    assert again["heads.tbl"] == whole["heads.tbl"]
