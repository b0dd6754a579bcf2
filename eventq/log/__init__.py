"""The event log, its consumers, and the processes that run their handlers."""
