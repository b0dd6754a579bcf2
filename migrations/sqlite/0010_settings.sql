-- What was changed of the settings of a thread; the others have their defaults.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Who reports the changes of a run; NULL leaves that to the setting runs.emit.
ALTER TABLE runs ADD COLUMN source TEXT;
