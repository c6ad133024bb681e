"""The execution of events: runs the handlers of a project and prepares the commit of their effects.

In: requests of gateways: frames of events, commands of the node, requests for outbox entries.
Out: one result per event after the commit of its batch; outbox entries.
Open first: `executor.py` (the batches), then `runner.py` (one handler) and `commit.py`.
"""
