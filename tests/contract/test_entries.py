"""What is stored of a session entry, and that nothing is lost by it which should not be."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eventq.errors import EventqError, InputError
from eventq.output import entries
from eventq.output.entries import (
    FULL,
    MAX_CHARS,
    NOTICE,
    SIGNATURES,
    externalize,
    foreign_refs,
    refs,
    rehydrate,
)

HEX = "0123456789abcdef" * 4
BLAKE = f"blob:blake3:{HEX}"
SHA = f"blob:sha256:{HEX}"
PIXELS = base64.b64encode(bytes(range(256)) * 3).decode()  # 1024 characters
URL = "data:image/png;base64,iVBORw0="
SMILE = "\U0001f600"  # two units
KEPT = MAX_CHARS - len(NOTICE)
BAD_REFS = [
    "blob:sha256:../../x", f"blob:sha256:{HEX.upper()}", f"blob:blake3:{HEX[:-1]}",
    f"blob:blake3:{HEX}0", f"blob:blake3:{HEX[:-1]}g", f"blob:blake3:{HEX[:30]}G{HEX[:33]}",
    f"blob:blake3:{HEX[:-1]}\n", "blob:blake3:",
]  # fmt: skip


class Shelf(dict[str, bytes]):
    """Blobs in memory; it notes what it is asked for and what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.told: list[str] = []

    def put(self, data: bytes) -> str:
        assert type(data) is bytes
        ref = f"blob:blake3:{hashlib.blake2b(data, digest_size=32).hexdigest()}"
        self[ref] = data
        return ref

    def find(self, ref: str) -> bytes | None:
        assert len(ref) == 76
        assert ref.startswith(("blob:blake3:", "blob:sha256:"))
        assert not ref[12:].strip("0123456789abcdef")
        self.asked.append(ref)
        return self.get(ref)

    def load(self, entry: Any) -> Any:
        return rehydrate(entry, self.find, self.told.append)


@pytest.fixture
def shelf() -> Shelf:
    """Return an empty shelf."""
    return Shelf()


def image(data: Any, **more: Any) -> dict[str, Any]:
    """Return an image block."""
    return {"type": "image", "mimeType": "image/png", "data": data, **more}


