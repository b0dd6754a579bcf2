"""The grammar of filters: which conditions over events are accepted, and how they are compiled.

Nothing here opens a database. `accept` refuses, at the character at fault, everything that is not
one condition over the columns of an event. `Fragment` is an accepted filter, rewritten so that it
is safe to run:

- For a text that is not JSON, JSON functions and `->` return NULL instead of an error, because
  threads mix JSON and prose. The guard is SQL, `CASE WHEN json_valid(x, 6) THEN x END`. SQLite
  caches the parse, so it runs at 5 million events a second. An operand that is more than a column
  is computed once, in a subquery of one row: written twice, nine nested functions would be
  computed 2^9 times. Python functions of the same names lost: they cost a call per row, and would
  have to reimplement JSON5.
- A filter that mentions columns often gets a jump before each mention, because SQLite checks its
  clock only on jumps.
- `careful` is the form for large values. It has a jump after each function and before each `||`,
  `->`, LIKE and GLOB, and refuses a value on which one of them could work for too long.

The sandbox in `filters/sandbox.py` runs the result. It is safe even if this module misses
something.
"""

from __future__ import annotations

from eventq.errors import FilterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Token = tuple[str, str, int]  # kind, the text as written, offset of its first character

COLUMNS = ("id", "created_at", "source", "type", "subtype", "content")

# Deterministic, without side effects, and linear in the size of their arguments (or made so by the
# sandbox). Left out on purpose: printf, format, zeroblob, randomblob and concat_ws build huge
# values from short filters.
FUNCTIONS = frozenset(
    (  # noqa: SIM905  words read better than a hundred quotes
        "abs acos acosh asin asinh atan atan2 atanh ceil ceiling char coalesce cos cosh date"
        " datetime degrees "
        "exp floor glob hex if ifnull iif instr json json_array_length json_extract json_type"
        " json_valid "
        "julianday length like ln log log10 log2 lower ltrim max min mod nullif octet_length pi"
        " pow power "
        "radians replace round rtrim sign sin sinh sqrt strftime substr substring tan tanh time"
        " timediff trim "
        "trunc typeof unhex unicode unixepoch upper"
    ).split()
)

MAX_TEXT = 65_536  # characters
MAX_DEPTH = 200  # parentheses and CASE
MAX_CALLS = 10  # nested functions
MAX_GUARDS = 16  # nested JSON functions and arrows
MAX_STRETCHES = 8  # pieces of a pattern between the wildcards
MAX_REPEAT = 16  # how often LIKE and GLOB may compare one character of the content
MAX_SETS = 48  # characters of a piece of a GLOB pattern with [sets]: each is scanned
MAX_MENTIONS = 4  # of columns; beyond that the clock is checked before each
MAX_JOINS = 2_000  # operators that copy a value; each rewrites its whole operand
MAX_SKIPPED = 64  # characters that unhex() may skip: it scans them for each byte
# What one LIKE, GLOB or json_extract() may cost: bytes times comparisons. A second or two.
MAX_WORK = 1 << 30
MOST_MADE = 130 << 20  # bytes of the largest values: two characters for each byte of an event
LOOSE_LOOKS = 64  # comparisons per byte assumed for a computed pattern, which cannot be checked

_BLANKS = frozenset(" \t\n\f\r")
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_WORD = _LETTERS | _DIGITS | {"$"}
_OPERATORS = ("->>", "->", "||", "<<", ">>", "<=", ">=", "<>", "==", "!=", *"=<>+-*/%&|~.,()")
_PARAMETERS = frozenset("?:@$#")
_QUOTES = {"'": "'", '"': '"', "`": "`", "[": "]"}

_JOINS = frozenset(
    "AND OR NOT IS IN BETWEEN LIKE GLOB ESCAPE WHEN THEN ELSE AS DISTINCT"  # noqa: SIM905
    " FROM ISNULL NOTNULL".split()
)
_VALUES = frozenset(("NULL", "TRUE", "FALSE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP"))
_PATTERNS = {"LIKE": "%", "GLOB": "*"}
_COLLATIONS = frozenset(("NOCASE", "BINARY", "RTRIM"))
_TYPES = frozenset(("TEXT", "INTEGER", "INT", "REAL", "NUMERIC", "BLOB"))
_JSON = frozenset(("json", "json_array_length", "json_extract", "json_type"))
_TIMES = frozenset(("date", "datetime", "julianday", "strftime", "time", "timediff", "unixepoch"))
_SUBQUERIES = frozenset(
    ("SELECT", "WITH", "VALUES", "UNION", "INTERSECT", "EXCEPT", "EXISTS", "RECURSIVE", "TABLE")
)
_STATEMENTS = frozenset(
    ("PRAGMA", "ATTACH", "DETACH", "INSERT", "UPDATE", "DELETE", "DROP", "CREATE", "VACUUM")
)
_FOREIGN = frozenset(("RAISE", "OVER", "FILTER", "MATCH", "REGEXP"))

