"""The actor of one project, with its strategies, its instance pool and its store.

In: batches of events, as frames from the gateways.
Out: one result per event, sent after the commit.
Open first: `actor.py`, then `execution/` (run, commit, answer).
"""
