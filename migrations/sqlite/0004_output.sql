-- What was produced: numbered artifacts in chunks, named outputs of agents in versions. Times are milliseconds since
-- 1970.

-- The next number of each kind: artifacts, and the outputs under each parent. A number is never given twice.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    next INTEGER NOT NULL CHECK (next >= 0)
) STRICT, WITHOUT ROWID;
-- owner names who writes an open artifact, and its process: when that is dead, the artifact is partial. hash is there once it is sealed.
CREATE TABLE artifacts (
    artifact_id   INTEGER PRIMARY KEY,
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
CREATE INDEX artifacts_by_size ON artifacts (size, tool);
-- Numbers that were deleted: what comes from elsewhere under one of them gets another.
CREATE TABLE removed_artifacts (
    artifact_id   INTEGER PRIMARY KEY,
    removed_at_ms INTEGER NOT NULL
) STRICT;
-- 64 KiB each but the last, as zstd frames with a checksum; newlines counts those in the chunks before.
CREATE TABLE artifact_chunks (
    artifact_id INTEGER NOT NULL REFERENCES artifacts (artifact_id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    newlines    INTEGER NOT NULL,
    bytes       BLOB NOT NULL,
    PRIMARY KEY (artifact_id, position)
) STRICT;
CREATE INDEX artifact_chunks_by_line ON artifact_chunks (artifact_id, newlines, position);
-- What an agent put out, by name; version 1 is what the name gives, whatever comes later.
CREATE TABLE agent_outputs (
    output_id     TEXT NOT NULL,
    version       INTEGER NOT NULL CHECK (version >= 1),
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (output_id, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_outputs_by_blob ON agent_outputs (blob_id);
-- The names that other tools have for bytes: the SHA-256 of their refs.
CREATE TABLE blob_names (
    sha256  BLOB PRIMARY KEY CHECK (length(sha256) = 32),
    blob_id INTEGER NOT NULL REFERENCES blobs (blob_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_names_by_blob ON blob_names (blob_id);
