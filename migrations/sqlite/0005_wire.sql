-- What clients of the network say of turns beside their payloads.

-- The root of a file tree, by hash: the bytes may come later, or lie elsewhere. A turn without one has its nearest ancestor's.
CREATE TABLE turn_roots (
    turn_id INTEGER PRIMARY KEY REFERENCES turns (turn_id) ON DELETE CASCADE,
    root    BLOB NOT NULL CHECK (length(root) = 32)
) STRICT;
CREATE INDEX turn_roots_by_root ON turn_roots (root);
