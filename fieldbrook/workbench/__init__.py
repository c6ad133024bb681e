"""Applets at their author's desk: made, built, run and tested without a node.

In: a module or a folder with one; recorded events.
Out: results, logs and effects of each event; differences from the record.
Open first: `runs.py`, then `scaffold.py` and `templates/`.
"""
