"""A hint for filters that are accepted and probably wrong: times in another spelling."""

from __future__ import annotations

import re

SPELLING = "strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 hour')"  # a time in created_at's format

# Lengths are bounded, so that a long filter takes milliseconds.
_COLUMN = r"""(?:\bevents\s*\.\s*)?["`[]?\bcreated_at\b["`\]]?"""
_CALLED = r"\((?:[^()]|\((?:[^()]|\([^()]{0,99}+\)){0,99}+\)){0,299}+\)"
_VALUE = rf"(?:(?!\bAND\b)(?:[^()]|{_CALLED})){{0,299}}+"
_COMPARES = r"(?:\s{0,99}(?:[=<>!]{1,2}|\b(?:IS|NOT)\b))+\s*"
_EXTENDED = r"(?:\|\||->|<<|>>|[-+*/%&|])"
_TIME = rf"""(CURRENT_TIME(?:STAMP)?\b
| (?:datetime|time|julianday|unixepoch)\s*{_CALLED}
| strftime\s*(?=\(\s*'(?:%s|%J|[^']*[ ])){_CALLED}
| '\d{{4}}-\d\d-\d\d[ ]\d\d[^']*')"""
_WRONG = rf"""{_COLUMN}
(?:{_COMPARES}|(?:\s*\bNOT\b)?\s*\bBETWEEN\b(?:{_VALUE}\bAND\b)?)
[\s(]{{0,99}}{_TIME}(?![\s)]{{0,99}}{_EXTENDED})
| (?:^|(?<!\w)\(|\b(?:AND|OR|NOT|WHEN|THEN|ELSE|CASE)\b)[\s(]{{0,99}}
{_TIME}[\s)]{{0,99}}{_COMPARES}{_COLUMN}"""


def advice(text: str | None) -> str:
    """Return a sentence on what is probably wrong with an accepted filter, or "".

    `created_at` is text like 2026-03-18T10:30:00.123Z. SQLite's own functions return times with a
    blank in place of the T, or numbers, so that a comparison compares the blank with the T. Only a
    comparison of the bare column with a bare call or literal is reported, as all else may be
    intended.
    """
    found = re.search(_WRONG, text or "", re.IGNORECASE | re.VERBOSE)
    if not found:
        return ""
    wrong = found[1] or found[2]
    name = "" if wrong[0] == "'" else wrong.partition("(")[0].strip().lower()
    alike = f"{name.removeprefix('current_')}(created_at)"
    if name == "strftime":
        form = f"'{wrong.split(chr(39))[1]}'"
        wrong, alike = f"strftime({form})", f"strftime({form},created_at)"
    elif name in ("", "current_timestamp"):
        alike = "datetime(created_at)"
    elif "(" in wrong:
        wrong = f"{name}()"
    what = f"the filter compares created_at with {wrong}, which spells times differently"
    return f"{what} - compare created_at with {SPELLING}, or {alike} with it"
