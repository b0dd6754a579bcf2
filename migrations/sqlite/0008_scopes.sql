-- What artifacts and outputs are numbered in: the thread is scope 0, a root context and its forks share one. A scope's
-- number is the id of the context that it began with. It stays when that is deleted, as its numbers may be named
-- somewhere; a context made later under the same name goes on in it. The row comes with the first thing in the scope.
CREATE TABLE scopes (
    scope_id      INTEGER PRIMARY KEY CHECK (scope_id > 0),
    name          TEXT UNIQUE,
    created_at_ms INTEGER NOT NULL
) STRICT;

-- NULL is a scope of its own. Contexts of before name artifacts of the thread.
ALTER TABLE contexts ADD COLUMN scope_id INTEGER;
UPDATE contexts SET scope_id = 0;

-- The number that an artifact has in its scope; artifact_id is of this table only.
ALTER TABLE artifacts ADD COLUMN scope_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE artifacts ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
UPDATE artifacts SET number = artifact_id;
CREATE UNIQUE INDEX artifacts_by_number ON artifacts (scope_id, number);
DROP INDEX artifacts_by_size;
CREATE INDEX artifacts_by_size ON artifacts (scope_id, size, tool);

CREATE TABLE scope_counters (
    scope_id INTEGER NOT NULL,
    name     TEXT NOT NULL,
    next     INTEGER NOT NULL CHECK (next >= 0),
    PRIMARY KEY (scope_id, name)
) STRICT, WITHOUT ROWID;
INSERT INTO scope_counters SELECT 0, name, next FROM counters;
DROP TABLE counters;
ALTER TABLE scope_counters RENAME TO counters;

CREATE TABLE scope_removed_artifacts (
    scope_id      INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    removed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO scope_removed_artifacts SELECT 0, artifact_id, removed_at_ms FROM removed_artifacts;
DROP TABLE removed_artifacts;
ALTER TABLE scope_removed_artifacts RENAME TO removed_artifacts;

CREATE TABLE scope_agent_outputs (
    scope_id      INTEGER NOT NULL,
    output_id     TEXT NOT NULL,
    version       INTEGER NOT NULL CHECK (version >= 1),
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope_id, output_id, version)
) STRICT, WITHOUT ROWID;
INSERT INTO scope_agent_outputs SELECT 0, output_id, version, blob_id, created_at_ms FROM agent_outputs;
DROP TABLE agent_outputs;
ALTER TABLE scope_agent_outputs RENAME TO agent_outputs;
CREATE INDEX agent_outputs_by_blob ON agent_outputs (blob_id);

-- The files that were imported from a folder, by their paths in it: each is an artifact, a version of an output, or a
-- blob.
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
