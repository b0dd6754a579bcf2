-- The log of events and its consumers, for PostgreSQL 15 and later. One schema holds all threads of
-- a database.
--
-- Every table leads with (bucket, thread_id), and every statement names both: distributed or
-- partitioned by bucket, it touches one partition. There are no triggers, no session state and no
-- advisory locks. Text is COLLATE "C", which is SQLite's BINARY. Content is bytea, as text may hold
-- NUL and PostgreSQL's may not.
CREATE SCHEMA IF NOT EXISTS eventq;

CREATE TABLE eventq.migrations (
    number     int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- bucket is the first byte of BLAKE3("<tenant>\0<name>"). A thread_id is tenant << 32 plus 31
-- random bits, and is never used again. Nothing refers to this table by a foreign key: its checks
-- would lock a row at every push.
CREATE TABLE eventq.threads (
    bucket     smallint NOT NULL CHECK (bucket BETWEEN 0 AND 255),
    thread_id  bigint NOT NULL,
    tenant     int NOT NULL DEFAULT 0 CHECK (thread_id >> 32 = tenant),
    name       text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bucket, thread_id),
    UNIQUE (bucket, tenant, name)
);

-- The point at which a thread's changes meet: the row is locked from the number of an event to its
-- commit, so numbers have no gaps and become visible in order. No index on what a push changes, and
-- room in the page: its updates are HOT.
CREATE TABLE eventq.counters (
    bucket      smallint NOT NULL,
    thread_id   bigint NOT NULL,
    last_event  bigint NOT NULL DEFAULT 0,
    awake_until bigint NOT NULL DEFAULT 0, -- ms since 1970: until then, somebody waits for notices
    PRIMARY KEY (bucket, thread_id)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE eventq.events (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    id         bigint NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    source     text COLLATE "C" NOT NULL,
    type       text COLLATE "C" NOT NULL,
    subtype    text COLLATE "C",
    content    bytea NOT NULL,
    PRIMARY KEY (bucket, thread_id, id)
);

-- The row of a key is the proof of an earlier push, also of one whose answer was lost.
CREATE TABLE eventq.event_keys (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    key       text COLLATE "C" NOT NULL,
    event_id  bigint NOT NULL,
    PRIMARY KEY (bucket, thread_id, key)
);
CREATE INDEX event_keys_by_event ON eventq.event_keys (bucket, thread_id, event_id);

CREATE TABLE eventq.event_blob_refs (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    event_id  bigint NOT NULL,
    hash      bytea NOT NULL,
    PRIMARY KEY (bucket, thread_id, event_id, hash)
);

-- One row for each consumer that there ever was: its subscription, its progress, its queue, and who
-- runs its handler. All times are ms since 1970 by the clock of the server.
CREATE TABLE eventq.consumers (
    bucket          smallint NOT NULL,
    thread_id       bigint NOT NULL,
    consumer        text COLLATE "C" NOT NULL,
    position        bigint, -- the order of subscriptions; NULL: unsubscribed, with its progress
    revision        bigint NOT NULL DEFAULT 0, -- grows with each change that may make it due
    -- the subscription
    handler         text COLLATE "C" NOT NULL DEFAULT ':',
    filter          text COLLATE "C",
    max_attempts    bigint NOT NULL DEFAULT 5,
    timeout         double precision,
    kind            text COLLATE "C" NOT NULL DEFAULT 'loop'
        CHECK (kind IN ('loop', 'each', 'pull')),
    command         text COLLATE "C",
    directory       text COLLATE "C",
    batch           bigint NOT NULL DEFAULT 1,
    concurrency     bigint NOT NULL DEFAULT 0,
    ordered_by      text COLLATE "C",
    on_failure      text COLLATE "C",
    backoff_ms      bigint NOT NULL DEFAULT 1000,
    backoff_most_ms bigint NOT NULL DEFAULT 600000,
    lease_ms        bigint NOT NULL DEFAULT 30000,
    emit_dead       boolean NOT NULL DEFAULT false,
    paused          boolean NOT NULL DEFAULT false,
    -- its progress; NULL: it has acked nothing yet
    acked           bigint,
    updated_at      text COLLATE "C",
    -- the runs of its handler
    attempts        bigint NOT NULL DEFAULT 0,
    attempts_at     bigint NOT NULL DEFAULT 0,
    stalled         text COLLATE "C",
    stalled_at      bigint NOT NULL DEFAULT 0,
    scanned_after   bigint NOT NULL DEFAULT 0,
    scanned_id      bigint NOT NULL DEFAULT 0,
    scanned_filter  text COLLATE "C",
    -- its queue; frontier NULL: it never claimed
    frontier        bigint, -- the highest event that was examined for claims
    finished        bigint NOT NULL DEFAULT 0, -- the progress when claims last looked
    replay_from     bigint, -- the lowest progress that somebody went back to since
    unfinished      bigint NOT NULL DEFAULT 0, -- rows of `unfinished`
    expires_at      bigint, -- no lease ends before; NULL while nothing is leased
    seen_at         bigint NOT NULL DEFAULT 0, -- no lease or wait began later
    blocked_at      bigint, -- the event whose failure stopped all claims
    counted_at      bigint NOT NULL DEFAULT 0, -- the newest minute of `queue_counts`
    -- who supervises it
    fence           bigint NOT NULL DEFAULT 0,
    owner           text COLLATE "C", -- NULL: nobody, and nobody was lost
    process         text COLLATE "C", -- the owner's and its handler's, on which machine
    owned_until     bigint NOT NULL DEFAULT 0,
    worked_until    bigint NOT NULL DEFAULT 0, -- until then, a worker looks after it
    PRIMARY KEY (bucket, thread_id, consumer)
) WITH (fillfactor = 50);

-- Events at or below the frontier that are not finished. All others up to there are.
CREATE TABLE eventq.unfinished (
    bucket      smallint NOT NULL,
    thread_id   bigint NOT NULL,
    consumer    text COLLATE "C" NOT NULL,
    revived     smallint NOT NULL, -- 1: a dead letter that is tried again, outside the order
    event_id    bigint NOT NULL,
    state       smallint NOT NULL, -- 0 leased, 1 until due_at, 2 until its group is free, 3 stalled
    attempts    bigint NOT NULL,
    uncounted   bigint NOT NULL DEFAULT 0, -- attempts that only make the next wait longer
    due_at      bigint NOT NULL, -- the end of the lease or of the wait
    span_ms     bigint NOT NULL, -- its length: an end further away shows a clock that was set back
    since       bigint NOT NULL DEFAULT 0, -- when it was leased
    token       bytea, -- of the lease
    worker      text COLLATE "C", -- who holds the lease
    handler     text COLLATE "C", -- the worker's process and that of its handler, on which machine
    group_value text COLLATE "C",
    code        bigint, -- the exit code of the last failure
    error       text COLLATE "C",
    PRIMARY KEY (bucket, thread_id, consumer, revived, event_id)
) WITH (fillfactor = 70);
CREATE INDEX unfinished_by_time
    ON eventq.unfinished (bucket, thread_id, consumer, due_at)
    WHERE state = 1;
CREATE INDEX unfinished_by_group
    ON eventq.unfinished (bucket, thread_id, consumer, group_value, event_id)
    WHERE group_value IS NOT NULL;

CREATE TABLE eventq.dead_letters (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    consumer  text COLLATE "C" NOT NULL,
    event_id  bigint NOT NULL,
    attempts  bigint NOT NULL,
    code      bigint,
    error     text COLLATE "C",
    died_at   bigint NOT NULL,
    PRIMARY KEY (bucket, thread_id, consumer, event_id)
);

-- What a claim gave under a nonce: the same nonce gets it again.
CREATE TABLE eventq.claim_nonces (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    consumer  text COLLATE "C" NOT NULL,
    nonce     text COLLATE "C" NOT NULL,
    token     bytea NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (bucket, thread_id, consumer, nonce)
);

CREATE TABLE eventq.queue_counts (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    consumer  text COLLATE "C" NOT NULL,
    minute    bigint NOT NULL, -- since 1970
    done      bigint NOT NULL,
    failed    bigint NOT NULL,
    dead      bigint NOT NULL,
    PRIMARY KEY (bucket, thread_id, consumer, minute)
) WITH (fillfactor = 50);
