"""LMDB: environments, tables, ring buffers of rows, identifiers, schema versions.

In: records as msgspec structs.
Out: bytes in LMDB; failures of LMDB as `StoreError` with a readable reason.
Open first: `environment.py`, then `table.py` and `rows.py`.
"""
