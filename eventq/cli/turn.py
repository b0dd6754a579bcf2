"""The commands of turns: each parses, makes one call, and shows the result."""

from __future__ import annotations

from _signal import SIGTERM, default_int_handler, signal  # type: ignore[import-not-found]  # the package costs 3 ms

from eventq.cli import render, show
from eventq.cli.given import check_one, check_source, open_memory, payload, refs, source_of, which
from eventq.cli.options import maybe, number, text
from eventq.errors import EventqError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from eventq.cli.given import Input
    from eventq.cli.options import Raw
    from eventq.dag.contexts import Context, OpenTurn
    from eventq.records import Turn
    from eventq.thread import Thread


def append(raw: Raw) -> None:
    """Append a turn, at once or as it comes."""
    check_one(raw, "content", "file")
    check_one(raw, "content", "allow-empty")
    check_source(raw)
    if raw["stream"]:
        _check_stream(raw)
    is_open = show.stdin_is_open()
    with open_memory(raw) as thread:
        context = thread.contexts.get(which(raw))
        made = _stream(raw, context, is_open=is_open) if raw["stream"] else _append(raw, context, is_open=is_open)
        _show_made(raw, made)


def _append(raw: Raw, context: Context, *, is_open: bool) -> Turn:
    return context.append(
        payload(raw, is_open=is_open),
        canonical=text(raw, "canonical"),
        parent=maybe(raw, "parent", least=1),
        expect_hash=text(raw, "expect-hash"),
        **_kind(raw),
        **_sealing(raw),
    )


def _kind(raw: Raw) -> dict[str, Any]:
    return {
        "type_id": text(raw, "type") or "message",
        "type_version": number(raw, "type-version", 1),
        "encoding": number(raw, "encoding"),
    }


def _sealing(raw: Raw) -> dict[str, Any]:
    return {
        "flags": number(raw, "flags"),
        "refs": refs(raw),
        "expected_head": maybe(raw, "expected-head"),
        "key": text(raw, "key"),
        "emit": bool(raw["emit"]),
        "source": text(raw, "source") or "self",
    }


def _check_stream(raw: Raw) -> None:
    for name in ("content", "canonical", "parent", "expect-hash"):
        check_one(raw, "stream", name)
    if raw["file"] not in (None, "-"):
        check_one(raw, "stream", "file")


def _stream(raw: Raw, context: Context, *, is_open: bool) -> Turn:
    """Store stdin as it comes; what has come stays as an open turn when this ends before stdin does."""
    kind, sealing, file = _kind(raw), _sealing(raw), source_of(raw, is_open=is_open)
    opened = context.open_turn(**kind)
    seal = f"{show.program()} turn seal {opened.id} --thread {raw['thread']}"
    fix = f"what has come is kept: run '{seal}', or 'turn discard'"
    before = signal(SIGTERM, default_int_handler)
    try:
        return _fill(opened, file).seal(**sealing)
    except EventqError as error:
        error.fix = f"{error.fix}; {fix}"
        raise
    except KeyboardInterrupt:
        show.error(f"open turn {opened.id} was interrupted", fix, as_json=bool(raw["json"]))
        raise
    finally:
        signal(SIGTERM, before)


def _fill(opened: OpenTurn, file: Input) -> OpenTurn:
    while data := file.read():
        opened.append_delta(data)
    return opened


def _show_made(raw: Raw, made: Turn) -> None:
    if raw["json"]:
        show.dump(render.turn(made, payload=False))
    else:
        show.say(render.head(made))


def last(raw: Raw) -> None:
    """Show the newest turns."""
    with open_memory(raw, read_only=True) as thread:
        page = _context(raw, thread).last(number(raw, "limit", 64, least=1), **_reading(raw))
        _show(raw, page)
        _say_more(raw, "above", "before", "turn", page.next_cursor)


def before(raw: Raw) -> None:
    """Show the turns above one."""
    with open_memory(raw, read_only=True) as thread:
        page = _context(raw, thread).before(number(raw, "turn"), number(raw, "limit", 64, least=1), **_reading(raw))
        _show(raw, page)
        _say_more(raw, "above", "before", "turn", page.next_cursor)


def between(raw: Raw) -> None:
    """Show the turns from a depth on."""
    with open_memory(raw, read_only=True) as thread:
        page = _context(raw, thread).range(number(raw, "from"), number(raw, "limit", 64, least=1), **_reading(raw))
        _show(raw, page)
        _say_more(raw, "below", "range", "from", page.next_cursor)


