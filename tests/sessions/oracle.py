"""What Claude Code resumes with, worked out from the bytes of a file as simply as can be.

Nothing of eventq is used, and nothing is quick: each entry is compared with each other one. It
knows no parallel calls, which have tests of their own.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

Entry = dict[str, Any]
ENDS = ("user", "assistant", "attachment", "system")
LINKED = (*ENDS, "progress")
BLANK = b" \t\r\n"
LENIENT = json.JSONDecoder(strict=False, parse_constant=lambda _: None)


def records(data: bytes) -> list[Entry]:
    """Return the entries of a file: each line that is an object, and the records on the others."""
    found: list[Entry] = []
    for line in data.split(b"\n"):
        try:
            value = json.loads(
                line.strip(BLANK).removeprefix(b"\xef\xbb\xbf").decode(), parse_constant=refuse
            )
        except ValueError:
            value = None
        found += [value] if isinstance(value, dict) else on(line.decode(errors="replace"))
    return found


def refuse(name: str) -> Any:
    """Raise ValueError for what JSON has not."""
    raise ValueError(name)


def on(line: str) -> list[Entry]:
    """Return the records on a line, those inside other objects left out."""
    found: list[Entry] = []
    at = 0
    while (at := line.find("{", at)) >= 0:
        try:
            value, at = LENIENT.raw_decode(line, at)
        except ValueError:
            at += 1
        else:
            linked = "uuid" in value and "parentUuid" in value and value.get("type") in LINKED
            found += [value] if linked or is_beside(value) else []
    return found


def is_beside(value: Entry) -> bool:
    """Return whether a record is the title of its session, or says where that goes on."""
    return value.get("type") in ("custom-title", "last-prompt") and "sessionId" in value


def main(entries: list[Entry]) -> list[str]:
    """Return the ids of the entries that a session goes on with."""
    nodes = [one for one in entries if is_node(one)]
    last = {one["uuid"]: n for n, one in enumerate(nodes)}
    kept = [n for n, one in enumerate(nodes) if last[one["uuid"]] == n]
    above = {n: last.get(stated(nodes[n]) or "") for n in kept}
    on: dict[int | None, int] = {}
    past: set[int] = set()
    for n in kept:
        on |= keep(nodes, last, above, n, past)
    for n in kept:
        if n in way(above, above[n]):
            above[n] = None
    end = leaf(nodes, kept, above, last.get(said(entries) or ""), on, past)
    if end is None:
        return []
    was = {n: above[n] for n in reversed(kept) if lacks_its_parent(nodes, above, n)}
    above |= dict.fromkeys(was)
    for n in was:
        above[n] = nearest(nodes, [n for n in kept if n not in past], above, n)
    above |= {n: parent for n, parent in was.items() if above[n] is None}
    return [nodes[n]["uuid"] for n in reversed(way(above, end))]


def lacks_its_parent(nodes: list[Entry], above: dict[int, int | None], n: int) -> bool:
    """Return whether a parent is missing, that of an entry or of what stands beside above it."""
    while (parent := above[n]) is not None and nodes[parent].get("type") not in ENDS:
        n = parent
    return parent is None and bool(stated(nodes[n]))


def keep(
    nodes: list[Entry],
    last: dict[str, int],
    above: dict[int, int | None],
    boundary: int,
    past: set[int],
) -> dict[int | None, int]:
    """Hang what a compaction has kept below its anchor, and the rest of that below the last.

    Return the last one by the anchor. What came before and is not kept is past.
    """
    about = nodes[boundary].get("compactMetadata", {}) if is_boundary(nodes[boundary]) else {}
    some = about.get("preservedMessages", {})
    chain = [last.get(own) for own in some.get("uuids", [])]
    if "preservedSegment" in about and not some:
        some = about["preservedSegment"]
        first, at = last.get(some.get("headUuid")), last.get(some.get("tailUuid"))
        while at is not None and at not in chain:
            chain.insert(0, at)
            at = last.get(stated(nodes[at]) or "") if at != first else None
        chain = chain if chain[:1] == [first] else []
    anchor = last.get(some.get("anchorUuid", ""))
    ends = [n for n in chain if n is not None and nodes[n].get("type") in ENDS]
    is_there = anchor is not None and nodes[anchor].get("type") in ENDS
    if not is_there or not chain or ends != chain:
        return {}
    above |= {n: ends[-1] for n, parent in above.items() if parent == anchor}
    above |= dict(zip(ends, [anchor, *ends], strict=False))
    begin = [one["uuid"] for one in nodes].index(nodes[boundary]["uuid"])
    past |= {last[one["uuid"]] for one in nodes[:begin]} - {*ends}
    return {anchor: ends[-1]}


def said(entries: list[Entry]) -> str | None:
    """Return the id of the entry where the session is said to go on."""
    found = None
    for one in entries:
        if is_boundary(one) and is_node(one):
            found = None
        if one.get("type") == "last-prompt":
            found = one.get("leafUuid") or found
    return found


def stated(one: Entry) -> str | None:
    """Return the id of the parent that an entry names."""
    return None if is_boundary(one) else one.get("parentUuid")


def is_boundary(one: Entry) -> bool:
    """Return whether an entry is the beginning of what a compaction has left."""
    return one.get("subtype") == "compact_boundary"


def is_node(one: Entry) -> bool:
    """Return whether an entry is a part of the tree."""
    own = one.get("uuid")
    return isinstance(own, str) and own != "" and (one.get("type") in LINKED or "parentUuid" in one)


def is_message(one: Entry) -> bool:
    """Return whether an entry is a part of the conversation."""
    return one.get("type") in ("user", "assistant")


def agent(one: Entry) -> str | None:
    """Return the name of the subagent that wrote an entry, None for none."""
    return (one.get("agentId") or "") if one.get("isSidechain") else None


def way(above: dict[int, int | None], n: int | None) -> list[int]:
    """Return an entry and those above it, each once."""
    found: list[int] = []
    while n is not None and n not in found:
        found.append(n)
        n = above[n]
    return found


def leaf(
    nodes: list[Entry],
    kept: list[int],
    above: dict[int, int | None],
    goes: int | None,
    on: dict[int | None, int],
    past: set[int],
) -> int | None:
    """Return the last entry, or the one that a session is said to go on at."""
    own = [n for n in kept if agent(nodes[n]) is None and n not in past]
    ends = [n for n in own if nodes[n].get("type") in ENDS]
    spoken = [n for n in ends if any(is_message(nodes[one]) for one in way(above, n))]
    last = max(ends or own, default=None)
    last = on.get(last, last)
    if goes in spoken and goes not in way(above, last):
        return goes
    return last if last in spoken else max((n for n in own if is_message(nodes[n])), default=last)


def nearest(
    nodes: list[Entry], kept: list[int], above: dict[int, int | None], gap: int
) -> int | None:
    """Return the entry that one without its parent hangs below."""
    best, when = None, time(nodes[gap])
    for n in kept:
        one, at = nodes[n], time(nodes[n])
        apart = agent(one) != agent(nodes[gap]) or agent(one) == ""
        if apart or when is None or at is None or not 0 <= when - at <= 5 or gap in way(above, n):
            continue
        if best is None or at > (time(nodes[best]) or 0):
            best = n
    return best


def time(one: Entry) -> float | None:
    """Return when an entry was written."""
    if one.get("type") == "progress" or not isinstance(one.get("timestamp"), str):
        return None
    try:
        return datetime.fromisoformat(one["timestamp"]).timestamp()
    except ValueError:
        return None
