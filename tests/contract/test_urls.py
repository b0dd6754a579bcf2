"""A URL returns its content, whole, by lines or in part, or one of the fixed errors."""

from __future__ import annotations

import hashlib
import json
import os
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventq
from eventq.errors import (
    EventqError,
    InputError,
    LogicError,
    UnknownArtifactError,
    UnknownBlobError,
    UnknownOutputError,
    UsageError,
)
from eventq.output import urls
from eventq.records.artifact import Content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.contract.support import Tables

CHUNK = 1 << 16
KINDS = ["artifact", "agent", "blob"]
VALUE = {"a": [{"b": 1}, "zwei ü"], "file name": {"x/y": True}, "n": None, "0": "zero", "s": "text"}
SCOUT = json.dumps(VALUE)
HALF = "\ud800"
ZEROS = "0" * 64


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def full(thread: eventq.Thread) -> eventq.Thread:
    """Return a thread with two artifacts and three outputs."""
    thread.artifacts.put(b"one\ntwo\n", "bash")
    thread.artifacts.put(b"")
    thread.outputs.put("Scout", SCOUT)
    thread.outputs.put("Child", "# plain\n\ntext", "0-Scout")
    thread.outputs.put("List", "[1, [2, 3]]")
    return thread


def length(count: int) -> str:
    """Return how an error states a number of lines."""
    return "1 line" if count == 1 else f"{count} lines"


def wrong(thread: eventq.Thread, url: str, kind: type[EventqError], **lines: Any) -> str:
    """Return what is wrong with a URL, whoever opens it."""
    with pytest.raises(EventqError) as caught:
        thread.read(url, **lines)
    assert type(caught.value) is kind
    assert caught.value.fix
    with pytest.raises(kind) as other:
        b"".join(thread.open_url(url, **lines))
    assert str(other.value) == str(caught.value)
    return caught.value.what


# --- artifacts ------------------------------------------------------------------------------------


def test_an_artifact(full: eventq.Thread) -> None:
    """Row 99: an artifact is plain text; a slash after the number is ignored."""
    for url in ("artifact://0", "artifact://0/", "ARTIFACT://0", "Artifact://0"):
        assert full.read(url) == Content(url, "text/plain", b"one\ntwo\n", None, complete=True)
    assert full.read("artifact://0").text == "one\ntwo\n"
    assert full.read("artifact://1").data == b""
    found = full.open_url("artifact://0")
    assert (found.content_type, found.incomplete, found.lines) == ("text/plain", None, 2)
    assert b"".join(found) == b"one\ntwo\n"


def test_an_artifact_that_is_not_whole(full: eventq.Thread) -> None:
    """Row 91: what is open or has failed is read as far as it is, and is not complete."""
    writer = full.artifacts.allocate()
    assert full.read("artifact://2") == Content(
        "artifact://2", "text/plain", b"", None, complete=False
    )
    writer.write(b"so far")
    writer.fail("so")
    for limit in (None, 1):
        assert full.read("artifact://2", limit=limit) == Content(
            "artifact://2", "text/plain", b"so far", None, complete=False
        )
    full.artifacts.allocate()
    said = ["artifact://2 is failed (so)", "artifact://3 is open"]
    assert [full.open_url(f"artifact://{number}").incomplete for number in (2, 3)] == said


