-- Consumers as work queues: how a consumer is run, who has which event, and what failed for good.

-- What older programs do not know of a subscription. One without a row runs its handler_cmd, which acks by itself.
CREATE TABLE consumer_settings (
    consumer_id     TEXT PRIMARY KEY,
    kind            TEXT NOT NULL CHECK (kind IN ('loop', 'each', 'pull')), -- handler_cmd of the last two is ':'
    command         TEXT, -- what 'each' runs
    directory       TEXT, -- where a handler runs; NULL: where the dispatch was started
    batch           INTEGER NOT NULL CHECK (batch >= 1),
    concurrency     INTEGER NOT NULL CHECK (concurrency >= 0), -- 0: in order, without claims
    ordered_by      TEXT,
    on_failure      TEXT CHECK (on_failure IN ('stall', 'dead')), -- NULL: stall in order, dead with claims
    backoff_ms      INTEGER NOT NULL,
    backoff_most_ms INTEGER NOT NULL,
    lease_ms        INTEGER NOT NULL,
    emit_dead       INTEGER NOT NULL,
    paused          INTEGER NOT NULL
) STRICT;

-- One row for each consumer that ever claimed, failed or was fenced; it outlives the subscription.
CREATE TABLE queues (
    queue_id    INTEGER PRIMARY KEY,
    consumer_id TEXT NOT NULL UNIQUE,
    frontier    INTEGER NOT NULL, -- the highest event that was examined for claims
    acked       INTEGER NOT NULL, -- the progress when claims last looked: another one is somebody's ack
    replay_from INTEGER, -- the lowest progress that somebody went back to since
    unfinished  INTEGER NOT NULL DEFAULT 0, -- how many rows of `unfinished` this queue has
    expires_at  INTEGER, -- ms: no lease ends before; NULL while nothing is leased
    seen_at     INTEGER NOT NULL DEFAULT 0, -- ms: no lease or wait began after; the clock was set back if it is behind
    stalled_at  INTEGER, -- the event whose failure stopped all claims
    fence       INTEGER NOT NULL DEFAULT 0, -- of the newest supervisor
    counted_at  INTEGER NOT NULL DEFAULT 0 -- the newest minute of `queue_counts`
) STRICT;

-- Events at or below the frontier that are not finished. All others up to there are.
CREATE TABLE unfinished (
    queue_id    INTEGER NOT NULL REFERENCES queues (queue_id),
    revived     INTEGER NOT NULL, -- 1: a dead letter that is tried again, outside the order
    event_id    INTEGER NOT NULL,
    state       INTEGER NOT NULL, -- 0 leased, 1 waits until due_at, 2 waits for its group, 3 stalled
    attempts    INTEGER NOT NULL,
    due_at      INTEGER NOT NULL, -- ms: the end of the lease or of the wait
    span_ms     INTEGER NOT NULL, -- the length of that: an end further away shows a clock that was set back
    since       INTEGER NOT NULL, -- ms: when it was leased
    token       BLOB, -- of the lease
    worker      TEXT, -- who holds the lease
    handler     TEXT, -- the worker's process and that of its handler, on which machine
    group_value TEXT,
    code        INTEGER, -- the exit code of the last failure
    error       TEXT,
    PRIMARY KEY (queue_id, revived, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX unfinished_by_time ON unfinished (queue_id, due_at) WHERE state = 1;
CREATE INDEX unfinished_by_group ON unfinished (queue_id, group_value, event_id) WHERE group_value IS NOT NULL;

CREATE TABLE dead_letters (
    queue_id INTEGER NOT NULL REFERENCES queues (queue_id),
    event_id INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    code     INTEGER,
    error    TEXT,
    died_at  INTEGER NOT NULL, -- ms
    PRIMARY KEY (queue_id, event_id)
) STRICT, WITHOUT ROWID;

-- What a claim gave under a nonce: the same nonce gets it again.
CREATE TABLE claim_nonces (
    queue_id INTEGER NOT NULL REFERENCES queues (queue_id),
    nonce    TEXT NOT NULL,
    token    BLOB NOT NULL,
    at       INTEGER NOT NULL, -- ms
    PRIMARY KEY (queue_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_counts (
    queue_id INTEGER NOT NULL REFERENCES queues (queue_id),
    minute   INTEGER NOT NULL, -- since 1970
    done     INTEGER NOT NULL,
    failed   INTEGER NOT NULL,
    dead     INTEGER NOT NULL,
    PRIMARY KEY (queue_id, minute)
) STRICT, WITHOUT ROWID;

-- Triggers, so that what another program does to a subscription, or an older one, has the same effect.

CREATE TRIGGER consumer_unsubscribed AFTER DELETE ON subscriptions BEGIN
    DELETE FROM consumer_settings WHERE consumer_id = OLD.consumer_id;
    UPDATE unfinished SET state = 1, due_at = 0, token = NULL
    WHERE state = 0 AND queue_id = (SELECT queue_id FROM queues WHERE consumer_id = OLD.consumer_id);
END;

-- A replay ends all leases and forgets what was done after the event that it goes back to.
CREATE TRIGGER progress_lowered AFTER UPDATE OF last_acked_id ON consumer_progress
WHEN NEW.last_acked_id < OLD.last_acked_id BEGIN
    UPDATE queues SET replay_from = coalesce(min(replay_from, NEW.last_acked_id), NEW.last_acked_id)
    WHERE consumer_id = NEW.consumer_id;
END;
CREATE TRIGGER progress_replaced AFTER INSERT ON consumer_progress BEGIN
    UPDATE queues SET replay_from = coalesce(min(replay_from, NEW.last_acked_id), NEW.last_acked_id)
    WHERE consumer_id = NEW.consumer_id AND NEW.last_acked_id < acked;
END;
