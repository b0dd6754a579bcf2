"""Lines of session files: the same bytes come back, and images are blobs."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eventq.memory.blobs import mentions_in
from eventq.output import entries
from eventq.sessions import lines
from eventq.sessions.lines import BOM, CUT, PLAIN, RAW

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventq.sessions.lines import Line, Packed


def encoded(data: bytes) -> str:
    """Return base64."""
    return base64.b64encode(data).decode()


def ref_of(data: bytes) -> str:
    """Return the ref of a blob."""
    return f"blob:blake3:{blake3(data).hexdigest()}"


PIXELS = [random.Random(seed).randbytes(size) for seed, size in enumerate([768, 769, 770, 900])]
IMAGES = [encoded(one) for one in PIXELS]
URL = f"data:image/png;base64,{IMAGES[0]}"
OTHER_URL = f"data:image/svg+xml;charset=utf-8;base64,{IMAGES[3]}"
OF_URL = encoded(URL.encode())  # decoded it would be taken for the URL
SHORT = encoded(PIXELS[0][:765])  # 1020 characters
NOT_CANONICAL = [
    IMAGES[1][:-3] + "R==", IMAGES[0] + "====", IMAGES[1][:-1], IMAGES[0].replace("A", "-"), IMAGES[0][:512] + "=" + IMAGES[0][513:],
    IMAGES[0][:76] + "\\n" + IMAGES[0][76:], IMAGES[0][:9] + "\\/" + IMAGES[0][9:], "A" * 1025, "x y" * 500, "é" * 600,
]  # fmt: skip
NOT_URLS = [
    f"https://x/{IMAGES[0]}", f"data:text/plain;base64,{IMAGES[0]}", f"data:image/png,{IMAGES[0]}", URL[:-1], f"{URL}#é",
    f"data:image/é;base64,{IMAGES[0]}", URL.replace("/", "\\/"),
]  # fmt: skip
THERE = b"a blob that was here before"
KNOWN = {ref_of(data): data for data in (THERE, PIXELS[0], URL.encode())}
FOREIGN = f"blob:sha256:{'0123456789abcdef' * 4}"


class Blobs(dict[str, bytes]):
    """A store of blobs, with some that are there, which counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__(KNOWN)
        self.puts: list[bytes] = []
        self.gets: list[str] = []
        self.warnings: list[str] = []

    def put(self, data: bytes) -> str:
        """Keep bytes and return their ref."""
        self.puts.append(data)
        self[ref_of(data)] = data
        return ref_of(data)

    def find(self, ref: str) -> bytes | None:
        """Return the bytes of a ref, or None."""
        self.gets.append(ref)
        return self.get(ref)


def stored(data: bytes, blobs: Blobs | None = None) -> tuple[Line, Packed]:
    """Return the parts of a line and what is stored of it, which must give the line again."""
    blobs = Blobs() if blobs is None else blobs
    line = lines.split(data)
    packed = lines.pack(line, blobs.put)
    text = lines.unpack(packed.form, packed.payload, blobs.find, blobs.warnings.append)
    assert line.before + text + line.after == data
    assert text == line.text
    assert blobs.warnings == []
    assert len(blobs.puts) == len(set(blobs.puts))
    assert len(blobs.gets) == len(blobs.puts)
    assert packed.form == (RAW if line.entry is None else CUT if blobs.puts else PLAIN)
    assert bool(line.why) == (line.entry is None)
    return line, packed


def mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a value with every string in it changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {change(key): mapped(one, change) for key, one in value.items()}
    return value


def read(text: bytes) -> Any:
    """Return a JSON value, numbers as their text, as the standard library reads it."""
    return json.loads(text.decode(), parse_int=str, parse_float=str, parse_constant=int)


