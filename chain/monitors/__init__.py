"""Monitors: contract logs, transactions and block heights that become events.

In: the monitors of the registry; new blocks.
Out: events for projects; an updated cursor of each monitor.
Open first: `service.py`, then `watch.py` and `head.py`.
"""
