"""Programs: a whole node in the foreground, and the process of the node.

In: the settings.
Out: a running tree of processes that ends at a signal.
Open first: `up.py` (`fieldbrook up`), then `main.py`, which puts all parts together.
"""
