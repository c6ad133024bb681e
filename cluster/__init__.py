"""Several hosts that run one node together; all of them store the journal.

In: hosts that join, heartbeats of other hosts, local connections to sockets of other hosts.
Out: which hosts are up, which host owns each project, bytes to and from other hosts.
Open first: `process.py`, then `joining.py` and `links/`.
"""
