DROP VIEW schema_14;
CREATE VIEW schema_15 AS SELECT 1;

-- The tokens that a response of a model took, with the first turn of it; of a session, or of the
-- context or run that it was appended to. `response` is made of its id, 0 for none: several turns
-- may be one response. `agent` is 1 for a subagent within the session's file.
CREATE TABLE usage (
    turn_id    INTEGER NOT NULL REFERENCES turns (turn_id) ON DELETE CASCADE,
    response   INTEGER NOT NULL,
    session_id INTEGER REFERENCES sessions (session_id) ON DELETE CASCADE,
    context_id INTEGER,
    agent      INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    model      TEXT NOT NULL,
    out        INTEGER NOT NULL,
    fresh      INTEGER NOT NULL,
    cached     INTEGER NOT NULL,
    PRIMARY KEY (turn_id, response)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_response ON usage (response) WHERE response <> 0;
CREATE INDEX usage_by_session ON usage (session_id, turn_id) WHERE session_id IS NOT NULL;
CREATE INDEX usage_by_context ON usage (context_id, response) WHERE context_id IS NOT NULL;
-- It has all that sums of a time need: rows are in the order of turns, so those of a day lie apart.
CREATE INDEX usage_by_time ON usage (at_ms, out, fresh, cached, model);

-- How many lines of a session have been looked at for that.
CREATE TABLE usage_read (
    session_id INTEGER PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    lines      INTEGER NOT NULL
) STRICT;

-- Turns that were there before are looked at later on, some at a time.
INSERT INTO settings (name, value)
SELECT 'usage.looked', '0 -1 ' || max(turn_id)
FROM turns
HAVING max(turn_id) IS NOT NULL;
