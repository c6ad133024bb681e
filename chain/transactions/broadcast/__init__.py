"""Committed transactions: sending, looking up receipts, reorganisations, outcomes.

In: the stored transactions of a chain, and its client.
Out: transactions in final blocks; the outcome of each transaction.
Open first: `broadcaster.py`, then `submissions.py` and `outcomes.py`.
"""
