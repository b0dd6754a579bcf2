"""Session files: an export returns the exact bytes, images are blobs, nothing is lost."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventq
from eventq import InputError, LogicError, UsageError
from eventq.errors import ConflictError, ReadOnlyError, UnknownBlobError, UnknownContextError
from eventq.output import entries
from eventq.output.entries import FULL, MAX_CHARS, NOTICE
from eventq.records.checks import refs_in
from eventq.records.turn import NewTurn
from eventq.sessions import files as sessions
from eventq.sessions import imports
from eventq.sessions import lines as lines_module
from eventq.sessions.forks import ENTRY, OLD_LINE
from eventq.sessions.lines import CUT, PLAIN, RAW, split
from eventq.store.sessions import Sessions
from tests.engines import rows_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from eventq.records.session import SessionImported
    from eventq.records.turn import Turn
    from eventq.store.session_rows import StoredLine

HEADER = {"type": "session", "version": 3, "id": "abc", "cwd": "/x"}
HEX = "0123456789abcdef" * 4
STORED = b"a blob that was here before " * 40
STORED_REF = f"blob:blake3:{blake3(STORED).hexdigest()}"
LONG = "long text é \U0001f600 " * 40_000  # 560,000 UTF-16 units and more
MENTIONED = b"mentioned in a text only"
MENTION = f"blob:blake3:{blake3(MENTIONED).hexdigest()}"


pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.engines("sqlite", soaked=["postgres"])]


def spell(entry: Any) -> bytes:
    """Return an entry as session files have it."""
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def lines(*entries: Any) -> bytes:
    """Return a session file of entries, and of lines that are bytes already."""
    return b"".join((one if isinstance(one, bytes) else spell(one)) + b"\n" for one in entries)


def pixels(seed: int, size: int = 900) -> bytes:
    """Return the bytes of an image that no other seed has."""
    return random.Random(seed).randbytes(size)


def image(seed: int, size: int = 900) -> dict[str, Any]:
    """Return an image block."""
    return {
        "type": "image",
        "mimeType": "image/png",
        "data": base64.b64encode(pixels(seed, size)).decode(),
    }


def says(text: str, *images: Any, **more: Any) -> dict[str, Any]:
    """Return an entry of a message, with images."""
    return {
        "type": "message",
        "message": {"role": "user", "content": [{"type": "text", "text": text}, *images]},
        **more,
    }


def write(folder: Path | str, data: bytes, name: str = "session.jsonl") -> str:
    """Write a session file."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def load(
    thread: eventq.Thread, data: bytes, name: str | None = None, **more: Any
) -> SessionImported:
    """Import a session file of these bytes."""
    folder = f"{thread.path}.files"
    os.makedirs(folder, exist_ok=True)
    return thread.sessions.import_file(write(folder, data), name=name, **more)


def export(thread: eventq.Thread, context: int | str, *, missing: bool = False) -> bytes:
    """Return the session file that comes out; no blob may be missing unless told."""
    warnings: list[str] = []
    found = b"".join(thread.sessions.lines(context, warn=warnings.append))
    assert missing or warnings == []
    return found


def rows(thread: eventq.Thread, name: str) -> list[StoredLine]:
    """Return what is stored of the lines of a session."""
    row = thread.database.memory.sessions.find(name)
    return [] if row is None else thread.database.memory.sessions.lines(row.session, -1, 1 << 30)


def turns(thread: eventq.Thread, context: int | str) -> list[Turn]:
    """Return the turns of a context."""
    return list(thread.contexts.get(context).replay())


def kinds(thread: eventq.Thread, name: str) -> list[int]:
    """Return the forms of the lines of a session."""
    return [row.form for row in rows(thread, name)]


def payloads(thread: eventq.Thread, name: str) -> list[bytes]:
    """Return what is stored of the text of each line of a session."""
    return [thread.blobs.get(row.digest) or b"" for row in rows(thread, name)]


def state(thread: eventq.Thread) -> list[Any]:
    """Return all that an import could add."""
    infos = list(thread.contexts)
    return [
        [(one, turns(thread, one.context_id), list(thread.contexts.history(one.context_id))) for one in infos],
        sorted((one.hash, one, tuple(thread.blobs.refs(one.hash))) for one in thread.blobs),
        list(thread.produced.aliases()),
        [(row, thread.database.memory.sessions.lines(row.session, -1, 1 << 30))
         for row in thread.database.memory.sessions.page(0, 999)],
    ]  # fmt: skip


def collect(thread: eventq.Thread) -> None:
    """Delete all that nothing leads to, at once."""
    thread.gc(apply=True, grace=0)


# --- the very bytes -------------------------------------------------------------------------------

