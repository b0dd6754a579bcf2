-- Questions that nobody has answered yet, as events of the types question and approval.
CREATE TABLE open_questions (
    event_id INTEGER PRIMARY KEY
) STRICT;

-- What is being written, in all scopes.
CREATE INDEX artifacts_open ON artifacts (artifact_id)
    WHERE status = 'open';
