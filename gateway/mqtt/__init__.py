"""MQTT: events from the embedded broker or an external one.

In: messages of the broker.
Out: events to projects; an acknowledgement to the broker after the commit.
Open first: `gateway.py`, then `sources.py` and one of the adapters beside it.
"""
