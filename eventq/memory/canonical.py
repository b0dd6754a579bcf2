"""Canonical JSON: equal values have equal bytes, so that a hash names a value.

The rule `eventq-json-1`: UTF-8 without a byte order mark; keys sorted by code point; `,` and `:`
without blanks; text escaped only where JSON requires it; integers in full, of any size; floats as
Python's `repr`, so `1`, `1.0` and `-0.0` differ; no NaN, no infinity, no unpaired surrogates, no
duplicate keys; arrays and objects nested at most DEEPEST deep. A value consists of dict, list,
tuple (an array too), str, int, float, bool and None. Subclasses are refused, since their `repr` or
order could change the bytes. Other rules may be registered under other names.
"""

from __future__ import annotations

from eventq.errors import InputError, UsageError
from eventq.system.jsontext import Reader, writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    _Path = tuple["_Path", int | str] | None

EVENTQ_JSON_1 = "eventq-json-1"
DEEPEST = 256  # of the rule, not of the interpreter: what one program may hash every other may
_BOXES = frozenset((dict, list, tuple))
_LEAVES = frozenset((str, int, float, bool, type(None)))
_KINDS = _BOXES | _LEAVES
_TEXT = frozenset((str,))
_DIGITS = 512  # of a number that is converted at once; Python's own limit cannot be set below 640


def dump(value: object) -> bytes:
    """Return the canonical bytes of a value.

    Raises InputError, with the path of the fault, for a value that JSON cannot represent.
    """
    if not _sound(value):
        _refuse(value)
    try:
        try:
            return _write(value).encode()
        except ValueError:  # NaN, an unpaired surrogate, or an integer too long for `repr`
            _refuse(value)
            return _slow(value).encode()
    except RecursionError:
        raise _no_stack() from None


def parse(data: bytes | bytearray | str) -> Any:
    """Return the value of one JSON text.

    Raises InputError for invalid JSON and for what the rule refuses.
    """
    text = _text_of(data)
    try:
        try:
            value = _read.decode(text)
        except ValueError:  # an integer too long for `int`, or invalid JSON, which fails again
            value = _reader(_whole).decode(text)
    except RecursionError:
        raise _no_stack() from None
    except ValueError as error:
        raise _not_json(error) from None
    if text.count("[") + text.count("{") > DEEPEST and not _sound(value):
        _refuse(value)
    if "\\ud" in text or "\\uD" in text:  # perhaps an unpaired surrogate
        dump(value)
    return value