CHARACTERS = st.characters(exclude_categories=())
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=12),
    st.sampled_from(
        [
            STORED_REF, f"see {STORED_REF}.", MENTION, f"blob:sha256:{HEX}", f"blob:blake3:{HEX}", "blob:sha256:../../x",
            f"blob:blake3:{HEX.upper()}", "x" * 90, "\U0001f600" * 60, "é" * 100, f"{'y' * 75}{STORED_REF}",
        ]
    ),
)  # fmt: skip
ENCODED = st.binary(min_size=4, max_size=40).map(lambda data: base64.b64encode(data).decode())
ODD_DATA = [
    "QUJD" * 20, "QUJDRA==", "QUJDRB==", "QUJDRA=", "QUJD\nQUJD", "QUJDQUJD====", "", "-_-_-_-_",
]  # fmt: skip
DATA = st.one_of(ENCODED, st.sampled_from(ODD_DATA), TEXTS)
URLS = st.one_of(
    DATA.map(lambda data: f"data:image/png;base64,{data}"),
    st.sampled_from(["https://x/y.png", 'data:image/svg;base64,"\\\n', "data:image/png,QUJD"]),
    TEXTS,
)
IMAGES = st.one_of(
    st.builds(lambda data: {"type": "image", "mimeType": "image/png", "data": data}, DATA),
    st.builds(lambda data: {"type": "image", "source": {"type": "base64", "data": data}}, DATA),
    st.builds(lambda url: {"type": "input_image", "image_url": url}, URLS),
    st.builds(lambda url: {"image_url": {"url": url}}, URLS),
    st.builds(lambda data: {"type": "image_generation_call", "result": data}, DATA),
)
KEYS = st.one_of(
    st.sampled_from(
        ["content", "images", "frames", "data", "image_url", "thinkingSignature", "textSignature", "partialJson",
         "jsonlEvents", "lineCount", "a/b~", "source", "type", "", FULL]
    ),
    st.text(CHARACTERS, max_size=3),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-9, 9),
    st.integers(),
    st.floats(allow_nan=True),
    st.sampled_from([10**400, -(2**63), 1e22, -0.0]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["content", "images", "frames"]),
            st.lists(IMAGES, max_size=3), min_size=1, max_size=1,
        ),
        IMAGES,
    ),
    max_leaves=12,
)  # fmt: skip
ODD = st.sampled_from(
    [
        b"", b" ", b"\t", b"null", b"[]", b'"x"', b"{", b"{}", b"{} ", b" {}", b'{"a":1e5}', b'{"a":1.0}', b'{"a":1.50}',
        b'{"a":1E400}', b'{"a":-0}', b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":1,"a":2}', b'{"a":"\\/"}',
        b'{"a":"\\u00e9"}', b'{"a":"\\ud800"}', b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\u0041"}', b'{"a":"\\u001F"}',
        b'{"a":"\\b\\f\\u0008"}', b'{"a":"\x7f\xc2\x80\xe2\x80\xa8"}', b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"a":1}', b'{"a":1}\r', b'{"a":1}\x00', b"\x00", b"\xff\xfe{\x00}\x00", b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' * 400 + b"1" + b"}" * 400, b"[" * 5000, b'{"a":' * 3000 + b"}",
        b'{"eventq:full":{}}', b'{"eventq:full":{"/a":{"ref":"' + STORED_REF.encode() + b'"}},"a":"x"}',
        b'{"content":[{"type":"image","data":"' + STORED_REF.encode() + b'"}]}',
        b'{"image_url":"' + STORED_REF.encode() + b'"}',
        b'{"image_url":"blob\\u003ablake3:' + STORED_REF[12:].encode() + b'"}',
    ]
)  # fmt: skip
SPELLED = st.builds(
    lambda value, escaped, tight: json.dumps(
        value if isinstance(value, dict) else {"type": "message", "content": value},
        ensure_ascii=escaped, separators=(",", ":") if tight else None,
    ).encode("utf-8", "surrogatepass"),
    VALUES, st.sampled_from([False, False, False, True]), st.sampled_from([True, True, True, False]),
)  # fmt: skip
LINES = st.lists(
    st.builds(
        bytes.__add__,
        st.one_of(SPELLED, SPELLED, ODD, st.binary(max_size=9)),
        st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"]),
    ),
    max_size=6,
)
FILES = st.builds(
    lambda found, whole: b"".join(found)[: None if whole else -1], LINES, st.booleans()
)


