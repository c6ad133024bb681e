"""The SQL database of one project: SQLite, or PostgreSQL behind the same interface.

In: statements of applets and a project's table configuration.
Out: rows as JSON; a commit that stores the batch's number with its rows.
Open first: `sqlite.py`, then `batch.py` (the part that both share) and `postgres.py`.
"""