def register(name: str, rule: Callable[[Any], bytes]) -> None:
    """Add a rule: a function from the payload that `apply` gets to the bytes to hash.

    `apply` does not catch what a rule raises. Raises InputError for a name that is taken.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InputError(f"{_shown(name)} cannot name a rule", "give a name of printable text")
    if not callable(rule):
        raise InputError(
            f"the rule '{name}' cannot be called", "give a function of one payload that gives bytes"
        )
    if _RULES.setdefault(name, rule) is not rule:
        raise InputError(
            f"the rule '{name}' is another function already", "give the new rule a name of its own"
        )


def apply(name: str, payload: object) -> bytes:
    """Return the bytes to hash of a payload, by the rule of this name.

    For `eventq-json-1` bytes are a JSON text in any spelling; everything else, a str too, is a
    value. Raises UsageError for a name that is not registered.
    """
    rule = _RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise UsageError(
            f"there is no rule {_shown(name)}", f"name one of: {', '.join(sorted(_RULES))}"
        )
    made = rule(payload)
    if type(made) is not bytes:
        raise InputError(f"the rule '{name}' gave {type(made).__name__}", "let the rule give bytes")
    return made


def _json_1(payload: Any) -> bytes:
    return dump(
        parse(bytes(payload)) if isinstance(payload, bytes | bytearray | memoryview) else payload
    )


_RULES: dict[str, Callable[[Any], bytes]] = {EVENTQ_JSON_1: _json_1}


def _reader(parse_int: Callable[[str], int] | None = None) -> Reader:
    return Reader(
        parse_float=_finite,
        parse_int=parse_int,
        parse_constant=_constant,
        object_pairs_hook=_without_twins,
    )


def _text_of(data: Any) -> str:
    """Return a JSON text as str, without a byte order mark; refuse invalid Unicode."""
    try:
        if isinstance(data, str):
            data.encode()
            text = data
        elif isinstance(data, bytes | bytearray | memoryview):
            text = bytes(data).decode()
        else:
            raise InputError(
                f"a {type(data).__name__} is no JSON text", "give the text as bytes or str"
            )
    except UnicodeError as error:
        where = f"at position {error.start}"  # type: ignore[attr-defined]
        raise InputError(
            f"the text is not UTF-8, {where}", "give JSON in UTF-8, without unpaired surrogates"
        ) from None
    return text.removeprefix("\ufeff")


def _sound(value: object) -> bool:
    """Return whether a value has only the eight types, text keys, and at most DEEPEST levels.

    It goes level by level and visits each container once a level, so one that contains itself is
    found to be too deep without an endless loop.
    """
    if type(value) not in _BOXES:
        return type(value) in _LEAVES
    level: Iterable[Any] = (value,)
    for _ in range(DEEPEST):
        below: dict[int, object] = {}
        for box in level:
            if type(box) is dict and not _TEXT.issuperset(map(type, box)):
                return False
            inside = box.values() if type(box) is dict else box
            kinds = set(map(type, inside))
            if not kinds <= _KINDS:
                return False
            if not kinds <= _LEAVES:
                for one in inside:
                    if type(one) in _BOXES:
                        below[id(one)] = one
        if not below:
            return True
        level = below.values()
    return False


def _refuse(root: object) -> None:
    """Raise InputError for the first fault of a value, in the order of writing; return if sound.

    A path is a chain of steps that is formatted only for a message: formatted for each value, long
    keys above many values would fill the memory.
    """
    pending: list[tuple[_Path, Any, int]] = [(None, root, 0)]
    seen = set()
    while pending:
        path, value, depth = pending.pop()
        if type(value) not in _BOXES:
            _refuse_leaf(path, value)
        elif depth == DEEPEST:
            what = (
                f"the value at {_spelled(path)} lies in more than {DEEPEST - 1} others, or one of"
                f" them holds itself"
            )
            raise InputError(what, f"nest no more than {DEEPEST} arrays and objects")
        elif (id(value), depth) not in seen:  # a shared container is visited once a depth
            seen.add((id(value), depth))
            inside = [((path, step), one, depth + 1) for step, one in _inside(path, value)]
            pending += reversed(inside)


def _inside(path: _Path, box: Any) -> Iterator[tuple[int | str, object]]:
    """Yield the items of a container with their steps; refuse a key that is not a str."""
    if type(box) is not dict:
        yield from enumerate(box)
        return
    for key, one in box.items():
        if type(key) is not str:
            what = f"the object at {_spelled(path)} has a key of type {type(key).__name__}"
            raise InputError(what, "give every key as a plain str")
        if not _is_encodable(key):
            raise InputError(
                f"the key {_shown(key)} at {_spelled(path)} holds an unpaired surrogate",
                "leave it out",
            )
        yield key, one


def _refuse_leaf(path: _Path, value: object) -> None:
    if type(value) not in _LEAVES:
        what = f"the value at {_spelled(path)} is of type {type(value).__name__}"
        raise InputError(what, "give plain dict, list, tuple, str, int, float, bool and None only")
    if type(value) is float and value - value != 0:  # NaN and the infinities
        what = f"the value at {_spelled(path)} is {value}, for which JSON has no word"
        raise InputError(what, "give a finite number or None")
    if type(value) is str and not _is_encodable(value):
        what = f"the text at {_spelled(path)} holds an unpaired surrogate"
        raise InputError(what, "leave it out")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _spelled(path: _Path) -> str:
    """Return a path as `.a[3]`, without its middle if it is long."""
    steps: list[str] = []
    while path:
        path, step = path
        plain = type(step) is str and len(step) <= 60 and step.isidentifier()
        steps.append(f".{step}" if plain else f"[{_shown(step)}]")
    text = "".join(reversed(steps)) or "the root"
    return text if len(text) <= 120 else f"{text[:60]}…{text[-59:]}"


def _shown(name: object) -> str:
    """Return a name or a step for a message: on one line, and cut if it is long."""
    if type(name) is int:
        return str(name)
    if type(name) is not str:
        return f"a {type(name).__name__}"
    return ascii(name) if len(name) <= 60 else f"{name[:59]!a}…"


def _not_json(error: Exception) -> InputError:
    what: str = getattr(error, "msg", "")
    at: int = getattr(error, "pos", 0)
    return InputError(
        f"the text is not JSON: {what}, at character {at}", "give exactly one JSON value"
    )


def _no_stack() -> InputError:
    return InputError(
        "the value is nested too deeply for the stack that is left",
        "call this from a shallower place",
    )


def _constant(name: str) -> None:
    raise InputError(f"the text holds {name}, which is not JSON", "give a finite number or null")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:  # the infinities
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        raise InputError(
            f"the number {shown} is too large for a float",
            "give a smaller one, or an integer in full",
        )
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts: dict[str, int] = {}
        for key, _ in pairs:
            counts[key] = counts.get(key, 0) + 1
        twin = next(key for key, count in counts.items() if count > 1)
        raise InputError(f"the key {_shown(twin)} stands twice in one object", "give each key once")
    return made


def _slow(value: Any) -> str:
    """Write a sound value with integers of more digits than `repr` allows; else the same text."""
    if type(value) is dict:
        return "{" + ",".join([f"{_slow(key)}:{_slow(value[key])}" for key in sorted(value)]) + "}"
    if type(value) in _BOXES:
        return "[" + ",".join(map(_slow, value)) + "]"
    if type(value) is int and value.bit_length() > 2048:
        return _digits(value)
    return _write(value)


def _digits(number: int) -> str:
    """Return an integer in full: split in binary and joined in decimal, which has no limit."""
    import decimal

    powers: dict[int, decimal.Decimal] = {}

    def power(bits: int) -> decimal.Decimal:
        if bits not in powers:
            powers[bits] = (
                decimal.Decimal(1 << bits)
                if bits <= 1024
                else power(bits >> 1) * power(bits - (bits >> 1))
            )
        return powers[bits]

    def whole(part: int, bits: int) -> decimal.Decimal:
        if bits <= 1024:
            return decimal.Decimal(part)
        low = bits >> 1
        return whole(part >> low, bits - low) * power(low) + whole(part & ((1 << low) - 1), low)

    with decimal.localcontext() as context:
        context.prec, context.Emax, context.Emin = (
            decimal.MAX_PREC,
            decimal.MAX_EMAX,
            decimal.MIN_EMIN,
        )
        context.traps[decimal.Inexact] = True
        return "-" * (number < 0) + str(whole(abs(number), number.bit_length()))


def _whole(text: str) -> int:
    """Return the integer of a text of any length: `int` takes only so many digits at once."""
    powers: dict[int, int] = {}

    def power(digits: int) -> int:
        if digits not in powers:
            powers[digits] = (
                10**digits
                if digits <= _DIGITS
                else power(digits >> 1) * power(digits - (digits >> 1))
            )
        return powers[digits]

    def whole(part: str) -> int:
        if len(part) <= _DIGITS:
            return int(part)
        low = len(part) >> 1
        return whole(part[:-low]) * power(low) + whole(part[-low:])

    return -whole(text[1:]) if text.startswith("-") else whole(text)


_write = writer(sort_keys=True, allow_nan=False)
_read = _reader()
