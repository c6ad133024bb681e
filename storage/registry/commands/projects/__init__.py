"""Commands on projects and what belongs to them.

In: a command as a value.
Out: one transaction.
Open first: `projects.py`, then `applets.py`.
"""