_LIST = f"a filter may use {', '.join(COLUMNS)}"


def accept(text: str | None) -> str:
    """Return the filter as written, "" for all events; raise FilterError unless it is a condition.

    This refuses what a filter must not contain. `FilterSandbox.check` applies SQLite's grammar.
    """
    return Fragment(text).text


class Unreadable(str):
    """A stored filter of another tool that is not text (a BLOB, bad UTF-8).

    It can be shown, but is refused when run.
    """

    __slots__ = ()


def check_text(text: object) -> None:
    """Raise FilterError for a filter that is not text."""
    if text is not None and (isinstance(text, Unreadable) or not isinstance(text, str)):
        raise FilterError("the filter is not text", "", 0, "give one SQL condition as text")


class Fragment:
    """An accepted filter in its compiled form, `sql`, and what the sandbox needs to know of it.

    `careful` is the form for large values. `columns` are the columns it uses whose values may be
    large. `calls` are the functions it calls. `clocked` is true if it has a jump before each
    column. `loose` is true if a pattern of LIKE or GLOB is computed, so that it could not be
    checked before. `timed` is true if it may depend on the current time, so that an event which
    does not match now may match later.
    """

    __slots__ = ("_pieces", "calls", "clocked", "columns", "loose", "sql", "text", "timed")

    def __init__(self, text: str | None) -> None:
        check_text(text)
        self.text = text if text is not None and text.strip(" \t\n\f\r") else ""
        reader = _Reader(self.text)
        reader.read()
        self.calls = frozenset(reader.calls)
        self.clocked = reader.mentions > MAX_MENTIONS
        self.loose = reader.loose
        self.timed = reader.timed()
        self.columns = reader.weighed()
        self._pieces = _Writer(reader, clocked=self.clocked).write() if self.text else [("1", 0)]
        self.sql = "".join(piece for piece, _ in self._pieces)

    @property
    def careful(self) -> str:
        """The form for large values, made on demand as few filters need it."""
        return "".join(piece for piece, _ in self._careful_pieces())

    def _careful_pieces(self) -> list[tuple[str, int]]:
        if not self.text:
            return self._pieces
        return _CarefulWriter(_Reader(self.text).read(), clocked=self.clocked).write()

    def place(self, offset: int, *, careful: bool = False) -> int:
        """Return the character offset in `text` of a byte offset in `sql` or `careful`."""
        place = 0
        for piece, at in self._careful_pieces() if careful else self._pieces:
            size = len(piece.encode())
            place = at if at >= 0 else place
            if offset < size:
                inside = piece.encode()[: max(offset, 0)].decode(errors="ignore")
                return place + (len(inside) if at >= 0 else 0)
            offset -= size
        return len(self.text)


# --- SQLite's tokens, without `re`, whose import costs more than all of this ---


def tokens(text: str) -> list[Token]:
    """Return the tokens of a filter: kind, text and offset. Raises FilterError for what is none."""
    found = []
    at = 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
            continue
        if text.startswith("/*", at) and (end := text.find("*/", at + 2)) >= 0:
            at = end + 2
            continue
        kind, end = _next(text, at)
        found.append((kind, text[at:end], at))
        at = end
    return found


def _next(text: str, at: int) -> tuple[str, int]:
    """Return the kind and the end of the token at an offset."""
    char = text[at]
    if char in _QUOTES:
        return ("text" if char == "'" else "name"), _closed(text, at, _QUOTES[char])
    if char in "xX" and text[at + 1 : at + 2] == "'":
        return "blob", _blob(text, at)
    if char in _LETTERS or char > "\x7f":
        return "word", _span(text, at)
    if char in _DIGITS or (char == "." and text[at + 1 : at + 2] in _DIGITS):
        return "number", _number(text, at)
    return _operator(text, at)


def _operator(text: str, at: int) -> tuple[str, int]:
    if text.startswith(("--", "/*"), at):
        raise FilterError(
            "this comment hides the rest of the filter",
            text,
            at,
            "remove it; write '- -' for two minus signs",
        )
    for sign in _OPERATORS:
        if text.startswith(sign, at):
            return sign, at + len(sign)
    if text[at] == ";":
        raise FilterError(
            "a filter is one condition, not a statement",
            text,
            at,
            "remove the semicolon and the rest",
        )
    if text[at] in _PARAMETERS:
        raise FilterError(
            "a filter has no parameters", text, at, "write the value itself, text in single quotes"
        )
    raise FilterError(
        "this character means nothing in a filter", text, at, "put text in single quotes"
    )


def _closed(text: str, at: int, quote: str) -> int:
    """Return the end of a quoted token; a doubled quote is a quote, except in brackets."""
    end = text.find(quote, at + 1)
    while end >= 0 and quote != "]" and text[end + 1 : end + 2] == quote:
        end = text.find(quote, end + 2)
    if end < 0:
        raise FilterError(
            "a quote is not closed",
            text,
            at,
            f"close it with {quote}, and double one inside a text",
        )
    return end + 1


