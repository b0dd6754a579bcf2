"""What was said, as a graph: blobs, turns, contexts and runs."""
