"""What Tornado serves: every request that is no plain event of a device.

In: connections that the fast path hands over, with the bytes read so far.
Out: parsed requests for `events`, `management` and `site`; the responses as bytes.
Open first: `applications.py`, then `server.py`. No module outside imports any of these before the
event ports are open.
"""
