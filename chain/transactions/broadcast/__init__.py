"""Committed transactions on their way: sending, looking up, reorganisations, outcomes.

In: the stored transactions of a chain, and its client.
Out: transactions in blocks that are final; each one's outcome.
Open first: `broadcaster.py`, then `submissions.py` and `outcomes.py`.
"""