def expected(data: bytes) -> Any:
    """Return the object that a line is, or None."""
    try:
        found = read(data.removeprefix(BOM).strip(b" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# --- any line -------------------------------------------------------------------------------------

PIECES = [
    "", "a", "é", "\\u00e9", "\\u00E9", "\\/", "/", "\\n", "\\ud800", "\\ud83d\\ude00", "\U0001f600", "\u2028", "\x7f", '\\"', "\\\\",
    "data:image/png;base64,", '\\"data\\":\\"', '\\\\\\"', *KNOWN, FOREIGN, ref_of(b""), f'\\"{ref_of(THERE)}\\"', f"{ref_of(b'')}0",
]  # fmt: skip
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=3).map("".join),
    st.sampled_from([*IMAGES, *IMAGES, URL, URL, OTHER_URL, OF_URL, SHORT, *NOT_CANONICAL, *NOT_URLS]),
    st.builds("{}{}".format, st.sampled_from(PIECES), st.sampled_from(IMAGES)),
    st.builds("{}{}".format, st.sampled_from(IMAGES), st.sampled_from(PIECES)),
)  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(["data", "base64", "blob", "result", "url", "image_url", "content", "source", 'a\\"data', "d\\u0061ta"]),
    TEXTS,
)  # fmt: skip
NUMBERS = st.sampled_from(
    ["0.000005", "1e21", "-0", "-0.0", "1.0", "1E5", "1e+05", "12345678901234567890", "9" * 5000, "1e400", "5e-324", "7"]
)  # fmt: skip
SPACES = st.sampled_from(["", "", "", " ", "  ", "\t", "\r"])
ATOMS = st.one_of(TEXTS.map('"{}"'.format), NUMBERS, st.sampled_from(["true", "null", "{}", "[ ]"]))


def spaced(opening: str, closing: str) -> Callable[[list[str], str], str]:
    """Return what writes members between brackets."""
    return lambda members, space: f"{opening}{space}{f'{space},'.join(members)}{space}{closing}"


def objects(values: st.SearchStrategy[str], least: int = 0) -> st.SearchStrategy[str]:
    """Return the texts of objects, which may repeat keys."""
    member = st.builds('"{}"{}:{}{}'.format, KEYS, SPACES, SPACES, values)
    return st.builds(spaced("{", "}"), st.lists(member, min_size=least, max_size=4), SPACES)