def _blob(text: str, at: int) -> int:
    end = _closed(text, at + 1, "'")
    if (end - at - 3) % 2 or not all(char in _HEX for char in text[at + 2 : end - 1]):
        raise FilterError(
            "a blob is an even number of hex digits", text, at, "write it like x'00ff'"
        )
    return end


def _span(text: str, at: int, chars: frozenset[str] | None = None) -> int:
    """Return the end of a run of characters, by default those of a name."""
    while at < len(text) and (
        text[at] in chars if chars else text[at] in _WORD or text[at] > "\x7f"
    ):
        at += 1
    return at


def _number(text: str, at: int) -> int:
    if text[at : at + 2] in ("0x", "0X"):
        end = _span(text, at + 2, _HEX)
        end = at if end == at + 2 else end
    else:
        end = _decimal(text, at)
    if end == at or _span(text, end) > end:
        raise FilterError("this is not a number", text, at, "write it like 12, 1.5, 1e3 or 0x1f")
    return end


def _decimal(text: str, at: int) -> int:
    end = _span(text, at, _DIGITS)
    if text[end : end + 1] == ".":
        end = _span(text, end + 1, _DIGITS)
    if text[end : end + 1] in ("e", "E"):
        sign = end + 1 + (text[end + 1 : end + 2] in ("+", "-"))
        stop = _span(text, sign, _DIGITS)
        end = stop if stop > sign else end
    return end


def _unquoted(kind: str, word: str) -> str:
    """Return the name that a token spells, in lower case."""
    return (word[1:-1] if kind == "name" else word).lower()


# --- what a filter may contain ---


