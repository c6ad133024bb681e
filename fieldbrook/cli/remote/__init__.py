"""Commands that talk to a running node, through its HTTP routes only.

Its folders are those of the management routes that the commands call.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `projects/projects.py`, then `lookup.py` (names and ids).
"""
