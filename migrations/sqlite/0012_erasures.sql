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

-- A blob that was erased keeps its hash and size. Its codec is 3, and its bytes are what is shown in their place. Whoever
-- puts the bytes anew, of whatever version, ends that.
CREATE TABLE erased_blobs (
    blob_id    INTEGER PRIMARY KEY REFERENCES blobs (blob_id) ON DELETE CASCADE,
    erasure_id INTEGER NOT NULL REFERENCES erasures (erasure_id)
) STRICT;
CREATE INDEX erased_blobs_by_erasure ON erased_blobs (erasure_id);
CREATE TRIGGER blob_is_back AFTER UPDATE OF codec ON blobs WHEN OLD.codec = 3 AND NEW.codec <> 3 BEGIN
    DELETE FROM erased_blobs WHERE blob_id = NEW.blob_id;
END;

-- The way that SQLite documents for a CHECK that is to accept more: what is stored stays as it is.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'codec BETWEEN 0 AND 2', 'codec BETWEEN 0 AND 3') WHERE name = 'blobs';
PRAGMA writable_schema = RESET;
