ALTER TABLE eventq.counters RENAME COLUMN schema_6 TO schema_7;
ALTER TABLE eventq.consumers RENAME COLUMN schema_6 TO schema_7;

-- As in SQLite's migration, where it stands what columns mean.
CREATE TABLE eventq.usage (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    turn_id    bigint NOT NULL,
    response   bigint NOT NULL,
    session_id bigint,
    context_id bigint,
    agent      bigint NOT NULL,
    at_ms      bigint NOT NULL,
    model      text COLLATE "C" NOT NULL,
    out        bigint NOT NULL,
    fresh      bigint NOT NULL,
    cached     bigint NOT NULL,
    PRIMARY KEY (thread_id, turn_id, response, bucket),
    FOREIGN KEY (thread_id, turn_id, bucket) REFERENCES eventq.turns ON DELETE CASCADE,
    FOREIGN KEY (thread_id, session_id, bucket) REFERENCES eventq.sessions ON DELETE CASCADE
);
CREATE INDEX usage_by_response ON eventq.usage (thread_id, response) WHERE response <> 0;
CREATE INDEX usage_by_session ON eventq.usage (thread_id, session_id, turn_id)
    WHERE session_id IS NOT NULL;
CREATE INDEX usage_by_context ON eventq.usage (thread_id, context_id, response)
    WHERE context_id IS NOT NULL;
CREATE INDEX usage_by_time ON eventq.usage (thread_id, at_ms)
    INCLUDE (out, fresh, cached, model, bucket);

CREATE TABLE eventq.usage_read (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    session_id bigint NOT NULL,
    lines      bigint NOT NULL,
    PRIMARY KEY (thread_id, session_id, bucket),
    FOREIGN KEY (thread_id, session_id, bucket) REFERENCES eventq.sessions ON DELETE CASCADE
);

INSERT INTO eventq.settings (bucket, thread_id, name, value)
SELECT bucket, thread_id, 'usage.looked', '0 -1 ' || (
    SELECT max(turn_id)
    FROM eventq.turns r
    WHERE r.bucket = t.bucket AND r.thread_id = t.thread_id
)
FROM eventq.threads t
WHERE EXISTS (SELECT 1 FROM eventq.turns r WHERE r.bucket = t.bucket AND r.thread_id = t.thread_id);

-- As for the other tables: a statement is planned as if a thread had them for itself.
ALTER TABLE eventq.usage
    ALTER COLUMN bucket SET (n_distinct = 1),
    ALTER COLUMN thread_id SET (n_distinct = 1);
ALTER TABLE eventq.usage_read
    ALTER COLUMN bucket SET (n_distinct = 1),
    ALTER COLUMN thread_id SET (n_distinct = 1);
