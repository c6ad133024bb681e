"""The framework of the management routes: declaration, binding, ownership, views, audit.

In: a request and the declaration of its route.
Out: typed values for the route's function; records as JSON for the client.
Open first: `route.py`, then `binding.py`, `ownership.py` and `answers.py`.
"""
