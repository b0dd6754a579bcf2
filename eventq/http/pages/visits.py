"""When a browser looked last: the time from which the first page counts, kept in a cookie of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.http.cookies import cookie_in, cookie_of
from eventq.http.pages.page_request import is_fetched_again
from eventq.record import Record
from eventq.system import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = 24 * 3600  # seconds for which counts of attempts are kept
BREAK = 30 * 60  # seconds without a page after which the next one begins another visit
_NAME = "-seen"  # at the end of the name of the cookie
_REMEMBERED = 365 * 24 * 3600  # seconds


class Visit(Record):
    """A look at the first page; times are in seconds since 1970.

    `before` is the last look of the visit before this one, None if the browser has been here once
    at most. What came to pass is counted `since` then, or since the counts begin. `cookie` notes
    the look, if a person sees the page.
    """

    before: float | None
    since: float
    cookie: tuple[bytes, bytes] | None

    @property
    def is_whole(self) -> bool:
        """Whether all that came to pass since then is counted."""
        return self.before is not None and self.before >= self.since


def visit(headers: Mapping[str, str]) -> Visit:
    """Return the visit that a request is a part of; a page that is fetched again notes nothing."""
    now = clock.now()
    before, last = _times(headers, now)
    if last is not None and now - last > BREAK:
        before = last
    cookie = None
    if not is_fetched_again(headers):
        cookie = cookie_of(headers, _NAME, f"{int(before or 0)}.{int(now)}", _REMEMBERED)
    return Visit(before, max(before or 0, now - KEPT), cookie)


def _times(headers: Mapping[str, str], now: float) -> tuple[float | None, float | None]:
    """Return the end of the visit before, and the last look, of what the cookie says."""
    before, _, last = cookie_in(headers, _NAME).partition(".")
    if not all(one.isascii() and one.isdigit() and len(one) < 12 for one in (before, last)):
        return None, None
    return (
        float(before) if 0 < int(before) <= now else None,
        float(last) if int(last) <= now else None,
    )
