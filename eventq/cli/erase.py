"""Erase the content of events, and list what was erased."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, READ, REASON, THREAD, thread_option
from eventq.cli.rules import needs
from eventq.cli.table import Argument, Command, Option
from eventq.errors import LogicError, UsageError
from eventq.records.checks import ERASED
from eventq.store.rules import thing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.erasure.finding import Left, Place
    from eventq.records.info import Erasure
    from eventq.thread import Thread

_ELSEWHERE = "copies, packs and backups made before still have it, and programs that have read it"

_SOUGHT = 20  # texts of one erasure that are looked for elsewhere, in one scan
_NOT_SOUGHT = "copies, packs and backups, and what programs have read, were not looked at"


def event(thread: Thread, *, id: int, reason: str | None, json: bool) -> None:
    """Erase the content of an event from all files of the thread.

    The event stays, with [erased] as its content; an answer still names its question. What was
    printed of it goes from the logs of its handlers and from dead letters. Copies of the thread,
    packs and backups are not reached.
    """
    said = thread.erasures.said("event", id)
    made = thread.erasures.event(id, reason=reason)
    show_erasure(thread, made, said, json=json)


def show_erasure(thread: Thread, made: Erasure, said: list[str], *, json: bool) -> None:
    """Print what was erased, what no erasure reaches, and on stderr where else its texts stand."""
    text = f"Erased {thing(made)}; {_ELSEWHERE}"
    show.result(render.fields(made), text, json=json)
    _note_elsewhere(thread, said)


def _note_elsewhere(thread: Thread, texts: list[str]) -> None:
    from shlex import quote

    from eventq.erasure.finding import LEAST, MOST

    every = {text for text in texts if LEAST <= len(text) <= MOST and text != ERASED}
    sought = sorted(every, key=lambda text: (-len(text), text))[:_SOUGHT]
    found = {place[:2] for place in thread.erasures.find(*sought)} if sought else ()
    how = f"eventq find --text - --erase --thread {quote(thread.path)}"
    if found:
        names = ", ".join(show.readable(f"{kind} {name}") for kind, name in sorted(found)[:5])
        more = ", …" if len(found) > 5 else ""
        show.note(f"the same text still stands in {names}{more} - erase it there too: {how}")
    if len(every) > _SOUGHT:
        what = f"only the longest {_SOUGHT} of its {len(every)} texts were looked for elsewhere"
        show.note(f"{what} - look for others too: {how}")


def ls(thread: Thread, *, json: bool) -> None:
    """List what was erased, when and why."""
    render.show_all(thread.erasures, render.fields, _line, json=json)


def _line(one: Erasure) -> str:
    why = "" if one.reason is None else f"  {show.readable(one.reason)}"
    state = "" if one.finished else "  unfinished: do it again"
    return f"{render.stamp(one.at_ms)}  {thing(one)}{state}{why}"


def find(
    thread: Thread, *, text: str, erase: bool, yes: bool, reason: str | None, json: bool
) -> int:
    """Find every place where a text stands, such as a password.

    All of the thread's folder is searched. The text comes from stdin, or is asked for: on a command
    line every user of the machine sees it. It is found as it is, and as JSON, repr and the journal
    escape it, also in compressed blobs, in lines of sessions, in logs and in the mirror. Copies,
    packs, backups and what programs have read are not looked at.

    With --erase, it shows where the text stands, asks, and erases all of these events, turns,
    artifacts and blobs as a whole, and the text in logs. What is leased, open or pinned is listed
    with the reason, and the exit status is 1: the same command goes on later.
    """
    sought = _text(text)
    places = thread.erasures.find(sought)
    if not erase:
        render.show_all(places, render.fields, _place, json=json)
        if not json:
            show.note(_NOT_SOUGHT)
        return 0
    if not yes:
        _confirm([*places])
    left = thread.erasures.text(sought, reason=reason)
    render.show_all(left, _left_fields, _left, json=json)
    if not json:
        show.note(f"still found at {render.count(len(left), 'place')}; {_ELSEWHERE}")
    return 1 if left else 0


def _confirm(places: list[Place]) -> None:
    """Show places and ask, at the terminal, as stdin may be the text; raise LogicError for no."""
    lines = [*map(_place, places), f"Erase what stands at {render.count(len(places), 'place')}?"]
    try:
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            terminal.write("\n".join([*lines, "[y/N] "]).encode("utf-8", "replace"))
            answer = terminal.read(100)
    except OSError as error:
        raise UsageError("there is no terminal to ask at", "add --yes") from error
    if answer.strip().lower() not in (b"y", b"yes"):
        raise LogicError("nothing was erased", "answer y, or give --yes")


def _text(path: str) -> str:
    """Return the text that is sought: from stdin, or asked for at a terminal, without an echo."""
    if path != "-":
        fix = "give --text -, and the text on stdin"
        raise UsageError("every user of this machine sees a text on a command line", fix)
    if show.has_stdin():
        from eventq.cli.inputs import decode

        return decode("-", "give a shorter text").removesuffix("\n").removesuffix("\r")
    from getpass import getpass

    return getpass("Text: ")


def _place(one: Place) -> str:
    where = f"  in {one.blob}" if one.blob not in (None, one.name) else ""
    return f"{one.kind:<12}  {show.readable(one.name)}{where}"


def _left_fields(one: Left) -> dict[str, object]:
    return {**render.fields(one.place), "why": one.why}


def _left(one: Left) -> str:
    return f"{_place(one.place)}: {show.readable(one.why)}"


COMMANDS = {
    "find": Command(
        find,
        [
            Option("text -", "Read the text from stdin, or ask for it.", required=True),
            Option("erase", "Erase what has it, after a question."),
            Option("yes", "Erase without the question."),
            REASON,
            thread_option(kinds.Opened(reads=lambda raw: not raw["erase"])),
            JSON,
        ],
        "pass show mail | eventq find --text - --thread ./inbox",
        "eventq find --text - --json --thread ./inbox < password.txt",
        "eventq find --text - --erase --reason 'a password' --thread ./inbox",
        rules=[needs("yes", "erase"), needs("reason", "erase")],
    ),
    "event erase": Command(
        event,
        [Argument("ID", kinds.WHOLE), REASON, THREAD, JSON],
        "eventq event erase 42 --reason 'a password' --thread ./inbox",
    ),
    "erasures": Command(ls, [READ, JSON], "eventq erasures --thread ./inbox"),
}