class _Reader:
    """One pass over the tokens, which refuses bad ones and records calls and columns."""

    def __init__(self, text: str) -> None:
        _readable(text)
        self.text = text
        self.tokens = tokens(text)
        self.calls: set[str] = set()
        self.mentions = 0
        self.columns: set[str] = set()
        self.costs: dict[int, int] = {}  # comparisons per byte, by the index of the pattern
        self.loose = False
        self._aggregates: list[tuple[int, str]] = []
        self._open: list[tuple[str, int]] = []  # "(", "CASE" or a function's name, and where

    def read(self) -> _Reader:
        """Read all tokens and return self; raise FilterError for a bad one."""
        rules: dict[str, Callable[[int], None]] = {
            "word": self._word,
            "name": self._name,
            "(": self._push,
            ")": self._pop,
            ".": self._dot,
        }
        for index, (kind, _, _) in enumerate(self.tokens):
            rule = rules.get(kind)
            if rule:
                rule(index)
        if self._open:
            kind, at = self._open[-1]
            self._refuse(
                at,
                "CASE has no END" if kind == "CASE" else "a parenthesis is not closed",
                "close it",
            )
        # Inside a guard, SQLite would accept these as aggregates over a single row.
        for at, name in self._aggregates:
            what = f"{name}() with one value is an aggregate over rows"
            self._refuse(at, what, f"give {name}() two values")
        return self

    def weighed(self) -> tuple[str, ...]:
        """Return the columns whose size matters: the content, others if more than compared."""
        works = bool(self.calls) or any(
            kind in ("||", "->", "->>") or word.upper() in _PATTERNS
            for kind, word, _ in self.tokens
        )
        return tuple(
            name for name in COLUMNS[2:] if name in self.columns and (works or name == "content")
        )

    def timed(self) -> bool:
        """Return whether the filter may depend on the current time.

        All time functions may, except on the event's time and on literals.
        """
        for index, (kind, word, _) in enumerate(self.tokens):
            if kind == "word" and word.upper().startswith("CURRENT_"):
                return True
            name = word.lower()
            if kind == "word" and name in _TIMES and self.is_call(index):
                values = self.arguments(index + 2)
                values = (
                    values
                    if name == "timediff"
                    else values[1:2]
                    if name == "strftime"
                    else values[:1]
                )
                if not values or not all(map(_fixed, values)):
                    return True
        return False

    def arguments(self, index: int) -> list[list[Token]]:
        """Return the tokens of each argument of a call, given the index after its parenthesis."""
        found: list[list[Token]] = [[]]
        depth = 0
        for at in range(index, len(self.tokens)):
            token = self.tokens[at]
            depth += (token[0] == "(") - (token[0] == ")")
            if depth < 0:
                break
            if token[0] == "," and not depth:
                found.append([])
            else:
                found[-1].append(token)
        return found

    def infix(self, index: int) -> bool:
        """Return whether LIKE or GLOB is an operator here, not the function of that name."""
        while self._before(index) == "NOT":
            index -= 1  # of NOT LIKE, or of a negated condition that may start with like()
        kind, word, _ = self.tokens[index - 1] if index else ("", "", 0)
        if kind == "word":
            return word.upper() not in _JOINS | {"CASE"}
        return kind in ("text", "name", "number", "blob", ")")

    def is_call(self, index: int) -> bool:
        """Return whether the word at an index is the name of a function that is called."""
        word = self.tokens[index][1].upper()
        if self._kind(index + 1) != "(" or word == "CASE":
            return False
        return not self.infix(index) if word in _PATTERNS else word not in _JOINS

    def _refuse(self, at: int, what: str, fix: str) -> None:
        raise FilterError(what, self.text, at, fix)

    def _kind(self, index: int) -> str:
        return self.tokens[index][0] if 0 <= index < len(self.tokens) else ""

    def _before(self, index: int) -> str:
        return self.tokens[index - 1][1].upper() if index else ""

    def _word(self, index: int) -> None:
        word, at = self.tokens[index][1].upper(), self.tokens[index][2]
        self._forbidden(word, at)
        if self._before(index) == "COLLATE":
            self._one_of(index, _COLLATIONS, "collation")
        elif self._before(index) == "AS":
            self._one_of(index, _TYPES, "type")
        elif self.is_call(index):
            self._call(index)
        elif word in _PATTERNS:
            self._pattern(index + 1, _PATTERNS[word])
        elif word in ("CASE", "END"):
            self._case(word, at)
        elif word == "IN":
            self._list(index)
        elif word not in _JOINS and word not in _VALUES and word != "COLLATE":
            self._name(index)

    def _forbidden(self, word: str, at: int) -> None:
        if word in _SUBQUERIES:
            self._refuse(at, f"{word} is refused: a filter has no subquery", _LIST)
        if word in _STATEMENTS:
            self._refuse(at, f"{word} is refused: a filter is a condition, not a statement", _LIST)
        if word in _FOREIGN:
            self._refuse(at, f"{word} is not available in a filter", "use LIKE, GLOB or instr()")

    def _one_of(self, index: int, names: frozenset[str], what: str) -> None:
        _, word, at = self.tokens[index]
        if word.upper() not in names:
            self._refuse(at, f"unknown {what} '{word}'", f"use one of {', '.join(sorted(names))}")

    def _call(self, index: int) -> None:
        _, word, at = self.tokens[index]
        name = word.lower()
        if name != "cast" and name not in FUNCTIONS:
            self._refuse(at, f"'{word}' is not a function a filter may use", _nearest(name))
        self.calls.add(name)
        if name.upper() in _PATTERNS:
            self._pattern(index + 2, _PATTERNS[name.upper()])
        elif name in ("max", "min") and len(self.arguments(index + 2)) == 1:
            self._aggregates.append((at, name))
        elif name == "unhex":
            self._skipped(index + 2)

    def _skipped(self, index: int) -> None:
        """Raise FilterError if unhex() skips too many characters, or computed ones."""
        for argument in self.arguments(index)[1:]:
            kind, word, at = argument[0] if argument else ("", "", len(self.text))
            if len(argument) != 1 or kind != "text" or len(word) > MAX_SKIPPED + 2:
                what = f"unhex() skips at most {MAX_SKIPPED} characters, given as a literal"
                self._refuse(at, what, "write them as text in single quotes")

    def _pattern(self, index: int, wildcard: str) -> None:
        """Check the pattern at an index if it is a literal; else record that one is computed."""
        if self._kind(index) == "text":
            _, word, at = self.tokens[index]
            self.costs[index] = _cost(word[1:-1], wildcard, self.text, at)
        if self._kind(index) != "text" or self._kind(index + 1) in ("||", "->", "->>"):
            self.loose = True
            self.costs[index] = LOOSE_LOOKS

    def _list(self, index: int) -> None:
        if self._kind(index + 1) != "(":
            at = self.tokens[index + 1][2] if self._kind(index + 1) else len(self.text)
            self._refuse(at, "IN takes a list in parentheses", "write IN ('a', 'b')")

    def _name(self, index: int) -> None:
        kind, word, at = self.tokens[index]
        name = _unquoted(kind, word)
        if name == "events" and self._kind(index + 1) == "." and self._before(index) != ".":
            return
        if name not in COLUMNS:
            if word[0] == '"':
                self._refuse(at, f"{word} is not a column", "use single quotes for text")
            self._refuse(
                at, f"'{word}' is not a column", f"{_LIST}, and text stands in single quotes"
            )
        self.mentions += name != "id"
        self.columns.add(name)

    def _dot(self, index: int) -> None:
        kind, word, at = self.tokens[index - 1] if index else ("", "", 0)
        if kind not in ("word", "name") or _unquoted(kind, word) != "events":
            self._refuse(at if index else 0, "only 'events' stands before a point", _LIST)
        kind, word, at = (
            self.tokens[index + 1] if self._kind(index + 1) else ("", "", len(self.text))
        )
        if _unquoted(kind, word) not in COLUMNS:
            self._refuse(at, "a column must follow 'events.'", _LIST)

    def _push(self, index: int) -> None:
        call = self._kind(index - 1) == "word" and self.is_call(index - 1)
        self._enter(self.tokens[index - 1][1] if call else "(", self.tokens[index][2])
        if sum(kind not in ("(", "CASE") for kind, _ in self._open) > MAX_CALLS:
            self._refuse(
                self.tokens[index][2],
                f"more than {MAX_CALLS} nested functions",
                "nest fewer",
            )

    def _enter(self, kind: str, at: int) -> None:
        self._open.append((kind, at))
        if len(self._open) > MAX_DEPTH:
            self._refuse(
                at,
                f"more than {MAX_DEPTH} levels of parentheses",
                "write it flat; OR and AND need none",
            )

    def _pop(self, index: int) -> None:
        at = self.tokens[index][2]
        if not self._open:
            self._refuse(
                at, "a parenthesis closes that was never opened", "remove it, or open one before it"
            )
        kind, start = self._open.pop()
        if kind == "CASE":
            self._refuse(start, "CASE has no END", "close it before the parenthesis")

    def _case(self, word: str, at: int) -> None:
        if word == "CASE":
            self._enter("CASE", at)
        elif not self._open or self._open.pop()[0] != "CASE":
            self._refuse(at, "END without CASE", "remove it, or begin with CASE WHEN")


