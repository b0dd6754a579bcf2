"""The SQLite engine: the only SQL of a thread that is a directory."""
