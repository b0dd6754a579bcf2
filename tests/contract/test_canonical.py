"""Equal values are the same bytes under `eventq-json-1`, and what JSON cannot say has no bytes."""

from __future__ import annotations

import enum
import itertools
import sys
from collections import OrderedDict, namedtuple
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventq.errors import InputError, UsageError
from eventq.memory.canonical import DEEPEST, EVENTQ_JSON_1, apply, dump, parse, register
from tests.contract.runs import spelled

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SIGNS = st.sampled_from([1, -1])
LONG = st.integers(600, 9000)
HUGE = st.builds(lambda n, k, s: s * (n + 10**k), st.integers(0, 1 << 70), LONG, SIGNS)
REALS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | st.integers() | REALS | TEXT


def nested_values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return arrays and objects of some leaves, in one another."""
    return st.recursive(leaves, lambda v: st.lists(v) | st.dictionaries(TEXT, v), max_leaves=20)


TEN = 10**10_000
TEN_TEXT = b"1" + b"0" * 10_000


class Text(str):
    __slots__ = ()


class Number(int):
    def __repr__(self) -> str:
        return "666"


class Real(float):
    def __repr__(self) -> str:
        return "666"


class Colour(enum.IntEnum):
    RED = 1


Pair = namedtuple("Pair", "a b")  # noqa: PYI024


def nested(depth: int, inner: Any = None) -> Any:
    """Return a value with so many boxes in one another, arrays and objects by turns."""
    for level in range(depth):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"b": 1, "a": [True, False, None]},
            "7b2261223a5b747275652c66616c73652c6e756c6c5d2c2262223a317d",
        ),
        ("é\U0001f600", "22c3a9f09f988022"),
        (
            '\x00\x1f\x7f"\\/\b\f\n\r\t\u2028',
            "225c75303030305c75303031667f5c225c5c2f5c625c665c6e5c725c74e280a822",
        ),
        (
            {"\U00010000": 1, "\uffff": 2, "é": 3, "z": 4, "Z": 5, "": 6},
            "7b22223a362c225a223a352c227a223a342c22c3a9223a332c22efbfbf223a322c22f0908080223a317d",
        ),
        (
            [1.0, -0.0, 1e16, 1e-7, 0.1, 123456789.125],
            "5b312e302c2d302e302c31652b31362c31652d30372c302e312c3132333435363738392e3132355d",
        ),
        ((1, -2, 18446744073709551616), "5b312c2d322c31383434363734343037333730393535313631365d"),
        ({}, "7b7d"),
        ([], "5b5d"),
        ("", "2222"),
        (None, "6e756c6c"),
    ],
)
def test_exact_bytes(value: object, expected: str) -> None:
    """The bytes of these values are these: a change of one would change every hash."""
    assert dump(value).hex() == expected


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(nested_values(LEAVES | HUGE))
@example({"a": [TEN, -TEN, {"b": 1.5, "a": "é"}]})
def test_there_and_back(value: Any) -> None:
    """What was dumped is parsed as an equal value, and dumped again as the same bytes."""
    data = dump(value)
    assert parse(data) == value
    assert parse(data.decode()) == value
    assert dump(parse(data)) == data


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(nested_values(LEAVES))
def test_as_the_json_module_writes(value: Any) -> None:
    """The bytes are those that Python's own `json` writes, with sorted keys and no blanks."""
    assert dump(value) == spelled(value)


def test_tuples_are_arrays() -> None:
    """A tuple and a list of the same values are the same bytes."""
    assert dump({"a": (1, (2, TEN))}) == dump({"a": [1, [2, TEN]]})


