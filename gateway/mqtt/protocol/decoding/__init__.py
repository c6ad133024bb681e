"""Bytes to packets, of both versions and from both sides.

In: the first byte of a packet, and its body.
Out: the packet as a value, or the error that the standard demands.
Open first: `decoder.py`.
"""
