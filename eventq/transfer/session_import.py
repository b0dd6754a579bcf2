"""Import session files of a source: their lines, over turns that came, and the tips of branches."""

from __future__ import annotations

from eventq.memory.blobs import digest_of
from eventq.memory.contexts import is_context_name
from eventq.store.copy_rows import LineCopy, SessionCopy, TipCopy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from eventq.store.session_rows import StoredLine
    from eventq.transfer.head_import import HeadImport
    from eventq.transfer.job import Job
    from eventq.transfer.sources import Line
    from eventq.transfer.turn_import import TurnImport

    Kept = TypeVar("Kept", StoredLine, LineCopy)

SESSION: dict[str, type] = {
    "session": int, "session_name": str, "generation": int, "tool": str, "size": int, "digest": str,
}  # fmt: skip
LINE: dict[str, type] = {
    "line": int, "session": int, "blob": str, "form": int, "before": str, "after": str,
    "is_node": int, "kind": int, "at_turn": int,
}  # fmt: skip
TIP: dict[str, type] = {"tip": int, "session": int, "at_turn": int}
_MOST = 1 << 31
_RAW = 0  # the form of a line that is no entry
_TEXTS = ("entry", "parent", "response", "agent")


class SessionImport:
    """The session files of one source."""

    def __init__(self, job: Job, turns: TurnImport, heads: HeadImport) -> None:
        """Begin, inside a transaction; blobs, turns and contexts have come."""
        self._store = job.database.sessions
        self._usage = job.database.usage
        self._contexts = job.database.contexts
        self._blobs = job.blobs
        self._notes = job.notes
        self._turns = turns
        self._heads = heads
        self._sessions: dict[int, SessionCopy] = {}
        self._lines: dict[int, list[LineCopy]] = {}
        self._tips: list[TipCopy] = []
        self._newer: set[int] = set()  # sessions that have more than there was here
        self._counted: dict[int, int] = {}  # lines of sessions whose tokens were counted
        self.here: dict[int, int | None] = {}  # ids of the source's sessions here

    def session(self, line: Line) -> bool:
        """Take a session."""
        digest = digest_of(line["digest"])
        beside = [line.get(name) for name in ("owner", "path", "started_by")]
        sound = 1 <= line["generation"] < _MOST and 0 <= line["size"] < 1 << 63
        if not sound or not is_context_name(line["session_name"]):
            return False
        if not all(map(_is_text, (line["tool"], *beside))):
            return False
        counted = line.get("counted")
        self._counted[line["session"]] = counted if type(counted) is int else 0
        self._sessions[line["session"]] = SessionCopy(
            line["session"], line["session_name"], line["generation"], line["tool"], line["size"],
            digest, *beside,
        )  # fmt: skip
        return True

    def line(self, line: Line) -> bool:
        """Take a line of a session."""
        texts = [line.get(name) for name in _TEXTS]
        turn = self._turns.here(line["at_turn"])
        found = self._lines.get(line["session"], [])
        if line["session"] not in self._sessions or not all(map(_is_text, texts)):
            return False
        small = 0 <= line["kind"] < _MOST and line["is_node"] in (0, 1)
        if not small or turn is None or line["line"] != len(found) or line["form"] not in (0, 1, 2):
            return False
        digest = digest_of(line["blob"])
        self._blobs.size_of(digest)  # it must be here
        before, after = bytes.fromhex(line["before"]), bytes.fromhex(line["after"])
        entry, parent, response, agent = texts
        new = LineCopy(
            line["session"], line["line"], digest, line["form"], before, after, line["is_node"],
            entry, parent, line["kind"], response, agent, turn,
        )  # fmt: skip
        self._lines.setdefault(line["session"], found).append(new)
        return True

    def tip(self, line: Line) -> bool:
        """Take the tip of a branch."""
        turn = self._turns.here(line["at_turn"])
        if turn is None or line["session"] not in self._sessions:
            return False
        self._tips.append(TipCopy(line["tip"], line["session"], turn))
        return True

    def run(self) -> None:
        """Store the sessions that are not here, and the tips of all."""
        for number, one in sorted(self._sessions.items()):
            self.here[number] = kept = self._take(one)
            counted = min(self._counted[number], len(self._lines.get(number, ())))
            if kept is not None and counted > 0:
                self._usage.of_session(kept, (), counted)
        for context, session, turn in self._tips:
            mine, kept = self._heads.here.get(context), self.here.get(session)
            if mine is None or kept is None:
                continue
            if session in self._newer:
                self._follow(mine, kept, self._sessions[session].name, turn)
            if mine in self._heads.made or mine in self._heads.moved:
                self._store.set_tip(mine, kept, turn)

    def _follow(self, context: int, session: int, name: str, turn: int) -> None:
        """Move a head that is elsewhere there, if only imports have moved it, here and there."""
        newest = self._store.find(name)
        is_newest = newest is not None and newest.session == session
        elsewhere = self._heads.diverged.get(context) or self._heads.behind.get(context)
        if not is_newest or elsewhere != turn:
            return
        tips = self._store.tips(name)
        left = next((tip.turn for tip in tips if tip.context == context), None)
        if left == self._contexts.head(context):
            self._heads.move(context, turn)

    def _take(self, new: SessionCopy) -> int | None:
        """Return the session here, stored if need be; None for another of the name."""
        lines = self._lines.get(new.session, [])
        found = self._store.find(new.name, new.generation)
        if found is None:
            self._newer.add(new.session)
            return self._store.restore(new, lines, None)
        if found.digest == new.digest and found.lines >= len(lines):
            return found.session
        every = self._store.lines(found.session, -1, found.lines)
        mine, theirs = _ended(every), _ended(lines)
        texts = zip(map(_text_of, mine), map(_text_of, theirs), strict=False)
        whole = [*zip(every, lines, strict=False)][len(mine) :]  # an entry that lacks its newline
        if any(one != other for one, other in texts) or any(
            one.form != _RAW and _text_of(one)[:3] != _text_of(other)[:3] for one, other in whole
        ):
            self._notes.remark(
                f"generation {new.generation} of session '{new.name}' is another one here, and"
                " stays"
            )
            return None
        if (len(theirs), len(lines)) > (len(mine), found.lines):
            self._newer.add(new.session)
            return self._store.restore(new, lines, found.session)
        return found.session


def _ended(lines: list[Kept]) -> list[Kept]:
    """Return lines without a last one that has not ended: what grew has another in its place."""
    ended = len(lines)
    while ended and not lines[ended - 1].after.endswith(b"\n"):
        ended -= 1
    return lines[:ended]


def _text_of(line: StoredLine | LineCopy) -> tuple[bytes, int, bytes, bytes]:
    return line.digest, line.form, line.before, line.after


def _is_text(value: object) -> bool:
    """Return whether a value is a text that can be stored, or None."""
    if not isinstance(value, str):
        return value is None
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