@pytest.mark.parametrize("digits", [*range(610, 650), 4299, 4300, 4301, 10_000, 100_001])
def test_integers_of_any_size(digits: int) -> None:
    """Integers beyond Python's 4300 digits are written and read; its limit stays as it was."""
    before = sys.get_int_max_str_digits()
    text = ("1234567890" * (digits // 10 + 1))[:digits].encode()
    number = parse(text)
    assert number % 10**9 == int(text[-9:])
    assert number // 10 ** (digits - 9) == int(text[:9])
    assert dump(number) == text
    assert dump(parse(b"-" + text)) == b"-" + text
    assert dump(10**digits) == b"1" + b"0" * digits
    assert dump([1 - 10**digits]) == b"[-" + b"9" * digits + b"]"
    assert sys.get_int_max_str_digits() == before


def test_integers_under_a_lower_limit() -> None:
    """A program that sets Python's limit to its lowest changes nothing."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for digits in (600, 615, 616, 617, 618, 639, 640, 641, 1300):
            assert dump(parse(b"[%s]" % (b"7" * digits))) == b"[%s]" % (b"7" * digits)
    finally:
        sys.set_int_max_str_digits(before)


BAD_VALUES = [
    (float("nan"), "the root is nan"),
    ({"a": [0, 1, 2, float("inf")]}, ".a[3] is inf"),
    ([float("-inf")], "[0] is -inf"),
    ({1: 2}, "the root has a key of type int"),
    ({"a": {None: 2}}, ".a has a key of type NoneType"),
    ([{True: 2}], "[0] has a key of type bool"),
    ({1: 2, "a": 3}, "key of type int"),
    ({10**5000: 1}, "key of type int"),
    ({Text("a"): 1}, "key of type Text"),
    ([Text("a")], "[0] is of type Text"),
    (Text("a"), "the root is of type Text"),
    ({"a b": Number(3)}, "['a b'] is of type Number"),
    ([Real(3)], "type Real"),
    (Colour.RED, "type Colour"),
    ([Pair(1, 2)], "type Pair"),
    ([OrderedDict(a=1)], "type OrderedDict"),
    ([Decimal(1)], "type Decimal"),
    (b"abc", "type bytes"),
    ({"a": {1, 2}}, ".a is of type set"),
    (object(), "type object"),
    ("\ud83d", "the root holds an unpaired surrogate"),
    (["ok", "\ud83d\ude00"], "[1] holds an unpaired surrogate"),
    ({"x": {"\udc00": 1}}, "the key '\\udc00' at .x holds an unpaired surrogate"),
    ([TEN, float("nan")], "[1] is nan"),
    ([TEN, "\ud800"], "[1] holds an unpaired surrogate"),
]


@pytest.mark.parametrize(("value", "said"), BAD_VALUES, ids=[said for _, said in BAD_VALUES])
def test_what_json_cannot_say(value: object, said: str) -> None:
    """A value that JSON cannot say is refused; the message says where it stands."""
    with pytest.raises(InputError) as caught:
        dump(value)
    assert said in caught.value.what
    assert caught.value.fix
    assert str(caught.value).isprintable()


def test_first_fault_in_order_of_writing() -> None:
    """Of several faults the first one is named."""
    with pytest.raises(InputError, match=r"\.a\[0\]\.b is nan"):
        dump({"a": [{"b": float("nan")}, {1: 1}], "c": object()})


def test_messages_stay_short() -> None:
    """A long path or key does not make a long message, nor many long keys much memory."""
    value: Any = float("nan")
    for _ in range(200):
        value = {"k" * 100_000: [0] * 500 + [value]}
    with pytest.raises(InputError) as caught:
        dump(value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "inner", [None, [], {}, 1, TEN], ids=["null", "array", "object", "integer", "long integer"]
)
def test_depth(inner: Any) -> None:
    """The deepest value that the rule allows is written and read; one more level is refused."""
    boxes = DEEPEST - (inner in ([], {}))
    data = dump(nested(boxes, inner))
    assert dump(parse(data)) == data
    for value in (nested(boxes + 1, inner), nested(20_000, inner)):
        with pytest.raises(InputError, match=f"lies in more than {DEEPEST - 1} others"):
            dump(value)
    with pytest.raises(InputError, match=f"lies in more than {DEEPEST - 1} others"):
        parse(b"[%s]" % data)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":', "[" * 500 + "]" * 500 + "["])
def test_hostile_depth_of_a_text(opening: str) -> None:
    """A text of a hundred thousand boxes is an error and no crash, closed or not."""
    closing = "".join("]" if c == "[" else "}" for c in reversed(opening) if c in "[{")
    for text in (opening * 100_000, opening * 100_000 + "1" + closing * 100_000):
        with pytest.raises(InputError):
            parse(text)


def test_values_that_hold_themselves() -> None:
    """A box that holds itself, once or often, is refused at once."""
    one: list[Any] = []
    one.append(one)
    many: dict[str, Any] = {}
    many.update(dict.fromkeys("abcdefgh", many))
    for value in (one, many, [one, many] * 5):
        with pytest.raises(InputError, match="holds itself"):
            dump(value)


def test_fault_below_shared_boxes() -> None:
    """A fault below boxes that stand in many places is found at once, not after 2**200 looks."""
    value: Any = [object()]
    for _ in range(200):
        value = [value, value]
    with pytest.raises(InputError, match="type object"):
        dump(value)
    clean: Any = [1]
    for _ in range(200):
        clean = [clean, clean]
    with pytest.raises(InputError, match=r"\[1\] is of type object"):
        dump([clean, object()])
    for _ in range(100):
        clean = [clean, clean]
    with pytest.raises(InputError, match="lies in more than"):
        dump(clean)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dump(nested(200)),
        lambda: dump(nested(200, TEN)),
        lambda: parse("[" * 200 + "]" * 200),
    ],
)
def test_little_stack_left(call: Any) -> None:
    """With hardly any stack left the answer is right, or an InputError, never RecursionError."""

    def descend(depth: int) -> Any:
        return descend(depth - 1) if depth else call()

    outcomes = set()
    for depth in range(300, 900, 25):
        try:
            descend(depth)
            outcomes.add("answer")
        except InputError as error:
            outcomes.add("stack" if "stack" in error.what else error.what)
        except RecursionError:
            break  # not even the first call fits
    assert outcomes == {"answer", "stack"}


NO_JSON: list[Any] = [
    b"", b" ", b" \xef\xbb\xbf1", b"{}{}", b"null,", b"1\x00", b"1\x0b", "1\u00a0",
    "[1]".encode("utf-16-le"), b'"\x1f"', b'"\n"', b"'a'", b"01", b"1.", b".5", b"+1", b"-",
    b"0x10", b"1_000", "١".encode(), b"[1,]", b'{"a":1,}', b"{1:2}", b'"\\x41"', b'"\\u00g0"',
    b"True", b"[" + b"7" * 5000 + b", oops]", b"-" + b"7" * 5000 + b"x",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "not JSON") for text in NO_JSON),
        (b"1 2", "not JSON: Extra data, at character 2"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b"1e999", "1e999 is too large"),
        (b"[-1E400]", "-1E400 is too large"),
        (b"1" * 400 + b".0", "too large"),
        (b'{"a":1,"a":1}', "the key 'a' stands twice"),
        (b'[{"x":{"a":1,"\\u0061":2}}]', "the key 'a' stands twice"),
        (b'{"b":0,"\xc3\xa9":1,"\\u00e9":2}', "the key '\\xe9' stands twice"),
        (b'"\\ud83d"', "an unpaired surrogate"),
        (b'["\\uDE00\\uD83D"]', "[0] holds an unpaired surrogate"),
        (b'{"\\udc00":1}', "an unpaired surrogate"),
        (b"[" + b"7" * 5000 + b',"\\ud800"]', "an unpaired surrogate"),
        (b'"\xed\xa0\xbd"', "not UTF-8, at position 1"),
        ('"\ud83d"', "not UTF-8, at position 1"),
        (b"\xff", "not UTF-8"),
        ("1".encode("utf-16"), "not UTF-8"),
        (12, "a int is no JSON text"),
        (None, "a NoneType is no JSON text"),
    ],
)
def test_what_is_not_json(text: Any, said: str) -> None:
    """A text that is not exactly one JSON value that the rule allows is refused with a reason."""
    with pytest.raises(InputError) as caught:
        parse(text)
    assert said in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b' \t\r\n{ "b" : 1 , "a" : [ ] }\n', b'{"a":[],"b":1}'),
        (b'"\\u0061\\/\\ud83d\\ude00\\u00E9"', '"a/\U0001f600é"'.encode()),
        (b'"\\\\ud83d"', b'"\\\\ud83d"'),
        (b"-0", b"0"),
        (b"[-0.0,0.0,1.10,1E2,1e-999]", b"[-0.0,0.0,1.1,100.0,0.0]"),
        (b"1e308", b"1e+308"),
        (b"[" * 256 + b"]" * 256, b"[" * 256 + b"]" * 256),
        (
            b"[" + b",".join([b'{"[":[]}'] * 500) + b"]",
            b"[" + b",".join([b'{"[":[]}'] * 500) + b"]",
        ),
    ],
)
def test_one_spelling_of_many(text: bytes, expected: bytes) -> None:
    """Every way to spell a value in JSON comes to the same bytes."""
    assert dump(parse(text)) == expected
    assert apply(EVENTQ_JSON_1, text) == expected


@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(st.binary() | st.text(st.sampled_from('{}[]",:0123456789eE+-. \\untrfalsN\ud800\ufeff')))
def test_anything_is_parsed_or_refused(data: bytes | str) -> None:
    """Any bytes and any text give a value that can be dumped again, or InputError."""
    try:
        value = parse(data)
    except InputError:
        return
    assert parse(dump(value)) == value


def test_apply_takes_texts_as_bytes_and_values_as_they_are() -> None:
    """By the own rule bytes of every kind are JSON texts, and a str is a value like any other."""
    text = b'{"b":1, "a":2}'
    for payload in (text, bytearray(text), memoryview(text), {"b": 1, "a": 2}):
        assert apply(EVENTQ_JSON_1, payload) == b'{"a":2,"b":1}'
    assert apply(EVENTQ_JSON_1, '{"b":1}') == b'"{\\"b\\":1}"'
    assert EVENTQ_JSON_1 == "eventq-json-1"
    for bad in (b"{", object(), float("nan")):
        with pytest.raises(InputError):
            apply(EVENTQ_JSON_1, bad)


def named(payload: object) -> bytes:
    """Return which object a payload is."""
    return b"%d" % id(payload)


def test_rules_of_others() -> None:
    """A registered rule gets the payload as it is; its bytes are what `apply` returns."""
    for _ in range(2):
        register("other-1", named)  # the same again is fine
    payload = object()
    assert apply("other-1", payload) == named(payload)


def test_used_names_are_refused() -> None:
    """A name stands for one function for good, that of the own rule too: hashes were made by it."""
    register("other-1", named)
    for name in ("other-1", EVENTQ_JSON_1):
        with pytest.raises(InputError, match=f"'{name}' is another function already"):
            register(name, lambda _: b"2")
    assert apply("other-1", None) == named(None)
    assert apply(EVENTQ_JSON_1, None) == b"null"


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "\ud800", None, 3, b"a", "\u200b"])
def test_names_that_cannot_be(name: Any) -> None:
    """A name of a rule is printable text."""
    with pytest.raises(InputError, match="cannot name a rule"):
        register(name, lambda _: b"")


def test_rules_that_do_not_work() -> None:
    """What cannot be called is no rule, and what a rule gives is bytes."""
    with pytest.raises(InputError, match="cannot be called"):
        register("other-1", "text")  # type: ignore[arg-type]
    register("other-2", lambda _: "text")  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="gave str"):
        apply("other-2", 1)


@pytest.mark.parametrize("name", ["nobody-1", "", None, 3, ["a"], "x" * 1000])
def test_unknown_rules(name: Any) -> None:
    """An unknown name is a UsageError that lists the known ones."""
    register("other-1", named)
    with pytest.raises(UsageError) as caught:
        apply(name, {})
    assert type(caught.value) is UsageError
    assert caught.value.fix.startswith("name one of: eventq-json-1, other-1")
    assert len(str(caught.value)) < 200


def test_keys_are_sorted_by_code_point() -> None:
    """Keys stand in the order of their code points, not that of UTF-16."""
    keys = ["", "\x00", "A", "Z", "a", "aa", "é"]
    keys += ["\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
    for some in itertools.permutations(keys, 3):
        written = list(parse(dump(dict.fromkeys(some, 1))))
        assert written == sorted(some, key=str.encode) == sorted(some)
