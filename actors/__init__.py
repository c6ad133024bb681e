"""The processes of the node: the supervisor, and the actors that it starts.

In: messages from the parent process and frames from gateways.
Out: results of events; health reports to the supervisor.
Open first: `runtime.py` (Thespian, hardened), then `messages.py` and `wire.py`.
"""
