"""What is shown of a stream of output: a bounded view, and an artifact of all when that is less.

A stream goes through three parts. `Sanitizer` makes it text that is harmless to a terminal, `Window`
keeps the beginning and the end of it within a budget, and `OutputSink` joins the two to an artifact
and to a watcher. None of them depends on where the stream is cut, and none holds more than a small
multiple of the budget and one chunk. Each is for one thread.
"""

from __future__ import annotations

from codecs import utf_8_decode

from eventq import system
from eventq.errors import EventqError, InputError, LogicError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Pattern
    from typing import Any, Protocol, TypedDict, Unpack

    from eventq.records import Captured

    Chunk = bytes | bytearray | memoryview | str

    class Budget(TypedDict, total=False):
        """The options of a `Window`."""

        spill: int
        head: int
        columns: int

    class Artifact(Protocol):
        """Where the whole stream goes."""

        artifact_id: str

        def write(self, data: bytes) -> None:
            """Add bytes."""

        def seal(self) -> object:
            """End it: it is whole."""

        def fail(self, why: str) -> None:
            """End it: it will never be whole."""


SPILL = 50 * 1024  # bytes of text that are shown at most
HEAD = 20 * 1024  # bytes of it that are the beginning, when there is more
COLUMNS = 768  # bytes of a line that are shown at most, the mark of the cut among them
PENDING = 1 << 20  # bytes that wait for a throttled watcher at most
SWALLOWED = 64 << 10  # characters of a control string that are removed: one may never end

_CUT = "…".encode()
_MARK_ROOM = 40  # bytes: the mark with a number of 21 digits, and a newline on either side
_NEWLINE = 10
_CONTROLS = bytes((*range(9), *range(11, 32), 127))  # all of ASCII's but tab and newline
_patterns: dict[str, Pattern[Any]] = {}


def _pattern(name: str) -> Pattern[Any]:
    """Return a regular expression; only a stream that needs one pays for the import."""
    if not _patterns:
        _patterns.update(_compile())
    return _patterns[name]


def _compile() -> dict[str, Pattern[Any]]:
    """Return all of them by name.

    A `sequence` stops before whatever cannot belong to it, so that a match is final; a `torn` one
    could still grow. The end of a control string is not part of it: BEL is a control like any other,
    and ESC with a backslash an escape by itself.
    """
    import re

    osc, other = r"[^\x07\x18\x1a\x1b\n]", r"[^\x18\x1a\x1b\n]"
    csi, two = r"\[[0-?]{0,64}[ -/]{0,16}", "[ -/]{0,16}"
    strings = (rf"\]{osc}{{0,{SWALLOWED}}}", rf"[PX^_]{other}{{0,{SWALLOWED}}}")
    torn = (csi, *strings, two)
    whole = (r"\[[0-9;]{0,64}m", csi + "[@-~]?", *strings, two + "[0-~]?")
    return {
        "torn": re.compile(rf"\x1b(?:{'|'.join(torn)})"),
        "sequence": re.compile(
            rf"\x1b(?:{'|'.join(whole)})"
        ),  # colours first: they are nearly all there is
        "]": re.compile(osc + "*"),
        **dict.fromkeys("PX^_", re.compile(other + "*")),
        "c1": re.compile(b"\xc2[\x80-\x9f]"),
        "surrogate": re.compile("[\ud800-\udfff]"),
    }


