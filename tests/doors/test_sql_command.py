"""`eventq sql` prints the rows of one SELECT, as a table, as JSON or as CSV, and nothing silently."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from io import StringIO
from typing import TYPE_CHECKING

import pytest

import eventq
from tests.doors.support import environ, objects, ok, raw_run, refused, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> str:
    """Return a thread with three events."""
    path = eventq.init(tmp_path / "box")
    with eventq.open(path) as thread:
        thread.push_many([("self", "note", f"n{number}") for number in range(3)])
    return path


def test_a_table_for_people(box: str) -> None:
    """Columns are aligned, each value is on one line, and long ones are cut with a mark."""
    assert ok("sql", "SELECT id, subtype, content FROM events WHERE id < 3", "--thread", box) == (
        "id  subtype  content\n--  -------  -------\n1   NULL     n0\n2   NULL     n1\n"
    )
    odd = "SELECT 'a' || char(10, 27) || 'b' AS x, x'00ff' AS y, printf('%.*c', 90, 'z') AS z, 1.5"
    names, _, row = ok("sql", odd, "--thread", box).splitlines()
    assert names.split() == ["x", "y", "z", "1.5"]
    assert row.split() == ["a\\n\\x1bb", "x'00ff'", "z" * 79 + "…", "1.5"]
    assert ok("sql", "SELECT id FROM events WHERE 0", "--thread", box) == "id\n--\n"


def test_json_and_csv_have_all_of_it(box: str) -> None:
    """NDJSON has bytes as hex digits; CSV is that of RFC 4180, with the names first."""
    sql = "SELECT 1 AS a, NULL AS b, x'00ff' AS c, 'x,\"y\"' || char(10) AS d, 9e999 AS e"
    assert objects("sql", sql, "--thread", box) == [
        {"a": 1, "b": None, "c": "00ff", "d": 'x,"y"\n', "e": "inf"}
    ]
    printed = raw_run("sql", sql, "--csv", "--thread", box).stdout
    assert printed == b'a,b,c,d,e\r\n1,,00ff,"x,""y""\n",inf\r\n'
    read = [*csv.reader(StringIO(printed.decode(), newline=""))]
    assert read[1] == ["1", "", "00ff", 'x,"y"\n', "inf"]
    assert raw_run("sql", "SELECT 1 AS a WHERE 0", "--csv", "--thread", box).stdout == b"a\r\n"
    assert (
        len(objects("sql", "SELECT printf('%.*c', 9000, 'z') AS z", "--thread", box)[0]["z"])
        == 9000
    )
    done = run("sql", "SELECT 1", "--csv", "--json", "--thread", box)
    assert (done.code, "exclude each other" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("5", "integer"), ("-5", "integer"), ("1.5", "real"), ("05", "text"), ("5 ", "text"),
        ("1e3", "text"), ("nan", "text"), ("inf", "text"), ("1.50", "text"), ("", "text"),
        ("9223372036854775807", "integer"), ("9223372036854775808", "text"), ("9" * 5000, "text"),
        ("٣", "text"), ("1_000", "text"),
    ],
)  # fmt: skip
def test_values_on_the_command_line(box: str, word: str, kind: str) -> None:
    """A plain number is bound as one, anything else as text, and either comes back as it was."""
    words = [
        "sql",
        "SELECT typeof(?1) AS kind, CAST(?1 AS TEXT) AS word",
        "--thread",
        box,
        "--json",
    ]
    (found,) = (json.loads(line) for line in ok(*words, "--", word).splitlines())
    assert found == {"kind": kind, "word": word}


def test_values_select(box: str) -> None:
    """Values stand for `?` in order, and match columns of text and of numbers."""
    sql = "SELECT id FROM events WHERE id > ? AND content <> ? LIMIT ?"
    assert objects("sql", sql, "1", "n1", "1", "--thread", box) == [{"id": 3}]
    refused(2, "uses 3 and there are 1", run("sql", sql, "1", "--thread", box))


def test_more_rows_are_not_left_out_silently(box: str) -> None:
    """The rows up to the limit are printed, and stderr says that there are more."""
    done = run("sql", "SELECT id FROM events", "--limit", "2", "--json", "--thread", box)
    assert (done.code, done.out) == (0, '{"id":1}\n{"id":2}\n')
    assert done.err == "… more rows: only 2 rows printed; raise --limit, or add a condition\n"
    endless = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    assert run("sql", endless, "--thread", box).out.splitlines()[-1] == "1000"
    refused(
        1,
        "took longer than 1 s - add a condition on a key such as id, or raise --timeout",
        run("sql", endless + " WHERE x < 0", "--timeout", "1s", "--thread", box),
    )


def test_no_statement_lists_the_tables(box: str) -> None:
    """A person's first question is answered; the views say what they have."""
    lines = ok("sql --thread", box).splitlines()
    assert lines[0].split() == ["name", "type", "columns"]
    assert any(line.startswith("v_turns ") and "payload" in line for line in lines)
    assert objects("sql --thread", box)[1]["columns"].startswith("id, created_at, source")


def test_what_is_refused(box: str, tmp_path: Path) -> None:
    """SQLite's words and the next step, with status 2, as text and as JSON; nothing is created."""
    refused(2, "no such column: no", run("sql", "SELECT no FROM events", "--thread", box))
    refused(2, "only reading is allowed", run("sql", "DELETE FROM events", "--thread", box))
    refused(2, "more than one statement", run("sql", "SELECT 1; SELECT 2", "--thread", box))
    refused(2, "STATEMENT is not UTF-8", run("sql", "SELECT '\udcff'", "--thread", box))
    done = run("sql", "SELECT no FROM events", "--json", "--thread", box)
    assert (done.code, "no such column: no" in json.loads(done.err)["error"]) == (2, True)
    done = run("sql", "SELECT 1", "--thread", str(tmp_path / "none"))
    assert (done.code, os.path.exists(tmp_path / "none")) == (1, False)


INTERRUPTED = """
import signal, sys
from eventq import cli
from eventq.memory import payloads

def interrupt_soon(name):
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)

payloads.payload_of = lambda moment: interrupt_soon
sql = "WITH RECURSIVE c (x) AS (SELECT payload(1) UNION ALL SELECT 1 FROM c) SELECT max(x) FROM c"
sys.argv = ["eventq", "sql", sql, "--timeout", "1h", "--thread", sys.argv[1]]
cli.main()
"""


def test_an_interrupt_ends_it_quietly(box: str) -> None:
    """Ctrl-C ends a statement that would go on, without a word, with status 130."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, box], capture_output=True, env=environ(), timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
