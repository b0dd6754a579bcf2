-- Runs of a workflow. A run is a context with a name, a group and a status; its turns are hash-chained nodes.
CREATE TABLE runs (
    context_id      INTEGER PRIMARY KEY REFERENCES contexts (context_id) ON DELETE CASCADE,
    name            TEXT NOT NULL,
    grouped         TEXT NOT NULL,
    status          TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended', 'completed', 'cancelled')),
    start_id        INTEGER NOT NULL REFERENCES turns (turn_id),
    completed_at_ms INTEGER,
    completed_on    TEXT GENERATED ALWAYS AS (date(completed_at_ms / 1000, 'unixepoch')) VIRTUAL,
    CHECK ((status = 'completed') = (completed_at_ms IS NOT NULL))
);
CREATE INDEX runs_by_start ON runs (start_id);
-- What is under way, and what was completed on a day (UTC): neither look reads the other's rows.
CREATE INDEX runs_active ON runs (context_id) WHERE status IN ('active', 'suspended');
CREATE INDEX runs_by_day ON runs (completed_on, context_id) WHERE completed_on IS NOT NULL;
-- Steps that failed or were replaced: not on the chain, kept with the turn that they came after.
CREATE TABLE run_attempts (
    attempt_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id     INTEGER NOT NULL REFERENCES turns (turn_id) ON DELETE CASCADE,
    blob_id       INTEGER NOT NULL REFERENCES blobs (blob_id),
    created_at_ms INTEGER NOT NULL
);
CREATE INDEX run_attempts_by_parent ON run_attempts (parent_id);
CREATE INDEX run_attempts_by_blob ON run_attempts (blob_id);
