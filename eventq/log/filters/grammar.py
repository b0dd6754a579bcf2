"""The grammar of filters: which conditions over events are accepted.

Nothing here opens a database. SQLite compiles every filter by itself before it is run, and refuses
what is not one expression over the columns and functions that the sandbox allows. `accept` refuses,
at the character at fault, what SQLite would take and no filter may contain: subqueries, parameters,
parentheses that leave the expression, and patterns that would be searched for too long.

The sandbox in `filters/sandbox.py` runs the result. It is safe even if this module misses
something.
"""

from __future__ import annotations

from eventq.errors import FilterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    Token = tuple[str, str, int]  # kind, the text as written, offset of its first character

COLUMNS = ("id", "created_at", "source", "type", "subtype", "content")

# Deterministic, without side effects, and linear in the size of their arguments (or made so by the
# sandbox). Left out on purpose: printf, format, zeroblob, randomblob and concat_ws build huge
# values from short filters.
FUNCTIONS = frozenset(
    (  # noqa: SIM905  words read better than a hundred quotes
        "abs acos acosh asin asinh atan atan2 atanh ceil ceiling char coalesce cos cosh date"
        " datetime degrees exp floor glob hex if ifnull iif instr json json_array_length"
        " json_extract json_type json_valid julianday length like ln log log10 log2 lower ltrim"
        " max min mod nullif octet_length pi pow power radians replace round rtrim sign sin sinh"
        " sqrt strftime substr substring tan tanh time timediff trim trunc typeof unhex unicode"
        " unixepoch upper"
    ).split()
)

MAX_TEXT = 65_536  # characters
MAX_PATHS = 16  # of json_extract(): each is sought in the whole value
MAX_STRETCHES = 8  # pieces of a pattern between the wildcards
MAX_REPEAT = 16  # how often LIKE and GLOB may compare one character of the content
MAX_SETS = 48  # characters of a piece of a GLOB pattern with [sets]: each is scanned
MAX_SKIPPED = 64  # characters that unhex() may skip: it scans them for each byte

_DIGITS = frozenset("0123456789")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$") | _DIGITS
_OPERATORS = ("->>", "->", "||", "<<", ">>", "<=", ">=", "<>", "==", "!=")
_QUOTES = {"'": "'", '"': '"', "`": "`", "[": "]"}

# Words after which an operand starts.
JOINS = frozenset(
    "AND OR NOT IS IN BETWEEN LIKE GLOB ESCAPE WHEN THEN ELSE AS DISTINCT"  # noqa: SIM905
    " FROM ISNULL NOTNULL".split()
)
_UNCALLED = JOINS | {"CASE"}  # a parenthesis after them is no call
PATTERNS = {"LIKE": "%", "GLOB": "*"}
_TIMES = frozenset(("date", "datetime", "julianday", "strftime", "time", "timediff", "unixepoch"))
_TYPES = ("BLOB", "INT", "INTEGER", "NUMERIC", "REAL", "TEXT")  # of CAST
_SUBQUERIES = ("SELECT", "VALUES", "WITH")


class Unreadable(str):
    """A stored filter of another tool that is not text (a BLOB, bad UTF-8).

    It can be shown, but is refused when run.
    """

    __slots__ = ()


# --- SQLite's tokens, without `re`, whose import costs more than all of this ---


def tokens(text: str) -> list[Token]:
    """Return the tokens of a filter: kind, text and offset; the kind of an operator is itself.

    Raises FilterError for a comment or a quote that is not closed, and for a parameter. All else
    is left to SQLite, such as what is a number.
    """
    found = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n\f\r":
            at += 1
        elif text.startswith("/*", at) and (end := text.find("*/", at + 2)) >= 0:
            at = end + 2
        else:
            kind, end = _next(text, at)
            found.append((kind, text[at:end], at))
            at = end
    return found


