"""Commands that talk to a running node, and only over its routes.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `objects.py` (projects, applets, publishers, strategies).
"""
