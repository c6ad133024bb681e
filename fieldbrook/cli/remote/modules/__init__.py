"""Commands that try modules on a node, without effect.

In: modules, events.
Out: calls of the routes in `gateway/management/routes/modules`.
Open first: `inspection.py`, then `dry_runs.py`.
"""
