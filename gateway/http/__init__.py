"""The HTTP ports: events and management.

In: bytes of clients, plain or over TLS.
Out: parsed requests to `events` and `management`; their answers as bytes.
Open first: `server.py`, then `fast_path.py`, which reads the events of devices without Tornado.
"""