class Sanitizer:
    """Makes a stream valid UTF-8 that is harmless to a terminal, chunk by chunk.

    What is not UTF-8 becomes U+FFFD. Escape sequences are removed, and so are all control characters
    but tab and newline. A sequence that is torn, or too long, ends before the first character that
    cannot belong to it; a control string ends at a newline too. With `strip` off the controls stay,
    and only what is not UTF-8 changes.
    """

    def __init__(self, *, strip: bool = True) -> None:
        self._strip = strip
        self._held = b""  # a character or a short sequence that is not whole yet
        self._string = ""  # the letter of the control string that the stream is in; it is not held, however long
        self._left = 0  # characters that may still belong to it

    def feed(self, data: Chunk) -> bytes:
        """Return what is certain now: whole characters, after those returned before."""
        return self._clean(
            self._held + _encoded(data) if self._held else _encoded(data), final=False
        )

    def end(self) -> bytes:
        """Return what was held back, at the end of the stream, and be ready for another."""
        data = self._clean(self._held, final=True)
        self._string = ""
        return data

    def _clean(self, data: bytes, *, final: bool) -> bytes:
        self._held = b""
        if not data.isascii():
            data, self._held = _repaired(data, final=final)
        if not self._strip:
            return data
        if self._string or b"\x1b" in data:
            data = self._plain(data.decode(), final=final).encode()
        if (
            b"\xc2" in data
        ):  # the first byte of what only an 8-bit terminal takes for a control, and of more
            data = b"".join(_pattern("c1").split(data))
        return data.translate(None, _CONTROLS)  # gives the same object when there is none

    def _plain(self, text: str, *, final: bool) -> str:
        """Return text without escape sequences; hold back one that the end has torn."""
        if self._string:
            text = text[self._swallow(text) :]
        at = (
            -1 if final else text.rfind("\x1b")
        )  # no sequence has another in it, so only the last can be torn
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
        """Return where the control string ends that began in an earlier chunk."""
        found = _pattern(self._string).match(text, 0, self._left)
        end = found.end() if found else 0
        self._left -= end
        if end < len(text):
            self._string = ""
        return end


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
        return data[:used], data[
            used:
        ]  # the same object when that is all: nothing is encoded again
    except UnicodeDecodeError:
        text, used = utf_8_decode(data, "replace", final)
        return text.encode(), data[used:]


