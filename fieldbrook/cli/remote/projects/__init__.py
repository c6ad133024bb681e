"""Commands on projects and what belongs to them: applets, publishers, strategies.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `projects.py`, then `applets.py`.
"""
