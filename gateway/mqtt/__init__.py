"""MQTT: events from the embedded broker or an external one.

In: messages from the broker.
Out: events to projects; an acknowledgement to the broker after the project's commit.
Open first: `gateway.py`, then `sources.py` and one of the adapters beside it.
"""
