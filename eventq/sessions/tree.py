"""The tree of a session file: where each entry hangs, which branches there are, which is active.

Positions are those of the links that are passed in, in file order. Links are resolved over the
whole file, since a parent may come later, be missing, or be repeated with other values. All
functions take time linear in the file, and none is recursive: a chain may be 250,000 long.

A response of Claude Code with parallel calls is several lines; each result hangs from its own call:

    A1 ─┬─ A2 ─┬─ R2 ── next         places:  A1 ── A2 ── R1 ── R2 ── next
        └─ R1  └─ (a hook's line)                                └─ (a hook's line)

Such lines are one conversation, so they become one chain, in file order. What continues from any
of them continues from the last, and a rewind to before the response is still a branch. As long as
lines are appended below earlier ones, what was placed before an append keeps its place.
"""

from __future__ import annotations

from itertools import accumulate

from eventq.record import Record
from eventq.sessions import gaps
from eventq.sessions.links import (
    BACK,
    BEGINS,
    ENDS,
    FOLLOWS,
    GOES,
    KEEPS,
    MESSAGE,
    META,
    PAST,
    RESULT,
    TO,
    is_node,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eventq.sessions.links import Kept, Link, Spawn

ROOT = -1  # the place of a node that hangs under nothing
ABSENT = -2  # of an entry that is no node: unlinked, or repeated later with the same id


class Agent(Record):
    """A subagent whose entries stand in the file of its parent."""

    first: int  # its first node
    tip: int  # its last message


class Tree(Record):
    """How the entries of a file hang together."""

    places: list[int]  # for each entry the position that it hangs under, ROOT or ABSENT
    names: list[str | None]  # the subagent that each node belongs to, None for the session's own
    active: int | None  # where the session goes on; None without any node
    tips: list[int]  # where each branch ends, in file order, with the active one
    agents: dict[str, Agent]  # by name, in file order
    parents: list[int]  # as places, but of what each entry names as its parent, gaps closed


def build(links: Sequence[Link | None], *, last_is_leaf: bool) -> Tree:
    """Return the tree of a file.

    `last_is_leaf`: the session goes on at its last entry, whatever that is. Else at its last one of
    MESSAGE or ENDS, see `_end`. None among the links is an entry that is no node.
    """
    known = _known(links)
    parents, end = _parents(links, known)
    order = _parents_first(parents)
    names = _names(links, parents, order)
    if not last_is_leaf:  # what hangs behind a gap has no say in that
        end = _end(links, known, parents, names)
    roots = [n for n, link in enumerate(links) if link and parents[n] == ROOT and link.parent]
    if any(link and link.at is not None for link in links):
        adrift = _adrift(links, parents, order, roots)
        for n in adrift:
            parents[n] = ROOT
        gaps.close(links, parents, _parents_first(parents), sorted([*roots, *adrift]))
        for n, above in adrift.items():
            parents[n] = above if parents[n] == ROOT else parents[n]
        order = _parents_first(parents)
    if end == ABSENT:
        end = max((n for n in order if names[n] is None), default=ABSENT)
    places, end = _places(links, parents, order, names, end)
    active = None if end < 0 else end
    tips = _tips(links, places, names, active)
    return Tree(places, names, active, tips, _agents(links, names), parents)


def relinked(links: Sequence[Link | None], kept: Mapping[int, Kept]) -> list[Link | None]:
    """Return links as compactions have left them; what these have kept is by their positions.

    Each entry hangs below the one before, the first below the anchor, and what comes below that
    hangs below the last. What came before is PAST. Nothing changes if one of them is not there.
    """
    known = _known(links)
    first = {link.id: n for n, link in reversed([*enumerate(links)]) if link}
    found = [*links]
    for boundary, one in kept.items():
        ids = one.ids if one.is_whole else _between(links, known, *one.ids)
        chain = [known.get(own, ABSENT) for own in ids]
        needed = (*chain, known.get(one.anchor, ABSENT))
        if not chain or any(n < 0 or not _is(links[n], MESSAGE | ENDS | GOES) for n in needed):
            continue
        above = dict(zip(chain, (one.anchor, *ids), strict=False))
        begin = min(boundary, first.get(_id(links[boundary]), boundary))
        if anchor := found[needed[-1]]:
            found[needed[-1]] = anchor._replace(on=ids[-1])
        for n, link in enumerate(found):
            if link is None or (link.kind & GOES and n not in above):
                continue
            if n in above or link.parent == one.anchor:
                link = link._replace(parent=above.get(n, ids[-1]))  # noqa: PLW2901
            is_past = n not in above and first[link.id] < begin
            found[n] = link._replace(kind=link.kind | PAST) if is_past else link
    return found


def _id(link: Link | None) -> str | None:
    return link and link.id


def _between(
    links: Sequence[Link | None], known: Mapping[str | None, int], first: str, last: str
) -> list[str]:
    """Return the ids of the entries from one down to another; none, if they are not one chain."""
    found: dict[str, None] = {}
    own: str | None = last
    while own is not None and own in known and own not in found:
        found[own] = None
        if own == first:
            return [*found][::-1]
        link = links[known[own]]
        own = link and link.parent
    return []


def path(places: Sequence[int], end: int) -> list[int]:
    """Return the positions from the root to a node."""
    found = []
    while end >= 0:
        found.append(end)
        end = places[end]
    return found[::-1]


# --- growth ---------------------------------------------------------------------------------------


def settled(links: Sequence[Link | None], tree: Tree) -> int | None:
    """Return the last node, but for the last line, that all later ones hang below, if at all.

    It is a message that begins a part of the conversation, hangs below an earlier one, and has the
    active tip below it. So what comes before it has no say in where later entries hang, also when
    the file grows: see `ending`. None if there is no such node, as in a file with subagents, or
    where the session is said to go on at an entry that comes later only.
    """
    said = _said(links, _known(links))
    if tree.agents or tree.active is None or (said and said[0] < said[1]):
        return None
    highest = [*accumulate(tree.parents, max)]
    lowest = end = len(links) - 1
    latest = min(tree.active, end - 1)
    for node in range(end, -1, -1):
        parent, link = tree.parents[node], links[node]
        begins = link and link.kind & (MESSAGE | RESULT | META) == MESSAGE and not link.response
        if begins and parent != ABSENT and highest[node] < node <= min(lowest, latest):
            return node
        if parent >= 0:
            lowest = min(lowest, parent)
    return None


def ending(links: Sequence[Link | None], *, last_is_leaf: bool) -> tuple[Tree, set[str]] | None:
    """Return the tree of the entries from a settled node on, which is a root there.

    It is that part of the tree of all, if no earlier entry has one of the ids that are returned
    too, or names one as its parent. None: the tree of all is needed.
    """
    first = links[0] if links else None
    if first is None or any(
        link and (link.agent != first.agent or link.kind & (BACK | KEEPS)) for link in links
    ):
        return None  # also for what may take earlier turns back, or keeps some
    begun = rooted(links)
    tree = build(begun, last_is_leaf=last_is_leaf)
    if tree.places[0] == ABSENT or tree.agents:
        return None
    if not last_is_leaf and tree.places.count(ROOT) > 1:
        return None  # it may go on where an earlier line says, as not all hangs below that
    ids = {link.id for link in links[1:] if link and link.id is not None}
    return tree, ids | unknown(begun, tree)


def rooted(links: Sequence[Link | None]) -> list[Link | None]:
    """Return links of which the first one names no parent."""
    return [
        link and link._replace(parent=None, kind=link.kind & ~FOLLOWS) if n == 0 else link
        for n, link in enumerate(links)
    ]


def lost(links: Sequence[Link | None], tree: Tree) -> list[int]:
    """Return the nodes that name a parent and hang below another entry, or none."""
    return [
        n
        for n, (link, parent) in enumerate(zip(links, tree.parents, strict=True))
        if parent != ABSENT and link and link.parent is not None and not link.kind & FOLLOWS
        if parent == ROOT or (above := links[parent]) is None or above.id != link.parent
    ]


def unknown(links: Sequence[Link | None], tree: Tree) -> set[str]:
    """Return the ids of parents that no entry has, and of where the session is said to go on."""
    gone = {link.parent for n in lost(links, tree) if (link := links[n]) and link.parent}
    known = _known(links)
    said = {link.parent for link in links if link and link.kind & GOES and link.parent}
    return gone | {one for one in said if one not in known}


# --- links ----------------------------------------------------------------------------------------


def _known(links: Sequence[Link | None]) -> dict[str | None, int]:
    """Return the position of each id, the last one."""
    return {link.id: n for n, link in enumerate(links) if link and link.id is not None}


def _parents(
    links: Sequence[Link | None], known: Mapping[str | None, int]
) -> tuple[list[int], int]:
    """Return the position of each node's parent, without cycles, and where a log goes on.

    That is not known (ABSENT) if nothing is taken back.
    """
    parents: list[int] = []
    begun: list[int] = []  # the turns of a log that are not taken back
    before, end = ROOT, ABSENT
    for n, link in enumerate(links):
        if link is None or not is_node(link) or known.get(link.id, n) != n:
            parents.append(ABSENT)
            if link and link.kind & TO:
                end = before = _taken_to(parents, known.get(link.parent), before)
            elif link and link.kind & BACK and begun:
                end = before = _taken_back(links, parents, begun, int(link.parent or 0))
            continue
        parent = before if link.kind & FOLLOWS else known.get(link.parent, ROOT)
        parents.append(parent if parent != n else ROOT)
        before = n
        end = n if end != ABSENT else ABSENT
        if link.kind & BEGINS:
            begun.append(n)
    _break_cycles(parents)
    return parents, end


def _taken_back(
    links: Sequence[Link | None], parents: Sequence[int], begun: list[int], count: int
) -> int:
    """Return the node that a log goes on from without its last turns; drop these.

    What the tool has said before the first of them goes, too, unless no turn is left.
    """
    first = begun[0]
    node = begun[-min(count, len(begun))]
    del begun[-count:]
    while node != first and (above := parents[node]) >= 0 and _is(links[above], META):
        node = above
    return parents[node]


def _taken_to(parents: Sequence[int], first: int | None, node: int) -> int:
    """Return the node that a log goes on from without a node and what follows; of none, ROOT."""
    while node >= 0 and node != first:
        node = parents[node] if parents[node] < node else ROOT
    return parents[node] if node >= 0 else ROOT


def _break_cycles(parents: list[int]) -> None:
    """Make the first node of each cycle a root."""
    walks = [ABSENT] * len(parents)  # the walk that has seen each node
    for start in range(len(parents)):
        node = start
        while node >= 0 and walks[node] == ABSENT:
            walks[node] = start
            node = parents[node]
        if node >= 0 and walks[node] == start:
            cycle = [node]
            while (node := parents[node]) != cycle[0]:
                cycle.append(node)
            parents[min(cycle)] = ROOT


def _parents_first(parents: Sequence[int]) -> list[int]:
    """Return all nodes, each below its parent, otherwise in file order."""
    order: list[int] = []
    seen = bytearray(len(parents))
    for start in range(len(parents)):
        above = []
        node = start
        while node >= 0 and parents[node] != ABSENT and not seen[node]:
            seen[node] = 1
            above.append(node)
            node = parents[node]
        order += reversed(above)
    return order


def _adrift(
    links: Sequence[Link | None], parents: Sequence[int], order: Iterable[int], roots: Iterable[int]
) -> dict[int, int]:
    """Return the entries below what stands beside the tree and lacks its parent, with their places.

    The tool sees through that, so it is them that lack a parent.
    """
    beside = {n for n in roots if not _is(links[n], MESSAGE | ENDS | GOES)}
    found = {}
    for n in order:
        if parents[n] in beside:
            if _is(links[n], MESSAGE | ENDS | GOES):
                found[n] = parents[n]
            else:
                beside.add(n)
    return found


def _names(
    links: Sequence[Link | None], parents: Sequence[int], order: Iterable[int]
) -> list[str | None]:
    """Return the subagent that each node belongs to; None for those of the file's own session.

    A subagent without a name has that of the entry above it, or the id of its first one. In a file
    of a subagent, its own entries are the session's.
    """
    names: list[str | None] = [None] * len(links)
    for node in order:
        link = links[node]
        if link and link.agent is not None:
            above = names[parents[node]] if parents[node] >= 0 else None
            names[node] = link.agent or above or link.id or f"#{node}"
    present = [n for n, parent in enumerate(parents) if parent != ABSENT]
    if any(names[n] is None and _is(links[n], MESSAGE) for n in present):
        return names
    own = names[present[0]] if present else None
    return [None if name == own else name for name in names]


def _is(link: Link | None, flag: int) -> bool:
    return link is not None and bool(link.kind & flag)


# --- places ---------------------------------------------------------------------------------------


def _places(
    links: Sequence[Link | None],
    parents: Sequence[int],
    order: Sequence[int],
    names: Sequence[str | None],
    end: int,
) -> tuple[list[int], int]:
    """Return where each node hangs, the lines of one response in one chain, and the end of one."""
    groups = _groups(links, parents, order, names)
    places = list(parents)
    last = _chain(places, order, groups)
    alive = _alive(parents, order, [_is(link, MESSAGE) or n == end for n, link in enumerate(links)])
    for node in order:
        above = parents[node]
        outside = above >= 0 and groups[above] not in (ROOT, groups[node])
        # What only stands beside the conversation stays where it is, as more may be appended.
        if outside and alive[node] and names[node] == names[above]:
            places[node] = last[groups[above]]
    return places, last[groups[end]] if end >= 0 and groups[end] >= 0 else end


def _groups(
    links: Sequence[Link | None],
    parents: Sequence[int],
    order: Iterable[int],
    names: Sequence[str | None],
) -> list[int]:
    """Return for each node the first node of the response that it belongs to, or ROOT.

    That are the lines of the response, the results of its calls, and what stands between them.
    """
    groups = [ROOT] * len(links)
    above = list(parents)  # the nearest message above each node
    for node in order:
        parent = parents[node]
        if parent >= 0 and not _is(links[parent], MESSAGE):
            above[node] = above[parent]
        link, message = links[node], above[node]
        if link is None or not link.kind & MESSAGE:
            continue
        group = groups[message] if message >= 0 and names[message] == names[node] else ROOT
        if group >= 0 and (link.kind & RESULT or _is_part(link, links[group])):
            while node != message and groups[node] != group:
                groups[node] = group
                node = parents[node]  # noqa: PLW2901
        elif link.response is not None:
            groups[node] = node
    return groups


def _is_part(link: Link, first: Link | None) -> bool:
    return link.response is not None and first is not None and link.response == first.response


def _chain(places: list[int], order: Iterable[int], groups: Sequence[int]) -> dict[int, int]:
    """Make a chain of the nodes of each group, in order; return the last one of each."""
    last: dict[int, int] = {}
    for node in order:
        if (group := groups[node]) >= 0:
            if node != group:
                places[node] = last[group]
            last[group] = node
    return last


def _alive(places: Sequence[int], order: Sequence[int], counts: Sequence[bool]) -> list[bool]:
    """Return which nodes count or have one below them that does."""
    alive = list(counts)
    for node in reversed(order):
        if alive[node] and places[node] >= 0:
            alive[places[node]] = True
    return alive


# --- ends -----------------------------------------------------------------------------------------


def _end(
    links: Sequence[Link | None],
    known: Mapping[str | None, int],
    parents: Sequence[int],
    names: Sequence[str | None],
) -> int:
    """Return where the session goes on; ABSENT where none of its entries may be that.

    It is the last entry, if that is a message or below one, or else the last message. But where it
    is said to go on at another one, that is it, unless the last one hangs below that.
    """

    def is_own(n: int, kind: int) -> bool:
        is_there = names[n] is None and parents[n] != ABSENT
        return is_there and _is(links[n], kind) and not _is(links[n], PAST)

    def way(n: int) -> Iterator[int]:
        while n >= 0:
            yield n
            n = parents[n]

    def may_be(n: int) -> bool:
        is_one = is_own(n, MESSAGE | ENDS)
        return is_one and any(_is(links[one], MESSAGE) for one in way(n))

    down = range(len(links) - 1, -1, -1)
    last = next((n for n in down if is_own(n, MESSAGE | ENDS | GOES)), ABSENT)
    if last >= 0 and (link := links[last]) and link.on:
        last = known[link.on]
    said = _said(links, known)
    if said and may_be(said[1]) and said[1] not in way(last):
        return said[1]
    return (
        last if last >= 0 and may_be(last) else next((n for n in down if is_own(n, MESSAGE)), last)
    )


def _said(links: Sequence[Link | None], known: Mapping[str | None, int]) -> tuple[int, int] | None:
    """Return the position of what says last where the session goes on, and that of where."""
    for n in range(len(links) - 1, -1, -1):
        link = links[n]
        if link and link.kind & GOES:
            return (n, known[link.parent]) if link.parent in known else None
    return None


def _tips(
    links: Sequence[Link | None],
    places: Sequence[int],
    names: Sequence[str | None],
    active: int | None,
) -> list[int]:
    """Return the end of each branch, in file order, with where the session goes on."""
    counts = [
        n == active or (name is None and _is(link, MESSAGE) and not _is(link, META))
        for n, (link, name) in enumerate(zip(links, names, strict=True))
    ]
    tips = {*_leaves(places, _parents_first(places), counts)}
    return sorted(tips if active is None else tips | {active})


def _leaves(places: Sequence[int], order: Sequence[int], counts: Sequence[bool]) -> list[int]:
    """Return the nodes that count and have none below them that does."""
    inner = [False] * len(places)
    leaves = []
    for node in reversed(order):
        if counts[node] and not inner[node]:
            leaves.append(node)
        if (counts[node] or inner[node]) and places[node] >= 0:
            inner[places[node]] = True
    return leaves


def _agents(links: Sequence[Link | None], names: Sequence[str | None]) -> dict[str, Agent]:
    """Return the subagents of a file: one goes on at its last message."""
    agents: dict[str, Agent] = {}
    for node, name in enumerate(names):
        if name is not None:
            first = agents.get(name)
            if first is None or _is(links[node], MESSAGE):
                agents[name] = Agent(first.first if first else node, node)
    return agents


# --- where subagents start ------------------------------------------------------------------------


class Spawns:
    """The starts of subagents that the entries of a session know of."""

    def __init__(self, found: Iterable[tuple[int, Spawn]]) -> None:
        """Index the starts, each with the position of its entry."""
        self._calls: dict[str, int] = {}
        self._agents: dict[str, int] = {}
        self._prompts: dict[str, list[int]] = {}
        for node, spawn in found:
            at = self._calls.setdefault(spawn.call, node) if spawn.call else node
            if spawn.agent:
                self._agents.setdefault(spawn.agent, at)
            if spawn.prompt and at == node:
                self._prompts.setdefault(spawn.prompt, []).append(at)

    def of(
        self, *, call: str | None = None, agent: str | None = None, prompt: str | None = None
    ) -> int | None:
        """Return the position of the call that started a subagent, None if none is known.

        Each start by an equal prompt is returned once, in file order.
        """
        for known, key in ((self._calls, call), (self._agents, agent)):
            if key in known:
                return known[key]
        waiting = self._prompts.get(prompt or "")
        return waiting.pop(0) if waiting else None


def hung(tree: Tree, begun: dict[str, int | None]) -> list[int]:
    """Return the places, the subagents that are roots under what started them; no cycle comes."""
    places = [*tree.places]
    forest = gaps.Forest(places, _parents_first(places))
    for name, start in begun.items():
        first = tree.agents[name].first
        if places[first] == ROOT and start is not None and forest.hang(first, start):
            places[first] = start
    return places


def starts(
    links: Sequence[Link | None], tree: Tree, spawns: Spawns, prompt: Callable[[int], str | None]
) -> dict[str, int | None]:
    """Return the position where each subagent of a file starts.

    That is the entry that it hangs under; the call that names it, or has its first message, which
    `prompt` returns for a position, as its prompt; or else the last message before its first one.
    """
    found: dict[str, int | None] = {}
    before = _messages_before(links, tree)
    for name, agent in tree.agents.items():
        if (above := tree.places[agent.first]) >= 0:
            found[name] = above
        else:
            at = spawns.of(agent=name, prompt=prompt(agent.first))
            found[name] = before[agent.first] if at is None else at
    return found


def _messages_before(links: Sequence[Link | None], tree: Tree) -> dict[int, int | None]:
    """Return the last message of the session before the first entry of each subagent."""
    firsts = {agent.first for agent in tree.agents.values()}
    before: dict[int, int | None] = {}
    last = None
    for node, link in enumerate(links):
        if node in firsts:
            before[node] = last
        if tree.names[node] is None and tree.places[node] != ABSENT and _is(link, MESSAGE):
            last = node
    return before
