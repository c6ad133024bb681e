"""Commands about accounts: login, keys, quotas, administration.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `login.py`, then `accounts.py`.
"""
