-- The memory, in the tables of SQLite's migrations, where it stands what columns mean;
-- `scope_counters` is `counters` there. Each has the key of the thread, (bucket, thread_id). Indexes
-- lead with thread_id, and the bucket is the last column of keys: with both in front, a server that
-- knows nothing of a table takes the rows of a thread for one, and reads all of them for each.
--
-- Their statements are generated from SQLite's: scripts/sqlgen.py. Ids count from 1 in each thread,
-- without gaps: a write holds the row of its thread. Those that are given once only are counted in
-- that row, as SQLite's AUTOINCREMENT does; the others follow the highest one there is. The three
-- triggers are SQLite's.

CREATE FUNCTION eventq.day_of(bigint) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT to_char(timestamp 'epoch' + $1 * interval '1 ms', 'YYYY-MM-DD') $$;

CREATE TABLE eventq.blobs (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    blob_id       bigint NOT NULL,
    hash          bytea NOT NULL CHECK (length(hash) = 32),
    raw_len       bigint NOT NULL CHECK (raw_len BETWEEN 0 AND 4294967295),
    stored_len    bigint NOT NULL CHECK (stored_len BETWEEN 0 AND raw_len),
    codec         bigint NOT NULL CHECK (codec BETWEEN 0 AND 3),
    part          bigint NOT NULL DEFAULT 0,
    touched_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, blob_id, bucket),
    UNIQUE (thread_id, hash, bucket)
);

