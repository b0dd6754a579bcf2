"""Filters: which conditions are accepted (`grammar`), and where they run (`sandbox`)."""
