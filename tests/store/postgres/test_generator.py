"""The generator of PostgreSQL's statements: what it writes, what it refuses, and its proof."""

from __future__ import annotations

import pytest

from scripts import sqlgen

SCHEMA = sqlgen.tables()
KEY = "{0}.bucket = $1 AND {0}.thread_id = $2"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param(
            "SELECT t.turn_id FROM turns t CROSS JOIN turns p ON p.turn_id = t.parent_id",
            "SELECT t.turn_id FROM eventq.turns AS t CROSS JOIN LATERAL "
            "(SELECT p.* FROM eventq.turns AS p WHERE p.turn_id = t.parent_id "
            f"AND ({KEY.format('p')}) OFFSET 0) AS p WHERE {KEY.format('t')}",
            id="a join is a lookup",
        ),
        pytest.param(
            "SELECT t.turn_id FROM turns t LEFT JOIN turns p ON p.turn_id = t.parent_id "
            "WHERE p.depth = 0",
            "SELECT t.turn_id FROM eventq.turns AS t LEFT JOIN LATERAL "
            "(SELECT p.* FROM eventq.turns AS p WHERE p.turn_id = t.parent_id "
            f"AND ({KEY.format('p')}) OFFSET 0) AS p ON TRUE "
            f"WHERE p.depth = 0 AND ({KEY.format('t')})",
            id="what a WHERE says of an outer join is said after it",
        ),
        pytest.param(
            "SELECT hash FROM erased_blobs CROSS JOIN blobs USING (blob_id) "
            "WHERE part = 0 AND erasure_id = ?",
            "SELECT hash FROM eventq.erased_blobs CROSS JOIN LATERAL (SELECT blobs.hash, "
            "blobs.raw_len, blobs.stored_len, blobs.codec, blobs.part, blobs.touched_at_ms "
            "FROM eventq.blobs WHERE (blobs.blob_id = erased_blobs.blob_id AND part = 0) "
            f"AND ({KEY.format('blobs')}) OFFSET 0) AS blobs "
            f"WHERE erasure_id = $3 AND ({KEY.format('erased_blobs')})",
            id="a condition is where its table is looked up",
        ),
        pytest.param(
            "SELECT turn_id FROM turns WHERE EXISTS "
            "(SELECT 1 FROM blobs b WHERE b.blob_id = turns.blob_id)",
            "SELECT turn_id FROM eventq.turns WHERE EXISTS(SELECT 1 FROM eventq.blobs AS b "
            f"WHERE b.blob_id = turns.blob_id AND ({KEY.format('b')}) OFFSET 0) "
            f"AND ({KEY.format('turns')})",
            id="EXISTS is no join",
        ),
        pytest.param(
            "DELETE FROM turns WHERE turn_id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
            "DELETE FROM eventq.turns WHERE turn_id = ANY(ARRAY(SELECT CAST(value AS BIGINT) FROM "
            "JSON_ARRAY_ELEMENTS_TEXT(CAST($3 AS JSON)) AS each1(value))) "
            f"AND ({KEY.format('turns')})",
            id="a list is looked up",
        ),
        pytest.param(
            "SELECT context_id FROM contexts WHERE context_id IN (SELECT scope_id FROM scopes)",
            "SELECT context_id FROM eventq.contexts WHERE (context_id IN (SELECT scope_id "
            f"FROM eventq.scopes WHERE {KEY.format('scopes')})) IS TRUE "
            f"AND ({KEY.format('contexts')})",
            id="many are hashed",
        ),
        pytest.param(
            "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
            "INSERT INTO eventq.settings (bucket, thread_id, name, value) "
            "VALUES ($1, $2, $3, $4) ON CONFLICT(bucket, thread_id, name) "
            "DO UPDATE SET value = excluded.value",
            id="a row is replaced",
        ),
    ],
)
def test_it_writes(sql: str, expected: str) -> None:
    """Each table is tied to the thread, and walked as it is written."""
    assert sqlgen.translate(sql, SCHEMA).text == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param(
            "INSERT INTO blob_bytes (blob_id, bytes) VALUES (?, ?)",
            "INSERT INTO eventq.blob_bytes (bucket, thread_id, blob_id, bytes) "
            "SELECT $1, $2, r.p3, r.p4 "
            "FROM UNNEST(CAST($3 AS BIGINT[]), CAST($4 AS BYTEA[])) AS r(p3, p4) WHERE TRUE",
            id="rows",
        ),
        pytest.param(
            "INSERT INTO blob_bytes (blob_id, bytes) SELECT blob_id, ?2 FROM blobs "
            "WHERE hash = ?1 ON CONFLICT (blob_id) DO NOTHING",
            "INSERT INTO eventq.blob_bytes (bucket, thread_id, blob_id, bytes) "
            "SELECT $1, $2, blob_id, r.p4 "
            "FROM UNNEST(CAST($3 AS BYTEA[]), CAST($4 AS BYTEA[])) AS r(p3, p4) "
            "CROSS JOIN LATERAL (SELECT blobs.* FROM eventq.blobs "
            f"WHERE hash = r.p3 AND ({KEY.format('blobs')}) OFFSET 0) AS blobs "
            "WHERE TRUE ON CONFLICT(bucket, thread_id, blob_id) DO NOTHING",
            id="each row is looked up",
        ),
        pytest.param(
            "INSERT INTO blobs (hash, raw_len, stored_len, codec, part, touched_at_ms) "
            "VALUES (?, ?, ?, ?, 0, ?)",
            "",
            id="each id follows from the one before",
        ),
        pytest.param(
            "UPDATE turns SET depth = ? WHERE turn_id = ?", "", id="each is changed alone"
        ),
    ],
)
def test_it_writes_one_statement_of_many(sql: str, expected: str) -> None:
    """Rows that need nothing of each other are stored by one statement."""
    assert sqlgen.translate(sql, SCHEMA, of_many=True).rows == expected


