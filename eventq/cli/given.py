"""What a command is given: payloads from an option, a file or stdin, lists of refs, contexts by name or id."""

from __future__ import annotations

from io import FileIO

from eventq.cli import show
from eventq.cli.log import SERVERS, open_thread
from eventq.cli.options import number, text
from eventq.errors import InputError, LogicError, TooLargeError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from eventq.cli.options import Raw
    from eventq.thread import Thread

WHOLE = 64 << 20  # bytes of a text or of JSON, which are held in memory at once
_BLOCK = 1 << 16
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def open_memory(raw: Raw, *, read_only: bool = False) -> Thread:
    """Open what `--thread` names: a thread, or a connection to a server of one, whose memory has the same methods."""
    path = text(raw, "thread") or ""
    if path.startswith(SERVERS):
        from eventq.wire.client import connect

        return connect(path)  # type: ignore[return-value]
    return open_thread(raw, read_only=read_only)


class Input(FileIO):
    """A file or stdin to read bytes from; what goes wrong is a sentence."""

    def __init__(self, path: str, *, is_open: bool) -> None:
        """Open a file, `-` for stdin; `is_open` says whether there is a stdin."""
        self._path = path
        self._ahead = b""  # what was read to see whether there is anything
        try:
            if path == "-":
                super().__init__(show.stdin(is_open=is_open), "rb", closefd=False)
            else:
                super().__init__(path, "rb")
        except (OSError, ValueError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> LogicError:
        why = getattr(error, "strerror", None) or error
        return LogicError(f"'{self._path}' could not be read: {why}", "check the path and its permissions")

    def read(self, size: int | None = _BLOCK) -> bytes:
        """Return the next bytes, at most `size`: what has come so far of a pipe, nothing at the end."""
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
        """Wait until something has come, and return the file; raise UsageError when nothing does."""
        self._ahead = self.read()
        if not self._ahead:
            raise UsageError(
                "nothing came on stdin", "give --content or --file, or --allow-empty for a turn without bytes"
            )
        return self


def source_of(raw: Raw, *, is_open: bool) -> Input:
    """Return the file that --file names, or stdin, which has to give something unless --allow-empty was given."""
    path = text(raw, "file") or "-"
    file = Input(path, is_open=is_open)
    return file if path != "-" or raw["allow-empty"] else file.need()


def payload(raw: Raw, *, is_open: bool) -> object:
    """Give the payload of --content, of --file or of stdin; with --canonical it is JSON text, as bytes."""
    from eventq.dag.turns import encoded

    if raw["content"] is not None:
        return encoded(str(raw["content"]), None)
    file = source_of(raw, is_open=is_open)
    return file if raw["canonical"] is None else _whole(file, "store it as it is, without --canonical")


def _whole(file: Input, fix: str) -> bytearray:
    """Return everything in a file; raise TooLargeError for more than is held in memory at once."""
    try:
        return show.read_all(file.read, WHOLE)
    except TooLargeError:
        raise TooLargeError(None, WHOLE, "input", fix) from None


def text_of(raw: Raw, name: str, file_name: str, *, is_open: bool) -> str | None:
    """Give the text of an option, or of the file that the other option names; None when neither was given."""
    if raw[name] is not None:
        return str(raw[name])
    data = _file_of(raw, file_name, is_open=is_open)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{raw[file_name]}' is not UTF-8 text (byte {error.start})", "put its bytes as a blob, and name its ref"
        ) from error


def _file_of(raw: Raw, name: str, *, is_open: bool) -> bytearray | None:
    path = text(raw, name)
    if path is None:
        return None
    with Input(path, is_open=is_open) as file:
        return _whole(file, "put its bytes as a blob, and name its ref")


def object_of(raw: Raw, name: str, *, is_open: bool) -> dict[str, Any] | None:
    """Give the JSON object in the file that an option names, None when it was not given."""
    data = _file_of(raw, name, is_open=is_open)
    if data is None:
        return None
    value = _parsed(data, name)
    if not isinstance(value, dict):
        raise InputError(f"--{name}: the text is no JSON object", "give an object, in braces")
    return value


def json_of(raw: Raw, name: str) -> Any:
    """Give the JSON value of an option, None when it was not given."""
    return None if raw[name] is None else _parsed(str(raw[name]), name)


def _parsed(data: bytearray | str, name: str) -> Any:
    from eventq.dag import canonical

    try:
        return canonical.parse(data)
    except InputError as error:
        raise InputError(f"--{name}: {error.what}", error.fix) from error


def check_stdin(raw: Raw, *names: str) -> None:
    """Raise UsageError when more than one of these options asks for stdin."""
    given = [f"--{name}" for name in names if raw[name] == "-"]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot both read stdin", "give a file to one of them")


def check_source(raw: Raw) -> None:
    """Raise UsageError when --source was given without --emit."""
    if raw["source"] is not None and not raw["emit"]:
        raise UsageError("--source says who the event of --emit comes from", "give --emit too, or leave --source out")


def emitter(raw: Raw) -> str | None:
    """Give the source of the event that --emit asks for, None for no event."""
    return text(raw, "source") or "self" if raw["emit"] else None


def check_one(raw: Raw, *names: str) -> None:
    """Raise UsageError when more than one of these options was given."""
    given = [f"--{name}" for name in names if raw[name] or raw[name] == ""]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", "give one of them")


def refs(raw: Raw) -> list[str]:
    """Give the refs of --refs, which stand between commas."""
    return [ref.strip() for ref in (text(raw, "refs") or "").split(",")] if raw["refs"] is not None else []


def which(raw: Raw, name: str = "CONTEXT") -> int | str:
    """Give the id or the name of a context: digits are an id, as a name is never a number."""
    word = text(raw, name) or ""
    return number(raw, name) if word.isascii() and word.isdigit() else word


def duration(raw: Raw, name: str, default: float) -> float:
    """Give the seconds of a time such as 90, 90s, 15m, 1h or 7d."""
    value = raw[name]
    if value is None:
        return default
    digits = str(value).strip()
    unit = _UNITS.get(digits[-1:])
    digits = digits[:-1] if unit else digits
    if not digits.isascii() or not digits.replace(".", "", 1).isdigit() or len(digits) > 12:
        raise UsageError(f"--{name} must be a time, not '{value}'", "give digits and s, m, h or d, such as 15m")
    return float(digits) * (unit or 1)