CREATE TABLE eventq.blob_bytes (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    blob_id   bigint NOT NULL,
    bytes     bytea NOT NULL,
    PRIMARY KEY (thread_id, blob_id, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs ON DELETE CASCADE
);

CREATE TABLE eventq.blob_parts (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    blob_id   bigint NOT NULL,
    position  bigint NOT NULL,
    part_id   bigint NOT NULL,
    PRIMARY KEY (thread_id, blob_id, position, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs ON DELETE CASCADE,
    FOREIGN KEY (thread_id, part_id, bucket) REFERENCES eventq.blobs
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX blob_parts_by_part ON eventq.blob_parts (thread_id, part_id);

CREATE TABLE eventq.blob_refs (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    blob_id   bigint NOT NULL,
    ref_id    bigint NOT NULL,
    PRIMARY KEY (thread_id, blob_id, ref_id, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs ON DELETE CASCADE,
    FOREIGN KEY (thread_id, ref_id, bucket) REFERENCES eventq.blobs
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX blob_refs_by_ref ON eventq.blob_refs (thread_id, ref_id, blob_id);

CREATE TABLE eventq.pins (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    name          text COLLATE "C" NOT NULL,
    blob_id       bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, name, blob_id, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs
);
CREATE INDEX pins_by_blob ON eventq.pins (thread_id, blob_id);

CREATE TABLE eventq.blob_names (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    sha256    bytea NOT NULL CHECK (length(sha256) = 32),
    blob_id   bigint NOT NULL,
    PRIMARY KEY (thread_id, sha256, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs ON DELETE CASCADE
);
CREATE INDEX blob_names_by_blob ON eventq.blob_names (thread_id, blob_id);

CREATE TABLE eventq.turns (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    turn_id       bigint NOT NULL,
    parent_id     bigint,
    depth         bigint NOT NULL CHECK (depth BETWEEN 0 AND 4294967295),
    jump_id       bigint,
    jump_depth    bigint,
    type_id       text COLLATE "C" NOT NULL,
    type_version  bigint NOT NULL,
    type_tag      bigint,
    encoding      bigint NOT NULL,
    canonical     text COLLATE "C",
    blob_id       bigint NOT NULL,
    flags         bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, turn_id, bucket),
    FOREIGN KEY (thread_id, parent_id, bucket) REFERENCES eventq.turns,
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs,
    CHECK (parent_id < turn_id),
    CHECK (
        (parent_id IS NULL) = (depth = 0)
        AND (jump_id IS NULL) = (depth = 0)
        AND (jump_depth IS NULL) = (depth = 0)
    )
);
CREATE INDEX turns_by_parent ON eventq.turns (thread_id, parent_id, blob_id);
CREATE INDEX turns_by_blob ON eventq.turns (thread_id, blob_id);

CREATE TABLE eventq.turn_patches (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    seq           bigint NOT NULL,
    turn_id       bigint NOT NULL,
    blob_id       bigint,
    flags         bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, seq, bucket),
    FOREIGN KEY (thread_id, turn_id, bucket) REFERENCES eventq.turns ON DELETE CASCADE,
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs
);
CREATE INDEX turn_patches_by_turn ON eventq.turn_patches (thread_id, turn_id, seq);
CREATE INDEX turn_patches_by_blob ON eventq.turn_patches (thread_id, blob_id);

CREATE TABLE eventq.turn_roots (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    turn_id   bigint NOT NULL,
    root      bytea NOT NULL CHECK (length(root) = 32),
    PRIMARY KEY (thread_id, turn_id, bucket),
    FOREIGN KEY (thread_id, turn_id, bucket) REFERENCES eventq.turns ON DELETE CASCADE
);
CREATE INDEX turn_roots_by_root ON eventq.turn_roots (thread_id, root);

CREATE TABLE eventq.contexts (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    context_id    bigint NOT NULL,
    name          text COLLATE "C",
    head_id       bigint,
    base_id       bigint,
    fork_of       bigint,
    version       bigint NOT NULL DEFAULT 0,
    flags         bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    scope_id      bigint,
    PRIMARY KEY (thread_id, context_id, bucket),
    UNIQUE (thread_id, name, bucket),
    FOREIGN KEY (thread_id, head_id, bucket) REFERENCES eventq.turns,
    FOREIGN KEY (thread_id, base_id, bucket) REFERENCES eventq.turns ON DELETE SET NULL (base_id),
    FOREIGN KEY (thread_id, fork_of, bucket) REFERENCES eventq.contexts
        ON DELETE SET NULL (fork_of)
);
CREATE INDEX contexts_by_head ON eventq.contexts (thread_id, head_id);
CREATE INDEX contexts_by_base ON eventq.contexts (thread_id, base_id);
CREATE INDEX contexts_by_fork ON eventq.contexts (thread_id, fork_of);

CREATE TABLE eventq.context_log (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    context_id bigint NOT NULL,
    version    bigint NOT NULL,
    op         text COLLATE "C" NOT NULL,
    old_id     bigint,
    new_id     bigint,
    at_ms      bigint NOT NULL,
    PRIMARY KEY (thread_id, context_id, version, bucket)
);

CREATE TABLE eventq.turn_keys (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    number        bigint NOT NULL,
    context_id    bigint NOT NULL,
    key           text COLLATE "C" NOT NULL,
    turn_id       bigint NOT NULL,
    digest        bytea NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, number, bucket),
    UNIQUE (thread_id, context_id, key, bucket)
);

CREATE TABLE eventq.open_turns (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    open_id       bigint NOT NULL,
    context_id    bigint NOT NULL,
    type_id       text COLLATE "C" NOT NULL,
    type_version  bigint NOT NULL,
    encoding      bigint NOT NULL,
    size          bigint NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, open_id, bucket),
    FOREIGN KEY (thread_id, context_id, bucket) REFERENCES eventq.contexts
);
CREATE INDEX open_turns_by_context ON eventq.open_turns (thread_id, context_id);

CREATE TABLE eventq.open_pieces (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    open_id   bigint NOT NULL,
    position  bigint NOT NULL,
    bytes     bytea NOT NULL,
    PRIMARY KEY (thread_id, open_id, position, bucket),
    FOREIGN KEY (thread_id, open_id, bucket) REFERENCES eventq.open_turns ON DELETE CASCADE
);

CREATE TABLE eventq.runs (
    bucket          smallint NOT NULL,
    thread_id       bigint NOT NULL,
    context_id      bigint NOT NULL,
    name            text COLLATE "C" NOT NULL,
    grouped         text COLLATE "C" NOT NULL,
    status          text COLLATE "C" NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'suspended', 'completed', 'cancelled')),
    start_id        bigint NOT NULL,
    completed_at_ms bigint,
    completed_on    text COLLATE "C"
        GENERATED ALWAYS AS (eventq.day_of(completed_at_ms)) STORED,
    source          text COLLATE "C",
    PRIMARY KEY (thread_id, context_id, bucket),
    FOREIGN KEY (thread_id, context_id, bucket) REFERENCES eventq.contexts ON DELETE CASCADE,
    FOREIGN KEY (thread_id, start_id, bucket) REFERENCES eventq.turns,
    CHECK ((status = 'completed') = (completed_at_ms IS NOT NULL))
);
CREATE INDEX runs_by_start ON eventq.runs (thread_id, start_id);
CREATE INDEX runs_active ON eventq.runs (thread_id, context_id)
    WHERE status IN ('active', 'suspended');
