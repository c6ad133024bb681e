"""What a module's binary says: sections, imports, exports, and whether they fit the host interface.

In: bytes of an upload.
Out: what the module offers, or why it is refused.
Open first: `inspection.py`, then `abi.py`.
"""
