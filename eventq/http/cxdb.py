"""The endpoints that clients of CXDB read and append turns with, for one thread.

They say less strictly what is wrong than ours: what a client adds is ignored. Ids are text, unless
`u64_format=number` is asked for.
"""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from blake3 import blake3

from eventq.errors import InputError, UnknownContextError, UnknownTurnError
from eventq.http.access import SAFE
from eventq.http.cxdb_about import About, Abouts, QueryError, terms_of
from eventq.http.cxdb_stream import follow
from eventq.http.operations import Reply, of_json
from eventq.http.registry import CONTEXT, MSGPACK, Bundles, Rendering, is_flat
from eventq.http.routes import Routes
from eventq.http.sending import body_of, send_reply
from eventq.memory.turns import View
from eventq.record import Record
from eventq.records.turn import ContextInfo, NewTurn
from eventq.serving.parameters import fitting
from eventq.serving.plans import READ, WRITE
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from eventq.http.registry import Registry
    from eventq.memory.contexts import Context
    from eventq.records.turn import Turn
    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Object = dict[str, Any]

MOST_TURNS = 10_000  # of a page
MOST_CONTEXTS = 10_000
PAGE_BYTES = 64 << 20  # of the payloads of a page
LIVE_MS = 60_000  # a context whose head moved since is called live
_I64 = (1 << 63) - 1


class Request(Record):
    """A request: what stands for the braces of its path, its query, its headers and its body."""

    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def number(self, name: str, default: int, most: int = _I64) -> int:
        """Return a number of the query, bounded. Raises InputError."""
        word = self.query.get(name)
        return default if word is None else min(id_of(word, name), most)

    def is_set(self, name: str, *, default: bool = False) -> bool:
        """Return whether a parameter of the query is 1 or true."""
        word = self.query.get(name)
        return default if word is None else word.lower() in ("1", "true")

    def json(self) -> Object:
        """Return the object of the body; an empty one has no members. Raises InputError."""
        try:
            found = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise InputError(f"the body is no JSON: {error}", "send JSON in UTF-8") from error
        if not isinstance(found, dict):
            raise InputError("the body is no JSON object", "send an object such as {}")
        return found

    @property
    def rendering(self) -> Rendering:
        """How values are to be shown."""
        query = self.query
        return Rendering(
            query.get("u64_format") == "number",
            query.get("bytes_render", "base64"),
            query.get("enum_render", "label"),
            query.get("time_render", "iso"),
            self.is_set("include_unknown"),
        )


