-- What was erased, when and why. name is the id of a turn or an event, the hash of a blob in hex, or scope/number of an
-- artifact; a prune is there until it is finished. Until then, bytes may be left in some file of the thread.
CREATE TABLE erasures (
    erasure_id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL CHECK (kind IN ('artifact', 'blob', 'event', 'prune', 'turn')),
    name       TEXT NOT NULL,
    reason     TEXT,
    at_ms      INTEGER NOT NULL,
    finished   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (kind, name)
) STRICT;
