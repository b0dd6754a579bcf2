"""Session files of coding agents: what their lines mean, and how they hang together."""