def _fixed(argument: list[Token]) -> bool:
    """Return whether a time is the event's or a literal: 'now' and 'subsec' start with no digit."""
    if len(argument) != 1:
        return False
    kind, word, _ = argument[0]
    return word[1:2] in _DIGITS if kind == "text" else _unquoted(kind, word) == "created_at"


def _readable(text: str) -> None:
    """Raise FilterError for a text that is too long, or that SQLite would truncate or reject."""
    if len(text) > MAX_TEXT:
        raise FilterError(
            f"the filter is longer than {MAX_TEXT} characters",
            text,
            MAX_TEXT,
            "use IN lists or ranges",
        )
    if "\0" in text:
        raise FilterError("the filter contains NUL", text, text.index("\0"), "remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterError(
            "the filter is not valid Unicode", text, error.start, "remove the character"
        ) from None


def _cost(pattern: str, wildcard: str, text: str, at: int) -> int:
    """Return how often LIKE (`%`) or GLOB (`*`) may compare a byte; refuse an excess."""
    stretches = [part for part in pattern.lower().split(wildcard) if part]
    if len(stretches) > MAX_STRETCHES:
        what = f"the pattern has more than {MAX_STRETCHES} pieces between its wildcards"
        raise FilterError(what, text, at, "search for fewer pieces of text")
    # A stretch at the start is compared at one position only.
    searched = stretches if pattern.startswith(wildcard) else stretches[1:]
    if wildcard == "*" and any("[" in part and len(part) > MAX_SETS for part in searched):
        raise FilterError(
            "the pattern has too many sets in a row", text, at, "search for a shorter text"
        )
    looks = [_repeats(part, "_" if wildcard == "%" else "?") for part in searched]
    if max(looks, default=1) > MAX_REPEAT:
        raise FilterError(
            "the pattern repeats itself too often", text, at, "search for a shorter text"
        )
    sets = [len(part) for part in searched if wildcard == "*" and "[" in part]
    return max([1, *sets, *(int(look + 1) for look in looks)])


def _repeats(stretch: str, anything: str) -> float:
    """Return how often a search for a stretch may compare one character.

    This is the maximum of length over period of its prefixes. It was `%aaa…ab%`, not many
    wildcards, that kept LIKE busy for a minute on 64 MiB. Only shifts that could exceed the limit
    are tried, so this takes microseconds. The character `anything` matches any other.
    """
    worst = 1.0
    for shift in range(1, len(stretch) // MAX_REPEAT + 1):
        end = shift
        while end < len(stretch) and (
            stretch[end] == stretch[end - shift] or stretch[end] in anything
        ):
            end += 1
        worst = max(worst, end / shift)
    return worst


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(FUNCTIONS), 1)
    return f"did you mean {close[0]}()?" if close else f"use one of {', '.join(sorted(FUNCTIONS))}"


# --- advice ---

SPELLING = "strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour')"  # a time in created_at's format
_ORDERS = frozenset(("=", "==", "<", "<=", ">", ">=", "<>", "!=", "IS", "BETWEEN", "NOT"))
_OTHER_TIMES = frozenset(("datetime", "time", "julianday", "unixepoch"))
_EXTENDS = frozenset(("||", "->", "->>", "+", "-", "*", "/", "%", "&", "|", "<<", ">>"))


