"""The types of options: functions that convert a word. The option's name is for the error.

Each raises UsageError for a word that it cannot convert.
"""

from __future__ import annotations

from eventq.cli import show
from eventq.errors import SERVER_ADVICE, InputError, ReadOnlyError, UsageError
from eventq.records import checks
from eventq.records.checks import decimal
from eventq.system import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from eventq.thread import Thread

    Kind: TypeAlias = "Callable[[str, str], Any] | Opened | Switch"

_SERVERS = ("eventq://", "unix:")  # how the address of a server begins
_MOST = (1 << 63) - 1
duration = checks.duration


def as_is(word: str, name: str) -> str:  # noqa: ARG001 (others name it in errors)
    """Return any word, also one of bytes that are not UTF-8, which Python has as surrogates."""
    return word


def verbatim(word: str, name: str) -> str:
    """Return any text as it was written."""
    try:
        if not word.isascii():
            word.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} is not UTF-8 (at character {error.start + 1})",
            "convert it, for example with iconv; 'eventq blob put' stores bytes of any kind",
        ) from None
    return word


def text(word: str, name: str) -> str:
    """Return text of at least one character."""
    return verbatim(path(word, name), name)


def path(word: str, name: str) -> str:
    """Return the path of a file or folder, which shells complete, of any bytes."""
    if not word:
        raise UsageError(f"{name} is empty", f"give a value, or leave {name} out")
    return word


