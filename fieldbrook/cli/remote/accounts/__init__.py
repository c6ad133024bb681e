"""Commands on accounts: login, administrators, accounts, access keys, operators, quotas, audit log.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `login.py`, then `accounts.py`.
"""
