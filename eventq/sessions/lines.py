"""Convert a line of a session file to a payload that keeps its spelling, and back, exactly.

Nothing is spelled again. The payload of an entry is the JSON text of its line. Only its images are
taken out of the text: a ref stands in the quotes of each, and everything else is what the tool
wrote, spaces, numbers, escapes and repeated keys included. A payload has one of three forms, which
must be kept beside it:

    RAW     there is no entry; the payload is the bytes
    PLAIN   the payload is the JSON text, and a ref in it was there before
    CUT     the payload is the JSON text, and each ref that is a whole string stands for an image

So `parse(payload)` is the entry, with refs for the images that were taken out, and the entry with
its images is `parse(unpack(…))`. A text that is taken out has no escapes, and is

    what it is                                    where                             what is put
    base64 that is encoded to the same text again `data` `base64` `blob` `result`   decoded bytes
    a data URL of an image                        `url` `image_url`                 its UTF-8
    a text equal to one of those                  anywhere on the line              nothing more

of THRESHOLD characters at least. What was put says what it was: a data URL begins with
`data:image/`, and bytes that begin so stay in the text as base64. A line with a quoted ref keeps
its images, as nobody could say later which refs stand for one.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections import Counter
from json import JSONDecodeError, JSONDecoder
from typing import NamedTuple

from eventq.output.entries import DEEPEST, THRESHOLD, foreign_refs
from eventq.records.checks import REF, SHA256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Never

    Cut = tuple[int, int, int]  # start and end in a text, place among its images
    Span = tuple[int, int, bool]

RAW, PLAIN, CUT = range(3)
BOM = b"\xef\xbb\xbf"
SPACE = b" \t\r\n"  # as JSON has it
_URL = b"data:image/"
_URL_HEAD = re.compile(rb"data:image/[\w.+-]+(?:;[\w.+=-]+){0,9};base64,")
_REF = REF.encode()
_QUOTED = re.compile(rb'"(%s[0-9a-f]{64})"' % _REF)
# The last quote opens a text, whatever the first one does: in JSON nothing else follows a colon.
_VALUE = re.compile(rb'"(?:data|base64|blob|result|(image_url|url))"[ \t\r\n]*:[ \t\r\n]*"')
_LONG = re.compile(rb'(?<!\\)"(?=([^"]{%d,})")' % THRESHOLD)


class Line(NamedTuple):
    """A line: `before + text + after` is all of it."""

    before: bytes  # a byte order mark, spaces
    text: bytes
    after: bytes  # spaces and the newline, if there is one
    entry: dict[str, Any] | None  # with "" for the images in `cuts`
    why: str  # what is wrong when it is no JSON object, else ""
    cuts: tuple[Cut, ...] = ()  # where the images are in `text`
    images: tuple[bytes, ...] = ()  # what to put


class Packed(NamedTuple):
    """What is stored of a line, beside what comes before and after its text."""

    form: int
    payload: bytes
    foreign: list[str]  # the `blob:sha256:` refs of images


def split(line: bytes) -> Line:
    """Return the parts of a line, of any bytes."""
    body = line.rstrip(SPACE)
    text = body.removeprefix(BOM).lstrip(SPACE)
    before, after = body[: len(body) - len(text)], line[len(body) :]
    cuts, images = _images(text)
    rest = _replaced(text, ((start, end, b"") for start, end, _ in cuts))
    if cuts and _QUOTED.search(rest):
        cuts, images, rest = [], [], text
    # Without its images a text is JSON if and only if it is JSON with them.
    entry, why = _entry(rest)
    if entry is None:
        return Line(before, text, after, None, why)
    return Line(before, text, after, entry, "", tuple(cuts), tuple(images))


def pack(line: Line, put: Callable[[bytes], str]) -> Packed:
    """Return what is to be stored of a line; `put` stores an image and returns its ref."""
    if line.entry is None:
        return Packed(RAW, line.text, [])
    refs = [put(image).encode() for image in line.images]
    payload = _replaced(line.text, ((start, end, refs[at]) for start, end, at in line.cuts))
    foreign = foreign_refs(line.entry) if SHA256.encode() in payload else []
    return Packed(CUT if refs else PLAIN, payload, foreign)


def unpack(
    form: int, payload: bytes, get: Callable[[str], bytes | None], warn: Callable[[str], object]
) -> bytes:
    """Return the text of a line; `get` returns the bytes of a ref, or None.

    `get` is called once for each ref. A ref whose blob is missing stays, and `warn` gets a
    sentence.
    """
    if form != CUT:
        return payload
    known: dict[bytes, bytes] = {}

    def text_of(ref: bytes) -> bytes:
        if ref not in known:
            data = get(ref.decode())
            if data is None:
                warn(f"blob {ref.decode()} is missing; the line keeps its ref")
            known[ref] = ref if data is None else _spelled(data)
        return known[ref]

    return _replaced(payload, ((*m.span(1), text_of(m[1])) for m in _QUOTED.finditer(payload)))


def parse(text: bytes) -> Any:
    """Return the value of a JSON text; an integer too long for Python is a float, so infinite.

    Raises UnicodeDecodeError, ValueError for what is no JSON, also NaN and Infinity, and
    RecursionError.
    """
    source = text.decode()
    try:
        return _DECODER.decode(source)
    except JSONDecodeError:
        raise
    except ValueError:  # twice as slow, because a function is called for each integer
        return _LONG_INTEGERS.decode(source)


def lenient(text: bytes) -> dict[str, Any] | None:
    """Return the object that a text is, also with what JSON forbids; None if it is none.

    That are control characters in a text, bytes that are no UTF-8, as U+FFFD, and NaN and
    Infinity, as null.
    """
    found = _entry(text)[0]
    if found is not None:
        return found
    try:
        value = _LENIENT.decode(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not _is_deep(value) else None


def _entry(text: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the object that a text is, or None and what is wrong with it."""
    if not text:
        return None, "empty"
    try:
        value = parse(text)
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except RecursionError:
        return None, "nested too deeply"
    except ValueError:
        return None, "not JSON"
    if not isinstance(value, dict):
        return None, "not an object"
    if text.count(b"{") + text.count(b"[") > DEEPEST and _is_deep(value):
        return None, "nested too deeply"  # where the parser gives up depends on its caller
    return value, ""


