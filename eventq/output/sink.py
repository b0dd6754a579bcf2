"""Capture a stream of output: a bounded view, and an artifact if the view leaves anything out.

A stream passes through three parts. `Sanitizer` turns it into text that is harmless to a terminal,
`Window` keeps its start and its end within a budget, and `OutputSink` connects both to an artifact
and a callback. The result does not depend on how the stream is split into chunks. Each part holds
at most a small multiple of the budget and one chunk. None of them is safe for several OS threads.
"""

from __future__ import annotations

from codecs import utf_8_decode
from functools import partial

from eventq.errors import EventqError, InputError, LogicError, UsageError
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from re import Pattern
    from typing import Any, Protocol, TypedDict, Unpack

    from eventq.records.artifact import Captured

    Chunk = bytes | bytearray | memoryview | str

    class Budget(TypedDict, total=False):
        """The options of a `Window`."""

        spill: int
        head: int
        columns: int

    class Artifact(Protocol):
        """The destination of the whole stream."""

        artifact_id: str

        def write(self, data: bytes) -> None:
            """Add bytes."""

        def seal(self) -> object:
            """Mark the artifact as complete."""

        def fail(self, why: str) -> None:
            """Mark the artifact as incomplete for good."""


SPILL = 50 * 1024  # the maximum of bytes shown
HEAD = 20 * 1024  # how many of them show the start of longer output
COLUMNS = 768  # the maximum of bytes shown of a line, including the mark of the cut
PENDING = 1 << 20  # the maximum of bytes that wait for a throttled callback
SWALLOWED = 64 << 10  # the maximum of characters removed of a control string: one may never end

_BACK = 4 << 10  # the maximum of bytes of a line that begins anew
_IMAGE = 1 << 20  # the maximum of bytes of an image that is kept whole
_CUT = "…".encode()
_MARK_ROOM = 40  # bytes: the mark with a number of 21 digits, and a newline on either side
_NEWLINE = 10
_RETURN = b"\r"
_CONTROLS = bytes((*range(9), 11, 12, *range(14, 32), 127))  # of ASCII; what is between makes lines
_patterns: dict[str, Pattern[Any]] = {}


def _pattern(name: str) -> Pattern[Any]:
    """Return a regular expression, compiled on first use: many streams need none."""
    if not _patterns:
        _patterns.update(_compile())
    return _patterns[name]


def _compile() -> dict[str, Pattern[Any]]:
    """Return all regular expressions by name.

    A `sequence` stops before any character that cannot belong to it, so that a match is final. A
    `torn` one could still grow. The terminator of a control string is not part of it: BEL is an
    ordinary control, and ESC with a backslash an escape sequence of its own.
    """
    import re

    osc, other = r"[^\x07\x18\x1a\x1b\n]", r"[^\x18\x1a\x1b\n]"
    csi, two = r"\[[0-?]{0,64}[ -/]{0,16}", "[ -/]{0,16}"
    strings = (rf"\]{osc}{{0,{SWALLOWED}}}", rf"[PX^_]{other}{{0,{SWALLOWED}}}")
    torn = (csi, *strings, two)
    whole = (r"\[[0-9;]{0,64}m", csi + "[@-~]?", *strings, two + "[0-~]?")
    return {
        "torn": re.compile(rf"\x1b(?:{'|'.join(torn)})"),
        # Colours come first: nearly all sequences are colours.
        "sequence": re.compile(rf"\x1b(?:{'|'.join(whole)})"),
        "]": re.compile(osc + "*"),
        **dict.fromkeys("PX^_", re.compile(other + "*")),
        "c1": re.compile(b"\xc2[\x80-\x9f]"),
        "image": re.compile(rb"\x1bP[0-9;]{0,32}q"),
        "image begins": re.compile(rb"\x1b(?:P[0-9;]{0,32})?\Z"),
        "no image": re.compile(rb"[^\x20-\x7e\r\n]"),
        "surrogate": re.compile("[\ud800-\udfff]"),
    }


