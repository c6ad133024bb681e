"""What the node keeps of one chain.

In: cursors of monitors, recent blocks, leases, transactions.
Out: the same, after a restart.
Open first: `store.py`, then `transactions.py`.
"""