once = settings(
    max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip


def count(data: bytes) -> int:
    """Count the lines of a file; one that has not ended is one."""
    return data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


def is_session(data: bytes) -> bool:
    """Return whether a file has a JSON object on a line."""
    return any(split(line).entry is not None for line in data.split(b"\n"))


def fetched(thread: eventq.Thread) -> None:
    """Store the blobs that random entries may name."""
    thread.blobs.pin(thread.blobs.put(STORED).hash, "test")
    thread.blobs.pin(thread.blobs.put(MENTIONED).hash, "test")


@once
@given(FILES, st.floats(0, 1))
@example(b"", 1)
@example(b"\n", 1)
@example(b"\n\n\n", 0.5)
@example(b"{}", 0.5)
def test_any_file_comes_back(small: None, thread: eventq.Thread, data: bytes, cut: float) -> None:
    """The very bytes come back of any session, imported as it grows, and after a collection; again adds nothing.

    What holds no JSON object is refused, and leaves nothing.
    """
    fetched(thread)
    if "s" in {one.name for one in thread.contexts}:
        thread.contexts.delete("s")
        collect(thread)
    begun = data[: int(len(data) * cut)]
    if is_session(begun):
        first = load(thread, begun, "s")
        assert export(thread, "s", missing=True) == begun
        assert first.entries == first.added == count(begun)
        empty = sum(not line.strip(b" \t\r\n\xef\xbb\xbf") for line in begun.splitlines(True))
        assert 0 <= kinds(thread, "s").count(RAW) - first.raw <= empty
    else:
        before = state(thread)
        with pytest.raises(InputError, match="is no session file"):
            load(thread, begun, "s")
        assert state(thread) == before
        begun = b""
    if not is_session(data):
        return
    grown = load(thread, data, "s")
    assert export(thread, "s", missing=True) == data
    torn = begun != data and begun[-1:] not in (b"", b"\n")
    assert (grown.entries, grown.added) == (count(data), count(data) - count(begun) + torn)
    assert len(rows(thread, "s")) == count(data)
    collect(thread)
    load(thread, data, "s")
    before = state(thread)
    again = load(thread, data, "s")
    assert (again.entries, again.added, again.blobs) == (count(data), 0, 0)
    assert state(thread) == before
    assert export(thread, "s", missing=True) == data


def url_of(length: int) -> tuple[bytes, bytes]:
    """Return a data URL of a length, and the digits of its ref."""
    url = b"data:image/png;base64," + b"A" * (length - 22)
    return url, blake3(url).hexdigest().encode()


# As long as the ref, escaped.
ESCAPED = b'{"image_url":"%s","text":"blob\\u003ablake3:%s"}' % url_of(2_022)
AS_IMAGE = b'{"a":{"image_url":"%s"},"b":{"image_url":"blob:blake3:%s"}}' % url_of(2_022)
AS_TEXT = b'{"a":{"image_url":"%s"},"b":"blob:blake3:%s"}' % url_of(2_022)
GOOD = base64.b64encode(b"A" * 1000).decode()
NOT_CANONICAL = [
    GOOD[:-3] + "R==", GOOD + "\n", GOOD[:76] + "\r\n" + GOOD[76:], GOOD + "====", GOOD[:-1], GOOD.replace("Q", "-"),
]  # fmt: skip
BACK: dict[str, tuple[bytes, set[int], int]] = {  # a line or more, their forms, how many blobs
    **{f"{n} deep": (b'{"a":' * n + b"1" + b"}" * n, {RAW if n > 500 else PLAIN}, 0)
       for n in (100, 499, 501, 900, 2000, 100_000)},
    "a number in 400 objects": (b'{"a":' * 400 + b"1E5" + b"}" * 400, {PLAIN}, 0),
    "a number in 400 lists": (b'{"a":' + b"[" * 400 + b"-0" + b"]" * 400 + b"}", {PLAIN}, 0),
    "an escaped ref beside its image": (ESCAPED, {CUT}, 1),
    "a ref beside its image": (AS_IMAGE, {PLAIN}, 0),
    "a text of a ref beside its image": (AS_TEXT, {PLAIN}, 0),
    "base64 that is not canonical": (
        b"\n".join(spell({"content": [{"type": "image", "data": one}]}) for one in NOT_CANONICAL), {PLAIN}, 0,
    ),
    "a line of other spelling": (spell(says("x", image(1))).replace(b'"x"', b'"\\u0078"'), {CUT}, 1),
}  # fmt: skip


@pytest.mark.parametrize("what", BACK)
def test_what_is_hard_to_write_again_comes_back(thread: eventq.Thread, what: str) -> None:
    """A deep line, or one whose image could not be restored, is stored unchanged."""
    middle, types, blobs = BACK[what]
    data = lines(HEADER, middle, says("after"))
    assert load(thread, data, "s").blobs == blobs
    assert {*kinds(thread, "s")[1:-1]} == types
    for _ in range(2):
        assert export(thread, "s") == data
        assert load(thread, data, "s").added == 0
        collect(thread)
    assert len(thread.blobs) == data.count(b"\n") + blobs


HUGE = [
    says("x" * 500_001),
    says(LONG),
    says(LONG + "\ud83d"),
    {"content": "line\n" * 150_000, "lineCount": 150_001},
    {"thinkingSignature": "s" * 600_000, "partialJson": {"a": [1, 2]}, "after": 1},
    says("x" * 600_000, image(1, 600_000)),
    {"partialJson": "p" * 600_000, "type": "x"},
]


@pytest.mark.parametrize("entry", HUGE, ids=range(len(HUGE)))
def test_lines_of_more_than_500_000_characters(thread: eventq.Thread, entry: Any) -> None:
    """A line of more than 500,000 characters is restored exactly."""
    data = lines(HEADER, entry, says("after"))
    load(thread, data, "s")
    assert export(thread, "s") == data
    # Half a character is no UTF-8, so its line is kept as it is.
    assert (kinds(thread, "s")[1] == RAW) == ("\\ud83d'" in str(entry))
    collect(thread)
    assert export(thread, "s") == data


def test_what_becomes_an_entry_and_what_a_line(thread: eventq.Thread) -> None:
    """Whatever is JSON is an entry, however it is spelled; any other line is kept as it is."""
    entry = says("é \U0001f600 / \x7f", n=[1, 2.5, None, True, 10**30])
    json_lines = [
        b'{"a": 1}', b'{"a":1,"a":2}', b'{"a":1}\r', b'{"a":"\\u00e9"}', spell({FULL: 1}), b' {"a":"\\ud800"}\t',
    ]  # fmt: skip
    odd = [b"", b"no JSON", b"[1]", b'{"a":NaN}', b"{" * 1_000, b'{"a":"\xff"}']
    found = load(thread, lines(HEADER, entry, *json_lines, *odd) + spell({"torn": 1}))
    assert (found.entries, found.added, found.raw) == (15, 15, len(odd) - 1)
    assert found.notes == (
        "3 lines, the first is line 10, are kept as raw text: not JSON",
        "line 11 is kept as raw text: not an object",
        "line 14 is kept as raw text: not UTF-8",
    )
    assert kinds(thread, "abc") == [PLAIN] * 8 + [RAW] * 6 + [PLAIN]
    assert len(turns(thread, "abc")) == 8  # the header is no part of the conversation
    assert {turn.type_id for turn in turns(thread, "abc")} == {ENTRY}


def test_images_are_blobs_and_payloads_small(thread: eventq.Thread) -> None:
    """An image in several entries and sessions is one blob."""
    entries = [says(str(n), image(1, 50_000), image(2 + n % 2, 3_000)) for n in range(10)]
    url = "data:image/png;base64," + "QUJD" * 500
    data = lines(HEADER, *entries, {"image_url": url})
    found = load(thread, data)
    assert (found.entries, found.added, found.blobs) == (12, 12, 4)
    blobs = [pixels(1, 50_000), pixels(2, 3_000), pixels(3, 3_000), url.encode()]
    assert [thread.blobs.get(blake3(raw).hexdigest()) for raw in blobs] == blobs
    assert max(map(len, payloads(thread, "abc"))) < 500
    assert f"blob:blake3:{blake3(blobs[0]).hexdigest()}".encode() in payloads(thread, "abc")[1]
    assert len(thread.blobs) == 4 + 12
    other = lines({**HEADER, "id": "def"}, says("y", image(1, 50_000)))
    assert load(thread, other).blobs == 0
    assert (export(thread, "abc"), export(thread, "def")) == (data, other)


def test_entries_that_hold_refs_already(thread: eventq.Thread) -> None:
    """An entry with a ref in place of an image keeps the ref, even if the blob exists."""
    fetched(thread)
    data = lines(
        {"content": [{"type": "image", "data": STORED_REF}]},
        {"image_url": STORED_REF},
        {"image_url": {"url": STORED_REF}, "text": "and more"},
        {"content": [{"type": "image", "data": STORED_REF}, image(1)]},
        says(f"see {STORED_REF}", image(1)),
        {"a": "x", FULL: {"/a": {"ref": STORED_REF}}},
        {FULL: {"/partialJson": {"json": STORED_REF, "at": 0}}},
        says(STORED_REF + "x" * 600_000),
    )
    load(thread, data, "s")
    assert export(thread, "s") == data
    thread.blobs.unpin(STORED_REF, "test")
    collect(thread)
    assert thread.blobs.get(STORED_REF) == STORED
    assert export(thread, "s") == data


# --- numbers, as they were written ----------------------------------------------------------------

ODD_NUMBERS = [
    "0.00005", "5e-7", "1E5", "1e5", "1e+21", "1E-0", "-0", "-0.0", "0.0", "0.1000", "1.0e+10", "1e400", "-1E400",
    "1e-400", "0e0", "0.10", "100000000000000000000", "123456789012345678901234567890", "9" * 5000, "-" + "7" * 5000,
    "0." + "3" * 5000, "1" * 400 + ".5", "1e" + "9" * 400, "1.7976931348623157e308", "4.9E-324", "9007199254740993.0",
]  # fmt: skip


def entry_with(number: str, block: dict[str, Any]) -> bytes:
    """Return a line of an assistant's message with a number as its cost, and an image."""
    return b'{"type":"message","message":{"cost":%s,"content":[%s]}}' % (
        number.encode(),
        spell(block),
    )


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda text: text[:30])
def test_a_number_keeps_its_text(thread: eventq.Thread, number: str) -> None:
    """Any spelling of a number is restored exactly, and the image next to it becomes a blob."""
    data = lines(HEADER, entry_with(number, image(1, 3_000)))
    found = load(thread, data)
    assert (found.blobs, found.raw, found.notes) == (1, 0, ())
    assert kinds(thread, "abc") == [PLAIN, CUT]
    stored = payloads(thread, "abc")[1]
    assert len(stored) < 300 + len(number)
    assert b'"cost":%s,' % number.encode() in stored
    for _ in range(2):
        assert export(thread, "abc") == data
        collect(thread)
    assert load(thread, data).added == 0


