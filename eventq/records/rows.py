"""The rows of an SQL statement."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Value = str | int | float | bytes | None  # of SQLite
    Values = Sequence[Value] | Mapping[str, Value]
    Base = list[dict[str, Value]]
else:
    Base = list


class Rows(Base):
    """A list of rows, each a dictionary of values by column, as `pandas.DataFrame` takes it.

    `columns` are the names, also where there is no row; a name that occurs again is followed by
    `:1`, `:2`. `more` says whether there are more rows than were asked for.
    """

    def __init__(
        self, rows: Iterable[dict[str, Value]], columns: Sequence[str], *, more: bool
    ) -> None:
        """Hold the rows of a statement."""
        super().__init__(rows)
        self.columns = tuple(columns)
        self.more = more