@pytest.mark.parametrize(
    ("sql", "advice"),
    [
        ("SELECT rowid FROM turns", "name a key"),
        ("SELECT total(stored_len) FROM blobs", "coalesce(sum(x), 0)"),
        ("SELECT group_concat(name) FROM contexts", "put it together in Python"),
        ("SELECT strftime('%s', 1) FROM turns", "pass the value as a parameter"),
        ("SELECT name FROM contexts WHERE name LIKE 'a%'", "filter in Python"),
        ("SELECT name FROM contexts WHERE name GLOB 'a*'", "filter in Python"),
        ("SELECT turn_id FROM turns WHERE flags & 1", "write … <> 0"),
        ("SELECT turn_id FROM turns WHERE depth < ? - 1", "CAST(? AS INTEGER)"),
        ("SELECT depth / ? FROM turns", "divide by a number"),
        ("SELECT name FROM contexts WHERE ? IS NULL", "CAST(? AS …) IS NULL"),
        ("SELECT name FROM contexts WHERE name IN scopes", "SELECT … FROM scopes"),
        ("INSERT INTO settings VALUES (?, ?)", "name them"),
        ("INSERT OR REPLACE INTO settings (value) VALUES (?)", "no key is given"),
        ("SELECT 1 FROM turns JOIN blobs USING (blob_id)", "write CROSS JOIN"),
        ("SELECT b.blob_id FROM turns CROSS JOIN blobs b USING (blob_id)", "leave b out"),
        ("SELECT 1 FROM nowhere", "no table of the memory"),
        ("PRAGMA user_version", "for tables"),
        ("SELECT 1; SELECT 2", "more than one statement"),
    ],
)
def test_it_refuses(sql: str, advice: str) -> None:
    """What only SQLite takes, or takes with another meaning, says what to write in its place."""
    with pytest.raises(sqlgen.UntranslatableError) as caught:
        sqlgen.translate(sql, SCHEMA)
    assert advice in str(caught.value)


MINE = KEY.format("t")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM eventq.turns AS t",
        "SELECT 1 FROM eventq.turns AS t WHERE t.thread_id = $2",
        f"SELECT 1 FROM eventq.turns AS t WHERE {MINE} OR t.depth = 0",
        f"SELECT 1 FROM eventq.turns AS t CROSS JOIN eventq.blobs AS b WHERE {MINE}",
        (
            "SELECT 1 FROM eventq.turns AS t CROSS JOIN LATERAL "
            f"(SELECT b.* FROM eventq.blobs AS b OFFSET 0) AS b WHERE {MINE}"
        ),
        f"SELECT (SELECT 1 FROM eventq.blobs AS b) FROM eventq.turns AS t WHERE {MINE}",
        "UPDATE eventq.turns AS t SET depth = 0 WHERE t.bucket = $1",
        "DELETE FROM eventq.turns AS t WHERE t.turn_id = $3",
        "INSERT INTO eventq.turns (thread_id, bucket) VALUES ($1, $2)",
        "INSERT INTO eventq.turns (bucket, thread_id) VALUES ($1, $3)",
        (
            "INSERT INTO eventq.settings (bucket, thread_id, name) VALUES ($1, $2, $3) "
            "ON CONFLICT (name) DO NOTHING"
        ),
        f"SELECT 1 FROM turns AS t WHERE {MINE}",
    ],
)
def test_it_proves(text: str) -> None:
    """A table that is not tied to the thread is found in the text that was written."""
    with pytest.raises(sqlgen.UntranslatableError):
        sqlgen.prove(text, SCHEMA)