@pytest.mark.parametrize(("url", "kind", "what"), [
    ("artifact://", UsageError, "artifact:// URL requires a numeric ID: artifact://0"),
    ("artifact:///", UsageError, "artifact:// URL requires a numeric ID: artifact://0"),
    ("artifact://x", UsageError, "artifact:// ID must be numeric, got: x"),
    ("artifact://-1", UsageError, "artifact:// ID must be numeric, got: -1"),
    ("artifact:// 0", UsageError, "artifact:// ID must be numeric, got:  0"),
    ("artifact://0x1", UsageError, "artifact:// ID must be numeric, got: 0x1"),
    ("artifact://٣", UsageError, "artifact:// ID must be numeric, got: ٣"),
    ("artifact://²", UsageError, "artifact:// ID must be numeric, got: ²"),
    ("artifact://0.bash.log", UsageError, "artifact:// ID must be numeric, got: 0.bash.log"),
    ("artifact://../0", UsageError, "artifact:// ID must be numeric, got: ../0"),
    ("artifact://0//", UsageError, "artifact:// ID must be numeric, got: 0/"),
    ("artifact:///0", UsageError, "artifact:// ID must be numeric, got: /0"),
    ("artifact://" + HALF, UsageError, "artifact:// ID must be numeric, got: " + HALF),
    ("artifact:0", UsageError, "'artifact:0' has no //"),
    ("artifact:/0", UsageError, "'artifact:/0' has no //"),
    ("artifact://2", UnknownArtifactError, "Artifact 2 not found. Available: 0, 1"),
    ("artifact://00", UnknownArtifactError, "Artifact 00 not found. Available: 0, 1"),
    ("artifact://" + "9" * 400, UnknownArtifactError,
     f"Artifact {'9' * 400} not found. Available: 0, 1"),
])  # fmt: skip
def test_no_artifact(full: eventq.Thread, url: str, kind: type[EventqError], what: str) -> None:
    """Row 99: the exact words for what is no artifact's URL, and for a number that is not there."""
    assert wrong(full, url, kind) == what


def test_more_than_a_hundred(thread: eventq.Thread) -> None:
    """Rows 99, 100: an error lists the first hundred ids, in order, and counts the others."""
    with thread.write():
        for _ in range(103):
            thread.artifacts.put(b"")
            thread.outputs.put("x", "")
            thread.outputs.publish("0-x", "again")
    named = ", ".join(map(str, range(100)))
    expected = f"Artifact 200 not found. Available: {named}, and 3 more"
    assert wrong(thread, "artifact://200", UnknownArtifactError) == expected
    named = ", ".join(sorted(f"{n}-x" for n in range(103))[:100])
    wanted = f"Not found: y\nAvailable: {named}, and 3 more"
    assert wrong(thread, "agent://y", UnknownOutputError) == wanted


def test_there_is_nothing(thread: eventq.Thread, other: eventq.Thread) -> None:
    """Rows 99, 100: without any artifacts or outputs, the error says so."""
    for url in ("artifact://0", "agent://0-Scout", "agent://x?q=.a"):
        assert wrong(thread, url, LogicError) == "No artifacts directory found"
    thread.outputs.put("Scout", "x")
    expected = "Artifact 0 not found. Available: none"
    assert wrong(thread, "artifact://0", UnknownArtifactError) == expected
    other.artifacts.put(b"x")
    what = wrong(other, "agent://0-Scout", UnknownOutputError)
    assert what == "Not found: 0-Scout\nAvailable: none"


@pytest.mark.parametrize(("url", "what"), [
    ("artifact://0", "No session - artifacts unavailable"),
    ("agent://0-Scout", "No session - agent outputs unavailable"),
    ("agent://0-Scout/a", "No session - agent outputs unavailable"),
    (f"blob:blake3:{ZEROS}", "No session - blobs unavailable"),
    (f"blob:sha256:{ZEROS}", "No session - blobs unavailable"),
])  # fmt: skip
def test_without_a_thread(url: str, what: str) -> None:
    """Rows 92, 99, 100: somebody without a thread is told so, once the URL is one."""
    for call in (urls.open_url, urls.read):
        with pytest.raises(LogicError) as caught:
            call(url, None)
        assert caught.value.what == what
    with pytest.raises(UsageError, match="requires a numeric ID"):
        urls.open_url("artifact://", None)


# --- outputs --------------------------------------------------------------------------------------


def test_an_output(full: eventq.Thread) -> None:
    """Row 100: an output is Markdown, as it was published; a slash after its name means nothing."""
    for url in (
        "agent://0-Scout.0-Child",
        "agent://0-Scout.0-Child/",
        "AGENT://0-Scout.0-Child",
        "agent://0-Scout%2E0%2dChild",
    ):
        assert full.read(url) == Content(
            url, "text/markdown", b"# plain\n\ntext", None, complete=True
        )
    for url in (
        "agent://0-Scout?",
        "agent://0-Scout?q=",
        "agent://0-Scout/?q=",
        "agent://0-Scout#part",
        "agent://0-Scout?x=1",
    ):
        assert full.read(url).data == SCOUT.encode()
        assert full.read(url).content_type == "text/markdown"