def units(text: str) -> int:
    """Count UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def nested(levels: int, inner: Any = None) -> Any:
    """Return a value of so many boxes in one another."""
    for level in range(levels):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


# --- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1020, 1024, 1028, 4000])
def test_images_of_1024_characters_are_put(shelf: Shelf, length: int) -> None:
    """Base64 of 1024 characters and more is put as the bytes it says; of 1020 it stays."""
    data = base64.b64encode(b"\xfb" * (length // 4 * 3)).decode()
    assert len(data) == length
    entry = {"content": [image(data)]}
    stored = externalize(entry, shelf.put)
    if length < 1024:
        assert stored is entry
        assert not shelf
    else:
        assert stored == {"content": [image(*shelf)]}
        assert [base64.b64decode(data)] == [*shelf.values()]
    assert entry == shelf.load(stored)


@pytest.mark.parametrize(
    "data",
    [
        "A" * 1023,
        "A" * 1025,
        "A" * 1023 + "B=",
        PIXELS[:-1],
        PIXELS + "\n",
        PIXELS + "====",
        PIXELS[:76] + "\n" + PIXELS[77:],
        PIXELS[:76] + "\r\n\r\n" + PIXELS[76:],
        PIXELS[:-4] + "QR==",  # bits of the padding that are set
        PIXELS[:-4] + "QUJ=",
        PIXELS[:-4] + "QQ=",
        PIXELS[:-4] + "QQ",
        PIXELS[:-4] + "Q===",
        PIXELS[:-4] + "====",
        PIXELS[:-2] + "=A",
        "QQ==" + PIXELS,
        PIXELS.replace("+", "-").replace("/", "_"),
        " " * 4 + PIXELS,
        "é" * 1024,
        "\ud800" * 1024,
        f"data:image/png;base64,{PIXELS}",
    ],
)
def test_base64_that_would_not_come_back_stays(shelf: Shelf, data: str) -> None:
    """Base64 that is not the one spelling of its bytes is left whole, at any length."""
    assert len(data) > 1020
    for more in (data, data + "\n" * MAX_CHARS):
        entry = {"content": [image(more)]}
        assert externalize(entry, shelf.put) is entry
        assert externalize(entry, shelf.put, full=True) is entry
        assert shelf.load(entry) is entry
    assert not shelf


@given(
    st.binary(min_size=765, max_size=775),
    st.integers(0, 1040),
    st.sampled_from("=AQgw/+-_\n é"),
    st.booleans(),
)
def test_only_canonical_base64_is_put(data: bytes, at: int, char: str, insert: bool) -> None:
    """Of base64 with one character changed or added, just what encodes to itself is put."""
    text = base64.b64encode(data).decode()
    at = min(at, len(text))
    text = text[:at] + char + text[at + (not insert) :]
    try:
        canonical = len(text) >= 1024 and base64.b64encode(base64.b64decode(text)).decode() == text
    except ValueError:
        canonical = False
    shelf = Shelf()
    entry = {"content": [image(text)]}
    stored = externalize(entry, shelf.put)
    assert canonical == bool(shelf)
    assert entry == shelf.load(stored)


@pytest.mark.parametrize(
    ("place", "put"),
    [
        ({"content": [image(PIXELS)]}, True),
        ({"images": [image(PIXELS)]}, True),
        ({"frames": [image(PIXELS)]}, True),
        ({"message": {"content": [{"type": "text", "text": "x"}, image(PIXELS)]}}, True),
        ([{"content": [{"content": [image(PIXELS)]}]}], True),
        ({"images": [{"data": PIXELS, "mimeType": "image/png"}]}, True),
        ({"images": [{"data": PIXELS, "mime_type": "image/webp"}]}, True),
        ({"images": [{"data": PIXELS, "media_type": "image/gif"}]}, True),
        ({"content": [{"type": "image", "data": PIXELS}]}, True),
        (
            {
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "x", "data": PIXELS},
                    }
                ]
            },
            True,
        ),
        ({"type": "image_generation_call", "result": PIXELS}, True),
        ({"output": [{"type": "image_generation_call", "result": PIXELS}]}, True),
        ({"content": [{"type": "image", "source": {"type": "url", "data": PIXELS}}]}, False),
        ({"content": [{"type": "document", "source": {"type": "base64", "data": PIXELS}}]}, False),
        ({"content": [{"type": "image", "other": {"type": "base64", "data": PIXELS}}]}, False),
        ({"content": [{"type": "file", "mimeType": "audio/wav", "data": PIXELS}]}, False),
        ({"content": [{"type": "file", "mimeType": 5, "data": PIXELS}]}, False),
        ({"content": [{"data": PIXELS}]}, False),
        ({"content": image(PIXELS)}, False),
        ({"content": [[image(PIXELS)]]}, False),
        ({"content": [PIXELS]}, False),
        ({"content": {"0": image(PIXELS)}}, False),
        ({"parts": [image(PIXELS)]}, False),
        ([image(PIXELS)], False),
        (image(PIXELS), False),
        ({"content": [image([PIXELS])]}, False),
        ({"content": [image(None)]}, False),
        ({"type": "other", "result": PIXELS}, False),
        ({"type": ["image_generation_call"], "result": PIXELS}, False),
        ({"content": [{"type": "image", "text": PIXELS}]}, False),
    ],
)
def test_where_images_are(shelf: Shelf, place: Any, put: bool) -> None:
    """Base64 is put where an image is shown, and nowhere else."""
    before = copy.deepcopy(place)
    stored = externalize(place, shelf.put)
    assert before == place
    assert put == bool(shelf)
    if put:
        assert json.dumps(place).replace(PIXELS, *shelf) == json.dumps(stored)
        assert json.dumps(place) == json.dumps(shelf.load(stored))
        assert refs(stored) == [*shelf]
    else:
        assert stored is place


@pytest.mark.parametrize(("entry", "put"), [
    ({"image_url": URL}, True), ({"a": [{"image_url": URL}]}, True),
    ({"content": [{"type": "image_url", "image_url": {"url": URL, "detail": "low"}}]}, True),
    ({"image_url": "data:image/;base64,"}, True),
    ({"image_url": "data:image/svg+xml;charset=é;base64," + SMILE}, True),
    ({"image_url": URL + "A" * MAX_CHARS}, True), ({"image_url": "data:image/png,x"}, False),
    ({"image_url": "data:text/plain;base64,aa"}, False), ({"image_url": " " + URL}, False),
    ({"image_url": "https://example.org/a.png?;base64,"}, False), ({"image_url": [URL]}, False),
    ({"image_url": {"href": URL}}, False), ({"url": URL}, False), ({"image": {"url": URL}}, False),
    ({"text": URL}, False), ({"image_url": URL + "\ud800"}, False),
    ({"image_url": URL + "\ud800" * MAX_CHARS}, False),
])  # fmt: skip
def test_data_urls_of_any_length(shelf: Shelf, entry: Any, put: bool) -> None:
    """A data URL of an image is put as its UTF-8, however short, and other URLs are left alone."""
    stored = externalize(entry, shelf.put)
    assert put == bool(shelf)
    if put:
        assert [*shelf] == refs(stored)
        [data] = shelf.values()
        assert data.startswith(b"data:image/")
        assert json.dumps(entry) == json.dumps(entry | shelf.load(stored))
    else:
        assert stored is entry
    assert entry == shelf.load(stored)
    assert not shelf.told


def test_a_long_url_that_is_no_image_is_text(shelf: Shelf) -> None:
    """What stands at `image_url` and is no image is cut as all text is."""
    stored = externalize({"image_url": "x" * 600_000}, shelf.put)
    assert stored == {"image_url": "x" * KEPT + NOTICE}


# --- rehydration ----------------------------------------------------------------------------------


def test_missing_blobs_may_be_found_later(shelf: Shelf) -> None:
    """A missing blob causes one warning and keeps its ref; a later load finds it."""
    other = base64.b64encode(b"y" * 768).decode()
    entry = {"content": [image(PIXELS), image(PIXELS), image(other)], "image_url": URL}
    stored = externalize(entry, shelf.put)
    lost = {ref: shelf.pop(ref) for ref in [*shelf] if shelf[ref] != b"y" * 768}
    before = copy.deepcopy(stored)
    found = shelf.load(stored)
    assert before == stored
    assert {**stored, "content": [*stored["content"][:2], image(other)]} == found
    assert sorted(f"blob {ref} is missing; the entry keeps its ref" for ref in lost) == sorted(
        shelf.told
    )
    shelf.update(lost)
    assert entry == shelf.load(found)
    assert entry == shelf.load(stored)


def test_a_blob_is_asked_for_once(shelf: Shelf) -> None:
    """A blob is read once per entry, however often it is named, and equal texts share memory."""
    url = URL + "A" * 2000
    entry = {
        "content": [image(PIXELS), image(PIXELS)],
        "a": {"image_url": url},
        "b": {"image_url": url},
    }
    stored = externalize(entry, shelf.put)
    found = shelf.load(stored)
    assert entry == found
    assert sorted(shelf) == sorted(shelf.asked)
    assert found["content"][0]["data"] is found["content"][1]["data"]
    shelf["blob:blake3:" + "0" * 64] = url.encode()
    both = {"content": [image("blob:blake3:" + "0" * 64)], "image_url": "blob:blake3:" + "0" * 64}
    shelf.asked.clear()
    expected = {"content": [image(base64.b64encode(url.encode()).decode())], "image_url": url}
    assert shelf.load(both) == expected
    assert shelf.asked == ["blob:blake3:" + "0" * 64]


def test_other_refs_are_resolved_too(shelf: Shelf) -> None:
    """SHA-256 refs of foreign entries are looked up like others, and `foreign_refs` lists them."""
    shelf[SHA] = b"abc"
    other = SHA.replace("0", "1")
    entry = {
        "content": [image(SHA), image("blob:sha256:x")],
        "image_url": other,
        "text": SHA.replace("0", "2"),
    }
    assert foreign_refs(entry) == sorted([SHA, other])
    assert refs(entry) == []
    found = shelf.load(entry)
    assert found["content"][0]["data"] == "YWJj"
    assert found["image_url"] == other
    assert len(shelf.told) == 2
    assert foreign_refs({"content": [image(BLAKE)]}) == []
    assert foreign_refs("x") == foreign_refs(None) == []


@pytest.mark.parametrize("bad", BAD_REFS)
def test_malformed_refs_are_left_with_a_warning(shelf: Shelf, bad: str) -> None:
    """What begins like a ref and is none is never asked for, and stays as it is."""
    for entry in (
        {"content": [image(bad)]},
        {"image_url": bad},
        {"type": "image_generation_call", "result": bad},
    ):
        assert shelf.load(entry) is entry
        assert shelf.told
        assert repr(bad) in shelf.told.pop()
        assert not shelf.told
        assert externalize(entry, shelf.put) is entry
    assert not shelf.asked
    assert foreign_refs({"image_url": bad}) == []


def test_a_warning_is_no_page(shelf: Shelf) -> None:
    """A malformed ref of any length is shown by its beginning."""
    shelf.load({"image_url": "blob:sha256:" + "x" * 100_000})
    assert len(shelf.told) == 1
    assert len(shelf.told[0]) < 200


@pytest.mark.parametrize(
    "other", ["blob:https://example.org/1", "blob:md5:00", "https://x", "", "blob"]
)
def test_other_urls_need_no_warning(shelf: Shelf, other: str) -> None:
    """A URL that does not claim to be a ref is nobody's business."""
    entry = {"image_url": other, "content": [image(other)]}
    assert shelf.load(entry) is entry
    assert not shelf.told