class Sanitizer:
    """Converts a stream, chunk by chunk, to valid UTF-8 that is harmless to a terminal.

    Invalid UTF-8 becomes U+FFFD. Escape sequences and all control characters except tab and
    newline are removed. A carriage return stays where a line begins anew, as that of a progress bar
    does: with text before it and text after it. A sequence that is torn or too long ends before the
    first character that cannot belong to it; a control string also ends at a newline. Without
    `strip`, controls stay, and only invalid UTF-8 is replaced.
    """

    def __init__(self, *, strip: bool = True) -> None:
        self._strip = strip
        self._held = b""  # an incomplete character or short sequence
        self._string = ""  # the letter of the unfinished control string, whose text is dropped
        self._left = 0  # the number of characters that may still belong to it
        self._begun = False  # whether the line has text
        self._returned = False  # whether a carriage return came last

    def feed(self, data: Chunk) -> bytes:
        """Return the bytes that are final now, as whole characters."""
        return self._clean(
            self._held + _encoded(data) if self._held else _encoded(data), final=False
        )

    def end(self) -> bytes:
        """End the stream, return what was held back, and reset for another stream."""
        data = self._clean(self._held, final=True)
        self._string = ""
        self._begun = self._returned = False
        return data

    def _clean(self, data: bytes, *, final: bool) -> bytes:
        self._held = b""
        if not data.isascii():
            data, self._held = _repaired(data, final=final)
        if not self._strip:
            return data
        if self._string or b"\x1b" in data:
            data = self._plain(data.decode(), final=final).encode()
        # The first byte of the C1 controls, which an 8-bit terminal obeys, and of other characters.
        if b"\xc2" in data:
            data = b"".join(_pattern("c1").split(data))
        return self._lines(data.translate(None, _CONTROLS))  # the same object without a control

    def _lines(self, data: bytes) -> bytes:
        """Return text with those carriage returns only with which a line begins anew."""
        if self._returned or _RETURN in data:
            parts = []
            for n, part in enumerate(data.split(_RETURN)):
                self._returned |= n > 0
                if part:
                    if self._returned and self._begun and part[0] != _NEWLINE:
                        parts.append(_RETURN)
                    self._begun, self._returned = part[-1] != _NEWLINE, False
                    parts.append(part)
            return b"".join(parts)
        if data:
            self._begun = data[-1] != _NEWLINE
        return data

    def _plain(self, text: str, *, final: bool) -> str:
        """Return text without escape sequences; hold back one that is torn at the end."""
        if self._string:
            text = text[self._swallow(text) :]
        # Sequences do not nest, so only the last can be torn.
        at = -1 if final else text.rfind("\x1b")
        if at >= 0 and _pattern("torn").fullmatch(text, at):
            self._hold(text[at:])
            text = text[:at]
        return "".join(_pattern("sequence").split(text))  # a third faster than `sub`

    def _hold(self, torn: str) -> None:
        if torn[1:2] in ("]", "P", "X", "^", "_"):
            self._string = torn[1]
            self._left = SWALLOWED - (len(torn) - 2)
        else:
            self._held = torn.encode() + self._held

    def _swallow(self, text: str) -> int:
        """Return the end of the control string that started in an earlier chunk."""
        found = _pattern(self._string).match(text, 0, self._left)
        end = found.end() if found else 0
        self._left -= end
        if end < len(text):
            self._string = ""
        return end


class Images:
    """Finds images in a stream: sixel graphics, which terminals show (DEC STD 070).

    An image is a control string of printable characters that begins with its parameters and `q`,
    and ends with ESC and a backslash, within `_IMAGE` bytes. Nothing in it drives a terminal.
    """

    def __init__(self) -> None:
        self._held = b""  # what may be an image
        self._seen = 0  # how much of it was looked at

    def feed(self, data: bytes, *, final: bool = False) -> list[tuple[bool, bytes]]:
        """Return what is known now: whether each part is an image, and its bytes."""
        data, self._held = self._held + data, b""
        parts, done, seen, self._seen = [], 0, self._seen, 0
        while found := _pattern("image").search(data, done):
            start = found.start()
            end = data.find(b"\x1b", max(found.end(), seen))
            seen = 0
            if end < 0 or end + 1 == len(data):
                if final or len(data) - start > _IMAGE:
                    break
                parts.append((False, data[done:start]))
                self._held, self._seen = data[start:], (len(data) if end < 0 else end) - start
                return [one for one in parts if one[1]]
            end += 2
            whole = data[end - 1] == 92 and end - start <= _IMAGE  # a backslash
            if whole and not _pattern("no image").search(data, found.end(), end - 2):
                parts += [(False, data[done:start]), (True, data[start:end])]
            else:
                end -= 2
                parts.append((False, data[done:end]))
            done = end
        torn = None if final else _pattern("image begins").search(data, done)
        if torn:
            self._held = torn[0]
        parts.append((False, data[done : len(data) - len(self._held)]))
        return [one for one in parts if one[1]]


