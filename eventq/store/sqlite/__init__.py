"""The engine on SQLite: a file for each thread, through apsw."""
