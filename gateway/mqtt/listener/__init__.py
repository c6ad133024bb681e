"""The node's own MQTT server: devices connect to it directly, without a broker.

In: connections of MQTT 3.1.1 and 5.0 clients over TCP, TLS and WebSocket.
Out: events to projects, acknowledged after their commit; messages to subscribers.
Open first: `server.py`; each client's connection is in `gateway/mqtt/connection`.
"""
