"""Delivers the messages that the broker of an earlier version still holds, once.

In: the folder `broker` of a data folder in which nats-server kept messages for the node.
Out: these messages, in order; then the folder is removed.
Open first: `drain.py`.
"""