def advice(text: str | None) -> str:
    """Return a sentence on what is probably wrong with an accepted filter, or "".

    `created_at` is text like 2026-03-18T10:30:00.123Z. SQLite's own functions return times with a
    blank in place of the T, or numbers, so that a comparison compares the blank with the T. Only a
    comparison of the bare column with a bare call or literal is reported, as all else may be
    intended.
    """
    reader = _Reader(text or "")
    tokens = reader.tokens
    for index, token in enumerate(tokens):
        if token[0] not in ("word", "name") or _unquoted(*token[:2]) != "created_at":
            continue
        start = index
        if index > 1 and tokens[index - 1][0] == ".":
            start = index - 2  # events.created_at
        for other in (*_compared_after(reader, index + 1), *_compared_before(reader, start - 1)):
            if wrong := _other_spelling(reader, other):
                what = (
                    f"the filter compares created_at with {wrong}, which spells times differently"
                )
                return f"{what} - compare created_at with {SPELLING}, or {_alike(wrong)} with it"
    return ""


def _alike(wrong: str) -> str:
    """Return created_at in the format of what it was compared with."""
    name, bracket, form = wrong.partition("(")
    if not bracket or wrong.startswith("'"):
        return "time(created_at)" if name.lower() == "current_time" else "datetime(created_at)"
    return f"{name}({form.removesuffix(')') + ',' if form != ')' else ''}created_at)"


def _word(reader: _Reader, index: int) -> str:
    return reader.tokens[index][1].upper() if 0 <= index < len(reader.tokens) else ""


def _compared_after(reader: _Reader, index: int) -> list[int]:
    """Return the starts of the values that the column before a token is compared with."""
    if _word(reader, index) not in _ORDERS:
        return []
    between = "BETWEEN" in (_word(reader, index), _word(reader, index + 1))
    while _word(reader, index) in _ORDERS:
        index += 1
    end = _end_of_value(reader, index)
    return [index, end + 1] if between and _word(reader, end) == "AND" else [index]


def _compared_before(reader: _Reader, index: int) -> list[int]:
    """Return the start of the value that is compared with the column after a token."""
    if _word(reader, index) not in _ORDERS - {"NOT"}:
        return []
    end = index - 1 - (_word(reader, index - 1) == "NOT")
    depth = 0
    for at in range(end, -1, -1):
        depth += (_word(reader, at) == ")") - (_word(reader, at) == "(")
        if depth <= 0:
            start = at - (_word(reader, at) == "(" and at > 0 and reader.is_call(at - 1))
            return [] if _word(reader, start - 1) in _EXTENDS else [start]
    return []


def _end_of_value(reader: _Reader, index: int) -> int:
    """Return the index after a call, a text or a word."""
    depth = 0
    while index < len(reader.tokens):
        depth += (_word(reader, index) == "(") - (_word(reader, index) == ")")
        index += 1
        if depth <= 0 and _word(reader, index) != "(":
            break
    return index


def _other_spelling(reader: _Reader, index: int) -> str:
    """Return the source of a value that is a time in another format than created_at, else ""."""
    tokens = reader.tokens
    while _word(reader, index) == "(":
        index += 1
    if index >= len(tokens) or _word(reader, _end_of_value(reader, index)) in _EXTENDS:
        return ""
    kind, word, _ = tokens[index]
    name = word.lower()
    if kind == "text":
        return f"'{word[1:-1]}'" if _is_odd_time(word[1:-1]) else ""
    if kind != "word":
        return ""
    if name in ("current_timestamp", "current_time"):
        return word
    if not reader.is_call(index):
        return ""
    if name in _OTHER_TIMES:
        return f"{name}()"
    form = tokens[index + 2] if name == "strftime" and index + 2 < len(tokens) else ("", "", 0)
    odd = form[0] == "text" and (" " in form[1] or form[1].startswith(("'%s", "'%J")))
    return f"strftime({form[1]})" if odd else ""


def _is_odd_time(text: str) -> bool:
    """Return whether a text is a date, a blank and a time."""
    parts = [len(part) if part.isdigit() else 0 for part in text[:10].split("-")]
    return parts == [4, 2, 2] and text[10:11] == " " and text[11:13].isdigit()


# --- the compiled form ---


