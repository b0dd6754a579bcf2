"""What `top` shows on a screen of any size, and what its keys do.

It reads and changes nothing itself: it is told what there is, and says what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from eventq.cli import show
from eventq.log.notifier import quote
from eventq.record import Record
from eventq.serving.attention import ASKED, DEAD
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eventq.cli.keyboard import Key
    from eventq.serving.attention import Need

MOST_TEXT = 20_000  # characters of a question that are shown, and of an answer
QUIET, BAD, ASKS = "dim", "red", "cyan"
OTHER = "another answer"
_GAP = 2  # cells between two columns
_LEAST = 40  # columns below which a table keeps its first two columns only
_HINTS = {
    "list": "q quit  up/down select  Enter {act}",
    "choose": "up/down choose  Enter answer  Esc leave",
    "write": "Enter answer  Esc leave",
    "command": "Esc back",
}


class Item(Record):
    """A need of a thread: `path` is what it is known by, `name` its short name, if it has one."""

    path: str
    name: str
    age: str
    need: Need

    @property
    def identity(self) -> tuple[str, str, int | str | None]:
        """What it is recognised by when the list has changed."""
        return self.path, self.need.kind, self.need.number or self.need.consumer

    @property
    def is_asked(self) -> bool:
        """Whether it is a question."""
        return self.need.kind in ASKED

    @property
    def command(self) -> str:
        """The command that helps, for a shell; "" for none."""
        if self.is_asked:
            return f"eventq answer {self.need.number} TEXT --thread {quote(self.path)}"
        return self.need.advice or ""

    @property
    def text(self) -> str:
        """What it says, in lines."""
        need = self.need
        more = [", ".join(f"{number:,} × {text}" for number, text in need.reasons)]
        more += need.output.splitlines()[-3:]
        return "\n".join(filter(None, [need.what, *more]))[:MOST_TEXT]

    def line(self) -> str:
        """Return it on one line."""
        need = self.need
        where = f" in {need.where}" if need.where else ""
        who = f"{self.name}: " * bool(self.name) + need.who + where
        what = need.what if need.kind != DEAD else self.text.replace("\n", ": ")
        return show.readable(f"{need.kind.upper():9}{who}: {what[:MOST_TEXT]}")


class Listing(Record):
    """A table: what its rows are, its heads, and its rows of plain text."""

    noun: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Found(Record):
    """What there is to show; `notes` are lines above the needs, each with a style."""

    items: Sequence[Item]
    notes: Sequence[tuple[str, str]]
    tables: Sequence[Listing]


class Answer(Record):
    """What a person has answered to a question."""

    item: Item
    text: str


class Board:
    """The state of the screen: what is selected, and what is typed."""

    def __init__(self) -> None:
        self.found = Found((), (), ())
        self.mode = "list"
        self.note = ""
        self.quits = False
        self._selected: tuple[str, str, int | str | None] | None = None
        self._at = 0  # its place in the list
        self._first = 0  # item that is shown
        self._choice: int | None = None
        self._typed = ""
        self._offset = 0  # lines of the text that are scrolled away
        self._console = Console(width=80)

    # --- what there is ----------------------------------------------------------------------------

    def update(self, found: Found) -> None:
        """Take what there is now. The selection stays with its need, wherever that has moved."""
        self.found = found
        places = {item.identity: at for at, item in enumerate(found.items)}
        if self._selected in places:
            self._at = places[self._selected]
            return
        if self.mode != "list":
            self.note = "that is done meanwhile"
        self._leave()
        self._select(self._at)

    @property
    def item(self) -> Item | None:
        """The need that is selected."""
        return self.found.items[self._at] if self.found.items else None

    def _select(self, at: int) -> None:
        self._at = max(0, min(at, len(self.found.items) - 1))
        self._selected = self.item.identity if self.item is not None else None
        self._offset = 0

    def _leave(self) -> None:
        self.mode, self._typed, self._choice, self._offset = "list", "", None, 0

    # --- keys -------------------------------------------------------------------------------------

    def press(self, key: Key) -> Answer | None:
        """Do what a key does; return the answer if it sends one."""
        self.note = ""
        item = self.item
        if key.name in ("page up", "page down"):
            self._offset = max(0, self._offset + (1 if key.name == "page down" else -1) * 4)
        elif self.mode == "list" or item is None:
            self._press_list(key)
        elif key.name == "escape":
            self._leave()
        elif self.mode == "choose":
            return self._press_choice(key, item)
        elif self.mode == "write":
            return self._press_text(key, item)
        elif key.text == "q":
            self.quits = True
        elif key.name in ("up", "down", "enter"):
            self._leave()
        return None

    def _press_list(self, key: Key) -> None:
        last = len(self.found.items) - 1
        steps = {"up": self._at - 1, "down": self._at + 1, "home": 0, "end": last}
        if key.name == "text" and key.text == "q":
            self.quits = True
        elif key.name in steps:
            self._select(steps[key.name])
        elif key.name == "enter" and self.item is not None:
            options = self.item.need.options
            asked = "choose" if options else "write"
            self.mode = asked if self.item.is_asked else "command" if self.item.command else "list"

    def _press_choice(self, key: Key, item: Item) -> Answer | None:
        """Choose an option; none is chosen at first, so that a second Enter answers nothing."""
        options = self._options(item)
        now = self._choice
        if key.name == "down":
            self._choice = 0 if now is None else min(now + 1, len(options) - 1)
        elif key.name == "up":
            self._choice = len(options) - 1 if now is None else max(0, now - 1)
        elif key.text in "123456789"[: len(options)] and key.name == "text":
            self._choice = int(key.text) - 1
        elif key.name == "enter" and now is None:
            self.note = "choose one first"
        elif key.name == "enter" and now is not None:
            if now < len(item.need.options):
                return self._send(item, options[now])
            self.mode = "write"
        return None

    def _press_text(self, key: Key, item: Item) -> Answer | None:
        if key.name in ("text", "paste"):
            self._typed = (self._typed + " ".join(key.text.splitlines()))[:MOST_TEXT]
        elif key.name == "backspace":
            self._typed = self._typed[:-1]
        elif key.name == "clear":
            self._typed = ""
        elif key.name == "enter" and self._typed.strip():
            return self._send(item, self._typed)
        return None

    def _send(self, item: Item, text: str) -> Answer:
        self._leave()
        return Answer(item, text)

    @staticmethod
    def _options(item: Item) -> list[str]:
        more = [OTHER] if item.need.kind == "question" else []
        return [*item.need.options, *more]

    # --- rows -------------------------------------------------------------------------------------

    def rows(self, columns: int, lines: int) -> list[tuple[Text, int]]:
        """Return what is shown, each row with how many lines it takes: not more than `lines`."""
        shown: list[tuple[Text, int]] = []
        room = lines - (lines > 1)
        for text, style in self.found.notes[: max(0, room - 3)]:
            shown.append((_cut(text, columns, style), 1))
        room -= len(shown)
        tables = [table for table in self.found.tables if table.rows]
        wanted = sum(len(table.rows) + 2 for table in tables) if self.mode == "list" else 0
        if self.found.items:
            most = max(room - min(wanted, room // 2), min(room, 4))
            needs = [*self._needs(columns, most)]
            shown += needs
            room -= sum(height for _, height in needs)
        hidden = []
        for number, table in enumerate(tables):
            after = len(tables) - number - 1
            fits = room if not after else max(room - min(room // 2, len(tables[-1].rows) + 2), 0)
            part, left = _table(table, columns, fits)
            shown += [(row, 1) for row in part]
            room -= len(part)
            hidden += [count(left, table.noun)] * bool(left)
        if lines > 1:
            shown += [(Text(""), 1)] * room
            shown.append((self._foot(columns, hidden), 1))
        return shown

    def _foot(self, columns: int, hidden: Sequence[str]) -> Text:
        act = "answer" if self.item is None or self.item.is_asked else "show the command"
        hint = _HINTS[self.mode].format(act=act) if self.found.items else "q quit"
        more = f"{' and '.join(hidden)} more  " if hidden and self.mode == "list" else ""
        return _cut(self.note or more + hint, columns, "bold" if self.note else QUIET)

    def _needs(self, columns: int, room: int) -> Iterator[tuple[Text, int]]:
        """Yield the needs that fit, with what the selected one says, and how many others exist."""
        items, at = self.found.items, self._at
        if room >= 4:
            needs = "needs" if len(items) == 1 else "need"
            yield _cut(f"{len(items):,} {needs} you", columns, "bold"), 1
            room -= 1
        about = [*self._about(items[at], columns, room - 2)] if room > 2 else []
        others = room - 1 - sum(height for _, height in about)
        if len(items) - 1 > others:
            others = max(0, others - 1)  # for the count
        first = min(max(self._first, at - others), at)
        end = min(len(items), first + others + 1)
        self._first = first = max(0, end - others - 1)
        for number in range(first, end):
            yield self._line(items[number], columns, is_selected=number == at), 1
            if number == at:
                yield from about
        left = first + len(items) - end
        if left and room > 1:
            above = " above" if first == left else f", {first:,} of them above" if first else ""
            yield _cut(f"{left:,} more{above}", columns, QUIET), 1

    def _line(self, item: Item, columns: int, *, is_selected: bool) -> Text:
        style = ASKS if item.is_asked else BAD
        age = f" {item.age}" if columns >= _LEAST and item.age else ""
        width = columns - cell_len(age)
        text = Text(_fit(item.line(), width) + age, style=style)
        if is_selected:
            text.stylize("reverse")
        return text

    def _about(self, item: Item, columns: int, room: int) -> Iterator[tuple[Text, int]]:
        """Yield what the selected need says, and what is done about it."""
        act = [*self._act(item, columns, room)]
        room -= sum(height for _, height in act)
        rows = self._wrapped(item.text, columns - 2)
        if self.mode == "list" and len(rows) == 1 and cell_len(item.line()) <= columns - 10:
            rows = []  # the line above says all of it
        most = min(room, 6) if self.mode == "list" else room
        self._offset = max(0, min(self._offset, len(rows) - most + 1))
        part = rows[self._offset :]
        if most > 0 and len(part) > most:
            left = len(part) - most + 1
            part = [*part[: most - 1], f"{count(left, 'line')} more (Page Down)"]
        for text in part[: max(0, most)]:
            yield _cut(f"  {text}", columns, ""), 1
        yield from act

    def _act(self, item: Item, columns: int, room: int) -> Iterator[tuple[Text, int]]:
        if self.mode == "choose":
            options = self._options(item)
            most = max(1, room - 1 if room <= 4 else room * 2 // 3)
            first = 0
            if len(options) > most:
                most = max(1, most - 1)
                first = max(0, min((self._choice or 0) - most // 2, len(options) - most))
            for number, option in enumerate(options[first : first + most], first):
                mark = ">" if number == self._choice else " "
                text = _cut(f"  {mark} {number + 1} {show.readable(option)}", columns, ASKS)
                if number == self._choice:
                    text.stylize("bold")
                yield text, 1
            if (left := len(options) - most) > 0:
                yield _cut(f"    {count(left, 'option')} more", columns, QUIET), 1
        elif self.mode == "write":
            typed = show.readable(self._typed)
            while cell_len(typed) > max(1, columns - 5):
                typed = typed[max(1, (cell_len(typed) - columns + 5) // 2) :]
            yield Text.assemble(("  > ", ASKS), typed, (" ", "reverse")), 1
        elif self.mode == "command":
            command = show.readable(item.command)
            height = max(1, min(room, -(-cell_len(command) // columns)))
            if cell_len(command) > height * columns:
                command = _fit(command, height * columns)
            yield Text(command, style="bold"), height

    def _wrapped(self, text: str, width: int) -> list[str]:
        lines = [show.readable(line) for line in text.splitlines() if line.strip()]
        found: list[str] = []
        for line in lines:
            wrapped = Text(line).wrap(self._console, max(2, width))
            found += [part.plain.rstrip() for part in wrapped]
        return found


def _cut(text: str, columns: int, style: str) -> Text:
    return Text(_fit(show.readable(text), columns).rstrip(), style=style)


def _fit(text: str, width: int) -> str:
    """Return a text of exactly so many cells; one that is cut ends in "…"."""
    text = text[: 2 * width + 2]
    if cell_len(text) <= width:
        return set_cell_size(text, max(0, width))
    return set_cell_size(set_cell_size(text, max(0, width - 1)) + "…", max(0, width))


def _table(table: Listing, columns: int, room: int) -> tuple[list[Text], int]:
    """Return the rows of a table that fit, below an empty one, and how many rows do not."""
    if room < 3:
        return [], len(table.rows)
    most = room - 2
    rows = [[*map(show.readable, row)] for row in table.rows[:most]]
    heads = [*table.heads]
    number = len(heads) if columns >= 2 * _LEAST else 3 if columns >= _LEAST else 2
    rows = [heads[:number], *[row[:number] for row in rows]]
    widths = [max(cell_len(row[at][:200]) for row in rows) for at in range(number)]
    while sum(widths) + _GAP * (number - 1) > columns and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    lines = [(" " * _GAP).join(map(_fit, row, widths)).rstrip() for row in rows]
    shown = [Text(""), Text(lines[0], style="bold"), *map(Text, lines[1:])]
    return shown, len(table.rows) - len(rows) + 1
