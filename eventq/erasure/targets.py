"""Which blobs have to be erased with a turn or a blob, what is shown in their place, and for whom.

A turn of a conversation is its payload and its patches, with what only they refer to. A step of a
run is its node and the node of its text, and the attempts before it; the start of a run is the
texts that it names. A node keeps its links in a node that is shown instead, so a run can still be
read. The line of a session keeps what links it with others.
"""

from __future__ import annotations

from eventq.erasure.redact import leaves, redacted, sayings
from eventq.errors import DamagedError, LogicError
from eventq.memory.blobs import digest_of
from eventq.memory.nodes import START_TYPE, STATE_TYPE, ContentNode, StartNode, StateNode, decode
from eventq.records.checks import ERASED, REF
from eventq.store.rules import erased_blob
from eventq.store.turn_rows import GONE, PARTS
from eventq.system.counts import some

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.errors import ErasedError
    from eventq.memory.turns import Turns
    from eventq.store.engine import Engine
    from eventq.store.turn_rows import Holder

_MOST = 100  # holders of a kind that are looked at, and named
_NAMED = 20
_LONGEST = 1 << 20  # bytes of a blob whose text is sought in logs
_MARK = ERASED.encode()
_NODE = b'{"payload":'  # the first key of its canonical JSON


class Targets:
    """The blobs that are to be erased, by digest, each with what is shown in its place."""

    def __init__(self, turns: Turns, database: Engine) -> None:
        """Begin with none."""
        self._turns = turns
        self._blobs = turns.blobs
        self._database = database
        self._engine = database.blobs
        self.shown: dict[bytes, bytes] = {}
        self._own: set[int] = set()  # turns whose blobs they are
        self._links: set[bytes] = set()  # nodes, which others name as nodes
        self._tried: set[bytes] = set()  # those that are attempts before a step
        self._asked: list[bytes] = []  # also those that were erased before
        self._before: set[int] = set()  # turns that attempts came after, of steps that are to go
        self._texts: list[str] = []
        self.said: list[str] = []  # what people would seek it by
        self._parts_of_it = 0  # how many holders of a blob may be its own
        self._parts: set[bytes] = set()  # whose sharers are known

    # --- what belongs to it -----------------------------------------------------------------------

    def add_turn(self, turn_id: int) -> None:
        """Add what a turn consists of. Raises UnknownTurnError."""
        turn = self._turns.turn(turn_id, payload=False, as_of=0)
        self._own.add(turn_id)
        digest = digest_of(turn.ref)
        if turn.type_id == START_TYPE:
            self._add_start(digest)
        elif turn.type_id == STATE_TYPE:
            self._before.add(turn.parent_turn_id)
            self._add_state(digest)
        else:
            self._add(digest)
        others = self._database.erasures.others(turn_id)
        self._parts_of_it += len(others)
        for other in others:
            self._add(other)
        self._add_brought()

    def add_blob(self, digest: bytes) -> None:
        """Add a blob that is named by itself. Raises UnknownBlobError."""
        self._blobs.size_of(digest)
        self._add_any(digest)

    def _add_any(self, digest: bytes) -> None:
        """Add a blob, as a node if it is one; a start holds no text itself."""
        node = self._node(digest) if self._may_be_node(digest) else None
        if isinstance(node, StateNode):
            self._add_state(digest)
        elif isinstance(node, ContentNode):
            self._add_content(digest, node)
        elif node is None:
            self._add(digest)
        else:
            self._asked.append(digest)

    def _may_be_node(self, digest: bytes) -> bool:
        """Return whether a blob begins as a node does: others may be too long to be read whole."""
        row = self._engine.row(digest)
        if row is None or row.codec == GONE:
            return row is not None
        return next(self._blobs.stream(digest), b"").startswith(_NODE)

    def _node(self, digest: bytes) -> StateNode | ContentNode | StartNode | None:
        try:
            return decode(self._blobs.shown(digest) or b"", REF + digest.hex())
        except DamagedError:
            return None

    def _add_start(self, digest: bytes) -> None:
        node = self._node(digest)
        if isinstance(node, StartNode):
            for ref in [node.prompt, *node.system.values()]:
                self._add(digest_of(ref), _MARK)
        self._asked.append(digest)

    def _add_state(self, digest: bytes) -> None:
        """Add a step or an attempt, its text, its summary, and the attempts before it."""
        node = None if digest in self._links else self._node(digest)
        if not isinstance(node, StateNode):
            return
        asked = ERASED if node.edge_prompt else ""
        meta = None if node.meta is None else ERASED
        self._links.add(digest)
        self._texts.append(node.edge_prompt)
        self.said += [node.edge_prompt, *leaves(node.meta)]
        self._add(digest, node._replace(meta=meta, edge_prompt=asked, more={}).encode())
        content = digest_of(node.content)
        found = self._node(content)
        if isinstance(found, ContentNode):
            self._add_content(content, found)
        if node.compact is not None:
            self._add(digest_of(node.compact), _MARK)
        tried = [digest_of(attempt) for attempt in node.attempts]
        self._tried.update(tried)
        for attempt in tried:
            self._add_state(attempt)

    def _add_content(self, digest: bytes, node: ContentNode) -> None:
        if node.text:
            self._texts.append(node.text)
            self.said.append(node.text)
            self._add(digest, node._replace(text=ERASED).encode())

    def _add(self, digest: bytes, shown: bytes | None = None) -> None:
        """Add a blob, unless it is empty or was erased before."""
        row = self._engine.row(digest)
        if row is None or not row.size:
            return
        self._asked.append(digest)
        if row.codec == GONE or digest in self.shown:
            return
        self.shown[digest] = self._place_of(digest) if shown is None else shown
        if row.size <= _LONGEST:
            try:
                text = (self._blobs.get(digest) or b"").decode()
            except UnicodeDecodeError:
                return
            self._texts.append(text)
            if shown in (None, _MARK):  # and no node, whose texts are known
                self.said += sayings(text)

    def _place_of(self, digest: bytes) -> bytes:
        """Return what is shown in place of a blob that is no node."""
        if any(one.kind == "line" for one in self._engine.holders(digest, 1)):
            return redacted(self._blobs.get(digest) or b"")
        return b""

    def _add_brought(self) -> None:
        """Add the blobs that only those refer to which are to be erased."""
        todo = list(self.shown)
        while todo:
            digest = todo.pop()
            for ref in self._engine.refs([digest])[digest]:
                if ref not in self.shown and all(map(self._is_own, self._holders(ref))):
                    self._add_any(ref)
                    todo += [ref] if ref in self.shown else []

    def texts(self) -> list[str]:
        """Return the texts that logs may have, each once."""
        return [text for text in dict.fromkeys(self._texts) if text and text != ERASED]

    # --- who else has it --------------------------------------------------------------------------

    def check(self, *, everywhere: bool) -> None:
        """Raise LogicError for what is pinned, and unless `everywhere`, for what others have.

        With `everywhere` the blobs that share parts with these are added.
        """
        others: dict[str, None] = {}
        todo = list(self.shown)
        while todo:
            digest = todo.pop()
            for one in self._holders(digest):
                if one.kind == "parts of":
                    continue
                if one.kind == "pin":
                    ref = REF + digest.hex()
                    what = f"{ref} is pinned by '{one.name}'"
                    raise LogicError(what, f"unpin it first: eventq blob unpin {ref}")
                if not self._is_own(one) and not self._is_link(digest, one):
                    others.update(dict.fromkeys(self._names(one)))
            for sharer in self._sharers(digest):
                others[f"blob {sharer.hex()}, which has a part of it"] = None
                if everywhere and sharer not in self.shown:
                    self._add_any(sharer)
                    todo.append(sharer)
        if others and not everywhere:
            raise LogicError(
                f"these have the same bytes, or refer to them: {some([*others], _NAMED)}",
                "erase it there too with --everywhere (everywhere=True), or leave it",
            )

    def _holders(self, digest: bytes) -> list[Holder]:
        return self._engine.holders(digest, _MOST + self._parts_of_it + len(self._asked))

    def _is_own(self, one: Holder) -> bool:
        """Return whether something is a part of what is to be erased."""
        if one.kind == "blob":
            return bytes.fromhex(one.name) in self.shown
        if one.kind == "attempt after turn":
            return one.turn in self._before
        return one.kind in ("turn", "patch", "line") and one.turn in self._own and one.turn > 0

    def _is_link(self, digest: bytes, one: Holder) -> bool:
        """Return whether a node is only linked to another one, which keeps its place.

        The step of a fork may have the same attempts before it: they are its own as well.
        """
        if one.kind != "blob" or digest not in self._links:
            return False
        node = self._node(bytes.fromhex(one.name)) if digest in self._tried else None
        return not isinstance(node, StateNode) or REF + digest.hex() not in node.attempts

    def _names(self, one: Holder) -> Iterator[str]:
        """Yield what people call a holder: a node is that of a turn."""
        if one.kind == "blob":
            found = self._engine.holders(bytes.fromhex(one.name), _MOST)
            turns = [it for it in found if it.kind in ("turn", "patch", "attempt after turn")]
            if turns:
                yield from (f"{it.kind} {it.name}" for it in turns if it.turn not in self._own)
                return
        yield f"{one.kind} {one.name}"

    def _sharers(self, digest: bytes) -> set[bytes]:
        """Return the other blobs that have parts of a blob, are one, or consist of it.

        Parts that were looked at before are left out.
        """
        row = self._engine.row(digest)
        found = set(self._engine.wholes(digest))
        if row is not None and row.codec == PARTS:
            parts = [part for part in self._engine.parts(digest) if part not in self._parts]
            self._parts.update(parts)
            for part in parts:
                found.update(self._engine.wholes(part))
            found |= {part for part, one in self._engine.find(parts).items() if not one.part}
        return found - {digest}

    def nothing_left(self) -> ErasedError | LogicError:
        """Return the error for what has nothing that could be erased."""
        for digest in self._asked:
            row = self._engine.row(digest)
            if row is not None and row.codec == GONE:
                return erased_blob(digest, self._database.erasures.of_blob(digest))
        return LogicError("there is nothing in it that could be erased", "it is empty")
