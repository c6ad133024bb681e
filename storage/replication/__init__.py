"""The replicated journal: batches of projects, in streams of NATS JetStream on several hosts.

In: packed batches of projects, and takeovers of projects by hosts.
Out: for each batch, whether it is stored; for a host that takes over a project, its batches.
Open first: `records.py`, then `appends.py` and `takeover.py`.
"""
