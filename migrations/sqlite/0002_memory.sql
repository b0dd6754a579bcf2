-- What was said: blobs by their hash, turns over them, contexts (branches) over the turns. Ids that are u64 outside are
-- signed here; times are milliseconds since 1970.

-- Bytes, once each. codec: 0 as they are, 1 zstd, 2 in parts, each a blob of its own. A `part` was never put by itself.
-- The bytes lie apart: whatever changes a row of `blobs` would write them again.
CREATE TABLE blobs (
    blob_id       INTEGER PRIMARY KEY,
    hash          BLOB NOT NULL UNIQUE CHECK (typeof(hash) = 'blob' AND length(hash) = 32),
    raw_len       INTEGER NOT NULL CHECK (raw_len BETWEEN 0 AND 4294967295),
    stored_len    INTEGER NOT NULL CHECK (stored_len BETWEEN 0 AND raw_len),
    codec         INTEGER NOT NULL CHECK (codec BETWEEN 0 AND 2),
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
-- What a blob names, given when it was put: an edge of the collection, never guessed from its bytes.
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

-- A turn never changes. jump_id is an ancestor as in skew-binary lists; type_tag is kept only where it is not the one
-- that follows from type_id; canonical names the rule that made the payload's bytes.
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
    CHECK ((parent_id IS NULL) = (depth = 0) AND (jump_id IS NULL) = (depth = 0) AND (jump_depth IS NULL) = (depth = 0))
);
CREATE INDEX turns_by_parent ON turns (parent_id, blob_id);
CREATE INDEX turns_by_blob ON turns (blob_id);
CREATE TRIGGER turns_are_immutable BEFORE UPDATE ON turns
BEGIN
    SELECT RAISE(ABORT, 'a turn is immutable');
END;
-- An overlay: what reads show in place of a turn's payload from `seq` on; no blob is a tombstone.
CREATE TABLE turn_patches (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id       INTEGER NOT NULL REFERENCES turns (turn_id) ON DELETE CASCADE,
    blob_id       INTEGER REFERENCES blobs (blob_id),
    flags         INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL
);
CREATE INDEX turn_patches_by_turn ON turn_patches (turn_id, seq);
CREATE INDEX turn_patches_by_blob ON turn_patches (blob_id);
-- A head that moves. version counts its moves; base_id is the turn that it began at.
CREATE TABLE contexts (
    context_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT UNIQUE,
    head_id       INTEGER REFERENCES turns (turn_id),
    base_id       INTEGER REFERENCES turns (turn_id) ON DELETE SET NULL,
    fork_of       INTEGER REFERENCES contexts (context_id) ON DELETE SET NULL,
    version       INTEGER NOT NULL DEFAULT 0,
    flags         INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
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
