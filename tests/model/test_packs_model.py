"""Packs of random trees, sound and damaged: what comes in is what was there, or less."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventq
from eventq import EventqError
from eventq.records.turn import NewTurn
from eventq.store.copy_rows import RootCopy
from tests.contract.pack_files import FILES, NOTHING, added, tree
from tests.model.support import bounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.store.copy_rows import TurnCopy

KINDS = [*["append"] * 4, "create", "fork", "move", "patch", "attach", "delete", "pin"]
STEP = st.tuples(st.sampled_from(KINDS), st.integers(0, 50), st.integers(0, 6))
STEPS = st.lists(STEP, min_size=1, max_size=25)
WOUNDS = st.sampled_from(["flip", "cut", "lose", "insert", "remove"])
WOUND = st.tuples(st.sampled_from(FILES), WOUNDS, st.integers(0, 1 << 30))
DAMAGE = st.lists(WOUND, min_size=1, max_size=4)
once = bounded(15)


def all_turns(thread: eventq.Thread) -> list[TurnCopy]:
    """Return all turns."""
    with thread.database.memory.read() as moment:
        return list(moment.copies.select(None).turns())


@pytest.fixture
def folder() -> Iterator[str]:
    """Return a folder for all the threads of one test."""
    made = tempfile.mkdtemp()
    yield made
    shutil.rmtree(made)


@contextmanager
def two(folder: str, own: bool) -> Iterator[tuple[eventq.Thread, eventq.Thread, list[float], str]]:
    """Yield two fresh threads, what the clock says, and a folder; the second may have a turn."""
    at, place = [1_000_000.0], tempfile.mkdtemp(dir=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eventq.system.clock.now", lambda: at[0])
        paths = [eventq.init(os.path.join(place, name)) for name in ("first", "second")]
        with eventq.open(paths[0]) as first, eventq.open(paths[1]) as second:
            if own:
                second.contexts.create("own").append("own")
                at[0] += 1
            yield first, second, at, place
            assert first.check() == second.check() == []


def grow(thread: eventq.Thread, steps: list[tuple[str, int, int]], at: list[float]) -> None:
    """Make what the steps say; every one has a time of its own, so that nothing is a twin."""
    contexts = thread.contexts
    if not list(contexts):
        contexts.create("first")
    for what, which, value in steps:
        at[0] += 1
        ids = [one.context_id for one in contexts]
        turns = [one.turn for one in all_turns(thread)]
        if what == "create" or not ids:
            contexts.create(
                f"name-{at[0]:.0f}" if value % 2 else None,
                base=turns[which % len(turns)] if turns else 0,
            )
            continue
        context = contexts.get(ids[which % len(ids)])
        if what == "append":
            parent = turns[which * 7 % len(turns)] if turns and value == 6 else None
            context.append(
                NewTurn(f"{value}" * (value * 30), type_id=f"t/{value % 3}", flags=value),
                parent=parent,
            )
        elif what == "fork":
            context.fork()
        elif what == "delete":
            context.delete()
        elif what == "move" and turns:
            context.move(turns[which % len(turns)])
        elif what == "patch" and turns:
            if value % 2:
                contexts.tombstone(turns[which % len(turns)])
            else:
                contexts.patch(turns[which % len(turns)], f"over {value}")
        elif what == "attach" and turns:
            turn = turns[which % len(turns)]
            # Always the same, as a turn that has another root keeps it.
            contexts.attach(turn, bytes([turn % 256]) * 32)
        elif what == "pin":
            thread.blobs.pin(thread.blobs.put(b"%d" % which).hash, f"pin {value}")


def chains(thread: eventq.Thread) -> set[tuple[Any, ...]]:
    """Return every turn with what is above it, ids left out."""
    found: dict[int, tuple[Any, ...]] = {0: ()}
    for turn in all_turns(thread):
        found[turn.turn] = (hash(found[turn.parent]), turn[2:])
    return set(found.values())


def payloads(thread: eventq.Thread) -> set[tuple[bytes, int, int]]:
    """Return payload, flags and time of every turn."""
    return {(one.digest, one.flags, one.at) for one in all_turns(thread)}


def rooted(thread: eventq.Thread) -> set[tuple[int, bytes]]:
    """Return the time of every turn with a root, and that."""
    with thread.database.memory.read() as moment:
        roots = list(moment.copies.select(None).records(RootCopy))
    return {(thread.contexts.turn(turn, payload=False).created_at_ms, root) for turn, root in roots}


def damage(folder: str, wounds: list[tuple[str, str, int]]) -> None:
    """Break files of a pack."""
    for name, how, where in wounds:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            continue
        with open(path, "rb") as file:
            data = bytearray(file.read())
        at = where % (len(data) + 1)
        if how == "lose":
            os.unlink(path)
            continue
        if how == "flip" and at < len(data):
            data[at] ^= 1 << (where >> 8) % 8
        elif how == "cut":
            del data[at:]
        elif how == "insert":
            data[at:at] = os.path.basename(path).encode()
        elif how == "remove":
            del data[at : at + 7]
        with open(path, "wb") as file:
            file.write(data)


@once
@given(STEPS, STEPS, st.booleans())
def test_random_trees(folder: str, steps: list[Any], more: list[Any], own: bool) -> None:
    """A tree comes over whole, once, also in two exports, and goes on as the same bytes."""
    with two(folder, own) as (first, second, at, place):
        old, new, again = (os.path.join(place, name) for name in ("old", "new", "again"))
        grow(first, steps, at)
        first.export_pack(old)
        found = second.import_pack(old)
        assert found.notes == () or not any(one.head_turn_id for one in first.contexts)
        assert chains(first) <= chains(second)
        assert len(chains(second)) == len(chains(first)) + own
        assert rooted(first) == rooted(second)
        names = {one.name: one.head_depth for one in first.contexts if one.name}
        assert names.items() <= {one.name: one.head_depth for one in second.contexts}.items()
        if not own and not found.notes:
            second.export_pack(again)
            assert tree(again) == tree(old)
        twice = first.import_pack(old)
        assert (twice.blobs, twice.turns, twice.moved) == (0, 0, 0)
        assert added(second.import_pack(old)) == NOTHING
        at[0] += 1
        grow(first, [step for step in more if step[0] != "delete"], at)
        first.export_pack(new)
        second.import_pack(new)
        assert chains(first) <= chains(second)
        assert rooted(first) == rooted(second)
        assert (second.import_pack(new).turns, second.import_pack(old).turns) == (0, 0)


@once
@given(STEPS, DAMAGE, st.booleans())
def test_random_damage(folder: str, steps: list[Any], wounds: list[Any], own: bool) -> None:
    """From a damaged pack nothing comes in that was not in it, once, and it checks out."""
    with two(folder, own) as (first, second, at, place):
        before = chains(second)
        grow(first, steps, at)
        pack, sound = os.path.join(place, "pack"), os.path.join(place, "sound")
        first.export_pack(sound)
        shutil.copytree(sound, pack)
        damage(pack, wounds)
        changed = tree(pack) != tree(sound)
        try:
            found = second.import_pack(pack)
        except EventqError as error:
            assert "holds no pack" in error.what  # noqa: PT017
            assert not {"blobs.pack", "turns.log"} & set(os.listdir(pack))
            return
        assert changed or found.notes == () or not list(first.contexts)
        assert all(note.partition(":")[0] in (*FILES, note) for note in found.notes)
        lost = {name for name, how, _ in wounds if how == "lose" and name not in os.listdir(pack)}
        told = {note.partition(":")[0] for note in found.notes}
        assert lost - {"eventq.ndjson", "blobs.idx", "turns.idx"} <= told
        came = chains(second) - before
        if not any(name in ("turns.meta", "eventq.ndjson") for name, _, _ in wounds):
            assert came <= chains(first)
        else:  # type names and rules may be lost
            assert len({one[1][2:] for one in came if one}) <= len(chains(first))
        assert second.check() == []
        assert added(second.import_pack(pack)) == NOTHING
        second.import_pack(sound)
        assert payloads(first) <= payloads(second)
        last = max((one.turn for one in all_turns(second)), default=0)
        assert second.contexts.create().append("next").turn_id > last
