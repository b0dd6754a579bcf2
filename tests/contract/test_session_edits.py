"""Session files that were damaged at random: cut, glued, doubled, moved, with wrong bytes.

The kind: an import that fails, an export with other bytes, or a main branch that is not what the
tool resumes with, whatever has happened to a file. `tests/sessions/oracle.py` says what that is.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

import eventq
from eventq.errors import InputError
from tests.sessions import oracle
from tests.sessions.support import SESSION, answers, entry, header, line, says
from tests.sessions.test_gaps import at
from tests.sessions.test_leaf import goes_on, keeps, keeps_from

if TYPE_CHECKING:
    from pathlib import Path

Entry = dict[str, Any]

pytestmark = pytest.mark.usefixtures("quick")


def timed(entries: list[Entry], steps: list[int]) -> bytes:
    """Return a file whose entries were written so many milliseconds one after the other."""
    time, made = 0, []
    for n, one in enumerate(entries):
        time += steps[n % len(steps)]
        made.append(one | at(time) if "timestamp" in one else one)
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in made)


TITLE = {"type": "custom-title", "customTitle": "caf\u00e9", "sessionId": SESSION}
CHAIN = [
    (says if n % 2 else answers)(f"c{n}", f"c{n - 1}" if n > 1 else None) for n in range(1, 15)
]
REWOUND = [
    says("u1", None, "a {} \u2028 b"), answers("a1", "u1"), says("u2", "a1"), answers("a2", "u2"), line("system", "x1", "a2"), goes_on("x1"),
    says("u3", "a1"), line("attachment", "x2", "u3"), answers("a3", "x2"), TITLE, says("u4", "a3", isMeta=True), says("u5", "a3"),
    answers("a5", "u5"), line("system", "x3", "a5"), line("progress", "x4", "a5"), goes_on("a5"),
]  # fmt: skip
COMPACTED = [
    says("u1", None), answers("a1", "u1"), says("s1", "a1", isSidechain=True, agentId="ab"),
    answers("s2", "s1", isSidechain=True, agentId="ab"), says("u2", "a1"), answers("a2", "u2"), goes_on("a2"),
    line("system", "cb", None, subtype="compact_boundary", logicalParentUuid="a2"), says("cs", "cb", isCompactSummary=True),
    answers("a3", "cs"), TITLE, says("u4", "a3", '{"uuid":"x","parentUuid":null,"type":"user"}'), answers("a4", "u4"),
]  # fmt: skip
KEPT = [
    *COMPACTED[:7],
    keeps("cs", "u2", "a2"),
    *COMPACTED[8:],
    says("u5", "a2"),
    answers("a5", "u5"),
]
HOOKED = [
    says("u1", None), line("progress", "p1", "u1"), answers("a1", "p1"), line("progress", "p2", "a1"),
    line("progress", "p3", "p2"), says("u2", "p3"), answers("a2", "u2"), line("progress", "p4", "a2"), says("u3", "p4"),
    line("attachment", "x1", "u3"), answers("a3", "x1"), goes_on("a3"),
]  # fmt: skip
PI = [header(), *(entry(f"{n}", f"{n - 1}" if n else None) for n in range(9)), entry("9", "4")]
SAMPLES = [
    timed(CHAIN, [1000]), timed(CHAIN, [4000, 30, 7000]), timed(CHAIN, [0]), timed(REWOUND, [900, 10, 3000]),
    timed(REWOUND, [6000]), timed(COMPACTED, [2000, 1]), timed(COMPACTED, [400, 8000]), timed(KEPT, [700, 6000]),
    timed(HOOKED, [800]), timed(HOOKED, [10, 4990]), timed([*KEPT[:7], keeps_from("u2", "a2"), *KEPT[8:]], [900]), timed(PI, [1]),
]  # fmt: skip
BYTES = [
    b"\0",
    b"\0" * 40,
    b"\xff",
    b'"',
    b"{",
    b"}",
    b"\n",
    b"\r",
    b",",
    b"\\",
    b"[",
    b" ",
    b"\t",
    b"NaN",
    b"\xef\xbb\xbf",
]


def edited(data: bytes, chance: random.Random) -> bytes:
    """Return a file with a fault."""
    lines = data.splitlines(keepends=True) or [b""]
    n, where = chance.randrange(len(lines)), chance.randrange(len(data) + 1)
    kind = chance.randrange(8)
    if kind == 0:  # a few bytes, or many, are gone
        return data[:where] + data[where + int(chance.expovariate(1 / 60)) :]
    if kind == 1:  # no newline
        return data.replace(lines[n], lines[n].rstrip(b"\n"), 1)
    if kind == 2:
        lines.insert(chance.randrange(len(lines) + 1), lines[n])
    elif kind == 3:
        lines.insert(chance.randrange(len(lines)), lines.pop(n))
    elif kind == 4:
        return data[:where] + chance.choice(BYTES) + data[where + chance.randrange(2) :]
    elif kind == 5:  # the beginning of a line, then the line
        lines[n] = lines[n][: chance.randrange(len(lines[n]) + 1)] + lines[n]
    elif kind == 6:
        del lines[n]
    else:
        lines[n] = b"[" + lines[n].rstrip(b"\n") + b"]\n"
    return b"".join(lines)


def check(thread: eventq.Thread, folder: Path, chance: random.Random, name: str) -> None:
    """Import an edited file, in one piece or as it grows, and compare it with the oracle."""
    data = chance.choice(SAMPLES)
    for _ in range(chance.randint(1, 4)):
        data = edited(data, chance)
    path = folder / f"{name}.jsonl"
    ends = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 0, 2])))
    for end in (*ends, len(data)):
        path.write_bytes(data[:end])
        try:
            thread.sessions.import_file(str(path), name=name)
        except InputError:  # it is no session
            assert oracle.records(data[:end]) == [], data
        else:
            assert b"".join(thread.sessions.lines(name)) == data[:end], data
    if not oracle.records(data):
        return
    views = thread.sessions.views
    if views.info(name).tool == "claude":
        found = [json.loads(one)["uuid"] for one in views.entries(name, lambda _: None)]
        assert found == oracle.main(oracle.records(data)), (data, ends)


def test_edited_files(thread: eventq.Thread, tmp_path: Path) -> None:
    """No import fails, the bytes come out, and main is what the tool resumes with."""
    chance = random.Random(20_261)
    for n in range(300):
        check(thread, tmp_path, chance, f"s{n}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(40))
def test_many_edited_files(thread: eventq.Thread, tmp_path: Path, seed: int) -> None:
    """The same for 20,000 files."""
    chance = random.Random(seed)
    for n in range(500):
        check(thread, tmp_path, chance, f"s{n}")


def test_the_oracle_knows_the_samples() -> None:
    """Of a whole file main is what its author meant."""
    meant = [" ".join(f"c{n}" for n in range(1, 15))] * 3
    meant += ["u1 a1 u3 x2 a3 u5 a5 x3"] * 2 + ["cb cs a3 u4 a4"] * 2 + ["cb cs u2 a2 u5 a5"]
    meant += ["u1 p1 a1 p2 p3 u2 a2 p4 u3 x1 a3"] * 2 + ["cb cs u2 a2 u5 a5"]
    assert [" ".join(oracle.main(oracle.records(one))) for one in SAMPLES[:-1]] == meant
