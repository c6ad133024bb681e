"""The store of one project: key-value pairs, history, dead letters, outbox, deduplication.

In: the effects of a batch.
Out: one synced transaction; reads for management.
Open first: `store.py`.
"""