class _Writer:
    """One pass over accepted tokens, which adds the guards. A piece is text and its offset.

    Added pieces have the offset -1. For each open level, `_starts` holds the piece at which the
    operand of a following `->` starts: `||`, `->`, COLLATE and a sign extend an operand, every
    other operator starts a new one. `_ends` holds what an operand ends in. "->" returns JSON or
    NULL, and "IN" (also for NOTNULL and ISNULL) 0 or 1, so neither needs a guard.
    """

    def __init__(self, reader: _Reader, *, clocked: bool) -> None:
        self._reader = reader
        self._pieces: list[tuple[str, int]] = []
        self._starts = [0]
        self._ends = [""]
        # For each open level: the first piece of a JSON function's first argument, or -1.
        self._guards: list[int] = []
        self._lists: list[bool] = []  # for each open level: whether it is the list of IN
        self._clocked = clocked

    def write(self) -> list[tuple[str, int]]:
        """Return the pieces of the rewritten filter."""
        for index in range(len(self._reader.tokens)):
            self._token(index)
        return self._pieces

    def _token(self, index: int) -> None:
        kind, word, at = self._reader.tokens[index]
        upper = word.upper() if kind == "word" else kind
        if upper in (",", ")"):
            self._end_argument(at)
        if upper in ("->", "->>") and not self._ends[-1]:
            self._guard(self._starts[-1], at)
        if upper in (")", "END"):
            self._leave()
        self._emit(index, upper, word, at)
        if upper in ("(", "CASE"):
            self._enter(index, upper)
        elif self._is_break(index, kind, upper):
            self._starts[-1] = len(self._pieces)
            self._ends[-1] = "IN" if upper in ("ISNULL", "NOTNULL") else ""
        elif upper in ("->", "->>", "||") and self._ends[-1] != "IN":
            self._ends[-1] = upper if upper == "->" else ""
        elif upper == "NULL" and index and self._reader.tokens[index - 1][1].upper() == "NOT":
            self._ends[-1] = "IN"

    def _emit(self, index: int, upper: str, word: str, at: int) -> None:
        if upper == "." or _unquoted(*self._reader.tokens[index][:2]) == "events":
            return  # there is only one table: events.type is the same as type
        if self._clocked and self._is_column(index):
            self._pieces += [
                ("CAST(CASE WHEN 1 THEN ", -1),
                (f"{word} ", at),
                ("END AS TEXT) ", -1),
            ]
        else:
            self._pieces.append((f"{word} ", at))

    def _is_column(self, index: int) -> bool:
        kind, word, _ = self._reader.tokens[index]
        return kind in ("word", "name") and _unquoted(kind, word) in COLUMNS[1:]

    def _is_break(self, index: int, kind: str, upper: str) -> bool:
        if kind == "word":
            return upper in _JOINS and not self._reader.is_call(index)
        if kind in ("-", "+", "~"):
            return self._reader.infix(index)
        return kind not in ("text", "name", "number", "blob", "||", "->", "->>", ")", ".")

    def _enter(self, index: int, upper: str) -> None:
        name = self._reader.tokens[index - 1][1].lower() if index and upper == "(" else ""
        self._guards.append(len(self._pieces) if name in _JSON else -1)
        self._starts.append(len(self._pieces))
        self._ends.append("")
        self._lists.append(name == "in")

    def _leave(self) -> None:
        self._guards.pop()
        self._starts.pop()
        self._ends.pop()
        if self._lists.pop():
            self._ends[-1] = "IN"

    def _end_argument(self, at: int) -> None:
        if self._guards and self._guards[-1] >= 0:
            self._guard(self._guards[-1], at)
            self._guards[-1] = -1

    def _guard(self, start: int, at: int) -> None:
        """Replace the operand that starts at a piece by NULL unless it is JSON."""
        inner = self._pieces[start:]
        if len(inner) <= _SIMPLE:
            self._pieces[start:] = [_VALID, *inner, _THEN, *inner, ("END) ", -1)]
        else:
            if _depth(inner) >= MAX_GUARDS:
                what = f"more than {MAX_GUARDS} nested JSON functions"
                raise FilterError(what, self._reader.text, at, "nest fewer")
            self._pieces[start:] = [_BIND_VALID, *inner, _BOUND, *_collation(inner)]


_SIMPLE = 3  # pieces of an operand that may be written twice: a column, or one in parentheses
_VALID = ("(CASE WHEN json_valid(", -1)
_THEN = (",6) THEN ", -1)
_BIND_VALID = ("(SELECT CASE WHEN json_valid(v,6) THEN v END FROM (SELECT (", -1)
_BOUND = (") AS v)) ", -1)
_WEIGHED = (") AS v) ) ", -1)
_COMPARISONS = frozenset(
    "= == < > <= >= <> != IS FROM IN BETWEEN LIKE GLOB ISNULL NOTNULL".split()  # noqa: SIM905
)
_ENDS_COMPARISON = frozenset(("AND", "OR", "NOT", ",", "WHEN", "THEN", "ELSE"))


def _depth(pieces: list[tuple[str, int]]) -> int:
    """Return how deeply the guards of pieces are nested."""
    depth = most = 0
    for piece in pieces:
        depth += (piece is _BIND_VALID) - (piece is _BOUND)
        most = max(most, depth)
    return most


