"""Threads in PostgreSQL, which programs on many machines share."""