def test_what_an_older_eventq_made_of_lines(thread: eventq.Thread) -> None:
    """Lines that an older version made turns of come out, and the file goes on from them."""
    line = entry_with("0.00005", image(1, 3_000))
    context = thread.contexts.create("abc")
    context.append(NewTurn(spell(HEADER), type_id=ENTRY))
    context.append(NewTurn(line, type_id=OLD_LINE))
    assert export(thread, "abc") == lines(HEADER, line)
    with pytest.raises(ConflictError, match="not lines of this session"):
        load(thread, lines(HEADER, says("other")))
    found = load(thread, lines(HEADER, line, line))
    assert (found.added, found.raw, found.blobs) == (3, 0, 1)
    assert export(thread, "abc") == lines(HEADER, line, line)
    assert thread.check() == []


def test_lines_that_are_kept_raw_are_counted(thread: eventq.Thread, tmp_path: Path) -> None:
    """An import reports how many added lines are no entries, why, and the first of each kind."""
    odd = [b'{"a": 1}', b"no JSON", b"", b"[0]", b"null", b'{"a":"\\u00e9"}']
    data = lines(HEADER, says("x"), *odd) + b'{"torn'
    path = write(tmp_path, data)
    found = thread.sessions.import_file(path)
    assert (found.added, found.raw) == (9, 4)
    assert found.notes == (
        "line 4 is kept as raw text: not JSON",
        "2 lines, the first is line 6, are kept as raw text: not an object",
        "line 9 is kept as raw text: not JSON, and not ended yet",
    )
    assert export(thread, "abc") == data
    (tmp_path / "session.jsonl").write_bytes(data + b'":1}\n[0]\n')
    again = thread.sessions.import_file(path)
    assert (again.added, again.raw) == (2, 1)
    assert again.notes == ("line 10 is kept as raw text: not an object",)


def test_a_last_line_that_is_whole_needs_no_newline(thread: eventq.Thread) -> None:
    """A last entry without a newline is an entry, and the same turn once it has one."""
    data = lines(HEADER) + b'{"a": 1}'
    assert load(thread, data).notes == ()
    assert export(thread, "abc") == data
    (turn,) = turns(thread, "abc")
    assert load(thread, data + b"\n").added == 1
    assert (export(thread, "abc"), turns(thread, "abc")) == (data + b"\n", [turn])


# --- what is no session ---------------------------------------------------------------------------


NONE_OF = "none of its first {} lines is a JSON object"
FIRST = "its first line is no JSON object"
NO_SESSIONS = [
    (b"", "it is empty"), (random.Random(7).randbytes(3_000), "JSON object"),
    (b"Dear diary,\n\ntoday I wrote text.\n" * 40, NONE_OF.format(120)), (b"\n\n\n", NONE_OF.format(3)),
    (b'[1]\n"x"\n17\nnull\n', NONE_OF.format(4)), (b"\n" * 1_000 + b"{}\n", NONE_OF.format(500)),
    (b'{"type":"session","id":"ab', FIRST), (b"x" * 5_000_000, FIRST), (b"SQLite format 3\0" + bytes(4_000), FIRST),
]  # fmt: skip


@pytest.mark.parametrize(("data", "why"), NO_SESSIONS, ids=range(len(NO_SESSIONS)))
def test_what_is_no_session_is_refused(
    thread: eventq.Thread, tmp_path: Path, data: bytes, why: str
) -> None:
    """A file without a JSON object in its first 500 lines is refused."""
    load(thread, lines(HEADER, says("x")), "s")
    before = state(thread)
    path = write(tmp_path, data)
    for name in (None, "new", "s"):
        with pytest.raises(InputError) as caught:
            thread.sessions.import_file(path, name=name)
        assert caught.value.what.startswith(f"'{path}' is no session file: ")
        assert why in caught.value.what
        assert "JSON object a line" in caught.value.fix
    assert state(thread) == before


def test_a_session_whose_beginning_is_damaged(thread: eventq.Thread) -> None:
    """Lines before the first object are stored as text; the same holds for a pipe."""
    data = b'\x00\x00\n{"type":"ses{"type":"session","id":"q"}\n' + lines(HEADER, says("x"))
    found = load(thread, data)
    assert (found.added, found.raw) == (4, 2)
    assert export(thread, found.context_id) == data
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    piped = thread.sessions.import_file(f"/dev/fd/{reader}", name="piped")
    os.close(reader)
    assert (piped.added, export(thread, "piped")) == (4, data)


# --- importing again ------------------------------------------------------------------------------


def test_a_file_that_has_grown(thread: eventq.Thread) -> None:
    """Of a file that has grown only the new lines are added, and only their images."""
    data = lines(HEADER, says("one", image(1)))
    first = load(thread, data)
    head = thread.contexts.head("abc")
    more = data + lines(says("two", image(1)), says("three", image(2)))
    found = load(thread, more)
    assert (found.entries, found.added, found.blobs, found.notes) == (4, 2, 1, ())
    assert turns(thread, "abc")[0].turn_id == head
    assert export(thread, "abc") == more
    assert [one.context_id for one in thread.contexts] == [first.context_id]


