"""MQTT: events from clients that connect to the node, and from external brokers.

In: packets of clients (`listener`), messages of an external broker (`external.py`).
Out: events to projects, acknowledged after their commit; messages to subscribers.
Open first: `gateway.py`, then `listener/server.py` or `external.py`.
"""
