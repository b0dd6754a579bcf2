"""Senders, shortened for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventq.records.source import sender_of


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        ("self", "this thread", ""),
        ("internal:dm:coder:main", "coder", "agent"),
        ("internal:dm:default:ada", "ada", "agent"),
        ("internal:dm:main:default", "default", "agent"),
        ("internal:dm:coder:", "coder", "agent"),
        ("external:webhook:shop:acme::", "acme", "webhook"),
        ("external:telegram:bot:dm:42:alice", "alice", "telegram"),
        ("person", "person", ""),
        ("internal:a:b", "internal:a:b", ""),
        ("internal:a::", "internal:a::", ""),
        ("external:::::", "external:::::", ""),
        ("", "", ""),
    ],
)
def test_a_sender_is_shortened(source: str, name: str, kind: str) -> None:
    """To the part that tells senders apart, and what it is; what has no form stays as it is."""
    assert sender_of(source) == (name, kind, source)


@given(st.text(":ab", max_size=20).map("internal:".__add__) | st.text(max_size=30))
def test_every_sender_has_a_name(source: str) -> None:
    """Which is a part of its source, unless that is the thread itself."""
    found = sender_of(source)
    assert found.source == source
    assert found.name == "this thread" or (
        found.name in source and bool(found.name) == bool(source)
    )
