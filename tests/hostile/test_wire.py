"""Rubbish on both sides of a connection: see `fuzz_wire`, which says what is held of each input."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eventq.errors import EventqError
from eventq.wire import client, frames, remote, server
from eventq.wire.frames import Called, GetHead, Type
from tests.conftest import ROOT
from tests.hostile import fuzz_wire
from tests.hostile.fuzz_wire import Peer, Scripted, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = settings(
    max_examples=800, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)  # fmt: skip
SOAK_SECONDS = 3600
TARGETS = {"server": (fuzz_wire.feed, 60_000), "client": (fuzz_wire.feed_client, 100_000)}


def long_tape(flags: int, seed: int, size: int) -> bytes:
    """Return an input that is longer than hypothesis makes them."""
    return bytes([flags]) + Random(seed).randbytes(size)


TAPES = st.binary(max_size=200) | st.builds(
    long_tape,
    st.integers(0, 255),
    st.integers(0, 1 << 32),
    st.sampled_from((20, 100, 400, 1500, 3000)),
)

# Inputs that once did harm, as the tape is read today, by what they did.
FOUND = {
    "a time to read that did not end with the reading": (
        "server",
        "4a005d00005662000000004fd602000000f5000087000000000000f00000ff000000000000000000f400009700000000002f3d00000000000000000087000000000000000000000000961e00000000000000000000000000000000000000000000000000000000000000000000360000cb0000000000000000000000000000000034efd30000000000000000000000000000000000000000350000000007000000000000000000b767",
    ),
    "a fork of a context that is not there": (
        "server",
        "0000f500b50000c7000000000000004a00000000000000dc00000000000000000000000000000000cb000000000000daec00000000000000ac",
    ),
    "an owner of a pin that is a list": (
        "server",
        "00000047f50000000000000000000018000000000000000000000000c01f00000004df9b000000000000b800000000000000211b00002d5fe3",
    ),
    "peers that have more on the way than may be held": (
        "server",
        "e8ab00546b0000000000000000000000000000000f0000000000000000001800000000004900000000006b0000af000000fb558fdab100000000000000000000000000000000000000000000000000000000000000000000000000000000e7000000d4000000000000000000000000000000004d0000000000000000000000002700000000000000d4ad0000000000000000000000000000000000000000000000000000000000bf1f000000000000000000000000c700000000000000df00000000000000000000000000008500000000000000000b004781000000000000002c00000000000099000000000078000000004e8800000000004e00000000000000000000000057fb0017de0000000053",
    ),
}


@QUICK
@given(TAPES)
def test_the_server_answers_any_bytes_or_hangs_up(data: bytes) -> None:
    """For any input, a server sends replies, ERROR or closes, within its memory limits."""
    fuzz_wire.feed(data)


@QUICK
@given(TAPES)
def test_the_client_understands_any_bytes_or_raises(data: bytes) -> None:
    """For any reply, a client returns a value or raises an EventqError, and never hangs."""
    fuzz_wire.feed_client(data)


@pytest.mark.parametrize("name", FOUND)
def test_an_input_that_did_harm_does_none(name: str) -> None:
    """What was found once is not found again."""
    target, data = FOUND[name]
    TARGETS[target][0](bytes.fromhex(data))


# --- one by one -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[World]:
    """Return a server without sockets and threads."""
    made = World()
    with made.thread.write():
        yield made
    made.thread.close()


def test_who_has_read_everything_is_not_late(world: World) -> None:
    """The time limit is for reading a reply: requests in progress are always answered."""
    peer = Peer(world)
    peer.stubborn = True
    peer.on_the_way += frames.encode_request(GetHead(1), 1) + frames.encode_request(GetHead(2), 2)
    peer.gulp = 5
    peer.eof = True
    while peer.deliver():
        pass
    world.work(world.quick)
    world.pass_time(1)
    peer.read()
    world.pass_time(1000)
    world.settle()
    assert peer.transport.gone
    peer.check()
    assert len(_frames(bytes(peer.got))) == 2


def test_what_has_come_of_a_frame_is_not_lent_to_a_reply(world: World) -> None:
    """A reply that waits for memory gets none that a frame on its way still takes."""
    peer = Peer(world)
    peer.on_the_way += frames.encode_request(frames.PutBlob(bytes(32), b"x" * 60_000), 1)
    peer.deliver(16_000)
    room = world.server.budget
    served: list[bool] = []
    assert not room.reserve(room.most - 10_000, lambda: served.append(True))
    peer.deliver(20_000)
    assert (served, room.held) == ([], 36_000)
    while peer.deliver() or world.work(world.writer):
        pass
    assert (served, room.held) == ([True], room.most - 10_000)


@pytest.mark.parametrize("size", [3000, 60_000])
def test_what_there_is_no_room_for_is_refused_and_the_next_is_answered(
    world: World, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests beyond the server's memory are refused, whether short or long."""
    monkeypatch.setattr(server, "SMALL", fuzz_wire.SMALL)
    peers = [Peer(world), Peer(world)]
    for peer in peers:
        for number in range(40):
            data = frames.encode_request(frames.PutBlob(bytes(32), b"x" * size), number)
            peer.on_the_way += data
            peer.deliver(100)  # its header, and what it begins with
            peer.deliver()
    refused = 0
    for peer in peers:
        peer.eof = True
        while peer.deliver() or world.work(world.writer, world.readers, world.quick):
            pass
        peer.check()
        got = [frames.decode_reply(one, Type.ERROR) for one in _frames(bytes(peer.got))]
        assert len(got) == 40
        refused += sum("has no room for" in str(one) for one in got)
    assert 20 < refused < 80
    assert world.server.budget.held == 0


