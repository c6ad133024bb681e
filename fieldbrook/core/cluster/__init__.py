"""A cluster as values: its hosts, and which of them owns what.

In: the hosts that have joined, and those that are there.
Out: whether a host may join; the owner of a project.
Open first: `membership.py`, then `placement.py`.
"""