class Whole:
    """A whole number within bounds: decimal digits, an optional `+`, blanks around."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, word: str, name: str) -> int:
        """Return the number."""
        number = word.strip()
        digits = number.removeprefix("+")
        found = int(digits) if _is_whole(digits) and len(digits) < 100 else -1
        if not self.least <= found <= _MOST:
            what = f"{name} must be a whole number from {self.least} to 2^63-1, not '{word}'"
            fix = "give a smaller number" if _is_whole(digits) else "give plain digits"
            is_less = 0 <= found < self.least
            if is_less or (number[:1] == "-" and _is_whole(number[1:])):
                fix = f"give {self.least} or more"
            raise UsageError(what, fix)
        return found


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()


WHOLE, POSITIVE = Whole(0), Whole(1)


def seconds(word: str, name: str) -> float:
    """Return the seconds of a duration, which is a plain number under the name `thread`."""
    if show.program() != "thread":
        return duration(word, name)
    found = decimal(word.strip())
    if found is None:
        what = f"{name} must be a number of seconds, not '{word}'"
        raise UsageError(what, "give digits, such as 30 or 0.5")
    return found


def moment(word: str, name: str) -> float:
    """Return a time as seconds since 1970: a duration ago, or ISO 8601, local without a zone."""
    from datetime import UTC, datetime

    try:
        return max(0.0, clock.now() - duration(word, name))
    except UsageError:
        pass
    text = word.strip()
    if text[2:3] == ":":
        text = f"{datetime.fromtimestamp(clock.now(), UTC).astimezone():%Y-%m-%d}T{text}"
    try:
        # Half a millisecond more keeps the last digit of a time that the log has printed.
        return max(0.0, datetime.fromisoformat(text).timestamp() + 0.0005)
    except (ValueError, OverflowError) as error:
        what = f"{name} must be a time, not '{word}'"
        fix = (
            "give how long ago, such as 90, 15m, 1h or 7d, a date and time, such as 2026-11-01,"
            " 2026-11-01T09:30 or 2026-11-01T09:30:00Z, or a time of today, such as 09:30"
        )
        raise UsageError(what, fix) from error


def durations(word: str, name: str) -> tuple[float, float]:
    """Return the seconds of two durations, such as 1s..10m; one alone is both."""
    least, dots, most = word.partition("..")
    fix = "give two durations such as 1s..10m, the shorter one first"
    first = duration(least, name, fix)
    last = duration(most, name, fix) if dots else first
    if last < first:
        raise UsageError(f"{name} ends with {most}, which is below its start, {least}", fix)
    return first, last


class Choice:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, word: str, name: str) -> str:
        """Return the word."""
        if word not in self.words:
            *most, last = self.words
            what = f"{name} must be {', '.join(most)} or {last}, not '{word}'"
            raise UsageError(what, "choose one of them")
        return word


def refs(word: str, name: str) -> tuple[str, ...]:
    """Return the comma-separated texts, stripped of blanks."""
    return tuple(part.strip() for part in text(word, name).split(","))


def branch(word: str, name: str) -> int | str:
    """Return a context or run: digits as an id, anything else as a name."""
    return WHOLE(word, name) if word.isascii() and word.isdigit() else text(word, name)


def step(word: str, name: str) -> int | str:
    """Return a step: digits as its number, but 64 of them as a hash; anything else as it is."""
    is_number = word.isascii() and word.isdigit() and len(word) != 64
    return WHOLE(word, name) if is_number else text(word, name)


def branches(word: str, name: str) -> list[int | str]:
    """Return the comma-separated contexts."""
    return [branch(part, name) for part in refs(word, name)]


def json_value(word: str, name: str) -> Any:
    """Return a JSON value; raise InputError if it is invalid."""
    from eventq.memory import canonical

    try:
        return canonical.parse(word)
    except InputError as error:
        raise InputError(f"{name}: {error.what}", error.fix) from error


def handled(word: str, name: str) -> str:
    """Return the directory of a thread; raise LogicError for one in PostgreSQL."""
    from eventq.log.notifier import check_dispatch

    path = place(word, name)
    check_dispatch(path)
    return path


def directory(word: str, name: str) -> str:
    """Return the directory of a thread; raise UsageError for the address of a server."""
    from eventq.store.paths import is_shared

    if word and is_shared(word):
        raise UsageError(
            "this command cannot use a thread in PostgreSQL", "give the directory of a thread"
        )
    return place(word, name)


def place(word: str, name: str) -> str:
    """Return the directory or the URL of a thread; raise UsageError for the address of a server."""
    if not word:
        raise UsageError(f"{name} is empty", "give the directory of a thread")
    if word.startswith(_SERVERS):
        raise UsageError(f"'{word}' is a server, which commands do not use", SERVER_ADVICE)
    return word


class Opened:
    """A thread that is open while the command runs.

    It is opened read-only if `reads` is true, or returns so of the words; with `or_reads` where it
    cannot be written. What `allows` returns of the words says whether it may be on any file system
    from now on.
    """

    def __init__(
        self,
        *,
        reads: bool | Callable[[Any], bool] = False,
        or_reads: bool = False,
        allows: Callable[[Any], bool] | None = None,
    ) -> None:
        self._reads = reads
        self._or_reads = or_reads
        self._allows = allows

    def open(self, word: str, name: str, raw: Any) -> Thread:
        """Open the thread; raise the errors of `eventq.open`."""
        reads = self._reads if isinstance(self._reads, bool) else self._reads(raw)
        try:
            return self._open(place(word, name), raw, reads=reads)
        except ReadOnlyError:
            if not self._or_reads:
                raise
            return self._open(place(word, name), raw, reads=True)

    def _open(self, where: str, raw: Any, *, reads: bool) -> Thread:
        from eventq.thread import Thread

        # The tool that `thread` replaces refuses no file system.
        is_allowed = show.program() == "thread" or (self._allows is not None and self._allows(raw))
        return Thread(
            where,
            read_only=reads,
            strict_source=raw.get("strict-source") or None,
            any_mount=is_allowed,
        )


class Switch:
    """A flag, with a value for its presence and one for its absence."""

    def __init__(self, given: object, missing: object) -> None:
        self.given, self.missing = given, missing


ON, OFF = Switch(given=True, missing=False), Switch(given=False, missing=True)
