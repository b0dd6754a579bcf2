"""The event log and its consumers: events, claims, dead letters, mirror, journal, filters."""
