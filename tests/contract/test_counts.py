"""How many of something: `1 event` and `2 events`, in every text that a person reads.

The kind's members are commands, the pages, errors and the reasons of stalls. A number that can be 1
goes through `eventq.system.counts`; numbers that cannot (limits, and counts of what is more than one) need
not.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eventq
from eventq.output.urls import beyond
from eventq.system.counts import count, plural
from tests.doors.support import run

PLURALS = [
    "branches",
    "entries",
    "events",
    "lines",
    "turns",
    "bytes",
    "steps",
    "times",
    "seconds",
    "files",
    "agents",
    "blobs",
]


@pytest.mark.parametrize(("number", "noun", "shown"), [
    (1, "event", "1 event"), (0, "event", "0 events"), (2_000, "event", "2,000 events"),
    (1, "branch", "1 branch"), (3, "branch", "3 branches"), (2, "entry", "2 entries"),
    (2, "day", "2 days"), (1.0, "second", "1 second"), (0.5, "second", "0.5 seconds"),
    (2, "dead letter", "2 dead letters"), (2, "other", "2 others"), (2, "match", "2 matches"),
    (2, "index", "2 indexes"), (1 << 40, "byte", "1,099,511,627,776 bytes"),
])  # fmt: skip
def test_a_number_has_the_noun_that_it_needs(number: float, noun: str, shown: str) -> None:
    """One of something is singular; everything else, none and a half too, is plural."""
    assert count(number, noun) == shown
    assert shown.endswith(plural(noun)) is (number != 1)


def test_no_page_and_no_command_has_a_rule_of_its_own() -> None:
    """Templates show numbers with nouns by `count`, and nothing else adds an s."""
    root = Path(eventq.__file__).parent
    for path in root.rglob("*.html"):
        text = path.read_text()
        assert not re.search(rf"\}}\}} ({'|'.join(PLURALS)})\b", text), path
    own = [
        path.name
        for path in root.rglob("*.py")
        if re.search(r"'' if \w+ == 1 else 's'", path.read_text())
    ]
    assert own == []


def test_one_of_something_is_said_so(path: str) -> None:
    """In an error, in a note, and in what `doctor` finds."""
    assert str(beyond(5, 1)).startswith("there is no line 5: it has 1 line - ")
    done = run("push", "--stream", "--thread", path, given="{}\n")
    assert done.err.splitlines()[-1] == "Note: 1 of 1 line was refused"
    run("push", "--content", "x", "--thread", path)
    assert f"ok       thread {path}: 1 event, " in run("doctor", "--thread", path).out