def _encoded(data: Chunk) -> bytes:
    """Return the bytes of a chunk; an unpaired surrogate becomes U+FFFD."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            return "\ufffd".join(_pattern("surrogate").split(data)).encode()
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise InputError(f"output is bytes or text, not {type(data).__name__}", "encode it first")


def _repaired(data: bytes, *, final: bool) -> tuple[bytes, bytes]:
    """Return valid UTF-8, and the bytes at the end that may become a character."""
    try:
        _, used = utf_8_decode(data, "strict", final)
        return data[:used], data[used:]  # usually the same object: nothing is copied
    except UnicodeDecodeError:
        text, used = utf_8_decode(data, "replace", final)
        return text.encode(), data[used:]


class Window:
    """The bounded view of a stream: all of it, or its head, a mark and its tail.

    `spill` is the budget in bytes. If the stream exceeds it, `head` of them, at most half, show
    its start; with 0, only a tail is shown. A budget below 80 bytes has no room for the mark, which
    then comes on top of it, as the view would hide that something is left out. A line longer than
    `columns` bytes (0: no limit) is cut, with the mark `…` included in `columns`. The stream must
    be valid UTF-8 in whole characters. `capped` counts the bytes cut from lines, and of lines that
    began anew, `total_bytes` all bytes.
    """

    def __init__(self, spill: int = SPILL, head: int = HEAD, columns: int = COLUMNS) -> None:
        self._spill = _check_count("spill", spill)
        self._head = min(_check_count("head", head), spill // 2)
        self._mark_room = _MARK_ROOM if spill >= 2 * _MARK_ROOM else 0
        self._columns = _check_columns(columns)
        self._back = min(columns, _BACK)
        self._keep = spill + self._back + 1  # one more, to see whether a tail begins with a line
        self._room = columns - len(_CUT)  # bytes that are shown of a line however long it gets
        self._used = 0  # bytes of the last line that are already passed on
        self._held = b""  # the few bytes of it that would be cut if it got longer
        self._skipping = False  # whether it is cut and not yet ended
        self._start = bytearray()  # the first bytes, up to the size of a head
        self._kept = bytearray()  # the last bytes, or all while they fit
        self._size = 0  # bytes after lines were cut
        self._line = 0  # of those, before the last line
        self._newlines = 0
        self._anew = 0  # newlines of the stream that are not shown
        self._taken = 0  # bytes of the head that `take_head` has returned
        self.total_bytes = 0
        self.capped = 0

    @property
    def total_lines(self) -> int:
        """The number of lines so far: newlines plus one, or 0 for an empty stream."""
        return self._newlines + self._anew + 1 if self.total_bytes else 0

    @property
    def overflowed(self) -> bool:
        """Whether the stream already exceeds the budget."""
        return self._size > self._spill

    def push(self, data: bytes) -> None:
        """Add bytes to the stream."""
        self.total_bytes += len(data)
        self._newlines += data.count(b"\n")
        self._add(self._cap(data) if self._columns else data)

    def leave_out(self, data: bytes) -> None:
        """Count bytes of the stream that are not to be shown."""
        self.total_bytes += len(data)
        self._anew += data.count(b"\n")
        self.capped += len(data)

    def restart(self) -> None:
        """Begin the last line anew; where it cannot be taken back, it ends."""
        size = self._size - self._line
        all_of_head = not self._line and 0 < self._head <= size + len(self._held)
        if size > self._back or all_of_head:
            self.push(b"\n")
            return
        self.total_bytes += 1
        self._anew += 1
        self.capped += size + len(self._held) - self._skipping * len(_CUT)
        del self._kept[len(self._kept) - size :]
        del self._start[self._line :]
        self._size = self._line
        self._used, self._held, self._skipping = 0, b"", False

    def end(self) -> None:
        """End the stream, and add what was held back."""
        held, self._held = self._held, b""
        self._add(held)

    def _cap(self, data: bytes) -> bytes:
        """Return the bytes that are final now, with long lines cut."""
        if self._skipping:
            end = self._leave_out(data, 0)
            if end < 0:
                return b""
            data = data[end:]
        elif self._held:
            data = self._held + data
        done = at = 0
        parts: list[bytes] = []
        while (at := self._fitting(data, at)) >= 0:
            cut = _border(data, at + self._room - self._used, at)
            parts += (data[done:cut], _CUT)
            done = at = self._leave_out(data, cut)
            if at < 0:
                return b"".join(parts)
        return b"".join((*parts, data[done : len(data) - len(self._held)]))

    def _leave_out(self, data: bytes, cut: int) -> int:
        """Drop the rest of a line; return the position of its newline, or -1 if still to come."""
        end = data.find(b"\n", cut)
        self.capped += (len(data) if end < 0 else end) - cut
        self._skipping = end < 0
        self._held = b""
        return end

    def _fitting(self, data: bytes, at: int) -> int:
        """Return the start of the next line that is too long, from `at` on; -1 for none.

        A newline within the width after a line's start shows that all lines up to it fit. So text
        is scanned a width at a time, however short its lines are. Bytes that may be cut are held
        back.
        """
        width = self._columns - self._used
        while (end := data.rfind(b"\n", at, at + width + 1)) >= 0:
            at = end + 1
            self._used = 0
            width = self._columns
        if len(data) - at > width:
            return at
        sure = len(data)
        if sure - at > self._room - self._used:
            sure = _border(data, at + self._room - self._used, at)
        self._held = data[sure:]
        self._used += sure - at
        return -1

    def _add(self, data: bytes) -> None:
        if (newline := data.rfind(b"\n")) >= 0:
            self._line = self._size + newline + 1
        self._size += len(data)
        room = self._head - len(self._start)
        if room > 0:
            self._start += data[:room]
        keep = self._keep
        if len(data) >= keep:
            self._kept[:] = memoryview(data)[-keep:]
            return
        self._kept += data
        if len(self._kept) > 2 * keep:
            del self._kept[:-keep]

    def take_head(self) -> bytes:
        """Return the next bytes with which `text` will start in any case."""
        if self._taken == self._head:
            return b""
        end = self._head_end() if len(self._start) == self._head else self._start.rfind(b"\n") + 1
        taken = bytes(self._start[self._taken : end])
        self._taken += len(taken)
        return taken

    def text(self) -> bytes:
        """Return the view of the ended stream: at most `spill` bytes, or 40 more below 80."""
        if not self.overflowed:
            return bytes(self._kept)
        if not self._head:
            return self._tail(self._spill)
        head = bytes(self._start[: self._head_end()])
        tail = self._tail(self._spill - len(head) - self._mark_room)
        return b"".join(
            (head, b"\n" if head and head[-1] != _NEWLINE else b"", self._mark(head, tail), tail)
        )

    def _head_end(self) -> int:
        """Return the size of the head: whole lines, or whole characters if there is no newline."""
        start = self._start
        return start.rfind(b"\n") + 1 or _whole(start)

    def _tail(self, limit: int) -> bytes:
        """Return at most `limit` last bytes, from the start of a line or else of a character."""
        kept = self._kept
        at = len(kept) - limit  # at least 1: more is kept than is ever shown
        end = kept.find(b"\n", at - 1)
        if 0 <= end < len(kept) - 1:  # a newline at the very end would leave nothing
            return bytes(kept[end + 1 :])
        while at < len(kept) and kept[at] & 0xC0 == 0x80:
            at += 1
        return bytes(kept[at:])

    def _mark(self, head: bytes, tail: bytes) -> bytes:
        """Return the line that stands in for the part left out."""
        ended = self._kept[-1 - len(tail)] == _NEWLINE  # the byte before the tail
        lines = self._newlines - head.count(b"\n") - tail.count(b"\n") + (not ended)
        left_out = f"{lines}ln" if lines > 1 else f"{self._size - len(head) - len(tail)}B"
        return f"[…{left_out} elided…]\n".encode()


def _border(data: bytes, at: int, low: int) -> int:
    """Return the last start of a character up to `at`, not before `low`."""
    while at > low and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _whole(data: bytearray) -> int:
    """Return how many bytes at the start are whole characters."""
    return utf_8_decode(data, "replace")[1]


def _check_count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(
            f"{name} is a number of bytes, not {value!r}", "give a whole number, 0 or more"
        )
    return value


def _check_columns(columns: object) -> int:
    if 0 < _check_count("columns", columns) <= len(_CUT):
        raise UsageError(
            f"{columns} columns are too few for the mark of a cut",
            "give 4 or more, or 0 for no limit",
        )
    return columns  # type: ignore[return-value]  # it was just checked


class _Live:
    """Delivers the stream to a callback, at most once in `throttle` seconds."""

    def __init__(
        self, deliver: Callable[[str], object], throttle: float, clock: Callable[[], float]
    ) -> None:
        self._deliver = deliver
        self._throttle = throttle
        self._clock = clock
        self._pending = bytearray()
        self._next = float("-inf")

    def push(self, data: bytes) -> None:
        """Add bytes, and deliver all pending ones if it is time."""
        self._pending += data
        if not self._throttle or len(self._pending) >= PENDING or self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Deliver the pending bytes."""
        if self._pending:
            text = self._pending.decode()
            self._pending.clear()  # before the delivery: one that raises must not be repeated
            if self._throttle:
                self._next = self._clock() + self._throttle
            self._deliver(text)


