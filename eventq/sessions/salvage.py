"""Find the entries on a line that is not one JSON object: its bytes stay, in several rows.

Such a line comes of programs that were stopped while they wrote, or that wrote at the same time:
two records without a newline between them, the beginning of one before another one, NUL bytes, a
list. Other lines hold one record that is no JSON, for a byte that is no UTF-8, a control character
in a text, or NaN. What is found has to look like a record of its tool, as anything else may be a
part of one. Claude Code itself reads only the record that a line begins with, if that is JSON.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder

from eventq.sessions.lines import BOM, SPACE, Line, lenient, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eventq.sessions.links import Entry

    IsRecord = Callable[[Entry], bool]

MOST = 1_000  # records of one line
ROWS = 2 * MOST + 1  # of one line, with what stands between the records
_WORK = 16  # characters that are looked at for each one on a line, at most
_TRIES = 1_000  # braces where no object begins
_BRACE = re.compile(r'\{[ \t\r\n]*"')
_DECODER = JSONDecoder(strict=False, parse_int=str, parse_constant=str)


def pieces(line: bytes, is_record: IsRecord) -> list[Line]:
    """Return the parts of a line, together its bytes: one, unless there are records to be found."""
    whole = split(line)
    if whole.entry is not None or not whole.text:
        return [whole]
    found: list[Line] = []
    end = 0
    for start, stop, one in _records(line, is_record):
        between = line[end:start]
        if between.replace(BOM, b"").strip(SPACE):
            found.append(Line(b"", between, b"", None, whole.why))
            between = b""
        found.append(one._replace(before=between))
        end = stop
    if not found:
        return [whole]
    rest = split(line[end:])
    if rest.text:
        return [*found, Line(b"", rest.before + rest.text, rest.after, None, whole.why)]
    return [*found[:-1], found[-1]._replace(after=rest.before + rest.after)]


def _records(line: bytes, is_record: IsRecord) -> Iterator[tuple[int, int, Line]]:
    """Yield where the records of a line begin and end, and each."""
    text = line.decode("latin-1")  # a character for each byte, and all of JSON's own are the same
    left, tries = _WORK * len(text), _TRIES
    end = count = 0
    while left > 0 and tries and count < MOST and (begun := _BRACE.search(text, end)):
        start = begun.start()
        try:
            _, end = _DECODER.raw_decode(text, start)
        except (JSONDecodeError, RecursionError) as error:
            pos = getattr(error, "pos", len(text))
            left -= (len(text) if "Unterminated" in str(error) else pos) - start
            tries -= 1
            end = start + 1
            continue
        left -= end - start
        one = split(line[start:end])
        entry = one.entry if one.entry is not None else lenient(one.text)
        if entry is not None and is_record(entry):
            count += 1
            yield start, end, one._replace(entry=entry)
