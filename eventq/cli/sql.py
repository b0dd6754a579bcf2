"""The command that runs a SELECT on the tables of a thread."""

from __future__ import annotations

from eventq.cli import kinds, render, show
from eventq.cli.options import JSON, READ
from eventq.cli.rules import exclude
from eventq.cli.table import Argument, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from eventq.records.rows import Rows, Value
    from eventq.thread import Thread

_CELL = 80  # characters of a value in a table; the last column may have more


def sql(
    thread: Thread,
    *,
    statement: str | None,
    value: list[str],
    limit: int,
    timeout: float,
    json: bool,
    csv: bool,
) -> None:
    """Run a SELECT on the tables of a thread, and print its rows.

    Without a statement, lists the tables and views with their columns. Values stand for ? in the
    statement, in order; a plain number is bound as one. payload(HASH) is what a blob holds. Nothing
    can be changed. A table cuts long values; --json and --csv print all, and bytes as hex digits.
    """
    rows = thread.sql(statement or "", [*map(_bound, value)], limit=limit, timeout=timeout)
    if json:
        render.dump_all({name: _plain(one) for name, one in row.items()} for row in rows)
    elif csv:
        render.say_all(_as_csv(rows))
    else:
        render.say_all(_as_table(rows))
    if rows.more:
        shown = render.count(len(rows), "row")
        show.note(f"… more rows: only {shown} printed; raise --limit, or add a condition")


def _bound(word: str) -> str | int | float:
    """Return a number for a word that is spelled as SQLite would print it; others stay text."""
    try:
        number = float(word) if "." in word else int(word)
    except ValueError:
        return word
    return number if str(number) == word and abs(number) < 1 << 63 else word


def _plain(value: Value) -> str | int | float | None:
    """Return a value as JSON and CSV have it."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if value in _ENDLESS else value


_ENDLESS = (float("inf"), -float("inf"))  # JSON has no number for them


def _as_csv(rows: Rows) -> Iterator[str]:
    """Yield the records of RFC 4180, whose lines end in CR and LF."""
    import csv
    from io import StringIO

    buffer = StringIO()
    write = csv.writer(buffer).writerow
    for record in (rows.columns, *([*map(_plain, row.values())] for row in rows)):
        write(record)
        yield buffer.getvalue().removesuffix("\n")
        buffer.seek(0)
        buffer.truncate()


def _as_table(rows: Rows) -> Iterator[str]:
    names = [show.readable(name) for name in rows.columns]
    last = len(names) - 1
    body = [
        [_cell(value, render.CHARACTERS if at == last else _CELL) for at, value in enumerate(row)]
        for row in (row.values() for row in rows)
    ]
    widths = [max(map(len, column)) for column in zip(names, *body, strict=True)]
    widths[-1:] = [len(names[-1])]  # nothing stands behind the last one
    yield from render.aligned([names, ["-" * width for width in widths], *body])


def _cell(value: Value, most: int) -> str:
    if value is None:
        return "NULL"
    text = f"x'{value[:most].hex()}'" if isinstance(value, bytes) else str(value)[: most + 1]
    text = show.readable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


COMMANDS = {
    "sql": Command(
        sql,
        [
            Argument("[STATEMENT]", kinds.verbatim),
            Argument("[VALUE…]", kinds.verbatim),
            READ,
            Option("limit N", "Print at most N rows.", kinds.POSITIVE, default="1000"),
            Option(
                "timeout DURATION",
                "End a statement that takes longer.",
                kinds.duration,
                default="30s",
            ),
            JSON,
            Option("csv", "Print CSV, with the names of the columns first."),
        ],
        "eventq sql 'SELECT type, count(*) FROM events GROUP BY type' --thread ./inbox",
        "eventq sql 'SELECT * FROM events WHERE id > ? AND source = ?' 5 self --thread ./inbox",
        "eventq sql 'SELECT payload FROM v_turns' --json --thread ./inbox",
        "eventq sql --thread ./inbox",
        rules=[exclude("json", "csv")],
    )
}
