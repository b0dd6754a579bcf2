"""JSON from stdin: the lines of a batch, and the object of a hook."""

from __future__ import annotations

from eventq.cli import show
from eventq.errors import InputError, TooLargeError
from eventq.records.event import question_in
from eventq.system.jsontext import BARE, as_written, skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_NAMES = 2 << 20  # bytes of a line besides its content: the other fields and all field names
_SPELLED = 6  # bytes that JSON may need to spell one
_FIELDS = ("source", "type", "content", "subtype", "key")
_KNOWN = frozenset(_FIELDS)
_NAMED = 5  # unknown fields that a warning names
_NAME = 60  # characters of each
# What is stripped from a line: the blanks of Unicode, and the byte order mark.
_AROUND = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object, with numbers as their lengths; raise ValueError if it is invalid."""
    start = skip(text, 0)
    if text[start : start + 1] != "{":
        raise ValueError("not a JSON object")
    try:
        value, end = BARE.scan(text, start)
    except StopIteration as error:
        raise ValueError(f"not JSON, at character {error.value}") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except ValueError as error:
        what, at = getattr(error, "msg", None), getattr(error, "pos", 0)
        if what is None:
            raise
        what = what.rstrip(": ").removesuffix(" at")  # some messages end with "at:"
        raise ValueError(f"not JSON: {what}, at character {at}") from error
    if skip(text, end) != len(text):
        raise ValueError(f"more than one JSON value, at character {end}")
    return value  # type: ignore[no-any-return]


class Lines:
    """The events of NDJSON, ready for `push_many`; blank lines are skipped."""

    ends: tuple[bytes, ...] = (b"\n", b"\r")
    fix = (
        "give a JSON object per line, with source, type and content; nothing of the batch was"
        " stored"
    )

    def __init__(self, limit: int) -> None:
        """Take the maximum size of an event."""
        self.line = 0  # the number of the line that was read last
        self.unknown: list[str] = []  # the first unknown field names
        self._limit = limit
        self._begun = bytearray()  # the unfinished line
        self._rest = b""  # what the last block has of it
        self._cut = False  # the LF of a CR LF may come with the next block
        self._drops = False  # the rest of the unfinished line
        self._least = 0  # bytes of decoded text that the unfinished line has at least

    def where(self, _: int) -> str:
        """Return the line of the event that was read last."""
        return f"line {self.line}"

    def unknown_names(self) -> str:
        """Return the unknown field names as a readable list."""
        names = [name if len(name) <= _NAME else f"{name[:_NAME]}…" for name in self.unknown]
        return ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)

    def read(self, fd: int) -> Iterator[tuple[Any, ...]]:
        """Yield the events of a descriptor to its end; raise an error that names the line."""
        block = b"begins"
        while block:
            block = show.read(fd)
            yield from self.events(self.cut(block))
            if (error := self.unfit()) is not None:
                raise error

    def events(self, lines: Iterable[bytes | bytearray]) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of the next lines as `event_of` returns them; raise InputError."""
        for data in lines:
            self.line += 1
            try:
                text = data.decode()
                if text[0] != "{" or not text.isascii():
                    text = text.strip(_AROUND)
                    if not text:
                        continue
                value = parse_object(text)
                if not _KNOWN.issuperset(value):
                    self._note_unknown(value)
                yield event_of(value, text)
            except UnicodeDecodeError as error:
                raise self._bad(f"not UTF-8 (byte {error.start})") from error
            except ValueError as error:
                raise self._bad(str(error)) from error

    def _note_unknown(self, names: Iterable[str]) -> None:
        for name in names:
            if len(self.unknown) > _NAMED:
                return
            if name not in _KNOWN and name not in self.unknown:
                self.unknown.append(name)

    def cut(self, block: bytes) -> list[Any]:
        """Return the lines that a block completes; an empty one completes the last line."""
        lines: list[Any] = self._split(block)
        is_open = bool(lines) and not lines[-1].endswith(self.ends)
        self._rest = lines.pop() if is_open else b""
        if self._begun and (lines or not block):
            self._begun += lines[0] if lines else b""  # in place: a long line is not held twice
            lines[:1], self._begun = [self._begun], bytearray()
        elif self._drops and lines:
            del lines[0]
            self._drops = False
        if not self._drops:
            self._begun += self._rest
        return lines

    def _split(self, block: bytes) -> list[bytes]:
        """Split a block into lines, ended by LF, CR LF, CR or its end."""
        lines = block[self._cut and block.startswith(b"\n") :].splitlines(keepends=True)
        self._cut = block.endswith(b"\r")
        return lines

    def unfit(self) -> InputError | TooLargeError | None:
        """Return the error for an unfinished line that cannot become an event."""
        rest = self._rest
        if not rest or self._drops:
            return None
        if len(self._begun) == len(rest):
            self._least = 0
            head = rest.lstrip()[:1]
            if head and head != b"{" and head < b"\x80":  # beyond ASCII there are blanks, and a BOM
                self.line += 1
                return self._bad("not a JSON object")
        self._least += len(rest) - (_SPELLED - 1) * rest.count(b"\\")
        most = self._limit + _NAMES
        return self._large() if max(self._least, len(self._begun) // _SPELLED) > most else None

    def drop(self) -> None:
        """Forget the unfinished line, and what will come of it."""
        self._begun, self._drops = bytearray(), True

    def _large(self) -> TooLargeError:
        self.line += 1
        error = TooLargeError(None, self._limit)
        error.what = f"line {self.line}: {error.what}"
        return error

    def _bad(self, what: str) -> InputError:
        return InputError(f"line {self.line}: {what}", self.fix)


def event_of(value: dict[str, Any], text: str) -> tuple[Any, ...]:
    """Return source, type, content, subtype and key of a JSON object; `text` is its source.

    Raises ValueError if a field is missing.
    """
    source, type_, content, subtype, key = map(value.get, _FIELDS)
    # This is what most lines are.
    if type(source) is type(type_) is type(content) is str and subtype is key is None:
        return source, type_, content, None, None
    for name in ("source", "type", "content"):
        if value.get(name) is None:
            raise ValueError(f"{name} is missing")
    if type(content) is not str:
        content = as_written(text, "content")
    for name in ("source", "type", "subtype", "key"):
        if not isinstance(value.get(name), str | None):
            raise ValueError(f"{name} is not a string")
    return source, type_, content, subtype, key


def hook_event(
    data: bytes | bytearray, source: str
) -> tuple[str, str, str, str | None, str | None]:
    """Return source, type, content, subtype and key of the event for a hook's JSON object.

    The subtype is the hook's event name. If the hook names a tool use, the key is that name and
    the id of the use, because the hooks before and after a tool share the id.
    """
    text = data.decode().removeprefix("\ufeff").strip()
    value = parse_object(text)
    name, use = value.get("hook_event_name"), value.get("tool_use_id")
    subtype = name if isinstance(name, str) and name else None
    key = f"{subtype or 'hook'}:{use}" if isinstance(use, str) and use else None
    if question_in(key) is not None:  # a hook reports, and answers nothing
        key = f"hook:{key}"
    return source, "record", text, subtype, key
