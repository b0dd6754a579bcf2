"""Show the tokens that models took."""

from __future__ import annotations

from eventq.cli import kinds, show
from eventq.cli.options import JSON, thread_option
from eventq.cli.rules import exclude
from eventq.cli.table import Command, Option
from eventq.records.spent import usage_object
from eventq.sessions.sums import count_rest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventq.records.spent import ModelUsage, UsageSum
    from eventq.thread import Thread

_NOT_ALL = "not all: what an older version stored is counted once the thread can be written"
_HEAD = ("model", "written", "read", "from a cache", "responses")


def usage(
    thread: Thread,
    *,
    context: int | str | None,
    run: int | str | None,
    since: float | None,
    until: float | None,
    json: bool,
) -> None:
    """Show the tokens that models wrote and read, by model.

    They are those of the whole thread, of a context, or of a run. A branch of a session has the sum
    of its session. Each response counts once, in the session, context or run that it was written to
    first. What was read has what came from a cache with it. `--since` and `--until` are times of
    responses. Where the thread cannot be written, what an older version has stored is left out, and
    the last line says so.
    """
    first = 0 if since is None else int(since * 1_000)
    last = None if until is None else int(until * 1_000)
    found = thread.usage(context=context, run=run, since=first, until=last)
    if not found.is_all:  # what an older version has stored is counted now, if it can be
        count_rest(thread.database.memory, thread.blobs)
        found = thread.usage(context=context, run=run, since=first, until=last)
    show.result(usage_object(found), "\n".join(_lines(found)), json=json)


def _lines(found: UsageSum) -> list[str]:
    """Return a table: a row for each model, for subagents, and for all."""
    rows = [_HEAD, *map(_cells, found.models)]
    if len(found.models) != 1:
        rows.append(_row("all", found))
    if found.subagents is not None and found.subagents.responses:
        rows.append(_row("subagents beside it", found.subagents))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return lines if found.is_all else [*lines, _NOT_ALL]


def _cells(one: ModelUsage) -> tuple[str, str, str, str, str]:
    return _row(show.readable(one.model) or "not named", one)


def _row(name: str, one: ModelUsage | UsageSum) -> tuple[str, str, str, str, str]:
    read = one.fresh + one.cached
    return name, f"{one.out:,}", f"{read:,}", f"{one.cached:,}", f"{one.responses:,}"


COMMANDS = {
    "usage": Command(
        usage,
        [
            Option("context NAME", "Only of this context, or of its whole session.", kinds.branch),
            Option("run RUN", "Only of this run.", kinds.branch),
            Option(
                "since WHEN",
                "Only responses from then on. WHEN is 1h (ago), 2026-11-01, 2026-11-01T09:30 or"
                " 09:30 (today), in local time unless a zone follows.",
                kinds.moment,
            ),
            Option("until WHEN", "Only responses before then.", kinds.moment),
            thread_option(kinds.Opened(or_reads=True)),
            JSON,
        ],
        "eventq usage --since 24h --thread ./inbox",
        "eventq usage --context work --thread ./inbox",
        rules=[exclude("context", "run")],
    ),
}