def replay(raw: Raw) -> None:
    """Show a whole chain."""
    with open_memory(raw, read_only=True) as thread:
        context, end = _context(raw, thread), maybe(raw, "to")
        view = context if end is None else context.at(end)
        _show(raw, view.replay(**_reading(raw)))


def _context(raw: Raw, thread: Thread, name: str = "CONTEXT") -> Context:
    return thread.contexts.get(which(raw, name))


def _reading(raw: Raw) -> dict[str, Any]:
    return {"payload": not raw["no-payload"], "as_of": maybe(raw, "as-of")}


def _show(raw: Raw, turns: Iterable[Turn]) -> None:
    if raw["json"]:
        render.dump_all(render.turn(turn, payload=not raw["no-payload"]) for turn in turns)
    else:
        render.say_all(line for turn in turns for line in render.readable(turn))


def _say_more(raw: Raw, where: str, command: str, option: str, cursor: int | None) -> None:
    """Say, to people, which command shows the next page."""
    if cursor is None or raw["json"]:
        return
    from eventq.log.notifier import quote  # `shlex` imports `re`: 8 ms

    words = [quote(str(raw["CONTEXT"])), f"--{option} {cursor}"]
    words += [f"--{name} {quote(str(raw[name]))}" for name in ("limit", "as-of", "thread") if raw[name] is not None]
    words += ["--no-payload"] if raw["no-payload"] else []
    show.say(show.readable(f"-- more {where}: {show.program()} turn {command} {' '.join(words)}"))


def show_one(raw: Raw) -> None:
    """Show one turn."""
    with open_memory(raw, read_only=True) as thread:
        _show(raw, [thread.contexts.turn(number(raw, "TURN"), **_reading(raw))])


def diff(raw: Raw) -> None:
    """Show how two contexts differ."""
    with open_memory(raw, read_only=True) as thread:
        found = _context(raw, thread).diff(_context(raw, thread, "with"), **_reading(raw))
        sides = (("mine", "-", found.mine), ("theirs", "+", found.theirs))
        if raw["json"]:
            show.dump({"ancestor_turn_id": found.ancestor, "mine": len(found.mine), "theirs": len(found.theirs)})
            for side, _, turns in sides:
                render.dump_all(_on_side(raw, side, turns))
        else:
            show.say(f"common ancestor: {f'turn {found.ancestor}' if found.ancestor else '(none)'}")
            for _, sign, turns in sides:
                render.say_all(f"{sign} {render.excerpt(turn)}" for turn in turns)


def _on_side(raw: Raw, side: str, turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    return ({"side": side, **render.turn(turn, payload=not raw["no-payload"])} for turn in turns)


def patch(raw: Raw) -> None:
    """Lay a payload over a turn's, or hide it."""
    check_one(raw, "content", "file", "tombstone")
    check_one(raw, "content", "allow-empty")
    for name in ("canonical", "refs", "allow-empty"):
        check_one(raw, "tombstone", name)
    is_open = show.stdin_is_open()
    with open_memory(raw) as thread:
        turn_id, contexts = number(raw, "TURN"), thread.contexts
        if raw["tombstone"]:
            seq = contexts.tombstone(turn_id)
        else:
            canonical = text(raw, "canonical")
            seq = contexts.patch(turn_id, payload(raw, is_open=is_open), canonical=canonical, refs=refs(raw))
    if raw["json"]:
        show.dump({"turn_id": turn_id, "seq": seq})
    else:
        show.say(str(seq))


def opened(raw: Raw) -> None:
    """List the turns that are still being written."""
    with open_memory(raw, read_only=True) as thread:
        found = thread.contexts.open_turns()
        if raw["json"]:
            render.dump_all(map(render.fields, found))
        else:
            render.say_all(map(render.opened, found))


def seal(raw: Raw) -> None:
    """Make a turn of an open one."""
    check_source(raw)
    with open_memory(raw) as thread:
        _show_made(raw, thread.contexts.open_turn(number(raw, "OPEN_ID")).seal(**_sealing(raw)))


def discard(raw: Raw) -> None:
    """Forget an open turn."""
    with open_memory(raw) as thread:
        open_id = number(raw, "OPEN_ID")
        thread.contexts.open_turn(open_id).discard()
    if raw["json"]:
        show.dump({"open_id": open_id})
    else:
        show.say(f"Discarded open turn {open_id}")