def id_of(value: Any, name: str) -> int:
    """Return an id that is a number or its digits. Raises InputError."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if type(value) is not int or value < 0:
        raise InputError(f"{name} is no id: {value!r:.100}", "give a number, or its digits")
    return min(value, _I64)


# --- contexts -------------------------------------------------------------------------------------


class Endpoints:
    """The endpoints of one thread, each a method that takes the thread and a request."""

    def __init__(self) -> None:
        self._bundles = Bundles()
        self._abouts = Abouts()

    def contexts(self, thread: Thread, request: Request) -> Reply:
        """List the contexts, those that changed last first."""
        limit, tag = request.number("limit", 20, MOST_CONTEXTS), request.query.get("tag")
        found: list[Object] = []
        tags: dict[str, None] = {}
        for info in self._newest(thread):
            if len(found) >= limit:
                break
            known = self._abouts.of(thread, info)
            if tag is not None and known.client_tag != tag:
                continue
            shown = self._context(info, request, known)
            if shown["is_live"] and known.client_tag:
                tags[known.client_tag] = None
            found.append(shown)
        return of_json({
            "contexts": found, "count": len(found), "active_sessions": [], "active_tags": [*tags],
        })  # fmt: skip

    def _newest(self, thread: Thread) -> Iterator[ContextInfo]:
        """Yield the contexts, those that changed last first."""
        for row in thread.database.memory.overview(_I64).contexts:
            info = ContextInfo._make(row)
            if info.name != CONTEXT:
                yield info

    def _context(
        self, info: ContextInfo, request: Request, known: About,
        *, default: bool = False,
    ) -> Object:  # fmt: skip
        of_id = request.rendering.of_id
        shown: Object = {
            "context_id": of_id(info.context_id),
            "head_turn_id": of_id(info.head_turn_id),
            "head_depth": info.head_depth or 0,
            "created_at_unix_ms": info.updated_at_ms,
            "last_activity_at": info.updated_at_ms,
            "is_live": info.updated_at_ms > clock.now() * 1000 - LIVE_MS,
        }
        if known.client_tag:
            shown["client_tag"] = known.client_tag
        if known.title or info.name:
            shown["title"] = known.title or info.name
        if known.labels:
            shown["labels"] = [*known.labels]
        if known.provenance and request.is_set("include_provenance", default=default):
            shown["provenance"] = known.provenance
        if request.is_set("include_lineage", default=default):
            parent = None if info.fork_of is None else of_id(info.fork_of)
            shown["lineage"] = {"parent_context_id": parent}
        return shown

    def context(self, thread: Thread, request: Request) -> Reply:
        """Read one context."""
        info = _context_of(thread, request).info()
        known = self._abouts.of(thread, info)
        return of_json(self._context(info, request, known, default=True))

    def provenance(self, thread: Thread, request: Request) -> Reply:
        """Read where a context comes from."""
        info = _context_of(thread, request).info()
        found = self._abouts.of(thread, info).provenance
        number = request.rendering.of_id(info.context_id)
        return of_json({"context_id": number, "provenance": found})

    def search(self, thread: Thread, request: Request) -> Reply:
        """Search contexts by tag and label."""
        begun = clock.monotonic()
        text = request.query.get("q", "")
        limit = request.number("limit", 100, MOST_CONTEXTS)
        try:
            terms = terms_of(text)
        except QueryError as error:
            return of_json(error.shown, status=400)
        found = []
        for info in self._newest(thread):
            known = self._abouts.of(thread, info)
            if all(term.matches(known) for term in terms):
                found.append(self._context(info, request, known))
        found.sort(key=lambda one: int(one["context_id"]), reverse=True)
        spent = int((clock.monotonic() - begun) * 1000)
        return of_json({
            "contexts": found[:limit], "total_count": len(found), "elapsed_ms": spent,
            "query": text,
        })  # fmt: skip

    def create(self, thread: Thread, request: Request) -> Reply:
        """Make a context that is empty, or begins at a turn."""
        base = id_of(request.json().get("base_turn_id") or 0, "base_turn_id")
        return self._made(thread, request, base)

    def fork(self, thread: Thread, request: Request) -> Reply:
        """Make a context that begins at a turn."""
        base = request.json().get("base_turn_id")
        if base is None:
            raise InputError("base_turn_id is missing", "name the turn to fork at")
        return self._made(thread, request, id_of(base, "base_turn_id"))

    def _made(self, thread: Thread, request: Request, base: int) -> Reply:
        with _turns_conflict():
            info = thread.contexts.create(base=base).info()
        of_id = request.rendering.of_id
        return of_json({
            "context_id": of_id(info.context_id), "head_turn_id": of_id(info.head_turn_id),
            "head_depth": info.head_depth or 0,
        }, status=201)  # fmt: skip

    # --- turns ------------------------------------------------------------------------------------

    def turns(self, thread: Thread, request: Request) -> Reply:
        """Read the newest turns of a context, or those before a turn, oldest first."""
        context = _context_of(thread, request)
        limit = max(1, request.number("limit", 64, MOST_TURNS))
        before = request.number("before_turn_id", 0)
        view = View(context.turns, context.head_id())
        as_of = context.turns.last_patch()
        if before:
            rows = view.before(before, limit, payload=False, as_of=as_of)
        else:
            rows = view.last(limit, payload=False, as_of=as_of)
        count = len(fitting(reversed(rows), PAGE_BYTES, lambda one: one.size))
        page: tuple[Turn, ...] = ()
        if count:
            last = context.turns.chain(rows[-1].turn_id, count, as_of, payload=True)
            page = tuple(last)
        how, head = request.rendering, view.head_id()
        registry = self._bundles.of(thread)
        shown: Object = {
            "meta": {
                "context_id": how.of_id(context.id),
                "head_turn_id": how.of_id(head),
                "head_depth": context.turns.depth(head) if head else 0,
                "registry_bundle_id": registry.newest,
            },
            "turns": [_shown(one, registry, request) for one in page],
        }
        if page:
            shown["next_before_turn_id"] = how.of_id(page[0].turn_id)
        return of_json(shown)

    def append(self, thread: Thread, request: Request) -> Reply:
        """Append a turn, once if it has a key."""
        body = request.json()
        kind, version = body.get("type_id"), body.get("type_version", 1)
        if not isinstance(kind, str) or not kind:
            raise InputError("type_id is missing", "name the type of the turn")
        if type(version) is not int or not 0 <= version < 1 << 32:
            raise InputError("type_version is no number", "give the version of the type")
        context = _context_of(thread, request)
        payload = self._payload(thread, body, kind, version)
        parent = id_of(body.get("parent_turn_id") or 0, "parent_turn_id") or None
        key = body.get("idempotency_key") or None
        if key is not None:
            key = f"cxdb:{blake3(str(key).encode('utf-8', 'replace')).hexdigest()}"
        with _turns_conflict():
            made = context.append(NewTurn(payload, kind, version, MSGPACK), parent=parent, key=key)
        number = request.rendering.of_id(made.turn_id)
        return of_json({
            "context_id": request.rendering.of_id(context.id), "turn_id": number,
            "new_turn_id": number, "depth": made.depth, "content_hash": made.hash,
        }, status=201)  # fmt: skip

    def _payload(self, thread: Thread, body: Object, kind: str, version: int) -> bytes:
        encoded = body.get("payload_base64")
        if encoded is not None:
            try:
                return packed_map(b64decode(encoded, validate=True))
            except (ValueError, TypeError) as error:
                what = "payload_base64 is no base64 of a MessagePack map, or it is too deep"
                raise InputError(what, "encode it again") from error
        data = body.get("data", body.get("payload"))
        if not isinstance(data, dict):
            raise InputError("data is no object", "send the fields of the turn as an object")
        registry = self._bundles.of(thread)
        found = registry.fields(kind, version)
        return registry.packed(data, found[1] if found else None)

    # --- types ------------------------------------------------------------------------------------

    def put_bundle(self, thread: Thread, request: Request) -> Reply:
        """Register types."""
        name, is_new = self._bundles.put(thread, request.body)
        return of_json({"bundle_id": name}, status=201) if is_new else Reply(b"", status=204)

    def bundle(self, thread: Thread, request: Request) -> Reply:
        """Read a bundle as it was put."""
        text = self._bundles.of(thread).bundles.get(request.names["bundle"])
        if text is None:
            return refusal(404, "there is no such bundle")
        return Reply(text)

    def type(self, thread: Thread, request: Request) -> Reply:
        """Read the fields of a version of a type."""
        version = id_of(request.names["version"], "version")
        found = self._bundles.of(thread).fields(request.names["type"], version)
        if found is None:
            return refusal(404, "there is no such type")
        return of_json({"fields": {str(tag): field for tag, field in found[1].items()}})

    # --- the server -------------------------------------------------------------------------------

    def metrics(self, thread: Thread, _: Request) -> Reply:
        """Read a few numbers."""
        found = thread.status()
        return of_json({"contexts": found.context_count, "events": found.event_count})

    def renderers(self, _: Thread, __: Request) -> Reply:
        """Read the renderers of types: there are none."""
        return of_json({"renderers": {}})

    def health(self, _: Thread, __: Request) -> Reply:
        """Say that the server is there."""
        return of_json({"status": "ok"})

    def healthz(self, _: Thread, __: Request) -> Reply:
        """Say that the server is there, in a word."""
        return Reply(b"ok", type="text/plain")


def _shown(turn: Turn, registry: Registry, request: Request) -> Object:
    """Return a turn as a client asks for it."""
    how, view = request.rendering, request.query.get("view", "typed")
    declared = {"type_id": turn.type_id, "type_version": turn.type_version}
    shown: Object = {
        "turn_id": how.of_id(turn.turn_id),
        "parent_turn_id": how.of_id(turn.parent_turn_id),
        "depth": turn.depth,
        "declared_type": declared,
        **declared,
    }
    payload = turn.payload or b""
    if view != "raw":
        name = turn.type_id
        version: int | None = turn.type_version
        hint = request.query.get("type_hint_mode", "inherit")
        if hint == "explicit":
            name = request.query.get("as_type_id", name)
            version = request.number("as_type_version", turn.type_version)
        elif hint == "latest":
            version = None
        found = registry.fields(name, version)
        number = found[0] if found else turn.type_version
        shown["decoded_as"] = {"type_id": name, "type_version": number}
        data, unknown = (
            ({}, {}) if turn.tombstone
            else registry.shown(payload, found[1] if found else None, how)
        )  # fmt: skip
        shown["data"] = data
        if unknown and how.unknown:
            shown["unknown"] = unknown
    if view in ("raw", "both"):
        shown |= {
            "content_hash_b3": turn.hash, "encoding": turn.encoding or MSGPACK,
            "compression": 0, "uncompressed_len": len(payload),
        }  # fmt: skip
        name = {"hex": "bytes_hex", "len_only": "bytes_len"}.get(how.of_bytes, "bytes_b64")
        shown[name] = how.bytes(payload)
    return shown


def packed_map(payload: bytes) -> bytes:
    """Return a payload that is a MessagePack map. Raises ValueError for another."""
    import msgpack

    try:
        found = msgpack.unpackb(payload, strict_map_key=False)
        if isinstance(found, dict) and is_flat(found):
            return payload
    except (msgpack.UnpackException, TypeError) as error:
        raise ValueError(str(error)) from error
    raise ValueError("no map")


@contextmanager
def _turns_conflict() -> Iterator[None]:
    """Report an unknown parent or base as a conflict: the context that is asked for is there."""
    try:
        yield
    except UnknownTurnError as error:
        error.wire_code = 409
        raise


def _context_of(thread: Thread, request: Request) -> Context:
    number = id_of(request.names["context"], "context_id")
    if not number:
        raise UnknownContextError(number)
    return thread.contexts.get(number)


def refusal(status: int, what: str) -> Reply:
    """Return an error in the form that these clients know."""
    shown = {"error": {"code": status, "message": what}}
    return of_json(shown, status=status)


# --- the table ------------------------------------------------------------------------------------


class Cxdb:
    """The endpoints as paths of a server."""

    def __init__(self) -> None:
        found = Endpoints()
        one, bundle = "/v1/contexts/{context}", "/v1/registry/bundles/{bundle}"
        self._routes = Routes([
            ("GET", "/healthz", (READ, found.healthz)),
            ("GET", "/health", (READ, found.health)),
            ("GET", "/v1/contexts", (READ, found.contexts)),
            ("POST", "/v1/contexts", (WRITE, found.create)),
            ("POST", "/v1/contexts/create", (WRITE, found.create)),
            ("POST", "/v1/contexts/fork", (WRITE, found.fork)),
            ("GET", "/v1/contexts/search", (READ, found.search)),
            ("GET", one, (READ, found.context)),
            ("GET", f"{one}/provenance", (READ, found.provenance)),
            ("GET", f"{one}/turns", (READ, found.turns)),
            ("POST", f"{one}/turns", (WRITE, found.append)),
            ("POST", f"{one}/append", (WRITE, found.append)),
            ("PUT", bundle, (WRITE, found.put_bundle)),
            ("GET", bundle, (READ, found.bundle)),
            ("GET", "/v1/registry/types/{type}/versions/{version}", (READ, found.type)),
            ("GET", "/v1/registry/renderers", (READ, found.renderers)),
            ("GET", "/v1/metrics", (READ, found.metrics)),
        ])  # fmt: skip

    @staticmethod
    def has(path: bytes) -> bool:
        """Return whether a path is of these endpoints."""
        return path.startswith(b"/v1/") or path in (b"/healthz", b"/health")

    async def answer(
        self, served: ServedThread, scope: Object, headers: Mapping[str, str], receive: Receive,
        send: Send,
    ) -> None:  # fmt: skip
        """Answer a request whose caller may make it. Raises EventqError."""
        method, path = scope["method"], scope.get("raw_path") or scope["path"].encode()
        path = path.partition(b"#")[0]
        if path == b"/v1/events" and method == "GET":
            await follow(served, receive, send)
            return
        if path.startswith(_BUNDLES):  # an id may hold a slash
            path = _BUNDLES + path.removeprefix(_BUNDLES).replace(b"/", b"%2F")
        found = self._routes.find(path)
        if found is None:
            await send_reply(send, refusal(404, "there is no such endpoint"), headers, method)
            return
        methods, names = found
        target = methods.get("GET" if method == "HEAD" else method)
        if target is None:
            await send_reply(send, refusal(405, f"{method:.20} is not for it"), headers, method)
            return
        how, run = target
        query = dict(parse_qsl(scope["query_string"].decode("ascii", "replace")))
        body = b"" if method in SAFE else await body_of(receive, headers)
        request = Request(names, query, headers, body)
        reply = await served.do(lambda thread: run(thread, request), how, len(body))
        await send_reply(send, reply, headers, method)


_BUNDLES = b"/v1/registry/bundles/"
