"""The lines of the mirror: how one spells an event, what it says, and where it is in a file."""

from __future__ import annotations

import os
from itertools import count, repeat

from eventq.store.paths import rotated
from eventq.system.jsontext import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eventq.records.event import Commit, NewEvent
    from eventq.store.paths import Layout

_ESCAPED = bytes(range(0x20)) + b'"\\'
_HEAD = b'{"id":'
HEAD_BYTES = 64
_KEY = b',"created_at":'  # comes after the id in a line of ours


def line(event: tuple[int, str, str, str, str | None, str]) -> str:
    """Return the JSON text of an event: six keys in order, compact, escaped as little as possible.

    The same text as SQLite's `json_object` makes of the row; a test holds the two together.
    """
    number, created_at, source, kind, subtype, content = event
    sub = "null" if subtype is None else quote(subtype)
    return (
        f'{{"id":{number},"created_at":"{created_at}","source":{quote(source)},'
        f'"type":{quote(kind)},'
        f'"subtype":{sub},"content":{quote(content)}}}'
    )


def lines_of(commit: Commit) -> bytes:
    """Return the lines of a commit, nothing when it does not bring its events."""
    if commit.first == commit.last and commit.parts[0][3]:
        number, _, created_at, ((source, kind, content, subtype, _),) = commit.parts[0]
        event = (number, created_at, source, kind, subtype, content)
        return line(event).encode() + b"\n"
    return b"".join(
        _lines_of_part(first, _heads(rows, created_at), [content for _, _, content, _, _ in rows])
        for first, _, created_at, rows in commit.parts
        if rows
    )


def _lines_of_part(first: int, heads: Iterable[str], contents: list[str]) -> bytes:
    parts = zip(count(first), heads, contents, strict=False)
    if _plain("".join(contents)):
        lines = [
            f'{{"id":{number}{head},"content":"{content}"}}\n' for number, head, content in parts
        ]
    else:
        lines = [
            f'{{"id":{number}{head},"content":{quote(content)}}}\n'
            for number, head, content in parts
        ]
    return "".join(lines).encode()


def _heads(rows: Sequence[NewEvent], created_at: str) -> Iterable[str]:
    """Return the JSON between id and content of each event; mostly the same for all."""
    alike = {(source, kind, subtype) for source, kind, _, subtype, _ in rows}
    heads = {
        (source, kind, subtype): (
            f',"created_at":"{created_at}","source":{quote(source)},"type":{quote(kind)},'
            f'"subtype":{"null" if subtype is None else quote(subtype)}'
        )
        for source, kind, subtype in alike
    }
    if len(heads) == 1:
        return repeat(*heads.values())
    return [heads[source, kind, subtype] for source, kind, _, subtype, _ in rows]


def _plain(text: str) -> bool:
    """Return whether JSON escapes nothing in a text: a third of the cost of escaping."""
    return text.isascii() and len(text.encode().translate(None, _ESCAPED)) == len(text)


def is_usual(text: bytes) -> bool:
    """Return whether a line begins as eventq spells it."""
    at = text.find(_KEY, 0, HEAD_BYTES)
    return at > 0 and text.startswith(_HEAD) and text[len(_HEAD) : at].isdigit()


def number_of(text: bytes) -> int:
    """Return the id in a line of the mirror, 0 when it is not one."""
    if is_usual(text):
        digits = text[len(_HEAD) : text.find(b",")]
        return int(digits) if len(digits) < 20 else 0
    if not text.startswith(b"{"):
        return 0
    from eventq.log.adoption import number_in

    return number_in(text)


def beginning(fd: int) -> bytes:
    """Return what tells the id in the first line of a file: all of a line that is not as ours."""
    head = os.pread(fd, HEAD_BYTES, 0)
    if is_usual(head) or not head.startswith(b"{"):
        return head
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return file.readline()


def first_line(path: str) -> bytes:
    """Return the first line of a file, nothing if it is none or cannot be read."""
    try:
        with open(path if os.path.isfile(path) else os.devnull, "rb") as file:
            return file.readline()
    except OSError:
        return b""


def last_line(fd: int, end: int) -> tuple[int, int, int, bytes]:
    """Return the last whole line that is an event, read from the end of the file.

    That is its id (0 for none), the offset after the file's last whole line, the line's own offset,
    and its text.
    """
    whole = -1
    tail = b""
    step = 4096
    at = end
    while at > 0:
        start = max(0, at - step)
        tail = os.pread(fd, at - start, start) + tail
        at, step = start, step * 4
        if whole < 0:
            cut = tail.rfind(b"\n") + 1
            if not cut and at > 0:
                continue
            whole = at + cut
            tail = tail[:cut]
        lines = tail.split(b"\n")
        place = at + len(tail)
        for text in reversed(lines if at == 0 else lines[1:]):
            place -= len(text)
            if number := number_of(text):
                return number, whole, place, text
            place -= 1
        tail = tail[: tail.find(b"\n") + 1] if at else b""
    return 0, max(whole, 0), 0, b""


def last_place(fd: int, end: int) -> tuple[int, bytes]:
    """Return where the last line that is an event begins before a place in a file, and its text."""
    _, _, place, text = last_line(fd, end)
    return place, text


def last_id(path: str) -> int:
    """Return the id in the last whole line of a file, 0 for none."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would keep it waiting
    try:
        return last_line(fd, os.lseek(fd, 0, os.SEEK_END))[0]
    finally:
        os.close(fd)


def last_of(layout: Layout) -> int:
    """Return the id in the last whole line of the mirror, 0 for none.

    Raises OSError for what is no file.
    """
    last = last_id(layout.mirror) if os.path.exists(layout.mirror) else 0
    return last or max(map(last_id, rotated(layout.mirror)), default=0)
