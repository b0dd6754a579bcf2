"""The keys of a terminal, whose bytes may come in any pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventq.cli.keyboard import MOST_PASTED, Key, Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

PIECES = ("q", "é", "漢", "\x1b[A", "\x1bOB", "\x1b[5~", "\r", "\x7f", "\x1b[200~a\nb\x1b[C\x1b[201~",
          "\x1b[1;5C", "\x01", "\x1b[?1;2c")  # fmt: skip


def keys_of(pieces: Sequence[bytes]) -> list[Key]:
    """Return the keys in bytes that come in pieces."""
    keys = Keys()
    return [*(key for piece in pieces for key in keys.feed(piece)), *keys.flush()]


def test_keys_have_names() -> None:
    """What is pasted is one of them, and none of what is in it; unknown ones are left out."""
    assert keys_of(["".join(PIECES).encode()]) == [
        Key("text", "q"), Key("text", "é"), Key("text", "漢"), Key("up"), Key("down"),
        Key("page up"), Key("enter"), Key("backspace"), Key("paste", "a\nb\x1b[C"),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "name"), [("\x1b", "escape"), ("\x1b[", "escape")])
def test_an_escape_is_a_key_when_nothing_follows(text: str, name: str) -> None:
    """Which the time says."""
    assert keys_of([text.encode()]) == [Key(name)]
    assert keys_of([b"\x1bq"]) == [Key("escape"), Key("text", "q")]


@given(st.lists(st.sampled_from(PIECES)), st.data())
def test_pieces_do_not_matter(parts: list[str], data: st.DataObject) -> None:
    """A terminal, or a network, may cut anywhere."""
    whole = "".join(parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert keys_of(pieces) == keys_of([whole])


@given(st.lists(st.binary(max_size=20)))
def test_any_bytes_are_keys(pieces: list[bytes]) -> None:
    """None raises, and typed text is printable."""
    for key in keys_of(pieces):
        assert key.name != "text" or key.text.isprintable()


def test_what_is_pasted_is_bounded() -> None:
    """A paste that does not end takes no more memory."""
    keys = Keys()
    for _ in range(100):
        assert [*keys.feed(b"\x1b[200~" + b"x" * 10_000)] == []
    (pasted,) = keys.feed(b"\x1b[201~")
    assert len(pasted.text) == MOST_PASTED