VALUES = st.recursive(
    ATOMS,
    lambda inner: objects(inner) | st.builds(spaced("[", "]"), st.lists(inner, max_size=3), SPACES),
    max_leaves=8,
)
ENTRIES = st.builds(
    lambda before, text, after: before + text.encode() + after,
    st.sampled_from([b"", b"", b"", BOM, b" ", BOM + b"\t "]),
    objects(VALUES, least=1),
    st.sampled_from([b"\n", b"\n", b"\r\n", b"", b" \t\r\n"]),
)
BROKEN = st.builds(  # bytes replaced somewhere
    lambda line, at, length, new: line[: int(at * len(line))] + new + line[int(at * len(line)) + length :],
    ENTRIES, st.floats(0, 1), st.integers(0, 3),
    st.sampled_from([b"", b'"', b"\\", b"\x00", b"\xff", b"\xed\xa0\x80", b"\n", b"{", b"NaN", ref_of(THERE).encode()]),
)  # fmt: skip
once = settings(
    max_examples=80, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


@once
@given(ENTRIES)
@example(f'{{"data":"{IMAGES[0]}","url":"{IMAGES[0]}","data":"{URL}","url":"{URL}"}}'.encode())
@example(f'{{"data":"{IMAGES[0]}","{IMAGES[0]}":"\\"{IMAGES[0]}","b":["{IMAGES[0]}"]}}'.encode())
def test_every_object_is_an_entry_and_comes_back(data: bytes) -> None:
    """Any spelling of an object is an entry; the payload is its JSON, with refs as whole strings."""
    line, packed = stored(data, blobs := Blobs())
    whole = expected(data)
    assert line.entry is not None
    assert line.why == ""
    assert line.before in data[:5]
    assert not line.after.strip()
    ours = {ref: base64.b64encode(blobs[ref]).decode() for ref in map(ref_of, blobs.puts)}
    ours |= {ref: blobs[ref].decode() for ref in ours if blobs[ref].startswith(b"data:image/")}
    assert mapped(read(packed.payload), lambda text: ours.get(text, text)) == whole
    assert {bytes.fromhex(ref[12:]) for ref in ours} <= set(mentions_in(packed.payload))
    gone = mapped(lines.parse(packed.payload), lambda text: "" if text in ours else text)
    assert str(gone) == str(line.entry)


@once
@given(BROKEN | st.binary(max_size=40))
def test_any_bytes_come_back(data: bytes) -> None:
    """Any bytes come back; they are an entry if and only if they are an object."""
    line, packed = stored(data)
    assert (line.entry is None) == (expected(data) is None)
    assert line.entry is not None or packed[:2] == (RAW, line.text)


def deep(levels: int, opening: bytes = b'{"a":', closing: bytes = b"}") -> bytes:
    """Return an object of so many levels."""
    return b'{"a":' + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"}"


WRONG = {
    "": "empty", "\n": "empty", " \r\n": "empty", "\ufeff\n": "empty", "no": "not JSON", '{"a":1': "not JSON", '{"a":1}}': "not JSON",
    '{"a":NaN}': "not JSON", '{"a":-Infinity}': "not JSON", '{"a":"\x00"}': "not JSON", '{"a":1}\x00': "not JSON",
    '{"a":1}\x0b': "not JSON", "{'a':1}": "not JSON", '\ufeff\ufeff{"a":1}': "not JSON", "\xa0{}": "not JSON", "null": "not an object", "[{}]": "not an object",
    '"x"': "not an object", "9" * 9_999: "not an object",
}  # fmt: skip
RAWS = {
    **{text.encode(): why for text, why in WRONG.items()},
    b'{"a":"\xff"}': "not UTF-8", b'{"a":"\xed\xa0\x80"}': "not UTF-8", '{"a":1}\n'.encode("utf-16"): "not UTF-8",
    '{"a":1}\n'.encode("utf-16-le"): "not JSON", deep(501): "nested too deeply", deep(501, b"[", b"]"): "nested too deeply",
    deep(100_000): "nested too deeply", deep(100_000, b"[", b"]"): "nested too deeply", b"[" * 100_000: "nested too deeply",
    f'{{"data":"{IMAGES[0]}"'.encode(): "not JSON", f'["data":"{IMAGES[0]}"]'.encode(): "not JSON",
    f'{{"data":"{IMAGES[0]}","a":"'.encode() + b'\xff"}': "not UTF-8", f'["data:","{IMAGES[0]}"]'.encode(): "not an object",
}  # fmt: skip


@pytest.mark.parametrize(("data", "why"), RAWS.items(), ids=range(len(RAWS)))
def test_what_is_no_entry_says_why(data: bytes, why: str) -> None:
    """A line that is no JSON object is kept as its bytes, and nothing of it is put."""
    line, packed = stored(data, blobs := Blobs())
    assert line.why == why
    assert packed == (RAW, line.text, [])
    assert blobs.puts == []


@pytest.mark.parametrize("levels", [100, 499, 500])
def test_a_deep_entry(levels: int) -> None:
    """An object of as many levels as the converters of entries take is an entry."""
    for data in (deep(levels), deep(levels, b"[", b"]"), b'{"b":[{},{}],' + deep(levels)[1:]):
        assert stored(data)[0].entry == json.loads(data)


@pytest.mark.parametrize("digits", [4300, 4301, 10_000])
def test_an_integer_of_any_length(digits: int) -> None:
    """An integer too long for Python is kept, and is infinite in the entry; others are exact."""
    line, packed = stored(b'{"a":-%s,"b":12,"c":1.5}' % (b"9" * digits))
    assert line.entry is not None
    assert line.entry == lines.parse(packed.payload)
    assert (line.entry["b"], line.entry["c"]) == (12, 1.5)
    assert line.entry["a"] == (float("-inf") if digits > 4300 else 1 - 10**digits)


def test_what_stands_around_the_text() -> None:
    """A byte order mark and spaces before, spaces and the newline after, are no part of the text."""
    for before in (b"", BOM, b" \t", BOM + b" "):
        for after in (b"", b"\n", b"\r\n", b" \n"):
            line, packed = stored(before + b'{"a" : 1}' + after)
            assert (line.before, line.text, line.after) == (before, b'{"a" : 1}', after)
            assert packed == (PLAIN, b'{"a" : 1}', [])


# --- images ---------------------------------------------------------------------------------------


def image(data: str, **more: Any) -> dict[str, Any]:
    """Return an image as Pi has it."""
    return {"type": "image", "data": data, "mimeType": "image/png", **more}


def sourced(data: str, kind: str = "image", mime: str = "image/png") -> dict[str, Any]:
    """Return an image or a document as Claude has it."""
    return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}


