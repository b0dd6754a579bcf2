"""What turns say as messages of a page: who speaks, texts, calls with what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.errors import EventqError
from eventq.http.pages import ansi
from eventq.http.pages.markdown import html
from eventq.said.media import IMAGES
from eventq.said.values import dump
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eventq.records.turn import Turn
    from eventq.said import Block, Said
    from eventq.thread import Thread

    Values = dict[str, Any]

TEXT = 20_000  # characters of a text
RESULT = 1_400  # of what came of a call; the turn's page has all of it
LINE = 200  # of what stands for it while it is folded
_SPEAKERS = {"user": "you", "assistant": "agent", "tool": "tool", "system": "system"}


def messages(
    thread: Thread,
    turns: Iterable[Turn],
    *,
    text: int = TEXT,
    others: Mapping[int, list[Values]] | None = None,
) -> list[Values]:
    """Return turns as messages, the results beside the calls that they are of.

    Tokens of a response are stated once. A turn that only has results of calls before it is left
    out, and what no one says, as the notes of hooks, stands together. `others` are the other ways
    that go on from a turn.
    """
    made: list[Values] = []
    calls: dict[str, Values] = {}
    told = last = ""
    for turn in turns:
        one = _said(thread, turn)
        blocks = blocks_of(one, calls, text)
        ways = (others or {}).get(turn.turn_id, [])
        if not blocks and one.role == "tool" and one.blocks:
            made[-1]["ways"] += ways
            continue
        usage = one.usage if one.usage and (not one.response or one.response != told) else None
        told = one.response or told
        speaker = one.name or _SPEAKERS.get(one.role, turn.type_id or "turn")
        found = {
            "turn": turn.turn_id, "at": one.at or turn.created_at_ms, "role": one.role,
            "speaker": speaker, "kind": one.kind, "blocks": blocks,
            "is_same": last == speaker and not one.kind, "beside": [],
            "usage": f"{_amount(usage.out)} out · {_amount(usage.fresh + usage.cached)} in"
            if usage else "",
            "model": one.model if one.model and one.model != _model(made) else "",
            "told_model": one.model, "ways": ways,
        }  # fmt: skip
        if not _is_beside(found):
            made.append(found)
            last = speaker
        elif made and made[-1]["beside"]:
            made[-1]["beside"].append(found)
            made[-1]["ways"] += ways
        else:
            made.append({"beside": [found], "told_model": "", "ways": ways})
    return made


def blocks_of(one: Said, calls: dict[str, Values] | None = None, text: int = TEXT) -> list[Values]:
    """Return the blocks of what is said as a page shows them; what came of `calls` goes there."""
    made = [*_blocks(one, {} if calls is None else calls, text)]
    for block in made:
        if block["shape"] in ("text", "thinking"):
            block["html"] = html(block["text"], breaks=one.role != "assistant")
    return made


def _is_beside(one: Values) -> bool:
    """Return whether a message only stands beside the conversation: data of a kind, or nothing."""
    is_said = any(block["shape"] != "data" for block in one["blocks"])
    return bool(one["kind"]) and one["role"] in ("system", "") and not is_said


def _said(thread: Thread, turn: Turn) -> Said:
    """Return what a turn says, or why that cannot be read."""
    try:
        return thread.contexts.turns.said(turn)
    except EventqError as error:
        return said.Said("", (said.Text(str(error)),), "damaged")


def _model(made: list[Values]) -> str:
    """Return the model that was named last."""
    return next((one["told_model"] for one in reversed(made) if one["told_model"]), "")


def _blocks(one: Said, calls: dict[str, Values], most: int) -> Iterator[Values]:
    """Yield the blocks of a message; what came of a known call goes there."""
    for block in one.blocks:
        if isinstance(block, said.Call):
            given = block.given if isinstance(block.given, str) else dump(block.given or "")
            made = {
                "shape": "call", "name": block.name, "argument": block.argument,
                "given": _cut(given, most) if block.given else "", "result": [], "lines": 0,
                "state": "no result",
            }  # fmt: skip
            calls[block.id or f"#{len(calls)}"] = made
            yield made
        elif isinstance(block, said.Result):
            if (known := calls.get(block.call)) is not None:
                known |= _result(block, most)
            else:
                line = said.one_line(said.Said("", block.blocks).text, LINE)
                yield {"shape": "result", "argument": line, **_result(block, most)}
        else:
            yield shown(block, most)


def _result(block: said.Result, most: int) -> Values:
    """Return what came of a call."""
    texts = [each.text for each in block.blocks if isinstance(each, said.Text)]
    lines = sum(text.count("\n") + 1 for text in texts)
    most = most if most > TEXT else RESULT
    result = [_printed(each, most) for each in block.blocks]
    state = "failed" if block.failed else "done"
    return {"state": state, "lines": lines, "result": result}


def _printed(block: Block, most: int) -> Values:
    """Return a block of a result; tools write for terminals."""
    made = shown(block, most)
    return made | {"printed": ansi.text(made["text"])} if made["shape"] == "text" else made


def shown(block: Block, most: int = TEXT) -> Values:
    """Return a block that is no call and no result as a page shows it."""
    if isinstance(block, said.Media):
        is_image = block.media_type in IMAGES or block.media_type == "image/"
        return {"shape": "media", "shown": is_image, **block._asdict()}
    if isinstance(block, said.Data):
        line = said.one_line(block.text, LINE)
        return {
            "shape": "data",
            "what": block.what,
            "argument": line,
            "text": _cut(block.text, most),
        }
    shape = "thinking" if isinstance(block, said.Thinking) else "text"
    return {
        "shape": shape,
        "html": "",
        "printed": "",
        "text": _cut(getattr(block, "text", ""), most),
    }


def _cut(text: str, most: int) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[:most]}\n… {count(left, 'more character')}"


def _amount(number: int) -> str:
    """Return a number of tokens: 206, 2.2 k, 33 k, 1.24 M."""
    if number < 1_000:
        return str(number)
    if number < 999_500:
        return f"{number / 1_000:.1f} k" if number < 9_950 else f"{number / 1_000:.0f} k"
    return f"{number / 1_000_000:.2f} M"
