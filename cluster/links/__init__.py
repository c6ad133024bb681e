"""Connections between two hosts: messages, routes to projects, tunnels to sockets.

In: connections of other hosts, and local connections to sockets of other hosts.
Out: messages for `process.py` and the supervisor; bytes to and from other hosts.
Open first: `lines.py`, then `routes.py` and `tunnels.py`.
"""
