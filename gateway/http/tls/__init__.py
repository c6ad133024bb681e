"""TLS for the HTTP ports.

In: accepted connections, and the settings for plain HTTP.
Out: connections with their protocols, over TLS or plain; sockets for Tornado.
Open first: `plain.py`, then `bridge.py`.
"""
