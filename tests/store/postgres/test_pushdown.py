"""What of a filter is left to the server: only what it judges as SQLite does."""

from __future__ import annotations

import pytest

from eventq.store.postgres.pushdown import push_down


@pytest.mark.parametrize(
    ("text", "sql", "values", "is_whole"),
    [
        ("type = 'a'", " AND type = %(f0)s", ["a"], True),
        ("'it''s' == SOURCE", " AND source = %(f0)s", ["it's"], True),
        ("subtype IN ('a', 'b')", " AND subtype = ANY(%(f0)s)", [["a", "b"]], True),
        ("id > 5 AND 9 >= id", " AND id > %(f0)s::bigint AND id <= %(f1)s::bigint", [5, 9], True),
        ("type = 'a' AND content LIKE '%x%'", " AND type = %(f0)s", ["a"], False),
        (
            "created_at >= '2026' AND (type = 'a' OR 1)",
            " AND created_at >= %(f0)s",
            ["2026"],
            False,
        ),
    ],
)
def test_what_is_pushed_down(text: str, sql: str, values: list[object], is_whole: bool) -> None:
    """Comparisons of a column with a literal that all have to hold."""
    found = push_down(text)
    assert (found.sql, [*found.values.values()], found.is_whole) == (sql, values, is_whole)


@pytest.mark.parametrize(
    "text",
    [
        "type = 'a' OR source = 'b'",
        "NOT type = 'a'",
        "id BETWEEN 1 AND type = 'x'",
        "CASE WHEN 1 THEN 2 ELSE 3 END = 3 AND type = 'a'",
        "type = 'a' COLLATE NOCASE",
        "type = 'a' = 'b'",
        "type = 5",
        "id = '5'",
        "id = 0x10",
        "id > 1.5",
        "id > 9223372036854775808",
        "content = 'x'",
        "type <> 'a'",
        "type IS 'a'",
        "type IN ('a', source)",
        "type NOT IN ('a')",
        "lower(type) = 'a'",
        '"type" = 5',
        "type = x'61'",
        "type = 'a' || 'b'",
        "-id = 5",
    ],
)
def test_what_is_not(text: str) -> None:
    """Whatever the server might see in another way, or that need not hold."""
    assert push_down(text) == ("", {}, False)
