"""Pages of what is odd: damaged payloads, headings without an end, threads that go meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventq.http.pages import output_kinds
from tests.http.test_pages import client

if TYPE_CHECKING:
    pass

__all__ = ["client"]  # a fixture

AT = "/t/thread/contexts/main"


def test_a_heading_of_any_length() -> None:
    """It is read once: what tried each of its signs would take an hour."""
    (part,) = output_kinds.document("# Title " + "# " * 500_000 + "end")
    assert part.title.startswith("Title # #")
    headings = ("# a b", "## a # b #  ", "# #", "#\t", "### a\t#")
    assert [one.title for one in output_kinds.document("\n".join(headings))] == [
        "a b", "a # b", "", "", "a",
    ]  # fmt: skip
