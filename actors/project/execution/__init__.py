"""The execution of events: one data thread per project runs handlers and commits their effects.

In: requests of gateways: frames of events, commands of the node, requests for outbox entries.
Out: one result per event after the commit of its batch; outbox entries.
Open first: `executor.py` (the batches), then `runner.py` (one handler) and `commit.py`.
"""
