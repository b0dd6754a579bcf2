"""What was produced: a command's output captured whole, lines from the middle of it, and images in session entries."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import apsw
from blake3 import blake3

import eventq
from bench.machine import eventq as command
from bench.machine import watch_process
from bench.report import Row, Sample, alone, versus
from eventq.output.sink import OutputSink
from eventq.sessions.lines import pack, split, unpack
from eventq.system.zstd import ZstdCompressor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.rounds import Plan

MB = 1_000_000
_COMMIT = 4 << 20
_READ = 1 << 16


def run(plan: Plan) -> Iterator[Row]:
    """Measure everything."""
    yield from _capture(plan)
    yield from _sink(plan)
    yield from _session(plan)
    yield from _growing(plan)
    yield from _lines(plan)


def log_text(size: int) -> bytes:
    """Return log lines of words and numbers, which zstd makes a bit less than a half of."""
    rng = random.Random(1)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10)))
        for _ in range(3_000)
    ]
    lines = []
    while size > 0:
        said = " ".join(rng.choices(words, k=6))
        line = (
            f"2026-11-22T10:{rng.randrange(60):02d} INFO worker-{rng.randrange(16)} {said}"
            f" id={rng.getrandbits(64):x}\n"
        )
        lines.append(line)
        size -= len(line)
    return "".join(lines).encode()


def _rate(call: Callable[[], object], size: int) -> float:
    start = time.perf_counter()
    call()
    return size / MB / (time.perf_counter() - start)


# --- a command's output ---------------------------------------------------------------------------


def _capture(plan: Plan) -> Iterator[Row]:
    path = plan.place("log")
    part = log_text(plan.size(64 << 20, 4 << 20))
    with open(path, "wb") as file:
        file.writelines([part] * 16)
    size = 16 * len(part)
    thread = eventq.init(plan.place("thread"))
    resident: list[float] = []
    tasks = {
        "capture": lambda: _rate(lambda: resident.append(_captured(thread, path)), size),
        "tee": lambda: _rate(lambda: _tee(plan, path), size),
        "disk": lambda: _rate(lambda: _commits(plan, part, 4), 4 * len(part)),
    }
    found = plan.take(tasks, rounds=3)
    what = f"`eventq capture` of a command that prints {size / 1e9:.2g} GB"
    raw = Sample(found["disk"], "MB/s")
    yield alone(what, Sample(found["capture"], "MB/s"), f"{raw} (bare commits of 4 MiB)", least=120)
    yield versus(
        f"{what}, against `tee`, which syncs nothing",
        Sample(found["capture"], "MB/s"),
        Sample(found["tee"], "MB/s"),
    )
    yield alone(f"{what}, largest resident size", Sample(resident[1:], "MB"), most=80)
    yield _kept(thread, size)
    yield _middle(plan, thread)
    plan.clear()


def _captured(thread: str, path: str) -> float:
    """Capture a file and give the largest resident size in MB."""
    ended = watch_process(command("capture", "--thread", thread, "--", "cat", path))
    return ended.peak_mb


def _tee(plan: Plan, path: str) -> None:
    copy = os.path.join(plan.folder, "tee")
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
        subprocess.run(["tee", copy], stdin=cat.stdout, stdout=subprocess.DEVNULL, check=True)
    os.unlink(copy)


def _commits(plan: Plan, part: bytes, times: int) -> None:
    """Store the same bytes as they are, a row for each 64 KiB, 4 MiB a durable commit."""
    folder = plan.place("raw")
    os.mkdir(folder)
    connection = apsw.Connection(os.path.join(folder, "raw.db"))
    connection.execute(
        "PRAGMA journal_mode = WAL; CREATE TABLE chunks (n INTEGER PRIMARY KEY, bytes BLOB)"
    ).fetchall()
    for start in range(0, times * len(part), _COMMIT):
        at = start % len(part)
        with connection:
            rows = ((part[n : n + _READ],) for n in range(at, min(at + _COMMIT, len(part)), _READ))
            connection.executemany("INSERT INTO chunks (bytes) VALUES (?)", rows)
    connection.close()
    shutil.rmtree(folder)


def _kept(path: str, size: int) -> Row:
    with eventq.open(path) as thread:
        count = len(thread.artifacts)
        assert all(info.status == "sealed" and info.size == size for info in thread.artifacts)
    kept = os.path.getsize(os.path.join(path, "events.db")) / size / count * 100
    return alone("what an artifact of log lines takes on the disk", Sample([kept], "%"))


def _middle(plan: Plan, path: str) -> Row:
    with eventq.open(path) as thread:
        size, lines = thread.artifacts.get(0).size, thread.artifacts.get(0).lines

        def read() -> float:
            start = time.perf_counter()
            content = thread.read("artifact://0", offset=lines // 2, limit=100)
            taken = (time.perf_counter() - start) * 1_000
            assert content.data.count(b"\n") == 100
            return taken

        found = plan.take({"read": read}, rounds=20)
    return alone(
        f"100 lines from the middle of an artifact of {size / 1e9:.2g} GB",
        Sample(found["read"], "ms"),
        most=20,
    )


# --- the window -----------------------------------------------------------------------------------


def _sink(plan: Plan) -> Iterator[Row]:
    plain = log_text(plan.size(64 << 20, 4 << 20))
    colours = plain.replace(b" INFO ", b" \x1b[32mINFO\x1b[0m ")
    texts = {
        "log lines": (plain, 200),
        "log lines with two colour codes each": (colours, 0),
        "lines of 4,000 bytes": (b"".join(plain[n : n + 3_999].replace(b"\n", b" ") + b"\n" for n in range(0, len(plain), 3_999)), 0),
        "Cyrillic": ("Обычный текст, строка за строкой, 42\n".encode() * (len(plain) // 64), 0),
    }  # fmt: skip

    def take(text: bytes) -> Callable[[], object]:
        def call() -> None:
            sink = OutputSink(_Nowhere)
            for start in range(0, len(text), _READ):
                sink.push(text[start : start + _READ])
            sink.dump()

        return call

    found = plan.take(
        {name: lambda t=text: _rate(take(t), len(t)) for name, (text, _) in texts.items()}  # type: ignore[misc]
    )
    for name, (_, least) in texts.items():
        yield alone(f"the window of a sink over {name}", Sample(found[name], "MB/s"), least=least)


class _Nowhere:
    """An artifact that keeps nothing."""

    artifact_id = "0"

    def write(self, data: bytes) -> None:
        """Forget them."""

    def seal(self) -> object:
        """Do nothing."""
        return None

    def fail(self, why: str) -> None:
        """Do nothing."""


# --- sessions -------------------------------------------------------------------------------------


def _session(plan: Plan) -> Iterator[Row]:
    entries = _entries(plan.size(100 * MB, 10 * MB))
    lines = [
        json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for entry in entries
    ]
    size = sum(map(len, lines))
    path = plan.place("session.jsonl")
    with open(path, "wb") as file:
        file.writelines(lines)
    found = plan.take({"entries": lambda: _entries_and_back(plan, entries, size)})
    files = plan.take({"file": lambda: _file(plan, path, lines)})
    what = f"a session of {size / MB:.0f} MB of images"
    yield alone(
        f"externalize and rehydrate {what}, blobs durable",
        Sample(found["entries"], "MB/s"),
        least=150,
    )
    imports, exports = zip(*files["file"], strict=True)
    yield alone(f"import the file of {what}", Sample(imports, "MB/s"), least=150)
    yield alone(f"export {what}, the same bytes", Sample(exports, "MB/s"))
    plan.clear()


def _growing(plan: Plan) -> Iterator[Row]:
    """Measure the import of text, at once and as it grows, beside what is done at least."""
    lines = [*chain(plan.size(40 * MB, 4 * MB))]
    size = sum(map(len, lines))
    found = plan.take({
        "bare": lambda: _rate(lambda: _bare(plan, lines), size),
        "once": lambda: size / MB / _stages(plan, lines, 1),
        "grown": lambda: size / MB / _stages(plan, lines, 20),
    })  # fmt: skip
    what = f"import a session of {size / MB:.0f} MB in entries of 1 to 4 kB of text"
    once = Sample(found["once"], "MB/s")
    yield alone(what, once, least=40)
    note = " (parse, hash, compress and insert each line)"
    yield versus(f"{what}, against the bare steps", once, Sample(found["bare"], "MB/s"), note=note)
    yield versus(
        f"{what}, once against 20 stages as it grows", once, Sample(found["grown"], "MB/s"),
        most=1.2,
    )  # fmt: skip
    plan.clear()


def chain(size: int) -> Iterator[bytes]:
    """Yield the lines of a session file of some bytes, each an answer to the one before."""
    yield b'{"type":"session","version":3,"id":"bench","cwd":"/bench"}\n'
    for number, text in enumerate(_texts(size)):
        role = "user" if number % 10 == 0 else "assistant" if number % 2 else "toolResult"
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        above = f"{number - 1:08x}" if number else None
        entry = {"type": "message", "id": f"{number:08x}", "parentId": above, "message": message}
        yield json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _stages(plan: Plan, lines: list[bytes], count: int) -> float:
    """Import a session as it grows; return the seconds that the imports took."""
    folder = plan.place("growing")
    os.mkdir(folder)
    path = os.path.join(folder, "session.jsonl")
    with eventq.open(os.path.join(folder, "thread"), create=True) as thread:
        written, taken = 0, 0.0
        for stage in range(1, count + 1):
            end = len(lines) * stage // count
            with open(path, "ab") as file:
                file.writelines(lines[written:end])
            written = end
            start = time.perf_counter()
            thread.sessions.import_file(path)
            taken += time.perf_counter() - start
        assert thread.contexts.get("bench").info().head_depth == len(lines) - 2
    shutil.rmtree(folder)
    return taken


def _bare(plan: Plan, lines: list[bytes]) -> None:
    folder = plan.place("bare")
    os.mkdir(folder)
    connection = apsw.Connection(os.path.join(folder, "bare.db"))
    connection.execute(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
        "CREATE TABLE lines (id INTEGER PRIMARY KEY, hash BLOB UNIQUE, bytes BLOB)"
    ).fetchall()
    compress = ZstdCompressor(level=1).compress
    for start in range(0, len(lines), 1_500):
        rows = []
        for line in lines[start : start + 1_500]:
            json.loads(line)
            rows.append((blake3(line).digest(), compress(line)))
        with connection:
            connection.executemany("INSERT INTO lines (hash, bytes) VALUES (?, ?)", rows)
    connection.close()
    shutil.rmtree(folder)


def _lines(plan: Plan) -> Iterator[Row]:
    size = plan.size(100 * MB, 10 * MB)
    texts = (f'{{"type":"text","text":{json.dumps(part)}}}\n' for part in _texts(size // 2))
    for kind, lines, least in (
        ("images", [json.dumps(entry).encode() + b"\n" for entry in _entries(size)], 200),
        ("texts of 1 to 4 kB", [text.encode() for text in texts], 100),
    ):
        found = plan.take({"lines": lambda lines=lines: _packed_and_back(lines)})  # type: ignore[misc]
        into, out = zip(*found["lines"], strict=True)
        what = f"the lines of a session of {sum(map(len, lines)) / MB:.0f} MB of {kind}"
        yield alone(f"parse {what}, images taken out", Sample(into, "MB/s"), least=least)
        yield alone(f"{what}, put together again", Sample(out, "MB/s"), least=least)


def _texts(size: int) -> Iterator[str]:
    rng = random.Random(4)
    log = log_text(1 << 20).decode()
    while size > 0:
        length = rng.randint(1_000, 4_000)
        start = rng.randrange(len(log) - length)
        yield log[start : start + length]
        size -= length


def _packed_and_back(lines: list[bytes]) -> tuple[float, float]:
    size = sum(map(len, lines))
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        ref = f"blob:blake3:{len(blobs):064x}"
        blobs[ref] = data
        return ref

    packed: list[tuple[int, bytes]] = []
    into = _rate(lambda: packed.extend(pack(split(line), put)[:2] for line in lines), size)
    texts: list[bytes] = []
    out = _rate(lambda: texts.extend(unpack(*one, blobs.get, print) for one in packed), size)
    assert [text + b"\n" for text in texts] == lines
    return into, out


def _entries(size: int) -> list[dict[str, object]]:
    rng = random.Random(3)
    made: list[dict[str, object]] = [{"type": "session", "id": "bench", "version": 3}]
    while size > 0:
        data = base64.b64encode(rng.randbytes(rng.randint(200_000, 900_000))).decode()
        text = {"type": "text", "text": "look at this, and say what is wrong with it " * 20}
        image = {"type": "image", "data": data, "mimeType": "image/png"}
        made.append(
            {
                "type": "message",
                "id": str(len(made)),
                "message": {"role": "user", "content": [text, image]},
            }
        )
        size -= len(data)
    return made


def _entries_and_back(plan: Plan, entries: list[dict[str, object]], size: int) -> float:
    with eventq.open(plan.place("session"), create=True) as thread:
        start = time.perf_counter()
        with thread.write():
            stored = [thread.externalize(entry) for entry in entries]
        back = [thread.rehydrate(entry) for entry in stored]
        taken = time.perf_counter() - start
    assert back == entries
    assert stored != entries
    return size / MB / taken


def _file(plan: Plan, path: str, lines: list[bytes]) -> tuple[float, float]:
    size = sum(map(len, lines))
    with eventq.open(plan.place("session"), create=True) as thread:
        into = _rate(lambda: thread.sessions.import_file(path), size)
        found: list[bytes] = []
        out = _rate(lambda: found.extend(thread.sessions.lines("bench")), size)
    assert found == lines
    return into, out
