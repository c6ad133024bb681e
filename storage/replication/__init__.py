"""The replicated journal: what projects commit, in streams of NATS JetStream on several hosts.

In: packed batches of projects, and takeovers of projects by hosts.
Out: for each batch whether it is stored; all batches again, for a host that takes over.
Open first: `records.py`, then `appends.py` and `takeover.py`.
"""
