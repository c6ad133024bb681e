"""Serving with Tornado: every request that is no plain event of a device.

In: connections that the fast path hands over, with the bytes read so far.
Out: parsed requests for `events`, `management` and `site`; the responses as bytes.
Open first: `applications.py`, then `server.py`. Modules outside this folder import these modules
only after the event ports are open.
"""