@pytest.mark.parametrize(("rest", "found"), [
    ("/a", VALUE["a"]), ("/a/0", {"b": 1}), ("/a/0/b", 1), ("/a/1", "zwei ü"), ("/a/0/", {"b": 1}),
    ("//a//1", "zwei ü"), ("/file%20name", {"x/y": True}), ("/file%20name/x%2Fy", True),
    ("/file name/x%2fy", True), ("/n", None), ("/0", None), ("?q=.0", "zero"), ("?q=[0]", None),
    ("/nothing", None), ("/a/7", None), ("/a/b", None), ("/s/0", None), ("/a/0/b/c", None),
    ("/a/-1", None), ("?q=.a", VALUE["a"]), ("?q=.a[0].b", 1), ("?q=a[1]", "zwei ü"),
    ("?q=['file name']['x/y']", True), ("?q=.", VALUE),
    ("?q=%5B%27file%20name%27%5D", {"x/y": True}), ("?q=.a%5B0%5D", {"b": 1}),
    ("?q=['file+name']", {"x/y": True}), ("?q=.missing", None), ("?q=.n", None),
    ("/?q=.a[1]", "zwei ü"), ("?version=1&q=.n", None), ("?q=.a&q=.s", VALUE["a"]),
])  # fmt: skip
def test_a_part_of_an_output(full: eventq.Thread, rest: str, found: Any) -> None:
    """Rows 100, 101: a path or `?q=` returns a part of the JSON; a missing one is `null`."""
    url = "agent://0-Scout" + rest
    expected = json.dumps(found, indent=2, ensure_ascii=False).encode()
    assert full.read(url) == Content(url, "application/json", expected, None, complete=True)