def _next(text: str, at: int) -> tuple[str, int]:
    """Return the kind and the end of the token at an offset."""
    char = text[at]
    if char in _QUOTES:
        return ("text" if char == "'" else "name"), _closed(text, at, _QUOTES[char])
    if text[at : at + 2] in ("x'", "X'"):
        return "blob", _closed(text, at + 1, "'")
    if char in _DIGITS or (char == "." and text[at + 1 : at + 2] in _DIGITS):
        return "number", _number(text, at)
    if text.startswith(("--", "/*"), at):
        what, fix = "this comment hides the rest of the filter", "write '- -' for two minus signs"
        raise FilterError(what, text, at, f"remove it; {fix}")
    if char == ";":
        what = "a filter is one condition, not a statement"
        raise FilterError(what, text, at, "remove the semicolon and the rest")
    if char in "?:@$#":
        fix = "write the value itself, text in single quotes"
        raise FilterError("a filter has no parameters", text, at, fix)
    if (end := _span(text, at)) > at:
        return "word", end
    sign = next((sign for sign in _OPERATORS if text.startswith(sign, at)), char)
    return sign, at + len(sign)


def _closed(text: str, at: int, quote: str) -> int:
    """Return the end of a quoted token; a doubled quote is a quote, except in brackets."""
    end = text.find(quote, at + 1)
    while end >= 0 and quote != "]" and text[end + 1 : end + 2] == quote:
        end = text.find(quote, end + 2)
    if end < 0:
        fix = f"close it with {quote}, and double one inside a text"
        raise FilterError("a quote is not closed", text, at, fix)
    return end + 1


def _span(text: str, at: int) -> int:
    """Return the end of a run of the characters of a name."""
    while at < len(text) and (text[at] in _WORD or text[at] > "\x7f"):
        at += 1
    return at


def _number(text: str, at: int) -> int:
    """Return the end of what may be one number: SQLite knows whether it is."""
    end = _span(text, at)
    is_hex = text[at : at + 2].lower() == "0x"
    while not is_hex and (
        text[end : end + 1] == "." or (text[end - 1] in "eE" and text[end : end + 1] in ("+", "-"))
    ):
        end = _span(text, end + 1)
    return end


# --- what a filter may contain ---


class Words:
    """The tokens of a filter, and what they are by their places."""

    def __init__(self, text: str) -> None:
        """Read a filter. Raises FilterError for what is no token."""
        _readable(text)
        self.text = text
        self.tokens = tokens(text)

    def kind(self, index: int) -> str:
        """Return the kind of a token, or "" beyond the ends."""
        return self.tokens[index][0] if 0 <= index < len(self.tokens) else ""

    def word(self, index: int) -> str:
        """Return a token in upper case, or "" beyond the ends."""
        return self.tokens[index][1].upper() if 0 <= index < len(self.tokens) else ""

    def name(self, index: int) -> str:
        """Return the name that a token spells, in lower case; "" for other tokens."""
        kind, word = self.kind(index), self.word(index).lower()
        return word[1:-1] if kind == "name" else word if kind == "word" else ""

    def infix(self, index: int) -> bool:
        """Return whether a sign, LIKE or GLOB has an operand before it.

        Otherwise, LIKE or GLOB is the function of that name.
        """
        while self.word(index - 1) == "NOT":
            index -= 1  # of NOT LIKE, or of a negated condition that may start with like()
        if self.kind(index - 1) == "word":
            return self.word(index - 1) not in _UNCALLED
        return self.kind(index - 1) in ("text", "name", "number", "blob", ")")

    def is_call(self, index: int) -> bool:
        """Return whether a token is the name of a function that is called."""
        word = self.word(index)
        if self.kind(index) not in ("word", "name") or self.kind(index + 1) != "(":
            return False
        return not self.infix(index) if word in PATTERNS else word not in _UNCALLED

    def arguments(self, index: int) -> list[list[Token]]:
        """Return the tokens of each argument of a call, given the index of its name."""
        found: list[list[Token]] = [[]]
        depth = 0
        for at in range(index + 2, len(self.tokens)):
            token = self.tokens[at]
            depth += (token[0] == "(") - (token[0] == ")")
            if depth < 0:
                break
            if token[0] == "," and not depth:
                found.append([])
            else:
                found[-1].append(token)
        return found

    def refuse(self, index: int, what: str, fix: str) -> NoReturn:
        """Raise FilterError at a token, or at the end."""
        at = self.tokens[index][2] if index < len(self.tokens) else len(self.text)
        raise FilterError(what, self.text, at, fix)


