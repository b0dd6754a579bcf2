"""The view of a stream is bounded, the artifact complete, and chunks make no difference."""

from __future__ import annotations

import inspect
import re
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from eventq.errors import DiskError, EventqError, InputError, LogicError, UsageError
from eventq.output.sink import (
    COLUMNS,
    HEAD,
    PENDING,
    SPILL,
    SWALLOWED,
    OutputSink,
    Sanitizer,
    Window,
)
from eventq.system import clock
from tests.conftest import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eventq.records.artifact import Captured

KIB, MIB = 1 << 10, 1 << 20
FULL = DiskError("the disk is full", "make room")


class Kept:
    """An artifact in memory, which breaks where it is told to."""

    artifact_id = "7"

    def __init__(self, breaks: str = "", error: Exception = FULL) -> None:
        self._data = bytearray()
        self.calls: list[str] = []
        self.breaks = breaks
        self.error = error

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name.partition(":")[0] in self.breaks.split():
            raise self.error

    def open(self) -> Kept:
        self._call("open")
        return self

    def write(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        self._call("write")
        self._data += data

    def seal(self) -> None:
        self._call("seal")

    def fail(self, why: str) -> None:
        self._call(f"fail:{why}")

    @property
    def written(self) -> bytes:
        """All that was written."""
        return bytes(self._data)

    @property
    def story(self) -> list[str]:
        """The calls, several writes as one."""
        return [
            call
            for at, call in enumerate(self.calls)
            if call != "write" or self.calls[at - 1] != "write"
        ]


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return the bytes cut at these places."""
    places = sorted({min(cut, len(data)) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def sanitized(*chunks: bytes | str) -> bytes:
    """Return what the sanitizer makes of a stream."""
    made = Sanitizer()
    return b"".join([*(made.feed(chunk) for chunk in chunks), made.end()])


def view(
    data: bytes, spill: int = SPILL, head: int = HEAD, columns: int = COLUMNS, step: int = 0
) -> bytes:
    """Return what a window shows of a stream, given at once or in steps."""
    window = Window(spill, head, columns)
    for at in range(0, len(data), step or len(data) or 1):
        window.push(data[at : at + (step or len(data))])
    window.end()
    return window.text()


def capture(
    *chunks: bytes | str, spill: int = 100, head: int = 0, columns: int = 0
) -> tuple[Captured, Kept]:
    """Return the result of a sink with a small window, and the artifact if there is one."""
    kept = Kept()
    sink = OutputSink(kept.open, spill=spill, head=head, columns=columns)
    for chunk in chunks:
        sink.push(chunk)
    return sink.dump(), kept


# --- the whole stream at once, as naive as can be -------------------------------------------------


def model_sanitize(data: bytes, swallowed: int) -> bytes:
    """Return the text of a stream, a character at a time."""
    text = data.decode(errors="replace")
    out, at = [], 0

    def run(chars: Callable[[str], bool], most: int) -> None:
        nonlocal at
        begin = at
        while at < len(text) and at - begin < most and chars(text[at]):
            at += 1

    def one(chars: Callable[[str], bool]) -> None:
        run(chars, 1)

    while at < len(text):
        char = text[at]
        at += 1
        if char != "\x1b":
            if char in "\t\n\r" or not (char < " " or "\x7f" <= char <= "\x9f"):
                out.append(char)
            continue
        kind = text[at : at + 1]
        if kind == "[":
            at += 1
            run(lambda c: "0" <= c <= "?", 64)
            run(lambda c: " " <= c <= "/", 16)
            one(lambda c: "@" <= c <= "~")
        elif kind == "]":
            at += 1
            run(lambda c: c not in "\x07\x18\x1a\x1b\n", swallowed)
            one(lambda c: c == "\x07")
        elif kind and kind in "PX^_":
            at += 1
            run(lambda c: c not in "\x18\x1a\x1b\n", swallowed)
        else:
            run(lambda c: " " <= c <= "/", 16)
            one(lambda c: "0" <= c <= "~")
    lines = [filter(None, line.split("\r")) for line in "".join(out).split("\n")]
    return "\n".join(map("\r".join, lines)).encode()


def shorten(data: bytes, limit: int) -> bytes:
    """Return as many of the first characters as fit."""
    kept = b""
    for char in data.decode():
        if len(kept) + len(char.encode()) > limit:
            break
        kept += char.encode()
    return kept


def shorten_left(data: bytes, limit: int) -> bytes:
    """Return as many of the last characters as fit."""
    kept = b""
    for char in reversed(data.decode()):
        if len(kept) + len(char.encode()) > limit:
            break
        kept = char.encode() + kept
    return kept


def model_cap(data: bytes, columns: int) -> tuple[bytes, int]:
    """Return the stream with its lines cut, and the number of bytes left out."""
    capped, lines = 0, []
    for whole in data.split(b"\n"):
        line = whole
        if columns and len(line) > columns:
            short = shorten(line, columns - 3)
            capped += len(line) - len(short)
            line = short + "…".encode()
        lines.append(line)
    return b"\n".join(lines), capped


def model_tail(data: bytes, limit: int) -> bytes:
    """Return the longest tail of whole lines, or else of whole characters."""
    begins = [at for at in range(len(data) - limit, len(data)) if data[at - 1 : at] == b"\n"]
    return data[begins[0] :] if begins else shorten_left(data, limit)


def model_lines(clean: bytes, limit: int, columns: int) -> tuple[bytes, int]:
    """Return lines as they were last, and how many bytes they had before."""
    lines: list[bytes] = []
    gone = 0
    for line in clean.split(b"\n"):
        first, *more = line.split(b"\r")
        shown = [first]
        for part in more:
            is_head = not lines and len(shown) == 1
            if not columns or (is_head and 0 < limit <= len(model_cap(shown[-1], columns)[0])):
                shown.append(part)
            else:
                gone += len(shown[-1])
                shown[-1] = part
        lines += shown
    return b"\n".join(lines), gone


def model_view(data: bytes, spill: int, head: int) -> bytes:
    """Return what is shown of a stream whose lines are cut."""
    if len(data) <= spill:
        return data
    limit = min(head, spill // 2)
    if not limit:
        return model_tail(data, spill)
    first = data[:limit]
    first = first[: first.rindex(b"\n") + 1] if b"\n" in first else shorten_head(data, limit)
    last = model_tail(data, spill - len(first) - (40 if spill >= 80 else 0))
    gone = data[len(first) : len(data) - len(last)]
    lines = len(gone.decode().removesuffix("\n").split("\n"))
    mark = f"[…{lines}ln elided…]\n" if lines > 1 else f"[…{len(gone)}B elided…]\n"
    gap = b"\n" if first and not first.endswith(b"\n") else b""
    return first + gap + mark.encode() + last


def shorten_head(data: bytes, limit: int) -> bytes:
    """Return as many of the first characters as fit, of a stream that is long."""
    return shorten(data[: limit + 3].decode(errors="ignore").encode(), limit)


class Outcome(NamedTuple):
    """All that a sink gives for a stream."""

    text: str
    truncated: bool
    capped: int
    total_bytes: int
    total_lines: int
    artifact: bytes | None
    seen: str


def model(
    data: bytes, spill: int, head: int, columns: int, *, keep: bool, swallowed: int
) -> Outcome:
    """Return what a sink should give, from the whole stream."""
    clean = model_sanitize(data, swallowed)
    last, gone = model_lines(clean, min(head, spill // 2), columns)
    clean = clean.replace(b"\r", b"\n")
    cut, capped = model_cap(last, columns)
    capped += gone
    return Outcome(
        text=model_view(cut, spill, head).decode(), truncated=len(cut) > spill, capped=capped,
        total_bytes=len(clean), total_lines=clean.count(b"\n") + 1 if clean else 0,
        artifact=clean if len(cut) > spill or capped or (keep and clean) else None,
        seen=clean.decode(),
    )  # fmt: skip


def outcome(chunks: Iterable[bytes], spill: int, head: int, columns: int, *, keep: bool) -> Outcome:
    """Return what a sink gives for chunks; what it said beforehand must have been true."""
    kept, seen = Kept(), list[str]()
    sink = OutputSink(
        kept.open, spill=spill, head=head, columns=columns, on_chunk=seen.append, keep=keep
    )
    early = b""
    for chunk in chunks:
        sink.push(chunk)
        early += sink.take_head()
    done = sink.dump()
    assert done.text.encode().startswith(early + sink.take_head())
    assert not done.truncated or len(done.text.encode()) <= spill + (0 if spill >= 80 else 40)
    assert done.error is None
    assert (kept.story == ["open", "write", "seal"]) == (done.artifact_id == "7")
    assert "" not in seen
    return Outcome(
        text=done.text, truncated=done.truncated, capped=done.capped, total_bytes=done.total_bytes,
        total_lines=done.total_lines, artifact=kept.written if done.artifact_id else None,
        seen="".join(seen),
    )  # fmt: skip


BITS = st.sampled_from([
    b"\n", b"a", b"xyz", b"\t", b"\r\n", b"\r", b"50%\r", b" ", b"0;1", b"m", b"\x1b", b"\x1b[31m", b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b_",
    b"\x07", b"\x1b\\", b"\x18", b"\x1b(B", b"\x1b(", b"\x7f", b"\x00", "é".encode(), "…".encode(), "😀".encode(),
    "\x85".encode(), "\xa0".encode(), b"\xc2", b"\xed\xa0\x80", b"\xf0\x9f", b"\x98", b"\xff", b"line of text\n", b"x" * 70,
    b"word " * 9, "ж".encode() * 21, b"\n" * 12,
])  # fmt: skip
STREAMS = st.one_of(
    st.lists(BITS, max_size=60).map(b"".join),
    st.lists(BITS, min_size=20, max_size=60).map(b"".join),
    st.builds(
        lambda bits, times: b"".join(bits) * times,
        st.lists(BITS, min_size=1, max_size=12),
        st.integers(5, 40),
    ),
    st.binary(max_size=80),
)
CUTS = st.lists(st.integers(0, 900), max_size=30)
SPILLS = st.one_of(st.integers(0, 120), st.integers(80, 200))
HEADS = st.one_of(st.integers(0, 40), st.integers(1, 200))


# --- independence ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    STREAMS, CUTS, SPILLS, HEADS, st.sampled_from([0, 4, 5, 7, 16, 40, 69, 70, 71]), st.booleans()
)
@example(b"", [], 0, 0, 0, True)
@example(b"a" * 768, [767], 100, 20, 0, False)
def test_any_splitting(
    data: bytes, cuts: list[int], spill: int, head: int, columns: int, keep: bool
) -> None:
    """Whatever the cuts, a sink gives what a naive model gives for the whole stream, everywhere."""
    expected = model(data, spill, head, columns, keep=keep, swallowed=SWALLOWED)
    assert expected == outcome([data], spill, head, columns, keep=keep)
    assert expected == outcome(pieces(data, cuts), spill, head, columns, keep=keep)


def test_a_progress_bar() -> None:
    """A line that is written again and again is shown as it was last; the artifact has each."""
    steps = [f"\r{n:3}% {'#' * n}".encode() for n in range(101)]
    done, kept = capture(b"begin\n", *steps, b"\nend\n", spill=1_000, columns=200)
    assert (done.text, done.truncated) == (f"begin\n100% {'#' * 100}\nend\n", False)
    lines = [b"begin", *(step[1:] for step in steps), b"end", b""]
    assert kept.written == b"\n".join(lines)
    assert (done.total_lines, done.capped) == (len(lines), sum(map(len, lines[1:101])))


IMAGE = b'\x1bP0;1;0q"1;1;9;6#1;2;0;0;0\n#1!9~-\x1b\\'
ANY_IMAGE = re.compile(rb"\x1bP[0-9;]*q[^\x07\x18\x1b]*\x1b\\")
NO_IMAGES = [
    b"\x1bP0;1q#1~\x1b[31m red", b"\x1bPq#1\x07~\x1b\\", b"\x1bP$q#1~\x1b\\", b"\x1bP" + b"1" * 40 + b"q~\x1b\\",
    b"\x1bPq\x9b~\x1b\\", b"\x1bPq never ended",
]  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(BITS, st.just(IMAGE), st.sampled_from(NO_IMAGES)), max_size=20), CUTS)
def test_images(bits: list[bytes], cuts: list[int]) -> None:
    """Artifact and callback have the images that are whole, at their places; the view has none."""
    data = b"".join([*bits, b" ends", IMAGE])
    assume(not ANY_IMAGE.search(data.replace(IMAGE, b"\x07")))  # bits may make another one
    kept, seen = Kept(), list[str]()
    sink = OutputSink(kept.open, images=True, on_chunk=seen.append, keep=True, spill=10_000)
    for piece in pieces(data, cuts):
        sink.push(piece)
    done = sink.dump()
    stored = kept.written.split(IMAGE)
    assert len(stored) - 1 == data.count(IMAGE)
    assert "".join(seen).encode() == kept.written
    assert stored == [sanitized(part).replace(b"\r", b"\n") for part in data.split(IMAGE)]
    assert "\x1b" not in done.text
    assert (done.total_bytes, done.total_lines) == (
        len(kept.written),
        kept.written.count(b"\n") + 1,
    )


def test_an_image_that_is_too_long() -> None:
    """It is no image any longer, and is not held without end."""
    sink = OutputSink(images=True)
    sink.push(b"\x1bPq")
    assert memory_of(sink.push, b"~" * 4096, 800) < 6 << 20
    assert "\x1b" not in sink.dump().text


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(b"]PX^_"), STREAMS, CUTS, st.integers(0, 12))
def test_long_strings(kind: int, data: bytes, cuts: list[int], short: int) -> None:
    """A control string that is too long ends at the same character, however the stream is cut."""
    start = b"\x1b" + bytes([kind]) + b"y" * (SWALLOWED - short)
    clean = model_sanitize(start + data, SWALLOWED)
    assert clean == sanitized(start + data)
    assert clean == sanitized(*pieces(start + data, [len(start) - 6 + cut for cut in cuts]))


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(), max_size=40), st.integers(0, 40), st.booleans())
def test_text(text: str, cut: int, strip: bool) -> None:
    """Text is stored as UTF-8; an unpaired surrogate becomes a replacement character."""
    made = Sanitizer(strip=strip)
    got = made.feed(text[:cut]) + made.feed(text[cut:]) + made.end()
    data = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text).encode()
    assert (model_sanitize(data, SWALLOWED) if strip else data) == got


@settings(max_examples=100, deadline=None)
@given(STREAMS, CUTS)
def test_only_repaired(data: bytes, cuts: list[int]) -> None:
    """Without sanitizing, a stream becomes valid UTF-8 and nothing else happens to it."""
    sink = OutputSink(spill=10**6, columns=0, sanitize=False)
    for chunk in pieces(data, cuts):
        sink.push(chunk)
    assert data.decode(errors="replace") == sink.dump().text


# --- sanitizing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[?25l\x1b[2J\x1b[1 qx\x1b[38:2::1:2:3m", "x"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1bP1$r0m\x1b\\a\x1bXsos\x07more\x1b\\b\x1b^pm\x1b\\c\x1b_apc\x1b\\d", "abcd"),
        ("\x1b7\x1b8\x1bc\x1b(B\x1b#8\x1b=x", "x"),
        ("\ra\r\rb\r\n\rc\td\x00\x08\x0b\x0c\x0e\x1f\x7fe", "a\rb\nc\tde"),
        ("a\x80\x85\x9b\x9fb\xa0é", "ab\xa0é"),
        ("\x1b[31\nm", "\nm"),
        ("\x1b[3é", "é"),
        ("\x1b\x1b[1mx", "x"),
        ("\x1b\x1b\x1b", ""),
        ("a\x1b", "a"),
        ("\x1bé", "é"),
        ("\x1b]title never ended\nnext", "\nnext"),
        ("\x1bPnever ended", ""),
        ("\x1b]2;\x18shown", "shown"),
        ("\x1b]2;été\x07x", "x"),
        ("\x1b[" + "1;" * 32 + "mx", "x"),
        ("\x1b[" + "1" * 65 + "m", "1m"),
        ("plain ascii\n", "plain ascii\n"),
        ("", ""),
    ],
)
def test_sequences(given: str, expected: str) -> None:
    """Escape sequences and controls go, and nothing with them that is not theirs."""
    data = given.encode()
    assert expected.encode() == sanitized(data)
    assert expected.encode() == sanitized(*(data[at : at + 1] for at in range(len(data))))


def test_endless_string() -> None:
    """A control string that never ends is removed up to a limit, and nothing is held meanwhile."""
    made = Sanitizer()
    given = b"".join(made.feed(chunk) for chunk in [b"\x1b]", *[b"y" * 1000] * 70, b"\x1b"])
    assert given == b"y" * (70_000 - SWALLOWED)
    made = Sanitizer()
    assert made.feed(b"\x1bP" + b"y" * SWALLOWED) == b""
    assert made.feed(b"") == b""
    assert made.feed(b"z") == b"z"
    made.feed(b"\x1b]" + b"y" * SWALLOWED)
    assert made.feed(b"\x07z") == b"z"


def test_end_begins_anew() -> None:
    """After its end a sanitizer takes another stream, from which nothing is missing."""
    for torn in (b"\x1b]title", b"\x1b[3", b"\x1b"):
        made = Sanitizer()
        assert made.feed(torn) + made.end() == b""
        assert made.feed(b"1mx") + made.end() == b"1mx"


def test_same_object() -> None:
    """Plain bytes come out as the object that went in: nothing is copied on the way."""
    for data in (b"plain\ttext\n" * 9, "naïve…\n".encode() * 9):
        assert Sanitizer().feed(data) is data


def test_kinds_of_bytes() -> None:
    """Every kind of bytes is taken, and nothing else is."""
    assert sanitized(bytearray(b"a"), memoryview(b"b"), memoryview(b"c-d-")[::2], "e") == b"abcde"  # type: ignore[arg-type]
    with pytest.raises(InputError, match="output is bytes or text, not int"):
        Sanitizer().feed(5)  # type: ignore[arg-type]


# --- the window -----------------------------------------------------------------------------------


LINES = b"line\n" * 50
FOUR = b"aaaa\nbbbb\ncccc\ndddd\n"


@pytest.mark.parametrize(("data", "sizes", "text"), [
    # no head: the last lines within the budget, without a mark
    (FOUR, (10, 0), "cccc\ndddd\n"), (FOUR, (14, 0), "cccc\ndddd\n"),
    (FOUR, (15, 0), "bbbb\ncccc\ndddd\n"), (b"0123456789\n", (6, 0), "56789\n"),
    ("ééé\n".encode(), (4, 0), "é\n"), (b"abc", (0, 0), ""),
    # a mark that has no room in the budget comes on top of it
    (LINES, (79, 40), "line\n" * 7 + "[…35ln elided…]\n" + "line\n" * 8),
    (LINES, (80, 40), "line\n" * 8 + "[…42ln elided…]\n"),
    (b"one\n" * 9, (10, 4), "one\n[…7ln elided…]\none\n"), (b"ab", (1, 1), "b"),
    # a head takes half of the budget at most
    (b"a\n" * 500, (200, 199), "a\n" * 50 + "[…420ln elided…]\n" + "a\n" * 30),
    # where one line at most is left out, or a part of one, the mark counts bytes
    (b"x" * 1000, (110, 30, 0), "x" * 30 + "\n[…930B elided…]\n" + "x" * 40),
    (b"first\n" + b"y" * 100 + b"\nlast\n", (90, 30, 0), "first\n[…101B elided…]\nlast\n"),
    (b"first\n" + b"y" * 90 + b"\nz\nlast\n" + b"t" * 35, (85, 30, 0),
     "first\n[…3ln elided…]\n" + "t" * 35),
    # the end of one line and the beginning of the next are two lines
    (b"x" * 100 + b"\n" + b"y" * 100, (110, 30, 0), "x" * 30 + "\n[…2ln elided…]\n" + "y" * 40),
    # four columns have room for a letter and the mark, or for the mark alone
    ("abcde\n😀x\nabcd\n".encode(), (SPILL, HEAD, 4), "a…\n…\nabcd\n"),
    (b"\n" * 500, (100, 20, 10), "\n" * 20 + "[…440ln elided…]\n" + "\n" * 40),
])  # fmt: skip
def test_what_is_shown(data: bytes, sizes: tuple[int, ...], text: str) -> None:
    """Head, mark and tail are one text of whole lines within the budget, to the byte."""
    assert view(data, *sizes) == text.encode()


def test_empty() -> None:
    """An empty stream has no lines, no text and no artifact, kept or not."""
    for keep in (False, True):
        kept = Kept()
        sink = OutputSink(kept.open, keep=keep)
        sink.push(b"")
        sink.push("\r\x00")
        done = sink.dump()
        assert (
            done.text, done.truncated, done.capped, done.total_bytes, done.total_lines, done.artifact_id, done.error,
        ) == ("", False, 0, 0, 0, None, None)  # fmt: skip
        assert kept.calls == []


def test_defaults() -> None:
    """What is shown by default is 50 KiB, 20 of them the head, and 768 bytes of a line."""
    data = b"".join(b"%09d\n" % n for n in range(10_000))
    done, kept = capture(data, spill=SPILL, head=HEAD, columns=COLUMNS)
    head, _, tail = done.text.partition("[…4884ln elided…]\n")
    assert (len(head), len(tail)) == (20 * KIB, 30 * KIB - 40)
    assert data == kept.written
    assert (50 * KIB, 20 * KIB, 768) == (SPILL, HEAD, COLUMNS)
    assert done.text.encode() == view(data)


# --- the artifact ---------------------------------------------------------------------------------


def test_artifact_opens_late() -> None:
    """An artifact is opened only when the window is full, and starts with the stream."""
    kept = Kept()
    sink = OutputSink(kept.open, spill=100, head=40)
    sink.push(b"a" * 60)
    sink.push(b"b" * 40)
    assert kept.calls == []
    sink.push(b"c")
    assert (kept.story, kept.written) == (["open", "write"], b"a" * 60 + b"b" * 40 + b"c")
    sink.push(b"d" * 30)
    assert sink.dump().artifact_id == "7"
    expected = (["open", "write", "seal"], b"a" * 60 + b"b" * 40 + b"c" + b"d" * 30)
    assert (kept.story, kept.written) == expected


def test_the_end_overflows() -> None:
    """Held-back bytes can overflow the window: then the end opens the artifact."""
    for end in (b"", b"\xc3"):
        kept = Kept()
        sink = OutputSink(kept.open, spill=9, head=0, columns=10)
        sink.push(b"0123456789"[len(end) :] + end)
        assert kept.calls == []
        done = sink.dump()
        assert (done.truncated or done.capped > 0, done.artifact_id) == (True, "7")
        assert (b"0123456789"[len(end) :] + end).decode(errors="replace").encode() == kept.written


def test_keep() -> None:
    """With `keep` any stream that is not empty has an artifact, from its first byte."""
    kept = Kept()
    sink = OutputSink(kept.open, keep=True)
    sink.push(b"\x1b[")
    assert kept.calls == []
    sink.push(b"1ma")
    assert (kept.story, kept.written) == (["open", "write"], b"a")
    done = sink.dump()
    assert (done.text, done.truncated, done.artifact_id, done.error) == ("a", False, "7", None)


def test_no_artifact() -> None:
    """Without a place for artifacts, the view is the same and names none."""
    sink = OutputSink(spill=100, head=0)
    sink.push(b"line\n" * 50)
    done = sink.dump()
    expected = ("line\n" * 20, True, None, None)
    assert (done.text, done.truncated, done.artifact_id, done.error) == expected


@pytest.mark.parametrize(("breaks", "story"), [
    ("open", ["open"]), ("write", ["open", "write", "fail:{}"]),
    ("seal", ["open", "write", "seal", "fail:{}"]), ("write fail", ["open", "write", "fail:{}"]),
    ("seal fail", ["open", "write", "seal", "fail:{}"]),
])  # fmt: skip
@pytest.mark.parametrize(("error", "why"), [(FULL, "the disk is full"), (OSError("gone"), "gone")])
def test_artifact_fails(breaks: str, story: list[str], error: Exception, why: str) -> None:
    """A failing artifact costs only its id: the view is whole, and the reason is given."""
    kept = Kept(breaks, error)
    sink = OutputSink(kept.open, spill=100, head=0)
    for _ in range(50):
        sink.push(b"line\n")
    done = sink.dump()
    expected = (done.text, done.truncated, done.artifact_id, done.error)
    assert ("line\n" * 20, True, None, why) == expected
    assert [call.format(why) for call in story] == kept.story


def test_first_failure() -> None:
    """The reason is the first failure, and nothing is kept for an artifact that is lost."""
    made: list[Kept] = []

    def make() -> Kept:
        made.append(Kept("write"))
        if len(made) > 1:
            raise OSError("second")
        return made[0]

    sink = OutputSink(make, spill=10, head=0)
    assert memory_of(sink.push, b"some text\n" * 1000, 100) < 200_000
    assert (sink.dump().error, len(made)) == ("the disk is full", 1)


def memory_of(push: Callable[[bytes], object], chunk: bytes, times: int) -> int:
    """Return the most bytes that are in use while a chunk is pushed again and again."""
    tracemalloc.start()
    try:
        for _ in range(times):
            push(chunk)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_other_errors_are_raised() -> None:
    """A fault in the artifact's program is not taken for a full disk."""
    sink = OutputSink(Kept("write", ZeroDivisionError()).open, spill=0)
    with pytest.raises(ZeroDivisionError):
        sink.push(b"x")


def test_abandon() -> None:
    """Abandoned output fails its artifact, once, and takes no more."""
    kept = Kept()
    sink = OutputSink(kept.open, spill=2)
    sink.push(b"text")
    sink.abandon("stopped")
    sink.abandon("again")
    assert kept.calls == ["open", "write", "fail:stopped"]
    for call in (lambda: sink.push(b"x"), sink.dump):
        with pytest.raises(LogicError, match="the sink has ended"):
            call()
    unopened = Kept()
    OutputSink(unopened.open).abandon("never began")
    assert unopened.calls == []


def test_over() -> None:
    """After the end a sink takes nothing and gives nothing again, and its artifact stays sealed."""
    kept = Kept()
    sink = OutputSink(kept.open, spill=2)
    sink.push(b"text")
    sink.dump()
    for call in (lambda: sink.push(b"x"), sink.dump, lambda: sink.dump("again")):
        with pytest.raises(LogicError, match="the sink has ended"):
            call()
    sink.abandon("too late")
    assert kept.calls == ["open", "write", "seal"]


def test_notice() -> None:
    """A notice is the first line of the text, in brackets, and not counted."""
    for notice, text in (("timed out", "[timed out]\na\n"), (None, "a\n"), ("", "a\n")):
        sink = OutputSink()
        sink.push(b"a\n")
        done = sink.dump(notice)
        assert (text, 2, 2) == (done.text, done.total_bytes, done.total_lines)


# --- watching -------------------------------------------------------------------------------------


def test_each_chunk() -> None:
    """Without a throttle each chunk is handed on at once, sanitized and not cut."""
    seen: list[str] = []
    sink = OutputSink(spill=5, columns=4, on_chunk=seen.append)
    sink.push(b"\x1b[1mlong line\xc3")
    assert seen == ["long line"]
    sink.push(b"\xa9\r")
    assert seen == ["long line", "é"]
    sink.push(b"\r")
    sink.dump()
    assert seen == ["long line", "é"]


def test_throttle() -> None:
    """Chunks wait until the time since the last delivery is up; the end delivers what waits."""
    seen: list[str] = []
    clock = Clock(100.0)
    sink = OutputSink(on_chunk=seen.append, throttle=0.5, clock=clock)
    for move in (0, 0.25, 0.125, 0.125, 0.25, 0.25):
        clock.move(move)
        sink.push("x")
    assert seen == ["x", "xxx", "xx"]
    sink.push("last")
    sink.push(b"\xc3")
    sink.dump()
    assert seen == ["x", "xxx", "xx", "last\ufffd"]


def test_throttle_is_bounded() -> None:
    """About a MiB waits at most, however slow the clock."""
    seen: list[str] = []
    sink = OutputSink(on_chunk=seen.append, throttle=60, clock=Clock(0.0))
    for _ in range(40):
        sink.push(b"x" * (64 * KIB))
    assert [len(text) for text in seen] == [64 * KIB, PENDING, PENDING]
    sink.dump()
    assert sum(map(len, seen)) == 40 * 64 * KIB


def test_watcher_raises() -> None:
    """An exception of the callback is raised to the caller, and leaves no gap."""
    kept, seen = Kept(), list[str]()

    def watch(text: str) -> None:
        seen.append(text)
        if text == "two\n":
            raise FULL

    sink = OutputSink(kept.open, spill=10, head=0, on_chunk=watch)
    sink.push(b"one\n")
    with pytest.raises(EventqError, match="the disk is full"):
        sink.push(b"two\n")
    sink.push(b"three\n")
    done = sink.dump()
    assert (done.text, done.artifact_id, done.error) == ("two\nthree\n", "7", None)
    assert (kept.written, seen) == (b"one\ntwo\nthree\n", ["one\n", "two\n", "three\n"])


def test_watcher_raises_at_the_end() -> None:
    """An exception of the callback at the end fails the artifact."""
    kept = Kept()

    def watch(text: str) -> None:
        if text == "b":
            raise ZeroDivisionError

    sink = OutputSink(kept.open, keep=True, on_chunk=watch, throttle=9, clock=Clock(0.0))
    sink.push("a")
    sink.push("b")
    with pytest.raises(ZeroDivisionError):
        sink.dump()
    assert kept.story == ["open", "write", "fail:the output was not read to its end"]
    with pytest.raises(LogicError):
        sink.dump()


def test_real_clock() -> None:
    """The clock is the one of the machine, which only grows; without a throttle it is not asked."""
    assert inspect.signature(OutputSink).parameters["clock"].default is clock.monotonic
    asked: list[int] = []
    sink = OutputSink(on_chunk=len, clock=lambda: asked.append(1) or 0.0)  # type: ignore[func-returns-value]
    sink.push(b"x")
    assert asked == []


def test_take_head() -> None:
    """The head can be shown while it comes: whole lines, and all of it once it is full."""
    sink = OutputSink(spill=100, head=16, columns=0)
    sink.push(b"one\ntw")
    assert sink.take_head() == b"one\n"
    assert sink.take_head() == b""
    sink.push(b"o\nthree")
    assert sink.take_head() == b"two\n"
    sink.push(b" and more")
    assert sink.take_head() == b""
    sink.push(b"\n" * 100)
    assert sink.take_head() == b""
    done = sink.dump("over")
    assert done.text.startswith("[over]\none\ntwo\n[…")


def test_take_head_without_newline() -> None:
    """The head of one long line is certain when it is full, up to a character's border."""
    sink = OutputSink(spill=100, head=16, columns=0)
    sink.push("a" + "é" * 7)
    assert sink.take_head() == b""
    sink.push("é" * 50)
    assert sink.take_head() == ("a" + "é" * 7).encode()
    assert sink.take_head() == b""
    assert sink.dump().text.startswith("a" + "é" * 7 + "\n[…")


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spill", "head", "columns", "throttle"])
@pytest.mark.parametrize("value", [-1, True, None, "5", float("nan")])
def test_refused(name: str, value: object) -> None:
    """A size that is none is refused when the sink is made, with the name of what is wrong."""
    with pytest.raises(UsageError, match=f"{name} is a number"):
        OutputSink(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_no_room_for_the_mark(columns: int) -> None:
    """Columns that leave no room for the mark of a cut are refused."""
    with pytest.raises(UsageError, match=f"{columns} columns are too few"):
        Window(columns=columns)
    with pytest.raises(UsageError, match=r"spill is a number of bytes, not 1\.5"):
        Window(spill=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("chunk", "columns", "size"), [
    (b"x" * (64 * KIB), 768, 50), (b"x" * (64 * KIB), 0, 50), (b"a line of text\n" * 300, 768, 50),
    (b"x" * 5000, 0, 50), (b"\x1b]" + b"x" * (64 * KIB), 768, 10), (b"\xf0\x9f\x98" * 999, 768, 2),
])  # fmt: skip
def test_memory(chunk: bytes, columns: int, size: int) -> None:
    """50 MB of one line, of many lines, or of binary data take less than 3 MB of memory."""
    written = 0

    class Counted(Kept):
        def write(self, data: bytes) -> None:
            nonlocal written
            written += len(data)

    sink = OutputSink(Counted().open, columns=columns, on_chunk=len, keep=True)
    assert memory_of(sink.push, chunk, size * 10**6 // len(chunk) + 1) < 3 * 10**6
    done = sink.dump()
    assert done.total_bytes == written
    assert len(done.text.encode()) <= SPILL


def test_small_chunks_are_cheap() -> None:
    """Held bytes are scanned once: a long control string takes linear time."""
    for kind in b"]PX^_":
        made = Sanitizer()
        made.feed(b"\x1b" + bytes([kind]))
        assert memory_of(made.feed, b"y" * 100, 600) < 20_000
    window = Window(100, columns=10**6)
    assert memory_of(window.push, b"y" * 1000, 900) < 50_000
