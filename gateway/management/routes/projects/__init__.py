"""Routes about projects and what they own.

In: typed values from `framework`.
Out: records and commands of the registry.
Open first: `projects.py`, then `applets.py`.
"""