class Window:
    """The bounded view of a stream: all of it, or its head, a mark and its tail.

    `spill` is the budget in bytes for all that is shown, `head` how many of them are the beginning
    when it is not enough, at most half; with 0, or without room for the mark, a tail is shown and no
    mark. A line longer than `columns` bytes (0: no limit) is shown up to there, the mark `…`
    included. The stream must be valid UTF-8 and come in whole characters. `capped` counts the bytes
    left out of lines, `total_bytes` all that came.
    """

    def __init__(self, spill: int = SPILL, head: int = HEAD, columns: int = COLUMNS) -> None:
        self._spill = _check_count("spill", spill)
        self._head = min(_check_count("head", head), spill // 2) if spill >= 2 * _MARK_ROOM else 0
        self._columns = _check_columns(columns)
        self._room = columns - len(
            _CUT
        )  # of a line whose end is not in sight, these bytes are certain
        self._used = 0  # bytes of the last line that are shown already
        self._held = b""  # the bytes of it that a longer line would lose: a handful
        self._skipping = False  # it is cut, and goes on
        self._start = bytearray()  # the first bytes, as many as a head has
        self._kept = bytearray()  # the last bytes: all of them while that is what is shown
        self._size = 0  # bytes after the cut of lines
        self._newlines = 0
        self._given = 0  # bytes of the head that `take_head` has given
        self.total_bytes = 0
        self.capped = 0

    @property
    def total_lines(self) -> int:
        """The lines so far: newlines and one, 0 for an empty stream."""
        return self._newlines + 1 if self.total_bytes else 0

    @property
    def overflowed(self) -> bool:
        """Whether the budget is too small for what is certain so far."""
        return self._size > self._spill

    def push(self, data: bytes) -> None:
        """Add bytes to the stream."""
        self.total_bytes += len(data)
        self._newlines += data.count(b"\n")
        self._add(self._cap(data) if self._columns else data)

    def end(self) -> None:
        """End the stream: what was held back belongs to it."""
        held, self._held = self._held, b""
        self._add(held)

    def _cap(self, data: bytes) -> bytes:
        """Return what is certain now of the stream with its lines cut."""
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
        """Leave out the rest of a line; return where its newline is, -1 when it is to come."""
        end = data.find(b"\n", cut)
        self.capped += (len(data) if end < 0 else end) - cut
        self._skipping = end < 0
        self._held = b""
        return end

    def _fitting(self, data: bytes, at: int) -> int:
        """Return where the next line begins that is too long, from `at` on; -1 for none.

        A newline within the width after a line's beginning shows that all lines up to there fit, so
        text is passed a width at a time, however short its lines are. What may be cut is held back.
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
        self._size += len(data)
        room = self._head - len(self._start)
        if room > 0:
            self._start += data[:room]
        keep = self._spill + 1  # one more: it tells whether a tail begins at a line's beginning
        if len(data) >= keep:
            self._kept[:] = memoryview(data)[-keep:]
            return
        self._kept += data
        if len(self._kept) > 2 * keep:
            del self._kept[:-keep]

    def take_head(self) -> bytes:
        """Return the next bytes that `text` will begin with, whatever comes."""
        if self._given == self._head:
            return b""
        end = self._head_end() if len(self._start) == self._head else self._start.rfind(b"\n") + 1
        taken = bytes(self._start[self._given : end])
        self._given += len(taken)
        return taken

    def text(self) -> bytes:
        """Return what is shown, once the stream is over: at most `spill` bytes."""
        if not self.overflowed:
            return bytes(self._kept)
        if not self._head:
            return self._tail(self._spill)
        head = bytes(self._start[: self._head_end()])
        tail = self._tail(self._spill - len(head) - _MARK_ROOM)
        return b"".join(
            (head, b"\n" if head and head[-1] != _NEWLINE else b"", self._mark(head, tail), tail)
        )

    def _head_end(self) -> int:
        """Return the bytes of the head: whole lines, or whole characters without any line."""
        start = self._start
        return start.rfind(b"\n") + 1 or _whole(start)

    def _tail(self, limit: int) -> bytes:
        """Return at most `limit` last bytes, from a line's beginning or else a character's."""
        kept = self._kept
        at = len(kept) - limit  # at least 1: more is kept than is ever shown
        end = kept.find(b"\n", at - 1)
        if 0 <= end < len(kept) - 1:  # a newline that is the very last would leave nothing
            return bytes(kept[end + 1 :])
        while at < len(kept) and kept[at] & 0xC0 == 0x80:
            at += 1
        return bytes(kept[at:])

    def _mark(self, head: bytes, tail: bytes) -> bytes:
        """Return the line that represents what is left out."""
        ended = self._kept[-1 - len(tail)] == _NEWLINE  # the byte before the tail
        lines = self._newlines - head.count(b"\n") - tail.count(b"\n") + (not ended)
        left_out = f"{lines}ln" if lines > 1 else f"{self._size - len(head) - len(tail)}B"
        return f"[…{left_out} elided…]\n".encode()


def _border(data: bytes, at: int, low: int) -> int:
    """Return the last border of characters up to `at`, not before `low`."""
    while at > low and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _whole(data: bytearray) -> int:
    """Return how many bytes at the beginning are whole characters."""
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
            f"{columns} columns have no room for the mark of a cut",
            "give 4 or more, or 0 for no limit",
        )
    return columns  # type: ignore[return-value]  # it was just checked


class _Live:
    """Delivers the stream to a watcher, at most once in `throttle` seconds."""

    def __init__(
        self, deliver: Callable[[str], object], throttle: float, clock: Callable[[], float]
    ) -> None:
        self._deliver = deliver
        self._throttle = throttle
        self._clock = clock
        self._pending = bytearray()
        self._next = float("-inf")

    def push(self, data: bytes) -> None:
        """Add bytes, and deliver all that wait if it is time."""
        self._pending += data
        if not self._throttle or len(self._pending) >= PENDING or self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Deliver what waits."""
        if self._pending:
            text = self._pending.decode()
            self._pending.clear()  # before the delivery: one that raises is not made twice
            if self._throttle:
                self._next = self._clock() + self._throttle
            self._deliver(text)


class _Spill:
    """Writes the whole stream to an artifact, from its beginning, once the view is not all."""

    def __init__(self, make: Callable[[], Artifact] | None) -> None:
        self._make = make  # None: there is no artifact, or not any more
        self._artifact: Artifact | None = None
        self._backlog = (
            bytearray()
        )  # what came before it was wanted: no more than a window and a chunk
        self.error: str | None = None

    def push(self, data: bytes, *, wanted: bool) -> None:
        """Add bytes; `wanted` says that the window does not show all of them."""
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
        """Seal the artifact and return its id, None when there is none."""
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
            except Exception:  # noqa: BLE001, S110 (what failed first is what the caller must see)
                pass


class OutputSink:
    """Captures a stream: a bounded view in memory, and an artifact of all when that is less.

    `open_artifact` opens the artifact; it is called when the window overflows or a line is cut, or,
    with `keep`, for any stream that is not empty. When the artifact cannot be opened, written or
    sealed, the sink goes on without. `spill`, `head` and `columns` are bytes, as `Window` takes them.
    `on_chunk` gets all of the sanitized stream as it comes, at most once in `throttle` seconds; what
    it raises, `push` raises. With `sanitize` off, escape sequences and controls stay in; the stream
    becomes valid UTF-8 all the same.
    """

    def __init__(
        self,
        open_artifact: Callable[[], Artifact] | None = None,
        *,
        on_chunk: Callable[[str], object] | None = None,
        throttle: float = 0.0,
        sanitize: bool = True,
        keep: bool = False,
        clock: Callable[[], float] = system.monotonic,
        **window: Unpack[Budget],
    ) -> None:
        self._window = Window(**window)
        self._sanitizer = Sanitizer(strip=sanitize)
        seconds = _check_seconds(throttle)
        self._live = _Live(on_chunk, seconds, clock) if on_chunk else None
        self._spilled = _Spill(open_artifact)
        self._keep = keep
        self._over = False

    def push(self, chunk: Chunk) -> None:
        """Add output: bytes, cut anywhere, or text. Raises LogicError after the end."""
        self._check_open()
        self._take(self._sanitizer.feed(chunk))

    def _take(self, data: bytes) -> None:
        if not data:
            return
        try:
            if self._live:
                self._live.push(data)
        finally:  # a watcher that raises leaves no hole
            self._window.push(data)
            self._spilled.push(data, wanted=self._wanted())

    def _wanted(self) -> bool:
        window = self._window
        return window.overflowed or window.capped > 0 or (self._keep and window.total_bytes > 0)

    def take_head(self) -> bytes:
        """Return what is certain of the view now, after what was returned before.

        Together these are a prefix of what `dump` will return, after the line of a notice. Nothing
        more comes once the head is full.
        """
        return self._window.take_head()

    def dump(self, notice: str | None = None) -> Captured:
        """End the stream and seal the artifact; return the view, after a line `[notice]`."""
        self._check_open()
        try:
            self._take(self._sanitizer.end())
            if self._live:
                self._live.flush()
        except BaseException:
            self.abandon("the output was not taken to its end")
            raise
        self._over = True
        self._window.end()
        self._spilled.push(b"", wanted=self._wanted())  # the end itself may be what does not fit
        return self._captured(f"[{notice}]\n" if notice else "")

    def _captured(self, before: str) -> Captured:
        from eventq.records import Captured

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
            raise LogicError("the output is over", "capture more of it with another sink")


def _check_seconds(throttle: object) -> float:
    good = (
        isinstance(throttle, (int, float)) and not isinstance(throttle, bool) and throttle >= 0
    )  # not so for a NaN
    if not good:
        raise UsageError(f"throttle is a number of seconds, not {throttle!r}", "give 0 or more")
    return throttle  # type: ignore[return-value]  # it was just checked