def test_text_that_mentions_a_ref_is_text(shelf: Shelf) -> None:
    """A ref inside text or outside of an image is not resolved, but keeps its blob."""
    digits = [f"{n:064x}" for n in range(5)]
    names = [f"blob:blake3:{one}" for one in digits]
    shelf.update(dict.fromkeys(names, b"x"))
    entry = {
        "text": names[4],
        "content": [f"see {names[3]}.", {"type": "text", "data": names[2]}],
        names[1]: [f"{BAD_REFS[4]} {BAD_REFS[1]}"],
        "more": {"url": names[0] + names[4]},
    }
    assert shelf.load(entry) is entry
    assert not shelf.asked
    assert refs(entry) == names
    assert refs(f"{names[1]} {names[0]}") == names[:2]
    assert refs(None) == refs(5) == refs([1, True]) == []


def test_bytes_that_are_no_text_stay_a_ref(shelf: Shelf) -> None:
    """A blob that is not what the place holds is warned of, and the ref stays."""
    shelf[BLAKE] = b"\xff\xfe"
    entry = {"image_url": BLAKE, "content": [image(BLAKE)]}
    assert shelf.load(entry) == {"image_url": BLAKE, "content": [image("//4=")]}
    assert shelf.told == [f"blob {BLAKE} does not fit the entry, which keeps its ref"]


