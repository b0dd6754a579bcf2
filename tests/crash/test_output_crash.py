"""Artifacts and outputs are whole if they say so, after a disk error or a kill."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import DiskError, EventqError, LogicError
from eventq.output import artifacts as module
from eventq.system import disk
from tests.crash.support import REFUSALS, ROOT, Calls, FaultyVFS, copy, kill, some_of, sound
from tests.crash.support import start as start_program
from tests.crash.test_every_step import fell
from tests.engines import sqlite
from tests.servers import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Until

_CHANCE = random.Random(51)
# Lines that end with chunks.
NOISE = b"".join(_CHANCE.randbytes(63).replace(b"\n", b"-") + b"\n" for _ in range(4_700))
LARGE = _CHANCE.randbytes(1_500_000)
OLD = b"old\n" * 20_000
FILES = {
    "1.a.log": b"one\n", "2.b.log": NOISE[:150_000], "3.c.partial.log": b"some", "5.a.log": b"one\n",
}  # fmt: skip
NOTES = {"1-a.md": b"one", "1-a.v2.md": NOISE[:100_000], "0-Scout.4-b.md": b"four"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without syncs, as no power is cut here, and store often."""
    monkeypatch.setenv("EVENTQ_SYNCHRONOUS", "normal")
    monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 16)


@pytest.fixture
def template(tmp_path: Path) -> str:
    """Return a thread with an artifact and an output, for copying, and folders to import."""
    for name, found in (("logs", FILES), ("notes", NOTES)):
        (tmp_path / name).mkdir()
        for each, data in found.items():
            (tmp_path / name / each).write_bytes(data)
    path = eventq.init(tmp_path / "template")
    with eventq.open(path) as thread:
        thread.artifacts.put(OLD, "old")
        thread.outputs.put("Scout", "old")
    return path


class Told:
    """What was acknowledged: that an artifact is sealed, that so much was published."""

    def __init__(self) -> None:
        self.done = False
        self.sealed: dict[str, bytes] = {}
        self.published: list[bytes] = []


# --- what is done ---------------------------------------------------------------------------------


def write(thread: eventq.Thread, told: Told) -> None:
    """Write 300 KB in pieces, stored four times on the way, and seal."""
    with thread.artifacts.allocate("bash") as writer:
        for at in range(0, len(NOISE), 50_000):
            writer.write(NOISE[at : at + 50_000])
    told.sealed[writer.artifact_id] = NOISE


def seal_again(thread: eventq.Thread, told: Told) -> None:
    """Write a little, and seal until it is sealed or cannot be."""
    writer = thread.artifacts.allocate("bash")
    writer.write(NOISE[:40_000])
    for _ in range(3):
        try:
            writer.seal()
        except DiskError:
            continue
        told.sealed[writer.artifact_id] = NOISE[:40_000]
        return
    raise DiskError("it was refused thrice", "")


def put(thread: eventq.Thread, told: Told) -> None:
    """Put bytes as one change."""
    told.sealed[thread.artifacts.put(NOISE[:100_000]).artifact_id] = NOISE[:100_000]


def publish(thread: eventq.Thread, told: Told) -> None:
    """Publish a second and a third version, small and in parts."""
    for data in (b"second", LARGE):
        thread.outputs.publish("0-Scout", data)
        told.published.append(data)


def import_logs(thread: eventq.Thread, told: Told) -> None:
    """Import a folder of artifacts."""
    made = thread.artifacts.import_folder(os.path.join(os.path.dirname(thread.path), "logs"))
    for name, info in made.items():
        if info.status == "sealed":
            told.sealed[info.artifact_id] = FILES[name]


def import_notes(thread: eventq.Thread, told: Told) -> None:
    """Import a folder of outputs."""
    made = thread.outputs.import_folder(os.path.join(os.path.dirname(thread.path), "notes"))
    for name, info in made.items():
        assert thread.outputs.read(info.output_id, info.version) == NOTES[name]


def remove(thread: eventq.Thread, _: Told) -> None:
    """Remove the artifact that is there."""
    thread.artifacts.remove(0)


_ALL = write, seal_again, put, publish, import_logs, import_notes, remove
WORKS = {work.__name__: work for work in _ALL}
WHOLE = {NOISE, NOISE[:40_000], NOISE[:100_000], OLD, *FILES.values()}


