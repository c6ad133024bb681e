"""One project as an actor: its strategies, its instance pool and its store.

In: batches of events, as frames from the gateways.
Out: one result per event, sent after the commit.
Open first: `executor.py` (route, run, commit, answer), then `actor.py`.
"""
