"""`eventq top`: who needs a person, in a terminal.

The kind of fault is a row that is wider or a screen that is higher than the terminal, a need that is
left out and not counted, text of others that reaches the terminal as more than text, an answer that
nobody gave, and a terminal that is not put back, however the command ends.
"""

from __future__ import annotations

import codecs
import itertools
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

import eventq
from tests.servers import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ARGV = [sys.executable, "-m", "eventq", "top"]
SIZES = [(80, 24), (40, 10), (200, 60)]
UP, DOWN, ESCAPE = "\x1b[A", "\x1b[B", "\x1b"
DEADLINE = 60.0
TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([^\x1b])", re.DOTALL)


class Terminal:
    """`top` in a terminal of some size, and what that shows."""

    def __init__(self, *words: str, size: tuple[int, int] = (80, 24), **more: Any) -> None:
        self.columns, self.lines = size
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.ours, size[::-1])
        self.before = termios.tcgetattr(self.theirs)
        env = {**os.environ, "TERM": "xterm"} | dict.fromkeys(("COLUMNS", "LINES"), "")
        self.process = subprocess.Popen(
            [*ARGV, *words], stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, env=env,
            **({"start_new_session": True} | more),
        )  # fmt: skip
        self.is_whole = self.wraps = False
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.written = self._rest = ""
        self._clear()

    def _clear(self) -> None:
        self._cells = [[" "] * self.columns for _ in range(self.lines)]
        self._x = self._y = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    @property
    def shown(self) -> list[str]:
        """The rows that are shown."""
        return ["".join(row).rstrip() for row in self._cells]

    def until(self, is_so: Callable[[], bool]) -> None:
        """Read until something is so; fail after a while."""
        end = time.monotonic() + DEADLINE
        while not is_so():
            ready, _, _ = select.select([self.ours], [], [], max(0.0, end - time.monotonic()))
            assert ready, "\n".join(self.shown)
            self._take(self._decoder.decode(os.read(self.ours, 1 << 16)))

    def sees(self, *texts: str) -> list[str]:
        """Read until these texts are shown; return the rows."""
        self.until(lambda: all(any(text in row for row in self.shown) for text in texts))
        return self.shown

    def press(self, *keys: str) -> None:
        """Type."""
        for key in keys:
            os.write(self.ours, key.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size."""
        self.columns, self.lines = columns, lines
        self._clear()
        termios.tcsetwinsize(self.ours, (lines, columns))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def ends(self) -> int:
        """Return the exit status; the terminal is as before then."""
        self.until(lambda: not self.is_whole)
        status = self.process.wait(DEADLINE)
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.written.endswith("\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l")
        return status

    def _take(self, text: str) -> None:
        self.written += text
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                assert re.fullmatch(r"\x1b(\[[?0-9;]*)?", text[at:]), text[at : at + 20]
                self._rest = text[at:]
                return
            at = found.end()
            if found[3]:
                self._put(found[3])
            else:
                self._obey(found[1], found[2])

    def _obey(self, numbers: str, letter: str) -> None:
        if letter == "H":
            self._y, self._x = (int(number) - 1 for number in numbers.split(";"))
        elif letter == "J":
            self._clear()
        elif letter == "K":
            self._cells[self._y] = [" "] * self.columns
        elif letter in "hl" and numbers == "?1049":
            self.is_whole = letter == "h"
        elif letter in "hl" and numbers == "?7":
            self.wraps = letter == "h"
        else:
            assert letter == "m" or numbers in ("?25", "?2004"), (numbers, letter)

    def _put(self, character: str) -> None:
        if not self.is_whole:
            return
        assert character.isprintable(), repr(character)
        width = cell_len(character)
        if self._x + width > self.columns:
            assert self.wraps, (character, self.shown)
            self._y, self._x = self._y + 1, 0
        if width:
            self._cells[self._y][self._x : self._x + width] = [character] + [""] * (width - 1)
            self._x += width


@pytest.fixture
def thread(path: str) -> Iterator[eventq.Thread]:
    """Return a fresh thread."""
    with eventq.open(path) as thread:
        yield thread


def test_it_is_written_once_without_a_terminal(thread: eventq.Thread, path: str) -> None:
    """Who needs a person first, then consumers and contexts; control characters are escaped."""
    thread.ask("Deploy?", options=("yes", "no"), approval=True)
    thread.subscribe("w", max_attempts=1, on_failure="dead")
    thread.settle(dead=[one.token for one in thread.claim("w")], error="broken")
    thread.push("self", "note", "x")
    said = {"role": "assistant", "content": [{"type": "text", "text": "All is well."}]}
    thread.contexts.create("main").append(json.dumps(said))
    thread.ask("\x1b[31mRed?")
    done = subprocess.run(
        [*ARGV, "--thread", path], capture_output=True, text=True, timeout=60,
        env={**os.environ, "COLUMNS": "120"}, check=True,
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    place = shlex.quote(path)
    asked = "APPROVAL this thread: Deploy? (yes / no)"
    assert f"{asked} - eventq answer 1 TEXT --thread {place}\n" in done.stdout
    assert re.search(r"QUESTION .*31mRed\?", done.stdout)
    retry = f"eventq dead retry --all --consumer w --thread {place}\n"
    assert f"DEAD     w: 1 event failed for good: 1 × broken - {retry}" in done.stdout
    assert re.search(
        r"^ *w +.*2 events wait +\d+s ago +0 done, 1 failed, 1 dead", done.stdout, re.MULTILINE
    )
    assert re.search(r"^ *main +1 +\d+s ago +All is well\.", done.stdout, re.MULTILINE)


def test_calm(thread: eventq.Thread, path: str) -> None:
    """And since when."""
    event = thread.push("self", "note", "x")
    done = subprocess.run([*ARGV, "--thread", path], capture_output=True, text=True, check=True)
    assert f"Nobody needs you: the last event came at {event.created_at}" in done.stdout


def test_threads_of_a_folder(tmp_path: os.PathLike[str]) -> None:
    """Each with its name; none is an error."""
    empty = subprocess.run([*ARGV, "--all", tmp_path], capture_output=True, text=True, check=False)
    assert (empty.returncode, "there is no thread below" in empty.stderr) == (1, True)
    for name in ("a", "b"):
        with eventq.open(os.path.join(tmp_path, name), create=True) as thread:
            thread.ask(f"{name}?")
    done = subprocess.run([*ARGV, "--all", tmp_path], capture_output=True, text=True, check=True)
    assert "QUESTION a: this thread: a?" in done.stdout
    assert "QUESTION b: this thread: b?" in done.stdout


def test_it_is_drawn_again_when_something_changes(thread: eventq.Thread, path: str) -> None:
    """Ctrl-C and `q` end it, and the screen is as before."""
    for key in ("\x03", "q"):
        with Terminal("--thread", path) as terminal:
            if key == "q":
                terminal.sees("1 needs you", "QUESTION this thread: Which one?")
                os.write(terminal.ours, key.encode())
            else:
                terminal.sees("Nobody needs you")
                thread.ask("Which one?")
                terminal.sees("1 needs you", "QUESTION this thread: Which one?")
                os.killpg(terminal.process.pid, signal.SIGINT)
            assert terminal.ends() == 0


@pytest.mark.parametrize("size", SIZES)
def test_hostile_texts_at_any_size(thread: eventq.Thread, path: str, size: tuple[int, int]) -> None:
    """Nothing leaves its row, each need that does not fit is counted, and each can be reached."""
    hostile = ("\x1b[2J\x1b]0;x\x07\x9b31m", "漢字🎉" * 30, "e\u0301" * 300, "x" * 10_000,
               "\u202eback", "a\nb\r\nc", "word " * 2_000)  # fmt: skip
    for text in hostile:
        thread.ask(text, source=f"internal:dm:{'漢' * 50}:main")
    for number in range(293):
        thread.ask(f"number {number}?", [text[:200] for text in hostile] if number % 2 else ())
    for number in range(70):
        thread.subscribe(f"consumer-{number}-{'漢' * 20}", "true", each=True)
    with Terminal("--thread", path, size=size) as terminal:
        rows = terminal.sees("300 need you", "q quit")
        shown = sum(row.startswith(("QUESTION", "APPROVAL")) for row in rows)
        left = next(int(row.split()[0]) for row in rows if re.match(r"\d+ more", row))
        assert shown + left == 300
        assert re.search(r"\d+ consumers", rows[-1])
        for _ in range(12):
            terminal.press(DOWN, "\x1b[6~")
        terminal.press("\x1b[F")
        terminal.sees("number 292?", "more above")
        terminal.press("\r")
        terminal.sees("  >")
        terminal.press("漢" * 100)
        terminal.until(lambda: any(row.count("漢") > 8 for row in terminal.shown[-4:]))
        terminal.press(ESCAPE)
        terminal.until(lambda: "q quit" in terminal.shown[-1])
        terminal.press(UP, "\r")
        terminal.sees("number 291?", "up/down choose")
        terminal.resize(30, 6)
        terminal.sees("up/down choose")
        terminal.resize(1, 1)
        terminal.press(ESCAPE)
        terminal.resize(100, 30)
        terminal.sees("300 need you", "q quit")
        terminal.press("q")
        assert terminal.ends() == 0


def test_a_question_is_answered_in_place(thread: eventq.Thread, path: str) -> None:
    """By a choice or a line of text; Escape leaves it, and a second Enter answers nothing."""
    thread.ask("Deploy?", approval=True, by_person=True)
    thread.ask("Which name?", ("ada",))
    thread.ask("Why?")
    with Terminal("--thread", path) as terminal:
        terminal.sees("APPROVAL this thread: Deploy?")
        terminal.press("\r", "\r")
        terminal.sees("choose one first", "1 approve", "2 deny")
        terminal.press(ESCAPE)
        terminal.sees("q quit")
        assert len(thread.questions()) == 3
        terminal.press("\r", DOWN, DOWN, "\r")
        terminal.sees("answered question 1", "2 need you")
        found = thread.question(1)
        assert (found.answer, found.answered_via) == ("deny", "terminal")
        terminal.press("\r", "2", "\r", "bö", "x\x7f", "b", "\x1b[200~ \nmine\x1b[201~")
        terminal.sees("> böb  mine")
        terminal.press("\r")
        terminal.sees("answered question 2", "1 needs you")
        assert thread.question(2).answer == "böb  mine"
        terminal.press("\r", "half")
        terminal.sees("> half")
        thread.answer(3, "quicker")
        terminal.sees("Nobody needs you", "that is done meanwhile")
        terminal.press("q")
        assert terminal.ends() == 0
    assert thread.question(3).answer == "quicker"


def test_a_thread_in_postgresql(postgres: str) -> None:
    """It shows what changes there, and is answered in place."""
    url = fresh(postgres)
    with eventq.open(url) as thread, Terminal("--thread", url) as terminal:
        terminal.sees("Nobody needs you")
        asked = thread.ask("Deploy?", ("yes", "no"))
        terminal.sees("1 needs you", "Deploy?")
        terminal.press("\r", DOWN, DOWN, "\r")
        terminal.sees("Nobody needs you")
        assert thread.question(asked.question_id).answer == "no"
        terminal.press("q")
        assert terminal.ends() == 0


def test_the_command_that_helps_can_be_pasted(tmp_path: Any) -> None:
    """It names the thread, is quoted for a shell, and wraps in the terminal as one line."""
    path = str(tmp_path / ("it's a long name " + "x" * 100))
    with eventq.open(path, create=True) as thread:
        thread.subscribe("w", max_attempts=1, on_failure="dead")
        thread.push("self", "note", "x")
        thread.claim("w")[0].dead("broken")
        with Terminal("--thread", path) as terminal:
            terminal.sees("1 needs you", "Enter show the command")
            terminal.press("\r")
            terminal.sees("Esc back")
            rows = terminal.shown
            first = next(at for at, row in enumerate(rows) if row.startswith("eventq "))
            words = shlex.split(
                "".join(row.ljust(80) for row in itertools.takewhile(bool, rows[first:]))
            )
            assert words == [
                "eventq",
                "dead",
                "retry",
                "--all",
                "--consumer",
                "w",
                "--thread",
                path,
            ]
            terminal.press(ESCAPE)
            terminal.sees("q quit")
            terminal.press("q")
            assert terminal.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it(thread: eventq.Thread, path: str, number: signal.Signals) -> None:
    """The terminal is as before, and the status is that of the signal."""
    with Terminal("--thread", path) as terminal:
        terminal.sees("Nobody needs you")
        terminal.process.send_signal(number)
        assert terminal.ends() == -number


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_it_is_stopped_and_goes_on(
    thread: eventq.Thread, path: str, number: signal.Signals
) -> None:
    """While it is stopped the terminal is as before, if it can be; then it is drawn anew."""
    with Terminal("--thread", path, start_new_session=False, process_group=0) as terminal:
        terminal.sees("Nobody needs you")
        terminal.process.send_signal(number)
        _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        if number == signal.SIGTSTP:
            terminal.until(lambda: not terminal.is_whole)
            assert termios.tcgetattr(terminal.theirs) == terminal.before
        termios.tcsetattr(terminal.theirs, termios.TCSANOW, terminal.before)  # as a shell does
        thread.ask("Which one?")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda: terminal.is_whole)
        terminal.sees("QUESTION this thread: Which one?")
        assert termios.tcgetattr(terminal.theirs) != terminal.before
        terminal.press("q")
        assert terminal.ends() == 0


def test_it_ends_with_its_terminal(thread: eventq.Thread, path: str) -> None:
    """A window that is closed leaves no process behind."""
    with Terminal("--thread", path) as terminal:
        terminal.sees("Nobody needs you")
        ours, theirs = terminal.ours, terminal.theirs
        terminal.ours, terminal.theirs = os.open(os.devnull, 0), os.open(os.devnull, 0)
        os.close(theirs)
        os.close(ours)
        terminal.process.wait(DEADLINE)
