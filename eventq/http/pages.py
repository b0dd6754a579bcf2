"""The pages: what a person sees of threads, and does to them, as HTML that needs no script.

Each view reads its thread in a worker and is rendered there; everything in it is escaped.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined

from eventq.errors import EventqError, FilterError, UnknownConsumerError, UnknownEventError
from eventq.http import ansi
from eventq.http import memory_pages as memory
from eventq.http.access import RefusedError, WrongTokenError, cookie_name
from eventq.http.operations import Reply
from eventq.http.page_request import Ask, path_of, whole_in, word_in
from eventq.http.routes import Routes
from eventq.http.sending import Caller, body_of, send_reply
from eventq.http.talk import blocks_of
from eventq.record import Record
from eventq.records.event import Event
from eventq.records.source import sender_of
from eventq.said import one_line, read
from eventq.serving.attention import doing, first_dead, needs, tail, troubles, waiting
from eventq.serving.event_pages import in_bounds, newest_events, next_lines
from eventq.serving.plans import QUICK, READ, WRITE
from eventq.serving.served import for_each
from eventq.system import clock
from eventq.system.counts import count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from eventq.http.access import Access
    from eventq.records.consumer import ConsumerStatus
    from eventq.said import Said
    from eventq.serving.principal import Principal
    from eventq.serving.served import ServedThread
    from eventq.thread import Thread

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Values = dict[str, Any]

VIEWS = (
    ("Now", ""),
    ("Live", "live"),
    ("Consumers", "consumers"),
    ("Branches", "branches"),
    ("Output", "output"),
    ("Health", "health"),
)
ROWS = 100  # events of the live view
CLAIMS = 1_000  # that are looked at
CARDS = 12
LONGEST = 4_000  # characters of an event
SHOWN = 200  # of one on a line
MOST_NEEDS = 100  # of a thread
MOST_FORM = 64 << 10  # bytes
LISTED = 500  # threads to choose from
NOTED = 30  # seconds until a note on an act is not shown any more
_MOST_NOTE = 500  # characters
_NOTE = "-note"  # at the end of the name of its cookie
_LIMITS = "Path=/; HttpOnly; SameSite=Strict"
HEARTBEAT = 15.0
PAUSE = 0.2  # seconds between two changes that a page hears of
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"same-origin"),
)
_STATIC = {
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "lanes.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_CHANGED = b"data: changed\n\n"
_ONLY_GET = ("changes", "open")  # one does not end, the other works once
_HTML = "text/html; charset=utf-8"


# --- views: each returns a template and its values ------------------------------------------------


def now(thread: Thread, served: ServedThread) -> Values:
    """Return what the first view shows of one thread."""
    status = thread.status()
    claims = [*islice(thread.claims(), CLAIMS)] if any(c.leased for c in status.consumers) else []
    found = needs(status, first_dead(thread, status))
    served.needed = len(found)
    return {
        "name": served.name, "at": path_of(served), "status": status, "problem": "",
        "needs": found[:MOST_NEEDS], "has_more": len(found) > MOST_NEEDS,
        "troubles": troubles(status, claims, served.history.earlier(), clock.now()),
        "cards": [
            {"info": one, "words": memory.last_words(thread, one.head_turn_id)}
            for one in status.contexts[:CARDS]
        ],
    }  # fmt: skip


def live(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show the newest events, or those around an id, with a filter and a text."""
    where, text, number = (ask.query.get(name, "") for name in ("filter", "text", "id"))
    values: Values = {
        "filter": where, "text": text, "id": number, "problem": "", "older": "", "stream": "",
        "events": [], "next": 0,
    }  # fmt: skip
    try:
        found = _events(thread, where, text, number)
    except FilterError as error:
        return "live.html", values | {"problem": f"{error.what} - {error.fix}\n{error.caret()}"}
    values |= {"events": found, "next": found[0]["id"] if found else thread.last_id()}
    if not number:
        asked = _where(where, text)
        api = f"/api/threads/{quote(ask.served.name, safe='')}/events/stream"
        values["stream"] = api + (f"?{urlencode({'filter': asked})}" if asked else "")
    if found and not where and not text and found[-1]["id"] > 1:
        values["older"] = f"?id={max(1, found[-1]['id'] - ROWS // 2)}"
    return "live.html", values


