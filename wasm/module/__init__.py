"""Inspection of modules: checks that a binary's imports and exports fit the host interface.

In: the bytes of an upload.
Out: a report of what the module offers, or the reason why it is refused.
Open first: `inspection.py`, then `abi.py`.
"""