@pytest.mark.parametrize("cut", [1, 40, -2, -1])
def test_a_torn_last_line_is_replaced(thread: eventq.Thread, cut: int) -> None:
    """A torn last line is kept with a note, and replaced once it is complete."""
    whole = lines(says("torn", image(1)))
    data = lines(HEADER) + whole[:cut]
    found = load(thread, data)
    is_torn = cut != -1  # without its newline the entry is an entry
    assert ["line 2 is kept as raw" in note for note in found.notes] == [True] * is_torn
    assert kinds(thread, "abc") == [PLAIN, RAW if is_torn else CUT]
    assert export(thread, "abc") == data
    before = state(thread)
    assert load(thread, data).added == 0
    assert state(thread) == before
    data = lines(HEADER) + whole + lines(says("next"))
    found = load(thread, data)
    assert (found.entries, found.added, found.notes) == (3, 2, ())
    assert export(thread, "abc") == data
    assert kinds(thread, "abc") == [PLAIN, CUT, PLAIN]


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_a_file_that_grows_while_it_is_read(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    """A line that its tool has half written stays one line, and the next import has the rest."""
    whole = lines(HEADER, says("a"), says("b"), says("c"))
    cut = whole.index(b"\n", len(lines(HEADER))) + 1 + size
    path = write(tmp_path, whole[:cut])

    real = imports.Import.read

    def growing(given: Iterable[bytes]) -> Iterator[bytes]:
        for line in given:
            if not line.endswith(b"\n"):
                write(tmp_path, whole)
            yield line

    monkeypatch.setattr(
        imports.Import, "read", lambda self, file, hasher: real(self, growing(file), hasher)
    )
    made = thread.sessions.import_file(path)
    assert export(thread, "abc") == whole[:cut]
    assert (made.entries, made.raw) == (3, 1)
    again = thread.sessions.import_file(path)
    assert (again.entries, again.raw) == (4, 0)
    assert export(thread, "abc") == whole
    assert len(turns(thread, "abc")) == 3
    assert thread.sessions.views.info("abc").generation == 1


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_file_that_was_rewritten(thread: eventq.Thread, at: int, end: bytes) -> None:
    """A rewritten file is the next generation; the one before comes out too, and keeps its turns."""
    entries = [HEADER, says("one", image(1)), says("two")]
    data = lines(*entries)[:-1] + end
    load(thread, data, "s")
    before = turns(thread, "s")
    changed = lines(
        *entries[:at], says("other", image(5)), *entries[at + 1 :], says("more", image(6))
    )
    found = load(thread, changed, "s")
    assert (found.generation, found.added) == (2, 4)
    assert any("was rewritten: it is generation 2 of 's'" in note for note in found.notes)
    for _ in range(2):
        assert export(thread, "s") == changed
        assert b"".join(thread.sessions.lines("s", generation=2)) == changed
        assert b"".join(thread.sessions.lines("s", generation=1)) == data
        assert load(thread, changed, "s").added == 0
        collect(thread)
    kept = len({turn.turn_id for turn in before} & {turn.turn_id for turn in turns(thread, "s")})
    assert kept == {0: 0, 1: 0, 2: 1}[at]  # what follows a change is below it
    with pytest.raises(LogicError, match="no generation 3"):
        next(thread.sessions.lines("s", generation=3))
    assert thread.check() == []


def test_a_file_of_the_same_name_from_elsewhere(thread: eventq.Thread, tmp_path: Path) -> None:
    """A file from another folder goes on if it is the same, moved; otherwise it is another session."""
    data = lines(HEADER, says("one"))
    load(thread, data)
    path = write(tmp_path, data + lines(says("two")))
    assert thread.sessions.import_file(path).added == 1
    before = state(thread)
    with pytest.raises(ConflictError, match="session 'abc' is another one here") as caught:
        load(thread, lines(HEADER, says("other")))
    assert "--as another name" in caught.value.fix
    assert state(thread) == before
    assert load(thread, lines(HEADER, says("other")), "mine").added == 2
    write(tmp_path, lines(HEADER, says("rewritten")))
    assert thread.sessions.import_file(path).generation == 2


def test_a_whole_last_line_is_not_taken_for_a_torn_one(thread: eventq.Thread) -> None:
    """An entry without its newline that is another one now is not lost: the file was rewritten."""
    load(thread, b'{"a":1}\n{"b":1}', "s")
    assert load(thread, b'{"a":1}\n{"c":1}\n', "s").generation == 2
    assert b"".join(thread.sessions.lines("s", generation=1)) == b'{"a":1}\n{"b":1}'


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "file", "name"),
    [
        (b'{"type":"session","id":"abc"}', "x.jsonl", "abc"),
        (b'{"type":"session","id":"123"}', "x.jsonl", "session-123"),
        (b'{"type":"session","id":""}', "x.jsonl", "x"),
        (b'{"type":"session","id":7}', "2024-01-01.jsonl", "2024-01-01"),
        (
            json.dumps({"type": "session", "id": "a\nb\0c é \ud800"}).encode(),
            "x.jsonl",
            "a_b_c é _",
        ),
        (spell({"type": "session", "id": "é" * 1000}), "x.jsonl", "é" * 101 + "-d374fb05"),
        (b'{"type":"message","id":"abc"}', "x.y.jsonl", "x.y"),
        (b"no JSON\n{}", "7.jsonl", "session-7"),
        (b"[]\n{}", "a\nb.jsonl", "a_b"),
        (b'{"type": "session", "id": "spelled"}', "x.jsonl", "spelled"),
        (b'{"type":"session","id":"../../x"}\r', "x.jsonl", "../../x"),
    ],
)
def test_the_name_of_a_session(
    thread: eventq.Thread, tmp_path: Path, first: bytes, file: str, name: str
) -> None:
    """A context is named by `name`, the id in the first entry, or the file; never by a number."""
    path = write(tmp_path, lines(first), file)
    found = thread.sessions.import_file(path)
    assert [(one.context_id, one.name) for one in thread.contexts] == [(found.context_id, name)]
    assert thread.sessions.import_file(path).added == 0
    for bad in ("", "7", "a\nb", "x" * 5000):
        with pytest.raises(InputError):
            thread.sessions.import_file(path, name=bad)
    assert thread.sessions.import_file(path, name="mine").added == first.count(b"\n") + 1
    assert [one.name for one in thread.contexts] == [name, "mine"]


