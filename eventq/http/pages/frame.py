"""The frame of the pages: which path leads to which view, who may see it, and what an act answers.

Each view reads its thread in a worker and is rendered there; everything in it is escaped.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from heapq import nsmallest
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined

from eventq.errors import EventqError
from eventq.http.access import RefusedError, WrongTokenError
from eventq.http.cookies import cookie_in, cookie_of
from eventq.http.operations import Reply
from eventq.http.pages import (
    branch_pages,
    event_view,
    live_page,
    output_pages,
    queue_pages,
    run_pages,
    talk_pages,
)
from eventq.http.pages.acts import ACTS
from eventq.http.pages.health_page import health
from eventq.http.pages.now_page import Details, Looked, answers, choose, details, look, shown
from eventq.http.pages.page_request import Ask, is_fetched_again, path_of
from eventq.http.pages.visits import visit
from eventq.http.pages.wording import FILTERS
from eventq.http.routes import Routes
from eventq.http.sending import Caller, body_of, send_reply
from eventq.log.notifier import quote as quoted
from eventq.record import Record
from eventq.serving.plans import QUICK, READ
from eventq.serving.served import for_each

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from eventq.http.access import Access
    from eventq.http.pages.acts import Done
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
    ("Runs", "runs"),
    ("Output", "output"),
    ("Health", "health"),
)
MOST_FORM = 64 << 10  # bytes
LISTED = 500  # threads to choose from
TOGETHER = 50  # threads that are looked at for the page of all
NOTED = 30  # seconds until a note on an act is not shown any more
_MOST_NOTE = 500  # characters
_NOTE = "-note"  # at the end of the name of its cookie
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
    "icon.svg": "image/svg+xml",
}
_CHANGED = b"data: changed\n\n"
_ONLY_GET = ("changes", "open")  # one does not end, the other works once
_HTML = "text/html; charset=utf-8"


_VIEWS: Mapping[str, tuple[str, Callable[[Thread, Ask], tuple[str, Values]]]] = {
    "/t/{thread}/live": ("Live", live_page.live),
    "/t/{thread}/events/{event}": ("Live", event_view.event),
    "/t/{thread}/consumers": ("Consumers", queue_pages.consumers),
    "/t/{thread}/consumers/{consumer}": ("Consumers", queue_pages.consumer),
    "/t/{thread}/consumers/{consumer}/drop": ("Consumers", queue_pages.confirm),
    "/t/{thread}/health": ("Health", health),
    "/t/{thread}/branches": ("Branches", branch_pages.branches),
    "/t/{thread}/contexts/{context}": ("Branches", talk_pages.context),
    "/t/{thread}/turns/{turn}": ("Branches", talk_pages.turn),
    "/t/{thread}/diff": ("Branches", talk_pages.diff),
    "/t/{thread}/runs": ("Runs", run_pages.runs),
    "/t/{thread}/runs/{run}": ("Runs", run_pages.run),
    "/t/{thread}/answers": ("Now", answers),
    "/t/{thread}/output": ("Output", output_pages.output),
    "/t/{thread}/output/{artifact}": ("Output", output_pages.artifact),
    "/t/{thread}/published/{output}": ("Output", output_pages.published),
}


class Note(Record):
    """What an act did, and the header with which it is not shown again."""

    text: str
    forget: tuple[bytes, bytes]


class Pages:
    """The pages of a server."""

    def __init__(self, threads: Mapping[str, ServedThread], access: Access) -> None:
        self._threads = threads
        self._access = access
        self._templates = Environment(
            loader=PackageLoader("eventq.http.pages"), autoescape=True, trim_blocks=True,
            lstrip_blocks=True, undefined=StrictUndefined, auto_reload=False,
        )  # fmt: skip
        self._templates.filters |= FILTERS
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
            raise RefusedError(404, "there is no such page")
        target = found[0].get(method)
        if target is None or (target in _ONLY_GET and scope["method"] == "HEAD"):
            raise RefusedError(405, "this is not for that page")
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
            raise RefusedError(401, f"These pages need a token. {fix}")
        self._access.check(who, "read")
        if target == "changes":
            await self._changes(query.get("thread"), receive, send)
            return None
        if target == "home" and len(self._threads) == 1:
            return _moved(path_of(next(iter(self._threads.values()))) + "/")
        note = _note(headers)
        if target == "home":
            return await self._now(None, headers, who, note)
        served = self._threads.get(found[1]["thread"])
        if served is None:
            raise RefusedError(404, "there is no such thread")
        if target == "now":
            return await self._now(served, headers, who, note)
        if target == "do":
            self._access.check_change(who)
            action = ACTS.get(found[1]["action"])
            if action is None:
                raise RefusedError(404, "there is no such action")
            self._access.check(who, action[0])
            form = await _form(receive, headers)
            return await self._do(Ask(served, found[1], query, form), headers, who, *action[1:])
        ask = Ask(served, found[1], query, {}, is_fetched_again(headers))
        return await self._view(ask, target, who, note)

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

    def refusal(self, path: bytes, who: Principal, status: int, what: str) -> Reply:
        """Return the page that says why there is no other: one to sign in, if that may help.

        It is one of the thread that the path names, for whoever may read that.
        """
        if status == 401 and self._access.has_token:
            return self._page("login.html", {"what": what}, status=401)
        values = {"status": status, "title": HTTPStatus(status).phrase, "detail": what}
        if status not in (401, 403):  # to come in would change nothing
            values |= {"may_sign_in": False}
        if "read" not in who.rights:
            return self._page("problem.html", values, status=status)
        served, view = self._place(path)
        return self._page("problem.html", values, served, view=view, status=status, who=who)

    def _place(self, path: bytes) -> tuple[ServedThread | None, str]:
        """Return the thread that a path names, and the view that it is of."""
        parts = path.decode("ascii", "replace").strip("/").split("/")
        name = unquote(parts[1]) if parts[0] == "t" and len(parts) > 1 else ""
        found = self._routes.find(path)
        target = found[0].get("GET", "") if found is not None else ""
        return self._threads.get(name), _VIEWS[target][0] if target in _VIEWS else ""

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
            "needed": served.needed if served is not None else 0,
            "threads_here": self._listed() if who is not None else [],
            "thread_count": len(self._threads),
        }  # fmt: skip
        text = self._templates.get_template(template).render(shown | values)
        more = (*_HEADERS, note.forget) if note else _HEADERS
        return Reply(text.encode("utf-8", "replace"), type=_HTML, status=status, more=more)

    def _listed(self) -> list[Values]:
        """Return the threads to choose from, with how many things needed a person at last."""
        some = [*self._threads.values()]
        if len(self._threads) > LISTED:
            some = sorted(nsmallest(LISTED, some, key=_rank), key=lambda one: one.name)
        return [{"name": one.name, "at": path_of(one), "needed": one.needed} for one in some]

    def _together(self) -> list[ServedThread]:
        """Return the threads that are looked at together: who needs a person, what was used."""
        return nsmallest(TOGETHER, self._threads.values(), key=_rank)

    def _beside(self, looked: list[ServedThread]) -> Values:
        """Return how many threads were not looked at, and the first of them by name."""
        left = len(self._threads) - len(looked)
        known = {one.name for one in looked}
        rest = (one for one in self._threads.values() if one.name not in known)
        some = [{"name": one.name, "at": path_of(one)} for one in islice(rest, LISTED)]
        return {"count": left, "listed": some, "needed": self._needed_of(known)}

    def _needed_of(self, known: set[str]) -> int:
        return sum(bool(one.needed) for one in self._threads.values() if one.name not in known)

    async def _now(
        self, served: ServedThread | None, headers: Mapping[str, str], who: Principal,
        note: Note | None,
    ) -> Reply:  # fmt: skip
        """Look at a thread, or at each of the server, then read the details of what is shown."""
        seen = visit(headers)
        every = [served] if served is not None else self._together()

        async def see(one: ServedThread) -> Looked:
            ask = one.glance if served is None else one.do
            try:
                return await ask(lambda thread: look(thread, one, seen), QUICK)
            except EventqError as error:
                if served is not None:
                    raise
                return Looked(one.name, path_of(one), who.said(error)[1])

        async def read(one: ServedThread) -> Details | Looked:
            try:
                return await one.glance(lambda thread: details(thread, wanted[one.name]), QUICK)
            except EventqError as error:  # it has gone since
                if served is not None:
                    raise
                return Looked(one.name, path_of(one), who.said(error)[1])

        threads = await for_each(see, every)
        is_whole = False
        while not is_whole:  # what a thread that goes leaves free is for the others
            threads.sort(key=lambda one: (not one.problem, -one.needed))
            chosen = choose(threads)
            wanted = {one.name: what for one in threads if any(what := chosen.of(one))}
            read_of = await for_each(read, [self._threads[name] for name in wanted])
            some = dict(zip(wanted, read_of, strict=True))
            found = {name: one for name, one in some.items() if isinstance(one, Details)}
            gone = {name: one for name, one in some.items() if isinstance(one, Looked)}
            threads = [gone.get(one.name, one) for one in threads]
            is_whole = not gone
        histories = {one.name: one.history for one in every}
        values = shown(threads, chosen, found, seen)
        values |= {"histories": histories, "more": self._beside(every) if served is None else None}
        reply = self._page("now.html", values, served, view="Now", who=who, note=note)
        return reply if seen.cookie is None else reply._replace(more=(*reply.more, seen.cookie))

    async def _view(self, ask: Ask, target: str, who: Principal, note: Note | None) -> Reply:
        view, read = _VIEWS[target]

        def run(thread: Thread) -> Reply:
            template, values = read(thread, ask)
            values |= {"place": quoted(thread.path) if who.is_told else "THREAD"}
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


def _rank(one: ServedThread) -> tuple[bool, float]:
    """Return what threads are chosen by where they are too many."""
    return not one.needed, -one.asked_at


async def _form(receive: Receive, headers: Mapping[str, str]) -> dict[str, str]:
    """Read the form of who may send one. Raises TooLargeError, UsageError."""
    body = await body_of(receive, headers, MOST_FORM)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _back(headers: Mapping[str, str], at: str) -> str:
    """Return the page that a form was sent from, by default the first one of the thread."""
    with suppress(ValueError):  # what is no URL
        found = urlsplit(headers.get("referer", ""))
        is_own = found.path == "/" or found.path.startswith(f"{at}/")
        if found.netloc == headers.get("host") and is_own:
            return f"{found.path}?{found.query}" if found.query else found.path
    return f"{at}/"


def _note(headers: Mapping[str, str]) -> Note | None:
    """Return what the act before this page did: once, and for a page that a person sees."""
    if is_fetched_again(headers):
        return None
    text = unquote(cookie_in(headers, _NOTE))[:_MOST_NOTE]
    return Note(text, _cookie(headers, "", 0)) if text else None


def _cookie(headers: Mapping[str, str], note: str, seconds: int) -> tuple[bytes, bytes]:
    return cookie_of(headers, _NOTE, quote(note[:_MOST_NOTE], safe=""), seconds)


def _moved(path: str, *more: tuple[bytes, bytes]) -> Reply:
    headers = ((b"location", path.encode("latin-1", "replace")), *_HEADERS, *more)
    return Reply(b"", type=_HTML, status=303, more=headers)


def _static(name: str) -> Reply:
    from importlib.resources import files

    if name not in _STATIC:
        return Reply(b"there is no such file", type="text/plain", status=404)
    data = (files("eventq.http.pages") / "static" / name).read_bytes()
    return Reply(data, type=_STATIC[name], more=_HEADERS)