def event(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show what one event says, what caused it, what came of it, and what stands around it."""
    number = whole_in(ask.names, "event")
    found = thread.database.events.get(number)
    if found is None:
        raise UnknownEventError(number)
    told = _told(found)
    lines, _, _ = next_lines(thread.database.events, None, max(0, number - 6), 11)
    around = [Event(**json.loads(one)) for one in lines]
    is_raw = told.text == found.content
    return "event.html", {
        "event": found, "sender": sender_of(found.source), "blocks": blocks_of(told),
        "payload": "" if is_raw else pretty(found.content),
        "causes": thread.causes_of(event=number), "effects": thread.caused_by(number),
        "around": [(one, _told(one).line(SHOWN)) for one in around],
    }  # fmt: skip


def _told(one: Event) -> Said:
    """Return what an event says."""
    return read(one.content.encode("utf-8", "replace"), one.type)


def _events(thread: Thread, where: str, text: str, number: str) -> Sequence[Values]:
    """Return events as objects, the newest first."""
    if where:
        thread.database.events.accept(where)  # so that a mistake is shown in what was written
    asked = _where(where, text)
    if number:
        after = max(0, whole_in({"id": number}, "id") - ROWS // 2 - 1)

        def look() -> Sequence[str]:
            return next_lines(thread.database.events, asked, after, ROWS)[0]

        found = [json.loads(one) for one in in_bounds(thread, asked, look)]
    else:
        found = [one._asdict() for one in newest_events(thread, asked, ROWS)]
    return found[::-1]


def _where(where: str, text: str) -> str | None:
    """Return the filter for what matches a filter and has a text."""
    quoted = text.replace("'", "''")
    parts = [f"({where})"] * bool(where) + [f"instr(content, '{quoted}') > 0"] * bool(text)
    return " AND ".join(parts) or None


def consumers(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """List the consumers."""
    shown = {"consumers": thread.status().consumers, "history": ask.served.history}
    return "consumers.html", shown


def consumer(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show one consumer, the end of its log, and its dead letters."""
    name = ask.names["consumer"]
    one = next((one for one in thread.status().consumers if one.consumer_id == name), None)
    if one is None:
        raise UnknownConsumerError(name)
    return "consumer.html", {
        "one": one, "history": ask.served.history, "output": tail(one.log) if one.log else "",
        "letters": [*islice(thread.dead_letters(name), ROWS)] if one.dead else [],
    }  # fmt: skip


def health(thread: Thread, ask: Ask) -> tuple[str, Values]:
    """Show sizes, and what the last check found."""
    return "health.html", {
        "status": thread.status(), "history": ask.served.history,
        "followers": ask.served.feed.followers, "checked": ask.served.checked,
    }  # fmt: skip


# --- actions: each changes something, and the page is shown again ---------------------------------


class Note(Record):
    """What an act did, and the header with which it is not shown again."""

    text: str
    forget: tuple[bytes, bytes]


class Done(Record):
    """What an act did, in a sentence, and the page that it leads to, by default the one before."""

    note: str
    place: str | None = None


def _answer(thread: Thread, ask: Ask) -> Done:
    number, text = whole_in(ask.form, "id"), ask.form.get("text", "")
    thread.answer(number, text, source="person")
    return Done(f"You answered event {number}: {one_line(text, 100)}")


def _resume(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    thread.resume(name)
    return Done(f"{name} goes on.")


def _pause(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    thread.pause(name)
    return Done(f"{name} is paused. What comes waits until it goes on.")


def _replay(thread: Thread, ask: Ask) -> Done:
    name, number = word_in(ask.form, "consumer"), whole_in(ask.form, "id")
    thread.ack(name, max(0, number - 1), replay=True)
    return Done(f"{name} handles event {number} and all that match after it once more.")


def _retry(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    found = thread.retry_dead(_letters(ask), name)
    return Done(f"{name} tries {count(found, 'dead letter')} again.")


def _drop(thread: Thread, ask: Ask) -> Done:
    name = word_in(ask.form, "consumer")
    found = thread.drop_dead(_letters(ask), name)
    return Done(f"{count(found, 'dead letter')} of {name} dropped. The events stay in the log.")


def _letters(ask: Ask) -> list[int] | None:
    return [whole_in(ask.form, "event")] if "event" in ask.form else None


def _fork(thread: Thread, ask: Ask) -> Done:
    at = whole_in(ask.form, "turn")
    name = ask.form.get("name") or None
    made = thread.contexts.fork(word_in(ask.form, "context"), at=at, name=name)
    return Done(f"Forked at turn {at}.", f"{ask.at}/contexts/{made.id}")


def _check(thread: Thread, ask: Ask) -> Done:
    faults = thread.check()
    ask.served.checked = {"at": clock.now(), "faults": faults, "warnings": thread.warnings()}
    return Done(f"Checked: {count(len(faults), 'fault') if faults else 'no fault'}.")


_ACTIONS: Mapping[str, tuple[str, str, Callable[[Thread, Ask], Done]]] = {
    "answer": ("answer", WRITE, _answer),
    "resume": ("work", WRITE, _resume),
    "pause": ("work", WRITE, _pause),
    "replay": ("work", WRITE, _replay),
    "retry": ("work", WRITE, _retry),
    "drop": ("work", WRITE, _drop),
    "fork": ("all", WRITE, _fork),
    "check": ("read", READ, _check),
}
_VIEWS: Mapping[str, tuple[str, Callable[[Thread, Ask], tuple[str, Values]]]] = {
    "/t/{thread}/live": ("Live", live),
    "/t/{thread}/events/{event}": ("Live", event),
    "/t/{thread}/consumers": ("Consumers", consumers),
    "/t/{thread}/consumers/{consumer}": ("Consumers", consumer),
    "/t/{thread}/health": ("Health", health),
    "/t/{thread}/branches": ("Branches", memory.branches),
    "/t/{thread}/contexts/{context}": ("Branches", memory.context),
    "/t/{thread}/turns/{turn}": ("Branches", memory.turn),
    "/t/{thread}/diff": ("Branches", memory.diff),
    "/t/{thread}/runs": ("Branches", memory.runs),
    "/t/{thread}/runs/{run}": ("Branches", memory.run),
    "/t/{thread}/output": ("Output", memory.output),
    "/t/{thread}/output/{artifact}": ("Output", memory.artifact),
}


class Pages:
    """The pages of a server."""

    def __init__(self, threads: Mapping[str, ServedThread], access: Access) -> None:
        self._threads = threads
        self._access = access
        self._templates = Environment(
            loader=PackageLoader("eventq.http"), autoescape=True, trim_blocks=True,
            lstrip_blocks=True, undefined=StrictUndefined, auto_reload=False,
        )  # fmt: skip
        self._templates.filters |= _FILTERS
        routes = [("GET", path, path) for path in _VIEWS]
        self._routes: Routes[str] = Routes([
            ("GET", "/", "home"),
            ("GET", "/open", "open"),
            ("GET", "/login", "form"),
            ("POST", "/login", "login"),
            ("GET", "/changes", "changes"),
            ("GET", "/static/{file}", "static"),
            ("GET", "/t/{thread}", "now"),
            ("POST", "/t/{thread}/do/{action}", "do"),
            *routes,
        ])  # fmt: skip

    @staticmethod
    def has(path: bytes) -> bool:
        """Return whether a path is one of a page."""
        first = path.split(b"/")[1] if path.startswith(b"/") else b""
        return first in (b"", b"t", b"open", b"login", b"changes", b"static")

    async def answer(
        self, scope: Values, headers: Mapping[str, str], who: Principal, receive: Receive,
        send: Send,
    ) -> None:  # fmt: skip
        """Answer a request that comes from no other place. Raises what refuses it."""
        reply = await self._reply(scope, headers, who, receive, send)
        if reply is not None:
            await send_reply(send, reply, headers, scope["method"])

    async def _reply(
        self, scope: Values, headers: Mapping[str, str], who: Principal, receive: Receive,
        send: Send,
    ) -> Reply | None:  # fmt: skip
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        found = self._routes.find(scope.get("raw_path") or scope["path"].encode())
        if found is None:
            return self._problem(404, "there is no such page")
        target = found[0].get(method)
        if target is None or (target in _ONLY_GET and scope["method"] == "HEAD"):
            return self._problem(405, "this is not for that page")
        query = dict(parse_qsl(scope["query_string"].decode("ascii", "replace")))
        if target == "static":
            return _static(found[1]["file"])
        if target == "open":
            await asyncio.to_thread(self._access.check_peer, scope["client"], scope["server"])
            if who.by_cookie and self._access.was_link(query.get("key", "")):
                return _moved("/")  # it is the browser that came in with it, most likely
            return self._let_in(headers, key=query.get("key", ""))
        if target == "form":
            return self._page("login.html", {"what": "A token says what you may see and change."})
        if target == "login":
            form = await _form(receive, headers)
            return self._let_in(headers, token=form.get("token", ""))
        if "read" not in who.rights and not who.is_told and self._access.has_token:
            fix = "Give one of this server: that of EVENTQ_TOKEN, or one of its --tokens."
            return self.refusal(401, f"These pages need a token. {fix}")
        self._access.check(who, "read")
        if target == "changes":
            await self._changes(query.get("thread"), receive, send)
            return None
        if target == "home" and len(self._threads) == 1:
            return _moved(path_of(next(iter(self._threads.values()))) + "/")
        note = _note(headers)
        if target == "home":
            return await self._now(None, who, note)
        served = self._threads.get(found[1]["thread"])
        if served is None:
            return self._problem(404, "there is no such thread")
        if target == "now":
            return await self._now(served, who, note)
        if target == "do":
            self._access.check_change(who)
            action = _ACTIONS.get(found[1]["action"])
            if action is None:
                return self._problem(404, "there is no such action")
            self._access.check(who, action[0])
            form = await _form(receive, headers)
            return await self._do(Ask(served, found[1], query, form), headers, who, *action[1:])
        return await self._view(Ask(served, found[1], query, {}), target, who, note)

    # --- who comes in -----------------------------------------------------------------------------

    def _let_in(self, headers: Mapping[str, str], *, key: str = "", token: str = "") -> Reply:
        cookie = self._access.cookie(headers, key=key, token=token)
        if cookie is None:
            if self._access.was_link(key):
                fix = "Run 'eventq ui' again for another one, or come in here with a token."
                raise RefusedError(401, f"This link has let in a browser, as it does once. {fix}")
            what = "The token is wrong." if token else "This link is that of another server."
            raise WrongTokenError(what)
        return _moved("/", (b"set-cookie", cookie.encode("latin-1")))

    def refusal(self, status: int, what: str) -> Reply:
        """Return the page that says why there is no other: one to sign in, if that may help."""
        if status == 401 and self._access.has_token:
            return self._page("login.html", {"what": what}, status=401)
        return self._problem(status, what)

    # --- pages ------------------------------------------------------------------------------------

    def _page(
        self, template: str, values: Values, served: ServedThread | None = None, *,
        view: str = "", status: int = 200, who: Principal | None = None, note: Note | None = None,
    ) -> Reply:  # fmt: skip
        """Return a page, as its caller may see it; what needs the token of forms has it."""
        may_write = who is not None and who.may_write
        name = served.name if served is not None else ""
        part = quote(name, safe="")
        shown = {
            "thread": name, "at": f"/t/{part}" if name else "", "api": f"/api/threads/{part}",
            "view": view, "views": VIEWS, "csrf": self._access.csrf if may_write else "",
            "may_write": may_write, "may_sign_in": self._access.has_token and not may_write,
            "who": who, "rights": who.rights if who is not None else (),
            "changes": f"/changes?thread={part}" if name else "/changes", "note": note,
            "needed": 0, "threads_here": self._listed() if who is not None else [],
        }  # fmt: skip
        text = self._templates.get_template(template).render(shown | values)
        more = (*_HEADERS, note.forget) if note else _HEADERS
        return Reply(text.encode("utf-8", "replace"), type=_HTML, status=status, more=more)

    def _listed(self) -> list[Values]:
        """Return the threads to choose from, with how many things needed a person at last."""
        some = islice(self._threads.values(), LISTED)
        return [{"name": one.name, "at": path_of(one), "needed": one.needed} for one in some]

    def _problem(self, status: int, what: str) -> Reply:
        values = {"status": status, "title": HTTPStatus(status).phrase, "detail": what}
        return self._page("problem.html", values, status=status)

    async def _now(self, served: ServedThread | None, who: Principal, note: Note | None) -> Reply:
        every = [served] if served is not None else [*self._threads.values()]

        async def look(one: ServedThread) -> Values:
            ask = one.glance if served is None else one.do
            try:
                return await ask(lambda thread: now(thread, one), QUICK)
            except EventqError as error:
                if served is not None:
                    raise
                return {"name": one.name, "at": path_of(one), "problem": who.said(error)[1]}

        threads = await for_each(look, every)
        if served is None:  # whoever needs a person comes first
            threads.sort(key=lambda one: not one.get("needs"))
        values = {"threads": threads, "needed": sum(len(one.get("needs", ())) for one in threads)}
        return self._page("now.html", values, served, view="Now", who=who, note=note)

    async def _view(self, ask: Ask, target: str, who: Principal, note: Note | None) -> Reply:
        view, read = _VIEWS[target]

        def run(thread: Thread) -> Reply:
            template, values = read(thread, ask)
            return self._page(template, values, ask.served, view=view, who=who, note=note)

        return await ask.served.do(run, READ)

    async def _do(
        self, ask: Ask, headers: Mapping[str, str], who: Principal, how: str,
        act: Callable[[Thread, Ask], Done],
    ) -> Reply:  # fmt: skip
        if not self._access.is_csrf(ask.form.get("csrf", "")):
            raise RefusedError(403, "The form is not of this server, or an old one: load its page.")
        run = who.acting("page", lambda thread: act(thread, ask))
        done = await ask.served.do(run, how, alone=True)
        return _moved(done.place or _back(headers, ask.at), _cookie(headers, done.note, NOTED))

    # --- changes ----------------------------------------------------------------------------------

    async def _changes(self, name: str | None, receive: Receive, send: Send) -> None:
        """Say when a thread, or any of them, has changed, as server-sent events."""
        every = [one for one in self._threads.values() if name is None or one.name == name]
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frame = b": connected\n\n"
        async with Caller(receive, *(one.feed for one in every)) as caller:
            while not caller.has_gone and not any(one.feed.is_closed for one in every):
                changed = [one.feed.changed for one in every]
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                if frame == _CHANGED:  # the first is told at once, those soon after it together
                    await asyncio.sleep(PAUSE)
                frame = _CHANGED if await caller.wait(HEARTBEAT, *changed) else b":\n\n"
            await send({"type": "http.response.body", "body": b""})


async def _form(receive: Receive, headers: Mapping[str, str]) -> dict[str, str]:
    """Read the form of who may send one. Raises TooLargeError, UsageError."""
    body = await body_of(receive, headers, MOST_FORM)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _back(headers: Mapping[str, str], at: str) -> str:
    """Return the page of a thread that a form was sent from, by default the first."""
    with suppress(ValueError):  # what is no URL
        found = urlsplit(headers.get("referer", ""))
        if found.netloc == headers.get("host") and found.path.startswith(f"{at}/"):
            return f"{found.path}?{found.query}" if found.query else found.path
    return f"{at}/"


def _note(headers: Mapping[str, str]) -> Note | None:
    """Return what the act before this page did: once, and for a page that a person sees."""
    if headers.get("sec-fetch-dest", "document") != "document":
        return None
    pairs = (one.strip().partition("=") for one in headers.get("cookie", "").split(";"))
    own = cookie_name(headers) + _NOTE
    text = next((unquote(value) for name, _, value in pairs if name == own), "")[:_MOST_NOTE]
    return Note(text, _cookie(headers, "", 0)) if text else None


def _cookie(headers: Mapping[str, str], note: str, seconds: int) -> tuple[bytes, bytes]:
    value = quote(note[:_MOST_NOTE], safe="")
    name = cookie_name(headers) + _NOTE
    return b"set-cookie", f"{name}={value}; {_LIMITS}; Max-Age={seconds}".encode("ascii")


def _moved(path: str, *more: tuple[bytes, bytes]) -> Reply:
    headers = ((b"location", path.encode("latin-1", "replace")), *_HEADERS, *more)
    return Reply(b"", type=_HTML, status=303, more=headers)


def _static(name: str) -> Reply:
    from importlib.resources import files

    if name not in _STATIC:
        return Reply(b"there is no such file", type="text/plain", status=404)
    data = (files("eventq.http") / "static" / name).read_bytes()
    return Reply(data, type=_STATIC[name], more=_HEADERS)


# --- how values are shown -------------------------------------------------------------------------


def _iso(at: float | str) -> str:
    return at if isinstance(at, str) else clock.stamp(at)


def _points(values: Sequence[int]) -> str:
    """Return the points of a line through values, in a box of 100 by 100."""
    most, step = max(*values, 1), 100 / (len(values) - 1)
    return " ".join(
        f"{n * step:.2f},{100 - 100 * value / most:.1f}" for n, value in enumerate(values)
    )


def pretty(content: str) -> str:
    """Return what an event says: JSON with indents, and at most so many characters."""
    shown = content
    if content[:1] in "{[" and len(content) <= LONGEST:
        with suppress(ValueError, RecursionError):
            shown = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    left = len(shown) - LONGEST
    return shown if left <= 0 else f"{shown[:LONGEST]}\n… {count(left, 'more character')}"


def _bytes(size: int) -> str:
    number = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def _mark(one: ConsumerStatus) -> str:
    """Return the class of the mark that a consumer's state has."""
    if one.stalled is not None or one.pending is None:
        return "bad"
    return "off" if one.paused else "good" if one.running or one.workers else "off"


def _bars(values: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    """Yield left edge, width and height of the bars of counts, in a box of 100 by 100."""
    most, step = max(*values, 1), 100 / len(values)
    for n, value in enumerate(values):
        if value:
            yield f"{n * step:.2f}", f"{0.86 * step:.2f}", f"{100 * value / most:.1f}"


def _since(one: ConsumerStatus) -> float | None:
    return None if one.lag is None else clock.now() - one.lag


_FILTERS = {
    "iso": _iso, "points": _points, "pretty": pretty, "bytes": _bytes, "mark": _mark,
    "bars": _bars, "ansi": ansi.text,
    "hash": lambda ref: ref.rpartition(":")[2],
    "count": count, "waiting": waiting, "since": _since, "doing": doing,
    "segment": lambda text: quote(str(text), safe=""),
}  # fmt: skip
