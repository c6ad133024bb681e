"""Transactions of projects: nonces, signing, broadcasting, following until they are final.

In: requests of projects over the chain's socket; committed entries of their outboxes.
Out: signed transactions on the chain; an event with the outcome of each transaction.
Open first: `requests.py`, then `nonces.py` and `broadcast/broadcaster.py`.
"""
