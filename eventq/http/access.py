"""Who may do what: a token, or only reading on this machine; and no pages of other hosts.

A browser sends requests for any page that asks it to. So a request must name this server as its
`Host`, which a page of another name that was made to lead here does not. One with an `Origin`, or
with a browser's `Sec-Fetch-Site`, must come from this server; a link to here may be followed.

Whoever comes through a proxy or a tunnel on this machine looks as if from here. The headers that
most of them add tell, and as they only take rights away, nobody gains by making them up.
"""

from __future__ import annotations

import hmac
import os
import secrets
from typing import TYPE_CHECKING

from eventq.errors import ForbiddenError, UsageError
from eventq.http.cookies import cookie_in, cookie_name
from eventq.http.tokens import DEFAULT, NOBODY, Token, by_token
from eventq.serving.principal import NONE, READING, RIGHTS, Principal
from eventq.system.environment import user_name
from eventq.system.peers import is_loopback, user_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Peer = tuple[str, int] | None  # address and port

_SESSIONS = 1_000  # of browsers
SAFE = ("GET", "HEAD", "OPTIONS")
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_OF_PROXY = {
    "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
}  # fmt: skip


class RefusedError(Exception):
    """A request is refused, with a status and a sentence."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status
        self.what = what


class WrongTokenError(RefusedError):
    """A token, or the key of a link, is not the one of this server."""

    def __init__(self, what: str) -> None:
        super().__init__(401, what)


class Access:
    """The rules of one server.

    Where only this machine can reach it, anybody may read without a token, but not through a proxy.
    To change anything needs `write` and a token with the right for it; with `insecure`, which is
    for this machine only, no token. `token` has every right. Raises UsageError for what would let
    in anybody.
    """

    def __init__(
        self, listen: str, *, is_local: bool, token: str, write: bool, insecure: bool,
        tokens: Sequence[Token] = (),
    ) -> None:  # fmt: skip
        given = [Token(DEFAULT, token, RIGHTS)] * bool(token) + [*tokens]
        self._tokens = [one._replace(name=by_token(one.name)) for one in given]
        if any(one.value == token for one in tokens):
            what = "a token of --tokens has the value of the one token, of --token or EVENTQ_TOKEN"
            raise UsageError(what, "give each its own")
        if token.strip() != token or not token.isprintable():
            what = "no client can send the token of --token or EVENTQ_TOKEN over HTTP"
            raise UsageError(what, "give one of printable characters, without blanks around it")
        if not is_local and (insecure or not self._tokens):
            what = f"'{listen}' can be reached from other machines"
            fix = "set EVENTQ_TOKEN or give --token, or listen on 127.0.0.1"
            raise UsageError(what, fix)
        if write and not self._tokens and not insecure:
            fix = "set EVENTQ_TOKEN or give --token; --insecure-local lets in all of this machine"
            raise UsageError("--write needs a token", fix)
        self.is_local = is_local
        self.write = write or insecure
        self._insecure = insecure
        self._hosts = {listen.rpartition(":")[0], *_LOCAL}
        self._owner = Token(user_name(), "", RIGHTS)  # who has the link
        self._sessions: dict[str, Token] = {}  # of browsers, the oldest first
        self._links: dict[str, bool] = {}  # each with whether it lets in a browser still
        self.csrf = secrets.token_hex(32)

    @property
    def has_token(self) -> bool:
        """Whether there is a token to show."""
        return bool(self._tokens)

    # --- pages ------------------------------------------------------------------------------------

    def link(self) -> str:
        """Return a path that lets in a browser, once."""
        key = secrets.token_urlsafe(24)
        self._links[key] = True
        return f"/open?key={key}"

    def cookie(self, headers: Mapping[str, str], *, key: str = "", token: str = "") -> str | None:
        """Return the cookie for who shows the key of a link, or the token; None for nobody."""
        if self._links.get(key):
            self._links[key] = False
            who: Token | None = self._owner
        else:
            who = self._holder(b"Bearer " + token.encode("utf-8", "replace"))
        if who is None:
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[session] = who
        if len(self._sessions) > _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return f"{cookie_name(headers)}={session}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000"

    def was_link(self, key: str) -> bool:
        """Return whether a key is that of a link, which has let in a browser."""
        return key in self._links

    def check_peer(self, peer: Peer, own: Peer) -> None:
        """Refuse a link that another user than the owner of this process, or root, has come by."""
        user = user_of(peer, own) if peer and own else None
        is_owner = user in (0, os.geteuid())
        if not (is_owner or (user is None and peer and is_loopback(peer[0]))):
            raise RefusedError(
                401,
                "This link is for the user of this machine who started the server. Everybody else"
                " comes in here, with a token: that of EVENTQ_TOKEN, or one of --tokens.",
            )

    def is_csrf(self, word: str) -> bool:
        """Return whether a form, or a call of a page, comes from a page of this server."""
        return hmac.compare_digest(word.encode("utf-8", "replace"), self.csrf.encode())

    def _of_cookie(self, headers: Mapping[str, str]) -> Token | None:
        return self._sessions.get(cookie_in(headers))

    # --- who may do what --------------------------------------------------------------------------

    def check_place(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a request that asks for another server, or comes from a page of one."""
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") else host
        if self.is_local and (name or host).lower() not in self._hosts:
            what = "this server has another name - use the one it listens on"
            raise RefusedError(421, f"{what}; behind a proxy, let it listen on 0.0.0.0")
        origin = headers.get("origin")
        is_of_other = origin is not None and origin.partition("://")[2].lower() != host.lower()
        if is_of_other or not (_is_own(headers) or _is_followed(method, headers)):
            raise RefusedError(
                403, "pages of other hosts may not use this server - call it yourself"
            )

    def _holder(self, shown: bytes) -> Token | None:
        """Return the token that an Authorization shows."""
        scheme, _, word = shown.partition(b" ")  # of any case: RFC 9110, 11.1
        found = None
        for one in self._tokens if scheme.lower() == b"bearer" else ():
            if hmac.compare_digest(word, one.value.encode()):
                found = one
        return found

    def principal(self, headers: Mapping[str, str], *, cookies: bool = True) -> Principal:
        """Return who sends a request, by a token or a cookie; refuse a wrong token."""
        shown = headers.get("authorization", "")
        if shown:
            token = self._holder(shown.encode("latin-1"))
            if token is None:
                raise WrongTokenError("the token is wrong - send one that the server was given")
        else:
            token = self._of_cookie(headers) if cookies else None
        is_held = token is not None
        is_here = self.is_local and _OF_PROXY.isdisjoint(headers)
        rights = token.rights if token else RIGHTS if self._insecure and is_here else NONE
        return Principal(
            token.name if token else by_token(NOBODY),
            (rights if self.write else rights & READING) | (READING if is_here else NONE),
            is_told=is_held,
            is_person=is_held,
            is_known=is_held or (self._insecure and is_here) or not self.has_token,
            by_cookie=is_held and not shown,
        )

    def check(self, who: Principal, right: str) -> None:
        """Refuse what a caller may not do."""
        if right in who.rights:
            return
        if right != "read" and not self.write:
            raise RefusedError(403, "this server only reads - start it with --write")
        if not (who.is_told or self.has_token):
            what = "a proxy has passed this on from elsewhere, and this server has no token"
            raise RefusedError(401, f"{what} - start it with EVENTQ_TOKEN")
        if not who.is_told:
            fix = "send 'Authorization: Bearer TOKEN', or come in at /login"
            raise RefusedError(401, f"a token is missing - {fix}")
        raise ForbiddenError(right)

    def check_change(self, who: Principal) -> None:
        """Refuse who may change nothing at all, as `check` does."""
        if not who.may_write:
            self.check(who, "all")

    def check_method(self, who: Principal, method: str, headers: Mapping[str, str]) -> None:
        """Refuse what a caller may not do by any request of a method, as `check` does."""
        if method in SAFE:
            self.check(who, "read")
            return
        self.check_change(who)
        if who.by_cookie and not self.is_csrf(headers.get("x-csrf-token", "")):
            what = "a cookie alone changes nothing - send the page's X-CSRF-Token as well"
            raise RefusedError(403, what)


def _is_own(headers: Mapping[str, str]) -> bool:
    """Return whether a page of this server, a person, or no browser at all sent a request."""
    return headers.get("sec-fetch-site", "none").lower() in ("none", "same-origin")


def _is_followed(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether a browser follows a link, and shows what comes as a document of its own."""
    mode, shown = headers.get("sec-fetch-mode", ""), headers.get("sec-fetch-dest", "")
    return (method, mode.lower(), shown.lower()) == ("GET", "navigate", "document")
