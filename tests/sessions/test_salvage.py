"""Entries on a line that is not one JSON object, and the bytes of any line.

The kind: a line that is not exactly one object. Members: two records without a newline between
them, or with a blank, a comma or a lone CR; the beginning of a record before another; NULs before
or behind one; a list; a control character in a text, NaN, a byte that is no UTF-8; words around a
record; a byte order mark in the middle. A newline in a text makes two lines of which none holds a
record. Of these the tool itself reads what is marked so.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventq.sessions import reading
from eventq.sessions.lines import BOM, PLAIN, RAW, Line, pack
from eventq.sessions.salvage import MOST, pieces
from tests.sessions.support import answers, call, entry, says

A = json.dumps(says("a", None, "one {}")).encode()
B = json.dumps(
    answers("b", "a", call("t", text='{"uuid":"x","parentUuid":null,"type":"user"}'))
).encode()
C = json.dumps(says("c", "b", "caf\u00e9"), ensure_ascii=False).encode()
INNER = json.dumps(
    {"type": "progress", "data": {"message": says("x", None)}, "uuid": "p", "parentUuid": "a"}
).encode()
FOUND: dict[str, tuple[bytes, str]] = {  # the ids on each line; the tool reads what stands before /
    "glued": (A + B, "a/b"),
    "three": (A + B + C, "a/b c"),
    "a blank": (A + b" " + B, "a/b"),
    "a comma": (A + b"," + B, "a/b"),
    "a lone CR": (A + b"\r" + B, "a/b"),
    "a fragment first": (A[:60] + A, "/a"),
    "a fragment in its text": (C[:-9] + C, "/c"),
    "a fragment that goes on as JSON": (b'{"parentUuid":' + A, "/a"),
    "a fragment behind": (A + B[:70], "a/"),
    "a fragment between": (A + B[:70] + C, "a/c"),
    "NULs first": (b"\0" * 64 + A, "/a"),
    "NULs behind": (A + b"\0" * 64, "a/"),
    "NULs between": (A + b"\0\0" + B, "a/b"),
    "words around": (b"so: " + A + b" it is", "/a"),
    "a list of one": (b"[" + A + b"]", "/a"),
    "a list of two": (b"[" + A + b",\t" + B + b"]", "/a b"),
    "commas around": (b"," + A + b",", "/a"),
    "one bracket too many": (A + b"}", "a/"),
    "a control character": (A.replace(b"one", b"o\x01e"), "/a"),
    "a tab": (A.replace(b"one", b"o\te"), "/a"),
    "NaN": (A[:-1] + b', "n": NaN}', "/a"),
    "Infinity": (A[:-1] + b', "n": [-Infinity]}', "/a"),
    "a byte that is no UTF-8": (A.replace(b"one", b"o\xffe"), "a/"),
    "half a character": (C.replace("\u00e9".encode(), b"\xc3"), "c/"),
    "a surrogate": (A.replace(b"one", b"\xed\xa0\x80"), "a/"),
    "all of it": (b"x" + A.replace(b"one", b"\xff\x01") + b"[NaN," + B + b"]\0" + C, "/a b c"),
    "a mark in the middle": (A + BOM + B, "a/b"),
    "a title": (b'{"type":"ai-title","aiTitle":"x","sessionId":"s"}' + A, "None/a"),
    "nothing whole": (A[:-1] + B[:-1], "/"),
    "only a part of a record": (INNER[:-9], "/"),
    "only a text": (json.dumps(A.decode()).encode(), "/"),
    "nothing": (b"no JSON {} at all", "/"),
}  # fmt: skip


def bytes_of(found: list[Line]) -> bytes:
    """Return the line that some parts are of."""
    return b"".join(one.before + one.text + one.after for one in found)


def ids(found: list[Line]) -> list[str]:
    """Return the ids of the entries of a line."""
    return [str(one.entry.get("uuid")) for one in found if one.entry is not None]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"", b" \n"])
@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_on_a_line(name: str, end: bytes) -> None:
    """The records of a line are entries, in order; its bytes are those of its parts."""
    line, expected = FOUND[name]
    found = pieces(line + end, reading.READERS["claude"].is_record)
    assert ids(found) == expected.replace("/", " ").split()
    assert bytes_of(found) == line + end
    assert all(one.text for one in found)
    for one in found:
        packed = pack(one, lambda _: "")
        assert packed[:2] == (RAW if one.entry is None else PLAIN, one.text)


@pytest.mark.parametrize(
    "line", [A, b" " + A + b"\r", BOM + A, C.replace(b"caf", "\u2028".encode()), b"", b" ", b"\n"]
)
def test_a_line_that_is_one_object_is_one_part(line: bytes) -> None:
    """An object stays as it is, also one that looks like no record; so does an empty line."""
    for one in (line, line + b"\n", b'{"a":1}', b"{}"):
        found = pieces(one, lambda _: False)
        assert len(found) == 1
        assert bytes_of(found) == one
        assert (found[0].entry is None) == (not one.strip())


def test_records_of_other_tools() -> None:
    """Of each tool what looks like its records is found, and not their parts."""
    pi = json.dumps(entry("e", None)).encode()
    codex = (
        b'{"timestamp":"2026-01-01","type":"response_item","payload":{"type":"message","id":"m"}}'
    )
    for tool, one in (("pi", pi), ("omp", pi), ("plain", pi), ("plain", codex)):
        is_record = reading.READERS[tool].is_record
        found = pieces(one[:-20] + one + one, is_record)
        assert [part.entry for part in found] == [None, json.loads(one), json.loads(one)]
    assert ids(pieces(b'{"n":1}{"n":2}', reading.is_record)) == []


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.sampled_from([A, B, C, INNER, b"{", b'"', b"[", b"]", b",", b"\0", b"\xff", b"\\", BOM, b" "]), max_size=9),
    st.integers(0, 400), st.sampled_from([b"\n", b""]),
)  # fmt: skip
def test_any_line_comes_back(parts: list[bytes], cut: int, end: bytes) -> None:
    """The bytes are those of the parts, and in what is left over nothing more is found."""
    line = b"".join(parts)[cut:] + end
    found = pieces(line, reading.is_record)
    assert bytes_of(found) == line
    for one in found:
        assert one.entry is not None or not ids(pieces(one.text, reading.is_record))


def test_rubbish_takes_no_time() -> None:
    """The work on a line grows with its length only, and the parts of one are few."""
    few = (
        b"{" * 400_000, b'{"a":' * 80_000, b'{"a":[' * 60_000, b'{"a":"' + b'{"b' * 90_000, b'{"a":1,' * 50_000,
        b'{"a":{}' * 50_000, b'{"a":' * 300 + b'"' + b"x" * 400_000, random.Random(3).randbytes(300_000),
    )  # fmt: skip
    for line in few:
        assert [one.text for one in pieces(line, reading.is_record)] == [line.strip(b" \t\r\n")]
    found = pieces(A * (MOST + 7), reading.is_record)
    assert (len(ids(found)), len(found)) == (MOST, MOST + 1)
    assert found[-1].text == A * 7


def test_parts_of_a_deep_line() -> None:
    """A record that is nested too deeply is none."""
    deep: Any = (
        json.dumps(says("d", None, more=0)).encode().replace(b"0}", b"[" * 600 + b"]" * 600 + b"}")
    )
    assert ids(pieces(A + deep + B, reading.is_record)) == ["a", "b"]