def test_other_failures_are_not_hidden() -> None:
    """What `put` and `get` raise comes through."""

    def fail(_: object) -> Any:
        raise InputError("no", "yes")

    with pytest.raises(InputError, match="no"):
        externalize({"content": [image(PIXELS)]}, fail)
    with pytest.raises(InputError, match="no"):
        rehydrate({"content": [image(BLAKE)]}, fail, fail)


# --- cutting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 500_000, None),
        ("x" * 500_001, "x" * KEPT),
        ("x" * 1_500_000, "x" * KEPT),
        ("é" * 500_000, None),
        ("é" * 500_001, "é" * KEPT),
        (SMILE * 250_000, None),
        (SMILE * 250_000 + "x", SMILE * (KEPT // 2)),
        ("x" + SMILE * 249_999 + "x", None),
        ("x" + SMILE * 250_000, "x" + SMILE * ((KEPT - 1) // 2)),
        ("x" * (KEPT - 1) + SMILE * 20_000, "x" * (KEPT - 1)),
        ("x" * (KEPT - 2) + SMILE * 20_000, "x" * (KEPT - 2) + SMILE),
        ("x" * KEPT + SMILE * 20_000, "x" * KEPT),
        ("\ud800" * 500_000, None),
        ("x" * (KEPT - 1) + "\ud800" * 20_000, "x" * (KEPT - 1)),
        ("x" * (KEPT - 1) + "\udc00" * 20_000, "x" * (KEPT - 1) + "\udc00"),
        ("x" * (KEPT - 1) + "\uffff" * 20_000, "x" * (KEPT - 1) + "\uffff"),
        ("x" * (KEPT - 1) + "\ue000" * 20_000, "x" * (KEPT - 1) + "\ue000"),
    ],
)  # fmt: skip
def test_text_is_cut_beyond_500_000_units(shelf: Shelf, text: str, expected: str | None) -> None:
    """500,000 UTF-16 units stay; one more is cut, with the notice, and no character is split."""
    entry = {"text": text, "list": [1, text]}
    stored = externalize(entry, shelf.put)
    if expected is None:
        assert stored is entry
        assert externalize(text, shelf.put) is text
        return
    assert stored == {"text": expected + NOTICE, "list": [1, expected + NOTICE]}
    assert externalize(text, shelf.put) == expected + NOTICE
    assert units(stored["text"]) <= MAX_CHARS
    assert KEPT - 1 <= units(expected) <= KEPT
    assert externalize(stored, shelf.put) is stored
    assert not shelf


def test_the_numbers_are_those_of_the_format() -> None:
    """The notice, the limits and the keys are exactly those that other readers know."""
    assert NOTICE == "\n\n[Session persistence truncated large content]"
    assert (MAX_CHARS, entries.THRESHOLD) == (500_000, 1024)
    assert frozenset({"thinkingSignature", "thoughtSignature", "textSignature"}) == SIGNATURES
    assert frozenset({"partialJson", "jsonlEvents"}) == entries.TRANSIENTS


@pytest.mark.parametrize("key", sorted(SIGNATURES))
def test_a_signature_is_whole_or_nothing(shelf: Shelf, key: str) -> None:
    """A signature that is too long becomes empty, never shorter; in full it comes back."""
    entry = {"content": [{key: "x" * 500_000}, {key: "x" * 500_001}, {"other": "y"}]}
    assert externalize(entry, shelf.put) == {
        "content": [{key: "x" * 500_000}, {key: ""}, {"other": "y"}]
    }
    assert not shelf
    stored = externalize(entry, shelf.put, full=True)
    assert stored["content"] == [{key: "x" * 500_000}, {key: ""}, {"other": "y"}]
    assert entry == shelf.load(stored)


@pytest.mark.parametrize("key", sorted(entries.TRANSIENTS))
@pytest.mark.parametrize(
    "value", ["x", None, 5, True, {"a": [1]}, [{"data": PIXELS}], "x" * 600_000]
)
def test_transients_are_not_stored(shelf: Shelf, key: str, value: Any) -> None:
    """`partialJson` and `jsonlEvents` are removed at any depth, but only as keys."""
    entry = {"a": 1, key: value, "deep": [[{"b": {key: value, "c": key}}]], "list": [key]}
    stored = externalize(entry, shelf.put)
    assert stored == {"a": 1, "deep": [[{"b": {"c": key}}]], "list": [key]}
    assert stored["list"] is entry["list"]
    assert not shelf
    assert json.dumps(entry) == json.dumps(shelf.load(externalize(entry, shelf.put, full=True)))


def test_images_in_transients_are_not_looked_for(shelf: Shelf) -> None:
    """A removed value is removed whole, and is not resolved in an old entry that still has it."""
    inner = {"content": [image(PIXELS)], "image_url": URL, "partialJson": 1}
    assert externalize({"jsonlEvents": [inner]}, shelf.put) == {}
    assert not shelf
    old = {"jsonlEvents": [{"image_url": BLAKE}]}
    assert shelf.load(old) is old
    assert refs(old) == [BLAKE]  # but it protects


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, 4), (4, 4), (-7, 4), (10**30, 4), (True, True), (1.5, 1.5), ("1", "1"), (None, None)],
)
def test_lines_are_counted_again(shelf: Shelf, count: Any, expected: Any) -> None:
    """Next to cut content, a `lineCount` is corrected, and restored with the full text."""
    entry = {"a": {"lineCount": count, "content": "one\n" + "x" * 600_000 + "\n" * 9}}
    stored = externalize(entry, shelf.put)
    assert stored["a"]["lineCount"] == expected
    assert type(stored["a"]["lineCount"]) is type(expected)
    assert [*stored["a"]] == ["lineCount", "content"]
    kept = externalize(entry, shelf.put, full=True)
    assert stored["a"] == kept["a"]
    assert json.dumps(entry) == json.dumps(shelf.load(kept))


