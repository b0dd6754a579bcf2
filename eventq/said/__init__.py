"""What a payload says to a person: who speaks, and text, tool calls, results, images and the rest.

`read` takes the bytes of a turn or the content of an event, `of` a JSON value. Known are messages
of chat APIs (Anthropic's and OpenAI's shapes), entries of Claude Code, Pi, Oh My Pi and Codex,
steps of runs, reports of hooks, questions and answers. Anything else is said to be what it is, as
"JSON, 2 kB" or "PNG 800 × 600, 40 kB". Nothing here reads a clock, a file or a database.
"""

from __future__ import annotations

from eventq.said.blocks import (
    Block,
    Call,
    Data,
    Media,
    Result,
    Said,
    Text,
    Thinking,
    Usage,
    one_line,
)
from eventq.said.shapes import of, read

__all__ = [
    "Block", "Call", "Data", "Media", "Result", "Said", "Text", "Thinking", "Usage", "of",
    "one_line", "read",
]  # fmt: skip