# --- what is in the way ---------------------------------------------------------------------------


def test_a_context_of_the_name(thread: eventq.Thread) -> None:
    """An empty context of that name is used; one with other turns is a ConflictError."""
    made = thread.contexts.create("abc")
    assert load(thread, lines(HEADER)).context_id == made.id
    made.append("other")
    before = state(thread)
    with pytest.raises(ConflictError, match="somebody else has moved context 'abc'"):
        load(thread, lines(HEADER))
    assert state(thread) == before
    assert export(thread, "abc") == lines(HEADER)


@pytest.mark.parametrize("where", ["pack", "place", "show"])
def test_somebody_imports_at_the_same_time(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """An import goes on after a concurrent one of the same session, which may be further."""
    monkeypatch.setattr(imports, "BATCH_LINES", 2)
    entries = [HEADER, *(says(str(n), image(n)) for n in range(5))]
    path = write(str(tmp_path), lines(*entries[:5]))
    owner: Any = lines_module if where == "pack" else imports.Import
    real, calls = getattr(owner, where), []

    def disturbed(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == (3 if where == "pack" else 1):
            write(str(tmp_path), lines(*entries))
            with eventq.open(thread.path) as other:
                other.sessions.import_file(path)
        return real(*given)

    monkeypatch.setattr(owner, where, disturbed)
    thread.sessions.import_file(path)
    assert export(thread, "abc") == lines(*entries)
    assert len(turns(thread, "abc")) == 5
    assert rows_in(thread.database, "turns") == 5
    assert len(calls) > 2


def test_somebody_begins_a_session_at_the_same_time(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two first imports of a session are one, and make no generation."""
    entries = [HEADER, says("a")]
    path = write(tmp_path, lines(*entries))
    real = imports.Import.read
    calls: list[Any] = []

    def disturbed(self: Any, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            with eventq.open(thread.path) as other:
                other.sessions.import_file(path)
        return real(self, *given)

    monkeypatch.setattr(imports.Import, "read", disturbed)
    assert thread.sessions.import_file(path).generation == 1
    assert len(calls) == 3  # the first one has come too late
    assert len(thread.database.memory.sessions.page(0, 9)) == 1


def test_somebody_imports_again_and_again(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that others overtake each time gives up, and says so."""
    monkeypatch.setattr(Sessions, "grow", lambda *_: None)
    with pytest.raises(ConflictError, match="somebody else imports 'abc'"):
        load(thread, lines(HEADER))


def test_a_batch_is_one_change(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 85: an import that fails in a transaction keeps the earlier ones, and no more."""
    monkeypatch.setattr(imports, "BATCH_LINES", 2)
    entries = [HEADER, *(says(str(n), image(n)) for n in range(5))]
    real = Sessions.grow

    def breaking(self: Any, was: Any, first: int, *more: Any) -> Any:
        made = real(self, was, first, *more)
        if first == 2:
            raise LookupError
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Sessions, "grow", breaking)
        with pytest.raises(LookupError):
            load(thread, lines(*entries))
    assert len(rows(thread, "abc")) == 2
    assert not thread.blobs.has(blake3(pixels(1)).hexdigest())
    assert load(thread, lines(*entries)).added == 4
    assert export(thread, "abc") == lines(*entries)


def test_batches_of_bytes(thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction has some MiB or 500 lines, so that memory is bounded."""
    seen, real = [], Sessions.grow
    monkeypatch.setattr(imports, "BATCH_BYTES", 1000)
    monkeypatch.setattr(imports, "BATCH_LINES", 5)

    def noted(self: Any, was: Any, first: int, batch: list[Any], *more: Any) -> Any:
        seen.append(len(batch))
        return real(self, was, first, batch, *more)

    monkeypatch.setattr(Sessions, "grow", noted)
    data = lines(*[{"a": 1}] * 12, *[{"a": "x" * 600}] * 5)
    load(thread, data, "s")
    assert seen == [5, 5, 4, 2, 1]
    assert export(thread, "s") == data


def test_a_file_or_a_thread_that_cannot_be_used(thread: eventq.Thread, tmp_path: Path) -> None:
    """An unreadable file and a read-only thread are errors, and no context is created."""
    for path, why in (
        (str(tmp_path / "none.jsonl"), "could not be read: No such file"),
        (str(tmp_path), "could not be read: Is a directory"),
        (thread.path + "/events.db", "is inside the thread"),
        ("/dev/zero", "neither a file nor a pipe"),
    ):
        with pytest.raises(LogicError, match=why):
            thread.sessions.import_file(path)
    with pytest.raises(UsageError, match="the path must be text"):
        thread.sessions.import_file(5)  # type: ignore[arg-type]
    thread.contexts.create("s")
    with eventq.open(thread.path, read_only=True) as reader:
        for data in (lines(HEADER), b""):  # also where there is nothing to add
            with pytest.raises(ReadOnlyError):
                load(reader, data, "s")
        with pytest.raises(LogicError, match="is of no session"):
            export(reader, "s")
    assert [one.name for one in thread.contexts] == ["s"]
    with pytest.raises(UnknownContextError):
        next(thread.sessions.lines("none"))


# --- the blobs of another tool --------------------------------------------------------------------


def foreign(data: bytes) -> str:
    """Return the ref that another tool has for bytes."""
    return f"blob:sha256:{hashlib.sha256(data).hexdigest()}"


def shelf(tmp_path: Path, *blobs: bytes) -> str:
    """Write a folder of another tool's blobs."""
    folder = tmp_path / "blobs"
    folder.mkdir(exist_ok=True)
    for data in blobs:
        (folder / hashlib.sha256(data).hexdigest()).write_bytes(data)
    return str(folder)


def holds(ref: str, *more: str) -> dict[str, Any]:
    """Return an entry with images that are refs."""
    return {"content": [{"type": "image", "data": one} for one in (ref, *more)], "after": 1}


def encoded(data: bytes) -> str:
    """Return an image as an entry has it."""
    return base64.b64encode(data).decode()


def test_refs_of_another_tool_become_known(thread: eventq.Thread, tmp_path: Path) -> None:
    """With another tool's blob folder, refs are loaded; the export keeps the refs."""
    one, two, url, spaced = (
        pixels(1),
        pixels(2, 1_200_000),
        b"data:image/png;base64,QUJD",
        pixels(3),
    )
    entries = [
        holds(foreign(one), foreign(two)), holds(foreign(one)), {"image_url": foreign(url)},
        json.dumps(holds(foreign(spaced))).encode(),
    ]  # fmt: skip
    data = lines(HEADER, *entries)
    found = load(thread, data, blobs=shelf(tmp_path, one, two, url, spaced))
    assert (found.added, found.blobs) == (5, 4)
    assert kinds(thread, "abc") == [PLAIN] * 5
    stored = [json.loads(one) for one in payloads(thread, "abc")]
    for _ in range(2):
        for data_of in (one, two, spaced):
            assert thread.read(foreign(data_of)).data == data_of
        assert thread.rehydrate(stored[1]) == holds(encoded(one), encoded(two))
        assert thread.rehydrate(stored[3]) == {"image_url": url.decode()}
        assert export(thread, "abc") == data
        collect(thread)
    assert load(thread, data, blobs=shelf(tmp_path)).added == 0


def test_blobs_of_another_tool_that_are_missing_or_damaged(
    thread: eventq.Thread, tmp_path: Path
) -> None:
    """A blob that is not in the folder, or is another's bytes, is noted once, and its ref kept."""
    folder = shelf(tmp_path, pixels(1))
    gone, bad, odd = foreign(b"gone"), foreign(b"bad"), foreign(b"odd")
    (tmp_path / "blobs" / bad[12:]).write_bytes(b"not so bad")
    (tmp_path / "blobs" / odd[12:]).mkdir()
    data = lines(holds(foreign(pixels(1)), gone, bad, odd), holds(gone, bad))
    assert {*load(thread, data, "s", blobs=folder).notes} == {
        f"{gone} is not in '{folder}' (No such file or directory): the ref is kept",
        f"'{folder}/{bad[12:]}' is damaged: the ref is kept",
        f"{odd} is not in '{folder}' (it is not a regular file): the ref is kept",
    }
    assert export(thread, "s") == data
    assert thread.read(foreign(pixels(1))).data == pixels(1)
    for ref in (gone, bad, odd):
        with pytest.raises(UnknownBlobError):
            thread.read(ref)
    told: list[str] = []
    assert thread.rehydrate(holds(gone), warn=told.append) == holds(gone)
    assert told == [f"blob {gone} is missing; the entry keeps its ref"]


def test_a_blob_that_the_folder_gets_later(thread: eventq.Thread, tmp_path: Path) -> None:
    """A missing blob is found by a later entry, or by the next import, for all its refs."""
    data = lines(holds(foreign(pixels(1))), holds(foreign(pixels(2))))
    assert len(load(thread, data, "s", blobs=shelf(tmp_path)).notes) == 2
    assert load(thread, data, "s").added == 0
    more = data + lines(holds(foreign(pixels(1))))
    found = load(thread, more, "s", blobs=shelf(tmp_path, pixels(1), pixels(2)))
    assert (found.blobs, found.notes) == (2, ())
    for number in (1, 2):
        entry = json.loads(payloads(thread, "s")[number - 1])
        assert thread.rehydrate(entry) == holds(encoded(pixels(number)))
    collect(thread)
    assert thread.read(foreign(pixels(2))).data == pixels(2)
    assert export(thread, "s") == more


def test_malformed_refs_open_no_file(
    thread: eventq.Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid ref stays unchanged, and no file is opened for it."""
    (tmp_path / "x").write_bytes(b"outside")
    folder = shelf(tmp_path, pixels(1))
    sound = foreign(pixels(1))
    bad = ["blob:sha256:../x", "blob:sha256:../../x", f"blob:sha256:{tmp_path}/x", "blob:sha256:", sound + "/../../x",
           sound[:-1], sound.upper(), f"blob:sha256:{'/' * 64}", f"blob:sha256:{'../' * 21}x", sound + "\n"]  # fmt: skip
    (tmp_path / "blobs" / sound[12:].upper()).write_bytes(pixels(1))
    opened = []
    real = open

    def noted(path: Any, *given: Any, **more: Any) -> Any:
        opened.append(path)
        return real(path, *given, **more)

    monkeypatch.setattr(sessions, "open", noted, raising=False)
    urls = [{"image_url": ref} for ref in bad]
    data = lines(*map(holds, bad), *urls, says(sound), {"data": sound})
    path = write(tmp_path, data)
    found = thread.sessions.import_file(path, name="s", blobs=folder)
    assert opened == [path]
    assert (found.blobs, found.notes) == (0, ())
    assert export(thread, "s") == data
    for ref in bad:
        with pytest.raises((UsageError, LogicError)):
            thread.read(ref)


# --- collections ----------------------------------------------------------------------------------


MENTIONS = [
    says(f"see {MENTION}."),
    {MENTION: 1},
    {"a": [{"b": f"x{MENTION}x"}]},
    says("x" * 600_000 + MENTION),
    says("x" * (MAX_CHARS - len(NOTICE) - 40) + MENTION + "x" * 100),  # the cut goes through it
    says("é" * 400_000 + MENTION + "\U0001f600" * 200_000),
    {"thoughtSignature": "s" * 600_000 + MENTION},
    {"partialJson": f"[{MENTION}", "a": 1},
    {"jsonlEvents": [{MENTION: [MENTION]}]},
    {"image_url": f"data:image/png;base64,{MENTION}"},
    json.dumps(says(MENTION)).encode(),
    f"no JSON {MENTION}".encode(),
    f'{{"torn":"{MENTION}'.encode(),
    {FULL: MENTION},
]


@pytest.mark.parametrize("entry", MENTIONS, ids=range(len(MENTIONS)))
def test_a_text_that_mentions_a_blob_keeps_it(thread: eventq.Thread, entry: Any) -> None:
    """Row 84: a blob that is only mentioned, even in cut text, is kept."""
    thread.blobs.put(MENTIONED)
    thread.blobs.put(b"mentioned nowhere")
    data = lines(HEADER, entry)
    load(thread, data)
    collect(thread)
    assert thread.blobs.get(MENTION) == MENTIONED
    assert not thread.blobs.has(blake3(b"mentioned nowhere").hexdigest())
    assert export(thread, "abc") == data
    thread.contexts.delete("abc")
    collect(thread)
    assert len(thread.blobs) == 0


def test_a_blob_that_comes_after_the_entry_that_holds_its_ref(thread: eventq.Thread) -> None:
    """A ref of a missing blob is restored as it was, even if the blob is stored later."""
    data = lines(says(MENTION), holds(MENTION))
    assert load(thread, data, "s").notes == ()
    assert export(thread, "s", missing=True) == data
    collect(thread)
    thread.blobs.put(MENTIONED)
    assert export(thread, "s") == data
    assert load(thread, data, "s").added == 0


# --- externalize and rehydrate --------------------------------------------------------------------


def test_an_entry_by_hand(thread: eventq.Thread) -> None:
    """Rows 79, 83: an entry is externalized once and comes back; what was given is left alone."""
    entry = says("y" * 600_000, image(1), partialJson={"a": 1})
    copy = json.loads(json.dumps(entry))
    short = thread.externalize(entry)
    stored = thread.externalize(entry, full=True)
    assert entry == copy
    assert thread.externalize(stored, full=True) == stored
    assert thread.rehydrate(stored) == entry
    assert thread.rehydrate(short)["message"]["content"][1] == image(1)
    assert thread.rehydrate(short)["message"]["content"][0]["text"].endswith(NOTICE)
    assert "partialJson" not in short
    assert thread.blobs.get(blake3(pixels(1)).hexdigest()) == pixels(1)


def test_what_is_externalized_keeps_what_it_names(thread: eventq.Thread) -> None:
    """A long text that is stored as a blob keeps the blobs that it names."""
    thread.blobs.put(MENTIONED)
    stored = thread.externalize(says("x" * 600_000 + MENTION), full=True)
    main = thread.contexts.create("main")
    main.append(NewTurn(json.dumps(stored), refs=entries.refs(stored)))
    collect(thread)
    assert thread.blobs.get(MENTION) == MENTIONED
    assert thread.rehydrate(stored)["message"]["content"][0]["text"].endswith(MENTION)


def test_warnings(thread: eventq.Thread) -> None:
    """Row 83: a missing blob is a Python warning, or a call of `warn`; later it is found."""
    ref = f"blob:blake3:{blake3(pixels(7)).hexdigest()}"
    stored = holds(ref, "blob:sha256:../../x")
    with pytest.warns(UserWarning, match="blob") as caught:
        assert thread.rehydrate(stored) == stored
    assert sorted(str(one.message) for one in caught) == [
        "'blob:sha256:../../x' is not the ref of a blob; it stays as it is",
        f"blob {ref} is missing; the entry keeps its ref",
    ]
    told: list[str] = []
    assert thread.rehydrate(stored, warn=told.append) == stored
    assert len(told) == 2
    thread.blobs.put(pixels(7))
    told.clear()
    assert thread.rehydrate(stored, warn=told.append) == holds(
        base64.b64encode(pixels(7)).decode(), "blob:sha256:../../x"
    )
    assert told == ["'blob:sha256:../../x' is not the ref of a blob; it stays as it is"]


def test_what_is_undone_is_not_visible(thread: eventq.Thread) -> None:
    """Row 85: an entry and its blobs are stored together, or not at all."""
    main = thread.contexts.create("main")
    before = state(thread)
    entry = says("y" * 600_000, image(1), image(2, 3_000_000))

    def both(*, fail: bool) -> None:
        with thread.write():
            stored = thread.externalize(entry, full=True)
            main.append(NewTurn(json.dumps(stored), refs=entries.refs(stored)))
            with eventq.open(thread.path, read_only=True) as reader:
                assert state(reader) == before
            if fail:
                raise LookupError

    with pytest.raises(LookupError):
        both(fail=True)
    assert state(thread) == before
    both(fail=False)
    with eventq.open(thread.path, read_only=True) as reader:
        [stored] = [turn.payload or b"" for turn in turns(reader, "main")]
        assert reader.rehydrate(json.loads(stored)) == entry


def test_an_import_inside_a_transaction_that_is_undone(thread: eventq.Thread) -> None:
    """Row 85: an import in a transaction that rolls back leaves nothing, not even a context."""
    data = lines(HEADER, says("x", image(1)))
    before = state(thread)
    with pytest.raises(LookupError), thread.write():
        assert load(thread, data).added == 2
        raise LookupError
    assert state(thread) == before
    assert load(thread, data).added == 2
    assert export(thread, "abc") == data


def test_refs_in_a_payload_are_those_of_the_turn(thread: eventq.Thread) -> None:
    """The payload of an entry names, as refs of its blob, exactly the blobs that its text names."""
    thread.blobs.put(MENTIONED)
    load(thread, lines(says(f"see {MENTION}", image(1))), "s")
    [turn] = turns(thread, "s")
    assert turn.flags == CUT
    named = {digest.hex() for digest in refs_in((turn.payload or b"").decode())}
    assert {blake3(MENTIONED).hexdigest(), blake3(pixels(1)).hexdigest()} == named
    assert {ref[12:] for ref in thread.blobs.refs(turn.hash)} == named


def test_a_torn_line_stays_until_its_successor_is_stored(
    thread: eventq.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that fails while it replaces a torn line loses nothing."""
    torn, grow = lines(HEADER) + b'{"torn":"hal', Sessions.grow
    load(thread, torn)
    with monkeypatch.context() as patch:
        patch.setattr(Sessions, "grow", lambda *given: grow(*given) and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            load(thread, torn + b'f"}\n')
    assert export(thread, "abc") == torn
    assert load(thread, torn + b'f"}\n').added == 1
    assert export(thread, "abc") == torn + b'f"}\n'


def test_a_folder_that_is_the_thread(tmp_path: Path) -> None:
    """A thread beside a session's file, where its folder would be, is left out and reported."""
    (tmp_path / "s.jsonl").write_bytes(b'{"type":"session","id":"s-1"}\n')
    with eventq.open(tmp_path / "s", create=True) as thread:
        made = thread.sessions.import_file(str(tmp_path / "s.jsonl"))
        assert (made.files, len(thread.database.memory.scopes.files(1, "", 9))) == (0, 0)
        assert "it is the thread" in made.notes[0]
