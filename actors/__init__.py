"""The processes of the node: the supervision tree and its actors.

In: messages from the parent process and frames from gateways.
Out: results of events; health reports to the supervisor.
Open first: `runtime.py` (Thespian, hardened), then `messages.py` and `wire.py`.
"""
