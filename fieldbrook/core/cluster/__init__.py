"""A cluster as values: its hosts, their state, and the owner host of each project.

In: the hosts that have joined, and the hosts that are up.
Out: whether a host may join; the owner host of a project.
Open first: `membership.py`, then `placement.py`.
"""