def _is_deep(value: Any) -> bool:
    """Return whether a value has more than DEEPEST levels of arrays and objects."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for box in level
            for inner in (box.values() if isinstance(box, dict) else box)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


# --- images ---------------------------------------------------------------------------------------


def _images(text: bytes) -> tuple[list[Cut], list[bytes]]:
    """Return where images are in a text, in order, and what to put of each, once."""
    values = [*_values(text)]
    if not values:
        return [], []
    others = [*_others(text, values)]
    lengths = Counter(end - start for start, end, _ in values + others)

    def name(start: int, end: int) -> bytes | int:
        """Return what equal texts have in common. Most have no equal, and need no hash."""
        return text[start:end] if lengths[end - start] > 1 else start

    images: list[bytes] = []
    known: dict[bytes | int, int] = {}
    for start, end, is_url in values:
        if (key := name(start, end)) not in known:
            image = _stored(text[start:end], is_url=is_url)
            if image is not None:
                known[key] = len(images)
                images.append(image)
    found = ((start, end, known.get(name(start, end))) for start, end, _ in sorted(values + others))
    return [(start, end, at) for start, end, at in found if at is not None], images


def _values(text: bytes) -> Iterator[Span]:
    """Yield the long values of the keys that images have; whether the key is that of a URL."""
    end = 0
    while len(text) - end > THRESHOLD and (found := _VALUE.search(text, end)):
        start = found.end()
        end = text.find(b'"', start)
        if end < 0:
            return
        if end - start >= THRESHOLD:
            yield start, end, found[1] is not None


def _others(text: bytes, values: list[Span]) -> Iterator[Span]:
    """Yield the other long strings."""
    at = 0
    for start, end, _ in [*values, (len(text), 0, False)]:
        if start - at > THRESHOLD:
            for found in _LONG.finditer(text, at, start):
                yield (*found.span(1), False)
        at = end


def _stored(text: bytes, *, is_url: bool) -> bytes | None:
    """Return what to put of a text, or None if it is no image that `_spelled` would restore."""
    if is_url:
        head = _URL_HEAD.match(text)
        return text if head and _decoded(text[head.end() :]) is not None else None
    image = _decoded(text)
    return None if image is None or image.startswith(_URL) else image


def _spelled(data: bytes) -> bytes:
    """Return the text that a blob was put for."""
    return data if data.startswith(_URL) else b2a_base64(data, newline=False)


def _decoded(text: bytes) -> bytes | None:
    """Return the bytes of base64, or None unless encoding them returns the same text.

    Strict decoding refuses all that differs before the last four characters.
    """
    try:
        data = a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    tail = data[-(len(data) % 3 or 3) :]
    return data if b2a_base64(tail, newline=False) == text[-4:] else None


def _replaced(text: bytes, parts: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return a text with other bytes from each start to its end."""
    pieces: list[bytes] = []
    at = 0
    for start, end, new in parts:
        pieces += (text[at:start], new)
        at = end
    return b"".join((*pieces, text[at:]))


def _integer(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _refuse(name: str) -> Never:
    raise ValueError(name)


def _null(_: str) -> None:
    return None


_DECODER = JSONDecoder(parse_constant=_refuse)
_LONG_INTEGERS = JSONDecoder(parse_constant=_refuse, parse_int=_integer)
_LENIENT = JSONDecoder(strict=False, parse_constant=_null, parse_int=_integer)
