"""Rubbish over a connection: see `fuzz_wire`, which says what is held of each input."""

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

from eventq.wire import frames, server
from eventq.wire.frames import GetHead, Type
from tests.conftest import ROOT
from tests.hostile import fuzz_wire
from tests.hostile.fuzz_wire import Peer, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = settings(
    max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)  # fmt: skip
SOAK_SECONDS = 3600
RUNS = 60_000


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
    "a time to read that did not end with the reading": "4a005d00005662000000004fd602000000f5000087000000000000f00000ff000000000000000000f400009700000000002f3d00000000000000000087000000000000000000000000961e00000000000000000000000000000000000000000000000000000000000000000000360000cb0000000000000000000000000000000034efd30000000000000000000000000000000000000000350000000007000000000000000000b767",
    "peers that have more on the way than may be held": "e8ab00546b0000000000000000000000000000000f0000000000000000001800000000004900000000006b0000af000000fb558fdab100000000000000000000000000000000000000000000000000000000000000000000000000000000e7000000d4000000000000000000000000000000004d0000000000000000000000002700000000000000d4ad0000000000000000000000000000000000000000000000000000000000bf1f000000000000000000000000c700000000000000df00000000000000000000000000008500000000000000000b004781000000000000002c00000000000099000000000078000000004e8800000000004e00000000000000000000000057fb0017de0000000053",
}


@QUICK
@given(TAPES)
def test_the_server_answers_any_bytes_or_hangs_up(data: bytes) -> None:
    """For any input, a server sends replies, ERROR or closes, within its memory limits."""
    fuzz_wire.feed(data)


@pytest.mark.parametrize("name", FOUND)
def test_an_input_that_did_harm_does_none(name: str) -> None:
    """What was found once is not found again."""
    fuzz_wire.feed(bytes.fromhex(FOUND[name]))


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


# --- for long -------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_found_in_many_runs(seed: int, tmp_path: Path) -> None:
    """Atheris, which looks for inputs that reach new lines, finds none that does harm."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip(
            "atheris is not installed: `make soak` does it, or `pip install --group fuzz`, on Linux x86-64"
        )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    random = Random(seed)
    for number in range(300):
        size = random.choice((40, 200, 800, 3000))
        (corpus / str(number)).write_bytes(
            long_tape(random.randrange(256), random.randrange(1 << 32), size)
        )
    words = [f"-runs={RUNS}", f"-seed={seed}", f"-artifact_prefix={tmp_path}/found-"]
    words += ["-max_len=4096", "-len_control=0", "-rss_limit_mb=1024", "-timeout=60"]
    # The shell forks: a direct child would begin with this process's peak of memory as its own.
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-m", "tests.hostile.fuzz_wire", str(corpus), *words],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=SOAK_SECONDS,
    )  # fmt: skip
    found = {path.name: path.read_bytes().hex() for path in tmp_path.glob("found-*")}
    assert (done.returncode, found) == (0, {}), done.stdout[-4000:] + done.stderr[-4000:]
    assert not [*tmp_path.glob("eventq-fuzz-*")]  # it leaves nothing behind
