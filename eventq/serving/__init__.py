"""What a server of a thread needs whatever its protocol: plans, workers, and a memory budget."""
