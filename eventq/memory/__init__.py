"""Conversations: turns, contexts, runs and packs."""
