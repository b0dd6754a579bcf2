"""The compiled form of a filter: as it was written, with guards and jumps put between its tokens.

- For a text that is not JSON, JSON functions and `->` return NULL instead of an error, because
  threads mix JSON and prose. The guard is SQL, `CASE WHEN json_valid(x, 6) THEN x END`. SQLite
  caches the parse, so it runs at 5 million events a second. An operand that is more than a column
  is computed once, in a subquery of one row: written twice, nine nested functions would be
  computed 2^9 times. Python functions of the same names lost: they cost a call per row, and would
  have to reimplement JSON5.
- A filter of many steps gets a jump before each column and after each step, because SQLite checks
  its clock only on jumps.
"""

from __future__ import annotations

from eventq.log.filters.grammar import COLUMNS, JOINS, PATTERNS, Words, is_literal

MAX_STEPS = 4  # columns, or functions and operators, or twice the patterns, without jumps

_JSON = frozenset(("json", "json_array_length", "json_extract", "json_type"))
_EXTENDING = ("||", "->", "->>")
_VALID = "(SELECT CASE WHEN json_valid(v,6) THEN v END FROM (SELECT ("
_END = ") AS v)"


class Guarded:
    """An accepted filter in its compiled form, `sql`, and what the sandbox needs to know of it.

    `columns` are the columns it uses whose values may be large. `calls` are the functions it calls.
    `clocked` is true if it has jumps. `loose` is true if a pattern of LIKE or GLOB is computed, so
    that it could not be checked before.
    """

    __slots__ = ("calls", "clocked", "columns", "loose", "sql")

    def __init__(self, words: Words) -> None:
        """Compile the tokens of a filter that SQLite has accepted."""
        places = range(len(words.tokens))
        found = [words.name(at) for at in places]
        self.calls = {found[at] for at in places if words.is_call(at)}
        patterns = [at for at in places if words.word(at) in PATTERNS and words.kind(at) == "word"]
        self.loose = not all(is_literal(words, at + 1 + words.is_call(at)) for at in patterns)
        joins = sum(kind in _EXTENDING for kind, _, _ in words.tokens)
        works = self.calls or patterns or joins
        # Others are only compared.
        self.columns = [one for one in (COLUMNS[2:] if works else COLUMNS[5:]) if one in found]
        mentions = sum(name in COLUMNS[1:] for name in found)
        steps = joins + sum(map(words.is_call, places))
        self.clocked = max(mentions, steps, 2 * len(patterns)) > MAX_STEPS
        self.sql = _Writer(words, clocked=self.clocked).write()


class _Level:
    """An open parenthesis or CASE, with what is known of the operand that is being read.

    `->` takes the operand that begins at `start`: `||`, `->`, COLLATE and a sign extend an operand,
    every other operator starts a new one. It needs no guard when it `is_safe`: JSON or NULL, as
    `->` returns, or 0 or 1, as IN, NOTNULL and ISNULL do; these `is_truth`.
    """

    __slots__ = ("argument", "call", "is_list", "is_safe", "is_truth", "start")

    def __init__(self, start: int, call: int = -1, *, guarded: bool = False, is_list: bool) -> None:
        self.start = start
        self.call = call  # the place of the function's name, or -1
        self.argument = start if guarded else -1  # a JSON function's first, until it has ended
        self.is_list = is_list
        self.is_safe = self.is_truth = False

    def begin(self, start: int, *, is_truth: bool = False) -> None:
        """Begin an operand, or end one in a truth."""
        self.start, self.is_safe, self.is_truth = start, is_truth, is_truth


class _Writer:
    """One pass over the tokens, which notes what to put before and after them."""

    def __init__(self, words: Words, *, clocked: bool) -> None:
        self._words = words
        self._clocked = clocked
        self._before = [""] * len(words.tokens)
        self._after = [""] * len(words.tokens)
        self._levels = [_Level(0, is_list=False)]

    def write(self) -> str:
        """Return the filter with all that is put into it."""
        for index in range(len(self._words.tokens)):
            self._token(index)
        pieces, end = [], 0
        for index, (_, word, at) in enumerate(self._words.tokens):
            pieces += [self._words.text[end:at], self._before[index], word, self._after[index]]
            end = at + len(word)
        return "".join(pieces)

    def _token(self, index: int) -> None:
        words, level = self._words, self._levels[-1]
        kind = words.kind(index)
        upper = words.word(index) if kind == "word" else kind
        if upper in (",", ")") and level.argument >= 0:
            self._guard(level.argument, index)
            level.argument = -1
        if upper in _EXTENDING and not level.is_truth:
            if upper != "||" and not level.is_safe:
                self._guard(level.start, index)
            if self._clocked:
                self._jump(level.start, index)
            level.is_safe = upper == "->"
        if upper in (")", "END"):
            self._leave(index)
        elif upper in ("(", "CASE"):
            self._enter(index, upper)
        elif self._is_break(index, kind):
            level.begin(index + 1, is_truth=upper in ("ISNULL", "NOTNULL"))
        elif upper == "NULL" and words.word(index - 1) == "NOT":
            level.is_safe = level.is_truth = True
        if self._clocked and words.name(index) in COLUMNS[1:]:
            first = index - 2 if words.kind(index - 1) == "." else index
            self._put(first, "CAST(CASE WHEN 1 THEN ", index + 1, " END AS TEXT)")

    def _is_break(self, index: int, kind: str) -> bool:
        """Return whether the next operand starts after a token."""
        if kind == "word":
            return self._words.word(index) in JOINS and not self._words.is_call(index)
        if kind in ("-", "+", "~"):
            return self._words.infix(index)
        return kind not in ("text", "name", "number", "blob", ")", ".", *_EXTENDING)

    def _enter(self, index: int, upper: str) -> None:
        call = index - 1 if upper == "(" and self._words.is_call(index - 1) else -1
        name = self._words.name(call) if call >= 0 else ""
        is_list = upper == "(" and self._words.word(index - 1) == "IN"
        level = _Level(index + 1, call, guarded=name in _JSON, is_list=is_list)
        self._levels.append(level)

    def _leave(self, index: int) -> None:
        left = self._levels.pop()
        if left.is_list:
            self._levels[-1].is_safe = self._levels[-1].is_truth = True
        if self._clocked and left.call >= 0 and self._words.name(left.call) != "cast":
            self._jump(left.call, index + 1)

    def _put(self, start: int, head: str, end: int, tail: str) -> None:
        """Put something around tokens, outside of what is around any of them."""
        self._before[start] = head + self._before[start]
        self._after[end - 1] += tail

    def _jump(self, start: int, end: int) -> None:
        """Make SQLite check the clock after computing an operand."""
        self._put(start, "(CASE WHEN 1 THEN ", end, " END)")

    def _guard(self, start: int, end: int) -> None:
        """Replace an operand by NULL unless it is JSON."""
        words = self._words
        if end - start == 1 and not self._clocked:
            name = words.tokens[start][1]
            self._put(start, "(CASE WHEN json_valid(", end, f",6) THEN {name} END)")
            return
        # A subquery hides the collation of its operand.
        collations = [at for at in range(start, end) if words.word(at) == "COLLATE"]
        again = f" COLLATE {words.word(collations[0] + 1)}" if collations else ""
        self._put(start, _VALID, end, f"{_END}){again}")
