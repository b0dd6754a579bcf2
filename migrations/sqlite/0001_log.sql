-- The event log. The first three tables are those of the `thread` command, column for column, so that its tools read
-- and write them; everything else eventq knows lies in tables beside them. There are no indexes on events: a consumer
-- reads what is new, by rowid, and an index would halve the speed of a push.
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
-- A push with a key: the key names the event, for as long as the event is kept.
CREATE TABLE event_keys (
    key      TEXT NOT NULL PRIMARY KEY,
    event_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX event_keys_by_event ON event_keys (event_id);
-- How a subscription is run, and what its supervisor learnt. Attempts and a stall hold for one acked id only; the
-- watermark is a fact: no event with scanned_after < id <= scanned_id matches scanned_filter.
CREATE TABLE subscription_state (
    consumer_id    TEXT NOT NULL PRIMARY KEY,
    max_attempts   INTEGER NOT NULL DEFAULT 5,
    timeout        REAL,
    attempts       INTEGER NOT NULL DEFAULT 0,
    attempts_at    INTEGER NOT NULL DEFAULT 0,
    stalled        TEXT,
    stalled_at     INTEGER NOT NULL DEFAULT 0,
    scanned_after  INTEGER NOT NULL DEFAULT 0,
    scanned_id     INTEGER NOT NULL DEFAULT 0,
    scanned_filter TEXT
) WITHOUT ROWID;
