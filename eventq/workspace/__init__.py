"""The directory of a thread: its paths, and the mirror and the journal for people."""
