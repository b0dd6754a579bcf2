"""The cookies of a server. A browser sends one to every port of a host, so each name has a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def cookie_name(headers: Mapping[str, str], end: str = "") -> str:
    """Return a name that no other server of the host uses; `end` tells several cookies apart."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"eventq-{port}{end}" if port.isascii() and port.isdigit() else f"eventq{end}"


def cookie_in(headers: Mapping[str, str], end: str = "") -> str:
    """Return the value of a cookie of this server, "" if the browser sent none."""
    name = cookie_name(headers, end)
    pairs = (one.strip().partition("=") for one in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def cookie_of(
    headers: Mapping[str, str], end: str, value: str, seconds: int
) -> tuple[bytes, bytes]:
    """Return the header that has a browser keep a value: no script and no other host gets it."""
    limits = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}"
    return b"set-cookie", f"{cookie_name(headers, end)}={value}; {limits}".encode("ascii")