def test_lines_are_counted_only_there(shelf: Shelf) -> None:
    """Nothing is counted beside a content that is not cut, nor beside another text that is."""
    for entry in ({"content": "a\nb", "lineCount": 7}, {"lineCount": 7}):
        assert externalize(entry, shelf.put) is entry
    entry = {
        "content": "a",
        "text": "x" * 600_000,
        "lineCount": 7,
        "more": {"content": "y" * 600_000},
    }
    assert externalize(entry, shelf.put)["lineCount"] == 7
    assert "lineCount" not in externalize(entry, shelf.put)["more"]


# --- in full --------------------------------------------------------------------------------------


def test_what_is_kept_in_full_is_named(shelf: Shelf) -> None:
    """With `full` the view is the same, and a last key lists what was cut, by JSON pointer."""
    long = "x" * 500_000 + "\ud800"
    entry = {
        "partialJson": {"b": 1, "a": [None, 1.0]},
        "a/b": [0, {"~": long, "jsonlEvents": []}],
        "content": [image(PIXELS)],
        "z": {"content": long, "lineCount": 9},
    }
    plain = externalize(entry, Shelf().put)
    stored = externalize(entry, shelf.put, full=True)
    assert {**plain, FULL: stored[FULL]} == stored
    assert [*stored] == [*plain, FULL]
    text = shelf.put(long.encode("utf-8", "surrogatepass"))
    assert stored[FULL] == {
        "/partialJson": {"json": shelf.put(b'{"b": 1, "a": [null, 1.0]}'), "at": 0},
        "/a~1b/1/~0": {"ref": text},
        "/a~1b/1/jsonlEvents": {"json": shelf.put(b"[]"), "at": 1},
        "/z/content": {"ref": text, "lineCount": 9},
    }
    assert refs(stored) == sorted(shelf)
    assert json.dumps(entry) == json.dumps(shelf.load(stored))
    assert not shelf.told
    assert externalize(stored, shelf.put, full=True) is stored
    assert externalize(stored, shelf.put) is stored


def test_no_note_without_need(shelf: Shelf) -> None:
    """An entry of which all is in view, or in blobs that the view names, has no note."""
    entry = {"content": [image(PIXELS)], "image_url": URL}
    assert externalize(entry, shelf.put, full=True) == externalize(entry, shelf.put)


@pytest.mark.parametrize("entry", [[], [1], "x", None, 5, True])
def test_only_an_object_is_kept_in_full(shelf: Shelf, entry: Any) -> None:
    """A value that has no keys is stored, but cannot be in full."""
    assert externalize(entry, shelf.put) is entry
    assert shelf.load(entry) is entry
    with pytest.raises(InputError, match="only an object"):
        externalize(entry, shelf.put, full=True)


@pytest.mark.parametrize("order", [
    ["partialJson", "jsonlEvents", "a"], ["jsonlEvents", "a", "partialJson"],
    ["a", "jsonlEvents", "b", "partialJson", "c"], ["partialJson", "jsonlEvents"],
])  # fmt: skip
@pytest.mark.parametrize("first", [0, 1])
def test_what_is_found_later_goes_where_it_was(shelf: Shelf, order: list[str], first: int) -> None:
    """Two removed neighbours, found in either order, are restored to their places."""
    entry = {
        "deep": [{key: [key] for key in order}],
        "text": "x" * 600_000,
        "content": "y" * 600_000,
        "lineCount": 8,
    }
    stored = externalize(entry, shelf.put, full=True)
    everything = dict(shelf)
    names = ["partialJson", "jsonlEvents"]
    shelf.clear()
    assert shelf.load(stored) is stored
    assert len(shelf.told) == 4
    shelf.update({ref: data for ref, data in everything.items() if names[first].encode() in data})
    half = shelf.load(stored)
    assert [*half["deep"][0]] == [key for key in order if key != names[1 - first]]
    assert sorted(half[FULL]) == sorted(["/text", "/content", f"/deep/0/{names[1 - first]}"])
    assert half["lineCount"] == 3
    assert stored[FULL].items() > half[FULL].items()
    shelf.update(everything)
    assert json.dumps(entry) == json.dumps(shelf.load(half))
    assert json.dumps(entry) == json.dumps(shelf.load(stored))


def test_a_number_that_json_cannot_spell_stays(shelf: Shelf) -> None:
    """A transient value that cannot be written stays in view."""
    entry = {"partialJson": [10**5000], "jsonlEvents": 1}
    stored = externalize(entry, shelf.put, full=True)
    assert stored["partialJson"] is entry["partialJson"]
    assert shelf.load(stored) == entry
    alone = {"partialJson": 10**5000}
    assert externalize(alone, shelf.put, full=True) is alone
    assert externalize(alone, shelf.put) == {}


