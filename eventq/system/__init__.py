"""The operating system: clock, environment, files, processes, locks, mounts, C libraries."""
