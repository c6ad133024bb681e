"""The registry: accounts, projects, applets, strategies, publishers and the rest.

In: commands, one transaction each; reads from any process.
Out: records, and a change counter that tells caches when to read again.
Open first: `service.py`, then `tables.py` and `reader.py`.
"""
