"""The store of one chain.

In: cursors of monitors, recent blocks, leased nonces, transactions.
Out: the same, after a restart.
Open first: `store.py`, then `transactions.py`.
"""
