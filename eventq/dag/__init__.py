"""What was said: turns, contexts, packs."""
