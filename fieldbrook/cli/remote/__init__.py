"""Commands that talk to a running node, through its HTTP routes only.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `objects.py` (projects, applets, publishers, strategies).
"""
