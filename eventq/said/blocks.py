"""The values that a payload is turned into."""

from __future__ import annotations

from eventq.record import Record
from eventq.said.values import pairs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Text(Record):
    """What was said, as Markdown if an agent said it."""

    text: str


class Thinking(Record):
    """What a model thought; "" if that is not recorded."""

    text: str


class Media(Record):
    """An image or another file, in a blob or elsewhere."""

    what: str  # "PNG 800 × 600, 40 kB", as far as it is known
    media_type: str  # "" if it is not stated
    ref: str | None  # of the blob, if it is one
    name: str = ""


class Data(Record):
    """Anything else: what it is, as "JSON, 2 kB", and its text, if it is text."""

    what: str
    text: str


class Result(Record):
    """What came of a tool call; the blocks are texts, images and data."""

    call: str  # the id of the call, "" if it is not stated
    blocks: tuple[Text | Media | Data, ...]
    failed: bool = False
    name: str = ""  # of the tool, if it is stated


class Call(Record):
    """A tool call: the `argument` that tells most of it, on one line, and all of them."""

    id: str  # "" if it is not stated
    name: str
    argument: str
    given: Any  # the arguments as a JSON value, or the text that they are


Block = Text | Thinking | Call | Result | Media | Data


class Usage(Record):
    """Tokens of one response of a model. `fresh` were read, `cached` came from a cache."""

    out: int
    fresh: int
    cached: int

    @property
    def shown(self) -> str:
        """The counts in words: "206 tokens out, 33,000 in, 28,000 from the cache"."""
        cached = f", {self.cached:,} from the cache" if self.cached else ""
        return f"{self.out:,} tokens out, {self.fresh:,} in{cached}"


class Said(Record):
    """What one payload says.

    `role` is "user", "assistant", "tool", "system", or "" for what nobody says. `kind` names what
    is no plain message: "compaction", "model change", "question". `name` is that of the speaker, if
    there are several. A response of a model may be several payloads, which state its `usage` each.
    """

    role: str
    blocks: tuple[Block, ...]
    kind: str = ""
    name: str = ""
    at: int | None = None  # when, in milliseconds
    model: str = ""
    usage: Usage | None = None
    response: str = ""  # the id of the model's response that it is a part of

    @property
    def text(self) -> str:
        """All of it as plain text: calls and images are lines, thoughts are left out."""
        return "\n".join(filter(None, map(_plain, self.blocks)))

    def lines(self) -> Iterator[str]:
        """Yield all of it for a terminal: who speaks, then each block, calls and results marked."""
        about = [self.kind or self.role, self.name, self.model, self.usage and self.usage.shown]
        if any(about):
            yield "  ".join(filter(None, about))
        for block in self.blocks:
            mark = _MARKS.get(type(block), "")
            if isinstance(block, Result) and block.failed:
                mark += "failed: "
            text = block.text if isinstance(block, Thinking) else _plain(block)
            if isinstance(block, Data) and self.kind:
                text = block.what
            yield from (mark * (not n) + line for n, line in enumerate(text.split("\n")) if text)

    def line(self, characters: int) -> str:
        """Return the beginning on one line: what was said, or else what was done, or thought.

        Without any of that it is the kind, or other data: of an object its keys and values.
        """
        texts = [one.text for one in self.blocks if isinstance(one, Text)]
        done = [_plain(one) for one in self.blocks if not isinstance(one, Data)]
        thoughts = [one.text for one in self.blocks if isinstance(one, Thinking)]
        known = (one for one in (*texts, *done, *thoughts, self.kind) if one.strip())
        found = next(known, "")
        if not found:  # only then is an object parsed
            data = (one for one in self.blocks if isinstance(one, Data))
            rest = (each for one in data for each in (pairs(one.text), one.text, one.what))
            found = next((one for one in rest if one.strip()), "")
        return one_line(found, characters)


_MARKS: dict[type, str] = {Call: "→ ", Result: "← ", Thinking: "(thinking) "}


def one_line(text: str, characters: int) -> str:
    """Return the beginning of a text on one line, with "…" where more follows."""
    start = " ".join(text[: 4 * characters].split())
    whole = len(text) <= 4 * characters and len(start) <= characters
    return start if whole else f"{start[: characters - 1].rstrip()}…"


def _plain(block: Block) -> str:
    if isinstance(block, (Text, Data)):
        return block.text or (block.what if isinstance(block, Data) else "")
    if isinstance(block, Call):
        return f"{block.name} {block.argument}".rstrip()
    if isinstance(block, Result):
        return "\n".join(filter(None, map(_plain, block.blocks)))
    if isinstance(block, Media):
        return f"[{block.name or block.what}]"
    return ""
