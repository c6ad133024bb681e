"""Listening: ports, connection limits and TLS handshakes, for HTTP and MQTT.

In: connections of clients.
Out: each connection with its protocol, or closed at a limit.
Open first: `listener.py`, then `connections.py`.
"""