def look(path: str, told: Told, name: str) -> None:
    """Check that the thread is sound, acknowledged data whole, and nothing else called whole."""
    with eventq.open(path) as thread:
        assert thread.check() == []
        found = {
            info.artifact_id: (info, thread.artifacts.open(info.artifact_id).read())
            for info in thread.artifacts
        }
        for number, data in told.sealed.items():
            assert (found[number][0].status, found[number][1]) == ("sealed", data)
        for info, data in found.values():
            if info.status == "sealed":
                assert data in WHOLE
            else:
                assert NOISE.startswith(data) or data in (FILES["3.c.partial.log"], b"")
                assert info.status != "partial" or name in ("write", "seal_again")
        if name != "remove":
            assert found["0"][1] == OLD
        if name == "put":  # one change: there or not
            assert all(info.status == "sealed" for info, _ in found.values())
        texts = {
            (one.output_id, one.version): thread.outputs.read(one.output_id, one.version)
            for one in thread.outputs
        }
        versions = [data for (output_id, _), data in texts.items() if output_id == "0-Scout"]
        assert versions[: 1 + len(told.published)] == [b"old", *told.published]
        assert versions[1:] in ([], [b"second"], [b"second", LARGE])
        assert {*texts.values()} <= {b"old", b"second", LARGE, *NOTES.values()}
        if name in ("import_logs", "import_notes"):
            WORKS[name](thread, Told())
            before = thread.artifacts.list(), thread.outputs.list()
            WORKS[name](thread, Told())
            assert (thread.artifacts.list(), thread.outputs.list()) == before
            assert (len(before[0]), len(before[1])) in ((5, 1), (1, 4))
        following = thread.artifacts.put(b"next").artifact_id
        assert int(following) > max(map(int, found), default=0)
        assert thread.check() == []


@pytest.mark.parametrize(("error", "lasting"), REFUSALS)
@pytest.mark.parametrize("name", WORKS)
def test_a_disk_that_refuses(
    name: str, error: type[Exception], lasting: bool, template: str, tmp_path: Path, vfs: FaultyVFS
) -> None:
    """Rows 90, 98: after any failed change, nothing incomplete is called whole."""
    path = str(tmp_path / "thread")
    count = vfs.steps_of(copy(template, path), lambda thread: WORKS[name](thread, Told()))
    assert count > 5
    outcomes = set()
    for number in some_of(count, 2, count // 6):
        told = Told()
        with vfs.opened(copy(template, path), number, error, lasting=lasting) as thread:
            refused = True
            try:
                WORKS[name](thread, told)
                refused = False
            except DiskError:
                pass
            except EventqError:  # see test_artifacts: it says that a transaction was undone
                assert name == "seal_again"
            vfs.disarm()
            assert thread.check() == []
            if name == "write" and refused and (found := thread.artifacts.list()[1:]):
                # Its failure could be stored, or not: it is not whole in either case.
                not_whole = lasting or not told.sealed
                assert found[0].status in (("failed", "open") if not_whole else ("sealed",))
        assert refused <= bool(vfs.failed)
        assert refused or told.sealed or name not in ("write", "put", "seal_again", "import_logs")
        with eventq.open(path) as thread:  # whose process is dead by now
            sql = "UPDATE artifacts SET owner = '0:999999999:x' WHERE status = 'open'"
            sqlite(thread.database).run(sql)
        look(path, told, name)
        if number % 8 == 0:
            sound(path)
        outcomes.add(refused)
    assert outcomes == {False, True}


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["touching", "every"]
)
@pytest.mark.parametrize(
    "name", ["write", "put", "publish", "import_logs", "import_notes", "remove"]
)
def test_a_process_that_is_killed(name: str, every: bool, template: str, tmp_path: Path) -> None:
    """Rows 90, 91: after a kill, acknowledged data exists, and nothing else is called whole."""
    path = str(tmp_path / "thread")

    def work() -> None:
        told = Told()
        with eventq.open(path) as thread:
            WORKS[name](thread, told)
        os.write(pipe[1], f"{len(told.sealed)} {len(told.published)}\n".encode())

    number, going = 0, True
    while going:
        number += 11 if every else 13
        copy(template, path)
        pipe = os.pipe()
        going = fell(number, work, every=every)
        os.close(pipe[1])
        with os.fdopen(pipe[0]) as said:
            acked = said.read()
        told = Told()
        if acked and name == "write":
            told.sealed["1"] = NOISE
        if acked and name == "put":
            told.sealed["1"] = NOISE[:100_000]
        if acked and name == "publish":
            told.published = [b"second", LARGE]
        assert acked or going
        look(path, told, name)
    assert number > 10


# --- a writer that is killed ----------------------------------------------------------------------

# Writes numbered lines until it is killed, and says after each how far an artifact is that others
# can read.
LINES = """
import eventq
from eventq.output import artifacts
artifacts.COMMIT_SECONDS = 0.0
artifacts.COMMIT_BYTES = 1 << 16
with eventq.open(sys.argv[1]) as thread:
    writer = thread.artifacts.allocate("bash")
    n = 0
    while True:
        writer.write(b"".join(b"line %010d\\n" % k for k in range(n, n + 1 + n % 700 * 20)))
        n += 1 + n % 700 * 20
        say(thread.artifacts.get(writer.artifact_id).size)
"""