CREATE INDEX runs_by_day ON eventq.runs (thread_id, completed_on, context_id)
    WHERE completed_on IS NOT NULL;

CREATE TABLE eventq.run_attempts (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    attempt_id    bigint NOT NULL,
    parent_id     bigint NOT NULL,
    blob_id       bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, attempt_id, bucket),
    FOREIGN KEY (thread_id, parent_id, bucket) REFERENCES eventq.turns ON DELETE CASCADE,
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs
);
CREATE INDEX run_attempts_by_parent ON eventq.run_attempts (thread_id, parent_id);
CREATE INDEX run_attempts_by_blob ON eventq.run_attempts (thread_id, blob_id);

CREATE TABLE eventq.run_changes (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    change_id bigint NOT NULL,
    run_id    bigint NOT NULL,
    op        text COLLATE "C" NOT NULL,
    grouped   text COLLATE "C",
    PRIMARY KEY (thread_id, change_id, bucket),
    UNIQUE (thread_id, run_id, bucket)
);

CREATE TABLE eventq.scopes (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    scope_id      bigint NOT NULL CHECK (scope_id > 0),
    name          text COLLATE "C",
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, scope_id, bucket),
    UNIQUE (thread_id, name, bucket)
);

CREATE TABLE eventq.scope_counters (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    scope_id  bigint NOT NULL,
    name      text COLLATE "C" NOT NULL,
    next      bigint NOT NULL CHECK (next >= 0),
    PRIMARY KEY (thread_id, scope_id, name, bucket)
);

CREATE TABLE eventq.artifacts (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    artifact_id   bigint NOT NULL,
    scope_id      bigint NOT NULL DEFAULT 0,
    number        bigint NOT NULL DEFAULT 0,
    tool          text COLLATE "C" NOT NULL,
    status        text COLLATE "C" NOT NULL CHECK (status IN ('open', 'sealed', 'failed')),
    owner         text COLLATE "C",
    size          bigint NOT NULL DEFAULT 0,
    lines         bigint NOT NULL DEFAULT 0,
    hash          bytea,
    error         text COLLATE "C",
    created_at_ms bigint NOT NULL,
    ended_at_ms   bigint,
    PRIMARY KEY (thread_id, artifact_id, bucket),
    CHECK (artifact_id >= 0),
    CHECK ((status = 'open') = (ended_at_ms IS NULL) AND (status = 'sealed') = (hash IS NOT NULL))
);
CREATE UNIQUE INDEX artifacts_by_number ON eventq.artifacts (thread_id, scope_id, number, bucket);
CREATE INDEX artifacts_by_size ON eventq.artifacts (thread_id, scope_id, size, tool);

CREATE TABLE eventq.removed_artifacts (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    scope_id      bigint NOT NULL,
    number        bigint NOT NULL,
    removed_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, scope_id, number, bucket)
);

