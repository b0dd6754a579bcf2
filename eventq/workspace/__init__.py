"""The directory of a thread: its paths, the mirror and the journal for people, and the watcher."""