@pytest.mark.parametrize(("rest", "kind", "what"), [
    ("", UsageError, "agent:// URL requires an output ID: agent://<id>"),
    ("/", UsageError, "agent:// URL requires an output ID: agent://<id>"),
    ("/a", UsageError, "agent:// URL requires an output ID: agent://<id>"),
    ("?q=.a", UsageError, "agent:// URL requires an output ID: agent://<id>"),
    ("#x", UsageError, "agent:// URL requires an output ID: agent://<id>"),
    ("0-Scout/a?q=.a", UsageError, "agent:// URL cannot combine path extraction with ?q="),
    ("unknown/a/0?q=.", UsageError, "agent:// URL cannot combine path extraction with ?q="),
    ("0-Scout?q=.a[", UsageError, "Invalid query: missing ] in .a["),
    ("0-Scout?q=.a[]", UsageError, "Invalid query: empty [] in .a[]"),
    ("0-Scout?q=.a!", UsageError, "Invalid query: unexpected token '!' in .a!"),
    ("0-Scout.0-Child/a", LogicError, "Output 0-Scout.0-Child is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
    ("0-Scout.0-Child?q=.", LogicError, "Output 0-Scout.0-Child is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
    ("x", UnknownOutputError, "Not found: x\nAvailable: 0-Scout, 0-Scout.0-Child, 1-List"),
    ("x/a/b", UnknownOutputError, "Not found: x\nAvailable: 0-Scout, 0-Scout.0-Child, 1-List"),
    ("a%20%2Fb", UnknownOutputError, "Not found: a /b\nAvailable: 0-Scout, 0-Scout.0-Child, 1-List"),
    ("0-scout", UnknownOutputError, "Not found: 0-scout\nAvailable: 0-Scout, 0-Scout.0-Child, 1-List"),
    ("0-Scout?version=2", UnknownOutputError, "Not found: 0-Scout, version 2\nAvailable: 0-Scout, 0-Scout.0-Child, 1-List"),
    ("0-Scout?version=0", UsageError, "version must be a whole number from 1 on, not '0'"),
    ("0-Scout?version=", UsageError, "version must be a whole number from 1 on, not ''"),
    ("0-Scout?version=-1", UsageError, "version must be a whole number from 1 on, not '-1'"),
    ("0-Scout?version=٣", UsageError, "version must be a whole number from 1 on, not '٣'"),
    ("0-Scout?version=1.0", UsageError, "version must be a whole number from 1 on, not '1.0'"),
    ("0-Scout?version=" + "9" * 19, UsageError, f"version must be a whole number from 1 on, not '{'9' * 19}'"),
])  # fmt: skip
def test_no_output(full: eventq.Thread, rest: str, kind: type[EventqError], what: str) -> None:
    """Rows 100, 101: the exact errors for bad URLs, bad queries, and missing outputs."""
    assert wrong(full, "agent://" + rest, kind) == what


def test_no_slashes(full: eventq.Thread) -> None:
    """A URL of an output has two slashes."""
    assert wrong(full, "agent:0-Scout", UsageError) == "'agent:0-Scout' has no //"


def test_versions(full: eventq.Thread) -> None:
    """Row 103: `?version=` returns a later version; the default is the first."""
    full.outputs.publish("0-Scout", '{"a":\n2}')
    assert full.read("agent://0-Scout").data == SCOUT.encode()
    assert full.read("agent://0-Scout?version=2").data == b'{"a":\n2}'
    assert full.read("agent://0-Scout?version=02").data == b'{"a":\n2}'
    assert full.read("agent://0-Scout?version=2", offset=2).data == b"2}"
    assert full.read("agent://0-Scout?version=2&q=.a").data == b"2"
    assert full.read("agent://0-Scout/a?version=2").data == b"2"


@pytest.mark.parametrize("data", [
    b"", b" ", b"{", b'{"a": NaN}', b"[Infinity]", b"[-Infinity]", b"\xff", b"{'a': 1}", b"[1,]", b"[" * 100_000,
    b'{"a":' * 50_000, b"1" * 5_000, b"# text", b"1 2",
])  # fmt: skip
def test_what_is_no_json(full: eventq.Thread, data: bytes) -> None:
    """Row 100: a query into an output that is not JSON is an error; reading it whole works."""
    info = full.outputs.put("x", data)
    assert wrong(full, info.url + "/a", LogicError).startswith(
        f"Output {info.output_id} is not valid JSON: "
    )
    assert full.read(info.url).data == data


def test_any_depth_of_json(thread: eventq.Thread) -> None:
    """Row 100: JSON of any depth is extracted from or refused, also about where Python gives up."""
    found = set()
    for depth in (10, 300, *range(900, 1_000, 4)):
        url = thread.outputs.put("x", b'{"a":' * depth + b"1" + b"}" * depth).url + "?q=.a"
        try:
            found.add(len(thread.read(url).data) > depth)
        except LogicError as error:
            found.add(error.what.startswith("Output "))
    assert found == {True}


def test_what_json_can_hold(full: eventq.Thread) -> None:
    """Row 100: halves of characters come out as they can be written, and numbers as they were."""
    info = full.outputs.put("x", '{"half": "\\ud800", "big": 12345678901234567890123, "é": 1.50}')
    assert full.read(info.url + "/half").data == b'"\\ud800"'
    assert full.read(info.url + "/big").data == b"12345678901234567890123"
    assert full.read(info.url + "/%C3%A9").data == b"1.5"
    assert full.read(info.url + "/é").data == b"1.5"


def test_a_number_beyond_all_numbers(full: eventq.Thread) -> None:
    """Row 100: what is extracted is JSON."""
    info = full.outputs.put("x", '{"a": 1e999}')
    try:
        data = full.read(info.url + "/a").data
    except LogicError:
        return
    assert data != b"Infinity"


# --- blobs ----------------------------------------------------------------------------------------


def test_a_blob(thread: eventq.Thread) -> None:
    """A ref is a URL too: it gives the bytes, also where nothing else was ever stored."""
    blob = thread.blobs.put(b"one\ntwo")
    assert thread.read(blob.ref) == Content(
        blob.ref, "application/octet-stream", b"one\ntwo", None, complete=True
    )
    assert thread.read(blob.ref, offset=2).data == b"two"


def test_a_blob_by_another_name(thread: eventq.Thread) -> None:
    """`blob:sha256:` finds the bytes once the thread has verified that name."""
    blob, sha256 = thread.blobs.put(b"bytes"), hashlib.sha256(b"bytes")
    url = f"blob:sha256:{sha256.hexdigest()}"
    assert wrong(thread, url, UnknownBlobError) == f"missing blob {url}"
    assert thread.produced.name_blob(blob.hash, hashlib.sha256(b"other").digest()) is False
    assert wrong(thread, f"blob:sha256:{hashlib.sha256(b'other').hexdigest()}", UnknownBlobError)
    for _ in range(2):
        assert thread.produced.name_blob(blob.hash, sha256.digest()) is True
        assert thread.read(url) == Content(
            url, "application/octet-stream", b"bytes", None, complete=True
        )
    assert thread.produced.get(url) == thread.produced.get(blob.ref) == b"bytes"
    assert thread.produced.blob_hash(url) == thread.produced.blob_hash(blob.ref) == blob.hash
    assert thread.produced.blob_hash(f"blob:blake3:{sha256.hexdigest()}") is None
    assert [*thread.produced.aliases()] == [(sha256.digest(), bytes.fromhex(blob.hash))]
    thread.gc(apply=True, grace=0)  # a name does not keep it
    assert wrong(thread, url, UnknownBlobError) == f"missing blob {url}"


def test_bytes_that_name_blobs(thread: eventq.Thread) -> None:
    """Row 84: bytes that mention refs keep the blobs that are here, and no others."""
    inner = thread.blobs.put(b"inner")
    outer = thread.produced.put(f"see {inner.ref} and blob:blake3:{ZEROS}".encode() + b"\xff")
    assert thread.blobs.refs(outer.ref) == [inner.ref]
    assert thread.blobs.refs(thread.produced.put(b"plain").ref) == []


@pytest.mark.parametrize("url", [
    "blob:", "blob:blake3", "blob:blake3:", "blob:blake3:x", "blob:blake3:" + "0" * 63,
    "blob:blake3:" + "0" * 65, "blob:blake3:" + "A" * 64, "blob:md5:" + ZEROS, "blob:" + ZEROS,
    "blob://blake3:" + ZEROS, "blob:sha256:../../x", "blob:sha256:" + "A" * 64, "blob:sha256:",
    f"blob:blake3:{ZEROS} ", f"blob:blake3: {ZEROS}", f"blob:BLAKE3:{ZEROS}",
    f"blob:blake3:{ZEROS}\n", f"blob:blake3:{ZEROS}/", "blob:blake3:" + "٠" * 64,
    "blob:sha256:" + HALF, f"blob:sha256:blob:blake3:{ZEROS}", f"blob:blake3:blob:blake3:{ZEROS}",
])  # fmt: skip
def test_no_blob(full: eventq.Thread, url: str) -> None:
    """Row 74: only 64 lower-case hex digits after a known hash's name make a ref."""
    assert wrong(full, url, InputError) == f"'{url}' names no blob"


def test_an_unknown_blob(full: eventq.Thread) -> None:
    """Row 83: a blob that is not here is missing, by whichever name."""
    for url in (f"blob:blake3:{ZEROS}", f"blob:sha256:{ZEROS}"):
        assert wrong(full, url, UnknownBlobError) == f"missing blob {url}"


def test_the_case_of_the_scheme_of_a_blob(full: eventq.Thread) -> None:
    """The case of a scheme means nothing, for blobs as for others."""
    blob = full.blobs.put(b"bytes")
    assert full.read("BLOB" + blob.ref[4:]).data == b"bytes"


# --- no URL at all --------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [
    "", "x", "artifact", "://", ":", "http://example.org", "file:///etc/passwd", " artifact://0",
    "artifact ://0", "0", "artifacts://0", "/artifact://0", "\0", HALF, "mailto:x", "ａｒｔｉｆａｃｔ://0",
])  # fmt: skip
def test_no_url(full: eventq.Thread, url: str) -> None:
    """What has no scheme that is known is refused, and nothing is fetched."""
    assert wrong(full, url, UsageError) == f"'{url}' is not a URL that eventq can read"


