"""The SQL database of one project: SQLite, or PostgreSQL behind the same interface.

In: statements of applets and a project's table configuration.
Out: rows as JSON; a commit that stores the batch's number with its rows.
Open first: `database.py` and `reading.py` (what both share), then `sqlite/` or `postgres/`.
"""
