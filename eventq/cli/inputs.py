"""Read payloads, texts and JSON objects from options, files and stdin."""

from __future__ import annotations

from io import FileIO

from eventq.cli import show
from eventq.errors import InputError, LogicError, TooLargeError, UsageError, reason, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Payload(TypedDict):
        """The source of a turn's payload, and its canonical rule."""

        content: str | None
        file: str
        allow_empty: bool
        canonical: str | None


WHOLE = 64 << 20  # bytes of a text or of JSON, which are held in memory at once
_BLOCK = 1 << 16


class Input(FileIO):
    """A file or stdin, read as bytes; errors of the system become LogicError."""

    def __init__(self, path: str) -> None:
        """Open a file, or stdin for `-`."""
        self._path = path
        self._ahead = b""  # what `need` has read
        try:
            if path == "-":
                super().__init__(show.stdin(), "rb", closefd=False)
            else:
                super().__init__(path, "rb")
        except (OSError, ValueError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> LogicError:
        what = f"'{self._path}' could not be read: {reason(error)}"
        if isinstance(error, OSError):
            return refused(error, what)
        return LogicError(what, "check the path and its permissions")

    def read(self, size: int | None = _BLOCK) -> bytes:
        """Return the next bytes, at most `size`: what has arrived in a pipe, b"" at the end."""
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size or _BLOCK :]
            return data
        try:
            while (data := super().read(size)) is None:
                show.wait_for(self.fileno())
        except OSError as error:
            raise self._refused(error) from error
        return data

    def need(self) -> Input:
        """Wait for the first bytes and return the file; raise UsageError if there are none."""
        self._ahead = self.read()
        if not self._ahead:
            fix = "give --content or --file, or --allow-empty for a turn without bytes"
            raise UsageError("stdin is empty", fix)
        return self


def open_payload(path: str, *, allow_empty: bool) -> Input:
    """Open a file or stdin; raise UsageError for an empty stdin unless `allow_empty`."""
    file = Input(path)
    return file if path != "-" or allow_empty else file.need()


def read_payload(payload: Payload) -> object:
    """Return a payload as bytes, or as an open file if no canonical rule has to read it all."""
    from eventq.memory.turns import encoded

    if payload["content"] is not None:
        return encoded(payload["content"], None)
    file = open_payload(payload["file"], allow_empty=payload["allow_empty"])
    return (
        file
        if payload["canonical"] is None
        else _whole(file, "store it as it is, without --canonical")
    )


def _whole(file: Input, fix: str) -> bytearray:
    """Return the bytes of a file; raise TooLargeError if they exceed WHOLE."""
    try:
        return show.read_all(file.read, WHOLE)
    except TooLargeError:
        raise TooLargeError(None, WHOLE, "input", fix) from None


def read_text(text: str | None, path: str | None) -> str | None:
    """Return `text`, or the content of the file at `path`; None if both are None."""
    if text is not None or path is None:
        return text
    return decode(path, "put its bytes as a blob, and name its ref")


def decode(path: str, fix: str) -> str:
    """Return the text of a file, or of stdin for `-`; `fix` is what to do if it is too large."""
    try:
        return _read(path, fix).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 text (byte {error.start})", fix) from error


def _read(path: str, fix: str) -> bytearray:
    with Input(path) as file:
        return _whole(file, fix)


def read_object(path: str | None, name: str) -> dict[str, Any] | None:
    """Return the JSON object in the file of an option, or None if there is no path."""
    if path is None:
        return None
    from eventq.memory import canonical

    try:
        value = canonical.parse(_read(path, "put its bytes as a blob, and name its ref"))
    except InputError as error:
        raise InputError(f"{name}: {error.what}", error.fix) from error
    if not isinstance(value, dict):
        raise InputError(f"{name}: the text is not a JSON object", "give an object, in braces")
    return value
