"""Append turns to a context, and read them."""

from __future__ import annotations

# `signal`, the module around it, takes 3 ms to import.
from _signal import SIGTERM, default_int_handler, signal  # type: ignore[import-not-found]

from eventq.cli import kinds, render, show
from eventq.cli.inputs import open_payload, read_payload
from eventq.cli.options import (
    CONTEXT,
    EVERYWHERE,
    EXPECT_HASH,
    EXPECTED_HEAD,
    JSON,
    READ,
    REASON,
    REFS,
    THREAD,
)
from eventq.cli.rules import alone, exclude, needs
from eventq.cli.table import Argument, Command, Option, together
from eventq.errors import ErasedError, EventqError, UsageError, cited
from eventq.records.turn import NewTurn, turn_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypedDict

    from eventq.cli.inputs import Input, Payload
    from eventq.cli.table import Raw
    from eventq.memory.contexts import OpenTurn
    from eventq.records.turn import Turn
    from eventq.thread import Thread

    class Kind(TypedDict):
        """The type of a turn."""

        type_id: str
        type_version: int
        encoding: int

    class Sealing(TypedDict):
        """The options of an appended or sealed turn."""

        flags: int
        refs: tuple[str, ...]
        expected_head: int | None
        key: str | None
        emit: bool
        source: str

    class Placed(TypedDict):
        """The expected head, the key, and the source of a turn's event."""

        expected_head: int | None
        key: str | None
        source: str | None

    class Appended(Payload):
        """The payload of a turn, and the options that a sealed turn cannot have."""

        stream: bool
        parent: int | None
        expect_hash: str | None

    class Reading(TypedDict):
        """The options of reading turns."""

        payload: bool
        as_of: int | None


def append(
    thread: Thread, *, context: int | str, given: Appended, kind: Kind, sealing: Sealing, json: bool
) -> None:
    """Append a turn to a context, durably.

    The payload comes from stdin by default.
    """
    branch = thread.contexts.get(context)
    if given["stream"]:
        file = open_payload("-", allow_empty=given["allow_empty"])
        made = _stream(branch.open_turn(**kind), file, sealing, json=json)
    else:
        new = NewTurn(
            read_payload(given),
            canonical=given["canonical"],
            expect_hash=given["expect_hash"],
            flags=sealing["flags"],
            refs=sealing["refs"],
            **kind,
        )
        made = branch.append(new, parent=given["parent"], **_placed(sealing))
    _show_made(made, json=json)


def _placed(sealing: Sealing) -> Placed:
    source = sealing["source"] if sealing["emit"] else None
    return {"expected_head": sealing["expected_head"], "key": sealing["key"], "source": source}


def _seal(opened: OpenTurn, sealing: Sealing) -> Turn:
    return opened.seal(flags=sealing["flags"], refs=sealing["refs"], **_placed(sealing))


def _stream(opened: OpenTurn, file: Input, sealing: Sealing, *, json: bool) -> Turn:
    """Store stdin as it arrives. If this is interrupted, the open turn keeps what was stored."""
    seal = f"{show.program()} turn seal {opened.id} --thread {_word(show.place())}"
    fix = f"what arrived is stored: run {cited(seal)}, or 'turn discard'"
    before = signal(SIGTERM, default_int_handler)
    try:
        while data := file.read():
            opened.append_delta(data)
        return _seal(opened, sealing)
    except EventqError as error:
        error.fix = f"{error.fix}; {fix}"
        raise
    except KeyboardInterrupt:
        show.error(f"open turn {opened.id} was interrupted", fix, as_json=json)
        raise
    finally:
        signal(SIGTERM, before)


def _show_made(made: Turn, *, json: bool) -> None:
    show.result(turn_object(made, payload=False), render.head(made), json=json)


def last(thread: Thread, *, context: int | str, limit: int, reading: Reading, json: bool) -> None:
    """Show the newest turns of a context, oldest first. 'turn before' shows older ones."""
    page = thread.contexts.get(context).last(limit, **reading)
    _show(thread, page, reading, json=json)
    if page.next_cursor and not json:
        _say_more("above", f"before {_word(context)} --turn {page.next_cursor}", limit, reading)


def before(
    thread: Thread, *, context: int | str, turn: int, limit: int, reading: Reading, json: bool
) -> None:
    """Show the turns of a context before another, oldest first."""
    page = thread.contexts.get(context).before(turn, limit, **reading)
    _show(thread, page, reading, json=json)
    if page.next_cursor and not json:
        _say_more("above", f"before {_word(context)} --turn {page.next_cursor}", limit, reading)


def between(
    thread: Thread, *, context: int | str, first: int, limit: int, reading: Reading, json: bool
) -> None:
    """Show the turns of a context from a depth on."""
    page = thread.contexts.get(context).range(first, limit, **reading)
    _show(thread, page, reading, json=json)
    if page.next_cursor and not json:
        _say_more("below", f"range {_word(context)} --from {page.next_cursor}", limit, reading)


def _word(context: int | str) -> str:
    from eventq.log.notifier import quote  # `shlex` imports `re`: 8 ms

    return quote(str(context))


