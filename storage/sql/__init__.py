"""The SQL database of one project: SQLite, or PostgreSQL behind the same interface.

In: statements of applets and a project's table configuration.
Out: rows as JSON; a commit that carries the batch's number.
Open first: `sqlite.py`, then `batch.py` (what both share) and `postgres.py`.
"""
