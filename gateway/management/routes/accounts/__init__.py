"""Routes about accounts: sign-in, keys, operators, audit log.

In: typed values from `framework`.
Out: records and commands of the registry.
Open first: `accounts.py`.
"""
