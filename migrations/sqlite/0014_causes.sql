DROP VIEW schema_13;
CREATE VIEW schema_14 AS SELECT 1;

-- The events that caused an event or a turn: those that its writer was at work on, as far as known.
-- `place` is the thread that they are in, "" for this one. A cause may have been pruned.
CREATE TABLE event_causes (
    event_id INTEGER NOT NULL,
    place    TEXT NOT NULL,
    cause    INTEGER NOT NULL,
    PRIMARY KEY (event_id, place, cause)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_causes_by_cause ON event_causes (place, cause, event_id);

CREATE TABLE turn_causes (
    turn_id INTEGER NOT NULL REFERENCES turns (turn_id) ON DELETE CASCADE,
    place   TEXT NOT NULL,
    cause   INTEGER NOT NULL,
    PRIMARY KEY (turn_id, place, cause)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_causes_by_cause ON turn_causes (place, cause, turn_id);
