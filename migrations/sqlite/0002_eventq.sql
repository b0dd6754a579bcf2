-- What eventq keeps beside the tables of the original `thread` command, by area. Ids that are u64
-- outside are signed here. A column that ends in _ms, or has no other unit, holds milliseconds
-- since 1970.

-- ---- The log: keys, and how subscriptions are run -----------------------------------------------

-- A push with a key: the key names the event for as long as the event is kept.
CREATE TABLE event_keys (
    key      TEXT NOT NULL PRIMARY KEY,
    event_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX event_keys_by_event ON event_keys (event_id);

-- How a subscription is run, and what its supervisor learnt. Attempts and a stall hold for one
-- acked id only. The watermark is a fact: no event with scanned_after < id <= scanned_id matches
-- scanned_filter.
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

-- What the original tool does not know of a subscription. One without a row runs its handler_cmd,
-- which acks by itself.
CREATE TABLE consumer_settings (
    consumer_id     TEXT PRIMARY KEY,
    kind            TEXT NOT NULL
        CHECK (kind IN ('loop', 'each', 'pull')), -- handler_cmd of the last two is ':'
    command         TEXT, -- what 'each' runs
    directory       TEXT, -- where a handler runs; NULL: where the dispatch was started
    batch           INTEGER NOT NULL CHECK (batch >= 1),
    concurrency     INTEGER NOT NULL CHECK (concurrency >= 0), -- 0: in order, without claims
    ordered_by      TEXT,
    on_failure      TEXT
        CHECK (on_failure IN ('stall', 'dead')), -- NULL: stall in order, dead with claims
    backoff_ms      INTEGER NOT NULL,
    backoff_most_ms INTEGER NOT NULL,
    lease_ms        INTEGER NOT NULL,
    emit_dead       INTEGER NOT NULL,
    paused          INTEGER NOT NULL
) STRICT;

-- ---- The queue: who has which event, and what failed for good -----------------------------------

-- One row for each consumer that ever claimed, failed or was fenced; it outlives the subscription.
CREATE TABLE queues (
    queue_id    INTEGER PRIMARY KEY,
    consumer_id TEXT NOT NULL UNIQUE,
    frontier    INTEGER NOT NULL, -- the highest event that was examined for claims
    acked       INTEGER NOT NULL, -- the progress when claims last looked: another is somebody's ack
    replay_from INTEGER, -- the lowest progress that somebody went back to since
    unfinished  INTEGER NOT NULL DEFAULT 0, -- how many rows of `unfinished` this queue has
    expires_at  INTEGER, -- no lease ends before; NULL while nothing is leased
    seen_at     INTEGER NOT NULL DEFAULT 0, -- no lease or wait began later; if now is earlier, the
                                            -- clock was set back
    stalled_at  INTEGER, -- the event whose failure stopped all claims
    fence       INTEGER NOT NULL DEFAULT 0, -- of the newest supervisor
    counted_at  INTEGER NOT NULL DEFAULT 0 -- the newest minute of `queue_counts`
) STRICT;

-- Events at or below the frontier that are not finished. All others up to there are.
CREATE TABLE unfinished (
    queue_id    INTEGER NOT NULL REFERENCES queues (queue_id),
    revived     INTEGER NOT NULL, -- 1: a dead letter that is tried again, outside the order
    event_id    INTEGER NOT NULL,
    state       INTEGER NOT NULL, -- 0 leased, 1 until due_at, 2 until its group is free, 3 stalled
    attempts    INTEGER NOT NULL,
    uncounted   INTEGER NOT NULL DEFAULT 0, -- attempts that only make the next wait longer
    due_at      INTEGER NOT NULL, -- the end of the lease or of the wait
    span_ms     INTEGER NOT NULL, -- its length: if the end is further away, the clock was set back
    since       INTEGER NOT NULL, -- when it was leased
    token       BLOB, -- of the lease
    worker      TEXT, -- who holds the lease
    handler     TEXT, -- the worker's process and that of its handler, on which machine
    group_value TEXT,
    code        INTEGER, -- the exit code of the last failure
    error       TEXT,
    PRIMARY KEY (queue_id, revived, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX unfinished_by_time ON unfinished (queue_id, due_at)
    WHERE state = 1;
CREATE INDEX unfinished_by_group ON unfinished (queue_id, group_value, event_id)
    WHERE group_value IS NOT NULL;

CREATE TABLE dead_letters (
    queue_id INTEGER NOT NULL REFERENCES queues (queue_id),
    event_id INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    code     INTEGER,
    error    TEXT,
    died_at  INTEGER NOT NULL,
    PRIMARY KEY (queue_id, event_id)
) STRICT, WITHOUT ROWID;

-- What a claim returned under a nonce: a claim with the same nonce gets it again.
CREATE TABLE claim_nonces (
    queue_id INTEGER NOT NULL REFERENCES queues (queue_id),
    nonce    TEXT NOT NULL,
    token    BLOB NOT NULL,
    at       INTEGER NOT NULL,
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

-- Triggers, so that what the original tool does to a subscription has the same effect.

CREATE TRIGGER consumer_unsubscribed AFTER DELETE ON subscriptions
BEGIN
    DELETE FROM consumer_settings
    WHERE consumer_id = OLD.consumer_id;

    UPDATE unfinished
    SET state = 1, due_at = 0, token = NULL
    WHERE state = 0
        AND queue_id = (SELECT queue_id FROM queues WHERE consumer_id = OLD.consumer_id);
END;

-- A replay ends all leases and forgets what was done after the event that it goes back to.
CREATE TRIGGER progress_lowered AFTER UPDATE OF last_acked_id ON consumer_progress
WHEN NEW.last_acked_id < OLD.last_acked_id
BEGIN
    UPDATE queues
    SET replay_from = coalesce(min(replay_from, NEW.last_acked_id), NEW.last_acked_id)
    WHERE consumer_id = NEW.consumer_id;
END;
CREATE TRIGGER progress_replaced AFTER INSERT ON consumer_progress
BEGIN
    UPDATE queues
    SET replay_from = coalesce(min(replay_from, NEW.last_acked_id), NEW.last_acked_id)
    WHERE consumer_id = NEW.consumer_id
        AND NEW.last_acked_id < acked;
END;

-- ---- Memory: blobs by their hash, turns over them, contexts (branches) over the turns -----------

-- Bytes, once each. codec: 0 as they are, 1 zstd, 2 in parts, each a blob of its own, 3 erased. A
-- `part` was never put by itself. The bytes are in a table of their own: any change of a row of
-- `blobs` would write them again.
CREATE TABLE blobs (
    blob_id       INTEGER PRIMARY KEY,
    hash          BLOB NOT NULL UNIQUE CHECK (typeof(hash) = 'blob' AND length(hash) = 32),
    raw_len       INTEGER NOT NULL CHECK (raw_len BETWEEN 0 AND 4294967295),
    stored_len    INTEGER NOT NULL CHECK (stored_len BETWEEN 0 AND raw_len),
    codec         INTEGER NOT NULL CHECK (codec BETWEEN 0 AND 3),
    part          INTEGER NOT NULL DEFAULT 0,
    touched_at_ms INTEGER NOT NULL
);

CREATE TABLE blob_bytes (
    blob_id INTEGER PRIMARY KEY REFERENCES blobs (blob_id) ON DELETE CASCADE,
    bytes   BLOB NOT NULL
);

CREATE TABLE blob_parts (
    blob_id  INTEGER NOT NULL REFERENCES blobs (blob_id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    part_id  INTEGER NOT NULL REFERENCES blobs (blob_id),
    PRIMARY KEY (blob_id, position)
) WITHOUT ROWID;
CREATE INDEX blob_parts_by_part ON blob_parts (part_id);

-- What a blob names, as its writer said: an edge of the collection, never guessed from its bytes.
CREATE TABLE blob_refs (
    blob_id INTEGER NOT NULL REFERENCES blobs (blob_id) ON DELETE CASCADE,
    ref_id  INTEGER NOT NULL REFERENCES blobs (blob_id),
    PRIMARY KEY (blob_id, ref_id)
) WITHOUT ROWID;
CREATE INDEX blob_refs_by_ref ON blob_refs (ref_id);

CREATE TABLE pins (
    name          TEXT NOT NULL,
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (name, blob_id)
) WITHOUT ROWID;
CREATE INDEX pins_by_blob ON pins (blob_id);

-- The refs in an event's content, by hash: the bytes may come after the event.
CREATE TABLE event_blob_refs (
    event_id INTEGER NOT NULL,
    hash     BLOB NOT NULL,
    PRIMARY KEY (event_id, hash)
) WITHOUT ROWID;
CREATE INDEX event_blob_refs_by_hash ON event_blob_refs (hash);

-- The names that other tools have for bytes: the SHA-256 of their refs.
CREATE TABLE blob_names (
    sha256  BLOB PRIMARY KEY CHECK (length(sha256) = 32),
    blob_id INTEGER NOT NULL REFERENCES blobs (blob_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_names_by_blob ON blob_names (blob_id);

-- A turn never changes. jump_id is an ancestor as in skew-binary lists. type_tag is kept only where
-- it is not the one that follows from type_id; canonical names the rule that made the payload.
CREATE TABLE turns (
    turn_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id     INTEGER REFERENCES turns (turn_id),
    depth         INTEGER NOT NULL CHECK (depth BETWEEN 0 AND 4294967295),
    jump_id       INTEGER,
    jump_depth    INTEGER,
    type_id       TEXT NOT NULL,
    type_version  INTEGER NOT NULL,
    type_tag      INTEGER,
    encoding      INTEGER NOT NULL,
    canonical     TEXT,
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    flags         INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    CHECK (parent_id < turn_id),
    CHECK (
        (parent_id IS NULL) = (depth = 0)
        AND (jump_id IS NULL) = (depth = 0)
        AND (jump_depth IS NULL) = (depth = 0)
    )
);
CREATE INDEX turns_by_parent ON turns (parent_id, blob_id);
CREATE INDEX turns_by_blob ON turns (blob_id);
CREATE TRIGGER turns_are_immutable BEFORE UPDATE ON turns
BEGIN
    SELECT RAISE(ABORT, 'a turn is immutable');
END;

-- What reads show in place of a turn's payload from `seq` on; no blob is a tombstone.
CREATE TABLE turn_patches (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id       INTEGER NOT NULL REFERENCES turns (turn_id) ON DELETE CASCADE,
    blob_id       INTEGER REFERENCES blobs (blob_id),
    flags         INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL
);
CREATE INDEX turn_patches_by_turn ON turn_patches (turn_id, seq);
CREATE INDEX turn_patches_by_blob ON turn_patches (blob_id);

-- The root of a file tree, by hash: the bytes may come later, or lie elsewhere. A turn without one
-- has that of its nearest ancestor.
CREATE TABLE turn_roots (
    turn_id INTEGER PRIMARY KEY REFERENCES turns (turn_id) ON DELETE CASCADE,
    root    BLOB NOT NULL CHECK (length(root) = 32)
) STRICT;
CREATE INDEX turn_roots_by_root ON turn_roots (root);

-- A head that moves. version counts its moves; base_id is the turn that it began at. scope_id is
-- what the artifacts that it names are numbered in, NULL for a scope of its own.
CREATE TABLE contexts (
    context_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT UNIQUE,
    head_id       INTEGER REFERENCES turns (turn_id),
    base_id       INTEGER REFERENCES turns (turn_id) ON DELETE SET NULL,
    fork_of       INTEGER REFERENCES contexts (context_id) ON DELETE SET NULL,
    version       INTEGER NOT NULL DEFAULT 0,
    flags         INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    scope_id      INTEGER
);
CREATE INDEX contexts_by_head ON contexts (head_id);
CREATE INDEX contexts_by_base ON contexts (base_id);
CREATE INDEX contexts_by_fork ON contexts (fork_of);

-- Every move of a head, also of contexts that were deleted: a lost head is found here.
CREATE TABLE context_log (
    context_id INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    op         TEXT NOT NULL,
    old_id     INTEGER,
    new_id     INTEGER,
    at_ms      INTEGER NOT NULL,
    PRIMARY KEY (context_id, version)
) WITHOUT ROWID;

-- The idempotency keys of appends, in the order of time: expired ones are dropped from the front.
CREATE TABLE turn_keys (
    number        INTEGER PRIMARY KEY,
    context_id    INTEGER NOT NULL,
    key           TEXT NOT NULL,
    turn_id       INTEGER NOT NULL,
    digest        BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (context_id, key)
);

-- A turn that is still being written: its bytes so far, in pieces, until it is sealed into a blob.
CREATE TABLE open_turns (
    open_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    context_id    INTEGER NOT NULL REFERENCES contexts (context_id),
    type_id       TEXT NOT NULL,
    type_version  INTEGER NOT NULL,
    encoding      INTEGER NOT NULL,
    size          INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
);
CREATE INDEX open_turns_by_context ON open_turns (context_id);

CREATE TABLE open_pieces (
    open_id  INTEGER NOT NULL REFERENCES open_turns (open_id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    bytes    BLOB NOT NULL,
    PRIMARY KEY (open_id, position)
);

-- ---- Runs of a workflow -------------------------------------------------------------------------

-- A run is a context with a name, a group and a status; its turns are hash-chained nodes. source
-- reports its changes; NULL leaves that to the setting runs.emit.
CREATE TABLE runs (
    context_id      INTEGER PRIMARY KEY REFERENCES contexts (context_id) ON DELETE CASCADE,
    name            TEXT NOT NULL,
    grouped         TEXT NOT NULL,
    status          TEXT NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'suspended', 'completed', 'cancelled')),
    start_id        INTEGER NOT NULL REFERENCES turns (turn_id),
    completed_at_ms INTEGER,
    completed_on    TEXT
        GENERATED ALWAYS AS (date(completed_at_ms / 1000, 'unixepoch')) VIRTUAL,
    source          TEXT,
    CHECK ((status = 'completed') = (completed_at_ms IS NOT NULL))
);
CREATE INDEX runs_by_start ON runs (start_id);
-- What is under way, and what was completed on a day (UTC): neither look reads the other's rows.
CREATE INDEX runs_active ON runs (context_id)
    WHERE status IN ('active', 'suspended');
CREATE INDEX runs_by_day ON runs (completed_on, context_id)
    WHERE completed_on IS NOT NULL;

-- Steps that failed or were replaced: not on the chain, kept with the turn that they came after.
CREATE TABLE run_attempts (
    attempt_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id     INTEGER NOT NULL REFERENCES turns (turn_id) ON DELETE CASCADE,
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    created_at_ms INTEGER NOT NULL
);
CREATE INDEX run_attempts_by_parent ON run_attempts (parent_id);
CREATE INDEX run_attempts_by_blob ON run_attempts (blob_id);

-- The last change of each run, for those who follow runs: a later change takes the place of the one
-- before it, under a higher number. Nothing else is deleted here, so that numbers only rise.
-- grouped is there for a run that is gone.
CREATE TABLE run_changes (
    change_id INTEGER PRIMARY KEY,
    run_id    INTEGER NOT NULL UNIQUE,
    op        TEXT NOT NULL,
    grouped   TEXT
) STRICT;
-- A run is deleted with its context.
CREATE TRIGGER run_removed AFTER DELETE ON runs
BEGIN
    INSERT OR REPLACE INTO run_changes (run_id, op, grouped)
    VALUES (OLD.context_id, 'remove', OLD.grouped);
END;

-- ---- Scopes: what artifacts and outputs are numbered in -----------------------------------------

-- The thread is scope 0; a root context and its forks share one. A scope's number is the id of the
-- context that it began with. It stays when that is deleted, as its numbers may be named somewhere;
-- a context made later under the same name goes on in it. The row comes with the first thing in the
-- scope.
CREATE TABLE scopes (
    scope_id      INTEGER PRIMARY KEY CHECK (scope_id > 0),
    name          TEXT UNIQUE,
    created_at_ms INTEGER NOT NULL
) STRICT;

-- The next number of each kind: artifacts, and the outputs under each parent. No number is used
-- twice.
CREATE TABLE counters (
    scope_id INTEGER NOT NULL,
    name     TEXT NOT NULL,
    next     INTEGER NOT NULL CHECK (next >= 0),
    PRIMARY KEY (scope_id, name)
) STRICT, WITHOUT ROWID;

-- ---- Output: numbered artifacts in chunks, named outputs of agents in versions ------------------

-- number is the one that an artifact has in its scope; artifact_id is of this table only. owner
-- names who writes an open artifact, and its process: when that is dead, the artifact is partial.
-- A sealed one has a hash.
CREATE TABLE artifacts (
    artifact_id   INTEGER PRIMARY KEY,
    scope_id      INTEGER NOT NULL DEFAULT 0,
    number        INTEGER NOT NULL DEFAULT 0,
    tool          TEXT NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('open', 'sealed', 'failed')),
    owner         TEXT,
    size          INTEGER NOT NULL DEFAULT 0,
    lines         INTEGER NOT NULL DEFAULT 0,
    hash          BLOB,
    error         TEXT,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms   INTEGER,
    CHECK (artifact_id >= 0),
    CHECK ((status = 'open') = (ended_at_ms IS NULL) AND (status = 'sealed') = (hash IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX artifacts_by_number ON artifacts (scope_id, number);
CREATE INDEX artifacts_by_size ON artifacts (scope_id, size, tool);

-- Numbers that were deleted: what comes from elsewhere under one of them gets another.
CREATE TABLE removed_artifacts (
    scope_id      INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    removed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope_id, number)
) STRICT, WITHOUT ROWID;

-- 64 KiB each but the last, as zstd frames with a checksum; newlines counts those in the chunks
-- before.
CREATE TABLE artifact_chunks (
    artifact_id INTEGER NOT NULL REFERENCES artifacts (artifact_id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    newlines    INTEGER NOT NULL,
    bytes       BLOB NOT NULL,
    PRIMARY KEY (artifact_id, position)
) STRICT;
CREATE INDEX artifact_chunks_by_line ON artifact_chunks (artifact_id, newlines, position);

-- What an agent put out, by name; a name stands for version 1, whatever comes later.
CREATE TABLE agent_outputs (
    scope_id      INTEGER NOT NULL,
    output_id     TEXT NOT NULL,
    version       INTEGER NOT NULL CHECK (version >= 1),
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope_id, output_id, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_outputs_by_blob ON agent_outputs (blob_id);

-- The files that were imported from a folder, by their paths in it: each is an artifact, a version
-- of an output, or a blob.
CREATE TABLE files (
    scope_id INTEGER NOT NULL,
    path     TEXT NOT NULL CHECK (path <> ''),
    number   INTEGER,
    output   TEXT,
    version  INTEGER,
    blob_id  INTEGER REFERENCES blobs (blob_id),
    PRIMARY KEY (scope_id, path),
    CHECK ((number IS NOT NULL) + (output IS NOT NULL) + (blob_id IS NOT NULL) = 1),
    CHECK ((output IS NULL) = (version IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX files_by_blob ON files (blob_id);

-- ---- Sessions: files of coding agents, line by line ---------------------------------------------

-- A file that was rewritten is the next generation of its session, so that the one before can still
-- be exported. size and digest are those of the bytes that the lines were read from, up to the last
-- newline; place is the path of the file. What grows hangs below the line at settled, unless it has
-- to do with earlier lines: with their ids, or those in missing (JSON), which are parents that no
-- line has. The session of a subagent has an owner, the name of the session in whose folder its
-- file stands, the path there, and the id of the entry that started it, once that is known.
CREATE TABLE sessions (
    session_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL,
    generation    INTEGER NOT NULL,
    tool          TEXT NOT NULL,
    place         TEXT,
    size          INTEGER NOT NULL DEFAULT 0,
    digest        BLOB NOT NULL,
    lines         INTEGER NOT NULL DEFAULT 0,
    settled       INTEGER,
    missing       TEXT,
    owner         TEXT,
    path          TEXT,
    started_by    TEXT,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    UNIQUE (name, generation)
) STRICT;
CREATE INDEX sessions_by_owner ON sessions (owner)
    WHERE owner IS NOT NULL;

-- A line is before + text + after; the text is the blob, or what its refs stand for (form 2). entry
-- and parent are the ids in the file, kind, response and agent what its reader said. turn_id is
-- there once the line has its place.
CREATE TABLE session_lines (
    session_id INTEGER NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    blob_id    INTEGER NOT NULL REFERENCES blobs (blob_id),
    form       INTEGER NOT NULL,
    before     BLOB NOT NULL,
    after      BLOB NOT NULL,
    is_node    INTEGER NOT NULL,
    entry      TEXT,
    parent     TEXT,
    kind       INTEGER NOT NULL,
    response   TEXT,
    agent      TEXT,
    turn_id    INTEGER REFERENCES turns (turn_id),
    PRIMARY KEY (session_id, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_lines_by_entry ON session_lines (session_id, entry)
    WHERE entry IS NOT NULL;
CREATE INDEX session_lines_by_blob ON session_lines (blob_id);
CREATE INDEX session_lines_by_turn ON session_lines (turn_id);

-- The contexts that are the tips of a session's branches, and the turn where an import left each.
CREATE TABLE session_tips (
    context_id INTEGER PRIMARY KEY REFERENCES contexts (context_id) ON DELETE CASCADE,
    session_id INTEGER NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    turn_id    INTEGER NOT NULL
) STRICT;
CREATE INDEX session_tips_by_session ON session_tips (session_id);

-- ---- Settings of the thread ---------------------------------------------------------------------

-- What was changed of the settings; the others have their defaults.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- ---- Erasures -----------------------------------------------------------------------------------

-- What was erased, when and why. name is the id of a turn or an event, the hash of a blob in hex,
-- or scope/number of an artifact; a prune is there until it is finished. Until then, bytes may be
-- left in some file of the thread.
CREATE TABLE erasures (
    erasure_id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL CHECK (kind IN ('artifact', 'blob', 'event', 'prune', 'turn')),
    name       TEXT NOT NULL,
    reason     TEXT,
    at_ms      INTEGER NOT NULL,
    finished   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (kind, name)
) STRICT;

-- A blob that was erased keeps its hash and size. Its codec is 3, and its bytes are what is shown
-- in their place, until somebody puts the bytes again.
CREATE TABLE erased_blobs (
    blob_id    INTEGER PRIMARY KEY REFERENCES blobs (blob_id) ON DELETE CASCADE,
    erasure_id INTEGER NOT NULL REFERENCES erasures (erasure_id)
) STRICT;
CREATE INDEX erased_blobs_by_erasure ON erased_blobs (erasure_id);
CREATE TRIGGER blob_is_back AFTER UPDATE OF codec ON blobs
WHEN OLD.codec = 3 AND NEW.codec <> 3
BEGIN
    DELETE FROM erased_blobs WHERE blob_id = NEW.blob_id;
END;