PLACES: dict[str, tuple[Any, list[bytes]]] = {  # an entry, and what is put of it
    "pi": ({"message": {"content": [image(IMAGES[0])]}}, [PIXELS[0]]),
    "images and frames": ({"images": [image(IMAGES[1])], "frames": [image(IMAGES[2])]}, PIXELS[1:3]),
    "claude": ({"message": {"content": [sourced(IMAGES[0])]}}, [PIXELS[0]]),
    "two images": ({"content": [sourced(IMAGES[3]), sourced(IMAGES[0]), sourced(IMAGES[3])]}, [PIXELS[3], PIXELS[0]]),
    "codex": ({"payload": {"content": [{"type": "input_image", "image_url": URL}]}}, [URL.encode()]),
    "a chat's URL": ({"image_url": {"url": OTHER_URL}}, [OTHER_URL.encode()]),
    "a generated image": ({"type": "image_generation_call", "result": IMAGES[1]}, [PIXELS[1]]),
    "the shortest": ({"content": [image(IMAGES[0][:1024])]}, [PIXELS[0][:768]]),
    "too short": ({"content": [image(SHORT)], "image_url": f"data:image/png;base64,{SHORT[:-20]}"}, []),
    "not canonical": ({"content": [image(json.loads(f'"{one}"')) for one in NOT_CANONICAL]}, []),
    "no data URLs": ([{"image_url": json.loads(f'"{one}"')} for one in [*NOT_URLS[:4], *NOT_URLS[5:6]]], []),
    "decoded it is a URL": ({"content": [image(OF_URL)]}, []),
    "a signature": ({"content": [{"type": "thinking", "signature": IMAGES[0]}], "text": IMAGES[1]}, []),
    "a URL in place of base64": ({"content": [image(URL)], "image_url": IMAGES[0]}, []),
    "removed and cut elsewhere": ({"partialJson": "x" * 600_000, "thinkingSignature": "y" * 600_000}, []),
}  # fmt: skip
ELSEWHERE: dict[str, tuple[Any, list[bytes]]] = {  # what no table of entries names
    "repeated": (
        {"message": {"content": [sourced(IMAGES[0])]}, "toolUseResult": {"file": {"base64": IMAGES[0], "type": "image/png"}}}, [PIXELS[0]],
    ),
    "equal to an image": ({"a": [IMAGES[0], "x" * 1024], "content": [image(IMAGES[0])], "b": {"signature": IMAGES[0]}}, [PIXELS[0]]),
    "equal to a URL": ({"a": URL, "image_url": URL, "b": [URL]}, [URL.encode()]),
    "nothing else": ({"data": IMAGES[0]}, [PIXELS[0]]),
    "a document": ({"content": [sourced(IMAGES[2], "document", "application/pdf")]}, [PIXELS[2]]),
    "a resource": ({"resource": {"mimeType": "image/png", "blob": IMAGES[1]}}, [PIXELS[1]]),
}  # fmt: skip


def spell(entry: Any, *, tight: bool = True) -> bytes:
    """Return the line of an entry."""
    entry = {"list": entry} if isinstance(entry, list) else entry
    separators = (",", ":") if tight else (" ,\t", " :  ")
    return json.dumps(entry, ensure_ascii=False, separators=separators).encode()


@pytest.mark.parametrize("tight", [True, False], ids=["tight", "spaced"])
@pytest.mark.parametrize("name", [*PLACES, *ELSEWHERE])
def test_which_texts_are_put(name: str, *, tight: bool) -> None:
    """Each image is put once, however often the line has it; its base64 is not in the payload."""
    entry, puts = (PLACES | ELSEWHERE)[name]
    line, packed = stored(spell(entry, tight=tight), blobs := Blobs())
    assert blobs.puts == puts
    assert set(mentions_in(packed.payload)) == {blake3(one).digest() for one in puts}
    texts = [one if one.startswith(b"data:") else base64.b64encode(one) for one in puts]
    assert not any(b'"%s"' % text in packed.payload for text in texts)
    if name in PLACES:
        back = entries.rehydrate(lines.parse(packed.payload), blobs.find, blobs.warnings.append)
        assert back == json.loads(line.text)