@pytest.mark.parametrize("notes", [
    None, 5, "x", [], [1], True, {"/text": None}, {"/text": {}}, {"/text": {"ref": 5}},
    {"/text": {"ref": BAD_REFS[0]}}, {"/text": []}, {"text": {"ref": BLAKE}}, {"": {"ref": BLAKE}},
    {"/": {"ref": BLAKE}}, {"/none": {"ref": BLAKE}}, {"/none/x": {"ref": BLAKE}},
    {"/list": {"ref": BLAKE}}, {"/list/00": {"ref": BLAKE}}, {"/list/-1": {"ref": BLAKE}},
    {"/list/7": {"ref": BLAKE}}, {f"/list/{'9' * 5000}": {"ref": BLAKE}},
    {"/list/٠": {"ref": BLAKE}}, {"/list/1": {"ref": BLAKE}}, {"/text/0": {"ref": BLAKE}},
    {"/list/0/1": {"ref": BLAKE}}, {"/text": {"json": BLAKE, "at": 0}}, {"/new": {"json": BLAKE}},
    {"/new": {"json": BLAKE, "at": -1}}, {"/new": {"json": BLAKE, "at": "0"}},
    {"/new": {"json": BLAKE, "at": True}}, {"/list/9": {"json": BLAKE, "at": 0}},
    {"/new": {"json": BAD_REFS[1], "at": 0}}, {"/new": {"json": None, "at": 0}},
    {"/list": {"json": BLAKE, "at": 0}},
])  # fmt: skip
def test_notes_that_make_no_sense_are_left(shelf: Shelf, notes: Any) -> None:
    """A note that leads nowhere, or is none, is warned of and stays, and the entry loads."""
    shelf[BLAKE] = b'"found"'
    entry = {"text": "x", "list": ["y", 2], FULL: notes}
    before = copy.deepcopy(entry)
    found = shelf.load(entry)
    assert before == entry == found
    assert bool(shelf.told) == (notes is not None)


@pytest.mark.parametrize(("data", "note"), [
    (b"[" * 100_000, {"json": BLAKE, "at": 0}), (b"no json", {"json": BLAKE, "at": 0}),
    (b"\xff", {"json": BLAKE, "at": 0}), (b"9" * 5000, {"json": BLAKE, "at": 0}),
    (b"\xff", {"ref": BLAKE}),
])  # fmt: skip
def test_blobs_that_are_something_else_are_left(shelf: Shelf, data: bytes, note: Any) -> None:
    """Bytes that are not what a note says are warned of, and the note stays."""
    shelf[BLAKE] = data
    entry = {"text": "x", FULL: {"/new" if "json" in note else "/text": note}}
    assert shelf.load(entry) is entry
    assert shelf.told == [f"blob {BLAKE} does not fit the entry, which keeps its ref"]


def test_odd_notes_that_can_be_followed(shelf: Shelf) -> None:
    """Foreign notes are followed where possible: far positions, escapes, nested notes, twins."""
    shelf[BLAKE] = b"[1]"
    entry = {
        "a": {"x": "y"}, "~2": "z", "list": ["y"],
        FULL: {
            "/a/new": {"json": BLAKE, "at": 99}, "/~2": {"ref": BLAKE}, "/~02": {"ref": BLAKE, "lineCount": 3},
            "/list/0": {"ref": BLAKE, "lineCount": 3}, f"/{FULL}/x": {"json": BLAKE, "at": 0},
            f"/{FULL}/~1~02/ref": {"ref": BLAKE}, "/~3": {"json": BLAKE, "at": 0}, "/~03": {"json": BLAKE, "at": 0},
            "/lost": {"json": SHA, "at": 0}, "/p": {"json": BLAKE, "at": 0},
        },
    }  # fmt: skip
    before = copy.deepcopy(entry)
    found = shelf.load(entry)
    assert before == entry
    assert found["a"] == {"x": "y", "new": [1]}
    assert (found["~2"], found["list"], found["p"], found["~3"]) == ("[1]", ["[1]"], [1], [1])
    assert found[FULL] == {"/lost": {"json": SHA, "at": 0}}
    assert "lineCount" not in found
    assert found["p"] is not found["~3"]


def test_what_has_notes_is_externalized_already(shelf: Shelf) -> None:
    """An entry that already has notes is restored as it is."""
    entry = {
        "text": "x" * 600_000,
        "partialJson": 1,
        "content": [image(PIXELS)],
        FULL: {"/y": {"ref": BLAKE}},
    }
    assert externalize(entry, shelf.put) is entry
    assert externalize(entry, shelf.put, full=True) is entry
    assert not shelf


def test_things_are_put_in_the_order_they_stand_in(shelf: Shelf) -> None:
    """Bytes are put, and notes taken, in the order of the arrays and objects they stand in."""
    entry = {
        "a": [[{"image_url": f"{URL}{n}"}] for n in range(4)],
        "b": {"partialJson": 1},
        "c": {"partialJson": 2},
    }
    stored = externalize(entry, shelf.put, full=True)
    expected = [f"{URL}{n}" for n in range(4)] + ["1", "2"]
    assert [data.decode() for data in shelf.values()] == expected
    assert [*stored[FULL]] == ["/b/partialJson", "/c/partialJson"]