def _frames(data: bytes) -> list[frames.Frame]:
    reader = frames.Reader()
    reader.feed(data)
    return list(reader.frames())


def asking(*said: bytes) -> client.Connection:
    """Return a client of a server that says this: hello, and a reply to each request."""
    hello = frames.encode_reply(frames.Welcome(1), 1, Type.HELLO)
    return client.Connection(
        "unix:nowhere", lambda: Scripted(iter([hello, *said])), token="", reply_seconds=20
    )


def called(number: int, told: str) -> bytes:
    """Return the answer to a call."""
    return frames.encode_reply(Called(told), number, Type.CALL)


def test_pages_without_items_are_passed_over() -> None:
    """However many pages are empty, what comes after them is given."""
    last = [called(2002, '{"pages":[null,[7]]}')]
    with asking(
        *[called(number, '{"pages":[1,[]]}') for number in range(2, 2002)], *last
    ) as connection:
        assert [*map(str, connection.contexts)] == ["7"]


@pytest.mark.parametrize(
    "told", ["", "{", "[" * 60_000, "null", "-1", '"1"', "{}", "[]", '{"pages":[1,[]]}']
)
def test_an_answer_that_is_none_is_refused(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no number of an upload, and what is no page after a page, is an EventqError."""
    monkeypatch.setattr(remote, "PAGE_BYTES", 1000)
    with asking(called(2, told)) as connection, pytest.raises(EventqError):
        connection.blobs.put(b"x" * 1001)
    if not told.startswith('{"pages'):
        with (
            asking(called(2, '{"pages":[1,[]]}'), called(3, told)) as connection,
            pytest.raises(EventqError),
        ):
            list(connection.contexts)


# --- for long -------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_many_runs(target: str, seed: int, tmp_path: Path) -> None:
    """Atheris, which looks for inputs that reach new lines, finds none that does harm."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip(
            "atheris is not installed: `make soak` does it, or `pip install -e '.[fuzz]'`, on Linux x86-64"
        )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    random = Random(seed)
    for number in range(300):
        size = random.choice((40, 200, 800, 3000))
        (corpus / str(number)).write_bytes(
            long_tape(random.randrange(256), random.randrange(1 << 32), size)
        )
    words = [f"-runs={TARGETS[target][1]}", f"-seed={seed}", f"-artifact_prefix={tmp_path}/found-"]
    words += ["-max_len=4096", "-len_control=0", "-rss_limit_mb=1024", "-timeout=60"]
    # The shell forks: a direct child would begin with this process's peak of memory as its own.
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-m", "tests.hostile.fuzz_wire", target, str(corpus), *words],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=SOAK_SECONDS,
    )  # fmt: skip
    found = {path.name: path.read_bytes().hex() for path in tmp_path.glob("found-*")}
    assert (done.returncode, found) == (0, {}), done.stdout[-4000:] + done.stderr[-4000:]
    assert not [*tmp_path.glob("eventq-fuzz-*")]  # it leaves nothing behind
