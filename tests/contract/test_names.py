"""Names that reach the file system, the shell or a task id are encoded without collisions."""

from __future__ import annotations

import os
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventq
from eventq import InputError, Source
from eventq.log.notifier import quote, slug
from eventq.store.paths import Layout
from eventq.system.locks import encode

SPECIAL = [*"aA.%+~/\\-_ \n\0é☃", "..", "%2e", "+a", "a.lock", "~" + "0" * 64]
TEXTS = st.one_of(
    st.lists(st.sampled_from(SPECIAL), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=150),
    st.text("aA", min_size=100, max_size=300),
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(TEXTS, TEXTS)
def test_encoding_is_injective(one: str, other: str) -> None:
    """Two consumer ids never share a file name, also where the case of letters does not count."""
    assert (encode(one).casefold() == encode(other).casefold()) == (one == other)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(TEXTS)
def test_an_encoded_name_is_only_a_name(consumer: str) -> None:
    """An encoded id is a short plain file name: no path, not hidden, nothing a shell would read."""
    name = encode(consumer)
    assert len(name) <= 125
    assert not name.startswith(".")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.+%~")
    layout = Layout("/thread")
    assert os.path.dirname(os.path.normpath(layout.consumer(consumer).lock)) == "/thread/run"
    assert (
        os.path.dirname(os.path.normpath(layout.handler_log(consumer))) == "/thread/logs/handlers"
    )


@pytest.mark.parametrize(
    ("consumer", "name"),
    [
        ("worker-1", "worker-1"),
        ("Worker", "+worker"),
        ("../x", "%2e.%2fx"),
        (".", "%2e"),
        ("a b/c", "a%20b%2fc"),
        ("é", "%c3%a9"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 60 + "~79072a47bfaa54e6057a9ee21e0dea64b9edbfd160c4ccadbb657e64b6d22ee4"),
    ],
)
def test_encoded_names_are_readable(consumer: str, name: str) -> None:
    """What is plain stays as it is; the rest can be read back by eye; a long one ends in a hash."""
    assert encode(consumer) == name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/user/x", "-home-user-x"),
        ("/a b/ü.c", "-a-b---c"),
        ("/" + "x" * 39, "-" + "x" * 39),
        ("/" + "x" * 40, "-" + "x" * 31 + "-e65a72"),
    ],
)
def test_slug(path: str, expected: str) -> None:
    """Other characters than ASCII letters and digits are dashes; long names end in a hash."""
    assert slug(path) == expected


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_quoted_word_is_one_word(word: str) -> None:
    """A shell reads a quoted word back as it was, and as one."""
    assert shlex.split(quote(word)) == [word]


# --- sources --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("external:telegram:tg-main:group:grp-123/topic-456:alice",
         Source.external("telegram", "tg-main", "group", "grp-123/topic-456", "alice")),
        ("internal:dm:default:warden", Source.internal("dm", "default", "warden")),
        ("self", Source.own()),
    ],
)  # fmt: skip
def test_sources_are_parsed_and_built(text: str, made: Source) -> None:
    """An address is parsed to its parts and built from them, and is its text."""
    assert Source.parse(text) == made
    assert str(made) == text
    assert hash(Source.parse(text)) == hash(made)
    assert made.kind == text.split(":", maxsplit=1)[0]
    assert list(made.parts) == text.split(":")[1:]


@pytest.mark.parametrize(
    "text",
    ["", "self:", "selfish", "external", "external:a:b:c:d", "external:a:b:c:d:e:f", "internal:a:b", "internal:a::c",
     "INTERNAL:a:b:c", "internal:A:b:c", "internal:a\n:b:c", "other:a:b:c", " self", "internal:a:b:\x00"],
)  # fmt: skip
def test_sources_that_are_none(text: str) -> None:
    """Anything else raises InputError with the three forms."""
    with pytest.raises(InputError, match="external:<channel_type>"):
        Source.parse(text)


@pytest.mark.parametrize("part", ["", "a:b", "A", "a\n"])
def test_parts_that_are_none(part: str) -> None:
    """A part that would not be read back is refused when an address is built."""
    with pytest.raises(InputError):
        eventq.Source.internal("dm", part, "x")