def accept(words: Words) -> None:
    """Raise FilterError for what no filter may contain, at the token at fault."""
    opened = []  # parentheses
    for index, (kind, word, _) in enumerate(words.tokens):
        if kind == "(":
            opened.append(index)
        elif kind == ")":
            if not opened:
                what = "a parenthesis closes that was never opened"
                words.refuse(index, what, "remove it, or open one before it")
            opened.pop()
        elif kind == "word" and word.upper() in _SUBQUERIES:
            what = f"{word.upper()} is refused: a filter has no subquery"
            words.refuse(index, what, "write one condition over the columns of one event")
        elif words.word(index - 1) == "AS" and word.upper() not in _TYPES:
            words.refuse(index, f"unknown type '{word}'", f"use one of {', '.join(_TYPES)}")
        elif words.is_call(index):
            _check_call(words, index)
        elif kind == "word" and word.upper() in PATTERNS:
            _check_pattern(words, index + 1, PATTERNS[word.upper()])
        elif kind == "word" and word.upper() == "IN" and words.kind(index + 1) != "(":
            words.refuse(index + 1, "IN takes a list in parentheses", "write IN ('a', 'b')")
    if opened:
        words.refuse(opened[-1], "a parenthesis is not closed", "close it")


def _check_call(words: Words, index: int) -> None:
    name = words.tokens[index][1].lower()
    if name.upper() in PATTERNS:
        _check_pattern(words, index + 2, PATTERNS[name.upper()])
    elif name == "json_extract" and len(words.arguments(index)) > MAX_PATHS + 1:
        words.refuse(index, f"json_extract() takes at most {MAX_PATHS} paths", "ask for fewer")
    elif name == "unhex":
        for skipped in words.arguments(index)[1:]:
            kind, word, at = skipped[0] if skipped else ("", "", len(words.text))
            if len(skipped) != 1 or kind != "text" or len(word) > MAX_SKIPPED + 2:
                what = f"unhex() skips at most {MAX_SKIPPED} characters, given as a literal"
                raise FilterError(what, words.text, at, "write them as text in single quotes")


def _readable(text: str) -> None:
    """Raise FilterError for a text that is too long, or that SQLite would truncate or reject."""
    if len(text) > MAX_TEXT:
        what = f"the filter is longer than {MAX_TEXT} characters"
        raise FilterError(what, text, MAX_TEXT, "use IN lists or ranges")
    if "\0" in text:
        raise FilterError("the filter contains NUL", text, text.index("\0"), "remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        what = "the filter is not valid Unicode"
        raise FilterError(what, text, error.start, "remove the character") from None


def is_literal(words: Words, index: int) -> bool:
    """Return whether a pattern is a literal, so that it has been checked."""
    return words.kind(index) == "text" and words.kind(index + 1) not in ("||", "->", "->>")


def _check_pattern(words: Words, index: int, wildcard: str) -> None:
    """Refuse a literal for LIKE (`%`) or GLOB (`*`) that compares a byte too often."""
    if words.kind(index) != "text":
        return
    pattern = words.tokens[index][1][1:-1].lower()
    stretches = [part for part in pattern.split(wildcard) if part]
    what, fix = "", "search for a shorter text"
    # A stretch at the start is compared at one position only.
    searched = stretches if pattern.startswith(wildcard) else stretches[1:]
    if len(stretches) > MAX_STRETCHES:
        what = f"the pattern has more than {MAX_STRETCHES} pieces between its wildcards"
        fix = "search for fewer pieces of text"
    elif wildcard == "*" and any("[" in part and len(part) > MAX_SETS for part in searched):
        what = "the pattern has too many sets in a row"
    elif any(_repeats(part, "_" if wildcard == "%" else "?") > MAX_REPEAT for part in searched):
        what = "the pattern repeats itself too often"
    if what:
        words.refuse(index, what, fix)


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


def is_timed(words: Words) -> bool:
    """Return whether a filter may depend on the current time.

    All time functions may, except on the event's time and on literals.
    """
    for index in range(len(words.tokens)):
        if words.kind(index) == "word" and words.word(index).startswith("CURRENT_"):
            return True
        name = words.name(index)
        if name in _TIMES and words.is_call(index):
            first = name == "strftime"  # after its format
            values = words.arguments(index)[first : None if name == "timediff" else first + 1]
            if not values or not all(map(_is_fixed, values)):
                return True
    return False


def _is_fixed(argument: list[Token]) -> bool:
    """Return whether a time is the event's or a literal: 'now' and 'subsec' start with no digit."""
    if len(argument) != 1:
        return False
    kind, word, _ = argument[0]
    return word[1:2] in _DIGITS if kind == "text" else word.lower().strip('"`[]') == "created_at"
