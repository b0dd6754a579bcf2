"""A query names keys and indexes; a bad one causes one of three errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventq.errors import UsageError
from eventq.output import query

VALUE: Any = {
    "a": [{"b": 1}, "two", [3, 4]],
    "0": "zero",
    "-1": "minus",
    "file name": {"x]y": True, "it's": None, 'say "hi"': 5, "back\\slash": 6},
    "": "empty",
    "t": True,
    "s": "text",
    "n": None,
    "٣": "three",
}
MARKS = st.text(st.sampled_from(".[]'\"\\ab0-_ é9\n"), max_size=30)
KEYS = st.text(max_size=8)
TREES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def spell(tokens: list[str | int]) -> str:
    """Write tokens as a query, every key in quotes."""
    escaped = (
        t if isinstance(t, int) else t.replace("\\", "\\\\").replace("'", "\\'") for t in tokens
    )
    return "".join(f"[{t}]" if isinstance(t, int) else f"['{t}']" for t in escaped)


def leaves(value: Any, tokens: tuple[str | int, ...] = ()) -> list[tuple[list[str | int], Any]]:
    """Return every value within a value, with the tokens that lead to it."""
    found: list[tuple[list[str | int], Any]] = [([*tokens], value)]
    pairs: Any = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        found += leaves(inner, (*tokens, key))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (".", []),
        ("  ", []),
        ("a", ["a"]),
        (".a", ["a"]),
        (" .a ", ["a"]),
        ("a.b", ["a", "b"]),
        (".a-b_C.9x", ["a-b_C", "9x"]),
        (".a[0]", ["a", 0]),
        ("a[0].b", ["a", 0, "b"]),
        ("a[0]b", ["a", 0, "b"]),
        (".a.[0]", ["a", 0]),
        ("[12][0]", [12, 0]),
        ("[ 12 ]", [12]),
        ("[007]", [7]),
        ("[0]", [0]),
        (".0", ["0"]),
        ("[-1]", ["-1"]),
        ("[1.5]", ["1.5"]),
        ("[raw key]", ["raw key"]),
        ("[a'b]", ["a'b"]),
        ("[a[b]", ["a[b"]),
        ("[٣]", ["٣"]),
        ("['a']", ["a"]),
        ('["a"]', ["a"]),
        ("[ 'a' ]", ["a"]),
        ("[' a ']", [" a "]),
        ("['']", [""]),
        ("['0']", ["0"]),
        ("['a]b']", ["a]b"]),
        ('["a]b"].c', ["a]b", "c"]),
        (r"['it\'s']", ["it's"]),
        (r'["it\'s"]', ["it's"]),
        (r'["say \"hi\""]', ['say "hi"']),
        (r"['back\\slash']", ["back\\slash"]),
        (r"['a\\']", ["a\\"]),
        (r"['a\nb']", ["a\\nb"]),
        ("""['"']""", ['"']),
        ("[']']", ["]"]),
    ],
)
def test_a_query_is_keys_and_indices(text: str, expected: list[str | int]) -> None:
    """Names, indexes, quoted keys and bare keys are parsed as the grammar says."""
    found = query.parse(text)
    assert expected == found
    assert [type(token) for token in expected] == [type(token) for token in found]


@pytest.mark.parametrize(("text", "what"), [
    ("a[", "missing ] in a["), ("[0", "missing ] in [0"), (".a['b'", "missing ] in .a['b'"),
    ("['b", "missing ] in ['b"), ("['b]", "missing ] in ['b]"), (r"['b\']", r"missing ] in ['b\']"),
    ("['", "missing ] in ['"), ("[]", "empty [] in []"), (".a[]", "empty [] in .a[]"),
    ("a[  ]", "empty [] in a[  ]"), ("a b", "unexpected token ' ' in a b"),
    (".a$", "unexpected token '$' in .a$"), ("]", "unexpected token ']' in ]"),
    ("é", "unexpected token 'é' in é"), ("a'", "unexpected token ''' in a'"),
    ("['a'b]", "unexpected token 'b' in ['a'b]"), ("['a''b']", "unexpected token ''' in ['a''b']"),
    (" a? ", "unexpected token '?' in  a? "), ("\n[", "missing ] in \n["),
])  # fmt: skip
def test_what_is_wrong_is_said_exactly(text: str, what: str) -> None:
    """A bad query is refused with one of three sentences, the query, and a hint."""
    with pytest.raises(UsageError) as caught:
        query.parse(text)
    assert f"Invalid query: {what}" == caught.value.what
    assert caught.value.fix
    assert type(caught.value) is UsageError


@pytest.mark.parametrize(("text", "expected"), [
    ("", []), ("/", []), ("/a", ["a"]), ("a", ["a"]), ("/a/0", ["a", 0]), ("/a/0/", ["a", 0]),
    ("//a///b//", ["a", "b"]), ("/a/-1", ["a", "-1"]), ("/a/007", ["a", 7]),
    ("/file%20name", ["file name"]), ("/a%2Fb/c", ["a/b", "c"]), ("/%30", [0]),
    ("/caf%C3%A9", ["café"]), ("/100%", ["100%"]), ("/%FF", ["\ufffd"]),
    ("/a.b/[0]", ["a.b", "[0]"]), ("/a+b", ["a+b"]), ("/٣", ["٣"]), ("/²", ["²"]),
])  # fmt: skip
def test_a_path_is_a_query(text: str, expected: list[str | int]) -> None:
    """The parts of a path are percent-decoded keys or indexes; empty parts are ignored."""
    found = query.path(text)
    assert expected == found
    assert [type(token) for token in expected] == [type(token) for token in found]


@pytest.mark.parametrize(("text", "expected"), [
    (".", VALUE), (".a[0].b", 1), (".a[1]", "two"), (".a[2][1]", 4), (".a.2.1", 4),
    (".a['2']", [3, 4]), (".0", "zero"), ("['0']", "zero"), ("[0]", None), ("[-1]", "minus"),
    (".a[-1]", None), (".a[3]", None), (".a.3", None), (".a.b", None), (".a.length", None),
    (".a.٣", None), ("['']", "empty"), ("[file name]['x]y']", True),
    (r"[file name]['it\'s']", None), (r'[file name]["say \"hi\""]', 5),
    (r"[file name]['back\\slash']", 6), (".none", None), (".none.more[0]", None), (".t[0]", None),
    (".t.real", None), (".s[0]", None), (".s.0", None), (".n.x", None), ("[٣]", "three"),
])  # fmt: skip
def test_what_a_query_leads_to(text: str, expected: Any) -> None:
    """Keys select from objects, indexes from arrays; anything else is None."""
    try:
        tokens = query.parse(text)
    except UsageError:  # digits of other scripts are a key only in brackets
        tokens = ["a", "٣"]
    assert expected == query.extract(VALUE, tokens)


def test_a_negative_number_is_no_index() -> None:
    """A token below 0 picks nothing, not the last of an array, and a boolean has no members."""
    assert query.extract([1, 2], [-1]) is None
    assert query.extract([1, 2], ["-1"]) is None
    assert query.extract([1, 2], [1]) == 2
    assert query.extract(True, [0]) is None


@pytest.mark.parametrize("digits", ["9" * 18, "9" * 19, "9" * 5000, "1" + "0" * 100_000])
def test_an_index_has_any_number_of_digits(digits: str) -> None:
    """Indexes beyond any array are missing, whatever their length or leading zeros."""
    for tokens in (query.parse(f"[{digits}]"), query.parse(f".{digits}"), query.path(f"/{digits}")):
        assert query.extract([1], tokens) is None
    assert query.parse(f"[{'0' * len(digits)}1]") == [1]
    assert query.parse(f"[{'0' * len(digits)}]") == [0]


@given(st.text() | MARKS)
@example("[" * 50)
@example("\ud800")
@example("['\\")
def test_no_text_fails_otherwise(text: str) -> None:
    """Any text is parsed as tokens, or refused with a UsageError that ends with it."""
    try:
        tokens = query.parse(text)
    except UsageError as error:
        assert error.what.startswith(  # noqa: PT017
            ("Invalid query: missing ]", "Invalid query: empty []", "Invalid query: unexp")
        )
        assert error.what.endswith(f" in {text}")  # noqa: PT017
        tokens = []
    for found in (tokens, query.path(text), query.path("/%" + text)):
        assert all(type(token) in (str, int) for token in found)
        query.extract(VALUE, found)
        query.extract([VALUE], found)


@given(TREES)
def test_every_value_can_be_named(value: Any) -> None:
    """Every value within a value is found by its keys in quotes, whatever text they are."""
    for tokens, expected in leaves(value):
        parsed = query.parse(spell(tokens))
        assert tokens == parsed
        assert json.dumps(expected) == json.dumps(query.extract(value, parsed))


@pytest.mark.timeout(60)  # a hundred times what it takes, and a fraction of what it would
@pytest.mark.parametrize(
    "piece", ["[", "]", "['", ".", "a", "[a]", "[0]", "['\\\\", "['a']", "[  ", ".a", "%", "/a"]
)
def test_long_queries_take_no_long_time(piece: str) -> None:
    """A million pieces are parsed in linear time."""
    text = piece * 1_000_000
    try:
        query.parse(text)
    except UsageError as error:
        assert error.what.endswith(text)  # noqa: PT017
    query.path(text)
