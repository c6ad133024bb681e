"""The journal of a worker: one synced write commits the batches of all its projects.

In: packed batches of projects, each with its number.
Out: the same batches after a crash, for stores that lack them.
Open first: `protocol.py`, then `file.py`.
"""
