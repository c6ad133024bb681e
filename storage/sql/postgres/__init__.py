"""A project's SQL database on a PostgreSQL server, in a schema and with a role of its own.

In: statements of applets, the project's table configuration, and the server's DSN.
Out: rows as JSON; a commit that stores the batch's number with its rows.
Open first: `database.py`, then `statements.py`.
"""
