"""Filters: which are accepted (`grammar`), how they are compiled (`guards`) and run (`sandbox`)."""