# --- depth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [500, 501, 990, 100_000])
def test_depth_is_bounded(shelf: Shelf, levels: int) -> None:
    """A depth of 500 is accepted, one more is refused, from any stack."""
    entry = {"a": nested(levels - 1, "x" * 600_000)}
    if levels == 500:
        stored = externalize(entry, shelf.put, full=True)
        found = shelf.load(stored)
        while isinstance(found, dict | list):
            found = found["a"] if isinstance(found, dict) else found[0]
        assert found == "x" * 600_000
        assert len(refs(stored)) == 1
        return
    for call in (lambda: externalize(entry, shelf.put), lambda: externalize(entry, shelf.put, full=True),
                 lambda: shelf.load(entry), lambda: refs(entry), lambda: foreign_refs(entry)):  # fmt: skip
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == "the entry is nested too deeply - flatten it"


@pytest.mark.parametrize(("levels", "good"), [(498, True), (499, False), (100_000, False)])
def test_depth_of_what_is_removed(shelf: Shelf, levels: int, good: bool) -> None:
    """Removed values count with their depth when they are kept in full, and not otherwise."""
    entry = {"a": {"partialJson": nested(levels)}}
    assert externalize(entry, shelf.put) == {"a": {}}
    if good:
        assert json.dumps(entry) == json.dumps(shelf.load(externalize(entry, shelf.put, full=True)))
    else:
        with pytest.raises(InputError, match="nested too deeply"):
            externalize(entry, shelf.put, full=True)


def test_depth_within_what_is_removed(shelf: Shelf) -> None:
    """A transient within a transient is as deep as anything else."""
    with pytest.raises(InputError, match="nested too deeply"):
        externalize({"partialJson": {"jsonlEvents": nested(600)}}, shelf.put, full=True)


def test_an_entry_within_itself_is_too_deep(shelf: Shelf) -> None:
    """A value that holds itself is refused, not walked for ever."""
    entry: dict[str, Any] = {}
    entry["a"] = [entry, entry]
    with pytest.raises(InputError, match="nested too deeply"):
        externalize(entry, shelf.put)


@pytest.mark.parametrize("frames", [0, 300, 600])
def test_a_short_stack_is_no_other_error(shelf: Shelf, frames: int) -> None:
    """Called from deep in a stack, it succeeds or says that the entry is too deep."""
    entry = {"a": nested(400, "x" * 600_000), "partialJson": nested(490)}

    def call(left: int) -> Any:
        return call(left - 1) if left else externalize(entry, shelf.put, full=True)

    try:
        stored = call(frames)
    except InputError as error:
        assert frames
        assert "nested too deeply" in error.what  # noqa: PT017
    else:
        assert json.dumps(entry) == json.dumps(shelf.load(stored))


# --- all values -----------------------------------------------------------------------------------

