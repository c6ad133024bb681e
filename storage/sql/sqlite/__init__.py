"""A project's SQL database in a SQLite file, confined to the configured tables.

In: statements of applets, and the project's table configuration.
Out: rows as JSON; a commit that stores the batch's number with its rows.
Open first: `database.py`.
"""