def _collation(pieces: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the collation of an operand, to be repeated after a subquery, which hides it."""
    for index, (piece, _) in enumerate(pieces):
        if piece.upper() == "COLLATE ":
            return [(pieces[index][0], -1), (pieces[index + 1][0], -1)]
    return []


class _CarefulWriter(_Writer):
    """The form for large values, which checks the clock between any two slow steps."""

    def __init__(self, reader: _Reader, *, clocked: bool) -> None:
        super().__init__(reader, clocked=clocked)
        # Of each open level:
        self._names: list[int] = []  # the piece of the function's name, or -1
        self._texts: list[tuple[int, int]] = []  # the cost of like(), and where its text starts
        self._paths: list[int] = []  # the number of paths of json_extract()
        self._compared = [""]  # the operator that compares this operand with the one before
        self._joins = 0

    def _token(self, index: int) -> None:
        kind, word, at = self._reader.tokens[index]
        upper = word.upper() if kind == "word" else kind
        if upper in ("||", "->", "->>") and self._ends[-1] != "IN":
            self._joins += 1
            if self._joins > MAX_JOINS:
                what = f"more than {MAX_JOINS} of ||, -> and ->> with a value above 64 KiB"
                raise FilterError(what, self._reader.text, at, "use fewer")
            self._jump(self._starts[-1])
        elif self._is_match(index) and not self._compared[-1] and self._ends[-1] != "IN":
            self._weigh(self._starts[-1], self._cost_behind(index))
        if upper in (",", ")") and self._texts and self._texts[-1][0]:
            self._end_text(upper)
        super()._token(index)
        if upper in _COMPARISONS and not self._reader.is_call(index):
            self._compared[-1] = upper
        elif self._compared[-1] == "BETWEEN" and upper == "AND":
            self._compared[-1] = "AND"  # of a BETWEEN
        elif upper in _ENDS_COMPARISON and not (upper == "NOT" and self._compared[-1] == "IS"):
            self._compared[-1] = ""

    def _is_match(self, index: int) -> bool:
        """Return whether an operand ends here because [NOT] LIKE or GLOB follows."""
        words = [word.upper() for _, word, _ in self._reader.tokens[index : index + 2]]
        if words[0] in _PATTERNS and not self._reader.is_call(index):
            return bool(index) and self._reader.tokens[index - 1][1].upper() != "NOT"
        return (
            words[0] == "NOT"
            and words[-1] in _PATTERNS
            and bool(index)
            and self._reader.infix(index)
        )

    def _cost_behind(self, index: int) -> int:
        return max(self._reader.costs.get(index + 1, 0), self._reader.costs.get(index + 2, 0), 1)

    def _enter(self, index: int, upper: str) -> None:
        super()._enter(index, upper)
        before = self._reader.tokens[index - 1][0] if index else ""
        call = upper == "(" and before == "word" and self._reader.is_call(index - 1)
        name = self._reader.tokens[index - 1][1].upper() if call else ""
        self._names.append(len(self._pieces) - 2 if call and name != "CAST" else -1)
        self._texts.append(
            (self._reader.costs.get(index + 1, 0), -1) if name in _PATTERNS else (0, -1)
        )
        self._compared.append("")
        paths = len(self._reader.arguments(index + 1)) - 1 if name == "JSON_EXTRACT" else 0
        self._paths.append(paths)

    def _end_argument(self, at: int) -> None:
        if self._guards and self._guards[-1] >= 0 and self._paths[-1] > 1:
            self._weigh(self._guards[-1], self._paths[-1])
        super()._end_argument(at)

    def _leave(self) -> None:
        super()._leave()
        self._texts.pop()
        self._paths.pop()
        self._compared.pop()

    def _emit(self, index: int, upper: str, word: str, at: int) -> None:
        super()._emit(index, upper, word, at)
        if upper in (")", "END"):
            name = self._names.pop()
            if name >= 0:
                self._jump(name)

    def _end_text(self, upper: str) -> None:
        """Limit the second argument of like() or glob(), which is the text to search."""
        cost, start = self._texts[-1]
        if start >= 0:
            self._weigh(start, cost)
            self._texts[-1] = (0, -1)
        elif upper == ",":
            self._texts[-1] = (cost, len(self._pieces) + 1)

    def _jump(self, start: int) -> None:
        """Make SQLite check the clock after computing the operand that starts at a piece."""
        self._pieces[start:] = [("(CASE WHEN 1 THEN ", -1), *self._pieces[start:], ("END) ", -1)]

    def _weigh(self, start: int, cost: int) -> None:
        """Refuse the operand that starts at a piece at run time if it is too large for its use."""
        most = MAX_WORK // cost
        if most >= MOST_MADE:
            self._jump(start)  # a subquery would copy the value
            return
        head = (
            f"(SELECT CASE WHEN octet_length(v)>{most} "  # noqa: S608
            "THEN eventq_heavy() ELSE v END FROM (SELECT ("
        )
        inner = self._pieces[start:]
        self._pieces[start:] = [(head, -1), *inner, _WEIGHED, *_collation(inner)]
