"""A hint for filters that are accepted and probably wrong: times in another spelling."""

from __future__ import annotations

from eventq.log.filters.grammar import Words

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
    words = Words(text or "")
    for index in range(len(words.tokens)):
        if words.name(index) != "created_at":
            continue
        start = index - 2 if words.kind(index - 1) == "." else index  # events.created_at
        for other in (*_compared_after(words, index + 1), *_compared_before(words, start - 1)):
            if wrong := _other_spelling(words, other):
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


def _compared_after(words: Words, index: int) -> list[int]:
    """Return the starts of the values that the column before a token is compared with."""
    if words.word(index) not in _ORDERS:
        return []
    between = "BETWEEN" in (words.word(index), words.word(index + 1))
    while words.word(index) in _ORDERS:
        index += 1
    end = _end_of_value(words, index)
    return [index, end + 1] if between and words.word(end) == "AND" else [index]


def _compared_before(words: Words, index: int) -> list[int]:
    """Return the start of the value that is compared with the column after a token."""
    if words.word(index) not in _ORDERS - {"NOT"}:
        return []
    end = index - 1 - (words.word(index - 1) == "NOT")
    depth = 0
    for at in range(end, -1, -1):
        depth += (words.word(at) == ")") - (words.word(at) == "(")
        if depth <= 0:
            start = at - (words.word(at) == "(" and at > 0 and words.is_call(at - 1))
            return [] if words.word(start - 1) in _EXTENDS else [start]
    return []


def _end_of_value(words: Words, index: int) -> int:
    """Return the index after a call, a text or a word."""
    depth = 0
    while index < len(words.tokens):
        depth += (words.word(index) == "(") - (words.word(index) == ")")
        index += 1
        if depth <= 0 and words.word(index) != "(":
            break
    return index


def _other_spelling(words: Words, index: int) -> str:
    """Return the source of a value that is a time in another format than created_at, else ""."""
    while words.word(index) == "(":
        index += 1
    if index >= len(words.tokens) or words.word(_end_of_value(words, index)) in _EXTENDS:
        return ""
    kind, word, _ = words.tokens[index]
    name = word.lower()
    if kind == "text":
        return f"'{word[1:-1]}'" if _is_odd_time(word[1:-1]) else ""
    if kind != "word":
        return ""
    if name in ("current_timestamp", "current_time"):
        return word
    if not words.is_call(index):
        return ""
    if name in _OTHER_TIMES:
        return f"{name}()"
    form = words.tokens[index + 2][1] if words.kind(index + 2) == "text" else ""
    odd = name == "strftime" and (" " in form or form.startswith(("'%s", "'%J")))
    return f"strftime({form})" if odd else ""


def _is_odd_time(text: str) -> bool:
    """Return whether a text is a date, a blank and a time."""
    parts = [len(part) if part.isdigit() else 0 for part in text[:10].split("-")]
    return parts == [4, 2, 2] and text[10:11] == " " and text[11:13].isdigit()
