"""What turns say as messages of a page: who speaks, texts, calls with what came of them."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from eventq import said
from eventq.errors import EventqError
from eventq.http.pages import ansi
from eventq.http.pages.markdown import html
from eventq.http.pages.wording import amount
from eventq.memory.nodes import COMPACT, END
from eventq.memory.turns import unread
from eventq.record import Record
from eventq.said.media import IMAGES
from eventq.said.values import dump, string
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eventq.memory.turns import View
    from eventq.records.turn import Turn
    from eventq.said import Block, Said
    from eventq.thread import Thread

    Values = dict[str, Any]

TEXT = 20_000  # characters of a text
RESULT = 1_400  # of what came of a call; the turn's page has all of it
LINE = 200  # of what stands for it while it is folded
EXCERPT = 300  # of a payload in a list
TASK = 300  # of what a subagent is to do, until it is folded
LONG = 1_000  # of what a tool says for itself, until that is
_MISSING = ("erased", "hidden", "damaged")  # what stands in the place of a message
_NAMES = ("name", "subagent_type", "agent_type", "agent")  # of a subagent, in its call
_NEAR = 20  # messages, among which the beginning of a response is
_NAME = 16  # characters, or it is an id
_SPEAKERS = {"user": "you", "assistant": "agent", "tool": "tool", "system": "system"}
_NODES = {END: "end", COMPACT: "compaction"}  # roles of steps that nobody plays


class Below(Record):
    """What goes on from a turn beside the way that is shown: other branches, and subagents."""

    ways: list[Values]
    agents: list[Values]


_NOTHING = Below([], [])


def messages(
    thread: Thread,
    turns: Iterable[Turn],
    *,
    text: int = TEXT,
    agent: str = "",
    below: Mapping[int, Below] | None = None,
    is_subagent: bool = False,
) -> list[Values]:
    """Return turns as messages, the results beside the calls that they are of.

    A response of a model is one message, and states its tokens once. A turn that only has results
    of calls before it is left out, and what no one says, as the notes of hooks, stands together.
    `agent` is what an assistant without a name is called. Who speaks to a subagent is no person.
    """
    made: list[Values] = []
    calls: dict[str, Values] = {}
    names = _SPEAKERS | ({"assistant": agent} if agent else {})
    told = last = ""
    for turn in turns:
        one = said_of(thread, turn)
        blocks = blocks_of(one, calls, text)
        found = (below or {}).get(turn.turn_id, _NOTHING)
        if made and not blocks and one.role == "tool" and one.blocks:
            made[-1]["ways"] += found.ways
            _place(made[-1], found.agents)
            continue
        if not blocks and one.blocks and not (one.kind or found.ways or found.agents):
            continue  # a thought that was not recorded
        is_more = bool(one.response) and one.response == told
        first = _begun(made, one.response) if is_more else None
        if first and one.usage and one.usage.out > first["out"]:  # it counts while it is written
            first |= _usage(one)
        told = one.response or told
        name = "" if is_subagent else _NODES.get(one.name, one.name)
        message: Values = {
            "turn": turn.turn_id, "turns": [turn.turn_id], "at": one.at or turn.created_at_ms,
            "role": one.role, "speaker": name or names.get(one.role, turn.type_id or "turn"),
            "kind": one.kind, "blocks": blocks, "beside": [], "ways": [*found.ways], "agents": [],
            **_usage(None if is_more else one),
            "model": one.model if one.model and one.model != _model(made) else "",
            "told_model": one.model, "fold": _fold(one, is_task=is_subagent and one.role == "user"),
            "words": one.line(LINE) if any(isinstance(b, said.Text) for b in one.blocks) else "",
        }  # fmt: skip
        if is_subagent and one.role == "user":
            message |= {"role": "system", "speaker": "task"}
        message["is_same"] = last == message["speaker"] and not one.kind
        if _is_beside(message):
            if not (made and made[-1]["beside"]):
                made.append({"beside": [], "told_model": "", "ways": [], "agents": []})
            made[-1]["beside"].append(message)
            made[-1]["ways"] += message["ways"]
        elif is_more and made and made[-1].get("told_as") == one.response:
            made[-1]["blocks"] += blocks
            made[-1]["turns"].append(turn.turn_id)
            made[-1]["ways"] += message["ways"]
        else:
            made.append(message | {"told_as": one.response})
            last = message["speaker"]
        _place(made[-1], found.agents)
    return made


def _begun(made: list[Values], response: str) -> Values | None:
    """Return the message that a response of a model begins with, among the last few."""
    return next((one for one in made[-_NEAR:] if one.get("told_as") == response), None)


def _usage(one: Said | None) -> Values:
    """Return the tokens of a response as a page shows them, with how many it wrote."""
    used = one.usage if one else None
    shown = tokens(used.out, used.fresh + used.cached) if used else ""
    return {"usage": shown, "out": used.out if used else 0}


def _fold(one: Said, *, is_task: bool) -> str:
    """Return what stands for a long text that no person and no agent says; "" if it is shown."""
    length = len(one.text)
    if is_task and length > TASK:
        return f"Its task, {count(length, 'character')}"
    if one.role == "system" and length > LONG:
        return f"{(one.kind or 'text').capitalize()}, {count(length, 'character')}"
    return ""


def _place(message: Values, agents: Iterable[Values]) -> None:
    """Put subagents into the calls of a message that have started them, as far as these tell."""
    calls = [one for one in message.get("blocks", ()) if one["shape"] == "call"]
    for agent in agents:
        alike = [one for one in calls if agent["task"] and agent["task"] in one["words"]]
        free = [one for one in calls if not one["agents"]]
        chosen = next(iter((*alike, *free, *calls)), message)
        chosen["agents"].append(agent)
        agent["label"] = named(chosen, agent.get("label", ""))
        for one in agent["talk"]:
            if one.get("role") == "assistant":
                one["speaker"] = agent["label"]


def named(call: Values | None, label: str) -> str:
    """Return what a subagent is called: by the call that started it, or the beginning of its id."""
    is_id = len(label) > _NAME and " " not in label
    return (call and call.get("named")) or (label[:8] if is_id else label)


def blocks_of(one: Said, calls: dict[str, Values] | None = None, text: int = TEXT) -> list[Values]:
    """Return the blocks of what is said as a page shows them; what came of `calls` goes there."""
    made = [*_blocks(one, {} if calls is None else calls, text)]
    for block in made:
        if block["shape"] in ("text", "thinking"):
            block["html"] = html(block["text"], breaks=one.role != "assistant")
    return made


def is_note(one: Said) -> bool:
    """Return whether nobody says this: it stands beside a conversation, as the notes of hooks."""
    return bool(one.kind) and one.role in ("system", "")


def is_spoken(one: Said) -> bool:
    """Return whether somebody says this in words, though a turn may not tell who."""
    is_message = one.role in ("user", "assistant", "") and one.kind in ("", "step")
    return is_message and any(isinstance(block, said.Text) for block in one.blocks)


def _is_beside(one: Values) -> bool:
    """Return whether a message only stands beside the conversation.

    That is what nobody says, such as a change of the model, and data of a kind, or nothing.
    """
    is_said = any(block["shape"] != "data" for block in one["blocks"])
    is_own = one["kind"] in _MISSING or not one["kind"]
    return not is_own and (not one["role"] or (one["role"] == "system" and not is_said))


def said_of(thread: Thread, turn: Turn) -> Said:
    """Return what a turn says, or why that cannot be read."""
    return by_type(turn, thread.contexts.turns.told(turn))


def by_type(turn: Turn, one: Said) -> Said:
    """Return what a turn says; if that does not say who speaks, its type may."""
    is_speaker = not one.role and not one.kind and turn.type_id in _SPEAKERS
    return one._replace(role=turn.type_id) if is_speaker else one


def results_after(thread: Thread, view: View, depth: int, most: int = 20) -> list[Turn]:
    """Return the turns of a chain from a depth on, as far as they only have results of calls."""
    after = view.range(depth, most, payload=False)
    return [*takewhile(lambda turn: said_of(thread, turn).role == "tool", after)]


def last_words(thread: Thread, turn_id: int) -> str:
    """Return what a turn says on one line, or why that cannot be read; "" for none."""
    if not turn_id:
        return ""
    try:
        return said_of(thread, thread.contexts.turn(turn_id, payload=False)).line(EXCERPT)
    except EventqError as error:
        return unread(error)


def _model(made: list[Values]) -> str:
    """Return the model that was named last."""
    return next((one["told_model"] for one in reversed(made) if one["told_model"]), "")


def _blocks(one: Said, calls: dict[str, Values], most: int) -> Iterator[Values]:
    """Yield the blocks of a message; what came of a known call goes there."""
    for block in one.blocks:
        if isinstance(block, said.Thinking) and not block.text:
            continue  # it was not recorded
        if isinstance(block, said.Call):
            made = {
                "shape": "call", "name": block.name, "argument": block.argument,
                "given": _cut(_given(block.given), most), "result": [], "lines": 0,
                "state": "no result", "agents": [], "words": _words(block), "at": one.at,
                "took": "", "named": string(block.given, *_NAMES),
            }  # fmt: skip
            calls[block.id or f"#{len(calls)}"] = made
            yield made
        elif isinstance(block, said.Result):
            if (known := calls.get(block.call)) is not None:
                known |= _result(block, most) | {"took": took(known["at"], one.at)}
            else:
                line = said.one_line(said.Said("", block.blocks).text, LINE)
                yield {"shape": "result", "argument": line, "took": "", **_result(block, most)}
        else:
            yield shown(block, most)


def _given(given: Any) -> str:
    """Return the arguments of a call: each text as it is written, a change as old and new lines."""
    if not isinstance(given, dict):
        return given if isinstance(given, str) else dump(given) if given else ""
    old, new = (given.get(f"{which}_string") for which in ("old", "new"))
    shown = {**given}
    if isinstance(old, str) and isinstance(new, str):
        del shown["old_string"], shown["new_string"]
        lines = [
            *(f"- {line}" for line in old.split("\n")),
            *(f"+ {line}" for line in new.split("\n")),
        ]
        shown["change"] = "\n".join(lines)
    return "\n".join(f"{key}: {_value(value)}" for key, value in shown.items())


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return dump(value)
    return f"\n{value}" if "\n" in value else value


def _words(call: said.Call) -> list[str]:
    """Return the texts that a call is given."""
    given = call.given.values() if isinstance(call.given, dict) else ()
    return [one for one in given if isinstance(one, str)]


def took(begun: int | None, ended: int | None) -> str:
    """Return how long a thing took, from a second on: 7.7 s, 3 min 59 s; "" if unknown."""
    seconds = (ended - begun) / 1_000 if begun and ended else 0
    if seconds < 1:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} days"


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


def tokens(out: int, read: int) -> str:
    """Return what a model wrote and read: "206 out · 33 k in"."""
    return f"{amount(out)} out · {amount(read)} in"
