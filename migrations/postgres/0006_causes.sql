ALTER TABLE eventq.counters RENAME COLUMN schema_5 TO schema_6;
ALTER TABLE eventq.consumers RENAME COLUMN schema_5 TO schema_6;

-- As in SQLite's migration, where it stands what columns mean.
CREATE TABLE eventq.event_causes (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    event_id  bigint NOT NULL,
    place     text COLLATE "C" NOT NULL,
    cause     bigint NOT NULL,
    PRIMARY KEY (thread_id, event_id, place, cause, bucket)
);
CREATE INDEX event_causes_by_cause ON eventq.event_causes (thread_id, place, cause, event_id);

CREATE TABLE eventq.turn_causes (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    turn_id   bigint NOT NULL,
    place     text COLLATE "C" NOT NULL,
    cause     bigint NOT NULL,
    PRIMARY KEY (thread_id, turn_id, place, cause, bucket),
    FOREIGN KEY (thread_id, turn_id, bucket) REFERENCES eventq.turns ON DELETE CASCADE
);
CREATE INDEX turn_causes_by_cause ON eventq.turn_causes (thread_id, place, cause, turn_id);

-- As for the other tables: a statement is planned as if a thread had them for itself.
ALTER TABLE eventq.event_causes
    ALTER COLUMN bucket SET (n_distinct = 1),
    ALTER COLUMN thread_id SET (n_distinct = 1);
ALTER TABLE eventq.turn_causes
    ALTER COLUMN bucket SET (n_distinct = 1),
    ALTER COLUMN thread_id SET (n_distinct = 1);