def _say_more(where: str, command: str, limit: int, reading: Reading) -> None:
    """Print the command that shows the next page."""
    words = [f"{show.program()} turn {command}"]
    words += [f"--limit {limit}"] if str(limit) != _PAGE.default else []
    words += [f"--as-of {reading['as_of']}"] if reading["as_of"] is not None else []
    words += [f"--thread {_word(show.place())}"]
    words += [] if reading["payload"] else ["--no-payload"]
    show.say(show.readable(f"-- more {where}: {' '.join(words)}"))


def replay(
    thread: Thread, *, context: int | str, to: int | None, reading: Reading, json: bool
) -> None:
    """Show all turns of a context from its root on. Uses bounded memory."""
    branch = thread.contexts.get(context)
    view = branch if to is None else branch.at(to)
    _show(thread, view.replay(**reading), reading, json=json)


def _show(thread: Thread, turns: Iterable[Turn], reading: Reading, *, json: bool) -> None:
    """Show turns; in a terminal what each says, in a pipe what it is."""
    if json:
        render.dump_all(turn_object(turn, payload=reading["payload"]) for turn in turns)
        return
    said = thread.contexts.turns.said if reading["payload"] and show.is_terminal() else None
    render.say_all(
        line for turn in turns for line in render.readable(turn, said(turn) if said else None)
    )


def show_one(thread: Thread, *, turn: int, reading: Reading, json: bool) -> None:
    """Show one turn."""
    found = thread.contexts.turn(turn, **reading)
    _show(thread, [found], reading, json=json)
    if found.tombstone and found.hash and not json:
        try:
            thread.blobs.get(found.hash)
        except ErasedError as error:
            show.say(f"  {error.what}")


def erase(thread: Thread, *, turn: int, reason: str | None, everywhere: bool, json: bool) -> None:
    """Erase what a turn says from all files of the thread.

    The turn keeps its hash and depth. Its patches go too, and the blobs that only it refers to; of
    a step of a run its text, its meta and the question, and of a start the task and the system
    texts. Where others have the same bytes, they are listed first, and --everywhere is needed.
    Copies of the thread, packs and backups are not reached.
    """
    from eventq.cli.erase import show_erasure

    said = thread.erasures.said("turn", turn)
    made = thread.erasures.turn(turn, reason=reason, everywhere=everywhere)
    show_erasure(thread, made, said, json=json)


def diff(
    thread: Thread, *, context: int | str, other: int | str, reading: Reading, json: bool
) -> None:
    """Show the turns of two contexts after their last common turn.

    Lines with - are the first context's, lines with + the other's.
    """
    contexts = thread.contexts
    found = contexts.get(context).diff(contexts.get(other), **reading)
    sides = (("mine", "-", found.mine), ("theirs", "+", found.theirs))
    if json:
        counts = {"mine": len(found.mine), "theirs": len(found.theirs)}
        show.dump({"ancestor_turn_id": found.ancestor, **counts})
        for side, _, turns in sides:
            render.dump_all(_on_side(side, turns, payload=reading["payload"]))
        return
    show.say(f"common ancestor: {f'turn {found.ancestor}' if found.ancestor else '(none)'}")
    for _, sign, turns in sides:
        render.say_all(f"{sign} {render.excerpt(turn)}" for turn in turns)


def _on_side(side: str, turns: Iterable[Turn], *, payload: bool) -> Iterator[dict[str, Any]]:
    return ({"side": side, **turn_object(turn, payload=payload)} for turn in turns)


def patch(
    thread: Thread, *, turn: int, given: Payload, tombstone: bool, refs: tuple[str, ...], json: bool
) -> None:
    """Replace a turn's payload for all readers. Both are kept; the patch's seq is printed."""
    contexts = thread.contexts
    if tombstone:
        seq = contexts.tombstone(turn)
    else:
        payload = read_payload(given)
        seq = contexts.patch(turn, NewTurn(payload, canonical=given["canonical"], refs=refs))
    show.result({"turn_id": turn, "seq": seq}, str(seq), json=json)


def opened(thread: Thread, *, json: bool) -> None:
    """List open turns. They are being written, or their writer has ended."""
    render.show_all(thread.contexts.open_turns(), render.fields, render.opened, json=json)


def seal(thread: Thread, *, open_id: int, sealing: Sealing, json: bool) -> None:
    """Seal an open turn: append its content as one turn."""
    _show_made(_seal(thread.contexts.open_turn(open_id), sealing), json=json)


def discard(thread: Thread, *, open_id: int, json: bool) -> None:
    """Discard an open turn and what was written to it."""
    thread.contexts.open_turn(open_id).discard()
    show.result({"open_id": open_id}, f"Discarded open turn {open_id}", json=json)


def _only_stdin(raw: Raw) -> None:
    """Refuse a file beside --stream, which reads stdin."""
    if raw["stream"] and raw["file"] not in (None, "-"):
        raise UsageError("--stream and --file exclude each other", "give one of them")