CREATE TABLE eventq.artifact_chunks (
    bucket      smallint NOT NULL,
    thread_id   bigint NOT NULL,
    artifact_id bigint NOT NULL,
    position    bigint NOT NULL,
    newlines    bigint NOT NULL,
    bytes       bytea NOT NULL,
    PRIMARY KEY (thread_id, artifact_id, position, bucket),
    FOREIGN KEY (thread_id, artifact_id, bucket) REFERENCES eventq.artifacts ON DELETE CASCADE
);
CREATE INDEX artifact_chunks_by_line
    ON eventq.artifact_chunks (thread_id, artifact_id, newlines, position);

CREATE TABLE eventq.agent_outputs (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    scope_id      bigint NOT NULL,
    output_id     text COLLATE "C" NOT NULL,
    version       bigint NOT NULL CHECK (version >= 1),
    blob_id       bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, scope_id, output_id, version, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs
);
CREATE INDEX agent_outputs_by_blob ON eventq.agent_outputs (thread_id, blob_id);

CREATE TABLE eventq.files (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    scope_id  bigint NOT NULL,
    path      text COLLATE "C" NOT NULL CHECK (path <> ''),
    number    bigint,
    output    text COLLATE "C",
    version   bigint,
    blob_id   bigint,
    PRIMARY KEY (thread_id, scope_id, path, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs,
    CHECK (num_nonnulls(number, output, blob_id) = 1),
    CHECK ((output IS NULL) = (version IS NULL))
);
CREATE INDEX files_by_blob ON eventq.files (thread_id, blob_id);

CREATE TABLE eventq.sessions (
    bucket        smallint NOT NULL,
    thread_id     bigint NOT NULL,
    session_id    bigint NOT NULL,
    name          text COLLATE "C" NOT NULL,
    generation    bigint NOT NULL,
    tool          text COLLATE "C" NOT NULL,
    place         text COLLATE "C",
    size          bigint NOT NULL DEFAULT 0,
    digest        bytea NOT NULL,
    lines         bigint NOT NULL DEFAULT 0,
    settled       bigint,
    missing       text COLLATE "C",
    owner         text COLLATE "C",
    path          text COLLATE "C",
    started_by    text COLLATE "C",
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (thread_id, session_id, bucket),
    UNIQUE (thread_id, name, generation, bucket)
);
CREATE INDEX sessions_by_owner ON eventq.sessions (thread_id, owner)
    WHERE owner IS NOT NULL;

CREATE TABLE eventq.session_lines (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    session_id bigint NOT NULL,
    position   bigint NOT NULL,
    blob_id    bigint NOT NULL,
    form       bigint NOT NULL,
    before     bytea NOT NULL,
    after      bytea NOT NULL,
    is_node    bigint NOT NULL,
    entry      text COLLATE "C",
    parent     text COLLATE "C",
    kind       bigint NOT NULL,
    response   text COLLATE "C",
    agent      text COLLATE "C",
    turn_id    bigint,
    PRIMARY KEY (thread_id, session_id, position, bucket),
    FOREIGN KEY (thread_id, session_id, bucket) REFERENCES eventq.sessions ON DELETE CASCADE,
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs,
    FOREIGN KEY (thread_id, turn_id, bucket) REFERENCES eventq.turns
);
CREATE INDEX session_lines_by_entry ON eventq.session_lines (thread_id, session_id, entry)
    WHERE entry IS NOT NULL;
CREATE INDEX session_lines_by_blob ON eventq.session_lines (thread_id, blob_id);
CREATE INDEX session_lines_by_turn ON eventq.session_lines (thread_id, turn_id);

CREATE TABLE eventq.session_tips (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    context_id bigint NOT NULL,
    session_id bigint NOT NULL,
    turn_id    bigint NOT NULL,
    PRIMARY KEY (thread_id, context_id, bucket),
    FOREIGN KEY (thread_id, context_id, bucket) REFERENCES eventq.contexts ON DELETE CASCADE,
    FOREIGN KEY (thread_id, session_id, bucket) REFERENCES eventq.sessions ON DELETE CASCADE
);
CREATE INDEX session_tips_by_session ON eventq.session_tips (thread_id, session_id);

CREATE TABLE eventq.settings (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    name      text COLLATE "C" NOT NULL,
    value     text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, name, bucket)
);

