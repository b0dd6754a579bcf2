"""Where a thread is kept: one interface, and the engines behind it."""
