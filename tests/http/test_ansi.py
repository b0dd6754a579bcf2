"""What programs print for terminals, as HTML: colours stay, what moves a cursor or rings does not."""

from __future__ import annotations

import pytest

from eventq.http.pages import ansi

CASES = {
    "abc\r": "abc",
    "10%\r20%\r100%": "100%",
    "progress\rdone\x1b[K": "done",
    "\x1b[31mred\r\x1b[32mgreen<b>\x1b[0m\r": '<span class="c2">green&lt;b&gt;</span>',
    "a\x1b[2Kb\x1b[1A\x1b[?25hc": "abc",
    "\x1b(Bx\x1b[0m\x1bMy": "xy",
    "\x1b]8;;https://e.example\x07link\x1b]8;;\x07": "link",
    "\x1b]0;never ends \x1b[31mr": '0;never ends <span class="c1">r</span>',
    "\x1b[38;5;196mred\x1b[0m": '<span class="c1">red</span>',
    "\x1b[38;2;1;200;3mgreen\x1b[0m": '<span class="c2">green</span>',
    "\x1b[1;31m<i>\x1b[0m": '<span class="bold c1">&lt;i&gt;</span>',
    "\x07bell\x08\x00\x7f\x9b31m": "bell31m",
    "x\x1b[": "x",
    "tab\tx": "tab\tx",
}
LONG = (
    "\x1b]" * 50_000, "\x1b[" * 50_000, "\x1b[31m" * 20_000, "a\r" * 50_000,
    "\x1b]" + "a" * 99_000, "\x1b[38;5;" * 14_000, "\x1b[" + "1" * 99_000,
)  # fmt: skip


@pytest.mark.parametrize("line", CASES)
def test_a_line_as_html(line: str) -> None:
    """The last writing, in the nearest of sixteen colours, without any control."""
    assert [*ansi.lines([line])] == [CASES[line]]


def test_a_colour_goes_on_in_the_next_line() -> None:
    """Until it ends."""
    assert [*ansi.lines(["\x1b[31ma", "b\x1b[0mc"])] == [
        '<span class="c1">a</span>', '<span class="c1">b</span>c'
    ]  # fmt: skip
    assert ansi.text("a\r\nb\r\n") == "a\nb\n"


@pytest.mark.parametrize("number", range(len(LONG)))
@pytest.mark.timeout(20)
def test_a_long_line_of_codes_is_read_once(number: int) -> None:
    """Whatever codes it repeats; the text of a line is what is read of it."""
    assert len([*ansi.lines([LONG[number]])]) == 1
    assert "\x1b" not in ansi.plain(LONG[number])


def test_the_text_of_a_line() -> None:
    """Is without codes."""
    assert ansi.plain("x\r\x1b[1;31mFAILED\x1b[0m \x1b]8;;u\x07t\x1b\\") == "FAILED t"