class _Spill:
    """Writes the whole stream to an artifact as soon as the view cannot show all of it."""

    def __init__(self, make: Callable[[], Artifact] | None) -> None:
        self._make = make  # None if there is no artifact, or no longer
        self._artifact: Artifact | None = None
        self._backlog = bytearray()  # the bytes before it was wanted: at most a window and a chunk
        self.error: str | None = None

    def push(self, data: bytes, *, wanted: bool) -> None:
        """Add bytes; `wanted` is true if the window does not show all of them."""
        if not self._make:
            return
        if not (wanted or self._artifact):
            self._backlog += data
            return
        try:
            self._write(self._make, data)
        except (EventqError, OSError) as error:
            self._give_up(error)

    def _write(self, make: Callable[[], Artifact], data: bytes) -> None:
        if self._artifact is None:
            self._artifact = make()
        if self._backlog:
            self._artifact.write(bytes(self._backlog))
            self._backlog.clear()
        if data:
            self._artifact.write(data)

    def seal(self) -> str | None:
        """Seal the artifact and return its id, or None if there is none."""
        if self._artifact is None:
            return None
        try:
            self._artifact.seal()
        except (EventqError, OSError) as error:
            self._give_up(error)
            return None
        sealed, self._artifact = self._artifact, None
        return sealed.artifact_id

    def _give_up(self, error: EventqError | OSError) -> None:
        self.error = error.what if isinstance(error, EventqError) else str(error)
        self.fail(self.error)

    def fail(self, why: str) -> None:
        """Fail the artifact, if one is open, and drop it."""
        artifact, self._artifact, self._make = self._artifact, None, None
        self._backlog.clear()
        if artifact is not None:
            try:
                artifact.fail(why)
            except Exception:  # noqa: BLE001, S110 (the caller must see the first failure)
                pass


