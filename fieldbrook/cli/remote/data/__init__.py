"""Commands on what a project stores.

In: options and arguments.
Out: calls of the routes in `gateway/management/routes/data`.
Open first: `key_values.py`, then `tables.py`.
"""
