"""One connection of an MQTT client, and the handling of its packets.

In: bytes of a client.
Out: events to projects, changes of the client's session, acknowledgements after commits.
Open first: `connection.py`, then `inbox.py` and `connecting.py`.
"""
