-- The thread of the original `thread` command, column for column, so that its tools read and write
-- it. A thread that such a tool made has these tables already, and two indexes on events. eventq
-- makes no index there: a consumer reads what is new, by rowid, and an index would halve the speed
-- of a push. Everything else that eventq keeps is in tables beside these, in the next file.
CREATE TABLE IF NOT EXISTS events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    source     TEXT NOT NULL,
    type       TEXT NOT NULL,
    subtype    TEXT,
    content    TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS subscriptions (
    consumer_id TEXT NOT NULL,
    handler_cmd TEXT NOT NULL,
    filter      TEXT,
    PRIMARY KEY (consumer_id)
);

CREATE TABLE IF NOT EXISTS consumer_progress (
    consumer_id   TEXT NOT NULL PRIMARY KEY,
    last_acked_id INTEGER NOT NULL DEFAULT 0,
    updated_at    TEXT NOT NULL
);
