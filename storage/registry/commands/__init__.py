"""The commands that change the registry.

In: a command as a value.
Out: one synced transaction with its row of the audit log, or an error and no change.
Open first: `change.py`, then the folder of the noun.
"""
