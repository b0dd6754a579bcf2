-- The last change of each run, for those who follow runs: a later change takes the place of the one before it, under a
-- higher number. Nothing else is deleted here, so that numbers only rise. grouped is there for a run that is gone.
CREATE TABLE run_changes (
    change_id INTEGER PRIMARY KEY,
    run_id    INTEGER NOT NULL UNIQUE,
    op        TEXT NOT NULL,
    grouped   TEXT
) STRICT;
-- A run goes with its context.
CREATE TRIGGER run_removed AFTER DELETE ON runs BEGIN
    INSERT OR REPLACE INTO run_changes (run_id, op, grouped) VALUES (OLD.context_id, 'remove', OLD.grouped);
END;
