"""What stands on a line for data that nobody said: an object is its keys and values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventq import said
from eventq.said.values import pairs

ORDER = {"order": 99060, "customer": "c60@example.com", "total": 450.0, "lines": [1, 2], "to": {}}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (ORDER, "order 99060 · customer c60@example.com · total 450.0 · lines 2 items · to 0 fields"),
        ({"a": None, "b": True, "c": "x\n y", "d": [1]}, "a null · b true · c x y · d 1 item"),
        ({}, "{}"),
        ([1, 2], "[1, 2]"),
        ({str(n): n for n in range(14)}, "0 0 · 1 1 · 2 2 · 3 3 · 4 4 · 5 5 · 6 6 · 7 7 · 8 8 · 9 9 · 10 10 · 11 11 · …"),
        ({"a": "x" * 200}, f"a {'x' * 99}…"),
        ({"a": "x" * 200_000}, '{"a": "' + "x" * 292 + "…"),
    ],
)  # fmt: skip
def test_an_object_is_its_keys_and_values(value: Any, line: str) -> None:
    """What is too long is the beginning of its JSON."""
    assert said.read(json.dumps(value).encode()).line(300) == line


def test_what_is_said_comes_before_data() -> None:
    """Of a message that has both."""
    message = {"role": "user", "content": [{"type": "odd", "n": 1}, {"type": "text", "text": "hi"}]}
    assert said.of(message).line(80) == "hi"
    assert said.read(b"\xff").line(80) == "binary, 1 byte"


@given(st.text(max_size=200))
def test_whatever_is_no_object_has_no_pairs(text: str) -> None:
    """And nothing raises."""
    assert isinstance(pairs("{" + text), str)
    assert pairs("[" + text) == ""
