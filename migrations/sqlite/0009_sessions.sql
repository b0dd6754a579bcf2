-- Session files of coding agents, line by line. A file that was rewritten is the next generation of its session, so
-- that the one before can still be exported.

-- size and digest are those of the bytes that the lines were read from, up to the last newline; place is the path of
-- the file. What grows hangs below the line at settled, unless it has to do with earlier lines: with their ids, or those
-- in missing (JSON), which are parents that no line has. The session of a subagent has an owner, the name of the session
-- in whose folder its file stands, the path there, and the id of the entry that started it, once that is known.
CREATE TABLE sessions (
    session_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL,
    generation    INTEGER NOT NULL,
    tool          TEXT NOT NULL,
    place         TEXT,
    size          INTEGER NOT NULL DEFAULT 0,
    digest        BLOB NOT NULL,
    lines         INTEGER NOT NULL DEFAULT 0,
    settled       INTEGER,
    missing       TEXT,
    owner         TEXT,
    path          TEXT,
    started_by    TEXT,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    UNIQUE (name, generation)
) STRICT;
CREATE INDEX sessions_by_owner ON sessions (owner) WHERE owner IS NOT NULL;

-- A line is before + text + after; the text is the blob, or what its refs stand for (form 2). entry and parent are the
-- ids in the file, kind, response and agent what its reader said. turn_id is there once the line has its place.
CREATE TABLE session_lines (
    session_id INTEGER NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    blob_id    INTEGER NOT NULL REFERENCES blobs (blob_id),
    form       INTEGER NOT NULL,
    before     BLOB NOT NULL,
    after      BLOB NOT NULL,
    is_node    INTEGER NOT NULL,
    entry      TEXT,
    parent     TEXT,
    kind       INTEGER NOT NULL,
    response   TEXT,
    agent      TEXT,
    turn_id    INTEGER REFERENCES turns (turn_id),
    PRIMARY KEY (session_id, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_lines_by_entry ON session_lines (session_id, entry) WHERE entry IS NOT NULL;
CREATE INDEX session_lines_by_blob ON session_lines (blob_id);
CREATE INDEX session_lines_by_turn ON session_lines (turn_id);

-- The contexts that are the tips of a session's branches, and the turn where an import has left each.
CREATE TABLE session_tips (
    context_id INTEGER PRIMARY KEY REFERENCES contexts (context_id) ON DELETE CASCADE,
    session_id INTEGER NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    turn_id    INTEGER NOT NULL
) STRICT;
CREATE INDEX session_tips_by_session ON session_tips (session_id);
