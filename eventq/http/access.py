"""Who may do what: a token, or only reading on this machine; and no pages of other hosts.

A browser sends requests for any page that asks it to. So a request must name this server as its
`Host`, which a page of another name that was made to lead here does not, and one with an `Origin`
must come from this server.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from eventq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SAFE = ("GET", "HEAD", "OPTIONS")
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class RefusedError(Exception):
    """A request is refused, with a status and a sentence."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status
        self.what = what


class Access:
    """The rules of one server.

    Where only this machine can reach it, anybody may read without a token. To change anything needs
    `write` and the token; with `insecure`, which is for this machine only, no token. Raises
    UsageError for what would let in anybody.
    """

    def __init__(
        self, listen: str, *, is_local: bool, token: str, write: bool, insecure: bool
    ) -> None:
        if not is_local and (insecure or not token):
            what = f"'{listen}' can be reached from other machines"
            fix = "set EVENTQ_TOKEN or give --token, or listen on 127.0.0.1"
            raise UsageError(what, fix)
        if write and not token and not insecure:
            fix = "set EVENTQ_TOKEN or give --token; --insecure-local lets in all of this machine"
            raise UsageError("--write needs a token", fix)
        self.is_local = is_local
        self.write = write or insecure
        self._authorization = b"Bearer " + token.encode() if token else b""
        self._insecure = insecure
        self._hosts = {listen.rpartition(":")[0], *_LOCAL}

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a request that may not be done."""
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") else host
        if self.is_local and (name or host).lower() not in self._hosts:
            raise RefusedError(421, "this server has another name - use the one it listens on")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise RefusedError(
                403, "pages of other hosts may not use this server - call it yourself"
            )
        shown = headers.get("authorization", "").encode("latin-1")
        knows = bool(shown) and hmac.compare_digest(shown, self._authorization)
        if shown and not knows:
            raise RefusedError(401, "the token is wrong - send the one that the server was given")
        if knows and (self.write or method in SAFE):
            return
        if method in SAFE and self.is_local:
            return
        if not self.write and method not in SAFE:
            raise RefusedError(403, "this server only reads - start it with --write")
        if not self._insecure:
            raise RefusedError(401, "a token is missing - send 'Authorization: Bearer TOKEN'")
