"""What happened: the event log, its consumers, and the files beside the database."""
