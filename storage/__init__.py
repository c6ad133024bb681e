"""Storage: everything that the node keeps on disk.

In: values of `fieldbrook.core.model`, batches of effects.
Out: the same values, after a synced commit.
Open first: `lmdb/` for the layout of records on disk, then `registry/` and `project/`.
"""
