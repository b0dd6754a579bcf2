"""What a command reads: payloads from an option, a file or stdin, and texts and JSON objects."""

from __future__ import annotations

from io import FileIO

from eventq.cli import show
from eventq.errors import InputError, LogicError, TooLargeError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Payload(TypedDict):
        """Where the bytes of a turn come from, and by which rule they are made."""

        content: str | None
        file: str
        allow_empty: bool
        canonical: str | None


WHOLE = 64 << 20  # bytes of a text or of JSON, which are held in memory at once
_BLOCK = 1 << 16


class Input(FileIO):
    """A file or stdin to read bytes from; what goes wrong is a sentence."""

    def __init__(self, path: str) -> None:
        """Open a file, `-` for stdin."""
        self._path = path
        self._ahead = b""  # what was read to see whether there is anything
        try:
            if path == "-":
                super().__init__(show.stdin(), "rb", closefd=False)
            else:
                super().__init__(path, "rb")
        except (OSError, ValueError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> LogicError:
        why = getattr(error, "strerror", None) or error
        fix = "check the path and its permissions"
        return LogicError(f"'{self._path}' could not be read: {why}", fix)

    def read(self, size: int | None = _BLOCK) -> bytes:
        """Return the next bytes, at most `size`: of a pipe what has come, nothing at the end."""
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
        """Wait until something has come, and return the file; raise UsageError for nothing."""
        self._ahead = self.read()
        if not self._ahead:
            fix = "give --content or --file, or --allow-empty for a turn without bytes"
            raise UsageError("nothing came on stdin", fix)
        return self


def open_payload(path: str, *, allow_empty: bool) -> Input:
    """Open a file, or stdin, which has to give something unless `allow_empty`."""
    file = Input(path)
    return file if path != "-" or allow_empty else file.need()


def read_payload(payload: Payload) -> object:
    """Return a payload as text, as an open file, or by a canonical rule as the bytes of JSON."""
    from eventq.dag.turns import encoded

    if payload["content"] is not None:
        return encoded(payload["content"], None)
    file = open_payload(payload["file"], allow_empty=payload["allow_empty"])
    return (
        file
        if payload["canonical"] is None
        else _whole(file, "store it as it is, without --canonical")
    )


def _whole(file: Input, fix: str) -> bytearray:
    """Return everything in a file; raise TooLargeError for more than is held in memory at once."""
    try:
        return show.read_all(file.read, WHOLE)
    except TooLargeError:
        raise TooLargeError(None, WHOLE, "input", fix) from None


def read_text(text: str | None, path: str | None) -> str | None:
    """Return a text that was given, or read its file; None when neither was given."""
    if text is not None or path is None:
        return text
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        what = f"'{path}' is not UTF-8 text (byte {error.start})"
        raise InputError(what, "put its bytes as a blob, and name its ref") from error


def _read(path: str) -> bytearray:
    with Input(path) as file:
        return _whole(file, "put its bytes as a blob, and name its ref")


def read_object(path: str | None, name: str) -> dict[str, Any] | None:
    """Return the JSON object in the file that an option names, None when there is no path."""
    if path is None:
        return None
    from eventq.dag import canonical

    try:
        value = canonical.parse(_read(path))
    except InputError as error:
        raise InputError(f"{name}: {error.what}", error.fix) from error
    if not isinstance(value, dict):
        raise InputError(f"{name}: the text is no JSON object", "give an object, in braces")
    return value