@pytest.mark.parametrize("url", [None, 0, b"artifact://0", ["artifact://0"]])
def test_a_url_is_text(full: eventq.Thread, url: Any) -> None:
    """What is no text is no URL."""
    assert wrong(full, url, UsageError) == f"a URL is text, not {type(url).__name__}"


PARTS = ["artifact://", "agent://", "blob:", "blake3:", "sha256:", "0", "1", "0-Scout", ".", "/", "?", "q=", "version=", "&",
     "#", "%", "%2F", "%ff", "[", "]", "'", "a", ZEROS, HALF, "\0", "\n", " ", "٣", "1" * 30, "file%20name", "=", ";"]  # fmt: skip
URLS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(PARTS), max_size=10).map("".join),
    st.tuples(
        st.sampled_from(
            [
                "artifact://", "agent://", "agent://0-Scout/", "agent://0-Scout?q=",
                "agent://1-List?", "blob:",
            ]
        ),
        st.text(st.characters(exclude_categories=[]), max_size=30),
    ).map("".join),
)  # fmt: skip
LINES = st.none() | st.integers(-1, 9) | st.sampled_from([1 << 62, 1 << 63, 1 << 70])


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(URLS, LINES, LINES)
@example("agent://0-Scout?q=" + "[" * 5_000, None, None)
@example("agent://0-Scout/" + "a/" * 50_000, None, None)
@example("agent://0-Scout?" + "&" * 50_000, None, None)
@example("agent://0-Scout?q=%" + HALF, None, None)
@example("agent://0-Scout" + HALF + "%41", None, None)
def test_any_text_as_a_url(
    full: eventq.Thread, url: str, offset: int | None, limit: int | None
) -> None:
    """Any text as a URL, with any lines, returns content or an error of eventq."""
    for source in (full.produced, None):
        try:
            found = urls.read(url, source, offset, limit)
        except EventqError as error:
            assert error.what  # noqa: PT017
        else:
            assert (found.url, type(found.data)) == (url, bytes)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(
            lambda key: key.strip("/")
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_path(thread: eventq.Thread, keys: list[str]) -> None:
    """Row 101: keys of any characters, percent-encoded, lead to what is under them."""
    value: Any = "found"
    for key in reversed(keys):
        value = {key: value}
    info = thread.outputs.put("x", json.dumps(value))
    path = "".join("/" + quote(key, safe="") for key in keys)
    found = thread.read(info.url + path).data
    if not any(key.isascii() and key.isdigit() for key in keys):  # those are numbers in a path
        assert found == b'"found"'


# --- by lines -------------------------------------------------------------------------------------


def place(thread: eventq.Thread, kind: str, data: bytes) -> str:
    """Store bytes as one of the three kinds and give their URL."""
    if kind == "artifact":
        return thread.artifacts.put(data).url
    return thread.outputs.put("x", data).url if kind == "agent" else thread.blobs.put(data).ref


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines, with their ends, in the simple way."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


LENGTHS = st.sampled_from([0, 0, 0, 1, 2, 30, 900, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, 400_000])
TEXTS: Any = st.one_of(
    st.binary(max_size=60),
    st.text(st.sampled_from("ab\n\r\u2028"), max_size=40).map(str.encode),
    st.tuples(st.lists(LENGTHS, max_size=8), st.sampled_from([b"", b"x", b"xy"])).map(
        lambda told: (
            b"".join(b"%d" % (n % 10) * length + b"\n" for n, length in enumerate(told[0]))
            + told[1]
        )
    ),
)


def sound(data: bytes) -> bytes:
    """Return a text whose lines are counted: see test_artifacts.EVEN."""
    return data + b"\n" if data and len(data) % CHUNK == 0 else data


@pytest.mark.parametrize("kind", KINDS)
def test_any_lines(thread: eventq.Thread, kind: str) -> None:
    """Row 104: offset and limit return those lines, and the next offset."""

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(TEXTS.map(sound), st.none() | st.integers(1, 12), st.none() | st.integers(1, 12))
    @example(b"", 1, 1)
    @example(b"a\n" * 10 + b"b", 11, 1)
    @example((b"x" * (CHUNK - 1) + b"\n") * 2, 2, 1)
    @example((b"x" * (CHUNK - 1) + b"\n") * 2 + b"y", 1, 2)
    def check(data: bytes, offset: int | None, limit: int | None) -> None:
        url = place(thread, kind, data)
        lines = lines_of(data)
        first = (offset or 1) - 1
        if first >= max(len(lines), 1):
            try:
                rest = thread.read(url, offset, limit).data
            except LogicError:
                return
            assert (rest, kind != "artifact") == (b"", True)  # see test_no_such_line
            return
        found = thread.read(url, offset, limit)
        wanted = lines[first:] if limit is None else lines[first : first + limit]
        more = limit is not None and first + limit < len(lines)
        assert found.data == b"".join(wanted)
        assert found.next_offset == (first + 1 + limit if more and limit else None)
        assert found.complete

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_the_whole(thread: eventq.Thread, kind: str) -> None:
    """Row 104: pages of any size together contain all bytes once."""

    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(TEXTS.map(sound), st.integers(1, 7))
    def check(data: bytes, limit: int) -> None:
        url = place(thread, kind, data)
        pages: list[bytes] = []
        at: int | None = 1
        while at is not None:
            page = thread.read(url, at, limit)
            pages.append(page.data)
            assert len(lines_of(page.data)) == limit or page.next_offset is None
            at = page.next_offset
        assert b"".join(pages) == data
        assert len(pages) == max(1, -(-len(lines_of(data)) // limit))

    check()


@pytest.mark.parametrize(("data", "offset", "count"), [
    (b"", 2, 0), (b"a", 2, 1), (b"a\n", 3, 1), (b"a\nb", 3, 2), (b"a\nb\n", 4, 2), (b"\n\n", 9, 2),
    (b"a", 1 << 62, 1),
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_no_such_line(
    thread: eventq.Thread, kind: str, data: bytes, offset: int, count: int
) -> None:
    """Row 104: a line that is not there is an error that says so."""
    url = place(thread, kind, data)
    for limit in (None, 1):
        said = wrong(thread, url, LogicError, offset=offset, limit=limit)
        assert said.startswith(f"there is no line {offset}: it has ")
        assert kind != "artifact" or said.endswith(f" it has {length(count)}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [
    {"offset": 0}, {"offset": -1}, {"limit": 0}, {"limit": -5}, {"offset": True}, {"offset": "1"},
    {"limit": 1.0}, {"offset": 1 << 63}, {"limit": 1 << 63},
])  # fmt: skip
def test_lines_that_are_none(full: eventq.Thread, kind: str, lines: dict[str, Any]) -> None:
    """Row 104: offset and limit are whole numbers from 1 on."""
    (name,) = lines
    assert wrong(full, place(full, kind, b"x"), UsageError, **lines).startswith(
        f"{name} must be a whole number from 1 "
    )


@pytest.mark.parametrize("lines", [{"offset": 1}, {"limit": 5}, {"offset": 2, "limit": 1}])
@pytest.mark.parametrize("rest", ["/a", "?q=.a", "?q=."])
def test_no_lines_of_a_part(full: eventq.Thread, rest: str, lines: dict[str, int]) -> None:
    """Row 104: offset and limit are refused with extraction, also of what is not there."""
    for name in ("0-Scout", "unknown"):
        assert wrong(full, f"agent://{name}{rest}", UsageError, **lines).startswith(
            "offset and limit cannot be combined"
        )
    assert full.read("agent://0-Scout/", offset=1).data == SCOUT.encode()


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_small(thread: eventq.Thread, kind: str) -> None:
    """Content comes in pieces of at most a MiB, whatever its length and the lines."""
    data = random.Random(9).randbytes(3 << 20).replace(b"\n", b"-") + b"\n"
    url = place(thread, kind, data * 2)
    for offset, limit in ((None, None), (1, 1), (2, None), (2, 1), (1, 2)):
        found = thread.open_url(url, offset, limit)
        pieces = list(found)
        assert max(map(len, pieces)) <= 1 << 20
        whole = (offset, limit) in ((None, None), (1, 2))
        assert b"".join(pieces) == (data * 2 if whole else data)
        assert found.next_offset == (2 if (offset, limit) == (1, 1) else None)


def test_nothing_is_written(
    full: eventq.Thread, tmp_path: Path, stored: Callable[[], Tables]
) -> None:
    """Whatever is read, the thread stays as it was, and a reader gives the same."""
    blob = full.blobs.put(b"x")
    asked = ["artifact://0", "agent://0-Scout", "agent://0-Scout/a", blob.ref]
    with eventq.open(full.path, read_only=True) as reader:
        before = stored()
        assert [reader.read(url) for url in asked] == [full.read(url) for url in asked]
        assert stored() == before
    assert sorted(os.listdir(tmp_path)) == ["thread"]


def test_only_what_is_whole_is_offered(thread: eventq.Thread) -> None:
    """The error for an unknown number lists only whole artifacts."""
    thread.artifacts.put(b"whole")
    writer = thread.artifacts.allocate()
    for status in ("open", "failed"):
        with pytest.raises(eventq.LogicError) as caught:
            thread.read("artifact://9")
        assert caught.value.what == "Artifact 9 not found. Available: 0"
        assert thread.read("artifact://1").complete is False
        if status == "open":
            writer.fail("for the test")
