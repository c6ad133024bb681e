"""Commands on chains: their state, monitors, contract ABIs, transactions.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `monitors.py`, then `transactions.py`.
"""
