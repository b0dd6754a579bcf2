"""Filters: what a condition may say (`grammar`), and where it runs (`sandbox`)."""
