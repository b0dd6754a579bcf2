"""Texts without what Claude Code adds for itself: reminders, caveats, counts, names of commands."""

from __future__ import annotations

import re

_GONE = (
    "system-reminder", "local-command-caveat", "usage", "command-message", "ide_opened_file",
    "ide_selection",
)  # fmt: skip
_KEPT = ("local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr")
_AGENT = re.compile(r"^agentId: [\w-]+(?: \([^\n]{0,300}\))?$", re.MULTILINE)


def tidy(text: str) -> str:
    """Return a text without that; a command that a person gave is what they typed."""
    if "<" not in text and "agentId: " not in text:
        return text
    for tag in _GONE:
        text = _replaced(text, tag, "", keep=False)
    for tag in _KEPT:
        text = _replaced(text, tag, "", keep=True)
    text = _replaced(text, "bash-input", "! ", keep=True)
    if "<command-name>" in text:
        name, rest = _cut(text, "command-name")
        given, rest = _cut(rest, "command-args")
        text = f"{name} {given}".strip() + (f"\n{rest.strip()}" if rest.strip() else "")
    return _AGENT.sub("", text).strip("\n") if "agentId: " in text else text.strip("\n")


def _replaced(text: str, tag: str, before: str, *, keep: bool) -> str:
    """Return a text without the elements of a name, or without their tags."""
    start, end = f"<{tag}>", f"</{tag}>"
    kept = []
    at = 0
    while (begin := text.find(start, at)) >= 0:
        close = text.find(end, begin)
        if close < 0:
            break
        kept += [text[at:begin], before + text[begin + len(start) : close] if keep else ""]
        at = close + len(end)
    return "".join(kept) + text[at:] if at else text


def _cut(text: str, tag: str) -> tuple[str, str]:
    """Return what is in the first element of a name, and the text without that."""
    before, found, rest = text.partition(f"<{tag}>")
    inside, closed, after = rest.partition(f"</{tag}>")
    return (inside.strip(), before + after) if found and closed else ("", text)
