"""A thread over HTTP: its operations as JSON, streams of events, and their OpenAPI document."""