_PAGE = Option("limit N", "Show at most N turns.", kinds.POSITIVE, default="64")
_READING = (
    *together(
        "reading",
        Option("as-of SEQ", "Ignore patches after this one; 0 ignores all.", kinds.WHOLE),
        Option("no-payload", "Leave the payloads out.", kinds.OFF, parameter="payload"),
    ),
    READ,
    JSON,
)
_PAYLOAD = together(
    "given",
    Option(
        "file FILE", "Read the payload from a file, or from stdin for -.", kinds.path, default="-"
    ),
    Option("content TEXT", "The payload.", kinds.verbatim),
    Option("allow-empty", "Accept an empty stdin as a payload without bytes."),
    Option(
        "canonical RULE", "Store the canonical form of a JSON payload. The rule is eventq-json-1."
    ),
)
_SEALING = together(
    "sealing",
    Option("flags N", "An application-defined 32-bit number.", kinds.WHOLE, default="0"),
    REFS,
    EXPECTED_HEAD,
    Option("key KEY", "Append the turn once. Within 24 hours the same key returns the first turn."),
    Option("emit", "Push an event with it: type record, subtype turn."),
    Option("source ADDRESS", "The sender of that event.", default="self"),
)
_TURN, _OPEN_ID = Argument("TURN", kinds.WHOLE), Argument("OPEN_ID", kinds.WHOLE)

COMMANDS = {
    "turn append": Command(
        append,
        [
            CONTEXT,
            *_PAYLOAD,
            *together(
                "kind",
                Option(
                    "type TYPE", "The type of the turn.", default="message", parameter="type_id"
                ),
                Option("type-version N", "The version of the type.", kinds.WHOLE, default="1"),
                Option(
                    "encoding N",
                    "An application-defined number for the encoding.",
                    kinds.WHOLE,
                    default="0",
                ),
            ),
            *together(
                "given",
                Option(
                    "parent TURN", "Append after this turn instead of the newest.", kinds.POSITIVE
                ),
                EXPECT_HASH,
                Option("stream", "Store stdin as it arrives, and seal it as a turn at its end."),
            ),
            *_SEALING,
            THREAD,
            JSON,
        ],
        "eventq turn append main --thread ./inbox --content 'use plan B' --expected-head 41",
        "agent | eventq turn append main --thread ./inbox --stream",
        rules=[
            exclude("content", "file"),
            exclude("content", "allow-empty"),
            needs("source", "emit"),
            alone("stream", "content", "canonical", "parent", "expect-hash"),
            _only_stdin,
        ],
    ),
    "turn last": Command(
        last, [CONTEXT, _PAGE, *_READING], "eventq turn last main --limit 10 --thread ./inbox"
    ),
    "turn before": Command(
        before,
        [
            CONTEXT,
            Option("turn TURN", "Show the turns before this one.", kinds.WHOLE, required=True),
            _PAGE,
            *_READING,
        ],
        "eventq turn before main --turn 43 --limit 10 --thread ./inbox",
    ),
    "turn range": Command(
        between,
        [
            CONTEXT,
            Option(
                "from DEPTH",
                "The depth of the first turn; 0 is the root.",
                kinds.WHOLE,
                default="0",
                parameter="first",
            ),
            _PAGE,
            *_READING,
        ],
        "eventq turn range main --from 100 --limit 10 --thread ./inbox",
    ),
    "turn replay": Command(
        replay,
        [CONTEXT, Option("to TURN", "End at this turn.", kinds.WHOLE), *_READING],
        "eventq turn replay main --json --thread ./inbox",
    ),
    "turn show": Command(show_one, [_TURN, *_READING], "eventq turn show 12 --thread ./inbox"),
    "turn patch": Command(
        patch,
        [_TURN, *_PAYLOAD, Option("tombstone", "Hide the payload instead."), REFS, THREAD, JSON],
        "eventq turn patch 12 --content 'use plan C' --thread ./inbox",
        "eventq turn patch 12 --tombstone --thread ./inbox",
        rules=[
            exclude("content", "file", "tombstone"),
            exclude("content", "allow-empty"),
            alone("tombstone", "canonical", "refs", "allow-empty"),
        ],
    ),
    "turn erase": Command(
        erase,
        [_TURN, REASON, EVERYWHERE, THREAD, JSON],
        "eventq turn erase 12 --reason 'a password' --thread ./inbox",
    ),
    "turn diff": Command(
        diff,
        [
            CONTEXT,
            Option(
                "with CONTEXT", "The other context.", kinds.branch, required=True, parameter="other"
            ),
            *_READING,
        ],
        "eventq turn diff main --with retry --thread ./inbox",
    ),
    "turn opened": Command(opened, [READ, JSON], "eventq turn opened --thread ./inbox"),
    "turn seal": Command(
        seal,
        [_OPEN_ID, *_SEALING, THREAD, JSON],
        "eventq turn seal 3 --thread ./inbox",
        rules=[needs("source", "emit")],
    ),
    "turn discard": Command(
        discard, [_OPEN_ID, THREAD, JSON], "eventq turn discard 3 --thread ./inbox"
    ),
}
