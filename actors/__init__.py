"""The processes of the node: a supervision tree, and what each of its actors owns.

In: messages of the parent and frames of gateways.
Out: results of events; health reports to the supervisor.
Open first: `runtime.py` (Thespian, hardened), then `messages.py` and `wire.py`.
"""
