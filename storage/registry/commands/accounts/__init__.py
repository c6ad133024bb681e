"""Commands on accounts and what belongs to them.

In: a command as a value.
Out: one transaction.
Open first: `accounts.py`.
"""
