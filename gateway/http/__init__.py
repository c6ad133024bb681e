"""The HTTP ports: events and management.

In: bytes from clients, plain or over TLS.
Out: parsed requests for `events` and `management`; the responses as bytes.
Open first: `server.py`, then `fast_path.py`, which serves the event requests of devices without
Tornado. `tornado/` serves all other requests, and is imported after the event ports are open;
`site/` has the pages of the dashboard port.
"""