def test_an_escaped_image_stays() -> None:
    """A text with escapes stays in place, as does one inside another text."""
    escaped = IMAGES[0].replace("/", "\\/")
    inner = json.dumps(json.dumps({"data": IMAGES[0]}))
    for data in (f'{{"data":"{escaped}"}}', f'{{"d\\u0061ta":"{IMAGES[0]}"}}', f'{{"a":{inner}}}'):
        _, packed = stored(data.encode())
        assert (packed.form, packed.payload) == (PLAIN, data.encode())


def test_an_equal_text_after_an_escaped_quote_is_not_the_same_string() -> None:
    """The end of a longer string that equals an image stays with its string."""
    data = f'{{"a":"\\"{IMAGES[0]}","data":"{IMAGES[0]}"}}'
    _, packed = stored(data.encode())
    assert json.loads(packed.payload) == {"a": f'"{IMAGES[0]}', "data": ref_of(PIXELS[0])}


def test_refs_in_a_line_stay_what_they_are() -> None:
    """A quoted ref of a blob that exists comes back as a ref; such a line keeps its images too."""
    for ref in (*KNOWN, ref_of(b"unknown")):
        for entry in (
            {"image_url": ref},
            {"content": [image(ref), image(IMAGES[3])]},
            {ref: URL, "url": URL},
        ):
            _, packed = stored(spell(entry), blobs := Blobs())
            assert (packed.form, packed.payload) == (PLAIN, spell(entry))
            assert set(mentions_in(packed.payload)) == {bytes.fromhex(ref[12:])}
            assert blobs.puts == []
    mention = spell({"text": f'see {ref_of(THERE)} or "{ref_of(THERE)}"', "data": IMAGES[0]})
    _, packed = stored(mention)
    assert packed.form == CUT
    assert set(mentions_in(packed.payload)) == {blake3(THERE).digest(), blake3(PIXELS[0]).digest()}


def test_refs_of_other_tools() -> None:
    """The refs that another tool has in place of images are listed, not those in text."""
    other = FOREIGN.replace("0", "f")
    entry = {
        "content": [image(FOREIGN), image(IMAGES[0])],
        "text": other,
        "image_url": "blob:sha256:x",
    }
    _, packed = stored(spell(entry))
    assert packed.foreign == [FOREIGN]
    assert stored(spell({"image_url": FOREIGN}))[1].foreign == [FOREIGN]
    assert stored(b"no JSON: " + FOREIGN.encode())[1].foreign == []
    raw = stored(f"no JSON: {ref_of(THERE)}".encode() + b"\xff")[1]
    assert set(mentions_in(raw.payload)) == {blake3(THERE).digest()}


def test_a_missing_blob() -> None:
    """The ref of a blob that is not there stays, with one warning, and the others come back."""
    entry = {"content": [image(IMAGES[0]), image(IMAGES[3]), image(IMAGES[0])]}
    _, packed = stored(spell(entry), blobs := Blobs())
    del blobs[ref_of(PIXELS[0])]
    found = lines.unpack(packed.form, packed.payload, blobs.find, blobs.warnings.append)
    assert found == spell(entry).replace(IMAGES[0].encode(), ref_of(PIXELS[0]).encode())
    assert blobs.warnings == [f"blob {ref_of(PIXELS[0])} is missing; the line keeps its ref"]


@pytest.mark.parametrize(
    "entry",
    [
        {"content": [image(encoded(random.Random(9).randbytes(3_000_000)))]},
        {"text": "words of an ASCII text\n" * 150_000},
        {"image_url": f"data:image/png;base64,{encoded(random.Random(9).randbytes(3_000_000))}"},
    ],
    ids=["an image", "a text", "a URL"],
)  # fmt: skip
def test_memory(entry: Any) -> None:
    """Beside the line itself no more is held than three times as much, either way."""
    data, blobs = spell(entry), Blobs()
    tracemalloc.start()
    try:
        packed = lines.pack(lines.split(data), blobs.put)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert lines.unpack(packed.form, packed.payload, blobs.find, print) == data
        assert tracemalloc.get_traced_memory()[1] - before < 3 * len(data)
    finally:
        tracemalloc.stop()


def test_a_line_of_thousands_of_images() -> None:
    """Images of one length that differ only at their ends are a blob each."""
    many = [encoded(bytes(900) + n.to_bytes(4, "big")) for n in range(3_000)]
    line, packed = stored(spell({"content": [image(one) for one in many]}))
    assert (len(line.images), packed.payload.count(b"blob:blake3:")) == (3_000, 3_000)
