"""Erase what was stored, in every file of a thread, also what a prune deletes."""