class OutputSink:
    """Captures a stream: a bounded view in memory, and an artifact if the view is not everything.

    `open_artifact` opens the artifact. It is called when the window overflows or a line is cut, or,
    with `keep`, for any stream that is not empty. If the artifact cannot be opened, written or
    sealed, the sink continues without it. `spill`, `head` and `columns` are the bytes of `Window`.
    `on_chunk` gets all of the sanitized stream, at most once in `throttle` seconds; `push` raises
    what it raises. A line that begins anew, as a progress bar does, is shown as it was last;
    callback and artifact have a line for each. With `images`, those have the images of the stream
    (see `Images`), too, and the view has none. Without `sanitize`, escape sequences and controls
    stay, but the stream still becomes valid UTF-8.
    """

    def __init__(
        self,
        open_artifact: Callable[[], Artifact] | None = None,
        *,
        on_chunk: Callable[[str], object] | None = None,
        throttle: float = 0.0,
        sanitize: bool = True,
        images: bool = False,
        keep: bool = False,
        clock: Callable[[], float] = clock.monotonic,
        **window: Unpack[Budget],
    ) -> None:
        self._window = Window(**window)
        self._sanitizes = sanitize
        self._sanitizer = Sanitizer(strip=sanitize)
        self._images = Images() if images and sanitize else None
        seconds = _check_seconds(throttle)
        self._live = _Live(on_chunk, seconds, clock) if on_chunk else None
        self._spilled = _Spill(open_artifact)
        self._keep = keep
        self._over = False

    def push(self, chunk: Chunk) -> None:
        """Add output: bytes, split anywhere, or text. Raises LogicError after the end."""
        self._check_open()
        if self._images is None:
            self._take(self._sanitizer.feed(chunk))
        else:
            self._take_all(self._images.feed(_encoded(chunk)))

    def _take_all(self, parts: Iterable[tuple[bool, bytes]]) -> None:
        for is_image, part in parts:
            if is_image:
                self._take(self._sanitizer.end())  # it ends whatever came before
                self._pass_on(part, partial(self._window.leave_out, part))
            else:
                self._take(self._sanitizer.feed(part))

    def _take(self, data: bytes) -> None:
        if data:
            lines = data.split(_RETURN) if self._sanitizes else [data]
            self._pass_on(b"\n".join(lines), partial(self._show, lines))

    def _show(self, lines: list[bytes]) -> None:
        for n, line in enumerate(lines):
            if n:
                self._window.restart()
            self._window.push(line)

    def _pass_on(self, data: bytes, show: Callable[[], object]) -> None:
        try:
            if self._live:
                self._live.push(data)
        finally:  # a callback that raises must not leave a hole
            show()
            self._spilled.push(data, wanted=self._wanted())

    def _wanted(self) -> bool:
        window = self._window
        return window.overflowed or window.capped > 0 or (self._keep and window.total_bytes > 0)

    def take_head(self) -> bytes:
        """Return the next part of the view that is final.

        All parts together are a prefix of what `dump` returns, after the line of a notice. After
        the head is full, they are empty.
        """
        return self._window.take_head()

    def dump(self, notice: str | None = None) -> Captured:
        """End the stream and seal the artifact; return the view, after a line `[notice]`."""
        self._check_open()
        try:
            if self._images is not None:
                self._take_all(self._images.feed(b"", final=True))
            self._take(self._sanitizer.end())
            if self._live:
                self._live.flush()
        except BaseException:
            self.abandon("the output was not read to its end")
            raise
        self._over = True
        self._window.end()
        self._spilled.push(b"", wanted=self._wanted())  # the end may be what does not fit
        return self._captured(f"[{notice}]\n" if notice else "")

    def _captured(self, before: str) -> Captured:
        from eventq.records.artifact import Captured

        window = self._window
        return Captured(
            text=before + window.text().decode(),
            truncated=window.overflowed,
            capped=window.capped,
            total_bytes=window.total_bytes,
            total_lines=window.total_lines,
            artifact_id=self._spilled.seal(),
            error=self._spilled.error,
        )

    def abandon(self, why: str) -> None:
        """End the stream without a result and fail an open artifact; no-op after `dump`."""
        self._over = True
        self._spilled.fail(why)

    def _check_open(self) -> None:
        if self._over:
            raise LogicError("the sink has ended", "capture more output with another sink")


def _check_seconds(throttle: object) -> float:
    # The comparison is false for a NaN.
    if isinstance(throttle, (int, float)) and not isinstance(throttle, bool) and throttle >= 0:
        return throttle
    raise UsageError(f"throttle is a number of seconds, not {throttle!r}", "give 0 or more")
