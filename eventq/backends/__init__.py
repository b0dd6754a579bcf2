"""Where things are kept: the only SQL."""