TEXTS = (
    st.text(max_size=30)
    | st.builds(str.__mul__, st.text(max_size=12), st.integers(6, 20))
    | st.builds(
        str.__mul__,
        st.text(st.sampled_from("ab\n\ud83d\ude00\U0001f600"), max_size=12),
        st.integers(1, 20),
    )
    | st.builds(
        lambda data, n: base64.b64encode(data * n).decode(),
        st.binary(max_size=9),
        st.integers(0, 20),
    )
    | st.sampled_from(
        [
            URL, URL + "\ud800", PIXELS, BLAKE, SHA, "image", "base64", "image/png",
            "image_generation_call",
        ]
    )
)  # fmt: skip
NAMES = (
    st.sampled_from(
        [
            "content", "images", "image_url", "url", "data", "type", "source", "result", "mimeType",
            "lineCount",
        ]
    )
    | st.sampled_from(["partialJson", "jsonlEvents", "textSignature", "a/b", "~1", "", "0"])
    | st.text(max_size=3)
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS


def boxes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return arrays and objects, some of them images."""
    picture = st.builds(
        lambda data, more: {**more, "type": "image", "data": data},
        TEXTS,
        st.dictionaries(NAMES, inner, max_size=2),
    )
    source = st.builds(
        lambda data: {"type": "image", "source": {"type": "base64", "data": data}}, TEXTS
    )
    call = st.builds(lambda data: {"type": "image_generation_call", "result": data}, TEXTS)
    counted = st.builds(lambda text, n: {"content": text, "lineCount": n}, TEXTS, st.integers())
    objects = st.dictionaries(NAMES, inner, max_size=5)
    return (
        st.lists(inner | picture | source, max_size=4) | objects | picture | source | call | counted
    )


VALUES: Any = st.recursive(LEAVES, boxes, max_leaves=25)
ENTRIES: Any = st.dictionaries(NAMES, VALUES, max_size=6)
QUICK = settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are the same JSON, in order, types and spelling."""
    return json.dumps(left) == json.dumps(right)


def named(value: Any) -> bool:
    """Return whether a value contains a ref or notes, as an externalized one does."""
    return any(mark in json.dumps(value) for mark in ("blob:blake3:", "blob:sha256:", FULL))


def shared(before: Any, after: Any) -> None:
    """Check that what is equal in both is the same object."""
    if isinstance(before, dict | list) and type(before) is type(after):
        if same(before, after):
            assert before is after
            return
        pairs = before.items() if isinstance(before, dict) else enumerate(before)
        for key, value in pairs:
            if isinstance(after, list) or key in after:
                shared(value, after[key])


@pytest.mark.usefixtures("small")
@given(ENTRIES)
@QUICK
@example({"content": [{"type": "image", "data": "QUJDREVG" * 20, "partialJson": {"a": []}}]})
@example({"content": "a\nb" + SMILE * 60, "lineCount": 3, "jsonlEvents": [1], "partialJson": "x"})
def test_nothing_is_lost_in_full(entry: Any) -> None:
    """With `full`, the restored JSON is identical, key order included, without a warning."""
    shelf = Shelf()
    before = copy.deepcopy(entry)
    stored = externalize(entry, shelf.put, full=True)
    assert same(before, entry)
    again = copy.deepcopy(stored)
    shared(entry, stored)
    assert externalize(stored, shelf.put, full=True) is stored
    assert {ref for ref in refs(stored) if ref != BLAKE} >= {
        ref for ref in shelf if ref in json.dumps(stored)
    }
    assert set(shelf) <= set(refs(stored))
    if not named(entry):
        found = shelf.load(json.loads(json.dumps(stored)))
        assert same(entry, found)
        assert not shelf.told
        assert len(shelf.asked) == len(set(shelf.asked))
        assert same(again, stored)


@pytest.mark.usefixtures("small")
@given(VALUES)
@QUICK
def test_the_view_is_bounded_and_stable(entry: Any) -> None:
    """Without `full`, the view is the same; nothing is mutated, and twice is the same as once."""
    shelf = Shelf()
    before = copy.deepcopy(entry)
    stored = externalize(entry, shelf.put)
    assert same(before, entry)
    shared(entry, stored)
    assert externalize(stored, shelf.put) is stored
    if isinstance(entry, dict) and FULL not in entry:
        full = externalize(entry, shelf.put, full=True)
        assert same(stored, {key: value for key, value in full.items() if key != FULL})
    kept = copy.deepcopy(stored)
    found = shelf.load(stored)
    assert same(kept, stored)
    shared(stored, found)
    if not named(entry):
        assert same(stored, externalize(found, shelf.put))
        assert not shelf.told
        check_view(stored)


def check_view(value: Any, place: tuple[Any, ...] = ()) -> None:
    """Check that texts are bounded, except images and URLs, and that no transient is left."""
    if isinstance(value, dict):
        assert not entries.TRANSIENTS & value.keys()
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            check_view(inner, (*place, key))
    elif (
        isinstance(value, str) and place and place[-1] not in ("data", "result", "image_url", "url")
    ):
        assert units(value) <= 80


@pytest.mark.usefixtures("small")
@given(ENTRIES, st.data())
@QUICK
def test_lost_blobs_are_only_delayed(entry: Any, data: st.DataObject) -> None:
    """After blobs were missing for a while, a later load gives the same result as ever."""
    if named(entry):
        return
    shelf = Shelf()
    stored = externalize(entry, shelf.put, full=True)
    everything = dict(shelf)
    lost = set(data.draw(st.lists(st.sampled_from(sorted(shelf)), unique=True))) if shelf else set()
    for ref in lost:
        del shelf[ref]
    half = shelf.load(stored)
    assert len(lost) == len(shelf.told)
    assert lost <= set(refs(half))
    shelf.update(everything)
    assert same(entry, shelf.load(half))


NOTES = st.dictionaries(
    st.lists(NAMES.map(lambda name: "/" + name), max_size=3).map("".join) | st.text(st.sampled_from("/~01ab"), max_size=5),
    st.fixed_dictionaries({"ref": st.sampled_from([BLAKE, SHA, BAD_REFS[0]])}, optional={"lineCount": LEAVES})
    | st.fixed_dictionaries({"json": st.sampled_from([BLAKE, SHA, ""]), "at": st.integers(-1, 5)}, optional={"lineCount": LEAVES})
    | LEAVES,
    max_size=6,
)  # fmt: skip


@pytest.mark.usefixtures("small")
@given(VALUES, NOTES | VALUES, st.binary(max_size=6) | st.sampled_from([b'{"a": 1}', b"[[]]"]))
@QUICK
def test_entries_from_anywhere_load(entry: Any, notes: Any, data: bytes) -> None:
    """Any JSON with any notes loads or is refused, and is not changed."""
    shelf = Shelf()
    shelf[BLAKE] = data
    if isinstance(entry, dict):
        entry = {**entry, "content": "x", "a": {"b": ["y"]}, FULL: notes}
    before = copy.deepcopy(entry)
    try:
        shelf.load(entry)
        refs(entry)
        foreign_refs(entry)
        externalize(entry, shelf.put)
    except EventqError as error:
        pytest.fail(f"refused: {error}")
    assert same(before, entry)