CREATE TABLE eventq.erasures (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    erasure_id bigint NOT NULL,
    kind       text COLLATE "C" NOT NULL
        CHECK (kind IN ('artifact', 'blob', 'event', 'prune', 'turn')),
    name       text COLLATE "C" NOT NULL,
    reason     text COLLATE "C",
    at_ms      bigint NOT NULL,
    finished   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (thread_id, erasure_id, bucket),
    UNIQUE (thread_id, kind, name, bucket)
);

CREATE TABLE eventq.erased_blobs (
    bucket     smallint NOT NULL,
    thread_id  bigint NOT NULL,
    blob_id    bigint NOT NULL,
    erasure_id bigint NOT NULL,
    PRIMARY KEY (thread_id, blob_id, bucket),
    FOREIGN KEY (thread_id, blob_id, bucket) REFERENCES eventq.blobs ON DELETE CASCADE,
    FOREIGN KEY (thread_id, erasure_id, bucket) REFERENCES eventq.erasures
);
CREATE INDEX erased_blobs_by_erasure ON eventq.erased_blobs (thread_id, erasure_id);;

CREATE INDEX artifacts_open ON eventq.artifacts (thread_id, artifact_id)
    WHERE status = 'open';
CREATE INDEX event_blob_refs_by_hash ON eventq.event_blob_refs (thread_id, hash);

CREATE FUNCTION eventq.turn_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a turn is immutable' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER turns_are_immutable BEFORE UPDATE ON eventq.turns
    FOR EACH ROW EXECUTE FUNCTION eventq.turn_changed();

CREATE FUNCTION eventq.run_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO eventq.run_changes (bucket, thread_id, change_id, run_id, op, grouped)
    VALUES (
        OLD.bucket, OLD.thread_id,
        (
            SELECT coalesce(max(change_id), 0) + 1
            FROM eventq.run_changes
            WHERE bucket = OLD.bucket AND thread_id = OLD.thread_id
        ),
        OLD.context_id, 'remove', OLD.grouped
    )
    ON CONFLICT (bucket, thread_id, run_id) DO UPDATE SET
        change_id = excluded.change_id, op = excluded.op, grouped = excluded.grouped;
    RETURN NULL;
END $$;
CREATE TRIGGER run_removed AFTER DELETE ON eventq.runs
    FOR EACH ROW EXECUTE FUNCTION eventq.run_removed();

CREATE FUNCTION eventq.blob_is_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM eventq.erased_blobs
    WHERE bucket = NEW.bucket AND thread_id = NEW.thread_id AND blob_id = NEW.blob_id;
    RETURN NULL;
END $$;
CREATE TRIGGER blob_is_back AFTER UPDATE OF codec ON eventq.blobs
    FOR EACH ROW WHEN (OLD.codec = 3 AND NEW.codec <> 3)
    EXECUTE FUNCTION eventq.blob_is_back();

-- A statement is planned once for all threads. By an average over small ones, an index of the thread
-- alone would do; so each is planned for as if it had the tables for itself.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT attrelid::regclass AS place, attname AS name
        FROM pg_attribute a
            JOIN pg_class c ON c.oid = a.attrelid
        WHERE relnamespace = 'eventq'::regnamespace
            AND relkind IN ('r', 'p')
            AND attname IN ('bucket', 'thread_id')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET (n_distinct = 1)', one.place, one.name);
    END LOOP;
END $$;

-- The last id of each table whose ids are given once only, as a JSON object.
ALTER TABLE eventq.counters ADD COLUMN last_ids text COLLATE "C";
ALTER TABLE eventq.counters RENAME COLUMN schema_4 TO schema_5;
ALTER TABLE eventq.consumers RENAME COLUMN schema_4 TO schema_5;
