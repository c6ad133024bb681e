"""Commands on the node itself: its health, its log, its settings.

In: arguments; answers of the management routes.
Out: requests; tables or JSON.
Open first: `health.py`.
"""
