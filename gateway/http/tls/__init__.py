"""TLS for the HTTP ports.

In: accepted connections, and what the settings say about plain HTTP.
Out: connections of protocols, over TLS or plain; sockets for Tornado.
Open first: `plain.py`, then `bridge.py`.
"""