def lines(size: int) -> bytes:
    """Return the first bytes of what LINES writes."""
    return b"".join(b"line %010d\n" % n for n in range(size // 16 + 1))[:size]


@pytest.mark.engines(*ENGINES)
def test_a_writer_that_is_killed_while_it_writes(path: str) -> None:
    """Row 91: a killed writer leaves a prefix with all acknowledged bytes."""
    for number in range(4):
        process = start_program(LINES, path, environ={"EVENTQ_SYNCHRONOUS": "normal"})
        assert process.stdout is not None
        acked = b"".join(process.stdout.readline() for _ in range(1 + number * 9)) + kill(process)
        whole = [int(line) for line in acked.split(b"\n")[:-1]]
        with eventq.open(path) as thread:
            info = thread.artifacts.get(number)
            assert (info.status, info.hash, info.tool) == ("partial", None, "bash")
            data = thread.artifacts.open(number).read()
            assert data == lines(len(data))
            assert len(data) == info.size >= max(whole)
            assert info.lines == -(-len(data) // 16)
            if info.lines > 1:
                last = b"".join(thread.artifacts.open(number).lines_from(info.lines))
                assert last == data[(info.lines - 1) * 16 :]
            assert thread.check() == []
            assert thread.read(f"artifact://{number}", limit=1).complete is False
    with eventq.open(path) as thread:
        assert thread.artifacts.put(b"x").artifact_id == "4"
        for number in range(4):
            thread.artifacts.remove(number)
        assert thread.check() == []


CAPTURES = """
import eventq
with eventq.open(sys.argv[1]) as thread:
    thread.capture(["sh", "-c", "yes 'line of 16 bytes' | head -n 100000; exec sleep 600"])
"""


@pytest.mark.engines(*ENGINES)
def test_a_capture_that_is_killed(path: str, until: Until) -> None:
    """Of a command whose capture is killed, what it had printed stays, and is said to be a part."""
    process = start_program(CAPTURES, path, environ={"EVENTQ_SYNCHRONOUS": "normal"})
    with eventq.open(path) as thread:
        until(lambda: [info for info in thread.artifacts if info.size], "something is stored")
        kill(process)
        (info,) = thread.artifacts
        data = thread.artifacts.open(0).read()
        assert (info.status, len(data)) == ("partial", info.size)
        assert (b"line of 16 bytes\n" * 100_000).startswith(data)
        assert thread.artifacts.put(b"next").artifact_id == "1"
        assert thread.check() == []


# --- no room --------------------------------------------------------------------------------------

# With a limit on the size of files the database cannot grow: the system refuses, as a full disk
# does.
FULL = """
import resource, signal, eventq
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from eventq.output import artifacts
thread = eventq.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
with open("/dev/urandom", "rb") as file:
    noise = file.read((1 << 16) - 1) + b"\\n"
for tool in ("a", "b"):
    try:
        with thread.artifacts.allocate(tool) as writer:
            for _ in range(40):
                writer.write(noise)
    except eventq.EventqError as error:
        say(type(error).__name__)
    else:
        say("sealed " + writer.artifact_id)
"""


@pytest.mark.parametrize("room", [100_000, 1_500_000, 4_500_000])
def test_no_room(path: str, room: int) -> None:
    """Rows 90, 98: on a full disk artifacts fail or are partial, and sealed ones stay whole."""
    done = subprocess.run(
        [sys.executable, "-c", "import os\ndef say(text): os.write(1, f'{text}\\n'.encode())\nimport sys\n" + FULL, path, str(room)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": ROOT, "EVENTQ_SYNCHRONOUS": "normal"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == 2
    assert "DiskError" in said
    with eventq.open(path) as thread:
        assert thread.check() == []
        sealed = [info.artifact_id for info in thread.artifacts if info.status == "sealed"]
        assert sealed == [line.split()[1] for line in said if line.startswith("sealed")]
        for info in thread.artifacts:
            assert len(thread.artifacts.open(info.artifact_id).read()) == info.size
            assert (info.size == 40 << 16) >= (info.status == "sealed")
        last = max((int(info.artifact_id) for info in thread.artifacts), default=-1)
        assert int(thread.artifacts.put(NOISE).artifact_id) > last


@pytest.mark.parametrize("short", [None, 7])
def test_an_export_that_is_refused(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int | None
) -> None:
    """Row 88: a failed write of an export leaves no partial file; repeating it works."""
    out = tmp_path / "out"
    out.mkdir()
    with eventq.open(template) as thread:
        thread.artifacts.put(NOISE, "bash")
        thread.outputs.publish("0-Scout", NOISE)
        expected = {
            "0.old.log": OLD,
            "1.bash.log": NOISE,
            "0-Scout.md": b"old",
            "0-Scout.v2.md": NOISE,
        }
        number = hits = 0
        while True:
            number += 1
            for name in os.listdir(out):
                os.unlink(out / name)
            calls: Any = Calls(os, number, short=short, lasting=True)
            with monkeypatch.context() as patch:
                patch.setattr(disk, "os", calls)
                try:
                    thread.artifacts.export_folder(str(out))
                    thread.outputs.export_folder(str(out))
                except OSError:
                    hits += 1
            found = {name: (out / name).read_bytes() for name in os.listdir(out)}
            assert found.items() <= expected.items()
            if not calls.hit:
                break
        assert found == expected
        assert hits > 5
        assert not any(isinstance(error, LogicError) for error in thread.check())
