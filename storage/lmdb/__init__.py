"""LMDB: environments, tables, rings of rows, identifiers, schema versions.

In: records as msgspec structs.
Out: bytes in LMDB, and errors in plain words.
Open first: `environment.py`, then `table.py` and `rows.py`.
"""
